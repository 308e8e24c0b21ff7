"""Records that order: values with the indices they came from; the gradient follows the indices."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from adjoint.base.aval import Aval
from adjoint.base.dtypes import F32, I64, is_bfloat16
from adjoint.core.bind import bind
from adjoint.core.op import Op, op
from adjoint.ops.device import as_first
from adjoint.ops.gather import taken
from adjoint.ops.reduce import picked_jvp, picked_vjp, reduced_shape
from adjoint.ops.shape import reshape

_FEW = 64        # elements that are sorted sooner than divided at one of them
_MANY = 64       # times the wanted elements: rows of which the other elements are not sorted


def ranked(x: Any) -> Any:
    """The same numbers where NumPy orders them: bfloat16 with nan, it does not."""
    return x.astype(F32) if is_bfloat16(x.dtype) else x


def order(x: Any, dim: int, descending: bool) -> Any:
    """Indices that sort `x` stably along an axis; nan counts as largest."""
    x = ranked(x)
    if not descending:
        return x.argsort(dim, "stable")
    back = (slice(None),) * dim + (slice(None, None, -1),)
    return x.shape[dim] - 1 - x[back].argsort(dim, "stable")[back]


def distinct(x: Any, inverse: bool, counts: bool) -> tuple[Any, Any, Any]:
    """The different elements in order; if asked for, which of them each element is, and how often
    each occurs. Every nan is different from all others."""
    flat = x.reshape(-1)
    if flat.dtype.kind in "iub" and flat.size:
        low = flat.min()
        if int(flat.max()) - int(low) <= 2 * flat.size:
            return _tallied(flat, low, inverse)
    if is_bfloat16(flat.dtype):
        values, back, many = distinct(ranked(flat), inverse, counts)
        return values.astype(flat.dtype), back, many
    at = flat.argsort(kind="stable") if inverse else None
    ordered = flat[at] if inverse else np.sort(flat)
    new = np.ones(flat.size, bool)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    starts = np.flatnonzero(new)
    back = None
    if inverse:
        back = np.empty(flat.size, I64)
        back[at] = np.cumsum(new) - 1
    many = np.diff(starts, append=flat.size) if counts else None
    return ordered[starts], back, many


def _tallied(flat: Any, low: Any, inverse: bool) -> tuple[Any, Any, Any]:
    """`distinct` of whole numbers that lie close to each other: counted, not sorted."""
    if flat.dtype.kind == "u" and flat.itemsize == 8:
        places = (flat - low).astype(I64)                    # (int64 has not all of them)
    else:
        places = flat.astype(I64) - int(low)
    tally = np.bincount(places)
    found = np.flatnonzero(tally)
    values = (found.astype(flat.dtype) + low if flat.itemsize == 8
              else (found + int(low)).astype(flat.dtype))
    back = (np.cumsum(tally > 0) - 1)[places] if inverse else None
    return values, back, tally[found]


@as_first
def _sort_impl(x: Any, /, *, dim: int, descending: bool) -> Any:
    if not x.ndim:
        return np.array(x), np.zeros((), np.int64)
    at = order(x, dim, descending)
    return taken(x, at, dim), at


def _first(at: Any, k: int, dim: int) -> Any:
    """The first k along an axis."""
    return np.ascontiguousarray(at[(slice(None),) * dim + (slice(k),)])


def _whole(rule: Any) -> Any:
    def run(ct: Any, indices: Any, x_aval: Aval, *, dim: int) -> Any:
        return rule(ct, indices, x_aval, dim=dim, keepdim=True)
    return run


def _batch_dim(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
    x = args[0]
    if len(x.shape) == 1:
        outs = bind(op_, (reshape(x, (x.shape[0], 1)),), {**attrs, "dim": 1})
        return tuple(reshape(o, (x.shape[0],)) for o in outs)
    return bind(op_, args, {**attrs, "dim": attrs["dim"] + 1})


WHY = {"indices": "the gradient goes back to where the values came from"}
sort_op: Any = op(
    "sort", impl=_sort_impl, outs=("values", "indices"), differentiable=("values",),
    infer=lambda x, *, dim, descending: (Aval(x.shape, x.dtype), Aval(x.shape, I64)),
    vjp={"x": _whole(picked_vjp)}, jvp={"x": _whole(picked_jvp)}, batch=_batch_dim,
    cost=lambda x, **_: 20 * x.size, why=WHY)


def _few_largest(x: Any, k: int, largest: bool) -> Any:
    """Where the `k` largest (smallest) of each row of a matrix are, in order, of equal ones the
    first first. No nan.

    Of groups of columns the k-th of their maxima is a bound that at least k elements reach, and
    few others do: only these are sorted, or row after row everything where they are too many.
    """
    rows, n = x.shape
    groups = max(4 * k, min(64, n // 4))         # few would be far apart in memory
    apart = x[:, :n // groups * groups].reshape(rows, n // groups, groups)
    ends = apart.max(1) if largest else apart.min(1)
    kth = groups - k if largest else k - 1
    bound = np.partition(ends, kth, axis=1)[:, kth, None]
    hit = np.greater_equal(x, bound) if largest else np.less_equal(x, bound)
    # as much as what follows takes at most: memory is to depend on the shape alone
    np.empty(x.size + 32 * n, np.int8)
    if np.count_nonzero(hit) > x.size // 24:
        found = np.empty((rows, k), np.int64)
        for i in range(rows):
            found[i] = order(x[i], 0, largest)[:k]
        return found
    at = np.flatnonzero(hit)
    row, value = at // n, x.ravel()[at]
    if largest:
        value = -value if x.dtype.kind == "f" else ~value
    at = at[np.lexsort((value, row))] - row * n
    first = np.searchsorted(row, np.arange(rows))
    return at[first[:, None] + np.arange(k)]


def _topk_impl(x: Any, /, *, k: int, dim: int, largest: bool) -> Any:
    if not x.ndim:
        return np.array(x), np.zeros((), np.int64)
    given, x = x, ranked(x)
    n = x.shape[dim]
    plain = 0 < k * 8 < n and x.size and x.dtype.kind in "fiu" and not (
        x.dtype.kind == "f" and np.isnan(x).any())
    if plain and k * _MANY <= n:
        lined = np.moveaxis(x, dim, -1)
        at = _few_largest(np.ascontiguousarray(lined).reshape(-1, n), k, largest)
        at = np.ascontiguousarray(np.moveaxis(at.reshape(*lined.shape[:-1], k), -1, dim))
    elif plain:
        cut = np.argpartition(x, n - k if largest else k - 1, axis=dim)
        cut = np.take(cut, range(n - k, n) if largest else range(k), axis=dim)
        inner = order(taken(x, cut, dim), dim, largest)
        at = taken(cut, inner, dim)
    else:
        at = _first(order(x, dim, largest), k, dim)
    return taken(given, at, dim), at


def _topk_infer(x: Aval, *, k: int, dim: int, largest: bool) -> Any:
    shape = tuple(k if i == dim else n for i, n in enumerate(x.shape))
    return Aval(shape, x.dtype), Aval(shape, I64)


topk_op: Any = op(
    "topk", impl=_topk_impl, infer=_topk_infer, outs=("values", "indices"),
    differentiable=("values",), vjp={"x": _whole(picked_vjp)}, jvp={"x": _whole(picked_jvp)},
    batch=_batch_dim, cost=lambda x, **_: 10 * x.size, why=WHY)


# ------------------------------------------------------------------ one value per row
def _kth(x: Any, k: int, dim: int) -> Any:
    """Where the k-th value is; of equal ones that which comes k-th in a stable order."""
    if x.size > _FEW and (
            x.dtype.kind in "iu" or x.dtype.kind == "f" and not np.isnan(x).any()):
        value = np.take(np.partition(x, k - 1, axis=dim), [k - 1], axis=dim)
        hit = x == value
        if (np.count_nonzero(hit, axis=dim) == 1).all():
            return np.argmax(hit, axis=dim, keepdims=True)
    return np.take(order(x, dim, False), [k - 1], axis=dim)


def _along(x: Any, at: Any, dim: int) -> Any:
    return x[at] if x.ndim == 1 else np.take_along_axis(x, at, dim)


def _median_at(x: Any, dim: int, skip_nan: bool) -> Any:
    if x.shape[dim] and not (x.dtype.kind == "f" and np.isnan(x).any()):
        return _kth(x, (x.shape[dim] + 1) // 2, dim)
    at = order(x, dim, False)
    n = x.shape[dim]
    if x.dtype.kind == "f":
        bad = np.isnan(x).sum(axis=dim, keepdims=True)
        middle = np.maximum(n - bad - 1, 0) // 2 if skip_nan else np.where(bad, n - bad,
                                                                           (n - 1) // 2)
        return np.take_along_axis(at, middle, dim)
    return np.take(at, [(n - 1) // 2], axis=dim)


def _mode_at(x: Any, dim: int) -> Any:
    at = order(x, dim, False)
    s = np.moveaxis(_along(x, at, dim), dim, -1)
    rows = s.reshape(-1, s.shape[-1])
    best = np.empty(len(rows), np.int64)
    for i, row in enumerate(rows):
        last = np.append(np.flatnonzero(row[1:] != row[:-1]), len(row) - 1)     # of equal ones
        counts = last.copy()
        counts[1:] -= last[:-1]
        counts[0] += 1
        best[i] = last[counts.argmax()]
    chosen = np.moveaxis(best.reshape(*s.shape[:-1], 1), -1, dim)
    return _along(at, chosen, dim)


def _one(place: Any) -> Any:
    def impl(x: Any, /, *, dim: int, keepdim: bool, k: int) -> Any:
        if not x.ndim:
            return np.array(x), np.zeros((), np.int64)
        at = place(ranked(x), k, dim)
        values = _along(x, at, dim)
        return (values, at) if keepdim else (values.squeeze(dim), at.squeeze(dim))
    return impl


def _one_infer(x: Aval, *, dim: int, keepdim: bool, k: int) -> Any:
    shape = reduced_shape(x.shape, (dim,), keepdim)
    return Aval(shape, x.dtype), Aval(shape, I64)


def _batch_one(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
    x = args[0]
    if len(x.shape) == 1:
        return bind(op_, (reshape(x, (x.shape[0], 1)),), {**attrs, "dim": 1, "keepdim": False})
    return bind(op_, args, {**attrs, "dim": attrs["dim"] + 1})


def _declare_one(name: str, place: Any, **fields: Any) -> Any:
    return op(
        name, impl=_one(place), infer=_one_infer, outs=("values", "indices"),
        differentiable=("values",), vjp={"x": picked_vjp}, jvp={"x": picked_jvp},
        batch=_batch_one, cost=lambda x, **_: 20 * x.size, why=WHY, **fields)


kthvalue_op: Any = _declare_one("kthvalue", lambda x, k, dim: _kth(x, k, dim), by_value=True)
median_op: Any = _declare_one("median", lambda x, k, dim: _median_at(x, dim, False), by_value=True)
nanmedian_op: Any = _declare_one("nanmedian", lambda x, k, dim: _median_at(x, dim, True),
                                 by_value=True)
mode_op: Any = _declare_one("mode", lambda x, k, dim: _mode_at(x, dim), by_value=True)
