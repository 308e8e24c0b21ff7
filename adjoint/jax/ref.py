"""`jax.ref`: boxes of arrays that programs write to, `ref[...] = v`.

Functions run as they are written here, so that a box is read and written where the program does.
"""
from __future__ import annotations

from typing import Any

from adjoint.base.errors import NotSupported
from adjoint.base.errors import missing as _missing
from adjoint.jax._array import as_array, make
from adjoint.jax._trace import RUN
from adjoint.jax.core import ShapedArray


class AbstractRef(ShapedArray):
    """The type of a box: that of the array in it."""


class Ref:
    """An array whose elements can be replaced.

    >>> from adjoint import jax
    >>> box = jax.new_ref(jax.numpy.zeros(3))
    >>> box[1] = 5.0
    >>> box[...]
    Array([0., 5., 0.], dtype=float32)
    """

    __slots__ = ("_value",)
    is_box = True
    __hash__ = object.__hash__

    def __init__(self, value: Any) -> None:
        self._value = value

    def _held(self) -> Any:
        if self._value is None:
            raise ValueError("this ref was frozen: its value is what `jax.ref.freeze` gave")
        return make(self._value.tensor, self._value.weak_type)   # (of the trace that runs now)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return tuple(self._held().shape)

    @property
    def dtype(self) -> Any:
        """Its dtype."""
        return self._held().dtype

    @property
    def ndim(self) -> int:
        """Its number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Its number of elements."""
        return int(self._held().size)

    @property
    def aval(self) -> Any:
        """Shape and dtype."""
        return AbstractRef(self.shape, self.dtype)

    def __getitem__(self, at: Any) -> Any:
        return self._held() if at is Ellipsis else self._held()[at]

    def __setitem__(self, at: Any, value: Any) -> None:
        swap(self, at, value)

    def __repr__(self) -> str:
        return "Ref(freed)" if self._value is None else "Ref" + repr(
            self._value).removeprefix("Array")


def _quiet() -> bool:
    from adjoint.jax._api import quiet
    return quiet()


def new_ref(init_val: Any, *, memory_space: Any = None, kind: Any = None) -> Ref:
    """A box with a copy of an array."""
    if isinstance(init_val, Ref):
        raise TypeError("new_ref takes an array, got a ref")
    held = as_array(init_val, "new_ref")
    return Ref(make(held.tensor))


def empty_ref(ty: Any, memory_space: Any = None) -> Ref:
    """A box for an array of that shape and dtype."""
    from adjoint.jax.numpy import _create
    return Ref(_create.NAMES["zeros"](ty.shape, ty.dtype))


def get(ref: Ref, idx: Any = ...) -> Any:
    """`ref[idx]`."""
    return ref[idx]


def set(ref: Ref, idx: Any, value: Any) -> None:
    """`ref[idx] = value`."""
    swap(ref, idx, value)


def swap(ref: Ref, idx: Any, value: Any) -> Any:
    """What was at the index, where the value is from now on."""
    held: Any = ref._held()
    old, new = held[idx], as_array(value, "swap")
    if new.dtype != held.dtype:
        raise ValueError(f"Invalid dtype for `swap`. Ref dtype: {held.dtype}. Value dtype: "
                         f"{new.dtype}.")
    if RUN.pulls:
        raise NotSupported("a ref is written in a loop or a checkpoint that backward runs again: "
                           "carry its array through the loop instead")
    if not _quiet():                       # (a run on shapes alone changes nothing)
        RUN.writes += 1
        ref._value = held.at[idx].set(new)
    return old


def addupdate(ref: Ref, idx: Any, x: Any) -> None:
    """`ref[idx] += x`."""
    swap(ref, idx, ref[idx] + x)


def freeze(ref: Ref) -> Any:
    """The array; the box is of no use afterwards."""
    held, ref._value = ref._held(), None
    return held


def free_ref(ref: Ref) -> None:
    """Forget the array."""
    ref._value = None


__all__ = ["AbstractRef", "Ref", "addupdate", "empty_ref", "free_ref", "freeze", "get", "new_ref",
           "set", "swap"]
__getattr__ = _missing("adjoint.jax.ref")
