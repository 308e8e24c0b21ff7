"""What an older view is after its base was written to, and what writes without a gradient leave:
as PyTorch 2.13 answers the same programs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from helpers_engine import exact, leaf, node_name

import adjoint as ad

MANY = "returns multiple views. Such functions do not allow the output views to be modified inplace"
OUTDATED = "its base or another view of its base has been modified inplace"


class Flat(ad.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.view(-1)

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return ct.view(2, 2)


def under_no_grad(y: Any) -> Any:
    with ad.no_grad():
        return y[:1]


def under_inference(y: Any) -> Any:
    with ad.inference_mode():
        return y[:1]


KINDS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "chunk": (lambda y: y.chunk(2)[0], f"Output 0 of Split is a view and {OUTDATED}. This view is "
                                       f"the output of a function that {MANY}"),
    "split": (lambda y: y.split([1, 1])[1], "Output 1 of SplitWithSizes is a view and its base"),
    "unbind": (lambda y: y.unbind()[1], "Output 1 of Unbind is a view and its base"),
    "part of a part": (lambda y: y.unbind()[1][:1], "Output 0 of Slice is a view and its base"),
    "no_grad": (under_no_grad, f"A view was created in no_grad mode and {OUTDATED} with grad mode"),
    "Function": (Flat.apply, f"Output 0 of Flat is a view and {OUTDATED}. This view was created "
                             "inside a custom Function"),
}


class TestOutdatedViews:
    """Views that must not outlive a write to their base: its values may be read, no more."""

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_use_is_refused(self, kind: str) -> None:
        make, message = KINDS[kind]
        x = leaf([[1.0, 2.0], [3.0, 4.0]])
        y = x * 2
        v = make(y)
        y.mul_(2)
        for use in (lambda: v.grad_fn, lambda: v * 2, lambda: 2 - v, v.exp, v.sum, lambda: v[0],
                    lambda: ad.cat([v, v]), lambda: ad.relu(v),
                    lambda: v.register_hook(print), v.retain_grad):
            with pytest.raises(RuntimeError) as caught:
                use()
            assert message in str(caught.value)
        assert v.requires_grad and isinstance(v, ad.Tensor)

    def test_values_may_be_read(self) -> None:
        y = ad.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True) * 2
        a, b = y.chunk(2)
        y.mul_(2)
        exact(a.detach(), [4.0, 8.0])
        assert repr(a) == "tensor([4., 8.], grad_fn=<Invalid>)"
        assert (b > 13).tolist() == [False, True] and a._version == 1 and a.shape == (2,)
        with ad.no_grad():
            exact(a * 2, [8.0, 16.0])
            exact(a.exp().log(), [4.0, 8.0])
            a.mul_(0.5)
        exact(y.detach(), [2.0, 4.0, 12.0, 16.0])
        exact(copy.deepcopy(a.detach()), [2.0, 4.0])

    def test_a_write_to_it_says_so(self) -> None:
        y = leaf([1.0, 2.0]) * 2
        a, _ = y.chunk(2)
        y.mul_(2)
        with pytest.raises(RuntimeError, match=f"Output 0 of Split is a view and is being.*{MANY}"):
            a.add_(1)

    def test_a_base_that_begins_to_require_grad(self) -> None:
        w = leaf([1.0, 2.0])
        for make, mode in ((lambda y: y.chunk(2)[0], "no_grad"), (under_no_grad, "no_grad")):
            y = ad.zeros(2)
            v = make(y)
            y.mul_(w)
            assert v.requires_grad
            with pytest.raises(RuntimeError, match=f"created in {mode} mode and its base or an"):
                v * 2
        y = ad.zeros(2)
        v = under_inference(y)
        y.mul_(w)
        with pytest.raises(RuntimeError, match=f"in inference mode and {OUTDATED} in normal mode"):
            v * 2

    def test_parts_of_unsafe_functions_stay(self) -> None:
        x = leaf([1.0, 2.0])
        y = x * 2
        a, _ = y.unsafe_chunk(2)
        y.mul_(2)
        assert node_name(a) == "UnsafeSplitBackward0"

    def test_written_under_no_grad_they_stay(self) -> None:
        x = leaf([1.0, 2.0])
        y = x * 2
        a, _ = y.chunk(2)
        with ad.no_grad():
            y.mul_(2)
        exact(ad.autograd.grad(a.sum(), x)[0], [2.0, 0.0])


class TestShownAnew:
    VIEWS: dict[str, Callable[[Any], Any]] = {
        "slice": lambda y: y[1:], "select": lambda y: y[1], "diagonal": lambda y: y.diagonal(),
        "t": lambda y: y.t(), "permute": lambda y: y.permute(1, 0), "view": lambda y: y.view(-1),
        "narrow of t": lambda y: y.t().narrow(0, 1, 1), "unsqueeze": lambda y: y.unsqueeze(1),
        "windows": lambda y: y.view(-1).unfold(0, 2, 2),
        "as_strided": lambda y: y.as_strided((2,), (2,), 1)}

    @pytest.mark.parametrize("kind", VIEWS)
    def test_one_node_and_the_gradient_of_now(self, kind: str) -> None:
        """The derivative is that of the same program with copies, twice."""
        make = self.VIEWS[kind]
        x = leaf([[1.0, 2.0], [3.0, 4.0]])
        y = x * x
        v = make(y)
        y.mul_(x)
        assert node_name(v) == "AsStridedBackward0"
        assert type(v.grad_fn.next_functions[0][0]).__name__ == "MulBackward0"
        want = make(x * x * x)
        exact(v.detach(), want.detach())
        for old, new in ((v, want),):
            g = ad.autograd.grad((old * old).sum(), x, create_graph=True)[0]
            h = ad.autograd.grad((new * new).sum(), x, create_graph=True)[0]
            exact(g.detach(), h.detach())
            exact(ad.autograd.grad((g * g).sum(), x)[0], ad.autograd.grad((h * h).sum(), x)[0])

    def test_places_that_are_shown_twice_add_up(self) -> None:
        for make, want in ((lambda y: y.expand(2, 3), [4.0, 4.0, 4.0]),
                           (lambda y: y.unfold(0, 2, 1), [2.0, 4.0, 2.0])):
            x = leaf([0.0, 1.0, 2.0])
            y = x * 1
            v = make(y)
            y.mul_(2)
            exact(ad.autograd.grad(v.sum(), x)[0], want)

    def test_of_complex_as_pairs(self) -> None:
        x = ad.tensor([1 + 2j, 3 - 1j], requires_grad=True)
        y = x * 2
        r = ad.view_as_real(y)
        y.mul_(1j)
        exact(ad.autograd.grad(r[:, 0].sum(), x)[0], [-2j, -2j])

    def test_under_vmap(self) -> None:
        def f(x: Any) -> Any:
            y = x * 2
            v = y[1:]
            y.mul_(x)
            return (v * v).sum()
        xs = ad.tensor([[1.0, 2.0], [3.0, 4.0]])
        exact(ad.vmap(ad.func.grad(f))(xs), [[0.0, 16 * 8.0], [0.0, 16 * 64.0]])


class TestHooks:
    def test_of_what_a_view_was_before_a_write(self) -> None:
        """They wait for the gradient of the value before the write, which goes to the base."""
        x = leaf([1.0, 2.0, 3.0])
        y = x * 2
        v = y[:2]
        seen: list[Any] = []
        v.register_hook(lambda g: seen.append(("view", g.tolist())))
        y.register_hook(lambda g: seen.append(("base", g.tolist())))
        v.mul_(3)
        y.sum().backward()
        assert seen == [("base", [3.0, 3.0, 1.0])]
        exact(x.grad, [6.0, 6.0, 2.0])

    def test_registered_after_the_write(self) -> None:
        x = leaf([1.0, 2.0, 3.0])
        y = x * 2
        v = y[:2]
        v.mul_(3)
        seen: list[Any] = []
        v.register_hook(lambda g: seen.append(g.tolist()))
        (v.sum() + y.sum()).backward()
        assert seen == [[1.0, 1.0]]
        exact(x.grad, [12.0, 12.0, 2.0])


WRITES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "zero_": (lambda y: y.zero_(), "ZeroBackward0"),
    "fill_": (lambda y: y.fill_(1.0), "FillBackward2"),
    "fill_ of a tensor": (lambda y: y.fill_(ad.tensor(1.0)), "FillBackward3"),
    "copy_": (lambda y: y.copy_(ad.ones(3)), "CopyBackwards"),
    "uniform_": (lambda y: y.uniform_(), "UniformBackward0"),
    "normal_": (lambda y: y.normal_(), "NormalBackward0"),
    "random_": (lambda y: y.random_(), "RandomBackward2"),
    "bernoulli_": (lambda y: y.bernoulli_(), "BernoulliBackward2"),
    "exponential_": (lambda y: y.exponential_(), "ExponentialBackward0"),
    "cauchy_": (lambda y: y.cauchy_(), "CauchyBackward0"),
    "geometric_": (lambda y: y.geometric_(0.5), "GeometricBackward0"),
    "log_normal_": (lambda y: y.log_normal_(), "LogNormalBackward0"),
    "eq_": (lambda y: y.eq_(1.0), "EqBackward0"), "lt_": (lambda y: y.lt_(1.0), "LtBackward0"),
}


class TestWritesWithoutAGradient:
    @pytest.mark.parametrize("kind", WRITES)
    def test_the_value_before_counts_no_more(self, kind: str) -> None:
        write, name = WRITES[kind]
        x = leaf([1.0, 2.0, 3.0])
        y = x * 2
        write(y)
        assert y.requires_grad and node_name(y) == name
        exact(ad.autograd.grad(y.sum(), x)[0], [0.0, 0.0, 0.0])

    @pytest.mark.parametrize("kind", WRITES)
    def test_of_a_part(self, kind: str) -> None:
        x = leaf([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        y = x * 2
        WRITES[kind][0](y[1])
        assert node_name(y) == "CopySlices"
        exact(ad.autograd.grad(y.sum(), x)[0], [[2.0, 2.0, 2.0], [0.0, 0.0, 0.0]])

    def test_a_leaf_is_refused(self) -> None:
        x = leaf([1.0, 2.0, 3.0])
        for kind in ("uniform_", "zero_", "eq_"):
            with pytest.raises(RuntimeError, match="leaf"):
                WRITES[kind][0](x)
        exact(x.detach(), [1.0, 2.0, 3.0])


SHAPES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "t_": (lambda y: y.t_(), "TBackward1"),
    "unsqueeze_": (lambda y: y.unsqueeze_(0), "UnsqueezeBackward1"),
    "squeeze_": (lambda y: y.squeeze_(), "SqueezeBackward3"),
    "squeeze_(dim)": (lambda y: y.squeeze_(0), "SqueezeBackward4"),
    "squeeze_(dim=)": (lambda y: y.squeeze_(dim=0), "SqueezeBackward4"),
    "squeeze_(dims)": (lambda y: y.squeeze_((0,)), "SqueezeBackward5"),
    "transpose_": (lambda y: y.transpose_(0, 1), "TransposeBackward1"),
    "swapaxes_": (lambda y: y.swapaxes_(0, 1), "TransposeBackward1"),
    "as_strided_": (lambda y: y.as_strided_((3,), (1,)), "AsStridedBackward1"),
}


@pytest.mark.parametrize("kind", SHAPES)
def test_names_of_changes_of_shape(kind: str) -> None:
    change, name = SHAPES[kind]
    x = leaf([[1.0, 2.0, 3.0]])
    y = x * 2
    change(y)
    assert node_name(y) == name
    exact(ad.autograd.grad((y * y).sum(), x)[0], [[8.0, 16.0, 24.0]])


class TestOtherMemory:
    def test_of_a_result_has_no_derivative(self) -> None:
        x = leaf([1.0, 2.0, 3.0])
        y = x * 2
        y.set_(ad.ones(2, dtype=ad.float64))
        assert node_name(y) == "NotImplemented" and y._version == 1
        with pytest.raises(RuntimeError, match="derivative for set_ is not implemented"):
            y.sum().backward()

    def test_of_a_leaf_is_refused(self) -> None:
        with pytest.raises(RuntimeError, match="leaf"):
            leaf([1.0]).set_(ad.ones(2, dtype=ad.float64))

    def test_detach_of_a_view(self) -> None:
        y = leaf([1.0, 2.0]) * 2
        with pytest.raises(RuntimeError, match=r"gradient_as_bucket_view .* as the solution\.$"):
            y[:1].detach_()
