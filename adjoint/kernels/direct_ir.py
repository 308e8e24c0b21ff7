"""The machine code of `direct`: one builtin function that runs a short list of ufunc loops.

    PyObject *direct_run(PyObject *self, PyObject *const *args, Py_ssize_t count)
    PyObject *direct_try(the same): NULL without an exception where `otherwise` would be called

`self` is the tuple (program, otherwise, ...). The program, a bytes object, is a table of 8-byte
words (`HEAD`, then slots, then steps; see the constants); `otherwise` is called with the same
arguments wherever they are not what the program is for: arrays of exactly the right dtype, aligned
and C-contiguous, no more elements than the program allows, and each of one common shape, 0-d, or
broadcast to it as one row for all of up to `MOST_ROWS` rows, or as one number for each (`spread`).

Every object is handled through CPython's and NumPy's C functions. Of their structs the code reads
an object's type, the fields of an array, the items of a tuple and the data of a bytes object, at
offsets that `builtin` finds out and checks before any of this is used.
"""
from __future__ import annotations

from collections.abc import Mapping

from adjoint.kernels.ir import Code, Value
from adjoint.kernels.objects_ir import ELEMENTS, Writer, or_else

# Words of the head of a program. `ARRAY` and `NEW` are the addresses of NumPy's array type and of
# PyArray_NewFromDescr, which differ from process to process; `EVERY` has a bit for each operand
# that all results are computed from: others have not the shape of all results.
OPERANDS, SLOTS, STEPS, RESULTS, LIMIT, TUPLE, ARRAY, NEW, EVERY, HEAD = range(10)
# A slot is (kind, item size, what): an operand's descriptor, a constant's bits, the bytes per
# element of the temporaries before this one, or a result's descriptor.
OPERAND, CONSTANT, TEMPORARY, OUTPUT = range(4)
SLOT_WORDS = 3
# A step is (loop, its data, number of operands, slots of up to three operands and of the result).
STEP_WORDS = 7
# A result of the call is a word: the slot it is in, or -1 for None.
MAX_SLOTS = 48
SCRATCH_BYTES = 16384
MOST_ROWS = 64                             # above, NumPy's own way through rows costs less
CONTIGUOUS_ALIGNED = 0x0001 | 0x0100       # of NumPy's array flags


def text(offsets: dict[str, int]) -> str:
    """The IR. `offsets` has: type, items (of a tuple), bytes, data, nd, dims, descr, flags."""
    return _RUN.format(
        **offsets, slots=MAX_SLOTS, scratch=SCRATCH_BYTES, wanted=CONTIGUOUS_ALIGNED, head=HEAD * 8,
        slot_bytes=SLOT_WORDS * 8, step_bytes=STEP_WORDS * 8) \
        + ELEMENTS.format(**offsets) + or_else("direct_run", "direct_try", offsets) \
        + _where("i32", 4) + _where("i64", 8) + _spread(offsets)


def _spread(offsets: Mapping[str, int]) -> str:
    """`ptr spread(args, operands, every, slots, atype, data, stride, advance, arrays, rows)`: lay
    operands that are not of one shape; the one whose shape the results have, or NULL. `rows` gets
    the length of a row and how many there are, `advance` how far each operand goes from row to
    row."""
    code = Code()
    _Spread(code, offsets).emit()
    return code.text()


