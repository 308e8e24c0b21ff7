"""Generates convolution as LLVM IR: a matrix product whose right operand is gathered while it is
packed.

The windows ("im2col") never exist as a whole: a block of them, as large as the L2 cache holds, is
packed straight from the image. An image that needs padding is first copied, padded, into the
thread's workspace; for the gradient of the weight it is always copied, channels last, so that the
columns of a panel (channels of a tap) are adjacent and nothing has to be transposed nine times. A
table says for each vector of columns how to load it: one load where they are adjacent in the image,
two to four masked loads where they lie in pieces, else a gather.

    forward: out[image] (O, P)  = weight (O, C K) . windows (C K, P)
    weight:  dW         (O, K C) = sum over images of ct (O, P) . windows^T (P, K C)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .gemm_emit import BYTES, Emit, Machine, Part, lane_mask, load_wide, short, store_masked
from .gemm_ir import ARGS as GEMM_ARGS
from .gemm_ir import Driver, GemmSpec, Tile, product_parts, tile_for, write_library

# Beyond the product's arguments: tables, the geometry of an image (strides of the source in bytes,
# pitches of the padded copy in elements), and how images are grouped into partial sums.
EXTRA = (
    "koff poff vectors padded inner chans deep high wide chan_s deep_s high_s wide_s "
    "chan_p deep_p high_p image_at image_count groups images per_part c_part c_group keep block "
    "lines stride"
).split()
ARGS = [*GEMM_ARGS, *EXTRA]
INDEX = {name: i for i, name in enumerate(ARGS)}
ENTRY = 48  # bytes of a table entry: kind, four offsets, four masks (int32 each)


class Windows:
    """Writes the functions that load and pack windows."""

    def __init__(self, e: Emit, tile: Tile, kind: str, machine: Machine) -> None:
        self.e, self.tile, self.kind, self.machine = e, tile, kind, machine
        self.n, self.size = tile.lanes, BYTES[kind]
        self.vec = f"<{self.n} x {kind}>"

    def entry(self, table: str, index: int) -> str:
        """One int32 of a table entry."""
        return self.e.load("i32", self.e.at(table, index, "i32"), 4)

    def base(self, source: str, koff: str) -> str:
        """Where the tap at `koff` starts in the image."""
        return self.e.at(source, self.e.load("i64", koff, 8), self.kind)

    def segments(self, table: str, count: int) -> list[tuple[str, str]]:
        """(offset, mask) of the first `count` segments."""
        e, found = self.e, []
        for i in range(count):
            offset = e.op(f"sext i32 {self.entry(table, 1 + i)} to i64")
            bits = e.op(f"trunc i32 {self.entry(table, 5 + i)} to i{self.n}")
            found.append((offset, e.op(f"bitcast i{self.n} {bits} to <{self.n} x i1>")))
        return found

    def joined(self, base: str, segments: list[tuple[str, str]]) -> str:
        """Masked loads, one over the other."""
        e, value = self.e, f"{self.vec} zeroinitializer"
        name = f"llvm.masked.load.v{self.n}{short(self.kind)}.p0"
        e.declare(f"{self.vec} @{name}(ptr, i32, <{self.n} x i1>, {self.vec})")
        for offset, mask in segments:
            where = e.at(base, offset, self.kind)
            got = e.call(
                self.vec, name, f"ptr {where}", f"i32 {self.size}", f"<{self.n} x i1> {mask}", value
            )
            value = f"{self.vec} {got}"
        return value.rsplit(" ", 1)[1]

    def gathered(self, base: str, index: str) -> str:
        """Lane by lane, through a vector of offsets."""
        e, n = self.e, self.n
        name = f"llvm.masked.gather.v{n}{short(self.kind)}.v{n}p0"
        e.declare(f"{self.vec} @{name}(<{n} x ptr>, i32, <{n} x i1>, {self.vec})")
        where = e.op(f"getelementptr {self.kind}, ptr {base}, <{n} x i32> {index}")
        on = "<" + ", ".join("i1 true" for _ in range(n)) + ">"
        return e.call(
            self.vec,
            name,
            f"<{n} x ptr> {where}",
            f"i32 {self.size}",
            f"<{n} x i1> {on}",
            f"{self.vec} poison",
        )

    def ways(self, table: str, poff: str, body: Any) -> None:
        """Call `body(load)` in a branch for each way to load a vector; `load(base)` loads one."""
        e = self.e
        kind = e.op(f"sext i32 {self.entry(table, 0)} to i64")

        def single() -> None:
            offset = e.op(f"sext i32 {self.entry(table, 1)} to i64")
            body(lambda base: e.load(self.vec, e.at(base, offset, self.kind), self.size))

        def pieces(count: int) -> None:
            found = self.segments(table, count)
            body(lambda base: self.joined(base, found))

        def lanes() -> None:
            index = e.load(f"<{self.n} x i32>", poff, 4)
            body(lambda base: self.gathered(base, index))

        def rest() -> None:
            if not self.machine.masks:
                lanes()
                return
            e.cond(
                e.cmp("eq", kind, 2),
                lambda: pieces(2),
                lambda: e.cond(
                    e.cmp("eq", kind, 3),
                    lambda: pieces(3),
                    lambda: e.cond(e.cmp("eq", kind, 4), lambda: pieces(4), lanes),
                ),
            )

        e.cond(e.cmp("eq", kind, 1), single, rest)

    def pack(self) -> None:
        """`void windows(dst, image, koff, table, poff, i64 depth)`: a panel of windows.

        Row k starts `koff[k]` elements into the image; the table places the vectors of columns.
        """
        e, n = self.e, self.n
        head = "ptr noalias %dst, ptr noalias %image, ptr %koff, ptr %table, ptr %poff, i64 %depth"
        with e.function(f"internal void @windows({head})", "#1"):
            with e.loop(0, self.tile.nv) as v:
                table, poff = e.at("%table", e.mul(v, ENTRY)), e.at("%poff", e.mul(v, n), "i32")
                column = e.at("%dst", e.mul(v, n), self.kind)

                def body(load: Any, column: str = column) -> None:
                    with e.loop(0, "%depth") as k:
                        base = self.base("%image", e.at("%koff", k, "i64"))
                        where = e.at(column, e.mul(k, self.tile.nr), self.kind)
                        e.store(self.vec, load(base), where, self.size)

                self.ways(table, poff, body)
            e.raw("  ret void")

    def fetch(self) -> None:
        """`void fetch(p, i64 lines)`: prefetch lines of 64 bytes."""
        e = self.e
        with e.function("internal void @fetch(ptr %p, i64 %lines)", "#1"):
            with e.loop(0, "%lines") as i:
                where = e.at("%p", e.mul(i, 64))
                e.run("llvm.prefetch.p0", f"ptr {where}", "i32 0", "i32 2", "i32 1")
            e.raw("  ret void")

    def copy_row(self) -> None:
        """`void copy_row(dst, src, i64 count, i64 stride)`: a row of a channel; stride in bytes."""
        e, n = self.e, self.n
        with e.function(
            "internal void @copy_row(ptr %dst, ptr %src, i64 %count, i64 %stride)", "#1"
        ):

            def plain() -> None:
                whole = e.mul(e.div("%count", n), n)
                with e.loop(0, whole, n) as i:
                    value = e.load(self.vec, e.at("%src", i, self.kind), self.size)
                    e.store(self.vec, value, e.at("%dst", i, self.kind), self.size)
                if self.machine.masks:
                    mask = lane_mask(e, n, e.sub("%count", whole))
                    source = e.at("%src", whole, self.kind)
                    value = load_wide(e, self.kind, self.kind, n, source, mask)
                    store_masked(e, self.kind, n, value, e.at("%dst", whole, self.kind), mask)
                else:
                    slow(whole)

            def slow(start: str = "0") -> None:
                with e.loop(start, "%count") as i:
                    value = e.load(self.kind, e.at("%src", e.mul(i, "%stride")))
                    e.store(self.kind, value, e.at("%dst", i, self.kind))

            e.cond(e.cmp("eq", "%stride", self.size), plain, slow)
            e.raw("  ret void")


class ConvDriver(Driver):
    """Tasks of a convolution; see `Driver` for what is shared with the plain product."""

    def write(self) -> None:
        """The whole driver, and below it what deserves optimised code."""
        e, lanes, kind = self.e, self.tile.lanes, self.spec.a
        with e.function("internal void @clear(ptr %p, i64 %count)", "#1"):
            with e.loop(0, "%count", lanes) as i:
                e.store(f"<{lanes} x {kind}>", "zeroinitializer", e.at("%p", i, kind), BYTES[kind])
            e.raw("  ret void")
        with e.function("internal void @copy_image(ptr %args, ptr %dst, ptr %src)", "#1"):
            self.load()
            self.copy("%dst", "%src")
            e.raw("  ret void")
        super().write()

    def prepare(self) -> None:
        """Place the padded image after the panels and clear it: its border stays zero."""
        e, v = self.e, self.v
        self.image = e.at(self.bp, v["image_at"])
        self.held, self.following = e.slot("i64", "-1"), e.slot("ptr", "null")
        e.run("clear", f"ptr {self.image}", f"i64 {v['image_count']}")

    def source(self, image: str, origin: str) -> str:
        """The image to read windows from: in place, or its padded copy, made if it is not there
        yet.
        """
        e, v = self.e, self.v
        padded = e.cmp("ne", v["padded"], 0)
        fresh = e.cmp("ne", e.load("i64", self.held), image)

        inner = e.at(self.image, v["inner"], self.spec.a)
        e.cond(
            e.both(padded, fresh),
            lambda: e.run("copy_image", "ptr %args", f"ptr {inner}", f"ptr {origin}"),
        )
        e.store("i64", image, self.held)
        return e.op(f"select i1 {padded}, ptr {self.image}, ptr {origin}")

    def copy(self, dst: str, src: str) -> None:
        """Copy an image, each channel to its own plane."""
        e, v = self.e, self.v
        with e.loop(0, v["chans"]) as c:
            to = e.at(dst, e.mul(c, v["chan_p"]), self.spec.a)
            self.rows_of_image(to, e.at(src, e.mul(c, v["chan_s"])), self.copy_row)

    def rows_of_image(self, dst: str, src: str, copy: Callable[[str, str], None]) -> None:
        """Call `copy(to, from)` for every row."""
        e, v = self.e, self.v
        with e.loop(0, v["deep"]) as d, e.loop(0, v["high"]) as h:
            for i, axis in ((d, "deep"), (h, "high")):
                src = e.at(src, e.mul(i, v[axis + "_s"]))
                dst = e.at(dst, e.mul(i, v[axis + "_p"]), self.spec.a)
            copy(dst, src)

    def copy_row(self, dst: str, src: str) -> None:
        """Copy one row of one channel."""
        v = self.v
        self.e.run(
            "copy_row", f"ptr {dst}", f"ptr {src}", f"i64 {v['wide']}", f"i64 {v['wide_s']}"
        )

    def expect(self, image: str) -> None:
        """Note which image follows: `panels` fetches it, a little at a time.

        The images of a batch lie too far apart for the processor to foresee.
        """
        e, v = self.e, self.v
        last = e.sub(e.mul(v["images"], v["groups"]), 1)
        following = e.min(e.add(image, v["stride"]), last)
        e.store("ptr", e.at(v["b"], self.shifts(following)[1]), self.following)

    def fetch(self) -> None:
        """Ask for the next lines of the image that follows."""
        e = self.e
        at = e.load("ptr", self.following)
        e.run("fetch", f"ptr {at}", f"i64 {self.v['lines']}")
        e.store("ptr", e.at(at, e.mul(self.v["lines"], 64)), self.following)

    def shifts(self, image: str) -> list[str]:
        """Byte offsets of the left operand, the image and the output of one image and group."""
        e = self.e
        table = e.at(self.v["offsets"], e.mul(image, 32))
        return [e.load("i64", e.at(table, 8 * i)) for i in range(3)]

    def panels(self, image: str, j0: str, k0: str, cols: str, kc: str) -> list[str]:
        """Pack a block of windows; returns the block's description for `rows`."""
        e, v, nr = self.e, self.v, self.tile.nr
        with e.loop(0, cols, nr) as j:
            column = e.add(j0, j)
            at = e.div(column, self.tile.lanes)
            e.run(
                "windows",
                f"ptr {e.at(self.bp, e.mul(j, kc), self.spec.acc)}",
                f"ptr {image}",
                f"ptr {e.at(v['koff'], k0, 'i64')}",
                f"ptr {e.at(v['vectors'], e.mul(at, ENTRY))}",
                f"ptr {e.at(v['poff'], column, 'i32')}",
                f"i64 {kc}",
            )
            self.fetch()
        size = BYTES[self.spec.acc]
        full = e.mul(e.div(cols, nr), nr)
        edge = e.at(self.bp, e.mul(full, kc), self.spec.acc)
        return [f"ptr {self.bp}", f"i64 {e.mul(kc, size)}", f"i64 {nr * size}", f"ptr {edge}"]


