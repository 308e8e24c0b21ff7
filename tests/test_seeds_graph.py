"""Worked examples about the graph: why activations are saved, f = (x1 + x2) x1, the chain rule by
hand.

Every number of the source documents that is right appears here as it stands there; where a document
is wrong the right number stands here and the docstring says so.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers_engine import (
    OURS,
    const,
    leaf,
    near,
    node_name,
    only_ours,
    randoms,
    saved_by,
    values,
)

import adjoint as ad

grad = ad.autograd.grad


class TestReluOfLinear:
    """The trace of y = relu(x @ W + b)."""

    @staticmethod
    def forward() -> tuple[Any, ...]:
        x, w, b = leaf(randoms(2, 3)), leaf(randoms(3, 4, seed=1)), leaf(randoms(4, seed=2))
        z1 = x @ w
        z2 = z1 + b
        return x, w, b, z1, z2, z2.relu()

    def test_three_nodes(self) -> None:
        """F5, F2: MmBackward, AddBackward, ReluBackward."""
        _, _, _, z1, z2, y = self.forward()
        assert [node_name(t) for t in (z1, z2, y)] == [
            "MmBackward0",
            "AddBackward0",
            "ReluBackward0",
        ]

    def test_edges(self) -> None:
        """F3, F5: relu -> add -> mm -> the leaves."""
        x, w, b, z1, z2, y = self.forward()
        assert y.grad_fn.next_functions == ((z2.grad_fn, 0),)
        (mm, _), (to_b, _) = z2.grad_fn.next_functions
        assert mm is z1.grad_fn and to_b.variable is b
        assert [
            node.variable is t for (node, _), t in zip(mm.next_functions, (x, w), strict=True)
        ] == [
            True,
            True,
        ]

    def test_saved(self) -> None:
        """F4, F5: mm saves x and W; add saves nothing; relu saves one array of the shape of z2."""
        x, w, b = leaf(randoms(2, 3)), leaf(randoms(3, 4, seed=1)), leaf(randoms(4, seed=2))
        z1, by_mm = saved_by(lambda: x @ w)
        z2, by_add = saved_by(lambda: z1 + b)
        _, by_relu = saved_by(lambda: z2.relu())
        assert sorted(k.shape for k in by_mm) == [(2, 3), (3, 4)]
        assert by_add == []
        assert [k.shape for k in by_relu] == [(2, 4)]
        np.testing.assert_array_equal(by_relu[0] > 0, values(z2) > 0)

    def test_backward_order(self) -> None:
        """F5: relu, then add, then mm."""
        *_, z1, z2, y = self.forward()
        log: list[str] = []
        for name, tensor in (("mm", z1), ("add", z2), ("relu", y)):
            tensor.grad_fn.register_hook(lambda gi, go, name=name: log.append(name))
        y.sum().backward()
        assert log == ["relu", "add", "mm"]

    def test_formulas(self) -> None:
        """F5, F31, F33: g (z2 > 0); dW = xT g; dx = g WT; db = the sum over rows."""
        x, w, b, _, z2, y = self.forward()
        v = randoms(2, 4, seed=3)
        gx, gw, gb = grad(y, [x, w, b], const(v))
        g = v * (values(z2) > 0)
        near(gx, g @ values(w).T)
        near(gw, values(x).T @ g)
        near(gb, g.sum(0))

    def test_grad_is_none_until_backward(self) -> None:
        """F6: on every leaf, through the whole forward."""
        x, w, b, z1, z2, y = self.forward()
        assert [t.grad for t in (x, w, b)] == [None] * 3
        y.sum().backward()
        assert all(t.grad is not None for t in (x, w, b))

    def test_anatomy(self) -> None:
        """F1, F105: the six fields of a tracked tensor."""
        x, _, _, _, _, y = self.forward()
        loss = y.sum()
        assert loss.requires_grad and loss.grad_fn is not None
        assert len(loss.grad_fn.next_functions) == 1
        assert not loss.data.requires_grad
        assert x.grad_fn is None and x.is_leaf and x.grad is None


class TestSumTimesFirst:
    """f(x1, x2) = (x1 + x2) x1 at (3, 4)."""

    def test_value_and_gradients(self) -> None:
        """F8: a = 7, f = 21, df/dx1 = 10 = 7 + 3, df/dx2 = 3."""
        x1, x2 = leaf(3.0), leaf(4.0)
        a = x1 + x2
        f = a * x1
        assert (a.item(), f.item()) == (7.0, 21.0)
        f.backward()
        assert (x1.grad.item(), x2.grad.item()) == (10.0, 3.0)

    def test_adjoints_step_by_step(self) -> None:
        """F9: f-bar = 1; then a-bar = 3 and x1-bar = 7; then x1-bar = 7 + 3 = 10 and x2-bar = 3."""
        x1, x2 = leaf(3.0), leaf(4.0)
        a = x1 + x2
        f = a * x1
        steps: list[tuple[str, list[float], float]] = []
        for name, tensor in (("mul", f), ("add", a)):
            tensor.grad_fn.register_hook(
                lambda gi, go, name=name: steps.append((name, [g.item() for g in gi], go[0].item()))
            )
        sums: dict[str, float] = {}
        x1.register_hook(lambda g: sums.update(x1=g.item()))
        x2.register_hook(lambda g: sums.update(x2=g.item()))
        f.backward()
        assert steps == [("mul", [3.0, 7.0], 1.0), ("add", [3.0, 3.0], 3.0)]
        assert sums == {"x1": 10.0, "x2": 3.0}

    def test_four_values(self) -> None:
        """F8, table 1i: the graph has four values (x1, x2, a, f) and two operations, not five
        nodes.
        """
        x1, x2 = leaf(3.0), leaf(4.0)
        f = (x1 + x2) * x1
        found: set[Any] = set()
        ready = [f.grad_fn]
        while ready:
            node = ready.pop()
            found.add(node)
            ready += [parent for parent, _ in node.next_functions if parent is not None]
        names = sorted(node.name().split("::")[-1] for node in found)
        assert names == ["AccumulateGrad", "AccumulateGrad", "AddBackward0", "MulBackward0"]

    def test_saved_values(self) -> None:
        """F4: the product keeps a = 7 and x1 = 3; the sum keeps nothing."""
        x1, x2 = leaf(3.0), leaf(4.0)
        _, kept = saved_by(lambda: (x1 + x2) * x1)
        assert sorted(k.item() for k in kept) == [3.0, 7.0]

    @pytest.mark.parametrize(
        ("seed", "a_dot", "f_dot"), [((1.0, 0.0), 1.0, 10.0), ((0.0, 1.0), 1.0, 3.0)]
    )
    def test_forward_mode(self, seed: tuple[float, float], a_dot: float, f_dot: float) -> None:
        """F10: seeds (1, 0) and (0, 1) give a-dot = 1 and f-dot = 10 and 3."""

        def program(x1: Any, x2: Any) -> Any:
            a = x1 + x2
            return a, a * x1

        primals, tangents = ad.func.jvp(
            program, (const(3.0), const(4.0)), tuple(const(s) for s in seed)
        )
        assert [p.item() for p in primals] == [7.0, 21.0]
        assert [t.item() for t in tangents] == [a_dot, f_dot]

    def test_forward_mode_by_two_reverse_passes(self) -> None:
        """F10: J t without forward rules: d/dv of (JT v) . t."""
        x1, x2 = leaf(3.0), leaf(4.0)
        f = (x1 + x2) * x1
        v = leaf(0.0)
        g1, g2 = grad(f, [x1, x2], v, create_graph=True)
        assert grad(g1, v, retain_graph=True)[0].item() == 10.0
        assert grad(g2, v)[0].item() == 3.0

    def test_second_derivatives(self) -> None:
        """F14: f = x1**2 + x1 x2 has the Hessian [[2, 1], [1, 0]]."""
        x1, x2 = leaf(3.0), leaf(4.0)
        f = (x1 + x2) * x1
        g1, g2 = grad(f, [x1, x2], create_graph=True)
        rows = [grad(g, [x1, x2], retain_graph=True, materialize_grads=True) for g in (g1, g2)]
        assert [[h.item() for h in row] for row in rows] == [[2.0, 1.0], [1.0, 0.0]]

    def test_assignment_instead_of_accumulation_would_be_wrong(self) -> None:
        """F8: each path alone gives 7 or 3; the right answer is their sum."""
        x1 = leaf(3.0)
        other = x1.detach()
        x2 = const(4.0)
        direct = grad((other + x2) * x1, x1)[0].item()
        through_a = grad((x1 + x2) * other, x1)[0].item()
        assert (direct, through_a) == (7.0, 3.0)


class TestChainRuleByHand:
    """L = (W2 . sigma(W1 . x))**2 with W1 (2, 1), W2 (1, 2)."""

    @pytest.mark.parametrize("name", ["sigmoid", "tanh", "relu", "exp"])
    def test_four_lines(self, name: str) -> None:
        """F30: dL/dy = 2y; dL/dh = 2y W2; dL/da = 2y W2 * sigma'(a); dL/dx = (...) . W1."""
        w1, w2, x = leaf([[0.7], [-0.4]]), leaf([[1.3, 0.9]]), leaf([0.8])
        a = w1 @ x
        h = getattr(a, name)()
        y = w2 @ h
        loss = (y**2).sum()
        assert tuple(a.shape) == (2,) and tuple(h.shape) == (2,) and tuple(y.shape) == (1,)
        dy, dh, da, dx = grad(loss, [y, h, a, x])
        a_np, h_np, y_np = values(a), values(h), values(y)
        slope = {
            "sigmoid": h_np * (1 - h_np),
            "tanh": 1 - h_np**2,
            "relu": (a_np > 0) * 1.0,
            "exp": h_np,
        }[name]
        near(dy, 2 * y_np)
        near(dh, 2 * y_np * values(w2)[0])
        near(da, 2 * y_np * values(w2)[0] * slope)
        near(dx, (2 * y_np * values(w2)[0] * slope) @ values(w1))

    def test_composition(self) -> None:
        """F12: dy/dx = f'(g(x)) g'(x)."""
        x = leaf(0.6)
        near(grad(x.sin().exp(), x)[0], np.exp(np.sin(0.6)) * np.cos(0.6))

    def test_order_of_the_product_does_not_change_the_result(self) -> None:
        """F10, F12: J3 J2 J1 from the left equals from the right."""
        a, b, c = randoms(4, 3), randoms(4, 4, seed=1), randoms(2, 4, seed=2)
        x = leaf(randoms(3, seed=3))
        y = const(c) @ (const(b) @ (const(a) @ x).tanh()).sin()
        rows = [grad(y[k], x, retain_graph=True)[0] for k in range(2)]
        h1 = np.tanh(a @ values(x))
        h2 = b @ h1
        near(ad.stack(rows), c @ (np.cos(h2)[:, None] * b) @ ((1 - h1**2)[:, None] * a))


