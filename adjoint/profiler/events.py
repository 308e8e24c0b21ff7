"""What was recorded: single events, their averages by a key, and the tables."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from adjoint.base import provenance
from adjoint.base.errors import ArgumentError
from adjoint.base.text import format_bytes


@dataclass
class Event:
    """One op, backward node, module call, optimizer step or `record_function` span.

    Times are microseconds; `start` counts from the beginning of the recording. `flops` and
    `nbytes` (read and written) are of this event alone, without what it contains.
    """

    name: str
    kind: str                           # "op", "backward", "module", "optimizer", "span"
    start: float
    duration: float = 0.0
    inside: float = 0.0                 # time of the events it contains
    flops: int = 0
    nbytes: int = 0
    memory: int = 0                     # bytes allocated less bytes freed
    inside_memory: int = 0
    shapes: tuple[tuple[int, ...], ...] = ()
    module: str = ""
    place: tuple[Any, int] = (None, 0)
    sequence: int = -1                  # links a backward event to its forward op
    depth: int = 0

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds without the events inside."""
        return self.duration - self.inside

    @property
    def cpu_time_total(self) -> float:
        """Microseconds with the events inside."""
        return self.duration

    @property
    def line(self) -> str:
        """``file:line`` of the call in the user's program; "" where there is none."""
        code, lasti = self.place
        return f"{code.co_filename}:{provenance.line_of(code, lasti)}" if code is not None else ""


@dataclass
class EventAverage:
    """All events of one key together."""

    key: str
    count: int = 0
    cpu_time_total: float = 0.0
    self_cpu_time_total: float = 0.0
    flops: int = 0
    nbytes: int = 0
    cpu_memory_usage: int = 0
    self_cpu_memory_usage: int = 0
    input_shapes: tuple[tuple[int, ...], ...] = ()
    busy: float = 0.0                   # microseconds of the events that have flops or bytes
    lines: set[str] = field(default_factory=set)

    def add(self, e: Event) -> None:
        """Count an event in."""
        self.count += 1
        self.cpu_time_total += e.duration
        self.self_cpu_time_total += e.self_cpu_time_total
        self.flops += e.flops
        self.nbytes += e.nbytes
        self.cpu_memory_usage += e.memory
        self.self_cpu_memory_usage += e.memory - e.inside_memory
        if e.flops or e.nbytes:
            self.busy += e.self_cpu_time_total
        if e.line and len(self.lines) < 16:
            self.lines.add(e.line)

    @property
    def cpu_time(self) -> float:
        """Microseconds per call."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def gflops_per_second(self) -> float:
        """Achieved 10^9 floating operations per second; 0 where none are known."""
        return self.flops / self.busy * 1e-3 if self.busy > 0 else 0.0

    @property
    def gbytes_per_second(self) -> float:
        """Achieved 10^9 bytes per second of operands read and results written."""
        return self.nbytes / self.busy * 1e-3 if self.busy > 0 else 0.0


_SORTS: dict[str, Callable[[EventAverage], Any]] = {
    "cpu_time": lambda a: a.cpu_time, "cpu_time_total": lambda a: a.cpu_time_total,
    "self_cpu_time_total": lambda a: a.self_cpu_time_total, "count": lambda a: a.count,
    "flops": lambda a: a.flops, "nbytes": lambda a: a.nbytes,
    "cpu_memory_usage": lambda a: a.cpu_memory_usage,
    "self_cpu_memory_usage": lambda a: a.self_cpu_memory_usage, "key": lambda a: a.key,
    "gflops_per_second": lambda a: a.gflops_per_second,
    "gbytes_per_second": lambda a: a.gbytes_per_second}


class EventList(list[EventAverage]):
    """Averages, with the table that shows them."""

    def __init__(self, items: Sequence[EventAverage] = (), *, memory: bool = False,
                 shapes: bool = False) -> None:
        super().__init__(items)
        self.memory, self.shapes = memory, shapes

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all events."""
        return sum(a.self_cpu_time_total for a in self)

    def total_average(self) -> EventAverage:
        """All of them as one."""
        total = EventAverage("Total")
        for a in self:
            for name in ("count", "cpu_time_total", "self_cpu_time_total", "flops", "nbytes",
                         "self_cpu_memory_usage", "busy"):
                setattr(total, name, getattr(total, name) + getattr(a, name))
        return total

    def table(self, sort_by: str | None = None, row_limit: int = 100,
              max_name_column_width: int = 55, header: str | None = None) -> str:
        """The averages as text, largest first by `sort_by` (an attribute of `EventAverage`).

        GFLOP/s and GB/s are over the time of the events whose work is known.
        """
        if sort_by is not None and sort_by not in _SORTS:
            raise ArgumentError(f"table: cannot sort by {sort_by!r}; choose from "
                                f"{', '.join(_SORTS)}")
        rows = list(self)
        if sort_by is not None:
            rows.sort(key=_SORTS[sort_by], reverse=sort_by != "key")
        shown = rows if row_limit < 0 else rows[:row_limit]
        names = ["Name", "Self CPU %", "Self CPU", "CPU total", "CPU time avg", "# of Calls",
                 "GFLOP", "GFLOP/s", "GB/s"]
        names += ["Self CPU Mem"] if self.memory else []
        names += ["Input Shapes"] if self.shapes else []
        total = self.self_cpu_time_total or 1.0
        cells = [names, *(list(self._row(a, total, max_name_column_width)) for a in shown)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(names))]
        lines = ["  ".join(c.ljust(w) if i == 0 else c.rjust(w)
                           for i, (c, w) in enumerate(zip(row, widths, strict=True))).rstrip()
                 for row in cells]
        rule = "-" * max(map(len, lines))
        left = len(rows) - len(shown)
        tail = [f"({left} more)"] if left else []
        return "\n".join([*([header] if header else []), rule, lines[0], rule, *lines[1:], *tail,
                          rule, f"Self CPU time total: {_time(self.self_cpu_time_total)}"])

    def _row(self, a: EventAverage, total: float, width: int) -> Iterator[str]:
        yield a.key if len(a.key) <= width else "..." + a.key[3 - width:]
        yield f"{a.self_cpu_time_total / total:.2%}"
        yield _time(a.self_cpu_time_total)
        yield _time(a.cpu_time_total)
        yield _time(a.cpu_time)
        yield str(a.count)
        yield f"{a.flops / 1e9:.3f}" if a.flops else "--"
        yield f"{a.gflops_per_second:.2f}" if a.flops else "--"
        yield f"{a.gbytes_per_second:.2f}" if a.nbytes else "--"
        if self.memory:
            yield format_bytes(a.self_cpu_memory_usage, ".2f", binary=True)
        if self.shapes:
            yield str([list(s) for s in a.input_shapes])

    def __repr__(self) -> str:
        return self.table()

    __str__ = __repr__


def averages(events: Sequence[Event], key: Callable[[Event], Any], *, memory: bool,
             shapes: bool) -> EventList:
    """Events grouped by a key (None: left out); a tuple's first part is the name that is shown."""
    groups: dict[Any, EventAverage] = {}
    for e in events:
        k = key(e)
        if k is None:
            continue
        name = k[0] if isinstance(k, tuple) else k
        have = groups.get(k)
        if have is None:
            have = groups[k] = EventAverage(name, input_shapes=e.shapes if shapes else ())
        have.add(e)
    return EventList(list(groups.values()), memory=memory, shapes=shapes)


def _time(us: float) -> str:
    if us >= 1e6:
        return f"{us / 1e6:.3f}s"
    return f"{us / 1e3:.3f}ms" if us >= 1e3 else f"{us:.3f}us"
