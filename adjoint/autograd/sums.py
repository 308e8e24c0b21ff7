"""Cotangents in memory that is there already: added to what has arrived, in the pass that computes
them, or written over the cotangent that they are computed from."""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.autograd.engine import LARGE
from adjoint.base.aval import MetaArray
from adjoint.core.held import ALONE, owns, refs
from adjoint.core.modes import WATCH, state, watchers
from adjoint.core.rehearsal import call
from adjoint.core.tensor import Port


def _shown(walk: Any, node: Any) -> bool:
    """Whether somebody wants to see the node's cotangents themselves."""
    return (walk.create or walk.levels or bool(node._post_hooks) or walk.masks is not None or (
        bool(state() & WATCH) and any([o.cotangents for o in watchers.observers.get()])))


def free(walk: Any, node: Any, ct: Any) -> bool:
    """Whether the memory of `ct`, which the caller alone holds, may be written over."""
    return owns(ct) and not _shown(walk, node)


def placed(walk: Any, node: Any, ct: Any, vals: list[Any], over: bool) -> list[Any] | None:
    """Cotangents of a large pointwise node that take no memory of their own, or one of two that
    does: `added`, else the only one in the memory of `ct`, if `over` allows that; None where there
    is neither."""
    plan = node.plan
    found = added(walk, node, ct, vals) if plan.into is not None else None
    if found is not None or not over or plan.over is None:
        return found
    if type(ct) is np.ndarray:
        return list(plan.over(ct, *vals))
    made = call(plan.over, ct, *vals, otherwise=_refused)
    return None if made is NotImplemented else list(made)


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


def _refused() -> Any:
    return NotImplemented
