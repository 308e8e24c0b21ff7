"""Vector mathematics as LLVM IR: exp, log, tanh, erf, sin, pow and friends, float32 and float64.

`apply(f, "exp", x)` emits a call of an internal function, generated once per module for the type
of `x` (a scalar or a vector), that LLVM inlines. Methods: arguments are reduced with fused
multiply-adds to an interval around 0 (Cody and Waite, Software Manual for the Elementary
Functions, 1980), where a polynomial interpolating at Chebyshev nodes is within 1e-9 (float32) or
1e-17 (float64) of the function. erf in float64 uses W. J. Cody's rational approximations (Math.
Comp. 23, 1969). Signed zeros, infinities, nan and subnormal numbers come out as in C99's Annex F.
Error bounds in units in the last place are in `ULP` and are asserted by tests.

Where a polynomial has no advantage (huge arguments of sin, remainders of huge quotients, float64
pow and inverse trigonometric functions) lanes go to the C library one by one.
"""
from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence

from adjoint.kernels import llvm, special
from adjoint.kernels.ir import Function, Value, element, lanes, suffix, vec

Emit = Callable[..., Value]

# Largest error seen over a dense sample (float32: every 97th bit pattern), rounded up.
ULP: dict[str, tuple[float, float]] = {
    "exp": (1.0, 1.0), "exp2": (1.0, 1.0), "expm1": (1.5, 2.0), "log": (1.0, 1.0),
    "log2": (1.0, 1.0), "log10": (1.0, 1.0), "log1p": (1.0, 1.0), "tanh": (2.5, 2.5),
    "sigmoid": (2.5, 2.5), "logsigmoid": (2.0, 2.0), "erf": (1.5, 3.5), "sin": (1.6, 1.6),
    "cos": (1.6, 1.6), "pow": (1.0, 1.0), "rsqrt": (1.5, 1.5), "sqrt": (0.5, 0.5),
    "tan": (0.6, 1.0), "sinh": (0.6, 2.0), "cosh": (0.6, 2.0), "asinh": (0.6, 2.0),
    "acosh": (0.6, 2.0), "atanh": (0.6, 2.0), "asin": (2.5, 1.0), "acos": (2.0, 1.0),
    "atan": (2.0, 1.0),
}
_EXP32 = (0.0013863778440281749, 0.00836748443543911, 0.041667237877845764,
          0.16666534543037415, 0.5)            # within 3.9e-9 of exp(r), |r| <= ln(2) / 2
_EXPM1_32 = (0.00019891080463998843, 0.0013933730715792083, 0.008333310844647862,
             0.04166646419740569, 0.16666666681704215, 0.5)
_EXP64 = (1.6086677666787362e-10, 2.091821231913398e-09, 2.5052070959803662e-08,
          2.755726307730941e-07, 2.7557319247344507e-06, 2.480158733663095e-05,
          0.00019841269841263252, 0.0013888888888879004, 0.008333333333333333,
          0.04166666666666668, 0.16666666666666666, 0.5)
_LOG32 = (-0.06201500119018334, 0.10530864738938345, -0.10646191638199634, 0.1103778335905502,
          -0.12450743320911725, 0.14286524547786641, -0.16668001523071926, 0.20000010039684973,
          -0.24999990275042186, 0.33333333281199246)
_LOG64 = (0.13088034850927555, 0.13268638369266825, 0.15386244737621665, 0.18181795547521137,
          0.22222222392581045, 0.28571428570799784, 0.40000000000000885, 0.6666666666666666)
_POWLOG = (0.24293824606326322, 0.26144245557136553, 0.3206164421244846, 0.4121984013068434,
           0.5770780172508729, 0.9617966939243245, 2.885390081777927)
_POWEXP = (1.3250947111387495e-06, 1.530390509058455e-05, 0.00015403474743184252,
           0.0013333477833756698, 0.009618129135569293, 0.05550410906806735,
           0.24022650695888154, 0.6931471805567823)
