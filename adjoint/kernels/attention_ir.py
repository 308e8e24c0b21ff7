"""Generates tiled attention as LLVM IR: what the forward and the backward share, and the forward.

Everything is float32 and built from the micro-kernel of the matrix product. A tile is 96 queries by
96 keys, a multiple of every register tile. The forward works on transposed scores, keys down and
queries across the vector lanes: running maxima and sums are then lane-wise, and the probabilities
lie as the packed left operand that the product with the values wants. Exponentials are powers of
two, with `scale * log2(e)` folded into one factor.

Feature widths are multiples of the register tile (callers pad), rows have unit stride.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from .gemm_emit import Emit, Machine, Part, fconst
from .gemm_ir import Tile, micro, pack_part, tile_for

SIDE = 96
PITCH = SIDE * 4  # bytes between rows of a tile of scores

# Slots of the argument block, 8 bytes each; strides in bytes, per batch, head and row.
ARGS = (
    "q q_b q_h q_s k k_b k_h k_s v v_b v_h v_s o o_b o_h o_s ct ct_b ct_h ct_s dq dq_b dq_h dq_s "
    "dk dk_b dk_h dk_s dv dv_b dv_h dv_s top total mask mask_b mask_h mask_s mask_t "
    "heads groups rows cols e ev factor scale limit key threshold survive blocks tasks "
    "work work_bytes slot next parts dq_part"
).split()
INDEX = {name: i for i, name in enumerate(ARGS)}
POINTERS = frozenset("q k v o ct dq dk dv top total mask work".split())

# 2**r on [-1/2, 1/2], interpolated at Chebyshev nodes: relative error 2.6e-9 before rounding
EXP2 = (
    1.0, 0.6931472067028329, 0.24022650922289554, 0.05550327226669895, 0.00961805667843204,
    0.0013400428177711937, 0.00015461444724808513,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """One generated module: the mask's element type ("", "float", "i8") and whether there is
    dropout.
    """

    mask: str
    dropout: bool


class Vectors:
    """Float32 and 32-bit integer vector arithmetic for one width."""

    def __init__(self, e: Emit, lanes: int) -> None:
        self.e, self.n = e, lanes
        self.f, self.i = f"<{lanes} x float>", f"<{lanes} x i32>"
        self.b = f"<{lanes} x i1>"

    def const(self, value: float) -> str:
        """A constant."""
        return fconst("float", self.n, value)

    def ints(self, value: int) -> str:
        """An integer constant (mod 2**32)."""
        value = (value & 0xFFFFFFFF) - ((value & 0x80000000) << 1)
        return "<" + ", ".join(f"i32 {value}" for _ in range(self.n)) + ">"

    def load(self, pointer: str) -> str:
        """Load a vector of floats."""
        return self.e.load(self.f, pointer, 4)

    def store(self, value: str, pointer: str) -> None:
        """Store a vector of floats."""
        self.e.store(self.f, value, pointer, 4)

    def splat(self, pointer: str) -> str:
        """The float at an address in every lane."""
        return self.e.splat("float", self.n, self.e.load("float", pointer, 4))

    def bin(self, op: str, a: str, b: str) -> str:
        """Float arithmetic."""
        return self.e.op(f"{op} {self.f} {a}, {b}")

    def int(self, op: str, a: str, b: str) -> str:
        """Integer arithmetic."""
        return self.e.op(f"{op} {self.i} {a}, {b}")

    def cmp(self, how: str, a: str, b: str) -> str:
        """Float comparison."""
        return self.e.op(f"fcmp {how} {self.f} {a}, {b}")

    def pick(self, mask: str, a: str, b: str) -> str:
        """Lane-wise choice."""
        return self.e.op(f"select {self.b} {mask}, {self.f} {a}, {self.f} {b}")

    def max(self, a: str, b: str) -> str:
        """Lane-wise maximum in which a nan of `b` wins."""
        return self.pick(self.cmp("ogt", a, b), a, b)

    def fma(self, a: str, b: str, c: str) -> str:
        """`a * b + c`, rounded once."""
        name = f"llvm.fma.v{self.n}f32"
        self.e.declare(f"{self.f} @{name}({self.f}, {self.f}, {self.f})")
        return self.e.call(self.f, name, *(f"{self.f} {x}" for x in (a, b, c)))

    def exp2(self, x: str) -> str:
        """2**x for x <= 0 or nan; below 2**-125 the result is exactly 0."""
        e = self.e
        name = f"llvm.rint.v{self.n}f32"
        e.declare(f"{self.f} @{name}({self.f})")
        whole = e.call(self.f, name, f"{self.f} {x}")
        r = self.bin("fsub", x, whole)
        p = self.const(EXP2[-1])
        for c in EXP2[-2::-1]:
            p = self.fma(p, r, self.const(c))
        low = self.cmp("olt", x, self.const(-125.0))
        # the conversion of nan or -inf is poison: freeze it, the lane is replaced or nan already
        n = e.op(f"freeze {self.i} {e.op(f'fptosi {self.f} {whole} to {self.i}')}")
        bits = self.int(
            "add", e.op(f"bitcast {self.f} {p} to {self.i}"), self.int("shl", n, self.ints(23))
        )
        y = self.pick(low, self.const(0.0), e.op(f"bitcast {self.i} {bits} to {self.f}"))
        return self.pick(self.cmp("uno", x, x), x, y)

    def above(self, index: str, limit: str) -> str:
        """Lanes in which signed `index > limit`."""
        return self.e.op(f"icmp sgt {self.i} {index}, {limit}")

    def steps(self) -> str:
        """0, 1, 2, ... across the lanes."""
        return "<" + ", ".join(f"i32 {i}" for i in range(self.n)) + ">"

    def spread(self, scalar: str) -> str:
        """A 64-bit integer, truncated, in every lane."""
        low = self.e.op(f"trunc i64 {scalar} to i32")
        return self.e.splat("i32", self.n, low)

    def mix(self, x: str, key: str | None = None) -> str:
        """The 32-bit hash of the dropout pattern (`attention_numpy.mix`)."""
        x = self.int("xor", x, self.int("lshr", x, self.ints(16)))
        x = self.int("mul", x, self.ints(0x7FEB352D))
        x = x if key is None else self.int("xor", x, key)
        x = self.int("xor", x, self.int("lshr", x, self.ints(15)))
        x = self.int("mul", x, self.ints(0x846CA68B))
        return self.int("xor", x, self.int("lshr", x, self.ints(16)))


def row_keys(e: Emit, lanes: int) -> None:
    """`void row_keys(i64 first, i64 seed, ptr out)`: both keys of SIDE consecutive rows."""
    x = Vectors(e, lanes)
    with e.function("internal void @row_keys(i64 %first, i64 %seed, ptr %out)", "#1"):
        seed = x.spread("%seed")
        seed_high = x.spread(e.op("lshr i64 %seed, 32"))
        with e.loop(0, SIDE, x.n) as i:
            # row numbers are exact to 64 bits: the low half may carry into the high one
            wide = f"<{x.n} x i64>"
            start = e.splat("i64", x.n, e.add("%first", i))
            count = "<" + ", ".join(f"i64 {j}" for j in range(x.n)) + ">"
            row = e.op(f"add {wide} {start}, {count}")
            low = e.op(f"trunc {wide} {row} to {x.i}")
            shift = "<" + ", ".join("i64 32" for _ in range(x.n)) + ">"
            high = e.op(f"trunc {wide} {e.op(f'lshr {wide} {row}, {shift}')} to {x.i}")
            one = x.mix(x.int("xor", low, seed), x.int("xor", high, seed_high))
            two = x.mix(x.int("add", one, x.ints(0x9E3779B9)), seed)
            e.store(x.i, one, e.at("%out", i, "i32"), 4)
            e.store(x.i, two, e.at("%out", e.add(i, SIDE), "i32"), 4)
        e.raw("  ret void")


def attention_parts(spec: AttentionSpec, machine: Machine) -> tuple[Part, ...]:
    """What both directions are linked to: packing, register tiles, keys of rows. (The backward to
    more: `attention_grad_ir.backward_parts`.)"""
    tile = tile_for(machine, "float")

    def tiles(e: Emit) -> None:
        micro(e, tile, "float", tile.mr, "micro_packed", 1, tile.mr, adds=False)
        micro(e, tile, "float", tile.mr, "micro_down", 1, SIDE, adds=True)

    parts = [pack_part("float", "float", machine), Part(("attention tiles",), tiles)]
    if spec.mask == "i8":
        parts.append(pack_part(spec.mask, "float", machine, name="pack_mask"))
    if spec.dropout:
        parts.append(Part(("attention rows",), lambda e: row_keys(e, tile.lanes)))
    return tuple(parts)


class Kernel:
    """Shared parts of both directions: arguments, addresses, row keys, the mask tile."""

    def __init__(self, spec: AttentionSpec, machine: Machine, e: Emit | None = None) -> None:
        self.spec, self.machine = spec, machine
        self.e = Emit() if e is None else e
        self.tile: Tile = tile_for(machine, "float")
        self.x = Vectors(self.e, self.tile.lanes)
        self.across = SIDE // self.tile.lanes  # vectors in a row of a tile

    def args(self) -> dict[str, str]:
        """Load the argument block."""
        e = self.e
        return {
            name: e.load("ptr" if name in POINTERS else "i64", e.at("%args", INDEX[name] * 8))
            for name in ARGS
            if name not in ("slot", "next")
        }

    def tasks(
        self, v: dict[str, str], prepare: Callable[[str], None], body: Callable[[str], None]
    ) -> None:
        """Claim a workspace, then tasks until there are none."""
        e = self.e
        mine = e.op(f"atomicrmw add ptr {e.at('%args', INDEX['slot'] * 8)}, i64 1 monotonic")
        prepare(e.at(v["work"], e.mul(mine, v["work_bytes"])))
        again, some, out = e.label("again"), e.label("some"), e.label("out")
        e.place(again)
        task = e.op(f"atomicrmw add ptr {e.at('%args', INDEX['next'] * 8)}, i64 1 monotonic")
        e.branch(e.cmp("slt", task, v["tasks"]), some, out)
        e.place(some, jump=False)
        body(task)
        e.goto(again)
        e.place(out, jump=False)
        e.raw("  ret void")

    def place(self, v: dict[str, str], name: str, batch: str, head: str) -> str:
        """Address of one head of an operand."""
        e = self.e
        return e.at(e.at(v[name], e.mul(batch, v[name + "_b"])), e.mul(head, v[name + "_h"]))

    def factor(self, v: dict[str, str], name: str) -> str:
        """A float passed in an argument slot, as a scalar."""
        e = self.e
        return e.op(f"bitcast i32 {e.op(f'trunc i64 {v[name]} to i32')} to float")

    def pack_rows(self, dst: str, src: str, stride: str, rows: str, depth: str, width: int) -> None:
        """Pack panels of `width` rows of `src` (unit stride along `depth`), one after another."""
        e = self.e
        with e.loop(0, rows, width) as i:
            valid = e.min(width, e.sub(rows, i))
            e.run(
                "pack", f"ptr {e.at(dst, e.mul(i, depth), 'float')}",
                f"ptr {e.at(src, e.mul(i, stride))}", f"i64 {stride}", "i64 4", f"i64 {valid}",
                f"i64 {depth}", f"i64 {width}",
            )  # fmt: skip

    def mask_tile(self, dst: str, src: str, across: str, along: str, wide: str, deep: str) -> None:
        """Copy a tile of the mask to floats: panels of the register tile's width, one after
        another.

        Element (i, k) of the tile lies at `i * across + k * along`; `i < wide` runs across lanes.
        """
        e, nr = self.e, self.tile.nr
        with e.loop(0, wide, nr) as i:
            valid = e.min(nr, e.sub(wide, i))
            e.run(
                "pack_mask" if self.spec.mask == "i8" else "pack",
                f"ptr {e.at(dst, e.mul(i, SIDE), 'float')}",
                f"ptr {e.at(src, e.mul(i, across))}", f"i64 {across}", f"i64 {along}",
                f"i64 {valid}", f"i64 {deep}", f"i64 {nr}",
            )  # fmt: skip

    def kept(self, first: str, second: str, counter: str, threshold: str) -> str:
        """Which lanes survive dropout."""
        x = self.x
        h = x.mix(x.int("add", first, counter), second)
        return self.e.op(f"icmp uge {x.i} {h}, {threshold}")

    def grid(
        self,
        rows: str,
        cols: str,
        body: Callable[[str, str], None],
        start: Callable[[str], str] | None = None,
    ) -> None:
        """Loop over register tiles: row panels of `rows`, column panels of `cols` from `start(i)`.
        """
        e = self.e
        with e.loop(0, rows, self.tile.mr) as i:
            with e.loop(start(i) if start else 0, cols, self.tile.nr) as j:
                body(i, j)

    def product(
        self, name: str, depth: str, a: str, b: str, ldb: str, c: str, ldc: str
    ) -> None:
        """One register tile; `micro_packed` stores it, `micro_down` adds it."""
        to = [f"ptr {c}", f"i64 {ldc}"]
        self.e.run(name, f"i64 {depth}", f"ptr {a}", f"ptr {b}", f"i64 {ldb}", *to, "i1 0", *to)


class Forward(Kernel):
    """`void attend(args, lo, hi)`: output, and maximum (base 2) and sum of every row."""

    def text(self) -> str:
        """The whole module."""
        self.e.use(attention_parts(self.spec, self.machine))
        self.highest("highest", False)
        self.highest("highest_masked", True)
        self.powers()
        self.rescale()
        self.fill()
        self.write()
        e = self.e
        with e.function("void @attend(ptr %args, i64 %lo, i64 %hi)", "#0"):
            self.v = self.args()
            self.tasks(self.v, self.prepare, self.task)
        return e.text(self.machine)

    def highest(self, name: str, masked: bool) -> None:
        """`void name(s, high, i64 rows, float factor, mask, i64 key, i64 query)`: maxima per lane.

        The masked version stores `factor * s + mask` (in base 2), -inf where key > query; `key` is
        the number of the first key and `query` that of the first query plus the causal limit.
        """
        e, x = self.e, self.x
        head = "ptr %s, ptr %high, i64 %rows, float %factor, ptr %mask, i64 %key, i64 %query"
        with e.function(f"internal void @{name}({head})", "#1"):
            f = e.splat("float", x.n, "%factor")
            acc = [
                e.slot(x.f, x.load(e.at("%high", j * x.n, "float")), 64) for j in range(self.across)
            ]
            lanes = (
                [
                    x.int("add", x.spread(e.add("%query", j * x.n)), x.steps())
                    for j in range(self.across)
                ]
                if masked
                else []
            )
            with e.loop(0, "%rows") as r:
                row = e.at("%s", e.mul(r, PITCH))
                key = x.spread(e.add("%key", r)) if masked else ""
                for j in range(self.across):
                    t = x.bin("fmul", x.load(e.at(row, j * x.n, "float")), f)
                    if masked:
                        t = self.hide(t, r, j, key, lanes[j])
                        x.store(t, e.at(row, j * x.n, "float"))
                    e.store(x.f, x.max(e.load(x.f, acc[j]), t), acc[j])
            for j in range(self.across):
                x.store(e.load(x.f, acc[j]), e.at("%high", j * x.n, "float"))
            e.raw("  ret void")

    def hide(self, t: str, r: str, j: int, key: str, query: str) -> str:
        """Add the mask's element and apply the causal limit (keys down, queries across)."""
        e, x = self.e, self.x
        if self.spec.mask:
            panel, inside = divmod(j * x.n, self.tile.nr)
            at = e.add(e.mul(r, self.tile.nr), panel * SIDE * self.tile.nr + inside)
            extra = x.bin("fmul", x.load(e.at("%mask", at, "float")), x.const(math.log2(math.e)))
            t = x.bin("fadd", t, extra)
        return x.pick(x.above(key, query), x.const(float("-inf")), t)

    def powers(self) -> None:
        """`void powers(s, high, total, i64 rows, float factor, keys, i64 key, i64 threshold, float
        survive)`.

        Replaces scores by 2**(factor * s - high) and adds their sums per lane to `total`; then,
        with dropout, drops and rescales.
        """
        e, x = self.e, self.x
        head = (
            "ptr %s, ptr %high, ptr %total, i64 %rows, float %factor, ptr %keys, i64 %key, "
            "i64 %threshold, float %survive"
        )
        with e.function(f"internal void @powers({head})", "#1"):
            f = e.splat("float", x.n, "%factor")
            top, acc = [], []
            for j in range(self.across):
                high = x.load(e.at("%high", j * x.n, "float"))
                none = x.cmp("oeq", high, x.const(float("-inf")))
                top.append(x.pick(none, x.const(0.0), e.op(f"fneg {x.f} {high}")))
                acc.append(e.slot(x.f, x.load(e.at("%total", j * x.n, "float")), 64))
            with e.loop(0, "%rows") as r:
                row = e.at("%s", e.mul(r, PITCH))
                counter = ""
                if self.spec.dropout:
                    counter = x.int("mul", x.spread(e.add("%key", r)), x.ints(0x9E3779B9))
                for j in range(self.across):
                    where = e.at(row, j * x.n, "float")
                    p = x.exp2(x.fma(x.load(where), f, top[j]))
                    e.store(x.f, x.bin("fadd", e.load(x.f, acc[j]), p), acc[j])
                    x.store(self.drop(p, j, counter) if self.spec.dropout else p, where)
            for j in range(self.across):
                x.store(e.load(x.f, acc[j]), e.at("%total", j * x.n, "float"))
            e.raw("  ret void")

    def drop(self, p: str, j: int, counter: str) -> str:
        """Dropout of one vector of queries for one key."""
        e, x = self.e, self.x
        first = e.load(x.i, e.at("%keys", j * x.n, "i32"), 4)
        second = e.load(x.i, e.at("%keys", SIDE + j * x.n, "i32"), 4)
        keep = self.kept(first, second, counter, x.spread("%threshold"))
        scaled = x.bin("fmul", p, e.splat("float", x.n, "%survive"))
        return x.pick(keep, scaled, x.const(0.0))

    def prepare(self, work: str) -> None:
        """Cut the workspace: small arrays first, then the packed keys of one head."""
        e, v = self.e, self.v
        self.scores = work
        at = e.at(work, SIDE * PITCH)
        self.high, self.total, self.old, self.keys = (e.at(at, i * 1024) for i in range(4))
        at = e.at(at, 4096)
        self.mask = at
        at = e.at(at, SIDE * PITCH if self.spec.mask else 0)
        self.queries = at
        at = e.at(at, e.mul(v["e"], PITCH))
        self.acc = at
        self.packed = e.at(at, e.mul(v["ev"], PITCH))
        self.last = e.slot("i64", "-1")

    def task(self, task: str) -> None:
        """One block of queries of one head; late blocks, which see more keys, come first."""
        e, v = self.e, self.v
        hb = e.div(task, v["blocks"])
        block = e.sub(e.sub(v["blocks"], 1), e.rem(task, v["blocks"]))
        batch, head = e.div(hb, v["heads"]), e.rem(hb, v["heads"])
        group = e.div(head, v["groups"])
        k, vv = self.place(v, "k", batch, group), self.place(v, "v", batch, group)
        pair = e.div(hb, v["groups"])
        fresh = e.cmp("ne", pair, e.load("i64", self.last))
        e.cond(
            fresh, lambda: self.pack_rows(self.packed, k, v["k_s"], v["cols"], v["e"], self.tile.mr)
        )
        e.store("i64", pair, self.last)
        q0 = e.mul(block, SIDE)
        nq = e.min(SIDE, e.sub(v["rows"], q0))
        q = e.at(self.place(v, "q", batch, head), e.mul(q0, v["q_s"]))
        self.pack_rows(self.queries, q, v["q_s"], nq, v["e"], self.tile.nr)
        first = e.add(e.mul(hb, v["rows"]), q0)
        if self.spec.dropout:
            e.run("row_keys", f"i64 {first}", f"i64 {v['key']}", f"ptr {self.keys}")
        for pointer, count, value in (
            (self.high, str(SIDE), float("-inf")), (self.total, str(SIDE), 0.0),
            (self.acc, e.mul(v["ev"], SIDE), 0.0),
        ):  # fmt: skip
            e.run("fill", f"ptr {pointer}", f"i64 {count}", f"float {fconst('float', 1, value)}")
        seen = e.add(q0, v["limit"])  # query i sees keys up to i + limit
        stop = e.min(v["cols"], e.add(seen, nq))
        mask = self.place(v, "mask", batch, head) if self.spec.mask else ""
        mask = e.at(mask, e.mul(q0, v["mask_s"])) if mask else ""
        with e.loop(0, stop, SIDE) as k0:
            nk = e.min(SIDE, e.sub(stop, k0))
            self.tile_scores(k0, nk, nq, seen)
            self.tile_softmax(k0, nk, nq, seen, mask)
            self.tile_values(k0, nk, nq, seen, e.at(vv, e.mul(k0, v["v_s"])))
        out = e.at(self.place(v, "o", batch, head), e.mul(q0, v["o_s"]))
        e.run(
            "write", f"ptr {out}", f"i64 {v['o_s']}", f"ptr {self.acc}", f"i64 {v['ev']}",
            f"ptr {self.total}", f"ptr {self.high}", f"ptr {e.at(v['total'], first, 'float')}",
            f"ptr {e.at(v['top'], first, 'float')}", f"i64 {nq}",
        )  # fmt: skip

    def fill(self) -> None:
        """`void fill(p, i64 count, float value)`: set floats (a multiple of the vector)."""
        e, x = self.e, self.x
        with e.function("internal void @fill(ptr %p, i64 %count, float %value)", "#1"):
            value = e.splat("float", x.n, "%value")
            with e.loop(0, "%count", x.n) as i:
                x.store(value, e.at("%p", i, "float"))
            e.raw("  ret void")

    def tile_scores(self, k0: str, nk: str, nq: str, seen: str) -> None:
        """Scores of the tile, keys down; column panels wholly above the diagonal are left out."""
        e, v, tile = self.e, self.v, self.tile

        def start(i: str) -> str:
            beyond = e.sub(e.add(k0, i), seen)
            some = e.cmp("sgt", beyond, 0)
            panel = e.mul(e.div(beyond, tile.nr), tile.nr)
            return e.op(f"select i1 {some}, i64 {panel}, i64 0")

        def one(i: str, j: str) -> None:
            a = e.at(self.packed, e.mul(e.add(k0, i), v["e"]), "float")
            b = e.at(self.queries, e.mul(j, v["e"]), "float")
            c = e.at(e.at(self.scores, e.mul(i, PITCH)), j, "float")
            self.product("micro_packed", v["e"], a, b, str(tile.nr * 4), c, str(PITCH))

        self.grid(nk, nq, one, start)

    def tile_softmax(self, k0: str, nk: str, nq: str, seen: str, mask: str) -> None:
        """Scores to powers; the accumulated output and sums are rescaled to the new maxima."""
        e, v, x = self.e, self.v, self.x
        with e.loop(0, SIDE, x.n) as j:
            x.store(x.load(e.at(self.high, j, "float")), e.at(self.old, j, "float"))
        factor = self.factor(v, "factor")
        call = [
            f"ptr {self.scores}", f"ptr {self.high}", f"i64 {nk}", f"float {factor}",
            f"ptr {self.mask}", f"i64 {k0}", f"i64 {seen}",
        ]  # fmt: skip
        rest = [
            f"ptr {self.keys}", f"i64 {k0}", f"i64 {v['threshold']}",
            f"float {self.factor(v, 'survive')}",
        ]  # fmt: skip
        state = [f"ptr {p}" for p in (self.old, self.high, self.total, self.acc)]
        rescale = [*state, f"i64 {nq}", f"i64 {v['ev']}"]
        powers = [f"ptr {self.scores}", f"ptr {self.high}", f"ptr {self.total}", f"i64 {nk}"]

        def masked() -> None:
            if self.spec.mask:
                src = e.at(mask, e.mul(k0, v["mask_t"]))
                self.mask_tile(self.mask, src, v["mask_s"], v["mask_t"], nq, nk)
            e.run("highest_masked", *call)
            e.run("rescale", *rescale)
            e.run("powers", *powers, f"float {fconst('float', 1, 1.0)}", *rest)

        def plain() -> None:
            e.run("highest", *call)
            e.run("rescale", *rescale)
            e.run("powers", *powers, f"float {factor}", *rest)

        if self.spec.mask:
            masked()
        else:
            e.cond(e.cmp("sgt", e.sub(e.add(k0, nk), 1), seen), masked, plain)

    def rescale(self) -> None:
        """`void rescale(old, high, total, acc, i64 rows, i64 width)`.

        Multiplies sums and output rows by 2**(old maximum - new maximum).
        """
        e, x = self.e, self.x
        head = "ptr %old, ptr %high, ptr %total, ptr %acc, i64 %rows, i64 %width"
        with e.function(f"internal void @rescale({head})", "#1"):
            with e.loop(0, SIDE, x.n) as j:
                where = e.at("%old", j, "float")
                old, new = x.load(where), x.load(e.at("%high", j, "float"))
                same = x.cmp("oeq", old, new)  # also both -inf
                ratio = x.pick(same, x.const(1.0), x.exp2(x.bin("fsub", old, new)))
                x.store(ratio, where)
                total = e.at("%total", j, "float")
                x.store(x.bin("fmul", x.load(total), ratio), total)
            with e.loop(0, "%rows") as r:
                ratio = x.splat(e.at("%old", r, "float"))
                row = e.at("%acc", e.mul(r, "%width"), "float")
                with e.loop(0, "%width", x.n) as column:
                    where = e.at(row, column, "float")
                    x.store(x.bin("fmul", x.load(where), ratio), where)
            e.raw("  ret void")

    def tile_values(self, k0: str, nk: str, nq: str, seen: str, values: str) -> None:
        """Output rows += powers . values; keys beyond the last query of a panel are left out."""
        e, v, tile = self.e, self.v, self.tile

        def one(i: str, j: str) -> None:
            visible = e.sub(e.add(e.add(seen, i), tile.mr), k0)
            depth = e.min(nk, visible)
            a = e.at(self.scores, i, "float")
            c = e.at(e.at(self.acc, e.mul(i, v["ev"]), "float"), j, "float")
            ldc = e.mul(v["ev"], 4)
            self.product("micro_down", depth, a, e.at(values, j, "float"), v["v_s"], c, ldc)

        self.grid(nq, v["ev"], one)

    def write(self) -> None:
        """`void write(out, i64 out_s, acc, i64 width, total, high, totals, tops, i64 rows)`.

        Divides by the sums and stores the rows, their sums and their maxima.
        """
        e, x = self.e, self.x
        head = (
            "ptr %out, i64 %out_s, ptr %acc, i64 %width, ptr %total, ptr %high, ptr %totals, "
            "ptr %tops, i64 %rows"
        )
        with e.function(f"internal void @write({head})", "#1"):
            with e.loop(0, "%rows") as r:
                total = e.load("float", e.at("%total", r, "float"), 4)
                none = e.op(f"fcmp oeq float {total}, {fconst('float', 1, 0.0)}")
                inverse = e.op(f"fdiv float {fconst('float', 1, 1.0)}, {total}")
                scale = e.op(f"select i1 {none}, float {fconst('float', 1, 0.0)}, float {inverse}")
                s = e.splat("float", x.n, scale)
                src = e.at("%acc", e.mul(r, "%width"), "float")
                dst = e.at("%out", e.mul(r, "%out_s"))
                with e.loop(0, "%width", x.n) as j:
                    x.store(x.bin("fmul", x.load(e.at(src, j, "float")), s), e.at(dst, j, "float"))
                e.store("float", total, e.at("%totals", r, "float"), 4)
                high = e.load("float", e.at("%high", r, "float"), 4)
                e.store("float", high, e.at("%tops", r, "float"), 4)
            e.raw("  ret void")


def forward_module(spec: AttentionSpec, machine: Machine) -> str:
    """IR text of a module with one symbol, `attend(args, lo, hi)`."""
    return Forward(spec, machine).text()


def forward_bytes(e: int, ev: int, cols: int, tile: Tile) -> int:
    """Workspace of one thread in the forward."""
    packed = -(-cols // tile.mr) * tile.mr * e * 4
    return 2 * SIDE * PITCH + 4096 + (e + ev) * PITCH + packed + 4096
