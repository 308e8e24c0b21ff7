"""The one piece of per-thread state that dispatch reads: may a graph be built here?

`state()` returns a bit set. A ContextVar is read in about 15 ns and gives every thread (and
every asyncio task) its own value, beginning with gradients enabled.
"""
from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import Any

from adjoint.base import provenance
from adjoint.base.errors import NoKernel

GRAD = 1        # record nodes for operands that require a gradient
WATCH = 2       # saved-tensor hooks, anomaly checks or a recorder are active: take the full path
INFERENCE = 4   # results are inference tensors: no version counter, no graph, ever
AUTOCAST = 8    # an `amp.autocast` is open: some ops cast their operands
TOLD = 16       # beside WATCH: whoever watches is content to be told of what machine code ran

ASKED = 32      # beside INFERENCE: `enable_grad` was entered there, and changes only what it says

STATE: ContextVar[int] = ContextVar("adjoint_state", default=GRAD)
state = STATE.get
# whether a gradient is laid out as its leaf; whether views of a base that was written to are made
# again by their own ops
GRAD_LAYOUT: ContextVar[bool] = ContextVar("adjoint_grad_layout", default=True)
VIEW_REPLAY: ContextVar[bool] = ContextVar("adjoint_view_replay", default=False)


def change(set_bits: int = 0, clear_bits: int = 0) -> Token[int]:
    """Change the state of this thread; give the token to `restore`."""
    bits = (state() | set_bits) & ~clear_bits
    if not bits & INFERENCE or clear_bits & GRAD:
        bits &= ~ASKED
    elif bits & GRAD:
        bits = bits & ~GRAD | ASKED
    return STATE.set(bits)


def restore(token: Token[int], outer: int) -> None:
    """Undo `change`; `outer` is the state before it, used where the token is of another context
    (a generator resumed elsewhere)."""
    try:
        STATE.reset(token)
    except ValueError:
        STATE.set(outer)


class Observer:
    """What the full path tells while an observer is entered; override what is wanted.

    Ops are those that run on plain tensors (also under transforms, whose rules end in such ops),
    with and without a gradient. `node` is None where nothing was recorded. Rules of a backward
    without `create_graph` compute on raw arrays: `before_backward` and `backward` frame them.
    """

    told = False            # it looks at what has run, only: ops and nodes run in machine code,
    # `before` comes with `after`, `before_backward` of a node may not come

    cotangents = False      # `backward` reads its results: each has to be made by itself, where
    # a rule could add to what the operand has got so far

    ran: Any = None         # where not None, and it alone watches: called with (op, args,
    # attributes, result) of what has run; does what `before`, `forward` and `after` would, or
    # answers False. Told it all afterwards, at any rate

    inside = False          # it has a say while an op computes, or sees its raw results
    writes = False          # it wants to know what is about to be written to

    def __init_subclass__(cls) -> None:
        cls.inside = any(getattr(cls, name) is not getattr(Observer, name)
                         for name in ("supply", "computed", "refused"))
        cls.writes = cls.before_write is not Observer.before_write

    def before(self, op: Any, args: Any, attrs: Any) -> None:
        """An op is about to compute; in-place ops included."""

    def before_write(self, target: Any) -> None:
        """An in-place op is about to write into the memory of `target`."""

    def supply(self, op: Any, args: Any, attrs: Any) -> tuple[Any, ...] | None:
        """The raw results of the op, hidden ones last, where they need not be computed."""
        return None

    def computed(self, op: Any, args: Any, attrs: Any, outs: tuple[Any, ...]) -> None:
        """The raw results of the op, hidden ones last."""

    def refused(self, error: MemoryError) -> bool:
        """The memory for an op or a rule was refused; True to have it tried again."""
        return False

    def after(self, op: Any, args: Any, attrs: Any, made: Any, node: Any) -> None:
        """It has computed `made`, the tensors it returns (in place: the target)."""

    def forward(self, node: Any, args: Any, made: Any) -> None:
        """A node was recorded: by an op, or by a custom function."""

    def detached(self, tensor: Any, made: Any) -> None:
        """`made` shows the value of `tensor` without its history: `detach()` or `.data`."""

    def begin_walk(self, walk: Any) -> None:
        """A backward pass begins; `walk.order` has its nodes."""

    def before_backward(self, node: Any, ct: Any) -> None:
        """The rules of `node` are about to run on the cotangent(s) `ct`."""

    def backward(self, node: Any, ct: Any, results: Any) -> None:
        """They gave `results`, one per operand; the residuals have been released."""

    def accumulated(self, leaf: Any) -> None:
        """`leaf.grad` has received its contribution."""

    def end_walk(self, walk: Any) -> None:
        """The backward pass has ended, or was left by an exception."""

    def stepping(self, optimizer: Any) -> bool:
        """An optimizer is about to update its parameters. True: it is not to, but to evaluate its
        closure."""
        return False

    def stepped(self, optimizer: Any) -> None:
        """An optimizer has updated its parameters."""

    def more_than_ops(self) -> None:
        """The function that runs does more than its ops tell: it warns, or draws numbers."""

    def enter_module(self, path: str, module: Any) -> None:
        """`module` is called; `path` is its name seen from the outermost module called."""

    def leave_module(self, path: str, module: Any) -> None:
        """The call has returned or raised."""


