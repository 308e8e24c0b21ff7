"""Running sums, products and extremes along an axis.

Along the last axis a vector is scanned in registers (Hillis and Steele, CACM 29, 1986: log2 steps,
each of which joins what lies 1, 2, 4, ... places before) and what came before is joined to all of
it. Along another axis rows are joined to each other. Sums and products of float32 are kept in
float64. An element depends on those up to it alone, in an order that the place decides. Indices of
extremes are those of the last of equal ones, and of a nan from the first one on.
"""
from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjoint.kernels import codegen, llvm, threads
from adjoint.kernels.codegen import Frame
from adjoint.kernels.ir import Function, Value, vec
from adjoint.kernels.loops import geometry

Array = NDArray[Any]
_CHUNK = 1 << 14        # elements of a chunk
_COLUMNS = 512          # columns of a chunk that goes down an axis, at most
_FIRST = {"add": -0.0, "mul": 1.0, "max": -np.inf, "min": np.inf}
_LANES = 8


def _moved(f: Function, v: Value, by: int, first: Value) -> Value:
    """Lanes moved up by `by`, `first` in their place."""
    return f.shuffle(v, first, [_LANES] * by + list(range(_LANES - by)))


def _better(f: Function, how: str, new: Value, old: Value) -> Value:
    """Where an element takes the place of an extreme: it is as good, or a nan."""
    good = new.compare("oge" if how == "max" else "ole", old)
    return good | new.compare("uno", new)


def _joined(f: Function, how: str, old: Value, new: Value) -> Value:
    """What was before and an element; a nan stays."""
    if how == "add":
        return old + new
    return old * new if how == "mul" else f.select(_better(f, how, new, old), new, old)


class _Scan:
    """The loops. Geometry: [chunks, parts, span, places, inner, outer]."""

    def __init__(self, frame: Frame, how: str, stored: str) -> None:
        self.f, self.how, self.stored, self.frame = frame.f, how, stored, frame
        self.parts, self.span, self.places, self.inner, self.outer = (
            frame.geometry(i) for i in range(1, 6))
        self.x, self.y = frame.array(0), frame.array(1)
        self.at = frame.array(2) if how in ("max", "min") else None
        self.ty = vec(_LANES, stored if self.at is not None else "double")

    def load(self, p: Value, mask: Value | None) -> Value:
        first = self.f.const(vec(_LANES, self.stored), _FIRST[self.how])
        v = self.f.load(p, first.ty, mask=mask, other=first)
        return v if v.ty == self.ty else self.f.cast("fpext", v, self.ty)

    def store(self, v: Value, p: Value, mask: Value | None) -> None:
        stored = vec(_LANES, self.stored)
        self.f.store(v if v.ty == stored else self.f.cast("fptrunc", v, stored), p, mask=mask)

    def last(self) -> None:
        """Rows of the last axis; a chunk is a run of rows."""
        f, how, top = self.f, self.how, [_LANES - 1] * _LANES
        first = f.const(self.ty, _FIRST[how])
        none = f.const(vec(_LANES, "i64"), -1)

        def vector(x: Value, y: Value, base: Value, j: Value, mask: Value | None,
                   carried: list[Value]) -> list[Value]:
            given = v = self.load(f.at(x, self.stored, j), mask)
            for by in (1, 2, 4):
                v = _joined(f, how, _moved(f, v, by, first), v)
            v = _joined(f, how, carried[0], v)
            self.store(v, f.at(y, self.stored, j), mask)
            new = [f.shuffle(v, v, top)]
            if self.at is not None:
                places = f.splat(j, _LANES) + f.iota(_LANES)
                i = f.select(_better(f, how, given, v), places, none)
                for by in (1, 2, 4):
                    i = f.intrinsic("smax", _moved(f, i, by, none), i)
                i = f.intrinsic("smax", carried[1], i)
                f.store(i, f.at(self.at, "i64", base + j), mask=mask)
                new.append(f.shuffle(i, i, top))
            return new

        def row(r: Value, _: list[Value]) -> list[Value]:
            base = r * self.places
            x, y = f.at(self.x, self.stored, base), f.at(self.y, self.stored, base)
            carried = [first] + ([f.const(none.ty, 0)] if self.at is not None else [])
            f.vector_loop(f.i64(0), self.places, _LANES, carried,
                          lambda j, m, c: vector(x, y, base, j, m, c))
            return []

        def chunk(c: Value, _: list[Value]) -> list[Value]:
            lo = c * self.span
            f.loop(lo, f.intrinsic("smin", lo + self.span, self.outer), 1, [], row)
            return []
        f.loop(self.frame.first, self.frame.end, 1, [], chunk)

    def down(self) -> None:
        """Columns of another axis, row after row; a chunk is a run of columns, and what they have
        so far lies on the stack."""
        f, how = self.f, self.how
        wide = "double" if self.at is None else self.stored
        totals = f.emit("ptr", f"alloca {wide}, i64 {_COLUMNS}, align 64")
        spots = f.emit("ptr", f"alloca i64, i64 {_COLUMNS}, align 64")

        def chunk(c: Value, _: list[Value]) -> list[Value]:
            base = (c / self.parts) * self.places * self.inner
            lo = (c % self.parts) * self.span
            width = f.intrinsic("smin", self.span, self.inner - lo)

            def clear(i: Value, m: Value | None, _: list[Value]) -> list[Value]:
                f.store(f.const(self.ty, _FIRST[how]), f.at(totals, wide, i), mask=m)
                f.store(f.const(vec(_LANES, "i64"), 0), f.at(spots, "i64", i), mask=m)
                return []
            f.vector_loop(f.i64(0), width, _LANES, [], clear)

            def step(j: Value, _: list[Value]) -> list[Value]:
                def columns(i: Value, m: Value | None, _: list[Value]) -> list[Value]:
                    here, p = base + j * self.inner + lo + i, f.at(totals, wide, i)
                    v = self.load(f.at(self.x, self.stored, here), m)
                    total = _joined(f, how, f.load(p, self.ty, mask=m), v)
                    f.store(total, p, mask=m)
                    self.store(total, f.at(self.y, self.stored, here), m)
                    if self.at is not None:
                        q = f.at(spots, "i64", i)
                        at = f.select(_better(f, how, v, total), f.splat(j, _LANES),
                                      f.load(q, vec(_LANES, "i64"), mask=m))
                        f.store(at, q, mask=m)
                        f.store(at, f.at(self.at, "i64", here), mask=m)
                    return []
                f.vector_loop(f.i64(0), width, _LANES, [], columns)
                return []
            f.loop(f.i64(0), self.places, 1, [], step)
            return []
        f.loop(self.frame.first, self.frame.end, 1, [], chunk)


