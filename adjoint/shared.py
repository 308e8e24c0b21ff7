"""Tensors whose memory several processes read and write: `Tensor.share_memory_`.

The memory is a block of Python's own `multiprocessing` heap. A forked process has it as it is; to
one that is started anew ("spawn", "forkserver") the block travels with the arguments of
`Process`. What goes through a queue or a pipe later is a copy.
"""
from __future__ import annotations

from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import ForkingPickler
from multiprocessing.sharedctypes import RawArray
from typing import Any

import numpy as np

from adjoint.core.tensor import Tensor


def block_of(array: Any) -> Any:
    """The shared block that an array lies in, or None."""
    base = array
    while isinstance(base, np.ndarray):
        base = base.base
    base = base.obj if isinstance(base, memoryview) else base
    return base if hasattr(base, "_wrapper") else None


def share(t: Tensor) -> Tensor:
    """Move the data of `t` to shared memory; a meta tensor has none and stays as it is.

    Tensors that were made from `t` before (views, `detach()`) keep the old memory.

    >>> import adjoint as ad
    >>> t = share(ad.ones(2)); block_of(t.array) is not None, t.tolist()
    (True, [1.0, 1.0])
    """
    if isinstance(t.array, np.ndarray) and block_of(t.array) is None:
        block = RawArray("b", max(t.array.nbytes, 1))
        moved: Any = np.ndarray(t.array.shape, t.array.dtype, np.frombuffer(block, np.uint8))
        np.copyto(moved, t.array)
        t.array = moved
        ForkingPickler.register(type(t), _sent)
    return t


def _sent(t: Tensor) -> Any:
    """How a tensor is pickled for a process: its block, not its values, if it is in one."""
    pickled: Any = t.__reduce_ex__(2)
    rebuild, (kind, array, *rest) = pickled
    block = block_of(t.array)
    if block is None or get_spawning_popen() is None:
        return rebuild, (kind, array, *rest)
    start = t.array.ctypes.data - np.frombuffer(block, np.uint8).ctypes.data
    return _received, (rebuild, kind, block, t.array.shape, t.array.dtype, start, t.array.strides,
                       rest)


def _received(rebuild: Any, kind: type[Tensor], block: Any, shape: tuple[int, ...],
              dtype: np.dtype[Any], start: int, strides: tuple[int, ...], rest: Any) -> Tensor:
    ForkingPickler.register(kind, _sent)
    held = np.frombuffer(block, np.uint8)
    array: Any = np.ndarray(shape, dtype, held, start, strides)
    made: Tensor = rebuild(kind, array, *rest)
    return made
