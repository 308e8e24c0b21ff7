"""Small arrays picked, written and added to at places, by machine code and as NumPy does it."""
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


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_written_in_order(dtype: Any) -> None:
    """Rows and single elements; the last of several values for one place stays; one for all."""
    put = places.function("put")
    out, at = some((2, 3, 4), dtype), np.array([2, 0, -1, 2, 2])
    values, want, size = some((2, 5, 4), dtype), some((2, 3, 4), dtype), out.itemsize
    want[...] = out
    for j, k in enumerate(at):
        want[:, k] = values[:, j]
    assert put(out, at, values, 1, size, 0, 1) is out and out.tobytes() == want.tobytes()
    along = RNG.integers(0, 3, (2, 5, 4))
    for a, j, c in np.ndindex(2, 5, 4):
        want[a, along[a, j, c], c] = values[a, j, c]
    assert put(out, along, values, 1, size, 1, 0) is out and out.tobytes() == want.tobytes()
    one = np.array(7, dtype)
    want[:, [0, 2]] = one
    assert put(out, np.array([0, 2]), one, 1, size, 0, 0) is out
    np.put_along_axis(want, along[:, :1], one, 1)
    assert put(out, along[:, :1].copy(), one, 1, size, 1, 0) is out
    assert out.tobytes() == want.tobytes()


def test_within() -> None:
    within = places.function("within")
    assert within(np.array([[0, 4], [2, 1]]), 5) is True
    for bad in ([5], [-1], [0, 1, 9], []):
        assert within(np.array(bad, np.int64), 5) is None
    assert within(np.array([0], np.int32), 5) is None and within(np.arange(6)[::2], 9) is None


def test_small_writes_take_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In-place scatter, index_copy, index_fill and p[ids] = v of small tensors leave NumPy's
    functions alone, which prepare longer than they write."""
    from adjoint.ops import index as rules
    x, y, at = ad.zeros(3, 4), ad.zeros(2, 4), ad.tensor([[0, 1], [2, 3]])
    rows, src = ad.tensor([2, 0]), ad.ones(2, 2)

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("NumPy's way")
    monkeypatch.setattr(np, "put_along_axis", refused)
    monkeypatch.setattr(np, "unique", refused)
    monkeypatch.setattr(rules, "_selector", refused)
    y.scatter_(1, at, src)
    y.scatter_(1, ad.tensor([[0], [2]]), 2.0)
    x.index_copy_(0, rows, ad.full((2, 4), 3.0))
    x.index_fill_(0, ad.tensor([-2, 1]), 4.0)
    assert x.tolist() == [[3.0] * 4, [4.0] * 4, [3.0] * 4]
    assert y.tolist() == [[2.0, 1.0, 0.0, 0.0], [0.0, 0.0, 2.0, 1.0]]
    for bad, words in (([[0, 9]], "index 9 is out of bounds"), ([[0, -1]], "index -1 is out")):
        with pytest.raises(RuntimeError, match=words):
            x.scatter_(1, ad.tensor(bad), 1.0)


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
    put = places.function("put")
    assert put(x, at, np.zeros((2, 4)), 0, 8, 0, 0, 0) is None
    assert put(x, np.array([0, 1]), np.zeros((2, 3)), 0, 8, 0, 0, 0) is None
    assert put(x, np.array([0, 1]), np.zeros((2, 4), np.int64), 0, 8, 0, 0, 0) is None
    assert put(x, np.array([0, 1, 2]), x, 0, 8, 0, 0, 0) is None
    assert put(fixed, np.array([0, 1, 2]), np.zeros((3, 4)), 0, 8, 0, 0, 0) is None
    assert (x == 1).all() and (fixed == 1).all()


def test_a_tensor_is_not_added_to_itself_place_by_place() -> None:
    """`scatter_add_` refuses its own target, as in PyTorch; `index_add_` reads it first."""
    x = ad.tensor([[1.0, 2.0], [3.0, 4.0]])
    x.index_add_(0, ad.tensor([1, 1]), x)
    assert x.tolist() == [[1.0, 2.0], [7.0, 10.0]]
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        x.scatter_add_(0, ad.tensor([[1, 0], [1, 1]]), x)
    assert x.tolist() == [[1.0, 2.0], [7.0, 10.0]]


def test_nothing_leaks() -> None:
    pick, add, locate, put, within = (places.function(n) for n in (
        "pick", "add", "locate", "put", "within"))
    x, at, bad = np.ones((3, 4)), np.array([0, 1]), np.array([0, 9])

    def work() -> None:
        for _ in range(200):
            pick(x, at, 0, 8, 0, 0)
            pick(x, bad, 0, 8, 0, 0)
            add(x, at, x[:2], 0, 8, 0, 0, 0)
            put(x, at, x[:2].copy(), 0, 8, 0, 0)
            put(x, bad, x[:2], 0, 8, 0, 0)
            within(at, 2)
            within(bad, 2)
            locate(at, 3, at, 4)
            locate(at, 3, bad, 4)
    work()
    leaks_nothing(work, (x, at, bad, x.dtype, at.dtype, None), 20)


def test_orders_and_triangles_of_small_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """sort and topk read by machine code, and the places of a triangle are made once."""
    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("NumPy's way")
    x = ad.tensor([[3.0, 1.0, 2.0], [5.0, 6.0, 4.0]])
    x.tril()
    for name in ("take_along_axis", "flip", "tri", "tril"):
        monkeypatch.setattr(np, name, refused)
    assert x.sort(1).values.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    assert x.sort(0, descending=True).indices.tolist() == [[1, 1, 1], [0, 0, 0]]
    assert x.topk(2).values.tolist() == [[3.0, 2.0], [6.0, 5.0]]
    assert x.tril().tolist() == [[3.0, 0.0, 0.0], [5.0, 6.0, 0.0]]
