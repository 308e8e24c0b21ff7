"""`autograd.misc.fixed_points`: the fixed point of an iteration, by the implicit derivative."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adjoint.hips.core import make_vjp
from adjoint.hips.extend import defvjp, primitive, vspace

F = Callable[..., Any]


@primitive
def fixed_point(f: F, a: Any, init: Any, distance: F, tol: float) -> Any:
    """x with f(a)(x) = x, by iteration from `init` until `distance(new, old) <= tol`.

    Gradients flow into `a`; they are a fixed point in turn, and no iterates are kept.
    """
    step = f(a)
    x, last = step(init), init
    while distance(x, last) > tol:
        x, last = step(x), x
    return x


def _rule(ans: Any, f: F, a: Any, init: Any, distance: F, tol: float) -> F:
    def pull(g: Any) -> Any:
        through_a = make_vjp(lambda b: f(b)(ans), a)[0]
        through_x = make_vjp(f(a), ans)[0]

        def adjoint_of(pair: Any) -> F:
            # w = g + (df/dx)^T w, with what flows in through a and ans kept by the pull
            return lambda w: vspace(w).add(pair, through_x(w))
        w = fixed_point(adjoint_of, g, vspace(g).zeros(), distance, tol)
        return through_a(w)
    return pull


defvjp(fixed_point, None, _rule, None, None, None)
__all__ = ["fixed_point"]
