"""Implicit differentiation: derivatives of solutions, not of the iterations that found them.

At x* = f(x*, a) the implicit function theorem gives dx* = (I - df/dx)^-1 df/da, at g(x*, a) = 0 it
gives dx* = -(dg/dx)^-1 dg/da (Blondel et al. 2022, arXiv:2105.15183). The iterations run without a
tape, so memory does not grow with their number. The linear systems are themselves fixed points
(t = (df/dx) t + b, and its transpose in reverse mode), which makes every order of derivative exact.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adjoint.autograd.modes import is_grad_enabled, no_grad
from adjoint.base.errors import ArgumentError, AutogradError
from adjoint.base.tree import flatten, unflatten
from adjoint.core.tensor import Tensor
from adjoint.func.jacobian import jacrev
from adjoint.func.push import jvp
from adjoint.func.reverse import as_tensor, vjp
from adjoint.func.rules import Rule, call_rule, is_variable, zeros_like_value
from adjoint.ops.decompose import solve_op
from adjoint.ops.shape import reshape

Step = Callable[[list[Any], Sequence[Any]], list[Any]]


def _largest(x: Any) -> float:
    """The largest absolute entry, over all examples under vmap."""
    while x.level:
        x = x.value
    return float(np.abs(x.array).max()) if x.array.size else 0.0


def _iterate(step: Callable[[list[Any]], list[Any]], xs: list[Any], tol: float | None, limit: int,
             what: str) -> list[Any]:
    """Repeat `step` until its largest change is at most tol * (1 + largest entry)."""
    gap = math.inf
    bound = tol if tol is not None else max(
        (float(np.finfo(x.array.dtype).eps) for x in xs), default=1.0) ** (2 / 3)
    for _ in range(limit):
        new = step(xs)
        if [tuple(n.shape) for n in new] != [tuple(x.shape) for x in xs]:
            raise ArgumentError(f"{what}: the function turned shapes "
                                f"{[list(x.shape) for x in xs]} into "
                                f"{[list(n.shape) for n in new]}; they must be equal")
        gap = max((_largest(n - x) for n, x in zip(new, xs, strict=True)), default=0.0)
        size = max(map(_largest, new), default=0.0)
        xs = new
        if math.isnan(gap) or math.isinf(gap):
            raise AutogradError(f"{what}: the iteration diverged (a step of {gap})")
        if gap <= bound * (1 + size):
            return xs
    raise AutogradError(f"{what}: no convergence after {limit} iterations: the last step was "
                        f"{gap:.3g}, tol is {bound:.3g}; raise max_iter, loosen tol, or start "
                        "closer to the solution")


def _solution(step: Step, start: Sequence[Any], operands: Sequence[Any], tol: float | None,
              limit: int, what: str) -> tuple[Any, ...]:
    """x = step(x, operands) from `start`, differentiable in `operands`."""
    n = len(start)

    def run(*ops: Any) -> tuple[Any, ...]:
        with no_grad():
            return tuple(_iterate(lambda xs: step(xs, ops), [x.detach() for x in start], tol,
                                  limit, what))

    def share(xs: Sequence[Any], ops: Sequence[Any], ts: Sequence[Any]) -> list[Any]:
        """df/d(operands) along `ts`."""
        found = jvp(lambda *o: tuple(step(list(xs), o)), tuple(ops), tuple(ts))[1]
        return list(found)

    def push(ops: Sequence[Any], ts: Sequence[Any]) -> tuple[Any, ...]:
        xs = call_rule(rule, ops)

        def linear(t: list[Any], every: Sequence[Any]) -> list[Any]:
            b, at, rest = every[:n], every[n:2 * n], every[2 * n:]
            moved = jvp(lambda *x: tuple(step(list(x), rest)), tuple(at), tuple(t))[1]
            return [m + c for m, c in zip(moved, b, strict=True)]
        b = share(xs, ops, ts)
        return _solution(linear, [zeros_like_value(x) for x in xs], [*b, *xs, *ops], tol, limit,
                         f"{what} (tangents)")

    def pull_saved(kept: tuple[Any, Any], cts: Sequence[Any]) -> tuple[Any, ...]:
        xs, ops = kept

        def linear(u: list[Any], every: Sequence[Any]) -> list[Any]:
            ct, at, rest = every[:n], every[n:2 * n], every[2 * n:]
            back = vjp(lambda *x: tuple(step(list(x), rest)), *at)[1](tuple(u))
            return [m + c for m, c in zip(back, ct, strict=True)]
        u = _solution(linear, [zeros_like_value(x) for x in xs], [*cts, *xs, *ops], tol, limit,
                      f"{what} (cotangents)")
        pull = vjp(lambda *o: tuple(step(list(xs), o)), *ops)[1]
        return tuple(pull(tuple(u)))

    def saving(*ops: Any) -> Any:
        outs = run(*ops)
        return outs, (outs, tuple(ops))
    rule = Rule(run, push, lambda ops, cts: pull_saved((call_rule(rule, ops), ops), cts))
    rule.saving, rule.pull_saved = saving, pull_saved
    return call_rule(rule, operands)


def _closed_over(step: Step, xs: Sequence[Any], operands: Sequence[Any], what: str) -> None:
    """Refuse functions that use variables which are not arguments: they would get no gradient."""
    if not is_grad_enabled() or any(x.level for x in (*xs, *operands)):
        return
    outs = step([x.detach() for x in xs], [a.detach() for a in operands])
    if any(o._rg for o in outs if isinstance(o, Tensor)):
        raise ArgumentError(f"{what}: the function uses tensors that require grad and are not "
                            "among its arguments; pass them as arguments (for a module: "
                            "func.functional_call with its parameters as an argument)")


def fixed_point(f: Callable[..., Any], x0: Any, *args: Any, tol: float | None = None,
                max_iter: int = 1000) -> Any:
    """The solution of x = f(x, *args), by iterating from `x0`, with the derivative in `args` by
    the implicit function theorem (Blondel et al. 2022, arXiv:2105.15183).

    f         a contraction in its first argument: (tree like x0, *args) -> tree like x0
    x0        where to start; the solution does not depend on it, so neither does the derivative
    args      trees of tensors; every tensor to differentiate must be passed here
    tol       stop when the largest change is at most tol * (1 + largest entry); default: the
              dtype's epsilon to the power 2/3
    max_iter  raise AutogradError where more iterations would be needed

    Memory does not grow with the number of iterations, in any mode.

    >>> import adjoint as ad
    >>> a = ad.tensor(2.0, dtype=ad.float64)
    >>> root = lambda a: ad.func.fixed_point(lambda x, a: (x + a / x) / 2, ad.ones_like(a), a)
    >>> bool(abs(root(a) - 2 ** 0.5) < 1e-9)
    True
    >>> bool(abs(ad.func.grad(root)(a) - 0.5 / 2 ** 0.5) < 1e-9)
    True
    """
    start, x_spec = flatten(x0)
    start = [as_tensor(x, "fixed_point") for x in start]
    leaves, spec = flatten(args)
    places = [i for i, x in enumerate(leaves) if is_variable(x)]

    def step(xs: list[Any], operands: Sequence[Any]) -> list[Any]:
        full = list(leaves)
        for i, o in zip(places, operands, strict=True):
            full[i] = o
        found, found_spec = flatten(f(unflatten(list(xs), x_spec), *unflatten(full, spec)))
        if found_spec != x_spec:
            raise ArgumentError("fixed_point: the function must return the structure of x0, got "
                                f"{len(found)} leaves for {len(xs)}")
        return found
    operands = [leaves[i] for i in places]
    _closed_over(step, start, operands, "fixed_point")
    return unflatten(list(_solution(step, start, operands, tol, max_iter, "fixed_point")), x_spec)


def root(g: Callable[..., Any], x0: Any, *args: Any, tol: float | None = None,
         max_iter: int = 50) -> Any:
    """The solution of g(x, *args) = 0 by Newton's method from `x0` (one tensor), with the
    derivative in `args` by the implicit function theorem.

    g         (x, *args) -> residual of the shape of x; its Jacobian in x must be invertible
    The other arguments are those of `fixed_point`. Each step solves a dense system in the number
    of elements of x.

    >>> import adjoint as ad
    >>> a = ad.tensor([8.0, 27.0], dtype=ad.float64)
    >>> solve = lambda a: ad.func.root(lambda x, a: x ** 3 - a, ad.ones_like(a), a)
    >>> ad.allclose(ad.func.grad(lambda a: solve(a).sum())(a), a ** (-2 / 3) / 3)
    True
    """
    def newton(x: Any, *given: Any) -> Any:
        r = g(x, *given)
        if tuple(r.shape) != tuple(x.shape):
            raise ArgumentError(f"root: g returned shape {list(r.shape)} for x of shape "
                                f"{list(x.shape)}; they must be equal")
        n = math.prod(x.shape)
        matrix = reshape(jacrev(lambda y: g(y, *given))(x), (n, n))
        return x - reshape(solve_op(matrix, reshape(r, (n, 1))), tuple(x.shape))
    return fixed_point(newton, as_tensor(x0, "root"), *args, tol=tol, max_iter=max_iter)


__all__ = ["fixed_point", "root"]
