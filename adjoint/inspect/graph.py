"""The graph of a program as vertices and edges, from its tape or from a watched run; collapsed by
module.

A vertex is an op, a value that no op made (leaf, input, constant), or a module that stands for
everything in it.
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from adjoint.autograd.engine import Backward
from adjoint.base import provenance
from adjoint.base.errors import AutogradError
from adjoint.core.modes import Observer, watchers
from adjoint.core.tensor import AccumulateGrad, Port, Tensor, edge_of
from adjoint.inspect.formulas import card_of, operand_names, plain, spell
from adjoint.inspect.names import Names, key_of, key_of_edge

READABLE = 60      # vertices up to which a picture is not collapsed unasked


@dataclass
class Vertex:
    """kind: "op", "leaf" (requires grad), "input" (does not), "module" (collapsed)."""

    key: Any
    kind: str
    label: str
    detail: str = ""
    path: str = ""
    where: str = ""
    count: int = 1


@dataclass
class Graph:
    """Vertices in topological order, operands first; `edges` are (from, to, differentiable)."""

    vertices: dict[Any, Vertex] = field(default_factory=dict)
    edges: dict[tuple[Any, Any], bool] = field(default_factory=dict)
    root: Any = None

    def add(self, vertex: Vertex) -> Vertex:
        """Put a vertex in, unless its key is there."""
        return self.vertices.setdefault(vertex.key, vertex)

    def link(self, a: Any, b: Any, differentiable: bool) -> None:
        """An edge from operand to user; a gradient flows back where it is differentiable."""
        if a != b:
            self.edges[a, b] = self.edges.get((a, b), False) or differentiable

    def operands(self) -> dict[Any, list[Any]]:
        """vertex key -> keys of its operands."""
        out: dict[Any, list[Any]] = {k: [] for k in self.vertices}
        for a, b in self.edges:
            out[b].append(a)
        return out

    def modules(self) -> list[str]:
        """Every module path, outer ones first."""
        found: dict[str, None] = {}
        for v in self.vertices.values():
            parts = v.path.split(".") if v.path else []
            for i in range(len(parts)):
                found[".".join(parts[: i + 1])] = None
        return sorted(found, key=lambda p: (p.count("."), p))

    def collapsed(self, depth: int | None = None, expand: Iterable[str] = ()) -> Graph:
        """Each module below `depth` names as one vertex; those in `expand` (and what holds them)
        stay open."""
        opened = set(expand)
        for path in list(opened):
            opened |= {path[: i] for i, c in enumerate(path) if c == "."}

        def home(v: Vertex) -> str:
            parts = v.path.split(".") if v.path else []
            for i in range(1, len(parts) + 1):
                prefix = ".".join(parts[:i])
                if prefix not in opened and (depth is None or i > depth):
                    return prefix
            return ""
        out = Graph()
        place: dict[Any, Any] = {}
        for k, v in self.vertices.items():
            module = home(v)
            if not module:
                place[k] = k
                out.add(replace(v))
                continue
            key = place[k] = ("module", module)
            made = out.add(Vertex(key, "module", module, path=module, where=v.where, count=0))
            made.count += v.kind in ("op", "module")
        for (a, b), differentiable in self.edges.items():
            out.link(place[a], place[b], differentiable)
        out.root = place[self.root]
        return out.tidy()

    def readable(self, expand: Iterable[str] = (), limit: int = READABLE) -> Graph:
        """Collapsed just so far that at most `limit` vertices are left, where modules allow."""
        if len(self.vertices) <= limit:
            return self
        deepest = max((v.path.count(".") + 1 for v in self.vertices.values() if v.path), default=0)
        for depth in range(deepest - 1, -1, -1):
            found = self.collapsed(depth, expand)
            if len(found.vertices) <= limit or depth == 0:
                return found.chained(limit)
        return self.chained(limit)

    def chained(self, limit: int) -> Graph:
        """Runs of ops with one operand and one user each become one vertex, if still too many."""
        if len(self.vertices) <= limit:
            return self
        operands = self.operands()
        users: dict[Any, list[Any]] = {k: [] for k in self.vertices}
        for a, b in self.edges:
            users[a].append(b)
        out = Graph()
        place: dict[Any, Any] = {}
        for k, v in self.vertices.items():
            before = operands[k]
            if v.kind == "op" and len(before) == 1 and self.vertices[before[0]].kind == "op" \
                    and len(users[before[0]]) == 1 and k != self.root:
                key = place[k] = place[before[0]]
                made = out.vertices[key]
                made.count += 1
                made.label = f"{made.label.split(' … ')[0]} … {v.label}"
                made.detail = f"{made.count} ops"
                continue
            place[k] = k
            out.add(replace(v))
        for (a, b), differentiable in self.edges.items():
            out.link(place[a], place[b], differentiable)
        out.root = place[self.root]
        return out

    def tidy(self) -> Graph:
        """Leaves of collapsed modules go where they are used: only shared ones stay."""
        alone = {k for k, v in self.vertices.items() if v.kind in ("leaf", "input") and v.path
                 and not any(a == k or b == k for a, b in self.edges)}
        for k in alone:
            del self.vertices[k]
        return self.sorted()

    def sorted(self) -> Graph:
        """Vertices in topological order; edges that a collapsed module turns back are dropped."""
        operands = self.operands()
        order: dict[Any, None] = {}
        state: dict[Any, int] = {}
        for start in self.vertices:
            stack = [(start, False)]
            while stack:
                k, ready = stack.pop()
                if ready:
                    state[k] = 2
                    order[k] = None
                elif k not in state:
                    state[k] = 1
                    stack.append((k, True))
                    for a in operands[k]:
                        if state.get(a) == 1:
                            self.edges.pop((a, k), None)
                        elif a not in state:
                            stack.append((a, False))
        self.vertices = {k: self.vertices[k] for k in order}
        rank = {k: i for i, k in enumerate(order)}
        self.edges = {e: d for e, d in self.edges.items() if rank[e[0]] < rank[e[1]]}
        return self


# ---------------------------------------------------------------------- from a tape
def of_tape(tensor: Any, names: Names) -> Graph:
    """The graph that backward would walk."""
    edge = edge_of(tensor) if tensor.requires_grad else None
    if edge is None or tensor.grad_fn is None:
        raise AutogradError("draw: this tensor has no graph; give a function and its arguments "
                            "instead: draw(f, x)")
    walk = Backward(keep=True, create=False, capture=None, accumulate=False)
    walk.arrange([edge.node if type(edge) is Port else edge])
    graph = Graph(root=walk.order[0])
    for node in reversed(walk.order):
        _tape_vertex(graph, node, names)
    _homes(graph, names)
    return graph


def _tape_vertex(graph: Graph, node: Any, names: Names) -> None:
    keys = [(node, i) for i in range(node.ports)] if node.ports else [(node, 0)]
    named = [names.found[k] for k in keys if names.known(k)]
    local = {o: names.at(key_of_edge(e)) if names.known(key_of_edge(e)) else "_"
             for o, e in zip(operand_names(node), node.edges, strict=False) if e is not None}
    label = ", ".join(named) or node.name().removesuffix("0").removesuffix("Backward")
    shape = node.shape[0] if node.ports else node.shape
    formula = plain(card_of(node, local).forward, "{}") if len(named) else ""
    detail = formula if formula and len(formula) <= 40 else node.name()
    operands = [e.node if type(e) is Port else e for e in node.edges if e is not None]
    for e in operands:
        if type(e) is AccumulateGrad:
            leaf = e.variable
            name = names.at(key_of_edge(e))
            graph.add(Vertex(e, "leaf", name, _size(leaf.shape) if leaf is not None else "",
                             _parent(name)))
    graph.add(Vertex(node, "op", label, f"{detail}  {_size(shape or ())}".rstrip(),
                     where=node.where()))
    for e in operands:
        graph.link(e, node, True)


def _size(shape: Any) -> str:
    """A shape; nothing for scalars."""
    return str(list(shape)) if len(shape) else ""


def _parent(name: str) -> str:
    """The module path that a parameter's name tells: "net.0.weight" -> "net.0"."""
    return name.rpartition(".")[0]


