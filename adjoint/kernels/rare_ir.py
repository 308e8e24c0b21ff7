"""Functions that NumPy and the C library lack, as LLVM IR: log Gamma, its slopes, quantiles, I; and
four that the C library has, one number at a time.

The formulas of the former are those of `kernels/special.py` and `kernels/bessel.py`, in float64;
float32 is rounded once. The branches of the reference that few values take (arguments to reflect,
far tails) run where a lane takes them.
"""
from __future__ import annotations

import math
from collections.abc import Callable

from adjoint.kernels import bessel, mathlib, special
from adjoint.kernels.ir import Function, Value, element, lanes, vec

_HALF_LOG_TAU = 0.9189385332046727418
_ROOT_HALF = 0.70710678118654752440


def _where_any(f: Function, mask: Value, y: Value, make: Callable[[], Value]) -> Value:
    """`make()` in the lanes of `mask`, else `y`; nothing is computed where no lane is."""
    some = mask if lanes(mask.ty) == 1 else f.emit(
        "i1", f"call i1 @{mathlib.any_name(f, mask.ty)}({mask.ty} {mask.ref})")
    return f.when(some, lambda: [f.select(mask, make(), y)], [y])[0]


def _call(f: Function, name: str, x: Value) -> Value:
    return mathlib.apply(f, name, x)


def _turned(f: Function, x: Value) -> tuple[Value, Value]:
    """(sin pi r, cos pi r) of x's distance r to the nearest whole number: from half the angle,
    which needs no reduction."""
    sin, cos = mathlib.near_zero(f, (x - f.intrinsic("roundeven", x)) * (math.pi / 2))
    return sin * cos * 2.0, (cos - sin) * (cos + sin)


def _mirror(f: Function, x: Value) -> tuple[Value, Value]:
    """(x below 1/2, where formulas are reflected; 1 - x there, else x)."""
    low = x.compare("olt", 0.5)
    return low, f.select(low, 1.0 - x, x)


def _rounds(f: Function, n: int, turn: Callable[..., list[Value]], *carried: Value) -> list[Value]:
    """The values after n turns. As a loop: of ten turns in a row, over four registers each, LLVM
    takes 20 ms more."""
    return f.loop(f.const("i64", 0), f.const("i64", n), 1, carried, lambda _, v: turn(*v))


def _lgamma(f: Function, x: Value) -> Value:
    low, w = _mirror(f, x)

    def up(w: Value, product: Value) -> list[Value]:
        small = w.compare("olt", 8.0)
        return [f.select(small, w + 1.0, w), f.select(small, product * w, product)]
    w, product = _rounds(f, 8, up, w, f.const(x.ty, 1.0))
    inverse = 1.0 / w
    series = f.poly(inverse * inverse, special._STIRLING[::-1])
    y = (w - 0.5) * _call(f, "log", w) - w + _HALF_LOG_TAU + series * inverse

    def reflected() -> Value:
        return f.intrinsic("fabs", _turned(f, x)[0]) / (product * math.pi)
    # what is taken off, y or its mirror image: log product, log (sin / pi product)
    size = f.intrinsic("fabs", x)
    tiny = size.compare("olt", special.TINY)
    rest = _call(f, "log", f.select(tiny, size, _where_any(f, low, product, reflected)))
    y = f.select(tiny, f.const(x.ty, 0.0), f.select(low, -y, y)) - rest
    inf = f.const(x.ty, math.inf)
    y = f.select(w.compare("oeq", math.inf), inf, y)
    y = f.select(x.compare("oeq", 1.0) | x.compare("oeq", 2.0), f.const(x.ty, 0.0), y)
    whole = size.compare("oeq", math.inf) | (
        x.compare("ole", 0.0) & x.compare("oeq", f.intrinsic("floor", x)))
    y = f.select(whole, inf, y)
    return f.select(x.compare("uno", x), x, y)


