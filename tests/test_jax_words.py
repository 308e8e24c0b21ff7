"""That every public function of `adjoint.jax` takes the words of JAX's: no other, all honoured or
refused in words (F54)."""
from __future__ import annotations

import enum
import inspect
from typing import Any

import helpers_jax as helpers
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("scipy")
OURS, THEIRS = helpers.library("adjoint.jax"), helpers.library("jax")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.row("F54")]
MODULES = """
    numpy numpy.linalg numpy.fft lax lax.linalg random nn nn.initializers scipy.special
    scipy.linalg scipy.signal scipy.ndimage scipy.interpolate scipy.fft scipy.integrate
    scipy.optimize scipy.cluster.vq scipy.sparse.linalg scipy.stats tree_util tree ops image debug
    dtypes flatten_util test_util ad_checkpoint custom_batching experimental.jet experimental.ode
    example_libraries.stax example_libraries.optimizers""".split()
# what is not JAX's to the letter: more is taken, or a class is made otherwise
OWN = """numpy.array numpy.einsum numpy.pad numpy.ndarray numpy.ufunc numpy.fromfile numpy.fromiter
    numpy.set_printoptions numpy.from_dlpack lax.ConvGeneralDilatedDimensionNumbers
    lax.random_gamma_grad ad_checkpoint.checkpoint debug.visualize_array_sharding
    debug.visualize_sharding
    scipy.stats.multivariate_normal""".split()


def _functions(base: str, module: str) -> dict[str, Any]:
    import importlib
    found = importlib.import_module(f"{base}.{module}")
    names = {n: getattr(found, n) for n in dir(found) if n[0] != "_" and n != "p"}
    out = {f"{module}.{n}": f for n, f in names.items() if callable(f)}
    for n, inner in names.items():
        if module == "scipy.stats" and inspect.ismodule(inner):
            out.update({f"{module}.{n}.{k}": f for k, f in vars(inner).items() if callable(f)})
    return out


def _parameters(f: Any) -> list[tuple[str, str, object]] | None:
    """(name, kind, default) of the parameters; a default that is no plain value counts as one."""
    if type(f).__name__ == "ufunc":
        f = type(f).__call__
    try:
        given = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):
        return None
    plain = (bool, int, float, str, tuple, type(None))
    return [(p.name, p.kind.name, "" if p.default is p.empty else p.default if isinstance(
        p.default, plain) and not isinstance(p.default, enum.Enum) else "object") for p in given]


@pytest.mark.parametrize("module", MODULES)
def test_functions_take_the_words_of_theirs(module: str) -> None:
    """No public function takes a word that JAX's does not, or another default; where ours is a
    default of JAX's in other words (a function, an enum), both count as an object."""
    helpers.needs_same_release()
    ours, theirs = (_functions(base, module) for base in ("adjoint.jax", "jax"))
    differ = {}
    for name, f in theirs.items():
        if name in OWN or name.rpartition(".")[0] in OWN or name not in ours or isinstance(
                f, type) or ours[name] is f:
            continue
        got, want = _parameters(ours[name]), _parameters(f)
        if want is None or got is None or type(f).__name__ == "_ScalarMeta":
            continue
        same = len(got) == len(want) and all(a[:2] == b[:2] and (a[2] == b[2] or "object" in (
            a[2], b[2])) for a, b in zip(got, want, strict=True))
        if not same:
            differ[name] = (got, want)
    assert differ == {}


