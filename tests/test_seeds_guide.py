"""The code blocks of the guide and of the backward-pass chapter, with what they really print."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers_engine import const, exact, leaf, near, node_name, randoms, values

import adjoint as ad

nn = ad.nn
Function = ad.autograd.Function


class TestStandardFlow:
    """x = ones(2, 2); y = x + 2; z = y * y * 3; out = z.mean()."""

    def test_prints(self) -> None:
        """F1, F2: requires_grad, grad_fn, the node names, 27.0."""
        x = ad.ones(2, 2, requires_grad=True)
        assert f"x.requires_grad: {x.requires_grad}" == "x.requires_grad: True"
        assert f"x.grad_fn: {x.grad_fn}" == "x.grad_fn: None"
        y = x + 2
        z = y * y * 3
        out = z.mean()
        for tensor, name in ((y, "AddBackward0"), (z, "MulBackward0"), (out, "MeanBackward0")):
            assert str(tensor.grad_fn).startswith(f"<{name} object at 0x")
        assert f"Forward Pass Result: {out.item()}" == "Forward Pass Result: 27.0"

    def test_gradient(self) -> None:
        """F8: 3 * 2 * (x + 2) / 4 = 4.5 everywhere."""
        x = ad.ones(2, 2, requires_grad=True)
        y = x + 2
        (y * y * 3).mean().backward()
        assert repr(x.grad) == "tensor([[4.5000, 4.5000],\n        [4.5000, 4.5000]])"


class TestGraphLifecycle:
    """Construction, retention, destruction."""

    def test_edges(self) -> None:
        """F3: Sum -> Mul -> AccumulateGrad; PyTorch shows an extra (None, 0) for the number."""
        x = ad.randn(3, 3, requires_grad=True)
        z = (x * 2).sum()
        assert str(z.grad_fn).startswith("<SumBackward0 object at 0x")
        assert str(z.grad_fn.next_functions).startswith("((<MulBackward0 object at 0x")
        assert str(z.grad_fn.next_functions).endswith(", 0),)")
        mul = z.grad_fn.next_functions[0][0]
        assert str(mul.next_functions).startswith("((<AccumulateGrad object at 0x")

    def test_first_backward_then_refused(self) -> None:
        """F18: d(z)/dx = 2; the second backward prints the first 80 characters of its error."""
        x = ad.randn(3, 3, requires_grad=True)
        z = (x.exp() * 2 - x.exp() * 2 + x * 2).sum()
        z.backward()
        near(x.grad, np.full((3, 3), 2.0), rtol=1e-5, atol=1e-5)
        with pytest.raises(RuntimeError) as caught:
            z.backward()
        assert (
            str(caught.value)[:80]
            == (
                "Trying to backward through the graph a second time (or directly access saved tens"
            )[:80]
        )

    def test_errors_are_not_subscriptable(self) -> None:
        """Table 1i: the source's `e[:80]` is a TypeError; str(e)[:80] is meant."""
        x = leaf([1.0])
        y = (x * x).sum()
        y.backward()
        with pytest.raises(RuntimeError) as caught:
            y.backward()
        with pytest.raises(TypeError):
            caught.value[:80]  # type: ignore[index]

    def test_retain_graph_doubles(self) -> None:
        """F17, F19: 3 after the first, 6 after the second: linear growth, not exponential."""
        x = ad.randn(3, 3, requires_grad=True)
        z = (x * 3).sum()
        z.backward(retain_graph=True)
        first = x.grad.clone()
        z.backward()
        assert repr(first) == "tensor([[3., 3., 3.],\n        [3., 3., 3.],\n        [3., 3., 3.]])"
        assert (
            repr(x.grad) == "tensor([[6., 6., 6.],\n        [6., 6., 6.],\n        [6., 6., 6.]])"
        )

    def test_backward_twice_without_zeroing(self) -> None:
        """F17, F108: the second call accumulates."""
        model = nn.Linear(4, 1)
        x, y = ad.randn(8, 4), ad.randn(8, 1)
        ((model(x) - y) ** 2).mean().backward()
        once = values(model.weight.grad)
        ((model(x) - y) ** 2).mean().backward()
        near(model.weight.grad, 2 * once, rtol=1e-6)

    def test_momentum_without_zeroing_is_bounded(self) -> None:
        """Table 1i: SGD without zero_grad on a quadratic is heavy ball with beta = 1: it
        oscillates, bounded.
        """
        w = leaf([1.0])
        largest = 0.0
        for _ in range(200):
            (0.5 * w * w).sum().backward()
            with ad.no_grad():
                w -= 0.5 * w.grad
            largest = max(largest, abs(w.item()))
        assert largest < 3.0


