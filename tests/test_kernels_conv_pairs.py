"""Convolutions of bfloat16 that multiply two numbers at a time (issue 3, items 3 and 5)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_kernels_conv import CASES

from adjoint.kernels import conv, conv_few, conv_numpy, conv_pairs, convert, gemm_plan, llvm

HALF = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
RNG = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few channels are paired too, and nothing is widened to float32."""
    if not gemm_plan.usable() or gemm_plan.machine().bits != 512 or (
            "avx512bf16" not in llvm.host_features()):
        pytest.skip("a CPU that does not multiply pairs of bfloat16")
    monkeypatch.setattr(conv_pairs, "_CHANNELS", 1)
    monkeypatch.setattr(conv_few, "supported", lambda *args: False)

    def refused(x: np.ndarray) -> Any:
        raise AssertionError(f"widened: {x.shape}")

    monkeypatch.setattr(convert, "as_float32", refused)


def whole(shape: tuple[int, ...], most: int = 3) -> np.ndarray:
    """Small whole numbers: every sum of their products is exact in float32."""
    return RNG.integers(-most, most + 1, shape).astype(HALF)


PAIRED = [case for case in CASES if case[0][1] != case[5] or case[5] == 1]


@pytest.mark.parametrize("case", PAIRED)
def test_sums_are_exact_and_rounded_once(case: tuple) -> None:
    """Odd channels, odd numbers of images, groups, strides, dilation, one to three dimensions."""
    xs, ws, *args = case
    x, w = whole(xs), whole(ws)
    spec = conv.conv_spec(xs, ws, *args)
    wide = [a.astype("float64") for a in (x, w)]
    want = conv_numpy.forward(*wide, spec)
    bias = whole((ws[0],))
    row = bias.astype("float64").reshape(-1, *(1,) * (len(xs) - 2))
    assert (conv.conv_forward(x, w, *args) == want.astype(HALF)).all()
    assert (conv.conv_forward(x, w, *args, bias=bias) == (want + row).astype(HALF)).all()
    ct = whole(want.shape)
    cx = conv_numpy.grad_input(ct.astype("float64"), wide[1], spec)
    got = conv.conv_grad_input(ct, w, xs, *args)
    assert got.dtype == HALF and (got == cx.astype(HALF)).all()
    cw = conv_numpy.grad_weight(ct.astype("float64"), wide[0], spec)
    got = conv.conv_grad_weight(ct, x, ws, *args)
    assert got.dtype == HALF and (got == cw.astype(HALF)).all()


def test_numbers_of_any_size_stay_within_the_bound() -> None:
    """Half a unit of the result, and float32's error of a sum of so many products."""
    xs, ws = (3, 17, 13, 11), (19, 17, 3, 3)
    x, w = (RNG.standard_normal(s).astype(HALF) for s in (xs, ws))
    spec = conv.conv_spec(xs, ws, 1, 1, 1, 1)
    a, b = x.astype("float64"), w.astype("float64")
    want, most = conv_numpy.forward(a, b, spec), conv_numpy.forward(abs(a), abs(b), spec)
    error = abs(conv.conv_forward(x, w, 1, 1).astype("float64") - want)
    assert (error <= abs(want) * 2.0**-8 + most * spec.depth * 2.0**-24).all()


def test_what_is_odd_has_zeros_beside_it() -> None:
    """The last of an odd number of channels or images meets nothing but zeros: infinities of one
    place stay there, and are no nan."""
    x, w = whole((3, 9, 6, 6)), np.ones((4, 9, 3, 3), HALF)
    x[2, 8, 0, 0] = np.inf
    y = conv.conv_forward(x, w)
    assert np.isinf(y[2, :, 0, 0].astype("float32")).all()
    assert np.isfinite(y.astype("float32")).sum() == y.size - 4
    ct = np.ones(y.shape, HALF)
    cw = conv.conv_grad_weight(ct, x, w.shape).astype("float32")
    assert np.isinf(cw[:, 8, 0, 0]).all() and np.isfinite(cw).sum() == cw.size - 4


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 5, 3), (3, 4, 40_001), (70, 2, 17)])
def test_words_hold_two_rows_side_by_side(shape: tuple[int, int, int]) -> None:
    """Long rows are cut, short ones taken together; strided operands are read in order."""
    x = RNG.integers(0, 2**16, shape, dtype=np.uint16).view(HALF)
    outer, count, inner = shape
    rest = np.zeros((outer, count % 2, inner), np.uint16)
    want = np.concatenate([x.view(np.uint16), rest], 1).reshape(outer, -1, 2, inner)
    for given in (x, np.asfortranarray(x)):
        got = conv_pairs.woven(given, outer, count).view(np.uint32)
        assert (got & 0xFFFF == want[:, :, 0]).all() and (got >> 16 == want[:, :, 1]).all()


def test_few_channels_and_other_types_are_widened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    spec = conv.conv_spec((2, 3, 9, 9), (4, 3, 3, 3), 1, 1, 1, 1)
    more = spec._replace(channels=16)
    assert not conv_pairs.supported(spec, HALF) and conv_pairs.supported(more, HALF)
    assert not conv_pairs.supported(more, np.dtype("float16"))
