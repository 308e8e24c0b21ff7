"""`jax.nn`: activations, softmax, attention, initialisers."""
from __future__ import annotations

import math as _math
from typing import Any

import numpy as _np

from adjoint.base.errors import missing as _missing
from adjoint.core.tensor import wrap as _wrap
from adjoint.jax import numpy as _jnp
from adjoint.jax._array import as_array as _as_array
from adjoint.jax._array import joined as _joined
from adjoint.jax._array import make as _make
from adjoint.jax._dtypes import as_dtype as _as_dtype
from adjoint.jax._dtypes import default_dtype as _default_dtype
from adjoint.jax._table import T as _T
from adjoint.jax._table import floating as _floating
from adjoint.jax._table import is_weak as _is_weak
from adjoint.jax._table import named as _named
from adjoint.jax.lax._elementwise import NAMES as _LAX
from adjoint.jax.nn import initializers
from adjoint.protocols import sign_or_nan as _sign_or_nan

_np_: Any = _jnp


def _activation(name: str, run: Any) -> Any:
    def call(x: Any) -> Any:
        return _make(run(_floating(x, name)), _is_weak(x))
    return _named(call, name, __name__)


def _expm1_below(t: Any) -> Any:
    """exp(t) - 1 where t is negative; 0 elsewhere, so that it cannot overflow."""
    return _T["expm1"](_T["where"](t > 0, t.new_zeros(()), t))




