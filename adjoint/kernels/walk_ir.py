"""The machine code of `walk`: the plain part of a backward pass.

    PyObject *walk(PyObject *self, PyObject *const *args, Py_ssize_t count)
    walk(order, first, cts, last, mark, deliver, leaves, fitted, tell) -> index

visits the nodes of the list `order` from index `first` as `Backward.run` (`autograd/engine.py`)
does, and returns the index of the first node that is not plain (or the length): one with hooks,
with residuals that were packed, written to or released, or a large one whose
cotangents can be added to what its edges have got, or to each other, or with a cotangent of `whole`
elements, whose memory the engine may give to the result. Such a node is untouched. The rule of a
plain node is generated (`fast`: here), or is the record's rules written out (`rules`: `rules_ir`).
`mark` replaces released residuals (None: they are kept); `deliver(edge, ct)` adds a cotangent that
has to be brought into shape, that goes to a port, or to a sum of `large` elements; `fitted(edges,
results)` does so with all that rules gave; `leaves(node)` finishes the leaves that `last` lists for
the node. `tell(node, results, ct)`, if it is not None, tells who watches of a node; without `ct`,
which is the last of the results then, it also does what `fitted` does.
"""
from __future__ import annotations

from collections.abc import Mapping

from adjoint.kernels.ir import Code, Value
from adjoint.kernels.objects_ir import ELEMENTS, declare
from adjoint.kernels.rules_ir import CTS, ENV, LAST, LEAVES, MARK, ORDER, START, TELL, Rules

COUNT = 9                # arguments
SLICE = 4096             # nodes after which Python may look at signals and other threads


def text(offsets: Mapping[str, int]) -> str:
    """The IR."""
    code = Code()
    declare(code, ENV)
    code.declare("PySequence_List", "declare ptr @PySequence_List(ptr)")
    _Walk(code, offsets).emit()
    return code.text() + ELEMENTS.format(**offsets)


