"""Generates the blocked matrix product as LLVM IR, for a vector width and a combination of types.

The scheme is that of BLIS (Van Zee and van de Geijn 2015): a micro-kernel keeps an `mr x nr` tile
of C in registers and adds rank-1 updates from two packed panels. What differs: B is packed in
blocks of `kc x nb` that stay in a core's L2 cache, A is packed one `mr x kc` panel at a time into
L1, just before the panel is swept over the block, so that no packed copy of A ever exists; tasks
are blocks of C, taken by the threads from a shared counter.

    gemm(args, lo, hi)                 one thread's share
      for each task (image, columns, rows):
        for each block of K, for each `sweep` of its columns: pack_b, in panels of nr columns
          for each panel of rows: strip: pack A, then micro_<height> over the panels of B

Where a sweep is one panel of B, that is what stays in L1, and the panels of A are kept from the
first sweep on and stream from L2: with AVX2 a step of a tile reads fewer bytes of A than of B.

Strides of A and B are arbitrary, so transposed and sliced operands are packed from where they are.

Where the CPU multiplies pairs of bfloat16 and adds both products to a float32 (AVX512-BF16), panels
of bfloat16 hold pairs of neighbours along K in place of float32 numbers, and K counts pairs: half
of the instructions and half of the memory of the same product in float32. That instruction takes
subnormal numbers for zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .gemm_emit import (
    BYTES,
    Emit,
    Machine,
    Part,
    lane_mask,
    load_wide,
    narrow,
    shaped,
    short,
    store_masked,
)
from .gemm_pack import Pack, PackPairs

# Slots of the argument block, 8 bytes each; strides are in elements.
ARGS = (
    "a b c a_row a_col b_row b_col c_row m n k mb nb kc sweep kept in_place tasks_m tasks_n tasks "
    "accumulate bias residual residual_row offsets work work_bytes b_bytes slot next"
).split()
INDEX = {name: i for i, name in enumerate(ARGS)}
POINTERS = frozenset(
    "a b c bias residual offsets work koff poff vectors start cell operands".split())


@dataclass(frozen=True, slots=True)
class GemmSpec:
    """One generated module: types (LLVM names) of both operands, of C and of the sums, and what is
    done to C before it is stored.

    `bias` is "", "col" (one per column) or "row"; `activation` is the IR text of an
    `alwaysinline` function `@activation(<lanes x acc>)`, or ""; `pairs`: bfloat16 operands are
    multiplied two by two. Where they come as words of two already, `a` is "float".
    """

    a: str
    c: str
    acc: str
    bias: str = ""
    activation: str = ""
    residual: bool = False
    pairs: bool = False

    @property
    def epilogue(self) -> bool:
        """Whether the last block of K does more than store or add."""
        return bool(self.bias or self.activation or self.residual or self.c != self.acc)

    def depth(self, e: Emit, kc: str) -> str:
        """Rows of a packed panel of `kc` elements along K."""
        return e.div(e.add(kc, 1), 2) if self.weaves else kc

    @property
    def weaves(self) -> bool:
        """Whether packing makes words of two numbers."""
        return self.pairs and self.a != self.acc

    @property
    def begins(self) -> bool:
        """Whether the epilogue is a bias per column or a residual alone: sums may begin with it
        instead."""
        types = (self.a, self.acc, self.acc)
        return self in (GemmSpec(*types, "col"), GemmSpec(*types, residual=True))


@dataclass(frozen=True, slots=True)
class Tile:
    """Register blocking: `mr x (nv * lanes)`, and the heights used for the rows left over."""

    mr: int
    nv: int
    lanes: int

    @property
    def nr(self) -> int:
        """Columns of the tile."""
        return self.nv * self.lanes

    @property
    def heights(self) -> tuple[int, ...]:
        """Panel heights, largest first."""
        return tuple(sorted({self.mr, -(-2 * self.mr // 3), -(-self.mr // 3)}, reverse=True))


_MICROS = {"micro": 2, "narrow": 1}      # vectors in a row of their tile


def tile_for(machine: Machine, acc: str) -> Tile:
    """The tile that fills the vector registers: 32 of them with AVX-512 and NEON, 16 with AVX2."""
    mr = {512: 12, 256: 6}.get(machine.bits, 8 if not machine.masks else 6)
    return Tile(mr, _MICROS["micro"], machine.lanes(acc))


def micro(
    e: Emit, tile: Tile, acc: str, rows: int, name: str, a_row: int, a_step: int,
    adds: bool | None = None, pairs: bool = False,
) -> None:  # fmt: skip
    """`void name(i64 kc, a, b, i64 ldb, c, i64 ldc, i1 add, old, i64 ldo)`: C tile = A panel . B
    panel, plus the tile at `old` if `add`; `adds` is what `add` always is, None if it varies.

    Element (i, k) of A lies at `i * a_row + k * a_step` elements; row k of B at `k * ldb` bytes;
    row i of C at `i * ldc` bytes, of the tile to add at `i * ldo`. `kc` is at least 1.
    """
    size, vec = BYTES[acc], f"<{tile.lanes} x {acc}>"
    e.declare("void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    head = "i64 %kc, ptr noalias %a, ptr noalias %b, i64 %ldb, ptr %c, i64 %ldc, i1 %add, "
    head += "ptr %old, i64 %ldo"
    with e.function(f"internal void @{name}({head})", "#1"):
        for i in range(rows):
            row = e.at("%c", e.mul("%ldc", i))
            for j in range(0, tile.nr * size, 64):
                e.run("llvm.prefetch.p0", f"ptr {e.at(row, j)}", "i32 1", "i32 3", "i32 1")
        sums = _rank_one_updates(e, tile, acc, rows, a_row, a_step, pairs)

        def put(adding: bool) -> None:
            for i in range(rows):
                row = e.at("%c", e.mul("%ldc", i))
                old = e.at("%old", e.mul("%ldo", i))
                for j in range(tile.nv):
                    at, value = j * tile.lanes * size, sums[i][j]
                    if adding:
                        before = e.load(vec, e.at(old, at), size)
                        value = e.op(f"fadd {vec} {before}, {value}")
                    e.store(vec, value, e.at(row, at), size)

        if adds is None:
            e.cond("%add", lambda: put(True), lambda: put(False))
        else:
            put(adds)
        e.raw("  ret void")


def _rank_one_updates(
    e: Emit, tile: Tile, acc: str, rows: int, a_row: int, a_step: int, pairs: bool
) -> list[list[str]]:
    """The loop over `%kc` of a micro-kernel; returns the sums.

    Written with phis, ready for the code generator: no optimisation has to find the registers.
    """
    size, vec = BYTES[acc], f"<{tile.lanes} x {acc}>"
    factor = f"<{2 * tile.lanes} x bfloat>" if pairs else vec
    fma = "llvm.x86.avx512bf16.dpbf16ps.512" if pairs else f"llvm.fma.v{tile.lanes}{short(acc)}"
    e.declare(f"{vec} @{fma}({', '.join([vec] * 3 if not pairs else [vec, factor, factor])})")
    before, loop, end = e.label("before"), e.label("loop"), e.label("end")
    e.place(before)
    e.place(loop)
    k, a, b = e.fresh("k"), e.fresh("a"), e.fresh("b")
    k1, a1, b1 = e.fresh("k"), e.fresh("a"), e.fresh("b")
    olds = [[e.fresh("c") for _ in range(tile.nv)] for _ in range(rows)]
    news = [[e.fresh("d") for _ in range(tile.nv)] for _ in range(rows)]
    for kind, old, start, new in [
        ("i64", k, "0", k1), ("ptr", a, "%a", a1), ("ptr", b, "%b", b1),
        *((vec, old, "zeroinitializer", new)
          for o, n in zip(olds, news, strict=True) for old, new in zip(o, n, strict=True)),
    ]:  # fmt: skip
        e.raw(f"  {old} = phi {kind} [ {start}, %{before} ], [ {new}, %{loop} ]")
    wide = [e.load(vec, e.at(b, j * tile.lanes * size), size) for j in range(tile.nv)]
    if pairs:
        wide = [e.op(f"bitcast {vec} {w} to {factor}") for w in wide]
    for i in range(rows):
        one = e.splat(acc, tile.lanes, e.load(acc, e.at(a, i * a_row * size), size))
        if pairs:
            one = e.op(f"bitcast {vec} {one} to {factor}")
        for j in range(tile.nv):
            args = f"{factor} {one}, {factor} {wide[j]}"
            total = f"{vec} {olds[i][j]}"
            args = f"{total}, {args}" if pairs else f"{args}, {total}"
            e.raw(f"  {news[i][j]} = call {vec} @{fma}({args})")
    e.raw(f"  {k1} = add i64 {k}, 1")
    e.raw(f"  {a1} = getelementptr i8, ptr {a}, i64 {a_step * size}")
    e.raw(f"  {b1} = getelementptr i8, ptr {b}, i64 %ldb")
    e.branch(e.cmp("slt", k1, "%kc"), loop, end)
    e.place(end, jump=False)
    return news


def finish(e: Emit, spec: GemmSpec, tile: Tile) -> None:
    """`void finish(tile, c, i64 ldc, i64 rows, i64 cols, i1 add, i1 last, bias, residual, i64
    ldr)`.

    Moves a tile of accumulators to C: adds the old C if asked, and where `last`, the epilogue.
    """
    head = (
        "ptr noalias %tile, ptr %c, i64 %ldc, i64 %rows, i64 %cols, i1 %add, i1 %last, "
        "ptr %bias, ptr %residual, i64 %ldr"
    )
    with e.function(f"internal void @finish({head})", "#1"):
        whole = e.cmp("eq", "%cols", tile.nr)

        def sweep(masked: bool) -> None:
            with e.loop(0, "%rows") as i:
                for j in range(tile.nv):
                    left = e.sub("%cols", j * tile.lanes)
                    mask = lane_mask(e, tile.lanes, left) if masked else None
                    _finish_vector(e, spec, tile, i, j, mask)

        e.cond(whole, lambda: sweep(False), lambda: sweep(True))
        e.raw("  ret void")


def _finish_vector(e: Emit, spec: GemmSpec, tile: Tile, i: str, j: int, mask: str | None) -> None:
    """One vector of a row of the tile, from the accumulators to C."""
    n, acc, vec = tile.lanes, spec.acc, f"<{tile.lanes} x {spec.acc}>"
    at = e.add(e.mul(i, tile.nr), j * n)
    result = e.slot(vec, e.load(vec, e.at("%tile", at, acc)), 64)
    where = e.at(e.at("%c", e.mul(i, "%ldc")), j * n, spec.c)

    def plus(value: str) -> None:
        e.store(vec, e.op(f"fadd {vec} {e.load(vec, result)}, {value}"), result)

    e.cond("%add", lambda: plus(load_wide(e, spec.c, acc, n, where, mask)))

    def tail() -> None:
        if spec.bias == "col":
            plus(load_wide(e, acc, acc, n, e.at("%bias", j * n, acc), mask))
        elif spec.bias == "row":
            plus(e.splat(acc, n, e.load(acc, e.at("%bias", i, acc))))
        if spec.activation:
            e.store(vec, e.call(vec, "activation", f"{vec} {e.load(vec, result)}"), result)
        if spec.residual:
            row = e.at("%residual", e.mul(i, "%ldr"))
            plus(load_wide(e, spec.c, acc, n, e.at(row, j * n, spec.c), mask))

    if spec.bias or spec.activation or spec.residual:
        e.cond("%last", tail)
    value = narrow(e, spec.c, acc, n, e.load(vec, result))
    if mask is None:
        e.store(shaped(spec.c, n), value, where, BYTES[spec.c])
    else:
        store_masked(e, spec.c, n, value, where, mask)


def strip(e: Emit, spec: GemmSpec, tile: Tile) -> None:
    """`void strip(height, micro, narrow, ...)`: packs a panel of A, if asked, and sweeps it over a
    block of B with the micro-kernel of that height, `narrow` where one vector holds what is left.

    Panel j of the block lies at `bp + j * panel`, its rows `ldb` bytes apart; a last panel that is
    not full lies packed at `edge`.
    """
    size = BYTES[spec.acc]
    head = (
        "i64 %height, ptr %micro, ptr %narrow, "
        "ptr %ap, i1 %packing, ptr %bp, i64 %panel, i64 %ldb, ptr %edge, ptr noalias %tile, "
        "ptr %a, i64 %across, i64 %along, ptr %c, i64 %ldc, i64 %rows, i64 %cols, i64 %kc, "
        "i1 %add, i1 %last, i1 %late, "
        "ptr %bias, ptr %residual, i64 %ldr"
    )
    with e.function(f"internal void @strip({head})", "#1"):
        source = ["ptr %ap", "ptr %a", "i64 %across", "i64 %along", "i64 %rows", "i64 %kc"]
        e.cond("%packing", lambda: e.run("pack", *source, "i64 %height"))
        depth = spec.depth(e, "%kc")
        whole = e.cmp("eq", "%rows", "%height")
        if spec.epilogue:
            whole = e.both(whole, e.op("xor i1 %late, true"))
        with e.loop(0, "%cols", tile.nr) as j:
            c, left = e.at("%c", j, spec.c), e.sub("%cols", j)
            wide = e.cmp("sge", left, tile.nr)
            inner = e.at("%bp", e.mul(j, "%panel"))
            bp = e.op(f"select i1 {wide}, ptr {inner}, ptr %edge")
            ldb = e.op(f"select i1 {wide}, i64 %ldb, i64 {tile.nr * size}")
            # the micro-kernel writes to C where it can, else to a tile that `finish` moves
            direct = e.both(whole, wide)
            to = e.op(f"select i1 {direct}, ptr {c}, ptr %tile")
            ldt = e.op(f"select i1 {direct}, i64 %ldc, i64 {tile.nr * size}")
            old, ldo, plus = to, ldt, e.both(direct, "%add")
            if spec.begins:       # the first block of K adds the bias or residual, the others C
                first = e.at("%bias" if spec.bias else "%residual", j, spec.acc)
                old = e.op(f"select i1 %add, ptr {c}, ptr {first}")
                rows_apart = "0" if spec.bias else "%ldr"
                ldo, plus = e.op(f"select i1 %add, i64 %ldc, i64 {rows_apart}"), direct
            few = e.cmp("sle", left, tile.lanes)
            kernel = e.op(f"select i1 {few}, ptr %narrow, ptr %micro")
            e.raw(
                f"  call void {kernel}(i64 {depth}, ptr %ap, ptr {bp}, i64 {ldb}, ptr {to}, "
                f"i64 {ldt}, i1 {plus}, ptr {old}, i64 {ldo})"
            )

            def staged(c: str = c, left: str = left, j: str = j) -> None:
                bias = e.at("%bias", j, spec.acc) if spec.bias == "col" else "%bias"
                residual = e.at("%residual", j, spec.c) if spec.residual else "%residual"
                e.run(
                    "finish", "ptr %tile", f"ptr {c}", "i64 %ldc", "i64 %rows",
                    f"i64 {e.min(left, tile.nr)}", "i1 %add", "i1 %last", f"ptr {bias}",
                    f"ptr {residual}", "i64 %ldr")

            e.cond(direct, lambda: None, staged)
        e.raw("  ret void")


class Driver:
    """Writes `void gemm(args, lo, hi)`: tasks, blocks of K, panels of rows. Threads of even `lo`
    take tasks from the first on, the others from the last on (`next` has 32 bits for each): the
    same ones each time, as near as may be, and never beside each other."""

    def __init__(self, e: Emit, spec: GemmSpec, tile: Tile, names: Sequence[str] = ARGS) -> None:
        self.e, self.spec, self.tile, self.names = e, spec, tile, names
        self.packing, self.apart = "true", "0"

    def load(self) -> dict[str, str]:
        """Load the arguments, at the start of a function that has them as `%args`."""
        e = self.e
        self.v = {
            name: e.load("ptr" if name in POINTERS else "i64", e.at("%args", i * 8))
            for i, name in enumerate(self.names)
            if name not in ("slot", "next")
        }
        return self.v

    def prepare(self) -> None:
        """What a subclass does once its workspace is known."""

    def panel_of_a(self, i: str) -> str:
        """Where the panel of A that starts at row `i` is packed: all at one place, or each at its
        own."""
        return self.e.at(self.ap, self.e.mul(i, self.apart), self.spec.acc)

    def height(self, rows: str) -> str:
        """How many of the rows of a task a panel holds."""
        return str(self.tile.heights[0])

    def write(self) -> None:
        """The whole function."""
        e = self.e
        with e.function("void @gemm(ptr %args, i64 %lo, i64 %hi)", "#3"):
            v = self.load()
            mine = e.op(f"atomicrmw add ptr {e.at('%args', INDEX['slot'] * 8)}, i64 1 monotonic")
            self.bp = e.at(v["work"], e.mul(mine, v["work_bytes"]))
            self.ap = e.at(self.bp, v["b_bytes"])
            self.stage = e.slot(f"[{self.tile.mr * self.tile.nr} x {self.spec.acc}]", None, 64)
            last_block = e.slot("i64", "-1")
            self.prepare()
            again, some, out = e.label("again"), e.label("some"), e.label("out")
            up = e.cmp("eq", e.op("and i64 %lo, 1"), 0)
            step = e.op(f"select i1 {up}, i64 1, i64 {1 << 32}")
            e.place(again)
            next_ = e.at("%args", INDEX["next"] * 8)
            taken = e.op(f"atomicrmw add ptr {next_}, i64 {step} monotonic")
            low, high = e.op(f"and i64 {taken}, {2**32 - 1}"), e.op(f"lshr i64 {taken}, 32")
            e.branch(e.cmp("slt", e.add(low, high), v["tasks"]), some, out)
            e.place(some, jump=False)
            top = e.sub(e.sub(v["tasks"], 1), high)
            self.task(e.op(f"select i1 {up}, i64 {low}, i64 {top}"), last_block)
            e.goto(again)
            e.place(out, jump=False)
            e.raw("  ret void")

    def task(self, task: str, last_block: str) -> None:
        """One block of C: consecutive tasks share their block of B, packed once if K is one."""
        e, v, spec = self.e, self.v, self.spec
        mi, block = e.rem(task, v["tasks_m"]), e.div(task, v["tasks_m"])
        ni, image = e.rem(block, v["tasks_n"]), e.div(block, v["tasks_n"])
        i0, j0 = e.mul(mi, v["mb"]), e.mul(ni, v["nb"])
        rows = e.min(v["mb"], e.sub(v["m"], i0))
        cols = e.min(v["nb"], e.sub(v["n"], j0))
        table = e.at(v["offsets"], e.mul(image, 32))
        shift = [e.load("i64", e.at(table, 8 * i)) for i in range(4)]
        a_row, a_col = (e.mul(v[x], BYTES[spec.a]) for x in ("a_row", "a_col"))
        b_row, b_col = (e.mul(v[x], BYTES[spec.a]) for x in ("b_row", "b_col"))
        c_row = e.mul(v["c_row"], BYTES[spec.c])
        ldr = e.mul(v["residual_row"], BYTES[spec.c])
        a = e.at(e.at(v["a"], shift[0]), e.mul(i0, a_row))
        b = e.at(e.at(v["b"], shift[1]), e.mul(j0, b_col))
        c = e.at(e.at(v["c"], shift[2]), e.add(e.mul(i0, c_row), e.mul(j0, BYTES[spec.c])))
        residual, bias = v["residual"], v["bias"]
        if spec.residual:
            corner = e.add(e.mul(i0, ldr), e.mul(j0, BYTES[spec.c]))
            residual = e.at(e.at(residual, shift[3]), corner)
        if spec.bias:
            bias = e.at(bias, j0 if spec.bias == "col" else i0, spec.acc)
        single = e.both(e.cmp("sle", v["k"], v["kc"]), e.cmp("eq", v["kept"], 0))
        fresh = e.cmp("ne", e.load("i64", last_block), block)
        repack = e.op(f"or i1 {fresh}, {e.op(f'xor i1 {single}, true')}")
        e.store("i64", block, last_block)
        with e.loop(0, v["k"], v["kc"]) as k0, e.loop(0, cols, v["sweep"]) as j:
            kc = e.min(v["kc"], e.sub(v["k"], k0))
            self.packing = e.op(f"or i1 {e.cmp('eq', j, 0)}, {e.cmp('eq', v['kept'], 0)}")
            self.apart = e.mul(spec.depth(e, kc), v["kept"])
            src = e.at(e.at(b, e.mul(k0, b_row)), e.mul(j, b_col))
            wide = e.min(v["sweep"], e.sub(cols, j))
            described = self.block_of_b(src, b_row, b_col, wide, kc, repack)
            last = e.cmp("sge", e.add(k0, kc), v["k"])
            grown = e.cmp("ne", v["accumulate"], 0)
            add = e.op(f"or i1 {e.cmp('sgt', k0, 0)}, {grown}")
            flags = [f"i64 {wide}", f"i64 {kc}", f"i1 {add}", *self.closing(last, grown)]
            here = e.at(bias, j, spec.acc) if spec.bias == "col" else bias
            beside = e.at(residual, j, spec.c) if spec.residual else residual
            ends = [f"ptr {here}", f"ptr {beside}", f"i64 {ldr}"]
            self.rows(described, e.at(a, e.mul(k0, a_col)), a_row, a_col, e.at(c, j, spec.c),
                      c_row, rows, flags, ends)

    def block_of_b(self, src: str, b_row: str, b_col: str, cols: str, kc: str, repack: str
                   ) -> list[str]:
        """Pack what is not read in place of a block of B; the block's description for `rows`."""
        e, v, spec, nr = self.e, self.v, self.spec, self.tile.nr
        in_place = e.cmp("ne", v["in_place"], 0)
        full = e.mul(e.div(cols, nr), nr)
        first = e.op(f"select i1 {in_place}, i64 {full}, i64 0")
        e.cond(repack, lambda: self.pack_b(first, src, b_row, b_col, cols, kc))
        depth = spec.depth(e, kc)
        packed_panel = e.mul(depth, BYTES[spec.acc])
        packed_row = nr * BYTES[spec.acc]
        return [
            f"ptr {e.op(f'select i1 {in_place}, ptr {src}, ptr {self.bp}')}",
            f"i64 {e.op(f'select i1 {in_place}, i64 {BYTES[spec.a]}, i64 {packed_panel}')}",
            f"i64 {e.op(f'select i1 {in_place}, i64 {b_row}, i64 {packed_row}')}",
            f"ptr {e.at(self.bp, e.mul(e.sub(full, first), depth), spec.acc)}",
        ]

    def closing(self, last: str, grown: str) -> list[str]:
        """Of a block of K: whether it is the last, and whether whole tiles too go to C by way of
        `finish`; `grown`: C is added to."""
        spec = self.spec
        if spec.c != spec.acc:
            late = "true"
        elif spec.begins:
            late = self.e.both(last, grown)
        else:
            late = last if spec.epilogue else "false"
        return [f"i1 {last}", f"i1 {late}"]

    def pack_b(self, first: str, src: str, b_row: str, b_col: str, cols: str, kc: str) -> None:
        """Pack a block of B panel by panel, from column `first` on."""
        e, nr = self.e, self.tile.nr
        depth = self.spec.depth(e, kc)
        with e.loop(first, cols, nr) as j:
            dst = e.at(self.bp, e.mul(e.sub(j, first), depth), self.spec.acc)
            valid = e.min(nr, e.sub(cols, j))
            e.run(
                "pack",
                f"ptr {dst}",
                f"ptr {e.at(src, e.mul(j, b_col))}",
                f"i64 {b_col}",
                f"i64 {b_row}",
                f"i64 {valid}",
                f"i64 {kc}",
                f"i64 {nr}",
            )

    def rows(
        self,
        block: list[str],
        a: str,
        a_row: str,
        a_col: str,
        c: str,
        c_row: str,
        rows: str,
        flags: list[str],
        ends: list[str],
    ) -> None:
        """All panels of rows of a task; the last takes the smallest height that holds it."""
        e, heights = self.e, self.tile.heights
        most = self.height(rows)
        with e.loop(0, rows, most) as i:
            left = e.min(most, e.sub(rows, i))
            bias, residual, ldr = (x.split(" ", 1)[1] for x in ends)
            bias = e.at(bias, i, self.spec.acc) if self.spec.bias == "row" else bias
            residual = e.at(residual, e.mul(i, ldr)) if self.spec.residual else residual
            height, micros = str(heights[0]), {n: f"@{n}_{heights[0]}" for n in _MICROS}
            for lower in heights[1:]:
                fits = e.cmp("sle", left, lower)
                height = e.op(f"select i1 {fits}, i64 {lower}, i64 {height}")
                micros = {n: e.op(f"select i1 {fits}, ptr @{n}_{lower}, ptr {before}")
                          for n, before in micros.items()}
            e.run(
                "strip",
                f"i64 {height}",
                *[f"ptr {micro}" for micro in micros.values()],
                f"ptr {self.panel_of_a(i)}",
                f"i1 {self.packing}",
                *block,
                f"ptr {self.stage}",
                f"ptr {e.at(a, e.mul(i, a_row))}",
                f"i64 {a_row}",
                f"i64 {a_col}",
                f"ptr {e.at(c, e.mul(i, c_row))}",
                f"i64 {c_row}",
                f"i64 {left}",
                *flags,
                f"ptr {bias}",
                f"ptr {residual}",
                ends[2],
            )


