"""Gaussian-process regression: hyperparameters by the gradient of the marginal likelihood.

log p(y) = -½ yᵀ K⁻¹ y - ½ log|K| - (n/2) log 2π (Rasmussen and Williams 2006, equation 2.30), by a
Cholesky factor, which is differentiated as it stands. Uses: func.value_and_grad, func.hessian.

    python examples/gaussian_process.py
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

import adjoint as ad
from adjoint.func import grad, hessian, value_and_grad


def kernel(theta: Any, a: Any, b: Any) -> Any:
    """Squared exponential: theta = log(amplitude), log(length), log(noise)."""
    off = (a[:, None] - b[None, :]) / ad.exp(theta[1])
    return ad.exp(2 * theta[0] - 0.5 * off * off)


def log_marginal(theta: Any, x: Any, y: Any) -> Any:
    """The log marginal likelihood of observations y at x."""
    n = len(x)
    k = kernel(theta, x, x) + ad.exp(2 * theta[2]) * ad.eye(n, dtype=x.dtype)
    low = ad.linalg.cholesky(k)
    white = ad.linalg.solve_triangular(low, y[:, None], upper=False)[:, 0]
    return (-0.5 * (white * white).sum() - ad.log(ad.diagonal(low)).sum()
            - 0.5 * n * math.log(2 * math.pi))


def fit(x: Any, y: Any, theta: Any, steps: int = 30) -> Any:
    """Newton's method on the three hyperparameters, damped until the likelihood grows."""
    both, curvature = value_and_grad(log_marginal), hessian(log_marginal)
    for _ in range(steps):
        value, g = both(theta, x, y)
        if float((g * g).sum()) < 1e-16:
            break
        eigen, basis = ad.linalg.eigh(curvature(theta, x, y))
        step = basis @ ((basis.T @ g) / eigen.abs().clamp(min=1e-3))
        size = 1.0 / max(1.0, float(step.norm()))       # a factor of e at most
        while size > 1e-6 and float(log_marginal(theta + size * step, x, y)) < float(value):
            size /= 2
        theta = theta + size * step
    return theta


def predict(theta: Any, x: Any, y: Any, at: Any) -> tuple[Any, Any]:
    """Mean and standard deviation of the function at new points."""
    k = kernel(theta, x, x) + ad.exp(2 * theta[2]) * ad.eye(len(x), dtype=x.dtype)
    low = ad.linalg.cholesky(k)
    cross = ad.linalg.solve_triangular(low, kernel(theta, x, at), upper=False)
    white = ad.linalg.solve_triangular(low, y[:, None], upper=False)[:, 0]
    variance = ad.exp(2 * theta[0]) - (cross * cross).sum(0)
    return cross.T @ white, variance.clamp(min=0).sqrt()


def data(n: int = 40, seed: int = 0) -> tuple[Any, Any]:
    """Noisy values of a sine."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0, 6, n))
    return ad.tensor(x), ad.tensor(np.sin(x) + 0.1 * rng.normal(size=n))


def main() -> None:
    """Fit, and print hyperparameters and a prediction."""
    x, y = data()
    theta = fit(x, y, ad.zeros(3, dtype=ad.float64))
    mean, std = predict(theta, x, y, ad.tensor([1.5], dtype=ad.float64))
    print("amplitude, length, noise", ad.exp(theta).round(decimals=3).tolist())
    print("gradient there", float(grad(log_marginal)(theta, x, y).norm()))
    print(f"f(1.5) = {mean.item():.3f} ± {std.item():.3f}, sin(1.5) = {math.sin(1.5):.3f}")


if __name__ == "__main__":
    main()
