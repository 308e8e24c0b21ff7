"""Special functions that NumPy lacks, on raw arrays, in the dtype of the operand.

erf, erfc: W. J. Cody, "Rational Chebyshev approximation for the error function", Math. Comp. 23
(1969). lgamma, digamma: Stirling's series after shifting the argument, with the reflection
formulas (Abramowitz and Stegun 6.1.41, 6.3.18, 6.3.7).
"""
from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

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


def through_float64(f: Any, *xs: Any) -> Any:
    """f on operands in float64, the result in their dtype."""
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


def fill_in(out: Array, mask: Array, f: Any, fillers: tuple[float, ...], *given: Array,
            block: int = 4096) -> None:
    """out[mask] = f(*given)[mask], some elements at a time, others of which are `fillers`: what is
    held on the way hangs on the number of elements alone, not on how many `mask` names. All of one
    axis; `f` is called at least once."""
    order = np.argsort(~mask, kind="stable")
    count = int(np.count_nonzero(mask))
    for at in range(0, max(count, min(len(mask), 1)), block):
        here = order[at:at + block]
        asked = mask[here]
        made = f(*(np.where(asked, x[here], filler)
                   for x, filler in zip(given, fillers, strict=True)))
        some = count - at
        out[here[:some]] = made[:some]
        del made                             # (not held beside the next ones)


def erf(x: Any) -> Any:
    """The error function, elementwise."""
    return through_float64(lambda v: _erf64(v)[0], x)


def erfc(x: Any) -> Any:
    """1 - erf(x) without cancellation, elementwise."""
    return through_float64(lambda v: _erf64(v)[1], x)


TINY = 1e-290          # below it |Gamma(x)| is 1/|x|, whose products with others leave the range
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
        mirrored = np.where(np.abs(x) < TINY, -np.log(np.abs(x)), mirrored)
    pole = reflect & (x == np.floor(x))
    out = np.where(reflect, mirrored, body)
    out = np.where((x == 1.0) | (x == 2.0), 0.0, out)
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
    out = np.where(pole | (x == -np.inf), np.where(x == 0, np.copysign(np.inf, -x), np.nan), out)
    return np.where(np.isnan(x), x, out)


def lgamma(x: Any) -> Any:
    """log |Gamma(x)|, elementwise."""
    with np.errstate(all="ignore"):
        return through_float64(_lgamma64, x)


def digamma(x: Any) -> Any:
    """The logarithmic derivative of Gamma, elementwise."""
    with np.errstate(all="ignore"):
        return through_float64(_digamma64, x)


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


def _trigamma64(x: Array) -> Array:
    reflect = x < 0.5
    body = _polygamma64(1, np.where(reflect, 1.0 - x, x))
    mirrored = (np.pi / np.sin(np.pi * (x - np.round(x)))) ** 2 - body
    return np.where(reflect, mirrored, body)


def trigamma(x: Any) -> Any:
    """The derivative of digamma, elementwise."""
    with np.errstate(all="ignore"):
        return through_float64(_trigamma64, x)


def polygamma(n: int, x: Any) -> Any:
    """The n-th derivative of digamma, elementwise, n >= 0."""
    if n < 2:
        return trigamma(x) if n else digamma(x)
    with np.errstate(all="ignore"):
        return through_float64(lambda v: _polygamma_anywhere(n, v), x)


def _polygamma_anywhere(n: int, x: Array) -> Array:
    """Left of 0 by the sum over all integers, which is periodic, less what lies beyond x."""
    sign, flat = (-1.0) ** n, np.ravel(x)
    below = flat <= 0

    def around(x: Array) -> Array:
        part = x - np.floor(x)
        return (_polygamma64(n, part) - sign * _polygamma64(n, 1.0 - part)
                + sign * _polygamma64(n, 1.0 - x))
    out = _polygamma64(n, np.where(below, 1.0, flat))
    fill_in(out, below, around, (0.5,), flat, block=256)
    return out.reshape(x.shape)


_NEAR = ((2509.0809287301226727, 33430.575583588128105, 67265.770927008700853,
          45921.953931549871457, 13731.693765509461125, 1971.5909503065514427,
          133.14166789178437745, 3.3871328727963666080),
         (5226.4952788528545610, 28729.085735721942674, 39307.895800092710610,
          21213.794301586595867, 5394.1960214247511077, 687.18700749205790830,
          42.313330701600911252, 1.0))
_MIDDLE = ((7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
            1.27045825245236838258, 3.64784832476320460504, 5.76949722146069140550,
            4.63033784615654529590, 1.42343711074968357734),
           (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
            1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940,
            2.05319162663775882187, 1.0))
_FAR = ((2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
         2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580,
         5.46378491116411436990, 6.65790464350110377720),
        (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
         7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1,
         5.99832206555887937690e-1, 1.0))


def _ratio(table: tuple[tuple[float, ...], ...], x: Array) -> Array:
    return _poly(table[0], x) / _poly(table[1], x)


