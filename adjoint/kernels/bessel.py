"""Bessel functions of order 0 and 1 and Airy's function on raw arrays, computed in float64.

I: the power series (A&S 9.6.10), whose terms are all positive, up to 20, then Hankel's expansion
(9.7.1). K: the series up to 1 (9.6.13), then the trapezoidal rule on 9.6.24, which converges like
exp(-pi^2/h). J, Y: Miller's backward recurrence and Neumann's series (9.1.46, 9.1.88) up to 25,
then Hankel's expansion (9.2.5). A&S: Abramowitz and Stegun, "Handbook of mathematical functions".
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjoint.kernels.special import through_float64

Array = NDArray[Any]
EULER = 0.57721566490153286061
SERIES_TO, HANKEL_FROM = 20.0, 25.0


# ------------------------------------------------------------------ modified: I and K
def _i_series(x: Array, order: int) -> Array:
    """I_order(x) for |x| <= SERIES_TO."""
    quarter = x * x / 4.0
    term = np.ones_like(x) if order == 0 else x / 2.0
    out = term.copy()
    for k in range(1, 60):
        term = term * quarter / (k * (k + order))
        out += term
    return out


def _i_far(y: Array, order: int) -> Array:
    """exp(-y) I_order(y) for y > SERIES_TO."""
    mu = 4.0 * order * order
    term = np.ones_like(y)
    out = term.copy()
    for k in range(1, 29):
        term = term * -(mu - (2 * k - 1) ** 2) / (k * 8.0 * y)
        out += term
    return out / np.sqrt(2.0 * np.pi * y)


def _modified(order: int, scaled: bool) -> Callable[[Array], Array]:
    def f(x: Array) -> Array:
        y = np.abs(x)
        near = y <= SERIES_TO
        low, high = _i_series(np.where(near, y, 0.0), order), _i_far(np.where(near, 30.0, y), order)
        if scaled:
            low = low * np.exp(-np.where(near, y, 0.0))
        else:
            half = np.exp(np.where(near, 0.0, y) / 2.0)     # exp(y) alone overflows too early
            high = high * half * half
        out = np.where(near, low, high)
        out = np.where(np.isinf(y), 0.0 if scaled else np.inf, out)
        out = np.copysign(out, x) if order else out
        return np.where(np.isnan(x), x, out)
    return f


def _k_near(x: Array, order: int) -> Array:
    """K_order(x) for 0 < x <= 1."""
    log = np.log(x / 2.0) + EULER
    quarter = x * x / 4.0
    term, harmonic, total = np.ones_like(x), 0.0, np.zeros_like(x)
    for k in range(14):
        if order == 0:
            weight = harmonic
        else:
            weight = harmonic + 0.5 / (k + 1)
        total += term * weight
        term = term * quarter / ((k + 1) * (k + 1 + order))
        harmonic += 1.0 / (k + 1)
    if order == 0:
        return -log * _i_series(x, 0) + total
    return 1.0 / x + log * _i_series(x, 1) - x / 2.0 * total


def _k_far(x: Array, order: float) -> Array:
    """exp(x) K_order(x) for x > 1: the integral of exp(-x (cosh t - 1)) cosh(order t)."""
    count = 40
    step = np.arccosh(1.0 + 40.0 / x) / count
    out = 0.5 * np.ones_like(x)
    for k in range(1, count + 1):
        t = step * k
        out += np.exp(-2.0 * x * np.sinh(t / 2.0) ** 2) * np.cosh(order * t)
    return out * step


def _second_modified(order: int, scaled: bool) -> Callable[[Array], Array]:
    def f(x: Array) -> Array:
        near = x <= 1.0
        close, far = np.where(near & (x > 0), x, 1.0), np.where(near | np.isinf(x), 2.0, x)
        low, high = _k_near(close, order), _k_far(far, order)
        if scaled:
            low = low * np.exp(close)
        else:
            high = high * np.exp(-far)
        out = np.where(near, low, np.where(np.isinf(x), 0.0, high))
        out = np.where(x == 0, np.inf, out)
        return np.where((x < 0) | np.isnan(x), np.nan, out)
    return f


# ------------------------------------------------------------------ oscillating: J and Y
def _ladder(x: Array) -> list[Array]:
    """J_0(x), J_1(x), ... for 0 < x < HANKEL_FROM by backward recurrence."""
    top = 64
    orders = [np.zeros_like(x) for _ in range(top + 2)]
    orders[top] = np.full_like(x, 1e-280)
    norm = np.zeros_like(x)
    for n in range(top, 0, -1):
        orders[n - 1] = 2.0 * n / x * orders[n] - orders[n + 1]
        big = np.abs(orders[n - 1]) > 1e200
        if big.any():
            for m in range(n - 1, top + 1):
                orders[m] = np.where(big, orders[m] * 1e-200, orders[m])
            norm = np.where(big, norm * 1e-200, norm)
        if (n - 1) % 2 == 0:
            norm += (2.0 if n > 1 else 1.0) * orders[n - 1]
    return [o / norm for o in orders]


def _hankel(x: Array, order: int) -> tuple[Array, Array]:
    """(J, Y) of the order for x >= HANKEL_FROM."""
    mu = 4.0 * order * order
    p, q, term = np.ones_like(x), np.zeros_like(x), np.ones_like(x)
    for k in range(1, 30):
        term = term * (mu - (2 * k - 1) ** 2) / (k * 8.0 * x)
        target, sign = (q, 1.0 if k % 4 == 1 else -1.0) if k % 2 else (
            p, 1.0 if k % 4 == 0 else -1.0)
        target += sign * term
    # cos(x - (order/2 + 1/4) pi) from sin x and cos x, which NumPy reduces exactly
    s, c = np.sin(x), np.cos(x)
    r = math.sqrt(0.5)
    cosine, sine = (r * (c + s), r * (s - c)) if order == 0 else (r * (s - c), -r * (c + s))
    scale = np.sqrt(2.0 / (np.pi * x))
    return scale * (p * cosine - q * sine), scale * (p * sine + q * cosine)


def _small(x: Array, order: int) -> Array:
    """J_order(x) for |x| <= 1/2 by its series."""
    quarter = -x * x / 4.0
    term = np.ones_like(x) if order == 0 else x / 2.0
    out = term.copy()
    for k in range(1, 12):
        term = term * quarter / (k * (k + order))
        out += term
    return out


def _first(order: int) -> Callable[[Array], Array]:
    def f(x: Array) -> Array:
        y = np.abs(x)
        far = y >= HANKEL_FROM
        tiny = y <= 0.5
        middle = np.where(far | tiny | np.isnan(y), 1.0, y)
        beyond = np.where(far & np.isfinite(y), y, 30.0)
        out = np.where(far, _hankel(beyond, order)[0], _ladder(middle)[order])
        out = np.where(tiny, _small(np.where(tiny, y, 0.0), order), out)
        out = np.where(np.isinf(y), 0.0, out)
        if order:
            out = np.where(np.signbit(x), -out, out)
        return np.where(np.isnan(x), x, out)
    return f


def _y_near(x: Array, order: int) -> Array:
    j = _ladder(x)
    log = np.log(x / 2.0) + EULER
    total = np.zeros_like(x)
    for k in range(1, 31):
        sign = -1.0 if k % 2 else 1.0
        total += sign * (j[2 * k] / k if order == 0 else
                         (2 * k + 1) / (k * (k + 1.0)) * j[2 * k + 1])
    if order == 0:
        return 2.0 / np.pi * (log * j[0] - 2.0 * total)
    return 2.0 / np.pi * ((log - 1.0) * j[1] - j[0] / x - total)


def _second(order: int) -> Callable[[Array], Array]:
    def f(x: Array) -> Array:
        far = x >= HANKEL_FROM
        middle = np.where(far | ~(x > 0), 1.0, x)
        tiny = middle < 1e-8          # the recurrence would overflow; the first terms are exact
        held = np.where(tiny, 1.0, middle)
        log = np.log(middle / 2.0) + EULER
        first = 2.0 / np.pi * log if order == 0 else -2.0 / (np.pi * middle)
        near = np.where(tiny, first, _y_near(held, order))
        out = np.where(far, _hankel(np.where(far & np.isfinite(x), x, 30.0), order)[1], near)
        out = np.where(np.isinf(x), 0.0, out)
        out = np.where(x == 0, -np.inf, out)
        return np.where((x < 0) | np.isnan(x), np.nan, out)
    return f


# ------------------------------------------------------------------ Airy
# (Ai, Ai') at -9, -8, ..., 2: the series at 0 in 60 digits
_AIRY = np.array([
    (-0.022133721547341403, -0.9756639809263316), (-0.0527050503563862, 0.9355609381983065),
    (0.18428083525050565, -0.7710081684101265), (-0.3291451736298231, 0.3459354872813429),
    (0.35076100902411433, 0.32719281855444315), (-0.07026553294928951, -0.7906285753685813),
    (-0.37881429367765806, 0.3145837692165988), (0.22740742820168558, 0.618259020741691),
    (0.5355608832923521, -0.01016056711664521), (0.3550280538878172, -0.2588194037928068),
    (0.13529241631288141, -0.1591474412967932), (0.03492413042327438, -0.05309038443365363)])
_AIRY_FROM, _AIRY_TO = -9, 2


def _airy_near(x: Array, slope: bool) -> Array:
    """Ai or Ai' for -9.5 <= x <= 2.5: the Taylor series about the nearest integer a, whose
    coefficients follow from y'' = x y: (k+2)(k+1) c[k+2] = a c[k] + c[k-1]."""
    a = np.clip(np.rint(x), _AIRY_FROM, _AIRY_TO)
    h = x - a
    before = np.zeros_like(x)
    c, following = np.moveaxis(_AIRY[(a - _AIRY_FROM).astype(np.intp)], -1, 0)
    power, out = np.ones_like(x), np.zeros_like(x)
    for k in range(26):
        out = out + ((k + 1) * following if slope else c) * power
        power = power * h
        before, c, following = c, following, (a * c + before) / ((k + 2) * (k + 1))
    return out


def _airy_above(x: Array, slope: bool) -> Array:
    """Ai or Ai' for x > 2.5, by K of order 1/3 and 2/3 (9.6.2, 9.6.3)."""
    z = 2.0 / 3.0 * x * np.sqrt(x)
    if slope:
        return -x / (np.pi * math.sqrt(3.0)) * np.exp(-z) * _k_far(z, 2.0 / 3.0)
    return np.sqrt(x / 3.0) / np.pi * np.exp(-z) * _k_far(z, 1.0 / 3.0)


