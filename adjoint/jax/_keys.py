"""Typed PRNG keys."""
from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from adjoint.base.tree import flatten, unflatten
from adjoint.core.tensor import wrap
from adjoint.jax._array import KeyOperand, as_array, constant, make
from adjoint.jax._dtypes import config
from adjoint.jax._table import T


class KeyType:
    """The dtype of the keys of one generator, whose keys are so many words."""

    kind = "V"
    type: Any = None

    def __init__(self, impl: str, tag: str, words: int) -> None:
        self.impl, self.name, self.words = impl, f"key<{tag}>", words
        self.itemsize = 4 * words

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyType) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


_KINDS = {k.impl: k for k in (KeyType("threefry2x32", "fry", 2), KeyType("rbg", "rbg", 4),
                              KeyType("unsafe_rbg", "urbg", 4))}
_TAGS = {"fry": "threefry2x32", "urbg": "unsafe_rbg"}


def key_type(impl: Any = None) -> KeyType:
    """The dtype of the keys of a generator by its name, its dtype or None, the default one."""
    if isinstance(impl, KeyType):
        return impl
    name = config.values["jax_default_prng_impl"] if impl is None else impl
    found = _KINDS.get(_TAGS.get(name, name)) if isinstance(name, str) else None
    if found is None:
        raise (ValueError if isinstance(name, str) else TypeError)(
            f"unrecognized PRNG implementation {name!r}. Did you mean one of: "
            + ", ".join(f'"{n}"' for n in _KINDS) + "?")
    return found


class KeyArray:
    """An array of keys, each of two words, or four, in the last axis of `data`."""

    __slots__ = ("data", "dtype")
    weak_type, holds_keys = False, True
    __hash__: Any = None

    def __init__(self, data: Any, dtype: Any = None) -> None:
        self.data, self.dtype = as_array(data), key_type(dtype)

    def like(self, data: Any) -> KeyArray:
        """Keys of the same generator."""
        return KeyArray(data, self.dtype)

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
        return ShapeDtypeStruct(self.shape, self.dtype)

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Iterator[KeyArray]:
        return iter([self.like(d) for d in self.data]) if self.ndim else iter(_no_axis())

    def __getitem__(self, at: Any) -> Any:
        index = at if isinstance(at, tuple) else (at,)
        if Ellipsis not in [i for i in index if not hasattr(i, "shape")]:
            index = (*index, Ellipsis)
        return self.like(self.data[(*index, slice(None))])

    def reshape(self, *shape: Any) -> Any:
        """The keys in another shape."""
        to = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        return self.like(self.data.reshape((*to, self.dtype.words)))

    def ravel(self) -> Any:
        """One axis."""
        return self.reshape(-1)

    flatten = ravel

    def __eq__(self, other: Any) -> Any:
        if not isinstance(other, KeyArray):
            return NotImplemented
        if self.dtype != other.dtype:
            raise TypeError(f"equal does not accept dtypes {self.dtype}, {other.dtype}.")
        return make(T["all"]((self.data == other.data).tensor, -1))

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("JAX array with PRNGKey dtype cannot be converted to a NumPy array. Use "
                        "jax.random.key_data(arr) if you wish to extract the underlying integer "
                        "array.")

    def __repr__(self) -> str:
        return f"Array({self.shape}, dtype={self.dtype}) overlaying:\n{self.data}"

    def block_until_ready(self) -> Any:
        """Itself."""
        return self


    def __getattr__(self, name: str) -> Any:
        if name in _METHODS:
            return lambda *args, **kwargs: moved(
                lambda x: getattr(x, name)(*args, **kwargs))(self)
        if name in ("T", "mT"):
            return moved(lambda x: getattr(x, name))(self)
        if name == "at":
            return _At(self)
        if name == "itemsize":
            return self.dtype.itemsize
        if name == "nbytes":
            return self.data.nbytes
        if name in _OF_WORDS:
            return getattr(self.data, name)
        if name in _ABSENT:
            raise NotImplementedError(f"Cannot call abstract method {name}")
        raise AttributeError(f"'KeyArray' object has no attribute {name!r}")


_METHODS = frozenset("copy transpose swapaxes squeeze repeat take".split())
_OF_WORDS = frozenset("sharding device devices committed is_fully_addressable is_fully_replicated "
                      "is_deleted delete copy_to_host_async on_device_size_in_bytes".split())
_ABSENT = frozenset("astype sum prod mean max min argmax argmin sort argsort all any dot round "
                    "clip conj cumsum cumprod std var trace view item tolist".split())


class _At:
    """`keys.at`."""

    def __init__(self, keys: KeyArray, index: Any = None) -> None:
        self.keys, self.index = keys, index

    def __getitem__(self, index: Any) -> _At:
        return _At(self.keys, index)

    def get(self, **how: Any) -> Any:
        """`keys[index]`."""
        return moved(lambda x: x.at[self.index].get(**how))(self.keys)

    def set(self, values: Any, **how: Any) -> Any:
        """A copy with other keys at the index."""
        return moved(lambda x, v: x.at[self.index].set(v, **how))(self.keys, values)


# functions that only move elements, by module
MOVERS = {
    "jax.numpy": "append array array_split asarray atleast_1d atleast_2d atleast_3d broadcast_to "
    "broadcast_arrays concat concatenate column_stack copy delete dsplit dstack expand_dims flip "
    "fliplr flipud full full_like hsplit hstack insert matrix_transpose moveaxis permute_dims "
    "ravel repeat reshape resize roll rollaxis rot90 select split squeeze stack swapaxes take tile "
    "transpose unstack vsplit vstack where",
    "jax.lax": "broadcast broadcast_in_dim collapse concatenate dynamic_index_in_dim dynamic_slice "
    "dynamic_slice_in_dim dynamic_update_index_in_dim dynamic_update_slice "
    "dynamic_update_slice_in_dim expand_dims full full_like gather index_in_dim index_take reshape "
    "rev select select_n slice slice_in_dim split squeeze transpose"}


def moved(f: Any) -> Any:
    """A function that moves elements, for keys: places are moved, then keys are taken by them."""
    def run(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = flatten((args, kwargs))
        keys = [x for x in leaves if isinstance(x, KeyArray)]
        for k in keys[1:]:
            if k.dtype != keys[0].dtype:
                raise ValueError(f"dtype={keys[0].dtype} is not a valid dtype for JAX type "
                                 "promotion.")
        pool = T["cat"]([k.data.tensor.reshape(-1, k.dtype.words) for k in keys])
        count, places = 0, []
        for x in leaves:
            if isinstance(x, KeyArray):
                own = np.arange(count, count + x.size, dtype=np.int32).reshape(x.shape)
                count, x = count + x.size, constant(wrap(own))
            places.append(x)
        given, named = unflatten(places, spec)
        out, shape = flatten(f(*given, **named))
        return unflatten([keys[0].like(make(pool[T["clamp"](x.tensor, 0, count - 1).to(
            np.dtype(np.int64))])) for x in out], shape)
    return run


def keyed(table: dict[str, Any], module: str) -> None:
    """Let the functions of a module that move elements take keys."""
    def entered(f: Any) -> Any:
        @functools.wraps(f)
        def run(*args: Any, **kwargs: Any) -> Any:
            try:
                return f(*args, **kwargs)
            except KeyOperand:
                return moved(f)(*args, **kwargs)
        return run
    for name in MOVERS[module].split():
        if name in table:
            table[name] = entered(table[name])


def _no_axis() -> Any:
    raise TypeError("iteration over a 0-d array")
