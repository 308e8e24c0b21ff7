"""The incomplete gamma function, its derivative in the order, and Hurwitz' zeta, on raw arrays.

Incomplete gamma: the power series below its mean, Lentz' continued fraction above (Abramowitz and
Stegun 6.5.29, 6.5.31), Gauss-Legendre quadrature of the density for large orders (Press et al.,
"Numerical Recipes", 6.2). Zeta: Euler-Maclaurin (A&S 23.2.9 and 3.6.28).
"""
from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjoint.kernels.special import digamma, fill_in, lgamma, through_float64

Array = NDArray[Any]
LARGE = 100.0               # orders from which the density is a narrow hump
NODES = 96
BLOCK = 256                 # elements at a time where each has NODES temporaries


@functools.cache
def _nodes() -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights on [0, 1]."""
    x, w = np.polynomial.legendre.leggauss(NODES)
    return (x + 1.0) / 2.0, w / 2.0


def _stirling_rest(a: Array) -> Array:
    """log Gamma(a) - ((a - 1/2) log a - a + log(2 pi)/2) for a >= 10."""
    inv2 = 1.0 / (a * a)
    out = np.zeros_like(a)
    for c in (1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12):
        out = out * inv2 + c
    return out / a


def _log1p_minus(u: Array) -> Array:
    """log(1 + u) - u without cancellation near 0."""
    near = np.abs(u) < 0.2
    small = np.where(near, u, 0.1)
    s = small / (2.0 + small)                     # log(1 + u) = 2 atanh(s)
    square = s * s
    series = np.zeros_like(s)
    for k in range(17, 0, -2):
        series = series * square + 2.0 / (k + 2)
    value = s * (square * series - small)         # 2s - u = -u s
    return np.where(near, value, np.log1p(np.where(near, 0.0, u)) - np.where(near, 0.0, u))


def _density(a: Array, x: Array) -> Array:
    """x^a exp(-x) / Gamma(a + 1), to full precision for large orders too."""
    big = a >= 10.0
    b = np.where(big, a, 10.0)
    hump = b * _log1p_minus((np.where(big, x, b) - b) / b)
    large = np.exp(hump - _stirling_rest(b)) / np.sqrt(2.0 * np.pi * b)
    s = np.where(big, 1.0, a)
    small = np.exp(s * np.log(np.where(big, 1.0, x)) - np.where(big, 1.0, x) - lgamma(s + 1.0))
    return np.where(big, large, small)


def _lower_series(a: Array, x: Array) -> Array:
    """P(a, x) for x < a + 1."""
    term, total, n = np.ones_like(x), np.ones_like(x), a.copy()
    for _ in range(400):
        n = n + 1.0
        term = term * (x / n)
        total += term
        if not (term > 1e-17 * total).any():
            break
    return total * _density(a, x)


def _upper_fraction(a: Array, x: Array) -> Array:
    """Q(a, x) for x >= a + 1."""
    tiny = 1e-300
    b = x + 1.0 - a
    c, d = np.full_like(x, 1.0 / tiny), 1.0 / b
    h = d.copy()
    for i in range(1, 500):
        an = -i * (i - a)
        b = b + 2.0
        d = an * d + b
        d = 1.0 / np.where(np.abs(d) < tiny, tiny, d)
        c = b + an / c
        c = np.where(np.abs(c) < tiny, tiny, c)
        step = d * c
        h = h * step
        if not (np.abs(step - 1.0) > 1e-16).any():
            break
    return _density(a, x) * a * h


def _tail(a: Array, x: Array) -> Array:
    """For a >= LARGE: the mass between x and the far end of its side of the mean."""
    sigma = np.sqrt(a)
    # far enough out that the density is below 1e-20 of that at x, or the end of the axis
    reach = 12.0 * sigma + 60.0
    end = np.where(x > a, x + reach, np.maximum(0.0, x - reach))
    nodes, weights = _nodes()
    t = x[..., None] + (end - x)[..., None] * nodes
    b = a[..., None]
    with np.errstate(all="ignore"):
        values = _density(b - 1.0, t)                   # t^(a-1) exp(-t) / Gamma(a)
    return (values * weights).sum(-1) * np.abs(end - x)


def _incomplete(a: Array, x: Array) -> tuple[Array, Array]:
    """(P, Q), each to relative precision on its own small side; of one axis."""
    ok = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    aa, xx = np.where(ok, a, 1.0), np.where(ok, x, 1.0)
    large = aa >= LARGE
    low = ~large & (xx < aa + 1.0)
    high = ~large & ~low
    mass = np.empty_like(aa)                            # on the small side: is that above?
    fill_in(mass, low, _lower_series, (1.0, 0.5), aa, xx)
    fill_in(mass, high, _upper_fraction, (1.0, 9.0), aa, xx)
    fill_in(mass, large, _tail, (LARGE, LARGE), aa, xx, block=BLOCK)
    above, rest = high | (large & (xx > aa)), 1.0 - mass
    p, q = np.where(above, rest, mass), np.where(above, mass, rest)
    bad = (a < 0) | (x < 0) | np.isnan(a) | np.isnan(x) | ((a == 0) & (x == 0)) \
        | (np.isinf(a) & np.isinf(x))
    zero = ~bad & ~ok & ((x == 0) | np.isinf(a))        # P = 0
    one = ~bad & ~ok & ~zero                            # P = 1
    for out, at_zero, at_one in ((p, 0.0, 1.0), (q, 1.0, 0.0)):
        out[zero], out[one], out[bad] = at_zero, at_one, np.nan
    return p, q


def _flat(f: Callable[[Array, Array], Array], *given: Any) -> Any:
    """`f` on operands of one axis in float64, the result in their dtype and shape."""
    def whole(*arrays: Array) -> Array:
        u, v = np.broadcast_arrays(*arrays)
        return f(np.ravel(u), np.ravel(v)).reshape(u.shape)
    return through_float64(whole, *given)


def gammainc(a: Any, x: Any) -> Any:
    """P(a, x), the regularized lower incomplete gamma function, elementwise."""
    with np.errstate(all="ignore"):
        return _flat(lambda u, v: _incomplete(u, v)[0], a, x)


def gammaincc(a: Any, x: Any) -> Any:
    """Q(a, x) = 1 - P(a, x) without cancellation, elementwise."""
    with np.errstate(all="ignore"):
        return _flat(lambda u, v: _incomplete(u, v)[1], a, x)


# ------------------------------------------------------------------ how a gamma variate moves
def _slope_series(a: Array, logx: Array) -> Array:
    """d log x / d a at fixed P(a, x), by the series of P, for x < a + 1."""
    x = np.exp(logx)
    term, order = 1.0 / a, a.copy()
    psi = digamma(a + 1.0)
    total = term * (logx - psi)
    for _ in range(400):
        order = order + 1.0
        psi = psi + 1.0 / order
        term = term * (x / order)
        total += term * (logx - psi)
        if not (term * np.maximum(np.abs(logx - psi), 1.0) > 1e-17 * np.abs(total)).any():
            break
    return -total


def _slope_tail(a: Array, logx: Array) -> Array:
    """The same as an integral of the tail on the side of the mean where x lies."""
    x = np.exp(logx)
    up = x > a
    nodes, weights = _nodes()
    decay = np.maximum(1.0 - (a - 1.0) / x, 0.0)         # the tail above falls at least so fast
    reach = np.where(up, np.minimum(12.0 * np.sqrt(x) + 60.0, 45.0 / np.maximum(decay, 1e-9)),
                     np.minimum(x, 12.0 * np.sqrt(a) + 60.0))
    side = np.where(up, 1.0, -1.0)
    u = (side * reach)[..., None] * nodes
    ratio = u / x[..., None]
    weight = np.exp((a - 1.0)[..., None] * np.log1p(ratio) - u)
    inner = weight * (logx[..., None] + np.log1p(ratio) - digamma(a)[..., None])
    return side * (inner * weights).sum(-1) * reach / x


def log_gamma_slope(a: Any, logx: Any) -> Any:
    """d log x / d a where x = P^-1(a, u) for fixed u: how the log of a gamma variate of order a
    moves with a. M. Figurnov, S. Mohamed, A. Mnih, "Implicit reparameterization gradients" (2018).
    """
    def f(u: Array, v: Array) -> Array:
        ok = (u > 0) & np.isfinite(u) & np.isfinite(v)
        order, log = np.where(ok, u, 1.0), np.where(ok, v, 0.0)
        out = np.full_like(order, np.nan)
        series = ok & (order < 30.0) & (np.exp(log) < order + 1.0)
        tail = ok & ~series
        fill_in(out, series, _slope_series, (1.0, -1.0), order, log)
        fill_in(out, tail, _slope_tail, (1.0, 2.0), order, log, block=BLOCK)
        return out
    with np.errstate(all="ignore"):
        return _flat(f, a, logx)


# ------------------------------------------------------------------ zeta
_BERNOULLI = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000,
              1 / 74724249600, -3617 / 10670622842880000)       # B_2k / (2k)!


def _zeta64(s: Array, q: Array) -> Array:
    s, q = np.broadcast_arrays(s, q)
    ok = (s > 1) & np.isfinite(q) & ((q > 0) | ((q != np.floor(q)) & (s == np.floor(s))))
    t, w = np.where(ok, s, 2.0), np.where(ok, q, 1.0)
    total = np.zeros_like(w)
    enough = 10.0 + np.minimum(t, 300.0)
    for _ in range(int(min(1e4, max(0.0, float((enough - w).max(initial=0.0)) + 1.0)))):
        low = w < enough                         # terms until the rest is smooth
        if not low.any():
            break
        total = np.where(low, total + w ** -t, total)
        w = np.where(low, w + 1.0, w)
    power = w ** -t
    total += power * w / (t - 1.0) + 0.5 * power
    factor, power = t.copy(), power / w
    for k, b in enumerate(_BERNOULLI, start=1):
        total += b * factor * power
        factor = factor * (t + 2 * k - 1) * (t + 2 * k)
        power = power / (w * w)
    out = np.where(ok, total, np.nan)
    out = np.where((s == 1) | ((s > 1) & (q <= 0) & (q == np.floor(q))), np.inf, out)
    out = np.where((s > 1) & (q == np.inf), 0.0, out)
    return np.where(np.isnan(s) | np.isnan(q) | (s < 1), np.nan, out)


def zeta(s: Any, q: Any) -> Any:
    """Hurwitz' zeta function, sum over k >= 0 of (k + q)^-s, elementwise, s > 1."""
    with np.errstate(all="ignore"):
        return through_float64(_zeta64, s, q)


def factorial(n: int) -> float:
    """n! as a float; inf above 170."""
    return float(math.factorial(n)) if n <= 170 else math.inf
