"""The machine code that replays what a public function did before with such arguments.

    PyObject *planned(PyObject *plans, PyObject *const *args, Py_ssize_t count)
    planned(positional, keywords) -> the result | None | the key, as bytes

The arguments become a key: of a tensor its dtype, shape (strides too where it is not contiguous)
and whether it wants a gradient; numbers by their bits, names and constants by their addresses,
lists, tuples and slices by their items. `plans` says for a key which ops the function ran
(`core/plans.py`); they run here, through the machine code of `bind`. None: the function has to run,
because an argument is of another kind, because what it did cannot be replayed, or because this key
was not seen before; the second time the key itself comes back, for a plan to be made.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping

from adjoint.kernels.ir import PLAIN, Code, Value
from adjoint.kernels.nodes_ir import Maker
from adjoint.kernels.objects_ir import Writer, declare

ENV = ("tensor", "parameter", "array_type", "state", "off", "on", "true", "none", "none_type",
       "float", "int", "bool", "tuple", "inference", "inferring", "list", "str", "size", "slice",
       "ellipsis_type", "dtype_type", "start", "stop", "step", "call", "told_on", "told_off")
WORDS, DEEP = 384, 80                   # of the key; of one argument
MOST, VALUES = 32, 64                   # tensors among the arguments; and results of ops
PLANS = 1024                            # of one function
# first word of what stands for an argument; of a tensor it has its number of axes in it
INT, FLOAT, NAME, TUPLE, LIST, SLICE, AGAIN, TENSOR = range(8)


def text(offsets: Mapping[str, int]) -> str:
    """The IR; `bind` is linked to it."""
    code = Code()
    declare(code, ENV)
    code.declare("bind", "declare ptr @bind(ptr, ptr, i64)")
    code.declare("PyFloat_AsDouble", "declare double @PyFloat_AsDouble(ptr)")
    code.declare("PyBytes_FromStringAndSize",
                 "declare ptr @PyBytes_FromStringAndSize(ptr, i64)")
    code.declare("PyDict_Next", "declare i32 @PyDict_Next(ptr, ptr, ptr, ptr)")
    code.declare("PyDict_Clear", "declare void @PyDict_Clear(ptr)")
    _Key(code, offsets).emit()
    _Planned(code, offsets).emit()
    return code.text()


class _Key:
    """`i32 describe(item, words, values, counts)`: add an argument to the key, and the tensors in
    it to the values; 0 where it is of another kind. `counts` are those of words and of values."""

    def __init__(self, code: Code, offsets: Mapping[str, int]) -> None:
        self.f = code.function("describe", [("ptr", "item"), ("ptr", "words"), ("ptr", "values"),
                                            ("ptr", "counts")], returns="i32", internal=True,
                               attributes=PLAIN)
        self.w = Writer(self.f, offsets, ENV)
        self.item, self.words, self.values, self.counts = self.f.args

    def emit(self) -> None:
        f, w = self.f, self.w
        w.need(f.load(self.counts, "i64").compare("slt", WORDS - DEEP), "bad")
        self.kind = w.field(self.item, "type")
        self._when(("tensor", "parameter"), self._tensor)
        self._when(("int",), self._int)
        self._when(("none_type", "bool", "str", "ellipsis_type", "dtype_type"), self._name)
        self._when(("tuple", "size"), lambda: self._items(TUPLE))
        self._when(("float",), self._float)
        self._when(("list",), lambda: self._items(LIST))
        self._when(("slice",), self._slice)
        f.goto("bad")
        f.start("bad")
        f.ret(f.const("i32", 0))

    def _when(self, kinds: tuple[str, ...], body: Callable[[], None]) -> None:
        """`body`, and done, for an argument of one of the types."""
        f, w = self.f, self.w
        hit = f.const("i1", False)
        for kind in kinds:
            hit = hit | w.same(self.kind, w.env(kind))
        yes, no = f.label("kind"), f.label("next")
        f.branch(hit, yes, no)
        f.start(yes)
        body()
        f.ret(f.const("i32", 1))
        f.start(no)

    def _push(self, word: Value) -> None:
        f = self.f
        n = f.load(self.counts, "i64")
        f.store(word, f.at(self.words, "i64", n))
        f.store(n + 1, self.counts)

    def _tag(self, tag: int) -> None:
        self._push(self.f.i64(tag))

    def _address(self, thing: Value) -> Value:
        return self.f.cast("ptrtoint", thing, "i64")

    def _tensor(self) -> None:
        f, w = self.f, self.w
        array = w.field(self.item, "array")
        w.need(w.has(array, "type", w.env("array_type")), "bad")
        self._value()
        flags = f.load(f.at(array, "i8", w.at["flags"]), "i32")
        loose = f.emit("i1", f"icmp eq i32 {(flags & 1).ref}, 0")
        wants = w.has(self.item, "_rg", w.env("true"))
        nd = w.rank(array)
        self._push((nd << 5) | f.select(loose, f.i64(16), f.i64(0))
                   | f.select(wants, f.i64(8), f.i64(0)) | TENSOR)
        self._push(self._address(w.field(array, "descr")))
        self._sizes(array, "dims", nd)
        w.when(loose, lambda: self._sizes(array, "strides", nd))

    def _value(self) -> None:
        """Add the tensor to the values; one that is among them already is described by its place
        there, and the argument is done."""
        f, w = self.f, self.w
        place = f.at(self.counts, "i64", 1)
        n = f.load(place, "i64")

        def one(i: Value, _: list[Value]) -> list[Value]:
            twice, other = f.label("twice"), f.label("another")
            f.branch(w.same(f.load(f.at(self.values, "ptr", i), "ptr"), self.item), twice, other)
            f.start(twice)
            self._tag(AGAIN)
            self._push(i)
            f.ret(f.const("i32", 1))
            f.start(other)
            return []
        f.loop(f.i64(0), n, 1, [], one)
        w.need(n.compare("slt", MOST), "bad")
        f.store(self.item, f.at(self.values, "ptr", n))
        f.store(n + 1, place)

    def _sizes(self, array: Value, field: str, nd: Value) -> None:
        f, w = self.f, self.w
        sizes = w.field(array, field)

        def one(i: Value, _: list[Value]) -> list[Value]:
            self._push(f.load(f.at(sizes, "i64", i), "i64"))
            return []
        f.loop(f.i64(0), nd, 1, [], one)

    def _int(self) -> None:
        f, w = self.f, self.w
        number = f.call("PyLong_AsLongLong", "i64", self.item)

        def fits() -> None:
            w.need(w.same(f.call("PyErr_Occurred", "ptr"), w.null), "huge")
        w.when(number.compare("eq", -1), fits)
        self._tag(INT)
        self._push(number)
        fine = f.label("fits")
        f.goto(fine)
        f.start("huge")
        f.do("call void @PyErr_Clear()")
        f.goto("bad")
        f.start(fine)

    def _float(self) -> None:
        self._tag(FLOAT)
        number = self.f.call("PyFloat_AsDouble", "double", self.item)
        self._push(self.f.bits(number, "i64"))

    def _name(self) -> None:
        self._tag(NAME)
        self._push(self._address(self.item))

    def _items(self, tag: int) -> None:
        f, w = self.f, self.w
        n = w.length(self.item) if tag == TUPLE else f.call("PyList_Size", "i64", self.item)
        self._tag(tag)
        self._push(n)

        def one(i: Value, _: list[Value]) -> list[Value]:
            self._inner(w.item(self.item, i) if tag == TUPLE
                        else f.call("PyList_GetItem", "ptr", self.item, i))
            return []
        f.loop(f.i64(0), n, 1, [], one)

    def _slice(self) -> None:
        f, w = self.f, self.w
        self._tag(SLICE)
        for name in ("start", "stop", "step"):
            part = f.call("PyObject_GetAttr", "ptr", self.item, w.env(name))
            w.need(w.differs(part, w.null), "huge")
            w.drop(part)                                # the slice has it
            self._inner(part)

    def _inner(self, item: Value) -> None:
        good = self.f.call("describe", "i32", item, self.words, self.values, self.counts)
        self.w.need(self.f.emit("i1", f"icmp ne i32 {good.ref}, 0"), "bad")


class _Planned(Maker):
    """The function."""

    def __init__(self, code: Code, offsets: Mapping[str, int]) -> None:
        super().__init__(code, offsets, ENV, "planned", PLAIN)
        f = self.f
        self.key, self.plan, self.operands, self.result = (self.variable() for _ in range(4))
        self.temporaries = self.key, self.plan, self.operands, self.result
        self.words = f.emit("ptr", f"alloca [{WORDS} x i64], align 8")
        self.values = f.emit("ptr", f"alloca [{VALUES} x ptr], align 8")
        self.counts = f.emit("ptr", "alloca [2 x i64], align 8")
        self.four = f.emit("ptr", "alloca [4 x ptr], align 8")
        self.held = f.emit("ptr", "alloca i64, align 8")        # values that we hold

    def emit(self) -> None:
        f = self.f
        for place in (self.counts, f.at(self.counts, "i64", 1), self.held):
            f.store(f.i64(0), place)
        self.plans = f.args[0]
        self.mode(telling=True)
        self._describe()
        self._find()
        self._hold_values()
        plan = f.load(self.plan, "ptr")
        steps = self.w.item(plan, 0)
        count = self.w.length(steps)

        def step(i: Value, _: list[Value]) -> list[Value]:
            self._step(self.w.item(steps, i))
            return []
        f.loop(f.i64(0), count, 1, [], step)
        self._answer(plan)
        self.ends()

    def _describe(self) -> None:
        f, w = self.f, self.w
        f.store(f.cast("ptrtoint", self.plainly(), "i64"), self.words)
        f.store(f.i64(1), self.counts)
        positional, keywords = (f.load(f.at(f.args[1], "ptr", i), "ptr") for i in range(2))
        self._add(positional)
        some = f.call("PyDict_Size", "i64", keywords)
        w.when(some.compare("ne", 0), lambda: self._keywords(keywords))

    def _add(self, item: Value) -> None:
        good = self.f.call("describe", "i32", item, self.words, self.values, self.counts)
        self.w.need(self.f.emit("i1", f"icmp ne i32 {good.ref}, 0"), "other")

    def _keywords(self, keywords: Value) -> None:
        f = self.f
        at, name, value = self.four, f.at(self.four, "ptr", 1), f.at(self.four, "ptr", 2)
        f.store(f.i64(0), at)
        head, turn, done = f.label("keyword"), f.label("turn"), f.label("keywords_done")
        f.goto(head)
        f.start(head)
        more = f.call("PyDict_Next", "i32", keywords, at, name, value)
        f.branch(f.emit("i1", f"icmp ne i32 {more.ref}, 0"), turn, done)
        f.start(turn)
        self._add(f.load(name, "ptr"))
        self._add(f.load(value, "ptr"))
        f.goto(head)
        f.start(done)

    def _find(self) -> None:
        """`plan`, held; None, or the key, goes back where there is none."""
        f, w = self.f, self.w
        size = f.load(self.counts, "i64") * 8
        f.store(self.new("PyBytes_FromStringAndSize", self.words, size), self.key)
        key = f.load(self.key, "ptr")
        plan = f.call("PyDict_GetItemWithError", "ptr", self.plans, key)
        first, known, learn, use = (f.label(n) for n in ("first", "known", "learn", "use"))
        f.branch(w.same(plan, w.null), first, known)
        f.start(first)
        w.need(self.told ^ True, "other")               # (nothing is learnt while somebody watches)
        full = f.call("PyDict_Size", "i64", self.plans).compare("sge", PLANS)
        w.when(full, lambda: f.do(f"call void @PyDict_Clear(ptr {self.plans.ref})"))
        put = f.call("PyDict_SetItem", "i32", self.plans, key, w.env("off"))
        w.need(put.compare("eq", 0), "failed")
        f.goto("other")
        f.start(known)
        w.need(w.differs(plan, w.none), "other")
        f.branch(w.same(plan, w.env("off")), learn, use)
        f.start(learn)
        w.need(self.told ^ True, "other")
        f.ret(key)
        f.start(use)
        w.hold(plan)
        f.store(plan, self.plan)

    def _hold_values(self) -> None:
        f, w = self.f, self.w
        n = f.load(f.at(self.counts, "i64", 1), "i64")

        def one(i: Value, _: list[Value]) -> list[Value]:
            w.hold(f.load(f.at(self.values, "ptr", i), "ptr"))
            return []
        f.loop(f.i64(0), n, 1, [], one)
        f.store(n, self.held)

    def _step(self, step: Value) -> None:
        """Run one op: (op, attributes, operands, constants, whether `bind` may take it, values
        that are not needed any more, where in its operand a view lies)."""
        f, w = self.f, self.w
        op, attrs, sources, constants, quick, dropped, places = (
            w.item(step, i) for i in range(7))
        self._each_word(dropped, lambda i, k: self._forget(k))
        self._gather(sources, constants)
        operands = f.load(self.operands, "ptr")
        direct, general, done = f.label("direct"), f.label("general"), f.label("ran")
        f.branch(w.same(quick, w.env("true")), direct, general)
        f.start(direct)
        for i, v in enumerate((op, operands, attrs, places)):
            f.store(v, f.at(self.four, "ptr", i))
        bound = f.call("bind", "ptr", w.null, self.four, f.i64(4))
        w.need(w.differs(bound, w.null), "failed")
        taken, refused = f.label("taken"), f.label("refused")
        f.branch(w.differs(bound, w.none), taken, refused)
        f.start(refused)
        w.drop(bound)
        f.goto(general)
        f.start(taken)
        f.goto(done)
        f.start(general)
        function = self.new("PyObject_GetAttr", op, w.env("call"))
        called = f.call("PyObject_Call", "ptr", function, operands, attrs)
        w.drop(function)
        w.need(w.differs(called, w.null), "failed")
        last = f.block
        f.goto(done)
        f.start(done)
        made = f.phi("ptr", [(bound, taken), (called, last)])
        f.store(w.null, self.operands)
        w.drop(operands)
        f.store(made, self.result)
        self._append(made)
        f.store(w.null, self.result)

    def _append(self, made: Value) -> None:
        """The result of a step becomes a value; several become one each."""
        f, w = self.f, self.w
        many, one, done = f.label("many"), f.label("one"), f.label("appended")
        f.branch(w.has(made, "type", w.env("tuple")), many, one)
        f.start(many)
        n = w.length(made)

        def item(i: Value, _: list[Value]) -> list[Value]:
            value = w.item(made, i)
            w.hold(value)
            self._keep(value)
            return []
        f.loop(f.i64(0), n, 1, [], item)
        w.drop(made)
        f.goto(done)
        f.start(one)
        self._keep(made)
        f.goto(done)
        f.start(done)

    def _keep(self, value: Value) -> None:
        f = self.f
        n = f.load(self.held, "i64")
        f.store(value, f.at(self.values, "ptr", n))
        f.store(n + 1, self.held)

    def _gather(self, sources: Value, constants: Value | None = None) -> None:
        """`operands`: the values (from 0) and constants (from -1 down) that the words name."""
        f, w = self.f, self.w
        made = self.new("PyTuple_New", self._count(sources))
        f.store(made, self.operands)

        def one(i: Value, k: Value) -> None:
            def value() -> Value:
                return f.load(f.at(self.values, "ptr", k), "ptr")
            found = value() if constants is None else w.either(
                k.compare("sge", 0), value, lambda: w.item(constants, f.i64(-1) - k))
            w.hold(found)
            w.fill(made, i, found)
        self._each_word(sources, one)

    def _count(self, words: Value) -> Value:
        """How many 8-byte words there are in a bytes object."""
        return self.w.length(words) >> 3

    def _each_word(self, words: Value, body: Callable[[Value, Value], None]) -> None:
        """`body(index, word)` for the 8-byte words of a bytes object."""
        f = self.f
        start = f.at(words, "i8", self.w.at["bytes"])

        def one(i: Value, _: list[Value]) -> list[Value]:
            body(i, f.load(f.at(start, "i64", i), "i64"))
            return []
        f.loop(f.i64(0), self._count(words), 1, [], one)

    def _forget(self, place: Value) -> None:
        """Drop a value before the end."""
        slot = self.f.at(self.values, "ptr", place)
        self.give_back(slot)
        self.f.store(self.w.null, slot)

    def _answer(self, plan: Value) -> None:
        """Return the value, or several as the function did."""
        f, w = self.f, self.w
        sources, maker = (w.item(plan, i) for i in (1, 2))
        self._gather(sources)
        several, single = f.label("several"), f.label("single")
        f.branch(w.differs(maker, w.none), several, single)
        f.start(single)
        value = w.item(f.load(self.operands, "ptr"), 0)
        w.hold(value)
        self.leave(value)
        f.start(several)
        made = f.call("PyObject_CallOneArg", "ptr", maker, f.load(self.operands, "ptr"))
        w.need(w.differs(made, w.null), "failed")
        self.leave(made)

    def release(self) -> None:
        """Drop the values too."""
        f = self.f

        def one(i: Value, _: list[Value]) -> list[Value]:
            self.give_back(f.at(self.values, "ptr", i))
            return []
        f.loop(f.i64(0), f.load(self.held, "i64"), 1, [], one)
        super().release()
