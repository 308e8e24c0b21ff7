"""`jax.scipy.optimize`: minimisation by BFGS (Nocedal and Wright 2006, algorithms 6.1 and 3.5)."""
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from adjoint.base.errors import missing as _missing
from adjoint.jax import numpy as _jnp
from adjoint.jax._trace import in_the_open
from adjoint.jax._transforms import value_and_grad

jnp: Any = _jnp


class OptimizeResults(NamedTuple):
    """Where a minimisation ended, and why."""

    x: Any
    success: Any
    status: Any
    fun: Any
    jac: Any
    hess_inv: Any
    nfev: Any
    njev: Any
    nit: Any


def _search(f: Any, x: Any, p: Any, value: float, slope: float, most: int = 20
            ) -> tuple[float, Any, Any, int]:
    """A step that meets the strong Wolfe conditions (c1 = 1e-4, c2 = 0.9), by bisection between a
    step that is too short and one that is too long."""
    low, high, step, calls = 0.0, np.inf, 1.0, 0
    best = (0.0, None, None)
    for _ in range(most):
        new, g = f(x + step * p)
        calls += 1
        new_slope = float(jnp.vdot(g, p))
        if not np.isfinite(float(new)) or float(new) > value + 1e-4 * step * slope:
            high = step
        elif abs(new_slope) <= -0.9 * slope:
            return step, new, g, calls
        else:
            best = (step, new, g)
            low, high = (step, high) if new_slope < 0 else (low, step)
        step = 2 * low if high == np.inf else (low + high) / 2
    return (*best, calls)


def minimize(fun: Any, x0: Any, args: tuple[Any, ...] = (), *, method: str, tol: Any = None,
             options: Any = None) -> OptimizeResults:
    """The minimum of a scalar function of a vector; method "BFGS"."""
    with in_the_open():                    # the steps depend on the values
        return _minimized(fun, x0, args, method, tol, options)


def _minimized(fun: Any, x0: Any, args: Any, method: str, tol: Any, options: Any
               ) -> OptimizeResults:
    if method.lower() not in ("bfgs", "l-bfgs-experimental-do-not-rely-on-this"):
        raise ValueError(f"Method {method} not recognized")
    if not isinstance(args, tuple):
        raise TypeError(f"args argument to jax.scipy.optimize.minimize must be a tuple, got {args}")
    given = dict(options or {})
    limit = given.get("gtol", 1e-5 if tol is None else tol)
    x = jnp.asarray(x0)
    steps = given.get("maxiter") or x.size * 200
    run = value_and_grad(lambda v: fun(v, *args))
    value, g = run(x)
    h: Any = jnp.eye(x.size, dtype=x.dtype)
    calls, status, k = 1, 1, 0
    for k in range(int(steps) + 1):                    # noqa: B007  # read after the loop
        if float(jnp.max(jnp.abs(g))) < limit:
            status = 0
            break
        if k == steps:
            break
        p = -(h @ g)
        step, new, new_g, more = _search(run, x, p, float(value), float(jnp.vdot(g, p)))
        calls += more
        if new is None:
            status = 3
            break
        s, y = step * p, new_g - g
        x, value, g = x + s, new, new_g
        rho = jnp.vdot(y, s)
        if float(rho) > 0:
            left = jnp.eye(x.size, dtype=x.dtype) - jnp.outer(s, y) / rho
            h = left @ h @ left.T + jnp.outer(s, s) / rho
    return OptimizeResults(x, jnp.asarray(status == 0), jnp.asarray(status), value, g, h,
                           jnp.asarray(calls), jnp.asarray(calls), jnp.asarray(k))


__getattr__ = _missing("adjoint.jax.scipy.optimize")
