"""Pointwise kernels and reductions against NumPy: layouts, dtypes, special values, sizes."""
from __future__ import annotations

import itertools
import math
import os
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjoint.kernels import activations, choose, codegen, llvm, loops, reduce, threads
from adjoint.kernels import expr as ex
from adjoint.kernels.expr import compile_numpy, erf_, exp_, tanh_, trace, var, where_

pytestmark = pytest.mark.skipif(not llvm.available(), reason="needs llvmlite")
A, B = var("a"), var("b")
DTYPES = [np.float32, np.float64]
EXACT = [(A + B) * A, A < B, A / B - B]


def exact_kernel() -> loops.Pointwise:
    kernel = loops.pointwise("exact", ["a", "b"], EXACT, single=False)
    assert kernel is not None
    return kernel


def same(got: Any, want: Any) -> bool:
    return (got.dtype == want.dtype and got.shape == want.shape
            and np.array_equal(got, want, equal_nan=got.dtype.kind == "f"))


def check_exact(a: Any, b: Any) -> None:
    with np.errstate(all="ignore"):
        want = compile_numpy("exact", ["a", "b"], EXACT, single=False)(a, b)
    got = exact_kernel()(a, b)
    assert got is not NotImplemented
    assert all(same(g, w) for g, w in zip(got, want, strict=True))


SHAPES = [((7,), (7,)), ((), (3,)), ((3, 4), (4,)), ((5, 1, 7), (1, 6, 1)),
          ((2, 3, 4, 5), (3, 1, 1)), ((1000, 3), (3,)), ((33, 65), (33, 1)),
          ((2, 100000), (2, 1)), ((1, 1), (1,)), ((4, 1, 3, 1, 2, 5), (6, 1, 2, 1, 5)), ((16,), ()),
          ((50000,), (50000,))]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_broadcasting_rounds_like_numpy(shapes: Any, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    a, b = (np.asarray(rng.standard_normal(s)).astype(dtype) for s in shapes)
    check_exact(a, b)
    check_exact(b, a)


@pytest.mark.parametrize("dtype", DTYPES)
def test_strides_of_every_kind(dtype: Any) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((34, 40, 46)).astype(dtype)
    y = rng.standard_normal((17, 20, 46)).astype(dtype)
    for v in (x[::2, ::2], x[1::2, ::-2], x[::-2, 1::2, ::-1]):
        check_exact(v, y)
        check_exact(v.copy(), v)
    check_exact(x.T, x.T.copy())
    check_exact(x.transpose(1, 0, 2), x.transpose(1, 0, 2))
    check_exact(x.transpose(2, 0, 1), np.float64(2).astype(dtype).reshape(1, 1, 1))
    check_exact(x[:, :, 0], x[:, :, 5])
    check_exact(np.broadcast_to(x[0, 0], (9, 46)), x[:9, 0])


def test_result_keeps_the_memory_order_of_the_operand() -> None:
    kernel = loops.pointwise("double", ["a"], [A + A])
    assert kernel is not None
    x = np.asfortranarray(np.ones((30, 40), np.float32))
    assert kernel(x).flags.f_contiguous
    assert kernel(np.ones((3, 4, 5)).transpose(2, 0, 1)).strides == (
        np.ones((3, 4, 5)).transpose(2, 0, 1) * 2).strides


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans(), st.booleans(), st.integers(-2, 2)),
                min_size=0, max_size=4))
def test_any_layout(axes: list[tuple[int, bool, bool, int]]) -> None:
    rng = np.random.default_rng(len(axes))
    pair = []
    for which in (1, 2):
        full = [1 if axis[which] else axis[0] for axis in axes]
        steps = [axis[3] or 1 for axis in axes]
        raw = rng.standard_normal([n * abs(s) for n, s in zip(full, steps, strict=True)])
        cut = tuple(slice(None, None, s) for s in steps)
        single = np.asarray(raw, np.float32)
        pair.append(np.asarray(single[cut].copy() if which == 1 else single[cut]))
    check_exact(*pair)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(8, 8), (16, 16), (33, 47), (250, 1000), (3, 40, 70),
                                   (5, 17, 16, 19), (2, 40000), (40000, 3), (17, 33000)], ids=str)
