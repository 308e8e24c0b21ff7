"""What row kernels are written with: loops over rows and along a row, reductions, geometry.

A row kernel computes on C-contiguous (rows, columns) operands; a chunk is a group of rows. How
many rows form a group depends on the shape alone, so results do not depend on the threads.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjoint.kernels import codegen, llvm, threads
from adjoint.kernels.codegen import Frame
from adjoint.kernels.ir import Value, lanes, vec
from adjoint.kernels.loops import geometry

Array = NDArray[Any]
_GROUP_BYTES = 1 << 16
_BLOCK = 4096
_AHEAD = 16384          # elements that are fetched ahead at most


class Rows:
    """The generator's view of one row kernel: `stored` in memory, `register` in registers."""

    def __init__(self, frame: Frame, stored: str, register: str) -> None:
        self.frame, self.f = frame, frame.f
        self.stored, self.register = stored, register
        self.n = codegen.width(register)
        self.ty = vec(self.n, register)
        self._streams = False
        self.group, self.rows, self.columns = (frame.geometry(i) for i in (1, 2, 3))

    def each(self, body: Callable[[Value], None],
             before: Callable[[Value], None] | None = None) -> None:
        """Run `body(row)` for every row of every chunk, `before(chunk)` ahead of each chunk."""
        f = self.f

        def one(r: Value, _: list[Value]) -> list[Value]:
            body(r)
            return []

        def chunk(c: Value, _: list[Value]) -> list[Value]:
            if before is not None:
                before(c)
            start = c * self.group
            f.loop(start, f.intrinsic("smin", start + self.group, self.rows), 1, [], one)
            return []

        f.loop(self.frame.first, self.frame.end, 1, [], chunk)
        if self._streams:
            codegen.fence(f)

    def scratch(self) -> Value:
        """Room for one row in registers' type; ask for it ahead of `each`."""
        return self.f.emit("ptr", f"alloca {self.register}, i64 {self.columns.ref}, align 64")

    def row(self, p: Value, r: Value, stored: str | None = None) -> Value:
        """The address of row `r` of the (rows, columns) operand at `p`."""
        return self.f.at(p, stored or self.stored, r * self.columns)

    def load(self, p: Value, j: Value, mask: Value | None, stored: str | None = None) -> Value:
        kind = stored or self.stored
        return codegen.load(self.f, self.f.at(p, kind, j), kind, self.n, mask=mask)

    def store(self, v: Value, p: Value, j: Value, mask: Value | None,
              stored: str | None = None, stream: bool = False) -> None:
        kind = stored or self.stored
        codegen.store(self.f, v, self.f.at(p, kind, j), kind, mask=mask, stream=stream)

    def ahead(self, p: Value, j: Value) -> None:
        """Have column `j` of the row after the one at `p` fetched (of a long row a later column of
        its own): memory then works while this row is computed on."""
        step = self.f.intrinsic("smin", self.columns, self.f.i64(_AHEAD))
        self.f.fetch(self.f.at(p, self.stored, j + step))

    def scalar(self, p: Value, index: Value) -> Value:
        """One element, as a register scalar."""
        return codegen.load_scalar(self.f, self.f.at(p, self.stored, index), self.stored)

    def put(self, v: Value, p: Value, index: Value, stored: str | None = None) -> None:
        """Store one register scalar."""
        kind = stored or self.register
        codegen.store_scalar(self.f, v, self.f.at(p, kind, index), kind)

    def wide(self, scalar: Value) -> Value:
        return self.f.splat(scalar, self.n)

    def number(self, value: float) -> Value:
        return self.f.const(self.register, value)

    def reduce(self, how: Sequence[str], step: Callable[[Value, Value | None], Sequence[Value]],
               *, unroll: int = 4) -> list[Value]:
        """Join what `step(j, mask)` returns along the row; `how` is "add" or "max" for each.

        Sums run within blocks of 4096 columns first, so that long rows stay accurate.
        "max" ignores nan (a nan shows in whatever is computed next).
        """
        f, join = self.f, self.join
        zero = {"add": 0.0, "max": -np.inf}
        start = [f.const(self.ty, zero[h]) for h in how]

        def body(j: Value, mask: Value | None, carried: list[Value]) -> list[Value]:
            new = step(j, mask)
            return [join(h, c, v) for h, c, v in zip(how, carried, new, strict=True)]

        def combine(a: list[Value], b: list[Value]) -> list[Value]:
            return [join(h, x, y) for h, x, y in zip(how, a, b, strict=True)]

        def block(lo: Value, carried: list[Value]) -> list[Value]:
            part = f.vector_loop(lo, f.intrinsic("smin", lo + _BLOCK, self.columns), self.n,
                                 start, body, unroll=unroll, combine=combine)
            return combine(carried, part)

        total = f.loop(f.i64(0), self.columns, _BLOCK, start, block)
        return [self.lanes_joined(h, v) for h, v in zip(how, total, strict=True)]

    def join(self, how: str, a: Value, b: Value) -> Value:
        """The sum ("add") or the larger ("max", which ignores a nan in `b`)."""
        return a + b if how == "add" else self.f.select(b.compare("ogt", a), b, a)

    def lanes_joined(self, how: str, v: Value) -> Value:
        """The lanes of a vector joined pairwise, as a scalar."""
        f = self.f
        while lanes(v.ty) > 1:
            half = lanes(v.ty) // 2
            if half > 1:
                a, b = f.shuffle(v, v, range(half)), f.shuffle(v, v, range(half, 2 * half))
            else:
                a, b = f.extract(v, 0), f.extract(v, 1)
            v = self.join(how, a, b)
        return v

    def map(self, body: Callable[[Value, Value | None, bool], None],
            stream: Sequence[Value] = ()) -> None:
        """Run `body(j, mask, stream)` along the row; stores to `stream` pointers may stream."""
        self._streams = self._streams or bool(stream)

        def run(j: Value, mask: Value | None, streaming: bool, _: int) -> None:
            body(j, mask, streaming)
        codegen.streaming_loop(self.f, self.f.i64(0), self.columns, self.n, stream, run)


