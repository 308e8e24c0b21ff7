"""Cotangents in memory that is there already: added to what has arrived, in the pass that computes
them, or written over the cotangent that they are computed from; cotangents that are summed for a
row that was added (a bias) in that pass; gradients that need no copy; and what machine code tells
observers of them."""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.autograd import leaves
from adjoint.autograd.engine import LARGE
from adjoint.autograd.fit import fit
from adjoint.base.aval import MetaArray
from adjoint.core import foresight
from adjoint.core.held import ALONE, own, owns, refs
from adjoint.core.modes import WATCH, state, watchers
from adjoint.core.rehearsal import call
from adjoint.core.tensor import Port, Tensor, wrap
from adjoint.ops.accelerate import plus

_RUN = 1 << 18      # elements from which a pass that is saved is worth looking for


def _shown(walk: Any, node: Any) -> bool:
    """Whether somebody wants to see the node's cotangents themselves."""
    return (walk.create or walk.levels or walk.typed or bool(node._post_hooks)
            or walk.masks is not None or bool(state() & WATCH) and any([
                o.cotangents for o in watchers.observers.get()]))


def free(walk: Any, node: Any, ct: Any) -> bool:
    """Whether the memory of `ct`, which the caller alone holds, may be written over."""
    return owns(ct) and not _shown(walk, node)


def placed(walk: Any, node: Any, ct: Any, vals: list[Any], over: bool) -> list[Any] | None:
    """Cotangents of a large pointwise node that take no memory of their own, or one of two that
    does: `added`, else the only one in the memory of `ct`, if `over` allows that; None where there
    is neither. None in their place where they went further: see `_through` and `runs`."""
    plan = node.plan
    if ct.size >= _RUN:
        foresight.drop()
    if ct.size >= _RUN and plan.into is not None and type(ct) is np.ndarray and not (
            walk.special or state() & WATCH or _shown(walk, node)):
        from adjoint.autograd import runs  # loaded by the first cotangent that is large enough
        if runs.through(walk, node, ct, vals, over):
            return [None] * len(node.edges)
    found = added(walk, node, ct, vals) if plan.into is not None else None
    over = over and plan.over is not None
    if found is None and plan.down is not None and _through(walk, node, ct, vals, over):
        return [None]
    if found is not None or not over:
        return found
    if type(ct) is np.ndarray:
        return list(plan.over(ct, *vals))
    made = call(plan.over, ct, *vals, otherwise=_refused)
    return None if made is NotImplemented else list(made)


def _through(walk: Any, node: Any, ct: Any, vals: list[Any], over: bool) -> bool:
    """Where the only operand of `node` is x + row, made right before it, bring x and the row their
    cotangents at once, the row's summed while x's is computed; False where that cannot be. Nothing
    else reaches the node of x + row after this (it is the next), so it has nothing left to do."""
    e: Any = node.edges[0] if len(node.edges) == 1 else None
    plan = getattr(e, "plan", None)
    if (plan is None or plan.op.name != "add" or e.seq + 1 != node.seq or e.hooked or e in walk.cts
            or walk.special or state() & WATCH or _shown(walk, node) or type(ct) is not np.ndarray):
        return False
    alike = [x is not None and (x.dtype or x.plan.dtype) == ct.dtype for x in e.edges]
    shapes = [tuple(x.shape) if x is not None else () for x in e.edges]
    rows = [s == ct.shape[-1:] for s in shapes]
    if not all(alike) or sorted(rows) != [False, True] or ct.shape not in shapes:
        return False
    made = node.plan.down(ct, *vals, over=over)
    if made is NotImplemented:
        return False
    parts = list(reversed(made)) if rows[0] else list(made)
    del made
    for i, x in enumerate(e.edges):
        part, parts[i] = parts[i], None
        walk._add(x, part)
        del part
    return True


def begun(walk: Any, node: Any) -> list[Any] | None:
    """Per operand of `node`, what has arrived where its cotangent goes, if that may be added to in
    place; None where somebody wants to see the cotangent itself."""
    if _shown(walk, node):
        return None
    found: list[Any] = []
    for e in node.edges:
        have: Any = None if type(e) is Port else walk.cts.get(e)
        found.append(have if type(have) in (np.ndarray, MetaArray) and have.size >= LARGE
                     and refs(have) <= ALONE + 1 and have.base is None else None)
    return found


def added(walk: Any, node: Any, ct: Any, vals: list[Any]) -> list[Any] | None:
    """Cotangents of a pointwise node, added where something has arrived before and to each other
    where they go to one place; None where that is not so, or not possible."""
    edges, rule, sums = node.edges, node.plan.into, begun(walk, node)
    if sums is None:
        return None
    sums = [s if s is not None and s.shape == ct.shape and s.strides == ct.strides else None
            for s in sums]               # laid out alike: the kernel walks along all of them
    same = len(edges) == 2 and edges[0] is edges[1] and type(edges[0]) is not Port
    if not same and not any([s is not None for s in sums]):
        return None
    if type(ct) is np.ndarray:
        found = rule(ct, *vals, out=sums, same=same)
    else:
        found = call(rule, ct, *vals, out=sums, same=same, otherwise=_refused)
    return None if found is NotImplemented else list(found)


def waits(walk: Any, node: Any, ct: Any) -> bool:
    """Whether the gradient of a leaf can be stored later, without a copy: somebody else holds it,
    most likely a node that comes next, and nobody looks before the walk is over (`settle`)."""
    if (walk.special or state() & WATCH or type(ct) is not np.ndarray or walk.waiting is None
            or node._accumulated or node._post_hooks or refs(ct) <= ALONE + 2):
        return False
    walk.waiting = [*walk.waiting, (node, ct)]
    return True


def settle(walk: Any) -> None:
    """Store the gradients that wait; to be called before anybody may look at `.grad`."""
    waiting, walk.waiting = list(reversed(walk.waiting)), None
    while waiting:
        node, ct = waiting.pop()
        leaves.accumulate(node, ct, walk)
    walk.waiting = ()


def retain(t: Tensor | None, ct: Any, walk: Any) -> None:
    """Store the gradient of a non-leaf that asked for it."""
    if t is None or ct is None:
        return
    if isinstance(ct, Tensor):
        t._grad = leaves.owned(ct) if t._grad is None else t._grad + ct
    elif t._grad is None:
        t._grad = wrap(own(ct, 0))
    elif type(ct) is MetaArray:
        have = t._grad.array
        t._grad = wrap(call(plus, have, ct, otherwise=lambda: MetaArray(have.shape, have.dtype)))
    else:
        t._grad = wrap(plus(t._grad.array, ct))


def teller(walk: Any) -> Any:
    """What machine code calls where observers are told of nodes: with a node, a list of what its
    rules gave, and the cotangent that they were given. Where that is None it is the last of the
    list, and what they gave has still to be fitted and added."""
    observers, spread = watchers.observers.get(), walk._spread

    def tell(node: Any, results: list[Any], ct: Any) -> None:
        if ct is not None:
            for observer in observers:
                observer.backward(node, ct, results)
            return
        ct, edges = results.pop(), node.edges
        results[:] = [None if c is None or e is None else fit(c, e)
                      for c, e in zip(results, edges, strict=True)]
        for observer in observers:
            observer.backward(node, ct, results)
        del ct
        spread(edges, results)
    return tell


def _refused() -> Any:
    return NotImplemented
