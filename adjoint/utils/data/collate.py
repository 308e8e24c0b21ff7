"""Turning a list of items into a batch."""
from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from copy import copy
from typing import Any

import numpy as np

from adjoint.base.errors import DTypeError, ShapeError
from adjoint.core.tensor import Tensor, wrap
from adjoint.ops.public import FUNCTIONS

_HINT = ("a batch must contain tensors, numpy arrays, numbers, strings, dicts or lists; pass a "
         "collate_fn for others")


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


def _stack(arrays: list[np.ndarray]) -> Tensor:
    shapes = [a.shape for a in arrays]
    if len(set(shapes)) > 1:
        odd = next(i for i, s in enumerate(shapes) if s != shapes[0])
        raise ShapeError(f"default_collate: stack expects each tensor to be equal size, but got "
                         f"{list(shapes[0])} at entry 0 and {list(shapes[odd])} at entry {odd}; "
                         f"pad or crop the items, or pass a collate_fn")
    return wrap(np.stack(arrays))


def _numbers(batch: Sequence[Any]) -> Tensor:
    first = batch[0]
    if isinstance(first, bool):
        return wrap(np.array(batch, np.bool_))
    return wrap(np.array(batch, np.float64 if isinstance(first, float) else np.int64))


def default_collate(batch: Sequence[Any]) -> Any:
    """Items stacked along a new first axis, container by container.

    Tensors, arrays and numbers give tensors (floats float64, ints int64); strings stay as
    they are; dicts, named tuples and sequences are taken apart, and put together again per field.

    Raises `ShapeError` for tensors of different shapes, `DTypeError` for other types.

    >>> default_collate([(1, {"x": 0.5}), (2, {"x": 1.5})])
    [tensor([1, 2]), {'x': tensor([0.5000, 1.5000], dtype=adjoint.float64)}]
    """
    first = batch[0]
    if isinstance(first, Tensor):
        if any(item.requires_grad for item in batch):
            return FUNCTIONS["stack"](batch)
        return _stack([item.array for item in batch])
    if isinstance(first, np.ndarray | np.generic):
        if np.asarray(first).dtype.kind in "SUOMm":
            raise DTypeError(f"default_collate: array of dtype {np.asarray(first).dtype}; {_HINT}")
        return _stack([np.asarray(item) for item in batch])
    if isinstance(first, bool | int | float):
        return _numbers(batch)
    if isinstance(first, str | bytes):
        return batch
    if isinstance(first, Mapping):
        return _rebuild(first, {key: default_collate([d[key] for d in batch]) for key in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(list(c)) for c in zip(*batch, strict=True)))
    if isinstance(first, Sequence):
        return _sequences(first, batch)
    raise DTypeError(f"default_collate: items are {type(first).__name__}; {_HINT}")


def _sequences(first: Any, batch: Sequence[Any]) -> Any:
    if any(len(item) != len(first) for item in batch):
        raise ShapeError("default_collate: each element in list of batch should be of equal size; "
                         f"lengths are {sorted({len(item) for item in batch})}")
    columns = [default_collate(column) for column in zip(*batch, strict=True)]
    return columns if isinstance(first, tuple) else _rebuild(first, columns)


Collate = Callable[[Any], Any]
