"""`autograd.numpy.fft`: `numpy.fft` on arrays and boxes."""
from __future__ import annotations

from typing import Any

import numpy as _np

from adjoint.hips.box import on_arrays as _on_arrays
from adjoint.numpy import fft as _ours


def __getattr__(name: str) -> Any:
    theirs = getattr(_np.fft, name)
    if isinstance(theirs, type) or not callable(theirs):
        return theirs
    globals()[name] = made = _on_arrays(theirs, getattr(_ours, name))
    return made


__all__: list[str] = []
