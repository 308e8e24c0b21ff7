"""The backward pass of a derivative of derivatives: rules run on tensors, which record the graph of
the gradient or belong to a transform, while nobody looks at the nodes.

`Backward.visit` gives the same results and serves hooks, observers and captured nodes besides; the
questions that it asks of each node cost more than most rules do on small arrays.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.autograd import graph
from adjoint.autograd.fit import fit
from adjoint.base.errors import AutogradError
from adjoint.core.bind import tensor_of, value_of
from adjoint.core.tensor import Freed, Port, Tensor
from adjoint.core.trace import LevelArray

ndarray = np.ndarray


def run(walk: Any) -> None:
    """Visit the nodes of `walk` in order."""
    cts, last, leaves = walk.cts, walk.last, walk._leaves
    take = cts.pop
    for node in walk.order:
        plan = node.plan
        if (plan is None or node.ports or node.hooked or plan.op.chooses
                or walk.masks is not None):
            if node in cts or node.unfed:
                cts.setdefault(node)
                walk.visit(node)
        else:
            ct = take(node, None)
            if ct is not None:
                results = _pulled(walk, node, plan, ct)
                ct = None                        # (its memory may go before the next is made)
                _spread(walk, node.edges, results)
        if node in last:
            leaves(node)


def _pulled(walk: Any, node: Any, plan: Any, ct: Any) -> list[Any]:
    """The cotangents of a node's operands."""
    vals: list[Any] = []
    if plan.names:
        saved = node.saved
        if type(saved) is Freed:
            raise AutogradError(graph.freed_message(node), reason="freed", about=node)
        if walk.create:
            vals = [s if type(s) is Tensor and s._cell is None else tensor_of(s, node)
                    for s in saved]
        else:
            vals = [value_of(s, node) for s in saved]
        if plan.kept and not walk.keep:
            node.saved = walk.mark
    rules = plan.rules
    if rules is not None:
        found: list[Any] = rules(ct, vals, node.attrs)
        return found
    pulled: list[Any] = plan.pull(ct, vals, node.attrs, len(node.edges))
    return pulled


def _spread(walk: Any, edges: Any, results: list[Any]) -> None:
    """Fit what rules gave to the edges and add it there, each let go of before the next."""
    cts = walk.cts
    for i, e in enumerate(edges):
        c = results[i]
        if c is None or e is None:
            continue
        results[i] = None
        array = c.array if isinstance(c, Tensor) else c
        if not (array.shape == e.shape and array.dtype is (e.dtype or e.plan.dtype)
                and (type(array) is ndarray or type(array) is LevelArray)):
            c = fit(c, e)
        if e in cts or type(e) is Port:
            walk._add(e, c)
        else:
            cts[e] = c
        c = array = None