def _digamma(f: Function, x: Value) -> Value:
    low, w = _mirror(f, x)

    def up(w: Value, top: Value, bottom: Value) -> list[Value]:
        small = w.compare("olt", 10.0)
        return [f.select(small, w + 1.0, w), f.select(small, f.fma(top, w, bottom), top),
                f.select(small, bottom * w, bottom)]
    # the sum of 1 / w, as one fraction
    w, top, bottom = _rounds(f, 10, up, w, f.const(x.ty, 0.0), f.const(x.ty, 1.0))
    inverse = 1.0 / w
    square = inverse * inverse
    y = _call(f, "log", w) - inverse * 0.5 + f.poly(square, special._DIGAMMA[::-1]) * square
    y = y - top / bottom

    def reflected() -> Value:
        sin, cos = _turned(f, x)
        return y - cos * math.pi / sin
    y = _where_any(f, low, y, reflected)
    whole = x.compare("oeq", -math.inf) | (
        low & x.compare("oeq", f.intrinsic("floor", x)))
    y = f.select(whole, f.const(x.ty, math.nan), y)
    y = f.select(x.compare("oeq", 0.0), f.intrinsic("copysign", f.const(x.ty, math.inf), -x), y)
    return f.select(x.compare("uno", x), x, y)


_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510,
              43867 / 798, -174611 / 330)


def _trigamma(f: Function, x: Value) -> Value:
    low, w = _mirror(f, x)

    def up(w: Value, top: Value, bottom: Value) -> list[Value]:
        small, square = w.compare("olt", 10.0), w * w
        return [f.select(small, w + 1.0, w), f.select(small, f.fma(top, square, bottom), top),
                f.select(small, bottom * square, bottom)]
    # the sum of 1 / w^2, as one fraction
    w, top, bottom = _rounds(f, 10, up, w, f.const(x.ty, 0.0), f.const(x.ty, 1.0))
    inverse = 1.0 / w
    square = inverse * inverse
    series = f.poly(square, _BERNOULLI[::-1]) * square * inverse
    y = top / bottom + (inverse + (square * 0.5 + series))

    def reflected() -> Value:
        root = math.pi / _turned(f, x)[0]
        return root * root - y
    return _where_any(f, low, y, reflected)


def _modified(order: int, scaled: bool) -> Callable[[Function, Value], Value]:
    """I of that order, times exp(-|x|) if scaled; see `bessel._modified`."""
    near = [1.0 / (math.factorial(k) * math.factorial(k + order)) for k in range(40)]
    far = [1.0]
    for k in range(1, 29):
        far.append(far[-1] * -(4.0 * order * order - (2 * k - 1) ** 2) / (8.0 * k))

    def emit(f: Function, x: Value) -> Value:
        y = f.intrinsic("fabs", x)
        low = y.compare("ole", bessel.SERIES_TO)
        close = f.select(low, y, f.const(x.ty, 0.0))
        half = close * 0.5
        out = f.poly(half * half, near[::-1])
        if order:
            out = out * half
        if scaled:
            out = out * _call(f, "exp", -close)

        def outside() -> Value:
            z = f.select(low, f.const(x.ty, 30.0), y)
            high = f.poly(1.0 / z, far[::-1]) / f.intrinsic("sqrt", z * (2.0 * math.pi))
            if scaled:
                return high
            e = _call(f, "exp", z * 0.5)                # exp(y) alone overflows too early
            return f.select(z.compare("oeq", math.inf), z, high * e * e)
        out = _where_any(f, low ^ True, out, outside)
        return f.intrinsic("copysign", out, x) if order else out
    return emit


def _ratio(f: Function, table: tuple[tuple[float, ...], ...], x: Value) -> Value:
    return f.poly(x, table[0]) / f.poly(x, table[1])


def _quantile(f: Function, q: Value, tail: Value) -> Value:
    """See `special._normal_quantile`."""
    near = f.intrinsic("fabs", q).compare("ole", 0.425)
    centre = q * _ratio(f, special._NEAR, 0.180625 - q * q)

    def outside() -> Value:
        r = f.intrinsic("sqrt", -_call(f, "log", f.select(near, f.const(q.ty, 0.1), tail)))
        y = _ratio(f, special._MIDDLE, r - 1.6)
        far = r.compare("ogt", 5.0)
        y = _where_any(f, far, y, lambda: _ratio(f, special._FAR, r - 5.0))
        y = f.select(tail.compare("oeq", 0.0), f.const(q.ty, math.inf), y)
        return f.intrinsic("copysign", y, q)
    return _where_any(f, near ^ True, centre, outside)


def _erfinv(f: Function, x: Value) -> Value:
    a = f.intrinsic("fabs", x)
    inside = a.compare("ole", 1.0)
    y = _quantile(f, x * 0.5, f.select(inside, (1.0 - a) * 0.5, f.const(x.ty, 0.5))) * _ROOT_HALF
    return f.select(inside, y, f.const(x.ty, math.nan))


