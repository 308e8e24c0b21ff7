"""Plans for recorded steps: exact peaks, optimality, monotone budgets, spilling (issue 5.6)."""

from __future__ import annotations

import itertools
import random
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adjoint.base.errors import ArgumentError, NotSupported
from adjoint.memory import milp, planner
from adjoint.memory.layout import Graph, Layout
from adjoint.memory.planner import BudgetError, Plan, Planner, make_plan
from adjoint.memory.traces import Trace, TraceOp, read_log, replay, write_log

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks import dtr  # noqa: E402  (the benchmarks are not part of the package)
from benchmarks.planner import once  # noqa: E402

Node = tuple[list[int], int, float, str]
# Wall-clock seconds, as good as no limit: the solver's path does not depend on the clock, and the
# slowest case takes 3 seconds of processor time, which a busy machine may stretch at will.
PATIENCE = 3600.0


def differentiate(forward: list[Node], name: str) -> Trace:
    """A trace from forward nodes (inputs, bytes, seconds, what backward reads: in, out, both)."""
    ops: list[TraceOp] = []
    nbytes = [4]
    out: list[int] = []
    for k, (inputs, size, seconds, _) in enumerate(forward):
        nbytes.append(size)
        out.append(len(nbytes) - 1)
        reads = tuple(out[i] if i >= 0 else 0 for i in inputs)
        ops.append(TraceOp(f"f{k}", reads, (out[k],), seconds))
    grads: dict[int, list[int]] = {}
    for k in reversed(range(len(forward))):
        inputs, size, seconds, saves = forward[k]
        reads = tuple(out[i] if i >= 0 else 0 for i in inputs) if saves != "out" else ()
        reads += (out[k],) if saves != "in" else ()
        made = []
        for i in inputs:
            if i >= 0:
                nbytes.append(forward[i][1])
                grads.setdefault(i, []).append(len(nbytes) - 1)
                made.append(len(nbytes) - 1)
        nbytes.append(max(1, size // 50))
        read = tuple(dict.fromkeys((*reads, *grads.get(k, []))))
        ops.append(TraceOp(f"b{k}", read, (*made, len(nbytes) - 1), 2 * seconds, 0, False))
    return Trace(tuple(ops), tuple(nbytes), set(), name)


@cache
def chain(n: int, seed: int) -> Trace:
    rng = random.Random(seed)
    nodes = [
        ([k - 1], rng.randint(20, 200), rng.uniform(1, 10), rng.choice(["in", "out", "both"]))
        for k in range(n)
    ]
    return differentiate(nodes, f"chain {n}")


@cache
def skips(n: int, seed: int) -> Trace:
    rng = random.Random(seed)
    nodes: list[Node] = []
    for k in range(n):
        inputs = [k - 1]
        if k > 3 and rng.random() < 0.35:
            inputs.append(rng.randint(max(0, k - 8), k - 2))
        saves = rng.choice(["in", "out", "both"])
        nodes.append((inputs, rng.randint(20, 200), rng.uniform(1, 10), saves))
    return differentiate(nodes, f"skips {n}")


@cache
def unet(depth: int) -> Trace:
    nodes: list[Node] = []
    held, last = [], -1

    def add(inputs: list[int], size: float, seconds: float) -> int:
        nodes.append((inputs, int(size) + 4, seconds, "in"))
        return len(nodes) - 1

    for level in range(depth):
        for _ in range(2):
            last = add([last], 160 / 2**level, 8 * 0.8**level)
        held.append(last)
        last = add([last], 40 / 2**level, 0.5)
    for level in reversed(range(depth)):
        last = add([last], 160 / 2**level, 2 * 0.8**level)
        last = add([last, held[level]], 320 / 2**level, 0.5)
        last = add([last], 160 / 2**level, 10 * 0.8**level)
    return differentiate(nodes, f"unet {depth}")


@cache
def planned(trace: Trace) -> Planner:
    return Planner(trace, rungs=40 if len(trace.ops) < 40 else 10)


GRAPHS = [chain(8, 0), chain(14, 3), skips(10, 1), skips(12, 5), unet(2)]
LARGE = [once(dtr.densenet(layers=2), 60), once(dtr.unet(depth=1, side=64), 60)]


# ------------------------------------------------------------------ traces and replay


def test_replay_counts_inputs_outputs_and_scratch() -> None:
    ops = (
        TraceOp("a", (0,), (1,), 1.0, 7), TraceOp("b", (1,), (2,), 2.0),
        TraceOp("c", (2,), (3,), 3.0),
    )
    trace = Trace(ops, (100, 10, 20, 30), {3})
    done = replay(trace, trace.base_schedule())
    assert done.curve == (117, 130, 150)
    assert (done.peak, done.seconds, done.recomputed) == (150, 6.0, 0)
    assert trace.floor() == 150 and trace.resident == 100


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([("run", 1)], "reads tensor 1, which is not live"),
        ([("run", 0)], "ends after op 0"),
        ([("run", 0), ("run", 1), ("drop", 2)], "tensors [2] of `keep` not live"),
        ([("drop", 1)], "tensor 1 is not live"),
        ([("run", 0), ("load", 1)], "not possible"),
    ],
)
def test_replay_refuses_wrong_schedules(steps: list[tuple[str, int]], message: str) -> None:
    trace = Trace((TraceOp("a", (0,), (1,), 1.0), TraceOp("b", (1,), (2,), 1.0)), (8, 4, 4), {2})
    with pytest.raises(ArgumentError) as caught:
        replay(trace, steps)
    assert message in str(caught.value)


