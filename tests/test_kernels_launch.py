"""How kernels are started: builtins, tables of plans, and the ctypes way beside them."""
from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest

from adjoint.kernels import builtin, launch, llvm, loops, threads
from adjoint.kernels.expr import Expr, compile_numpy, var

pytestmark = pytest.mark.skipif(builtin.offsets() is None, reason="needs llvmlite and CPython")
A, B = var("a"), var("b")
PAIR: list[Expr] = [A * B, A + B]


def pair_entry() -> tuple[Any, loops.Pointwise, np.ndarray[Any, Any]]:
    kernel = loops.pointwise("pair", ["a", "b"], PAIR, single=False)
    assert kernel is not None
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    kernel(x, x)
    return next(iter(kernel._plans.values())), kernel, x


def test_entry_is_a_builtin_and_computes() -> None:
    plan, _, x = pair_entry()
    assert type(plan.entry).__name__ == "builtin_function_or_method"
    product, total = np.empty_like(x), np.empty_like(x)
    assert plan.entry(threads.entry(), plan.address, x, x, product, total) is None
    assert np.array_equal(product, x * x) and np.array_equal(total, x + x)


def test_entry_takes_subclasses_of_arrays() -> None:
    class Own(np.ndarray[Any, Any]):
        pass
    plan, _, x = pair_entry()
    out, other = np.empty_like(x).view(Own), np.empty_like(x)
    plan.entry(threads.entry(), plan.address, x, x.view(Own), out, other)
    assert np.array_equal(out, x * x)


def test_entry_refuses_what_is_not_an_array() -> None:
    plan, _, x = pair_entry()
    run = threads.entry()
    for wrong in ((run, plan.address, x, x, x), (run, plan.address, x, x, x, x, x),
                  (run, plan.address, x, x, x, 3), (run, plan.address, x, x, None, x)):
        with pytest.raises(TypeError, match="wrong number of operands, or one is not an array"):
            plan.entry(*wrong)
    with pytest.raises(TypeError):
        plan.entry(run, "here", x, x, x, x)


def test_scalars_convert_or_raise() -> None:
    kernel = loops.pointwise("scaled", ["a"], [A * var("k") + var("m")], keyword=["k", "m"])
    assert kernel is not None
    x = np.ones(100, np.float32)
    for k, m in ((-1.0, 2), (np.float32(3), np.float64(-1)), (True, -1)):
        assert kernel(x, k=k, m=m)[0] == np.float32(k) + np.float32(m)
    with pytest.raises(TypeError):
        kernel(x, k="two", m=1.0)


def test_ctypes_way_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "machine", lambda: None)
    a = np.linspace(-3, 3, 70000).astype(np.float32).reshape(700, 100)
    kernel = loops.pointwise("mixed", ["a", "b"], [A * var("k") + B], keyword=["k"])
    assert kernel is not None
    got = kernel(a, a[:, ::-1], k=0.5)
    plan = next(iter(kernel._plans.values()))
    assert plan is not None and plan.entry.func is launch._start   # type: ignore[attr-defined]
    # (a partial, where no builtin is made)
    np.testing.assert_array_equal(got, a * np.float32(0.5) + a[:, ::-1])


def table_of(exprs: list[Any], single: bool) -> tuple[Any, list[int]]:
    """The call of a table, and a list that grows whenever it goes to Python."""
    seen: list[int] = []
    present = [e for e in exprs if e is not None]
    plain = compile_numpy("table", ["a", "b"], exprs, single=single)
    places = iter(range(len(present)))

    def otherwise(*args: Any) -> Any:
        seen.append(1)
        out = NotImplemented if kernel is None else kernel(*args)
        if out is NotImplemented or None in exprs:
            return plain(*args)
        return out
    table = launch.Table("table", otherwise)
    kernel = loops.pointwise("table", ["a", "b"], present, single=single, table=table,
                             returns=[-1 if e is None else next(places) for e in exprs])
    return table.call, seen


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_table_runs_known_layouts_without_python(dtype: Any) -> None:
    call, seen = table_of([A * B, None, A + B], False)
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((40, 30)).astype(dtype) for _ in range(2))
    pairs = [(x, y), (x[:, 3:9], y[:, 3:9]), (x, y[:1]), (x, y[0, 0, None][:, None]),
             (x, np.asarray(y[0, 0]))]
    for _ in range(3):
        for a, b in pairs:
            first, gap, second = call(a, b)
            assert gap is None and first.flags.c_contiguous and first.base is None
            np.testing.assert_array_equal(first, a * b)
            np.testing.assert_array_equal(second, a + b)
    assert len(seen) == len(pairs)


