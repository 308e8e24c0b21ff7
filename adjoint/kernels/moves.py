"""Copies in C order of arrays whose last axis is not the one that lies together: transposed ones,
in tiles that are turned in registers, and ones that run backwards; and copies with zeros around.

A tile reads rows of a source whose axis `a` lies together and writes rows of a copy whose last axis
`b` does: every line of memory is read and written once, whatever the distances between rows.
"""
from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjoint.kernels import codegen, llvm, threads
from adjoint.kernels.codegen import Frame
from adjoint.kernels.ir import Function, Value, vec
from adjoint.kernels.loops import geometry, layout

Array = NDArray[Any]
_SIDE = {1: 16, 2: 16, 4: 16, 8: 8}     # bytes of an element -> elements along a side of a tile
_STRIP = 64                             # elements along b of a chunk
_MOST = 5                               # outer axes


def turned(f: Function, rows: list[Value]) -> list[Value]:
    """The columns of a square tile: halves are swapped across the diagonal, then their halves."""
    n = len(rows)
    d = n // 2
    while d:
        for i in range(n):
            if i & d == 0:
                a, b = rows[i], rows[i + d]
                rows[i] = f.shuffle(a, b, [n + (k ^ d) if k & d else k for k in range(n)])
                rows[i + d] = f.shuffle(a, b, [n + k if k & d else k ^ d for k in range(n)])
        d //= 2
    return rows


def _offsets(f: Function, r: Value, dims: list[Value], steps: list[list[Value]]) -> list[Value]:
    """Bytes from the first element of each operand to the place `r` of the outer axes."""
    totals = [f.i64(0)] * len(steps)
    for axis in range(len(dims) - 1, -1, -1):
        above = r / dims[axis]
        at = r - above * dims[axis]
        totals = [t + at * s[axis] for t, s in zip(totals, steps, strict=True)]
        r = above
    return totals


def _transpose(size: int, outer: int, frame: Frame) -> None:
    """x, y; geometry: [chunks, strips, a, b, step of y along a, step of x along b, outer axes,
    x's steps along them, y's]."""
    f = frame.f
    strips, na, nb, ya, xb = (frame.geometry(i) for i in range(1, 6))
    dims, *steps = ([frame.geometry(6 + k * outer + i) for i in range(outer)] for k in range(3))
    ty, n = f"i{8 * size}", _SIDE[size]
    row = vec(n, ty)
    lanes = f.splat(f.i64(0), n) + f.iota(n)
    staged = [f.emit("ptr", f"alloca [{n} x {row}], align 64") for _ in range(2)]

    def rows(source: Value, source_step: Value, target: Value, target_step: Value, wide: Value,
             high: Value) -> None:
        """Copy that part of a tile."""
        mask = lanes.compare("slt", f.splat(wide, n))

        def one(i: Value, _: list[Value]) -> list[Value]:
            v = f.load(f.at(source, "i8", i * source_step), row, align=size, mask=mask)
            f.store(v, f.at(target, "i8", i * target_step), align=size, mask=mask)
            return []
        f.loop(f.i64(0), high, 1, [], one)

    def tile(x: Value, y: Value, a0: Value, b0: Value) -> None:
        """Copy the tile at (a0, b0); one that ends with its axes by way of the stack."""
        wide, high = (f.intrinsic("smin", end - at, f.i64(n))
                      for end, at in ((na, a0), (nb, b0)))
        part = (wide & high).compare("ne", n)            # (neither is more than n, a power of two)
        source, target = f.at(f.at(x, "i8", b0 * xb), ty, a0), f.at(f.at(y, "i8", a0 * ya), ty, b0)
        packed = f.i64(n * size)

        def stage() -> list[Value]:
            rows(source, xb, staged[0], packed, wide, high)
            return [staged[0], packed, staged[1], packed]
        p, p_step, q, q_step = f.when(part, stage, [source, xb, target, ya])
        found = turned(f, [f.load(f.at(p, "i8", p_step * i), row, align=size) for i in range(n)])
        for i, v in enumerate(found):
            f.store(v, f.at(q, "i8", q_step * i), align=size)

        def unstage() -> list[Value]:
            rows(staged[1], packed, target, ya, high, wide)
            return []
        f.when(part, unstage)

    def chunk(c: Value, _: list[Value]) -> list[Value]:
        r, lo = c / strips, (c % strips) * _STRIP
        hi = f.intrinsic("smin", lo + _STRIP, nb)
        x, y = (f.at(frame.array(k), "i8", o)
                for k, o in enumerate(_offsets(f, r, dims, list(steps))))

        def column(a0: Value, _: list[Value]) -> list[Value]:
            def along(b0: Value, _: list[Value]) -> list[Value]:
                tile(x, y, a0, b0)
                return []
            return f.loop(lo, hi, n, [], along)
        return f.loop(f.i64(0), na, n, [], column)
    f.loop(frame.first, frame.end, 1, [], chunk)


