"""Indexing as JAX has it: an index past the end is clamped when reading and dropped when writing.

`x.at[i].add(v)` and its family compute where the elements of `x[i]` lie in the flat array, by
indexing an array of positions, and scatter there; so they batch and differentiate as scatters do.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint.base.aval import MetaArray
from adjoint.base.dtypes import is_inexact
from adjoint.base.errors import NotSupported
from adjoint.core.tensor import Tensor, wrap
from adjoint.jax import errors
from adjoint.jax._array import (
    METHODS,
    Array,
    as_array,
    convert,
    describe,
    is_hidden,
    is_traced,
    make,
    pair_of,
    value_of,
)
from adjoint.jax._table import T
from adjoint.jax._trace import RUN
from adjoint.jax._util import canonicalize_axis
from adjoint.jax._words import placed
from adjoint.numpy._index import forward_slices

I64 = np.dtype(np.int64)


def _entries(at: Any) -> list[Any]:
    if isinstance(at, str) or (isinstance(at, tuple) and any(isinstance(i, str) for i in at)):
        raise TypeError(f"JAX does not support string indexing; got idx={at!r}")
    if isinstance(at, list):
        raise TypeError("Using a non-tuple sequence for multidimensional indexing is not allowed; "
                        "use `arr[array(seq)]` instead of `arr[seq]`")
    return list(at) if isinstance(at, tuple) else [at]


def _simple(i: Any) -> Any:
    """An entry as a slice, None, Ellipsis, an int, a NumPy array, or a tensor that is traced."""
    if i is None or i is Ellipsis:
        return i
    if isinstance(i, slice):
        try:
            return slice(*[None if v is None else v.__index__() for v in (i.start, i.stop, i.step)])
        except errors.TracerIntegerConversionError:
            raise IndexError("Slice entries must be static integers. Got "
                             f"{i}: use lax.dynamic_slice") from None
    if isinstance(i, bool):
        return np.asarray(i)
    if isinstance(i, int):
        return i
    if isinstance(i, (list, tuple)):
        if not len(i):
            return np.zeros(0, np.int64)
        from adjoint.jax.numpy._create import array
        return _simple(array(i))
    pair = pair_of(i)
    if pair is None or pair[0].kind not in "biu":
        kind = type(i).__name__ if pair is None else np.asarray(i).dtype
        raise TypeError("Indexer must have integer or boolean type, got indexer with type "
                        f"{kind}")
    if type(i) is Array:
        if i.dtype.kind == "b" and is_hidden(i):
            raise errors.NonConcreteBooleanIndexError(
                f"Array boolean indices must be concrete; got {describe(i)}. Use "
                "jnp.where(mask, x, y), which keeps the shape")
        if i.dtype.kind != "b" and is_traced(i):
            return i.tensor
        i = value_of(i)
    value = np.asarray(i)
    return int(value) if value.ndim == 0 and value.dtype.kind != "b" else value


def _is_truth(i: Any) -> bool:
    return isinstance(i, (bool, np.bool_)) or (
        isinstance(i, (Array, np.ndarray)) and i.dtype.kind == "b" and not i.ndim)


def _truths(at: Any, shape: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
    """The index and the shape with an axis of one element for each of the numbers True and False:
    they are indices into it. True alone needs none (`_expanded` makes it a new axis)."""
    entries = _entries(at)
    if not any([_is_truth(i) for i in entries]):
        return at, shape
    simple = [_simple(i) for i in entries]
    truths = [_is_truth(i) for i in simple]
    if all([t or v is None or v is Ellipsis or isinstance(v, slice)
            for v, t in zip(simple, truths, strict=True)]) and all([
                bool(v) for v, t in zip(simple, truths, strict=True) if t]):
        return at, shape
    taken = [0 if v is None or v is Ellipsis or t else v.ndim if isinstance(v, np.ndarray)
             and v.dtype.kind == "b" else 1 for v, t in zip(simple, truths, strict=True)]
    room, axis = max(len(shape) - sum(taken), 0), 0
    out: list[Any] = []
    to: list[int] = []
    for i, v, t, n in zip(entries, simple, truths, taken, strict=True):
        n = room if v is Ellipsis else n
        to += [1] if t else shape[axis:axis + n]
        out.append(np.zeros(int(v), np.int64) if t else i)
        axis += n
    return tuple(out), (*to, *shape[axis:])


def _expanded(at: Any, shape: tuple[int, ...]) -> list[Any]:
    """Entries that name every axis: masks as indices, Ellipsis as slices."""
    found: list[Any] = []
    for i in map(_simple, _entries(at)):
        if isinstance(i, np.ndarray) and i.dtype.kind == "b" and i.ndim:
            axis = sum(v is not None and v is not Ellipsis for v in found)
            if Ellipsis not in [v for v in found if not isinstance(v, np.ndarray)]:
                _fits(i, shape[axis:axis + i.ndim], axis)
            found += [np.asarray(v) for v in np.nonzero(i)]
        elif isinstance(i, np.ndarray) and i.dtype.kind == "b":
            if not i:
                raise NotSupported("an index that is the number False; use x[None][:0]")
            found.append(None)
        else:
            found.append(i)
    taken = sum(i is not None and i is not Ellipsis for i in found)
    if taken > len(shape):
        raise IndexError(f"Too many indices: array is {len(shape)}-dimensional, but {taken} were "
                         "indexed")
    dots = [k for k, i in enumerate(found) if i is Ellipsis]
    if len(dots) > 1:
        raise IndexError("an index can only have a single ellipsis ('...'), got " + repr(at))
    shapes = [tuple(i.shape) for i in found if isinstance(i, (np.ndarray, Tensor))]
    if len(set(shapes)) > 1:
        try:
            np.broadcast_shapes(*shapes)
        except ValueError:
            raise ValueError(f"Incompatible shapes for broadcasting: shapes={shapes}") from None
    rest = [slice(None)] * (len(shape) - taken)
    if dots:
        return found[:dots[0]] + rest + found[dots[0] + 1:]
    return found + rest


def _fits(mask: Any, shape: tuple[int, ...], axis: int) -> None:
    """IndexError for a mask that has another shape than what it indexes."""
    if mask.shape != tuple(shape):
        raise IndexError("boolean index did not match shape of indexed array in index "
                         f"{axis}: got {mask.shape}, expected {list(shape)}")


def _bounded(i: Any, n: int, mode: str) -> Any:
    """Indices from the front; those out of bounds at the nearest end, or at n for "drop"."""
    if isinstance(i, int):
        i = i + n if i < 0 else i
        if 0 <= i < n:
            return i
        return n if mode == "drop" else min(max(i, 0), n - 1)
    if isinstance(i, np.ndarray):
        i = i.astype(np.int64)
        i = np.where(i < 0, i + n, i)
        return np.where((i < 0) | (i >= n), n, i) if mode == "drop" else np.clip(i, 0, max(n - 1,
                                                                                          0))
    i = i.to(I64)
    i = T["where"](i < 0, i + n, i)
    if mode == "drop":
        return T["where"]((i < 0) | (i >= n), i.new_full((), n), i)
    return T["clamp"](i, 0, max(n - 1, 0))


def _clean(entries: list[Any], shape: tuple[int, ...], mode: str) -> tuple[Any, ...]:
    """Entries for the engine: in bounds, every index an array where one is."""
    arrays = [i for i in entries if isinstance(i, (np.ndarray, Tensor))]
    rank = max([1, *(len(i.shape) for i in arrays)])
    out: list[Any] = []
    axis = 0
    for i in entries:
        if i is None:
            out.append(i)
            continue
        if not isinstance(i, slice):
            i = _bounded(i, shape[axis], mode)
            if arrays:
                value = wrap(np.asarray(i, np.int64)) if not isinstance(i, Tensor) else i
                i = value.reshape((*[1] * (rank - value.ndim), *value.shape))
        out.append(i)
        axis += 1
    return tuple(out)


def _result_rank(entries: list[Any]) -> int | None:
    """Rank that indices together have; None where none is an array."""
    ranks = [len(i.shape) for i in entries if isinstance(i, (np.ndarray, Tensor))]
    return max(ranks) if ranks else None


def take_at(x: Any, entries: list[Any], mode: str = "clip") -> Any:
    """`x[entries]` of a tensor."""
    shape = tuple(x.shape)
    clean = _clean(entries, shape, mode)
    x, clean = forward_slices(x, clean)
    y = x[clean]
    if _result_rank(entries) == 0:      # indices without axes were given one
        first = _first_index_axis(entries)
        y = y.squeeze(first)
    return y


def _first_index_axis(entries: list[Any]) -> int:
    """The axis at which the indices' own axes are in a result: in place if they are neighbours."""
    places = [k for k, i in enumerate(entries) if i is not None and not isinstance(i, slice)]
    if places != list(range(places[0], places[0] + len(places))):
        return 0
    return places[0]


