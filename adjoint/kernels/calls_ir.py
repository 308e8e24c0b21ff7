"""The machine code of `calls`: an op on small plain tensors from its operands to its node.

    PyObject *op1(PyObject *self, PyObject *const *args, Py_ssize_t count)      # op2 likewise

`self` is a tuple whose first item is the record, a bytes object of 8-byte words (`record`). They
do what the templates of `core/callers.py` do for exact tensors and numbers, of which they return
None for everything else: the template then runs. A node is filled before anybody sees it.
"""
from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from adjoint.kernels.ir import Code, Value
from adjoint.kernels.objects_ir import Writer, declare

# Words of `@env`, the same for all ops: addresses of objects of this process.
ENV = ("tensor", "array_type", "state", "off", "on", "true", "false", "counter", "edge_of",
       "getframe", "is_inside", "cell", "ref", "float", "int", "none", "compute",
       "tuple", "accumulate", "port", "touched", "kept", "inference")
# Words of a record: the node's type, then for float32 and for float64 the array's descriptor, the
# program, the dict of number -> 0-d array, and a plan and its layout per pattern of operands.
NODE_TYPE, DTYPES, DTYPE_WORDS = 0, 1, 3 + 2 * 4
NOTHING, FIRST, SECOND, SWAPPED, OUTPUT, BOTH = range(6)      # layouts, as in core.op
SEEN = 256               # entries of the table of code objects: is it this package's own?


def text(offsets: Mapping[str, int]) -> str:
    """The IR; `offsets` are those of `direct_ir` and of the slots of tensors and nodes."""
    code = Code()
    declare(code, ENV)
    code.declare("seen", f"@seen = internal global [{4 * SEEN} x i64] zeroinitializer")
    _place(code, offsets)
    for arity in (1, 2):
        _Call(code, offsets, arity).emit()
    return code.text()


def _place(code: Code, offsets: Mapping[str, int]) -> None:
    """The user's line: `ptr place(ptr *lasti)` returns the code object of the nearest frame outside
    of the package and its instruction offset as a Python int, both as new references; NULL where
    there is none. What is known of a code object is kept in a table, with the object; so is its
    last offset: the same number again is one object less for the garbage collector to visit."""
    f = code.function("place", [("ptr", "lasti")], returns="ptr", internal=True)
    w = Writer(f, offsets, ENV)
    argument = f.emit("ptr", "alloca ptr, align 8")
    f.store(w.env("on"), argument)                      # _getframe(1): the template's caller
    first = f.call("PyObject_Vectorcall", "ptr", w.env("getframe"), argument, f.i64(1), w.null)
    w.need(w.differs(first, w.null), "none")
    before, head = f.block, f.label("frame")
    f.goto(head)
    f.start(head)
    frame = f.phi("ptr", [(first, before), (Value(f, "%back", "ptr"), "outwards")])
    owner = f.call("PyFrame_GetCode", "ptr", frame)
    word = f.emit("i64", f"ptrtoint ptr {owner.ref} to i64")
    entry = f.at(Value(f, "@seen", "ptr"), "i64", ((word >> 6) & (SEEN - 1)) * 4)
    held = f.load(entry, "ptr")
    state = f.at(entry, "i64", 1)

    def ask() -> Value:
        answer = f.call("PyObject_CallOneArg", "ptr", w.env("is_inside"), owner)
        old = f.load(entry, "ptr")                      # now: another thread may have been here
        w.hold(owner)
        f.store(owner, entry)
        f.store(answer, state)
        w.when(w.differs(old, w.null), partial(w.drop, old))
        w.drop(answer)                                  # True and False stay where they are
        return answer

    inside = w.either(w.same(held, owner), lambda: f.load(state, "ptr"), ask)
    f.branch(w.same(inside, w.env("true")), "leave", "found")
    f.start("leave")
    f.do("%back = call ptr @PyFrame_GetBack(ptr " + frame.ref + ")")
    w.drop(owner)
    w.drop(frame)
    f.branch(w.same(Value(f, "%back", "ptr"), w.null), "none", "outwards")
    f.start("outwards")
    f.goto(head)
    f.start("found")
    number = f.cast("sext", f.emit("i32", f"call i32 @PyFrame_GetLasti(ptr {frame.ref})"), "i64")
    last, known = f.at(entry, "i64", 2), f.at(entry, "i64", 3)
    number_before = f.load(known, "ptr")

    def again() -> Value:
        w.hold(number_before)
        return number_before

    def first_time() -> Value:
        made = f.call("PyLong_FromLongLong", "ptr", number)
        w.hold(made)
        f.store(number, last)
        f.store(made, known)
        w.when(w.differs(number_before, w.null), partial(w.drop, number_before))
        return made
    same = f.emit("i1", f"icmp eq i64 {f.load(last, 'i64').ref}, {number.ref}")
    f.store(w.either(same & w.differs(number_before, w.null), again, first_time), f.args[0])
    w.drop(frame)
    f.ret(owner)
    f.start("none")
    f.ret(w.null)


