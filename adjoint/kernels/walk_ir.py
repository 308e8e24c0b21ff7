"""The machine code of `walk`: the plain part of a backward pass.

    PyObject *walk(PyObject *self, PyObject *const *args, Py_ssize_t count)
    walk(order, first, cts, last, mark, deliver, leaves) -> index

visits the nodes of the list `order` from index `first` as `Backward.run` (`autograd/engine.py`)
does, and returns the index of the first node that is not plain (or the length): one without a
generated rule, with residuals that were packed, written to or released, or a large one whose
cotangents can be added to what its edges have got, or to each other, or with a cotangent of `whole`
elements, whose memory the engine may give to the result. Such a node is untouched. `mark` replaces
released residuals (None: they are kept); `deliver(edge, ct)` adds a cotangent that has to be
brought into shape, that goes to a port, or to a sum of `large` elements; `leaves(node)` finishes
the leaves that `last` lists for the node.
"""
from __future__ import annotations

from collections.abc import Mapping

from adjoint.kernels.ir import Code, Value
from adjoint.kernels.objects_ir import ELEMENTS, Writer, declare

ENV = ("array_type", "tensor", "parameter", "plan_type", "ref", "kept", "accumulate", "port",
       "tuple", "none", "true", "false", "touched", "exposed", "version", "plus", "large",
       "whole")
SLICE = 4096             # nodes after which Python may look at signals and other threads
ORDER, START, CTS, LAST, MARK, DELIVER, LEAVES, COUNT = range(8)


def text(offsets: Mapping[str, int]) -> str:
    """The IR."""
    code = Code()
    declare(code, ENV)
    _Walk(code, offsets).emit()
    return code.text() + ELEMENTS.format(**offsets)


