"""Traces of a training step and their replay: what the planners and the baselines work on.

A trace is the list of operations of one step in execution order, forward and backward, each with
the tensors it reads and makes, the bytes of those tensors and the time it takes. A schedule is a
list of steps (`run`, `drop`, `spill`, `load`) that executes a trace, possibly running operations
again; `replay` checks it and gives its true peak and time.

The text format is that of the simulator of Dynamic Tensor Rematerialization (Kirisame et al.,
arXiv 2006.09616): one JSON object per line, so published logs can be read and ours exchanged.
"""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adjoint.base.errors import ArgumentError

Step = tuple[str, int]


@dataclass(frozen=True, slots=True)
class TraceOp:
    """One operation: tensor numbers read and made, seconds, scratch bytes while it runs.

    `recomputable=False` marks what must run once (optimizer steps, in-place accumulation).
    """

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    seconds: float
    workspace: int = 0
    recomputable: bool = True


@dataclass(frozen=True)
class Trace:
    """A recorded step.

    `nbytes[k]` is the size of tensor `k`. Tensors that no operation makes (parameters, data) are
    resident throughout; tensors in `keep` (gradients, the loss) have to be live at the end.

    >>> t = Trace((TraceOp("a", (0,), (1,), 1.0), TraceOp("b", (1,), (2,), 1.0)), (8, 4, 4), {2})
    >>> t.peak(), t.seconds
    (16, 2.0)
    """

    ops: tuple[TraceOp, ...]
    nbytes: tuple[int, ...]
    keep: frozenset[int] | set[int] = frozenset()
    name: str = ""
    producer: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "keep", frozenset(self.keep))
        producer = [-1] * len(self.nbytes)
        seen: set[int] = set()
        for i, op in enumerate(self.ops):
            for t in (*op.inputs, *op.outputs):
                if not 0 <= t < len(self.nbytes):
                    raise ArgumentError(
                        f"Trace: op {i} ({op.name}) names tensor {t}; nbytes lists "
                        f"{len(self.nbytes)} tensors (0 to {len(self.nbytes) - 1})"
                    )
            seen.update(op.inputs)
            for t in op.outputs:
                if producer[t] >= 0 or t in seen:
                    raise ArgumentError(
                        f"Trace: op {i} ({op.name}) makes tensor {t}, which was already "
                        "made or read before; give each value its own number"
                    )
                producer[t] = i
        object.__setattr__(self, "producer", tuple(producer))

    @property
    def seconds(self) -> float:
        """Time of the step when nothing is recomputed."""
        # one after the other, as a replay adds them: `sum` rounds differently from Python 3.12 on
        return functools.reduce(operator.add, [op.seconds for op in self.ops], 0.0)

    @property
    def resident(self) -> int:
        """Bytes of the tensors that no operation makes: they are live throughout."""
        return sum(b for b, p in zip(self.nbytes, self.producer, strict=True) if p < 0)

    def last_use(self) -> list[int]:
        """For each tensor the index of the last operation that touches it (`len(ops)`: kept)."""
        last = list(self.producer)
        for i, op in enumerate(self.ops):
            for t in op.inputs:
                last[t] = i
        for t in self.keep:
            last[t] = len(self.ops)
        return last

    def base_schedule(self) -> list[Step]:
        """Run every operation once and drop each tensor after its last use."""
        last = self.last_use()
        steps: list[Step] = []
        for i, op in enumerate(self.ops):
            steps.append(("run", i))
            for t in dict.fromkeys((*op.inputs, *op.outputs)):
                if last[t] == i and self.producer[t] >= 0:
                    steps.append(("drop", t))
        return steps

    def peak(self) -> int:
        """Live peak in bytes when nothing is recomputed."""
        return replay(self, self.base_schedule()).peak

    def floor(self) -> int:
        """Bytes that no schedule can go below: the largest single operation's working set.

        What is resident and what has to be live at the end is counted with the last operation.
        """
        need = [
            op.workspace
            + sum(self.nbytes[t] for t in {*op.inputs, *op.outputs} if self.producer[t] >= 0)
            for op in self.ops
        ]
        need.append(sum(self.nbytes[t] for t in self.keep if self.producer[t] >= 0))
        return self.resident + max(need)


@dataclass(frozen=True)
class Replayed:
    """What a schedule did: peak bytes, seconds, operations run again, and the live curve."""

    peak: int
    seconds: float
    recomputed: int
    curve: tuple[int, ...] = field(repr=False)
    moved: int = 0


