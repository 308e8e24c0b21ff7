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
                                     {"checkpoints": 1}, {"slots": 9}, {"budget": 10000}], ids=str)
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
    ({}, sqrt_chain(40)), ({"slots": 20}, sqrt_chain(40, slots=20)),
    ({"segments": "log"}, log_chain(40)), ({"checkpoints": 4}, revolve(40, 4))], ids=str)
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
@pytest.mark.parametrize(("options", "most"), [
    ({}, 4 * 31 + 3), ({"slots": 93}, 93 + 3), ({"slots": 62}, 62 + 3),
    ({"segments": "log"}, 2 * 10 + 12)], ids=str)
def test_thousand_layers(options: dict[str, Any], most: int) -> None:
    """O(sqrt N) and O(log N) arrays live at the peak, where the plain chain has a thousand."""
    alloc.install()
    x = leaf(randoms(5000))
    before = alloc.stats().live
    alloc.reset_peak()
    checkpoint_chain(stages(1000), x, **options).sum().backward()
    assert (alloc.stats().peak - before) / x.array.nbytes <= most + 0.01


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
        plain = simulate(measure(fns, x), [
            *(("all", i) for i in range(1, 9)), *(("back", i) for i in range(8, 0, -1))]).peak
        for share in (1.2, 1.0, 0.9):
            step = auto(fns, budget=int(plain * share) + x.array.nbytes)
            before = alloc.stats().live
            for _ in range(2):
                alloc.reset_peak()
                (g,) = ad.autograd.grad(step(x).sum(), x)
                exact(g, want)
                assert alloc.stats().peak - before <= step.budget
                del g

    def mlp(self) -> tuple[list[Any], Any]:
        return [ad.nn.Sequential(ad.nn.Linear(16, 64), ad.nn.GELU(), ad.nn.Linear(64, 16))
                for _ in range(6)], ad.randn(64, 16)

    def wide(self) -> tuple[list[Any], Any]:
        """Gradients of parameters are most of it."""
        sizes = [(16, 256), (256, 16), (16, 512), (512, 16), (16, 16)]
        return [ad.nn.Sequential(ad.nn.Linear(a, b), ad.nn.Tanh()) for a, b in sizes], \
            ad.randn(8, 16)

    def attention(self) -> tuple[list[Any], Any]:
        return [lambda t: (t @ t.mT).softmax(-1) @ t] * 5, leaf(randoms(2, 48, 16))

    def images(self) -> tuple[list[Any], Any]:
        sizes = [(3, 8), (8, 8), (8, 16), (16, 4)]
        return [ad.nn.Sequential(ad.nn.Conv2d(a, b, 3, padding=1), ad.nn.BatchNorm2d(b),
                                 ad.nn.ReLU()) for a, b in sizes], ad.randn(2, 3, 16, 16)

    @counting
    @pytest.mark.row("F71")
    @pytest.mark.parametrize("made", ["chain", "mlp", "wide", "attention", "images"])
    def test_everything_counts_and_the_least_works(self, made: str) -> None:
        """Work of operations, gradients of parameters and the result that is held: from the least
        budget that the error names, no byte beyond it, and no number of a module is changed."""
        alloc.install()
        ad.manual_seed(0)
        fns, x = getattr(self, made)()
        modules = [f for f in fns if isinstance(f, ad.nn.Module)]
        seen: list[int] = []
        for f in modules:
            next(f.parameters()).register_hook(lambda g: seen.append(1) or g)
        with pytest.raises(ad.memory.BudgetError) as caught:
            auto(fns, budget=1000)(x)
        for share in (1.0, 1.01, 1.2, 1.6):
            step, before = auto(fns, budget=int(caught.value.least * share)), alloc.stats().live
            step._plan(fns, x)
            assert not any([b.item() for f in modules for n, b in f.named_buffers() if "num" in n])
            alloc.reset_peak()
            y = step(x)
            y.sum().backward()
            assert alloc.stats().peak - before <= step.budget
            del y
            x.grad = None
            for f in modules:
                f.zero_grad()
                for n, b in f.named_buffers():
                    if "num" in n:
                        b.zero_()
        assert len(seen) == 4 * len(modules)

    def test_error_names_the_least(self) -> None:
        fns, x = self.chain()
        with pytest.raises(ad.memory.BudgetError) as caught:
            checkpoint_chain(fns, x, budget=1000)
        y = checkpoint_chain(fns, x, budget=caught.value.least)
        y.sum().backward()
        with pytest.raises(ad.memory.BudgetError):
            checkpoint_chain(fns, x, budget=int(caught.value.least * 0.98))

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
    with pytest.raises(ValueError, match="2 slots hold 3 stages at most, not 4: give at least 3"):
        checkpoint_chain(stages(4), x, slots=2)
    for bad in (0, 4, "cbrt"):
        with pytest.raises(ValueError, match="segments="):
            checkpoint_chain(stages(3), x, segments=bad)


def test_nesting() -> None:
    assert nest(sqrt_chain(9)) == [(0, 4, [0, 1, 2, 3]), 4, 5, 6, 7, 8]
    np.testing.assert_equal(len(nest(log_chain(1024))), 11)


