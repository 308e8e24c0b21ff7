"""Records that pick or place single elements along one axis: gather, scatter and their kin."""
from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from adjoint.base.aval import Aval
from adjoint.base.dtypes import F32, F64, I64
from adjoint.base.errors import ArgumentError, ShapeError
from adjoint.core.bind import bind
from adjoint.core.op import Op, op
from adjoint.ops.api_common import fill_like, narrowed, wide
from adjoint.ops.family import generated
from adjoint.ops.shape import lift_all

Shape = tuple[int, ...]


def check_bounds(name: str, index: Any, size: int, dim: int) -> None:
    """Raise where an index lies outside of [0, size)."""
    if index.size and (index.dtype != I64 or index.view(np.uint64).max() >= size) and (
            index.min() < 0 or index.max() >= size):
        bad = index[(index < 0) | (index >= size)].flat[0]
        raise ArgumentError(f"{name}(): index {bad} is out of bounds for dimension {dim} with size "
                            f"{size}")


def fits(name: str, x: Shape, index: Shape, dim: int) -> None:
    """Gather and scatter want an index that is no larger than the operand, off `dim`."""
    if len(x) != len(index):
        whole = "input" if name == "gather" else "self"
        raise ShapeError(f"{name}(): Index tensor must have the same number of dimensions as "
                         f"{whole} tensor: the operand is {list(x)}, the index {list(index)}")
    for d, (n, m) in enumerate(zip(x, index, strict=True)):
        if d != dim and m > n:
            wanted = f"Size does not match at dimension {d} expected"
            raise ShapeError(f"{name}(): {wanted if name == 'gather' else 'Expected'} index "
                             f"{list(index)} to be no larger than self {list(x)} apart from "
                             f"dimension {dim}")


def pick(x: Any, index: Any, dim: int, along: bool, wraps: bool = False) -> Any:
    """x.take(index, dim), or `np.take_along_axis`, by machine code (`kernels/places.py`); None
    where that does not know the operands, or an index is out of range."""
    k = generated("pick")
    return None if k is None else k(x, index, dim, x.itemsize, along, wraps)


def add_picked(out: Any, index: Any, values: Any, dim: int, along: bool,
               wraps: bool = False) -> bool:
    """Add `values` to where `pick` reads them, in order; False where nothing was done."""
    k = generated("add") if out.dtype is F32 or out.dtype is F64 else None
    return k is not None and k(out, index, values, dim, out.itemsize, along, wraps) is not None


def put_picked(out: Any, index: Any, values: Any, dim: int, along: bool,
               wraps: bool = False) -> bool:
    """Write `values`, an array of as many or of one, to where `pick` reads them, in order; False
    where nothing was done."""
    k = generated("put")
    return k is not None and k(out, index, values, dim, out.itemsize, along, wraps) is not None


def taken(x: Any, index: Any, dim: int) -> Any:
    """np.take_along_axis, for an index that is in range."""
    got = pick(x, index, dim, along=True)
    return np.take_along_axis(x, index, dim) if got is None else got


def within(index: Any, size: int) -> bool:
    """Whether all of a small index is known to lie in [0, size)."""
    k = generated("within")
    return k is not None and k(index, size) is not None


def _cut(x: Any, index: Any, dim: int) -> Any:
    if x.shape == index.shape:
        return x
    return x[tuple(slice(None) if d == dim else slice(n) for d, n in enumerate(index.shape))]


def whole_rows(index: Any, shape: Shape, dim: int) -> Any:
    """The places of whole rows, where an index along `dim` was expanded over all other axes of an
    operand of `shape`, as message passing has it; else None."""
    last = index.ndim - 1
    if last != len(shape) - 1 or dim == last or any([
            d != dim and (n != m or s and n > 1) for d, (n, m, s) in enumerate(zip(
                index.shape, shape, index.strides, strict=True))]):
        return None
    return index[tuple([slice(None) if d == dim else 0 for d in range(index.ndim)])]


def _gather_impl(x: Any, index: Any, /, *, dim: int) -> Any:
    if not x.ndim or not index.ndim:
        return np.broadcast_to(x, index.shape).copy()
    if not index.size:
        return np.zeros(index.shape, x.dtype)
    picked = pick(x, index, dim, along=True)
    if picked is not None:
        return picked
    fits("gather", x.shape, index.shape, dim)
    rows = whole_rows(index, x.shape, dim)
    if rows is not None:
        check_bounds("gather", rows, x.shape[dim], dim)
        return x.take(rows, dim)
    check_bounds("gather", index, x.shape[dim], dim)
    taken = _along(_cut(x, index, dim), index, dim)
    return taken if taken.flags.c_contiguous else np.ascontiguousarray(taken)


