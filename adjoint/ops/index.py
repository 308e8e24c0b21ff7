"""Records of indexing: views by slices, rows by integer arrays, assignment to both.

Several index arrays are first made into one array of positions in the flattened indexed axes, so
that a record has one index operand. `dims` are those axes; the axes of the index stand where NumPy
and PyTorch put them: in place where `dims` are neighbours, in front where they are not.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from adjoint.base.aval import Aval, inverse, order_by
from adjoint.base.dtypes import I64
from adjoint.base.errors import IndexOutOfRange
from adjoint.core.bind import bind
from adjoint.core.inplace import places as view_places
from adjoint.core.inplace import scatter_into, shown, turning
from adjoint.core.op import Op, op
from adjoint.ops.api_common import fill_like, narrowed, wide
from adjoint.ops.device import in_order, in_rows, relaid
from adjoint.ops.family import batch_broadcast, broadcast_shapes, generated, promote
from adjoint.ops.gather import MANY, add_picked, pick, put_picked, within, write_along
from adjoint.ops.pointwise import add, conj_op, lt, neg, where_op
from adjoint.ops.shape import expand_op, permute_op, reshape, unsqueeze_op

Shape = tuple[int, ...]


# ------------------------------------------------------------------ slices: views
def sliced_shape(shape: Shape, index: Any) -> Shape:
    """The shape of a basic index (slices, ints, None)."""
    out, axis = [], 0
    for item in index:
        n = shape[axis] if axis < len(shape) else -1
        if type(item) is slice and n >= 0:
            out.append(len(range(*item.indices(n))))
            axis += 1
        elif type(item) is int and -n <= item < n:
            axis += 1
        elif item is None:
            out.append(1)
        else:                                   # of another kind, or outside: NumPy says what
            return np.broadcast_to(np.zeros((), np.int8), shape)[index].shape
    return (*out, *shape[axis:])


def _deeper(index: Any) -> Any:
    return (slice(None), *index)


slice_op: Any = op(
    "slice", impl=lambda x, /, *, index: x[(*index, ...)] if Ellipsis not in index else x[index],
    infer=lambda x, *, index: Aval(sliced_shape(x.shape, index), x.dtype),
    vjp={"x": lambda ct, x_aval, *, index: unslice_op(ct, index=index, shape=x_aval.shape)},
    jvp={"x": None}, view=True, cost=lambda x, **_: 0,
    batch=lambda op_, args, b, attrs: op_.call(args[0], index=_deeper(attrs["index"])))


def _unslice_impl(ct: Any, /, *, index: Any, shape: Shape) -> Any:
    out = np.zeros(shape, ct.dtype)
    out[index] = ct
    return out


unslice_op: Any = op(
    "unslice", impl=_unslice_impl, infer=lambda ct, *, index, shape: Aval(shape, ct.dtype),
    vjp={"ct": lambda ct, *, index: slice_op(ct, index=index)}, jvp={"ct": None},
    node="SliceBackward0",
    batch=lambda op_, args, b, attrs: op_.call(args[0], index=_deeper(attrs["index"]), shape=(
        args[0].shape[0], *attrs["shape"])))


def _assign_impl(x: Any, v: Any, /, *, index: Any) -> Any:
    out = np.array(x)
    out[index] = v
    return out


def _assign_inplace(out: Any, x: Any, v: Any, *, index: Any) -> None:
    out[index] = v


def _batch_assign(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
    x, v = args
    if not batched[0]:
        x = expand_op(unsqueeze_op(x, dim=0), shape=(v.shape[0], *x.shape))
    if batched[1]:
        width = len(sliced_shape(tuple(x.shape)[1:], attrs["index"]))
        v = reshape(v, (v.shape[0], *(1,) * (width + 1 - len(v.shape)), *v.shape[1:]))
    return bind(op_, (x, v), {"index": _deeper(attrs["index"])})


slice_put_op: Any = op(
    "slice_put", impl=_assign_impl, infer=lambda x, v, *, index: Aval(x.shape, x.dtype),
    inplace=_assign_inplace, node="CopySlices",
    vjp={"x": lambda ct, *, index: slice_put_op(ct, 0.0, index=index),
         "v": lambda ct, *, index: slice_op(ct, index=index)},
    jvp={"x": lambda t, *, index: slice_put_op(t, 0.0, index=index),
         "v": lambda t, x_aval, *, index: slice_put_op(fill_like(x_aval), t, index=index)},
    batch=_batch_assign)


# ------------------------------------------------------------------ integer arrays
def neighbours(dims: Shape) -> bool:
    """True where the indexed axes lie side by side."""
    return dims[-1] - dims[0] == len(dims) - 1              # (they ascend)


def indexed_shape(shape: Shape, index: Shape, dims: Shape) -> Shape:
    """The shape of x[index]: the index's axes in place, or in front."""
    rest = tuple(n for d, n in enumerate(shape) if d not in dims)
    at = dims[0] if neighbours(dims) else 0
    return (*rest[:at], *index, *rest[at:])