def _told(at: Any, shape: tuple[int, ...]) -> None:
    """Tell who asks of the entries of an index."""
    at, shape = _truths(at, shape)
    for axis, i in enumerate(i for i in _expanded(at, shape) if i is not None):
        if not isinstance(i, slice):
            n = shape[axis]
            i = i if isinstance(i, Tensor) else wrap(np.asarray(i))
            RUN.indices(shape, axis, T["where"](i < 0, i + n, i), n - 1)


def getitem(x: Any, at: Any) -> Any:
    """`x[at]`."""
    a = as_array(x)
    if RUN.indices is not None:
        _told(at, a.shape)
    if isinstance(at, int) and not isinstance(at, bool):
        entries = [at, *[slice(None)] * (a.ndim - 1)]
    else:
        at, shape = _truths(at, a.shape)
        a = a if len(shape) == a.ndim else a.reshape(shape)
        entries = _expanded(at, a.shape)
    if a.ndim == 0 and isinstance(at, int) and not isinstance(at, bool):
        raise IndexError("Too many indices: array is 0-dimensional, but 1 were indexed")
    found = make(take_at(a.tensor, entries), a.weak_type)
    if not a.tensor.level and a.tensor._rg and _beyond(entries, a.shape):
        # JAX clamps on the way there, and drops on the way back
        places, _ = positions(a.shape, at)
        found = make(T["where"](places == a.size, found.tensor.detach(), found.tensor), a.weak_type)
    return found


