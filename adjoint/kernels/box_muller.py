"""Pairs of normal numbers from pairs of uniform ones (Box and Muller 1958), sixteen at a time.

In float32 logarithm, sine and cosine are the polynomials of S. Moshier's Cephes library (logf,
sinf, cosf) with products and sums fused where PyTorch's compiled kernel fuses them, so that the
numbers are the same to the last bit. In float64 they are those of the C library or of NumPy.
"""
from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjoint.kernels import codegen, llvm, threads
from adjoint.kernels.codegen import Frame
from adjoint.kernels.ir import Function, Value, vec
from adjoint.kernels.loops import geometry
from adjoint.kernels.stream import fused

Array = NDArray[Any]
F32 = np.float32
LOG = (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
       -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1)
LN2_LOW, LN2_HIGH, ROOT_HALF = -2.12194440e-4, 0.693359375, 0.707106781186547524
SIN = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
COS = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
QUARTER = (-0.78515625, -2.4187564849853515625e-4, -3.77489497744594108e-8)   # of -pi, in parts
FOUR_OVER_PI = 1.27323954473516
TWO_PI = 2 * np.pi
_GROUPS = 512            # sixteens in a chunk


def fill(x: Array, mean: float, std: float) -> None:
    """Replace uniform numbers of [0, 1) by normal ones, in place; whole sixteens."""
    if x.dtype != F32:
        _fill64(x, mean, std)
        return
    made = _compiled()
    if made is None:
        _fill32(x, mean, std)
    else:
        made(threads.entry(), _shape(x.size // 16)[1], x, mean, std)


def _fill64(x: Array, mean: float, std: float) -> None:
    u = x.reshape(-1, 2, 8)
    radius, theta = np.sqrt(-2 * np.log(1 - u[:, 0])), TWO_PI * u[:, 1]
    u[:, 0] = fused(radius * np.cos(theta), std, mean)
    u[:, 1] = fused(radius * np.sin(theta), std, mean)


# ------------------------------------------------------------------ NumPy
def _fma(a: Any, b: Any, c: Any) -> Array:
    """a b + c of float32, rounded once (but for sums that lie half way after 53 bits)."""
    return np.asarray(np.multiply(a, b, dtype=np.float64) + c).astype(F32)


def _poly(x: Array, coefficients: tuple[float, ...]) -> Array:
    y: Any = F32(coefficients[0])
    for c in coefficients[1:]:
        y = _fma(y, x, F32(c))
    return np.asarray(y)


def _log(u: Array) -> Array:
    m, e = np.frexp(u)
    low = m < F32(ROOT_HALF)
    e = e.astype(F32) - low
    x = (m - F32(1)) + np.where(low, m, F32(0))
    z = x * x
    y = _fma(_poly(x, LOG) * x, z, e * F32(LN2_LOW))
    return _fma(e, F32(LN2_HIGH), x + (y - z * F32(0.5)))


def _sin_cos(t: Array) -> tuple[Array, Array]:
    j = ((t * F32(FOUR_OVER_PI)).astype(np.int32) + 1) & ~1
    x, y = t, j.astype(F32)
    for part in QUARTER:
        x = _fma(y, F32(part), x)
    z = x * x
    c = _fma(_poly(z, COS) * z, z, -(z * F32(0.5))) + F32(1)
    s = _fma(_poly(z, SIN) * z, x, x)
    even = (j & 2) == 0
    sine, cosine = np.where(even, s, c), np.where(even, c, s)
    return (np.where(j & 4, -sine, sine), np.where((j - 2) & 4, cosine, -cosine))


def _fill32(x: Array, mean: float, std: float) -> None:
    u = x.reshape(-1, 2, 8)
    radius = np.sqrt(F32(-2) * _log(F32(1) - u[:, 0]))
    sine, cosine = _sin_cos(F32(TWO_PI) * u[:, 1])
    u[:, 0] = _fma(radius * cosine, F32(std), F32(mean))
    u[:, 1] = _fma(radius * sine, F32(std), F32(mean))


# ------------------------------------------------------------------ machine code
_V, _I = vec(8, "float"), vec(8, "i32")


def _poly_ir(f: Function, x: Value, coefficients: tuple[float, ...]) -> Value:
    y = f.const(_V, coefficients[0])
    for c in coefficients[1:]:
        y = f.fma(y, x, f.const(_V, c))
    return y


def _log_ir(f: Function, u: Value) -> Value:
    """For u of (0, 1] that are normal numbers."""
    b = f.bits(u, _I)
    m = f.bits((b & 0x7FFFFF) | 0x3F000000, _V)
    e = f.cast("sitofp", (b >> 23) - 126, _V)
    low, zero, one = m.compare("olt", ROOT_HALF), f.const(_V, 0.0), f.const(_V, 1.0)
    e = e - f.select(low, one, zero)
    x = (m - one) + f.select(low, m, zero)
    z = x * x
    y = f.fma(_poly_ir(f, x, LOG) * x, z, e * f.const(_V, LN2_LOW))
    return f.fma(e, f.const(_V, LN2_HIGH), x + (y - z * f.const(_V, 0.5)))


def _sin_cos_ir(f: Function, t: Value) -> tuple[Value, Value]:
    j = (f.cast("fptosi", t * f.const(_V, FOUR_OVER_PI), _I) + 1) & -2
    x, y = t, f.cast("sitofp", j, _V)
    for part in QUARTER:
        x = f.fma(y, f.const(_V, part), x)
    z = x * x
    c = f.fma(_poly_ir(f, z, COS) * z, z, -(z * f.const(_V, 0.5))) + f.const(_V, 1.0)
    s = f.fma(_poly_ir(f, z, SIN) * z, x, x)
    even = (j & 2).compare("eq", 0)
    sine, cosine = f.select(even, s, c), f.select(even, c, s)
    return (f.select((j & 4).compare("ne", 0), -sine, sine),
            f.select(((j - 2) & 4).compare("ne", 0), cosine, -cosine))


def sixteen_ir(f: Function, first: Value, second: Value, mean: Value, std: Value) -> None:
    """Eight uniform numbers at `first` and eight at `second` become normal ones, in place."""
    u1 = f.const(_V, 1.0) - f.load(first, _V)
    sine, cosine = _sin_cos_ir(f, f.const(_V, TWO_PI) * f.load(second, _V))
    radius = f.intrinsic("sqrt", f.const(_V, -2.0) * _log_ir(f, u1))
    f.store(f.fma(radius * cosine, std, mean), first)
    f.store(f.fma(radius * sine, std, mean), second)


def _emit(frame: Frame) -> None:
    """x; reals: mean, std."""
    f, x = frame.f, frame.array(0)
    group, groups = frame.geometry(1), frame.geometry(2)
    mean, std = (f.splat(frame.real(k, "float"), 8) for k in (0, 1))

    def one(g: Value, _: list[Value]) -> list[Value]:
        sixteen_ir(f, f.at(x, "float", g * 16), f.at(x, "float", g * 16 + 8), mean, std)
        return []

    f.loop(frame.first * group, f.intrinsic("smin", frame.end * group, groups), 1, [], one)


@functools.cache
@llvm.generating
def _compiled() -> Any:
    return codegen.build("box_muller", (), _emit, arrays=1, reals=2)


@functools.lru_cache(maxsize=256)
def _shape(groups: int) -> tuple[Any, int]:
    return geometry([-(-groups // _GROUPS), _GROUPS, groups])
