"""The machine code of `core.bind.bind` for plain operands and ops of one output.

    PyObject *bind(PyObject *self, PyObject *const *args, Py_ssize_t count)
    bind(op, operands, attributes) -> tensor, or what the op's function returns for raw arrays

returns None where that is not its business: an operand of a transform, without storage or of a
foreign type, a state other than "gradients or none", several outputs, residuals of unusual kinds;
and where the op's function raised, so that `bind` can say in words what was wrong. Views are tied
to their base by the Python function that `bind` uses itself.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping

from adjoint.kernels.ir import Code, Value
from adjoint.kernels.nodes_ir import Maker, place
from adjoint.kernels.objects_ir import declare

ENV = ("tensor", "parameter", "array_type", "state", "off", "on", "true", "false", "none",
       "none_type", "float", "int", "bool", "tuple", "counter", "edge_of", "getframe", "is_inside",
       "cell", "ref", "kept", "inference", "inferring", "touched", "asarray", "aval_of",
       "make_view", "exception", "memory_error", "minus_one", "in", "out", "aval",
       "avals",
       # names of attributes
       "impl", "prepare", "plans", "multi", "view", "node_type", "plain_node", "attrs", "dtype",
       "shape_name")
OP, OPERANDS, ATTRS = range(3)
MOST = 60                # operands


def text(offsets: Mapping[str, int]) -> str:
    """The IR."""
    code = Code()
    declare(code, ENV)
    place(code, offsets, ENV)
    _Bind(code, offsets).emit()
    return code.text()


class _Bind(Maker):
    """The function."""

    def __init__(self, code: Code, offsets: Mapping[str, int]) -> None:
        super().__init__(code, offsets, ENV, "bind")
        f = self.f
        self.temporaries = self.arrays, self.values, self.out = (
            self.variable(), self.variable(), self.variable())
        self.needs, self.tensors = (f.emit("ptr", "alloca i64, align 8") for _ in range(2))
        self.six = f.emit("ptr", "alloca [6 x ptr], align 8")
        self.plan = self.variable()

    def emit(self) -> None:
        f, w = self.f, self.w
        w.need(f.args[2].compare("eq", 3), "other")
        self.op, self.operands, self.attrs = (
            f.load(f.at(f.args[1], "ptr", i), "ptr") for i in range(3))
        self.mode()
        w.need(w.has(self.operands, "type", w.env("tuple")), "other")
        self.n = f.call("PyTuple_Size", "i64", self.operands)
        w.need(self.n.compare("sle", MOST), "other")
        w.need(self._is(self.op, "multi", "false"), "other")
        self._collect()
        self._choose()
        self._compute()
        out = f.load(self.out, "ptr")
        wrapped = f.label("wrapped")
        f.branch(self.raw, "bare_result", wrapped)
        f.start(wrapped)
        made = self.alloc(w.env("tensor"), self.made)
        w.put(made, "array", out)
        plan = f.load(self.plan, "ptr")
        graph, bare, done = f.label("graph"), f.label("bare"), f.label("made")
        f.branch(w.differs(plan, w.null), graph, bare)
        f.start(bare)
        for name, value in (("_rg", w.env("false")), ("_edge", w.none), ("_cell", self.cell)):
            w.put(made, name, value)
        f.goto(done)
        f.start(graph)
        self._record(made, out, plan)
        f.goto(done)
        f.start(done)
        self._tie(made)
        for held in self.temporaries:
            self.give_back(held)
        f.ret(made)
        f.start("bare_result")
        w.hold(out)
        for held in self.temporaries:
            self.give_back(held)
        f.ret(out)
        self._raised()
        self.ends()

    def _raised(self) -> None:
        """The block for what the op's function raised, or what prepares for it."""
        f, w = self.f, self.w
        f.start("raised")
        serious = f.call("PyErr_ExceptionMatches", "i32", w.env("memory_error"))
        f.branch(serious.compare("ne", 0), "failed", "ordinary")
        f.start("ordinary")
        known = f.call("PyErr_ExceptionMatches", "i32", w.env("exception"))
        f.branch(known.compare("ne", 0), "again", "failed")
        f.start("again")
        f.do("call void @PyErr_Clear()")
        f.goto("other")

    def _attribute(self, thing: Value, name: str) -> Value:
        """An attribute that lives as long as its owner, without a reference of ours."""
        got = self.f.call("PyObject_GetAttr", "ptr", thing, self.w.env(name))
        self.w.need(self.w.differs(got, self.w.null), "failed")
        self.w.drop(got)
        return got

    def _is(self, thing: Value, name: str, what: str) -> Value:
        """Whether an attribute is that object."""
        return self.w.same(self._attribute(thing, name), self.w.env(what))

    # -- operands ---------------------------------------------------------------------------
    def _collect(self) -> None:
        """`arrays`: the list of raw operands; `needs` and `tensors`: sets of bits."""
        f, w = self.f, self.w
        f.store(self.new("PyList_New", self.n), self.arrays)
        f.store(f.i64(0), self.needs)
        f.store(f.i64(0), self.tensors)

        def one(i: Value, _: list[Value]) -> list[Value]:
            a = f.call("PyTuple_GetItem", "ptr", self.operands, i)
            value = w.either(self.is_tensor(a), lambda: self._array(a, i), lambda: self._other(a))
            w.hold(value)
            f.call("PyList_SetItem", "i32", f.load(self.arrays, "ptr"), i, value)
            return []
        f.loop(f.i64(0), self.n, 1, [], one)
        self.raw = f.load(self.tensors, "i64").compare("eq", 0)

    def _array(self, a: Value, i: Value) -> Value:
        """The array of a tensor; its bits are set."""
        f, w = self.f, self.w
        array = w.field(a, "array")
        w.need(w.has(array, "type", w.env("array_type")), "other")
        bit = f.i64(1) << i
        f.store(f.load(self.tensors, "i64") | bit, self.tensors)
        wants = f.select(w.has(a, "_rg", w.env("true")), bit, f.i64(0))
        f.store(f.load(self.needs, "i64") | wants, self.needs)
        return array

    def _other(self, a: Value) -> Value:
        """An operand that is no tensor: None, a number or an array."""
        w = self.w
        kind = w.field(a, "type")
        good = w.same(kind, w.env("none_type"))
        for name in ("array_type", "float", "int", "bool"):
            good = good | w.same(kind, w.env(name))
        w.need(good, "other")
        return a

    def _choose(self) -> None:
        """`plan`: how to differentiate, NULL where nothing is recorded. One that was not made yet
        or that keeps something unusual is not for here."""
        f, w = self.f, self.w
        needs = f.load(self.needs, "i64")
        some, done = f.label("some"), f.label("chosen")
        f.branch(needs.compare("ne", 0) & self.grad, some, done)
        f.start(some)
        key = self.new("PyLong_FromLongLong", needs)
        plans = self._attribute(self.op, "plans")
        plan = f.call("PyDict_GetItemWithError", "ptr", plans, key)
        w.drop(key)
        w.need(w.differs(plan, w.null), "other")
        w.need(self._is(self.op, "plain_node", "true"), "other")
        wanted = f.call("PyTuple_Size", "i64", w.field(plan, "plan.wanted"))
        recorded = f.label("recorded")
        f.branch(wanted.compare("ne", 0), recorded, done)
        f.start(recorded)
        self._each_source(plan, self._possible)
        f.store(plan, self.plan)
        f.goto(done)
        f.start(done)

    def _each_source(self, plan: Value, body: Callable[[Value, Value, Value], None]) -> None:
        """`body(number, kind, index of the operand or output)` for every residual of a plan."""
        f, w = self.f, self.w
        sources = w.field(plan, "plan.sources")
        count = f.call("PyTuple_Size", "i64", sources)

        def one(i: Value, _: list[Value]) -> list[Value]:
            source = f.call("PyTuple_GetItem", "ptr", sources, i)
            kind = f.call("PyTuple_GetItem", "ptr", source, f.i64(0))
            at = f.call("PyLong_AsLongLong", "i64",
                        f.call("PyTuple_GetItem", "ptr", source, f.i64(1)))
            body(i, kind, at)
            return []
        f.loop(f.i64(0), count, 1, [], one)

    def _possible(self, _: Value, kind: Value, at: Value) -> None:
        """Go on where `_residual` can make it."""
        f, w = self.f, self.w
        inside, rest, fine = f.label("operand"), f.label("rest"), f.label("fine")
        f.branch(w.same(kind, w.env("in")), inside, rest)
        f.start(inside)
        a = f.call("PyTuple_GetItem", "ptr", self.operands, at)
        calm = w.either(self.is_tensor(a), lambda: self.calm(a), lambda: f.const("i1", True))
        w.need(calm, "other")
        f.goto(fine)
        f.start(rest)
        first = w.same(kind, w.env("out")) & at.compare("eq", 0)
        shapes = w.same(kind, w.env("aval")) | w.same(kind, w.env("avals"))
        w.need(first | shapes, "other")
        f.goto(fine)
        f.start(fine)

    # -- the value --------------------------------------------------------------------------
    def _compute(self) -> None:
        """`out`: what the op's function returns for the prepared arrays, as an array."""
        f, w = self.f, self.w
        prepare = self._attribute(self.op, "prepare")
        needed, ready = f.label("prepare"), f.label("ready")
        f.branch(w.same(prepare, w.none), ready, needed)
        f.start(needed)
        old = f.load(self.arrays, "ptr")
        prepared = f.call("PyObject_CallOneArg", "ptr", prepare, old)
        w.need(w.differs(prepared, w.null), "raised")
        f.store(prepared, self.arrays)
        w.drop(old)
        f.goto(ready)
        f.start(ready)
        values = f.call("PySequence_Tuple", "ptr", f.load(self.arrays, "ptr"))
        w.need(w.differs(values, w.null), "raised")
        f.store(values, self.values)
        out = f.call("PyObject_Call", "ptr", self._attribute(self.op, "impl"), values, self.attrs)
        w.need(w.differs(out, w.null), "raised")
        f.store(out, self.out)
        scalar, array = f.label("scalar"), f.label("array")
        f.branch(w.has(out, "type", w.env("array_type")) | self.raw, array, scalar)
        f.start(scalar)
        made = f.call("PyObject_CallOneArg", "ptr", w.env("asarray"), out)
        w.need(w.differs(made, w.null), "raised")
        f.store(made, self.out)
        w.drop(out)
        f.goto(array)
        f.start(array)

    # -- the node ---------------------------------------------------------------------------
    def _record(self, made: Value, out: Value, plan: Value) -> None:
        f, w = self.f, self.w
        node = self.alloc(self._attribute(self.op, "node_type"), self.node)
        w.put(node, "plan", plan)
        w.put(node, "shape", self.new("PyObject_GetAttr", out, w.env("shape_name")), owned=True)
        descr = w.field(out, "descr")
        self._set(node, "dtype", descr)
        size = f.call("PyDict_Size", "i64", self.attrs)
        w.when(size.compare("ne", 0), lambda: self._set(node, "attrs", self.attrs))
        w.put(node, "edges", self._edges(), owned=True)
        self._residuals(node, made, out, plan)
        self.stamp(node)
        w.put(made, "_rg", w.env("true"))
        w.put(made, "_edge", node, owned=True)
        f.store(w.null, self.node)                      # it is the tensor's now

    def _set(self, thing: Value, name: str, value: Value) -> None:
        """Set an attribute in an instance dict."""
        status = self.f.call("PyObject_SetAttr", "i32", thing, self.w.env(name), value)
        self.w.need(status.compare("sge", 0), "failed")

    def _edges(self) -> Value:
        f, w = self.f, self.w
        edges = self.new("PyTuple_New", self.n)
        needs = f.load(self.needs, "i64")

        def one(i: Value, _: list[Value]) -> list[Value]:
            a = f.call("PyTuple_GetItem", "ptr", self.operands, i)
            wanted = ((needs >> i) & 1).compare("ne", 0)
            f.call("PyTuple_SetItem", "i32", edges, i,
                   w.either(wanted, lambda: self.edge(a), self.nothing))
            return []
        f.loop(f.i64(0), self.n, 1, [], one)
        return edges

    def _residuals(self, node: Value, made: Value, out: Value, plan: Value) -> None:
        """The tuple of what the plan keeps; None for nothing."""
        f, w = self.f, self.w
        count = f.call("PyTuple_Size", "i64", w.field(plan, "plan.sources"))
        some, none, done = f.label("keep"), f.label("keep_nothing"), f.label("kept")
        f.branch(count.compare("ne", 0), some, none)
        f.start(none)
        w.put(node, "saved", w.none)
        f.goto(done)
        f.start(some)
        saved = self.new("PyTuple_New", count)
        w.put(node, "saved", saved, owned=True)

        def residual(i: Value, kind: Value, at: Value) -> None:
            def operand() -> Value:
                return self.kept(f.call("PyTuple_GetItem", "ptr", self.operands, at))

            def outside() -> Value:
                return w.either(w.same(kind, w.env("out")), lambda: self.output(made, out), shapes)

            def shapes() -> Value:
                return w.either(w.same(kind, w.env("aval")), lambda: self._aval(at), self._avals)
            value = w.either(w.same(kind, w.env("in")), operand, outside)
            f.call("PyTuple_SetItem", "i32", saved, i, value)
        self._each_source(plan, residual)
        f.goto(done)
        f.start(done)
        cell = w.field(made, "_cell")
        w.when(w.same(cell, w.null), lambda: w.put(made, "_cell", w.none))

    def _aval(self, at: Value) -> Value:
        """Shape and dtype of an operand; None of None."""
        w = self.w
        a = self.f.call("PyTuple_GetItem", "ptr", self.operands, at)
        return w.either(w.same(a, w.none), self.nothing,
                        lambda: self.new("PyObject_CallOneArg", w.env("aval_of"), a))

    def _avals(self) -> Value:
        """Shapes and dtypes of all operands."""
        avals = self.new("PyTuple_New", self.n)

        def one(i: Value, _: list[Value]) -> list[Value]:
            self.f.call("PyTuple_SetItem", "i32", avals, i, self._aval(i))
            return []
        self.f.loop(self.f.i64(0), self.n, 1, [], one)
        return avals

    def _tie(self, made: Value) -> None:
        """Tie a view to its base."""
        f, w = self.f, self.w
        view, done = f.label("view"), f.label("tied")
        f.branch(self._is(self.op, "view", "true"), view, done)
        f.start(view)
        parent = f.call("PyTuple_GetItem", "ptr", self.operands, f.i64(0))
        for k, v in enumerate((made, parent, self.op, self.attrs, w.env("minus_one"),
                               self.state)):
            f.store(v, f.at(self.six, "ptr", k))
        tied = f.call("PyObject_Vectorcall", "ptr", w.env("make_view"), self.six, f.i64(6), w.null)
        w.need(w.differs(tied, w.null), "failed")
        w.drop(tied)
        f.goto(done)
        f.start(done)
