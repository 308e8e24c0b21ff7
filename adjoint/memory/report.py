"""What a run held: the same report for a prediction and for a measurement."""
from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from adjoint.base.errors import ArgumentError
from adjoint.base.provenance import line_of
from adjoint.base.text import format_bytes
from adjoint.memory.devices import device
from adjoint.memory.ledger import FOREVER, ROLES, Entry, Ledger
from adjoint.memory.sizes import parse_bytes


class Row(NamedTuple):
    """A line of a table: what, its bytes, and how many storages."""

    what: str
    bytes: int
    storages: int


class Report:
    """Bytes over the events of a run.

    peak      the most bytes alive at any time, temporaries and kernel workspaces included
    live      bytes alive at the end
    before    bytes that were alive when it began (parameters, inputs, ...); part of all others
    timeline  [(event, bytes alive after it)]
    tops      per event, the most bytes alive while it ran
    roles     role -> bytes at the peak; they add up to `peak`
    saved     the most bytes that residuals held
    exact     False where something had to be assumed; `assumed` says what

    >>> import adjoint as ad
    >>> w = ad.ones(1000, requires_grad=True)
    >>> report = ad.memory.predict(lambda: (w * w).sum().backward())
    >>> report.live - report.before, report.roles["parameter"]
    (4000, 4000)
    """

    def __init__(self, ledger: Ledger, before: int, assumed: dict[str, int], kind: str) -> None:
        self.before, self.kind, self.assumed = before, kind, dict(assumed)
        self.entries = ledger.entries
        marks: list[Any] = list(ledger.marks)
        self.events: list[str] = [m[0] for m in marks]
        self.modules: list[str] = [m[1] for m in marks]
        self.lives: list[int] = [m[2] for m in marks]
        self.tops: list[int] = [m[3] for m in marks]
        self.times: list[float] = [m[4] for m in marks]
        self.peak = max(self.tops, default=before)
        self.live = self.lives[-1] if marks else before

    @property
    def exact(self) -> bool:
        """True if every byte is measured or follows from the code."""
        return not self.assumed

    @property
    def timeline(self) -> list[tuple[str, int]]:
        """[(event, bytes alive after it)]."""
        return list(zip(self.events, self.lives, strict=True))

    @property
    def peak_event(self) -> int:
        """The event during which the peak was reached."""
        return max(range(len(self.tops)), key=self.tops.__getitem__, default=0)

    @property
    def saved(self) -> int:
        """The most bytes that residuals of recorded nodes held at any event."""
        change: dict[int, int] = {}
        for e in self.entries:
            if e.role in ("activation", "temporary", "") and e.saved < FOREVER:
                change[e.saved] = change.get(e.saved, 0) + e.nbytes
                end = min(e.released, e.died)
                change[end] = change.get(end, 0) - e.nbytes
        most = now = 0
        for at in sorted(change):
            now += change[at]
            most = max(most, now)
        return most

    def alive(self, at: int | None = None) -> list[Entry]:
        """Storages that were alive in event `at` (the peak's, unless given)."""
        at = self.peak_event if at is None else at
        return [e for e in self.entries if e.alive(at)]

    @property
    def roles(self) -> dict[str, int]:
        """Role -> bytes at the peak."""
        found = dict.fromkeys(ROLES, 0)
        at = self.peak_event
        for e in self.alive(at):
            found[e.role_at(at)] += e.nbytes
        found["temporary"] += self.peak - sum(found.values())
        return found

    def rows(self, by: str = "role", at: int | None = None) -> list[Row]:
        """Bytes at the peak, or in event `at`, by "role", "op", "module", "line", "holder" or
        "storage"; the largest first. What no storage accounts for is the running op's own:
        results it is making, temporaries, workspace."""
        event = self.peak_event if at is None else at
        keys: dict[str, Callable[[Entry], str]] = {
            "role": lambda e: e.role_at(event), "op": lambda e: e.op or e.role_at(event),
            "module": _module, "line": Entry.where,
            "holder": lambda e: e.holder(event), "storage": lambda e: _storage(e, event)}
        if by not in keys:
            raise ArgumentError(f"rows: by={by!r}; it is one of {', '.join(keys)}")
        if not self.events:
            return []
        total: dict[str, list[int]] = {}
        for e in self.alive(event):
            row = total.setdefault(keys[by](e), [0, 0])
            row[0] += e.nbytes
            row[1] += 1
        rest = self.tops[event] - sum(b for b, _ in total.values())
        if rest > 0:
            name = "temporary" if by == "role" else f"(inside of {self.events[event]})"
            row = total.setdefault(name, [0, 0])
            row[0] += rest
        return sorted((Row(k, b, n) for k, (b, n) in total.items()), key=lambda r: -r.bytes)

    def table(self, by: str = "role", limit: int = 20) -> str:
        """The rows as text, with the peak, where it was, and what was assumed.

        >>> import adjoint as ad
        >>> w = ad.ones(1000, requires_grad=True)
        >>> report = ad.memory.predict(lambda: (w * w).sum().backward())
        >>> print(report.table().splitlines()[0].partition(", ")[2])      # after "peak ... in ..."
        4.0 kB before, 8.0 kB after
        """
        at = self.peak_event
        where = self.events[at] if self.events else "nothing"
        module = f" of {self.modules[at]}" if self.events and self.modules[at] else ""
        peak, before, live = map(format_bytes, (self.peak, self.before, self.live))
        lines = [f"{self.kind} peak {peak} in {where}{module}, {before} before, {live} after"]
        rows = self.rows(by)
        for row in rows[:limit]:
            share = 100 * row.bytes / max(self.peak, 1)
            count = f"{row.storages} storages" if row.storages else ""
            lines.append(f"  {format_bytes(row.bytes):>9}  {share:5.1f}%  {count:<15}  {row.what}")
        if len(rows) > limit:
            rest = sum(r.bytes for r in rows[limit:])
            lines.append(f"  {format_bytes(rest):>9}  in {len(rows) - limit} more rows")
        if self.assumed:
            names = ", ".join(sorted(self.assumed))
            lines.append("  not exact: calls too large to be tried, whose temporaries are read off "
                         "the same call on smaller arrays, or whose bytes hang on values: "
                         f"{names}")
        return "\n".join(lines)

    def fits(self, on: Any) -> bool:
        """True if the peak fits: `on` is a device's name ("H100-80GB", "8xA100") or bytes.

        >>> import adjoint as ad
        >>> ad.memory.predict(lambda: ad.ones(10**6)).fits("H100-80GB")
        True
        """
        return self.peak <= capacity(on)

    def trace(self, path: str | os.PathLike[str]) -> None:
        """Write trace-event JSON that https://ui.perfetto.dev and chrome://tracing open: bytes
        alive as a counter, events as slices, large storages as spans with their lines."""
        start = self.times[0] if self.times else 0.0
        out: list[dict[str, Any]] = [
            {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": f"{self.kind} memory"}}]
        stamps = [1e6 * (t - start) for t in self.times] if self.kind == "measured" else [
            10.0 * i for i in range(len(self.events))]
        for i, name in enumerate(self.events):
            begin = stamps[i - 1] if i else 0.0
            out.append({"ph": "X", "pid": 1, "tid": 1, "ts": begin, "dur": stamps[i] - begin,
                        "name": name, "args": {"module": self.modules[i]}})
            out.append({"ph": "C", "pid": 1, "ts": begin, "name": "bytes",
                        "args": {"bytes": self.tops[i]}})
            out.append({"ph": "C", "pid": 1, "ts": stamps[i], "name": "bytes",
                        "args": {"bytes": self.lives[i]}})
        out += self._spans(stamps)
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"traceEvents": out, "displayTimeUnit": "ms"}, file)

    def _spans(self, stamps: list[float]) -> list[dict[str, Any]]:
        out: list[dict[str, Any]] = []
        last = len(stamps) - 1
        for number, e in enumerate(sorted(self.entries, key=lambda e: -e.nbytes)[:500]):
            begin, end = min(e.born, last), min(e.died, last)
            common = {"pid": 1, "cat": e.role_at(begin), "id": number, "name": e.op or e.name
                      or e.role, "args": {"bytes": e.nbytes, "shape": list(e.shape),
                                          "dtype": str(e.dtype), "line": e.where(),
                                          "module": e.module}}
            out.append({"ph": "b", "ts": stamps[begin], **common})
            out.append({"ph": "e", "ts": stamps[end], **common})
        return out

    def __repr__(self) -> str:
        peak, live = format_bytes(self.peak), format_bytes(self.live)
        return f"<{self.kind} memory: peak {peak}, live {live}>"


def _module(e: Entry) -> str:
    """The module that made it; of a parameter or its gradient the one that it belongs to."""
    path, _, last = e.name.removeprefix(".grad of ").rpartition(".")
    if e.role in ("parameter", "gradient") and last.isidentifier():
        return path or "(the outermost module)"
    return e.module or "(no module)"


def _storage(e: Entry, at: int) -> str:
    what = e.op or e.name or e.role
    line = f"{e.code.co_filename}:{line_of(e.code, e.lasti)}" if e.code else "before the run"
    return f"{e.role_at(at)}: {what} {e.dtype}{list(e.shape)} at {line}"


def capacity(on: Any) -> int:
    """Bytes that `on` (a device's name, a Device, "16GB" or a number) has."""
    if isinstance(on, str):
        try:
            return parse_bytes(on)
        except ArgumentError:
            return device(on).total_memory
    total = getattr(on, "total_memory", on)
    if isinstance(total, bool) or not isinstance(total, (int, float)) or total < 0:
        raise ArgumentError(f"expected a device's name or a number of bytes, got {on!r}")
    return int(total)
