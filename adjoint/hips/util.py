"""Small tools for argument lists, and operators over functions of many arguments."""
from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from operator import attrgetter
from typing import Any

import numpy as np

from adjoint.base.errors import ArgumentError, IndexOutOfRange
from adjoint.hips.box import recorded

F = Callable[..., Any]


def subvals(x: Sequence[Any], pairs: Iterable[tuple[int, Any]]) -> tuple[Any, ...]:
    """The tuple with other values at some places.

    >>> subvals((1, 2, 3), [(0, 9)])
    (9, 2, 3)
    """
    values = list(x)
    for i, v in pairs:
        values[i] = v
    return tuple(values)


def subval(x: Sequence[Any], i: int, v: Any) -> tuple[Any, ...]:
    """The tuple with another value at one place."""
    return subvals(x, [(i, v)])


def func(f: F) -> F:
    """The function behind a method of a class: here the same."""
    return f


def get_name(f: Any) -> str:
    """The name of a function, "[unknown name]" where it has none."""
    return getattr(f, "__name__", "[unknown name]")


def get_doc(f: Any) -> str:
    """The docstring of a function; "" of what cannot have one."""
    return getattr(f, "__doc__", "")


def wrap_nary_f(fun: F, op: F, argnum: Any) -> Callable[[F], F]:
    """A decorator: names and describes a function as the operator `op` of `fun` in an argument.

    >>> wrap_nary_f(abs, round, 0)(lambda x: x).__name__
    'round_of_abs_wrt_argnum_0'
    """
    def run(f: F) -> F:
        f.__name__ = f"{get_name(op)}_of_{get_name(fun)}_wrt_argnum_{argnum}"
        f.__doc__ = f"{get_name(op)} of {get_name(fun)} in argument {argnum}.\n{get_doc(fun) or ''}"
        return f
    return run


def unary_to_nary(operator: F) -> F:
    """An operator `(f, x, ...)` on functions of one argument as one on functions of many:
    `operator(fun, argnum=0, ...)(*args, **kwargs)`; argnum may be a tuple or list of positions,
    whose arguments are then one tuple.

    >>> twice = unary_to_nary(lambda f, x: f(f(x)))
    >>> twice(lambda a, b: a * b, 1)(3, 2)
    18
    """
    @wraps(operator)
    def outer(fun: F, argnum: Any = 0, *own: Any, **own_keywords: Any) -> F:
        if not callable(fun):
            raise ArgumentError(f"the first argument must be a function, got {type(fun).__name__}")
        nums = tuple(argnum) if isinstance(argnum, (tuple, list)) else (argnum,)
        single = not isinstance(argnum, (tuple, list))

        @recorded
        def run(*args: Any, **kwargs: Any) -> Any:
            if any(not -len(args) <= i < len(args) for i in nums):
                raise IndexOutOfRange(f"tuple index out of range: argnum is {argnum}, but the "
                                      f"function was called with {len(args)} positional arguments")

            def unary(x: Any) -> Any:
                return fun(*subvals(args, zip(nums, (x,) if single else x, strict=True)), **kwargs)
            x = args[argnum] if single else tuple(args[i] for i in nums)
            return operator(unary, x, *own, **own_keywords)
        return wrap_nary_f(fun, operator, argnum)(run)
    return outer


def quick_grad_check(fun: F, arg0: Any, extra_args: Sequence[Any] = (), kwargs: Any = None,
                     verbose: bool = True, eps: float = 1e-4, rtol: float = 1e-4,
                     atol: float = 1e-6, rs: Any = None) -> None:
    """The gradient in the first argument against a difference along a random direction, which `rs`
    (a `numpy.random.RandomState`) draws. AssertionError where they differ; deprecated in favour of
    `test_util.check_grads`."""
    from adjoint.hips.differential_operators import grad
    from adjoint.hips.misc.flatten import flatten
    warnings.warn("quick_grad_check is deprecated: use test_util.check_grads", stacklevel=2)
    named = kwargs or {}
    x, back = flatten(arg0)
    way = (rs or np.random.RandomState()).standard_normal(np.shape(x))
    way = way / np.sqrt(np.vdot(way, way))
    high, low = (fun(back(x + h * way), *extra_args, **named) for h in (eps / 2, -eps / 2))
    numeric = (high - low) / eps
    analytic = np.sum(flatten(grad(fun)(arg0, *extra_args, **named))[0] * way)
    if verbose:
        print(f"gradient along a random direction: {analytic}, by differences {numeric}")
    if abs(numeric - analytic) >= atol + rtol * abs(analytic):
        raise AssertionError(f"the gradient along a random direction is {analytic}, by differences "
                             f"{numeric}")


def toposort(end_node: Any, parents: F = attrgetter("parents")) -> Iterator[Any]:
    """The nodes of a graph from its end, each after all that it is a parent of.

    >>> graph = {"y": ["a", "b"], "a": ["x"], "b": ["a"], "x": []}
    >>> list(toposort("y", graph.get))
    ['y', 'b', 'a', 'x']
    """
    waiting: dict[Any, int] = {}            # by how many children that have not come yet
    stack = [end_node]
    while stack:
        node = stack.pop()
        seen = node in waiting
        waiting[node] = waiting.get(node, 0) + 1
        if not seen:
            stack.extend(parents(node))
    ready = [end_node]
    while ready:
        node = ready.pop()
        yield node
        for p in parents(node):
            waiting[p] -= 1
            if not waiting[p]:
                ready.append(p)


__all__ = ["func", "get_doc", "get_name", "quick_grad_check", "subval", "subvals", "toposort",
           "unary_to_nary", "wrap_nary_f"]
