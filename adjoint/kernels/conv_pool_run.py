"""Max pooling as generated code: one pass, maxima and indices in registers, planes by threads."""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import llvm, threads
from .conv_numpy import Array
from .gemm_emit import BYTES, FLOATS, Emit, Machine, fconst, lane_mask, short, store_masked
from .gemm_plan import address, machine

_AXES = ("d", "h", "w")
ARGS = ["x", "out", "index", "first", "plane", "places"] + [
    kind + axis for axis in _AXES for kind in ("in_", "out_", "k_", "step_", "pad_", "gap_")
]
_POINTERS = frozenset(("x", "out", "index", "first"))
_ArgBlock = ctypes.c_int64 * len(ARGS)


class _Writer:
    """Writes `void pool(args, lo, hi)`: planes lo to hi."""

    def __init__(self, kind: str, m: Machine) -> None:
        self.e, self.kind, self.machine, self.n = Emit(), kind, m, m.lanes(kind)
        self.f, self.i = f"<{self.n} x {kind}>", f"<{self.n} x i32>"
        self.b = f"<{self.n} x i1>"

    def text(self) -> str:
        """The module."""
        e, n = self.e, self.n
        e.declare(
            f"{self.f} @llvm.masked.gather.v{n}{short(self.kind)}.v{n}p0"
            f"(<{n} x ptr>, i32, {self.b}, {self.f})"
        )
        with e.function("void @pool(ptr %args, i64 %lo, i64 %hi)", "#0"):
            self.v = v = {
                name: e.load("ptr" if name in _POINTERS else "i64", e.at("%args", 8 * i))
                for i, name in enumerate(ARGS)
            }
            self.best = e.slot(self.f, None, 64)
            self.where = e.slot(self.i, None, 64)
            with e.loop("%lo", "%hi") as plane:
                self.x = e.at(v["x"], e.mul(plane, v["plane"]), self.kind)
                start = e.mul(plane, v["places"])
                with e.loop(0, v["out_d"]) as d, e.loop(0, v["out_h"]) as h:
                    row = e.mul(e.add(e.mul(d, v["out_h"]), h), v["out_w"])
                    with e.loop(0, v["out_w"], n) as w:
                        self.vector(d, h, w, e.add(row, w), start)
            e.raw("  ret void")
        return e.text(self.machine)

    def place(self, axis: str, out: str, tap: str) -> str:
        """Input position of a tap along an axis."""
        e, v = self.e, self.v
        at = e.sub(e.mul(out, v["step_" + axis]), v["pad_" + axis])
        return e.add(at, e.mul(tap, v["gap_" + axis]))

    def inside(self, axis: str, at: str) -> str:
        """Whether an input position is not in the padding."""
        return self.e.cmp("ult", at, self.v["in_" + axis])

    def vector(self, d: str, h: str, w: str, place: str, start: str) -> None:
        """One vector of outputs: every tap whose depth and row are inside."""
        e, v, n = self.e, self.v, self.n
        lanes = lane_mask(e, n, e.sub(v["out_w"], w))
        e.store(self.f, fconst(self.kind, n, -math.inf), self.best)
        first = e.at(v["first"], place, "i32")
        name = f"llvm.masked.load.v{n}i32.p0"
        e.declare(f"{self.i} @{name}(ptr, i32, {self.b}, {self.i})")
        got = e.call(
            self.i, name, f"ptr {first}", "i32 4", f"{self.b} {lanes}", f"{self.i} zeroinitializer"
        )
        e.store(self.i, got, self.where)
        with e.loop(0, v["k_d"]) as kd, e.loop(0, v["k_h"]) as kh:
            at_d, at_h = self.place("d", d, kd), self.place("h", h, kh)

            def row(at_d: str = at_d, at_h: str = at_h) -> None:
                line = e.mul(e.add(e.mul(at_d, v["in_h"]), at_h), v["in_w"])
                with e.loop(0, v["k_w"]) as kw:
                    self.tap(line, self.place("w", w, kw), lanes)

            e.cond(e.both(self.inside("d", at_d), self.inside("h", at_h)), row)
        to = e.add(start, place)
        store_masked(
            e, self.kind, n, e.load(self.f, self.best), e.at(v["out"], to, self.kind), lanes
        )
        wide = e.op(f"sext {self.i} {e.load(self.i, self.where)} to <{n} x i64>")
        name = f"llvm.masked.store.v{n}i64.p0"
        e.declare(f"void @{name}(<{n} x i64>, ptr, i32, {self.b})")
        e.run(
            name, f"<{n} x i64> {wide}", f"ptr {e.at(v['index'], to, 'i64')}", "i32 8",
            f"{self.b} {lanes}",
        )  # fmt: skip

    def tap(self, line: str, first: str, lanes: str) -> None:
        """Compare one tap; a nan wins over everything before it, as in PyTorch."""
        e, v, n = self.e, self.v, self.n

        def spread(value: str) -> str:
            return e.splat("i32", n, e.op(f"trunc i64 {value} to i32"))

        steps = "<" + ", ".join(f"i32 {i}" for i in range(n)) + ">"
        moved = e.op(f"mul {self.i} {spread(v['step_w'])}, {steps}")
        at = e.op(f"add {self.i} {spread(first)}, {moved}")
        inside = e.op(f"icmp ult {self.i} {at}, {spread(v['in_w'])}")
        mask = e.op(f"and {self.b} {inside}, {lanes}")
        index = e.op(f"add {self.i} {at}, {spread(line)}")
        pointers = e.op(f"getelementptr {self.kind}, ptr {self.x}, {self.i} {index}")
        value = e.call(
            self.f, f"llvm.masked.gather.v{n}{short(self.kind)}.v{n}p0",
            f"<{n} x ptr> {pointers}", f"i32 {BYTES[self.kind]}", f"{self.b} {mask}",
            f"{self.f} {fconst(self.kind, n, -math.inf)}",
        )  # fmt: skip
        best = e.load(self.f, self.best)
        wins = e.op(f"fcmp ogt {self.f} {value}, {best}")
        isnan = e.op(f"fcmp uno {self.f} {value}, {value}")
        take = e.op(f"or {self.b} {wins}, {isnan}")
        old = e.load(self.i, self.where)
        high = e.op(f"select {self.b} {take}, {self.f} {value}, {self.f} {best}")
        where = e.op(f"select {self.b} {take}, {self.i} {index}, {self.i} {old}")
        e.store(self.f, high, self.best)
        e.store(self.i, where, self.where)


