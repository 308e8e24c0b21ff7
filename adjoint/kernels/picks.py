"""Losses that read one class of every row: negative log likelihood and multi-class margin.

Logits (N, C, S) with S = 1 where there are no more axes; int64 classes (N, S). A class out of range
is told by a flag, and nothing is read or written for it.
"""
from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjoint.kernels import codegen, llvm, rows, threads
from adjoint.kernels.codegen import F32, F64, Frame
from adjoint.kernels.ir import Value
from adjoint.kernels.loops import geometry
from adjoint.kernels.rows import Rows

Array = NDArray[Any]
_SPAN = 4096            # targets of a chunk, about
_CLASS = np.dtype(np.int64)


class _Picks:
    """The loop over targets. Geometry: [chunks, rows of a chunk, rows, classes, inner]."""

    def __init__(self, frame: Frame, kind: str, x: Value, target: Value, weight: Value | None,
                 flag: Value) -> None:
        self.f, self.frame, self.kind = frame.f, frame, kind
        self.x, self.target, self.weight, self.flag = x, target, weight, flag
        self.group, self.rows, self.classes, self.inner = (frame.geometry(i) for i in range(1, 5))
        self.ignored = frame.integer(0)

    def each(self, start: list[Value], body: Any, end: Any) -> None:
        """`body(place, address in x, weight, used, carried)`; `end(chunk, carried)`."""
        f = self.f

        def one(r: Value, s: Value, carried: list[Value]) -> list[Value]:
            place = r * self.inner + s
            t = f.load(f.at(self.target, "i64", place), "i64")
            used = t.compare("ne", self.ignored)
            out = used & t.compare("uge", self.classes)
            bad = carried[-1] | f.cast("zext", out, "i64")
            used = used & (out ^ True)
            t = f.select(used, t, f.i64(0))
            one = f.const(self.kind, 1.0)
            w = one if self.weight is None else f.load(f.at(self.weight, self.kind, t), self.kind)
            p = f.at(self.x, self.kind, (r * self.classes + t) * self.inner + s)
            return [*body(place, p, w, used, carried[:-1]), bad]

        def chunk(c: Value, _: list[Value]) -> list[Value]:
            lo = c * self.group
            got = f.loop(lo, f.intrinsic("smin", lo + self.group, self.rows), 1,
                         [*start, f.i64(0)], lambda r, v: f.loop(
                             f.i64(0), self.inner, 1, v, lambda s, u: one(r, s, u)))
            end(c, got[:-1])

            def tell() -> list[Value]:
                f.store(f.i64(1), self.flag)
                return []
            f.when(got[-1].compare("ne", 0), tell)
            return []
        f.loop(self.frame.first, self.frame.end, 1, [], chunk)


def _forward(kind: str, weighted: bool, frame: Frame) -> None:
    """x, target, [weight], totals and shares (two float64 a chunk), flag; integers: ignored."""
    f, zero = frame.f, frame.f.const("double", 0.0)
    x, target, *weight, sums, flag = (frame.array(i) for i in range(4 + weighted))
    picks = _Picks(frame, kind, x, target, weight[0] if weight else None, flag)

    def wide(v: Value) -> Value:
        return v if kind == "double" else f.cast("fpext", v, "double")

    def add(_: Value, p: Value, w: Value, used: Value, sums: list[Value]) -> list[Value]:
        v = wide(f.load(p, kind)) * wide(w)
        return [sums[0] - f.select(used, v, zero), sums[1] + f.select(used, wide(w), zero)]

    def end(c: Value, got: list[Value]) -> None:
        for i, v in enumerate(got):
            f.store(v, f.at(sums, "double", c * 2 + i))
    picks.each([zero, zero], add, end)


