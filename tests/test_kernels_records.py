"""Every record with a kernel against its NumPy implementation: sizes, strides, alignments, dtypes,
nan and infinities, no elements at all; and the same bits every time.
"""
from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adjoint as ad  # noqa: F401 - puts the kernels behind the records
import adjoint.nn  # noqa: F401
from adjoint.kernels import llvm
from adjoint.kernels.dropout_numpy import drawn_mask
from adjoint.kernels.stream import Stream
from adjoint.ops import accelerate, ctc
from adjoint.ops.accelerate import ACCELERATED

pytestmark = pytest.mark.skipif(not llvm.available(), reason="needs llvmlite")
Sample = tuple[list[Any], dict[str, Any]]
SHAPES = [(67, 129), (1, 4099), (4099, 1), (130, 64), (33, 1000)]
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "contiguous": lambda a: a,
    "transposed": lambda a: np.ascontiguousarray(a.T).T if a.ndim else a,
    "every second": lambda a: np.repeat(a, 2, axis=-1)[..., ::2] if a.ndim else a,
    "backwards": lambda a: a[::-1].copy()[::-1] if a.ndim else a,
    "odd offset": lambda a: np.concatenate([a.ravel()[:1], a.ravel()])[1:].reshape(a.shape),
    "unaligned": lambda a: np.frombuffer(b"x" + a.tobytes(), np.uint8)[1:].view(a.dtype).reshape(
        a.shape),
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
}
RTOL = {"float32": 3e-5, "float64": 1e-12, "float16": 4e-3}


class Draw:
    """Arrays of one dtype."""

    def __init__(self, dtype: str, seed: int = 0) -> None:
        self.rng, self.dtype = np.random.default_rng(seed), np.dtype(dtype)

    def __call__(self, *shape: int) -> Any:
        return self.rng.standard_normal(shape).astype(self.dtype)


def slow(name: str, *args: Any, **attrs: Any) -> Any:
    """The NumPy implementation of a record."""
    return ACCELERATED[name].impl.__wrapped__(*args, **attrs)


def whole(d: Draw, r: int, c: int) -> Sample:
    return [d(r, c)], {"dim": (0, 1), "keepdim": False}


def reduction(d: Draw, r: int, c: int) -> Sample:
    return [d(r, c)], {"dim": (1,), "keepdim": False}


def softmax(d: Draw, r: int, c: int) -> Sample:
    return [d(r, c)], {"dim": 1}


def pulled(name: str) -> Callable[[Draw, int, int], Sample]:
    def build(d: Draw, r: int, c: int) -> Sample:
        return [d(r, c), slow(name, d(r, c), dim=1)], {"dim": 1}
    return build


def layer_norm(d: Draw, r: int, c: int) -> Sample:
    return [d(r, c), d(c), d(c)], {"ndim": 1, "eps": 1e-5}


def layer_norm_backward(d: Draw, r: int, c: int) -> Sample:
    x, w = d(r, c), d(c)
    _, mean, rstd = slow("layer_norm", x, w, None, ndim=1, eps=1e-3)
    return [d(r, c), x, w, mean, rstd], {"ndim": 1, "wanted": (True, True, True)}


def rms_norm(d: Draw, r: int, c: int) -> Sample:
    return [d(r, c), d(c)], {"ndim": 1, "eps": 1e-5}


def rms_norm_backward(d: Draw, r: int, c: int) -> Sample:
    x, w = d(r, c), d(c)
    return [d(r, c), x, w, slow("rms_norm", x, w, ndim=1, eps=1e-3)[1]], {
        "ndim": 1, "wanted": (True, True)}


def batch_norm(d: Draw, r: int, c: int) -> Sample:
    return [d(r, c, 3), d(c), d(c)], {"eps": 1e-3}


def batch_norm_backward(d: Draw, r: int, c: int) -> Sample:
    x, w = d(r, c, 3), d(c)
    _, mean, var = slow("batch_norm", x, w, None, eps=1e-3)
    return [d(r, c, 3), x, w, mean, var], {"eps": 1e-3, "wanted": (True, True, True),
                                           "training": bool(r % 2)}


def batch_norm_given(d: Draw, r: int, c: int) -> Sample:
    return [d(r, c, 3), d(c), d(c), d(c), abs(d(c))], {"eps": 1e-3}


def group_norm(d: Draw, r: int, c: int) -> Sample:
    return [d(r, 2 * c, 3), d(2 * c), d(2 * c)], {"groups": 2, "eps": 1e-3}


def group_norm_backward(d: Draw, r: int, c: int) -> Sample:
    x, w = d(r, 2 * c, 3), d(2 * c)
    _, mean, rstd = slow("group_norm", x, w, None, groups=2, eps=1e-3)
    return [d(r, 2 * c, 3), x, w, mean, rstd], {"groups": 2, "wanted": (True, True, True)}