class ForwardDriver(ConvDriver):
    """`C[image] = A . windows(image)`, with a bias per row.

    With `keep`, A is the same for all tasks: a thread packs it once, in its first task.
    """

    def prepare(self) -> None:
        """Note that A is not packed yet."""
        super().prepare()
        self.ready = self.e.slot("i64", "0")
        self.start, self.depth = self.e.slot("i64", "0"), self.e.slot("i64", "0")

    def panel_of_a(self, i: str) -> str:
        """One place for all panels, or a place for each, in the order in which they are packed.

        (A panel's packing may spill into what follows it.)
        """
        e, v, mr = self.e, self.v, self.tile.mr
        padded = e.mul(e.div(e.add(v["m"], mr - 1), mr), mr)
        before = e.add(
            e.mul(e.load("i64", self.start), padded), e.mul(i, e.load("i64", self.depth))
        )
        return e.at(self.ap, e.mul(before, v["keep"]), self.spec.acc)

    def task(self, task: str, last_block: str) -> None:
        """Rows and positions of one image, as many positions at a time as stay in the cache."""
        e, v = self.e, self.v
        mi, block = e.rem(task, v["tasks_m"]), e.div(task, v["tasks_m"])
        ni, image = e.rem(block, v["tasks_n"]), e.div(block, v["tasks_n"])
        i0, j0 = e.mul(mi, v["mb"]), e.mul(ni, v["nb"])
        rows = e.min(v["mb"], e.sub(v["m"], i0))
        stop = e.min(v["n"], e.add(j0, v["nb"]))
        shift = self.shifts(image)
        source = self.source(image, e.at(v["b"], shift[1]))
        self.expect(image)
        a, c = e.at(v["a"], shift[0]), e.at(v["c"], shift[2])
        with e.loop(j0, stop, v["block"]) as j:
            self.block(source, a, c, i0, rows, j, e.min(v["block"], e.sub(stop, j)))

    def block(
        self, source: str, a: str, c: str, i0: str, rows: str, j0: str, cols: str
    ) -> None:
        """`cols` positions from `j0` on."""
        e, v, spec = self.e, self.v, self.spec
        size = BYTES[spec.a]
        a_row, a_col, c_row = (e.mul(v[x], size) for x in ("a_row", "a_col", "c_row"))
        a = e.at(a, e.mul(i0, a_row))
        c = e.at(c, e.add(e.mul(i0, c_row), e.mul(j0, size)))
        bias = e.at(v["bias"], i0, spec.acc) if spec.bias else v["bias"]
        kept = e.cmp("ne", e.mul(v["keep"], e.load("i64", self.ready)), 0)
        self.packing = e.op(f"xor i1 {kept}, true")
        e.store("i64", "1", self.ready)
        with e.loop(0, v["k"], v["kc"]) as k0:
            kc = e.min(v["kc"], e.sub(v["k"], k0))
            e.store("i64", k0, self.start)
            e.store("i64", kc, self.depth)
            described = self.panels(source, j0, k0, cols, kc)
            last = e.cmp("sge", e.add(k0, kc), v["k"])
            flags = [f"i64 {cols}", f"i64 {kc}", f"i1 {e.cmp('sgt', k0, 0)}",
                     *self.closing(last, "false")]
            ends = [f"ptr {bias}", "ptr null", "i64 0"]
            self.rows(
                described, e.at(a, e.mul(k0, a_col)), a_row, a_col, c, c_row, rows, flags, ends
            )


