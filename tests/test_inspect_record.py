"""Recording: events from real runs, state over time, bytes, names; nothing of the run changes."""
from __future__ import annotations

import json
import threading
import weakref
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from helpers_engine import leaf
from helpers_programs import Program, programs
from hypothesis import assume, given, settings

import adjoint as ad
from adjoint import nn
from adjoint.inspect.snapshot import FULL, Snapshot, statistics, thin
from adjoint.inspect.walk import Walk, at
from adjoint.inspect.walk_text import fields

F = nn.functional


def relu_of_linear() -> tuple[Walk, dict[str, Any]]:
    """The program of F5, recorded."""
    x = ad.tensor([[1.0, 2.0], [3.0, -4.0]])
    W = ad.tensor([[1.0, -1.0], [0.5, 2.0]], requires_grad=True)
    b = ad.tensor([0.1, 0.2], requires_grad=True)
    with ad.record() as walk:
        z1 = x @ W
        z2 = z1 + b
        y = z2.relu()
        loss = y.sum()
        loss.backward()
    return walk, {"x": x, "W": W, "b": b, "z1": z1, "z2": z2, "y": y, "loss": loss}


@pytest.mark.row("F104", "F5")
def test_events_of_forward_and_backward_in_order() -> None:
    walk, _ = relu_of_linear()
    assert str(walk).splitlines() == [
        "   0  z1 = mm(x, W); saves x (16 B)",
        "   1  z2 = add(z1, b); saves nothing",
        "   2  y = relu(z2); saves y (16 B)",
        "   3  loss = sum_all(y; dim=(0, 1), keepdim=False); saves nothing",
        "   4  backward begins at SumBackward0",
        "   5  SumBackward0: dL/dloss → dL/dy",
        "   6  ReluBackward0: dL/dy → dL/dz2; frees y (16 B)",
        "   7  AddBackward0: dL/dz2 → dL/dz1, dL/db",
        "   8  b.grad = [2, 1] (was None)",
        "   9  MmBackward0: dL/dz1 → dL/dW; frees x (16 B)",
        "  10  W.grad = [[4, 1], [-2, 2]] (was None)",
        "  11  backward ends"]
    assert walk.where(0).endswith("in relu_of_linear") and __file__ in walk.where(0)


@pytest.mark.row("F104", "F6")
def test_grad_stays_none_until_its_moment() -> None:
    walk, _ = relu_of_linear()
    W, b = walk.named("W"), walk.named("b")
    assert [at(b.grad, i) is None for i in range(12)] == [True] * 8 + [False] * 4
    assert [at(W.grad, i) is None for i in range(12)] == [True] * 10 + [False] * 2
    assert at(W.grad, 11).plain() == [[4.0, 1.0], [-2.0, 2.0]]


@pytest.mark.row("F105")
def test_the_six_fields_over_time() -> None:
    walk, _ = relu_of_linear()
    y = walk.named("y")
    assert fields(walk, y, 1) == {}
    assert fields(walk, y, 2) == {
        "data": "[[2.1, 3.2], [1.1, 0]]", "grad": "None", "grad_fn": "ReluBackward0",
        "saved_tensors": "y", "requires_grad": "True", "next_functions": "AddBackward0"}
    assert fields(walk, y, 6)["saved_tensors"] == "released"
    W = fields(walk, walk.named("W"), 11)
    assert (W["grad_fn"], W["grad"]) == ("None", "[[4, 1], [-2, 2]]")
    assert fields(walk, walk.named("z2"), 3)["next_functions"] == "MmBackward0, AccumulateGrad(b)"


@pytest.mark.row("F106")
def test_cards_mark_what_is_saved() -> None:
    from adjoint.inspect.formulas import plain
    walk, _ = relu_of_linear()
    mm = walk.cards[walk.events[0].card]
    assert plain(mm.backward["b"]).replace("ʘ", "") == "[a]ᵀ @ ct"
    assert set(mm.saved) == {"a"}
    assert walk.cards[walk.events[1].card].saved == {}


@pytest.mark.row("F20", "F78")
def test_saved_bytes_rise_to_the_loss_and_fall_in_backward() -> None:
    w = [ad.randn(8, 8, requires_grad=True) for _ in range(5)]
    h = ad.randn(8, 8)
    with ad.record() as walk:
        for m in w:
            h = (h @ m).tanh()
        loss = h.sum()
        del h, m
        loss.backward()
    begin = next(e.index for e in walk if e.kind == "begin")
    up = [e.saved for e in walk.events[:begin + 1]]
    down = [e.saved for e in walk.events[begin:]]
    assert up == sorted(up) and down == sorted(down, reverse=True)
    assert max(up) == up[-1] == 6 * 8 * 8 * 4      # five outputs of tanh, and the first operand
    assert down[-1] == 0


