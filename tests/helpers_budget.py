"""What the tests of budgets share: tensors, a chain of ops, and a check of peaks and bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.kernels import alloc

exact = pytest.mark.skipif(not alloc.available(), reason="needs the counting allocator")
SHAPE = (256, 64)  # 64 KiB in float32: large enough to be looked after


@pytest.fixture(autouse=True)
def counted() -> Iterator[None]:
    """The allocator counts from the start of each test, and no limit is left behind."""
    alloc.install()
    yield
    assert alloc.set_limit(0) == 0


def leaf(seed: int, *shape: int) -> Any:
    rng = np.random.default_rng(seed)
    return ad.tensor(rng.standard_normal(shape or SHAPE).astype(np.float32), requires_grad=True)


def peak_of(step: Callable[[], Any]) -> tuple[int, Any]:
    """(most live bytes while `step` ran, what it returned)."""
    alloc.reset_peak()
    result = step()
    return alloc.stats().peak, result


def chain(x: Any, w: Any, depth: int = 12) -> Any:
    """Matrix products and pointwise ops in turn: cheap and dear residuals."""
    for _ in range(depth):
        x = (x @ w).tanh() * 0.5 + x.sin()
    return x


def grads(loss: Callable[..., Any], *leaves: Any) -> list[np.ndarray]:
    return [g.numpy().copy() for g in ad.autograd.grad(loss(*leaves), leaves)]


def same(got: list[np.ndarray], want: list[np.ndarray]) -> None:
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


def check(loss: Callable[..., Any], *leaves: Any, share: float = 0.6, steps: int = 3,
          **options: Any) -> Any:
    """The same bits under a budget as without one, at a peak within it; returns the report."""
    with ad.memory.budget("4GB") as roomy:
        want = grads(loss, *leaves)
    for a, b in zip(grads(loss, *leaves), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * np.abs(a).max())
    if alloc.installed():
        full, _ = peak_of(lambda: grads(loss, *leaves))
        base = alloc.live()
    else:
        full, base = roomy.report().peak, sum(x.array.nbytes for x in leaves)
    limit = base + int((full - base) * share)
    with ad.memory.budget(limit, **options) as held:
        every = [peak_of(lambda: grads(loss, *leaves)) for _ in range(steps)]
    for peak, got in every:
        same(got, want)
        assert peak <= limit
    assert held.report().peak <= limit
    return held.report()
