"""`autograd.numpy`: every name of NumPy, on arrays and boxes alike.

Arrays give NumPy's own results; where a box is among the arguments, the function is that of
`adjoint.numpy`, and the result is a box.
"""
from __future__ import annotations

from importlib import import_module as _import_module
from typing import Any

import numpy as _np

from adjoint.hips.numpy import _functions, fft, linalg, random
from adjoint.hips.numpy._functions import (
    array,
    array_from_args,
    asarray,
    astype,
    c_,
    concatenate,
    concatenate_args,
    full,
    iscomplexobj,
    isrealobj,
    linspace,
    make_diagonal,
    metadata,
    ndim,
    r_,
    shape,
    size,
)

_PARTS = ("numpy_boxes", "numpy_jvps", "numpy_vjps", "numpy_vspaces", "numpy_wrapper")


def __getattr__(name: str) -> Any:
    # kept among the names here; nothing in this module may use a builtin that NumPy has a name of
    if name in _PARTS:
        return _import_module(f"adjoint.hips.numpy.{name}")
    globals()[name] = made = _functions.of_numpy(name)
    return made


def __dir__() -> list[str]:
    return sorted({*dir(_np), *globals()})


__all__ = ["array", "array_from_args", "asarray", "astype", "c_", "concatenate",
           "concatenate_args", "fft", "full", "iscomplexobj", "isrealobj", "linalg", "linspace",
           "make_diagonal", "metadata", "ndim", "r_", "random", "shape", "size"]
