"""Peak memory of a training step of six models: predicted, measured, and PyTorch's measured.

    ./run bench memory_models              the tests' sizes
    ./run bench memory_models --scale 4    wider

Predicted and measured are `memory.predict` and the allocator's counters of a run that nobody
watches; they must be equal to the byte. PyTorch's peak adds up the allocations and frees that its
profiler reports on the CPU, from the same start: parameters, optimizer state, inputs.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from helpers_memory import MODELS  # noqa: E402  # the tests' own models

import adjoint as ad  # noqa: E402
from adjoint.kernels import alloc  # noqa: E402
from adjoint.memory.meters import restart  # noqa: E402


def first(step: Any, held: tuple[Any, ...]) -> None:
    """One step, so that there is optimizer state; its gradients are dropped, because PyTorch's
    profiler does not see the end of what was made before it."""
    step()
    for x in held:
        if hasattr(x, "zero_grad"):
            x.zero_grad()


def ours(name: str, ck: bool, scale: int) -> tuple[int, int, int, float]:
    """(bytes before, predicted, measured, seconds to predict) of the second step."""
    step, held = MODELS[name](ad, ck, scale)
    first(step, held)
    gc.collect()
    begin = time.perf_counter()
    report = ad.memory.predict(step)
    seconds = time.perf_counter() - begin
    if not report.exact:
        print(f"{name}: assumed {sorted(report.assumed)}")
    gc.collect()
    gc.disable()
    live = restart()[0]
    step()
    measured = alloc.live_and_peak()[1] - live + report.before
    gc.enable()
    del held
    return report.before, report.peak, measured, seconds


def theirs(name: str, ck: bool, scale: int, before: int) -> int | None:
    """PyTorch's peak of the second step, or None where it is not installed."""
    try:
        import torch
        from torch.profiler import ProfilerActivity, profile
    except ImportError:
        return None
    step, held = MODELS[name](torch, ck, scale)
    first(step, held)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        step()
    events: list[Any] = [e for e in found.profiler.kineto_results.events()
                         if e.name() == "[memory]"]
    now = most = 0
    for e in sorted(events, key=lambda e: e.start_ns()):
        now += e.nbytes()
        most = max(most, now)
    del held
    return before + most


def main() -> None:
    """Print the table; fail where predicted and measured differ."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--scale", type=int, default=1)
    scale = parser.parse_args().scale
    alloc.install()
    print(f"{'bytes':24}{'predicted':>14}{'measured':>14}{'difference':>12}{'PyTorch':>14}"
          f"{'of PyTorch':>12}{'predicted in':>14}")
    wrong = 0
    for name in MODELS:
        for ck in (False, True):
            before, predicted, measured, seconds = ours(name, ck, scale)
            peer = theirs(name, ck, scale, before)
            wrong += predicted != measured
            share = f"{predicted / peer:.2f}" if peer else "-"
            print(f"{name + (', checkpointed' if ck else ''):24}{predicted:14,}{measured:14,}"
                  f"{measured - predicted:12,}{peer or 0:14,}{share:>12}{seconds:12.2f} s",
                  flush=True)
    if wrong:
        raise SystemExit(f"{wrong} predictions differ from what was measured")


if __name__ == "__main__":
    main()
