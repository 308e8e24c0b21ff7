"""Conjugate and negative views: tensors whose values are made when they are read.

`x.conj()` shows the memory of `x`; the imaginary part of that shows it with the sign turned. Such
a tensor is of a class of its own, whose `array` is a property: the values, computed once for each
version of the memory. After a write to them they are turned back into the memory (`bump` asks).
Machine code takes tensors of the plain classes alone, so that nothing else has to look.

Loaded when the first of them is made.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.base.errors import AutogradError, ExportError
from adjoint.core.bind import bind, record
from adjoint.core.modes import GRAD, WATCH, state
from adjoint.core.op import OPS, Op
from adjoint.core.tensor import INFERENCE_CELL, Parameter, Tensor, wrap
from adjoint.core.versions import tie_view

_VALUES: Any = Tensor.array
_BIT = {"conj": "conjugate", "neg": "negative"}


_CLASS: Any = object.__dict__["__class__"]


class _MirrorType(type(Tensor)):  # type: ignore[misc]  # its metaclass
    """Equal to Tensor's class: `type(x) == Tensor`, `type(x) in (Tensor, ...)`, keys of tables."""

    def __eq__(cls, other: Any) -> bool:
        return other is cls or other is Tensor

    def __hash__(cls) -> int:
        return hash(Tensor)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return Tensor(*args, **kwargs)


class Mirror(Tensor, metaclass=_MirrorType, own=True):
    """A view whose elements are those of its memory, conjugated or negated. It says that its class
    is Tensor; `type(x) is Tensor` alone tells the difference."""

    __slots__ = ()
    __class__: Any = property(lambda self: Tensor, _CLASS.__set__)
    shown: Any                     # what it shows, as it lies in memory
    held: Any                      # (version, values of then)

    @property
    def array(self) -> Any:
        """The values now; a write to them reaches the memory by `store`."""
        cell: Any = self._cell
        version, values = self.held
        if version != cell.version or cell.exposed or cell is INFERENCE_CELL:
            values = turned(self.shown, self.turn)
            self.held = (cell.version, values)
        return values

    @array.setter
    def array(self, array: Any) -> None:
        self.turn = ""                             # other memory: a tensor like any other
        self.__dict__.pop("turn"), self.__dict__.pop("shown"), self.__dict__.pop("held")
        object.__setattr__(self, "__class__", Tensor)
        _VALUES.__set__(self, array)

    def store(self) -> None:
        """Turn values that were written to back into the memory."""
        values = self.held[1]
        if values is None:                         # nobody has asked for them
            return
        np.copyto(self.shown, turned(values, self.turn))
        self.held = (self._cell.version, values)  # type: ignore[union-attr]  # it shares one

    def moved(self, shown: Any) -> None:
        """Show other memory, or the same in another shape, from now on."""
        self.shown, self.held = shown, (-1, None)

    def plain(self) -> Tensor:
        """A tensor of its memory as it lies there, of the same versions, without history."""
        t = wrap(self.shown)
        t._cell = self._cell
        return t

    def twin(self) -> Mirror:
        """Another one of the same memory, without history."""
        made: Any = wrap(self.shown)
        made._cell = self._cell
        _become(made, self.shown, self.turn)
        found: Mirror = made
        return found

    def data_ptr(self) -> int:
        """Address of the first element in memory."""
        return int(self.plain().data_ptr())

    def storage_offset(self) -> int:
        """Position of the first element in its storage, in elements."""
        return int(self.plain().storage_offset())

    def stride(self, dim: int | None = None) -> Any:
        """Steps in elements along each axis."""
        return self.plain().stride(dim)

    def is_contiguous(self, *args: Any, **kwargs: Any) -> bool:
        """True if the elements lie in memory in order."""
        return bool(self.plain().is_contiguous(*args, **kwargs))

    def untyped_storage(self) -> Any:
        """The memory."""
        return self.plain().untyped_storage()

    def numpy(self, *, force: bool = False) -> Any:
        """Refused, for NumPy has no such arrays; a copy with `force`."""
        if not force:
            raise AutogradError(
                f"Can't call numpy() on Tensor that has {_BIT[self.turn]} bit set. Use "
                f"tensor.resolve_{self.turn}().numpy() instead.")
        return self.array.copy()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.numpy()

    def __dlpack__(self, **_: Any) -> Any:
        raise ExportError(f"Can't export tensors with the {_BIT[self.turn]} bit set")

    def __copy__(self) -> Mirror:
        self._no_history()
        made: Any = self.twin()
        made.__dict__.update({k: v for k, v in self.__dict__.items()
                              if k not in Tensor.__dict__ and k not in ("shown", "held")})
        made._rg = self._rg
        copied: Mirror = made
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        self._no_history()
        return memo.setdefault(id(self), self.resolved().__deepcopy__(memo))

    def __reduce_ex__(self, protocol: Any) -> Any:
        self._no_history()
        return mirrored, (self.plain().clone().requires_grad_(self._rg), self.turn)

    def _no_history(self) -> None:
        if self.grad_fn is not None:
            raise AutogradError("Only Tensors created explicitly by the user (graph leaves) support"
                                " the deepcopy protocol and pickle: detach() it first")

    def resolved(self) -> Tensor:
        """Its values as a leaf of its own."""
        t = wrap(self.array.copy())
        t._rg = self._rg
        return t


Mirror.__name__ = Mirror.__qualname__ = "Tensor"
Mirror.__module__ = Tensor.__module__


def turned(array: Any, turn: str) -> Any:
    """A new array: conjugated or negated."""
    return np.asarray(np.conjugate(array) if turn == "conj" else np.negative(array))


def _become(t: Any, shown: Any, turn: str) -> None:
    object.__setattr__(t, "__class__", Mirror)
    t.shown, t.turn, t.held = shown, turn, (-1, None)


def mirrored(x: Any, turn: str) -> Any:
    """`x.conj()`, or `x` negated, as a view; computed where the memory is no plain array, or where
    somebody watches what is computed."""
    op_, mode, own = OPS[turn], state(), type(x) is Mirror
    if not own and type(x) is not Tensor and type(x) is not Parameter or mode & WATCH \
            or own and x.turn != turn:
        return bind(op_, (x,), {})
    memory = x.shown if own else x.array
    if type(memory) is not np.ndarray or memory.dtype.kind not in "fciu":
        return bind(op_, (x,), {})
    if x._rg and mode & GRAD:
        t = record(op_, op_.plan(1), (x,), {}, (memory,), mode)
    else:
        t = wrap(memory)
    tie_view(t, x, op_, {}, -1, mode)
    if not own:
        _become(t, memory, turn)
    return t


def reflect(t: Any, parent: Any, op: Op, attrs: Any, index: int) -> bool:
    """Make `t`, what a view op gave of the values of `parent`, the same view of its memory. False
    where there is none: it stays a copy."""
    shown = op.impl(parent.shown, **attrs)
    shown = shown if index < 0 else shown[index]
    if op.name == "view_as_real" and parent.turn == "conj":
        raise AutogradError(
            "view_as_real doesn't work on unresolved conjugated tensors.  To resolve the conjugate "
            "tensor so you can view it as real, use self.resolve_conj(); however, be warned that "
            "the resulting tensor will NOT alias the original.")
    if not np.may_share_memory(shown, parent.shown):
        return False
    _become(t, shown, parent.turn)
    return True
