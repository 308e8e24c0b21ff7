"""Pictures of graphs: a tree of text, SVG, and DOT for other tools.

Forward edges are grey, the way of the gradients is in the accent colour.
"""
from __future__ import annotations

import html
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from adjoint.base.errors import ArgumentError
from adjoint.inspect.graph import Graph, Vertex, graph_of
from adjoint.inspect.layers import layout

_LINE, _CHARACTER, _GAP, _LEVEL, _PAD, _MARGIN = 15, 7.0, 22, 74, 16, 14
_STYLE = """<style>
text{font:12px ui-monospace,Menlo,Consolas,monospace;fill:#1c2733}
.d{font-size:10.5px;fill:#5b6b7a}
rect{stroke-width:1.2;stroke:#9aa7b4;fill:#fff}
.leaf rect{fill:#e6f0fa;stroke:#1f6fb2}.input rect{fill:#f1f3f5}
.module rect{fill:#eef6ee;stroke:#2a8f5a;stroke-width:1.6}
.root rect{stroke:#d9480f;stroke-width:2}
path{fill:none;stroke:#a8b3bd;stroke-width:1.3}
.b{stroke:#d9480f;stroke-width:1.2;stroke-dasharray:4 3}
@media(prefers-color-scheme:dark){
text{fill:#e3e9ef}.d{fill:#9fb0bf}rect{fill:#1d2730;stroke:#5c6b79}
.leaf rect{fill:#17334d}.input rect{fill:#27313a}.module rect{fill:#1b3326}path{stroke:#5c6b79}
.b{stroke:#ff8a4c}svg{background:#12181e}}
</style>"""


class Picture:
    """What `draw` returns: `.ascii()`, `.svg()`, `.dot()`, `.save(path)`; shown in notebooks.

    graph    as drawn: collapsed where it was too large
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def ascii(self) -> str:
        """The graph as a tree from the result down to the leaves."""
        return ascii_tree(self.graph)

    def svg(self) -> str:
        """The graph as one SVG element, without anything to load."""
        return svg(self.graph)

    def dot(self) -> str:
        """The graph in the DOT language (Graphviz)."""
        return dot(self.graph)

    def save(self, path: str | Path) -> None:
        """Write .svg, .dot or .txt, by the name's ending."""
        made: dict[str, Callable[[], str]] = {".svg": self.svg, ".dot": self.dot, ".gv": self.dot,
                                              ".txt": self.ascii}
        write = made.get(Path(path).suffix)
        if write is None:
            raise ArgumentError(f"draw: cannot write {str(path)!r}; its name must end in "
                                f"{', '.join(made)}")
        Path(path).write_text(write() + "\n", encoding="utf-8")

    def __str__(self) -> str:
        return self.ascii()

    __repr__ = __str__

    def _repr_svg_(self) -> str:
        return self.svg()


def draw(what: Any, *args: Any, expand: Iterable[str] = (), depth: int | None = None,
         names: Mapping[str, Any] | None = None) -> Picture:
    """The picture of a tensor's graph, or of what `what(*args)` computes.

    expand  module paths that stay open; everything else is collapsed where there are more than
            60 vertices
    depth   collapse every module below this many names, whatever the size
    names   name -> tensor or module, beside the variables of the calling frame

    >>> import adjoint as ad
    >>> x1 = ad.tensor(3.0, requires_grad=True)
    >>> x2 = ad.tensor(4.0, requires_grad=True)
    >>> a = x1 + x2
    >>> f = a * x1
    >>> print(ad.draw(f))
    f = a·x1
    ├─ a = x1 + x2
    │  ├─ x1
    │  └─ x2
    └─ x1 ↑
    """
    graph = graph_of(what, args, sys._getframe(1), names)
    if depth is not None:
        graph = graph.collapsed(depth, expand)
    return Picture(graph.readable(expand))


# ---------------------------------------------------------------------- text
def _ops(n: int) -> str:
    return "1 op" if n == 1 else f"{n} ops"


def _line(v: Vertex) -> str:
    if v.kind == "module":
        return f"[{v.label}]  {_ops(v.count)}"
    what, _, shape = v.detail.partition("  ")
    if v.kind != "op" or "Backward" in what:
        return f"{v.label}  {v.detail if v.kind != 'op' else shape}".rstrip()
    if what.startswith(v.label + "("):
        return v.detail
    return f"{v.label} = {v.detail}" if v.count == 1 else f"{v.label}  {v.detail}"


