"""How a Dirichlet variate moves with its concentration, on raw arrays.

One coordinate x of a Dirichlet variate is Beta(a, b) with b = total - a. At a fixed value of its
distribution function F it moves by -(dF/da) / (dF/dx): M. Figurnov, S. Mohamed, A. Mnih, "Implicit
reparameterization gradients" (2018); M. Jankowiak, F. Obermeyer, "Pathwise derivatives beyond the
reparameterization trick" (2018).

dF/da is the integral of (log t - E log t) times the density up to x. The whole integral is 0, so
the part above x is as good, and on the side of x that E log t does not lie on the integrand keeps
its sign: nothing cancels. In y = logit t the density is the exponential of a concave function that
is straight but for a bend at 0; Gauss-Legendre quadrature between the bend's ends, from x to where
the density has fallen by e^-40, gives 12 digits.
"""
from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjoint.kernels.special import fill_in, through_float64

Array = NDArray[Any]
NODES = 48
FALLEN = 40.0               # the density beyond is below 1e-17 of that at x
BEND = 37.0                 # |logit t| from which 1 - t is 1, or t is 1, in 53 bits
BLOCK = 256                 # variates at a time: BLOCK * NODES numbers a temporary
# psi(t) = log t - 1/(2t) + sum of these over t^2, t^4, ... (Abramowitz and Stegun 6.3.18)
_DIGAMMA = (-1 / 12, 1 / 120, -1 / 252, 1 / 240, -1 / 132, 691 / 32760, -1 / 12)


@functools.cache
def _nodes() -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights on [0, 1]."""
    x, w = np.polynomial.legendre.leggauss(NODES)
    return (x + 1.0) / 2.0, w / 2.0


def digamma_rise(a: Array, b: Array) -> Array:
    """digamma(a + b) - digamma(a) for a > 0, b > 0, without cancellation where b is small."""
    rise, low = np.zeros_like(a), a
    for _ in range(10):                      # psi(t) = psi(t + 1) - 1/t, up to t >= 10
        small = low < 10.0
        rise = np.where(small, rise + b / (low * (low + b)), rise)
        low = np.where(small, low + 1.0, low)
    i, j = 1.0 / low, 1.0 / (low + b)
    apart = b * i * j                        # 1/t - 1/(t + b)
    rise = rise + np.log1p(b / low) + apart / 2.0
    i2, j2 = i * i, j * j
    powers, last = np.ones_like(a), np.ones_like(a)
    for c in _DIGAMMA:                       # j^2k - i^2k = (j^2 - i^2) (i^(2k-2) + ... + j^(2k-2))
        rise = rise - c * apart * (i + j) * powers
        last = last * j2
        powers = powers * i2 + last
    return rise


def _log_mix(s: Array, q: Array, r: Array) -> Array:
    """log(q e^-s + r) with q + r = 1, precise for small s and for small r."""
    fall = q * np.expm1(-s)
    return np.where(fall < -0.5, np.log(q * np.exp(-s) + r), np.log1p(fall))


def _reach(p: Array, total: Array, q: Array, r: Array) -> Array:
    """The s at which p s + total log(q e^-s + r) is FALLEN. The function is convex, so Newton's
    steps from beyond come down to it."""
    s = (FALLEN - total * np.log(r)) / p
    for _ in range(25):
        near = q * np.exp(-s)
        over = p * s + total * _log_mix(s, q, r) - FALLEN
        s = s - np.maximum(over, 0.0) / (p - total * near / (near + r))
    return s


def _piece(start: Array, end: Array, q: Array, r: Array, ahead: Array, low: Array, p: Array,
           total: Array) -> Array:
    """The integral over s from `start` to `end`."""
    nodes, weights = _nodes()
    wide = end - start
    s = start[:, None] + wide[:, None] * nodes
    mix = _log_mix(s, q[:, None], r[:, None])
    value = ahead[:, None] - mix - np.where(low[:, None], s, 0.0)
    value *= np.exp(-p[:, None] * s - total[:, None] * mix)
    return wide * (value @ weights)


def _slope(x: Array, a: Array, b: Array) -> Array:
    rest, total = 1.0 - x, a + b
    log_x = np.where(x < 0.5, np.log(x), np.log1p(-rest))
    ahead = log_x + digamma_rise(a, b)                       # log x - E log t
    low = ahead < 0.0                                        # integrate from 0 to x
    # s: how far logit t is from logit x; q e^-s + r: how the other side's share changes
    q, r, p = np.where(low, x, rest), np.where(low, rest, x), np.where(low, a, b)
    reach = _reach(p, total, q, r)
    bend = np.log(q) - np.log(r)
    area, start = np.zeros_like(x), np.zeros_like(x)
    for end in (bend - BEND, bend, bend + BEND, reach):
        end = np.clip(end, start, reach)
        part = np.zeros_like(x)
        fill_in(part, end > start, _piece, (0.0,) * 8, start, end, q, r, ahead, low, p, total,
                block=BLOCK)
        area += part
        start = end
    # at the ends of [0, 1] the integral is known: x log x -> 0, and E log t over b
    area = np.where(x == 1.0, digamma_rise(a, b) / b, np.where(low, -area, area))
    return np.where(x == 0.0, 0.0, area * x)


def dirichlet_slope(x: Any, alpha: Any, total: Any) -> Any:
    """-(dF/dalpha) / (dF/dx) / (1 - x) for F the distribution function of Beta(alpha, total -
    alpha), elementwise; nan outside 0 <= x <= 1, 0 < alpha < total."""
    def f(*given: Array) -> Array:
        u, v, w = (np.ravel(z) for z in np.broadcast_arrays(*given))
        ok = (u >= 0) & (u <= 1) & (v > 0) & (w > v) & np.isfinite(w)
        out = np.full(u.shape, np.nan)
        fill_in(out, ok, _slope, (0.5, 1.0, 1.0), u, v, w - v)
        return out.reshape(np.broadcast_shapes(*(z.shape for z in given)))
    with np.errstate(all="ignore"):
        return through_float64(f, x, alpha, total)
