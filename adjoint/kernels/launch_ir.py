"""The machine code of `launch`: builtin functions that start generated kernels.

    PyObject *kernel_call(PyObject *self, PyObject *const *args, Py_ssize_t count)
    PyObject *plan_call(PyObject *self, PyObject *const *args, Py_ssize_t count)
    PyObject *plan_try(the same): NULL without an exception where `otherwise` would be called

`kernel_call` is the entry of one kernel: `self` is a bytes object with the words `CALL`, the
arguments are those of `codegen.build`. `plan_call` finds the plan that fits its operands, makes
the arrays of the results and runs the kernel: `self` is the tuple (address of a `Table`,
otherwise, ...), and `otherwise` is called with the same arguments where no plan fits.

Objects are handled through CPython's and NumPy's C functions. Of their structs the code reads an
object's type and the fields of an array, at offsets that `builtin` has checked.
"""
from __future__ import annotations

from adjoint.kernels.objects_ir import ELEMENTS, or_else

# Words of the program of `kernel_call`.
CALL = ARRAYS, INTEGERS, REALS, BODY, TYPE = range(5)
MAX_SLOTS = 64
# A table is the number of plans, then their addresses. A plan is the words `PLAN`, then its
# operands (rank, dtype, sizes, strides; -1, 0 for None), its results (rank, dtype, sizes), and for
# each thing that the call returns the number of a result, or -1 for None. OWNER is the object that
# keeps a plan alive.
PLAN = OPERANDS, RESULTS, RETURNS, GEOMETRY, PLAN_BODY, TUPLE, PLAN_TYPE, NEW, OWNER = range(9)
BRIEF = 1 << 15            # elements of all operands up to which the GIL is not given back


def text(offsets: dict[str, int]) -> str:
    """The IR, for fields at these offsets (`builtin.offsets`)."""
    integers = _CONVERT.format(
        kind="integer", start="%i", before="next", end="%lastinteger", after="real", type="i64",
        function="PyLong_AsLongLong", suspect="icmp eq", error="-1")
    numbers = _CONVERT.format(
        kind="real", start="%integer_i", before="integer", end="%total", after="work",
        type="double", function="PyFloat_AsDouble", suspect="fcmp oeq", error="-1.0")
    known = dict(offsets, slots=MAX_SLOTS, brief=BRIEF, head=len(PLAN), integers=integers,
                 numbers=numbers)
    return _DECLARE + ELEMENTS.format(**offsets) + _CALL.format(**known) + _PLAN.format(**known) \
        + or_else("plan_call", "plan_try", offsets)


_DECLARE = """
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyErr_Occurred()
declare void @PyErr_SetString(ptr, ptr)
declare ptr @PyLong_AsVoidPtr(ptr)
declare i64 @PyLong_AsLongLong(ptr)
declare double @PyFloat_AsDouble(ptr)
declare i32 @PyType_IsSubtype(ptr, ptr)
declare ptr @PyBytes_AsString(ptr)
declare ptr @PyTuple_New(i64)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
@_Py_NoneStruct = external global i8
@PyExc_TypeError = external global ptr
@wrong = private constant [57 x i8] c"kernel: wrong number of operands, or one is not an array\\00"
"""

# A loop over operands of one kind, from operand `start` of block `before` on: converted, put into
# the slot before the operand's number; -1 may mean that an exception is set.
_CONVERT = """
{kind}:
  %{kind}_i = phi i64 [{start}, %{before}], [%{kind}_next, %{kind}_good]
  %{kind}_more = icmp slt i64 %{kind}_i, {end}
  br i1 %{kind}_more, label %{kind}_one, label %{after}
{kind}_one:
  %{kind}_p = getelementptr ptr, ptr %args, i64 %{kind}_i
  %{kind}_o = load ptr, ptr %{kind}_p
  %{kind}_v = call {type} @{function}(ptr %{kind}_o)
  %{kind}_back = sub i64 %{kind}_i, 1
  %{kind}_slot = getelementptr i64, ptr %slots, i64 %{kind}_back
  store {type} %{kind}_v, ptr %{kind}_slot
  %{kind}_next = add i64 %{kind}_i, 1
  %{kind}_odd = {suspect} {type} %{kind}_v, {error}
  br i1 %{kind}_odd, label %{kind}_doubt, label %{kind}_good
{kind}_doubt:
  %{kind}_raised = call ptr @PyErr_Occurred()
  %{kind}_fine = icmp eq ptr %{kind}_raised, null
  br i1 %{kind}_fine, label %{kind}_good, label %failed
{kind}_good:
  br label %{kind}
"""

