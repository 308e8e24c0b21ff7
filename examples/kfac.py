"""K-FAC and Shampoo: second-order steps from Kronecker-factored statistics.

Neither forms the Hessian or multiplies by it. For a layer s = W a:

    K-FAC    F ≈ E[a aᵀ] ⊗ E[g gᵀ], with a the layer's inputs and g the gradients with respect to
             its outputs under labels drawn from the model; the step is G⁻¹ (dL/dW) A⁻¹
             (Martens and Grosse 2015, arXiv:1503.05671)
    Shampoo  L = Σ G Gᵀ, R = Σ Gᵀ G over the gradients G of the weights seen so far; the step is
             L^(-1/4) G R^(-1/4) (Gupta, Koren and Singer 2018, arXiv:1802.09568)

Both statistics come from one backward pass: the a are what the forward made, the g are read off at
the layers' outputs. Uses: func.vjp with the outputs as arguments.

    python examples/kfac.py
"""
from __future__ import annotations

from typing import Any

import numpy as np

import adjoint as ad
from adjoint.func import vjp

Weights = list[Any]


def forward(ws: Weights, shifts: Weights, x: Any) -> tuple[Any, list[Any]]:
    """Logits, and the inputs of every layer (a one is appended for the bias). `shifts`, zeros that
    are added to the layers' outputs, receive the gradients g."""
    inputs, h = [], x
    for i, (w, shift) in enumerate(zip(ws, shifts, strict=True)):
        a = ad.cat([h, ad.ones((len(h), 1), dtype=h.dtype)], 1)
        inputs.append(a)
        s = a @ w.T + shift
        h = ad.tanh(s) if i < len(ws) - 1 else s
    return h, inputs


def statistics(ws: Weights, x: Any, y: Any) -> tuple[Weights, list[Any], list[Any]]:
    """(gradients of the mean loss, A factors, G factors) at a batch with labels y."""
    n = len(x)
    zeros = [ad.zeros((n, len(w)), dtype=w.dtype) for w in ws]
    (logits, inputs), pull = vjp(lambda w, z: forward(w, z, x), ws, zeros)
    p = ad.softmax(logits, 1)
    constant = [ad.zeros_like(a) for a in inputs]
    grads, _ = pull(((p - one_hot(y, p)) / n, constant))
    drawn = ad.multinomial(p, 1)[:, 0]              # the Fisher matrix is that of the model
    _, outer = pull((p - one_hot(drawn, p), constant))
    return grads, [a.T @ a / n for a in inputs], [g.T @ g / n for g in outer]


def one_hot(y: Any, like: Any) -> Any:
    """Rows with a one at the label."""
    return ad.nn.functional.one_hot(y, like.shape[1]).to(like.dtype)


def power(matrix: Any, exponent: float, damping: float) -> Any:
    """(M + damping I)^exponent of a symmetric positive semi-definite matrix."""
    values, basis = ad.linalg.eigh(matrix)
    return (basis * (values.clamp(min=0.0) + damping) ** exponent) @ basis.T


def kfac_step(ws: Weights, x: Any, y: Any, rate: float, damping: float = 1e-2) -> Weights:
    """Weights after one natural-gradient step; the damping is split evenly over both factors."""
    grads, a_factors, g_factors = statistics(ws, x, y)
    half = damping ** 0.5
    return [w - rate * (power(b, -1.0, half) @ g @ power(a, -1.0, half))
            for w, g, a, b in zip(ws, grads, a_factors, g_factors, strict=True)]


class Shampoo:
    """Left and right statistics of every weight matrix, summed over steps."""

    def __init__(self, ws: Weights) -> None:
        self.left = [1e-4 * ad.eye(w.shape[0], dtype=w.dtype) for w in ws]
        self.right = [1e-4 * ad.eye(w.shape[1], dtype=w.dtype) for w in ws]

    def step(self, ws: Weights, grads: Weights, rate: float) -> Weights:
        """Weights after one step."""
        out = []
        for i, (w, g) in enumerate(zip(ws, grads, strict=True)):
            self.left[i] = self.left[i] + g @ g.T
            self.right[i] = self.right[i] + g.T @ g
            out.append(w - rate * (power(self.left[i], -0.25, 0.0) @ g
                                   @ power(self.right[i], -0.25, 0.0)))
        return out


def loss(ws: Weights, x: Any, y: Any) -> Any:
    """Mean cross entropy."""
    zeros = [ad.zeros((len(x), len(w)), dtype=w.dtype) for w in ws]
    return ad.nn.functional.cross_entropy(forward(ws, zeros, x)[0], y)


def data(n: int = 256, seed: int = 0) -> tuple[Any, Any]:
    """Three spirals, their axes scaled very differently."""
    rng = np.random.default_rng(seed)
    label = np.arange(n) % 3
    r = rng.uniform(0.1, 1.0, n)
    angle = 4 * r + 2 * np.pi * label / 3 + 0.1 * rng.normal(size=n)
    return (ad.tensor(np.stack([30 * r * np.cos(angle), 0.3 * r * np.sin(angle)], 1)),
            ad.tensor(label))


def initial(sizes: tuple[int, ...] = (2, 24, 3), seed: int = 0) -> Weights:
    """Random weights (out, in + 1)."""
    rng = np.random.default_rng(seed)
    return [ad.tensor(rng.normal(size=(b, a + 1)) / np.sqrt(a + 1))
            for a, b in zip(sizes[:-1], sizes[1:], strict=True)]


def train(method: str, steps: int = 40) -> float:
    """The loss after some steps of "sgd", "shampoo" or "kfac"."""
    ad.manual_seed(0)
    x, y = data()
    ws = initial()
    shampoo = Shampoo(ws)
    for _ in range(steps):
        if method == "kfac":
            ws = kfac_step(ws, x, y, 0.5)
            continue
        grads = statistics(ws, x, y)[0]
        ws = shampoo.step(ws, grads, 0.5) if method == "shampoo" else [
            w - 0.05 * g for w, g in zip(ws, grads, strict=True)]
    return float(loss(ws, x, y))


def main() -> None:
    """Losses after the same number of steps."""
    for method in ("sgd", "shampoo", "kfac"):
        print(f"{method:8} {train(method):.3f}")


if __name__ == "__main__":
    main()