def _beyond(entries: list[Any], shape: tuple[int, ...]) -> bool:
    """True if there are arrays among the indices and one is out of bounds: numbers alone are
    places of slices, whose derivative is that of what they were clamped to."""
    if not any(isinstance(i, np.ndarray) for i in entries):
        return False
    sizes = iter(shape)
    for i in entries:
        n = next(sizes) if i is not None else 0
        if isinstance(i, (int, np.ndarray)) and np.any((np.asarray(i) >= n) | (np.asarray(i) < -n)):
            return True
    return False


METHODS["__getitem__"] = getitem


# ------------------------------------------------------------------ positions of elements
def positions(shape: tuple[int, ...], at: Any) -> tuple[Any, bool]:
    """(places of the elements of x[at] in x.ravel(), are some dropped); those are at the end."""
    at, shape = _truths(at, shape)
    entries = _expanded(at, shape)
    size, axis, bounded, room = math.prod(shape), 0, [], []
    for i in entries:
        if i is not None:
            room.append(0 if isinstance(i, slice) else 1)
            i = i if isinstance(i, slice) else _bounded(i, shape[axis], "drop")
            axis += 1
        bounded.append(i)
    grid = np.arange(size).reshape(shape)
    if room:
        grid = np.pad(grid, [(0, r) for r in room], constant_values=size)
    found = take_at(wrap(grid), bounded)
    return found, bool(found.level or isinstance(found.array, MetaArray)
                       or (found.array == size).any())


def _flat(t: Any, room: bool) -> Any:
    flat = t.reshape(-1)
    return T["cat"]([flat, flat.new_zeros((1,))]) if room else flat


