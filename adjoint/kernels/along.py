"""Single elements along one axis: read (gather), written (scatter) and added (scatter-add).

The axis divides an array into (outer, axis, inner); an index has places along its own middle axis,
or the same ones for all of outer and inner. Elements that go to one place come from one column of
inner and are taken in their order by one chunk: the same bits for any number of threads.
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
_CHUNK = 1 << 14        # elements of a chunk that reads
_COLUMNS = 256          # columns of inner of one that writes, which come from memory row by row
_ADDED = {np.dtype(d): t for d, t in ((np.float32, "float"), (np.float64, "double"),
                                      (np.int64, "i64"), (np.int32, "i32"))}
_GIVEN = np.dtype(np.int64)


class _Axis:
    """The loops over (outer, places, inner). Geometry: [chunks, parts, span, axis, places, inner,
    steps of the index along outer and places, one of y along all three]."""

    def __init__(self, frame: Frame, ty: str, flat: bool) -> None:
        self.f, self.ty, self.flat = frame.f, ty, flat
        words = [frame.geometry(i) for i in range(1, 9)]
        self.parts, self.span, self.axis, self.places, self.inner = words[:5]
        self.outer_step, self.place_step, self.y_step = words[5:]
        self.x, self.index, self.y = (frame.array(i) for i in range(3))
        self.frame = frame

    def chunks(self, body: Any, carried: list[Value]) -> list[Value]:
        """`body(outer, lo, hi, carried)` of each chunk; from lo to hi are places of one that reads
        or has no inner axis, else columns of inner."""
        f = self.f

        def chunk(c: Value, values: list[Value]) -> list[Value]:
            o, lo = c / self.parts, (c % self.parts) * self.span
            return list(body(o, lo, lo + self.span, values))
        return f.loop(self.frame.first, self.frame.end, 1, carried, chunk)

    def read(self) -> None:
        """Eight places at once, and a word that says whether one was out of range."""
        f, n = self.f, 8
        size = f.splat(self.axis, n)

        def vector(base: Value, column: Value | None, at: Value, to: Value, mask: Value | None,
                   bad: Value) -> Value:
            v = f.load(f.at(self.index, "i64", at), vec(n, "i64"), mask=mask)
            wrong = v.compare("uge", size)
            v = f.select(wrong, f.const(v.ty, 0), v)
            got = f.const(vec(n, self.ty), 0)
            for lane in range(n):
                here = base + f.extract(v, lane)
                if column is not None:      # (lanes past the end read what column has)
                    here = here * self.inner + (f.intrinsic("smin", column + lane, self.inner - 1)
                                                if mask is not None else column + lane)
                got = f.insert(got, f.load(f.at(self.x, self.ty, here), self.ty), lane)
            f.store(got, f.at(self.y, self.ty, to), mask=mask)
            return bad | wrong

        def part(o: Value, lo: Value, hi: Value, carried: list[Value]) -> list[Value]:
            hi, base, to = f.intrinsic("smin", hi, self.places), o * self.axis, o * self.places
            if self.flat:
                return f.vector_loop(lo, hi, n, carried, lambda j, m, b: [
                    vector(base, None, o * self.outer_step + j, to + j, m, b[0])])

            def place(j: Value, values: list[Value]) -> list[Value]:
                row = (to + j) * self.inner
                return f.vector_loop(f.i64(0), self.inner, n, values, lambda i, m, b: [
                    vector(base, i, row + i, row + i, m, b[0])])
            return f.loop(lo, hi, 1, carried, place)
        bad, = self.chunks(part, [f.const(vec(n, "i1"), False)])
        some = f.intrinsic("vector.reduce.or", bad, returns="i1")

        def tell() -> list[Value]:
            f.store(f.i64(1), self.frame.array(3))
            return []
        f.when(some, tell)

    def write_rows(self, add: bool) -> None:
        """Where a vector of places serves all: runs of columns at once."""
        f, ty = self.f, self.ty
        n = codegen.width(ty) if ty in ("float", "double") else 8

        def part(o: Value, lo: Value, hi: Value, _: list[Value]) -> list[Value]:
            hi = f.intrinsic("smin", hi, self.inner)

            def place(j: Value, _: list[Value]) -> list[Value]:
                to = o * self.axis + f.load(f.at(self.index, "i64", j), "i64")
                rows = [f.at(p, ty, r * self.inner)
                        for p, r in ((self.x, to), (self.y, o * self.places + j))]

                def columns(i: Value, m: Value | None, _: list[Value]) -> list[Value]:
                    p, q = (f.at(row, ty, i) for row in rows)
                    v = f.load(q, vec(n, ty), mask=m)
                    f.store(f.load(p, v.ty, mask=m) + v if add else v, p, mask=m)
                    return []
                return f.vector_loop(lo, hi, n, [], columns)
            return f.loop(f.i64(0), self.places, 1, [], place)
        self.chunks(part, [])

    def write(self, add: bool) -> None:
        """One element after the other."""
        f, ty = self.f, self.ty

        def one(o: Value, j: Value, i: Value | None) -> list[Value]:
            at, to = o * self.outer_step + j * self.place_step, o * self.places + j
            here = o * self.axis
            if i is None:
                p = f.at(self.x, ty, here + f.load(f.at(self.index, "i64", at), "i64"))
            else:
                along = f.select(self.place_step.compare("eq", 1), f.i64(0), i)
                here = here + f.load(f.at(self.index, "i64", at + along), "i64")
                to = to * self.inner + i
                p = f.at(self.x, ty, here * self.inner + i)
            v = f.load(f.at(self.y, ty, to * self.y_step), ty)
            f.store(f.load(p, ty) + v if add else v, p)
            return []

        def part(o: Value, lo: Value, hi: Value, _: list[Value]) -> list[Value]:
            if self.flat:
                return f.loop(f.i64(0), self.places, 1, [], lambda j, _: one(o, j, None))
            hi = f.intrinsic("smin", hi, self.inner)
            return f.loop(f.i64(0), self.places, 1, [], lambda j, _: f.loop(
                lo, hi, 1, [], lambda i, _: one(o, j, i)))
        self.chunks(part, [])


def _emit(how: str, ty: str, form: str, frame: Frame) -> None:
    """x (read or written), index, y (written or read); one that reads also gets a flag. The form:
    "flat" where the axis is the last, "rows" where a vector of places serves all, "" for others."""
    axis = _Axis(frame, ty, form == "flat")
    if how == "read":
        axis.read()
    elif form == "rows":
        axis.write_rows(how == "add")
    else:
        axis.write(how == "add")


@functools.cache
@llvm.generating
def _entry(how: str, ty: str, form: str) -> Any:
    return codegen.build("along", (how, ty, form), functools.partial(_emit, how, ty, form),
                         arrays=4 if how == "read" else 3)


@functools.lru_cache(maxsize=1024)
def _words(reads: bool, shape: tuple[int, ...], dim: int, places: int,
           shared: bool, single: bool) -> tuple[Any, int]:
    """The geometry: `shared` where one vector of places serves all, `single` where y is one
    element."""
    outer, inner = math.prod(shape[:dim]), math.prod(shape[dim + 1:])
    parts, span = 1, places
    if reads:
        span = max(1, _CHUNK // inner)
        parts = -(-places // span)
    elif inner > 1:
        span = min(inner, max(_COLUMNS, -(-inner // 16)))
        parts = -(-inner // span)
    steps = (0, 1) if shared else (places * inner, inner)
    return geometry([outer * parts, parts, span, shape[dim], places, inner, *steps,
                     0 if single else 1])


def _fits(x: Array, index: Array, dim: int) -> bool:
    """Whether `index` names places along `dim` for each of x's other axes, or for all of them."""
    if (not x.flags.carray or index.dtype != _GIVEN or not index.size or not x.size
            or x.itemsize not in (1, 2, 4, 8)):
        return False
    if index.ndim == 1 and x.ndim > 1:
        return True
    return (index.ndim == x.ndim and index.shape[:dim] == x.shape[:dim]
            and index.shape[dim + 1:] == x.shape[dim + 1:])


