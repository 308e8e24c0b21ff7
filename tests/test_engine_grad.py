"""autograd.grad in all its arguments, and what it must not touch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers_engine import const, exact, leaf, near, only_ours, randoms, values

import adjoint as ad

grad = ad.autograd.grad


class TestBasics:
    def test_returns_new_tensors_and_leaves_grad_alone(self) -> None:
        """F15: .grad is None after grad()."""
        x = leaf([1.0, 2.0])
        (g,) = grad((x * x).sum(), x)
        exact(g, [2.0, 4.0])
        assert x.grad is None
        assert not g.requires_grad

    def test_existing_grad_is_untouched(self) -> None:
        x = leaf([1.0])
        (x * 5.0).sum().backward()
        grad((x * x).sum(), x)
        exact(x.grad, [5.0])

    def test_returns_a_tuple_in_the_order_of_inputs(self) -> None:
        x, w = leaf([2.0]), leaf([3.0])
        got = grad((x * w).sum(), (w, x))
        assert isinstance(got, tuple)
        exact(got[0], [2.0])
        exact(got[1], [3.0])

    def test_same_input_twice(self) -> None:
        x = leaf([1.0, 2.0])
        first, second = grad((x * x).sum(), [x, x])
        exact(first, [2.0, 4.0])
        exact(second, [2.0, 4.0])

    def test_intermediate_input(self) -> None:
        x = leaf([1.0, 2.0])
        y = x * 2.0
        gy, gx = grad((y * y).sum(), [y, x])
        exact(gy, [4.0, 8.0])
        exact(gx, [8.0, 16.0])

    def test_intermediate_input_alone_stops_there(self) -> None:
        x = leaf([1.0, 2.0])
        y = x * 2.0
        y.grad_fn.register_hook(lambda gi, go: pytest.fail("the node below the input was run"))
        (gy,) = grad((y * y).sum(), y)
        exact(gy, [4.0, 8.0])

    def test_output_is_the_input(self) -> None:
        x = leaf([[3.0]])
        (g,) = grad(x, x)
        exact(g, [[1.0]])
        y = leaf(2.0) * 3.0
        (g,) = grad(y, y)
        exact(g, 1.0)

    def test_one_root_is_upstream_of_the_input(self) -> None:
        x = leaf(2.0)
        y = x * x
        z = y * 3.0
        (g,) = grad([z, y], y)
        exact(g, 4.0)

    def test_several_outputs_are_summed(self) -> None:
        x = leaf([1.0, 2.0])
        (g,) = grad([(x * x).sum(), (x * 3.0).sum()], x)
        exact(g, [5.0, 7.0])

    def test_multi_output_op_with_one_output_used(self) -> None:
        x = leaf([3.0, 1.0, 2.0])
        ordered, _ = x.sort()
        (g,) = grad((ordered * const([1.0, 10.0, 100.0])).sum(), x)
        exact(g, [100.0, 1.0, 10.0])


class TestGradOutputs:
    def test_vjp(self) -> None:
        """F12: grad_outputs=v gives v^T J without J."""
        x = leaf(randoms(3))
        a = randoms(4, 3, seed=1)
        v = randoms(4, seed=2)
        (g,) = grad(const(a) @ x, x, grad_outputs=const(v))
        near(g, v @ a)

    def test_list_with_none_for_a_scalar(self) -> None:
        x = leaf([1.0, 2.0])
        (g,) = grad([x * x, x.sum()], x, [const([1.0, 1.0]), None])
        exact(g, [3.0, 5.0])

    def test_non_scalar_without_refused(self) -> None:
        x = leaf([1.0, 2.0])
        with pytest.raises(RuntimeError, match="^grad can be implicitly created only for scalar"):
            grad(x * 2.0, x)

    def test_shape_mismatch_refused(self) -> None:
        x = leaf([1.0, 2.0])
        with pytest.raises(RuntimeError, match="^Mismatch in shape: grad_output"):
            grad(x * 2.0, x, const([1.0, 2.0, 3.0]))

    def test_complex_for_real_refused(self) -> None:
        x = leaf([1.0, 2.0])
        with pytest.raises(RuntimeError, match="same dtype"):
            grad(x * 2.0, x, ad.ones(2, dtype=ad.complex128))

    def test_broadcastable_is_not_enough(self) -> None:
        x = leaf([[1.0, 2.0], [3.0, 4.0]])
        with pytest.raises(RuntimeError, match="Mismatch in shape"):
            grad(x * 2.0, x, const(1.0))


class TestUnused:
    def test_refused_by_default(self) -> None:
        x, w = leaf([1.0]), leaf([1.0])
        with pytest.raises(RuntimeError, match="appears to not have been used in the graph"):
            grad((x * 2.0).sum(), [x, w])

    @only_ours
    def test_refusal_names_index_shape_and_fix(self) -> None:
        x, w = leaf([1.0]), leaf(np.ones((2, 7)))
        with pytest.raises(RuntimeError) as caught:
            grad((x * 2.0).sum(), [x, w])
        text = str(caught.value)
        assert "index 1" in text or "input 1" in text
        assert "2, 7" in text
        assert "allow_unused=True" in text

    def test_allow_unused_gives_none(self) -> None:
        x, w = leaf([1.0]), leaf([1.0])
        gx, gw = grad((x * 2.0).sum(), [x, w], allow_unused=True)
        exact(gx, [2.0])
        assert gw is None

    def test_materialize_gives_zeros(self) -> None:
        x, w = leaf([1.0]), ad.ones(2, 3, dtype=ad.float32, requires_grad=True)
        _, gw = grad((x * 2.0).sum(), [x, w], materialize_grads=True)
        exact(gw, np.zeros((2, 3)))
        assert gw.dtype == ad.float32

    def test_materialize_contradicts_allow_unused_false(self) -> None:
        x = leaf([1.0])
        with pytest.raises(ValueError, match="allow_unused"):
            grad((x * 2.0).sum(), x, allow_unused=False, materialize_grads=True)

    def test_input_without_requires_grad_refused(self) -> None:
        x = leaf([1.0])
        with pytest.raises(RuntimeError, match="does not require grad"):
            grad((x * 2.0).sum(), const([1.0]))

    def test_output_without_graph_refused(self) -> None:
        x = leaf([1.0])
        with pytest.raises(RuntimeError, match="does not require grad"):
            grad(const(1.0), x)

    def test_empty_inputs_refused(self) -> None:
        with pytest.raises(RuntimeError, match="cannot be empty"):
            grad((leaf([1.0]) * 2.0).sum(), [])

    def test_detached_path_is_unused(self) -> None:
        x = leaf([1.0])
        assert grad((x.detach() * leaf([1.0])).sum(), x, allow_unused=True) == (None,)

    def test_integer_path_is_unused(self) -> None:
        """argmax is not differentiable: its output carries no graph."""
        x = leaf([1.0, 3.0, 2.0])
        place = x.argmax()
        assert not place.requires_grad and place.grad_fn is None


class TestBatchedGrads:
    def test_identity_gives_the_jacobian(self) -> None:
        """F13: rows of v^T J for all v at once."""
        x = leaf(randoms(3))
        a = randoms(4, 3, seed=1)
        (jacobian,) = grad(const(a) @ x, x, ad.eye(4, dtype=ad.float64), is_grads_batched=True)
        near(jacobian, a)

    def test_equals_the_loop(self) -> None:
        x, w = leaf(randoms(2, 3)), leaf(randoms(3, 2, seed=1))
        y = (x @ w).tanh()
        vs = const(randoms(5, 2, 2, seed=2))
        together = grad(y, [x, w], vs, is_grads_batched=True, retain_graph=True)
        for k in range(5):
            single = grad(y, [x, w], vs[k], retain_graph=True)
            near(together[0][k], values(single[0]))
            near(together[1][k], values(single[1]))

    def test_nonlinear_chain(self) -> None:
        x = leaf(randoms(4))
        y = (x.exp() * x.sin()).cumsum(0)
        (jacobian,) = grad(
            y, x, ad.eye(4, dtype=ad.float64), is_grads_batched=True, retain_graph=True
        )
        for k in range(4):
            (row,) = grad(y[k], x, retain_graph=True)
            near(jacobian[k], values(row))

    def test_batch_of_wrong_shape_refused(self) -> None:
        x = leaf([1.0, 2.0, 3.0])
        with pytest.raises(RuntimeError, match="is_grads_batched"):
            grad(x * 2.0, x, const(randoms(2, 4)), is_grads_batched=True)


class TestHigherOrder:
    def test_third_order_of_a_polynomial(self) -> None:
        """F16: x**4 -> 4x**3 -> 12x**2 -> 24x -> 24."""
        x = leaf(1.5)
        y = x**4
        expected = [4 * 1.5**3, 12 * 1.5**2, 24 * 1.5, 24.0]
        for value in expected:
            (y,) = grad(y, x, create_graph=True)
            near(y, value)

    @pytest.mark.parametrize("name", ["exp", "sin", "tanh", "sigmoid", "log", "sqrt", "reciprocal"])
    def test_third_order_against_differences_of_the_second(self, name: str) -> None:
        """F16: each order equals the central difference of the order below."""

        def order(value: float, n: int) -> float:
            x = leaf(value)
            y = getattr(x, name)()
            for _ in range(n):
                (y,) = grad(y, x, create_graph=True)
            return y.item()

        h = 1e-5
        for n in (1, 2, 3):
            numeric = (order(0.7 + h, n - 1) - order(0.7 - h, n - 1)) / (2 * h)
            assert order(0.7, n) == pytest.approx(numeric, rel=1e-7)

    def test_mixed_partials_are_symmetric(self) -> None:
        x, y = leaf(0.3), leaf(0.7)
        f = (x * y).sin() * x.exp()
        gx, gy = grad(f, [x, y], create_graph=True)
        (gxy,) = grad(gx, y, retain_graph=True)
        (gyx,) = grad(gy, x)
        near(gxy, gyx.item())

    def test_hessian_vector_product(self) -> None:
        """F14: H v by double backward equals the dense Hessian times v."""
        a = randoms(4, 4)
        x = leaf(randoms(4, seed=1))
        v = const(randoms(4, seed=2))

        def f(x):  # type: ignore[no-untyped-def]
            return ((const(a) @ x).tanh() ** 2).sum()

        (g,) = grad(f(x), x, create_graph=True)
        rows = [grad(g[k], x, retain_graph=True)[0] for k in range(4)]
        hessian = np.stack([values(r) for r in rows])
        np.testing.assert_allclose(hessian, hessian.T, rtol=1e-12, atol=1e-12)
        (hv,) = grad(g, x, grad_outputs=v)
        near(hv, hessian @ values(v))

    def test_hvp_of_a_quadratic_is_its_matrix(self) -> None:
        a = randoms(3, 3)
        x = leaf(randoms(3, seed=1))
        v = const(randoms(3, seed=2))
        (g,) = grad(x @ (const(a) @ x), x, create_graph=True)
        (hv,) = grad(g, x, v)
        near(hv, (a + a.T) @ values(v))

    def test_matmul_softmax_network_second_order(self) -> None:
        x = const(randoms(5, 3))
        w = leaf(randoms(3, 4, seed=1))

        def loss(w):  # type: ignore[no-untyped-def]
            return (ad.softmax(x @ w, dim=1) ** 2).sum()

        (g,) = grad(loss(w), w, create_graph=True)
        (gg,) = grad((g * g).sum(), w)
        h = 1e-6
        base = values(w)
        for place in [(0, 0), (1, 2), (2, 3)]:
            sides = []
            for sign in (1, -1):
                moved = base.copy()
                moved[place] += sign * h
                m = leaf(moved)
                sides.append(values(grad(loss(m), m)[0]))
            numeric = ((sides[0] ** 2).sum() - (sides[1] ** 2).sum()) / (2 * h)
            assert values(gg)[place] == pytest.approx(numeric, rel=1e-6, abs=1e-9)

    def test_create_graph_retains_by_default(self) -> None:
        """F16: retain_graph defaults to create_graph."""
        x = leaf(2.0)
        y = x**3
        grad(y, x, create_graph=True)
        grad(y, x)
        with pytest.raises(RuntimeError, match="second time"):
            grad(y, x)

    def test_backward_create_graph_makes_grad_differentiable(self) -> None:
        x = leaf(2.0)
        (x**3).backward(create_graph=True)
        assert x.grad.requires_grad
        (second,) = grad(x.grad, x)
        near(second, 12.0)
        x.grad = None

    def test_without_create_graph_the_gradient_is_a_constant(self) -> None:
        x = leaf(2.0)
        (g,) = grad(x**3, x)
        assert not g.requires_grad and g.grad_fn is None

    def test_gradient_through_one_step_of_gradient_descent(self) -> None:
        """F16: MAML in one dimension. w' = w - lr * 2(w - t); d (w' - t)**2 / dw = 2(w' - t)(1 - 2
        lr).
        """
        w, lr, t = leaf(3.0), 0.1, 1.0
        (g,) = grad((w - t) ** 2, w, create_graph=True)
        stepped = w - lr * g
        (outer,) = grad((stepped - t) ** 2, w)
        near(outer, 2 * (3.0 - 0.1 * 4.0 - 1.0) * (1 - 0.2))

    def test_create_graph_with_differentiable_cotangent(self) -> None:
        """d/dv of v^T J is J: the double-vjp trick that gives forward mode from reverse mode."""
        x = leaf(randoms(3))
        v = ad.zeros(3, dtype=ad.float64, requires_grad=True)
        y = x.sin()
        (vj,) = grad(y, x, v, create_graph=True)
        t = randoms(3, seed=4)
        (jt,) = grad(vj, v, const(t))
        near(jt, np.cos(values(x)) * t)

    def test_gradient_of_a_gradient_norm(self) -> None:
        x = leaf(randoms(4))
        (g,) = grad((x**3).sum(), x, create_graph=True)
        g.norm().backward()
        values_x = values(x)
        g_np = 3 * values_x**2
        near(x.grad, g_np * 6 * values_x / np.linalg.norm(g_np))


def test_the_graph_of_a_gradient_has_no_idle_views() -> None:
    """A bias gets the sum of its cotangent in one node, a total is spread in one node."""
    x = ad.ones(3, 2, requires_grad=True)
    b = ad.ones(2, requires_grad=True)
    gx, gb = ad.autograd.grad(((x + b) ** 2).sum(), (x, b), create_graph=True)
    assert gb.grad_fn.name() == "SumBackward1"
    assert gb.grad_fn.next_functions[0][0] is gx.grad_fn
    c = ad.tensor(2.0, requires_grad=True)
    (g,) = ad.autograd.grad(x.sum() * c, x, create_graph=True)
    assert g.grad_fn.name() == "ExpandBackward0"
    assert g.grad_fn.next_functions[0][0].name() == "MulBackward0"


def test_second_order_asks_no_node_about_hooks_that_are_not_there(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a graph is built and nobody looks on, nodes run without the questions of `visit`,
    with the gradients that `visit` gives; a hook brings its own node back to it."""
    from adjoint.autograd.engine import Backward
    visited: list[str] = []
    full = Backward.visit

    def visit(walk: Backward, node: Any) -> None:
        if walk.create:
            visited.append(node.name())
        full(walk, node)

    monkeypatch.setattr(Backward, "visit", visit)
    x, w = leaf(randoms(3, 2)), leaf(randoms(2, 4))

    def second(hook: bool) -> list[np.ndarray]:
        h = x @ w
        seen: list[bool] = []
        if hook:
            h.register_hook(lambda g: seen.append(g.requires_grad))
        g = ad.autograd.grad((h.tanh() ** 2).sum(), (x, w), create_graph=True)
        assert not hook or seen == [True]
        return [values(t) for t in ad.autograd.grad(sum((t**2).sum() for t in g), (x, w))]

    plain = second(hook=False)
    assert visited == []
    hooked = second(hook=True)
    assert visited == ["MmBackward0"]
    for a, b in zip(plain, hooked, strict=True):
        assert a.tobytes() == b.tobytes()


