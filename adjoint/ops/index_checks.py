"""What PyTorch refuses of the indices and sources of gathers, scatters and `index_*` functions."""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.base.dtypes import I64, scalar_type
from adjoint.base.errors import DTypeError, IndexOutOfRange, ShapeError
from adjoint.ops.api_common import box, cast_to, dtype_of, need, numel, raw
from adjoint.ops.gather import within

_LONG = "Expected a long tensor for index,"
_SAID = {"index_select": "Expected dtype int32 or int64 for index", "take": _LONG, "put": _LONG,
         "index_fill": "Expected dtype int64 for index.", "index_copy": _LONG,
         "take_along_dim": "dtype of indices should be Long"}     # PyTorch's words of each
_TOLD_AS = {"take_along_dim": "torch.take_along_dim", "scatter_add": "scatter",
            "scatter_reduce": "scatter", "index_fill": "index_fill_", "index_copy": "index_copy_",
            "index_add": "index_add_", "index_reduce": "index_reduce_", "put": "put_"}


class OddIndex(DTypeError, IndexOutOfRange):
    """An index of a dtype that PyTorch refuses by an IndexError."""


def index_of(name: str, index: Any) -> Any:
    """`index`, if it is a tensor of whole numbers of a kind that the function takes."""
    need(name, index, argument="index")
    plain = name.rstrip("_")
    long = plain in ("take", "put", "take_along_dim", "index_fill", "index_copy")
    if dtype_of(index).kind not in "iu" or long and dtype_of(index) != I64:
        said = _SAID.get(plain, "Expected dtype int32/int64 for index")
        raise (OddIndex if "fill" in name else DTypeError)(
            f"{_TOLD_AS.get(plain, name)}(): {said} but got {scalar_type(dtype_of(index))}: "
            "indices are whole numbers")
    return index


def wrapped_index(name: str, index: Any, size: int, dim: int = 0, *, negative: bool = False) -> Any:
    """A 1-d index with its bounds checked."""
    index = index_of(name, index)
    if len(index.shape) > 1:
        n, said = len(index.shape), "Index is supposed to be a vector"
        if "fill" in name:
            raise ShapeError(f"Index has to be a vector/scalar: {name}() got {n}-d")
        said = f"Index should have dimension 1 or 0 (got {n})" if "copy" in name else said
        told = _TOLD_AS.get(name, name)
        raise IndexOutOfRange(f"{told}(): {said}, " + (
            f"but got dim: {n} with type: {scalar_type(dtype_of(index))}" if told.endswith("_")
            else f"got {n}-d"))
    flat = raw(index)
    if isinstance(flat, np.ndarray) and flat.size and not getattr(index, "level", 0):
        if within(flat, size):
            return index
        if flat.dtype is I64 and flat.view(np.uint64).max() < size:
            return index                        # one pass: negative ones are large there
        low, high = int(flat.min()), int(flat.max())
        if low < (-size if negative else 0) or high >= size:
            bad = high if high >= size else low
            raise IndexOutOfRange(f"{_TOLD_AS.get(name, name)}(): index {bad} is out of bounds for "
                                  f"dimension {dim} with size {size}: index out of range in self")
        if low < 0:
            index = box(index, np.where(flat < 0, flat + size, flat))
    return cast_to(index, np.int64) if dtype_of(index) != I64 else index


def put_fits(x: Any, source: Any, index: Any) -> None:
    """Refuse a source that does not go with the operand or the index of `put_`."""
    if dtype_of(source) != dtype_of(x):
        raise DTypeError("put_(): self and source expected to have the same dtype, but got "
                         f"self.dtype = {scalar_type(dtype_of(x))} and source.dtype = "
                         f"{scalar_type(dtype_of(source))}")
    if not numel(x) and numel(index):
        raise IndexOutOfRange("put_(): Tried to put elements into an empty tensor")
    if numel(source) != numel(index):
        raise IndexOutOfRange("put_(): Expected source and index to have the same number of "
                              f"elements, but got source.numel() = {numel(source)}, index.numel() "
                              f"= {numel(index)}")


class OddSource(ShapeError, IndexOutOfRange):
    """Slices that PyTorch refuses by an IndexError."""


def _copy_fits(shape: Any, d: int, count: int, source: Any) -> None:
    """`source_fits` in PyTorch's words for `index_copy_`."""
    if len(source) != len(shape):
        raise OddSource("index_copy_(): When source and destination are not scalars, their "
                        f"dimensionality must match. Source dimensionality ({len(source)}), "
                        f"destination dimensionality ({len(shape)})")
    rest = [[*s[:d], *s[d + 1:]] for s in (shape, source)]
    if rest[0] != rest[1]:
        raise ShapeError("index_copy_(): Source/destination tensor must have same slice shapes. "
                         f"Destination slice shape: {rest[0]} at dimension {d} and source slice "
                         f"shape: {rest[1]} at dimension {d}.")
    raise OddSource(f"index_copy_(): Number of indices ({count}) should be equal to "
                    f"source.size(dim) ({source[d]})")


def source_fits(name: str, shape: Any, d: int, count: int, source: Any) -> None:
    """Refuse slices that are not as many as indices, or not of the operand's shape."""
    expected = (*shape[:d], count, *shape[d + 1:])
    if source == expected or not len(shape) and source in ((), (count,)):
        return
    if "copy" in name:
        _copy_fits(shape, d, count, source)
    if len(source) == len(expected) and source[d] != count:
        raise ShapeError(f"{name.rstrip('_')}_(): Number of indices ({count}) should be equal to "
                         f"source.size(dim): ({source[d]}), for dim: {d}")
    raise ShapeError(f"{name}(): source tensor shape must match self tensor shape, excluding "
                     f"the specified dimension. Got self.shape = {list(shape)} source.shape = "
                     f"{list(source)}, expected {list(expected)}")