def test_tiles_are_turned(shape: tuple[int, ...], dtype: Any) -> None:
    """An operand whose memory runs across the rows, with rows and columns left over, beside one
    that is repeated along either axis; results of one and of two expressions, and into `out`."""
    r = np.random.default_rng(0)
    a = r.normal(size=shape).astype(dtype)
    across = r.normal(size=(*shape[:-2], shape[-1], shape[-2])).astype(dtype).swapaxes(-1, -2)
    every = [across, np.moveaxis(r.normal(size=(*shape[1:], shape[0])).astype(dtype), -1, 0)]
    names, c = ["a", "b", "c"], var("c")
    one = loops.pointwise("turned", names, [A - B * c], single=False)
    two = loops.pointwise("turned", names, [A + B, B * c], single=False)
    assert one is not None and two is not None
    for b, c in itertools.product(every, (a[:1], a[..., :1], across)):
        want = a - b * c
        assert same(one(a, b, c)[0], want)
        for got, w in zip(two(a, b, c), (a + b, b * c), strict=True):
            assert same(got, w)
        out = a.copy()
        assert one(out, b, c, out=[out])[0] is out and same(out, want)


def test_which_operands_are_turned() -> None:
    """One that runs across the rows; not where tiles would be long texts, rows short, or values
    are converted."""
    def modes(strides: Any, kind: str = "double", exprs: Any = (A + B,), inner: int = 50) -> str:
        lay = loops.Layout((40,), inner, strides)
        stored = [(kind, "float" if kind == "half" else kind)] * 3
        sizes = [2 if kind == "half" else 8] * 3
        return loops._tiled(lay, lay.modes(sizes), stored, sizes, exprs)
    assert modes(((400, 8), (8, 320), (400, 8))) == "ctc"
    assert modes(((8, 320), (8, 320), (400, 8))) == "tgc"
    assert modes(((400, 8), (16, 640), (400, 8))) == "cgc"
    assert modes(((24, 8), (8, 320), (24, 8)), inner=3) == "cgc"
    long = [sum((A * float(k) for k in range(2, 40)), B)]
    assert modes(((400, 8), (8, 320), (400, 8)), exprs=long) == "cgc"
    assert modes(((100, 2), (2, 80), (100, 2)), kind="half") == "cgc"


@pytest.mark.parametrize("shape", [(700, 7, 5), (1, 3, 11, 900, 3), (33, 2, 300, 4)])
def test_chunks_begin_and_end_within_a_turn_of_an_axis(shape: tuple[int, ...]) -> None:
    """Short rows whose number per chunk is no multiple of the axis above them."""
    r = np.random.default_rng(0)
    a = r.standard_normal([n if i % 2 else 1 for i, n in enumerate(shape)])
    b = r.standard_normal([1 if i % 2 else n for i, n in enumerate(shape)])
    full = r.standard_normal(shape)
    difference = loops.pointwise("difference", ["a", "b", "c"], [var("a") - var("b") * var("c")])
    assert difference is not None
    assert np.array_equal(difference(a, b, full), a - b * full)
    assert difference(full, a, b).tobytes() == (full - a * b).tobytes()


