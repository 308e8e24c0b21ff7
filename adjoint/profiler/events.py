"""What was recorded: single events, their averages by a key, and the tables."""
from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from adjoint.base import provenance
from adjoint.base.errors import ArgumentError
from adjoint.base.text import format_bytes
from adjoint.io.atomic import write_bytes
from adjoint.profiler.trace import write_trace


class DeviceType(enum.Enum):
    """Where an event ran; here the CPU."""

    CPU = 0
    CUDA = 1


@dataclass(frozen=True)
class Interval:
    """From `start` to `end`, in microseconds since the recording began."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        """Microseconds in between."""
        return self.end - self.start


class _OnCpu:
    """What PyTorch's events carry besides: the times of devices that are not here, as text too."""

    cpu_time: float
    cpu_time_total: float
    self_cpu_time_total: float
    device_type = DeviceType.CPU
    device_time = device_time_total = self_device_time_total = 0.0
    cuda_time = cuda_time_total = self_cuda_time_total = 0.0
    device_memory_usage = self_device_memory_usage = 0
    use_device = None
    node_id = -1
    scope = 0
    is_async = is_remote = is_legacy = False
    overload_name = ""

    @property
    def cpu_time_str(self) -> str:
        """`cpu_time` with its unit."""
        return _time(self.cpu_time)

    @property
    def cpu_time_total_str(self) -> str:
        """`cpu_time_total` with its unit."""
        return _time(self.cpu_time_total)

    @property
    def self_cpu_time_total_str(self) -> str:
        """`self_cpu_time_total` with its unit."""
        return _time(self.self_cpu_time_total)

    device_time_str = device_time_total_str = self_device_time_total_str = "0.000us"


@dataclass(eq=False)
class FunctionEvent(_OnCpu):
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
    sequence_nr: int = -1               # links a backward event to its forward op
    depth: int = 0
    id: int = 0
    trace_name: str = ""                # in the trace file, where it is another one
    cpu_parent: FunctionEvent | None = field(default=None, repr=False)
    cpu_children: list[FunctionEvent] = field(default_factory=list, repr=False)

    count = thread = 1
    fwd_thread = device_index = 0
    kernels: tuple[Any, ...] = ()
    concrete_inputs = kwinputs = None

    @property
    def key(self) -> str:
        """`name`."""
        return self.name

    @property
    def is_user_annotation(self) -> bool:
        """Whether the program named it (`record_function`), or an optimizer did."""
        return self.kind in ("span", "optimizer")

    @property
    def time_range(self) -> Interval:
        """When it began and ended."""
        return Interval(self.start, self.start + self.duration)

    @property
    def self_cpu_time_total(self) -> float:  # type: ignore[override]  # read-only here
        """Microseconds without the events inside."""
        return self.duration - self.inside

    @property
    def cpu_time_total(self) -> float:  # type: ignore[override]  # read-only here
        """Microseconds with the events inside."""
        return self.duration

    @property
    def cpu_time(self) -> float:  # type: ignore[override]  # read-only here
        """`cpu_time_total`: an event is one call."""
        return self.duration

    @property
    def cpu_memory_usage(self) -> int:
        """Bytes allocated less bytes freed, in the events inside too."""
        return self.memory

    @property
    def self_cpu_memory_usage(self) -> int:
        """Bytes allocated less bytes freed, without the events inside."""
        return self.memory - self.inside_memory

    @property
    def input_shapes(self) -> list[list[int]]:
        """The shapes of the operands; empty without `record_shapes`."""
        return [list(s) for s in self.shapes]

    @property
    def line(self) -> str:
        """``file:line`` of the call in the user's program; "" where there is none."""
        code, lasti = self.place
        return f"{code.co_filename}:{provenance.line_of(code, lasti)}" if code is not None else ""

    @property
    def stack(self) -> list[str]:
        """The frame of the user's program that called it, ``file(line): function``."""
        code, lasti = self.place
        return [] if code is None else [
            f"{code.co_filename}({provenance.line_of(code, lasti)}): {code.co_name}"]


