"""Gradients where users get nan: branches not taken, roots, norms, degenerate decompositions.

The tables of docs/subgradients.md are run by test_docs; here are the orders, modes and limits.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import adjoint as ad
from adjoint.autograd import detect_anomaly, grad
from adjoint.kernels import alloc
from adjoint.memory import budget
from adjoint.utils.checkpoint import checkpoint

pytestmark = pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled",
                                       "ignore:Error detected in")

POINT = [0.0, 4.0, -1.0, 0.25]
# function, its domain, what stands for operands outside of it
BRANCHES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], float]] = {
    "sqrt": (ad.sqrt, lambda x: x > 0, 1.0),
    "log": (ad.log, lambda x: x > 0, 1.0),
    "x log x": (lambda x: x * ad.log(x), lambda x: x > 0, 1.0),
    "1/x": (lambda x: 1 / x, lambda x: x != 0, 1.0),
    "sinc": (lambda x: ad.sin(x) / x, lambda x: x != 0, 1.0),
    "power": (lambda x: x**-1.5, lambda x: x > 0, 1.0),
    "chain": (lambda x: ad.exp(ad.sqrt(ad.log(x + 1))) * 3 - x, lambda x: x > 0, 1.0),
    "shared": (lambda x: (lambda y: y * ad.log(y))(ad.sqrt(x)), lambda x: x > 0, 1.0),
    "nested": (lambda x: ad.where(x > 1, ad.sqrt(x - 1), ad.log(x)), lambda x: x > 0, 2.0),
    "acos": (ad.acos, lambda x: abs(x) < 1, 0.5),
}


def bare(name: str) -> Callable[[Any], Any]:
    f, domain, _ = BRANCHES[name]
    return lambda x: ad.where(domain(x), f(x), x * 2)


def masked(name: str) -> Callable[[Any], Any]:
    """The same function, written so that nothing bad is ever computed."""
    f, domain, inside = BRANCHES[name]
    return lambda x: ad.where(domain(x), f(ad.where(domain(x), x, inside)), x * 2)


def derivative(f: Callable[[Any], Any], x: Any, order: int) -> Any:
    y = f(x)
    for _ in range(order):
        (y,) = grad(y.sum(), x, create_graph=True)
    return y.detach().numpy()


@pytest.mark.parametrize("name", BRANCHES)
@pytest.mark.parametrize("order", [1, 2, 3])
def test_branches_not_taken_at_every_order(name: str, order: int) -> None:
    x = ad.tensor(POINT, dtype=ad.float64, requires_grad=True)
    with np.errstate(all="ignore"):
        got, wanted = derivative(bare(name), x, order), derivative(masked(name), x, order)
    np.testing.assert_allclose(got, wanted, rtol=1e-12)
    assert np.isfinite(wanted).all()


@pytest.mark.parametrize("name", BRANCHES)
def test_transforms(name: str) -> None:
    x = ad.tensor([POINT, POINT[::-1]], dtype=ad.float64)
    f, g = bare(name), masked(name)
    one = ad.func.vmap(ad.func.grad(lambda v: f(v).sum()))(x)
    np.testing.assert_allclose(one.numpy(), ad.func.vmap(
        ad.func.grad(lambda v: g(v).sum()))(x).numpy(), rtol=1e-12)
    def second(h: Any) -> Any:
        inner = ad.func.grad(lambda v: h(v).sum())
        return ad.func.vmap(ad.func.grad(lambda v: inner(v).sum()))(x).numpy()
    np.testing.assert_allclose(second(f), second(g), rtol=1e-12)
    row = x[0]
    for transform in (ad.func.jacrev, ad.func.jacfwd):
        np.testing.assert_allclose(transform(f)(row).numpy(), transform(g)(row).numpy(),
                                   rtol=1e-12)
    _, tangent = ad.func.jvp(f, (row,), (ad.ones_like(row),))
    _, expected = ad.func.jvp(g, (row,), (ad.ones_like(row),))
    np.testing.assert_allclose(tangent.numpy(), expected.numpy(), rtol=1e-12)


def test_hessian() -> None:
    row = ad.tensor(POINT, dtype=ad.float64)
    np.testing.assert_allclose(
        ad.func.hessian(lambda v: bare("x log x")(v).sum())(row).numpy(),
        ad.func.hessian(lambda v: masked("x log x")(v).sum())(row).numpy(), rtol=1e-12)


@given(st.lists(st.sampled_from([0.0, -1.0, 0.5, 2.0, 100.0]), min_size=1, max_size=6),
       st.lists(st.booleans(), min_size=6, max_size=6))
def test_any_mask(values: list[float], taken: list[bool]) -> None:
    """The condition need not be the domain: where a bad element is taken, it is bad."""
    x = ad.tensor(values, dtype=ad.float64, requires_grad=True)
    condition = ad.tensor(taken[:len(values)])
    ad.where(condition, ad.sqrt(x), x).sum().backward()
    with np.errstate(all="ignore"):
        expected = np.where(condition.numpy(), 0.5 / np.sqrt(values), 1.0)
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-12)


def test_a_use_outside_of_the_choice_counts() -> None:
    x = ad.tensor([0.0, 4.0], requires_grad=True)
    y = ad.sqrt(x)
    (ad.where(x > 0, y, 0.0) + y).sum().backward()
    assert x.grad.tolist() == [float("inf"), 0.5]


def test_two_choices_with_two_conditions() -> None:
    """Taken by the second: the infinite slope is real."""
    x = ad.tensor([0.0, 4.0], requires_grad=True)
    y = ad.sqrt(x)
    (ad.where(x > 0, y, 0.0) + ad.where(x < 1, y, 0.0)).sum().backward()
    assert x.grad.tolist() == [float("inf"), 0.25]


def test_masks_that_broadcast_and_operands_that_do() -> None:
    x = ad.tensor([[0.0, 4.0], [0.0, 9.0]], dtype=ad.float64, requires_grad=True)
    s = ad.tensor(2.0, dtype=ad.float64, requires_grad=True)
    keep = ad.tensor([False, True])
    ad.where(keep, ad.log(x) * s, 0.0).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [[0, 0.5], [0, 2 / 9]])
    np.testing.assert_allclose(float(s.grad), np.log(4) + np.log(9))


def test_float16_and_float32_keep_their_dtype() -> None:
    for dtype in (ad.float16, ad.float32):
        x = ad.tensor([0.0, 4.0], dtype=dtype, requires_grad=True)
        ad.where(x > 0, ad.sqrt(x), 0.0).sum().backward()
        assert x.grad.dtype == dtype and x.grad.tolist() == [0.0, 0.25]


def test_anomaly_mode_is_silent_on_a_masked_branch_and_not_on_a_product() -> None:
    x = ad.tensor([0.0, 4.0], requires_grad=True)
    with detect_anomaly(check_inf=True):
        ad.where(x > 0, ad.sqrt(x), 0.0).sum().backward()
    with pytest.raises(RuntimeError, match="SqrtBackward0"), detect_anomaly():
        (ad.sqrt(x) * ad.tensor([0.0, 1.0])).sum().backward()


@pytest.mark.parametrize("reentrant", [False, True])
def test_inside_of_a_checkpoint(reentrant: bool) -> None:
    x = ad.tensor([0.0, 4.0], requires_grad=True)
    y = checkpoint(lambda v: ad.where(v > 0, ad.sqrt(v.double()).float(), 0.0), x,
                   use_reentrant=reentrant)
    y.sum().backward()
    assert x.grad.tolist() == [0.0, 0.25]


@pytest.mark.skipif(not alloc.available(), reason="budgets need the counting allocator")
def test_under_a_budget() -> None:
    values = np.linspace(0, 4, 200_000, dtype=np.float32)

    def run() -> Any:
        x = ad.tensor(values, requires_grad=True)
        y = x
        for _ in range(3):
            y = ad.where(x > 0, ad.sqrt(y * y + x) * ad.log(x), x * 0.5)
        y.sum().backward()
        return x.grad.numpy()

    wanted = run()
    with budget(ad.memory.memory_allocated() + 9500000):
        got = run()
    assert np.isfinite(got).all()
    np.testing.assert_array_equal(got, wanted)


def test_retain_graph_and_two_passes_agree() -> None:
    x = ad.tensor([0.0, 4.0], requires_grad=True)
    y = ad.where(x > 0, ad.sqrt(x), 0.0).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [0.0, 0.5]


@pytest.mark.parametrize("n", [2, 3])
def test_degenerate_decompositions(n: int) -> None:
    a = ad.eye(n, dtype=ad.float64).requires_grad_()
    for f in (lambda m: ad.linalg.eigh(m)[0], lambda m: ad.linalg.svd(m)[1],
              lambda m: ad.linalg.eigvalsh(m)):
        (g,) = grad(f(a).sum(), a)
        np.testing.assert_allclose(g.numpy(), np.eye(n), atol=1e-12)
    for f in (lambda m: ad.linalg.eigh(m)[1], lambda m: ad.linalg.svd(m)[0],
              lambda m: ad.linalg.svd(m)[2]):
        (g,) = grad((f(a) ** 2).sum(), a)
        assert np.isfinite(g.numpy()).all()


def test_a_projector_onto_a_degenerate_subspace_is_exact() -> None:
    """Eigenvalues 1, 1, 3: the projector onto the first two is smooth; against differences."""
    base = np.diag([1.0, 1.0, 3.0])
    weights = np.arange(9.0).reshape(3, 3)

    def loss(m: Any) -> Any:
        v = ad.linalg.eigh((m + m.T) / 2)[1][:, :2]
        return (v @ v.T * ad.tensor(weights)).sum()

    a = ad.tensor(base, requires_grad=True)
    (g,) = grad(loss(a), a)
    numeric = np.zeros((3, 3))
    for i in range(3):
        for j in range(3):
            step = np.zeros((3, 3))
            step[i, j] = 1e-6
            high, low = loss(ad.tensor(base + step)), loss(ad.tensor(base - step))
            numeric[i, j] = (float(high) - float(low)) / 2e-6
    np.testing.assert_allclose(g.numpy(), numeric, atol=1e-7)


def test_log_sum_exp_of_what_is_impossible_at_every_order() -> None:
    """-inf has the weight 0, alone and among numbers, and so have its derivatives."""
    x = ad.tensor([[-np.inf, -np.inf], [-np.inf, 1.0], [0.0, np.log(3.0)]], requires_grad=True)
    (first,) = grad(ad.logsumexp(x, 1).sum(), x, create_graph=True)
    np.testing.assert_allclose(first.detach(), [[0, 0], [0, 1], [0.25, 0.75]], rtol=1e-6)
    (second,) = grad(first[:, 1].sum(), x)
    np.testing.assert_allclose(second, [[0, 0], [0, 0], [-3 / 16, 3 / 16]], rtol=1e-6)


def test_a_choice_slows_down_nothing_that_it_does_not_concern() -> None:
    """Nodes are visited one by one only while there is a branch to screen."""
    from adjoint.autograd.engine import Backward
    visited, seen = Backward.visit, []
    x = ad.tensor([0.0, 2.0], requires_grad=True)
    w = ad.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    mask = ad.tensor([True, False])
    y = ((w @ x) * 3.0 + 1.0).masked_fill(mask, 0.0)       # leads to an elementwise op
    z = (w @ x).masked_fill(mask, 0.0)                     # does not
    for loss, several in ((y.sum(), True), (z.sum(), False)):
        seen.clear()
        Backward.visit = lambda self, node: (seen.append(self.special), visited(self, node))[1]
        try:
            grad, = ad.autograd.grad(loss, x, retain_graph=True)
        finally:
            Backward.visit = visited
        assert any(seen) == several
        assert grad.tolist() == [9.0 if several else 3.0, 12.0 if several else 4.0]
