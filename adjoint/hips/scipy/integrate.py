"""`autograd.scipy.integrate`: `odeint` with the adjoint method's derivative."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as onp

from adjoint.hips import numpy as np
from adjoint.hips.core import make_vjp
from adjoint.hips.extend import defvjp_argnums, primitive
from adjoint.hips.misc.flatten import flatten

F = Callable[..., Any]


@primitive
def odeint(func: F, y0: Any, t: Any, args: Any = (), **options: Any) -> Any:
    """`scipy.integrate.odeint`: the solution of y' = func(y, t, *args) at the times t, [T, n].

    Gradients flow into y0, t and args (Pontryagin et al. 1962; Chen et al. 2018, arXiv:1806.07366,
    appendix B): the pull solves the adjoint equation backward in time, with the same options, and
    is differentiable itself.
    """
    import scipy.integrate
    return scipy.integrate.odeint(func, y0, t, tuple(args), **options)


def _rule(argnums: Any, ys: Any, call: Any, options: Any) -> F:
    func, y0, t, args = (*call, ())[:4]
    n, (vector, unflatten) = np.shape(y0)[0], flatten(tuple(args))

    def flow(y: Any, s: Any, v: Any) -> Any:
        return func(y, s, *unflatten(v))

    def back(state: Any, s: Any, v: Any) -> Any:
        """The derivative of (y, cotangent of y, cotangents of t and of the arguments) in -time."""
        y, ct = state[:n], state[n:2 * n]
        pull, dy = make_vjp(lambda at: flow(*at), (y, -s, v))
        by_y, by_t, by_v = pull(ct)
        return np.concatenate([-dy, by_y, np.reshape(by_t, (1,)), by_v])

    def pull(g: Any) -> list[Any]:
        last = len(onp.shape(g)) and np.shape(g)[0] - 1
        ct, t0_ct, v_ct = g[last], 0.0, onp.zeros(np.shape(vector))
        times: list[Any] = []
        for i in range(last, 0, -1):
            moved = np.dot(flow(ys[i], t[i], vector), g[i])
            times.append(moved)
            t0_ct = t0_ct - moved
            start = np.concatenate([ys[i], ct, np.reshape(t0_ct, (1,)), v_ct])
            end = odeint(back, start, np.array([-t[i], -t[i - 1]]), (vector,), **options)[1]
            ct, t0_ct, v_ct = end[n:2 * n] + g[i - 1], end[2 * n], end[2 * n + 1:]
        all_times = np.array([t0_ct, *times[::-1]])
        found = {1: ct, 2: all_times, 3: unflatten(v_ct)}
        return [found.get(i) for i in argnums]
    return pull


defvjp_argnums(odeint, _rule)
__all__ = ["odeint"]