@pytest.mark.row("F8", "F9")
def test_fan_out_adds_up() -> None:
    x1, x2 = (ad.tensor(v, requires_grad=True) for v in (3.0, 4.0))
    with ad.record() as walk:
        f = (x1 + x2) * x1
        f.backward()
    grads = [walk.describe(e.index) for e in walk if e.kind == "grad"]
    assert sorted(grads) == ["x1.grad = 10 (was None)", "x2.grad = 3 (was None)"]
    mul = next(e for e in walk if e.kind == "node" and e.text == "MulBackward0")
    assert [v.plain() for v in mul.cts[0]] == [1.0]
    assert [v.plain() for v in mul.cts[1]] == [3.0, 7.0]


@pytest.mark.row("F17")
def test_second_backward_accumulates() -> None:
    x = ad.ones(2, requires_grad=True)
    with ad.record() as walk:
        y = (3 * x).sum()
        y.backward(retain_graph=True)
        y.backward()
    said = [walk.describe(e.index) for e in walk if e.kind == "grad"]
    assert said == ["x.grad = [3, 3] (was None)", "x.grad = [6, 6] (was [3, 3])"]


def test_retained_graph_keeps_what_it_saved() -> None:
    x = ad.ones(4, requires_grad=True)
    with ad.record() as walk:
        loss = x.exp().sum()
        loss.backward(retain_graph=True)
    assert walk.events[-1].saved == 16
    assert walk.nodes[0].released == -1


def test_zero_grad_and_optimizer_steps_are_seen() -> None:
    model = nn.Linear(2, 1)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.5)
    x = ad.ones(3, 2)
    before = model.weight.detach().clone()
    with ad.record() as walk:
        for _ in range(2):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
    kinds = [e.kind for e in walk]
    assert kinds.count("write") == 2 and kinds.count("zero") == 1
    zero = next(e for e in walk if e.kind == "zero")
    assert walk.describe(zero.index) == ".grad of model.weight, model.bias is None again"
    write = next(e for e in walk if e.kind == "write")
    assert walk.describe(write.index) == "SGD.step wrote model.weight, model.bias"
    weight = walk.named("model.weight")
    assert at(weight.data, 0).plain() == Snapshot(before.numpy()).plain()
    assert at(weight.data, len(walk)).plain() == Snapshot(model.weight.detach().numpy()).plain()


def test_zeroed_in_place_shows_in_grad() -> None:
    model = nn.Linear(2, 1)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.5)
    with ad.record() as walk:
        model(ad.ones(3, 2)).sum().backward()
        optimizer.zero_grad(set_to_none=False)
    grad = walk.named("model.weight").grad
    assert [v.plain() for _, v in grad] == [[[3.0, 3.0]], [[0.0, 0.0]]]


def test_in_place_changes_reach_every_view() -> None:
    x = ad.zeros(2, 2)
    with ad.record() as walk:
        row = x[0]
        row.add_(1)
        total = x + 0
    assert walk.events[1].inplace
    assert at(walk.named("x").data, 0).plain() == [[0.0, 0.0], [0.0, 0.0]]
    assert at(walk.named("x").data, 1).plain() == [[1.0, 1.0], [0.0, 0.0]]
    assert total.sum().item() == 2


def test_requires_grad_changes_and_grad_fn_in_place() -> None:
    x = ad.ones(2, requires_grad=True)
    with ad.record() as walk:
        y = ad.zeros(2)
        z = y + 1
        y.add_(x)
        u = y * z
    y_info = walk.named("y")
    assert fields(walk, y_info, 0)["grad_fn"] == "None"
    assert fields(walk, y_info, 0)["requires_grad"] == "False"
    assert fields(walk, y_info, 1)["grad_fn"] == "AddBackward0"
    assert fields(walk, y_info, 1)["requires_grad"] == "True"
    assert u.requires_grad


def test_modules_nest_and_name_parameters() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(2, 2), nn.ReLU())

        def forward(self, x: Any) -> Any:
            return self.body(x)

    with ad.record() as walk:
        Net()(ad.ones(1, 2))
    assert [g.name for g in walk.groups] == ["", "Net", "body", "body.0", "body.1"]
    assert [g.parent for g in walk.groups] == [-1, 0, 1, 2, 2]
    assert walk.named("body.0.weight").requires_grad
    assert [e.kind for e in walk] == ["enter", "enter", "enter", "op", "leave", "enter", "op",
                                      "leave", "leave", "leave"]


def test_without_gradient_nothing_is_recorded_but_everything_is_seen() -> None:
    x = ad.ones(2, requires_grad=True)
    with ad.record() as walk, ad.no_grad():
        y = x * 2
    assert walk.events[0].node == -1 and walk.nodes == []
    assert walk.describe(0) == "y = mul(x, 2); nothing recorded" and not y.requires_grad


