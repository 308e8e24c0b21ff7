"""`autograd.functional` against PyTorch (F54)."""
from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import adjoint as ad

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
ours = importlib.import_module("adjoint.autograd.functional")
theirs = torch.autograd.functional
X, Y = np.array([0.4, -1.3]), np.array([[1.0, 2.0], [0.5, -0.7]])
V, W = np.array([1.5, -0.2]), np.array([[0.3, 0.1], [-2.0, 1.0]])


def leaves(x: Any) -> list[np.ndarray]:
    """Leaves of nested tuples as arrays."""
    return [a for y in x for a in leaves(y)] if isinstance(x, (tuple, list)) else [
        x.detach().numpy()]


def same(got: Any, want: Any) -> None:
    """The same nesting and numbers."""
    many = isinstance(want, (tuple, list))        # PyTorch's forward strategy returns lists
    assert isinstance(got, tuple) == many
    if many:
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            same(g, w)
        return
    np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-9, atol=1e-12)
    assert tuple(got.shape) == tuple(want.shape)


def one(x: Any) -> Any:
    return x.sin() * x.sum()


def two(x: Any, y: Any) -> Any:
    return y @ x, (x * x).sum()


def scalar(x: Any, y: Any) -> Any:
    return ((y @ x).sin() * x).sum()


def both(call: Any) -> None:
    """`call(functional, tensor)` with both libraries."""
    same(call(ours, ad.tensor), call(theirs, torch.tensor))


CALLS = {
    "vjp": lambda F, t: F.vjp(one, t(X), t(V)),
    "vjp of two": lambda F, t: F.vjp(two, (t(X), t(Y)), (t(V), t(np.float64(2.0)))),
    "jvp": lambda F, t: F.jvp(one, t(X), t(V)),
    "jvp of two": lambda F, t: F.jvp(two, (t(X), t(Y)), (t(V), t(W))),
    "jacobian": lambda F, t: F.jacobian(one, t(X)),
    "jacobian of two": lambda F, t: F.jacobian(two, (t(X), t(Y))),
    "jacobian, batched": lambda F, t: F.jacobian(two, (t(X), t(Y)), vectorize=True),
    "jacobian, forward": lambda F, t: F.jacobian(two, (t(X), t(Y)), vectorize=True,
                                                 strategy="forward-mode"),
    "hessian": lambda F, t: F.hessian(scalar, (t(X), t(Y))),
    "hessian of one": lambda F, t: F.hessian(lambda x: one(x).sum(), t(X)),
    "hessian, batched": lambda F, t: F.hessian(scalar, (t(X), t(Y)), vectorize=True),
    "hvp": lambda F, t: F.hvp(scalar, (t(X), t(Y)), (t(V), t(W))),
    "vhp": lambda F, t: F.vhp(scalar, (t(X), t(Y)), (t(V), t(W))),
    "independent": lambda F, t: F.jacobian(lambda x, y: x * 2, (t(X), t(Y))),
    "scalar without v": lambda F, t: F.vjp(lambda x: (x * x).sum(), t(X)),
}


@pytest.mark.parametrize("name", CALLS)
def test_against_torch(name: str) -> None:
    """Values, shapes and nesting are PyTorch's."""
    both(CALLS[name])


@pytest.mark.parametrize("name", ["jacobian", "hessian", "vjp", "jvp", "hvp", "vhp"])
def test_create_graph(name: str) -> None:
    """The result can be differentiated again; without create_graph it carries no graph."""
    def run(F: Any, x: Any, **more: Any) -> Any:
        f = one if name in ("jacobian", "vjp", "jvp") else lambda x: (x ** 3).sum() * x[0]
        args = () if name in ("jacobian", "hessian") else (x * 0 + 2.0,)
        found = getattr(F, name)(f, x, *args, **more)
        return found[1] if args else found
    a = ad.tensor(X, requires_grad=True)
    b = torch.tensor(X, requires_grad=True)
    assert not run(ours, a).requires_grad
    run(ours, a, create_graph=True).pow(2).sum().backward()
    run(theirs, b, create_graph=True).pow(2).sum().backward()
    same(a.grad, b.grad)


@pytest.mark.parametrize("name", ["jacobian", "vjp"])
def test_strict(name: str) -> None:
    """An input that does not matter is named."""
    args = () if name == "jacobian" else (ad.tensor(V),)
    with pytest.raises(RuntimeError, match="input 1.*strict"):
        getattr(ours, name)(lambda x, y: x * 2, (ad.tensor(X), ad.tensor(Y)), *args, strict=True)


def test_mistakes() -> None:
    """Messages say what was wrong."""
    with pytest.raises(RuntimeError, match="one element"):
        ours.hessian(one, ad.tensor(X))
    with pytest.raises(RuntimeError, match="shape"):
        ours.vjp(one, ad.tensor(X), ad.tensor(np.ones(3)))
    with pytest.raises(TypeError, match="index 0"):
        ours.jacobian(one, 3.0)
    with pytest.raises(ValueError, match="left out"):
        ours.jvp(one, ad.tensor(X))


def test_options_that_pytorch_refuses() -> None:
    f, x, eye = ad.autograd.functional, ad.ones(2, requires_grad=True), ad.eye(2)
    for call in (lambda: f.jacobian(ad.sin, x, strategy="sideways"),
                 lambda: f.hessian(ad.sum, x, outer_jacobian_strategy="sideways")):
        with pytest.raises(AssertionError, match="Expected strategy to be either"):
            call()
    with pytest.raises(NotImplementedError, match="for `vectorize=True`"):
        f.hessian(ad.sum, x, outer_jacobian_strategy="forward-mode")
    y = x ** 2
    for given, words in ((None, "implicitly created only for scalar"),
                         (ad.ones(2), "a mismatch was detected")):
        with pytest.raises(RuntimeError, match=words):
            ad.autograd.grad(y, x, given, is_grads_batched=True)
    with pytest.raises(ValueError, match=r"got sizes \[2, 1\] for the mapped dimension"):
        ad.autograd.grad([y, y * 1], x, [eye, eye[:1]], is_grads_batched=True)
