"""The trace file: events as JSON that Perfetto, chrome://tracing and TensorBoard read."""
from __future__ import annotations

import gzip
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from adjoint.io.atomic import write_bytes


def write_trace(path: str, events: Sequence[Any], timeline: Sequence[tuple[float, int]],
                metadata: Mapping[str, Any]) -> None:
    """Write events, live bytes as (microseconds, bytes) and what the program adds to them; gzip
    for a name in .gz."""
    text = json.dumps({"traceEvents": _entries(events, timeline), "displayTimeUnit": "ms",
                       **metadata}).encode()
    write_bytes(path, gzip.compress(text, 5) if str(path).endswith(".gz") else text)


def _entries(events: Sequence[Any], timeline: Sequence[tuple[float, int]]) -> list[dict[str, Any]]:
    pid = os.getpid()
    out: list[dict[str, Any]] = []
    forward = {e.sequence_nr for e in events if e.kind == "op" and e.sequence_nr >= 0}
    backward = {e.sequence_nr for e in events if e.kind == "backward"}
    out.append({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": "adjoint"}})
    for e in events:
        args: dict[str, Any] = {}
        for name, value in (("line", e.line), ("module", e.module), ("FLOPs", e.flops),
                            ("bytes", e.nbytes)):
            if value:
                args[name] = value
        if e.shapes:
            args["Input Dims"] = [list(s) for s in e.shapes]
        if e.flops and e.duration:
            args["GFLOP/s"] = round(e.flops / e.duration * 1e-3, 3)
        out.append({"ph": "X", "cat": _CATEGORY[e.kind], "name": e.trace_name or e.name,
                    "pid": pid, "tid": 1, "ts": e.start, "dur": e.duration, "args": args})
        if e.sequence_nr >= 0 and e.sequence_nr in forward and e.sequence_nr in backward:
            first = e.kind == "op"
            arrow = {"ph": "s" if first else "f", "id": e.sequence_nr, "pid": pid, "tid": 1,
                     "ts": e.start, "cat": "fwdbwd", "name": "fwdbwd"}
            out.append(arrow if first else {**arrow, "bp": "e"})
    out += [{"ph": "C", "name": "live bytes", "pid": pid, "ts": at, "args": {"bytes": live}}
            for at, live in timeline]
    return out


_CATEGORY = {"op": "cpu_op", "backward": "cpu_op", "module": "python_function",
             "optimizer": "user_annotation", "span": "user_annotation"}
