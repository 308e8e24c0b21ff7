"""The examples of transforms: they run, and what they compute is right (F15, F116, F118)."""
from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import adjoint as ad
from adjoint import func as af

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def load(name: str) -> ModuleType:
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["per_sample_clipping", "newton_cg", "maml", "neural_ode"])
def test_prints(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """main() runs to its end and says something."""
    load(name).main()
    assert capsys.readouterr().out.strip()


def test_per_sample_gradients() -> None:
    """Equal to a loop over examples; after clipping every norm is at most the limit."""
    m = load("per_sample_clipping")
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
    m = load("newton_cg")
    x, _ = m.minimise(m.rosenbrock, ad.zeros(6, dtype=ad.float64))
    np.testing.assert_allclose(x.numpy(), np.ones(6), atol=1e-7)
    a = ad.tensor(np.diag([1.0, 10.0, 100.0]))
    x, steps = m.minimise(lambda v: 0.5 * (v * (a @ v)).sum() - v.sum(),
                          ad.zeros(3, dtype=ad.float64))
    np.testing.assert_allclose(x.numpy(), [1.0, 0.1, 0.01], atol=1e-8)
    assert steps <= 12


def test_maml() -> None:
    """The outer gradient is that of the loop over tasks, through the inner step; it learns."""
    m = load("maml")
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
    """Three routes and central differences agree."""
    m = load("neural_ode")
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
