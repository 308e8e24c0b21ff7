"""Weighted sums of a few elements along one axis: what resampling reads for each of its results.

The axis divides an array into (outer, axis, inner); result j is the sum over t of weight[t, j]
times the element at index[t, j]. Sums go over t in order: the same bits for any number of threads.
"""
from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjoint.kernels import codegen, llvm, threads
from adjoint.kernels.codegen import Frame
from adjoint.kernels.ir import Value, vec
from adjoint.kernels.loops import geometry

Array = NDArray[Any]
MOST = 12               # elements of one sum: the loop over them is written out
_CHUNK = 1 << 14        # results of a chunk
_FLOATS = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}


class _Taps:
    """Arrays: x, index, weight, result. Geometry: [chunks, lines of a chunk, lines, axis, places,
    inner]; a line is what one `outer` and, where there is an inner axis, one place has."""

    def __init__(self, frame: Frame, ty: str, taps: int) -> None:
        self.frame, self.f, self.ty, self.taps = frame, frame.f, ty, taps
        self.x, self.index, self.weight, self.y = (frame.array(i) for i in range(4))
        self.group, self.lines, self.axis, self.places, self.inner = (
            frame.geometry(i) for i in range(1, 6))
        self.n = codegen.width(ty)

    def emit(self, flat: bool) -> None:
        f = self.f

        def chunk(c: Value, _: list[Value]) -> list[Value]:
            first = c * self.group
            last = f.intrinsic("smin", first + self.group, self.lines)

            def line(r: Value, _: list[Value]) -> list[Value]:
                (self.along if flat else self.across)(r)
                return []
            f.loop(first, last, 1, [], line)
            return []
        f.loop(self.frame.first, self.frame.end, 1, [], chunk)

    def total(self, parts: list[tuple[Value, Value]]) -> Value:
        """The sum of weight times element."""
        (w, v), *rest = parts
        found = w * v
        for w, v in rest:
            found = found + w * v
        return found

    def along(self, r: Value) -> None:
        """The axis is the last: places of line r, several at once."""
        f, n, ty = self.f, self.n, self.ty
        row = f.at(self.x, ty, r * self.axis)

        def places(j: Value, mask: Value | None, _: list[Value]) -> list[Value]:
            parts = []
            for t in range(self.taps):
                at = self.places * t + j
                where = f.load(f.at(self.index, "i64", at), vec(n, "i64"), mask=mask)
                got = f.const(vec(n, ty), 0)
                for lane in range(n):
                    got = f.insert(got, f.load(f.at(row, ty, f.extract(where, lane)), ty), lane)
                parts.append((f.load(f.at(self.weight, ty, at), vec(n, ty), mask=mask), got))
            f.store(self.total(parts), f.at(self.y, ty, r * self.places + j), mask=mask)
            return []
        f.vector_loop(f.i64(0), self.places, n, [], places)

    def across(self, r: Value) -> None:
        """Columns of place r % places: whole vectors of the lines that it reads."""
        f, n, ty = self.f, self.n, self.ty
        o = r / self.places
        j = r - o * self.places
        rows, weights = [], []
        for t in range(self.taps):
            where = f.load(f.at(self.index, "i64", self.places * t + j), "i64")
            rows.append(f.at(self.x, ty, (o * self.axis + where) * self.inner))
            weights.append(f.splat(f.load(f.at(self.weight, ty, self.places * t + j), ty), n))

        def columns(i: Value, mask: Value | None, _: list[Value]) -> list[Value]:
            parts = [(w, f.load(f.at(row, ty, i), vec(n, ty), mask=mask))
                     for w, row in zip(weights, rows, strict=True)]
            f.store(self.total(parts), f.at(self.y, ty, r * self.inner + i), mask=mask)
            return []
        f.vector_loop(f.i64(0), self.inner, n, [], columns)


def _emit(ty: str, taps: int, flat: bool, frame: Frame) -> None:
    _Taps(frame, ty, taps).emit(flat)


@functools.cache
@llvm.generating
def _entry(ty: str, taps: int, flat: bool) -> Any:
    return codegen.build("taps", (ty, str(taps), str(flat)),
                         functools.partial(_emit, ty, taps, flat), arrays=4)


@functools.lru_cache(maxsize=256)
def _words(shape: tuple[int, ...], dim: int, places: int, flat: bool) -> tuple[Any, int]:
    outer, inner = math.prod(shape[:dim]), math.prod(shape[dim + 1:])
    lines = outer if flat else outer * places
    group = max(1, _CHUNK // (places if flat else inner))
    return geometry([-(-lines // group), group, lines, shape[dim], places, inner])


def taps(x: Array, index: Array, weight: Array, dim: int) -> Any:
    """`y[.., j, ..] = sum over t of weight[t, j] * x[.., index[t, j], ..]` along `dim`; the indices
    are in range. NotImplemented where NumPy has to.

    >>> y = taps(np.array([1.0, 3.0]), np.array([[0, 1], [1, 1]]), np.full((2, 2), 0.5), 0)
    >>> y is NotImplemented or y.tolist() == [2.0, 3.0]
    True
    """
    ty = _FLOATS.get(x.dtype)
    if ty is None or weight.dtype is not x.dtype or not 0 < len(index) <= MOST or not x.size:
        return NotImplemented
    x = np.ascontiguousarray(x)
    flat = math.prod(x.shape[dim + 1:]) == 1
    entry = _entry(ty, len(index), flat)
    if entry is None:
        return NotImplemented
    places = index.shape[1]
    out = np.empty((*x.shape[:dim], places, *x.shape[dim + 1:]), x.dtype)
    words = _words(x.shape, dim, places, flat)[1]
    entry(threads.light_entry(), words, x, index, weight, out)
    return out