def test_a_value_is_made_once() -> None:
    ops = (TraceOp("a", (), (0,), 1.0), TraceOp("b", (), (0,), 1.0))
    with pytest.raises(ArgumentError, match="makes tensor 0, which was already made"):
        Trace(ops, (4,))
    with pytest.raises(ArgumentError, match="names tensor 3"):
        Trace((TraceOp("a", (3,), (0,), 1.0),), (4,))


@pytest.mark.parametrize("kind", ["resnet", "unrolled_gan", "treelstm"])
def test_dtr_log_round_trip(kind: str, tmp_path: Path) -> None:
    trace = dtr.KINDS[kind]()
    write_log(trace, tmp_path / "x.log")
    back = read_log(tmp_path / "x.log")
    assert [op.name for op in back.ops] == [op.name for op in trace.ops]
    assert back.peak() == trace.peak()
    assert back.seconds == pytest.approx(trace.seconds, rel=1e-3)


def test_dtr_log_aliases_copies_and_mutations(tmp_path: Path) -> None:
    log = tmp_path / "small.log"
    log.write_text(
        '{"INSTRUCTION": "ANNOTATE", "ANNOTATION": "START"}\n'
        '{"INSTRUCTION": "CONSTANT", "NAME": "w"}\n'
        '{"INSTRUCTION": "MEMORY", "NAME": "w", "MEMORY": "100"}\n'
        '{"INSTRUCTION": "CALL", "NAME": "relu", "ARGS": ["w"], "RESULT": ["x"], "TIME": "1000"}\n'
        '{"INSTRUCTION": "MEMORY", "NAME": "x", "MEMORY": "40"}\n'
        '{"INSTRUCTION": "ALIAS", "NAME": "x", "ALIAS": "-1"}\n'
        '{"INSTRUCTION": "CALL", "NAME": "view", "ARGS": ["x"], "RESULT": ["v"], "TIME": "10"}\n'
        '{"INSTRUCTION": "MEMORY", "NAME": "v", "MEMORY": "40"}\n'
        '{"INSTRUCTION": "ALIAS", "NAME": "v", "ALIAS": "0"}\n'
        '{"INSTRUCTION": "RELEASE", "NAME": "x"}\n'
        '{"INSTRUCTION": "COPY", "DST": "u", "SRC": "v"}\n'
        '{"INSTRUCTION": "MUTATE", "NAME": "add_", "ARGS": ["v", "w"], "MUTATE": [0], '
        '"TIME": "500"}\n'
        '{"INSTRUCTION": "RELEASE", "NAME": "u"}\n',
        encoding="utf-8",
    )
    trace = read_log(log)
    assert [op.name for op in trace.ops] == ["relu", "view", "add_"]
    assert trace.resident == 100
    assert trace.peak() == 100 + 40 + 40
    assert [trace.nbytes[t] for t in trace.keep] == [40]
    log.write_text('{"INSTRUCTION": "JUMP"}\n', encoding="utf-8")
    with pytest.raises(ArgumentError, match=r"line 1: .*JUMP"):
        read_log(log)


# ------------------------------------------------------------------ plans


def check(trace: Trace, plan: Plan, budget: int) -> None:
    """The plan's peak and time are those of executing its schedule, and the budget holds."""
    done = replay(trace, plan.steps)
    assert done.peak == plan.peak <= budget
    assert done.seconds == pytest.approx(plan.seconds, rel=1e-12)
    assert done.recomputed == len(plan.runs)


def test_layout_equals_replay_on_random_plans() -> None:
    """The fast profile against step-by-step execution, with several outputs and kept values."""
    rng = random.Random(0)
    trace = dtr.unrolled_gan(unroll=2)
    graph = Graph(trace)
    for _ in range(40):
        runs = []
        for _ in range(rng.randint(0, 30)):
            stage = rng.randrange(1, len(trace.ops) + 1)
            runs.append((stage, rng.randrange(stage)))
        plan = make_plan(graph, graph.pack(set(runs)))
        check(trace, plan, plan.peak)


