"""NumPy's functions on tensors: values against NumPy, gradients against central differences and,
where it differentiates the function, HIPS autograd (F54)."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adjoint as ad
import adjoint.numpy as anp

R = np.random.default_rng(0)
M = R.uniform(0.3, 0.9, (3, 4))
B = R.uniform(0.3, 0.9, (2, 3, 4))
POINTS = {"V": R.uniform(0.3, 0.9, 3), "M": M, "B": B, "S": R.uniform(size=(4, 4)),
          "Q": R.uniform(0.3, 0.9, (3, 3)) + 2 * np.eye(3)}
LINES = [line.split(": ", 1) for line in
         (Path(__file__).parent / "numpy_expressions.txt").read_text("utf-8").splitlines()]
KINDS = "fc"


def run(text: str, module: Any, a: Any) -> Any:
    """The expression with `np` and `a`."""
    return eval(text, {"np": module, "a": a, "M": M})  # noqa: S307 (our own text)


def parts(y: Any) -> list[Any]:
    """The outputs of an expression in a flat list."""
    return [p for v in y for p in parts(v)] if isinstance(y, (tuple, list)) else [y]


def raw(y: Any) -> np.ndarray:
    """An output as a plain array."""
    return np.asarray(y.detach().numpy() if isinstance(y, ad.Tensor) else y)


def weighted(ys: list[Any], weights: list[np.ndarray], wrap: Any) -> Any:
    """One real number of all floating outputs; imaginary parts count twice."""
    total: Any = 0.0
    for y, w in zip(ys, weights, strict=True):
        if raw(y).dtype.kind == "c":
            total = total + ((y.real + 2 * y.imag) * wrap(w)).sum()
        elif raw(y).dtype.kind == "f":
            total = total + (y * wrap(w)).sum()
    return total


@pytest.mark.parametrize("point,text", LINES)
def test_value_and_gradient(point: str, text: str) -> None:
    """np.f(tensor) is NumPy's value, and its gradient is the slope of NumPy's values."""
    x = POINTS[point]
    want = [raw(y) for y in parts(run(text, np, x.copy()))]
    t = ad.tensor(x.copy(), requires_grad=True)
    ys = parts(run(text, np, t))
    assert [raw(y).shape for y in ys] == [w.shape for w in want]
    for y, w in zip(ys, want, strict=True):
        np.testing.assert_allclose(raw(y), w, rtol=1e-9, atol=1e-12)
        assert raw(y).dtype == w.dtype
    if not any(w.dtype.kind in KINDS for w in want):
        return
    weights = [np.cos(np.arange(w.size).reshape(w.shape) + 1.0) for w in want]

    def slope(d: np.ndarray, h: float) -> float:
        high, low = ([raw(y) for y in parts(run(text, np, x + s * h * d))] for s in (1, -1))
        return float(weighted(high, weights, np.asarray) - weighted(low, weights, np.asarray)) / (
            2 * h)
    d = np.random.default_rng(1).normal(size=x.shape)
    total = weighted(ys, weights, ad.tensor)
    live = isinstance(total, ad.Tensor) and total.requires_grad
    got = (ad.autograd.grad(total, t)[0].numpy() * d).sum() if live else 0.0
    np.testing.assert_allclose(got, slope(d, 1e-6), rtol=1e-5, atol=1e-6)


# HIPS autograd 1.9 disagrees with central differences here (test_value_and_gradient has them).
DIFFER = {"np.sum(a, where=M > 0.5)", "np.diag(a)", "np.linalg.slogdet(a)",
          "np.linalg.norm(a, axis=1, keepdims=True)"}


@pytest.mark.parametrize("point,text", [v for v in LINES if v[1] not in DIFFER])
def test_as_in_hips_autograd(point: str, text: str) -> None:
    """Where HIPS autograd differentiates the expression, the gradients are equal."""
    hips = pytest.importorskip("autograd")
    theirs = pytest.importorskip("autograd.numpy")
    x = POINTS[point]
    try:
        want = hips.grad(lambda a: sum(
            theirs.sum(theirs.real(y) * np.cos(np.arange(np.size(y)).reshape(np.shape(y)) + 1.0))
            for y in parts(run(text, theirs, a))))(x.copy())
    except Exception:  # noqa: BLE001 (no derivative there, of whatever kind)
        pytest.skip("no derivative there")
    if not np.isfinite(want).all():
        pytest.skip("not finite there")
    t = ad.tensor(x.copy(), requires_grad=True)
    total: Any = 0.0
    for y in parts(run(text, np, t)):
        w = np.cos(np.arange(raw(y).size).reshape(raw(y).shape) + 1.0)
        total = total + ((y.real if raw(y).dtype.kind == "c" else y) * ad.tensor(w)).sum()
    got = ad.autograd.grad(total, t)[0].numpy() if total.requires_grad else np.zeros_like(x)
    np.testing.assert_allclose(got, want, rtol=1e-7, atol=1e-9)


def test_the_module_stands_in_for_numpy() -> None:
    """Names, constants, constructors; `array` of a list of tensors; lazily imported."""
    assert anp.pi == np.pi and anp.float64 is np.float64 and anp.linspace(0, 1, 3)[1] == 0.5
    x = ad.tensor([1.0, 2.0], requires_grad=True)
    y = anp.array([[x[0], 2.0], [x[1], x[0] * x[1]]])
    y.sum().backward()
    assert y.shape == (2, 2) and x.grad.tolist() == [3.0, 2.0]
    assert anp.linalg.norm(x) == anp.sqrt(anp.sum(x ** 2))
    assert anp.asarray(x) is x and isinstance(anp.array([1.0]), np.ndarray)
    assert raw(anp.fft.fft(x)).dtype.kind == "c"


def test_what_has_no_derivative_says_so() -> None:
    """A value that NumPy computes and we cannot differentiate is refused under a gradient."""
    x = ad.tensor([1.0, 2.0], requires_grad=True)
    for call in (lambda: np.spacing(x), lambda: np.unique(x), lambda: np.pad(x, 1, mode="mean"),
                 lambda: np.sum(x, out=np.zeros(()))):
        with pytest.raises(ad.base.errors.NotSupported):
            call()
    assert np.unique(x.detach()).tolist() == [1.0, 2.0]
