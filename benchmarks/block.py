"""The transformer block of width 512 with 8 heads: bytes kept for backward, and what they cost.

    ./run bench block                     without dropout, and with dropout of 0.1
    ./run bench block --threads 1 --batch 4

Norm after, GELU, float32, `nn.MultiheadAttention` as it comes. Bytes are per position, example and
column (s.b.h), with the input, without the result: ours is what the allocator has given by the end
of forward, PyTorch's what its saved-tensor hooks see beside the parameters. `kept` is our own block
that keeps what it would otherwise make again. Gradients must be the same: the bits of `kept`,
PyTorch's to rounding. Forward and backward in processor time, turns A B A B; each ratio is the
median over the turns, with least over least beside it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import _peers
import numpy as np

from adjoint.core.bind import remaking
from adjoint.kernels import alloc

WIDTH, HEADS = 512, 8
MOST, TIME = 52.0, 1.05  # bytes per s.b.h; of the time of either other block
ROUGH = 1e-4  # between peers, of the largest element of each gradient


def block(m: ModuleType, dropout: float) -> Any:
    """The module, the same numbers in every peer."""
    nn = m.nn

    class Block(nn.Module):  # type: ignore[name-defined,misc] # whichever peer's it is
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(WIDTH, HEADS, dropout, batch_first=True)
            self.n1, self.n2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
            self.drops = nn.ModuleList([nn.Dropout(dropout) for _ in range(3)])

        def forward(self, x: Any) -> Any:
            first, inner, last = self.drops
            x = self.n1(x + first(self.attention(x, x, x)[0]))
            h = inner(nn.functional.gelu(self.up(x)))
            return self.n2(x + last(self.down(h)))

    made, rng = Block(), np.random.default_rng(0)
    with m.no_grad():
        for p in made.parameters():
            scale = p.shape[-1] ** -0.5 if p.ndim > 1 else 1.0
            p.copy_(m.tensor((rng.standard_normal(tuple(p.shape)) * scale).astype(np.float32)))
    return made


class Case:
    """A block, its input and a cotangent."""

    def __init__(self, m: ModuleType, args: argparse.Namespace, dropout: float,
                 least_bytes: int) -> None:
        rng = np.random.default_rng(1)
        shape = (args.batch, args.positions, WIDTH)
        self.m, self.least, self.size = m, least_bytes, float(np.prod(shape))
        self.net = block(m, dropout)
        self.x, self.ct = (m.tensor(rng.standard_normal(shape).astype(np.float32))
                           for _ in range(2))
        self.x.requires_grad_()

    def step(self) -> tuple[float, int]:
        """(Processor seconds, bytes that are kept: those of `alloc`, so zero for PyTorch)."""
        self.m.manual_seed(0)
        for p in (self.x, *self.net.parameters()):
            p.grad = None
        normal, remaking.least_bytes = remaking.least_bytes, self.least
        before, start = alloc.live(), time.process_time()
        try:
            y = self.net(self.x)
            kept = alloc.live() - before + self.x.nbytes - y.nbytes
            y.backward(self.ct)
        finally:
            remaking.least_bytes = normal
        return time.process_time() - start, kept

    def gradients(self) -> list[Any]:
        """Of the last step."""
        return [p.grad.numpy().copy() for p in (self.x, *self.net.parameters())]

    def kept(self) -> float:
        """Bytes per s.b.h."""
        if self.m.__name__ != "torch":
            return self.step()[1] / self.size
        own = {p.untyped_storage().data_ptr() for p in self.net.parameters()}
        seen: dict[int, int] = {}

        def pack(t: Any) -> Any:
            memory = t.untyped_storage()
            seen[memory.data_ptr()] = memory.nbytes()
            return t
        with self.m.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            y = self.net(self.x)
        del y
        return sum(n for at, n in seen.items() if at not in own) / self.size


def off(got: list[Any], want: list[Any]) -> float:
    """The largest difference, of the largest element of its gradient."""
    return max(float(abs(a - b).max() / abs(b).max()) for a, b in zip(got, want, strict=True))


def compare(cases: dict[str, Case], rounds: int, rough: float) -> bool:
    """Print bytes, differences and times; True if the targets are met."""
    bytes_of = {name: case.kept() for name, case in cases.items()}
    found: dict[str, list[float]] = {name: [] for name in cases}
    gradients = {}
    for turn in range(rounds + 1):
        for name, case in cases.items():
            seconds = case.step()[0]
            if turn:
                found[name].append(seconds)
            else:
                gradients[name] = case.gradients()
    ours, met = found["adjoint"], bytes_of["adjoint"] <= MOST
    print(f"  adjoint  {bytes_of['adjoint']:7.2f} bytes per s.b.h (target {MOST:g}: "
          f"{'met' if met else 'MISSED'})  {1e3 * min(ours):8.1f} ms")
    for name in [*cases][1:]:
        theirs = found[name]
        ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
        far = off(gradients["adjoint"], gradients[name])
        same = far == 0 if name == "kept" else far < rough
        met &= same and ratio <= TIME
        print(f"  {name:8} {bytes_of[name]:7.2f} bytes per s.b.h  {1e3 * min(theirs):8.1f} ms; "
              f"adjoint {_peers.verdict(ratio, TIME)}, least {min(ours) / min(theirs):.3f}x; "
              f"gradients differ by {far:.0e}{'' if same else ' (MISSED)'}", flush=True)
    return met


def main() -> int:
    """Exit status 1 if a target is missed and --strict was given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, default in (("batch", 4), ("positions", 512), ("rounds", 7), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--strict", action="store_true", help="fail if a target is missed")
    args = parser.parse_args()
    alloc.install()
    print(_peers.about())
    peers = _peers.load()
    for m in peers.values():
        m.set_num_threads(args.threads)
    build: Callable[..., Case] = Case
    met = []
    for dropout in (0.0, 0.1):
        cases = {"adjoint": build(peers["adjoint"], args, dropout, remaking.least_bytes),
                 "kept": build(peers["adjoint"], args, dropout, 1 << 60)}
        if "torch" in peers:
            cases["torch"] = build(peers["torch"], args, dropout, 0)
        print(f"{args.batch} x {args.positions} positions, dropout {dropout:g}:")
        met.append(compare(cases, args.rounds, ROUGH))
    return int(args.strict and not all(met))


if __name__ == "__main__":
    raise SystemExit(main())