def _emit(how: str, stored: str, last: bool, frame: Frame) -> None:
    scan = _Scan(frame, how, stored)
    if last:
        scan.last()
    else:
        scan.down()


@functools.cache
@llvm.generating
def _entry(how: str, stored: str, last: bool) -> Any:
    if stored not in ("float", "double"):
        return None
    return codegen.build("scan", (how, stored, str(last)),
                         functools.partial(_emit, how, stored, last),
                         arrays=3 if how in ("max", "min") else 2)


@functools.lru_cache(maxsize=1024)
def _words(outer: int, places: int, inner: int) -> tuple[Any, int]:
    if inner == 1:
        span = max(1, _CHUNK // places)
        return geometry([-(-outer // span), 1, span, places, 1, outer])
    span = min(inner, _COLUMNS)
    parts = -(-inner // span)
    return geometry([outer * parts, parts, span, places, inner, outer])


def running(how: str, x: Array, dim: int) -> Any:
    """The running "add" or "mul" of C-contiguous floats along an axis; of "max" and "min" the
    values and the places. NotImplemented where strides or dtypes do not fit.

    >>> y = running("add", np.array([1.0, 2.0, 3.0]), 0)
    >>> y is NotImplemented or y.tolist() == [1.0, 3.0, 6.0]
    True
    """
    kinds = codegen.storage(x.dtype)
    if kinds is None or not x.size or not x.flags.carray:
        return NotImplemented
    inner = math.prod(x.shape[dim + 1:])
    entry = _entry(how, kinds[0], inner == 1)
    if entry is None:
        return NotImplemented
    out = np.empty(x.shape, x.dtype)
    at = [np.empty(x.shape, np.int64)] if how in ("max", "min") else []
    words = _words(math.prod(x.shape[:dim]), x.shape[dim], inner)[1]
    entry(threads.light_entry(), words, x, out, *at)
    return (out, *at) if at else out


def cumsum(x: Array, dim: int) -> Any:
    """See `running`."""
    return running("add", x, dim)


def cumprod(x: Array, dim: int) -> Any:
    """See `running`."""
    return running("mul", x, dim)


def cummax(x: Array, dim: int) -> Any:
    """See `running`."""
    return running("max", x, dim)


def cummin(x: Array, dim: int) -> Any:
    """See `running`."""
    return running("min", x, dim)
