"""Plain nodes in machine code (`kernels/walk.py`) do what `Backward.run` does."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from helpers_kernels import leaks_nothing

import adjoint as ad
import adjoint.nn.functional as F
from adjoint.autograd import engine, sums
from adjoint.autograd.plain import walker
from adjoint.core.modes import Observer, watchers
from adjoint.core.op import OFTEN
from adjoint.core.tensor import Freed

MACHINE, ARRANGE = walker(engine.LARGE, engine.WHOLE) or (None, None)
pytestmark = pytest.mark.skipif(MACHINE is None, reason="no generated code here")


class Counter:
    """Counts the nodes that machine code has visited."""

    def __init__(self) -> None:
        self.visited = 0

    def __call__(self, nodes: int, large: int, whole: int) -> Any:
        def counted(order: Any, at: int, *rest: Any) -> int:
            end = MACHINE(order, at, *rest)
            self.visited += end - at
            return end
        return counted, ARRANGE


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter]:
    """Machine code, counted."""
    made = Counter()
    monkeypatch.setattr(engine, "machine", made)
    yield made


def without(monkeypatch: pytest.MonkeyPatch, f: Callable[[], Any]) -> Any:
    """`f()` with the Python loop alone."""
    with monkeypatch.context() as m:
        m.setattr(engine, "machine", lambda *_: (None, None))
        return f()


def leaf(shape: Any, seed: int, dtype: Any = ad.float32) -> Any:
    """A tensor with a gradient."""
    data = np.random.default_rng(seed).uniform(0.2, 1.0, shape)
    return ad.tensor(data, dtype=dtype, requires_grad=True)


def fan(x: Any, y: Any) -> Any:
    """Fan-out, fan-in, residuals that are outputs, numbers, repeated operands."""
    a = x * y + x / 2.0
    b = ad.tanh(a) * a - ad.exp(-a) * x
    return ((b * b).sqrt() + ad.maximum(a, b) + ad.sigmoid(a * 3)) / (x + 1.5)


def broadcast(x: Any, y: Any) -> Any:
    """Cotangents that are summed to the shape of an operand."""
    row, one = y[0] if y.ndim else y, y.sum()
    return (x * row + one) * one - row / (x + 1.0)


def mixed(x: Any, y: Any) -> Any:
    """Nodes that are not plain in between: views, products, several outputs, reductions."""
    a, b = (x * y).reshape(-1).split([2, x.numel() - 2])
    c = ad.cat([b * 2.0, a]).reshape(x.shape) + x
    return (c * y).cumsum(0) * ad.softmax(c * x, -1)


PROGRAMS = [fan, broadcast, mixed]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@pytest.mark.parametrize("dtype", [ad.float32, ad.float64], ids=str)
@pytest.mark.parametrize("shape", [(3,), (4, 2), (2, 1, 3), (40, 50)])
def test_gradients_are_bit_equal(program: Any, dtype: Any, shape: Any, counter: Counter,
                                 monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without machine code; for `backward` and `retain_graph` too."""
    def run() -> list[bytes]:
        x, y = leaf(shape, 1, dtype), leaf(shape, 2, dtype)
        loss = program(x, y).sum()
        loss.backward(retain_graph=True)
        first = [x.grad.numpy().tobytes(), y.grad.numpy().tobytes()]
        loss.backward()
        return [*first, x.grad.numpy().tobytes(), y.grad.numpy().tobytes()]
    got = run()
    assert got == without(monkeypatch, run)
    assert counter.visited > 4


def test_one_element(counter: Counter) -> None:
    """0-d cotangents stay arrays."""
    x = ad.tensor(0.5, requires_grad=True)
    (ad.tanh(x * x) * x + x).backward()
    t = np.tanh(0.25)
    assert x.grad.item() == pytest.approx(t + (1 - t * t) * 2 * 0.25 + 1, rel=1e-6)
    assert x.grad.shape == () and counter.visited >= 4


def test_residuals_are_released_one_by_one(counter: Counter) -> None:
    """A second backward says so; what was released is marked; live bytes fall."""
    x = leaf((512,), 3)
    a = x * x
    b = ad.exp(a)
    c = b * a
    loss = c.sum()
    loss.backward()
    assert type(c._edge.s0) is Freed and type(b._edge.s0) is Freed
    assert counter.visited >= 3
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        loss.backward()


