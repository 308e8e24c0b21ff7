"""Expressions in which `adjoint.jax` once differed from JAX: dtypes, weak types, masks, errors."""
from __future__ import annotations

import helpers_jax as helpers
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("scipy")
OURS, THEIRS = helpers.library("adjoint.jax"), helpers.library("jax")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.row("F54")]

VALUES = """
jnp.array([3e9, -3e9, np.nan, np.inf, -np.inf, -1.5, 1.7, 300, -129], 'float32').astype('int8')
jnp.array([3e9, -3e9, np.nan, np.inf, -np.inf, -1.5, 1.7, 300, -129], 'float32').astype('uint8')
jnp.array([3e9, -3e9, np.nan, np.inf, -np.inf, -1.5, 1.7, 300, -129], 'float32').astype('int32')
jnp.array([3e9, -3e9, np.nan, np.inf, -np.inf, -1.5, 1.7], 'bfloat16').astype('uint32')
lax.convert_element_type(jnp.array([3e9 + 1j, -7.5 - 2j], 'complex64'), 'int16')
jnp.power(jnp.array([3, 3, 3, 5, 3, 0]), jnp.array([100, 64, 63, -70, -3, -1]))
jnp.power(2.0, G)
jnp.power(G, np.int16(2))
jnp.power(U.astype(bool), np.int8(2))
jnp.power(2, True)
jnp.power(True, True)
jnp.power(2, np.int8(3))
jnp.power(B, 2.0)
jnp.power(0, 1 + 1j)
jnp.float_power(0, 1 + 1j)
[f(2, 3) for f in (jnp.hypot, jnp.logaddexp2, jnp.heaviside, jnp.gcd, jnp.lcm, jnp.logical_and)]
[f(2.0, G) for f in (jnp.hypot, jnp.logaddexp2, jnp.heaviside, jnp.logical_or)]
[jnp.deg2rad(C), jnp.rad2deg(C)]
jnp.round(C, 1)
[jnp.append(G, 2.0), jnp.append(1, 2), jnp.stack([1.0, 2]), jnp.hstack([G, 2.0]), jnp.block([1, 2])]
jnp.concatenate([V, jnp.array([1.7, -2.2])], dtype='int8')
[jnp.union1d(2, G), jnp.setxor1d(G, 2.0), jnp.intersect1d(G, 2), jnp.setdiff1d(2, G)]
[jnp.unique(2.5), jnp.union1d(jnp.array([1, 2], 'bfloat16'), jnp.array([2, 3], 'float16'))]
jnp.unique_values(I)
[jnp.quantile(V, 2.0), jnp.percentile(V, jnp.array([-5.0, 50.0, 130.0])), jnp.nanquantile(V, -1.0)]
[jnp.quantile(V, q, weights=V * V, method='inverted_cdf') for q in (0.0, 0.4, Z[0])]
jnp.percentile(Z, 30, axis=1, weights=jnp.arange(4), method='inverted_cdf', keepdims=True)
jnp.nanquantile(Z.at[0, 0].set(np.nan), 0.5, axis=(0, 1), weights=Z * Z, method='inverted_cdf')
jnp.quantile(Z.at[0, 0].set(np.nan), 0.5, axis=0, weights=Z * Z, method='inverted_cdf')
jax.grad(lambda v: jnp.quantile(v, 0.5, weights=jnp.ones(v.shape), method='inverted_cdf'))(V)
jnp.sort(jnp.array([1 + 2j, 1 - 2j, 5j, -1 + 0j]))
jnp.argsort(jnp.array([1 + 2j, 1 - 2j, 5j, -1 + 0j]), descending=True)
jnp.argsort(G, dtype='float32')
[jnp.nanmean(X, where=X > 0.4), jnp.nanvar(X, axis=1, where=B), jnp.nanstd(X, 0, where=B)]
[jnp.var(X, dtype=complex), jnp.std(C, dtype=complex), jnp.var(I, dtype='float16')]
[jnp.average(X, axis=()), jnp.average(I, axis=())]
[I.at[1].divide(2), I.at[1].mul(2.5), X.at[0].divide(Y[0]), G.at[2].multiply(0.5)]
[jnp.ndim([1, 2, 3]), jnp.size([[1, 2]]), jnp.shape([[1], [2]]), jnp.ndim('x')]
[jnp.polyder(U), jnp.polyder(G), jnp.polyder(B[0])]
jnp.arange(5, dtype='complex64')
str(jnp.iinfo('uint8')), repr(jnp.iinfo('int32'))
[lax.eq(1, 2), lax.lt(1.0, 2.0), lax.is_finite(1.0), lax.eq(V, V)]
[jax.nn.relu(B), jax.nn.relu(jnp.array([jnp.nan, 1, -1])), jax.nn.relu6(B), jax.nn.relu(3)]
jax.grad(lambda x: jnp.sum(jax.nn.hard_swish(x)))(jnp.array([0.0, 1, -1, 3, -3, 6, 100]))
jax.grad(lambda x: jnp.sum(jax.nn.hard_sigmoid(x)))(jnp.array([0.0, 1, -1, 3, -3, 6, 100]))
jax.grad(lambda x: jnp.sum(jax.nn.relu6(x)))(jnp.array([0.0, 1, -1, 6, -3, 7]))
lax.dot(H, H.T, preferred_element_type='float32')
lax.dot(I, I.T, preferred_element_type='float32')
lax.dot_general(H, H, (((1,), (1,)), ((), ())), preferred_element_type='float32')
jnp.matmul(H, H.T, preferred_element_type='float32')
jnp.einsum('ij,kj', H, H, preferred_element_type='float32')
lax.complex(jnp.array([0.5, 3, jnp.inf]), jnp.array([jnp.nan, -jnp.inf, 1]))
lax.reduce_window(X + 1j * Y, 0j, lax.max, (2, 2), (1, 2), 'SAME')
[f(C, C[::-1] + 1j) for f in (jnp.less, jnp.less_equal, jnp.greater, jnp.greater_equal, jnp.fmax)]
[f(C, C[::-1] + 1j) for f in (lax.max, jnp.minimum)]
[C < C[::-1], C >= C[::-1], lax.cummax(C), lax.cummin(C)]
jnp.searchsorted(jnp.array([False, True]), jnp.array([True]))
[jnp.fft.fft(H), jnp.fft.fft(H.astype('bfloat16')), lax.fft(H, 'fft', (4,))]
lax.atan2(C, C[::-1])
lax.conv_with_general_padding(G[None, None], G[None, None, :2], (1,), ((1, 2),), (2,), (1,))
[lax.reduce_precision(X, e, m) for e, m in ((5, 2), (4, 3), (8, 3), (2, 2), (3, 10), (8, 23))]
lax.reduce_precision(jnp.array([0.0, -0.0, jnp.inf, jnp.nan, 1e-30, 1e30, 100, 61440]), 5, 2)
lax.cbrt(jnp.array([1e30, -8.0, 27.0, 0.0, jnp.inf, -jnp.inf, jnp.nan]))
jax.grad(lambda x: jnp.sum(jnp.cbrt(x)))(X)
lax.linalg.svd(X, compute_uv=False)
lax.linalg.lu_pivots_to_permutation(jnp.array([1, 2, 2]), 4)
lax.linalg.symmetric_product(X, P, alpha=2.0, beta=0.5, symmetrize_output=True)
lax.linalg.tridiagonal_solve(V, V + 2, V, X.T)
lax.conv_general_permutations(('NHWC', 'HWIO', 'NHWC'))
np.array(lax.conv_shape_tuple((1, 3, 5, 5), (4, 3, 2, 2), (1, 1), ((0, 0), (0, 1))))
np.array(lax.conv_transpose_shape_tuple((1, 5, 3), (2, 3, 4), (2,), 'SAME', ('NHC', 'HIO', 'NHC')))
jax.scipy.linalg.invhilbert(3)
[jax.scipy.linalg.invpascal(3), jax.scipy.linalg.invpascal(4, 'upper')]
[jax.scipy.linalg.fiedler_companion(jnp.arange(1.0, n)) for n in (3, 4, 7, 8)]
jax.tree_util.tree_reduce_associative(lambda a, b: f'({a}{b})', {'a': 1, 'b': [2, 3, 4]})
jax.tree.broadcast({'a': 1, 'b': 2}, {'a': [1, (2, 3)], 'b': 3})
jax.scipy.stats.bernoulli.logpmf(N2, 0.3)
jnp.pad(I, 1, mode='mean', stat_length=2)
jax.nn.initializers.delta_orthogonal()(K, (3, 3, 4, 4))
[X.trace(), P.trace(1), jax.jit(lambda x: x.trace())(X)]
[x.shape for x in jax.vmap(lambda x, i: jax.ops.segment_prod(x, i, 5))(X, I)]
jax.vmap(lambda x, i: jax.ops.segment_prod(x, i, 5))(X, jnp.clip(I, 0, 4))
[jax.ops.segment_sum(X, jnp.array([0, 5, -1]), 3, mode=m) for m in (None, 'clip', 'fill')]
[jax.ops.segment_max(X, jnp.array([0, 5, -1]), 3, mode=m) for m in (None, 'clip', 'fill')]
jax.vmap(jnp.linalg.cholesky)(jnp.stack([P, -P, P * jnp.nan]))
[jnp.linalg.matrix_rank(P, hermitian=True), jnp.linalg.matrix_rank(4)]
lax.reduce_window((X, Y), (0., 1.), lambda a, b: (a[0] + b[0], a[1] * b[1]), (2, 2), (1, 2), 'SAME')
lax.custom_linear_solve(lambda v: P @ v, P[0], lambda f, b: (b @ P, f(b)), None, True, True)
jax.scipy.stats.uniform.ppf(jnp.array([-0.1, 0.0, 0.5, 1.0, 1.1, jnp.nan]), 1, 2)
list(lax.optimization_barrier((1.0, 2)))
jnp.vectorize(lambda a, b: a @ b, signature='(n,m),(m)->(n)')(T, V)
jnp.negative.at(X, jnp.array([0, 0, 1]), inplace=False)
jnp.frompyfunc(lambda a: 2 * a, 1, 1).at(V, jnp.array([0, 0, 1]), inplace=False)
jnp.frompyfunc(lambda a, b: a * b + a, 2, 1, identity=1).reduce(X, axis=1)
jnp.frompyfunc(lambda a, b: a * b + a, 2, 1, identity=1).reduce(X, axis=1, initial=3.0)
[jnp.linalg.qr(m, mode='complete') for m in (jnp.eye(4, 2), jnp.zeros((4, 2)), P4)]
jax.vmap(lambda c: jnp.linalg.qr(c, mode='complete'))(T.transpose(0, 2, 1))
jax.vmap(jax.jacrev(lambda c: jnp.linalg.qr(c, mode='complete')[0]))(jnp.stack([P4, P4 * P4]))
jax.jacfwd(lambda c: jnp.linalg.qr(c, mode='complete')[0], holomorphic=True)(C[:, None] + 1j)
type(jnp.linalg.qr(X, mode='raw')).__name__
[lax.polygamma(m, x) for m in (0., 1., 2., 1.5, -1., float('nan')) for x in (0.7, -1.3)]
[lax.polygamma(jnp.arange(4.), V), jax.vmap(lax.polygamma)(jnp.arange(4.), V)]
[jax.jit(lax.polygamma)(2., 0.7), [jax.grad(lax.polygamma, 1)(m, 0.7) for m in (0., 1., 2.)]]
""".strip().splitlines()