def ascii_tree(graph: Graph, width: int = 100) -> str:
    """Every vertex once, with its operands below it; ← leads along chains of one operand; ↑ marks
    what was shown before."""
    operands = graph.operands()
    out: list[str] = []
    seen: set[Any] = set()
    stack: list[tuple[Any, str, str]] = [(graph.root, "", "")]
    while stack:
        key, first, rest = stack.pop()
        if key in seen:
            out.append(f"{first}{graph.vertices[key].label} ↑")
            continue
        text = first + _line(graph.vertices[key])
        seen.add(key)
        while len(operands[key]) == 1 and operands[key][0] not in seen:
            more = " ← " + _line(graph.vertices[operands[key][0]])
            if len(text) + len(more) > width:
                break
            key = operands[key][0]
            seen.add(key)
            text += more
        out.append(text)
        below = operands[key]
        if len(below) == 1 and below[0] not in seen:    # the chain goes on in the next line
            stack.append((below[0], rest + "← ", rest))
            continue
        for i in range(len(below) - 1, -1, -1):
            last = i == len(below) - 1
            deep = len(rest) >= width // 2      # beyond that a tree is a list
            stack.append((below[i], rest + ("└─ " if last else "├─ "),
                          rest if deep else rest + ("   " if last else "│  ")))
    return "\n".join(out)


# ---------------------------------------------------------------------- SVG
def _texts(v: Vertex) -> list[str]:
    if v.kind == "module":
        return [v.label, _ops(v.count)]
    return [_clip(v.label, 40), _clip(v.detail, 46)] if v.detail else [_clip(v.label, 40)]


def _clip(text: str, n: int) -> str:
    return text if len(text) <= n else text[: n - 1] + "…"


def svg(graph: Graph) -> str:
    """The graph from top to bottom; grey edges forward, accented ones for the gradients."""
    operands = graph.operands()
    keys = list(graph.vertices)
    width = {k: max(len(t) for t in _texts(v)) * _CHARACTER + _PAD
             for k, v in graph.vertices.items()}
    x, rank, routes = layout(keys, operands, width, _GAP)
    y = {k: rank[k] * _LEVEL for k in keys}
    total = max([x[k] + width[k] / 2 for k in keys]
                + [at for route in routes.values() for at in route], default=0) + 2 * _MARGIN
    height = max(y.values(), default=0) + 44 + 2 * _MARGIN
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total:.0f} {height}" '
           f'width="{total:.0f}" height="{height}" role="img" '
           f'aria-label="graph of {len(keys)} vertices">', _STYLE]
    for (a, b), differentiable in graph.edges.items():
        points = [(x[a], y[a] + 40), *((at, (rank[a] + 1 + i) * _LEVEL + 20)
                                       for i, at in enumerate(routes.get((a, b), ()))),
                  (x[b], y[b])]
        out.append(_edge([(px + _MARGIN, py + _MARGIN) for px, py in points], differentiable))
    for k, v in graph.vertices.items():
        out.append(_box(v, x[k] - width[k] / 2 + _MARGIN, y[k] + _MARGIN, width[k],
                        k == graph.root))
    return "\n".join([*out, "</svg>"])


def _edge(points: list[tuple[float, float]], differentiable: bool) -> str:
    forward = f'<path d="{_curve(points, -3)}"/>'
    if not differentiable:
        return forward
    return forward + f'<path class="b" d="{_curve(points[::-1], 3)}"/>'


def _curve(points: list[tuple[float, float]], shift: float) -> str:
    """A smooth line through the points, upright at each."""
    (x0, y0), out = points[0], []
    out.append(f"M{x0 + shift:.1f} {y0:.1f}")
    for x1, y1 in points[1:]:
        middle = (y0 + y1) / 2
        out.append(f"C{x0 + shift:.1f} {middle:.1f} {x1 + shift:.1f} {middle:.1f} "
                   f"{x1 + shift:.1f} {y1:.1f}")
        x0, y0 = x1, y1
    return "".join(out)


def _box(v: Vertex, x: float, y: float, width: float, root: bool) -> str:
    texts = _texts(v)
    top = y + (17 if len(texts) > 1 else 24)
    lines = "".join(
        f'<text x="{x + width / 2:.1f}" y="{top + i * _LINE}" text-anchor="middle"'
        f'{" class=" + chr(34) + "d" + chr(34) if i else ""}>{html.escape(t)}</text>'
        for i, t in enumerate(texts))
    corner = 14 if v.kind in ("leaf", "input") else 4
    return (f'<g class="{v.kind}{" root" if root else ""}"><title>{html.escape(v.where)}</title>'
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="40" rx="{corner}"/>'
            f'{lines}</g>')


# ---------------------------------------------------------------------- DOT
def dot(graph: Graph) -> str:
    """The graph for Graphviz; dashed edges are the way of the gradients."""
    number = {k: f"n{i}" for i, k in enumerate(graph.vertices)}
    shape = {"op": "box", "leaf": "ellipse", "input": "ellipse", "module": "box3d"}

    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    out = ["digraph adjoint {", "  rankdir=TB;"]
    out += [f"  {number[k]} [label={quoted(chr(10).join(_texts(v)))}, shape={shape[v.kind]}];"
            for k, v in graph.vertices.items()]
    for (a, b), differentiable in graph.edges.items():
        out.append(f"  {number[a]} -> {number[b]} [color=gray];")
        if differentiable:
            out.append(f'  {number[b]} -> {number[a]} [color="#d9480f", style=dashed, '
                       "constraint=false];")
    return "\n".join([*out, "}"])
