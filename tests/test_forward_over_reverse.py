"""`autograd.grad` of dual tensors: Hessian-vector products as PyTorch's forward mode makes them."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adjoint as ad
import adjoint.autograd.forward_ad as fwAD

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "cubic": lambda x: (x * x * x).sum(),
    "softmax": lambda x: (ad.softmax(x, 0) * x.sin()).sum(),
    "matmul": lambda x: (x @ x.flip(0)).exp(),
    "norm": lambda x: ad.linalg.vector_norm(x) * x.prod(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_tangent_of_a_gradient_is_the_hessian_times_the_tangent(name: str) -> None:
    f = FUNCTIONS[name]
    x = ad.tensor([0.3, -0.7, 0.5], dtype=ad.float64, requires_grad=True)
    v = ad.tensor([1.0, 0.5, -2.0], dtype=ad.float64)
    with fwAD.dual_level():
        out = f(fwAD.make_dual(x, v))
        assert out.requires_grad
        g, = ad.autograd.grad(out, x)
        primal, tangent = fwAD.unpack_dual(g)
    want, = ad.autograd.grad(f(x), x, create_graph=True)
    hessian = ad.autograd.functional.hessian(f, x.detach())
    np.testing.assert_allclose(primal.numpy(), want.detach().numpy(), rtol=1e-12)
    np.testing.assert_allclose(tangent.numpy(), (hessian @ v).numpy(), rtol=1e-10, atol=1e-12)


def test_cotangents_may_be_dual_and_inputs_too() -> None:
    """d(c x^2)/dx = 2 c x moves by 2 (c' x + c x')."""
    x = ad.tensor([3.0, 4.0], requires_grad=True)
    with fwAD.dual_level():
        d = fwAD.make_dual(x, ad.tensor([1.0, 2.0]))
        c = fwAD.make_dual(ad.tensor([5.0, 6.0]), ad.tensor([7.0, 8.0]))
        g, = ad.autograd.grad(d * d, d, c)
        primal, tangent = fwAD.unpack_dual(g)
        assert primal.tolist() == [30, 48]
        assert tangent.tolist() == [2 * (7 * 3 + 5 * 1), 2 * (8 * 4 + 6 * 2)]


def test_what_does_not_move_has_no_tangent() -> None:
    x = ad.ones(2, requires_grad=True)
    y = ad.ones(2, requires_grad=True)
    with fwAD.dual_level():
        out = (fwAD.make_dual(x, ad.ones(2)) * 3).sum()
        g, none = ad.autograd.grad(out, (x, y), allow_unused=True)
        assert none is None and fwAD.unpack_dual(g) == (g, None) and g.tolist() == [3, 3]
        assert not fwAD.make_dual(ad.ones(2), ad.ones(2)).requires_grad
        with pytest.raises(RuntimeError, match="not have been used"):
            ad.autograd.grad((fwAD.make_dual(x, ad.ones(2)) * 3).sum(), (x, y))


def test_an_energy_is_differentiated_again() -> None:
    """With create_graph the tangent is differentiated backwards once more."""
    x = ad.tensor(2.0, dtype=ad.float64, requires_grad=True)
    with fwAD.dual_level():
        g, = ad.autograd.grad(fwAD.make_dual(x, ad.ones_like(x)) ** 4, x, create_graph=True)
        third, = ad.autograd.grad(fwAD.unpack_dual(g).tangent, x)
    assert third.item() == 24 * 2


def test_backward_of_a_dual_tensor_accumulates_the_gradient_of_its_primal() -> None:
    """`.grad` of a leaf is a plain tensor, as in PyTorch; tangents are `autograd.grad`'s."""
    x = ad.tensor([1.0, 2.0], requires_grad=True)
    with fwAD.dual_level():
        loss = (fwAD.make_dual(x, ad.tensor([3.0, 4.0])) ** 3).sum()
        loss.backward()
        assert fwAD.unpack_dual(x.grad).tangent is None
    assert x.grad.tolist() == [3.0, 12.0]
    with pytest.raises(RuntimeError, match="called inside a functorch transform"):
        ad.func.jvp(lambda v: (v ** 2).sum().backward(), (ad.ones(2),), (ad.ones(2),))
