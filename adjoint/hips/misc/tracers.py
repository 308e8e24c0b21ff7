"""`autograd.misc.tracers`: functions whose graph is the same in every call, and graphs of calls."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any

from adjoint.base.errors import NotSupported
from adjoint.hips.builtins import make_sequence
from adjoint.hips.graph import Node, container_take, trace
from adjoint.hips.util import subvals, toposort

F = Callable[..., Any]


class ConstGraphNode(Node):
    """A call as a function of its parents' values."""

    __slots__ = ["parents", "partial_fun"]

    def __init__(self, value: Any, fun: F, args: tuple[Any, ...], kwargs: dict[str, Any],
                 parent_argnums: tuple[int, ...], parents: tuple[Any, ...]) -> None:
        self.parents: Sequence[Any] = parents
        self.partial_fun = lambda values: fun(
            *subvals(args, zip(parent_argnums, values, strict=True)), **kwargs)

    def initialize_root(self, *args: Any, **kwargs: Any) -> None:
        """Without parents."""
        self.parents = []


class FullGraphNode(Node):
    """A call with its value and `recipe`: (function, arguments, keywords, pairs of a parent's
    position and node)."""

    __slots__ = ["recipe", "value"]

    def __init__(self, value: Any, fun: F, args: tuple[Any, ...], kwargs: dict[str, Any],
                 parent_argnums: tuple[int, ...], parents: tuple[Any, ...]) -> None:
        self.value: Any = value
        self.recipe: Any = (fun, args, kwargs, list(zip(parent_argnums, parents, strict=True)))

    def initialize_root(self, *args: Any, **kwargs: Any) -> None:
        """Without value and parents."""
        self.value, self.recipe = None, (lambda x: x, (), {}, [])


def const_graph_unary(fun: F) -> F:
    """`fun` of one argument, recorded in its first call; later calls run what was recorded.

    What a graph of nodes does not record (a gradient that is taken inside of `fun`, say) is run as
    it is written, in every call.
    """
    graph: list[Any] = []

    def replay(x: Any) -> Any:
        order, root = graph
        values = {root: x}
        for node in order:
            if node is not root:
                values[node] = node.partial_fun([values[p] for p in node.parents])
        return values[order[-1]]

    @wraps(fun)
    def run(x: Any) -> Any:
        if not graph:
            root = ConstGraphNode.new_root()
            try:
                value, end = trace(root, fun, x)
            except NotSupported:
                end = None
            if end is None:
                graph[:] = [None, None]
            else:
                graph[:] = [list(toposort(end))[::-1], root]
                return value
        return replay(x) if graph[0] is not None else fun(x)
    return run


def const_graph(fun: F, *args: Any, **kwargs: Any) -> F:
    """`fun` with some arguments given, its graph recorded in the first call: for functions that do
    the same whatever their arguments are.

    >>> runs = []
    >>> twice = const_graph(lambda a, x: (runs.append(1), a * x)[1], 2.0)
    >>> float(twice(3.0)), float(twice(4.0)), len(runs)
    (6.0, 8.0, 1)
    """
    given = partial(fun, *args, **kwargs)
    unary = const_graph_unary(lambda rest: given(*rest))
    return wraps(fun)(lambda *rest, **named: given(*rest, **named) if named else unary(rest))


def full_graph(fun: F, *args: Any, **kwargs: Any) -> FullGraphNode:
    """The last node of the graph of a call.

    >>> import adjoint.hips.numpy as np
    >>> fun, values, _, _ = full_graph(lambda x: np.sin(x) * x, 2.0).recipe
    >>> fun.__name__, values[1]
    ('multiply', 2.0)
    """
    end: FullGraphNode = trace(FullGraphNode.new_root(), lambda at: fun(*at, **kwargs), args)[1]
    return end


__all__ = ["ConstGraphNode", "FullGraphNode", "Node", "const_graph", "const_graph_unary",
           "container_take", "full_graph", "make_sequence", "subvals", "toposort", "trace"]
