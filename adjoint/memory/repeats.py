"""A step under a budget, written down while it runs, and the plan for its next run.

Events are ops that ran and nodes that backward visited. Each has the storages it read and made,
its seconds, and the bytes that were live beside the storages known here: cotangents, gradients,
temporaries, what the program holds. That is a trace (`memory.traces`); the planner says in which
event each storage is given up, whether it is written out then, and in which event it is made again.
A step is recognised by its events,
one by one; the first that differs ends the plan, and choosing as memory gets short takes over.
"""
from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from statistics import median
from typing import Any

from adjoint.base.errors import ArgumentError
from adjoint.memory.lineage import Record, Storage
from adjoint.memory.needs import Kind
from adjoint.memory.planner import BudgetError, Plan, Planner
from adjoint.memory.spill import SpillFile
from adjoint.memory.traces import Trace, TraceOp

LONGEST = 4000        # events of a step that is planned
LOOSE = 100_000       # events after which a step without a backward is not written down any more
KNOWN = 4             # steps that are remembered

_turns = count()

Going = tuple[Storage, str]    # what is to be given up, and how: "drop" or "spill"


@dataclass
class Event:
    """One op or node: numbers of storages, seconds, bytes asked for, other bytes live before."""

    kind: Kind
    reads: tuple[int, ...]
    makes: tuple[int, ...]
    seconds: float
    work: int
    other: int


@dataclass
class Step:
    """A recorded step, and its plan once there is one."""

    events: list[Event]
    sizes: list[int]
    seen: int = 1
    uses: dict[int, list[int]] = field(default_factory=dict)
    drops: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    lives: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    written: set[tuple[int, int]] = field(default_factory=set)
    plan: Plan | None = None
    plans: int = 0
    bandwidth: float | None = None

    def __post_init__(self) -> None:
        for i, e in enumerate(self.events):
            for x in e.reads:
                self.uses.setdefault(x, []).append(i)

    def trace(self) -> Trace:
        """The step for the planner: one more tensor stands for what is live throughout."""
        base = min(e.other for e in self.events)
        times: dict[Any, list[float]] = {}
        for e in self.events:
            times.setdefault(e.kind, []).append(e.seconds)
        usual = {key: median(t) for key, t in times.items()}   # other work disturbs single ones
        ops = [TraceOp(e.kind.name, e.reads, e.makes, usual[e.kind],
                       max(e.work + e.other - base, 0), bool(e.makes)) for e in self.events]
        return Trace(tuple(ops), (*self.sizes, max(base, 0)))

    def prepare(self, limit: int, bandwidth: float | None) -> None:
        """Plan the step: within `limit` bytes, or as low as plans were found to go; `bandwidth` is
        that of the spill file, None without one."""
        self.bandwidth, self.plans, self.seen = bandwidth, self.plans + 1, 1
        try:
            planner = Planner(self.trace(), bandwidth=bandwidth, latency=SpillFile.latency,
                              rungs=20, effort=0.0, slowest=2.5, lowest=limit)
        except ArgumentError:
            return                                   # values written twice: not a plain trace
        try:
            self.plan = planner.plan(limit)
        except BudgetError as error:
            self.plan = planner.plan(error.least)
        self._follow(self.plan)

    def _follow(self, plan: Plan) -> None:
        """The plan as tables: what is given up after each event, and when lives end."""
        self.drops, self.lives, self.written = {}, {}, set()
        began: dict[int, int] = {}
        stage = 0
        for kind, k in plan.steps:
            if kind == "run":
                for x in self.events[k].makes:
                    began[x] = stage
                stage += k == stage
            elif kind == "load":
                began[k] = stage
            else:
                at = max(stage - 1, 0) if began.get(k, stage) < stage else stage
                self.drops.setdefault(at, []).append((k, kind))
                self.lives.setdefault(k, []).append((began[k], at))
                if kind == "spill":
                    self.written.add((k, at))


