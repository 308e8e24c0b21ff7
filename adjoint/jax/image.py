"""`jax.image`: resizing, scaling and moving as products with a matrix per axis."""
from __future__ import annotations

import enum
from typing import Any

import numpy as np

from adjoint.base.errors import missing as _missing
from adjoint.core.tensor import wrap
from adjoint.jax import numpy as _jnp
from adjoint.jax._array import as_array, make, tensor_of
from adjoint.jax._table import T, floating
from adjoint.jax._util import canonicalize_axis

_n: Any = _jnp


class ResizeMethod(enum.Enum):
    """How samples between pixels are made."""

    NEAREST = 0
    LINEAR = 1
    LANCZOS3 = 2
    LANCZOS5 = 3
    CUBIC = 4
    CUBIC_PYTORCH = 5
    AREA = 6

    @staticmethod
    def from_string(s: str) -> ResizeMethod:
        """The method of a name; ValueError for others."""
        found = _NAMES.get(s)
        if found is None:
            raise ValueError(f'Unknown resize method "{s}"')
        return found


_M = ResizeMethod
_NAMES = {"nearest": _M.NEAREST, "linear": _M.LINEAR, "bilinear": _M.LINEAR,
          "trilinear": _M.LINEAR, "triangle": _M.LINEAR, "lanczos3": _M.LANCZOS3,
          "lanczos5": _M.LANCZOS5, "cubic": _M.CUBIC, "bicubic": _M.CUBIC, "tricubic": _M.CUBIC,
          "cubic-pytorch": _M.CUBIC_PYTORCH, "bicubic-pytorch": _M.CUBIC_PYTORCH, "area": _M.AREA}


def _cubic(x: Any, a: float = -0.5) -> Any:
    near = ((a + 2) * x - (a + 3)) * x * x + 1.0
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return _n.where(x >= 2, 0.0, _n.where(x >= 1, far, near))


def _lanczos(radius: int) -> Any:
    return lambda x: _n.where(x > radius, 0.0, _n.sinc(x) * _n.sinc(x / radius))


_KERNELS = {_M.LINEAR: lambda x: _n.maximum(0, 1 - x), _M.CUBIC: _cubic,
            _M.CUBIC_PYTORCH: _cubic, _M.LANCZOS3: _lanczos(3), _M.LANCZOS5: _lanczos(5)}


def _edged(n: int, at: Any) -> Any:
    """The weights of PyTorch's cubic: the two pixels outside of the image are its edge."""
    low, total = _n.floor(at), 0.0
    for k in range(-1, 3):
        index = _n.clip(low + k, 0, n - 1).astype("int32")
        own = np.arange(n)[:, None] == index[None, :]
        total = total + own * _cubic(_n.abs(at - low - k), -0.75)[None, :]
    return _n.where((at >= -2.5) & (at <= n + 1.5), total, 0)


def _weights(n: int, m: int, scale: Any, shift: Any, method: ResizeMethod, antialias: bool,
             dtype: Any) -> Any:
    """(n, m): how much of each of n samples is in each of m."""
    inverse = 1.0 / scale
    centers = _n.arange(m, dtype=dtype) + 0.5
    at = centers * inverse - shift * inverse - 0.5
    if method is _M.CUBIC_PYTORCH and not antialias:
        return _edged(n, at)
    pixels = _n.arange(n, dtype=dtype)[:, None]
    if method is _M.AREA:
        low, high = at + 0.5 - inverse / 2, at + 0.5 + inverse / 2
        found = _n.maximum(_n.minimum(high, pixels + 1) - _n.maximum(low, pixels), 0)
    else:
        width = _n.maximum(inverse, 1.0) if antialias else 1.0
        found = _KERNELS[method](_n.abs(at[None, :] - pixels) / width)
    total = found.sum(0, keepdims=True)
    some = _n.abs(total) > 1000 * float(np.finfo(np.float32).eps)
    found = _n.where(some, found / _n.where(total != 0, total, 1), 0)
    return _n.where((at >= -0.5) & (at <= n - 0.5), found, 0).astype(dtype)


def _checked(image: Any, shape: Any, method: Any) -> ResizeMethod:
    if len(shape) != image.ndim:
        raise ValueError("shape must have length equal to the number of dimensions of x;  "
                         f"{tuple(shape)} vs {image.shape}")
    return method if isinstance(method, ResizeMethod) else ResizeMethod.from_string(method)


def _along(t: Any, axis: int, weights: Any) -> Any:
    return T["movedim"](T["matmul"](T["movedim"](t, axis, -1), weights.tensor), -1, axis)


def resize(image: Any, shape: Any, method: Any, antialias: bool = True, precision: Any = None
           ) -> Any:
    """An array in another shape: method "nearest", "linear", "cubic", "lanczos3", "lanczos5",
    "area" or "cubic-pytorch"."""
    kind = _checked(as_array(image), shape, method)
    t = tensor_of(image) if kind is _M.NEAREST else floating(image, "resize")
    for d, (n, m) in enumerate(zip(tuple(t.shape), shape, strict=True)):
        if n == m:
            continue
        if kind is _M.NEAREST:
            at = np.floor((np.arange(m) + 0.5) * n / m).astype(np.int64)
            t = T["index_select"](t, d, wrap(at))
            continue
        t = _along(t, d, _weights(n, m, m / n, 0.0, kind, antialias, t.array.dtype))
    return make(t)


def scale_and_translate(image: Any, shape: Any, spatial_dims: Any, scale: Any, translation: Any,
                        method: Any, antialias: bool = True, precision: Any = None) -> Any:
    """An image scaled and moved along some axes: what was at p is at p * scale + translation, and
    0 is where nothing was. Differentiable by all three.

    >>> from adjoint.jax import image, numpy as jnp
    >>> image.scale_and_translate(jnp.arange(3.0), (3,), (0,), jnp.ones(1), jnp.ones(1), "linear")
    Array([0., 0., 1.], dtype=float32)
    """
    kind = _checked(as_array(image), shape, method)
    if kind is _M.NEAREST:
        raise ValueError("Nearest neighbor resampling is not currently supported for "
                         "scale_and_translate.")
    t = floating(image, "scale_and_translate")
    scale, translation = _n.asarray(scale), _n.asarray(translation)
    for i, d in enumerate(spatial_dims):
        d = canonicalize_axis(d, t.ndim)
        w = _weights(t.shape[d], shape[d], scale[i], translation[i], kind, antialias,
                     t.array.dtype)
        t = _along(t, d, w)
    return make(t)


__getattr__ = _missing("adjoint.jax.image")
