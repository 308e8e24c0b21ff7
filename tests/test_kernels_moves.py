"""Kernels that move elements: along an axis, into C order, into another dtype."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.base.errors import ArgumentError
from adjoint.kernels import along, convert, llvm, moves, scan

pytestmark = pytest.mark.skipif(not llvm.available(), reason="needs llvmlite")
DTYPES = [np.int8, np.float16, np.float32, np.float64, np.int64, np.complex64]


def draw(shape: Any, dtype: Any) -> Any:
    return (np.random.default_rng(0).standard_normal(shape) * 50).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "dim", "places"), [
    ((20, 30), 1, 13), ((20, 30), 0, 45), ((4, 300, 7), 1, 50), ((5, 6, 301), 2, 9),
    ((2, 9, 700), 1, 31), ((1, 9, 1), 1, 20)])
def test_along_an_axis(shape: tuple[int, ...], dim: int, places: int, dtype: Any) -> None:
    rng = np.random.default_rng(1)
    full = (*shape[:dim], places, *shape[dim + 1:])
    x, y = draw(shape, dtype), draw(full, dtype)
    vector = rng.integers(0, shape[dim], places)
    where = [slice(None)] * len(shape)
    for index in (rng.integers(0, shape[dim], full), vector):
        each = np.broadcast_to(index if index.ndim > 1 else index.reshape(
            -1, *(1,) * (len(shape) - dim - 1)), full)
        if index.ndim > 1 or dim == len(shape) - 1:
            assert np.array_equal(along.read(x, index, dim), np.take_along_axis(x, each, dim))
        else:
            assert along.read(x, index, dim) is NotImplemented
        for add in (False, True):
            got, want = x.copy(), x.copy()
            if along.write(got, index, y, dim, add=add) is NotImplemented:
                assert add and np.dtype(dtype) not in along._ADDED
                continue
            for j in range(places):             # in their order
                where[dim] = slice(j, j + 1)
                here, value = each[tuple(where)], y[tuple(where)]
                old = np.take_along_axis(want, here, dim)
                np.put_along_axis(want, here, old + value if add else value, dim)
            assert np.array_equal(got, want)


def test_along_an_axis_one_element_goes_everywhere() -> None:
    x, index = np.zeros((3, 9)), np.array([[0, 8], [1, 1], [2, 3]])
    along.write(x, index, np.array(2.0), 1, add=True)
    assert x.sum() == 12 and x[1, 1] == 4 and x[0, 8] == 2


@pytest.mark.parametrize("bad", [-1, 30, 2**62])
def test_a_place_out_of_range_is_refused(bad: int) -> None:
    index = np.zeros((20, 5), np.int64)
    index[7, 4] = bad
    assert along.read(draw((20, 30), np.float32), index, 1) is NotImplemented


@pytest.mark.parametrize("dim", [0, 1])
def test_large_gathers_and_scatters_have_numpys_values_and_gradients(dim: int) -> None:
    rng = np.random.default_rng(2)
    x, index = rng.standard_normal((90, 80)), rng.integers(0, 80, (90, 80))
    a, ct = ad.tensor(x, requires_grad=True), rng.standard_normal((90, 80))
    got = a.gather(dim, ad.tensor(index))
    got.backward(ad.tensor(ct))
    places = (np.arange(90)[:, None], index) if dim else (index, np.arange(80))
    want = np.zeros_like(x)
    np.add.at(want, places, ct)
    assert np.array_equal(got.detach().numpy(), np.take_along_axis(x, index, dim))
    assert a.grad is not None and np.allclose(a.grad.numpy(), want, rtol=1e-13, atol=1e-13)
    added = ad.tensor(x).scatter_add(dim, ad.tensor(index), ad.tensor(ct))
    assert np.allclose(added.numpy(), x + want, rtol=1e-13, atol=1e-13)
    rows = ad.tensor(x).index_add(dim, ad.tensor(index[0]), ad.tensor(ct[:80] if not dim else ct))
    want = x.copy()
    np.add.at(want, (slice(None), index[0]) if dim else index[0], ct if dim else ct[:80])
    assert np.allclose(rows.numpy(), want, rtol=1e-13, atol=1e-13)
    with pytest.raises(ArgumentError, match="index 99 is out of bounds"):
        ad.tensor(x).gather(dim, ad.tensor(np.full((90, 80), 99)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "order"), [
    ((37, 53), (1, 0)), ((4, 5, 33, 17), (0, 2, 3, 1)), ((3, 40, 19, 6), (0, 3, 1, 2)),
    ((17, 16, 18), (2, 1, 0)), ((5, 4, 3, 2, 9, 8), (5, 4, 3, 2, 1, 0)), ((130, 70), (1, 0))])
def test_copies_in_c_order(shape: tuple[int, ...], order: tuple[int, ...], dtype: Any) -> None:
    x, done = draw(shape, dtype), 0
    t = x.transpose(order)
    for view in (t, x[..., ::-1], np.flip(x), t[::-1], x[:, 1:].transpose(order),
                 x[..., 1:].transpose(order), np.broadcast_to(t, (2, *t.shape))):
        got = moves.contiguous(view)
        if got is not NotImplemented:
            done += 1
            assert got.flags.c_contiguous and np.array_equal(got, view)
    assert done
    assert moves.contiguous(np.broadcast_to(x[..., :1], x.shape)) is NotImplemented


def test_to_other_dtypes_as_numpy_does() -> None:
    bits = np.arange(0, 2**32, 65521, dtype=np.uint32)
    x = np.concatenate([bits.view(np.float32), np.float32([65519, 65520, 1e-8, np.inf, -np.inf])])
    half = np.dtype(np.float16)
    with np.errstate(all="ignore"):
        want = x.astype(half)
    assert np.array_equal(convert.convert(x, half), want, equal_nan=True)
    assert np.array_equal(convert.convert(want, x.dtype), want.astype(np.float32), equal_nan=True)
    u = np.arange(256, dtype=np.uint8)
    assert np.array_equal(convert.convert(u, x.dtype), u.astype(np.float32))
    assert convert.convert(x, np.dtype(np.int32)) is NotImplemented
    low = pytest.importorskip("ml_dtypes").bfloat16
    with np.errstate(all="ignore"):
        want = x.astype(low)
    got = convert.convert(x, np.dtype(low))
    assert np.array_equal(got.astype(np.float32), want.astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_half_widths_are_computed_in_float32_and_rounded_once(kind: str) -> None:
    if kind == "bfloat16":
        pytest.importorskip("ml_dtypes")
    dtype = getattr(ad, kind)
    x, y = (ad.tensor(draw((33, 65), np.float32) / 30).to(dtype) for _ in range(2))
    for f in (lambda a, b: a * b + b, lambda a, b: ad.exp(a), lambda a, b: ad.nn.functional.gelu(b),
              lambda a, b: ad.where(a > 0, a, b)):
        got, wide = f(x, y), f(x.float(), y.float())
        assert got.dtype == dtype
        few = f(x[:2, :9], y[:2, :9])           # below every limit: NumPy
        assert ad.allclose(got[:2, :9].float(), few.float(), rtol=2**-7, atol=1e-6)
        assert ad.allclose(got.float(), wide, rtol=2**-7, atol=1e-2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("shape", "dim"), [
    ((37, 53), 1), ((37, 53), 0), ((4, 5, 33, 17), 2), ((3, 1), 0), ((200, 3), 0), ((3, 700), 0)])
def test_running_values(shape: tuple[int, ...], dim: int, dtype: Any) -> None:
    """Ties count for the last of equal ones; from a nan on all is nan, at the last nan."""
    x = np.round(np.random.default_rng(3).standard_normal(shape) * 3).astype(dtype)
    for nan in (False, True):
        if nan:
            x.reshape(-1)[x.size // 2] = np.nan
        assert np.array_equal(scan.cumsum(x, dim), np.cumsum(x, dim), equal_nan=True)
        y = (x / 2).astype(dtype)
        want = np.cumprod(y.astype(np.float64), dim).astype(dtype)
        assert np.allclose(scan.cumprod(y, dim), want, equal_nan=True, rtol=1e-6)
        for name, f in (("cummax", np.maximum), ("cummin", np.minimum)):
            values, at = getattr(scan, name)(x, dim)
            assert np.array_equal(values, f.accumulate(x, dim), equal_nan=True)
            same = np.take_along_axis(x, at, dim)
            assert np.array_equal(same, values, equal_nan=True)
            places = np.arange(shape[dim]).reshape(-1, *(1,) * (len(shape) - dim - 1))
            hit = (x == values) | np.isnan(x)
            assert np.array_equal(at, np.maximum.accumulate(np.where(hit, places, -1), dim))


@pytest.mark.parametrize("dtype", DTYPES)
def test_where_moves_every_kind_of_number(dtype: Any) -> None:
    x, y = draw((70, 90), dtype), draw((90,), dtype)
    if np.dtype(dtype).kind == "i":
        x[0, :2] = np.iinfo(dtype).min, np.iinfo(dtype).max      # a nan among the floats
    c = np.random.default_rng(4).random((70, 90)) > 0.5
    got = ad.where(ad.tensor(c), ad.tensor(x), ad.tensor(y))
    assert np.array_equal(got.numpy(), np.where(c, x, y))
    t = ad.tensor(x)
    want = np.where(c, np.asarray(3).astype(dtype), x)
    assert np.array_equal(t.masked_fill(ad.tensor(c), 3).numpy(), want)
    t.masked_fill_(ad.tensor(c), 3)
    assert np.array_equal(t.numpy(), want)


@pytest.mark.parametrize(("shape", "dim"), [((50, 16), 0), ((9, 200), 0), ((4, 30, 20), 1)])
@pytest.mark.parametrize("count", [1, 5, 700])
def test_an_index_expanded_over_rows_gives_the_bits_of_a_written_one(
        shape: tuple[int, ...], dim: int, count: int) -> None:
    rng = np.random.default_rng(count)
    x = rng.standard_normal(shape).astype(np.float32)
    at = ad.tensor(rng.integers(0, shape[dim], count))
    long = [count if d == dim else n for d, n in enumerate(shape)]
    new = rng.standard_normal(long).astype(np.float32)
    whole = at.view(*[-1 if d == dim else 1 for d in range(len(shape))]).expand(long)
    found = []
    for index in (whole, whole.contiguous()):
        a, b = ad.tensor(x, requires_grad=True), ad.tensor(new, requires_grad=True)
        read, written = a.gather(dim, index), a.scatter_add(dim, index, b)
        ((read * read).sum() + (written * written).sum()).backward()
        assert a.grad is not None and b.grad is not None
        found.append([t.detach().numpy().tobytes() for t in (read, written, a.grad, b.grad)])
    assert found[0] == found[1]


def test_a_bad_place_of_an_expanded_index_is_refused() -> None:
    index = ad.tensor([3, 50]).view(-1, 1).expand(2, 700)
    with pytest.raises(ArgumentError, match="index 50 is out of bounds"):
        ad.zeros(50, 700).scatter_add(0, index, ad.ones(2, 700))
    with pytest.raises(ArgumentError, match="index 50 is out of bounds"):
        ad.zeros(50, 700).gather(0, index)
