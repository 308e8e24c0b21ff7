"""nn.init: the distributions that are asked for, and the start of every layer (F96)."""
from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.nn import init


@pytest.mark.parametrize(("name", "kwargs", "low", "high", "std"), [
    ("uniform_", {"a": -1.0, "b": 3.0}, -1.0, 3.0, 4 / math.sqrt(12)),
    ("normal_", {"mean": 2.0, "std": 3.0}, -math.inf, math.inf, 3.0),
    ("trunc_normal_", {"std": 2.0, "a": -1.0, "b": 3.0}, -1.0, 3.0, None),
    ("xavier_uniform_", {"gain": 2.0}, -2 * math.sqrt(6 / 500), 2 * math.sqrt(6 / 500),
     2 * math.sqrt(2 / 500)),
    ("xavier_normal_", {}, -math.inf, math.inf, math.sqrt(2 / 500)),
    ("kaiming_uniform_", {"a": 1.0}, -math.sqrt(3 / 200), math.sqrt(3 / 200), math.sqrt(1 / 200)),
    ("kaiming_normal_", {"mode": "fan_out", "nonlinearity": "relu"}, -math.inf, math.inf,
     math.sqrt(2 / 300)),
])
def test_moments_and_bounds(name: str, kwargs: dict[str, float], low: float, high: float,
                            std: float | None) -> None:
    w = nn.Parameter(ad.empty(300, 200))
    assert getattr(init, name)(w, **kwargs) is w and w.requires_grad and w.is_leaf
    x = w.detach().numpy()
    assert x.min() >= low and x.max() <= high
    if std is not None:
        assert x.std() == pytest.approx(std, rel=0.02)
        assert x.mean() == pytest.approx(kwargs.get("mean", 1.0 if "b" in kwargs else 0.0),
                                         abs=0.02 * std * 2)


def test_truncated_normal_has_the_right_distribution() -> None:
    x = np.sort(init.trunc_normal_(ad.empty(20000), 0.5, 2.0, -1.0, 3.0).numpy())
    cdf = np.array([0.5 * (1 + math.erf((v - 0.5) / 2 / math.sqrt(2))) for v in (*x, -1.0, 3.0)])
    expected = (cdf[:-2] - cdf[-2]) / (cdf[-1] - cdf[-2])
    assert np.abs(expected - (np.arange(x.size) + 0.5) / x.size).max() < 0.02  # Kolmogorov-Smirnov
    with pytest.warns(UserWarning, match="more than 2 std"):
        init.trunc_normal_(ad.empty(3), 10.0, 1.0, -1.0, 1.0)


def test_fixed_values() -> None:
    torch = pytest.importorskip("torch")
    for name, args, shape in (
            ("constant_", (2.5,), (2, 3)), ("ones_", (), (2, 3)), ("zeros_", (), (2, 3)),
            ("eye_", (), (2, 3)), ("dirac_", (), (4, 2, 3)), ("dirac_", (2,), (4, 2, 3, 3)),
            ("dirac_", (), (2, 3, 2, 3, 5))):
        ours = getattr(init, name)(ad.full(shape, 7.0), *args)
        peer = getattr(torch.nn.init, name)(torch.full(shape, 7.0), *args)
        assert ours.tolist() == peer.tolist()


@pytest.mark.parametrize("shape", [(5, 5), (3, 7), (7, 3), (4, 2, 3)])
def test_orthogonal(shape: tuple[int, ...]) -> None:
    w = init.orthogonal_(ad.empty(shape, dtype=ad.float64), gain=2.0).numpy().reshape(shape[0], -1)
    gram = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
    np.testing.assert_allclose(gram, 4 * np.eye(len(gram)), atol=1e-12)


def test_sparse_zeroes_the_same_number_in_each_column() -> None:
    w = init.sparse_(ad.empty(10, 20), sparsity=0.25, std=1.0).numpy()
    assert ((w == 0).sum(0) == 3).all() and w.std() > 0.5


def test_generators_make_draws_repeatable() -> None:
    draw = lambda: init.normal_(ad.empty(5), generator=ad.Generator().manual_seed(3))  # noqa: E731
    assert ad.equal(draw(), draw())
    ad.manual_seed(7)
    a = nn.Linear(3, 3).weight
    ad.manual_seed(7)
    assert ad.equal(a, nn.Linear(3, 3).weight)


def test_gains_equal_torch() -> None:
    torch = pytest.importorskip("torch")
    for name in (*init._LINEAR, "sigmoid", "tanh", "relu", "leaky_relu", "selu"):
        assert init.calculate_gain(name) == torch.nn.init.calculate_gain(name)
    assert init.calculate_gain("leaky_relu", 0.3) == torch.nn.init.calculate_gain("leaky_relu", 0.3)


@pytest.mark.parametrize("act", [
    lambda: init.calculate_gain("swish"), lambda: init.calculate_gain("leaky_relu", "x"),
    lambda: init.eye_(ad.empty(2)), lambda: init.dirac_(ad.empty(2, 2)),
    lambda: init.dirac_(ad.empty(3, 2, 2), groups=2), lambda: init.xavier_normal_(ad.empty(3)),
    lambda: init.kaiming_normal_(ad.empty(3, 3), mode="fan"), lambda: init.orthogonal_(ad.empty(3)),
    lambda: init.sparse_(ad.empty(3), 0.5)])
def test_bad_arguments(act: Any) -> None:
    with pytest.raises(ValueError):
        act()


def test_old_names_warn_and_work() -> None:
    with pytest.warns(FutureWarning, match="nn.init.constant_"):
        assert init.constant(ad.empty(1), 3.0).item() == 3.0


@pytest.mark.parametrize(("make", "bound"), [
    (lambda: nn.Linear(100, 50), 0.1), (lambda: nn.Bilinear(100, 3, 20), 0.1),
    (lambda: nn.Conv2d(4, 30, 5), 0.1), (lambda: nn.LSTM(7, 100), 0.1),
    (lambda: nn.GRUCell(7, 100), 0.1), (lambda: nn.ConvTranspose1d(30, 20, 5), 0.1)])
def test_layers_start_uniform_within_the_documented_bound(make: Any, bound: float) -> None:
    for p in make().parameters():
        x = np.abs(p.detach().numpy())
        assert x.max() <= bound and x.max() > 0.7 * bound
