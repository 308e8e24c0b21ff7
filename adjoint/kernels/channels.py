"""Batch norm (forward, backward) and the backward of group norm: per-channel statistics.

Put together from generated reductions and pointwise kernels: a pass that sums, and a pass that
applies coefficients, one set per channel. Sums are taken in float64, so that the variance of
float32 data as mean(x^2) - mean(x)^2 keeps about 16 - 2 log10(|mean|/std) digits; float64 data
take a second, centred pass. Formulas: Ioffe and Szegedy, arXiv:1502.03167, section 3; Wu and He,
arXiv:1803.08494.
"""
from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjoint.kernels import codegen, rows
from adjoint.kernels.expr import Expr, var
from adjoint.kernels.loops import Pointwise, pointwise
from adjoint.kernels.reduce import Reduce, reduction

Array = NDArray[Any]


@functools.cache
def _moments() -> Reduce | None:
    x = var("x")
    return reduction("moments", ["x"], [x, x * x], ["mean", "mean"])


@functools.cache
def _centred() -> Reduce | None:
    d = var("x") - var("mean")
    return reduction("centred", ["x", "mean"], [d * d], ["mean"])


@functools.cache
def _apply() -> Pointwise | None:
    return pointwise("scale_shift", ["x", "scale", "shift"],
                     [var("x") * var("scale") + var("shift")])


def _hat() -> Expr:
    return (var("x") - var("mean")) * var("rstd")


@functools.cache
def _channel_sums() -> Reduce | None:
    return reduction("channel_sums", ["ct", "x", "mean", "rstd"],
                     [var("ct"), var("ct") * _hat()], ["add", "add"])


@functools.cache
def _input_cotangent() -> Pointwise | None:
    """rstd (ct w - a - x^ b)."""
    e = (var("ct") * var("w") - var("a") - _hat() * var("b")) * var("rstd")
    return pointwise("norm_input", ["ct", "x", "mean", "rstd", "w", "a", "b"], [e])


def _as_ncs(x: Array) -> Array:
    return x.reshape(x.shape[0], x.shape[1], -1)


def batch_norm(x: Array, weight: Array | None = None, bias: Array | None = None, *,
               mean: Array | None = None, var: Array | None = None, eps: float = 1e-5) -> Any:
    """Batch norm of C-contiguous (N, C, ...).

    Args:
        weight, bias: (C,) in the dtype of x.
        mean, var: (C,) running statistics to use; those of the batch where None.

    Returns:
        (out, mean, rstd, var), the last three (C,) in the dtype of x, var biased; NotImplemented
        where strides or dtypes do not fit.

    >>> r = batch_norm(np.array([[1.], [3.]], np.float32), eps=0.0)
    >>> r is NotImplemented or r[0].tolist() == [[-1.0], [1.0]]
    True
    """
    if x.ndim < 2 or x.size == 0 or not rows.plain(x) or _apply() is None:
        return NotImplemented
    stats = _statistics(_as_ncs(x)) if mean is None or var is None else (mean, var)
    if stats is None:
        return NotImplemented
    m, v = (np.asarray(s, np.float64) for s in stats)
    rstd = 1.0 / np.sqrt(v + eps)
    scale = rstd if weight is None else rstd * weight
    shift = -m * scale if bias is None else bias - m * scale
    column = (1, x.shape[1], 1)
    kernel = _apply()
    assert kernel is not None
    out = kernel(_as_ncs(x), scale.astype(x.dtype).reshape(column),
                 shift.astype(x.dtype).reshape(column))
    if out is NotImplemented:
        return NotImplemented
    return (out.reshape(x.shape), *(s.astype(x.dtype) for s in (m, rstd, v)))


def _statistics(x: Array) -> tuple[Array, Array] | None:
    moments, centred = _moments(), _centred()
    if moments is None or centred is None:
        return None
    got = moments(x, axis=(0, 2), wide=True)
    if got is NotImplemented:
        return None
    mean, square = got
    if x.dtype == np.float64:
        again = centred(x, mean.reshape(1, -1, 1), axis=(0, 2), wide=True)
        return None if again is NotImplemented else (mean, again[0])
    return mean, np.maximum(square - mean * mean, 0.0)


