"""How a module takes a value in place of one that it holds: in it, beside it, or by exchange."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adjoint.base.errors import ArgumentError, NotSupported
from adjoint.core.swap import swap_tensors
from adjoint.core.tensor import Parameter
from adjoint.nn._core import no_grad

CONVERSION = {"overwrite": False, "swap": False}       # set through `adjoint.__future__`


def converted(module: Any, key: str, param: Any, fn: Callable[[Any], Any]) -> Any:
    """The parameter that `module` has under `key` once `fn` has converted `param` and its
    gradient."""
    with no_grad():
        applied = fn(param)
        grad = None if param.grad is None else fn(param.grad)
    if CONVERSION["swap"]:
        return param if applied is param else _swapped(module, key, param, applied, grad)
    if CONVERSION["overwrite"]:
        fresh = Parameter(applied, param.requires_grad)
        if grad is not None:
            fresh.grad = grad.requires_grad_(param.grad.requires_grad)
        return fresh
    if applied is not param:
        held, param.grad = param.grad, None
        param.data = applied
        if held is not None:
            held.data = grad
            param.grad = held
    return param


def _swapped(module: Any, key: str, param: Any, applied: Any, grad: Any) -> Any:
    fresh, held = Parameter(applied, param.requires_grad), param.grad
    exchange(param, fresh, f"_apply(): Couldn't swap {type(module).__name__}.{key}")
    if held is not None:                    # who holds the gradient sees the converted one, too
        if grad is not held:
            exchange(held, grad, f"_apply(): Couldn't swap {type(module).__name__}.{key}.grad")
        param.grad = held
    return param


def loaded(param: Any, value: Any, assign: bool, key: str) -> None:
    """Exchange `param` with what its `module_load` makes of `value`."""
    new = param.module_load(value, assign=assign)
    if new is param or new is value:
        raise ArgumentError(f"module_load returned one of self or other for {key}: it has to return"
                            " a new object, which is exchanged with the parameter")
    if isinstance(param, Parameter):
        new = new.requires_grad_(param.requires_grad) if isinstance(new, Parameter) \
            else Parameter(new, param.requires_grad)
    exchange(param, new, f"load_state_dict(): Couldn't swap {key}")


def exchange(t1: Any, t2: Any, failed: str) -> None:
    """`utils.swap_tensors`; `failed` says what was to be done."""
    try:
        swap_tensors(t1, t2)
    except NotSupported as error:
        raise ArgumentError(f"{failed}: {error}") from error
