"""Predictions of steps whose residuals are copied, compressed, on disk, or under a budget."""

from __future__ import annotations

import gc
import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from helpers_memory import agree

import adjoint as ad
import adjoint.nn.functional as F
from adjoint import nn
from adjoint.kernels import alloc

memory = ad.memory
pytestmark = pytest.mark.skipif(not alloc.available(), reason="needs the counting allocator")
EXACT = {"copies": memory.saved_on_cpu,
         "disk, waited for": lambda: memory.saved_on_disk(min_bytes=1024, in_flight=0, ahead=0),
         "int8, not measured": partial(memory.compressed, "int8", measure=False),
         **{d: partial(memory.compressed, d) for d in ("bf16", "fp16", "int8", "int4")}}


def perceptron() -> Callable[[Any], Any]:
    net = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Dropout(0.1), nn.Linear(256, 64))
    opt, x = ad.optim.AdamW(net.parameters()), ad.randn(128, 64)

    def step(context: Any) -> None:
        opt.zero_grad()
        with context():
            loss = net(x).square().mean()
        loss.backward()
        opt.step()
    return step


def views() -> Callable[[Any], Any]:
    x, w = ad.randn(128, 64), ad.randn(64, 64, requires_grad=True)

    def step(context: Any) -> None:
        with context():
            y = (x @ w).view(128, 4, 16).permute(1, 0, 2)
            z = y[1:].exp() * y[:3].sin()
            loss = z.transpose(0, 1).sum(-1).sum() + (x @ w).t().contiguous().tanh().sum()
        loss.backward()
    return step


def second_order() -> Callable[[Any], Any]:
    x, w = ad.randn(128, 64), ad.randn(64, 64, requires_grad=True)

    def step(context: Any) -> None:
        with context():
            y = (x @ w).tanh() + (x @ w).sin() * 0.5
            (g,) = ad.autograd.grad(y.sum(), w, create_graph=True)
            loss = (g * g).sum()
        loss.backward()
    return step


def dtypes() -> Callable[[Any], Any]:
    x = ad.randn(256, 128, requires_grad=True)

    def step(context: Any) -> None:
        with context():
            loss = (x.to(ad.float64).exp().sum() + ad.where(x > 0, x.cos(), x.sin()).sum()
                    + x.to(ad.complex64).exp().abs().sum())
        loss.backward()
    return step


def recurrent() -> Callable[[Any], Any]:
    words, rule, out = nn.Embedding(100, 32), nn.LSTM(32, 32, batch_first=True), nn.Linear(32, 100)
    t = ad.randint(0, 100, (8, 20))

    def step(context: Any) -> None:
        with context():
            logits = out(rule(words(t))[0]).reshape(-1, 100)
            loss = F.cross_entropy(logits, t.reshape(-1))
        loss.backward()
    return step


def written() -> Callable[[Any], Any]:
    x, w = ad.randn(128, 64), ad.randn(64, 64, requires_grad=True)

    def step(context: Any) -> None:
        with context():
            y = x @ w
            copy = y.clone()
            copy.mul_(2)
            loss = (y.sin() + copy.exp()).sum()
        loss.backward()
    return step


@pytest.mark.row("F79")
@pytest.mark.parametrize("context", EXACT.values(), ids=EXACT)
@pytest.mark.parametrize("build", [perceptron, views, second_order, dtypes, recurrent, written])
def test_every_byte(build: Callable[[], Any], context: Any) -> None:
    step = build()
    for _ in range(2):
        assert agree(step, context)[0].exact


def pooled() -> Callable[[Any], Any]:
    net, x = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.MaxPool2d(2)), ad.randn(4, 3, 18, 18)

    def step(context: Any) -> None:
        with context():
            loss = net(x).square().mean()
        loss.backward()
    return step


BOUNDS = [("zlib", perceptron, partial(memory.compressed, "zlib")),
          ("zlib", views, partial(memory.compressed, "zlib")),
          ("zlib", pooled, partial(memory.compressed, "int8")),   # its places
          ("saved_on_disk", perceptron, memory.saved_on_disk)]


@pytest.mark.parametrize(("name", "build", "context"), BOUNDS,
                         ids=["zlib", "views", "integers", "disk"])
def test_what_hangs_on_values_or_on_the_disk_is_a_bound_with_its_line(
        name: str, build: Callable[[], Any], context: Any) -> None:
    step = build()
    predicted = memory.predict(step, context)
    with memory.track(step, context) as measured:
        step(context)
    assert not predicted.exact and predicted.live == measured.live
    assert all(a >= b for (_, a), (_, b) in zip(predicted.timeline, measured.timeline,
                                                strict=True))
    assert predicted.peak >= measured.peak
    lines, first = inspect.getsourcelines(step)
    (line,) = [first + i for i, text in enumerate(lines) if "loss = " in text]
    assert any(what.startswith(f"{name} ") and f"{__file__}:{line} in step" in what
               for what in predicted.assumed)
    assert name in predicted.table()


def test_a_budget_is_not_said_to_be_exact() -> None:
    step = perceptron()
    report = memory.predict(step, lambda: memory.budget("1GB"))
    assert not report.exact and "residuals" in report.table()


def test_a_report_in_a_prediction_knows_bytes_but_no_errors() -> None:
    x = ad.randn(4096, requires_grad=True)

    def step(real: bool) -> None:
        with memory.compressed("int8") as held:
            loss = x.exp().sum()
        found = held.report()["ExpBackward0"]
        assert found.after == 4352 and math.isnan(found.relative) is not real
        loss.backward()
    memory.predict(step, False)
    step(True)


def test_nothing_waits_where_nothing_may() -> None:
    """in_flight=0: a block has left when its op is over."""
    alloc.install()
    x = ad.randn(256, 256, requires_grad=True)
    gc.collect()
    base = alloc.live()
    with memory.saved_on_disk(in_flight=0):
        y = x.exp()
        z = y.sin()
        del y
        assert alloc.live() - base == z.nbytes
