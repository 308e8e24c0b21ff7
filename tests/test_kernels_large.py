"""Large results: written around the cache, summed on all threads, handed on without a copy."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.kernels import alloc, codegen, dropout, llvm, loops, norm, reduce, softmax, threads
from adjoint.kernels.dropout_numpy import drawn_mask
from adjoint.kernels.expr import exp_, tanh_, var
from adjoint.kernels.stream import Stream
from adjoint.ops.accelerate import plus

pytestmark = pytest.mark.skipif(not llvm.available(), reason="needs llvmlite")
SHAPES = [(5, 7), (33, 64), (40, 1003), (3, 20000), (300, 48)]
DTYPES = [np.float32, np.float64, np.float16]


def draw(shape: Any, dtype: Any = np.float32, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[], Any]], None]]:
    """Checks that a computation gives the same bits with results around the cache as without, on
    one thread and on three."""
    before = threads.get_num_threads()

    def run(compute: Callable[[], Any], around: bool, count: int) -> list[bytes]:
        monkeypatch.setattr(codegen, "streams", lambda nbytes: around)
        threads.set_num_threads(count)
        got = compute()
        return [np.asarray(a).tobytes() for a in (got if isinstance(got, tuple) else (got,))]

    def check(compute: Callable[[], Any]) -> None:
        want = run(compute, False, 1)
        assert want == run(compute, True, 1) == run(compute, True, 3)

    yield check
    threads.set_num_threads(before)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_around_the_cache_have_the_same_bits(both: Any, shape: Any, dtype: Any) -> None:
    x, ct = draw(shape, dtype), draw(shape, dtype, 1)
    w, b = draw(shape[-1:], dtype, 2), draw(shape[-1:], dtype, 3)
    both(lambda: softmax.softmax(x))
    y, z = softmax.softmax(x), softmax.log_softmax(x)
    both(lambda: softmax.softmax_backward(ct, y))
    both(lambda: softmax.log_softmax(x))
    both(lambda: softmax.log_softmax_backward(ct, z))
    both(lambda: norm.layer_norm(x, w, b))
    _, mean, rstd = norm.layer_norm(x, w, b)
    both(lambda: norm.layer_norm_backward(ct, x, mean, rstd, w, bias=True))
    both(lambda: norm.rms_norm(x, w))
    both(lambda: dropout.dropout(x, drawn_mask(Stream(5), shape, 0.3), shape, 1 / 0.7))
    target = np.arange(shape[0]) % shape[1]
    target[0] = -100
    _, lse, _ = softmax.cross_entropy(x, target)
    scale = np.ones_like(lse)
    both(lambda: softmax.cross_entropy_backward(scale, x, target, lse, label_smoothing=0.1))


@pytest.mark.parametrize("shape", [(5, 7), (40, 1003), (64, 512), (1, 70000), (3, 5, 300)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_pointwise_around_the_cache_has_the_same_bits(both: Any, shape: Any, dtype: Any) -> None:
    """Broadcast and transposed operands, several results, a truth-valued one."""
    x, row, column = draw(shape, dtype), draw(shape[-1:], dtype, 1), draw((*shape[:-1], 1), dtype)
    a, b = var("a"), var("b")
    exprs = [exp_(a) * b, a < b, a + b]

    def compute(left: Any, right: Any) -> Any:
        kernel = loops.pointwise("large", ["a", "b"], exprs, single=False)
        assert kernel is not None
        got = kernel(left, right)
        assert got is not NotImplemented
        return got
    both(lambda: compute(x, row))
    both(lambda: compute(x, column))
    both(lambda: compute(x.T, x.T))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [70001, 1003])
def test_two_vectors_a_turn_have_the_bits_of_one(dtype: Any, columns: int) -> None:
    """Large arrays against their rows, which are computed alone."""
    x, column = draw((70, columns), dtype), draw((70, 1), dtype, 1)
    a, b = var("a"), var("b")
    kernel = loops.pointwise("pairs", ["a", "b"], [tanh_(a) * exp_(b) + 0.5 * a])
    assert kernel is not None
    got = kernel(x, column)
    for i in (0, 1, 69):
        for lo, hi in ((0, 500), (columns - 501, columns)):
            want = kernel(np.ascontiguousarray(x[i:i + 1, lo:hi]), column[i:i + 1])
            assert got[i, lo:hi].tobytes() == want.tobytes()


def test_functions_are_approximated_two_vectors_at_once_where_registers_are_many() -> None:
    wide = llvm.vector_bits() == 512
    assert codegen.pairs([exp_(var("a"))]) == wide
    assert not codegen.pairs([var("a") * var("b") + 1.0])


def test_the_threshold_follows_the_last_level_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llvm, "cache_bytes", lambda: 8 << 20)
    assert not codegen.streams((4 << 20) - 1) and codegen.streams(4 << 20)


def test_the_last_level_cache_is_read_or_assumed(monkeypatch: pytest.MonkeyPatch,
                                                 tmp_path: Any) -> None:
    real = llvm.Path

    def told(*sizes: str) -> int:
        for i, text in enumerate(sizes):
            (tmp_path / f"index{i}").mkdir(exist_ok=True)
            (tmp_path / f"index{i}" / "size").write_text(text + "\n")
        monkeypatch.setattr(llvm, "Path", lambda _: real(tmp_path))
        return llvm.cache_bytes.__wrapped__()

    assert told() == 32 << 20
    assert told("48K", "1024K", "33792K") == 33792 << 10
    assert told("48K", "2M", "1G") == 1 << 30
    assert told("48K", "unknown", "512") == 48 << 10


def test_sums_of_large_cotangents() -> None:
    """`plus` is NumPy's sum to the bit, in a new array or in place, large or small."""
    for n in (3, 100_003):
        a, b = draw(n), draw(n, seed=1)
        assert (plus(a, b) == a + b).all()
        c = a.copy()
        assert plus(c, b, out=c) is c and (c == a + b).all()
    a, b = draw((300, 400)), draw((400, 300), seed=1).T
    assert (plus(a, b) == a + b).all() and (plus(b, a, out=b) == b).all()
    whole = draw((300, 800))
    part = whole[:, ::2]
    want = part + a
    assert (plus(part, a, out=part) == want).all() and (whole[:, ::2] == want).all()
    double = draw(100_000, np.float64)
    assert plus(draw(100_000), double).dtype == np.float64
    single = draw(100_000)
    assert plus(single, double, out=single).dtype == np.float32