def _homes(graph: Graph, names: Names) -> None:
    """Module paths of ops. An op belongs to the module whose parameter it reads; ops between two
    modules belong to what both are part of."""
    ops = [v for v in graph.vertices.values() if v.kind == "op"]
    operands = graph.operands()
    own = []
    for v in ops:
        found = [graph.vertices[a].path for a in operands[v.key]
                 if graph.vertices[a].kind == "leaf" and graph.vertices[a].path]
        own.append(found[0] if found else None)
    nexts: list[str | None] = [None] * len(ops)
    last: str | None = None
    for i in range(len(ops) - 1, -1, -1):
        last = own[i] or last
        nexts[i] = last
    before: str | None = None
    for i, v in enumerate(ops):
        before = own[i] or before
        v.path = own[i] or _common(before, nexts[i])


def _common(a: str | None, b: str | None) -> str:
    if not a or not b:
        return ""
    out = []
    for x, y in zip(a.split("."), b.split("."), strict=False):
        if x != y:
            break
        out.append(x)
    return ".".join(out)


# ---------------------------------------------------------------------- from a run
class _Watch(Observer):
    """Collects every op of a run, with constants and without gradient too."""

    def __init__(self, names: Names) -> None:
        self.graph, self.names = Graph(), names
        self.count = 0
        self.made: dict[int, Any] = {}          # id of a tensor -> vertex key
        self.held: list[Any] = []               # so that ids stay unique

    def after(self, op: Any, args: Any, attrs: Any, made: Any, node: Any) -> None:
        key = ("op", self.count)
        self.count += 1
        texts = [self._text(a) for a in args]
        shape = _size(made[0].shape) if made else ""
        path = watchers.module_path()
        where = provenance.here(sys._getframe(1))
        below = [(self._vertex(a, path), a.requires_grad) for a in args if isinstance(a, Tensor)]
        text = f"{spell(op, texts, attrs)}  {shape}".rstrip()
        self.graph.add(Vertex(key, "op", op.name, text, path, where))
        for at, differentiable in below:
            self.graph.link(at, key, differentiable)
        for t in made:
            self.made[id(t)] = key
            self.held.append(t)
        self.graph.root = key

    def _text(self, a: Any) -> str:
        if isinstance(a, Tensor):
            return self.names.of(a) if self.names.known(key_of(a)) else "_"
        return "None" if a is None else str(a) if isinstance(a, (int, float)) else "const"

    def _vertex(self, t: Any, path: str) -> Any:
        found = self.made.get(id(t))
        if found is None:
            found = self.made[id(t)] = ("value", self.count)
            self.count += 1
            self.held.append(t)
            known = self.names.known(key_of(t))
            self.graph.add(Vertex(found, "leaf" if t.requires_grad else "input",
                                  self.names.of(t) if known else "const", _size(t.shape),
                                  path))
        return found


def of_run(function: Callable[..., Any], args: tuple[Any, ...], names: Names) -> Graph:
    """The graph of one call; every op counts, also those without a gradient."""
    watch = _Watch(names)
    held = watchers.push(watchers.observers, watch)
    try:
        result = function(*args)
    finally:
        watchers.pop(held)
    if watch.graph.root is None:
        raise AutogradError("draw: the function ran no op on tensors")
    if isinstance(result, Tensor) and id(result) in watch.made:
        watch.graph.root = watch.made[id(result)]
    return watch.graph.sorted()


def graph_of(what: Any, args: tuple[Any, ...], frame: Any,
             given: Mapping[str, Any] | None = None) -> Graph:
    """The graph of a tensor's tape, or of a call of a function."""
    names = Names(provenance.user_frame(frame), given)
    if isinstance(what, Tensor):
        return of_tape(what, names)
    return of_run(what, args, names)
