"""Registry of the public functions: what becomes `ad.<name>` and `Tensor.<name>`.

A public function has PyTorch's signature and calls op records. `@public` enters it; `tensor.py`
and the package namespace read the registry, so that a name is written once.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from adjoint.base.errors import ShapeError
from adjoint.core.inplace import assign
from adjoint.core.tensor import Tensor

F = TypeVar("F", bound=Callable[..., Any])
FUNCTIONS: dict[str, Callable[..., Any]] = {}
METHODS: dict[str, Callable[..., Any]] = {}
# Tensor classes whose matrix products are functions of their own: sparse ones.
SPARSE: dict[type, Callable[[Any, Any], Any]] = {}


def public(name: str = "", *, method: bool | str = True, function: bool = True,
           aliases: tuple[str, ...] = ()) -> Callable[[F], F]:
    """Enter a function as `ad.<name>` (if `function`) and `Tensor.<name>` (if `method`)."""
    def enter(f: F) -> F:
        own = name or f.__name__.rstrip("_")
        for n in (own, *aliases):
            if function:
                FUNCTIONS[n] = f
            if method:
                METHODS[method if isinstance(method, str) else n] = f
        return f
    return enter


def write_out(out: Any, result: Any) -> Any:
    """Honour `out=`: resize `out` where needed, copy, return it (as PyTorch does)."""
    if isinstance(result, tuple):
        return type(result)(write_out(o, r) for o, r in zip(out, result, strict=True))
    if not isinstance(out, Tensor):
        raise ShapeError(f"out= must be a tensor, got {type(out).__name__}")
    return assign(out, result)