def test_table_sends_on_what_it_does_not_know() -> None:
    call, seen = table_of([A * B], True)
    x = np.ones((8, 9))
    call(x, x)
    others = [(x, 2.0), (x.T, x.T), (x.astype(np.float32), x.astype(np.float32)), (x[::2], x[::2]),
              (np.zeros((0, 3)), np.zeros((0, 3))), (x, np.ones((2, 8, 9))), (1, 2)]
    for n, (a, b) in enumerate(others):
        np.testing.assert_array_equal(call(a, b), np.multiply(a, b))
        assert len(seen) == n + 2
    with pytest.raises(ValueError):
        call(x, np.ones((3, 3)))


def test_table_forgets_the_oldest_and_leaks_nothing() -> None:
    call, seen = table_of(PAIR, False)
    arrays = [np.ones((n, 3)) for n in range(1, 30)]
    for a in arrays + arrays[-launch._MOST:]:
        assert call(a, a)[1].shape == a.shape
    assert len(seen) == len(arrays)
    a = arrays[-1]
    descr = sys.getrefcount(a.dtype)
    before = sys.getrefcount(a)
    for _ in range(100):
        call(a, a)
    assert sys.getrefcount(a) == before and sys.getrefcount(a.dtype) < descr + 50
    first, second = call(a, a)
    ref = weakref.ref(first)
    del first
    gc.collect()
    assert ref() is None and sys.getrefcount(second) == 2


def test_table_is_safe_from_several_threads() -> None:
    call, _ = table_of(PAIR, False)
    wrong: list[int] = []

    def work(seed: int) -> None:
        for i in range(2000):
            a = np.full((seed + i % 20 + 1, 4), float(seed))
            product, total = call(a, a)
            if product[-1, -1] != seed * seed or total[0, 0] != 2 * seed:
                wrong.append(i)
    workers = [threading.Thread(target=work, args=(s,)) for s in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong


def test_long_work_gives_the_gil_back() -> None:
    """Another thread runs Python while one chunk of much work is computed."""
    kernel = loops.pointwise("long", ["a"], [var("a") * 2.0])
    assert kernel is not None
    plan = codegen_plan(kernel)
    counted = [0]
    stop = threading.Event()

    def count() -> None:
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0)
    other = threading.Thread(target=count)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000.0)             # nobody takes the GIL away by force
    try:
        other.start()
        x = np.zeros(50_000_000, np.float32)
        out = np.empty_like(x)
        start = counted[0]
        plan(threads.entry(), x, out)
        seen = counted[0] - start
    finally:
        stop.set()
        sys.setswitchinterval(interval)
        other.join()
    assert seen > 0 and not out.any()


def codegen_plan(kernel: loops.Pointwise) -> Any:
    """An entry of one chunk over a whole long array."""
    from adjoint.kernels.loops import geometry
    small = np.zeros(64, np.float32)
    kernel(small)
    plan = next(iter(kernel._plans.values()))
    assert plan is not None

    def run(pool: int, x: Any, out: Any) -> None:
        words, address = geometry([1, 1, x.size, 1, 1, x.size, 4, 4])
        plan.entry(pool, address, x, out)
        del words
    return run


def test_reference_function_is_the_same() -> None:
    call, _ = table_of([A / B - B], True)
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, 5000))
    want = compile_numpy("same", ["a", "b"], [A / B - B])(a, b)
    np.testing.assert_array_equal(call(a, b), want)
    np.testing.assert_array_equal(call(a, b), want)
    assert llvm.available()