WORDS = """
lax.mul(np.int8(100), np.int8(3), out_dtype=np.int32)
lax.mul(np.float16(300), np.float16(300), out_dtype='float32')
lax.exp(V, accuracy=lax.AccuracyMode.HIGHEST)
lax.add(x=1.0, y=2.0)
lax.reduce_window(V, 0.0, lax.add, (2,))
lax.unstack(X, 1)
lax.switch(0, [lambda x: x], operand=None)
lax.dynamic_index_in_dim(V, -2, allow_negative_indices=False)
jax.jit(lambda i: lax.dynamic_slice(V, (i,), (2,), allow_negative_indices=False))(-3)
jnp.take_along_axis(I, jnp.array([[-1], [0], [2]]), 1, wrap_negative_indices=False)
V.at[-1].get(wrap_negative_indices=False, mode='fill', fill_value=3.0)
jnp.reshape(X, (4, 3), 'F')
X.transpose(1, 0)
X.reshape(4, 3)
jnp.corrcoef(X, None, True, jnp.float32)
jnp.hanning(5.5)
jnp.nanmax(X, None, None, True)
jnp.nansum(X, 0, None, None, True, None, B)
jnp.nanmax(jnp.where(X > 0.5, jnp.nan, X), 0, initial=0.1, where=B)
jnp.nanmax(jnp.where(B, jnp.nan, X), 1, where=B, initial=-1.0)
jnp.nanvar(jnp.where(X > 0.6, jnp.nan, X), 1, None, None, 1, True)
jnp.nanmean(X, 1, None, None, True)
jnp.unique(I, False, True, True, size=5)
jnp.unique(I, axis=0, sorted=False)
jnp.percentile(X, 30, 0, None, False, 'lower', True)
jnp.linalg.tensordot(X, X, axes=((0,), (0,)))
jax.nn.standardize(1e4 + X, algorithm='stable')
jax.scipy.special.comb(5, jnp.arange(4), repetition=True)
jax.scipy.signal.fftconvolve(X, Y, axes=[1])
jax.scipy.signal.fftconvolve(T, T[:1, :, :2], 'same', axes=[0, 2])
jax.scipy.linalg.hadamard(n=2)
jax.random.key_data(jax.random.key(3, dtype=jax.random.key_dtype('rbg')))
jax.random.t(jax.random.key(3), jnp.ones(3) + 2).shape
jax.vmap(lambda x: lax.all_gather(x, 'i', axis=0, tiled=True), axis_name='i')(X)
jax.vmap(lambda x: lax.all_gather(x, 'i', axis=-1), axis_name='i')(X)
jax.grad(jax.checkpoint(lambda x, n: jnp.sin(x) ** n, static_argnums=1))(1.0, 2)
jnp.var(X, 1, where=B, ddof=3)
jax.scipy.stats.gamma.logsf(jnp.array([10.0, 50.0]), 2.0)
jax.scipy.stats.chi2.logsf(jnp.array([100.0, 1.0]), 2.0)
jax.scipy.stats.beta.logsf(jnp.array([0.999, 0.5, 2.0]), 2.0, 7.0)
jax.scipy.stats.expon.logsf(jnp.array([10.0, 200.0, -1.0]))
jax.scipy.stats.gumbel_r.logsf(jnp.array([30.0, 1.0]))
jax.scipy.stats.gumbel_l.logsf(jnp.array([30.0, 1.0]))
jax.scipy.stats.gumbel_l.logcdf(jnp.array([-30.0, 1.0]))
jax.scipy.stats.truncnorm.logsf(jnp.array([10.0, 12.9, 8.0]), 9, 13)
jax.scipy.stats.truncnorm.logcdf(jnp.array([10.0, 12.9, 14.0]), 9, 13)
jax.scipy.stats.truncnorm.cdf(jnp.array([-0.5, 0.2, 1.0]), -1, 1.5)
jax.scipy.stats.truncnorm.logpdf(jnp.array([10.0, 12.9, 8.0]), 9, 13)
X.at[jnp.array([0, 0, 1])].divide(2.0)
I.at[jnp.array([0, 0, 1])].divide(jnp.array([[2.0], [4.0], [3.0]]))
lax.round(jnp.array([0.49999997, 8388609.0, -0.49999997, 2.5, -0.5]))
jnp.put_along_axis(X, jnp.array([[9], [0], [-1]]), 7.0, 1, inplace=False)
jnp.put_along_axis(X, jnp.array([[9], [0], [-1]]), Y[:, :1], 1, inplace=False, mode='clip')
jnp.put_along_axis(X, jnp.array([3, 40]), 7.0, None, inplace=False)
jnp.pad(X, ((1, 2), (5, 1)), 'symmetric', reflect_type='odd')
jax.grad(lambda x: jnp.sum(jnp.sin(jnp.pad(x, 2, 'symmetric', reflect_type='odd'))))(V)
jnp.pad(X, (1, 2), lambda v, w, axis, k: v.at[:w[0]].set(k['by'] + axis), by=5.0)
jnp.nanstd(X, 1, None, None, 4)
jax.tree_util.is_tree_node(dict)
jax.tree_util.is_tree_node(int)
jax.pmap(lambda x, n: x * n, static_broadcasted_argnums=1)(jnp.ones((1, 2)), 3)
""".strip().splitlines()

