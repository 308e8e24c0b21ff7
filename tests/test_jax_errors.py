"""Errors of JAX's transforms, control flow and rules: the builtin class, and the first words."""
from __future__ import annotations

from typing import Any

import helpers_jax as helpers
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("scipy")
OURS, THEIRS = helpers.library("adjoint.jax"), helpers.library("jax")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.row("F54")]

ERRORS = """
lax.scan(lambda c, x: (c.astype('int32'), x), V[0], V)
lax.scan(lambda c, x: ((c, c), x), V[0], V)
lax.scan(lambda c, x: (c, 'a'), V[0], V)
lax.scan(lambda c, x: (c, x), V[0], V, unroll=-1)
lax.cond(True, lambda x: x, lambda x: 1, 1.0)
lax.cond(True, lambda x: x, lambda x: V, 1.0)
lax.cond(True, lambda x: x, lambda x: (x, x), 1.0)
lax.cond('a', lambda x: x, lambda x: x, 1.0)
lax.cond((1, 2), lambda x: x, lambda x: x, 1.0)
lax.cond(None, lambda x: x, lambda x: x, 1.0)
lax.cond(jax, lambda x: x, lambda x: x, 1.0)
lax.cond(True, lambda x: 'a', lambda x: 'b', 1.0)
lax.switch(0, [lambda x: x, lambda x: (x,)], 1.0)
lax.switch(0, [lambda x: x, lambda x: jnp.int32(x)], 1.0)
lax.switch('a', [lambda x: x, lambda x: x], 1.0)
lax.while_loop(lambda x: (x < 3,), lambda x: x + 1, 0)
lax.while_loop(lambda x: 'a', lambda x: x + 1, 0)
lax.while_loop(lambda x: None, lambda x: x + 1, 0)
lax.while_loop(lambda x: x < 3, lambda x: (x, x), 0)
lax.while_loop(lambda x: x[0] < 3, lambda x: (x[0], V), (0, 1))
lax.fori_loop(0, 3, lambda i, x: (x, x), 0)
lax.fori_loop(0.0, 3, lambda i, x: x, 0)
lax.fori_loop(jnp.int32(0), jnp.int16(3), lambda i, x: x, 0)
lax.fori_loop(0, U, lambda i, x: x, 0)
lax.associative_scan(lambda a, b: a + b, (V, jnp.arange(3)))
lax.associative_scan(lambda a, b: a + b, V, axis=2)
lax.custom_root(lambda x: x - 1, 0.0, lambda f, x: (x, x), lambda g, y: y / g(1.0))
lax.custom_root(lambda x: (x - 1,), 0.0, lambda f, x: x, lambda g, y: y / g(1.0))
lax.custom_root(lambda x: x - 1, 0.0, lambda f, x: x, lambda g, y: y, has_aux=True)
lax.custom_linear_solve(lambda x: (x, x), 1.0, lambda m, b: b)
lax.custom_linear_solve(lambda x: x, V, lambda m, b: b[0])
jax.grad(lambda x: 'a')(1.0)
jax.grad(lambda x: x, argnums=-2)(1.0)
jax.grad(3)
jax.value_and_grad(lambda x: x)({'a': 3})
jax.value_and_grad(lambda x: jnp.int32(x))(1.0)
jax.jacrev(lambda x: jnp.int32(x))(3.0)
jax.jacfwd(lambda x: x, argnums=3)(3.0)
jax.hessian(lambda x: x, argnums=3)(3.0)
jax.vmap(lambda x: x)()
jax.vmap(lambda x: x, in_axes=(0.0,))
jax.vmap(lambda x: x, in_axes=(U,))
jax.vmap(lambda x: x, out_axes='a')
jax.vmap(lambda x: x, out_axes=2)(V)
jax.vmap(lambda x: x, out_axes=-3)(V)
jax.vmap(lambda x: 'a')(V)
jax.jit(lambda x: x, static_argnums=3)
jax.jit(lambda x: x, static_argnums=-3)
jax.jit(lambda x: x, static_argnums='a')
jax.jit(lambda x: x, static_argnames='y')
jax.jit(lambda x, /: x, static_argnames='x')
jax.jit(lambda x: x, donate_argnums=3)
jax.jit(lambda x: x, donate_argnames='y')
jax.jit(lambda x: x, static_argnums=0, donate_argnums=0)
jax.jit(lambda x: x)('a')
jax.jit(lambda x: 'a')(1)
jax.jvp(3, (1.0,), (1.0,))
jax.vjp(lambda x: x, 1.0)[1](1.0, 2.0)
jax.vjp(lambda x: x, 1.0)[1](1j)
jax.linearize(lambda x: x, 1.0)[1](1)
jax.linearize(lambda x: x, 1.0)[1](V)
jax.linearize(lambda x: x, 1.0)[1](1.0, 2.0)
jax.linear_transpose(lambda x: jnp.int32(x), 1.0)
jax.linear_transpose(lambda x: x, 1.0)(1)
jax.linear_transpose(lambda x: x, 1.0)(V)
jax.linear_transpose(lambda x: x, 1.0)((1.0, 2.0))
jax.eval_shape(lambda x: x, 'a')
jax.eval_shape(lambda x: 'a', 1.0)
jax.eval_shape(3, 1.0)
jax.checkpoint(lambda x: x, static_argnums=(3,))(1.0)
jax.checkpoint(lambda x: x, static_argnums=(-3,))(1.0)
jax.checkpoint(lambda x: x, concrete=True)
jax.checkpoint(lambda x: 'a')(1.0)
jax.device_put('a')
""".strip().splitlines()


