"""The budget that a budget error names is enough: for the steps that follow too, with the state
that optimizers make, gradients that stay, and several backwards in a step (F82)."""

from __future__ import annotations

import gc
import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers_budget import counted, exact

import adjoint as ad
from adjoint.kernels import alloc
from adjoint.memory.rehearse import Rehearsal
from adjoint.memory.spill import SpillFile

__all__ = ["counted"]
STEPS = 4


def _net(*widths: int) -> Any:
    ad.manual_seed(1)
    layers = [m for a, b in zip(widths, widths[1:], strict=False)
              for m in (ad.nn.Linear(a, b), ad.nn.Tanh())]
    return ad.nn.Sequential(*layers[:-1])


def _data(*shape: int) -> Any:
    return ad.tensor(np.random.default_rng(3).standard_normal(shape).astype(np.float32))


def adam() -> tuple[Any, Callable[[], None]]:
    """Adam makes two arrays per parameter, after the first backward."""
    net, x = _net(256, 512, 512, 256), _data(64, 256)
    opt = ad.optim.Adam(net.parameters())

    def step() -> None:
        opt.zero_grad()
        net(x).square().mean().backward()
        opt.step()
    return net, step


def late_zero() -> tuple[Any, Callable[[], None]]:
    """Gradients of the step before lie beside the forward."""
    net, x = _net(128, 512, 512, 512, 128), _data(256, 128)
    opt = ad.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def step() -> None:
        loss = net(x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return net, step


def parts() -> tuple[Any, Callable[[], None]]:
    """Three backwards of different sizes add up before the optimizer steps."""
    net = _net(128, 256, 128)
    opt = ad.optim.AdamW(net.parameters(), amsgrad=True)
    batches = [_data(n, 128) for n in (64, 256, 512)]

    def step() -> None:
        opt.zero_grad()
        for x in batches:
            net(x).square().mean().backward()
        opt.step()
    return net, step


def clipped() -> tuple[Any, Callable[[], None]]:
    """Norms of gradients are taken between backward and the optimizer."""
    net, x = _net(256, 256, 256), _data(128, 256)
    opt = ad.optim.RMSprop(net.parameters(), momentum=0.5, centered=True)

    def step() -> None:
        opt.zero_grad()
        net(x).square().mean().backward()
        ad.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
    return net, step


def two() -> tuple[Any, Callable[[], None]]:
    """Two optimizers share a network's parameters out."""
    net, x = _net(128, 384, 384, 128), _data(64, 128)
    every = list(net.parameters())
    opts = ad.optim.Adagrad(every[:2]), ad.optim.Adam(every[2:])

    def step() -> None:
        net.zero_grad()
        net(x).square().mean().backward()
        for opt in opts:
            opt.step()
    return net, step


def recurrent() -> tuple[Any, Callable[[], None]]:
    """A cell in a loop: its weights get a contribution per turn."""
    ad.manual_seed(1)
    net, x, start = ad.nn.LSTMCell(64, 128), _data(24, 32, 64), ad.zeros(32, 128)
    opt = ad.optim.NAdam(net.parameters())

    def step() -> None:
        opt.zero_grad()
        h = c = start
        for t in range(24):
            h, c = net(x[t], (h, c))
        h.square().mean().backward()
        opt.step()
    return net, step


def turns() -> tuple[Any, Callable[[], None]]:
    """Two networks with an optimizer each: the second's backward comes after the first's step."""
    ad.manual_seed(1)
    made, judge = _net(16, 128, 300), _net(300, 200, 1)
    for_made, for_judge = ad.optim.Adam(made.parameters()), ad.optim.Adam(judge.parameters())
    real, noise = _data(128, 300), _data(128, 16)

    def step() -> None:
        fake = made(noise)
        for_judge.zero_grad()
        (judge(fake.detach()) - judge(real)).mean().backward()
        for_judge.step()
        for_made.zero_grad()
        (-judge(fake) * judge(fake)).mean().backward()
        for_made.step()
    return ad.nn.ModuleList([made, judge]), step


PROGRAMS = [adam, late_zero, parts, clipped, two, recurrent, turns]


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock by which everything takes equally long: what is computed again and what is spilled
    follows measured speeds."""
    ticks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks) * 1e-5)
    monkeypatch.setattr(SpillFile, "bandwidth", 1e9)


def _state(net: Any) -> list[np.ndarray]:
    return [p.detach().numpy().copy() for p in net.parameters()]


@exact
@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize("around", ["step", "loop"])
@pytest.mark.parametrize("program", PROGRAMS, ids=[p.__name__ for p in PROGRAMS])
def test_the_least_it_names_is_enough_for_training(program: Any, around: str) -> None:
    """One failure is all: under the number it names a whole training runs, within it, to the same
    weights, whether the budget is entered for every step or once. A larger one works as well."""
    net, step = program()
    for _ in range(STEPS):
        step()
    want = _state(net)
    del net, step
    net, step = program()
    gc.collect()

    def train(limit: int) -> int:
        held = ad.memory.budget(limit)
        if around == "loop":
            with held:
                for _ in range(STEPS):
                    step()
        else:
            for _ in range(STEPS):
                with held:
                    step()
        return int(held.report().peak)

    with pytest.raises(ad.memory.BudgetError, match="is enough for it") as caught:
        train(alloc.live() + 4096)
    least = caught.value.least
    caught = None  # type: ignore[assignment]  # its frames hold tensors
    for limit in (least, least + (1 << 17)):
        del net, step
        net, step = program()
        gc.collect()
        assert train(limit) <= limit
        for a, b in zip(_state(net), want, strict=True):
            np.testing.assert_array_equal(a, b)


@exact
@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize("seed", range(3, 7))
@pytest.mark.parametrize("program", PROGRAMS, ids=[p.__name__ for p in PROGRAMS])
def test_the_least_is_enough_whatever_is_spilled(program: Any, seed: int,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk whose speed changes by four orders of magnitude from one question to the next: each
    residual is computed again or spilled, as it comes."""
    draws = np.random.default_rng(seed)
    monkeypatch.setattr(SpillFile, "seconds", classmethod(
        lambda cls, nbytes: (2e-4 + nbytes * 1e-9) * 10.0 ** draws.uniform(-2, 2)))
    net, step = program()
    gc.collect()
    with pytest.raises(ad.memory.BudgetError, match="is enough for it") as caught:
        with ad.memory.budget(alloc.live() + 4096):
            step()
    least = caught.value.least
    caught = None  # type: ignore[assignment]  # its frames hold tensors
    del net, step
    net, step = program()
    gc.collect()
    with ad.memory.budget(least) as held:
        for _ in range(STEPS):
            step()
    assert held.report().peak <= least


@exact
def test_budgets_of_threads_end_in_any_order() -> None:
    """The least limit holds, and none is left behind."""
    first, second = ad.memory.budget("2GB"), ad.memory.budget("1GB")
    first.__enter__()
    done = []

    def other() -> None:
        with second:
            done.append(limit_now())
            first_gone.wait(30)
        done.append(limit_now())

    def limit_now() -> int:
        held = alloc.set_limit(0)
        alloc.set_limit(held)
        return held

    first_gone = threading.Event()
    thread = threading.Thread(target=other)
    thread.start()
    while not done:
        time.sleep(0.001)
    first.__exit__(None, None, None)
    done.append(limit_now())
    first_gone.set()
    thread.join()
    assert done == [10**9, 10**9, 0]


@exact
def test_a_first_step_that_does_not_fit_can_be_tried_again() -> None:
    """Forward and backward fit, the state that Adam makes does not: nothing has changed then, and
    the budget that the error names is enough."""
    net, _ = adam()
    x, opt = _data(64, 256), ad.optim.Adam(net.parameters())
    net(x).square().mean().backward()
    before, state = _state(net), 2 * sum(p.array.nbytes for p in net.parameters())
    gc.collect()
    with pytest.raises(ad.memory.BudgetError) as caught, \
            ad.memory.budget(alloc.live() + state // 2):
        opt.step()
    assert not opt.state
    for a, b in zip(_state(net), before, strict=True):
        np.testing.assert_array_equal(a, b)
    with ad.memory.budget(caught.value.least):
        opt.step()
    want, _ = adam()
    other = ad.optim.Adam(want.parameters())
    want(x).square().mean().backward()
    other.step()
    for a, b in zip(_state(net), _state(want), strict=True):
        np.testing.assert_array_equal(a, b)


@exact
def test_an_optimizer_does_not_step_where_the_backward_before_it_did_not_fit() -> None:
    """The step can be tried again: it has changed nothing but gradients."""
    net, step = adam()
    before = _state(net)
    with pytest.raises(ad.memory.BudgetError, match="before Adam steps") as caught, \
            ad.memory.budget(alloc.live() + 4096):
        step()
    assert "of it for the state that Adam will make" in str(caught.value)
    for a, b in zip(_state(net), before, strict=True):
        np.testing.assert_array_equal(a, b)


@exact
def test_no_optimizer_steps_where_a_later_backward_does_not_fit() -> None:
    """The first of two is passed over, so that the second's backward is measured too."""
    net, step = turns()
    before = _state(net)
    with pytest.raises(ad.memory.BudgetError, match="before Adam steps"), \
            ad.memory.budget(alloc.live() + 4096):
        step()
    for a, b in zip(_state(net), before, strict=True):
        np.testing.assert_array_equal(a, b)
    assert all(p.grad is not None for p in net.parameters())


def _groups(net: Any) -> list[Any]:
    """AdamW of two groups."""
    layers = list(net)
    return [ad.optim.AdamW([{"params": layers[0].parameters()},
                            {"params": layers[2].parameters(), "lr": 1e-4}])]


def _optimizers(net: Any) -> list[Any]:
    """Two optimizers."""
    layers = list(net)
    return [ad.optim.SGD(layers[0].parameters(), lr=0.1, momentum=0.9),
            ad.optim.Adam(layers[2].parameters())]


@exact
@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize("optimizers", [_groups, _optimizers], ids=["groups", "optimizers"])
def test_state_that_does_not_fit_is_foretold_the_first_time(
        optimizers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No step of this kind has run, and there is no room to try one out: nothing has changed, and
    the budget that is named is enough."""
    monkeypatch.setattr(Rehearsal, "programs", {})
    net, x = _net(512, 512, 512), _data(8, 512)
    opts = optimizers(net)
    before = _state(net)
    gc.collect()
    limit = alloc.live() + (5 << 20) // 2             # the gradients, and a part of the state
    with pytest.raises(ad.memory.BudgetError, match="gets past this place") as caught:
        with ad.memory.budget(limit):
            net(x).square().mean().backward()
            opts[-1].step()
    least, told = caught.value.least, str(caught.value)
    caught = None  # type: ignore[assignment]  # its frames hold tensors
    for a, b in zip(_state(net), before, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not opts[-1].state
    gc.collect()
    with ad.memory.budget(least) as held:
        opts[-1].step()
    assert limit < held.report().peak <= least
    made = sum(t.nbytes for each in opts[-1].state.values() for t in each.values())
    assert int(told.split("suffice: ")[1].split(" more")[0].replace(",", "")) >= made > 2 << 20


@exact
def test_the_reported_peak_is_of_the_blocks_alone() -> None:
    """A backward after the block makes again what was dropped in it, and is held to nothing."""
    x = ad.randn(512, 512, requires_grad=True)
    with ad.memory.budget(alloc.live() + (12 << 20), spill=False) as held:
        y = x
        for _ in range(10):
            y = (y * 1.01).sin().exp().tanh()
        y = y.sum()
    inside = held.report()
    assert inside.dropped > 0 and inside.peak <= held.limit
    y.backward()
    assert held.report().runs > inside.runs and held.report().peak == inside.peak
