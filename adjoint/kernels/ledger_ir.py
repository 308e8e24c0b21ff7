"""Machine code that keeps the books of the ledger of memory: entries of storages, ends of events,
and what nodes keep. `memory/ledger.py` has the steps in Python; `events_ir` is built of this.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from adjoint.kernels.ir import PLAIN, Code, Value
from adjoint.kernels.nodes_ir import Part, place
from adjoint.kernels.objects_ir import Writer
from adjoint.kernels.objects_ir import declare as declare_objects

ENV = ("tensor", "parameter", "array_type", "none_type", "none", "true", "false", "on", "off",
       "float", "int", "bool", "tuple", "list", "getframe", "is_inside", "port", "ref", "kept",
       "freed", "aval_type", "pair_node", "op_node", "entry", "saver", "modules", "clock",
       "forever", "written_out", "empty", "temporary", "gradient", "accumulated", "grad_of",
       # names of attributes
       "name", "nbytes", "op_name", "class_name", "_grad")
KNOWN, LOG, WRITE, NODES, PATHS, WORDS = range(6)         # places in `self`
# the words of its bytes: addresses of the allocator's counters and of what resets their peak, of
# the meter's start and top, of the most that was alive, and of how many backward passes run
COUNTERS, RESET, METER, MOST, WALKING = range(5)


def declare(code: Code, offsets: Mapping[str, int]) -> None:
    """The functions that events are written down with, and what these need."""
    declare_objects(code, ENV)
    code.declare("PyList_Append", "declare i32 @PyList_Append(ptr, ptr)")
    code.declare("PyUnicode_Concat", "declare ptr @PyUnicode_Concat(ptr, ptr)")
    code.declare("PySet_Contains", "declare i32 @PySet_Contains(ptr, ptr)")
    code.declare("PyFloat_AsDouble", "declare double @PyFloat_AsDouble(ptr)")
    code.declare("PyBytes_FromStringAndSize",
                 "declare ptr @PyBytes_FromStringAndSize(ptr, i64)")
    place(code, offsets, ENV)
    for kind in ("entry", "saver"):
        _light(code, offsets, kind)
    _follow(code, offsets)
    for part in (_Storage, _Known, _Enter, _Mark, _Residual):
        part(code, offsets).emit()


def _light(code: Code, offsets: Mapping[str, int], kind: str) -> None:
    """`entry_alloc` and `entry_free` (`saver_...`): instances that do not bring Python's collector
    on. They stay by the hundred for each step, where it would come the more often and find nothing.
    It has to know them, as it clears weak references itself."""
    size = 8 + max(at for name, at in offsets.items() if name.startswith(kind + "."))
    head = offsets["head." + kind]
    for text in ("ptr @PyObject_Calloc(i64, i64)", "ptr @PyObject_Init(ptr, ptr)",
                 "ptr @PyErr_NoMemory()", "void @PyObject_Free(ptr)",
                 "void @PyObject_GC_Track(ptr)"):
        code.declare(text.split("@")[1].split("(")[0], f"declare {text}")
    f = code.function(kind + "_alloc", [("ptr", "type"), ("i64", "n")], returns="ptr")
    w = Writer(f, offsets, ENV)
    place = f.call("PyObject_Calloc", "ptr", f.i64(1), f.i64(size + head))
    w.need(w.differs(place, w.null), "refused")
    made = f.call("PyObject_Init", "ptr", f.at(place, "i8", head), f.args[0])
    f.call("PyObject_GC_Track", "void", made)
    f.ret(made)
    f.start("refused")
    f.ret(f.call("PyErr_NoMemory", "ptr"))
    f = code.function(kind + "_free", [("ptr", "thing")])
    f.call("PyObject_Free", "void", f.at(f.args[0], "i8", -head))
    f.ret()


def _follow(code: Code, offsets: Mapping[str, int]) -> None:
    """`follow`, a `traverseproc`: all that a record tells the collector of is its callback, which
    is the log's. Nothing else that it refers to can lead to it, but by what `Ledger` clears."""
    f = code.function("follow", [("ptr", "self"), ("ptr", "visit"), ("ptr", "arg")], returns="i32")
    w = Writer(f, offsets, ENV)
    thing = w.field(f.args[0], "callback")
    w.need(w.differs(thing, w.null), "none")
    f.ret(f.emit("i32", f"call i32 {f.args[1].ref}(ptr {thing.ref}, ptr {f.args[2].ref})"))
    f.start("none")
    f.ret(f.const("i32", 0))