class TestTrainingLoop:
    def test_seven_steps(self) -> None:
        """F96, F89: Linear(10, 1), MSE, SGD 0.01, (32, 10), 100 steps; losses are Python floats."""
        ad.manual_seed(0)
        model = nn.Linear(10, 1)
        optimizer = ad.optim.SGD(model.parameters(), lr=0.01)
        criterion = nn.MSELoss()
        inputs, targets = ad.randn(32, 10), ad.randn(32, 1)
        history = []
        lines = []
        for step in range(100):
            optimizer.zero_grad()
            loss = criterion(model(inputs), targets)
            history.append(loss.item())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
            optimizer.step()
            if step % 10 == 0:
                norm = sum(p.grad.norm().item() ** 2 for p in model.parameters()) ** 0.5
                assert norm <= 1.0 + 1e-6
                lines.append(f"Step {step:3d}: loss={history[-1]:.4f}, grad_norm={norm:.4f}")
        assert len(lines) == 10 and lines[1].startswith("Step  10: loss=")
        assert f"{type(history[0])}" == "<class 'float'>"
        assert history[-1] < history[0]
        assert all(b <= a for a, b in zip(history, history[1:], strict=False))

    def test_linear_layer_example(self) -> None:
        """F119: weight.grad has shape (1, 4), bias.grad (1,)."""
        model = nn.Linear(4, 1)
        x, y = ad.randn(8, 4), ad.randn(8, 1)
        ((model(x) - y) ** 2).mean().backward()
        assert tuple(model.weight.grad.shape) == (1, 4)
        assert tuple(model.bias.grad.shape) == (1,)
        residual = values(model(x) - y)
        near(model.weight.grad, 2 * (residual * values(x)).mean(0, keepdims=True), rtol=1e-5)
        near(model.bias.grad, 2 * residual.mean(0), rtol=1e-5)

    def test_practice_one(self) -> None:
        """F108: L = (Wx - y)**2 at W = [1, 2, 3], x = [1, -1, 2], y = 1: L = 16, dL/dW = [8, -8,
        16].
        """
        w = leaf([[1.0, 2.0, 3.0]])
        loss = ((w @ const([1.0, -1.0, 2.0]) - const([1.0])) ** 2).sum()
        loss.backward()
        assert loss.item() == 16.0
        exact(w.grad, [[8.0, -8.0, 16.0]])

    def test_micro_batches_equal_one_batch(self) -> None:
        """F75: gradients of four quarters add up to the gradient of the whole."""
        ad.manual_seed(0)
        model = nn.Linear(6, 2).double()
        x, y = const(randoms(8, 6)), const(randoms(8, 2, seed=1))
        ((model(x) - y) ** 2).mean().backward()
        want = [values(p.grad) for p in model.parameters()]
        model.zero_grad()
        for k in range(4):
            part = slice(2 * k, 2 * k + 2)
            (((model(x[part]) - y[part]) ** 2).mean() / 4).backward()
        for p, g in zip(model.parameters(), want, strict=True):
            near(p.grad, g)

    def test_loss_scaling(self) -> None:
        """F99: scaling the loss by 65536 and dividing the gradients gives the same gradients."""
        w = leaf([1.0, 2.0])
        (w * w).sum().backward()
        want = values(w.grad)
        w.grad = None
        ((w * w).sum() * 65536.0).backward()
        w.grad /= 65536.0
        exact(w.grad, want)

    def test_loss_accumulated_over_iterations(self) -> None:
        """F97, table 1i: works with one backward; what crashes is running the same part twice."""
        model = nn.Linear(3, 1)
        total = sum((model(ad.randn(4, 3)) ** 2).mean() for _ in range(3))
        total.backward()
        assert model.weight.grad is not None

        w = leaf([0.5])
        state = const([1.0])
        losses = []
        for _ in range(2):
            state = (w * state).tanh()  # never detached
            losses.append((state * state).sum())
        losses[0].backward()
        with pytest.raises(RuntimeError, match="second time"):
            losses[1].backward()

    def test_training_under_no_grad_is_not_silent(self) -> None:
        """F50, table 1i: backward raises; it does not 'do nothing'."""
        model = nn.Linear(3, 1)
        with ad.no_grad():
            loss = model(ad.randn(2, 3)).sum()
        with pytest.raises(RuntimeError, match="does not require grad"):
            loss.backward()

    def test_non_scalar_backward_and_its_fixes(self) -> None:
        """F21: loss.mean().backward(), or a gradient of the loss's shape."""
        x = leaf([1.0, 2.0, 3.0])
        loss = x * x
        with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar"):
            loss.backward()
        loss.mean().backward()
        near(x.grad, np.array([2.0, 4.0, 6.0]) / 3)
        x.grad = None
        (x * x).backward(ad.ones_like(x))
        exact(x.grad, [2.0, 4.0, 6.0])


