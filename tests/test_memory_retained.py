"""`memory.leaks()`: which object keeps which graph, with the bytes that were really held."""

from __future__ import annotations

import contextvars
import gc
import logging
import queue
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any

import pytest

import adjoint as ad
from adjoint import memory, nn
from adjoint.kernels import alloc
from adjoint.memory import leaks

WIDE = 4000          # bytes that one step saves: the output of exp, 1000 float32
LOSSES: list[Any] = []
pytestmark = pytest.mark.usefixtures("whole_heap")


def retained() -> list[Any]:
    """What tests of this file keep (others may have left something)."""
    return [r for r in memory.retained() if __file__ in r.place]


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Each test begins and ends without graphs."""
    yield
    LOSSES.clear()
    assert retained() == []            # (collects)


def loss(w: Any) -> Any:
    return (w * 2).exp().sum()


def leaf() -> Any:
    return ad.ones(1000, requires_grad=True)


@pytest.mark.row("F76")
@pytest.mark.row("F92")
def test_a_list_of_losses_without_backward() -> None:
    w, losses = leaf(), []
    for _ in range(5):
        losses.append(loss(w))
    found = retained()
    assert len(found) == 5
    assert all(r.own == WIDE for r in found)
    assert sorted(r.path.split(": ")[1] for r in found) == [f"losses[{i}]" for i in range(5)]
    assert all("test_memory_retained.py" in r.place and "in loss" in r.place for r in found)
    assert "loss.item()" in found[0].advice
    text = leaks()
    assert "unfreed graphs alive" in text and "losses[3]" in text and "4.0 kB" in text
    del losses, found


@pytest.mark.row("F76")
def test_a_list_of_losses_after_backward_holds_nothing() -> None:
    w, losses = leaf(), []
    before = alloc.live_and_peak()[0]
    for _ in range(40):
        losses.append(loss(w))
        losses[-1].backward()
    assert retained() == [] and __file__ not in leaks()
    if alloc.available():                       # 40 numbers and the gradient, not 40 x 4 kB
        assert alloc.live_and_peak()[0] - before <= 40 * 8 + 4000
    del losses


@pytest.mark.row("F97")
def test_a_running_sum_keeps_the_graph_of_every_term() -> None:
    w, total = leaf(), ad.zeros(())
    for i in range(4):
        total = total + loss(w)
        (r,) = retained()
        assert r.bytes == r.own == (i + 1) * WIDE        # linear: one step's residuals per step
    assert r.path.endswith("total") and "running sum" in r.advice
    total.backward()                            # one backward for all of them works, and frees
    assert retained() == []
    assert float(w.grad[0]) == pytest.approx(4 * 2 * 7.389056, rel=1e-6)


@pytest.mark.row("F76")
def test_retain_graph_left_in() -> None:
    w = leaf()
    y = loss(w)
    y.backward(retain_graph=True)
    (r,) = retained()
    assert r.bytes == WIDE and r.path.endswith(": y") and "retain_graph" in r.advice
    y.backward()
    assert retained() == []


def test_attributes_globals_closures_and_dicts() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.history: list[Any] = []
            self.best: dict[str, Any] = {}

    trainer, w = Trainer(), leaf()
    trainer.history.append(loss(w))
    trainer.best["loss"] = loss(w)
    LOSSES.append(loss(w))
    hidden = loss(w)

    def later() -> Any:
        return hidden

    paths = {r.path for r in retained()}
    name = "test_attributes_globals_closures_and_dicts"
    assert f"{name}: trainer.history[0]" in paths
    assert f"{name}: trainer.best['loss']" in paths
    assert any(p.endswith("LOSSES[0]") for p in paths)
    assert any(p.endswith(": hidden") for p in paths)
    assert later() is hidden


def test_shared_residuals_are_counted_in_each_and_owned_by_none() -> None:
    w = leaf()
    y = (w * 2).exp()
    a, b = y.sum(), (y * y).sum()
    found = retained()
    assert [r.own for r in found] == [0, 0] and {r.bytes for r in found} == {WIDE}
    del y, a, b, found


def test_a_module_that_keeps_its_output_and_a_cycle() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(10, 1000)
            self.last: Any = None

        def forward(self, x: Any) -> Any:
            self.last = self.lin(x).exp()
            return self.last.sum()

    net = Net()
    net(ad.ones(1, 10))
    found = retained()
    assert len(found) == 1 and found[0].path.endswith("net.last") and found[0].bytes >= WIDE
    y = net(ad.ones(1, 10))
    y.note = [y]                                # a cycle through the tensor's own attributes
    del y, found
    net.last = None
    gc.collect()
    assert retained() == []


@pytest.mark.skipif(not alloc.available(), reason="needs the counting allocator")
def test_the_ledger_agrees() -> None:
    w, losses = leaf(), []
    with ad.memory.track(w) as t:
        for _ in range(3):
            losses.append(loss(w))
        held = [r for r in t.retained() if __file__ in r.place]
    assert sum(r.own for r in held) == t.saved == 3 * WIDE
    assert t.live - t.before == 3 * (WIDE + 4)           # residuals, and the losses themselves
    rows = {r.what: r.bytes for r in t.rows("role", len(t.events) - 1)}
    assert rows["saved residual"] == 3 * WIDE
    del losses, held


@pytest.mark.skipif(not alloc.available(), reason="needs the counting allocator")
def test_bytes_that_only_cycles_held_are_told(no_collector: None) -> None:
    class Keeper:
        def __init__(self, w: Any) -> None:
            self.me, self.loss = self, loss(w)

    w = leaf()
    ad.memory.leaks()                            # collects what came before
    Keeper(w)
    told = ad.memory.leaks()
    assert told.startswith("no unfreed graph is alive\n  ") and "reference cycles" in told
    assert "cycles" not in ad.memory.leaks()


def test_losses_that_were_backed_with_a_kept_graph_are_not_called_unbacked() -> None:
    w, losses = leaf(), []
    losses.append(loss(w))
    losses[0].backward(retain_graph=True)
    assert "retain_graph=True" in retained()[0].advice


class Slotted:
    __slots__ = ("best",)


class Attributed:
    best: Any = None


def containers(w: Any) -> dict[str, Callable[[], tuple[Any, str]]]:
    """What may keep a loss, and how the report is to name it in `kept`."""
    def queued() -> tuple[Any, str]:
        waiting: queue.Queue[Any] = queue.Queue()
        waiting.put({"loss": loss(w)})
        return waiting, ".queue[0]['loss']"

    def default() -> tuple[Any, str]:
        value = loss(w)

        def f(a: Any = value) -> Any:
            return a
        return f, ".__defaults__[0]"

    def slotted() -> tuple[Any, str]:
        held = Slotted()
        held.best = loss(w)
        return held, ".best"

    def state() -> tuple[Any, str]:
        rule = ad.optim.SGD([w], 0.1)
        rule.state[w]["last"] = loss(w)
        return rule, ".state[<Tensor>]['last']"

    def cached() -> tuple[Any, str]:
        f = lru_cache(lambda k: loss(w * k))
        f(2.0)
        return f, ""

    def logged() -> tuple[Any, str]:
        record = logging.makeLogRecord({"msg": "loss %s", "args": (loss(w), 1)})
        return [record], "[0].args[0]"
    return {"queue": queued, "default": default, "slots": slotted, "state": state,
            "cache": cached, "log": logged,
            "deque": lambda: (deque([(1, loss(w))], 5), "[0][1]"),
            "partial": lambda: (partial(print, loss(w)), ".args[0]"),
            "method": lambda: (loss(w).backward, ".__self__"),
            "map": lambda: (map(str, [loss(w)]), ".<map>[0].<list_iterator>[0]"),
            "iterator": lambda: (iter([loss(w)]), ".<list_iterator>[0]"),
            "view": lambda: (MappingProxyType({"l": loss(w)}), ".<mappingproxy>['l']")}


@pytest.mark.parametrize("name", containers(None))
def test_the_path_through(name: str) -> None:
    kept, link = containers(leaf())[name]()
    (found,) = retained()
    assert found.path.endswith(f"test_the_path_through: kept{link}")
    assert found.own == WIDE
    del kept


def test_a_context_variable() -> None:
    variable: contextvars.ContextVar[Any] = contextvars.ContextVar("current_loss")
    token = variable.set(loss(leaf()))
    assert [(r.path, r.own) for r in retained()] == [("current_loss.get()", WIDE)]
    variable.reset(token)
    del token


class Noted(ad.autograd.Function):
    """Keeps a tensor as an attribute of its context."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.made = {"exp": x.exp()}
        return ctx.made["exp"].sum()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        return grad_outputs[0] * ctx.made["exp"]


