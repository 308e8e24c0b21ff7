"""`jax.scipy.signal`: convolutions and spectra."""
from __future__ import annotations

from typing import Any

from adjoint.base.errors import missing as _missing
from adjoint.jax._array import joined as _joined
from adjoint.jax._array import make as _make
from adjoint.jax._table import T as _T
from adjoint.jax._util import canonicalize_axis as _axis
from adjoint.jax.scipy._spectral import csd, detrend, istft, stft, welch


def convolve(in1: Any, in2: Any, mode: str = "full", method: str = "auto", precision: Any = None
             ) -> Any:
    """A convolution over all axes (up to 3)."""
    (x, y), _ = _joined("convolve", (in1, in2), floating=True)
    if x.ndim != y.ndim:
        raise ValueError("in1 and in2 must have the same number of dimensions")
    if mode == "valid" and all(b >= a for a, b in zip(x.shape, y.shape, strict=True)):
        x, y = y, x
    n, dims = x.ndim, tuple(range(x.ndim))
    pads = [k - 1 for k in y.shape] if mode != "valid" else [0] * n
    found = _T[f"conv{n}d"](x[None, None], y.flip(dims)[None, None], None, 1, tuple(pads))[0, 0]
    if mode == "same":
        for d, (a, k) in enumerate(zip(x.shape, y.shape, strict=True)):
            found = _T["narrow"](found, d, (k - 1) // 2, a)
    return _make(found)


def convolve2d(in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: Any = 0,
               precision: Any = None) -> Any:
    """A convolution of images."""
    if boundary != "fill" or fillvalue != 0:
        raise NotImplementedError("convolve2d() only supports boundary='fill', fillvalue=0")
    return convolve(in1, in2, mode)


def correlate(in1: Any, in2: Any, mode: str = "full", method: str = "auto", precision: Any = None
              ) -> Any:
    """A correlation over all axes."""
    (x, y), _ = _joined("correlate", (in1, in2), floating=True)
    y = y.conj() if y.is_complex() else y
    return convolve(_make(x), _make(y.flip(tuple(range(y.ndim)))), mode)


def fftconvolve(in1: Any, in2: Any, mode: str = "full", axes: Any = None) -> Any:
    """A convolution over all axes, or over `axes` alone, mapped over the others."""
    if axes is None:
        return convolve(in1, in2, mode)
    (x, y), _ = _joined("fftconvolve", (in1, in2), floating=True)
    if x.ndim != y.ndim:
        raise ValueError("in1 and in2 must have the same number of dimensions")
    dims = [_axis(d, x.ndim) for d in ((axes,) if isinstance(axes, int) else axes)]
    rest = [d for d in range(x.ndim) if d not in dims]
    lead = [x.shape[d] for d in rest]
    if lead != [y.shape[d] for d in rest]:
        raise ValueError(f"mapped axes must have same shape; got in1.shape={tuple(x.shape)} "
                         f"in2.shape={tuple(y.shape)} axes={tuple(dims)}")

    def rows(t: Any) -> Any:
        t = t.permute(*rest, *dims)
        return _make(t.reshape((-1, *t.shape[len(rest):])))
    from adjoint.jax._vmap import vmap
    found = vmap(lambda a, b: convolve(a, b, mode))(rows(x), rows(y)).tensor
    found = found.reshape((*lead, *found.shape[1:]))
    return _make(found.permute(*[(rest + dims).index(d) for d in range(x.ndim)]))


def correlate2d(in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: Any = 0,
                precision: Any = None) -> Any:
    """A correlation of images."""
    if boundary != "fill" or fillvalue != 0:
        raise NotImplementedError("correlate2d() only supports boundary='fill', fillvalue=0")
    return correlate(in1, in2, mode)


__all__ = ["csd", "detrend", "istft", "stft", "welch"]
__getattr__ = _missing("adjoint.jax.scipy.signal")