class TestVectorJacobian:
    def test_linear_closed_form(self) -> None:
        """F12, F32: y = W x: dL/dx = WT u, dL/dW = u outer x."""
        w, x, u = leaf(randoms(4, 3)), leaf(randoms(3, seed=1)), randoms(4, seed=2)
        gw, gx = grad(w @ x, [w, x], const(u))
        near(gx, values(w).T @ u)
        near(gw, np.outer(u, values(x)))

    def test_jacobian_with_respect_to_x_is_w(self) -> None:
        """F13: dy/dx = W."""
        w, x = const(randoms(4, 3)), leaf(randoms(3, seed=1))
        y = w @ x
        near(ad.stack([grad(y[i], x, retain_graph=True)[0] for i in range(4)]), values(w))

    def test_jacobian_with_respect_to_w_has_rank_three(self) -> None:
        """F13, table 1i: dy/dW has shape (out, out, in); the source calls it a 4-tensor."""
        w, x = leaf(randoms(4, 3)), const(randoms(3, seed=1))
        y = w @ x
        jacobian = ad.stack([grad(y[i], w, retain_graph=True)[0] for i in range(4)])
        assert tuple(jacobian.shape) == (4, 4, 3)
        near(jacobian, np.einsum("ij,k->ijk", np.eye(4), values(x)))

    def test_jacobians_by_both_modes(self) -> None:
        """F11, F13: row by row and column by column, the same matrix."""
        w, x = const(randoms(4, 3)), const(randoms(3, seed=1))
        for jacobian in (ad.func.jacrev, ad.func.jacfwd):
            near(jacobian(lambda x: w @ x)(x), values(w))
            assert tuple(jacobian(lambda w: w @ x)(w).shape) == (4, 4, 3)
            y = values(ad.softmax(x, 0))
            near(jacobian(lambda x: ad.softmax(x, 0))(x), np.diag(y) - np.outer(y, y))

    def test_hessian_and_its_products(self) -> None:
        """F14: forward over reverse gives H v; the dense Hessian is symmetric."""
        a = const(randoms(3, 3))
        x, v = const(randoms(3, seed=1)), const(randoms(3, seed=2))

        def f(x: Any) -> Any:
            return (a @ x).sin().sum()

        hessian = ad.func.hessian(f)(x)
        near(hessian, values(hessian).T)
        gradient, product = ad.func.jvp(ad.func.grad(f), (x,), (v,))
        near(gradient, values(a).T @ np.cos(values(a) @ values(x)))
        near(product, values(hessian) @ values(v))

    def test_forward_mode_costs_one_pass_per_input(self) -> None:
        """F10, F11: n inputs need n forward passes, or one reverse pass; the calls are counted."""
        calls = []

        def f(x: Any) -> Any:
            calls.append(1)
            return (x.sin() * x).sum()

        x = randoms(5)
        columns = [ad.func.jvp(f, (const(x),), (const(np.eye(5)[k]),))[1].item() for k in range(5)]
        assert len(calls) == 5
        (g,) = [ad.func.grad(f)(const(x))]
        assert len(calls) == 6
        near(g, columns)

    def test_matmul_vjp(self) -> None:
        """F12, F31: dL/dA = G BT and dL/dB = AT G: two products of the size of the forward."""
        a, b, g = leaf(randoms(4, 3)), leaf(randoms(3, 5, seed=1)), randoms(4, 5, seed=2)
        ga, gb = grad(a @ b, [a, b], const(g))
        near(ga, g @ values(b).T)
        near(gb, values(a).T @ g)

    @only_ours
    def test_a_jacobian_is_never_built(self) -> None:
        """F12: peak memory of the vjp of a (300, 300) product stays far below its 8.1e9-entry
        Jacobian.
        """
        import tracemalloc

        a, b = leaf(randoms(300, 300)), leaf(randoms(300, 300, seed=1))
        out = a @ b
        seed = const(np.ones((300, 300)))
        tracemalloc.start()
        grad(out, [a, b], seed)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 8 * 300 * 300 * 8


class TestNamedGraph:
    def test_loss_of_two_layers(self) -> None:
        """F29: the four gradients of z = W1@x+b1; h = relu(z); y = W2@h+b2; loss =
        ((y-t)**2).mean().
        """
        w1, b1 = leaf(randoms(4, 3)), leaf(randoms(4, seed=1))
        w2, b2 = leaf(randoms(2, 4, seed=2)), leaf(randoms(2, seed=3))
        x, target = randoms(3, seed=4), randoms(2, seed=5)
        z = w1 @ const(x) + b1
        h = z.relu()
        y = w2 @ h + b2
        ((y - const(target)).pow(2).mean()).backward()
        gy = 2 * (values(y) - target) / 2
        gz = (values(w2).T @ gy) * (values(z) > 0)
        near(b2.grad, gy)
        near(w2.grad, np.outer(gy, values(h)))
        near(b1.grad, gz)
        near(w1.grad, np.outer(gz, x))


def test_module_is_the_one_under_test() -> None:
    """F1: `import adjoint as ad` is all a program needs."""
    assert ad.__name__ == ("adjoint" if OURS else "torch")
    assert isinstance(leaf([1.0]), ad.Tensor)
