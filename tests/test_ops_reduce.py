"""Reductions, cumulative functions, orders (F15-F48) like PyTorch: values and two derivatives."""
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers_ops import Cases, R, compare, ints

import adjoint as ad
from adjoint.kernels import llvm

pytest.importorskip("torch")
case = Cases()

ZEROS = R(3, 4)
ZEROS[0, 1] = ZEROS[1, 1] = ZEROS[1, 2] = 0
X = R(3, 4, 5)
for n in ("sum", "mean", "var", "std", "max", "min", "amax", "amin", "prod", "norm"):
    case(n, lambda T, F, x, n=n: getattr(T, n)(x), R(3, 4))
for n in ("sum", "mean", "var", "std", "amax", "amin", "prod", "logsumexp"):
    case(n + " dim", lambda T, F, x, n=n: getattr(T, n)(x, 1), R(3, 4))
    case(n + " keepdim", lambda T, F, x, n=n: getattr(T, n)(x, dim=0, keepdim=True), R(3, 4))
for n in ("max", "min"):
    case(n + " values", lambda T, F, x, n=n: getattr(T, n)(x, 1)[0], R(3, 4))
    case(n + " indices", lambda T, F, x, n=n: getattr(T, n)(x, 0, True).indices, R(3, 4))
for p in (1, 2, 3, 0.5, float("inf"), 0):
    case(f"norm {p}", lambda T, F, x, p=p: T.norm(x, p, 1), R(3, 4))
case("norm of 0", lambda T, F, x: T.norm(x * 0, 2, 1), R(3, 4), second=False)
case("std of constants", lambda T, F, x: T.std(x * 0 + 1, 1), R(3, 4), second=False)
case("prod with zeros", lambda T, F, x: T.prod(x, 1), ZEROS)
case("cumprod with zeros", lambda T, F, x: T.cumprod(x, 1), ZEROS)
case("var_mean", lambda T, F, x: T.var_mean(x, 1)[0] + T.var_mean(x, 1, correction=0)[1], R(3, 4))
case("nansum", lambda T, F, x: T.nansum(T.where(x > 0.5, float("nan"), x), 1), R(3, 4))
for n in ("cumsum", "cumprod", "logcumsumexp"):
    case(n, lambda T, F, x, n=n: getattr(T, n)(x, 1), X)
for n in ("cummax", "cummin"):
    case(n, lambda T, F, x, n=n: getattr(T, n)(x, 1).values, X)
    case(n + " indices", lambda T, F, x, n=n: getattr(T, n)(x, 1).indices, np.round(X))
for down in (False, True):
    case(f"sort {down}", lambda T, F, x, d=down: T.sort(x, 1, d).values, X)
    case(f"argsort {down}", lambda T, F, x, d=down: T.sort(x, dim=1, descending=d, stable=True)[1],
         np.round(X))
    case(f"topk {down}", lambda T, F, x, d=down: T.topk(x, 2, 1, d).values, X)
    case(f"topk indices {down}", lambda T, F, x, d=down: T.topk(x, 2, largest=d).indices, R(3, 40))
case("kthvalue", lambda T, F, x: T.kthvalue(x, 2, 1)[0], X)
case("median", lambda T, F, x: T.median(x), X)
case("median dim", lambda T, F, x: T.median(x, 1)[0], X)
case("mode", lambda T, F, x: T.mode(x, 1)[0], np.round(X))
case("quantile", lambda T, F, x: T.quantile(x, T.tensor([0.1, 0.5, 0.77], dtype=T.float64), 1), X)
case("diff", lambda T, F, x: T.diff(x, 2, 1), X)
case("trapezoid", lambda T, F, x: T.trapezoid(x, dx=0.1), X)
case("cumulative_trapezoid", lambda T, F, x, y: T.cumulative_trapezoid(x, y), R(3, 4), R(4))
case("histc", lambda T, F, x: T.histc(x.detach(), 5), X)
case("unique", lambda T, F, x: T.unique(x, return_inverse=True)[1], ints(4, 3, 5))
case("unique dim", lambda T, F, x: T.unique(x, dim=1), ints(2, 3, 5))
case("unique_consecutive", lambda T, F, x: T.unique_consecutive(x, return_counts=True)[1],
     ints(2, 12))
