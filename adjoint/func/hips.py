"""Names that users of HIPS autograd know: the same transforms, one argument (`argnum`) at a time.

`grad`, `value_and_grad`, `jacobian`, `hessian` and `checkpoint` are those of `adjoint.func`. For
real functions of complex arguments, gradients follow `func.grad` (df/dx + i df/dy), the conjugate
of HIPS autograd's.
"""
from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from adjoint.base.errors import ArgumentError
from adjoint.base.tree import flatten, tree_map, unflatten
from adjoint.func.jacobian import gauss_newton_product
from adjoint.func.push import jvp
from adjoint.func.reverse import as_tensor, grad, vjp
from adjoint.ops.create import ones_like

F = Callable[..., Any]


def _at(fun: F, argnum: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[F, Any]:
    """`fun` as a function of one argument, and where to evaluate it."""
    if not -len(args) <= argnum < len(args):
        raise ArgumentError(f"argnum is {argnum}, but the function was called with {len(args)} "
                            "positional arguments")
    i = argnum % len(args)
    point = tree_map(lambda v: as_tensor(v, getattr(fun, "__name__", "function")), args[i])
    return lambda x: fun(*args[:i], x, *args[i + 1:], **kwargs), point


def make_vjp(fun: F, argnum: int = 0) -> F:
    """(pull, value) of `fun` at its arguments: `pull(cotangent)` is that of argument `argnum`.

    >>> import adjoint as ad
    >>> pull, y = ad.func.make_vjp(lambda x: x * x)(ad.tensor(3.0)); pull(ad.tensor(1.0))
    tensor(6.)
    """
    @wraps(fun)
    def run(*args: Any, **kwargs: Any) -> Any:
        one, x = _at(fun, argnum, args, kwargs)
        value, pull = vjp(one, x)
        return (lambda ct: pull(ct)[0]), value
    return run


def make_jvp(fun: F, argnum: int = 0) -> F:
    """push of `fun` at its arguments: `push(tangent)` gives (value, tangent of the value).

    >>> import adjoint as ad
    >>> ad.func.make_jvp(lambda x: x * x)(ad.tensor(3.0))(ad.tensor(1.0))
    (tensor(9.), tensor(6.))
    """
    @wraps(fun)
    def run(*args: Any, **kwargs: Any) -> Any:
        one, x = _at(fun, argnum, args, kwargs)
        return lambda tangent: jvp(one, (x,), (tangent,))
    return run


def elementwise_grad(fun: F, argnum: int = 0) -> F:
    """The sum of the columns of the Jacobian in one pull: of a function of each element alone, its
    derivative at every element.

    >>> import adjoint as ad
    >>> ad.func.elementwise_grad(lambda x: x ** 3)(ad.tensor([1.0, 2.0]))
    tensor([ 3., 12.])
    """
    @wraps(fun)
    def run(*args: Any, **kwargs: Any) -> Any:
        pull, value = make_vjp(fun, argnum)(*args, **kwargs)
        return pull(tree_map(ones_like, value))
    return run


def deriv(fun: F, argnum: int = 0) -> F:
    """The derivative by forward mode along a tangent of ones.

    >>> import adjoint as ad
    >>> ad.func.deriv(ad.sin)(0.0)
    tensor(1.)
    """
    @wraps(fun)
    def run(*args: Any, **kwargs: Any) -> Any:
        one, x = _at(fun, argnum, args, kwargs)
        return jvp(one, (x,), (tree_map(ones_like, x),))[1]
    return run


def holomorphic_grad(fun: F, argnum: int = 0) -> F:
    """f'(z) of a complex differentiable function."""
    return grad(fun, argnum, holomorphic=True)


def grad_and_aux(fun: F, argnum: int = 0) -> F:
    """(gradient, aux) of a function that returns (value, aux)."""
    return grad(fun, argnum, has_aux=True)


def position(fun: F, argname: str) -> int:
    """The place of the argument of that name; ArgumentError where there is none."""
    names = list(inspect.signature(fun).parameters)
    if argname not in names:
        raise ArgumentError(f"grad_named: the function has no argument {argname!r}, only {names}")
    return names.index(argname)


def grad_named(fun: F, argname: str) -> F:
    """The gradient in the argument of that name."""
    return grad(fun, position(fun, argname))


def of_all_arguments(fun: F, operator: F) -> F:
    """`operator` of `fun` as a function of one dict of all its arguments, by name."""
    sig = inspect.signature(fun)

    def of_dict(values: dict[str, Any]) -> Any:
        bound = inspect.BoundArguments(sig, values)
        return fun(*bound.args, **bound.kwargs)

    @wraps(fun)
    def run(*args: Any, **kwargs: Any) -> Any:
        bound = sig.bind(*args, **kwargs)
        bound.apply_defaults()
        return operator(of_dict)(dict(bound.arguments))
    return run


def multigrad_dict(fun: F) -> F:
    """The gradients in all arguments at once, as a dict by argument name.

    >>> import adjoint as ad
    >>> found = ad.func.multigrad_dict(lambda x, y: x * y)(ad.tensor(2.0), y=ad.tensor(3.0))
    >>> found["x"], found["y"]
    (tensor(3.), tensor(2.))
    """
    return of_all_arguments(fun, grad)


def make_hvp(fun: F, argnum: int = 0) -> F:
    """(product, gradient) at the arguments: `product(v)` is the Hessian times v; the gradient is
    recorded once and pulled back for every product.

    >>> import adjoint as ad
    >>> product, g = ad.func.make_hvp(lambda x: (x ** 3).sum())(ad.tensor([1.0, 2.0]))
    >>> product(ad.ones(2))
    tensor([ 6., 12.])
    """
    return make_vjp(grad(fun, argnum), argnum)


def hessian_vector_product(fun: F, argnum: int = 0) -> F:
    """`product(*args, v)`: the Hessian in argument `argnum` contracted with v (any shape).

    >>> import adjoint as ad
    >>> product = ad.func.hessian_vector_product(lambda x: (x ** 3).sum())
    >>> product(ad.tensor([1.0, 2.0]), ad.ones(2))
    tensor([ 6., 12.])
    """
    @wraps(fun)
    def run(*args_and_v: Any, **kwargs: Any) -> Any:
        *args, v = args_and_v
        one, x = _at(fun, argnum, tuple(args), kwargs)
        leaves, spec = flatten(v)
        v = unflatten([as_tensor(t, "hessian_vector_product") for t in leaves], spec)
        return jvp(grad(one), (x,), (v,))[1]
    return run


def vector_jacobian_product(fun: F, argnum: int = 0) -> F:
    """`product(*args, ct)`: the Jacobian in argument `argnum` contracted with ct on the left."""
    @wraps(fun)
    def run(*args_and_ct: Any, **kwargs: Any) -> Any:
        *args, ct = args_and_ct
        return make_vjp(fun, argnum)(*args, **kwargs)[0](tree_map(
            lambda v: as_tensor(v, "vector_jacobian_product"), ct))
    return run


def make_ggnvp(f: F, g: F | None = None, f_argnum: int = 0) -> F:
    """product at the arguments: `product(v)` is Jᵀ H J v, with J the Jacobian of `f` and H the
    Hessian of `g` (default: half the sum of squares) at its outputs."""
    def half_squares(y: Any) -> Any:
        return 0.5 * (y * y).sum()

    @wraps(f)
    def run(*args: Any, **kwargs: Any) -> Any:
        one, x = _at(f, f_argnum, args, kwargs)
        return lambda v: gauss_newton_product(one, g or half_squares, (x,), (v,))[0]
    return run


hessian_tensor_product = hessian_vector_product
tensor_jacobian_product = vector_jacobian_product

__all__ = ["deriv", "elementwise_grad", "grad_and_aux", "grad_named", "hessian_tensor_product",
           "hessian_vector_product", "holomorphic_grad", "make_ggnvp", "make_hvp", "make_jvp",
           "make_vjp", "multigrad_dict", "tensor_jacobian_product", "vector_jacobian_product"]