REFUSED = """
jnp.sin(x=1.0)
jnp.sin(1.0, out=None)
jnp.add(1.0)
jnp.clip(1, a_min=1)
jnp.concat([V], 0)
jnp.tril(X, 0, 3)
jnp.transpose(X, 1, 0)
jnp.reshape(X, 4, 3)
jnp.einsum('i->i', V, out=1)
jnp.pad(X, 1, foo=1)
jnp.pad(X, 1, 'edge', constant_values=1)
jnp.pad(X, 1, 'constant', stat_length=1)
jnp.matmul(I, I.T, preferred_element_type='int8')
jax.nn.sigmoid(I)
jax.nn.silu(I)
jnp.quantile(X, 0.5, overwrite_input=True)
jnp.fft.fft(V, foo=1)
jnp.float32()
jnp.zeros(3, out_sharding=5)
lax.broadcast(1.0, (3,), out_sharding=jax.sharding.PartitionSpec())
jax.random.normal(jax.random.key(0), (3,), out_sharding='x')
lax.full((2,), 1.0, foo=1)
lax.exp(1.0, accuracy=3)
lax.dynamic_slice(V, (-2,), (2,), allow_negative_indices=False)
lax.cond(True, lambda: 1.0, lambda: 2.0, linear=None)
lax.linalg.eig(X[:, :3], implementation='foo')
lax.linalg.eigh(P, implementation=lax.linalg.EighImplementation.QDWH)
V.at[0].get(foo=1)
V.at[0].set(1, foo=1)
jax.nn.standardize(X, algorithm='foo')
jax.scipy.linalg.inv(P, foo=1)
jax.scipy.signal.correlate2d(X, X, boundary='wrap')
jax.scipy.stats.norm.pdf(1.0, _f=1)
jax.random.key(3, impl='rbg', dtype=jax.random.key_dtype('rbg'))
jax.device_put(1.0, 5)
jax.local_devices(process_index=1)
jax.ShapeDtypeStruct((2,), 'float32', foo=True)
jax.jit(lambda x: x).lower(1.0).compile(foo=1)
jax.enable_x64(foo=True).__enter__()
jax.pmap(lambda x: x, foo=1)
""".strip().splitlines()


@pytest.mark.parametrize("text", WORDS)
def test_words_are_honoured(text: str) -> None:
    got, want = (helpers.run(text, m) for m in (OURS, THEIRS))
    helpers.same(got, want)


@pytest.mark.parametrize("text", REFUSED)
def test_words_that_are_refused(text: str) -> None:
    helpers.refusals(text, OURS, THEIRS)


def test_static_names_of_a_checkpoint() -> None:
    """JAX 0.10.2 has the word and traces the argument all the same; here it is static."""
    from adjoint import jax as aj
    f = aj.checkpoint(lambda x, n: x if n else -x, static_argnames="n")
    assert aj.grad(lambda x: f(x, n=0))(1.0) == -1.0