case("searchsorted", lambda T, F, x, y: T.searchsorted(T.sort(x, 1)[0], y, right=True),
     ints(5, 3, 6), ints(5, 3, 2))
case("bincount", lambda T, F, x: T.bincount(x, minlength=6), ints(4, 9))


@pytest.mark.parametrize("one", case, ids=repr)
def test_like_torch(one):
    compare(one)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8"])
def test_topk_of_long_rows_takes_the_first_of_equal_ones(largest, dtype):
    """Few of many are sorted; ties, infinities, other axes and rows of one value give what a stable
    sort of everything gives."""
    from adjoint.ops.sort import order
    rng = np.random.default_rng(0)
    x = rng.integers(0, 60, (3, 400, 5)).astype(dtype)
    x[0, :, 1] = 7
    if x.dtype.kind == "f":
        x[1, 5], x[1, 6] = np.inf, -np.inf
    for dim, k in ((1, 1), (1, 4), (1, 6), (0, 1), (2, 1)):
        values, at = ad.tensor(x).topk(k, dim, largest=largest)
        want = np.take(order(x, dim, largest), range(k), axis=dim)
        assert (at.numpy() == want).all()
        assert (values.numpy() == np.take_along_axis(x, want, dim)).all()
    assert ad.zeros(0, 300).topk(2, 1)[0].shape == (0, 2)