CE = {"reduction": "mean", "ignore_index": 0, "label_smoothing": 0.1}


def cross_entropy(d: Draw, r: int, c: int) -> Sample:
    return [d(r, c), d.rng.integers(0, c, r), abs(d(c))], dict(CE)


def cross_entropy_backward(d: Draw, r: int, c: int) -> Sample:
    x, target, weight = cross_entropy(d, r, c)[0]
    lse = slow("cross_entropy", x, target, weight, **CE)[1]
    return [np.ones((), d.dtype), x, target, weight, lse], dict(CE)


def nll_loss(d: Draw, r: int, c: int) -> Sample:
    return [d(r, c, 2), d.rng.integers(0, c, (r, 2)), abs(d(c))], {
        "reduction": "mean" if c % 2 else "sum", "ignore_index": 1}


def nll_loss_backward(d: Draw, r: int, c: int) -> Sample:
    (_, target, weight), attrs = nll_loss(d, r, c)
    return [np.full((), 0.5, d.dtype), target, weight], {"shape": (r, c, 2), **attrs}


def multi_margin(d: Draw, r: int, c: int) -> Sample:
    return [d(r, c), d.rng.integers(0, c, r)], {"margin": 0.7}


def multi_margin_backward(d: Draw, r: int, c: int) -> Sample:
    args, attrs = multi_margin(d, r, c)
    return [d(r), *args], attrs


def pad_by_number(d: Draw, r: int, c: int) -> Sample:
    args, attrs = pad(d, r, c)
    return args, {**attrs, "value": 0.0 if r % 2 else 1.5}


def where(d: Draw, r: int, c: int) -> Sample:
    return [d(r, c) > 0, d(r, c), d(c)], {}


def masked_fill(d: Draw, r: int, c: int) -> Sample:
    return [d(r, c), d(r, c) > 0, np.asarray(0.5, d.dtype)], {}


def glu(d: Draw, r: int, c: int) -> Sample:
    return [d(r, 2 * c)], {"dim": 1}


def glu_backward(d: Draw, r: int, c: int) -> Sample:
    return [d(r, c), d(r, 2 * c)], {"dim": 1}


def pad(d: Draw, r: int, c: int) -> Sample:
    return [d(2, r, c)], {"pads": ((0, 0), (1, 2), (3, 0))}


def embedding(d: Draw, r: int, c: int) -> Sample:
    return [d(r, c), d.rng.integers(0, r, (5, 7))], {"padding_idx": None}


def embedding_backward(d: Draw, r: int, c: int) -> Sample:
    return [d(5, 7, c), d.rng.integers(0, r, (5, 7))], {"rows": r, "padding_idx": 0}


def dropout(d: Draw, r: int, c: int) -> Sample:
    return [d(r, c), drawn_mask(Stream(3), (r, c), 0.3)], {"shape": (r, c), "scale": 1 / 0.7}


def alpha_dropout(d: Draw, r: int, c: int) -> Sample:
    args, attrs = dropout(d, r, c)
    return args, {**attrs, "kept": 0.25, "lost": -1.25}


def lstm_cell(d: Draw, r: int, c: int) -> Sample:
    return [d(r, 4 * c), d(r, c)], {}


def lstm_cell_backward(d: Draw, r: int, c: int) -> Sample:
    return [d(r, c), d(r, c), d(r, 4 * c), d(r, c)], {}


def gru_cell(d: Draw, r: int, c: int) -> Sample:
    return [d(r, 3 * c), d(r, 3 * c), d(r, c)], {}


def unindex(d: Draw, r: int, c: int) -> Sample:
    (ct, index), _ = embedding_backward(d, r, c)
    return [ct, index], {"shape": (r, c), "dims": (0,)}


def gru_cell_backward(d: Draw, r: int, c: int) -> Sample:
    return [d(r, c), d(r, 3 * c), d(r, 3 * c), d(r, c)], {}


def small(n: int) -> int:
    return min(n, 37)


def lstm(d: Draw, r: int, c: int) -> Sample:
    r, c = small(r), small(c)
    return [d(5, r, 4 * c), d(r, c), d(r, c), d(4 * c, c)], {"reverse": bool(r % 2)}


def lstm_backward(d: Draw, r: int, c: int) -> Sample:
    (gates, h, c0, w), attrs = lstm(d, r, c)
    out, cells, sums = slow("lstm", gates, h, c0, w, **attrs)
    return [d(*out.shape), None, None, out, cells, sums, h, c0, w], attrs


def linear(d: Draw, r: int, c: int) -> Sample:
    return [d(r, c), d(17, c), d(17)], {}


