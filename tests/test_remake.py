"""Residuals that are made again: the activation before a linear layer (issue 5, item 7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.core.bind import remaking
from adjoint.core.tensor import Packed
from adjoint.memory import predict, track
from adjoint.ops.accelerate import ON

F = ad.nn.functional
SHAPE = (512, 512)                          # 1 MB, the least that is made again
pytestmark = pytest.mark.skipif(not ON, reason="without kernels activations are kept")


def leaf(*shape: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return ad.tensor(rng.standard_normal(shape).astype(np.float32), requires_grad=True)


def product(f: Callable[[Any], Any], h: Any, w: Any) -> Any:
    return F.linear(f(h), w)


def packed(y: Any) -> bool:
    return any(type(s) is Packed for s in y.grad_fn.saved)


ACTIVATIONS = {
    "gelu": F.gelu, "gelu tanh": lambda h: F.gelu(h, approximate="tanh"), "silu": F.silu,
    "leaky": lambda h: F.leaky_relu(h, 0.1), "product": lambda h: h * (h * 0.5)}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gradients_of_both_orders_have_the_same_bits(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    h, w = leaf(*SHAPE), leaf(8, SHAPE[1], seed=1)
    found = []
    for least in (remaking.least_bytes, 1 << 60):
        monkeypatch.setattr(remaking, "least_bytes", least)
        F.linear.plans.table.clear()         # a plan is right for the bound it was made under
        y = product(ACTIVATIONS[name], h, w)
        assert packed(y) == (least < 1 << 60)
        first = ad.autograd.grad(y.square().sum(), [h, w], create_graph=True)
        again = ad.autograd.grad(sum(g.square().sum() for g in first), [h, w])
        found.append([g.detach().numpy() for g in (*first, *again)])
    F.linear.plans.table.clear()
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_prediction_is_exact_and_the_result_is_not_kept() -> None:
    h, w = leaf(*SHAPE), leaf(SHAPE[1], SHAPE[1], seed=1)

    def step() -> None:
        product(F.gelu, h * 2.0, w).sum().backward()
        h.grad = w.grad = None

    step()
    with track(h, w) as measured:
        step()
    report = predict(step)
    assert report.exact and report.tops == measured.tops
    assert report.saved == h.nbytes                       # h * 2; not the result of gelu


def test_what_is_kept_as_it_is() -> None:
    """Small results, relu's own result, what was written to, and what hooks want to see."""
    w = leaf(8, SHAPE[1], seed=1)
    assert not packed(product(F.gelu, leaf(8, SHAPE[1]), w))
    assert not packed(product(F.relu, leaf(*SHAPE), w))
    assert not packed(product(lambda h: F.gelu(h).mul_(2.0), leaf(*SHAPE), w))

    def written(h: Any) -> Any:
        x = F.gelu(h)
        with ad.no_grad():
            x.mul_(2.0)
        return x
    assert not packed(product(written, leaf(*SHAPE), w))
    seen: list[Any] = []
    with ad.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t.shape) or t, lambda t: t):
        product(F.gelu, leaf(*SHAPE), w)
    assert len(seen) == 3                                  # gelu's operand, its result, the weight


@pytest.mark.parametrize("name", ["gelu", "silu", "relu", "tanh"])
def test_dropout_of_an_activation_is_made_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From what the activation keeps, its operand or its result, and a bit per element."""
    f, h, w = getattr(F, name), leaf(*SHAPE), leaf(8, SHAPE[1], seed=1)
    found = []
    for least in (remaking.least_bytes, 1 << 60):
        monkeypatch.setattr(remaking, "least_bytes", least)
        ad.manual_seed(3)
        y = product(lambda h: F.dropout(f(h), 0.25), h, w)
        assert packed(y) == (least < 1 << 60)
        first = ad.autograd.grad(y.square().sum(), [h, w], create_graph=True)
        again = ad.autograd.grad(sum(g.square().sum() for g in first), [h, w])
        found.append([g.detach().numpy() for g in (y, *first, *again)])
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_dropout_whose_operand_was_written_to_is_kept() -> None:
    """What the activation keeps does not lead to it; nor is there an activation before."""
    h, w = leaf(*SHAPE), leaf(8, SHAPE[1], seed=1)

    def written(h: Any) -> Any:
        x = F.gelu(h)
        with ad.no_grad():
            x.mul_(2.0)
        return F.dropout(x, 0.25)
    assert not packed(product(written, h, w))
    assert not packed(product(lambda h: F.dropout(F.gelu(h).mul_(2.0), 0.25), h, w))
    assert not packed(product(lambda h: F.dropout(F.gelu(h), 0.25, inplace=True), h, w))
    assert not packed(product(lambda h: F.dropout(F.gelu(h), 0.25).mul_(2.0), h, w))
    assert not packed(product(lambda h: F.dropout(h, 0.25), h, w))
    assert not packed(product(lambda h: F.dropout(h + 1.0, 0.25), h, w))


@pytest.mark.parametrize(("p", "shape"), [(0.0, (1, 384)), (0.1, (1, 384)), (0.1, (3, 128))])
def test_the_block_of_the_sources(p: float, shape: tuple[int, int]) -> None:
    """Issue 5.7: width 512, 8 heads, float32: 52 bytes per position and feature at most, also with
    dropout at its three places, of few scores and of many; predicted = kept, a bit for each element
    that may be dropped."""
    ad.manual_seed(0)
    layer = ad.nn.TransformerEncoderLayer(512, 8, dropout=p, activation="gelu", batch_first=True)
    x = ad.randn(*shape, 512, requires_grad=True)
    held: list[Any] = []
    report = predict(lambda: held.append(layer(x)))
    with track(layer, x) as measured:
        held.append(layer(x))
    grown = measured.live - measured.before
    assert report.exact and report.live - report.before == grown
    assert grown == held[-1].nbytes + measured.saved
    assert grown <= 52 * x.array.size


def test_frozen_weight_and_second_backward() -> None:
    h, w = leaf(*SHAPE), leaf(8, SHAPE[1], seed=1)
    y = product(F.gelu, h, w.detach())
    assert not packed(y) and len(y.grad_fn.saved_tensors) == 1
    loss = product(F.gelu, h, w).sum()
    loss.backward(retain_graph=True)
    once = w.grad.numpy().copy()
    loss.backward()
    np.testing.assert_array_equal(w.grad.numpy(), 2 * once)
    with pytest.raises(RuntimeError, match="a second time"):
        loss.backward()


def test_operand_that_was_written_to_is_refused() -> None:
    h, w = leaf(*SHAPE) * 1.0, leaf(8, SHAPE[1], seed=1)
    loss = product(F.gelu, h, w).sum()
    h.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_result_may_be_written_to() -> None:
    """Unlike a kept result: what is made again does not see the write."""
    h, w = leaf(*SHAPE), leaf(8, SHAPE[1], seed=1)
    want = ad.autograd.grad(product(F.gelu, h, w).sum(), w)[0]
    x = F.gelu(h)
    loss = F.linear(x, w).sum()
    with ad.no_grad():
        x.zero_()
    np.testing.assert_array_equal(ad.autograd.grad(loss, w)[0].numpy(), want.numpy())