def hidden(w: Any) -> dict[str, Callable[[], Any]]:
    """Graphs that hold bytes elsewhere than in residuals of their nodes."""
    def packed() -> Any:
        with ad.autograd.graph.saved_tensors_hooks(lambda t: (t.clone(),), lambda t: t[0]):
            return loss(w)

    def budgeted() -> Any:
        with memory.budget("1GB"):
            return loss(w)
    return {"context": lambda: Noted.apply(w), "packed": packed, "budget": budgeted,
            "region": lambda: ad.utils.checkpoint.checkpoint(
                lambda t: t.exp().sum(), w * 2, use_reentrant=False)}


@pytest.mark.row("F76")
@pytest.mark.parametrize("name", hidden(None))
def test_what_a_graph_holds_elsewhere(name: str) -> None:
    kept = hidden(leaf())[name]()
    assert [(r.path.split(": ")[1], r.bytes) for r in retained()] == [("kept", WIDE)]
    if name != "context":                 # (an attribute stays as long as the node)
        kept.backward()
        assert retained() == []


def test_an_attribute_of_a_class() -> None:
    Attributed.best = loss(leaf())
    (found,) = retained()
    assert found.path.endswith("Attributed.best") and found.own == WIDE
    Attributed.best = None


def test_a_suspended_generator() -> None:
    def steps(w: Any) -> Iterator[Any]:
        total = loss(w)
        yield 1
        yield total

    going = steps(leaf())
    next(going)
    (found,) = retained()
    assert found.path.endswith("steps: total") and found.own == WIDE
    going.close()