class _Walk(Rules):
    """The function."""

    def emit(self) -> None:
        f, w = self.f, self.w
        self.index, self.count = (f.emit("ptr", "alloca i64, align 8") for _ in range(2))
        self.found = f.emit("ptr", "alloca ptr, align 8")      # what the rule gave, while needed
        f.store(w.null, self.found)
        self.operands = f.emit("ptr", "alloca [4 x ptr], align 8")
        self.vals = f.emit("ptr", "alloca ptr, align 8")        # residuals of a general node
        f.store(w.null, self.vals)
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
        for place in (self.found, self.vals):
            self.give_back(place)
        f.ret(f.call("PyLong_FromLongLong", "ptr", f.load(self.index, "i64")))
        f.start("failed")
        for place in (self.found, self.vals):
            self.give_back(place)
        f.ret(w.null)

    def _plan(self, node: Value) -> Value:
        """The plan of a node of an op; the others are for Python."""
        w = self.w
        plan = w.field(node, "plan")
        w.need(w.differs(plan, w.null), "stop")
        w.need(w.has(plan, "type", w.env("plan_type")), "stop")
        return plan

    def _finish(self, node: Value) -> None:
        """Finish the leaves of the node, if it has some."""
        f = self.f
        held = f.call("PyDict_Contains", "i32", self.args[LAST], node)
        self.good(held)
        some = f.label("leaves")
        f.branch(held.compare("eq", 0), "next", some)
        f.start(some)
        self.call(self.args[LEAVES], node)
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
        self._plan(node)                     # (a Function runs without a cotangent, too)
        self._finish(node)
        f.start(present)
        plan = self._plan(node)
        rule = w.field(plan, "plan.fast")
        general, quick = f.label("general"), f.label("quick")
        f.branch(w.same(rule, w.none), general, quick)
        f.start(general)
        self.by_rules(node, plan, ct)
        self._finish(node)
        f.start(quick)
        w.need(w.has(ct, "type", w.env("array_type")), "stop")
        size = f.call("elements", "i64", ct)
        limit = f.call("PyLong_AsLongLong", "i64", w.field(plan, "plan.limit"))
        rule = f.select(size.compare("slt", limit), rule, w.field(plan, "plan.large"))
        self._residuals(node, plan)
        edges = self._edges(node, plan)
        self._alone(edges, size, limit)
        w.hold(ct)
        f.store(ct, self.operands)
        self.good(f.call("PyDict_DelItem", "i32", self.args[CTS], node))
        found = f.call("PyObject_Vectorcall", "ptr", rule, self.operands,
                       f.load(self.count, "i64"), w.null)
        f.store(found, self.found)
        f.store(ct, self.vals)
        w.need(w.differs(found, w.null), "failed")
        self._release(node)
        tell, alone = f.label("tell"), f.label("alone")
        f.branch(w.differs(self.args[TELL], w.none), tell, alone)
        f.start(tell)
        self._tell(node, found, ct)
        f.start(alone)
        f.store(w.null, self.vals)
        w.drop(ct)
        for k, e in enumerate(edges):
            wanted, done = f.label("wanted"), f.label("delivered")
            f.branch(w.same(e, w.none), done, wanted)
            f.start(wanted)
            ct = f.call("PyTuple_GetItem", "ptr", found, f.i64(k))
            w.need(w.differs(ct, w.null), "failed")
            self.send(e, ct, size, False)
            f.goto(done)
            f.start(done)
        f.goto("spread")
        f.start("spread")
        found = f.load(self.found, "ptr")
        f.store(w.null, self.found)
        w.drop(found)
        self._finish(node)

    def _tell(self, node: Value, found: Value, ct: Value) -> None:
        """Hand on what the rule gave for `ct`, of which a reference is ours."""
        f, w = self.f, self.w
        several = f.call("PySequence_List", "ptr", found)
        w.drop(found)
        f.store(several, self.found)
        w.need(w.differs(several, w.null), "failed")
        self.good(f.call("PyList_Append", "i32", several, ct))
        f.store(w.null, self.vals)
        w.drop(ct)
        self.call(self.args[TELL], node, several, w.none)
        f.goto("spread")

    def _residuals(self, node: Value, plan: Value) -> None:
        """The rule's operands after the cotangent, and how many there are with it."""
        f, w = self.f, self.w
        first = w.field(node, "s0")
        w.need(w.differs(first, w.null), "stop")
        f.store(f.i64(1), self.count)
        some, one, two, done = (f.label(n) for n in ("some", "one", "two", "read"))
        f.branch(w.same(first, w.none), done, some)
        f.start(some)
        names = w.length(w.field(plan, "plan.names"))
        w.need(names.compare("sle", 2), "stop")
        f.store(self.value(first), f.at(self.operands, "ptr", 1))
        f.store(names + 1, self.count)
        f.branch(names.compare("eq", 2), two, one)
        f.start(two)
        f.store(self.value(w.field(node, "s1")), f.at(self.operands, "ptr", 2))
        f.goto(done)
        f.start(one)
        f.goto(done)
        f.start(done)

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
        """Stop at a node of a kernel whose edges lead to one place, and at a large one whose edges
        lead to sums that have begun, or whose cotangent may give its memory on."""
        f, w = self.f, self.w
        kernel, great, done = f.label("kernel"), f.label("great"), f.label("alone")
        f.branch(size.compare("slt", limit), done, kernel)
        f.start(kernel)
        w.need(w.differs(edges[0], edges[1]) | w.same(edges[0], w.none), "stop")
        large = f.call("PyLong_AsLongLong", "i64", w.env("large"))
        f.branch(size.compare("slt", large), done, great)    # (nothing smaller is added to)
        f.start(great)
        whole = f.call("PyLong_AsLongLong", "i64", w.env("whole"))
        w.need(size.compare("slt", whole), "stop")
        for e in edges:
            held = f.call("PyDict_Contains", "i32", self.args[CTS], e)
            self.good(held)
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
