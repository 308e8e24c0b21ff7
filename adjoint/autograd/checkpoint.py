"""Checkpointing: residuals of a region are dropped and computed again in backward.

Non-reentrant (Chen et al. 2016, arXiv:1604.06174, with PyTorch's later semantics): saved-tensor
hooks put a placeholder where a residual would be. The first placeholder that is read runs the
region again, stops as soon as the last needed residual exists, and hands out the values.
"""
from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from numpy import ndarray

from adjoint.autograd.graph import saved_tensors_hooks
from adjoint.autograd.modes import enable_grad
from adjoint.base import provenance
from adjoint.base.aval import Aval
from adjoint.base.errors import ArgumentError, AutogradError
from adjoint.core import autocast
from adjoint.core.bind import value_of
from adjoint.core.modes import GRAD, TOLD, as_pytorch, change, state, warn_as_pytorch, watchers
from adjoint.core.residuals import level_of, light, packed
from adjoint.core.tensor import (
    Kept,
    Node,
    OutRef,
    Packed,
    Parameter,
    Tensor,
    alias,
    keep,
    wrap,
)
from adjoint.core.trace import born, current_level, here, inside
from adjoint.ops.generator import default_generator


class CheckpointError(AutogradError):
    """The recomputation of a checkpointed region differed from its forward."""


class _Stop(Exception):
    """Raised inside of a recomputation when every residual exists."""


# What is known of a residual: shape, dtype, the name of its node, the user's line (code object and
# offset), the node's number, the number of the node's first residual.
_Of = tuple[str, Any, int, int, int]
_Seen = tuple[Any, Any, str, Any, int, int, int]


class _Frame:
    """One checkpointed call: how to run it again, and what its residuals looked like."""

    def __init__(self, run: Callable[[], Any], early_stop: bool, check: bool) -> None:
        self.run, self.early_stop, self.check = run, early_stop, check
        self.again: list[_Seen] | None = None    # `seen` of the recomputation
        self.holders: list[weakref.ref[Packed]] = []    # who stands in the residuals' places
        self.seen: list[_Seen] = []
        self.values: dict[int, Any] = {}
        self.results: dict[int, Any] = {}   # residual -> weak reference, cell, version
        self.filled = False                 # it has run again
        self.operands: tuple[Any, ...] = ()
        self.place = here()
        self.level = current_level()        # values of transforms begun in the region stay as
        # they are: their transform has ended when the region is run again

    def returned(self, result: Any) -> None:
        """Note a result that is a residual, too: while somebody holds it, it need not be made."""
        if type(result) is Tensor and result._base is None and isinstance(result._edge, Node):
            saved, cell = result._edge.saved, result._cell
            if cell is None or type(saved) is not tuple:
                return
            for s in saved:
                if type(s) is Packed and type(s.original) is int and s.hook.frame is self:
                    self.results[s.value] = weakref.ref(result.array), cell, cell.version

    def held(self, i: int) -> Any:
        """Residual `i`, if it is a result that is there as it was; None."""
        if i not in self.results:
            return None
        array, cell, version = self.results[i]
        return None if cell.exposed or cell.version != version else array()

    def last(self) -> int:
        """The last residual that the region has to make again; -1 if nobody wants one."""
        wanted = [i for i, holder in enumerate(self.holders) if holder() is not None]
        gone = [i for i in wanted if self.held(i) is None]
        return gone[-1] if gone else wanted[-1] if wanted else -1

    def recompute(self) -> None:
        """Run the region again and collect its residuals."""
        self.values.clear()
        if self.again is not None:
            self.again.clear()
        collect = _Collect(self)
        try:
            with enable_grad(), inside(self.place), collect:
                self.run()
        except _Stop:
            pass
        for i, saved in collect.kept:
            if _written(saved):              # by the region itself: an error for who reads it
                self.values[i] = (saved,)
        collect.kept.clear()                 # (regions inside of this one live on, with the hook)
        self.filled = True
        if collect.seen != len(self.seen):
            last = self.seen[min(collect.seen, len(self.seen) - 1)] if self.seen else None
            raise CheckpointError(
                "torch.utils.checkpoint: A different number of tensors was saved during the "
                f"original forward and recomputation.\nNumber of tensors saved during forward: "
                f"{len(self.seen)}\nNumber of tensors saved during recomputation: {collect.seen}"
                f"\n  the first that is missing: {_words(last) if last else '- saved by -'}"
                "\n  the region must do the same work when it is run again: look for branches on "
                "changing state, caches, or random numbers drawn without preserve_rng_state")