class StableLogSumExp(Function):
    """The guide's first custom function."""

    @staticmethod
    def forward(ctx: Any, x: Any, dim: int) -> Any:
        ctx.dim = dim
        max_val = x.max(dim=dim, keepdim=True).values
        shifted = x - max_val
        exp_sum = shifted.exp().sum(dim=dim, keepdim=True)
        ctx.save_for_backward(x, max_val)
        return max_val.squeeze(dim) + exp_sum.log().squeeze(dim)

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        x, max_val = ctx.saved_tensors
        dim = ctx.dim
        shifted = (x - max_val).exp()
        softmax = shifted / shifted.sum(dim=dim, keepdim=True)
        return grad_output.unsqueeze(dim) * softmax, None


class StraightThroughEstimator(Function):
    """The guide's second custom function."""

    @staticmethod
    def forward(ctx: Any, x: Any, num_bits: int = 8) -> Any:
        scale = 2**num_bits - 1
        return x.mul(scale).round().div(scale)

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        return grad_output, None


class TestCustomGradients:
    def test_gradcheck_passes(self) -> None:
        """F52: StableLogSumExp gradcheck: PASSED."""
        x = ad.randn(4, 8, requires_grad=True, dtype=ad.float64)
        result = ad.autograd.gradcheck(
            lambda x: StableLogSumExp.apply(x, 1), (x,), eps=1e-6, atol=1e-4
        )
        assert f"StableLogSumExp gradcheck: {'PASSED' if result else 'FAILED'}".endswith(": PASSED")

    def test_gradient_rows_sum_to_one(self) -> None:
        """F52, table 1i: shape (3, 10), row sums 1.0000, and a plain tensor without a grad_fn."""
        x = ad.randn(3, 10, requires_grad=True)
        StableLogSumExp.apply(x, dim=1).sum().backward()
        assert tuple(x.grad.shape) == (3, 10)
        sums = x.grad.sum(dim=1)
        assert (
            repr(sums) == "tensor([1.0000, 1.0000, 1.0000])" or repr(sums) == "tensor([1., 1., 1.])"
        )
        assert sums.grad_fn is None

    def test_beyond_88(self) -> None:
        """F52, F102: logits of 1000 in float32 are no problem."""
        x = ad.full((1, 4), 1000.0, requires_grad=True)
        out = StableLogSumExp.apply(x, 1)
        assert out.item() == pytest.approx(1000.0 + np.log(4.0))
        out.sum().backward()
        exact(x.grad, np.full((1, 4), 0.25))

    def test_straight_through(self) -> None:
        """F53: weights.grad.unique() is tensor([1.])."""
        weights = ad.randn(4, 4, requires_grad=True)
        quantized = StraightThroughEstimator.apply(weights, 8)
        quantized.sum().backward()
        assert tuple(weights.grad.shape) == (4, 4)
        assert repr(weights.grad.unique()) == "tensor([1.])"
        near(quantized * 255, np.round(values(quantized * 255)), rtol=0, atol=1e-4)

    def test_straight_through_with_default_bits(self) -> None:
        """F53: apply(weights) without num_bits."""
        weights = ad.randn(4, requires_grad=True)
        StraightThroughEstimator.apply(weights).sum().backward()
        exact(weights.grad, np.ones(4))

    def test_recompute_in_backward(self) -> None:
        """F84: manual checkpointing: keep the input, recompute the rest, same gradient."""

        class Recompute(Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return x.sin().exp().tanh()

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                (x,) = ctx.saved_tensors
                with ad.enable_grad():
                    again = x.detach().requires_grad_()
                    out = again.sin().exp().tanh()
                return ad.autograd.grad(out, again, g)[0]

        x = leaf(randoms(5))
        (got,) = ad.autograd.grad(Recompute.apply(x).sum(), x)
        exact(got, values(ad.autograd.grad(x.sin().exp().tanh().sum(), x)[0]))


class TestInferenceContexts:
    def test_prints(self) -> None:
        """F47: the four printed lines. Table 1i: tensor(1.23, requires_grad=True) is a leaf."""
        training_loss = ad.tensor(1.23, requires_grad=True)
        assert training_loss.grad_fn is None
        loss_for_log = training_loss.detach()
        loss_scalar = training_loss.item()
        encoder_output = ad.randn(8, 128, requires_grad=True)
        stop_gradient = encoder_output.detach()
        lines = [
            f"Training loss requires_grad: {training_loss.requires_grad}",
            f"Detached loss requires_grad: {loss_for_log.requires_grad}",
            f".item() returns Python type: {type(loss_scalar)}",
            f"Stop-gradient tensor requires_grad: {stop_gradient.requires_grad}",
        ]
        assert lines == [
            "Training loss requires_grad: True",
            "Detached loss requires_grad: False",
            ".item() returns Python type: <class 'float'>",
            "Stop-gradient tensor requires_grad: False",
        ]

    def test_predictions_do_not_require_grad(self) -> None:
        """F46, F49: three contexts, the same numbers."""
        model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 10))
        x = ad.randn(8, 16)
        default = model(x)
        with ad.no_grad():
            quiet = model(x)
        with ad.inference_mode():
            predictions = model(x)
        assert default.requires_grad
        assert not quiet.requires_grad and not predictions.requires_grad
        exact(quiet, values(default))
        exact(predictions, values(default))

    def test_stop_gradient_inside_a_model(self) -> None:
        """F48: the detached branch contributes nothing to the shared layer."""
        shared = leaf(randoms(4))
        encoder_output = shared.tanh()
        loss = (encoder_output * 2.0).sum() + (encoder_output.detach() * 100.0).sum()
        loss.backward()
        near(shared.grad, 2.0 * (1 - np.tanh(values(shared)) ** 2))


