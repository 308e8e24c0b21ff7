"""The machine code of `calls`: an op on small plain tensors from its operands to its node.

    PyObject *op1(PyObject *self, PyObject *const *args, Py_ssize_t count)      # op2 likewise

`self` is a tuple whose first item is the record, a bytes object of 8-byte words (`record`), and
whose last is the op. They do what the templates of `core/callers.py` do for exact tensors and
numbers, or for arrays, and return None for everything else: the template then runs. A node is
filled before anybody sees it; who is content to be told of the op is told then.

    int follow(PyObject *node, visitproc visit, void *arg)

is what the garbage collector calls to learn what a node of theirs refers to (`tp_traverse`, put in
its place by `builtin.follow`).
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from adjoint.kernels import weigh_ir
from adjoint.kernels.ir import Code, Value
from adjoint.kernels.nodes_ir import Maker, place
from adjoint.kernels.objects_ir import Writer, declare

# Words of `@env`, the same for all ops: addresses of objects of this process.
ENV = ("tensor", "array_type", "state", "off", "on", "true", "false", "counter", "edge_of",
       "getframe", "is_inside", "cell", "ref", "float", "int", "none", "compute", "planned",
       "tuple", "accumulate", "port", "exposed", "version", "kept", "inference", "inferring",
       "parameter", "plan_type", "zero", "tell", "told_on", "told_off", "no_attributes")
LINKS = ("plan", "e0", "e1", "s0", "s1")           # what `follow` visits
# Words of a record: the node's type and the function that makes one, then for float32, float64 and
# int64 the array's descriptor, the program for small arrays, the table of plans for large ones
# (0: there is none), the dict of number -> 0-d array, and a plan and its layout per pattern of
# operands.
NODE_TYPE, ALLOC, DTYPES, DTYPE_WORDS = 0, 1, 2, 4 + 2 * 4
OP = 2                                             # the place of the op in `self`
NOTHING, FIRST, SECOND, SWAPPED, OUTPUT, BOTH = range(6)      # layouts, as in core.op


def text(arity: int, offsets: Mapping[str, int]) -> str:
    """The IR of `op1` or `op2`; `offsets` are those of `direct_ir` and of the slots of tensors and
    nodes."""
    code = Code()
    declare(code, ENV)
    code.declare("PyFloat_AsDouble", "declare double @PyFloat_AsDouble(ptr)")
    place(code, offsets, ENV)
    Call(code, offsets, arity, f"op{arity}", ENV).emit()
    return code.text()


def nodes_text(offsets: Mapping[str, int]) -> str:
    """The IR of `follow`, and of what makes and frees nodes (`weigh_ir`)."""
    code = Code()
    declare(code, ENV)
    _follow(code, offsets)
    weights = weigh_ir.declare(code, offsets["size"], offsets["head"])
    return code.text() + weights


def _follow(code: Code, offsets: Mapping[str, int]) -> None:
    """`follow`. A reference that the collector is not told of counts as one from outside, which is
    right, and leaks nothing, for what never leads back to a node: its shape and numbers, the code
    object of the user's line; and its type and a plan that nodes share, which lead to the record of
    an op: that lives as long as the process, or is made of expressions of others that do. What
    users can attach to is told: edges, residuals, and with its hooks a plan of the node's own."""
    f = code.function("follow", [("ptr", "self"), ("ptr", "visit"), ("ptr", "arg")], returns="i32")
    w = Writer(f, offsets, ENV)
    node, visit, arg = f.args
    for name in LINKS:
        thing = w.field(node, name)
        some, done = f.label("some"), f.label("visited")
        w.need(w.differs(thing, w.null), done)
        f.branch(w.has(thing, "type", w.env("plan_type")) if name == "plan"
                 else w.same(thing, w.none), done, some)
        f.start(some)
        status = f.emit("i32", f"call i32 {visit.ref}(ptr {thing.ref}, ptr {arg.ref})")
        stop = f.label("stop")
        f.branch(status.compare("eq", 0), done, stop)
        f.start(stop)
        f.ret(status)
        f.start(done)
    f.ret(f.const("i32", 0))


