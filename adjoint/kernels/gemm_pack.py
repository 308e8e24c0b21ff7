"""Panels of a matrix product: how a block of an operand is copied to the order that the
micro-kernels read, from whichever way it lies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .gemm_emit import BYTES, Emit, lane_mask, load_wide, shaped, transpose_block, transposed

AHEAD = 256     # bytes: rows are so many, and end so soon, that the CPU does not foresee them
HEAD = ("ptr noalias %dst, ptr noalias %p, i64 %across, i64 %along, i64 %valid, i64 %depth, "
        "i64 %width")


class Pack:
    """Writes `void name(dst, p, i64 across, i64 along, i64 valid, i64 depth, i64 width)`.

    Element (i, k) of a panel is read at `p + i * across + k * along` (bytes) and written to `dst[k
    * width + i]`. For `i >= valid` anything finite-or-not may be written: what is computed from it
    is never stored. Vectors may be written one vector past the end of the panel, and where a panel
    is no multiple of the vector they reach into its next row: hence rows in ascending order, and
    the last group of lanes first.
    """

    def __init__(self, e: Emit, src: str, acc: str, lanes: int, wide: int, masks: bool,
                 name: str = "pack") -> None:
        self.e, self.src, self.acc, self.lanes, self.wide, self.masks = (
            e,
            src,
            acc,
            lanes,
            wide,
            masks,
        )
        self.name = name
        # masks take the last rows of a panel through the same blocks
        self.whole = masks and src == acc

    def write(self) -> None:
        """The whole function: three ways to read, by which stride is one element."""
        e, size = self.e, BYTES[self.src]
        e.declare("void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        with e.function(f"internal void @{self.name}({HEAD})", "#1"):
            beside = e.cmp("eq", "%across", size)
            full = e.both(
                e.both(beside, e.cmp("eq", "%valid", "%width")), e.cmp("eq", "%width", self.wide)
            )
            least = self.lanes // 2 if self.whole else self.lanes
            deep = e.both(e.cmp("eq", "%along", size), e.cmp("sge", "%depth", least))
            rest = (
                (lambda: e.cond(beside, self.copy_masked, lambda: self.scalar("0")))
                if self.masks
                else (lambda: self.scalar("0"))
            )
            e.cond(full, self.copy, lambda: e.cond(deep, self.turn, rest))
            e.raw("  ret void")

    def scalar(self, start: str) -> None:
        """Element by element, from row `start` on."""
        e = self.e
        with e.loop(start, "%depth") as k:
            source = e.at("%p", e.mul(k, "%along"))
            target = e.at("%dst", e.mul(k, "%width"), self.acc)
            with e.loop(0, "%width") as i:
                at = e.mul(e.min(i, e.sub("%valid", 1)), "%across")
                value = load_wide(e, self.src, self.acc, 1, e.at(source, at))
                e.store(self.acc, value, e.at(target, i, self.acc), BYTES[self.acc])

    def copy(self) -> None:
        """Whole rows of a full panel of B."""
        e, n = self.e, self.lanes
        with e.loop(0, "%depth") as k:
            source = e.at("%p", e.mul(k, "%along"))
            target = e.at("%dst", e.mul(k, "%width"), self.acc)
            below = e.at(source, e.mul("%along", 8))
            for first in range(0, self.wide * BYTES[self.src], 64):
                self.fetch(e.at(below, first))
            for first in range(0, self.wide, n):
                value = load_wide(e, self.src, self.acc, n, e.at(source, first, self.src))
                e.store(shaped(self.acc, n), value, e.at(target, first, self.acc), BYTES[self.acc])

    def groups(self) -> Any:
        """Loop over groups of lanes, last first; yields the first element of each."""
        e = self.e
        count = e.div(e.add("%width", self.lanes - 1), self.lanes)
        return e.loop(0, count), lambda i: e.mul(e.sub(e.sub(count, 1), i), self.lanes)

    def copy_masked(self) -> None:
        """Rows of a narrow or partial panel."""
        e, n = self.e, self.lanes
        groups, first_of = self.groups()
        with groups as group:
            first = first_of(group)
            mask = lane_mask(e, n, e.sub("%valid", first))
            with e.loop(0, "%depth") as k:
                source = e.at(e.at("%p", e.mul(k, "%along")), first, self.src)
                target = e.at("%dst", e.add(e.mul(k, "%width"), first), self.acc)
                value = load_wide(e, self.src, self.acc, n, source, mask)
                e.store(shaped(self.acc, n), value, target, BYTES[self.acc])

    def fetch(self, where: str) -> None:
        """Ask for the line of memory at an address."""
        self.e.run("llvm.prefetch.p0", f"ptr {where}", "i32 0", "i32 3", "i32 1")

    def ahead(self, k: str, first: str) -> str:
        """How far from row and column of a block lies what is fetched meanwhile: further on in the
        rows, and from their ends on the beginnings of those that are read next: of the group before
        this one, or of the last group of the next panel."""
        e = self.e
        end = e.mul("%depth", BYTES[self.src])
        beyond = e.cmp("sge", e.add(e.mul(k, BYTES[self.src]), AHEAD), end)
        groups = e.div(e.add("%width", self.lanes - 1), self.lanes)
        next_panel = e.add("%width", e.mul(e.sub(groups, 1), self.lanes))
        rows = e.op(f"select i1 {e.cmp('eq', first, 0)}, i64 {next_panel}, i64 {-self.lanes}")
        jump = e.sub(e.add(e.mul(rows, "%across"), AHEAD), end)
        return e.op(f"select i1 {beyond}, i64 {jump}, i64 {AHEAD}")

    def turn(self) -> None:
        """Blocks of lanes x lanes, transposed on the way."""
        e, n = self.e, self.lanes
        size = 16 // BYTES[self.acc]
        blocks = "%depth" if self.whole else e.mul(e.div("%depth", n), n)
        last = e.sub("%valid", 1)
        groups, first_of = self.groups()
        with groups as group:
            first = first_of(group)
            needed = e.div(e.add(e.sub("%width", first), size - 1), size)
            needed = e.min(needed, n // size)
            with e.loop(self.turn_whole(first, last), blocks, n) as k:
                target = e.at("%dst", e.add(e.mul(k, "%width"), first), self.acc)
                left = e.sub("%depth", k)
                mask = lane_mask(e, n, left) if self.whole else None
                shift = self.ahead(k, first)

                def row(i: str, k: str = k, first: str = first, mask: str | None = mask,
                        shift: str = shift) -> str:
                    r = e.at("%p", e.mul(e.min(e.add(first, i), last), "%across"))
                    self.fetch(e.at(e.at(r, k, self.src), shift))
                    return load_wide(e, self.src, self.acc, n, e.at(r, k, self.src), mask)

                def put(j: str, value: str, target: str = target) -> None:
                    where = e.at(target, e.mul("%width", j), self.acc)
                    e.store(shaped(self.acc, n), value, where, BYTES[self.acc])

                columns = e.min(n, left) if self.whole else n
                free = None
                if self.wide % n == 0:        # columns of a whole panel of B do not overlap
                    free = e.both(e.cmp("eq", "%width", self.wide), e.cmp("sge", left, n))
                transpose_block(e, self.acc, n, row, put, needed, columns, free)
        if not self.whole:
            self.scalar(blocks)

    def turn_whole(self, first: str, last: str) -> str:
        """The whole blocks of the group from row `first` on, in registers where they are few: 0.2
        ns an element with AVX2, and 1 by way of the stack. Returns where those end."""
        e, n = self.e, self.lanes
        if n > 8:
            return "0"
        stop = e.mul(e.div("%depth", n), n)
        starts = [e.at("%p", e.mul(e.min(e.add(first, i), last), "%across")) for i in range(n)]
        with e.loop(0, stop, n) as k:
            shift = self.ahead(k, first)
            rows = [e.at(start, k, self.src) for start in starts]
            for row in rows:
                self.fetch(e.at(row, shift))
            block = [load_wide(e, self.src, self.acc, n, row) for row in rows]
            target = e.at("%dst", e.add(e.mul(k, "%width"), first), self.acc)
            for j, column in enumerate(transposed(e, self.acc, block)):
                where = e.at(target, e.mul("%width", j), self.acc)
                e.store(shaped(self.acc, n), column, where, BYTES[self.acc])
        return stop


class PackPairs:
    """Writes `pack` for bfloat16 operands that are multiplied two by two: as `Pack`, but word
    (i, k) of a panel holds elements (i, 2 k) and (i, 2 k + 1). Where `depth` is odd the last
    element has a zero beside it.
    """

    def __init__(self, e: Emit, lanes: int, wide: int) -> None:
        self.e, self.lanes, self.wide = e, lanes, wide

    def write(self) -> None:
        """The whole function. What is contiguous along K is words already."""
        e = self.e
        Pack(e, "float", "float", self.lanes, self.wide, True, "pack_words").write()
        with e.function(f"internal void @pack({HEAD})", "#1"):
            pairs, odd = e.div("%depth", 2), e.op("trunc i64 %depth to i1")
            words = ["ptr %dst", "ptr %p", "i64 %across", "i64 4", "i64 %valid", f"i64 {pairs}",
                     "i64 %width"]

            def along() -> None:
                e.run("pack_words", *words)
                e.cond(odd, lambda: self.scalar(pairs, True))

            def apart() -> None:
                self.scalar("0", False, pairs)
                e.cond(odd, lambda: self.scalar(pairs, True))

            beside = e.cmp("eq", "%across", 2)
            e.cond(e.cmp("eq", "%along", 2), along,
                   lambda: e.cond(beside, lambda: self.rows(pairs, odd), apart))
            e.raw("  ret void")

    def scalar(self, first: str, single: bool, stop: str = "") -> None:
        """Element by element, the pairs from `first` to `stop`, or (`single`) half a pair."""
        e = self.e
        with e.loop(first, stop or e.add(first, 1)) as k:
            source = e.at("%p", e.mul(e.mul(k, 2), "%along"))
            target = e.at("%dst", e.mul(k, "%width"), "float")
            with e.loop(0, "%width") as i:
                at = e.at(source, e.mul(e.min(i, e.sub("%valid", 1)), "%across"))
                pair = [e.load("i16", at, 2)]
                pair.append("0" if single else e.load("i16", e.at(at, "%along"), 2))
                e.store("i32", self.joined(1, *pair), e.at(target, i, "float"), 4)

    def joined(self, lanes: int, low: str, high: str) -> str:
        """Words of the elements `low` and `high`."""
        e, half, word = self.e, shaped("i16", lanes), shaped("i32", lanes)
        first = e.op(f"zext {half} {low} to {word}")
        if high in ("0", "zeroinitializer"):
            return first
        second = e.op(f"zext {half} {high} to {word}")
        shift = "16" if lanes == 1 else "<" + ", ".join(["i32 16"] * lanes) + ">"
        return e.op(f"or {word} {first}, {e.op(f'shl {word} {second}, {shift}')}")

    def rows(self, pairs: str, odd: str) -> None:
        """Two rows at a time, woven; the last group of lanes first."""
        e, n = self.e, self.lanes
        count = e.div(e.add("%width", n - 1), n)
        with e.loop(0, count) as group:
            first = e.mul(e.sub(e.sub(count, 1), group), n)
            mask = lane_mask(e, n, e.sub("%valid", first))
            column = e.at("%p", first, "i16")

            def weave(k: str, single: bool, column: str = column, first: str = first,
                      mask: str = mask) -> None:
                source = e.at(column, e.mul(e.mul(k, 2), "%along"))
                low = load_wide(e, "i16", "i16", n, source, mask)
                high = "zeroinitializer" if single else load_wide(
                    e, "i16", "i16", n, e.at(source, "%along"), mask)
                target = e.at("%dst", e.add(e.mul(k, "%width"), first), "float")
                e.store(shaped("i32", n), self.joined(n, low, high), target, 4)

            with e.loop(0, pairs) as k:
                weave(k, False)

            def last(weave: Callable[[str, bool], None] = weave) -> None:
                weave(pairs, True)

            e.cond(odd, last)
