"""Ufunc loops without ufunc calls (`kernels/direct.py`): the same bits, nothing leaked."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.core.op import OPS
from adjoint.kernels import alloc, direct
from adjoint.kernels.expr import FUNCTIONS, call, compile_numpy, var, where_

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
SHAPES: tuple[tuple[int, ...], ...] = ((), (1,), (1, 1), (7,), (8,), (33,), (3, 5), (2, 3, 4),
                                       (1000,))
BINARY = [n for n, f in FUNCTIONS.items() if isinstance(f.numpy, np.ufunc) and f.numpy.nin == 2]
UNARY = [n for n, f in FUNCTIONS.items() if isinstance(f.numpy, np.ufunc) and f.numpy.nin == 1]
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, 3e38, 0.5, 2.0, 88.8]

pytestmark = pytest.mark.skipif(direct.machine() is None, reason="no generated code here")


def sample(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int) -> Any:
    """Numbers of many sizes with the special ones among them."""
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 3, shape)).astype(dtype)
    x = np.asarray(x)
    flat = x.reshape(-1)
    picks = rng.permutation(flat.size)[:flat.size // 2]
    flat[picks] = rng.choice(SPECIAL, picks.size).astype(dtype)
    return x


def same(a: Any, b: Any) -> None:
    """Equal bit by bit, nan where nan; shapes and dtypes too."""
    b = np.asarray(b)
    assert type(a) is np.ndarray and a.shape == b.shape and a.dtype == b.dtype
    assert a.flags.owndata and a.flags.writeable and a.flags.c_contiguous
    assert np.array_equal(a, b, equal_nan=True)
    kept = ~np.isnan(a)
    assert np.array_equal(np.signbit(a)[kept], np.signbit(b)[kept])


def function(params: Any, exprs: Any, dtype: Any, otherwise: Any, single: bool = True) -> Any:
    """The builtin, or `otherwise` where there is none."""
    found = direct.program(params, exprs, dtype, single)
    return otherwise if found is None else direct.function(found, otherwise)


def refused(*_: Any) -> Any:
    """In the place of what computes what does not qualify."""
    raise AssertionError("not done directly")


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("name", UNARY + BINARY)
def test_bits_of_numpy(name: str, dtype: np.dtype[Any]) -> None:
    """Every ufunc, on whole arrays and on 0-d operands."""
    params = ["x"] if name in UNARY else ["a", "b"]
    e = call(name, *map(var, params))
    f = function(params, [e], dtype, refused)
    if f is refused:
        assert name in ("and", "or", "not")      # of bools, which operands are not
        return
    numpy = FUNCTIONS[name].numpy
    with np.errstate(all="ignore"):
        for i, shape in enumerate(SHAPES):
            operands = [sample(shape, dtype, 10 * i + k) for k in range(len(params))]
            same(f(*operands), numpy(*operands))
            if len(params) == 2:
                one = sample((), dtype, i)
                same(f(operands[0], one), numpy(operands[0], one))
                same(f(one, operands[0]), numpy(one, operands[0]))


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_several_operations_and_results(dtype: np.dtype[Any]) -> None:
    """Temporaries, constants, comparisons, `where`, operands handed through, absent results."""
    a, b = var("a"), var("b")
    exprs = [where_((a < b) | (b >= 2.0), a * (1.0 - b * b), -a), None, a,
             call("tanh", a + b) * call("exp", a)]
    f = function(["a", "b"], exprs, dtype, refused, single=False)
    assert f is not refused
    plain = compile_numpy("f", ["a", "b"], exprs, dtype=dtype, single=False)
    with np.errstate(all="ignore"):
        for i, shape in enumerate(SHAPES[:-1]):
            x, y = sample(shape, dtype, i), sample(shape, dtype, 50 + i)
            got, want = f(x, y), plain(x, y)
            assert type(got) is tuple and got[1] is None and got[2] is x
            same(got[0], want[0])
            same(got[3], want[3])


def test_every_pointwise_op() -> None:
    """What the callers of ops run on small arrays is what they would run without."""
    done = 0
    for name, op in OPS.items():
        if op.own is None:
            continue
        count = len(op.operands)
        for dtype in (F32, F64):
            with np.errstate(all="ignore"):
                op.own.run(dtype, *[np.ones(2, dtype)] * count)
                raw = op.own.raw32 if dtype is F32 else op.own.raw64
                if direct.program_of(raw) is None:
                    continue
                done += 1
                operands = [sample((13,), dtype, done + k) for k in range(count)]
                same(raw(*operands), raw.__self__[1](*operands))
                plans = op.own.plans32 if dtype is F32 else op.own.plans64
                for plan in plans if count == 2 else [plans]:
                    if plan is None or direct.program_of(plan.fast) is None:
                        continue
                    kept = [sample((13,), dtype, 7 * done + k) for k in range(len(plan.names) + 1)]
                    got, want = plan.fast(*kept), plan.fast.__self__[1](*kept)
                    for g, w in zip(got, want, strict=True):
                        assert (g is None) == (w is None), name
                        if g is not None and w is not kept[0]:
                            same(g, w)
    assert done > 60


def other(*args: Any) -> Any:
    """Says that it was asked."""
    return ("other", args)


def test_what_does_not_qualify_goes_elsewhere() -> None:
    """Dtypes, layouts, shapes, types, sizes and counts; nothing is converted in silence."""
    f = function(["a", "b"], [var("a") * var("b")], F32, other)
    good = np.ones((4, 6), np.float32)
    strided, swapped = good[:, ::2], good.astype(">f4")
    unaligned = np.frombuffer(b"\0" * 97, np.uint8)[1:].view(np.float32)
    big = np.ones(direct._LARGEST + 1, np.float32)

    class Sub(np.ndarray):
        pass
    bad: list[tuple[Any, ...]] = [
        (good, strided), (strided, strided), (good.T, good.T), (good, swapped),
        (good.astype(np.float64), good), (good, 2.0), (good, None), (good[0], good[:, 0]),
        (good, good[:, :1]), (good[:0], good[:0]), (big, big), (good.view(Sub), good), (good,),
        (good, good, good), (), (unaligned, unaligned), ("a", "b"), (good, np.float32(2))]
    for args in bad:
        got = f(*args)
        assert got[0] == "other" and len(got[1]) == len(args)
        assert all(g is a for g, a in zip(got[1], args, strict=True))
    with pytest.raises(TypeError):
        f(good, b=good)
    same(f(good, good), good)
    fit = big[:-1]
    same(f(fit, fit), fit * fit)


ROWS: tuple[tuple[tuple[int, ...], ...], ...] = (
    ((4, 6), (6,)), ((4, 6), (4, 1)), ((6,), (4, 6)), ((4, 1), (4, 6)), ((4, 6), (1, 6)),
    ((2, 3, 5), (5,)), ((2, 3, 5), (3, 5)), ((2, 3, 5), (2, 1, 1)), ((2, 3, 5), (2, 3, 1)),
    ((2, 3, 5), (1, 3, 5)), ((4, 6), (1, 1)), ((4, 6), (1,)), ((64, 3), (3,)), ((1, 4), (1, 1)))


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_rows_and_columns_for_all(dtype: np.dtype[Any]) -> None:
    """One row for all rows, or one number for each; the bits of NumPy's broadcasting."""
    a, b = var("a"), var("b")
    e = call("tanh", a * b) - call("exp", b) / 3.0
    f, numpy = function(["a", "b"], [e], dtype, refused), compile_numpy("f", ["a", "b"], [e],
                                                                       dtype=dtype)
    for i, (left, right) in enumerate(ROWS):
        x, y = sample(left, dtype, i), sample(right, dtype, 90 + i)
        with np.errstate(all="ignore"):
            same(f(x, y), numpy(x, y))