def _words(seen: _Seen, by: str = " saved by ") -> str:
    """`_known` in words."""
    shape, dtype, name, code, lasti, *_ = seen
    return f"{Aval(tuple(shape), dtype)}{by}{name} at {provenance.locate(code, lasti)}"


class _Hooks(saved_tensors_hooks):
    """What both runs of a region do with the residuals of a node. It is done at every op, so that
    plain tensors have short ways."""

    def __init__(self, frame: _Frame) -> None:
        super().__init__(lambda t: t, lambda t: t)
        self.frame, self.levels = frame, frame.level

    def packs(self, node: Any) -> tuple[Any, ...]:
        """In the places of the residuals that are tensors."""
        found, count = [], self.count()
        of = node.name(), node.code, node.lasti, getattr(node, "seq", 0), count
        for i, s in enumerate(node.saved):
            kind = type(s)
            if kind is Tensor or kind is Parameter:
                found.append(self.one(s, s.array, of, s._edge if s._rg else None, i))
            elif kind is OutRef and type(s.array) is ndarray:
                found.append(self.one(s, s.array, of, s.index, i))
            elif kind is tuple:
                found.append(tuple([self.other(x, of, i) for x in s]))
            else:
                found.append(self.other(s, of, i))
        return tuple(found)

    def other(self, saved: Any, of: _Of, i: int) -> Any:
        """The same for any other residual; what is no tensor stays, as do values of transforms
        that began in the region."""
        if not isinstance(saved, (Tensor, OutRef, Kept)) or level_of(saved) > self.levels:
            return saved
        array = saved.array
        return self.one(saved, array.array if isinstance(array, Tensor) else array, of,
                        light(saved), i)

    def pack(self, saved: Any, node: Any) -> Any:
        """The same for the operand of a region inside of this one."""
        return self.other(saved, (node.name(), node.code, node.lasti, 0, self.count()), 0)

    def count(self) -> int:
        """How many residuals there were so far."""
        raise NotImplementedError

    def one(self, saved: Any, array: Any, of: _Of, original: Any, i: int
            ) -> Any:
        """What stands in the place of a residual of the node of that name, line and number."""
        raise NotImplementedError


class _At:
    """Stands for the node that reads what a region makes again."""

    __slots__ = ("seq",)

    def __init__(self, seq: int) -> None:
        self.seq = seq


def _looked_after() -> Any:
    """The hooks around that look after what regions make again, beneath those of regions."""
    for hook in reversed(watchers.hooks.get()):
        if not isinstance(hook, _Hooks):
            return hook if hook.regions else None
    return None


def remaking() -> bool:
    """Whether a region is being run again."""
    return any([type(hook) is _Collect for hook in watchers.hooks.get()])


class _Collect(_Hooks):
    """Hooks of a recomputation: keep what the graph still needs, stop when that is all. Ops are
    told of as they have run, up to the one that may be the last: its operands can be enough."""

    def __init__(self, frame: _Frame) -> None:
        super().__init__(frame)
        self.seen, self.last = 0, frame.last()
        self.kept: list[tuple[int, Any]] = []        # what was collected, until it is looked at
        self.near = frame.seen[self.last][-1] if self.last > 0 else 0
        self.told = self.near > 0 or not frame.early_stop
        self.outer = _looked_after()

    def count(self) -> int:
        return self.seen

    def ends(self, more: int) -> bool:
        return self.frame.early_stop and more > 0 and self.seen + more > self.last

    def one(self, saved: Any, array: Any, of: _Of, original: Any, i: int
            ) -> Any:
        frame, at, i = self.frame, i, self.seen
        self.seen = i + 1
        if frame.again is not None:
            frame.again.append((array.shape, array.dtype, *of))
        if i < len(frame.seen):
            old = frame.seen[i]
            if frame.check and (old[2] != of[0] or old[0] != array.shape or old[1] != array.dtype):
                _differs(i, old, (array.shape, array.dtype, *of))
            if self.outer is not None and type(array) is ndarray:
                saved = packed(saved, _At(old[-2]), self.outer, at)
                if frame.holders[i]() is not None:
                    frame.values[i] = saved
            elif frame.holders[i]() is not None:
                frame.values[i] = array if type(array) is ndarray else _plain(saved)
                self.kept.append((i, saved))
            if frame.early_stop:
                if i >= self.last:
                    self.seen = len(frame.seen)
                    raise _Stop
                if i + 1 == self.near:
                    change(clear_bits=TOLD)          # (leaving the block puts it back)
        return saved

    def unpack(self, packed: Any, node: Any) -> Any:
        return _plain(packed.value)


