"""How exact the vector mathematics is: errors in units in the last place, over every float32.

    python -m adjoint.testing.ulp docs/ulp.md       # all functions, all 2^32 inputs, and the table

One generated loop computes f(x) for consecutive bit patterns x in float32 and, as the reference, in
float64, and keeps the largest difference of each chunk. The float64 functions have polynomials of
their own; `check_reference` compares them with NumPy's extended precision, where they are within
a few units of float64, that is 2^-27 units of float32.
"""
from __future__ import annotations

import functools
import hashlib
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from adjoint.kernels import codegen, llvm, mathlib, threads
from adjoint.kernels.codegen import Frame
from adjoint.kernels.ir import Function, Value, vec
from adjoint.kernels.loops import geometry

CHUNK = 1 << 16
EVERY = 1 << 32
_LANES = 8


def _erf(x: Any) -> Any:
    """erf in the precision of x: a series of terms of one sign (Abramowitz and Stegun 7.1.6)."""
    a = np.minimum(abs(x), 7)
    term = total = 2 * a * np.exp(-a * a) / np.sqrt(np.arctan(a * 0 + 1) * 4)
    for n in range(1, 200):
        term = term * (2 * a * a / (2 * n + 1))
        total = total + term
    return np.copysign(np.where(a < 7, total, a / a), x)


REFERENCE: dict[str, Callable[..., Any]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2,
    "log10": np.log10, "log1p": np.log1p, "tanh": np.tanh, "sin": np.sin, "cos": np.cos,
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "logsigmoid": lambda x: np.minimum(x, 0) - np.log1p(np.exp(-abs(x))), "erf": _erf,
    "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
}


class Worst(NamedTuple):
    """The largest error in units in the last place (inf: nan, inf or a sign of zero is wrong), and
    the input where it is."""

    error: float
    at: float


def _error(f: Function, got: Value, want: Value) -> Value:
    """|got - want| in float32 units of want, as float64 lanes."""
    wide, whole = want.ty, vec(_LANES, "i64")
    rounded = f.cast("fptrunc", want, got.ty)
    bits = f.bits(want, whole)
    exponent = ((bits >> 52) & 0x7FF) - (1023 + 23)
    exponent = f.intrinsic("smax", exponent, f.const(whole, -149))
    inverse = f.bits((f.const(whole, 1023) - exponent) << 52, wide)
    error = f.intrinsic("fabs", f.cast("fpext", got, wide) - want) * inverse
    low = vec(_LANES, "i32")
    equal = f.bits(got, low).compare("eq", f.bits(rounded, low))
    equal = equal | (got.compare("uno", got) & rounded.compare("uno", rounded))
    infinite = f.const(got.ty, float("inf"))
    finite = (f.intrinsic("fabs", got).compare("olt", infinite)
              & f.intrinsic("fabs", rounded).compare("olt", infinite))
    zero = want.compare("oeq", 0.0) & got.compare("oeq", 0.0)
    exact = f.select(equal, f.const(wide, 0.0), f.const(wide, float("inf")))
    return f.select(finite & (zero ^ True), error, exact)


def _emit(name: str, frame: Frame) -> None:
    """errors, places (one per chunk); integers: the first bit pattern, the distance of two."""
    f = frame.f
    errors, places = frame.array(0), frame.array(1)
    start, step = frame.integer(0), frame.integer(1)
    narrow, wide, whole = vec(_LANES, "float"), vec(_LANES, "double"), vec(_LANES, "i64")

    def chunk(c: Value, _: list[Value]) -> list[Value]:
        base = start + c * (step * CHUNK)

        def turn(j: Value, carried: list[Value]) -> list[Value]:
            worst, where = carried
            pattern = (f.splat(j, _LANES) + f.iota(_LANES)) * f.splat(step, _LANES)
            pattern = pattern + f.splat(base, _LANES)
            x = f.bits(f.cast("trunc", pattern, vec(_LANES, "i32")), narrow)
            got = mathlib.apply(f, name, x)
            want = mathlib.apply(f, name, f.cast("fpext", x, wide))
            error = _error(f, got, want)
            more = error.compare("ugt", worst)
            return [f.select(more, error, worst), f.select(more, pattern, where)]
        worst, where = f.loop(f.i64(0), f.i64(CHUNK), _LANES,
                              [f.const(wide, -1.0), f.const(whole, 0)], turn)
        for lane in range(_LANES):
            at = c * _LANES + lane
            f.store(f.extract(worst, lane), f.at(errors, "double", at))
            f.store(f.extract(where, lane), f.at(places, "i64", at))
        return []
    f.loop(frame.first, frame.end, 1, [], chunk)


@functools.cache
def _kernel(name: str) -> Any:
    return codegen.build("ulp." + name, (name, _source()), functools.partial(_emit, name),
                         arrays=2, integers=2)


@functools.cache
def _source() -> str:
    """This file belongs to the key of its kernels: the generators' own key covers theirs alone."""
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()


