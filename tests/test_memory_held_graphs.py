"""Predictions of steps that go back through, replace or drop graphs recorded before them: the
bytes are the measured ones, and the graphs stay as they were."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from helpers_memory import agree

import adjoint as ad
from adjoint import nn
from adjoint.kernels import alloc
from adjoint.utils.checkpoint import checkpoint

pytestmark = [
    pytest.mark.skipif(not alloc.available(), reason="needs the counting allocator"),
    pytest.mark.usefixtures("no_collector"),
]
Step = Callable[[], Any]


class Halves(ad.autograd.Function):
    """x^2, of which the context keeps one factor itself."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        ctx.half = x * 0.5
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, = ctx.saved_tensors
        return g * (ctx.half * 2 + x)


def _loss(held: Any, net: Any, x: Any) -> Step:
    held.loss = net(x).exp().sum()
    return lambda: held.loss.backward()


def _retained(held: Any, net: Any, x: Any) -> Step:
    held.y = net(x).exp()
    held.y.retain_grad()
    held.loss = held.y.sum()

    def step() -> None:
        held.loss.backward(retain_graph=True)
        held.y.grad = None
    return step


def _list(held: Any, net: Any, x: Any) -> Step:
    held.losses = [net(x).square().sum() for _ in range(3)]

    def step() -> None:
        sum(held.losses).backward()
        held.losses.clear()
    return step


def _several_outputs(held: Any, net: Any, x: Any) -> Step:
    held.a, held.b = net(x).split(2, 1)
    return lambda: (held.a.exp() * held.b).sum().backward()


def _function(held: Any, net: Any, x: Any) -> Step:
    held.y = Halves.apply(net(x))
    return lambda: held.y.sum().backward()


def _second_order(held: Any, net: Any, x: Any) -> Step:
    z = held.z = x.clone().requires_grad_()
    held.g, = ad.autograd.grad(net(z).sum(), z, create_graph=True)

    def step() -> None:
        held.g.square().sum().backward()
        del held.g
    return step


def _written(held: Any, net: Any, x: Any) -> Step:
    held.y = net(x)
    held.y[0].mul_(2)
    held.y[1:].exp_()
    return lambda: held.y.sum().backward()


def _recurrent(held: Any, net: Any, x: Any) -> Step:
    held.net = nn.LSTM(8, 8)
    held.out, held.state = held.net(x[None])
    return lambda: held.out.sum().backward()


def _dropped(held: Any, net: Any, x: Any) -> Step:
    held.y = net(x).exp()

    def step() -> None:
        held.y = None
        net(x)
    return step


CASES = (_loss, _retained, _list, _several_outputs, _function, _second_order, _written,
         _recurrent, _dropped)


@pytest.mark.row("F79")
@pytest.mark.parametrize("case", CASES, ids=lambda f: f.__name__[1:])
def test_a_graph_recorded_before_the_step(case: Callable[..., Step]) -> None:
    """Two predictions (the first must not use the graph up), then the run itself."""
    held, net = SimpleNamespace(), nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    step = case(held, net, ad.randn(5, 8))
    first = ad.memory.predict(step)
    assert all(p.grad is None for p in net.parameters())
    predicted, measured = agree(step)
    assert predicted.timeline == first.timeline
    assert predicted.roles == measured.roles
    assert case is _dropped or any(p.grad is not None for p in (
        held.net if case is _recurrent else net).parameters())


def test_what_only_the_graph_leads_to() -> None:
    """A weight that the step never names gets no gradient from a prediction; an input that
    somebody else holds is not freed with the graph."""
    w, x = nn.Parameter(ad.ones(50, 50)), ad.ones(8, 50)
    elsewhere = iter([x])                    # the search does not look into iterators
    loss = (x @ w).exp().sum()
    del x
    predicted, _ = agree(lambda: loss.backward())
    assert predicted.live - predicted.before == w.array.nbytes - 8 * 50 * 4     # what exp() kept
    assert w.grad is not None and next(elsewhere).shape == (8, 50)


def test_an_update_inside_of_backward() -> None:
    """Optimizers that only hooks of leaves lead to have no state after a prediction."""
    net, x = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)), ad.randn(5, 8)
    optimizers = {p: ad.optim.Adam([p]) for p in net.parameters()}

    def update(p: Any) -> None:
        optimizers[p].step()
        optimizers[p].zero_grad()
    for p in net.parameters():
        p.register_post_accumulate_grad_hook(update)

    def step() -> None:
        net(x).square().sum().backward()
    predicted = ad.memory.predict(step)
    assert predicted.roles["optimizer state"] > 0
    assert not any(o.state for o in optimizers.values())
    for _ in range(2):
        predicted, measured = agree(step)
        assert predicted.roles == measured.roles
    assert all(p.grad is None for p in net.parameters())


def test_hooks_of_a_held_graph_run_and_are_put_back() -> None:
    net, x, seen = nn.Linear(8, 4), ad.randn(5, 8), []
    y = net(x)
    y.register_hook(lambda g: seen.append(g * 2))
    predicted, _ = agree(lambda: y.sum().backward())
    assert len(seen) == 1 and seen[0].tolist() == [[2.0] * 4] * 5


def test_residuals_that_hooks_packed_are_refused() -> None:
    net, x = nn.Sequential(nn.Linear(8, 4), nn.Tanh()), ad.randn(5, 8)
    loss = checkpoint(net, x, use_reentrant=False).sum()
    with pytest.raises(ValueError, match=r"TanhBackward0, made at .*test_memory_held_graphs.*"
                                         "record the graph inside of the step"):
        ad.memory.predict(lambda: loss.backward())
    loss.backward()
    assert net[0].weight.grad is not None
