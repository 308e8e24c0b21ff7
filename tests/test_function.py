"""autograd.Function in all its forms."""

from __future__ import annotations

from typing import Any

import pytest
from helpers_engine import const, exact, leaf, near, node_name, randoms, values
from helpers_function import Square

import adjoint as ad

Function = ad.autograd.Function
once_differentiable = ad.autograd.function.once_differentiable
grad = ad.autograd.grad


class TestBasics:
    def test_skeleton(self) -> None:
        """F51: the skeleton of S4: forward stashes, backward multiplies."""

        class MyOp(Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return x.sin()

            @staticmethod
            def backward(ctx: Any, grad_out: Any) -> Any:
                (x,) = ctx.saved_tensors
                return grad_out * x.cos()

        x = leaf(randoms(3))
        y = MyOp.apply(x)
        exact(y, values(x.sin()))
        (y * y).sum().backward()
        z = leaf(values(x))
        (z.sin() ** 2).sum().backward()
        near(x.grad, values(z.grad))

    def test_node_is_named_after_the_class(self) -> None:
        """F2, F51."""
        y = Square.apply(leaf([1.0]))
        assert y.grad_fn.name() == "SquareBackward"
        assert "SquareBackward" in repr(y.grad_fn)
        assert "grad_fn=<SquareBackward>" in repr(y)

    def test_no_node_without_requires_grad(self) -> None:
        assert Square.apply(const([1.0])).grad_fn is None
        with ad.no_grad():
            assert Square.apply(leaf([1.0])).grad_fn is None

    def test_forward_runs_without_recording(self) -> None:
        modes = []

        class Watcher(Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                modes.append((ad.is_grad_enabled(), (x * 2.0).requires_grad))
                return x.clone()

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                modes.append(ad.is_grad_enabled())
                return g

        x = leaf([1.0])
        grad(Watcher.apply(x).sum(), x)
        grad(Watcher.apply(x).sum(), x, create_graph=True)
        assert modes == [(False, False), False, (False, False), True]

    def test_attributes_of_ctx(self) -> None:
        """F51: ctx.dim = dim; None for the gradient of a non-tensor."""

        class Scale(Function):
            @staticmethod
            def forward(ctx: Any, x: Any, factor: float, flag: str = "plain") -> Any:
                ctx.factor = factor
                ctx.flag = flag
                return x * factor

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                assert ctx.flag == "plain"
                return g * ctx.factor, None, None

        x = leaf([1.0])
        exact(grad(Scale.apply(x, 4.0, "plain").sum(), x)[0], [4.0])

    def test_fewer_arguments_than_backward_returns(self) -> None:
        """Trailing None beyond the arguments is allowed (optional ones that were not given)."""

        class Scale(Function):
            @staticmethod
            def forward(ctx: Any, x: Any, factor: float = 2.0) -> Any:
                return x * factor

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g * 2.0, None

        x = leaf([1.0])
        exact(grad(Scale.apply(x).sum(), x)[0], [2.0])

    def test_keyword_arguments(self) -> None:
        """F52: apply(x, dim=1) is accepted; the keyword counts as an argument in its place."""

        class Sum(Function):
            @staticmethod
            def forward(ctx: Any, x: Any, dim: int) -> Any:
                ctx.shape, ctx.dim = x.shape, dim
                return x.sum(dim=dim)

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g.unsqueeze(ctx.dim).expand(ctx.shape), None

        x = leaf(randoms(2, 3))
        y = Sum.apply(x, dim=1)
        exact(grad((y * const([1.0, 2.0])).sum(), x)[0], [[1.0] * 3, [2.0] * 3])

    def test_setup_context(self) -> None:
        """F51: forward without ctx, and a separate setup_context."""

        class Power(Function):
            @staticmethod
            def forward(x: Any, n: int) -> Any:
                return x**n

            @staticmethod
            def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
                x, ctx.n = inputs
                ctx.save_for_backward(x, output)

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                x, out = ctx.saved_tensors
                assert out.shape == x.shape
                return g * ctx.n * x ** (ctx.n - 1), None

        x = leaf([2.0])
        (g,) = grad(Power.apply(x, 3).sum(), x, create_graph=True)
        exact(g, [12.0])
        exact(grad(g.sum(), x)[0], [12.0])

    def test_several_outputs(self) -> None:
        class SinCos(Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                s, c = x.sin(), x.cos()
                ctx.save_for_backward(s, c)
                return s, c

            @staticmethod
            def backward(ctx: Any, gs: Any, gc: Any) -> Any:
                s, c = ctx.saved_tensors
                return gs * c - gc * s

        x = leaf(randoms(3))
        s, c = SinCos.apply(x)
        assert s.grad_fn is c.grad_fn
        near(grad((s * s + c * c).sum(), x, retain_graph=True)[0], [0.0] * 3)
        near(grad(c.sum(), x)[0], -values(x.sin()))

    def test_several_tensor_inputs(self) -> None:
        class Mul(Function):
            @staticmethod
            def forward(ctx: Any, a: Any, b: Any) -> Any:
                ctx.save_for_backward(a, b)
                return a * b

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                a, b = ctx.saved_tensors
                return g * b, g * a

        a, b = leaf([2.0]), leaf([3.0])
        ga, gb = grad(Mul.apply(a, b).sum(), [a, b])
        exact(ga, [3.0])
        exact(gb, [2.0])
        exact(grad(Mul.apply(a, a).sum(), a)[0], [4.0])

    def test_second_order_through_saved_inputs(self) -> None:
        x = leaf([3.0])
        (g,) = grad((Square.apply(x) ** 2).sum(), x, create_graph=True)
        exact(g, [108.0])
        exact(grad(g.sum(), x)[0], [108.0])

    def test_returning_an_input_is_a_new_tensor(self) -> None:
        class Identity(Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g * 5.0

        x = leaf([1.0])
        y = Identity.apply(x)
        assert y is not x and node_name(y) == "IdentityBackward"
        assert x.is_leaf
        exact(grad(y.sum(), x)[0], [5.0])

    def test_non_tensor_outputs_pass_through(self) -> None:
        class WithCount(Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x * 2.0, 3

            @staticmethod
            def backward(ctx: Any, g: Any, unused: Any) -> Any:
                assert unused is None
                return g * 2.0

        x = leaf([1.0])
        y, count = WithCount.apply(x)
        assert count == 3
        exact(grad(y.sum(), x)[0], [2.0])

    def test_gradient_is_reduced_to_the_broadcast_operand(self) -> None:
        """A gradient that is expandable from the operand's shape is summed back to it."""

        class Add(Function):
            @staticmethod
            def forward(ctx: Any, a: Any, b: Any) -> Any:
                return a + b

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g, g

        a, b = leaf(randoms(2, 3)), leaf(randoms(3))
        _, gb = grad(Add.apply(a, b).sum(), [a, b])
        exact(gb, [2.0] * 3)


class Double(Function):
    """Doubles its input in place."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        x.mul_(2.0)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2.0


class TestContextFlags:
    def test_needs_input_grad(self) -> None:
        """F51: True exactly for the tensors that need one."""
        seen = []

        class Three(Function):
            @staticmethod
            def forward(ctx: Any, x: Any, n: int, w: Any) -> Any:
                seen.append(ctx.needs_input_grad)
                return x * n + w

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                seen.append(ctx.needs_input_grad)
                return g * 2.0 if ctx.needs_input_grad[0] else None, None, g

        x, w = leaf([1.0]), leaf([1.0])
        Three.apply(x, 2, w.detach()).sum().backward()
        Three.apply(x.detach(), 2, w).sum().backward()
        assert seen == [(True, False, False)] * 2 + [(False, False, True)] * 2

    def test_mark_non_differentiable(self) -> None:
        class Parts(Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                rounded = x.round()
                ctx.mark_non_differentiable(rounded)
                return x * 2.0, rounded

            @staticmethod
            def backward(ctx: Any, g: Any, g_rounded: Any) -> Any:
                exact(g_rounded, [0.0])
                return g * 2.0

        x = leaf([1.6])
        y, rounded = Parts.apply(x)
        assert y.requires_grad and not rounded.requires_grad
        exact(grad(y.sum(), x)[0], [2.0])

    def test_integer_outputs_are_never_differentiable(self) -> None:
        class Place(Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x * 2.0, x.argmax()

            @staticmethod
            def backward(ctx: Any, g: Any, g_place: Any) -> Any:
                return g * 2.0

        y, place = Place.apply(leaf([1.0, 3.0]))
        assert y.requires_grad and not place.requires_grad

    @pytest.mark.parametrize("flag", [True, False])
    def test_set_materialize_grads(self, flag: bool) -> None:
        """Unused outputs arrive as zeros, or as None when that is asked for."""
        seen = []

        class Two(Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.set_materialize_grads(flag)
                return x * 2.0, x * 3.0

            @staticmethod
            def backward(ctx: Any, g: Any, h: Any) -> Any:
                seen.append(h)
                return g * 2.0

        Two.apply(leaf([1.0]))[0].sum().backward()
        if flag:
            exact(seen[0], [0.0])
        else:
            assert seen == [None]

    def test_mark_dirty(self) -> None:
        """An in-place forward: the input itself comes back, one version on, with the new node."""

        x = leaf([1.0, 2.0])
        y = x * 3.0
        z = Double.apply(y)
        assert z is y and node_name(y) == "DoubleBackward"
        exact(grad((y * y).sum(), x)[0], [72.0, 144.0])

        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            Double.apply(x)

    def test_mark_dirty_on_a_view_rewrites_the_base(self) -> None:
        x = leaf([1.0, 2.0])
        base = x * 3.0
        Double.apply(base[:1])
        exact(base, [6.0, 6.0])
        exact(grad(base.sum(), x)[0], [6.0, 3.0])

    def test_dirty_but_saved_elsewhere_is_caught(self) -> None:
        y = leaf([1.0]) * 3.0
        squared = y * y
        Double.apply(y)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            squared.sum().backward()

    def test_once_differentiable(self) -> None:
        """F51: the first gradient works; differentiating it is refused, not silently wrong."""

        class Once(Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            @once_differentiable
            def backward(ctx: Any, g: Any) -> Any:
                (x,) = ctx.saved_tensors
                assert not ad.is_grad_enabled()
                return 2.0 * x * g

        x = leaf([3.0])
        exact(grad(Once.apply(x).sum(), x)[0], [6.0])
        (g,) = grad((Once.apply(x) ** 2).sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="once_differentiable"):
            g.sum().backward()


class TestSaving:
    def test_none_and_repetition(self) -> None:
        class Save(Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                ctx.save_for_backward(None, x, x)
                return x * 2.0

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                nothing, a, b = ctx.saved_tensors
                assert nothing is None
                exact(a, values(b))
                return g * 2.0

        x = leaf([1.0])
        exact(grad(Save.apply(x).sum(), x)[0], [2.0])

    def test_only_tensors(self) -> None:
        class Save(Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(3)
                return x * 2.0

        with pytest.raises(TypeError, match="^save_for_backward can only save variables"):
            Save.apply(leaf([1.0]))

    def test_nothing_saved_is_an_empty_tuple(self) -> None:
        class Plain(Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x * 2.0

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                assert ctx.saved_tensors == ()
                return g * 2.0

        Plain.apply(leaf([1.0])).sum().backward()

    def test_readable_again_and_again_until_freed(self) -> None:
        x = leaf([2.0])
        y = Square.apply(x)
        node = y.grad_fn
        exact(node.saved_tensors[0], [2.0])
        y.sum().backward()
        with pytest.raises(
            RuntimeError, match="^Trying to backward through the graph a second time"
        ):
            _ = node.saved_tensors

    def test_mutated_after_saving_is_caught(self) -> None:
        """F22 holds for custom functions too."""
        y = leaf([1.0]) * 1.0
        z = Square.apply(y)
        y.add_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()

    def test_saved_input_is_the_same_leaf(self) -> None:
        x = leaf([2.0])
        (saved,) = Square.apply(x).grad_fn.saved_tensors
        assert saved is x or (saved.requires_grad and saved.is_leaf)

    def test_saved_tensors_are_packed_by_hooks(self) -> None:
        log = []
        with ad.autograd.graph.saved_tensors_hooks(
            lambda t: log.append("pack") or t, lambda t: log.append("unpack") or t
        ):
            y = Square.apply(leaf([2.0]))
        y.sum().backward()
        assert log[0] == "pack" and "unpack" in log


class TestRefusals:
    def test_too_few_gradients(self) -> None:
        class Few(Function):
            @staticmethod
            def forward(ctx: Any, a: Any, b: Any) -> Any:
                return a * b

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g

        with pytest.raises(RuntimeError, match="incorrect number of gradients.*expected 2, got 1"):
            Few.apply(leaf([1.0]), const([1.0])).sum().backward()

    def test_too_many_gradients(self) -> None:
        class Many(Function):
            @staticmethod
            def forward(ctx: Any, a: Any) -> Any:
                return a * 2.0

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g, g

        with pytest.raises(RuntimeError, match="incorrect number of gradients.*expected 1, got 2"):
            Many.apply(leaf([1.0])).sum().backward()

    def test_wrong_shape(self) -> None:
        class Wrong(Function):
            @staticmethod
            def forward(ctx: Any, a: Any) -> Any:
                return a * 2.0

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return ad.ones(7, dtype=ad.float64)

        with pytest.raises(
            RuntimeError, match="WrongBackward returned an invalid gradient at index 0"
        ):
            Wrong.apply(leaf([1.0, 2.0])).sum().backward()

    def test_wrong_kind(self) -> None:
        class Wrong(Function):
            @staticmethod
            def forward(ctx: Any, a: Any) -> Any:
                return a * 2.0

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return "gradient"

        with pytest.raises((RuntimeError, TypeError), match="str"):
            Wrong.apply(leaf([1.0])).sum().backward()

    def test_missing_backward(self) -> None:
        class Only(Function):
            @staticmethod
            def forward(ctx: Any, a: Any) -> Any:
                return a * 2.0

        with pytest.raises(NotImplementedError, match="backward"):
            Only.apply(leaf([1.0])).sum().backward()

    def test_missing_forward(self) -> None:
        class Nothing(Function):
            pass

        with pytest.raises(NotImplementedError, match="forward"):
            Nothing.apply(leaf([1.0]))

    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    def test_calling_an_instance(self) -> None:
        with pytest.raises(RuntimeError, match="(?i)static"):
            Square()(leaf([1.0]))

    def test_unknown_keyword(self) -> None:
        with pytest.raises(TypeError):
            Square.apply(leaf([1.0]), unknown=3)

    def test_exception_in_backward_passes_through(self) -> None:
        class Broken(Function):
            @staticmethod
            def forward(ctx: Any, a: Any) -> Any:
                return a * 2.0

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                raise LookupError("mine")

        x = leaf([1.0])
        with pytest.raises(LookupError, match="mine"):
            Broken.apply(x).sum().backward()
        assert x.grad is None and ad.is_grad_enabled()
