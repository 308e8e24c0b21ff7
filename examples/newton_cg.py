"""Newton's method with conjugate gradients on Hessian-vector products (Nocedal and Wright,
Numerical Optimization, algorithm 7.1): the Hessian is never formed.

Uses: func.hvp (forward over reverse), func.value_and_grad.

    python examples/newton_cg.py
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import adjoint as ad
from adjoint.func import grad, hvp, value_and_grad


def conjugate_gradients(product: Callable[[Any], Any], b: Any, tol: float, limit: int) -> Any:
    """The solution of A p = b to |residual| <= tol; stops at a direction of negative curvature."""
    p, r = ad.zeros_like(b), b
    d, rr = r, (b * b).sum()
    for i in range(limit):
        ad_ = product(d)
        curvature = (d * ad_).sum()
        if curvature <= 0:
            return b if i == 0 else p
        alpha = rr / curvature
        p, r = p + alpha * d, r - alpha * ad_
        new = (r * r).sum()
        if new.sqrt() <= tol:
            return p
        d, rr = r + new / rr * d, new
    return p


def minimise(f: Callable[[Any], Any], x: Any, tol: float = 1e-9, limit: int = 100
             ) -> tuple[Any, int]:
    """(x, iterations) with |gradient| <= tol, by Newton-CG with backtracking."""
    for k in range(limit):
        value, g = value_and_grad(f)(x)
        size = (g * g).sum().sqrt().item()
        if size <= tol:
            return x, k
        p = conjugate_gradients(lambda v, x=x: hvp(f, (x,), (v,))[1][0], -g,
                                min(0.5, size ** 0.5) * size, 4 * x.shape[0])
        t, slope = 1.0, (g * p).sum()
        while f(x + t * p) > value + 1e-4 * t * slope and t > 1e-10:
            t /= 2
        x = x + t * p
    return x, limit


def rosenbrock(x: Any) -> Any:
    """Its minimum is at (1, ..., 1)."""
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def main() -> None:
    """Minimise Rosenbrock's function of 20 variables."""
    x, steps = minimise(rosenbrock, ad.zeros(20, dtype=ad.float64))
    size = grad(rosenbrock)(x).abs().max().item()
    print(f"{steps} Newton steps, f = {rosenbrock(x).item():.2e}, largest slope {size:.1e}")


if __name__ == "__main__":
    main()
