"""What the machine code of `bind` does with the results of an op: one, or several."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from adjoint.kernels.ir import PLAIN, Code, Value
from adjoint.kernels.nodes_ir import Maker

ENV = ("port", "ports")
MOST = 256               # outputs


class Outputs(Maker):
    """A function that makes tensors of an op's results. What emits it sets `many`, a variable for
    the tuple of several tensors."""

    many: Value

    def __init__(self, code: Code, offsets: Mapping[str, int], env: Sequence[str],
                 name: str) -> None:
        super().__init__(code, offsets, env, name, PLAIN)
        for text in ("ptr @PySequence_List(ptr)", "ptr @PyTuple_GetSlice(ptr, i64, i64)"):
            code.declare(text.split("@")[1].split("(")[0], f"declare {text}")

    def unrecorded(self, made: Value, cell: Value) -> None:
        """Fill a tensor without history."""
        w = self.w
        for name, value in (("_rg", w.env("false")), ("_edge", w.none), ("_cell", cell)):
            w.put(made, name, value)

    def cell_or_none(self, made: Value) -> None:
        """A tensor whose cell was not needed gets None."""
        w = self.w
        w.when(w.same(w.field(made, "_cell"), w.null), lambda: w.put(made, "_cell", w.none))

    # -- several outputs --------------------------------------------------------------------
    def tensors_of(self, outs: Value, visible: Value) -> None:
        """`many`: a tuple of tensors with the visible ones of these arrays, otherwise empty."""
        f, w = self.f, self.w

        w.need(visible.compare("sle", MOST), "other")
        many = self.new("PyTuple_New", visible)
        f.store(many, self.many)

        def one(i: Value, _: list[Value]) -> list[Value]:
            made = self.alloc(w.env("tensor"), self.made)
            f.store(w.null, self.made)
            w.fill(many, i, made)
            w.put(made, "array", w.item(outs, i))
            return []
        f.loop(f.i64(0), visible, 1, [], one)

    def arrays_all(self, outs: Value, total: Value) -> None:
        """Go on where all of these are arrays."""
        f, w = self.f, self.w

        def plain(i: Value, _: list[Value]) -> list[Value]:
            w.need(w.has(w.item(outs, i), "type", w.env("array_type")), "other")
            return []
        f.loop(f.i64(0), total, 1, [], plain)

    def each(self, visible: Value, body: Callable[[Value, Value], None]) -> None:
        """`body(index, tensor)` for all of `many`."""
        f = self.f
        many = f.load(self.many, "ptr")

        def one(i: Value, _: list[Value]) -> list[Value]:
            body(i, self.w.item(many, i))
            return []
        f.loop(f.i64(0), visible, 1, [], one)

    def shapes(self, node: Value, visible: Value) -> None:
        """Shapes, dtypes and the number of outputs, for a node."""
        w = self.w
        shapes, dtypes = self.new("PyTuple_New", visible), self.new("PyTuple_New", visible)
        w.put(node, "shape", shapes, owned=True)
        w.put(node, "dtype", dtypes, owned=True)

        def one(i: Value, t: Value) -> None:
            array = w.field(t, "array")
            w.fill(shapes, i,
                   self.new("PyObject_GetAttr", array, w.env("shape_name")))
            descr = w.field(array, "descr")
            w.hold(descr)
            w.fill(dtypes, i, descr)
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
            w.item(f.load(self.many, "ptr"), at), "_cell", cell))
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