def _backward(kind: str, weighted: bool, frame: Frame) -> None:
    """out (zeros), target, [weight], scale (one, or one a target), flag; integers: ignored and the
    step of scale."""
    f = frame.f
    out, target, *weight, scales, flag = (frame.array(i) for i in range(4 + weighted))
    step = frame.integer(1)
    picks = _Picks(frame, kind, out, target, weight[0] if weight else None, flag)

    def put(place: Value, p: Value, w: Value, used: Value, _: list[Value]) -> list[Value]:
        g = -(f.load(f.at(scales, kind, place * step), kind) * w)

        def store() -> list[Value]:
            f.store(g, p)
            return []
        f.when(used, store)
        return []
    picks.each([], put, lambda *_: None)


@functools.cache
@llvm.generating
def _entry(dtype: np.dtype[Any], weighted: bool, backward: bool) -> Any:
    kinds = codegen.storage(dtype)
    if kinds is None or dtype not in (F32, F64):
        return None
    emit = _backward if backward else _forward
    return codegen.build("nll", (kinds[0], f"{weighted} {backward}"),
                         functools.partial(emit, kinds[0], weighted), arrays=4 + weighted,
                         integers=2 if backward else 1)


@functools.lru_cache(maxsize=1024)
def _words(shape: tuple[int, ...]) -> tuple[Any, int, int]:
    n, classes = shape[:2]
    inner = math.prod(shape[2:])
    group = max(1, _SPAN // max(1, inner))
    chunks = -(-n // group)
    return (*geometry([chunks, group, n, classes, inner]), chunks)


def _fits(shape: tuple[int, ...], dtype: Any, target: Array, weight: Array | None) -> bool:
    return (len(shape) > 1 and math.prod(shape) > 0 and target.dtype == _CLASS
            and target.flags.carray and target.shape == (shape[0], *shape[2:])
            and (weight is None or (weight.dtype == dtype and weight.flags.carray
                                    and weight.shape == shape[1:2])))


def nll(x: Array, target: Array, weight: Array | None, ignored: int) -> Any:
    """(Σ -w x[target], Σ w) as floats, over targets that are not ignored; NotImplemented where
    dtypes or strides do not fit, or a class is out of range.

    >>> got = nll(np.array([[-1.0, -2.0], [-3.0, -4.0]]), np.array([1, 0]), None, -100)
    >>> got is NotImplemented or got == (5.0, 2.0)
    True
    """
    if not x.flags.carray or not _fits(x.shape, x.dtype, target, weight):
        return NotImplemented
    entry = _entry(x.dtype, weight is not None, False)
    if entry is None:
        return NotImplemented
    _, address, chunks = _words(x.shape)
    sums, flag = np.empty((chunks, 2)), np.zeros(1, _CLASS)
    given = [] if weight is None else [weight]
    entry(threads.light_entry(), address, x, target, *given, sums, flag, ignored)
    if flag[0]:
        return NotImplemented
    total, share = sums.sum(0).tolist() if chunks > 1 else sums[0].tolist()
    return total, share


def nll_backward(scale: Array, target: Array, weight: Array | None, shape: tuple[int, ...],
                 ignored: int) -> Any:
    """Zeros with -scale w at the targets that are not ignored; `scale` is one number, or one a
    target. NotImplemented like `nll`.

    >>> got = nll_backward(np.array(0.5), np.array([1]), None, (1, 3), -100)
    >>> got is NotImplemented or got.tolist() == [[0.0, -0.5, 0.0]]
    True
    """
    if not _fits(shape, scale.dtype, target, weight) or not scale.flags.c_contiguous:
        return NotImplemented
    entry = _entry(scale.dtype, weight is not None, True)
    if entry is None:
        return NotImplemented
    out, flag = np.zeros(shape, scale.dtype), np.zeros(1, _CLASS)
    given = [] if weight is None else [weight]
    entry(threads.light_entry(), _words(shape)[1], out, target, *given, scale, flag, ignored,
          int(scale.size > 1))
    return NotImplemented if flag[0] else out


# -- margins -----------------------------------------------------------------------------------
class _Margins:
    """A row: which gaps x - x[target] + margin are open. That of the target itself is the margin
    where x[target] is finite, else nan: `itself` says what it added."""

    def __init__(self, k: Rows, x: Value, target: Value, margin: Value) -> None:
        own, zero = k.scalar(x, target), k.number(0.0)
        self.k, self.x, self.margin, self.own = k, x, k.wide(margin), k.wide(own)
        counts = (own - own).compare("oeq", 0.0) & margin.compare("ogt", 0.0)
        self.itself = k.f.select(counts, margin, zero)
        self.counted = k.f.select(counts, k.number(1.0), zero)

    def gap(self, j: Value, m: Value | None) -> tuple[Value, Value]:
        """(gaps at a vector of columns, which are open)."""
        v = self.k.load(self.x, j, m) - self.own + self.margin
        hit = v.compare("ogt", 0.0)
        return v, hit & m if m is not None else hit


def _margins(k: Rows) -> None:
    """x, target, out; reals: margin."""
    xs, targets, outs = (k.frame.array(i) for i in range(3))
    margin = k.frame.real(0, k.register)
    share = 1.0 / k.f.cast("sitofp", k.columns, k.register)

    def row(r: Value) -> None:
        gaps = _Margins(k, k.row(xs, r), k.f.load(k.f.at(targets, "i64", r), "i64"), margin)

        def open_(j: Value, m: Value | None) -> list[Value]:
            v, hit = gaps.gap(j, m)
            return [k.f.select(hit, v, k.f.const(k.ty, 0.0))]
        total, = k.reduce(["add"], open_)
        k.put((total - gaps.itself) * share, outs, r)
    k.each(row)


def _margins_backward(k: Rows) -> None:
    """ct, x, target, out; reals: margin. ct/C where a gap is open, their number at the target."""
    f = k.f
    cts, xs, targets, outs = (k.frame.array(i) for i in range(4))
    margin = k.frame.real(0, k.register)
    share = 1.0 / f.cast("sitofp", k.columns, k.register)

    def row(r: Value) -> None:
        out = k.row(outs, r)
        t = f.load(f.at(targets, "i64", r), "i64")
        gaps = _Margins(k, k.row(xs, r), t, margin)
        g = f.load(f.at(cts, k.register, r), k.register) * share
        each, zero, one = k.wide(g), f.const(k.ty, 0.0), f.const(k.ty, 1.0)
        count, = k.reduce(["add"], lambda j, m: [f.select(gaps.gap(j, m)[1], one, zero)])
        k.map(lambda j, m, _: k.store(f.select(gaps.gap(j, m)[1], each, zero), out, j, m))
        k.put(-(g * (count - gaps.counted)), out, t)
    k.each(row)


def _margins_fit(x: Array, target: Array) -> bool:
    if x.ndim != 2 or x.dtype not in (F32, F64) or not x.size or not rows.plain(x, target):
        return False
    return target.dtype == _CLASS and target.shape == x.shape[:1] and bool(
        target.view(np.uint64).max() < x.shape[1])


def margins(x: Array, target: Array, margin: float) -> Any:
    """Σ over i ≠ y of max(0, margin - x[y] + x[i]) / C of every row; NotImplemented where dtypes or
    strides do not fit.

    >>> got = margins(np.array([[0.5, 1.0]]), np.array([0]), 1.0)
    >>> got is NotImplemented or got.tolist() == [0.75]
    True
    """
    entry = rows.compiled(_margins, "margins", x.dtype, 3, 0, 1) if _margins_fit(
        x, target) else None
    if entry is None:
        return NotImplemented
    out = np.empty(len(x), x.dtype)
    entry(rows.run_address(), rows.row_geometry(*x.shape, x.itemsize)[1], x, target, out, margin)
    return out


def margins_backward(ct: Array, x: Array, target: Array, margin: float) -> Any:
    """The cotangent of x in `margins`; NotImplemented like it."""
    if not _margins_fit(x, target) or ct.dtype != x.dtype or not ct.flags.c_contiguous:
        return NotImplemented
    entry = rows.compiled(_margins_backward, "margins_backward", x.dtype, 4, 0, 1)
    if entry is None:
        return NotImplemented
    out = np.empty(x.shape, x.dtype)
    entry(rows.run_address(), rows.row_geometry(*x.shape, x.itemsize)[1], ct, x, target, out,
          margin)
    return out
