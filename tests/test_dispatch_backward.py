"""What a mode with `__torch_dispatch__` sees of convolutions, norms and losses, forward and
backward (F123): PyTorch's operators, arguments in the order of their schemas; the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import adjoint as ad
from adjoint.utils._python_dispatch import TorchDispatchMode

F = ad.nn.functional


class Log(TorchDispatchMode):
    """Notes the operators that have one of these words in their names, with shapes for tensors."""

    def __init__(self, *words: str) -> None:
        super().__init__()
        self.words, self.seen = words, []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if any(w in str(func) for w in self.words):
            self.seen.append((str(func), [_short(a) for a in args], kwargs or {}))
        return out


def _short(x: Any) -> Any:
    return tuple(x.shape) if isinstance(x, ad.Tensor) else x


def made(*shape: int) -> Any:
    ad.manual_seed(len(shape))
    return ad.randn(*shape, requires_grad=True)


def test_a_convolution_and_its_backward() -> None:
    """F123: nine arguments forward; backward the sizes of the bias and which are wanted."""
    x, w, b = made(2, 4, 8, 8), made(6, 2, 3, 3), made(6)
    with Log("convolution") as log:
        F.conv2d(x, w, b, stride=2, padding=1, groups=2).sum().backward()
        F.conv1d(ad.ones(1, 1, 5), made(1, 1, 2)).sum().backward()
    assert log.seen[0] == ("aten.convolution.default", [
        (2, 4, 8, 8), (6, 2, 3, 3), (6,), [2, 2], [1, 1], [1, 1], False, [0, 0], 2], {})
    assert log.seen[1] == ("aten.convolution_backward.default", [
        (2, 6, 4, 4), (2, 4, 8, 8), (6, 2, 3, 3), [6], [2, 2], [1, 1], [1, 1], False, [0, 0], 2,
        [True, True, True]], {})
    assert log.seen[3][1][3:] == [[0], [1], [0], [1], False, [0], 1, [False, True, False]]


def test_a_transposed_convolution() -> None:
    """F123: it says so."""
    x, w = made(1, 3, 5, 5), made(3, 2, 3, 3)
    with Log("convolution") as log:
        F.conv_transpose2d(x, w, stride=2).sum().backward()
    assert [(n, a[6 if n == "aten.convolution.default" else 7]) for n, a, _ in log.seen] == [
        ("aten.convolution.default", True), ("aten.convolution_backward.default", True)]


def test_norms() -> None:
    """F123: statistics have PyTorch's shapes, forward and backward."""
    x, w, b = made(2, 4, 6), made(4), made(4)
    with Log("norm") as log:
        F.group_norm(x, 2, w, b).sum().backward()
        F.layer_norm(x, (4, 6)).sum().backward()
        F.batch_norm(x, None, None, w, b, training=True).sum().backward()
        F.batch_norm(x, ad.zeros(4), ad.ones(4)).sum().backward()
    seen = {(n.split(".")[1], len(a)): a for n, a, _ in log.seen}
    assert seen["native_group_norm", 8] == [(2, 4, 6), (4,), (4,), 2, 4, 6, 2, 1e-5]
    assert seen["native_group_norm_backward", 10] == [
        (2, 4, 6), (2, 4, 6), (2, 2), (2, 2), (4,), 2, 4, 6, 2, [True, True, True]]
    assert seen["native_layer_norm", 5] == [(2, 4, 6), [4, 6], None, None, 1e-5]
    assert seen["native_layer_norm_backward", 8] == [
        (2, 4, 6), (2, 4, 6), [4, 6], (2, 1, 1), (2, 1, 1), None, None, [True, False, False]]
    backward = [a for n, a, _ in log.seen if n == "aten.native_batch_norm_backward.default"]
    assert [a[7:] for a in backward] == [[True, 1e-5, [True, True, True]],
                                         [False, 1e-5, [True, False, False]]]


def test_losses_and_softmax() -> None:
    """F123: cross-entropy is log_softmax and nll_loss; reductions are numbers, usual ones go."""
    x, t = made(3, 4), ad.tensor([0, 2, 1])
    with Log("nll", "softmax", "loss", "entropy") as log:
        F.cross_entropy(x, t).backward()
        F.mse_loss(x, ad.zeros(3, 4), reduction="sum").backward()
        F.binary_cross_entropy(x.sigmoid(), ad.ones(3, 4)).backward()
        F.smooth_l1_loss(x, ad.zeros(3, 4), beta=0.5).backward()
    assert [(n.removeprefix("aten.").removesuffix(".default"), a[1:]) for n, a, _ in log.seen] == [
        ("_log_softmax", [1, False]), ("nll_loss_forward", [(3,), None, 1, -100]),
        ("nll_loss_backward", [(3, 4), (3,), None, 1, -100, ()]),
        ("_log_softmax_backward_data", [(3, 4), 1, ad.float32]),
        ("mse_loss", [(3, 4), 2]), ("mse_loss_backward", [(3, 4), (3, 4), 2]),
        ("binary_cross_entropy", [(3, 4)]),
        ("binary_cross_entropy_backward", [(3, 4), (3, 4), None]),
        ("smooth_l1_loss", [(3, 4), 1, 0.5]),
        ("smooth_l1_loss_backward", [(3, 4), (3, 4), 1, 0.5])]