class Repeats:
    """Writes down steps and follows their plans; `limit` in bytes, `disk(now)` tells the bandwidth
    of the spill file (None: there is none), measured if `now`."""

    patience = 0.005      # seconds per event: about what planning takes
    worth = 0.05          # share of a step's time for which it is planned again

    def __init__(self, limit: int, disk: Callable[[bool], float | None]) -> None:
        self.limit, self.disk = limit, disk
        self.known: list[Step] = []
        self.planned = 0
        self._given = 0
        self._start()

    def _start(self) -> None:
        self.events: list[Event] = []
        self.sizes: list[int] = []
        self.turn = next(_turns)                     # storages of this step are marked with it
        self.storages: list[weakref.ref[Storage]] = []
        self.follows = self.known[-1] if self.known else None
        self.likely = self.follows.events[0].kind if self.follows is not None else None

    # ------------------------------------------------------------------ writing down
    def _index(self, s: Storage) -> int:
        if s.turn != self.turn:
            s.turn, s.index = self.turn, len(self.sizes)
            self.sizes.append(s.nbytes)
            self.storages.append(weakref.ref(s))
        return s.index

    def forward(self, kind: Kind, record: Record | None, seconds: float, need: int,
                other: int) -> Sequence[Going]:
        """An op ran; the storages to give up now."""
        if len(self.events) >= LOOSE:
            return ()
        if record is None:
            return self._note(kind, (), (), seconds, need, other)
        reads = self._indices([a.storage for a in record.slots])
        made = [out.ref() for out in record.outs]
        makes = tuple([self._index(s) for s in made if s is not None])
        for x in makes:
            need -= self.sizes[x]
        return self._note(kind, reads, makes, seconds, max(need, 0), other)

    def backward(self, kind: Kind, storages: Sequence[Storage], seconds: float, need: int,
                 other: int) -> Sequence[Going]:
        """A node was visited; the storages to give up now."""
        if len(self.events) >= LOOSE:
            return ()
        return self._note(kind, self._indices(storages), (), seconds, need, other)

    def _indices(self, storages: Sequence[Storage]) -> tuple[int, ...]:
        """Their numbers, each once."""
        found: list[int] = []
        for s in storages:
            x = s.index if s.turn == self.turn else self._index(s)
            if x not in found:
                found.append(x)
        return tuple(found)

    def _note(self, kind: Kind, reads: tuple[int, ...], makes: tuple[int, ...], seconds: float,
              work: int, other: int) -> Sequence[Going]:
        """An event, which is not written down again where the followed step has it."""
        at, step = len(self.events), self.follows
        known = step.events[at] if kind is self.likely and step is not None else None
        if known is None or known.reads != reads or known.makes != makes:
            known = Event(kind, reads, makes, seconds, work, other)
        self.events.append(known)
        if kind is not self.likely or step is None:
            step = self._another(at)
            if step is None:
                return ()
        rest = step.events
        self.likely = rest[at + 1].kind if at + 1 < len(rest) else None
        found: list[Going] = []
        for x, how in step.drops.get(at, ()):
            s = self.storages[x]() if x < len(self.storages) else None
            if s is not None and s.owner is not None and self._ends(x, at) <= at:
                found.append((s, how))
        return found

    def _another(self, at: int) -> Step | None:
        """The step that goes on otherwise than the one that was followed, as one that is known."""
        before, self.follows, self.likely = self.follows, None, None
        for step in self.known:
            if step is not before and len(step.events) > at and all(
                    a.kind is b.kind for a, b in zip(step.events, self.events, strict=False)):
                self.follows = step
                return step
        return None

    def _ends(self, x: int, at: int) -> int:
        """The event after which the present life of `x` ends."""
        lives = self.follows.lives.get(x, ()) if self.follows is not None else ()
        return next((end for start, end in reversed(lives) if start <= at), at)

    # ------------------------------------------------------------------ following
    def stays(self, s: Storage) -> bool:
        """Whether the plan has `s` in memory after the event that begins now."""
        at = len(self.events)
        return s.turn == self.turn and self._ends(s.index, at) > at

    def again(self, r: Record) -> None:
        """A record is run again: what the plan wants to keep of it is marked."""
        at = len(self.events)
        for out in r.outs:
            s = out.ref()
            if s is not None and s.turn == self.turn:
                end = self._ends(s.index, at) if self.follows and self.follows.plan else -1
                s.until = end if end > at else -1

    def distance(self, s: Storage, otherwise: int) -> int:
        """Events until `s` is read."""
        if self.follows is None or s.turn != self.turn:
            return otherwise
        uses, at = self.follows.uses.get(s.index, ()), len(self.events)
        k = bisect_right(uses, at - 1)
        return uses[k] - at + 1 if k < len(uses) else otherwise

    def finish(self, given: int) -> Step | None:
        """A step has ended; `given` bytes were given up so far. Returns the known step that it is
        like, or what was written down of it."""
        pressed, self._given = given > self._given, given
        ended, step = None, self.follows
        if step is not None and len(step.events) == len(self.events):
            ended = step
            step.seen += 1
            self.planned += step.plan is not None
        elif 0 < len(self.events) < LOOSE:
            ended = step = Step(self.events, self.sizes)
            self.known = [*self.known[1 - KNOWN:], step]
        if step is not None and pressed and self._pays(step) and (
                step.plan is None or self._moved(step)):
            step.prepare(self.limit, self.disk(step.plan is None))
        self._start()
        return ended

    def _moved(self, step: Step) -> bool:
        """Whether the disk is so much slower or faster than the plan took it to be that another
        plan may save some of the step: where transfers take little of it, speeds tell little."""
        now = self.disk(False)
        if now is None or step.bandwidth is None or step.plan is None:
            return now is not step.bandwidth
        if not step.written or 0.5 < now / step.bandwidth < 2.0:
            return False
        if now > step.bandwidth:
            return step.plan.overhead - 1 > self.worth
        slower = 1 / now - 1 / step.bandwidth
        moved = 2 * sum(step.sizes[x] for x, _ in step.written)
        return moved * slower > self.worth * sum(e.seconds for e in step.events)

    def _pays(self, step: Step) -> bool:
        """Whether the step came again, and has taken as long as planning it will since it was
        planned last, which doubles with every plan."""
        n = len(step.events)
        spent = step.seen * sum(e.seconds for e in step.events)
        return n <= LONGEST and spent >= self.patience * n * 2**step.plans and (
            step.seen > 1 or len(self.known) == 1)
