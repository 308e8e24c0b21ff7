"""The same program gives the same bits: on every call, in every process, with and without a graph.

Checkpoints recompute, and a resumed training run starts in a new process: both promise bit
equality, which holds only if the way a result is computed never depends on what ran before.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from helpers_engine import OURS

ROOT = Path(__file__).resolve().parent.parent

REPEATED = """
import numpy as np
import {module} as ad
import {module}.utils.checkpoint

F = ad.nn.functional
rng = np.random.default_rng(0)
names = "gelu silu softplus mish elu selu celu relu hardswish logsigmoid softsign tanh".split()
wrong = []
hooks = ad.autograd.graph.saved_tensors_hooks
modes = {{
    "no_grad": ad.no_grad,
    "inference_mode": ad.inference_mode,
    "hooks": lambda: hooks(lambda t: t, lambda t: t),
}}
for shape in [{shape}]:
    data = rng.standard_normal(shape).astype(np.float32)
    last = shape[-1]
    programs = {{name: getattr(F, name) for name in names}}
    for name in "exp log1p sin cos erf expm1 rsqrt sqrt log".split():
        programs[name] = lambda t, f=getattr(ad, name): f(t.abs() + 0.5)
    programs["gelu tanh"] = lambda t: F.gelu(t, approximate="tanh")
    programs["softmax"] = lambda t: ad.softmax(t, -1)
    programs["log_softmax"] = lambda t: ad.log_softmax(t, -1)
    programs["layer_norm"] = lambda t: F.layer_norm(t, (last,))
    programs["sum"] = lambda t: t.sum()
    programs["mean"] = lambda t: t.mean(-1)
    programs["matmul"] = lambda t: t.reshape(-1, last) @ t.reshape(-1, last).t()
    programs["chain"] = lambda t: (t * 0.5 + 1.0).tanh() * t
    for name, program in programs.items():
        bits = set()
        for turn in range(4):
            leaf = ad.from_numpy(data.copy()).requires_grad_()
            out = program(leaf)
            (g,) = ad.autograd.grad(out.sum(), leaf)
            bits.add(out.detach().numpy().tobytes() + g.numpy().tobytes())
            for mode in modes:
                with modes[mode]():
                    other = program(leaf)
                if other.detach().numpy().tobytes() != out.detach().numpy().tobytes():
                    wrong.append((name, mode, turn))
            again = leaf.detach().requires_grad_()
            ad.utils.checkpoint.checkpoint(program, again, use_reentrant=False).sum().backward()
            if again.grad.numpy().tobytes() != g.numpy().tobytes():
                wrong.append((name, "checkpoint", turn))
        if len(bits) > 1:
            wrong.append((name, "calls differ"))
print(wrong)
"""

TRAINED = """
import numpy as np
import {module} as ad

ad.manual_seed(0)
nn = ad.nn
model = nn.Sequential(nn.Linear(24, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 5))
optimizer = ad.optim.AdamW(model.parameters(), lr=1e-2)
x, y = ad.randn(96, 24), ad.randint(0, 5, (96,))
for step in range(12):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    print(loss.detach().numpy().tobytes().hex())
print([p.detach().numpy().tobytes().hex() for p in model.parameters()])
"""


def fresh(program: str, shape: tuple[int, ...] = ()) -> str:
    """What a new interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", program.format(module="adjoint" if OURS else "torch", shape=shape)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("shape", [(2, 8, 64), (300, 400)])
def test_the_first_call_is_like_every_other(shape: tuple[int, ...]) -> None:
    """F45, F46, F70: no kernel takes over from another after the first call; neither a graph, nor
    a mode, nor hooks, nor a checkpoint change a bit."""
    assert fresh(REPEATED, shape).strip() == "[]"


OFTEN = """
import numpy as np
import {module} as ad

F = ad.nn.functional
data = np.random.default_rng(0).standard_normal((6, 7)).astype(np.float32)
programs = {{
    "leaky_relu": lambda t: F.leaky_relu(t, 0.2), "elu": lambda t: F.elu(t, 0.7),
    "celu": lambda t: F.celu(t, 0.7), "softplus": lambda t: F.softplus(t, 2.0, 1.0),
    "hardtanh": lambda t: F.hardtanh(t, -0.5, 0.6), "threshold": lambda t: F.threshold(t, 0.1, 2.0),
    "hardshrink": lambda t: F.hardshrink(t, 0.3), "softshrink": lambda t: F.softshrink(t, 0.3),
    "clamp": lambda t: t.clamp(-0.4, 0.5), "addcmul": lambda t: ad.addcmul(t, t, t, value=0.3),
    "addcdiv": lambda t: ad.addcdiv(t, t, t + 9, value=0.3),
    "lerp": lambda t: ad.lerp(t, t * t, 0.3),
    "huber": lambda t: F.huber_loss(t, t.detach() * 0.5, delta=0.3),
    "smooth_l1": lambda t: F.smooth_l1_loss(t, t.detach() * 0.5, beta=0.3),
}}
for name, program in programs.items():
    bits = set()
    for turn in range(120):
        leaf = ad.from_numpy(data.copy()).requires_grad_()
        out = program(leaf)
        (g,) = ad.autograd.grad(out.square().sum(), leaf, create_graph=True)
        (h,) = ad.autograd.grad(g.square().sum(), leaf)
        assert out.dtype == g.dtype == h.dtype == ad.float32
        names, todo = set(), [g.grad_fn]
        while todo:
            node = todo.pop()
            names.add(node.name())
            todo += [n for n, _ in node.next_functions if n is not None]
        assert not any("Copy" in n for n in names), (name, names)
        bits.add(b"".join(t.detach().numpy().tobytes() for t in (out, g, h)))
    if len(bits) > 1:
        print(name)
"""


def test_the_hundredth_call_is_like_the_first() -> None:
    """Ops with attributes get another function when they are called often; second derivatives of
    float32 stay float32, without a cast in between."""
    assert fresh(OFTEN) == ""


def test_two_processes_train_to_the_same_bits() -> None:
    """Twelve AdamW steps: every loss and every weight."""
    assert fresh(TRAINED) == fresh(TRAINED)


@pytest.mark.slow
def test_ten_processes_train_to_the_same_bits() -> None:
    """What is measured at run time (which kernel is faster) must not decide about bits."""
    assert len({fresh(TRAINED) for _ in range(10)}) == 1
