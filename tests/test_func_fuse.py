"""`fuse`: elementwise functions as one operation."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adjoint as ad
import adjoint.nn.functional as F
from adjoint.autograd.gradcheck import gradcheck, gradgradcheck
from adjoint.base.errors import AdjointError, ArgumentError, DTypeError
from adjoint.func import grad, hessian, jvp, vmap

FUNCTIONS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "chain": (lambda x, y: ((x * y + x) * y - x) * 0.5 + y * y, [(65, 33), (65, 33)]),
    "one operand": (lambda x: (x * x).exp() - x.tanh() / 2, [(1000,)]),
    "bias": (lambda x, b: F.gelu(x + b, approximate="tanh"), [(40, 80), (80,)]),
    "three": (lambda x, b, r: r + F.silu(x + b) * ad.sigmoid(r), [(40, 80), (80,), (40, 1)]),
    "where": (lambda x, y, z: ad.where(x > y, x * z, y - 1) + ad.maximum(x, z),
              [(40, 70), (40, 70), (70,)]),
    "attributes": (lambda x, y: F.leaky_relu(x, 0.2) + F.softplus(y) + x.clamp(-1, 1) ** 2,
                   [(50, 50), (50, 50)]),
    "scalars": (lambda x, y: 2 / (1 + abs(x)) - y, [(), (3, 0)]),
}


def leaves(shapes: list[tuple[int, ...]], dtype: Any) -> list[Any]:
    rng = np.random.default_rng(0)
    return [ad.tensor(rng.standard_normal(s), dtype=dtype, requires_grad=True) for s in shapes]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [ad.float32, ad.float64])
def test_same_values_and_gradients_as_op_by_op(name: str, dtype: Any) -> None:
    f, shapes = FUNCTIONS[name]
    xs = leaves(shapes, dtype)
    tolerance = 4e-6 if dtype is ad.float32 else 1e-13
    fused, plain = ad.fuse(f)(*xs), f(*xs)
    assert fused.shape == plain.shape and fused.dtype == plain.dtype
    np.testing.assert_allclose(fused.detach().numpy(), plain.detach().numpy(), rtol=tolerance,
                               atol=tolerance)
    ct = ad.ones_like(plain) * 0.3
    for a, b in zip(ad.autograd.grad(fused, xs, ct), ad.autograd.grad(plain, xs, ct), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=30 * tolerance,
                                   atol=200 * tolerance)
    assert fused.grad_fn.name() == "FusedBackward0"


@pytest.mark.parametrize("name", ["chain", "three", "attributes"])
def test_derivatives_of_two_orders(name: str) -> None:
    f = ad.fuse(FUNCTIONS[name][0])
    xs = leaves([(3, 2)] * len(FUNCTIONS[name][1]), ad.float64)
    assert gradcheck(f, xs) and gradgradcheck(f, xs)


def test_transforms_go_through() -> None:
    def f(x: Any, y: Any, z: Any) -> Any:
        return (x * y).sin() + z * x
    fused = ad.fuse(f)
    x, y, z = (t.detach() for t in leaves([(4, 3)] * 3, ad.float64))
    for transform in (lambda g: vmap(g)(x, y, z), lambda g: vmap(grad(
            lambda a, b, c: g(a, b, c).sum()))(x, y, z), lambda g: jvp(
                g, (x, y, z), (y, z, x))[1], lambda g: hessian(
                    lambda a: g(a, y[0], z[0]).sum())(x[0])):
        np.testing.assert_allclose(transform(fused).numpy(), transform(f).numpy(), rtol=1e-12)


def test_one_node_keeps_operands_alone() -> None:
    x, y = leaves([(100, 100)] * 2, ad.float32)
    node = ad.fuse(lambda a, b: (a * b).tanh() * a + b)(x, y).grad_fn
    assert [n for n, _ in node.next_functions if type(n).__name__ != "AccumulateGrad"] == []
    assert len(node.saved) == 2


def test_several_results_and_other_arguments() -> None:
    @ad.fuse
    def f(x: Any, k: float, *, shift: float = 0.0) -> Any:
        return x * k + shift, x.exp()
    a, b = f(ad.ones(3), 2.0, shift=1.0)
    assert a.tolist() == [3.0, 3.0, 3.0] and b.shape == (3,)
    assert f(ad.ones(3), 3.0)[0].tolist() == [3.0, 3.0, 3.0]
    assert f.__name__ == "f"


def test_casts_that_change_nothing_are_dropped() -> None:
    f = ad.fuse(lambda x: x.float().clone() * 2)
    assert f(ad.ones(2)).tolist() == [2.0, 2.0]
    with pytest.raises(ArgumentError, match="to_dtype"):
        f(ad.ones(2, dtype=ad.float64))


def test_shape_of_a_symbol_can_be_read() -> None:
    f = ad.fuse(lambda x: x * x.shape[-1] ** -0.5)
    assert f(ad.ones(2, 4)).tolist() == [[0.5] * 4] * 2
    assert f(ad.ones(2, 16)).tolist() == [[0.25] * 16] * 2


W = ad.ones(3)


@pytest.mark.parametrize("f, error, text", [
    (lambda x: x.sum(), ArgumentError, "sum_all at .*test_func_fuse.py:.*not elementwise"),
    (lambda x: x @ x, ArgumentError, "not elementwise"),
    (lambda x: x + W, ArgumentError, r"a tensor of shape \[3\], which is no argument"),
    (lambda x: x if x > 0 else -x, AdjointError, "where"),
    (lambda x: x > 0, ArgumentError, "condition"),
    (lambda x: 3.0, ArgumentError, "computed from the tensors"),
    (lambda x: x * x.detach(), ArgumentError, "detach"),
])
def test_what_cannot_be_fused_is_named(f: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        ad.fuse(f)(ad.ones(3))


def test_dtypes_have_to_agree() -> None:
    f = ad.fuse(lambda x, y: x + y)
    with pytest.raises(DTypeError, match="share one dtype"):
        f(ad.ones(3), ad.ones(3, dtype=ad.float64))
    with pytest.raises(DTypeError, match="none"):
        f(1.0, 2.0)
    with pytest.raises(ArgumentError, match="hashable"):
        f(ad.ones(3), [1.0])
