"""One training step of a GPT (6 layers, width 384, context 256, batch 12), beside PyTorch.

    ./run bench gpt_step                 PyTorch, adjoint on NumPy, adjoint with compiled kernels
    ./run bench gpt_step --layers 2      smaller; --threads, --rounds

Each peer lives in a process of its own, so that peak memory is its own; they take turns, one step
of one peer at a time. The losses after three steps must agree, or the times mean nothing.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import _peers
import numpy as np

TARGET = 2.0
CHECK_STEPS = 3
PEERS = {"PyTorch": ("torch", "1"), "adjoint, NumPy": ("adjoint", "0"), "adjoint": ("adjoint", "1")}


@dataclass(frozen=True)
class Size:
    """The shape of the model and of the batch."""

    layers: int = 6
    width: int = 384
    heads: int = 6
    context: int = 256
    batch: int = 12
    vocabulary: int = 65

    @property
    def flops(self) -> float:
        """Operations of a step's matrix products; backward counts as two forwards."""
        tokens = self.batch * self.context
        weights = 12 * self.layers * self.width**2 + self.vocabulary * self.width
        scores = 2 * self.layers * self.context * self.width
        return 6.0 * tokens * (weights + scores)


def start(size: Size) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """The same parameters and tokens for every peer."""
    rng = np.random.default_rng(0)
    width = size.width

    def normal(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * 0.02).astype(np.float32)

    weights = {
        "token": normal(size.vocabulary, width),
        "position": normal(size.context, width),
        "norm": np.ones(width, np.float32),
    }
    for i in range(size.layers):
        weights[f"{i}.norm1"] = np.ones(width, np.float32)
        weights[f"{i}.norm2"] = np.ones(width, np.float32)
        weights[f"{i}.qkv"] = normal(3 * width, width)
        weights[f"{i}.out"] = normal(width, width)
        weights[f"{i}.up"] = normal(4 * width, width)
        weights[f"{i}.down"] = normal(width, 4 * width)
    tokens = rng.integers(0, size.vocabulary, (2, size.batch, size.context))
    return weights, tokens[0], tokens[1]


