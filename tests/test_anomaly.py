"""Anomaly mode: what is found, what the error tells, what is left alone (F85)."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import adjoint as ad
from adjoint.autograd import detect_anomaly
from adjoint.autograd.anomaly import Anomaly, not_finite
from adjoint.base.errors import AutogradError

pytestmark = pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled",
                                       "ignore:Error detected in")


def caught(run: Any, **options: Any) -> Any:
    with pytest.raises(AutogradError) as error, detect_anomaly(**options):
        run()
    return error.value


@pytest.mark.row("F85")
def test_backward_error_tells_line_index_and_operands() -> None:
    x = ad.tensor([[4.0, 1.0], [0.0, 9.0]], requires_grad=True)
    weights = ad.tensor([[1.0, 1.0], [0.0, 1.0]])
    error = caught(lambda: (x.sqrt() * weights).sum().backward())
    text, about = str(error), error.about
    assert isinstance(about, Anomaly) and error.reason == "nan"
    assert (about.phase, about.op, about.index, about.shape, about.count) == \
        ("backward", "SqrtBackward0", (1, 0), (2, 2), 1)
    assert __file__ in about.where and "x.sqrt() * weights" in text
    assert "first bad index (1, 0) of [2, 2], 1 of 4 bad" in text
    assert "incoming gradient: [2, 2] float32 min 0 max 1, 1 zero, 0 not finite" in text
    assert "kept out: [2, 2] float32 min 0 max 3, 1 zero, 0 not finite" in text


@pytest.mark.row("F85")
def test_inf_only_if_asked() -> None:
    x = ad.tensor([0.0, 1.0], requires_grad=True)
    with detect_anomaly():
        x.sqrt().sum().backward()
    assert np.isinf(x.grad.array[0])
    error = caught(lambda: x.sqrt().sum().backward(), check_inf=True)
    assert error.reason == "inf" and error.about.index == (0,)
    error = caught(lambda: x.log().sum().backward(), check_nan=False, check_inf=True)
    assert error.reason == "inf"


@pytest.mark.row("F85")
def test_forward_with_and_without_recording() -> None:
    x = ad.tensor([1.0, -1.0, 2.0])
    error = caught(lambda: x.log(), check_forward=True)
    assert error.about.phase == "forward" and error.about.op == "log"
    assert "operand: [3] float32 min -1 max 2, 0 zero, 0 not finite" in str(error)
    x.requires_grad_()
    error = caught(lambda: x.log(), check_forward=True)
    assert error.about.op == "LogBackward0" and error.about.index == (1,)
    with detect_anomaly():
        x.log()


def test_in_place_and_custom_functions_in_forward() -> None:
    x = ad.tensor([1.0, -1.0])
    assert caught(lambda: x.sqrt_(), check_forward=True).about.op == "sqrt"

    class Bad(ad.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return ad.tensor(np.array([1.0, np.nan], np.float32))

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g

    w = ad.ones(2, requires_grad=True)
    assert caught(lambda: Bad.apply(w), check_forward=True).about.index == (1,)


def test_masks_of_minus_infinity_are_no_nan() -> None:
    x = ad.randn(2, 4, requires_grad=True)
    mask = ad.tensor([[True, False, False, True]])
    with detect_anomaly(check_forward=True):
        ad.softmax(x.masked_fill(mask, float("-inf")), 1)[:, 1].sum().backward()
    assert bool(ad.isfinite(x.grad).all())


def test_double_backward_and_several_outputs() -> None:
    x = ad.tensor([0.0], requires_grad=True)
    with detect_anomaly():
        (g,) = ad.autograd.grad((x**1.5).sum(), x, create_graph=True)
        with pytest.raises(AutogradError, match="nan|inf"):
            ad.autograd.grad((g * 0).sum(), x)


@given(st.sampled_from(["float16", "float32", "float64", "complex64"]), st.integers(0, 40),
       st.sampled_from(["", "nan", "inf", "-inf", "both"]), st.booleans(), st.floats(0, 3e4))
def test_not_finite_is_what_numpy_says(dtype: str, n: int, kind: str, across: bool,
                                       size: float) -> None:
    array = np.full((n, 3), size, dtype)
    if across:
        array = array.T
    if n and kind:
        array[0, 0] = np.nan if kind in ("nan", "both") else float(kind)
        if kind == "both":
            array[-1, -1] = np.inf
    expected = "nan" if np.isnan(array).any() else "inf" if np.isinf(array).any() else ""
    assert not_finite(array) == expected


def test_large_finite_values_are_finite() -> None:
    """Their squares overflow; the second look sees it."""
    assert not_finite(np.full(8, 3e38, np.float32)) == ""
    assert not_finite(np.full(8, 1e308)) == ""
    assert not_finite(np.arange(4)) == ""


def test_rules_that_raise_are_told_when_their_backward_ends() -> None:
    """Also where a handler inside of the block catches the error, and one walk runs in another."""
    class Fails(ad.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            inner = ad.ones(1, requires_grad=True)
            with ad.enable_grad():
                (inner * inner).sum().backward()
            raise KeyError("mine")

    x = ad.ones(2, requires_grad=True)
    with detect_anomaly():
        with pytest.warns(UserWarning, match="Error detected in FailsBackward. Trace") as told:
            with pytest.raises(KeyError):
                Fails.apply(x).sum().backward()
        assert len(told) == 1 and "Fails.apply(x)" in str(told[0].message)
        (x * x).sum().backward()


def test_metadata_of_nodes_as_pytorch_has_it(monkeypatch: Any) -> None:
    x = ad.ones(2, requires_grad=True)
    with detect_anomaly():
        assert (x * x).grad_fn.metadata == {}
        monkeypatch.setattr("adjoint.autograd.anomaly.as_pytorch", [True])
        y = (x ** 3).sum()
        (g,) = ad.autograd.grad(y, x, create_graph=True)
    assert "(x ** 3).sum()" in y.grad_fn.metadata["traceback_"][0]
    assert g.grad_fn.metadata["parent_"].name() == "PowBackward0"
