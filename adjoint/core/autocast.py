"""What `amp.autocast` asks of dispatch: which operands are cast to which dtype before an op runs.

The record says how an op behaves there (`Op.autocast`): "lower" runs in the 16-bit dtype, "wide" in
float32, anything else in the dtypes of its operands. Functions made of several ops are marked
`@in_float32`. Only while a context is open does dispatch look here (`AUTOCAST` in `core/modes.py`).
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np

from adjoint.base.dtypes import F32, F64, DType, bfloat16, is_float
from adjoint.core.modes import AUTOCAST, GRAD, MISTAKES, blame, change, restore, state
from adjoint.core.tensor import Tensor

F = TypeVar("F", bound=Callable[..., Any])


class Settings:
    """One open `autocast`: the 16-bit dtype, and casts of parameters that are used again."""

    __slots__ = ("dtype", "held")

    def __init__(self, dtype: np.dtype[Any], held: dict[int, Any] | None) -> None:
        self.dtype, self.held = dtype, held


active: ContextVar[Settings | None] = ContextVar("adjoint_autocast", default=None)
defaults: dict[str, DType] = {"cpu": bfloat16, "xla": bfloat16}     # of the next context
keeping: ContextVar[bool] = ContextVar("adjoint_autocast_keeping", default=True)


def _eligible(x: Any, target: np.dtype[Any]) -> bool:
    if not isinstance(x, Tensor):
        return False
    have = x.array.dtype
    return have != target and have != F64 and is_float(have)


def cast_to(x: Any, target: np.dtype[Any], held: dict[int, Any] | None = None) -> Any:
    """A tensor of a 16-bit or float32 dtype in the dtype `target`; anything else as it is."""
    if not _eligible(x, target):
        return x
    from adjoint.core.op import OPS
    cast = OPS["to_dtype"].call
    if held is None or not (x._rg and x.is_leaf and x._base is None and state() & GRAD):
        return cast(x, dtype=target)
    version = -1 if x._cell is None else x._cell.version
    found = held.get(id(x))
    if found is None or found[1] != version or found[2].array.dtype != target:
        found = held[id(x)] = (x, version, cast(x, dtype=target))
    return found[2]


def operands(policy: str, args: Sequence[Any]) -> Sequence[Any]:
    """The operands of an op as the open `autocast` wants them. A raw array among them is a constant
    of the function that called the op, which is not on the lists: nothing is cast."""
    settings = active.get()
    if settings is None or any(type(a) is np.ndarray and is_float(a.dtype) for a in args):
        return args
    if policy == "wide":
        return [cast_to(a, F32) for a in args]
    return [cast_to(a, settings.dtype, settings.held) for a in args]


def lowered(*xs: Any) -> Sequence[Any]:
    """Operands of a function that runs in 16 bits where an `autocast` is open."""
    return operands("lower", xs) if state() & AUTOCAST else xs


def widened(*xs: Any) -> Sequence[Any]:
    """Operands of a function that runs in float32 where an `autocast` is open."""
    return operands("wide", xs) if state() & AUTOCAST else xs


def promoted(*xs: Any) -> Sequence[Any]:
    """Operands in the widest of their dtypes where an `autocast` is open."""
    if state() & AUTOCAST and any(isinstance(x, Tensor) and x.array.dtype == F32 for x in xs):
        return operands("wide", xs)
    return xs


def in_float32(f: F) -> F:
    """Mark a function that `autocast` runs in float32: all of it, what it calls included."""
    return resting(f, lambda x: cast_to(x, F32))


def as_it_is(f: F) -> F:
    """Mark a function on no list of `autocast` that calls ops which are: it rests inside."""
    return resting(f, lambda x: x)


def resting(f: F, cast: Callable[[Any], Any]) -> F:
    @functools.wraps(f)
    def run(*args: Any, **kwargs: Any) -> Any:
        outer = state()
        if not outer & AUTOCAST:
            try:
                return f(*args, **kwargs)
            except MISTAKES:
                blame(f, args, kwargs)
                raise
        cast_args = [type(a)(map(cast, a)) if type(a) in (list, tuple) else cast(a) for a in args]
        named = {k: cast(v) for k, v in kwargs.items()}
        token = change(clear_bits=AUTOCAST)
        try:
            return f(*cast_args, **named)
        finally:
            restore(token, outer)
    return run  # type: ignore[return-value]  # same signature


def snapshot() -> Callable[[], Any]:
    """A function that gives a context with the autocast state of now: for work done again later."""
    from contextlib import contextmanager
    settings, on = active.get(), state() & AUTOCAST

    @contextmanager
    def again() -> Any:
        outer, before = state(), active.get()
        token = change(set_bits=on, clear_bits=AUTOCAST & ~on)
        active.set(None if settings is None else
                   Settings(settings.dtype, None if settings.held is None else {}))
        try:
            yield
        finally:
            active.set(before)
            restore(token, outer)
    return again
