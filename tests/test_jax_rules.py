"""Rules, leaks, trees and auxiliary values under JAX's names (F54)."""
from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import adjoint as ad
import adjoint.jax as jax
import adjoint.jax.numpy as jnp
from adjoint.jax import tree_util as tu
from adjoint.jax.custom_derivatives import SymbolicZero, zero_from_primal
from adjoint.jax.errors import UnexpectedTracerError

X = jnp.array([0.3, 0.5, 0.7])


def ruled() -> Any:
    """sin(x) y with ten times its slope in x, which keeps what it makes on the way."""
    @jax.custom_vjp
    def f(x: Any, y: Any) -> Any:
        return jnp.sin(x) * y

    def fwd(x: Any, y: Any) -> Any:
        return f(x, y), (jnp.cos(x), jnp.sin(x), y)

    def bwd(kept: Any, g: Any) -> Any:
        c, s, y = kept
        return c * g * y * 10, s * g
    f.defvjp(fwd, bwd)
    return f


class TestRules:
    """Functions with rules of their own under every transform."""

    def test_second_order_goes_through_what_a_rule_kept(self) -> None:
        f, g = ruled(), jax.grad
        assert float(g(g(f))(1.0, 2.0)) == pytest.approx(-20 * np.sin(1.0), rel=1e-5)
        assert float(g(g(g(f)))(1.0, 2.0)) == pytest.approx(-20 * np.cos(1.0), rel=1e-5)
        np.testing.assert_allclose(jax.vmap(g(g(f)))(X, X), -10 * np.sin(X) * X, rtol=1e-5)
        np.testing.assert_allclose(jax.jit(jax.hessian(lambda v: f(v, X).sum()))(X),
                                   np.diag(-10 * np.sin(X) * X), rtol=1e-5, atol=1e-7)

    def test_second_order_on_tensors(self) -> None:
        @ad.func.custom_vjp
        def f(x: Any) -> Any:
            return ad.sin(x)
        f.defvjp(lambda x: (ad.sin(x), ad.cos(x)), lambda c, g: (g * c * 10,))
        x = ad.tensor([1.0, 2.0], dtype=ad.float64, requires_grad=True)
        slope, = ad.autograd.grad(f(x).sum(), x, create_graph=True)
        again, = ad.autograd.grad(slope.sum(), x)
        np.testing.assert_allclose(again.numpy(), -10 * np.sin(x.detach().numpy()), rtol=1e-12)

    def test_a_jacobian_of_a_rule_is_an_array(self) -> None:
        @jax.custom_vjp
        def f(x: Any) -> Any:
            return x * x
        f.defvjp(lambda x: (x * x, x), lambda x, g: (2 * x * g,))
        found = jax.jacrev(f)(X)
        np.testing.assert_allclose(np.asarray(found), np.diag(2 * np.asarray(X)), rtol=1e-6)
        assert float(jax.jacrev(jax.jacrev(f))(X).sum()) == pytest.approx(6.0)
        np.testing.assert_allclose(np.asarray(jax.jacrev(ruled())(X, X)),
                                   np.diag(10 * np.cos(X) * X), rtol=1e-5)

    def test_symbolic_zeros_of_a_pull(self) -> None:
        seen: list[Any] = []

        @jax.custom_vjp
        def f(x: Any, y: Any) -> Any:
            return x * y, x + y

        def fwd(x: Any, y: Any) -> Any:
            seen.append((x.perturbed, y.perturbed))
            return (x.value * y.value, x.value + y.value), (x.value, y.value)

        def bwd(kept: Any, g: Any) -> Any:
            seen.append([type(c) is SymbolicZero for c in g])
            assert g[1].shape == () and g[1].dtype == np.float32
            return g[0] * kept[1], SymbolicZero(g[1].aval)
        f.defvjp(fwd, bwd, symbolic_zeros=True)
        assert float(jax.grad(lambda x: f(x, 3.0)[0])(2.0)) == 3.0
        assert seen == [(True, False), [False, True]]

    def test_symbolic_zeros_of_a_push(self) -> None:
        seen: list[Any] = []

        @jax.custom_jvp
        def f(x: Any, y: Any) -> Any:
            return x * y

        def rule(primals: Any, tangents: Any) -> Any:
            seen.append([type(t) is SymbolicZero for t in tangents])
            x, y = primals
            return x * y, tangents[0] * y * 10
        f.defjvp(rule, symbolic_zeros=True)
        assert float(jax.grad(f)(2.0, 3.0)) == 30.0
        assert float(jax.jvp(lambda x: f(x, 3.0), (2.0,), (1.0,))[1]) == 30.0
        assert seen == [[False, True]] * 2
        assert type(zero_from_primal(X, symbolic_zeros=True)) is SymbolicZero
        assert zero_from_primal(X).tolist() == [0.0] * 3

    @pytest.mark.parametrize("part", ["fwd", "bwd", "jvp"])
    def test_a_rule_that_closes_over_what_moves_is_refused(self, part: str) -> None:
        def outer(y: Any) -> Any:
            if part == "jvp":
                g = jax.custom_jvp(lambda x: x * 2)
                g.defjvp(lambda p, t: (p[0] * 2, t[0] * y))
                return g(y)
            f = jax.custom_vjp(lambda x: x * 2)
            if part == "fwd":
                f.defvjp(lambda x: (x * 2, y), lambda kept, g: (g * kept,))
            else:
                f.defvjp(lambda x: (x * 2, None), lambda _, g: (g * y,))
            return f(y)
        with pytest.raises(UnexpectedTracerError, match="closes over 'y'"):
            jax.grad(outer)(1.0)


