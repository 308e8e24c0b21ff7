"""Functions whose shapes come from an argument: on values, on shapes alone, and per example; and
what functions say to arguments that they do not take, beside JAX (F54)."""
from __future__ import annotations

from typing import Any

import helpers_jax as helpers
import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("scipy")
OURS, THEIRS = helpers.library("adjoint.jax"), helpers.library("jax")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.row("F54")]

SIZED = """
jnp.nonzero(x - 1, size=4)
jnp.nonzero(x - 1, size=4, fill_value=-1)
jnp.argwhere(x > 1, size=2)
jnp.where(x > 1, size=3, fill_value=-1)
jnp.extract(x > 1, x, size=3)
jnp.compress(x > 1, x, size=4, fill_value=7)
jnp.unique(x, size=4)
jnp.unique(x, size=2, return_index=True, return_inverse=True, return_counts=True)
jnp.unique(x, size=6, fill_value=9, return_index=True, return_inverse=True, return_counts=True)
tuple(jnp.unique_all(x, size=4))
jnp.intersect1d(x, N2, size=4, return_indices=True)
jnp.setdiff1d(x, N2, size=4)
jnp.setxor1d(x, N2, size=5)
jnp.union1d(x, N2, size=7)
jnp.delete(x, x[:1] % 3, assume_unique_indices=True)
jnp.repeat(x, x, total_repeat_length=7)
jnp.packbits(x > 1)
jnp.choose(x, [x, 2 * x, 3 * x, 4 * x], mode='clip')
jnp.bincount(x, length=5)
jnp.roll(x, x[0])
jnp.pad(x, 2, mode='median')
jnp.poly(x * 1.0)
jnp.sort_complex(x)
jnp.interp(x * 1.0, jnp.arange(3.0), jnp.arange(3.0) ** 2)
jnp.take(x, x)
lax.clz(x)
lax.bitcast_convert_type(x, 'int8')
lax.mulhi(x * 2 ** 29, x)
jax.scipy.special.polygamma(x, x.astype(float))
jax.scipy.special.expi(x.astype(float))
jax.scipy.special.betainc(0.1 * x.astype(float), 0.5, 0.3)
jax.scipy.stats.gamma.cdf(x.astype(float), 2.0)
""".strip().splitlines()


@pytest.mark.parametrize("text", SIZED)
def test_on_values_on_shapes_and_per_example(text: str) -> None:
    def results(m: Any) -> tuple[Any, Any]:
        x = m.names["jnp"].array([3, 1, 1, 2, 3])
        shapes = [(s.shape, s.dtype) for s in m.top.tree_util.tree_leaves(
            m.top.eval_shape(lambda v: helpers.run(text, m, x=v), x))]
        return helpers.run(text, m, x=x), shapes
    (ours, shapes), (theirs, want) = results(OURS), results(THEIRS)
    helpers.same(ours, theirs)
    assert shapes == want
    n = OURS.names["jnp"]
    x = n.array([3, 1, 1, 2, 3])
    mapped = OURS.top.vmap(lambda v: helpers.run(text, OURS, x=v))(n.stack([x[::-1] + 1, x]))
    last = OURS.top.tree_util.tree_map(lambda v: v[1], mapped)
    helpers.same(last, ours, dtypes=False)


VALUES = """
jnp.unique(jnp.array([[1, 2], [1, 2], [0, 1]]), size=3, axis=0)
jnp.unique(jnp.array([[1, 2], [1, 2], [0, 1]]), size=1, axis=1, return_counts=True)
jnp.median(H)
jnp.var(X, axis=1, mean=jnp.mean(X, axis=1, keepdims=True))
jnp.std(C, mean=0.5)
jnp.nanvar(V, mean=2.0)
jnp.cov(X, dtype='float16')
jnp.rint(C * 3)
jnp.max(C, initial=2)
jnp.lexsort((C, C))
[jnp.fft.fftshift(B), jnp.fft.fftshift(N2), jnp.fft.ifftshift(U)]
jnp.polymul(V[:0], V[:0])
[jnp.roll(X, (1, 2), 0), jnp.roll(X, (1, 2)), jnp.roll(X, 1, (0, 1))]
[jnp.resize(V[:0], 3), jnp.unravel_index(4, 7), jnp.repeat(2.0, 3, axis=0)]
jnp.ravel_multi_index((jnp.array(1), jnp.array(2)), (3, 4), dtype='int8')
jnp.insert(V, 9, 1.0)
jnp.polyfit(V, V ** 2, 1, full=True)[1:4]
jnp.polyfit(V, jnp.stack([V, V ** 2], 1), 1, cov=True)[1]
jnp.polyfit(V, V ** 2, 1, cov='unscaled')
jnp.linalg.eigh(P + X[:, :3], UPLO='L').eigenvalues
jnp.linalg.eigvalsh(P + X[:, :3], 'U', symmetrize_input=False)
[jnp.linalg.lstsq(X[:, :2], Y)[1:3], jnp.linalg.lstsq(X, Y, numpy_resid=True)[1].shape]
jnp.linalg.lstsq(X, X[:, 0] + 1j)[2:]
[jnp.linalg.matrix_rank(4.0), jnp.linalg.matrix_rank(V * 0)]
jnp.linalg.vector_norm(B, ord=1)
[len(lax.linalg.eig(P)), len(lax.linalg.eig(P, compute_left_eigenvectors=False))]
lax.clamp(jnp.array([5.0, 5.0]), jnp.array([1.0, 9.0]), jnp.array([2.0, 2.0]))
jax.ops.segment_sum(V, jnp.array([0, -1, 1, 7]), 3)
jax.ops.segment_min(B[0], N2, 4)
jax.nn.relu(C)
[jax.nn.elu(N2), jax.nn.celu(N2, 0.5)]
jax.random.gamma(K, H[0, 0]).dtype == jnp.float32
jax.random.rademacher(K, (8,), bool)
lax.zeta(H[0] + 2, H[0])
jnp.can_cast('int32', 'float32') is True
""".strip().splitlines()


