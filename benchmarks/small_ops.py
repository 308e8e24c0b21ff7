"""What an ordinary operation costs on a small tensor: arguments, dispatch, node, and its backward.

./run bench small_ops                     every row, with PyTorch beside it, interleaved
./run bench small_ops --only linear,cat   the rows whose name contains one of these

Microseconds of processor time per call, minima over the rounds: `forward` with a node, `backward`
of that node, `no_grad` without a node. Rows of whole steps have their backward in `forward`.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import _peers
import numpy as np

CALLS = 100
PHASES = ("forward", "backward", "no_grad")
TARGET = 1.0

Call = Callable[[], Any]


class Operands:
    """The tensors that rows use, of one peer."""

    def __init__(self, m: ModuleType) -> None:
        rng = np.random.default_rng(0)

        def leaf(*shape: int) -> Any:
            data = rng.standard_normal(shape).astype(np.float32)
            return m.tensor(data, requires_grad=True)

        self.m, self.f, nn = m, m.nn.functional, m.nn
        self.x, self.y, self.v = leaf(4, 8), leaf(4, 8), leaf(8)
        self.w, self.b = leaf(16, 8), leaf(16)
        self.sq, self.cube, self.cube2 = leaf(8, 8), leaf(2, 4, 8), leaf(2, 8, 4)
        self.image, self.taps = leaf(1, 2, 8, 8), leaf(3, 2, 3, 3)
        self.ids = m.tensor(np.array([1, 0, 3]))
        self.places = m.tensor(np.array([[0, 1], [2, 3], [4, 5], [6, 7]]))
        self.labels = m.tensor(np.array([1, 0, 3, 5]))
        self.mask = m.tensor(rng.standard_normal((4, 8)) > 0)
        self.table = leaf(10, 8)
        self.linear, self.relu, self.norm = nn.Linear(8, 16), nn.ReLU(), nn.LayerNorm(8)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        self.drop = nn.Dropout(0.5)
        self.drop.eval()
        self.dropping = nn.Dropout(0.5)
        self.plain = m.tensor(rng.standard_normal((4, 8)).astype(np.float32))
        self.other, self.one = self.plain.clone(), m.tensor(0.5)
        self.noise = self.plain.clone()
        weights = [nn.Parameter(self.plain.clone()) for _ in range(4)]
        for p in weights:
            p.grad = self.plain * 0.01
        self.sgd = m.optim.SGD(weights, lr=1e-3, momentum=0.9)
        self.adam = m.optim.AdamW(weights, lr=1e-3)


def views(o: Operands) -> dict[str, Call]:
    """Ops that move no values."""
    x, c = o.x, o.cube
    return {
        "x[0]": lambda: x[0],
        "x[:, 1:]": lambda: x[:, 1:],
        "x[..., 0]": lambda: x[..., 0],
        "x[:, None]": lambda: x[:, None],
        "reshape": lambda: x.reshape(8, 4),
        "reshape(-1)": lambda: x.reshape(-1),
        "view": lambda: x.view(2, 16),
        "flatten": lambda: c.flatten(1),
        "transpose": lambda: x.transpose(0, 1),
        "x.T": lambda: x.T,
        "x.mT": lambda: c.mT,
        "permute": lambda: c.permute(2, 0, 1),
        "unsqueeze": lambda: x.unsqueeze(1),
        "squeeze": lambda: o.image.squeeze(0),
        "expand": lambda: x.expand(2, 4, 8),
        "split": lambda: x.split(4, 1),
        "chunk": lambda: x.chunk(2, 1),
        "unbind": lambda: x.unbind(0),
    }


def reductions(o: Operands) -> dict[str, Call]:
    """Sums and maxima, and what is built on them."""
    m, f, x = o.m, o.f, o.x
    return {
        "sum()": lambda: x.sum(),
        "sum(1)": lambda: x.sum(1),
        "sum(dim=1, keepdim)": lambda: x.sum(dim=1, keepdim=True),
        "mean()": lambda: x.mean(),
        "mean(dim=0)": lambda: x.mean(dim=0),
        "var(1)": lambda: x.var(1),
        "max()": lambda: x.max(),
        "max(1)": lambda: x.max(1).values,
        "argmax(1)": lambda: x.argmax(1),
        "cumsum(1)": lambda: x.cumsum(1),
        "logsumexp(1)": lambda: x.logsumexp(1),
        "norm": lambda: m.linalg.norm(x),
        "softmax": lambda: x.softmax(-1),
        "F.softmax(dim=1)": lambda: f.softmax(x, dim=1),
        "F.log_softmax": lambda: f.log_softmax(x, dim=-1),
        "F.layer_norm": lambda: f.layer_norm(x, (8,), o.v, o.v),
        "F.cross_entropy": lambda: f.cross_entropy(x, o.labels),
        "F.mse_loss": lambda: f.mse_loss(x, o.y),
    }


def products(o: Operands) -> dict[str, Call]:
    """Matrix products."""
    m, f, x = o.m, o.f, o.x
    return {
        "x @ w": lambda: x @ o.sq,
        "mm": lambda: m.mm(x, o.sq),
        "matmul(x, v)": lambda: m.matmul(x, o.v),
        "dot": lambda: m.dot(o.v, o.v),
        "bmm": lambda: m.bmm(o.cube, o.cube2),
        "addmm": lambda: m.addmm(o.v, x, o.sq),
        "einsum": lambda: m.einsum("ij,jk->ik", x, o.sq),
        "F.linear": lambda: f.linear(x, o.w, o.b),
        "F.conv2d": lambda: f.conv2d(o.image, o.taps),
    }


def others(o: Operands) -> dict[str, Call]:
    """Joins, indexing, choices, activations."""
    m, f, x, y = o.m, o.f, o.x, o.y
    return {
        "cat": lambda: m.cat([x, y], 1),
        "stack": lambda: m.stack([x, y]),
        "x[ids]": lambda: x[o.ids],
        "x[ids, ids]": lambda: x[o.ids, o.ids],
        "x[mask]": lambda: x[o.mask],
        "gather": lambda: x.gather(1, o.places),
        "index_select": lambda: x.index_select(0, o.ids),
        "F.embedding": lambda: f.embedding(o.ids, o.table),
        "where(mask, x, 0.0)": lambda: m.where(o.mask, x, 0.0),
        "masked_fill": lambda: x.masked_fill(o.mask, 0.0),
        "clamp": lambda: x.clamp(-1.0, 1.0),
        "x ** 2": lambda: x**2,
        "x + y": lambda: x + y,
        "F.relu": lambda: f.relu(x),
        "F.gelu": lambda: f.gelu(x),
        "F.silu": lambda: f.silu(x),
        "clone": lambda: x.clone(),
        "detach": lambda: x.detach(),
        "float()": lambda: x.float(),
        "to(float64)": lambda: x.to(m.float64),
    }


def modules(o: Operands) -> dict[str, Call]:
    """Calls of modules."""
    x = o.x
    return {
        "nn.Linear": lambda: o.linear(x),
        "nn.ReLU": lambda: o.relu(x),
        "nn.LayerNorm": lambda: o.norm(x),
        "nn.Dropout": lambda: o.dropping(x),
        "nn.Dropout, eval": lambda: o.drop(x),
        "nn.Sequential of 3": lambda: o.mlp(x),
    }


def around(o: Operands) -> dict[str, Call]:
    """What a program does between its operations."""
    m, x, p, q = o.m, o.x, o.plain, o.other

    def without() -> None:
        with m.no_grad():
            pass
    return {
        "tensor(list)": lambda: m.tensor([1.0, 2.0, 3.0]),
        "zeros(4, 8)": lambda: m.zeros(4, 8),
        "arange(8)": lambda: m.arange(8),
        "zeros_like": lambda: m.zeros_like(p),
        "item()": lambda: o.one.item(),
        "x.data": lambda: x.data,
        "x.shape[0]": lambda: x.shape[0],
        "with no_grad()": without,
        "add_(y)": lambda: p.add_(q),
        "mul_(1.0)": lambda: p.mul_(1.0),
        "clamp_": lambda: p.clamp_(-1.0, 1.0),
        "addcmul_": lambda: p.addcmul_(q, q, value=0.0),
        "lerp_": lambda: p.lerp_(q, 0.0),
        "uniform_": lambda: o.noise.uniform_(),
        "ids + 1": lambda: o.ids + 1,
        "ids == 1": lambda: o.ids == 1,
        "p[0] = 1.0": lambda: p.__setitem__(0, 1.0),
        "x > 0": lambda: x > 0,
        "argmax() == y": lambda: (p.argmax(1) == o.labels).sum(),
        "SGD.step, 4 weights": o.sgd.step,
        "AdamW.step, 4 weights": o.adam.step,
        "zero_grad()": lambda: o.sgd.zero_grad(set_to_none=False),
    }


def rarer(o: Operands) -> dict[str, Call]:
    """What programs of some kinds call often: attention, labels of sequences, graphs."""
    m, f, x = o.m, o.f, o.x
    rng = np.random.default_rng(1)

    def leaf(*shape: int) -> Any:
        return m.tensor(rng.standard_normal(shape).astype(np.float32), requires_grad=True)

    heads, short, planes, rows = leaf(4, 8, 16, 16), leaf(8, 4, 32, 16), leaf(4, 8, 16, 16), leaf(
        200, 16)
    paths = leaf(20, 4, 10).log_softmax(-1).detach().requires_grad_(True)
    said = m.tensor(rng.integers(1, 10, (4, 6)))
    at = m.tensor(rng.integers(0, 50, 200)).view(-1, 1).expand(200, 16)
    nodes, line = m.zeros(50, 16), leaf(4, 16, 50)
    attend = f.scaled_dot_product_attention
    return {
        "attention (4, 8, 16, 16)": lambda: attend(heads, heads, heads),
        "attention (8, 4, 32, 16)": lambda: attend(short, short, short),
        "adaptive_avg_pool2d to 4": lambda: f.adaptive_avg_pool2d(planes, 4),
        "max_pool1d": lambda: f.max_pool1d(line, 2),
        "ctc_loss": lambda: f.ctc_loss(paths, said, (20,) * 4, (6,) * 4),
        "prod()": lambda: x.prod(),
        "cummax(1)": lambda: x.cummax(1).values,
        "tril_indices(8, 8)": lambda: m.tril_indices(8, 8),
        "scatter_add of rows": lambda: nodes.scatter_add(0, at, rows),
    }


def steps(o: Operands) -> dict[str, Call]:
    """Forward and backward of little."""
    m, x = o.m, o.x

    def backward() -> None:
        (x * x).sum().backward()
    return {
        "(x * x).sum().backward()": backward,
        "autograd.grad": lambda: m.autograd.grad((x * x).sum(), x),
        "autograd.grad, twice": lambda: m.autograd.grad(
            m.autograd.grad((x * x).sum(), x, create_graph=True)[0].sum(), x),
    }


def rows(m: ModuleType) -> dict[str, Call]:
    """Every row of one peer, by name."""
    o = Operands(m)
    return {k: v for kind in (views, reductions, products, others, modules, around, rarer, steps)
            for k, v in kind(o).items()}


def timed(m: ModuleType, row: str, call: Call) -> Callable[[], _peers.Phases]:
    """`CALLS` calls, their backward, and as many calls without gradients; seconds per call."""
    first = call()
    many = isinstance(first, (tuple, list))
    wants = getattr(first[0] if many else first, "requires_grad", False)
    whole = "grad" in row or "backward" in row
    outputs = (first if many else [first]) if wants else []
    cts = [m.ones_like(t).detach() for t in outputs] * CALLS
    span = range(CALLS)
    clock = time.process_time

    def run() -> _peers.Phases:
        start = clock()
        made = [call() for _ in span]
        phases = {"forward": clock() - start}
        if wants:
            roots = [t for ts in made for t in ts] if many else made
            start = clock()
            m.autograd.backward(roots, cts)
            phases["backward"] = clock() - start
        if whole:
            return {name: seconds / CALLS for name, seconds in phases.items()}
        with m.no_grad():
            start = clock()
            for _ in span:
                call()
            phases["no_grad"] = clock() - start
        return {name: seconds / CALLS for name, seconds in phases.items()}

    return run


def least(steps: dict[str, Callable[[], _peers.Phases]], rounds: int) -> dict[str, _peers.Phases]:
    """Minima over turns A B A B ..., with what imports left behind out of the collector's sight."""
    best: dict[str, _peers.Phases] = {name: step() for name, step in steps.items()}
    for _ in range(rounds):
        for name, step in steps.items():
            for phase, seconds in step().items():
                best[name][phase] = min(best[name][phase], seconds)
    return best


