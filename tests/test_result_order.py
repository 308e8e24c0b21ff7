"""Where results of operands in several memory orders lie: as the first operand that says so."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.kernels.order import empty, ordered, walking_order

SHAPE = {4: (4, 5, 4), 40: (40, 41, 40)}     # NumPy's loops, and generated code where there is any


def laid(lib: Any, n: int, *order: int) -> Any:
    """Ones of that size whose axes lie in this order, from slowest to fastest."""
    shape = SHAPE[n]
    made = lib.ones([shape[i] for i in order])
    return made.permute(*sorted(range(len(order)), key=order.__getitem__)).requires_grad_()


CALLS = {
    "add": lambda lib, a, b, c: a + b,
    "mul": lambda lib, a, b, c: c * a,
    "div": lambda lib, a, b, c: b / a,
    "compare": lambda lib, a, b, c: a > b,
    "where": lambda lib, a, b, c: lib.where(a > 0.5, b, c),
    "addcmul": lambda lib, a, b, c: lib.addcmul(a, b, c),
    "lerp": lambda lib, a, b, c: lib.lerp(c, a, b),
    "clamp": lambda lib, a, b, c: lib.clamp(a, b, c),
    "whole numbers": lambda lib, a, b, c: a.long() + b.long(),
    "zeta": lambda lib, a, b, c: lib.special.zeta(a.detach() + 1, b.detach()),
    "polygamma": lambda lib, a, b, c: lib.polygamma(1, a),
    "xlogy": lambda lib, a, b, c: lib.xlogy(a.detach(), b.detach()),
    "repeated": lambda lib, a, b, c: lib.ones(b.shape[1]).reshape(1, -1, 1).expand(b.shape) + a,
}


def strides(lib: Any, name: str, n: int) -> tuple[Any, Any]:
    operands = laid(lib, n, 2, 1, 0), laid(lib, n, 0, 1, 2), laid(lib, n, 1, 0, 2)
    out = CALLS[name](lib, *operands)
    grads = lib.autograd.grad(out, operands, lib.ones_like(out), allow_unused=True) \
        if out.requires_grad else ()
    return out.stride(), [None if g is None else g.stride() for g in grads]


@pytest.mark.parametrize("n", SHAPE)
@pytest.mark.parametrize("name", CALLS)
def test_results_and_gradients_lie_as_the_peers_do(name: str, n: int) -> None:
    torch = pytest.importorskip("torch")
    assert strides(ad, name, n) == strides(torch, name, n)


@pytest.mark.parametrize("n", SHAPE)
def test_the_first_operand_decides(n: int) -> None:
    a, b = laid(ad, n, 2, 1, 0), laid(ad, n, 0, 1, 2)
    assert (a + b).stride() == a.stride() and (b + a).stride() == b.stride()
    assert ad.lerp(a, b, b).stride() == ad.where(a > 0, b, b).stride() == a.stride()


def test_an_operand_that_is_repeated_along_an_axis_leaves_it_to_the_next() -> None:
    column, turned = np.zeros((10, 1)), np.zeros((5, 10)).T
    assert walking_order([column, turned], (10, 5)) == (1, 0)
    assert walking_order([column, np.zeros((1, 5))], (10, 5)) is None
    assert walking_order([np.broadcast_to(column, (10, 5)), turned], (10, 5)) == (1, 0)


def test_a_result_that_lies_right_is_not_copied() -> None:
    turned, plain = np.zeros((5, 10)).T, np.zeros((10, 5))
    right = empty((10, 5), (1, 0), plain.dtype)
    assert ordered(right, (turned, plain)) is right
    other = ordered(plain, (turned, plain))
    assert other is not plain and other.strides == turned.strides


LAID = """x.permute(2, 0, 1)[:, [1, 0]]
x.permute(2, 0, 1)[:, :, [1, 0, 2]]
x.permute(2, 1, 0)[x[0, 0] > 2]
x.permute(2, 1, 0)[..., x[:, 0, 0] > -1]
x[0][t.arange(4).reshape(2, 2).t() // 2]
x[0][t.arange(4).reshape(2, 2).t() // 2, t.arange(4).reshape(2, 2).t()]
x[t.arange(4).reshape(2, 2).t() // 2, :, t.arange(4).reshape(2, 2).t()]
last[[0, 1]]
last[..., [0, 1]]
last[:, :, [0, 1], [0, 1]]
t.stack([x[0].t()] * 2, 1)
t.stack([x[0].t()] * 2, -1)
t.stack([last] * 2, 1)
t.zeros_like(x[0, :, ::2].t())
t.zeros_like(x[:, :1].expand(3, 4, 5).permute(2, 0, 1))
x[:1, :, :1].expand(3, 4, 5).clone()
x[0, :, ::2].t().clone()
one.to(memory_format=t.channels_last)
t.zeros_like(one.to(memory_format=t.channels_last))
last[:, :, :1, :1].to(memory_format=t.channels_last).clone()
x.permute(2, 0, 1).repeat_interleave(2, 1)"""


@pytest.mark.parametrize("expression", LAID.splitlines())
def test_picked_joined_and_copied_values_lie_as_the_peers_do(expression: str) -> None:
    torch = pytest.importorskip("torch")
    made = []
    for t in (torch, ad):
        last = t.arange(120.0).reshape(2, 3, 4, 5).to(memory_format=t.channels_last)
        made.append(eval(expression, {"t": t, "x": t.arange(60.0).reshape(3, 4, 5), "last": last,
                                      "one": last[:, :1].contiguous()}))
    assert made[1].stride() == made[0].stride() and made[1].tolist() == made[0].tolist()
