"""A small builder of LLVM IR text: values with operators, loops with carried values.

    code = Code()
    f = code.function("scale", [("ptr", "x"), ("i64", "n")])
    f.vector_loop(f.i64(0), f.args[1], 16, [], body)
    text = code.text()

Types are the strings of LLVM ("float", "i64", "<16 x float>"). A loop takes the initial values of
what it carries and a Python function that maps the carried values of one turn to the next; the phi
nodes follow from that.
"""
from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

# Attributes of a function whose instructions LLVM shall select one by one, in half the time. Where
# most of them call functions of CPython's or NumPy's, it runs as fast (measured).
PLAIN = "noinline optnone"
FLOATS = ("half", "bfloat", "float", "double")
Body = Callable[["Value", "Value | None", list["Value"]], Sequence["Value"]]


def vec(lanes: int, element: str) -> str:
    """The type of a vector; the element itself for one lane."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def element(ty: str) -> str:
    """The element type of a vector type, or the scalar type itself."""
    return ty.split(" x ")[1][:-1] if ty.startswith("<") else ty


def lanes(ty: str) -> int:
    """How many lanes a type has (1 for a scalar)."""
    return int(ty[1:].split(" x ")[0]) if ty.startswith("<") else 1


def suffix(ty: str) -> str:
    """How a type is spelled in the name of an intrinsic: v16f32, i64."""
    names = {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16"}
    base = names.get(element(ty), element(ty))
    return f"v{lanes(ty)}{base}" if ty.startswith("<") else base


def literal(ty: str, value: Any) -> str:
    """A constant of that type as LLVM writes it (vectors get the value in every lane)."""
    base = element(ty)
    if base == "i1":
        text = "true" if value else "false"
    elif base.startswith("i"):
        text = str(int(value))
    elif base == "double":
        text = "0x" + struct.pack(">d", float(value)).hex().upper()
    else:
        single = _to_single(float(value))
        text = "0x" + struct.pack(">d", single).hex().upper()
        if base in ("half", "bfloat"):
            raise TypeError(f"no constants of type {base}; convert to float")
    return f"splat ({base} {text})" if ty.startswith("<") else text


def _to_single(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


class Value:
    """An SSA value: the function it lives in, its name or literal, its type."""

    __slots__ = ("f", "ref", "ty")

    def __init__(self, f: Function, ref: str, ty: str) -> None:
        self.f, self.ref, self.ty = f, ref, ty

    def _is_float(self) -> bool:
        return element(self.ty) in FLOATS

    def _binary(self, real: str, integer: str, other: Any, swap: bool = False) -> Value:
        o = other if isinstance(other, Value) else self.f.const(self.ty, other)
        a, b = (o, self) if swap else (self, o)
        name = (real + self.f.flags) if self._is_float() else integer
        return self.f.emit(self.ty, f"{name} {self.ty} {a.ref}, {b.ref}")

    def __add__(self, o: Any) -> Value: return self._binary("fadd", "add", o)
    def __radd__(self, o: Any) -> Value: return self._binary("fadd", "add", o, True)
    def __sub__(self, o: Any) -> Value: return self._binary("fsub", "sub", o)
    def __rsub__(self, o: Any) -> Value: return self._binary("fsub", "sub", o, True)
    def __mul__(self, o: Any) -> Value: return self._binary("fmul", "mul", o)
    def __rmul__(self, o: Any) -> Value: return self._binary("fmul", "mul", o, True)
    def __truediv__(self, o: Any) -> Value: return self._binary("fdiv", "sdiv", o)
    def __rtruediv__(self, o: Any) -> Value: return self._binary("fdiv", "sdiv", o, True)
    def __mod__(self, o: Any) -> Value: return self._binary("frem", "srem", o)
    def __and__(self, o: Any) -> Value: return self._binary("and", "and", o)
    def __or__(self, o: Any) -> Value: return self._binary("or", "or", o)
    def __xor__(self, o: Any) -> Value: return self._binary("xor", "xor", o)
    def __lshift__(self, o: Any) -> Value: return self._binary("shl", "shl", o)
    def __rshift__(self, o: Any) -> Value: return self._binary("lshr", "lshr", o)

    def __neg__(self) -> Value:
        if self._is_float():
            return self.f.emit(self.ty, f"fneg {self.ty} {self.ref}")
        return self.f.const(self.ty, 0) - self

    def compare(self, how: str, o: Any) -> Value:
        """`olt`, `ogt`, `oeq`, `uno`, ... for floats, `slt`, `ult`, `eq`, ... for integers."""
        other = o if isinstance(o, Value) else self.f.const(self.ty, o)
        op = "fcmp" if self._is_float() else "icmp"
        return self.f.emit(vec(lanes(self.ty), "i1") if self.ty.startswith("<") else "i1",
                           f"{op} {how} {self.ty} {self.ref}, {other.ref}")


class Code:
    """A module under construction: functions, declarations and constants, each once."""

    def __init__(self) -> None:
        self._parts: dict[str, str] = {}
        self._functions: list[Function] = []

    def declare(self, name: str, text: str) -> None:
        """Add a declaration or a global, once per name."""
        self._parts.setdefault(name, text)

    def has(self, name: str) -> bool:
        """Whether something of that name was declared or defined."""
        return name in self._parts or any(f.name == name for f in self._functions)

    def function(self, name: str, args: Sequence[tuple[str, str]], *, returns: str = "void",
                 attributes: str = "", internal: bool = False) -> Function:
        """Begin a function; `args` are (type with attributes, name)."""
        f = Function(self, name, args, returns, attributes, internal)
        self._functions.append(f)
        return f

    def text(self) -> str:
        """The IR of the module."""
        wide = ('attributes #0 = { nounwind "prefer-vector-width"="512" '
                '"min-legal-vector-width"="512" }')
        functions = "\n".join(f.text() for f in self._functions)
        return "\n".join([*self._parts.values(), functions, wide, "!0 = !{i32 1}"]) + "\n"


class Function:
    """A function under construction; its methods append instructions."""

    def __init__(self, code: Code, name: str, args: Sequence[tuple[str, str]], returns: str,
                 attributes: str, internal: bool) -> None:
        self.code, self.name, self.returns = code, name, returns
        linkage = "internal " if internal else ""
        head = ", ".join(f"{ty} %{n}" for ty, n in args)
        self._lines = [f"define {linkage}{returns} @{name}({head}) {attributes} #0 {{", "entry:"]
        self.args = [Value(self, f"%{n}", ty.split(" noalias")[0]) for ty, n in args]
        self._count = 0
        self.block = "entry"
        self.flags = ""

    # -- instructions ---------------------------------------------------------------------
    def emit(self, ty: str, text: str) -> Value:
        """Append `%n = text` and return the value."""
        self._count += 1
        ref = f"%v{self._count}"
        self._lines.append(f"  {ref} = {text}")
        return Value(self, ref, ty)

    def do(self, text: str) -> None:
        """Append an instruction without a result."""
        self._lines.append("  " + text)

    def const(self, ty: str, value: Any) -> Value:
        return Value(self, literal(ty, value), ty)

    def i64(self, value: int) -> Value:
        return self.const("i64", value)

    def cast(self, how: str, v: Value, ty: str) -> Value:
        return self.emit(ty, f"{how} {v.ty} {v.ref} to {ty}")

    def bits(self, v: Value, ty: str) -> Value:
        return self.cast("bitcast", v, ty)

    def select(self, c: Value, a: Value, b: Value) -> Value:
        return self.emit(a.ty, f"select {c.ty} {c.ref}, {a.ty} {a.ref}, {b.ty} {b.ref}")

    def intrinsic(self, name: str, *args: Value, returns: str | None = None) -> Value:
        """Call `llvm.<name>.<type>` of the first operand's type."""
        full = f"llvm.{name}.{suffix(args[0].ty)}"
        result = returns or args[0].ty
        types = ", ".join(a.ty for a in args)
        self.code.declare(full, f"declare {result} @{full}({types})")
        return self.call(full, result, *args)

    def call(self, name: str, returns: str, *args: Value) -> Value:
        text = ", ".join(f"{a.ty} {a.ref}" for a in args)
        if returns == "void":
            self.do(f"call void @{name}({text})")
            return Value(self, "", "void")
        return self.emit(returns, f"call {returns} @{name}({text})")

    def fma(self, a: Value, b: Any, c: Any) -> Value:
        """a * b + c, rounded once."""
        b = b if isinstance(b, Value) else self.const(a.ty, b)
        c = c if isinstance(c, Value) else self.const(a.ty, c)
        return self.intrinsic("fma", a, b, c)

    def poly(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Horner's scheme, highest power first."""
        p = self.const(x.ty, coefficients[0])
        for c in coefficients[1:]:
            p = self.fma(p, x, c)
        return p

    def splat(self, v: Value, n: int) -> Value:
        """The scalar in every lane."""
        if n == 1:
            return v
        ty = vec(n, v.ty)
        one = self.emit(ty, f"insertelement {ty} poison, {v.ty} {v.ref}, i64 0")
        return self.emit(ty, f"shufflevector {ty} {one.ref}, {ty} poison, "
                             f"<{n} x i32> zeroinitializer")

    def extract(self, v: Value, lane: int | Value) -> Value:
        at = lane if isinstance(lane, Value) else self.i64(lane)
        return self.emit(element(v.ty), f"extractelement {v.ty} {v.ref}, i64 {at.ref}")

    def insert(self, v: Value, s: Value, lane: int | Value) -> Value:
        at = lane if isinstance(lane, Value) else self.i64(lane)
        return self.emit(v.ty, f"insertelement {v.ty} {v.ref}, {s.ty} {s.ref}, i64 {at.ref}")

    def shuffle(self, a: Value, b: Value, order: Sequence[int]) -> Value:
        mask = ", ".join(f"i32 {i}" for i in order)
        ty = vec(len(order), element(a.ty))
        return self.emit(ty, f"shufflevector {a.ty} {a.ref}, {b.ty} {b.ref}, "
                             f"<{len(order)} x i32> <{mask}>")

    def iota(self, n: int) -> Value:
        """<0, 1, ..., n-1> as i64 lanes."""
        text = ", ".join(f"i64 {i}" for i in range(n))
        return Value(self, f"<{text}>", vec(n, "i64"))

    # -- memory ---------------------------------------------------------------------------
    def at(self, p: Value, ty: str, index: Value | int) -> Value:
        """The address of the index-th element of that type."""
        i = index if isinstance(index, Value) else self.i64(index)
        return self.emit("ptr", f"getelementptr {ty}, ptr {p.ref}, i64 {i.ref}")

    def load(self, p: Value, ty: str, *, align: int = 0, mask: Value | None = None,
             other: Value | None = None) -> Value:
        """Load a value; masked-off lanes of a vector read `other` (zero where None)."""
        size = align or _bytes(element(ty))
        if mask is None:
            return self.emit(ty, f"load {ty}, ptr {p.ref}, align {size}")
        name = f"llvm.masked.load.{suffix(ty)}.p0"
        self.code.declare(name, f"declare {ty} @{name}(ptr, i32, {mask.ty}, {ty})")
        rest = other.ref if other is not None else "zeroinitializer"
        return self.emit(ty, f"call {ty} @{name}(ptr {p.ref}, i32 {size}, {mask.ty} {mask.ref}, "
                             f"{ty} {rest})")

    def store(self, v: Value, p: Value, *, align: int = 0, mask: Value | None = None,
              stream: bool = False) -> None:
        """Store a value; masked-off lanes are not written; `stream` goes around the cache."""
        size = align or _bytes(element(v.ty))
        if mask is None:
            tail = ", !nontemporal !0" if stream else ""
            self.do(f"store {v.ty} {v.ref}, ptr {p.ref}, align {size}{tail}")
            return
        name = f"llvm.masked.store.{suffix(v.ty)}.p0"
        self.code.declare(name, f"declare void @{name}({v.ty}, ptr, i32, {mask.ty})")
        self.do(f"call void @{name}({v.ty} {v.ref}, ptr {p.ref}, i32 {size}, "
                f"{mask.ty} {mask.ref})")

    def fetch(self, p: Value) -> None:
        """Have the cache line at `p` fetched, if there is one; nothing waits for it."""
        name = "llvm.prefetch.p0"
        self.code.declare(name, f"declare void @{name}(ptr, i32, i32, i32)")
        self.do(f"call void @{name}(ptr {p.ref}, i32 0, i32 3, i32 1)")

    # -- control --------------------------------------------------------------------------
    def label(self, hint: str) -> str:
        self._count += 1
        return f"{hint}{self._count}"

    def start(self, block: str) -> None:
        """Begin a block (the one before has to have ended in a branch)."""
        self._lines.append(f"{block}:")
        self.block = block

    def goto(self, block: str) -> None:
        self.do(f"br label %{block}")

    def branch(self, c: Value, yes: str, no: str) -> None:
        self.do(f"br i1 {c.ref}, label %{yes}, label %{no}")

    def phi(self, ty: str, sources: Sequence[tuple[Value, str]]) -> Value:
        text = ", ".join(f"[{v.ref}, %{b}]" for v, b in sources)
        return self.emit(ty, f"phi {ty} {text}")

    def when(self, c: Value, body: Callable[[], Sequence[Value]],
             otherwise: Sequence[Value] = ()) -> list[Value]:
        """Run `body` where the condition holds; its values, else those of `otherwise`."""
        yes, done, before = self.label("then"), self.label("done"), self.block
        self.branch(c, yes, done)
        self.start(yes)
        got = list(body())
        last = self.block
        self.goto(done)
        self.start(done)
        return [self.phi(a.ty, [(a, last), (b, before)])
                for a, b in zip(got, otherwise, strict=True)]

    def loop(self, lo: Value, hi: Value, step: int | Value, carried: Sequence[Value],
             body: Callable[[Value, list[Value]], Sequence[Value]]) -> list[Value]:
        """`for i in range(lo, hi, step)`; returns the carried values after the last turn."""
        head, turn, done, before = (self.label("head"), self.label("turn"), self.label("end"),
                                    self.block)
        self.goto(head)
        self.start(head)
        names = [(c, self.label("%c")) for c in carried]
        index = Value(self, self.label("%i"), lo.ty)
        spot = len(self._lines)
        values = [Value(self, ref, c.ty) for c, ref in names]
        self.branch(index.compare("slt", hi), turn, done)
        self.start(turn)
        result = list(body(index, values))
        after = index + step
        last = self.block
        self.goto(head)
        phis = [f"  {index.ref} = phi {lo.ty} [{lo.ref}, %{before}], [{after.ref}, %{last}]"]
        phis += [f"  {ref} = phi {c.ty} [{c.ref}, %{before}], [{r.ref}, %{last}]"
                 for (c, ref), r in zip(names, result, strict=True)]
        self._lines[spot:spot] = phis
        self.start(done)
        return values

    def vector_loop(self, lo: Value, hi: Value, n: int, carried: Sequence[Value], body: Body, *,
                    unroll: int = 1, combine: Callable[[list[Value], list[Value]], list[Value]]
                    | None = None) -> list[Value]:
        """Run `body(i, mask, carried)` over [lo, hi) in steps of `n` lanes.

        Whole vectors come with mask None, the last part with a mask of the lanes in range; what
        is carried keeps its old value in the other lanes. With `unroll`, as many independent
        sets of carried values run in one turn and `combine` joins them.
        """
        sets = list(carried) * unroll
        k = len(carried)
        whole = self.emit("i64", f"sub i64 {hi.ref}, {lo.ref}")
        turns = whole / (n * unroll)
        middle = lo + turns * (n * unroll)

        def main(i: Value, values: list[Value]) -> list[Value]:
            out: list[Value] = []
            for u in range(unroll):
                out += body(i + n * u if u else i, None, values[u * k:(u + 1) * k])
            return out

        values = self.loop(lo, middle, n * unroll, sets, main)
        first = values[:k]
        for u in range(1, unroll):
            if combine is not None:
                first = combine(first, values[u * k:(u + 1) * k])
        if unroll > 1:
            middle2 = middle + ((hi - middle) / n) * n
            first = self.loop(middle, middle2, n, first, lambda i, c: body(i, None, c))
            middle = middle2
        return self._tail(middle, hi, n, first, body)

    def _tail(self, at: Value, hi: Value, n: int, carried: list[Value], body: Body) -> list[Value]:
        if n == 1:
            return carried

        def rest() -> list[Value]:
            here = self.splat(at, n) + self.iota(n)
            mask = here.compare("slt", self.splat(hi, n))
            new = body(at, mask, carried)
            return [self.select(mask, a, b) if lanes(a.ty) == n else a
                    for a, b in zip(new, carried, strict=True)]

        return self.when(at.compare("slt", hi), rest, carried)

    def reduce(self, how: str, v: Value) -> Value:
        """Join the lanes pairwise: `add`, `max`, `min` or `mul` (max and min keep a nan)."""
        while lanes(v.ty) > 1:
            half = lanes(v.ty) // 2
            a = self.shuffle(v, v, range(half)) if half > 1 else self.extract(v, 0)
            b = self.shuffle(v, v, range(half, 2 * half)) if half > 1 else self.extract(v, 1)
            v = self.join(how, a, b)
        return v

    def join(self, how: str, a: Value, b: Value) -> Value:
        """`add`, `mul`, or `max`/`min` that return nan where an operand is nan."""
        if how == "add":
            return a + b
        if how == "mul":
            return a * b
        return self.intrinsic("maximum" if how == "max" else "minimum", a, b)

    def ret(self, v: Value | None = None) -> None:
        self.do(f"ret {v.ty} {v.ref}" if v is not None else "ret void")

    def text(self) -> str:
        return "\n".join([*self._lines, "}"])


def _bytes(ty: str) -> int:
    return {"float": 4, "double": 8, "half": 2, "bfloat": 2, "ptr": 8}.get(ty) or max(
        1, int(ty[1:]) // 8)
