"""Layer norm: a joint rule for input, weight and bias; mean and 1/std of every row are kept.

Source: J. Ba, J. Kiros, G. Hinton, "Layer normalization" (2016), eq. 3-4.
"""
from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from adjoint.base.aval import Aval
from adjoint.base.dtypes import F32, F64, of_numpy
from adjoint.base.errors import DTypeError, ShapeError
from adjoint.core.bind import bind
from adjoint.core.op import Op, op
from adjoint.ops.api_common import (
    dtype_of,
    few,
    is_recorded,
    kernel,
    narrowed,
    need,
    need_kernel,
    row_blocks,
    wide,
)
from adjoint.ops.family import by_rows
from adjoint.ops.pointwise import add, mul, rsqrt, sub
from adjoint.ops.public import planned
from adjoint.ops.reduce import ADD, added, mean_op, paired, sum_op
from adjoint.ops.shape import expand_op, reshape

Shape = tuple[int, ...]


def _acc(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return F32 if dtype.itemsize == 2 else dtype


def _normed(x: Any, weight: Any, bias: Any, width: Any, eps: float) -> Any:
    """The rows of a matrix that is one block, their means and 1/std."""
    mean = ADD.reduce(x, -1, None, None, True)
    mean /= width
    out = x - mean
    rstd = ADD.reduce(out * out, -1, None, None, True)
    rstd /= width
    rstd += eps
    np.sqrt(rstd, rstd)
    np.divide(1.0, rstd, rstd)
    out *= rstd
    if weight is not None:
        out *= weight
    if bias is not None:
        out += bias
    return out, mean, rstd


def _few_rows(x: Any, weight: Any, bias: Any, width: int, eps: float) -> Any:
    """The same for an array of few elements, whatever the axes that are normalised."""
    out, mean, rstd = _normed(x.reshape(-1, width), _flat(weight), _flat(bias), width, eps)
    return out.reshape(x.shape), mean.reshape(-1), rstd.reshape(-1)


def _flat(x: Any) -> Any:
    return None if x is None else x.reshape(-1)


@functools.cache
def _last_axis(single: bool, scaled: bool, shifted: bool, eps: float) -> Any:
    """Layer norm along the last axis of few elements, of the operands that there are."""
    def otherwise(x: Any, *more: Any) -> Any:
        rest = iter(more)
        return _few_rows(x, next(rest) if scaled else None, next(rest) if shifted else None,
                         x.shape[-1], eps)
    forms = ["matrix", *("vector" if there else "none" for there in (scaled, shifted))]
    return by_rows(lambda x, w, b, width: _normed(x, w, b, width, eps), " ".join(forms),
                   "matrix flat flat", F32 if single else F64, otherwise)


def _layer_norm_impl(x: Any, weight: Any, bias: Any, /, *, ndim: int, eps: float) -> Any:
    width = math.prod(x.shape[x.ndim - ndim:])
    if few(x) and width:
        if ndim == 1:
            return _last_axis(x.dtype is F32, weight is not None, bias is not None, eps)(
                x, *[p for p in (weight, bias) if p is not None])
        return _few_rows(x, weight, bias, width, eps)
    rows = math.prod(x.shape[:x.ndim - ndim])
    w = wide(x).reshape(rows, width)
    mean, rstd = np.empty(rows, w.dtype), np.empty(rows, w.dtype)
    out = np.empty(w.shape, w.dtype)
    scale = None if weight is None else wide(weight).reshape(-1)
    shift = None if bias is None else wide(bias).reshape(-1)
    for b in row_blocks(rows, width * w.itemsize):
        to = out[b]
        mean[b] = w[b].mean(1) if width else 0
        np.subtract(w[b], mean[b, None], out=to)
        rstd[b] = 1 / np.sqrt(paired("ij,ij->i", to, to) / max(width, 1) + eps)
        to *= rstd[b, None]
        if scale is not None:
            to *= scale
        if shift is not None:
            to += shift
    return narrowed(out.reshape(x.shape), x.dtype), mean, rstd


def _layer_norm_infer(x: Aval, weight: Aval | None, bias: Aval | None, *, ndim: int,
                      eps: float) -> Any:
    rows = Aval((math.prod(x.shape[:x.ndim - ndim]),), _acc(x.dtype))
    return Aval(x.shape, x.dtype), rows, rows


def _pulled(ct: Any, x: Any, mean: Any, rstd: Any, weight: Any, width: Any) -> Any:
    """Cotangent of the rows of a matrix that is one block, and ct·x̂."""
    xhat = (x - mean) * rstd
    to = ct if weight is None else ct * weight
    inner = ADD.reduce(to * xhat, -1, None, None, True) / width
    to = to - ADD.reduce(to, -1, None, None, True) / width
    to -= xhat * inner
    to *= rstd
    return to, ct * xhat


@functools.cache
def _last_axis_pulled(single: bool, scaled: bool) -> Any:
    """The same for few elements that were normalised along the last axis."""
    def otherwise(ct: Any, x: Any, mean: Any, rstd: Any, *weight: Any) -> Any:
        width = x.shape[-1]
        flat = (mean.size, width)
        rows = (ct.reshape(flat), x.reshape(flat), mean[:, None], rstd[:, None])
        scale = weight[0] if weight else None
        return [a.reshape(x.shape) for a in _pulled(*rows, scale, width)]
    return by_rows(_pulled, "matrix matrix kept kept " + ("vector" if scaled else "none"),
                   "matrix matrix", F32 if single else F64, otherwise)


def _few_grad(ct: Any, x: Any, weight: Any, mean: Any, rstd: Any, wanted: tuple[bool, ...]) -> Any:
    """The gradients for few elements, normalised along the last axis."""
    given = (ct, x, mean, rstd) if weight is None else (ct, x, mean, rstd, weight)
    dx, scaled = _last_axis_pulled(x.dtype is F32, weight is not None)(*given)
    outer = tuple(range(x.ndim - 1))
    none = np.zeros(x.shape[-1], x.dtype) if not (wanted[1] and wanted[2]) else None
    return (dx, ADD.reduce(scaled, outer) if wanted[1] else none,
            ADD.reduce(ct, outer) if wanted[2] else none)


def _layer_norm_grad(ct: Any, x: Any, weight: Any, mean: Any, rstd: Any, /, *, ndim: int,
                     wanted: tuple[bool, ...]) -> Any:
    if ndim == 1 < x.ndim and few(x) and ct.flags.c_contiguous and ct.dtype is x.dtype:
        return _few_grad(ct, x, weight, mean, rstd, wanted)
    width = math.prod(x.shape[x.ndim - ndim:])
    g, w = (wide(a).reshape(mean.size, width) for a in (ct, x))
    scale = None if weight is None else wide(weight).reshape(-1)
    dx = np.empty(w.shape, w.dtype)
    dw, db = np.zeros(width, w.dtype), np.zeros(width, w.dtype)
    for b in row_blocks(len(w), 3 * width * w.itemsize):
        xhat = (w[b] - mean[b, None]) * rstd[b, None]
        gb = g[b]
        if wanted[2]:
            db += added(gb, (0,))
        if wanted[1]:
            dw += paired("ij,ij->j", gb, xhat)
        if wanted[0]:
            to = dx[b]
            np.multiply(gb, scale, out=to) if scale is not None else np.copyto(to, gb)
            inner = paired("ij,ij->i", to, xhat) / max(width, 1)
            to -= ADD.reduce(to, 1, None, None, True) / to.dtype.type(max(width, 1))
            xhat *= inner[:, None]
            to -= xhat
            to *= rstd[b, None]
    inner_shape = x.shape[x.ndim - ndim:]
    return narrowed(dx.reshape(x.shape), x.dtype), dw.reshape(inner_shape), db.reshape(inner_shape)


def _grad_infer(ct: Aval, x: Aval, weight: Any, mean: Any, rstd: Any, *, ndim: int,
                wanted: Any) -> Any:
    inner = Aval(x.shape[x.ndim - ndim:], _acc(x.dtype))     # of a float32 weight over 16 bits, too
    return Aval(x.shape, x.dtype), inner, inner


_kernel: Any = kernel("layer_norm_backward", _layer_norm_grad, _grad_infer,
                 outs=("dx", "dweight", "dbias"), cost=lambda ct, *_, **__: 9 * ct.size)


def _axes(x: Any, ndim: int) -> tuple[Shape, Shape]:
    rank = len(x.shape)
    return tuple(range(rank - ndim)), tuple(range(rank - ndim, rank))


def _normalised(x: Any, inner: Shape, eps: float) -> tuple[Any, Any]:
    """(x - mean)/std and 1/std, in ops: what is differentiated once more."""
    centred = sub(x, mean_op(x, dim=inner, keepdim=True))
    rstd = rsqrt(add(mean_op(mul(centred, centred), dim=inner, keepdim=True), eps))
    return mul(centred, rstd), rstd


def _layer_norm_vjp(cts: Any, x: Any, weight: Any, mean: Any, rstd: Any, wanted: Any, *,
                    ndim: int, eps: float) -> Any:
    ct = cts[0]
    if not is_recorded(ct, x, weight):
        found = _kernel(ct, x, weight, mean, rstd, ndim=ndim, wanted=tuple(wanted))
        return tuple(f if w else None for f, w in zip(found, wanted, strict=True))
    outer, inner = _axes(x, ndim)
    xhat, scale = _normalised(x, inner, eps)
    g = ct if weight is None else mul(ct, weight)
    dx = None
    if wanted[0]:
        pulled = mean_op(mul(g, xhat), dim=inner, keepdim=True)
        dx = mul(sub(sub(g, mean_op(g, dim=inner, keepdim=True)), mul(xhat, pulled)), scale)
    dw = sum_op(mul(ct, xhat), dim=outer, keepdim=False) if wanted[1] else None
    return dx, dw, sum_op(ct, dim=outer, keepdim=False) if wanted[2] else None


def _dx_jvp(t: Any, x: Any, weight: Any, *, ndim: int, eps: float) -> Any:
    _, inner = _axes(x, ndim)
    xhat, scale = _normalised(x, inner, eps)
    pulled = mean_op(mul(t, xhat), dim=inner, keepdim=True)
    moved = mul(sub(sub(t, mean_op(t, dim=inner, keepdim=True)), mul(xhat, pulled)), scale)
    return (moved if weight is None else mul(moved, weight),)


def _batch_layer_norm(op_: Op, args: Any, batched: Any, attrs: Any) -> Any:
    x, weight, bias = args
    if not batched[1] and not batched[2]:
        return bind(op_, args, attrs)
    n = attrs["ndim"]
    rank = len(x.shape) - batched[0]
    plain, *hidden = bind(op_, (x, None, None), attrs)
    if not batched[0]:                         # one x for all examples: so are its statistics
        size = next(f.shape[0] for f, b in zip(args[1:], batched[1:], strict=True) if b)
        hidden = [expand_op(h, shape=(size, *h.shape)) for h in hidden]
    for factor, has, f in ((weight, batched[1], mul), (bias, batched[2], add)):
        if factor is not None:
            if has:
                factor = reshape(factor, (factor.shape[0], *(1,) * (rank - n), *factor.shape[1:]))
            plain = f(plain, factor)
    return (plain, *hidden)


layer_norm_op: Any = op(
    "layer_norm", impl=_layer_norm_impl, infer=_layer_norm_infer, hidden=("mean", "rstd"),
    vjp={("x", "weight"): lambda cts, x, weight, mean, rstd, wanted, *, ndim, eps:
         _layer_norm_vjp(cts, x, weight, mean, rstd, (wanted[0], wanted[1], False), ndim=ndim,
                         eps=eps)[:2],
         "weight": lambda cts, x, mean, rstd, *, ndim, eps: _layer_norm_vjp(
             cts, x, None, mean, rstd, (False, True, False), ndim=ndim, eps=eps)[1],
         "bias": lambda cts, x_aval, *, ndim: sum_op(
             cts[0], dim=tuple(range(x_aval.ndim - ndim)), keepdim=False),
         ("x", "weight", "bias"): _layer_norm_vjp},
    jvp={"x": _dx_jvp,
         "weight": lambda t, x, *, ndim, eps: (mul(_normalised(x, _axes(x, ndim)[1], eps)[0], t),),
         "bias": lambda t: (t,)},
    batch=_batch_layer_norm, node="NativeLayerNormBackward0",
    cost=lambda x, *_, **__: 8 * x.size,
    why={"x": "x̂ = (x - mean)·rstd is made again; dweight = Σ ct·x̂",
         "weight": "dx̂ = ct·weight",
         "mean": "one number per row, for x̂",
         "rstd": "dx = rstd·(dx̂ - mean dx̂ - x̂·mean(dx̂·x̂))"})


def check_normalized(name: str, x: Any, shape: Shape, weight: Any, bias: Any) -> None:
    """The trailing axes must be `shape`, which weight and bias must have."""
    if not shape:
        raise ShapeError(f"{name}: Expected normalized_shape to be at least 1-dimensional")
    for what, p in (("weight", weight), ("bias", bias)):
        if p is not None and tuple(p.shape) != shape:
            raise ShapeError(f"Expected {what} to be of same shape as normalized_shape, but got "
                             f"{what} of shape {list(p.shape)} and normalized_shape = "
                             f"{list(shape)}")
        if p is not None and dtype_of(p) not in (dtype_of(x), _acc(dtype_of(x))):
            raise DTypeError(f"{name}: expected {what} in the input's dtype "
                             f"{of_numpy(dtype_of(x)).name}, or float32 over 16 bits; got "
                             f"{of_numpy(dtype_of(p)).name}")
    if tuple(x.shape)[-len(shape):] != shape:
        raise ShapeError(f"Given normalized_shape={list(shape)}, expected input with shape [*, "
                         f"{', '.join(map(str, shape))}], but got input of size{list(x.shape)}")


@planned
def layer_norm(input: Any, normalized_shape: tuple[int, ...] | list[int], weight: Any = None,
               bias: Any = None, eps: float = 1e-5) -> Any:
    """(x - mean)/√(var + eps)·weight + bias over the trailing axes `normalized_shape`.

    >>> import adjoint as ad
    >>> ad.nn.functional.layer_norm(ad.tensor([1.0, 3.0]), (2,))
    tensor([-1.0000,  1.0000])
    """
    need("layer_norm", input)
    need_kernel("LayerNormKernelImpl", "biuc", input)
    shape = tuple(int(n) for n in normalized_shape) if not isinstance(
        normalized_shape, int) else (normalized_shape,)
    check_normalized("layer_norm", input, shape, weight, bias)
    return layer_norm_op(input, weight, bias, ndim=len(shape), eps=float(eps))[0]
