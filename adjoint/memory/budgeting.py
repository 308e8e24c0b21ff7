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
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from adjoint.autograd.checkpoint import remaking
from adjoint.autograd.graph import saved_tensors_hooks
from adjoint.base import provenance
from adjoint.base.errors import ArgumentError
from adjoint.core.bind import retried
from adjoint.core.modes import Observer, watchers
from adjoint.core.tensor import OutRef, Tensor, owner_of, wrap
from adjoint.kernels import alloc
from adjoint.memory import limits, needs, nested
from adjoint.memory.lineage import (
    Handle,
    Lineage,
    Out,
    Record,
    Storage,
    as_it_was,
    handles_of,
    movable,
    ours,
    recompute,
)
from adjoint.memory.nested import BudgetReport, Inside
from adjoint.memory.planner import BudgetError
from adjoint.memory.repeats import Going, Repeats
from adjoint.memory.shortage import Shortage, first_step, margin, told_at_once, with_margin
from adjoint.memory.sizes import machine_memory, parse_bytes
from adjoint.memory.spill import SpillError, SpillFile

SMALL = 256          # bytes; smaller residuals stay where they are
MANY = 256          # storages from which on one ranking serves several times
_MARK = alloc.MARK
BEYOND = 16          # a step that does not fit is measured up to this part of the machine's memory


