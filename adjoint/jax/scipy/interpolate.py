"""`jax.scipy.interpolate`: values between the points of a grid."""
from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from adjoint.base.errors import missing as _missing
from adjoint.jax import numpy as _jnp
from adjoint.jax._array import as_array as _as_array
from adjoint.jax._util import promote_dtypes_inexact as _inexact

_n: Any = _jnp
_METHODS = ("linear", "nearest")


def _known(method: str) -> None:
    if method not in _METHODS:
        raise ValueError(f"method '{method}' is not defined")


class RegularGridInterpolator:
    """Values of a function between the points of a rectangular grid: `f = RegularGridInterpolator(
    points, values)`, `f(places)` with places of shape (..., axes).

    >>> from adjoint.jax.scipy.interpolate import RegularGridInterpolator
    >>> f = RegularGridInterpolator(([0.0, 1.0], [0.0, 2.0]), [[0.0, 2.0], [1.0, 3.0]])
    >>> f([[0.5, 1.0]])
    Array([1.5], dtype=float32)
    """

    def __init__(self, points: Any, values: Any, method: str = "linear",
                 bounds_error: bool = False, fill_value: Any = np.nan) -> None:
        _known(method)
        self.method, self.bounds_error = method, bounds_error
        if bounds_error:
            raise NotImplementedError("`bounds_error` takes no effect under JIT")
        self.values, = _inexact(_n.asarray(values))
        if len(points) > self.values.ndim:
            raise ValueError(f"there are {len(points)} point arrays, but values has "
                             f"{self.values.ndim} dimensions")
        self.fill_value = None if fill_value is None else _as_array(fill_value)
        self.grid = tuple(_inexact(_n.asarray(p))[0] for p in points)
        for i, p in enumerate(self.grid):
            if p.ndim != 1:
                raise ValueError(f"the points in dimension {i} must be 1-dimensional")
            if self.values.shape[i] != p.shape[0]:
                raise ValueError(f"there are {p.shape[0]} points and {self.values.shape[i]} "
                                 f"values in dimension {i}")

    def __call__(self, xi: Any, method: str | None = None) -> Any:
        """The values at places, a tuple of arrays of coordinates or an array of rows of them."""
        method = self.method if method is None else method
        _known(method)
        count = len(self.grid)
        if isinstance(xi, tuple) and len(xi) == 1 and not isinstance(xi[0], tuple):
            xi = xi[0]
        if isinstance(xi, tuple):
            xi = _n.stack(_n.broadcast_arrays(*map(_n.asarray, xi)), -1)
        xi, = _inexact(_n.asarray(xi))
        if xi.ndim == 1 and count == 1:
            xi = xi[:, None]
        if xi.shape[-1:] != (count,):
            raise ValueError(f"the requested sample points xi have dimension {xi.shape[-1]}, but "
                             f"this RegularGridInterpolator has dimension {count}")
        flat = xi.reshape(-1, count)
        found = self._linear(flat) if method == "linear" else self._nearest(flat)
        if self.fill_value is not None:
            out = _n.stack([(flat[:, i] < g[0]) | (flat[:, i] > g[-1])
                            for i, g in enumerate(self.grid)]).any(0)
            found = _n.where(out.reshape(-1, *[1] * (found.ndim - 1)), self.fill_value, found)
        return found.reshape(*xi.shape[:-1], *self.values.shape[count:])

    def _cells(self, flat: Any) -> list[tuple[Any, Any]]:
        """In each axis the point below, and the part of the way to the next."""
        out = []
        for i, g in enumerate(self.grid):
            low = _n.clip(_n.searchsorted(g, flat[:, i]) - 1, 0, g.shape[0] - 2)
            out.append((low, (flat[:, i] - g[low]) / (g[low + 1] - g[low])))
        return out

    def _linear(self, flat: Any) -> Any:
        cells, total = self._cells(flat), 0.0
        for corner in itertools.product((0, 1), repeat=len(cells)):
            weight: Any = 1.0
            for (_, part), up in zip(cells, corner, strict=True):
                weight = weight * (part if up else 1 - part)
            picked = self.values[tuple(low + up for (low, _), up in zip(cells, corner,
                                                                        strict=True))]
            total = total + picked * weight.reshape(-1, *[1] * (picked.ndim - 1))
        return total

    def _nearest(self, flat: Any) -> Any:
        return self.values[tuple(_n.where(part <= 0.5, low, low + 1)
                                 for low, part in self._cells(flat))]


__all__ = ["RegularGridInterpolator"]
__getattr__ = _missing("adjoint.jax.scipy.interpolate")
