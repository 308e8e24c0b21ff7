"""The machine code of views.

    ptr shown(ptr array, ptr words)

makes the array of a view whose place in its operand is known. Words: how many bytes after the
operand's first element the view's lies, how many axes it has, their sizes, their steps in bytes
(`core/plans.py` writes them down). It may be written to if the operand may, and refers to the array
that owns the memory, as NumPy's own views do. NULL is an error that is set.

    i32 tie(ptr made, ptr number, ptr parent, ptr op, ptr attrs, ptr state, ptr creation)

ties a view to the root of its family as `core.versions.make_view` does; where it is not plain that
it shares its parent's memory, or the list of views wants pruning, that function is called. `number`
is that of the output, -1 where there is one; `creation` what such views are where gradients are
recorded, None for what their parent is. 0 is an error that is set.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from adjoint.kernels.ir import PLAIN, Code, Value
from adjoint.kernels.nodes_ir import Part
from adjoint.kernels.objects_ir import Writer

ENV = ("_base", "_kids", "_steps", "_creation", "no_grad", "make_view")
WRITEABLE = 0x0400                    # of NumPy's array flags
PRUNE = 16               # views of a root, from which on `make_view` looks for dead ones at 2^n


def emit(code: Code, offsets: Mapping[str, int], env: Sequence[str]) -> None:
    """Add the functions to a module."""
    _shown(code, offsets, env)
    _Tie(code, offsets, env).emit()


def _shown(code: Code, offsets: Mapping[str, int], env: Sequence[str]) -> None:
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


class _Tie(Part):
    """`tie`."""

    def __init__(self, code: Code, offsets: Mapping[str, int], env: Sequence[str]) -> None:
        for text in ("ptr @PyWeakref_NewRef(ptr, ptr)", "i32 @PyList_Append(ptr, ptr)"):
            code.declare(text.split("@")[1].split("(")[0], f"declare {text}")
        names = ("made", "number", "parent", "op", "attrs", "state", "creation")
        super().__init__(code.function("tie", [("ptr", n) for n in names], returns="i32",
                                       internal=True, attributes=PLAIN), offsets, env)
        (self.made, self.number, self.parent, self.op, self.attrs, self.state,
         self.creation) = self.f.args
        self.six = self.f.emit("ptr", "alloca [6 x ptr], align 8")

    def emit(self) -> None:
        f, w = self.f, self.w
        made, parent = self.made, self.parent
        base = w.field(w.field(made, "array"), "base")
        w.need(w.differs(base, w.null), "done")
        w.need(self.is_tensor(parent), "slow")
        array, cell = w.field(parent, "array"), w.field(parent, "_cell")
        w.need(w.same(base, array) | w.same(base, w.field(array, "base")), "slow")
        w.need(w.differs(cell, w.env("inference")), "slow")
        w.need(w.same(w.field(made, "_cell"), w.none), "slow")
        above = w.got(parent, "_base", "failed")
        first = w.same(above, w.none)
        root = f.select(first, parent, above)
        known = w.got(root, "_kids", "failed")
        kids = w.either(w.same(known, w.none), partial(self._first_kid, root), lambda: known)
        n = f.call("PyList_Size", "i64", kids)
        w.need(n.compare("sle", PRUNE) | (n & (n - 1)).compare("ne", 0), "slow")
        self._tied(root, kids)
        self._created(first)
        f.goto("done")
        f.start("slow")
        self._by_function()
        f.goto("done")
        f.start("done")
        f.ret(f.const("i32", 1))
        f.start("failed")
        f.ret(f.const("i32", 0))

    def _first_kid(self, root: Value) -> Value:
        kids = self.new("PyList_New", self.f.i64(0))
        self.set(root, "_kids", kids)
        self.w.drop(kids)
        return kids

    def _tied(self, root: Value, kids: Value) -> None:
        """Cell, base, steps, and the root's reference to the view."""
        f, w = self.f, self.w
        made, parent = self.made, self.parent
        known = w.field(parent, "_cell")
        cell = w.either(w.same(known, w.none), self._cell_of_parent, lambda: known)
        w.drop(w.none)                                  # it takes the place of None
        w.put(made, "_cell", cell)
        self.set(made, "_base", root)
        before = w.got(parent, "_steps", "failed")
        n = w.length(before)
        step, steps = self.new("PyTuple_New", f.i64(3)), self.new("PyTuple_New", n + 1)
        for i, part in enumerate((self.op, self.attrs, self.number)):
            w.hold(part)
            w.fill(step, i, part)

        def one(i: Value, _: list[Value]) -> list[Value]:
            item = w.item(before, i)
            w.hold(item)
            w.fill(steps, i, item)
            return []
        f.loop(f.i64(0), n, 1, [], one)
        w.fill(steps, n, step)
        self.set(made, "_steps", steps)
        w.drop(steps)
        kid = self.new("PyWeakref_NewRef", made, w.null)
        added = f.call("PyList_Append", "i32", kids, kid)
        w.drop(kid)
        w.need(added.compare("eq", 0), "failed")

    def _cell_of_parent(self) -> Value:
        """The cell of a storage that had none."""
        w = self.w
        cell = self.new("PyObject_CallNoArgs", w.env("cell"))
        w.drop(w.none)
        w.put(self.parent, "_cell", cell, owned=True)
        return cell

    def _created(self, first: Value) -> None:
        """Views that may not be written to know why; a root's own is the class's: nothing.
        Where nothing is recorded a view asks for a gradient where its parent does."""
        f, w = self.f, self.w
        off, on, own = f.label("unrecorded"), f.label("recorded"), f.label("inherit")
        f.branch(w.same(self.state, w.env("on")), on, off)
        f.start(off)
        self.set(self.made, "_creation", w.env("no_grad"))
        w.drop(w.field(self.made, "_rg"))
        w.put(self.made, "_rg", w.field(self.parent, "_rg"))
        f.goto("done")
        f.start(on)
        told, plain = f.label("told"), f.label("plain")
        f.branch(w.same(self.creation, w.none), plain, told)
        f.start(told)
        self.set(self.made, "_creation", self.creation)
        f.goto("done")
        f.start(plain)
        f.branch(first, "done", own)
        f.start(own)
        self.set(self.made, "_creation", w.got(self.parent, "_creation", "failed"))

    def _by_function(self) -> None:
        f, w = self.f, self.w
        for k, v in enumerate((self.made, self.parent, self.op, self.attrs, self.number,
                               self.state)):
            f.store(v, f.at(self.six, "ptr", k))
        tied = f.call("PyObject_Vectorcall", "ptr", w.env("make_view"), self.six, f.i64(6), w.null)
        w.need(w.differs(tied, w.null), "failed")
        w.drop(tied)
