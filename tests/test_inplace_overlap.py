"""Writes to memory that the same call reads in another arrangement are refused, as PyTorch 2.13
refuses them; what shows it in the same arrangement, or with gaps, is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import adjoint as ad

SHARED = "some elements of the input tensor and the written-to tensor refer to a single memory"
Program = Callable[[Any], Any]


def set_item(index: Any, value: Program) -> Program:
    def run(a: Any) -> None:
        a[index] = value(a)
    return run


at = ad.tensor([0, 1, 2])
REFUSED: dict[str, Program] = {
    "mul_": lambda a: a[1:].mul_(a[:5]),
    "iadd": lambda a: a[1:].__iadd__(a[:5]),
    "an element": lambda a: a.add_(a[0]),
    "a row of it": lambda a: a.view(2, 3).sub_(a.view(2, 3)[1]),
    "transposed": lambda a: a[:4].view(2, 2).mul_(a[:4].view(2, 2).t()),
    "float64": lambda a: a[1:].add_(a.detach()[:5]),
    "copy_": lambda a: a[1:].copy_(a[:5]),
    "x[i:] = x[:j]": set_item(slice(1, None), lambda a: a[:5]),
    "x[i] = x": set_item(at, lambda a: a[1:4]),
    "addcmul_": lambda a: a.addcmul_(a, a[0]), "lerp_": lambda a: a.lerp_(a, a[1]),
    "lerp_ by one": lambda a: a[1:].lerp_(a[:5], 0.5), "clamp_": lambda a: a.clamp_(a[0], a[1]),
    "masked_fill_": lambda a: (b := a > 2)[1:].masked_fill_(b[:5], True),
    "scatter_": lambda a: a.scatter_(0, at, a[1:4]),
    "scatter_add_": lambda a: a.scatter_add_(0, at, a[1:4]),
    "index_add_": lambda a: a.index_add_(0, at, a[1:4]),
    "index_copy_": lambda a: a.index_copy_(0, at, a[1:4]),
    "index_put_": lambda a: a.index_put_((at,), a[1:4]), "put_": lambda a: a.put_(at, a[1:4]),
    "add(out=)": lambda a: ad.add(a[:5], 1, out=a[1:]), "exp(out=)": lambda a: ad.exp(
        a[:5], out=a[1:]),
    "mul(out=)": lambda a: ad.mul(a[0], a, out=a), "where(out=)": lambda a: ad.where(
        a > 1, a, a[0], out=a),
    "clamp(out=)": lambda a: ad.clamp(a[:5], 0, 1, out=a[1:]),
    "cumsum(out=)": lambda a: ad.cumsum(a[:5], 0, out=a[1:]),
    "stack(out=)": lambda a: ad.stack([a[:2]], out=a[1:3].unsqueeze(0)),
    "special(out=)": lambda a: ad.special.i0e(a[:5], out=a[1:]),
}
TAKEN: dict[str, tuple[Program, list[float]]] = {
    "itself": (lambda a: a.mul_(a), [0, 1, 4, 9, 16, 25]),
    "a view of all": (lambda a: a.view(2, 3).add_(a.view(2, 3)), [0, 2, 4, 6, 8, 10]),
    "detached": (lambda a: a.add_(a.detach()), [0, 2, 4, 6, 8, 10]),
    "beside it": (lambda a: a[:3].add_(a[3:]), [3, 5, 7, 3, 4, 5]),
    "with gaps": (lambda a: a[::2].add_(a[1::2]), [1, 1, 5, 3, 9, 5]),
    "a column": (lambda a: a.view(2, 3).add_(a.view(2, 3)[:, :1].clone()), [0, 1, 2, 6, 7, 8]),
    "x[:] = x[i]": (set_item(slice(None), lambda a: a[1]), [1, 1, 1, 1, 1, 1]),
    "x[mask] = x[i]": (lambda a: set_item(a > 2, lambda a: a[1])(a), [0, 1, 2, 1, 1, 1]),
    "fill_": (lambda a: a.fill_(a[2]), [2, 2, 2, 2, 2, 2]),
    "index_fill_": (lambda a: a.index_fill_(0, at, a[3]), [3, 3, 3, 3, 4, 5]),
    "copy": (set_item(slice(1, None), lambda a: a[:5].clone()), [0, 0, 1, 2, 3, 4]),
    "out is it": (lambda a: ad.add(a, 1, out=a), [1, 2, 3, 4, 5, 6]),
    "out is a view of all": (lambda a: ad.mul(a[:], 2, out=a), [0, 2, 4, 6, 8, 10]),
    "zero_ of expanded": (lambda a: a[1:2].expand(3).zero_(), [0, 0, 2, 3, 4, 5]),
    "one place of expanded": (lambda a: a[1:2].expand(3).__setitem__(0, 7), [0, 7, 2, 3, 4, 5]),
    "a column of expanded": (lambda a: a[:, None].expand(6, 3).__setitem__((slice(2), 0), 7),
                             [7, 7, 2, 3, 4, 5]),
    "fill_ of expanded": (lambda a: a[1:2].expand(3).fill_(7), [0, 7, 2, 3, 4, 5]),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("kind", REFUSED)
def test_refused_before_anything_is_written(kind: str, grad: bool) -> None:
    a = ad.arange(6.0)
    if grad and "out=" not in kind:
        a = a.requires_grad_() * 1
    before = a.tolist()
    with pytest.raises(RuntimeError, match=SHARED):
        REFUSED[kind](a)
    assert a.tolist() == before and a._version == 0


@pytest.mark.parametrize("kind", TAKEN)
def test_taken(kind: str) -> None:
    run, want = TAKEN[kind]
    a = ad.arange(6.0)
    run(a)
    assert a.tolist() == want


@pytest.mark.parametrize("grad", [False, True])
def test_taken_with_a_gradient_the_values_are_the_same(grad: bool) -> None:
    for kind in ("itself", "a view of all", "beside it", "with gaps", "x[:] = x[i]", "fill_"):
        run, want = TAKEN[kind]
        a = ad.arange(6.0).requires_grad_() * 1
        run(a)
        assert a.tolist() == want


@pytest.mark.parametrize("write", [
    lambda x: x.add_(1), lambda x: x.copy_(ad.ones(3, 3)), lambda x: x.uniform_(),
    lambda x: ad.add(ad.ones(3, 3), 1, out=x)])
def test_expanded_targets(write: Program) -> None:
    x = ad.ones(3)
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor refers"):
        write(x.expand(3, 3))
    assert x.tolist() == [1, 1, 1]
