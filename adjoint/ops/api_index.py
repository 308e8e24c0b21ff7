"""Public indexing: `x[...]`, `x[...] = v`, gather, scatter and their kin."""
from __future__ import annotations

import math
from operator import index as as_index
from typing import Any

import numpy as np

from adjoint.base.aval import MetaArray
from adjoint.base.dtypes import F32, F64, I64, cpp_type, finfo, held, is_of, of_numpy
from adjoint.base.errors import ArgumentError, DTypeError, IndexOutOfRange, ShapeError
from adjoint.core import inplace as writes
from adjoint.core.inplace import inplace
from adjoint.core.modes import GRAD, state, warn
from adjoint.core.op import aval_of_value
from adjoint.core.tensor import Tensor, wrap
from adjoint.ops.api_common import (
    apart,
    box,
    dtype_of,
    exactly,
    need,
    put_dtype,
    raw,
    value,
)
from adjoint.ops.family import NUMBER, broadcast_shapes, generated
from adjoint.ops.index import (
    index_op,
    index_put_op,
    indexed_shape,
    locate_op,
    masked_fill_op,
    slice_op,
    slice_put_op,
    sliced_shape,
)
from adjoint.ops.public import known_as, other_names, planned, public, typed
from adjoint.ops.shape import (
    expand_op,
    narrow_op,
    refuse_expansion,
    reshape,
    select_op,
    unsqueeze_op,
)

FULL = slice(None)
NUMBERS = frozenset({int, bool, np.int64, np.bool_})


class Parsed:
    """An index, taken apart: a basic part (a view), then index arrays on axes of that view."""

    __slots__ = ("basic", "dims", "arrays")

    def __init__(self, basic: tuple[Any, ...], dims: tuple[int, ...], arrays: list[Any]) -> None:
        self.basic, self.dims, self.arrays = basic, dims, arrays


def _is_array(item: Any) -> bool:
    return isinstance(item, (Tensor, np.ndarray, MetaArray))


def _as_array(item: Any) -> Any:
    if _is_array(item):
        return item
    try:
        found = np.array([raw(i) for i in item] if isinstance(item, (list, tuple)) else item)
    except ValueError:
        raise IndexOutOfRange(f"an index list must be rectangular, got {item!r}") from None
    return found.astype(I64) if not found.size else found


def _kind(item: Any) -> str:
    """The category of an index; bytes are masks, as in PyTorch."""
    dtype = dtype_of(item)
    return "b" if dtype == np.uint8 else str(dtype.kind)


def _is_places(item: Any) -> bool:
    """Whether it is what most index arrays are: a plain tensor of int64 positions."""
    return type(item) is Tensor and item.array.dtype is I64 and item.array.ndim > 0


def _width(item: Any) -> int:
    """How many axes of the operand one item of an index stands for."""
    if isinstance(item, (bool, np.bool_)):
        return 0
    if _is_array(item) and _kind(item) == "b":
        return len(item.shape)
    return 1


def _as_mask(item: Any) -> Any:
    """Bytes are truth values, as in PyTorch (which warns); one truth value is a bool."""
    if dtype_of(item) == np.uint8:
        warn("indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool "
             "instead.")
        item = value(item, "indexing with a boolean mask").astype(np.bool_)
    if item.shape or _kind(item) != "b":
        return item
    return bool(value(item, "indexing with a boolean mask"))


def _meant_as_tuple(index: Any) -> bool:
    """Whether a list is one index per axis: PyTorch's rule, which was NumPy's until 1.23. It is
    where an item could not be a position itself and the list is short."""
    if type(index) is not list or len(index) >= 32 or NUMBERS.issuperset(map(type, index)):
        return False
    if not any(i is None or i is Ellipsis or isinstance(i, (slice, list, tuple, range))
               or _is_array(i) for i in index):
        return False
    warn("Using a non-tuple sequence for multidimensional indexing is deprecated and will be "
         "changed in pytorch 2.9; use x[tuple(seq)] for one index per axis, or x[tensor(seq)] for "
         "an array of positions.")
    return True


