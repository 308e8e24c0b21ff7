"""Weighted sums of a few elements along an axis, and what resampling makes of them."""
from __future__ import annotations

import numpy as np
import pytest

import adjoint as ad
from adjoint.kernels.taps import MOST, taps
from adjoint.ops import resample

pytestmark = pytest.mark.skipif(taps(np.ones(1), np.zeros((1, 1), np.int64), np.ones((1, 1)), 0)
                                is NotImplemented, reason="no generated code")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("shape", "dim"), [((3, 7), 1), ((3, 7, 5), 1), ((2, 3, 40), 2),
                                            ((600, 4, 33), 0), ((5, 1), 0), ((2, 9, 1), 1)])
@pytest.mark.parametrize("count", [1, 2, 4, MOST])
def test_a_sum_of_taps_is_that_of_numpy(dtype, shape, dim, count):
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 10, shape).astype(dtype)           # whole numbers: every sum is exact
    index = rng.integers(0, shape[dim], (count, 37))
    weight = rng.integers(-3, 4, (count, 37)).astype(dtype)
    places = (slice(None),) * dim
    tail = (1,) * (len(shape) - dim - 1)
    want = sum(x[(*places, at)] * w.reshape(-1, *tail) for at, w in zip(index, weight, strict=True))
    np.testing.assert_array_equal(taps(x, index, weight, dim), want)
    across = np.asfortranarray(x)
    np.testing.assert_array_equal(taps(across, index, weight, dim), want)


def test_other_numbers_and_longer_sums_are_left_to_numpy():
    index = np.zeros((MOST + 1, 2), np.int64)
    assert taps(np.ones(3), index, np.ones(index.shape), 0) is NotImplemented
    assert taps(np.ones(3, np.int64), index[:1], np.ones((1, 2), np.int64), 0) is NotImplemented
    assert taps(np.ones(3), index[:1], np.ones((1, 2), np.float32), 0) is NotImplemented


KINDS = [("linear", {"size": 31}, 1), ("linear", {"scale_factor": 3.0}, 1),
         ("bilinear", {"scale_factor": 2.0}, 2), ("bicubic", {"size": (9, 31)}, 2),
         ("bilinear", {"size": (40, 3), "align_corners": True}, 2),
         ("bilinear", {"size": (4, 5), "antialias": True}, 2),
         ("bicubic", {"size": (30, 5), "antialias": True}, 2),
         ("trilinear", {"size": (3, 30, 7)}, 3)]


@pytest.mark.parametrize(("mode", "how", "dims"), KINDS)
def test_resampling_by_taps_is_the_product_with_the_matrix(mode, how, dims, monkeypatch):
    """Forward and backward, and each is the transpose of the other."""
    x = np.random.default_rng(1).standard_normal((2, 3, *(11, 17, 6)[:dims]))

    def both():
        leaf = ad.tensor(x, requires_grad=True)
        y = ad.nn.functional.interpolate(leaf, mode=mode, **how)
        ct = ad.tensor(np.cos(np.arange(y.numel(), dtype=float)).reshape(y.shape))
        y.backward(ct)
        return y.detach().numpy(), leaf.grad.numpy(), ct.numpy()
    monkeypatch.setattr(resample, "MANY", 0)
    made, grad, ct = both()
    monkeypatch.setattr(resample, "MANY", 1 << 60)
    want, wanted, _ = both()
    np.testing.assert_allclose(made, want, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(grad, wanted, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose((made * ct).sum(), (x * grad).sum(), rtol=1e-11, atol=1e-12)


def test_what_is_not_read_does_not_count():
    """A nan spoils the results that read it, not their whole row."""
    x = np.zeros((1, 1, 40, 40), np.float32)
    x[0, 0, 20, 20] = np.nan
    y = ad.nn.functional.interpolate(ad.tensor(x), scale_factor=2, mode="bilinear").numpy()
    assert np.isnan(y).sum() == 16