DERIVATIVES = """
jnp.linalg.qr(X.T, mode='complete')
lax.linalg.qr(X.T)
jnp.linalg.qr(X[:, :1], mode='complete')
X[jnp.array([7, -9])]
X[5]
X[jnp.array([0, 9]), 1]
jax.scipy.special.zeta(X + 2, Y)
jax.scipy.special.zeta(3.0, X + 0.5)
jnp.pad(X, 2, mode='linear_ramp', end_values=0.5)
jnp.pad(V, (1, 2), mode='linear_ramp')
jnp.pad(X, ((1, 0), (2, 1)), mode='mean')
jnp.pad(X, 1, mode='mean', stat_length=2)
jnp.pad(X, 1, mode='maximum', stat_length=((2, 1), (3, 2)))
jnp.pad(X, (2, 1), mode='median')
""".strip().splitlines()

ERRORS = """
lax.polygamma(1, 0.7)
jax.grad(lax.polygamma)(1., 0.7)
jnp.sum(X, where=1)
jnp.any(X, where=1)
jnp.mean(X, where=I)
jnp.mean(X, dtype=bool)
jnp.std(X, dtype=int)
jnp.std(C, dtype='float32')
jnp.quantile(X, 2j)
jnp.quantile(X, np.uint8(1))
jnp.median(X, axis=5)
jnp.median(X, overwrite_input=True)
jnp.argsort(X, kind='stable')
jnp.choose(X, [X, Y])
X.flatten(0)
X.ravel(order='x')
lax.sort((X, Y), num_keys=3)
lax.sort(())
lax.top_k(X, -1)
lax.top_k(S, 1)
lax.top_k(C, 1)
lax.approx_max_k(I, 1)
lax.approx_max_k(X, 9)
lax.reduce_window(X, 0.0, lax.add, (2,), (1,), 'VALID')
lax.reduce_window(X, 0.0, lax.add, (2, 2), (1, 1), 'FOO')
lax.conv_general_dilated(IM, IM[..., 0], (1, 1), 'VALID')
lax.conv_general_dilated(IM, KE, (1, 1), 'VALID', feature_group_count=2)
lax.conv_general_dilated(IM, jnp.ones((3, 3, 2, 2)), (1, 1), 'VALID', batch_group_count=2)
lax.conv_general_dilated(IM, jnp.ones((3, 3, 2, 2)), (1,), 'VALID')
jnp.fft.fft(X, axis=(0,))
jnp.fft.fft(X, axis=5)
jnp.fft.fft2(V)
jnp.fft.fft2(X, axes=(0, 0))
jnp.fft.fft2(X, axes=(0, 0, 1))
jnp.fft.fft(V, n=0)
jnp.fft.rfft(C)
jnp.fft.fft(V, norm='x')
jnp.fft.fftn(X, s=(2,), axes=(0, 1))
jax.ops.segment_sum(X, N2[:3], -1)
jax.jit(jax.ops.segment_sum)(X, N2[:3])
jnp.vectorize(lambda a, b: a @ b, signature='(n,m),(m)->(n)')(T, P[0])
jnp.vectorize(lambda a: (a, a), signature='()->()')(V)
jnp.vectorize(lambda a: a[:1], signature='(n)->(n)')(X)
jnp.vectorize(lambda a: a, signature='bad')(1.0)
jnp.vectorize(lambda a: a, excluded={-1})
jnp.vectorize(lambda a, b: a)(V, V[:3])
jax.debug.print('{}', 1, 2)
jax.debug.print('{y}', y=1, x=2)
jax.debug.callback(3)
jax.vmap(lambda x: jax.pure_callback(lambda v: v, x, x))(V)
jax.pure_callback(lambda v: v, np.float64(1), 1.0)
jax.vmap(lambda x: jax.experimental.io_callback(lambda v: v, x, x, ordered=True))(V)
jax.jit(lambda x: x).lower(V).compile()(V[:2])
jax.jit(lambda x: x).lower(V).compile()(V, V)
jax.vmap(jax.jit(lambda x: x).lower(S).compile())(V)
""".strip().splitlines()


