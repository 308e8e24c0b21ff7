"""Adding a node's cotangents to what has arrived already, in the pass that computes them."""
from __future__ import annotations

import sys
from typing import Any

import numpy as np

from adjoint.autograd.engine import LARGE
from adjoint.base.aval import MetaArray
from adjoint.core.modes import WATCH, state, watchers
from adjoint.core.rehearsal import call
from adjoint.core.tensor import Port

_refs = sys.getrefcount


def begun(walk: Any, node: Any) -> list[Any] | None:
    """Per operand of `node`, what has arrived where its cotangent goes, if that may be added to in
    place; None where somebody wants to see the cotangent itself."""
    if walk.create or walk.levels or node._post_hooks or walk.masks is not None or (
            state() & WATCH and any(o.cotangents for o in watchers.observers.get())):
        return None
    found: list[Any] = []
    for e in node.edges:
        have: Any = None if type(e) is Port else walk.cts.get(e)
        found.append(have if type(have) in (np.ndarray, MetaArray) and have.size >= LARGE
                     and _refs(have) <= 3 and have.base is None else None)
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
