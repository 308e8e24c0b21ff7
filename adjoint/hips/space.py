"""Vector spaces of values: arrays and trees of arrays."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from adjoint.base.dtypes import is_inexact
from adjoint.base.tree import flatten, unflatten
from adjoint.hips.box import Box, getval


class VSpace:
    """The real vector space that a value lives in: one array, or a tree of them.

    size      its real dimension: a complex entry counts twice
    iscomplex whether there is a complex array in it
    """

    def __init__(self, value: Any) -> None:
        leaves, self._spec = flatten(value)
        self._arrays = [(np.shape(v), np.asarray(v).dtype) for v in leaves]
        self.iscomplex = any(d.kind == "c" for _, d in self._arrays)
        self.size = sum(int(np.prod(s)) * (1 + (d.kind == "c")) for s, d in self._arrays)
        if self._spec.kind is None:
            (self.shape, self.dtype), = self._arrays
            self.ndim = len(self.shape)

    def _make(self, entry: Callable[..., Any]) -> Any:
        return unflatten([entry(s, d) for s, d in self._arrays], self._spec)

    def _each(self, f: Callable[..., Any], *xs: Any) -> Any:
        columns = zip(*[flatten(x)[0] for x in xs], strict=True)
        return unflatten([f(*vs) for vs in columns], self._spec)

    def zeros(self) -> Any:
        """The origin."""
        return self._make(np.zeros)

    def ones(self) -> Any:
        """One in every entry."""
        return self._make(np.ones)

    def randn(self) -> Any:
        """Normal random entries, from `numpy.random`."""
        def draw(shape: Any, dtype: Any) -> Any:
            x: Any = np.random.randn(*shape)
            return np.asarray(x + 1j * np.random.randn(*shape) if dtype.kind == "c" else x, dtype)
        return self._make(draw)

    def standard_basis(self) -> Iterator[Any]:
        """Every vector with one entry 1 (and 1j, for complex ones) and the rest 0."""
        for n, (shape, dtype) in enumerate(self._arrays):
            for at in np.ndindex(*shape):
                for one in (1.0, 1j) if dtype.kind == "c" else (1.0,):
                    arrays = [np.zeros(s, d) for s, d in self._arrays]
                    arrays[n][at] = one
                    yield unflatten(arrays, self._spec)

    def inner_prod(self, x: Any, y: Any) -> Any:
        """The real inner product."""
        def real(v: Any) -> Any:
            return v.real if np.iscomplexobj(getval(v)) else v

        total: Any = 0.0
        for a, b in zip(flatten(self.covector(x))[0], flatten(y)[0], strict=True):
            product = real(a * b)
            total = total + (product.sum() if np.ndim(getval(product)) else product)
        return total

    def covector(self, x: Any) -> Any:
        """The conjugate."""
        return self._each(lambda v: v.conj() if np.iscomplexobj(getval(v)) else v, x)

    def add(self, x: Any, y: Any) -> Any:
        """The sum."""
        return self._each(lambda a, b: a + b, x, y)

    def mut_add(self, x: Any, y: Any) -> Any:
        """The sum; x None is the origin."""
        return y if x is None else self.add(x, y)

    def scalar_mul(self, x: Any, a: Any) -> Any:
        """The multiple a x."""
        return self._each(lambda v: v * a, x)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, VSpace) and self._key() == other._key()

    def _key(self) -> Any:
        return self._spec, self._arrays

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"VSpace({self._make(lambda s, d: f'{d}{list(s)}')})"


def vspace(value: Any) -> VSpace:
    """The space of a value. TypeError for numbers that are not floating; an array of whole numbers
    or truth values has the space of the real ones, written in its dtype.

    >>> import numpy as np
    >>> vspace({"a": np.ones((2, 3)), "b": 1.0}).size
    7
    """
    value = getval(value)
    for v in flatten(value)[0]:
        if not isinstance(v, (float, complex, np.ndarray, np.generic, Box)) or not is_inexact(
                np.asarray(v).dtype) and not (isinstance(v, np.ndarray) and v.dtype.kind in "iub"):
            raise TypeError(f"Can't find vector space for value {v} of type {type(v)}. Valid types "
                            "are floats, complex numbers, arrays of them and trees of those")
    return VSpace(value)


__all__ = ["VSpace", "vspace"]
