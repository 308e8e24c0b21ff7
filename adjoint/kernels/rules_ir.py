"""What the machine code of `walk` does with nodes whose rules are the record's.

Such a node has any number of outputs and edges, and attributes. Its rules are called as
`Plan.pull` calls them once they are written out; residuals go before, and what the rules gave is
added where it has to go.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from adjoint.kernels.ir import Code, Function, Value
from adjoint.kernels.objects_ir import Writer

ENV = ("array_type", "tensor", "parameter", "plan_type", "ref", "kept", "accumulate", "port",
       "tuple", "none", "true", "false", "touched", "exposed", "version", "plus", "large",
       "whole", "pair_node", "op_node", "aval_type", "float", "int", "bool", "off", "hooked",
       "ports", "list", "edges", "refs")
Body = Callable[[Value, Value, Value], None]
ORDER, START, CTS, LAST, MARK, DELIVER, LEAVES, FITTED, TELL = range(9)       # arguments of `walk`


class Steps:
    """A function under construction; its block "failed" returns with an exception set."""

    f: Function
    w: Writer
    args: list[Value]
    operands: Value

    def good(self, status: Value) -> None:
        """Go on unless a C function reported an error."""
        self.w.need(status.compare("sge", 0), "failed")

    def result(self, function: Value, *operands: Value) -> Value:
        """What a Python function returns."""
        made = self._called(function, *operands)
        self.w.need(self.w.differs(made, self.w.null), "failed")
        return made

    def _called(self, function: Value, *operands: Value) -> Value:
        """The same, NULL with an exception."""
        f = self.f
        for k, o in enumerate(operands):
            f.store(o, f.at(self.operands, "ptr", k))
        return f.call("PyObject_Vectorcall", "ptr", function, self.operands,
                      f.i64(len(operands)), self.w.null)

    def call(self, function: Value, *operands: Value) -> None:
        """Call a Python function for what it does."""
        self.w.drop(self.result(function, *operands))

    def fits_port(self, edge: Value, c: Value, otherwise: str) -> None:
        """Go on where an array has shape and dtype of a port."""
        w = self.w
        w.fits(w.field(edge, "port.shape"), c, otherwise, "List")
        w.need(w.has(c, "descr", w.field(edge, "port.dtype")), otherwise)


class Residual(Steps):
    """`ptr residual(ptr saved, i1 general)`: the array of a residual that nothing was written to;
    in `general` also what is no array: a number, a shape with its dtype, several of those. NULL,
    as a rule without an exception, where there is none."""

    def __init__(self, code: Code, offsets: Mapping[str, int]) -> None:
        f = self.f = code.function("residual", [("ptr", "saved"), ("i1", "general")],
                                   returns="ptr", internal=True)
        w = self.w = Writer(f, offsets, ENV)
        f.ret(self._value(*f.args))
        f.start("stop")
        f.ret(w.null)
        f.start("failed")
        f.ret(w.null)

    def _is_constant(self, saved: Value) -> Value:
        """Whether a residual is an array, or no residual at all, or a tuple of such."""
        f, w = self.f, self.w

        def all_of() -> Value:
            def one(i: Value, fine: list[Value]) -> list[Value]:
                item = w.item(saved, i)
                return [fine[0] & (w.has(item, "type", w.env("aval_type"))
                                   | w.same(item, w.none))]
            n = w.length(saved)
            return f.loop(f.i64(0), n, 1, [f.const("i1", True)], one)[0]

        def single() -> Value:
            kind = w.field(saved, "type")
            good = w.same(saved, w.none)
            for name in ("array_type", "aval_type", "float", "int", "bool"):
                good = good | w.same(kind, w.env(name))
            return good
        return w.either(w.has(saved, "type", w.env("tuple")), all_of, single)

    def _value(self, saved: Value, general: Value) -> Value:
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
        w.need(w.either(general, partial(self._is_constant, saved),
                        lambda: w.same(kind, w.env("array_type"))), "stop")
        block_array = f.block
        f.goto(done)
        f.start(done)
        return f.phi("ptr", [(of_tensor, block_tensor), (of_ref, block_ref),
                             (of_kept, block_kept), (saved, block_array)])


class Send(Steps):
    """`i32 send(ptr cts, ptr deliver, ptr edge, ptr ct, i64 size, i1 fits)`: adds a cotangent to
    what an edge has got so far, negative with an exception; `fits`: its shape is the edge's."""

    def __init__(self, code: Code, offsets: Mapping[str, int]) -> None:
        f = self.f = code.function("send", [
            ("ptr", "cts"), ("ptr", "deliver"), ("ptr", "edge"), ("ptr", "ct"), ("i64", "size"),
            ("i1", "fits")], returns="i32", internal=True)
        w = self.w = Writer(f, offsets, ENV)
        self.cts, self.deliver, edge, ct, size, fits = f.args
        self.operands = f.emit("ptr", "alloca [2 x ptr], align 8")
        odd, port, plain, old, new = (f.label(n) for n in ("odd", "port", "plain", "old", "new"))
        w.need(w.has(ct, "type", w.env("array_type")), odd)
        f.branch(w.has(edge, "type", w.env("port")), port, plain)
        f.start(port)
        f.branch(fits, old, new)
        f.start(new)
        self.fits_port(edge, ct, odd)
        f.goto(old)
        f.start(old)
        self._to_port(edge, ct, odd)
        f.start(plain)
        old, new = f.label("old"), f.label("new")
        f.branch(fits, old, new)
        f.start(new)
        w.fits(w.shape_of(edge), ct, odd)
        f.goto(old)
        f.start(old)
        self._add(edge, ct, size, odd)
        f.start("done")
        f.ret(f.const("i32", 0))
        f.start("failed")
        f.ret(f.const("i32", -1))

    def _to_port(self, edge: Value, ct: Value, odd: str) -> None:
        """Put the first cotangent of one of several outputs beside that of another, and go to
        "done"; the very first of a node, and further ones, are for the block `odd`."""
        f, w = self.f, self.w
        have = f.call("PyDict_GetItemWithError", "ptr", self.cts, w.field(edge, "port.node"))
        w.need(w.differs(have, w.null), odd)
        w.need(w.has(have, "type", w.env("list")), odd)
        index = f.call("PyLong_AsLongLong", "i64", w.field(edge, "port.index"))
        w.need(w.same(f.call("PyList_GetItem", "ptr", have, index), w.none), odd)
        w.hold(ct)
        f.call("PyList_SetItem", "i32", have, index, ct)
        f.goto("done")

    def _add(self, edge: Value, ct: Value, size: Value, odd: str) -> None:
        """Add a cotangent that fits to what an edge has got so far, and go to "done"; the block
        `odd`, which begins here, has the engine do it."""
        f, w = self.f, self.w
        store, join = f.label("store"), f.label("join")
        have = f.call("PyDict_GetItemWithError", "ptr", self.cts, edge)
        f.branch(w.same(have, w.null), store, join)
        f.start(store)
        self.good(f.call("PyDict_SetItem", "i32", self.cts, edge, ct))
        f.goto("done")
        f.start(join)
        w.need(w.has(have, "type", w.env("array_type")), odd)
        large = f.call("PyLong_AsLongLong", "i64", w.env("large"))
        w.need(f.emit("i1", f"icmp slt i64 {size.ref}, {large.ref}"), odd)
        f.store(have, self.operands)
        f.store(ct, f.at(self.operands, "ptr", 1))
        total = f.call("PyObject_Vectorcall", "ptr", w.env("plus"), self.operands, f.i64(2), w.null)
        w.need(w.differs(total, w.null), "failed")
        status = f.call("PyDict_SetItem", "i32", self.cts, edge, total)
        w.drop(total)
        self.good(status)
        f.goto("done")
        f.start(odd)
        self.call(self.deliver, edge, ct)
        f.goto("done")


