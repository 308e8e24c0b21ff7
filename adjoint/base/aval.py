"""Abstract values: a shape and a dtype without data, and the storage-less array made of one."""
from __future__ import annotations

import ctypes
import functools
import math
import sys
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from adjoint.base import provenance
from adjoint.base.errors import DTypeError, MetaError, NotSupported

_HEAD = object.__basicsize__


def _address_fast(x: Any) -> int:
    # the data pointer is the first field of an array object: NumPy's ABI
    return ctypes.c_void_p.from_address(id(x) + _HEAD).value or 0


def _address_safe(x: Any) -> int:
    return int(x.__array_interface__["data"][0])


def _probe() -> bool:
    sample = np.zeros(3)
    try:
        return _address_fast(sample[1:]) == _address_safe(sample[1:])
    except (ValueError, TypeError):
        return False


# Of the first element of a NumPy array: what `x.ctypes.data` gives, in an eighth of the time.
address = _address_fast if _probe() else _address_safe


def same_places(a: Any, b: Any) -> bool:
    """Whether two NumPy arrays show the same memory in the same way."""
    return a.shape == b.shape and a.strides == b.strides and address(a) == address(b)


class Aval:
    """Shape and dtype of an array.

    >>> a = Aval((2, 3), np.dtype("float32"))
    >>> a.size, a.nbytes
    (6, 24)
    """

    __slots__ = ("shape", "dtype")

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Aval) and (self.shape, self.dtype) == (other.shape, other.dtype)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    def __repr__(self) -> str:
        return f"{self.dtype.name}[{', '.join(map(str, self.shape))}]"


# The account that storage-less arrays made here are counted in: has add(nbytes), drop(nbytes).
account: ContextVar[Any] = ContextVar("adjoint_meta_account", default=None)


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes `order`; without an array, because memory is counted.

    >>> inverse((2, 0, 1))
    (1, 2, 0)
    """
    out = [0] * len(order)
    for i, d in enumerate(order):
        out[d] = i
    return tuple(out)


def contiguous_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Byte strides of a C-contiguous array."""
    out, step = [], itemsize
    for n in reversed(shape):
        out.append(step)
        step *= max(n, 1)
    return tuple(reversed(out))


