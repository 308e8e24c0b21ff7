"""Ops that observers are told of: the same results, nodes and order as when nobody watches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.core import bind as binding
from adjoint.core.modes import WATCH, Observer, state, watchers
from adjoint.core.op import OPS


class Look(Observer):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any, Any]] = []

    def before(self, op: Any, args: Any, attrs: Any) -> None:
        self.told.append(("before", op.name, args))

    def forward(self, node: Any, args: Any, made: Any) -> None:
        self.told.append(("forward", node, made[0]))

    def after(self, op: Any, args: Any, attrs: Any, made: Any, node: Any) -> None:
        self.told.append(("after", op.name, (args, made, node)))


class Told(Look):
    """Is content to be told of what machine code ran."""

    told = True


class Raw(Look):
    """Sees the raw results, too."""

    def computed(self, op: Any, args: Any, attrs: Any, outs: Any) -> None:
        self.told.append(("computed", op.name, outs))


class Watching:
    """A block in which `observer` is told."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer

    def __enter__(self) -> Any:
        self.held = watchers.push(watchers.observers, self.observer)
        return self.observer

    def __exit__(self, *_: object) -> None:
        watchers.pop(self.held)


def run(x: Any, w: Any) -> list[Any]:
    """Pointwise ops with tensors and numbers, products, views, several outputs, no gradient."""
    values, index = (x * 2.0 + w).max(dim=1)
    first, rest = (3 - x).split([1, 2], dim=1)
    with ad.no_grad():
        bare = x * w
    return [x * w, x / 3, (x @ w.T).tanh(), values, index, first, rest, x[0].exp(), bare]


def fields(t: Any) -> list[Any]:
    """What can be compared of a result and its node."""
    n = t.grad_fn
    out = [t.array.dtype, t.array.shape, t.array.tobytes(), t.requires_grad, t.output_nr]
    if n is None:
        return out
    saved = [type(s) for s in n.saved or ()]
    return [*out, type(n), id(n.plan), n.shape, n.dtype, n.attrs, saved,
            [type(e) for e in n.edges], n.where().split(":")[0]]


def operands() -> tuple[Any, Any]:
    ad.manual_seed(0)
    return ad.rand(3, 3, requires_grad=True), ad.rand(3, 3, requires_grad=True)


@pytest.mark.parametrize("kind", [Look, Told, Raw])
def test_results_and_nodes_are_the_same(kind: type[Look]) -> None:
    """By an observer that looks, and by one that has the op computed in the open."""
    x, w = operands()
    run(x, w)                                 # (every op has met its kinds of operands)
    want = [fields(t) for t in run(x, w)]
    with Watching(kind()):
        got = [fields(t) for t in run(x, w)]
        assert state() & WATCH
    for a, b in zip(want, got, strict=True):
        assert a[:5] == b[:5] and a[5:6] + a[7:] == b[5:6] + b[7:]
    assert kind.inside is (kind is Raw)


@pytest.mark.parametrize("kind", [Look, Told])
def test_order_and_node_of_what_is_told(kind: type[Look]) -> None:
    x, w = operands()
    with Watching(kind()) as seen:
        y = x * 2.0
        values, index = y.max(dim=1)
    names = [(what, name if isinstance(name, str) else name.op.name)
             for what, name, _ in seen.told]
    second = values.grad_fn.op.name
    assert names == [(k, n) for n in ("mul", second) for k in ("before", "forward", "after")]
    assert seen.told[1][1] is y.grad_fn and seen.told[1][2] is y
    args, made, node = seen.told[2][2]
    assert args[0] is x and args[1] == 2.0 and made[0] is y and node is y.grad_fn
    assert seen.told[4][1] is values.grad_fn and not index.requires_grad


def test_raw_results_are_shown_who_asks() -> None:
    x, w = operands()
    with Watching(Raw()) as raw, Watching(Look()) as look:
        y = x + w
    outs = next(outs for what, _, outs in raw.told if what == "computed")
    assert np.array_equal(outs[0], y.detach().numpy())
    assert [what for what, _, _ in look.told] == ["before", "forward", "after"]


@pytest.mark.parametrize("kind", [Look, Told])
def test_saved_tensor_hooks_pack_beside_an_observer(kind: type[Look]) -> None:
    x, w = operands()
    packed: list[Any] = []

    def pack(t: Any) -> Any:
        packed.append(t)
        return t
    with Watching(kind()) as seen, ad.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = x * w
    assert len(packed) == 2 and [t[0] for t in seen.told] == ["before", "forward", "after"]
    y.sum().backward()
    assert np.array_equal(x.grad.numpy(), w.detach().numpy())


def test_an_error_leaves_the_watch_as_it_was() -> None:
    x, w = operands()
    with Watching(Look()) as seen:
        with pytest.raises(ValueError, match="mul"):
            x * ad.ones(4)
        assert state() & WATCH and [t[0] for t in seen.told] == ["before"]
        x * w
    assert not state() & WATCH and [t[0] for t in seen.told][1:] == ["before", "forward", "after"]