class Rules(Steps):
    """A walk under construction. Its blocks: "stop" returns the index of the node, which is as it
    was; "failed" returns NULL. Both give back what is held at `found` and `vals`."""

    found: Value
    vals: Value
    count: Value

    def __init__(self, code: Code, offsets: Mapping[str, int]) -> None:
        code.declare("PyList_Append", "declare i32 @PyList_Append(ptr, ptr)")
        Residual(code, offsets)
        Send(code, offsets)
        self.f = code.function("walk", [("ptr", "self"), ("ptr", "args"), ("i64", "count")],
                               returns="ptr")
        self.w = Writer(self.f, offsets, ENV)
        self.at = offsets

    def give_back(self, place: Value) -> None:
        """Drop what is held at a place of the stack, if anything is."""
        thing = self.f.load(place, "ptr")
        self.f.store(self.w.null, place)
        self.w.when(self.w.differs(thing, self.w.null), partial(self.w.drop, thing))

    def value(self, saved: Value, *, general: bool = False) -> Value:
        """What `residual` says; "stop" where there is nothing."""
        f, w = self.f, self.w
        found = f.call("residual", "ptr", saved, f.const("i1", general))
        none, read = f.label("none"), f.label("value")
        f.branch(w.same(found, w.null), none, read)
        f.start(none)
        error = f.call("PyErr_Occurred", "ptr")
        f.branch(w.same(error, w.null), "stop", "failed")
        f.start(read)
        return found

    def send(self, edge: Value, ct: Value, size: Value, fits: bool) -> None:
        """Add a cotangent to what an edge has got so far."""
        f = self.f
        self.good(f.call("send", "i32", self.args[CTS], self.args[DELIVER], edge, ct, size,
                         f.const("i1", fits)))

    def _parent(self, node: Value) -> Value:
        """The class that a node's class derives from."""
        return self.w.field(self.w.field(node, "type"), "parent")

    # -- a node -----------------------------------------------------------------------------
    def by_rules(self, node: Value, plan: Value, ct: Value) -> None:
        """Visit a node of the record's rules; "stop" where it is not plain."""
        f, w = self.f, self.w
        rules = w.field(plan, "plan.rules")
        w.need(w.differs(rules, w.none), "stop")
        w.need(w.same(self._parent(node), w.env("op_node")), "stop")
        w.need(w.same(w.got(node, "hooked", "failed"), w.env("false")), "stop")
        single = w.same(w.got(node, "ports", "failed"), w.env("off"))
        w.need(w.either(single, lambda: w.has(ct, "type", w.env("array_type")),
                        lambda: self._some(ct)), "stop")
        edges, saved = w.field(node, "edges"), w.field(node, "saved")
        n = w.length(edges)
        f.store(f.i64(3), self.count)
        w.when(w.has(plan, "plan.grows", w.env("true")), lambda: self._begun(edges, n))
        self._read(saved)
        self._mark(node, plan, saved)
        w.hold(ct)
        self.good(f.call("PyDict_DelItem", "i32", self.args[CTS], node))
        found = f.call("PyObject_Vectorcall", "ptr", rules, self._laid(
            ct, f.load(self.vals, "ptr"), w.field(node, "attrs"), f.load(self.found, "ptr")),
            f.load(self.count, "i64"), w.null)
        self.give_back(self.vals)
        self.give_back(self.found)
        self._spread(node, edges, n, found, ct)

    def _some(self, cts: Value) -> Value:
        """Whether there is a cotangent for one of several outputs: a list has them."""
        f, w = self.f, self.w
        w.need(w.has(cts, "type", w.env("list")), "stop")

        def one(i: Value, found: list[Value]) -> list[Value]:
            return [found[0] | w.differs(f.call("PyList_GetItem", "ptr", cts, i), w.none)]
        return f.loop(f.i64(0), f.call("PyList_Size", "i64", cts), 1, [f.const("i1", False)],
                      one)[0]

    def _laid(self, *operands: Value) -> Value:
        for k, o in enumerate(operands):
            self.f.store(o, self.f.at(self.operands, "ptr", k))
        return self.operands

    def _begun(self, edges: Value, n: Value) -> None:
        """`found`: a list of the large sums that have begun where the cotangents go, which rules
        may add to, and None for the others; it is the fourth operand of such rules."""
        f, w = self.f, self.w
        large = f.call("PyLong_AsLongLong", "i64", w.env("large"))
        sums = self._list(n)
        f.store(sums, self.found)

        def one(i: Value, _: list[Value]) -> list[Value]:
            w.hold(w.none)
            f.call("PyList_SetItem", "i32", sums, i, w.none)
            have = f.call("PyDict_GetItemWithError", "ptr", self.args[CTS],
                          w.item(edges, i))
            some = f.label("sum")
            done = f.label("no_sum")
            f.branch(w.differs(have, w.null), some, done)
            f.start(some)
            w.need(w.has(have, "type", w.env("array_type")), "stop")
            w.need(f.call("elements", "i64", have).compare("sge", large), done)
            w.need(w.has(have, "base", w.null), done)
            held = self.result(w.env("refs"), have)          # by the dict alone
            alone = f.call("PyLong_AsLongLong", "i64", held).compare("eq", 1)
            w.drop(held)
            w.need(alone, done)
            w.hold(have)
            f.call("PyList_SetItem", "i32", sums, i, have)
            f.goto(done)
            f.start(done)
            return []
        f.loop(f.i64(0), n, 1, [], one)
        f.store(f.i64(4), self.count)

    def _read(self, saved: Value) -> None:
        """`vals`: a list of what the rules read."""
        f, w = self.f, self.w
        nothing, some, done = f.label("reads_nothing"), f.label("reads"), f.label("has_read")
        f.branch(w.same(saved, w.none), nothing, some)
        f.start(nothing)
        f.store(self._list(f.i64(0)), self.vals)
        f.goto(done)
        f.start(some)
        w.need(w.has(saved, "type", w.env("tuple")), "stop")
        n = w.length(saved)
        vals = self._list(n)
        f.store(vals, self.vals)

        def one(i: Value, _: list[Value]) -> list[Value]:
            value = self.value(w.item(saved, i), general=True)
            w.hold(value)
            f.call("PyList_SetItem", "i32", vals, i, value)
            return []
        f.loop(f.i64(0), n, 1, [], one)
        f.goto(done)
        f.start(done)

    def _list(self, n: Value) -> Value:
        made = self.f.call("PyList_New", "ptr", n)
        self.w.need(self.w.differs(made, self.w.null), "failed")
        return made

    def _mark(self, node: Value, plan: Value, saved: Value) -> None:
        """Put the mark in the place of residuals that hold memory, unless they are kept."""
        w = self.w
        mark = self.args[MARK]

        def replace() -> None:
            w.put(node, "saved", mark)
            w.drop(saved)
        held = w.length(w.field(plan, "plan.kept")).compare("ne", 0)
        w.when(held & w.differs(mark, w.none) & w.differs(saved, w.none), replace)

    # -- what rules gave --------------------------------------------------------------------
    def _spread(self, node: Value, edges: Value, n: Value, found: Value, ct: Value) -> None:
        """Add what rules gave for `ct`, of which a reference is ours, to what the edges have."""
        f, w = self.f, self.w
        lost, given = f.label("lost"), f.label("given")
        f.branch(w.same(found, w.null), lost, given)
        f.start(lost)
        w.drop(ct)
        f.goto("failed")
        f.start(given)
        f.store(found, self.found)
        unfit, done, own = f.label("unfit"), f.label("spread"), f.label("own")
        told = w.differs(self.args[TELL], w.none)
        self._each(edges, n, found, lambda i, e, c: self._fits(e, c, unfit))
        said = w.either(told, lambda: self._called(self.args[TELL], node, found, ct),
                        lambda: w.env("true"))
        w.drop(ct)
        w.need(w.differs(said, w.null), "failed")
        w.when(told, lambda: w.drop(said))
        self._each(edges, n, found, lambda i, e, c: self._take(found, i, e, c))
        f.goto(done)
        f.start(unfit)
        added = f.call("PyList_Append", "i32", found, ct)
        w.drop(ct)
        self.good(added)
        f.branch(told, own, "engine")
        f.start(own)
        self.call(self.args[TELL], node, found, w.none)
        f.goto(done)
        f.start("engine")
        self.call(self.args[FITTED], edges, found)
        f.goto(done)
        f.start(done)
        self.give_back(self.found)

    def _each(self, edges: Value, n: Value, found: Value, body: Body) -> None:
        """`body(index, edge, cotangent)` for every edge that gets one."""
        f, w = self.f, self.w

        def one(i: Value, _: list[Value]) -> list[Value]:
            e = w.item(edges, i)
            c = f.call("PyList_GetItem", "ptr", found, i)
            wanted = w.differs(e, w.none) & w.differs(c, w.none)
            w.when(wanted, lambda: body(i, e, c))
            return []
        f.loop(f.i64(0), n, 1, [], one)

    def _fits(self, edge: Value, c: Value, unfit: str) -> None:
        """Go on where a cotangent has shape and dtype of the edge."""
        f, w = self.f, self.w
        w.need(w.has(c, "type", w.env("array_type")), unfit)
        port, plain, good = f.label("port"), f.label("plain"), f.label("fits")
        f.branch(w.has(edge, "type", w.env("port")), port, plain)
        f.start(port)
        self.fits_port(edge, c, unfit)
        f.goto(good)
        f.start(plain)
        w.fits(w.shape_of(edge), c, unfit)

        def wide() -> Value:
            w.need(w.same(self._parent(edge), w.env("op_node")), unfit)
            return w.field(edge, "dtype")

        def node() -> Value:
            return w.either(w.same(self._parent(edge), w.env("pair_node")), lambda: w.field(
                w.field(edge, "plan"), "plan.dtype"), wide)
        dtype = w.either(w.has(edge, "type", w.env("accumulate")),
                         partial(w.field, edge, "leaf.dtype"), node)
        w.need(w.has(c, "descr", dtype), unfit)
        f.goto(good)
        f.start(good)

    def _take(self, found: Value, i: Value, edge: Value, c: Value) -> None:
        """Add a cotangent, which nobody holds afterwards but the sum."""
        f, w = self.f, self.w
        w.hold(c)
        f.store(c, self.vals)
        w.hold(w.none)
        f.call("PyList_SetItem", "i32", found, i, w.none)
        self.send(edge, c, f.call("elements", "i64", c), True)
        self.give_back(self.vals)
