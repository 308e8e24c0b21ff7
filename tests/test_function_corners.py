"""Less travelled corners of autograd.Function: views, aliases, nesting, saved outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers_engine import const, exact, leaf, near, randoms, values
from helpers_function import Square

import adjoint as ad

Function = ad.autograd.Function
grad = ad.autograd.grad


def function(forward: Any, backward: Any, name: str = "Custom") -> Any:
    """`apply` of a Function made of `forward(ctx, ...)` and `backward(ctx, ...)`."""
    body = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type(name, (Function,), body).apply


class TestResults:
    def test_intermediate_may_be_saved(self) -> None:
        def forward(ctx: Any, x: Any) -> Any:
            middle = x.exp()
            ctx.save_for_backward(middle)
            return middle * 2.0

        apply = function(forward, lambda ctx, g: g * 2.0 * ctx.saved_tensors[0])
        x = leaf([0.5])
        near(grad(apply(x).sum(), x)[0], 2.0 * np.exp([0.5]))

    def test_saved_output_is_differentiable(self) -> None:
        def forward(ctx: Any, x: Any) -> Any:
            out = x.exp()
            ctx.save_for_backward(out)
            return out

        apply = function(forward, lambda ctx, g: g * ctx.saved_tensors[0])
        x = leaf([0.5])
        (first,) = grad(apply(x).sum(), x, create_graph=True)
        (second,) = grad(first.sum(), x, create_graph=True)
        (third,) = grad(second.sum(), x)
        for g in (first, second, third):
            near(g, np.exp([0.5]))

    def test_saved_output_that_is_overwritten_is_found(self) -> None:
        def forward(ctx: Any, x: Any) -> Any:
            out = x.exp()
            ctx.save_for_backward(out)
            return out

        y = function(forward, lambda ctx, g: g * ctx.saved_tensors[0])(leaf([0.5]))
        y.add_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()

    def test_list_and_tuple_results(self) -> None:
        x = leaf([1.0, 2.0])
        pair = function(lambda ctx, x: (x * 2.0, x * 3.0), lambda ctx, a, b: a * 2.0 + b * 3.0)(x)
        assert isinstance(pair, tuple)
        exact(grad(pair[0].sum() + pair[1].sum(), x)[0], [5.0, 5.0])

    def test_single_result_in_a_tuple(self) -> None:
        x = leaf([1.0])
        out = function(lambda ctx, x: (x * 2.0,), lambda ctx, g: (g * 2.0,))(x)
        assert isinstance(out, tuple) and len(out) == 1
        exact(grad(out[0].sum(), x)[0], [2.0])

    def test_none_gradient(self) -> None:
        x, w = leaf([1.0]), leaf([2.0])
        y = function(lambda ctx, a, b: a * b, lambda ctx, g: (None, g))(x, w)
        gx, gw = grad(y.sum(), [x, w], allow_unused=True)
        assert gx is None
        exact(gw, [1.0])

    def test_gradient_for_an_input_that_needs_none_is_dropped(self) -> None:
        x = leaf([1.0])
        c = const([2.0])
        y = function(lambda ctx, a, b: a * b, lambda ctx, g: (g * 2.0, g))(x, c)
        y.sum().backward()
        exact(x.grad, [2.0])
        assert c.grad is None

    def test_gradient_of_another_dtype_is_cast(self) -> None:
        x = leaf([1.0])
        y = function(lambda ctx, x: x * 1.0, lambda ctx, g: g.to(ad.float32) * 3.0)(x)
        (g,) = grad(y.sum(), x)
        assert g.dtype == ad.float64
        exact(g, [3.0])

    def test_change_of_dtype_in_forward(self) -> None:
        x = leaf([1.5, 2.5])
        y = function(lambda ctx, x: x.to(ad.float32), lambda ctx, g: g.to(ad.float64))(x)
        assert y.dtype == ad.float32
        exact(grad((y * 2.0).sum(), x)[0], [2.0, 2.0])


class TestAliases:
    def test_view_of_the_input_as_result(self) -> None:
        x = leaf([1.0, 2.0, 3.0])
        pad = const([0.0])
        y = function(lambda ctx, x: x[:2], lambda ctx, g: ad.cat([g * 10.0, pad]))(x)
        exact(y, [1.0, 2.0])
        exact(grad(y.sum(), x)[0], [10.0, 10.0, 0.0])

    def test_writing_to_such_a_view_is_refused(self) -> None:
        x = leaf([1.0, 2.0]) * 1.0
        y = function(lambda ctx, x: x[:1], lambda ctx, g: ad.cat([g, g * 0.0]))(x)
        with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
            y.add_(1.0)

    def test_input_and_result_are_told_apart(self) -> None:
        """Returning an input unchanged: the result has the node, the input keeps its own."""
        x = leaf([1.0])
        h = x * 2.0
        y = function(lambda ctx, t: t, lambda ctx, g: g * 7.0)(h)
        assert y is not h
        exact(grad((y + h).sum(), x)[0], [16.0])

    def test_constant_input_returned(self) -> None:
        x, c = leaf([1.0]), const([5.0])
        y, same = function(lambda ctx, a, b: (a * 2.0, b), lambda ctx, g, h: (g * 2.0, h))(x, c)
        assert same.requires_grad and not c.requires_grad
        exact(grad((y + same).sum(), x)[0], [2.0])


class TestNesting:
    def test_function_inside_forward_and_backward(self) -> None:
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return Square.apply(x) * x

        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * 3.0 * Square.apply(x)

        apply = function(forward, backward)
        x = leaf([2.0])
        (first,) = grad(apply(x).sum(), x, create_graph=True)
        exact(first, [12.0])
        exact(grad(first.sum(), x)[0], [12.0])

    def test_backward_pass_inside_forward(self) -> None:
        """Implicit layers solve with gradients of their own inside forward."""

        def forward(ctx: Any, x: Any) -> Any:
            with ad.enable_grad():
                t = x.detach().requires_grad_()
                (slope,) = grad((t**3).sum(), t)
            ctx.save_for_backward(x)
            return slope

        apply = function(forward, lambda ctx, g: g * 6.0 * ctx.saved_tensors[0])
        x = leaf([2.0])
        y = apply(x)
        exact(y, [12.0])
        exact(grad(y.sum(), x)[0], [12.0])

    def test_newton_root_with_implicit_gradient(self) -> None:
        """F55: r(a) solves r**3 + r = a; dr/da = 1 / (3 r**2 + 1), nothing unrolled."""

        def forward(ctx: Any, a: Any) -> Any:
            r = ad.zeros_like(a)
            for _ in range(50):
                r = r - (r**3 + r - a) / (3.0 * r**2 + 1.0)
            ctx.save_for_backward(r)
            return r

        solve = function(forward, lambda ctx, g: g / (3.0 * ctx.saved_tensors[0] ** 2 + 1.0))
        a = leaf([1.0, 10.0, -3.0])
        r = solve(a)
        near(r**3 + r, values(a))
        (got,) = grad(r.sum(), a, create_graph=True)
        unrolled = ad.zeros(3, dtype=ad.float64)
        for _ in range(50):
            unrolled = unrolled - (unrolled**3 + unrolled - a) / (3.0 * unrolled**2 + 1.0)
        near(got, values(grad(unrolled.sum(), a)[0]), rtol=1e-9)
        (second,) = grad(got.sum(), a)  # d/da of 1/(3 r**2 + 1) = -6 r / (3 r**2 + 1)**3
        near(second, -6 * values(r) / (3 * values(r) ** 2 + 1) ** 3, rtol=1e-9)

    def test_external_numpy_kernel(self) -> None:
        """F56: forward and backward outside of the framework, tied in by a Function."""

        def forward(ctx: Any, x: Any) -> Any:
            data = x.detach().numpy()
            ctx.spectrum = np.fft.rfft(data)
            return ad.from_numpy(np.abs(ctx.spectrum) ** 2)

        def backward(ctx: Any, g: Any) -> Any:
            n = 2 * (len(ctx.spectrum) - 1)
            weighted = g.numpy() * ctx.spectrum
            k = np.arange(len(ctx.spectrum))
            waves = np.exp(2j * np.pi * np.outer(np.arange(n), k) / n)
            return ad.from_numpy(2.0 * (waves @ weighted).real)

        apply = function(forward, backward)
        assert ad.autograd.gradcheck(apply, (leaf(randoms(8)),))

    def test_recursion(self) -> None:
        def forward(ctx: Any, x: Any, n: int) -> Any:
            ctx.n = n
            return x * 2.0 if n == 0 else Recursive(x, n - 1) * 2.0

        Recursive = function(forward, lambda ctx, g: (g * 2.0 ** (ctx.n + 1), None))
        x = leaf([1.0])
        y = Recursive(x, 4)
        exact(y, [32.0])
        exact(grad(y.sum(), x)[0], [32.0])


class TestContext:
    def test_needs_input_grad_in_setup_context(self) -> None:
        seen: list[tuple[bool, ...]] = []

        class Scale(Function):
            @staticmethod
            def forward(x: Any, w: Any) -> Any:
                return x * w

            @staticmethod
            def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
                seen.append(ctx.needs_input_grad)
                ctx.save_for_backward(*inputs)

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                x, w = ctx.saved_tensors
                return g * w, None

        Scale.apply(leaf([1.0]), const([2.0])).sum().backward()
        assert seen == [(True, False)]

    def test_context_is_per_call(self) -> None:
        def forward(ctx: Any, x: Any, k: float) -> Any:
            ctx.k = k
            return x * k

        apply = function(forward, lambda ctx, g: (g * ctx.k, None))
        x = leaf([1.0])
        exact(grad((apply(x, 2.0) + apply(x, 3.0) * 10.0).sum(), x)[0], [32.0])

    def test_attributes_are_visible_on_the_node(self) -> None:
        def forward(ctx: Any, x: Any) -> Any:
            ctx.note = "here"
            return x * 1.0

        y = function(forward, lambda ctx, g: g)(leaf([1.0]))
        assert y.grad_fn.note == "here"

    def test_class_hierarchy(self) -> None:
        class Doubled(Square):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return Square.forward(ctx, x) * 2.0

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return Square.backward(ctx, g) * 2.0

        x = leaf([3.0])
        y = Doubled.apply(x)
        assert y.grad_fn.name() == "DoubledBackward"
        exact(grad(y.sum(), x)[0], [12.0])

    def test_retained_graph_reads_saved_values_again(self) -> None:
        x = leaf([3.0])
        y = Square.apply(x).sum()
        y.backward(retain_graph=True)
        y.backward()
        exact(x.grad, [12.0])

    def test_tensors_in_containers_are_not_tracked(self) -> None:
        """As in PyTorch: only direct tensor arguments get gradients."""
        x = leaf([1.0])
        y = function(lambda ctx, pair: pair[0] * 2.0, lambda ctx, g: None)((x, 3))
        assert not y.requires_grad

    def test_batched_cotangents(self) -> None:
        """is_grads_batched runs the user's backward for every vector."""
        x = leaf([1.0, 2.0])
        y = Square.apply(x)
        (jacobian,) = grad(y, x, ad.eye(2, dtype=ad.float64), is_grads_batched=True)
        exact(jacobian, [[2.0, 0.0], [0.0, 4.0]])


