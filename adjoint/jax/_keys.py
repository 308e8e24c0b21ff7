"""Typed PRNG keys."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from adjoint.jax._array import as_array
from adjoint.jax._table import T


class KeyType:
    """The dtype of keys."""

    name = "key<fry>"
    itemsize = 8
    kind = "V"
    type: Any = None

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyType)

    def __hash__(self) -> int:
        return hash(self.name)


KEY = KeyType()


class KeyArray:
    """An array of keys, each of two words in the last axis of `data`."""

    __slots__ = ("data",)
    dtype = KEY
    weak_type, holds_keys = False, True
    __hash__: Any = None

    def __init__(self, data: Any) -> None:
        self.data = as_array(data)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, without the words."""
        return self.data.shape[:-1]

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of keys."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def aval(self) -> Any:
        """Shape and dtype."""
        from adjoint.jax._array import ShapeDtypeStruct
        return ShapeDtypeStruct(self.shape, KEY)

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Iterator[KeyArray]:
        return iter([KeyArray(d) for d in self.data]) if self.ndim else iter(_no_axis())

    def __getitem__(self, at: Any) -> Any:
        index = at if isinstance(at, tuple) else (at,)
        if Ellipsis not in [i for i in index if not hasattr(i, "shape")]:
            index = (*index, Ellipsis)
        return KeyArray(self.data[(*index, slice(None))])

    def reshape(self, *shape: Any) -> Any:
        """The keys in another shape."""
        to = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        return KeyArray(self.data.reshape((*to, 2)))

    def ravel(self) -> Any:
        """One axis."""
        return self.reshape(-1)

    flatten = ravel

    def __eq__(self, other: Any) -> Any:
        if not isinstance(other, KeyArray):
            return NotImplemented
        from adjoint.jax._array import make
        return make(T["all"]((self.data == other.data).tensor, -1))

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("JAX array with PRNGKey dtype cannot be converted to a NumPy array. Use "
                        "jax.random.key_data(arr) if you wish to extract the underlying integer "
                        "array.")

    def __repr__(self) -> str:
        return f"Array({self.shape}, dtype={KEY}) overlaying:\n{self.data}"

    def block_until_ready(self) -> Any:
        """Itself."""
        return self


def _no_axis() -> Any:
    raise TypeError("iteration over a 0-d array")
