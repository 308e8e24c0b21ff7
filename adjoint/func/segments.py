"""A checkpointed call as one node, whose backward is a checkpointed call again.

Placeholders (`checkpoint`) serve every program, but the backward of a region is then no region: a
gradient of its gradient keeps what the inner one computed again. Here a call keeps its operands
alone, and its backward runs it again and pulls back. Where a graph of that is wanted, the pull is
in turn such a call, and so on for every order (as in JAX's `remat`).

For functions of values of no transform that write to none of their operands. Tensors that they
close over are found in the graph of the first run, which is dropped at once.
"""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from adjoint.autograd.checkpoint import CheckpointError, checkpoint, repeatable
from adjoint.autograd.engine import running_walk, walk
from adjoint.autograd.function import Function
from adjoint.autograd.graph import saved_tensors_hooks
from adjoint.autograd.modes import enable_grad
from adjoint.base import provenance
from adjoint.base.errors import AutogradError
from adjoint.core.modes import GRAD, state, watchers
from adjoint.core.node import AccumulateGrad, Port, next_sequence
from adjoint.core.tensor import Packed, Tensor, alias, edge_of, wrap
from adjoint.core.trace import current_level, here, inside
from adjoint.ops.generator import default_generator
from adjoint.ops.shape import identity_op

Run = Callable[..., Sequence[Any]]
_ZEROS = bytes(32)                      # one element of any dtype
_Step = tuple[type, Any, Any, int]      # of a node: its class, its shape, the user's line


class _Call(NamedTuple):
    """A call that can be made again: for whom, how many operands it was given, what it did."""

    run: Run
    who: str
    given: int
    trail: tuple[_Step, ...]


def segment(function: Run, *args: Any, who: str = "scan", preserve_rng_state: bool = True
            ) -> Sequence[Any]:
    """The values that `function(*args)` returns in a sequence; where the call cannot be one node,
    a checkpointed call. `who` calls, in messages."""
    if not state() & GRAD:
        return function(*args)
    if not current_level() and all([type(a) is Tensor for a in args]):
        place, stream = here(), default_generator.stream
        drawn = stream.hold()
        found = _recorded(_again(function, place),
                          _again(repeatable(function, preserve_rng_state), place), args, who, True)
        if found is not None:
            return found
        stream.back_to(drawn)
    found = checkpoint(function, *args, use_reentrant=False)
    return found


def unseen() -> bool:
    """Whether no hooks on what is saved are active but those of a segment's first run."""
    hooks = watchers.hooks.get()
    return not hooks or type(hooks[-1]) is _Passing


def _again(run: Run, place: Any) -> Run:
    """`run` at the place of the first run, and out of sight of hooks on what is saved: the graph
    is pulled back through, or dropped, before anybody else could see it."""
    def again(*args: Any) -> Sequence[Any]:
        hooks = watchers.hooks.get()
        held = watchers.put(watchers.hooks,
                            hooks[-1:] if hooks and type(hooks[-1]) is _Passing else ())
        try:
            with enable_grad(), inside(place):
                return run(*args)
        finally:
            watchers.pop(held)
    return again


def _leaf(t: Any) -> Any:
    """A variable of its own with the value of `t`; a constant if that is one."""
    new = alias(t)
    new._rg = t._rg
    return new


def _moves(t: Any) -> bool:
    return isinstance(t, Tensor) and t._rg


def _recorded(first: Run, run: Run, args: Sequence[Any], who: str, passing: bool = False
              ) -> Sequence[Any] | None:
    """The call as a node of the graph: `first` now, `run` from then on. None where values of a
    transform come out of it."""
    leaves, since = tuple(map(_leaf, args)), next_sequence()
    versions = [t._cell.version for t in leaves]
    try:
        with _Passing() if passing else contextlib.nullcontext():
            outs = first(*leaves)
    except _Read:
        return None
    written = [t._cell.version for t in leaves] != versions
    if any([isinstance(o, Tensor) and o.level for o in outs]):
        return None
    moving = [_moves(o) for o in outs]
    if not any(moving):
        return outs
    edges = [edge_of(o) for o in outs if _moves(o)]
    trail: list[_Step] = []
    entries = _entries(edges, leaves, since, {}, trail)
    values = [alias(o) if isinstance(o, Tensor) else o for o in outs]
    del outs, edges, leaves
    again = _Call(partial(_refuse, who) if written else run, who, len(args), tuple(trail))
    found: Sequence[Any] = Segment.apply(again, values, moving, *args,
                                         *map(_stand_in, entries.values()))
    return found