@dataclass
class FunctionEventAvg(_OnCpu):
    """All events of one key together."""

    key: str
    count: int = 0
    cpu_time_total: float = 0.0
    self_cpu_time_total: float = 0.0
    flops: int = 0
    nbytes: int = 0
    cpu_memory_usage: int = 0
    self_cpu_memory_usage: int = 0
    input_shapes: list[list[int]] = field(default_factory=list)
    stack: list[str] = field(default_factory=list)
    busy: float = 0.0                   # microseconds of the events that have flops or bytes
    lines: set[str] = field(default_factory=set)
    is_user_annotation: bool = False

    cpu_parent = None
    cpu_children: tuple[Any, ...] = ()

    def add(self, e: FunctionEvent) -> None:
        """Count an event in."""
        self.count += 1
        self.cpu_time_total += e.duration
        self.self_cpu_time_total += e.self_cpu_time_total
        self.flops += e.flops
        self.nbytes += e.nbytes
        self.cpu_memory_usage += e.memory
        self.self_cpu_memory_usage += e.memory - e.inside_memory
        self.is_user_annotation = e.is_user_annotation
        if e.flops or e.nbytes:
            self.busy += e.self_cpu_time_total
        if e.line and len(self.lines) < 16:
            self.lines.add(e.line)

    @property
    def cpu_time(self) -> float:  # type: ignore[override]  # read-only here
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


_SORTS: dict[str, Callable[[FunctionEventAvg], Any]] = {
    "cpu_time": lambda a: a.cpu_time, "cpu_time_total": lambda a: a.cpu_time_total,
    "self_cpu_time_total": lambda a: a.self_cpu_time_total, "count": lambda a: a.count,
    "flops": lambda a: a.flops, "nbytes": lambda a: a.nbytes,
    "cpu_memory_usage": lambda a: a.cpu_memory_usage,
    "self_cpu_memory_usage": lambda a: a.self_cpu_memory_usage, "key": lambda a: a.key,
    "gflops_per_second": lambda a: a.gflops_per_second,
    "gbytes_per_second": lambda a: a.gbytes_per_second}
# Times and bytes of devices, which are not here: nothing to sort by.
_NOWHERE = frozenset(name.format(device) for device in ("cuda", "device", "xpu") for name in (
    "{}_time", "{}_time_total", "self_{}_time_total", "{}_memory_usage", "self_{}_memory_usage"))
_STACKS = ["self_cpu_time_total", "self_cuda_time_total", "self_xpu_time_total",
           "self_privateuse1_time_total"]


