"""Small arrays read from, written to, and added to, at places that index arrays name: without
NumPy's loops over axes, and each index is checked where it is read.

    pick(x, index, dim, size, along, wraps)              x.take(index, dim), take_along_axis
    add(out, index, values, dim, size, along, wraps)     the transpose: adds to what `out` holds
    put(out, index, values, dim, size, along, wraps)     writes there, in order; a single value
                                                         goes to all places
    within(index, size)                                  True where all of an index is in [0, size)
    locate(index, size, index, size, ...)                one position for each place on several axes

They take C-contiguous arrays, int64 indices and, in `size`, the bytes of an element; `add` knows
float32 (4) and float64 (8). `along` 1: the index has all axes of the operand; 0: its axes come in
the place of `dim`. `wraps` 1: negative indices count from the end, as they do in `locate`. None
comes back for what is not their business: other arrays, large ones, an index out of range.
"""
from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from adjoint.kernels import builtin
from adjoint.kernels.ir import Code, Value
from adjoint.kernels.objects_ir import ELEMENTS, Writer, declare

MOST = 1 << 14               # elements of the result, from which NumPy's way costs little beside it
_AXES = 64
_FLAGS, WRITEABLE = builtin.CONTIGUOUS | builtin.ALIGNED, 0x0400       # of NumPy's array flags
ARRAY, INT64, NEW, NONE, TRUE = range(5)     # words of `self`


def _nothing(*operands: Any) -> None:
    """Where nothing can be generated."""


@functools.cache
def function(name: str) -> Callable[..., Any]:
    """One of the five functions.

    >>> pick = function("pick")
    >>> got = pick(np.arange(6.0).reshape(3, 2), np.array([2, -1]), 0, 8, 0, 1)
    >>> got is None or got.tolist() == [[4.0, 5.0], [4.0, 5.0]]
    True
    """
    kind = next(k for k in (_Pick, _Add, _Put, _Within, _Locate) if k.name == name)
    made = builtin.generated("places " + name, partial(_text, kind))
    if made is None:
        return _nothing
    module, new = made
    own = struct.pack("5q", id(np.ndarray), id(np.dtype(np.int64)), new, id(None), id(True))
    return builtin.make(name, module.address(name), own)


