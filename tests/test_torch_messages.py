"""Errors begin with PyTorch's words, so that programs and people that know those find them."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import adjoint as ad

torch = pytest.importorskip("torch")
WORDS = 6


def _leaf(t: Any) -> Any:
    return t.ones(3, requires_grad=True)


def _linear(x: Any, *rest: Any) -> Any:
    return (x * 2).sum()


def _constant(t: Any) -> Callable[..., Any]:
    return lambda *xs: t.ones(())


def _number_as_gradient(t: Any) -> Any:
    class Bad(t.autograd.Function):  # type: ignore[misc, name-defined]  # of either library
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return 3
    return Bad.apply(_leaf(t)).sum().backward()


def _assign_gradient(t: Any, grad: Any) -> None:
    _leaf(t).grad = grad


AUTOGRAD: dict[str, Callable[[Any], Any]] = {
    "an unused input": lambda t: t.autograd.grad(_leaf(t).sum(), _leaf(t)),
    "no gradient wanted": lambda t: t.autograd.grad(_leaf(t).sum(), t.ones(2)),
    "integers": lambda t: t.ones(3, dtype=t.int64).requires_grad_(),
    "new integers": lambda t: t.ones(3, dtype=t.int64, requires_grad=True),
    "integers from a list": lambda t: t.tensor([1, 2], requires_grad=True),
    "a setter": lambda t: setattr(t.ones(3, dtype=t.int64), "requires_grad", True),
    "detach_ of a view": lambda t: (_leaf(t) * 2)[0].detach_(),
    "detach_ of a plain view": lambda t: t.ones(3)[:2].detach_(),
    "a shape": lambda t: _assign_gradient(t, t.ones(4)),
    "a dtype": lambda t: _assign_gradient(t, t.ones(3, dtype=t.float64)),
    "no tensor": lambda t: _assign_gradient(t, 3),
    "a cotangent": lambda t: (_leaf(t) * 2).backward(t.ones(4)),
    "no cotangent": lambda t: (_leaf(t) * 2).backward(),
    "a number": _number_as_gradient,
}
FUNCTIONAL: dict[str, Callable[[Any, Any], Any]] = {
    "v missing": lambda t, f: f.vhp(_linear, t.ones(2)),
    "v missing, outputs": lambda t, f: f.vjp(lambda x: x, t.ones(2)),
    "v of another size": lambda t, f: f.jvp(lambda x: x, t.ones(2), t.ones(3)),
    "an entry of another size": lambda t, f: f.vjp(lambda x: (x, x), t.ones(2),
                                                   (t.ones(2), t.ones(3))),
    "too few": lambda t, f: f.vjp(lambda x: (x, x), t.ones(2), t.ones(2)),
    "too many": lambda t, f: f.vjp(lambda x: x, t.ones(2), (t.ones(2), t.ones(2))),
    "v a number": lambda t, f: f.jvp(lambda x: x, t.ones(2), 3),
    "an input a number": lambda t, f: f.jacobian(_linear, (t.ones(2), 3)),
    "the input a number": lambda t, f: f.vhp(_linear, 3, t.ones(2)),
    "the output a number": lambda t, f: f.jacobian(lambda x: 3, t.ones(2)),
    "several elements": lambda t, f: f.hvp(lambda x: x, t.ones(2), t.ones(2)),
    "several outputs": lambda t, f: f.hessian(lambda x: (x.sum(), x.sum()), t.ones(2)),
    "strict and vectorized": lambda t, f: f.jacobian(_linear, t.ones(2), strict=True,
                                                     vectorize=True),
}


def words(call: Callable[[], Any]) -> tuple[type[BaseException], list[str]]:
    """The class of the error that a call raises, and its words."""
    with pytest.raises(Exception) as caught:
        call()
    return caught.type, str(caught.value).replace("adjoint.Size", "torch.Size").split()


def agree(ours: Callable[[], Any], theirs: Callable[[], Any], n: int = WORDS) -> None:
    """Both raise, ours a subclass of theirs, with the same first words."""
    kind, text = words(ours)
    want, expected = words(theirs)
    assert issubclass(kind, want)
    assert text[:n] == expected[:n]


@pytest.mark.parametrize("name", AUTOGRAD)
def test_autograd(name: str) -> None:
    agree(lambda: AUTOGRAD[name](ad), lambda: AUTOGRAD[name](torch))


@pytest.mark.parametrize("name", FUNCTIONAL)
def test_functional(name: str) -> None:
    call = FUNCTIONAL[name]
    agree(lambda: call(ad, ad.autograd.functional), lambda: call(torch, torch.autograd.functional))


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("two", [False, True], ids=["one", "two"])
@pytest.mark.parametrize("kind", ["constant", "linear", "square"])
@pytest.mark.parametrize("name", ["jacobian", "hessian", "vjp", "jvp", "vhp", "hvp"])
def test_strict(name: str, kind: str, two: bool, create_graph: bool) -> None:
    """strict=True refuses what PyTorch refuses, with its whole first sentence."""
    def call(t: Any) -> Any:
        f = {"constant": _constant(t), "linear": _linear,
             "square": lambda x, *rest: (x * x).sum()}[kind]
        x = (t.ones(2), t.ones(2)) if two else t.ones(2)
        v = () if name in ("jacobian", "hessian") else (t.tensor(1.0) if name == "vjp" else x,)
        return getattr(t.autograd.functional, name)(f, x, *v, strict=True,
                                                    create_graph=create_graph)
    try:
        want = call(torch)
    except RuntimeError:
        agree(lambda: call(ad), lambda: call(torch), 18)
        return
    got = call(ad)
    pairs = zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]
    for ours, theirs in pairs:
        assert ours.tolist() == theirs.tolist()
