"""Every derivative formula of the documents by three routes: forward mode, reverse mode and
differences, over all entries of the Jacobian."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adjoint as ad

af, F = ad.func, ad.nn.functional
LABELS = ad.tensor([1, 0, 3])

# row and formula -> the function, the shapes of its operands
FORMULAS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "F8 (x1 + x2) x1": (lambda v: (v[0] + v[1]) * v[0], [(2,)]),
    "F10 x sin x": (lambda x: ad.sin(x) * x, [(4,)]),
    "F12 tanh(W x)": (lambda w, x: ad.tanh(w @ x), [(4, 3), (3,)]),
    "F14 gradient of x1^2 x2": (lambda x: af.grad(lambda v: v[0] ** 2 * v[1])(x), [(2,)]),
    "F30 (W2 s(W1 x))^2": (lambda w2, w1, x: (w2 @ ad.sigmoid(w1 @ x)) ** 2,
                           [(1, 4), (4, 3), (3,)]),
    "F31 matmul": (lambda a, b: a @ b, [(3, 4), (4, 2)]),
    "F31 batched matmul": (lambda a, b: a @ b, [(2, 3, 4), (4, 2)]),
    "F32 linear": (F.linear, [(5, 3), (2, 3), (2,)]),
    "F33 relu": (ad.relu, [(7,)]),
    "F34 sigmoid": (ad.sigmoid, [(7,)]),
    "F35 softmax": (lambda x: ad.softmax(x, 1), [(3, 4)]),
    "F36 cross-entropy": (lambda x: F.cross_entropy(x, LABELS), [(3, 4)]),
    "F37 product": (lambda x, y: x * y, [(3, 4), (4,)]),
    "F38 sum, un-broadcast": (lambda x, y: x + y, [(3, 1), (2, 1, 4)]),
    "F39 layer norm": (lambda x, w, b: F.layer_norm(x, (4,), w, b), [(3, 4), (4,), (4,)]),
    "F40 log-sum-exp": (lambda x: ad.logsumexp(x, 1), [(3, 4)]),
}


def flat(name: str) -> tuple[Callable[[Any], Any], np.ndarray[Any, Any]]:
    """The formula as a function of one vector, and the point."""
    formula, shapes = FORMULAS[name]
    sizes = [int(np.prod(s)) for s in shapes]

    def f(v: Any) -> Any:
        parts = ad.split(v, sizes)
        return formula(*[p.reshape(s) for p, s in zip(parts, shapes, strict=True)]).reshape(-1)
    # no entry within a difference's reach of relu's kink
    point = np.random.default_rng(7).uniform(0.2, 1.5, sum(sizes))
    return f, point * np.where(np.arange(point.size) % 3 == 1, -1.0, 1.0)


@pytest.mark.parametrize("name", FORMULAS)
def test_three_routes(name: str) -> None:
    """F8, F10, F12, F14, F30, F31, F32, F33, F34, F35, F36, F37, F38, F39, F40: forward and reverse
    to rounding, five-point differences (steps h = 1e-3) to their errors, about h^4 = 1e-12 by
    truncation and 1e-16 / h by rounding."""
    f, x = flat(name)
    forward, reverse = (j(f)(ad.tensor(x)).numpy() for j in (af.jacfwd, af.jacrev))
    np.testing.assert_allclose(forward, reverse, rtol=1e-13, atol=1e-13)

    def at(step: np.ndarray[Any, Any]) -> Any:
        return f(ad.tensor(x + step)).numpy()
    h = 1e-3 * np.eye(x.size)
    differences = np.stack([(8 * (at(e) - at(-e)) - (at(2 * e) - at(-2 * e))) / 12e-3 for e in h],
                           1)
    np.testing.assert_allclose(forward, differences, rtol=1e-10, atol=1e-10)


def test_the_printed_numbers() -> None:
    """F8: (x1 + x2) x1 at (3, 4) gives 10 and 3 in both modes; F13: softmax's Jacobian is
    diag(y) - y y^T in both."""
    x = ad.tensor([3.0, 4.0], dtype=ad.float64)
    y = ad.softmax(x, 0).numpy()
    for j in (af.jacfwd, af.jacrev):
        assert j(FORMULAS["F8 (x1 + x2) x1"][0])(x).tolist() == [10.0, 3.0]
        np.testing.assert_allclose(j(lambda v: ad.softmax(v, 0))(x).numpy(),
                                   np.diag(y) - np.outer(y, y), rtol=1e-14, atol=1e-16)
