"""`autograd.differential_operators`: operators from functions of arrays to functions of arrays.

They take `argnum` (default 0; a tuple for several arguments) and nest to any depth.
"""
from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

from adjoint.base.tree import tree_map
from adjoint.func import checkpoint as _checkpoint
from adjoint.func.hips import of_all_arguments, position
from adjoint.hips import core
from adjoint.hips import numpy as np
from adjoint.hips.box import getval, lower, raised, recorded, tracing
from adjoint.hips.extend import vspace
from adjoint.hips.space import ArrayVSpace
from adjoint.hips.util import unary_to_nary

F = Callable[..., Any]
make_vjp = unary_to_nary(core.make_vjp)
make_jvp = unary_to_nary(core.make_jvp)


def _real_scalar(y: Any, what: str) -> None:
    if vspace(y).size != 1:                  # a complex number counts as two
        raise TypeError(f"{what} only applies to real scalar-output functions. Try jacobian, "
                        f"elementwise_grad or holomorphic_grad. Got {vspace(y)}")


@unary_to_nary
def grad(fun: F, x: Any) -> Any:
    """The gradient of a real scalar function, with the structure of its argument.

    >>> float(grad(lambda x: x ** 3)(2.0))
    12.0
    """
    pull, value = core.make_vjp(fun, x)
    _real_scalar(value, "Grad")
    return pull(vspace(value).ones())


@unary_to_nary
def value_and_grad(fun: F, x: Any) -> Any:
    """(value, gradient) in one run, as optimisers of SciPy's want them."""
    pull, value = core.make_vjp(fun, x)
    _real_scalar(value, "value_and_grad")
    return value, pull(vspace(value).ones())


@unary_to_nary
def elementwise_grad(fun: F, x: Any) -> Any:
    """The sum of the Jacobian's rows in one pull; of a function of each element alone, its
    derivative at every element.

    >>> import numpy as np
    >>> elementwise_grad(lambda x: x ** 2)(np.array([1.0, 3.0]))
    array([2., 6.])
    """
    pull, value = core.make_vjp(fun, x)
    if vspace(value).iscomplex:
        raise TypeError("elementwise_grad only applies to real-output functions; use "
                        "holomorphic_grad")
    return pull(vspace(value).ones())


egrad = elementwise_grad


@unary_to_nary
def deriv(fun: F, x: Any) -> Any:
    """The derivative by forward mode along a tangent of ones."""
    return core.make_jvp(fun, x)(vspace(x).ones())[1]


@unary_to_nary
def holomorphic_grad(fun: F, x: Any) -> Any:
    """f'(z) of a complex differentiable function; real points are warned about."""
    if not vspace(x).iscomplex:
        warnings.warn("Input to holomorphic_grad is not complex", stacklevel=4)
    pull, value = core.make_vjp(lambda z: np.real(fun(z)), x)
    return pull(vspace(value).ones())


@unary_to_nary
def grad_and_aux(fun: F, x: Any) -> Any:
    """(gradient, aux) of a function that returns (value, aux)."""
    kept: list[Any] = []

    def value(at: Any) -> Any:
        y, aux = fun(at)
        kept[:] = [aux]
        return y
    pull, y = core.make_vjp(value, x)
    _real_scalar(y, "grad_and_aux")
    return pull(vspace(y).ones()), tree_map(getval, kept[0])


@unary_to_nary
def jacobian(fun: F, x: Any) -> Any:
    """The Jacobian of array to array: shape of the output, then shape of the input.

    >>> import numpy as np
    >>> jacobian(lambda x: x * x[0])(np.array([1.0, 3.0]))
    array([[2., 0.],
           [3., 1.]])
    """
    pull, value = core.make_vjp(fun, x)
    space: Any = vspace(value)
    at: Any = vspace(x)
    for what, s in ("the value", space), ("the argument", at):
        if not isinstance(s, ArrayVSpace):
            raise TypeError(f"jacobian: {what} must be one array, got {s}; put its parts in one "
                            "vector with misc.flatten, or take make_vjp")
    rows = [pull(e) for e in space.standard_basis()]
    return np.reshape(np.stack(rows), (*space.shape, *at.shape))


