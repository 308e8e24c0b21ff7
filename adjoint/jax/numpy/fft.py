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
from adjoint.jax._words import placing as _placing
from adjoint.jax._words import taking as _taking

_NAMES = ("fft ifft rfft irfft hfft ihfft fft2 ifft2 rfft2 irfft2 fftn ifftn rfftn irfftn fftshift "
          "ifftshift").split()


def _check(name: str, t: Any, size: Any, axis: Any, norm: Any) -> None:
    """ValueError, in JAX's words, for axes and sizes that a transform cannot take."""
    own = f"jax.numpy.fft.{name}"
    if name[-1] not in "2n":
        if isinstance(axis, (tuple, list)):
            raise ValueError(f"{own} does not support multiple axes. Please use {own}n. Got axis = "
                             f"{axis!r}.")
        axes, sizes = (-1 if axis is None else axis,), () if size is None else (size,)
    else:
        sizes = () if size is None else tuple(size)
        whole = (-2, -1) if name[-1] == "2" else range(-(len(sizes) or t.ndim), 0)
        axes = tuple(whole if axis is None else axis)
        if name[-1] == "2" and len(axes) != 2:
            raise ValueError(f"{own} only supports 2 axes. Got axes = {axis!r}.")
        if len(set(axes)) < len(axes):
            raise ValueError(f"{own} does not support repeated axes. Got axes {axis!r}.")
        if sizes and len(sizes) != len(axes):
            raise ValueError("Shape and axes have different lengths.")
    for a in axes:
        if not -t.ndim <= a < t.ndim:
            raise ValueError(f"axis {a} is out of bounds for array of dimension {t.ndim}")
    if any([n < 1 for n in sizes]):
        raise ValueError("Shape should be positive.")
    if norm not in (None, "backward", "ortho", "forward"):
        raise ValueError(f'Invalid norm value {norm}; should be "backward","ortho" or "forward".')
    if name.startswith(("rfft", "ihfft")) and t.is_complex():
        raise ValueError("only real valued inputs supported for rfft")


def _of(name: str) -> Any:
    ours = getattr(_anp.fft, name)

    def run(a: Any, *args: Any) -> Any:
        if name.endswith("shift"):
            x = _as_array(a, name)
            return _make(ours(x.tensor, *args)) if x.ndim else x
        t = _floating(a, name)
        _check(name, t, *args)
        half = t.array.dtype.itemsize == 2
        return _make(ours(t.to(_np.dtype(_np.float32)) if half else t, *args))
    words = ("x, axes=None" if name.endswith("shift") else "a, s=None, axes=(-2, -1), norm=None"
             if name[-1] == "2" else "a, s=None, axes=None, norm=None" if name[-1] == "n" else
             "a, n=None, axis=-1, norm=None")
    return _named(_taking(words, run), name, __name__)


def _frequencies(name: str) -> Any:
    def run(n: int, d: Any = 1.0, *, dtype: Any = None) -> Any:
        return _make(_wrap(getattr(_np.fft, name)(n, float(d)).astype(dtype or _default("float"))))
    return _placing("device")(_named(run, name, __name__))


globals().update({name: _of(name) for name in _NAMES})
fftfreq, rfftfreq = _frequencies("fftfreq"), _frequencies("rfftfreq")
__all__ = sorted([*_NAMES, "fftfreq", "rfftfreq"])
__getattr__ = _missing("adjoint.jax.numpy.fft")
