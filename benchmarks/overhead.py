"""What one small operation costs: a thousand of them on tiny arrays, and a million nodes.

./run bench overhead            with PyTorch beside it, interleaved; microseconds per op, medians
./run bench overhead --long 0   without the million-node chain
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import _peers
import numpy as np

OPS = 1000
TARGETS = {"both": 0.55, "forward": 0.8, "backward": 0.5, "no_grad": 0.6}
LONG_TARGET = 1.5

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
_chosen = "wall"


def clock() -> float:
    """Seconds by the clock of --clock."""
    return CLOCKS[_chosen]()


def mixed(m: ModuleType, x: Any, c: Any) -> Any:
    """A thousand ops: multiply, add, tanh, subtract, over and over."""
    tanh, y = m.tanh, x
    for _ in range(OPS // 4):
        y = y * c
        y = y + c
        y = tanh(y)
        y = y - x
    return y


def arithmetic(m: ModuleType, x: Any, c: Any) -> Any:
    """A thousand ops that NumPy does in no time: multiply, add."""
    y = x
    for _ in range(OPS // 2):
        y = y * c
        y = y + x
    return y


# name -> (chain, whether the other operand wants a gradient too)
CHAINS = {"mul add": (arithmetic, True), "mul add tanh sub": (mixed, False)}


def leaves(m: ModuleType, name: str, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """The two operands of a chain."""
    x = m.tensor(np.full(shape, 0.5, np.float32), requires_grad=True)
    c = m.tensor(np.full(shape, 0.99, np.float32), requires_grad=CHAINS[name][1])
    return x, c


def step(m: ModuleType, name: str, shape: tuple[int, ...]) -> Callable[[], _peers.Phases]:
    """One forward and backward, and one forward under no_grad; seconds per op."""
    chain = CHAINS[name][0]
    x, c = leaves(m, name, shape)
    ct = m.ones(shape)

    def run() -> _peers.Phases:
        start = clock()
        y = chain(m, x, c)
        middle = clock()
        y.backward(ct)
        end = clock()
        x.grad = c.grad = None
        del y
        with m.no_grad():
            begin = clock()
            chain(m, x, c)
            quiet = clock() - begin
        forward, backward = (middle - start) / OPS, (end - middle) / OPS
        return {
            "forward": forward,
            "backward": backward,
            "both": forward + backward,
            "no_grad": quiet / OPS,
        }

    return run


def agree(peers: dict[str, ModuleType], name: str, shape: tuple[int, ...]) -> None:
    """The peers compute the same value and the same gradient; otherwise times mean nothing."""
    seen = []
    for m in peers.values():
        x, c = leaves(m, name, shape)
        y = CHAINS[name][0](m, x, c)
        y.backward(m.ones(shape))
        seen.append((y.detach().numpy().copy(), x.grad.numpy().copy()))
    for other in seen[1:]:
        np.testing.assert_allclose(other[0], seen[0][0], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(other[1], seen[0][1], rtol=1e-3, atol=1e-4)


def small(peers: dict[str, ModuleType], rounds: int) -> bool:
    """Print the table of small ops; True if every target is met."""
    met = True
    print(f"{'chain of':17} {'shape':5} {'phase':9} {'adjoint':>9} {'PyTorch':>9}  ratio")
    for name, shape in itertools.product(CHAINS, ((8,), ())):
        agree(peers, name, shape)
        steps = {peer: step(m, name, shape) for peer, m in peers.items()}
        result = _peers.interleave(steps, rounds)
        ours, theirs = result["adjoint"], result.get("torch")
        for phase, target in TARGETS.items():
            ratio = ours[phase] / theirs[phase] if theirs else None
            met &= ratio is None or ratio <= target
            other = f"{theirs[phase] * 1e6:6.2f} us" if theirs else "-"
            said = _peers.verdict(ratio, target)
            micros = f"{ours[phase] * 1e6:6.2f} us"
            print(f"{name:17} {shape!s:5} {phase:9} {micros:>9} {other:>9}  {said}")
    return met


def chain_of(m: ModuleType, nodes: int) -> _peers.Phases:
    """Seconds per node of a chain of that many nodes: build it, walk it, and free one unwalked."""
    x = m.ones(8, requires_grad=True)
    c = m.full((8,), 0.999)
    ct = m.ones(8)

    def build() -> Any:
        y = x
        for _ in range(nodes // 2):
            y = y * c
            y = y + c
        return y

    start = clock()
    y = build()
    built = clock()
    y.backward(ct)
    walked = clock()
    del y
    y = build()
    rebuilt = clock()
    del y
    freed = clock()
    phases = {"forward": built - start, "backward": walked - built, "free": freed - rebuilt}
    return {name: seconds / nodes for name, seconds in phases.items()}


def long(m: ModuleType, nodes: int, rounds: int) -> bool:
    """Print the long chain beside the short one, interleaved; True if the target is met."""
    repeats = 20

    def short() -> _peers.Phases:
        runs = [chain_of(m, OPS) for _ in range(repeats)]
        return {name: sorted(r[name] for r in runs)[repeats // 2] for name in runs[0]}

    steps = {"short": short, "long": lambda: chain_of(m, nodes)}
    result = _peers.interleave(steps, rounds)
    totals = {name: phases["forward"] + phases["backward"] for name, phases in result.items()}
    print(f"\nchain of   {OPS:>10} {nodes:>10}  us per node")
    for phase in ("forward", "backward", "free"):
        few, many = result["short"][phase] * 1e6, result["long"][phase] * 1e6
        print(f"{phase:10} {few:10.2f} {many:10.2f}  {many / few if few else 0:.2f}x")
    ratio = totals["long"] / totals["short"]
    print(f"forward and backward per node, long over short: {_peers.verdict(ratio, LONG_TARGET)}")
    return ratio <= LONG_TARGET


def main() -> int:
    """Exit status 1 if a target is missed and --strict was given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=40, help="turns of each peer")
    parser.add_argument("--long", type=int, default=1_000_000, help="nodes of the long chain")
    parser.add_argument("--strict", action="store_true", help="fail if a target is missed")
    parser.add_argument(
        "--clock", choices=CLOCKS, default="wall", help="cpu: robust where others use the machine"
    )
    args = parser.parse_args()
    global _chosen
    _chosen = args.clock
    print(_peers.about(), f"{args.clock} time", sep="; ")
    peers = _peers.load()
    met = small(peers, args.rounds)
    if args.long:
        met &= long(peers["adjoint"], args.long, rounds=3)
    return int(args.strict and not met)


if __name__ == "__main__":
    raise SystemExit(main())
