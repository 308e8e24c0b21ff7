"""The examples of transforms: they run, and what they compute is right (F15, F116, F118)."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from helpers_loading import load

import adjoint as ad
from adjoint import func as af

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.mark.row("F116", "F118")
@pytest.mark.parametrize("name", ["per_sample_clipping", "newton_cg", "maml", "neural_ode", "gmm",
                                  "gaussian_process", "kfac"])
def test_prints(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """main() runs to its end and says something."""
    load(f"examples/{name}.py").main()
    assert capsys.readouterr().out.strip()


def test_per_sample_gradients() -> None:
    """F118: equal to a loop over examples; after clipping every norm is at most the limit."""
    m = load("examples/per_sample_clipping.py")
    model = ad.nn.Linear(3, 2)
    params = {n: p.detach() for n, p in model.named_parameters()}
    x, y = ad.randn(5, 3), ad.randn(5, 2)
    got = m.per_sample_gradients(model, params, x, y)
    for i in range(5):
        want = af.grad(lambda p, i=i: ((af.functional_call(model, p, x[i]) - y[i]) ** 2).sum())(
            params)
        for n in params:
            np.testing.assert_allclose(got[n][i].detach().numpy(), want[n].numpy(), rtol=1e-4,
                                       atol=1e-5)
    one = {n: g[:1] for n, g in got.items()}
    clipped = m.clipped_mean(one, limit=0.1)
    norm = sum(float((g ** 2).sum()) for g in clipped.values()) ** 0.5
    assert norm == pytest.approx(0.1, rel=1e-4)
    before, after = m.train()
    assert after < 0.7 * before


def test_newton_cg() -> None:
    """It finds Rosenbrock's minimum, and a quadratic's in few steps."""
    m = load("examples/newton_cg.py")
    x, _ = m.minimise(m.rosenbrock, ad.zeros(6, dtype=ad.float64))
    np.testing.assert_allclose(x.numpy(), np.ones(6), atol=1e-7)
    a = ad.tensor(np.diag([1.0, 10.0, 100.0]))
    x, steps = m.minimise(lambda v: 0.5 * (v * (a @ v)).sum() - v.sum(),
                          ad.zeros(3, dtype=ad.float64))
    np.testing.assert_allclose(x.numpy(), [1.0, 0.1, 0.01], atol=1e-8)
    assert steps <= 12


def test_maml() -> None:
    """The outer gradient is that of the loop over tasks, through the inner step; it learns."""
    m = load("examples/maml.py")
    ad.manual_seed(0)
    p, tasks = m.initial(), m.sines(3)

    def looped(p: dict[str, ad.Tensor]) -> ad.Tensor:
        each = [m.loss(m.adapted(p, t[0][i], t[1][i]), t[2][i], t[3][i])
                for t in (tasks,) for i in range(3)]
        return sum(each[1:], each[0]) / 3
    got, want = af.grad(m.meta_loss)(p, tasks), af.grad(looped)(p)
    for n in p:
        np.testing.assert_allclose(got[n].numpy(), want[n].numpy(), rtol=1e-3, atol=1e-5)
    before, after = m.train(60)
    assert after < 0.7 * before


def test_ode_sensitivities() -> None:
    """F116: three routes and central differences agree."""
    m = load("examples/neural_ode.py")
    p = ad.tensor([1.1, 0.4, 0.4, 0.1], dtype=ad.float64)
    u0 = ad.tensor([10.0, 5.0], dtype=ad.float64)

    def last(p: ad.Tensor, segments: str | None = None) -> ad.Tensor:
        return m.solve(m.lotka_volterra, p, u0, 20, 0.05, segments)[-1]
    want = af.jacfwd(last)(p).numpy()
    np.testing.assert_allclose(af.jacrev(last)(p).numpy(), want, rtol=1e-10)
    np.testing.assert_allclose(af.jacrev(lambda p: last(p, "sqrt"))(p).numpy(), want, rtol=1e-10)
    for j in range(4):
        e = np.zeros(4)
        e[j] = 1e-6
        d = (last(p + ad.tensor(e)) - last(p - ad.tensor(e))).numpy() / 2e-6
        np.testing.assert_allclose(want[:, j], d, rtol=1e-6)


def slopes(f: Callable[[np.ndarray], float], x: np.ndarray, h: float = 1e-6) -> np.ndarray:
    """The gradient by central differences."""
    out = np.zeros_like(x)
    for at in np.ndindex(x.shape):
        e = np.zeros_like(x)
        e[at] = h
        out[at] = (f(x + e) - f(x - e)) / (2 * h)
    return out


def test_mixture_likelihood() -> None:
    """Equal to the densities written out; forward, reverse and differences agree; it is fitted
    (F116)."""
    m = load("examples/gmm.py")
    rng = np.random.default_rng(1)
    k, d, n = 3, 4, 7
    p = {"weights": ad.tensor(rng.normal(size=k)), "means": ad.tensor(rng.normal(size=(k, d))),
         "diagonal": ad.tensor(0.3 * rng.normal(size=(k, d))),
         "off": ad.tensor(rng.normal(size=(k, d * (d - 1) // 2)))}
    x = ad.tensor(rng.normal(size=(n, d)))
    w = np.exp(p["weights"].numpy())
    want = 0.0
    for row in x.numpy():
        total = 0.0
        for j in range(k):
            q = np.diag(np.exp(p["diagonal"][j].numpy())) + m.lower(p["off"], d)[j].numpy()
            off = q @ (row - p["means"][j].numpy())
            total += w[j] / w.sum() * np.linalg.det(q) * np.exp(-0.5 * off @ off) / (
                2 * np.pi) ** (d / 2)
        want += np.log(total)
    assert m.log_likelihood(p, x).item() == pytest.approx(want, rel=1e-12)
    for name in p:
        def f(v: ad.Tensor, name: str = name) -> ad.Tensor:
            return m.log_likelihood({**p, name: v}, x)
        g = af.grad(f)(p[name]).numpy()
        np.testing.assert_allclose(af.jacfwd(f)(p[name]).numpy(), g, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(slopes(lambda a, f=f: f(ad.tensor(a)).item(), p[name].numpy()),
                                   g, rtol=1e-6, atol=1e-6)
    fitted, value = m.fit(m.blobs(), 2)
    assert value.item() > -2.4
    assert np.sort(fitted["means"][:, 0].numpy()) == pytest.approx([-4.0, 4.0], abs=0.4)


def test_gaussian_process() -> None:
    """The gradient is equation 5.9 of Rasmussen and Williams; the fit is a maximum; it predicts
    (F116)."""
    m = load("examples/gaussian_process.py")
    x, y = m.data()
    theta = ad.tensor([0.1, -0.2, -1.5], dtype=ad.float64)
    n = len(x)

    def covariance(t: ad.Tensor) -> ad.Tensor:
        return m.kernel(t, x, x) + ad.exp(2 * t[2]) * ad.eye(n, dtype=ad.float64)
    inverse = np.linalg.inv(covariance(theta).numpy())
    alpha = inverse @ y.numpy()
    slope = af.jacfwd(covariance)(theta).numpy()
    want = [0.5 * np.trace((np.outer(alpha, alpha) - inverse) @ slope[..., j]) for j in range(3)]
    np.testing.assert_allclose(af.grad(m.log_marginal)(theta, x, y).numpy(), want, rtol=1e-8)
    best = m.fit(x, y, ad.zeros(3, dtype=ad.float64))
    assert af.grad(m.log_marginal)(best, x, y).norm().item() < 1e-6
    assert (np.linalg.eigvalsh(af.hessian(m.log_marginal)(best, x, y).numpy()) < 0).all()
    at = np.linspace(0.5, 5.5, 11)
    mean, _ = m.predict(best, x, y, ad.tensor(at))
    np.testing.assert_allclose(mean.numpy(), np.sin(at), atol=0.15)


def test_kronecker_factors() -> None:
    """For one linear layer and one class of inputs the factors give the exact Fisher matrix; both
    methods reach a lower loss than gradient descent does."""
    m = load("examples/kfac.py")
    rng = np.random.default_rng(0)
    ws = [ad.tensor(rng.normal(size=(3, 3)))]
    x = ad.tensor(np.repeat(rng.normal(size=(1, 2)), 4000, 0))
    y = ad.zeros(4000, dtype=ad.int64)
    ad.manual_seed(0)
    grads, (a,), (g,) = m.statistics(ws, x, y)
    want = af.grad(lambda w: m.loss([w], x, y))(ws[0])
    np.testing.assert_allclose(grads[0].numpy(), want.numpy(), rtol=1e-9)
    row = np.append(x[0].numpy(), 1.0)
    p = ad.softmax(ad.tensor(row) @ ws[0].T, 0).numpy()
    np.testing.assert_allclose(a.numpy(), np.outer(row, row), rtol=1e-9)
    np.testing.assert_allclose(g.numpy(), np.diag(p) - np.outer(p, p), atol=0.03)
    plain, shampoo, kfac = (m.train(method) for method in ("sgd", "shampoo", "kfac"))
    assert kfac < 0.5 * plain and shampoo < 0.9 * plain