def _airy_below(y: Array, slope: bool) -> Array:
    """Ai(-y) or Ai'(-y) for y > 9.5: A&S 10.4.60, 10.4.62."""
    z = 2.0 / 3.0 * y * np.sqrt(y)
    p, q, u = np.ones_like(z), np.zeros_like(z), np.ones_like(z)
    for k in range(1, 24):
        u = u * ((6 * k - 5) * (6 * k - 3) * (6 * k - 1) / (216.0 * k * (2 * k - 1))) / z
        term = u * ((6 * k + 1) / (1.0 - 6 * k)) if slope else u
        sign = -1.0 if k // 2 % 2 else 1.0
        if k % 2:
            q = q + sign * term
        else:
            p = p + sign * term
    s, c = np.sin(z), np.cos(z)
    cosine, sine = math.sqrt(0.5) * (c + s), math.sqrt(0.5) * (s - c)     # of z - pi/4
    root = np.sqrt(np.sqrt(y))
    if slope:
        return root / math.sqrt(np.pi) * (sine * p - cosine * q)
    return (cosine * p + sine * q) / (root * math.sqrt(np.pi))


def _airy(slope: bool) -> Callable[[Array], Array]:
    def f(x: Array) -> Array:
        above, below = x > 2.5, x < -9.5
        out = _airy_near(np.where(above | below | np.isnan(x), 0.0, x), slope)
        out = np.where(above, _airy_above(np.where(above, np.minimum(x, 200.0), 3.0), slope), out)
        out = np.where(below, _airy_below(np.where(below, np.maximum(-x, 9.0), 10.0), slope), out)
        out = np.where(np.isinf(x), np.nan if slope else 0.0, out)
        out = np.where(x > 200.0, 0.0, out)
        return np.where(np.isnan(x), x, out)
    return f


def _public(f: Callable[[Array], Array], name: str) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        with np.errstate(all="ignore"):
            return through_float64(f, x)
    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"The function {name}, elementwise."
    return run


i0, i1 = (_public(_modified(n, False), f"i{n}") for n in (0, 1))
i0e, i1e = (_public(_modified(n, True), f"i{n}e") for n in (0, 1))
k0, k1 = (_public(_second_modified(n, False), f"k{n}") for n in (0, 1))
k0e, k1e = (_public(_second_modified(n, True), f"k{n}e") for n in (0, 1))
j0, j1 = (_public(_first(n), f"j{n}") for n in (0, 1))
y0, y1 = (_public(_second(n), f"y{n}") for n in (0, 1))
airy_ai, airy_ai_slope = (_public(_airy(s), "Ai'" if s else "Ai") for s in (False, True))