def test_a_bias_gradient_is_summed_in_double_precision() -> None:
    """Two million cotangents of 0.1: added up in float32, the sum would lose digits."""
    x, b = ad.zeros(1 << 21, 5), ad.zeros(5, requires_grad=True)
    ct = np.full((1 << 21, 5), 0.1, np.float32)
    (x + b).backward(ad.from_numpy(ct))
    assert b.grad is not None
    want = float(np.float32(0.1)) * (1 << 21)
    assert abs(b.grad.numpy().astype(np.float64) / want - 1).max() < 1e-7


@pytest.mark.skipif(not alloc.available(), reason="needs the counting allocator")
def test_the_gradient_of_layer_norm_is_not_copied() -> None:
    x = ad.randn(512, 256, requires_grad=True)
    w, b = ad.ones(256, requires_grad=True), ad.zeros(256, requires_grad=True)
    ct = ad.randn(512, 256)

    def step() -> int:
        x.grad = w.grad = b.grad = None
        y = ad.nn.functional.layer_norm(x, (256,), w, b)
        del y
        y = ad.nn.functional.layer_norm(x, (256,), w, b)
        alloc.mark()
        before = alloc.live()
        y.backward(ct)
        return alloc.marked() - before

    step()
    assert step() < 1.5 * x.array.nbytes       # the gradient itself, and partial sums


def test_reductions_return_arrays_of_their_own() -> None:
    kernel = reduce.reduction("large_sum", ["x"], [var("x")], ["add"])
    assert kernel is not None
    total, = kernel(draw((512, 300)), axis=0)
    assert total.base is None and total.shape == (300,)


def test_the_cotangent_of_a_difference_is_handed_on() -> None:
    """Of (ct, -ct) only the second is computed; the user's own array is not made a gradient."""
    x, y = ad.tensor(draw((300, 400))), ad.tensor(draw((300, 400), seed=1))
    x.requires_grad_(), y.requires_grad_()
    z, ct = x - y, ad.tensor(draw((300, 400), seed=2))
    assert z.grad_fn is not None
    rule = z.grad_fn.plan.large
    made = rule(ct.numpy())
    assert made[0] is not made[1] and np.shares_memory(made[0], ct.numpy())
    assert made[1].tobytes() == (-ct.numpy()).tobytes()
    z.backward(ct, retain_graph=True)
    assert x.grad is not None and y.grad is not None
    assert not np.shares_memory(x.grad.numpy(), ct.numpy())
    want = ct.numpy().copy()
    z.backward(ct)                   # adds to both; what was handed on is not written to
    assert ct.numpy().tobytes() == want.tobytes()
    assert x.grad.numpy().tobytes() == (2 * want).tobytes()
    assert y.grad.numpy().tobytes() == (-2 * want).tobytes()
    ((x - y) * (x - y)).sum().backward()
    both = 2 * (x.detach().numpy() - y.detach().numpy())
    np.testing.assert_allclose(x.grad.numpy(), 2 * want + both, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(y.grad.numpy(), -2 * want - both, rtol=1e-5, atol=1e-5)
