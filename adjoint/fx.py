"""`torch.fx`, as far as it means something here: programs are not traced to graphs of Python.

`wrap` marks a function for a tracer, and there is none; what would trace raises one line.
"""
from __future__ import annotations

from typing import Any, NoReturn, TypeVar

from adjoint.base.errors import NotSupported
from adjoint.base.errors import missing as _missing_in

T = TypeVar("T")


def wrap(fn_or_name: T) -> T:
    """What was given: a mark for a tracer, as a decorator or by name.

    >>> wrap(len)([1, 2]), wrap("len")
    (2, 'len')
    """
    if not (callable(fn_or_name) or isinstance(fn_or_name, str)):
        raise RuntimeError("Unsupported type for global function! Must be either a callable or "
                           f"string name, got {type(fn_or_name).__name__}")
    return fn_or_name


def symbolic_trace(root: Any = None, concrete_args: Any = None) -> NoReturn:
    """Raises: there is no tracer of Python code."""
    raise NotSupported("fx.symbolic_trace: programs are not traced to fx graphs here; explain(out), "
                       "draw(out) and func.linearize show and use the graph of a run")


class Proxy:
    """What a tracer hands to a program in PyTorch. Nothing is an instance here."""


__path__: list[str] = []               # a package, so that `fx.experimental` is found
__all__ = ["Proxy", "symbolic_trace", "wrap"]
__getattr__ = _missing_in("adjoint.fx")
