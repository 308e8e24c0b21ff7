"""Small arrays picked and added to at places, by machine code and as NumPy does it."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers_kernels import leaks_nothing

import adjoint as ad
from adjoint.kernels import llvm, places

pytestmark = pytest.mark.skipif(not llvm.available(), reason="nothing is generated")
RNG = np.random.default_rng(0)
DTYPES = [np.dtype(t) for t in ("f4", "f8", "i8", "i1", "c16", "f2")]


def some(shape: tuple[int, ...], dtype: Any) -> Any:
    return RNG.integers(0, 100, shape).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("shape", "dim", "index"), [
    ((5,), 0, (3,)), ((3, 4), 0, ()), ((3, 4), 1, (2, 2)), ((2, 3, 4), 1, (5,)), ((1, 1), 0, (1,))])
def test_picked_rows_are_those_of_take(shape: Any, dim: int, index: Any, dtype: Any) -> None:
    x, n = some(shape, dtype), shape[dim]
    at = np.asarray(RNG.integers(-n, n, index))
    pick = places.function("pick")
    got, want = pick(x, at, dim, x.itemsize, 0, 1), x.take(at, dim)
    assert got.dtype == want.dtype and got.tobytes() == want.tobytes() and got.shape == want.shape
    assert (pick(x, at, dim, x.itemsize, 0, 0) is None) == bool((at < 0).any())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("shape", "dim", "count"), [
    ((5,), 0, 7), ((3, 4), 0, 2), ((3, 4), 1, 6), ((2, 3, 4), 1, 1)])
def test_picked_along_an_axis(shape: Any, dim: int, count: int, dtype: Any) -> None:
    x = some(shape, dtype)
    at = RNG.integers(0, shape[dim], (*shape[:dim], count, *shape[dim + 1:]))
    got = places.function("pick")(x, at, dim, x.itemsize, 1, 0)
    want = np.take_along_axis(x, at, dim)
    assert got.tobytes() == want.tobytes() and got.shape == want.shape


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_added_in_order_to_what_is_there(dtype: Any) -> None:
    add = places.function("add")
    out, at = RNG.standard_normal((2, 3, 4)).astype(dtype), np.array([2, 0, -1, 2, 2])
    values = RNG.standard_normal((2, 5, 4)).astype(dtype)
    want = out.copy()
    np.add.at(want, (slice(None), at), values)
    assert add(out, at, values, 1, out.itemsize, 0, 1) is out and out.tobytes() == want.tobytes()
    places_ = RNG.integers(0, 3, (2, 5, 4))
    for a, j, c in np.ndindex(2, 5, 4):
        want[a, places_[a, j, c], c] += values[a, j, c]
    assert add(out, places_, values, 1, out.itemsize, 1, 0) is out
    assert out.tobytes() == want.tobytes()


def test_positions_on_several_axes() -> None:
    locate = places.function("locate")
    a, b = np.array([[1, -2], [0, 1]]), np.array([[6, 0], [-7, -1]])
    assert locate(a, 2, b, 7).tolist() == [[13, 0], [0, 13]]
    assert locate(a, 1, b, 7) is None and locate(a, 2, b[0], 7) is None
    assert locate(a, 2, b.astype(np.int32), 7) is None and locate(a, 2, b.T, 7) is None


def test_what_is_refused_leaves_everything_as_it_was() -> None:
    pick, add = places.function("pick"), places.function("add")
    x, at = np.ones((3, 4)), np.array([0, 3])
    assert pick(x, at, 0, 8, 0, 1) is None                       # out of range
    assert pick(x.T, at, 0, 8, 0, 1) is None                     # strided
    assert pick(x, at.astype(np.int32), 0, 8, 0, 1) is None
    assert pick(x, np.zeros((0,), np.int64), 0, 8, 0, 1) is None
    assert pick(x, at, 2, 8, 0, 1) is None and pick(x, at, -1, 8, 0, 1) is None
    assert pick(x, np.zeros((2, 3), np.int64), 0, 8, 1, 0) is None       # axes differ
    assert pick(np.ones((1 << 14, 2)), np.arange(1 << 14), 0, 8, 0, 0) is None      # large
    assert pick(x, at) is None and pick([1.0], at, 0, 8, 0, 0) is None
    assert add(x, at, np.ones((2, 4)), 0, 8, 0, 0, 0) is None
    assert add(x, np.array([0]), np.ones((2, 4)), 0, 8, 0, 0, 0) is None
    assert add(x, np.array([0, 1]), np.ones((2, 4), np.float32), 0, 8, 0, 0, 0) is None
    assert add(x, np.array([0, 1, 2]), x, 0, 8, 0, 0, 0) is None            # one memory
    assert add(x[:2], np.array([0, 1]), x[1:], 0, 8, 0, 0, 0) is None
    fixed = np.ones((3, 4))
    fixed.flags.writeable = False
    assert add(fixed, np.array([0, 1, 2]), np.ones((3, 4)), 0, 8, 0, 0, 0) is None
    assert (x == 1).all()


def test_a_tensor_is_added_to_itself() -> None:
    x = ad.tensor([[1.0, 2.0], [3.0, 4.0]])
    x.index_add_(0, ad.tensor([1, 1]), x)
    assert x.tolist() == [[1.0, 2.0], [7.0, 10.0]]
    x.scatter_add_(0, ad.tensor([[1, 0], [1, 1]]), x)
    assert x.tolist() == [[1.0, 4.0], [15.0, 20.0]]


def test_nothing_leaks() -> None:
    pick, add, locate = (places.function(n) for n in ("pick", "add", "locate"))
    x, at, bad = np.ones((3, 4)), np.array([0, 1]), np.array([0, 9])

    def work() -> None:
        for _ in range(200):
            pick(x, at, 0, 8, 0, 0)
            pick(x, bad, 0, 8, 0, 0)
            add(x, at, x[:2], 0, 8, 0, 0, 0)
            locate(at, 3, at, 4)
            locate(at, 3, bad, 4)
    work()
    leaks_nothing(work, (x, at, bad, x.dtype, at.dtype, None), 20)
