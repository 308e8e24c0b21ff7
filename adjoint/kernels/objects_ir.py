"""Python objects in generated code: their fields, references, and branches between them.

`Writer` wraps a `Function` under construction. Fields are read and filled at offsets that were
found out and checked when the code is loaded (`builtin.offsets`, `calls`); everything else goes
through CPython's public C functions, of which `declare` names those in use. `@env` is a table of
addresses of objects of this process, filled in after loading: the text stays the same from process
to process, so that compiled code can be kept.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from adjoint.kernels.ir import Code, Function, Value

_POINTERS = {
    "PyDict_GetItemWithError": "ptr, ptr", "PyType_GenericAlloc": "ptr, i64",
    "PyObject_CallOneArg": "ptr, ptr", "PyObject_CallNoArgs": "ptr", "PyIter_Next": "ptr",
    "PyFrame_GetCode": "ptr", "PyFrame_GetBack": "ptr", "PyLong_FromLongLong": "i64",
    "PyErr_Occurred": "", "PyTuple_New": "i64", "PyObject_Vectorcall": "ptr, ptr, i64, ptr",
    "PyList_GetItem": "ptr, i64", "PyTuple_GetItem": "ptr, i64", "PyObject_GetAttr": "ptr, ptr",
    "PyList_New": "i64", "PySequence_Tuple": "ptr", "PyObject_Call": "ptr, ptr, ptr"}
_INTEGERS = {"PyContextVar_Get": "ptr, ptr, ptr", "PyFrame_GetLasti": "ptr",
             "PyDict_SetItem": "ptr, ptr, ptr", "PyDict_DelItem": "ptr, ptr",
             "PyDict_Contains": "ptr, ptr", "PyList_SetItem": "ptr, i64, ptr",
             "PyErr_ExceptionMatches": "ptr", "PyObject_SetAttr": "ptr, ptr, ptr"}
_WORDS = {"PyList_Size": "ptr", "PyDict_Size": "ptr", "PyLong_AsLongLong": "ptr"}


# How many elements an array has; for fields at the offsets of `builtin`.
ELEMENTS = """
define internal i64 @elements(ptr %array) alwaysinline {{
entry:
  %pnd = getelementptr i8, ptr %array, i64 {nd}
  %nd32 = load i32, ptr %pnd
  %nd = sext i32 %nd32 to i64
  %pdims = getelementptr i8, ptr %array, i64 {dims}
  %dims = load ptr, ptr %pdims
  br label %axis
axis:
  %k = phi i64 [0, %entry], [%k1, %times]
  %n = phi i64 [1, %entry], [%n1, %times]
  %some = icmp slt i64 %k, %nd
  br i1 %some, label %times, label %counted
times:
  %pd = getelementptr i64, ptr %dims, i64 %k
  %d = load i64, ptr %pd
  %n1 = mul i64 %n, %d
  %k1 = add i64 %k, 1
  br label %axis
counted:
  ret i64 %n
}}
"""


def or_else(name: str, attempt: str, offsets: Mapping[str, int]) -> str:
    """The method `name`: the method `attempt`, and where that returns NULL without an exception the
    callable that is the second item of `self`, with the same arguments."""
    return f"""
