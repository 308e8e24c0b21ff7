"""Keep a program under a budget of live bytes, in eager mode (see docs/design/0009-budget.md).

Every residual is kept, dropped and computed again, or written to disk, so that the live bytes never
exceed the budget. The first time a step runs, what goes is chosen as memory gets short: least cost
to have it back, per byte and time until it is needed (the heuristic of Kirisame et al.,
"Dynamic tensor rematerialization", arXiv 2006.09616). A step that repeats is planned as a whole.
"""
from __future__ import annotations

import heapq
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from adjoint.autograd.graph import saved_tensors_hooks
from adjoint.base import provenance
from adjoint.base.errors import ArgumentError
from adjoint.core.bind import retried, value_of
from adjoint.core.modes import Observer, watchers
from adjoint.core.tensor import (
    Kept,
    OutRef,
    Packed,
    Tensor,
    owner_of,
    wrap,
)
from adjoint.kernels import alloc
from adjoint.memory import needs
from adjoint.memory.lineage import (
    Handle,
    Layout,
    Lineage,
    Record,
    Storage,
    movable,
    ours,
    recompute,
)
from adjoint.memory.planner import BudgetError
from adjoint.memory.repeats import Going, Repeats
from adjoint.memory.sizes import machine_memory, parse_bytes
from adjoint.memory.spill import SpillError, SpillFile

SMALL = 256          # bytes; smaller residuals stay where they are
MANY = 256          # storages from which on one ranking serves several times
MARGIN = 1 << 18     # bytes left free below the budget, for what is too small to be refused
BEYOND = 16          # a step that does not fit is measured up to this part of the machine's memory


class BudgetReport(NamedTuple):
    """What a budget did so far: bytes and seconds.

    peak: most live bytes; dropped, spilled: bytes given up, to be computed again or on disk;
    recomputed: seconds spent computing again, writing and reading; runs: ops run again (a count);
    planned: steps that followed a plan (a count).
    """

    peak: int
    dropped: int
    spilled: int
    recomputed: float
    runs: int
    planned: int


class _Running:
    """The op or node that runs: its key, and what was live and when as it began."""

    __slots__ = ("key", "start", "other", "begun", "seconds", "held", "storages")

    def __init__(self, key: Any, start: int, known: int) -> None:
        self.key, self.start, self.other = key, start, start - known
        self.begun, self.seconds = time.perf_counter(), 0.0
        self.held: Any = None
        self.storages: list[Storage] | None = None


