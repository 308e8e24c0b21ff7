"""Activation functions with the signatures of `torch.nn.functional`."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint.base.aval import Aval, MetaArray
from adjoint.base.dtypes import finfo, is_inexact, scalar_type
from adjoint.base.errors import ArgumentError, DTypeError, ShapeError
from adjoint.core.autocast import lowered
from adjoint.core.inplace import inplace as write_inplace
from adjoint.core.modes import warn
from adjoint.core.op import op
from adjoint.core.rehearsal import call
from adjoint.core.tensor import Tensor, alias, wrap
from adjoint.core.trace import mapping
from adjoint.kernels import special
from adjoint.kernels.samplers import exponential
from adjoint.kernels.stream import Stream
from adjoint.ops import pointwise as p
from adjoint.ops.api_common import (
    box,
    dtype_of,
    finish_kept,
    finish_kind,
    flag,
    is_recorded,
    kernel,
    narrowed,
    need,
    need_kernel,
    numel,
    one_dim,
    raw,
    wide,
)
from adjoint.ops.generator import source
from adjoint.ops.pointwise import TWO_BOOLEANS
from adjoint.ops.public import known_as, other_names, planned, public, typed
from adjoint.ops.random import drawn
from adjoint.ops.shape import cat_op, reshape, split_op
from adjoint.ops.softmax import softmax


def _apply(function: Callable[..., Any], x: Any, inplace: bool, name: str = "",
           **attrs: Any) -> Any:
    need(name or function.__name__, x)
    if inplace is not False and flag(name or function.__name__, inplace):
        record = function.op  # type: ignore[attr-defined]  # functions carry their record
        return write_inplace(record, x, (), attrs, name=(name or function.__name__) + "_")
    return function(x, **attrs)


def relu(input: Any, inplace: bool = False) -> Any:
    """max(x, 0); slope 0 at 0.

    >>> import adjoint as ad
    >>> ad.nn.functional.relu(ad.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """
    return _apply(p.relu, input, inplace)


def relu6(input: Any, inplace: bool = False) -> Any:
    """min(max(x, 0), 6)."""
    return hardtanh(input, 0.0, 6.0, inplace)


@public("selu", aliases=())
def selu(input: Any, inplace: bool = False) -> Any:
    """scale·(max(x, 0) + min(0, α(eˣ - 1))) with the constants of self-normalizing networks."""
    return _apply(p.elu_op, input, inplace, "selu", alpha=1.6732632423543772,
                  scale=1.0507009873554805, input_scale=1.0)


def elu(input: Any, alpha: float = 1.0, inplace: bool = False) -> Any:
    """x above 0, α(eˣ - 1) below."""
    return _apply(p.elu_op, input, inplace, "elu", alpha=alpha, scale=1.0, input_scale=1.0)


@public("celu")
@known_as("CeluBackward0")
@typed
def celu(input: Any, alpha: float = 1.0, inplace: bool = False) -> Any:
    """x above 0, α(e^(x/α) - 1) below."""
    if alpha == 0:
        raise ArgumentError("ZeroDivisionError: alpha cannot be 0 for CELU")
    return _apply(p.elu_op, input, inplace, "celu", alpha=alpha, scale=1.0, input_scale=1.0 / alpha)


def leaky_relu(input: Any, negative_slope: float = 0.01, inplace: bool = False) -> Any:
    """x above 0, negative_slope·x below."""
    return _apply(p.leaky_relu_op, input, inplace, "leaky_relu", negative_slope=negative_slope)


@public("prelu")
def prelu(input: Any, weight: Any) -> Any:
    """x above 0, weight·x below; weight has one number, or one per channel (axis 1)."""
    need("prelu", input, weight)
    need_kernel("prelu_cpu", "biuc", input)
    if len(weight.shape) > 1:
        raise ShapeError(f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = "
                         f"{len(weight.shape)}")
    input, weight = lowered(input, weight)
    if dtype_of(input) != dtype_of(weight):
        raise DTypeError("prelu: Type promoting not supported. Got "
                         f"{scalar_type(dtype_of(input))} and {scalar_type(dtype_of(weight))}")
    n = numel(weight)
    if n != 1 and not len(input.shape):
        raise ShapeError(f"prelu: Not allow zero-dim input tensor. It has one number, weight has "
                         f"{n}")
    if n != 1:
        channels = input.shape[1] if len(input.shape) > 1 else 1
        if n != channels:
            raise ShapeError("Mismatch of parameter numbers and input channel size. Found parameter"
                             f" numbers = {n}, and channel size = {channels}.")
        weight = reshape(weight, (n, *(1,) * (len(input.shape) - 2)))
    elif len(weight.shape) and not len(input.shape):
        weight = reshape(weight, ())
    return p.prelu_op(input, weight)


@public("rrelu")
@typed
def rrelu(input: Any, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False,
          inplace: bool = False) -> Any:
    """Leaky ReLU whose slope is drawn from [lower, upper] per element in training, else their mean.
    """
    need("rrelu", input)
    need_kernel("rrelu_with_noise_out_cpu", "biuc", input)
    if lower > upper:
        raise ArgumentError(f"Lower bound should be less than or equal to the upper bound, got "
                            f"{lower} and {upper}")
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    x = raw(input)
    if type(x) is MetaArray and mapping.get() is None:
        draw: Any = call(_slopes, source(), tuple(input.shape), x, lower, upper,
                         otherwise=lambda: MetaArray(x.shape, x.dtype))
    else:
        draw = drawn(tuple(input.shape), lambda s, shape: _slopes(s, shape, x, lower, upper))
        draw = draw if draw.level else draw.array
    if inplace:
        return write_inplace(p.prelu_op.op, input, (draw,), name="rrelu_")
    return p.prelu_op(input, draw)


def _slopes(s: Stream, shape: Any, x: Any, lower: float, upper: float) -> Any:
    """A slope for each element that is not positive, in float64; 1 elsewhere. What it takes does
    not hang on how many these are."""
    if type(x) is not np.ndarray or x.shape != shape:
        return s.uniform(shape, np.dtype(np.float64), lower, upper).astype(x.dtype)
    slope, below = np.ones(shape, x.dtype), x <= 0
    low, high = (float(x.dtype.type(v)) for v in (lower, upper))
    room, count = np.empty(slope.size), int(np.count_nonzero(below))
    slope[below] = s.uniform((count,), np.dtype(np.float64), low, high, room[:count])
    return slope


@other_names
@typed
def gelu(input: Any, approximate: str = "none", *, out: Any = None) -> Any:
    """x·Φ(x); approximate="tanh": 0.5x(1 + tanh(√(2/π)(x + 0.044715x³))).

    Source: D. Hendrycks, K. Gimpel, "Gaussian error linear units" (2016).
    """
    need("gelu", input)
    need_kernel("GeluKernelImpl", "biu", input)
    if approximate not in ("none", "tanh"):
        raise ArgumentError("approximate argument must be either none or tanh.")
    return finish_kept(out, p.gelu_erf(input) if approximate == "none" else p.gelu_tanh(input))


def silu(input: Any, inplace: bool = False) -> Any:
    """x·σ(x)."""
    return _apply(p.silu, input, inplace)


def mish(input: Any, inplace: bool = False) -> Any:
    """x·tanh(log(1 + eˣ))."""
    return _apply(p.mish, input, inplace)


def softplus(input: Any, beta: float = 1.0, threshold: float = 20.0, *, out: Any = None) -> Any:
    """log(1 + e^(βx))/β; x itself where βx > threshold."""
    return finish_kept(out, _apply(p.softplus_op, input, False, "softplus", beta=beta,
                                   threshold=threshold))


def logsigmoid(input: Any, *, out: Any = None) -> Any:
    """log σ(x), without overflow."""
    return finish_kind(out, _apply(p.logsigmoid, input, False))


@typed
def hardtanh(input: Any, min_val: float = -1.0, max_val: float = 1.0,
             inplace: bool = False) -> Any:
    """x between min_val and max_val, those outside."""
    need_kernel("Bool inputs not supported for hardtanh", "b", input)
    if min_val > max_val:
        raise ArgumentError(f"min_val cannot be greater than max_val: {min_val} > {max_val}")
    if dtype_of(input).kind == "u" and int(min_val) < 0:
        raise ArgumentError("cannot do hardtanh on an unsigned type with negative limits: "
                            f"min_val={min_val}")
    if dtype_of(input).kind in "iu":
        return _apply(p.clamp_op, input, inplace, "hardtanh", low=int(min_val), high=int(max_val))
    return _apply(p.hardtanh_op, input, inplace, "hardtanh", low=min_val, high=max_val)


def hardswish(input: Any, inplace: bool = False) -> Any:
    """x·min(max(x + 3, 0), 6)/6."""
    return _apply(p.hardswish, input, inplace)


@typed
def hardsigmoid(input: Any, inplace: bool = False) -> Any:
    """min(max(x + 3, 0), 6)/6."""
    return _apply(p.hardsigmoid, input, inplace)


@public("hardshrink")
def hardshrink(input: Any, lambd: float = 0.5, *, out: Any = None) -> Any:
    """x where |x| > lambd, else 0."""
    return finish_kept(out, _apply(p.hardshrink_op, input, False, "hardshrink", lambd=lambd))


@typed
def softshrink(input: Any, lambd: float = 0.5, *, out: Any = None) -> Any:
    """x moved by lambd towards 0, 0 in between."""
    if lambd < 0:
        kind = dtype_of(input)
        raise ArgumentError(f"lambda must be in range [0, {finfo(kind).max:g}] for input dtype "
                            f"{scalar_type(kind)}, but found {lambd}")
    return finish_kept(out, _apply(p.softshrink_op, input, False, "softshrink", lambd=lambd))


def _one_pass(name: str, x: Any) -> bool:
    """Whether a function that PyTorch puts together of others has an operation of its own: of
    16-bit floats the others round in between, and the slopes of |z| are not those of |x|."""
    need(name, x)
    return bool(dtype_of(x).kind == "f" and dtype_of(x).itemsize > 2)


def tanhshrink(input: Any) -> Any:
    """x - tanh(x)."""
    need_kernel(TWO_BOOLEANS, "b", input)
    if _one_pass("tanhshrink", input):
        return p.tanhshrink_op(input)
    return p.sub(input, p.tanh(input))


def softsign(input: Any) -> Any:
    """x/(1 + |x|)."""
    if _one_pass("softsign", input):
        return p.softsign_op(input)
    return p.div(input, p.add(p.abs_op(input), 1.0))


@public("threshold", method=False)
@typed
def threshold(input: Any, threshold: float, value: float, inplace: bool = False) -> Any:
    """x where x > threshold, else `value`; of integers, its whole part."""
    if not is_inexact(dtype_of(input)):
        threshold, value = int(threshold), int(value)
    return _apply(p.threshold_op, input, inplace, "threshold", threshold=threshold, value=value)


FEW = 4096          # elements below which two small operations cost less than one of its own


def _halves(x: Any, dim: int) -> tuple[Any, Any]:
    n = x.shape[dim] // 2
    return tuple(x[(*(slice(None),) * dim, part)] for part in (slice(n), slice(n, None)))


def _parts(x: Any, dim: int) -> Any:
    return split_op(x, sizes=(x.shape[dim] // 2,) * 2, dim=dim)


def _glu_impl(x: Any, /, *, dim: int) -> Any:
    a, b = _halves(wide(x), dim)
    return narrowed(a * special.sigmoid(b), x.dtype)


def _glu_pull(ct: Any, x: Any, /, *, dim: int) -> Any:
    g, (a, b), out = wide(ct), _halves(wide(x), dim), np.empty(x.shape, wide(x).dtype)
    left, right = _halves(out, dim)
    np.multiply(g, special.sigmoid(b), out=left)
    np.multiply(left * a, 1 - special.sigmoid(b), out=right)
    return narrowed(out, x.dtype)


def _glu_vjp(ct: Any, x: Any, *, dim: int) -> Any:
    if not is_recorded(ct, x):
        return _glu_kernel(ct, x, dim=dim)
    a, b = _parts(x, dim)
    s = p.sigmoid(b)
    left = p.mul(ct, s)
    return cat_op(left, p.mul(p.mul(left, a), p.sub(1.0, s)), dim=dim)


def _glu_jvp(t: Any, x: Any, *, dim: int) -> Any:
    (ta, tb), (a, b) = _parts(t, dim), _parts(x, dim)
    s = p.sigmoid(b)
    return p.add(p.mul(ta, s), p.mul(p.mul(p.mul(tb, a), s), p.sub(1.0, s)))


def _halved(x: Aval, dim: int) -> Aval:
    return Aval((*x.shape[:dim], x.shape[dim] // 2, *x.shape[dim + 1:]), x.dtype)


_glu_kernel: Any = kernel("glu_backward", _glu_pull, lambda ct, x, *, dim: Aval(x.shape, x.dtype))
glu_op: Any = op(
    "glu", impl=_glu_impl, infer=lambda x, *, dim: _halved(x, dim), vjp={"x": _glu_vjp},
    jvp={"x": _glu_jvp}, cost=lambda x, **_: 8 * x.size, node="GluBackward0",
    batch=lambda op_, args, b, attrs: op_.call(args[0], dim=attrs["dim"] + 1),
    domain=lambda: [((np.random.default_rng(0).standard_normal((2, 6)),), {"dim": 1})],
    why={"x": "da = ct·σ(b), db = ct·a·σ(b)·(1 - σ(b))"})


@planned
@typed
def glu(input: Any, dim: int = -1) -> Any:
    """a·σ(b) of the halves a, b along `dim`."""
    need_kernel("glu_cpu", "biuc", input)
    if not len(input.shape):
        raise ShapeError("glu does not support scalars because halving size must be even; got a "
                         "0-dimensional tensor")
    d = one_dim(input, dim)
    n = input.shape[d]
    if n % 2:
        raise ShapeError(f"Halving dimension must be even, but dimension {d} is size {n}")
    if numel(input) >= FEW and dtype_of(input).kind == "f":
        return glu_op(input, dim=d)
    a, b = split_op(input, sizes=(n // 2, n // 2), dim=d)
    return p.mul(a, p.sigmoid(b))


@typed
def gumbel_softmax(logits: Any, tau: float = 1, hard: bool = False, eps: float = 1e-10,
                   dim: int = -1) -> Any:
    """A sample of the Gumbel-softmax distribution; `hard`: one-hot, with the soft gradient.

    Source: E. Jang, S. Gu, B. Poole, "Categorical reparameterization with Gumbel-softmax" (2017).
    """
    if eps != 1e-10:
        warn("`eps` parameter is deprecated and has no effect.")
    if dtype_of(logits).kind in "biu":
        raise DTypeError("Exponential distribution is a continuous probability distribution. dtype "
                         "must be a floating point but you specified "
                         f"{scalar_type(dtype_of(logits))} (the logits of gumbel_softmax)")
    draw = drawn(tuple(logits.shape), lambda s, shape: -np.log(
        exponential(s, shape, 1.0).astype(dtype_of(logits))))
    soft = softmax(p.div(p.add(logits, draw if draw.level else draw.array), tau), dim)
    if not hard:
        return soft
    d = one_dim(logits, dim)
    if isinstance(soft, Tensor) and soft.level:
        where = np.arange(soft.shape[d]).reshape(-1, *(1,) * (soft.ndim - 1 - d))
        one_hot = (soft.argmax(d, keepdim=True) == wrap(where)).to(soft.dtype)
        return p.add(p.sub(one_hot, soft.detach()), soft)
    values = raw(soft)
    one = call(_largest, values, d, otherwise=lambda: MetaArray(values.shape, values.dtype)) \
        if type(values) is MetaArray else _largest(values, d)
    return p.add(p.sub(box(soft, one), alias(soft) if hasattr(soft, "array") else soft), soft)


def _largest(values: Any, dim: int) -> Any:
    """1 where the largest is, 0 elsewhere."""
    one = np.zeros_like(values)
    np.put_along_axis(one, values.argmax(dim, keepdims=True), 1, dim)
    return one


def sigmoid(input: Any) -> Any:
    """1/(1 + e⁻ˣ)."""
    return p.sigmoid(input)


def tanh(input: Any) -> Any:
    """(eˣ - e⁻ˣ)/(eˣ + e⁻ˣ)."""
    return p.tanh(input)


def _in_place(f: Callable[..., Any]) -> Callable[..., Any]:
    def run(input: Any, *args: Any, **kwargs: Any) -> Any:
        return f(input, *args, **kwargs, inplace=True)
    run.__name__ = run.__qualname__ = f.__name__ + "_"
    run.__doc__ = f"In-place `{f.__name__}`."
    return run


relu_ = _in_place(relu)
elu_ = _in_place(elu)
selu_ = _in_place(selu)
celu_ = _in_place(celu)
leaky_relu_ = _in_place(leaky_relu)
hardtanh_ = _in_place(hardtanh)
rrelu_ = _in_place(rrelu)
threshold_ = _in_place(threshold)
