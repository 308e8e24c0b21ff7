"""`torch.cuda.nvtx`: marks for NVIDIA's profiler, which a build without CUDA has not."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from adjoint.base.errors import missing


class _Absent(RuntimeError):
    """PyTorch's words where its CUDA is missing."""

    def __init__(self) -> None:
        super().__init__("NVTX functions not installed. Are you sure you have a CUDA build?")


def range_push(msg: str) -> int:
    """Raises RuntimeError: there is no CUDA."""
    raise _Absent


def range_pop() -> int:
    """Raises RuntimeError: there is no CUDA."""
    raise _Absent


def mark(msg: str) -> None:
    """Raises RuntimeError: there is no CUDA."""
    raise _Absent


def range_start(msg: str) -> int:
    """Raises RuntimeError: there is no CUDA."""
    raise _Absent


def range_end(range_id: int) -> None:
    """Raises RuntimeError: there is no CUDA."""
    raise _Absent


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """Raises RuntimeError when it is entered: there is no CUDA."""
    range_push(msg)
    yield


__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]
__getattr__ = missing("adjoint.cuda.nvtx")
