"""Tensors and nodes in generated code: what `calls_ir` and `bind_ir` have in common."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from adjoint.kernels.ir import Code, Function, Value
from adjoint.kernels.objects_ir import Writer

SEEN = 256               # entries of the table of code objects: is it this package's own?


def place(code: Code, offsets: Mapping[str, int], env: Sequence[str]) -> None:
    """The user's line: `ptr place(ptr *lasti)` returns the code object of the nearest frame outside
    of the package and its instruction offset as a Python int, both as new references; NULL where
    there is none, or with an exception. What is known of a code object is kept in a table, with the
    object; so is its last offset: the same number again is one object less for the garbage
    collector to visit."""
    code.declare("seen", f"@seen = internal global [{4 * SEEN} x i64] zeroinitializer")
    f = code.function("place", [("ptr", "lasti")], returns="ptr", internal=True)
    w = Writer(f, offsets, env)
    argument = f.emit("ptr", "alloca ptr, align 8")
    f.store(w.env("on"), argument)                      # _getframe(1): the template's caller
    first = f.call("PyObject_Vectorcall", "ptr", w.env("getframe"), argument, f.i64(1), w.null)
    w.need(w.differs(first, w.null), "nobody")
    before, head = f.block, f.label("frame")
    f.goto(head)
    f.start(head)
    frame = f.phi("ptr", [(first, before), (Value(f, "%back", "ptr"), "outwards")])
    owner = f.call("PyFrame_GetCode", "ptr", frame)
    word = f.emit("i64", f"ptrtoint ptr {owner.ref} to i64")
    entry = f.at(Value(f, "@seen", "ptr"), "i64", ((word >> 6) & (SEEN - 1)) * 4)
    known = w.same(f.load(entry, "ptr"), owner)
    inside = w.either(known, lambda: f.load(f.at(entry, "i64", 1), "ptr"),
                      lambda: _classified(w, owner, entry))
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
    f.store(_offset(w, number, entry), f.args[0])
    w.drop(frame)
    f.ret(owner)
    f.start("lost")                                     # an exception is set
    w.drop(owner)
    w.drop(frame)
    f.goto("none")
    f.start("nobody")                                   # called from no Python code at all
    f.do("call void @PyErr_Clear()")
    f.goto("none")
    f.start("none")
    f.ret(w.null)


def _classified(w: Writer, owner: Value, entry: Value) -> Value:
    """Ask whether a code object is this package's own, and note the answer in the table."""
    f = w.f
    answer = f.call("PyObject_CallOneArg", "ptr", w.env("is_inside"), owner)
    w.need(w.differs(answer, w.null), "lost")
    old = f.load(entry, "ptr")                          # now: another thread may have been here
    w.hold(owner)
    f.store(owner, entry)
    f.store(answer, f.at(entry, "i64", 1))
    w.when(w.differs(old, w.null), partial(w.drop, old))
    w.drop(answer)                                      # True and False stay where they are
    return answer


def _offset(w: Writer, number: Value, entry: Value) -> Value:
    """The instruction offset as a Python int: the one of the last time, if it is the same."""
    f = w.f
    last, known = f.at(entry, "i64", 2), f.at(entry, "i64", 3)
    before = f.load(known, "ptr")

    def again() -> Value:
        w.hold(before)
        return before

    def first_time() -> Value:
        made = f.call("PyLong_FromLongLong", "ptr", number)
        w.need(w.differs(made, w.null), "lost")
        w.hold(made)
        f.store(number, last)
        f.store(made, known)
        w.when(w.differs(before, w.null), partial(w.drop, before))
        return made
    same = f.emit("i1", f"icmp eq i64 {f.load(last, 'i64').ref}, {number.ref}")
    return w.either(same & w.differs(before, w.null), again, first_time)


class Part:
    """A function under construction that makes objects; its block "failed" returns with an
    exception set."""

    def __init__(self, f: Function, offsets: Mapping[str, int], env: Sequence[str]) -> None:
        self.f = f
        self.w = Writer(f, offsets, env)
        self.at = offsets

    def is_tensor(self, thing: Value) -> Value:
        """Whether it is an exact tensor or parameter: a value of no transform."""
        kind, w = self.w.field(thing, "type"), self.w
        return w.same(kind, w.env("tensor")) | w.same(kind, w.env("parameter"))

    def nothing(self) -> Value:
        """None, as a new reference."""
        self.w.hold(self.w.none)
        return self.w.none

    def new(self, name: str, *arguments: Value) -> Value:
        """A new object from a C function; NULL is an error."""
        made = self.f.call(name, "ptr", *arguments)
        self.w.need(self.w.differs(made, self.w.null), "failed")
        return made

    def set(self, thing: Value, name: str, value: Value) -> None:
        """Set an attribute."""
        status = self.f.call("PyObject_SetAttr", "i32", thing, self.w.env(name), value)
        self.w.need(status.compare("sge", 0), "failed")


