"""Plans for a recorded step: what to keep, recompute or spill so that the live peak fits a budget.

A plan says in which stage an operation runs again, stage `t` being the stretch that ends with the
first run of operation `t`. Everything else follows: a use reads the latest value before it, a
value is live from the run that makes it to its last use. So any set of runs is a valid plan, its
peak is exact, and search is free to add and remove runs:

1. greedy: at the budget, add the run (with what it needs) that removes the most excess
   byte-moments per second of recomputation;
2. prune: remove runs that are no longer needed, dearest first;
3. ruin and repair: remove some runs, repair greedily with noise, keep what is cheaper;
4. starting points for tight budgets: segment boundaries at narrow cuts (Chen et al.,
   arXiv 1604.06174).

All budgets are planned together, from the full peak downwards, and every plan met on the way goes
to one frontier of peak against time. A budget is answered from that frontier, which is why a
smaller budget never gets a larger peak nor a cheaper plan.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from adjoint.base.errors import ArgumentError
from adjoint.memory import milp
from adjoint.memory.layout import Graph, Keys, Layout
from adjoint.memory.traces import Step, Trace


class BudgetError(ArgumentError, MemoryError):
    """No plan meets the budget; `least` is the smallest budget in bytes that would work."""

    def __init__(self, message: str, least: int) -> None:
        super().__init__(message)
        self.least = least


@dataclass(frozen=True)
class Plan:
    """A schedule for a trace with its exact peak (bytes) and time (seconds).

    `runs` lists (stage, operation) run again, `loads` (stage, tensor) read back after a spill.
    """

    peak: int
    seconds: float
    base_seconds: float
    runs: frozenset[tuple[int, int]]
    loads: frozenset[tuple[int, int]]
    steps: tuple[Step, ...] = field(repr=False)

    @property
    def overhead(self) -> float:
        """Time relative to the step without a budget: 1.0 is no extra time."""
        return self.seconds / self.base_seconds if self.base_seconds else 1.0


@dataclass(frozen=True, order=True)
class _Point:
    """One point of the frontier."""

    peak: int
    cost: float
    keys: Keys = field(compare=False, repr=False)


class _Frontier:
    """Plans of which none is at least as good as another in both peak and cost."""

    def __init__(self) -> None:
        self.points: list[_Point] = []

    def add(self, peak: int, cost: float, keys: Keys) -> None:
        at = bisect_right(self.points, peak, key=lambda p: p.peak)
        if at and self.points[at - 1].cost <= cost:
            return
        start = bisect_left(self.points, peak, key=lambda p: p.peak)
        end = start
        while end < len(self.points) and self.points[end].cost >= cost:
            end += 1
        self.points[start:end] = [_Point(peak, cost, keys)]

    def best(self, budget: int) -> _Point | None:
        at = bisect_right(self.points, budget, key=lambda p: p.peak)
        return self.points[at - 1] if at else None


class Planner:
    """Plans for every budget of one trace.

    Args: `trace`; `bandwidth` in bytes per second to spill to and load from (None: no spilling),
    with `latency` seconds for each of the two;
    `rungs` budgets between 0 and the full peak that are searched (None: 40 up to 100 operations,
    20 beyond; plans in between come from the same frontier); `effort` scales the ruin-and-repair
    search (0 leaves greedy plans); `slowest` stops the descent at that many times the step's time
    (None: 4 up to 100 operations, 2 beyond); `lowest` is the smallest budget of interest.

    Deterministic: the same trace and settings give the same plans.

    >>> from adjoint.memory.traces import Trace, TraceOp
    >>> ops = [TraceOp(f"f{k}", (k,), (k + 1,), 1.0) for k in range(4)]
    >>> ops += [TraceOp(f"b{k}", (k, 8 - k), (9 - k,), 2.0, 0, False) for k in (3, 2, 1, 0)]
    >>> trace = Trace(tuple(ops), (0,) + (100,) * 4 + (1,) * 5)
    >>> planner = Planner(trace)
    >>> [(p.peak, p.overhead) for p in (planner.plan(400), planner.plan(300))]
    [(301, 1.0833333333333333), (203, 1.1666666666666667)]
    """

    def __init__(
        self,
        trace: Trace,
        *,
        bandwidth: float | None = None,
        latency: float = 0.0,
        rungs: int | None = None,
        effort: float = 1.0,
        slowest: float | None = None,
        lowest: int = 0,
    ) -> None:
        if slowest is None:
            slowest = 4.0 if len(trace.ops) <= 100 else 2.0
        if rungs is None:
            rungs = 40 if len(trace.ops) <= 100 else 20
        if rungs < 1 or effort < 0 or slowest < 1:
            raise ArgumentError(
                f"Planner: rungs={rungs}, effort={effort}, slowest={slowest}; they have to be at "
                "least 1, 0 and 1"
            )
        self.trace = trace
        self.graph = Graph(trace, bandwidth, latency)
        self._frontier = _Frontier()
        self._random = np.random.default_rng(0)
        self._limit = slowest * max(self.graph.cost(self.graph.base), 1e-300)
        self._breadth = 8 if self.graph.n <= 100 else 4
        self._repairs = int(effort * min(16.0, 2500 / max(self.graph.n, 1)))
        full = self._note(Layout(self.graph, self.graph.base))
        self._seeds = [self._note(Layout(self.graph, k)) for k in self._segment_seeds()]
        self._descend(full.peak, rungs, lowest)

    # ------------------------------------------------------------------ answers

    def plan(self, budget: int) -> Plan:
        """The cheapest known plan whose peak is at most `budget` bytes.

        Raises `BudgetError` naming the least budget that works.
        """
        point = self._frontier.best(int(budget))
        if point is None:
            least = self.least()
            raise BudgetError(
                f"plan: no schedule of this {len(self.trace.ops)}-operation step was found with a "
                f"live peak of at most {int(budget):,} bytes; the least budget that works is "
                f"{least:,} bytes ({least - int(budget):,} more). {self.trace.resident:,} bytes "
                f"are always resident and no schedule can go below {self.trace.floor():,}",
                least,
            )
        return self._plan(point)

    def least(self) -> int:
        """The smallest peak in bytes among the plans found."""
        return self._frontier.points[0].peak

    def curve(self) -> list[tuple[int, float]]:
        """The frontier as (peak bytes, seconds), from the smallest peak to the full one."""
        return [(p.peak, p.cost) for p in self._frontier.points]

    def _plan(self, point: _Point) -> Plan:
        return make_plan(self.graph, point.keys)

    # ------------------------------------------------------------------ search

    def _note(self, layout: Layout) -> Layout:
        self._frontier.add(layout.peak, layout.cost, layout.keys)
        return layout

    def _descend(self, peak: int, rungs: int, lowest: int) -> None:
        floor = self.trace.floor()
        steps = [(k, peak * k // rungs) for k in range(rungs - 1, 0, -1)]
        steps = [s for s in steps if s[1] > lowest] + [(0, lowest)] * bool(0 < lowest < peak)
        for k, budget in steps:
            often = self.graph.n <= 300 or k % 5 == 0
            from_base = self.graph.n <= 100 or (often and budget > 0.35 * peak)
            if budget < floor or not self._rung(budget, from_base):
                break

    def _rung(self, budget: int, from_base: bool) -> bool:
        """Search one budget; False if no plan was found that meets it."""
        g = self.graph
        known = self._frontier.best(budget)
        starts = [g.base] if from_base else []
        nearest = [p for p in self._frontier.points if p.peak > budget][:1]
        starts += [p.keys for p in (known, *nearest) if p is not None]
        if g.n <= 600 or known is None:
            starts += [s.keys for s in self._nearest_seeds(budget)]
        found: list[Layout] = []
        for keys in _distinct(starts):
            wide = 16 if keys is g.base and g.n <= 600 else self._breadth
            layout = self._greedy(Layout(g, keys), budget, wide)
            if layout is not None:
                found.append(self._prune(layout, budget))
        if not found:
            return self._frontier.best(budget) is not None
        self._repair(min(found, key=lambda f: f.cost), budget)
        return True

    def _nearest_seeds(self, budget: int) -> list[Layout]:
        ranked = sorted(self._seeds, key=lambda s: (s.excess(budget), s.cost))
        return ranked[:2]

    def _greedy(
        self, layout: Layout, budget: int, width: int, noise: float = 0.0,
        limit: float | None = None,
    ) -> Layout | None:
        """Add runs until the peak fits; None if stuck or beyond the time limit.

        `width` candidates are tried for each run; without noise four times as many when none
        helps, and once more after tidying up.
        """
        limit = self._limit if limit is None else limit
        patience = [width] if noise else [width, 4 * width, 0]
        while layout.peak > budget:
            breadth = patience[0]
            better = self._improve(layout, budget, breadth, noise) if breadth else None
            if better is not None:
                layout = self._note(better)
                if layout.cost > limit:
                    return None
            elif len(patience) > 1:
                patience.pop(0)
                if patience == [0]:
                    layout, patience = self._tidy(layout, budget), [4 * width]
            else:
                return None
        return layout

    def _improve(
        self, layout: Layout, budget: int, breadth: int, noise: float
    ) -> Layout | None:
        """The change with the most excess removed per second added, among the likeliest."""
        excess, best, best_rate = layout.excess(budget), None, 0.0
        for tensor, at in layout.candidates(budget, breadth, self._random, noise):
            for keys in layout.evictions(tensor, at, budget):
                new = Layout(self.graph, keys)
                gain, price = excess - new.excess(budget), new.cost - layout.cost
                if gain <= 0:
                    continue
                rate = gain / price if price > 1e-12 * layout.cost else gain * 1e18
                if noise:
                    rate *= float(np.exp(noise * self._random.standard_normal()))
                if rate > best_rate:
                    best, best_rate = new, rate
        return best

    def _tidy(self, layout: Layout, budget: int) -> Layout:
        """Remove every run whose removal does not add excess: the way out of a dead end."""
        excess = layout.excess(budget)
        for key in layout.added():
            new = layout.without([key])
            if new.excess(budget) <= excess:
                layout, excess = new, new.excess(budget)
        return layout

    def _prune(self, layout: Layout, budget: int) -> Layout:
        """Remove runs while the peak stays within the budget, the dearest first."""
        changed = True
        while changed:
            changed = False
            for key in layout.added():
                if not layout.may_remove(key, budget):
                    continue
                new = layout.without([key])
                if new.peak <= budget:
                    layout, changed = new, True
        return self._note(layout)

    def _repair(self, best: Layout, budget: int) -> None:
        """Ruin and repair with noise, from the best plan, keeping what is cheaper."""
        rng, current = self._random, best
        for turn in range(self._repairs):
            ruined = current.ruin(rng)
            if ruined is None:
                return
            noise = (0.1, 0.3, 0.8)[int(rng.integers(3))]
            layout = self._greedy(
                ruined, budget, self._breadth, noise, limit=current.cost * 1.03
            )
            if layout is None:
                continue
            layout = self._prune(layout, budget)
            if layout.cost <= current.cost * 1.003:
                current = layout
            if layout.cost < best.cost:
                best = layout
            if turn % 16 == 15:
                current = best

    # ------------------------------------------------------------------ starting points

    def _segment_seeds(self) -> list[Keys]:
        """Plans that keep only what crosses a few narrow places of the forward part."""
        g = self.graph
        forward = g.forward_end()
        crossing = g.crossing(forward)
        seeds: list[Keys] = []
        segments = 2
        while segments <= max(2, forward // 2) and len(seeds) < 24:
            seeds.append(g.segment_keys(forward, _boundaries(crossing, segments)))
            segments = max(segments + 1, int(segments * 1.35))
        return [s for s in seeds if len(s) > len(g.base)]


def _boundaries(crossing: np.ndarray, segments: int) -> list[int]:
    """The narrowest place near each of `segments - 1` evenly spaced ones."""
    n = len(crossing)
    width = n / segments
    cuts = []
    for k in range(1, segments):
        low = max(0, round(k * width - width / 3))
        high = min(n, max(low + 1, round(k * width + width / 3)))
        cuts.append(low + int(np.argmin(crossing[low:high])))
    return sorted(set(cuts))


def _distinct(starts: Iterable[Keys]) -> list[Keys]:
    return list({k.tobytes(): k for k in starts}.values())


def make_plan(graph: Graph, keys: Keys) -> Plan:
    """The `Plan` that a set of keys (stage and operation packed in one number) stands for."""
    layout = Layout(graph, keys)
    runs, loads = graph.unpack(keys)
    return Plan(
        peak=layout.peak,
        seconds=layout.cost,
        base_seconds=graph.cost(graph.base),
        runs=frozenset(runs),
        loads=frozenset(loads),
        steps=tuple(layout.steps()),
    )


def plan(
    trace: Trace,
    budget: int,
    *,
    method: str = "heuristic",
    bandwidth: float | None = None,
    effort: float = 1.0,
    time_limit: float = 60.0,
    gap: float = 1e-6,
) -> Plan:
    """Plan `trace` so that its live peak is at most `budget` bytes, at the least extra time.

    `method` is "heuristic" (NumPy only, any size, monotone in the budget) or "milp" (optimal up
    to the relative `gap`, at most 60 operations, needs SciPy; where the solver finds nothing better
    in its time, the heuristic's plan). `bandwidth` (bytes per second) allows spilling. Raises
    `BudgetError` with the least budget that works.

    >>> from adjoint.memory.traces import Trace, TraceOp
    >>> ops = [TraceOp(f"f{k}", (k,), (k + 1,), 1.0) for k in range(4)]
    >>> ops += [TraceOp(f"b{k}", (k, 8 - k), (9 - k,), 2.0, 0, False) for k in (3, 2, 1, 0)]
    >>> trace = Trace(tuple(ops), (0,) + (100,) * 4 + (1,) * 5)
    >>> sorted(plan(trace, 210).runs)
    [(5, 0), (5, 1)]
    """
    if method not in ("heuristic", "milp"):
        raise ArgumentError(f"plan: method={method!r}; it is 'heuristic' or 'milp'")
    if method == "heuristic":
        return Planner(trace, bandwidth=bandwidth, effort=effort).plan(budget)
    return _optimal(trace, budget, bandwidth, time_limit, gap)


def _optimal(
    trace: Trace, budget: int, bandwidth: float | None, time_limit: float, gap: float
) -> Plan:
    graph = Graph(trace, bandwidth)
    loads = {} if bandwidth is None else {x: graph.load_seconds(x) for x in graph.spillable}
    milp.fits(trace)
    known: Plan | BudgetError             # a bound, which prunes the search
    try:
        known = Planner(trace, bandwidth=bandwidth, lowest=int(budget)).plan(budget)
    except BudgetError as error:
        known = error
    below = known.seconds * (1 + 1e-9) if isinstance(known, Plan) else None
    try:
        best = milp.solve(trace, budget, gap=gap, time_limit=time_limit, below=below,
                          load_seconds=loads)
    except milp.NoPlan as error:
        if isinstance(known, Plan):
            return known
        with suppress(milp.NoPlan):              # (its time is over: what was found by then)
            known.least = min(known.least, milp.least_peak(trace, load_seconds=loads,
                                                           time_limit=time_limit))
        raise BudgetError(
            f"plan: no schedule has a live peak of at most {int(budget):,} bytes; the least "
            f"budget that works is {known.least:,} bytes",
            known.least,
        ) from error
    return make_plan(graph, graph.pack(best.runs, best.loads))