def test_special_values_go_through() -> None:
    edge = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3e38], np.float32)
    a, b = (m.ravel() for m in np.meshgrid(edge, edge))
    exprs = [ex.maximum_(A, B), ex.minimum_(A, B), ex.sign_(A), ex.abs_(A), A.eq(B), A.ne(B),
             ex.isnan_(A), ex.copysign_(A, B), where_(A < B, A, B), ex.sqrt_(A), ex.fmod_(A, B),
             ex.mod_(A, B), ex.floor_(A), ex.round_(A), (A < B) & ~(A.eq(0))]
    with np.errstate(all="ignore"):
        want = compile_numpy("special", ["a", "b"], exprs, single=False)(a, b)
        kernel = loops.pointwise("special", ["a", "b"], exprs, single=False)
        assert kernel is not None
        got = kernel(a, b)
    for e, g, w in zip(exprs, got, want, strict=True):
        assert np.array_equal(g, w, equal_nan=g.dtype.kind == "f"), e


@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 31, 33, 63, 65, 127, 1000, 16383, 16385, 70001])
def test_odd_sizes(size: int) -> None:
    kernel = loops.pointwise("gauss", ["a"], [exp_(-(A * A)), A * 2], single=False)
    assert kernel is not None
    x = np.linspace(-4, 4, size, dtype=np.float32)
    guard = np.full(size + 8, 99, np.float32)
    view = guard[4:-4]
    view[:] = x
    got, twice = kernel(view)
    assert np.allclose(got, np.exp(-x.astype(np.float64) ** 2), rtol=5e-7)
    assert np.array_equal(twice, x * 2) and (guard[:4] == 99).all() and (guard[-4:] == 99).all()


def test_zero_size_and_foreign_dtypes_are_left_to_numpy() -> None:
    kernel = exact_kernel()
    assert kernel(np.ones((0, 3)), np.ones(3)) is NotImplemented
    assert kernel(np.ones(3, np.int64), np.ones(3, np.int64)) is NotImplemented
    assert kernel(np.ones(3, np.float32), np.ones(3)) is NotImplemented
    assert kernel(np.ones(3, ">f4"), np.ones(3, ">f4")) is NotImplemented
    assert kernel(np.ones(3), np.ones(4)) is NotImplemented
    assert kernel(np.ones(3) + 1j, np.ones(3) + 1j) is NotImplemented
    unaligned = np.zeros(41, np.uint8)[1:].view(np.float64)
    assert kernel(unaligned, np.ones(5)) is NotImplemented
    assert loops.pointwise("j0", ["a"], [ex.call("bessel_j0", A)]) is None


def test_half_precision_is_computed_in_single_and_rounded_once() -> None:
    kernel = loops.pointwise("half", ["a", "b"], [A * B + A])
    assert kernel is not None
    rng = np.random.default_rng(2)
    kinds: list[Any] = [np.float16]
    try:
        import ml_dtypes
        kinds.append(ml_dtypes.bfloat16)
    except ImportError:
        pass
    for kind in kinds:
        a, b = (rng.standard_normal(1003).astype(kind) for _ in range(2))
        af, bf = a.astype(np.float32), b.astype(np.float32)
        want = (af * bf + af).astype(kind)
        assert np.array_equal(kernel(a, b).astype(np.float32), want.astype(np.float32))


def test_conditions_numbers_and_attributes() -> None:
    c = var("c")
    kernel = loops.pointwise("pick", ["c", "a", "b"], [where_(c, A, B * var("k"))], keyword=["k"])
    assert kernel is not None
    x = np.arange(100, dtype=np.float32)
    mask = x % 3 == 0
    assert np.array_equal(kernel(mask, x, 5.0, k=2.0), np.where(mask, x, np.float32(10)))
    assert np.array_equal(kernel(mask, x, x, k=-1.0), np.where(mask, x, -x))


def test_activation_chain_error() -> None:
    e = trace(lambda a: 0.5 * a * (1 + tanh_(math.sqrt(2 / math.pi) * (a + 0.044715 * a * a * a))))
    kernel = loops.pointwise("gelu", ["a"], [e, 0.5 * A * (1 + erf_(A * math.sqrt(0.5)))],
                             single=False)
    assert kernel is not None
    x = np.linspace(-9, 9, 100001)
    tanh, erf = kernel(x.astype(np.float32))
    wide = compile_numpy("gelu", ["a"], [e], single=True)(x.astype(np.float32).astype(np.float64))
    assert np.max(abs(tanh - wide)) < 6e-7
    assert np.max(abs(erf - kernel(x)[1])) < 1.5e-6


