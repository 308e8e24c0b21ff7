"""Arrays that are large and calls of many parts (F123): the same values and views as of few."""
from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.kernels import threads
from adjoint.ops import fourier, vision

F: Any = ad.nn.functional


@pytest.mark.parametrize("shape", [(300, 200), (2, 100, 97), (1000, 1), (3, 129), (33, 33)])
@pytest.mark.parametrize("diagonal", [-400, -33, -1, 0, 1, 31, 32, 250])
def test_triangles_of_large_matrices(shape: tuple[int, ...], diagonal: int) -> None:
    x = np.arange(1.0, 1 + np.prod(shape), dtype=np.float32).reshape(shape)
    x[..., 0, 0] = np.nan
    for ours, numpys in ((ad.tril, np.tril), (ad.triu, np.triu)):
        for turned in (False, True):
            y = np.swapaxes(x, -1, -2) if turned else x
            np.testing.assert_array_equal(ours(ad.from_numpy(y), diagonal).numpy(),
                                          numpys(y, diagonal))


@pytest.mark.parametrize("ends", [(3.0, 0.1), (-8.0, 1.0), (-9.39459250356487, 10.0), (0.0, 1.0)])
def test_linspace_rounds_products_once(ends: tuple[float, float]) -> None:
    """Each value is end + count * step, rounded once (of 5000, 2% were rounded twice and one to
    eight of them differed from PyTorch's), the step rounded."""
    first, last = ends
    made = ad.linspace(first, last, 5000, dtype=ad.float64).tolist()
    step = (last - first) / 4999
    for i in range(0, 2500, 7):
        assert made[i] == float(Fraction(first) + i * Fraction(step)), i
        assert made[4999 - i] == float(Fraction(last) - i * Fraction(step)), i


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
def test_a_thousand_views_of_one_call(requires_grad: bool, dim: int) -> None:
    """They show the memory, count writes with their base and refuse writes with PyTorch's words."""
    x = ad.arange(3000.0).reshape(1000, 3)
    x = (x if dim == 0 else x.t()).detach().requires_grad_(requires_grad)
    for parts in (x.unbind(dim), x.split(1, dim)):
        assert len(parts) == 1000
        assert all(p._base is x for p in parts)
        assert {p.data_ptr() - x.data_ptr() for p in parts} == {12 * i for i in range(1000)}
        np.testing.assert_array_equal(np.stack([p.detach().numpy().reshape(-1) for p in parts]),
                                      np.arange(3000.0).reshape(1000, 3))
        before = x._version
        with ad.no_grad():
            x.add_(0)
        assert parts[-1]._version == x._version == before + 1
        if requires_grad:
            with pytest.raises(RuntimeError, match="returns multiple views"):
                parts[7].mul_(2)


def test_views_of_views_and_those_that_have_died() -> None:
    x = ad.arange(600.0).reshape(200, 3).clone()
    for _ in range(50):
        rows = x[1:].unbind()
    assert all(r._base is x for r in rows)
    assert len(x._kids) < 50 * 199          # (weak references; the dead ones go at times)
    x.requires_grad_()
    y = x * 1
    kept = y[1:].unbind()
    ad.stack(kept).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[0.0] * 3, *[[1.0] * 3] * 199]
    y.mul_(2)                               # in PyTorch, too, views of one call are outdated then
    assert all(k._version == y._version for k in kept)
    with pytest.raises(RuntimeError, match="another view of its base has been modified inplace"):
        kept[5].sum()


def test_joins_of_a_thousand() -> None:
    xs = [ad.full((2,), float(i), requires_grad=i % 3 == 0) for i in range(1000)]
    joined, stacked = ad.cat(xs), ad.stack(xs)
    assert stacked.tolist() == [[float(i)] * 2 for i in range(1000)]
    assert joined.tolist() == stacked.reshape(-1).tolist()
    (joined * ad.arange(2000.0) + stacked.reshape(-1)).sum().backward()
    for i, x in enumerate(xs):
        assert x.grad is None if i % 3 else x.grad.tolist() == [2 * i + 1.0, 2 * i + 2.0]
    with pytest.raises(RuntimeError, match=r"\[3\] at entry 1"):
        ad.stack([ad.zeros(2), ad.zeros(3)])
    assert ad.stack([ad.zeros(0), ad.zeros(0)]).shape == (2, 0)
    assert ad.stack([ad.zeros(2), ad.ones(2, dtype=ad.float64)]).dtype == ad.float64