def parse(shape: tuple[int, ...], index: Any) -> Parsed:
    """Take an index apart; raises IndexOutOfRange in PyTorch's words."""
    plain = _plain(shape, index if type(index) is tuple else (index,))
    if plain is not None:
        return Parsed(plain, (), [])
    items = list(index) if isinstance(index, tuple) or _meant_as_tuple(index) else [index]
    used, gap = 0, -1
    for k, item in enumerate(items):
        kind = type(item)
        if kind is slice or kind is int or _is_places(item):
            used += 1
        elif item is Ellipsis:
            if gap >= 0 and all(rest is Ellipsis for rest in items[k:]):
                del items[k:]                            # PyTorch passes over those at the end
                break
            if gap >= 0:
                raise IndexOutOfRange("an index can have only one ellipsis ('...')")
            gap = k
        elif item is not None:
            if isinstance(item, (list, tuple, range)):
                items[k] = item = _as_array(item)
            if _is_array(item) and dtype_of(item).char in "?B":
                items[k] = item = _as_mask(item)
            used += _width(item)
    if used > len(shape) == 0 and type(items[0]) is int:
        raise IndexOutOfRange("invalid index of a 0-dim tensor. Use `tensor.item()` in Python or "
                              "`tensor.item<T>()` in C++ to convert a 0-dim tensor to a number")
    if used > len(shape):
        raise IndexOutOfRange(f"too many indices for tensor of dimension {len(shape)}: {used} axes "
                              f"are indexed in a tensor of shape {list(shape)}")
    at = gap if gap >= 0 else len(items)
    items[at:at + 1] = [FULL] * (len(shape) - used)
    return _sort_items(shape, items)


