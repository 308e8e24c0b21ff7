"""What watching costs: a GPT training step plain, in anomaly mode, under doctor and profiler.

    ./run bench anomaly                 6 layers, width 384, context 256, batch 12
    ./run bench anomaly --layers 2      smaller; --rounds

CPU seconds of the process, interleaved A B A B, median of the ratios to the plain step beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import _peers
import gpt_step

import adjoint as ad
from adjoint.autograd.anomaly import detect_anomaly

TARGET = 1.10


def modes() -> dict[str, Callable[[], Any]]:
    """Name -> the context in which the step runs."""
    doctor = ad.doctor(quiet=True)
    return {
        "plain": contextlib.nullcontext,
        "nan, backward": lambda: detect_anomaly(),
        "nan, both": lambda: detect_anomaly(check_forward=True),
        "nan+inf, both": lambda: detect_anomaly(check_inf=True, check_forward=True),
        "doctor": lambda: doctor,
        "profiler": lambda: ad.profiler.profile(with_stack=True, with_modules=True),
    }


def main() -> int:
    """Exit status 1 if anomaly mode misses its target and --strict was given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    defaults = gpt_step.Size()
    for name in ("layers", "width", "heads", "context", "batch"):
        parser.add_argument(f"--{name}", type=int, default=getattr(defaults, name))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--strict", action="store_true", help="fail if the target is missed")
    args = parser.parse_args()
    size = gpt_step.Size(args.layers, args.width, args.heads, args.context, args.batch)
    step = gpt_step.build(ad, size)
    contexts = modes()
    times: dict[str, list[float]] = {name: [] for name in contexts}
    for turn in range(args.rounds + 1):
        for name, context in contexts.items():
            begin = time.process_time()
            with context():
                step()
            if turn:                                   # the first turn compiles
                times[name].append(time.process_time() - begin)
    print(_peers.about())
    met = True
    for name, seconds in times.items():
        pairs = zip(seconds, times["plain"], strict=True)
        ratio = statistics.median(a / b for a, b in pairs)
        target = TARGET if name.startswith("nan") else None
        met &= target is None or ratio <= target
        print(f"{name:15} {statistics.median(seconds) * 1e3:7.0f} ms CPU  "
              f"{_peers.verdict(ratio, target)}")
    return int(args.strict and not met)


if __name__ == "__main__":
    raise SystemExit(main())