def _refuse(who: str, *_: Any) -> Sequence[Any]:
    raise AutogradError(
        f"{who}: one of the tensors needed for gradient computation has been modified by an "
        "inplace operation: a step wrote to what its segment was given, so that the segment cannot "
        "run again; write to a clone(), or leave out segments=")


def _node(edge: Any) -> tuple[Any, int]:
    """What tells an edge from others: the node and the number of its output."""
    return (edge.node, edge.index) if type(edge) is Port else (edge, 0)


class _Read(Exception):
    """A residual was read while the call still ran."""


class _Passing(saved_tensors_hooks):
    """Hooks of the first run, whose graph is looked through and dropped: nothing is kept for it."""

    def __init__(self) -> None:
        super().__init__(lambda t: t, lambda t: t)
        self.mark = Packed(None, self, 0, 0)

    def packs(self, node: Any) -> tuple[Any, ...]:
        """What nobody is going to read, for each residual."""
        return (self.mark,) * len(node.saved)

    def pack(self, saved: Any, node: Any) -> Any:
        """The same for one."""
        return self.mark

    def unpack(self, packed: Any, node: Any) -> Any:
        """The call takes gradients of its own."""
        raise _Read


def _entries(edges: Sequence[Any], own: Sequence[Any], since: int, ends: dict[Any, Any],
             trail: list[_Step]) -> dict[Any, Any]:
    """The edges that lead from the graph below `edges` to tensors made before `since` that are not
    `own`. What leads to one of `ends` is made to lead to the leaf given there instead. The nodes
    on the way are noted in `trail`."""
    seen: set[Any] = {_node(edge_of(t))[0] for t in own if t._rg}
    found: dict[Any, Any] = {}
    stack = list(reversed(edges))
    while stack:                          # (of every node of a segment, twice: without calls)
        edge = stack.pop()
        node = edge.node if type(edge) is Port else edge
        if node in seen:
            continue
        if (node.seq < since if type(node) is not AccumulateGrad
                else node.ended is None and node.variable is not None):
            found.setdefault(_node(edge), edge)
            continue
        seen.add(node)
        trail.append((type(node), node.shape, node.code, node.lasti))
        after = node.edges
        if ends and any([e is not None and _node(e) in ends for e in after]):
            node.edges = after = tuple([e if e is None else ends.get(_node(e), e) for e in after])
        if len(after) == 1:
            if after[0] is not None:
                stack.append(after[0])
        else:
            stack += [e for e in reversed(after) if e is not None]
    return found


def _stand_in(edge: Any) -> Tensor:
    """A tensor without memory of its own whose gradient goes to that edge."""
    dtype = edge.dtype or edge.plan.dtype
    shape = tuple(edge.shape)
    t = wrap(np.ndarray(shape, dtype, _ZEROS, 0, (0,) * len(shape)))
    t._edge, t._rg = edge, True
    return t


class Segment(Function):
    """The node: forward has been run already, backward runs it again."""

    @staticmethod
    def forward(ctx: Any, call: _Call, values: list[Any], moving: list[bool], *tensors: Any) -> Any:
        """Keep the operands; the rest of `tensors` stands for what the function closes over."""
        ctx.save_for_backward(*tensors[:call.given])
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*[v for v, m in zip(values, moving, strict=True)
                                      if not m and isinstance(v, Tensor)])
        ctx.call, ctx.sizes = call, _sizes(values)
        ctx.entries = {_node(t._edge): t._edge for t in tensors[call.given:]}
        return tuple(values)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """The cotangents of the operands, and of what the function closes over."""
        args = ctx.saved_tensors
        now: Any = running_walk()
        places = [i for i, c in enumerate(grad_outputs) if c is not None]
        cts = [grad_outputs[i] for i in places]
        pull = partial(_pull, ctx.call, places, ctx.entries, ctx.sizes)
        found = None
        if now.create:
            if not current_level() and not any([t.level for t in (*args, *cts)]):
                again = _again(partial(pull, True), here())
                found = _recorded(again, again, (*args, *cts), ctx.call.who)
            if found is None:
                found = pull(True, *[identity_op(a) if a._rg else a for a in args], *cts)
        else:
            found = pull(False, *map(_leaf, args), *cts)
        return None, None, None, *found


def _sizes(values: Sequence[Any]) -> list[tuple[int, ...]]:
    return [tuple(v.shape) if isinstance(v, Tensor) else () for v in values]


def _direct(edge: Any) -> bool:
    """Whether a pull can end at a leaf itself: nobody else is to see what arrives there."""
    return type(edge) is AccumulateGrad and not (
        edge._tensor_hooks or edge._pre_hooks or edge.typed)


