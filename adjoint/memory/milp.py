"""Optimal keep-or-recompute plans by mixed-integer programming (HiGHS through SciPy).

Stage `t` of a schedule ends with the first run of operation `t`; before it, operations may run
again in their original order. `R[t, i]`: operation `i` runs in stage `t`; `S[t, x]`: tensor `x` is
live when stage `t` begins; `F[t, x, i]`: `x` is freed right after `i` in stage `t`; `L[t, x]`: `x`
is read back from where it was spilled. The formulation follows Checkmate (Jain et al., MLSys 2020,
arXiv 1910.02653, eq. 2-8) with the frees stated one hazard at a time, which is tighter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from adjoint.base.errors import AdjointError, ArgumentError, NotSupported
from adjoint.memory.traces import Trace

LARGEST = 60


@dataclass(frozen=True)
class Optimum:
    """Stages in which operations run again and tensors are loaded, with the proven gap."""

    runs: frozenset[tuple[int, int]]
    loads: frozenset[tuple[int, int]]
    seconds: float
    bound: float

    @property
    def gap(self) -> float:
        """How far `seconds` may be above the optimum, relative to it."""
        return self.seconds / self.bound - 1 if self.bound > 0 else 0.0


class NoPlan(AdjointError):
    """The solver proved that no plan meets the constraints, or found none in its time."""


def fits(trace: Trace) -> None:
    """ArgumentError for a trace that is too long, NotSupported without SciPy."""
    _scipy()
    if len(trace.ops) > LARGEST:
        raise ArgumentError(
            f"milp.solve: {len(trace.ops)} operations; the integer program is meant for at most "
            f"{LARGEST}. Use planner.plan(trace, budget), which has no such limit"
        )


def solve(
    trace: Trace,
    budget: int,
    *,
    gap: float = 1e-6,
    time_limit: float = 60.0,
    below: float | None = None,
    load_seconds: dict[int, float] | None = None,
) -> Optimum:
    """The cheapest plan whose live peak is at most `budget` bytes.

    `gap` is the relative optimality gap at which to stop, `below` an upper bound on the seconds
    (from a heuristic: it prunes the search), `load_seconds` the cost per tensor of a spill and its
    load. Raises `NoPlan` when there is none, `NotSupported` without SciPy and `ArgumentError` for
    more than 60 operations.
    """
    fits(trace)
    program = _Program(trace, budget, load_seconds or {})
    return program.solve(gap, time_limit, below)


def least_peak(
    trace: Trace, *, time_limit: float = 60.0, load_seconds: dict[int, float] | None = None
) -> int:
    """The smallest peak in bytes that any plan of this form reaches (a bound if time runs out)."""
    program = _Program(trace, None, load_seconds or {})
    return program.least_peak(time_limit)


def _scipy() -> tuple[Any, Any]:
    try:
        import scipy.optimize as optimize
        import scipy.sparse as sparse
    except ImportError as error:
        raise NotSupported(
            "milp.solve needs SciPy (pip install scipy); planner.plan(trace, budget, "
            "method='heuristic') runs with NumPy alone"
        ) from error
    return optimize, sparse


class _Program:
    """Columns, rows and objective of the integer program; `budget=None` minimises the peak."""

    def __init__(self, trace: Trace, budget: int | None, load_seconds: dict[int, float]) -> None:
        self.trace, self.budget, self.load_seconds = trace, budget, load_seconds
        self.n = len(trace.ops)
        self.inputs = [[x for x in op.inputs if trace.producer[x] >= 0] for op in trace.ops]
        self.users: list[list[int]] = [[] for _ in trace.nbytes]
        for i, read in enumerate(self.inputs):
            for x in read:
                self.users[x].append(i)
        self.tensors = [x for x, p in enumerate(trace.producer) if p >= 0]
        self.unit = max((trace.nbytes[x] for x in self.tensors), default=1) or 1
        self.scale = trace.seconds or 1.0
        self.cost: list[float] = []
        self.upper: list[float] = []
        self.lower: list[float] = []
        self.integral: list[int] = []
        self.rows: list[tuple[list[int], list[float], float]] = []
        self.R: dict[tuple[int, int], int] = {}
        self.S: dict[tuple[int, int], int] = {}
        self.L: dict[tuple[int, int], int] = {}
        self.F: dict[tuple[int, int, int], int] = {}
        self.peak = self.column(1.0, np.inf, False) if budget is None else -1
        self.useful = self.useful_tensors()
        self.calm = self.calm_stages()
        self.columns()
        for t in range(self.calm, self.n + 1):
            self.stage(t)

    def column(self, cost: float, upper: float = 1.0, integral: bool = True) -> int:
        self.cost.append(cost)
        self.upper.append(upper)
        self.lower.append(0.0)
        self.integral.append(int(integral))
        return len(self.cost) - 1

    def row(self, terms: Iterable[tuple[int, float]], upper: float) -> None:
        columns, values = zip(*terms, strict=True)
        self.rows.append((list(columns), list(values), upper))

    def useful_tensors(self) -> list[set[int]]:
        """For each stage the tensors that it or a later one can need, for runs again too."""
        made_by, ops = self.trace.producer, self.trace.ops
        useful: set[int] = set()
        stages = []
        for t in range(self.n, -1, -1):
            waiting = list(self.inputs[t] if t < self.n else self.trace.keep)
            while waiting:
                x = waiting.pop()
                if x in useful or made_by[x] < 0:
                    continue
                useful.add(x)
                if ops[made_by[x]].recomputable:
                    waiting += self.inputs[made_by[x]]
            stages.append(set(useful))
        return stages[::-1]

    def calm_stages(self) -> int:
        """Number of first stages in which all that can be useful fits: nothing runs again there.

        Dropping is free at any time, so keeping everything until the first tight stage loses
        nothing.
        """
        if self.budget is None:
            return 0
        nbytes, made_by = self.trace.nbytes, self.trace.producer
        for t, op in enumerate(self.trace.ops):
            live = {x for x in self.useful[t] if made_by[x] < t} | {*self.inputs[t], *op.outputs}
            level = sum(nbytes[x] for x in live) + op.workspace
            if level + self.trace.resident > self.budget:
                return t
        return self.n

    def columns(self) -> None:
        """Make the columns, leaving out what no plan can use."""
        ops, made_by = self.trace.ops, self.trace.producer
        for t in range(self.n + 1):
            for i in range(min(t, self.n - 1) + 1):
                again = t >= self.calm and ops[i].recomputable
                if i == t or (again and not self.useful[t].isdisjoint(ops[i].outputs)):
                    cost = 0.0 if self.budget is None else ops[i].seconds / self.scale
                    self.R[t, i] = self.column(cost)
                    if i == t:
                        self.lower[-1] = 1.0
            for x in self.tensors:
                if made_by[x] < t and x in self.useful[t]:
                    self.S[t, x] = self.column(0.0)
                    self.lower[-1] = float(t < self.calm)
                    if x in self.load_seconds and t >= self.calm:
                        self.L[t, x] = self.column(self.load_seconds[x] / self.scale)
        for t in range(self.calm, self.n):
            for i in range(t + 1):
                if (t, i) in self.R:
                    for x in {*self.inputs[i], *ops[i].outputs}:
                        self.F[t, x, i] = self.column(0.0, integral=False)

    def stage(self, t: int) -> None:
        """Rows of stage `t`: what must be live, what may be kept, what is freed, the budget."""
        made_by = self.trace.producer
        for i in range(min(t, self.n - 1) + 1):
            if (t, i) not in self.R:
                continue
            for x in self.inputs[i]:
                source = [(self.R[t, i], 1.0), *self.sources(t, x)]
                self.row(source, 0.0)
        for x in self.tensors:
            if (t + 1, x) in self.S:
                self.row([(self.S[t + 1, x], 1.0), *self.sources(t, x)], 0.0)
            if (t, x) in self.S and (t, made_by[x]) in self.R:
                self.row([(self.S[t, x], 1.0), (self.R[t, made_by[x]], 1.0)], 1.0)
            if (t, x) in self.L:
                self.row([(self.S[t, x], 1.0), (self.L[t, x], 1.0)], 1.0)
            if t == self.n and x in self.trace.keep:
                self.row(self.sources(t, x), -1.0)
        self.frees(t)
        self.memory(t)

    def sources(self, t: int, x: int) -> list[tuple[int, float]]:
        """Minus the columns that make `x` live in stage `t`."""
        columns = [self.R.get((t, self.trace.producer[x])), self.S.get((t, x)), self.L.get((t, x))]
        return [(c, -1.0) for c in columns if c is not None]

    def frees(self, t: int) -> None:
        """`F <= ` 1 minus each hazard: kept for the next stage, or used again in this one."""
        for (stage, x, i), free in self.F.items():
            if stage != t:
                continue
            self.row([(free, 1.0), (self.R[t, i], -1.0)], 0.0)
            if (t + 1, x) in self.S:
                self.row([(free, 1.0), (self.S[t + 1, x], 1.0)], 1.0)
            for j in self.users[x]:
                if j > i and (t, j) in self.R:
                    self.row([(free, 1.0), (self.R[t, j], 1.0)], 1.0)

    def memory(self, t: int) -> None:
        """Live bytes while each operation of stage `t` runs, at most the budget."""
        trace, unit = self.trace, self.unit
        level: dict[int, float] = {}
        for x in self.tensors:
            for columns in (self.S, self.L):
                if (t, x) in columns:
                    level[columns[t, x]] = trace.nbytes[x] / unit
        freed: dict[int, float] = {}
        for i in range(min(t, self.n - 1) + 1):
            if (t, i) not in self.R:
                continue
            run = self.R[t, i]
            made = sum(trace.nbytes[x] for x in trace.ops[i].outputs) / unit
            level.update(freed)
            level[run] = level.get(run, 0.0) + made
            while_running = dict(level)
            while_running[run] += trace.ops[i].workspace / unit
            self.limit(while_running)
            freed = {
                self.F[t, x, i]: -trace.nbytes[x] / unit
                for x in {*self.inputs[i], *trace.ops[i].outputs}
                if (t, x, i) in self.F
            }
        if t == self.n:
            self.limit(level)
        else:
            self.limit(self.floor(t))

    def floor(self, t: int) -> dict[int, float]:
        """What is certainly live while operation `t` runs, without regard to frees.

        It follows from the other rows for whole numbers, and makes their relaxation much tighter.
        """
        op, unit = self.trace.ops[t], self.unit
        own = {*self.inputs[t], *op.outputs}
        fixed = sum(self.trace.nbytes[x] for x in own) + op.workspace
        level = {
            self.S[t + 1, x]: self.trace.nbytes[x] / unit
            for x in self.tensors
            if (t + 1, x) in self.S and x not in own
        }
        level[self.R[t, t]] = fixed / unit
        return level

    def limit(self, level: dict[int, float]) -> None:
        if self.budget is None:
            self.row([*level.items(), (self.peak, -1.0)], -self.trace.resident / self.unit)
        elif level:
            # A relative slack far below one byte keeps rounding from excluding exact fits.
            room = (self.budget - self.trace.resident) / self.unit
            self.row([*level.items()], room + 1e-9 * max(room, 1.0))

    def run_solver(self, options: dict[str, Any], below: float | None) -> Any:
        optimize, sparse = _scipy()
        rows = list(self.rows)
        if below is not None:
            priced = [(c, v) for c, v in enumerate(self.cost) if v]
            rows.append(([c for c, _ in priced], [v for _, v in priced], below / self.scale))
        data = [v for _, values, _ in rows for v in values]
        columns = [c for cols, _, _ in rows for c in cols]
        index = np.repeat(np.arange(len(rows)), [len(cols) for cols, _, _ in rows])
        matrix = sparse.csr_array((data, (index, columns)), shape=(len(rows), len(self.cost)))
        upper = np.array([u for _, _, u in rows])
        return optimize.milp(
            np.array(self.cost),
            integrality=np.array(self.integral),
            bounds=optimize.Bounds(np.array(self.lower), np.array(self.upper)),
            constraints=optimize.LinearConstraint(matrix, -np.inf, upper),
            options=options,
        )

    def solve(self, gap: float, time_limit: float, below: float | None) -> Optimum:
        options = {"mip_rel_gap": gap, "time_limit": time_limit, "presolve": True}
        result = self.run_solver(options, below)
        if result.x is None:
            raise NoPlan(
                f"milp.solve: no plan with a peak of at most {self.budget} bytes"
                + ("" if below is None else f" and at most {below:.6g} seconds")
                + f" ({result.message})"
            )
        x = np.round(result.x)
        runs = {key for key, c in self.R.items() if x[c] and key[0] != key[1]}
        loads = {key for key, c in self.L.items() if x[c]}
        bound = getattr(result, "mip_dual_bound", None)
        lower = result.fun if bound is None else bound
        return Optimum(
            frozenset(runs), frozenset(loads), result.fun * self.scale, lower * self.scale
        )

    def least_peak(self, time_limit: float) -> int:
        result = self.run_solver({"time_limit": time_limit, "mip_rel_gap": 1e-9}, None)
        if result.x is None:
            raise NoPlan(f"milp.least_peak: the solver stopped without a plan ({result.message})")
        return round(float(result.x[self.peak]) * self.unit)
