"""Group, instance and RMS normalization: joint records, statistics of every row are kept.

Sources: Y. Wu, K. He, "Group normalization" (2018); D. Ulyanov et al., "Instance normalization"
(2016); B. Zhang, R. Sennrich, "Root mean square layer normalization" (2019).
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from adjoint.base.aval import Aval
from adjoint.base.dtypes import F32, finfo
from adjoint.base.errors import ShapeError
from adjoint.core.op import op
from adjoint.core.tensor import Size
from adjoint.ops.api_common import (
    cast_to,
    dtype_of,
    is_recorded,
    kernel,
    narrowed,
    need,
    need_kernel,
    raw,
    wide,
)
from adjoint.ops.batch_norm import batch_norm, check_channels, column, track
from adjoint.ops.device import following, in_order
from adjoint.ops.linalg import conj
from adjoint.ops.moments import var_op
from adjoint.ops.pointwise import add, mul, rsqrt, sub
from adjoint.ops.public import planned, typed
from adjoint.ops.reduce import added, mean_op, paired, sum_op
from adjoint.ops.shape import batch_loop, reshape

Shape = tuple[int, ...]


def _acc(dtype: Any) -> Any:
    return F32 if dtype.itemsize == 2 else dtype


# -- groups of channels ----------------------------------------------------------------------
def _groups(a: Any, groups: int) -> Any:
    """(N, groups, elements of a group)."""
    return a.reshape(a.shape[0], groups, math.prod(a.shape[1:]) // groups)


def _channel(v: Any, rank: int) -> Any:
    return v.reshape(-1, *(1,) * (rank - 2))


@following(0)
def _impl(x: Any, weight: Any, bias: Any, /, *, groups: int, eps: float) -> Any:
    w = _groups(wide(x), groups)
    mean = added(w, (2,)) / w.dtype.type(w.shape[2]) if w.size else np.zeros(w.shape[:2], w.dtype)
    out = w - mean[..., None]
    rstd = 1 / np.sqrt(paired("ngs,ngs->ng", out, out) / max(w.shape[2], 1) + w.dtype.type(eps))
    out *= rstd[..., None]
    out = out.reshape(x.shape)
    if weight is not None:
        out *= _channel(wide(weight), x.ndim)
    if bias is not None:
        out += _channel(wide(bias), x.ndim)
    return narrowed(out, x.dtype), mean.reshape(-1), rstd.reshape(-1)


def _infer(x: Aval, weight: Any, bias: Any, *, groups: int, eps: float) -> Any:
    rows = Aval((x.shape[0] * groups,), _acc(x.dtype))
    return x, rows, rows


@following(1)
def _grad(ct: Any, x: Any, weight: Any, mean: Any, rstd: Any, /, *, groups: int,
          wanted: tuple[bool, ...]) -> Any:
    g, w = wide(ct), _groups(wide(x), groups)
    rows = (x.shape[0], groups, 1)
    scale = rstd.reshape(rows)
    hat = (w - mean.reshape(rows)) * scale
    flat = (x.shape[0], x.shape[1], -1) if x.size else (*x.shape[:2], 0)
    db = added(g.reshape(flat), (0, 2))
    dw = paired("ncs,ncs->c", g.reshape(flat), hat.reshape(flat))
    h = _groups(g if weight is None else g * _channel(wide(weight), x.ndim), groups)
    n = max(w.shape[2], 1)
    dx = h - added(h, (2,), True) / n
    dx -= hat * (paired("ngs,ngs->ng", h, hat)[..., None] / n)
    dx *= scale
    return narrowed(dx.reshape(x.shape), x.dtype), dw, db


_kernel: Any = kernel(
    "group_norm_backward", _grad, lambda ct, x, *_, **__: (
        x, *(Aval((x.shape[1],), _acc(x.dtype)),) * 2),
    outs=("dx", "dweight", "dbias"), cost=lambda ct, *_, **__: 9 * ct.size)


def _normalised(x: Any, groups: int, eps: float) -> tuple[Any, Any]:
    """x̂ as (N, groups, s) and 1/std, in ops: what is differentiated once more."""
    w = reshape(x, (x.shape[0], groups, math.prod(x.shape[1:]) // groups))
    centred = sub(w, mean_op(w, dim=(2,), keepdim=True))
    rstd = rsqrt(add(mean_op(mul(centred, centred), dim=(2,), keepdim=True), eps))
    return mul(centred, rstd), rstd


def _projected(h: Any, hat: Any, rstd: Any, dim: Shape) -> Any:
    """rstd (h - mean(h) - x̂ mean(h x̂)), the derivative of x̂ applied to h, which is symmetric."""
    pulled = mean_op(mul(h, hat), dim=dim, keepdim=True)
    return mul(sub(sub(h, mean_op(h, dim=dim, keepdim=True)), mul(hat, pulled)), rstd)


def _vjp(cts: Any, x: Any, weight: Any, mean: Any, rstd: Any, wanted: Any, *, groups: int,
         eps: float) -> Any:
    ct = cts[0]
    if not is_recorded(ct, x, weight):
        found = _kernel(ct, x, weight, mean, rstd, groups=groups, wanted=tuple(wanted))
    else:
        hat, scale = _normalised(x, groups, eps)
        h = ct if weight is None else mul(ct, column(weight, x))
        axes, shape = (0, *range(2, len(x.shape))), tuple(x.shape)
        found = (reshape(_projected(reshape(h, tuple(hat.shape)), hat, scale, (2,)), shape),
                 sum_op(mul(ct, reshape(hat, shape)), dim=axes, keepdim=False),
                 sum_op(ct, dim=axes, keepdim=False))
    return tuple(f if w else None for f, w in zip(found, wanted, strict=True))


def _jvp_x(t: Any, x: Any, weight: Any, *, groups: int, eps: float) -> Any:
    hat, scale = _normalised(x, groups, eps)
    moved = reshape(_projected(reshape(t, tuple(hat.shape)), hat, scale, (2,)), tuple(x.shape))
    return (moved if weight is None else mul(moved, column(weight, x)),)


def _domain(*attrs: dict[str, Any]) -> Any:
    draw = np.random.default_rng(0).standard_normal
    return [((draw((2, 4, 3)), draw(4), draw(4)), a) for a in attrs]


group_norm_op: Any = op(
    "group_norm", impl=_impl, infer=_infer, hidden=("mean", "rstd"),
    vjp={("x", "weight", "bias"): _vjp,
         "bias": lambda cts, x_aval: sum_op(cts[0], dim=(0, *range(2, x_aval.ndim)),
                                            keepdim=False)},
    jvp={"x": _jvp_x,
         "weight": lambda t, x, *, groups, eps: (mul(reshape(_normalised(x, groups, eps)[0], tuple(
             x.shape)), column(t, x)),),
         "bias": lambda t, x_aval: (column(t, x_aval),)},
    batch=batch_loop, node="NativeGroupNormBackward0", cost=lambda x, *_, **__: 8 * x.size,
    domain=lambda: _domain({"groups": 2, "eps": 1e-5}, {"groups": 4, "eps": 1e-5}),
    why={"x": "x̂ is made again", "weight": "dx̂ = ct·weight",
         "mean": "one number per group, for x̂", "rstd": "one number per group, for x̂"})


@planned
def group_norm(input: Any, num_groups: int, weight: Any = None, bias: Any = None,
               eps: float = 1e-5) -> Any:
    """Normalizes groups of channels of every example of (N, C, ...).

    Source: Y. Wu, K. He, "Group normalization" (2018).

    >>> import adjoint as ad
    >>> ad.nn.functional.group_norm(ad.tensor([[[1.0], [3.0]]]), 1).shape
    adjoint.Size([1, 2, 1])
    """
    need("group_norm", input)
    need_kernel("GroupNormKernelImpl", "biuc", input)
    check_channels("group_norm", input, weight, bias)
    c = input.shape[1]
    if num_groups < 1 or c % num_groups:
        raise ShapeError(f"Expected number of channels in input to be divisible by num_groups, but "
                         f"got input of shape {list(input.shape)} and num_groups={num_groups}")
    if input.shape[0] * c * math.prod(input.shape[2:]) == num_groups:
        raise ShapeError("Expected more than 1 value per channel when training, got input size "
                         f"{list(input.shape)} for {num_groups} groups")
    return group_norm_op(input, weight, bias, groups=int(num_groups), eps=float(eps))[0]


@typed
def instance_norm(input: Any, running_mean: Any = None, running_var: Any = None,
                  weight: Any = None, bias: Any = None, use_input_stats: bool = True,
                  momentum: float = 0.1, eps: float = 1e-5) -> Any:
    """Normalizes every channel of every example of (N, C, ...)."""
    need("instance_norm", input)
    need_kernel("batch_norm", "biuc", input)
    check_channels("instance_norm", input, weight, bias)
    if not in_order(raw(input)):
        from adjoint.ops.api_shape import contiguous_copy
        input = contiguous_copy(input)             # as PyTorch: results are in C order
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    n, c, *rest = input.shape
    if math.prod(rest) == 1:
        raise ShapeError("Expected more than 1 spatial element when training, got input size "
                         f"{Size(input.shape)}")
    if running_mean is not None and math.prod(rest):
        array = raw(input)
        if isinstance(array, np.ndarray):
            flat = wide(array).reshape(n, c, -1)
            spread = var_op.op.impl(flat, dim=(2,), correction=1, keepdim=False)
            track(running_mean, mean_op.op.impl(flat, dim=(2,), keepdim=False).mean(0), momentum,
                  1.0)
            track(running_var, spread.mean(0), momentum, 1.0)
        elif getattr(input, "level", 0):
            flat = reshape(input, (n, c, math.prod(rest)))
            for running, found in ((running_mean, mean_op(flat, dim=(2,), keepdim=False)),
                                   (running_var, var_op(flat, dim=(2,), correction=1,
                                                        keepdim=False))):
                track(running, mean_op(found, dim=(0,), keepdim=False), momentum, 1.0)
    return group_norm_op(input, weight, bias, groups=max(c, 1), eps=float(eps))[0]


# -- root mean square ------------------------------------------------------------------------
@following(0)
def _rms_impl(x: Any, weight: Any, /, *, ndim: int, eps: float) -> Any:
    width = math.prod(x.shape[x.ndim - ndim:])
    w = wide(x).reshape(math.prod(x.shape[:x.ndim - ndim]), width)
    rstd = 1 / np.sqrt(paired("ij,ij->i", w, w) / max(width, 1) + w.dtype.type(eps))
    out = w * rstd[:, None]
    if weight is not None:
        out *= wide(weight).reshape(-1)
    return narrowed(out.reshape(x.shape), x.dtype), rstd


def _rms_grad(ct: Any, x: Any, weight: Any, rstd: Any, /, *, ndim: int,
              wanted: tuple[bool, ...]) -> Any:
    inner = x.shape[x.ndim - ndim:]
    width = math.prod(inner)
    if x.dtype.kind == "c":                   # holomorphic: the rule of conjugated operands
        x, rstd, weight = (None if a is None else np.conj(a) for a in (x, rstd, weight))
    g, hat = (wide(a).reshape(rstd.size, width) for a in (ct, x))
    hat = hat * rstd[:, None]
    dw = paired("ij,ij->j", g, hat)
    h = g if weight is None else g * wide(weight).reshape(-1)
    dx = h - hat * (paired("ij,ij->i", h, hat)[:, None] / max(width, 1))
    dx *= rstd[:, None]
    return narrowed(dx.reshape(x.shape), x.dtype), dw.reshape(inner)


_rms_kernel: Any = kernel(
    "rms_norm_backward", _rms_grad, lambda ct, x, *_, ndim, **__: (
        x, Aval(x.shape[x.ndim - ndim:], _acc(x.dtype))), outs=("dx", "dweight"),
    cost=lambda ct, *_, **__: 6 * ct.size)


def _rms_normalised(x: Any, ndim: int, eps: float) -> tuple[Any, Any, Shape]:
    rank = len(x.shape)
    inner = tuple(range(rank - ndim, rank))
    rstd = rsqrt(add(mean_op(mul(x, x), dim=inner, keepdim=True), eps))
    return mul(x, rstd), rstd, inner


def _rms_projected(h: Any, hat: Any, rstd: Any, inner: Shape) -> Any:
    return mul(sub(h, mul(hat, mean_op(mul(h, hat), dim=inner, keepdim=True))), rstd)


def _rms_vjp(cts: Any, x: Any, weight: Any, rstd: Any, wanted: Any, *, ndim: int,
             eps: float) -> Any:
    ct = cts[0]
    if not is_recorded(ct, x, weight):
        found = _rms_kernel(ct, x, weight, rstd, ndim=ndim, wanted=tuple(wanted))
    else:
        hat, scale, inner = _rms_normalised(conj(x), ndim, eps)
        h = ct if weight is None else mul(ct, conj(weight))
        found = (_rms_projected(h, hat, scale, inner),
                 sum_op(mul(ct, hat), dim=tuple(range(len(x.shape) - ndim)), keepdim=False))
    return tuple(f if w else None for f, w in zip(found, wanted, strict=True))


def _rms_jvp(t: Any, x: Any, weight: Any, *, ndim: int, eps: float) -> Any:
    moved = _rms_projected(t, *_rms_normalised(x, ndim, eps))
    return (moved if weight is None else mul(moved, weight),)


def _rms_domain() -> Any:
    draw = np.random.default_rng(0).standard_normal
    return [((draw((2, 4, 3)), draw(s)), {"ndim": len(s), "eps": 1e-5}) for s in ((3,), (4, 3))]


rms_norm_op: Any = op(
    "rms_norm", impl=_rms_impl, infer=lambda x, weight, *, ndim, eps: (
        x, Aval((math.prod(x.shape[:x.ndim - ndim]),), _acc(x.dtype))), hidden=("rstd",),
    vjp={("x", "weight"): _rms_vjp},
    jvp={"x": _rms_jvp,
         "weight": lambda t, x, *, ndim, eps: (mul(_rms_normalised(x, ndim, eps)[0], t),)},
    batch=batch_loop, node="FusedRmsNormBackward0", cost=lambda x, *_, **__: 5 * x.size,
    domain=_rms_domain, why={"x": "x̂ = x·rstd is made again", "weight": "dx̂ = ct·weight",
                             "rstd": "one number per row, for x̂"})


@planned
def rms_norm(input: Any, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Any:
    """x/√(mean(x²) + eps)·weight over the trailing axes.

    Source: B. Zhang, R. Sennrich, "Root mean square layer normalization" (2019).

    >>> import adjoint as ad
    >>> ad.nn.functional.rms_norm(ad.tensor([3.0, -3.0]), (2,))
    tensor([ 1., -1.])
    """
    need("rms_norm", input)
    need_kernel("rms_norm", "biu", input)
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not shape:
        raise ShapeError("rms_norm: Expected normalized_shape to be at least 1-dimensional")
    if weight is not None and tuple(weight.shape) != shape:
        raise ShapeError("Expected weight to be of same shape as normalized_shape, but got weight "
                         f"of shape {list(weight.shape)} and normalized_shape = {list(shape)}")
    if tuple(input.shape)[-len(shape):] != shape:
        raise ShapeError(f"Given normalized_shape={list(shape)}, expected input with shape [*, "
                         f"{', '.join(map(str, shape))}], but got input of size"
                         f"{list(input.shape)}")
    own = dtype_of(input)
    if eps is None:
        eps = float(finfo(own).eps)
    if weight is None or dtype_of(weight) in (own, _acc(own)):
        return rms_norm_op(input, weight, ndim=len(shape), eps=float(eps))[0]
    x = rms_norm_op(cast_to(input, F32) if own.itemsize == 2 else input, None, ndim=len(shape),
                    eps=float(eps))[0]
    return mul(cast_to(x, own), weight)