@pytest.mark.parametrize("text", ERRORS)
def test_first_words(text: str) -> None:
    """The builtin class of JAX's error, and its first four words."""
    got, want = helpers.refusals(text, OURS, THEIRS)
    assert got.split()[:4] == want.split()[:4]


DETAILS = """
lax.scan(lambda c, x: ((c[0], c[1].astype('float16')), x), (S, V), V) || component c[1] has type
lax.scan(lambda c, x: ((c[0],), x), (S, V), V) || so the lengths do not match
lax.scan(lambda c, x: (c[0].astype('int32'), x), V, V) || so the shapes and dtypes do not match
lax.while_loop(lambda x: x < 3, lambda x: {'a': x}, 0) || so their Python types differ
lax.cond(True, lambda x: (x, x), lambda x: (x, V), S) || The output of true_fun at path [1] has type
lax.switch(2, [lambda x: x, lambda x: x, lambda x: x > 0], S) || output of branch 2 has type bool[]
jax.jit(lambda x: (x, {'b': 'c'}))(S) || returned a value of type <class 'str'> at output component
jax.jit(lambda x, y: x)(S, [S, 'a']) || passed to the function at path y[1]
jax.vjp(lambda x: (x, x), S)[1](S) || so their Python types differ
""".strip().splitlines()


@pytest.mark.parametrize("text", DETAILS)
def test_places(text: str) -> None:
    """Errors of trees name the place in the tree, and what of it differs."""
    code, _, words = text.partition(" || ")
    with pytest.raises((TypeError, ValueError)) as got:
        helpers.run(code, OURS)
    assert words in str(got.value)


def test_branches_with_one_predicate_per_example() -> None:
    """Under vmap all branches run, the last first: they are still named in their order."""
    bad = "jax.vmap(lambda i: lax.switch(i, [lambda: 1.0, lambda: 1], ))(jnp.arange(2))"
    with pytest.raises(TypeError, match=r"branch 0 has type float32.*of branch 1 has type int32"):
        helpers.run(bad, OURS)


def test_static_arguments_count_from_the_end() -> None:
    """A negative position is that of jit and of checkpoint alike; both once ignored it or took it
    as it stands."""
    text = "[f(lambda x, n: x * len(n), static_argnums=-1)(V, 'ab') for f in (jax.jit, G)]"
    got, want = (helpers.run(text, m, G=m.top.checkpoint) for m in (OURS, THEIRS))
    helpers.same(got, want)


PAIR = "custom_vjp", "lambda x, d: (f(x), d)"
RULES: list[tuple[str, ...]] = [
    ("custom_jvp", "lambda p, t: (p[0], jnp.ones(3))"),
    ("custom_jvp", "lambda p, t: (p[0], 1)"),
    ("custom_vjp", "lambda x, d: 2.0", "lambda r, g: (g, r)"),
    ("custom_vjp", "lambda x, d: (2.0, 1, 2)", "lambda r, g: (g, r)"),
    (*PAIR, "lambda r, g: (g, r, g)"),
    (*PAIR, "lambda r, g: (g, {'b': g})"),
    (*PAIR, "lambda r, g: (jnp.ones(3), r)")]


