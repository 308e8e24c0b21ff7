"""The machine code of `arrange`: the nodes that a backward pass reaches, the newest first.

    arrange(order, ends, roots) -> None

does what `_reached` (`autograd/engine.py`) does: `order`, an empty list, gets every node that the
list `roots` leads to, in reverse order of recording, and the dict `ends` for each leaf the node
recorded first that feeds it. A heap holds what was met and not visited yet: a node that several
edges lead to leaves it several times in a row, so that nothing has to be looked up or sorted.
"""
from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from adjoint.kernels.ir import Code, Value
from adjoint.kernels.objects_ir import Writer, declare
from adjoint.kernels.rules_ir import ENV

ORDER, ENDS, ROOTS = range(3)

# A heap: pairs (number, object), the largest number first; their memory, how many, room for.
HEAP = """
declare ptr @PyMem_RawRealloc(ptr, i64)
declare void @PyMem_RawFree(ptr)
declare ptr @PyErr_NoMemory()

define internal i32 @heap_push(ptr %heap, i64 %key, ptr %thing) {
entry:
  %psize = getelementptr i64, ptr %heap, i64 1
  %proom = getelementptr i64, ptr %heap, i64 2
  %size = load i64, ptr %psize
  %room = load i64, ptr %proom
  %full = icmp eq i64 %size, %room
  br i1 %full, label %grow, label %add
grow:
  %double = shl i64 %room, 1
  %room1 = add i64 %double, 64
  %bytes = shl i64 %room1, 4
  %old = load ptr, ptr %heap
  %new = call ptr @PyMem_RawRealloc(ptr %old, i64 %bytes)
  %none = icmp eq ptr %new, null
  br i1 %none, label %failed, label %grown
grown:
  store ptr %new, ptr %heap
  store i64 %room1, ptr %proom
  br label %add
add:
  %data = load ptr, ptr %heap
  %size1 = add i64 %size, 1
  store i64 %size1, ptr %psize
  br label %up
up:
  %i = phi i64 [%size, %add], [%parent, %lift]
  %root = icmp eq i64 %i, 0
  br i1 %root, label %put, label %compare
compare:
  %i1 = sub i64 %i, 1
  %parent = lshr i64 %i1, 1
  %pparent = getelementptr {i64, ptr}, ptr %data, i64 %parent
  %above = load {i64, ptr}, ptr %pparent
  %key1 = extractvalue {i64, ptr} %above, 0
  %less = icmp slt i64 %key1, %key
  br i1 %less, label %lift, label %put
lift:
  %pi = getelementptr {i64, ptr}, ptr %data, i64 %i
  store {i64, ptr} %above, ptr %pi
  br label %up
put:
  %at = getelementptr {i64, ptr}, ptr %data, i64 %i
  %thing1 = getelementptr i64, ptr %at, i64 1
  store i64 %key, ptr %at
  store ptr %thing, ptr %thing1
  ret i32 0
failed:
  %error = call ptr @PyErr_NoMemory()
  ret i32 -1
}

define internal ptr @heap_pop(ptr %heap) {
entry:
  %psize = getelementptr i64, ptr %heap, i64 1
  %size = load i64, ptr %psize
  %size1 = sub i64 %size, 1
  store i64 %size1, ptr %psize
  %data = load ptr, ptr %heap
  %ptop = getelementptr i64, ptr %data, i64 1
  %top = load ptr, ptr %ptop
  %plast = getelementptr {i64, ptr}, ptr %data, i64 %size1
  %last = load {i64, ptr}, ptr %plast
  %key = extractvalue {i64, ptr} %last, 0
  br label %down
down:
  %i = phi i64 [0, %entry], [%child, %lift]
  %twice = shl i64 %i, 1
  %left = add i64 %twice, 1
  %right = add i64 %twice, 2
  %leaf = icmp sge i64 %left, %size1
  br i1 %leaf, label %put, label %children
children:
  %pleft = getelementptr {i64, ptr}, ptr %data, i64 %left
  %keyl = load i64, ptr %pleft
  %pright = getelementptr {i64, ptr}, ptr %data, i64 %right
  %two = icmp slt i64 %right, %size1
  %pr = select i1 %two, ptr %pright, ptr %pleft
  %keyr = load i64, ptr %pr
  %greater = icmp sgt i64 %keyr, %keyl
  %child = select i1 %greater, i64 %right, i64 %left
  %keyc = select i1 %greater, i64 %keyr, i64 %keyl
  %below = icmp sgt i64 %keyc, %key
  br i1 %below, label %lift, label %put
lift:
  %pchild = getelementptr {i64, ptr}, ptr %data, i64 %child
  %c = load {i64, ptr}, ptr %pchild
  %pi = getelementptr {i64, ptr}, ptr %data, i64 %i
  store {i64, ptr} %c, ptr %pi
  br label %down
put:
  %at = getelementptr {i64, ptr}, ptr %data, i64 %i
  store {i64, ptr} %last, ptr %at
  ret ptr %top
}
"""


