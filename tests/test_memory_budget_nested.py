"""A budget inside of another one, and beside checkpoints: wherever the inner block lies, it works
where one budget around everything does (F82)."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers_budget import chain, counted, exact, grads, leaf, peak_of, same

import adjoint as ad
from adjoint.kernels import alloc
from adjoint.utils.checkpoint import checkpoint, checkpoint_chain

__all__ = ["counted"]
budget = ad.memory.budget
Loss = Callable[[Any, Any], Any]


def whole(limit: int, x: Any, w: Any) -> Any:
    with budget(limit):
        return grads(lambda x, w: chain(chain(x, w), w).sum(), x, w)


def first_half(limit: int, x: Any, w: Any) -> Any:
    """What the inner block has saved can be given up after it has ended."""
    def loss(x: Any, w: Any) -> Any:
        with budget(limit):
            h = chain(x, w)
        return chain(h, w).sum()
    with budget(limit):
        return grads(loss, x, w)


def second_half(limit: int, x: Any, w: Any) -> Any:
    """What the outer block has saved can be given up in the inner one."""
    def loss(x: Any, w: Any) -> Any:
        h = chain(x, w)
        with budget(limit):
            return chain(h, w).sum()
    with budget(limit):
        return grads(loss, x, w)


def backward(limit: int, x: Any, w: Any) -> Any:
    with budget(limit):
        loss = chain(chain(x, w), w).sum()
        with budget(limit):
            return [g.numpy().copy() for g in ad.autograd.grad(loss, (x, w))]


def tight_outer(limit: int, x: Any, w: Any) -> Any:
    with budget(limit), budget(4 * limit):
        return grads(lambda x, w: chain(chain(x, w), w).sum(), x, w)


def tight_inner(limit: int, x: Any, w: Any) -> Any:
    with budget(4 * limit), budget(limit):
        return grads(lambda x, w: chain(chain(x, w), w).sum(), x, w)


def twice_the_same(limit: int, x: Any, w: Any) -> Any:
    held = budget(limit)
    with held, held:
        return grads(lambda x, w: chain(chain(x, w), w).sum(), x, w)


NESTED = (first_half, second_half, backward, tight_outer, tight_inner, twice_the_same)


@exact
@pytest.mark.parametrize("program", NESTED, ids=lambda f: f.__name__)
@pytest.mark.parametrize("spill", [True, False])
def test_a_nested_budget_works_where_a_single_one_does(program: Any, spill: bool,
                                                       monkeypatch: Any) -> None:
    monkeypatch.setattr(f"{__name__}.budget", lambda b: ad.memory.budget(b, spill=spill))
    x, w = leaf(0), leaf(1, 64, 64)
    want = grads(lambda x, w: chain(chain(x, w), w).sum(), x, w)
    full, _ = peak_of(lambda: grads(lambda x, w: chain(chain(x, w), w).sum(), x, w))
    base = alloc.live()
    limit = base + int((full - base) * 0.45)
    same(whole(limit, x, w), want)
    peak, got = peak_of(lambda: program(limit, x, w))
    same(got, want)
    assert peak <= limit


@exact
def test_the_lower_limit_of_both_holds_as_long_as_both_do() -> None:
    x = leaf(0)
    low, high = alloc.live() + 2_000_000, alloc.live() + 4_000_000
    with budget(high) as outer:
        y = x.sin()
        with budget(low):
            with pytest.raises(MemoryError), budget(low):
                np.ones(3_000_000, np.uint8)
            np.ones(1_000_000, np.uint8)
        np.ones(3_000_000, np.uint8)
        assert outer.limit == high
        with pytest.raises(MemoryError):
            np.ones(5_000_000, np.uint8)
        y.sum().backward()


@exact
def test_what_does_not_fit_the_inner_one_is_told_there_and_the_least_is_enough() -> None:
    """The outer block goes on; the budget that the error names works."""
    x, w = leaf(0), leaf(1, 64, 64)
    want = grads(lambda x, w: chain(x, w).sum(), x, w)
    def step(limit: int) -> Any:
        with budget(limit):
            return grads(lambda x, w: chain(x, w).sum(), x, w)
    with budget("1GB"):
        with pytest.raises(ad.memory.BudgetError) as told:
            step(alloc.live() + 100_000)
        same(step(10**9), want)
    assert told.value.least is not None
    with budget("1GB"):
        same(step(told.value.least), want)


@exact
def test_each_of_them_reports_its_own_block() -> None:
    x, w = leaf(0), leaf(1, 64, 64)
    full, _ = peak_of(lambda: grads(lambda x, w: chain(x, w).sum(), x, w))
    base = alloc.live()
    inner = budget(base + (full - base) // 2)
    with budget("1GB") as outer:
        roomy = np.ones(2 * (full - base), np.uint8)
        del roomy
        assert outer.report().dropped == 0
        with inner:
            grads(lambda x, w: chain(x, w).sum(), x, w)
            within = inner.report()
        grads(lambda x, w: chain(x, w).sum(), x, w)
    assert within.peak <= inner.limit < outer.report().peak
    assert within.dropped + within.spilled > 0
    assert inner.report() == within
    assert outer.report().dropped == within.dropped


@exact
def test_between_other_hooks() -> None:
    """Hooks of the program between the two are left alone: the innermost of all counts."""
    x, w = leaf(0), leaf(1, 64, 64)
    seen: list[Any] = []
    def loss(x: Any, w: Any) -> Any:
        with ad.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t):
            h = x.exp()
            many = len(seen)
            with budget("1GB"):
                h = chain(h, w)
            assert len(seen) == many > 0
            h = h.exp()
            assert len(seen) > many
        return h.sin().sum()
    want = grads(lambda x, w: chain(x.exp(), w).exp().sin().sum(), x, w)
    with budget("1GB") as outer:
        same(grads(loss, x, w), want)
    assert outer.report().peak > 0
    assert ad.memory.budget("1GB").report().peak == 0


def all_in_one(x: Any, w: Any) -> Any:
    return checkpoint(lambda h: chain(h, w, 24), x, use_reentrant=False)


def in_three(x: Any, w: Any) -> Any:
    for _ in range(3):
        x = checkpoint(lambda h: chain(h, w, 8), x, use_reentrant=False)
    return x


def one_in_another(x: Any, w: Any) -> Any:
    def two(h: Any) -> Any:
        return chain(checkpoint(lambda h: chain(h, w, 6), h, use_reentrant=False), w, 6)
    return checkpoint(two, checkpoint(two, x, use_reentrant=False), use_reentrant=False)


def a_chain(x: Any, w: Any) -> Any:
    return checkpoint_chain([lambda h: chain(h, w, 1)] * 24, x, segments=3)


@exact
@pytest.mark.row("F82")
@pytest.mark.parametrize("spill", [True, False])
@pytest.mark.parametrize(("program", "share"), [
    (all_in_one, 0.4), (in_three, 0.6), (one_in_another, 0.6), (a_chain, 0.6)],
    ids=lambda f: getattr(f, "__name__", ""))
def test_what_a_region_makes_again_can_be_given_up(program: Any, share: float, spill: bool) -> None:
    """At a share of what the checkpointed program takes by itself, in steps that repeat and in one
    that comes back to a graph that was kept; and where a budget that is too small names another."""
    x, w = leaf(0), leaf(1, 64, 64)
    def step(keep: bool = False) -> Any:
        loss = program(x, w).square().sum()
        for _ in range(1 + keep):
            got = ad.autograd.grad(loss, (x, w), retain_graph=keep)
        return [g.numpy().copy() for g in got]
    with budget("4GB"):
        want = step()
    def within(limit: int, keep: bool, times: int = 1) -> None:
        for _ in range(times):
            peak, got = peak_of(lambda: step(keep))
            same(got, want)
            assert peak <= limit
    gc.collect()
    full, _ = peak_of(step)
    base = alloc.live()
    limit = base + int((full - base) * share)
    with budget(limit, spill=spill):
        within(limit, False, 3)
    with budget(limit, spill=spill):
        within(limit, True)
    with pytest.raises(ad.memory.BudgetError) as told, budget(base + 200_000, spill=spill):
        step()
    with budget(told.value.least, spill=spill):
        within(told.value.least, False)


@exact
def test_writes_and_randomness_in_a_region() -> None:
    """What was written to in the region is noticed, and random numbers are those of the first
    run, where its residuals are given up and made again."""
    x, w = leaf(0), leaf(1, 64, 64)
    def noisy(h: Any) -> Any:
        for _ in range(12):
            h = ad.nn.functional.dropout((h @ w).tanh() + h.sin().mul_(0.5), 0.2)
        return h
    def loss(x: Any, w: Any) -> Any:
        ad.manual_seed(3)
        return checkpoint(noisy, x, use_reentrant=False).square().sum()
    gc.collect()
    full, want = peak_of(lambda: grads(loss, x, w))
    limit = alloc.live() + int((full - alloc.live()) * 0.8)
    with budget(limit):
        peak, got = peak_of(lambda: grads(loss, x, w))
    same(got, want)
    assert peak <= limit

    def spoilt(h: Any) -> Any:
        y = h.sin()
        z = (y * y).exp()
        y.mul_(2.0)
        return z * h
    with budget("1GB"), pytest.raises(RuntimeError, match="modified by an inplace operation"):
        grads(lambda x, w: checkpoint(spoilt, x @ w, use_reentrant=False).sum(), x, w)