PROGRAMS: dict[str, Callable[[], Any]] = {
    "conv": lambda: F.conv2d(made(2, 3, 6, 6), made(4, 3, 3, 3), made(4), padding=1).relu(),
    "transposed": lambda: F.conv_transpose1d(made(2, 3, 5), made(3, 2, 3), made(2), 2, 1, 1),
    "padded": lambda: F.conv1d(made(2, 3, 5), made(4, 3, 2), padding="same"),
    "layer": lambda: F.layer_norm(made(2, 3, 5), (5,), made(5), made(5)),
    "group": lambda: F.group_norm(made(2, 4, 6), 2, made(4), made(4)),
    "instance": lambda: F.instance_norm(made(2, 4, 6)),
    "batch": lambda: F.batch_norm(made(3, 4, 2), ad.zeros(4), ad.ones(4), made(4), None, True),
    "nll": lambda: F.nll_loss(made(3, 4, 2, 2), ad.ones(3, 2, 2, dtype=ad.int64), reduction="none"),
    "weights": lambda: F.cross_entropy(made(3, 4), ad.tensor([0, 2, 1]), ad.arange(4.0)),
    "mse": lambda: F.mse_loss(made(3, 4), made(3, 4) * 2),
    "huber": lambda: F.huber_loss(made(3, 4), ad.zeros(3, 4), delta=0.5),
    "embedding": lambda: F.embedding(ad.tensor([0, 2, 2]), made(4, 3)),
    "activations": lambda: F.softplus(F.elu(F.hardtanh(F.leaky_relu(F.gelu(F.silu(made(9))))))),
    "softmax": lambda: made(2, 3).softmax(-1).sigmoid().tanh(),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("inside", [1, 2, 0])
def test_modes_change_no_number(name: str, inside: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """F123: of one mode, of two, and of one that is closed before backward."""
    leaves: list[Any] = []

    def noted(*shape: int) -> Any:
        ad.manual_seed(len(shape))
        leaves.append(ad.randn(*shape, requires_grad=True))
        return leaves[-1]
    monkeypatch.setitem(globals(), "made", noted)

    def backward(y: Any) -> list[Any]:
        (y * ad.arange(1.0, y.numel() + 1).reshape(y.shape)).sum().backward()
        found = [y.detach(), *[t.grad for t in leaves]]
        leaves.clear()
        return found
    want = backward(PROGRAMS[name]())
    with Log():
        if inside == 2:
            with Log():
                got = backward(PROGRAMS[name]())
        else:
            y = PROGRAMS[name]()
            got = backward(y) if inside else []
    got = got or backward(y)
    for a, b in zip(got, want, strict=True):
        ad.testing.assert_close(a, b, rtol=2e-5, atol=1e-6)


def test_a_backward_that_is_recorded_comes_rule_by_rule() -> None:
    """F123: so that it can be differentiated again."""
    x = made(3, 4).double().detach().requires_grad_()

    def first() -> Any:
        return ad.autograd.grad(F.layer_norm(x, (4,)).pow(3).sum(), x, create_graph=True)[0]

    def second(g: Any) -> Any:
        return ad.autograd.grad(g.pow(2).sum(), x)[0]
    with Log("backward") as log:
        g = first()
    assert not any("native_layer_norm_backward" in n for n, *_ in log.seen)
    with log:
        got = second(g)
    ad.testing.assert_close(got, second(first()))


def test_operators_of_backward_can_be_called() -> None:
    """F123: with PyTorch's arguments, defaults left out."""
    aten = ad.ops.aten
    x, w = ad.ones(1, 2, 4), ad.ones(3, 2, 2)
    dx, dw, db = aten.convolution_backward.default(
        ad.ones(1, 3, 3), x, w, [3], [1], [0], [1], False, [0], 1, [True, True, True])
    assert dx.tolist() == [[[3.0, 6.0, 6.0, 3.0]] * 2]
    assert dw.shape == w.shape and db.tolist() == [3.0, 3.0, 3.0]
    assert aten.threshold_backward(ad.ones(2), ad.tensor([-1.0, 2.0]), 0).tolist() == [0.0, 1.0]
    grad = aten.binary_cross_entropy_backward(ad.tensor(1.0), ad.tensor([0.5]), ad.ones(1), None)
    assert grad.tolist() == [-2.0]


def test_modes_see_the_backward_of_transforms_and_random_draws() -> None:
    """What `func.grad` and `func.vjp` pull back ran past the modes, and draws in place did."""
    x = made(3)
    f = ad.func
    for run in (lambda: f.grad(lambda z: z.tanh().sum())(x), lambda: f.vjp(ad.tanh, x)[1](x),
                lambda: f.vmap(f.grad(ad.tanh))(x)):
        want = run()
        with Log("tanh_backward") as log:
            got = run()
        assert len(log.seen) == 1 and log.seen[0][0].startswith("aten.tanh_backward")
        ad.testing.assert_close(got, want)
    with Log("bernoulli", "uniform", "normal", "multinomial") as log:
        ad.bernoulli(ad.full((2,), 0.5))
        x.clone().bernoulli_(0.5).uniform_().normal_()
        ad.multinomial(ad.ones(2), 1)
    names = [name for name, *_ in log.seen]
    assert names == ["aten.bernoulli.default", "aten.bernoulli_.float", "aten.uniform_.default",
                     "aten.normal_.default", "aten.multinomial.default"]
