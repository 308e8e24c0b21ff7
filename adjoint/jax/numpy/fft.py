"""`jax.numpy.fft`."""
from __future__ import annotations

from typing import Any

import numpy as _np

from adjoint import numpy as _anp
from adjoint.base.errors import missing as _missing
from adjoint.core.tensor import wrap as _wrap
from adjoint.jax._array import as_array as _as_array
from adjoint.jax._array import make as _make
from adjoint.jax._dtypes import default_dtype as _default
from adjoint.jax._table import floating as _floating
from adjoint.jax._table import named as _named

_NAMES = ("fft ifft rfft irfft hfft ihfft fft2 ifft2 rfft2 irfft2 fftn ifftn rfftn irfftn fftshift "
          "ifftshift").split()


def _of(name: str) -> Any:
    ours = getattr(_anp.fft, name)

    def run(a: Any, *args: Any, **kwargs: Any) -> Any:
        if name.endswith("shift"):
            x = _as_array(a, name)
            return _make(ours(x.tensor, *args, **kwargs)) if x.ndim else x
        t = _floating(a, name)
        half = t.array.dtype.itemsize == 2
        return _make(ours(t.to(_np.dtype(_np.float32)) if half else t, *args, **kwargs))
    return _named(run, name, __name__)


def _frequencies(name: str) -> Any:
    def run(n: int, d: Any = 1.0, *, dtype: Any = None, device: Any = None) -> Any:
        return _make(_wrap(getattr(_np.fft, name)(n, float(d)).astype(dtype or _default("float"))))
    return _named(run, name, __name__)


globals().update({name: _of(name) for name in _NAMES})
fftfreq, rfftfreq = _frequencies("fftfreq"), _frequencies("rfftfreq")
__all__ = sorted([*_NAMES, "fftfreq", "rfftfreq"])
__getattr__ = _missing("adjoint.jax.numpy.fft")
