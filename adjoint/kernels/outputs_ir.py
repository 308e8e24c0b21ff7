"""What the machine code of `bind` does with results: views, and several outputs.

A view is tied to the root of its family as `core.bind.make_view` ties it; where it is not plain
that it shares its parent's memory, or the list of views wants pruning, that function is called.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from adjoint.kernels.ir import Code, Value
from adjoint.kernels.nodes_ir import Maker

ENV = ("port", "ports", "_base", "_kids", "_steps", "_creation", "no_grad", "multi")
PRUNE = 16               # views of a root, from which on `make_view` looks for dead ones at 2^n
MOST = 256               # outputs


class Outputs(Maker):
    """A function that makes tensors of an op's results. What differs between calls is set by what
    emits it: `op`, `operands`, `attrs`; `many`, a variable for the tuple of several tensors."""

    op: Value
    operands: Value
    attrs: Value
    many: Value

    def __init__(self, code: Code, offsets: Mapping[str, int], env: Sequence[str],
                 name: str) -> None:
        super().__init__(code, offsets, env, name)
        for text in ("ptr @PyWeakref_NewRef(ptr, ptr)", "i32 @PyList_Append(ptr, ptr)",
                     "ptr @PySequence_List(ptr)", "ptr @PyTuple_GetSlice(ptr, i64, i64)"):
            code.declare(text.split("@")[1].split("(")[0], f"declare {text}")
        self.six = self.f.emit("ptr", "alloca [6 x ptr], align 8")

    def unrecorded(self, made: Value, cell: Value) -> None:
        """Fill a tensor without history."""
        w = self.w
        for name, value in (("_rg", w.env("false")), ("_edge", w.none), ("_cell", cell)):
            w.put(made, name, value)

    def cell_or_none(self, made: Value) -> None:
        """A tensor whose cell was not needed gets None."""
        w = self.w
        w.when(w.same(w.field(made, "_cell"), w.null), lambda: w.put(made, "_cell", w.none))

    def set(self, thing: Value, name: str, value: Value) -> None:
        """Set an attribute in an instance dict."""
        status = self.f.call("PyObject_SetAttr", "i32", thing, self.w.env(name), value)
        self.w.need(status.compare("sge", 0), "failed")

    # -- several outputs --------------------------------------------------------------------
    def tensors_of(self, outs: Value, visible: Value, total: Value) -> None:
        """`many`: a tuple of tensors with the visible ones of these arrays, otherwise empty."""
        f, w = self.f, self.w

        w.need(visible.compare("sle", MOST), "other")

        def plain(i: Value, _: list[Value]) -> list[Value]:
            array = f.call("PyTuple_GetItem", "ptr", outs, i)
            w.need(w.has(array, "type", w.env("array_type")), "other")
            return []
        f.loop(f.i64(0), total, 1, [], plain)
        many = self.new("PyTuple_New", visible)
        f.store(many, self.many)

        def one(i: Value, _: list[Value]) -> list[Value]:
            made = self.alloc(w.env("tensor"), self.made)
            f.store(w.null, self.made)
            f.call("PyTuple_SetItem", "i32", many, i, made)
            w.put(made, "array", f.call("PyTuple_GetItem", "ptr", outs, i))
            return []
        f.loop(f.i64(0), visible, 1, [], one)

    def each(self, visible: Value, body: Callable[[Value, Value], None]) -> None:
        """`body(index, tensor)` for all of `many`."""
        f = self.f
        many = f.load(self.many, "ptr")

        def one(i: Value, _: list[Value]) -> list[Value]:
            body(i, f.call("PyTuple_GetItem", "ptr", many, i))
            return []
        f.loop(f.i64(0), visible, 1, [], one)

    def shapes(self, node: Value, visible: Value) -> None:
        """Shapes, dtypes and the number of outputs, for a node."""
        f, w = self.f, self.w
        shapes, dtypes = self.new("PyTuple_New", visible), self.new("PyTuple_New", visible)
        w.put(node, "shape", shapes, owned=True)
        w.put(node, "dtype", dtypes, owned=True)

        def one(i: Value, t: Value) -> None:
            array = w.field(t, "array")
            f.call("PyTuple_SetItem", "i32", shapes, i,
                   self.new("PyObject_GetAttr", array, w.env("shape_name")))
            descr = w.field(array, "descr")
            w.hold(descr)
            f.call("PyTuple_SetItem", "i32", dtypes, i, descr)
        self.each(visible, one)
        count = self.new("PyLong_FromLongLong", visible)
        self.set(node, "ports", count)
        w.drop(count)

    def one_of(self, outs: Value, at: Value, visible: Value) -> Value:
        """The residual that is output `at`; its cell becomes its tensor's, if it has one."""
        f, w = self.f, self.w
        out = f.call("PyTuple_GetItem", "ptr", outs, at)
        cell = self.new("PyObject_CallNoArgs", w.env("cell"))
        ref = self.new("PyType_GenericAlloc", w.env("ref"), f.i64(0))
        index = self.new("PyLong_FromLongLong", at)
        for name, value in (("array", out), ("version", w.env("off"))):
            w.put(ref, "ref." + name, value)
        w.put(ref, "ref.index", index, owned=True)
        w.put(ref, "ref.cell", cell, owned=True)
        w.when(at.compare("slt", visible), lambda: w.put(
            f.call("PyTuple_GetItem", "ptr", f.load(self.many, "ptr"), at), "_cell", cell))
        return ref

    def ports(self, node: Value, visible: Value, flows: Value) -> None:
        """Tie tensors to the outputs of their node, where a gradient flows."""
        f, w = self.f, self.w

        def carries(i: Value) -> Value:
            return w.either(w.same(flows, w.none), partial(f.const, "i1", True), lambda: w.same(
                f.call("PyTuple_GetItem", "ptr", flows, i), w.env("true")))

        def one(i: Value, t: Value) -> None:
            self.cell_or_none(t)
            port, none, done = f.label("port"), f.label("portless"), f.label("tied")
            f.branch(carries(i), port, none)
            f.start(none)
            w.put(t, "_rg", w.env("false"))
            w.put(t, "_edge", w.none)
            f.goto(done)
            f.start(port)
            self._port(node, t, i)
            f.goto(done)
            f.start(done)
        self.each(visible, one)

    def _port(self, node: Value, t: Value, i: Value) -> None:
        f, w = self.f, self.w
        port = self.new("PyType_GenericAlloc", w.env("port"), f.i64(0))
        w.put(t, "_rg", w.env("true"))
        w.put(t, "_edge", port, owned=True)
        array = w.field(t, "array")
        w.put(port, "port.node", node)
        w.put(port, "port.index", self.new("PyLong_FromLongLong", i), owned=True)
        w.put(port, "port.dtype", w.field(array, "descr"))
        shape = self.new("PyObject_GetAttr", array, w.env("shape_name"))
        sizes = self.new("PySequence_List", shape)
        w.drop(shape)
        w.put(port, "port.shape", sizes, owned=True)

    # -- views ------------------------------------------------------------------------------
    def tie(self, made: Value, index: Value, creation: str) -> None:
        """Tie a view to the root of its family; `index` is that of an output (-1, an object, where
        there is one), `creation` what such views are where gradients are recorded."""
        f, w = self.f, self.w
        slow, done, owned = f.label("slow"), f.label("view_done"), f.label("owner")
        parent = f.call("PyTuple_GetItem", "ptr", self.operands, f.i64(0))
        if index.ty == "i64":
            number = self.new("PyLong_FromLongLong", index)
            w.drop(number)                              # it stays: they are at most `MOST`
        else:
            number = index
        base = w.field(w.field(made, "array"), "base")
        f.branch(w.same(base, w.null), done, owned)
        f.start(owned)
        w.need(self.is_tensor(parent), slow)
        array, cell = w.field(parent, "array"), w.field(parent, "_cell")
        w.need(w.same(base, array) | w.same(base, w.field(array, "base")), slow)
        w.need(w.differs(cell, w.env("inference")), slow)
        w.need(w.same(w.field(made, "_cell"), w.none), slow)
        above = self.w.got(parent, "_base", "failed")
        first = w.same(above, w.none)
        root = f.select(first, parent, above)
        kids = w.either(w.same(w.got(root, "_kids", "failed"), w.none),
                        partial(self._first_kid, root), partial(w.got, root, "_kids", "failed"))
        n = f.call("PyList_Size", "i64", kids)
        w.need(n.compare("sle", PRUNE) | (n & (n - 1)).compare("ne", 0), slow)
        self._tied(made, parent, root, kids, number)
        self._created(made, parent, first, creation)
        f.goto(done)
        f.start(slow)
        self._by_function(made, parent, number)
        f.goto(done)
        f.start(done)

    def _first_kid(self, root: Value) -> Value:
        kids = self.new("PyList_New", self.f.i64(0))
        self.set(root, "_kids", kids)
        self.w.drop(kids)
        return kids

    def _tied(self, made: Value, parent: Value, root: Value, kids: Value, number: Value) -> None:
        """Cell, base, steps, and the root's reference to the view."""
        f, w = self.f, self.w
        cell = w.either(w.same(w.field(parent, "_cell"), w.none), partial(self._cell_of, parent),
                        partial(w.field, parent, "_cell"))
        w.drop(w.none)                                  # it takes the place of None
        w.put(made, "_cell", cell)
        self.set(made, "_base", root)
        before = self.w.got(parent, "_steps", "failed")
        n = f.call("PyTuple_Size", "i64", before)
        step, steps = self.new("PyTuple_New", f.i64(3)), self.new("PyTuple_New", n + 1)
        for i, part in enumerate((self.op, self.attrs, number)):
            w.hold(part)
            f.call("PyTuple_SetItem", "i32", step, f.i64(i), part)

        def one(i: Value, _: list[Value]) -> list[Value]:
            item = f.call("PyTuple_GetItem", "ptr", before, i)
            w.hold(item)
            f.call("PyTuple_SetItem", "i32", steps, i, item)
            return []
        f.loop(f.i64(0), n, 1, [], one)
        f.call("PyTuple_SetItem", "i32", steps, n, step)
        self.set(made, "_steps", steps)
        w.drop(steps)
        kid = self.new("PyWeakref_NewRef", made, w.null)
        added = f.call("PyList_Append", "i32", kids, kid)
        w.drop(kid)
        w.need(added.compare("eq", 0), "failed")

    def _cell_of(self, parent: Value) -> Value:
        """The cell of a storage that had none."""
        w = self.w
        cell = self.new("PyObject_CallNoArgs", w.env("cell"))
        w.drop(w.none)
        w.put(parent, "_cell", cell, owned=True)
        return cell

    def _created(self, made: Value, parent: Value, first: Value, creation: str) -> None:
        """Views that may not be written to know why."""
        f, w = self.f, self.w
        yes, no, done = f.label("recorded"), f.label("unrecorded"), f.label("created")
        f.branch(self.grad, yes, no)
        f.start(no)
        self.set(made, "_creation", w.env("no_grad"))
        f.goto(done)
        f.start(yes)
        if creation:
            self.set(made, "_creation", w.env(creation))
        else:                                           # a root's own is the class's: nothing
            inherit = f.label("inherit")
            f.branch(first, done, inherit)
            f.start(inherit)
            self.set(made, "_creation", self.w.got(parent, "_creation", "failed"))
        f.goto(done)
        f.start(done)

    def _by_function(self, made: Value, parent: Value, number: Value) -> None:
        f, w = self.f, self.w
        for k, v in enumerate((made, parent, self.op, self.attrs, number, self.state)):
            f.store(v, f.at(self.six, "ptr", k))
        tied = f.call("PyObject_Vectorcall", "ptr", w.env("make_view"), self.six, f.i64(6), w.null)
        w.need(w.differs(tied, w.null), "failed")
        w.drop(tied)
