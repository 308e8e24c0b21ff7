"""Where to put checkpoints on a chain of stages.

All planners here return the same kind of schedule, a list of steps over stages 1 to n:

    ("keep", i)  run stage i and hold its input as a checkpoint
    ("none", i)  run stage i and let its input go
    ("all", i)   run stage i and save all that its backward pass reads
    ("back", i)  run the backward pass of stage i

`simulate` executes such a schedule, checks it, and measures its time and true peak.

- `revolve`: the fewest stage runs for equal stages and a number of checkpoints (Griewank and
  Walther, "Algorithm 799: revolve", ACM TOMS 26, 2000).
- `sqrt_chain`: about 2 sqrt(n) arrays, one extra forward pass (Chen et al., arXiv 1604.06174).
- `log_chain`: halving, O(log n) checkpoints and O(n log n) time (the same paper, section 4.3).
- `optimal_chain`: the fastest schedule within a byte budget for unequal stages, by dynamic
  programming over (first stage, last stage, memory), (Beaumont et al., "Optimal checkpointing for
  heterogeneous chains", arXiv 1911.13214, theorem 1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import comb, isqrt

import numpy as np
from numpy.typing import NDArray

from adjoint.base.errors import ArgumentError

ChainStep = tuple[str, int]


@dataclass(frozen=True)
class Stage:
    """One stage of a chain: seconds of its passes and the bytes it holds.

    `output` is the size of its result (and of the result's cotangent), `saved` all that "all"
    holds for backward (the result included), the `extra`s are scratch during each pass:
    `saving_extra` that of a forward pass that saves, where it is not `forward_extra`. What backward
    leaves until the end, gradients of parameters, is `gradients`, and part of `backward_extra`.
    """

    forward: float
    backward: float
    saved: int
    output: int
    forward_extra: int = 0
    backward_extra: int = 0
    saving_extra: int | None = None
    gradients: int = 0

    def scratch(self, saves: bool) -> int:
        """Bytes that a forward pass needs beside its operand and what it leaves."""
        return self.forward_extra if not saves or self.saving_extra is None else self.saving_extra


@dataclass(frozen=True)
class ChainRun:
    """What a schedule did: time, peak bytes, runs of stages, most checkpoints held at once."""

    seconds: float
    peak: int
    forwards: int
    checkpoints: int


@dataclass(frozen=True)
class ChainPlan:
    """A schedule with its time and peak."""

    steps: tuple[ChainStep, ...]
    seconds: float
    peak: int


def equal_stages(n: int, forward: float = 1.0, backward: float = 2.0, size: int = 1) -> list[Stage]:
    """`n` equal stages whose saved values are their results."""
    return [Stage(forward, backward, size, size) for _ in range(n)]


# ---------------------------------------------------------------------------------------------
# Executing a schedule


class _Chain:
    """Memory of a running chain: held inputs, saved stages, the one live cotangent."""

    def __init__(self, stages: Sequence[Stage], input_bytes: int) -> None:
        self.stages = stages
        self.size = [input_bytes, *(s.output for s in stages)]
        self.values = {0}
        self.kept: set[int] = {0}
        self.saved: set[int] = set()
        self.next_back = len(stages)
        self.gradients = 0
        self.seconds, self.peak, self.forwards, self.most = 0.0, 0, 0, 1

    def held(self) -> int:
        inside = sum(self.stages[i - 1].saved for i in self.saved) + self.gradients
        return inside + sum(self.size[v] for v in self.values) + self.size[self.next_back]

    def step(self, kind: str, i: int) -> None:
        if kind == "back":
            self.back(i)
            return
        stage = self.stages[i - 1]
        if i - 1 not in self.values and i - 1 not in self.saved:
            raise ArgumentError(
                f"simulate: ({kind!r}, {i}) needs the result of stage {i - 1}, which is not held"
            )
        fresh = 0
        if kind == "all":
            self.saved.add(i)
            self.values.discard(i)
        elif i not in self.values and i not in self.saved:
            self.values.add(i)
        else:
            fresh = stage.output
        self.seconds += stage.forward
        self.forwards += 1
        self.peak = max(self.peak, self.held() + fresh + stage.scratch(kind == "all"))
        if kind == "keep":
            self.kept.add(i - 1)
        elif kind == "none" and i - 1 not in self.kept:
            self.values.discard(i - 1)
        self.most = max(self.most, len(self.kept))

    def back(self, i: int) -> None:
        if i != self.next_back or i not in self.saved:
            raise ArgumentError(
                f"simulate: ('back', {i}) runs when stage {self.next_back} is next"
                + ("" if i in self.saved else f" and stage {i} is not saved")
            )
        if i - 1 not in self.values and i - 1 not in self.saved:
            raise ArgumentError(f"simulate: ('back', {i}) needs its input, which is not held")
        stage = self.stages[i - 1]
        self.peak = max(self.peak, self.held() + self.size[i - 1] + stage.backward_extra)
        self.seconds += stage.backward
        self.saved.discard(i)
        self.gradients += stage.gradients
        self.next_back = i - 1
        if i > 1:
            self.values.discard(i - 1)
            self.kept.discard(i - 1)


def simulate(
    stages: Sequence[Stage], steps: Iterable[ChainStep], input_bytes: int = 0
) -> ChainRun:
    """Execute `steps` and measure; raises `ArgumentError` on a step that cannot run.

    Live at any time: the chain's input, held inputs, saved stages, the cotangent that backward
    has reached, gradients of parameters, and the scratch and results of the running pass.

    >>> simulate(equal_stages(3), [("all", 1), ("all", 2), ("all", 3),
    ...                            ("back", 3), ("back", 2), ("back", 1)]).seconds
    9.0
    """
    chain = _Chain(stages, input_bytes)
    for kind, i in steps:
        if kind not in ("keep", "none", "all", "back") or not 1 <= i <= len(stages):
            raise ArgumentError(
                f"simulate: step ({kind!r}, {i}); kinds are keep, none, all, back and stages 1 "
                f"to {len(stages)}"
            )
        chain.step(kind, i)
    if chain.next_back:
        raise ArgumentError(f"simulate: the backward pass stops before stage {chain.next_back}")
    return ChainRun(chain.seconds, chain.peak, chain.forwards, chain.most)


# ---------------------------------------------------------------------------------------------
# Equal stages


def revolve_reach(checkpoints: int, repeats: int) -> int:
    """The longest chain that needs no stage to run more than `repeats` extra times.

    It is the binomial coefficient C(checkpoints + repeats, checkpoints); the chain's input counts
    as one of the checkpoints.

    >>> revolve_reach(3, 2)
    10
    """
    return comb(checkpoints + repeats, checkpoints) if repeats >= 0 else 0


def _repeats(n: int, checkpoints: int) -> int:
    r = 0
    while revolve_reach(checkpoints, r) < n:
        r += 1
    return r


def revolve_cost(n: int, checkpoints: int) -> int:
    """The fewest extra stage runs to reverse `n` equal stages with so many checkpoints.

    r n - C(c + r, c + 1) with the smallest r for which C(c + r, c) >= n (Griewank and Walther,
    eq. 2); the n runs that save for backward come on top.

    >>> revolve_cost(10, 3)
    15
    """
    _check_equal(n, checkpoints)
    r = _repeats(n, checkpoints)
    return r * n - comb(checkpoints + r, checkpoints + 1)


def _check_equal(n: int, checkpoints: int) -> None:
    if n < 1 or checkpoints < 1:
        raise ArgumentError(
            f"revolve: n={n} stages with {checkpoints} checkpoints; both have to be at least 1 "
            "(the chain's input is a checkpoint)"
        )


def revolve(n: int, checkpoints: int) -> list[ChainStep]:
    """The optimal schedule for `n` equal stages and at most `checkpoints` held inputs.

    >>> steps = revolve(10, 3)
    >>> run = simulate(equal_stages(10), steps)
    >>> run.forwards - 10, run.checkpoints
    (15, 3)
    """
    _check_equal(n, checkpoints)
    steps: list[ChainStep] = []
    pending = [(1, n, checkpoints)]
    while pending:
        first, length, c = pending.pop()
        if length == 1:
            steps += [("all", first), ("back", first)]
            continue
        advance = _revolve_split(length, c)
        steps.append(("keep", first))
        steps += [("none", i) for i in range(first + 1, first + advance)]
        pending.append((first, advance, c))
        pending.append((first + advance, length - advance, max(c - 1, 1)))
    return steps


def _revolve_split(length: int, checkpoints: int) -> int:
    """How far to advance before the next checkpoint."""
    if checkpoints == 1:
        return length - 1
    r = _repeats(length, checkpoints)
    least = length - revolve_reach(checkpoints - 1, r)
    return min(length - 1, max(1, least, revolve_reach(checkpoints, r - 2)))


def sqrt_chain(n: int, segments: int | None = None, slots: int | None = None) -> list[ChainStep]:
    """Checkpoints at the starts of segments; each segment runs forward once more, but the last,
    which is saved at once.

    With `segments` they are equal. With `slots` there is room for so many arrays: the checkpoints
    that are alive and the segment that is walked back. A segment with fewer checkpoints before it
    is the longer for that, and the last, which is not run again, as long as the room allows: the
    fewest runs. Room is needed for sqrt(2 n); `ArgumentError` names the least. Without either
    there are `sqrt_slots(n)`.

    >>> run = simulate(equal_stages(100), sqrt_chain(100, slots=20))
    >>> run.peak, run.forwards
    (22, 185)
    """
    if n < 1:
        raise ArgumentError(f"sqrt_chain: n={n} stages; there has to be at least one")
    if segments is None:
        edges = _descending(n, sqrt_slots(n) if slots is None else slots)
    else:
        count = min(n, segments)
        edges = [round(k * n / count) for k in range(count + 1)]
    steps: list[ChainStep] = []
    for low, high in zip(edges[:-2], edges[1:-1], strict=True):
        steps.append(("keep", low + 1))
        steps += [("none", i) for i in range(low + 2, high + 1)]
    for low, high in reversed(list(zip(edges[:-1], edges[1:], strict=True))):
        steps += [("all", i) for i in range(low + 1, high + 1)]
        steps += [("back", i) for i in range(high, low, -1)]
    return steps


def sqrt_slots(n: int) -> int:
    """Arrays at the peak of a chain of n stages where nothing else is said: an eighth of what the
    plain chain holds, but at least 2 sqrt(n) and at most 4 sqrt(n).

    With 2 sqrt(n) of 1000 stages 956 run again, with 4 sqrt(n) 884.

    >>> [sqrt_slots(n) for n in (16, 400, 1000, 10_000)]
    [8, 50, 124, 400]
    """
    return max(2 * isqrt(n), min(4 * isqrt(n), n // 8))


def _descending(n: int, slots: int) -> list[int]:
    """Where segments of at most slots, slots - 1, slots - 2, ... stages begin, and the end: all
    full but the first, in as few as hold the chain."""
    count = size = 0
    while size < n and count < slots:
        size += slots - count
        count += 1
    if size < n:
        least = isqrt(2 * n)
        least += least * (least + 1) < 2 * n
        raise ArgumentError(f"sqrt_chain: {slots} slots hold {size} stages at most, not {n}: "
                            f"give at least {least}, or fewer with log_chain or revolve")
    edges = [n]
    for k in range(count - 1, 0, -1):
        edges.append(edges[-1] - (slots - k))
    return [0, *reversed(edges)]


def log_chain(n: int) -> list[ChainStep]:
    """Recursive halving: about log2(n) checkpoints, about n log2(n) / 2 extra stage runs.

    >>> run = simulate(equal_stages(1024), log_chain(1024))
    >>> run.checkpoints, run.forwards
    (10, 6144)
    """
    if n < 1:
        raise ArgumentError(f"log_chain: n={n} stages; there has to be at least one")
    steps: list[ChainStep] = []
    pending = [(1, n)]
    while pending:
        first, length = pending.pop()
        if length == 1:
            steps += [("all", first), ("back", first)]
            continue
        half = length // 2
        steps.append(("keep", first))
        steps += [("none", i) for i in range(first + 1, first + half)]
        pending += [(first, half), (first + half, length - half)]
    return steps


# ---------------------------------------------------------------------------------------------
# Unequal stages


class _Table:
    """The dynamic program. `best[s, t][m]`: least seconds for stages s..t in m units of memory.

    The input of stage s is held outside of m; the cotangent of stage t's result is inside, and so
    are the gradients that later stages have left.
    """

    def __init__(self, stages: Sequence[Stage], input_bytes: int, room: int, unit: int) -> None:
        def units(size: int) -> int:
            return -(-size // unit)

        self.n, self.room = len(stages), room
        self.value = [units(input_bytes), *(units(s.output) for s in stages)]
        self.saved = [0, *(units(s.saved) for s in stages)]
        self.forward_extra = [0, *(units(s.forward_extra) for s in stages)]
        self.saving_extra = [0, *(units(s.scratch(True)) for s in stages)]
        self.backward_extra = [0, *(units(s.backward_extra) for s in stages)]
        left = np.cumsum([0, *(s.gradients for s in reversed(stages))])[::-1]
        self.left = [units(int(b)) for b in left]        # by the stages after each
        self.forward = [0.0, *(s.forward for s in stages)]
        self.backward = [0.0, *(s.backward for s in stages)]
        self.before = np.concatenate(([0.0, 0.0], np.cumsum(self.forward[1:])))
        self.best: dict[tuple[int, int], NDArray[np.float64]] = {}
        for length in range(1, self.n + 1):
            for s in range(1, self.n - length + 2):
                self.best[s, s + length - 1] = self.fill(s, s + length - 1)

    def fill(self, s: int, t: int) -> NDArray[np.float64]:
        best = self.save_all(s, t)
        for cut in range(s + 1, t + 1):
            np.minimum(best, self.checkpoint(s, t, cut), out=best)
        return best

    def shifted(self, s: int, t: int, size: int) -> NDArray[np.float64]:
        """`best[s, t]` with `size` units of memory taken away."""
        out = np.full(self.room + 1, np.inf)
        if size <= self.room:
            out[size:] = self.best[s, t][: self.room + 1 - size]
        return out

    def save_all(self, s: int, t: int) -> NDArray[np.float64]:
        """Save stage s, do the rest, run its backward pass."""
        need = max(
            self.value[t] + self.left[t] + self.saved[s] + self.saving_extra[s],
            self.value[s] + self.left[s] + self.saved[s] + self.value[s - 1]
            + self.backward_extra[s],
        )
        if s == t:
            rest = np.zeros(self.room + 1)
        else:
            rest = self.shifted(s + 1, t, self.saved[s])
        rest = rest + (self.forward[s] + self.backward[s])
        rest[: min(need, self.room + 1)] = np.inf
        return rest

    def checkpoint(self, s: int, t: int, cut: int) -> NDArray[np.float64]:
        """Run s..cut-1 holding only their end, do cut..t, then s..cut-1 again from the input."""
        seconds = self.before[cut] - self.before[s]
        total = self.shifted(cut, t, self.value[cut - 1]) + self.best[s, cut - 1] + seconds
        total[: min(self.advance_need(s, t, cut), self.room + 1)] = np.inf
        return np.asarray(total)

    def advance_need(self, s: int, t: int, cut: int) -> int:
        need = self.value[s] + self.forward_extra[s]
        for j in range(s + 1, cut):
            need = max(need, self.value[j - 1] + self.value[j] + self.forward_extra[j])
        return need + self.value[t] + self.left[t]

    def steps(self) -> list[ChainStep]:
        """Read the schedule back from the table."""
        out: list[ChainStep] = []
        pending: list[tuple[int, int, int]] = [(1, self.n, self.room)]
        while pending:
            s, t, m = pending.pop()
            if t == 0:
                out.append(("back", s))
                continue
            choices = [self.save_all(s, t)[m]]
            choices += [self.checkpoint(s, t, cut)[m] for cut in range(s + 1, t + 1)]
            pick = int(np.argmin(choices))
            if pick == 0:
                out.append(("all", s))
                pending.append((s, 0, 0))
                if s < t:
                    pending.append((s + 1, t, m - self.saved[s]))
                continue
            cut = s + pick
            out.append(("keep", s))
            out += [("none", j) for j in range(s + 1, cut)]
            pending += [(s, cut - 1, m), (cut, t, m - self.value[cut - 1])]
        return out


def optimal_chain(
    stages: Sequence[Stage], budget: int, *, input_bytes: int = 0, units: int = 500
) -> ChainPlan:
    """The fastest schedule whose peak is at most `budget` bytes, for unequal stages.

    Optimal among schedules that hold a checkpoint until its segment is done, when the sizes are
    counted in whole units: bytes are rounded up to `budget / units` (so the budget always
    holds; exact when `budget <= units`). Time O(n^3 units), vectorised over memory. Raises
    `ArgumentError` with the least budget when nothing fits.

    >>> chain = [Stage(1, 2, 4, 2), Stage(3, 6, 6, 2), Stage(1, 2, 4, 2), Stage(1, 2, 1, 1)]
    >>> plan = optimal_chain(chain, 16)
    >>> plan.seconds, plan.peak <= 16
    (19.0, True)
    """
    if not stages or units < 1:
        raise ArgumentError(f"optimal_chain: {len(stages)} stages, units={units}; give at least 1")
    unit = max(1, -(-budget // units))
    table = _Table(stages, input_bytes, max(0, (budget - input_bytes) // unit), unit)
    seconds = float(table.best[1, len(stages)][-1])
    if seconds == float("inf"):
        raise ArgumentError(
            f"optimal_chain: no schedule fits {budget:,} bytes; the least budget that works is "
            f"{least_chain_budget(stages, input_bytes=input_bytes, units=units):,} bytes"
        )
    steps = tuple(table.steps())
    run = simulate(stages, steps, input_bytes)
    return ChainPlan(steps, run.seconds, run.peak)


def least_chain_budget(
    stages: Sequence[Stage], *, input_bytes: int = 0, units: int = 500
) -> int:
    """A budget in bytes that `optimal_chain` accepts, at most 0.2% above the smallest one.

    >>> least_chain_budget([Stage(1, 2, 4, 2), Stage(1, 2, 4, 2), Stage(1, 2, 1, 1)])
    10
    """
    top = 2 * input_bytes + sum(
        s.saved + 2 * s.output + s.forward_extra + s.scratch(True) + s.backward_extra + s.gradients
        for s in stages
    )
    low, high = 0, top + len(stages) * (top // units + 1)
    while high - low > max(1, high // 500):
        middle = (low + high) // 2
        unit = max(1, -(-middle // units))
        table = _Table(stages, input_bytes, max(0, (middle - input_bytes) // unit), unit)
        if np.isfinite(table.best[1, len(stages)][-1]):
            high = middle
        else:
            low = middle
    return high
