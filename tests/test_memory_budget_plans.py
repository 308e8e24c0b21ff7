"""Budgets over steps that repeat: what is written out, what is planned, what is kept lean."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers_budget import SHAPE, chain, check, counted, exact, grads, leaf, peak_of, same

import adjoint as ad
from adjoint.kernels import alloc
from adjoint.memory.repeats import Repeats, Step
from adjoint.models.gpt import GPT, GPTConfig

__all__ = ["counted"]


class TestSpill:
    def test_sources_go_to_disk(self, tmp_path: Any) -> None:
        """Random factors cannot be computed again: they are written out."""
        x = leaf(0)

        def loss(x: Any) -> Any:
            ad.manual_seed(0)
            for _ in range(12):
                x = x * ad.rand(*SHAPE)
            return x.sum()

        report = check(loss, x, share=0.6, spill=str(tmp_path))
        assert report.spilled > 0 and not list(tmp_path.iterdir())

    def test_without_disk_it_is_an_error(self) -> None:
        x = leaf(0)
        with pytest.raises(ad.memory.BudgetError), \
                ad.memory.budget(alloc.live() + 8 * 65536, spill=False):
            y = x
            for _ in range(12):
                y = y * ad.rand(*SHAPE)
            y.sum().backward()

    def test_full_disk(self, monkeypatch: Any) -> None:
        """Nothing is lost: the run goes on in memory as far as it can, then says why."""
        from adjoint.memory.spill import SpillFile

        def full(*_: Any) -> int:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(SpillFile, "_pwrite", full)
        x = leaf(0)
        with pytest.raises(ad.memory.BudgetError), \
                ad.memory.budget(alloc.live() + 8 * 65536):
            y = x
            for _ in range(12):
                y = y * ad.rand(*SHAPE)
        same(grads(lambda x: (x * 2).sum(), x), [np.full(SHAPE, 2, np.float32)])


class TestPlanning:
    @pytest.fixture(autouse=True)
    def at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Plan these short steps though planning takes longer than they do."""
        monkeypatch.setattr(Repeats, "patience", 0.0)

    def _model(self) -> tuple[Any, Callable[[], Any]]:
        gc.collect()    # what earlier tests left would otherwise go between two measurements
        ad.manual_seed(0)
        model = GPT(GPTConfig(vocabulary=32, context=64, layers=4, heads=2, dim=32))
        rng = np.random.default_rng(0)
        x, y = (ad.tensor(rng.integers(0, 32, (16, 64))) for _ in range(2))

        def step() -> list[np.ndarray]:
            model.zero_grad()
            model.loss(x, y).backward()
            return [p.grad.numpy().copy() for p in model.parameters()]
        return model, step

    @exact
    @pytest.mark.parametrize("share", [0.8, 0.6, 0.5])
    def test_gpt_step(self, share: float) -> None:
        gc.collect()
        others = alloc.live()                 # what earlier tests left cannot be dropped
        _, step = self._model()
        want = step()
        full, _ = peak_of(step)
        limit = others + int((full - others) * share)
        with ad.memory.budget(limit) as held:
            every = []
            for _ in range(4):
                every.append(peak_of(step)[0])
        assert max(every) <= limit
        same(step(), want)
        report = held.report()
        assert report.planned == 3 and report.peak <= limit

    @exact
    def test_training(self) -> None:
        """Steps with an optimizer: the parameters end where they end without a budget."""
        ends = []
        for share in (None, 0.6):
            gc.collect()
            others = alloc.live()
            model, step = self._model()
            optimizer = ad.optim.AdamW(model.parameters(), lr=1e-2)
            step()
            optimizer.step()
            full, _ = peak_of(step)
            limit = others + int((full - others) * (share or 1))
            held = contextlib.nullcontext() if share is None else ad.memory.budget(limit)
            with held:
                for _ in range(3):
                    peak, _ = peak_of(step)
                    optimizer.step()
                    assert share is None or peak <= limit
            ends.append([p.detach().numpy().copy() for p in model.parameters()])
            del model, step, optimizer, held
        same(ends[1], ends[0])

    @exact
    def test_recorded_step_predicts_the_peak(self) -> None:
        """The trace that is planned has the live peak that was measured."""
        _, step = self._model()
        step()
        full, _ = peak_of(step)
        with ad.memory.budget("4GB") as held:
            step()
            measured, _ = peak_of(step)
        trace = held._repeats.known[0].trace()  # type: ignore[union-attr]  # plans are on
        assert abs(trace.peak() - measured) <= 0.02 * measured
        assert measured <= 1.1 * full

    @exact
    def test_a_different_step_ends_the_plan(self) -> None:
        x, w = leaf(0), leaf(1, 64, 64)
        depths = [12, 12, 12, 7, 12, 9, 9, 12]
        want = {d: grads(lambda x, w, d=d: chain(x, w, d).sum(), x, w) for d in set(depths)}
        gc.collect()                          # what earlier tests left is not part of the budget
        limit = alloc.live() + 26 * 65536
        with ad.memory.budget(limit) as held:
            for d in depths:
                peak, got = peak_of(lambda d=d: grads(  # type: ignore[misc]  # a default, bound now
                    lambda x, w: chain(x, w, d).sum(), x, w))
                same(got, want[d])
                assert peak <= limit
        assert held.report().planned >= 3


