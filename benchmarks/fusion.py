"""What compiled kernels and `ad.fuse` bring to elementwise programs: forward and backward.

    ./run bench fusion                 4096 x 1024 float32, one thread
    ./run bench fusion --rows 512      smaller; --rounds, --threads, --strict

Each program runs op by op on NumPy's loops, op by op on generated kernels, and as one fused
operation; PyTorch stands beside it, eager and through `torch.compile` where that works here. All
take turns, processor time is counted, and the values and gradients have to agree first. NumPy's
loops are those of the same ops with `ADJOINT_JIT=0`, in a process of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import _peers
import numpy as np

TARGET = 1.0        # of torch.compile's time, as one fused operation
ROWS, COLUMNS = 4096, 1024


def chain(m: ModuleType, x: Any, y: Any) -> Any:
    """Six operations, of which two read the same operand twice."""
    return ((x * y + x) * y - x) * 0.5 + y * y


def gate(m: ModuleType, x: Any, y: Any) -> Any:
    """A gated activation with its exponentials."""
    return m.tanh(x) * m.sigmoid(y) + x * m.exp(-y * y)


PROGRAMS: dict[str, Callable[[ModuleType, Any, Any], Any]] = {"chain": chain, "gate": gate}


def step(m: ModuleType, f: Callable[..., Any], rows: int) -> Callable[[], tuple[Any, Any, Any]]:
    """Forward and backward of f(x, y); returns the value and both gradients."""
    draw = np.random.default_rng(0)
    x, y = (m.tensor(draw.standard_normal((rows, COLUMNS), np.float32), requires_grad=True)
            for _ in range(2))
    ct = m.tensor(draw.standard_normal((rows, COLUMNS), np.float32))

    def run() -> tuple[Any, Any, Any]:
        x.grad = y.grad = None
        out = f(x, y)
        out.backward(ct)
        return out, x.grad, y.grad

    return run


def agree(steps: dict[str, Callable[[], Any]]) -> None:
    """The same value and gradients from each."""
    first: list[Any] = []
    for name, run in steps.items():
        got = [t.detach().numpy() for t in run()]
        first = first or got
        for mine, theirs in zip(got, first, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4, err_msg=name)


def timed(run: Callable[[], Any]) -> Callable[[], _peers.Phases]:
    """Its processor time."""
    def measure() -> _peers.Phases:
        start = time.process_time()
        run()
        return {"both": time.process_time() - start}
    return measure


def ways(name: str, rows: int, peers: dict[str, ModuleType]) -> dict[str, Callable[[], Any]]:
    """Way of running the program -> its step."""
    f = PROGRAMS[name]
    ad = peers["adjoint"]
    found = {"op by op": step(ad, lambda x, y: f(ad, x, y), rows),
             "one ad.fuse": step(ad, ad.fuse(lambda x, y: f(ad, x, y)), rows)}
    if "torch" in peers:
        torch = peers["torch"]
        found["PyTorch"] = step(torch, lambda x, y: f(torch, x, y), rows)
        compiled = step(torch, torch.compile(lambda x, y: f(torch, x, y)), rows)
        try:
            compiled()
            found["torch.compile"] = compiled
        except Exception as error:      # there may be no compiler, or none that it takes
            print(f"torch.compile is left out: {str(error).splitlines()[0]}", file=sys.stderr)
    return found


def numpy_loops(rows: int, rounds: int) -> dict[str, float]:
    """Seconds of each program without generated kernels: of a process that has them off."""
    done = subprocess.run(
        [sys.executable, __file__, "--rows", str(rows), "--rounds", str(rounds), "--loops"],
        env={**os.environ, "ADJOINT_JIT": "0"}, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def loops(rows: int, rounds: int) -> None:
    """What that process prints."""
    ad = _peers.load(("adjoint",))["adjoint"]
    steps = {name: timed(step(ad, lambda x, y, f=f: f(ad, x, y), rows))
             for name, f in PROGRAMS.items()}
    found = _peers.interleave(steps, rounds)
    print(json.dumps({name: phases["both"] for name, phases in found.items()}))


def main(argv: list[str] | None = None) -> int:
    """Exit status 1 if the target is missed and --strict was given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--loops", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--strict", action="store_true", help="fail if the target is missed")
    args = parser.parse_args(argv)
    if args.loops:
        loops(args.rows, args.rounds)
        return 0
    print(_peers.about(), f"{args.threads} threads, processor time", sep="; ")
    peers, met = _peers.load(), True
    for m in peers.values():
        m.set_num_threads(args.threads)
    plain = numpy_loops(args.rows, max(3, args.rounds // 3))
    for name in PROGRAMS:
        steps = ways(name, args.rows, peers)
        agree(steps)
        found = _peers.interleave({way: timed(run) for way, run in steps.items()}, args.rounds)
        times = {"NumPy's loops": plain[name]} | {w: p["both"] for w, p in found.items()}
        fused = times["one ad.fuse"]
        print(f"{name}, {args.rows} x {COLUMNS}")
        for way, seconds in times.items():
            print(f"  {way:14} {seconds * 1e3:8.2f} ms   one ad.fuse is {fused / seconds:.2f}x")
        if "torch.compile" in times:
            ratio = fused / times["torch.compile"]
            met &= ratio <= TARGET
            print(f"  beside torch.compile: {_peers.verdict(ratio, TARGET)}")
    return int(args.strict and not met)


if __name__ == "__main__":
    raise SystemExit(main())
