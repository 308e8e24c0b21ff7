"""Predicted bytes are the measured bytes: at every event, at the peak, in every role."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from helpers_memory import MODELS

import adjoint as ad
from adjoint.core.modes import Observer, watchers
from adjoint.kernels import alloc
from adjoint.memory import meters

pytestmark = [
    pytest.mark.skipif(not alloc.available(), reason="needs the counting allocator"),
    pytest.mark.usefixtures("no_collector"),
]


def differences(predicted: Any, measured: Any) -> list[Any]:
    """Events whose bytes differ: (position, event, measured minus predicted bytes, peaks)."""
    assert predicted.events == measured.events
    return [
        (i, e, b[1] - a[1], q - p)
        for i, (e, a, b, p, q) in enumerate(zip(
            predicted.events, predicted.timeline, measured.timeline, predicted.tops,
            measured.tops, strict=True))
        if a != b or p != q
    ]


@pytest.mark.row("F62")
@pytest.mark.row("F79")
@pytest.mark.parametrize("ck", [False, True], ids=["plain", "checkpointed"])
@pytest.mark.parametrize("name", MODELS)
def test_every_event(name: str, ck: bool) -> None:
    step, held = MODELS[name](ad, ck)
    for _ in range(2):                       # without, then with optimizer state
        predicted = ad.memory.predict(step)
        with ad.memory.track(step) as measured:
            step()
        assert predicted.exact, predicted.assumed
        assert predicted.before == measured.before
        assert differences(predicted, measured) == []
        assert predicted.peak == measured.peak
        assert predicted.live == measured.live
        assert predicted.roles == measured.roles
        assert predicted.saved == measured.saved
        assert sum(predicted.roles.values()) == predicted.peak


@pytest.mark.row("F79")
@pytest.mark.parametrize("ck", [False, True], ids=["plain", "checkpointed"])
@pytest.mark.parametrize("name", MODELS)
def test_the_peak_of_a_run_that_nobody_watches(name: str, ck: bool) -> None:
    step, held = MODELS[name](ad, ck)
    predicted = ad.memory.predict(step)
    live = alloc.live_and_peak()[0]
    meters.restart()
    step()
    assert alloc.live_and_peak()[1] - live == predicted.peak - predicted.before
    assert alloc.live_and_peak()[0] - live == predicted.live - predicted.before


@pytest.mark.skipif(not alloc.available(), reason="needs the allocator's counters")
def test_gradients_that_grow_in_place_are_predicted() -> None:
    """A weight used several times gets its products added in place, watched by the ledger or not,
    and a rehearsal knows it; an observer that reads cotangents has each of them made."""
    alloc.install()
    w, x = ad.nn.Parameter(ad.randn(150, 150) / 12), ad.randn(40, 150)

    def step() -> None:
        z = x
        for _ in range(5):
            z = ad.tanh(z @ w)
        z.sum().backward()
        w.grad = None
    for _ in range(3):
        step()
    gc.collect()
    live = alloc.live_and_peak()[0]
    alloc.reset_peak()
    step()
    most = alloc.live_and_peak()[1] - live
    known = w.nbytes + x.nbytes
    assert ad.memory.predict(step).peak == most + known
    with ad.memory.track() as ledger:
        at_rest = ledger.peak               # of whatever lives in this process
        step()
    assert ledger.peak - at_rest == most
    seen: list[int] = []

    class Reads(Observer):
        cotangents = True

        def backward(self, node: Any, ct: Any, results: Any) -> None:
            seen.extend(1 for c in results if c is not None and c.shape == w.shape)
    held = watchers.push(watchers.observers, Reads())
    try:
        step()
    finally:
        watchers.pop(held)
    assert len(seen) == 5