def _shaped_like(x: Array, kernel: Pointwise, ct: Array, *operands: Array) -> Any:
    """The kernel's result (of the shape of `ct`) in the shape of x. A view of it would be copied
    when it becomes a gradient, so the kernel writes to the array itself, unless it is so large
    that stores go around the cache, which they do to arrays of the kernel's own."""
    if codegen.streams(x.nbytes):
        made = kernel(ct, *operands)
        return made if made is NotImplemented else made.reshape(x.shape)
    out = np.empty(x.shape, x.dtype)
    done = kernel(ct, *operands, out=(out.reshape(ct.shape),))
    return done if done is NotImplemented else out


def batch_norm_backward(ct: Array, x: Array, mean: Array, rstd: Array,
                        weight: Array | None = None, *, training: bool = True) -> Any:
    """Cotangents of batch norm: (cx, cweight, cbias); NotImplemented like `batch_norm`.

    With `training` the statistics are those of the batch and depend on x.
    """
    if x.ndim < 2 or not rows.plain(ct, x) or ct.shape != x.shape or ct.dtype != x.dtype:
        return NotImplemented
    sums, kernel = _channel_sums(), _input_cotangent()
    if sums is None or kernel is None or x.size == 0:
        return NotImplemented
    column = (1, x.shape[1], 1)
    m, r = (s.astype(x.dtype, copy=False).reshape(column) for s in (mean, rstd))
    got = sums(_as_ncs(ct), _as_ncs(x), m, r, axis=(0, 2), wide=True)
    if got is NotImplemented:
        return NotImplemented
    total, with_hat = got
    w = np.ones(x.shape[1]) if weight is None else weight.astype(np.float64)
    count = x.size // x.shape[1]
    a, b = ((w * total / count, w * with_hat / count) if training
            else (np.zeros_like(w), np.zeros_like(w)))
    coefficients = [c.astype(x.dtype).reshape(column) for c in (w, a, b)]
    out = _shaped_like(x, kernel, _as_ncs(ct), _as_ncs(x), m, r, *coefficients)
    if out is NotImplemented:
        return NotImplemented
    return out, with_hat.astype(x.dtype), total.astype(x.dtype)


def group_norm_backward(ct: Array, x: Array, groups: int, mean: Array, rstd: Array,
                        weight: Array | None = None) -> Any:
    """Cotangents of group norm: (cx, cweight, cbias).

    `mean` and `rstd` are those of the forward, (N * groups,). NotImplemented where strides or
    dtypes do not fit.
    """
    if x.ndim < 2 or not rows.plain(ct, x) or ct.shape != x.shape or ct.dtype != x.dtype:
        return NotImplemented
    by_channel, kernel = _channel_sums(), _input_cotangent()
    if by_channel is None or kernel is None or x.size == 0:
        return NotImplemented
    n, c = x.shape[:2]
    shape = (n, groups, c // groups, x.size // (n * c))
    g, v = ct.reshape(shape), x.reshape(shape)
    m, r = (s.astype(x.dtype, copy=False).reshape(n, groups, 1, 1) for s in (mean, rstd))
    if shape[3] == 1:
        wide = g.astype(np.float64)
        got: Any = wide, wide * ((v - m) * r)
    else:
        got = by_channel(g, v, m, r, axis=3, wide=True, keepdims=True)
    if got is NotImplemented:
        return NotImplemented
    w = (np.ones(c, x.dtype) if weight is None else weight).reshape(1, groups, c // groups, 1)
    # the sums over a group are those over its channels, weighted
    a, b = (((s * w).sum(2, keepdims=True) / (shape[2] * shape[3])).astype(x.dtype) for s in got)
    out = _shaped_like(x, kernel, g, v, m, r, w, a, b)
    if out is NotImplemented:
        return NotImplemented
    total, with_hat = (s.sum(0).reshape(c).astype(x.dtype) for s in got)
    return out, with_hat, total
