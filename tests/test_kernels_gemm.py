"""The matrix product kernel against float64 (issue 3, item 3): types, layouts, batches, epilogues,
limits.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from helpers_kernels import guard_workspace

import adjoint as ad
from adjoint.kernels import blas, gemm, gemm_choose, gemm_plan, threads
from adjoint.kernels.gemm import RELU, matmul

RNG = np.random.default_rng(11)
BOUND = {"float32": 6e-7, "float64": 1e-15, "float16": 1e-3, "bfloat16": 8e-3}

needs_jit = pytest.mark.skipif(not gemm_plan.usable(), reason="no llvmlite, or ADJOINT_JIT=0")


@pytest.fixture(params=["generated", "numpy"])
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Every test runs with the generated kernel and with the NumPy fallback."""
    if request.param == "generated" and not gemm_plan.usable():
        pytest.skip("no llvmlite, or ADJOINT_JIT=0")
    monkeypatch.setattr(gemm, "_MODE", request.param)
    monkeypatch.setattr(gemm, "_plans", {})
    yield request.param


def dtype_of(name: str) -> Any:
    if name == "bfloat16":
        return pytest.importorskip("ml_dtypes").bfloat16
    return np.dtype(name)


def rand(shape: tuple[int, ...], name: str = "float32", layout: str = "n") -> np.ndarray:
    """A random array: plain, transposed in its last two axes, or a slice with gaps."""
    dtype = dtype_of(name)
    if layout == "t":
        return np.swapaxes(
            RNG.standard_normal((*shape[:-2], shape[-1], shape[-2])).astype(dtype), -1, -2
        )
    if layout == "s":
        big = RNG.standard_normal((*shape[:-2], 2 * shape[-2] + 1, 3 * shape[-1] + 2)).astype(dtype)
        return big[..., 1::2, 2::3]
    return RNG.standard_normal(shape).astype(dtype)


def check(got: np.ndarray, a: np.ndarray, b: np.ndarray, name: str, extra: Any = 0.0) -> None:
    """Error relative to |a| |b|, the size of what was summed (Higham 2002, section 3.5)."""
    a, b = a.astype("float64"), b.astype("float64")
    want = np.matmul(a, b) + extra
    assert got.shape == want.shape
    size = np.matmul(np.abs(a), np.abs(b)) + np.abs(extra) + 1e-30
    assert (np.abs(got.astype("float64") - want) / size).max(initial=0) <= BOUND[name]


SIZES = [
    (1, 1, 1),
    (3, 5, 7),
    (12, 32, 16),
    (13, 33, 17),
    (1, 300, 70),
    (70, 1, 300),
    (64, 64, 1),
    (97, 65, 130),
    (25, 200, 1100),
]


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("layouts", ["nn", "nt", "tn", "tt", "ss"])
def test_types_layouts_and_odd_sizes(mode: str, name: str, layouts: str) -> None:
    for m, n, k in SIZES:
        a, b = rand((m, k), name, layouts[0]), rand((k, n), name, layouts[1])
        got = matmul(a, b)
        assert got.dtype == a.dtype and got.flags.c_contiguous
        check(got, a, b, name)


def test_every_height_and_width(mode: str) -> None:
    """All row remainders and column remainders around the register tile."""
    b = rand((40, 70))
    for m in range(1, 27):
        a = rand((m, 40))
        check(matmul(a, b), a, b, "float32")
    a = rand((14, 40))
    for n in range(1, 68):
        check(matmul(a, b[:, :n]), a, b[:, :n], "float32")


@pytest.mark.parametrize(
    "shapes",
    [
        ((4, 30, 20), (4, 20, 40)),
        ((2, 1, 30, 20), (3, 20, 40)),
        ((5, 30, 20), (20, 40)),
        ((30, 20), (5, 20, 40)),
        ((2, 3, 30, 20), (20,)),
        ((20,), (2, 20, 40)),
        ((20,), (20,)),
        ((30, 20), (20,)),
    ],
)
def test_numpy_semantics(mode: str, shapes: Any) -> None:
    a, b = (rand(s) for s in shapes)
    got = matmul(a, b)
    assert isinstance(got, np.ndarray) or np.isscalar(got)
    check(np.asarray(got), a, b, "float32")
    out = np.empty(np.matmul(a, b).shape, "float32")
    if out.ndim:
        assert matmul(a, b, out) is out
        check(out, a, b, "float32")