class TestSegments:
    """Segments that are one node each: what goes beyond operations on one tensor."""

    def test_memory_of_forward(self) -> None:
        """Nothing is kept of a segment but its operand, and its graph is gone."""
        x = leaf(randoms(8))
        y = checkpoint_chain(stages(12), x, segments=3)
        names, node = [], y.grad_fn
        while node.next_functions:
            names.append(type(node).__name__)
            node = node.next_functions[0][0]
        assert names == ["TanhBackward0"] * 4 + ["SegmentBackward"] * 2

    def test_gradients_inside(self) -> None:
        """A stage may take gradients of its own, which reads what its operations saved."""
        def stage(t: Any) -> Any:
            with ad.enable_grad():
                (g,) = ad.autograd.grad(t.sin().sum(), t, create_graph=True)
            return t + g
        x = leaf(randoms(5))
        want = x
        for _ in range(6):
            want = stage(want)
        (g,) = ad.autograd.grad(want.sum(), x)
        (found,) = ad.autograd.grad(checkpoint_chain([stage] * 6, x, segments=3).sum(), x)
        exact(found, values(g))

    def test_random_numbers_and_gradients_inside(self) -> None:
        """The second try of such a segment draws what the first one drew."""
        def stage(t: Any) -> Any:
            t = ad.nn.functional.dropout(t, 0.5)
            (g,) = ad.autograd.grad(t.square().sum(), t, create_graph=True)
            return t + g
        x = leaf(randoms(50))
        ad.manual_seed(3)
        want = stage(stage(stage(stage(x))))
        (g,) = ad.autograd.grad(want.sum(), x)
        ad.manual_seed(3)
        y = checkpoint_chain([stage] * 4, x, segments=2)
        exact(y, values(want))
        (found,) = ad.autograd.grad(y.sum(), x)
        exact(found, values(g))

    def test_hooks_of_parameters_run_once(self) -> None:
        w, x = leaf(randoms(4, seed=1)), leaf(randoms(4))
        seen: list[Any] = []
        w.register_hook(lambda g: seen.append(values(g)) or g * 2)
        checkpoint_chain([lambda t: (t * w).sin()] * 6, x, segments=3).sum().backward()
        hooked = values(w.grad)
        plain = leaf(randoms(4, seed=1))
        checkpoint_chain([lambda t: (t * plain).sin()] * 6, x, segments=3).sum().backward()
        assert len(seen) == 1
        np.testing.assert_allclose(hooked, 2 * values(plain.grad), rtol=1e-12)

    def test_other_work_is_an_error(self) -> None:
        """The error names both operations and their lines."""
        runs: list[int] = []

        def stage(t: Any) -> Any:
            runs.append(1)
            return t.sin() if len(runs) <= 4 else t.cos()
        x = leaf(randoms(3))
        y = checkpoint_chain([stage] * 4, x, segments=2)
        with pytest.raises(ad.utils.checkpoint.CheckpointError,
                           match=r"(?s)Sin\w*\[3\] at .*test_checkpoint_chain.py:\d+.*Cos\w*\[3\]"):
            y.sum().backward()

    def test_fewer_operations_are_an_error(self) -> None:
        runs: list[int] = []

        def stage(t: Any) -> Any:
            runs.append(1)
            return t.sin().sin() if len(runs) <= 4 else t.sin()
        y = checkpoint_chain([stage] * 4, leaf(randoms(3)), segments=2)
        with pytest.raises(ad.utils.checkpoint.CheckpointError, match="2 operations .* 4 at first"):
            y.sum().backward()

    def test_written_operands(self) -> None:
        """A stage that writes to what its segment was given could not run again."""
        fns: list[Callable[[Any], Any]] = [lambda t: t.mul_(2.0), lambda t: t.sin()]
        with pytest.raises(RuntimeError, match="in-place operation"):
            checkpoint_chain(fns * 2, leaf(randoms(3)) * 1.0, segments=2)

    def test_trees_between_segments(self) -> None:
        """Stages that pass on tuples."""
        def stage(t: Any) -> Any:
            a, b = t if isinstance(t, tuple) else (t, t)
            return (a * b).sin(), a + b
        x = leaf(randoms(4))
        want: Any = x
        for _ in range(6):
            want = stage(want)
        (g,) = ad.autograd.grad((want[0] * want[1]).sum(), x)
        a, b = checkpoint_chain([stage] * 6, x, segments=3)
        (found,) = ad.autograd.grad((a * b).sum(), x)
        np.testing.assert_allclose(values(found), values(g), rtol=1e-12)

    def test_second_order(self) -> None:
        x = leaf(randoms(4))

        def second(chain: Callable[[Any], Any]) -> Any:
            (g,) = ad.autograd.grad(chain(x).sum(), x, create_graph=True)
            return values(ad.autograd.grad(g.square().sum(), x)[0])
        fns = stages(9)

        def plain(t: Any) -> Any:
            for f in fns:
                t = f(t)
            return t
        np.testing.assert_allclose(second(lambda t: checkpoint_chain(fns, t, segments=3)),
                                   second(plain), rtol=1e-12)
