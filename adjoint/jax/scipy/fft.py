"""`jax.scipy.fft`: the cosine transform of the second type and its inverse."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as _np

from adjoint.base.errors import missing as _missing
from adjoint.jax import numpy as _jnp
from adjoint.jax._util import canonicalize_axis as _canonical

_n: Any = _jnp


def _fitted(x: Any, n: int | None, axis: int) -> tuple[Any, int]:
    """The last axis is the transformed one, cut or filled with zeros to n."""
    a = _n.moveaxis(x, _canonical(axis, x.ndim), -1)
    size = a.shape[-1] if n is None else n
    if size > a.shape[-1]:
        return _n.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, size - a.shape[-1])]), size
    return a[..., :size], size


def _checked(x: Any, type: int) -> Any:
    if type != 2:
        raise NotImplementedError("Only DCT type 2 is implemented.")
    a = _n.asarray(x)
    if a.dtype.kind == "c":
        raise TypeError("the cosine transform is of real arrays")
    return a if a.dtype.kind == "f" else a.astype(float)


def _turn(n: int, sign: int, like: Any) -> Any:
    """exp(sign i pi k / 2n) for k < n."""
    wide = _np.exp(sign * 0.5j * _np.pi * _np.arange(n) / n)
    return _n.asarray(wide.astype(_np.result_type(like.dtype, _np.complex64)))


def _scale(n: int, norm: str | None, like: Any) -> Any:
    s = _np.ones(n)
    if norm == "ortho":
        s = _np.full(n, 1 / _np.sqrt(2 * n))
        s[0] = 1 / _np.sqrt(4 * n)
    elif norm not in (None, "backward"):
        raise ValueError(f"jax.scipy.fft.dct: {norm!r} is not implemented")
    return _n.asarray(s.astype(like.dtype))


def dct(x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None
        ) -> Any:
    """y[k] = 2 sum x[j] cos(pi k (2j + 1) / 2n), by one Fourier transform of n points.

    Source: J. Makhoul, "A fast cosine transform in one and two dimensions" (1980).
    """
    a, size = _fitted(_checked(x, type), n, axis)
    v = _n.concatenate([a[..., ::2], a[..., 1::2][..., ::-1]], -1)
    y = 2 * _n.real(_n.fft.fft(v, axis=-1) * _turn(size, -1, a))
    return _n.moveaxis(y.astype(a.dtype) * _scale(size, norm, a), -1, _canonical(axis, a.ndim))


def idct(x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None
         ) -> Any:
    """The x of which `dct` gives this."""
    a, size = _fitted(_checked(x, type), n, axis)
    y = a / _scale(size, norm, a)
    back = _n.concatenate([_n.zeros_like(y[..., :1]), y[..., :0:-1]], -1)
    v = _n.real(_n.fft.ifft((y - 1j * back) * _turn(size, 1, a), axis=-1)).astype(a.dtype) / 2
    half = (size + 1) // 2
    at = _np.empty(size, int)
    at[::2], at[1::2] = _np.arange(half), _np.arange(size - 1, half - 1, -1)
    return _n.moveaxis(v[..., at], -1, _canonical(axis, a.ndim))


def _over(run: Any, x: Any, type: int, s: Sequence[int] | None, axes: Sequence[int] | None,
          norm: str | None) -> Any:
    ndim = _np.ndim(x)
    if axes is None:
        axes = range(ndim) if s is None else range(ndim - len(s), ndim)
    for i, d in enumerate(axes):
        x = run(x, type, None if s is None else s[i], d, norm)
    return x


def dctn(x: Any, type: int = 2, s: Any = None, axes: Any = None, norm: str | None = None) -> Any:
    """`dct` over several axes."""
    return _over(dct, x, type, s, axes, norm)


def idctn(x: Any, type: int = 2, s: Any = None, axes: Any = None, norm: str | None = None) -> Any:
    """`idct` over several axes."""
    return _over(idct, x, type, s, axes, norm)


__all__ = ["dct", "dctn", "idct", "idctn"]
__getattr__ = _missing("adjoint.jax.scipy.fft")