@pytest.mark.parametrize("norm", ["backward", "ortho"])
@pytest.mark.parametrize("dims", [(2,), (0,), (0, 1), (1, 0), (0, 1, 2)])
def test_parts_of_a_transform_have_the_bits_of_the_whole(
        monkeypatch: pytest.MonkeyPatch, dims: tuple[int, ...], norm: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((6, 20, 15)).astype(np.float32)
    c = (x + 1j * x[::-1]).astype(np.complex64)
    calls = [(ad.fft.fftn, c), (ad.fft.ifftn, c), (ad.fft.rfftn, x), (ad.fft.irfftn, c),
             (ad.fft.fftn, c.T), (ad.fft.rfftn, x.T)]

    def all_of_them() -> list[Any]:
        return [f(ad.from_numpy(a), dim=dims, norm=norm) for f, a in calls]
    whole, parted = all_of_them(), []
    monkeypatch.setattr(fourier, "_SHARED", 1)
    monkeypatch.setattr(fourier, "_PART", 100)
    seen: list[int] = []
    inner = threads.parallel_python

    def counted(f: Any, chunks: int) -> None:
        seen.append(chunks)
        inner(f, chunks)
    monkeypatch.setattr(threads, "parallel_python", counted)
    parted = all_of_them()
    assert len(seen) == len(calls) * len(dims)
    assert max(seen) > 1
    for a, b in zip(whole, parted, strict=True):
        assert a.stride() == b.stride()
        assert a.numpy().tobytes() == b.numpy().tobytes()


def test_multinomial_draws_what_has_no_weight_last() -> None:
    ad.manual_seed(0)
    weights = ad.tensor([[0.2, 0.8, 0.0], [0.0, 0.0, 1.0]])
    for _ in range(20):
        first, second = ad.multinomial(weights, 3).tolist()
        assert first[2] == 2
        assert second[0] == 2
        assert sorted(first) == sorted(second) == [0, 1, 2]
    with pytest.raises(RuntimeError, match="n_sample > prob_dist.size"):
        ad.multinomial(weights, 4)


@pytest.mark.parametrize("dims", [2, 3])
def test_corners_read_at_once_or_one_by_one(monkeypatch: pytest.MonkeyPatch, dims: int) -> None:
    """The same terms; their sum may be added in another order (four or eight of them)."""
    space = (5, 6, 4)[:dims]
    at = np.random.default_rng(1).uniform(-1.2, 1.2, (2, *space, dims))
    made = []
    for few in (10**9, 0):
        monkeypatch.setattr(vision, "_FEW", few)
        x = ad.tensor(np.random.default_rng(2).standard_normal((2, 3, *space)), requires_grad=True)
        grid = ad.tensor(at, requires_grad=True)
        out = F.grid_sample(x, grid, align_corners=False)
        made.append([out.detach(), *ad.autograd.grad(out.sin().sum(), (x, grid))])
    for a, b in zip(*made, strict=True):
        assert (a - b).abs().max().item() <= 64 * 2.0**-52 * b.abs().max().item()
    assert F.grid_sample(ad.zeros(0, 2, 4, 4), ad.zeros(0, 3, 3, 2), align_corners=True
                         ).shape == (0, 2, 3, 3)


def test_running_maxima_of_small_arrays() -> None:
    x = np.random.default_rng(0).integers(0, 9, (12, 16)).astype(np.float32)
    for dim in (0, 1):
        values, at = ad.cummax(ad.from_numpy(x), dim)
        np.testing.assert_array_equal(values.numpy(), np.maximum.accumulate(x, dim))
        np.testing.assert_array_equal(np.take_along_axis(x, at.numpy(), dim), values.numpy())
        later = np.arange(x.shape[dim]).reshape((-1, 1) if dim == 0 else (1, -1))
        newest = np.where(x == values.numpy(), later, 0)      # of equal ones the last
        np.testing.assert_array_equal(at.numpy(), np.maximum.accumulate(newest, dim))