define ptr @{name}(ptr %self, ptr %args, i64 %count) {{
entry:
  %done = call ptr @{attempt}(ptr %self, ptr %args, i64 %count)
  %right = icmp ne ptr %done, null
  br i1 %right, label %out, label %nothing
out:
  ret ptr %done
nothing:
  %error = call ptr @PyErr_Occurred()
  %wrong = icmp ne ptr %error, null
  br i1 %wrong, label %out, label %other
other:
  %place = getelementptr i8, ptr %self, i64 {offsets["items"] + 8}
  %otherwise = load ptr, ptr %place
  %result = call ptr @PyObject_Vectorcall(ptr %otherwise, ptr %args, i64 %count, ptr null)
  ret ptr %result
}}
"""


def declare(code: Code, env: Sequence[str]) -> None:
    """The C functions, `@env`, and `env_address`, which says where that lies."""
    for name, arguments in _POINTERS.items():
        code.declare(name, f"declare ptr @{name}({arguments})")
    for name, arguments in _INTEGERS.items():
        code.declare(name, f"declare i32 @{name}({arguments})")
    for name, arguments in _WORDS.items():
        code.declare(name, f"declare i64 @{name}({arguments})")
    for name, arguments in (("Py_IncRef", "ptr"), ("Py_DecRef", "ptr"), ("PyErr_Clear", "")):
        code.declare(name, f"declare void @{name}({arguments})")
    code.declare("env", f"@env = internal global [{len(env)} x i64] zeroinitializer")
    f = code.function("env_address", [], returns="ptr")
    f.ret(Value(f, "@env", "ptr"))


class Writer:
    """A function under construction, with what C code does to Python objects."""

    def __init__(self, f: Function, offsets: Mapping[str, int], env: Sequence[str]) -> None:
        self.f, self.at, self.names = f, offsets, env
        self.null = Value(f, "null", "ptr")

    @property
    def none(self) -> Value:
        """None."""
        return self.env("none")

    def env(self, name: str) -> Value:
        """An object of `@env`."""
        place = f"getelementptr (i64, ptr @env, i64 {self.names.index(name)})"
        return self.f.load(Value(self.f, place, "ptr"), "ptr")

    def field(self, thing: Value, name: str) -> Value:
        """The pointer in a field of an object."""
        return self.f.load(self.f.at(thing, "i8", self.at[name]), "ptr")

    def item(self, items: Value, index: Value | int) -> Value:
        """An item of a tuple that has so many, without a reference of ours."""
        return self.f.load(self._place(items, index), "ptr")

    def fill(self, items: Value, index: Value | int, value: Value) -> None:
        """Fill an empty item of a new tuple, with the reference that we have."""
        self.f.store(value, self._place(items, index))

    def _place(self, items: Value, index: Value | int) -> Value:
        if isinstance(index, int):
            return self.f.at(items, "i8", self.at["items"] + 8 * index)
        return self.f.at(self.f.at(items, "i8", self.at["items"]), "ptr", index)

    def length(self, items: Value) -> Value:
        """How many items a tuple has, or a bytes object bytes."""
        return self.f.load(self.f.at(items, "i8", self.at["length"]), "i64")

    def put(self, thing: Value, name: str, value: Value, *, owned: bool = False) -> None:
        """Fill an empty slot; takes a reference unless it is given one."""
        if not owned:
            self.hold(value)
        self.f.store(value, self.f.at(thing, "i8", self.at[name]))

    def hold(self, thing: Value) -> None:
        self.f.call("Py_IncRef", "void", thing)

    def drop(self, thing: Value) -> None:
        self.f.call("Py_DecRef", "void", thing)

    def has(self, thing: Value, name: str, value: Value) -> Value:
        """Whether a field of an object is that object."""
        return self.same(self.field(thing, name), value)

    def got(self, thing: Value, name: str, failed: str) -> Value:
        """An attribute that its owner keeps, or that always stays, without a reference of ours."""
        value = self.f.call("PyObject_GetAttr", "ptr", thing, self.env(name))
        self.need(self.differs(value, self.null), failed)
        self.drop(value)
        return value

    def untouched(self, cell: Value, failed: str) -> Value:
        """Whether nothing was written to the storage that a cell stands for, and nobody else can
        write to it unseen."""
        return self.same(self.got(cell, "touched", failed), self.env("false"))

    def fits(self, shape: Value, array: Value, otherwise: str, kind: str = "Tuple") -> None:
        """Go on where `shape` is a tuple (`kind`: a list) of exactly the array's sizes, else to
        that block."""
        f = self.f
        self.need(self.differs(shape, self.null), otherwise)
        self.need(self.has(shape, "type", self.env(kind.lower())), otherwise)
        nd = self.rank(array)
        tuples = kind == "Tuple"
        rank = self.length(shape) if tuples else f.call("PyList_Size", "i64", shape)
        self.need(f.emit("i1", f"icmp eq i64 {rank.ref}, {nd.ref}"), otherwise)
        dims = self.field(array, "dims")

        def one(i: Value, _: list[Value]) -> list[Value]:
            n = self.item(shape, i) if tuples else f.call("PyList_GetItem", "ptr", shape, i)
            want = f.call("PyLong_AsLongLong", "i64", n)
            have = f.load(f.at(dims, "i64", i), "i64")
            self.need(f.emit("i1", f"icmp eq i64 {want.ref}, {have.ref}"), otherwise)
            return []
        f.loop(f.i64(0), nd, 1, [], one)

    def rank(self, array: Value) -> Value:
        """How many axes an array has."""
        f = self.f
        return f.cast("sext", f.load(f.at(array, "i8", self.at["nd"]), "i32"), "i64")

    def shape_of(self, edge: Value) -> Value:
        """The shape that the node or the leaf at the end of an edge has (not of a port)."""
        f = self.f
        leaf = self.has(edge, "type", self.env("accumulate"))
        offset = f.select(leaf, f.i64(self.at["leaf.shape"]), f.i64(self.at["shape"]))
        return f.load(f.at(edge, "i8", offset), "ptr")

    def need(self, condition: Value, otherwise: str) -> None:
        """Go on where the condition holds, else to that block."""
        on = self.f.label("on")
        self.f.branch(condition, on, otherwise)
        self.f.start(on)

    def same(self, a: Value, b: Value) -> Value:
        return self.f.emit("i1", f"icmp eq ptr {a.ref}, {b.ref}")

    def differs(self, a: Value, b: Value) -> Value:
        return self.f.emit("i1", f"icmp ne ptr {a.ref}, {b.ref}")

    def when(self, condition: Value, body: Callable[[], object]) -> None:
        """`body` where the condition holds."""
        def run() -> list[Value]:
            body()
            return []
        self.f.when(condition, run)

    def either(self, condition: Value, yes: Callable[[], Value], no: Callable[[], Value]) -> Value:
        """One of two values, each computed in a branch of its own."""
        f = self.f
        first, second, done = f.label("yes"), f.label("no"), f.label("done")
        f.branch(condition, first, second)
        f.start(first)
        a, block_a = yes(), f.block
        f.goto(done)
        f.start(second)
        b, block_b = no(), f.block
        f.goto(done)
        f.start(done)
        return f.phi(a.ty, [(a, block_a), (b, block_b)])
