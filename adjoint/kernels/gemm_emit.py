"""A small writer of LLVM IR text, for kernels with several nested loops.

Values are strings (`%12`, `7`); every method appends lines and returns the name of its result.
Accumulators live in stack slots, which LLVM promotes to registers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

FLOATS = {"float32": "float", "float64": "double", "float16": "half", "bfloat16": "i16"}
BYTES = {"float": 4, "double": 8, "half": 2, "i16": 2, "i8": 1}


@dataclass(frozen=True, slots=True)
class Machine:
    """What the generators have to know of a CPU: vector width in bits, and whether masks are cheap.
    """

    bits: int
    masks: bool

    def lanes(self, kind: str) -> int:
        """Elements of an accumulator type ("float" or "double") in one vector."""
        return self.bits // (8 * BYTES[kind])


@dataclass(frozen=True, slots=True)
class Part:
    """Functions that several kernels call: a module of its own, compiled once for all of them.

    `key` determines what `write` writes, on one CPU.
    """

    key: tuple[str, ...]
    write: Callable[[Emit], None] = field(compare=False)

    def text(self, machine: Machine) -> str:
        """IR text of the module; its symbols are all of its functions."""
        e = Emit(exported=True)
        self.write(e)
        return e.text(machine)


class Emit:
    """Collects the body of one module: functions, blocks, instructions.

    With `exported` its functions can be called by other modules, none is internal.
    """

    def __init__(self, exported: bool = False) -> None:
        self.exported = exported
        self.lines: list[str] = []
        self.declared: set[str] = set()
        self.heads: list[str] = []  # of the functions written so far
        self._n = 0
        self._slots: list[str] = []
        self._start = 0

    def fresh(self, hint: str = "t") -> str:
        """A new local name."""
        self._n += 1
        return f"%{hint}{self._n}"

    def raw(self, line: str) -> None:
        """Append a line as it is."""
        self.lines.append(line)

    def op(self, text: str) -> str:
        """Append `name = text` and return the name."""
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return name

    def declare(self, text: str) -> None:
        """Declare an external function once (`"void @f(i64)"`)."""
        self.declared.add(text)

    @contextmanager
    def function(self, head: str, attrs: str = "#0") -> Iterator[None]:
        """A function; stack slots asked for inside are placed in its first block."""
        public = head.removeprefix("internal ")
        self.heads.append(public)
        self.raw(f"define {public if self.exported else head} {attrs} {{")
        self.raw("entry:")
        self._slots, self._start = [], len(self.lines)
        yield
        self.lines[self._start : self._start] = self._slots
        self.raw("}")

    def slot(self, kind: str, init: str | None = None, align: int = 8) -> str:
        """A stack slot of a type, set to `init` here if given."""
        name = self.fresh("s")
        self._slots.append(f"  {name} = alloca {kind}, align {align}")
        if init is not None:
            self.store(kind, init, name)
        return name

    def load(self, kind: str, pointer: str, align: int | None = None) -> str:
        """Load a value of a type."""
        return self.op(f"load {kind}, ptr {pointer}" + (f", align {align}" if align else ""))

    def store(self, kind: str, value: str, pointer: str, align: int | None = None) -> None:
        """Store a value of a type."""
        self.raw(f"  store {kind} {value}, ptr {pointer}" + (f", align {align}" if align else ""))

    def at(self, pointer: str, index: str | int, kind: str = "i8") -> str:
        """Address of element `index` of type `kind` after `pointer` (bytes unless said)."""
        return self.op(f"getelementptr {kind}, ptr {pointer}, i64 {index}")

    def add(self, a: str | int, b: str | int) -> str:
        """64-bit sum."""
        return self.op(f"add i64 {a}, {b}")

    def sub(self, a: str | int, b: str | int) -> str:
        """64-bit difference."""
        return self.op(f"sub i64 {a}, {b}")

    def mul(self, a: str | int, b: str | int) -> str:
        """64-bit product."""
        return self.op(f"mul i64 {a}, {b}")

    def div(self, a: str | int, b: str | int) -> str:
        """64-bit quotient of non-negative numbers."""
        return self.op(f"udiv i64 {a}, {b}")

    def rem(self, a: str | int, b: str | int) -> str:
        """64-bit remainder of non-negative numbers."""
        return self.op(f"urem i64 {a}, {b}")

    def min(self, a: str | int, b: str | int) -> str:
        """Smaller of two signed 64-bit numbers."""
        less = self.cmp("slt", a, b)
        return self.op(f"select i1 {less}, i64 {a}, i64 {b}")

    def cmp(self, how: str, a: str | int, b: str | int) -> str:
        """64-bit comparison (`slt`, `eq`, ...)."""
        return self.op(f"icmp {how} i64 {a}, {b}")

    def both(self, a: str, b: str) -> str:
        """Logical and of two conditions."""
        return self.op(f"and i1 {a}, {b}")

    def splat(self, kind: str, lanes: int, value: str) -> str:
        """A vector with `value` in every lane."""
        one = self.op(f"insertelement <{lanes} x {kind}> poison, {kind} {value}, i32 0")
        zero = f"<{lanes} x i32> zeroinitializer"
        return self.op(f"shufflevector <{lanes} x {kind}> {one}, <{lanes} x {kind}> poison, {zero}")

    def call(self, kind: str, name: str, *args: str) -> str:
        """Call a function that returns a value; args are `"type value"`."""
        return self.op(f"call {kind} @{name}({', '.join(args)})")

    def run(self, name: str, *args: str) -> None:
        """Call a void function."""
        self.raw(f"  call void @{name}({', '.join(args)})")

    def label(self, hint: str) -> str:
        """A new block name (placed by `place`)."""
        self._n += 1
        return f"{hint}{self._n}"

    def place(self, label: str, jump: bool = True) -> None:
        """Begin a block; `jump` falls into it from the current one."""
        if jump:
            self.raw(f"  br label %{label}")
        self.raw(f"{label}:")

    def goto(self, label: str) -> None:
        """Jump."""
        self.raw(f"  br label %{label}")

    def branch(self, condition: str, yes: str, no: str) -> None:
        """Jump to one of two blocks."""
        self.raw(f"  br i1 {condition}, label %{yes}, label %{no}")

    @contextmanager
    def loop(self, start: str | int, stop: str | int, step: str | int = 1) -> Iterator[str]:
        """`for i in range(start, stop, step)`; yields the counter."""
        before, head, body = self.label("before"), self.label("head"), self.label("body")
        latch, end, following = self.label("latch"), self.label("end"), self.fresh("n")
        self.place(before)
        self.place(head)
        i = self.op(f"phi i64 [ {start}, %{before} ], [ {following}, %{latch} ]")
        self.branch(self.cmp("slt", i, stop), body, end)
        self.place(body, jump=False)
        yield i
        self.place(latch)
        self.raw(f"  {following} = add i64 {i}, {step}")
        self.goto(head)
        self.place(end, jump=False)

    def cond(
        self, condition: str, yes: Callable[[], None], no: Callable[[], None] | None = None
    ) -> None:
        """`if condition: yes() else: no()`."""
        a, b, end = self.label("then"), self.label("else"), self.label("fi")
        self.branch(condition, a, b if no else end)
        self.place(a, jump=False)
        yes()
        self.goto(end)
        if no:
            self.place(b, jump=False)
            no()
            self.goto(end)
        self.place(end, jump=False)

    def use(self, parts: Iterable[Part]) -> None:
        """Declare the functions of parts that this module is linked to."""
        for part in parts:
            own = Emit()
            part.write(own)
            self.declared.update(own.heads)

    def text(self, machine: Machine) -> str:
        """The whole module."""
        width = f'"prefer-vector-width"="{machine.bits}" "min-legal-vector-width"="{machine.bits}"'
        heads = [f"declare {d}" for d in sorted(self.declared)]
        tail = [
            f"attributes #0 = {{ nounwind {width} }}",
            f"attributes #1 = {{ nounwind noinline {width} }}",
            f"attributes #2 = {{ nounwind alwaysinline {width} }}",
            # runs once per task: quick to compile matters more than how fast it is
            f"attributes #3 = {{ nounwind noinline optnone {width} }}",
        ]
        return "\n".join(heads + self.lines + tail) + "\n"


def load_wide(
    e: Emit, src: str, acc: str, lanes: int, pointer: str, mask: str | None = None
) -> str:
    """Load `lanes` elements of type `src` and widen them to the accumulator type; off lanes are 0.
    """
    kind = f"<{lanes} x {src}>" if lanes > 1 else src
    if mask is None:
        raw = e.load(kind, pointer, BYTES[src])
    else:
        name = f"llvm.masked.load.v{lanes}{short(src)}.p0"
        e.declare(f"{kind} @{name}(ptr, i32, <{lanes} x i1>, {kind})")
        raw = e.call(
            kind,
            name,
            f"ptr {pointer}",
            f"i32 {BYTES[src]}",
            f"<{lanes} x i1> {mask}",
            f"{kind} zeroinitializer",
        )
    return widen(e, src, acc, lanes, raw)


def widen(e: Emit, src: str, acc: str, lanes: int, raw: str) -> str:
    """Convert loaded elements to the accumulator type.

    bfloat16 ("i16") is the top half of a float32; a boolean mask ("i8") becomes 0 or -inf.
    """
    if src == acc:
        return raw
    wide, kind = shaped(acc, lanes), shaped(src, lanes)
    if src == "i8":
        keep = e.op(f"icmp ne {kind} {raw}, {const('i8', lanes, 0)}")
        low = fconst("float", lanes, float("-inf"))
        return e.op(
            f"select {shaped('i1', lanes)} {keep}, {wide} {fconst(acc, lanes, 0.0)}, {wide} {low}"
        )
    if src == "half":
        return e.op(f"fpext {kind} {raw} to {wide}")
    bits = e.op(f"zext {kind} {raw} to {shaped('i32', lanes)}")
    moved = e.op(f"shl {shaped('i32', lanes)} {bits}, {const('i32', lanes, 16)}")
    return e.op(f"bitcast {shaped('i32', lanes)} {moved} to {wide}")


def narrow(e: Emit, dst: str, acc: str, lanes: int, value: str) -> str:
    """Convert accumulators to the output type; to bfloat16 rounding to nearest even, nan kept."""
    if dst == acc:
        return value
    wide, kind = shaped(acc, lanes), shaped(dst, lanes)
    if dst == "half":
        return e.op(f"fptrunc {wide} {value} to {kind}")
    i32 = shaped("i32", lanes)
    bits = e.op(f"bitcast {wide} {value} to {i32}")
    high = e.op(f"lshr {i32} {bits}, {const('i32', lanes, 16)}")
    odd = e.op(f"and {i32} {high}, {const('i32', lanes, 1)}")
    half = e.op(f"add {i32} {odd}, {const('i32', lanes, 32767)}")
    rounded = e.op(f"lshr {i32} {e.op(f'add {i32} {bits}, {half}')}, {const('i32', lanes, 16)}")
    quiet = e.op(f"or {i32} {high}, {const('i32', lanes, 64)}")
    isnan = e.op(f"fcmp uno {wide} {value}, {value}")
    picked = e.op(f"select {shaped('i1', lanes)} {isnan}, {i32} {quiet}, {i32} {rounded}")
    return e.op(f"trunc {i32} {picked} to {kind}")


def shaped(kind: str, lanes: int) -> str:
    """A vector type, or the scalar type for one lane."""
    return f"<{lanes} x {kind}>" if lanes > 1 else kind


def const(kind: str, lanes: int, value: int) -> str:
    """An integer constant in every lane."""
    if lanes == 1:
        return str(value)
    return "<" + ", ".join(f"{kind} {value}" for _ in range(lanes)) + ">"


def fconst(kind: str, lanes: int, value: float) -> str:
    """A floating constant in every lane, exact (LLVM writes both float types as doubles in hex)."""
    if kind == "float":
        value = struct.unpack("f", struct.pack("f", value))[0]
    text = "0x" + struct.pack(">d", value).hex().upper()
    if lanes == 1:
        return text
    return "<" + ", ".join(f"{kind} {text}" for _ in range(lanes)) + ">"


def short(kind: str) -> str:
    """LLVM's suffix of a type in intrinsic names."""
    return {"float": "f32", "double": "f64", "half": "f16", "i16": "i16", "i8": "i8", "i32": "i32"}[
        kind
    ]


