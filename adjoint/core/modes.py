"""The one piece of per-thread state that dispatch reads: may a graph be built here?

`state()` returns a bit set. A ContextVar is read in about 15 ns and gives every thread (and
every asyncio task) its own value, beginning with gradients enabled.
"""
from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Any

GRAD = 1        # record nodes for operands that require a gradient
WATCH = 2       # saved-tensor hooks, anomaly checks or a recorder are active: take the full path
INFERENCE = 4   # results are inference tensors: no version counter, no graph, ever

_state: ContextVar[int] = ContextVar("adjoint_state", default=GRAD)
state = _state.get


def change(set_bits: int = 0, clear_bits: int = 0) -> Token[int]:
    """Change the state of this thread; give the token to `restore`."""
    return _state.set((state() | set_bits) & ~clear_bits)


def restore(token: Token[int], outer: int) -> None:
    """Undo `change`; `outer` is the state before it, used where the token is of another context
    (a generator resumed elsewhere)."""
    try:
        _state.reset(token)
    except ValueError:
        _state.set(outer)


class Watchers:
    """What the full path tells about ops: the stack of saved-tensor hooks, and observers of
    forward nodes (anomaly mode, recorder, ledger). Entered per thread through `WATCH`."""

    def __init__(self) -> None:
        self.hooks: ContextVar[tuple[Any, ...]] = ContextVar("adjoint_saved_hooks", default=())
        self.observers: ContextVar[tuple[Any, ...]] = ContextVar("adjoint_observers", default=())

    def push(self, var: ContextVar[tuple[Any, ...]], item: Any) -> tuple[Any, ...]:
        """Add `item`; returns what to hand to `pop`."""
        token = var.set((*var.get(), item))
        outer = state()
        return var, token, change(set_bits=WATCH), outer

    def pop(self, held: tuple[Any, ...]) -> None:
        """Undo `push`."""
        var, token, mode_token, outer = held
        try:
            var.reset(token)
        except ValueError:
            var.set(var.get()[:-1])
        restore(mode_token, outer)


watchers = Watchers()