@pytest.mark.parametrize("text", VALUES)
def test_values(text: str) -> None:
    helpers.same(helpers.run(text, OURS), helpers.run(text, THEIRS))


@pytest.mark.parametrize("text", DERIVATIVES)
def test_derivatives(text: str) -> None:
    """Values and gradients in X and V; they were zero, or those of what was clamped."""
    helpers.same(helpers.run(text, OURS), helpers.run(text, THEIRS))
    ours, theirs = (helpers.derivatives(text, m) for m in (OURS, THEIRS))
    for name, want in theirs.items():
        clamped = text.startswith("X[") and name == "push of grad"
        if not isinstance(want, Exception) and not clamped:
            helpers.same(ours[name], want, 2e-3, 3e-4)


@pytest.mark.parametrize("text", ERRORS)
def test_errors(text: str) -> None:
    """The builtin class of JAX's error, and the beginning of its words."""
    got, want = helpers.refusals(text, OURS, THEIRS)
    assert got[:25] == want[:25]


WIDE = """
[jnp.sin(jnp.ones(2, d)) for d in ('bool', 'int8', 'int32', 'uint32', 'int64', 'uint64')]
[f(jnp.ones(2, d)) for d in ('bool', 'int16', 'int64') for f in (jnp.mean, jnp.var)]
[jnp.arctan2(jnp.ones(2, d), jnp.ones(2, 'int16')) for d in ('bool', 'int8', 'int64')]
[jnp.ones(2, d) / 2 for d in ('bool', 'int16', 'int64')]
[jnp.sin(2), jnp.sin(True), jnp.true_divide(1, 2), jnp.mean(3)]
[jnp.power(B, B), jnp.square(B), jnp.floor_divide(B, True)]
[jnp.searchsorted(V, V), jnp.digitize(V, jnp.sort(V)), jnp.fft.fft(G)]
""".strip().splitlines()


