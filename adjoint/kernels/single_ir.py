"""Functions that float32 alone has generated code for: inverse and hyperbolic functions, log2.

Polynomials in float32, or the formula in float64 rounded once. float64 takes the C library's.
"""
from __future__ import annotations

import math

from adjoint.kernels import mathlib
from adjoint.kernels.ir import Function, Value, lanes, vec
from adjoint.kernels.mathlib import Emit, apply, in_double

_ATAN32 = (-0.0009362994719496015, 0.00620725453378005, -0.019261081322765883,
           0.038327445983064846, -0.05760716083128117, 0.0741749696430051, -0.09036742342070782,
           0.1110470678864422, -0.14285317963907304, 0.19999990275947271, -0.33333333293301176)
_ASIN32 = (0.03369084720283012, 0.017149238357677253, 0.03110066273549457, 0.04459940152851218,
           0.07500094543497424, 0.16666666337430908)


def _times_log(scale: float) -> Emit:
    """scale log2(x) of float32, through float64."""
    def emit(f: Function, x: Value) -> Value:
        y = mathlib._wide_log2(f, f.cast("fpext", x, vec(lanes(x.ty), "double"))) * scale
        return mathlib._log_special(f, x, f.cast("fptrunc", y, x.ty))
    return emit


def _sinh(f: Function, x: Value) -> Value:
    t = apply(f, "expm1", mathlib._clamp(f, mathlib._abs(f, x), 0.0, 300.0))
    return mathlib._like(f, (t + t / (t + 1.0)) * 0.5, x)


def _cosh(f: Function, x: Value) -> Value:
    e = apply(f, "exp", mathlib._clamp(f, mathlib._abs(f, x), 0.0, 300.0))
    return (e + 1.0 / e) * 0.5


def _asinh(f: Function, x: Value) -> Value:
    a = mathlib._abs(f, x)
    y = apply(f, "log1p", a + a * a / (f.intrinsic("sqrt", f.fma(a, a, 1.0)) + 1.0))
    return mathlib._like(f, f.select(a.compare("olt", math.inf), y, a), x)


def _acosh(f: Function, x: Value) -> Value:
    t = x - 1.0
    y = apply(f, "log1p", t + f.intrinsic("sqrt", t * (t + 2.0)))
    return f.select(t.compare("oge", 0.0), y, f.const(x.ty, math.nan))


def _atanh(f: Function, x: Value) -> Value:
    a = mathlib._abs(f, x)
    return mathlib._like(f, apply(f, "log1p", a * 2.0 / (1.0 - a)) * 0.5, x)


def _turn(f: Function, size: float, y: Value) -> Value:
    """size * pi/2 - y for float32 values."""
    high, low = mathlib._PIO2["float"][:2]
    return f.const(y.ty, size * high) - (y - size * low)


def _atan_unit(f: Function, t: Value) -> Value:
    """atan for 0 <= t <= 1."""
    z = t * t
    return f.fma(f.poly(z, _ATAN32) * z, t, t)


def _atan(f: Function, x: Value) -> Value:
    a = mathlib._abs(f, x)
    over = a.compare("ogt", 1.0)
    y = _atan_unit(f, f.select(over, 1.0 / a, a))
    return mathlib._like(f, f.select(over, _turn(f, 1.0, y), y), x)


def _atan2(f: Function, y: Value, x: Value) -> Value:
    a, b = mathlib._abs(f, y), mathlib._abs(f, x)
    steep = a.compare("ogt", b)
    low, high = f.select(steep, b, a), f.select(steep, a, b)
    t = f.select(high.compare("oeq", 0.0), high, low / high)
    t = f.select(low.compare("oeq", math.inf), f.const(x.ty, 1.0), t)
    r = _atan_unit(f, t)
    r = f.select(steep, _turn(f, 1.0, r), r)
    r = f.select(f.bits(x, mathlib._int(x.ty)).compare("slt", 0), _turn(f, 2.0, r), r)
    return f.select(y.compare("uno", x), x + y, mathlib._like(f, r, y))


def _asin_near(f: Function, a: Value) -> tuple[Value, Value]:
    """(0 <= a <= 1 is below 1/2, asin(a) if so, else asin(sqrt((1 - a) / 2)))."""
    near = a.compare("olt", 0.5)
    z = f.select(near, a * a, (1.0 - a) * 0.5)
    s = f.select(near, a, f.intrinsic("sqrt", z))
    return near, f.fma(f.poly(z, _ASIN32) * z, s, s)


def _asin(f: Function, x: Value) -> Value:
    near, y = _asin_near(f, mathlib._abs(f, x))
    return mathlib._like(f, f.select(near, y, _turn(f, 1.0, y * 2.0)), x)


def _acos(f: Function, x: Value) -> Value:
    near, y = _asin_near(f, mathlib._abs(f, x))
    negative = x.compare("olt", 0.0)
    far = f.select(negative, _turn(f, 2.0, y * 2.0), y * 2.0)
    return f.select(near, _turn(f, 1.0, mathlib._like(f, y, x)), far)


def _hypot(f: Function, x: Value, y: Value) -> Value:
    a, b = mathlib._abs(f, x), mathlib._abs(f, y)
    found = f.intrinsic("sqrt", f.fma(a, a, b * b))
    inf = f.const(x.ty, math.inf)
    return f.select(a.compare("oeq", inf) | b.compare("oeq", inf), inf, found)


FUNCTIONS: dict[str, Emit] = {
    "tan": in_double(lambda f, x: apply(f, "sin", x) / apply(f, "cos", x)),
    "sinh": in_double(_sinh), "cosh": in_double(_cosh),
    "asinh": in_double(_asinh), "acosh": in_double(_acosh), "atanh": in_double(_atanh),
    "hypot": in_double(_hypot), "asin": _asin, "acos": _acos,
    "atan": _atan, "atan2": _atan2, "log2": _times_log(1.0), "log10": _times_log(math.log10(2)),
}
