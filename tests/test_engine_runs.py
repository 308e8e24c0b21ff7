"""Backward of large pointwise ops one after the other, in one pass: the same bits, the same rules
about who may see what, no more memory."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.autograd import runs, sums
from adjoint.kernels import alloc, llvm

pytestmark = pytest.mark.skipif(not llvm.available(), reason="needs llvmlite")
SHAPE = (400, 400)
Program = Callable[[Any, Any], Any]


def raw(seed: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).standard_normal(SHAPE).astype(dtype)


@pytest.fixture(autouse=True)
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[str]]]:
    """The names of the ops of every run that was computed at once."""
    found: list[list[str]] = []
    real = runs._done

    def done(walk: Any, run: Any, *rest: Any) -> bool:
        found.append([n.plan.op.name for n in run.nodes])
        return real(walk, run, *rest)
    monkeypatch.setattr(runs, "_done", done)
    monkeypatch.setattr(runs, "_met", {})
    monkeypatch.setattr(sums, "_RUN", 1 << 16)
    yield found


# how the cotangent comes: from the user, from a sum (with no memory of its own), from another op
# (whose memory may be written over)
ENDS: dict[str, Callable[[Any], None]] = {
    "given": lambda out: out.backward(ad.tensor(raw(3, out.dtype.dtype))),
    "sum": lambda out: out.sum().backward(),
    "tanh": lambda out: out.tanh().backward(ad.tensor(raw(3, out.dtype.dtype)))}


def gradients(f: Program, dtype: Any, times: int, end: str) -> Any:
    x, y = (ad.tensor(raw(i, dtype), requires_grad=True) for i in (1, 2))
    for _ in range(times):
        ENDS[end](f(x, y))
    return [None if t.grad is None else t.grad.numpy() for t in (x, y)]


PROGRAMS: dict[str, tuple[Program, int]] = {      # and the nodes of its longest run
    "chain": (lambda x, y: ((x * y + x) * y - x) * 0.5 + y * y, 5),
    "one leaf": (lambda x, y: (x * x + x) * x - x, 4),
    "division": (lambda x, y: (x / (y * y + 1.5) + x) * 3.0, 5),
    "square": (lambda x, y: ((x * y).square() + y) * 2.0, 4),
    "roots": (lambda x, y: (x.abs() + 1.0).sqrt() * y, 3),
    "one twice": (lambda x, y: (lambda z: z * z)(x * y + y), 3),
    "negative": (lambda x, y: -(x - y * 0.25) - y, 4),
    "product of three": (lambda x, y: x * y * x, 2),
    "row": (lambda x, y: ((x + y[0]) * 2.0 - y) * y, 3),
    "approximated": (lambda x, y: (ad.nn.functional.silu(x * y + x) - y) * y, 2),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_runs_give_the_bits_of_nodes_one_by_one(
        name: str, dtype: Any, end: str, taken: list[list[str]],
        monkeypatch: pytest.MonkeyPatch) -> None:
    f, longest = PROGRAMS[name]
    got = [gradients(f, dtype, times, end) for times in (1, 1, 2)]    # the first is one by one
    assert end == "tanh" or max(map(len, taken)) == longest
    monkeypatch.setattr(sums, "_RUN", 1 << 62)
    for times, have in zip((1, 1, 2), got, strict=True):
        for a, b in zip(have, gradients(f, dtype, times, end), strict=True):
            assert (a is None and b is None) or np.array_equal(a, b)


@pytest.mark.skipif(not alloc.available(), reason="needs the allocator's counters")
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_runs_need_no_more_memory(name: str, end: str, taken: list[list[str]],
                                  monkeypatch: pytest.MonkeyPatch) -> None:
    f = PROGRAMS[name][0]
    alloc.ensure()

    def peak() -> int:
        """Bytes above what was alive before, least of three steps."""
        found = []
        for _ in range(3):
            out = f(*(ad.tensor(raw(i), requires_grad=True) for i in (1, 2)))
            before = alloc.live()
            alloc.reset_peak()
            ENDS[end](out)
            found.append(alloc.live_and_peak()[1] - before)
            del out
        return min(found)
    gradients(f, np.float32, 1, end)
    at_once = peak()
    assert taken or end == "tanh"
    monkeypatch.setattr(sums, "_RUN", 1 << 62)
    assert at_once <= peak()


def chain(x: Any, y: Any) -> tuple[Any, Any]:
    """The chain, and its third result of six."""
    middle = (x * y + x) * y
    return (middle - x) * 0.5 + y * y, middle


def leaves() -> list[Any]:
    return [ad.tensor(raw(i), requires_grad=True) for i in (1, 2)]


def test_what_is_looked_at_ends_a_run(taken: list[list[str]]) -> None:
    want = gradients(lambda x, y: chain(x, y)[0], np.float32, 1, "given")
    seen: list[Any] = []
    taken.clear()
    for _ in range(3):
        x, y = leaves()
        out, middle = chain(x, y)
        middle.retain_grad()
        middle.register_hook(seen.append)
        ENDS["given"](out)
        assert np.array_equal(middle.grad.numpy(), raw(3) * np.float32(0.5))
        assert np.array_equal(seen.pop().numpy(), middle.grad.numpy())
        assert all(np.array_equal(t.grad.numpy(), w) for t, w in zip((x, y), want, strict=True))
    assert taken == [["mul", "sub"]] * 2          # up to `middle`; the first time none is


def test_gradients_of_what_is_within_a_run() -> None:
    for _ in range(3):
        x, y = leaves()
        out, middle = chain(x, y)
        found = ad.autograd.grad(out, [middle, x], ad.tensor(raw(3)), retain_graph=True)
        assert np.array_equal(found[0].numpy(), raw(3) * np.float32(0.5))
        again = ad.autograd.grad(out, [x], ad.tensor(raw(3)))
        assert np.array_equal(again[0].numpy(), found[1].numpy())


def test_residuals_of_a_run_are_checked_and_go() -> None:
    for _ in range(3):
        x, y = leaves()
        z = x * 1.0
        out, _ = chain(z, y)
        with ad.no_grad():
            z.add_(1.0)
        with pytest.raises(RuntimeError, match="modified"):
            ENDS["given"](out)
        out, _ = chain(x, y)
        nodes = [out.grad_fn]
        while len(nodes) < 6:            # the first operand's, six deep
            nodes.append(nodes[-1].next_functions[0][0])
        ENDS["given"](out)
        assert all(n.freed is not None for n in nodes if n.plan.kept)
        with pytest.raises(RuntimeError, match="second time"):
            ENDS["given"](out)


def test_gradients_that_wait_are_there_when_user_code_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """x of x + f(y) waits until f's node has read what both get; then it needs no copy."""
    waited: list[int] = []
    real = sums.settle

    def settle(walk: Any) -> None:
        waited.append(len(walk.waiting))
        real(walk)
    monkeypatch.setattr(sums, "settle", settle)
    slope = 1 - np.tanh(raw(1) + raw(2) * np.float32(2.0)) ** 2
    want = raw(3) * slope
    seen: list[Any] = []
    for hooked in (False, True):
        x, y = leaves()
        z = y * 2.0
        if hooked:
            z.register_hook(lambda g, x=x: seen.append(x.grad.numpy().copy()))
        ENDS["given"]((x + z).tanh())
        assert np.allclose(x.grad.numpy(), want, rtol=1e-4, atol=1e-5)
        assert np.array_equal(y.grad.numpy(), x.grad.numpy() * 2)
    assert waited == [1, 1] and np.array_equal(seen[0], x.grad.numpy())


def test_gradients_of_two_leaves_have_memory_of_their_own() -> None:
    x, y = leaves()
    ct = ad.tensor(raw(3))
    (x + y).backward(ct)
    (x + y).backward(ct)
    ((x + y) * 1.0).backward(ct)
    arrays = [t.numpy() for t in (x.grad, y.grad, ct)]
    assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])
    assert all(np.array_equal(a, 3 * raw(3)) for a in arrays[:2])
