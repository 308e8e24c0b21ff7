"""The `fft` extension of the array API standard."""
from __future__ import annotations

from typing import Any

from adjoint.ops.fourier import FFT


def _one(name: str) -> Any:
    def f(x: Any, /, *, n: Any = None, axis: int = -1, norm: str = "backward") -> Any:
        return FFT[name](x, n, axis, norm)
    f.__name__, f.__doc__ = name, f"`{name}` along an axis."
    return f


def _many(name: str) -> Any:
    def f(x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Any:
        return FFT[name](x, s, axes, norm)
    f.__name__, f.__doc__ = name, f"`{name}` over axes."
    return f


def _shift(name: str) -> Any:
    def f(x: Any, /, *, axes: Any = None) -> Any:
        return FFT[name](x, axes)
    f.__name__, f.__doc__ = name, f"`{name}` over axes."
    return f


def _frequencies(name: str) -> Any:
    def f(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
        return FFT[name](n, d, dtype=dtype)
    f.__name__, f.__doc__ = name, f"`{name}`: the frequencies of a transform of n points."
    return f


fft, ifft, rfft, irfft, hfft, ihfft = map(_one, ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"))
fftn, ifftn, rfftn, irfftn = map(_many, ("fftn", "ifftn", "rfftn", "irfftn"))
fftshift, ifftshift = map(_shift, ("fftshift", "ifftshift"))
fftfreq, rfftfreq = map(_frequencies, ("fftfreq", "rfftfreq"))
__all__ = ["fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft",
           "irfft", "irfftn", "rfft", "rfftfreq", "rfftn"]
