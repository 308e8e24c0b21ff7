"""Checkpoint placement on chains: closed forms, brute force, budgets (F71, issue 5.4)."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from functools import cache
from math import comb, log2

import pytest

from adjoint.base.errors import ArgumentError
from adjoint.memory import chains
from adjoint.memory.chains import Stage, equal_stages, simulate


@cache
def fewest_advances(n: int, c: int) -> int:
    """The definition: try every first checkpoint position."""
    if n == 1:
        return 0
    if c == 1:
        return n * (n - 1) // 2
    return min(m + fewest_advances(n - m, c - 1) + fewest_advances(m, c) for m in range(1, n))


@pytest.mark.parametrize("c", [1, 2, 3, 4, 6])
def test_revolve_is_optimal(c: int) -> None:
    for n in range(1, 41):
        assert chains.revolve_cost(n, c) == fewest_advances(n, c)
        run = simulate(equal_stages(n), chains.revolve(n, c))
        assert run.forwards - n == fewest_advances(n, c)
        assert run.checkpoints <= c


@pytest.mark.parametrize(("s", "r"), [(2, 2), (3, 2), (3, 3), (4, 2), (5, 3)])
def test_revolve_reaches_binomial_lengths(s: int, r: int) -> None:
    """No stage runs more than r extra times up to C(s + r, s) stages; one more needs r + 1."""

    def most_runs(n: int) -> int:
        runs = [0] * (n + 1)
        for kind, i in chains.revolve(n, s):
            runs[i] += kind != "back"
        return max(runs) - 1

    reach = comb(s + r, s)
    assert chains.revolve_reach(s, r) == reach
    assert most_runs(reach) == r
    assert most_runs(reach + 1) == r + 1


def test_thousand_layers_in_sqrt_memory() -> None:
    """Chen 2016: O(sqrt n) memory for at most one extra forward pass (1.33x of 1:2 passes)."""
    stages = equal_stages(1000)
    plain = [("all", i) for i in range(1, 1001)] + [("back", i) for i in range(1000, 0, -1)]
    base = simulate(stages, plain)
    assert base.peak > 1000
    for slots, again in ((62, 956), (93, 918), (None, 884), (124, 884)):
        run = simulate(stages, chains.sqrt_chain(1000, slots=slots))
        assert run.peak <= (slots or 4 * 31) + 2
        assert run.forwards == 1000 + again
        assert run.seconds <= 1.33 * base.seconds


def test_sqrt_chain_runs_the_fewest_in_its_room() -> None:
    """The dynamic program, which may run stages any number of times, runs no fewer at any peak."""
    for n in (1, 2, 3, 5, 8, 13, 20, 31):
        least = next(s for s in range(1, n + 1) if s * (s + 1) >= 2 * n)
        for slots in range(least, n + 2):
            run = simulate(equal_stages(n), chains.sqrt_chain(n, slots=slots))
            assert run.peak <= slots + 2
            best = chains.optimal_chain(equal_stages(n), run.peak)
            assert simulate(equal_stages(n), best.steps).forwards == run.forwards
        with pytest.raises(ArgumentError, match=rf"not {n}: give at least {least}, or"):
            chains.sqrt_chain(n, slots=least - 1)


@pytest.mark.parametrize("n", [1, 3, 4, 12, 100, 255, 256, 500, 1024, 5000])
def test_default_room_grows_with_the_root(n: int) -> None:
    slots = chains.sqrt_slots(n)
    assert 2 * math.isqrt(n) <= slots <= 4 * n**0.5
    assert slots <= max(n / 8, 2 * n**0.5)
    assert simulate(equal_stages(n), chains.sqrt_chain(n)).peak <= slots + 2


def test_thousand_layers_in_log_memory() -> None:
    run = simulate(equal_stages(1000), chains.log_chain(1000))
    assert run.checkpoints <= 1 + log2(1000)
    assert run.peak <= 2 + 2 * log2(1000)
    assert run.forwards <= 1000 + 1000 * log2(1000)


def exhaustive(stages: list[Stage], input_bytes: int) -> list[tuple[float, int]]:
    """(seconds, peak) of every persistent schedule, each measured by the simulator."""

    @cache
    def trees(s: int, t: int) -> tuple[tuple[chains.ChainStep, ...], ...]:
        out = []
        rests = trees(s + 1, t) if s < t else ((),)
        out += [(("all", s), *rest, ("back", s)) for rest in rests]
        for cut in range(s + 1, t + 1):
            run = (("keep", s), *(("none", j) for j in range(s + 1, cut)))
            for right, left in itertools.product(trees(cut, t), trees(s, cut - 1)):
                out.append((*run, *right, *left))
        return tuple(out)

    runs = [simulate(stages, steps, input_bytes) for steps in trees(1, len(stages))]
    return [(r.seconds, r.peak) for r in runs]


def random_stages(n: int, seed: int) -> list[Stage]:
    rng = random.Random(seed)
    stages = []
    for _ in range(n):
        out = rng.randint(1, 9)
        stages.append(
            Stage(rng.randint(1, 9), rng.randint(2, 18), out + rng.randint(0, 12), out,
                  rng.randint(0, 4), rng.randint(0, 4))
        )
    return stages


def with_gradients(stages: list[Stage]) -> list[Stage]:
    """The same with scratch of its own where they save, and gradients of parameters."""
    rng = random.Random(len(stages))
    return [dataclasses.replace(s, saving_extra=rng.randint(0, 6), gradients=g,
                                backward_extra=s.backward_extra + g)
            for s in stages for g in [rng.randint(0, 5)]]


@pytest.mark.parametrize("seed", range(3))
def test_dynamic_program_equals_brute_force(seed: int) -> None:
    """All 1,806 schedules of a 7-stage chain, at every distinct peak."""
    for stages in (random_stages(7, seed), with_gradients(random_stages(7, seed))):
        equals_brute_force(stages)


def equals_brute_force(stages: list[Stage]) -> None:
    runs = exhaustive(stages, 3)
    assert len(runs) == 1806
    for budget in sorted({peak for _, peak in runs}):
        best = min(seconds for seconds, peak in runs if peak <= budget)
        plan = chains.optimal_chain(stages, budget, input_bytes=3)
        assert plan.seconds == best
        assert plan.peak <= budget


def pareto(stages: list[Stage], input_bytes: int) -> list[tuple[float, int]]:
    """The (seconds, peak) frontier of all persistent schedules, without a memory axis."""
    size = [input_bytes, *(s.output for s in stages)]

    def frontier(points: set[tuple[float, int]]) -> tuple[tuple[float, int], ...]:
        best: list[tuple[float, int]] = []
        for seconds, peak in sorted(points):
            if not best or peak < best[-1][1]:
                best.append((seconds, peak))
        return tuple(best)

    @cache
    def solve(s: int, t: int) -> tuple[tuple[float, int], ...]:
        st, points = stages[s - 1], set()
        here = max(
            size[t] + st.saved + st.forward_extra,
            size[s] + st.saved + size[s - 1] + st.backward_extra,
        )
        for seconds, peak in solve(s + 1, t) if s < t else ((0.0, 0),):
            points.add((seconds + st.forward + st.backward, max(here, peak + st.saved)))
        for cut in range(s + 1, t + 1):
            need = size[t] + size[s] + st.forward_extra
            for j in range(s + 1, cut):
                extra = stages[j - 1].forward_extra
                need = max(need, size[t] + size[j - 1] + size[j] + extra)
            forward = sum(stages[j - 1].forward for j in range(s, cut))
            for (a, p), (b, q) in itertools.product(solve(cut, t), solve(s, cut - 1)):
                points.add((a + b + forward, max(need, p + size[cut - 1], q)))
        return frontier(points)

    return [(seconds, peak + input_bytes) for seconds, peak in solve(1, len(stages))]


@pytest.mark.parametrize("seed", range(4))
def test_dynamic_program_equals_frontier_up_to_ten_stages(seed: int) -> None:
    stages = random_stages(10, 100 + seed)
    for seconds, peak in pareto(stages, 2):
        plan = chains.optimal_chain(stages, peak, input_bytes=2)
        assert (plan.seconds, plan.peak) == (seconds, peak)


def test_budget_holds_when_bytes_are_rounded() -> None:
    stages = [
        Stage(s.forward, s.backward, s.saved * 1_000_003, s.output * 999_983, 7, 11)
        for s in random_stages(8, 7)
    ]
    full = simulate(
        stages, [("all", i) for i in range(1, 9)] + [("back", i) for i in range(8, 0, -1)]
    )
    times = []
    for share in (1.1, 0.8, 0.6, 0.5):
        plan = chains.optimal_chain(stages, int(full.peak * share), units=300)
        assert plan.peak <= full.peak * share
        times.append(plan.seconds)
    assert times == sorted(times) and times[0] == full.seconds < times[-1]


def test_too_small_a_budget_names_the_least_one() -> None:
    stages = random_stages(6, 3)
    least = chains.least_chain_budget(stages, input_bytes=1)
    assert chains.optimal_chain(stages, least, input_bytes=1).peak <= least
    with pytest.raises(ArgumentError, match=f"least budget that works is {least:,} bytes"):
        chains.optimal_chain(stages, least - 1, input_bytes=1)


def test_wrong_schedules_are_refused() -> None:
    stages = equal_stages(2)
    with pytest.raises(ArgumentError, match="needs the result of stage 1"):
        simulate(stages, [("all", 2)])
    with pytest.raises(ArgumentError, match="stage 2 is not saved"):
        simulate(stages, [("all", 1), ("none", 2), ("back", 2)])
    with pytest.raises(ArgumentError, match="stops before stage 2"):
        simulate(stages, [("all", 1), ("all", 2)])