@pytest.mark.parametrize("kind, rules", [(kind, rules) for kind, *rules in RULES])
def test_rules_that_do_not_fit(kind: str, rules: list[str]) -> None:
    """In JAX's words: what the rule gave and what it should have given (F54)."""
    helpers.needs_same_release()

    def told(m: Any) -> str:
        def f(x: Any, d: Any = {"a": 2.0}) -> Any:      # noqa: B006  (it is only read)
            return m.names["jnp"].sin(x)
        made = getattr(m.top, kind)(f)
        parts = [helpers.run(r, m, f=m.names["jnp"].sin) for r in rules]
        (made.defjvp if kind == "custom_jvp" else made.defvjp)(*parts)
        with pytest.raises((TypeError, ValueError)) as error:
            m.top.grad(made)(m.names["V"][0])
        return str(error.value)
    assert told(OURS) == told(THEIRS)


@pytest.mark.parametrize("kind", ["custom_jvp", "custom_vjp"])
def test_keywords_of_functions_with_rules(kind: str) -> None:
    helpers.needs_same_release()

    def told(m: Any) -> str:
        def f(x: Any, *, y: Any = 3.0) -> Any:
            return x * y
        made = getattr(m.top, kind)(f)
        (made.defjvp if kind == "custom_jvp" else made.defvjp)(*[f] * (1 + (kind[-3] == "v")))
        with pytest.raises(TypeError) as error:
            made(1.0, y=2.0)
        return str(error.value)
    assert told(OURS) == told(THEIRS)


def test_functions_that_give_no_pull_back() -> None:
    """`custom_gradient` of a function of one value; its error was that of an index (F54)."""
    helpers.refusals("jax.custom_gradient(lambda x: x)(3.0)", OURS, THEIRS)


TREES = """
jax.tree_util.tree_map(lambda x, y: x, [1, 2], [1])
jax.tree_util.tree_map(lambda x, y: x, [1, [2]], [1, 2])
jax.tree_util.tree_map(lambda x, y: x, {'a': 1}, {'b': 1})
jax.tree_util.tree_map(lambda x, y, z: x, [1, (2, 3)], [1, (2, 3)], [1])
jax.tree_util.tree_structure({'a': 1}).flatten_up_to({'b': 1})
jax.tree_util.tree_unflatten(jax.tree_util.tree_structure([1, 2]), [1, 2, 3])
jax.tree_util.tree_flatten({'b': 1, 2: 3})
jax.tree_util.register_pytree_node(list, lambda x: 0, lambda x: 0)
jax.vmap(lambda x: x, in_axes=({'a': (0, 0), 'b': [0]},))({'a': (V, V), 'b': (V,)})
jax.vmap(lambda d: d['a'], in_axes=({'a': 0, 'c': None},))({'a': X, 'b': V})
jax.vmap(lambda x: (x, (x,)), out_axes=(0, [0]))(X)
jax.vmap(lambda x, y, z, w: x)(X, X, V, IM)
jax.vmap(lambda x, y, z, w: x)(X, X, V, V)
jax.vmap(lambda x, *a, k: x)(X, V, V, k=X)
jax.vmap(lambda d, y: y)({'a': X, 'b': [V]}, V)
jax.vmap(lambda x: x, axis_size=4)(X)
jax.vmap(lambda x: 'a')(X)
jax.jvp(lambda x: x, (1.0,), [1.0])
jax.jvp(lambda x: x, (1,), (1,))
jax.vjp(lambda x: {'a': x, 'b': (x, x)}, V)[1]({'a': V, 'b': V})
jax.vjp(lambda x: {'a': x, 'b': (x, x)}, V)[1]({'a': V, 'c': V})
jax.linearize(lambda x: x, 1.0)[1](V)
jax.linearize(lambda x: x, V)[1](1.0)
""".strip().splitlines()


@pytest.mark.parametrize("text", TREES)
def test_trees_and_axes_that_do_not_fit(text: str) -> None:
    """In all of JAX's words, with the argument and the place in it (F54)."""
    got, want = helpers.refusals(text, OURS, THEIRS)
    assert got == want


@pytest.mark.parametrize("text", """
jax.linear_transpose(lambda x: 2 * x, U)(U)
jax.linear_transpose(lambda x: (x, {'a': 2 * x.T}), I)((I, {'a': I.T}))
jax.linear_transpose(lambda x, y: x.sum(0) - y, I, I[0])(I[1])""".strip().splitlines())
def test_transposes_of_whole_numbers(text: str) -> None:
    """They were float0 zeros (F54)."""
    helpers.same(helpers.run(text, OURS), helpers.run(text, THEIRS))