def test_the_layout_of_gradients_is_that_of_the_leaf_unless_told() -> None:
    def strides() -> Any:
        p = ad.ones(2, 3, 4).permute(2, 0, 1).requires_grad_()
        (p * ad.ones(4, 2, 3)).sum().backward()
        return p.grad.stride()

    policy = ad.autograd.enforce_grad_layout_policy
    assert strides() == (1, 12, 4)
    with policy(False):
        assert strides() == (6, 3, 1)
    assert strides() == (1, 12, 4)
    assert policy(False)(strides)() == (6, 3, 1) and strides() == (1, 12, 4)
    policy(False)
    assert strides() == (6, 3, 1)
    policy(True)
    assert strides() == (1, 12, 4)


@pytest.mark.parametrize("history", [False, True])
def test_a_gradient_with_a_graph_is_seen_in_one_place(history: bool) -> None:
    """F16: `.grad` after create_graph is no view of what others hold; the next backward adds to it,
    element by element."""
    a, b = (ad.tensor([1.0, 2.0], dtype=ad.float64, requires_grad=True) for _ in range(2))
    y = (a + b) ** 2 if history else a + b
    y.sum().backward(create_graph=True)
    first = b.grad.tolist()
    (a * a * a).sum().backward()
    assert b.grad.tolist() == first
    assert a.grad.tolist() == [first[0] + 3, first[1] + 12]
    with ad.no_grad():
        b.grad[0] = 7.0
    assert b.grad.tolist() == [7, first[1]]
    if history:
        x = ad.tensor([1.0, 2.0], dtype=ad.float64, requires_grad=True)
        (x ** 3).sum().backward(create_graph=True)
        assert ad.autograd.grad(x.grad.sum(), x)[0].tolist() == [6, 12]


