"""Which variables of a frame hold which tensors."""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from inspect import CO_OPTIMIZED
from sys import getrefcount
from types import FrameType
from typing import Any

from adjoint.core.tensor import Tensor

MANY = 256      # entries of a list or dict that are looked at
_HOLDERS = frozenset((list, tuple, dict))


def bound_tensors(frame: FrameType | None, read: set[int] | None = None) -> list[tuple[str, Any]]:
    """(name, tensor) of the variables of `frame`, one level into lists, tuples and dicts, and the
    parameters and buffers of modules. Modules whose `id` is in `read` are left out; those that are
    looked into are added."""
    if frame is None:
        return []
    local, shared = frame.f_locals, frame.f_globals
    found = list(tensors_in(local, read))
    if local is not shared:
        found += tensors_in(shared, read)
        _forget(frame, local)
    return found


def name_of(frame: FrameType, t: Any) -> str | None:
    """The name of `t` alone, parameters of modules left out: looked up for every operand that has
    none yet, so nothing but identities is compared."""
    local, shared = frame.f_locals, frame.f_globals
    name = _named(local, t)
    if local is not shared:
        if name is None:
            name = _named(shared, t)
        _forget(frame, local)
    return name


def _named(scope: Mapping[str, Any], t: Any) -> str | None:
    held = []
    for name, value in list(scope.items()):
        if value is t:
            if name != "_":
                return name
        elif type(value) in _HOLDERS and not name.startswith("__"):
            held.append((name, value))
    return next((n for name, value in held for n, v in _entries(name, value) if v is t), None)


def _forget(frame: FrameType, local: Any) -> None:
    """Before Python 3.13 a frame keeps the dict that `f_locals` made, and with it the tensors, past
    the end of their variables. It is emptied unless the program itself holds it."""
    # (three references: the frame's, the caller's variable and ours; the fourth is the argument)
    if frame.f_code.co_flags & CO_OPTIMIZED and type(local) is dict and getrefcount(local) <= 4:
        local.clear()


def tensors_in(scope: Mapping[str, Any], read: set[int] | None = None
               ) -> Iterator[tuple[str, Any]]:
    """The same of names and values that are given."""
    later: list[tuple[str, Any]] = []
    for name, value in list(scope.items()):
        if isinstance(value, Tensor):
            if name != "_":
                yield name, value
        elif not name.startswith("__"):
            kind = type(value)         # (never an attribute: some objects answer to any name)
            if kind in _HOLDERS or hasattr(kind, "named_parameters"):
                later.append((name, value))
    for name, value in later:
        if type(value) in _HOLDERS:
            yield from _entries(name, value)
        elif read is None or id(value) not in read:
            if read is not None:
                read.add(id(value))
            yield from ((n, v) for n, v in _parameters(name, value) if isinstance(v, Tensor))


def _entries(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The tensors of a list, tuple or dict as an expression of the program calls them."""
    keyed = type(value) is dict
    items = list(value.items())[:MANY] if keyed else enumerate(value[:MANY])
    return ((f"{name}[{k!r}]", v) for k, v in items if isinstance(v, Tensor))


def _parameters(name: str, module: Any) -> list[tuple[str, Any]]:
    prefix = "" if name == "self" else f"{name}."
    try:
        return [(prefix + n, t) for n, t in (*module.named_parameters(), *module.named_buffers())]
    except Exception:       # an object of the user's that only looks like a module
        return []


__all__ = ["bound_tensors", "name_of", "tensors_in"]
