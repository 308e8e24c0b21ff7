"""What the benchmarks share: the peers, interleaved timing, medians, a table with targets."""

from __future__ import annotations

import gc
import importlib
import os
import platform
import statistics
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

Phases = dict[str, float]


def load(names: Sequence[str] = ("adjoint", "torch")) -> dict[str, ModuleType]:
    """The peers that are installed, by name; says which one is missing."""
    found = {}
    for name in names:
        try:
            found[name] = importlib.import_module(name)
        except ImportError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
    return found


def about() -> str:
    """One line on the machine and the versions, to be quoted with every figure."""
    import numpy as np

    cpu = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            names = [
                line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
            ]
        cpu = names[0] if names else cpu
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    jit = os.environ.get("ADJOINT_JIT", "1")
    python = platform.python_version()
    return f"{cpu}, {cores} cores; Python {python}, NumPy {np.__version__}, ADJOINT_JIT={jit}"


def interleave(steps: dict[str, Callable[[], Phases]], rounds: int) -> dict[str, Phases]:
    """Medians over `rounds` turns A B A B ...: a slow moment of the machine hits every peer.

    Each step returns {phase: seconds}. What imports left behind is frozen out of the garbage
    collector first: otherwise one peer's collections would walk the other peer's objects.
    """
    for step in steps.values():
        step()
    gc.collect()
    gc.freeze()
    times: dict[str, dict[str, list[float]]] = {name: {} for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            for phase, seconds in step().items():
                times[name].setdefault(phase, []).append(seconds)
    gc.unfreeze()
    return {
        name: {phase: statistics.median(values) for phase, values in phases.items()}
        for name, phases in times.items()
    }


def verdict(ratio: float | None, target: float | None) -> str:
    """`0.52x (target 0.55: met)`, or what is known of it."""
    if ratio is None:
        return "-"
    if target is None:
        return f"{ratio:.2f}x"
    return f"{ratio:.2f}x (target {target:g}: {'met' if ratio <= target else 'MISSED'})"
