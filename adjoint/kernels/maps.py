"""Loops where the axis that a function goes along is not the last: arrays (N, C, S), some vectors
of neighbouring positions at a time, so that no lane waits for another; and softmax so.

A chunk is a run of positions of one example. Sums go by blocks of classes, each summed by itself.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjoint.kernels import llvm, rows
from adjoint.kernels.ir import Value, vec
from adjoint.kernels.loops import geometry
from adjoint.kernels.mathlib import apply
from adjoint.kernels.rows import Rows

Array = NDArray[Any]
FEWEST = 8              # positions below which most lanes would be idle
_RUN = 128              # positions of a chunk of softmax
_BLOCK = 64             # classes whose sum is a number of its own


@functools.lru_cache(maxsize=1024)
def map_geometry(examples: int, classes: int, positions: int, run: int) -> tuple[Any, int]:
    """(words, address) for an array of that shape, `run` positions a chunk."""
    runs = -(-positions // run)
    return geometry([examples * runs, runs, classes, positions, run])


class Maps:
    """The loops over examples, positions and classes."""

    def __init__(self, k: Rows, vectors: int = 1) -> None:
        self.k, self.f = k, k.f
        k.n *= vectors
        k.ty = vec(k.n, k.register)
        self.runs, self.classes, self.positions, self.run = (
            k.frame.geometry(i) for i in range(1, 5))

    def each(self, body: Any) -> None:
        """`body(number of the example, position, mask)`."""
        f = self.f

        def chunk(q: Value, _: list[Value]) -> list[Value]:
            example = q / self.runs
            lo = (q % self.runs) * self.run

            def at(j: Value, m: Value | None, _: list[Value]) -> list[Value]:
                body(example, j, m)
                return []
            f.vector_loop(lo, f.intrinsic("smin", lo + self.run, self.positions), self.k.n, [], at)
            return []
        f.loop(self.k.frame.first, self.k.frame.end, 1, [], chunk)

    def example(self, p: Value, example: Value) -> Value:
        """Where an example begins in the array at `p`."""
        return self.f.at(p, self.k.stored, example * self.classes * self.positions)

    def along(self, carried: list[Value], step: Any) -> list[Value]:
        """`step(c, carried)` over the classes."""
        return self.f.loop(self.f.i64(0), self.classes, 1, carried, step)

    def sum(self, value: Callable[[Value], Value]) -> Value:
        """The sum of `value(c)` over the classes."""
        f, zero = self.f, self.f.const(self.k.ty, 0.0)

        def block(lo: Value, total: list[Value]) -> list[Value]:
            end = f.intrinsic("smin", lo + _BLOCK, self.classes)
            part, = f.loop(lo, end, 1, [zero], lambda c, v: [v[0] + value(c)])
            return [total[0] + part]
        return f.loop(f.i64(0), self.classes, _BLOCK, [zero], block)[0]

    def read(self, base: Value, c: Value, j: Value, m: Value | None) -> Value:
        """A class at a vector of positions."""
        return self.k.load(base, c * self.positions + j, m)


def _forward(k: Rows, log: bool, vectors: int) -> None:
    """x, out."""
    maps, f = Maps(k, vectors), k.f
    xs, outs = k.frame.array(0), k.frame.array(1)
    keeps = not log and k.stored == k.register           # the exponentials, where the result goes

    def at(example: Value, j: Value, m: Value | None) -> None:
        x, out = maps.example(xs, example), maps.example(outs, example)
        top, = maps.along([f.const(k.ty, -math.inf)], lambda c, v: [
            k.join("max", v[0], maps.read(x, c, j, m))])

        def exps(c: Value) -> Value:
            e = apply(f, "exp_negative", maps.read(x, c, j, m) - top)
            if keeps:
                k.store(e, out, c * maps.positions + j, m)
            return e
        total = maps.sum(exps)
        last = apply(f, "log", total) if log else 1.0 / total

        def write(c: Value, _: list[Value]) -> list[Value]:
            v = maps.read(out if keeps else x, c, j, m)
            if log:
                v = v - top - last
            else:
                v = (v if keeps else apply(f, "exp_negative", v - top)) * last
            k.store(v, out, c * maps.positions + j, m)
            return []
        maps.along([], write)
    maps.each(at)


def _backward(k: Rows, log: bool, vectors: int) -> None:
    """ct, the result, out."""
    maps, f = Maps(k, vectors), k.f

    def at(example: Value, j: Value, m: Value | None) -> None:
        ct, y, out = (maps.example(k.frame.array(i), example) for i in range(3))

        def term(c: Value) -> Value:
            g = maps.read(ct, c, j, m)
            return g if log else g * maps.read(y, c, j, m)
        total = maps.sum(term)

        def write(c: Value, _: list[Value]) -> list[Value]:
            g, v = maps.read(ct, c, j, m), maps.read(y, c, j, m)
            v = g - apply(f, "exp", v) * total if log else v * (g - total)
            k.store(v, out, c * maps.positions + j, m)
            return []
        maps.along([], write)
    maps.each(at)


def softmax(*operands: Array, axis: int, log: bool) -> Any:
    """Softmax of one array along an axis that is not the last, or its backward of a cotangent and
    the result; NotImplemented where positions are few, layouts differ or no code is generated.

    >>> y = softmax(np.zeros((2, 3, 9), np.float32), axis=1, log=False)
    >>> y is NotImplemented or y[0, :, 0].tolist() == [np.float32(1 / 3)] * 3
    True
    """
    x = operands[0]
    if not rows.plain(*operands) or any(
            a.shape != x.shape or a.dtype != x.dtype for a in operands):
        return NotImplemented
    positions = math.prod(x.shape[axis + 1:])
    if positions < FEWEST or not x.size:
        return NotImplemented
    vectors = (4 if llvm.vector_bits() == 512 else 2) if positions > 16 else 1
    back = len(operands) == 2
    entry = rows.compiled(_backward if back else _forward, f"softmax_maps{'_backward' * back}",
                          x.dtype, len(operands) + 1, variant=(log, vectors))
    if entry is None:
        return NotImplemented
    classes = x.shape[axis]
    words = map_geometry(x.size // (classes * positions), classes, positions, _RUN)
    out = np.empty(x.shape, x.dtype)
    entry(rows.run_address(), words[1], *operands, out)
    return out