def two(d: Draw, r: int, c: int) -> Sample:
    return [d(r, c), d(r, c)], {}


def mm(d: Draw, r: int, c: int) -> Sample:
    return [d(r, c), d(c, 19)], {}


def mm_left(d: Draw, r: int, c: int) -> Sample:
    return [d(c, r), d(c, 19)], {}


def mm_right(d: Draw, r: int, c: int) -> Sample:
    return [d(r, c), d(19, c)], {}


def bmm(d: Draw, r: int, c: int) -> Sample:
    return [d(3, r, c), d(3, c, 19)], {}


def to_dtype(d: Draw, r: int, c: int) -> Sample:
    return [d(r, c)], {"dtype": np.dtype(np.float16 if d.dtype == np.float32 else np.float32)}


def gather(d: Draw, r: int, c: int) -> Sample:
    return [d(r, c), d.rng.integers(0, c, (r, 5))], {"dim": 1}


def index(d: Draw, r: int, c: int) -> Sample:
    return [d(r, c), d.rng.integers(0, c, 7)], {"dims": (1,)}


def turned(d: Draw, r: int, c: int) -> Sample:
    return [d(r, c, 2).transpose(2, 1, 0)], {}


def flip(d: Draw, r: int, c: int) -> Sample:
    return [d(r, c)], {"dims": (1,)}


def norm(d: Draw, r: int, c: int) -> Sample:
    return [d(r, c)], {"p": (1.0, 2.0, np.inf)[r % 3], "dim": (1,), "keepdim": bool(c % 2)}


def running(d: Draw, r: int, c: int) -> Sample:
    return [d(r, c)], {"dim": r % 2}


SAMPLES: dict[str, Callable[[Draw, int, int], Sample]] = {
    "softmax": softmax, "log_softmax": softmax, "softmax_backward": pulled("softmax"),
    "log_softmax_backward": pulled("log_softmax"), "layer_norm": layer_norm,
    "layer_norm_backward": layer_norm_backward, "rms_norm": rms_norm,
    "rms_norm_backward": rms_norm_backward, "batch_norm": batch_norm,
    "batch_norm_given": batch_norm_given,
    "batch_norm_backward": batch_norm_backward, "group_norm": group_norm,
    "group_norm_backward": group_norm_backward, "cross_entropy": cross_entropy,
    "cross_entropy_backward": cross_entropy_backward, "embedding": embedding,
    "embedding_backward": embedding_backward, "unindex": unindex, "dropout": dropout,
    "alpha_dropout": alpha_dropout,
    "sum": reduction, "sum_all": whole, "mean": reduction, "mean_all": whole,
    "logsumexp": reduction, "lstm_cell": lstm_cell,
    "lstm_cell_backward": lstm_cell_backward,
    "gru_cell": gru_cell, "gru_cell_backward": gru_cell_backward, "lstm": lstm,
    "lstm_backward": lstm_backward, "mm": mm, "mm_left": mm_left, "mm_right": mm_right,
    "bmm": bmm, "matmul": bmm, "linear": linear,
    "to_dtype": to_dtype, "gather": gather, "index_select": index, "index": index,
    "contiguous": turned, "flip": flip, "prod": reduction, "linalg_vector_norm": norm,
    "count_nonzero": reduction, "cumsum": running, "cumprod": running, "cummax": running,
    "cummin": running, "nll_loss": nll_loss, "nll_loss_backward": nll_loss_backward,
    "constant_pad_zero": pad, "constant_pad": pad_by_number, "glu": glu,
    "glu_backward": glu_backward, "where": where, "masked_fill": masked_fill,
    "multi_margin": multi_margin, "nextafter": two,
    "multi_margin_backward": multi_margin_backward,
}


def parts(result: Any) -> list[Any]:
    return [np.asarray(v) for v in (result if isinstance(result, tuple) else (result,))]


def check(name: str, args: list[Any], attrs: dict[str, Any], dtype: str) -> None:
    """Kernel and NumPy agree, and the kernel with itself to the bit."""
    record = ACCELERATED[name]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        got, again = parts(record.impl(*args, **attrs)), parts(record.impl(*args, **attrs))
        want = parts(slow(name, *args, **attrs))
    assert len(got) == len(want)
    for g, a, w in zip(got, again, want, strict=True):
        assert g.shape == w.shape and g.dtype == w.dtype, (g.shape, w.shape, g.dtype, w.dtype)
        assert g.tobytes() == a.tobytes(), "another result for the same operands"
        g, w = g.astype(np.float64), w.astype(np.float64)
        np.testing.assert_array_equal(np.isnan(g), np.isnan(w))
        np.testing.assert_array_equal(np.isposinf(g), np.isposinf(w))
        np.testing.assert_array_equal(np.isneginf(g), np.isneginf(w))
        known = np.isfinite(w)
        size = float(np.max(abs(w[known]), initial=0.0))
        np.testing.assert_allclose(g[known], w[known], rtol=RTOL[dtype], atol=RTOL[dtype] * size)


