"""Checkpoints inside of transforms: the gradients of the plain program, and less memory (F54, F60).
"""
from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint import func as af
from adjoint.base.errors import AutogradError
from adjoint.utils.checkpoint import checkpoint

WIDTH, ROWS, BLOCKS, STEPS = 2048, 16, 8, 8
RNG = np.random.default_rng(3)
X = ad.tensor(RNG.normal(size=(ROWS, WIDTH)))
W = ad.tensor(RNG.normal(size=WIDTH))


def block(h: Any) -> Any:
    for _ in range(STEPS):
        h = (h * 1.01).sin()
    return h


def net(cut: bool, w: Any, x: Any) -> Any:
    """A chain of blocks; each keeps its operand alone if `cut`."""
    h = x * w
    for _ in range(BLOCKS):
        h = checkpoint(block, h, use_reentrant=False) if cut else block(h)
    return h.sum()


def scanned(cut: bool, x: Any) -> Any:
    segments = "sqrt" if cut else None
    last, _ = af.scan(lambda c, _: ((c * 1.01).sin(), None), x, length=BLOCKS * STEPS,
                      segments=segments)
    return last.sum()


STACKS: dict[str, Callable[[bool], Any]] = {
    "vmap of grad": lambda cut: af.vmap(af.grad(lambda w, x: net(cut, w, x)), (None, 0))(W, X),
    "grad of vmap": lambda cut: af.grad(
        lambda w: af.vmap(lambda x: net(cut, w, x))(X).sum())(W),
    "jvp of grad": lambda cut: af.jvp(af.grad(lambda w: net(cut, w, X)), (W,), (W,))[1],
    "grad of jvp": lambda cut: af.grad(
        lambda w: af.jvp(lambda v: net(cut, v, X), (w,), (W,))[1])(W),
    "vmap of jvp of grad": lambda cut: af.vmap(
        lambda x: af.jvp(af.grad(lambda w: net(cut, w, x)), (W,), (W,))[1])(X),
    "vmap of vmap of grad": lambda cut: af.vmap(af.vmap(af.grad(lambda x: net(cut, W, x))))(
        X.reshape(4, ROWS // 4, WIDTH)),
    "vmap of grad of scan": lambda cut: af.vmap(af.grad(lambda x: scanned(cut, x)))(X),
}


def peak(run: Callable[[bool], Any], cut: bool) -> tuple[int, np.ndarray]:
    tracemalloc.start()
    found = run(cut).detach().numpy()
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return used, found


@pytest.mark.parametrize("name", STACKS)
def test_memory(name: str) -> None:
    """F60: 8 blocks of 8 steps of 2 ops hold about 8 + 16 values in place of 128."""
    run = STACKS[name]
    run(True)                                    # kernels and caches
    less, got = peak(run, True)
    more, want = peak(run, False)
    np.testing.assert_allclose(got, want, rtol=1e-10)
    assert less < 0.45 * more, (less, more)


def test_reverse_over_reverse_is_right() -> None:
    """F54: the second derivative through recomputed values."""
    def of(cut: bool) -> Any:
        inner = af.vmap(lambda x, w: af.grad(lambda y: net(cut, w, y))(x).sum(), (0, None))
        return af.grad(lambda w: inner(X[:2], w).sum())(W)
    np.testing.assert_allclose(of(True).numpy(), of(False).numpy(), rtol=1e-9)


def test_captured_values() -> None:
    """F54: a region may use values of the enclosing transforms that are not its arguments, and
    their gradients are not lost."""
    def f(cut: bool) -> Any:
        def example(x: Any, s: Any) -> Any:
            def loss(w: Any) -> Any:
                def region(h: Any) -> Any:
                    return (h * w * s).sin() * (w * w)
                h = checkpoint(region, x, use_reentrant=False) if cut else region(x)
                return h.sum()
            return af.grad(loss)(s * 2)
        return af.vmap(example)(X[:, :3], X[:, 3:6])
    np.testing.assert_allclose(f(True).numpy(), f(False).numpy(), rtol=1e-12)


def test_a_pull_after_the_transform_ended() -> None:
    """F54: a vmap that has ended runs again, axis names and random numbers included."""
    def f(cut: bool) -> Any:
        ad.manual_seed(0)

        def example(x: Any) -> Any:
            def region(h: Any) -> Any:
                centred = h - af.pmean(h, "i")
                return ad.nn.functional.dropout(centred * centred, 0.5).exp()
            return (checkpoint(region, x, use_reentrant=False) if cut else region(x)).sum()
        rows = af.vmap(example, axis_name="i", randomness="different")
        _, pull = af.vjp(lambda x: rows(x), X[:, :4])
        return af.vmap(lambda c: pull(c)[0])(ad.eye(ROWS, dtype=ad.float64))
    np.testing.assert_allclose(f(True).numpy(), f(False).numpy(), rtol=1e-12)


def test_policies_under_vmap() -> None:
    """F60: what a policy keeps is not computed again."""
    calls = []

    def g(w: Any, x: Any) -> Any:
        calls.append(1)
        return (w @ x).sin().sum()
    w, xs = ad.eye(3, dtype=ad.float64), X[:, :3]
    for policy in (None, af.checkpoint_policies.dots_saveable):
        cut = af.checkpoint(g, policy=policy)
        calls.clear()
        got = af.vmap(af.grad(cut), (None, 0))(w, xs)
        assert len(calls) == 2
        np.testing.assert_allclose(got.numpy(), af.vmap(af.grad(g), (None, 0))(w, xs).numpy())


def test_an_argument_that_was_overwritten_is_found() -> None:
    """F22: the region cannot be run again on a value that is gone."""
    h = X[:, :4] * ad.ones(4, dtype=ad.float64, requires_grad=True)
    y = af.vmap(lambda v: checkpoint(block, v, use_reentrant=False).sum())(h)
    h.mul_(2)
    with pytest.raises(AutogradError, match="modified by an inplace operation"):
        y.sum().backward()


def test_escaped_values_are_still_refused() -> None:
    """F10: running a region again does not revive its transform for others."""
    held: list[Any] = []

    def example(x: Any) -> Any:
        held.append(x)
        return checkpoint(block, x, use_reentrant=False).sum()
    af.grad(lambda w: af.vmap(example)(X[:, :4] * w).sum())(W[:4])
    with pytest.raises(AutogradError, match="was used after that call ended"):
        _ = held[0] + 1


def test_a_custom_rule_in_a_transform_that_begins_in_the_region() -> None:
    """Its residuals are values of a transform that has ended when the region runs again: they are
    kept as they are."""
    def program(x: Any) -> Any:
        return (ad.tanh(x) * 0.5).sum() + x.sum()
    rule = af.custom_jvp(program)
    rule.defjvp(lambda p, t: af.jvp(program, p, t))
    ct = ad.tensor(0.7, dtype=ad.float64)
    slope = af.jacfwd(lambda y: af.vjp(rule, y)[1](ct)[0])

    def steps(y: Any) -> Any:
        return af.scan(lambda c, _: (c * 0.9, slope(c)), y, length=2, segments="sqrt")[1]
    at = ad.tensor(1.1, dtype=ad.float64, requires_grad=True)
    want = [-0.7 * np.tanh(v) / np.cosh(v) ** 2 for v in (1.1, 0.99)]
    got = steps(at)
    assert np.allclose(got.detach().numpy(), want)
    assert np.allclose(af.grad(lambda y: steps(y).sum())(at.detach()).item(), sum(
        f * (-0.7) * ((1 - np.tanh(v) ** 2) ** 2 - 2 * np.tanh(v) ** 2 / np.cosh(v) ** 2)
        for f, v in ((1, 1.1), (0.9, 0.99))))


def _writes_twice(x: Any) -> Any:
    v = x * 1
    v.sigmoid_()
    v.cos_()
    return v.sum()


def _writes_over_a_view(x: Any) -> Any:
    v = x.logsumexp(dim=0, keepdim=True)
    w = v.expand(2, 1, 2)
    v.sigmoid_()
    v.cos_()
    return (v * 0.5).sum() + (w * 0.7).sum()


@pytest.mark.parametrize("region", [_writes_twice, _writes_over_a_view])
@pytest.mark.parametrize("reentrant", [True, False])
def test_a_residual_that_the_region_overwrites_is_found(region: Any, reentrant: bool) -> None:
    """Made again, it is overwritten again: the error of a run without checkpoint, no numbers."""
    x = ad.tensor([[0.3, 0.5], [0.7, -0.2]], requires_grad=True)
    for run in (region, lambda y: checkpoint(region, y, use_reentrant=reentrant)):
        with pytest.raises(AutogradError, match="modified by an inplace operation") as error:
            run(x).backward()
        assert "saved by SigmoidBackward0" in str(error.value)
    with pytest.raises(AutogradError, match="modified by an inplace operation"):
        ad.func.grad(lambda y: checkpoint(region, y, use_reentrant=reentrant))(x.detach())


def test_what_is_overwritten_for_nobody_is_no_error() -> None:
    """The region ends before a write that comes after the last residual; a residual that no
    derivative reads may be overwritten."""
    def after(x: Any) -> Any:
        v = x.exp()
        v.mul_(2)
        return v.sum()

    def unread(x: Any) -> Any:
        _writes_twice(x)
        return (x * x).sum()
    x = ad.tensor([0.3, 0.5], requires_grad=True)
    for region, want in ((after, 2 * np.exp([0.3, 0.5])), (unread, [0.6, 1.0])):
        found = ad.autograd.grad(checkpoint(region, x, use_reentrant=False), x)[0]
        np.testing.assert_allclose(found.numpy(), want, rtol=1e-6)