@unary_to_nary
def hessian(fun: F, x: Any) -> Any:
    """The Jacobian of the Jacobian."""
    return jacobian(jacobian(fun))(x)


def grad_named(fun: F, argname: str) -> F:
    """The gradient in the argument of that name."""
    return grad(fun, position(fun, argname))


def multigrad_dict(fun: F) -> F:
    """The gradients in all arguments at once, as a dict by argument name."""
    return of_all_arguments(fun, grad)


def _inner(a: Any, b: Any) -> Any:
    return np.tensordot(a, b, np.ndim(b))


def hessian_tensor_product(fun: F, argnum: int = 0) -> F:
    """`product(*args, v)`: the Hessian contracted with v, by reverse over reverse mode."""
    slope = grad(fun, argnum)

    def run(*args: Any, **kwargs: Any) -> Any:
        *rest, v = args
        return grad(lambda *at, **kw: _inner(slope(*at, **kw), v), argnum)(*rest, **kwargs)
    return run


hessian_vector_product = hessian_tensor_product


def tensor_jacobian_product(fun: F, argnum: int = 0) -> F:
    """`product(*args, v)`: v contracted with the Jacobian on the left."""
    def run(*args: Any, **kwargs: Any) -> Any:
        *rest, v = args
        return jacobian(lambda *at, **kw: _inner(v, fun(*at, **kw)), argnum)(*rest, **kwargs)
    return run


vector_jacobian_product = tensor_jacobian_product


@unary_to_nary
def make_jvp_reversemode(fun: F, x: Any) -> F:
    """The push of `make_jvp` by two pulls: for functions with reverse rules alone."""
    pull, y = core.make_vjp(fun, x)
    push, _ = core.make_vjp(pull, vspace(y).zeros())
    return push


@unary_to_nary
def make_hvp(fun: F, x: Any) -> Any:
    """(product, gradient): `product(v)` is the Hessian times v; the gradient is recorded once."""
    product, slope = core.make_vjp(grad(fun), x)
    return product, core.summed(slope) if isinstance(x, (list, tuple, dict)) else slope


def make_ggnvp(f: F, g: F = lambda x: 1.0 / 2 * np.sum(x ** 2, axis=-1), f_argnum: int = 0) -> F:
    """`make_ggnvp(f)(*args)(v)` is Jᵀ H J v: J the Jacobian of `f`, H the Hessian of `g`."""
    @unary_to_nary
    def make(fun: F, x: Any) -> F:
        pull, y = core.make_vjp(fun, x)
        curve, _ = core.make_vjp(grad(g), y)
        push, _ = core.make_vjp(pull, vspace(y).zeros())
        return lambda v: pull(curve(push(v)))
    return make(f, f_argnum)


def checkpoint(fun: F) -> F:
    """The function itself, run once more in the backward pass and not kept before."""
    @recorded
    @wraps(fun)
    def run(*args: Any, **kwargs: Any) -> Any:
        def inner(*ts: Any) -> Any:
            with tracing():
                return lower(fun(*raised(ts), **kwargs))
        return raised(_checkpoint(inner)(*lower(args)))
    return run


__all__ = ["checkpoint", "deriv", "egrad", "elementwise_grad", "grad", "grad_and_aux", "grad_named",
           "hessian", "hessian_tensor_product", "hessian_vector_product", "holomorphic_grad",
           "jacobian", "make_ggnvp", "make_hvp", "make_jvp", "make_jvp_reversemode", "make_vjp",
           "multigrad_dict", "tensor_jacobian_product", "value_and_grad",
           "vector_jacobian_product"]