class Maker(Part):
    """A METH_FASTCALL function that makes a tensor and its node. It returns None, through the block
    "other", for what is not its business, and NULL, through "failed", where an exception is set;
    what was made until then, in `made` and `node` and the other `temporaries`, is given back."""

    def __init__(self, code: Code, offsets: Mapping[str, int], env: Sequence[str],
                 name: str, attributes: str = "") -> None:
        self.temporaries: tuple[Value, ...]
        super().__init__(code.function(name, [("ptr", "self"), ("ptr", "args"), ("i64", "count")],
                                       returns="ptr", attributes=attributes), offsets, env)
        self.word, self.made, self.node, self.lasti = (self.variable() for _ in range(4))
        self.temporaries = self.made, self.node
        self.results: list[tuple[Value, str]] = []

    def variable(self) -> Value:
        """A place on the stack for a pointer, NULL at first."""
        place = self.f.emit("ptr", "alloca ptr, align 8")
        self.f.store(self.w.null, place)
        return place

    def ends(self) -> None:
        """The blocks that every way out of the ordinary leads to."""
        f, w = self.f, self.w
        f.start("other")
        nothing = self.nothing()
        f.goto("leave")
        f.start("failed")
        f.goto("leave")
        f.start("leave")
        result = f.phi("ptr", [(nothing, "other"), (w.null, "failed"), *self.results])
        self.release()
        f.ret(result)

    def release(self) -> None:
        """Drop what is still held."""
        for place in self.temporaries:
            self.give_back(place)

    def leave(self, result: Value) -> None:
        """Return a result from the block "leave", and give back what is still held."""
        self.results.append((result, self.f.block))
        self.f.goto("leave")

    def give_back(self, place: Value) -> None:
        """Drop what is held at a place of the stack, if anything is."""
        thing = self.f.load(place, "ptr")
        self.w.when(self.w.differs(thing, self.w.null), partial(self.w.drop, thing))

    def mode(self, *, telling: bool = False) -> None:
        """`self.grad`: may a graph be built? `self.cell`: of new tensors without a graph. Any
        state but gradients, none and inference is the template's; so are the two in which observers
        are told, unless `telling`: `self.told` is whether it is one of these."""
        f, w = self.f, self.w
        f.store(w.null, self.word)
        f.do(f"call i32 @PyContextVar_Get(ptr {w.env('state').ref}, ptr null, "
             f"ptr {self.word.ref})")
        state = self.state = f.load(self.word, "ptr")
        w.need(w.differs(state, w.null), "failed")
        w.drop(state)                                   # a small int: it stays
        self.grad = w.same(state, w.env("on"))
        inferring = w.same(state, w.env("inferring"))
        self.cell = f.select(inferring, w.env("inference"), w.none)
        known = self.grad | inferring | w.same(state, w.env("off"))
        if telling:
            told = w.same(state, w.env("told_on"))
            self.grad = self.grad | told
            self.told = told | w.same(state, w.env("told_off"))
            known = known | self.told
        w.need(known, "other")

    def plainly(self) -> Value:
        """The state without the bits of observers that are told: they change nothing else."""
        f, w = self.f, self.w
        return f.select(self.told, f.select(self.grad, w.env("on"), w.env("off")), self.state)

    def calm(self, tensor: Value) -> Value:
        """Whether a tensor has its storage to itself, or at least nobody can write to that
        unseen."""
        f, w = self.f, self.w
        cell = w.field(tensor, "_cell")

        def look() -> Value:
            hidden = w.got(cell, "exposed", "failed")
            return w.same(hidden, w.env("false")) & w.differs(cell, w.env("inference"))
        return w.either(w.same(cell, w.none), partial(f.const, "i1", True), look)

    def kept(self, saved: Value) -> Value:
        """A residual: a calm tensor, what stands for one whose storage has a cell, or anything
        else as it is."""
        f, w = self.f, self.w

        def itself() -> Value:
            w.hold(saved)
            return saved

        def tensor() -> Value:
            return w.either(w.has(saved, "_cell", w.none), itself, versioned)

        def versioned() -> Value:
            kept = self.new("PyType_GenericAlloc", w.env("kept"), f.i64(0))
            version = self.new("PyObject_GetAttr", w.field(saved, "_cell"), w.env("version"))
            w.put(kept, "kept.version", version, owned=True)
            for name, value in (("tensor", saved), ("mark", w.none)):
                w.put(kept, "kept." + name, value)
            return kept
        return w.either(self.is_tensor(saved), tensor, itself)

    def output(self, made: Value, out: Value) -> Value:
        """The residual that is the output itself; its cell becomes the tensor's."""
        f, w = self.f, self.w
        cell = self.new("PyObject_CallNoArgs", w.env("cell"))
        w.put(made, "_cell", cell, owned=True)
        ref = self.new("PyType_GenericAlloc", w.env("ref"), f.i64(0))
        for name, value in (("array", out), ("cell", cell), ("index", w.env("off")),
                            ("version", w.env("off"))):
            w.put(ref, "ref." + name, value)
        return ref

    def edge(self, tensor: Value) -> Value:
        """Where the gradient of a tensor goes."""
        w = self.w
        known = w.field(tensor, "_edge")

        def leaf() -> Value:
            return self.new("PyObject_CallOneArg", w.env("edge_of"), tensor)

        def other() -> Value:
            w.hold(known)
            return known
        return w.either(w.same(known, w.none), leaf, other)

    def alloc(self, type_: Value, place: Value, *drop: Value) -> Value:
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

    def stamp(self, node: Value) -> None:
        """Number and line of a node."""
        f, w = self.f, self.w
        w.put(node, "seq", self.new("PyIter_Next", w.env("counter")), owned=True)
        code = f.call("place", "ptr", self.lasti)
        known, unknown, done = f.label("known"), f.label("unknown"), f.label("placed")
        f.branch(w.differs(code, w.null), known, unknown)
        f.start(known)
        w.put(node, "code", code, owned=True)
        w.put(node, "lasti", f.load(self.lasti, "ptr"), owned=True)
        f.goto(done)
        f.start(unknown)
        error = f.call("PyErr_Occurred", "ptr")
        w.need(w.same(error, w.null), "failed")
        w.put(node, "code", w.none)
        w.put(node, "lasti", w.env("off"))
        f.goto(done)
        f.start(done)
