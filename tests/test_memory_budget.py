"""Budgets: live bytes stay within, gradients keep every bit, errors say what would do."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from helpers_engine import without_gc

import adjoint as ad
from adjoint.kernels import alloc
from adjoint.memory.lineage import _OURS
from adjoint.memory.repeats import Repeats
from adjoint.models.gpt import GPT, GPTConfig
from adjoint.utils.checkpoint import checkpoint

exact = pytest.mark.skipif(not alloc.available(), reason="needs the counting allocator")
SHAPE = (256, 64)  # 64 KiB in float32: large enough to be looked after


@pytest.fixture(autouse=True)
def counted() -> Iterator[None]:
    """The allocator counts from the start of each test, and no limit is left behind."""
    alloc.install()
    yield
    assert alloc.set_limit(0) == 0


def leaf(seed: int, *shape: int) -> Any:
    rng = np.random.default_rng(seed)
    return ad.tensor(rng.standard_normal(shape or SHAPE).astype(np.float32), requires_grad=True)


def peak_of(step: Callable[[], Any]) -> tuple[int, Any]:
    """(most live bytes while `step` ran, what it returned)."""
    alloc.reset_peak()
    result = step()
    return alloc.stats().peak, result


def chain(x: Any, w: Any, depth: int = 12) -> Any:
    """Matrix products and pointwise ops in turn: cheap and dear residuals."""
    for _ in range(depth):
        x = (x @ w).tanh() * 0.5 + x.sin()
    return x


def grads(loss: Callable[..., Any], *leaves: Any) -> list[np.ndarray]:
    return [g.numpy().copy() for g in ad.autograd.grad(loss(*leaves), leaves)]


def same(got: list[np.ndarray], want: list[np.ndarray]) -> None:
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


def check(loss: Callable[..., Any], *leaves: Any, share: float = 0.6, steps: int = 3,
          **options: Any) -> Any:
    """The same bits under a budget as without one, at a peak within it; returns the report."""
    with ad.memory.budget("4GB") as roomy:
        want = grads(loss, *leaves)
    for a, b in zip(grads(loss, *leaves), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * np.abs(a).max())
    if alloc.installed():
        full, _ = peak_of(lambda: grads(loss, *leaves))
        base = alloc.live()
    else:
        full, base = roomy.report().peak, sum(x.array.nbytes for x in leaves)
    limit = base + int((full - base) * share)
    with ad.memory.budget(limit, **options) as held:
        every = [peak_of(lambda: grads(loss, *leaves)) for _ in range(steps)]
    for peak, got in every:
        same(got, want)
        assert peak <= limit
    assert held.report().peak <= limit
    return held.report()


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
    def test_least_is_enough_in_the_end(self) -> None:
        """Following the error's advice leads to a budget that works, and to no smaller one."""
        x, w = leaf(0), leaf(1, 64, 64)
        want = grads(lambda x, w: chain(x, w).sum(), x, w)
        limit = alloc.live() + 1000
        for _ in range(20):
            try:
                with ad.memory.budget(limit):
                    got = grads(lambda x, w: chain(x, w).sum(), x, w)
                break
            except ad.memory.BudgetError as error:
                assert isinstance(error, MemoryError) and error.least > limit
                assert f"{error.least:,}" in str(error) and "gets past" in str(error)
                limit = error.least
                del error
        same(got, want)
        assert limit < alloc.live() + 24 * 65536

    @exact
    def test_the_advice_stays_below_the_peak_without_a_budget(self) -> None:
        """A budget just too small is not answered with one that is larger than no budget at all."""
        x, w = leaf(0, 16, 64), leaf(1, 64, 64)
        program = lambda: [v.sum().backward() for v in [chain(x, w)]]  # noqa: E731
        program()
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
        _, step = self._model()
        want = step()
        full, _ = peak_of(step)
        limit = int(full * share)
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
            model, step = self._model()
            optimizer = ad.optim.AdamW(model.parameters(), lr=1e-2)
            step()
            optimizer.step()
            full, _ = peak_of(step)
            held = contextlib.nullcontext() if share is None else ad.memory.budget(
                int(full * share))
            with held:
                for _ in range(3):
                    peak, _ = peak_of(step)
                    optimizer.step()
                    assert share is None or peak <= full * share
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


class TestLifetime:
    def test_nothing_is_left(self) -> None:
        x, w = leaf(0), leaf(1, 64, 64)
        with without_gc(), ad.memory.budget(alloc.live() + 24 * 65536) as held:
            for _ in range(3):
                grads(lambda x, w: chain(x, w).sum(), x, w)
            alive = [s for s in held.lineage.every if s.live() is not x.array
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
                counts.append(len(held.lineage.every))
        assert counts[-1] <= counts[1]

    def test_evaluation_with_gradients_on(self) -> None:
        x, w = leaf(0), leaf(1, 64, 64)
        with ad.memory.budget("1GB") as held:
            h, counts = x.detach(), []
            for _ in range(5):
                h = chain(h, w, 4).detach()
                counts.append(len(held.lineage.every))
        assert counts[-1] <= counts[1] + 2

    def test_reference_count_of_what_is_only_ours(self) -> None:
        assert 1 <= _OURS <= 3


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
