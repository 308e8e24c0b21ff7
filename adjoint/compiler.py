"""`torch.compile` and what programs ask about it.

Kernels here are generated per operation when they are first needed, for every program; there is no
separate compilation of a whole function, so `compile` runs what it was given.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from adjoint.base.errors import ArgumentError, NotSupported

T = TypeVar("T")


class SymInt:
    """A size that is no number: the ragged extent of a nested tensor; others are Python's ints."""


class SymFloat:
    """A number that a compiler does not know. Nothing is an instance."""


class SymBool:
    """A truth value that a compiler does not know. Nothing is an instance."""


_BACKENDS = ("inductor", "eager", "aot_eager", "cudagraphs")
_MODES = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")

__all__ = ["allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin",
           "disable", "is_compiling", "is_dynamo_compiling", "is_exporting", "list_backends",
           "reset", "set_stance"]


def compile(model: Any = None, *, fullgraph: bool = False, dynamic: bool | None = None,
            backend: Any = "inductor", mode: str | None = None,
            options: dict[str, Any] | None = None, disable: bool = False) -> Any:
    """Give back a function as it is, and a module in an `OptimizedModule`, whose only child,
    `_orig_mod`, it is: both run operation by operation, on kernels that were generated for this
    machine. Also a decorator, with or without arguments.

    `disable=True` gives the module itself, a compiled one is not wrapped again. A function as
    `backend` is refused: there is no traced graph to give to it.

    >>> import adjoint as ad
    >>> f = ad.compile(lambda x: x * 2)
    >>> f(ad.ones(2))
    tensor([2., 2.])
    """
    if mode not in _MODES:
        raise ArgumentError(f"Unrecognized mode={mode}, should be one of: "
                            f"{', '.join(m for m in _MODES if m)}")
    if mode is not None and options is not None:
        raise ArgumentError("Either mode or options can be specified, but both can't be specified "
                            "at the same time.")
    if callable(backend):
        raise NotSupported("compile: a backend function gets a traced graph, which is not made "
                           "here; call the model as it is, or use func.linearize for its Jacobian")
    if backend not in _BACKENDS:
        raise ArgumentError(f"Invalid backend: {backend!r}, see `torch._dynamo.list_backends()` "
                            "for available backends.")
    if model is None:
        return lambda given: compile(given, disable=disable)
    if not callable(model):
        raise TypeError(f"compile: expected a module or a function, got {type(model).__name__}")
    wrap = None if disable or isinstance(model, type) else getattr(model, "_compiled", None)
    return model if wrap is None else wrap()


def disable(fn: Callable[..., Any] | None = None, recursive: bool = True, *,
            reason: str | None = None) -> Any:
    """The function itself: nothing would have compiled it."""
    return fn if fn is not None else lambda given: given


def allow_in_graph(fn: T) -> T:
    """The function itself."""
    return fn


assume_constant_result = allow_in_graph


def is_compiling() -> bool:
    """False: programs run as they are written."""
    return False


is_dynamo_compiling = is_exporting = is_compiling


def list_backends(exclude_tags: Any = ()) -> list[str]:
    """The names that `compile` accepts; all of them mean the same here."""
    return list(_BACKENDS)


def reset() -> None:
    """Nothing was compiled that could be forgotten."""


def set_stance(stance: str = "default", **options: Any) -> None:
    """Accepted: there is one way in which programs run."""


def cudagraph_mark_step_begin() -> None:
    """Nothing to mark."""