def replay(trace: Trace, steps: Iterable[Step], bandwidth: float = float("inf")) -> Replayed:
    """Execute `steps` against `trace`, checking every rule, and measure peak and time.

    While an operation runs, its inputs, its outputs (freshly allocated) and its scratch are live
    together with all else that was not dropped. `spill` copies a tensor out and frees it,
    `load` brings it back; both take `nbytes / bandwidth` seconds.

    Raises `ArgumentError` when a step uses a tensor that is not live, an operation runs before
    its turn or never, or a tensor of `keep` is missing at the end.

    >>> t = Trace((TraceOp("a", (0,), (1,), 1.0), TraceOp("b", (1,), (2,), 1.0)), (8, 4, 4), {2})
    >>> replay(t, [("run", 0), ("drop", 1), ("run", 0), ("run", 1)]).seconds
    3.0
    """
    state = _Machine(trace, bandwidth)
    for kind, k in steps:
        state.step(kind, k)
    return state.finish()


class _Machine:
    """The memory of a replay: which tensors are live, spilled, how much time has passed."""

    def __init__(self, trace: Trace, bandwidth: float) -> None:
        self.trace, self.bandwidth = trace, bandwidth
        self.live = {t for t, p in enumerate(trace.producer) if p < 0}
        self.spilled: set[int] = set()
        self.bytes = self.peak = trace.resident
        self.seconds, self.moved, self.next, self.again = 0.0, 0, 0, 0
        self.curve: list[int] = []

    def step(self, kind: str, k: int) -> None:
        if kind == "run":
            self.run(k)
        elif kind == "drop" and k in self.live:
            self.live.discard(k)
            self.bytes -= self.trace.nbytes[k]
        elif kind == "spill" and k in self.live:
            self.live.discard(k)
            self.spilled.add(k)
            self.bytes -= self.trace.nbytes[k]
            self.move(k)
        elif kind == "load" and k in self.spilled and k not in self.live:
            self.live.add(k)
            self.bytes += self.trace.nbytes[k]
            self.move(k)
            self.note(self.bytes)
        else:
            raise ArgumentError(
                f"replay: step ({kind!r}, {k}) is not possible here: tensor {k} is "
                f"{'live' if k in self.live else 'not live'}; steps are run, drop, spill, load"
            )

    def move(self, t: int) -> None:
        self.moved += self.trace.nbytes[t]
        self.seconds += self.trace.nbytes[t] / self.bandwidth

    def run(self, i: int) -> None:
        op = self.trace.ops[i]
        missing = [t for t in op.inputs if t not in self.live]
        if missing:
            raise ArgumentError(
                f"replay: op {i} ({op.name}) reads tensor {missing[0]}, which is not live; run "
                f"op {self.trace.producer[missing[0]]} again before it or do not drop it"
            )
        if i > self.next or (i < self.next and not op.recomputable):
            raise ArgumentError(
                f"replay: op {i} ({op.name}) runs out of turn; the next new op is {self.next}"
            )
        self.again += i < self.next
        self.next = max(self.next, i + 1)
        fresh = [t for t in op.outputs if t not in self.live]
        again = sum(self.trace.nbytes[t] for t in op.outputs if t in self.live)
        self.live.update(fresh)
        self.bytes += sum(self.trace.nbytes[t] for t in fresh)
        self.seconds += op.seconds
        self.note(self.bytes + op.workspace + again)

    def note(self, level: int) -> None:
        self.curve.append(level)
        self.peak = max(self.peak, level)

    def finish(self) -> Replayed:
        missing = [t for t in self.trace.keep if t not in self.live]
        if self.next < len(self.trace.ops) or missing:
            raise ArgumentError(
                f"replay: the schedule ends after op {self.next - 1} of "
                f"{len(self.trace.ops) - 1} with tensors {missing} of `keep` not live"
            )
        return Replayed(self.peak, self.seconds, self.again, tuple(self.curve), self.moved)


# ---------------------------------------------------------------------------------------------
# The log format of the DTR simulator


def write_log(trace: Trace, path: str | Path) -> None:
    """Write `trace` as a log of the DTR simulator: JSON lines, nanoseconds, bytes.

    >>> import tempfile, os
    >>> t = Trace((TraceOp("a", (0,), (1,), 1.0), TraceOp("b", (1,), (2,), 1.0)), (8, 4, 4), {2})
    >>> with tempfile.TemporaryDirectory() as d:
    ...     write_log(t, os.path.join(d, "x.log"))
    ...     read_log(os.path.join(d, "x.log")).peak()
    16
    """
    with open(path, "w", encoding="utf-8") as out:
        for record in _records(trace):
            out.write(json.dumps(record) + "\n")


