"""Small products that machine code starts: the results of `gemm.matmul`, from every layout."""
from __future__ import annotations

import os
import sys
import threading
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.kernels import gemm, gemm_calls, gemm_choose, launch, threads

pytestmark = pytest.mark.skipif(launch.machine() is None, reason="no generated code here")
Array = np.ndarray[Any, Any]


def normal(seed: int, *shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def known(table: launch.Table) -> int:
    """How many layouts the table has."""
    return len(table._plans)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("m, n, k", [(32, 512, 128), (33, 70, 129), (64, 48, 700), (300, 16, 40)])
def test_products_in_every_layout(m: int, n: int, k: int, dtype: Any) -> None:
    a, b = normal(1, m, k, dtype=dtype), normal(2, k, n, dtype=dtype)
    lefts = [a, np.asfortranarray(a), np.repeat(a, 2, 1)[:, ::2]]
    rights = [b, np.asfortranarray(b), np.repeat(b, 2, 0)[::2]]
    for left in lefts:
        for right in rights:
            want = gemm.matmul(left, right)
            for _ in range(3):
                got = gemm_calls.product(left, right)
                assert got.flags.c_contiguous and got.dtype == dtype
                np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("bias", [False, True])
def test_linear(bias: bool) -> None:
    x, weight = normal(1, 32, 128), normal(2, 512, 128)
    b = normal(3, 512) if bias else None
    want = gemm.matmul(x, weight.T, bias=b)
    before = known(gemm_calls._LINEAR)
    for _ in range(3):
        np.testing.assert_array_equal(gemm_calls.linear(x, weight, b), want)
    assert known(gemm_calls._LINEAR) == min(before + 1, gemm_calls._LAYOUTS)
    np.testing.assert_array_equal(gemm_calls.linear(x[::2], weight, b), want[::2])


def test_sums_grow_in_place() -> None:
    a, b, total = normal(1, 32, 512), normal(2, 32, 128), normal(3, 512, 128)
    want = total + gemm.matmul(a.T, b)
    for _ in range(3):
        held = total.copy()
        assert gemm_calls.add_product(a.T, b, held) is None
        np.testing.assert_array_equal(held, want)
    column = np.asfortranarray(total)
    gemm_calls.add_product(a.T, b, column)
    gemm_calls.add_product(a.T, b, column)
    np.testing.assert_allclose(column, want + (want - total), rtol=1e-4, atol=1e-4)


def test_a_large_product_gives_the_gil_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Learnt as well; a thread that waits for the GIL gets it while one of them runs."""
    monkeypatch.setattr(gemm_choose, "generated_is_faster", lambda *shapes: True)
    a = normal(1, 1021, 307)                # (met nowhere else)
    want = gemm.matmul(a, a.T)
    before = known(gemm_calls._PRODUCTS)
    gemm_calls.product(a, a.T)
    assert known(gemm_calls._PRODUCTS) == min(before + 1, gemm_calls._LAYOUTS)
    seen: list[int] = []
    stop = threading.Event()

    def count() -> None:
        while not stop.is_set():
            seen.append(1)
            stop.wait(0.0001)
    other = threading.Thread(target=count)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000.0)           # nobody is made to give the GIL up
    try:
        other.start()
        for _ in range(1000):
            got = gemm_calls.product(a, a.T)       # (a comparison would give the GIL back)
            if len(seen) > 20:
                break
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        other.join()
    assert len(seen) > 20
    np.testing.assert_array_equal(got, want)


def test_the_number_of_threads_may_change() -> None:
    a, b = normal(1, 96, 200), normal(2, 200, 96)
    want = gemm_calls.product(a, b)
    count = threads.get_num_threads()
    try:
        for n in (1, 3, 2):
            threads.set_num_threads(n)
            assert known(gemm_calls._PRODUCTS) == 0
            for _ in range(2):
                np.testing.assert_allclose(gemm_calls.product(a, b), want, rtol=1e-4, atol=1e-4)
    finally:
        threads.set_num_threads(count)


@pytest.mark.parametrize("rows, rounds", [(40, 300), (400, 40)])
def test_several_python_threads(rows: int, rounds: int) -> None:
    """One workspace serves all while the GIL is kept; without it one at a time has it, and layouts
    may be forgotten meanwhile."""
    pairs = [(normal(s, rows + s, 300), normal(s + 9, 300, rows + 10 + s)) for s in range(4)]
    wants = [gemm.matmul(a, b) for a, b in pairs]
    wrong: list[int] = []

    def work(i: int) -> None:
        a, b = pairs[i]
        for j in range(rounds):
            if i == j % 7 == 0:
                gemm_calls._PRODUCTS.clear()
            if not np.array_equal(gemm_calls.product(a, b), wants[i]):
                wrong.append(i)
    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("n", [128, 300])
def test_after_a_fork(n: int) -> None:
    a, b = normal(1, n, n), normal(2, n, n)
    want = gemm_calls.product(a, b)
    gemm_calls.product(a, b)
    child = os.fork()
    if not child:
        good = np.array_equal(gemm_calls.product(a, b), want)
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_after_a_fork_while_another_thread_multiplies() -> None:
    """The shared workspace is taken for good in the child then."""
    a, b = normal(1, 400, 300), normal(2, 300, 400)
    want = gemm_calls.product(a, b)
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            gemm_calls.product(a, b)
    other = threading.Thread(target=work)
    other.start()
    try:
        for _ in range(10):
            child = os.fork()
            if not child:
                good = all(np.array_equal(gemm_calls.product(a, b), want) for _ in range(2))
                os._exit(0 if good else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        other.join()


def unrolled(hooked: bool) -> tuple[list[Array], list[int]]:
    """Gradients of weights that several steps share; how often cotangents were seen whole."""
    w = ad.tensor(normal(1, 96, 96) * np.float32(0.1), requires_grad=True)
    v = ad.tensor(normal(2, 96, 96) * np.float32(0.1), requires_grad=True)
    h = ad.tensor(normal(3, 24, 96))
    seen: list[int] = []
    for _ in range(5):
        z = ad.nn.functional.linear(h, w) + h @ v
        if hooked:
            z.grad_fn.register_hook(lambda given, made: seen.append(1))
            for node, _ in z.grad_fn.next_functions:
                node.register_hook(lambda given, made: seen.append(len(given)))
        h = ad.tanh(z)
    h.pow(2).sum().backward()
    assert w.grad is not None and v.grad is not None
    return [w.grad.numpy(), v.grad.numpy()], seen


def test_gradients_of_shared_weights() -> None:
    """Sums that grow in place are those of cotangents made one by one."""
    grown, none = unrolled(False)
    whole, seen = unrolled(True)
    assert not none and len(seen) == 15
    for a, b in zip(grown, whole, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_gradient_that_others_hold_is_not_written_to() -> None:
    """The first cotangent of a weight is the user's once a hook has seen it."""
    w = ad.tensor(normal(1, 64, 64), requires_grad=True)
    x = ad.tensor(normal(2, 8, 64))
    held: list[Any] = []
    y = w * 1.0
    y.register_hook(lambda g: held.append(g) or None)
    out = ad.nn.functional.linear(x, y).sum() + ad.nn.functional.linear(2 * x, y).sum()
    out.backward()
    first, = held
    kept = first.numpy().copy()
    ad.nn.functional.linear(x, w).sum().backward()
    np.testing.assert_array_equal(first.numpy(), kept)
    np.testing.assert_allclose(kept, np.tile(3 * x.numpy().sum(0), (64, 1)), rtol=1e-4, atol=1e-4)
