"""Names of JAX that came later: values and derivatives beside JAX's."""
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import helpers_jax as helpers
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("scipy")
OURS, THEIRS = helpers.library("adjoint.jax"), helpers.library("jax")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.row("F54")]

VALUES = """
[jax.scipy.stats.cauchy.isf(X, 0.5, 2.0), jax.scipy.stats.gennorm.cdf(X - 0.5, 2.5)]
[jax.scipy.stats.gumbel_l.ppf(X, 2.0, 1.5), jax.scipy.stats.gumbel_r.ppf(X, 2.0, 1.5)]
jax.scipy.stats.gumbel_l.ppf(jnp.array([-0.1, 0, 1, 1.1]), 2.0)
jax.scipy.stats.gumbel_r.ppf(jnp.array([-0.1, 0, 1, 1.1]), 2.0)
[f(4 * X, 2.0, 1.0, 1.5) for f in (jax.scipy.stats.pareto.cdf, jax.scipy.stats.pareto.logcdf)]
[f(4 * X, 2.0, 1.0, 1.5) for f in (jax.scipy.stats.pareto.sf, jax.scipy.stats.pareto.logsf)]
jax.scipy.stats.pareto.ppf(jnp.array([-0.1, 0.0, 0.3, 1.0, 1.1]), 2.0, 1.0, 3.0)
jax.scipy.stats.pareto.ppf(X, 2.0, 1.0, 3.0)
jax.scipy.stats.poisson.entropy(jnp.array([0.0, 1e-3, 0.5, 5, 12, 30, 80, 99, 101, 200, 1e4, -1]))
[jax.scipy.stats.poisson.entropy(jnp.array([5, 12])), jax.scipy.stats.poisson.entropy(12.0, 2)]
[f(7 * X, 0.4) for f in (jax.scipy.stats.wrapcauchy.logpdf, jax.scipy.stats.wrapcauchy.pdf)]
jax.scipy.stats.wrapcauchy.logpdf(jnp.array([-1, 0, 6.28, 7]), 0.5)
jax.scipy.stats.wrapcauchy.pdf(2.0, jnp.array([-0.1, 0.0, 0.3, 1.0]))
jax.vmap(lambda x: lax.psum_scatter(x, 'i'), axis_name='i')(jnp.stack([X, X * X, X + 1]))
jax.vmap(lambda x: lax.psum_scatter(x, 'i', tiled=True), axis_name='i')(T[:, :2])
jax.vmap(lambda x: lax.psum_scatter(x, 'i', scatter_dimension=1, tiled=True), axis_name='i')(T)
jax.vmap(lambda x: lax.all_to_all(x, 'i', 0, 0), axis_name='i')(jnp.stack([X, X * X, X + 1]))
jax.vmap(lambda x: lax.all_to_all(x, 'i', 0, 1), axis_name='i')(jnp.stack([X, X * X, X + 1]))
jax.vmap(lambda x: lax.all_to_all(x, 'i', 1, 0, tiled=True), axis_name='i')(T)
jax.vmap(lambda x: lax.all_to_all(x, 'i', 0, 1, tiled=True), axis_name='i')(T[:, :2])
jax.vmap(lambda x: lax.pshuffle(x, 'i', [2, 0, 1]), axis_name='i')(X)
jax.vmap(lambda x: lax.pswapaxes(x, 'i', 0), axis_name='i')(X[:, :3])
jax.vmap(jax.grad(lambda v: (jnp.pad(v, 1, 'mean') ** 2).sum()))(X)
jax.vmap(jax.grad(lambda v: jax.scipy.special.zeta(v + 1.5, 2.0).sum()))(X)
[jax.scipy.special.softmax(X), jax.scipy.special.softmax(X, axis=1)]
[jax.scipy.special.log_softmax(X), jax.scipy.special.log_softmax(X, axis=(0, 1))]
""".strip().splitlines()


@pytest.mark.parametrize("text", VALUES)
def test_values_and_derivatives(text: str) -> None:
    helpers.same(helpers.run(text, OURS), helpers.run(text, THEIRS))
    ours, theirs = (helpers.derivatives(text, m) for m in (OURS, THEIRS))
    for name, want in theirs.items():
        if not isinstance(want, Exception):
            helpers.same(ours[name], want, 2e-3, 3e-4)


@pytest.mark.parametrize("text", [
    "jax.vmap(lambda x: lax.all_to_all(x, 'i', 0, 0), axis_name='i')(X)",
    "jax.vmap(lambda x: lax.psum(x, 'i', axis_index_groups=[[0, 1], [2]]), axis_name='i')(X)",
    "jax.vmap(lambda x: lax.pshuffle(x, 'i', [0, 0, 1]), axis_name='i')(X)",
])
def test_refused(text: str) -> None:
    """Groups of examples were once taken for all of them."""
    with pytest.raises((NotImplementedError, ValueError, AssertionError)) as want:
        helpers.run(text, THEIRS)
    with pytest.raises(want.type) as got:
        helpers.run(text, OURS)
    assert str(got.value).split()[:4] == str(want.value).split()[:4]


@pytest.mark.parametrize("text", [
    "jax.scipy.linalg.solve(P, X[:, 0], assume_a='pos')",
    "jax.scipy.linalg.solve(P, X, assume_a='pos', lower=True)",
    "jax.vmap(lambda b: jax.scipy.linalg.solve(P, b, assume_a='pos'))(X.T)",
])
def test_gradients_of_a_solve_by_a_factor(text: str) -> None:
    """All entries of P have their own derivative; it was that of a symmetric matrix."""
    def grads(m: SimpleNamespace) -> Any:
        weights = m.names["X"]
        def f(p: Any) -> Any:
            found = helpers.run(text, m, P=p)
            return (found * (weights[0, 0] + m.names["jnp"].arange(found.size).reshape(
                found.shape))).sum()
        return m.top.value_and_grad(f)(m.names["P"])
    helpers.same(grads(OURS), grads(THEIRS), 2e-3, 3e-4)
