"""Steps of small training programs, the ones that people write first, beside PyTorch.

    ./run bench small_programs                    every program
    ./run bench small_programs --only gpt,lenet   those whose name contains one of these

Microseconds of processor time per step on one thread (data, forward, backward, optimizer), medians
of interleaved turns. Both peers start from the same weights, and `same` is the largest difference
of their losses over the first three steps.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import _peers
import numpy as np

TARGET = 1.0
SECONDS = 0.02  # a turn of one peer
ONE = {"OMP_NUM_THREADS": "1"}

Step = Callable[[], Any]  # one step; its loss
Program = Callable[[ModuleType], Step]


def filled(model: Any, m: ModuleType) -> Any:
    """The model with weights that are the same for every peer."""
    rng = np.random.default_rng(0)
    with m.no_grad():
        for p in model.parameters():
            scale = 1 / np.sqrt(p.shape[-1]) if p.ndim > 1 else 0.1
            p.copy_(m.tensor((rng.standard_normal(tuple(p.shape)) * scale).astype(np.float32)))
    return model


def trained(m: ModuleType, model: Any, loss_of: Callable[[], Any]) -> Step:
    """A step of Adam."""
    optimizer = m.optim.Adam(filled(model, m).parameters(), lr=1e-3)

    def step() -> Any:
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        return loss
    return step


def normal(m: ModuleType, *shape: int) -> Any:
    return m.tensor(np.random.default_rng(1).standard_normal(shape).astype(np.float32))


def classes(m: ModuleType, high: int, *shape: int) -> Any:
    return m.tensor(np.random.default_rng(2).integers(0, high, shape))


def mlp(m: ModuleType) -> Step:
    """Two layers on (32, 64), mean squared error."""
    nn = m.nn
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    x, y = normal(m, 32, 64), normal(m, 32, 10)
    return trained(m, model, lambda: nn.functional.mse_loss(model(x), y))


def lstm(m: ModuleType) -> Step:
    """A loop of 16 LSTM cells, hidden 32, batch 8."""
    cell, head = m.nn.LSTMCell(16, 32), m.nn.Linear(32, 1)
    model = m.nn.ModuleList([cell, head])
    xs, y = normal(m, 16, 8, 16), normal(m, 8, 1)

    def loss() -> Any:
        h, c = m.zeros(8, 32), m.zeros(8, 32)
        for x in xs:
            h, c = cell(x, (h, c))
        return ((head(h) - y) ** 2).mean()
    return trained(m, model, loss)


def reinforce(m: ModuleType) -> Step:
    """An episode of 20 steps of a policy for cart-pole, one observation at a time, as the examples
    have it: softmax, log-probability of an action, discounted returns, one step of Adam."""
    nn = m.nn
    model = nn.Sequential(nn.Linear(4, 32), nn.Dropout(0.0), nn.ReLU(), nn.Linear(32, 2))
    seen = np.random.default_rng(1).standard_normal((20, 4)).astype(np.float32)
    taken = np.random.default_rng(2).integers(0, 2, 20)

    def loss() -> Any:
        saved, returns, total = [], [], 0.0
        for state, action in zip(seen, taken, strict=True):
            shares = m.softmax(model(m.from_numpy(state).unsqueeze(0)), dim=1)
            chosen = m.distributions.Categorical(shares, validate_args=False)
            saved.append(chosen.log_prob(m.tensor(int(action))))
        for _ in saved:
            total = 1.0 + 0.99 * total
            returns.insert(0, total)
        wanted = m.tensor(returns)
        wanted = (wanted - wanted.mean()) / (wanted.std() + 1e-6)
        parts = [-p * r for p, r in zip(saved, wanted, strict=True)]
        return m.cat(parts).sum()
    return trained(m, model, loss)


def gpt(m: ModuleType) -> Step:
    """Two blocks, 64 wide, 4 heads, 8 texts of 32 tokens; attention written out."""
    nn, f = m.nn, m.nn.functional

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.LayerNorm(64), nn.LayerNorm(64)
            self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)
            self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)
            self.register_buffer("mask", m.tril(m.ones(32, 32)).view(1, 1, 32, 32))

        def forward(self, x: Any) -> Any:
            q, k, v = (t.view(8, 32, 4, 16).transpose(1, 2)
                       for t in self.qkv(self.a(x)).split(64, dim=2))
            scores = (q @ k.transpose(-2, -1)) * 0.25
            scores = scores.masked_fill(self.mask == 0, float("-inf"))
            y = (f.softmax(scores, dim=-1) @ v).transpose(1, 2).contiguous().view(8, 32, 64)
            x = x + self.out(y)
            return x + self.down(f.gelu(self.up(self.b(x))))

    class Model(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(50, 64), nn.Embedding(32, 64)
            self.blocks = nn.ModuleList([Block(), Block()])
            self.norm, self.head = nn.LayerNorm(64), nn.Linear(64, 50, bias=False)

        def forward(self, ids: Any, targets: Any) -> Any:
            x = self.tokens(ids) + self.places(m.arange(32))
            for block in self.blocks:
                x = block(x)
            logits = self.head(self.norm(x))
            return f.cross_entropy(logits.view(-1, 50), targets.view(-1))
    model = Model()
    ids = classes(m, 50, 8, 33)
    return trained(m, model, lambda: model(ids[:, :-1].contiguous(), ids[:, 1:].contiguous()))


def lenet(m: ModuleType) -> Step:
    """LeNet-5 on 8 images of 28x28."""
    nn = m.nn
    model = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84),
        nn.ReLU(), nn.Linear(84, 10))
    x, y = normal(m, 8, 1, 28, 28), classes(m, 10, 8)
    return trained(m, model, lambda: nn.functional.cross_entropy(model(x), y))


def batches(m: ModuleType) -> Step:
    """One epoch of linear regression: 8 batches of 8 from a `DataLoader`, SGD, clipped."""
    data = m.utils.data
    loader = data.DataLoader(data.TensorDataset(normal(m, 64, 4), normal(m, 64, 1)), batch_size=8)
    model = filled(m.nn.Linear(4, 1), m)
    optimizer = m.optim.SGD(model.parameters(), lr=1e-2)

    def step() -> Any:
        for x, y in loader:
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            m.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        return loss
    return step


def penalty(m: ModuleType) -> Step:
    """A gradient penalty: the gradient of a critic by its input, under the loss."""
    nn = m.nn
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    x = normal(m, 16, 8)
    x.requires_grad_()

    def loss() -> Any:
        grad, = m.autograd.grad(model(x).sum(), x, create_graph=True)
        return ((grad.norm(2, dim=1) - 1) ** 2).mean()
    return trained(m, model, loss)


PROGRAMS: dict[str, Program] = {
    "mlp": mlp, "lstm cells": lstm, "reinforce": reinforce, "gpt": gpt, "lenet": lenet,
    "batches": batches, "gradient penalty": penalty}


def turn(step: Step, seconds: float = SECONDS) -> Callable[[], _peers.Phases]:
    """So many steps as fill a turn, after as many as take twenty turns; seconds per step."""
    start, before = time.perf_counter(), 0
    while time.perf_counter() - start < 20 * seconds:
        step()
        before += 1
    count = max(1, before // 20)

    def run() -> _peers.Phases:
        start = time.process_time()
        for _ in itertools.repeat(None, count):
            step()
        return {"step": (time.process_time() - start) / count}
    return run


def main(argv: list[str] | None = None) -> int:
    """Exit status 1 if a target is missed and --strict was given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=31, help="turns of each peer")
    parser.add_argument("--only", default="", help="parts of names of programs, with commas")
    parser.add_argument("--strict", action="store_true", help="fail if a target is missed")
    args = parser.parse_args(argv)
    print(_peers.about(), "processor time, microseconds per step", sep="; ")
    peers = _peers.load()
    for m in peers.values():
        m.set_num_threads(1)
    print(f"{'program':18}{'ours':>10}{'PyTorch':>10}{'ratio':>8}{'same':>10}")
    missed = 0
    for name, program in PROGRAMS.items():
        if not any(w in name for w in args.only.split(",")):
            continue
        steps = {peer: program(m) for peer, m in peers.items()}
        losses = [[float(step().detach()) for _ in range(3)] for step in steps.values()]
        turns = {peer: turn(step) for peer, step in steps.items()}
        found = [1e6 * phases["step"] for phases in _peers.interleave(turns, args.rounds).values()]
        line = f"{name:18}{found[0]:10.0f}"
        if len(found) == 2:
            missed += found[0] > TARGET * found[1]
            same = max(abs(a - b) for a, b in zip(*losses, strict=True))
            line += f"{found[1]:10.0f}{found[0] / found[1]:7.2f}x{same:10.1e}"
        print(line, flush=True)
    print(f"above {TARGET:g}x: {missed}")
    return int(args.strict and missed > 0)


if __name__ == "__main__":
    if any(os.environ.get(k) != v for k, v in ONE.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ONE})
    raise SystemExit(main())
