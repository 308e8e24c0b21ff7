"""`copy.copy` and `copy.deepcopy` of tensors."""
from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np

from adjoint.base.aval import MetaArray, address
from adjoint.base.errors import AutogradError
from adjoint.core.tensor import DISPATCHED, Parameter, Tensor, owner_of, share_cell

# What belongs to a tensor's place among others, not to its copies.
_OWN = ("_grad", "_base", "_steps", "_kids", "_creation", "_retains")


def attributes(t: Tensor) -> dict[str, Any]:
    """What a program has set on the tensor."""
    return {k: v for k, v in t.__dict__.items() if k not in _OWN}


def shallow(t: Tensor) -> Tensor:
    """A leaf on the same memory, with the same attributes."""
    if t.level:
        made: Any = t.detach()
        made.__dict__.update(attributes(t))
        return made.requires_grad_(t._rg)
    made = object.__new__(type(t))
    made.array, made._cell, made._edge, made._rg = t.array, share_cell(t), None, t._rg
    made.__dict__.update(attributes(t))
    found: Tensor = made
    return found


def deep(t: Tensor, memo: dict[int, Any]) -> Any:
    """A leaf on memory of its own."""
    node: Any = t.grad_fn
    if node is not None:
        raise AutogradError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
            "protocol at the moment.  If you were attempting to deepcopy a module, this may be "
            f"because of a tensor made by {node.name()} at {node.where()}; .detach() it first")
    if id(t) in memo:
        return memo[id(t)]
    if t.level == DISPATCHED:
        memo[id(t)] = t.clone().detach().requires_grad_(t._rg)
        return memo[id(t)]
    if t.level:                      # a value of a transform: its derivative is copied too
        memo[id(t)] = t.clone()
        return memo[id(t)]
    made: Tensor = object.__new__(type(t))
    made.array = _copy_storage(t.array, memo)
    made._edge = made._cell = None
    made._rg = t._rg
    memo[id(t)] = made
    if t._grad is not None and not isinstance(t, Parameter):     # as PyTorch has it
        made._grad = copy.deepcopy(t._grad, memo)
    for name, value in attributes(t).items():
        made.__dict__[name] = copy.deepcopy(value, memo)
    return made


def _copy_storage(array: Any, memo: dict[int, Any]) -> Any:
    """A copy of an array; arrays that share memory still do after they were copied."""
    if type(array) is MetaArray:
        return MetaArray(array.shape, array.dtype)
    owner = owner_of(array)
    if owner is array or not (owner.flags.c_contiguous or owner.flags.f_contiguous):
        copied = memo.get(id(array))
        if copied is None:
            copied = memo[id(array)] = array.copy("K")
        return copied
    held = memo.get(id(owner))
    if held is None:
        held = memo[id(owner)] = owner.copy("K")
    start = address(array) - address(owner)
    flat = held.reshape(-1, order="A").view(np.uint8)
    return np.ndarray(array.shape, array.dtype, flat, start, array.strides)


def warn_if_has_hooks(tensor: Tensor) -> None:
    """Warn of hooks that a copy of `tensor` in a file will not have: all of `register_hook` that
    are not marked by `unserializable_hook`."""
    for hook in (tensor._backward_hooks or {}).values():
        if not hasattr(hook, "__torch_unserializable__"):
            warnings.warn(f"backward hook {hook!r} on tensor will not be serialized.  If this is "
                          "expected, you can decorate the function with @torch.utils.hooks."
                          "unserializable_hook to suppress this warning", stacklevel=2)
