"""Batching: a value with one more axis in front, mapped over by every op."""
from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from adjoint.base import provenance
from adjoint.base.errors import TransformError
from adjoint.core.modes import GRAD, state
from adjoint.core.op import Op
from adjoint.core.tensor import Tensor
from adjoint.core.trace import LevelTensor, Trace
from adjoint.ops.shape import batch_loop, expand_op, unsqueeze_op

_new = object.__new__


_CONTROL = ("vmap: It looks like you're attempting to use a Tensor in some data-dependent control "
            "flow: one branch cannot be taken for all examples at once")
_SHAPES = "give the result a shape that values do not decide (where, a product with the mask)"
_NO_DATA = "Cannot access data pointer of Tensor that doesn't have storage"
_REFUSALS = {            # what is asked of a mapped tensor -> why it can't be had
    "item()": "vmap: It looks like you're calling .item() on a Tensor, in data-dependent control "
              "flow or arithmetic",
    "bool()": _CONTROL, "allclose": _CONTROL,
    "numpy()": _NO_DATA, "tolist()": _NO_DATA, "__array__()": _NO_DATA,
    "its NumPy array": _NO_DATA, "index": _CONTROL,
    "indexing with a boolean mask": "vmap: We do not support batching operators that can support "
    "dynamic shape. Attempting to batch over indexing with a boolean mask",
    "masked_select": "vmap: Attempted to vmap over `mask` in torch.masked_select(self, mask): each "
    "example would select another number of elements",
}
_REWRITE = dict.fromkeys(("item()", "bool()", "index", "allclose"),
                         "write it with tensors alone, as where(condition, a, b)")
_REWRITE |= dict.fromkeys(("numpy()", "tolist()", "__array__()",
                            "its NumPy array"),
                          "use functions of tensors")


def _refusal(what: str) -> str:
    return _REFUSALS.get(what) or ("vmap: We do not support batching operators that can output "
                                   f"dynamic shape. Attempted to vmap over aten::{what}")


def _rank(x: Any) -> int:
    """Number of axes of an operand of any kind (at its own level)."""
    if isinstance(x, Tensor):
        mapped = 0
        while x.level >= 1:
            mapped += type(x) is BatchTensor
            x = x.value
        rank: int = x.array.ndim
        return rank - mapped
    return 0 if type(x) in (float, int, bool) else np.ndim(x)


class BatchTensor(LevelTensor):
    """`value` has the mapped axis in front."""

    __slots__ = ()


class Batch(Trace):
    """One call of `vmap`."""

    name = "vmap"

    def __init__(self, size: int, randomness: str, axis_name: Any = None) -> None:
        super().__init__()
        self.size, self.randomness, self.axis_name = size, randomness, axis_name
        self.outer: Any = None                       # the vmap around this one

    def aval(self, t: Any) -> tuple[tuple[int, ...], Any]:
        """Shape without the mapped axis, and dtype."""
        value = t.value
        if value.level:
            shape, dtype = value.trace.aval(value)
            return shape[1:], dtype
        array = value.array
        return array.shape[1:], array.dtype

    def lift(self, value: Any) -> Any:
        """A mapped value; `value` has the mapped axis in front."""
        t: Any = _new(BatchTensor)                  # (`trace.make`, for it is called per op)
        t._edge = t._cell = None
        t._rg = False
        t.__dict__ = {"value": value, "trace": self, "level": self.level}
        return t

    def parts(self, t: Any) -> tuple[Any, bool]:
        """(value, is it mapped here)."""
        if isinstance(t, BatchTensor) and t.trace is self:
            return t.value, True
        if isinstance(t, LevelTensor) and not t.trace.alive:
            self.check(t)
        return self.below(t), False

    def process(self, op: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        values, batched = [], []
        for a in args:
            mapped = type(a) is BatchTensor and a.trace is self
            values.append(a.value if mapped else self.parts(a)[0] if isinstance(a, Tensor) else a)
            batched.append(mapped)
        if op.collective is not None and attrs["axis"] is self:
            return self._collective(op.collective(values[0]), args[0])
        rule = op.batch or batch_loop
        out = rule(op, values, batched, attrs)
        if op.multi:
            return tuple([self.lift(o) if isinstance(o, Tensor) else o for o in out])
        return self.lift(out)

    def single(self, op: Op, x: Any) -> Any:
        return self.lift(op.call(x.value))

    def pair(self, op: Op, a: Any, b: Any) -> Any:
        mapped = type(a) is BatchTensor and a.trace is self
        x = a.value if mapped else self._shared(a)
        if type(b) is BatchTensor and b.trace is self:
            y = b.value
            fits = _rank(x) == _rank(y) if mapped else _rank(x) < _rank(y)
        else:                                   # the shared one must not reach the mapped axis
            y = self._shared(b)
            fits = _rank(y) < _rank(x)
        return self.lift(op.call(x, y)) if fits else self.process(op, (a, b), {})

    def _shared(self, a: Any) -> Any:
        """An operand that is not mapped here, for the level below."""
        return self.parts(a)[0] if isinstance(a, Tensor) and (a.level or a._rg) else a

    def _collective(self, out: Any, x: Any) -> Any:
        """A result that is the same for every example; mapped where a tape of this level has to
        hold it."""
        if not (x._rg and state() & GRAD):
            return out
        return self.lift(expand_op(unsqueeze_op(out, dim=0), shape=(self.size, *out.shape)))

    def custom(self, cls: Any, args: tuple[Any, ...]) -> Any:
        """An autograd.Function: its `vmap` staticmethod, or its code on mapped values."""
        from adjoint.func.custom import batch_function
        return batch_function(self, cls, args)

    def strip(self, t: Any) -> Any:
        return self.lift(t.value)

    def held(self, t: Any) -> tuple[Any, ...]:
        if isinstance(t, BatchTensor) and t.trace is self:
            return (t.value,)
        return (self.parts(t)[0],)

    def detach(self, t: Any) -> Any:
        return self.lift(t.value.detach())

    def no_value(self, t: Any, what: str) -> str:
        frame = sys._getframe(1)
        return (f"{_refusal(what)}\n  {what} was asked of a tensor that holds one value per "
                f"example, at {provenance.here(frame)}: {_REWRITE.get(what, _SHAPES)}, or loop "
                "over the examples")

    def value(self, t: Any, what: str) -> Any:
        self.check(t)
        raise TransformError(self.no_value(t, what))
