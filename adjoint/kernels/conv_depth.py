"""Depthwise convolution: every filter reads one channel, so that there is no product of matrices.

An image's channel is copied once to a padded plane in the first caches. The columns of a plane lie
by their remainder to the stride, so that what one tap reads for neighbouring results is contiguous;
where each tap begins comes from a table. A vector holds neighbouring results of one row; weights
stay in registers. The gradient of the weight sums products of the cotangent with the same windows,
images in their order, so that the bits do not depend on the threads. (The gradient of the input
is a convolution of the cotangent: see `conv_run.grad_input`.)
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from . import codegen, threads
from .codegen import Frame
from .conv_numpy import Array, ConvSpec
from .ir import Function, Value, vec
from .loops import geometry

_PLANE_BYTES = 256 << 10  # of the longest plane that is kept on the stack of its thread
_TAPS = 32  # most taps whose weights are held
_CHUNK = 8192  # results of a chunk, about
_FIXED = 12  # words ahead of the tables


def supported(spec: ConvSpec, itemsize: int) -> bool:
    """Whether every filter has one channel, and plane and taps are of a size for it."""
    if spec.groups != spec.channels or spec.groups == 1 or spec.dims > 2 or spec.taps > _TAPS:
        return False
    return math.prod(spec.padded) * itemsize <= _PLANE_BYTES


def _planes(spec: ConvSpec) -> list[tuple[int, ...]]:
    """Space, padding before, padded, out, kernel, stride, dilation with two dimensions."""
    one = (1,) * (2 - spec.dims)
    sizes = (spec.space, spec.lo, spec.padded, spec.out, spec.kernel, spec.stride, spec.dilation)
    return [(*((0,) if v is spec.lo else (1,)) * len(one), *v) for v in sizes]


@functools.lru_cache(maxsize=1024)
def _words(spec: ConvSpec, weight: bool) -> tuple[Any, int]:
    """(words, address): the sizes, then per remainder (first column, place, count), then taps."""
    space, lo, padded, out, kernel, stride, dilation = _planes(spec)
    wide = -(-padded[1] // stride[1])
    pitch = stride[1] * wide
    planes = spec.filters if weight else spec.batch * spec.filters
    group = 1 if weight else max(1, _CHUNK // max(1, math.prod(out)))
    fixed = [
        -(-planes // group), group, planes, spec.filters, spec.filters // spec.channels,
        *space, *out, pitch, lo[0] * pitch, stride[0] * pitch,
    ]  # fmt: skip
    tables = [padded[0] * pitch, spec.batch]
    for r in range(stride[1]):
        first = (r - lo[1]) % stride[1]
        tables += [first, r * wide + (first + lo[1]) // stride[1],
                   max(0, -(-(space[1] - first) // stride[1]))]  # fmt: skip
    for kh in range(kernel[0]):
        for kw in range(kernel[1]):
            turn, place = (kw * dilation[1]) % stride[1], (kw * dilation[1]) // stride[1]
            tables.append(kh * dilation[0] * pitch + turn * wide + place)
    return geometry([*fixed, *tables])


class _Planes:
    """What both kernels share: sizes, the padded plane, and the windows in it."""

    def __init__(self, frame: Frame, kind: str, stride: int, taps: int) -> None:
        self.f, self.frame, self.kind, self.step = frame.f, frame, kind, stride
        self.n = codegen.width(kind)
        self.ty = vec(self.n, kind)
        (self.group, self.planes, self.filters, self.per, self.high, self.wide, self.out_high,
         self.out_wide, self.pitch, self.above, self.down, size, self.batch) = (
            frame.geometry(i) for i in range(1, _FIXED + 2))  # fmt: skip
        at = _FIXED + 2
        self.columns = [tuple(frame.geometry(at + 3 * r + i) for i in range(3))
                        for r in range(stride)]  # fmt: skip
        self.taps = [frame.geometry(at + 3 * stride + k) for k in range(taps)]
        self.plane = self.f.emit("ptr", f"alloca {kind}, i64 {size.ref}, align 64")
        zero = self.f.const(self.ty, 0.0)

        def clear(i: Value, m: Value | None, _: list[Value]) -> list[Value]:
            self.f.store(zero, self.f.at(self.plane, kind, i), mask=m)
            return []
        self.f.vector_loop(self.f.i64(0), size, self.n, [], clear)

    def fill(self, x: Value, number: Value) -> None:
        """Copy plane `number` of x into the padded one."""
        f, kind = self.f, self.kind
        start = f.at(x, kind, number * self.high * self.wide)

        def row(r: Value, _: list[Value]) -> list[Value]:
            source = f.at(start, kind, r * self.wide)
            to = f.at(self.plane, kind, self.above + r * self.pitch)
            for first, place, count in self.columns:
                self._columns(f.at(source, kind, first), f.at(to, kind, place), count)
            return []
        f.loop(f.i64(0), self.high, 1, [], row)

    def _columns(self, source: Value, to: Value, count: Value) -> None:
        f, kind = self.f, self.kind

        def copy(i: Value, m: Value | None, _: list[Value]) -> list[Value]:
            f.store(f.load(f.at(source, kind, i), self.ty, mask=m), f.at(to, kind, i), mask=m)
            return []

        def pick(i: Value, _: list[Value]) -> list[Value]:
            f.store(f.load(f.at(source, kind, i * self.step), kind), f.at(to, kind, i))
            return []
        if self.step == 1:
            f.vector_loop(f.i64(0), count, self.n, [], copy)
        else:
            f.loop(f.i64(0), count, 1, [], pick)

    def windows(self, carried: list[Value], body: Any) -> list[Value]:
        """`body(place among the results, load of tap k, mask, carried)` over a plane's results."""
        f, kind = self.f, self.kind

        def row(r: Value, values: list[Value]) -> list[Value]:
            line = f.at(self.plane, kind, r * self.down)
            lines = [f.at(line, kind, t) for t in self.taps]

            def turn(j: Value, m: Value | None, inner: list[Value]) -> list[Value]:
                def tap(k: int) -> Value:
                    return f.load(f.at(lines[k], kind, j), self.ty, mask=m)
                return list(body(r * self.out_wide + j, tap, m, inner))
            return f.vector_loop(f.i64(0), self.out_wide, self.n, values, turn)
        return f.loop(f.i64(0), self.out_high, 1, carried, row)