class _Call:
    """`op1` or `op2`."""

    def __init__(self, code: Code, offsets: Mapping[str, int], arity: int) -> None:
        self.arity = arity
        self.f = code.function(f"op{arity}", [("ptr", "self"), ("ptr", "args"), ("i64", "count")],
                               returns="ptr")
        self.w = Writer(self.f, offsets, ENV)
        self.at = offsets

    def emit(self) -> None:
        f, w = self.f, self.w
        self.arrays = f.emit("ptr", "alloca [2 x ptr], align 8")
        self.cell, self.made, self.node, self.lasti = (
            f.emit("ptr", "alloca ptr, align 8") for _ in range(4))
        f.store(w.null, self.made)
        f.store(w.null, self.node)
        w.need(f.args[2].compare("eq", self.arity), "other")
        owner = f.load(f.at(f.args[0], "i8", self.at["items"]), "ptr")
        self.record = f.at(owner, "i8", self.at["bytes"])
        operands = [f.load(f.at(f.args[1], "ptr", i), "ptr") for i in range(self.arity)]
        self._mode()
        tensors = self._kinds(operands)
        self._compute(operands, tensors)
        f.start("other")
        w.hold(w.none)
        f.ret(w.none)
        f.start("failed")                               # an exception is set
        for place in (self.made, self.node):
            thing = f.load(place, "ptr")
            w.when(w.differs(thing, w.null), partial(w.drop, thing))
        f.ret(w.null)

    def _mode(self) -> None:
        """`self.grad`: may a graph be built? Any other state than that is the template's."""
        f, w = self.f, self.w
        f.store(w.null, self.cell)
        f.do(f"call i32 @PyContextVar_Get(ptr {w.env('state').ref}, ptr null, "
             f"ptr {self.cell.ref})")
        state = f.load(self.cell, "ptr")
        w.need(w.differs(state, w.null), "failed")
        w.drop(state)                                   # a small int: it stays
        self.grad = w.same(state, w.env("on"))
        w.need(self.grad | w.same(state, w.env("off")), "other")

    def _kinds(self, operands: list[Value]) -> list[Value]:
        """Which operands are tensors (i1 each); the other may be a number."""
        w = self.w
        tensor = w.env("tensor")
        kinds = [w.field(a, "type") for a in operands]
        tensors = [w.same(k, tensor) for k in kinds]
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
        dtype = self._dtype(array)
        self._operand_arrays(operands, tensors, dtype)
        needs = self._needs(operands, tensors)
        entry = f.at(dtype, "i64", f.i64(3) + needs * 2)
        plan, layout = f.load(entry, "ptr"), f.load(f.at(entry, "i64", 1), "i64")
        recorded = w.differs(plan, w.null)
        saved = [self._saved(operands, tensors, i) for i in range(self.arity)]
        w.need(self._keepable(operands, tensors, layout, recorded), "other")
        count = f.i64(self.arity)
        program = f.load(f.at(dtype, "i64", 1), "ptr")
        out = f.emit("ptr", f"call ptr {w.env('compute').ref}(ptr {program.ref}, "
                            f"ptr {self.arrays.ref}, i64 {count.ref})")
        computed = f.label("computed")
        refused = f.label("refused")
        f.branch(w.differs(out, w.null), computed, refused)
        f.start(refused)
        error = f.emit("ptr", "call ptr @PyErr_Occurred()")
        f.branch(w.same(error, w.null), "other", "failed")
        f.start(computed)
        made = self._alloc(w.env("tensor"), self.made, out)
        w.put(made, "array", out, owned=True)
        graph, bare = f.label("graph"), f.label("bare")
        f.branch(recorded, graph, bare)
        f.start(bare)
        for name, value in (("_rg", w.env("false")), ("_edge", w.none), ("_cell", w.none)):
            w.put(made, name, value)
        f.ret(made)
        f.start(graph)
        node = self._alloc(f.load(self.record, "ptr"), self.node)
        w.put(node, "plan", plan)
        self._edges(node, operands, needs)
        self._residuals(made, node, out, saved, layout)
        self._place(node, out)
        w.put(made, "_rg", w.env("true"))
        w.put(made, "_edge", node, owned=True)
        f.ret(made)

    def _dtype(self, array: Value) -> Value:
        """The words of the record for the dtype of an array."""
        f, w = self.f, self.w
        descr = w.field(array, "descr")
        places = [f.at(self.record, "i64", DTYPES + DTYPE_WORDS * i) for i in range(2)]
        hits = [w.same(descr, f.load(p, "ptr")) for p in places]
        w.need(hits[0] | hits[1], "other")
        return f.select(hits[0], *places)

    def _operand_arrays(self, operands: list[Value], tensors: list[Value], dtype: Value) -> None:
        """`self.values`: the arrays of tensors, 0-d arrays of numbers that were seen before."""
        f, w = self.f, self.w
        self.values = []
        for i, (a, is_tensor) in enumerate(zip(operands, tensors, strict=True)):
            def number(a: Value = a) -> Value:
                table = f.load(f.at(dtype, "i64", 2), "ptr")
                return f.call("PyDict_GetItemWithError", "ptr", table, a)
            value = w.field(a, "array") if self.arity == 1 else w.either(
                is_tensor, partial(w.field, a, "array"), number)
            w.need(w.differs(value, w.null), "other")
            f.store(value, f.at(self.arrays, "ptr", i))
            self.values.append(value)

    def _needs(self, operands: list[Value], tensors: list[Value]) -> Value:
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
        calm = [self.w.either(t, partial(self._calm, a), partial(f.const, "i1", True))
                for a, t in zip(operands, tensors, strict=True)]
        good = layout.compare("eq", NOTHING) | layout.compare("eq", OUTPUT)
        good = good | (layout.compare("eq", FIRST) & calm[0])
        if self.arity == 2:
            good = good | (layout.compare("eq", SECOND) & calm[1])
            pair = layout.compare("eq", SWAPPED) | layout.compare("eq", BOTH)
            good = good | (pair & calm[0] & calm[1])
        return good | (recorded ^ f.const("i1", True))

    def _calm(self, tensor: Value) -> Value:
        """Whether a tensor has its storage to itself, or at least nobody has written to that."""
        f, w = self.f, self.w
        cell = w.field(tensor, "_cell")

        def look() -> Value:
            return w.untouched(cell, "failed") & w.differs(cell, w.env("inference"))
        return w.either(w.same(cell, w.none), partial(f.const, "i1", True), look)

    def _keep(self, node: Value, slot: str, saved: Value) -> None:
        """Fill a residual slot with a tensor, or with what stands for one whose storage has a
        cell, or with a number's array."""
        f, w = self.f, self.w

        def itself() -> Value:
            w.hold(saved)
            return saved

        def tensor() -> Value:
            return w.either(w.has(saved, "_cell", w.none), itself, versioned)

        def versioned() -> Value:
            kept = self._new("PyType_GenericAlloc", w.env("kept"), f.i64(0))
            for name, value in (("tensor", saved), ("version", w.env("off")), ("mark", w.none)):
                w.put(kept, "kept." + name, value)
            return kept
        w.put(node, slot, w.either(w.has(saved, "type", w.env("tensor")), tensor, itself),
              owned=True)

    def _alloc(self, type_: Value, place: Value, *drop: Value) -> Value:
        """An object with empty slots, noted at `place` for the way out of an error."""
        f, w = self.f, self.w
        thing = f.call("PyType_GenericAlloc", "ptr", type_, f.i64(0))
        if drop:
            lost, born = f.label("lost"), f.label("born")
            f.branch(w.same(thing, w.null), lost, born)
            f.start(lost)
            w.drop(drop[0])
            f.goto("failed")
            f.start(born)
        else:
            w.need(w.differs(thing, w.null), "failed")
        f.store(thing, place)
        return thing

    def _new(self, name: str, *arguments: Value) -> Value:
        """A new object from a C function; NULL is an error."""
        made = self.f.call(name, "ptr", *arguments)
        self.w.need(self.w.differs(made, self.w.null), "failed")
        return made

    def _edges(self, node: Value, operands: list[Value], needs: Value) -> None:
        w = self.w
        for i, a in enumerate(operands):
            def edge(a: Value = a) -> Value:
                known = w.field(a, "_edge")

                def leaf() -> Value:
                    return self._new("PyObject_CallOneArg", w.env("edge_of"), a)

                def other() -> Value:
                    w.hold(known)
                    return known
                return w.either(w.same(known, w.none), leaf, other)

            def none() -> Value:
                w.hold(w.none)
                return w.none
            wanted = (needs & (1 << i)).compare("ne", 0)
            w.put(node, f"e{i}", w.either(wanted, edge, none), owned=True)

    def _residuals(self, made: Value, node: Value, out: Value, saved: list[Value],
                   layout: Value) -> None:
        f, w = self.f, self.w
        output, done = f.label("output"), f.label("kept")
        simple = f.label("simple")
        f.branch(layout.compare("eq", OUTPUT), output, simple)
        f.start(output)
        cell = self._new("PyObject_CallNoArgs", w.env("cell"))
        w.put(made, "_cell", cell, owned=True)
        ref = self._new("PyType_GenericAlloc", w.env("ref"), f.i64(0))
        for name, value in (("ref.array", out), ("ref.cell", cell), ("ref.index", w.env("off")),
                            ("ref.version", w.env("off"))):
            w.put(ref, name, value)
        w.put(node, "s0", ref, owned=True)
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
            self._keep(node, "s0", saved[0])
        else:
            swapped, both = layout.compare("eq", SWAPPED), layout.compare("eq", BOTH)
            ordered = layout.compare("eq", FIRST) | both
            self._keep(node, "s0", f.select(ordered, *saved))
            w.when(swapped | both, lambda: self._keep(node, "s1", f.select(both, saved[1],
                                                                           saved[0])))
        f.goto(done)
        f.start(done)

    def _shape(self, node: Value, dims: Value, nd: Value) -> None:
        """The shape: the tuple of the edge's, where that is the same, or a new one."""
        f, w = self.f, self.w
        unlike, done = f.label("unlike"), f.label("shaped")
        before = w.field(node, "e0")
        w.need(w.differs(before, w.none), unlike)
        w.need(w.differs(w.field(before, "type"), w.env("port")), unlike)
        leaf = w.has(before, "type", w.env("accumulate"))
        offset = f.select(leaf, f.i64(self.at["leaf.shape"]), f.i64(self.at["shape"]))
        known = f.load(f.at(before, "i8", offset), "ptr")
        w.need(w.has(known, "type", w.env("tuple")), unlike)
        rank = f.call("PyTuple_Size", "i64", known)
        w.need(f.emit("i1", f"icmp eq i64 {rank.ref}, {nd.ref}"), unlike)

        def check(i: Value, _: list[Value]) -> list[Value]:
            size = f.call("PyLong_AsLongLong", "i64", f.call("PyTuple_GetItem", "ptr", known, i))
            mine = f.load(f.at(dims, "i64", i), "i64")
            w.need(f.emit("i1", f"icmp eq i64 {size.ref}, {mine.ref}"), unlike)
            return []
        f.loop(f.i64(0), nd, 1, [], check)
        w.put(node, "shape", known)
        f.goto(done)
        f.start(unlike)
        shape = self._new("PyTuple_New", nd)
        w.put(node, "shape", shape, owned=True)

        def one(i: Value, _: list[Value]) -> list[Value]:
            size = self._new("PyLong_FromLongLong", f.load(f.at(dims, "i64", i), "i64"))
            f.call("PyTuple_SetItem", "i32", shape, i, size)
            return []
        f.loop(f.i64(0), nd, 1, [], one)
        f.goto(done)
        f.start(done)

    def _place(self, node: Value, out: Value) -> None:
        """Shape, number and line of the node."""
        f, w = self.f, self.w
        nd = f.cast("sext", f.load(f.at(out, "i8", self.at["nd"]), "i32"), "i64")
        self._shape(node, w.field(out, "dims"), nd)
        w.put(node, "seq", self._new("PyIter_Next", w.env("counter")), owned=True)
        code = f.call("place", "ptr", self.lasti)
        known, unknown, done = f.label("known"), f.label("unknown"), f.label("placed")
        f.branch(w.differs(code, w.null), known, unknown)
        f.start(known)
        w.put(node, "code", code, owned=True)
        w.put(node, "lasti", f.load(self.lasti, "ptr"), owned=True)
        f.goto(done)
        f.start(unknown)
        w.put(node, "code", w.none)
        w.put(node, "lasti", w.env("off"))
        f.goto(done)
        f.start(done)
