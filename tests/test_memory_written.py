"""The ledger's events, written down by machine code: what Python writes, without a trace."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.base.tier import at_once
from adjoint.core import bind as binding
from adjoint.core.tensor import owner_of
from adjoint.kernels import alloc
from adjoint.memory.ledger import Entry, Ledger, Saver
from adjoint.models.gpt import GPT, GPTConfig
from adjoint.utils.checkpoint import checkpoint

pytestmark = pytest.mark.skipif(binding.machine is None or not alloc.available(),
                                reason="needs generated code")
F = ad.nn.functional


class Twice(ad.autograd.Function):
    """A node that machine code knows nothing of."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2 + ctx.saved_tensors[0] * 0


def plain(x: Any, w: Any) -> Any:
    """Products, views, several outputs, fan-in, ops that keep outputs, masks and shapes."""
    first, rest = (x @ w + w[0]).split([1, 2], dim=1)
    both = ad.cat([rest * first, first / 3], dim=1).reshape(-1, 3)
    y = ad.softmax(both.transpose(0, 1), -1) * x.sum(0) + F.layer_norm(x, (3,))
    values, _ = y.max(dim=1)
    return (y * y).sum() + F.dropout(values, 0.5).tanh().sum() + F.relu(y).mean()


def unusual(x: Any, w: Any) -> Any:
    """In-place writes, a node of the user's, no gradient, a checkpoint, memory of others."""
    y = Twice.apply(x @ w)
    y += 1
    y[0] = 2.0
    with ad.no_grad():
        bare = (x * w).exp()
    foreign = ad.from_numpy(np.frombuffer(bytearray(36), np.float32).reshape(3, 3))
    z = checkpoint(lambda a: (a * a).sigmoid(), y, use_reentrant=False)
    return (z + foreign + bare.detach()).sum()


def again(x: Any, w: Any) -> Any:
    """A gradient of a gradient."""
    g, = ad.autograd.grad((x @ w).pow(3).sum(), x, create_graph=True)
    return (g * g).sum()


def kept(x: Any, w: Any) -> Any:
    """A graph that outlives its backward, and one that is never walked."""
    loss = (x @ w).tanh().sum()
    loss.backward(retain_graph=True)
    ((x @ w).exp() * 2).sum()
    return loss


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    """Machine code from the first use on; no collector's run in between."""
    at_once()
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def account(step: Callable[[], None], roots: Any, machine: bool, patch: pytest.MonkeyPatch
            ) -> tuple[list[Any], list[Any], list[bool]]:
    """The events and storages of two steps, and what machine code answered."""
    answers: list[bool] = []
    with patch.context() as p:
        if not machine:
            p.setattr(Ledger, "quicken", lambda self: None)
        with ad.memory.track(*roots) as t:
            ledger: Any = t._ledger
            for name in ("ran", "_pulled", "_landed") if machine else ():
                writer = getattr(ledger, name)
                setattr(ledger, name,
                        lambda *a, writer=writer: answers.append(writer(*a)) or answers[-1])
            step()
            step()
    marks = [m[:4] for m in ledger.marks]
    entries = [(e.nbytes, e.shape, e.dtype, e.op, e.role, e.module, e.name, e.where(), e.born,
                e.died, e.saved, e.released, e.holder(e.born), e.saver and e.saver.name)
               for e in ledger.entries]
    return marks, entries, answers


@pytest.mark.parametrize("program", [plain, unusual, again, kept])
def test_the_same_log_as_in_python(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = ad.rand(3, 3, requires_grad=True), ad.rand(3, 3, requires_grad=True)

    def step() -> None:
        x.grad = w.grad = None
        program(x, w).backward()
    for _ in range(30):                       # rules are written out after twenty uses
        step()
    want = account(step, (x, w), False, monkeypatch)
    got = account(step, (x, w), True, monkeypatch)
    assert got[0] == want[0] and len(want[0]) > 10
    assert got[1] == want[1] and len(want[1]) > 10
    assert any(got[2]) and not want[2]


def test_a_training_step_is_written_in_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules, an optimizer, gradients: the same account, and little of it in Python."""
    ad.manual_seed(0)
    model = GPT(GPTConfig(32, 16, 2, 2, 16))
    optimizer = ad.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = ad.randint(0, 32, (2, 16))

    def step() -> None:
        optimizer.zero_grad()
        model.loss(tokens, tokens).backward()
        optimizer.step()
    for _ in range(30):
        step()
    roots = model, optimizer, tokens
    want = account(step, roots, False, monkeypatch)
    got = account(step, roots, True, monkeypatch)
    assert got[:2] == want[:2] and {e[5] for e in want[1]} > {"", "blocks.0.attention"}
    second = got[2][len(got[2]) // 2:]
    assert second.count(False) <= 2 and second.count(True) > 50


def test_two_ledgers_at_once() -> None:
    """The inner one does not take the outer one's events."""
    x = ad.rand(8, requires_grad=True)
    for _ in range(30):
        x.exp().sum().backward()
    with ad.memory.track(x) as outer:
        x.exp()
        with ad.memory.track(x) as inner:
            y = x.exp().cumsum(0)
        y.sum()
    names = [[m[0] for m in t._ledger.marks] for t in (outer, inner)]
    assert names == [["exp", "exp", "cumsum", "sum_all", "end"], ["exp", "cumsum", "end"]]
    # (exp keeps its result, and cumsum's is `y`)
    assert inner.live - inner.before == outer.live - outer.before == 2 * y.nbytes


def test_nothing_is_left() -> None:
    """The collector has little to look at in the records, and they go with the report."""
    x = ad.rand(4, requires_grad=True)
    with ad.memory.track(x) as t:
        y = x.exp().cumsum(0)
        y.sum().backward()
    records = [r for r in t._ledger._log if type(r) in (Entry, Saver)]
    assert len(records) > 5 and {len(gc.get_referents(r)) for r in records} <= {0, 1}
    arrays = owner_of(x.array), y.array
    assert [weakref.getweakrefcount(a) for a in arrays] == [1, 1]
    ledger = weakref.ref(t._ledger)
    del records, t
    assert ledger() is None
    assert [weakref.getweakrefcount(a) for a in arrays] == [0, 0]


def test_a_record_outlives_its_ledger() -> None:
    """Somebody may hold an entry: the end of its storage is no event any more."""
    x = ad.rand(4)
    with ad.memory.track(x) as t:
        y = x.exp()
    entry = t._ledger.entries[-1]
    assert entry() is y.array and entry.shape == (4,) and entry.died > 1 << 60
    del t, y
    assert entry() is None and entry.died > 1 << 60


def test_storages_and_nodes_that_the_collector_frees() -> None:
    """A cycle ends at a collector's run; the log says so."""
    x = ad.rand(4, requires_grad=True)
    with ad.memory.track(x) as t:
        for _ in range(3):
            loop: list[Any] = [x.exp().cumsum(0)]
            loop.append(loop)
            del loop
        x.sin()
        before = t.live
        gc.collect()
        x.cos()
        after = t.live
    assert before - after == 3 * 2 * 16
    ended = [e for e in t._ledger.entries if e.op in ("exp", "cumsum")]
    assert len(ended) == 6 and {e.died for e in ended} == {7}
    assert {e.released for e in ended if e.op == "exp"} == {7}


def test_a_ledger_in_a_cycle_is_freed() -> None:
    x = ad.rand(4)
    t: Any = ad.memory.track(x)
    with t:
        y = x.exp()
    t.itself = t
    ledger = weakref.ref(t._ledger)
    del t
    gc.collect()
    assert ledger() is None and not weakref.getweakrefcount(y.array)