@pytest.mark.parametrize("run", [
    lambda f: jax.grad(f)(X), lambda f: jax.vjp(f, X), lambda f: jax.jvp(f, (X,), (X,)),
    lambda f: jax.vmap(f)(jnp.ones((2, 3))), lambda f: jax.jacrev(f)(X), lambda f: jax.jit(f)(X),
    lambda f: jax.value_and_grad(f)(X)])
def test_a_value_that_outlives_its_transform_is_an_error(run: Any) -> None:
    kept: list[Any] = []

    def f(x: Any) -> Any:
        kept.append(x * 2)
        return x.sum()
    run(f)
    for use in (jnp.sin, lambda x: x + 1, lambda x: jax.jit(jnp.cos)(x)):
        with pytest.raises(UnexpectedTracerError, match="escape the transform"):
            use(kept[0])


def test_auxiliary_values_come_back_as_they_are() -> None:
    def f(x: Any) -> Any:
        return x ** 2, {"n": 2, "word": "a", "flag": True, "x": x * 2, "np": np.ones(2)}
    for aux in (jax.grad(f, has_aux=True)(3.0)[1], jax.value_and_grad(f, has_aux=True)(3.0)[0][1],
                jax.vjp(f, 3.0, has_aux=True)[2], jax.jvp(f, (3.0,), (1.0,), has_aux=True)[2],
                jax.jacrev(f, has_aux=True)(3.0)[1]):
        assert (aux["n"], aux["word"], aux["flag"]) == (2, "a", True)
        assert type(aux["n"]) is int and type(aux["np"]) is np.ndarray
        assert isinstance(aux["x"], jax.Array) and float(aux["x"]) == 6.0


def test_jacobians_of_weak_types_are_weak() -> None:
    def square(x: Any) -> Any:
        return x ** 2
    for f in (jax.jacrev(square), jax.jacfwd(square), jax.hessian(square)):
        assert f(3.0).weak_type and not f(jnp.float32(3.0)).weak_type


@pytest.mark.parametrize("f", [jnp.sin, jnp.exp, lambda x: x * x, jnp.abs, jnp.sort,
                               lambda x: jnp.where(x > 0, x, 0.0)])
def test_the_transpose_of_what_is_not_linear_is_refused(f: Any) -> None:
    with pytest.raises(NotImplementedError, match="linear_transpose takes a linear function"):
        jax.linear_transpose(f, X)
    assert jax.linear_transpose(lambda x: 2 * x[::-1], X)(X)[0].tolist() == (2 * X[::-1]).tolist()
    assert jax.linear_transpose(lambda x: x + 1.0, 1.0)(2.0)[0] == 2.0


