"""Whole LSTM sequences as one generated function: the products of all steps and the passes between.

Rows of a batch do not meet in a recurrence: a task is some rows through all steps, so that threads
need not wait for each other after every product and every pass. The weight is packed once by each
thread and then read from its cache.
"""
from __future__ import annotations

from .gemm_emit import BYTES, Emit, Machine
from .gemm_ir import ARGS, Driver, GemmSpec, tile_for, write_library

# Behind the slots of a product, of which a, b, c, residual are the states (T, N, k), the weight,
# what each step's product writes and adds: `start`, the state before the first step; `steps`;
# `first` and `stride`, the times of the steps; `cell(operands, chunk, end)`, the pass over the
# gates; its `operands`; `earlier` and `origin`, addresses of the cells (T, N, H) and of those
# before the first step.
SEQUENCE = (*ARGS, *"start steps first stride cell operands earlier origin".split())


class Sequence(Driver):
    """Tasks of `mb` rows; `backward` walks from the last step to the first.

    The last two of the pass's `words` are the time and that of the cells before, whose array is
    word `held`.
    """

    def __init__(self, e: Emit, spec: GemmSpec, machine: Machine, backward: bool) -> None:
        super().__init__(e, spec, tile_for(machine, spec.acc), SEQUENCE)
        self.backward = backward
        self.words, self.held = (9, 5) if backward else (7, 2)
        self.size = BYTES[spec.acc]

    def prepare(self) -> None:
        """Pack the weight; copy the pass's operands, as each thread is at a time of its own."""
        e, v = self.e, self.v
        self.packed, self.padded = self.bp, e.mul(
            e.div(e.add(v["n"], self.tile.nr - 1), self.tile.nr), self.tile.nr)
        row, column = (e.mul(v[x], self.size) for x in ("b_row", "b_col"))
        with e.loop(0, v["k"], v["kc"]) as k0:
            self.bp = self.block(k0)
            self.pack_b("0", e.at(v["b"], e.mul(k0, row)), row, column, v["n"],
                        e.min(v["kc"], e.sub(v["k"], k0)))
        self.own = e.slot(f"[{self.words} x i64]")
        for i in range(self.words):
            e.store("i64", e.load("i64", e.at(v["operands"], 8 * i)), e.at(self.own, 8 * i))

    def block(self, k0: str) -> str:
        """Where the panels of the block of K that starts at `k0` are."""
        e = self.e
        return e.at(self.packed, e.mul(e.mul(k0, self.padded), self.size))

    def height(self, rows: str) -> str:
        """Panels of about the same height: 16 rows are 8 and 8, not 12 and 4."""
        e, heights = self.e, self.tile.heights
        panels = e.div(e.add(rows, heights[0] - 1), heights[0])
        share = e.div(e.sub(e.add(rows, panels), 1), panels)
        found = str(heights[0])
        for lower in heights[1:]:
            found = e.op(f"select i1 {e.cmp('sle', share, lower)}, i64 {lower}, i64 {found}")
        return found

    def task(self, task: str, last_block: str) -> None:
        """Some rows through all steps."""
        e, v = self.e, self.v
        r0 = e.mul(task, v["mb"])
        rows = e.min(v["mb"], e.sub(v["m"], r0))
        with e.loop(0, v["steps"]) as k:
            t = e.add(v["first"], e.mul(k, v["stride"]))
            edge = e.cmp("eq", k, e.sub(v["steps"], 1) if self.backward else 0)
            before = e.add(t, v["stride"]) if self.backward else e.sub(t, v["stride"])
            before = e.op(f"select i1 {edge}, i64 0, i64 {before}")
            held = e.op(f"select i1 {edge}, i64 {v['origin']}, i64 {v['earlier']}")
            for at, value in ((self.held, held), (self.words - 2, t), (self.words - 1, before)):
                e.store("i64", value, e.at(self.own, 8 * at))
            if self.backward:
                self.cell(task)
                self.product(self.rows_at("a", "k", t, r0), self.rows_at("c", "n", "0", r0),
                             v["residual"], rows)
            else:
                start = e.at(v["start"], e.mul(e.mul(r0, v["k"]), self.size))
                a = self.rows_at("a", "k", before, r0)
                self.product(e.op(f"select i1 {edge}, ptr {start}, ptr {a}"),
                             self.rows_at("c", "n", t, r0), self.rows_at("residual", "n", t, r0),
                             rows)
                self.cell(task)

    def rows_at(self, name: str, width: str, t: str, r0: str) -> str:
        """Where row `r0` of an operand is at time `t`."""
        e, v = self.e, self.v
        rows = e.add(e.mul(t, v["m"]), r0)
        return e.at(v[name], e.mul(e.mul(rows, v[width]), self.size))

    def cell(self, task: str) -> None:
        """The pass over the gates of a task's rows."""
        e = self.e
        e.raw(f"  call void {self.v['cell']}(ptr {self.own}, i64 {task}, i64 {e.add(task, 1)})")

    def product(self, a: str, c: str, residual: str, rows: str) -> None:
        """`c = a . weight + residual` for some rows, by blocks of K and of columns that a thread's
        cache holds while panels of rows pass."""
        e, v, size, nr = self.e, self.v, self.size, self.tile.nr
        a_row, c_row = e.mul(v["k"], size), e.mul(v["n"], size)
        with e.loop(0, v["k"], v["kc"]) as k0:
            kc = e.min(v["kc"], e.sub(v["k"], k0))
            panel, packed = e.mul(kc, size), self.block(k0)
            add = e.cmp("sgt", k0, 0)
            last = e.cmp("sge", e.add(k0, kc), v["k"])
            with e.loop(0, v["n"], v["nb"]) as j0:
                cols = e.min(v["nb"], e.sub(v["n"], j0))
                bp = e.at(packed, e.mul(j0, panel))
                edge = e.at(bp, e.mul(e.mul(e.div(cols, nr), nr), panel))
                block = [f"ptr {bp}", f"i64 {panel}", f"i64 {nr * size}", f"ptr {edge}"]
                ends = ["ptr null", f"ptr {e.at(residual, e.mul(j0, size))}", f"i64 {c_row}"]
                flags = [f"i64 {cols}", f"i64 {kc}", f"i1 {add}", f"i1 {last}", "i1 false"]
                self.rows(block, e.at(a, e.mul(k0, size)), a_row, str(size),
                          e.at(c, e.mul(j0, size)), c_row, rows, flags, ends)


def sequence_module(spec: GemmSpec, machine: Machine, backward: bool) -> str:
    """IR text of a module with one symbol, `gemm(args, lo, hi)`."""
    e = Emit()
    write_library(e, spec, tile_for(machine, spec.acc), machine)
    Sequence(e, spec, machine, backward).write()
    return e.text(machine)