def _reverse(size: int, outer: int, frame: Frame) -> None:
    """x (its last axis runs backwards), y; geometry: [chunks, rows of a chunk, rows, columns, outer
    axes, x's steps along them, y's]."""
    f = frame.f
    group, rows, columns = (frame.geometry(i) for i in range(1, 4))
    dims, *steps = ([frame.geometry(4 + k * outer + i) for i in range(outer)] for k in range(3))
    ty, n = f"i{8 * size}", 64 // size

    def chunk(c: Value, _: list[Value]) -> list[Value]:
        def row(r: Value, _: list[Value]) -> list[Value]:
            x, y = (f.at(frame.array(k), "i8", o)
                    for k, o in enumerate(_offsets(f, r, dims, list(steps))))
            whole = (columns / n) * n

            def block(j: Value, _: list[Value]) -> list[Value]:
                v = f.load(f.at(x, ty, f.i64(1 - n) - j), vec(n, ty), align=size)
                f.store(f.shuffle(v, v, range(n - 1, -1, -1)), f.at(y, ty, j), align=size)
                return []

            def one(j: Value, _: list[Value]) -> list[Value]:
                f.store(f.load(f.at(x, ty, f.i64(0) - j), ty), f.at(y, ty, j))
                return []
            f.loop(f.i64(0), whole, n, [], block)
            return f.loop(whole, columns, 1, [], one)
        return f.loop(c * group, f.intrinsic("smin", c * group + group, rows), 1, [], row)
    f.loop(frame.first, frame.end, 1, [], chunk)


def _pad(size: int, outer: int, frame: Frame) -> None:
    """x, y; geometry: [chunks, planes of a chunk, planes, rows, columns, rows of zeros before and
    after, columns of zeros before and after]. Zeros and copies are written in their order."""
    f = frame.f
    group, planes, high, wide, above, below, left, right = (frame.geometry(i) for i in range(1, 9))
    ty, n = f"i{8 * size}", 64 // size
    zero = f.const(vec(n, ty), 0)
    width, across = left + wide + right, left + right

    def clear(p: Value, count: Value) -> None:
        def turn(j: Value, m: Value | None, _: list[Value]) -> list[Value]:
            f.store(zero, f.at(p, ty, j), align=size, mask=m)
            return []
        f.vector_loop(f.i64(0), count, n, [], turn)

    def plane(c: Value, _: list[Value]) -> list[Value]:
        x = f.at(frame.array(0), ty, c * high * wide)
        y = f.at(frame.array(1), ty, c * (above + high + below) * width)
        clear(y, above * width + left)
        y = f.at(y, ty, above * width + left)

        def row(r: Value, _: list[Value]) -> list[Value]:
            source, to = f.at(x, ty, r * wide), f.at(y, ty, r * width)

            def copy(j: Value, m: Value | None, _: list[Value]) -> list[Value]:
                f.store(f.load(f.at(source, ty, j), vec(n, ty), align=size, mask=m),
                        f.at(to, ty, j), align=size, mask=m)
                return []
            f.vector_loop(f.i64(0), wide, n, [], copy)
            last = r.compare("eq", high - 1)    # (its zeros go on to the end of the plane)
            clear(f.at(to, ty, wide), f.select(last, right + below * width, across))
            return []
        f.loop(f.i64(0), high, 1, [], row)
        return []

    def chunk(c: Value, _: list[Value]) -> list[Value]:
        lo = c * group
        f.loop(lo, f.intrinsic("smin", lo + group, planes), 1, [], plane)
        return []
    f.loop(frame.first, frame.end, 1, [], chunk)