def _text(kind: type[_Places], offsets: Mapping[str, int]) -> str:
    """The module of one of them: a program seldom uses all."""
    code = Code()
    declare(code, ())
    code.declare("elements", ELEMENTS.format(**offsets))
    code.declare("memcpy", "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    kind(code, offsets).emit()
    return code.text()


class _Places:
    """A function under construction. The block "other" returns None, "failed" NULL."""

    name = ""
    least = 6                # operands

    def __init__(self, code: Code, offsets: Mapping[str, int]) -> None:
        f = self.f = code.function(self.name, [("ptr", "self"), ("ptr", "args"), ("i64", "count")],
                                   returns="ptr")
        self.w, self.at = Writer(f, offsets, ()), offsets
        words = f.at(f.args[0], "i8", offsets["bytes"])
        self.array_type, self.int64, self.maker, self.none = (
            f.load(f.at(words, "i64", k), "ptr") for k in (ARRAY, INT64, NEW, NONE))
        self.shape = f.emit("ptr", f"alloca [{_AXES} x i64], align 16")
        self.axes = f.emit("ptr", "alloca i64, align 8")
        self.w.need(f.args[2].compare("sge", self.least), "other")

    def emit(self) -> None:
        f, w = self.f, self.w
        self.body()
        f.start("other")
        w.hold(self.none)
        f.ret(self.none)
        f.start("failed")
        f.ret(w.null)

    def body(self) -> None:
        """What the function does."""
        raise NotImplementedError

    # -- arguments --------------------------------------------------------------------------
    def argument(self, i: int | Value) -> Value:
        return self.f.load(self.f.at(self.f.args[1], "ptr", i), "ptr")

    def number(self, i: int | Value) -> Value:
        return self.f.call("PyLong_AsLongLong", "i64", self.argument(i))

    def array(self, i: int | Value) -> Value:
        """An argument that is a contiguous array, else "other"."""
        f, w = self.f, self.w
        array = self.argument(i)
        w.need(w.has(array, "type", self.array_type), "other")
        flags = f.load(f.at(array, "i8", self.at["flags"]), "i32") & _FLAGS
        w.need(f.emit("i1", f"icmp eq i32 {flags.ref}, {_FLAGS}"), "other")
        return array

    def index(self, i: int | Value) -> Value:
        """An argument that is a contiguous array of positions."""
        array = self.array(i)
        self.w.need(self.w.has(array, "descr", self.int64), "other")
        return array

    def few(self, n: Value) -> None:
        """Go on where there are some elements, and not many."""
        self.w.need(n.compare("sge", 1) & n.compare("sle", MOST), "other")

    # -- loops ------------------------------------------------------------------------------
    def times(self, n: Value, body: Callable[[Value], None]) -> None:
        """`body(i)` for i below n."""
        def one(i: Value, _: list[Value]) -> list[Value]:
            body(i)
            return []
        self.f.loop(self.f.i64(0), n, 1, [], one)

    def product(self, dims: Value, lo: Value, hi: Value) -> Value:
        """How many elements axes lo to hi have."""
        f = self.f
        return f.loop(lo, hi, 1, [f.i64(1)],
                      lambda k, n: [n[0] * f.load(f.at(dims, "i64", k), "i64")])[0]

    def add_axes(self, dims: Value, lo: Value, hi: Value) -> None:
        """Axes lo to hi come next in the shape of the result."""
        f = self.f

        def one(k: Value) -> None:
            n = f.load(self.axes, "i64")
            f.store(f.load(f.at(dims, "i64", lo + k), "i64"), f.at(self.shape, "i64", n))
            f.store(n + 1, self.axes)
        self.times(f.emit("i64", f"sub i64 {hi.ref}, {lo.ref}"), one)

    def made(self, descr: Value) -> Value:
        """An array of the shape put together; its elements are not set."""
        f, w = self.f, self.w
        rank = f.cast("trunc", f.load(self.axes, "i64"), "i32")
        w.hold(descr)
        made = f.emit("ptr", f"call ptr {self.maker.ref}(ptr {self.array_type.ref}, "
                             f"ptr {descr.ref}, i32 {rank.ref}, ptr {self.shape.ref}, ptr null, "
                             "ptr null, i32 0, ptr null)")
        w.need(w.differs(made, w.null), "failed")
        return made

    def drop_to_other(self, made: Value, label: str) -> None:
        """The block `label`: give the result back, and let others do it."""
        self.f.start(label)
        self.w.drop(made)
        self.f.goto("other")

    def checked(self, place: Value, n: Value, wraps: Value, otherwise: str) -> Value:
        """The index at `place`, below n; where it wraps, negative ones count from the end."""
        f = self.f
        k = f.load(place, "i64")
        k = k + f.select(k.compare("slt", 0), n * wraps, f.i64(0))
        self.w.need(f.emit("i1", f"icmp ult i64 {k.ref}, {n.ref}"), otherwise)
        return k


class _Along(_Places):
    """What `pick` and `add` share: the operand's axes before `dim`, `dim`, and those after it;
    blocks of elements that move together."""

    def geometry(self, x: Value, index: Value, dim: Value, along: Value) -> None:
        f, w = self.f, self.w
        rank = w.rank(x)
        w.need(dim.compare("sge", 0) & f.emit("i1", f"icmp slt i64 {dim.ref}, {rank.ref}"), "other")
        dims = w.field(x, "dims")
        self.before = self.product(dims, f.i64(0), dim)
        self.n = f.load(f.at(dims, "i64", dim), "i64")
        inner = self.product(dims, dim + 1, rank)
        self.along = along.compare("ne", 0)
        self.block = f.select(self.along, f.i64(1), inner)       # elements that move together
        self.lanes = f.select(self.along, inner, f.i64(1))       # blocks with an index of their own
        self.whole = f.select(self.along, f.i64(1), f.i64(0))
        idims, irank = w.field(index, "dims"), w.rank(index)
        w.when(self.along, lambda: self._alike(dims, rank, idims, irank, dim))
        self.m = w.either(self.along, lambda: f.load(f.at(idims, "i64", dim), "i64"),
                          lambda: self.product(idims, f.i64(0), irank))
        self.few(self.before * self.m * inner)
        w.need((rank + irank).compare("slt", _AXES), "other")
        f.store(f.i64(0), self.axes)
        w.when(self.whole.compare("eq", 0), lambda: self.add_axes(dims, f.i64(0), dim))
        self.add_axes(idims, f.i64(0), irank)
        w.when(self.whole.compare("eq", 0), lambda: self.add_axes(dims, dim + 1, rank))

    def _alike(self, dims: Value, rank: Value, idims: Value, irank: Value, dim: Value) -> None:
        """The index has the operand's axes, off `dim`."""
        f, w = self.f, self.w
        w.need(f.emit("i1", f"icmp eq i64 {rank.ref}, {irank.ref}"), "other")

        def one(k: Value) -> None:
            a, b = (f.load(f.at(d, "i64", k), "i64") for d in (dims, idims))
            same = f.emit("i1", f"icmp eq i64 {a.ref}, {b.ref}")
            w.need(same | f.emit("i1", f"icmp eq i64 {k.ref}, {dim.ref}"), "other")
        self.times(rank, one)

    def blocks(self, index: Value, wraps: Value, bad: str,
               body: Callable[[Value, Value], None]) -> None:
        """`body(place in the operand, place in the picked)`, in elements, for every block."""
        places = self.w.field(index, "data")
        f = self.f

        def lane(a: Value, j: Value, c: Value) -> None:
            row = a * self.m + j
            at = f.select(self.along, row * self.lanes + c, j)
            k = self.checked(f.at(places, "i64", at), self.n, wraps, bad)
            body(((a * self.n + k) * self.lanes + c) * self.block,
                 (row * self.lanes + c) * self.block)
        self.times(self.before, lambda a: self.times(self.m, lambda j: self.times(
            self.lanes, lambda c: lane(a, j, c))))


class _Pick(_Along):
    name = "pick"

    def body(self) -> None:
        f, w = self.f, self.w
        x, index = self.array(0), self.index(1)
        dim, size, along, wraps = (self.number(k) for k in range(2, 6))
        self.geometry(x, index, dim, along)
        made = self.made(w.field(x, "descr"))
        source, target = w.field(x, "data"), w.field(made, "data")
        width = self.block * size
        bad, done = f.label("bad"), f.label("picked")
        four, eight, rest = (f.label(n) for n in ("four", "eight", "rest"))
        f.do(f"switch i64 {width.ref}, label %{rest} [i64 4, label %{four} "
             f"i64 8, label %{eight}]")
        for label, move in ((four, "i32"), (eight, "i64"), (rest, "")):
            f.start(label)

            def one(a: Value, b: Value, move: str = move) -> None:
                here, there = f.at(source, "i8", a * size), f.at(target, "i8", b * size)
                if move:
                    f.store(f.load(here, move, align=1), there, align=1)
                else:
                    f.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {there.ref}, ptr {here.ref}, "
                         f"i64 {width.ref}, i1 false)")
            self.blocks(index, wraps, bad, one)
            f.goto(done)
        f.start(done)
        f.ret(made)
        self.drop_to_other(made, bad)


