"""`jax.experimental.ode`: initial value problems, with the adjoint method's derivative.

Steps are those of Dormand and Prince (1980), order 5 with an error of order 4, controlled and
interpolated as in Hairer, Norsett and Wanner, Solving Ordinary Differential Equations I, II.4-II.6.
The derivative solves the adjoint equation backward in time (Chen et al. 2018, arXiv:1806.07366,
appendix B): the solution is integrated again beside it, so nothing of the steps is kept. A function
that closes over values of a derivative has no such rule: derivatives then go through the steps.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from adjoint.base.errors import missing as _missing
from adjoint.jax import lax
from adjoint.jax import numpy as jnp
from adjoint.jax._array import as_array, is_array_like, is_followed
from adjoint.jax._rules import custom_vjp
from adjoint.jax._transforms import vjp
from adjoint.jax._vmap import vmap
from adjoint.jax.flatten_util import ravel_pytree
from adjoint.jax.tree_util import tree_flatten, tree_leaves, tree_map, tree_unflatten

F = Callable[..., Any]
_AT = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
_STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84))
_ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)
_DENSE = (-12715105075 / 11282082432, 0.0, 87487479700 / 32700410799, -10690763975 / 1880347072,
          701980252875 / 199316789632, -1453857185 / 822651844, 69997945 / 29380423)


def _weighted(weights: Any, ks: Any) -> Any:
    return sum(w * k for w, k in zip(weights, ks, strict=True) if w)


def _size(x: Any, y: Any, z: Any, rtol: float, atol: float) -> Any:
    """Root mean square of x in units of what is tolerated at y and z."""
    scale = atol + rtol * jnp.maximum(jnp.abs(y), jnp.abs(z))
    return jnp.sqrt(jnp.mean((jnp.abs(x) / scale) ** 2))


def _first(f: F, y: Any, t: Any, k: Any, rtol: float, atol: float) -> Any:
    """A step to start with (Hairer, Norsett, Wanner, II.4)."""
    a, b = _size(y, y, y, rtol, atol), _size(k, y, y, rtol, atol)
    small = (a < 1e-5) | (b < 1e-5)
    h = jnp.where(small, 1e-6, 0.01 * a / jnp.where(small, 1.0, b))
    c = _size(f(y + h * k, t + h) - k, y, y, rtol, atol) / h
    most = jnp.maximum(b, c)
    flat = most <= 1e-15
    then = jnp.where(flat, jnp.maximum(1e-6, h * 1e-3), (0.01 / jnp.where(flat, 1, most)) ** 0.2)
    return jnp.minimum(100 * h, then).astype(t.dtype)


def _step(f: F, y: Any, k: Any, t: Any, h: Any) -> Any:
    """(y at t + h, its slope there, the error, the coefficients of values between)."""
    ks = [k]
    for at, row in zip(_AT, _STAGES, strict=True):
        new = y + h * _weighted(row, ks)
        ks.append(f(new, t + at * h))
    change = new - y
    bend = h * k - change
    rows = jnp.stack([y, change, bend, change - h * ks[-1] - bend, h * _weighted(_DENSE, ks)])
    return new, ks[-1], h * _weighted(_ERROR, ks), rows


def _between(rows: Any, s: Any) -> Any:
    """The solution at a share s of the last step."""
    y, change, bend, third, fourth = rows
    return y + s * (change + (1 - s) * (bend + s * (third + (1 - s) * fourth)))


@partial(custom_vjp, nondiff_argnums=(0, 1, 2, 3, 4))
def _solve(f: F, rtol: float, atol: float, mxstep: float, hmax: float, y0: Any, ts: Any,
           *args: Any) -> Any:
    """The solution at the times ts, [T, n]."""
    def slope(y: Any, t: Any) -> Any:
        return f(y, t, *args)

    def until(state: Any, target: Any) -> Any:
        def going(s: Any) -> Any:
            return (s[5] < target) & (s[0] < mxstep) & (s[3] > 0)

        def on(s: Any) -> Any:
            count, y, k, h, before, t, rows = s
            new, k_new, error, rows_new = _step(slope, y, k, t, h)
            ratio = _size(error, y, new, rtol, atol)
            good = ratio <= 1
            safe = jnp.where(ratio == 0, 1.0, ratio)
            grow = jnp.where(ratio == 0, 10.0,
                             jnp.clip(0.9 * safe ** -0.2, jnp.where(good, 1.0, 0.2), 10.0))
            longer = jnp.clip(h * grow.astype(h.dtype), 0.0, hmax)
            return (count + 1, jnp.where(good, new, y), jnp.where(good, k_new, k), longer,
                    jnp.where(good, t, before), jnp.where(good, t + h, t),
                    jnp.where(good, rows_new, rows))
        s = lax.while_loop(going, on, (jnp.zeros((), "int32"), *state))
        before, t = s[4], s[5]
        share = (target - before) / jnp.where(t == before, 1, t - before)
        return s[1:], _between(s[6], share.astype(np.real(y0).dtype))
    k = slope(y0, ts[0])
    h = jnp.clip(_first(slope, y0, ts[0], k, rtol, atol), 0.0, hmax)
    nothing = jnp.zeros_like(y0)
    start = (y0, k, h, ts[0], ts[0], jnp.stack([y0] + [nothing] * 4))
    _, ys = lax.scan(until, start, ts[1:])
    return jnp.concatenate([y0[None], ys])


def _kept(f: F, rtol: float, atol: float, mxstep: float, hmax: float, y0: Any, ts: Any,
          *args: Any) -> Any:
    ys = _solve(f, rtol, atol, mxstep, hmax, y0, ts, *args)
    return ys, (ys, ts, args)


def _pull(f: F, rtol: float, atol: float, mxstep: float, hmax: float, kept: Any, g: Any) -> Any:
    ys, ts, args = kept

    def back(state: Any, s: Any, *args: Any) -> Any:
        """The derivative of (y, its cotangent, that of the start, those of args) in -time."""
        y, ct = state[:2]
        dy, pull = vjp(f, y, -s, *args)
        by_y, by_t, *by_args = pull(ct)
        return -dy, by_y, by_t, by_args

    def interval(carry: Any, row: Any) -> Any:
        ct, start, by_args = carry
        y, t, earlier, g_end, g_before = row
        moved = jnp.dot(f(y, t, *args), g_end).real.astype(ts.dtype)
        ends = odeint(back, (y, ct, start - moved, by_args), jnp.stack([-t, -earlier]), *args,
                      rtol=rtol, atol=atol, mxstep=mxstep, hmax=hmax)
        _, ct, start, by_args = tree_map(lambda x: x[1], ends)
        return (ct + g_before, start, by_args), moved
    start = (g[-1], jnp.zeros((), ts.dtype), tree_map(jnp.zeros_like, list(args)))
    (ct, first, by_args), moved = lax.scan(
        interval, start, (ys[1:], ts[1:], ts[:-1], g[1:], g[:-1]), reverse=True)
    return (ct, jnp.concatenate([first[None], moved]), *by_args)


_solve.defvjp(_kept, _pull)


def odeint(func: F, y0: Any, t: Any, *args: Any, rtol: float = 1.4e-8, atol: float = 1.4e-8,
           mxstep: float = np.inf, hmax: float = np.inf) -> Any:
    """The solution of y' = func(y, t, *args) from y0 at t[0], at the increasing times t: y0's tree
    with an axis of length len(t) in front of every leaf.

    Gradients flow into y0, t, args and what func closes over. TypeError for an argument that is no
    array or number.

    >>> from adjoint.jax import numpy as jnp
    >>> odeint(lambda y, t, a: -a * y, 1.0, jnp.array([0.0, 1.0]), 2.0, rtol=1e-6, atol=1e-6)[1]
    Array(0.1353..., dtype=float32)
    """
    for x in tree_leaves(args):
        if not is_array_like(x):
            raise TypeError("The contents of odeint *args must be arrays or scalars, but got "
                            f"\n{x}.")
    y0 = tree_map(as_array, y0)
    times = as_array(t)
    if not jnp.issubdtype(times.dtype, np.floating):
        raise TypeError(f"t must be an array of floats, but got {times.dtype}.")
    start, unravel = ravel_pytree(y0)
    leaves, spec = tree_flatten(args)
    arrays = [as_array(x) for x in leaves]
    moving = [i for i, x in enumerate(arrays) if jnp.issubdtype(x.dtype, np.inexact)]

    def flat(y: Any, s: Any, *given: Any) -> Any:
        full = list(arrays)
        for i, x in zip(moving, given, strict=True):
            full[i] = x
        return ravel_pytree(func(unravel(y), s, *tree_unflatten(spec, full)))[0].astype(start.dtype)
    plain = [np.ones(x.shape, x.dtype) for x in (start, times[0], *(arrays[i] for i in moving))]
    inside = is_followed(flat(*map(as_array, plain)))   # func closes over what is followed: no rule
    found = (_solve.fun if inside else _solve)(
        flat, rtol, atol, mxstep, hmax, start, times, *[arrays[i] for i in moving])
    return vmap(unravel)(found)


__all__ = ["odeint"]
__getattr__ = _missing("adjoint.jax.experimental.ode")