_ERF32_NEAR = (8.529401322836862e-05, -0.0008179632180888265, 0.005204226693752301,
               -0.02686066479113085, 0.11283718049593898, -0.37612635193967825,
               1.1283791667892225)
_ERF32_FAR = (1.6430636556906173e-06, -4.616385862524457e-05, 0.0005975857702302331,
              -0.004762625832512992, 0.026427637153529877, -0.1100871664955004,
              -0.6318239181057594, -1.1302310552231873, 0.00031853966241225597)
_SIN32 = (2.7249314054698804e-06, -0.00019840082012765537, 0.008333331865959415,
          -0.16666666663832763)
_COS32 = (2.45474372101932e-05, -0.00138883006969039, 0.04166666464745738)
_SIN64 = (1.5917848524808262e-10, -2.5051127944014188e-08, 2.755731608381636e-06,
          -0.00019841269836722418, 0.008333333333330925, -0.16666666666666666)
_COS64 = (4.745804889760674e-14, -1.1470459749675607e-11, 2.087675578389404e-09,
          -2.7557319221382114e-07, 2.4801587301584618e-05, -0.0013888888888888887,
          0.041666666666666664)
_LN2 = {"float": (0.6931471824645996, -1.9046542121259336e-09),
        "double": (0.6931471805599453, 2.3190468138462996e-17)}
_LN2_TRUNC = {"float": (0.693145751953125, 1.4286068203094173e-06),
              "double": (0.693147180559663, 2.8235290563031577e-13)}
