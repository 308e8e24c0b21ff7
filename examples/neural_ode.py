"""Sensitivities of a differential equation's solution: which parameters made this trajectory?

A Lotka-Volterra simulator (RK4, fixed steps) is differentiated in three ways: forward mode (one run
per parameter), reverse mode through every step, and reverse mode keeping O(sqrt T) steps. Then its
parameters are fitted to a trajectory, and a network is fitted as a right-hand side (neural ODE:
Chen et al. 2018, arXiv:1806.07366; here by differentiating the discrete solver).

Uses: func.scan with segments="sqrt", func.jacfwd, func.jacrev, func.value_and_grad.

    python examples/neural_ode.py
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import adjoint as ad
from adjoint.func import jacfwd, jacrev, scan, value_and_grad

Field = Callable[[Any, Any], Any]


def lotka_volterra(p: Any, u: Any) -> Any:
    """Prey and predators: p = (birth, predation, death, growth)."""
    x, y = u[0], u[1]
    return ad.stack([p[0] * x - p[1] * x * y, p[3] * x * y - p[2] * y])


def solve(field: Field, p: Any, u0: Any, steps: int, dt: float, segments: Any = None) -> Any:
    """(steps, *u0.shape): the trajectory by the classical Runge-Kutta method."""
    def step(u: Any, _: Any) -> tuple[Any, Any]:
        k1 = field(p, u)
        k2 = field(p, u + dt / 2 * k1)
        k3 = field(p, u + dt / 2 * k2)
        k4 = field(p, u + dt * k3)
        new = u + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return new, new
    if segments is None:
        return scan(step, u0, length=steps)[1]
    # a checkpointed segment differentiates its arguments, so p travels in the carry
    def carried(state: Any, _: Any) -> tuple[Any, Any]:
        nonlocal p
        u, p = state
        new = step(u, None)[0]
        return (new, p), new
    return scan(carried, (u0, p), length=steps, segments=segments)[1]


def fit(field: Field, p: Any, u0: Any, data: Any, dt: float, iterations: int, rate: float
        ) -> tuple[Any, list[float]]:
    """(parameters, losses) after gradient descent with sign-free scaling (Adam's second moment)."""
    def loss(p: Any) -> Any:
        return ((solve(field, p, u0, data.shape[0], dt) - data) ** 2).mean()
    losses, m, v = [], ad.zeros_like(p), ad.zeros_like(p)
    for k in range(1, iterations + 1):
        value, g = value_and_grad(loss)(p)
        losses.append(value.item())
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        p = p - rate * (m / (1 - 0.9 ** k)) / ((v / (1 - 0.99 ** k)).sqrt() + 1e-8)
    return p, losses


def network(p: Any, u: Any) -> Any:
    """A right-hand side with 2 * 8 + 8 + 8 * 2 + 2 parameters in one vector."""
    h = ad.tanh(p[:16].reshape(8, 2) @ u + p[16:24])
    return p[24:40].reshape(2, 8) @ h + p[40:42]


def main() -> None:
    """Sensitivities three ways, then both fits."""
    p = ad.tensor([1.1, 0.4, 0.4, 0.1], dtype=ad.float64)
    u0 = ad.tensor([10.0, 5.0], dtype=ad.float64)

    def last(p: Any, segments: Any = None) -> Any:
        return solve(lotka_volterra, p, u0, 36, 0.05, segments)[-1]
    ways = [jacfwd(last)(p), jacrev(last)(p), jacrev(lambda p: last(p, "sqrt"))(p)]
    print("d(prey, predators)/d(parameters) after 1.8 years:")
    print(ways[0])
    print(f"largest difference between the three ways: "
          f"{max((w - ways[0]).abs().max().item() for w in ways):.1e}")
    data = solve(lotka_volterra, p, u0, 20, 0.1)
    found, losses = fit(lotka_volterra, p * 0.8, u0, data, 0.1, 25, 0.02)
    print(f"fit: loss {losses[0]:.3f} -> {losses[-1]:.4f}, parameters {found.tolist()}")
    ad.manual_seed(0)
    start = 0.3 * ad.randn(42, dtype=ad.float64)
    _, losses = fit(network, start, u0 / 10, data / 10, 0.1, 25, 0.03)
    print(f"neural ODE: loss {losses[0]:.3f} -> {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