def _forward(kind: str, stride: int, taps: int, bias: bool, frame: Frame) -> None:
    """x, w, [bias], out."""
    f: Function = frame.f
    p = _Planes(frame, kind, stride, taps)
    x, w, out = frame.array(0), frame.array(1), frame.array(2 + bias)

    def plane(i: Value, _: list[Value]) -> list[Value]:
        o = i % p.filters
        p.fill(x, (i / p.filters) * (p.filters / p.per) + o / p.per)
        ws = [f.splat(f.load(f.at(w, kind, o * taps + k), kind), p.n) for k in range(taps)]
        start = f.const(p.ty, 0.0)
        if bias:
            start = f.splat(f.load(f.at(frame.array(2), kind, o), kind), p.n)
        to = f.at(out, kind, i * p.out_high * p.out_wide)

        def result(place: Value, tap: Any, m: Value | None, _: list[Value]) -> list[Value]:
            total = start
            for k in range(taps):
                total = f.fma(tap(k), ws[k], total)
            f.store(total, f.at(to, kind, place), mask=m)
            return []
        p.windows([], result)
        return []

    first = frame.first * p.group
    f.loop(first, f.intrinsic("smin", frame.end * p.group, p.planes), 1, [], plane)


def _weight(kind: str, stride: int, taps: int, frame: Frame) -> None:
    """ct, x, out (filters, taps); a chunk is a filter."""
    f: Function = frame.f
    p = _Planes(frame, kind, stride, taps)
    cts, x, out = (frame.array(i) for i in range(3))
    zeros = [f.const(p.ty, 0.0)] * taps

    def one(o: Value, _: list[Value]) -> list[Value]:
        def image(n: Value, sums: list[Value]) -> list[Value]:
            p.fill(x, n * (p.filters / p.per) + o / p.per)
            ct = f.at(cts, kind, (n * p.filters + o) * p.out_high * p.out_wide)

            def add(place: Value, tap: Any, m: Value | None, v: list[Value]) -> list[Value]:
                g = f.load(f.at(ct, kind, place), p.ty, mask=m)
                return [f.fma(g, tap(k), v[k]) for k in range(taps)]
            return [a + b for a, b in zip(sums, p.windows(zeros, add), strict=True)]
        sums = f.loop(f.i64(0), p.batch, 1, zeros, image)
        for k, v in enumerate(sums):
            f.store(f.reduce("add", v), f.at(out, kind, o * taps + k))
        return []
    f.loop(frame.first, frame.end, 1, [], one)


@functools.lru_cache(maxsize=256)
def _entry(dtype: np.dtype[Any], stride: int, taps: int, weight: bool, bias: bool) -> Any:
    kind = codegen.STORAGE[dtype][0]
    emit = (functools.partial(_weight, kind, stride, taps) if weight
            else functools.partial(_forward, kind, stride, taps, bias))  # fmt: skip
    return codegen.build("depthwise", (kind, f"{stride} {taps} {weight} {bias}"), emit,
                         arrays=3 + bias)  # fmt: skip


def forward(x: Array, w: Array, spec: ConvSpec, bias: Array | None) -> Array:
    """The convolution, `(N, O, *P)`, of operands of one dtype; see `supported`."""
    out = np.empty((spec.batch, spec.filters, *spec.out), x.dtype)
    entry = _entry(x.dtype, spec.stride[-1], spec.taps, False, bias is not None)
    given = [] if bias is None else [np.ascontiguousarray(bias)]
    entry(threads.entry(), _words(spec, False)[1], np.ascontiguousarray(x),
          np.ascontiguousarray(w), *given, out)  # fmt: skip
    return out


def grad_weight(ct: Array, x: Array, spec: ConvSpec) -> Array:
    """The cotangent of the weight, `(O, 1, *K)`."""
    out = np.empty((spec.filters, 1, *spec.kernel), x.dtype)
    entry = _entry(x.dtype, spec.stride[-1], spec.taps, True, False)
    entry(threads.entry(), _words(spec, True)[1], np.ascontiguousarray(ct),
          np.ascontiguousarray(x), out)  # fmt: skip
    return out
