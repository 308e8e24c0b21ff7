"""Functions of lists of tensors, against PyTorch (F123)."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.base.errors import ArgumentError, AutogradError
from adjoint.ops import foreach

A = [np.array([[0.5, -1.0, 2.0]]), np.array([3.0, -0.25])]
B = [np.array([[1.5, 0.75, -2.0]]), np.array([-1.0, 4.0])]
CALLS = [
    "add(a, b, alpha=2)", "add(a, 1.5)", "add(a, [1.0, 2.0])", "sub(a, b)", "mul(a, b)",
    "mul(a, t.tensor(2.0))", "div(a, [2.0, 4.0])", "pow(2.0, a)", "pow(a, [2, 3])", "norm(a)",
    "norm(a, ord=1)", "norm(a, float('inf'))", "powsum(a, 3)", "addcmul(a, b, b, value=0.5)",
    "addcmul(a, b, b, [0.5, 2.0])", "addcdiv(a, b, b, scalars=t.tensor([1.0, 2.0]))",
    "addcdiv(a, tensor1=a, tensor2=b, value=3)", "lerp(a, b, 0.25)", "lerp(a, b, weights=a)",
    "lerp(a, b, weight=[0.1, 0.2])", "maximum(a, 0.5)", "minimum(a, b)", "clamp_min(a, [0.0, 1.0])",
    "clamp_max(a, other=b)", "add(self=a, other=b)", "neg(a)", "exp(a)", "sign(a)", "max(a)",
    "mm(a[:1], [b[0].T])", "clone(a)", "add_(a, b, alpha=-0.5)", "mul_(a, 0.9)", "zero_(a)",
    "copy_(a, b, non_blocking=True)", "addcmul_(a, b, b, 0.1)", "maximum_(a, b)", "abs_(a)",
    "lerp_(a, b, 0.5)", "round_(a)", "sigmoid_(a)",
]


def tensors(library: Any, arrays: list[np.ndarray]) -> list[Any]:
    return [library.from_numpy(x.copy()) for x in arrays]


@pytest.mark.parametrize("call", CALLS)
def test_values_and_kinds_are_pytorchs(call: str) -> None:
    torch = pytest.importorskip("torch")
    results, operands = [], []
    for t in (torch, ad):
        a, b = tensors(t, A), tensors(t, B)
        results.append(eval(f"t._foreach_{call}", {"t": t, "a": a, "b": b}))
        operands.append(a)
    assert type(results[0]) is type(results[1]) and len(results[0]) == len(results[1])
    for want, got in zip([*results[0], *operands[0]], [*results[1], *operands[1]], strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-14)
    if "_(" in call:
        assert all(x is y for x, y in zip(results[1], operands[1], strict=True))


def test_the_family_is_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    assert foreach.names() == sorted(n for n in dir(torch) if n.startswith("_foreach_"))
    assert all(callable(getattr(ad, n)) for n in foreach.names())
    assert not hasattr(ad, "_foreach_zero") and not hasattr(ad, "_foreach_max_")


def test_gradients_and_leaves() -> None:
    p = [x.requires_grad_() for x in tensors(ad, A)]
    sum(x.sum() for x in ad._foreach_mul(p, tensors(ad, B))).backward()
    np.testing.assert_array_equal(p[1].grad.numpy(), B[1])
    with pytest.raises(AutogradError, match="leaf"):
        ad._foreach_add_(p, 1.0)
    with ad.no_grad():
        ad._foreach_add_(p, [x.grad for x in p], alpha=-1)
    np.testing.assert_array_equal(p[1].detach().numpy(), A[1] - B[1])


def test_what_does_not_fit_is_refused_in_words() -> None:
    a = tensors(ad, A)
    with pytest.raises(ArgumentError, match="same number of tensors, got 2 and 1 tensors"):
        ad._foreach_add(a, a[:1])
    with pytest.raises(RuntimeError, match="got 2 and 3 numbers"):
        ad._foreach_add(a, [1, 2, 3])
    with pytest.raises(ArgumentError, match="at least one tensor"):
        ad._foreach_abs([])
    with pytest.raises(ArgumentError, match="0 dim but it has 1 dimensions and 3 elements"):
        ad._foreach_mul(a, ad.ones(3))
    with pytest.raises(ArgumentError, match="takes 2 operands, got 3"):
        ad._foreach_mul(a, a, a)
    with pytest.raises(ArgumentError, match="needs a list or tuple of tensors, got int"):
        ad._foreach_add(3, 1.0)


def test_what_is_written_keeps_its_dtype() -> None:
    mask = [ad.tensor([True, False])]
    assert ad._foreach_add(mask, mask, alpha=2)[0].dtype == ad.bool
    assert ad._foreach_maximum(mask, 2)[0].tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type Bool"):
        ad._foreach_maximum_(mask, 2)
    whole = [ad.tensor([2, -1, 3])]
    assert ad._foreach_pow_(whole, [ad.tensor([-1, -3, 2])])[0].tolist() == [0, -1, 9]
    with pytest.raises(RuntimeError, match="In-place abs is not supported for complex tensors"):
        ad._foreach_abs_([ad.tensor([1j])])
