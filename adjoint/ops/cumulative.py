"""Cumulative records. Products and log-sum-exps are differentiated through one linear recurrence,
s[j] = a[j] + b[j]·s[j-1], whose derivative is a recurrence of the same kind: right where
elements are 0, and linear in the length."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from adjoint.base.aval import Aval
from adjoint.base.dtypes import F32, F64, I64
from adjoint.core.bind import bind
from adjoint.core.op import Op, op
from adjoint.ops.api_common import dtype_of, narrowed, wide
from adjoint.ops.device import in_rows
from adjoint.ops.linalg import conj
from adjoint.ops.pointwise import exp, mul, sub
from adjoint.ops.shape import cat_op, flip_op, lift_all, narrow_op, reshape, roll_op

Shape = tuple[int, ...]


def batch_cumulative(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
    """Batch rule of ops along one axis; numbers count as vectors of one element."""
    lifted = lift_all(args, batched)
    if len(lifted[0].shape) == 1:
        out = bind(op_, [reshape(a, (a.shape[0], 1)) for a in lifted], {**attrs, "dim": 1})
        if isinstance(out, tuple):
            return tuple(reshape(o, (o.shape[0],)) for o in out)
        return reshape(out, (out.shape[0],))
    return bind(op_, lifted, {**attrs, "dim": attrs["dim"] + 1})


def _at(dim: int, j: Any) -> tuple[Any, ...]:
    return (*(slice(None),) * dim, j)


# ------------------------------------------------------------------ the recurrence
def _scan_impl(a: Any, b: Any, /, *, dim: int) -> Any:
    out = np.array(np.broadcast_to(a, np.broadcast_shapes(a.shape, b.shape)),
                   np.result_type(a, b))
    if not out.ndim:
        return out
    b = np.broadcast_to(b, out.shape)
    for j in range(1, out.shape[dim]):
        out[_at(dim, j)] += b[_at(dim, j)] * out[_at(dim, j - 1)]
    return out


def _reverse(a: Any, b: Any, dim: int) -> Any:
    """s[j] = a[j] + b[j+1]·s[j+1]."""
    if not len(a.shape):
        return a
    turned = flip_op(roll_op(b, shifts=(-1,), dims=(dim,)), dims=(dim,))
    return flip_op(scan_op(flip_op(a, dims=(dim,)), turned, dim=dim), dims=(dim,))


def _delayed(x: Any, dim: int, first: float) -> Any:
    """x[j-1] at j, `first` at 0."""
    if not len(x.shape):
        return np.full((), first, dtype_of(x))
    n = x.shape[dim]
    shape = (*x.shape[:dim], min(1, n), *x.shape[dim + 1:])
    head = np.full(shape, first, dtype_of(x))
    return cat_op(head, narrow_op(x, dim=dim, start=0, length=max(n - 1, 0)), dim=dim)


scan_op: Any = op(
    "linear_scan", impl=_scan_impl,
    infer=lambda a, b, *, dim: Aval(np.broadcast_shapes(a.shape, b.shape), a.dtype),
    vjp={"a": lambda ct, b, *, dim: _reverse(ct, conj(b), dim),
         "b": lambda ct, b, out, *, dim: mul(_reverse(ct, conj(b), dim),
                                             conj(_delayed(out, dim, 0.0)))},
    jvp={"a": lambda t, b, *, dim: scan_op(t, b, dim=dim),
         "b": lambda t, b, out, *, dim: scan_op(mul(t, _delayed(out, dim, 0.0)), b, dim=dim)},
    batch=batch_cumulative, cost=lambda a, b, **_: 2 * a.size,
    why={"b": "the recurrence runs backwards with the same factors", "out": "db[j] = g[j]·s[j-1]"})


# ------------------------------------------------------------------ sums and products
def _sum_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return I64 if dtype.kind in "iub" else dtype


def _accumulate(f: Any) -> Any:
    def impl(x: Any, /, *, dim: int) -> Any:
        if x.ndim and (x.dtype is F32 or x.dtype is F64) and x.flags.c_contiguous:
            return f.accumulate(x, dim)
        dtype = _sum_dtype(x.dtype)
        w = wide(x)
        if not x.ndim:
            return np.array(x, dtype)
        with np.errstate(all="ignore"):
            out = f.accumulate(w, axis=dim, dtype=I64 if dtype is I64 else None)
        return narrowed(np.ascontiguousarray(out), dtype)
    return impl


def _along(x: Aval, *, dim: int) -> Aval:
    return Aval(x.shape, _sum_dtype(x.dtype))


def _back_sum(ct: Any, dim: int) -> Any:
    if not len(ct.shape):
        return ct
    return flip_op(cumsum_op(flip_op(ct, dims=(dim,)), dim=dim), dims=(dim,))


cumsum_op: Any = op(
    "cumsum", impl=_accumulate(np.add), infer=_along,
    vjp={"x": lambda ct, *, dim: _back_sum(ct, dim)}, jvp={"x": None}, batch=batch_cumulative,
    cost=lambda x, **_: x.size)


def _cumprod_vjp(ct: Any, x: Any, *, dim: int) -> Any:
    before = _delayed(cumprod_op(x, dim=dim), dim, 1.0)
    return mul(_reverse(ct, conj(x), dim), conj(before))


def _cumprod_jvp(t: Any, x: Any, *, dim: int) -> Any:
    before = _delayed(cumprod_op(x, dim=dim), dim, 1.0)
    return scan_op(mul(t, before), x, dim=dim)


cumprod_op: Any = op(
    "cumprod", impl=_accumulate(np.multiply), infer=_along, vjp={"x": _cumprod_vjp},
    jvp={"x": _cumprod_jvp}, batch=batch_cumulative, cost=lambda x, **_: x.size,
    why={"x": "the products of all others come from a recurrence in x"})


# ------------------------------------------------------------------ log-sum-exp
def _log_add(a: Any, b: Any) -> Any:
    """log(exp(a) + exp(b)) of complex numbers; the angle goes on from the larger one's."""
    first = a.real >= b.real
    top, low = np.where(first, a, b), np.where(first, b, a)
    with np.errstate(all="ignore"):
        usual = top + np.log1p(np.exp(low - top))
        both = np.isinf(low.real) & (low.real == top.real)      # top - low says nothing
        return np.where(both, np.where(low.real < 0, low, np.log(np.exp(low) + np.exp(top))), usual)