Emit = Callable[[Rows], None]


@functools.lru_cache(maxsize=1024)
@llvm.generating
def compiled(emit: Emit, name: str, dtype: np.dtype[Any], arrays: int, integers: int = 0,
             reals: int = 0, variant: tuple[Any, ...] = ()) -> Any:
    """The entry of a row kernel; None where there is no generated code for the dtype.

    `variant` is passed on to `emit` and has to determine, with `name`, what it generates.
    """
    kinds = codegen.storage(dtype)
    if kinds is None or kinds[1] == "i1":
        return None
    generate: Callable[..., None] = emit

    def body(frame: Frame) -> None:
        generate(Rows(frame, *kinds), *variant)
    return codegen.build(name, (kinds[0], repr(variant)), body, arrays=arrays,
                         integers=integers, reals=reals)


_Geometry = tuple[Any, int]


@functools.lru_cache(maxsize=4096)
def row_geometry(rows: int, columns: int, itemsize: int, groups: int = 0,
                 extra: tuple[int, ...] = ()) -> tuple[Any, int, int]:
    """(words, address, chunks) for a row kernel of that shape; `groups` bounds the chunks."""
    group = max(1, _GROUP_BYTES // max(1, columns * itemsize))
    if groups:
        group = max(group, -(-rows // groups))
    if rows * columns <= 8192:
        group = max(1, rows)
    chunks = -(-rows // group)
    words, address = geometry([chunks, group, rows, columns, *extra])
    return words, address, chunks


def as_rows(x: Array) -> tuple[int, int]:
    """(rows, columns) of a C-contiguous array seen as rows of its last axis."""
    columns = x.shape[-1] if x.ndim else 1
    return (x.size // columns if columns else 0), columns


def plain(*arrays: Any) -> bool:
    """Whether every operand is a C-contiguous native aligned ndarray."""
    for a in arrays:  # a generator would cost more than the checks
        if type(a) is not np.ndarray or not a.flags.carray:
            return False
    return True


def last_axis(x: Array, axis: int) -> bool:
    """Whether `axis` is the last one."""
    return x.ndim > 0 and (axis == -1 or axis == x.ndim - 1)


run_address = threads.entry