@pytest.mark.parametrize("text", WIDE)
def test_dtypes_with_64_bits(text: str) -> None:
    """Where 64 bits are on, integers of up to 32 bits become float32, those of 64 float64."""
    with OURS.top.enable_x64(True), THEIRS.top.enable_x64(True):
        helpers.same(helpers.run(text, OURS), helpers.run(text, THEIRS))


PARTS = """jnp.isneginf(jnp.array([1.0, -jnp.inf]))
jnp.isposinf(2, None)
[jnp.var(C, where=B[0]), jnp.nanvar(C.at[1].set(jnp.nan)), jnp.nanstd(C * jnp.ones((2, 1)), axis=0)]
jnp.nanvar(C.at[1].set(jnp.nan), ddof=3)
jax.grad(lambda x: jnp.nanvar(x * (1 + 2j)))(jnp.array([1.0, jnp.nan, 3.0]))
jnp.angle(jnp.array([-0.0, 0.0, -1.0, 1.0, jnp.nan, jnp.inf, -jnp.inf]))
[jnp.angle(G), jnp.angle(1 + 1j), jnp.angle(X), jax.grad(jnp.angle)(-2.0)]
[jnp.rint(G), jnp.rint(U), jnp.rint(3), jnp.rint(2.5)]
[jnp.spacing(G), jnp.spacing(H), jnp.spacing(U)]
[jnp.frexp(X), jnp.frexp(3), jnp.frexp(H)]
[jnp.sort_complex(U), jnp.sort_complex(G), jnp.sort_complex(C)]
[jax.grad(jax.grad(jnp.sinc))(x) for x in (0.0, 0.3)]
[jax.grad(jax.grad(jax.grad(jax.grad(jnp.sinc))))(x) for x in (0.0, 0.3)]
jax.vmap(jax.hessian(jnp.sinc))(jnp.array([0.0, 1.0, -0.0]))
jax.jacfwd(lambda q: jnp.quantile(V, q))(jnp.array([0.3, 0.7]))
jax.jacrev(lambda q: jnp.percentile(X, q, axis=1))(jnp.array([30.0, 70.0]))
jax.grad(lambda q: jnp.nanquantile(V.at[0].set(jnp.nan), q))(jnp.float32(0.3))
jax.vmap(jnp.quantile)(X, V[:3])
jnp.quantile(X, jnp.array([-0.5, 1.5, jnp.nan]), axis=1, keepdims=True)
jnp.percentile(X, jnp.nan)
jax.vmap(jax.vmap(lambda x: lax.axis_index(('i', 'j')), axis_name='j'), axis_name='i')(X)
jax.vmap(jax.vmap(lambda x: lax.axis_index(('j', 'i')), axis_name='j'), axis_name='i')(X)"""


