"""How good the planners are: against proven optima on small graphs, against theory on chains.

    python -m benchmarks.planner                    # graphs of 20 to 60 operations, chains of 1000
    python -m benchmarks.planner --time-limit 600   # let the solver prove more
    python -m benchmarks.planner --chains-only

The integer program (HiGHS) is given the heuristic's time as an upper bound; `bound` is what it
proved no plan can beat, so `above` is the most that the heuristic can be away from the optimum.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from adjoint.memory import chains, milp
from adjoint.memory.planner import BudgetError, Planner
from adjoint.memory.traces import Trace, TraceOp
from benchmarks import dtr


def once(trace: Trace, limit: int) -> Trace:
    """`trace` with its backward operations marked as run once, cut to whole operations.

    The backward part starts with the operation that makes the loss's gradient.
    """
    ops = tuple(
        op if not (op.name.endswith("_backward") or op.name in ("ones", "accumulate"))
        else TraceOp(op.name, op.inputs, op.outputs, op.seconds, op.workspace, False)
        for op in trace.ops
    )
    if len(ops) > limit:
        raise SystemExit(f"{trace.name}: {len(ops)} operations, more than {limit}")
    return Trace(ops, trace.nbytes, trace.keep, f"{trace.name}-{len(ops)}")


def small_graphs() -> list[Trace]:
    """Traces of at most 60 operations of several kinds."""
    return [
        once(t, milp.LARGEST)
        for t in (
            dtr._residual_net("resnet", [(2, 64)], 28, 16),
            dtr.transformer(layers=1),
            dtr.unrolled_gan(unroll=1, layers=2),
            dtr.densenet(layers=2),
            dtr.unet(depth=1, side=64),
            dtr.lstm(steps=1),
        )
    ]


def against_optimum(trace: Trace, ratios: Sequence[float], time_limit: float) -> float:
    """Print heuristic and proven bound by budget; the largest share above the bound."""
    start = time.perf_counter()
    planner = Planner(trace)
    took = time.perf_counter() - start
    peak, worst = trace.peak(), 0.0
    print(f"{trace.name}: all budgets planned in {took:.1f} s")
    for ratio in ratios:
        budget = int(peak * ratio)
        try:
            ours = planner.plan(budget)
        except BudgetError as error:
            print(f"  {ratio:.2f}  least budget {error.least / peak:.3f} of the peak")
            break
        start = time.perf_counter()
        try:
            best = milp.solve(trace, budget, gap=1e-3, time_limit=time_limit,
                              below=ours.seconds * (1 + 1e-9))
        except milp.NoPlan:
            print(f"  {ratio:.2f}  heuristic {ours.overhead:.4f}  solver found no plan, no bound "
                  f"is proved ({time.perf_counter() - start:.0f} s)", flush=True)
            continue
        above = ours.seconds / best.bound - 1
        worst = max(worst, above)
        print(
            f"  {ratio:.2f}  heuristic {ours.overhead:.4f}  solver "
            f"{best.seconds / trace.seconds:.4f}  bound {best.bound / trace.seconds:.4f}  "
            f"above {above:.2%}  ({time.perf_counter() - start:.0f} s)", flush=True,
        )
    return worst


def chain_table(n: int) -> None:
    """Memory and time of the placements on `n` equal stages (forward : backward = 1 : 2)."""
    stages = chains.equal_stages(n)
    plain = [("all", i) for i in range(1, n + 1)] + [("back", i) for i in range(n, 0, -1)]
    base = chains.simulate(stages, plain)
    print(f"{n} equal stages: placement, peak in stage results, time")
    print(f"  {'save all':16} {base.peak:5}  1.000")
    rows = [("sqrt", chains.sqrt_chain(n)), ("log (halving)", chains.log_chain(n))]
    rows += [(f"revolve {c}", chains.revolve(n, c)) for c in (10, 20, 45)]
    for name, steps in rows:
        run = chains.simulate(stages, steps)
        print(f"  {name:16} {run.peak:5}  {run.seconds / base.seconds:.3f}")
    short = chains.equal_stages(100)
    for budget in (12, 22, 40):
        plan = chains.optimal_chain(short, budget)
        print(f"  dynamic program, 100 stages, {budget}: peak {plan.peak}, "
              f"{plan.seconds / 300:.3f}")


def main(argv: Sequence[str] | None = None) -> int:
    """Print both tables; 1 if a heuristic plan is more than 1% above a proven bound."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ratios", type=float, nargs="+", default=[0.9, 0.8, 0.7, 0.6, 0.5])
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--chains-only", action="store_true")
    args = parser.parse_args(argv)
    chain_table(1000)
    if args.chains_only:
        return 0
    worst = max(against_optimum(t, args.ratios, args.time_limit) for t in small_graphs())
    print(f"largest share above a proven bound: {worst:.2%}")
    return int(worst > 0.01)


if __name__ == "__main__":
    raise SystemExit(main())
