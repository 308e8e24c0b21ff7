"""Budgets: live bytes stay within, gradients keep every bit, errors say what would do."""

from __future__ import annotations

import gc
import re
import threading
from typing import Any

import numpy as np
import pytest
from helpers_budget import SHAPE, chain, check, counted, exact, grads, leaf, peak_of, same
from helpers_engine import without_gc

import adjoint as ad
from adjoint.kernels import alloc
from adjoint.memory.lineage import _OURS
from adjoint.utils.checkpoint import checkpoint

__all__ = ["counted"]


class TestSameGradients:
    @pytest.mark.parametrize("share", [0.9, 0.6, 0.4])
    def test_chain(self, share: float) -> None:
        report = check(lambda x, w: chain(x, w).sum(), leaf(0), leaf(1, 64, 64), share=share)
        assert report.dropped > 0 and report.runs > 0

    def test_nothing_happens_where_memory_suffices(self) -> None:
        report = check(lambda x, w: chain(x, w).sum(), leaf(0), leaf(1, 64, 64), share=1.5)
        assert report.dropped == report.spilled == report.runs == 0

    def test_views_and_strides(self) -> None:
        def loss(x: Any, w: Any) -> Any:
            for _ in range(6):
                y = (x @ w).view(256, 4, 16).permute(1, 0, 2)
                a, b = y[:2], y[2:]
                z = (a.exp().clamp(max=3.0) * b.sigmoid()).transpose(0, 1)
                x = ad.cat([z.reshape(256, 32), x[:, ::2].cos()], 1)
            return x.sum()

        check(loss, leaf(0), leaf(1, 64, 64))

    def test_in_place(self) -> None:
        def loss(x: Any, w: Any) -> Any:
            for k in range(6):
                y = x @ w
                y.mul_(0.5)
                y[:, : 16 * (k + 1)].tanh_()
                z = y + y.sin()
                z.add_(x.exp().clamp(max=2.0))
                x = z.tanh() + y
                x.mul_(0.5)
            return (x * x).sum()

        check(loss, leaf(0), leaf(1, 64, 64))

    def test_write_to_what_was_read(self) -> None:
        """A buffer that ops have read is overwritten: what was computed from it is brought back
        before."""

        def loss(x: Any) -> Any:
            buffer = x * 1.0
            kept = []
            for _ in range(6):
                kept.append(((buffer + x).sin().exp() * x.cos()).tanh())
                buffer.add_(0.1)
            with ad.no_grad():
                free = ad.ones(*SHAPE)
            h = (x + free).sin().exp().tanh()
            with ad.no_grad():
                free.add_(1.0)
            total = h.sum()
            for k in kept:
                total = total + k.sum()
            return total

        check(loss, leaf(0), share=0.75)

    def test_wrong_write_is_still_found(self) -> None:
        x = leaf(0)
        with ad.memory.budget("1GB"):
            y = x * 1.0
            z = y.sin()
            y.add_(1.0)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                z.sum().backward()

    def test_create_graph(self) -> None:
        def loss(x: Any, w: Any) -> Any:
            y = chain(x, w, 5).pow(2).sum()
            (g,) = ad.autograd.grad(y, x, create_graph=True)
            return (g * g).sum() + y

        check(loss, leaf(0), leaf(1, 64, 64), share=0.7)

    def test_several_graphs_at_once(self) -> None:
        x, w = leaf(0), leaf(1, 64, 64)
        trunk_plain = chain(x, w, 4)
        one, two = chain(trunk_plain, w, 4), chain(trunk_plain.detach(), w, 4)
        want = grads(lambda *_: two.sum(), w) + grads(lambda *_: one.sum(), x, w)
        del trunk_plain, one, two
        base = alloc.live()
        with ad.memory.budget(base + 18 * 65536 + (1 << 18)) as held:
            trunk = chain(x, w, 4)
            one, two = chain(trunk, w, 4), chain(trunk.detach(), w, 4)
            del trunk
            got = grads(lambda *_: two.sum(), w) + grads(lambda *_: one.sum(), x, w)
        same(got, want)
        assert held.report().runs > 0

    def test_retained_graph(self) -> None:
        x, w = leaf(0), leaf(1, 64, 64)
        want = grads(lambda x, w: chain(x, w).sum(), x, w)
        with ad.memory.budget(alloc.live() + 24 * 65536) as held:
            y = chain(x, w).sum()
            for keep in (True, True, False):
                got = ad.autograd.grad(y, (x, w), retain_graph=keep)
        same([g.numpy() for g in got], want)
        assert held.report().runs > 0

    def test_randomness(self) -> None:
        F = ad.nn.functional

        def loss(x: Any, w: Any) -> Any:
            ad.manual_seed(4)
            for _ in range(6):
                x = F.dropout((x @ w).tanh(), 0.3) + ad.rand(*SHAPE) * x.sin()
            return x.sum()

        check(loss, leaf(0), leaf(1, 64, 64), share=0.8)

    def test_custom_functions(self) -> None:
        class Cube(ad.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return x * x * x

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                (x,) = ctx.saved_tensors
                return 3 * x * x * g

        def loss(x: Any, w: Any) -> Any:
            for _ in range(5):
                x = Cube.apply((x @ w).tanh()).exp().sin()
            return x.sum()

        check(loss, leaf(0), leaf(1, 64, 64), share=0.75)

    def test_checkpoints_inside(self) -> None:
        def loss(x: Any, w: Any) -> Any:
            for _ in range(4):
                x = checkpoint(chain, x, w, 3, use_reentrant=False)
                x = x.exp().sin()
            return x.sum()

        check(loss, leaf(0), leaf(1, 64, 64), share=1.3)

    def test_backward_after_the_block(self) -> None:
        x, w = leaf(0), leaf(1, 64, 64)
        want = grads(lambda x, w: chain(x, w).sum(), x, w)
        with ad.memory.budget(alloc.live() + 24 * 65536):
            y = chain(x, w).sum()
        same([g.numpy() for g in ad.autograd.grad(y, (x, w))], want)

    def test_backward_in_another_thread(self) -> None:
        x, w = leaf(0), leaf(1, 64, 64)
        want = grads(lambda x, w: chain(x, w).sum(), x, w)
        got: list[Any] = []
        with ad.memory.budget(alloc.live() + 24 * 65536):
            y = chain(x, w).sum()
            thread = threading.Thread(target=lambda: got.extend(ad.autograd.grad(y, (x, w))))
            thread.start()
            thread.join()
        same([g.numpy() for g in got], want)

    @pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "complex64"])
    def test_dtypes(self, dtype: str) -> None:
        kind = getattr(ad, dtype)
        x = leaf(0).detach().to(kind).requires_grad_()

        def loss(x: Any) -> Any:
            for _ in range(8):
                x = (x * 0.5).sin() * x.cos() + x.exp() * 0.1
            return x.abs().sum()

        want = ad.autograd.grad(loss(x), x)[0].to(ad.complex64).numpy()
        with ad.memory.budget(alloc.live() + 16 * x.array.nbytes) as held:
            got = ad.autograd.grad(loss(x), x)[0].to(ad.complex64).numpy()
        np.testing.assert_array_equal(got, want)
        assert held.report().runs > 0

    def test_odd_operands(self) -> None:
        """Empty, 0-d, expanded and non-contiguous operands."""
        x = leaf(0)

        def loss(x: Any) -> Any:
            scale = x.mean()
            y = x.t() * scale.expand(64, 256) + x[:0].sum()
            for _ in range(6):
                y = (y.sin() * scale).exp().flip(0)
            return y.sum() + y[:, :0].sum()

        check(loss, x)


