"""SciPy's minimizers on functions of tensors: the gradient and Hessian products are ours."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adjoint.autograd.modes import no_grad
from adjoint.base.dtypes import F64, is_inexact
from adjoint.base.errors import ArgumentError, DTypeError, NotSupported
from adjoint.base.tree import flatten, unflatten
from adjoint.core.tensor import Tensor, wrap
from adjoint.func import hessian, hvp, jacrev, value_and_grad
from adjoint.ops.public import FUNCTIONS

PRODUCTS = ("newton-cg", "trust-ncg", "trust-krylov", "trust-constr")
MATRICES = ("dogleg", "trust-exact")
WITHOUT = ("nelder-mead", "powell", "cobyla", "cobyqa")


class _Vector:
    """A tree of tensors as one float64 vector, and back."""

    def __init__(self, tree: Any) -> None:
        leaves, self.spec = flatten(tree)
        self.leaves = [x if isinstance(x, Tensor) else FUNCTIONS["as_tensor"](x) for x in leaves]
        if not self.leaves:
            raise ArgumentError("scipy_minimize: x0 holds no tensors")
        for x in self.leaves:
            if not is_inexact(x.array.dtype) or x.is_complex():
                raise DTypeError("scipy_minimize: x0 must hold real floating tensors, got "
                                 f"{x.dtype} of shape {tuple(x.shape)}")

    def pack(self, leaves: Sequence[Any]) -> Any:
        return np.concatenate([np.asarray(x.detach().numpy(), F64).reshape(-1) for x in leaves])

    def pack_tree(self, tree: Any) -> Any:
        return self.pack([v if isinstance(v, Tensor) else wrap(np.asarray(v, F64))
                          for v in flatten(tree)[0]])

    def unpack(self, v: Any) -> Any:
        out, at = [], 0
        for x in self.leaves:
            n = x.numel()
            part = np.array(v[at:at + n]).reshape(tuple(x.shape))
            out.append(wrap(part.astype(x.array.dtype)))
            at += n
        return unflatten(out, self.spec)

    def tensor(self, flat: Any) -> Any:
        """Pieces of a tensor of all elements, differentiable."""
        out, at = [], 0
        for x in self.leaves:
            n = x.numel()
            out.append(flat[at:at + n].reshape(tuple(x.shape)).to(x.dtype))
            at += n
        return unflatten(out, self.spec)


def _number(value: Any) -> float:
    if not isinstance(value, Tensor) or value.numel() != 1:
        shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ArgumentError("scipy_minimize: fun must return a tensor of one element, got "
                            f"{shape}; reduce it with .sum() or .mean()")
    return float(value.item())


def _constraints(given: Any, vector: _Vector, args: Sequence[Any]) -> Any:
    """SciPy's dictionaries with a function of tensors get their Jacobian."""
    if isinstance(given, dict):
        given = [given]
    out = []
    for c in given:
        if not isinstance(c, dict):
            out.append(c)
            continue
        own = tuple(c.get("args", ()))

        def flat(v: Any, f: Any = c["fun"], own: Any = own) -> Any:
            return f(vector.tensor(v), *own).reshape(-1).to(v.dtype)
        derivative = jacrev(flat)
        out.append({**c, "args": (), "fun": lambda v, f=flat: _plain(f(wrap(v))),
                    "jac": lambda v, j=derivative: _plain(j(wrap(v)))})
    return out


def _plain(t: Any) -> Any:
    return np.asarray(t.detach().numpy(), F64)


def _bounds(given: Any, vector: _Vector) -> Any:
    """(lower, upper), numbers or trees like x0; anything else is SciPy's own form."""
    if not (isinstance(given, tuple) and len(given) == 2):
        return given
    sides = []
    for side, missing in zip(given, (-np.inf, np.inf), strict=True):
        if side is None or isinstance(side, (int, float)):
            size = sum(x.numel() for x in vector.leaves)
            sides.append(np.full(size, missing if side is None else float(side)))
        else:
            sides.append(vector.pack_tree(side))
    return list(zip(*sides, strict=True))


def scipy_minimize(fun: Callable[..., Any], x0: Any, args: Sequence[Any] = (),
                   method: str | None = None, *, bounds: Any = None, constraints: Any = (),
                   tol: float | None = None, callback: Callable[[Any], Any] | None = None,
                   options: dict[str, Any] | None = None) -> Any:
    """`scipy.optimize.minimize` of a scalar function of tensors, with exact derivatives.

    fun          fun(x, *args) -> tensor of one element; x has the structure of x0
    x0           a tensor, or a list, tuple or dictionary of tensors, nested as you like
    method       SciPy's; those of second order get Hessian products (hvp) or Hessians
    bounds       (lower, upper), each None, a number or a tree like x0; or SciPy's own form
    constraints  SciPy's dictionaries {"type", "fun"} with fun of tensors, or its own objects
    callback     callback(x) after each iteration

    Returns SciPy's result; `x` and `jac` have the structure of x0 (of "trust-constr", `grad`). The
    search runs in float64, `fun` in the dtypes of x0. Raises ArgumentError, DTypeError or
    NotSupported (no SciPy).

    >>> import adjoint as ad
    >>> from adjoint.interop import scipy_minimize
    >>> found = scipy_minimize(lambda p: ((p["a"] - 3) ** 2).sum(), {"a": ad.zeros(2)})
    >>> found.x["a"].round(decimals=4)
    tensor([3., 3.])
    """
    try:
        from scipy import optimize
    except ImportError:
        raise NotSupported("scipy_minimize needs SciPy: pip install scipy") from None
    vector = _Vector(x0)
    args = tuple(args)
    _number(fun(vector.unpack(vector.pack(vector.leaves)), *args))      # say what is wrong first
    value, given = _derivatives(fun, args, vector, (method or "").lower())
    if callback is not None:
        given["callback"] = lambda v, *_: callback(vector.unpack(v))
    found = optimize.minimize(value, vector.pack(vector.leaves), method=method,
                              bounds=_bounds(bounds, vector),
                              constraints=_constraints(constraints, vector, args), tol=tol,
                              options=options, **given)
    size = sum(x.numel() for x in vector.leaves)
    found.x = vector.unpack(found.x)
    if found.get("jac") is not None and np.size(found.jac) == size:
        found.jac = vector.unpack(np.asarray(found.jac))
    if found.get("grad") is not None:
        found.grad = vector.unpack(np.asarray(found.grad))
    return found


def _derivatives(fun: Callable[..., Any], args: tuple[Any, ...], vector: _Vector, method: str
                 ) -> tuple[Callable[[Any], Any], dict[str, Any]]:
    """What SciPy minimizes, and its derivatives of the order that the method reads."""
    derived = value_and_grad(lambda x: fun(x, *args))

    def both(v: Any) -> tuple[float, Any]:
        value, gradient = derived(vector.unpack(v))
        return _number(value), vector.pack(flatten(gradient)[0])

    def value_only(v: Any) -> float:
        with no_grad():
            return _number(fun(vector.unpack(v), *args))

    def product(v: Any, direction: Any) -> Any:
        found = hvp(lambda x: fun(x, *args), (vector.unpack(v),), (vector.unpack(direction),))[1]
        return vector.pack(flatten(found)[0])

    def matrix(v: Any) -> Any:
        return _plain(hessian(lambda w: fun(vector.tensor(w), *args).to(w.dtype))(wrap(v)))

    if method in WITHOUT:
        return value_only, {"jac": None}
    second = ({"hessp": product} if method in PRODUCTS else
              {"hess": matrix} if method in MATRICES else {})
    return both, {"jac": True, **second}


__all__ = ["scipy_minimize"]
