"""`nn.grad` and the functions of fractional pooling, against PyTorch and autograd (F123)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers_ops import R

import adjoint as ad
import adjoint.nn.functional as F
from adjoint.nn import grad

FORMS: list[dict[str, Any]] = [
    {}, {"stride": 2, "padding": 1}, {"dilation": 2, "padding": 2}, {"groups": 2}]


@pytest.mark.parametrize("kwargs", FORMS, ids=repr)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_gradients_of_convolutions(n: int, kwargs: dict[str, Any]) -> None:
    x = ad.tensor(R(2, 4, *(7,) * n), requires_grad=True)
    w = ad.tensor(R(6, 4 // kwargs.get("groups", 1), *(3,) * n), requires_grad=True)
    out = getattr(F, f"conv{n}d")(x, w, **kwargs)
    ct = ad.tensor(R(*out.shape), requires_grad=True)
    gx, gw = ad.autograd.grad(out, (x, w), ct)
    mine = getattr(grad, f"conv{n}d_input")(x.shape, w, ct, **kwargs)
    ad.testing.assert_close(mine, gx)
    ad.testing.assert_close(getattr(grad, f"conv{n}d_weight")(x, w.shape, ct, **kwargs), gw)
    again = ad.autograd.grad(mine.square().sum(), (w, ct))
    assert all(g.abs().sum() > 0 for g in again)
    torch = pytest.importorskip("torch")
    theirs = getattr(torch.nn.grad, f"conv{n}d_input")(
        tuple(x.shape), *(torch.tensor(t.detach().numpy()) for t in (w, ct)), **kwargs)
    np.testing.assert_allclose(mine.detach().numpy(), theirs.numpy(), rtol=1e-9, atol=1e-9)


def test_complex_weights_are_conjugated() -> None:
    x = ad.tensor(R(1, 1, 5) + 1j * R(1, 1, 5), requires_grad=True)
    w = ad.tensor(R(1, 1, 3) + 1j * R(1, 1, 3), requires_grad=True)
    out = F.conv1d(x, w)
    ct = ad.tensor(R(1, 1, 3) + 1j * R(1, 1, 3))
    gx, gw = ad.autograd.grad(out, (x, w), ct)
    ad.testing.assert_close(grad.conv1d_input(x.shape, w.detach(), ct), gx)
    ad.testing.assert_close(grad.conv1d_weight(x.detach(), w.shape, ct), gw)


def test_the_number_of_axes_is_checked() -> None:
    with pytest.raises(ValueError, match="conv2d_input: input, weight and grad_output must have 4"):
        grad.conv2d_input((1, 1, 5), ad.ones(1, 1, 3), ad.ones(1, 1, 3))


@pytest.mark.parametrize("size", [{"output_size": 3}, {"output_ratio": (0.5, 0.4, 0.6)}], ids=repr)
@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("batched", [True, False])
def test_fractional_pooling_with_given_draws(n: int, size: dict[str, Any], batched: bool) -> None:
    torch = pytest.importorskip("torch")
    size = {k: v[:n] if isinstance(v, tuple) else v for k, v in size.items()}
    x, draws = R(2, 3, *(8,) * n), np.random.default_rng(0).uniform(size=(2, 3, n))
    if not batched:
        x, draws = x[0], draws[:1]
    found = []
    for t in (ad, torch):
        operand = t.tensor(x, requires_grad=True)
        pool = getattr(t.nn.functional, f"fractional_max_pool{n}d")
        values, places = pool(operand, 2, return_indices=True, _random_samples=t.tensor(draws),
                              **size)
        values.square().sum().backward()
        found.append((values.detach().numpy(), places.numpy(), operand.grad.numpy()))
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_fractional_pooling_draws_and_refuses() -> None:
    x = ad.arange(36.0).reshape(1, 1, 6, 6)
    out, places = F.fractional_max_pool2d_with_indices(x, 2, output_size=(3, 4))
    assert out.shape == (1, 1, 3, 4)
    assert x.flatten()[places.flatten()].tolist() == out.flatten().tolist()
    with pytest.raises(ValueError, match="either an output_size or an output_ratio"):
        F.fractional_max_pool2d(x, 2)
    with pytest.raises(ValueError, match="kernel size 5 and output size 3 do not fit an axis of 6"):
        F.fractional_max_pool2d(x, 5, 3)
    with pytest.raises(ValueError, match="a number per plane and axis"):
        F.fractional_max_pool2d(x, 2, 3, _random_samples=ad.zeros(1, 1, 3))
    with pytest.raises(ValueError, match="with 3 axes after C"):
        F.fractional_max_pool3d(x[0, 0], 2, 3)