def _written(saved: Any) -> bool:
    """Whether a residual was written to since it was saved."""
    if type(saved) is OutRef:
        return bool(saved.cell.version != saved.version)
    t, version = (saved.tensor, saved.version) if type(saved) is Kept else (saved, 0)
    return t._cell is not None and bool(t._cell.version != version)


def _plain(saved: Any) -> Tensor:
    """What a node saved, as a tensor without history (of its level) on the same memory."""
    if isinstance(saved, OutRef) and not isinstance(saved.array, Tensor):
        return wrap(saved.array)
    t = saved.array if isinstance(saved, OutRef) else (
        saved.tensor if type(saved) is Kept else saved)
    return _apart(t)


def _apart(t: Any) -> Any:
    """`t` without its place in the tape of its level."""
    return t.trace.strip(t) if t.level else alias(t)


def _bottoms(t: Any) -> list[Any]:
    """The plain tensors that a value of transforms consists of."""
    if not isinstance(t, Tensor) or not t.level:
        return [t] if isinstance(t, Tensor) else []
    return [b for part in t.trace.held(t) for b in _bottoms(part)]


def _differs(i: int, old: _Seen, new: _Seen) -> None:
    raise CheckpointError(
        "torch.utils.checkpoint: Recomputed values for the following tensors have different "
        f"metadata than during the forward pass.\n  residual {i}:\n"
        f"    forward:       {_words(old)}\n"
        f"    recomputation: {_words(new)}\n"
        "  the region must do the same work when it is run again")


def _logs(frame: _Frame) -> str:
    """What `debug` shows beside the error: everything that was saved, both times."""
    def listed(title: str, saved: Sequence[_Seen]) -> str:
        return "\n".join([title, *(f"  {i}: {_words(s, ' by ')}" for i, s in enumerate(saved))])
    return "\n".join((
        "An error happened while unpacking tensors; dumping logs of latest computation because "
        "you passed `debug=True` to `torch.utils.checkpoint.checkpoint()`.",
        listed("Saved in the original forward:", frame.seen),
        listed("Saved during recomputation:", frame.again or ())))


class _Pack(_Hooks):
    """Hooks of the forward: placeholders in place of residuals."""

    def count(self) -> int:
        return len(self.frame.seen)

    def one(self, saved: Any, array: Any, of: _Of, original: Any, i: int
            ) -> Any:
        frame = self.frame
        seen = frame.seen
        made = Packed(len(seen), self, original, i)
        seen.append((array.shape, array.dtype, *of))
        frame.holders.append(weakref.ref(made))
        return made

    def keeps(self) -> tuple[Any, ...]:
        """What is held so that the region can run again, and of what that made."""
        return *self.frame.operands, *self.frame.values.values()

    def ready(self, packed: Any) -> Any:
        """Have the residual made again, if it is not there: it, or what hooks have of it; None
        where it is a result that somebody holds."""
        frame, index = self.frame, packed.value
        if type(index) is not int:                   # the operand of a region inside of this one
            index = index.value
        if index not in frame.values and not (frame.filled and frame.held(index) is not None):
            try:
                frame.recompute()
            except CheckpointError as error:
                if frame.again is None:
                    raise
                raise CheckpointError(_logs(frame)) from error
        return frame.values.get(index)

    def unpack(self, packed: Any, node: Any) -> Any:
        frame, index = self.frame, packed.value
        if type(index) is not int:
            index = index.value
        self.ready(packed)
        found = frame.values.pop(index, None)
        if found is None:
            found = frame.held(index)
            if found is None:
                raise CheckpointError("torch.utils.checkpoint: a residual of the region was not "
                                      "made again by its recomputation")
        if type(found) is Packed:
            return found.hook.unpack(found, node)
        if type(found) is tuple:
            found = value_of(found[0], node)         # (raises)
        return found if isinstance(found, Tensor) else wrap(found)