def sweep(name: str, *, step: int = 1, start: int = 0) -> Worst:
    """The worst float32 error over the bit patterns start, start + step, ... below 2^32.

    Args:
        name: a function of `REFERENCE`.
        step: 1 takes every float32: about a minute per function; an odd step samples all
            exponents and signs evenly.

    Raises:
        NotSupported: where there is no generated code.
        KeyError: where the function is unknown.

    >>> from adjoint.kernels import llvm
    >>> not llvm.available() or sweep("exp", step=100003).error < 1
    True
    """
    llvm._need()
    count = -(-(EVERY - start) // step)
    chunks = -(-count // CHUNK)
    best = Worst(-1.0, 0.0)
    for first in range(0, chunks, 1024):
        here = min(1024, chunks - first)
        words, address = geometry([here])
        errors, places = np.empty(here * _LANES), np.empty(here * _LANES, np.int64)
        _kernel(name)(threads.entry(), address, errors, places,
                      start + first * CHUNK * step, step)
        worst = int(errors.argmax())
        if not errors[worst] <= best.error:
            pattern = np.array(places[worst] % EVERY, np.uint32)
            best = Worst(float(errors[worst]), float(pattern.view(np.float32)))
        del words
    return best


def check_reference(name: str, count: int = 100_000) -> float:
    """The worst error of the float64 function in its own units, on float32 inputs of all
    exponents, against extended precision."""
    with np.errstate(invalid="ignore"):         # signalling nans among the patterns
        x = np.linspace(0, EVERY - 1, count).astype(np.uint32).view(np.float32).astype(np.float64)
    kernel = _one(name)
    got = np.empty_like(x)
    kernel(threads.entry(), geometry([1, x.size])[1], x, got)
    with np.errstate(all="ignore"):
        want = REFERENCE[name](x.astype(np.longdouble))
        rounded = want.astype(np.float64)
        finite = np.isfinite(rounded) & np.isfinite(got)
        unit = np.spacing(np.maximum(abs(np.where(finite, rounded, 1)), np.finfo(float).tiny))
        error = abs(got - want) / unit
        same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    return float(np.max(np.where(finite, error, np.where(same, 0, np.inf))))


@functools.cache
def _one(name: str) -> Any:
    def emit(frame: Frame) -> None:
        f, x, y = frame.f, frame.array(0), frame.array(1)
        wide = vec(_LANES, "double")

        def body(i: Value, mask: Value | None, _: list[Value]) -> list[Value]:
            v = f.load(f.at(x, "double", i), wide, mask=mask)
            f.store(mathlib.apply(f, name, v), f.at(y, "double", i), mask=mask)
            return []
        f.vector_loop(f.i64(0), frame.geometry(1), _LANES, [], body)
    return codegen.build("ulp64." + name, (name, _source()), emit, arrays=2)


class Row(NamedTuple):
    """What was measured of one function: every `step`-th float32, and float64 in its own units."""

    name: str
    step: int
    worst: Worst
    wide: float


def measure(name: str, step: int = 1) -> Row:
    """Both sweeps of one function."""
    return Row(name, step, sweep(name, step=step), check_reference(name))


_SAMPLED = (
    "`pow` takes two operands and is sampled: within 1 ULP in both.", "",
    "`lgamma`, `digamma`, its slope `polygamma(1, x)`, `erfinv`, `ndtri`, `ndtr`, `log_ndtr`,",
    "`i0`, `i1`, `i0e` and `i1e` are computed in float64 and rounded once for float32: within",
    "0.6 ULP, sampled. In float64 they are within 2e-14 of the true value, relative to it or to",
    "1, whichever is larger (`ndtr` in its tails to 1e-12 of itself): near their zeros `lgamma`",
    "and `digamma` lose digits.")


def page(rows: Sequence[Row]) -> str:
    """The page of documentation, Markdown."""
    lines = [
        "# Errors of the vector mathematics", "",
        "Largest errors of the generated functions in units in the last place (ULP) of the true",
        "value. float32: over all 2^32 inputs, or over every n-th bit pattern where the column",
        "says so. float64: over 100,000 float32 inputs of all exponents, against extended",
        "precision. nan, infinities, signs of zero and subnormal results are right throughout;",
        "the bounds are what tests assert. Measured by `python -m adjoint.testing.ulp`.", "",
        "| function | float32 inputs | worst | at x | bound | float64 worst | bound |",
        "| --- | --- | --- | --- | --- | --- | --- |"]
    for row in rows:
        bound = mathlib.ULP[row.name]
        inputs = "all" if row.step == 1 else f"1 in {row.step}"
        lines.append(f"| `{row.name}` | {inputs} | {row.worst.error:.3f} | {row.worst.at:.9g} | "
                     f"{bound[0]:g} | {row.wide:.2f} | {bound[1]:g} |")
    return "\n".join([*lines, "", *_SAMPLED, ""])


def main(argv: Sequence[str]) -> int:
    """`python -m adjoint.testing.ulp [FILE] [STEP]`: writes the page to FILE, or prints it."""
    step, rows = int(argv[1]) if len(argv) > 1 else 1, []
    for name in REFERENCE:
        began = time.perf_counter()
        rows.append(measure(name, step))
        print(f"{name}: {rows[-1].worst.error:.3f} at {rows[-1].worst.at!r} "
              f"({time.perf_counter() - began:.0f} s)", file=sys.stderr, flush=True)
    if argv:
        Path(argv[0]).write_text(page(rows), encoding="utf-8")
    else:
        print(page(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
