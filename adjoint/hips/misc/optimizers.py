"""`autograd.misc.optimizers`: first-order methods on trees of parameters.

`grad(x, i)` gives the gradient in iteration i; `callback(x, i, g)` is called before every step.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from adjoint.hips import numpy as np
from adjoint.hips.misc.flatten import flatten

F = Callable[..., Any]


def unflatten_optimizer(optimize: F) -> F:
    """A method on vectors as one on trees."""
    @wraps(optimize)
    def run(grad: F, x0: Any, callback: F | None = None, *args: Any, **kwargs: Any) -> Any:
        vector, unflatten = flatten(x0)

        def slope(x: Any, i: int) -> Any:
            return flatten(grad(unflatten(x), i))[0]

        def tell(x: Any, i: int, g: Any) -> Any:
            return callback(unflatten(x), i, unflatten(g)) if callback else None
        return unflatten(optimize(slope, vector, tell, *args, **kwargs))
    return run


@unflatten_optimizer
def sgd(grad: F, x: Any, callback: F, num_iters: int = 200, step_size: float = 0.1,
        mass: float = 0.9) -> Any:
    """Stochastic gradient descent with momentum: v = mass v - (1 - mass) g, x = x + step v."""
    velocity = np.zeros_like(x)
    for i in range(num_iters):
        g = grad(x, i)
        callback(x, i, g)
        velocity = mass * velocity - (1.0 - mass) * g
        x = x + step_size * velocity
    return x


@unflatten_optimizer
def rmsprop(grad: F, x: Any, callback: F, num_iters: int = 100, step_size: float = 0.1,
            gamma: float = 0.9, eps: float = 1e-8) -> Any:
    """Steps divided by the root of a running mean of squared gradients, which starts at one
    (Tieleman and Hinton 2012, lecture 6.5)."""
    mean_square = np.ones_like(x)
    for i in range(num_iters):
        g = grad(x, i)
        callback(x, i, g)
        mean_square = gamma * mean_square + (1 - gamma) * g ** 2
        x = x - step_size * g / (np.sqrt(mean_square) + eps)
    return x


@unflatten_optimizer
def adam(grad: F, x: Any, callback: F, num_iters: int = 100, step_size: float = 0.001,
         b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Any:
    """Adam (Kingma and Ba 2015, arXiv:1412.6980, algorithm 1)."""
    m, v = np.zeros_like(x), np.zeros_like(x)
    for i in range(num_iters):
        g = grad(x, i)
        callback(x, i, g)
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g ** 2
        x = x - step_size * (m / (1 - b1 ** (i + 1))) / (np.sqrt(v / (1 - b2 ** (i + 1))) + eps)
    return x


__all__ = ["adam", "rmsprop", "sgd", "unflatten_optimizer"]
