"""Special functions that NumPy lacks, on raw arrays, in the dtype of the operand.

erf, erfc: W. J. Cody, "Rational Chebyshev approximation for the error function", Math. Comp. 23
(1969). lgamma, digamma: Stirling's series after shifting the argument, with the reflection
formulas (Abramowitz and Stegun 6.1.41, 6.3.18, 6.3.7).
"""
from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_A = (1.85777706184603153e-1, 3.16112374387056560e0, 1.13864154151050156e2,
      3.77485237685302021e2, 3.20937758913846947e3)
_B = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3,
      2.84423683343917062e3)
_C = (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0,
      6.61191906371416295e1, 2.98635138197400131e2, 8.81952221241769090e2,
      1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3)
_D = (1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2,
      1.62138957456669019e3, 3.29079923573345963e3, 4.36261909014324716e3,
      3.43936767414372164e3, 1.23033935480374942e3)
_P = (1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1,
      1.25781726111229246e-1, 1.60837851487422766e-2, 6.58749161529837803e-4)
_Q = (1.0, 2.56852019228982242e0, 1.87295284992346725e0, 5.27905102951428412e-1,
      6.05183413124413191e-2, 2.33520497626869185e-3)
_SQRPI = 5.6418958354775628695e-1


def _poly(coefficients: tuple[float, ...], x: Array) -> Array:
    out = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        out *= x
        out += c
    return out


def _scaled_tail(y: Array) -> Array:
    """exp(y^2) erfc(y) for y > 0.46875."""
    mid = np.minimum(y, 4.0)
    out = _poly(_C, mid) / _poly(_D, mid)
    big = y > 4.0
    if big.any():
        z = 1.0 / (y[big] * y[big])
        out[big] = (_SQRPI - z * _poly(_P, z) / _poly(_Q, z)) / y[big]
    return out


def _exp_minus_square(y: Array) -> Array:
    """exp(-y*y) without losing the low bits of y*y."""
    head = np.trunc(y * 16.0) / 16.0
    return np.exp(-head * head) * np.exp(-(y - head) * (y + head))


def _erf64(x: Array) -> tuple[Array, Array]:
    """(erf, erfc) of float64 values."""
    y = np.abs(x)
    small = y <= 0.46875
    z = np.where(small, y * y, 0.0)
    near = x * _poly(_A, z) / _poly(_B, z)
    clipped = np.clip(y, 0.46875, 27.0)
    tail = np.where(y > 27.0, 0.0, _scaled_tail(clipped) * _exp_minus_square(clipped))
    erf = np.where(small, near, np.copysign(1.0 - tail, x))
    erfc = np.where(small, 1.0 - near, np.where(x < 0, 2.0 - tail, tail))
    nan = np.isnan(x)
    return np.where(nan, x, erf), np.where(nan, x, erfc)


def _through_float64(f: Any, *xs: Any) -> Any:
    arrays = [np.asarray(x) for x in xs]
    dtype = np.result_type(*arrays)
    if dtype.kind in "iub":
        dtype = np.dtype(np.float64)
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    if shape == ():
        out = f(*(a.astype(np.float64).reshape(1) for a in arrays)).reshape(())
    else:
        out = f(*(a.astype(np.float64) for a in arrays))
    return out.astype(dtype)


def erf(x: Any) -> Any:
    """The error function, elementwise."""
    return _through_float64(lambda v: _erf64(v)[0], x)


def erfc(x: Any) -> Any:
    """1 - erf(x) without cancellation, elementwise."""
    return _through_float64(lambda v: _erf64(v)[1], x)


_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
_DIGAMMA = (-1 / 12, 1 / 120, -1 / 252, 1 / 240, -1 / 132, 691 / 32760, -1 / 12)


def _lgamma64(x: Array) -> Array:
    reflect = x < 0.5
    z = np.where(reflect, 1.0 - x, x)
    shift = np.zeros_like(z)
    prod = np.ones_like(z)
    w = z.copy()
    for _ in range(8):
        low = w < 8.0
        prod = np.where(low, prod * w, prod)
        w = np.where(low, w + 1.0, w)
    shift = np.log(prod)
    inv = 1.0 / w
    inv2 = inv * inv
    series = np.zeros_like(w)
    for c in reversed(_STIRLING):
        series = series * inv2 + c
    body = (w - 0.5) * np.log(w) - w + 0.9189385332046727418 + series * inv - shift
    body = np.where(np.isinf(w), np.inf, body)
    with np.errstate(all="ignore"):
        frac = x - np.round(x)
        mirrored = np.log(np.pi / np.abs(np.sin(np.pi * frac))) - body
    pole = reflect & (x == np.floor(x))
    out = np.where(reflect, mirrored, body)
    out = np.where(pole | np.isinf(x), np.inf, out)
    return np.where(np.isnan(x), x, out)


