"""`numpy.fft` on tensors."""
from __future__ import annotations

from typing import Any

import numpy as _np

from adjoint import fft as _ours
from adjoint.numpy._table import TABLE as _TABLE
from adjoint.numpy._table import as_tensor as _t
from adjoint.numpy._table import like as _like


def _one(name: str) -> None:
    def run(a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None) -> Any:
        return getattr(_ours, name)(_t(a), n, axis, norm)
    _like(f"fft.{name}")(run)


def _many(name: str, axes: Any) -> None:
    def run(a: Any, s: Any = None, axes: Any = axes, norm: Any = None, out: Any = None) -> Any:
        return getattr(_ours, name)(_t(a), s, axes, norm)
    _like(f"fft.{name}")(run)


for _name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
    _one(_name)
for _name in ("fft2", "ifft2", "rfft2", "irfft2"):
    _many(_name, (-2, -1))
for _name in ("fftn", "ifftn", "rfftn", "irfftn"):
    _many(_name, None)
for _name in ("fftshift", "ifftshift"):
    _like(f"fft.{_name}")(lambda x, axes=None, _n=_name: getattr(_ours, _n)(_t(x), axes))


def __getattr__(name: str) -> Any:
    found = _TABLE.get(f"fft.{name}")
    return found if found is not None else getattr(_np.fft, name)


__all__: list[str] = []