def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)), of floats alone, as in JAX."""
    return _LAX["logistic"](_as_array(x, "sigmoid"))


def silu(x: Any) -> Any:
    """x sigmoid(x), of floats alone, as in JAX."""
    a = _as_array(x, "silu")
    sigmoid(a)
    return _make(a.tensor * _T["sigmoid"](a.tensor), a.weak_type)


swish = silu
mish = _activation("mish", lambda t: t * _T["tanh"](_T["logaddexp"](t, t.new_zeros(()))))
log_sigmoid = _activation("log_sigmoid", lambda t: -_T["logaddexp"](-t, t.new_zeros(())))
softplus = _activation("softplus", lambda t: _T["logaddexp"](t, t.new_zeros(())))
soft_sign = _activation("soft_sign", lambda t: t / (abs(t) + 1))
tanh = _jnp.tanh
selu = _activation("selu", lambda t: 1.0507009873554805 * _T["where"](
    t > 0, t, 1.6732632423543772 * _expm1_below(t)))


def hard_tanh(x: Any) -> Any:
    """x between -1 and 1, in the type of x."""
    a = _as_array(x)
    t = a.tensor if a.dtype.kind != "b" else a.tensor.to(_default_dtype("int"))
    one = t.new_ones(())
    cut = _T["where"](t > 1, one, t)
    return _make(cut if a.dtype.kind in "bu" else _T["where"](t < -1, -one, cut),
                 a.weak_type or a.dtype.kind == "b")


def relu(x: Any) -> Any:
    """max(x, 0), whose slope at 0 is 0."""
    a = _as_array(x)
    t = a.tensor if a.dtype.kind != "b" else a.tensor.to(_default_dtype("int"))
    if t.is_complex():
        return _np_.maximum(a, 0)
    kept = _T["where"](t <= 0, t.new_zeros(()), t)        # (NaN stays)
    return _make(kept, a.weak_type or a.dtype.kind == "b")


def relu6(x: Any) -> Any:
    """x within 0 and 6, whose slope at both ends is 0."""
    a = _as_array(x)
    if a.dtype.kind not in "fV":
        return _np_.minimum(_np_.maximum(a, 0), 6.0)
    t = a.tensor
    high = _T["where"](t >= 6, t.new_full((), 6.0), t)
    return _make(_T["where"](t <= 0, t.new_zeros(()), high), a.weak_type)


def hard_sigmoid(x: Any) -> Any:
    """relu6(x + 3) / 6."""
    return relu6(_as_array(x) + 3.0) / 6.0


def hard_silu(x: Any) -> Any:
    """x hard_sigmoid(x)."""
    return _as_array(x) * hard_sigmoid(x)


hard_swish = hard_silu


def elu(x: Any, alpha: Any = 1.0) -> Any:
    """x, or alpha (exp(x) - 1) where x is negative."""
    a = _as_array(x)
    return _np_.where(a > 0, a, alpha * _np_.expm1(_np_.where(a > 0, 0.0, a)))


def celu(x: Any, alpha: Any = 1.0) -> Any:
    """x, or alpha (exp(x / alpha) - 1) where x is negative."""
    a = _as_array(x)
    return _np_.where(a > 0, a, alpha * _np_.expm1(_np_.where(a > 0, 0.0, a) / alpha))


def leaky_relu(x: Any, negative_slope: Any = 1e-2) -> Any:
    """x, or a fraction of it where it is negative."""
    a = _as_array(x)
    return _np_.where(a >= 0, a, negative_slope * a)


def gelu(x: Any, approximate: bool = True) -> Any:
    """x times the normal distribution function, by its tanh approximation unless told."""
    t = _floating(x, "gelu")
    if approximate:
        inner = _math.sqrt(2 / _math.pi) * (t + 0.044715 * (t * t * t))
        return _make(t * (0.5 * (1.0 + _T["tanh"](inner))))
    return _make(0.5 * t * _T["erfc"](-t * _math.sqrt(0.5)))


def squareplus(x: Any, b: Any = 4) -> Any:
    """(x + sqrt(x^2 + b)) / 2."""
    a = _as_array(x)
    return 0.5 * (a + _np_.sqrt(a * a + b))


def sparse_plus(x: Any) -> Any:
    """0, a parabola, or x."""
    a = _as_array(x)
    return _np_.where(a <= -1, 0.0, _np_.where(a >= 1, a, (a + 1.0) ** 2 / 4))


def sparse_sigmoid(x: Any) -> Any:
    """(x + 1) / 2 within 0 and 1."""
    return 0.5 * _np_.clip(_as_array(x) + 1.0, 0.0, 2.0)


def glu(x: Any, axis: int = -1) -> Any:
    """The first half of an axis times the sigmoid of the second."""
    a = _as_array(x)
    if a.shape[axis] % 2:
        raise ValueError(f"axis size must be divisible by 2, got shape {a.shape}")
    first, second = _np_.split(a, 2, axis)
    return first * sigmoid(second)


def log1mexp(x: Any) -> Any:
    """log(1 - exp(-x)), without loss near 0."""
    a = _as_array(x)
    return _np_.where(a < _math.log(2), _np_.log(-_np_.expm1(-a)), _np_.log1p(-_np_.exp(-a)))


def identity(x: Any) -> Any:
    """x."""
    return _as_array(x)


# ------------------------------------------------------------------ sums of exponentials
def logsumexp(a: Any, axis: Any = None, b: Any = None, keepdims: bool = False,
              return_sign: bool = False, where: Any = None) -> Any:
    """log(sum(b exp(a))), without overflow."""
    if b is None:
        t, weight = _floating(a, "logsumexp"), None
    else:
        (t, weight), _ = _joined("logsumexp", (a, b), floating=True)
        t = _T["where"](weight == 0, t.new_full((), -_math.inf), t)
    if where is not None:
        t = _T["where"](_as_array(where).tensor, t, t.new_full((), -_math.inf))
    real = t.real if t.is_complex() else t
    least = None if real.numel() else -_math.inf
    top = _np_.max(_make(real.detach()), axis, keepdims=True, initial=least).tensor
    top = _T["where"](_T["isfinite"](top), top, top.new_zeros(()))
    e = _T["exp"](t - top)
    total = _np_.sum(_make(e if weight is None else weight * e), axis, keepdims=keepdims).tensor
    top = top.reshape(tuple(total.shape))
    if return_sign:
        sign = _T["sgn"](total) if total.is_complex() else _sign_or_nan(total)
        return _make(_T["log"](abs(total)) + top), _make(sign)
    if b is not None and not t.is_complex():
        total = _T["where"](total < 0, total.new_full((), _math.nan), total)
    return _make(_T["log"](total) + top)


def logmeanexp(x: Any, axis: Any = None, where: Any = None, keepdims: bool = False) -> Any:
    """log(mean(exp(x)))."""
    a = _as_array(x)
    total = logsumexp(a, axis, keepdims=keepdims, where=where)
    count = _np_.sum(_np_.broadcast_to(True if where is None else where, a.shape), axis,
                     keepdims=keepdims)
    return total - _np_.log(count).astype(total.dtype)


def softmax(x: Any, axis: Any = -1, where: Any = None) -> Any:
    """exp(x) over its sum along the axes."""
    t = _floating(x, "softmax")
    if where is None and isinstance(axis, int):
        return _make(_T["softmax"](t, axis), _is_weak(x))
    low = t if where is None else _T["where"](_as_array(where).tensor, t, t.new_full(
        (), -_math.inf))
    top = _np_.max(_make(low.detach()), axis, keepdims=True).tensor
    e = _T["exp"](low - top)
    y = e / _np_.sum(_make(e), axis, keepdims=True).tensor
    return _make(y if where is None else _T["where"](_as_array(where).tensor, y, y.new_zeros(())))


def log_softmax(x: Any, axis: Any = -1, where: Any = None) -> Any:
    """The logarithm of `softmax`."""
    t = _floating(x, "log_softmax")
    if where is None and isinstance(axis, int):
        return _make(_T["log_softmax"](t, axis), _is_weak(x))
    y = _make(t) - logsumexp(_make(t), axis, keepdims=True, where=where)
    return y if where is None else _np_.where(where, y, -_math.inf)


def standardize(x: Any, axis: Any = -1, mean: Any = None, variance: Any = None,
                epsilon: Any = 1e-5, where: Any = None, *, algorithm: str = "fast") -> Any:
    """(x - mean) / sqrt(variance + epsilon) along the axes.

    algorithm  the variance as E[x^2] - E[x]^2 ("fast"), or as E[(x - E[x])^2] ("stable")
    """
    if algorithm not in ("fast", "stable"):
        raise ValueError(f"Unknown algorithm {algorithm!r}. Expected 'fast' or 'stable'.")
    a = _as_array(x)
    mean = _np_.mean(a, axis, keepdims=True, where=where) if mean is None else mean
    if variance is None and algorithm == "stable":
        variance = _np_.mean(_np_.square(a - mean), axis, keepdims=True, where=where)
    if variance is None:
        variance = _np_.mean(_np_.square(a), axis, keepdims=True, where=where) - _np_.square(mean)
    return (a - mean) * _make(_T["rsqrt"](_floating(variance + epsilon, "standardize")))


def one_hot(x: Any, num_classes: int, *, dtype: Any = None, axis: Any = -1) -> Any:
    """1 at the place that each number says; zeros for numbers that are none."""
    a = _as_array(x)
    rank = a.ndim + 1
    axis = axis % rank
    side = [num_classes if d == axis else 1 for d in range(rank)]
    places = _make(_wrap(_np.arange(num_classes).reshape(side).astype(_np.int32)))
    kind = _default_dtype("float") if dtype is None else _as_dtype(dtype)
    return (_np_.expand_dims(a, axis) == places).astype(kind)


def dot_product_attention(query: Any, key: Any, value: Any, bias: Any = None, mask: Any = None, *,
                          scale: Any = None, is_causal: bool = False,
                          query_seq_lengths: Any = None, key_value_seq_lengths: Any = None,
                          local_window_size: Any = None, implementation: Any = None,
                          return_residual: bool = False) -> Any:
    """softmax(q k^T scale + bias) v over arrays (batch, length, heads, size).

    mask               True where a query may look at a key, as `is_causal` for keys before it
    query_seq_lengths  per example, how many queries there are: outputs of the others are 0
    key_value_seq_lengths  per example, how many keys there are
    local_window_size  how many keys a query looks at (before it, after it), besides its own; one
                       number for both
    return_residual    give the logarithms of the sums of exponentials too, (batch, length, heads)

    >>> from adjoint.jax import nn, numpy as jnp
    >>> x = jnp.arange(3.0).reshape(1, 3, 1, 1)
    >>> nn.dot_product_attention(0 * x, x, x, local_window_size=(1, 0)).reshape(-1)
    Array([0. , 0.5, 1.5], dtype=float32)
    """
    if implementation not in (None, "xla"):
        known = implementation == "cudnn"
        raise (RuntimeError if known else ValueError)(
            "cuDNN is not detected." if known else
            f"Unsupported implementation option: {implementation}")
    (q, k, v), _w = _joined("dot_product_attention", (query, key, value))
    single = q.ndim == 3
    q, k, v = (t.unsqueeze(0) if single else t for t in (q, k, v))
    if tuple(k.shape) != tuple(v.shape):
        raise ValueError(f"value shape should be {list(k.shape)}: but got {tuple(v.shape)}")
    if q.shape[2] % k.shape[2]:
        raise ValueError("The number of query heads must be a multiple of key/value heads, but got "
                         f"{q.shape[2]} vs {k.shape[2]}")
    groups = q.shape[2] // k.shape[2]
    if groups > 1:
        k, v = (_T["repeat_interleave"](t, groups, 2) for t in (k, v))
    size = 1 / _math.sqrt(q.shape[-1]) if scale is None else scale
    logits = _T["einsum"]("btnh,bsnh->bnts", q, k) * size
    if bias is not None:
        logits = logits + _as_array(bias).tensor.to(logits.array.dtype)
    keep = _looks_at(tuple(logits.shape[-2:]), mask, is_causal, local_window_size,
                     key_value_seq_lengths)
    if keep is not None:
        low = logits.new_full((), -0.7 * float(_np.finfo(logits.array.dtype).max))
        logits = _T["where"](keep, logits, low)
    y = _T["einsum"]("bnts,bsnh->btnh", _T["softmax"](logits, -1), v)
    if query_seq_lengths is not None:
        there = _within(y.shape[1], query_seq_lengths)
        y = _T["where"](there.unsqueeze(-1).unsqueeze(-1), y, y.new_zeros(()))
    found = _make(y[0] if single else y)
    if not return_residual:
        return found
    total = _T["logsumexp"](logits.to(_np.dtype(_np.float32)), -1).transpose(1, 2)
    return found, _make(total[0] if single else total)


def _within(n: int, lengths: Any) -> Any:
    """(batch, n): is a place one of an example's?"""
    return _wrap(_np.arange(n)) < _as_array(lengths).tensor.reshape((-1, 1))