def main() -> int:
    """Exit status 1 if a target is missed and --strict was given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each peer")
    parser.add_argument("--only", default="", help="parts of names of rows, with commas")
    parser.add_argument("--strict", action="store_true", help="fail if a target is missed")
    args = parser.parse_args()
    wanted = args.only.split(",")
    print(_peers.about(), "processor time, microseconds per call", sep="; ")
    peers = _peers.load()
    calls = {name: rows(m) for name, m in peers.items()}
    gc.collect()
    gc.freeze()
    print(f"{'':20}" + "".join(f"{p + ' ours':>15} PyTorch ratio" for p in PHASES))
    missed = 0
    for row in calls["adjoint"]:
        if not any(w in row for w in wanted):
            continue
        found = least({n: timed(m, row, calls[n][row]) for n, m in peers.items()}, args.rounds)
        line = f"{row:20}"
        for phase in PHASES:
            us = [found[n][phase] * 1e6 for n in peers if phase in found[n]]
            ratio = us[0] / us[1] if len(us) == 2 else None
            missed += ratio is not None and ratio > TARGET
            line += f"{us[0]:15.2f}" if us else f"{'-':>15}"
            line += f"{us[1]:8.2f}{ratio:5.2f}x" if ratio else f"{'-':>8}{'':6}"
        print(line, flush=True)
    print(f"above {TARGET:g}x: {missed}")
    return int(args.strict and missed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
