"""Several threads run forward and backward at once, also on graphs that share leaves."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers_engine import exact, leaf, near, randoms, values

import adjoint as ad
from adjoint.core.op import OPS


def together(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Runs work(0..count-1) in threads that start together; re-raises the first failure."""
    gate = threading.Barrier(count)
    results: list[Any] = [None] * count
    failures: list[BaseException] = []

    def run(k: int) -> None:
        try:
            gate.wait(10.0)
            results[k] = work(k)
        except BaseException as failure:
            failures.append(failure)

    workers = [threading.Thread(target=run, args=(k,)) for k in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60.0)
    if failures:
        raise failures[0]
    return results


class TestBackward:
    def test_separate_graphs(self) -> None:
        data = [randoms(20, seed=k) for k in range(4)]

        def work(k: int) -> Any:
            x = leaf(data[k])
            for _ in range(20):
                (x.sin() * x).sum().backward()
            return values(x.grad)

        for k, got in enumerate(together(4, work)):
            x = leaf(data[k])
            for _ in range(20):
                (x.sin() * x).sum().backward()
            exact(x.grad, got)

    def test_graphs_that_share_leaves(self) -> None:
        """Accumulation into one .grad from several threads loses no contribution."""
        x = leaf([0.0] * 50)
        turns = 100
        together(4, lambda k: [((x + 1.0) * float(k + 1)).sum().backward() for _ in range(turns)])
        exact(x.grad, [float(turns * (1 + 2 + 3 + 4))] * 50)

    def test_first_accumulation_races(self) -> None:
        for _ in range(50):
            x = leaf([1.0])
            together(3, lambda k, x=x: (x * 2.0).sum().backward())
            exact(x.grad, [6.0])

    def test_shared_graph_with_retain(self) -> None:
        """Several threads run backward over one retained graph, with autograd.grad."""
        x = leaf(randoms(10))
        y = ((x.sin() * x).exp()).sum()
        (want,) = ad.autograd.grad(y, x, retain_graph=True)

        def work(k: int) -> Any:
            return [ad.autograd.grad(y, x, retain_graph=True)[0] for _ in range(20)]

        for got in together(4, work):
            for g in got:
                near(g, values(want), rtol=0, atol=0)

    def test_graph_built_in_one_thread_run_in_another(self) -> None:
        x = leaf([1.0, 2.0])
        y = (x * x).sum()
        worker = threading.Thread(target=y.backward)
        worker.start()
        worker.join()
        exact(x.grad, [2.0, 4.0])

    def test_exception_stays_in_its_thread(self) -> None:
        def work(k: int) -> Any:
            x = leaf([1.0])
            y = x * 2.0
            if k == 0:
                y.register_hook(lambda g: 1 // 0)
                with pytest.raises(ZeroDivisionError):
                    y.sum().backward()
                return None
            for _ in range(30):
                (x * 2.0).sum().backward()
            return x.grad.item()

        assert together(3, work) == [None, 60.0, 60.0]

    def test_modes_do_not_mix(self) -> None:
        x = leaf([1.0])

        def work(k: int) -> bool:
            same = True
            for _ in range(200):
                if k % 2:
                    with ad.no_grad():
                        same &= not (x * 2.0).requires_grad
                else:
                    same &= (x * 2.0).requires_grad
            return same

        assert together(4, work) == [True] * 4

    def test_hooks_run_in_the_calling_thread(self) -> None:
        def work(k: int) -> bool:
            seen: list[int] = []
            y = leaf([1.0]) * 2.0
            y.register_hook(lambda g: seen.append(threading.get_ident()))
            y.sum().backward()
            return seen == [threading.get_ident()]

        assert together(3, work) == [True] * 3


def test_two_threads_may_meet_in_the_first_call_of_an_operation() -> None:
    """Both find that the op's code is not built yet."""
    own: Any = OPS["expm1"].own
    x = np.linspace(0.0, 1.0, 3)
    for _ in range(2):
        np.testing.assert_allclose(own._first(x), np.expm1(x))
    np.testing.assert_allclose(ad.expm1(ad.from_numpy(x)).numpy(), np.expm1(x))


class Deep(ad.autograd.Function):
    """x - 1, whose backward runs a backward of its own until x is 0."""

    seen: list[tuple[bool, bool]] = []

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.x = x.detach() - 1
        return ctx.x.detach()

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        Deep.seen.append((ad.is_grad_enabled(), ad.is_autocast_enabled("cpu")))
        if ctx.x <= 0:
            return g
        with ad.enable_grad():
            Deep.apply(ctx.x.requires_grad_()).sum().backward()
        return g * 2


def test_backward_inside_of_backward_to_any_depth() -> None:
    """Deeper than Python's stack; the modes are those of the caller at every level."""
    Deep.seen.clear()
    x = ad.tensor(500.0, requires_grad=True)
    Deep.apply(x).backward()
    assert x.grad.item() == 2.0 and Deep.seen == [(False, False)] * 500
    (g,) = ad.autograd.grad(Deep.apply(x), x, create_graph=True)
    assert g.item() == 2.0 and Deep.seen[500] == (True, False)


def test_a_failure_deep_inside_arrives() -> None:
    class Fails(ad.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.x = x.detach() - 1
            return ctx.x.detach()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            if ctx.x <= 0:
                raise KeyError("at the bottom")
            with ad.enable_grad():
                Fails.apply(ctx.x.requires_grad_()).sum().backward()

    with pytest.raises(KeyError, match="at the bottom"):
        Fails.apply(ad.tensor(100.0, requires_grad=True)).backward()
    x = leaf([3.0])
    (x * x).sum().backward()                       # and the next backward runs as ever
    exact(x.grad, [6.0])