class budget(saved_tensors_hooks, Observer):
    """Keep the live bytes of all arrays at or below `limit`, by recomputing and spilling residuals.

    limit  bytes: a number, or a string: "2GB", "512MiB", "60%" of the machine's memory
    spill  a folder for what is cheaper to write out than to compute again; True: the system's
           folder for temporary files; False: only recompute
    plan   plan steps that repeat as a whole

    Everything that NumPy has allocated in the process counts: parameters, gradients, data and the
    temporaries of kernels (where the counting allocator is missing, see `kernels.alloc`: what ops
    and backward rules return). Gradients are those without a budget, bit for bit. `BudgetError`
    (also a MemoryError) says which op did not fit and names a budget that is enough: to find it,
    the step runs on, and the error comes when the block ends, an optimizer is about to step, or a
    backward ends that is like one before it. The state that optimizers will make is foretold.
    A block inside of another budget's holds the lower limit of both; the outer one carries it out,
    so that either block's residuals can be given up in either.

    >>> import adjoint as ad
    >>> x = ad.ones(4, 4, requires_grad=True)
    >>> with ad.memory.budget("1GB"):
    ...     x.exp().sin().sum().backward()
    """

    once = regions = True

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
        within = self.limit - 2 * margin(self.limit)
        self._repeats = Repeats(within, self._disk_speed) if plan else None
        self._kinds = needs.Kinds()
        self._top = 1 << 62               # what may be live before room has to be made
        self._words: Any = None           # the allocator's counters
        self._inside: list[Inside | None] = []     # what each of its blocks lies in
        self._done = BudgetReport(0, 0, 0, 0.0, 0, 0)     # in blocks inside of other budgets
        self._last: tuple[needs.Kind, int] | None = None
        self._frame: Any = None
        self._fresh: list[tuple[Storage, Out]] = []   # hidden results, saved before `after`
        self._waiting: list[Going] = []                # to be given up once the program lets go
        self._walks: list[Any] = []
        self._now = self._active = 0
        self._exact = False
        self._outer_limit = 0       # of other threads, or set by hand
        self._least = 0
        self._trying = False        # what does not fit is tried in another way
        self._stepping: Any = None  # the optimizer that steps
        self._short: Shortage | None = None   # a step that failed and runs on to be measured
        self._ranked: list[tuple[float, int, Storage]] = []
        self._stale = 0
        self._peak = self._dropped = self._spilled = self._runs = 0
        self._seconds = 0.0

    # ------------------------------------------------------------------ entering
    def __enter__(self) -> budget:  # type: ignore[override]  # the hooks' own returns nothing
        outer = next((o for o in reversed(watchers.observers.get()) if isinstance(o, budget)), None)
        self._inside.append(Inside(outer, self) if outer is not None else None)
        if outer is not None:
            return self                               # the outer one carries it out
        self._exact = alloc.install()
        self._words, _ = alloc.counters()
        self._hook()
        self._held.append(watchers.push(watchers.observers, self))
        self._active += 1
        if self._active == 1:
            self._walks.clear()
            self._frame = self._last = None
            self._waiting.clear()
            self._short = None
            self._outer_limit = limits.ask(id(self), self.limit)
            self._top = self.limit - margin(self.limit)
            self._shrink(0)
            alloc.mark()
        return self

    def __exit__(self, *exc: object) -> None:
        inside, error = self._inside.pop(), exc[1]
        if inside is not None:
            inside.leave(error)
            return
        self._note_peak()
        self._active -= 1
        if not self._active:
            self._ranked.clear()
            self._top = 1 << 62
            limits.leave(id(self))
        watchers.pop(self._held.pop())
        self._unhook()
        if error is not None or not self._active:
            self._explain(error)

    def _hook(self) -> None:
        super().__enter__()

    def _unhook(self) -> None:
        super().__exit__(None, None, None)

    def _hold(self, limit: int) -> None:
        """Keep within `limit` from now on."""
        self.limit = limit
        if self._short is None:                       # (else that goes on beyond any limit)
            limits.ask(id(self), limit)
            self._top = limit - margin(limit)
            self._shrink(0)

    def _explain(self, error: object) -> None:
        """A block has ended: raise what did not fit into it."""
        if error is None:
            self._tell("the block")
        elif isinstance(error, MemoryError) and not isinstance(error, BudgetError):
            asked = needs.asked(error)
            most = self._most() + asked                # (what ran has let go of its own)
            if self._stepping is not None:
                most = max(most, self.live() + first_step(self._stepping))
            raise self._error(most, asked) from error

    def report(self) -> BudgetReport:
        """What was done so far."""
        if self._active:
            self._note_peak()
        own = BudgetReport(self._peak, self._dropped, self._spilled, self._seconds, self._runs,
                           self._repeats.planned if self._repeats else 0)
        return reduce(BudgetReport.followed_by, nested.reports(self._inside),
                      own.followed_by(self._done))

    # ------------------------------------------------------------------ live bytes
    def live(self) -> int:
        """The bytes that count now."""
        return self._words[0] if self._exact else self.lineage.live

    def _most(self) -> int:
        """The most that was live since the last mark."""
        return self._words[_MARK] if self._exact else self.lineage.live

    def _note_peak(self) -> None:
        self._peak = max(self._peak, self._most())

    def _mark(self) -> int:
        if not self._exact:
            self._note_peak()
            return self.lineage.live
        self._peak, live = max(self._peak, self._words[_MARK]), self._words[0]
        self._words[_MARK] = live
        return int(live)

    # ------------------------------------------------------------------ ops
    def before(self, op: Any, args: Any, attrs: Any) -> None:
        kind = self._kinds.of_op(op, args, self._likely())
        need = kind.need
        if need is None:
            need = needs.guess(op, args, attrs)
        if self._last is not None:
            last, start = self._last
            last.gap = max(last.gap, self._most() - start)
        if self._waiting:
            self._late()
        self._room_for(need)
        self._frame = needs.Running(kind, self._mark(), self.lineage.live)
        self._fresh.clear()

    def _likely(self) -> needs.Kind | None:
        return self._repeats.likely if self._repeats is not None else None

    def _room_for(self, need: int) -> None:
        """Make room for what an op or node will ask for."""
        if self.live() + need > self._top:
            with self.lock:
                self._shrink(need)
            self._within()

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
        need, seconds, record = self._measured(frame), time.perf_counter() - frame.begun, None
        if node is not None and needs.recordable(args, made):
            tied = not self._walks or not remaking()       # (a region's nodes die at once)
            self._now = node.seq if tied else self._now
            record = self.lineage.recorded(op, args, attrs, made, node, seconds, need, self._fresh,
                                           tied)
        if self._repeats is not None:
            self._give_up(self._repeats.forward(frame.kind, record, seconds, need, frame.other))
        gap = frame.kind.gap                # what the program makes by itself before the next op
        if self.live() + gap > self._top:
            with self.lock:
                self._shrink(gap)
        self._last = frame.kind, self._mark()

    def _measured(self, frame: needs.Running) -> int:
        """Bytes asked for since the frame began; remembered for the next time."""
        need, kind = self._most() - frame.start, frame.kind
        if kind.need is None or need > kind.need:
            kind.need = max(need, 0)
        return max(need, 0)

    def _give_up(self, storages: Sequence[Going]) -> None:
        """Follow the plan: these are not needed for a while."""
        for s, how in storages:
            with self.lock:
                s.until = -1
                if ours(s):
                    self.drop(s, how)
                elif s.owner is not None:
                    self._waiting.append((s, how))

    def _late(self) -> None:
        """Give up what the program still held when it was to go."""
        with self.lock:
            waiting, self._waiting = self._waiting, []
            for s, how in waiting:
                if s.owner is not None and self._repeats and not self._repeats.stays(s):
                    if ours(s):
                        self.drop(s, how)
                    else:
                        self._waiting.append((s, how))

    # ------------------------------------------------------------------ residuals
    def pack(self, saved: Any, node: Any) -> Any:
        found = movable(saved, SMALL)
        if found is None:
            return saved
        array, owner, cell, version = found
        s = self.lineage.storage(owner)
        if type(saved) is OutRef:
            self._fresh.append((s, Out(array, owner, saved.index, s)))
        return Handle(s, array, owner, cell, version, getattr(node, "seq", self._now))

    def unpack(self, packed: Any, node: Any) -> Tensor:
        h = packed.value
        if type(h) is not Handle:
            return as_it_was(h, node)
        h.verify(node)
        owner = h.storage.owner
        if owner is None:
            with self.lock:
                owner = self._fetch(h.storage)
        if self._frame is not None and self._frame.held:
            self._frame.held.pop(h.storage.number, None)       # whoever reads it holds it now
        t = wrap(h.array(owner))
        t._cell = h.cell
        return t

    def _fetch(self, s: Storage) -> Any:
        """The memory of `s`. Where making it again does not fit beside what else was made on the
        way, all of that goes, and it is made from what is left: that takes the least memory."""
        if self._active and self._short is None and s.live() is None:
            self._trying = True
            try:
                return self.lineage.materialize(s, self._again, self._load)
            except MemoryError as error:
                error.__traceback__ = None           # its frames hold what was made
            finally:
                self._trying = False
            self.give(1 << 62)
        return self.lineage.materialize(s, self._again, self._load)

    def _again(self, r: Record, arrays: list[Any]) -> Sequence[Any]:
        """Run a record again, within the budget."""
        self._shrink(r.need)
        peak, start, begun = self._peak, self._mark(), time.perf_counter()
        outs: Any = retried((self,) if self._active else (), recompute, r, arrays)
        self._seconds += time.perf_counter() - begun
        self._runs += 1
        r.need = max(r.need, self._most() - start)
        self._peak = self._peak if self._active else peak      # (the peak is of its blocks alone)
        if self._repeats is not None:
            self._repeats.again(r)
        return outs

    def _load(self, s: Storage) -> Any:
        """Read a spilled storage back."""
        self._shrink(s.nbytes)
        begun = time.perf_counter()
        owner = retried((self,) if self._active else (), self._opened().read, s.ticket)
        self._seconds += time.perf_counter() - begun
        s.ticket = None
        self.lineage.place(s, owner)
        s.owner = owner
        return owner

    # ------------------------------------------------------------------ backward
    def accumulated(self, leaf: Any) -> None:
        if self._short is not None:
            self._short.accumulated(leaf)

    def stepping(self, optimizer: Any) -> bool:
        if self._short is not None:
            self._note_peak()
            if self._short.passes_over(optimizer, self.live()):
                alloc.mark()                       # (what foretells it does not count)
                return True
        self._tell(f"its backward, before {type(optimizer).__name__} steps")
        first, self._stepping = first_step(optimizer), optimizer
        self._room_for(first)
        if self.live() + first <= self.limit:
            return False
        raise self._error(self.live() + first, first)        # (nothing has changed yet)

    def stepped(self, optimizer: Any) -> None:
        self._stepping = None

    def begin_walk(self, walk: Any) -> None:
        if self._short is not None:
            self._note_peak()
            self._short.begins(self._peak)
        self._walks.append(walk)
        self._frame = self._last = None

    def before_backward(self, node: Any, ct: Any) -> None:
        self._settle()
        self._now = node.seq
        handles = handles_of(node, self)
        kind = self._kinds.of_node(node, handles, self._likely())
        held = {}                                               # until the rules have read it
        for h in handles:
            s = h.storage
            owner = s.owner
            if owner is None:
                with self.lock:
                    owner = self._fetch(s)
            held[s.number] = owner
        owner, need = None, kind.need
        if self._waiting:
            self._late()
        self._room_for(needs.guess_backward(node) if need is None else need)
        self._frame = needs.Running(kind, self._mark(), self.lineage.live)
        self._frame.held, self._frame.storages = held, [h.storage for h in handles]

    def backward(self, node: Any, ct: Any, results: Any) -> None:
        frame = self._frame
        if frame is None or frame.storages is None:
            return
        frame.held, frame.seconds = None, time.perf_counter() - frame.begun
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
            self._give_up(self._repeats.backward(frame.kind, frame.storages, frame.seconds, need,
                                                 frame.other))

    def end_walk(self, walk: Any) -> None:
        self._settle()
        if self._walks and self._walks[-1] is walk:
            self._walks.pop()
        if walk.keep or self._walks:
            return
        with self.lock:
            self.lineage.cut([s for s in list(self.lineage.table.values())
                              if s.record is not None and not s.handles])
        self._waiting.clear()
        step = self._repeats and self._repeats.finish(self._dropped + self._spilled)
        if sys.exc_info()[1] is None and self._short is not None and self._short.ends(step):
            self._tell("a backward like one before it")

    # ------------------------------------------------------------------ making room
    def _shrink(self, need: int) -> None:
        """Drop or spill until `need` more bytes fit, or nothing is left to give."""
        if not self._active:
            return
        if self._short is not None:
            self.give(1 << 62)
            return
        over = self.live() + need - self._top
        if over <= 0:
            return
        if self.give(over) < over and not self._exact and self.live() + need > self.limit:
            self._fail(self.live() + need, need)

    def _within(self) -> None:
        """The allocator serves small requests beyond the limit; that ends here."""
        if self._active and self.live() > self.limit and self._short is None:
            self._fail(self.live(), 0)

    def give(self, over: int) -> int:
        """Free at least `over` bytes if possible, the cheapest first; returns how many."""
        freed = self._take(over) if len(self._ranked) > self._stale else 0      # (an eighth)
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
        if again <= spilling or self._short is not None:     # (measured: what may take the most)
            return again, "drop"
        return spilling, "spill"

    def drop(self, s: Storage, asked: str = "") -> int:
        """Give one storage up, by `asked` where that is possible, else by what costs least;
        returns the bytes that came free."""
        how = asked
        if not (asked == "spill" and self._spill and s.wanted()
                or asked == "drop" and self.lineage.possible(s)):
            cost, how = self._cost(s)
            if cost == float("inf"):
                return 0
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
        most = self._most() + asked
        with self.lock:
            if self.give(max(most - self.limit, asked)):
                return True
        if self._trying:
            return False
        self._fail(most, asked)
        return True

    def _fail(self, most: int, asked: int) -> None:
        """Where `asked` bytes bring the live bytes to `most`, and nothing is left to give up: let
        the step run to the end of its backward beyond the limit, so that the error can name a
        budget that is enough for all of it; raise at once where that takes the machine's memory,
        or passes an enclosing budget."""
        top = max(2 * self.limit, machine_memory() // BEYOND)
        if self._short is not None or self._outer_limit or most > top:
            raise self._error(most, asked) from None
        frame = provenance.user_frame(sys._getframe(1))
        where = provenance.locate(frame.f_code, frame.f_lasti) if frame else ""
        what = f"{self._frame.kind.name} " if self._frame is not None else ""
        self._short = Shortage(
            f"budget: {self.limit:,} bytes do not suffice: {asked:,} more were asked for by {what}"
            f"at {where}, where {most - asked:,} were in use and nothing was left to drop or spill"
            f"{self._disk}")
        limits.ask(id(self), top)
        self._top = -1

    def _tell(self, where: str) -> None:
        """Raise for a step that did not fit, with what it needed up to the end of `where`."""
        short, self._short = self._short, None
        if short is None:
            return
        self._note_peak()
        needed, remark = short.needed(self._peak, self.live())
        if self._active:
            limits.ask(id(self), self.limit)
            self._top = self.limit - margin(self.limit)
        self._least = max(self._least, with_margin(needed))
        raise BudgetError(short.told(where, needed, remark, self._least), self._least)

    def _error(self, most: int, asked: int) -> BudgetError:
        """What to raise where `asked` bytes would have brought the live bytes to `most`."""
        least = self._least = max(self._least, with_margin(most))
        return BudgetError(told_at_once(self.limit, asked, most, self._disk, least), least)


__all__ = ["BudgetError", "BudgetReport", "budget"]