def test_which_broadcasts_go_elsewhere() -> None:
    """Both ways at once, in the middle, over many rows; and results that not all operands shape."""
    f = function(["a", "b"], [var("a") * var("b")], F32, other)
    for left, right in (((4, 1), (6,)), ((2, 3, 5), (2, 1, 5)), ((2, 3, 5), (1, 3, 1)),
                        ((100, 2), (2,)), ((4, 6), (5,)), ((4, 6), (3, 1)), ((6,), (1, 1, 6)),
                        ((0, 6), (6,)), ((4, 6), (2, 6))):
        assert f(np.ones(left, np.float32), np.ones(right, np.float32))[0] == "other"
    x, row = np.ones((4, 6), np.float32), np.arange(6, dtype=np.float32)
    both = function(["a", "b"], [var("a") * var("b"), var("a") + var("b") * 2.0], F32, other,
                    single=False)
    assert [r.shape for r in both(row, x)] == [(4, 6), (4, 6)]
    own = function(["a", "b"], [var("a") * var("b"), -var("b")], F32, other, single=False)
    assert own(x, row)[0] == "other" and own(row, x)[1].shape == (4, 6)
    three = function(["a", "b", "c"], [var("a") * var("b") + var("c")], F32, other)
    column = np.arange(4, dtype=np.float32)[:, None]
    same(three(x, row, column), x * row + column)       # (rows of the same length for both)


