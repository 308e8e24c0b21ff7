"""How many threads the matrix products use."""
from __future__ import annotations

import contextlib
import ctypes
import glob
import os
from pathlib import Path

import numpy as np

_NAMES = ("scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads",
          "openblas_set_num_threads64_", "openblas_set_num_threads")


def _libraries() -> list[str]:
    """The BLAS inside NumPy's wheel, where there is one."""
    base = Path(np.__file__).parent
    patterns = (base.parent / "numpy.libs" / "*openblas*", base / ".dylibs" / "*openblas*")
    return [path for pattern in patterns for path in glob.glob(str(pattern))]


def set_threads(count: int | None) -> None:
    """Use `count` threads (None: leave it as it is) in NumPy's OpenBLAS."""
    if count is None:
        return
    os.environ["OPENBLAS_NUM_THREADS"] = str(count)
    for path in _libraries():
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(path)
            for name in _NAMES:
                if hasattr(library, name):
                    getattr(library, name)(ctypes.c_int(count))
                    return
