"""Derivatives of derivatives under vmap: residuals that are outputs of mapped ops."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adjoint as ad

CASES: dict[str, Callable[[Any, Any], Any]] = {
    "sqrt": lambda m, x: m.sqrt(x),
    "exp": lambda m, x: m.exp(x),
    "tanh": lambda m, x: m.tanh(x),
    "power": lambda m, x: x**2.5,
    "reciprocal": lambda m, x: 1 / m.sqrt(x),
    "product": lambda m, x: m.prod(x) * m.sum(x * x),
    "cumulative": lambda m, x: m.cumsum(x, 0) ** 3,
    "choice": lambda m, x: m.where(x > 1.5, m.sqrt(x) * m.log(x), x**3),
}
POINTS = np.array([[1.0, 4.0], [9.0, 2.0]])


def chain(grad: Any, total: Callable[[Any], Any], order: int) -> Callable[[Any], Any]:
    f = total
    for _ in range(order - 1):
        f = (lambda inner: lambda v: grad(inner)(v).sum())(f)
    return grad(f)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("name", CASES)
def test_orders_under_vmap_equal_jaxs(name: str, order: int) -> None:
    jax = pytest.importorskip("jax")
    f = CASES[name]
    with jax.enable_x64(True):
        theirs = jax.vmap(chain(jax.grad, lambda v: f(jax.numpy, v).sum(), order))(
            jax.numpy.asarray(POINTS))
        wanted = np.asarray(theirs)
    ours = ad.func.vmap(chain(ad.func.grad, lambda v: f(ad, v).sum(), order))(ad.tensor(POINTS))
    np.testing.assert_allclose(ours.numpy(), wanted, rtol=1e-9, atol=1e-12)


def test_second_derivative_of_a_mapped_root() -> None:
    """-1/4 x^(-3/2)."""
    ours = ad.func.vmap(chain(ad.func.grad, lambda v: ad.sqrt(v).sum(), 2))(ad.tensor(POINTS))
    np.testing.assert_allclose(ours.numpy(), -0.25 * POINTS**-1.5, rtol=1e-12)
