"""How many threads computations use: one number for the kernels and for NumPy's BLAS."""
from __future__ import annotations

import importlib
import operator
from collections.abc import Callable
from typing import Any

from adjoint.base.errors import ArgumentError
from adjoint.ops.public import public

_interop = 1


def _kernels(name: str) -> Any:
    return importlib.import_module("adjoint.kernels." + name)     # not needed to import the package


def in_parts(f: Callable[[int, int], Any], parts: int) -> None:
    """Call `f(first, end)` on ranges that cover `[0, parts)`, from Python threads; `f` is NumPy's
    on large arrays, which lets go of the interpreter."""
    _kernels("threads").parallel_python(f, parts)


@public(method=False)
def set_num_threads(num: int) -> None:
    """Let one operation use `num` threads, the calling one included, from now on.

    Holds for generated kernels and for NumPy's own OpenBLAS, in all threads of the process.
    Results may differ in the last digits between numbers of threads, never between runs.

    Raises:
        ArgumentError: where `num` is not a positive integer, or more than 1024.

    >>> import adjoint as ad
    >>> before = ad.get_num_threads()
    >>> ad.set_num_threads(1); ad.get_num_threads()
    1
    >>> ad.set_num_threads(before)
    """
    _kernels("threads").set_num_threads(_positive("set_num_threads", num))
    _kernels("blas").set_threads(num)


@public(method=False)
def get_num_threads() -> int:
    """How many threads one operation may use.

    At first `$ADJOINT_NUM_THREADS`, else `$OMP_NUM_THREADS`, else the CPUs of this process.

    >>> import adjoint as ad
    >>> ad.get_num_threads() >= 1
    True
    """
    return int(_kernels("threads").get_num_threads())


@public(method=False)
def set_num_interop_threads(num: int) -> None:
    """Accepted for PyTorch's programs: operations run one after the other here.

    Raises:
        ArgumentError: where `num` is not a positive integer.
    """
    global _interop
    _interop = _positive("set_num_interop_threads", num)


@public(method=False)
def get_num_interop_threads() -> int:
    """What `set_num_interop_threads` was given last, 1 at first."""
    return _interop


def _positive(name: str, num: Any) -> int:
    try:
        n = operator.index(num)
    except TypeError:
        n = 0
    if n < 1 or isinstance(num, bool):
        raise ArgumentError(f"{name} expects a positive integer, got {num!r}")
    return n
