"""`torch.utils.benchmark`: how long a statement takes, and tables of measurements.

    >>> t = Timer("x + 1", setup="import adjoint as ad; x = ad.ones(64)", label="add")
    >>> m = t.blocked_autorange(min_run_time=0.01)
    >>> m.median > 0 and m.number_per_run >= 1
    True

Times are wall clock, in seconds per run of the statement. There is no Callgrind and no C++ here.
"""
from __future__ import annotations

import dataclasses
import enum
import math
import sys
import textwrap
import timeit
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter as timer
from typing import Any

import numpy as np

from adjoint.base.errors import ArgumentError, NotSupported
from adjoint.base.errors import missing as _missing
from adjoint.ops.threads import get_num_threads, set_num_threads

_UNITS = (("s", "seconds", 1.0), ("ms", "milliseconds", 1e-3), ("us", "microseconds", 1e-6),
          ("ns", "nanoseconds", 1e-9))
_IQR_WARNS = (0.10, 0.25)


class Language(enum.Enum):
    """Of the statement: Python is the one that is here."""

    PYTHON = 0
    CPP = 1


def select_unit(t: float) -> tuple[str, float]:
    """The unit in which `t` seconds are read best, and its length in seconds.

    >>> select_unit(3e-5)
    ('us', 1e-06)
    """
    short, _, unit = next((u for u in _UNITS if t >= u[2]), _UNITS[-1])
    return short, unit


def unit_to_english(u: str) -> str:
    """The name of a unit: "us" is "microsecond"."""
    return {short: long.rstrip("s") for short, long, _ in _UNITS}[u]


def trim_sigfig(x: float, n: int) -> float:
    """`x` rounded to n significant figures.

    >>> trim_sigfig(3.14159, 3)
    3.14
    """
    if x == 0 or not math.isfinite(x):
        return x
    scale = 10.0 ** (math.floor(math.log10(abs(x))) + 1 - n)
    return float(f"{round(x / scale) * scale:.12g}")


@dataclasses.dataclass(init=True, repr=False, eq=True, frozen=True)
class TaskSpec:
    """What was measured."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The label and the sub-label, or the statement."""
        if self.label is not None:
            return self.label + (f": {self.sub_label}" if self.sub_label else "")
        if "\n" not in self.stmt:
            return self.stmt + (f": {self.sub_label}" if self.sub_label else "")
        return (f"stmt:{f' ({self.sub_label})' if self.sub_label else ''}\n"
                f"{textwrap.indent(self.stmt, '  ')}")

    def setup_str(self) -> str:
        """The setup as it is printed."""
        if not self.setup or self.setup == "pass":
            return ""
        if "\n" in self.setup:
            return f"setup:\n{textwrap.indent(self.setup, '  ')}"
        return f"setup: {self.setup}"

    def summarize(self) -> str:
        """Title, description, environment and setup, a line each."""
        parts = [self.title, self.description or "", f"Env: {self.env}" if self.env else "",
                 self.setup_str()]
        return "\n".join(p for p in parts if p)


@dataclasses.dataclass(init=True, repr=False)
class Measurement:
    """Times of one task: `raw_times` are seconds of `number_per_run` runs each."""

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = None

    def __getattr__(self, name: str) -> Any:
        if name != "task_spec" and hasattr(TaskSpec, "__dataclass_fields__") and (
                name in TaskSpec.__dataclass_fields__):
            return getattr(self.task_spec, name)
        raise AttributeError(f"Measurement has no attribute {name!r}")

    @property
    def times(self) -> list[float]:
        """Seconds per run, one entry per measurement."""
        return [t / self.number_per_run for t in self.raw_times]

    def _quantile(self, q: float) -> float:
        if not self.raw_times:
            raise ArgumentError("Measurement: there are no times")
        return float(np.quantile(self.times, q))

    @property
    def median(self) -> float:
        """Median seconds per run."""
        return self._quantile(0.5)

    @property
    def mean(self) -> float:
        """Mean seconds per run."""
        return float(np.mean(self.times))

    @property
    def iqr(self) -> float:
        """Distance of the quartiles, in seconds per run."""
        return self._quantile(0.75) - self._quantile(0.25)

    @property
    def significant_figures(self) -> int:
        """How many figures of the median are worth showing, from the spread of the quartiles
        divided by 1.35 (their distance in a normal distribution is 1.35 standard deviations)."""
        n = len(self.raw_times)
        if n < 2:
            return 3
        lower, upper = (self.median + s * max(self.iqr / 1.35 / math.sqrt(n), 1e-15)
                        for s in (-1, 1))
        relative = max((upper - lower) / self.median, 1e-9)
        return max(1, min(5, -math.floor(math.log10(relative))))

    @property
    def has_warnings(self) -> bool:
        """True if the quartiles are more than a tenth of the median apart."""
        return bool(self.raw_times) and self.iqr / self.median > _IQR_WARNS[0]

    def meets_confidence(self, threshold: float = _IQR_WARNS[0]) -> bool:
        """True if the quartiles are at most `threshold` of the median apart."""
        return self.iqr / self.median < threshold

    @property
    def title(self) -> str:
        """What was measured, in words."""
        return self.task_spec.title

    @property
    def env(self) -> str:
        """The environment's name, if one was given."""
        return self.task_spec.env or "Unspecified env"

    @property
    def as_row_name(self) -> str:
        """How `Compare` names the row."""
        return self.task_spec.sub_label or self.task_spec.stmt or "[Unknown]"

    def __repr__(self) -> str:
        lines = [object.__repr__(self), self.task_spec.summarize()]
        if not self.raw_times:
            return "\n".join([*lines, "  no times"])
        unit, scale = select_unit(self.median)
        n, runs, threads = len(self.raw_times), self.number_per_run, self.task_spec.num_threads
        if n == 1:
            lines.append(f"  {self.median / scale:.2f} {unit}")
        else:
            low, high = self._quantile(0.25) / scale, self._quantile(0.75) / scale
            lines += [f"  Median: {self.median / scale:.2f} {unit}",
                      f"  IQR:    {self.iqr / scale:.2f} {unit} ({low:.2f} to {high:.2f})"]
        lines.append(f"  {n} measurement{'s' if n > 1 else ''}, {runs} runs "
                     f"{'per measurement' if n > 1 else ''}, {threads} "
                     f"thread{'s' if threads > 1 else ''}")
        spread = self.iqr / self.median
        if spread > _IQR_WARNS[0]:
            extra = "might be" if spread < _IQR_WARNS[1] else "is probably"
            lines.append(f"  WARNING: Interquartile range is {spread * 100:.1f}% of the median "
                         f"measurement.\n           This {extra} disturbed by other work.")
        return "\n".join(lines)

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """The measurements of one task as one, with the times of all."""
        groups: dict[TaskSpec, list[Measurement]] = {}
        for m in measurements:
            groups.setdefault(m.task_spec, []).append(m)
        return [Measurement(1, [t for m in ms for t in m.times], spec)
                for spec, ms in groups.items()]


