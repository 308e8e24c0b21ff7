"""Rules for whole functions: custom_vjp, custom_jvp, straight_through (F54)."""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint import func as af
from adjoint.base.errors import StructureError

V = np.array([0.4, -1.3, 2.1])
T = np.array([1.0, 0.5, -2.0])
M = np.stack([V, T, V + T, V * T])


@af.custom_vjp
def by_pull(x: Any) -> Any:
    """x**3, with a rule that is 10 times too large: seen wherever the rule is used."""
    return x ** 3


by_pull.defvjp(lambda x: (x ** 3, x), lambda x, ct: (30 * x ** 2 * ct,))


@af.custom_jvp
def by_push(x: Any) -> Any:
    """The same, by a forward rule."""
    return x ** 3


by_push.defjvp(lambda p, t: (by_push(*p), 30 * p[0] ** 2 * t[0]))
BOTH = pytest.mark.parametrize("h", [by_pull, by_push], ids=["vjp", "jvp"])


def near(got: Any, want: Any) -> None:
    """Equal in shape and numbers."""
    want = np.asarray(want)
    assert tuple(got.shape) == want.shape
    np.testing.assert_allclose(got.detach().numpy(), want, rtol=1e-9, atol=1e-12)


def x0() -> Any:
    return ad.tensor(V)


@BOTH
class TestEveryStack:
    """The rule, never the function's own derivative, in every stack of transforms."""

    def test_value(self, h: Any) -> None:
        near(h(x0()), V ** 3)

    def test_grad_and_backward(self, h: Any) -> None:
        near(af.grad(lambda x: h(x).sum())(x0()), 30 * V ** 2)
        x = x0().requires_grad_()
        h(x).sum().backward()
        near(x.grad, 30 * V ** 2)

    def test_jvp(self, h: Any) -> None:
        near(af.jvp(h, (x0(),), (ad.tensor(T),))[1], 30 * V ** 2 * T)

    def test_vmap_of_grad(self, h: Any) -> None:
        near(af.vmap(af.grad(lambda x: h(x).sum()))(ad.tensor(M)), 30 * M ** 2)

    def test_grad_of_vmap(self, h: Any) -> None:
        near(af.grad(lambda x: af.vmap(h)(x).sum())(ad.tensor(M)), 30 * M ** 2)

    def test_jvp_of_vmap(self, h: Any) -> None:
        near(af.jvp(af.vmap(h), (ad.tensor(M),), (ad.tensor(M),))[1], 30 * M ** 3)

    def test_vmap_of_jvp(self, h: Any) -> None:
        near(af.vmap(lambda x: af.jvp(h, (x,), (x,))[1])(ad.tensor(M)), 30 * M ** 3)

    def test_vmap_of_jvp_shared_primal(self, h: Any) -> None:
        near(af.vmap(lambda t: af.jvp(h, (x0(),), (t,))[1])(ad.tensor(M)), 30 * V ** 2 * M)

    def test_jvp_of_grad(self, h: Any) -> None:
        value, push = af.jvp(af.grad(lambda x: h(x).sum()), (x0(),), (ad.tensor(T),))
        near(value, 30 * V ** 2)
        near(push, 60 * V * T)

    def test_grad_of_jvp(self, h: Any) -> None:
        near(af.grad(lambda x: af.jvp(h, (x,), (ad.tensor(T),))[1].sum())(x0()), 60 * V * T)
        near(af.grad(lambda t: af.jvp(h, (x0(),), (t,))[1].sum())(ad.tensor(T)), 30 * V ** 2)

    def test_primal_of_jvp_under_grad(self, h: Any) -> None:
        near(af.grad(lambda x: af.jvp(h, (x,), (ad.tensor(T),))[0].sum())(x0()), 30 * V ** 2)

    def test_grad_of_grad(self, h: Any) -> None:
        near(af.grad(lambda x: af.grad(lambda y: h(y).sum())(x).sum())(x0()), 60 * V)

    def test_jvp_of_jvp(self, h: Any) -> None:
        t = ad.tensor(T)
        near(af.jvp(lambda x: af.jvp(h, (x,), (t,))[1], (x0(),), (t,))[1], 60 * V * T * T)

    def test_jacobians(self, h: Any) -> None:
        near(af.jacrev(h)(x0()), np.diag(30 * V ** 2))
        near(af.jacfwd(h)(x0()), np.diag(30 * V ** 2))
        near(af.hessian(lambda x: h(x).sum())(x0()), np.diag(60 * V))

    def test_vmap_of_vmap_of_grad(self, h: Any) -> None:
        b = np.stack([M, M + 1])
        near(af.vmap(af.vmap(af.grad(lambda x: h(x).sum())))(ad.tensor(b)), 30 * b ** 2)


