"""From loop bodies to callable kernels, and from scalar expressions to loop bodies.

A kernel is a generated function, `body(slots, first, end)`, which computes the chunks [first, end)
of the work. Its entry, `entry(run, geometry, arrays..., integers..., reals...)` in Python, collects
the operands into slots and hands body to the thread pool (`launch.entry`). Shapes and strides
travel in `geometry`, an int64 array that is computed once per shape and kept; its first word is the
number of chunks. The slots are the address of the geometry, those of the arrays' data, the scalars.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adjoint.kernels import launch, llvm, mathlib
from adjoint.kernels.expr import Expr, schedule
from adjoint.kernels.ir import Code, Function, Value, element, lanes, vec

F32, F64, BOOL = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.bool_)
# dtype -> (type in memory, type in registers)
STORAGE = {F32: ("float", "float"), F64: ("double", "double"),
           np.dtype(np.float16): ("half", "float"), BOOL: ("i8", "i1")}
_BYTES = {"float": 4, "double": 8, "half": 2, "i16": 2, "i8": 1}


def storage(dtype: np.dtype[Any]) -> tuple[str, str] | None:
    """(type in memory, type in registers) of a dtype that kernels compute; None for others."""
    found = STORAGE.get(dtype)
    if found is None and dtype.name == "bfloat16":
        found = STORAGE[dtype] = ("bfloat", "float")
    return found


def width(register: str) -> int:
    """Lanes of a vector of that element type on this CPU."""
    return llvm.vector_bits() // (64 if register in ("double", "i64") else 32)


class Frame:
    """What the generator of a body sees: the function, the range of chunks, the operands."""

    def __init__(self, f: Function, arrays: int, integers: int) -> None:
        self.f = f
        self.slots, self.first, self.end = f.args
        self._arrays, self._integers = arrays, integers
        self._geometry = self._slot(0, "ptr")

    def _slot(self, index: int, ty: str) -> Value:
        return self.f.load(self.f.at(self.slots, "i64", index), ty, align=8)

    def geometry(self, index: int) -> Value:
        """A word of the geometry."""
        return self.f.load(self.f.at(self._geometry, "i64", index), "i64")

    def array(self, index: int) -> Value:
        """The data pointer of an array operand."""
        return self._slot(1 + index, "ptr")

    def integer(self, index: int) -> Value:
        return self._slot(1 + self._arrays + index, "i64")

    def real(self, index: int, ty: str = "double") -> Value:
        """A scalar operand, converted to `ty`."""
        v = self._slot(1 + self._arrays + self._integers + index, "double")
        return v if ty == "double" else self.f.cast("fptrunc", v, ty)


def build(name: str, spec: tuple[str, ...], emit: Callable[[Frame], None], *, arrays: int,
          integers: int = 0, reals: int = 0) -> launch.Entry:
    """The callable entry of the kernel that `emit` generates.

    Args:
        name: for messages.
        spec: what determines the generated text, together with the sources (key of the cache).
        emit: appends the body to the function of the frame it is given.
        arrays, integers, reals: how many operands of each kind the entry takes, in this order.

    Returns:
        `entry(run, geometry, array..., int..., float...)`, with `run` from `threads.entry()`
        and `geometry` the address of int64 words.
    """
    return launch.entry(name, body(name, spec, emit, arrays, integers), arrays, integers, reals)


def body(name: str, spec: tuple[str, ...], emit: Callable[[Frame], None], arrays: int,
         integers: int = 0) -> int:
    """The address of the kernel's generated function; arguments as for `build`."""
    return llvm.compile_spec((name, *spec), lambda: _module_text(emit, arrays, integers),
                             name=name).address("body")


def _module_text(emit: Callable[[Frame], None], arrays: int, integers: int) -> str:
    code = Code()
    body = code.function("body", [("ptr noalias", "slots"), ("i64", "first"), ("i64", "end")])
    emit(Frame(body, arrays, integers))
    body.ret()
    return code.text()


