"""The walk through a program's tape: what every op computed, what it kept and why, and what the
backward pass will do with it, in symbols and, for small tensors, in numbers.

    >>> import adjoint as ad
    >>> x1 = ad.tensor(3.0, requires_grad=True)
    >>> x2 = ad.tensor(4.0, requires_grad=True)
    >>> a = x1 + x2
    >>> f = a * x1
    >>> print(ad.explain(f).text().splitlines()[0])
    f = a·x1 = 21
    >>> ad.explain(f).trace()
    [('f', '1'), ('a', '3'), ('x1', '7'), ('x1', '10'), ('x2', '3')]
"""
from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from adjoint.autograd import api
from adjoint.autograd.engine import Backward
from adjoint.base import provenance
from adjoint.base.aval import Aval
from adjoint.base.errors import ArgumentError, AutogradError
from adjoint.core.modes import Observer, watchers
from adjoint.core.tensor import (
    AccumulateGrad,
    Freed,
    Kept,
    OutRef,
    Packed,
    Port,
    Tensor,
    edge_of,
    owner_of,
)
from adjoint.inspect import render
from adjoint.inspect.formulas import (
    LONG,
    NUMBER,
    UNKNOWN,
    Card,
    card_of,
    marked,
    operand_names,
    plain,
)
from adjoint.inspect.names import Names, key_of, key_of_edge

SHORT = 8       # characters up to which a cotangent's formula stands for its name
RUN_NODES, RUN_ELEMENTS = 500, 1_000_000    # up to here the backward is run for its numbers


@dataclass
class Saved:
    """One residual: its name in the rule, the value's name, its size and the reason.

    nbytes counts memory that only this node keeps alive; `shared` says who else holds it.
    """

    residual: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    why: str
    shared: str = ""


@dataclass
class Step:
    """One op of the forward pass."""

    index: int
    node: str
    op: str
    out: str
    formula: str
    shape: tuple[int, ...]
    dtype: str
    where: str
    source: str
    value: str = ""
    saved: list[Saved] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        """Bytes this node alone keeps alive."""
        return sum(s.nbytes for s in self.saved)


@dataclass
class Share:
    """One cotangent that a node sends to an operand: its text, its number, and the sum so far."""

    target: str
    formula: str
    value: str = ""
    total: str = ""
    first: bool = True


@dataclass
class Move:
    """One node of the backward pass."""

    index: int
    node: str
    source: str
    where: str
    value: str = ""
    shares: list[Share] = field(default_factory=list)


