"""Convolution and pooling kernels against PyTorch and against their own transposes (issue 3, item
5).
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers_kernels import guard_workspace

from adjoint.kernels import conv, conv_few, conv_pool_run, conv_run, gemm_plan, threads

RNG = np.random.default_rng(7)

CASES = [
    # x shape, w shape, stride, padding, dilation, groups
    ((2, 3, 9), (4, 3, 3), 1, 0, 1, 1),
    ((2, 4, 17), (6, 2, 5), 2, 2, 2, 2),
    ((2, 3, 8, 9), (5, 3, 3, 3), 1, 1, 1, 1),
    ((3, 4, 11, 7), (8, 1, 3, 2), (2, 1), (1, 0), (1, 2), 4),
    ((1, 6, 6, 6), (4, 3, 1, 1), 1, 0, 1, 2),
    ((2, 2, 5, 6, 7), (3, 2, 2, 3, 2), (1, 2, 1), (0, 1, 1), 1, 1),
    ((2, 3, 40, 33), (16, 3, 5, 5), 2, 2, 1, 1),
    ((4, 16, 14, 14), (20, 16, 3, 3), 1, 1, 1, 1),
    ((2, 16, 8, 8), (33, 16, 3, 3), 1, 1, 1, 1),
    ((2, 3, 4, 4), (2, 3, 4, 4), 1, 0, 1, 1),
    ((2, 3, 20, 21), (5, 3, 3, 3), 2, 1, 1, 1),
    ((2, 3, 20, 21), (5, 3, 3, 3), 3, 2, 2, 1),
    ((2, 4, 9, 9), (6, 4, 1, 1), 2, 0, 1, 1),
    ((9, 1, 28, 28), (6, 1, 5, 5), 1, 2, 1, 1),
    ((3, 6, 14, 14), (16, 6, 5, 5), 1, 0, 1, 1),
    ((2, 64, 16, 16), (40, 64, 3, 3), 1, 1, 1, 1),
    ((3, 4, 17, 3), (8, 4, 3, 2), 1, 1, 1, 1),
    ((2, 20, 9, 19), (7, 20, 3, 3), 1, 1, 1, 1),
    ((3, 33, 5, 16), (5, 33, 3, 2), 1, (0, 1), 1, 1),
    ((2, 34, 6, 12), (4, 17, 3, 3), 2, 1, 1, 2),
    ((3, 5, 14, 18), (5, 1, 3, 3), 1, 1, 1, 5),
    ((2, 4, 15, 34), (8, 1, 3, 3), 2, 1, 1, 4),
    ((2, 3, 9, 40), (3, 1, 2, 5), (1, 3), (0, 4), (2, 3), 3),
    ((3, 6, 50), (12, 1, 4), 2, 3, 2, 6),
    ((3, 5, 4, 4), (6, 5, 3, 3), 1, 1, 1, 1),
    ((4, 5, 4, 3), (6, 5, 3, 3), 2, 1, 1, 1),
    ((5, 7, 1, 1), (3, 7, 3, 3), 1, 1, 1, 1),
    ((3, 4, 6), (5, 4, 3), 3, 1, 2, 1),
    ((4, 3, 2, 1), (5, 3, 5, 3), 1, (3, 2), 1, 1),
    ((4, 3, 1, 2), (5, 3, 4, 3), 2, (3, 4), (2, 3), 1),
    ((3, 2, 2), (4, 2, 2), 3, 6, 4, 1),
    ((2, 3, 2, 3, 2), (4, 3, 2, 1, 2), 1, (1, 0, 1), 1, 1),
]


@pytest.fixture(params=["generated", "few", "numpy"], autouse=True)
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test runs with the generated kernels (at any size), with one product for all images
    where the maps are small, and with the NumPy windows."""
    if request.param != "numpy" and not gemm_plan.usable():
        pytest.skip("no llvmlite, or ADJOINT_JIT=0")
    monkeypatch.setattr(conv_run, "_LEAST", 0)
    if request.param == "few":
        monkeypatch.setattr(conv_few, "_LEAST", 0)
        monkeypatch.setattr(conv_few, "_SUMMED", 0)
        monkeypatch.setattr(conv_few, "_FEWER", 1)
        conv_few._seen.cache_clear()
        request.addfinalizer(conv_few._seen.cache_clear)
    if request.param == "numpy":
        monkeypatch.setattr(conv_run, "supported", lambda *args: False)
        monkeypatch.setattr(conv_pool_run, "supported", lambda *args: False)
    return str(request.param)