class TestSmallArrays:
    @exact
    @pytest.mark.parametrize("share", [0.5, 0.1])
    def test_many_small_residuals_stay_within(self, share: float) -> None:
        x = leaf(0, 500)                     # 2000 bytes; 800 of them are kept

        def long(x: Any) -> Any:
            for _ in range(400):
                x = (x * 1.01).sin()
            return x.sum()
        held = alloc.live()
        peak, want = peak_of(lambda: grads(long, x))
        limit = held + int(share * (peak - held))
        with ad.memory.budget(limit):
            under, got = peak_of(lambda: grads(long, x))
        assert under <= limit < peak
        same(got, want)

    @exact
    def test_what_is_too_small_to_be_given_up_does_not_pass_unnoticed(self) -> None:
        x = leaf(0, 10)
        limit = alloc.live() + 10_000
        with pytest.raises(ad.memory.BudgetError, match="do not suffice"), \
                ad.memory.budget(limit):
            for _ in range(2000):
                x = x.sin()

    @exact
    def test_statistics_that_are_saved_in_another_shape(self) -> None:
        """What instance_norm keeps lies in memory as it was computed, not as it is shown."""
        x, w, b = leaf(0, 4, 8, 26), leaf(1, 8), leaf(2, 8)

        def net(x: Any, w: Any, b: Any) -> Any:
            for _ in range(3):
                x = ad.nn.functional.instance_norm(x * 1.5, weight=w, bias=b).sin()
            return x.sum()
        want = grads(net, x, w, b)
        held = alloc.live()
        peak, _ = peak_of(lambda: grads(net, x, w, b))
        limit = held + int(0.85 * (peak - held))
        with ad.memory.budget(limit, spill=False) as held_to:
            got = grads(net, x, w, b)
        assert held_to.report().runs > 0
        same(got, want)