def _ndtri(f: Function, p: Value) -> Value:
    inside = p.compare("oge", 0.0) & p.compare("ole", 1.0)
    p = f.select(inside, p, f.const(p.ty, 0.5))
    rest = 1.0 - p
    y = _quantile(f, p - 0.5, f.select(p.compare("olt", 0.5), p, rest))
    return f.select(inside, y, f.const(p.ty, math.nan))


def _ndtr(f: Function, x: Value) -> Value:
    return mathlib.erfc_wide(f, x * -_ROOT_HALF) * 0.5


def _log_ndtr(f: Function, x: Value) -> Value:
    low = x.compare("olt", -1.0)
    y = _call(f, "log1p", mathlib.erfc_wide(f, x * _ROOT_HALF) * -0.5)

    def tail() -> Value:
        under = f.select(low, x, f.const(x.ty, -2.0))
        scaled = mathlib.scaled_tail(f, under * -_ROOT_HALF)
        return _call(f, "log", scaled * 0.5) - under * under * 0.5
    return _where_any(f, low, y, tail)


def _hypot(f: Function, x: Value, y: Value) -> Value:
    """Squares of numbers that were scaled by a power of two where they would leave the range."""
    a, b = f.intrinsic("fabs", x), f.intrinsic("fabs", y)
    least = f.select(a.compare("ogt", b), b, a)
    most = f.select(a.compare("ogt", b), a, b)
    high, low = most.compare("ogt", 2.0 ** 500), most.compare("olt", 2.0 ** -500)
    small, one, large = (f.const(x.ty, v) for v in (2.0 ** -600, 1.0, 2.0 ** 600))
    scale = f.select(high, small, f.select(low, large, one))
    back = f.select(high, large, f.select(low, small, one))
    p, q = most * scale, least * scale
    root = f.intrinsic("sqrt", f.fma(p, p, q * q)) * back
    inf = f.const(x.ty, math.inf)
    return f.select(a.compare("oeq", inf) | b.compare("oeq", inf), inf, root)


def _nextafter(f: Function, a: Value, b: Value) -> Value:
    """The bits of a float, taken for a whole number, count up away from zero."""
    ty = vec(lanes(a.ty), "i32" if element(a.ty) == "float" else "i64")
    bits = f.bits(a, ty)
    away = b.compare("ogt", a) ^ bits.compare("slt", 0)
    moved = bits + f.select(away, f.const(ty, 1), f.const(ty, -1))
    sign = 31 if element(ty) == "i32" else 63
    least = (((f.bits(b, ty) >> sign) << sign) | 1)           # from 0, the side of b
    moved = f.select(a.compare("oeq", 0.0), least, moved)
    out = f.select(a.compare("oeq", b), b, f.bits(moved, a.ty))
    return f.select(a.compare("uno", b), a + b, out)


def _log_base(scale: tuple[float, float], step: tuple[float, float]) -> Callable[..., Value]:
    """log(x) / log(base) of float64, in two parts, so that powers of the base come out whole.

    `scale` is 1 / log(base) and what float64 loses of it. `step` is log(2) / log(base), cut so
    that its product with an exponent is exact, and the rest.
    """
    def emit(f: Function, x: Value) -> Value:
        e, t = mathlib._split_log(f, x)
        s = t / (t + 2.0)
        z = s * s
        half = t * t * 0.5
        high = t - half
        lost = (t - high) - half - f.fma(t, t * 0.5, -half)
        low = f.fma(s, half + f.poly(z, mathlib._LOG64) * z, lost)
        part = high * scale[0]
        rest = f.fma(high, scale[0], -part) + high * scale[1] + low * scale[0] + e * step[1]
        whole = e * step[0]
        top = whole + part
        return mathlib._log_special(f, x, top + (rest + ((whole - top) + part)))
    return emit


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "log2": _log_base((1.4426950408889634, 2.0355273740931033e-17), (1.0, 0.0)),
    "log10": _log_base((0.4342944819032518, 1.098319650216765e-17),
                       (0.30102999566383914, 1.42050232272661e-13)),
    "erfc": mathlib.erfc_wide, "lgamma": _lgamma, "digamma": _digamma, "erfinv": _erfinv,
    "ndtri": _ndtri, "ndtr": _ndtr, "log_ndtr": _log_ndtr, "trigamma": _trigamma,
    "i0": _modified(0, False), "i1": _modified(1, False), "i0e": _modified(0, True),
    "i1e": _modified(1, True), "hypot": _hypot, "nextafter": _nextafter}