_PIO2 = {"float": (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
         "double": (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)}
_MAGIC = {"float": 1.5 * 2**23, "double": 1.5 * 2**52}
_SOME = {"float": 30, "double": 60}      # a power of 2 from there is normal, so are sums with it
_BITS = {"float": (23, 127, 0x7FFFFFFF, -0x80000000),
         "double": (52, 1023, 2**63 - 1, -2**63)}


def apply(f: Function, name: str, *args: Value) -> Value:
    """Emit `name(*args)` into `f`; every operand has the same float type.

    Raises:
        KeyError: where the library has no function of that name (see `names`).
    """
    ty = args[0].ty
    full = f"math_{name}_{suffix(ty)}"
    if not f.code.has(full):
        make = _made(name, element(ty))
        g = f.code.function(full, [(ty, f"x{i}") for i in range(len(args))], returns=ty,
                            attributes="alwaysinline" if make else "noinline", internal=True)
        g.ret(make(g, *g.args) if make else by_lane(g, name, *g.args))
    return f.call(full, ty, *args)


def _made(name: str, base: str) -> Emit | None:
    """What emits the function for floats of that width; None for the C library's."""
    make = _FUNCTIONS.get(name)
    if make is None and base == "float" and name in SINGLE:
        return _loaded("single_ir", name)
    if make is None and name in RARE:
        make = _loaded("rare_ir", name)
        return in_double(make) if base == "float" and name != "nextafter" else make
    if make is None and name not in LIBM:
        raise KeyError(name)
    return make


def _loaded(module: str, name: str) -> Emit:
    make: Emit = importlib.import_module(f"adjoint.kernels.{module}").FUNCTIONS[name]
    return make


def names() -> frozenset[str]:
    """Every function that `apply` knows."""
    return frozenset(_FUNCTIONS) | LIBM | RARE


def _int(ty: str) -> str:
    return vec(lanes(ty), "i32" if element(ty) == "float" else "i64")


def _abs(f: Function, x: Value) -> Value:
    return f.intrinsic("fabs", x)


def _like(f: Function, magnitude: Value, sign: Value) -> Value:
    return f.intrinsic("copysign", magnitude, sign)


def _clamp(f: Function, x: Value, lo: float, hi: float) -> Value:
    """min(max(x, lo), hi), nan kept: the comparison is false for nan and selects x."""
    high, low = f.const(x.ty, hi), f.const(x.ty, lo)
    x = f.select(x.compare("ogt", high), high, x)
    return f.select(x.compare("olt", low), low, x)


def _scale(f: Function, x: Value, n: Value, raw: Value) -> Value:
    """x * 2^n for integral n, right down to subnormal results.

    `raw` = n plus the magic constant, whose low bits hold n. Two powers of 2: what n asks for but
    for some, which the other gives back.
    """
    base, whole = element(x.ty), lanes(x.ty)
    if llvm.vector_bits() == 512 and (whole, base) in ((32, "float"), (16, "double")):
        parts = [[f.shuffle(v, v, range(at, at + whole // 2)) for v in (x, n, raw)]
                 for at in (0, whole // 2)]
        return f.shuffle(_scale(f, *parts[0]), _scale(f, *parts[1]), range(whole))
    if _scales_in_one(x):
        kind, mask = ("ps", "i16") if base == "float" else ("pd", "i8")
        name = f"llvm.x86.avx512.mask.scalef.{kind}.512"
        f.code.declare(name, f"declare {x.ty} @{name}({x.ty}, {x.ty}, {x.ty}, {mask}, i32)")
        return f.emit(x.ty, f"call {x.ty} @{name}({x.ty} {x.ref}, {x.ty} {n.ref}, {x.ty} "
                            f"zeroinitializer, {mask} -1, i32 4)")
    shift, bias, _, _ = _BITS[base]
    some, down = _SOME[base], n.compare("olt", 0.0)
    add = f.select(down, f.const(_int(x.ty), (bias + some) << shift),
                   f.const(_int(x.ty), (bias - some) << shift))
    first = f.bits((f.bits(raw, _int(x.ty)) << shift) + add, x.ty)
    return x * first * f.select(down, f.const(x.ty, 2.0 ** -some), f.const(x.ty, 2.0 ** some))


def _scales_in_one(x: Value) -> bool:
    """Whether the CPU multiplies by powers of 2 in one instruction."""
    return llvm.vector_bits() == 512 and (lanes(x.ty), element(x.ty)) in (
        (16, "float"), (8, "double"), (32, "float"), (16, "double"))


def _reduce_exp(f: Function, x: Value, offset: int = 0) -> tuple[Value, Value, Value]:
    """(n, raw, r) with x = n ln 2 + r; the low bits of `raw` hold n + offset."""
    base = element(x.ty)
    magic = _MAGIC[base] + offset
    raw = f.fma(x, 1 / math.log(2), magic)
    n = raw - magic
    high, low = _LN2[base]
    r = f.fma(n, -high, x)
    return n, raw, f.fma(n, -low, r)


def _power(f: Function, x: Value, raw: Value) -> Value:
    """2^n as x has it, where the low bits of `raw` hold n plus the bias of exponents."""
    return f.bits(f.bits(raw, _int(x.ty)) << _BITS[element(x.ty)][0], x.ty)


def _exp_poly(f: Function, r: Value) -> Value:
    return f.poly(r, (*(_EXP32 if element(r.ty) == "float" else _EXP64), 1.0, 1.0))


def _expm1_poly(f: Function, r: Value) -> Value:
    return f.fma(f.poly(r, _EXPM1_32 if element(r.ty) == "float" else _EXP64), r * r, r)


def _exp(f: Function, x: Value) -> Value:
    lo, hi = (-104.0, 89.0) if element(x.ty) == "float" else (-746.0, 710.0)
    n, raw, r = _reduce_exp(f, _clamp(f, x, lo, hi))
    return _scale(f, _exp_poly(f, r), n, raw)


def _exp_negative(f: Function, x: Value) -> Value:
    """exp(x) for x <= 0 (softmax, sigmoid); results below the normal numbers become 0 or tiny."""
    base = element(x.ty)
    lo = f.const(x.ty, -104.0 if base == "float" else -746.0)
    x = f.select(x.compare("olt", lo), lo, x)
    if _scales_in_one(x):
        n, raw, r = _reduce_exp(f, x)
        return _scale(f, _exp_poly(f, r), n, raw)
    some = _SOME[base]
    _, raw, r = _reduce_exp(f, x, _BITS[base][1] + some)
    return _exp_poly(f, r) * _power(f, x, raw) * 2.0 ** -some


def _exp2(f: Function, x: Value) -> Value:
    base = element(x.ty)
    lo, hi = (-151.0, 129.0) if base == "float" else (-1076.0, 1025.0)
    x = _clamp(f, x, lo, hi)
    raw = x + _MAGIC[base]
    n = raw - _MAGIC[base]
    high, low = _LN2[base]
    part = x - n
    top = part * high
    r = top + f.fma(part, low, f.fma(part, high, -top))
    return _scale(f, _exp_poly(f, r), n, raw)


def _expm1(f: Function, x0: Value) -> Value:
    base = element(x0.ty)
    lo, hi = (-20.0, 89.0) if base == "float" else (-40.0, 710.0)
    x = _clamp(f, x0, lo, hi)
    _, raw, r = _reduce_exp(f, x, _BITS[base][1] - 1)
    p = _expm1_poly(f, r)
    s = _power(f, x, raw)                        # 2^(n-1): n may be one above the exponents
    y = f.fma(s, p, s - 0.5) * 2.0
    return f.select(x0.compare("oeq", 0.0), x0, y)


def _split_log(f: Function, x: Value) -> tuple[Value, Value]:
    """(e, m - 1) with x = 2^e m and m in [sqrt(1/2), sqrt(2)); subnormal x too."""
    base = element(x.ty)
    shift, bias, _, _ = _BITS[base]
    tiny = x.compare("olt", 2.0 ** (1 - bias))
    big = f.select(tiny, x * 2.0 ** shift, x)
    root = 0x3F3504F3 if base == "float" else 0x3FE6A09E667F3BCD
    ix = f.bits(big, _int(x.ty)) - root
    e = f.emit(ix.ty, f"ashr {ix.ty} {ix.ref}, {f.const(ix.ty, shift).ref}")
    m = f.bits((ix & ((1 << shift) - 1)) + root, x.ty)
    real = f.cast("sitofp", e, x.ty)
    real = f.select(tiny, real - float(shift), real)
    return real, m - 1.0


def _log_core(f: Function, x: Value, extra: Value | None) -> Value:
    """log of positive finite x, plus `extra` (small) before the last rounding."""
    base = element(x.ty)
    high, low = _LN2_TRUNC[base]
    e, t = _split_log(f, x)
    half = t * t * 0.5
    if base == "float":
        rest = f.fma(f.poly(t, _LOG32), t * t * t, e * low if extra is None
                     else f.fma(e, low, extra))
        return f.fma(e, high, t - (half - rest)) if extra is None else (
            e * high + (t - (half - rest)))
    s = t / (t + 2.0)
    z = s * s
    r = f.poly(z, _LOG64) * z
    low_part = e * low if extra is None else f.fma(e, low, extra)
    return f.fma(e, high, t - (half - f.fma(s, half + r, low_part)))


def _log_special(f: Function, x: Value, y: Value) -> Value:
    """-inf at 0, inf at inf, nan below 0 and at nan."""
    inf = f.const(x.ty, math.inf)
    y = f.select(x.compare("oeq", inf), inf, y)
    y = f.select(x.compare("oeq", 0.0), f.const(x.ty, -math.inf), y)
    return f.select(x.compare("uge", 0.0), f.select(x.compare("uno", x), x, y),
                    f.const(x.ty, math.nan))


def _log(f: Function, x: Value) -> Value:
    return _log_special(f, x, _log_core(f, x, None))


def _log1p(f: Function, x: Value) -> Value:
    u = x + 1.0
    lost = (x - (u - 1.0)) / u
    lost = f.select(u.compare("olt", math.inf), lost, f.const(x.ty, 0.0))
    big = x.compare("ogt", 1.0)  # beyond 1 the lost part is 1 - (u - x)
    lost = f.select(big, (1.0 - (u - x)) / u, lost)
    lost = f.select(u.compare("olt", math.inf), lost, f.const(x.ty, 0.0))
    y = _log_special(f, u, _log_core(f, u, lost))
    tiny = 2.0 ** -25 if element(x.ty) == "float" else 2.0 ** -54
    return f.select(_abs(f, x).compare("olt", tiny), x, y)


def _sigmoid(f: Function, x: Value) -> Value:
    e = apply(f, "exp_negative", -_abs(f, x))
    negative = f.bits(x, _int(x.ty)).compare("slt", 0)
    return f.select(negative, e, f.const(x.ty, 1.0)) / (e + 1.0)


def _tanh(f: Function, x: Value) -> Value:
    edge = 10.0 if element(x.ty) == "float" else 20.0
    a = _abs(f, x)
    limit = f.const(x.ty, edge)
    a = f.select(a.compare("ogt", limit), limit, a)
    t = _expm1_small(f, a * 2.0)
    return _like(f, t / (t + 2.0), x)


def _expm1_small(f: Function, x: Value) -> Value:
    """expm1 for 0 <= x < 80."""
    _, raw, r = _reduce_exp(f, x, _BITS[element(x.ty)][1])
    s = _power(f, x, raw)
    return f.fma(s, _expm1_poly(f, r), s - 1.0)


def _erf(f: Function, x: Value) -> Value:
    return _erf32(f, x) if element(x.ty) == "float" else _erf64(f, x)


def _erf32(f: Function, x: Value) -> Value:
    a = _abs(f, x)
    limit = f.const(x.ty, 4.0)
    a = f.select(a.compare("ogt", limit), limit, a)
    near = f.fma(f.poly(x * x, (*_ERF32_NEAR[:-1], _ERF32_NEAR[-1] - 1.0)), a, a)
    far = 1.0 - apply(f, "exp_negative", f.poly(a, _ERF32_FAR))
    return _like(f, f.select(a.compare("olt", 0.9), near, far), x)


def _rational(f: Function, x: Value, top: Sequence[float], bottom: Sequence[float]) -> Value:
    return f.poly(x, top) / f.poly(x, bottom)


def _cody(f: Function, a: Value) -> tuple[Value, Value]:
    """(erf(a) where a is below 0.46875, 1 - erf(a) where it is not) for 0 <= a."""
    near = a * _rational(f, a * a, special._A, special._B)
    square = a * a
    e = apply(f, "exp_negative", -square)
    return near, (e - e * f.fma(a, a, -square)) * scaled_tail(f, a)


def scaled_tail(f: Function, a: Value) -> Value:
    """exp(a^2) erfc(a) for a > 0.46875."""
    mid = _rational(f, a, special._C, special._D)
    z = 1.0 / (a * a)
    far = (special._SQRPI - z * _rational(f, z, special._P, special._Q)) / a
    return f.select(a.compare("olt", 4.0), mid, far)


def _erf64(f: Function, x: Value) -> Value:
    """Cody's three intervals; the tail beyond 6 is 1."""
    a = _clamp(f, _abs(f, x), 0.0, 6.0)
    near, rest = _cody(f, a)
    return _like(f, f.select(a.compare("olt", 0.46875), near, 1.0 - rest), x)


def erfc_wide(f: Function, x: Value) -> Value:
    """1 - erf(x) of float64."""
    a = _clamp(f, _abs(f, x), 0.0, 28.0)
    near, rest = _cody(f, a)
    y = f.select(a.compare("olt", 0.46875), 1.0 - near, rest)
    return f.select(x.compare("olt", 0.0), 2.0 - y, y)


def near_zero(f: Function, r: Value) -> tuple[Value, Value]:
    """(sin r, cos r) for |r| <= pi/4."""
    sin_p, cos_p = (_SIN32, _COS32) if element(r.ty) == "float" else (_SIN64, _COS64)
    z = r * r
    return (f.fma(f.poly(z, sin_p) * z, r, r),
            f.fma(f.poly(z, cos_p), z * z, f.fma(z, -0.5, 1.0)))


def _trig(shift: int, libm: str) -> Emit:
    """sin (shift 0) or cos (shift 1) with quadrants by bits; huge arguments go to libm."""
    def emit(f: Function, x: Value) -> Value:
        base = element(x.ty)
        magic = _MAGIC[base]
        raw = f.fma(x, 2 / math.pi, magic)
        q = raw - magic
        r = x
        for part in _PIO2[base]:
            r = f.fma(q, -part, r)
        sin, cos = near_zero(f, r)
        k = f.bits(raw, _int(x.ty)) + shift
        odd = (k & 1).compare("ne", 0)
        y = f.select(odd, cos, sin)
        top = _BITS[base][0] + (8 if base == "float" else 11) - 1
        flip = (k & 2) << (top)
        y = f.bits(f.bits(y, k.ty) ^ flip, x.ty)
        if shift == 0:
            y = f.select(x.compare("oeq", 0.0), x, y)
        big = _abs(f, x).compare("uge", 1e5 if base == "float" else 1e9)
        return _slow_lanes(f, big, libm, y, x)
    return emit


def _slow_lanes(f: Function, where: Value, name: str, y: Value, *args: Value) -> Value:
    """`y`, but computed by the C library in every lane if `where` holds in any."""
    full = f"lanes_{name}_{suffix(args[0].ty)}"
    if not f.code.has(full):
        g = f.code.function(full, [(a.ty, f"x{i}") for i, a in enumerate(args)],
                            returns=args[0].ty, attributes="noinline", internal=True)
        g.ret(by_lane(g, name, *g.args))
    any_ = where if lanes(where.ty) == 1 else f.emit(
        "i1", f"call i1 @{any_name(f, where.ty)}({where.ty} {where.ref})")
    return f.when(any_, lambda: [f.select(where, f.call(full, y.ty, *args), y)], [y])[0]


def any_name(f: Function, ty: str) -> str:
    """The name of what tells whether any lane of a mask holds."""
    name = f"llvm.vector.reduce.or.{suffix(ty)}"
    f.code.declare(name, f"declare i1 @{name}({ty})")
    return name


def by_lane(f: Function, name: str, *args: Value) -> Value:
    """A C library function lane by lane."""
    base, n = element(args[0].ty), lanes(args[0].ty)
    symbol = name + ("f" if base == "float" else "")
    f.code.declare(symbol, f"declare {base} @{symbol}({', '.join([base] * len(args))})")
    if n == 1:
        return f.call(symbol, base, *args)

    room = [f.emit("ptr", f"alloca {args[0].ty}, align 64") for _ in range(len(args) + 1)]
    for a, p in zip(args, room, strict=False):
        f.store(a, p)

    def turn(i: Value, _: list[Value]) -> list[Value]:
        y = f.call(symbol, base, *(f.load(f.at(p, base, i), base) for p in room[:-1]))
        f.store(y, f.at(room[-1], base, i))
        return []
    f.loop(f.i64(0), f.i64(n), 1, [], turn)
    return f.load(room[-1], args[0].ty)


def _wide_log2(f: Function, x: Value) -> Value:
    """log2 of positive finite float64 values, relative error about 1e-15."""
    e, t = _split_log(f, x)
    s = t / (t + 2.0)
    return f.fma(f.poly(s * s, _POWLOG), s, e)


def _pow(f: Function, x: Value, y: Value) -> Value:
    return _pow32(f, x, y) if element(x.ty) == "float" else by_lane(f, "pow", x, y)


def _pow32(f: Function, x: Value, y: Value) -> Value:
    """Through float64: exp2(y log2 |x|), then the sign and the special cases of C99."""
    wide = vec(lanes(x.ty), "double")
    a = f.cast("fpext", _abs(f, x), wide)
    log = _wide_log2(f, a)
    log = f.select(a.compare("oeq", 0.0), f.const(wide, -math.inf), log)
    log = f.select(a.compare("olt", math.inf), log, a)
    p = _clamp(f, log * f.cast("fpext", y, wide), -1000.0, 1000.0)
    raw = p + _MAGIC["double"]
    n = raw - _MAGIC["double"]
    r = p - n
    e = f.fma(f.poly(r, _POWEXP), r, 1.0)
    z = f.cast("fptrunc", _scale(f, e, n, raw), x.ty)
    whole = f.intrinsic("trunc", y)
    half = y * 0.5
    odd = f.intrinsic("trunc", half).compare("one", half) & whole.compare("oeq", y)
    negative = f.bits(x, _int(x.ty)).compare("slt", 0)
    z = f.select(negative & odd, -z, z)
    bad = (x.compare("olt", 0.0) & whole.compare("one", y)) & x.compare("one", -math.inf)
    z = f.select(bad & _abs(f, y).compare("olt", math.inf), f.const(x.ty, math.nan), z)
    one = _abs(f, x).compare("oeq", 1.0) & _abs(f, y).compare("oeq", math.inf)
    one = (one | x.compare("oeq", 1.0)) | y.compare("oeq", 0.0)
    return f.select(one, f.const(x.ty, 1.0), z)


def in_double(make: Emit) -> Emit:
    """A float32 function computed by `make` in float64 and rounded once."""
    def emit(f: Function, *xs: Value) -> Value:
        wide = vec(lanes(xs[0].ty), "double")
        return f.cast("fptrunc", make(f, *(f.cast("fpext", x, wide) for x in xs)), xs[0].ty)
    return emit


def _fmod(f: Function, a: Value, b: Value) -> Value:
    """The quotient, cut, is right or one too far (rounded up to a whole number), and either way
    the rest is exact; where it needs more bits than it has, the C library takes over."""
    quotient = f.intrinsic("trunc", a / b)
    rest = f.fma(-quotient, b, a)
    over = (rest.compare("olt", 0.0) ^ a.compare("olt", 0.0)) & rest.compare("one", 0.0)
    rest = f.select(over, rest + _like(f, b, a), rest)
    small = _abs(f, a).compare("olt", _abs(f, b))
    rest = _like(f, f.select(small, a, rest), a)
    limit = 2.0 ** 22 if element(a.ty) == "float" else 2.0 ** 51
    return _slow_lanes(f, _abs(f, quotient).compare("uge", limit), "fmod", rest, a, b)


def _logsigmoid(f: Function, x: Value) -> Value:
    low = f.select(x.compare("olt", 0.0), x, f.const(x.ty, 0.0))
    low = f.select(x.compare("uno", x), x, low)
    return low - apply(f, "log1p", apply(f, "exp_negative", -_abs(f, x)))


_FUNCTIONS: dict[str, Emit] = {
    "exp": _exp, "exp_negative": _exp_negative, "exp2": _exp2, "expm1": _expm1, "log": _log,
    "log1p": _log1p,
    "sigmoid": _sigmoid, "tanh": _tanh, "erf": _erf, "sin": _trig(0, "sin"),
    "cos": _trig(1, "cos"), "pow": _pow, "logsigmoid": _logsigmoid, "fmod": _fmod,
    "rsqrt": lambda f, x: 1.0 / f.intrinsic("sqrt", x),
    "sqrt": lambda f, x: f.intrinsic("sqrt", x), "abs": _abs,
    "reciprocal": lambda f, x: 1.0 / x,
    "floor": lambda f, x: f.intrinsic("floor", x), "ceil": lambda f, x: f.intrinsic("ceil", x),
    "trunc": lambda f, x: f.intrinsic("trunc", x),
    "round": lambda f, x: f.intrinsic("roundeven", x),
    "copysign": lambda f, x, y: _like(f, x, y),
    "maximum": lambda f, x, y: f.intrinsic("maximum", x, y),
    "minimum": lambda f, x, y: f.intrinsic("minimum", x, y),
}
SINGLE = frozenset(     # float32 alone; the C library has the others (loaded when used, as RARE)
    "tan sinh cosh asinh acosh atanh hypot asin acos atan atan2 log2 log10".split())
RARE = frozenset(
    "erfc lgamma digamma trigamma erfinv ndtri ndtr log_ndtr i0 i1 i0e i1e hypot nextafter log2 "
    "log10".split())
LIBM = frozenset("tan asin acos atan sinh cosh asinh acosh atanh atan2 hypot fmod".split())
