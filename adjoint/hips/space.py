"""Vector spaces of values: arrays and trees of arrays."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from adjoint.base.dtypes import is_inexact
from adjoint.base.tree import flatten, tree_map, unflatten
from adjoint.hips.box import Box, getval


def _into(a: Any, b: Any) -> Any:
    """a + b, in the array a where the sum has its dtype."""
    total = a + b
    if not isinstance(a, np.ndarray) or isinstance(total, Box) or (
            np.asarray(total).dtype != a.dtype or np.shape(total) != a.shape):
        return total
    a[...] = total
    return a


class VSpace:
    """The real vector space that a value lives in: one array, or a tree of them.

    size      its real dimension: a complex entry counts twice
    iscomplex whether there is a complex array in it

    A space of another type of value is a class below this one, made known by `register`; it may
    define `_add`, `_mut_add`, `_scalar_mul`, `_inner_prod` and `_covector`.
    """

    mappings: dict[type, Callable[[Any], VSpace]] = {}    # of types, what makes their spaces
    iscomplex = False

    def __init__(self, value: Any) -> None:
        leaves, self._spec = flatten(value)
        self._arrays = [(np.shape(v), np.asarray(v).dtype) for v in leaves]
        self.iscomplex = any(d.kind == "c" for _, d in self._arrays)
        self.size = sum(int(np.prod(s)) * (1 + (d.kind == "c")) for s, d in self._arrays)

    @classmethod
    def register(cls, value_type: type, vspace_maker: Callable[[Any], VSpace] | None = None
                 ) -> None:
        """Values of that type live in spaces that `vspace_maker` makes (default: this class)."""
        VSpace.mappings[value_type] = vspace_maker or cls

    def _make(self, entry: Callable[..., Any]) -> Any:
        return unflatten([entry(s, d) for s, d in self._arrays], self._spec)

    def _each(self, f: Callable[..., Any], *xs: Any) -> Any:
        trees = [flatten(x) for x in xs]
        columns = zip(*[leaves for leaves, _ in trees], strict=True)
        return unflatten([f(*vs) for vs in columns], trees[0][1])

    def zeros(self) -> Any:
        """The origin."""
        return self._make(np.zeros)

    def ones(self) -> Any:
        """One in every entry, 1 + 1j in complex ones."""
        return self._make(lambda s, d: np.full(s, 1 + 1j if d.kind == "c" else 1, d))

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

    def _inner_prod(self, x: Any, y: Any) -> Any:
        def real(v: Any) -> Any:
            return v.real if np.iscomplexobj(getval(v)) else v

        total: Any = 0.0                                # a number, so that the parts' dtype stays
        for a, b in zip(flatten(self.covector(x))[0], flatten(y)[0], strict=True):
            product = real(a * b)
            total = total + (product.sum() if np.ndim(getval(product)) else product)
        return total

    def _covector(self, x: Any) -> Any:
        return self._each(lambda v: (v.conjugate() if isinstance(v, complex) else v.conj())
                          if np.iscomplexobj(getval(v)) else v, x)

    def _add(self, x: Any, y: Any) -> Any:
        return self._each(lambda a, b: a + b, x, y)

    def _mut_add(self, x: Any, y: Any) -> Any:
        return self._each(_into, x, y)

    def _scalar_mul(self, x: Any, a: Any) -> Any:
        return self._each(lambda v: v * a, x)

    def inner_prod(self, x: Any, y: Any) -> Any:
        """The real inner product."""
        return self._inner_prod(x, y)

    def covector(self, x: Any) -> Any:
        """The conjugate."""
        return self._covector(x)

    def add(self, x: Any, y: Any) -> Any:
        """The sum."""
        return self._add(x, y)

    def mut_add(self, x: Any, y: Any) -> Any:
        """The sum, written to the arrays of x; x None is the origin."""
        return self._mut_add(self.zeros() if x is None else x, y)

    def scalar_mul(self, x: Any, a: Any) -> Any:
        """The multiple a x."""
        return self._scalar_mul(x, a)

    def _key(self) -> Any:
        return type(self), {**self.__dict__, "_spec": getattr(self, "_spec", None)}

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, VSpace) and self._key() == other._key()

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        kinds = self._make(lambda s, d: f"{d}{list(s)}") if hasattr(self, "_spec") else ""
        return f"{type(self).__name__}({kinds})"


class ArrayVSpace(VSpace):
    """The space of one array: its shape, dtype and number of axes."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        (self.shape, self.dtype), = self._arrays
        self.ndim = len(self.shape)


