"""gradcheck and gradgradcheck: right rules pass, wrong ones are named, float32 is refused."""

from __future__ import annotations

from typing import Any

import pytest
from helpers_engine import const, leaf, only_ours, randoms
from helpers_function import Square

import adjoint as ad

gradcheck = ad.autograd.gradcheck
gradgradcheck = ad.autograd.gradgradcheck
GradcheckError = ad.autograd.gradcheck.__globals__["GradcheckError"]


def broken(forward: Any, backward: Any) -> Any:
    """A Function of one argument made of two plain functions."""

    class Broken(ad.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return backward(ctx.saved_tensors[0], g)

    return Broken.apply


class TestPasses:
    """F58."""

    @pytest.mark.parametrize(
        "function",
        [
            lambda x: x * x,
            lambda x: x.sin().exp().sum(),
            lambda x: x.reshape(2, 3) @ x.reshape(3, 2),
            lambda x: ad.softmax(x, 0),
            lambda x: ad.logsumexp(x, 0),
            lambda x: x.cumsum(0),
            lambda x: x[ad.tensor([0, 0, 2])],
            lambda x: x.sort().values,
            lambda x: (x.unsqueeze(0) - x.unsqueeze(1)).abs(),
            lambda x: x.norm(),
            lambda x: ad.nn.functional.gelu(x),
            lambda x: ad.nn.functional.layer_norm(x, (6,)),
        ],
    )
    def test_right_rules(self, function: Any) -> None:
        x = leaf(randoms(6))
        assert gradcheck(function, (x,)) is True
        assert gradgradcheck(function, (x,)) is True

    def test_stated_arguments(self) -> None:
        """F58: eps=1e-6, atol=1e-4 as S3 calls it."""
        assert gradcheck(lambda x: x.exp(), (leaf(randoms(3)),), eps=1e-6, atol=1e-4)

    def test_several_inputs_and_outputs(self) -> None:
        a, b = leaf(randoms(2, 3)), leaf(randoms(3, 2, seed=1))
        assert gradcheck(lambda a, b: (a @ b, (a * a).sum(), b.exp()), (a, b))
        assert gradgradcheck(lambda a, b: (a @ b, (a * a).sum()), (a, b))

    def test_non_tensor_and_constant_inputs(self) -> None:
        assert gradcheck(
            lambda x, n, c: x**n * c, (leaf(randoms(3) + 3.0), 3, const([1.0, 2.0, 3.0]))
        )

    def test_a_single_tensor_is_accepted(self) -> None:
        assert gradcheck(lambda x: x * x, leaf(randoms(3)))

    def test_complex(self) -> None:
        z = ad.tensor(randoms(3) + 1j * randoms(3, seed=1), dtype=ad.complex128, requires_grad=True)
        assert gradcheck(lambda z: z * z.conj() * z, (z,))
        assert gradcheck(lambda z: z.abs() ** 2, (z,))

    def test_output_that_ignores_the_input(self) -> None:
        assert gradcheck(lambda x: (x * x, (x.detach() > 0).to(ad.float64)), (leaf(randoms(3)),))

    def test_fast_mode(self) -> None:
        assert gradcheck(lambda x: x.sin() * x, (leaf(randoms(4)),), fast_mode=True)
        assert gradgradcheck(lambda x: x.sin() * x, (leaf(randoms(4)),), fast_mode=True)

    def test_custom_function(self) -> None:
        x = leaf(randoms(4))
        assert gradcheck(Square.apply, (x,))
        assert gradgradcheck(Square.apply, (x,))

    def test_inputs_are_left_as_they_were(self) -> None:
        x = leaf(randoms(4))
        before = x.detach().clone()
        gradcheck(lambda x: x * x, (x,))
        assert ad.equal(x.detach(), before)
        assert x.grad is None


class TestFinds:
    """F58, F59: wrong rules."""

    @pytest.mark.parametrize(
        ("name", "forward", "backward"),
        [
            ("factor", lambda x: x * x, lambda x, g: 3.0 * x * g),
            ("sign", lambda x: x.sin(), lambda x, g: -x.cos() * g),
            ("missing term", lambda x: x * x.exp(), lambda x, g: x.exp() * g),
            ("order of axes", lambda x: x.flip(0), lambda x, g: g),
            ("zero", lambda x: x.tanh(), lambda x, g: g * 0.0),
        ],
    )
    @pytest.mark.parametrize("fast", [False, True])
    def test_wrong_gradient(self, name: str, forward: Any, backward: Any, fast: bool) -> None:
        function = broken(forward, backward)
        x = leaf(randoms(4) + 2.0)
        with pytest.raises(GradcheckError, match="Jacobian mismatch for output 0 with respect to"):
            gradcheck(function, (x,), fast_mode=fast)
        assert gradcheck(function, (x,), fast_mode=fast, raise_exception=False) is False

    def test_gradcheck_error_is_a_runtime_error(self) -> None:
        assert issubclass(GradcheckError, RuntimeError)

    def test_both_jacobians_are_shown(self) -> None:
        function = broken(lambda x: x * x, lambda x, g: 3.0 * x * g)
        with pytest.raises(GradcheckError) as caught:
            gradcheck(function, (leaf([1.0, 10.0]),))
        text = str(caught.value).lower()
        assert "numerical" in text and "analytical" in text

    @only_ours
    def test_message_names_op_input_index_and_both_values(self) -> None:
        """F58: the first wrong entry, by name and place."""
        function = broken(lambda x: x * x, lambda x, g: g * 2.0 * x * const([1.0, 1.0, 2.0]))
        with pytest.raises(GradcheckError) as caught:
            gradcheck(function, (leaf([1.0, 10.0, 100.0]),))
        text = str(caught.value)
        assert "BrokenBackward" in text
        assert "input 0" in text
        assert "400" in text  # analytic
        assert "200" in text or "199.99" in text  # numeric
        assert "(2,)" in text or "[2]" in text or "index 2" in text

    def test_second_input_is_named(self) -> None:
        class Wrong(ad.autograd.Function):
            @staticmethod
            def forward(ctx: Any, a: Any, b: Any) -> Any:
                ctx.save_for_backward(a, b)
                return a * b

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                a, b = ctx.saved_tensors
                return g * b, g * b

        with pytest.raises(GradcheckError, match="output 0 with respect to input 1"):
            gradcheck(Wrong.apply, (leaf([1.0, 2.0]), leaf([3.0, 4.0])))

    def test_second_output_is_named(self) -> None:
        good = lambda x: x * x  # noqa: E731
        bad = broken(lambda x: x * x, lambda x, g: g * x)
        with pytest.raises(GradcheckError, match="output 1 with respect to input 0"):
            gradcheck(lambda x: (good(x), bad(x)), (leaf([1.0, 2.0]),))

    def test_backward_that_cuts_the_graph(self) -> None:
        """F59: gradcheck passes, gradgradcheck does not."""
        cut = broken(lambda x: x * x, lambda x, g: 2.0 * x.detach() * g)
        x = leaf(randoms(3) + 2.0)
        assert gradcheck(cut, (x,))
        with pytest.raises(RuntimeError):
            gradgradcheck(cut, (x,))

    def test_once_differentiable_is_found(self) -> None:
        """F59."""

        class Once(ad.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            @ad.autograd.function.once_differentiable
            def backward(ctx: Any, g: Any) -> Any:
                (x,) = ctx.saved_tensors
                return 2.0 * x * g

        x = leaf(randoms(3) + 2.0)
        assert gradcheck(Once.apply, (x,))
        with pytest.raises(RuntimeError):
            gradgradcheck(Once.apply, (x,))

    def test_wrong_second_derivative(self) -> None:
        """A backward that is right in value and wrong as a function."""

        class Bad(ad.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return x * x * x

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                (x,) = ctx.saved_tensors
                return 3.0 * x * x.detach() * g

        x = leaf(randoms(3) + 2.0)
        assert gradcheck(Bad.apply, (x,))
        with pytest.raises(GradcheckError):
            gradgradcheck(Bad.apply, (x,))

    def test_random_function(self) -> None:
        with pytest.raises(GradcheckError):
            gradcheck(lambda x: x * ad.rand((), dtype=ad.float64), (leaf([1.0, 2.0]),))

    def test_rounding_has_no_gradient_to_check_away_from_steps(self) -> None:
        assert gradcheck(lambda x: x.round(), (leaf([0.2, 0.8]),))
        straight_through = broken(lambda x: x.round(), lambda x, g: g)
        with pytest.raises(GradcheckError):
            gradcheck(straight_through, (leaf([0.2, 0.8]),))


class TestRefusals:
    def test_nothing_requires_grad(self) -> None:
        with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
            gradcheck(lambda x: x, (const([1.0]),))

    @only_ours
    def test_float32_is_refused(self) -> None:
        """F58, table 1i: PyTorch warns and then fails with a mismatch; ours says what to do."""
        x = ad.ones(3, requires_grad=True)
        with pytest.raises((GradcheckError, TypeError, ValueError)) as caught:
            gradcheck(lambda x: x * x, (x,))
        assert "float64" in str(caught.value) or "double" in str(caught.value)

    @pytest.mark.filterwarnings("ignore")
    def test_float32_module_never_passes_silently(self) -> None:
        """Table 1i: gradcheck(model, inputs) of a float32 model needs .double()."""
        ad.manual_seed(0)
        model = ad.nn.Linear(3, 1)
        with pytest.raises((RuntimeError, TypeError, ValueError)):
            gradcheck(model, (ad.randn(2, 3, requires_grad=True),), eps=1e-6, atol=1e-4)
        double = model.double()
        x = ad.randn(2, 3, dtype=ad.float64, requires_grad=True)
        assert gradcheck(double, (x,), eps=1e-6, atol=1e-4)

    def test_overlapping_input(self) -> None:
        x = ad.ones(1, dtype=ad.float64).expand(3).requires_grad_()
        with pytest.raises(RuntimeError, match="stride 0|overlap"):
            gradcheck(lambda x: x * x, (x,))

    def test_tolerance_is_honoured(self) -> None:
        slightly = broken(lambda x: x * x, lambda x, g: 2.0005 * x * g)
        assert gradcheck(slightly, (leaf([1.0]),), rtol=1e-2)
        with pytest.raises(GradcheckError):
            gradcheck(slightly, (leaf([1.0]),), rtol=1e-6, atol=1e-6)
