"""`jax.make_jaxpr`: programs of functions, their text, and what runs them."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers_jax import needs_same_release

import adjoint.jax as jax
import adjoint.jax.numpy as jnp
from adjoint.base.errors import NotSupported
from adjoint.jax import lax
from adjoint.jax.extend.core import ClosedJaxpr, Literal, Primitive, jaxpr_as_fun

V, M, S = np.array([0.5, 1.5, 2.5], np.float32), np.ones((2, 3), np.float32), np.float32(2.0)
N = np.arange(1, 4, dtype=np.int32)


def functions(jax: Any) -> list[tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Functions whose programs have one text here and in JAX."""
    jnp, lax = jax.numpy, jax.lax
    cj = jax.custom_jvp(lambda x: jnp.sin(x))
    cj.defjvp(lambda p, t: (cj(*p), t[0]))
    cv = jax.custom_vjp(lambda x: jnp.sin(x))
    cv.defvjp(lambda x: (cv(x), x), lambda r, g: (g,))
    return [
        (lambda x: jnp.sin(x) * 2, (V,)), (lambda x: x + 1, (3.0,)), (lambda x: x + 1, (3,)),
        (lambda x, y: x + y, (V, M)), (lambda x, y: x * y, (V, S)), (lambda x: x.sum(), (M,)),
        (lambda x: x.sum(0), (M,)), (lambda x: jnp.max(x, axis=1), (M,)), (jnp.mean, (V,)),
        (lambda x, y: x @ y, (M, V)), (lambda x: jnp.dot(x, x), (V,)),
        (lambda x, y: x @ y, (M, M.T)), (lambda x: x.T, (M,)), (lambda x: x.reshape(3, 2), (M,)),
        (lambda x: x[:, None] * x, (V,)), (lambda x: x ** 2, (V,)), (lambda x: x ** 0.5, (V,)),
        (lambda x: x / 2, (N,)), (lambda x: x.astype(jnp.int32), (V,)), (lambda x: x > 0, (V,)),
        (lambda x: jnp.exp(-x), (V,)), (lambda x: jnp.concatenate([x, x]), (V,)),
        (lambda x: jnp.zeros(3) + x, (V,)), (lambda x: jnp.maximum(x, 0), (V,)),
        (lambda x: jnp.asarray(V) + x, (V,)), (lambda x: jax.jit(lambda y: y * 2)(x) + 1, (V,)),
        (jax.grad(lambda x: jnp.sin(x)), (1.0,)), (jax.vmap(lambda x: jnp.sin(x) + 1), (V,)),
        (lambda x: lax.fori_loop(0, 3, lambda i, a: a * 2, x), (V,)),
        (lambda x: lax.scan(lambda c, a: (c + a, c * a), S, x), (V,)),
        (lambda x: lax.while_loop(lambda a: a < 10, lambda a: a * 2, x), (1.0,)),
        (lambda x: lax.cond(x > 0, jnp.sin, jnp.cos, x), (1.0,)), (lambda x: x[0], (V,)),
        (lambda x: x[1:], (V,)), (lambda x: (x, {"a": x, "b": 2 * x}), (V,)), (lambda x: 3, (V,)),
        (lambda x: jnp.arange(3) + x, (N,)), (lambda x: jnp.argmax(x), (V,)),
        (lambda x: lax.stop_gradient(x) * x, (V,)), (lambda x: jnp.squeeze(x), (M[:1],)),
        (lambda x: jnp.broadcast_to(x, (2, 3)), (V,)), (lambda x: jnp.stack([x, x]), (V,)),
        (lambda x, y: (x & y, x | y, ~x), (N, N)), (jnp.arctan2, (V, V)), (lax.rsqrt, (V,)),
        (jax.nn.softmax, (V,)), (lambda x: cj(x), (V,)), (lambda x: cv(x), (V,)),
        (lambda x: lax.cond(True, lambda: x, lambda: x + 1), (V,)),
    ]


OTHERS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (lambda x: jnp.where(x > 1, x, 0.0), (V,)), (jax.grad(lambda x: jnp.sum(x * x)), (V,)),
    (lambda x: x[N - 1], (V,)), (jnp.cumsum, (V,)), (jax.nn.relu, (V,)),
    (lambda x, y: (x % y, x // y), (N, N)), (jnp.linalg.norm, (V,)),
    (lambda x: x.at[0].set(1.0), (V,)), (jax.hessian(lambda x: jnp.sum(jnp.tanh(x) ** 3)), (V,)),
    (jax.vmap(jax.jit(lambda x: lax.scan(lambda c, a: (c * a, c), x, V)[1])), (V,)),
    (jax.jacfwd(lambda x: lax.fori_loop(0, 2, lambda i, a: a * x, x)), (V,)),
    (lambda x: lax.switch(x[0].astype(int), [jnp.sin, jnp.cos, lambda y: y * x], x), (V,)),
    (lambda x: lax.while_loop(lambda s: s[0] < x.sum(), lambda s: (s[0] + 1, s[1] * x), (0, x)),
     (V,)),
    (lambda x: jnp.sort(x)[::-1], (V,)), (lambda x: jnp.linalg.inv(jnp.diag(x)), (V,)),
]


@pytest.mark.parametrize("k", range(len(functions(jax))))
def test_text_is_jax_s(k: int) -> None:
    theirs = pytest.importorskip("jax")
    needs_same_release()
    f, args = functions(jax)[k]
    g, _ = functions(theirs)[k]
    assert str(jax.make_jaxpr(f)(*args)) == str(theirs.make_jaxpr(g)(*args))


@pytest.mark.parametrize("k", range(len(functions(jax)) + len(OTHERS)))
def test_program_computes_the_function(k: int) -> None:
    f, args = [*functions(jax), *OTHERS][k]
    closed = jax.make_jaxpr(f)(*args)
    found = jax.core.eval_jaxpr(closed.jaxpr, closed.consts, *args)
    want = [jnp.asarray(x) for x in jax.tree.leaves(f(*map(jnp.asarray, args)))]
    for a, b, t in zip(found, want, closed.out_avals, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape) == (t.dtype, t.shape)
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-6)


