"""Attention kernels against PyTorch, plain float64 softmax, and finite memory (F57, F83; issue 3,
item 4).
"""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from helpers_kernels import guard_workspace

from adjoint.kernels import attention, attention_numpy, attention_run, gemm_plan, threads

RNG = np.random.default_rng(3)


@pytest.fixture(params=["generated", "numpy"], autouse=True)
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test runs with the generated kernels and with the NumPy tiles."""
    if request.param == "generated" and not gemm_plan.usable():
        pytest.skip("no llvmlite, or ADJOINT_JIT=0")
    if request.param == "numpy":
        monkeypatch.setattr(attention_run, "supported", lambda *args: False)
    return str(request.param)


def rand(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def naive(q: Any, k: Any, v: Any, ct: Any, mask: Any, causal: bool, keep: Any = None) -> list[Any]:
    """Output, log-sum-exp and the three cotangents by the textbook formulas in float64."""
    q, k, v, ct = (a.astype("float64") for a in (q, k, v, ct))
    groups = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, groups, 1), np.repeat(v, groups, 1)
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf) if mask.dtype == bool else s + mask
    if causal:
        s = np.where(np.tri(*s.shape[-2:], dtype=bool), s, -np.inf)
    top = s.max(-1, keepdims=True)
    e = np.exp(s - np.where(top == -np.inf, 0, top))
    total = e.sum(-1, keepdims=True)
    p = e / np.where(total == 0, 1, total)
    with np.errstate(divide="ignore"):
        lse = (top + np.log(total))[..., 0]
    factor = 1.0 if keep is None else keep
    out = (p * factor) @ v
    dv = (p * factor).swapaxes(-1, -2) @ ct
    dp = ct @ v.swapaxes(-1, -2) * factor
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) / np.sqrt(q.shape[-1])

    def fold(a: Any) -> Any:
        return a.reshape(a.shape[0], -1, groups, *a.shape[2:]).sum(2)

    return [out, lse, ds @ k, fold(ds.swapaxes(-1, -2) @ q), fold(dv)]


def check(got: list[Any], want: list[Any], tol: float) -> None:
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape
        finite = np.isfinite(b)
        assert np.array_equal(a[~finite], b[~finite])
        # the operands are of size one: where the exact value is 0, differences of such sizes cancel
        scale = np.abs(b[finite]).max(initial=1.0)
        assert np.abs(a[finite] - b[finite]).max(initial=0) <= tol * scale


def run(q: Any, k: Any, v: Any, ct: Any, **options: Any) -> list[Any]:
    out, lse = attention.attention_forward(q, k, v, **options)
    return [out, lse, *attention.attention_backward(ct, q, k, v, out, lse, **options)]


SHAPES = [
    # B, H, Hk, S, T, E, Ev
    (2, 3, 3, 64, 64, 32, 32),
    (1, 2, 2, 200, 200, 64, 64),
    (2, 4, 2, 97, 131, 16, 24),
    (1, 2, 1, 1, 300, 64, 64),
    (1, 1, 1, 130, 7, 8, 5),
    (1, 6, 2, 33, 33, 33, 1),
    (1, 2, 2, 600, 600, 40, 40),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_matches_textbook(shape: tuple[int, ...], causal: bool, dtype: str) -> None:
    b, h, hk, s, t, e, ev = shape
    q, k, v = (
        rand(b, h, s, e, dtype=dtype),
        rand(b, hk, t, e, dtype=dtype),
        rand(b, hk, t, ev, dtype=dtype),
    )
    ct = rand(b, h, s, ev, dtype=dtype)
    check(
        run(q, k, v, ct, causal=causal),
        naive(q, k, v, ct, None, causal),
        3e-6 if dtype == "float32" else 1e-13,
    )


@pytest.mark.parametrize("kind", ["bool", "float", "row", "head"])
@pytest.mark.parametrize("causal", [False, True])
def test_masks(kind: str, causal: bool) -> None:
    b, h, s, t, e = 2, 3, 75, 110, 32
    q, k, v, ct = rand(b, h, s, e), rand(b, h, t, e), rand(b, h, t, e), rand(b, h, s, e)
    mask: Any = RNG.random((b, 1, s, t)) < 0.6
    mask[0, 0, 5] = False
    if kind == "float":
        mask = rand(s, t)
        mask[3, :50] = -np.inf
    elif kind == "row":
        mask = RNG.random((b, 1, 1, t)) < 0.5
        mask[..., 0] = True
    elif kind == "head":
        mask = rand(h, 1, t)
    check(run(q, k, v, ct, mask=mask, causal=causal), naive(q, k, v, ct, mask, causal), 3e-6)


def test_mask_cotangent_matches_torch() -> None:
    torch = pytest.importorskip("torch")
    q, k, v, ct, mask = (
        rand(2, 3, 20, 8),
        rand(2, 3, 30, 8),
        rand(2, 3, 30, 8),
        rand(2, 3, 20, 8),
        rand(3, 1, 30),
    )
    out, lse = attention.attention_forward(q, k, v, mask=mask)
    grads = attention.attention_backward(ct, q, k, v, out, lse, mask=mask, mask_grad=True)
    tq, tk, tv, tm = (torch.from_numpy(a).requires_grad_() for a in (q, k, v, mask))
    torch.nn.functional.scaled_dot_product_attention(tq, tk, tv, tm).backward(torch.from_numpy(ct))
    check(list(grads), [t.grad.numpy() for t in (tq, tk, tv, tm)], 3e-6)


def test_rows_with_nothing_to_attend_to_give_zero() -> None:
    q, mask = rand(1, 1, 4, 8), np.zeros((4, 4), bool)
    mask[1:] = True
    out, lse, *grads = run(q, q, q, np.ones_like(q), mask=mask)
    assert not out[0, 0, 0].any() and lse[0, 0, 0] == -np.inf
    assert all(np.isfinite(g).all() for g in grads) and not grads[0][0, 0, 0].any()


@pytest.mark.parametrize("causal", [False, True])
def test_dropout_is_a_function_of_seed_and_position(causal: bool) -> None:
    b, h, s, t, e, p = 2, 3, 90, 101, 16, 0.3
    q, k, v, ct = rand(b, h, s, e), rand(b, h, t, e), rand(b, h, t, e), rand(b, h, s, e)
    seed = 0x1234567890ABCDEF
    spec = attention_numpy.Attend(1.0, dropout=p, seed=seed)
    rows = np.arange(b * h * s, dtype=np.uint64).reshape(b, h, s)
    keep = attention_numpy.keep_tile(spec, rows, range(t))
    assert abs(keep.mean() - (1 - p)) < 4 * np.sqrt(p * (1 - p) / keep.size)
    want = naive(q, k, v, ct, None, causal, keep / (1 - p))
    check(run(q, k, v, ct, causal=causal, dropout=p, seed=seed), want, 3e-6)


def test_dropout_bits_are_independent() -> None:
    """Neighbours in both directions, other seeds and other rows agree as often as chance says."""
    rows = np.arange(512, dtype=np.uint64)
    half = [
        attention_numpy.keep_tile(attention_numpy.Attend(1, dropout=0.5, seed=s), rows, range(512))
        for s in (0, 1)
    ]
    pairs = [(half[0], half[1]), (half[0][1:], half[0][:-1]), (half[0][:, 1:], half[0][:, :-1])]
    for a, b in pairs:
        assert abs((a == b).mean() - 0.5) < 5 * 0.5 / np.sqrt(a.size)


def test_layouts_are_read_in_place() -> None:
    """(B, S, H, E) seen as (B, H, S, E), and one packed qkv array, give the same bits."""
    qkv = rand(2, 50, 3, 4, 32)
    q, k, v = (qkv[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
    ct = rand(2, 50, 4, 32).transpose(0, 2, 1, 3)
    got = run(q, k, v, ct, causal=True)
    want = run(*(np.ascontiguousarray(a) for a in (q, k, v, ct)), causal=True)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)
    check(got, naive(q, k, v, ct, None, True), 3e-6)


@pytest.mark.parametrize("shape", [(0, 2, 3, 4), (1, 0, 3, 4), (1, 2, 0, 4), (1, 2, 3, 0)])
def test_empty(shape: tuple[int, ...]) -> None:
    q = np.ones(shape, "float32")
    out, _, *grads = run(q, q, q, q)
    assert out.shape == shape and all(g.shape == shape for g in grads)
    none = np.ones((1, 2, 0, 4), "float32")
    out, lse = attention.attention_forward(np.ones((1, 2, 3, 4), "float32"), none, none)
    assert not out.any() and (lse == -np.inf).all()


def test_other_ranks_and_half_precision() -> None:
    q = rand(5, 20, 8)
    out, lse = attention.attention_forward(q, q, q)
    assert out.shape == (5, 20, 8) and lse.shape == (5, 20)
    six = rand(2, 3, 2, 20, 8)
    check(
        [attention.attention_forward(six, six, six)[0][1, 2]],
        [attention.attention_forward(six[1, 2], six[1, 2], six[1, 2])[0]],
        1e-6,
    )
    half = q.astype("float16")
    out16, lse16 = attention.attention_forward(half, half, half)
    assert out16.dtype == np.float16 and lse16.dtype == np.float32
    assert np.abs(out16 - out).max() < 4e-3


def test_nan_stays_in_its_row() -> None:
    q = rand(1, 2, 40, 16)
    bad = q.copy()
    bad[0, 1, 7, 3] = np.nan
    out, _ = attention.attention_forward(bad, q, q)
    where = np.isnan(out).any(-1)
    assert where[0, 1, 7] and where.sum() == 1


@pytest.mark.parametrize("causal", [False, True])
def test_memory_is_linear_in_the_sequence(causal: bool) -> None:
    """F57: temporaries stay far below the S x S matrix (16 MB here)."""
    s = 2048
    q = rand(1, 1, s, 16)
    tracemalloc.start()
    try:
        run(q, q, q, q, causal=causal)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 9e6


def test_wide_heads_and_negative_scale() -> None:
    q, k, v, ct = (rand(1, 2, 150, 160) for _ in range(4))
    check(run(q, k, v, ct), naive(q, k, v, ct, None, False), 3e-6)
    flipped = run(q, k, v, ct, scale=-(160**-0.5))
    check(flipped[:2], naive(-q, k, v, ct, None, False)[:2], 3e-6)


def test_large_scores_do_not_overflow() -> None:
    q, v, ct = rand(1, 1, 100, 32) * 40, rand(1, 1, 100, 32), rand(1, 1, 100, 32)
    got = run(q, q, v, ct, causal=True)
    assert all(np.isfinite(x).all() for x in got)
    check(got[:1], naive(q, q, v, ct, None, True)[:1], 1e-4)


def test_same_bits_for_any_number_of_threads(mode: str) -> None:
    q, k, v, ct = (rand(2, 3, 300, 32) for _ in range(4))
    before, results = threads.get_num_threads(), []
    try:
        for n in (1, 2, 3):
            threads.set_num_threads(n)
            results.append(run(q, k, v, ct, causal=True, dropout=0.1, seed=5))
    finally:
        threads.set_num_threads(before)
    for other in results[1:]:
        for a, b in zip(other, results[0], strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("causal", [False, True])
def test_one_head_on_many_threads(causal: bool) -> None:
    """Fewer heads than threads: the keys of a head are shared out."""
    q, k, v, ct = rand(1, 2, 500, 32), rand(1, 1, 420, 32), rand(1, 1, 420, 32), rand(1, 2, 500, 32)
    before = threads.get_num_threads()
    try:
        threads.set_num_threads(3)
        got, again = run(q, k, v, ct, causal=causal), run(q, k, v, ct, causal=causal)
    finally:
        threads.set_num_threads(before)
    check(got, naive(q, k, v, ct, None, causal), 3e-6)
    for a, b in zip(got, again, strict=True):
        np.testing.assert_array_equal(a, b)


def test_kernel_stays_inside_its_workspace(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workspace ends in a guard that no shape may touch."""
    if mode == "numpy":
        pytest.skip("the generated kernels' workspace")
    guards = guard_workspace(monkeypatch, attention_run)
    for b, h, hk, s, t, e, ev in SHAPES:
        q, k, v, ct = rand(b, h, s, e), rand(b, hk, t, e), rand(b, hk, t, ev), rand(b, h, s, ev)
        run(q, k, v, ct, mask=rand(s, t), dropout=0.5)
    assert guards and all((g == 0xA5).all() for g in guards)