def lane_mask(e: Emit, lanes: int, count: str) -> str:
    """Mask of the first `count` lanes (`count` may exceed `lanes` or be negative)."""
    low = e.min(count, lanes)
    less = e.cmp("slt", low, 0)
    low = e.op(f"select i1 {less}, i64 0, i64 {low}")
    narrow_count = e.op(f"trunc i64 {low} to i32")
    many = e.splat("i32", lanes, narrow_count)
    steps = "<" + ", ".join(f"i32 {i}" for i in range(lanes)) + ">"
    return e.op(f"icmp slt <{lanes} x i32> {steps}, {many}")


def store_masked(e: Emit, kind: str, lanes: int, value: str, pointer: str, mask: str) -> None:
    """Store the lanes that `mask` selects."""
    vec = f"<{lanes} x {kind}>"
    name = f"llvm.masked.store.v{lanes}{short(kind)}.p0"
    e.declare(f"void @{name}({vec}, ptr, i32, <{lanes} x i1>)")
    e.run(name, f"{vec} {value}", f"ptr {pointer}", f"i32 {BYTES[kind]}", f"<{lanes} x i1> {mask}")


def transpose_block(
    e: Emit,
    kind: str,
    lanes: int,
    row: Callable[[str], str],
    put: Callable[[str, str], None],
    groups: str | int,
    columns: str | int,
    free: str | None = None,
) -> None:
    """Transpose a block of `lanes` vectors: `row(i)` gives one, `put(j, column)` takes the first
    `columns` columns in order; where `free` holds, all of them in any order.

    Pieces of 128 bits are transposed first, then their elements in the large: a shuffle is one
    instruction on x86 so. Between the two steps the block lies on the stack: loops keep the code,
    and the time to compile it, small. Only the first `groups` pieces of each column are needed.
    """
    size = 16 // BYTES[kind]  # elements of a piece
    pieces, vec = lanes // size, f"<{lanes} x {kind}>"
    stage = e.slot(f"[{lanes * lanes} x {kind}]", None, 64)
    with e.loop(0, groups) as g:
        first = e.mul(g, size)
        block = _columns_of_pieces(e, vec, lanes, [row(e.add(first, i)) for i in range(size)])
        for i, value in enumerate(block):
            e.store(vec, value, e.at(stage, e.mul(e.add(first, i), lanes), kind), 64)
    with e.loop(0, size) as c:
        mine = e.at(stage, e.mul(c, lanes), kind)
        block = [e.load(vec, e.at(mine, q * size * lanes, kind), 64) for q in range(pieces)]
        turned = list(enumerate(_rows_of_pieces(e, vec, size, block)))

        def staged(mine: str = mine, turned: list[tuple[int, str]] = turned) -> None:
            for q, value in turned:
                e.store(vec, value, e.at(mine, q * size * lanes, kind), 64)

        def at_once(c: str = c, turned: list[tuple[int, str]] = turned) -> None:
            for q, value in turned:
                put(e.add(c, q * size), value)

        if free is None:
            staged()
        else:
            e.cond(free, at_once, staged)
    if free is not None:
        columns = e.op(f"select i1 {free}, i64 0, i64 {columns}")
    with e.loop(0, columns) as j:
        put(j, e.load(vec, e.at(stage, e.mul(j, lanes), kind), 64))