class TestLean:
    """The block of the sources: width 512, 8 heads, float32, norms after."""

    def block(self) -> Any:
        ad.manual_seed(0)
        attn = ad.nn.MultiheadAttention(512, 8, batch_first=True)
        ffn = ad.nn.Sequential(ad.nn.Linear(512, 2048), ad.nn.GELU(), ad.nn.Linear(2048, 512))
        norms = ad.nn.LayerNorm(512), ad.nn.LayerNorm(512)

        def forward(x: Any) -> Any:
            out, _ = attn(x, x, x)
            x = norms[0](x + out)
            return norms[1](x + ffn(x))
        leaves = [p for m in (attn, ffn, *norms) for p in m.parameters()]
        return forward, leaves

    @exact
    def test_bytes_and_bits(self) -> None:
        forward, leaves = self.block()
        x = leaf(0, 2, 512, 512)
        want = ad.autograd.grad(forward(x).sum(), [x, *leaves])
        each = 2 * 512 * 512
        kept = {}
        for name, held in (("plain", contextlib.nullcontext()), ("lean", ad.memory.lean())):
            before = alloc.live()
            with held:
                y = forward(x)
                kept[name] = (alloc.live() - before) / each       # the result's 4 bytes included
                got = ad.autograd.grad(y.sum(), [x, *leaves])
                del y
            same([g.numpy() for g in got], [w.numpy() for w in want])
            del got
        assert kept["plain"] <= 48.5 and kept["lean"] <= 44.5

    def test_products_of_gates(self) -> None:
        """SwiGLU: the product of two pointwise results is dropped, its operands are not."""
        x, w = leaf(0), leaf(1, 64, 64)
        F = ad.nn.functional

        def loss(x: Any, w: Any) -> Any:
            for _ in range(4):
                x = x + (F.silu(x @ w) * (x @ w.t())) @ w
            return x.sum()

        want = grads(loss, x, w)
        with ad.memory.lean() as held:
            got = grads(loss, x, w)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-4)
        assert held.report().runs >= 4


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_random_budgets_are_monotone(seed: int) -> None:
    """Whatever fits a budget fits every larger one, with the same bits."""
    rng = np.random.default_rng(seed)
    x, w = leaf(seed), leaf(seed + 100, 64, 64)
    depth = int(rng.integers(3, 16))
    want = grads(lambda x, w: chain(x, w, depth).sum(), x, w)
    base = alloc.live()
    worked = False
    for blocks in range(6, 60, 6):
        try:
            with ad.memory.budget(base + blocks * 65536 + (1 << 18)):
                got = grads(lambda x, w: chain(x, w, depth).sum(), x, w)
        except ad.memory.BudgetError:
            assert not worked
            continue
        worked = True
        same(got, want)
    assert worked


