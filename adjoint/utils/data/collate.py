"""Turning a list of items into a batch."""
from __future__ import annotations

import re
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from copy import copy
from typing import Any

import numpy as np

from adjoint.base.aval import MetaArray
from adjoint.base.errors import DTypeError, ShapeError
from adjoint.core.rehearsal import call
from adjoint.core.tensor import Tensor, wrap
from adjoint.ops.public import FUNCTIONS

default_collate_err_msg_format = (
    "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}")
np_str_obj_array_pattern = re.compile(r"[SaUO]")
_HINT = "; pass a collate_fn that makes a batch of them"


def _rebuild(original: Any, items: Any) -> Any:
    """A container like `original` with other contents; plain if its class cannot be made so."""
    try:
        if isinstance(original, MutableMapping | MutableSequence):
            clone = copy(original)
            if isinstance(clone, MutableMapping):
                clone.update(items)
            else:
                for i, item in enumerate(items):
                    clone[i] = item
            return clone
        return type(original)(items)
    except TypeError:
        return items


def default_convert(data: Any) -> Any:
    """NumPy arrays inside any nesting of containers become tensors; the rest stays.

    >>> default_convert({"a": np.zeros(2), "b": "text"})["a"].shape
    adjoint.Size([2])
    """
    if isinstance(data, np.ndarray | np.generic):
        array = np.asarray(data)
        return data if array.dtype.kind in "SUOMm" else wrap(array)
    if isinstance(data, Mapping):
        return _rebuild(data, {key: default_convert(data[key]) for key in data})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(d) for d in data))
    if isinstance(data, tuple):
        return [default_convert(d) for d in data]
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        return _rebuild(data, [default_convert(d) for d in data])
    return data


def _stack(arrays: list[Any]) -> Tensor:
    shapes = [a.shape for a in arrays]
    if len(set(shapes)) > 1:
        odd = next(i for i, s in enumerate(shapes) if s != shapes[0])
        raise ShapeError(f"default_collate: stack expects each tensor to be equal size, but got "
                         f"{list(shapes[0])} at entry 0 and {list(shapes[odd])} at entry {odd}; "
                         f"pad or crop the items, or pass a collate_fn")
    if any(type(a) is MetaArray for a in arrays):
        whole, dtype = (len(arrays), *arrays[0].shape), arrays[0].dtype
        return wrap(call(np.stack, arrays, otherwise=lambda: MetaArray(whole, dtype)))
    return wrap(np.stack(arrays))


def collate_tensor_fn(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Tensor:
    """Tensors stacked along a new first axis."""
    if not all(isinstance(item, Tensor) for item in batch):
        odd = next(i for i, item in enumerate(batch) if not isinstance(item, Tensor))
        raise DTypeError(f"default_collate: expected Tensor as element {odd} in argument 0, but "
                         f"got {type(batch[odd]).__name__}")
    if any(item.requires_grad for item in batch):
        return FUNCTIONS["stack"](batch)
    return _stack([item.array for item in batch])


def collate_numpy_array_fn(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Tensor:
    """Arrays and NumPy's numbers stacked along a new first axis."""
    found = np.asarray(batch[0]).dtype
    if found.kind in "SUOMm":
        raise DTypeError(default_collate_err_msg_format.format(found) + _HINT)
    return _stack([np.asarray(item) for item in batch])


def collate_float_fn(batch: Sequence[float], *, collate_fn_map: Any = None) -> Tensor:
    """Numbers as a float64 tensor."""
    return wrap(np.array(batch, np.float64))


def collate_int_fn(batch: Sequence[int], *, collate_fn_map: Any = None) -> Tensor:
    """Integers as an int64 tensor, truth values as a bool one, others as `tensor(batch)`."""
    array = np.array(batch)
    return wrap(array) if array.dtype in (np.int64, np.bool_) else FUNCTIONS["tensor"](batch)


def collate_str_fn(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
    """Strings stay as they are."""
    return batch


CollateMap = dict[type | tuple[type, ...], Callable[..., Any]]
default_collate_fn_map: CollateMap = {
    Tensor: collate_tensor_fn,
    np.ndarray: collate_numpy_array_fn,
    (np.bool_, np.number, np.object_): collate_numpy_array_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}


def collate(batch: Sequence[Any], *, collate_fn_map: CollateMap | None = None) -> Any:
    """Items put together per field; ``collate_fn_map`` says how, by the type of the first item.

    Its functions are called as ``fn(batch, collate_fn_map=...)``; dicts, named tuples and
    sequences that it does not name are taken apart, and put together again field by field.

    >>> collate([{"a": 1}, {"a": 2}], collate_fn_map={int: lambda b, collate_fn_map: sum(b)})
    {'a': 3}
    """
    first = batch[0]
    if collate_fn_map is not None:
        how = collate_fn_map.get(type(first)) or next(
            (f for kind, f in collate_fn_map.items() if isinstance(first, kind)), None)
        if how is not None:
            return how(batch, collate_fn_map=collate_fn_map)
    if isinstance(first, Mapping):
        return _rebuild(first, {key: collate([d[key] for d in batch], collate_fn_map=collate_fn_map)
                                for key in first})
    if isinstance(first, Sequence) and not isinstance(first, str | bytes):
        return _sequences(first, batch, collate_fn_map)
    raise DTypeError(default_collate_err_msg_format.format(type(first)) + _HINT)


def default_collate(batch: Sequence[Any]) -> Any:
    """Items stacked along a new first axis, container by container.

    Tensors, arrays and numbers give tensors (floats float64, ints int64); strings stay as
    they are; dicts, named tuples and sequences are taken apart, and put together again per field.
    Other types join through ``default_collate_fn_map[type] = function``; see `collate`.

    Raises `ShapeError` for tensors of different shapes, `DTypeError` for other types.

    >>> default_collate([(1, {"x": 0.5}), (2, {"x": 1.5})])
    [tensor([1, 2]), {'x': tensor([0.5000, 1.5000], dtype=adjoint.float64)}]
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)


def _sequences(first: Any, batch: Sequence[Any], how: CollateMap | None) -> Any:
    named = isinstance(first, tuple) and hasattr(first, "_fields")
    if any(len(item) != len(first) for item in batch):
        raise ShapeError("default_collate: each element in list of batch should be of equal size; "
                         f"lengths are {sorted({len(item) for item in batch})}")
    columns = [collate(column, collate_fn_map=how) for column in zip(*batch, strict=True)]
    if named:
        return type(first)(*columns)
    return columns if isinstance(first, tuple) else _rebuild(first, columns)


Collate = Callable[[Any], Any]