def _along(x: Any, index: Any, dim: int) -> Any:
    """`np.take_along_axis`; of a matrix by rows of places at a time without its preparations."""
    if x.ndim == 2 and x.flags.c_contiguous and dim == 1:
        first = np.arange(0, x.size, x.shape[1])[:, None]
        return x.reshape(-1).take(index + first if len(x) > 1 else index)
    return np.take_along_axis(x, index, dim)


def _batch_along(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
    lifted = lift_all(args, batched)
    if "shape" in attrs:
        attrs = {**attrs, "shape": (lifted[0].shape[0], *attrs["shape"])}
    if len(lifted[0].shape) == 1:                    # examples are numbers: index 0 of one element
        from adjoint.ops.shape import reshape
        shape = tuple(lifted[1].shape) if op_.name == "gather" else (lifted[0].shape[0],)
        lifted = [reshape(a, (a.shape[0], math.prod(a.shape[1:]))) for a in lifted]
        attrs = {**attrs, "dim": 1}
        if "shape" in attrs:
            attrs["shape"] = (*attrs["shape"], 1)
        return reshape(bind(op_, lifted, attrs), shape)
    return bind(op_, lifted, {**attrs, "dim": attrs["dim"] + 1})


gather_op: Any = op(
    "gather", impl=_gather_impl, infer=lambda x, index, *, dim: _gather_infer(x, index, dim),
    vjp={"x": lambda ct, index, x_aval, *, dim: put_along_op(ct, index, dim=dim,
                                                             shape=x_aval.shape)},
    jvp={"x": lambda t, index, *, dim: gather_op(t, index, dim=dim)}, batch=_batch_along,
    why={"index": "the gradient goes back to the places that were read"})


def _gather_infer(x: Aval, index: Aval, dim: int) -> Aval:
    if x.ndim and index.ndim and index.size:
        fits("gather", x.shape, index.shape, dim)
    return Aval(index.shape, x.dtype)


def flat_places(index: Any, dim: int, shape: Shape) -> Any:
    """Positions in a flat array of `shape` of the elements that `index` names along `dim`."""
    if not shape:
        return np.zeros(index.shape, np.int64)
    steps = [math.prod(shape[d + 1:]) for d in range(len(shape))]
    out = index * steps[dim]
    for d, n in enumerate(index.shape):
        if d != dim:
            view = (1,) * d + (n,) + (1,) * (index.ndim - d - 1)
            out = out + (np.arange(n) * steps[d]).reshape(view)
    return out


MANY = 1024     # elements from which a kernel writes them


def write_along(out: Any, index: Any, values: Any, dim: int, add: bool) -> bool:
    """Whether a kernel has put, or added, `values` to `out` at `index`; the places are checked."""
    many = max(index.size, values.size) >= MANY
    kernel = generated("write_along") if many and out.flags.writeable else None
    return kernel is not None and kernel(out, index, values, dim, add=add) is not NotImplemented


def add_at(flat: Any, places: Any, values: Any) -> None:
    """flat[places] += values, also where places repeat."""
    np.add.at(flat, places.reshape(-1), values.reshape(-1))


def _put_impl(src: Any, index: Any, /, *, dim: int, shape: Shape) -> Any:
    w = wide(src)
    out = np.zeros(shape, w.dtype)
    if not index.size or add_picked(out, index, w, dim, along=True):
        return narrowed(out, src.dtype)
    if not shape or not index.ndim:
        out[...] = w.sum()
        return narrowed(out, src.dtype)
    rows = whole_rows(index, shape, dim) if w.shape == index.shape else None
    check_bounds("scatter", index if rows is None else rows, shape[dim], dim)
    if rows is not None and write_along(out, rows, w, dim, True):
        return narrowed(out, src.dtype)
    w = w[tuple(slice(n) for n in index.shape)]
    if write_along(out, index, w, dim, True):
        return narrowed(out, src.dtype)
    if index.shape[dim] == 1 or not index.size:
        target = out[tuple(slice(None) if d == dim else slice(n)
                           for d, n in enumerate(index.shape))]
        np.put_along_axis(target, index, w, dim)
    else:
        add_at(out.reshape(-1), flat_places(index, dim, shape), w)
    return narrowed(out, src.dtype)


put_along_op: Any = op(
    "put_along", impl=_put_impl, infer=lambda src, index, *, dim, shape: Aval(shape, src.dtype),
    vjp={"src": lambda ct, index, *, dim: gather_op(ct, index, dim=dim)},
    jvp={"src": lambda t, index, *, dim, shape: put_along_op(t, index, dim=dim, shape=shape)},
    batch=_batch_along, why={"index": "the gradient is read from the places written to"})


def _extreme_impl(f: Any) -> Any:
    def impl(x: Any, index: Any, src: Any, /, *, dim: int, include: bool) -> Any:
        out = np.array(x, order="C")
        check_bounds("scatter", index, out.shape[dim] if out.ndim else 1, dim)
        places = flat_places(index, dim, out.shape).reshape(-1)
        flat = out.reshape(-1)
        if not include:
            info = np.iinfo(out.dtype) if out.dtype.kind in "iu" else None
            low = (info.min, info.max) if info else (-np.inf, np.inf)
            flat[places] = low[0 if f is np.maximum else 1]
        with np.errstate(invalid="ignore"):             # (nan is an answer)
            f.at(flat, places, src.reshape(-1))
        return out
    return impl


def _winners(x: Any, index: Any, src: Any, out: Any, dim: int, include: bool) -> Any:
    """(share of the gradient of every old value, of every element of src): ties share evenly."""
    from adjoint.ops.pointwise import cast, div, eq, logical_and
    dtype = getattr(x.dtype, "dtype", x.dtype)
    hit_src = cast(eq(src, gather_op(out, index, dim=dim)), dtype=dtype)
    hit = eq(x, out)
    if not include:
        ones = np.ones(tuple(index.shape), dtype)
        arrived = put_along_op(ones, index, dim=dim, shape=tuple(x.shape))
        hit = logical_and(hit, eq(arrived, 0.0))
    hit = cast(hit, dtype=dtype)
    count = scatter_add_op(hit, index, hit_src, dim=dim)
    return div(hit, count), div(hit_src, gather_op(count, index, dim=dim))


def _declare_extreme(name: str, f: Any) -> Any:
    def pull_x(ct: Any, x: Any, index: Any, src: Any, out: Any, *, dim: int, include: bool) -> Any:
        from adjoint.ops.pointwise import mul
        return mul(ct, _winners(x, index, src, out, dim, include)[0])

    def pull_src(ct: Any, x: Any, index: Any, src: Any, out: Any, *, dim: int,
                 include: bool) -> Any:
        from adjoint.ops.pointwise import mul
        share = _winners(x, index, src, out, dim, include)[1]
        return mul(gather_op(ct, index, dim=dim), share)

    def push_src(t: Any, x: Any, index: Any, src: Any, out: Any, *, dim: int,
                 include: bool) -> Any:
        from adjoint.ops.pointwise import mul
        share = _winners(x, index, src, out, dim, include)[1]
        return put_along_op(mul(t, share), index, dim=dim, shape=tuple(x.shape))
    return op(
        name, impl=_extreme_impl(f), node="ScatterReduceBackward0",
        infer=lambda x, index, src, **_: Aval(x.shape, x.dtype),
        vjp={"x": pull_x, "src": pull_src}, jvp={"x": pull_x, "src": push_src},
        batch=_batch_along, cost=lambda x, index, src, **_: x.size + src.size,
        why={"x": "which old values won", "src": "which new values won", "out": "the extremes",
             "index": "where src went"})


scatter_amax_op: Any = _declare_extreme("scatter_amax", np.maximum)
scatter_amin_op: Any = _declare_extreme("scatter_amin", np.minimum)


# ------------------------------------------------------------------ scatter
def _scatter_check(name: str, x: Any, index: Any, src: Any, dim: int) -> None:
    if index.size or len(index.shape) == len(x.shape):
        fits(name, x.shape, index.shape, dim)
    if len(src.shape) and index.size and len(src.shape) != len(index.shape):
        raise ShapeError(f"{name}(): Index tensor must have the same number of dimensions as src "
                         f"tensor: the index is {list(index.shape)}, src {list(src.shape)}")
    if len(src.shape) and index.size and (len(src.shape) != len(index.shape) or any(
            m > n for n, m in zip(src.shape, index.shape, strict=True))):
        raise ShapeError(f"{name}(): Expected index {list(index.shape)} to be no larger than self "
                         f"{list(x.shape)} apart from dimension {dim} and to be no larger size than"
                         f" src {list(src.shape)}")


def _scattered(out: Any, index: Any, src: Any, dim: int, add: bool) -> bool:
    """Whether machine code has done all of it: small arrays whose shapes it has checked."""
    if not out.ndim or src.ndim and src.shape != index.shape:
        return False
    if add:
        return bool(src.ndim) and src.dtype is out.dtype and add_picked(
            out, index, src, dim, along=True)
    return put_picked(out, index, src.astype(out.dtype, copy=False), dim, along=True)


def _scatter_into(out: Any, index: Any, src: Any, dim: int, add: bool) -> Any:
    if _scattered(out, index, src, dim, add):
        return out
    _scatter_check("scatter", out, index, src, dim)
    if not index.size:
        return out
    if not out.ndim:
        out[...] = out + src if add else src
        return out
    rows = whole_rows(index, out.shape, dim) if add and src.shape == index.shape else None
    check_bounds("scatter", index if rows is None else rows, out.shape[dim], dim)
    if rows is not None and write_along(out, rows, src.astype(out.dtype, copy=False), dim, True):
        return out
    values = src[tuple(slice(n) for n in index.shape)] if src.ndim else np.broadcast_to(
        src, index.shape)
    given = src if not src.ndim and src.dtype == out.dtype else values.astype(out.dtype, copy=False)
    if write_along(out, index, given, dim, add):
        return out
    if add:
        flat = out.reshape(-1)
        if not np.shares_memory(flat, out):
            flat = np.ascontiguousarray(out).reshape(-1)
        add_at(flat, flat_places(index, dim, out.shape), values.astype(out.dtype))
        out[...] = flat.reshape(out.shape) if not np.shares_memory(flat, out) else out
    else:
        np.put_along_axis(_cut(out, index, dim), index, values, dim)
    return out


def _scatter_impl(add: bool) -> Any:
    def impl(x: Any, index: Any, src: Any, /, *, dim: int) -> Any:
        src = np.asarray(src)
        return narrowed(_scatter_into(np.array(wide(x), order="C"), index, src, dim, add), x.dtype)
    return impl


def _scatter_infer(x: Aval, index: Aval, src: Aval, *, dim: int) -> Aval:
    _scatter_check("scatter", x, index, src, dim)
    return Aval(x.shape, x.dtype)


def _scatter_inplace(add: bool) -> Any:
    def run(out: Any, x: Any, index: Any, src: Any, *, dim: int) -> None:
        src = np.asarray(src)
        if out.dtype.itemsize == 2 and add:
            out[...] = _scatter_impl(add)(x, index, src, dim=dim)
        else:
            _scatter_into(out, index, src, dim, add)
    return run


def _read_back(ct: Any, index: Any, src: Aval, dim: int) -> Any:
    """The cotangent of `src`: what was read from it gets ct at its place, the rest 0."""
    from adjoint.ops.shape import pad_zero_op
    got = gather_op(ct, index, dim=dim)
    if not src.ndim or tuple(got.shape) == src.shape:
        return got
    return pad_zero_op(got, pads=tuple((0, n - m) for n, m in zip(src.shape, got.shape,
                                                                 strict=True)))


def _batch_scatter(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
    x, index, src = args
    if not hasattr(src, "shape"):
        dtype = getattr(x.dtype, "dtype", x.dtype)
        src = np.asarray(src, dtype)
    if not batched[2] and not len(src.shape) and len(index.shape) > batched[1]:
        lifted = [*lift_all((x, index), batched[:2]), src]
        return bind(op_, lifted, {"dim": attrs["dim"] + 1})
    return _batch_along(op_, (x, index, src), batched, attrs)


def _zero(src: Aval) -> Any:
    return fill_like(src)


scatter_op: Any = op(
    "scatter", impl=_scatter_impl(False), infer=_scatter_infer, inplace=_scatter_inplace(False),
    apart={"index": True, "src": True},
    vjp={"x": lambda ct, index, *, dim: scatter_op(ct, index, 0.0, dim=dim),
         "src": lambda ct, index, src_aval, *, dim: _read_back(ct, index, src_aval, dim)},
    jvp={"x": lambda t, index, *, dim: scatter_op(t, index, 0.0, dim=dim),
         "src": lambda t, index, x_aval, *, dim: scatter_op(fill_like(x_aval), index, t, dim=dim)},
    batch=_batch_scatter, why={"index": "which places were overwritten"})
scatter_add_op: Any = op(
    "scatter_add", impl=_scatter_impl(True), infer=_scatter_infer, inplace=_scatter_inplace(True),
    apart={"index": True, "src": True},
    vjp={"x": lambda ct: ct,
         "src": lambda ct, index, src_aval, *, dim: _read_back(ct, index, src_aval, dim)},
    jvp={"x": lambda t: t,
         "src": lambda t, index, x_aval, *, dim: scatter_add_op(fill_like(x_aval), index, t,
                                                                dim=dim)},
    batch=_batch_scatter, why={"index": "where src was added"})