class MetaArray(Aval):
    """An array without storage: what tensors of device ``meta`` hold.

    NumPy functions refuse it (``__array_ufunc__`` is None), which sends every op down its
    `infer` path. A view keeps its `base` alive, as a real view keeps the memory it shows;
    `offset` is where it begins there, in bytes, and `steps` are its byte strides (None: in C
    order). One that owns its storage is entered in the `account` of the code that makes it.
    """

    __slots__ = ("base", "steps", "offset", "_account", "__weakref__")
    __array_ufunc__ = None
    __array_priority__ = 2000

    def __init__(self, shape: tuple[int, ...], dtype: Any, base: MetaArray | None = None,
                 steps: tuple[int, ...] | None = None, offset: int = 0) -> None:
        super().__init__(shape, dtype)
        self.base, self.steps, self.offset = base, steps, offset
        books = self._account = account.get() if base is None else None
        if books is not None and type(self) is MetaArray:
            books.add(self.held)

    def __del__(self) -> None:
        if self._account is not None and type(self) is MetaArray:
            self._account.drop(self.held)

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next along each axis."""
        return self.steps or contiguous_strides(self.shape, self.dtype.itemsize)

    @property
    def contiguous(self) -> bool:
        """True if the elements lie in C order."""
        if self.steps is None or self.size == 0:
            return True
        full = contiguous_strides(self.shape, self.dtype.itemsize)
        return all(a == b or n == 1 for a, b, n in zip(self.steps, full, self.shape, strict=True))

    @property
    def held(self) -> int:
        """Bytes that NumPy would ask its allocator for."""
        return max(self.nbytes, 1)

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def _no_value(self, *_: Any, **__: Any) -> Any:
        """Raises: there is no value."""
        frame: Any = sys._getframe(1)
        while frame.f_globals.get("__name__", "").startswith("numpy.") and frame.f_back:
            frame = frame.f_back             # NumPy's own lines say nothing to the user
        raise MetaError(
            f"the value of a storage-less tensor {Aval.__repr__(self)} was asked for; "
            "meta tensors carry shape and dtype only. Run this line on real data, or keep "
            "data-dependent branches (.item(), bool(), .tolist(), .numpy()) out of the prediction"
            f"\n  at {provenance.here(frame)}")

    __array__ = __bool__ = __float__ = __int__ = __index__ = __iter__ = _no_value
    item = tolist = _no_value


# Records whose kernels never copy; that of "view" does where the strides do not allow a view.
_VIEWS = frozenset("unsqueeze squeeze permute transpose t expand alias narrow select split unbind "
                   "split_with_sizes slice diagonal unfold view_as_real view_as_complex".split())


def laid_out(op: Any, a: MetaArray, attrs: Any, outs: Sequence[MetaArray]) -> list[MetaArray]:
    """The results of a record of views with the strides and offsets that its kernel gives: it is
    run on an array of the same strides whose elements nobody reads."""
    if op.name == "view":
        made = _reshaped(a, outs[0].shape)
        return list(outs) if made is None else [MetaArray(*made)]
    if op.name == "as_strided":
        wide = a.dtype.itemsize
        return [MetaArray(o.shape, o.dtype, o.base, tuple([n * wide for n in attrs["stride"]]),
                          attrs["offset"] * wide) for o in outs]
    if op.name not in _VIEWS:
        return list(outs)
    like = _unread(a)
    made = op.impl(like, **attrs)
    many = made if isinstance(made, (list, tuple)) else (made,)
    start = like.__array_interface__["data"][0]
    return [MetaArray(o.shape, o.dtype, o.base, m.strides, a.offset + (
        m.__array_interface__["data"][0] - start if m.size else 0))
        for o, m in zip(outs, many, strict=True)]


def _unread(a: MetaArray) -> Any:
    """An array of that shape and those strides with memory for one element."""
    return np.lib.stride_tricks.as_strided(np.empty(1, a.dtype), a.shape, a.strides)


def _reshaped(a: MetaArray, shape: tuple[int, ...]) -> tuple[Any, ...] | None:
    """What a view of `a` in that shape is made of; None where it has to be copied."""
    steps = None
    if not a.contiguous:
        try:
            steps = np.reshape(_unread(a), shape, copy=False).strides
        except (ValueError, TypeError):         # (NumPy 2.0 cannot be asked)
            return None
    return shape, a.dtype, a if a.base is None else a.base, steps, a.offset


# What a NumPy scalar has for a base: it holds no array memory.
SCALAR = MetaArray((), np.dtype(np.float64))


class UnreadArray(MetaArray):
    """What `.array` of a tensor is that shows another one: shape and dtype, and an error that says
    `why` for its elements."""

    __slots__ = ()
    why = "this function does not take a tensor of {shape}"

    def _no_value(self, *_: Any, **__: Any) -> Any:
        raise NotSupported(self.why.format(shape=list(self.shape)))

    __array__ = __bool__ = __float__ = __int__ = __index__ = __iter__ = _no_value
    __array_ufunc__ = _no_value  # type: ignore[assignment]  # a function here: it says why
    item = tolist = _no_value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._no_value()


def aval_of(x: Any) -> Aval:
    """The aval of an array, a meta array or a Python number."""
    if type(x) is not np.ndarray and not isinstance(x, (Aval, np.ndarray, np.generic)):
        try:
            x = np.asarray(x)
        except ValueError as error:             # lists of unequal lengths
            raise DTypeError(f"{type(x).__name__} is no operand: {error}") from None
    return Aval(x.shape, x.dtype)


@functools.lru_cache(4096)
def order_by(shape: tuple[int, ...], steps: tuple[tuple[int, ...], ...]) -> tuple[int, ...] | None:
    """The axes of a result from slowest to fastest, of operands that take these steps along them, 0
    where they do not move; None for C order. The first operand that says which of two axes takes
    larger steps decides; where none does the axes stay as they are."""
    def compare(x: int, y: int) -> int:
        """1 where `x` is the slower axis, -1 where `y` is, 0 where nobody says."""
        for s in steps:
            if s[x] and s[y]:
                if abs(s[x]) != abs(s[y]):
                    return 1 if abs(s[x]) > abs(s[y]) else -1
                if shape[x] > shape[y]:
                    return 1
        return 0

    fastest = list(range(len(shape)))[::-1]
    for start in range(1, len(shape)):
        here = start
        for there in range(start - 1, -1, -1):
            told = compare(fastest[there], fastest[here])
            if told < 0:
                break
            if told:
                fastest[there], fastest[here] = fastest[here], fastest[there]
                here = there
    order = tuple(fastest[::-1])
    return None if order == tuple(range(len(shape))) else order
