"""What Python's garbage collector sees of the graph: every cycle that a user can tie is found."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import adjoint as ad
from adjoint.core.node import Node, PairNode
from adjoint.kernels import builtin, calls
from adjoint.ops import family

Tie = Callable[[Any, Any, Any], Any]


def _saved_by_the_first(x: Any, first: Any, last: Any) -> None:
    x.keep = last                                  # x * x keeps x, and x now leads to the end


def _hook_of_the_first_tensor(x: Any, first: Any, last: Any) -> None:
    first.register_hook(lambda g: last.detach() * g)


def _hook_after_the_first_node(x: Any, first: Any, last: Any) -> None:
    first.grad_fn.register_hook(lambda gi, go, held=last: None)


def _hook_before_the_first_node(x: Any, first: Any, last: Any) -> None:
    first.grad_fn.register_prehook(lambda go, held=last: None)


def _metadata(x: Any, first: Any, last: Any) -> None:
    first.grad_fn.metadata["end"] = last


def _hook_of_the_leaf(x: Any, first: Any, last: Any) -> None:
    x.register_post_accumulate_grad_hook(lambda t, held=last: None)


def _pack(x: Any, first: Any, last: Any) -> None:
    first.grad_fn._raw_saved_self.register_hooks(lambda t: (t, last), lambda held: held[0])


TIES: list[Tie] = [
    _saved_by_the_first,
    _hook_of_the_first_tensor,
    _hook_after_the_first_node,
    _hook_before_the_first_node,
    _metadata,
    _hook_of_the_leaf,
    _pack,
]


def _chain(x: Any) -> tuple[Any, Any]:
    """Nodes of all layouts: residuals in one slot, in two, none, the output itself; one edge and
    two."""
    first = x * x
    y = first
    for _ in range(50):
        y = ((y * x + 1.0).tanh() - x) / (x + 2.0)
    return first, y


@pytest.mark.parametrize("tie", TIES, ids=lambda f: f.__name__[1:])
@pytest.mark.parametrize("walked", [False, True], ids=["unrun", "run"])
def test_cycles_are_found(tie: Tie, walked: bool) -> None:
    """F20: a graph that leads back to itself is freed by the collector, run or not."""
    x = ad.tensor([0.5, 0.25], requires_grad=True)
    first, y = _chain(x)
    tie(x, first, y)
    if walked:
        y.sum().backward(retain_graph=True)
    dead = [weakref.ref(t) for t in (x, first, first.grad_fn, y, y.grad_fn)]
    del x, first, y
    gc.collect()
    assert [ref() for ref in dead] == [None] * 5


def test_cycle_through_a_custom_function() -> None:
    """A context that keeps the result, below nodes of pointwise ops."""

    class Keep(ad.autograd.Function):
        @staticmethod
        def forward(ctx, a):  # type: ignore[no-untyped-def]
            ctx.box = []
            boxes.append(ctx.box)
            return a * 2.0

        @staticmethod
        def backward(ctx, g):  # type: ignore[no-untyped-def]
            return g * 2.0

    boxes: list[list[Any]] = []
    x = ad.ones(3, requires_grad=True)
    y = (Keep.apply(x * x) + x).exp()
    boxes.pop().append(y)
    dead = [weakref.ref(y), weakref.ref(y.grad_fn)]
    del y
    gc.collect()
    assert [ref() for ref in dead] == [None, None]


def test_a_living_graph_is_left_alone() -> None:
    """What is referred to from outside through nodes alone survives collections, and still runs."""
    x = ad.tensor([0.5, 0.25], requires_grad=True)
    want, got = _chain(x)[1], _chain(x)[1]
    got.register_hook(lambda g: g)
    for generation in (0, 1, 2):
        gc.collect(generation)
    (a,), (b,) = ad.autograd.grad(want.sum(), x), ad.autograd.grad(got.sum(), x)
    assert a.tolist() == b.tolist()


def test_nodes_show_the_collector_their_links() -> None:
    """Edges and residuals, and a plan that is the node's own."""
    x = ad.ones(3, requires_grad=True)
    y = x * x
    node: Any = y.grad_fn
    if not _generated(y):
        pytest.skip("without generated code Python looks at every slot")
    links = [node.e0, node.e1, node.s0, node.s1]
    assert list(map(id, gc.get_referents(node))) == list(map(id, links))
    node.metadata["note"] = 1
    assert [node.plan, *links][0] is gc.get_referents(node)[0]
    assert (x * x).grad_fn.metadata == {} and node.metadata == {"note": 1}


def _generated(y: Any) -> bool:
    return id(y.grad_fn.code) not in map(id, gc.get_referents(y.grad_fn))