def _looks_at(shape: tuple[int, int], mask: Any, is_causal: bool, window: Any, lengths: Any) -> Any:
    """Where a query may look at a key, for logits (..., queries, keys); None: everywhere."""
    keep = None if mask is None else _as_array(mask).tensor
    if keep is not None and keep.array.dtype != bool:
        raise ValueError(f"mask dtype should be bool, but got {keep.array.dtype.name}")
    off = _np.arange(shape[1]) - _np.arange(shape[0])[:, None]
    near = off <= 0 if is_causal else _np.ones(shape, bool)
    if window is not None:
        before, after = (window, window) if isinstance(window, int) else window
        near = near & (off >= -before) & (off <= after)
    if is_causal or window is not None:
        keep = _wrap(near) if keep is None else keep & _wrap(near)
    if lengths is not None:
        there = _within(shape[1], lengths).unsqueeze(1).unsqueeze(1)
        keep = there if keep is None else keep & there
    return keep


__all__ = ["celu", "dot_product_attention", "elu", "gelu", "glu", "hard_sigmoid", "hard_silu",
           "hard_swish", "hard_tanh", "identity", "initializers", "leaky_relu", "log1mexp",
           "log_sigmoid", "log_softmax", "logmeanexp", "logsumexp", "mish", "one_hot", "relu",
           "relu6", "selu", "sigmoid", "silu", "soft_sign", "softmax", "softplus", "sparse_plus",
           "sparse_sigmoid", "squareplus", "standardize", "swish", "tanh"]
__getattr__ = _missing("adjoint.jax.nn")