class TestPlannedSpilling:
    @exact
    def test_a_plan_spills_where_that_is_cheaper(self, monkeypatch: Any, tmp_path: Any) -> None:
        """From the second step on the file's own speed decides; a file that becomes much slower
        than planned has the step planned again."""
        from adjoint.memory.spill import SpillFile

        monkeypatch.setattr(Repeats, "patience", 0.0)
        monkeypatch.setattr(SpillFile, "latency", 0.0)
        monkeypatch.setattr(SpillFile, "try_out", lambda self: None)
        monkeypatch.setattr("adjoint.memory.spill._note", lambda *_: None)
        x, w = leaf(0), leaf(1, 64, 64)

        def loss(x: Any, w: Any) -> Any:
            return chain(x, w).sum()

        with ad.memory.budget("4GB"):
            want = grads(loss, x, w)
        full, _ = peak_of(lambda: grads(loss, x, w))
        base = alloc.live()
        held = ad.memory.budget(base + int((full - base) * 0.6), spill=str(tmp_path))
        for bandwidth, spills in ((1e15, True), (1.0, False)):
            monkeypatch.setattr(SpillFile, "bandwidth", bandwidth)
            for _ in range(3):
                with held:
                    same(grads(loss, x, w), want)
            before = held.report()
            with held:
                peak, got = peak_of(lambda: grads(loss, x, w))
            same(got, want)
            after = held.report()
            assert peak <= held.limit and after.planned > before.planned
            assert (after.spilled > before.spilled) == spills
            assert spills or after.runs > before.runs
        assert not list(tmp_path.iterdir())

    def test_trying_out_learns_the_speed(self, monkeypatch: Any) -> None:
        from adjoint.memory.spill import SpillFile

        monkeypatch.setattr(SpillFile, "bandwidth", 1e5)
        SpillFile().try_out()
        assert SpillFile.bandwidth > 1e7

    def test_what_makes_the_file_longer_tells_no_speed(self, monkeypatch: Any) -> None:
        """The system looks for space then; written over, the same place is several times faster."""
        from adjoint.memory.spill import SpillFile

        timed: list[int] = []
        monkeypatch.setattr("adjoint.memory.spill._note", lambda n, _: timed.append(n))
        file, block = SpillFile(), np.ones(1 << 20, np.uint8)
        first = file.write(block)
        assert timed == []
        del first
        again = file.write(block)
        assert timed == [1 << 20]
        assert np.array_equal(file.read(again), block) and len(timed) == 2

    @exact
    def test_a_speed_that_hardly_matters_is_not_planned_anew(self, monkeypatch: Any) -> None:
        """A file that is a thousand times slower, and still takes next to nothing of the step."""
        from adjoint.memory.spill import SpillFile

        plans: list[Any] = []
        prepare = Step.prepare

        def counting(step: Step, limit: int, bandwidth: float | None) -> None:
            plans.append(bandwidth)
            prepare(step, limit, bandwidth)

        monkeypatch.setattr(Step, "prepare", counting)
        monkeypatch.setattr(Repeats, "patience", 0.0)
        monkeypatch.setattr(SpillFile, "latency", 0.0)
        monkeypatch.setattr(SpillFile, "try_out", lambda self: None)
        monkeypatch.setattr("adjoint.memory.spill._note", lambda *_: None)
        x, w = leaf(0), leaf(1, 64, 64)

        def step() -> None:
            grads(lambda x, w: chain(x, w).sum(), x, w)

        full, _ = peak_of(step)
        base = alloc.live()
        held = ad.memory.budget(base + int((full - base) * 0.6))
        for bandwidth, planned in ((1e15, [1e15]), (1e12, [1e15]), (1.0, [1e15, 1.0])):
            monkeypatch.setattr(SpillFile, "bandwidth", bandwidth)
            before = held.report().spilled
            for _ in range(4):
                with held:
                    step()
            assert plans == planned
            assert bandwidth == 1.0 or held.report().spilled > before
