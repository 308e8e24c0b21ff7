"""The machine code that makes the array of a view whose place in its operand is known.

    ptr shown(ptr array, ptr words)

Words: how many bytes after the operand's first element the view's lies, how many axes it has, their
sizes, their steps in bytes (`core/plans.py` writes them down). It may be written to if the operand
may, and refers to the array that owns the memory, as NumPy's own views do.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from adjoint.kernels.ir import Code, Value
from adjoint.kernels.objects_ir import Writer

WRITEABLE = 0x0400                    # of NumPy's array flags


def emit(code: Code, offsets: Mapping[str, int], env: Sequence[str]) -> None:
    """Add the function to a module; NULL from it is an error that is set."""
    f = code.function("shown", [("ptr", "array"), ("ptr", "words")], returns="ptr", internal=True)
    w = Writer(f, offsets, env)
    array, words = f.args
    rank = f.load(f.at(words, "i64", 1), "i64")
    sizes = f.at(words, "i64", 2)
    data = f.at(w.field(array, "data"), "i8", f.load(words, "i64"))
    flags = f.load(f.at(array, "i8", w.at["flags"]), "i32") & WRITEABLE
    descr = w.field(array, "descr")
    w.hold(descr)
    made = f.emit("ptr", f"call ptr {w.env('new').ref}(ptr {w.env('array_type').ref}, "
                         f"ptr {descr.ref}, i32 {f.cast('trunc', rank, 'i32').ref}, "
                         f"ptr {sizes.ref}, ptr {f.at(sizes, 'i64', rank).ref}, ptr {data.ref}, "
                         f"i32 {flags.ref}, ptr null)")
    w.need(w.differs(made, w.null), "failed")
    base = w.field(array, "base")

    def of_owner() -> Value:
        return f.select(w.has(base, "type", w.env("array_type")), base, array)
    w.put(made, "base", w.either(w.same(base, w.null), lambda: array, of_owner))
    f.ret(made)
    f.start("failed")
    f.ret(w.null)
