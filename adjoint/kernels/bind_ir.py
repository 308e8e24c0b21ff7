"""The machine code of `core.bind.bind` for plain operands and ops of one output.

    PyObject *bind(PyObject *self, PyObject *const *args, Py_ssize_t count)
    bind(op, operands, attributes) -> tensor(s), or what the op's function returns for raw arrays
    bind(op, operands, attributes, places) -> tensor(s)

`places` says where the views lie that the op makes, as bytes: how many, then the words of
`views_ir` of each; None where they are not known. The result is None where it is not the code's
business: an operand of a transform, without storage or of a foreign type, a state other than
"gradients or none", residuals of unusual kinds; and where the op's function raised, so that `bind`
can say in words what was wrong. What follows from the result is in `outputs_ir` and `views_ir`.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping

from adjoint.kernels import outputs_ir, views_ir
from adjoint.kernels.ir import Code, Value
from adjoint.kernels.nodes_ir import place
from adjoint.kernels.objects_ir import ELEMENTS, declare
from adjoint.kernels.outputs_ir import Outputs

ENV = ("tensor", "parameter", "array_type", "state", "off", "on", "true", "false", "none",
       "none_type", "float", "int", "bool", "tuple", "counter", "edge_of", "getframe", "is_inside",
       "cell", "ref", "kept", "inference", "inferring", "exposed", "version", "asarray", "aval_of",
       "aval_type", "multi", "exception", "memory_error", "minus_one", "in", "out", "aval", "avals",
       # names of attributes
       "run", "prepare", "facts", "shape_name", "new", "objects", "tell", "told_on", "told_off",
       "float32", "float64",
       *outputs_ir.ENV, *views_ir.ENV)
OP, OPERANDS, ATTRS = range(3)
MOST = 60                # operands
# places in `Op.facts`
MULTI, VIEW, WIDE, PLANS, NODE_TYPE, HIDDEN, FLOWS, SMALL, LIMIT = range(9)


def text(offsets: Mapping[str, int]) -> str:
    """The IR."""
    code = Code()
    declare(code, ENV)
    code.declare("elements", ELEMENTS.format(**offsets))
    place(code, offsets, ENV)
    views_ir.emit(code, offsets, ENV)
    _Bind(code, offsets).emit()
    return code.text()


class _Bind(Outputs):
    """The function."""

    def __init__(self, code: Code, offsets: Mapping[str, int]) -> None:
        super().__init__(code, offsets, ENV, "bind")
        f = self.f
        self.arrays, self.values, self.out, self.many = (self.variable() for _ in range(4))
        self.temporaries += self.arrays, self.values, self.out, self.many
        self.needs, self.tensors = (f.emit("ptr", "alloca i64, align 8") for _ in range(2))
        self.plan = self.variable()
        self.four = f.emit("ptr", "alloca [4 x ptr], align 8")

    def emit(self) -> None:
        f, w = self.f, self.w
        four = f.args[2].compare("eq", 4)
        w.need(four | f.args[2].compare("eq", 3), "other")
        places = w.either(four, lambda: f.load(f.at(f.args[1], "ptr", 3), "ptr"), lambda: w.none)
        self.known = w.differs(places, w.none)
        self.places = f.at(places, "i8", self.at["bytes"])
        self.op, self.operands, self.attrs = (
            f.load(f.at(f.args[1], "ptr", i), "ptr") for i in range(3))
        self.mode(telling=True)
        w.need(w.has(self.operands, "type", w.env("tuple")), "other")
        self.n = w.length(self.operands)
        w.need(self.n.compare("sle", MOST), "other")
        self.facts = self._attribute(self.op, "facts")
        self._collect()
        self._choose()
        self._compute()
        self.checked = f.select(self.raw, self.told, f.const("i1", True))    # as `bind` does
        self.several = self._fact_is(MULTI, "true")
        self._wrap()
        self._record()
        self._tie()
        self._finish()
        self._raised()
        self.ends()

    def _both(self, one: Callable[[], None], many: Callable[[], None]) -> None:
        """What is done for one output, or for several."""
        f = self.f
        several, single, done = f.label("several"), f.label("single"), f.label("both")
        f.branch(self.several, several, single)
        for block, body in ((several, many), (single, one)):
            f.start(block)
            body()
            f.goto(done)
        f.start(done)

    def _wrap(self) -> None:
        """`made`: the tensor of the output, still empty; `many`: the tuple of several. What an op
        gives for arrays is returned as it is."""
        f, w = self.f, self.w
        multi, single, done = f.label("multi"), f.label("single"), f.label("wrapped")
        f.branch(self.several, multi, single)
        f.start(single)
        self._as_array()
        out = f.load(self.out, "ptr")

        def bare() -> None:
            w.hold(out)
            self.leave(out)
        self._unless_raw(bare)
        made = self.alloc(w.env("tensor"), self.made)
        w.put(made, "array", out)
        block = f.block
        f.goto(done)
        f.start(multi)
        outs = f.load(self.out, "ptr")
        w.need(w.has(outs, "type", w.env("tuple")), "other")
        hidden = f.call("PyLong_AsLongLong", "i64", self._fact(HIDDEN))
        total = w.length(outs)
        w.when(self.checked, lambda: self.arrays_all(outs, total))
        visible = f.emit("i64", f"sub i64 {total.ref}, {hidden.ref}")
        self._unless_raw(lambda: self.leave(
            self.new("PyTuple_GetSlice", outs, f.i64(0), visible)))
        self.tensors_of(outs, visible)
        other = f.block
        f.goto(done)
        f.start(done)
        self.visible = f.phi("i64", [(f.i64(1), block), (visible, other)])

    def _unless_raw(self, leave: Callable[[], None]) -> None:
        f = self.f
        on, raw = f.label("tensors"), f.label("raw")
        f.branch(self.raw, raw, on)
        f.start(raw)
        leave()
        f.start(on)

    def _record(self) -> None:
        """Fill the tensors, with a node behind them where there is a plan."""
        f, w = self.f, self.w
        plan = f.load(self.plan, "ptr")
        graph, bare, done = f.label("graph"), f.label("bare"), f.label("recorded")
        f.branch(w.differs(plan, w.null), graph, bare)
        f.start(bare)
        self._both(lambda: self.unrecorded(f.load(self.made, "ptr"), self.cell),
                   lambda: self.each(self.visible, lambda i, t: self.unrecorded(t, self.cell)))
        f.goto(done)
        f.start(graph)
        node = self._node(plan)
        out = f.load(self.out, "ptr")

        def shape() -> None:
            w.put(node, "shape", self.new("PyObject_GetAttr", out, w.env("shape_name")), owned=True)
            w.put(node, "dtype", w.field(out, "descr"))
        self._both(shape, lambda: self.shapes(node, self.visible))
        self._residuals(node, lambda at: w.either(
            self.several, lambda: self.one_of(out, at, self.visible),
            lambda: self.output(f.load(self.made, "ptr"), out)), plan)
        self.stamp(node)

        def tail() -> None:
            made = f.load(self.made, "ptr")
            self.cell_or_none(made)
            w.put(made, "_rg", w.env("true"))
            w.put(made, "_edge", node, owned=True)
            f.store(w.null, self.node)                  # it is the tensor's now
        self._both(tail, lambda: self.ports(node, self.visible, self._fact(FLOWS)))
        f.goto(done)
        f.start(done)

    def _tie(self) -> None:
        """Tie views to what they show."""
        f, w = self.f, self.w
        view, tied = f.label("view"), f.label("tied")
        f.branch(self._fact_is(VIEW, "true"), view, tied)
        f.start(view)

        def numbered(i: Value, t: Value) -> None:
            number = self.new("PyLong_FromLongLong", i)
            w.drop(number)                              # it stays: they are at most `MOST`
            self._tied(t, number, "multi")
        self._both(lambda: self._tied(f.load(self.made, "ptr"), w.env("minus_one"), "none"),
                   lambda: self.each(self.visible, numbered))
        f.goto(tied)
        f.start(tied)

    def _tied(self, made: Value, number: Value, creation: str) -> None:
        f, w = self.f, self.w
        done = f.call("tie", "i32", made, number, w.item(self.operands, 0), self.op, self.attrs,
                      self.plainly(), w.env(creation))
        w.need(done.compare("ne", 0), "failed")

    def _finish(self) -> None:
        """Return the tensor, or the tuple; observers are told of it, when all else is given back.
        """
        f, w = self.f, self.w
        place = f.select(self.several, self.many, self.made)
        result = f.load(place, "ptr")
        f.store(w.null, place)
        tell, heard, wrong, done = (f.label(n) for n in ("tell", "heard", "wrong", "told"))
        f.branch(self.told, tell, done)
        f.start(tell)
        for held in self.temporaries:
            self.give_back(held)
            f.store(w.null, held)
        for i, part in enumerate((self.op, self.operands, self.attrs, result)):
            f.store(part, f.at(self.four, "ptr", i))
        said = f.call("PyObject_Vectorcall", "ptr", w.env("tell"), self.four, f.i64(4), w.null)
        f.branch(w.same(said, w.null), wrong, heard)
        f.start(wrong)
        w.drop(result)
        f.goto("failed")
        f.start(heard)
        w.drop(said)
        f.goto(done)
        f.start(done)
        self.leave(result)

    def _fact(self, place: int) -> Value:
        """One of the op's facts."""
        return self.w.item(self.facts, place)

    def _fact_is(self, place: int, what: str) -> Value:
        return self.w.same(self._fact(place), self.w.env(what))

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
        return self.w.got(thing, name, "failed")

    # -- operands ---------------------------------------------------------------------------
    def _collect(self) -> None:
        """`arrays`: the list of raw operands; `needs` and `tensors`: sets of bits."""
        f, w = self.f, self.w
        w.when(self.unknown(), lambda: f.store(self.new("PyList_New", self.n), self.arrays))
        f.store(f.i64(0), self.needs)
        f.store(f.i64(0), self.tensors)

        def one(i: Value, _: list[Value]) -> list[Value]:
            a = w.item(self.operands, i)
            value = w.either(self.is_tensor(a), lambda: self._array(a, i), lambda: self._other(a))

            def add() -> None:
                w.hold(value)
                f.call("PyList_SetItem", "i32", f.load(self.arrays, "ptr"), i, value)
            w.when(self.unknown(), add)
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
        """An operand that is no tensor: None, a number or an array, but not of objects."""
        w = self.w
        kind = w.field(a, "type")
        array = w.same(kind, w.env("array_type"))
        good = w.either(array, lambda: w.differs(w.field(a, "descr"), w.env("objects")),
                        lambda: w.same(kind, w.env("none_type")))
        for name in ("float", "int", "bool"):
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
        plan = f.call("PyDict_GetItemWithError", "ptr", self._fact(PLANS), key)
        w.drop(key)
        w.need(w.differs(plan, w.null), "other")
        w.need(self._fact_is(WIDE, "true"), "other")
        wanted = w.length(w.field(plan, "plan.wanted"))
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
        count = w.length(sources)

        def one(i: Value, _: list[Value]) -> list[Value]:
            source = w.item(sources, i)
            kind = w.item(source, 0)
            at = f.call("PyLong_AsLongLong", "i64", w.item(source, 1))
            body(i, kind, at)
            return []
        f.loop(f.i64(0), count, 1, [], one)

    def _possible(self, _: Value, kind: Value, at: Value) -> None:
        """Go on where `_residual` can make it."""
        f, w = self.f, self.w
        inside, rest, fine = f.label("operand"), f.label("rest"), f.label("fine")
        f.branch(w.same(kind, w.env("in")), inside, rest)
        f.start(inside)
        a = w.item(self.operands, at)
        calm = w.either(self.is_tensor(a), lambda: self.calm(a), lambda: f.const("i1", True))
        w.need(calm, "other")
        f.goto(fine)
        f.start(rest)
        known = w.same(kind, w.env("out"))
        for name in ("aval", "avals"):
            known = known | w.same(kind, w.env(name))
        w.need(known, "other")
        f.goto(fine)
        f.start(fine)

    # -- the value --------------------------------------------------------------------------
    def unknown(self) -> Value:
        """Whether the op's function has to run."""
        return self.known ^ self.f.const("i1", True)

    def _compute(self) -> None:
        """`out`: what the op's function returns for the prepared arrays, or the views."""
        f = self.f
        shown, called, done = f.label("shown"), f.label("called"), f.label("computed")
        f.branch(self.known, shown, called)
        f.start(shown)
        self._shown()
        f.goto(done)
        f.start(called)
        self._called()
        f.goto(done)
        f.start(done)

    def _shown(self) -> None:
        """`out`: the view whose place is known, or a tuple of several."""
        f, w = self.f, self.w
        array = w.field(w.item(self.operands, 0), "array")
        first = f.at(self.places, "i64", 1)
        many, one, done = f.label("many_shown"), f.label("one_shown"), f.label("all_shown")
        f.branch(self._fact_is(MULTI, "true"), many, one)
        f.start(one)
        f.store(self.new("shown", array, first), self.out)
        f.goto(done)
        f.start(many)
        count = f.load(self.places, "i64")
        outs = self.new("PyTuple_New", count)
        f.store(outs, self.out)

        def view(i: Value, at: list[Value]) -> list[Value]:
            w.fill(outs, i, self.new("shown", array, at[0]))
            rank = f.load(f.at(at[0], "i64", 1), "i64")
            return [f.at(at[0], "i64", rank * 2 + 2)]
        f.loop(f.i64(0), count, 1, [first], view)
        f.goto(done)
        f.start(done)

    def _called(self) -> None:
        """`out`: what the op's function returns for the prepared arrays."""
        f, w = self.f, self.w
        prepare = self._attribute(self.op, "prepare")
        needed, ready = f.label("prepare"), f.label("ready")
        nothing = w.either(w.same(prepare, w.none), lambda: f.const("i1", True), self._alike)
        f.branch(nothing, ready, needed)
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
        out = f.call("PyObject_Call", "ptr", self._function(values), values, self.attrs)
        w.need(w.differs(out, w.null), "raised")
        f.store(out, self.out)

    def _alike(self) -> Value:
        """Whether all operands are arrays of float32, or of float64: none is there to prepare."""
        f, w = self.f, self.w
        listed = f.load(self.arrays, "ptr")

        def descr(i: Value) -> Value:
            a = f.call("PyList_GetItem", "ptr", listed, i)
            return w.either(w.has(a, "type", w.env("array_type")),
                            lambda: w.field(a, "descr"), lambda: w.null)

        def same(i: Value, fine: list[Value]) -> list[Value]:
            return [fine[0] & w.same(descr(i), first)]
        first = descr(f.i64(0))
        known = w.same(first, w.env("float32")) | w.same(first, w.env("float64"))
        return f.loop(f.i64(1), self.n, 1, [known], same)[0]

    def _function(self, values: Value) -> Value:
        """What computes these arrays: `small` of the facts if all are that, else `run`."""
        f, w = self.f, self.w
        small = self._fact(SMALL)
        limit = f.call("PyLong_AsLongLong", "i64", self._fact(LIMIT))

        def fits(i: Value, fine: list[Value]) -> list[Value]:
            a = w.item(values, i)
            few = w.either(w.has(a, "type", w.env("array_type")),
                           lambda: f.call("elements", "i64", a).compare("slt", limit),
                           lambda: f.const("i1", True))
            return [fine[0] & few]

        def all_fit() -> Value:
            return f.loop(f.i64(0), self.n, 1, [f.const("i1", True)], fits)[0]
        good = w.either(w.differs(small, w.none), all_fit, lambda: f.const("i1", False))
        return w.either(good, lambda: small, lambda: self._attribute(self.op, "run"))

    def _as_array(self) -> None:
        """`out`, which may be a number of NumPy's, as an array."""
        f, w = self.f, self.w
        out = f.load(self.out, "ptr")
        scalar, array = f.label("scalar"), f.label("array")
        f.branch(w.has(out, "type", w.env("array_type")) | (self.checked ^ True), array, scalar)
        f.start(scalar)
        made = f.call("PyObject_CallOneArg", "ptr", w.env("asarray"), out)
        w.need(w.differs(made, w.null), "raised")
        f.store(made, self.out)
        w.drop(out)
        f.goto(array)
        f.start(array)

    # -- the node ---------------------------------------------------------------------------
    def _node(self, plan: Value) -> Value:
        """A node with its plan, attributes and edges."""
        w = self.w
        node = self.alloc(self._fact(NODE_TYPE), self.node)
        w.put(node, "plan", plan)
        w.put(node, "attrs", self.attrs)
        w.put(node, "edges", self._edges(), owned=True)
        return node

    def _edges(self) -> Value:
        f, w = self.f, self.w
        edges = self.new("PyTuple_New", self.n)
        needs = f.load(self.needs, "i64")

        def one(i: Value, _: list[Value]) -> list[Value]:
            a = w.item(self.operands, i)
            wanted = ((needs >> i) & 1).compare("ne", 0)
            w.fill(edges, i,
                   w.either(wanted, lambda: self.edge(a), self.nothing))
            return []
        f.loop(f.i64(0), self.n, 1, [], one)
        return edges

    def _residuals(self, node: Value, output: Callable[[Value], Value], plan: Value) -> None:
        """The tuple of what the plan keeps; None for nothing. `output(i)` is a residual that is an
        output."""
        f, w = self.f, self.w
        count = w.length(w.field(plan, "plan.sources"))
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
                return self.kept(w.item(self.operands, at))

            def outside() -> Value:
                return w.either(w.same(kind, w.env("out")), lambda: output(at), shapes)

            def shapes() -> Value:
                return w.either(w.same(kind, w.env("aval")), lambda: self._aval(at), self._avals)
            value = w.either(w.same(kind, w.env("in")), operand, outside)
            w.fill(saved, i, value)
        self._each_source(plan, residual)
        f.goto(done)
        f.start(done)

    def _aval(self, at: Value) -> Value:
        """Shape and dtype of an operand; None of None."""
        w = self.w
        a = self.w.item(self.operands, at)

        def other() -> Value:
            return w.either(self.is_tensor(a), lambda: self._shape_and_dtype(w.field(a, "array")),
                            lambda: self.new("PyObject_CallOneArg", w.env("aval_of"), a))
        return w.either(w.same(a, w.none), self.nothing, other)

    def _shape_and_dtype(self, array: Value) -> Value:
        w = self.w
        made = self.new("PyType_GenericAlloc", w.env("aval_type"), self.f.i64(0))
        shape = self.new("PyObject_GetAttr", array, w.env("shape_name"))
        w.put(made, "aval.shape", shape, owned=True)
        w.put(made, "aval.dtype", w.field(array, "descr"))
        return made

    def _avals(self) -> Value:
        """Shapes and dtypes of all operands."""
        avals = self.new("PyTuple_New", self.n)

        def one(i: Value, _: list[Value]) -> list[Value]:
            self.w.fill(avals, i, self._aval(i))
            return []
        self.f.loop(self.f.i64(0), self.n, 1, [], one)
        return avals