class _Inputs:
    """The operands of a region. An enclosing checkpoint (or other hooks) packs its tensors, so
    that nested regions keep nothing of their own."""

    def __init__(self, args: tuple[Any, ...]) -> None:
        hooks = watchers.hooks.get()
        self.hook = hooks[-1] if hooks else None
        self.place = provenance.here(sys._getframe(3))
        self.kept = [keep(b, "checkpoint") for a in args
                     for b in _bottoms(a)] if self.hook is None else []
        self.held = tuple(self._hold(a) if isinstance(a, Tensor) else a for a in args)

    def _hold(self, t: Tensor) -> Any:
        if self.hook is None or t.level > self.hook.levels:
            return keep(t) if t.level else t        # (in-place ops may change the object itself)
        node = _InputNode(t)
        packed = self.hook.pack(t, node)
        return _HeldInput(packed, t._rg, _born(t))

    def get(self) -> tuple[Any, ...]:
        """Operands as fresh leaves, unchanged since forward."""
        for a in self.kept:
            value_of(a, self)
        return tuple(self._fresh(a) for a in self.held)

    def _fresh(self, a: Any) -> Any:
        if isinstance(a, _HeldInput):
            t = self.hook.unpack(a, None)  # type: ignore[union-attr]  # not None
            fresh = _apart(t)
            fresh._rg, fresh._born = a.requires_grad, a.born
            return fresh
        if type(a) is Tensor or isinstance(a, Tensor) and a.level:
            fresh = _apart(a)
            fresh._rg, fresh._born = a._rg, _born(a)
            return fresh
        return a


    def name(self) -> str:
        """How messages call this holder."""
        return "checkpoint"

    def where(self) -> str:
        """Where the region was called, in words."""
        return self.place


class _HeldInput:
    __slots__ = ("value", "requires_grad", "born")

    def __init__(self, value: Any, requires_grad: bool, born: int) -> None:
        self.value, self.requires_grad, self.born = value, requires_grad, born


class _InputNode:
    """Stands for the place where a region's operand came from, in messages."""

    __slots__ = ("code", "lasti")

    def __init__(self, t: Tensor) -> None:
        node = t.grad_fn
        self.code, self.lasti = (node.code, node.lasti) if node is not None else (None, 0)

    def name(self) -> str:
        return "checkpoint input"


def _born(t: Any) -> int:
    """The level of the gradient that `t` is a variable of; of the first, for what depends on it."""
    return born(t._edge) if t._rg and t._edge is not None and not t.level else int(t._born)


_options: dict[str, Any] = {"early_stop": True, "debug": None}


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool) -> Any:
    """Whether a recomputation ends as soon as the last residual exists (default True)."""
    held, _options["early_stop"] = _options["early_stop"], enable
    try:
        yield
    finally:
        _options["early_stop"] = held


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Any:
    """Inside, `checkpoint` takes this for its `debug`, whatever it is told; None: what it is told.

    >>> import adjoint as ad
    >>> x = ad.ones(3, requires_grad=True)
    >>> with ad.utils.checkpoint.set_checkpoint_debug_enabled(True):
    ...     y = ad.utils.checkpoint.checkpoint(ad.exp, x, use_reentrant=False)
    """
    held, _options["debug"] = _options["debug"], enabled
    try:
        yield
    finally:
        _options["debug"] = held


def noop_context_fn() -> tuple[Any, Any]:
    """The contexts of forward and recomputation that do nothing."""
    return contextlib.nullcontext(), contextlib.nullcontext()


def _told_to_choose(who: str, until: str) -> None:
    warn_as_pytorch(f"torch.utils.checkpoint{who}: the use_reentrant parameter should be passed "
                    f"explicitly. {until}. use_reentrant=False is recommended, but if you need to "
                    "preserve the current default behavior, you can pass use_reentrant=True. Refer "
                    "to docs for more details on the differences between the two variants.")


def _told_of_none(args: Sequence[Any]) -> None:
    if as_pytorch[0] and not any(isinstance(a, Tensor) and a.requires_grad for a in args):
        warn_as_pytorch("None of the inputs have requires_grad=True. Gradients will be None")


def repeatable(function: Callable[..., Any], preserve_rng_state: bool = True
               ) -> Callable[..., Any]:
    """What runs `function` again as it would run now: with the casts of an open autocast and, if
    `preserve_rng_state`, on the same random numbers."""
    rng = default_generator.stream.hold() if preserve_rng_state else None
    autocast_again = autocast.snapshot()

    def run(*args: Any, **kwargs: Any) -> Any:
        now = default_generator.stream.hold() if rng is not None else None
        try:
            if rng is not None:
                default_generator.stream.back_to(rng)
            with autocast_again():
                return function(*args, **kwargs)
        finally:
            if now is not None:
                default_generator.stream.back_to(now)
    return run


