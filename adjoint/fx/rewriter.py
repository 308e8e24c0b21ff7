"""Patterns in graphs replaced by others."""
from __future__ import annotations

from typing import Any, NamedTuple

from adjoint.fx.graph import Graph
from adjoint.fx.graph_module import GraphModule
from adjoint.fx.node import Node, map_arg
from adjoint.fx.tracer import symbolic_trace


class Match(NamedTuple):
    """Where a pattern was found: its last node there, and pattern node -> node of the graph."""

    anchor: Node
    nodes_map: dict[Node, Any]


def _same(pattern: Any, found: Any, held: dict[Node, Any]) -> bool:
    """True if a part of the pattern fits; `held` notes which node stands for which."""
    if isinstance(pattern, Node):
        return _fits(pattern, found, held)
    if isinstance(pattern, (tuple, list)):
        return type(pattern) is type(found) and len(pattern) == len(found) and all(
            _same(p, f, held) for p, f in zip(pattern, found, strict=True))
    if isinstance(pattern, dict):
        return isinstance(found, dict) and pattern.keys() == found.keys() and all(
            _same(v, found[k], held) for k, v in pattern.items())
    if isinstance(pattern, slice):
        return isinstance(found, slice) and _same((pattern.start, pattern.stop, pattern.step),
                                                  (found.start, found.stop, found.step), held)
    return type(pattern) is type(found) and bool(pattern == found)


def _fits(pattern: Node, found: Any, held: dict[Node, Any]) -> bool:
    if pattern in held:
        return held[pattern] is found
    if pattern.op == "placeholder":
        held[pattern] = found
        return True
    if not isinstance(found, Node) or (pattern.op, pattern.target) != (found.op, found.target):
        return False
    held[pattern] = found
    return _same(pattern.args, found.args, held) and _same(pattern.kwargs, found.kwargs, held)


def _closed(inside: dict[Node, Any], last: Node) -> bool:
    """True if nobody outside reads what is inside, but for the last node."""
    nodes = {n for p, n in inside.items() if p.op != "placeholder"}
    return all(n is last or set(n.users) <= nodes for n in nodes)


def replace_pattern(gm: GraphModule, pattern: Any, replacement: Any) -> list[Match]:
    """Replace every place of a graph that does what `pattern` does by `replacement`, functions (or
    modules) of the same arguments and of one result; places do not overlap. The module is changed
    and made anew; gives the places.

    >>> import adjoint as ad
    >>> module = symbolic_trace(lambda x: ad.exp(x).sin() * 2)
    >>> found = replace_pattern(module, lambda x: ad.exp(x).sin(), lambda x: ad.cos(x))
    >>> [n.name for n in module.graph.nodes], len(found)
    (['x', 'cos', 'mul', 'output'], 1)
    """
    theirs, ours = (_graph_of(g) for g in (pattern, replacement))
    last = theirs.output_node().args[0]
    taken: set[Node] = set()
    matches = []
    for node in gm.graph.nodes:
        held: dict[Node, Any] = {}
        if not _fits(last, node, held):
            continue
        inner = {n for p, n in held.items() if p.op != "placeholder"}
        if not inner & taken and _closed(held, node):
            taken |= inner
            matches.append(Match(node, held))
    changed: dict[Node, Node] = {}
    for match in matches:
        changed[match.anchor] = _replace(gm.graph, match, theirs, ours, changed)
    gm.recompile()
    return matches


def _replace(graph: Graph, match: Match, theirs: Graph, ours: Graph,
             changed: dict[Node, Node]) -> Node:
    values = [match.nodes_map.get(n) for n in theirs.nodes if n.op == "placeholder"]
    values = [changed.get(v, v) if isinstance(v, Node) else v for v in values]
    arguments = [n for n in ours.nodes if n.op == "placeholder"]
    val_map: dict[Node, Any] = dict(zip(arguments, values, strict=True))
    with graph.inserting_before(match.anchor):
        for node in ours.nodes:
            if node.op == "output":
                result: Any = map_arg(node.args[0], lambda n: val_map[n])
            elif node not in val_map:
                val_map[node] = graph.node_copy(node, lambda n: val_map[n])
    match.anchor.replace_all_uses_with(result)
    inner = {n for p, n in match.nodes_map.items() if p.op != "placeholder"}
    for node in reversed(graph.nodes):
        if node in inner and not node.users:
            graph.erase_node(node)
    made: Node = result
    return made


def _graph_of(f: Any) -> Graph:
    if isinstance(f, Graph):
        return f
    graph: Graph = f.graph if isinstance(f, GraphModule) else symbolic_trace(f).graph
    return graph


__all__ = ["Match", "replace_pattern"]
