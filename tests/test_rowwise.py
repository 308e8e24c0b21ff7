"""Rows of small arrays (`kernels/rowwise.py`): the bits of the NumPy calls that they stand for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers_kernels import leaks_nothing

import adjoint as ad
from adjoint.kernels import rowwise
from adjoint.ops import cross_entropy, moments, norm, softmax

ADD: Any = np.add
F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
SHAPES = [(1,), (8,), (4, 8), (3, 1), (2, 3, 5), (5, 127), (64, 64), (1, 500), (7, 33), (65, 2)]
pytestmark = pytest.mark.skipif(not rowwise._machine()[0], reason="no generated code here")


def soft(x: Any, _: Any) -> Any:
    """Softmax."""
    return softmax._soft_along(x, None, -1, False)


def log_soft(x: Any, _: Any) -> Any:
    """Its logarithm."""
    return softmax._soft_along(x, None, -1, True)


def normed(x: Any, w: Any, b: Any, width: Any) -> Any:
    """Layer norm: three results."""
    return norm._normed(x, w, b, width, 1e-5)


def spread(x: Any, width: Any) -> Any:
    """Variance."""
    return moments._row_var(x, width, 1)


def smallest(x: Any, y: Any, r: Any, _: Any) -> Any:
    """Two matrices and a number for each row; minima and products."""
    return np.minimum.reduce(x * y - r, -1, None, None, True), np.multiply.reduce(x, -1, None, None,
                                                                                True) * r


CASES = [(soft, "matrix", "matrix"), (log_soft, "matrix", "matrix"),
         (normed, "matrix vector vector", "matrix kept kept"),
         (normed, "matrix none vector", "matrix kept kept"), (spread, "matrix", "kept"),
         (norm._pulled, "matrix matrix kept kept vector", "matrix matrix"),
         (cross_entropy._lse, "matrix", "kept"), (smallest, "matrix matrix kept", "kept kept")]


class Otherwise:
    """The body on arrays, and how often it ran."""

    def __init__(self, body: Callable[..., Any], names: str) -> None:
        self.body, self.names, self.calls = body, names.split(), 0

    def __call__(self, *arrays: Any) -> Any:
        self.calls += 1
        given = iter(arrays)
        operands = [None if n == "none" else next(given) for n in self.names]
        width = arrays[0].dtype.type(arrays[0].shape[-1])
        with np.errstate(all="ignore"):
            return self.body(*operands, width)


def operands(names: str, shape: tuple[int, ...], dtype: Any, odd: bool) -> list[Any]:
    """Arrays of the forms, with numbers out of the ordinary."""
    rng = np.random.default_rng(1)
    sizes = {"matrix": shape, "vector": shape[-1:], "kept": (*shape[:-1], 1)}
    arrays = [rng.standard_normal(sizes[n]).astype(dtype) * 3 for n in names.split() if n in sizes]
    if odd:
        flat = arrays[0].reshape(-1)
        for i, number in enumerate((np.inf, -0.0, np.nan, -np.inf, 1e-42)):
            flat[(i * 7) % flat.size] = number
    return arrays


@pytest.mark.parametrize("odd", [False, True], ids=["ordinary", "odd"])
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("body, names, results", CASES, ids=lambda c: getattr(c, "__name__", ""))
def test_bits_are_those_of_numpy(body: Any, names: str, results: str, dtype: Any,
                                 odd: bool) -> None:
    """Every shape, inf, nan, -0 and subnormal numbers; many rows go to NumPy."""
    otherwise = Otherwise(body, names)
    f = rowwise.function(body, names, results, dtype, otherwise)
    for shape in SHAPES:
        arrays = operands(names, shape, dtype, odd)
        before = otherwise.calls
        got = f(*arrays)
        if shape[-1] < 256:                 # (there is room for six rows of float64)
            assert otherwise.calls - before == (shape[0] > rowwise.at.MOST_ROWS)
        want = otherwise(*arrays)
        for g, w in zip(*[r if type(r) is tuple else (r,) for r in (got, want)], strict=True):
            assert g.shape == w.shape and g.dtype == w.dtype
            assert g.tobytes() == w.tobytes(), (shape, g, w)


def test_forms_of_results() -> None:
    """A number for each row: with a last axis, without it, as a vector."""
    for form, shape in (("kept", (2, 3, 1)), ("lead", (2, 3)), ("flat", (6,))):
        f = rowwise.function(spread, "matrix", form, F32, Otherwise(spread, "matrix"))
        got = f(np.arange(24, dtype=F32).reshape(2, 3, 4))
        assert got.shape == shape and got.flags.c_contiguous and got.base is None
        assert np.allclose(got, 5 / 3)
    f = rowwise.function(spread, "matrix", "lead", F64, Otherwise(spread, "matrix"))
    assert f(np.arange(4.0)).shape == ()


def test_what_does_not_qualify_goes_to_numpy() -> None:
    """Another dtype, order, number of operands or elements; shapes that do not go together."""
    otherwise = Otherwise(normed, "matrix vector vector")
    f = rowwise.function(normed, "matrix vector vector", "matrix kept kept", F32, otherwise)
    x, v = np.ones((4, 8), F32), np.ones(8, F32)
    f(x, v, v)
    assert otherwise.calls == 0
    for i, arrays in enumerate([(x.astype(F64), v, v), (np.asfortranarray(x), v, v),
                                (np.ones((8, 4), F32).T, v, v), (x, v, np.ones(1, F32)),
                                (np.ones((600, 8), F32), v, v), (x[:0], v, v)]):
        f(*arrays)
        assert otherwise.calls == i + 1
    with pytest.raises(ValueError, match="broadcast"):
        f(x, v, np.ones(7, F32))
    with pytest.raises(StopIteration):
        f(x, v)


def test_nothing_leaks() -> None:
    """Arrays and shared references, where NumPy runs as well as where the program does."""
    otherwise = Otherwise(normed, "matrix vector vector")
    f = rowwise.function(normed, "matrix vector vector", "matrix flat flat", F32, otherwise)
    x, v, wrong = np.ones((4, 8), F32), np.ones(8, F32), np.ones(7, F32)

    def work() -> None:
        for _ in range(200):
            f(x, v, v)
            with pytest.raises(ValueError):
                f(x, v, wrong)
    work()
    leaks_nothing(work, [None, x, v, F32, np.ndarray], 60)


@pytest.mark.parametrize("dtype", [ad.float32, ad.float64], ids=str)
def test_ops_do_not_depend_on_it(dtype: Any) -> None:
    """Softmax, layer norm, variance and norm of few rows are those of many: the first rows of a
    matrix that is too large."""
    x = ad.randn(80, 16, dtype=dtype)
    for call in (lambda t: ad.softmax(t, -1), lambda t: ad.log_softmax(t, -1),
                 lambda t: ad.nn.functional.layer_norm(t, (16,)), lambda t: t.var(1),
                 lambda t: ad.linalg.vector_norm(t, dim=1)):
        many, few = call(x), call(x[:4].clone())
        assert np.array_equal(many[:4].numpy(), few.numpy())


@pytest.mark.parametrize(("shape", "served"), [((64, 10), True), ((16, 8), True), ((4, 8), False)])
def test_log_sum_exp_of_small_batches_is_one_kernel(
        shape: tuple[int, ...], served: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits of a small batch: one call of the kernel over rows, where NumPy makes eight."""
    from adjoint.ops import accelerate
    asked = []
    find = accelerate.generated
    monkeypatch.setattr(accelerate, "generated", lambda n: (asked.append(n), find(n))[1])
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    got = ad.logsumexp(ad.tensor(x), -1).numpy()
    assert (asked == ["logsumexp"]) == served
    want = np.log(np.exp(x.astype(np.float64)).sum(-1))
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