class _Spread:
    """The function; the block "no" returns NULL."""

    def __init__(self, code: Code, offsets: Mapping[str, int]) -> None:
        numbers = "operands", "every"
        pointers = "slots", "atype", "data", "stride", "advance", "arrays", "rows"
        f = self.f = code.function("spread", [
            ("ptr", "args"), *(("i64", n) for n in numbers), *(("ptr", n) for n in pointers)],
            returns="ptr", internal=True)
        self.w, self.at, self.none = Writer(f, offsets, ()), offsets, Value(f, "null", "ptr")
        (self.args, self.operands, self.every, self.slots, self.atype, self.data, self.stride,
         self.advance, self.arrays, self.rows) = f.args

    def emit(self) -> None:
        f = self.f
        self.full, self.most, bit = f.loop(f.i64(0), self.operands, 1, [
            self.none, f.i64(0), f.i64(0)], self._largest)
        self.w.need(self.most.compare("sge", 1) & (bit & self.every).compare("ne", 0), "no")
        f.store(f.i64(0), self.rows)
        f.loop(f.i64(0), self.operands, 1, [], self._lay)
        row = f.load(self.rows, "i64")
        row = f.select(row.compare("eq", 0), self.most, row)
        count = self.most / row
        self.w.need(count.compare("sle", MOST_ROWS), "no")
        f.store(row, self.rows)
        f.store(count, f.at(self.rows, "i64", 1))
        f.loop(f.i64(0), self.operands, 1, [], lambda i, _: self._whole(i, row))
        f.ret(self.full)
        f.start("no")
        f.ret(self.none)

    def _word(self, i: Value, k: int) -> Value:
        return self.f.load(self.f.at(self.slots, "i64", i * SLOT_WORDS + k), "i64")

    def _is(self, a: Value, b: Value) -> Value:
        return self.f.emit("i1", f"icmp eq i64 {a.ref}, {b.ref}")

    def _largest(self, i: Value, found: list[Value]) -> list[Value]:
        """Check an operand's type, dtype and layout; the largest one, its elements and bit."""
        f, w = self.f, self.w
        a = f.load(f.at(self.args, "ptr", i), "ptr")
        w.need(w.has(a, "type", self.atype), "no")
        w.need(self._is(f.cast("ptrtoint", w.field(a, "descr"), "i64"), self._word(i, 2)), "no")
        flags = f.load(f.at(a, "i8", self.at["flags"]), "i32") & CONTIGUOUS_ALIGNED
        w.need(f.emit("i1", f"icmp eq i32 {flags.ref}, {CONTIGUOUS_ALIGNED}"), "no")
        f.store(a, f.at(self.arrays, "ptr", i))
        f.store(w.field(a, "data"), f.at(self.data, "ptr", i))
        n = f.call("elements", "i64", a)
        more = f.emit("i1", f"icmp sgt i64 {n.ref}, {found[1].ref}")
        return [f.select(more, new, old)
                for new, old in zip((a, n, f.i64(1) << i), found, strict=True)]

    def _lay(self, i: Value, _: list[Value]) -> list[Value]:
        """How far an operand goes within a row, and from row to row."""
        f, w = self.f, self.w
        a, size = f.load(f.at(self.arrays, "ptr", i), "ptr"), self._word(i, 1)
        n, rank, all_axes = f.call("elements", "i64", a), w.rank(a), w.rank(self.full)
        w.need(f.emit("i1", f"icmp sle i64 {rank.ref}, {all_axes.ref}"), "no")
        whole, one = self._is(n, self.most), n.compare("eq", 1)
        last = self._runs(a, rank, all_axes, back=True)
        first = self._runs(a, rank, all_axes, back=False) & self._is(rank, all_axes)
        w.need(last | (first & (whole ^ f.const("i1", True))) | one, "no")
        column = (last | one) ^ f.const("i1", True)
        length = f.select(column, self.most / n, n)
        bound = (whole | one) ^ f.const("i1", True)
        have = f.load(self.rows, "i64")
        w.need((bound ^ f.const("i1", True)) | have.compare("eq", 0) | self._is(have, length), "no")
        f.store(f.select(bound, length, have), self.rows)
        zero = f.i64(0)
        f.store(f.select(column | one, zero, size), f.at(self.stride, "i64", i))
        f.store(f.select(column, size, zero), f.at(self.advance, "i64", i))
        return []

    def _runs(self, a: Value, rank: Value, all_axes: Value, back: bool) -> Value:
        """Whether an operand's axes, from the last or from the first on, are those of the result,
        and of size 1 from where they differ."""
        f, w = self.f, self.w
        mine, wanted = w.field(a, "dims"), w.field(self.full, "dims")
        yes = f.const("i1", True)
        off = f.emit("i64", f"sub i64 {all_axes.ref}, {rank.ref}") if back else f.i64(0)

        def axis(k: Value, so_far: list[Value]) -> list[Value]:
            d = f.emit("i64", f"sub i64 {(rank + -1).ref}, {k.ref}") if back else k
            size = f.load(f.at(mine, "i64", d), "i64")
            alike = so_far[0] & self._is(size, f.load(f.at(wanted, "i64", d + off), "i64"))
            return [alike, so_far[1] & (alike | size.compare("eq", 1))]
        return f.loop(f.i64(0), rank, 1, [yes, yes], axis)[1]

    def _whole(self, i: Value, row: Value) -> list[Value]:
        """An operand with all elements goes on by a row."""
        f = self.f
        n = f.call("elements", "i64", f.load(f.at(self.arrays, "ptr", i), "ptr"))
        place = f.at(self.advance, "i64", i)
        on = f.select(self._is(n, self.most), row * self._word(i, 1), f.load(place, "i64"))
        f.store(on, place)
        return []