class budget(saved_tensors_hooks, Observer):
    """Keep the live bytes of all arrays at or below `limit`, by recomputing and spilling residuals.

    limit  bytes: a number, or a string: "2GB", "512MiB", "60%" of the machine's memory
    spill  a folder for what is cheaper to write out than to compute again; True: the system's
           folder for temporary files; False: only recompute
    plan   plan steps that repeat as a whole

    Everything that NumPy has allocated in the process counts: parameters, gradients, data and the
    temporaries of kernels (where the counting allocator is missing, see `kernels.alloc`: what ops
    and backward rules return). Gradients are those without a budget, bit for bit. `BudgetError`
    (also a MemoryError) says which op did not fit and names the least budget that is enough: to
    find it, the step is run to the end of its backward, and only then is the error raised.

    >>> import adjoint as ad
    >>> x = ad.ones(4, 4, requires_grad=True)
    >>> with ad.memory.budget("1GB"):
    ...     x.exp().sin().sum().backward()
    """

    once = True

    def __init__(self, limit: int | float | str, *, spill: bool | str = True,
                 plan: bool = True) -> None:
        super().__init__(lambda t: t, lambda t: t)
        self.limit = parse_bytes(limit)
        if self.limit <= 0:
            raise ArgumentError(f"budget: limit={limit!r} is {self.limit} bytes; give more than 0")
        self.lineage = Lineage()
        self.lock = threading.RLock()
        self._spill, self._disk = spill, ""
        self._file: SpillFile | None = None
        self._repeats = Repeats(self.limit - 2 * self._margin(), self._disk_speed) if plan else None
        self._needs: dict[Any, int] = {}
        self._gaps: dict[Any, int] = {}               # after an op: what the program allocates
        self._last: tuple[Any, int] | None = None
        self._frame: Any = None
        self._fresh: list[tuple[int, Storage, Layout]] = []   # hidden results, saved before `after`
        self._walks: list[Any] = []
        self._now = 0
        self._active = 0
        self._exact = False
        self._outer_limit = 0
        self._least = 0
        self._failed = ""           # how a step failed that runs on to be measured
        self._ranked: list[tuple[float, int, Storage]] = []
        self._stale = 0
        self._peak = self._dropped = self._spilled = self._runs = 0
        self._seconds = 0.0

    # ------------------------------------------------------------------ entering
    def __enter__(self) -> budget:  # type: ignore[override]  # the hooks' own returns nothing
        self._exact = alloc.install()
        super().__enter__()
        self._held.append(watchers.push(watchers.observers, self))
        self._active += 1
        if self._active == 1:
            self._walks.clear()
            self._frame = self._last = None
            self._failed = ""
            self._outer_limit = alloc.set_limit(self._room())
            self._shrink(0)
            alloc.mark()
        return self

    def __exit__(self, *exc: object) -> None:
        self._active -= 1
        self._note_peak()
        if not self._active:
            self._ranked.clear()
            alloc.set_limit(self._outer_limit)
        watchers.pop(self._held.pop())
        super().__exit__(*exc)
        error = exc[1]
        if error is None and not self._active:
            self._tell()
        if isinstance(error, MemoryError) and not isinstance(error, BudgetError):
            held = alloc.marked() if self._exact else self.live()   # what ran has let go of its own
            raise self._error(held + needs.asked(error), needs.asked(error)) from error

    def _margin(self) -> int:
        return min(MARGIN, self.limit // 64)

    def _room(self) -> int:
        """The limit for the allocator: that of an enclosing budget where it is smaller."""
        outer = alloc.set_limit(0)
        alloc.set_limit(outer)
        return min(self.limit, outer) if outer else self.limit

    def report(self) -> BudgetReport:
        """What was done so far."""
        if self._active:
            self._note_peak()
        planned = self._repeats.planned if self._repeats else 0
        return BudgetReport(self._peak, self._dropped, self._spilled, self._seconds, self._runs,
                            planned)

    # ------------------------------------------------------------------ live bytes
    def live(self) -> int:
        """The bytes that count now."""
        return alloc.live() if self._exact else self.lineage.live

    def _note_peak(self) -> None:
        self._peak = max(self._peak, alloc.marked() if self._exact else self.lineage.live)

    def _mark(self) -> int:
        self._note_peak()
        return alloc.mark() if self._exact else self.lineage.live

    def _used(self, since: int) -> int:
        return (alloc.marked() if self._exact else self.lineage.live) - since

    # ------------------------------------------------------------------ ops
    def before(self, op: Any, args: Any, attrs: Any) -> None:
        key = needs.key(op.name, args)
        need = self._needs.get(key)
        if need is None:
            need = needs.guess(op, args, attrs)
        if self._last is not None:
            before, start = self._last
            self._gaps[before] = max(self._used(start), self._gaps.get(before, 0))
        with self.lock:
            self._shrink(need)
        self._within()
        self._frame = _Running(key, self._mark(), self.lineage.live)
        self._fresh.clear()

    def before_write(self, target: Any) -> None:
        """What was computed from the old content is brought back while that is possible, and what
        is there is not dropped any more for want of a way back."""
        if type(target.array) is not np.ndarray:
            return
        s = self.lineage.table.get(id(owner_of(target.array)))
        if s is None:
            return
        with self.lock:
            for t in list(self.lineage.readers_of(s)):
                if t.live() is None and t.ticket is None and t.handles:
                    self._fetch(t)
                if t.live() is not None:
                    self.lineage.cut([t])
            s.record = None
            if s.wanted():
                s.owner = s.live()

    def after(self, op: Any, args: Any, attrs: Any, made: Any, node: Any) -> None:
        frame, self._frame = self._frame, None
        if frame is None:
            return
        need = self._measured(frame)
        seconds = time.perf_counter() - frame.begun
        written = any(t is a for t in made for a in args)
        record = None
        if node is not None and not written and needs.plain(args) and needs.plain(made):
            self._now = node.seq
            record = self._record(op, args, attrs, made, node, seconds, need)
        if self._repeats is not None:
            self._give_up(self._repeats.forward(frame.key, record, seconds, need, frame.other))
        with self.lock:       # for what the program makes by itself before the next op
            self._shrink(self._gaps.get(frame.key, 0))
        self._last = frame.key, self._mark()

    def _measured(self, frame: _Running) -> int:
        """Bytes asked for since the frame began; remembered for the next time."""
        need = max(self._used(frame.start), 0)
        self._needs[frame.key] = max(need, self._needs.get(frame.key, 0))
        return need

    def _give_up(self, storages: Iterable[Going]) -> None:
        """Follow the plan: these are not needed for a while."""
        with self.lock:
            for s, how in storages:
                s.until = -1
                if ours(s):
                    self.drop(s, how)

    def _record(self, op: Any, args: Any, attrs: Any, made: Any, node: Any, seconds: float,
                need: int) -> Record:
        slot = self.lineage.slot
        record = Record(op, [slot(a) for a in args], attrs, seconds, need, (node.code, node.lasti))
        for i, t in enumerate(made):
            self.lineage.made(record, i, t.array)
        for i, s, layout in self._fresh:
            if i >= len(made) and s.live() is not None:
                self.lineage.shown(record, i, s, layout)
        self.lineage.tie(record, node)
        return record

    # ------------------------------------------------------------------ residuals
    def pack(self, saved: Any, node: Any) -> Any:
        found = movable(saved, SMALL)
        if found is None:
            return saved
        array, owner, cell, version = found
        s = self.lineage.storage(owner)
        if type(saved) is OutRef:
            self._fresh.append((saved.index, s, Layout(array, owner)))
        return Handle(s, array, owner, cell, version, getattr(node, "seq", self._now))

    def unpack(self, packed: Any, node: Any) -> Tensor:
        h = packed.value
        if type(h) is not Handle:
            value_of(h, node)
            t: Any = h.tensor if type(h) is Kept else h
            return wrap(t.array)
        h.verify(node)
        with self.lock:
            array = h.array(self._fetch(h.storage))
        t = wrap(array)
        t._cell = h.cell
        return t

    def _fetch(self, s: Storage) -> Any:
        return self.lineage.materialize(s, self._again, self._load)

    def _again(self, r: Record, arrays: list[Any]) -> Sequence[Any]:
        """Run a record again, within the budget."""
        self._shrink(r.need)
        start, begun = self._mark(), time.perf_counter()
        outs: Sequence[Any] = retried((self,), recompute, r, arrays) if self._active \
            else recompute(r, arrays)
        self._seconds += time.perf_counter() - begun
        self._runs += 1
        r.need = max(r.need, self._used(start))
        if self._repeats is not None:
            self._repeats.again(r)
        return outs

    def _load(self, s: Storage) -> Any:
        """Read a spilled storage back."""
        self._shrink(s.nbytes)
        begun = time.perf_counter()
        owner = self._file.read(s.ticket)  # type: ignore[union-attr]  # it was written there
        self._seconds += time.perf_counter() - begun
        s.ticket = None
        self.lineage.place(s, owner)
        s.owner = owner
        return owner

    # ------------------------------------------------------------------ backward
    def begin_walk(self, walk: Any) -> None:
        self._walks.append(walk)
        self._frame = self._last = None

    def before_backward(self, node: Any, ct: Any) -> None:
        self._settle()
        self._now = node.seq
        shapes = node.shape if node.ports else tuple(node.shape or ())
        handles = _handles(node, self)
        key = (node.name(), shapes, tuple([h.shape for h in handles]))
        with self.lock:
            held = [self._fetch(h.storage) for h in handles]    # until the rules have read it
            need = self._needs.get(key)
            self._shrink(needs.guess_backward(node) if need is None else need)
        self._within()
        self._frame = _Running(key, self._mark(), self.lineage.live)
        self._frame.held, self._frame.storages = held, [h.storage for h in handles]

    def backward(self, node: Any, ct: Any, results: Any) -> None:
        frame = self._frame
        if frame is None or frame.storages is None:
            return
        frame.held = None
        frame.seconds = time.perf_counter() - frame.begun
        if not self._exact:
            for c in results:
                if type(c) is np.ndarray:
                    self.lineage.storage(owner_of(c))

    def _settle(self) -> None:
        """Finish the account of the node before: sums and leaves came after its rules."""
        frame, self._frame = self._frame, None
        if frame is None or frame.storages is None:
            return
        need = self._measured(frame)
        if self._repeats is not None:
            self._give_up(self._repeats.backward(frame.key, frame.storages, frame.seconds, need,
                                                   frame.other))

    def end_walk(self, walk: Any) -> None:
        self._settle()
        if self._walks and self._walks[-1] is walk:
            self._walks.pop()
        if walk.keep or self._walks:
            return
        if sys.exc_info()[1] is None:
            self._tell()
        with self.lock:
            self.lineage.cut([s for s in list(self.lineage.table.values())
                              if s.record is not None and not s.handles])
        if self._repeats is not None:
            self._repeats.finish(self._dropped + self._spilled)

    # ------------------------------------------------------------------ making room
    def _shrink(self, need: int) -> None:
        """Drop or spill until `need` more bytes fit, or nothing is left to give."""
        if not self._active:
            return
        if self._failed:
            self.give(1 << 62)
            return
        over = self.live() + need - (self.limit - self._margin())
        if over <= 0:
            return
        freed = self.give(over)
        if freed < over and not self._exact:
            if self.live() + need > self.limit:
                self._fail(self.live() + need, need)

    def _within(self) -> None:
        """The allocator serves small requests beyond the limit; that ends here."""
        if self._active and self.live() > self.limit and not self._failed:
            self._fail(self.live(), 0)

    def give(self, over: int) -> int:
        """Free at least `over` bytes if possible, the cheapest first; returns how many."""
        freed = 0
        if len(self._ranked) > self._stale:            # of many, an eighth goes by one ranking
            freed = self._take(over)
        if freed < over:
            self._ranked = [(self._score(s), s.number, s)
                            for s in list(self.lineage.table.values())
                            if s.owner is not None and s.handles >= 0 and ours(s)]
            heapq.heapify(self._ranked)
            many = len(self._ranked)
            freed += self._take(over - freed)
            self._stale = many - many // 8
            if many < MANY:
                self._ranked.clear()
        return freed

    def _take(self, over: int) -> int:
        """`give`, from what is ranked."""
        heap, freed = self._ranked, 0
        while heap and freed < over:
            score, number, s = heapq.heappop(heap)
            now = self._score(s)
            if now > 1.5 * score and heap:
                heapq.heappush(heap, (now, number, s))
                continue
            if now == float("inf"):
                break
            if s.owner is not None and ours(s):
                freed += self.drop(s)
        return freed

    def _score(self, s: Storage) -> float:
        """Seconds to have it back, per byte and time until it is read."""
        cost = self._cost(s)[0]
        next_use = max(s.uses, default=0)
        distance = abs(self._now - next_use) + 1
        if self._repeats is not None:
            distance = self._repeats.distance(s, distance)
        return cost / (s.nbytes * distance)

    def _cost(self, s: Storage) -> tuple[float, str]:
        if not s.wanted():
            return 0.0, "drop"
        spilling = SpillFile.seconds(s.nbytes) if self._spill else float("inf")
        if s.record is None:
            return spilling, "spill"
        records = self.lineage.closure(s, dropped=True, most=64)
        if records is None:
            return spilling, "spill"
        again = sum(r.seconds for r in records)
        return (again, "drop") if again <= spilling else (spilling, "spill")

    def drop(self, s: Storage, asked: str = "") -> int:
        """Give one storage up, by `asked` where that is possible, else by what costs least;
        returns the bytes that came free."""
        cost, how = self._cost(s)
        if cost == float("inf"):
            return 0
        if asked == "spill" and self._spill and s.wanted():
            how = asked
        elif asked == "drop" and self.lineage.possible(s):
            how = asked
        if how == "spill":
            begun = time.perf_counter()
            try:
                s.ticket = self._opened().write(s.owner)
            except SpillError as error:
                self._spill, self._disk = False, f"; {error.strerror}"
                return 0
            self._seconds += time.perf_counter() - begun
            self._spilled += s.nbytes
        elif s.wanted():
            self._dropped += s.nbytes
        s.owner, s.until = None, -1
        return s.nbytes

    def _opened(self) -> SpillFile:
        if self._file is None:
            self._file = SpillFile(None if self._spill is True else str(self._spill))
        return self._file

    def _disk_speed(self, now: bool) -> float | None:
        """Bytes per second of the spill file, tried out if `now`; None where there is none."""
        try:
            if self._spill and now:
                self._opened().try_out()
        except (SpillError, MemoryError):
            return None                        # a full disk is told of where it is needed
        return SpillFile.bandwidth if self._spill else None

    def refused(self, error: MemoryError) -> bool:
        """The allocator said no: make room for what was asked, or explain."""
        if isinstance(error, BudgetError) or not self._active:
            return False
        asked = needs.asked(error) or self.limit // 64
        most = (alloc.marked() if self._exact else self.live()) + asked
        with self.lock:
            if self.give(max(most - self.limit, asked)):
                return True
        self._fail(most, asked)
        return True

    def _fail(self, most: int, asked: int) -> None:
        """Where `asked` bytes bring the live bytes to `most`, and nothing is left to give up: let
        the step run to the end of its backward beyond the limit, so that the error can name a
        budget that is enough for all of it; raise at once where that takes the machine's memory,
        or passes an enclosing budget."""
        top = self._beyond()
        if self._failed or self._outer_limit or most > top:
            raise self._error(most, asked) from None
        frame = provenance.user_frame(sys._getframe(1))
        where = provenance.locate(frame.f_code, frame.f_lasti) if frame else ""
        what = f"{self._frame.key[0]} " if self._frame is not None else ""
        self._failed = (f"budget: {self.limit:,} bytes do not suffice: {asked:,} more were asked "
                        f"for by {what}at {where}, where {most - asked:,} were in use and nothing "
                        f"was left to drop or spill{self._disk}")
        alloc.set_limit(top)

    def _beyond(self) -> int:
        return max(2 * self.limit, machine_memory() // BEYOND)

    def _tell(self) -> None:
        """Raise for a step that did not fit, with what it needed."""
        if not self._failed:
            return
        self._note_peak()
        words, self._failed = self._failed, ""
        if self._active:
            alloc.set_limit(self.limit)
        self._least = max(self._least, _with_margin(self._peak))
        raise BudgetError(
            f"{words}; run to the end of its backward holding as little as it can, the step needed "
            f"{self._peak:,}: a budget of {self._least:,} bytes is enough for it\n  what stays: "
            "parameters, gradients, what the program itself holds, and what the op that runs reads "
            "and makes\n  fix: a larger budget, a smaller batch, or fewer values held by the "
            "program", self._least)

    def _error(self, most: int, asked: int) -> BudgetError:
        """What to raise where `asked` bytes would have brought the live bytes to `most`."""
        self._least = max(self._least, _with_margin(most))
        return BudgetError(
            f"budget: {self.limit:,} bytes do not suffice: {asked:,} more are asked for where "
            f"{most - asked:,} are in use and nothing is left to drop or spill{self._disk}; a "
            f"budget of {self._least:,} bytes gets past this place\n  what stays: parameters, "
            "gradients, what the program itself holds, and what the op that runs reads and makes\n"
            "  fix: a larger budget, a smaller batch, or fewer values held by the program",
            self._least)


class lean(budget):
    """Keep for backward only what is dear to compute again.

    Results of pointwise ops, norms and copies that another node saves, and that follow from what is
    saved anyway, are dropped at once: the output of a GELU or a layer norm before a matrix product,
    for instance. They are computed again when backward needs them, with the same bits.

    >>> import adjoint as ad
    >>> net = ad.nn.Sequential(ad.nn.Linear(64, 256), ad.nn.GELU(), ad.nn.Linear(256, 64))
    >>> with ad.memory.lean():
    ...     net(ad.ones(8, 64)).sum().backward()
    """

    copies = frozenset({"view", "reshape", "clone", "layer_norm", "rms_norm", "dropout", "cat",
                        "masked_fill", "where", "expand"})

    def __init__(self) -> None:
        super().__init__(1 << 62, spill=False, plan=False)

    def before(self, op: Any, args: Any, attrs: Any) -> None:
        self._frame = _Running(op.name, 0, 0)
        self._fresh.clear()

    def after(self, op: Any, args: Any, attrs: Any, made: Any, node: Any) -> None:
        super().after(op, args, attrs, made, node)
        for h in _handles(node, self) if node is not None else ():
            s = h.storage
            r = s.record
            if r is not None and s.owner is not None and (
                    r.op.scalar is not None or r.op.name in self.copies) and r.op is not op \
                    and all(a.storage.wanted() for a in r.slots()):
                s.owner = None
                self._dropped += s.nbytes


def _with_margin(most: int) -> int:
    """The budget under which `most` bytes may be alive."""
    return most + min(MARGIN, most // 63 + 1)


def _handles(node: Any, owner: budget) -> list[Handle]:
    """The residuals of a node that `owner` looks after."""
    found = []
    for s in node.saved if type(node.saved) is tuple else ():
        for p in s if type(s) is tuple else (s,):
            if type(p) is Packed and p.hook is owner and type(p.value) is Handle:
                found.append(p.value)
    return found


__all__ = ["BudgetError", "BudgetReport", "budget", "lean"]
