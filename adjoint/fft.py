"""Fourier transforms with derivatives: the functions of `torch.fft`."""
from __future__ import annotations

from adjoint.ops.fourier import FFT as _FFT

globals().update(_FFT)
__all__ = sorted(_FFT)
