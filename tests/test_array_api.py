"""The array API standard: promotion whatever the shapes, sums' dtypes, no axes, new names."""
import numpy as np
import pytest

import adjoint as ad
from adjoint.interop import array_api as xp


def is_(tensor, dtype, values):
    assert tensor.dtype == dtype
    np.testing.assert_array_equal(tensor.numpy(), values)


def test_an_array_without_axes_counts_in_promotion_as_any_other():
    one, row = xp.asarray(3, dtype=xp.int16), xp.asarray([1, 2], dtype=xp.int8)
    is_(xp.add(row, one), xp.int16, [4, 5])
    is_(xp.maximum(row, xp.asarray(2, dtype=xp.uint8)), xp.int16, [2, 2])
    is_(xp.hypot(xp.asarray([3.0], dtype=xp.float32), xp.asarray(4.0, dtype=xp.float64)),
        xp.float64, [5.0])
    is_(xp.where(xp.asarray([True, False]), row, one), xp.int16, [1, 3])
    assert xp.greater(xp.asarray([1], dtype=xp.uint16), xp.asarray(-4, dtype=xp.int8)).item()


def test_numbers_take_the_dtype_of_the_array_on_either_side():
    row = xp.asarray([1, 2], dtype=xp.int8)
    is_(xp.subtract(2, row), xp.int8, [1, 0])
    is_(xp.minimum(row, 1), xp.int8, [1, 1])
    is_(xp.logical_and(xp.asarray([True, False]), True), xp.bool, [True, False])
    x = xp.asarray([1.0], dtype=xp.float32)
    for name in ("nextafter", "atan2", "logaddexp", "hypot"):
        assert getattr(xp, name)(x, 2).dtype == getattr(xp, name)(2, x).dtype == xp.float32


def test_sums_keep_the_kind_and_take_64_bits():
    small = xp.asarray([200, 100], dtype=xp.uint8)
    is_(xp.sum(small), xp.uint64, 300)
    is_(xp.cumulative_sum(small), xp.uint64, [200, 300])
    is_(xp.prod(small), xp.uint64, 20000)
    is_(xp.prod(xp.asarray(-1, dtype=xp.int8)), xp.int64, -1)
    is_(xp.vecdot(xp.asarray([1, 2], dtype=xp.int8), xp.asarray([3, 4], dtype=xp.int8)),
        xp.int8, 11)


def test_over_no_axis_nothing_is_reduced():
    x = xp.asarray([[1.0, -2.0]], dtype=xp.float64)
    for name, want in (("sum", [[1, -2]]), ("prod", [[1, -2]]), ("mean", [[1, -2]]),
                       ("max", [[1, -2]]), ("var", [[0, 0]]), ("all", [[True, True]]),
                       ("count_nonzero", [[1, 1]])):
        np.testing.assert_array_equal(getattr(xp, name)(x, axis=()).numpy(), want)


def test_casts_that_promotion_allows():
    assert xp.can_cast(xp.int8, xp.int16) and xp.can_cast(xp.float64, xp.complex128)
    assert xp.can_cast(xp.asarray([1.0], dtype=xp.float32), xp.complex64)
    for a, b in ((xp.bool, xp.int8), (xp.int8, xp.float64), (xp.int16, xp.int8),
                 (xp.int8, xp.uint8), (xp.complex64, xp.float64)):
        assert not xp.can_cast(a, b)
    assert xp.result_type(xp.uint8, 1) == xp.uint8


def test_names_of_2025():
    row = xp.asarray([1, 2, 3])
    is_(xp.isin(row, xp.asarray([3, 1])), xp.bool, [True, False, True])
    is_(xp.isin(row, 2, invert=True), xp.bool, [True, False, True])
    assert xp.broadcast_shapes((2, 1), (3,)) == (2, 3)
    turn = xp.asarray([[0.0, -1.0], [1.0, 0.0]])
    assert sorted(v.imag for v in xp.linalg.eigvals(turn).tolist()) == [-1.0, 1.0]
    values, vectors = xp.linalg.eig(turn)
    np.testing.assert_allclose((turn.to(vectors.dtype) @ vectors).numpy(),
                               (vectors * values).numpy(), atol=1e-6)
    is_(xp.round(xp.asarray([1.5 - 0.4j])), xp.complex64, [2.0 - 0.0j])
    is_(xp.clip(xp.asarray([1, 5], dtype=xp.int8), 2, xp.asarray(3)), xp.int8, [2, 3])


def test_it_equals_the_strict_namespace():
    strict = pytest.importorskip("array_api_strict")
    rng = np.random.default_rng(0)
    kinds = "int8 int32 uint8 uint16 float32 float64".split()
    names = "add multiply maximum atan2 less floor_divide pow".split()
    seen = 0
    for name in names:
        for a in kinds:
            for b in kinds:
                x, y = (rng.integers(1, 4, s).astype(k) for s, k in (((3,), a), ((), b)))
                try:
                    want = getattr(strict, name)(strict.asarray(x), strict.asarray(y))
                except TypeError:               # mixed kinds: up to the implementation
                    continue
                got = getattr(xp, name)(ad.tensor(x), ad.tensor(y))
                assert str(got.dtype).split(".")[-1] == str(want.dtype).split(".")[-1]
                np.testing.assert_allclose(got.numpy(), np.asarray(want._array), rtol=1e-6)
                seen += 1
    assert seen > 50
