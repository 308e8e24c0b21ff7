"""The paths of connectionist temporal classification: an example is a chunk, its steps of time one
after the other, its states a vector at a time.

Logits (T, N, C) lie as they are; the states of an example are the first 2·length + 1 of its row.
Log probabilities are joined three at a time, around the largest.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjoint.kernels import codegen, llvm, threads
from adjoint.kernels.codegen import F32, F64, Frame
from adjoint.kernels.expr import Expr, exp_, log_, trace
from adjoint.kernels.ir import Value, vec
from adjoint.kernels.loops import geometry

Array = NDArray[Any]
_INDEX, _FLAG = np.dtype(np.int64), np.dtype(np.uint8)
_SIDE = 2               # states of no probability beside a row, which steps of two read


def _joined(m: Any, a: Any, b: Any) -> Any:
    return m + log_(1.0 + exp_(a - m) + exp_(b - m))


def _share(a: Any, b: Any, total: Any) -> Any:
    return -exp_(a + b - total)


class _Paths:
    """Geometry: [examples, examples, classes, states of a row, values of a working row]."""

    def __init__(self, frame: Frame, kind: str, x: Value, tables: list[Value]) -> None:
        self.f, self.frame, self.kind, self.x = frame.f, frame, kind, x
        self.examples, self.classes, self.states, self.width = (
            frame.geometry(i) for i in range(1, 5))
        self.classes_of, self.skips, self.lengths, self.steps = tables
        self.n = codegen.width(kind)
        self.ty, self.none = vec(self.n, kind), frame.f.const(vec(self.n, kind), -np.inf)

    def each(self, body: Callable[[Value, Value, Value], None]) -> None:
        """`body(example, its states, its steps)`."""
        f = self.f

        def example(b: Value, _: list[Value]) -> list[Value]:
            length = f.load(f.at(self.lengths, "i64", b), "i64")
            body(b, length * 2 + 1, f.load(f.at(self.steps, "i64", b), "i64"))
            return []
        f.loop(self.frame.first, self.frame.end, 1, [], example)

    def times(self, count: Value, body: Callable[[Value], None]) -> None:
        """`body(i)` for i in [0, count)."""
        def turn(i: Value, _: list[Value]) -> list[Value]:
            body(i)
            return []
        self.f.loop(self.f.i64(0), count, 1, [], turn)

    def along(self, count: Value, body: Callable[[Value, Value | None], None]) -> None:
        """`body(state, mask)` for vectors of states."""
        def turn(s: Value, mask: Value | None, _: list[Value]) -> list[Value]:
            body(s, mask)
            return []
        self.f.vector_loop(self.f.i64(0), count, self.n, [], turn)

    def classes_at(self, b: Value, s: Value) -> Value:
        return self.f.load(self.f.at(self.classes_of, "i64", b * self.states + s), "i64")

    def emitted(self, t: Value, b: Value, count: Value, into: Value) -> None:
        """What the states emit at a time, in a row of the working memory."""
        f, row = self.f, self.f.at(self.x, self.kind, (t * self.examples + b) * self.classes)
        self.times(count, lambda s: f.store(
            f.load(f.at(row, self.kind, self.classes_at(b, s)), self.kind),
            f.at(into, self.kind, s)))

    def skip(self, b: Value, s: Value, mask: Value | None) -> Value:
        """Which states may be entered from the one two before."""
        at = self.f.at(self.skips, "i8", b * self.states + s)
        return self.f.load(at, vec(self.n, "i8"), mask=mask).compare("ne", 0)

    def read(self, p: Value, s: Value, mask: Value | None) -> Value:
        return self.f.load(self.f.at(p, self.kind, s), self.ty, mask=mask)

    def write(self, v: Value, p: Value, s: Value, mask: Value | None) -> None:
        self.f.store(v, self.f.at(p, self.kind, s), mask=mask)

    def lowered(self, e: Expr, **values: Value) -> Value:
        return codegen.lower(self.f, [e], values, self.ty)[0]

    def join(self, a: Value, b: Value, c: Value) -> Value:
        """The log of the sum of three; -inf where all are."""
        f = self.f
        above = b.compare("ogt", a)
        high, low = f.select(above, b, a), f.select(above, a, b)
        above = c.compare("ogt", high)
        m, middle = f.select(above, c, high), f.select(above, high, c)
        nothing = m.compare("oeq", -np.inf)
        joined = self.lowered(trace(_joined), m=f.select(nothing, f.const(self.ty, 0.0), m),
                              a=low, b=middle)
        return f.select(nothing, self.none, joined)

    def clear(self, p: Value, count: Value) -> None:
        self.along(count, lambda s, mask: self.write(self.none, p, s, mask))


def _forward(kind: str, frame: Frame) -> None:
    """x, classes of states, skips, lengths, steps, alpha (N, T, states), work (N, states)."""
    f = frame.f
    x, *tables, alpha, work = (frame.array(i) for i in range(7))
    paths = _Paths(frame, kind, x, tables)
    time = frame.integer(0)

    def example(b: Value, count: Value, steps: Value) -> None:
        emit = f.at(work, kind, b * paths.width)

        def step(t: Value) -> None:
            row = f.at(alpha, kind, (b * time + t) * paths.width)
            before = f.at(row, kind, -paths.width)
            paths.emitted(t, b, count, emit)
            for side in range(_SIDE):
                f.store(f.const(kind, -np.inf), f.at(row, kind, side))

            def begin() -> list[Value]:
                paths.clear(f.at(row, kind, _SIDE), count)
                paths.times(f.intrinsic("smin", count, f.i64(2)), lambda s: f.store(
                    f.load(f.at(emit, kind, s), kind), f.at(row, kind, s + _SIDE)))
                return []
            f.when(t.compare("eq", 0), begin)

            def states(s: Value, mask: Value | None) -> None:
                two, one, own = (paths.read(before, s + k, mask) for k in range(3))
                two = f.select(paths.skip(b, s, mask), two, paths.none)
                total = paths.join(own, one, two) + paths.read(emit, s, mask)
                paths.write(total, row, s + _SIDE, mask)
            paths.along(f.select(t.compare("eq", 0), f.i64(0), count), states)
        paths.times(steps, step)
    paths.each(example)


def _backward(kind: str, frame: Frame) -> None:
    """x, classes of states, skips, lengths, steps, alpha, work (N, 4, states + side), totals (N),
    out (zeros)."""
    f = frame.f
    x, *tables, alpha, work, totals, out = (frame.array(i) for i in range(9))
    paths = _Paths(frame, kind, x, tables)
    time = frame.integer(0)

    def example(b: Value, count: Value, steps: Value) -> None:
        emit, share, first, second = (
            f.at(work, kind, (b * 4 + k) * paths.width) for k in range(4))
        total = f.splat(f.load(f.at(totals, kind, b), kind), paths.n)
        for p in (first, second):
            paths.clear(p, count + _SIDE)

        def step(i: Value) -> None:
            t = steps - 1 - i
            odd = (i & 1).compare("eq", 1)
            before, row = f.select(odd, first, second), f.select(odd, second, first)
            reached = f.at(alpha, kind, (b * time + t) * paths.width + _SIDE)
            paths.emitted(t, b, count, emit)
            ends = f.splat(count - 2, paths.n)

            def states(s: Value, mask: Value | None) -> None:
                own, one, two = (paths.read(before, s + k, mask) for k in range(3))
                # states beyond the last hold -inf, so whether they may be entered is not asked
                far = paths.skip(b, s + 2, mask)
                beta = paths.join(own, one, f.select(far, two, paths.none))
                at = f.splat(s, paths.n) + f.iota(paths.n)
                entry = f.select(at.compare("sge", ends), f.const(paths.ty, 0.0), paths.none)
                begins = f.splat(i.compare("eq", 0), paths.n)
                beta = f.select(begins, entry, beta)
                paths.write(beta + paths.read(emit, s, mask), row, s, mask)
                got = paths.lowered(trace(_share), a=paths.read(reached, s, mask), b=beta,
                                    total=total)
                paths.write(got, share, s, mask)
            paths.along(count, states)
            target = f.at(out, kind, (t * paths.examples + b) * paths.classes)

            def add(s: Value) -> None:
                p = f.at(target, kind, paths.classes_at(b, s))
                f.store(f.load(p, kind) + f.load(f.at(share, kind, s), kind), p)
            paths.times(count, add)
        paths.times(steps, step)
    paths.each(example)


@functools.cache
@llvm.generating
def _entry(dtype: np.dtype[Any], backward: bool) -> Any:
    if dtype not in (F32, F64):
        return None
    kind = codegen.STORAGE[dtype][0]
    return codegen.build("ctc", (kind, str(backward)),
                         functools.partial(_backward if backward else _forward, kind),
                         arrays=9 if backward else 7, integers=1)


@functools.lru_cache(maxsize=256)
def _words(shape: tuple[int, ...], states: int) -> tuple[Any, int]:
    return geometry([shape[1], shape[1], shape[2], states, states + _SIDE])


def _tables(classes: Array, skip: Array, lengths: Any, steps: Any) -> list[Array]:
    """The operands that say how states follow each other; skips have room for two states more."""
    skips = np.zeros(classes.size + _SIDE, _FLAG)
    skips[:classes.size] = skip.reshape(-1)
    return [classes, skips, np.asarray(lengths, _INDEX), np.asarray(steps, _INDEX)]


def _fits(x: Array, classes: Array, steps: Any) -> bool:
    return bool(x.size and x.flags.carray and classes.flags.carray and classes.dtype == _INDEX
                and min(steps) > 0 and classes.min() >= 0 and classes.max() < x.shape[2])


def paths(x: Array, classes: Array, skip: Array, lengths: Any, steps: Any) -> Any:
    """alpha (T, N, states) of log probabilities (T, N, C): the log probability of all paths that
    reach a state at a time. What lies beyond an example's states and steps is not written.
    NotImplemented where dtypes, strides, classes or steps do not fit.

    >>> x, states = np.full((1, 1, 2), -0.5), np.array([[0, 1, 0]])
    >>> a = paths(x, states, np.zeros((1, 3), bool), (1,), (1,))
    >>> a is NotImplemented or a.tolist() == [[[-0.5, -0.5, -np.inf]]]
    True
    """
    entry = _entry(x.dtype, False) if _fits(x, classes, steps) else None
    if entry is None:
        return NotImplemented
    time, n, states = x.shape[0], x.shape[1], classes.shape[1]
    alpha = np.empty((n, time, states + _SIDE), x.dtype)
    work = np.empty((n, states + _SIDE), x.dtype)
    entry(threads.entry(), _words(x.shape, states)[1], x,
          *_tables(classes, skip, lengths, steps), alpha, work, time)
    return alpha.transpose(1, 0, 2)[..., _SIDE:]


def slopes(x: Array, classes: Array, skip: Array, lengths: Any, steps: Any, alpha: Array,
           totals: Array) -> Any:
    """Minus the share of the paths that emit a class at a time, (T, N, C), from `paths` and from
    the log probabilities (N,) of all paths; 0 from the end of an example on."""
    entry = _entry(x.dtype, True)
    assert entry is not None            # `paths` was made by code of the same kind
    time, n, states = x.shape[0], x.shape[1], classes.shape[1]
    work = np.empty((n, 4, states + _SIDE), x.dtype)
    out = np.zeros(x.shape, x.dtype)
    entry(threads.entry(), _words(x.shape, states)[1], x,
          *_tables(classes, skip, lengths, steps), alpha.base, work, totals, out, time)
    return out