class WeightDriver(ConvDriver):
    """`C[part] = sum over the part's images of A[image] . windows(image)^T`."""

    def copy(self, dst: str, src: str) -> None:
        """Copy an image, channels last.

        Packing may write a vector past the end, where the border or the next row begins: rows are
        copied in ascending order, and what lies there is cleared again.
        """
        e, v, kind, lanes = self.e, self.v, self.spec.a, self.tile.lanes

        def turn_row(dst: str, src: str) -> None:
            e.run(
                "pack", f"ptr {dst}", f"ptr {src}", f"i64 {v['chan_s']}", f"i64 {v['wide_s']}",
                f"i64 {v['chans']}", f"i64 {v['wide']}", f"i64 {v['chans']}",
            )  # fmt: skip
            end = e.at(dst, e.mul(v["wide"], v["chans"]), kind)
            e.store(f"<{lanes} x {kind}>", "zeroinitializer", end, BYTES[kind])

        e.cond(
            e.cmp("eq", v["chans"], 1),
            lambda: self.rows_of_image(dst, src, self.copy_row),
            lambda: self.rows_of_image(dst, src, turn_row),
        )

    def task(self, task: str, last_block: str) -> None:
        """One part, group and block of taps."""
        e, v, size = self.e, self.v, BYTES[self.spec.a]
        ni, rest = e.rem(task, v["tasks_n"]), e.div(task, v["tasks_n"])
        group, part = e.rem(rest, v["groups"]), e.div(rest, v["groups"])
        j0 = e.mul(ni, v["nb"])
        cols = e.min(v["nb"], e.sub(v["n"], j0))
        a_row, a_col, c_row = (e.mul(v[x], size) for x in ("a_row", "a_col", "c_row"))
        c = e.at(v["c"], e.add(e.mul(part, v["c_part"]), e.mul(group, v["c_group"])))
        c = e.at(c, j0, self.spec.c)
        first = e.mul(part, v["per_part"])
        stop = e.min(v["images"], e.add(first, v["per_part"]))
        with e.loop(first, stop) as number:
            image = e.add(e.mul(number, v["groups"]), group)
            shift = self.shifts(image)
            source = self.source(image, e.at(v["b"], shift[1]))
            self.expect(image)
            a = e.at(v["a"], shift[0])
            with e.loop(0, v["k"], v["kc"]) as k0:
                kc = e.min(v["kc"], e.sub(v["k"], k0))
                described = self.panels(source, j0, k0, cols, kc)
                begun = e.op(f"or i1 {e.cmp('sgt', number, first)}, {e.cmp('sgt', k0, 0)}")
                flags = [f"i64 {cols}", f"i64 {kc}", f"i1 {begun}",
                         *self.closing("false", "false")]
                ends = ["ptr null", "ptr null", "i64 0"]
                at = e.at(a, e.mul(k0, a_col))
                self.rows(described, at, a_row, a_col, c, c_row, v["m"], flags, ends)


def _windows_part(spec: GemmSpec, machine: Machine) -> Part:
    """What reads images: the same for both directions."""
    def write(e: Emit) -> None:
        windows = Windows(e, tile_for(machine, spec.acc), spec.a, machine)
        windows.fetch()
        windows.copy_row()
        windows.pack()

    return Part(("windows", spec.a, spec.acc), write)


def conv_parts(spec: GemmSpec, machine: Machine) -> tuple[Part, ...]:
    """What a convolution is linked to."""
    return (*product_parts(spec, machine), _windows_part(spec, machine))


def conv_module(spec: GemmSpec, weight: bool, machine: Machine) -> str:
    """IR text of a module with one symbol, `gemm(args, lo, hi)`."""
    e, tile = Emit(), tile_for(machine, spec.acc)
    write_library(e, spec, tile, machine)
    e.use([_windows_part(spec, machine)])
    (WeightDriver if weight else ForwardDriver)(e, spec, tile, ARGS).write()
    return e.text(machine)