@pytest.mark.parametrize("name", [n for n in activations.names() if n.endswith("_backward")])
def test_activation_backward_is_the_derivative(name: str) -> None:
    attrs = {"leaky_relu": {"negative_slope": 0.1}, "elu": {"alpha": 1.3}, "celu": {"alpha": 1.3},
             "softplus": {"beta": 2.0, "threshold": 10.0},
             "hardtanh": {"min_val": -1.0, "max_val": 2.0}}.get(name.removesuffix("_backward"), {})
    f = choose.lookup(name.removesuffix("_backward"))
    g = choose.lookup(name)
    assert f is not None and g is not None
    x = np.linspace(-6.013, 6.021, 997)          # away from the kinks
    ct = np.cos(np.arange(997.0))
    h = 1e-6
    slope = (f(x + h, **attrs) - f(x - h, **attrs)) / (2 * h)
    assert np.allclose(g(ct, x, **attrs), ct * slope, atol=2e-8)


def test_layout_merges_axes() -> None:
    lay = loops.layout((2, 3, 4), [(48, 16, 4), (0, 0, 0), (16, 0, 4)])
    assert lay == loops.Layout((2, 3), 4, ((48, 16, 4), (0, 0, 0), (16, 0, 4)))
    assert lay.modes([4, 4, 4]) == "csc"
    assert loops.layout((2, 3, 4), [(48, 16, 4)]) == loops.Layout((), 24, ((4,),))
    assert loops.layout((1, 1), [(4, 4)]).inner == 1


# -- reductions ------------------------------------------------------------------------------
def all_reductions() -> reduce.Reduce:
    kernel = reduce.reduction("all", ["a"], [A, A, A, A * A, A], ["add", "max", "min", "mean",
                                                                "mul"])
    assert kernel is not None
    return kernel


def check_reductions(x: Any, axis: Any) -> None:
    got = all_reductions()(x, axis=axis)
    assert got is not NotImplemented
    total, top, low, square, product = got
    wide = x.astype(np.longdouble)
    unit = float(np.finfo(x.dtype).eps)
    size = abs(wide).sum(axis=axis)
    assert total.dtype == x.dtype and total.shape == size.shape
    assert np.all(abs(total - wide.sum(axis=axis)) <= unit * size)
    assert np.array_equal(top, x.max(axis=axis)) and np.array_equal(low, x.min(axis=axis))
    assert np.allclose(square, (wide * wide).mean(axis=axis).astype(np.float64), rtol=8 * unit,
                       atol=0)
    assert np.allclose(product, wide.prod(axis=axis).astype(np.float64), rtol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(7,), (100003,), (3, 5), (64, 100), (1000, 3), (3, 1000),
                                   (5, 6, 7), (2, 40, 3, 5), (500, 700), (4096, 64)], ids=str)
def test_reductions_over_every_set_of_axes(shape: tuple[int, ...], dtype: Any) -> None:
    x = np.random.default_rng(3).uniform(-1, 1, shape).astype(dtype)
    check_reductions(x, None)
    for k in range(1, len(shape) + 1):
        for axes in itertools.combinations(range(len(shape)), k):
            check_reductions(x, axes)


def test_reductions_of_strided_operands() -> None:
    x = np.random.default_rng(4).uniform(-1, 1, (64, 100)).astype(np.float32)
    for v in (x.T, x[::2, ::-3], x[::-1]):
        for axis in (0, 1, None, -1):
            check_reductions(v, axis)


