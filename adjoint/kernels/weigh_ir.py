"""How much the nodes of a long graph count towards the garbage collector's next run.

    PyObject *node_alloc(PyTypeObject *type, Py_ssize_t)         # tp_alloc
    void node_free(PyObject *node)                               # tp_free

The collector runs when so many more objects were made than freed, and looks at all of a generation
then. Of a graph of a million nodes it would look at several times as many, and find nothing.
`node_alloc` makes objects that the collector knows like all others, but of the nodes beyond the
first `FULL` that live at a time one in two counts, beyond twice as many one in three, and so on:
whoever has ten times the nodes is willing to wait ten times as many for memory that only the
collector frees. `node_free` counts down as often as there was counting up; which node it was that
counted does not matter.
"""
from __future__ import annotations

from adjoint.kernels.ir import Code

FULL_BITS = 15
FULL = 1 << FULL_BITS                # living nodes that count like any other object


def declare(code: Code, size: int, head: int) -> str:
    """Add what the functions need; their text, for nodes of `size` bytes with `head` before."""
    for name in ("live", "uncounted", "skip"):
        code.declare(name, f"@{name} = internal global i64 0")
    for text in ("ptr @PyObject_Calloc(i64, i64)", "ptr @PyObject_Init(ptr, ptr)",
                 "ptr @PyErr_NoMemory()", "void @PyObject_GC_Track(ptr)",
                 "void @PyObject_GC_UnTrack(ptr)", "void @PyObject_GC_Del(ptr)",
                 "void @PyObject_Free(ptr)"):
        code.declare(text.split("@")[1].split("(")[0], f"declare {text}")
    return _TEXT.format(bits=FULL_BITS, bytes=size + head, head=head)


_TEXT = """
define ptr @node_alloc(ptr %type, i64 %n) {{
entry:
  %before = load i64, ptr @live
  %live = add i64 %before, 1
  %skip = load i64, ptr @skip
  %counts = icmp sle i64 %skip, 0
  br i1 %counts, label %counted, label %light
counted:
  %next = lshr i64 %live, {bits}
  store i64 %next, ptr @skip
  store i64 %live, ptr @live
  %plain = call ptr @PyType_GenericAlloc(ptr %type, i64 0)
  ret ptr %plain
light:
  %place = call ptr @PyObject_Calloc(i64 1, i64 {bytes})
  %refused = icmp eq ptr %place, null
  br i1 %refused, label %failed, label %made
failed:
  %error = call ptr @PyErr_NoMemory()
  ret ptr null
made:
  %left = sub i64 %skip, 1
  store i64 %left, ptr @skip
  store i64 %live, ptr @live
  %some = load i64, ptr @uncounted
  %more = add i64 %some, 1
  store i64 %more, ptr @uncounted
  %node = getelementptr i8, ptr %place, i64 {head}
  %same = call ptr @PyObject_Init(ptr %node, ptr %type)
  call void @PyObject_GC_Track(ptr %node)
  ret ptr %node
}}

define void @node_free(ptr %node) {{
entry:
  %before = load i64, ptr @live
  %some = icmp sgt i64 %before, 0
  %less = sub i64 %before, 1
  %live = select i1 %some, i64 %less, i64 0
  store i64 %live, ptr @live
  %light = load i64, ptr @uncounted
  %owed = icmp sgt i64 %light, 0
  br i1 %owed, label %quiet, label %counted
quiet:
  %rest = sub i64 %light, 1
  store i64 %rest, ptr @uncounted
  call void @PyObject_GC_UnTrack(ptr %node)
  %place = getelementptr i8, ptr %node, i64 -{head}
  call void @PyObject_Free(ptr %place)
  ret void
counted:
  call void @PyObject_GC_Del(ptr %node)
  ret void
}}
"""