@dataclass
class Explanation:
    """What `explain` returns. `print` gives text; a notebook shows HTML.

    root     name of the explained tensor
    steps    the ops of the forward pass, in order
    moves    the nodes of the backward pass, in its order
    note     why numbers are absent, where they are
    """

    root: str
    root_value: str
    steps: list[Step]
    moves: list[Move]
    leaves: list[str]
    note: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes kept for backward, parameters and inputs that live anyway not counted."""
        return sum(s.nbytes for s in self.steps)

    def trace(self) -> list[tuple[str, str]]:
        """The adjoint trace: (name, value) in the order in which the sums become known."""
        out = [(self.root, self.moves[0].value)] if self.moves else []
        return out + [(s.target, s.total) for m in self.moves for s in m.shares]

    def text(self, width: int = 100) -> str:
        """Plain text."""
        return render.text(self, width)

    def markdown(self) -> str:
        """Two tables and a summary in Markdown."""
        return render.markdown(self)

    def json(self) -> str:
        """Everything, as JSON."""
        return render.as_json(self)

    def show(self) -> None:
        """Print it: with colours on a terminal, where `rich` is installed; plain in a pipe."""
        render.show(self)

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return render.html(self)


def explain(tensor: Any, gradient: Any = None, *, names: Mapping[str, Any] | None = None,
            numbers: bool | None = None) -> Explanation:
    """Walk through the graph of `tensor`.

    gradient  its cotangent, where it is not a scalar (default: ones)
    names     name -> tensor or module, beside the variables found in the calling frame
    numbers   run the backward for its values, on a graph that stays as it is; by default for up to
              500 nodes and a million elements. Hooks on tensors run too; no `.grad` changes.

    >>> import adjoint as ad
    >>> x = ad.tensor([1.0, 2.0], requires_grad=True)
    >>> y = x.exp().sum()
    >>> explain(y).steps[0].saved[0].why
    'd exp(x) = exp(x) = out'
    """
    if not isinstance(tensor, Tensor):
        raise ArgumentError(f"explain: expected a tensor, got {type(tensor).__name__}")
    if not tensor.requires_grad or tensor.grad_fn is None:
        raise AutogradError("explain: this tensor has no graph (it is "
                            + ("a leaf" if tensor.requires_grad else "not part of one: no operand "
                               "required a gradient, or it was made under no_grad") + ")")
    found = Names(provenance.user_frame(sys._getframe(1)), names)
    if not found.known(key_of(tensor)):
        found.found[key_of(tensor)] = "out"
        found.used.add("out")
    order = _order(tensor)
    run = _Run()
    note = _why_not(order, numbers)
    if not note:
        run.go(tensor, gradient, order)
    root = found.of(tensor)
    held: dict[int, int] = {}
    steps = [_step(i, n, found, held) for i, n in enumerate(reversed(order), 1)]
    moves = _moves(order, found, run, root)
    leaves = sorted({found.at(key_of_edge(e)) for n in order for e in n.edges
                     if type(e) is AccumulateGrad})
    return Explanation(root, compact(tensor.array), steps, moves, leaves, note)


def _order(tensor: Any) -> list[Any]:
    walk = Backward(keep=True, create=False, capture=None, accumulate=False)
    edge = edge_of(tensor)
    walk.arrange([edge.node if type(edge) is Port else edge])
    return walk.order


def _why_not(order: list[Any], numbers: bool | None) -> str:
    freed = next((n for n in order if type(n.saved) is Freed), None)
    if freed is not None:
        return ("the residuals have been freed by a backward "
                f"({provenance.locate(freed.saved.code, freed.saved.lasti)}): no numbers")
    if numbers is False:
        return "numbers were not asked for"
    if not any(type(e) is AccumulateGrad and e.variable is not None
               for n in order for e in n.edges):
        return "the leaves of this graph are gone, and with them what the gradients are of"
    elements = sum(_elements(n) for n in order)
    if numbers is None and (len(order) > RUN_NODES or elements > RUN_ELEMENTS):
        return (f"{len(order)} nodes, {elements} elements: pass numbers=True to run the backward "
                "for its values")
    return ""


def _elements(node: Any) -> int:
    shapes = node.shape if node.ports else (node.shape,)
    return sum(int(np.prod(s)) for s in shapes if s is not None)


class _Run(Observer):
    """The backward pass as it happens: what every node received and sent."""

    cotangents = True

    def __init__(self) -> None:
        self.received: dict[Any, Any] = {}
        self.sent: dict[Any, Any] = {}

    def before_backward(self, node: Any, ct: Any) -> None:
        self.received[node] = ct

    def backward(self, node: Any, ct: Any, results: Any) -> None:
        self.sent[node] = list(results)

    def go(self, tensor: Any, gradient: Any, order: list[Any]) -> None:
        """Run it; the graph and every `.grad` stay as they are."""
        ends = {e: None for n in order for e in n.edges if type(e) is AccumulateGrad}
        inputs = [leaf for e in ends if (leaf := e.variable) is not None]
        if gradient is None and tensor.numel() != 1:
            gradient = tensor.detach() * 0 + 1
        held = watchers.push(watchers.observers, self)
        try:
            api.grad(tensor, inputs, gradient, retain_graph=True, allow_unused=True)
        finally:
            watchers.pop(held)


# ---------------------------------------------------------------------- forward
def _step(index: int, node: Any, names: Names, held: dict[int, int]) -> Step:
    outs = [(node, i) for i in range(node.ports)] if node.ports else [(node, 0)]
    out = ", ".join(names.at(k) for k in outs)
    card = card_of(node, _local(node, names))
    shape, dtype = (node.shape[0], node.dtype[0]) if node.ports else (node.shape, _dtype(node))
    live = names.tensors.get(outs[0])
    return Step(index, node.name(), card.op, out, card.forward, tuple(shape or ()), str(dtype),
                node.where(), provenance.source_line(node.code, node.lasti),
                compact(live.array) if live is not None and not live.level else "",
                _saved(node, card, names, held, index))


def _dtype(node: Any) -> Any:
    return node.dtype if node.dtype is not None else getattr(node.plan, "dtype", None)


def _local(node: Any, names: Names) -> dict[str, str]:
    """Operand and residual names of a record -> what the user calls them."""
    out: dict[str, str] = {}
    for o, e in zip(operand_names(node), node.edges, strict=False):
        out[o] = names.at(key_of_edge(e)) if e is not None else UNKNOWN
    out["out"] = names.at((node, 0))
    for residual, saved in _residuals(node):
        if out.get(residual, UNKNOWN) == UNKNOWN:
            out[residual] = _name_of(saved, names) or residual
    return out


def _residuals(node: Any) -> list[tuple[str, Any]]:
    """(residual name, what is kept) of a node; what a custom function saved is numbered."""
    plan = node.plan
    if type(node.saved) is not tuple:
        return []
    kept = plan.names if plan is not None else [f"saved{i}" for i in range(len(node.saved))]
    return [(n, s) for n, s in zip(kept, node.saved, strict=False)
            if s is not None and not isinstance(s, Aval)]


def _name_of(saved: Any, names: Names) -> str:
    """The user's name of a kept value; "" where it has none."""
    t = saved.tensor if type(saved) is Kept else saved
    if isinstance(t, Tensor):
        if names.known(key_of(t)) or t._rg:
            return names.of(t)
        if t.level:
            return ""
    array = getattr(t, "array", t)
    if getattr(array, "size", 0) == 1 and isinstance(t, np.ndarray):
        return compact(array)
    return names.arrays.get(id(array), "")