class TestSharing:
    def test_multi_task(self) -> None:
        """F120: two heads on one trunk: retain on all but the last loss."""
        ad.manual_seed(0)
        trunk, head_a, head_b = nn.Linear(4, 8), nn.Linear(8, 1), nn.Linear(8, 1)
        x = ad.randn(5, 4)
        features = trunk(x).tanh()
        loss_a, loss_b = head_a(features).pow(2).mean(), head_b(features).abs().mean()
        loss_a.backward(retain_graph=True)
        loss_b.backward()
        separate = values(trunk.weight.grad)
        trunk.zero_grad()
        features = trunk(x).tanh()
        (head_a(features).pow(2).mean() + head_b(features).abs().mean()).backward()
        near(trunk.weight.grad, separate, rtol=1e-5, atol=1e-6)

    def test_recurrent_weight_sharing(self) -> None:
        """F120: the gradients of all time steps accumulate in the shared weight."""
        w = leaf(0.9)
        h = const(1.0)
        for _ in range(5):
            h = (w * h).tanh()
        h.backward()
        step = 1e-6
        sides = []
        for sign in (1, -1):
            state = 1.0
            for _ in range(5):
                state = np.tanh((0.9 + sign * step) * state)
            sides.append(state)
        assert w.grad.item() == pytest.approx((sides[0] - sides[1]) / (2 * step), rel=1e-8)

    def test_adversarial_pair(self) -> None:
        """F120: each player's step leaves the gradients of the other alone."""
        ad.manual_seed(0)
        generator, discriminator = nn.Linear(2, 3), nn.Linear(3, 1)
        noise, real = ad.randn(4, 2), ad.randn(4, 3)
        fake = generator(noise)
        loss_d = discriminator(fake.detach()).mean() - discriminator(real).mean()
        loss_d.backward()
        assert generator.weight.grad is None and discriminator.weight.grad is not None
        kept = values(discriminator.weight.grad)
        loss_g = -discriminator(fake).mean()
        gradients = ad.autograd.grad(loss_g, list(generator.parameters()))
        assert all(g is not None for g in gradients)
        exact(discriminator.weight.grad, kept)

    def test_names_of_the_mlp_nodes(self) -> None:
        """F2: Linear is AddmmBackward0, ReLU is ReluBackward0."""
        model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
        out = model(ad.randn(2, 4))
        assert node_name(out) == "ReluBackward0"
        assert out.grad_fn.next_functions[0][0].name() == "AddmmBackward0"
