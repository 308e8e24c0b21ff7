"""MAML (Finn, Abbeel, Levine 2017, arXiv:1703.03400): parameters from which one gradient step fits
a new task. The outer gradient goes through the inner one; tasks are mapped over.

Uses: func.grad of func.vmap of func.grad, on plain dicts of parameters.

    python examples/maml.py
"""
from __future__ import annotations

import math
from typing import Any

import adjoint as ad
from adjoint.func import grad, value_and_grad, vmap

INNER = 0.05


def network(p: dict[str, Any], x: Any) -> Any:
    """Two hidden layers of 32 on one input."""
    h = ad.tanh(x @ p["w1"] + p["b1"])
    return ad.tanh(h @ p["w2"] + p["b2"]) @ p["w3"] + p["b3"]


def initial() -> dict[str, Any]:
    """Random weights."""
    return {"w1": ad.randn(1, 32), "b1": ad.zeros(32), "w2": ad.randn(32, 32) / 32 ** 0.5,
            "b2": ad.zeros(32), "w3": ad.randn(32, 1) / 32 ** 0.5, "b3": ad.zeros(1)}


def loss(p: dict[str, Any], x: Any, y: Any) -> Any:
    """Mean squared error."""
    return ((network(p, x) - y) ** 2).mean()


def adapted(p: dict[str, Any], x: Any, y: Any) -> dict[str, Any]:
    """Parameters after one step on a task's examples."""
    g = grad(loss)(p, x, y)
    return {n: p[n] - INNER * g[n] for n in p}


def meta_loss(p: dict[str, Any], tasks: tuple[Any, Any, Any, Any]) -> Any:
    """Mean loss after adaptation, over tasks."""
    def one(x: Any, y: Any, x_new: Any, y_new: Any) -> Any:
        return loss(adapted(p, x, y), x_new, y_new)
    return vmap(one)(*tasks).mean()


def sines(n: int, shots: int = 10) -> tuple[Any, Any, Any, Any]:
    """Tasks a sin(x + b): `shots` examples to adapt on, `shots` to test on."""
    a, b = 0.5 + 1.5 * ad.rand(n, 1, 1), math.pi * ad.rand(n, 1, 1)
    x, z = 4 * ad.rand(n, shots, 1) - 2, 4 * ad.rand(n, shots, 1) - 2
    return x, a * ad.sin(x + b), z, a * ad.sin(z + b)


def train(steps: int = 150, seed: int = 0) -> tuple[float, float]:
    """(loss after adaptation before meta-training, and after it) on unseen tasks."""
    ad.manual_seed(seed)
    p, test = initial(), sines(50)
    before = meta_loss(p, test).item()
    moment = {n: ad.zeros_like(v) for n, v in p.items()}
    for _ in range(steps):
        _, g = value_and_grad(meta_loss)(p, sines(16))
        moment = {n: 0.9 * moment[n] + g[n] for n in p}
        p = {n: p[n] - 0.02 * moment[n] for n in p}
    return before, meta_loss(p, test).item()


def main() -> None:
    """Meta-train and print."""
    before, after = train()
    print(f"loss after one inner step on unseen tasks: {before:.3f} -> {after:.3f}")


if __name__ == "__main__":
    main()