_CALL = """
define ptr @kernel_call(ptr %self, ptr %args, i64 %count) {{
entry:
  %slots = alloca [{slots} x i64], align 64
  %words = call ptr @PyBytes_AsString(ptr %self)
  %arrays = load i64, ptr %words
  %p1 = getelementptr i64, ptr %words, i64 1
  %integers = load i64, ptr %p1
  %p2 = getelementptr i64, ptr %words, i64 2
  %reals = load i64, ptr %p2
  %pbody = getelementptr i64, ptr %words, i64 3
  %body = load ptr, ptr %pbody
  %p4 = getelementptr i64, ptr %words, i64 4
  %atype = load ptr, ptr %p4
  %lastarray = add i64 %arrays, 2
  %lastinteger = add i64 %lastarray, %integers
  %total = add i64 %lastinteger, %reals
  %enough = icmp eq i64 %count, %total
  br i1 %enough, label %begin, label %bad
begin:
  %arun = load ptr, ptr %args
  %run = call ptr @PyLong_AsVoidPtr(ptr %arun)
  %pgeometry = getelementptr ptr, ptr %args, i64 1
  %ageometry = load ptr, ptr %pgeometry
  %geometry = call ptr @PyLong_AsVoidPtr(ptr %ageometry)
  %nowhere = icmp eq ptr %geometry, null
  br i1 %nowhere, label %failed, label %located
located:
  store ptr %geometry, ptr %slots
  br label %next

next:
  %i = phi i64 [2, %located], [%i1, %place]
  %size = phi i64 [0, %located], [%size1, %place]
  %more = icmp slt i64 %i, %lastarray
  br i1 %more, label %array, label %integer
array:
  %pa = getelementptr ptr, ptr %args, i64 %i
  %a = load ptr, ptr %pa
  %ptype = getelementptr i8, ptr %a, i64 {type}
  %type = load ptr, ptr %ptype
  %plain = icmp eq ptr %type, %atype
  br i1 %plain, label %place, label %derived
derived:
  %sub = call i32 @PyType_IsSubtype(ptr %type, ptr %atype)
  %kind = icmp ne i32 %sub, 0
  br i1 %kind, label %place, label %bad
place:
  %pdata = getelementptr i8, ptr %a, i64 {data}
  %data = load ptr, ptr %pdata
  %back = sub i64 %i, 1
  %slot = getelementptr i64, ptr %slots, i64 %back
  store ptr %data, ptr %slot
  %n = call i64 @elements(ptr %a)
  %size1 = add i64 %size, %n
  %i1 = add i64 %i, 1
  br label %next

{integers}
{numbers}
work:
  %chunks = load i64, ptr %geometry
  %one = icmp sle i64 %chunks, 1
  %short = icmp sle i64 %size, {brief}
  %quick = and i1 %one, %short
  br i1 %quick, label %held, label %free
held:
  call void %body(ptr %slots, i64 0, i64 %chunks)
  br label %done
free:
  %thread = call ptr @PyEval_SaveThread()
  br i1 %one, label %alone, label %shared
alone:
  call void %body(ptr %slots, i64 0, i64 %chunks)
  br label %back_again
shared:
  call void %run(ptr %body, ptr %slots, i64 %chunks)
  br label %back_again
back_again:
  call void @PyEval_RestoreThread(ptr %thread)
  br label %done
done:
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  ret ptr @_Py_NoneStruct
bad:
  %error = load ptr, ptr @PyExc_TypeError
  call void @PyErr_SetString(ptr %error, ptr @wrong)
  br label %failed
failed:
  ret ptr null
}}
"""

