"""What a recording holds: events in order, and the tensors, nodes and storages they speak of."""
from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

from adjoint.base import provenance
from adjoint.inspect.snapshot import Snapshot
from adjoint.io.atomic import write_bytes

KINDS = ("enter", "leave", "op", "begin", "node", "grad", "end", "zero", "write", "error")
History = tuple[tuple[int, "Snapshot | None"], ...]


@dataclass(slots=True)
class Event:
    """One thing that happened. What is not of its kind is empty.

    kind     enter, leave: a module call; op: an operation ran forward; begin, end: of a backward
             pass; node: a node's rules ran; grad: a `.grad` was written by backward; zero: `.grad`
             became None; write: memory was written outside of recorded operations (an optimizer);
             error: what ended the recording
    node     number of the node in `walk.nodes`, or -1
    inputs   tensors read: numbers in `walk.tensors`, and texts of constants
    outputs  tensors made or written
    cts      of a backward node: (arriving, leaving) values
    live     bytes of the storages that exist and were seen, after the event
    saved    bytes that exist because the graph keeps them, parameters left out
    """

    kind: str
    index: int
    text: str = ""
    node: int = -1
    inputs: tuple[Any, ...] = ()
    outputs: tuple[int, ...] = ()
    place: int = -1
    group: int = 0
    card: int = -1
    inplace: bool = False
    attrs: str = ""
    cts: tuple[Any, ...] = ()
    live: int = 0
    saved: int = 0


@dataclass(slots=True)
class TensorInfo:
    """A tensor of the program over time. `data` and `grad` are (event, value) where it changed."""

    id: int
    shape: tuple[int, ...]
    dtype: str
    storage: int
    requires_grad: bool
    leaf: bool
    born: int
    group: int
    name: str = ""
    node: int = -1
    nodes: tuple[tuple[int, int], ...] = ()    # (event, grad_fn) where it changed
    data: History = ()
    grad: History = ()
    flags: tuple[tuple[int, bool], ...] = ()   # (event, requires_grad) where it changed
    died: int = -1
    version: int = 0
    array: int = 0
    grad_of: int = -1


@dataclass(slots=True)
class Saved:
    """One residual of a node."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    storage: int
    tensor: int
    parameter: bool


@dataclass(slots=True)
class NodeInfo:
    """A node of the graph. `edges` are (kind, number, output): to a node, or to a leaf tensor."""

    id: int
    name: str
    op: str
    event: int
    place: int
    group: int
    card: int = -1
    edges: tuple[tuple[str, int, int] | None, ...] = ()
    saved: tuple[Saved, ...] = ()
    released: int = -1
    dropped: bool = False


@dataclass(slots=True)
class Storage:
    """Memory: its size and the events between which it existed (`died` -1: it still does).

    parameter   a leaf that requires grad shows it, and no recorded operation made it
    """

    id: int
    nbytes: int
    born: int
    died: int = -1
    parameter: bool = False
    computed: bool = False


@dataclass(slots=True)
class Group:
    """One call of a module, inside of `parent` (0 is the program)."""

    id: int
    parent: int
    name: str
    kind: str


class Walk:
    """A recorded run; `ad.record()` makes one. Save it as a page with `save`.

    >>> import adjoint as ad
    >>> x = ad.tensor([1.0, 2.0], requires_grad=True)
    >>> with ad.record() as walk:
    ...     (x * x).sum().backward()
    >>> [e.kind for e in walk.events]
    ['op', 'op', 'begin', 'node', 'node', 'grad', 'end']
    >>> print(walk.describe(5))
    x.grad = [2, 4] (was None)
    """

    def __init__(self, title: str = "", budget: int | None = None) -> None:
        self.title = title
        self.budget = budget
        self.events: list[Event] = []
        self.tensors: list[TensorInfo] = []
        self.nodes: list[NodeInfo] = []
        self.storages: list[Storage] = []
        self.groups: list[Group] = [Group(0, -1, "", "program")]
        self.places: list[tuple[CodeType | None, int]] = []
        self.cards: list[Any] = []
        self.dropped = 0

    # ------------------------------------------------------------------ reading
    def __len__(self) -> int:
        return len(self.events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __repr__(self) -> str:
        count = {k: sum(e.kind == k for e in self.events) for k in ("op", "node", "grad")}
        return (f"<walk of {len(self.events)} events: {count['op']} forward, {count['node']} "
                f"backward, {count['grad']} gradients; peak {self.peak:,} bytes>")

    @property
    def peak(self) -> int:
        """The most bytes that were live after any event (temporaries inside of an operation are
        not seen here)."""
        return max((e.live for e in self.events), default=0)

    def name(self, tensor: int) -> str:
        """What the user calls a tensor; ``v7`` where it has no name."""
        return self.tensors[tensor].name or f"v{tensor}"

    def named(self, name: str) -> TensorInfo:
        """The (last) tensor of that name; KeyError where there is none."""
        for t in reversed(self.tensors):
            if t.name == name:
                return t
        raise KeyError(f"no tensor {name!r} in this walk; there are "
                       f"{', '.join(sorted({t.name for t in self.tensors if t.name})) or 'none'}")

    def where(self, event: Event | int) -> str:
        """``file:line in function`` of an event."""
        e = self.events[event] if isinstance(event, int) else event
        return provenance.locate(*self.places[e.place]) if e.place >= 0 else "unknown place"

    def describe(self, index: int) -> str:
        """One line about an event."""
        from adjoint.inspect.walk_text import describe
        return describe(self, self.events[index])

    def __str__(self) -> str:
        return "\n".join(f"{i:4}  {self.describe(i)}" for i in range(len(self.events)))

    # ------------------------------------------------------------------ writing
    def to_json(self) -> dict[str, Any]:
        """The recording as plain data: what the page reads."""
        from adjoint.inspect.walk_json import to_json
        return to_json(self)

    def html(self) -> str:
        """The stepper as one page that needs nothing else."""
        from adjoint.inspect.page import page
        return page(self)

    def _repr_html_(self) -> str:
        """The stepper inside of a notebook: in a frame of its own, cut off from the notebook."""
        from html import escape
        return ('<iframe title="walk" sandbox="allow-scripts" style="width:100%;height:860px;'
                f'border:0" srcdoc="{escape(self.html())}"></iframe>')

    def save(self, path: str | Path) -> Path:
        """Write the page (``.json``: the plain data) to `path`; returns the path.

        The file is written beside it first, so that an interrupted write leaves the old one.
        """
        target = Path(path)
        text = (json.dumps(self.to_json(), separators=(",", ":"), ensure_ascii=False,
                           allow_nan=False)
                if target.suffix == ".json" else self.html())
        write_bytes(target, text.encode("utf-8", "replace"))
        return target


def at(history: Sequence[tuple[int, Any]], event: int, default: Any = None) -> Any:
    """The value of a history at an event: the last change at or before it."""
    found = default
    for when, value in history:
        if when > event:
            break
        found = value
    return found


__all__ = ["Event", "Group", "NodeInfo", "Saved", "Storage", "TensorInfo", "Walk", "at"]