def _selector(index: Any, shape: Shape, dims: Shape) -> tuple[Any, ...]:
    parts = (index,) if len(dims) == 1 else np.unravel_index(
        index, tuple(shape[d] for d in dims)) if index.size else (index,) * len(dims)
    picks: list[Any] = [slice(None)] * (dims[-1] + 1)
    for d, p in zip(dims, parts, strict=True):
        picks[d] = p
    return tuple(picks)


def check_range(index: Any, shape: Shape, dims: Shape, negative: bool = False) -> None:
    """Raise where a position lies outside of the indexed axes; `negative` ones count from the
    end."""
    n = math.prod([shape[d] for d in dims])
    if not index.size:
        return
    if not negative and index.dtype == I64:
        if within(index, n):
            return
        if index.view(np.uint64).max() < n:
            return                              # one pass: negative ones are large there
    elif index.min() >= (-n if negative else 0) and index.max() < n:
        return
    bad = index[(index < (-n if negative else 0)) | (index >= n)].flat[0]
    raise IndexOutOfRange(f"index {bad} is out of bounds for dimension {dims[0]} with size {n}")


def _index_impl(x: Any, index: Any, /, *, dims: Shape) -> Any:
    """The axes lie in memory as those of the two operands; negative positions count from the end
    where one axis is indexed."""
    out = _indexed(x, index, dims)
    if out.ndim < 2 or x.flags.c_contiguous and index.flags.c_contiguous and (
            out.flags.c_contiguous):
        return out
    still = indexed_shape(x.strides, (0,) * index.ndim, dims)
    moved = indexed_shape((0,) * x.ndim, index.strides, dims)
    axes = order_by(out.shape, (still, moved)) or tuple(range(out.ndim))
    return out if in_order(out, axes) else relaid(out, axes)


def _indexed(x: Any, index: Any, dims: Shape) -> Any:
    if len(dims) == 1:
        try:
            return x.take(index, dims[0])
        except IndexError:
            check_range(index, x.shape, dims, negative=True)
            raise
    if neighbours(dims) and x.flags.c_contiguous:
        x, dims = _joined(x, dims), dims[:1]
        picked = pick(x, index, dims[0], along=False)
        if picked is not None:
            return picked
        check_range(index, x.shape, dims)
        return x.take(index, dims[0])
    check_range(index, x.shape, dims)
    return x[_selector(index, x.shape, dims)]


def _joined(x: Any, dims: Shape) -> Any:
    """A contiguous array with the indexed axes, which lie side by side, as one (a view)."""
    a, b = dims[0], dims[-1] + 1
    return x.reshape(*x.shape[:a], math.prod(x.shape[a:b]), *x.shape[b:])


FEW = 32                # rows, up to which sorting them costs more than adding them one by one


def add_rows(out: Any, index: Any, rows: Any) -> None:
    """out[index[i]] += rows[i] for matrices: sorted by target, then summed run by run."""
    if not index.size or not rows.size:
        return
    if index.size <= FEW:
        np.add.at(out, index, rows)
        return
    order = np.argsort(index, kind="stable")
    found = index[order]
    starts = np.flatnonzero(np.concatenate(([True], found[1:] != found[:-1])))
    if len(starts) == len(index):
        out[index] += rows
    elif rows.shape[1] == 1 and rows.dtype.kind == "f":
        out[:, 0] += np.bincount(index, rows[:, 0], len(out)).astype(out.dtype)
    else:
        out[found[starts]] += np.add.reduceat(rows[order], starts, axis=0)


def from_front(index: Any, shape: Shape, dims: Shape) -> Any:
    """Positions counted from the front; raises where one lies outside."""
    n = math.prod([shape[d] for d in dims])
    if not index.size or index.dtype == I64 and index.view(np.uint64).max() < n:
        return index
    check_range(index, shape, dims, negative=True)
    return np.where(index < 0, index + n, index)