def test_heads_of_a_projection_are_read_in_place(mode: str) -> None:
    """(B, S, H, D) seen as (B, H, S, D): strides in every axis, output likewise."""
    x = rand((2, 40, 3, 16))
    q = x.transpose(0, 2, 1, 3)
    check(matmul(q, q.swapaxes(-1, -2)), q, q.swapaxes(-1, -2), "float32")
    out = np.empty((2, 40, 3, 16), "float32").transpose(0, 2, 1, 3)
    w = rand((16, 16))
    matmul(q, w, out)
    check(out, q, w, "float32")


@pytest.mark.parametrize("shape", [(0, 4, 5), (4, 0, 5), (4, 5, 0)])
def test_zero_size(mode: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = np.ones((m, k), "float32"), np.ones((k, n), "float32")
    got = matmul(a, b)
    assert got.shape == (m, n) and not got.any()
    kept = np.ones((m, n), "float32")
    matmul(a, b, kept, accumulate=True)
    assert (kept == 1).all()
    assert matmul(a, b, bias=np.full(n, 2, "float32")).sum() == 2 * m * n


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_accumulate(mode: str, name: str) -> None:
    for m, n, k in [(5, 7, 9), (50, 70, 1100), (64, 32, 8)]:
        a, b, c = rand((m, k), name), rand((k, n), name, "t"), rand((m, n), name)
        out = c.copy()
        assert matmul(a, b, out, accumulate=True) is out
        check(out, a, b, name, c)


@pytest.mark.parametrize("kind", ["t", "s"])
def test_output_views_and_overlap(mode: str, kind: str) -> None:
    a, b = rand((30, 20)), rand((20, 50))
    out = rand((30, 50), "float32", kind)
    before = out.copy()
    matmul(a, b, out)
    check(out, a, b, "float32")
    matmul(a, b, out, accumulate=True)
    check(out, 2 * a, b, "float32")
    assert before.shape == out.shape
    square = rand((40, 40))
    want = square.copy()
    matmul(square, square, square)
    check(square, want, want, "float32")


def test_output_of_a_slice_leaves_the_rest(mode: str) -> None:
    big = np.full((40, 100), 7.0, "float32")
    a, b = rand((30, 20)), rand((20, 45))
    matmul(a, b, big[5:35, 10:55])
    check(big[5:35, 10:55], a, b, "float32")
    big[5:35, 10:55] = 7
    assert (big == 7).all()


@pytest.mark.parametrize("name", ["float32", "float64", "float16"])
@pytest.mark.parametrize("shape", [(30, 50, 20), (13, 33, 700), (1, 5, 3)])
def test_epilogue(mode: str, name: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b, residual = rand((m, k), name), rand((k, n), name), rand((m, n), name)
    bias = rand((n,), "float64" if name == "float64" else "float32")
    got = matmul(a, b, bias=bias, activation=RELU, residual=residual)
    wide = np.matmul(a.astype("f8"), b.astype("f8"))
    want = np.maximum(wide + bias, 0) + residual
    size = np.abs(a.astype("f8")) @ np.abs(b.astype("f8")) + 5
    assert got.dtype == a.dtype
    assert (np.abs(got - want) / size).max() <= BOUND[name]
    swapped = np.empty((n, m), a.dtype).T
    matmul(a, b, swapped, bias=bias, activation=RELU, residual=residual)
    assert (np.abs(swapped - want) / size).max() <= BOUND[name]


def test_epilogue_of_a_batch(mode: str) -> None:
    a, b, bias = rand((3, 20, 16)), rand((3, 16, 40)), rand((40,))
    residual = rand((3, 20, 40))
    got = matmul(a, b, bias=bias, residual=residual)
    check(got, a, b, "float32", bias.astype("f8") + residual)


def test_special_values_stay_in_their_rows_and_columns(mode: str) -> None:
    a, b = rand((30, 40)), rand((40, 50))
    a[3, 5], b[7, 9], a[11, 0] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        got = matmul(a, b)
        want = a.astype("f8") @ b.astype("f8")
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(got[np.isinf(want)], want[np.isinf(want)])


def test_mixed_types_and_integers_follow_numpy(mode: str) -> None:
    a, b = rand((30, 40)), rand((40, 50), "float64")
    assert matmul(a, b).dtype == np.float64
    ints = RNG.integers(0, 9, (30, 40))
    np.testing.assert_array_equal(matmul(ints, ints.T), ints @ ints.T)


@needs_jit
def test_blocks_of_k_and_same_bits_for_any_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gemm, "_MODE", "generated")
    a, b = rand((200, 1300)), rand((1300, 300))
    before, got = threads.get_num_threads(), []
    try:
        for n in (1, 2, 2, 5):
            threads.set_num_threads(n)
            got.append(matmul(a, b))
    finally:
        threads.set_num_threads(before)
    check(got[0], a, b, "float32")
    for other in got[1:]:
        np.testing.assert_array_equal(other, got[0])


@needs_jit
def test_called_from_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemm, "_MODE", "generated")
    pairs = [(rand((60 + i, 200)), rand((200, 90))) for i in range(6)]
    wanted = [matmul(a, b) for a, b in pairs]
    failures: list[int] = []

    def work(i: int) -> None:
        for _ in range(50):
            if not np.array_equal(matmul(*pairs[i]), wanted[i]):
                failures.append(i)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not failures


