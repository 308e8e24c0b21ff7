"""Steps made of products, ours and PyTorch's, and what their kernels cost to compile.

    ./run bench products            processor time of one thread, so that other work matters little
    ./run bench products --strict   a missed target is the exit status

The convolution is 64 -> 64 channels, 3 x 3, on 64 images of 32 x 32, forward and backward; the MLP
784-512-512-10 with a batch of 128, ReLU, cross-entropy and SGD with momentum. Compile times count
what a first use adds: writing the IR, parsing, checking and generating machine code. In parentheses
is what several kernels call, which is compiled with the first of them.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import _peers
import numpy as np

TARGET, COMPILE_TARGET = 1.0, 50.0  # of PyTorch's time; milliseconds
Step = Callable[[], Any]


def convolution(m: ModuleType) -> Step:
    """Forward and backward of one layer."""
    draw = np.random.default_rng(0).standard_normal
    functional = importlib.import_module(m.__name__ + ".nn.functional")
    x, w, g = (m.tensor(draw(s).astype(np.float32))
               for s in ((64, 64, 32, 32), (64, 64, 3, 3), (64, 64, 32, 32)))
    x.requires_grad_(), w.requires_grad_()

    def step() -> float:
        x.grad = w.grad = None
        functional.conv2d(x, w, padding=1).backward(g)
        return float(w.grad.abs().mean())
    return step


def mlp(m: ModuleType) -> Step:
    """A training step; all start from the same weights."""
    rng = np.random.default_rng(0)
    nn, optim = (importlib.import_module(f"{m.__name__}.{part}") for part in ("nn", "optim"))
    functional = importlib.import_module(m.__name__ + ".nn.functional")
    net = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
                        nn.Linear(512, 10))
    with m.no_grad():
        for p in net.parameters():
            p.copy_(m.tensor((rng.standard_normal(tuple(p.shape)) / 28).astype(np.float32)))
    x = m.tensor(rng.standard_normal((128, 784)).astype(np.float32))
    y = m.tensor(rng.integers(0, 10, 128))
    optimizer = optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)

    def step() -> float:
        optimizer.zero_grad()
        loss = functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return float(loss.detach())
    return step


def timed(step: Step, repeats: int) -> Callable[[], _peers.Phases]:
    """Processor time of one step, the mean of `repeats`."""
    def turn() -> _peers.Phases:
        start = time.process_time()
        for _ in range(repeats):
            step()
        return {"step": (time.process_time() - start) / repeats}
    return turn


def compile_times() -> dict[str, float]:
    """Milliseconds to compile each kernel family, the least of five."""
    from adjoint.kernels import attention_grad_ir, attention_ir, conv_ir, gemm_ir, gemm_plan, llvm

    if not llvm.available():
        return {}
    machine = gemm_plan.machine()
    spec, attention = gemm_ir.GemmSpec("float", "float", "float"), attention_ir.AttentionSpec
    makers: dict[str, Callable[[], str]] = {
        "product": lambda: gemm_ir.gemm_module(spec, machine),
        "convolution": lambda: conv_ir.conv_module(spec, False, machine),
        "its gradient": lambda: conv_ir.conv_module(spec, True, machine),
        "attention": lambda: attention_ir.forward_module(attention("", False), machine),
        "its backward": lambda: attention_grad_ir.backward_module(attention("", False), machine),
    }
    shared = (*conv_ir.conv_parts(spec, machine),
              *attention_grad_ir.backward_parts(attention("", False), machine))
    makers |= {f"({part.key[0]})": functools.partial(part.text, machine) for part in shared}
    found = {}
    for name, make in makers.items():
        times = []
        for _ in range(5):
            start = time.process_time()
            llvm._compile(make(), name, 0, False)
            times.append(time.process_time() - start)
        found[name] = min(times) * 1e3
    return found


def main() -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--strict", action="store_true")
    args = parser.parse_args()
    print(_peers.about())
    peers = _peers.load()
    for m in peers.values():
        m.set_num_threads(1)
    missed = False
    for name, build, repeats in (("convolution", convolution, 3), ("MLP step", mlp, 100)):
        steps = {peer: build(m) for peer, m in peers.items()}
        first = [step() for step in steps.values()]
        assert np.allclose(first, first[0], rtol=1e-4), f"{name}: the results differ: {first}"
        turns = {peer: timed(step, repeats) for peer, step in steps.items()}
        got = _peers.interleave(turns, args.rounds)
        line = "  ".join(f"{peer} {t['step'] * 1e3:.2f} ms" for peer, t in got.items())
        ratio = got["adjoint"]["step"] / got["torch"]["step"] if "torch" in got else None
        missed |= ratio is not None and ratio > TARGET
        print(f"{name:14s} {line}  {_peers.verdict(ratio, TARGET)}")
    for name, ms in compile_times().items():
        missed |= ms > COMPILE_TARGET
        print(f"compile {name:17s} {ms:5.1f} ms (target {COMPILE_TARGET:g})")
    return int(missed and args.strict)


if __name__ == "__main__":
    sys.exit(main())
