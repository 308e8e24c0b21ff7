"""Which bytes a set of tensors needs, so that tensors sharing memory still share it when read.

Arrays are grouped by the array that owns their memory; within a group, address ranges that
overlap or touch become one storage. So a small view of a large array writes its own range alone.
"""
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from adjoint.base.dtypes import DType, of_numpy


class Placed(NamedTuple):
    """Where a tensor lies: storage number, offset and strides in elements."""

    storage: int
    offset: int
    stride: tuple[int, ...]


class StorageData(NamedTuple):
    """One storage to be written: its dtype, element count, and bytes."""

    dtype: DType
    numel: int
    raw: np.ndarray


def _owner(array: np.ndarray) -> int:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return id(array)


def _simple(array: np.ndarray) -> np.ndarray:
    """The array itself where its layout can be written, else a row-major copy.

    PyTorch knows no negative strides, none that are not whole elements, and no foreign byte
    order.
    """
    step = array.itemsize
    if array.dtype.isnative and all(s >= 0 and s % step == 0 for s in array.strides):
        return array
    return np.ascontiguousarray(array, array.dtype.newbyteorder("="))


class _Range(NamedTuple):
    start: int
    stop: int
    key: int
    array: np.ndarray


class StorageTable:
    """Collects arrays with `add`, then says with `place` where each one lies."""

    def __init__(self) -> None:
        self._arrays: dict[int, np.ndarray] = {}
        self._keep: list[Any] = []
        self._placed: dict[int, Placed] = {}
        self.storages: list[StorageData] = []

    def add(self, key: int, array: np.ndarray) -> None:
        """Register the array known as `key`."""
        if key not in self._arrays:
            self._keep.append(array)
            self._arrays[key] = _simple(array)

    def place(self, key: int, array: np.ndarray) -> Placed:
        """Where array `key` lies; the first call fixes the layout of all that were added.

        An array made only while writing (by an object's `__reduce__`) gets its own storage.
        """
        if not self._placed:
            self._lay_out()
        if key not in self._placed:
            self._keep.append(array)
            copy = np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(array.shape)
            self._emit([_Range(0, copy.nbytes, key, copy)], 0, copy.nbytes, copy)
        return self._placed[key]

    def _lay_out(self) -> None:
        groups: dict[tuple[int, np.dtype[Any]], list[_Range]] = {}
        for key, array in self._arrays.items():
            start = array.ctypes.data
            extent = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True))
            stop = start + (extent + array.itemsize if array.size else 0)
            owner = _owner(array) if array.size else -key - 1
            groups.setdefault((owner, array.dtype), []).append(_Range(start, stop, key, array))
        for (_, dtype), ranges in groups.items():
            ranges.sort(key=lambda r: (r.start, r.stop))
            while ranges:
                start, stop, count = ranges[0].start, ranges[0].stop, 1
                while count < len(ranges) and ranges[count].start <= stop:
                    stop = max(stop, ranges[count].stop)
                    count += 1
                self._place_run(ranges[:count], start, stop, dtype)
                del ranges[:count]

    def _place_run(self, run: list[_Range], start: int, stop: int, dtype: np.dtype[Any]) -> None:
        if any((r.start - start) % dtype.itemsize for r in run):
            for r in run:  # misaligned towards one another: no common element grid
                copy = np.ascontiguousarray(r.array)
                self._emit([r._replace(array=copy, start=0)], 0, copy.nbytes, copy)
            return
        first = run[0].array
        raw = np.lib.stride_tricks.as_strided(
            first.reshape(-1)[:0] if first.size == 0 else first[(0,) * first.ndim + (...,)],
            ((stop - start) // dtype.itemsize,), (dtype.itemsize,), writeable=False)
        self._emit(run, start, stop, raw)

    def _emit(self, run: list[_Range], start: int, stop: int, raw: np.ndarray) -> None:
        number, dtype = len(self.storages), raw.dtype
        numel = (stop - start) // dtype.itemsize
        self.storages.append(StorageData(of_numpy(dtype), numel, raw.reshape(-1)))
        for r in run:
            stride = tuple(s // dtype.itemsize for s in r.array.strides)
            if not r.array.size:
                stride = _row_major(r.array.shape)
            self._placed[r.key] = Placed(number, (r.start - start) // dtype.itemsize, stride)


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))