def _saved(node: Any, card: Card, names: Names, held: dict[int, int], index: int) -> list[Saved]:
    found = []
    local = _local(node, names)
    for residual, saved in _residuals(node):
        for s in saved if type(saved) is tuple else (saved,):
            if type(s) is Packed:
                found.append(Saved(residual, local.get(residual, residual), (), "", 0,
                                   card.saved.get(residual, ""), "packed by a saved-tensor hook"))
                continue
            array: Any = getattr(s, "array", s)
            if not hasattr(array, "nbytes"):
                continue
            name = local.get(residual, residual)
            owner = id(owner_of(array)) if isinstance(array, np.ndarray) else id(array)
            shared = _holder(s)
            if not shared and owner in held:
                shared = f"step {held[owner]}"
            elif not shared:
                held[owner] = index
            found.append(Saved(residual, name, tuple(array.shape), str(array.dtype),
                               0 if shared else int(array.nbytes),
                               _why(card, residual, name), shared))
    return found


def _why(card: Card, residual: str, name: str) -> str:
    """The reason; where it is the cotangent's formula, in the names of this program."""
    said = card.saved.get(residual, "")
    if not re.match(r"d\w+ = ", said):
        return said
    readers = [f"read by {plain(t)}" for t in card.backward.values()
               if marked(name) in t and len(t) < LONG]
    return readers[0] if readers else said


def _holder(saved: Any) -> str:
    """Who holds a residual's memory in any case: it costs nothing then."""
    t = saved.tensor if type(saved) is Kept else saved
    if isinstance(t, Tensor) and t.is_leaf:
        return "a leaf that requires grad" if t._rg else "an input"
    if isinstance(t, np.ndarray) and t.size == 1:
        return "a number"
    array = t.array if isinstance(t, (OutRef, Tensor)) and not getattr(t, "level", 0) else None
    if isinstance(array, np.ndarray) and array.size and not any(array.strides) and array.ndim:
        return "one element, expanded"
    if array is not None and owner_of(array) is not array and isinstance(t, Tensor) \
            and t._base is not None and t._base.is_leaf:
        return "a view of a leaf"
    return ""


# ---------------------------------------------------------------------- backward
def _moves(order: list[Any], names: Names, run: _Run, root: str) -> list[Move]:
    totals: dict[Any, Any] = {}
    texts: dict[Any, str] = {}              # cotangents that are short enough to be written out
    moves = []
    for i, node in enumerate(order, 1):
        out = names.at((node, 0))
        local = _local(node, names)
        text = "1" if out == root else texts.get((node, 0)) or f"d{root}/d{out}"
        card = card_of(node, local, text)
        move = Move(i, node.name(), out, node.where(), _first(run.received.get(node)))
        results = run.sent.get(node) or [None] * len(node.edges)
        for o, e, r in zip(operand_names(node), node.edges, results, strict=False):
            if e is None:
                continue
            key = key_of_edge(e)
            share = Share(names.at(key), card.backward.get(o, f"{node.name()}({text})"),
                          first=key not in totals)
            if r is not None:
                array = r.array if isinstance(r, Tensor) else r
                totals[key] = array if share.first else totals[key] + array
                share.value, share.total = compact(array), compact(totals[key])
            else:
                totals.setdefault(key, 0)
            short = len(plain(share.formula, "{}")) <= SHORT or NUMBER.fullmatch(share.formula)
            texts[key] = share.formula if share.first and short else ""
            move.shares.append(share)
        moves.append(move)
    return moves


def _first(ct: Any) -> str:
    found = [c for c in (ct if isinstance(ct, (list, tuple)) else [ct]) if c is not None]
    return compact(getattr(found[0], "array", found[0])) if found else ""


def compact(array: Any, limit: int = 12) -> str:
    """Small arrays in full on one line; of larger ones shape, range and mean.

    >>> compact(np.array([1.0, 2.5]))
    '[1, 2.5]'
    """
    if not isinstance(array, np.ndarray):
        array = np.asarray(array) if np.isscalar(array) else array
    if not isinstance(array, np.ndarray):
        return repr(array)
    if array.ndim == 0:
        return _number(array.item())
    if array.size <= limit:
        return _nested(array.tolist())
    if array.dtype.kind not in "fiu":
        return f"{list(array.shape)}"
    return (f"{list(array.shape)} in [{_number(float(array.min()))}, "
            f"{_number(float(array.max()))}], mean {_number(float(array.mean()))}")


def _nested(x: Any) -> str:
    return "[" + ", ".join(map(_nested, x)) + "]" if isinstance(x, list) else _number(x)


def _number(x: Any) -> str:
    return f"{x:.6g}" if isinstance(x, float) else str(x)


__all__ = ["Explanation", "Move", "Saved", "Share", "Step", "compact", "explain"]