def text(offsets: Mapping[str, int]) -> str:
    """The IR."""
    code = Code()
    declare(code, ENV)
    Arrange(code, offsets).emit()
    return code.text() + HEAP


class Arrange:
    """The function. Its block "failed" returns NULL; both ends give back what is held."""

    def __init__(self, code: Code, offsets: Mapping[str, int]) -> None:
        code.declare("PyList_Append", "declare i32 @PyList_Append(ptr, ptr)")
        self.f = code.function("arrange", [("ptr", "self"), ("ptr", "args"), ("i64", "count")],
                               returns="ptr")
        self.w = Writer(self.f, offsets, ENV)

    def emit(self) -> None:
        """The code."""
        f, w = self.f, self.w
        self.args = [f.load(f.at(f.args[1], "ptr", i), "ptr") for i in range(3)]
        self.edges, self.before = (f.emit("ptr", "alloca ptr, align 8") for _ in range(2))
        f.store(w.null, self.edges)
        f.store(w.null, self.before)
        self.heap = f.emit("ptr", "alloca [3 x i64], align 8")
        for k in range(3):
            f.store(f.i64(0), f.at(self.heap, "i64", k))

        def root(i: Value, _: list[Value]) -> list[Value]:
            self._push(f.call("PyList_GetItem", "ptr", self.args[ROOTS], i))
            return []
        f.loop(f.i64(0), f.call("PyList_Size", "i64", self.args[ROOTS]), 1, [], root)
        f.goto("head")
        f.start("head")
        w.need(f.load(f.at(self.heap, "i64", 1), "i64").compare("sgt", 0), "stop")
        node = f.call("heap_pop", "ptr", self.heap)
        w.need(w.differs(node, f.load(self.before, "ptr")), "head")
        f.store(node, self.before)
        self._good(f.call("PyList_Append", "i32", self.args[ORDER], node))
        self._node(node)
        f.goto("head")
        f.start("stop")
        f.call("PyMem_RawFree", "void", f.load(self.heap, "ptr"))
        w.hold(w.none)
        f.ret(w.none)
        f.start("failed")
        held = f.load(self.edges, "ptr")
        w.when(w.differs(held, w.null), lambda: w.drop(held))
        f.call("PyMem_RawFree", "void", f.load(self.heap, "ptr"))
        f.ret(w.null)

    def _node(self, node: Value) -> None:
        """Go along the edges of a node."""
        f, w = self.f, self.w
        parent = w.field(w.field(node, "type"), "parent")
        pair, other, done = f.label("pair"), f.label("other"), f.label("reached")
        f.branch(w.same(parent, w.env("pair_node")), pair, other)
        f.start(pair)
        for slot in ("e0", "e1"):
            edge = w.field(node, slot)
            w.when(w.differs(edge, w.null) & w.differs(edge, w.none),
                   partial(self._edge, node, edge))
        f.goto(done)
        f.start(other)
        given = f.call("PyObject_GetAttr", "ptr", node, w.env("edges"))
        w.need(w.differs(given, w.null), "failed")
        edges = f.call("PySequence_Tuple", "ptr", given)
        w.drop(given)
        w.need(w.differs(edges, w.null), "failed")
        f.store(edges, self.edges)

        def one(i: Value, _: list[Value]) -> list[Value]:
            edge = w.item(edges, i)
            w.when(w.differs(edge, w.none), lambda: self._edge(node, edge))
            return []
        f.loop(f.i64(0), w.length(edges), 1, [], one)
        f.store(w.null, self.edges)
        w.drop(edges)
        f.goto(done)
        f.start(done)

    def _edge(self, node: Value, edge: Value) -> None:
        """Meet what an edge leads to: a leaf, which the oldest node so far feeds, or a node."""
        f, w = self.f, self.w
        leaf, inner, done = f.label("leaf"), f.label("inner"), f.label("edge")
        f.branch(w.has(edge, "type", w.env("accumulate")), leaf, inner)
        f.start(leaf)
        self._good(f.call("PyDict_SetItem", "i32", self.args[ENDS], edge, node))
        f.goto(done)
        f.start(inner)
        port = w.has(edge, "type", w.env("port"))
        self._push(w.either(port, lambda: w.field(edge, "port.node"), lambda: edge))
        f.goto(done)
        f.start(done)

    def _push(self, node: Value) -> None:
        f = self.f
        when = f.call("PyLong_AsLongLong", "i64", self.w.field(node, "seq"))
        self._good(f.call("heap_push", "i32", self.heap, when, node))

    def _good(self, status: Value) -> None:
        self.w.need(status.compare("sge", 0), "failed")