def brute_force(trace: Trace, budget: int) -> float:
    """The least time over all sets of runs, by trying all of them."""
    graph = Graph(trace)
    n = len(trace.ops)
    choices = [
        (t, i) for t in range(n) for i in range(t) if trace.ops[i].recomputable and t > n // 2
    ]
    best = float("inf")
    for count in range(4):
        for runs in itertools.combinations(choices, count):
            layout = Layout(graph, graph.pack(runs))
            if layout.peak <= budget:
                best = min(best, layout.cost)
    return best


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_integer_program_equals_brute_force(seed: int) -> None:
    """All plans with up to three runs, on a trace of ten operations."""
    pytest.importorskip("scipy")
    trace = chain(5, seed)
    for share in (0.95, 0.85, 0.75):
        budget = int(trace.peak() * share)
        best = brute_force(trace, budget)
        if best == float("inf"):
            continue
        found = planner.plan(trace, budget, method="milp")
        check(trace, found, budget)
        if len(found.runs) <= 3:
            assert found.seconds == pytest.approx(best, rel=1e-9)
        assert found.seconds <= best * (1 + 1e-9)


@pytest.mark.parametrize("trace", [*GRAPHS, *LARGE], ids=lambda t: t.name)
@pytest.mark.parametrize("share", [0.8, 0.7, 0.6])
def test_heuristic_is_within_one_percent_of_the_optimum(trace: Trace, share: float) -> None:
    pytest.importorskip("scipy")
    budget = int(trace.peak() * share)
    try:
        best = milp.solve(trace, budget, time_limit=PATIENCE, gap=1e-3)
    except milp.NoPlan:
        with pytest.raises(BudgetError):
            planned(trace).plan(budget)
        return
    found = planned(trace).plan(budget)
    check(trace, found, budget)
    assert best.gap <= 1e-3
    assert found.seconds <= 1.01 * best.bound * (1 + best.gap)
    assert found.seconds >= best.bound * (1 - 1e-9)


@pytest.mark.parametrize("trace", [chain(8, 0), unet(2), skips(10, 1)], ids=lambda t: t.name)
def test_least_budget_is_the_true_one(trace: Trace) -> None:
    """What the error names is the smallest peak that any plan reaches, proven by the solver."""
    pytest.importorskip("scipy")
    least = milp.least_peak(trace, time_limit=PATIENCE)
    with pytest.raises(BudgetError, match=f"least budget that works is {least:,} bytes") as caught:
        planned(trace).plan(least - 1)
    assert caught.value.least == least
    check(trace, planned(trace).plan(least), least)
    with pytest.raises(BudgetError, match=f"works is {least:,} bytes"):
        planner.plan(trace, least - 1, method="milp")


@pytest.mark.parametrize(
    "trace", [*GRAPHS, skips(30, 2), dtr.transformer(layers=2)], ids=lambda t: t.name
)
def test_plans_are_monotone_in_the_budget(trace: Trace) -> None:
    """pytorch#197838: a smaller budget never has a larger peak, nor costs less."""
    full, least = trace.peak(), planned(trace).least()
    plans = [planned(trace).plan(int(b)) for b in np.linspace(full, least, 97)]
    for budget, plan in zip(np.linspace(full, least, 97), plans, strict=True):
        assert plan.peak <= budget
    for larger, smaller in itertools.pairwise(plans):
        assert smaller.peak <= larger.peak
        assert smaller.seconds >= larger.seconds
    assert plans[0].overhead == 1.0 and plans[0].runs == frozenset()
    for plan in plans[::24]:
        check(trace, plan, plan.peak)


def test_plans_are_reproducible() -> None:
    trace = skips(12, 9)
    assert Planner(trace).curve() == Planner(trace).curve()


def test_thousand_op_chain_reaches_sqrt_memory() -> None:
    """Chen 2016: at a few sqrt(n) values, no more than 1.35 times the time."""
    nodes: list[Node] = [([k - 1], 100, 1.0, "in") for k in range(200)]
    trace = differentiate(nodes, "equal chain")
    plans = Planner(trace, rungs=16, effort=0.0)
    found = plans.plan(int(100 * 3.2 * 200**0.5))
    check(trace, found, found.peak)
    assert found.overhead <= 1.35


def test_spilling_is_chosen_when_it_is_cheaper() -> None:
    trace = chain(8, 0)
    slow, budget = trace.seconds / len(trace.ops), int(trace.peak() * 0.6)
    quick = planner.plan(trace, budget, bandwidth=1000 * max(trace.nbytes) / slow)
    assert quick.loads and not quick.runs
    done = replay(trace, quick.steps, bandwidth=1000 * max(trace.nbytes) / slow)
    assert done.peak == quick.peak <= budget
    assert done.seconds <= quick.seconds * (1 + 1e-12)
    none = planner.plan(trace, budget, bandwidth=1e-9)
    assert not none.loads and none.seconds == planned(trace).plan(budget).seconds


