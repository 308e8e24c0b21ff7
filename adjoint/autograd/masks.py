"""Branches that a choice did not take: what they give is dropped before it can spoil anything.

`where(x > 0, sqrt(x), 0)` sends a zero to sqrt at x = 0, whose slope there is infinite: 0 * inf is
NaN, though the loss does not depend on that element at all. Where a pointwise op serves choices
only, all with one condition, the elements that they did not take are set to zero in its results,
and so on towards the leaves. In a graph of a gradient the zeroing is a `where` itself, so that it
holds for every order of derivative.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from adjoint.autograd.anomaly import surely_finite
from adjoint.base.aval import MetaArray
from adjoint.core.bind import retried
from adjoint.core.rehearsal import call
from adjoint.core.tensor import AccumulateGrad, Port, Tensor
from adjoint.ops.pointwise import where_op

Mask = tuple[tuple[Any, bool], ...]     # conditions; are elements where it holds taken?
_NO_CHOICE: tuple[str, Mapping[int, bool]] = ("", {})


class Masks:
    """The masks of one backward pass: node -> mask, and how many of its uses have it."""

    def __init__(self, order: Iterable[Any]) -> None:
        self.order = order
        self.found: dict[Any, tuple[Mask, int]] = {}

    @cached_property
    def uses(self) -> Counter[Any]:
        """How many edges lead to a node."""
        return Counter(e for n in self.order for e in n.edges
                       if e is not None and type(e) is not AccumulateGrad)

    def screen(self, node: Any, results: list[Any], read: Any,
               observers: Sequence[Any]) -> list[Any]:
        """The results of a node, zero where no choice took its output; passes masks on."""
        found = self.found.pop(node, None)
        mask = found[0] if found is not None and found[1] == self.uses[node] else None
        if mask is not None:
            for i, c in enumerate(results):
                results[i] = retried(observers, _apply, mask, c, node.shape)
        name, sides = node.plan.op.chooses or _NO_CHOICE
        condition = read(node.saved[node.plan.names.index(name)], node) if name else None
        for i, e in enumerate(node.edges):
            own = ((condition, sides[i]), *(mask or ())) if i in sides else mask
            if own is not None and _elementwise(e, node.shape):
                have = self.found.get(e)
                if have is None:
                    self.found[e] = own, 1
                elif _same(have[0], own):
                    self.found[e] = own, have[1] + 1
        return results


def screened(walk: Any, node: Any, results: list[Any], read: Any,
             observers: Sequence[Any]) -> list[Any]:
    """`Masks.screen` for a backward pass. While there are masks to apply, every node is visited,
    none inline."""
    if walk.masks is None:
        walk.masks = Masks(walk.order)
    results = walk.masks.screen(node, results, read, observers)
    walk.special = walk.watched or bool(walk.masks.found)
    return results


def leads_on(node: Any) -> bool:
    """Whether what serves the choice `node` alone might be spoiled by what it does not take."""
    return any([i in node.plan.op.chooses[1] and _elementwise(e, node.shape)
                for i, e in enumerate(node.edges)])


def _same(a: Mask, b: Mask) -> bool:
    return {(_array(c), taken) for c, taken in a} == {(_array(c), taken) for c, taken in b}


def _array(c: Any) -> int:
    """Which array a condition is: a value of a transform is wrapped anew at every reading."""
    while isinstance(c, Tensor):
        c = c.value if c.level else c.array
    return id(c)


def _elementwise(edge: Any, shape: Any) -> bool:
    """Does the edge lead to an elementwise op whose output has this shape?"""
    if edge is None or type(edge) is Port or type(edge) is AccumulateGrad or edge.plan is None:
        return False
    return edge.shape == shape and edge.plan.op.elementwise


def _apply(mask: Mask, c: Any, shape: Any) -> Any:
    """A cotangent, zero where the mask says not taken."""
    if isinstance(c, Tensor):
        if tuple(c.shape) != tuple(shape):
            return c
        for condition, taken in mask:
            c = where_op(condition, c, 0.0) if taken else where_op(condition, 0.0, c)
        return c
    if type(c) is MetaArray and c.shape == shape:
        call(surely_finite, c, otherwise=bool)          # (what looking takes)
    if not isinstance(c, np.ndarray) or c.shape != shape or surely_finite(c):
        return c
    c = c.copy()
    for condition, taken in mask:
        np.copyto(c, 0, where=np.logical_not(condition) if taken else condition)
    return c