def _normal_quantile(q: Array, tail: Array) -> Array:
    """The quantile of the normal distribution at 1/2 + q; `tail` is the smaller of p and 1 - p.

    M. J. Wichura, "Algorithm AS 241", Applied Statistics 37 (1988): 16 digits.
    """
    near = np.abs(q) <= 0.425
    inside = np.where(near, q, 0.0)
    centre = inside * _ratio(_NEAR, 0.180625 - inside * inside)
    r = np.sqrt(-np.log(np.where(near, 0.1, tail)))
    middle = r <= 5.0
    outer = np.where(middle, _ratio(_MIDDLE, np.where(middle, r, 2.0) - 1.6),
                     _ratio(_FAR, np.where(middle | np.isinf(r), 6.0, r) - 5.0))
    outer = np.where(tail == 0, np.inf, outer)
    return np.where(near, centre, np.copysign(outer, q))


def _erfinv64(x: Array) -> Array:
    a = np.abs(x)
    y = _normal_quantile(x / 2.0, (1.0 - np.minimum(a, 1.0)) / 2.0) * 0.70710678118654752440
    return np.where((a > 1.0) | np.isnan(x), np.nan, y)


def _ndtri64(p: Array) -> Array:
    tail = np.minimum(p, 1.0 - p)
    inside = (p >= 0) & (p <= 1)
    y = _normal_quantile(np.where(inside, p - 0.5, 0.0), np.where(inside, tail, 0.5))
    return np.where(inside, y, np.nan)


def ndtri(p: Any) -> Any:
    """The quantile of the normal distribution at p, elementwise."""
    with np.errstate(all="ignore"):
        return through_float64(_ndtri64, p)


def _erfcx64(x: Array) -> Array:
    y = np.abs(x)
    low = np.where(y <= 0.46875, y, 0.0)
    near = np.exp(low * low) * _erf64(low)[1]
    far = np.where(y <= 0.46875, 1.0, np.where(np.isinf(y), 1e300, y))
    positive = np.where(y <= 0.46875, near, np.where(np.isinf(y), 0.0, _scaled_tail(far)))
    head = np.trunc(np.minimum(y, 30.0) * 16.0) / 16.0
    rest = np.minimum(y, 30.0)
    square = np.exp(head * head) * np.exp((rest - head) * (rest + head))     # exp(y^2)
    out = np.where(x < 0, 2.0 * square - positive, positive)
    return np.where(np.isnan(x), x, out)


def erfcx(x: Any) -> Any:
    """exp(x^2) erfc(x), elementwise: no underflow for large x."""
    with np.errstate(all="ignore"):
        return through_float64(_erfcx64, x)


def ndtr(x: Any) -> Any:
    """The distribution function of the normal distribution, elementwise."""
    with np.errstate(all="ignore"):
        return through_float64(lambda v: 0.5 * _erf64(v * -0.70710678118654752440)[1], x)


def _log_ndtr64(x: Array) -> Array:
    low = x < -1.0
    under = np.where(low, x, -2.0)
    tail = np.log(_erfcx64(under * -0.70710678118654752440) / 2.0) - under * under / 2.0
    over = np.where(low, 0.0, x)
    body = np.log1p(-0.5 * _erf64(over * 0.70710678118654752440)[1])
    return np.where(np.isnan(x), x, np.where(low, tail, body))


def log_ndtr(x: Any) -> Any:
    """log(ndtr(x)) without underflow, elementwise."""
    with np.errstate(all="ignore"):
        return through_float64(_log_ndtr64, x)


def erfinv(x: Any) -> Any:
    """The inverse error function on (-1, 1), elementwise."""
    with np.errstate(all="ignore"):
        return through_float64(_erfinv64, x)


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)), elementwise; never overflows."""
    return np.reciprocal(1 + np.exp(-x))


def logsigmoid(x: Any) -> Any:
    """log(sigmoid(x)) = min(x, 0) - log1p(exp(-|x|)), elementwise."""
    return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))


def _kind(x: Any) -> str:
    """The kind of an array's or a number's dtype."""
    dtype = getattr(x, "dtype", None)
    return str((np.asarray(x).dtype if dtype is None else dtype).kind)


def round_half_even(x: Any) -> Any:
    """Round to the nearest integer, ties to even."""
    return np.rint(x) if _kind(x) in "fc" else x


def rsqrt(x: Any) -> Any:
    """1 / sqrt(x), elementwise."""
    return np.reciprocal(np.sqrt(x))


def log10(x: Any) -> Any:
    """log10 with whole results at powers of ten, which NumPy's of float32 misses by a bit."""
    x = np.asarray(x)
    if x.dtype != np.float32:
        return np.log10(x)
    return np.log10(x, dtype=np.float64).astype(np.float32)


def absolute_sign(x: Any) -> Any:
    """The sign of a real value, 0 of one that is not a number; x/|x| of a complex one, 0 at 0."""
    if _kind(x) == "b":
        return np.array(x)
    with np.errstate(all="ignore"):         # NumPy's sign has a direction at infinity
        if _kind(x) != "c":
            x = np.asarray(x)
            return np.subtract(x > 0, x < 0, dtype=x.dtype, casting="unsafe")
        return np.where(x == 0, x, x / np.absolute(x))


def xlogy(x: Any, y: Any) -> Any:
    """x log y, and 0 where x is 0 unless y is nan."""
    with np.errstate(all="ignore"):
        out = x * np.log(y)
    return np.where((x == 0) & ~np.isnan(y), np.zeros((), out.dtype), out)
