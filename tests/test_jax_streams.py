"""Draws by rejection: JAX's streams from the same key, and their distributions (F54)."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from adjoint import jax

jnp, random = jax.numpy, jax.random
KEY = random.key(7)
pytestmark = pytest.mark.row("F54")

DRAWS: dict[str, Any] = {
    "gamma": lambda r, k: r.gamma(k, 0.3, (5,)), "loggamma": lambda r, k: r.loggamma(k, 3.7, (5,)),
    "beta": lambda r, k: r.beta(k, 0.5, 2.0, (5,)),
    "half": lambda r, k: r.gamma(k, 2.0, (5,), "float16"),
    "dirichlet": lambda r, k: r.dirichlet(k, np.array([0.1, 1, 4], np.float32), (2,)),
    "f": lambda r, k: r.f(k, 3.0, 5.0, (5,)), "wald": lambda r, k: r.wald(k, 2.0, (5,)),
    "poisson": lambda r, k: r.poisson(k, np.array([0.5, 4, 30, 500], np.float32), (3, 4)),
    "binomial": lambda r, k: r.binomial(k, np.array([5.0, 40, 1000], np.float32),
                                        np.array([0.5, 0.9, 0.1], np.float32), (4, 3)),
    "multinomial": lambda r, k: r.multinomial(k, 30, np.array([0.1, 0.3, 0.6], np.float32)),
    "ball": lambda r, k: r.ball(k, 3, 1.5, (4,)), "maxwell": lambda r, k: r.maxwell(k, (4,)),
    "double_sided_maxwell": lambda r, k: r.double_sided_maxwell(k, 1.0, 2.0, (4,)),
    "generalized_normal": lambda r, k: r.generalized_normal(k, 3.0, (4,)),
    "gumbel": lambda r, k: r.gumbel(k, (4,), mode="high")}


@pytest.mark.parametrize("name", DRAWS)
def test_streams(name: str) -> None:
    theirs = pytest.importorskip("jax")
    draw = DRAWS[name]
    want = draw(theirs.random, theirs.random.key(7))
    got = draw(random, KEY)
    assert (str(got.dtype), got.shape) == (str(want.dtype), want.shape)
    # A few roundings of the dtype: every step of a draw is one function of its uniform numbers.
    tol = 16 * float(np.finfo(np.asarray(want).dtype).eps) if want.dtype.kind == "f" else 0
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=tol, atol=tol)


def test_known_values() -> None:
    np.testing.assert_array_equal(random.poisson(KEY, 4.0, (6,)), [4, 1, 1, 4, 2, 8])
    np.testing.assert_allclose(random.gamma(KEY, 0.3, (3,)), [
        5.715880888601532e-07, 0.15852943062782288, 7.046175596769899e-05], rtol=1e-5)


def test_moments() -> None:
    n = 4000
    for draws, mean, variance in (
            (random.gamma(KEY, 2.5, (n,)), 2.5, 2.5), (random.poisson(KEY, 30.0, (n,)), 30, 30),
            (random.binomial(KEY, 100, 0.3, (n,)), 30, 21), (random.wald(KEY, 2.0, (n,)), 2, 8)):
        x = np.asarray(draws, np.float64)
        assert abs(x.mean() - mean) < 5 * np.sqrt(variance / n)      # five standard errors
        assert abs(x.var() / variance - 1) < 0.3


def test_under_transforms() -> None:
    keys = random.split(KEY, 3)
    for draw in (lambda k: random.gamma(k, 0.7, (2,)), lambda k: random.poisson(k, 12.0, (2,)),
                 lambda k: random.binomial(k, 400, 0.5, (2,))):
        each = np.stack([np.asarray(draw(k)) for k in keys])
        np.testing.assert_array_equal(jax.vmap(draw)(keys), each)
        np.testing.assert_array_equal(jax.jit(draw)(keys[0]), each[0])
    slope = jax.grad(lambda a: random.gamma(KEY, a))(2.0)
    # (a variate of order 2 is one of order 1 plus an exponential one: it grows with its order)
    assert 0 < slope < 3


@pytest.mark.parametrize(("call", "error"), [
    (lambda: random.gamma(KEY, 1.0, dtype="int32"), ValueError),
    (lambda: random.poisson(KEY, 1.0, dtype="float32"), ValueError),
    (lambda: random.binomial(KEY, 1, 0.5, dtype="int32"), ValueError),
    (lambda: random.dirichlet(KEY, 1.0), ValueError), (lambda: random.bernoulli(KEY, 1), TypeError),
    (lambda: random.permutation(KEY, 2.5), TypeError),
    (lambda: random.bits(KEY, (2,), "int32"), ValueError),
    (lambda: random.fold_in(KEY, -3), OverflowError), (lambda: random.key(2 ** 65), OverflowError),
    (lambda: random.multivariate_normal(KEY, jnp.ones(3), jnp.eye(2)), ValueError)])
def test_refusals(call: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        call()


def test_counts_without_an_answer() -> None:
    for count, chance in ((-1, 0.5), (10, float("nan")), (10, -0.1)):
        assert np.isnan(np.asarray(random.binomial(KEY, count, chance, (3,)))).all()
    assert np.isinf(np.asarray(random.binomial(KEY, np.inf, 0.5, (3,)))).all()
    assert (np.asarray(random.binomial(KEY, 10, 1.0, (3,))) == 10).all()
    assert not np.asarray(random.poisson(KEY, 0.0, (3,))).any()
