"""Sending batches between processes: big arrays through shared memory, the rest by pickle.

A batch becomes one pickle plus at most one shared-memory segment. The receiver removes the
segment's name as soon as it has mapped it, so that nothing is left behind whatever dies later;
the mapping goes when the last array on it does.
"""
from __future__ import annotations

import contextlib
import io
import pickle
import shutil
import sys
from multiprocessing import shared_memory
from typing import Any

import numpy as np

from adjoint.core.tensor import Tensor, wrap

_ALIGN = 64
_SMALL = 32 * 1024  # below this a pipe is faster than a new mapping


class _Out(pickle.Pickler):
    """Pickles everything but large arrays, which it lists."""

    def __init__(self, file: io.BytesIO, small: int = _SMALL) -> None:
        super().__init__(file, 5)
        self._small = small
        self.arrays: list[np.ndarray] = []
        self.size = 0

    def persistent_id(self, obj: Any) -> Any:
        if type(obj) is not np.ndarray or obj.nbytes < self._small or obj.dtype.hasobject:
            return None
        at = self.size
        self.size = at + -(-obj.nbytes // _ALIGN) * _ALIGN
        self.arrays.append(obj)
        return (at, obj.dtype, obj.shape)


    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is Tensor and isinstance(obj.array, np.ndarray) and obj.is_leaf:
            return wrap, (obj.array, obj.requires_grad)
        return NotImplemented


class _In(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, memory: np.ndarray) -> None:
        super().__init__(file)
        self._memory = memory

    def persistent_load(self, pid: Any) -> np.ndarray:
        at, dtype, shape = pid
        count = int(np.prod(shape, dtype=np.int64))
        flat = self._memory[at:at + count * dtype.itemsize]
        return flat.view(dtype).reshape(shape)


class _Mapping:
    """Owns a mapped segment; arrays made of it keep it alive."""

    def __init__(self, name: str) -> None:
        self._segment = shared_memory.SharedMemory(name)
        self._segment.unlink()
        buffer = self._segment.buf
        assert buffer is not None
        view = np.frombuffer(buffer, np.uint8)
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": view.shape,
                                    "data": (view.ctypes.data, False)}


def _room_for(size: int) -> bool:
    """False where /dev/shm is too full: writing would kill the process with SIGBUS."""
    with contextlib.suppress(OSError):
        return shutil.disk_usage("/dev/shm").free > size + (1 << 20)
    return True


def pack(obj: Any, name: str) -> tuple[bytes, str | None]:
    """The message for `obj`, and the segment's name if one was made (always `name`).

    >>> data, segment = pack({"x": np.ones(3)}, "unused"); segment is None
    True
    """
    file = io.BytesIO()
    out = _Out(file)
    out.dump(obj)
    if not out.size:
        return file.getvalue(), None
    if not _room_for(out.size):
        plain = io.BytesIO()
        _Out(plain, small=sys.maxsize).dump(obj)
        return plain.getvalue(), None
    segment = shared_memory.SharedMemory(name, create=True, size=out.size)
    try:
        at = 0
        for array in out.arrays:
            target: np.ndarray = np.ndarray(array.shape, array.dtype, segment.buf, at)
            target[...] = array
            del target
            at += -(-array.nbytes // _ALIGN) * _ALIGN
    except BaseException:
        segment.unlink()
        raise
    finally:
        segment.close()
    return file.getvalue(), name


def unpack(data: bytes, name: str | None) -> Any:
    """The object of a message; its large arrays lie in the shared segment itself.

    >>> unpack(*pack([1, "a"], "unused"))
    [1, 'a']
    """
    memory = np.empty(0, np.uint8) if name is None else np.asarray(_Mapping(name))
    return _In(io.BytesIO(data), memory).load()


def discard(name: str) -> None:
    """Remove a segment that nobody will read, if it exists."""
    with contextlib.suppress(FileNotFoundError):
        segment = shared_memory.SharedMemory(name)
        segment.close()
        segment.unlink()