@pytest.mark.parametrize("text", VALUES)
def test_values(text: str) -> None:
    helpers.same(helpers.run(text, OURS), helpers.run(text, THEIRS), 2e-3, 2e-4)


REFUSED = """
jnp.hypot(C, C)
jnp.copysign(C, C)
jnp.nextafter(C, C)
jnp.floor(C)
jnp.trunc(C)
jnp.modf(C)
jnp.frexp(C)
jnp.mod(C, C)
jnp.divmod(C, C)
~X
X & X
X >> 1
jnp.left_shift(X, X)
-B
B - B
jnp.roll(X, 1, 2)
jnp.meshgrid(1, V)
jnp.searchsorted(X, V)
jnp.argpartition(V, 4)
jnp.partition(C, 1)
jnp.ravel(X, order='K')
jnp.reshape(X, 12, order='K')
jnp.sort(V, kind='quicksort')
jnp.sort(V, order='a')
jnp.isin(V, V, method='x')
jnp.polyfit(X, V, 1)
jnp.matvec(V, V)
jnp.vecmat(V, V)
jnp.sum(V, initial=V)
jnp.max(V, initial=V)
jnp.flipud(2.0)
jnp.diag_indices(1.5)
jnp.rollaxis(V, 1)
jnp.rollaxis(V, 0, 3)
jnp.take(V, N2, mode='valid')
jnp.take_along_axis(V, N2, 0, mode='constant')
jnp.cumsum(X, (0,))
jnp.hstack([V, X])
jnp.vstack([V, V[:2]])
jnp.gradient(V, edge_order=2)
jnp.gradient(V, V[:2])
jnp.gradient(V[:1])
jnp.interp(2.0, X, X)
jnp.vdot(V, V[:2])
jnp.vander(X)
jnp.quantile(V, X)
jnp.delete(V, 5)
jnp.tensordot(V, V)
jnp.tensordot(V, V, axes=((0,), (1,)))
jnp.poly(X)
jnp.polyder(V, -1)
jnp.polyint(V, -1)
jnp.vecdot(V, V[:2])
jnp.unstack(2.0)
jnp.power(V, V[:2])
jnp.array_split(V, (2, 1))
jnp.bincount(V)
jnp.average(X, weights=V)
jnp.apply_along_axis(jnp.sum, 1, V)
jnp.fill_diagonal(V, 1, inplace=False)
jnp.pad(V, 1, mode='foo')
jnp.pad(V, 1.5)
jnp.pad(V, 1, mode='wrap', constant_values=2)
jnp.unique(V[:0], size=2)
jnp.where(B[0], V)
jnp.linalg.eigh(P, UPLO='X')
jnp.linalg.svd(V)
jnp.linalg.qr(V)
jnp.linalg.eig(V)
jnp.linalg.solve(V, V)
jnp.linalg.lstsq(V, V)
jnp.linalg.lstsq(P, V)
jnp.linalg.norm(V, ord='fro')
jnp.linalg.matrix_power(P, 1.5)
jnp.linalg.matrix_power(V, 2)
jnp.linalg.tensorinv(P, ind=0)
jnp.linalg.cross(V[:2], V[:2])
jnp.linalg.outer(P, V)
jnp.linalg.matrix_norm(V)
""".strip().splitlines()


@pytest.mark.parametrize("text", REFUSED)
def test_refused_in_jaxs_words(text: str) -> None:
    got, want = helpers.refusals(text, OURS, THEIRS)
    def words(s: str) -> list[str]:
        return [w.strip(".,:;") for w in s.split()[:4]]
    assert words(got) == words(want)


@pytest.mark.parametrize("text", [
    "jnp.linalg.solve(x, V[:3])", "jnp.linalg.inv(x)", "jnp.linalg.matrix_power(x, -1)",
    "jax.scipy.linalg.solve_triangular(x, V[:3])", "jnp.linalg.svd(x * jnp.nan).S",
    "jnp.linalg.pinv(x * jnp.nan)", "jnp.linalg.eigh(x * jnp.nan).eigenvalues",
    "jnp.linalg.eigvals(x * jnp.nan)", "jnp.linalg.cond(x * jnp.nan)"])
def test_matrices_without_a_result_give_nan_and_spare_the_others(text: str) -> None:
    """JAX raises for none. Which elements are infinite instead is its solver's own."""
    for m in (OURS, THEIRS):
        found = np.asarray(helpers.run(text, m, x=m.names["jnp"].zeros((3, 3))))
        assert not np.isfinite(found).all()
    def f(x: Any) -> Any:
        return helpers.run(text, OURS, x=x)
    zero, good = OURS.names["jnp"].zeros((3, 3)), OURS.names["P"]
    if "jnp.nan" not in text:
        both = np.asarray(OURS.top.vmap(f)(OURS.names["jnp"].stack([zero, good])))
        np.testing.assert_allclose(both[1], f(good), 1e-4, 1e-5)
        assert not np.isfinite(both[0]).all()