@functools.cache
@llvm.generating
def _entry(emit: Any, size: int, outer: int) -> Any:
    return codegen.build("copy" + emit.__name__, (str(size), str(outer)),
                         functools.partial(emit, size, outer), arrays=2)


@functools.lru_cache(maxsize=1024)
def _plan(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> Any:
    """(entry, words, address) for such an array; None where NumPy copies well."""
    dense = [size] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        dense[i] = dense[i + 1] * shape[i + 1]
    lay = layout(shape, [strides, tuple(dense)])
    steps, to = lay.strides
    outer, count = list(lay.outer), len(lay.outer)
    if not count and steps[-1] != -size:
        return None
    if steps[-1] == -size:
        rows = int(np.prod(outer, dtype=np.int64))
        group = max(1, (1 << 15) // lay.inner)
        words = [-(-rows // group), group, rows, lay.inner, *outer, *steps[:-1], *to[:-1]]
        entry = _entry(_reverse, size, count) if lay.inner * size >= 64 and count <= _MOST else None
    else:
        a = next((i for i in range(count) if steps[i] == size), None)
        if a is None or steps[-1] <= size or min(outer[a], lay.inner) < 4 or count - 1 > _MOST:
            return None
        rest = [i for i in range(count) if i != a]
        strips = -(-lay.inner // _STRIP)
        rows = int(np.prod([outer[i] for i in rest], dtype=np.int64))
        words = [rows * strips, strips, outer[a], lay.inner, to[a], steps[-1],
                 *(v[i] for v in (outer, steps, to) for i in rest)]
        entry = _entry(_transpose, size, len(rest))
    return None if entry is None else (entry, *geometry(words))


def contiguous(x: Array) -> Any:
    """A copy of `x` in C order; NotImplemented where NumPy's copy is as good.

    >>> y = contiguous(np.arange(64.0).reshape(8, 8).T)
    >>> y is NotImplemented or y[1].tolist() == [1.0, 9.0, 17.0, 25.0, 33.0, 41.0, 49.0, 57.0]
    True
    """
    if not x.size or x.itemsize not in _SIDE or not x.flags.aligned:
        return NotImplemented
    plan = _plan(x.shape, x.strides, x.itemsize)
    if plan is None:
        return NotImplemented
    out = np.empty(x.shape, x.dtype)
    plan[0](threads.light_entry(), plan[2], x, out)
    return out


@functools.lru_cache(maxsize=1024)
def _pad_words(shape: tuple[int, ...], pads: tuple[tuple[int, int], ...]) -> tuple[Any, int]:
    *lead, high, wide = shape
    planes = int(np.prod(lead, dtype=np.int64))
    group = max(1, (1 << 15) // (high * wide))
    return geometry([-(-planes // group), group, planes, high, wide, *pads[-2], *pads[-1]])


def pad(x: Array, pads: tuple[tuple[int, int], ...]) -> Any:
    """`x` with as many zeros before and after each axis; NotImplemented but for C-contiguous arrays
    and pads of the last two axes.

    >>> y = pad(np.ones((1, 2)), ((0, 1), (1, 0)))
    >>> y is NotImplemented or y.tolist() == [[0.0, 1.0, 1.0], [0.0, 0.0, 0.0]]
    True
    """
    if (x.ndim < 2 or not x.size or not x.flags.carray or x.itemsize not in _SIDE
            or any(a or b for a, b in pads[:-2]) or any(min(p) < 0 for p in pads[-2:])):
        return NotImplemented
    entry = _entry(_pad, x.itemsize, 0)
    if entry is None:
        return NotImplemented
    out = np.empty([n + a + b for n, (a, b) in zip(x.shape, pads, strict=True)], x.dtype)
    entry(threads.light_entry(), _pad_words(x.shape, pads)[1], x, out)
    return out