@pytest.mark.parametrize("columns", [2, 3, 12, 13])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_reductions_of_many_short_rows(columns: int, dtype: Any) -> None:
    """Down the columns up to 12 elements, along the rows from there; strided ones too. Each of the
    columns - 1 additions rounds by at most half a unit of what is there."""
    x = np.random.default_rng(6).uniform(-1, 1, (300, 4, columns)).astype(dtype)
    unit = float(np.finfo(dtype).eps)
    cases = [(v, 2) for v in (x, x[::2], x[:, 1:3], x[..., ::-1])]
    for v, axis in (*cases, (x, (1, 2)), (x.transpose(2, 0, 1), 0)):
        total, top, low, _, _ = all_reductions()(v, axis=axis)
        wide = v.astype(np.longdouble)
        count = v.size // total.size
        bound = (count - 1) * unit / 2 * abs(wide).sum(axis=axis)
        assert total.dtype == dtype and np.all(abs(total - wide.sum(axis=axis)) <= bound)
        assert np.array_equal(top, v.max(axis=axis)) and np.array_equal(low, v.min(axis=axis))


def test_reduction_of_broadcasting_operands() -> None:
    kernel = reduce.reduction("dot", ["a", "b"], [A * B], ["add"])
    assert kernel is not None
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((30, 40)), rng.standard_normal(40)
    for axis in (0, 1, (0, 1)):
        assert np.allclose(kernel(a, b, axis=axis)[0], (a * b).sum(axis))
        assert np.allclose(kernel(a, b[:30, None], axis=axis)[0], (a * b[:30, None]).sum(axis))
    assert kernel(a, b, axis=1, keepdims=True)[0].shape == (30, 1)


def test_long_sums_are_accurate() -> None:
    kernel = choose.lookup("sum")
    assert kernel is not None
    x = np.full(10**7, 0.1, np.float32)
    want = float(np.float32(0.1)) * 10**7
    assert abs(float(kernel(x)) / want - 1) < 1e-7
    columns = x.reshape(10**5, 100)
    assert np.max(abs(kernel(columns, axis=0) / (want / 100) - 1)) < 1e-7
    alternating = np.tile(np.array([1e16, 1.0, -1e16, 1.0]), 2500)
    assert abs(float(kernel(alternating)) - 5000) <= 5000


@pytest.mark.slow
def test_sum_of_a_hundred_million() -> None:
    kernel = choose.lookup("sum")
    assert kernel is not None
    assert abs(float(kernel(np.full(10**8, 0.1, np.float32))) / (float(np.float32(0.1)) * 1e8)
               - 1) < 1e-6


def test_reductions_keep_nan_and_inf() -> None:
    x = np.ones((3, 40), np.float32)
    x[1, 7] = np.nan
    x[2, 3] = np.inf
    total, top, low, _, _ = all_reductions()(x, axis=1)
    assert np.isnan([total[1], top[1], low[1]]).all()
    assert total[2] == top[2] == np.inf and low[2] == 1
    assert np.isnan(all_reductions()(x, axis=0)[1][7])


def test_reductions_that_are_left_to_numpy() -> None:
    kernel = all_reductions()
    assert kernel(np.ones((0, 3))) is NotImplemented
    assert kernel(np.ones(3, np.int32)) is NotImplemented
    assert kernel(np.ones(3), axis=1) is NotImplemented


# -- together --------------------------------------------------------------------------------
def outputs(n: int) -> list[bytes]:
    before = threads.get_num_threads()
    threads.set_num_threads(n)
    try:
        x = np.random.default_rng(6).standard_normal((777, 1003)).astype(np.float32)
        ct = x[::-1].copy()
        soft, norm, back, total = (choose.lookup(k) for k in
                                   ("softmax", "layer_norm", "layer_norm_backward", "sum"))
        assert soft and norm and back and total
        y, mean, rstd = norm(x)
        parts = [soft(x), y, *back(ct, x, mean, rstd, x[0])[:2], total(x), total(x, axis=0)]
        return [np.asarray(p).tobytes() for p in parts]
    finally:
        threads.set_num_threads(before)