def _locate_impl(*indices: Any, sizes: Shape, dims: Shape) -> Any:
    """One array of positions in the flattened axes `dims`, which have these sizes."""
    k = generated("locate")
    found: Any = None if k is None else k(*[v for pair in zip(indices, sizes, strict=True)
                                            for v in pair])
    if found is not None:
        return found
    for a, n, d in zip(indices, sizes, dims, strict=True):
        a = from_front(a.astype(I64, copy=False), (*(1,) * d, n), (d,))
        found = a if found is None else found * n + a
    return np.asarray(found) if len(indices) > 1 else np.array(found)    # (never the operand)


def _locate_infer(*indices: Aval, sizes: Shape, dims: Shape) -> Aval:
    try:
        return Aval(np.broadcast_shapes(*[a.shape for a in indices]), I64)
    except ValueError:
        raise IndexOutOfRange("shape mismatch: indexing tensors could not be broadcast together "
                              f"with shapes {', '.join(str(list(a.shape)) for a in indices)}"
                              ) from None


locate_op: Any = op("locate", impl=_locate_impl, infer=_locate_infer, batch=batch_broadcast)


SOME = 4096             # elements from which looking for runs costs less than it can save


def _runs(index: Any, most: int = 16) -> list[tuple[int, int, int]] | None:
    """(first, end, step) of the runs in which a vector of positions steps evenly; None for more
    than `most`."""
    steps = np.diff(index)
    turns = np.flatnonzero(steps[1:] != steps[:-1]) + 1
    if len(turns) > 2 * most:
        return None
    found, at, n = [], 0, len(index)
    while at < n:
        step = int(steps[at]) if at < n - 1 else 0
        i = int(np.searchsorted(turns, at, "right"))
        end = at + 1 if not step else int(turns[i]) + 1 if i < len(turns) else n
        found.append((at, end, step or 1))
        at = end
    return found if len(found) <= most else None


def _add_runs(ct: Any, index: Any, runs: Any, shape: Shape, d: int) -> Any:
    """The transpose of reading axis d in runs: each is added where it was read."""
    out = np.zeros(shape, ct.dtype)
    before = (slice(None),) * d
    for first, end, step in runs:
        low, last = int(index[first]), int(index[end - 1])
        stop = last + (1 if step > 0 else -1)
        out[(*before, slice(low, stop if stop >= 0 else None, step))] += ct[
            (*before, slice(first, end))]
    return out


def _unindex_impl(ct: Any, index: Any, /, *, shape: Shape, dims: Shape) -> Any:
    if index.size <= FEW and neighbours(dims):
        w = wide(ct)
        out = np.zeros(shape, w.dtype)
        whole = out if len(dims) == 1 else _joined(out, dims)
        if add_picked(whole, index, w, dims[0], along=False, wraps=True):
            return narrowed(out, ct.dtype)
    index = from_front(index, shape, dims)
    if ct.size >= SOME and len(dims) == 1 and index.size:
        d, w = dims[0], wide(ct)
        runs = _runs(index) if index.ndim == 1 else None
        if runs is not None:
            return narrowed(_add_runs(w, index, runs, shape, d), ct.dtype)
        out = np.zeros(shape, w.dtype)
        if write_along(out, index.reshape(-1), w.reshape(*shape[:d], index.size, *shape[d + 1:]),
                       d, True):
            return narrowed(out, ct.dtype)
    if dims == (0,):
        w = wide(ct)
        out = np.zeros((shape[0], math.prod(shape[1:])), w.dtype)
        add_rows(out, index.reshape(-1), w.reshape(index.size, out.shape[1]))
        return narrowed(out.reshape(shape), ct.dtype)
    rest = tuple(d for d in range(len(shape)) if d not in dims)
    sizes = tuple(shape[d] for d in dims)
    at = dims[0] if neighbours(dims) else 0
    w = np.moveaxis(wide(ct), range(at, at + index.ndim), range(index.ndim))
    width = math.prod(shape[d] for d in rest)
    out = np.zeros((math.prod(sizes), width), w.dtype)
    add_rows(out, index.reshape(-1), w.reshape(index.size, width))
    order = (*dims, *rest)
    whole = out.reshape(tuple(shape[d] for d in order))
    return narrowed(np.ascontiguousarray(whole.transpose(inverse(order))), ct.dtype)


