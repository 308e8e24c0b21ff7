"""Scaled dot-product attention on raw arrays: what the op record calls.

`attention_forward` returns the output and the log-sum-exp of every row of scores; these, with the
operands, are all that `attention_backward` needs. Neither ever holds a `(S, T)` matrix. float32
(and the 16-bit floats, through it) runs in generated kernels where LLVM is there; else, for float64
and for the cotangent of a float mask, tiles are computed by NumPy.
"""

from __future__ import annotations

import functools
import math
from contextlib import suppress
from typing import Any

import numpy as np

from adjoint.base.errors import CompilerLost

from . import attention_numpy
from .attention_numpy import Array, Attend

__all__ = ["attention_backward", "attention_forward"]


@functools.cache
def _kernels() -> Any:
    """The generated kernels; the compiler's modules are loaded when first needed."""
    from . import attention_run

    return attention_run


def _either(name: str, generated: bool, *args: Any) -> Any:
    """The generated kernel of that name, or NumPy's where it is not to be or cannot be had."""
    if generated:
        with suppress(CompilerLost):
            return getattr(_kernels(), name)(*args)
    return getattr(attention_numpy, name)(*args)


def _four(x: Array) -> Array:
    """`x` with exactly two leading axes (batch, heads)."""
    if x.ndim == 4:
        return x
    if x.ndim < 4:
        return x.reshape((1,) * (4 - x.ndim) + x.shape)
    return x.reshape(-1, *x.shape[-3:])


def _wide(x: Array) -> Array:
    """`x` in the type in which it is computed: float32 for the 16-bit floats."""
    if x.dtype.kind not in "fd" or x.dtype.itemsize == 2:
        return x.astype(np.float32)
    return x


def _attend(
    q: Array,
    k: Array,
    mask: Array | None,
    causal: bool,
    scale: float | None,
    dropout: float,
    seed: int,
) -> Attend:
    factor = 1.0 / math.sqrt(max(1, q.shape[-1])) if scale is None else float(scale)
    if mask is not None:
        lead = q.shape[:-1] + (k.shape[-2],)
        full = np.broadcast_to(mask, lead)
        mask = full if full.ndim == 4 else _four(full)
    return Attend(factor, bool(causal), mask, float(dropout), int(seed))


def attention_forward(
    q: Array,
    k: Array,
    v: Array,
    *,
    mask: Array | None = None,
    causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
    seed: int = 0,
) -> tuple[Array, Array]:
    """`softmax(scale * q k^T + mask) v` and the log-sum-exp of the rows of scores.

    `q` is `(B, H, S, E)`, `k` `(B, Hk, T, E)`, `v` `(B, Hk, T, Ev)` with `Hk` dividing `H` (grouped
    heads); fewer or more leading axes are allowed. `mask` broadcasts to `(B, H, S, T)`: boolean
    keeps where True, float is added. `causal` keeps key j <= query i. `scale` defaults to
    `1/sqrt(E)`. Dropout keeps a pattern that depends only on `seed` (64 bits) and the position.
    Output `(B, H, S, Ev)` in the type of `q`; log-sum-exp `(B, H, S)`, float32 or float64.

    >>> q = np.zeros((1, 1, 2, 4), np.float32)
    >>> v = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)
    >>> out, lse = attention_forward(q, q, v, causal=True)
    >>> out[0, 0].tolist(), lse[0, 0].round(4).tolist()
    ([[0.0, 1.0], [1.0, 2.0]], [0.0, 0.6930999755859375])
    """
    spec = _attend(q, k, mask, causal, scale, dropout, seed)
    q4, k4, v4 = (_wide(_four(a)) for a in (q, k, v))
    out, lse = _either("forward", _kernels().supported(q4, k4, v4, spec), q4, k4, v4, spec)
    shape = (*q.shape[:-1], v.shape[-1])
    return out.astype(q.dtype, copy=False).reshape(shape), lse.reshape(shape[:-1])


def attention_backward(
    ct: Array,
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    lse: Array,
    *,
    mask: Array | None = None,
    causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
    seed: int = 0,
    mask_grad: bool = False,
) -> tuple[Any, ...]:
    """Cotangents `(dq, dk, dv)` from that of the output; with `mask_grad` also that of the float
    mask.

    `out` and `lse` are what `attention_forward` returned for the same arguments.

    >>> q = np.zeros((1, 1, 2, 4), np.float32); v = np.ones((1, 1, 2, 2), np.float32)
    >>> out, lse = attention_forward(q, q, v)
    >>> attention_backward(np.ones_like(out), q, q, v, out, lse)[2][0, 0].tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    spec = _attend(q, k, mask, causal, scale, dropout, seed)
    ct4, q4, k4, v4, out4 = (_wide(_four(a)) for a in (ct, q, k, v, out))
    rows = lse.reshape(q4.shape[:-1])
    mask_ct = full = None
    if mask_grad and mask is not None:
        mask_ct = np.zeros(mask.shape, q4.dtype)
        full = _four(_writable_broadcast(mask_ct, (*q.shape[:-1], k.shape[-2])))
    generated = full is None and _kernels().supported(q4, k4, v4, spec)
    more = () if generated else (full,)
    dq, dk, dv = _either("backward", generated, ct4, q4, k4, v4, out4, rows, spec, *more)
    grads = tuple(
        g.astype(a.dtype, copy=False).reshape(a.shape)
        for g, a in zip((dq, dk, dv), (q, k, v), strict=True)
    )
    return grads if not mask_grad else (*grads, mask_ct)


def _writable_broadcast(x: Array, shape: tuple[int, ...]) -> Array:
    """Broadcast view of `x` that may be written through (repeated axes have stride 0)."""
    lead = (0,) * (len(shape) - x.ndim)
    strides = lead + tuple(0 if n == 1 else s for n, s in zip(x.shape, x.strides, strict=True))
    return np.lib.stride_tricks.as_strided(x, shape, strides)