def test_custom_functions() -> None:
    class Cube(ad.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x ** 3

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 3 * x * x * g

    x = ad.tensor([2.0], requires_grad=True)
    with ad.record() as walk:
        y = Cube.apply(x)
        y.sum().backward()
    op = next(e for e in walk if e.text == "Cube")
    assert walk.name(op.inputs[0]) == "x"
    assert [s.name for s in walk.nodes[op.node].saved] == ["saved0"]
    assert at(walk.named("x").grad, len(walk)).plain() == [12.0]


def test_graphs_made_before_the_recording_are_walked() -> None:
    x = ad.tensor([1.0, 2.0], requires_grad=True)
    loss = (x.exp() * 2).sum()
    with ad.record() as walk:
        loss.backward()
    assert [e.text for e in walk if e.kind == "node"] == [
        "SumBackward0", "MulBackward0", "ExpBackward0"]
    assert walk.named("x").grad[-1][1].plain() == [5.4366, 14.778]
    json.dumps(walk.to_json(), allow_nan=False)


def test_long_graphs_from_before_the_recording() -> None:
    x = ad.ones(2, requires_grad=True)
    h = x
    for _ in range(5000):
        h = h + 1.0
    with ad.record() as walk:
        y = h * 2
    assert len(walk.nodes) < 10 and y.requires_grad       # not walked through
    with ad.record() as walk:
        y.sum().backward()
    assert sum(e.kind == "node" for e in walk) == 5002
    assert walk.named("x").grad[-1][1].plain() == [2.0, 2.0]


def test_second_order_and_checkpoint_are_recorded() -> None:
    from adjoint.utils.checkpoint import checkpoint
    x = ad.tensor([0.5], dtype=ad.float64, requires_grad=True)
    with ad.record() as walk:
        (g,) = ad.autograd.grad((x ** 3).sum(), x, create_graph=True)
        g.sum().backward()
    assert at(walk.named("x").grad, len(walk)).plain() == [3.0]
    with ad.record() as walk:
        checkpoint(lambda t: t.sin().cos(), x, use_reentrant=False).sum().backward()
    sines = [e.index for e in walk if e.kind == "op" and e.text == "sin"]
    begin = next(e.index for e in walk if e.kind == "begin")
    assert len(sines) == 2 and sines[0] < begin < sines[1]      # forward ran again in backward


def test_retained_gradients_of_intermediates() -> None:
    x = ad.tensor([1.0, 2.0], requires_grad=True)
    with ad.record() as walk:
        y = x * 3
        y.retain_grad()
        y.sum().backward()
    assert at(walk.named("y").grad, len(walk)).plain() == [1.0, 1.0]


def test_nothing_is_kept_alive_and_memory_is_seen_going() -> None:
    x = ad.ones(100, requires_grad=True)
    with ad.record() as walk:
        y = x.exp()
        ref = weakref.ref(y)
        loss = y.sum()
        before = walk.events[-1]
        assert before.saved == 400
        del y, loss
        assert ref() is None
        x.detach() + 0
    assert walk.events[-1].saved == 0
    assert walk.nodes[0].dropped and walk.named("y").died > 0
    storage = walk.storages[walk.tensors[walk.events[0].outputs[0]].storage]
    assert storage.nbytes == 400 and storage.died >= 0


def test_locals_that_the_program_holds_stay() -> None:
    x = ad.ones(2)
    with ad.record():
        mine = locals()
        x * 2
    assert mine["x"] is x


def test_a_budget_holds_while_it_is_recorded() -> None:
    """Looking takes no memory of arrays: the smallest budget is the same with a recording."""
    def gradients(budget: int, recorded: bool) -> Any:
        ad.manual_seed(0)
        h, ws = ad.randn(64, 64), [ad.randn(64, 64, requires_grad=True) for _ in range(8)]
        with ad.record() if recorded else nullcontext() as walk, ad.memory.budget(budget):
            for w in ws:
                h = (h @ w).tanh().sin()
            h.sum().backward()
            del h, w
        assert not recorded or all(0 <= e.saved <= e.live for e in walk)
        return [w.grad.numpy().tobytes() for w in ws]

    def smallest(recorded: bool) -> int:
        low = 100_000 + ad.memory.memory_allocated()
        high = low + 900_000
        while high - low > 4096:
            middle = (low + high) // 2
            try:
                gradients(middle, recorded)
                high = middle
            except ad.memory.BudgetError:
                low = middle
        return high

    enough = smallest(recorded=False)
    assert abs(smallest(recorded=True) - enough) <= 2 * 4096
    assert gradients(enough + 4096, True) == gradients(enough + 1_000_000, False)


def test_an_exception_leaves_as_it_came_and_ends_the_walk() -> None:
    with pytest.raises(ZeroDivisionError), ad.record() as walk:
        ad.ones(2) * 2
        _ = 1 / 0
    assert walk.events[-1].kind == "error"
    assert walk.events[-1].text == "ZeroDivisionError: division by zero"
    assert __file__ in walk.where(walk.events[-1])
    assert not ad.core.modes.watchers.observers.get()


def test_limits_and_bad_arguments() -> None:
    x = ad.ones(2, requires_grad=True)
    with ad.record(limit=5) as walk:
        for _ in range(10):
            x = x * 1.0
    assert len(walk) == 5 and walk.dropped == 5
    json.dumps(walk.to_json(), allow_nan=False)
    with pytest.raises(ValueError, match="budget = 0 bytes"):
        ad.record(budget=0)
    with pytest.raises(ValueError, match="limit = 0"):
        ad.record(limit=0)
    recording = ad.record()
    with recording, pytest.raises(ValueError, match="running already"):
        recording.__enter__()
    with pytest.raises(KeyError, match="no tensor 'nope'"):
        walk.named("nope")


@pytest.mark.parametrize("array", [
    np.array(2.5), np.zeros((0, 3)), np.array([np.nan, np.inf, -np.inf, 1.0]),
    np.array([True, False]), np.arange(6).reshape(2, 3).T[::-1], np.array([1 + 2j]),
    np.zeros((1000, 50)), np.ones((200, 300, 2))[:, ::3], np.full(100, np.nan)])
def test_snapshots_of_odd_arrays(array: Any) -> None:
    snap = Snapshot(array)
    assert (snap.array is None) == (array.size > FULL)
    finite = np.abs(array[np.isfinite(array)]) if array.dtype.kind == "c" else array[
        np.isfinite(array)]
    if finite.size and not snap.sampled:
        assert snap.stats["min"] == finite.min() and snap.stats["max"] == finite.max()
    if snap.array is not None:
        assert snap.stats["bad"] == array.size - finite.size
    assert isinstance(snap.brief(), str)
    json.dumps(snap.plain(), allow_nan=False)


def test_samples_are_spread_and_small() -> None:
    a = np.arange(1000 * 1000.0).reshape(1000, 1000)
    part = thin(a)
    assert 500 <= part.size <= 2000 and part.max() > 900_000 and part.min() < 100_000
    assert statistics(part)["mean"] == pytest.approx(a.mean(), rel=0.1)


def test_meta_tensors_have_shapes_and_bytes() -> None:
    with ad.record() as walk:
        x = ad.empty(1000, 1000, device="meta", requires_grad=True)
        loss = (x * 2).sum()
        loss.backward()
    assert walk.peak >= 4_000_000
    assert walk.tensors[0].shape == (1000, 1000) and walk.tensors[0].data[0][1].stats == {}
    json.dumps(walk.to_json(), allow_nan=False)


def test_other_threads_are_not_recorded() -> None:
    with ad.record() as walk:
        thread = threading.Thread(target=lambda: ad.ones(3) * 2)
        thread.start()
        thread.join()
    assert len(walk) == 0 and "0 events" in repr(walk)


def outcome(program: Program) -> tuple[Any, list[Any]]:
    rng = np.random.default_rng(program.seed)
    leaves = [leaf(rng.uniform(0.3, 1.3, s)) for s in program.leaf_shapes]
    loss = program.run(ad, leaves)
    loss.backward()
    return loss, leaves


@given(programs(cuts=True))
@settings(max_examples=40)
def test_recording_changes_nothing_and_misses_nothing(program: Program) -> None:
    """The same bits with and without; the walk's gradients and bytes are the program's."""
    try:
        loss, leaves = outcome(program)
    except RuntimeError:
        assume(False)
    with ad.record() as walk:
        loss2, leaves2 = outcome(program)
    assert loss.numpy(force=True).tobytes() == loss2.numpy(force=True).tobytes()
    for a, b in zip(leaves, leaves2, strict=True):
        assert (a.grad is None) == (b.grad is None)
        if a.grad is not None:
            assert a.grad.numpy().tobytes() == b.grad.numpy().tobytes()
    for k, b in enumerate(leaves2):
        found = [t for t in walk.tensors if t.name in (f"x{k}", f"leaves[{k}]")]
        if b.grad is not None:
            grads = [at(t.grad, len(walk)) for t in found]
            want = Snapshot(b.grad.numpy()).plain()
            assert any(g is not None and g.plain() == want for g in grads)
    assert all(e.saved >= 0 and e.live >= e.saved for e in walk)
    assert walk.events[-1].saved == 0
    alive = sum(s.nbytes for s in walk.storages if s.died < 0)
    assert walk.events[-1].live >= alive - sum(
        s.nbytes for s in walk.storages if s.born > walk.events[-1].index)
    json.dumps(walk.to_json(), allow_nan=False)