def test_the_gradient_given_to_backward_stays() -> None:
    for requires in (False, True):
        a = ad.tensor([1.0, 2.0], requires_grad=True)
        g = ad.tensor([3.0, 4.0], requires_grad=requires)
        v = a * 1
        v.retain_grad()
        v.backward(g, create_graph=True)
        (a * a).sum().backward()
        with ad.no_grad():
            a.grad.mul_(2), v.grad.mul_(2)
        assert g.tolist() == [3, 4] and v.grad.tolist() == [6, 8] and a.grad.tolist() == [10, 16]


def test_a_leaf_that_no_longer_requires_gradients_gets_none() -> None:
    a = ad.tensor([1.0, 2.0], requires_grad=True)
    b = ad.tensor([1.0, 2.0], requires_grad=True)
    y = (a * b).sum()
    a.requires_grad = False
    y.backward()
    assert a.grad is None and b.grad.tolist() == [1, 2]


def test_inputs_of_backward_retain_their_gradient() -> None:
    a = ad.tensor([1.0, 2.0], requires_grad=True)
    v = a * 2
    (v * v).sum().backward(inputs=[v], retain_graph=True)
    assert v.retains_grad and v.grad.tolist() == [4, 8] and a.grad is None
    (v * 3).sum().backward()
    assert v.grad.tolist() == [7, 11] and a.grad.tolist() == [6, 6]