class At:
    """`x.at`: indexed, it gives the updates."""

    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:
        self.array = as_array(array)

    def __getitem__(self, at: Any) -> Update:
        return Update(self.array, at)

    def __repr__(self) -> str:
        return f"_IndexUpdateHelper({self.array!r})"


METHODS["at"] = At


class Update:
    """`x.at[i]`: `get`, and copies of x with changed elements."""

    __slots__ = ("array", "index")

    def __init__(self, array: Array, index: Any) -> None:
        self.array, self.index = array, index

    def __repr__(self) -> str:
        return f"_IndexUpdateRef({self.array!r}, {self.index!r})"

    def get(self, *, mode: Any = None, fill_value: Any = None, indices_are_sorted: bool = False,
            unique_indices: bool = False, wrap_negative_indices: bool = True,
            out_sharding: Any = None) -> Any:
        """`x[i]`; mode "fill" gives `fill_value` (default NaN) out of bounds."""
        placed(".get", out_sharding)
        x = self.array
        index = self.index if wrap_negative_indices else _unwrapped(self.index, x.shape)
        if RUN.indices is not None:
            _told(index, x.shape)
        if mode_of(mode) == "clip":               # (the gradient goes to what was read)
            return getitem(x, clipped(index, x.shape))
        if mode_of(mode) not in ("fill", "drop"):
            return getitem(x, index)
        at, dropped = positions(x.shape, index)
        y = _flat(x.tensor, dropped)[at.reshape(-1)].reshape(tuple(at.shape))
        if not dropped:
            return make(y, x.weak_type)
        value = default_fill(x.dtype) if fill_value is None else fill_value
        return make(T["where"](at == x.size, y.new_full((), value), y), x.weak_type)

    def _places(self, mode: Any, *, indices_are_sorted: bool = False, unique_indices: bool = False,
                wrap_negative_indices: bool = True, out_sharding: Any = None) -> Any:
        """Where the elements are, flat, and whether some are dropped."""
        placed(".at", out_sharding)
        x, index = self.array, self.index
        if not wrap_negative_indices:
            index = _unwrapped(index, x.shape)
        if RUN.indices is not None:
            _told(index, x.shape)
        if mode_of(mode) == "clip":
            index = clipped(index, x.shape)
        return positions(x.shape, index)

    def _scatter(self, values: Any, run: Callable[..., Any], mode: Any, **how: Any) -> Any:
        x = self.array
        at, dropped = self._places(mode, **how)
        v = convert(as_array(values, "scatter").tensor, x.dtype)
        lead = v.ndim - at.ndim
        if lead > 0 and all(n == 1 for n in v.shape[:lead]):
            v = v.reshape(tuple(v.shape[lead:]))
        try:
            v = T["broadcast_to"](v, tuple(at.shape))
        except ValueError:
            raise ValueError(f"Incompatible shapes for broadcasting: {tuple(v.shape)} and "
                             f"requested shape {tuple(at.shape)}") from None
        y = run(_flat(x.tensor, dropped), at.reshape(-1), v.reshape(-1))
        return make((y[:x.size] if dropped else y).reshape(x.shape), x.weak_type)

    def set(self, values: Any, *, mode: Any = None, **how: Any) -> Any:
        """x with x[i] = values; of an index that is there more often, the last one stays."""
        return self._scatter(values, _last, mode, **how)

    def add(self, values: Any, *, mode: Any = None, **how: Any) -> Any:
        """x with values added to x[i], once for every time an index is there."""
        return self._scatter(values, lambda f, at, v: T["scatter_add"](f, 0, at, v), mode, **how)

    def subtract(self, values: Any, *, mode: Any = None, **how: Any) -> Any:
        """x with values subtracted from x[i]."""
        return self.add(-as_array(values), mode=mode, **how)

    sub = subtract

    def multiply(self, values: Any, *, mode: Any = None, **how: Any) -> Any:
        """x with x[i] multiplied by values."""
        x, v = self.array, as_array(values, "scatter")
        if x.dtype.kind in "iu" and is_inexact(v.dtype):     # (integers by floats, then rounded)
            wide = Update(make(x.tensor.to(v.dtype)), self.index).multiply(v, mode=mode, **how)
            return make(convert(wide.tensor, x.dtype), x.weak_type)
        return self._scatter(v, _reducer("prod"), mode, **how)

    mul = multiply

    def min(self, values: Any, *, mode: Any = None, **how: Any) -> Any:
        """x with the smaller ones of x[i] and values."""
        return self._scatter(values, _reducer("amin"), mode, **how)

    def max(self, values: Any, *, mode: Any = None, **how: Any) -> Any:
        """x with the larger ones of x[i] and values."""
        return self._scatter(values, _reducer("amax"), mode, **how)

    def divide(self, values: Any, *, mode: Any = None, **how: Any) -> Any:
        """x with x[i] divided by values."""
        x = self.array
        ones = make(T["ones_like"](x.tensor), x.weak_type)
        return x / Update(ones, self.index).multiply(values, mode=mode, **how)

    def power(self, values: Any, *, mode: Any = None, **how: Any) -> Any:
        """x with x[i] to the power of values."""
        return self.apply(lambda old: old ** values, mode=mode, **how)

    def apply(self, func: Callable[[Any], Any], *, mode: Any = None, **how: Any) -> Any:
        """x with func(x[i]) at i; where an index is there more than once, func is applied as
        often."""
        x = self.array
        at, dropped = self._places(mode, **how)
        if at.level or isinstance(at.array, MetaArray):
            return self.set(func(self.get()), mode=mode, **how)
        places, counts = np.unique(at.array, return_counts=True)
        if counts.size == 0 or counts.max() == 1:
            return self.set(func(self.get()), mode=mode, **how)
        flat = _flat(x.tensor, dropped)
        y = make(flat[wrap(places)], x.weak_type)
        for k in range(int(counts.max())):
            y = make(T["where"](wrap(counts > k), as_array(func(y)).tensor, y.tensor), x.weak_type)
        out = T["scatter"](flat, 0, wrap(places), convert(y.tensor, x.dtype))
        return make((out[:x.size] if dropped else out).reshape(x.shape), x.weak_type)


