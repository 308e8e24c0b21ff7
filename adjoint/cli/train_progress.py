"""What `adjoint train` shows: a live bar on a terminal, plain lines in a log."""
from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple

from adjoint.base.text import format_bytes


class Report(NamedTuple):
    """The figures of one step."""

    step: int
    loss: float
    grad_norm: float
    tokens_per_second: float
    seconds_left: float


def peak_bytes() -> int:
    """The most memory this process has held so far.

    >>> peak_bytes() > 10**6
    True
    """
    try:
        with open("/proc/self/status") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    import resource  # not on every system; where /proc is, it is not needed
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def format_time(seconds: float) -> str:
    """Minutes and seconds, with hours from one hour on.

    >>> format_time(65), format_time(3700)
    ('1:05', '1:01:40')
    """
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class PlainProgress:
    """One line every `every` steps."""

    def __init__(self, first: int, total: int, every: int) -> None:
        self._first, self._total, self._every = first, total, every
        self._width = len(str(total))

    def step(self, report: Report) -> None:
        """Tell about a finished step, if its turn has come."""
        n = report.step
        if n % self._every and n not in (self._first + 1, self._total):
            return
        self.note(f"Step {n:{self._width}d}/{self._total}: loss={report.loss:.4f}, "
                  f"grad_norm={report.grad_norm:.4f}, "
                  f"{report.tokens_per_second:,.0f} tokens/s, "
                  f"peak {format_bytes(peak_bytes())}, "
                  f"{format_time(report.seconds_left)} left")

    def note(self, text: str) -> None:
        """Print a line."""
        print(text, flush=True)

    def close(self) -> None:
        """Nothing is on the screen that must go."""


class RichProgress:
    """A bar with the latest figures; notes scroll above it."""

    def __init__(self, first: int, total: int) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.table import Column
        count = 2 * len(str(total)) + 1
        self._taken = count + len("  00:00 ")      # of a line, by the count and the time left
        self._bar: Any = Progress(
            TextColumn("[bold]{task.completed}/{task.total}", table_column=Column(min_width=count)),
            BarColumn(None), TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(compact=True), refresh_per_second=8)
        self._task = self._bar.add_task("train", total=total, completed=first, figures="")
        self._bar.start()

    def step(self, report: Report) -> None:
        """Move the bar."""
        figures = fitting([f"loss {report.loss:.4f}", f"norm {report.grad_norm:.3f}",
                           f"{report.tokens_per_second:,.0f} tok/s",
                           f"peak {format_bytes(peak_bytes())}"],
                          self._bar.console.width - self._taken)
        self._bar.update(self._task, completed=report.step, figures=figures)

    def note(self, text: str) -> None:
        """Print a line above the bar."""
        self._bar.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        """Leave the bar as it stands and give the terminal back."""
        self._bar.stop()


def fitting(figures: list[str], room: int) -> str:
    """As many of the figures, the first ones, as a line of `room` columns has place for.

    >>> fitting(["loss 1.5", "norm 0.3", "9 tok/s"], 20)
    'loss 1.5  norm 0.3'
    """
    line = figures[0]
    for one in figures[1:]:
        if len(line) + 2 + len(one) > room:
            break
        line += "  " + one
    return line


Progress = PlainProgress | RichProgress


def make_progress(first: int, total: int, every: int, plain: bool) -> Progress:
    """The bar where the output is a terminal and rich is installed, else plain lines."""
    live = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb" and not plain
    if live:
        try:
            return RichProgress(first, total)
        except ImportError:
            pass
    return PlainProgress(first, total, every)