_PLAN = """
define ptr @plan_try(ptr %self, ptr %args, i64 %count) {{
entry:
  %slots = alloca [{slots} x i64], align 64
  %made = alloca [{slots} x ptr], align 64
  %pplace = getelementptr i8, ptr %self, i64 {items}
  %place = load ptr, ptr %pplace
  %table = call ptr @PyLong_AsVoidPtr(ptr %place)
  %plans = load i64, ptr %table
  br label %candidate

; ------------------------------------------------------------ the plan that fits the operands
candidate:
  %c = phi i64 [0, %entry], [%c1, %miss]
  %left = icmp slt i64 %c, %plans
  br i1 %left, label %look, label %other
look:
  %c1 = add i64 %c, 1
  %pplan = getelementptr ptr, ptr %table, i64 %c1
  %plan = load ptr, ptr %pplan
  %operands = load i64, ptr %plan
  %enough = icmp eq i64 %operands, %count
  br i1 %enough, label %begin, label %miss
miss:
  br label %candidate
begin:
  %ptype6 = getelementptr i64, ptr %plan, i64 6
  %atype = load ptr, ptr %ptype6
  %first = getelementptr i64, ptr %plan, i64 {head}
  %geometry_at = getelementptr i64, ptr %plan, i64 3
  %geometry = load ptr, ptr %geometry_at
  store ptr %geometry, ptr %slots
  br label %operand
operand:
  %i = phi i64 [0, %begin], [%s, %fits], [%s, %empty]
  %w = phi ptr [%first, %begin], [%after, %fits], [%sizes, %empty]
  %s = add i64 %i, 1
  %more = icmp slt i64 %i, %count
  br i1 %more, label %check, label %results
check:
  %pa = getelementptr ptr, ptr %args, i64 %i
  %a = load ptr, ptr %pa
  %ptype = getelementptr i8, ptr %a, i64 {type}
  %type = load ptr, ptr %ptype
  %rank = load i64, ptr %w
  %pwanted = getelementptr i64, ptr %w, i64 1
  %wanted = load i64, ptr %pwanted
  %sizes = getelementptr i64, ptr %w, i64 2
  %array = icmp eq ptr %type, %atype
  br i1 %array, label %fields, label %nothing
nothing:
  %isnone = icmp eq ptr %a, @_Py_NoneStruct
  %maybe = icmp eq i64 %rank, -1
  %absent = and i1 %isnone, %maybe
  br i1 %absent, label %empty, label %miss
empty:
  %eslot = getelementptr ptr, ptr %slots, i64 %s
  store ptr null, ptr %eslot
  br label %operand
fields:
  %pdescr = getelementptr i8, ptr %a, i64 {descr}
  %descr = load i64, ptr %pdescr
  %pnd = getelementptr i8, ptr %a, i64 {nd}
  %nd32 = load i32, ptr %pnd
  %nd = sext i32 %nd32 to i64
  %same = icmp eq i64 %descr, %wanted
  %even = icmp eq i64 %nd, %rank
  %alike = and i1 %same, %even
  br i1 %alike, label %shape, label %miss
shape:
  %pdims = getelementptr i8, ptr %a, i64 {dims}
  %dims = load ptr, ptr %pdims
  %psteps = getelementptr i8, ptr %a, i64 {strides}
  %steps = load ptr, ptr %psteps
  %strides = getelementptr i64, ptr %sizes, i64 %rank
  %after = getelementptr i64, ptr %strides, i64 %rank
  br label %axis
axis:
  %k = phi i64 [0, %shape], [%k1, %agree]
  %some = icmp slt i64 %k, %rank
  br i1 %some, label %compare, label %fits
compare:
  %pd = getelementptr i64, ptr %dims, i64 %k
  %d = load i64, ptr %pd
  %pe = getelementptr i64, ptr %sizes, i64 %k
  %e = load i64, ptr %pe
  %pf = getelementptr i64, ptr %steps, i64 %k
  %f = load i64, ptr %pf
  %pg = getelementptr i64, ptr %strides, i64 %k
  %g = load i64, ptr %pg
  %de = icmp eq i64 %d, %e
  %fg = icmp eq i64 %f, %g
  %both = and i1 %de, %fg
  %k1 = add i64 %k, 1
  br i1 %both, label %agree, label %miss
agree:
  br label %axis
fits:
  %pdata = getelementptr i8, ptr %a, i64 {data}
  %data = load ptr, ptr %pdata
  %slot = getelementptr ptr, ptr %slots, i64 %s
  store ptr %data, ptr %slot
  br label %operand

; ------------------------------------------------------------ new arrays, and the kernel
results:
  %presults = getelementptr i64, ptr %plan, i64 1
  %wanted_results = load i64, ptr %presults
  %pnew = getelementptr i64, ptr %plan, i64 7
  %new = load ptr, ptr %pnew
  br label %result
result:
  %o = phi i64 [0, %results], [%o1, %born]
  %x = phi ptr [%w, %results], [%x1, %born]
  %so = phi i64 [%s, %results], [%so1, %born]
  %lack = icmp slt i64 %o, %wanted_results
  br i1 %lack, label %make, label %compute
make:
  %orank = load i64, ptr %x
  %orank32 = trunc i64 %orank to i32
  %podescr = getelementptr i64, ptr %x, i64 1
  %odescr = load ptr, ptr %podescr
  %osizes = getelementptr i64, ptr %x, i64 2
  call void @Py_IncRef(ptr %odescr)
  %fresh = call ptr %new(ptr %atype, ptr %odescr, i32 %orank32, ptr %osizes, ptr null, ptr null,
                         i32 0, ptr null)
  %none = icmp eq ptr %fresh, null
  br i1 %none, label %undo, label %born
born:
  %pfresh = getelementptr ptr, ptr %made, i64 %o
  store ptr %fresh, ptr %pfresh
  %podata = getelementptr i8, ptr %fresh, i64 {data}
  %odata = load ptr, ptr %podata
  %oslot = getelementptr ptr, ptr %slots, i64 %so
  store ptr %odata, ptr %oslot
  %x1 = getelementptr i64, ptr %osizes, i64 %orank
  %o1 = add i64 %o, 1
  %so1 = add i64 %so, 1
  br label %result
compute:
  %pbody = getelementptr i64, ptr %plan, i64 4
  %body = load ptr, ptr %pbody
  %chunks = load i64, ptr %geometry
  %pkeeper = getelementptr i64, ptr %plan, i64 8
  %keeper = load ptr, ptr %pkeeper
  ; others may run and drop the plan: in a kernel that gives the GIL back, or where making a tuple
  ; runs the garbage collector
  call void @Py_IncRef(ptr %keeper)
  call void %body(ptr %slots, i64 0, i64 %chunks)

; ------------------------------------------------------------ what is returned
  %ptuple = getelementptr i64, ptr %plan, i64 5
  %tuple = load i64, ptr %ptuple
  %single = icmp eq i64 %tuple, 0
  br i1 %single, label %one, label %many
one:
  %filled_none = icmp eq i64 %wanted_results, 0
  br i1 %filled_none, label %void, label %only_one
void:
  call void @Py_DecRef(ptr %keeper)
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  ret ptr @_Py_NoneStruct
only_one:
  %only = load ptr, ptr %made
  call void @Py_DecRef(ptr %keeper)
  ret ptr %only
many:
  %preturns = getelementptr i64, ptr %plan, i64 2
  %returns = load i64, ptr %preturns
  %box = call ptr @PyTuple_New(i64 %returns)
  %nobox = icmp eq ptr %box, null
  br i1 %nobox, label %lost, label %pack
lost:
  call void @Py_DecRef(ptr %keeper)
  br label %undo
pack:
  %r = phi i64 [0, %many], [%r1, %set]
  %rleft = icmp slt i64 %r, %returns
  br i1 %rleft, label %item, label %done
item:
  %pindex = getelementptr i64, ptr %x, i64 %r
  %index = load i64, ptr %pindex
  %gap = icmp slt i64 %index, 0
  br i1 %gap, label %hole, label %filled
hole:
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  br label %set
filled:
  %pitem = getelementptr ptr, ptr %made, i64 %index
  %got = load ptr, ptr %pitem
  br label %set
set:
  %object = phi ptr [@_Py_NoneStruct, %hole], [%got, %filled]
  %pbox = getelementptr i8, ptr %box, i64 {items}
  %pinto = getelementptr ptr, ptr %pbox, i64 %r
  store ptr %object, ptr %pinto
  %r1 = add i64 %r, 1
  br label %pack
done:
  call void @Py_DecRef(ptr %keeper)
  ret ptr %box

undo:
  %u = phi i64 [%o, %make], [%o, %lost], [%u1, %drop]
  %u1 = sub i64 %u, 1
  %any = icmp sge i64 %u1, 0
  br i1 %any, label %drop, label %fail
drop:
  %pu = getelementptr ptr, ptr %made, i64 %u1
  %dead = load ptr, ptr %pu
  call void @Py_DecRef(ptr %dead)
  br label %undo
fail:
  ret ptr null

other:
  ret ptr null
}}
"""