def _records(trace: Trace) -> Iterator[dict[str, Any]]:
    yield {"INSTRUCTION": "ANNOTATE", "ANNOTATION": "START"}
    for t, p in enumerate(trace.producer):
        if p < 0:
            yield {"INSTRUCTION": "CONSTANT", "NAME": f"x{t}"}
            yield {"INSTRUCTION": "MEMORY", "NAME": f"x{t}", "MEMORY": str(trace.nbytes[t])}
    for kind, k in trace.base_schedule():
        if kind == "drop":
            yield {"INSTRUCTION": "RELEASE", "NAME": f"x{k}"}
            continue
        op = trace.ops[k]
        yield {
            "INSTRUCTION": "CALL",
            "NAME": op.name,
            "ARGS": [f"x{t}" for t in op.inputs],
            "RESULT": [f"x{t}" for t in op.outputs],
            "TIME": str(round(op.seconds * 1e9)),
        }
        for t in op.outputs:
            yield {"INSTRUCTION": "MEMORY", "NAME": f"x{t}", "MEMORY": str(trace.nbytes[t])}
            yield {"INSTRUCTION": "ALIAS", "NAME": f"x{t}", "ALIAS": "-1"}


def read_log(path: str | Path, name: str = "") -> Trace:
    """Read a log of the DTR simulator.

    Aliases are folded into the storage they view, `MUTATE` becomes an operation that makes a new
    value, and what was not released is kept at the end. Raises `ArgumentError` with the line
    number on a record that is not understood.
    """
    reader = _LogReader()
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                reader.record(json.loads(line))
            except (KeyError, ValueError, IndexError) as error:
                raise ArgumentError(
                    f"read_log: {path}, line {number}: {line.strip()[:120]!r} is not a record of "
                    f"the DTR simulator ({error!r})"
                ) from error
    return reader.trace(name or Path(path).stem)


class _LogReader:
    """Folds log records into operations over storages; `storage` maps names to tensor numbers."""

    def __init__(self) -> None:
        self.storage: dict[str, int] = {}
        self.references: list[int] = []
        self.nbytes: list[int] = []
        self.calls: list[tuple[str, list[int], list[str], float]] = []
        self.made: dict[int, int] = {}

    def new(self, name: str, nbytes: int) -> int:
        self.nbytes.append(nbytes)
        self.references.append(1)
        self.storage[name] = len(self.nbytes) - 1
        return len(self.nbytes) - 1

    def record(self, r: dict[str, Any]) -> None:
        kind = r["INSTRUCTION"]
        if kind == "CONSTANT":
            self.new(r["NAME"], 0)
        elif kind == "MEMORY":
            if r["NAME"] not in self.storage:
                self.made[self.new(r["NAME"], 0)] = len(self.calls) - 1
            self.nbytes[self.storage[r["NAME"]]] = int(r["MEMORY"])
        elif kind == "ALIAS":
            if int(r["ALIAS"]) >= 0:
                self.alias(r["NAME"], self.calls[-1][1][int(r["ALIAS"])])
        elif kind == "CALL":
            args = [self.storage[a] for a in r["ARGS"]]
            self.calls.append((r["NAME"], args, list(r["RESULT"]), int(r["TIME"]) / 1e9))
        elif kind == "MUTATE":
            self.mutate(r)
        elif kind in ("COPY", "COPY_FROM"):
            if kind == "COPY_FROM":
                self.references[self.storage[r["DST"]]] -= 1
            self.storage[r["DST"]] = self.storage[r["SRC"]]
            self.references[self.storage[r["SRC"]]] += 1
        elif kind == "RELEASE":
            if r["NAME"] in self.storage:
                self.references[self.storage[r["NAME"]]] -= 1
        elif kind != "ANNOTATE":
            raise ValueError(f"unknown instruction {kind}")

    def alias(self, name: str, target: int) -> None:
        placeholder = self.storage[name]
        self.nbytes[placeholder] = 0
        self.references[placeholder] = 0
        self.storage[name] = target
        self.references[target] += 1

    def mutate(self, r: dict[str, Any]) -> None:
        args = [self.storage[a] for a in r["ARGS"]]
        self.calls.append((r["NAME"], args, [], int(r["TIME"]) / 1e9))
        for m in r["MUTATE"]:
            old = self.storage[r["ARGS"][m]]
            self.references[old] -= 1
            self.made[self.new(r["ARGS"][m], self.nbytes[old])] = len(self.calls) - 1

    def trace(self, name: str) -> Trace:
        outputs: list[list[int]] = [[] for _ in self.calls]
        for tensor, call in self.made.items():
            outputs[call].append(tensor)
        ops = tuple(
            TraceOp(call, tuple(dict.fromkeys(args)), tuple(made), seconds)
            for (call, args, _, seconds), made in zip(self.calls, outputs, strict=True)
        )
        keep = {t for t, n in enumerate(self.references) if n > 0 and t in self.made}
        return Trace(ops, tuple(self.nbytes), keep, name)