def _where(ty: str, size: int) -> str:
    """`numpy.where` as a ufunc loop would do it, by the size of an element."""
    return f"""
define void @where{size}(ptr %args, ptr %dims, ptr %steps, ptr %data) {{
entry:
  %n = load i64, ptr %dims
  %pc = load ptr, ptr %args
  %a1 = getelementptr ptr, ptr %args, i64 1
  %pa = load ptr, ptr %a1
  %a2 = getelementptr ptr, ptr %args, i64 2
  %pb = load ptr, ptr %a2
  %a3 = getelementptr ptr, ptr %args, i64 3
  %po = load ptr, ptr %a3
  %sc = load i64, ptr %steps
  %s1 = getelementptr i64, ptr %steps, i64 1
  %sa = load i64, ptr %s1
  %s2 = getelementptr i64, ptr %steps, i64 2
  %sb = load i64, ptr %s2
  br label %body
body:
  %i = phi i64 [0, %entry], [%i1, %body]
  %oc = mul i64 %i, %sc
  %qc = getelementptr i8, ptr %pc, i64 %oc
  %c = load i8, ptr %qc
  %yes = icmp ne i8 %c, 0
  %oa = mul i64 %i, %sa
  %qa = getelementptr i8, ptr %pa, i64 %oa
  %a = load {ty}, ptr %qa
  %ob = mul i64 %i, %sb
  %qb = getelementptr i8, ptr %pb, i64 %ob
  %b = load {ty}, ptr %qb
  %v = select i1 %yes, {ty} %a, {ty} %b
  %qo = getelementptr {ty}, ptr %po, i64 %i
  store {ty} %v, ptr %qo
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %n
  br i1 %more, label %body, label %out
out:
  ret void
}}
"""


