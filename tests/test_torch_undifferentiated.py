"""Programs that run as `torch`: what has no derivative, and outputs that transforms refuse."""
from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

import adjoint as ad
from adjoint.core import modes
from adjoint.func import grad, jvp, vmap

torch = pytest.importorskip("torch")
pytest.importorskip("torch.func")


@pytest.fixture
def as_pytorch() -> Iterator[None]:
    before = modes.as_pytorch[0]
    modes.as_pytorch[0] = True
    try:
        yield
    finally:
        modes.as_pytorch[0] = before


NO_DERIVATIVE = {
    "floor_divide": lambda t, a, b: t.floor_divide(a, b),
    "operator": lambda t, a, b: a // 2,
    "reflected": lambda t, a, b: 3 // a,
    "heaviside": lambda t, a, b: t.heaviside(a, b),
    "histogram": lambda t, a, b: t.histogram(a, 3)[0],
    "bincount": lambda t, a, b: t.bincount(t.tensor([0, 1, 1]), weights=b),
    "unique": lambda t, a, b: t.unique(a),
    "unique_with_counts": lambda t, a, b: t.unique(a, return_counts=True)[0],
    "unique_consecutive": lambda t, a, b: t.unique_consecutive(a),
    "zeta": lambda t, a, b: t.special.zeta(a, b),
    "binomial": lambda t, a, b: t.binomial(t.ones(3), b / 10),
}


def message(t: Any, f: Any) -> str:
    a = t.tensor([1.5, 2.5, 3.5], requires_grad=True)
    b = t.tensor([2.0, 1.0, 3.0], requires_grad=True)
    y = f(t, a, b)
    assert y.requires_grad and not f(t, a.detach(), b.detach()).requires_grad
    with pytest.raises(RuntimeError) as caught:
        y.sum().backward()
    assert a.grad is None
    return str(caught.value)


@pytest.mark.usefixtures("as_pytorch")
@pytest.mark.parametrize("name", NO_DERIVATIVE)
def test_a_backward_that_reaches_it_is_refused(name: str) -> None:
    f = NO_DERIVATIVE[name]
    assert message(ad, f).startswith(message(torch, f))


def test_elsewhere_steps_have_gradients_of_zero() -> None:
    x = ad.tensor([1.5, 2.5], requires_grad=True)
    (ad.floor_divide(x, 2) + ad.heaviside(x, x) + x).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


def test_zeta_of_two_that_require_gradients_is_refused_everywhere() -> None:
    s, q = (ad.tensor([2.0], requires_grad=True) for _ in range(2))
    with pytest.raises(RuntimeError, match="the derivative for 'zeta' is not implemented"):
        ad.special.zeta(s, q).sum().backward()
    ad.special.zeta(s.detach(), q).sum().backward()
    assert s.grad is None and q.grad is not None


def test_zeta_has_no_derivative_in_its_power_in_any_mode() -> None:
    s, q = ad.tensor([2.0]), ad.tensor([1.5])

    def in_s(v: Any) -> Any:
        return ad.special.zeta(v, q).sum()

    def in_q(v: Any) -> Any:
        return ad.special.zeta(s, v).sum()
    slope = grad(in_s)
    calls: list[Any] = [lambda: jvp(in_s, (s,), (s,)), lambda: slope(s),
                        lambda: vmap(slope)(s[None])]
    for refused in calls:
        with pytest.raises(RuntimeError, match="the derivative for 'zeta' is not implemented"):
            refused()
    want = -s * ad.special.zeta(s + 1, q)
    assert ad.allclose(jvp(in_q, (q,), (ad.ones(1),))[1], want)
    assert ad.allclose(vmap(grad(in_q))(q[None]), want)


REFUSED = {
    "vmap": lambda t, f: t.func.vmap(f)(t.ones(2)),
    "vmap in chunks": lambda t, f: t.func.vmap(f, chunk_size=1)(t.ones(2)),
    "vjp": lambda t, f: t.func.vjp(f, t.ones(2)),
    "jvp": lambda t, f: t.func.jvp(f, (t.ones(2),), (t.ones(2),)),
    "grad": lambda t, f: t.func.grad(f)(t.ones(2)),
    "grad_and_value": lambda t, f: t.func.grad_and_value(f)(t.ones(2)),
    "jacrev": lambda t, f: t.func.jacrev(f)(t.ones(2)),
    "jacfwd": lambda t, f: t.func.jacfwd(f)(t.ones(2)),
}


def number(x: Any) -> Any:
    return 3.0


def beside(x: Any) -> Any:
    return x, 3


def nothing(x: Any) -> Any:
    return None


@pytest.mark.filterwarnings("ignore:.torch.jit.script.:DeprecationWarning")
@pytest.mark.usefixtures("as_pytorch")
@pytest.mark.parametrize("f", [number, beside, nothing])
@pytest.mark.parametrize("name", REFUSED)
def test_outputs_that_are_no_tensors_are_refused(name: str, f: Any) -> None:
    with pytest.raises((RuntimeError, ValueError)) as theirs:
        REFUSED[name](torch, f)
    with pytest.raises(theirs.type, match=re.escape(str(theirs.value))):
        REFUSED[name](ad, f)


@pytest.mark.usefixtures("as_pytorch")
def test_an_output_that_is_not_mapped_comes_as_it_is() -> None:
    a, b = vmap(beside, out_dims=(0, None))(ad.ones(2))
    assert a.shape == (2,) and b == 3 and type(b) is int


def test_elsewhere_numbers_are_constants() -> None:
    assert vmap(number)(ad.ones(2)).tolist() == [3.0, 3.0]
    assert grad(number)(ad.ones(2)).tolist() == [0.0, 0.0]