def test_setup_context_is_shown_the_defaults_of_forward() -> None:
    """As in PyTorch: ``inputs`` holds all arguments of forward, given or not."""
    class Power(Function):
        @staticmethod
        def forward(x: Any, n: int = 2, *, scale: float = 1.0) -> Any:
            return x ** n * scale

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            x, ctx.n = inputs
            ctx.save_for_backward(x)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * ctx.n * x ** (ctx.n - 1), None

    x = ad.tensor(3.0, requires_grad=True)
    for args, slope in (((x,), 6.0), ((x, 3), 27.0)):
        assert grad(Power.apply(*args), x)[0].item() == slope
    assert ad.func.grad(lambda v: Power.apply(v))(x).item() == 6.0


class TestNoGradient:
    """What a backward that returns None leads to, as in PyTorch: every Function behind it runs."""

    @staticmethod
    def stop(x: Any) -> Any:
        return function(lambda ctx, x: x.clone(), lambda ctx, g: None)(x)

    @pytest.mark.parametrize("create", [False, True])
    def test_zeros_reach_a_function_further_down(self, create: bool) -> None:
        seen: list[Any] = []
        double = function(lambda ctx, x: x * 2, lambda ctx, g: (seen.append(g), g * 2)[1])
        x = leaf([1.0, 2.0])
        (g,) = grad(self.stop(double(x)).sum(), x, create_graph=create)
        exact(g, [0.0, 0.0])
        exact(seen[0], [0.0, 0.0])

    def test_none_where_it_does_not_materialize(self) -> None:
        seen: list[Any] = []

        def forward(ctx: Any, x: Any) -> Any:
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        x = leaf([1.0])
        both = function(forward, lambda ctx, *gs: seen.append(gs))(x)
        self.stop(both[0]).sum().backward()
        assert seen == [(None, None)] and x.grad is None

    def test_an_op_further_down_is_not_run(self) -> None:
        x = leaf([1.0])
        self.stop(x.exp()).sum().backward()
        assert x.grad is None