class _Walk:
    """The function; `self.stop` is the block that returns the index, `failed` the one that
    returns NULL."""

    def __init__(self, code: Code, offsets: Mapping[str, int]) -> None:
        self.f = code.function("walk", [("ptr", "self"), ("ptr", "args"), ("i64", "count")],
                               returns="ptr")
        self.w = Writer(self.f, offsets, ENV)
        self.at = offsets

    def emit(self) -> None:
        f, w = self.f, self.w
        self.index, self.count = (f.emit("ptr", "alloca i64, align 8") for _ in range(2))
        self.found = f.emit("ptr", "alloca ptr, align 8")      # what the rule gave, while needed
        f.store(w.null, self.found)
        self.operands = f.emit("ptr", "alloca [4 x ptr], align 8")
        self.args = [f.load(f.at(f.args[1], "ptr", i), "ptr") for i in range(COUNT)]
        size = f.call("PyList_Size", "i64", self.args[ORDER])
        first = f.call("PyLong_AsLongLong", "i64", self.args[START])
        f.store(first, self.index)
        end = f.intrinsic("smin", size, first + SLICE)
        f.goto("head")
        f.start("head")
        i = f.load(self.index, "i64")
        w.need(i.compare("slt", end), "stop")
        node = f.call("PyList_GetItem", "ptr", self.args[ORDER], i)
        self._node(node)
        f.start("next")                                  # the node is done
        f.store(f.load(self.index, "i64") + 1, self.index)
        f.goto("head")
        f.start("stop")
        f.ret(f.call("PyLong_FromLongLong", "ptr", f.load(self.index, "i64")))
        f.start("failed")
        left = f.load(self.found, "ptr")
        w.when(w.differs(left, w.null), lambda: w.drop(left))
        f.ret(w.null)

    def _good(self, status: Value) -> None:
        """Go on unless a C function reported an error."""
        self.w.need(status.compare("sge", 0), "failed")

    def _call(self, function: Value, *operands: Value) -> None:
        """Call a Python function for what it does."""
        f, w = self.f, self.w
        for k, o in enumerate(operands):
            f.store(o, f.at(self.operands, "ptr", k))
        done = f.call("PyObject_Vectorcall", "ptr", function, self.operands,
                      f.i64(len(operands)), w.null)
        w.need(w.differs(done, w.null), "failed")
        w.drop(done)

    def _finish(self, node: Value) -> None:
        """Finish the leaves of the node, if it has some."""
        f = self.f
        held = f.call("PyDict_Contains", "i32", self.args[LAST], node)
        self._good(held)
        some = f.label("leaves")
        f.branch(held.compare("eq", 0), "next", some)
        f.start(some)
        self._call(self.args[LEAVES], node)
        f.goto("next")

    def _node(self, node: Value) -> None:
        f, w = self.f, self.w
        ct = f.call("PyDict_GetItemWithError", "ptr", self.args[CTS], node)
        present, absent, idle = f.label("present"), f.label("absent"), f.label("idle")
        f.branch(w.same(ct, w.null), absent, present)
        f.start(absent)
        error = f.call("PyErr_Occurred", "ptr")
        f.branch(w.same(error, w.null), idle, "failed")
        f.start(idle)
        self._finish(node)
        f.start(present)
        plan = w.field(node, "plan")
        w.need(w.differs(plan, w.null), "stop")
        w.need(w.has(plan, "type", w.env("plan_type")), "stop")
        rule = w.field(plan, "plan.fast")
        w.need(w.differs(rule, w.none), "stop")
        w.need(w.has(ct, "type", w.env("array_type")), "stop")
        size = f.call("elements", "i64", ct)
        limit = f.call("PyLong_AsLongLong", "i64", w.field(plan, "plan.limit"))
        rule = f.select(size.compare("slt", limit), rule, w.field(plan, "plan.large"))
        self._residuals(node, plan)
        edges = self._edges(node, plan)
        self._alone(edges, size, limit)
        w.hold(ct)
        f.store(ct, self.operands)
        self._good(f.call("PyDict_DelItem", "i32", self.args[CTS], node))
        found = f.call("PyObject_Vectorcall", "ptr", rule, self.operands,
                       f.load(self.count, "i64"), w.null)
        w.drop(ct)
        f.store(found, self.found)
        w.need(w.differs(found, w.null), "failed")
        self._release(node)
        for k, e in enumerate(edges):
            wanted, done = f.label("wanted"), f.label("delivered")
            f.branch(w.same(e, w.none), done, wanted)
            f.start(wanted)
            self._deliver(e, f.call("PyTuple_GetItem", "ptr", found, f.i64(k)), size, done)
            f.start(done)
        f.store(w.null, self.found)
        w.drop(found)
        self._finish(node)

    def _residuals(self, node: Value, plan: Value) -> None:
        """The rule's operands after the cotangent, and how many there are with it."""
        f, w = self.f, self.w
        first = w.field(node, "s0")
        w.need(w.differs(first, w.null), "stop")
        f.store(f.i64(1), self.count)
        some, one, two, done = (f.label(n) for n in ("some", "one", "two", "read"))
        f.branch(w.same(first, w.none), done, some)
        f.start(some)
        names = f.call("PyTuple_Size", "i64", w.field(plan, "plan.names"))
        w.need(names.compare("sle", 2), "stop")
        f.store(self._value(first), f.at(self.operands, "ptr", 1))
        f.store(names + 1, self.count)
        f.branch(names.compare("eq", 2), two, one)
        f.start(two)
        f.store(self._value(w.field(node, "s1")), f.at(self.operands, "ptr", 2))
        f.goto(done)
        f.start(one)
        f.goto(done)
        f.start(done)

    def _value(self, saved: Value) -> Value:
        """The array of a residual that nothing was written to."""
        f, w = self.f, self.w
        w.need(w.differs(saved, w.null), "stop")
        kind = w.field(saved, "type")
        tensor, ref, rest, kept, other, array, done = (
            f.label(n) for n in ("tensor", "ref", "rest", "kept", "other", "array", "value"))
        whole_tensor = w.same(kind, w.env("tensor")) | w.same(kind, w.env("parameter"))
        f.branch(whole_tensor, tensor, rest)
        f.start(tensor)
        w.need(w.has(saved, "_cell", w.none), "stop")
        of_tensor, block_tensor = w.field(saved, "array"), f.block
        f.goto(done)
        f.start(rest)
        f.branch(w.same(kind, w.env("ref")), ref, other)
        f.start(ref)
        w.need(w.untouched(w.field(saved, "ref.cell"), "failed"), "stop")
        of_ref, block_ref = w.field(saved, "ref.array"), f.block
        f.goto(done)
        f.start(other)
        f.branch(w.same(kind, w.env("kept")), kept, array)
        f.start(kept)
        whole = w.field(saved, "kept.tensor")
        w.need(w.has(whole, "type", w.env("tensor")) | w.has(whole, "type", w.env("parameter")),
               "stop")
        cell = w.field(whole, "_cell")
        now = w.got(cell, "version", "failed")
        w.need(w.same(now, w.field(saved, "kept.version")), "stop")
        w.need(w.same(w.got(cell, "exposed", "failed"), w.env("false")), "stop")
        of_kept, block_kept = w.field(whole, "array"), f.block
        f.goto(done)
        f.start(array)
        w.need(w.same(kind, w.env("array_type")), "stop")
        block_array = f.block
        f.goto(done)
        f.start(done)
        return f.phi("ptr", [(of_tensor, block_tensor), (of_ref, block_ref),
                             (of_kept, block_kept), (saved, block_array)])

    def _edges(self, node: Value, plan: Value) -> list[Value]:
        """The node's two edges (None where there is one)."""
        f, w = self.f, self.w
        pair = w.has(plan, "plan.pair", w.env("true"))
        first, second, done = w.field(node, "e0"), f.label("second"), f.label("edges")
        before = f.block
        nothing = w.none
        f.branch(pair, second, done)
        f.start(second)
        other = w.field(node, "e1")
        f.goto(done)
        f.start(done)
        edges = [first, f.phi("ptr", [(nothing, before), (other, second)])]
        for e in edges:
            w.need(w.differs(e, w.null), "stop")
        return edges

    def _alone(self, edges: list[Value], size: Value, limit: Value) -> None:
        """Stop at a large node whose edges lead to one place, or to sums that have begun, or whose
        cotangent may give its memory on."""
        f, w = self.f, self.w
        great, done = f.label("great"), f.label("alone")
        f.branch(size.compare("slt", limit), done, great)
        f.start(great)
        whole = f.call("PyLong_AsLongLong", "i64", w.env("whole"))
        w.need(size.compare("slt", whole), "stop")
        w.need(w.differs(edges[0], edges[1]) | w.same(edges[0], w.none), "stop")
        for e in edges:
            held = f.call("PyDict_Contains", "i32", self.args[CTS], e)
            self._good(held)
            w.need(held.compare("eq", 0), "stop")
        f.goto(done)
        f.start(done)

    def _release(self, node: Value) -> None:
        """Put the mark in the place of the residuals, if there are any and they are not kept."""
        w = self.w
        mark, old = self.args[MARK], w.field(node, "s0")
        gone = w.differs(mark, w.none) & w.differs(old, w.none)

        def replace() -> None:
            second = w.field(node, "s1")
            w.put(node, "s0", mark)
            w.put(node, "s1", w.none)
            w.drop(old)
            w.when(w.differs(second, w.null), lambda: w.drop(second))
        w.when(gone, replace)

    def _deliver(self, edge: Value, ct: Value, size: Value, done: str) -> None:
        """Add a cotangent to what an edge has got so far."""
        f, w = self.f, self.w
        w.need(w.differs(ct, w.null), "failed")
        odd, store, join = f.label("odd"), f.label("store"), f.label("join")
        w.need(w.has(ct, "type", w.env("array_type")), odd)
        w.need(w.differs(w.field(edge, "type"), w.env("port")), odd)
        w.fits(w.shape_of(edge), ct, odd)
        have = f.call("PyDict_GetItemWithError", "ptr", self.args[CTS], edge)
        f.branch(w.same(have, w.null), store, join)
        f.start(store)
        self._good(f.call("PyDict_SetItem", "i32", self.args[CTS], edge, ct))
        f.goto(done)
        f.start(join)
        large = f.call("PyLong_AsLongLong", "i64", w.env("large"))
        w.need(f.emit("i1", f"icmp slt i64 {size.ref}, {large.ref}"), odd)
        f.store(have, self.operands)
        f.store(ct, f.at(self.operands, "ptr", 1))
        total = f.call("PyObject_Vectorcall", "ptr", w.env("plus"), self.operands, f.i64(2), w.null)
        w.need(w.differs(total, w.null), "failed")
        status = f.call("PyDict_SetItem", "i32", self.args[CTS], edge, total)
        w.drop(total)
        self._good(status)
        f.goto(done)
        f.start(odd)
        self._call(self.args[DELIVER], edge, ct)
        f.goto(done)
