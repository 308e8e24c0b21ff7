"""A walk as plain data for the page: columns and shared tables, small enough to embed."""
from __future__ import annotations

import linecache
import math
import os
from collections import Counter
from typing import Any

from adjoint.base import provenance
from adjoint.inspect.snapshot import Snapshot
from adjoint.inspect.walk import KINDS, Walk
from adjoint.inspect.walk_text import describe

VALUES = 2_400_000      # characters of values that a page carries, about
NUMBER, SUMMARY = 10, 80        # characters of a number, of a value's statistics
AROUND = 12             # source lines kept around one that is used, in long files
WHOLE = 400             # lines up to which a file is kept whole
WIDE = 240              # characters of a source line


def to_json(walk: Walk) -> dict[str, Any]:
    """Everything the page needs; lists in place of objects, so that it stays small."""
    values = _Values(walk)
    kind = {k: i for i, k in enumerate(KINDS)}
    events = [[kind[e.kind], e.node, list(e.inputs), list(e.outputs), e.place, e.group, e.card,
               int(e.inplace), e.live, e.saved, values.cts(e.cts), e.text, e.attrs]
              for e in walk.events]
    tensors = [[t.name, list(t.shape), t.dtype, t.storage, int(t.requires_grad), int(t.leaf),
                t.born, t.died, t.group, t.nodes, values.history(t.data), values.history(t.grad),
                [[i, int(f)] for i, f in t.flags]] for t in walk.tensors]
    nodes = [[n.name, n.op, n.event, n.place, n.group, n.card,
              [None if e is None else [int(e[0] == "leaf"), e[1], e[2]] for e in n.edges],
              [[s.name, list(s.shape), s.dtype, s.nbytes, s.storage, s.tensor, int(s.parameter)]
               for s in n.saved], n.released, int(n.dropped)] for n in walk.nodes]
    places, files = _sources(walk)
    return {
        "version": 1, "title": _title(walk), "budget": walk.budget, "dropped": walk.dropped,
        "kinds": KINDS, "events": events, "lines": [describe(walk, e) for e in walk.events],
        "tensors": tensors, "nodes": nodes,
        "storages": [[s.nbytes, s.born, s.died, int(s.parameter)] for s in walk.storages],
        "groups": [[g.parent, g.name, g.kind] for g in walk.groups],
        "cards": [[list(c.operands), c.forward, c.backward, c.saved] for c in walk.cards],
        "places": places, "files": files, "values": values.table(),
    }


def _title(walk: Walk) -> str:
    if walk.title:
        return walk.title
    names = Counter(code.co_filename for code, _ in walk.places if code is not None)
    return f"A walk through {_shown(names.most_common(1)[0][0])}" if names else "A walk"


class _Values:
    """Every snapshot once. Small ones are written whole while there is room for them."""

    def __init__(self, walk: Walk) -> None:
        self.numbers: dict[int, int] = {}
        self.snaps: list[Snapshot] = []

    def of(self, s: Snapshot | None) -> int:
        """The number of a snapshot in the table; -1 for None."""
        if s is None:
            return -1
        found = self.numbers.get(id(s))
        if found is None:
            found = self.numbers[id(s)] = len(self.snaps)
            self.snaps.append(s)
        return found

    def history(self, h: Any) -> list[list[int]]:
        """A history with numbers for its values; of several at one event the last."""
        return [[i, self.of(s)] for i, s in dict(h).items()]

    def cts(self, cts: Any) -> Any:
        """The values of a backward node."""
        return [[self.of(s) for s in side] for side in cts] if cts else 0

    def table(self) -> list[Any]:
        """The snapshots: nested lists, or [shape, min, max, mean, std, not finite, sampled]."""
        sizes = Counter(s.size for s in self.snaps if s.raw is not None)
        room, most = VALUES - SUMMARY * len(self.snaps), 0
        for n in sorted(sizes):                # the largest size for which all up to it have room
            room -= max(0, NUMBER * n + 6 - SUMMARY) * sizes[n]
            if room < 0:
                break
            most = n
        return [_encoded(s, most) for s in self.snaps]


def _encoded(s: Snapshot, most: int) -> Any:
    if s.raw is not None and s.size <= most:
        return {"v": s.plain()}
    stats = s.stats
    if not stats:
        return {"s": list(s.shape)}
    return {"s": list(s.shape), "r": [_finite(stats[k]) for k in ("min", "max", "mean", "std")],
            "b": stats["bad"], "a": int(s.sampled)}


def _finite(x: float) -> Any:
    return float(f"{x:.5g}") if math.isfinite(x) else str(x)


def _sources(walk: Walk) -> tuple[list[Any], list[Any]]:
    """(places, files): each place as [file, line, function]; the lines around the places."""
    numbers: dict[str, int] = {}
    used: dict[str, set[int]] = {}
    places = []
    for code, lasti in walk.places:
        if code is None:
            places.append([-1, 0, ""])
            continue
        name = code.co_filename
        line = provenance.line_of(code, lasti)
        used.setdefault(name, set()).add(line)
        places.append([numbers.setdefault(name, len(numbers)), line, code.co_name])
    return places, [_file(name, used[name]) for name in numbers]


def _file(name: str, used: set[int]) -> dict[str, Any]:
    lines = linecache.getlines(name)
    if len(lines) <= WHOLE:
        keep = set(range(1, len(lines) + 1))
    else:
        keep = {n for line in used for n in range(max(1, line - AROUND), line + AROUND + 1)
                if n <= len(lines)}
    return {"name": _shown(name),
            "lines": [[n, lines[n - 1].rstrip("\n")[:WIDE]] for n in sorted(keep)]}


def _shown(name: str) -> str:
    """A path as it is shown: below the working folder, or its last two parts."""
    if name.startswith("<"):
        return name
    try:
        short = os.path.relpath(name)
    except ValueError:      # another drive
        short = ".."
    return short if not short.startswith("..") else os.path.join(*name.split(os.sep)[-2:])


__all__ = ["to_json"]
