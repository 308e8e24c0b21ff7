"""NumPy's bundled OpenBLAS through ctypes: products that NumPy itself does not offer.

`gemm` adds into an existing array (beta = 1) and reads transposed operands in place; `one_thread`
keeps OpenBLAS on the calling thread while our own threads share out a batch. The library is looked
for only inside the NumPy that is imported; where it is not found (a NumPy built against another
BLAS), `library()` is None and callers use `np.matmul`.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_ROW_MAJOR, _PLAIN, _TRANSPOSED = 101, 111, 112
_lock = threading.Lock()
_depth = [0, 0]


class Blas:
    """The entry points of one OpenBLAS with 64-bit integers."""

    def __init__(self, handle: Any) -> None:
        size, pointer, enum = ctypes.c_int64, ctypes.c_void_p, ctypes.c_int
        self._gemm = {}
        for char, scalar in (("s", ctypes.c_float), ("d", ctypes.c_double)):
            f = getattr(handle, f"scipy_cblas_{char}gemm64_")
            f.restype = None
            f.argtypes = [
                enum, enum, enum, size, size, size, scalar, pointer, size, pointer, size, scalar,
                pointer, size,
            ]  # fmt: skip
            self._gemm["f" if char == "s" else "d"] = f
        self._set = handle.scipy_openblas_set_num_threads64_
        self._set.argtypes, self._set.restype = [enum], None
        self._get = handle.scipy_openblas_get_num_threads64_
        self._get.argtypes, self._get.restype = [], enum

    def set_num_threads(self, n: int) -> None:
        """Threads that OpenBLAS uses from the next call on (process-wide)."""
        self._set(n)

    def get_num_threads(self) -> int:
        """Threads that OpenBLAS uses."""
        return int(self._get())

    def gemm(self, a: Array, b: Array, c: Array, *, alpha: float = 1.0, beta: float = 0.0) -> bool:
        """`c = alpha * a b + beta * c` in place; False (and nothing done) if a layout is not
        BLAS's.

        `a` `(M, K)` and `b` `(K, N)` may be transposed views; `c` `(M, N)` has contiguous rows. All
        are float32 or all float64.
        """
        f = self._gemm.get(c.dtype.char)
        if f is None or a.dtype != c.dtype or b.dtype != c.dtype or c.size == 0 or a.size == 0:
            return False
        left, right, target = _layout(a), _layout(b), _layout(c)
        if left is None or right is None or target is None or target[0] != _PLAIN:
            return False
        f(
            _ROW_MAJOR, left[0], right[0], c.shape[0], c.shape[1], a.shape[1], alpha,
            a.ctypes.data, left[1], b.ctypes.data, right[1], beta, c.ctypes.data, target[1],
        )  # fmt: skip
        return True


def _layout(x: Array) -> tuple[int, int] | None:
    """(how to pass a matrix, leading dimension), or None if neither axis is contiguous."""
    size, (rows, cols), (down, across) = x.itemsize, x.shape, x.strides
    if not x.flags.aligned:
        return None
    if (across == size or cols == 1) and down % size == 0 and (down >= cols * size or rows == 1):
        return _PLAIN, max(cols, down // size)
    if (down == size or rows == 1) and across % size == 0 and across >= rows * size:
        return _TRANSPOSED, across // size
    return None


@functools.cache
def library() -> Blas | None:
    """NumPy's own OpenBLAS, or None.

    >>> blas = library()
    >>> blas is None or blas.get_num_threads() >= 1
    True
    """
    package = Path(np.__file__).parent
    folders = [package.parent / "numpy.libs", package / ".libs", package / ".dylibs"]
    for folder in folders:
        for path in sorted(folder.glob("*openblas64*")) if folder.is_dir() else ():
            try:
                return Blas(ctypes.CDLL(str(path)))
            except (OSError, AttributeError):
                continue
    return None


def set_threads(n: int) -> None:
    """Threads of OpenBLAS from now on, or from the end of the `one_thread` blocks that run."""
    blas = library()
    if blas is None:
        return
    with _lock:
        if _depth[0]:
            _depth[1] = n
        else:
            blas.set_num_threads(n)


@contextmanager
def one_thread() -> Iterator[None]:
    """OpenBLAS works on the calling thread inside; nests, also across Python threads."""
    blas = library()
    if blas is None:
        yield
        return
    with _lock:
        if _depth[0] == 0:
            _depth[1] = blas.get_num_threads()
            blas.set_num_threads(1)
        _depth[0] += 1
    try:
        yield
    finally:
        with _lock:
            _depth[0] -= 1
            if _depth[0] == 0:
                blas.set_num_threads(_depth[1])
