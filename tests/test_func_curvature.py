"""Products with curvature matrices, against the matrices written out (F61)."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint import func as af

N, D, C = 7, 4, 3
RNG = np.random.default_rng(0)
X = ad.tensor(RNG.standard_normal((N, D)))
LABELS = ad.tensor(RNG.integers(0, C, N))
W = ad.tensor(RNG.standard_normal((D, C)))
V = ad.tensor(RNG.standard_normal((D, C)))


def logits(w: Any) -> Any:
    return ad.tanh(X @ w)


def mean_loss(z: Any) -> Any:
    return ad.nn.functional.cross_entropy(z, LABELS)


def loss(w: Any) -> Any:
    return mean_loss(logits(w))


def flat(m: Any) -> np.ndarray:
    """A derivative over (D, C), or over (D, C) twice, as a vector or a matrix."""
    array = m.detach().numpy()
    return array.reshape([D * C] * (array.ndim // 2))


@pytest.mark.row("F61")
def test_hessian_vector_product() -> None:
    """Forward over reverse, reverse over forward and the matrix agree, and so do differences."""
    h = flat(af.hessian(loss)(W))
    np.testing.assert_allclose(h, h.T, atol=1e-14)
    (gradient,), (product,) = af.hvp(loss, (W,), (V,))
    np.testing.assert_allclose(flat(gradient), flat(af.grad(loss)(W)), rtol=1e-13, atol=1e-16)
    np.testing.assert_allclose(flat(product), h @ flat(V), rtol=1e-10, atol=1e-14)
    _, (left,) = af.vhp(loss, (W,), (V,))
    np.testing.assert_allclose(flat(left), flat(V) @ h, rtol=1e-10, atol=1e-14)
    eps = 1e-6
    up, down = (af.grad(loss)(W + s * eps * V) for s in (1, -1))
    np.testing.assert_allclose(flat(product), (flat(up) - flat(down)) / (2 * eps), atol=1e-8)


@pytest.mark.row("F61")
def test_gauss_newton_product() -> None:
    """J^T H J v with the Jacobian of the outputs and the Hessian of the loss in them; positive
    semi-definite where the loss is convex in the outputs, which the Hessian itself is not here."""
    j = af.jacrev(logits)(W).numpy().reshape(N * C, D * C)
    inner = af.hessian(mean_loss)(logits(W)).numpy().reshape(N * C, N * C)
    matrix = j.T @ inner @ j
    (product,) = af.gauss_newton_product(logits, mean_loss, (W,), (V,))
    np.testing.assert_allclose(flat(product), matrix @ flat(V), rtol=1e-10, atol=1e-14)
    assert np.linalg.eigvalsh(matrix).min() > -1e-14
    assert np.linalg.eigvalsh(flat(af.hessian(loss)(W))).min() < -1e-4
    columns = [flat(af.gauss_newton_product(logits, mean_loss, (W,), (e,))[0])
               for e in ad.eye(D * C, dtype=ad.float64).reshape(D * C, D, C)]
    np.testing.assert_allclose(np.stack(columns), matrix, rtol=1e-9, atol=1e-13)


@pytest.mark.row("F61")
def test_fisher_product() -> None:
    """The mean of g g^T over examples. With the labels drawn from the model's own distribution it
    is the Gauss-Newton matrix of the cross-entropy (Martens 2014, section 9.2)."""
    def log_likelihood(w: Any, labels: Any = LABELS) -> Any:
        return -ad.nn.functional.cross_entropy(logits(w), labels, reduction="none")
    g = af.jacrev(log_likelihood)(W).numpy().reshape(N, D * C)
    (product,) = af.fisher_product(log_likelihood, (W,), (V,))
    np.testing.assert_allclose(flat(product), g.T @ (g @ flat(V)) / N, rtol=1e-10, atol=1e-14)

    p = ad.softmax(logits(W), 1).numpy()
    expected = np.zeros((D * C, D * C))
    for label in range(C):
        labels = ad.full((N,), label)
        g = af.jacrev(lambda w, y=labels: log_likelihood(w, y))(W).numpy().reshape(N, D * C)
        expected += (g * p[:, label:label + 1]).T @ g / N
    (newton,) = af.gauss_newton_product(logits, mean_loss, (W,), (V,))
    np.testing.assert_allclose(flat(newton), expected @ flat(V), rtol=1e-9, atol=1e-14)


@pytest.mark.row("F61")
def test_several_operands() -> None:
    """A product over two parameters is the product over their concatenation."""
    b = ad.tensor(RNG.standard_normal(C))
    c = ad.tensor(RNG.standard_normal(C))

    def outputs(w: Any, b: Any) -> Any:
        return X @ w + b
    whole = ad.cat([W, b[None]])
    along = ad.cat([V, c[None]])
    ones = ad.cat([X, ad.ones(N, 1, dtype=ad.float64)], 1)
    got = af.gauss_newton_product(outputs, mean_loss, (W, b), (V, c))
    (want,) = af.gauss_newton_product(lambda m: ones @ m, mean_loss, (whole,), (along,))
    np.testing.assert_allclose(got[0].numpy(), want[:D].numpy(), rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(got[1].numpy(), want[D].numpy(), rtol=1e-10, atol=1e-14)


@pytest.mark.row("F61")
def test_hutchinson_estimates() -> None:
    """Exact from one sample where the matrix is diagonal; within their spread where it is not."""
    d = ad.tensor([3.0, -1.0, 0.5], dtype=ad.float64)

    def product(z: Any) -> Any:
        return af.hvp(lambda x: 0.5 * (d * x * x).sum(), (d,), (z,))[1][0]
    assert af.hutchinson_trace(product, d, samples=1).item() == pytest.approx(2.5, rel=1e-12)
    np.testing.assert_allclose(af.hutchinson_diagonal(product, d, samples=1).numpy(), d.numpy(),
                               rtol=1e-12)
    h = flat(af.hessian(loss)(W))
    ad.manual_seed(0)
    count = 600
    trace = af.hutchinson_trace(lambda z: af.hvp(loss, (W,), (z,))[1][0], W, samples=count)
    # variance of one sample: 2 (|H|_F^2 - the diagonal's)
    spread = np.sqrt(2 * ((h ** 2).sum() - (np.diag(h) ** 2).sum()) / count)
    assert abs(trace.item() - np.trace(h)) < 4 * spread


@pytest.mark.row("F61")
def test_hutchinson_over_trees() -> None:
    """`like` may be a tree, such as a model's parameters; the diagonal has its structure."""
    like = {"w": ad.tensor(RNG.standard_normal((2, 3))), "b": [ad.tensor(RNG.standard_normal(4))]}

    def quartic(p: Any) -> Any:
        return (p["w"] ** 4).sum() + (p["b"][0] ** 3).sum()

    def product(z: Any) -> Any:
        return af.hvp(quartic, (like,), (z,))[1][0]
    want = 12 * like["w"].numpy() ** 2, 6 * like["b"][0].numpy()
    diagonal = af.hutchinson_diagonal(product, like, samples=1)
    np.testing.assert_allclose(diagonal["w"].numpy(), want[0], rtol=1e-12)
    np.testing.assert_allclose(diagonal["b"][0].numpy(), want[1], rtol=1e-12)
    trace = af.hutchinson_trace(product, like, samples=3).item()
    assert trace == pytest.approx(want[0].sum() + want[1].sum(), rel=1e-12)
    with pytest.raises(ValueError, match="structure of `like`, got 1 leaves for 2"):
        af.hutchinson_trace(lambda z: z["w"], like)