class EventList(list[Any]):
    """Events or their averages, with the table that shows them."""

    def __init__(self, items: Sequence[FunctionEvent | FunctionEventAvg] = (), *,
                 memory: bool = False, shapes: bool = False) -> None:
        super().__init__(items)
        self.memory, self.shapes = memory, shapes

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all events."""
        return sum(a.self_cpu_time_total for a in self)

    @property
    def supported_export_stacks_metrics(self) -> list[str]:
        """What `export_stacks` can write."""
        return list(_STACKS)

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0,
                     group_by_overload_name: bool = False) -> EventList:
        """Events by name (and by the shapes of operands, and by source line where
        `group_by_stack_n` is not 0; an op's overloads are one record here)."""
        def key(e: FunctionEvent) -> Any:
            return (e.name, e.shapes if group_by_input_shape else (),
                    e.line if group_by_stack_n else "")
        return averages(self, key, memory=self.memory, shapes=group_by_input_shape,
                        stack=group_by_stack_n > 0)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write a line for each source line: its frame and the `metric`, whole microseconds, as
        programs that draw flame graphs read them."""
        if metric not in _STACKS:
            raise ArgumentError(f"metric should be one of: {_STACKS}; got {metric!r}")
        sums: dict[str, float] = {}
        for e in self:
            for frame in e.stack[:1]:
                sums[frame] = sums.get(frame, 0.0) + getattr(e, metric, 0.0)
        text = "".join(f"{frame.replace(' ', '_')} {int(us)}\n" for frame, us in sums.items()
                       if int(us) > 0)
        write_bytes(path, text.encode())

    def export_chrome_trace(self, path: str) -> None:
        """Write single events as JSON for Perfetto and chrome://tracing."""
        write_trace(path, self, (), {})

    def total_average(self) -> FunctionEventAvg:
        """All of them as one."""
        total = FunctionEventAvg("Total")
        for a in self._averages():
            for name in ("count", "cpu_time_total", "self_cpu_time_total", "flops", "nbytes",
                         "self_cpu_memory_usage", "busy"):
                setattr(total, name, getattr(total, name) + getattr(a, name))
        return total

    def _averages(self) -> list[FunctionEventAvg]:
        return [a if isinstance(a, FunctionEventAvg) else _alone(a) for a in self]

    def table(self, sort_by: str | None = None, row_limit: int = 100,
              max_src_column_width: int = 75, max_name_column_width: int = 55,
              max_shapes_column_width: int = 80, header: str | None = None,
              top_level_events_only: bool = False, time_unit: str | None = None) -> str:
        """The averages as text, largest first by `sort_by` (an attribute of `FunctionEventAvg`).

        GFLOP/s and GB/s are over the time of the events whose work is known. Times of devices may
        be sorted by, and leave the order as it is. `top_level_events_only` shows single events
        that no other contains.
        """
        if sort_by is not None and sort_by not in _SORTS and sort_by not in _NOWHERE:
            raise ArgumentError(f"table: cannot sort by {sort_by!r}; choose from "
                                f"{', '.join(_SORTS)}")
        if time_unit not in (None, "s", "ms", "us"):
            raise ArgumentError(f"table: time_unit={time_unit!r} must be 's', 'ms' or 'us'")
        chosen = EventList([e for e in self if not (top_level_events_only and e.cpu_parent)])
        rows = chosen._averages()
        if sort_by in _SORTS:
            rows.sort(key=_SORTS[sort_by], reverse=sort_by != "key")
        shown = rows if row_limit < 0 else rows[:row_limit]
        names = ["Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg",
                 "# of Calls", "GFLOP", "GFLOP/s", "GB/s"]
        names += ["CPU Mem", "Self CPU Mem"] if self.memory else []
        names += ["Input Shapes"] if self.shapes else []
        total = self.self_cpu_time_total or 1.0
        cells = [names, *(list(self._row(a, total, time_unit)) for a in shown)]
        cuts = {0: max_name_column_width}
        if self.shapes:
            cuts[len(names) - 1] = max_shapes_column_width
        cells = [[_cut(c, cuts.get(i, len(c))) for i, c in enumerate(row)] for row in cells]
        widths = [max(len(row[i]) for row in cells) for i in range(len(names))]
        lines = ["  ".join(c.ljust(w) if i == 0 else c.rjust(w)
                           for i, (c, w) in enumerate(zip(row, widths, strict=True))).rstrip()
                 for row in cells]
        rule = "-" * max(map(len, lines))
        left = len(rows) - len(shown)
        tail = [f"({left} more)"] if left else []
        return "\n".join([*([header] if header else []), rule, lines[0], rule, *lines[1:], *tail,
                          rule, f"Self CPU time total: {_time(self.self_cpu_time_total)}"])

    def _row(self, a: FunctionEventAvg, total: float, unit: str | None) -> Iterator[str]:
        yield a.key
        yield f"{a.self_cpu_time_total / total:.2%}"
        yield _time(a.self_cpu_time_total, unit)
        yield f"{a.cpu_time_total / total:.2%}"
        yield _time(a.cpu_time_total, unit)
        yield _time(a.cpu_time, unit)
        yield str(a.count)
        yield f"{a.flops / 1e9:.3f}" if a.flops else "--"
        yield f"{a.gflops_per_second:.2f}" if a.flops else "--"
        yield f"{a.gbytes_per_second:.2f}" if a.nbytes else "--"
        if self.memory:
            yield format_bytes(a.cpu_memory_usage, ".2f", binary=True)
            yield format_bytes(a.self_cpu_memory_usage, ".2f", binary=True)
        if self.shapes:
            yield str(a.input_shapes)

    def __repr__(self) -> str:
        return self.table()

    __str__ = __repr__


def _alone(e: FunctionEvent) -> FunctionEventAvg:
    one = FunctionEventAvg(e.name, input_shapes=e.input_shapes, stack=e.stack)
    one.add(e)
    return one


def averages(events: Sequence[FunctionEvent], key: Callable[[FunctionEvent], Any], *,
             memory: bool, shapes: bool, stack: bool = False) -> EventList:
    """Events grouped by a key (None: left out); a tuple's first part is the name that is shown."""
    groups: dict[Any, FunctionEventAvg] = {}
    for e in events:
        k = key(e)
        if k is None:
            continue
        name = k[0] if isinstance(k, tuple) else k
        have = groups.get(k)
        if have is None:
            have = groups[k] = FunctionEventAvg(name, input_shapes=e.input_shapes if shapes else [],
                                                stack=e.stack if stack else [])
        have.add(e)
    return EventList(list(groups.values()), memory=memory, shapes=shapes)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else "..." + text[3 - width:]


def _format_time(time_us: float) -> str:
    """Microseconds as tables print them.

    >>> _format_time(1500)
    '1.500ms'
    """
    return _time(time_us)


def _format_memory(nbytes: float) -> str:
    """Bytes as tables print them.

    >>> _format_memory(2048), _format_memory(-5)
    ('2.00 KB', '-5 B')
    """
    for power, unit in ((3, "GB"), (2, "MB"), (1, "KB")):
        if abs(nbytes) >= 1024**power:
            return f"{nbytes / 1024**power:.2f} {unit}"
    return f"{nbytes} B"


def _time(us: float, unit: str | None = None) -> str:
    unit = unit or ("s" if us >= 1e6 else "ms" if us >= 1e3 else "us")
    return f"{us / {'s': 1e6, 'ms': 1e3, 'us': 1.0}[unit]:.3f}{unit}"
