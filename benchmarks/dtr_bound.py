"""How low any plan's overhead can be on a trace: a linear program per operation, solved by HiGHS.

    python -m benchmarks.dtr_bound                              # resnet_cifar at half of its peak
    python -m benchmarks.dtr_bound --trace 'resnet_cifar, batch 17' --ratios 0.5 0.4

`benchmarks/dtr.py` prints a bound that it finds without a solver. This is a second way to it, which
shares no code with the first. While operation t runs for the first time, let a_x in [0, 1] say how
much of value x lies in memory, and r_i in [0, 1] that operation i < t runs again after t. A value
that a later operation reads and t does not touch is there or made again: a_x + r_producer(x) >= 1.
What runs again finds its operands there or made again: a_y + r_producer(y) >= r_i. And the bytes
fit: sum a_x |x| <= budget - what t holds - what always stays. Every plan, of whatever kind, gives
such numbers for every t, all of them 0 or 1, so that the least sum of r_i seconds is extra time
that every plan spends. The largest of these over all t is the bound. (SciPy is needed.)
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np

from adjoint.memory.planner import Planner
from adjoint.memory.traces import Trace
from benchmarks import dtr


def later_reads(trace: Trace) -> list[int]:
    """The last operation that reads each value; -1 where none does."""
    last = [-1] * len(trace.nbytes)
    for i, op in enumerate(trace.ops):
        for x in op.inputs:
            last[x] = i
    return last


def least_again(trace: Trace, t: int, budget: int, last: Sequence[int]) -> float:
    """The fewest seconds of operations before `t` that run again after it; inf if none fit."""
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    maker = {x: i for i, op in enumerate(trace.ops) for x in op.outputs}
    own = {*trace.ops[t].inputs, *trace.ops[t].outputs}
    values = [x for x, i in maker.items() if i < t and x not in own]
    column = {x: t + k for k, x in enumerate(values)}        # after the t columns of r
    rows: list[tuple[list[tuple[int, float]], float]] = []   # sum coefficient * variable <= bound
    for x in values:
        if last[x] > t:
            rows.append(([(column[x], -1.0), (maker[x], -1.0)], -1.0))
    for i in range(t):
        for y in trace.ops[i].inputs:
            if y in column:
                rows.append(([(i, 1.0), (column[y], -1.0), (maker[y], -1.0)], 0.0))
    held = sum(trace.nbytes[x] for x in own if x in maker)
    room = budget - trace.resident - trace.ops[t].workspace - held
    if not rows:
        return 0.0 if room >= 0 else float("inf")
    scale = float(max(trace.nbytes))
    rows.append(([(column[x], trace.nbytes[x] / scale) for x in values], room / scale))
    n = t + len(values)
    cost = np.zeros(n)
    cost[:t] = [trace.ops[i].seconds / trace.seconds for i in range(t)]
    at = [(k, j, c) for k, (row, _) in enumerate(rows) for j, c in row]
    i, j, c = (np.array(part) for part in zip(*at, strict=True))
    a = coo_array((c, (i.astype(int), j.astype(int))), shape=(len(rows), n)).tocsr()
    found = linprog(cost, A_ub=a, b_ub=[b for _, b in rows], bounds=(0, 1), method="highs")
    return float(found.fun) if found.status == 0 else float("inf")


def bound(trace: Trace, budget: int) -> tuple[float, int]:
    """(Overhead below which no plan is, the operation where that shows)."""
    last = later_reads(trace)
    found = [least_again(trace, t, budget, last) for t in range(1, len(trace.ops))]
    worst = max(range(len(found)), key=found.__getitem__)
    return 1 + found[worst], worst + 1


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 1 if a plan is below the bound: one of the two is wrong then."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trace", choices=[*dtr.KINDS, *dtr.VARIED], action="append")
    parser.add_argument("--ratios", type=float, nargs="+", default=[0.5])
    args = parser.parse_args(argv)
    wrong = False
    for name in args.trace or ["resnet_cifar"]:
        trace = (dtr.KINDS | dtr.VARIED)[name]()
        planner = Planner(trace)
        for ratio in args.ratios:
            budget, begun = int(trace.peak() * ratio), time.perf_counter()
            least, at = bound(trace, budget)
            theirs, ours = dtr.run_dtr(trace, budget), dtr.planned(planner, budget)
            wrong |= min(theirs, ours) < least - 1e-7
            share = (least - 1) / (theirs - 1) if theirs > 1 else float("nan")
            print(f"{trace.name} {ratio:.2f}: no plan below {least:.5f} (operation {at} of "
                  f"{len(trace.ops)}; without a solver {dtr.least_overhead(trace, budget):.5f}), "
                  f"DTR {theirs:.5f}, planner {ours:.5f}: no plan below {share:.3f}x of DTR's "
                  f"extra time, the planner at {(ours - 1) / (theirs - 1):.3f}x "
                  f"({time.perf_counter() - begun:.0f} s)", flush=True)
    return int(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