_RUN = """
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyTuple_New(i64)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyErr_Occurred()
@_Py_NoneStruct = external global i8

define ptr @direct_try(ptr %self, ptr %args, i64 %count) {{
entry:
  %data = alloca [{slots} x ptr], align 16
  %stride = alloca [{slots} x i64], align 16
  %arrays = alloca [{slots} x ptr], align 16
  %ptrs = alloca [4 x ptr], align 16
  %sizes = alloca [4 x i64], align 16
  %length = alloca i64, align 8
  %advance = alloca [{slots} x i64], align 16
  %rows = alloca [2 x i64], align 16
  %scratch = alloca [{scratch} x i8], align 64
  store i64 0, ptr %rows
  %prows = getelementptr i64, ptr %rows, i64 1
  store i64 1, ptr %prows
  %pprogram = getelementptr i8, ptr %self, i64 {items}
  %program = load ptr, ptr %pprogram
  %words = getelementptr i8, ptr %program, i64 {bytes}
  %operands = load i64, ptr %words
  %parray = getelementptr i64, ptr %words, i64 6
  %atype = load ptr, ptr %parray
  %right = icmp eq i64 %count, %operands
  br i1 %right, label %look, label %other

; ------------------------------------------------------------ operands: kinds, one shape
look:
  %slots = getelementptr i8, ptr %words, i64 {head}
  br label %next
next:
  %i = phi i64 [0, %look], [%i1, %kept]
  %full = phi ptr [null, %look], [%full1, %kept]
  %pa = getelementptr ptr, ptr %args, i64 %i
  %a = load ptr, ptr %pa
  %ptype = getelementptr i8, ptr %a, i64 {type}
  %type = load ptr, ptr %ptype
  %plain = icmp eq ptr %type, %atype
  br i1 %plain, label %array, label %other
array:
  %pdescr = getelementptr i8, ptr %a, i64 {descr}
  %descr = load i64, ptr %pdescr
  %at = mul i64 %i, {slot_bytes}
  %slot = getelementptr i8, ptr %slots, i64 %at
  %pwanted = getelementptr i64, ptr %slot, i64 2
  %wanted = load i64, ptr %pwanted
  %same = icmp eq i64 %descr, %wanted
  br i1 %same, label %typed, label %other
typed:
  %pflags = getelementptr i8, ptr %a, i64 {flags}
  %flags = load i32, ptr %pflags
  %both = and i32 %flags, {wanted}
  %dense = icmp eq i32 %both, {wanted}
  br i1 %dense, label %placed, label %other
placed:
  %pdata = getelementptr i8, ptr %a, i64 {data}
  %bytes = load ptr, ptr %pdata
  %ddata = getelementptr ptr, ptr %data, i64 %i
  store ptr %bytes, ptr %ddata
  %darray = getelementptr ptr, ptr %arrays, i64 %i
  store ptr %a, ptr %darray
  %psize = getelementptr i64, ptr %slot, i64 1
  %size = load i64, ptr %psize
  %pnd = getelementptr i8, ptr %a, i64 {nd}
  %nd = load i32, ptr %pnd
  %zero = icmp eq i32 %nd, 0
  %dstride = getelementptr i64, ptr %stride, i64 %i
  %step = select i1 %zero, i64 0, i64 %size
  store i64 %step, ptr %dstride
  br i1 %zero, label %scalar, label %shaped
scalar:
  br label %kept
shaped:
  %first = icmp eq ptr %full, null
  br i1 %first, label %kept, label %compare
compare:
  %pnd0 = getelementptr i8, ptr %full, i64 {nd}
  %nd0 = load i32, ptr %pnd0
  %even = icmp eq i32 %nd0, %nd
  br i1 %even, label %dims, label %several
dims:
  %pd0 = getelementptr i8, ptr %full, i64 {dims}
  %d0 = load ptr, ptr %pd0
  %pd1 = getelementptr i8, ptr %a, i64 {dims}
  %d1 = load ptr, ptr %pd1
  %nd64 = sext i32 %nd to i64
  br label %dim
dim:
  %k = phi i64 [0, %dims], [%k1, %dim]
  %pk0 = getelementptr i64, ptr %d0, i64 %k
  %v0 = load i64, ptr %pk0
  %pk1 = getelementptr i64, ptr %d1, i64 %k
  %v1 = load i64, ptr %pk1
  %agree = icmp eq i64 %v0, %v1
  %k1 = add i64 %k, 1
  %onwards = icmp slt i64 %k1, %nd64
  %again = and i1 %agree, %onwards
  br i1 %again, label %dim, label %compared
compared:
  br i1 %agree, label %kept, label %several
several:
  %pevery = getelementptr i64, ptr %words, i64 8
  %every = load i64, ptr %pevery
  %broad = call ptr @spread(ptr %args, i64 %operands, i64 %every, ptr %slots, ptr %atype,
                            ptr %data, ptr %stride, ptr %advance, ptr %arrays, ptr %rows)
  %narrow = icmp eq ptr %broad, null
  br i1 %narrow, label %other, label %sized
kept:
  %full1 = phi ptr [%full, %scalar], [%a, %shaped], [%full, %compared]
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %operands
  br i1 %more, label %next, label %counted

; ------------------------------------------------------------ number of elements
counted:
  %single = icmp eq ptr %full1, null
  %a0 = load ptr, ptr %args
  %like1 = select i1 %single, ptr %a0, ptr %full1
  br label %sized
sized:
  %like = phi ptr [%like1, %counted], [%broad, %several]
  %plnd = getelementptr i8, ptr %like, i64 {nd}
  %lnd = load i32, ptr %plnd
  %pldims = getelementptr i8, ptr %like, i64 {dims}
  %ldims = load ptr, ptr %pldims
  %n = call i64 @elements(ptr %like)
  %plimit = getelementptr i64, ptr %words, i64 4
  %limit = load i64, ptr %plimit
  %below = sub i64 %n, 1
  %fits = icmp ult i64 %below, %limit
  br i1 %fits, label %lay, label %other

; ------------------------------------------------------------ constants, temporaries, results
lay:
  %set_row = load i64, ptr %rows
  %unset = icmp eq i64 %set_row, 0
  %row = select i1 %unset, i64 %n, i64 %set_row
  store i64 %row, ptr %length
  %pall = getelementptr i64, ptr %words, i64 1
  %all = load i64, ptr %pall
  br label %place
place:
  %j = phi i64 [%operands, %lay], [%j1, %put]
  %unplaced = icmp slt i64 %j, %all
  br i1 %unplaced, label %which, label %work
which:
  %jat = mul i64 %j, {slot_bytes}
  %jslot = getelementptr i8, ptr %slots, i64 %jat
  %kind = load i64, ptr %jslot
  %pjsize = getelementptr i64, ptr %jslot, i64 1
  %jsize = load i64, ptr %pjsize
  %pwhat = getelementptr i64, ptr %jslot, i64 2
  %what = load i64, ptr %pwhat
  switch i64 %kind, label %make [i64 1, label %constant i64 2, label %temporary]
constant:
  br label %put
temporary:
  %reach = mul i64 %limit, %what
  %room = getelementptr i8, ptr %scratch, i64 %reach
  br label %put
make:
  %descr_new = inttoptr i64 %what to ptr
  call void @Py_IncRef(ptr %descr_new)
  %pnew = getelementptr i64, ptr %words, i64 7
  %newf = load ptr, ptr %pnew
  %made = call ptr %newf(ptr %atype, ptr %descr_new, i32 %lnd, ptr %ldims, ptr null, ptr null,
                         i32 0, ptr null)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %undo, label %born
born:
  %pmade = getelementptr i8, ptr %made, i64 {data}
  %mdata = load ptr, ptr %pmade
  %dmade = getelementptr ptr, ptr %arrays, i64 %j
  store ptr %made, ptr %dmade
  %rowsize = mul i64 %row, %jsize
  br label %put
put:
  %where = phi ptr [%pwhat, %constant], [%room, %temporary], [%mdata, %born]
  %pace = phi i64 [0, %constant], [%jsize, %temporary], [%jsize, %born]
  %onward = phi i64 [0, %constant], [0, %temporary], [%rowsize, %born]
  %jadvance = getelementptr i64, ptr %advance, i64 %j
  store i64 %onward, ptr %jadvance
  %jdata = getelementptr ptr, ptr %data, i64 %j
  store ptr %where, ptr %jdata
  %jstride = getelementptr i64, ptr %stride, i64 %j
  store i64 %pace, ptr %jstride
  %j1 = add i64 %j, 1
  br label %place
undo:
  %u = phi i64 [%j, %make], [%all, %many], [%u1, %undone], [%u1, %drop]
  %u1 = sub i64 %u, 1
  %lower = icmp slt i64 %u1, %operands
  br i1 %lower, label %fail, label %was
was:
  %uat = mul i64 %u1, {slot_bytes}
  %uslot = getelementptr i8, ptr %slots, i64 %uat
  %ukind = load i64, ptr %uslot
  %isnew = icmp eq i64 %ukind, 3
  br i1 %isnew, label %drop, label %undone
drop:
  %pu = getelementptr ptr, ptr %arrays, i64 %u1
  %uarray = load ptr, ptr %pu
  call void @Py_DecRef(ptr %uarray)
  br label %undo
undone:
  br label %undo
fail:
  ret ptr null

; ------------------------------------------------------------ the loops, one after the other
work:
  %allbytes = mul i64 %all, {slot_bytes}
  %steps0 = getelementptr i8, ptr %slots, i64 %allbytes
  %pcount = getelementptr i64, ptr %words, i64 2
  %steps = load i64, ptr %pcount
  br label %step_next
step_next:
  %s = phi i64 [0, %work], [%s1, %call], [0, %moved]
  %todo = icmp slt i64 %s, %steps
  %sat = mul i64 %s, {step_bytes}
  %here = getelementptr i8, ptr %steps0, i64 %sat
  br i1 %todo, label %load, label %row_done
load:
  %loop = load ptr, ptr %here
  %pldata = getelementptr i64, ptr %here, i64 1
  %ldata = load ptr, ptr %pldata
  %pnin = getelementptr i64, ptr %here, i64 2
  %nargs = load i64, ptr %pnin
  br label %fill
fill:
  %g = phi i64 [0, %load], [%g1, %fill]
  %gword = add i64 %g, 3
  %pindex = getelementptr i64, ptr %here, i64 %gword
  %index = load i64, ptr %pindex
  %gd = getelementptr ptr, ptr %data, i64 %index
  %gdata = load ptr, ptr %gd
  %gp = getelementptr ptr, ptr %ptrs, i64 %g
  store ptr %gdata, ptr %gp
  %gs = getelementptr i64, ptr %stride, i64 %index
  %gstride = load i64, ptr %gs
  %gq = getelementptr i64, ptr %sizes, i64 %g
  store i64 %gstride, ptr %gq
  %g1 = add i64 %g, 1
  %unfilled = icmp slt i64 %g1, %nargs
  br i1 %unfilled, label %fill, label %call
call:
  call void %loop(ptr %ptrs, ptr %length, ptr %sizes, ptr %ldata)
  %s1 = add i64 %s, 1
  br label %step_next

; ------------------------------------------------------------ the next row, if there is one
row_done:
  %left = load i64, ptr %prows
  %left1 = sub i64 %left, 1
  store i64 %left1, ptr %prows
  %last_row = icmp eq i64 %left1, 0
  br i1 %last_row, label %finish, label %move
move:
  %m = phi i64 [0, %row_done], [%m1, %move]
  %pm = getelementptr ptr, ptr %data, i64 %m
  %from = load ptr, ptr %pm
  %pstep = getelementptr i64, ptr %advance, i64 %m
  %by = load i64, ptr %pstep
  %to = getelementptr i8, ptr %from, i64 %by
  store ptr %to, ptr %pm
  %m1 = add i64 %m, 1
  %moving = icmp slt i64 %m1, %all
  br i1 %moving, label %move, label %moved
moved:
  br label %step_next

; ------------------------------------------------------------ what is returned
finish:
  %presults = getelementptr i64, ptr %words, i64 3
  %results = load i64, ptr %presults
  %ptuple = getelementptr i64, ptr %words, i64 5
  %tuple = load i64, ptr %ptuple
  %alone = icmp eq i64 %tuple, 0
  br i1 %alone, label %one, label %many
one:
  %rindex = load i64, ptr %here
  %prone = getelementptr ptr, ptr %arrays, i64 %rindex
  %rone = load ptr, ptr %prone
  %old = icmp slt i64 %rindex, %operands
  br i1 %old, label %share, label %give
share:
  call void @Py_IncRef(ptr %rone)
  br label %give
give:
  ret ptr %rone
many:
  %box = call ptr @PyTuple_New(i64 %results)
  %nobox = icmp eq ptr %box, null
  br i1 %nobox, label %undo, label %pack
pack:
  %r = phi i64 [0, %many], [%r1, %set]
  %rleft = icmp slt i64 %r, %results
  br i1 %rleft, label %item, label %done
item:
  %pr = getelementptr i64, ptr %here, i64 %r
  %ri = load i64, ptr %pr
  %none = icmp slt i64 %ri, 0
  %rat = select i1 %none, i64 0, i64 %ri
  %pra = getelementptr ptr, ptr %arrays, i64 %rat
  %ra = load ptr, ptr %pra
  %object = select i1 %none, ptr @_Py_NoneStruct, ptr %ra
  %given = icmp slt i64 %ri, %operands
  br i1 %given, label %hold, label %set
hold:
  call void @Py_IncRef(ptr %object)
  br label %set
set:
  %pbox = getelementptr i8, ptr %box, i64 {items}
  %pinto = getelementptr ptr, ptr %pbox, i64 %r
  store ptr %object, ptr %pinto
  %r1 = add i64 %r, 1
  br label %pack
done:
  ret ptr %box

other:
  ret ptr null
}}
"""