class ComplexArrayVSpace(ArrayVSpace):
    """The space of one complex array."""


class ContainerVSpace(VSpace):
    """The space of a container; `shape` is the container with a space in each value's place."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.shape = tree_map(vspace, value, is_leaf=lambda v: v is not value)


class SequenceVSpace(ContainerVSpace):
    """The space of a sequence."""

    @property
    def seq_type(self) -> Any:
        """The type of the sequence."""
        return self._spec.kind


class ListVSpace(SequenceVSpace):
    """The space of a list."""


class TupleVSpace(SequenceVSpace):
    """The space of a tuple."""


class NamedTupleVSpace(SequenceVSpace):
    """The space of a named tuple."""


class DictVSpace(ContainerVSpace):
    """The space of a dict."""


_CONTAINERS: dict[Any, type[VSpace]] = {list: ListVSpace, tuple: TupleVSpace, dict: DictVSpace}


def _space_class(value: Any) -> Callable[[Any], VSpace]:
    if isinstance(value, (np.ndarray, np.generic, float, complex)):
        return ComplexArrayVSpace if np.iscomplexobj(value) else ArrayVSpace
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return NamedTupleVSpace
    return next((c for kind, c in _CONTAINERS.items() if isinstance(value, kind)), VSpace)


def vspace(value: Any) -> VSpace:
    """The space of a value. TypeError for numbers that are not floating; an array of whole numbers
    or truth values has the space of the real ones, written in its dtype.

    >>> import numpy as np
    >>> vspace({"a": np.ones((2, 3)), "b": 1.0}).size
    7
    """
    value = getval(value)
    if type(value) in VSpace.mappings:
        return VSpace.mappings[type(value)](value)
    for v in flatten(value)[0] or [value]:
        if type(v) in VSpace.mappings or (v is value and isinstance(v, (list, tuple, dict))):
            continue
        if not isinstance(v, (float, complex, np.ndarray, np.generic, Box)) or not is_inexact(
                np.asarray(v).dtype) and not (isinstance(v, np.ndarray) and v.dtype.kind in "iub"):
            raise TypeError(f"Can't find vector space for value {v} of type {type(v)}. Valid types "
                            "are floats, complex numbers, arrays of them and trees of those")
    return _space_class(value)(value)


class SparseObject:
    """A cotangent that is cheaper to add to another one than to write out: `mut_add(x)` adds it to
    x, which it may write to, and returns the sum.

    >>> import numpy as np
    >>> dense(SparseObject(vspace(np.ones(3)), lambda x: x + 2))
    array([2., 2., 2.])
    """

    __slots__ = ["mut_add", "vs"]

    def __init__(self, vs: VSpace, mut_add: Callable[[Any], Any]) -> None:
        self.vs, self.mut_add = vs, mut_add


VSpace.register(SparseObject, lambda x: x.vs)


def dense(x: Any) -> Any:
    """A cotangent written out."""
    return x.mut_add(x.vs.zeros()) if isinstance(x, SparseObject) else x


__all__ = ["ArrayVSpace", "ComplexArrayVSpace", "ContainerVSpace", "DictVSpace", "ListVSpace",
           "NamedTupleVSpace", "SequenceVSpace", "SparseObject", "TupleVSpace", "VSpace", "dense",
           "vspace"]