def transposed(e: Emit, kind: str, rows: list[str]) -> list[str]:
    """The columns of as many vectors as each has elements, as `transpose_block` but in registers.
    """
    n, size = len(rows), 16 // BYTES[kind]
    vec = f"<{n} x {kind}>"
    blocks = [_columns_of_pieces(e, vec, n, rows[i:i + size]) for i in range(0, n, size)]
    columns = [""] * n
    for c, block in enumerate(zip(*blocks, strict=True)):
        columns[c::size] = _rows_of_pieces(e, vec, size, list(block))
    return columns


def _shuffle(e: Emit, vec: str, a: str, b: str, order: list[int]) -> str:
    mask = ", ".join(f"i32 {i}" for i in order)
    return e.op(f"shufflevector {vec} {a}, {vec} {b}, <{len(order)} x i32> <{mask}>")


def _columns_of_pieces(e: Emit, vec: str, lanes: int, rows: list[str]) -> list[str]:
    """Two or four vectors, transposed within each piece of as many elements."""
    size = len(rows)

    def pair(a: str, b: str, run: int) -> list[str]:
        """Runs of `run` elements of a and b in turn, of each piece's lower half and upper half."""
        found = []
        for upper in (0, size // 2):
            order: list[int] = []
            for start in range(upper, lanes, size):
                for at in range(start, start + size // 2, run):
                    order += [*range(at, at + run), *range(lanes + at, lanes + at + run)]
            found.append(_shuffle(e, vec, a, b, order))
        return found

    if size == 2:
        return pair(rows[0], rows[1], 1)
    (p, q), (r, s) = pair(rows[0], rows[1], 1), pair(rows[2], rows[3], 1)
    return [*pair(p, r, 2), *pair(q, s, 2)]


def _rows_of_pieces(e: Emit, vec: str, size: int, block: list[str]) -> list[str]:
    """One, two or four vectors of as many pieces of `size` elements, transposed piece by piece."""
    n = len(block)

    def take(a: str, b: str, first: int) -> str:
        """Every second piece of a, then of b."""
        pieces = [*range(first, n, 2), *range(n + first, 2 * n, 2)]
        return _shuffle(e, vec, a, b, [q * size + i for q in pieces for i in range(size)])

    if n == 1:
        return block
    if n == 2:
        return [take(block[0], block[1], 0), take(block[0], block[1], 1)]
    a, b, c, d = block
    even, odd = (take(a, b, 0), take(c, d, 0)), (take(a, b, 1), take(c, d, 1))
    return [take(*even, 0), take(*odd, 0), take(*even, 1), take(*odd, 1)]
