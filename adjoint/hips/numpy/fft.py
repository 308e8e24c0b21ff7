"""`autograd.numpy.fft`: `numpy.fft` on arrays and boxes."""
from __future__ import annotations

import numpy as _np

from adjoint.hips.box import counterparts as _counterparts
from adjoint.numpy import fft as _ours

__getattr__ = _counterparts(_np.fft, _ours)


def __dir__() -> list[str]:
    return sorted({*dir(_np.fft), *globals()})


__all__: list[str] = []
