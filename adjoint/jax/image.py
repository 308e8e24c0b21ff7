"""`jax.image`: resizing as products with a matrix per axis."""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.base.errors import missing as _missing
from adjoint.core.tensor import wrap
from adjoint.jax._array import make
from adjoint.jax._table import T, floating


def _cubic(x: Any) -> Any:
    near = ((1.5 * x - 2.5) * x) * x + 1.0
    far = ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    return np.where(x >= 2, 0.0, np.where(x >= 1, far, near))


def _lanczos(radius: int) -> Any:
    return lambda x: np.where(x > radius, 0.0, np.sinc(x) * np.sinc(x / radius))


_KERNELS = {"linear": lambda x: np.maximum(0, 1 - x), "cubic": _cubic, "lanczos3": _lanczos(3),
            "lanczos5": _lanczos(5)}
_ALIASES = {"bilinear": "linear", "trilinear": "linear", "triangle": "linear", "bicubic": "cubic",
            "tricubic": "cubic"}


def _weights(n: int, m: int, kernel: Any, antialias: bool) -> Any:
    """(n, m): how much of each of n samples is in each of m."""
    inverse = n / m
    width = max(inverse, 1.0) if antialias else 1.0
    at = (np.arange(m) + 0.5) * inverse - 0.5
    found = kernel(np.abs(at[None, :] - np.arange(n)[:, None]) / width)
    total = found.sum(0, keepdims=True)
    found = np.where(np.abs(total) > 1e-6, found / np.where(total != 0, total, 1), 0)
    return np.where((at >= -0.5) & (at <= n - 0.5), found, 0)


def resize(image: Any, shape: Any, method: Any, antialias: bool = True, precision: Any = None
           ) -> Any:
    """An array in another shape: method "nearest", "linear", "cubic", "lanczos3" or "lanczos5"."""
    t = floating(image, "resize")
    name = str(getattr(method, "name", method)).lower()
    name = _ALIASES.get(name, name)
    for d, (n, m) in enumerate(zip(tuple(t.shape), shape, strict=True)):
        if n == m:
            continue
        if name == "nearest":
            at = np.floor((np.arange(m) + 0.5) * n / m).astype(np.int64)
            t = T["index_select"](t, d, wrap(at))
            continue
        if name not in _KERNELS:
            raise ValueError(f"Unknown resize method \"{method}\"")
        w = wrap(_weights(n, m, _KERNELS[name], antialias).astype(t.array.dtype))
        t = T["movedim"](T["matmul"](T["movedim"](t, d, -1), w), -1, d)
    return make(t)


__getattr__ = _missing("adjoint.jax.image")