ENDS = """0, 100, 'uint64'
-5, 100, 'uint64'
np.uint64(2 ** 63), np.uint64(2 ** 64 - 1), 'uint64'
-2 ** 63, 2 ** 63 - 1, 'int64'
0, 2 ** 31, 'int32'
-2 ** 31, 2 ** 31, 'int32'
0, 2 ** 32, 'uint32'
0, 2 ** 40, 'int32'"""


@pytest.mark.parametrize("ends", ENDS.splitlines())
def test_whole_numbers_of_a_whole_range(ends: str) -> None:
    """The number after the last is an end; those of uint64 were refused (F54)."""
    with OURS.top.enable_x64(True), THEIRS.top.enable_x64(True):
        text = f"jax.random.randint(K, (9,), {ends})"
        helpers.same(helpers.run(text, OURS), helpers.run(text, THEIRS))


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("text", PARTS.splitlines())
def test_values_and_dtypes_of_both_widths(text: str, wide: bool) -> None:
    """Whole numbers of few bits, axes of two names, derivatives at 0 and in the rank (F54)."""
    with OURS.top.enable_x64(wide), THEIRS.top.enable_x64(wide):
        helpers.same(helpers.run(text, OURS), helpers.run(text, THEIRS), 2e-5, 2e-6)


def test_orders_of_polygamma_are_whole() -> None:
    """The derivative in a float order was 0, silently (F54)."""
    got, want = helpers.refusals("jax.scipy.special.polygamma(1.0, V)", OURS, THEIRS)
    assert got == want