def _last(f: Any, at: Any, v: Any) -> Any:
    if not (at.level or isinstance(at.array, MetaArray)) and (v.level or v._rg):
        places, first = np.unique(at.array[::-1], return_index=True)
        if places.size < at.array.size:            # (a gradient is for what stays)
            at, v = wrap(places), v[wrap(at.array.size - 1 - first)]
    return T["scatter"](f, 0, at, v)


def _unwrapped(at: Any, shape: tuple[int, ...]) -> Any:
    """The index, negative entries of which are out of bounds."""
    sizes, out = iter(shape), []
    for i in _expanded(at, shape):
        n = next(sizes) if i is not None else 0
        if isinstance(i, int):
            i = n if i < 0 else i
        elif isinstance(i, np.ndarray):
            i = np.where(i < 0, n, i)
        elif isinstance(i, Tensor):
            i = make(T["where"](i < 0, i.new_full((), n), i))
        out.append(i)
    return tuple(out)


def _reducer(how: str) -> Callable[..., Any]:
    return lambda f, at, v: T["scatter_reduce"](f, 0, at, v, reduce=how)


_MODES = ("", "fill", "drop", "clip", "promise_in_bounds", "one_hot")


def mode_of(mode: Any) -> str:
    """A mode by name; `GatherScatterMode` members and None as well. ValueError for another."""
    found = str(getattr(mode, "name", mode) or "").lower().replace("fill_or_drop", "fill")
    if found not in _MODES:
        raise ValueError(f'Unknown gather mode "{mode}"')
    return found


def default_fill(dtype: Any) -> Any:
    """What stands for elements that are not there."""
    if is_inexact(dtype):
        return math.nan
    if dtype.kind == "b":
        return True
    return np.iinfo(dtype).min if dtype.kind == "i" else np.iinfo(dtype).max