def test_a_solver_without_time_still_gives_a_plan() -> None:
    """The heuristic's; and where that finds none, the least budget that it knows."""
    pytest.importorskip("scipy")
    trace = chain(8, 0)
    budget = trace.peak() * 4 // 5
    found = planner.plan(trace, budget, method="milp", time_limit=1e-3)
    check(trace, found, budget)
    assert found.seconds <= planned(trace).plan(budget).seconds * (1 + 1e-9)
    with pytest.raises(BudgetError, match="least budget that works is") as caught:
        planner.plan(trace, trace.floor() - 1, method="milp", time_limit=1e-3)
    assert trace.floor() <= caught.value.least <= planned(trace).least()


def test_a_solver_that_finds_nothing_gives_the_heuristics_plan(monkeypatch: Any) -> None:
    pytest.importorskip("scipy")
    trace = chain(8, 0)
    budget, asked = trace.peak() * 4 // 5, []

    def nothing(trace: Trace, budget: int, **options: Any) -> Any:
        asked.append(options["below"])
        raise milp.NoPlan("its time was over")

    monkeypatch.setattr(milp, "solve", nothing)
    found = planner.plan(trace, budget, method="milp")
    check(trace, found, budget)
    assert asked == [found.seconds * (1 + 1e-9)]


def test_spilling_agrees_with_the_integer_program() -> None:
    pytest.importorskip("scipy")
    trace = chain(8, 0)
    bandwidth = 60 * max(trace.nbytes) / trace.seconds
    for share in (0.8, 0.6):
        budget = int(trace.peak() * share)
        best = planner.plan(trace, budget, method="milp", bandwidth=bandwidth)
        found = planner.plan(trace, budget, bandwidth=bandwidth)
        assert best.loads or best.runs
        assert best.peak <= budget
        assert best.seconds * (1 - 1e-9) <= found.seconds <= 1.01 * best.seconds


def test_errors() -> None:
    trace = chain(8, 0)
    with pytest.raises(ArgumentError, match="'heuristic' or 'milp'"):
        planner.plan(trace, 10**6, method="guess")
    with pytest.raises(ArgumentError, match="at most 60"):
        planner.plan(chain(31, 0), 10**6, method="milp")
    with pytest.raises(ArgumentError, match="rungs=0"):
        Planner(trace, rungs=0)


def test_without_scipy_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(NotSupported, match="pip install scipy"):
        planner.plan(chain(8, 0), 10**6, method="milp")


# ------------------------------------------------------------------ the baseline


def test_dtr_keeps_its_budget_and_needs_nothing_at_the_full_peak() -> None:
    trace = dtr.transformer(layers=2)
    peak = trace.peak()
    assert dtr.run_dtr(trace, peak) == 1.0
    machine = dtr.Dtr(trace, int(0.6 * peak))
    assert machine.run() > trace.seconds
    assert machine.peak <= 0.6 * peak
    assert dtr.run_dtr(trace, trace.resident) == float("inf")


@pytest.mark.parametrize("kind", ["resnet", "transformer", "unet"])
def test_planner_beats_dtr_at_half_the_peak(kind: str) -> None:
    """Issue 5: extra time at most 0.75 of DTR's at budget ratio 0.5 (all kinds: benchmarks/dtr)."""
    small = {
        "resnet": lambda: dtr._residual_net("small", [(2, 64), (2, 128)], 28, 16),
        "transformer": lambda: dtr.transformer(layers=6),
        "unet": lambda: dtr.unet(depth=3, side=128),
    }
    trace = small[kind]()
    budget = trace.peak() // 2
    ours = Planner(trace, rungs=10, effort=0.25).plan(budget).overhead
    theirs = dtr.run_dtr(trace, budget)
    assert ours - 1 <= 0.75 * (theirs - 1)


def test_no_plan_is_cheaper_than_the_bound() -> None:
    """The bound of the benchmark: below the optimum, and above nothing where memory is short."""
    pytest.importorskip("scipy")
    trace = dtr._residual_net("two blocks", [(2, 16)], 32, 8)
    budget = int(trace.peak() * 0.65)
    bound = dtr.least_overhead(trace, budget)
    best = planner.plan(trace, budget, method="milp").overhead
    assert 1.0 < bound <= best * (1 + 1e-6)
    assert dtr.least_overhead(trace, trace.peak()) == 1.0
    chains = [chain(6, 0), chain(8, 0)]
    for t in chains:
        for share in (0.9, 0.75):
            within = int(t.peak() * share)
            assert dtr.least_overhead(t, within) <= planner.plan(
                t, within, method="milp").overhead * (1 + 1e-6)