class Writes(Part):
    """A function that writes to the log. Its block "failed" is left with an exception set."""

    name, returns = "", "ptr"
    arguments: tuple[str, ...] = ("own",)
    builtin = False

    def __init__(self, code: Code, offsets: Mapping[str, int]) -> None:
        arguments = ([("ptr", "self"), ("ptr", "args"), ("i64", "count")] if self.builtin
                     else [("ptr", a) for a in self.arguments])
        super().__init__(code.function(self.name, arguments, returns=self.returns, attributes=PLAIN,
                                       internal=not self.builtin), offsets, ENV)
        self.own = self.f.args[0]
        self.word_of_stack = self.w.null                 # where the stack of modules is put
        self.held: list[Value] = []

    def emit(self) -> None:
        raise NotImplementedError

    def mine(self, what: int) -> Value:
        """One of the things that the ledger writes to."""
        return self.w.item(self.own, what)

    def word(self, which: int, ty: str = "ptr") -> Value:
        """One of the addresses."""
        start = self.f.at(self.mine(WORDS), "i8", self.at["bytes"])
        return self.f.load(self.f.at(start, "i64", which), ty)

    def variable(self) -> Value:
        """A place for something held, given back at the end."""
        slot = self.f.emit("ptr", "alloca ptr, align 8")
        self.f.store(self.w.null, slot)
        self.held.append(slot)
        return slot

    def hold(self, thing: Value) -> Value:
        """Note a new reference, to be given back at the end."""
        slot = self.slots.pop()
        self.f.store(thing, slot)
        return thing

    def room(self, count: int) -> None:
        """Places for that many new references."""
        self.slots = [self.variable() for _ in range(count)]

    def ends(self, **answers: Value | str) -> None:
        """The blocks of these names: give back what is held and return that value, or a new
        reference to that object of the environment."""
        for block, answer in answers.items():
            self.f.start(block)
            for slot in self.held:
                thing = self.f.load(slot, "ptr")
                self.w.when(self.w.differs(thing, self.w.null), partial(self.w.drop, thing))
            if isinstance(answer, str):
                answer = self.w.env(answer)
                self.w.hold(answer)
            self.f.ret(answer)

    def address(self, thing: Value) -> Value:
        """The address of an object as a Python int: a new reference."""
        return self.new("PyLong_FromLongLong", self.f.cast("ptrtoint", thing, "i64"))

    def fine(self, status: Value) -> None:
        """Go on where a function of C has not failed."""
        self.w.need(status.compare("sge", 0), "failed")

    def write(self, record: Value) -> None:
        """Append to the log."""
        self.fine(self.f.call("PyList_Append", "i32", self.mine(LOG), record))

    def weak(self, kind: str, thing: Value) -> Value:
        """A weak reference of that class, whose end is written to the log: a new reference."""
        f = self.f
        f.store(thing, self.two)
        f.store(self.mine(WRITE), f.at(self.two, "ptr", 1))
        return self.new("PyObject_Vectorcall", self.w.env(kind), self.two, f.i64(2), self.w.null)

    def pair(self) -> None:
        """Room for the operands of `weak`."""
        self.two = self.f.emit("ptr", "alloca [2 x ptr], align 8")

    def module(self) -> Value:
        """The path of the module that is being called, without a reference of ours."""
        f, w = self.f, self.w
        word = self.word_of_stack
        self.fine(f.emit("i32", f"call i32 @PyContextVar_Get(ptr {w.env('modules').ref}, ptr null, "
                                f"ptr {word.ref})"))
        stack = f.load(word, "ptr")
        w.drop(stack)                                    # the context has it
        n = w.length(stack)
        return w.either(n.compare("sgt", 0), lambda: w.item(w.item(stack, n - 1), 0),
                        lambda: w.env("empty"))

    def named(self, node: Value) -> Value:
        """What the method `name` of an ordinary node answers, for most their class's name; noted as
        held."""
        f, w = self.f, self.w
        usual = self.hold(self.new("PyObject_GetAttr", w.field(node, "type"), w.env("class_name")))
        other = f.call("PySet_Contains", "i32", w.env("written_out"), usual)
        self.fine(other)

        def asked() -> Value:
            method = self.new("PyObject_GetAttr", node, w.env("name"))
            answer = f.call("PyObject_CallNoArgs", "ptr", method)
            w.drop(method)
            w.need(w.differs(answer, w.null), "failed")
            return answer

        def as_usual() -> Value:
            w.hold(usual)
            return usual
        return self.hold(w.either(other.compare("ne", 0), asked, as_usual))

    def known(self, array: Value) -> Value:
        return self.f.call("known", "ptr", self.own, array)

    def possible(self, array: Value) -> None:
        """Go on where an array is known, or can be entered here; else to "other"."""
        f, w = self.f, self.w
        w.need(w.has(array, "type", w.env("array_type")), "other")
        root = f.call("storage", "ptr", array)
        there = w.either(w.differs(root, w.null), lambda: root, lambda: self.known(array))
        w.need(w.differs(there, w.null), "other")

    def each(self, items: Value, n: Value, body: Callable[[Value, Value], object]) -> None:
        """`body(index, item)` for so many pointers in a row."""
        f = self.f

        def one(i: Value, _: list[Value]) -> list[Value]:
            body(i, f.load(f.at(items, "ptr", i), "ptr"))
            return []
        f.loop(f.i64(0), n, 1, [], one)

    def keep(self, kept: Value, saved: Value, node: Value, module: Value) -> None:
        """Put the entry of what a node has saved into a list; else to "other"."""
        w = self.w
        w.need(w.differs(saved, w.null), "other")
        status = self.f.call("residual", "i32", self.own, kept, saved, node, module)
        self.fine(status)
        w.need(status.compare("ne", 0), "other")

    def enter(self, array: Value, op: Value, role: Value, node: Value, module: Value
              ) -> Value:
        """The entry of the storage of a possible array, made if it is new."""
        return self.new("entered", self.own, array, op, role, node, module)

    def mark(self, name: Value, module: Value) -> None:
        """End the event."""
        self.fine(self.f.call("mark", "i32", self.own, name, module))

    def ordinary(self, node: Value) -> Value:
        """Whether a node of an op is of a pair (else wide); others are not for here."""
        w = self.w
        parent = w.field(w.field(node, "type"), "parent")
        pair = w.same(parent, w.env("pair_node"))
        w.need(pair | w.same(parent, w.env("op_node")), "other")
        return pair