def test_padded_heads_one_slice_of_the_batch_at_a_time(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A head of 20 numbers is padded: for a part of the batch at a time, with the same bits."""
    if mode == "numpy":
        pytest.skip("the generated kernels pad")
    q, k, v, ct = rand(5, 4, 96, 20), rand(5, 2, 96, 20), rand(5, 2, 96, 12), rand(5, 4, 96, 12)
    mask = rand(5, 1, 96, 96)
    parts = run(q, k, v, ct, mask=mask)
    monkeypatch.setattr(attention_run, "_SLICE", 1 << 30)
    whole = run(q, k, v, ct, mask=mask)
    for a, b in zip(parts, whole, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.strides == b.strides
    spec = attention_numpy.Attend(0.2)
    assert len(attention_run._in_turn(spec, k, v)) == 1
    monkeypatch.setattr(attention_run, "_SLICE", 1)
    assert len(attention_run._in_turn(spec, k, v)) > 1
    assert len(attention_run._in_turn(attention_numpy.Attend(0.2, dropout=0.5), k, v)) == 1


def test_results_lie_as_the_operands_do() -> None:
    """Heads that a view split off the last axis are joined by a view again."""
    q, k, v = (rand(2, 6, 4, 32).swapaxes(1, 2) for _ in range(3))
    out, lse = attention.attention_forward(q, k, v)
    grads = attention.attention_backward(out, q, k, v, out, lse)
    assert all(x.strides == q.strides for x in (out, *grads))
