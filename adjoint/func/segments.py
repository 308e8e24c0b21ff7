"""A checkpointed call as one node, whose backward is a checkpointed call again.

Placeholders (`checkpoint`) serve every program, but the backward of a region is then no region: a
gradient of its gradient keeps what the inner one computed again. Here a call keeps its operands
alone, and its backward runs it again and pulls back. Where a graph of that is wanted, the pull is
in turn such a call, and so on for every order (as in JAX's `remat`).

For functions of values of no transform that write to none of their operands. Tensors that they
close over are found in the graph of the first run, which is dropped at once.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from adjoint.autograd.checkpoint import CheckpointError, checkpoint, repeatable
from adjoint.autograd.engine import running_walk, walk
from adjoint.autograd.function import Function
from adjoint.autograd.modes import enable_grad
from adjoint.base.errors import AutogradError
from adjoint.core.modes import GRAD, state, watchers
from adjoint.core.node import AccumulateGrad, Port, next_sequence
from adjoint.core.tensor import Tensor, alias, edge_of, wrap
from adjoint.core.trace import current_level, here, inside
from adjoint.ops.shape import identity_op

Run = Callable[..., Sequence[Any]]


def segment(function: Run, *args: Any) -> Sequence[Any]:
    """The values that `function(*args)` returns in a sequence; where the call cannot be one node,
    a checkpointed call."""
    if not state() & GRAD:
        return function(*args)
    if not current_level() and all([type(a) is Tensor for a in args]):
        place = here()
        found = _recorded(_again(function, place), _again(repeatable(function), place), args)
        if found is not None:
            return found
    found = checkpoint(function, *args, use_reentrant=False)
    return found


def _again(run: Run, place: Any) -> Run:
    """`run` at the place of the first run, and out of sight of hooks on what is saved: the graph
    is pulled back through, or dropped, before anybody else could see it."""
    def again(*args: Any) -> Sequence[Any]:
        token = watchers.hooks.set(())
        try:
            with enable_grad(), inside(place):
                return run(*args)
        finally:
            watchers.hooks.reset(token)
    return again


def _leaf(t: Any) -> Any:
    """A variable of its own with the value of `t`; a constant if that is one."""
    new = alias(t)
    new._rg = t._rg
    return new


def _moves(t: Any) -> bool:
    return isinstance(t, Tensor) and t._rg


def _recorded(first: Run, run: Run, args: Sequence[Any]) -> Sequence[Any] | None:
    """The call as a node of the graph: `first` now, `run` from then on. None where values of a
    transform come out of it."""
    leaves, since = tuple(map(_leaf, args)), next_sequence()
    versions = [t._cell.version for t in leaves]
    outs = first(*leaves)
    written = [t._cell.version for t in leaves] != versions
    if any([isinstance(o, Tensor) and o.level for o in outs]):
        return None
    moving = [_moves(o) for o in outs]
    if not any(moving):
        return outs
    edges = [edge_of(o) for o in outs if _moves(o)]
    entries = _entries(edges, leaves, since, {})
    values = [alias(o) if isinstance(o, Tensor) else o for o in outs]
    del outs, edges, leaves
    again = _refuse if written else run
    found: Sequence[Any] = Segment.apply(again, values, moving, len(args), *args,
                                         *map(_stand_in, entries.values()))
    return found


def _refuse(*_: Any) -> Sequence[Any]:
    raise AutogradError(
        "scan: one of the tensors needed for gradient computation has been modified by an inplace "
        "operation: a step wrote to its carry or row, so that its segment cannot run again; write "
        "to a clone(), or leave out segments=")


def _node(edge: Any) -> tuple[Any, int]:
    """What tells an edge from others: the node and the number of its output."""
    return (edge.node, edge.index) if type(edge) is Port else (edge, 0)


def _entries(edges: Sequence[Any], own: Sequence[Any], since: int, ends: dict[Any, Any]
             ) -> dict[Any, Any]:
    """The edges that lead from the graph below `edges` to tensors made before `since` that are not
    `own`. What leads to one of `ends` is made to lead to the leaf given there instead."""
    stop = {_node(edge_of(t))[0] for t in own if t._rg}
    found: dict[Any, Any] = {}
    seen: set[Any] = set()

    def enters(edge: Any) -> bool:
        node = _node(edge)[0]
        if node in stop:
            return False
        if type(node) is AccumulateGrad:
            return node.ended is None and node.variable is not None
        return bool(node.seq < since)

    stack = list(reversed(edges))
    while stack:
        edge = stack.pop()
        node = _node(edge)[0]
        if enters(edge):
            found.setdefault(_node(edge), edge)
        elif node not in seen and node not in stop:
            seen.add(node)
            if ends and any([e is not None and _node(e) in ends for e in node.edges]):
                node.edges = tuple([e if e is None else ends.get(_node(e), e) for e in node.edges])
            stack += [e for e in reversed(node.edges) if e is not None]
    return found


def _stand_in(edge: Any) -> Tensor:
    """A tensor without memory of its own whose gradient goes to that edge."""
    dtype = edge.dtype or edge.plan.dtype
    t = wrap(np.broadcast_to(np.zeros((), dtype), tuple(edge.shape)))
    t._edge, t._rg = edge, True
    return t


class Segment(Function):
    """The node: forward has been run already, backward runs it again."""

    @staticmethod
    def forward(ctx: Any, run: Run, values: list[Any], moving: list[bool], count: int,
                *tensors: Any) -> Any:
        """Keep the operands; the rest of `tensors` stands for what the function closes over."""
        ctx.save_for_backward(*tensors[:count])
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*[v for v, m in zip(values, moving, strict=True)
                                      if not m and isinstance(v, Tensor)])
        ctx.run, ctx.count, ctx.sizes = run, count, _sizes(values)
        ctx.entries = {_node(t._edge): t._edge for t in tensors[count:]}
        return tuple(values)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """The cotangents of the operands, and of what the function closes over."""
        args = ctx.saved_tensors
        now: Any = running_walk()
        places = [i for i, c in enumerate(grad_outputs) if c is not None]
        cts = [grad_outputs[i] for i in places]
        pull = partial(_pull, ctx.run, ctx.count, places, ctx.entries, ctx.sizes)
        found = None
        if now.create:
            if not current_level() and not any([t.level for t in (*args, *cts)]):
                again = _again(partial(pull, True), here())
                found = _recorded(again, again, (*args, *cts))
            if found is None:
                found = pull(True, *[identity_op(a) if a._rg else a for a in args], *cts)
        else:
            found = pull(False, *map(_leaf, args), *cts)
        return None, None, None, None, *found


def _sizes(values: Sequence[Any]) -> list[tuple[int, ...]]:
    return [tuple(v.shape) if isinstance(v, Tensor) else () for v in values]


def _pull(run: Run, count: int, places: Sequence[int], entries: dict[Any, Any],
          sizes: Sequence[tuple[int, ...]], create: bool, *tensors: Any) -> list[Any]:
    """Run again on the first `count` tensors, which are variables, and pull the others, cotangents
    of the outputs at `places`, back to those and to `entries`."""
    args, cts = tensors[:count], tensors[count:]
    through: Any = identity_op if create else _leaf      # where a graph is wanted, it goes on
    leaves = [through(_stand_in(e)) for e in entries.values()]
    since = next_sequence()                              # (they are older than what leads to them)
    outs = run(*args)
    if _sizes(outs) != sizes or not all([_moves(outs[i]) for i in places]):
        raise CheckpointError(
            "scan: a segment gave other results when it was run again: "
            f"shapes {_sizes(outs)}, first {sizes}; its function must do the same "
            "work each time: look for branches on changing state")
    ends = {e: edge_of(t) for e, t in zip(entries, leaves, strict=True)}
    edges = [edge_of(outs[i]) for i in places]
    _entries(edges, args, since, ends)
    levels = any([c.level for c in cts])
    capture: dict[Any, list[int]] = {}
    for i, t in enumerate((*args, *leaves)):
        if t._rg:
            capture.setdefault(edge_of(t), []).append(i)
    roots = [(ends.get(_node(e), e), c if create or levels else c.array)
             for e, c in zip(edges, cts, strict=True)]
    found = walk(roots, keep=create, create=create, capture=capture, accumulate=False,
                 levels=levels and not create)
    made = [found.get(i) for i in range(count + len(leaves))]
    return [c if c is None or isinstance(c, Tensor) else wrap(c) for c in made]