class _Storage(Writes):
    """`storage(array)`: what owns its memory, without a reference; NULL where that is no plain
    array."""

    name, arguments = "storage", ("array",)

    def emit(self) -> None:
        f, w = self.f, self.w
        before = f.block
        f.goto("head")
        f.start("head")
        array = f.phi("ptr", [(f.args[0], before), (Value(f, "%base", "ptr"), "down")])
        w.need(w.has(array, "type", w.env("array_type")), "none")
        f.do(f"%base = load ptr, ptr {f.at(array, 'i8', self.at['base']).ref}")
        f.branch(w.same(Value(f, "%base", "ptr"), w.null), "root", "down")
        f.start("down")
        f.goto("head")
        f.start("root")
        f.ret(array)
        f.start("none")
        f.ret(w.null)


class _Known(Writes):
    """`known(own, array)`: the entry of the storage behind an array, without a reference; NULL."""

    name, arguments = "known", ("own", "array")

    def emit(self) -> None:
        f, w = self.f, self.w
        array = f.args[1]
        base, view, own = w.field(array, "base"), f.label("view"), f.label("own")
        f.branch(w.same(base, w.null), own, view)
        f.start(own)
        self._look(array)
        f.goto("nothing")
        f.start(view)
        root = f.call("storage", "ptr", array)
        memory = w.either(w.same(root, w.null), lambda: array, lambda: root)
        self._look(memory)                  # (an array over memory that is not NumPy's: itself)
        f.goto("nothing")
        f.start("nothing")
        f.ret(w.null)

    def _look(self, storage: Value) -> None:
        """Return the entry of a storage, if there is one: among the weak references to it, the one
        whose end is written to this log."""
        f, w = self.f, self.w
        kind, write = w.env("entry"), self.mine(WRITE)
        first, before, head = w.field(storage, "weakrefs"), f.block, f.label("ref")
        some, ours, other, over = (f.label(n) for n in ("some", "ours", "other", "over"))
        after = f.label("%next")
        f.goto(head)
        f.start(head)
        ref = f.phi("ptr", [(first, before), (Value(f, after, "ptr"), other)])
        f.branch(w.same(ref, w.null), over, some)
        f.start(some)
        f.branch(w.has(ref, "type", kind) & w.has(ref, "callback", write), ours, other)
        f.start(ours)
        f.ret(ref)
        f.start(other)
        f.do(f"{after} = load ptr, ptr {f.at(ref, 'i8', self.at['next']).ref}")
        f.goto(head)
        f.start(over)