class Timer:
    """Measures a Python statement.

    stmt         the statement, text; `torch` is this package there unless `globals` has the name
    setup        run before each measurement, not timed
    timer        the clock, seconds
    globals      names that the statement sees
    label, sub_label, description, env    how results are printed and put in tables
    num_threads  for operations while the statement runs; set back afterwards

    >>> Timer("sum(v)", globals={"v": [1, 2]}).timeit(100).number_per_run
    100
    """

    def __init__(self, stmt: str = "pass", setup: str = "pass", global_setup: str = "",
                 timer: Callable[[], float] = timer, globals: dict[str, Any] | None = None,
                 label: str | None = None, sub_label: str | None = None,
                 description: str | None = None, env: str | None = None, num_threads: int = 1,
                 language: Language | str = Language.PYTHON) -> None:
        if not isinstance(stmt, str):
            raise ArgumentError("Timer: currently only a `str` stmt is supported, got "
                                f"{type(stmt).__name__}; pass the object in globals=")
        if language not in (Language.PYTHON, "py", "python"):
            raise NotSupported("Timer: only statements in Python are measured here")
        if global_setup:
            raise ArgumentError("Timer: global_setup is C++ only, most likely you wanted setup")
        if num_threads < 1:
            raise ArgumentError(f"Timer: num_threads must be positive, got {num_threads}")
        stmt, setup = textwrap.dedent(stmt).strip("\n"), textwrap.dedent(setup).strip("\n")
        self._globals = {"torch": sys.modules["adjoint"], **(globals or {})}
        self._task_spec = TaskSpec(stmt, setup, global_setup, label, sub_label, description, env,
                                   num_threads)
        self._timer = timeit.Timer(stmt or "pass", setup or "pass", timer, self._globals)

    def _timeit(self, number: int) -> float:
        before = get_num_threads()
        set_num_threads(self._task_spec.num_threads)
        try:
            return max(self._timer.timeit(number), 1e-9)
        finally:
            set_num_threads(before)

    def timeit(self, number: int = 1000000) -> Measurement:
        """One measurement of `number` runs, after a few runs that are not counted."""
        self._timeit(max(number // 100, 2))
        return Measurement(number, [self._timeit(number)], self._task_spec)

    def repeat(self, repeat: int = -1, number: int = -1) -> None:
        """Raises: `blocked_autorange` repeats."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def autorange(self, callback: Any = None) -> None:
        """Raises: `blocked_autorange` finds the number of runs."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def _block_size(self, min_run_time: float) -> int:
        """Runs per measurement: a thousandth of the time, or as long as the clock's own cost is
        below a thousandth."""
        clock = float(np.median([self._timeit(0) for _ in range(5)]))
        number = 1
        while True:
            taken = self._timeit(number)
            if (taken >= min_run_time / 1000 and clock / taken <= 1e-3) or taken >= min_run_time:
                return number
            number *= 10

    def blocked_autorange(self, callback: Callable[[int, float], Any] | None = None,
                          min_run_time: float = 0.2) -> Measurement:
        """Measurements of as many runs each as make the clock's cost negligible, until their times
        add up to `min_run_time` seconds; `callback(number, seconds)` after each."""
        return self._until(lambda m: sum(m.raw_times) >= min_run_time, min_run_time, callback)

    def adaptive_autorange(self, threshold: float = 0.1, *, min_run_time: float = 0.01,
                           max_run_time: float = 10.0,
                           callback: Callable[[int, float], Any] | None = None) -> Measurement:
        """Like `blocked_autorange`, until the quartiles are at most `threshold` of the median apart
        (with more than three measurements), or `max_run_time` is over."""
        def enough(m: Measurement) -> bool:
            taken, steady = sum(m.raw_times), len(m.raw_times) > 3
            return taken >= max_run_time or (
                taken >= min_run_time and steady and m.meets_confidence(threshold))
        return self._until(enough, min_run_time, callback)

    def _until(self, enough: Callable[[Measurement], bool], min_run_time: float,
               callback: Callable[[int, float], Any] | None) -> Measurement:
        number = self._block_size(min_run_time)
        made = Measurement(number, [], self._task_spec)
        while not enough(made):
            made = Measurement(number, [*made.raw_times, self._timeit(number)], self._task_spec)
            if callback is not None:
                callback(number, made.raw_times[-1])
        return made

    def collect_callgrind(self, number: int = 100, **kwargs: Any) -> None:
        """Raises: instructions are not counted here."""
        raise NotSupported("Timer.collect_callgrind: Callgrind is not driven from here; use "
                           "blocked_autorange for times")


class Colorize(enum.Enum):
    """Kept for PyTorch's signature of `Compare.colorize`."""

    NONE = "none"
    COLUMNWISE = "columnwise"
    ROWWISE = "rowwise"


class Compare:
    """A table of measurements: a block per label, a row per sub-label and number of threads, a
    column per description.

    >>> m = [Timer("pass", label="nothing", sub_label=s, description="here").timeit(10)
    ...      for s in ("a", "b")]
    >>> str(Compare(m)).splitlines()[0].strip("[- ]")
    'nothing'
    """

    def __init__(self, results: Sequence[Measurement]) -> None:
        self._results = list(results)
        self._trim = self._warn = False

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """Add measurements."""
        self._results += results

    def trim_significant_figures(self) -> None:
        """Show only the figures that the spread of the times supports."""
        self._trim = True

    def colorize(self, rowwise: bool = False) -> None:
        """Does nothing: tables are plain text."""

    def highlight_warnings(self) -> None:
        """Mark measurements that were disturbed with (!)."""
        self._warn = True

    def print(self) -> None:
        """Print the tables."""
        print(str(self))

    def __str__(self) -> str:
        merged = Measurement.merge(self._results)
        labels = dict.fromkeys(m.task_spec.label or m.task_spec.title for m in merged)
        return "\n".join(self._table(label, [
            m for m in merged if (m.task_spec.label or m.task_spec.title) == label])
            for label in labels)

    def _cell(self, m: Measurement | None, scale: float) -> str:
        if m is None:
            return ""
        value = m.median / scale
        if self._trim:
            value = trim_sigfig(value, m.significant_figures)
        mark = " (!)" if self._warn and m.has_warnings else ""
        return f"{value:.{max(0, 3 - len(str(int(value))))}f}{mark}"

    def _table(self, label: str, ms: list[Measurement]) -> str:
        unit, scale = select_unit(min(m.median for m in ms))
        columns = list(dict.fromkeys(m.task_spec.description or "" for m in ms))
        lines: list[list[str]] = []
        heads: dict[int, str] = {}
        for threads in sorted({m.task_spec.num_threads for m in ms}):
            heads[len(lines)] = f"{threads} threads: "
            inside = [m for m in ms if m.task_spec.num_threads == threads]
            for row in dict.fromkeys((m.task_spec.env or "", m.as_row_name) for m in inside):
                found = {m.task_spec.description or "": m for m in inside
                         if (m.task_spec.env or "", m.as_row_name) == row}
                name = f"({row[0]}) {row[1]}" if row[0] else row[1]
                lines.append([f"      {name}", *(self._cell(found.get(c), scale)
                                                 for c in columns)])
        widths = [max(len(str(r[i])) for r in [["", *columns], *lines])
                  for i in range(len(columns) + 1)]
        def joined(cells: Sequence[str]) -> str:
            first = cells[0].ljust(widths[0])
            return "  |  ".join([first, *(c.rjust(w) for c, w in zip(
                cells[1:], widths[1:], strict=True))])
        width = len(joined(["", *columns]))
        text = [f"[{f' {label} '.center(width - 2, '-')}]", joined(["", *columns])]
        for i, cells in enumerate(lines):
            if i in heads:
                text.append(heads[i].ljust(width, "-"))
            text.append(joined(cells))
        names = {short: long for short, long, _ in _UNITS}
        return "\n".join([*text, "", f"Times are in {names[unit]} ({unit}).", ""])


__all__ = ["Colorize", "Compare", "Language", "Measurement", "TaskSpec", "Timer", "select_unit",
           "timer", "trim_sigfig", "unit_to_english"]
__getattr__ = _missing("adjoint.utils.benchmark")
