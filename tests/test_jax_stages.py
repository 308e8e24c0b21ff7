"""What `jit` compiles to, checked leaks, callbacks under vmap, rules and traced values, roots."""
from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import adjoint.jax as jax
import adjoint.jax.numpy as jnp
from adjoint.jax import lax
from adjoint.jax.experimental import io_callback

pytestmark = pytest.mark.row("F54")
V = jnp.array([1.0, 2.0, 3.0])


def test_a_compiled_function_takes_the_arguments_it_was_lowered_for() -> None:
    """Static ones are in it; others' types and structure are checked, and transforms refused."""
    run = jax.jit(lambda x, n, y=1: (x + n) * y, static_argnums=1)
    lowered = run.lower(V, 2, y=3)
    made = lowered.compile()
    assert made(V, y=2).tolist() == [6.0, 8.0, 10.0]
    assert lowered.out_info.shape == made.out_info.shape == (3,)
    assert made.in_avals[0][0].shape == (3,)
    for wrong in (lambda: made(V), lambda: made(V, 2, y=3), lambda: made(V[:2], y=3),
                  lambda: made(V, y=3.0), lambda: jax.vmap(made)(V, y=V),
                  lambda: jax.jit(lambda x: made(x, y=3))(V)):
        with pytest.raises(TypeError):
            wrong()


def test_donated_arguments_are_told() -> None:
    """They stay valid; `args_info` has them."""
    lowered = jax.jit(lambda x, y: x + y, donate_argnums=1).lower(V, {"a": V}["a"])
    assert lowered.donate_argnums == (1,)
    assert [i.donated for i in lowered.args_info[0]] == [False, True]


def test_leaked_arrays_are_told_where_that_is_asked_for() -> None:
    """By jit, vmap, loops and branches; what leaves nothing behind passes."""
    kept: list[Any] = []

    def leak(*xs: Any) -> Any:
        kept.append(xs[-1])
        return xs[0] if len(xs) == 1 else (xs[0], xs[1])
    with jax.checking_leaks():
        for run in (lambda: jax.jit(leak)(1.0), lambda: jax.vmap(leak)(V),
                    lambda: lax.cond(True, leak, leak, 1.0), lambda: lax.scan(leak, 0.0, V)):
            with pytest.raises(Exception, match="Leaked trace"):
                run()
            kept.clear()
        assert float(jax.jit(lambda x: x * 2)(1.0)) == 2
        assert jax.vmap(jax.grad(lambda x: x * x))(V).tolist() == [2, 4, 6]
        assert float(lax.scan(lambda c, x: (c + x, x), 0.0, V)[0]) == 6
    jax.jit(leak)(1.0)


@pytest.mark.parametrize(("method", "shapes"), [
    ("sequential", [((), ())] * 3), ("expand_dims", [((3,), (1,))]),
    ("broadcast_all", [((3,), (3,))]), ("legacy_vectorized", [((3,), ())])])
def test_callbacks_under_vmap_by_method(method: str, shapes: Any) -> None:
    seen: list[Any] = []

    def call(x: Any, y: Any) -> Any:
        seen.append((np.shape(x), np.shape(y)))
        return np.asarray(x) + np.asarray(y)

    def run(x: Any) -> Any:
        return jax.pure_callback(call, x, x, jnp.float32(1), vmap_method=method)
    assert jax.vmap(run)(V).tolist() == [2.0, 3.0, 4.0] and seen == shapes


def test_effects_happen_once_per_example_also_of_equal_ones() -> None:
    """An output more does not call again, equal arguments do."""
    calls: list[float] = []

    def call(x: Any) -> Any:
        calls.append(float(x))
        return x, x * 2
    out = jax.vmap(lambda x: io_callback(call, (x, x), x))(jnp.ones(3))
    assert calls == [1.0] * 3 and out[1].tolist() == [2.0] * 3
    jax.vmap(lambda x: io_callback(lambda v: calls.append(float(v)), None, x))(jnp.ones(2))
    assert calls == [1.0] * 5


def test_a_callback_that_fails_is_a_runtime_error() -> None:
    for call in (lambda x: 1 / 0, lambda x: (x, x), lambda x: np.ones(3)):
        with pytest.raises(RuntimeError):
            jax.pure_callback(call, jax.ShapeDtypeStruct((), "float32"), 1.0)


def test_no_derivative_is_taken_of_nondiff_arguments() -> None:
    """`custom_vjp` refuses traced ones, `custom_jvp` holds them fixed."""
    @partial(jax.custom_vjp, nondiff_argnums=(0,))
    def f(n: Any, x: Any) -> Any:
        return n * x
    f.defvjp(lambda n, x: (n * x, None), lambda n, _, ct: (ct * n,))
    assert float(jax.grad(f, 1)(3.0, 2.0)) == 3
    for run in (lambda: jax.jit(f)(3.0, 2.0), lambda: jax.grad(f, 0)(3.0, 2.0),
                lambda: jax.vmap(f)(V, V)):
        with pytest.raises(jax.errors.UnexpectedTracerError, match="nondiff_argnums"):
            run()

    @partial(jax.custom_jvp, nondiff_argnums=(0,))
    def g(n: Any, x: Any) -> Any:
        return n * x
    g.defjvp(lambda n, p, t: (n * p[0], n * t[0]))
    assert float(jax.grad(g, 0)(3.0, 2.0)) == 0
    assert float(jax.jvp(g, (3.0, 2.0), (1.0, 1.0))[1]) == 3


def test_roots_of_solvers_that_differentiate_to_third_order() -> None:
    """Newton's method by `grad`; the root of x^2 + a x = 2 moves its own derivative."""
    def newton(f: Any, x: Any) -> Any:
        return lax.while_loop(lambda v: jnp.abs(f(v)) > 1e-6, lambda v: v - f(v) / jax.grad(f)(v),
                              x)

    def root(a: Any) -> Any:
        return lax.custom_root(lambda x: x * x + a * x - 2, 1.0, newton, lambda g, y: y / g(1.0))

    def exact(a: Any) -> Any:
        return (-a + jnp.sqrt(a * a + 8)) / 2
    for _ in range(4):
        assert float(root(0.7)) == pytest.approx(float(exact(0.7)), rel=1e-4)
        assert float(jax.vmap(root)(V)[1]) == pytest.approx(float(exact(2.0)), rel=1e-4)
        root, exact = jax.grad(root), jax.grad(exact)


def test_linear_solvers_may_differentiate_the_map() -> None:
    """A solver that makes the matrix by `jacfwd`, in both modes and to second order."""
    a, b = jnp.array([[2.0, 1.0], [0.5, 3.0]]), jnp.array([1.0, 2.0])

    def solve(f: Any, y: Any) -> Any:
        return jnp.linalg.solve(jax.jacfwd(f)(y), y)

    def run(m: Any) -> Any:
        return lax.custom_linear_solve(lambda v: m @ v, b, solve, solve)
    for by in (jax.jacrev, jax.jacfwd, jax.hessian):
        np.testing.assert_allclose(by(run)(a), by(lambda m: jnp.linalg.solve(m, b))(a), rtol=1e-4,
                                   atol=1e-6)
