"""The machine code with which the ledger of memory writes down what ops and nodes gave.

    ran(op, operands, attributes, result) -> bool
    pulled(node, results) -> bool
    landed(leaf) -> bool
    owned(tensors, role) -> bool

do what `before`, `forward` and `after`, what `backward`, what `accumulated` and what `adopt` of
`memory/ledger.py` do in Python, where the steps are described: the same records in the same log.
They answer False, and have written nothing of the event, where something unusual is met (arrays
over memory that is not NumPy's, operands that were not seen before, custom functions): Python then
does it. `self` is the tuple of what a ledger writes to.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from adjoint.kernels.ir import Code, Value
from adjoint.kernels.ledger_ir import NODES, PATHS, WALKING, Writes, declare

WRITERS = "ran", "pulled", "landed", "owned"


def text(offsets: Mapping[str, int]) -> str:
    """The IR."""
    code, first = Code(), offsets["type"] + 8
    # the words of a weak reference (`memory/written.py` has checked them), and the first of those
    # to an array
    offsets = {**offsets, "referent": first, "callback": first + 8, "next": first + 32,
               "weakrefs": np.ndarray.__weakrefoffset__}
    declare(code, offsets)
    for part in (_Ran, _Pulled, _Landed, _Owned):
        part(code, offsets).emit()
    return code.text()


class _Ran(Writes):
    """`ran`: an op."""

    name, builtin = "ran", True

    def emit(self) -> None:
        f, w = self.f, self.w
        self.pair()
        self.room(8)
        self.word_of_stack, self.nodes, self.first, one = (
            f.emit("ptr", "alloca ptr, align 8") for _ in range(4))
        op, operands, _, result = (f.load(f.at(f.args[1], "ptr", i), "ptr") for i in range(4))
        w.need(w.has(operands, "type", w.env("tuple")), "other")
        self.each(f.at(operands, "i8", self.at["items"]), w.length(operands), self._operand)
        f.store(result, one)
        several = w.has(result, "type", w.env("tuple"))
        self.parts = w.either(several, lambda: f.at(result, "i8", self.at["items"]), lambda: one)
        self.count = w.either(several, lambda: w.length(result), lambda: f.i64(1))
        for slot in (self.nodes, self.first):
            f.store(w.null, slot)
        self.each(self.parts, self.count, self._part)
        module = self.module()
        self._unwrap(module)
        name = self.hold(self.new("PyObject_GetAttr", op, w.env("name")))
        walking = f.load(self.word(WALKING), "i64").compare("ne", 0)
        role = f.select(walking, w.env("temporary"), w.env("empty"))
        node = f.load(self.first, "ptr")
        self.each(self.parts, self.count, lambda i, t: self.enter(
            w.field(t, "array"), name, role, node, module))
        self.mark(name, module)
        f.goto("done")
        self.ends(done="true", other="false", failed=w.null)

    def _operand(self, _: Value, a: Value) -> None:
        """A tensor has to be known."""
        w = self.w
        kind = w.field(a, "type")

        def known() -> Value:
            array = w.field(a, "array")
            w.need(w.has(array, "type", w.env("array_type")), "other")
            return w.differs(self.known(array), w.null)

        def other() -> Value:
            plain = w.same(kind, w.env("array_type"))
            for name in ("none_type", "float", "int", "bool"):
                plain = plain | w.same(kind, w.env(name))
            return plain
        w.need(w.either(self.is_tensor(a), known, other), "other")

    def _part(self, i: Value, t: Value) -> None:
        """A result: `nodes` becomes its edge, if it is the first that has one; so does `first`, if
        it is the first of all."""
        f, w = self.f, self.w
        w.need(self.is_tensor(t), "other")
        self.possible(w.field(t, "array"))
        edge = w.field(t, "_edge")
        w.need(w.differs(edge, w.null), "other")

        def note() -> None:
            w.when(w.same(f.load(self.nodes, "ptr"), w.null), lambda: f.store(edge, self.nodes))
            w.when(i.compare("eq", 0), lambda: f.store(edge, self.first))
        w.when(w.differs(edge, w.none), note)

    def _unwrap(self, module: Value) -> None:
        """`first`: the node of the first result, or NULL; what the node keeps is written down."""
        f, w = self.f, self.w
        some, done = f.label("node"), f.label("without")
        edge, first = f.load(self.nodes, "ptr"), f.load(self.first, "ptr")
        f.branch(w.differs(edge, w.null), some, done)
        f.start(some)

        def inner(e: Value) -> Value:
            return w.either(w.has(e, "type", w.env("port")), lambda: w.field(e, "port.node"),
                            lambda: e)
        node = inner(edge)
        w.when(w.differs(first, w.null), lambda: f.store(inner(first), self.first))
        self._keeps(node, module)
        f.goto(done)
        f.start(done)

    def _keeps(self, node: Value, module: Value) -> None:
        f, w = self.f, self.w
        key = self.hold(self.address(node))
        kept = self.hold(self.new("PyList_New", f.i64(0)))
        pair, wide, gathered, done = (f.label(n) for n in ("pair", "wide", "gathered", "keeps"))
        f.branch(self.ordinary(node), pair, wide)
        f.start(pair)
        saved = self._there(w.field(node, "s0"), gathered)
        w.need(w.has(saved, "type", w.env("tuple")) ^ True, "other")
        self.keep(kept, saved, node, module)
        both = w.length(w.field(w.field(node, "plan"), "plan.names")).compare("eq", 2)
        w.when(both, lambda: self.keep(kept, w.field(node, "s1"), node, module))
        f.goto(gathered)
        f.start(wide)
        saved = self._there(w.field(node, "saved"), gathered)
        w.need(w.has(saved, "type", w.env("tuple")), "other")
        self.each(f.at(saved, "i8", self.at["items"]), w.length(saved),
                   lambda i, s: self.keep(kept, s, node, module))
        f.goto(gathered)
        f.start(gathered)
        self.fine(f.call("PyDict_SetItem", "i32", self.mine(PATHS), key, module))
        some = f.label("holds")
        f.branch(f.call("PyList_Size", "i64", kept).compare("sgt", 0), some, done)
        f.start(some)
        self._saver(node, key, kept)
        f.goto(done)
        f.start(done)

    def _there(self, saved: Value, nothing: str) -> Value:
        """What is saved; to the block `nothing` where nothing is."""
        w = self.w
        w.need(w.differs(saved, w.null), "other")
        w.need(w.differs(saved, w.none), nothing)
        w.need(w.has(saved, "type", w.env("freed")) ^ True, nothing)
        return saved

    def _saver(self, node: Value, key: Value, kept: Value) -> None:
        """Write down that the node keeps something."""
        f, w = self.f, self.w
        name = self.named(node)
        saver = self.hold(self.weak("saver", node))
        n = f.call("PyList_Size", "i64", kept)
        for slot, value in (("key", key), ("name", name), ("code", w.field(node, "code")),
                            ("lasti", w.field(node, "lasti")), ("kept", w.none),
                            ("count", self.hold(self.new("PyLong_FromLongLong", n)))):
            w.put(saver, "saver." + slot, value)
        self.fine(f.call("PyDict_SetItem", "i32", self.mine(NODES), key, saver))
        self.write(saver)

        def one(i: Value, _: list[Value]) -> list[Value]:
            self.write(f.call("PyList_GetItem", "ptr", kept, i))
            return []
        f.loop(f.i64(0), n, 1, [], one)


class _Pulled(Writes):
    """`pulled`: the rules of a node."""

    name, builtin = "pulled", True

    def emit(self) -> None:
        f, w = self.f, self.w
        self.room(5)
        self.word_of_stack = f.emit("ptr", "alloca ptr, align 8")
        node, results = (f.load(f.at(f.args[1], "ptr", i), "ptr") for i in range(2))
        w.need(w.has(results, "type", w.env("list")), "other")
        n = f.call("PyList_Size", "i64", results)
        self._given(results, n, self.possible)
        pair = self.ordinary(node)
        key = self.hold(self.address(node))
        self._released(node, key, pair)
        found = self.module()
        path = w.either(w.same(found, w.env("empty")), lambda: f.call(
            "PyDict_GetItemWithError", "ptr", self.mine(PATHS), key), lambda: found)
        module = w.either(w.same(path, w.null), lambda: w.env("empty"), lambda: path)
        w.hold(module)
        self.hold(module)
        name = self.named(node)
        self._given(results, n, lambda a: self.enter(a, name, w.env("temporary"), node, module))
        self.mark(name, module)
        f.goto("done")
        self.ends(done="true", other="false", failed=w.null)

    def _given(self, results: Value, n: Value, body: Callable[[Value], object]) -> None:
        """`body(array)` for what rules gave."""
        f, w = self.f, self.w

        def one(i: Value, _: list[Value]) -> list[Value]:
            c = f.call("PyList_GetItem", "ptr", results, i)
            w.when(w.differs(c, w.none), lambda: body(w.either(
                self.is_tensor(c), lambda: w.field(c, "array"), lambda: c)))
            return []
        f.loop(f.i64(0), n, 1, [], one)

    def _released(self, node: Value, key: Value, pair: Value) -> None:
        """If the node has kept something and does no more: write it down."""
        f, w = self.f, self.w
        known, its, done = f.label("known"), f.label("its"), f.label("released")
        saver = f.call("PyDict_GetItemWithError", "ptr", self.mine(NODES), key)
        f.branch(w.differs(saver, w.null), known, done)
        f.start(known)
        w.need(w.has(saver, "referent", node), done)
        saved = w.either(pair, lambda: w.field(node, "s0"), lambda: w.field(node, "saved"))
        w.need(w.differs(saved, w.null), done)
        f.branch(w.same(saved, w.none) | w.has(saved, "type", w.env("freed")), its, done)
        f.start(its)
        self.write(saver)
        f.goto(done)
        f.start(done)


class _Landed(Writes):
    """`landed`: a gradient was stored, or added to."""

    name, builtin = "landed", True

    def emit(self) -> None:
        f, w = self.f, self.w
        self.word_of_stack = f.emit("ptr", "alloca ptr, align 8")
        leaf = f.load(f.args[1], "ptr")
        w.need(self.is_tensor(leaf), "other")
        grad = w.got(leaf, "_grad", "failed")
        w.need(self.is_tensor(grad), "other")
        array, module = w.field(grad, "array"), self.module()
        self.possible(array)
        called = w.field(self._entry(leaf), "entry.name")
        w.need(w.differs(called, w.env("empty")), "other")
        entry = self.enter(array, w.env("empty"), w.env("gradient"), w.null, module)
        unnamed, named = f.label("unnamed"), f.label("named")
        f.branch(w.has(entry, "entry.name", w.env("empty")), unnamed, named)
        f.start(unnamed)
        name = self.new("PyUnicode_Concat", w.env("grad_of"), called)
        w.put(entry, "entry.name", name, owned=True)
        w.drop(w.env("empty"))
        f.goto(named)
        f.start(named)
        role = w.field(entry, "entry.role")
        w.put(entry, "entry.role", w.env("gradient"))
        w.drop(role)
        self.mark(w.env("accumulated"), module)
        f.goto("done")
        self.ends(done="true", other="false", failed=w.null)

    def _entry(self, tensor: Value) -> Value:
        """The entry of a tensor, which has to have one."""
        w = self.w
        array = w.field(tensor, "array")
        w.need(w.has(array, "type", w.env("array_type")), "other")
        entry = self.known(array)
        w.need(w.differs(entry, w.null), "other")
        return entry


class _Owned(Writes):
    """`owned`: whether all tensors of a list have entries with that role and a name."""

    name, builtin = "owned", True

    def emit(self) -> None:
        f, w = self.f, self.w
        things, role = (f.load(f.at(f.args[1], "ptr", i), "ptr") for i in range(2))
        n = f.call("PyList_Size", "i64", things)

        def one(i: Value, _: list[Value]) -> list[Value]:
            t = f.call("PyList_GetItem", "ptr", things, i)
            kind, skip, look = w.field(t, "type"), f.label("skip"), f.label("look")
            plain = w.same(kind, w.env("none_type"))
            for name in ("float", "int", "bool"):
                plain = plain | w.same(kind, w.env(name))
            f.branch(plain, skip, look)
            f.start(look)
            w.need(self.is_tensor(t), "other")
            array = w.field(t, "array")
            w.need(w.has(array, "type", w.env("array_type")), "other")
            entry = self.known(array)
            w.need(w.differs(entry, w.null), "other")
            w.need(w.has(entry, "referent", array) & w.has(entry, "entry.role", role), "other")
            w.need(w.differs(w.field(entry, "entry.name"), w.env("empty")), "other")
            f.goto(skip)
            f.start(skip)
            return []
        f.loop(f.i64(0), n, 1, [], one)
        f.goto("done")
        self.ends(done="true", other="false")
