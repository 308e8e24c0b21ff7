"""Views of a base whose history was rewritten: shown anew, or outdated.

Loaded when a base that has views is written to with a history for the first time.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from adjoint.base.aval import MetaArray, address
from adjoint.base.errors import AutogradError
from adjoint.core import modes
from adjoint.core.inplace import (
    TURNS,
    move_history,
    overlaps,
    reaches,
    replay,
    shadow_edge,
    shown,
)
from adjoint.core.modes import GRAD, TOLD, WATCH, state
from adjoint.core.op import Op
from adjoint.core.tensor import AccumulateGrad, Port, Tensor

_PLACE: Any = Tensor._edge               # (the slot: an outdated view has a property in its place)
DETACH = ("Can't detach views in-place. Use detach() instead. If you are using "
          "DistributedDataParallel (DDP) for training, and gradient_as_bucket_view is set as True, "
          "gradients are views of DDP buckets, and hence detach_() cannot be called on these "
          "gradients. To fix this error, please refer to the Optimizer.zero_grad() function in "
          "torch/optim/optimizer.py as the solution.")
_MODE = ("A view was created in {mode} mode and {{what}} {when}. Given that this "
         "use case is ambiguous and error-prone, it is forbidden. You can clarify your code by "
         "moving both the view and the inplace either both inside the {block} block (if you don't "
         "want the inplace to be tracked) or both outside (if you want the inplace to be tracked).")
_MANY = ("This view is the output of a function that returns multiple views. Such functions do not "
         "allow the output views to be modified inplace. You should replace the inplace operation "
         "by an out-of-place one.")
_REFUSED = {
    "multi": "{which} is a view and {what}. " + _MANY,
    "multi without history": "A view was created in no_grad mode and {what} with grad mode "
                             "enabled. " + _MANY,
    "function": (
        "{which} is a view and {what}. This view was created inside a custom "
        "Function (or because an input was returned as-is) and the autograd logic to handle "
        "view+inplace would override the custom backward associated with the custom Function, "
        "leading to incorrect gradients. This behavior is forbidden. You can fix this by cloning "
        "the output of the custom Function."),
    "no_grad": _MODE.format(mode="no_grad", when="with grad mode enabled", block="no_grad"),
    "inference": _MODE.format(mode="inference", when="in normal mode", block="inference_mode"),
}


def forbidden(view: Tensor, what: str) -> str:
    """The message for a view whose making does not go with a write to what it shows."""
    edge: Any = _PLACE.__get__(view)
    node, i = (edge.node, edge.index) if type(edge) is Port else (edge, 0)
    born = view._creation
    if born == "multi" and isinstance(node, (AccumulateGrad, type(None))):
        born = "multi without history"
    which = f"Output {i} of {node.forward_name}" if node else "This tensor"
    return _REFUSED[born].format(which=which, what=what)


class OutdatedView(Tensor, own=True):
    """What a view becomes that must not outlive a write to its base: one output of many, or made
    under another mode or inside of a custom Function. Its values may be read, its place in the
    graph not. (A class, and no flag: other tensors pay nothing, for nothing asks them.)"""

    __slots__ = ()
    is_leaf = False
    output_nr = 0

    @property
    def _edge(self) -> Any:
        if state() & GRAD:
            return self.grad_fn
        return _PLACE.__get__(self)

    @_edge.setter
    def _edge(self, edge: Any) -> None:
        object.__setattr__(self, "__class__", Tensor)
        self._edge = edge

    @property
    def grad_fn(self) -> Any:
        """Refused, in PyTorch's words."""
        raise AutogradError(forbidden(
            self, "its base or another view of its base has been modified inplace"))


OutdatedView.__name__ = OutdatedView.__qualname__ = "Tensor"


# ---------------------------------------------------------------------- one memory, two operands
_SHARED = ("unsupported operation: some elements of the input tensor and the written-to tensor "
           "refer to a single memory location. Please clone() the tensor before performing the "
           "operation.")


def refuse_shared(op_: Op, target: Any, others: Sequence[Any], position: int) -> None:
    """Raise where an in-place op would read what it has written already, as PyTorch does: operands
    that its record keeps `apart`, or all of an elementwise op. The target is operand `position`."""
    names = [*op_.operands[:position], *op_.operands[position + 1:]]
    apart = dict.fromkeys(names, False) if op_.apart is None and op_.elementwise else op_.apart
    for name, x in zip(names, others, strict=True):
        if apart and name in apart:
            refuse_overlap(target, x, whole=apart[name])


def refuse_overlap(target: Any, *operands: Any, whole: bool = False) -> None:
    """Raise where the target shares memory with an operand that does not show all of it in the
    same way; with `whole` also where it does. As PyTorch: what has gaps is not looked at."""
    mine = target.array
    for x in operands:
        its = x.array if isinstance(x, Tensor) else x
        if x is target and not whole or type(its) is not np.ndarray \
                or type(mine) is not np.ndarray or not np.may_share_memory(mine, its):
            continue
        if not (its.ndim or mine.ndim and not whole) or not _dense(mine) or not _dense(its):
            continue
        if whole or mine.nbytes != its.nbytes or mine.strides != its.strides \
                or address(mine) != address(its):
            raise AutogradError(_SHARED)


def _dense(array: Any) -> bool:
    """Whether its elements lie side by side, each once."""
    expected = array.itemsize
    for stride, n in reaches(array):
        if stride != expected:
            return False
        expected *= n
    return bool(array.size)


def refresh(root: Tensor, skip: Tensor | None) -> None:
    """Derive the history of every live view of `root` anew."""
    mode = state()
    token = modes.change(set_bits=GRAD, clear_bits=WATCH | TOLD)
    try:
        for ref in list(root._kids):
            kid = ref()
            if kid is not None and kid is not skip and type(kid) is not OutdatedView:
                _refresh(root, kid)
    finally:
        modes.restore(token, mode)


def _refresh(root: Tensor, kid: Any) -> None:
    if kid._creation:                       # no other view may be written to or shown anew
        if root._rg and type(kid) is Tensor:
            kid._rg, kid.__class__ = True, OutdatedView
        return
    stand_in, steps = shadow_edge(root), kid._steps
    if steps and steps[-1][0].name not in TURNS and type(root.array) in (np.ndarray, MetaArray) \
            and kid.array.dtype == root.array.dtype and not overlaps(kid.array) \
            and not modes.VIEW_REPLAY.get():
        fresh = shown(stand_in, steps=steps)
    else:
        fresh = replay(stand_in, steps)
    if kid._retains and fresh._rg:
        move_history(kid, fresh._edge)
    kid._edge, kid._rg = fresh._edge, fresh._rg


def unhooked(target: Any, operands: list[Any]) -> None:
    """In the place of the view `target` that is about to be written to, where hooks wait for its
    gradient: what it shows of its base, for they wait for that of what it was before."""
    edge = target._edge
    node = edge.node if type(edge) is Port else edge
    if not getattr(node, "hooked", False) or not (node._tensor_hooks or node._retain):
        return
    stand_in = shown(shadow_edge(target._base), steps=target._steps)
    operands[:] = [stand_in if a is target else a for a in operands]
