"""Which bytes a set of tensors needs, so that tensors sharing memory still share it when read.

The memory that an array shows is written whole and once, as PyTorch does: offset, strides and the
size of the storage are those of the tensor in the program.
"""
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from adjoint.base.aval import contiguous_strides
from adjoint.base.dtypes import DType, of_numpy
from adjoint.core.tensor import owner_of


class Placed(NamedTuple):
    """Where a tensor lies: storage number, offset and strides in elements."""

    storage: int
    offset: int
    stride: tuple[int, ...]


class StorageData(NamedTuple):
    """One storage to be written: the dtype of the tensors on it, None where they are of several,
    its element count (of bytes then), and its bytes."""

    dtype: DType | None
    numel: int
    raw: np.ndarray


def _start(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


class StorageTable:
    """Collects arrays with `add`, then says with `place` where each one lies."""

    def __init__(self) -> None:
        self._arrays: dict[int, tuple[np.ndarray, np.ndarray]] = {}     # with the memory of each
        self._keep: list[Any] = []
        self._placed: dict[int, Placed] = {}
        self.storages: list[StorageData] = []

    def add(self, key: int, array: np.ndarray, memory: np.ndarray | None = None) -> None:
        """Register the array known as `key`, which lies in `memory`; None: in what it shows."""
        if key not in self._arrays:
            self._keep.append(array)
            self._arrays[key] = _lying(array, owner_of(array) if memory is None else memory)

    def place(self, key: int, array: np.ndarray) -> Placed:
        """Where array `key` lies; the first call fixes the layout of all that were added.

        An array made only while writing (by an object's `__reduce__`) gets its own storage.
        """
        if not self._placed:
            groups: dict[int, list[int]] = {}
            for known, (_, memory) in self._arrays.items():
                groups.setdefault(id(memory), []).append(known)
            for keys in groups.values():
                self._emit(keys)
        if key not in self._placed:
            self._keep.append(array)
            self._arrays[key] = _copied(array)
            self._emit([key])
        return self._placed[key]

    def _emit(self, keys: list[int]) -> None:
        memory = self._arrays[keys[0]][1]
        raw = memory.reshape(-1, order="A").view(np.uint8)
        kinds = {self._arrays[key][0].dtype for key in keys}
        kind = kinds.pop() if len(kinds) == 1 and not (
            raw.nbytes % next(iter(kinds)).itemsize) else None
        self.storages.append(StorageData(None, raw.nbytes, raw) if kind is None else
                             StorageData(of_numpy(kind), raw.nbytes // kind.itemsize, raw))
        for key in keys:
            array = self._arrays[key][0]
            step = array.itemsize
            offset = (_start(array) - _start(memory)) // step
            at = array.strides if array.size or any(array.strides) else contiguous_strides(
                array.shape, step)      # (NumPy has 0 where there is nothing to step over)
            stride = tuple(s // step for s in at)
            self._placed[key] = Placed(len(self.storages) - 1, offset, stride)


def _lying(array: np.ndarray, memory: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The array in its memory where its layout can be written, else a row-major copy.

    PyTorch knows no negative strides, none that are not whole elements, and no foreign byte
    order; and memory is written as it lies, without gaps.
    """
    step = array.itemsize
    if (array.dtype.isnative and all(s >= 0 and s % step == 0 for s in array.strides)
            and (memory.flags.c_contiguous or memory.flags.f_contiguous)
            and not (_start(array) - _start(memory)) % step
            and 0 <= _start(array) - _start(memory) <= memory.nbytes):
        return array, memory
    return _copied(array)


def _copied(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    copy = np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(array.shape)
    return copy, copy