_FEW = 1 << 17      # elements of windows below which a worker is not woken


@functools.cache
@llvm.generating
def _entry(kind: str) -> int:
    key = ("max_pool", kind, str(machine()))
    return llvm.compile_spec(key, lambda: _Writer(kind, machine()).text(), name="max_pool").address(
        "pool"
    )


def supported(x: Array, dims: int) -> bool:
    """Whether the generated kernel, loaded then, computes this: float32 or float64, one to three
    dimensions."""
    if x.dtype.char not in "fd" or not x.dtype.isnative or not 1 <= dims <= 3:
        return False
    if not x.size or math.prod(x.shape[2:]) >= 1 << 30:
        return False
    return _entry(FLOATS[x.dtype.name]) is not None


def max_pool(
    x: Array, sizes: Sequence[Sequence[int]], out: Array, index: Array, first: Array
) -> None:
    """Fill `out` and `index`; `sizes` are kernel, stride, padding, dilation and output extent.

    `first` is the flat index of the first element of each window, the answer where all are -inf.
    """
    x = np.ascontiguousarray(x)
    start = np.ascontiguousarray(first, np.int32)
    kernel, stride, padding, dilation, extent = sizes
    rows = [
        [*[fill] * (3 - len(values)), *values]
        for values, fill in (
            (x.shape[2:], 1), (extent, 1), (kernel, 1), (stride, 1), (padding, 0), (dilation, 1),
        )
    ]  # fmt: skip
    shape = [rows[kind][axis] for axis in range(3) for kind in range(6)]
    values: list[Any] = [address(x), address(out), address(index), address(start)]
    block = _ArgBlock(*values, math.prod(x.shape[2:]), math.prod(extent), *shape)
    planes = x.shape[0] * x.shape[1]
    entry = _entry(FLOATS[x.dtype.name])
    assert entry is not None                # `supported` has been asked
    few = planes * math.prod(extent) * math.prod(kernel) < _FEW
    (threads.alone if few else threads.parallel)(entry, ctypes.addressof(block), planes)
