"""Replayed views lie where the op's function would have put them (`kernels/views_ir.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers_kernels import leaks_nothing

import adjoint as ad
from adjoint.base import tier
from adjoint.core.plans import _places
from adjoint.core.tensor import owner_of
from adjoint.ops.pointwise import mul

tier.at_once()

VIEWS: list[Callable[[Any], Any]] = [
    lambda x: x.reshape(-1, 3), lambda x: x.view(6, 4), lambda x: x.flatten(1),
    lambda x: x.transpose(0, 2), lambda x: x.permute(2, 0, 1), lambda x: x.mT,
    lambda x: x.unsqueeze(1), lambda x: x.expand(2, 2, 3, 4), lambda x: x[1], lambda x: x[..., 1:],
    lambda x: x[:, ::2, -1], lambda x: x[None], lambda x: x.narrow(1, 1, 2), lambda x: x.unbind(1),
    lambda x: x.split(2, 2), lambda x: x.chunk(2, 0), lambda x: x.diagonal(0, 1, 2),
    lambda x: x.unfold(2, 2, 1), lambda x: x.squeeze(0), lambda x: x.detach()]
KINDS: list[Callable[[Any], Any]] = [
    lambda t: t, lambda t: t.transpose(0, 1).contiguous().transpose(0, 1), lambda t: t[:, :, :],
    lambda t: ad.cat([t, t], 2)[..., ::2]]


def place(t: Any) -> tuple[Any, ...]:
    """What can be seen of a view's array."""
    a = t.array
    owner = owner_of(a)
    flags = (a.flags.writeable, a.flags.owndata, a.flags.aligned, a.flags.c_contiguous,
             a.flags.f_contiguous)
    start = a.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
    return a.shape, a.strides, a.dtype, flags, start, owner.shape, a.tolist()


@pytest.mark.parametrize("kind", range(len(KINDS)))
@pytest.mark.parametrize("dtype", [ad.float32, ad.int64, ad.bool], ids=str)
@pytest.mark.parametrize("view", VIEWS)
def test_places(view: Any, dtype: Any, kind: int) -> None:
    """Shape, strides, flags, owner and values, the first time and when replayed."""
    def operand() -> Any:
        return KINDS[kind](ad.arange(24).reshape(2, 3, 4).clone().to(dtype))

    def seen() -> Any:
        try:
            made = view(operand())
        except RuntimeError as error:                  # view() of what does not lie in order
            return str(error)
        return [place(t) for t in (made if isinstance(made, tuple) else (made,))]
    first = seen()
    for _ in range(4):
        assert seen() == first


def test_views_are_tied_to_their_base() -> None:
    """Writes through a replayed view arrive at its base, and versions are shared."""
    def step() -> tuple[Any, Any]:
        x = ad.zeros(3, 4)
        y = x.transpose(0, 1)[1]
        y.add_(1.0)
        assert y._base is x and x._version == y._version == 1
        return x, y
    for _ in range(5):
        x, _ = step()
        assert x.tolist() == [[0.0, 1.0, 0.0, 0.0]] * 3


def test_what_is_not_plain_has_no_place() -> None:
    """Copies, other dtypes, nothing in it."""
    x = ad.arange(6, dtype=ad.float32)
    assert _places(mul.op, (x, x), x * x) is None
    op = x.reshape(2, 3)._steps[0][0]
    assert _places(op, (x,), x.reshape(2, 3)) is not None
    assert _places(op, (x,), x.clone()) is None
    assert _places(op, (x[:0],), x[:0].reshape(0, 3)) is None


def test_nothing_leaks() -> None:
    """Arrays, dtypes and owners."""
    x = ad.randn(4, 6, requires_grad=True)

    def work() -> None:
        for _ in range(100):
            x.reshape(-1, 3).transpose(0, 1).unbind(0)
    work()
    leaks_nothing(work, [None, x.array, x.array.dtype, np.ndarray], 60)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rules_of_raw_arrays(dtype: Any) -> None:
    """Pointwise ops of arrays without tensors around them: the same bits, arrays again."""
    a = np.linspace(0.5, 2.0, 12, dtype=dtype).reshape(3, 4)
    for f, want in ((lambda: mul(a, a), a * a), (lambda: mul(a, 3.0), a * dtype(3)),
                    (lambda: mul(a, a[:1]), a * a[:1]), (lambda: ad.exp(ad.tensor(a)).array,
                                                         np.exp(a))):
        for _ in range(3):
            got = f()
            assert type(got) is np.ndarray and got.tobytes() == want.tobytes()


def test_one_mask_for_all_axes() -> None:
    """x[mask] and its gradient; a mask of fewer axes, of none, of another shape."""
    x = ad.arange(6, dtype=ad.float32).reshape(2, 3).requires_grad_()
    mask = x.detach() > 2
    y = x[mask]
    assert y.tolist() == [3.0, 4.0, 5.0]
    y.backward(ad.tensor([1.0, 2.0, 3.0]))
    assert x.grad.tolist() == [[0.0, 0.0, 0.0], [1.0, 2.0, 3.0]]
    assert x[ad.tensor([True, False])].tolist() == [[0.0, 1.0, 2.0]]
    assert x[ad.zeros(2, 3).bool()].shape == (0,)
    assert ad.tensor(2.0)[ad.tensor(True)].tolist() == [2.0]
    with pytest.raises(IndexError):
        x[ad.ones(3, 2).bool()]
