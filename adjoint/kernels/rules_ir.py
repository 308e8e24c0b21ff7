"""What the machine code of `walk` does with nodes whose rules are the record's.

Such a node has any number of outputs and edges, and attributes. Its rules are called as
`Plan.pull` calls them once they are written out; residuals go before, and what the rules gave is
added where it has to go.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from adjoint.kernels.ir import Code, Value
from adjoint.kernels.objects_ir import Writer

ENV = ("array_type", "tensor", "parameter", "plan_type", "ref", "kept", "accumulate", "port",
       "tuple", "none", "true", "false", "touched", "exposed", "version", "plus", "large",
       "whole", "pair_node", "op_node", "aval_type", "float", "int", "bool", "off", "hooked",
       "ports", "list", "edges")
Body = Callable[[Value, Value, Value], None]
ORDER, START, CTS, LAST, MARK, DELIVER, LEAVES, FITTED = range(8)       # arguments of `walk`


class Rules:
    """A walk under construction. Its blocks: "stop" returns the index of the node, which is as it
    was; "failed" returns NULL. Both give back what is held at `found` and `vals`."""

    args: list[Value]
    operands: Value
    found: Value
    vals: Value

    def __init__(self, code: Code, offsets: Mapping[str, int]) -> None:
        self.f = code.function("walk", [("ptr", "self"), ("ptr", "args"), ("i64", "count")],
                               returns="ptr")
        self.w = Writer(self.f, offsets, ENV)
        code.declare("PyList_Append", "declare i32 @PyList_Append(ptr, ptr)")
        self.at = offsets

    def good(self, status: Value) -> None:
        """Go on unless a C function reported an error."""
        self.w.need(status.compare("sge", 0), "failed")

    def result(self, function: Value, *operands: Value) -> Value:
        """What a Python function returns."""
        f, w = self.f, self.w
        for k, o in enumerate(operands):
            f.store(o, f.at(self.operands, "ptr", k))
        made = f.call("PyObject_Vectorcall", "ptr", function, self.operands,
                      f.i64(len(operands)), w.null)
        w.need(w.differs(made, w.null), "failed")
        return made

    def call(self, function: Value, *operands: Value) -> None:
        """Call a Python function for what it does."""
        self.w.drop(self.result(function, *operands))

    def give_back(self, place: Value) -> None:
        """Drop what is held at a place of the stack, if anything is."""
        thing = self.f.load(place, "ptr")
        self.f.store(self.w.null, place)
        self.w.when(self.w.differs(thing, self.w.null), partial(self.w.drop, thing))

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
        n = f.call("PyTuple_Size", "i64", edges)
        w.when(w.has(plan, "plan.grows", w.env("true")), lambda: self._no_sums(edges, n))
        self._read(saved)
        self._mark(node, plan, saved)
        w.hold(ct)
        self.good(f.call("PyDict_DelItem", "i32", self.args[CTS], node))
        found = f.call("PyObject_Vectorcall", "ptr", rules, self._three(
            ct, f.load(self.vals, "ptr"), w.field(node, "attrs")), f.i64(3), w.null)
        self.give_back(self.vals)
        self._spread(edges, n, found, ct)

    def _some(self, cts: Value) -> Value:
        """Whether there is a cotangent for one of several outputs: a list has them."""
        f, w = self.f, self.w
        w.need(w.has(cts, "type", w.env("list")), "stop")

        def one(i: Value, found: list[Value]) -> list[Value]:
            return [found[0] | w.differs(f.call("PyList_GetItem", "ptr", cts, i), w.none)]
        return f.loop(f.i64(0), f.call("PyList_Size", "i64", cts), 1, [f.const("i1", False)],
                      one)[0]

    def _three(self, *operands: Value) -> Value:
        for k, o in enumerate(operands):
            self.f.store(o, self.f.at(self.operands, "ptr", k))
        return self.operands

    def _no_sums(self, edges: Value, n: Value) -> None:
        """Stop where a rule could add to a large sum that has begun."""
        f, w = self.f, self.w
        large = f.call("PyLong_AsLongLong", "i64", w.env("large"))

        def one(i: Value, _: list[Value]) -> list[Value]:
            have = f.call("PyDict_GetItemWithError", "ptr", self.args[CTS],
                          f.call("PyTuple_GetItem", "ptr", edges, i))

            def small() -> None:
                w.need(w.has(have, "type", w.env("array_type")), "stop")
                w.need(f.call("elements", "i64", have).compare("slt", large), "stop")
            w.when(w.differs(have, w.null), small)
            return []
        f.loop(f.i64(0), n, 1, [], one)

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
        n = f.call("PyTuple_Size", "i64", saved)
        vals = self._list(n)
        f.store(vals, self.vals)

        def one(i: Value, _: list[Value]) -> list[Value]:
            value = self.value(f.call("PyTuple_GetItem", "ptr", saved, i), general=True)
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
        f, w = self.f, self.w
        mark = self.args[MARK]

        def replace() -> None:
            w.put(node, "saved", mark)
            w.drop(saved)
        held = f.call("PyTuple_Size", "i64", w.field(plan, "plan.kept")).compare("ne", 0)
        w.when(held & w.differs(mark, w.none) & w.differs(saved, w.none), replace)

    def _is_constant(self, saved: Value) -> Value:
        """Whether a residual is an array, or no residual at all, or a tuple of such."""
        f, w = self.f, self.w

        def all_of() -> Value:
            def one(i: Value, fine: list[Value]) -> list[Value]:
                item = f.call("PyTuple_GetItem", "ptr", saved, i)
                return [fine[0] & (w.has(item, "type", w.env("aval_type"))
                                   | w.same(item, w.none))]
            n = f.call("PyTuple_Size", "i64", saved)
            return f.loop(f.i64(0), n, 1, [f.const("i1", True)], one)[0]

        def single() -> Value:
            kind = w.field(saved, "type")
            good = w.same(saved, w.none)
            for name in ("array_type", "aval_type", "float", "int", "bool"):
                good = good | w.same(kind, w.env(name))
            return good
        return w.either(w.has(saved, "type", w.env("tuple")), all_of, single)

    def value(self, saved: Value, *, general: bool = False) -> Value:
        """The array of a residual that nothing was written to; in `general` also what is no
        array: a number, a shape with its dtype, several of those."""
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
        w.need(self._is_constant(saved) if general else w.same(kind, w.env("array_type")), "stop")
        block_array = f.block
        f.goto(done)
        f.start(done)
        return f.phi("ptr", [(of_tensor, block_tensor), (of_ref, block_ref),
                             (of_kept, block_kept), (saved, block_array)])
    # -- what rules gave --------------------------------------------------------------------
    def _spread(self, edges: Value, n: Value, found: Value, ct: Value) -> None:
        """Add what rules gave for `ct`, of which a reference is ours, to what the edges have."""
        f, w = self.f, self.w
        lost, given = f.label("lost"), f.label("given")
        f.branch(w.same(found, w.null), lost, given)
        f.start(lost)
        w.drop(ct)
        f.goto("failed")
        f.start(given)
        f.store(found, self.found)
        unfit, done = f.label("unfit"), f.label("spread")
        self._each(edges, n, found, lambda i, e, c: self._fits(e, c, unfit))
        w.drop(ct)
        self._each(edges, n, found, lambda i, e, c: self._take(found, i, e, c))
        f.goto(done)
        f.start(unfit)
        added = f.call("PyList_Append", "i32", found, ct)
        w.drop(ct)
        self.good(added)
        self.call(self.args[FITTED], edges, found)
        f.goto(done)
        f.start(done)
        self.give_back(self.found)

    def _each(self, edges: Value, n: Value, found: Value, body: Body) -> None:
        """`body(index, edge, cotangent)` for every edge that gets one."""
        f, w = self.f, self.w

        def one(i: Value, _: list[Value]) -> list[Value]:
            e = f.call("PyTuple_GetItem", "ptr", edges, i)
            c = f.call("PyList_GetItem", "ptr", found, i)
            wanted = w.differs(e, w.none) & w.differs(c, w.none)
            w.when(wanted, lambda: body(i, e, c))
            return []
        f.loop(f.i64(0), n, 1, [], one)

    def _fits(self, edge: Value, c: Value, unfit: str) -> None:
        """Go on where a cotangent has shape and dtype of the edge."""
        w = self.w
        w.need(w.has(c, "type", w.env("array_type")), unfit)
        w.need(w.differs(w.field(edge, "type"), w.env("port")), unfit)
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

    def _take(self, found: Value, i: Value, edge: Value, c: Value) -> None:
        """Add a cotangent, which nobody holds afterwards but the sum."""
        f, w = self.f, self.w
        done, odd = f.label("delivered"), f.label("odd")
        w.hold(c)
        f.store(c, self.vals)
        w.hold(w.none)
        f.call("PyList_SetItem", "i32", found, i, w.none)
        self.add(edge, c, f.call("elements", "i64", c), done, odd)
        f.start(done)
        self.give_back(self.vals)

    def add(self, edge: Value, ct: Value, size: Value, done: str, odd: str) -> None:
        """Add a cotangent that fits to what an edge has got so far, and go to `done`; the block
        `odd`, which begins here, has the engine do it."""
        f, w = self.f, self.w
        store, join = f.label("store"), f.label("join")
        have = f.call("PyDict_GetItemWithError", "ptr", self.args[CTS], edge)
        f.branch(w.same(have, w.null), store, join)
        f.start(store)
        self.good(f.call("PyDict_SetItem", "i32", self.args[CTS], edge, ct))
        f.goto(done)
        f.start(join)
        w.need(w.has(have, "type", w.env("array_type")), odd)
        large = f.call("PyLong_AsLongLong", "i64", w.env("large"))
        w.need(f.emit("i1", f"icmp slt i64 {size.ref}, {large.ref}"), odd)
        f.store(have, self.operands)
        f.store(ct, f.at(self.operands, "ptr", 1))
        total = f.call("PyObject_Vectorcall", "ptr", w.env("plus"), self.operands, f.i64(2), w.null)
        w.need(w.differs(total, w.null), "failed")
        status = f.call("PyDict_SetItem", "i32", self.args[CTS], edge, total)
        w.drop(total)
        self.good(status)
        f.goto(done)
        f.start(odd)
        self.call(self.args[DELIVER], edge, ct)
        f.goto(done)