def build(m: ModuleType, size: Size) -> Callable[[], Any]:
    """The step of one peer: zero the gradients, forward, backward, AdamW. Returns the loss."""
    F = importlib.import_module(m.__name__ + ".nn.functional")
    arrays, inputs, targets = start(size)
    p = {name: m.tensor(array, requires_grad=True) for name, array in arrays.items()}
    x, y = m.tensor(inputs), m.tensor(targets).view(-1)
    shape = (size.batch, size.context, size.width)
    heads = (size.batch, size.context, size.heads, size.width // size.heads)
    optimizer = importlib.import_module(m.__name__ + ".optim").AdamW(
        [
            {"params": [w for w in p.values() if w.dim() == 2], "weight_decay": 0.1},
            {"params": [w for w in p.values() if w.dim() == 1], "weight_decay": 0.0},
        ],
        lr=1e-3,
        betas=(0.9, 0.99),
    )

    def block(h: Any, i: int) -> Any:
        normed = F.layer_norm(h, (size.width,), p[f"{i}.norm1"])
        parts = F.linear(normed, p[f"{i}.qkv"]).split(size.width, dim=2)
        q, k, v = (part.view(*heads).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h + F.linear(mixed.transpose(1, 2).reshape(*shape), p[f"{i}.out"])
        normed = F.layer_norm(h, (size.width,), p[f"{i}.norm2"])
        hidden = F.gelu(F.linear(normed, p[f"{i}.up"]), approximate="tanh")
        return h + F.linear(hidden, p[f"{i}.down"])

    def step() -> Any:
        optimizer.zero_grad()
        h = F.embedding(x, p["token"]) + p["position"]
        for i in range(size.layers):
            h = block(h, i)
        h = F.layer_norm(h, (size.width,), p["norm"])
        logits = F.linear(h, p["token"]).view(-1, size.vocabulary)
        loss = F.cross_entropy(logits, y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def worker(name: str, size: Size, threads: int) -> None:
    """Answer each line of standard input with one step: its seconds and the peak memory so far."""
    m = importlib.import_module(name)
    if hasattr(m, "set_num_threads"):
        m.set_num_threads(threads)
    step = build(m, size)
    losses = [float(step().item()) for _ in range(CHECK_STEPS)]
    print(json.dumps({"losses": losses}), flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        step()
        seconds = time.perf_counter() - begin
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"seconds": seconds, "peak": peak}), flush=True)


class Peer:
    """A worker process and what it has said."""

    def __init__(self, module: str, jit: str, options: list[str], threads: int) -> None:
        names = ("OMP", "MKL", "OPENBLAS")
        limits = {f"{name}_NUM_THREADS": str(threads) for name in names}
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker", module, *options],
            env={**os.environ, **limits, "ADJOINT_JIT": jit},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.seconds: list[float] = []
        self.peak = 0.0
        self.losses: list[float] = self.read().get("losses", [])

    def read(self) -> dict[str, Any]:
        """The next answer; empty if the worker died."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else {}

    def turn(self) -> None:
        """One step."""
        assert self.process.stdin is not None
        self.process.stdin.write("step\n")
        self.process.stdin.flush()
        answer = self.read()
        self.seconds.append(answer["seconds"])
        self.peak = answer["peak"]

    def close(self) -> None:
        """End the worker."""
        self.process.communicate(timeout=60)


def compare(size: Size, options: list[str], threads: int, rounds: int) -> bool:
    """Run all peers in turns and print the table; True if the target is met."""
    peers = {}
    for label, (module, jit) in PEERS.items():
        peer = Peer(module, jit, options, threads)
        if peer.losses:
            peers[label] = peer
        else:
            print(f"{label} is left out: its process ended", file=sys.stderr)
            peer.close()
    losses = [peer.losses for peer in peers.values()]
    np.testing.assert_allclose(losses, [losses[0]] * len(losses), rtol=2e-4)
    for _ in range(rounds):
        for peer in peers.values():
            peer.turn()
    tokens = size.batch * size.context
    reference = peers.get("PyTorch")
    met = True
    print(f"{'':15} {'median':>8} {'tokens/s':>9} {'GFLOP/s':>8} {'peak RSS':>9}  ratio")
    for label, peer in peers.items():
        seconds = statistics.median(peer.seconds)
        base = statistics.median(reference.seconds) if reference else None
        ratio = seconds / base if base else None
        target = TARGET if label == "adjoint, NumPy" else None
        met &= ratio is None or target is None or ratio <= target
        rate, flops = tokens / seconds, size.flops / seconds / 1e9
        print(
            f"{label:15} {seconds * 1e3:5.0f} ms {rate:9.0f} {flops:8.1f} {peer.peak:5.0f} MiB"
            f"  {_peers.verdict(ratio, target)}"
        )
        peer.close()
    return met


def main() -> int:
    """Exit status 1 if the target is missed and --strict was given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    defaults = Size()
    for name in ("layers", "width", "heads", "context", "batch"):
        parser.add_argument(f"--{name}", type=int, default=getattr(defaults, name))
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--strict", action="store_true", help="fail if the target is missed")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    size = Size(args.layers, args.width, args.heads, args.context, args.batch)
    if args.worker:
        worker(args.worker, size, args.threads)
        return 0
    names = ("layers", "width", "heads", "context", "batch", "threads")
    options = [word for name in names for word in (f"--{name}", str(getattr(args, name)))]
    print(_peers.about(), f"threads {args.threads}", sep="; ")
    met = compare(size, options, args.threads, args.rounds)
    return int(args.strict and not met)


if __name__ == "__main__":
    raise SystemExit(main())
