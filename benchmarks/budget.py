"""A GPT step under a budget of live bytes: extra time and true peak, by budget.

    ./run bench budget                      width 256, 6 layers, context 256, batch 16
    ./run bench budget --svg docs/img/budget.svg

The time spent computing again, writing to the spill file and reading it is related to the rest of
the same step (which holds the bookkeeping too), so that other work on the machine disturbs both
alike; steps without a budget take turns. While the system has memory to spare, the spill file lies
in its page cache; `--no-spill` shows what recomputing alone costs.
Every peak is the allocator's own, every gradient is compared bit for bit. The first step under a
budget (nothing is known yet) and the planning after it are reported apart. On a machine with other
work, processor time with ADJOINT_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 is the steadiest.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import _peers
import numpy as np

TARGETS = {0.6: 1.10, 0.4: 1.25}


def build(args: argparse.Namespace) -> tuple[Any, Callable[[], Any]]:
    """The model and its step: forward and backward, gradients set anew."""
    import adjoint as ad
    from adjoint.models.gpt import GPT, GPTConfig

    ad.manual_seed(0)
    model = GPT(GPTConfig(vocabulary=256, context=args.context, layers=args.layers,
                          heads=args.heads, dim=args.width))
    rng = np.random.default_rng(0)
    x, y = (ad.tensor(rng.integers(0, 256, (args.batch, args.context))) for _ in range(2))

    def step() -> Any:
        model.zero_grad()
        model.loss(x, y).backward()

    return model, step


def digest(model: Any) -> str:
    """A hash of all gradients."""
    found = hashlib.sha256()
    for p in model.parameters():
        found.update(p.grad.numpy())
    return found.hexdigest()


def timed(step: Callable[[], Any]) -> tuple[float, float, int]:
    """(wall seconds, processor seconds, peak bytes) of one step."""
    from adjoint.kernels import alloc

    alloc.reset_peak()
    cpu, wall = time.process_time(), time.perf_counter()
    step()
    return time.perf_counter() - wall, time.process_time() - cpu, alloc.stats().peak


def measure(args: argparse.Namespace, shares: Sequence[float]) -> list[dict[str, float]]:
    """One row per budget; `share` is of the peak without one."""
    import adjoint as ad
    from adjoint.kernels import alloc

    if not alloc.install():
        raise SystemExit("this benchmark needs the counting allocator (the jit extra)")
    model, step = build(args)
    for _ in range(2):
        _, _, full = timed(step)
    want = digest(model)
    full = timed(step)[2]
    model.zero_grad()
    print(f"peak without a budget {full / 1e6:.1f} MB, of it parameters and data "
          f"{alloc.live() / 1e6:.1f} MB")
    rows = []
    for share in shares:
        held = ad.memory.budget(int(full * share), spill=not args.no_spill)
        with held:
            first = timed(step)
        written = held.report().spilled
        ratios: list[tuple[float, float]] = []
        again: list[float] = []
        peak, plain, under = first[2], [], []
        for _ in range(args.rounds):
            a = timed(step)
            spent = held.report().recomputed
            with held:
                b = timed(step)
            spent = held.report().recomputed - spent
            again.append(spent / (b[0] - spent))
            plain.append(a[:2])
            under.append(b[:2])
            ratios.append((b[0] / a[0], b[1] / a[1]))
            peak = max(peak, b[2])
        same = digest(model) == want
        report = held.report()
        rows.append({
            "again": statistics.median(again),
            "share": share, "peak": peak / (full * share), "same": float(same),
            "wall": statistics.median(r[0] for r in ratios),
            "cpu": statistics.median(r[1] for r in ratios),
            "best": min(u[1] for u in under) / min(p[1] for p in plain),
            "first": first[0] / statistics.median(p[0] for p in plain),
            "planned": report.planned, "runs": report.runs / (args.rounds + 1),
            "spilled": (report.spilled - written) / args.rounds,
        })
        r = rows[-1]
        print(f"budget {share:4.0%}  computing and loading again {r['again']:6.1%} of the rest; "
              f"against turns without a budget: wall {r['wall'] - 1:6.1%}, processor time "
              f"{r['cpu'] - 1:6.1%} (least against least {r['best'] - 1:6.1%})  "
              f"peak/budget {r['peak']:.3f}  same bits: {bool(same)}  per step {r['runs']:.0f} ops "
              f"again, {r['spilled'] / 1e6:.0f} MB spilled, steps planned "
              f"{report.planned}/{args.rounds + 1}, first step {r['first']:.2f}x", flush=True)
    return rows


def picture(rows: Sequence[dict[str, float]], path: Path) -> None:
    """The curve as an SVG."""
    from adjoint.utils.plot import line_chart

    points = sorted((100 * r["share"], 100 * r["again"]) for r in rows)
    limits = sorted((100 * k, 100 * (v - 1)) for k, v in TARGETS.items())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(line_chart(
        {"computed again": [*points, (100.0, 0.0)], "promised at most": limits},
        title="A GPT step under a budget of memory",
        x_label="budget, % of the peak without one", y_label="time computing again, % of the rest"))


def main() -> int:
    """Exit status 1 if a target or a peak is missed and --strict was given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, default in (("layers", 6), ("width", 256), ("heads", 4), ("context", 256),
                          ("batch", 16), ("rounds", 7)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--shares", type=float, nargs="+",
                        default=[0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25])
    parser.add_argument("--no-spill", action="store_true", help="recompute only: no spill file")
    parser.add_argument("--svg", type=Path, help="write the curve there")
    parser.add_argument("--strict", action="store_true", help="fail if a target is missed")
    args = parser.parse_args()
    print(_peers.about())
    rows = measure(args, args.shares)
    met = all(r["peak"] <= 1 and r["same"] for r in rows)
    for share, target in TARGETS.items():
        for r in rows:
            if r["share"] == share:
                print(f"at {share:.0%}: {_peers.verdict(1 + r['again'], target)}")
                met &= 1 + r["again"] <= target
    if args.svg:
        picture(rows, args.svg)
    return int(args.strict and not met)


if __name__ == "__main__":
    raise SystemExit(main())