def rand(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def close(actual: np.ndarray, wanted: np.ndarray, tol: float = 2e-6) -> None:
    assert actual.shape == wanted.shape
    scale = np.abs(wanted).max(initial=1e-30)
    assert np.abs(actual - wanted).max(initial=0) <= tol * scale


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES)
def test_conv_matches_torch(case: tuple, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    xs, ws, stride, padding, dilation, groups = case
    x, w = rand(xs, dtype), rand(ws, dtype)
    tx = torch.from_numpy(x.astype("float64")).requires_grad_()
    tw = torch.from_numpy(w.astype("float64")).requires_grad_()
    f = getattr(torch.nn.functional, f"conv{len(xs) - 2}d")
    ty = f(tx, tw, None, stride, padding, dilation, groups)
    ct = rand(tuple(ty.shape), dtype)
    ty.backward(torch.from_numpy(ct.astype("float64")))
    args = (stride, padding, dilation, groups)
    tol = 2e-6 if dtype == "float32" else 1e-14
    close(conv.conv_forward(x, w, *args), ty.detach().numpy(), tol)
    close(conv.conv_grad_input(ct, w, xs, *args), tx.grad.numpy(), tol)
    close(conv.conv_grad_weight(ct, x, ws, *args), tw.grad.numpy(), tol)
    bias = rand((ws[0],), dtype)
    wanted = ty.detach().numpy() + bias.reshape(-1, *(1,) * (len(xs) - 2))
    close(conv.conv_forward(x, w, *args, bias=bias), wanted, tol)


@pytest.mark.parametrize("case", CASES)
def test_conv_transposes_are_adjoint(case: tuple) -> None:
    """<ct, conv(x, w)> = <conv_grad_input(ct, w), x> = <conv_grad_weight(ct, x), w>, in float64."""
    xs, ws, *args = case
    x, w = rand(xs, "float64"), rand(ws, "float64")
    y = conv.conv_forward(x, w, *args)
    ct = rand(y.shape, "float64")
    want = np.vdot(ct, y)
    assert (
        abs(np.vdot(conv.conv_grad_input(ct, w, xs, *args), x) - want) <= 1e-11 * abs(want) + 1e-9
    )
    assert (
        abs(np.vdot(conv.conv_grad_weight(ct, x, ws, *args), w) - want) <= 1e-11 * abs(want) + 1e-9
    )


def test_conv_uneven_padding_and_layout() -> None:
    x, w = rand((2, 3, 7, 8)), rand((4, 3, 2, 3))
    padded = np.pad(x, ((0, 0), (0, 0), (0, 1), (2, 0)))
    close(conv.conv_forward(x, w, 1, [(0, 1), (2, 0)]), conv.conv_forward(padded, w))
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    close(conv.conv_forward(last, w, 1, 1), conv.conv_forward(x, w, 1, 1))
    ct = rand(conv.conv_forward(x, w, 1, 1).shape)
    close(
        conv.conv_grad_weight(ct, last, w.shape, 1, 1), conv.conv_grad_weight(ct, x, w.shape, 1, 1)
    )


@pytest.mark.parametrize("shape", [(0, 3, 5, 5), (2, 0, 5, 5), (2, 3, 2, 5)])
def test_conv_empty(shape: tuple[int, ...]) -> None:
    x, w = np.ones(shape, "float32"), np.ones((4, shape[1], 3, 3), "float32")
    y = conv.conv_forward(x, w)
    assert not y.any() and y.shape == (shape[0], 4, max(0, shape[2] - 2), 3)
    assert not conv.conv_grad_input(np.ones_like(y), w, shape).any() or shape[0]
    assert conv.conv_grad_weight(np.ones_like(y), x, w.shape).shape == w.shape


def test_conv_nan_stays_local_and_half_types_sum_in_float32() -> None:
    x, w = rand((1, 2, 6, 6)), rand((3, 2, 3, 3))
    x[0, 0, 0, 0] = np.nan
    y = conv.conv_forward(x, w)
    assert np.isnan(y[0, :, 0, 0]).all() and np.isnan(y).sum() == 3
    half = np.full((1, 4096, 1), 1, "float16")
    assert conv.conv_forward(half, half).item() == 4096
    assert conv.conv_forward(half, half).dtype == np.float16


POOLS = [
    ((2, 3, 9), 2, 2, 0, 1, False),
    ((2, 3, 8, 9), 3, 2, 1, 1, True),
    ((2, 3, 7, 7), (2, 3), (1, 2), (1, 1), (1, 2), False),
    ((1, 2, 5, 6, 7), 2, None, 0, 1, True),
    ((2, 2, 11, 10), 3, 3, 1, 2, True),
    ((3, 7, 20, 45), 3, 2, 1, 1, False),
    ((4, 6, 28, 28), 2, 2, 0, 1, False),
    ((1, 5, 7, 9, 20), (2, 3, 3), (2, 1, 2), 1, 1, True),
]


@pytest.mark.parametrize("case", POOLS)
def test_max_pool_matches_torch(case: tuple) -> None:
    torch = pytest.importorskip("torch")
    shape, *args = case
    x = np.round(rand(shape) * 2)  # ties
    x[0, 0].flat[::5] = -np.inf
    tx = torch.from_numpy(x).requires_grad_()
    f = getattr(torch.nn.functional, f"max_pool{len(shape) - 2}d")
    ty, ti = f(tx, *args[:4], ceil_mode=args[4], return_indices=True)
    y, index = conv.max_pool_forward(x, *args)
    np.testing.assert_array_equal(y, ty.detach().numpy())
    np.testing.assert_array_equal(index, ti.numpy())
    ct = rand(y.shape)
    ty.backward(torch.from_numpy(ct))
    close(conv.max_pool_backward(ct, index, shape), tx.grad.numpy())
    np.testing.assert_array_equal(conv.max_pool_gather(x, index), y)


def test_max_pool_nan_and_minus_inf() -> None:
    torch = pytest.importorskip("torch")
    x = rand((1, 2, 40, 40))
    x[0, 0, 1, 1] = x[0, 0, 1, 0] = np.nan
    x[0, 1] = -np.inf
    y, index = conv.max_pool_forward(x, 3, 2, 1)
    ty, ti = torch.nn.functional.max_pool2d(torch.from_numpy(x), 3, 2, 1, return_indices=True)
    np.testing.assert_array_equal(y, ty.numpy())
    np.testing.assert_array_equal(index, ti.numpy())


@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("override", [None, 3])
@pytest.mark.parametrize("case", [c for c in POOLS if c[4] == 1])
def test_avg_pool_matches_torch(case: tuple, include: bool, override: int | None) -> None:
    torch = pytest.importorskip("torch")
    shape, kernel, stride, padding, _, ceil = case
    if override and len(shape) == 3:
        pytest.skip("PyTorch's avg_pool1d has no divisor_override")
    x = rand(shape)
    tx = torch.from_numpy(x).requires_grad_()
    f = getattr(torch.nn.functional, f"avg_pool{len(shape) - 2}d")
    extra = {} if len(shape) == 3 else {"divisor_override": override}
    ty = f(tx, kernel, stride, padding, ceil, include, **extra)
    args = (kernel, stride, padding, ceil, include, override)
    y = conv.avg_pool_forward(x, *args)
    close(y, ty.detach().numpy(), 1e-6)
    ct = rand(y.shape)
    ty.backward(torch.from_numpy(ct))
    close(conv.avg_pool_backward(ct, shape, *args), tx.grad.numpy(), 1e-6)


@pytest.mark.parametrize("out", [1, 3, (2, 5)])
def test_adaptive_pools_match_torch(out: int | tuple[int, int]) -> None:
    torch = pytest.importorskip("torch")
    x = rand((2, 3, 7, 9))
    tx = torch.from_numpy(x).requires_grad_()
    ty = torch.nn.functional.adaptive_avg_pool2d(tx, out)
    close(conv.adaptive_avg_pool_forward(x, out), ty.detach().numpy(), 1e-6)
    ct = rand(tuple(ty.shape))
    ty.backward(torch.from_numpy(ct))
    close(conv.adaptive_avg_pool_backward(ct, x.shape), tx.grad.numpy(), 1e-6)
    ty, ti = torch.nn.functional.adaptive_max_pool2d(tx, out, return_indices=True)
    y, index = conv.adaptive_max_pool_forward(x, out)
    np.testing.assert_array_equal(y, ty.detach().numpy())
    np.testing.assert_array_equal(index, ti.numpy())


@pytest.mark.parametrize("batch", [5, 19])
def test_conv_same_bits_for_any_number_of_threads_and_none_left_over(
    mode: str, batch: int
) -> None:
    x, w = rand((batch, 8, 12, 12)), rand((8, 8, 3, 3))
    ct = rand((batch, 8, 12, 12))
    before, sums = threads.get_num_threads(), []
    try:
        for n in (1, 1, 2, 2, 3, 3):
            threads.set_num_threads(n)
            y = conv.conv_forward(x, w, 1, 1)
            sums.append((y, conv.conv_grad_weight(ct, x, w.shape, 1, 1)))
    finally:
        threads.set_num_threads(before)
    for first, again in zip(sums[::2], sums[1::2], strict=True):
        np.testing.assert_array_equal(first[0], sums[0][0])
        np.testing.assert_array_equal(first[1], again[1])
        np.testing.assert_array_equal(first[1], sums[0][1])


def test_conv_takes_nothing_from_a_used_workspace(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A workspace full of nan: borders are cleared, also behind rows that end inside a vector."""
    if mode == "numpy":
        pytest.skip("the generated kernels' workspace")

    def spoiled(nbytes: int) -> np.ndarray:
        return np.full(-(-nbytes // 4), np.nan, np.float32).view(np.uint8)

    for xs, ws, *args in CASES:
        x, w = rand(xs), rand(ws)
        ct = rand(conv.conv_forward(x, w, *args).shape)
        clean = [conv.conv_forward(x, w, *args), conv.conv_grad_input(ct, w, xs, *args),
                 conv.conv_grad_weight(ct, x, ws, *args)]
        with monkeypatch.context() as patch:
            patch.setattr(conv_run, "workspace", spoiled)
            patch.setattr(conv_run, "release", lambda buffer: None)
            again = [conv.conv_forward(x, w, *args), conv.conv_grad_input(ct, w, xs, *args),
                     conv.conv_grad_weight(ct, x, ws, *args)]
        for one, two in zip(clean, again, strict=True):
            np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_conv_stays_inside_its_workspace(
    mode: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workspace ends in a guard that no shape may touch."""
    if mode == "numpy":
        pytest.skip("the generated kernels' workspace")
    guards = guard_workspace(monkeypatch, conv_run)
    for xs, ws, *args in CASES:
        x, w = rand(xs, dtype), rand(ws, dtype)
        ct = rand(conv.conv_forward(x, w, *args).shape, dtype)
        conv.conv_grad_input(ct, w, xs, *args)
        conv.conv_grad_weight(ct, x, ws, *args)
        assert all((g == 0xA5).all() for g in guards)
        guards.clear()


def test_conv_reads_nothing_beyond_its_operands(mode: str) -> None:
    """Operands surrounded by nan: no neighbouring element may enter a result."""
    for xs, ws, *args in CASES:
        whole = np.full((*xs[:-1], xs[-1] + 9), np.nan, "float32")
        x = whole[..., 4 : 4 + xs[-1]]
        x[...] = rand(xs)
        w = rand(ws)
        y = conv.conv_forward(x, w, *args)
        assert np.isfinite(y).all()
        assert np.isfinite(conv.conv_grad_weight(np.ones_like(y), x, ws, *args)).all()