def test_what_is_not_plain_is_left_to_python(counter: Counter) -> None:
    """Hooks, retained gradients, residuals that were written to, packed residuals, ports."""
    x = leaf((4,), 4)
    seen: list[Any] = []
    y = x * 2.0
    y.register_hook(lambda g: seen.append(g.tolist()))
    z = y * 3.0
    z.retain_grad()
    z.sum().backward()
    assert seen == [[3.0] * 4] and z.grad.tolist() == [1.0] * 4 and x.grad.tolist() == [6.0] * 4
    w = x * 1.0
    v = w * w
    w.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        v.sum().backward()
    with ad.autograd.graph.save_on_cpu():
        u = x * x
    x.grad = None
    u.sum().backward()
    assert np.allclose(x.grad.numpy(), 2 * x.detach().numpy())


def test_an_error_in_a_rule_passes_through(counter: Counter,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was raised, with the note about leaves; the next backward is as if nothing happened."""
    x = leaf((4,), 5)
    y = x * x
    y.sum().backward()
    plan = (x * x)._edge.plan

    def fails(*_: Any) -> Any:
        raise ArithmeticError("in the rule")
    z = x * x
    with monkeypatch.context() as m:
        m.setattr(plan, "fast", fails)
        with pytest.raises(ArithmeticError, match="in the rule"):
            z.sum().backward()
    x.grad = None
    (x * x).sum().backward()
    assert np.allclose(x.grad.numpy(), 2 * x.detach().numpy())


def test_nothing_leaks(counter: Counter) -> None:
    """Objects, shared references and bytes after many backwards."""
    x, y = leaf((8,), 6), leaf((8,), 7)

    def work() -> None:
        for _ in range(200):
            fan(x, y).sum().backward()
            broadcast(x, y).sum().backward(retain_graph=True)
    work()
    plan = (x * y)._edge.plan
    shared = [None, True, False, plan, plan.fast, x._edge, Freed, np.ndarray, 0, 1, 2]
    leaks_nothing(work, shared, 60)
    assert counter.visited > 4000


@pytest.fixture
def silent_collector() -> Iterator[None]:
    """Python drops an interrupt that comes due in a callback of its collector; Hypothesis has one,
    and the collector is at work for much of a long chain's time."""
    callbacks = list(gc.callbacks)
    gc.callbacks.clear()
    yield
    gc.callbacks.extend(callbacks)


@pytest.mark.usefixtures("silent_collector")
def test_interrupt_in_a_long_chain() -> None:
    """Ctrl-C is noticed between slices of a backward that runs no Python code."""
    x = ad.tensor(1.0, requires_grad=True)
    y = x
    for _ in range(400_000):
        y = y + x
    timer = threading.Timer(0.02, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        for _ in range(1000):
            ad.autograd.grad(y, [y], retain_graph=True)
            y.backward(retain_graph=True)
    timer.join()


def test_other_threads_run_meanwhile() -> None:
    """A long backward hands the interpreter over now and then."""
    x = ad.tensor(1.0, requires_grad=True)
    y = x
    for _ in range(300_000):
        y = y + x
    ticks: list[float] = []
    done = threading.Event()

    def tick() -> None:
        while not done.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.001)
    t = threading.Thread(target=tick)
    t.start()
    y.backward(retain_graph=True)
    y.backward()
    done.set()
    t.join()
    assert len(ticks) > 3
    assert x.grad.item() == 600_002.0


def test_threads_walk_at_once(counter: Counter) -> None:
    """Eight graphs in eight threads, and one leaf that all of them feed."""
    shared, wrong = leaf((6,), 8), []

    def work(k: int) -> None:
        own = leaf((6,), 100 + k)
        want = None
        for _ in range(40):
            own.grad = None
            (fan(own, own.detach()) * 1.0).sum().backward()
            got = own.grad.tolist()
            want = got if want is None else want
            if got != want:
                wrong.append(k)
            (shared * 1.0).sum().backward()
    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == [] and shared.grad.tolist() == [320.0] * 6


def chain(x: Any, y: Any) -> Any:
    """Products whose cotangents meet: at a leaf, at a node, twice at one place."""
    a = ((x * y + x) * y - x) * 0.5 + y * y
    return a * a / y + a * x


@pytest.mark.parametrize("dtype", [ad.float32, ad.float64])
@pytest.mark.parametrize("shape", [(420, 41), (64, 1024)])
def test_large_cotangents_are_added_in_the_pass_that_computes_them(
        shape: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the bits of making them first; nothing that the user holds is written to."""
    x, y = leaf(shape, 1, dtype), leaf(shape, 2, dtype)
    seed = ad.tensor(np.random.default_rng(3).uniform(-1, 1, shape), dtype=dtype)
    held = [t.detach().numpy().copy() for t in (x, y, seed)]
    added, adds = [], sums.added

    def counting(*args: Any) -> Any:
        found = adds(*args)
        added.append(found is not None)
        return found
    with monkeypatch.context() as m:
        m.setattr(sums, "added", counting)
        got = ad.autograd.grad(chain(x, y), [x, y], seed)
    assert sum(added) >= 4
    with monkeypatch.context() as m:
        m.setattr(sums, "added", lambda *_: None)
        want = ad.autograd.grad(chain(x, y), [x, y], seed)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(g.numpy(), w.numpy())
    for t, h in zip((x, y, seed), held, strict=True):
        np.testing.assert_array_equal(t.detach().numpy(), h)


def test_a_cotangent_that_somebody_holds_is_not_added_to() -> None:
    x = leaf((160, 160), 1)
    seen = []
    y = x * 2.0
    y.register_hook(seen.append)
    out = y * x + y * y
    out.backward(ad.ones(160, 160))
    np.testing.assert_array_equal(seen[0].numpy(), (x + 2 * y).detach().numpy())
    kept = seen[0].numpy().copy()
    (x * x + y.detach() * x).backward(ad.ones(160, 160))
    np.testing.assert_array_equal(seen[0].numpy(), kept)


def test_adding_takes_no_memory() -> None:
    """Backward of products that meet at a leaf: the sum, and no cotangent beside it."""
    from adjoint.kernels import alloc
    if not alloc.installed():
        pytest.skip("counts bytes by the caching allocator")
    x, c = leaf((512, 512), 1), [leaf((512, 512), i).detach() for i in range(4)]
    out = [x * k for k in c]
    loss = (out[0] + out[1]) + (out[2] + out[3])
    seed = ad.ones(512, 512)
    ad.memory.reset_peak_memory_stats()
    before = ad.memory.memory_allocated()
    loss.backward(seed)
    assert ad.memory.max_memory_allocated() - before <= 1.1 * x.numel() * 4


@pytest.mark.parametrize("watched", [False, True])
def test_a_chain_is_pulled_back_in_the_memory_of_one_cotangent(watched: bool) -> None:
    """Each cotangent is written over the one before; where two branches meet, added to the sum.
    An observer changes nothing of that."""
    from adjoint.kernels import alloc
    if not alloc.install():
        pytest.skip("counts bytes by the caching allocator")
    x = leaf((512, 512), 1)
    whole = x.numel() * 4

    def need(f: Callable[[Any], Any]) -> int:
        """Bytes beside the graph, the seed among them (the walk lets go of it at its end)."""
        f(x).backward(ad.ones(512, 512))         # (kernels keep a table per layout they meet)
        x.grad = None
        y, before = f(x), ad.memory.memory_allocated()
        held = watchers.push(watchers.observers, Observer()) if watched else None
        try:
            ad.memory.reset_peak_memory_stats()
            y.backward(ad.ones(512, 512), retain_graph=True)
            found: int = ad.memory.max_memory_allocated() - before
        finally:
            if held is not None:
                watchers.pop(held)
        x.grad = None
        return found
    assert need(lambda x: x.sin().cos().sin().cos().sin()) <= 2.1 * whole
    assert need(lambda x: x.sin().cos() + x.exp().sin()) <= 3.1 * whole


def test_an_operand_without_a_derivative() -> None:
    """Zeta has a derivative in its second operand only; where both are wanted it is refused."""
    s = ad.tensor([2.0, 3.0], requires_grad=True)
    q = ad.tensor([1.5, 2.5], requires_grad=True)
    with pytest.raises(RuntimeError, match="derivative for 'zeta' is not implemented"):
        (ad.special.zeta(s, q) * 2.0).sum().backward()
    assert s.grad is None and q.grad is None
    s = s.detach()
    (ad.special.zeta(s, q) * 2.0).sum().backward()
    want = -2 * s * ad.special.zeta(s + 1, q)
    assert q.grad is not None and ad.allclose(q.grad, want.detach())


def general(x: Any, y: Any) -> Any:
    """Nodes of rules that are called: products, joins, reductions, choices of elements, and what
    those keep: operands, outputs, shapes, several shapes, nothing."""
    a = ad.cat([x, y * 2.0], 0).sum(0) + ad.stack([x, y]).mean(0)
    b = (a.reshape(-1, 1) @ a.reshape(1, -1)).cumsum(0)
    return ad.softmax(b, -1).logsumexp(0).prod() * x[..., 0].sum() + b.t()[1].sum()


def often(f: Callable[[], Any]) -> Any:
    """`f()` when the rules of its nodes are written out."""
    for _ in range(OFTEN):
        f()
    return f()


@pytest.mark.parametrize("dtype", [ad.float32, ad.float64], ids=str)
@pytest.mark.parametrize("shape", [(3,), (4, 2), (40, 50)])
def test_rules_that_are_called(dtype: Any, shape: Any, counter: Counter,
                               monkeypatch: pytest.MonkeyPatch) -> None:
    """Bits, gradients that are added up, and graphs that are kept."""
    def run() -> list[bytes]:
        x, y = leaf(shape, 1, dtype), leaf(shape, 2, dtype)
        loss = general(x, y)
        loss.backward(retain_graph=True)
        first = [x.grad.numpy().tobytes(), y.grad.numpy().tobytes()]
        loss.backward()
        return [*first, x.grad.numpy().tobytes(), y.grad.numpy().tobytes()]
    want = without(monkeypatch, run)
    got = often(run)
    assert got == want
    before = counter.visited
    run()
    assert counter.visited - before > 24


def recurrent(x: Any, w: Any) -> Any:
    """A weight of several products, so large that they are added to its gradient in place; kernels
    of operands that are used twice; outputs of one node."""
    h, total = x, x * 0.0
    for _ in range(4):
        a, b = F.linear(h, w).chunk(2, 1)
        total = total + ad.tanh(a) * ad.sigmoid(b)
        h = ad.tanh(total)
    return h


def test_a_recurrent_program_never_leaves_machine_code(
        counter: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for products that are added to a sum, kernels beside a sum, or ports."""
    x, w = leaf((32, 128), 1), leaf((256, 128), 2)
    visited: list[Any] = []
    visit = engine.Backward.visit
    monkeypatch.setattr(engine.Backward, "visit", lambda walk, node: (
        visited.append(node.name()), visit(walk, node)))

    def run() -> bytes:
        w.grad = None
        recurrent(x, w).sum().backward()
        return w.grad.numpy().tobytes()
    want = without(monkeypatch, run)
    assert often(run) == want
    visited.clear()
    assert run() == want
    assert not visited and counter.visited > 28


def test_a_product_is_not_added_to_a_cotangent_of_two_operands(
        counter: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum passes one array on to both of its operands; one of them then gets a product."""
    x, w, v = leaf((128, 128), 1), leaf((128, 128), 2), leaf((128, 128), 3)

    def run() -> list[bytes]:
        w.grad = v.grad = None
        product = x @ w
        (product.sum() + ((w + v) * x).sum()).backward()
        return [w.grad.numpy().tobytes(), v.grad.numpy().tobytes()]
    want = without(monkeypatch, run)
    assert want[1] == x.detach().numpy().tobytes()
    assert often(run) == want and counter.visited


def test_general_nodes_let_go_of_residuals(counter: Counter) -> None:
    """A node whose rules were called is marked as released, and says so the second time; one whose
    residual was written to, or that somebody hooked, is the engine's."""
    x, w = leaf((4, 3), 3), leaf((3, 2), 4)

    def step(product: Callable[[Any], Any]) -> Any:
        y = product(x @ w)
        y.sum().backward()
        return y
    y = often(lambda: step(lambda p: p))
    assert type(y._edge.saved) is Freed
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        y.sum().backward()
    seen: list[Any] = []
    x.grad = None
    hooked = step(lambda p: p.register_hook(lambda g: seen.append(g.shape)) and p)
    assert seen == [(4, 2)] and type(hooked._edge.saved) is Freed
    assert np.allclose(x.grad.numpy(), w.detach().numpy().sum(1))
    a = x * 1.0
    b = a @ w
    a.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        b.sum().backward()


def test_cotangents_that_do_not_fit_go_to_the_engine(counter: Counter) -> None:
    """Broadcast operands of products, dtypes that were promoted, several outputs, sums of many."""
    x, w = leaf((2, 4, 3), 5), leaf((3, 2), 6)

    def step() -> Any:
        x.grad = w.grad = None
        y = ad.matmul(x, w)
        (y.sum() + sum(part.sum() for part in x.split(2, 1)) + ad.cat([y[0].double(), y[1]]).sum()
         + sum(x.sum(1).sum() for _ in range(3))).backward()
        return x.grad.numpy().copy(), w.grad.numpy().copy()
    gx, gw = often(step)
    assert np.allclose(gx, 2 * w.detach().numpy().sum(1) + 4) and gx.dtype == np.float32
    assert np.allclose(gw, 2 * x.detach().numpy().sum((0, 1))[:, None])


def test_an_error_in_a_rule_that_is_called(counter: Counter,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was raised; the next backward is as if nothing had happened."""
    x = leaf((4, 3), 8)
    often(lambda: x.cumsum(0).sum().backward())
    plan = x.cumsum(0)._edge.plan

    def fails(*_: Any) -> Any:
        raise ArithmeticError("in the rule")
    x.grad = None
    with monkeypatch.context() as m:
        m.setattr(plan, "rules", fails)
        with pytest.raises(ArithmeticError, match="in the rule"):
            x.cumsum(0).sum().backward()
    assert x.grad is None
    x.cumsum(0).sum().backward()
    assert x.grad[:, 0].tolist() == [4.0, 3.0, 2.0, 1.0]


def test_general_nodes_leak_nothing(counter: Counter) -> None:
    """Objects, shared references and bytes after many backwards, refused ones among them."""
    x, y = leaf((4, 2), 6), leaf((4, 2), 7)

    def work() -> None:
        for _ in range(60):
            general(x, y).backward()
            loss = general(x, y)
            loss.backward(retain_graph=True)
            loss.backward()
            with pytest.raises(RuntimeError):
                loss.backward()
    work()
    plan = (x @ y.t())._edge.plan
    shared = [None, True, False, plan, plan.rules, x._edge, Freed, np.ndarray, 0, 1, 2]
    leaks_nothing(work, shared, 60)


class Twice(ad.autograd.Function):
    """A node whose edges lie in an instance dict."""

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        return x * 2 + y

    @staticmethod
    def backward(ctx: Any, *cts: Any) -> Any:
        return cts[0] * 2, cts[0]


def entangled(seed: int) -> tuple[Any, list[Any]]:
    """A tensor of a random graph with joins, ports, custom functions and hooks, and its leaves."""
    rng = np.random.default_rng(seed)
    leaves = [leaf((3,), i) for i in range(4)]
    made: list[Any] = [*leaves]
    for k in range(30):
        a, b = (made[i] for i in rng.integers(max(0, len(made) - 8), len(made), 2))
        kind = rng.integers(6)
        if kind == 0:
            made += list(ad.stack([a, b]).unbind())
        elif kind == 1:
            made.append(Twice.apply(a, b))
        elif kind == 2:
            made.append(a.sin())
            made[-1].register_hook(lambda g: None)
        elif kind == 3:
            made.append(ad.linalg.cross(a, b))
        else:
            made.append(a * b if k % 2 else a + leaves[k % 4])
    return made[-1] + made[-2] + made[-3], leaves


@pytest.mark.parametrize("seed", range(20))
def test_machine_code_finds_the_same_nodes(seed: int) -> None:
    y, _ = entangled(seed)
    found = []
    for reached in (ARRANGE, engine._reached):
        order, ends = [], {}
        reached(order, ends, [y._edge])
        assert len(order) == len(set(order)) > 1
        found.append((order, ends))
    assert found[0] == found[1]
    assert [n.seq for n in order] == sorted((n.seq for n in order), reverse=True)


def test_roots_in_any_order_and_wide_graphs() -> None:
    x = leaf((3,), 0)
    terms = [x.sin() * k for k in range(500)]    # a heap that grows
    rng = np.random.default_rng(0)
    y = ad.stack([terms[i] for i in rng.permutation(500)]).sum()
    order, ends = [], {}
    ARRANGE(order, ends, [terms[3]._edge, y._edge, terms[7]._edge])
    assert len(order) == 1002 and ends == {order[-1].e0: order[-1]}
    assert [n.seq for n in order] == sorted((n.seq for n in order), reverse=True)


def test_leaves_of_one_node_come_in_the_order_of_its_operands() -> None:
    a, b, c = (leaf((3,), i) for i in range(3))
    met: list[str] = []
    for t, name in ((a, "a"), (b, "b"), (c, "c")):
        t.register_post_accumulate_grad_hook(lambda _, name=name: met.append(name))
    first = ad.addcmul(b, c, a)
    (first * a * c).sum().backward()
    assert met == ["b", "c", "a"]


def test_an_error_while_edges_are_read_is_raised() -> None:
    x = leaf((3,), 0)
    y = Twice.apply(x.sin(), x).cos()
    node = y.grad_fn.next_functions[0][0]
    held, node.edges = node.edges, 3
    with pytest.raises(TypeError):
        ARRANGE([], {}, [y._edge])
    node.edges = held
    y.sum().backward()
    assert x.grad is not None