def test_marks_are_for_tensors() -> None:
    def marking(name: str) -> Any:
        return function(lambda ctx, x: (getattr(ctx, name)(3), x.clone())[1], lambda ctx, g: g)
    for name, words in (("mark_dirty", "mark_dirty can only accept variables"),
                        ("mark_non_differentiable", "only accepts variable arguments"),
                        ("save_for_backward", "can only save variables, but argument 0")):
        with pytest.raises(TypeError, match=words):
            marking(name)(leaf([1.0]))


def test_a_dirty_tensor_that_was_no_input_is_warned_about() -> None:
    def forward(ctx: Any, x: Any) -> Any:
        made = x * 2
        ctx.mark_dirty(made)
        return made
    with pytest.warns(UserWarning, match="received a tensor that was not an input"):
        function(forward, lambda ctx, g: g * 2)(leaf([1.0]))


@pytest.mark.parametrize(("tangent", "words"), [
    (lambda t: (t, t), r"expected 1 but got 2"), (lambda t: t[:1], "different size"),
    (lambda t: 3, r"expected Variable or None \(got int\)")])
def test_tangents_of_a_jvp_fit_the_outputs(tangent: Any, words: str) -> None:
    class Double(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def jvp(ctx: Any, t: Any) -> Any:
            return tangent(t)

    forward_ad = ad.autograd.forward_ad
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match=words):
        Double.apply(forward_ad.make_dual(const([1.0, 2.0]), ad.ones(2, dtype=ad.float64)))


def test_several_views_made_by_a_function_are_not_written_to() -> None:
    x = leaf([1.0, 2.0])
    a, _ = function(lambda ctx, x: (x[:1], x[1:]), lambda ctx, g, h: ad.cat([g, h]))(x.clone())
    with pytest.raises(RuntimeError, match="output of a function that returns multiple views"):
        a.mul_(2)


def test_what_pytorch_asks_of_a_function_under_transforms(monkeypatch: Any) -> None:
    """Only for programs that run in PyTorch's place: natively a Function's code is run."""
    class Old(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    class New(Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x * 2

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    x = const([1.0, 2.0])
    exact(ad.vmap(Old.apply)(x), [2.0, 4.0])
    exact(ad.vmap(New.apply)(x), [2.0, 4.0])
    monkeypatch.setattr("adjoint.autograd.function.as_pytorch", [True])
    with pytest.raises(RuntimeError, match="must override the setup_context staticmethod"):
        ad.vmap(Old.apply)(x)
    with pytest.raises(RuntimeError, match="does not have vmap support"):
        ad.vmap(New.apply)(x)
    exact(ad.func.grad(lambda x: New.apply(x).sum())(x), [2.0, 2.0])