def _digamma64(x: Array) -> Array:
    reflect = x < 0.5
    z = np.where(reflect, 1.0 - x, x)
    acc = np.zeros_like(z)
    w = z.copy()
    for _ in range(10):
        low = w < 10.0
        acc = np.where(low, acc - 1.0 / w, acc)
        w = np.where(low, w + 1.0, w)
    inv2 = 1.0 / (w * w)
    series = np.zeros_like(w)
    for c in reversed(_DIGAMMA):
        series = series * inv2 + c
    body = acc + np.log(w) - 0.5 / w + series * inv2
    with np.errstate(all="ignore"):
        frac = x - np.round(x)
        mirrored = body - np.pi / np.tan(np.pi * frac)
    out = np.where(reflect, mirrored, body)
    pole = reflect & (x == np.floor(x))
    out = np.where(pole, np.where(x == 0, np.copysign(np.inf, -x), np.nan), out)
    return np.where(np.isnan(x), x, out)


def lgamma(x: Any) -> Any:
    """log |Gamma(x)|, elementwise."""
    with np.errstate(all="ignore"):
        return _through_float64(_lgamma64, x)


def digamma(x: Any) -> Any:
    """The logarithmic derivative of Gamma, elementwise."""
    with np.errstate(all="ignore"):
        return _through_float64(_digamma64, x)


def _polygamma64(n: int, x: Array) -> Array:
    """psi^(n)(x) for n >= 1, x > 0 by recurrence and the asymptotic series (A&S 6.4.11)."""
    factorial = float(np.prod(np.arange(1, n + 1)))
    acc = np.zeros_like(x)
    w = x.copy()
    for _ in range(20):
        low = w < 20.0
        acc = np.where(low, acc + factorial * w ** -(n + 1.0), acc)
        w = np.where(low, w + 1.0, w)
    bernoulli = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
    out = factorial / n * w ** -float(n) + 0.5 * factorial * w ** -(n + 1.0)
    ratio = factorial * (n + 1)
    for k, b in enumerate(bernoulli, start=1):
        out = out + b * ratio / float(np.prod(np.arange(1, 2 * k + 1))) * w ** -(2.0 * k + n)
        ratio *= (2 * k + n) * (2 * k + n + 1)
    return (acc + out) * (-1.0) ** (n + 1)


def polygamma(n: int, x: Any) -> Any:
    """The n-th derivative of digamma, elementwise, n >= 0; x > 0 for n >= 2."""
    if n == 0:
        return digamma(x)
    with np.errstate(all="ignore"):
        if n == 1:
            def trigamma(v: Array) -> Array:
                reflect = v < 0.5
                body = _polygamma64(1, np.where(reflect, 1.0 - v, v))
                mirrored = (np.pi / np.sin(np.pi * (v - np.round(v)))) ** 2 - body
                return np.where(reflect, mirrored, body)
            return _through_float64(trigamma, x)
        return _through_float64(lambda v: _polygamma64(n, v), x)


def _erfinv64(x: Array) -> Array:
    """Giles' starting value (GPU Computing Gems, 2011), polished by three Halley steps."""
    w = -np.log1p(-x * x)
    far = w >= 5.0
    near = np.where(far, 0.0, w) - 2.5
    p = _poly((2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
               -0.00125372503, -0.00417768164, 0.246640727, 1.50140941), near)
    b = np.sqrt(np.where(far, w, 5.0)) - 3.0
    q = _poly((-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
               -0.0076224613, 0.00943887047, 1.00167406, 2.83297682), b)
    a = np.abs(x)
    y = np.where(far, q, p) * a
    for _ in range(3):
        e, c = _erf64(y)
        err = np.where(a > 0.5, (1.0 - a) - c, e - a)
        u = err / (1.1283791670955126 * np.exp(-y * y))
        y = y - u / (1.0 + y * u)
    y = np.copysign(y, x)
    y = np.where(np.abs(x) == 1.0, np.copysign(np.inf, x), y)
    return np.where(np.abs(x) > 1.0, np.nan, y)


def erfinv(x: Any) -> Any:
    """The inverse error function on (-1, 1), elementwise."""
    with np.errstate(all="ignore"):
        return _through_float64(_erfinv64, x)


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)), elementwise; never overflows."""
    return np.reciprocal(1 + np.exp(-x))


def logsigmoid(x: Any) -> Any:
    """log(sigmoid(x)) = min(x, 0) - log1p(exp(-|x|)), elementwise."""
    return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))


def round_half_even(x: Any) -> Any:
    """Round to the nearest integer, ties to even."""
    return np.rint(x) if np.asarray(x).dtype.kind in "fc" else x


def rsqrt(x: Any) -> Any:
    """1 / sqrt(x), elementwise."""
    return np.reciprocal(np.sqrt(x))


def absolute_sign(x: Any) -> Any:
    """The sign of a real value, x/|x| of a complex one, 0 at 0."""
    return np.sign(x)


def xlogy(x: Any, y: Any) -> Any:
    """x log y, and 0 where x is 0 unless y is nan."""
    with np.errstate(all="ignore"):
        out = x * np.log(y)
    return np.where((x == 0) & ~np.isnan(y), np.zeros((), out.dtype), out)
