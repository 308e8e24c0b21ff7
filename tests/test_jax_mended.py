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
""".strip().splitlines()

ERRORS = """
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
""".strip().splitlines()


@pytest.mark.parametrize("text", VALUES)
def test_values(text: str) -> None:
    helpers.same(helpers.run(text, OURS), helpers.run(text, THEIRS))


@pytest.mark.parametrize("text", ERRORS)
def test_errors(text: str) -> None:
    """The builtin class of JAX's error, and the beginning of its words."""
    with pytest.raises(Exception) as want:           # noqa: B017  (whichever JAX raises)
        helpers.run(text, THEIRS)
    kind = next(c for c in want.type.__mro__ if c.__module__ == "builtins")
    with pytest.raises(kind) as got:
        helpers.run(text, OURS)
    assert str(got.value)[:25] == str(want.value)[:25]
