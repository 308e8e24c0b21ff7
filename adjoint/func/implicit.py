"""Implicit differentiation: derivatives of solutions, not of the iterations that found them.

At x* = f(x*, a) the implicit function theorem gives dx* = (I - df/dx)^-1 df/da, at g(x*, a) = 0 it
gives dx* = -(dg/dx)^-1 dg/da (Blondel et al. 2022, arXiv:2105.15183). Memory does not grow with the
number of iterations: they run without a tape.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adjoint.base.errors import ArgumentError, AutogradError
from adjoint.core.tensor import Tensor
from adjoint.func.jacobian import jacrev
from adjoint.ops.shape import reshape

Iterate = Callable[[Callable[[Any], Any], Any], Any]


def _iterate(step: Callable[[Any], Any], x: Any, tol: float, limit: int, what: str) -> Any:
    """Apply `step` until the largest change is at most `tol`."""
    for _ in range(limit):
        new = step(x)
        if tuple(new.shape) != tuple(x.shape):
            raise ArgumentError(f"{what}: the function turned shape {list(x.shape)} into "
                                f"{list(new.shape)}; a solution has one shape")
        gap = _size(new - x)
        x = new
        if gap <= tol:
            return x
        if gap != gap:
            raise AutogradError(f"{what}: the iteration became NaN")
    raise AutogradError(f"{what}: no convergence after {limit} iterations: the last step was "
                        f"{gap:.3g}, tol is {tol:.3g}; raise max_iter, loosen tol or start closer")


def _size(x: Any) -> float:
    """The largest absolute entry (over all examples under vmap)."""
    while x.level:
        x = x.value
    return float(abs(x.array).max()) if x.array.size else 0.0


def _newton(g: Callable[[Any], Any], x: Any) -> Any:
    """One Newton step of g(x) = 0."""
    return x - _solve(jacrev(g)(x), g(x))


def _solve(matrix: Any, rhs: Any) -> Any:
    """The linear system of a Jacobian of shape (*s, *s) and a right side of shape s."""
    n = 1
    for d in rhs.shape:
        n *= int(d)
    found = reshape(matrix, (n, n)).solve(reshape(rhs, (n, 1))) if hasattr(Tensor, "solve") else (
        _linear_solve(reshape(matrix, (n, n)), reshape(rhs, (n, 1))))
    return reshape(found, tuple(rhs.shape))


def _linear_solve(matrix: Any, rhs: Any) -> Any:
    from adjoint import linalg
    return linalg.solve(matrix, rhs)
