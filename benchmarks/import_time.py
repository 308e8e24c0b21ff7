"""What `import adjoint` costs over NumPy's own import, in fresh processes, PyTorch beside it.

./run bench import_time
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys

import _peers

TARGET_MS = 60.0
CODE = """
import resource, sys, time
start = time.perf_counter()
import {names}
seconds = time.perf_counter() - start
print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, len(sys.modules))
"""
CASES = {"numpy": "numpy", "adjoint": "adjoint", "torch": "torch"}


def once(names: str) -> tuple[float, float, int] | None:
    """(seconds, peak MiB, modules) of one import in a process of its own; None if it cannot."""
    # Compiled once, as on a user's machine: without its bytecode a package is compiled every time.
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(names=names)],
        cwd=_peers.sys.path[0],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode:
        return None
    seconds, peak, modules = done.stdout.split()
    return float(seconds), float(peak), int(modules)


def main() -> int:
    """Exit status 1 if the target is missed and --strict was given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--strict", action="store_true", help="fail if the target is missed")
    args = parser.parse_args()
    print(_peers.about())
    cases = {name: names for name, names in CASES.items() if once(names)}
    runs: dict[str, list[tuple[float, float, int]]] = {name: [] for name in cases}
    for _ in range(args.rounds):
        for name, names in cases.items():
            result = once(names)
            if result is not None:
                runs[name].append(result)
    median = {name: statistics.median(r[0] for r in results) for name, results in runs.items()}
    print(f"{'import':9} {'median':>9} {'over NumPy':>11} {'peak RSS':>9} {'modules':>8}")
    for name, results in runs.items():
        over = (median[name] - median["numpy"]) * 1e3
        peak, modules = results[-1][1:]
        print(f"{name:9} {median[name] * 1e3:6.0f} ms {over:8.0f} ms {peak:5.0f} MiB {modules:8}")
    over = (median["adjoint"] - median["numpy"]) * 1e3
    met = over <= TARGET_MS
    print(f"target: {TARGET_MS:g} ms over NumPy: {'met' if met else 'MISSED'}")
    return int(args.strict and not met)


if __name__ == "__main__":
    raise SystemExit(main())