# -- memory in the types of registers ----------------------------------------------------------
def load(f: Function, p: Value, stored: str, n: int, *, mask: Value | None = None) -> Value:
    """`n` contiguous elements at `p` as register values: half and bfloat widen, i8 becomes i1."""
    v = f.load(p, vec(n, _memory(stored)), mask=mask)
    return _widen(f, v)


def load_scalar(f: Function, p: Value, stored: str) -> Value:
    """One element at `p` as a register scalar."""
    return _widen(f, f.load(p, _memory(stored)))


def store_scalar(f: Function, v: Value, p: Value, stored: str) -> None:
    """Store a register scalar at `p` in the type of memory."""
    f.store(_narrow(f, v, stored), p)


def _memory(stored: str) -> str:
    """bfloat16 travels as 16-bit integers: few CPUs convert it themselves."""
    return "i16" if stored == "bfloat" else stored


def _widen(f: Function, v: Value) -> Value:
    kind, n = element(v.ty), lanes(v.ty)
    if kind == "half":
        return f.cast("fpext", v, vec(n, "float"))
    if kind == "i16":
        return f.bits(f.cast("zext", v, vec(n, "i32")) << 16, vec(n, "float"))
    return v.compare("ne", 0) if kind == "i8" else v


def _narrow(f: Function, v: Value, stored: str) -> Value:
    """half and bfloat round to nearest, ties to even; nan stays nan."""
    n = lanes(v.ty)
    if stored == "half":
        return f.cast("fptrunc", v, vec(n, "half"))
    if stored == "bfloat":
        bits = f.bits(v, vec(n, "i32"))
        rounded = (bits + ((bits >> 16) & 1)) + 0x7FFF
        rounded = f.select(v.compare("uno", v), bits | 0x400000, rounded)
        return f.cast("trunc", rounded >> 16, vec(n, "i16"))
    return v


def gather(f: Function, p: Value, stored: str, n: int, stride: Value, left: Value | None) -> Value:
    """`n` elements at distances of `stride` bytes. Lanes from `left` on repeat the last one; None
    where all are there, which spares every element a comparison and a product."""
    stored = _memory(stored)
    v = Value(f, "zeroinitializer", vec(n, stored))
    for lane in range(n):
        at = f.i64(lane) if left is None or not lane else f.intrinsic("smin", f.i64(lane), left - 1)
        one = f.load(f.at(p, "i8", at * stride), stored)
        v = f.insert(v, one, lane)
    return _widen(f, v)


def turned(f: Function, columns: Sequence[Value]) -> list[Value]:
    """The n rows of a tile whose n columns are these vectors of n elements."""
    v, n = list(columns), len(columns)
    s = n // 2
    while s:
        for i in range(n):
            if not i & s:
                a, b = v[i], v[i + s]
                v[i] = f.shuffle(a, b, [n + j - s if j & s else j for j in range(n)])
                v[i + s] = f.shuffle(a, b, [n + j if j & s else j + s for j in range(n)])
        s //= 2
    return v