def checkpoint(function: Callable[..., Any], *args: Any, use_reentrant: bool | None = None,
               context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn,
               determinism_check: str = "default", debug: bool = False,
               preserve_rng_state: bool = True, early_stop: bool = True, **kwargs: Any) -> Any:
    """function(*args, **kwargs), keeping only its operands for backward; the rest is computed
    again when backward gets there.

    preserve_rng_state  draw the same random numbers again (dropout)
    determinism_check   "default": shapes and dtypes of residuals are compared; "none"
    debug               an error says all that was saved, in the forward and when it ran again
    context_fn          () -> (context of forward, context of recomputation)
    Inside of transforms, and around them, it is the same: a vmap or jvp that has ended goes on
    while the function runs again.
    `use_reentrant=True` computes the same, in one implementation; it takes no keywords.

    >>> import adjoint as ad
    >>> x = ad.ones(3, requires_grad=True)
    >>> y = ad.utils.checkpoint.checkpoint(lambda t: t.exp().sin(), x, use_reentrant=False)
    >>> y.sum().backward()
    """
    if use_reentrant and kwargs:
        raise ArgumentError("Unexpected keyword arguments: " + ",".join(kwargs)
                            + " (use_reentrant=False passes them to the function)")
    if use_reentrant and (context_fn is not noop_context_fn or debug):
        raise ArgumentError("Passing `context_fn` or `debug` is only supported when "
                            "use_reentrant=False.")
    if determinism_check not in ("default", "none"):
        raise ArgumentError("determinism_check should be one of ['default', 'none'], but got "
                            f"{determinism_check}")
    if use_reentrant is None:
        _told_to_choose("", "Starting in PyTorch 2.9, calling checkpoint without use_reentrant "
                        "will raise an exception")
    if not state() & GRAD:
        return function(*args, **kwargs)
    if use_reentrant is None or use_reentrant:       # PyTorch's default
        _told_of_none(args)
    if _options["debug"] is not None:
        debug = _options["debug"]
    return region(function, args, kwargs, context_fn, preserve_rng_state,
                  early_stop and _options["early_stop"], determinism_check, debug)


def region(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
           context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn,
           preserve_rng_state: bool = True, early_stop: bool = True, check: str = "default",
           debug: bool = False, chained: bool = False) -> Any:
    """`checkpoint`, its options looked at. `chained`: somebody is going to hold the result, which
    is not made again then, nor is it compared what would have been."""
    forward_context, again_context = context_fn()
    held, again = _Inputs(args), repeatable(function, preserve_rng_state)

    def run() -> Any:
        with again_context:
            return again(*held.get(), **kwargs)

    frame = _Frame(run, early_stop, check != "none")
    frame.operands = held.held
    if debug:
        frame.again = []
    with _Pack(frame), forward_context:
        result = function(*args, **kwargs)
    if chained:
        frame.returned(result)
    return result


def checkpoint_sequential(functions: Any, segments: int, input: Any, use_reentrant: bool | None =
                          None, preserve_rng_state: bool = True, **kwargs: Any) -> Any:
    """A chain of functions in `segments` checkpointed pieces; the last piece runs as it is."""
    if kwargs:
        raise ArgumentError("Unexpected keyword arguments: " + ",".join(kwargs))
    if use_reentrant is None:
        _told_to_choose(".checkpoint_sequential", "In version 2.9 we will raise an exception if "
                        "use_reentrant is not passed")
    chain: Sequence[Any] = list(functions.children()) if hasattr(functions, "children") \
        else list(functions)
    if segments < 1 or segments > len(chain):
        raise AutogradError(f"checkpoint_sequential: segments must be in [1, {len(chain)}] for a "
                            f"chain of {len(chain)} functions, got {segments}")

    def piece(start: int, end: int) -> Callable[[Any], Any]:
        def forward(x: Any) -> Any:
            for f in chain[start:end]:
                x = f(x)
            return x
        return forward

    if segments > 1 and state() & GRAD and (use_reentrant is None or use_reentrant):
        _told_of_none([input])
    size = len(chain) // segments
    end = 0
    for start in range(0, size * (segments - 1), size):
        end = start + size
        input = checkpoint(piece(start, end), input, preserve_rng_state=preserve_rng_state,
                           use_reentrant=False)
    return piece(end, len(chain))(input)