class _Store(_Along):
    """What `add` and `put` share: everything but what is done with an element."""

    least = 7

    def body(self) -> None:
        f, w = self.f, self.w
        out, index, values = self.array(0), self.index(1), self.array(2)
        dim, size, along, wraps = (self.number(k) for k in range(3, 7))
        w.need(w.has(values, "descr", w.field(out, "descr")), "other")
        self.geometry(out, index, dim, along)
        n = f.call("elements", "i64", values)
        total = self.before * self.m * self.lanes * self.block
        w.need(self.enough(n, total), "other")
        target, source = w.field(out, "data"), w.field(values, "data")
        self._apart(target, f.call("elements", "i64", out) * size, source, n * size)
        flags = f.load(f.at(out, "i8", self.at["flags"]), "i32") & WRITEABLE
        w.need(flags.compare("ne", 0), "other")
        self.blocks(index, wraps, "other", lambda a, b: None)     # no index is out of range
        done = f.label("stored")
        self.store(target, source, size, done,
                   lambda one: self.blocks(index, wraps, "other", one))
        f.start(done)
        w.hold(out)
        f.ret(out)

    def enough(self, n: Value, total: Value) -> Value:
        """Whether there is a value for each place."""
        return self.f.emit("i1", f"icmp eq i64 {n.ref}, {total.ref}")

    def store(self, target: Value, source: Value, size: Value, done: str,
              each: Callable[[Callable[[Value, Value], None]], None]) -> None:
        """`each(body)` calls for every block; then to the block `done`."""
        raise NotImplementedError

    def _apart(self, a: Value, a_bytes: Value, b: Value, b_bytes: Value) -> None:
        """Go on where the two do not share memory."""
        f = self.f
        first, second = (f.cast("ptrtoint", p, "i64") for p in (a, b))
        below = f.emit("i1", f"icmp ule i64 {(first + a_bytes).ref}, {second.ref}")
        above = f.emit("i1", f"icmp ule i64 {(second + b_bytes).ref}, {first.ref}")
        self.w.need(below | above, "other")


