"""Primitives that a program defines: their rules under grad, jvp, vmap, jit and each other."""
import numpy as np
import pytest

import adjoint.jax as jax
import adjoint.jax.numpy as jnp
from adjoint.jax import lax
from adjoint.jax.core import ShapedArray
from adjoint.jax.extend.core import Primitive
from adjoint.jax.interpreters import ad, batching, mlir, xla


def multiply_add():
    """x y + z on NumPy's arrays, with every rule: the one of the tangent uses the primitive."""
    p = Primitive("multiply_add")
    p.def_impl(lambda x, y, z: np.add(np.multiply(x, y), z))
    p.def_abstract_eval(lambda x, y, z: ShapedArray(x.shape, x.dtype))

    def jvp(primals, tangents):
        x, y, z = primals
        xt, yt, zt = (ad.instantiate_zeros(t) for t in tangents)
        return p.bind(x, y, z), p.bind(xt, y, p.bind(x, yt, zt))
    ad.primitive_jvps[p] = jvp

    def transpose(ct, x, y, z):
        if ad.is_undefined_primal(x):
            return p.bind(ct, y, jnp.zeros_like(y)), None, ct
        return None, p.bind(x, ct, jnp.zeros_like(x)), ct
    ad.primitive_transposes[p] = transpose
    batching.defbroadcasting(p)
    return p


def sine():
    p = Primitive("sine")
    p.def_impl(lambda x: xla.apply_primitive(p, x))
    p.def_abstract_eval(lambda a: a)
    mlir.register_lowering(p, mlir.lower_fun(jnp.sin, multiple_results=False))
    ad.defjvp(p, lambda g, x: g * jnp.cos(x))
    batching.defvectorized(p)
    return p


def test_a_primitive_under_every_transform():
    p = multiply_add()

    def f(x, y):
        return p.bind(x, y, x)
    assert p.bind(2.0, 10.0, 3.0) == 23.0
    assert float(jax.jit(f)(2.0, 10.0)) == 22.0
    out, tangent = jax.jvp(f, (2.0, 10.0), (1.0, 1.0))
    assert float(out) == 22.0 and float(tangent) == 13.0
    assert [float(g) for g in jax.grad(f, (0, 1))(2.0, 10.0)] == [11.0, 2.0]
    assert float(jax.grad(jax.grad(lambda x: p.bind(x, x * x, x)))(2.0)) == 12.0    # x^3 + x
    assert float(jax.grad(jax.grad(lambda x: p.bind(x, x, x)))(2.0)) == 2.0
    x, y = jnp.arange(2.0), jnp.array([3.0, 4.0])
    np.testing.assert_array_equal(jax.vmap(f)(x, y), x * y + x)
    np.testing.assert_array_equal(jax.vmap(f, (0, None))(x, 5.0), 6 * x)
    np.testing.assert_array_equal(jax.vmap(jax.grad(f))(x, y), y + 1)
    np.testing.assert_array_equal(jax.grad(lambda v: jax.vmap(f)(v, y).sum())(x), y + 1)
    np.testing.assert_array_equal(jax.jacfwd(lambda v: f(v, y))(x), np.diag([4.0, 5.0]))
    assert jax.eval_shape(f, x, y).shape == (2,)


def test_a_lowering_runs_under_jit_and_in_place_of_an_implementation():
    p = sine()
    np.testing.assert_allclose(p.bind(1.0), np.sin(1.0), rtol=1e-6)
    np.testing.assert_allclose(jax.jit(p.bind)(1.0), np.sin(1.0), rtol=1e-6)
    third = jax.grad(jax.grad(jax.grad(p.bind)))(1.0)
    np.testing.assert_allclose(third, -np.cos(1.0), rtol=1e-6)
    x = jnp.arange(3.0)
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.grad(p.bind)))(x), np.cos(x), rtol=1e-6)
    np.testing.assert_allclose(jax.hessian(lambda v: jax.vmap(p.bind)(v).sum())(x),
                               np.diag(-np.sin(x)), atol=1e-6)


