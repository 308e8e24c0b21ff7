"""Derivatives of derivatives under vmap: residuals that are outputs of mapped ops."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adjoint as ad

CASES: dict[str, Callable[[Any, Any], Any]] = {
    "sqrt": lambda m, x: m.sqrt(x),
    "exp": lambda m, x: m.exp(x),
    "tanh": lambda m, x: m.tanh(x),
    "power": lambda m, x: x**2.5,
    "reciprocal": lambda m, x: 1 / m.sqrt(x),
    "product": lambda m, x: m.prod(x) * m.sum(x * x),
    "cumulative": lambda m, x: m.cumsum(x, 0) ** 3,
    "choice": lambda m, x: m.where(x > 1.5, m.sqrt(x) * m.log(x), x**3),
}
POINTS = np.array([[1.0, 4.0], [9.0, 2.0]])


def chain(grad: Any, total: Callable[[Any], Any], order: int) -> Callable[[Any], Any]:
    f = total
    for _ in range(order - 1):
        f = (lambda inner: lambda v: grad(inner)(v).sum())(f)
    return grad(f)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("name", CASES)
def test_orders_under_vmap_equal_jaxs(name: str, order: int) -> None:
    jax = pytest.importorskip("jax")
    f = CASES[name]
    with jax.enable_x64(True):
        theirs = jax.vmap(chain(jax.grad, lambda v: f(jax.numpy, v).sum(), order))(
            jax.numpy.asarray(POINTS))
        wanted = np.asarray(theirs)
    ours = ad.func.vmap(chain(ad.func.grad, lambda v: f(ad, v).sum(), order))(ad.tensor(POINTS))
    np.testing.assert_allclose(ours.numpy(), wanted, rtol=1e-9, atol=1e-12)


def test_second_derivative_of_a_mapped_root() -> None:
    """-1/4 x^(-3/2)."""
    ours = ad.func.vmap(chain(ad.func.grad, lambda v: ad.sqrt(v).sum(), 2))(ad.tensor(POINTS))
    np.testing.assert_allclose(ours.numpy(), -0.25 * POINTS**-1.5, rtol=1e-12)


def nodes(roots: list[Any]) -> list[str]:
    """The names of all nodes that lead to tensors, leaves left out."""
    seen: dict[int, Any] = {}
    open_ = [r.grad_fn for r in roots]
    while open_:
        node = open_.pop()
        if node is not None and id(node) not in seen:
            seen[id(node)] = node
            open_ += [f for f, _ in node.next_functions]
    return sorted(n.name() for n in seen.values() if "Accumulate" not in n.name())


def test_a_derivative_of_a_product_is_one_node_at_every_order() -> None:
    a, b = ad.ones(2, 3, requires_grad=True), ad.ones(3, 4, requires_grad=True)
    ct = ad.ones(2, 4, requires_grad=True)
    first = ad.autograd.grad(a @ b, (a, b), ct, create_graph=True)
    assert nodes([*first]) == ["MmBackward0"] * 2
    second = ad.autograd.grad([*first], (a, b, ct), [ad.ones(2, 3, requires_grad=True),
                                                     ad.ones(3, 4)], create_graph=True)
    assert not [n for n in nodes([*second]) if n not in ("MmBackward0", "AddBackward0")]


@pytest.mark.parametrize("dtype", [ad.float64, ad.complex128])
@pytest.mark.parametrize("call", [lambda x, w: x @ w.mT, ad.nn.functional.linear])
def test_orders_of_a_product_are_what_they_are(call: Any, dtype: Any) -> None:
    x = ad.tensor([[1.0, 2.0]], dtype=dtype, requires_grad=True)
    w = ad.tensor([[3.0, 5.0], [7.0, 11.0]], dtype=dtype, requires_grad=True)
    y = call(x, w)
    gx, gw = ad.autograd.grad((y * y).sum().real, (x, w), create_graph=True)
    assert y.tolist() == [[13, 29]]
    assert gx.tolist() == [[2 * (13 * 3 + 29 * 7), 2 * (13 * 5 + 29 * 11)]]
    assert gw.tolist() == [[26, 52], [58, 116]]
    hx, hw = ad.autograd.grad(gx.sum().real, (x, w))
    # sum(gx) = 2 Σ_i y_i s_i, where s_i is the sum of row i: 8 and 18
    assert hx.tolist() == [[2 * (8 * 3 + 18 * 7), 2 * (8 * 5 + 18 * 11)]]
    assert hw.tolist() == [[2 * (8 * 1 + 13), 2 * (8 * 2 + 13)],
                           [2 * (18 * 1 + 29), 2 * (18 * 2 + 29)]]


def test_derivatives_of_products_under_vmap_share_one_operand() -> None:
    rng = np.random.default_rng(0)
    a, b, ct = (ad.tensor(rng.normal(size=s)) for s in ((5, 2, 3), (3, 4), (5, 2, 4)))

    def pulled(a: Any, ct: Any) -> Any:
        return ad.func.vjp(lambda a, b: a @ b, a, b)[1](ct)

    for axes in ((0, 0), (0, None), (None, 0)):
        left, right = (v if i == 0 else v[0] for v, i in zip((a, ct), axes, strict=True))
        da, db = ad.func.vmap(pulled, in_dims=axes)(left, right)
        for i in range(5):
            x, y = (v[i] if k == 0 else v for v, k in zip((left, right), axes, strict=True))
            np.testing.assert_allclose(da[i].numpy(), y.numpy() @ b.numpy().T, rtol=1e-12)
            np.testing.assert_allclose(db[i].numpy(), x.numpy().T @ y.numpy(), rtol=1e-12)


@pytest.mark.parametrize("inner", [0, 1, (0, 1)])
@pytest.mark.parametrize("outer", [0, 1])
def test_a_gradient_of_a_gradient_leaves_no_tape(inner: Any, outer: int) -> None:
    """Also where the inner transform's variables are not those of the outer one."""
    x, y = ad.tensor([2.0]), ad.tensor([3.0])

    def squares(x: Any, y: Any) -> Any:
        found = ad.func.grad(lambda x, y: (x * x * y).sum(), inner)(x, y)
        return sum((g * g).sum() for g in (found if type(found) is tuple else (found,)))

    got = ad.func.grad(squares, outer)(x, y)
    # (2xy)² and (x²)², by x and by y
    wanted = {0: (8 * 2 * 9, 8 * 4 * 3), 1: (4 * 8, 0)}
    keys = (inner,) if type(inner) is int else inner
    assert got.tolist() == [sum(wanted[k][outer] for k in keys)]
    assert not got.requires_grad and got.grad_fn is None
    held = ad.tensor([1.0], requires_grad=True)          # one that somebody may still ask for
    got = ad.func.grad(lambda y: squares(x * held, y) * y.sum())(y)
    assert got.requires_grad
