"""The machine code of in-place ops on small plain tensors of which no gradient is wanted.

    PyObject *write1(PyObject *self, PyObject *const *args, Py_ssize_t count)      # and write2
    write1(target, what); write2(target, other, what) -> True | None
    touch(target, what) -> True | None

`self` is what `op1` and `op2` of `calls_ir` have. The op is computed as they do, its values are
copied into the target's memory, and the write is counted: the steps of `core/inplace.py` and of
`bump`. None, with nothing done, for everything else. `touch` counts a write that is about to be
made by other means, on the same conditions.
"""
from __future__ import annotations

from collections.abc import Mapping

from adjoint.kernels import calls_ir
from adjoint.kernels.calls_ir import DTYPES, Call
from adjoint.kernels.ir import Code, Value
from adjoint.kernels.nodes_ir import place
from adjoint.kernels.objects_ir import ELEMENTS, declare

ENV = (*calls_ir.ENV, "_base", "touched", "what", "code_name", "lasti_name")
READY, WRITEABLE = 0x0001 | 0x0100, 0x0400      # C-contiguous and aligned; of NumPy's array flags


def text(offsets: Mapping[str, int]) -> str:
    """The IR; `offsets` are those of `calls_ir`."""
    code = Code()
    declare(code, ENV)
    code.declare("elements", ELEMENTS.format(**offsets))
    code.declare("PyFloat_AsDouble", "declare double @PyFloat_AsDouble(ptr)")
    code.declare("memcpy", "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    place(code, offsets, ENV)
    for arity in (1, 2):
        _Write(code, offsets, arity, f"write{arity}", ENV).emit()
    _Touch(code, offsets, 1, "touch", ENV).emit()
    return code.text()


class _Write(Call):
    """`write1` or `write2`."""

    def emit(self) -> None:
        f, w = self.f, self.w
        self.code = self.variable()
        self.temporaries += self.code, self.lasti
        operands = self.begin(1)
        what = f.load(f.at(f.args[1], "ptr", self.arity), "ptr")
        w.need(self.grad | w.same(self.state, w.env("off")), "other")
        tensors = self.kinds(operands)
        w.need(tensors[0], "other")
        target = operands[0]
        w.need(w.differs(w.field(target, "_cell"), w.env("inference")), "other")
        if self.arity == 2:
            self._apart(target, operands[1], tensors[1])
        array = w.field(target, "array")
        w.need(w.has(array, "type", w.env("array_type")), "other")
        self._writable(target, array)
        dtype = self.dtype_words(array)
        self.operand_arrays(operands, tensors, dtype)
        w.need(self.needs(operands, tensors).compare("eq", 0), "other")
        out = self.result(dtype, small=True)            # (a second array of a large one costs)
        f.store(out, self.made)                         # given back on every way out
        w.need(w.same(w.field(out, "descr"), w.field(array, "descr")), "other")
        self._flags(out, READY)
        self._same_shape(array, out)
        single = w.has(array, "descr", f.load(f.at(self.record, "i64", DTYPES), "ptr"))
        size = f.select(single, f.i64(4), f.i64(8))
        count = f.call("elements", "i64", array) * size
        f.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {w.field(array, 'data').ref}, "
             f"ptr {w.field(out, 'data').ref}, i64 {count.ref}, i1 false)")
        self._counted(target, what)

    def _apart(self, target: Value, other: Value, is_tensor: Value) -> None:
        """Go on where the other operand is no other view of the target's storage."""
        f, w = self.f, self.w
        cell = w.field(target, "_cell")
        shared = w.either(is_tensor & w.differs(cell, w.none) & w.differs(target, other),
                          lambda: w.same(w.field(other, "_cell"), cell),
                          lambda: f.const("i1", False))
        w.need(shared ^ f.const("i1", True), "other")

    def _counted(self, target: Value, what: Value) -> None:
        """Count the write, and return True."""
        w = self.w
        self._count(target, what)
        w.hold(w.env("true"))
        self.leave(w.env("true"))
        self.ends()

    def _writable(self, target: Value, array: Value) -> None:
        """Go on where the target lies in order, and no history of a base has to be told."""
        f, w = self.f, self.w
        self._flags(array, READY | WRITEABLE)
        base = w.got(target, "_base", "failed")
        recorded = w.either(w.same(base, w.none), lambda: f.const("i1", False),
                            lambda: w.has(base, "_rg", w.env("true")) & self.grad)
        w.need(recorded ^ f.const("i1", True), "other")

    def _flags(self, array: Value, wanted: int) -> None:
        f = self.f
        flags = f.load(f.at(array, "i8", self.at["flags"]), "i32")
        self.w.need((flags & wanted).compare("eq", wanted), "other")

    def _same_shape(self, array: Value, out: Value) -> None:
        f, w = self.f, self.w
        rank = w.rank(array)
        w.need(rank.compare("eq", w.rank(out)), "other")
        mine, its = w.field(array, "dims"), w.field(out, "dims")

        def one(i: Value, _: list[Value]) -> list[Value]:
            have, want = (f.load(f.at(d, "i64", i), "i64") for d in (mine, its))
            w.need(have.compare("eq", want), "other")
            return []
        f.loop(f.i64(0), rank, 1, [], one)

    def _count(self, target: Value, what: Value) -> None:
        """A new version of the target's storage, with the user's line."""
        f, w = self.f, self.w

        def first() -> None:
            w.put(target, "_cell", self.new("PyObject_CallNoArgs", w.env("cell")), owned=True)
        w.when(w.has(target, "_cell", w.none), first)
        cell = w.field(target, "_cell")
        version = f.call("PyLong_AsLongLong", "i64", w.got(cell, "version", "failed")) + 1
        number = self.new("PyLong_FromLongLong", version)
        self.set(cell, "version", number)
        w.drop(number)
        self.set(cell, "touched", w.env("true"))
        self.set(cell, "what", what)
        code = f.call("place", "ptr", self.lasti)
        f.store(code, self.code)

        def known() -> None:
            self.set(cell, "code_name", code)
            self.set(cell, "lasti_name", f.load(self.lasti, "ptr"))
        w.when(w.differs(code, w.null), known)
        w.need(w.same(f.call("PyErr_Occurred", "ptr"), w.null), "failed")


class _Touch(_Write):
    """`touch`."""

    def emit(self) -> None:
        f, w = self.f, self.w
        self.code = self.variable()
        self.temporaries += self.code, self.lasti
        w.need(f.args[2].compare("eq", 2), "other")
        target, what = (f.load(f.at(f.args[1], "ptr", i), "ptr") for i in range(2))
        self.mode()
        w.need(self.grad | w.same(self.state, w.env("off")), "other")
        w.need(self.is_tensor(target), "other")
        wants = w.has(target, "_rg", w.env("true")) & self.grad
        w.need(wants ^ f.const("i1", True), "other")
        w.need(w.differs(w.field(target, "_cell"), w.env("inference")), "other")
        array = w.field(target, "array")
        w.need(w.has(array, "type", w.env("array_type")), "other")
        self._writable(target, array)
        self._counted(target, what)