def _plain(shape: tuple[int, ...], items: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The basic part of an index of ints and slices, which is all of it; None of another one."""
    spare = len(shape) - len(items)
    if spare < 0:
        return None
    basic: list[Any] = []
    for item, n in zip(items, shape, strict=False):
        if type(item) is int and -n <= item < n:
            basic.append(item % n)
        elif type(item) is slice:
            basic.append(_slice(item, n))
        else:
            return None
    return (*basic, *(FULL,) * spare)


def _sort_items(shape: tuple[int, ...], items: list[Any]) -> Parsed:
    basic: list[Any] = []
    dims: list[int] = []
    arrays: list[Any] = []
    axis = place = 0                      # in the operand, in the view
    for item in items:
        if type(item) is slice:
            basic.append(_slice(item, shape[axis]))
            axis, place = axis + 1, place + 1
        elif _is_places(item):
            basic.append(FULL)
            dims.append(place)
            arrays.append(item)
            axis, place = axis + 1, place + 1
        elif item is None:
            basic.append(None)
            place += 1
        elif isinstance(item, (bool, np.bool_)):
            basic.append(None)
            dims.append(place)
            arrays.append(np.zeros(1 if item else 0, np.int64))
            place += 1
        elif _is_array(item) and not _is_number(item):
            many = _positions(item, shape, axis, len(arrays))
            for one in many:
                basic.append(FULL)
                dims.append(place)
                arrays.append(one)
                axis, place = axis + 1, place + 1
        else:
            basic.append(_integer(item, shape[axis], axis))
            axis += 1
    return Parsed(tuple(basic), tuple(dims), arrays)


def _is_number(item: Any) -> bool:
    return (not len(item.shape) and _kind(item) in "iu" and isinstance(raw(item), np.ndarray)
            and not getattr(item, "level", 0))


def _integer(item: Any, size: int, axis: int) -> int:
    item = raw(item)
    if isinstance(item, (float, str)) or not hasattr(item, "__index__"):
        raise IndexOutOfRange("only integers, slices (`:`), ellipsis (`...`), None and long or byte"
                              f" Variables are valid indices (got {type(item).__name__})")
    i = item.__index__()
    if not -size <= i < size:
        raise IndexOutOfRange(f"index {i} is out of bounds for dimension {axis} with size {size}")
    return int(i) % size


def _slice(item: slice, size: int) -> slice:
    first, last, step = item.start, item.stop, item.step
    if first is None and last is None and step is None:
        return FULL
    if any([type(p) is not int for p in (first, last, step) if p is not None]):
        try:
            item = slice(*[None if p is None else as_index(raw(p)) for p in (first, last, step)])
        except TypeError:
            raise DTypeError("slice indices must be integers or None or have an __index__ method: "
                             f"{item}") from None
    if item.step is not None and item.step <= 0:
        raise ArgumentError("step must be greater than zero: use flip() to reverse an axis"
                            if item.step else "slice step cannot be zero")
    start, stop, step = item.indices(size)
    return slice(start, max(start, stop), step)


def _positions(item: Any, shape: tuple[int, ...], axis: int, place: int) -> list[Any]:
    kind = _kind(item)
    if kind == "b":
        have = tuple(item.shape)
        for k, n in enumerate(have):
            if n != shape[axis + k]:
                raise IndexOutOfRange(
                    f"The shape of the mask {list(have)} at index {k} does not match the shape of "
                    f"the indexed tensor {list(shape)} at index {axis + k}")
        return list(np.nonzero(value(item, "indexing with a boolean mask")))
    if kind not in "iu" or isinstance(item, Tensor) and dtype_of(item).itemsize < 4:
        raise IndexOutOfRange("tensors used as indices must be long, int, byte or bool tensors, got"
                              f" {of_numpy(dtype_of(item)).name}")
    return [item]


def positions(shape: tuple[int, ...], parsed: Parsed) -> Any:
    """One array of positions in the flattened indexed axes (of the view of shape `shape`)."""
    sizes = tuple([shape[d] for d in parsed.dims])
    return locate_op(*parsed.arrays, sizes=sizes, dims=parsed.dims)


def _view(x: Any, basic: tuple[Any, ...]) -> Any:
    """The basic part of an index, as the op whose node PyTorch would print."""
    special = [(k, i) for k, i in enumerate(basic) if i is not FULL]
    if not special:
        return x
    if len(special) == 1:
        k, item = special[0]
        if item is None:
            return unsqueeze_op(x, dim=k)
        if isinstance(item, int):
            return select_op(x, dim=k, index=item)
        if item.step == 1:
            return narrow_op(x, dim=k, start=item.start, length=item.stop - item.start)
    return slice_op(x, index=basic)


@public("__getitem__", function=False)
@planned
def getitem(input: Any, index: Any) -> Any:
    """``x[index]``: ints, slices, None and ... give views, arrays and masks give copies.

    >>> import adjoint as ad
    >>> ad.arange(6).reshape(2, 3)[:, [0, 2]]
    tensor([[0, 2],
            [3, 5]])
    """
    shape = tuple(input.shape)
    if type(index) is int and shape:
        return select_op(input, dim=0, index=_integer(index, shape[0], 0))
    if shape and type(index) is Tensor and index.array.shape == shape and \
            index.array.dtype == np.bool_:                             # one mask for all axes
        places = value(index, "indexing with a boolean mask").reshape(-1).nonzero()[0]
        return index_op(input, places, dims=tuple(range(len(shape))))
    parsed = parse(shape, index)
    y = _view(input, parsed.basic)
    if parsed.dims:
        arrays = parsed.arrays
        if len(arrays) == 1 and not getattr(arrays[0], "level", 0) and raw(arrays[0]).dtype == I64:
            return index_op(y, arrays[0], dims=parsed.dims)     # the record counts from the end
        return index_op(y, positions(tuple(y.shape), parsed), dims=parsed.dims)
    if y is input:
        from adjoint.ops.shape import identity_op
        return identity_op(input)
    return y


def _assigned(x: Any, index: Any, v: Any) -> bool:
    """``x[index] = v`` where that is what most are: ints and slices, one mask or one vector of
    positions, of plain floats of which no gradient is wanted. False, with nothing done, for
    everything else."""
    array = getattr(x, "array", None)
    if type(array) is not np.ndarray or not (array.dtype is F32 or array.dtype is F64):
        return False
    if type(v) is Tensor:
        if type(v.array) is not np.ndarray or v.array.dtype is not array.dtype or (
                v._rg and state() & GRAD) or v._cell is not None and v._cell is x._cell:
            return False
        v = v.array
    elif not writes.storable(v):
        return False
    if type(index) is Tensor and index.array.dtype is I64:
        k = generated("locate") if array.ndim else None
        at = None if k is None else k(index.array, array.shape[0])
        if at is None or type(v) is np.ndarray and v.shape != at.shape + array.shape[1:] \
                or not at.ndim or writes.touch(x, "index_put_") is None:
            return False
        array[at] = v
        return True
    if type(index) is Tensor:
        mask = index.array
        if mask.dtype != np.bool_ or mask.shape != array.shape or type(v) is np.ndarray \
                or type(mask) is not np.ndarray or writes.touch(x, "masked_fill_") is None:
            return False
        np.putmask(array, mask, v)
        return True
    basic = _plain(array.shape, index if type(index) is tuple else (index,))
    if basic is None:
        return False
    part = array[(*basic, ...)]
    if type(v) is np.ndarray and v.shape != part.shape or writes.touch(x, "copy_") is None:
        return False
    part[...] = v
    return True


def _assignable(v: Any, dtype: np.dtype[Any]) -> Any:
    """A number as a write by index puts it: too large for a float of 16 bits it is infinite."""
    if is_of(dtype, "h") and not isinstance(v, complex):
        most = float(finfo(dtype).max)
        return v if not abs(v) > most else math.copysign(math.inf, v)
    return held(v, dtype)


@public("__setitem__", function=False, quick=True)
def setitem(input: Any, index: Any, v: Any) -> None:
    """``x[index] = v``, in place; `v` broadcasts and is cast to x's dtype."""
    if _assigned(input, index, v) or index is False:
        return
    index = None if index is True else index
    if isinstance(v, NUMBER):
        v = _assignable(v, dtype_of(input))
    elif not hasattr(v, "shape"):
        raise DTypeError(f"can't assign a {type(v).__name__} to a {input.type()}; tensor(...) "
                         "makes a tensor of numbers")
    if _is_array(index) and dtype_of(index) == np.bool_ and tuple(index.shape) == tuple(
            input.shape) and not len(getattr(v, "shape", ())):
        inplace(masked_fill_op.op, input, (index, v), name="masked_fill_")
        return
    parsed = parse(tuple(input.shape), index)
    if not parsed.dims:
        if not isinstance(v, NUMBER):
            v = _fitted(v, sliced_shape(tuple(input.shape), parsed.basic), refuse_expansion)
            if len(v.shape) and getattr(v, "_cell", None) is not None \
                    and v._cell is input._cell and type(input.array) is np.ndarray:
                writes.refuse_overlap(wrap(input.array[(*parsed.basic, ...)]), v)
        inplace(slice_put_op.op, input, (v,), {"index": parsed.basic}, name="copy_")
        return
    mask = _is_array(index) and dtype_of(index) == np.bool_
    if not mask or math.prod(getattr(v, "shape", ())) != 1:     # (it takes a number of any dtype)
        put_dtype(input, v)
    y = _view(input, parsed.basic)
    lin = positions(tuple(y.shape), parsed)
    target = indexed_shape(tuple(y.shape), tuple(lin.shape), parsed.dims)
    inplace(index_put_op.op, y, (lin, _fitted(v, target)),
            {"dims": parsed.dims, "accumulate": False}, name="index_put_")


def _fitted(v: Any, target: tuple[int, ...], refuse: Any = None) -> Any:
    """`v` without leading axes of size 1 that the target has not; checked to broadcast."""
    if not hasattr(v, "shape"):
        return v
    have = tuple(v.shape)
    if not have or have == target:
        return v
    while len(have) > len(target) and have[0] == 1:
        have = have[1:]
    if refuse is not None:
        refuse(have, target)
    lead = len(target) - len(have)
    if lead < 0 or any([n not in (1, m) for n, m in zip(have, target[lead:], strict=True)]):
        raise ShapeError(f"shape mismatch: value tensor of shape {list(v.shape)} cannot be "
                         f"broadcast to indexing result of shape {list(target)}")
    return v if have == tuple(v.shape) else reshape(v, have)


@public(method=True)
@typed
def index_put(input: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    """A copy of `input` with ``[indices] = values`` (or += with `accumulate`)."""
    y, lin, dims, v = _put_parts(input, indices, values)
    return index_put_op(y, lin, v, dims=dims, accumulate=accumulate)


@public("index_put_", function=False)
@typed
def index_put_(self: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    """``self[indices] = values`` (or += with `accumulate`)."""
    y, lin, dims, v = _put_parts(self, indices, values)
    inplace(index_put_op.op, y, (lin, v), {"dims": dims, "accumulate": accumulate},
            name="index_put_")
    return self


def _put_parts(x: Any, indices: Any, values: Any) -> tuple[Any, Any, Any, Any]:
    if isinstance(indices, Tensor):
        raise DTypeError("index_put_(): argument 'indices' (position 1) must be tuple of Tensors, "
                         "not Tensor")
    for place, i in enumerate(indices):
        if i is not None and not hasattr(i, "shape"):
            raise DTypeError(f"expected Tensor as element {place} in argument 0, but got "
                             f"{type(i).__name__}")
    if all([i is not None and not len(i.shape) and dtype_of(i).kind in "iu" for i in indices]):
        indices = [reshape(i, (1,)) for i in indices]    # (one place, as one of many)
    parsed = parse(tuple(x.shape), tuple(FULL if i is None else i for i in indices))
    lin = positions(tuple(x.shape), parsed)
    put_dtype(x, values)
    target = indexed_shape(tuple(x.shape), tuple(lin.shape), parsed.dims)
    return x, lin, parsed.dims, _fitted(values, target)


# ------------------------------------------------------------------ masks
def _mask_of(name: str, mask: Any) -> Any:
    need(name, mask, argument="mask")
    if dtype_of(mask).kind != "b":
        raise DTypeError(f"{name} only supports boolean masks, but got mask with dtype "
                         f"{cpp_type(dtype_of(mask))}" if "fill" in name else
                         f"{name}: expected BoolTensor for mask, got {of_numpy(dtype_of(mask))}")
    return mask


def fill_value(name: str, v: Any) -> Any:
    if hasattr(v, "shape") and len(v.shape):
        raise ShapeError(f"{name} only supports a 0-dimensional value tensor, but got tensor with "
                         f"{len(v.shape)} dimension(s).")
    return v


@public()
@planned
def masked_fill(input: Any, mask: Any, value: Any) -> Any:
    """`input` with `value` where the mask is True.

    >>> import adjoint as ad
    >>> ad.zeros(2).masked_fill(ad.tensor([True, False]), 3.0)
    tensor([3., 0.])
    """
    need("masked_fill", input)
    value = filling(value, dtype_of(input))
    return masked_fill_op(input, _mask_of("masked_fill_", mask), value)


def filling(value: Any, dtype: np.dtype[Any], name: str = "masked_fill_") -> Any:
    """What fills places of a tensor of that dtype: a number that it holds, or a 0-d tensor."""
    if dtype.kind not in "bc" and (isinstance(value, complex) or isinstance(
            value, Tensor) and dtype_of(value).kind == "c"):
        raise DTypeError(f"value cannot be converted to type {cpp_type(dtype)} without overflow")
    return held(fill_value(name, value), dtype)


@public("masked_fill_", function=False, quick=True)
def masked_fill_(self: Any, mask: Any, value: Any) -> Any:
    """In-place `masked_fill`."""
    if type(mask) is Tensor and mask.array.dtype == np.bool_ and _assigned(self, mask, value):
        return self
    value = filling(value, dtype_of(self))
    return inplace(masked_fill_op.op, self, (_mask_of("masked_fill_", mask), value),
                   name="masked_fill_")


_select_out = exactly("masked_select(): self and result must have the same scalar type")


@public()
@known_as("MaskedSelectBackward0")
def masked_select(input: Any, mask: Any, *, out: Any = None) -> Any:
    """The elements where the mask is True, as a vector (the operands broadcast)."""
    need("masked_select", input)
    mask = _mask_of("masked_select", mask)
    if out is not None:
        apart(out, input, mask)
    shape = broadcast_shapes("masked_select", *(aval_of_value(t) for t in (input, mask)))
    chosen = np.broadcast_to(value(mask, "masked_select"), shape)
    x = input if tuple(input.shape) == shape else expand_op(input, shape=shape)
    flat = reshape(x, (math.prod(shape),))
    return _select_out(out, index_op(flat, chosen.ravel().nonzero()[0], dims=(0,)))


_places_out = exactly("nonzero: Expected out tensor to have scalar type {want} but got scalar type "
                      "{have}")


@public(method=True)
@typed
def nonzero(input: Any, *, out: Any = None, as_tuple: bool = False) -> Any:
    """Indices of the elements that are not zero: (count, ndim) int64, or a tuple per axis.

    >>> import adjoint as ad
    >>> ad.nonzero(ad.tensor([0, 3, 4]))
    tensor([[1],
            [2]])
    """
    found = value(input, "nonzero")
    if as_tuple:
        return tuple(box(input, np.ascontiguousarray(a)) for a in np.nonzero(np.atleast_1d(found)))
    if found.ndim:
        where = np.stack(np.nonzero(found)).T.astype(I64, copy=False)
    else:
        where = np.zeros((int(found != 0), 0), I64)
    return _places_out(out, box(input, where))


@public()
def argwhere(input: Any) -> Any:
    """`nonzero` as (count, ndim)."""
    return nonzero(input)


@other_names
@typed
def one_hot(tensor: Any, num_classes: int = -1) -> Any:
    """int64 (...,) -> int64 (..., num_classes) with a 1 at each class.

    >>> import adjoint as ad
    >>> ad.nn.functional.one_hot(ad.tensor([0, 2]), 3)
    tensor([[1, 0, 0],
            [0, 0, 1]])
    """
    need("one_hot", tensor, argument="tensor")
    if dtype_of(tensor) != I64:
        raise DTypeError("one_hot is only applicable to index tensor of type LongTensor.")
    if num_classes <= 0 and not math.prod(tensor.shape):
        raise ArgumentError("Can not infer total number of classes from empty tensor.")
    if num_classes == -1:
        found = value(tensor, "one_hot without num_classes")
        num_classes = int(found.max()) + 1
    array = raw(tensor)
    if isinstance(array, MetaArray):
        return wrap(MetaArray((*array.shape, num_classes), I64))
    if array.size and array.min() < 0:
        raise ArgumentError("Class values must be non-negative.")
    if array.size and array.max() >= num_classes:
        raise ArgumentError("Class values must be smaller than num_classes.")
    if type(tensor) is Tensor and array.size:
        hot = np.zeros((array.size, num_classes), np.int64)
        hot[np.arange(array.size), array.reshape(-1)] = 1
        return wrap(hot.reshape(*array.shape, num_classes))
    from adjoint.ops.api_shape import c_clone
    from adjoint.ops.pointwise import cast, eq
    same = eq(unsqueeze_op(tensor, dim=len(tensor.shape)),
              np.arange(num_classes))
    return cast(c_clone(same), dtype=I64)


@public(method=False)
def unravel_index(indices: Any, shape: Any) -> Any:
    """Coordinates of positions in a flat tensor of that shape."""
    size = (shape,) if isinstance(shape, int) else tuple(shape)
    if dtype_of(indices).kind not in "iu":
        raise DTypeError("expected 'indices' to be integer dtype, but got "
                         f"{of_numpy(dtype_of(indices))}")
    found = np.unravel_index(np.asarray(raw(indices)), size)
    return tuple(box(indices, np.asarray(f, np.int64)) for f in found)


__all__ = ["getitem", "setitem"]
