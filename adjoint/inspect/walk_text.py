"""Events in words: one line each, the same in the terminal, the page and the search."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from adjoint.base.text import format_bytes
from adjoint.inspect.walk import Event, at

if TYPE_CHECKING:
    from adjoint.inspect.walk import NodeInfo, TensorInfo, Walk

SHOWN = 4       # names that a line lists before it counts


def size(nbytes: int) -> str:
    """Bytes with a unit.

    >>> size(48), size(1_500_000)
    ('48 B', '1.5 MB')
    """
    return format_bytes(nbytes, ".4g")      # as the page's script writes them


def describe(walk: Walk, e: Event) -> str:
    """What happened at an event."""
    return _WORDS[e.kind](walk, e)


def listed(names: Sequence[str]) -> str:
    """Names, the first few of them."""
    shown = ", ".join(names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"


def _inputs(walk: Walk, e: Event) -> str:
    texts = [walk.name(i) if isinstance(i, int) else str(i) for i in e.inputs if i != "None"]
    return ", ".join(texts) + (f"; {e.attrs}" if e.attrs else "")


def _op(walk: Walk, e: Event) -> str:
    made = listed([walk.name(o) for o in e.outputs]) or "()"
    arrow = "is overwritten by" if e.inplace else "="
    text = f"{made} {arrow} {e.text}({_inputs(walk, e)})"
    if e.node < 0:
        return text + "; nothing recorded"
    return text + "; " + kept(walk, walk.nodes[e.node])


def kept(walk: Walk, node: NodeInfo) -> str:
    """What a node saved, in words."""
    if not node.saved:
        return "saves nothing"
    return f"saves {residuals(walk, node)} ({size(sum(_own(node)))})"


def residuals(walk: Walk, node: NodeInfo) -> str:
    """The names of what a node saved: the tensors', or the record's for what is hidden."""
    return listed([walk.name(s.tensor) if s.tensor >= 0 else s.name for s in node.saved])


def _own(node: NodeInfo) -> list[int]:
    """Bytes per distinct storage that a node shows."""
    return list({s.storage: s.nbytes for s in node.saved}.values())


def _begin(walk: Walk, e: Event) -> str:
    root = f" at {walk.nodes[e.node].name}" if e.node >= 0 else ""
    return f"backward begins{root}"


def _node(walk: Walk, e: Event) -> str:
    node = walk.nodes[e.node]
    to = [k for k, v in enumerate(e.cts[1]) if v is not None] if e.cts else []
    text = f"{node.name}: {_of_outputs(walk, node)} → {_of_operands(walk, node, to)}"
    if node.released == e.index and node.saved:
        text += f"; frees {residuals(walk, node)} ({size(sum(_own(node)))})"
    return text


def _of_outputs(walk: Walk, node: NodeInfo) -> str:
    """What arrives at a node, as derivatives of its outputs."""
    made = walk.events[node.event].outputs if node.event >= 0 else ()
    return listed([f"dL/d{walk.name(o)}" for o in made]) or "ct"


def _of_operands(walk: Walk, node: NodeInfo, to: Sequence[int]) -> str:
    """What leaves it, as derivatives of the operands `to`."""
    read = walk.events[node.event].inputs if node.event >= 0 else ()
    names = [read[k] if k < len(read) else -1 for k in to]
    return listed([f"dL/d{walk.name(n)}" if isinstance(n, int) and n >= 0 else "ct"
                   for n in names]) or "nothing"


def _grad(walk: Walk, e: Event) -> str:
    t = walk.tensors[e.outputs[0]]
    before = at(t.grad, e.index - 1)
    now = at(t.grad, e.index)
    value = now.brief() if now is not None else "None"
    was = "None" if before is None else before.brief()
    return f"{walk.name(t.id)}.grad = {value} (was {was})"


def _zero(walk: Walk, e: Event) -> str:
    return f".grad of {listed([walk.name(i) for i in e.outputs])} is None again"


def _write(walk: Walk, e: Event) -> str:
    what = e.text or "something outside of the recorded operations"
    return f"{what} wrote {listed([walk.name(i) for i in e.outputs])}"


def _enter(walk: Walk, e: Event) -> str:
    g = walk.groups[e.group]
    return f"enter {g.name}" + (f" ({g.kind})" if g.kind != g.name else "")


_WORDS: dict[str, Any] = {
    "enter": _enter, "leave": lambda walk, e: f"leave {e.text}", "op": _op, "begin": _begin,
    "node": _node, "grad": _grad, "zero": _zero, "write": _write,
    "end": lambda walk, e: "backward ends", "error": lambda walk, e: e.text,
}


def fields(walk: Walk, tensor: TensorInfo, event: int) -> dict[str, str]:
    """The six fields of a tensor after an event, as text: `.data .grad .grad_fn .saved_tensors
    .requires_grad .next_functions`."""
    if event < tensor.born or 0 <= tensor.died <= event:
        return {}
    node = at(tensor.nodes, event, -1)
    info = walk.nodes[node] if node >= 0 else None
    grad, data = at(tensor.grad, event), at(tensor.data, event)
    first = tensor.flags[0] if tensor.flags else None
    flag = at(tensor.flags, event, not first[1] if first else tensor.requires_grad)
    saved = "-" if info is None else (
        "released" if 0 <= info.released <= event else
        residuals(walk, info) or "nothing")
    edges = "-" if info is None else ", ".join(
        "None" if e is None else walk.nodes[e[1]].name if e[0] == "node" else
        f"AccumulateGrad({walk.name(e[1])})" for e in info.edges)
    return {"data": data.brief() if data is not None else "-",
            "grad": grad.brief() if grad is not None else "None",
            "grad_fn": info.name if info is not None else "None", "saved_tensors": saved,
            "requires_grad": str(flag), "next_functions": edges}


__all__ = ["describe", "fields", "kept", "listed", "residuals", "size"]
