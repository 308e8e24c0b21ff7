"""`torch.utils._contextlib`: base classes of contexts that decorate functions too, as libraries
derive their own from them."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adjoint.autograd.modes import Decorating as _DecoratorContextManager

__all__ = ["context_decorator"]


def context_decorator(ctx: Any, func: Callable[..., Any]) -> Callable[..., Any]:
    """The function, run within a context each time: ``ctx``, or what it gives when it is called.

    >>> from contextlib import nullcontext
    >>> context_decorator(nullcontext(), abs)(-1)
    1
    """
    run = _DecoratorContextManager()
    vars(run)["clone"] = ctx if not hasattr(ctx, "__enter__") else lambda: ctx
    return run(func)


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """The same, for contexts without arguments: `@Context` needs no brackets."""

    def __new__(cls, orig_func: Callable[..., Any] | None = None) -> Any:
        made = super().__new__(cls)
        return made if orig_func is None else cls()(orig_func)
