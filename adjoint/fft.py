"""Fourier transforms with derivatives: the functions of `torch.fft`."""
from __future__ import annotations

from adjoint.base.errors import missing as _missing
from adjoint.ops.fourier import FFT as _FFT

globals().update(_FFT)
__all__ = sorted(_FFT)
__getattr__ = _missing("adjoint.fft")