@pytest.mark.skipif(not llvm.available(), reason="nothing is generated")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("keepdim", [False, True])
def test_variance_of_all_of_a_small_array(dtype: Any, keepdim: bool,
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs as one row, with the bits of NumPy's mean, and without its preparations."""
    x = np.random.default_rng(0).standard_normal((3, 50)).astype(dtype)
    centred = x - np.mean(x, keepdims=True)
    want = np.sqrt(np.square(centred).sum(keepdims=keepdim) / dtype(x.size - 1))

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("NumPy's way")
    monkeypatch.setattr(np, "mean", refused)
    got = ad.tensor(x).std(keepdim=keepdim)
    assert got.numpy().tobytes() == np.asarray(want).tobytes()
    assert tuple(got.shape) == want.shape


@pytest.mark.parametrize("x", [
    np.array([[3, -1, 3], [7, 3, -1]]), np.array([2**63 - 1, -2**63, 2**63 - 1]),
    np.array([2**64 - 1, 2**64 - 3, 2**64 - 1], np.uint64), np.array([-128, 127, -128], np.int8),
    np.array([250, 3, 250], np.uint8), np.array([True, False, True]), np.array([], np.int32),
    np.array(5), np.array([2.5, -np.inf, 2.5, np.inf], np.float32), np.array([], np.float64)],
    ids=lambda x: f"{x.dtype} {x.shape}")
def test_distinct_elements(x: Any) -> None:
    """Whole numbers near each other are counted, others sorted."""
    values, back, many = ad.unique(ad.tensor(x), return_inverse=True, return_counts=True)
    want = sorted(set(x.ravel().tolist()))
    assert values.tolist() == want and values.numpy().dtype == x.dtype
    assert many.tolist() == [int((x == v).sum()) for v in want]
    assert tuple(back.shape) == x.shape
    assert np.array_equal(values.numpy()[back.numpy()], x)
    assert ad.unique(ad.tensor(x)).tolist() == want


def test_every_nan_is_distinct() -> None:
    values, back, many = ad.unique(ad.tensor([np.nan, 1.0, np.nan, 1.0]), return_inverse=True,
                                   return_counts=True)
    assert repr(values.tolist()) == "[1.0, nan, nan]" and many.tolist() == [2, 1, 1]
    assert back.tolist() == [1, 0, 2, 0]


LONG: dict[str, tuple[Any, Any]] = {
    "sum": (lambda t, d: t.sum(d), lambda x, d: x.sum(d)),
    "mean": (lambda t, d: t.mean(d), lambda x, d: x.mean(d)),
    "var": (lambda t, d: t.var(d), lambda x, d: x.var(d, ddof=1)),
    "std": (lambda t, d: t.std(d), lambda x, d: x.std(d, ddof=1)),
    "logsumexp": (lambda t, d: ad.logsumexp(t, d), lambda x, d: np.log(np.exp(x).sum(d))),
    "norm 1": (lambda t, d: t.norm(1, d), lambda x, d: x.sum(d)),
    "norm 2": (lambda t, d: t.norm(2, d), lambda x, d: np.sqrt((x * x).sum(d))),
    "norm 3": (lambda t, d: t.norm(3, d), lambda x, d: np.cbrt((x ** 3).sum(d))),
    "softmax": (lambda t, d: ad.softmax(t, d)[-1], lambda x, d: np.exp(x[-1]) / np.exp(x).sum(d)),
    "log_softmax": (lambda t, d: ad.log_softmax(t, d)[-1],
                    lambda x, d: x[-1] - np.log(np.exp(x).sum(d))),
}
IN_NUMPY = """
import sys, numpy as np, adjoint as ad
x = np.load(sys.argv[1])
t = ad.from_numpy(x)
found = [t.sum(0), t.mean(0), t.var(0), t.norm(2, 0), t.half().double().mean(0), t.half().mean(0),
         ad.complex(t, t).sum(0).real, t.t().sum(1), t.reshape(2, -1, 2).sum((0, 1)),
         ad.nn.functional.batch_norm(t, None, None, training=True)[:9] + 9]
x = x.astype(np.float64)
h = x.astype(np.float16).astype(np.float64).mean(0)
want = [x.sum(0), x.mean(0), x.var(0, ddof=1), np.sqrt((x * x).sum(0)), h, h.astype(np.float16),
        x.sum(0), x.sum(0), x.reshape(-1, 2).sum(0),
        (x[:9] - x.mean(0)) / np.sqrt(x.var(0) + 1e-5) + 9]
for f, w in zip(found, want):
    assert abs(f.numpy().astype(np.float64) / w - 1).max() < 1e-6, (f, w)
"""


@pytest.mark.parametrize("name", LONG)
def test_long_sums_by_column_keep_single_precision(name: str) -> None:
    """A million rows: a running total in float32 would be off by 1e-5 to 1e-3 of itself."""
    x = np.random.default_rng(5).random((1 << 20, 2), np.float32) + np.float32(3)
    f, reference = LONG[name]
    want = reference(x.astype(np.float64), 0)
    assert abs(f(ad.from_numpy(x), 0).numpy().astype(np.float64) / want - 1).max() < 1e-6
    if "soft" not in name:
        turned = f(ad.from_numpy(x).t(), 1).numpy().astype(np.float64)
        assert abs(turned / want - 1).max() < 1e-6


@pytest.mark.parametrize("axes", ["bct", "tbc"])
def test_norms_and_running_sums_of_many_elements(axes: str) -> None:
    """Statistics of a million elements that no kernel reads as they lie, like PyTorch."""
    import torch
    x = np.random.default_rng(6).random((1, 2, 1 << 20), np.float32) + np.float32(3)
    order = [axes.index(a) for a in "bct"]
    x = np.ascontiguousarray(x.transpose(["bct".index(a) for a in axes])).transpose(order)
    found, want = [], []
    for lib, out in ((ad, found), (torch, want)):
        t = lib.from_numpy(x)
        t = t if lib is ad else t.double()
        f = lib.nn.functional
        mean, var = lib.zeros(2, dtype=t.dtype), lib.ones(2, dtype=t.dtype)
        out += [f.group_norm(t, 1), f.group_norm(t, 2), f.instance_norm(t, mean, var),
                f.batch_norm(t, None, None, training=True), mean, var, t.logcumsumexp(2)]
    for a, b in zip(found, want, strict=True):
        assert abs(a.numpy() - b.numpy()).max() < 2e-6


def test_long_sums_by_column_without_kernels(tmp_path: Path) -> None:
    x = np.random.default_rng(5).random((1 << 20, 2), np.float32) + np.float32(3)
    np.save(tmp_path / "x.npy", x)
    done = subprocess.run([sys.executable, "-c", IN_NUMPY, str(tmp_path / "x.npy")], text=True,
                          env={**os.environ, "ADJOINT_JIT": "0"}, capture_output=True,
                          cwd=Path(__file__).resolve().parents[1])
    assert done.returncode == 0, done.stderr