def _pull(call: _Call, places: Sequence[int], entries: dict[Any, Any],
          sizes: Sequence[tuple[int, ...]], create: bool, *tensors: Any) -> list[Any]:
    """Run again on the tensors it was given, which are variables, and pull the others, cotangents
    of the outputs at `places`, back to those and to `entries`."""
    args, cts = tensors[:call.given], tensors[call.given:]
    through: Any = identity_op if create else _leaf      # where a graph is wanted, it goes on
    leaves = {e: through(_stand_in(edge)) for e, edge in entries.items()
              if create or not _direct(edge)}
    since = next_sequence()                              # (they are older than what leads to them)
    outs = call.run(*args)
    if _sizes(outs) != sizes or not all([_moves(outs[i]) for i in places]):
        raise CheckpointError(
            f"{call.who}: a segment gave other results when it was run again: "
            f"shapes {_sizes(outs)}, first {sizes}; its function must do the same "
            "work each time: look for branches on changing state")
    ends = {e: edge_of(t) for e, t in leaves.items()}
    edges = [edge_of(outs[i]) for i in places]
    trail: list[_Step] = []
    _entries(edges, args, since, ends, trail)
    if len(places) == len(sizes):
        _compare(call, trail)
    targets = [*[edge_of(a) if a._rg else None for a in args],
               *[ends.get(e, edge) for e, edge in entries.items()]]
    roots = [(ends.get(_node(e), e), c) for e, c in zip(edges, cts, strict=True)]
    del outs, edges
    return _arrived(roots, targets, create)


def _arrived(roots: Sequence[tuple[Any, Any]], targets: Sequence[Any], create: bool = False
             ) -> list[Any]:
    """The cotangents that arrive at the edges `targets`, from `(edge, cotangent)` pairs."""
    capture: dict[Any, list[int]] = {}
    for i, edge in enumerate(targets):
        if edge is not None:
            capture.setdefault(edge, []).append(i)
    levels = any([c.level for _, c in roots])
    found = walk([(e, c if create or levels else c.array) for e, c in roots], keep=create,
                 create=create, capture=capture, accumulate=False, levels=levels and not create)
    made = [found.get(i) for i in range(len(targets))]
    return [c if c is None or isinstance(c, Tensor) else wrap(c) for c in made]


class _Fresh(Function):
    """A number whose backward makes cotangents of ones, which nobody else holds."""

    @staticmethod
    def forward(ctx: Any, *values: Any) -> Any:
        """Keep what tells of the values."""
        ctx.avals = [v.detach().to("meta") for v in values]
        return wrap(np.zeros(()))

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """One for each element."""
        return tuple([wrap(np.ones(a.shape, a.dtype)) for a in ctx.avals])


def trial(outs: list[Any], args: Sequence[Any], since: int) -> dict[Any, int]:
    """A backward pass from cotangents of ones that nobody else hears of, through what was made
    from number `since` on: the bytes of what arrives at what is older, by edge. `args` are leaves,
    and not among that. `outs` is emptied: what nobody else holds of it goes once it was read."""
    root = edge_of(_Fresh.apply(*outs))
    outs.clear()
    entries = _entries([root], args, since, {}, [])
    leaves = {e: _leaf(_stand_in(edge)) for e, edge in entries.items() if not _direct(edge)}
    ends = {e: edge_of(t) for e, t in leaves.items()}
    _entries([root], args, since, ends, [])
    targets = [*[edge_of(a) if a._rg else None for a in args],
               *[ends.get(e, edge) for e, edge in entries.items()]]
    found = _arrived([(root, wrap(np.ones(())))], targets)
    return {e: 0 if c is None else c.array.nbytes
            for e, c in zip(entries, found[len(args):], strict=True)}


def passing() -> contextlib.AbstractContextManager[Any]:
    """Where functions run as in the first run of a segment: nothing is kept for backward."""
    return _Passing()


def _compare(call: _Call, trail: list[_Step]) -> None:
    """Raise where the nodes of the second run are not those of the first."""
    for i, (old, new) in enumerate(zip(call.trail, trail, strict=False)):
        if old[:2] != new[:2]:
            raise CheckpointError(
                f"{call.who}: a segment did other work when it was run again, {i} operations "
                f"before its end\n    forward:       {_words(old)}\n    recomputation: "
                f"{_words(new)}\n  its function must do the same work each time: look for "
                "branches on changing state")
    if len(trail) != len(call.trail):
        raise CheckpointError(
            f"{call.who}: a segment recorded {len(trail)} operations when it was run again, "
            f"{len(call.trail)} at first; its function must do the same work each time: look for "
            "branches on changing state")


def _words(step: _Step) -> str:
    kind, shape, code, lasti = step
    return f"{kind.__name__}{list(shape)} at {provenance.locate(code, lasti)}"