@pytest.mark.skipif(binding.machine is None, reason="needs generated code")
def test_an_op_that_is_only_told_of_runs_in_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Watched by an observer that changes nothing, a node is recorded as when nobody watches."""
    recorded: list[str] = []
    record = binding.record

    def counted(op: Any, *rest: Any) -> Any:
        recorded.append(op.name)
        return record(op, *rest)
    monkeypatch.setattr(binding, "record", counted)
    x = ad.ones(3, 4, requires_grad=True)

    def program() -> None:
        for _ in range(3):
            x.sum(dim=1).reshape(-1, 1).transpose(0, 1).cumsum(0)
    program()
    recorded.clear()
    program()
    alone = list(recorded)
    recorded.clear()
    with Watching(Look()):
        program()
    assert recorded == alone


class Steps(Observer):
    """Writes down events by name, with their gradients."""

    def __init__(self) -> None:
        self.steps: list[Any] = []

    def after(self, op: Any, args: Any, attrs: Any, made: Any, node: Any) -> None:
        self.steps.append((op.name, [t.array.tobytes() for t in made], type(node)))

    def backward(self, node: Any, ct: Any, results: Any) -> None:
        def raw(c: Any) -> Any:
            return [raw(x) for x in c] if isinstance(c, list) else c if c is None else c.tobytes()
        self.steps.append((node.name(), raw(ct), raw(list(results)), type(node.saved)))

    def accumulated(self, leaf: Any) -> None:
        self.steps.append(("leaf", leaf.grad.array.tobytes()))


class ToldSteps(Steps):
    """The same, told by machine code."""

    told = True


def network(x: Any, w: Any) -> Any:
    """Products, views, sums that broadcast, several outputs, a row function, fan-in."""
    first, rest = (x @ w + w[0]).split([1, 2], dim=1)
    both = ad.cat([rest * first, first / 3], dim=1).reshape(-1, 3)
    y = ad.softmax(both.transpose(0, 1), -1) * x.sum(0) + ad.nn.functional.layer_norm(x, (3,))
    return (y * y + y.mean(dim=1, keepdim=True)).sum()


def test_told_of_the_same_events() -> None:
    """Of ops, of nodes with their cotangents, of leaves, also where gradients are off."""
    x, w = operands()
    found = []
    for _ in range(30):                       # rules are written out after twenty uses
        network(x, w).backward()
    for kind in (Steps, ToldSteps):
        x.grad = w.grad = None
        with Watching(kind()) as seen:
            network(x, w).backward()
            with ad.no_grad():
                network(x, w)
            network(x, w).backward(retain_graph=True)
        found.append(seen.steps)
    assert found[0] == found[1] and len(found[0]) > 60
    assert [type(s) for s in found[0]] == [tuple] * len(found[0])


@pytest.mark.skipif(binding.machine is None, reason="needs generated code")
def test_machine_code_runs_what_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Public functions are replayed and nodes visited as when nobody watches."""
    from adjoint.autograd import engine

    x, w = operands()
    for _ in range(200):                      # machine code comes once it pays
        network(x, w).backward()
    visited: list[str] = []
    visit, learnt = engine.Backward.visit, []
    monkeypatch.setattr(engine.Backward, "visit",
                        lambda self, node: visited.append(node.name()) or visit(self, node))
    watched = binding._bind_watched
    monkeypatch.setattr(binding, "_bind_watched",
                        lambda op, *rest: learnt.append(op.name) or watched(op, *rest))
    network(x, w).backward()
    alone = list(visited)
    assert not learnt
    visited.clear()
    with Watching(ToldSteps()):
        network(x, w).backward()
    told = list(visited)
    pointwise = {"add", "mul", "div"}                  # they are told of in Python
    assert {n for n in told if n not in alone} <= {OPS[n].node for n in pointwise}
    assert set(learnt) <= pointwise
    visited.clear()
    with Watching(Steps()):
        network(x, w).backward()
    assert len(visited) > len(told)


@pytest.mark.parametrize("which", ["cumsum", "mul", "tanh"])
def test_an_observer_that_raises(which: str) -> None:
    """What it raises comes out of the op or the backward, which leaves no state behind."""

    class Strict(ToldSteps):
        """Objects to a node or an op."""

        name = which

        def after(self, op: Any, *rest: Any) -> None:
            if op.name == self.name:
                raise KeyError(op.name)

        def backward(self, node: Any, ct: Any, results: Any) -> None:
            if node.op.name == self.name:
                raise KeyError(node.op.name)
    x, w = operands()

    def program() -> Any:
        return ((x @ w).cumsum(0) * x).tanh()
    for _ in range(200):                      # machine code comes once it pays
        program().sum().backward()
    with Watching(Strict()), pytest.raises(KeyError, match=which):
        program()
    loss = program().sum()
    with Watching(Strict()), pytest.raises(KeyError, match=which):
        loss.backward()
    assert not state() & WATCH