class _Enter(Writes):
    """`entered(own, array, op, role, node, module)`: the entry of the storage behind an array, made
    if it is new, without a reference; of the node's line, or the caller's where there is none."""

    name, arguments = "entered", ("own", "array", "op", "role", "node", "module")

    def emit(self) -> None:
        f, w = self.f, self.w
        self.pair()
        self.room(2)
        _, array, op, role, node, module = f.args
        self.lasti = self.variable()
        self.code = self.variable()
        entry = self.known(array)
        new = f.label("new")
        f.branch(w.same(entry, w.null), new, "there")
        f.start("there")
        f.ret(entry)
        f.start(new)
        storage = f.call("storage", "ptr", array)
        made = self.hold(self.weak("entry", storage))
        key = self.hold(self.address(storage))
        size = self.new("PyObject_GetAttr", storage, w.env("nbytes"))
        f.store(size, self.code)                         # (until it is the entry's)
        some = f.call("PyLong_AsLongLong", "i64", size).compare("ne", 0)
        w.put(made, "entry.nbytes", f.select(some, size, w.env("on")))
        f.store(w.null, self.code)
        w.drop(size)
        sizes = w.field(storage, "dims"), w.rank(storage) * 8
        w.put(made, "entry.shape", self.new("PyBytes_FromStringAndSize", *sizes), owned=True)
        for name, value in (("key", key), ("dtype", w.field(storage, "descr")), ("op", op),
                            ("role", role), ("module", module), ("name", w.env("empty")),
                            ("born", w.env("forever"))):
            w.put(made, "entry." + name, value)
        self._place(node)
        w.put(made, "entry.code", f.load(self.code, "ptr"))
        w.put(made, "entry.lasti", f.load(self.lasti, "ptr"))
        self.fine(f.call("PyDict_SetItem", "i32", self.mine(KNOWN), key, made))
        self.write(made)
        f.goto("done")
        self.ends(done=made, failed=w.null)

    def _place(self, node: Value) -> None:
        """`code` and `lasti`, each with a reference."""
        f, w = self.f, self.w
        some, its, here, nowhere, lost, done = (
            f.label(n) for n in ("some", "its", "here", "nowhere", "lost", "placed"))
        f.branch(w.same(node, w.null), here, some)
        f.start(some)
        f.branch(w.has(node, "code", w.none), here, its)
        f.start(its)
        for name, slot in (("code", self.code), ("lasti", self.lasti)):
            value = w.field(node, name)
            w.hold(value)
            f.store(value, slot)
        f.goto(done)
        f.start(here)
        code = f.call("place", "ptr", self.lasti)
        f.store(code, self.code)
        f.branch(w.same(code, w.null), nowhere, done)
        f.start(nowhere)
        f.store(w.null, self.lasti)
        f.branch(w.same(f.call("PyErr_Occurred", "ptr"), w.null), lost, "failed")
        f.start(lost)
        for value, slot in ((w.none, self.code), (w.env("off"), self.lasti)):
            w.hold(value)
            f.store(value, slot)
        f.goto(done)
        f.start(done)


