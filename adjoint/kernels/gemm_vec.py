"""Matrix-vector products: bound by memory, so both kernels stream the matrix once, in address
order.

`dots`: rows are contiguous along the contraction, four rows at a time against the vector. `sums`:
rows are contiguous along the result, four rows at a time added to it; each chunk of rows has its
own partial result, and the number of chunks depends only on the shape.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from . import llvm, threads
from .gemm_emit import BYTES, FLOATS, Emit, Machine, lane_mask, load_wide, short
from .gemm_plan import Array, address, machine

ARGS = "matrix stride vector out count depth chunk".split()
_ArgBlock = ctypes.c_int64 * len(ARGS)
_DOTS, _SUMS = 4, 4
_CHUNK = 1 << 15  # elements of the matrix in one chunk


class _Writer:
    """Both functions for one element type."""

    def __init__(self, src: str, m: Machine) -> None:
        self.e, self.src, self.machine = Emit(), src, m
        self.acc = "double" if src == "double" else "float"
        self.n = m.lanes(self.acc)
        self.vec = f"<{self.n} x {self.acc}>"

    def text(self) -> str:
        """The module."""
        self.e.declare(f"{self.vec} @{self.fma()}({self.vec}, {self.vec}, {self.vec})")
        for name, body in (("dots", self.dots), ("sums", self.sums)):
            with self.e.function(f"void @{name}(ptr %args, i64 %lo, i64 %hi)", "#0"):
                v = {
                    a: self.e.load(
                        "ptr" if a in ("matrix", "vector", "out") else "i64",
                        self.e.at("%args", 8 * i),
                    )
                    for i, a in enumerate(ARGS)
                }
                with self.e.loop("%lo", "%hi") as task:
                    body(v, task)
                self.e.raw("  ret void")
        return self.e.text(self.machine)

    def fma(self) -> str:
        """Name of the fused multiply-add."""
        return f"llvm.fma.v{self.n}{short(self.acc)}"

    def add_product(self, a: str, b: str, slot: str) -> None:
        """`slot += a * b`."""
        e, vec = self.e, self.vec
        e.store(
            vec,
            e.call(vec, self.fma(), f"{vec} {a}", f"{vec} {b}", f"{vec} {e.load(vec, slot)}"),
            slot,
        )

    def dots(self, v: dict[str, str], task: str) -> None:
        """out[i] = <matrix[i], vector> for a chunk of rows i."""
        e, n, vec, size = self.e, self.n, self.vec, BYTES[self.src]
        name = f"llvm.vector.reduce.fadd.v{n}{short(self.acc)}"
        e.declare(f"{self.acc} @{name}({self.acc}, {vec})")
        first = e.mul(task, v["chunk"])
        stop = e.min(v["count"], e.add(first, v["chunk"]))
        acc = [e.slot(vec, None, 64) for _ in range(_DOTS)]
        whole = e.mul(e.div(v["depth"], n), n)
        last = e.sub(v["count"], 1)
        with e.loop(first, stop, _DOTS) as i:
            rows = [
                e.at(v["matrix"], e.mul(e.mul(e.min(e.add(i, r), last), v["stride"]), size))
                for r in range(_DOTS)
            ]
            for slot in acc:
                e.store(vec, "zeroinitializer", slot)
            with e.loop(0, whole, n) as k:
                x = load_wide(e, self.src, self.acc, n, e.at(v["vector"], k, self.src))
                for row, slot in zip(rows, acc, strict=True):
                    self.add_product(
                        load_wide(e, self.src, self.acc, n, e.at(row, k, self.src)), x, slot
                    )
            self.dots_tail(v, rows, acc, whole)
            for r, slot in enumerate(acc):
                lanes = e.load(vec, slot)
                total = e.op(f"call reassoc {self.acc} @{name}({self.acc} -0.0, {vec} {lanes})")
                where = e.at(v["out"], e.add(i, r), self.acc)
                e.cond(
                    e.cmp("slt", e.add(i, r), stop),
                    lambda total=total, where=where: e.store(  # type: ignore[misc]  # bound
                        self.acc, total, where),
                )

    def dots_tail(self, v: dict[str, str], rows: list[str], acc: list[str], whole: str) -> None:
        """The last elements of the rows: off lanes are zero in matrix and vector alike."""
        e, n = self.e, self.n

        def tail() -> None:
            left = e.sub(v["depth"], whole)
            mask = lane_mask(e, n, left)
            x = load_wide(e, self.src, self.acc, n, e.at(v["vector"], whole, self.src), mask)
            for row, slot in zip(rows, acc, strict=True):
                y = load_wide(e, self.src, self.acc, n, e.at(row, whole, self.src), mask)
                self.add_product(y, x, slot)

        e.cond(e.cmp("slt", whole, v["depth"]), tail)

    def sums(self, v: dict[str, str], task: str) -> None:
        """out[task] = sum over a chunk of rows k of vector[k] * matrix[k]."""
        e, size = self.e, BYTES[self.src]
        first = e.mul(task, v["chunk"])
        stop = e.min(v["depth"], e.add(first, v["chunk"]))
        out = e.at(v["out"], e.mul(task, v["count"]), self.acc)
        with e.loop(0, v["count"]) as i:
            e.store(self.acc, "0.0", e.at(out, i, self.acc))
        full = e.add(first, e.mul(e.div(e.sub(stop, first), _SUMS), _SUMS))
        for start, end, step in ((first, full, _SUMS), (full, stop, 1)):
            with e.loop(start, end, step) as k:
                rows = [
                    e.at(v["matrix"], e.mul(e.mul(e.add(k, r), v["stride"]), size))
                    for r in range(step)
                ]
                scalars = [
                    load_wide(e, self.src, self.acc, 1, e.at(v["vector"], e.add(k, r), self.src))
                    for r in range(step)
                ]
                self.add_rows(out, rows, scalars, v["count"])

    def add_rows(self, out: str, rows: list[str], scalars: list[str], count: str) -> None:
        """`out += sum of scalars * rows`."""
        e, n, acc, vec = self.e, self.n, self.acc, self.vec
        whole = e.mul(e.div(count, n), n)
        wide = [e.splat(acc, n, s) for s in scalars]
        with e.loop(0, whole, n) as j:
            where = e.at(out, j, acc)
            y = e.load(vec, where, BYTES[acc])
            for x, row in zip(wide, rows, strict=True):
                m = load_wide(e, self.src, acc, n, e.at(row, j, self.src))
                y = e.call(vec, self.fma(), f"{vec} {x}", f"{vec} {m}", f"{vec} {y}")
            e.store(vec, y, where, BYTES[acc])
        with e.loop(whole, count) as j:
            where = e.at(out, j, acc)
            y = e.load(acc, where)
            for s, row in zip(scalars, rows, strict=True):
                m = load_wide(e, self.src, acc, 1, e.at(row, j, self.src))
                y = e.op(f"fadd {acc} {y}, {e.op(f'fmul {acc} {s}, {m}')}")
            e.store(acc, y, where)


@functools.cache
def _entry(src: str, name: str) -> int:
    module = llvm.compile_spec(
        ("gemv", src, str(machine())), lambda: _Writer(src, machine()).text(), name="gemv"
    )
    return module.address(name)


def supported(matrix: Array, vector: Array) -> bool:
    """Whether `matrix @ vector` is a single stream of the matrix through one of the kernels, which
    are loaded then."""
    if matrix.dtype != vector.dtype or matrix.dtype.name not in FLOATS or not matrix.dtype.isnative:
        return False
    size, (down, across) = matrix.itemsize, matrix.strides
    if not matrix.size or down % size or across % size or size not in (down, across):
        return False
    return _entry(FLOATS[matrix.dtype.name], "dots") != 0


def matvec(matrix: Array, vector: Array) -> Array:
    """`matrix (M, K) @ vector (K,)`, summed and returned in float32 or float64.

    >>> if llvm.available():
    ...     print(matvec(np.eye(3, dtype=np.float32), np.arange(3, dtype=np.float32)))
    ... else:
    ...     print(np.arange(3, dtype=np.float32))
    [0. 1. 2.]
    """
    vector = np.ascontiguousarray(vector)
    m, k = matrix.shape
    dtype = np.dtype(np.float64 if matrix.dtype == np.float64 else np.float32)
    name = FLOATS[matrix.dtype.name]
    if matrix.strides[1] == matrix.itemsize:
        chunk = max(_DOTS, _CHUNK // max(1, k) // _DOTS * _DOTS)
        parts, kind, stride = -(-m // chunk), "dots", matrix.strides[0] // matrix.itemsize
        out: Any = np.empty(m, dtype)
    else:
        chunk = max(64, 2 * _CHUNK // max(1, m), -(-k // 8))
        parts, kind, stride = -(-k // chunk), "sums", matrix.strides[1] // matrix.itemsize
        raw = np.empty(parts * m + 1024, dtype)
        # half a page off the matrix: stores never look like the loads that follow them
        skip = (address(matrix) + 2048 - address(raw)) % 4096 // dtype.itemsize
        out = raw[skip : skip + parts * m].reshape(parts, m)
    block = _ArgBlock(address(matrix), stride, address(vector), address(out), m, k, chunk)
    threads.parallel(_entry(name, kind), ctypes.addressof(block), parts)
    if kind == "dots":
        return np.asarray(out)
    return np.asarray(out[0] if parts == 1 else np.add.reduce(out, axis=0))
