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


MATRICES = "lax.linalg." + """lu(V)
lu(I)
eig(V)
eig(I[:, :3])
eigh(V, symmetrize_input=False)
cholesky(X[0], symmetrize_input=False)
qr(I)
svd(I)
schur(V)
schur(I)
triangular_solve(V, V)
triangular_solve(P, S)
triangular_solve(jnp.stack([P, P]), V[:3])
triangular_solve(P, jnp.stack([P, P]))
triangular_solve(P, I[:, :3])
householder_product(P, P)
householder_product(V, V)
symmetric_product(V, V)
symmetric_product(C * C[:, None], C * C[:, None])
cholesky_update(V, V)
cholesky_update(P, S)
tridiagonal_solve(V, V, V, V)
lu_pivots_to_permutation(V, 4)
lu_pivots_to_permutation(jnp.int32(0), 3)
ormqr(V, V, V)""".replace("\n", "\nlax.linalg.")


@pytest.mark.parametrize("text", MATRICES.splitlines())
def test_operands_of_primitives_for_matrices(text: str) -> None:
    """Ranks, dtypes and batch axes that JAX does not take are refused in its words (F54)."""
    got, want = helpers.refusals(text, OURS, THEIRS)
    assert got == want


@pytest.mark.parametrize("text", ["lax.linalg.cholesky(X)", "lax.linalg.eigh(X)",
                                  "lax.linalg.cholesky(V)", "lax.linalg.eigh(V)"])
def test_no_transpose_to_add(text: str) -> None:
    """A TypeError, as what JAX says of the sum of a matrix and its transpose (F54)."""
    helpers.refusals(text, OURS, THEIRS)


@pytest.mark.parametrize("name", ["lax.linalg.lu", "lax.linalg.schur", "lax.linalg.hessenberg",
                                  "lax.linalg.tridiagonal", "jax.scipy.linalg.lu_factor"])
def test_decompositions_of_shapes(name: str) -> None:
    """On shapes alone, and mapped (F54, F60)."""
    for x in ("P", "jnp.stack([P, P + 1])", "jnp.ones((0, 3, 3))"):
        text = f"jax.eval_shape({name}, {x})"
        got, want = ([(tuple(y.shape), str(y.dtype)) for y in helpers.leaves(
            helpers.run(text, m))] for m in (OURS, THEIRS))
        assert got == want, x
    text = f"jax.vmap({name})(jnp.stack([P, P + jnp.eye(3)]))"
    helpers.same(helpers.run(text, OURS), helpers.run(text, THEIRS), 1e-4, 1e-4)


ONE = "lax.ScatterDimensionNumbers((1,), (), (0,))"
ROWS = "lax.ScatterDimensionNumbers((1,), (0,), (0,))"
PICK = "lax.GatherDimensionNumbers((1, 2), (), (0,))"


@pytest.mark.parametrize("mode", [None, "clip", "drop", "fill", "promise_in_bounds"])
@pytest.mark.parametrize("at", ["[[0], [-1]]", "[[1], [9]]", "[[2], [2]]"])
def test_slices_out_of_bounds(at: str, mode: str | None) -> None:
    """Negative starts once counted from the end, and slices that reach out were cut (F54)."""
    for text in (f"lax.scatter_add(X, jnp.array({at}), X[:2], {ROWS}, mode={mode!r})",
                 f"lax.scatter(X[:, 0], jnp.array({at}), X[:2, :2], {ONE}, mode={mode!r})",
                 f"lax.scatter_apply(X[:, 0], jnp.array({at}), lambda v: 3 * v + 1, {ONE}, "
                 f"mode={mode!r}, update_shape=(2, 2))",
                 f"lax.gather(X, jnp.array({at}), {PICK}, (2, 4), mode={mode!r})"):
        helpers.same(helpers.run(text, OURS), helpers.run(text, THEIRS))


@pytest.mark.parametrize("text", [
    "lax.scatter_apply(X, jnp.array([[1], [1]]), jnp.cos, D, update_shape=(2, 4))",
    "lax.scatter_apply(I, jnp.array([[1], [2]]), lambda v: v * v, D, update_shape=(2, 4))",
    "jax.vmap(lambda i: lax.scatter_apply(X, i, jnp.exp, D, update_shape=(1, 4)))(I[:, :1, None])",
    "jax.vmap(lambda x: lax.scatter_apply(x, I[:2, :1], jnp.exp, D, update_shape=(2, 4)))(T)",
    "jax.jit(lambda i: lax.scatter_apply(X, i, jnp.exp, D, update_shape=(2, 4)))(I[:2, :1])",
])
def test_scatter_apply(text: str) -> None:
    text = text.replace("D,", f"{ROWS},")
    helpers.same(helpers.run(text, OURS), helpers.run(text, THEIRS))


def test_scatter_apply_refuses() -> None:
    """No derivative, and no function that changes the dtype."""
    call = f"lax.scatter_apply(X, I[:2, :1], lambda v: 1j * v, {ROWS}, update_shape=(2, 4))"
    helpers.refusals(call, OURS, THEIRS)
    text = f"jax.grad(lambda x: {call.replace('(X', '(x').replace('1j', '2')}.sum())(X)"
    got, want = helpers.refusals(text, OURS, THEIRS)
    assert got == want == "scatter_apply JVP not implemented"