class _Mark(Writes):
    """`mark(own, name, module)`: the end of an event, with what `Meter.mark` says; -1 for an error.
    """

    name, returns, arguments = "mark", "i32", ("own", "name", "module")

    def emit(self) -> None:
        f, w = self.f, self.w
        self.room(2)
        counters, meter, most = (self.word(k) for k in (COUNTERS, METER, MOST))
        live, peak = (f.load(f.at(counters, "i64", i), "i64") for i in range(2))

        def above() -> None:
            f.store(f.intrinsic("smax", peak, f.load(most, "i64")), most)
            f.do(f"call void {self.word(RESET).ref}()")
        w.when(peak.compare("ne", live), above)
        start, over = f.load(meter, "i64"), f.at(meter, "i64", 1)
        top = f.intrinsic("smax", f.load(over, "i64"), f.emit(
            "i64", f"sub i64 {peak.ref}, {start.ref}"))
        f.store(f.i64(0), over)
        now = self.hold(self.new("PyObject_CallNoArgs", w.env("clock")))
        numbers = f.emit("ptr", "alloca [3 x i64], align 8")
        f.store(f.emit("i64", f"sub i64 {live.ref}, {start.ref}"), numbers)
        f.store(top, f.at(numbers, "i64", 1))
        f.store(f.call("PyFloat_AsDouble", "double", now), f.at(numbers, "i64", 2))
        self.write(self.hold(self.new("PyBytes_FromStringAndSize", numbers, f.i64(24))))
        for text in f.args[1:]:
            self.write(text)
        f.goto("done")
        self.ends(done=f.const("i32", 0), failed=f.const("i32", -1))


class _Residual(Writes):
    """`residual(own, kept, saved, node, module)` puts the entry of what a node has saved into the
    list `kept`: 1; 0 where that is unusual, -1 for an error."""

    name, returns, arguments = "residual", "i32", ("own", "list", "saved", "node", "module")

    def emit(self) -> None:
        f, w = self.f, self.w
        self.room(2)
        _, kept, saved, node, module = f.args
        kind, slot = w.field(saved, "type"), f.emit("ptr", "alloca ptr, align 8")
        ways: tuple[tuple[str, Callable[[], Value]], ...] = (
                ("kept", lambda: w.field(w.field(saved, "kept.tensor"), "array")),
                ("ref", lambda: w.field(saved, "ref.array")),
                ("tensor", lambda: w.field(saved, "array")),
                ("parameter", lambda: w.field(saved, "array")),
                ("array_type", lambda: self._own(saved)))
        for name, body in ways:
            its, other = f.label("is_" + name), f.label("not_" + name)
            f.branch(w.same(kind, w.env(name)), its, other)
            f.start(its)
            f.store(body(), slot)
            f.goto("array")
            f.start(other)
        several, single = f.label("several"), f.label("single")
        f.branch(w.same(kind, w.env("tuple")), several, single)
        f.start(several)
        self.each(f.at(saved, "i8", self.at["items"]), w.length(saved),
                  lambda i, s: self.keep(kept, s, node, module))
        f.goto("done")
        f.start(single)
        w.need(w.same(kind, w.env("aval_type")) | w.same(kind, w.env("none_type")), "other")
        f.goto("done")
        f.start("array")
        array = f.load(slot, "ptr")
        w.need(w.has(array, "type", w.env("array_type")), "other")
        found, new = self.known(array), f.label("new")
        f.store(found, slot)
        f.branch(w.differs(found, w.null), "keep", new)
        f.start(new)
        w.need(w.differs(f.call("storage", "ptr", array), w.null), "other")
        op = self.hold(self.new("PyObject_GetAttr", w.field(node, "plan"), w.env("op_name")))
        called = self.hold(self.new("PyObject_GetAttr", op, w.env("name")))
        f.store(self.enter(array, called, w.env("empty"), node, module), slot)
        f.goto("keep")
        f.start("keep")
        self.fine(f.call("PyList_Append", "i32", kept, f.load(slot, "ptr")))
        f.goto("done")
        self.ends(done=f.const("i32", 1), other=f.const("i32", 0), failed=f.const("i32", -1))

    def _own(self, saved: Value) -> Value:
        """An array, which counts if the memory is its own."""
        f, w = self.f, self.w
        on = f.label("owns")
        f.branch(w.has(saved, "base", w.null), on, "done")
        f.start(on)
        return saved
