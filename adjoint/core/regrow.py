"""Memory that takes another size while tensors show it: all of them follow.

NumPy cannot move memory under the arrays that show it, so the elements go to new memory and the
tensors get new arrays. Who shows it is asked of the garbage collector, which knows every tensor:
nothing is kept up for the sake of this rare question.
"""
from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np

from adjoint.base.aval import address
from adjoint.base.errors import NotSupported
from adjoint.core.tensor import Tensor, owner_of


def _shown(t: Any) -> Any:
    """The array of a tensor as it lies in memory."""
    return t.shown if t.turn else t.array


def showing(owner: Any) -> Iterator[Any]:
    """The tensors that show memory of the array `owner`."""
    for t in gc.get_objects():
        if issubclass(type(t), Tensor) and not t.level and hasattr(t, "_cell"):
            array = _shown(t)
            if type(array) is np.ndarray and owner_of(array) is owner:
                yield t


def regrow(owner: Any, nbytes: int) -> Any:
    """Move the bytes of `owner` to memory of `nbytes`, with 0 in what is new, and every tensor with
    them; the new owner. Refused where a tensor shows more than that."""
    old, start = owner.reshape(-1, order="A").view(np.uint8), address(owner)
    new: Any = np.zeros(nbytes, np.uint8)
    kept = min(nbytes, old.size)
    new[:kept] = old[:kept]
    tensors = list(showing(owner))
    arrays = [_shown(t) for t in tensors]
    ends = [_end(a) - start for a in arrays]
    if max(ends, default=0) > nbytes:
        shape = list(arrays[ends.index(max(ends))].shape)
        raise NotSupported(f"resize_({nbytes}): a tensor of shape {shape} shows {max(ends)} bytes "
                           "of this storage, and tensors without memory are not here: resize it "
                           "first, or drop it")
    for t, a in zip(tensors, arrays, strict=True):
        moved: Any = np.ndarray(a.shape, a.dtype, new, address(a) - start, a.strides)
        if t.turn:
            t.moved(moved)
        else:
            t.array = moved
    return new


def _end(array: Any) -> int:
    """The address behind the last element of an array."""
    if not array.size:
        return 0
    return int(address(array) + array.itemsize + sum(
        (n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)))