@needs_jit
def test_workspaces_are_private_to_a_process_and_can_be_returned() -> None:
    buffer = gemm_plan.workspace(10_000)
    assert buffer.size >= 10_000 and gemm_plan.address(buffer) % 4096 == 0
    buffer[0] = 1
    child = os.fork() if hasattr(os, "fork") else 0
    if child == 0 and hasattr(os, "fork"):
        buffer[0] = 2
        os._exit(0)
    if child:
        os.waitpid(child, 0)
    assert buffer[0] == 1
    gemm_plan.release(buffer)
    assert gemm_plan.trim() >= 10_000 and gemm_plan.trim() == 0


@needs_jit
@pytest.mark.parametrize("name", ["float32", "float64", "float16"])
def test_kernel_stays_inside_its_workspace(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The workspace ends in a guard: no size or layout may touch it."""
    monkeypatch.setattr(gemm, "_MODE", "generated")
    guards = guard_workspace(monkeypatch, gemm_plan)
    for m, n, k in [*SIZES, (130, 520, 33), (400, 96, 20)]:
        for layouts in ("nn", "nt", "tn", "tt", "ss"):
            a, b = rand((m, k), name, layouts[0]), rand((k, n), name, layouts[1])
            check(matmul(a, b), a, b, name)
            assert all((g == 0xA5).all() for g in guards)
            guards.clear()


@needs_jit
def test_verdicts_are_measured_once_and_survive_damage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    path = tmp_path / "gemm.json"
    monkeypatch.setattr(gemm_choose, "_path", lambda: path)
    monkeypatch.setattr(gemm_choose, "_verdicts", None)
    calls: list[str] = []
    slow = threading.Event()

    def ours(*args: Any) -> None:
        calls.append("ours")

    def theirs(*args: Any) -> None:
        calls.append("theirs")
        slow.wait(0.002)

    assert gemm_choose.generated_is_faster("x", ours, theirs, (), 100_000)
    count = len(calls)
    assert {"ours", "theirs"} <= set(calls) and path.exists()
    monkeypatch.setattr(gemm_choose, "_verdicts", None)
    assert gemm_choose.generated_is_faster("x", ours, theirs, (), 100_000) and len(calls) == count
    path.write_text("{ not json")
    monkeypatch.setattr(gemm_choose, "_verdicts", None)
    assert gemm_choose.generated_is_faster("x", ours, theirs, (), 100_000) and len(calls) > count


def test_blas_reads_transposed_operands_and_adds() -> None:
    library = blas.library()
    if library is None:
        pytest.skip("this NumPy bundles no OpenBLAS")
    for name in ("float32", "float64"):
        a, b, c = rand((30, 20), name, "t"), rand((20, 50), name, "t"), rand((30, 60), name)[:, :50]
        want = c.astype("f8")
        assert library.gemm(a, b, c, beta=1.0)
        check(c, a, b, name, want)
        assert not library.gemm(rand((30, 20), name, "s"), b, c)
    before = library.get_num_threads()
    with blas.one_thread(), blas.one_thread():
        assert library.get_num_threads() == 1
    assert library.get_num_threads() == before


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_few_rows_with_a_bias(rows: int, dtype: str) -> None:
    """A request of one row is a matrix times a vector, bias or not, and no product of NumPy's: its
    threads wait for each other. `linear` of a small first operand comes here by its weight."""
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(s).astype(dtype) for s in ((rows, 512), (640, 512), (640,)))
    want = x.astype(float) @ w.astype(float).T + b
    step = 4e-3 if dtype == "float16" else 512 * np.finfo(dtype).eps
    limit = step * (abs(x.astype(float)) @ abs(w.astype(float)).T + abs(b))
    made = gemm._decide(x, w.T, None, False, b, None, None)
    assert isinstance(made, gemm._Vector) == (rows == 1 and gemm_plan.usable())
    assert (abs(gemm.matmul(x, w.T, bias=b) - want) <= limit).all()
    kept = np.full((rows, 640), 7, dtype)
    assert gemm.matmul(x, w.T, kept, bias=b) is kept and (abs(kept - want) <= limit).all()
    if rows == 1 and dtype != "float16":
        got = ad.nn.functional.linear(*map(ad.from_numpy, (x, w, b))).numpy()
        assert (got == gemm.matmul(x, w.T, bias=b)).all()


def test_pairs_of_bfloat16_in_every_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Odd depths have half a pair at the end; what is contiguous along K, across it, or neither."""
    pytest.importorskip("ml_dtypes")
    half = np.dtype(dtype_of("bfloat16"))
    spec = gemm_plan.spec_for(half, half)
    if spec is None or not spec.pairs:
        pytest.skip("a CPU that does not multiply pairs of bfloat16")
    monkeypatch.setattr(gemm, "_MODE", "generated")
    monkeypatch.setattr(gemm, "_plans", {})
    for m, k, n in ((1, 1, 1), (13, 2, 33), (12, 17, 32), (37, 129, 65), (5, 1025, 31)):
        for layouts in ("nn", "nt", "tn", "tt", "ss", "st"):
            a, b = rand((m, k), "bfloat16", layouts[0]), rand((k, n), "bfloat16", layouts[1])
            check(matmul(a, b), a, b, "bfloat16")


@needs_jit
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_records_of_16_bit_products_are_not_left_to_numpy(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Linear layers, products of matrices and of stacks, and their gradients."""
    pytest.importorskip("ml_dtypes")
    from adjoint.ops import linalg

    def left(*_: Any) -> Any:
        raise AssertionError("computed by NumPy")

    monkeypatch.setattr(linalg, "_wide_product", left)
    monkeypatch.setattr(linalg, "_wide_linear", left)
    dtype = getattr(ad, name)
    x, w = (ad.tensor(rand(s)).to(dtype).requires_grad_() for s in ((3, 24, 40), (64, 40)))
    bias = ad.tensor(rand((64,))).to(dtype).requires_grad_()
    y = ad.nn.functional.linear(x, w, bias) @ ad.ones(64, 48, dtype=dtype)
    y.sum().backward()
    bmm = ad.bmm(x, x.transpose(1, 2))
    a = [t.detach().float().numpy().astype(np.float64) for t in (x, w, bias)]
    want = (a[0] @ a[1].T + a[2]).sum(-1)
    assert np.abs(y.detach().float().numpy()[..., 0] - want).max() < 0.5
    assert np.abs(bmm.detach().float().numpy() - a[0] @ a[0].swapaxes(1, 2)).max() < 0.5
    assert x.grad is not None and w.grad is not None and bias.grad is not None
    assert np.allclose(x.grad.float().numpy(), 48 * a[1].sum(0), rtol=0.02, atol=2.0)


@needs_jit
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_long_sums_of_16_bits_leave_the_operands(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The gradient of a weight sums over all tokens: sums go to float32, not copies of both."""
    monkeypatch.setattr(gemm, "_MODE", "generated")
    monkeypatch.setattr(gemm, "_plans", {})
    seen: list[str] = []
    real = gemm.Generated.__call__

    def call(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        seen.append(a.dtype.name)
        return real(self, a, b, *rest)

    monkeypatch.setattr(gemm.Generated, "__call__", call)
    a, b = rand((7, 4999), name, "t"), rand((4999, 33), name)
    y = matmul(a, b)
    assert y.dtype == a.dtype and seen == [name]
    check(y, a, b, name)


@needs_jit
@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("layouts", ["nn", "nt", "tn", "ss"])
def test_panels_of_rows_are_kept_while_columns_pass(
    monkeypatch: pytest.MonkeyPatch, name: str, layouts: str
) -> None:
    """All ends of a product whose rows stay packed, as with narrow tiles, and its workspace."""
    monkeypatch.setattr(gemm, "_MODE", "generated")
    kind, size = ("double", 8) if name == "float64" else ("float", 4)
    tile = gemm_plan.tile_for(gemm_plan.machine(), kind)
    cut = gemm_plan.blocking(121, 150, 300, 1, tile, size, 2, True, False)
    assert cut.kept == (tile.nr * size <= 64)
    guards = guard_workspace(monkeypatch, gemm_plan)
    a, b = rand((121, 300), name, layouts[0]), rand((300, 150), name, layouts[1])
    check(matmul(a, b), a, b, name)
    if name != "bfloat16":
        out = rand((121, 150), name)
        before, bias = out.copy(), rand((150,), name)
        check(matmul(a, b, bias=bias), a, b, name, bias)
        check(matmul(a, b, out, accumulate=True), a, b, name, before)
        check(matmul(a, b, residual=before), a, b, name, before)
        swapped = np.empty((150, 121), a.dtype).T
        check(matmul(a, b, swapped, bias=bias, residual=before), a, b, name, bias + before)
    assert guards and all((g == 0xA5).all() for g in guards)