class Watchers:
    """What the full path tells about ops: the stack of saved-tensor hooks, and the observers
    (anomaly mode, recorder, ledger, profiler). Entered per thread through `WATCH`.

    `modules` is the stack of module calls, (path, module) each; kept while something watches.
    `modes` are the open modes with `__torch_dispatch__`, the innermost last; `route` and `write`
    run an op and an in-place op where these or a class are asked (`core/dispatch.py` sets them).
    """

    route: Any = None
    write: Any = None

    def __init__(self) -> None:
        self.hooks: ContextVar[tuple[Any, ...]] = ContextVar("adjoint_saved_hooks", default=())
        self.observers: ContextVar[tuple[Any, ...]] = ContextVar("adjoint_observers", default=())
        self.modes: ContextVar[tuple[Any, ...]] = ContextVar("adjoint_dispatch", default=())
        self.modules: ContextVar[tuple[tuple[str, Any], ...]] = ContextVar("adjoint_modules",
                                                                           default=())

    def module_path(self) -> str:
        """The name of the innermost module that is being called; "" outside of modules."""
        stack = self.modules.get()
        return stack[-1][0] if stack else ""

    def push(self, var: ContextVar[tuple[Any, ...]], item: Any) -> tuple[Any, ...]:
        """Add `item`; returns what to hand to `pop`."""
        return self.put(var, (*var.get(), item))

    def put(self, var: ContextVar[tuple[Any, ...]], items: tuple[Any, ...]) -> tuple[Any, ...]:
        """Let `items` stand there; returns what to hand to `pop`."""
        token = var.set(items)
        outer = state()
        if not (self.hooks.get() or self.observers.get() or self.modes.get()):
            mode = change(clear_bits=WATCH | TOLD)
        else:
            mode = change(WATCH | TOLD) if self._content() else change(WATCH, TOLD)
        return var, token, mode, outer

    def _content(self) -> bool:
        """Whether all who watch are content to be told of what machine code ran: observers, or
        hooks on what is saved (beside each other they see things in the order of the full path).
        """
        hooks, observers = self.hooks.get(), self.observers.get()
        if self.modes.get() or hooks and observers:
            return False
        return hooks[-1].told if hooks else all([o.told and not o.inside for o in observers])

    def pop(self, held: tuple[Any, ...]) -> None:
        """Undo `push`."""
        var, token, mode_token, outer = held
        try:
            var.reset(token)
        except ValueError:
            var.set(var.get()[:-1])
        restore(mode_token, outer)


watchers = Watchers()


def about_to_write(*targets: Any) -> None:
    """Tell the observers that what is no op is about to write into the memory of `targets`."""
    if state() & WATCH:
        for observer in watchers.observers.get():
            for target in targets if observer.writes else ():
                observer.before_write(target)


def not_replayed() -> None:
    """What the function that calls this does now is more than what plans repeat."""
    for observer in watchers.observers.get():
        observer.more_than_ops()


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the nearest frame outside of the package. A call that warns is not replayed, so that
    it warns again where the filters let it."""
    not_replayed()
    provenance.warn(message, category)


said: set[str] = set()          # by `warn_once`, in this process
warn_always = [False]           # `set_warn_always`: `warn_once` warns each time


as_pytorch = [False]            # it runs as `torch`: programs may wait for its warnings


def warn_once(message: str) -> None:
    """`warn` at the first time in this process."""
    if warn_always[0]:
        warn(message)
    elif message not in said:
        said.add(message)
        warn(message)


def warn_as_pytorch(message: str, category: type[Warning] = UserWarning, once: bool = False
                    ) -> None:
    """`warn` in a program that runs as `torch`, of what PyTorch means to change or to take away;
    programs that name this package have nothing to change."""
    if as_pytorch[0] and not (once and message in said and not warn_always[0]):
        said.add(message)
        warn(message, category)


def modes_open() -> bool:
    """True if a `TorchDispatchMode` is to be asked about every op."""
    return bool(state() & WATCH and watchers.modes.get())


# What an argument of a wrong type or value leads to somewhere inside.
MISTAKES = (AttributeError, ValueError, IndexError, TypeError, KeyError, OverflowError,
            ZeroDivisionError)


def blame(f: Callable[..., Any], args: Any, kwargs: Any) -> None:
    """Where a call failed: raise the refusal of an argument of a wrong type, if there is one, or
    what the failure is called in our tree, unless it is of it or of code that is not ours."""
    from adjoint.core.schema import blamed, retold  # failing calls alone need them
    error = sys.exception()
    tb: Any = error and error.__traceback__
    if isinstance(error, NoKernel):
        return                          # (it names the dtype that is the reason)
    if isinstance(error, TypeError) and (tb.tb_next is None or "argument '" in str(error)):
        return                          # Python refused the call as such, or it is said already
    found: Exception | None = blamed(f, args, kwargs)
    cause = None
    if found is None:
        found, cause = retold(f, args, kwargs, error), error
    try:
        if found is not None:
            raise found from cause
    finally:                # an error that its own frame holds would keep what the callers hold
        del error, tb, found, cause
