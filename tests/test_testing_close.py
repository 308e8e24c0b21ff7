"""assert_close and make_tensor, which users' tests take from the package."""
from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.testing import assert_close, make_tensor

nan = float("nan")
# (name, call(module with `tensor`, assert_close)); the outcome must be the peer's, word for word.
CASES = {
    "one of three": lambda t, c: c(t.tensor([1.0, 2.0, 3.0]), t.tensor([1.0, 2.0, 4.0])),
    "scalars": lambda t, c: c(t.tensor(1.0), t.tensor(2.0)),
    "numbers": lambda t, c: c(1.0, 2.0),
    "item": lambda t, c: c([t.tensor(1.0), t.tensor(2.0)], [t.tensor(1.0), t.tensor(3.0)]),
    "keys": lambda t, c: c({"a": t.tensor(1.0)}, {"b": t.tensor(1.0)}),
    "length": lambda t, c: c([t.tensor(1.0)], [t.tensor(1.0), t.tensor(2.0)]),
    "nan": lambda t, c: c(t.tensor(nan), t.tensor(nan)),
    "nan allowed": lambda t, c: c(t.tensor([nan, 1]), t.tensor([nan, 1]), equal_nan=True),
    "bool": lambda t, c: c(t.tensor([True]), t.tensor([False])),
    "text": lambda t, c: c(t.tensor([1.0, 5.0]), t.tensor([2.0, 5.0]), msg="boo"),
    "called": lambda t, c: c(t.tensor([1.0, 5.0]), t.tensor([2.0, 5.0]), msg=lambda m: "boo:" + m),
    "nested": lambda t, c: c({"a": t.tensor([1.0, 2.0])}, {"a": t.tensor([1.0, 3.0])}),
    "types": lambda t, c: c(1, 1.0),
    "close enough": lambda t, c: c(t.tensor([1.0]), t.tensor([1.0 + 1e-6])),
    "half": lambda t, c: c(t.tensor([1.0]).half(), t.tensor([1.0005]).half()),
    "complex": lambda t, c: c(t.tensor([1 + 1j]), t.tensor([1 + 2j])),
    "none": lambda t, c: c(None, None),
    "two bools": lambda t, c: c(True, False),
    "dtype unchecked": lambda t, c: c(t.tensor([1.0]), t.tensor([1.0]).double(),
                                      check_dtype=False),
    "shape": lambda t, c: c(t.tensor([1.0]), t.tensor([1.0, 2.0])),
    "dtype": lambda t, c: c(t.tensor([1.0]), t.tensor([1.0]).double()),
    "only rtol": lambda t, c: c(t.tensor([1.0]), t.tensor([2.0]), rtol=1e-3),
    "kinds": lambda t, c: c(t.tensor(1.0), "a"),
}


def outcome(call: Any, module: Any, check: Any) -> tuple[str, str]:
    try:
        call(module, check)
    except (AssertionError, ValueError, TypeError) as error:
        kind = next(k.__name__ for k in (AssertionError, ValueError, TypeError)
                    if isinstance(error, k))
        text = str(error).replace("torch.", "adjoint.").replace("adjoint.core.tensor.", "adjoint.")
        return kind, text
    return "passes", ""


@pytest.mark.parametrize("name", CASES)
def test_as_the_peer(name: str) -> None:
    torch = pytest.importorskip("torch")
    theirs = importlib.import_module("torch.testing").assert_close
    assert outcome(CASES[name], ad, assert_close) == outcome(CASES[name], torch, theirs)


def test_without_a_peer() -> None:
    with pytest.raises(AssertionError, match=r"Mismatched elements: 1 / 3 \(33.3%\)"):
        CASES["one of three"](ad, assert_close)
    with pytest.raises(ValueError, match="no atol"):
        CASES["only rtol"](ad, assert_close)
    CASES["close enough"](ad, assert_close)


@pytest.mark.parametrize("dtype", [ad.float32, ad.float64, ad.float16, ad.int64, ad.uint8, ad.bool,
                                   ad.complex64])
def test_make_tensor(dtype: Any) -> None:
    x = make_tensor(20, 3, dtype=dtype)
    assert x.dtype is dtype and tuple(x.shape) == (20, 3)
    strided = make_tensor((4, 6), dtype=dtype, noncontiguous=True)
    assert not strided.is_contiguous() and tuple(strided.shape) == (4, 6)
    assert bool((make_tensor(500, dtype=dtype, exclude_zero=True) != 0).all())
    if dtype not in (ad.bool, ad.complex64):
        y = make_tensor(200, dtype=dtype, low=2, high=5)
        values = np.asarray(y.double())
        assert values.min() >= 2 and values.max() <= 5 and values.max() - values.min() > 1


@pytest.mark.parametrize("dtype", [ad.complex64, ad.complex128])
def test_both_parts_of_complex_numbers_are_drawn_from_the_interval(dtype: Any) -> None:
    x = np.asarray(make_tensor(500, dtype=dtype, low=-1, high=2))
    for part in (x.real, x.imag):
        assert part.min() >= -1 and part.max() < 2 and part.min() < -0.9 and part.max() > 1.9


@pytest.mark.parametrize("options", [
    {"dtype": "float32"}, {"dtype": "complex64"}, {"dtype": "bfloat16", "low": -3, "high": 7},
    {"dtype": "float16", "noncontiguous": True}, {"dtype": "uint8", "low": -3, "high": 7},
    {"dtype": "int64", "noncontiguous": True}, {"dtype": "float16", "low": -1e10, "high": 1e10}])
def test_make_tensor_draws_pytorchs_numbers(options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    found = []
    for t, make in ((torch, torch.testing.make_tensor), (ad, make_tensor)):
        t.manual_seed(5)
        x = make((3, 7), device="cpu", **{**options, "dtype": getattr(t, options["dtype"])})
        found.append((x.is_contiguous(), x.to(t.complex128).numpy()))
    assert found[0][0] == found[1][0]
    np.testing.assert_array_equal(found[0][1], found[1][1])


@pytest.mark.parametrize(("options", "words"), [
    ({"dtype": ad.int64, "requires_grad": True}, "not supported for boolean and integral"),
    ({"dtype": ad.float32, "low": float("nan")}, "cannot be NaN"),
    ({"dtype": ad.float32, "low": 3, "high": 2}, "must be less than"),
    ({"dtype": ad.uint8, "low": 300, "high": 400}, r"only supports \[0, 256\)")])
def test_make_tensor_refuses(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make_tensor(3, **options)