@in_rows
def _lcse_impl(x: Any, /, *, dim: int) -> Any:
    if not x.ndim:
        return np.array(x)
    w = wide(x)
    if w.dtype.kind == "c":
        out = w.copy()
        for j in range(1, w.shape[dim]):
            out[_at(dim, j)] = _log_add(w[_at(dim, j)], out[_at(dim, j - 1)])
        return out
    with np.errstate(all="ignore"):
        return narrowed(np.logaddexp.accumulate(w, dim, F64), x.dtype)


def _decay(out: Any, dim: int) -> Any:
    """exp(out[j-1] - out[j]) <= 1; 0 at j = 0."""
    from adjoint.ops.pointwise import isnan, where_op
    ratio = exp(sub(_delayed(out, dim, -np.inf), out))
    if dtype_of(ratio).kind == "c":
        return mul(ratio, _delayed(np.ones_like(getattr(out, "array", out)), dim, 0.0))
    return where_op(isnan(ratio), 0.0, ratio)


def _share(x: Any, out: Any) -> Any:
    from adjoint.ops.pointwise import isnan, where_op
    ratio = exp(sub(x, out))
    if dtype_of(ratio).kind == "c":
        return ratio
    return where_op(isnan(ratio), 0.0, ratio)


logcumsumexp_op: Any = op(
    "logcumsumexp", impl=_lcse_impl, infer=lambda x, *, dim: Aval(x.shape, x.dtype),
    vjp={"x": lambda ct, x, out, *, dim: mul(_reverse(ct, conj(_decay(out, dim)), dim),
                                             conj(_share(x, out)))},
    jvp={"x": lambda t, x, out, *, dim: scan_op(mul(t, _share(x, out)), _decay(out, dim),
                                                dim=dim)},
    batch=batch_cumulative, cost=lambda x, **_: 30 * x.size,
    why={"x": "exp(x - out) is each element's share", "out": "the total that shares refer to"})


# ------------------------------------------------------------------ running extremes
def _running(better: Any) -> Any:
    @in_rows
    def impl(x: Any, /, *, dim: int) -> Any:
        if not x.ndim:
            return np.array(x), np.zeros((), np.int64)
        values, at = np.array(x), np.zeros(x.shape, np.int64)
        for j in range(1, x.shape[dim]):
            here, last = x[_at(dim, j)], values[_at(dim, j - 1)]
            take = better(here, last) | (here != here)
            values[_at(dim, j)] = np.where(take, here, last)
            at[_at(dim, j)] = np.where(take, j, at[_at(dim, j - 1)])
        return values, at
    return impl


def _running_vjp(cts: Any, indices: Any, x_aval: Aval, *, dim: int) -> Any:
    from adjoint.ops.gather import put_along_op
    return put_along_op(cts[0], indices, dim=dim, shape=x_aval.shape)


def _running_jvp(t: Any, indices: Any, *, dim: int) -> Any:
    from adjoint.ops.gather import gather_op
    return gather_op(t, indices, dim=dim), None


def _declare_running(name: str, better: Any) -> Any:
    return op(
        name, impl=_running(better), outs=("values", "indices"), differentiable=("values",),
        infer=lambda x, *, dim: (Aval(x.shape, x.dtype), Aval(x.shape, I64)),
        vjp={"x": _running_vjp}, jvp={"x": _running_jvp}, batch=batch_cumulative,
        cost=lambda x, **_: x.size, why={"indices": "where each running extreme came from"})


cummax_op: Any = _declare_running("cummax", np.greater_equal)
cummin_op: Any = _declare_running("cummin", np.less_equal)