def store(f: Function, v: Value, p: Value, stored: str, *, mask: Value | None = None,
          stream: bool = False) -> None:
    """Store register values in the type of memory (half and bfloat round to nearest even)."""
    n = lanes(v.ty)
    if stored == "i8":
        if element(v.ty) != "i1":
            v = v.compare("une", 0.0)
        v = f.cast("zext", v, vec(n, "i8"))
    elif element(v.ty) == "i1":
        v = f.cast("uitofp", v, vec(n, "float" if stored in ("half", "bfloat") else stored))
    v = _narrow(f, v, stored)
    align = min(n * _BYTES[_memory(stored)], llvm.vector_bits() // 8) if stream else 0
    f.store(v, p, mask=mask, stream=stream, align=0 if mask is not None else align)


def streams(nbytes: int) -> bool:
    """Whether a result of that size is written around the cache: from half of the last-level
    cache on that wins although whoever reads the result finds nothing of it there (a chain of
    products and sums of 16 MiB with 32 MiB of cache: 0.9x of the time; of 64 MiB: 0.75x)."""
    return nbytes >= llvm.cache_bytes() // 2


def streaming_loop(f: Function, lo: Value, hi: Value, n: int, outputs: Sequence[Value],
                   body: Callable[[Value, Value | None, bool, int], None], together: int = 1
                   ) -> None:
    """A vector loop, `body(i, mask, stream, lanes)`, whose stores go around the cache where all
    `outputs` are aligned for it, and with `together` vectors of `n` lanes a turn.

    Without the former, writing a line that is not in the cache costs a read of it. `lo` has to be
    a multiple of the lanes. Where there are `outputs`, `fence` has to follow before anybody else
    reads the result.
    """
    def plain(i: Value, mask: Value | None, _: list[Value]) -> list[Value]:
        body(i, mask, False, n)
        return []

    if not outputs and together == 1:
        f.vector_loop(lo, hi, n, [], plain)
        return
    low, step = f.i64(0), n * together
    for p in outputs:
        low = low | (f.cast("ptrtoint", p, "i64") & (llvm.vector_bits() // 8 - 1))
    whole = lo + ((hi - lo) / step) * step
    middle = f.select(low.compare("eq", 0), whole, lo)       # the plain loop does the rest

    def main(i: Value, _: list[Value]) -> list[Value]:
        body(i, None, bool(outputs), step)
        return []
    f.loop(lo, middle, step, [], main)
    f.vector_loop(middle, hi, n, [], plain)


def fence(f: Function) -> None:
    """Order streaming stores before what follows (x86 lets them overtake)."""
    if "sse2" in llvm.host_features() or llvm.vector_bits() > 128:
        f.code.declare("llvm.x86.sse.sfence", "declare void @llvm.x86.sse.sfence()")
        f.do("call void @llvm.x86.sse.sfence()")


# -- expressions -------------------------------------------------------------------------------
_ARITHMETIC: dict[str, Callable[..., Value]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b, "neg": lambda a: -a, "conj": lambda a: a}
_COMPARE = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}
_LOGIC: dict[str, Callable[..., Value]] = {
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "not": lambda a: a ^ True}
_OWN = frozenset("where sign isnan mod floordiv var const".split())
_EXACT = frozenset([*_ARITHMETIC, *_COMPARE, *_LOGIC, *_OWN, "sqrt", "abs", "maximum", "minimum",
                    "floor", "ceil", "trunc", "round", "copysign"])


def can_lower(exprs: Sequence[Expr]) -> bool:
    """Whether every function in the expressions has generated code."""
    known = _EXACT | mathlib.names()
    return all(e.fn in known and not isinstance(e.value, complex) for e in schedule(exprs))


def exact(exprs: Sequence[Expr]) -> bool:
    """Whether the expressions round the same way in whatever they are computed together with."""
    return all(e.fn in _EXACT for e in schedule(exprs))


def put(e: Expr, env: dict[Expr, Expr]) -> Expr:
    """`e` with variables replaced and nothing simplified: that might round otherwise."""
    done = dict(env)
    for n in schedule([e]):
        if n not in done:
            done[n] = Expr(n.fn, tuple([done[a] for a in n.args]), n.value)
    return done[e]


def text_of(exprs: Sequence[Expr]) -> str:
    """The expressions as an unambiguous text, for keys."""
    order = {e: i for i, e in enumerate(schedule(exprs))}
    nodes = [f"{e.fn}:{e.value!r}:{','.join(str(order[a]) for a in e.args)}" for e in order]
    return ";".join([*nodes, *(str(order[e]) for e in exprs)])


def weight(exprs: Sequence[Expr]) -> int:
    """How many NumPy calls the expressions stand for."""
    return sum(e.fn not in ("var", "const") for e in schedule(exprs))


def pairs(exprs: Sequence[Expr]) -> bool:
    """Whether two vectors at once are faster: their instructions wait for each other less. So it
    is where functions are approximated and registers are many (GELU 0.90x, SiLU 0.92x, exp 0.8x
    to 0.9x of the time); what memory bounds gains nothing."""
    return llvm.vector_bits() == 512 and not exact(exprs)


def lower(f: Function, exprs: Sequence[Expr], env: dict[str, Value], ty: str) -> list[Value]:
    """Emit the expressions over the variables in `env`; `ty` is the type of computed floats.

    Expressions of + - * / sqrt and comparisons round like NumPy's, bit for bit; where anything
    approximate takes part, products and sums may fuse.
    """
    order = schedule(exprs)
    f.flags = "" if exact(exprs) else " contract"
    done: dict[Expr, Value] = {}
    for e in order:
        if e.fn == "var":
            done[e] = env[e.value]
        elif e.fn == "const":
            kind = vec(lanes(ty), "i1") if isinstance(e.value, bool) else ty
            done[e] = f.const(kind, e.value)
        else:
            done[e] = _lower_call(f, e, [done[a] for a in e.args], ty)
    f.flags = ""
    return [done[e] for e in exprs]


def _number(f: Function, v: Value, ty: str) -> Value:
    return f.cast("uitofp", v, ty) if element(v.ty) == "i1" else v


def _truth(f: Function, v: Value) -> Value:
    return v if element(v.ty) == "i1" else v.compare("une", 0.0)


def _lower_call(f: Function, e: Expr, args: list[Value], ty: str) -> Value:
    fn = e.fn
    if fn in _LOGIC:
        return _LOGIC[fn](*(_truth(f, a) for a in args))
    if fn == "where":
        return f.select(_truth(f, args[0]), _number(f, args[1], ty), _number(f, args[2], ty))
    real = [_number(f, a, ty) for a in args]
    if fn in _ARITHMETIC:
        return _ARITHMETIC[fn](*real)
    if fn in _COMPARE:
        return real[0].compare(_COMPARE[fn], real[1])
    if fn == "isnan":
        return real[0].compare("uno", real[0])
    if fn == "sign":
        return _sign(f, real[0])
    if fn in ("mod", "floordiv"):
        return (_mod if fn == "mod" else _floordiv)(f, real[0], real[1])
    if fn == "pow" and e.args[1].fn == "const" and _small_whole(e.args[1].value):
        return _power(f, real[0], int(e.args[1].value))
    flags, f.flags = f.flags, ""
    result = mathlib.apply(f, fn, *real)
    f.flags = flags
    return result


def _small_whole(value: Any) -> bool:
    return float(value).is_integer() and 0 < abs(value) <= 8


def _power(f: Function, x: Value, n: int) -> Value:
    if n < 0:
        return 1.0 / _power(f, x, -n)
    if n == 1:
        return x
    half = _power(f, x, n // 2)
    return half * half * x if n % 2 else half * half


def _sign(f: Function, x: Value) -> Value:
    one = f.intrinsic("copysign", f.const(x.ty, 1.0), x)
    return f.select(x.compare("one", 0.0), one, f.const(x.ty, 0.0))


def _mod(f: Function, a: Value, b: Value) -> Value:
    """The remainder with the sign of the divisor, like Python's and NumPy's."""
    r = mathlib.apply(f, "fmod", a, b)
    apart = r.compare("olt", 0.0) ^ b.compare("olt", 0.0)
    moved = f.select(apart, r + b, r)
    return f.select(r.compare("oeq", 0.0), f.intrinsic("copysign", f.const(a.ty, 0.0), b), moved)


def _floordiv(f: Function, a: Value, b: Value) -> Value:
    """The whole number n with a - n b the remainder of `_mod`: the rounded quotient may be above
    it (2 // 0.1 is 19). Like Python's and NumPy's."""
    r = mathlib.apply(f, "fmod", a, b)
    quotient, one = a / b, f.const(a.ty, 1.0)
    apart = (r.compare("olt", 0.0) ^ b.compare("olt", 0.0)) & r.compare("une", 0.0)
    near = (a - r) / b
    near = f.select(apart, near - one, near)
    low = f.intrinsic("floor", near)
    whole = f.select((near - low).compare("ogt", 0.5), low + one, low)
    whole = f.select(near.compare("oeq", 0.0),
                     f.intrinsic("copysign", f.const(a.ty, 0.0), quotient), whole)
    return f.select(b.compare("oeq", 0.0), quotient, whole)