def test_same_bits_for_any_number_of_threads() -> None:
    first = outputs(1)
    assert outputs(2) == first and outputs(3) == first and outputs(2) == first


@pytest.mark.parametrize("turns", [300, pytest.param(10000, marks=pytest.mark.slow)])
def test_kernels_from_many_python_threads_with_forks(turns: int) -> None:
    rng = np.random.default_rng(7)
    x = rng.standard_normal((60, 300)).astype(np.float32)
    jobs: list[Callable[[], Any]] = []
    for name in ("softmax", "gelu", "sum", "layer_norm"):
        kernel = choose.lookup(name)
        assert kernel is not None
        jobs.append(lambda kernel=kernel: np.asarray(  # type: ignore[misc]
            out[0] if isinstance(out := kernel(x), tuple) else out).tobytes())
    want = [job() for job in jobs]
    wrong: list[int] = []

    def work(seed: int) -> None:
        for i in range(turns):
            k = (i + seed) % len(jobs)
            if jobs[k]() != want[k]:
                wrong.append(k)
    running = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in running:
        t.start()
    for _ in range(3 if hasattr(os, "fork") else 0):
        assert fork_and_run(lambda: [job() for job in jobs] == want)
    for t in running:
        t.join(300)
    assert not wrong and not any(t.is_alive() for t in running)


def fork_and_run(check: Callable[[], bool]) -> bool:
    """Whether the check holds in a forked child."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 warns of fork with threads
        pid = os.fork()
    if pid == 0:
        good = False
        try:
            good = check()
        finally:
            os._exit(0 if good else 1)
    return os.waitpid(pid, 0)[1] == 0


def test_hybrid_switches_by_size_and_keeps_gaps() -> None:
    f = choose.hybrid("parts", ["a", "b"], [A * B, None, A + B], single=False)
    for n in (5, 100000):
        x = np.arange(n, dtype=np.float32)
        product, gap, total = f(x, x)
        assert gap is None and np.array_equal(product, x * x) and np.array_equal(total, x + x)
    assert choose.hybrid("g", ["a"], [ex.lgamma_(A)])(np.ones(10000)).shape == (10000,)


def test_text_of_expressions_tells_them_apart() -> None:
    exprs = (A + B, B + A, A - B, A * 1.5, A * 1.5000001, (A + B) * A)
    texts = {codegen.text_of([e]) for e in exprs}
    assert len(texts) == 6
    assert choose.report()["kernels"] == "generated (LLVM)"
    assert set(choose.names()) >= {"softmax", "gelu_backward", "adam", "sum"}
    assert choose.lookup("no such op") is None


def test_results_go_where_they_are_wanted() -> None:
    kernel = loops.pointwise("both", ["a", "b"], [A + B, A - B], single=False)
    assert kernel is not None
    x = draw = np.random.default_rng(8).standard_normal((50, 30)).astype(np.float32)
    y = draw[::-1].copy()
    wide = np.zeros((50, 60), np.float32)
    assert kernel(x, y, out=[wide[:, :30], wide[:, 30:]]) is not NotImplemented
    assert np.array_equal(wide, np.hstack([x + y, x - y]))
    total, difference = x + y, x - y
    wide[:] = 0
    made = kernel(x, y, out=[None, wide[:, 30:]])  # one of them new
    assert made[1].base is wide and np.array_equal(np.hstack(made), np.hstack([x + y, x - y]))
    kernel(x, y, out=[x, y])                       # in place
    assert np.array_equal(x, total) and np.array_equal(y, difference)
    assert kernel(x, y, out=[x.T, y]) is NotImplemented
    assert kernel(x, y, out=[wide[:, ::2], y]) is NotImplemented
    assert kernel(x, y, out=[x]) is NotImplemented
    locked = x.copy()
    locked.flags.writeable = False
    assert kernel(x, y, out=[locked, y]) is NotImplemented
