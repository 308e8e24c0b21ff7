"""`autograd.numpy.random`: NumPy's, where a box among the arguments stands for its value."""
from __future__ import annotations

from typing import Any

import numpy as _np

from adjoint.hips.extend import notrace_primitive as _notrace


def __getattr__(name: str) -> Any:
    theirs = getattr(_np.random, name)
    return theirs if isinstance(theirs, type) or not callable(theirs) else _notrace(theirs)


def __dir__() -> list[str]:
    return sorted({*dir(_np.random), *globals()})


__all__: list[str] = []