class TestTrees:
    """`jax.tree_util`, of what JAX's own modules and Flax use."""

    def test_registry(self) -> None:
        leaves, treedef = tu.default_registry.flatten((1, [2]))
        assert leaves == [1, 2] and treedef == tu.tree_structure((1, [2]))
        assert tu.default_registry.flatten_one_level({"b": 1, "a": 2}) == ((2, 1), ("a", "b"))
        assert tu.default_registry.flatten_one_level(3) is None
        assert list in tu._registry and int not in tu._registry
        entry = tu._registry[tuple]
        assert entry.from_iter(None, (1, 2)) == (1, 2) and list(entry.to_iter((1, 2))[0]) == [1, 2]

    def test_walk(self) -> None:
        t = tu.tree_structure((1, {"a": 2}))
        assert t.walk(lambda xs, meta: (xs, meta), lambda x: x + 1, [1, 2]) == (
            (2, ((3,), ["a"])), None)
        assert tu.tree_structure({"a": 1}).node_data() == (dict, ["a"])

    def test_prefixes(self) -> None:
        for prefix, full, words in (
                ((1, 2), (1, 2, 3), "different lengths of tuple at key path\n    axes\n"),
                ((1, 2), [1, 2], "different types at key path\n    axes\n"),
                (((1, 2), None), ((3, 3), 4), "different types at key path\n    axes[1]\n"),
                ({"a": 1}, {"b": 1}, "different pytree metadata at key path\n    axes\n")):
            error, = tu.prefix_errors(prefix, full)
            assert words in str(error("axes"))
        assert tu.prefix_errors((1, 2), ((3, 3), 4)) == []
        assert tu.broadcast_prefix((1, 2), ((0, 0), [0])) == [1, 1, 2]
        from adjoint.jax.api_util import flatten_axes
        assert flatten_axes("x", tu.tree_structure((1, (2, 3))), (0, None)) == [0, None, None]
        with pytest.raises(ValueError, match="x specification must be a tree prefix"):
            flatten_axes("x", tu.tree_structure((1, (2, 3))), (0,))
        with pytest.raises(TypeError, match="Mismatch"):
            tu.tree_transpose(tu.tree_structure([0]), tu.tree_structure((0,)), [(1, 2)])

    def test_fields_of_dataclasses(self) -> None:
        @dataclasses.dataclass
        class Point:
            x: Any
            n: int
        with pytest.raises(ValueError, match=r"Missing fields: \{'n'\}"):
            tu.register_dataclass(Point, data_fields=["x"], meta_fields=[])
        with pytest.raises(ValueError, match=r"Unexpected fields: \{'z'\}"):
            tu.register_dataclass(Point, data_fields=["x", "z"], meta_fields=["n"])


def test_structs_flags_and_devices() -> None:
    s = jax.ShapeDtypeStruct((3, 2), "int8")
    assert (len(s), bool(s), s.update(shape=(4,)).shape, s.update(dtype="int32").dtype) == (
        3, True, (4,), np.int32)
    with pytest.raises(ValueError, match="dtype must be specified"):
        jax.ShapeDtypeStruct((3,), None)
    assert (str(jax.typeof(X)), repr(jax.typeof(X)), str(jax.typeof(1.0))) == (
        "float32[3]", "ShapedArray(float32[3])", "~float32[]")
    assert str(jax.devices()[0]) == "cpu:0"
    mesh = jax.sharding.get_abstract_mesh()
    assert (mesh.empty, mesh.size, mesh.shape_tuple, repr(mesh)) == (
        True, 0, (), "AbstractMesh((), axis_types=())")
    assert jax.sharding.AbstractMesh((2,), "x").shape == {"x": 2}
    for flag in ("jax_numpy_rank_promotion", "jax_numpy_dtype_promotion"):
        with pytest.raises(ValueError, match="new enum value must be in"):
            jax.config.update(flag, "other")


def test_arrays_of_keys_by_their_dtype() -> None:
    for impl, words in (("threefry2x32", 2), ("rbg", 4)):
        key = jax.random.key(0, impl=impl)
        for make, word in ((jnp.zeros, 0), (jnp.ones, 1), (jnp.empty, 0)):
            found = make((2,), key.dtype)
            assert (found.dtype, found.shape) == (key.dtype, (2,))
            assert jax.random.key_data(found).tolist() == [[word] * words] * 2


def test_sizes_and_starts_that_do_not_fit() -> None:
    with pytest.raises(TypeError, match=r"every element be nonnegative, got \(-1,\)"):
        jax.lax.iota(jnp.float32, -1)
    with pytest.raises(ValueError, match=r"number of operand dimensions \(2 vs \(3,\)\)"):
        jax.lax.dynamic_slice(X, (0, 0), (1,))