def test_linear_and_bilinear_primitives():
    p = Primitive("scaled")
    p.def_impl(lambda x, *, by: x * by)
    p.def_abstract_eval(lambda a, *, by: a)
    ad.deflinear(p, lambda ct, *, by: [p.bind(ct, by=by)])

    def triple(x):
        return p.bind(x, by=3.0)
    assert float(jax.grad(triple)(1.0)) == 3.0
    assert float(jax.jvp(triple, (1.0,), (5.0,))[1]) == 15.0
    assert float(jax.linear_transpose(triple, 1.0)(2.0)[0]) == 6.0
    assert float(jax.grad(lambda x: triple(x) * triple(x))(2.0)) == 36.0

    q = Primitive("product")
    q.def_impl(lambda x, y: x * y)
    ad.defbilinear(q, lambda ct, x, y: q.bind(ct, y), lambda ct, x, y: q.bind(x, ct))
    assert [float(g) for g in jax.grad(q.bind, (0, 1))(2.0, 5.0)] == [5.0, 2.0]
    assert float(jax.grad(jax.grad(lambda x: q.bind(x, x)))(4.0)) == 2.0


def test_a_primitive_of_several_results():
    p = Primitive("both")
    p.multiple_results = True
    p.def_impl(lambda x: [jnp.sin(x), jnp.cos(x)])
    p.def_abstract_eval(lambda a: [a, a])
    ad.primitive_jvps[p] = lambda xs, ts: (p.bind(*xs), [ts[0] * jnp.cos(xs[0]),
                                                         -ts[0] * jnp.sin(xs[0])])
    batching.primitive_batchers[p] = lambda xs, dims: (p.bind(*xs), [dims[0]] * 2)
    s, c = p.bind(jnp.array(1.0))
    np.testing.assert_allclose(s ** 2 + c ** 2, 1, rtol=1e-6)
    np.testing.assert_allclose(jax.grad(lambda x: sum(p.bind(x)))(1.0), np.cos(1) - np.sin(1),
                               rtol=1e-5)
    np.testing.assert_allclose(jax.vmap(lambda x: p.bind(x)[1])(jnp.arange(2.0)),
                               np.cos([0, 1]), rtol=1e-6)
    assert [a.shape for a in jax.jit(p.bind)(jnp.ones(3))] == [(3,), (3,)]


def test_what_a_missing_rule_says():
    p = Primitive("bare")
    with pytest.raises(NotImplementedError, match="Evaluation rule for 'bare' not implemented"):
        p.bind(1.0)
    p.def_impl(lambda x: x)
    for run, words in ((jax.jit(p.bind), "Abstract evaluation for"),
                       (jax.grad(p.bind), "Differentiation rule for")):
        with pytest.raises(NotImplementedError, match=f"{words} 'bare' not implemented"):
            run(1.0)
    with pytest.raises(NotImplementedError, match="Batching rule for 'bare' not implemented"):
        jax.vmap(p.bind)(jnp.ones(2))
    ad.primitive_jvps[p] = lambda xs, ts: (p.bind(*xs), Primitive.bind(p, *ts))
    with pytest.raises(NotImplementedError, match="Transpose rule .* for 'bare' not implemented"):
        jax.grad(p.bind)(1.0)
    with pytest.raises(TypeError, match="Error interpreting argument to bare as a JAX value"):
        p.bind("one")


def test_primitives_of_lax_are_its_functions():
    assert float(lax.mul_p.bind(2.0, 3.0)) == 6.0 and str(lax.sin_p) == "sin"
    assert lax.sin_p is lax.sin_p and len({lax.sin_p: 1, lax.cos_p: 2}) == 2
    np.testing.assert_allclose(jax.grad(lambda x: lax.exp_p.bind(x, accuracy=None))(1.0),
                               np.e, rtol=1e-6)