def pack_part(
    src: str, acc: str, machine: Machine, pairs: bool = False, name: str = "pack"
) -> Part:
    """`name`, which packs panels of `src` for sums of `acc`."""
    tile = tile_for(machine, acc)

    def write(e: Emit) -> None:
        if pairs:
            PackPairs(e, tile.lanes, tile.nr).write()
        else:
            Pack(e, src, acc, tile.lanes, tile.nr, machine.masks, name).write()

    return Part((name, src, acc, str(pairs)), write)


def product_parts(spec: GemmSpec, machine: Machine) -> tuple[Part, ...]:
    """What all products of these operands share, whatever is done to C: packing and
    micro-kernels."""
    tile = tile_for(machine, spec.acc)

    def micros(e: Emit) -> None:
        for name, vectors in _MICROS.items():
            of = Tile(tile.mr, vectors, tile.lanes)
            for height in tile.heights:
                micro(e, of, spec.acc, height, f"{name}_{height}", 1, height, pairs=spec.pairs)

    return (pack_part(spec.a, spec.acc, machine, spec.weaves),
            Part(("micros", spec.acc, str(spec.pairs)), micros))


def write_library(e: Emit, spec: GemmSpec, tile: Tile, machine: Machine) -> None:
    """The functions below a driver: the `product_parts`, strips, the last step to C."""
    if spec.activation:
        e.raw(spec.activation)
    e.use(product_parts(spec, machine))
    finish(e, spec, tile)
    strip(e, spec, tile)


def gemm_module(spec: GemmSpec, machine: Machine) -> str:
    """IR text of a module with one symbol, `gemm(args, lo, hi)`."""
    e, tile = Emit(), tile_for(machine, spec.acc)
    write_library(e, spec, tile, machine)
    Driver(e, spec, tile).write()
    return e.text(machine)