def _batch_index(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
    x, index = args
    dims = attrs["dims"]
    deeper = tuple(d + 1 for d in dims)
    if op_ is index_op.op:
        if batched[0] and not batched[1]:
            out = index_op(x, index, dims=deeper)
            return out if neighbours(dims) else _front(out, len(index.shape))
        if not batched[0]:
            out = index_op(x, index, dims=dims)
            return _front(out, dims[0] if neighbours(dims) else 0)
    n = (x if batched[0] else index).shape[0]
    if not batched[1]:                # unindex: one index for all examples
        k = len(index.shape)
        if not neighbours(dims):      # (n, idx, rest) -> (idx, n, rest)
            x = permute_op(x, dims=(*range(1, k + 1), 0, *range(k + 1, len(x.shape))))
        return unindex_op(x, index, shape=(n, *attrs["shape"]), dims=deeper)
    if not batched[0]:                # unindex: one cotangent for all examples
        x = expand_op(unsqueeze_op(x, dim=0), shape=(n, *x.shape))
    shape = attrs["shape"] if op_ is unindex_op.op else tuple(x.shape)[1:]
    size = math.prod(shape[d] for d in dims)
    index = where_op(lt(index, 0), add(index, size), index)
    first = reshape(np.arange(n) * size, (n, *(1,) * (len(index.shape) - 1)))
    joint, every = add(index, first), (0, *deeper)
    at = dims[0] if neighbours(dims) else 0
    k = len(index.shape) - 1
    if op_ is unindex_op.op:          # (n, pre, idx, post): the joint index wants its axes together
        if not neighbours(every):
            rank = len(x.shape)
            order = (0, *range(1 + at, 1 + at + k), *range(1, 1 + at), *range(1 + at + k, rank))
            x = permute_op(x, dims=order)
        return unindex_op(x, joint, shape=(n, *shape), dims=every)
    out = index_op(x, joint, dims=every)
    if at and not neighbours(every):  # (n, idx, pre, post) -> (n, pre, idx, post)
        rank = len(out.shape)
        order = (0, *range(1 + k, 1 + k + at), *range(1, 1 + k), *range(1 + k + at, rank))
        out = permute_op(out, dims=order)
    return out


def _front(x: Any, axis: int) -> Any:
    """`axis` moved to the front."""
    if axis == 0:
        return x
    rank = len(x.shape)
    return permute_op(x, dims=(axis, *(d for d in range(rank) if d != axis)))


def _strict_impl(x: Any, index: Any, /, *, dims: Shape) -> Any:
    if len(dims) == 1:
        picked = pick(x, index, dims[0], along=False)
        if picked is not None:
            return picked
    check_range(index, x.shape, dims)
    return _indexed(x, index, dims)


def _declare_index(name: str, node: str, impl: Any = _strict_impl) -> Any:
    return op(
        name, impl=impl, node=node,
        infer=lambda x, index, *, dims: Aval(indexed_shape(x.shape, index.shape, dims), x.dtype),
        vjp={"x": lambda ct, index, x_aval, *, dims: unindex_op(ct, index, shape=x_aval.shape,
                                                                dims=dims)},
        jvp={"x": lambda t, index, *, dims: index_op(t, index, dims=dims)},
        batch=lambda op_, args, b, attrs: _batch_index(index_op.op, args, b, attrs),
        cost=lambda x, index, **_: index.size,
        why={"index": "the gradient goes back to the rows that were read"})


index_op: Any = _declare_index("index", "IndexBackward0", _index_impl)
index_select_op: Any = _declare_index("index_select", "IndexSelectBackward0")
take_op: Any = _declare_index("take", "TakeBackward0")
unindex_op: Any = op(
    "unindex", impl=_unindex_impl, infer=lambda ct, index, *, shape, dims: Aval(shape, ct.dtype),
    vjp={"ct": lambda ct, index, *, dims: index_op(ct, index, dims=dims)},
    jvp={"ct": lambda t, index, *, shape, dims: unindex_op(t, index, shape=shape, dims=dims)},
    batch=_batch_index, cost=lambda ct, index, **_: ct.size,
    why={"index": "the gradient is read from the rows written to"})


# ------------------------------------------------------------------ assignment by integer arrays
def _put_into(out: Any, index: Any, v: Any, dims: Shape, accumulate: bool) -> None:
    if len(dims) > 1 and neighbours(dims) and out.flags.c_contiguous:
        out, dims = _joined(out, dims), dims[:1]
    if accumulate and len(dims) == 1 and type(v) is np.ndarray and add_picked(
            out, index, v, dims[0], along=False):
        return
    if not accumulate and len(dims) == 1 and _put_small(out, index, v, dims[0]):
        return
    check_range(index, out.shape, dims)
    where = _selector(index, out.shape, dims)
    if accumulate:
        values = np.asarray(v).astype(out.dtype, copy=False)
        plain = index.ndim == 1 == len(dims) and index.size and index.min() >= 0
        if not plain or not write_along(out, index, values, dims[0], True):
            np.add.at(out, where, values)
    else:
        out[where] = v


def _put_small(out: Any, index: Any, v: Any, dim: int) -> bool:
    """Whether machine code has written a number, or values of the right shape, at the index."""
    if type(v) is np.ndarray and v.ndim:
        if v.shape != (*out.shape[:dim], *index.shape, *out.shape[dim + 1:]):
            return False
    elif type(v) not in (float, int, bool) and type(v) is not np.ndarray:
        return False
    values = np.asarray(v, out.dtype) if type(v) is not np.ndarray else v
    return put_picked(out, index, values, dim, along=False)


def _index_put_impl(x: Any, index: Any, v: Any, /, *, dims: Shape, accumulate: bool) -> Any:
    out = np.array(x)
    _put_into(out, index, v, dims, accumulate)
    return out


def _index_put_inplace(out: Any, x: Any, index: Any, v: Any, *, dims: Shape,
                       accumulate: bool) -> None:
    _put_into(out, index, v, dims, accumulate)


def _cleared(ct: Any, index: Any, dims: Shape, accumulate: bool) -> Any:
    return ct if accumulate else index_put_op(ct, index, 0.0, dims=dims, accumulate=False)


def _batch_put(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
    """The batch axis stays in front of x; an index of every example's own takes it in."""
    x, index, v = args
    dims, accumulate = attrs["dims"], attrs["accumulate"]
    size = next(a.shape[0] for a, b in zip(args, batched, strict=True) if b)
    if not batched[0]:
        x = expand_op(unsqueeze_op(x, dim=0), shape=(size, *x.shape))
    k = len(index.shape) - batched[1]
    width = k + len(x.shape) - 1 - len(dims)
    if hasattr(v, "shape"):
        own = tuple(v.shape)[batched[2]:]
        v = reshape(v, (v.shape[0] if batched[2] else 1, *(1,) * (width - len(own)), *own))
    deeper, side = tuple(d + 1 for d in dims), neighbours(dims)
    if not batched[1]:
        if not side and hasattr(v, "shape"):        # (n, idx, rest) -> (idx, n, rest)
            v = permute_op(v, dims=(*range(1, k + 1), 0, *range(k + 1, width + 1)))
        return index_put_op(x, index, v, dims=deeper, accumulate=accumulate)
    span = math.prod(x.shape[d] for d in deeper)
    first = reshape(np.arange(size) * span, (size, *(1,) * k))
    at = dims[0] if side else 0
    if at and hasattr(v, "shape"):                  # (n, pre, idx, post) -> (n, idx, pre, post)
        v = permute_op(v, dims=(0, *range(1 + at, 1 + at + k), *range(1, 1 + at),
                                *range(1 + at + k, width + 1)))
    return index_put_op(x, add(index, first), v, dims=(0, *deeper), accumulate=accumulate)


_TURNS = {"conj": conj_op, "neg": neg}


def _batch_scatter_into(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
    """The places that the view shows, written to in every example's flat base."""
    base, src = args
    size = next(a.shape[0] for a, b in zip(args, batched, strict=True) if b)
    if not batched[0]:
        base = expand_op(unsqueeze_op(base, dim=0), shape=(size, *base.shape))
    shape = tuple(base.shape)
    count = math.prod(shape[1:])
    places = view_places(np.arange(count).reshape(shape[1:]), attrs["steps"]).reshape(-1)
    src = turning(src, attrs["steps"], _TURNS)
    rows = reshape(src, (src.shape[0] if batched[1] else 1, places.size))
    out = index_put_op(reshape(base, (size, count)), places, rows, dims=(1,), accumulate=False)
    return reshape(out, shape)


def _batch_shown(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
    """The places that the view shows, of every example's flat base."""
    size, *shape = args[0].shape
    count = math.prod(shape)
    places = view_places(np.arange(count).reshape(shape), attrs["steps"])
    shown = index_op(reshape(args[0], (size, count)), places, dims=(1,))
    return turning(shown, attrs["steps"], _TURNS)


scatter_into.op.batch, shown.op.batch = _batch_scatter_into, _batch_shown
index_put_op: Any = op(
    "index_put", impl=_index_put_impl, inplace=_index_put_inplace, apart={"index": True, "v": True},
    infer=lambda x, index, v, *, dims, accumulate: Aval(x.shape, x.dtype),
    vjp={"x": lambda ct, index, *, dims, accumulate: _cleared(ct, index, dims, accumulate),
         "v": lambda ct, index, *, dims: index_op(ct, index, dims=dims)},
    jvp={"x": lambda t, index, *, dims, accumulate: _cleared(t, index, dims, accumulate),
         "v": lambda t, index, x_aval, *, dims, accumulate: index_put_op(
             fill_like(x_aval), index, t, dims=dims, accumulate=accumulate)},
    batch=_batch_put, cost=lambda x, index, v, **_: index.size,
    why={"index": "which rows were overwritten"})


# ------------------------------------------------------------------ masks, triangles
def _masked_fill_inplace(out: Any, x: Any, mask: Any, v: Any) -> None:
    value = np.asarray(v).astype(out.dtype, copy=False)
    kernel = generated("masked_fill") if out.size >= SOME else None
    if kernel is None or kernel(mask, value, out, out) is NotImplemented:
        np.copyto(out, value, where=mask)


@in_rows
def _masked_fill_impl(x: Any, mask: Any, v: Any, /) -> Any:
    plain = type(v) is float and x.dtype.kind == "f"
    return np.where(mask, promote((x, v))[1] if plain else np.asarray(v).astype(x.dtype), x)


masked_fill_op: Any = op(
    "masked_fill", impl=_masked_fill_impl, inplace=_masked_fill_inplace, apart={"mask": False},
    infer=lambda x, mask, v: Aval(broadcast_shapes("masked_fill", x, mask), x.dtype),
    vjp={"x": lambda ct, mask: masked_fill_op(ct, mask, 0.0),
         "v": lambda ct, mask: where_op(mask, ct, 0.0)},
    jvp={"x": lambda t, mask: masked_fill_op(t, mask, 0.0),
         "v": lambda t, mask: where_op(mask, t, 0.0)},
    batch=batch_broadcast, cost=lambda x, *_: x.size, elementwise=True,
    chooses=("mask", {0: False, 2: True}),
    why={"mask": "no gradient flows where the value was replaced"})


@functools.lru_cache(maxsize=64)
def _below(rows: int, columns: int, diagonal: int) -> Any:
    """Which places of a small matrix lie on or below a diagonal; shared, not to be written to."""
    return np.tri(rows, columns, diagonal, np.bool_)


def _triangle_impl(x: Any, diagonal: int, upper: bool) -> Any:
    if x.ndim < 2:
        return (np.triu if upper else np.tril)(x, diagonal)
    rows, columns = x.shape[-2:]
    if rows * columns <= MANY:
        mask, zero = _below(rows, columns, diagonal - upper), np.zeros(1, x.dtype)
        some = np.where(mask, zero, x) if upper else np.where(mask, x, zero)
        return some if some.flags.c_contiguous else np.ascontiguousarray(some)
    made = np.zeros(x.shape, x.dtype)   # 32 rows at a time: those that are kept or zero on their
    for top in range(0, rows, 32):      # whole length move as blocks, the rest under a mask
        end = min(rows, top + 32)
        low, high = sorted(max(0, min(columns, row + diagonal + (not upper)))
                            for row in (top, end - 1))
        kept = slice(high, None) if upper else slice(0, low)
        made[..., top:end, kept] = x[..., top:end, kept]
        if low < high:
            part = (..., slice(top, end), slice(low, high))
            np.copyto(made[part], x[part], where=_below(
                end - top, high - low, top + diagonal - low - upper) ^ upper)
    return made


def _triangle(name: str, upper: bool) -> Any:
    def rule(ct: Any, *, diagonal: int) -> Any:
        return made(ct, diagonal=diagonal)
    made = op(name, impl=lambda x, /, *, diagonal: _triangle_impl(x, diagonal, upper),
              infer=lambda x, *, diagonal: Aval(x.shape, x.dtype), vjp={"x": rule},
              jvp={"x": None}, batch=lambda op_, args, b, attrs: op_.call(args[0], **attrs),
              cost=lambda x, **_: x.size)
    return made


tril_op, triu_op = _triangle("tril", False), _triangle("triu", True)
