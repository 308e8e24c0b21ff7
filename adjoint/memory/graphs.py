"""Graphs that were recorded before a rehearsal: doubles of their nodes, on storage-less residuals.

A backward that the rehearsed step runs through such a graph lets go of the doubles' residuals and
runs their hooks; the graph itself stays as it is.
"""
from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import AccumulateGrad, Kept, OutRef, Packed, Port, Tensor, out_ref

_HOOKS = ("_post_hooks", "_pre_hooks", "_tensor_hooks", "_accumulated")


def below(node: Any) -> Iterator[Any]:
    """What a node leads to: hooks, the nodes under it, tensors it keeps, its function's context;
    of a leaf's accumulator: hooks, and the leaf."""
    yield from (held for name in _HOOKS if (held := getattr(node, name, None)))
    if type(node) is AccumulateGrad:
        yield node.variable
        return
    for e in node.edges:
        if e is not None:
            yield e.node if type(e) is Port else e
    yield from _tensors(node.saved)
    yield getattr(node, "ctx", None)


def _tensors(saved: Any) -> Iterator[Any]:
    if isinstance(saved, Tensor):
        yield saved
    elif type(saved) is Kept:
        yield saved.tensor
    elif type(saved) is tuple:
        for s in saved:
            yield from _tensors(s)


class _Refused:
    """Stands for the hooks that packed a residual: what they would do is not known."""

    levels, once = 0, True

    def unpack(self, saved: Any, node: Any) -> Any:
        """An error: hooks may compute, read files, or keep count of what they gave back."""
        raise ArgumentError(
            "predict(): the step goes back through a graph that was recorded before it, and "
            f"residuals of {node.name()}, made at {node.where()}, were packed by saved-tensor "
            "hooks (a checkpoint, an offload, a budget): record the graph inside of the step")


class Doubles:
    """Doubles of `nodes`. `twin` gives the tensor that stands for one, `of` the storage-less twin
    of an array."""

    def __init__(self, nodes: Iterable[Any], twin: Callable[[Any], Any],
                 of: Callable[[Any, bool], Any]) -> None:
        self._twin, self._array = twin, of
        self._made = {id(n): _copied(n) for n in nodes}
        self.pairs = [(n, self._made[id(n)]) for n in nodes]
        for node, double in self.pairs:
            self._complete(node, double)

    def edge(self, edge: Any) -> Any:
        """Where an edge leads among the doubles."""
        if type(edge) is Port:
            node = self._made.get(id(edge.node))
            return edge if node is None else Port(node, edge.index, edge.shape, edge.dtype)
        return self._made.get(id(edge), edge)

    def _complete(self, node: Any, double: Any) -> None:
        if hasattr(node.plan, "__dict__"):          # the node's own: hooks, what retains its grad
            double.plan = _copied(node.plan)
        double.edges = tuple([None if e is None else self.edge(e) for e in node.edges])
        if type(node.saved) is tuple:
            double.saved = tuple([self._saved(s) for s in node.saved])
        if node._retain:
            double._retain = {i: weakref.ref(self._twin(t)) for i, ref in node._retain.items()
                              if (t := ref()) is not None}
        if getattr(node, "ctx", None) is not None:
            double.ctx = _copied(node.ctx)
            double.ctx._node = weakref.ref(double)

    def _saved(self, s: Any) -> Any:
        kind = type(s)
        if isinstance(s, Tensor):
            return self._twin(s)
        if kind is OutRef and not isinstance(s.array, Tensor):
            known = s.array.dtype.kind in "iub"
            return out_ref(self._array(s.array, known), s.cell, s.index, s.version)
        if kind is Kept:
            return Kept(self._twin(s.tensor), s.version, s.mark)
        if kind is tuple:
            return tuple([self._saved(x) for x in s])
        return Packed(None, _Refused(), s.original, s.index) if kind is Packed else s


def _copied(x: Any) -> Any:
    """An object of the same class with the same attributes."""
    made = object.__new__(type(x))
    for kind in type(x).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__"):
                try:
                    setattr(made, name, object.__getattribute__(x, name))
                except AttributeError:          # not written to
                    pass
    if hasattr(x, "__dict__"):
        vars(made).update(vars(x))
    return made


__all__ = ["Doubles", "below"]
