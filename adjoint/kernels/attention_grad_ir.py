"""Generates the backward of tiled attention as LLVM IR.

A task is one key/value head: a block of keys is held while all queries that see it pass by, so that
the cotangents of keys and values are summed in cache, and those of the queries in place. Scores are
recomputed with queries down and keys across: a row's log-sum-exp and delta are then scalars.

    P = 2**(factor S - lse)      S = Q K^T        dP = ct V^T
    dS = P (dP - delta)          dV += P^T ct     dK += scale dS^T Q     dQ += scale dS K
"""

from __future__ import annotations

import math

from .attention_ir import PITCH, SIDE, AttentionSpec, Kernel, attention_parts
from .gemm_emit import Emit, Machine, Part, fconst
from .gemm_ir import GemmSpec, Tile, finish, micro, tile_for


class Backward(Kernel):
    """`void attend(args, lo, hi)`: cotangents of queries, keys and values."""

    def text(self) -> str:
        """The whole module."""
        e = self.e
        e.use(backward_parts(self.spec, self.machine))
        self.deltas()
        self.write_rows()
        self.scores_tile()
        self.sums()
        with e.function("void @attend(ptr %args, i64 %lo, i64 %hi)", "#3"):
            self.v = self.args()
            self.tasks(self.v, self.prepare, self.task)
        return e.text(self.machine)

    def deltas(self) -> None:
        """`void deltas(out, ct, i64 cts, o, i64 os, i64 rows, i64 ev)`: <ct, o> of each row."""
        e, x = self.e, self.x
        head = "ptr %out, ptr %ct, i64 %cts, ptr %o, i64 %os, i64 %rows, i64 %ev"
        name = f"llvm.vector.reduce.fadd.v{x.n}f32"
        e.declare(f"float @{name}(float, {x.f})")
        with e.function(f"internal void @deltas({head})", "#1"):
            acc = e.slot(x.f, None, 64)
            with e.loop(0, "%rows") as r:
                a, b = e.at("%ct", e.mul(r, "%cts")), e.at("%o", e.mul(r, "%os"))
                e.store(x.f, x.const(0.0), acc)
                with e.loop(0, "%ev", x.n) as j:
                    left, right = x.load(e.at(a, j, "float")), x.load(e.at(b, j, "float"))
                    e.store(x.f, x.fma(left, right, e.load(x.f, acc)), acc)
                lanes = e.load(x.f, acc)
                zero = fconst("float", 1, -0.0)
                total = e.op(f"call reassoc float @{name}(float {zero}, {x.f} {lanes})")
                e.store("float", total, e.at("%out", r, "float"), 4)
            e.raw("  ret void")

    def slopes(self, name: str, masked: bool) -> None:
        """`void name(s, ds, i64 rows, lse, delta, float factor, float scale, mask, keys, i64 key,
        ...)`.

        Turns a tile of scores into probabilities (dropped and rescaled where asked) and the tile of
        their cotangents into `scale * dS`.
        """
        e, x = self.e, self.x
        head = (
            "ptr %s, ptr %ds, i64 %rows, ptr %lse, ptr %delta, float %factor, float %scale, "
            "ptr %mask, ptr %keys, i64 %key, i64 %query, i64 %threshold, float %survive"
        )
        with e.function(f"internal void @{name}({head})", "#1"):
            f, scale = e.splat("float", x.n, "%factor"), e.splat("float", x.n, "%scale")
            keys = (
                [
                    x.int("add", x.spread(e.add("%key", j * x.n)), x.steps())
                    for j in range(self.across)
                ]
                if masked or self.spec.dropout
                else [""] * self.across
            )
            with e.loop(0, "%rows") as r:
                lse = e.op(f"fneg {x.f} {x.splat(e.at('%lse', r, 'float'))}")
                delta = x.splat(e.at("%delta", r, "float"))
                limit = x.spread(e.add("%query", r)) if masked else ""
                for j in range(self.across):
                    at = e.mul(r, PITCH)
                    s, d = (e.at(e.at(p, at), j * x.n, "float") for p in ("%s", "%ds"))
                    t = x.fma(x.load(s), f, lse)
                    if masked:
                        t = self.hide(t, r, j, keys[j], limit)
                    p, dp = x.exp2(t), x.load(d)
                    if self.spec.dropout:
                        kept = self.drop(p, r, keys[j])
                        x.store(kept, s)
                        ds = x.bin("fsub", x.bin("fmul", kept, dp), x.bin("fmul", p, delta))
                    else:
                        x.store(p, s)
                        ds = x.bin("fmul", p, x.bin("fsub", dp, delta))
                    if masked:  # 0 * inf above the diagonal
                        ds = x.pick(x.cmp("oeq", p, x.const(0.0)), x.const(0.0), ds)
                    x.store(x.bin("fmul", ds, scale), d)
            e.raw("  ret void")

    def hide(self, t: str, r: str, j: int, key: str, limit: str) -> str:
        """Add the mask's element and apply the causal limit (queries down, keys across)."""
        e, x, nr = self.e, self.x, self.tile.nr
        if self.spec.mask:
            panel, inside = divmod(j * x.n, nr)
            at = e.add(e.mul(r, nr), panel * SIDE * nr + inside)
            extra = x.bin("fmul", x.load(e.at("%mask", at, "float")), x.const(math.log2(math.e)))
            t = x.bin("fadd", t, extra)
        return x.pick(x.above(key, limit), x.const(float("-inf")), t)

    def drop(self, p: str, r: str, key: str) -> str:
        """Dropout of one vector of keys for one query."""
        e, x = self.e, self.x
        first = e.splat("i32", x.n, e.load("i32", e.at("%keys", r, "i32"), 4))
        second = e.splat("i32", x.n, e.load("i32", e.at("%keys", e.add(r, SIDE), "i32"), 4))
        counter = x.int("mul", key, x.ints(0x9E3779B9))
        keep = self.kept(first, second, counter, x.spread("%threshold"))
        scaled = x.bin("fmul", p, e.splat("float", x.n, "%survive"))
        return x.pick(keep, scaled, x.const(0.0))

    def write_rows(self) -> None:
        """`void write_rows(dst, i64 stride, src, i64 width, i64 rows)`: copy a block of sums out.
        """
        e, x = self.e, self.x
        head = "ptr %dst, i64 %stride, ptr %src, i64 %width, i64 %rows"
        with e.function(f"internal void @write_rows({head})", "#1"):
            with e.loop(0, "%rows") as r:
                src, dst = (
                    e.at("%src", e.mul(r, "%width"), "float"),
                    e.at("%dst", e.mul(r, "%stride")),
                )
                with e.loop(0, "%width", x.n) as j:
                    x.store(x.load(e.at(src, j, "float")), e.at(dst, j, "float"))
            e.raw("  ret void")

    def prepare(self, work: str) -> None:
        """Cut the workspace."""
        e, v = self.e, self.v
        at = work
        names = ["scores", "slope"] + (["mask"] if self.spec.mask else [])
        for name in names:
            setattr(self, name, at)
            at = e.at(at, SIDE * PITCH)
        if not self.spec.mask:
            self.mask = work
        self.keys = at
        self.stage = at = e.at(at, 1024)
        at = e.at(at, self.tile.mr * self.tile.nr * 4)
        for name, width in (
            ("kt", "e"), ("vt", "ev"), ("dk_sum", "e"), ("dv_sum", "ev"), ("qp", "e"), ("cp", "ev"),
        ):  # fmt: skip
            setattr(self, name, at)
            at = e.at(at, e.add(e.mul(v[width], PITCH), 256))  # packing may write a vector more
        self.delta = at

    part: str
    kt: str
    vt: str
    dk_sum: str
    dv_sum: str
    qp: str
    cp: str
    scores: str
    slope: str

    def task(self, task: str) -> None:
        """One key/value head: blocks of keys, and for each the query heads of its group.

        With `parts` a head is several tasks, which take its blocks of keys in turn and sum the
        cotangents of the queries into an array of their own, zero at first.
        """
        e, v = self.e, self.v
        pairs = e.div(v["heads"], v["groups"])
        self.part, rest = e.rem(task, v["parts"]), e.div(task, v["parts"])
        batch, group = e.div(rest, pairs), e.rem(rest, pairs)
        k, vv = self.place(v, "k", batch, group), self.place(v, "v", batch, group)
        dk, dv = self.place(v, "dk", batch, group), self.place(v, "dv", batch, group)
        with e.loop(0, v["groups"]) as g:
            head = e.add(e.mul(group, v["groups"]), g)
            e.run(
                "deltas", f"ptr {e.at(self.delta, e.mul(g, v['rows']), 'float')}",
                f"ptr {self.place(v, 'ct', batch, head)}", f"i64 {v['ct_s']}",
                f"ptr {self.place(v, 'o', batch, head)}", f"i64 {v['o_s']}", f"i64 {v['rows']}",
                f"i64 {v['ev']}",
            )  # fmt: skip
        start, step = e.mul(self.part, SIDE), e.mul(v["parts"], SIDE)
        with e.loop(start, v["cols"], step) as k0:
            nk = e.min(SIDE, e.sub(v["cols"], k0))
            kb, vb = e.at(k, e.mul(k0, v["k_s"])), e.at(vv, e.mul(k0, v["v_s"]))
            self.pack_rows(self.kt, kb, v["k_s"], nk, v["e"], self.tile.nr)
            self.pack_rows(self.vt, vb, v["v_s"], nk, v["ev"], self.tile.nr)
            for sums, width in ((self.dk_sum, "e"), (self.dv_sum, "ev")):
                with e.loop(0, e.mul(v[width], SIDE), self.x.n) as i:
                    self.x.store(self.x.const(0.0), e.at(sums, i, "float"))
            with e.loop(0, v["groups"]) as g:
                self.head(batch, e.add(e.mul(group, v["groups"]), g), g, k0, nk, kb)
            for out, name, sums, width in (
                (dk, "dk_s", self.dk_sum, "e"), (dv, "dv_s", self.dv_sum, "ev"),
            ):  # fmt: skip
                e.run(
                    "write_rows", f"ptr {e.at(out, e.mul(k0, v[name]))}", f"i64 {v[name]}",
                    f"ptr {sums}", f"i64 {v[width]}", f"i64 {nk}",
                )  # fmt: skip

    def head(self, batch: str, head: str, g: str, k0: str, nk: str, keys: str) -> None:
        """All queries of one head against one block of keys."""
        e, v = self.e, self.v
        base = {name: self.place(v, name, batch, head) for name in ("q", "ct", "dq")}
        base["dq"] = e.at(base["dq"], e.mul(self.part, v["dq_part"]))
        mask = self.place(v, "mask", batch, head) if self.spec.mask else ""
        first = e.mul(e.add(e.mul(batch, v["heads"]), head), v["rows"])
        # the first block of queries of which some see this block of keys
        behind = e.sub(k0, v["limit"])
        some = e.cmp("sgt", behind, 0)
        aligned = e.mul(e.div(behind, SIDE), SIDE)
        start = e.op(f"select i1 {some}, i64 {aligned}, i64 0")
        with e.loop(start, v["rows"], SIDE) as q0:
            nq = e.min(SIDE, e.sub(v["rows"], q0))
            at = {name: e.at(p, e.mul(q0, v[name + "_s"])) for name, p in base.items()}
            seen = e.add(q0, v["limit"])
            row = e.add(first, q0)
            if self.spec.dropout:
                e.run("row_keys", f"i64 {row}", f"i64 {v['key']}", f"ptr {self.keys}")
            self.pack_rows(self.qp, at["q"], v["q_s"], nq, v["e"], self.tile.mr)
            self.pack_rows(self.cp, at["ct"], v["ct_s"], nq, v["ev"], self.tile.mr)
            place = [f"i64 {x}" for x in (k0, nk, nq, seen)]
            for out, left, right, width in (
                (self.scores, self.qp, self.kt, "e"), (self.slope, self.cp, self.vt, "ev"),
            ):  # fmt: skip
                tile = [f"ptr {out}", f"ptr {left}", f"ptr {right}", f"i64 {v[width]}"]
                e.run("scores", *tile, *place)
            self.slopes_tile(row, g, k0, nk, q0, nq, seen, mask)
            for out, left, name, width in (
                (self.dv_sum, self.scores, "ct", "ev"), (self.dk_sum, self.slope, "q", "e"),
            ):  # fmt: skip
                rows = [f"ptr {at[name]}", f"i64 {v[name + '_s']}", f"i64 {v[width]}"]
                e.run("sums", f"ptr {out}", f"ptr {left}", *rows, *place)
            self.queries(at["dq"], keys, k0, nk, nq, seen)

    def scores_tile(self) -> None:
        """`void scores(out, left, right, i64 depth, i64 k0, i64 nk, i64 nq, i64 seen)`.

        A tile of products of rows; column panels wholly above the diagonal are left out.
        """
        e, tile, depth = self.e, self.tile, "%depth"
        head = (
            "ptr %out, ptr %left, ptr %right, i64 %depth, i64 %k0, i64 %nk, i64 %nq, i64 %seen"
        )
        with e.function(f"internal void @scores({head})", "#1"):
            with e.loop(0, "%nq", tile.mr) as i:
                visible = e.sub(e.add(e.add("%seen", i), tile.mr), "%k0")
                with e.loop(0, e.min("%nk", visible), tile.nr) as j:
                    a = e.at("%left", e.mul(i, depth), "float")
                    b = e.at("%right", e.mul(j, depth), "float")
                    c = e.at(e.at("%out", e.mul(i, PITCH)), j, "float")
                    ldb, ldc = str(tile.nr * 4), str(PITCH)
                    self.product("micro_packed", depth, a, b, ldb, c, ldc)
            e.raw("  ret void")

    def slopes_tile(
        self, row: str, g: str, k0: str, nk: str, q0: str, nq: str, seen: str, mask: str
    ) -> None:
        """Scores to probabilities, their cotangents to those of the scores."""
        e, v = self.e, self.v
        delta = e.at(self.delta, e.add(e.mul(g, v["rows"]), q0), "float")
        call = [
            f"ptr {self.scores}", f"ptr {self.slope}", f"i64 {nq}",
            f"ptr {e.at(v['top'], row, 'float')}", f"ptr {delta}",
            f"float {self.factor(v, 'factor')}",
            f"float {self.factor(v, 'scale')}", f"ptr {self.mask}", f"ptr {self.keys}", f"i64 {k0}",
            f"i64 {seen}", f"i64 {v['threshold']}", f"float {self.factor(v, 'survive')}",
        ]  # fmt: skip
        if self.spec.mask:
            src = e.at(e.at(mask, e.mul(q0, v["mask_s"])), e.mul(k0, v["mask_t"]))
            self.mask_tile(self.mask, src, v["mask_t"], v["mask_s"], nk, nq)
            e.run("slopes_masked", *call)
            return
        diagonal = e.cmp("sgt", e.sub(e.add(k0, nk), 1), seen)
        e.cond(diagonal, lambda: e.run("slopes_masked", *call), lambda: e.run("slopes", *call))

    def sums(self) -> None:
        """`void sums(out, tile, rows, i64 stride, i64 width, i64 k0, i64 nk, i64 nq, i64 seen)`.

        `out[key] += sum over queries of tile[query, key] * rows[query]`.
        """
        e, mr, nr = self.e, self.tile.mr, self.tile.nr
        head = (
            "ptr %out, ptr %tile, ptr %rows, i64 %stride, i64 %width, i64 %k0, i64 %nk, i64 %nq, "
            "i64 %seen"
        )
        with e.function(f"internal void @sums({head})", "#1"):
            with e.loop(0, "%nk", mr) as i:
                # queries before key k0 + i do not see it
                hidden = e.sub(e.add("%k0", i), "%seen")
                first = e.op(f"select i1 {e.cmp('sgt', hidden, 0)}, i64 {hidden}, i64 0")
                depth = e.sub("%nq", first)

                def panel(i: str = i, first: str = first, depth: str = depth) -> None:
                    with e.loop(0, "%width", nr) as j:
                        a = e.at(e.at("%tile", e.mul(first, PITCH)), i, "float")
                        b = e.at(e.at("%rows", e.mul(first, "%stride")), j, "float")
                        c = e.at(e.at("%out", e.mul(i, "%width"), "float"), j, "float")
                        ldc = e.mul("%width", 4)
                        self.product("micro_down", depth, a, b, "%stride", c, ldc)

                e.cond(e.cmp("sgt", depth, 0), panel)
            e.raw("  ret void")

    def queries(self, dq: str, keys: str, k0: str, nk: str, nq: str, seen: str) -> None:
        """`dq[query] += sum over keys of slope[query, key] * keys[key]`; the first block sets."""
        e, v, mr, nr = self.e, self.v, self.tile.mr, self.tile.nr
        add = e.op(f"or i1 {e.cmp('sgt', k0, 0)}, {e.cmp('sgt', v['parts'], 1)}")
        with e.loop(0, nq, mr) as i:
            depth = e.min(nk, e.sub(e.add(e.add(seen, i), mr), k0))
            left = e.min(mr, e.sub(nq, i))
            whole = e.cmp("eq", left, mr)
            with e.loop(0, v["e"], nr) as j:
                a, b = e.at(self.slope, e.mul(i, PITCH)), e.at(keys, j, "float")
                c = e.at(e.at(dq, e.mul(i, v["dq_s"])), j, "float")
                panel = [f"i64 {depth}", f"ptr {a}", f"ptr {b}", f"i64 {v['k_s']}"]

                def direct(panel: list[str] = panel, c: str = c) -> None:
                    there = [f"ptr {c}", f"i64 {v['dq_s']}"]
                    e.run("micro_across", *panel, *there, f"i1 {add}", *there)

                def staged(panel: list[str] = panel, c: str = c, left: str = left) -> None:
                    there = [f"ptr {self.stage}", f"i64 {nr * 4}"]
                    e.run("micro_across", *panel, *there, "i1 false", *there)
                    e.run(
                        "finish", f"ptr {self.stage}", f"ptr {c}", f"i64 {v['dq_s']}",
                        f"i64 {left}",
                        f"i64 {nr}", f"i1 {add}", "i1 false", "ptr null", "ptr null", "i64 0",
                    )  # fmt: skip

                e.cond(whole, direct, staged)


def backward_parts(spec: AttentionSpec, machine: Machine) -> tuple[Part, ...]:
    """What the backward is linked to."""
    tile = tile_for(machine, "float")

    def across(e: Emit) -> None:
        finish(e, GemmSpec("float", "float", "float"), tile)
        micro(e, tile, "float", tile.mr, "micro_across", SIDE, 1)

    def slopes(e: Emit) -> None:
        kernel = Backward(spec, machine, e)
        kernel.slopes("slopes", False)
        kernel.slopes("slopes_masked", True)

    return (*attention_parts(spec, machine), Part(("attention across",), across),
            Part(("attention slopes", spec.mask, str(spec.dropout)), slopes))


def backward_module(spec: AttentionSpec, machine: Machine) -> str:
    """IR text of a module with one symbol, `attend(args, lo, hi)`."""
    return Backward(spec, machine).text()


def backward_bytes(e: int, ev: int, rows: int, groups: int, tile: Tile) -> int:
    """Workspace of one thread in the backward."""
    fixed = 3 * SIDE * PITCH + 1024 + tile.mr * tile.nr * 4 + 8192
    return fixed + 3 * (e + ev) * PITCH + rows * groups * 4