@pytest.mark.parametrize("where", ["a variable", "sys.last_value"])
def test_the_traceback_of_an_exception(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def step(w: Any) -> None:
        y = loss(w)
        raise ValueError(y.shape)

    try:
        step(leaf())
    except ValueError as problem:
        error = problem
    if where != "a variable":
        monkeypatch.setattr(sys, "last_value", error, raising=False)
        error = None
    (found,) = retained()
    assert found.path.endswith("step: y") and found.own == WIDE
    assert ("error" if where == "a variable" else where) + ".__traceback__, " in found.path
    del error


def test_healthy_programs_are_clean() -> None:
    """Training, evaluation, truncated sequences, second order, a handled exception."""
    net, x, kept = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)), ad.ones(4, 8), []
    rule = ad.optim.Adam(net.parameters())
    for _ in range(2):
        rule.zero_grad()
        total = net(x).sum()
        total.backward()
        rule.step()
        kept.append(total)
    with ad.no_grad():
        kept.append(net(x))
    kept.append(net(x).detach())
    cell, state = nn.LSTM(8, 8), None
    for _ in range(2):
        y, state = cell(x[None], state)
        state = tuple(t.detach() for t in state)
        y.sum().backward()
    grads = ad.autograd.grad(net(x).sum(), list(net.parameters()), create_graph=True)
    sum([g.square().sum() for g in grads]).backward()
    try:
        raise ValueError(net(x).shape)
    except ValueError:
        pass
    assert retained() == []


MISTAKES: dict[str, Callable[[Any, Any], Any]] = {
    "missing": lambda x, m: ad.softmax(x),
    "method": lambda x, m: x.softmax(),
    "operand": lambda x, m: ad.nn.functional.conv2d(m),
    "shapes": lambda x, m: m @ m,
    "write": lambda x, m: x.add_(1),
    "graph": lambda x, m: [y.backward() for y in [(x * x).sum()] * 2],
    "attribute": lambda x, m: x.foo,
    "index": lambda x, m: x["a"],
    "mapped": lambda x, m: ad.vmap(lambda t: t.item())(x),
    "region": lambda x, m: ad.utils.checkpoint.checkpoint(lambda t: t.foo, x, use_reentrant=False),
    "prediction": lambda x, m: ad.memory.predict(lambda: x.sum().item()),
    "check": lambda x, m: ad.autograd.gradcheck(lambda t: t * t, (x,))}


@pytest.mark.parametrize("name", MISTAKES)
def test_an_error_that_was_caught_keeps_nothing(name: str, no_collector: None) -> None:
    """No frame holds the error that leads to it: what the caller held goes at once."""
    def attempt() -> Any:
        x = ad.ones(4, requires_grad=True)
        try:
            MISTAKES[name](x, ad.ones(3, 4))
        except Exception:
            return weakref.ref(x)
    attempt()                                # (what is loaded by the first)
    gc.collect()
    assert attempt()() is None
