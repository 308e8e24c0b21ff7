"""`checkify`: what it says of a run, beside JAX (F54)."""
from __future__ import annotations

import importlib

import helpers_jax as helpers
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("scipy")
OURS, THEIRS = helpers.library("adjoint.jax"), helpers.library("jax")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.row("F54")]
for _m, _base in ((OURS, "adjoint.jax"), (THEIRS, "jax")):
    _c = importlib.import_module(f"{_base}.experimental.checkify")
    _m.names.update(c=_c, E=_m.names["jnp"].zeros(4), L=_m.names["jnp"].array([1, 9, -7]))

AUTOMATIC = """
lambda x: x / E, V
lambda x: x // E, V
lambda x: x // N2, N2
lambda x: x % 0, N2 + 1
lambda x: lax.div(x, x * 0), N2
lambda x: lax.rem(x, x * 0), N2
lambda x: x / x, V
lambda x: x / 0.0, V
lambda x: x[L], V
lambda x: x.at[L].get(mode='fill'), V
lambda x: x.at[L].get(mode='clip'), V
lambda x: x.at[L].set(1.0, mode='drop'), V
lambda x: x.at[L].add(1.0, mode='clip'), V
lambda x: x[jnp.array([1, 3])], V
lambda x, i: lax.dynamic_update_slice(x, jnp.ones(2), (i,)), V, 9
lambda x, i: lax.dynamic_slice(x, (i,), (2,)), V, 3
lambda x, i: lax.dynamic_slice(x, (i,), (2,)), V, -9
lambda x, i: x[i, :, i], T, 2
lambda x, i: x[i, 2], X, -9
lambda x: jnp.take(x, 9), V
lambda x: jax.vmap(lambda j: V[j])(x), L
lambda x: jnp.sum(x), V * jnp.nan
lambda x: jnp.mean(x), V * jnp.nan
lambda x: jnp.max(x), V * jnp.nan
lambda x: x.reshape(2, 2), V * jnp.nan
lambda x: jnp.where(x > 0, x, jnp.nan), -V
lambda x: x @ x, V * jnp.nan
lambda x: jnp.log(x) / E, -V
lambda x: jax.nn.softmax(x), V + jnp.inf
lambda x: jnp.cumsum(x), V * jnp.nan
lambda x: lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, jnp.log(s[1])), (0, x)), -V
lambda x: lax.scan(lambda a, b: (a, jnp.log(b)), 0.0, x), -V
jax.jit(lambda x: jnp.sqrt(x)), -V
lambda x: lax.cond(x[0] > 0, jnp.log, jnp.sin, x), -V
lambda x: jnp.sin(x), V
""".strip().splitlines()


@pytest.mark.parametrize("text", AUTOMATIC)
def test_automatic_checks(text: str) -> None:
    got, want = (_said(text, m, "c.all_checks") for m in (OURS, THEIRS))
    assert got == want


@pytest.mark.parametrize("kinds", ["user_checks", "nan_checks", "div_checks", "index_checks",
                                   "float_checks", "automatic_checks"])
def test_only_what_is_asked_for(kinds: str) -> None:
    """Each of four failures is noted where its kind is asked for, and never another."""
    for text in ("lambda x: x / E, V", "lambda x: jnp.log(x), -V", "lambda x: x[L], V",
                 "lambda x: c.check(x[0] < 0, 'no'), V"):
        got, want = (_said(text, m, f"c.{kinds}") for m in (OURS, THEIRS))
        assert got == want


def _said(text: str, m: helpers.SimpleNamespace, kinds: str) -> tuple[str | None, str]:
    """The message of the error, and its class."""
    function, *args = helpers.run(f"({text},)", m)
    error = m.names["c"].checkify(function, helpers.run(kinds, m))(*args)[0]
    return error.get(), type(error.get_exception()).__name__


def test_failures_inside_of_a_checked_function_keep_their_kind() -> None:
    """`check_error` notes a NaN as a NaN: it does not count where only `check` does."""
    for m in (OURS, THEIRS):
        c, n = m.names["c"], m.names["jnp"]

        def outer(x: object, c: object = c, n: object = n) -> object:
            error, out = c.checkify(n.log, c.float_checks)(x)
            c.check_error(error)
            return out
        assert c.checkify(outer)(-1.0)[0].get() is None
        assert c.checkify(outer, c.float_checks)(-1.0)[0].get().startswith("nan generated")


def test_nothing_is_left_behind() -> None:
    """After a run, and after one that raises, nobody looks at operations."""
    from adjoint.core.modes import watchers
    from adjoint.jax._trace import RUN
    c, n = OURS.names["c"], OURS.names["jnp"]
    c.checkify(n.log, c.all_checks)(-1.0)
    with pytest.raises(ZeroDivisionError):
        c.checkify(lambda x: 1 / 0, c.all_checks)(1.0)
    assert RUN.indices is None and RUN.divisor is None and not watchers.observers.get()
