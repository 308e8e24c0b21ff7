"""The functions of lower layers that nn uses, gathered in one place."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adjoint.autograd.modes import enable_grad, is_grad_enabled, no_grad
from adjoint.base.dtypes import float32, float64, int64
from adjoint.ops.public import FUNCTIONS

__all__ = ["arange", "cat", "empty", "empty_like", "enable_grad", "float32", "float64", "full",
           "int64", "is_grad_enabled", "no_grad", "ones", "randperm", "stack", "tensor", "where",
           "zeros"]


def _public(name: str) -> Callable[..., Any]:
    """The public function ``name``, looked up when called: operations are registered when the
    package is imported, which may be after this module."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return FUNCTIONS[name](*args, **kwargs)

    call.__name__ = name
    return call


arange = _public("arange")
cat = _public("cat")
empty = _public("empty")
empty_like = _public("empty_like")
full = _public("full")
ones = _public("ones")
randperm = _public("randperm")
stack = _public("stack")
tensor = _public("tensor")
where = _public("where")
zeros = _public("zeros")
