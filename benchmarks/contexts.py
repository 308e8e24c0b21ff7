"""What a forward pass costs where gradients are recorded, under `no_grad`, under `inference_mode`.

    ./run bench contexts               the four-layer MLP that guides time (batch 256), one request
                                       at a time of the same MLP, and a small net of fifty ops
    ./run bench contexts --cases net   one of mlp, request, net; --rounds, --clock, --strict

The three contexts take turns within a peer, and the peers do. A percentage is always said with what
it is a percentage of: of the default, and of `no_grad`. The answers are checked to be the same in
all contexts and in both peers before a time counts.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import _peers
import numpy as np

CONTEXTS = ("default", "no_grad", "inference_mode")
TARGET = 1.0        # of PyTorch's time for a request under inference_mode
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


class Case(NamedTuple):
    """A model as sizes of its layers, the rows of a call, and how many calls are one turn."""

    sizes: tuple[int, ...]
    rows: int
    calls: int


CASES = {
    "mlp": Case((1024, 2048, 2048, 1024, 10), 256, 1),
    "request": Case((1024, 2048, 2048, 1024, 10), 1, 20),
    "net": Case((8,) * 26, 4, 10),
}


def network(m: ModuleType, case: Case) -> tuple[Any, Any]:
    """Linear layers with ReLU between them, and an input; the same numbers for every peer."""
    draw = np.random.default_rng(0)
    layers: list[Any] = []
    for fan_in, fan_out in zip(case.sizes, case.sizes[1:], strict=False):
        layers += [m.nn.Linear(fan_in, fan_out), m.nn.ReLU()]
    model = m.nn.Sequential(*layers[:-1])
    with m.no_grad():
        for p in model.parameters():
            p.copy_(m.tensor(draw.standard_normal(tuple(p.shape), np.float32)
                             / p.shape[-1] ** 0.5))
    return model, m.tensor(draw.standard_normal((case.rows, case.sizes[0]), np.float32))


def context(m: ModuleType, name: str) -> Any:
    """A context manager of that name."""
    return contextlib.nullcontext() if name == "default" else getattr(m, name)()


def server(m: ModuleType, case: Case, name: str) -> tuple[Callable[[], Any], Callable[[], float]]:
    """Two functions: the answer to a request in that context, and seconds per request."""
    model, x = network(m, case)

    def answer() -> Any:
        with context(m, name):
            return model(x)

    def turn() -> float:
        start = clock()
        for _ in range(case.calls):
            answer()
        return (clock() - start) / case.calls

    return answer, turn


_chosen = "wall"


def clock() -> float:
    """Seconds by the clock of --clock."""
    return CLOCKS[_chosen]()


def measure(peers: dict[str, ModuleType], case: Case, rounds: int) -> dict[str, dict[str, Any]]:
    """peer -> context -> all times of a request, sorted."""
    answers, turns = {}, {}
    for peer, m in peers.items():
        for name in CONTEXTS:
            answer, turns[peer, name] = server(m, case, name)
            y = answer()
            assert y.requires_grad == (name == "default")
            answers[peer, name] = y.detach().numpy().copy()
    first = next(iter(answers.values()))
    for (peer, _), y in answers.items():
        np.testing.assert_allclose(y, first, rtol=1e-3, atol=1e-4, err_msg=peer)
    times: dict[Any, list[float]] = {key: [] for key in turns}
    for _ in range(rounds + 1):
        for key, turn in turns.items():
            times[key].append(turn())
    return {peer: {name: sorted(times[peer, name][1:]) for name in CONTEXTS} for peer in peers}


def quantile(ordered: list[float], share: float) -> float:
    """The value below which that share of them lies."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def table(found: dict[str, dict[str, list[float]]]) -> list[str]:
    """A line for each peer and context: median, 99th percentile, rate, savings."""
    lines = [f"  {'':8} {'context':15} {'median':>10} {'99 of 100':>10} {'per second':>10}  saves"]
    for peer, times in found.items():
        median = {name: quantile(t, 0.5) for name, t in times.items()}
        for name in CONTEXTS:
            saved = [f"{1 - median[name] / median[base]:.1%} of {base}"
                     for base in CONTEXTS[: CONTEXTS.index(name)]]
            lines.append(
                f"  {peer:8} {name:15} {median[name] * 1e6:7.0f} us "
                f"{quantile(times[name], 0.99) * 1e6:7.0f} us {1 / median[name]:10,.0f}  "
                f"{', '.join(saved)}".rstrip()
            )
    return lines


def main(argv: list[str] | None = None) -> int:
    """Exit status 1 if the target is missed and --strict was given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--cases", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=60, help="turns of each peer and context")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: processor time")
    parser.add_argument("--strict", action="store_true", help="fail if a target is missed")
    args = parser.parse_args(argv)
    global _chosen
    _chosen = args.clock
    print(_peers.about(), f"{args.clock} time", sep="; ")
    peers, met = _peers.load(), True
    for name in args.cases:
        case = CASES[name]
        found = measure(peers, case, args.rounds)
        print(f"{name}: {'-'.join(map(str, case.sizes[:5]))}"
              f"{'-...' if len(case.sizes) > 5 else ''}, {case.rows} rows")
        print("\n".join(table(found)))
        if "torch" in found:
            ours, theirs = (quantile(found[p]["inference_mode"], 0.5) for p in found)
            met &= ours / theirs <= TARGET
            print(f"  inference_mode beside PyTorch's: {_peers.verdict(ours / theirs, TARGET)}")
    return int(args.strict and not met)


if __name__ == "__main__":
    raise SystemExit(main())
