"""Batching: a value with one more axis in front, mapped over by every op."""
from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from adjoint.base import provenance
from adjoint.base.errors import AutogradError
from adjoint.core.op import Op
from adjoint.core.tensor import Tensor
from adjoint.core.trace import LevelTensor, Trace, make
from adjoint.ops.shape import batch_loop


class BatchTensor(LevelTensor):
    """`value` has the mapped axis in front."""

    __slots__ = ()


class Batch(Trace):
    """One call of `vmap`."""

    name = "vmap"

    def __init__(self, size: int, randomness: str, axis_name: Any = None) -> None:
        super().__init__()
        self.size, self.randomness, self.axis_name = size, randomness, axis_name

    def aval(self, t: Any) -> tuple[tuple[int, ...], Any]:
        """Shape without the mapped axis, and dtype."""
        array = t.value.array
        return tuple(array.shape[1:]), array.dtype

    def lift(self, value: Any) -> Any:
        """A mapped value; `value` has the mapped axis in front."""
        return make(BatchTensor, self, value=value)

    def parts(self, t: Any) -> tuple[Any, bool]:
        """(value, is it mapped here)."""
        if isinstance(t, BatchTensor) and t.trace is self:
            return t.value, True
        if isinstance(t, LevelTensor) and not t.trace.alive:
            self.check(t)
        return self.below(t), False

    def process(self, op: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        values, batched = zip(*[self.parts(a) for a in args], strict=True)
        rule = op.batch or batch_loop
        out = rule(op, list(values), list(batched), attrs)
        if op.multi:
            return tuple([self.lift(o) if isinstance(o, Tensor) else o for o in out])
        return self.lift(out)

    def custom(self, cls: Any, args: tuple[Any, ...]) -> Any:
        """An autograd.Function: its `vmap` staticmethod, or its code on mapped values."""
        from adjoint.func.custom import batch_function
        return batch_function(self, cls, args)

    def strip(self, t: Any) -> Any:
        return self.lift(t.value)

    def detach(self, t: Any) -> Any:
        return self.lift(t.value.detach())

    def no_value(self, t: Any, what: str) -> str:
        frame = sys._getframe(1)
        return (f"vmap: {what} was asked of a tensor that holds one value per example, at "
                f"{provenance.here(frame)}.\n  It looks like you're attempting to use a Tensor in "
                "some data-dependent control flow: one branch cannot be taken for all examples at "
                "once. Write it with where(condition, a, b), or loop over the examples")

    def value(self, t: Any, what: str) -> Any:
        raise AutogradError(self.no_value(t, what))
