"""`Tensor.grad_dtype`: gradients of leaves in a dtype of their own (F15)."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adjoint as ad


class Double(ad.autograd.Function):
    """Identity whose gradient comes as float64."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0].double()


def leaf(n: int = 3, dtype: Any = ad.float32) -> Any:
    return ad.ones(n, dtype=dtype, requires_grad=True)


def test_it_is_the_leafs_own_dtype_until_it_is_set() -> None:
    assert leaf().grad_dtype == ad.float32
    assert ad.ones(2, dtype=ad.int64).grad_dtype == ad.int64
    t = leaf()
    t.data = ad.ones(3, dtype=ad.float64)
    assert t.grad_dtype == ad.float64
    t.grad_dtype = ad.float16
    t.data = ad.ones(3)
    assert t.grad_dtype == ad.float16 and t.detach().grad_dtype == ad.float32


@pytest.mark.parametrize("n", [3, 70_000])
@pytest.mark.parametrize("create", [False, True])
def test_gradients_are_cast_before_anybody_sees_them(n: int, create: bool) -> None:
    t, seen = leaf(n), []
    t.grad_dtype = ad.float64
    t.register_hook(lambda g: seen.append(g.dtype))
    for k in (1, 2):
        ((t * t).sum() + (t * 3).sum()).backward(create_graph=create)
        assert t.grad.dtype == ad.float64 and t.grad.tolist() == [5.0 * k] * n
    assert seen == [ad.float64] * 2
    (g,) = ad.autograd.grad((t * 2).sum(), t)
    assert g.dtype == ad.float64
    (g,) = ad.autograd.grad((t * t * t).sum(), t, create_graph=True)
    (h,) = ad.autograd.grad(g.sum(), t)
    assert h.dtype == ad.float64 and h.tolist() == [6.0] * n


def test_a_custom_functions_gradient_is_not_rounded_on_the_way() -> None:
    t = leaf()
    t.grad_dtype = ad.float64

    class Third(Double):
        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return grads[0].double() / 3
    Third.apply(t).sum().backward()
    assert t.grad.tolist() == [1 / 3] * 3


def test_sixteen_bit_leaves_with_wider_gradients() -> None:
    t = leaf(dtype=ad.bfloat16)
    t.grad_dtype = ad.float32
    for _ in range(2):
        (t.float() * (1 + 2.0**-10)).sum().backward()
    assert t.grad.dtype == ad.float32
    whole = leaf(dtype=ad.bfloat16)
    (whole.float() * (1 + 2.0**-10)).sum().backward()
    assert whole.grad.dtype == ad.bfloat16 and whole.grad.float().tolist() == [1.0] * 3


def test_none_takes_what_comes() -> None:
    t = leaf()
    t.grad_dtype = None
    assert t.grad_dtype is None
    (t.double() * 2).sum().backward()
    assert t.grad.dtype == ad.float32
    t.grad = None
    Double.apply(t).sum().backward()
    assert t.grad.dtype == ad.float64
    (t * 1).sum().backward()
    assert t.grad.dtype == ad.float64 and t.grad.tolist() == [2.0] * 3
    t.grad = ad.ones(3, dtype=ad.float16)
    t.grad = None
    ((t * 1).sum() + Double.apply(t).sum()).backward()
    assert t.grad.dtype == ad.float64 and t.grad.tolist() == [2.0] * 3


def test_a_leaf_that_backward_begins_at() -> None:
    t = leaf()
    t.grad_dtype = ad.bfloat16
    t.backward(ad.ones(3))
    assert t.grad.dtype == ad.bfloat16


def test_what_is_refused() -> None:
    t = leaf()
    with pytest.raises(RuntimeError, match="can only be accessed on leaf"):
        (t * 2).grad_dtype  # noqa: B018  # the question itself
    with pytest.raises(RuntimeError, match="can only be set on leaf"):
        (t * 2).grad_dtype = ad.float32
    with pytest.raises(RuntimeError, match="must be a torch.dtype or None, but got str"):
        t.grad_dtype = "float32"
    t.grad = ad.ones(3)
    with pytest.raises(RuntimeError, match="to 'Double' because there is already a gradient with "
                                           "dtype 'float'"):
        t.grad_dtype = ad.float64
    t.grad_dtype = ad.float32
    t.grad = None
    t.grad_dtype = ad.bfloat16
    with pytest.raises(RuntimeError, match="dtype 'float' to a tensor with grad_dtype 'BFloat16'"):
        t.grad = ad.ones(3)
    t.grad = ad.ones(3, dtype=ad.bfloat16)


def test_other_leaves_of_the_same_backward_keep_theirs() -> None:
    a, b = leaf(), leaf()
    a.grad_dtype = ad.float64
    (a * b * 2).sum().backward()
    assert (a.grad.dtype, b.grad.dtype) == (ad.float64, ad.float32)
    np.testing.assert_array_equal(b.grad.numpy(), 2)


def test_torch_does_the_same() -> None:
    torch = pytest.importorskip("torch")
    told = []
    for t in (torch, ad):
        x, y = t.ones(3, requires_grad=True), t.ones(3, requires_grad=True)
        x.grad_dtype, y.grad_dtype = t.float64, None
        (x * y * 2).sum().backward()
        p = t.nn.Parameter(t.ones(2))
        p.grad_dtype = t.float16
        m = t.nn.Module()
        m.p = p
        m.double()
        told.append([str(v).replace("adjoint.", "torch.") for v in (
            x.grad, y.grad, p.grad_dtype, p.dtype, m.p.grad_dtype, x.detach().grad_dtype)])
    assert told[0] == told[1]