def test_text_as_stated() -> None:
    assert str(jax.make_jaxpr(lambda x, y: (x + y) * 2)(V, S)) == (
        "{ lambda ; a:f32[3] b:f32[]. let\n    c:f32[3] = add a b\n    d:f32[3] = mul c 2.0:f32[]"
        "\n  in (d,) }")
    assert str(jax.make_jaxpr(lambda x: x)(1)) == "{ lambda ; a:i32[]. let  in (a,) }"


def test_parts_of_a_program() -> None:
    held = jnp.asarray(V)
    closed = jax.make_jaxpr(lambda x: (jnp.sin(x) * held, 3 * x))(V)
    assert isinstance(closed, ClosedJaxpr) and closed.consts[0] is not None
    assert [e.primitive for e in closed.eqns] == [lax.sin_p, lax.mul_p, lax.mul_p]
    assert [v.aval.shape for v in closed.jaxpr.constvars] == [(3,)]
    lit = closed.eqns[2].invars[0]
    assert isinstance(lit, Literal) and lit.val == 3.0 and lit.aval.shape == ()
    assert np.array_equal(np.asarray(jaxpr_as_fun(closed)(V)[1]), 3 * V)
    shapes = jax.make_jaxpr(lambda x: {"a": x.sum()}, return_shape=True)(
        jax.ShapeDtypeStruct((4,), jnp.float32))[1]
    assert shapes["a"].shape == ()
    assert len(jax.make_jaxpr(lambda n, x: x * n, static_argnums=0)(2, V).jaxpr.invars) == 1
    assert len(jax.jit(lambda x: jnp.sin(x) + 1).trace(V).jaxpr.eqns) == 2


def test_an_interpreter_of_the_program_s_own() -> None:
    """Inverses by walking over the equations backwards."""
    inverse = {lax.exp_p: jnp.log, lax.tanh_p: jnp.arctanh}

    def invert(closed: Any, y: Any) -> Any:
        env = {closed.jaxpr.outvars[0]: y}
        for e in closed.jaxpr.eqns[::-1]:
            env[e.invars[0]] = inverse[e.primitive](env[e.outvars[0]])
        return env[closed.jaxpr.invars[0]]
    f = lambda x: jnp.exp(jnp.tanh(x))                                              # noqa: E731
    x = np.float32(0.3)
    np.testing.assert_allclose(np.asarray(invert(jax.make_jaxpr(f)(x), f(x))), x, rtol=1e-5)


def test_a_program_under_transforms() -> None:
    closed = jax.make_jaxpr(lambda x: lax.fori_loop(0, 3, lambda i, a: a * jnp.sin(x), x))(1.0)

    def run(x: Any) -> Any:
        return jaxpr_as_fun(closed)(x)[0]
    want = jax.grad(lambda x: x * jnp.sin(x) ** 3)
    np.testing.assert_allclose(np.asarray(jax.vmap(jax.grad(run))(V)),
                               np.asarray(jax.vmap(want)(V)), rtol=1e-5)


def test_primitives_stand_in_programs() -> None:
    twice = Primitive("twice")
    twice.def_impl(lambda x, *, k: k * x)
    twice.def_abstract_eval(lambda x, *, k: jax.core.ShapedArray(x.shape, x.dtype))
    closed = jax.make_jaxpr(lambda x: twice.bind(x, k=2) + 1)(V)
    assert str(closed) == ("{ lambda ; a:f32[3]. let\n    b:f32[3] = twice[k=2] a\n"
                           "    c:f32[3] = add b 1.0:f32[]\n  in (c,) }")
    assert np.array_equal(np.asarray(jaxpr_as_fun(closed)(V)[0]), 2 * V + 1)


def test_what_a_program_cannot_hold() -> None:
    with pytest.raises(NotSupported, match="a while_loop inside of a derivative"):
        jax.make_jaxpr(jax.grad(lambda x: lax.while_loop(lambda a: a < 9, lambda a: a * 2, x)))(1.)
    with pytest.raises(jax.errors.TracerBoolConversionError):
        jax.make_jaxpr(lambda x: 1 if x > 0 else 2)(1.0)
    with pytest.raises(TypeError, match="Expected a callable value"):
        jax.make_jaxpr(3)
