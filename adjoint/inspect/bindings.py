"""Which variables of a frame hold which tensors."""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from inspect import CO_OPTIMIZED
from sys import getrefcount
from types import FrameType
from typing import Any

from adjoint.core.tensor import Tensor

MANY = 256      # entries of a list or dict that are looked at


def bound_tensors(frame: FrameType | None, only: Any = None) -> list[tuple[str, Any]]:
    """(name, tensor) of the variables of `frame`, one level into lists, tuples and dicts, and the
    parameters and buffers of modules. With `only`, the names of that tensor alone."""
    if frame is None:
        return []
    local, shared = frame.f_locals, frame.f_globals
    found = list(tensors_in(local, only))
    if local is not shared:
        found += tensors_in(shared, only)
        _forget(frame, local)
    return found


def _forget(frame: FrameType, local: Any) -> None:
    """Before Python 3.13 a frame keeps the dict that `f_locals` made, and with it the tensors, past
    the end of their variables. It is emptied unless the program itself holds it."""
    # (three references: the frame's, the caller's variable and ours; the fourth is the argument)
    if frame.f_code.co_flags & CO_OPTIMIZED and type(local) is dict and getrefcount(local) <= 4:
        local.clear()


def tensors_in(scope: Mapping[str, Any], only: Any = None) -> Iterator[tuple[str, Any]]:
    """The same of names and values that are given."""
    later: list[tuple[str, Any]] = []
    for name, value in list(scope.items()):
        if isinstance(value, Tensor):
            if name != "_" and (only is None or value is only):
                yield name, value
        elif not name.startswith("__"):
            kind = type(value)         # (never an attribute: some objects answer to any name)
            if kind is list or kind is tuple or kind is dict:
                later.append((name, value))
            elif only is None and hasattr(kind, "named_parameters"):
                later.append((name, value))
    for name, value in later:
        kind = type(value)
        if kind is dict:
            items = [(f"{name}[{k!r}]", v) for k, v in list(value.items())[:MANY]]
        elif kind is list or kind is tuple:
            items = [(f"{name}[{i}]", v) for i, v in enumerate(value[:MANY])]
        else:
            items = _parameters(name, value)
        yield from ((n, v) for n, v in items
                    if isinstance(v, Tensor) and (only is None or v is only))


def _parameters(name: str, module: Any) -> list[tuple[str, Any]]:
    prefix = "" if name == "self" else f"{name}."
    try:
        return [(prefix + n, t) for n, t in (*module.named_parameters(), *module.named_buffers())]
    except Exception:       # an object of the user's that only looks like a module
        return []


__all__ = ["bound_tensors", "tensors_in"]