def test_scratch_memory_bounds_the_size() -> None:
    """With temporaries the largest size is smaller; at it the result is right, above elsewhere."""
    x = var("x")
    e = call("exp", x) * call("tanh", x) + call("exp", -x) * call("tanh", x * x)
    found = direct.program(["x"], [e], F64, True)
    assert found is not None and 64 <= found.limit < direct._LARGEST
    f, numpy = function(["x"], [e], F64, other), compile_numpy("f", ["x"], [e], dtype=F64)
    at_limit = np.linspace(-3, 3, found.limit)
    same(f(at_limit), numpy(at_limit))
    assert f(np.ones(found.limit + 1))[0] == "other"


def test_an_error_of_the_other_function_passes_through() -> None:
    """Exceptions arrive as they were raised."""
    def fails(*_: Any) -> Any:
        raise ZeroDivisionError("here")
    f = function(["a"], [-var("a")], F32, fails)
    with pytest.raises(ZeroDivisionError, match="here"):
        f(1)


def test_nothing_leaks() -> None:
    """References to operands, to what is not there (None) and to dtypes; bytes of results."""
    a, b = var("a"), var("b")
    f = function(["a", "b"], [a * b, None, a, a - b], F32, other, single=False)
    x, y = np.ones(8, np.float32), np.ones(8, np.float32)
    f(x, y)
    alloc.ensure()
    live = alloc.live_and_peak()[0]
    before = [sys.getrefcount(v) for v in (x, y, None, F32, np.ndarray)]
    for _ in range(3000):
        f(x, y)
        f(x, "other")
    after = [sys.getrefcount(v) for v in (x, y, None, F32, np.ndarray)]
    assert after[:2] == before[:2]
    assert all(abs(p - q) < 100 for p, q in zip(after[2:], before[2:], strict=True))
    assert alloc.live_and_peak()[0] == live


@pytest.mark.skipif(not alloc.available(), reason="needs the allocator's limit")
def test_memory_refused() -> None:
    """Where no result can be made there is a MemoryError, and the first result is given back."""
    a, b = var("a"), var("b")
    f = function(["a", "b"], [a * b, a + b], F64, refused, single=False)
    x = np.ones(8192)
    f(x, x)
    alloc.install()
    live = alloc.live_and_peak()[0]
    previous = alloc.set_limit(live + 100_000)       # room for one result, not for two
    try:
        with pytest.raises(MemoryError):
            f(x, x)
    finally:
        alloc.set_limit(previous)
    assert alloc.live_and_peak()[0] == live
    same(f(x, x)[1], x + x)


def test_threads() -> None:
    """The program is shared and is only read."""
    a, b = var("a"), var("b")
    f = function(["a", "b"], [call("tanh", a * b) + a], F64, refused)
    wrong: list[int] = []

    def work(k: int) -> None:
        x = np.full(50, float(k))
        want = np.tanh(x * x) + x
        wrong.extend(1 for _ in range(3000) if not np.array_equal(f(x, x), want))
    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_ops_take_the_direct_way() -> None:
    """A multiplication of small tensors, its backward, and no conversion of 0-d results."""
    x = ad.tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    own = OPS["mul"].own
    assert direct.program_of(own.raw32) is not None
    assert direct.program_of(own.plans32[3].fast) is not None
    y = ad.tensor(3.0) * ad.tensor(4.0)
    assert y.shape == () and y.item() == 12.0