def clipped(at: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """The index with every entry in bounds."""
    out: list[Any] = []
    axis = 0
    for i in _expanded(at, shape):
        if i is None:
            out.append(i)
            continue
        if not isinstance(i, slice):
            i = _bounded(i, shape[axis], "clip")
            i = make(i) if isinstance(i, Tensor) else i
        out.append(i)
        axis += 1
    return tuple(out)


# ------------------------------------------------------------------ functions
def take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: Any = None,
         unique_indices: bool = False, indices_are_sorted: bool = False, fill_value: Any = None
         ) -> Any:
    """`jax.numpy.take`: out of bounds NaN (mode "fill"), the nearest ("clip"), or "wrap"."""
    x, at = as_array(a, "take"), as_array(indices, "take")
    if axis is None:
        x, axis = x.reshape(-1), 0
    axis = canonicalize_axis(axis, x.ndim)
    if mode not in (None, "fill", "wrap", "clip"):
        raise ValueError(f"Invalid mode '{mode}' for np.take")
    if mode == "wrap":
        at = at % x.shape[axis]
    index = (*[slice(None)] * axis, at)
    if mode == "clip":
        n = x.shape[axis]
        index = (*index[:-1], make(T["clamp"](at.tensor, 0, n - 1)))
    return Update(x, index).get(mode="fill" if mode in (None, "fill") else "clip",
                                fill_value=fill_value)


def take_along_axis(arr: Any, indices: Any, axis: Any = -1, mode: Any = None,
                    fill_value: Any = None, *, wrap_negative_indices: Any = None) -> Any:
    x, at = as_array(arr, "take_along_axis"), as_array(indices, "take_along_axis")
    mode_of(mode)
    if axis is None:
        x, at, axis = x.reshape(-1), at.reshape(-1), 0
    axis = canonicalize_axis(axis, x.ndim)
    n = x.shape[axis]
    t, i = x.tensor, at.tensor.to(I64)
    if x.ndim != at.ndim:
        raise ValueError("indices and arr must have the same number of dimensions; "
                         f"{at.ndim} vs. {x.ndim}")
    shape = list(np.broadcast_shapes(*[[1 if d == axis else m for d, m in enumerate(v.shape)]
                                       for v in (x, at)]))
    t = T["broadcast_to"](t, tuple(n if d == axis else m for d, m in enumerate(shape)))
    i = T["broadcast_to"](i, tuple(at.shape[d] if d == axis else m for d, m in enumerate(shape)))
    if wrap_negative_indices is not False:
        i = T["where"](i < 0, i + n, i)
    y = T["gather"](t, axis, T["clamp"](i, 0, n - 1))
    if mode in (None, "fill"):
        bad = (i < 0) | (i >= n)
        value = default_fill(x.dtype) if fill_value is None else fill_value
        y = T["where"](bad, y.new_full((), value), y)
    return make(y, x.weak_type)


def put_along_axis(arr: Any, indices: Any, values: Any, axis: Any, inplace: bool = True, *,
                   mode: Any = None) -> Any:
    """A copy with values at indices along an axis; `inplace=True` is refused."""
    if inplace:
        raise ValueError("jax.numpy.put_along_axis cannot modify arrays in-place, because JAX "
                         "arrays are immutable. Pass inplace=False to instead return an updated "
                         "array.")
    x, at = as_array(arr), as_array(indices)
    if axis is None:
        return put_along_axis(x.reshape(-1), at, values, 0, False, mode=mode).reshape(x.shape)
    axis = canonicalize_axis(axis, x.ndim)
    if x.ndim != at.ndim:
        raise ValueError("put_along_axis arguments 'arr' and 'indices' must have same ndim. Got "
                         f"{x.ndim=} and {at.ndim=}.")
    places = [np.arange(n).reshape([-1 if k == d else 1 for k in range(x.ndim)])
              for d, n in enumerate(x.shape)]
    return Update(x, (*places[:axis], at, *places[axis + 1:])).set(values, mode=mode)


NAMES: dict[str, Any] = {f.__name__: f for f in (take, take_along_axis, put_along_axis)}
__all__ = ["At", "NAMES", "Update"]
