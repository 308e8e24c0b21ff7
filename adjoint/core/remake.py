"""Residuals that are made again: kept is not the value, but what it was computed from.

A matrix product reads, for the gradient of its weight, the result of the activation before it. The
activation keeps its own operand in any case, so its result costs nothing but a pass over memory to
have back, while keeping it costs as much as the operand. A record names `remade` as its `thrift` to
say so. Only large results of pointwise ops whose node keeps all of its operands qualify, only where
generated kernels make a pass over memory of the op, and only while no saved-tensor hook wants to
see residuals; the value has the same bits.
"""
from __future__ import annotations

from typing import Any

from adjoint.core.bind import compute, value_of
from adjoint.core.modes import WATCH, state, watchers
from adjoint.core.tensor import Kept, Packed, Port, Tensor, wrap

LEAST_BYTES = 1 << 20          # below, the call costs more than the memory is worth


class Setting:
    """Whether pointwise ops run as fast as memory: set where kernels are put behind the records."""

    quick = False


class Recipe:
    """The node of the activation, and the operands that it keeps."""

    __slots__ = ("node", "operands")

    def __init__(self, node: Any, operands: list[Any]) -> None:
        self.node, self.operands = node, operands


class _Remake:
    """Stands where a saved-tensor hook would: `unpack` runs the op again."""

    def unpack(self, packed: Packed, node: Any) -> Tensor:
        """The value; an operand that was written to since is refused as the activation would."""
        made = packed.value.node
        arrays = [value_of(s, made) for s in packed.value.operands]
        return wrap(compute(made.plan.op, arrays, made.attrs)[0])


_remake = _Remake()


def remade(t: Any) -> Packed | None:
    """What to keep of the operand `t` in place of its memory; None to keep it as it is.

    >>> import adjoint as ad
    >>> h, w = ad.ones(512, 1024, requires_grad=True), ad.ones(8, 1024, requires_grad=True)
    >>> y = ad.nn.functional.linear(ad.nn.functional.gelu(h), w)
    >>> y.grad_fn.saved_tensors[1].shape                 # made when asked for
    adjoint.Size([512, 1024])
    """
    if type(t) is not Tensor or not t._rg or t.array.nbytes < LEAST_BYTES or not Setting.quick:
        return None
    node = t._edge
    if type(node) is Port or t._base is not None or getattr(node, "plan", None) is None:
        return None
    plan, saved = node.plan, node.saved
    if plan.op.scalar is None or type(saved) is not tuple:
        return None
    if t._cell is not None and (t._cell.version or t._cell.exposed):
        return None                                  # written to since, or by whom nobody sees
    held = {i: s for (kind, i), s in zip(plan.sources, saved, strict=True) if kind == "in"}
    operands = [held.get(i) for i in range(len(plan.op.operands))]
    if any(type(s) is not Tensor and type(s) is not Kept for s in operands):
        return None
    if state() & WATCH and watchers.hooks.get():
        return None
    return Packed(Recipe(node, operands), _remake, node, -1)