class TestFollow:
    """`builtin.follow` on classes like those of nodes."""

    def kind(self) -> Any:
        """A class of the same layout as `PairNode`."""
        return type("Kind", (Node,), {"__slots__": ("e0", "e1", "s0", "s1")})

    def address(self) -> int:
        y = ad.ones(3, requires_grad=True) * 2.0
        if not _generated(y):
            pytest.skip("needs generated code")
        module: Any = calls._nodes(family._pair)
        return int(module.address("follow"))

    def test_what_does_not_fit_is_left_alone(self) -> None:
        """Code that visits something else is taken out again, and nothing is different."""
        kind = self.kind()
        assert kind.__basicsize__ == PairNode.__basicsize__
        thing = kind()
        thing.plan = [1]
        before = gc.get_referents(thing)
        assert not builtin.follow(kind, self.address(), thing, [thing.plan, thing])
        assert gc.get_referents(thing) == before
        self.dies(kind())

    def dies(self, thing: Any) -> None:
        thing.plan = [thing]
        ref = weakref.ref(thing)
        del thing
        gc.collect()
        assert ref() is None

    @pytest.mark.parametrize("space", [{"__slots__": ("more",)}, {}], ids=["slot", "dict"])
    def test_derived_classes_are_followed_as_before(self, space: dict[str, Any]) -> None:
        """Slots and attributes that a class below adds are seen by Python's own function."""
        self.address()
        node: Any = type("Below", (PairNode,), space)()
        node.more = [node]
        ref = weakref.ref(node)
        del node
        gc.collect()
        assert ref() is None


def test_what_one_node_has_stays_with_it() -> None:
    """Hooks of one node of an op are no other node's; a plan that nodes share keeps none."""
    x = ad.ones(3, requires_grad=True)
    a, b = x * 2.0, x * 3.0
    seen = []
    a.register_hook(lambda g: seen.append("a"))
    (a + b).sum().backward()
    assert seen == ["a"] and a.grad_fn.plan is not b.grad_fn.plan
    assert b.grad_fn._tensor_hooks is None and x.grad.tolist() == [5.0] * 3
    assert a.grad_fn.dtype == b.grad_fn.dtype == x.dtype.dtype


def _long(nodes: int) -> Any:
    y = ad.ones(2, requires_grad=True)
    for _ in range(nodes // 2):
        y = y * 1.5 + 1.0
    return y


class TestLongGraphs:
    """Nodes of a long graph count less towards the next collection than those of a short one."""

    def made(self) -> None:
        if not _generated(_long(4000)):
            pytest.skip("without generated code every node counts")
        gc.collect()

    def test_collections_get_rarer(self) -> None:
        """A hundred thousand nodes: 142 times 700; of the first 32768 all count, then one in two,
        one in three, one in four. Short graphs are as before: every 700."""
        self.made()
        runs: list[int] = []

        def told(phase: str, info: dict[str, int]) -> None:
            if phase == "start":
                runs.append(info["generation"])
        gc.callbacks.append(told)
        try:
            short = _long(28_000)
            few = len(runs)
            more = _long(72_000)
        finally:
            gc.callbacks.remove(told)
        first = gc.get_threshold()[0]
        assert 28_000 // first - 3 <= few <= 28_000 // first + 3
        assert len(runs) - few <= 45_000 // first
        del short, more

    def test_what_is_freed_counts_down_what_was_counted_up(self) -> None:
        """Otherwise graphs that come and go would hasten the collections, or prevent them."""
        self.made()
        gc.disable()
        try:
            before = gc.get_count()[0]
            for n in (100, 90_000, 3000, 70_000):
                y = _long(n)
                assert gc.is_tracked(y.grad_fn)
                del y
            after = gc.get_count()[0]
        finally:
            gc.enable()
        assert abs(after - before) < 100

    def test_a_long_cycle_is_found(self) -> None:
        """Nodes that did not count are known to the collector, and their memory comes back."""
        x = ad.ones(2, requires_grad=True)
        y = x * x
        for _ in range(50_000):
            y = y * 1.5
        x.keep = y
        dead = [weakref.ref(x), weakref.ref(y.grad_fn), weakref.ref(y.grad_fn.e0.e0)]
        del x, y
        gc.collect()
        assert [ref() for ref in dead] == [None] * 3

    def test_garbage_in_a_loop_comes_back_unasked(self) -> None:
        """Steps of two thousand nodes, each a cycle: most are gone before the loop ends."""
        alive = []
        for _ in range(200):
            x = ad.ones(2, requires_grad=True)
            y = x * x
            for _ in range(2000):
                y = y * 1.5
            x.keep = y
            alive.append(weakref.ref(x))
        del x, y
        assert sum(ref() is not None for ref in alive) < 100
        gc.collect()