def read(x: Array, index: Array, dim: int) -> Any:
    """What x (C-contiguous) has at `index` along `dim`: an index of x's shape but for `dim`, or a
    vector for all, along the last axis. NotImplemented where they do not fit, or a place is out of
    range.

    >>> y = read(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1], [0]]), 1)
    >>> y is NotImplemented or y.tolist() == [[2.0], [3.0]]
    True
    """
    if not _fits(x, index, dim):
        return NotImplemented
    index = np.require(index, requirements=["C", "A"])
    shared = index.ndim != x.ndim
    if shared and dim != x.ndim - 1:        # whole rows: NumPy copies them
        return NotImplemented
    places = index.size if shared else index.shape[dim]
    entry = _entry("read", f"i{8 * x.itemsize}", "flat" if dim == x.ndim - 1 else "")
    if entry is None:
        return NotImplemented
    out = np.empty((*x.shape[:dim], places, *x.shape[dim + 1:]), x.dtype)
    flag = np.zeros(1, _GIVEN)
    words = _words(True, x.shape, dim, places, shared, False)[1]
    entry(threads.light_entry(), words, x, index, out, flag)
    return NotImplemented if flag[0] else out


def write(x: Array, index: Array, y: Array, dim: int, *, add: bool) -> Any:
    """Put, or add, `y` (shaped as what `read` gives, or one element) to x at `index` along `dim`;
    the places have been checked. NotImplemented, and nothing written, where it does not fit.

    >>> x = np.zeros(3)
    >>> if write(x, np.array([1, 1]), np.array([2.0, 3.0]), 0, add=True) is not NotImplemented:
    ...     assert x.tolist() == [0.0, 5.0, 0.0]
    """
    ty = _ADDED.get(x.dtype) if add else f"i{8 * x.itemsize}"
    if ty is None or y.dtype != x.dtype or not _fits(x, index, dim):
        return NotImplemented
    index, y = (np.require(a, requirements=["C", "A"]) for a in (index, y))
    shared = index.ndim != x.ndim
    places = index.size if shared else index.shape[dim]
    if y.ndim and y.shape != (*x.shape[:dim], places, *x.shape[dim + 1:]):
        return NotImplemented
    form = "flat" if dim == x.ndim - 1 else "rows" if shared and y.ndim else ""
    entry = _entry("add" if add else "put", ty, form)
    if entry is None:
        return NotImplemented
    words = _words(False, x.shape, dim, places, shared, not y.ndim)[1]
    entry(threads.light_entry(), words, x, index, y)
    return x