class TestArguments:
    """Trees, constants, several outputs, mistakes."""

    def test_nondiff_argnums(self) -> None:
        scale: Callable[..., Any] = af.custom_vjp(lambda n, x: x * n, nondiff_argnums=(0,))
        scale.defvjp(lambda n, x: (x * n, None), lambda n, r, ct: (ct * n * 7,))  # type: ignore[attr-defined]
        near(af.grad(lambda x: scale(3, x).sum())(x0()), np.full(3, 21.0))

    def test_trees(self) -> None:
        @af.custom_vjp
        def h(d: Any, b: Any) -> Any:
            return {"p": d["a"] * b, "q": d["a"].sum()}
        h.defvjp(lambda d, b: (h(d, b), (d, b)), lambda r, ct: (
            {"a": ct["p"] * r[1] + ct["q"]}, None))
        got = af.grad(lambda d, b: (h(d, b)["p"].sum() + 2 * h(d, b)["q"]), argnums=(0, 1))(
            {"a": x0()}, ad.tensor(T))
        near(got[0]["a"], T + 2)
        near(got[1], np.zeros(3))

    def test_defjvps(self) -> None:
        mul = af.custom_jvp(lambda x, y: x * y)
        mul.defjvps(lambda t, out, x, y: t * y, None)
        got = af.grad(lambda x, y: mul(x, y).sum(), argnums=(0, 1))(x0(), ad.tensor(T))
        near(got[0], T)
        near(got[1], np.zeros(3))

    def test_vmap_with_shared(self) -> None:
        @af.custom_vjp
        def h(w: Any, x: Any) -> Any:
            return (w * x).sum()
        h.defvjp(lambda w, x: (h(w, x), (w, x)), lambda r, ct: (ct * r[1] * 5, ct * r[0]))
        w = ad.tensor(V)
        got = af.grad(lambda u: af.vmap(h, in_dims=(None, 0))(u, ad.tensor(M)).sum())(w)
        near(got, 5 * M.sum(0))

    def test_mistakes(self) -> None:
        bare = af.custom_vjp(lambda x: x)
        with pytest.raises(RuntimeError, match="defvjp"):
            bare(x0())
        with pytest.raises(RuntimeError, match="defjvp"):
            af.custom_jvp(lambda x: x)(x0())
        bare.defvjp(lambda x: (x * 1, None), lambda r, ct: ct)
        with pytest.raises(ValueError, match="tuple"):
            af.grad(lambda x: bare(x).sum())(x0())

    def test_closed_over_batch_value(self) -> None:
        """Silently pairing every example with every other one is refused."""
        def h(x: Any) -> Any:
            inner = af.custom_jvp(lambda y: y * x)
            inner.defjvp(lambda p, t: (inner(*p), t[0]))
            return inner(x)
        with pytest.raises(RuntimeError, match="pass it as an argument"):
            af.grad(lambda m: af.vmap(h)(m).sum())(ad.tensor(M))


class TestStraightThrough:
    """Zero derivatives replaced."""

    def test_identity(self) -> None:
        ste = af.straight_through(ad.round)
        near(ste(x0()), np.round(V))
        near(af.grad(lambda x: (ste(x) ** 2).sum())(x0()), 2 * np.round(V))
        near(af.jvp(ste, (x0(),), (ad.tensor(T),))[1], T)
        near(af.grad(lambda x: af.vmap(ste)(x).sum())(ad.tensor(M)), np.ones_like(M))

    def test_surrogate(self) -> None:
        ste = af.straight_through(ad.sign, ad.tanh)
        near(af.grad(lambda x: ste(x).sum())(x0()), 1 - np.tanh(V) ** 2)
        near(af.jacfwd(ste)(x0()), np.diag(1 - np.tanh(V) ** 2))

    def test_shapes(self) -> None:
        with pytest.raises(ValueError, match="shape"):
            af.straight_through(lambda x: x.sum())(x0())


def test_rules_of_trees_with_none() -> None:
    """F54: a tree that has None in it, in the order of its own keys, with None where no derivative
    is; a tree of another structure is refused."""
    def scaled(tree: Any, x: Any) -> Any:
        return {"b": tree["b"] * x, "none": None, "a": [tree["a"][0] * x, None]}
    tree = {"a": [ad.tensor([1.0, 2.0]), None], "b": ad.tensor([3.0, 4.0]), "none": None}
    f, g = ad.func.custom_vjp(scaled), ad.func.custom_jvp(scaled)
    f.defvjp(lambda t, x: (scaled(t, x), x), lambda x, ct: (
        {"b": ct["b"] * x * 2, "none": None, "a": [ct["a"][0] * x, None]}, None))
    g.defjvp(lambda p, t: (g(*p), {"none": None, "a": [t[0]["a"][0] * p[1] * 3, None], "b": None}))

    def total(h: Any) -> Any:
        return lambda t: sum(v.sum() for v in ad.func.tree_leaves(h(t, ad.tensor(5.0))))
    found = ad.func.grad(total(f))(tree)
    assert found["none"] is None and found["a"][1] is None
    assert found["a"][0].tolist() == [5.0, 5.0] and found["b"].tolist() == [10.0, 10.0]
    found = ad.func.grad(total(g))(tree)
    assert found["a"][0].tolist() == [15.0, 15.0] and found["b"].tolist() == [0.0, 0.0]
    f.defvjp(lambda t, x: (scaled(t, x), x), lambda x, ct: ({"b": ct["b"], "c": ct["a"]}, x))
    with pytest.raises(StructureError, match="a cotangent has 3 leaves, its argument 2"):
        ad.func.grad(total(f))(tree)


def test_defaultdict_is_a_tree() -> None:
    """F54: as in PyTorch and JAX; what comes back makes the same defaults."""
    point = defaultdict(list, x=[ad.tensor(2.0)], y=[ad.tensor(3.0), None])
    found = ad.func.grad(lambda d: d["x"][0] ** 2 * d["y"][0])(point)
    assert type(found) is defaultdict and found.default_factory is list
    assert [v.item() for v in ad.func.tree_leaves(found)] == [12.0, 4.0]
    both = ad.func.vmap(lambda d: d["x"] * 2)(defaultdict(int, x=ad.ones(2)))
    assert both.tolist() == [2.0, 2.0]