def test_every_accelerated_record_has_a_sample() -> None:
    assert set(SAMPLES) == set(ACCELERATED)


@pytest.mark.parametrize("dtype", RTOL)
@pytest.mark.parametrize("name", SAMPLES)
def test_odd_sizes(name: str, dtype: str) -> None:
    for seed, (r, c) in enumerate(SHAPES):
        check(name, *SAMPLES[name](Draw(dtype, seed), r, c), dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", SAMPLES)
def test_layouts(name: str, layout: str) -> None:
    args, attrs = SAMPLES[name](Draw("float32"), 67, 129)
    moved = [LAYOUTS[layout](a) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a
             for a in args]
    for a, b in zip(args, moved, strict=True):
        assert a is b or np.array_equal(a, b)
    if layout == "big-endian" and name in ("sum", "mean", "sum_all", "mean_all"):
        pytest.skip("NumPy itself does not sum into a foreign byte order")
    native = parts(slow(name, *args, **attrs))
    got = parts(ACCELERATED[name].impl(*moved, **attrs))
    for g, w in zip(got, native, strict=True):
        size = float(np.max(abs(w), initial=0.0))
        np.testing.assert_allclose(g, w, rtol=3e-5, atol=3e-5 * size)


SPECIAL = [np.nan, np.inf, -np.inf, -0.0, 3e38, -3e38, 1e-45]
FINITE_ONLY = {"cross_entropy_backward"}        # rows of nan in lse are the forward's to report


@pytest.mark.parametrize("name", sorted(set(SAMPLES) - FINITE_ONLY))
@pytest.mark.parametrize("value", SPECIAL, ids=str)
def test_special_values(name: str, value: float) -> None:
    """One special number in the first operand: nan and infinities end up in the same places."""
    args, attrs = SAMPLES[name](Draw("float32"), 67, 129)
    flat = args[0].reshape(-1)
    flat[flat.size // 3] = value
    check(name, args, attrs, "float32")


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)], ids=str)
def test_no_elements(name: str, shape: tuple[int, int]) -> None:
    """Where NumPy's implementation has an answer, the record has the same."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            args, attrs = SAMPLES[name](Draw("float32"), *shape)
            slow(name, *args, **attrs)
        except (ValueError, IndexError, ZeroDivisionError):
            pytest.skip("the operation has no empty form")
    check(name, args, attrs, "float32")


@pytest.mark.parametrize("shapes", [((10, 128), (128, 512)), ((128, 10), (10, 512)),
                                    ((512, 128), (128, 10))])
def test_products_with_one_small_operand_are_not_left_to_openblas(
        shapes: tuple[tuple[int, int], tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its threads would spin for milliseconds on the cores that the next kernels need."""
    seen = []
    generated = accelerate.generated

    def spy(a: Any, b: Any) -> Any:
        seen.append((a.shape, b.shape))
        return generated("product")(a, b)

    monkeypatch.setattr(accelerate, "generated",
                        lambda name: spy if name == "product" else generated(name))
    a, b = (np.ones(s, np.float32) for s in shapes)
    product = ad.mm(ad.tensor(a), ad.tensor(b))
    assert (product.numpy() == shapes[0][1]).all()
    assert seen == [shapes]


@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ctc_is_that_of_numpy(monkeypatch: pytest.MonkeyPatch, dtype: str, zero_infinity: bool
                              ) -> None:
    """Empty targets, targets that no path spells, repeated labels, short inputs, every width."""
    rng, size = np.random.default_rng(3), np.dtype(dtype)
    for states in (1, 2, 5, 9, 21):
        x = rng.normal(size=(30, 6, 7)).astype(size) * 2
        y = rng.integers(0, 6, (6, states))
        y[:, :2] = 3
        y += y >= 2                                                     # 2 is the blank
        attrs = {"steps": (30, 30, 17, 1, 30, 5), "blank": 2, "zero_infinity": zero_infinity,
                 "lengths": (states, states // 2, states, min(states, 2), 0, min(states, 3))}
        got = []
        for large in (0, 1 << 62):
            monkeypatch.setattr(ctc, "_LARGE", large)
            got.append((ctc._losses(x, y, **attrs), ctc._raw_slope(x, y, **attrs)))
        for ours, plain in zip(*got, strict=True):
            assert ours.dtype == plain.dtype == size
            np.testing.assert_allclose(ours, plain, rtol=RTOL[dtype], atol=RTOL[dtype])