class Call(Maker):
    """`op1` or `op2`."""

    def __init__(self, code: Code, offsets: Mapping[str, int], arity: int, name: str,
                 env: Sequence[str]) -> None:
        super().__init__(code, offsets, env, name)
        self.arity = arity

    def begin(self, more: int = 0, telling: bool = False) -> list[Value]:
        """The operands, of a call with so many arguments more; the op's record, and the mode."""
        f = self.f
        self.arrays = f.emit("ptr", "alloca [2 x ptr], align 8")
        self.w.need(f.args[2].compare("eq", self.arity + more), "other")
        owner = f.load(f.at(f.args[0], "i8", self.at["items"]), "ptr")
        self.record = f.at(owner, "i8", self.at["bytes"])
        self.mode(telling=telling)
        return [f.load(f.at(f.args[1], "ptr", i), "ptr") for i in range(self.arity)]

    def emit(self) -> None:
        f, w = self.f, self.w
        self.four = f.emit("ptr", "alloca [4 x ptr], align 8")
        operands = self.begin(telling=True)
        bare, some = f.label("arrays"), f.label("tensors")
        f.branch(w.has(operands[0], "type", w.env("array_type")), bare, some)
        f.start(bare)
        self._bare(operands)
        f.start(some)
        tensors = self.kinds(operands)
        self._compute(operands, tensors)
        self.ends()

    def _bare(self, operands: list[Value]) -> None:
        """Return the result for arrays without tensors around them, as rules of backward have
        them; the second operand may be a number."""
        f, w = self.f, self.w
        dtype = self.dtype_words(operands[0])
        f.store(operands[0], self.arrays)
        if self.arity == 2:
            kind = w.field(operands[1], "type")
            array = w.same(kind, w.env("array_type"))
            w.need(array | w.same(kind, w.env("float")) | w.same(kind, w.env("int")), "other")
            second = w.either(array, lambda: operands[1], lambda: self._number(operands[1], dtype))
            w.need(w.differs(second, w.null), "other")
            f.store(second, f.at(self.arrays, "ptr", 1))
        f.ret(self.result(dtype))

    def _number(self, number: Value, dtype: Value) -> Value:
        """The 0-d array of a number that was seen before, or NULL. Zero has a key of its own: 0.0
        and -0.0 would be one."""
        f, w = self.f, self.w
        floats = w.differs(dtype, f.at(self.record, "i64", DTYPES + DTYPE_WORDS * 2))
        w.need(floats | w.has(number, "type", w.env("int")), "other")      # 2.0 would be 2's key
        table = f.load(f.at(dtype, "i64", 3), "ptr")

        def bits() -> Value:
            return f.bits(f.call("PyFloat_AsDouble", "double", number), "i64")
        zero = w.either(w.has(number, "type", w.env("float")), bits, lambda: f.select(
            w.same(number, w.env("off")), f.i64(0), f.i64(1))).compare("eq", 0)
        key = f.select(zero, w.env("zero"), number)
        return f.call("PyDict_GetItemWithError", "ptr", table, key)

    def kinds(self, operands: list[Value]) -> list[Value]:
        """Which operands are tensors (i1 each); the other may be a number."""
        w = self.w
        kinds = [w.field(a, "type") for a in operands]
        tensors = [w.same(k, w.env("tensor")) | w.same(k, w.env("parameter")) for k in kinds]
        if self.arity == 1:
            w.need(tensors[0], "other")
            return tensors
        numbers = [w.same(k, w.env("float")) | w.same(k, w.env("int")) for k in kinds]
        w.need(tensors[0] | tensors[1], "other")
        for t, n in zip(tensors, numbers, strict=True):
            w.need(t | n, "other")
        return tensors

    def _compute(self, operands: list[Value], tensors: list[Value]) -> None:
        f, w = self.f, self.w
        first = operands[0] if self.arity == 1 else f.select(tensors[0], *operands)
        array = w.field(first, "array")
        w.need(w.same(w.field(array, "type"), w.env("array_type")), "other")
        dtype = self.dtype_words(array)
        self.operand_arrays(operands, tensors, dtype)
        needs = self.needs(operands, tensors)
        entry = f.at(dtype, "i64", f.i64(4) + needs * 2)
        plan, layout = f.load(entry, "ptr"), f.load(f.at(entry, "i64", 1), "i64")
        recorded = w.differs(plan, w.null)
        saved = [self._saved(operands, tensors, i) for i in range(self.arity)]
        w.need(self._keepable(operands, tensors, layout, recorded), "other")
        out = self.result(dtype)
        made = self.alloc(w.env("tensor"), self.made, out)
        w.put(made, "array", out, owned=True)
        graph, bare = f.label("graph"), f.label("bare")
        f.branch(recorded, graph, bare)
        f.start(bare)
        for name, value in (("_rg", w.env("false")), ("_edge", w.none), ("_cell", self.cell)):
            w.put(made, name, value)
        f.goto("made")
        f.start(graph)
        node = self._node()
        w.put(node, "plan", plan)
        self._edges(node, operands, needs)
        self._residuals(made, node, out, saved, layout)
        self._shape(node, out)
        self.stamp(node)
        w.put(made, "_rg", w.env("true"))
        w.put(made, "_edge", node, owned=True)
        f.goto("made")
        f.start("made")
        self._give(made, operands)

    def _give(self, made: Value, operands: list[Value]) -> None:
        """Return the tensor, once those who watch know of it."""
        f, w = self.f, self.w
        tell, named, done = f.label("tell"), f.label("named"), f.label("done")
        f.branch(self.told, tell, done)
        f.start(tell)
        args = f.call("PyTuple_New", "ptr", f.i64(self.arity))
        w.need(w.differs(args, w.null), "untold")
        for i, a in enumerate(operands):
            w.hold(a)
            w.fill(args, i, a)
        op = f.load(f.at(f.args[0], "i8", self.at["items"] + 8 * OP), "ptr")
        for i, part in enumerate((op, args, w.env("no_attributes"), made)):
            f.store(part, f.at(self.four, "ptr", i))
        said = f.call("PyObject_Vectorcall", "ptr", w.env("tell"), self.four, f.i64(4), w.null)
        w.drop(args)
        f.branch(w.same(said, w.null), "untold", named)
        f.start(named)
        w.drop(said)
        f.goto(done)
        f.start(done)
        f.ret(made)
        f.start("untold")
        w.drop(made)
        f.ret(w.null)

    def _node(self) -> Value:
        """A node with empty slots, made as those of its type are."""
        f, w = self.f, self.w
        type_, alloc = (f.load(f.at(self.record, "i64", i), "ptr") for i in (NODE_TYPE, ALLOC))
        node = f.emit("ptr", f"call ptr {alloc.ref}(ptr {type_.ref}, i64 0)")
        w.need(w.differs(node, w.null), "failed")
        f.store(node, self.node)
        return node

    def result(self, dtype: Value, small: bool = False) -> Value:
        """The array of the result: by the program for small arrays, by a plan for large ones if
        those are meant too."""
        f, w = self.f, self.w
        computed, before = f.label("computed"), []
        for word, env in ((1, "compute"), (2, "planned"))[:1 if small else 2]:
            program = f.load(f.at(dtype, "i64", word), "ptr")
            w.need(w.differs(program, w.null), "other")
            out = f.emit("ptr", f"call ptr {w.env(env).ref}(ptr {program.ref}, "
                                f"ptr {self.arrays.ref}, i64 {self.arity})")
            before.append((out, f.block))
            refused = f.label("refused")
            f.branch(w.differs(out, w.null), computed, refused)
            f.start(refused)
            w.need(w.same(f.emit("ptr", "call ptr @PyErr_Occurred()"), w.null), "failed")
        f.goto("other")
        f.start(computed)
        return f.phi("ptr", before)

    def dtype_words(self, array: Value) -> Value:
        """The words of the record for the dtype of an array."""
        f, w = self.f, self.w
        descr = w.field(array, "descr")
        places = [f.at(self.record, "i64", DTYPES + DTYPE_WORDS * i) for i in range(3)]
        hits = [w.same(descr, f.load(p, "ptr")) for p in places]
        w.need(hits[0] | hits[1] | hits[2], "other")
        return f.select(hits[0], places[0], f.select(hits[1], *places[1:]))

    def operand_arrays(self, operands: list[Value], tensors: list[Value], dtype: Value) -> None:
        """`self.values`: the arrays of tensors, 0-d arrays of numbers that were seen before."""
        f, w = self.f, self.w
        self.values = []
        for i, (a, is_tensor) in enumerate(zip(operands, tensors, strict=True)):
            value = w.field(a, "array") if self.arity == 1 else w.either(
                is_tensor, partial(w.field, a, "array"), partial(self._number, a, dtype))
            w.need(w.differs(value, w.null), "other")
            f.store(value, f.at(self.arrays, "ptr", i))
            self.values.append(value)

    def needs(self, operands: list[Value], tensors: list[Value]) -> Value:
        """The pattern of operands that want a gradient; 0 where no graph may be built."""
        f, w = self.f, self.w
        total = f.i64(0)
        yes = w.env("true")
        for i, (a, is_tensor) in enumerate(zip(operands, tensors, strict=True)):
            wants = w.either(is_tensor, partial(w.has, a, "_rg", yes),
                             partial(f.const, "i1", False))
            total = total | f.select(wants & self.grad, f.i64(1 << i), f.i64(0))
        return total

    def _saved(self, operands: list[Value], tensors: list[Value], i: int) -> Value:
        """What a node would keep of an operand: the tensor, or the number's array."""
        if self.arity == 1:
            return operands[0]
        return self.f.select(tensors[i], operands[i], self.values[i])

    def _keepable(self, operands: list[Value], tensors: list[Value], layout: Value,
                  recorded: Value) -> Value:
        """Whether the residuals are ones that this code fills in: operands whose storage nothing
        was written to, or the output."""
        f = self.f
        calm = [self.w.either(t, partial(self.calm, a), partial(f.const, "i1", True))
                for a, t in zip(operands, tensors, strict=True)]
        good = layout.compare("eq", NOTHING) | layout.compare("eq", OUTPUT)
        good = good | (layout.compare("eq", FIRST) & calm[0])
        if self.arity == 2:
            good = good | (layout.compare("eq", SECOND) & calm[1])
            pair = layout.compare("eq", SWAPPED) | layout.compare("eq", BOTH)
            good = good | (pair & calm[0] & calm[1])
        return good | (recorded ^ f.const("i1", True))

    def _edges(self, node: Value, operands: list[Value], needs: Value) -> None:
        w = self.w
        for i, a in enumerate(operands):
            wanted = (needs & (1 << i)).compare("ne", 0)
            w.put(node, f"e{i}", w.either(wanted, partial(self.edge, a), self.nothing),
                  owned=True)

    def _residuals(self, made: Value, node: Value, out: Value, saved: list[Value],
                   layout: Value) -> None:
        f, w = self.f, self.w
        output, done = f.label("output"), f.label("kept")
        simple = f.label("simple")
        f.branch(layout.compare("eq", OUTPUT), output, simple)
        f.start(output)
        w.put(node, "s0", self.output(made, out), owned=True)
        f.goto(done)
        f.start(simple)
        w.put(made, "_cell", w.none)
        some, none = f.label("some"), f.label("nothing")
        f.branch(layout.compare("eq", NOTHING), none, some)
        f.start(none)
        w.put(node, "s0", w.none)
        f.goto(done)
        f.start(some)
        if self.arity == 1:
            w.put(node, "s0", self.kept(saved[0]), owned=True)
        else:
            swapped, both = layout.compare("eq", SWAPPED), layout.compare("eq", BOTH)
            ordered = layout.compare("eq", FIRST) | both
            w.put(node, "s0", self.kept(f.select(ordered, *saved)), owned=True)

            def second() -> None:
                kept = self.kept(f.select(both, saved[1], saved[0]))
                w.put(node, "s1", kept, owned=True)
            w.when(swapped | both, second)
        f.goto(done)
        f.start(done)

    def _shape(self, node: Value, out: Value) -> None:
        """The shape: the tuple of the edge's, where that is the same, or a new one."""
        f, w = self.f, self.w
        unlike, done = f.label("unlike"), f.label("shaped")
        before = w.field(node, "e0")
        w.need(w.differs(before, w.none), unlike)
        w.need(w.differs(w.field(before, "type"), w.env("port")), unlike)
        known = w.shape_of(before)
        w.fits(known, out, unlike)
        w.put(node, "shape", known)
        f.goto(done)
        f.start(unlike)
        nd, dims = w.rank(out), w.field(out, "dims")
        shape = self.new("PyTuple_New", nd)
        w.put(node, "shape", shape, owned=True)

        def one(i: Value, _: list[Value]) -> list[Value]:
            size = self.new("PyLong_FromLongLong", f.load(f.at(dims, "i64", i), "i64"))
            w.fill(shape, i, size)
            return []
        f.loop(f.i64(0), nd, 1, [], one)
        f.goto(done)
        f.start(done)
