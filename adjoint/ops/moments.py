"""Records of reductions with a formula: variance, products, norms, log-sum-exp."""
from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from adjoint.base.aval import Aval, inverse
from adjoint.base.dtypes import F32, F64, I64
from adjoint.core.op import op
from adjoint.kernels import expr as ex
from adjoint.ops.api_common import few, is_recorded, kernel, narrowed, wide
from adjoint.ops.family import by_rows, derived_op, pointwise
from adjoint.ops.pointwise import (
    abs_op,
    div,
    eq,
    exp_below,
    maximum,
    minimum,
    mul,
    pow_op,
    real_part,
    sgn,
    sub,
    where_op,
)
from adjoint.ops.reduce import (
    amax_op,
    batch_reduce,
    beside,
    c_order,
    dtype_of,
    kept,
    mean_op,
    reduced_shape,
    spread,
    sum_op,
    total,
)

Shape = tuple[int, ...]
ADD: Any = np.add              # typed loosely: the stubs know too few forms of reduce
MULTIPLY: Any = np.multiply
MAXIMUM: Any = np.maximum
MINIMUM: Any = np.minimum


def count(shape: Shape, dim: Shape) -> int:
    """How many elements are reduced to one."""
    return math.prod(shape[d] for d in dim)


def real_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of an absolute value."""
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype


def _reduced(x: Aval, *, dim: Shape, keepdim: bool, **_: Any) -> Aval:
    return Aval(reduced_shape(x.shape, dim, keepdim), x.dtype)


def _reduced_real(x: Aval, *, dim: Shape, keepdim: bool, **_: Any) -> Aval:
    return Aval(reduced_shape(x.shape, dim, keepdim), real_of(x.dtype))


# ------------------------------------------------------------------ variance
def _row_var(x: Any, width: Any, correction: int) -> Any:
    """The variance of the rows of a matrix that is one block."""
    centred = x - ADD.reduce(x, -1, None, None, True) / width
    return ADD.reduce(np.square(centred), -1, None, None, True) / (width - correction)


@cache
def _few_var(single: bool, correction: int, keepdim: bool) -> Any:
    """The same of few elements, along the last axis."""
    def otherwise(x: Any) -> Any:
        out = _row_var(x, x.shape[-1], correction)
        return out if keepdim else out[..., 0]
    return by_rows(lambda x, width: _row_var(x, width, correction), "matrix",
                   "kept" if keepdim else "lead", F32 if single else F64, otherwise)


def _var_impl(x: Any, /, *, dim: Shape, correction: float, keepdim: bool) -> Any:
    if len(dim) == 1 and few(x) and dim[0] == x.ndim - 1 and correction == int(correction) \
            and x.shape[-1] > correction:
        return _few_var(x.dtype is F32, int(correction), keepdim)(x)
    if len(dim) == x.ndim > 1 and few(x) and x.flags.c_contiguous and x.size > correction \
            and correction == int(correction):          # all of it is one row
        row = _few_var(x.dtype is F32, int(correction), False)(x.reshape(1, -1))
        return row.reshape((1,) * x.ndim if keepdim else ())
    w = wide(x)
    n = count(x.shape, dim)
    with np.errstate(all="ignore"):
        centred = w - total(w, dim, True) / w.dtype.type(n) if x.size else w
        square = (np.square(centred) if w.dtype.kind != "c"
                  else np.square(centred.real) + np.square(centred.imag))
        out = total(square, dim, keepdim)
        out = out / np.asarray(max(n - correction, 0), out.dtype)
    return narrowed(c_order(np.asarray(out)), real_of(x.dtype))


def _centred(x: Any, dim: Shape) -> Any:
    return sub(x, mean_op(x, dim=dim, keepdim=True))


def _factor(shape: Shape, dim: Shape, correction: float, twice: float) -> float:
    left = count(shape, dim) - correction
    return twice / left if left > 0 else math.nan if left == 0 and count(shape, dim) == 0 \
        else math.inf


def _var_vjp(ct: Any, x: Any, *, dim: Shape, correction: float) -> Any:
    k = _factor(tuple(x.shape), dim, correction, 2.0)
    return mul(spread(mul(ct, k), tuple(x.shape), dim), _centred(x, dim))


def _var_jvp(t: Any, x: Any, *, dim: Shape, correction: float, keepdim: bool) -> Any:
    k = _factor(tuple(x.shape), dim, correction, 2.0)
    return mul(sum_op(_inner(t, _centred(x, dim)), dim=dim, keepdim=keepdim), k)


def _inner(t: Any, x: Any) -> Any:
    from adjoint.ops.linalg import conj
    product = mul(t, conj(x))
    return real_part(product) if dtype_of(product).kind == "c" else product


var_op: Any = op(
    "var", impl=_var_impl, infer=_reduced_real, vjp={"x": _var_vjp}, jvp={"x": _var_jvp},
    batch=batch_reduce, cost=lambda x, **_: 4 * x.size, why={"x": "dx = 2(x - mean)/(n-c)"})


def _std_vjp(ct: Any, x: Any, out: Any, *, dim: Shape, correction: float) -> Any:
    half = where_op(eq(out, 0.0), 0.0, div(ct, mul(out, 2.0)))
    return _var_vjp(half, x, dim=dim, correction=correction)


def _std_jvp(t: Any, x: Any, out: Any, *, dim: Shape, correction: float, keepdim: bool) -> Any:
    square = _var_jvp(t, x, dim=dim, correction=correction, keepdim=keepdim)
    return where_op(eq(out, 0.0), 0.0, div(square, mul(out, 2.0)))


def _std_impl(x: Any, /, *, dim: Shape, correction: float, keepdim: bool) -> Any:
    """The root in float32 of 16 bits: the variance may leave the range of float16."""
    return narrowed(np.sqrt(_var_impl(wide(x), dim=dim, correction=correction, keepdim=keepdim)),
                    real_of(x.dtype))


std_op: Any = op("std", impl=_std_impl,
            infer=_reduced_real, vjp={"x": _std_vjp}, jvp={"x": _std_jvp}, batch=batch_reduce,
            cost=lambda x, **_: 4 * x.size,
            why={"x": "dx = (x - mean)/((n-c)·std)", "out": "divides; 0 where it is 0"})


# ------------------------------------------------------------------ product
def _prod_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return I64 if dtype.kind in "iub" else dtype


def _prod_impl(x: Any, /, *, dim: Shape, keepdim: bool) -> Any:
    whole = I64 if x.dtype.kind in "iub" else None
    found = MULTIPLY.reduce(wide(x), axis=dim, keepdims=keepdim, dtype=whole)
    return narrowed(c_order(np.asarray(found)), _prod_dtype(x.dtype))


def _raw_others(x: Any, /, *, dim: Shape) -> Any:
    from adjoint.ops.cumulative import cumprod_op
    running = cumprod_op.op.impl
    order = (*(d for d in range(x.ndim) if d not in dim), *dim)
    moved = x.transpose(order)
    flat = moved.reshape(-1, count(x.shape, dim))
    before, after = np.ones(flat.shape, x.dtype), np.ones(flat.shape, x.dtype)
    before[:, 1:] = running(flat[:, :-1], dim=1)
    after[:, :-1] = running(flat[:, :0:-1], dim=1)[:, ::-1]
    before *= after
    return before.reshape(moved.shape).transpose(inverse(order))


_others_kernel = kernel("prod_of_others", _raw_others, lambda x, *, dim: x,
                        cost=lambda x, **_: 3 * x.size)


def _others(x: Any, dim: Shape) -> Any:
    """For every element the product of all others along `dim`: also right where some are 0."""
    if not is_recorded(x):
        return _others_kernel(x, dim=dim)
    from adjoint.ops.cumulative import cumprod_op
    from adjoint.ops.shape import cat_op, flip_op, narrow_op, permute_op, reshape
    shape = tuple(x.shape)
    rest = tuple(d for d in range(len(shape)) if d not in dim)
    order = (*rest, *dim)
    n = count(shape, dim)
    moved = permute_op(x, dims=order)
    flat = reshape(moved, (math.prod(shape[d] for d in rest), n))
    one = np.ones((flat.shape[0], 1), dtype_of(x))
    before = cat_op(one, cumprod_op(narrow_op(flat, dim=1, start=0, length=n - 1), dim=1), dim=1)
    back = flip_op(narrow_op(flat, dim=1, start=1, length=n - 1), dims=(1,))
    after = flip_op(cat_op(one, cumprod_op(back, dim=1), dim=1), dims=(1,))
    both = reshape(mul(before, after), tuple(shape[d] for d in order))
    return permute_op(both, dims=inverse(order))


def _prod_vjp(ct: Any, x: Any, *, dim: Shape) -> Any:
    from adjoint.ops.linalg import conj
    if not math.prod(x.shape):
        return np.zeros(tuple(x.shape), dtype_of(x))
    return mul(spread(ct, tuple(x.shape), dim), conj(_others(x, dim)))


def _prod_jvp(t: Any, x: Any, *, dim: Shape, keepdim: bool) -> Any:
    if not math.prod(x.shape):
        return sum_op(t, dim=dim, keepdim=keepdim)
    return sum_op(mul(t, _others(x, dim)), dim=dim, keepdim=keepdim)


prod_op: Any = op("prod", impl=_prod_impl,
             infer=lambda x, *, dim, keepdim: Aval(reduced_shape(x.shape, dim, keepdim),
                                                   _prod_dtype(x.dtype)),
             vjp={"x": _prod_vjp}, jvp={"x": _prod_jvp}, batch=batch_reduce,
             cost=lambda x, **_: x.size, why={"x": "the product of all other elements"})


# ------------------------------------------------------------------ log-sum-exp
def _lse_impl(x: Any, /, *, dim: Shape, keepdim: bool) -> Any:
    w = wide(x)
    if not x.size:
        with np.errstate(divide="ignore"):
            out = np.log(total(np.exp(w), dim, keepdim))
        return narrowed(np.asarray(out), x.dtype)
    top = MAXIMUM.reduce(w.real, axis=dim, keepdims=True)
    top = np.where(np.isfinite(top), top, 0).astype(top.dtype)
    with np.errstate(divide="ignore"):
        out = np.log(total(np.exp(w - top), dim, True)) + top
    return narrowed(c_order(out if keepdim else np.asarray(out.squeeze(dim))), x.dtype)


def _lse_weights(x: Any, out: Any, dim: Shape) -> Any:
    return exp_below(x, kept(out, tuple(x.shape), dim))


def _bar(x: Any) -> Any:
    from adjoint.ops.linalg import conj
    return conj(x)


logsumexp_op: Any = op(
    "logsumexp", impl=_lse_impl, infer=_reduced,
    vjp={"x": lambda ct, x, out, *, dim: mul(kept(ct, tuple(x.shape), dim),
                                             _bar(_lse_weights(x, out, dim)))},
    jvp={"x": lambda t, x, out, *, dim, keepdim: sum_op(
        mul(t, _lse_weights(x, out, dim)), dim=dim, keepdim=keepdim)},
    batch=batch_reduce, cost=lambda x, **_: 20 * x.size,
    why={"x": "dx = ct·exp(x - out)", "out": "dx = ct·exp(x - out)"})


# ------------------------------------------------------------------ p-norms
def _row_norm(x: Any, width: Any) -> Any:
    return np.sqrt(ADD.reduce(np.square(x), -1, None, None, True))


@cache
def _few_norm(single: bool) -> Any:
    """The Euclidean norm along the last axis of few elements."""
    return by_rows(_row_norm, "matrix", "lead", F32 if single else F64,
                   lambda x: np.asarray(_row_norm(x, None)[..., 0]))


def _norm_impl(x: Any, /, *, p: float, dim: Shape, keepdim: bool) -> Any:
    if p == 2 and not keepdim and few(x):
        if len(dim) == x.ndim:
            return _few_norm(x.dtype is F32)(x.reshape(-1))
        if dim == (x.ndim - 1,):
            return _few_norm(x.dtype is F32)(x)
    w = wide(x)
    size = np.absolute(w) if p != 2 or w.dtype.kind == "c" else w
    kind: dict[str, Any] = {"axis": dim, "keepdims": keepdim}
    if p == 2:
        out = np.sqrt(total(np.square(size), dim, keepdim))
    elif p == math.inf:
        out = MAXIMUM.reduce(size, **kind) if x.size else total(size, dim, keepdim)
    elif p == -math.inf:
        out = MINIMUM.reduce(size, **kind)
    elif p == 0:
        out = np.count_nonzero(size, axis=dim, keepdims=keepdim)
    elif p == 1:
        out = total(size, dim, keepdim)
    else:
        with np.errstate(divide="ignore"):
            out = np.power(total(np.power(size, p), dim, keepdim), 1 / p)
    return c_order(np.asarray(out)).astype(real_of(x.dtype), copy=False)


unit = pointwise("unit", lambda x, size: ex.where_(size.eq(0), 0,
                                                x / ex.where_(size.eq(0), 1, size)), kind="float")


def _norm_slope(x: Any, out: Any, p: float, dim: Shape) -> Any:
    """d‖x‖/dx as it multiplies the cotangent; 0 where the norm is 0 (the least subgradient)."""
    full = beside(out, tuple(x.shape), dim)
    if p == 0:
        return mul(x, 0.0)
    if p == 1:
        return sgn(x)
    if p in (math.inf, -math.inf):
        hit = eq(abs_op(x), full)
        ties = sum_op(where_op(hit, 1.0, 0.0), dim=dim, keepdim=True)
        share = where_op(hit, div(1.0, ties), 0.0)
        return mul(sgn(x), share_like(share, x))
    if p == 2:
        return unit(x, full)
    safe = where_op(eq(full, 0.0), 1.0, full)
    size = abs_op(x)
    zero = eq(size, 0.0)
    ratio = pow_op(div(where_op(zero, 1.0, size), safe), p - 1.0)
    return mul(sgn(x), where_op(zero, 0.0, ratio))


def share_like(share: Any, x: Any) -> Any:
    """`share` in the precision of `x`."""
    from adjoint.ops.pointwise import cast
    wanted = real_of(dtype_of(x))
    return share if dtype_of(share) == wanted else cast(share, dtype=wanted)


@cache
def _toward() -> Any:
    """ct x/‖x‖ in one pass; 0 where the norm is 0, and its derivatives are."""
    ct, x, size = ex.var("ct"), ex.var("x"), ex.var("size")
    safe = ex.where_(size.eq(0.0), 1.0, size)
    return derived_op("linalg_vector_norm_backward", ("ct", "x", "size"), (),
                      ex.where_(size.eq(0.0), 0.0, ct * (x / safe)))


def _norm_vjp(ct: Any, x: Any, out: Any, *, p: float, dim: Shape) -> Any:
    shape = tuple(x.shape)
    if p == 2 and dtype_of(x).kind != "c":
        return _toward()(kept(ct, shape, dim), x, kept(out, shape, dim))
    return mul(beside(ct, shape, dim), _norm_slope(x, out, p, dim))


norm_op: Any = op(
    "linalg_vector_norm", impl=_norm_impl, infer=_reduced_real, vjp={"x": _norm_vjp},
    jvp={"x": lambda t, x, out, *, p, dim, keepdim: sum_op(
        _inner(t, _norm_slope(x, out, p, dim)), dim=dim, keepdim=keepdim)},
    batch=batch_reduce, cost=lambda x, **_: 2 * x.size,
    why={"x": "dx = ct·x/‖x‖", "out": "dx = ct·x/‖x‖; 0 where the norm is 0"})
__all__ = ["amax_op", "logsumexp_op", "maximum", "minimum", "norm_op", "prod_op", "std_op",
           "var_op"]
