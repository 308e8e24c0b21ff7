"""Indexing, assignment, gather, scatter (F15-F48) like PyTorch: values and two derivatives."""
import numpy as np
import pytest
from helpers_ops import Cases, R, compare, ints

pytest.importorskip("torch")
case = Cases()

X, AT, MASK = R(3, 4, 5), ints(3, 2, 2), np.array([[1, 0, 1, 1], [0, 0, 1, 0], [1, 1, 0, 0]], bool)
READS = {
    "int": lambda T, F, x: x[1], "slice": lambda T, F, x: x[:, 1:3],
    "mixed": lambda T, F, x: x[..., None, ::2], "bool": lambda T, F, x: x[True],
    "lists": lambda T, F, x: x[[0, 2], :, [1, 1]], "negative": lambda T, F, x: x[[0, -1]],
}
for name, form in READS.items():
    case(name, form, X)
ARRAYS = {
    "rows": lambda T, F, x, i: x[i], "columns": lambda T, F, x, i: x[:, i],
    "apart": lambda T, F, x, i: x[i, :, i], "int then array": lambda T, F, x, i: x[1, :, i],
    "array int array": lambda T, F, x, i: x[i, 0, i], "two": lambda T, F, x, i: x[i, i],
    "inner two": lambda T, F, x, i: x[:, i, i - 1], "none": lambda T, F, x, i: x[None, i, ..., 1:3],
    "take": lambda T, F, x, i: T.take(x, i),
}
for name, form in ARRAYS.items():
    case(name, form, X, AT)
case("mask", lambda T, F, x, k: x[k], X, MASK)
case("mask and int", lambda T, F, x, k: x[k, 1], X, MASK)


def put(index):
    def form(T, F, x, v, *rest):
        y = x * 1
        y[index(*rest)] = v
        return y
    return form


case("set int", put(lambda: 1), X, R(4, 5))
case("set slice", put(lambda: (slice(None), slice(1, 3))), X, R(3, 2, 1))
case("set rows", put(lambda i: i), X, R(5), np.array([[0, 1], [2, 0]]))
case("set mask", put(lambda k: k), X, R(5), MASK)
case("set slice and array", put(lambda i: (slice(1, 3), slice(None), i)), X, R(2, 2),
     np.array([[0, 1], [2, 3]]))
case("set number by mask", put(lambda k: k), R(3, 4), R(), MASK)
case("gather", lambda T, F, x, i: T.gather(x, 1, i), R(3, 4), ints(4, 2, 5))
case("scatter", lambda T, F, x, s, i: T.scatter(x, 1, i, s), R(2, 4), R(2, 3),
     np.array([[0, 1, 2], [3, 2, 1]]))
case("scatter_add", lambda T, F, x, s, i: T.scatter_add(x, 1, i, s), R(2, 4), R(2, 3),
     np.array([[0, 0, 2], [3, 3, 1]]))
case("index_select", lambda T, F, x, i: T.index_select(x, 1, i), X, np.array([0, 0, 3]))
case("index_add", lambda T, F, x, s, i: T.index_add(x, 1, i, s, alpha=2), X, R(3, 3, 5),
     np.array([0, 0, 3]))
case("index_copy", lambda T, F, x, s, i: T.index_copy(x, 1, i, s), X, R(3, 2, 5), np.array([0, 3]))
case("index_fill", lambda T, F, x, i: T.index_fill(x, 1, i, 2.0), X, np.array([0, 3]))
case("take_along_dim", lambda T, F, x, i: T.take_along_dim(x, i, 1), R(3, 4), ints(4, 1, 2))
case("masked_fill", lambda T, F, x, k, v: T.masked_fill(x, k, v.sum()), R(3, 4), MASK, R(2))
case("masked_select", lambda T, F, x, k: T.masked_select(x, k), R(3, 4), MASK)
case("masked_scatter", lambda T, F, x, k, s: T.masked_scatter(x, k, s), R(3, 4), MASK, R(12))
case("nonzero", lambda T, F, k: T.nonzero(k), MASK)
for how in ("sum", "prod", "mean", "amax", "amin"):
    for own in (True, False):
        case(f"scatter_reduce {how} {own}", lambda T, F, x, s, i, h=how, o=own: T.scatter_reduce(
            x, 1, i, s, h, include_self=o), R(2, 4), R(2, 3), np.array([[0, 0, 2], [3, 3, 1]]))
case("scatter_reduce ties", lambda T, F, x, i: T.scatter_reduce(
    x * 0 + 1, 1, i, x[:, :3] * 0 + 1, "amax"), R(2, 4), np.array([[0, 0, 2], [3, 3, 1]]))


@pytest.mark.parametrize("one", case, ids=repr)
def test_like_torch(one):
    compare(one)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("at", [[2, 1, 0, 1, 2, 3, 4, 3, 2], [0, 2, 4, 1, 3], [4, 4, 4, 0], [-1, 0],
                                [3]], ids=str)
def test_gradients_of_runs_of_positions_are_added_in_place(axis, at, monkeypatch):
    from adjoint.ops import index
    ct = np.random.default_rng(0).standard_normal((len(at), 3) if axis == 0 else (3, len(at)))
    shape = (5, 3) if axis == 0 else (3, 5)
    want = np.zeros(shape)
    for i, j in enumerate(at):
        want[(slice(None),) * axis + (j,)] += ct[(slice(None),) * axis + (i,)]
    runs = index._runs(np.array(at))
    assert sum(end - first for first, end, _ in runs) == len(at)
    for least in (0, 1 << 40):
        monkeypatch.setattr(index, "SOME", least)
        got = index._unindex_impl(ct, np.array(at), shape=shape, dims=(axis,))
        np.testing.assert_allclose(got, want, rtol=1e-15)
    assert index._runs(np.random.default_rng(0).integers(0, 99, 99)) is None
