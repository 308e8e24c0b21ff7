"""Chains under a schedule: the same bits, the memory and the runs that theory says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers_engine import exact, leaf, randoms, values

import adjoint as ad
from adjoint.kernels import alloc
from adjoint.memory.chain_run import measure, nest
from adjoint.memory.chains import log_chain, optimal_chain, revolve, simulate, sqrt_chain
from adjoint.utils.checkpoint import auto, checkpoint_chain

counting = pytest.mark.skipif(not alloc.available(), reason="needs the counting allocator")


def stages(n: int, calls: list[int] | None = None) -> list[Callable[[Any], Any]]:
    """`n` stages of one saved array each; every run is counted."""
    def stage(k: int) -> Callable[[Any], Any]:
        def f(x: Any) -> Any:
            if calls is not None:
                calls.append(k)
            return x.tanh()
        return f
    return [stage(k) for k in range(n)]


@pytest.mark.row("F71")
@pytest.mark.parametrize("n", [1, 2, 3, 7, 16, 33])
@pytest.mark.parametrize("options", [{}, {"segments": "log"}, {"segments": 1}, {"checkpoints": 3},
                                     {"checkpoints": 1}, {"budget": 10000}], ids=str)
def test_same_bits(n: int, options: dict[str, Any]) -> None:
    fns = [lambda t, k=k: (t * (1 + 0.01 * k)).sin().exp().tanh() for k in range(n)]
    x = leaf(randoms(6))
    y = x
    for f in fns:
        y = f(y)
    want = values(ad.autograd.grad(y.sum(), x)[0])
    exact(ad.autograd.grad(checkpoint_chain(fns, x, **options).sum(), x)[0], want)


@pytest.mark.row("F71")
@pytest.mark.parametrize(("options", "steps"), [
    ({}, sqrt_chain(40)), ({"segments": "log"}, log_chain(40)),
    ({"checkpoints": 4}, revolve(40, 4))], ids=str)
def test_runs_as_often_as_the_schedule(options: dict[str, Any], steps: Any) -> None:
    """A region's second run stops at its last residual, so it may save the run of its end."""
    from adjoint.memory.chains import equal_stages

    calls: list[int] = []
    x = leaf(randoms(4))
    checkpoint_chain(stages(40, calls), x, **options).sum().backward()
    planned = simulate(equal_stages(40), steps).forwards
    assert 0.75 * planned <= len(calls) <= planned


@counting
@pytest.mark.row("F71")
@pytest.mark.parametrize(("mode", "most"), [("sqrt", 2 * 32 + 8), ("log", 2 * 10 + 12)])
def test_thousand_layers(mode: str, most: int) -> None:
    """O(sqrt N) and O(log N) arrays live at the peak, where the plain chain has a thousand."""
    alloc.install()
    x = leaf(randoms(5000))
    before = alloc.stats().live
    alloc.reset_peak()
    checkpoint_chain(stages(1000), x, segments=mode).sum().backward()
    assert (alloc.stats().peak - before) / x.array.nbytes <= most


def test_modules_and_evaluation() -> None:
    ad.manual_seed(0)
    net = ad.nn.Sequential(*[ad.nn.Linear(4, 4) for _ in range(5)])
    x = ad.randn(3, 4)
    net(x).sum().backward()
    want = [values(p.grad) for p in net.parameters()]
    net.zero_grad()
    checkpoint_chain(net, x).sum().backward()
    for p, g in zip(net.parameters(), want, strict=True):
        exact(p.grad, g)
    with ad.no_grad():
        exact(checkpoint_chain(net, x, segments="log"), values(net(x)))


class TestBudget:
    def chain(self) -> tuple[list[Callable[[Any], Any]], Any]:
        """Unequal stages: wide ones in the middle."""
        widths = [8, 64, 256, 64, 8, 128, 8, 8]
        ws = [leaf(randoms(a, b, seed=a + b) / 8) for a, b in zip([8, *widths], widths,
                                                                  strict=False)]
        return [lambda t, w=w: (t @ w).tanh().sin() for w in ws], leaf(randoms(200, 8))

    @counting
    @pytest.mark.row("F71")
    def test_peak_within_the_budget(self) -> None:
        alloc.install()
        fns, x = self.chain()
        y = x
        for f in fns:
            y = f(y)
        want = values(ad.autograd.grad(y.sum(), x)[0])
        del y
        found = measure(fns, x)
        plain = sum(s.saved for s in found)
        for share in (1.6, 1.3, 1.1):
            step = auto(fns, budget=int(plain * share) + x.array.nbytes)
            step(x).sum().backward()
            x.grad = None
            before = alloc.stats().live
            alloc.reset_peak()
            (g,) = ad.autograd.grad(step(x).sum(), x)
            exact(g, want)
            gradients = 2 * sum(b * c * 8 for b, c in ((64, 256), (256, 64)))
            assert alloc.stats().peak - before <= step.budget + gradients

    def test_error_names_the_least(self) -> None:
        fns, x = self.chain()
        with pytest.raises(ad.memory.BudgetError) as caught:
            checkpoint_chain(fns, x, budget=1000)
        y = checkpoint_chain(fns, x, budget=int(caught.value.least * 1.01))
        y.sum().backward()

    def test_measured_stages(self) -> None:
        fns, x = self.chain()
        found = measure(fns, x)
        assert [s.output for s in found[:3]] == [200 * w * 8 for w in (8, 64, 256)]
        # tanh keeps its result, sin its operand (the same array): one, and the result of sin
        assert found[2].saved == 2 * 200 * 256 * 8 + 200 * 64 * 8 * 0
        assert all(s.forward > 0 and s.backward > 0 for s in found)
        assert optimal_chain(found, 10**9).seconds > 0


def test_wrong_arguments() -> None:
    x = leaf(randoms(3))
    with pytest.raises(ValueError, match="one of segments"):
        checkpoint_chain(stages(3), x, segments=2, checkpoints=1)
    for bad in (0, 4, "cbrt"):
        with pytest.raises(ValueError, match="segments="):
            checkpoint_chain(stages(3), x, segments=bad)


def test_nesting() -> None:
    assert nest(sqrt_chain(9)) == [(0, 4, [0, 1, 2, 3]), 4, 5, 6, 7, 8]
    np.testing.assert_equal(len(nest(log_chain(1024))), 11)
