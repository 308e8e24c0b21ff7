"""The machine code of `rowwise`: a short list of ufunc loops, run row by row.

    PyObject *rows_run(PyObject *self, PyObject *const *args, Py_ssize_t count)
    PyObject *rows_try(the same): NULL without an exception where `otherwise` would be called

`self` is the tuple (program, otherwise, ...). The program, a bytes object, is a table of 8-byte
words: `HEAD`, then slots, then steps, then the slots of the results. The first operand is a matrix
of rows along its last axis; a loop runs over a row, or over one number for each row, and a sum or a
maximum joins a row into one number.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping

from adjoint.kernels.ir import Code, Value
from adjoint.kernels.objects_ir import ELEMENTS, Writer, declare, or_else

# Words of the head.
# `ARRAY` and `NEW` are the addresses of NumPy's array type and of the function that makes an array.
OPERANDS, SLOTS, STEPS, RESULTS, LIMIT, TUPLE, ARRAY, NEW, HEAD = range(9)
# A slot is (kind, item size, what, form): an operand's descriptor, a constant's bits, nothing, the
# number of temporaries before this one, or a result's descriptor.
OPERAND, CONSTANT, WIDTH, TEMPORARY, OUTPUT = range(5)
# A matrix; one row for all; a number for each row, as a last axis of 1, without it, or as a vector.
FULL, VECTOR, KEPT, LEAD, FLAT = range(5)
SLOT_WORDS = 4
# A step is (loop, its data, number of operands, slots of up to three operands and of the result,
# how it runs, bits to begin with).
STEP_WORDS = 9
EACH, ONCE, JOIN, JOIN_FIRST = range(4)       # over a row; on one number; joins, from bits or first
MAX_SLOTS = 32
SCRATCH_BYTES = 16384
MOST_ROWS, MOST = 64, 4096                    # rows, elements: above, NumPy's calls cost little
_FLAGS = 0x0001 | 0x0100                      # contiguous and aligned


def text(offsets: Mapping[str, int]) -> str:
    """The IR."""
    code = Code()
    declare(code, ())
    code.declare("elements", ELEMENTS.format(**offsets))
    _Rows(code, offsets).emit()
    return code.text() + or_else("rows_run", "rows_try", offsets)


class _Rows:
    """The function; "other" returns NULL, "failed" too, with an exception; both drop results."""

    def __init__(self, code: Code, offsets: Mapping[str, int]) -> None:
        self.f = code.function("rows_try", [("ptr", "self"), ("ptr", "args"), ("i64", "count")],
                               returns="ptr")
        self.w = Writer(self.f, offsets, ())
        self.at = offsets

    def emit(self) -> None:
        f, w = self.f, self.w
        self.data, self.arrays = (f.emit("ptr", f"alloca [{MAX_SLOTS} x ptr], align 16")
                                  for _ in range(2))
        self.stride, self.advance, self.numbers = (
            f.emit("ptr", f"alloca [{MAX_SLOTS} x i64], align 16") for _ in range(3))
        self.pointers = f.emit("ptr", "alloca [4 x ptr], align 16")
        self.sizes = f.emit("ptr", "alloca [4 x i64], align 16")
        self.shape = f.emit("ptr", "alloca [64 x i64], align 16")
        self.length = f.emit("ptr", "alloca i64, align 8")
        self.made = f.emit("ptr", "alloca i64, align 8")       # slots that are laid
        self.scratch = f.emit("ptr", f"alloca [{SCRATCH_BYTES} x i8], align 64")
        program = f.load(f.at(f.args[0], "i8", self.at["items"]), "ptr")
        self.words = f.at(program, "i8", self.at["bytes"])
        self.slots = f.at(self.words, "i64", HEAD)
        self.array_type, self.maker = (f.cast("inttoptr", self.head(k), "ptr")
                                       for k in (ARRAY, NEW))
        self.operands = self.head(OPERANDS)
        f.store(self.operands, self.made)
        w.need(f.emit("i1", f"icmp eq i64 {f.args[2].ref}, {self.operands.ref}"), "other")
        self._first()
        self.each(f.i64(0), self.operands, self._operand)
        self.each(self.operands, self.head(SLOTS), self._lay)
        self.each(f.i64(0), self.rows, self._row)
        self._results()
        for name in ("other", "failed"):
            f.start(name)
            self.each(self.operands, f.load(self.made, "i64"), self._undo)
            f.ret(w.null)

    def head(self, word: int) -> Value:
        """A word of the head."""
        return self.f.load(self.f.at(self.words, "i64", word), "i64")

    def each(self, lo: Value, hi: Value, body: Callable[[Value], None]) -> None:
        """`body(i)` for all of a range."""
        def one(i: Value, _: list[Value]) -> list[Value]:
            body(i)
            return []
        self.f.loop(lo, hi, 1, [], one)

    def slot(self, i: Value) -> list[Value]:
        """The words of a slot."""
        f = self.f
        start = f.at(self.slots, "i64", i * SLOT_WORDS)
        return [f.load(f.at(start, "i64", k), "i64") for k in range(SLOT_WORDS)]

    def _first(self) -> None:
        """`rows` and `columns`, of the first operand."""
        f, w = self.f, self.w
        self.matrix = f.load(f.args[1], "ptr")
        w.need(w.has(self.matrix, "type", self.array_type), "other")
        self.rank = w.rank(self.matrix)
        w.need(self.rank.compare("sge", 1) & self.rank.compare("slt", 64), "other")
        self.dims = w.field(self.matrix, "dims")
        self.columns = f.load(f.at(self.dims, "i64", self.rank + -1), "i64")
        n = f.call("elements", "i64", self.matrix)
        w.need(n.compare("sge", 1) & n.compare("sle", MOST), "other")
        limit = self.head(LIMIT)
        w.need(f.emit("i1", f"icmp sle i64 {self.columns.ref}, {limit.ref}"), "other")
        self.rows = n / self.columns
        w.need(self.rows.compare("sle", MOST_ROWS), "other")

    def _is(self, a: Value, b: Value) -> Value:
        return self.f.emit("i1", f"icmp eq i64 {a.ref}, {b.ref}")

    def _operand(self, i: Value) -> None:
        """An operand of the right dtype, contiguous and of its form."""
        f, w = self.f, self.w
        array = f.load(f.at(f.args[1], "ptr", i), "ptr")
        _, size, descr, form = self.slot(i)
        w.need(w.has(array, "type", self.array_type), "other")
        w.need(self._is(f.cast("ptrtoint", w.field(array, "descr"), "i64"), descr), "other")
        flags = f.load(f.at(array, "i8", self.at["flags"]), "i32") & _FLAGS
        w.need(f.emit("i1", f"icmp eq i32 {flags.ref}, {_FLAGS}"), "other")
        full, column, done = f.label("full"), f.label("column"), f.label("formed")
        f.branch(form.compare("eq", FULL), full, column)
        f.start(full)
        w.need(self._is(w.rank(array), self.rank), "other")
        dims = w.field(array, "dims")
        self.each(f.i64(0), self.rank, lambda k: w.need(self._is(
            f.load(f.at(dims, "i64", k), "i64"), f.load(f.at(self.dims, "i64", k), "i64")),
            "other"))
        f.goto(done)
        f.start(column)
        want = f.select(form.compare("eq", VECTOR), self.columns, self.rows)
        w.need(self._is(f.call("elements", "i64", array), want), "other")
        f.goto(done)
        f.start(done)
        self._place(i, w.field(array, "data"), size, form)

    def _place(self, i: Value, data: Value, size: Value, form: Value) -> None:
        """Where a slot's numbers lie, and how far apart: in a row, and from row to row."""
        f = self.f
        full, vector = form.compare("eq", FULL), form.compare("eq", VECTOR)
        f.store(data, f.at(self.data, "ptr", i))
        f.store(f.select(full | vector, size, f.i64(0)), f.at(self.stride, "i64", i))
        row = f.select(full, size * self.columns, f.select(vector, f.i64(0), size))
        f.store(row, f.at(self.advance, "i64", i))

    def _lay(self, i: Value) -> None:
        """A constant, a temporary or a result."""
        f = self.f
        kind, size, what, form = self.slot(i)
        number = f.at(self.numbers, "i64", i)
        f.store(what, number)
        result, rest, done = f.label("result"), f.label("rest"), f.label("laid")
        f.branch(kind.compare("eq", OUTPUT), result, rest)
        f.start(result)
        array = self._new(what, form)
        f.store(array, f.at(self.arrays, "ptr", i))
        self._place(i, self.w.field(array, "data"), size, form)
        f.goto(done)
        f.start(rest)
        self.w.when(kind.compare("eq", WIDTH), lambda: self._width(number, size))
        inside = kind.compare("eq", TEMPORARY) & form.compare("eq", FULL)
        room = f.at(self.scratch, "i8", f.select(inside, what, f.i64(0)) * self.head(LIMIT) * size)
        f.store(f.select(inside, room, number), f.at(self.data, "ptr", i))
        f.store(f.select(inside, size, f.i64(0)), f.at(self.stride, "i64", i))
        f.store(f.i64(0), f.at(self.advance, "i64", i))
        f.goto(done)
        f.start(done)
        f.store(i + 1, self.made)

    def _width(self, number: Value, size: Value) -> None:
        """The number of columns, in the dtype's bits."""
        f = self.f
        wide = f.cast("sitofp", self.columns, "double")
        narrow = f.cast("zext", f.bits(f.cast("fptrunc", wide, "float"), "i32"), "i64")
        f.store(f.select(size.compare("eq", 8), f.bits(wide, "i64"), narrow), number)

    def _new(self, descr: Value, form: Value) -> Value:
        """An array for a result."""
        f, w = self.f, self.w
        kind = f.cast("inttoptr", descr, "ptr")
        w.hold(kind)
        flat = form.compare("eq", FLAT)

        def size(k: Value) -> None:
            whole = f.load(f.at(self.dims, "i64", k), "i64")
            last = self._is(k, self.rank + -1) & form.compare("ne", FULL)
            one = f.select(last, f.i64(1), whole)
            f.store(f.select(flat, self.rows, one), f.at(self.shape, "i64", k))
        self.each(f.i64(0), self.rank, size)
        lead = f.select(form.compare("eq", LEAD), self.rank + -1, self.rank)
        rank = f.cast("trunc", f.select(flat, f.i64(1), lead), "i32")
        made = f.emit("ptr", f"call ptr {self.maker.ref}(ptr {self.array_type.ref}, "
                             f"ptr {kind.ref}, i32 {rank.ref}, ptr {self.shape.ref}, ptr null, "
                             "ptr null, i32 0, ptr null)")
        w.need(w.differs(made, w.null), "failed")
        return made

    def _undo(self, i: Value) -> None:
        kind, *_ = self.slot(i)
        self.w.when(kind.compare("eq", OUTPUT), lambda: self.w.drop(
            self.f.load(self.f.at(self.arrays, "ptr", i), "ptr")))

    # -- the loops --------------------------------------------------------------------------
    def _row(self, row: Value) -> None:
        f = self.f
        steps = f.at(self.slots, "i64", self.head(SLOTS) * SLOT_WORDS)
        self.each(f.i64(0), self.head(STEPS), lambda s: self._step(
            f.at(steps, "i64", s * STEP_WORDS), row))

    def _step(self, here: Value, row: Value) -> None:
        f = self.f
        loop, data = f.load(here, "ptr"), f.load(f.at(here, "i64", 1), "ptr")
        count, how, bits = (f.load(f.at(here, "i64", k), "i64") for k in (2, 7, 8))

        def fill(k: Value) -> None:
            i = f.load(f.at(f.at(here, "i64", 3), "i64", k), "i64")
            start = f.load(f.at(self.data, "ptr", i), "ptr")
            far = f.load(f.at(self.advance, "i64", i), "i64") * row
            f.store(f.at(start, "i8", far), f.at(self.pointers, "ptr", k))
            f.store(f.load(f.at(self.stride, "i64", i), "i64"), f.at(self.sizes, "i64", k))
        self.each(f.i64(0), count, fill)
        f.store(f.select(how.compare("eq", ONCE), f.i64(1), self.columns), self.length)
        self.w.when(how.compare("sge", JOIN), lambda: self._begin(how, bits))
        self.w.when(f.load(self.length, "i64").compare("sgt", 0), lambda: f.do(
            f"call void {loop.ref}(ptr {self.pointers.ref}, ptr {self.length.ref}, "
            f"ptr {self.sizes.ref}, ptr {data.ref})"))

    def _begin(self, how: Value, bits: Value) -> None:
        """Prepare to join a row, the second operand, into the number that is the other two."""
        f = self.f
        total = f.load(self.pointers, "ptr")
        source = f.at(self.pointers, "ptr", 1)
        first, size = f.load(source, "ptr"), f.load(f.at(self.sizes, "i64", 1), "i64")
        begin = how.compare("eq", JOIN)

        def four() -> None:
            f.store(f.select(begin, f.cast("trunc", bits, "i32"), f.load(first, "i32")), total)

        def eight() -> None:
            f.store(f.select(begin, bits, f.load(first, "i64")), total)

        def skip() -> None:
            f.store(f.at(first, "i8", size), source)
            f.store(self.columns + -1, self.length)
        self.w.when(size.compare("eq", 4), four)
        self.w.when(size.compare("eq", 8), eight)
        self.w.when(how.compare("eq", JOIN_FIRST), skip)

    def _results(self) -> None:
        """Return the result, or a tuple of them."""
        f, w = self.f, self.w
        steps = f.at(self.slots, "i64", self.head(SLOTS) * SLOT_WORDS)
        places = f.at(steps, "i64", self.head(STEPS) * STEP_WORDS)

        def result(k: Value) -> Value:
            return f.load(f.at(self.arrays, "ptr", f.load(f.at(places, "i64", k), "i64")), "ptr")
        many, one = f.label("many"), f.label("one")
        f.branch(self.head(TUPLE).compare("ne", 0), many, one)
        f.start(one)
        f.ret(result(f.i64(0)))
        f.start(many)
        n = self.head(RESULTS)
        box = f.call("PyTuple_New", "ptr", n)
        w.need(w.differs(box, w.null), "failed")

        def put(k: Value) -> None:
            w.fill(box, k, result(k))
        self.each(f.i64(0), n, put)
        f.ret(box)