class _Add(_Store):
    name = "add"

    def store(self, target: Value, source: Value, size: Value, done: str,
              each: Callable[[Callable[[Value, Value], None]], None]) -> None:
        f = self.f
        for bits, ty in ((4, "float"), (8, "double")):
            yes, no = f.label(ty), f.label("not_" + ty)
            f.branch(size.compare("eq", bits), yes, no)
            f.start(yes)
            each(partial(self._sum, target, source, ty))
            f.goto(done)
            f.start(no)
        f.goto("other")

    def _sum(self, target: Value, source: Value, ty: str, a: Value, b: Value) -> None:
        """Add a block at place b of the values to the one at place a of the result."""
        f = self.f

        def one(k: Value) -> None:
            here = f.at(target, ty, a + k)
            f.store(f.load(here, ty) + f.load(f.at(source, ty, b + k), ty), here)
        self.times(self.block, one)


class _Put(_Store):
    name = "put"

    def enough(self, n: Value, total: Value) -> Value:
        single = n.compare("eq", 1)
        self.step = self.f.select(single, self.f.i64(0), self.f.i64(1))
        return single | super().enough(n, total)

    def store(self, target: Value, source: Value, size: Value, done: str,
              each: Callable[[Callable[[Value, Value], None]], None]) -> None:
        f = self.f
        four, eight, rest = (f.label(n) for n in ("four", "eight", "rest"))
        f.do(f"switch i64 {size.ref}, label %{rest} [i64 4, label %{four} i64 8, label %{eight}]")
        for label, move in ((four, "i32"), (eight, "i64"), (rest, "")):
            f.start(label)
            each(partial(self._move, target, source, size, move))
            f.goto(done)

    def _move(self, target: Value, source: Value, size: Value, move: str, a: Value, b: Value
              ) -> None:
        """A block at place b of the values to place a of the result; `move`: the type of integers
        of an element's size."""
        f = self.f

        def one(k: Value) -> None:
            here = f.at(target, "i8", (a + k) * size)
            there = f.at(source, "i8", (b + k) * self.step * size)
            if move:
                f.store(f.load(there, move, align=1), here, align=1)
            else:
                f.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {here.ref}, ptr {there.ref}, "
                     f"i64 {size.ref}, i1 false)")
        self.times(self.block, one)


class _Within(_Places):
    name = "within"
    least = 2

    def body(self) -> None:
        f, w = self.f, self.w
        index, size = self.index(0), self.number(1)
        n = f.call("elements", "i64", index)
        self.few(n)
        data = w.field(index, "data")

        def one(i: Value) -> None:
            self.checked(f.at(data, "i64", i), size, f.i64(0), "other")
        self.times(n, one)
        yes = f.load(f.at(f.at(f.args[0], "i8", self.at["bytes"]), "i64", TRUE), "ptr")
        w.hold(yes)
        f.ret(yes)


class _Locate(_Places):
    name = "locate"
    least = 2

    def body(self) -> None:
        f, w = self.f, self.w
        first = self.index(0)
        self.few(f.call("elements", "i64", first))
        f.store(f.i64(0), self.axes)
        self.add_axes(w.field(first, "dims"), f.i64(0), w.rank(first))
        made = self.made(self.int64)
        bad = f.label("bad")
        target = w.field(made, "data")
        n = f.call("elements", "i64", first)
        self.times(n, lambda i: f.store(f.i64(0), f.at(target, "i64", i)))
        self.times(f.args[2] / 2, lambda k: self._axis(k, first, target, n, bad))
        f.ret(made)
        self.drop_to_other(made, bad)

    def _axis(self, k: Value, first: Value, target: Value, n: Value, bad: str) -> None:
        """Positions so far, and the place on the next axis."""
        f, w = self.f, self.w
        index, size = self.argument(k * 2), self.number(k * 2 + 1)
        same = w.has(index, "type", self.array_type)
        w.need(same, bad)
        flags = f.load(f.at(index, "i8", self.at["flags"]), "i32") & _FLAGS
        w.need(f.emit("i1", f"icmp eq i32 {flags.ref}, {_FLAGS}"), bad)
        w.need(w.has(index, "descr", self.int64), bad)
        rank, want = w.rank(index), w.rank(first)
        w.need(f.emit("i1", f"icmp eq i64 {rank.ref}, {want.ref}"), bad)
        dims, known = w.field(index, "dims"), w.field(first, "dims")

        def alike(d: Value) -> None:
            a, b = (f.load(f.at(x, "i64", d), "i64") for x in (dims, known))
            w.need(f.emit("i1", f"icmp eq i64 {a.ref}, {b.ref}"), bad)
        self.times(rank, alike)
        source = w.field(index, "data")

        def one(i: Value) -> None:
            at = f.at(target, "i64", i)
            here = self.checked(f.at(source, "i64", i), size, f.i64(1), bad)
            f.store(f.load(at, "i64") * size + here, at)
        self.times(n, one)