class TestErrors:
    @exact
    @pytest.mark.parametrize("spill", [True, False])
    @pytest.mark.parametrize("budget", [1000, 5 * 65536])
    def test_the_least_it_names_is_enough(self, spill: bool, budget: int) -> None:
        """The error's number works at once, however small the budget was; it is what the
        step needed and the margin, and a thirteenth less of what goes beyond the data does not."""
        x, w = leaf(0), leaf(1, 64, 64)
        program = lambda: grads(lambda x, w: chain(x, w).sum(), x, w)  # noqa: E731
        gc.collect()
        want, live = program(), alloc.live()
        with pytest.raises(ad.memory.BudgetError, match="is enough for it") as caught, \
                ad.memory.budget(live + budget, spill=spill):
            program()
        error, least = caught.value, caught.value.least
        assert isinstance(error, MemoryError) and f"{least:,}" in str(error)
        assert f"{__file__}:" in str(error) or "helpers_budget.py:" in str(error)
        needed = int(re.search(r"the step needed ([\d,]+)", str(error))[1].replace(",", ""))
        assert least == needed + min(1 << 18, needed // 63 + 1)
        caught = error = None  # type: ignore[assignment]  # their frames hold tensors
        with ad.memory.budget(least, spill=spill) as held_to:
            same(program(), want)
        assert held_to.report().peak <= least < live + 24 * 65536
        with pytest.raises(ad.memory.BudgetError), \
                ad.memory.budget(needed - (needed - live) // 13, spill=spill):
            program()

    @exact
    def test_a_step_that_did_not_fit_leaves_the_budget_in_force(self) -> None:
        """The error comes when a backward ends as one did before; what follows is limited."""
        x, w = leaf(0), leaf(1, 64, 64)
        limit = alloc.live() + 5 * 65536
        with ad.memory.budget(limit) as held_to:
            chain(x, w).sum().backward()
            with pytest.raises(ad.memory.BudgetError, match="a backward like one before it"):
                chain(x, w).sum().backward()
            x.grad = w.grad = None
            with pytest.raises(MemoryError):
                np.ones(1 << 20)
            (x * 2).sum().backward()
        assert held_to.report().peak > limit
        np.ones(1 << 20)

    @exact
    def test_what_no_machine_has_is_refused_at_once(self, monkeypatch: Any) -> None:
        """Only a part of the machine's memory is spent on finding out what would be enough."""
        monkeypatch.setattr("adjoint.memory.budgeting.machine_memory", lambda: 0)
        x, w = leaf(0), leaf(1, 64, 64)
        with pytest.raises(ad.memory.BudgetError, match="gets past this place"), \
                ad.memory.budget(1000):
            chain(x, w).sum().backward()
        assert x.grad is None

    @exact
    def test_the_advice_stays_below_the_peak_without_a_budget(self) -> None:
        """A budget just too small is not answered with one that is larger than no budget at all."""
        x, w = leaf(0, 16, 64), leaf(1, 64, 64)
        program = lambda: [v.sum().backward() for v in [chain(x, w)]]  # noqa: E731
        program()
        gc.collect()                       # frames of errors that were raised before
        x.grad = w.grad = None
        alloc.reset_peak()
        program()
        peak = alloc.stats().peak
        x.grad = w.grad = None
        with pytest.raises(ad.memory.BudgetError) as caught, \
                ad.memory.budget(alloc.live() + w.nbytes, spill=False):
            program()
        assert caught.value.least < peak + peak // 32

    @exact
    def test_allocations_of_the_program_are_limited_too(self) -> None:
        with pytest.raises(ad.memory.BudgetError, match="budget"), \
                ad.memory.budget(alloc.live() + (1 << 20)):
            np.ones(1 << 20)
        np.ones(1 << 20)

    def test_sizes_in_words(self) -> None:
        from adjoint.memory.sizes import machine_memory, parse_bytes

        assert parse_bytes("2GB") == 2 * 10**9 and parse_bytes("512 MiB") == 512 * 2**20
        assert parse_bytes("50%") == machine_memory() // 2
        for bad in ("2 apples", "", "GB", "-1GB"):
            with pytest.raises(ValueError, match="no size in bytes"):
                parse_bytes(bad)
        with pytest.raises(ValueError, match="more than 0"):
            ad.memory.budget(0)

    def test_state_after_an_exception(self) -> None:
        x = leaf(0)
        with pytest.raises(ZeroDivisionError), ad.memory.budget("1GB"):
            (x.sin() * 1).exp()
            raise ZeroDivisionError
        assert alloc.set_limit(0) == 0
        x.sin().sum().backward()

    @exact
    def test_nested_budgets(self) -> None:
        x, w = leaf(0), leaf(1, 64, 64)
        want = grads(lambda x, w: chain(x, w).sum(), x, w)
        outer = alloc.live() + 30 * 65536
        with ad.memory.budget(outer), ad.memory.budget("1GB"):
            alloc.reset_peak()
            with pytest.raises(MemoryError):
                np.ones(40 * 65536, np.uint8)
        with ad.memory.budget("1GB"), ad.memory.budget(outer):
            peak, got = peak_of(lambda: grads(lambda x, w: chain(x, w).sum(), x, w))
        same(got, want)
        assert peak <= outer


class TestLifetime:
    def test_nothing_is_left(self) -> None:
        x, w = leaf(0), leaf(1, 64, 64)
        with without_gc(), ad.memory.budget(alloc.live() + 24 * 65536) as held:
            for _ in range(3):
                grads(lambda x, w: chain(x, w).sum(), x, w)
            alive = [s for s in held.lineage.every() if s.live() is not x.array
                     and s.live() is not w.array]
            assert not alive

    def test_state_carried_from_step_to_step(self) -> None:
        """Truncated backpropagation: what one step hands to the next does not hold the step."""
        x, w = leaf(0), leaf(1, 64, 64)
        with ad.memory.budget("1GB") as held:
            h, counts = x.detach(), []
            for _ in range(4):
                out = chain(h, w, 4)
                out.sum().backward()
                h = out.detach()
                del out
                counts.append(len(held.lineage.every()))
        assert counts[-1] <= counts[1]

    def test_evaluation_with_gradients_on(self) -> None:
        x, w = leaf(0), leaf(1, 64, 64)
        with ad.memory.budget("1GB") as held:
            h, counts = x.detach(), []
            for _ in range(5):
                h = chain(h, w, 4).detach()
                counts.append(len(held.lineage.every()))
        assert counts[-1] <= counts[1] + 2

    def test_reference_count_of_what_is_only_ours(self) -> None:
        assert 1 <= _OURS <= 3
