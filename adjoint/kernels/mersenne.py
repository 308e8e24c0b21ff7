"""The Mersenne twister (mt19937) a block of 624 words at a time, in machine code.

Source: Matsumoto and Nishimura, "Mersenne twister: a 623-dimensionally equidistributed uniform
pseudo-random number generator" (1998). A new word depends on those 624, 623 and 227 places before
it, so 16 of them are made at once, and 39 vectors are a block. What is made of the words (floats,
flags) is made while they are in registers.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjoint.kernels import codegen, llvm, threads
from adjoint.kernels.box_muller import sixteen_ir
from adjoint.kernels.codegen import Frame
from adjoint.kernels.ir import Function, Value, vec
from adjoint.kernels.loops import geometry

Array = NDArray[Any]
N = 624                  # words of a block
SCRATCH = N + 16         # the state, and the first vector again behind it
_M = 397
_W = vec(16, "i32")
_PAIR = 2**53 - 1


def _fresh(f: Function, x: Value, i: Value, middle: Value) -> Value:
    """The words that replace x[i : i + 16]."""
    a, b = f.load(f.at(x, "i32", i), _W), f.load(f.at(x, "i32", i + 1), _W)
    y = (a & 0x80000000) | (b & 0x7FFFFFFF)
    odd = f.const(_W, 0) - (b & 1)
    new = f.load(f.at(x, "i32", middle), _W) ^ (y >> 1) ^ (odd & 0x9908B0DF)
    f.store(new, f.at(x, "i32", i))
    return new


def _temper(y: Value) -> Value:
    y = y ^ (y >> 11)
    y = y ^ ((y << 7) & 0x9D2C5680)
    y = y ^ ((y << 15) & 0xEFC60000)
    return y ^ (y >> 18)


def _long(f: Function, t: Value) -> Value:
    """Eight numbers of 53 bits; the first word of each pair holds the upper ones."""
    ty = vec(8, "i64")
    v = f.bits(t, ty)
    return ((v << 32) | (v >> 32)) & f.const(ty, _PAIR)


def _words(frame: Frame) -> Callable[[Value, Value], None]:
    f, out = frame.f, frame.array(1)
    return lambda t, e: f.store(t, f.at(out, "i32", e))


def _float(frame: Frame) -> Callable[[Value, Value], None]:
    """24 bits of each word, times a width, plus a start; what rounds to the end is the start."""
    f, out, ty = frame.f, frame.array(1), vec(16, "float")
    start, width, stop = (f.splat(frame.real(k, "float"), 16) for k in (0, 1, 2))

    def put(t: Value, e: Value) -> None:
        u = f.cast("sitofp", t & 0xFFFFFF, ty) * f.const(ty, 2.0**-24)
        v = f.fma(u, width, start)
        f.store(f.select(v.compare("oeq", stop), start, v), f.at(out, "float", e))
    return put


def _double(frame: Frame) -> Callable[[Value, Value], None]:
    f, out, ty = frame.f, frame.array(1), vec(8, "double")
    start, width, stop = (f.splat(frame.real(k), 8) for k in (0, 1, 2))

    def put(t: Value, e: Value) -> None:
        u = f.cast("sitofp", _long(f, t), ty) * f.const(ty, 2.0**-53)
        v = f.fma(u, width, start)
        f.store(f.select(v.compare("oeq", stop), start, v), f.at(out, "double", e >> 1))
    return put


_KINDS: dict[str, Callable[[Frame], Callable[[Value, Value], None]]] = {
    "words": _words, "float": _float, "double": _double}


_SHIFTED = [15, *range(16, 31)]      # lanes of (vector before, vector): one word earlier


def _emit(kind: str, odd: bool, frame: Frame) -> None:
    """x, out; integers: blocks, carried word; reals: start, width, end.

    With `odd`, vectors begin one word earlier, with the word that was carried in."""
    f, x = frame.f, frame.array(0)
    put = _KINDS[kind](frame)

    def step(base: Value, i: Value, middle: Value, before: Value) -> Value:
        t = _temper(_fresh(f, x, i, middle))
        put(f.shuffle(before, t, _SHIFTED) if odd else t, base + i)
        return t

    def block(b: Value, carried: list[Value]) -> list[Value]:
        return _block(f, x, carried, lambda i, middle, c: [step(b * N, i, middle, c[0])])

    held = f.splat(f.cast("trunc", frame.integer(1), "i32"), 16)
    last = f.loop(f.i64(0), frame.integer(0), 1, [held], block)
    f.store(last[0], f.at(x, "i32", N))


def _block(f: Function, x: Value, carried: list[Value],
           step: Callable[[Value, Value, list[Value]], list[Value]]) -> list[Value]:
    """Make the next 624 words, sixteen a step: where they go, and where the middle ones are."""
    first = step(f.i64(0), f.i64(_M), carried)
    f.store(f.load(x, _W), f.at(x, "i32", N))
    late = f.loop(f.i64(16), f.i64(240), 16, first, lambda i, c: step(i, i + _M, c))
    return f.loop(f.i64(240), f.i64(N), 16, late, lambda i, c: step(i, i - (N - _M), c))


@functools.lru_cache(maxsize=16)
@llvm.generating
def _compiled(kind: str, odd: bool) -> Any:
    return codegen.build("mersenne", (kind, repr(odd)), functools.partial(_emit, kind, odd),
                         arrays=2, integers=2, reals=3)


@functools.cache
def _one() -> tuple[Any, int]:
    return geometry([1])


def available() -> bool:
    """Whether numbers can be made by machine code here."""
    return llvm.available()


def ready(kind: str, odd: bool, few: bool) -> bool:
    """Whether `blocks` (with a carry where `odd`), and `few` where wanted, can be called now: to be
    asked before the first number is taken."""
    return _compiled(kind, odd) is not None and not (few and few_entry(kind) is None)


def blocks(kind: str, state: Array, out: Array, count: int, *, carry: int | None = None,
           reals: tuple[float, float, float] = (0.0, 1.0, 1.0)) -> int:
    """Fill `out` from `count` whole blocks, and leave the state behind them.

    Args:
        kind: "words" (uint32), "float" and "double" (start + width u, with the start in place of
            the end). The last takes two words a number.
        state: uint32 of `SCRATCH` words, the first 624 of which are the state.
        carry: a word that was drawn before and is the first of the first pair.
        reals: start, width, end.

    Returns:
        The last word, which is the first of a pair if there was a carry.
    """
    entry = _compiled(kind, carry is not None)
    assert entry is not None                # `ready` has been asked
    entry(threads.entry(), _one()[1], state, out, count, carry or 0, *reals)
    return int(state[-1])


# ------------------------------------------------------------------ a few numbers
# words that a number takes; a pair of normal ones takes four
WORDS = {"words": 1, "float": 1, "double": 2, "below": 2, "range": 1, "normal": 2, "exponential": 2,
         "flip": 2, "sixteens": 1}


class _Few:
    """The generator of `few`. words and place, out, held; integers: how many, and two of the kind;
    reals: three of the kind."""

    def __init__(self, kind: str, frame: Frame) -> None:
        self.frame, self.f = frame, frame.f
        self.kind, _, ty = kind.partition(" ")
        self.ty = ty or kind
        self.x, self.out = frame.array(0), frame.array(1)
        self.place = self.f.at(self.x, "i32", N)
        self.used = self.f.cast("zext", self.f.load(self.place, "i32"), "i64")

    def emit(self) -> None:
        f, n = self.f, self.frame.integer(0)
        if self.kind == "sixteens":
            self._sixteens()
            return
        one = {"words": self._word_of, "float": self._float, "double": self._double,
               "below": self._below, "range": self._range, "normal": self._pair,
               "exponential": self._exponential, "flip": self._flip}[self.kind]
        per, count = WORDS[self.kind], n
        if self.kind == "normal":
            per, count = 4, (n - self.frame.integer(1) + 1) >> 1
            self._waiting()

        def step(k: Value, _: list[Value]) -> list[Value]:
            one(k)
            return []
        f.loop(f.i64(0), count, 1, [], step)
        f.store(f.cast("trunc", self.used + count * per, "i32"), self.place)

    def _word(self, k: Value) -> Value:
        return _temper(self.f.load(self.f.at(self.x, "i32", self.used + k), "i32"))

    def _bits(self, k: Value) -> Value:
        """Number k of 53 bits."""
        upper, lower = (self.f.cast("zext", self._word(k * 2 + i), "i64") for i in (0, 1))
        return ((upper << 32) | lower) & _PAIR

    def _unit(self, k: Value) -> Value:
        """Number k of [0, 1), in float64."""
        return self.f.cast("sitofp", self._bits(k), "double") * self.f.const("double", 2.0**-53)

    def _word_of(self, k: Value) -> None:
        self.f.store(self._word(k), self.f.at(self.out, "i32", k))

    def _single(self, k: Value) -> Value:
        """Number k of [0, 1), of 24 bits, in float32."""
        u = self.f.cast("sitofp", self._word(k) & 0xFFFFFF, "float")
        return u * self.f.const("float", 2.0**-24)

    def _float(self, k: Value) -> None:
        self._scaled(self._single(k), k)

    def _sixteens(self) -> None:
        """Normal numbers made in pairs within sixteens of float32; a rest that is none is drawn
        again together with the last numbers of the sixteen before."""
        f, n = self.f, self.frame.integer(0)
        mean, std = (f.splat(self.frame.real(i, "float"), 8) for i in (0, 1))
        rest = f.select((n & 15).compare("ne", 0), f.i64(16), f.i64(0))

        def numbers(count: Value, word: Value | int, place: Value | int) -> None:
            def step(k: Value, _: list[Value]) -> list[Value]:
                f.store(self._single(k + word), f.at(self.out, "float", k + place))
                return []
            f.loop(f.i64(0), count, 1, [], step)

        def pairs(place: Value) -> None:
            sixteen_ir(f, f.at(self.out, "float", place), f.at(self.out, "float", place + 8), mean,
                       std)

        def group(g: Value, _: list[Value]) -> list[Value]:
            pairs(g * 16)
            return []

        def last() -> list[Value]:
            numbers(rest, n, n - 16)
            pairs(n - 16)
            return []
        numbers(n, 0, 0)
        f.loop(f.i64(0), n >> 4, 1, [], group)
        f.when(rest.compare("ne", 0), last)
        f.store(f.cast("trunc", self.used + n + rest, "i32"), self.place)

    def _double(self, k: Value) -> None:
        self._scaled(self._unit(k), k)

    def _scaled(self, u: Value, k: Value) -> None:
        """Times a width, plus a start; what rounds to the end is the start."""
        f = self.f
        start, width, stop = (self.frame.real(i, self.ty) for i in (0, 1, 2))
        v = f.fma(u, width, start)
        f.store(f.select(v.compare("oeq", stop), start, v), f.at(self.out, self.ty, k))

    def _below(self, k: Value) -> None:
        """Whether it is below a limit."""
        flag = self._bits(k).compare("slt", self.frame.integer(1))
        self.f.store(self.f.cast("zext", flag, "i8"), self.f.at(self.out, "i8", k))

    def _flip(self, k: Value) -> None:
        """The same as a number of the result's dtype."""
        f = self.f
        flag = self._bits(k).compare("slt", self.frame.integer(1))
        f.store(f.select(flag, f.const(self.ty, 1.0), f.const(self.ty, 0.0)),
                f.at(self.out, self.ty, k))

    def _exponential(self, k: Value) -> None:
        """log(1 - u) times a number."""
        f = self.f
        v = self._library("log1p", -self._unit(k)) * self.frame.real(0)
        f.store(f.cast("fptrunc", v, "float") if self.ty == "float" else v,
                f.at(self.out, self.ty, k))

    def _range(self, k: Value) -> None:
        """The remainder by a width, and a start."""
        word = self.f.cast("zext", self._word(k), "i64")
        self.f.store(self.frame.integer(1) + word % self.frame.integer(2),
                     self.f.at(self.out, "i64", k))

    # Normal numbers: mean and deviation; how many wait (one or none), which is held.
    def _pair(self, k: Value) -> None:
        """Two numbers, of the C library's functions; the last one of all may have no place."""
        f = self.f
        log, sin, cos = (functools.partial(self._library, name) for name in ("log1p", "sin", "cos"))
        u1, u2 = self._unit(k * 2), self._unit(k * 2 + 1)
        r = f.intrinsic("sqrt", log(-u2) * f.const("double", -2.0))
        angle = u1 * f.const("double", 2 * math.pi)
        place = self.frame.integer(1) + k * 2
        self._put(r * cos(angle), place)
        other = r * sin(angle)
        f.store(other, self.frame.array(2))

        def second() -> list[Value]:
            self._put(other, place + 1)
            return []
        f.when((place + 1).compare("slt", self.frame.integer(0)), second)

    def _waiting(self) -> None:
        """The number that waited comes first."""
        def first() -> list[Value]:
            self._put(self.f.load(self.frame.array(2), "double"), self.f.i64(0))
            return []
        self.f.when(self.frame.integer(1).compare("eq", 1), first)

    def _put(self, v: Value, k: Value) -> None:
        f = self.f
        v = f.fma(v, self.frame.real(1), self.frame.real(0))
        f.store(f.cast("fptrunc", v, "float") if self.ty == "float" else v,
                f.at(self.out, self.ty, k))

    def _library(self, name: str, v: Value) -> Value:
        self.f.code.declare(name, f"declare double @{name}(double)")
        return self.f.call(name, "double", v)


@functools.cache
@llvm.generating
def few_entry(kind: str) -> tuple[Any, Any] | None:
    """The entry, and the geometry of one chunk."""
    return codegen.build("few", (kind,), lambda frame: _Few(kind, frame).emit(), arrays=3,
                         integers=3, reals=3), _one()[1]


@functools.cache
@llvm.generating
def normals() -> bool:
    """Whether `few` makes normal numbers: of the C library's functions, by name."""
    return llvm.found_in_process("log1p", "sin", "cos")


_HELD = np.frombuffer(bytearray(8), np.float64)      # where no number waits


def few(kind: str, memory: Array, out: Array, integers: tuple[int, int] = (0, 0),
        reals: tuple[float, float, float] = (0.0, 1.0, 1.0), held: Array = _HELD) -> bool:
    """Numbers whose words are there already. `memory`: 624 words, and how many of them were used,
    which moves on. False, with nothing done, where there is no machine code.

    Args:
        kind: what `blocks` makes, or
            "below": bools, whether numbers of 53 bits are below the first integer;
            "range": int64, the first integer and the remainder of a word by the second;
            "flip float", "flip double": 1 where "below" is true, else 0;
            "exponential float", "exponential double": log(1 - u) times the first real;
            "normal float", "normal double": of the mean and the deviation that `reals` begins
            with. The first integer says whether `held` comes first, where the last number then is;
            "sixteens": float32, normal as `box_muller` pairs them, of 16 numbers or more; the
            same two reals. A rest below sixteen takes sixteen words more.
    """
    made = few_entry(kind)
    if made is None:
        return False
    made[0](threads.entry(), made[1], memory, out, held, out.size, *integers, *reals)
    return True


# ------------------------------------------------------------------ a bit for each number
_BYTES = N // 16         # bits of the pairs of a block


def _emit_flags(odd: bool, frame: Frame) -> None:
    """x, bits (one for each pair of words); integers: blocks, the first of which is the one
    that x holds, and the limit.

    Of a number the upper 21 bits decide but once in two million times: of each pair of words only
    the first is tempered, and a block in which that was not enough is done again with both.
    """
    f, x, out = frame.f, frame.array(0), frame.array(1)
    limit = frame.integer(1)
    upper = f.splat(f.cast("trunc", limit >> 32, "i32"), 8)

    def pairs(y: Value, before: Value) -> Value:
        return f.shuffle(before, y, _SHIFTED) if odd else y

    def put(y: Value, e: Value, c: list[Value]) -> list[Value]:
        v = pairs(y, c[0])
        top = _temper(f.shuffle(v, v, range(0, 16, 2))) & 0x1FFFFF
        f.store(f.bits(top.compare("ult", upper), "i8"), f.at(out, "i8", e >> 4))
        return [y, c[1] | top.compare("eq", upper)]

    def again(base: Value, before: Value) -> list[Value]:
        def one(i: Value, c: list[Value]) -> list[Value]:
            y = f.load(f.at(x, "i32", i), _W)
            flag = _long(f, _temper(pairs(y, c[0]))).compare("slt", f.splat(limit, 8))
            f.store(f.bits(flag, "i8"), f.at(out, "i8", (base + i) >> 4))
            return [y]
        f.loop(f.i64(0), f.i64(N), 16, [before], one)
        return []

    def checked(base: Value, before: Value, found: list[Value]) -> list[Value]:
        close = f.bits(found[1], "i8").compare("ne", 0)
        f.when(close, lambda: again(base, before))
        return [found[0]]

    none = f.const(vec(8, "i1"), False)
    start = f.const(_W, 0)
    held = f.loop(f.i64(0), f.i64(N), 16, [start, none],
                  lambda i, c: put(f.load(f.at(x, "i32", i), _W), i, c))
    f.loop(f.i64(1), frame.integer(0), 1, checked(f.i64(0), start, held),
           lambda b, c: checked(b * N, c[0], _block(
               f, x, [c[0], none],
               lambda i, middle, c: put(_fresh(f, x, i, middle), b * N + i, c))))


@functools.lru_cache(maxsize=2)
@llvm.generating
def _flagging(odd: bool) -> Any:
    return codegen.build("flags", (repr(odd),), functools.partial(_emit_flags, odd), arrays=2,
                         integers=2)


def _emit_shift(frame: Frame) -> None:
    """bits, out; integers: the first bit, below 8, and the bytes, which are whole words."""
    f, bits, out = frame.f, frame.array(0), frame.array(1)

    def eight(k: Value, _: list[Value]) -> list[Value]:
        low, high = (f.load(f.at(bits, "i64", k + d), "i64", align=1) for d in (0, 1))
        f.store(f.intrinsic("fshr", high, low, frame.integer(0)), f.at(out, "i64", k))
        return []
    f.loop(f.i64(0), frame.integer(1) >> 3, 1, [], eight)


@functools.cache
@llvm.generating
def _shift() -> Any:
    return codegen.build("shift", (), _emit_shift, arrays=2, integers=2)


def bits(state: Array, used: int, n: int, limit: int) -> tuple[Array, int] | None:
    """A bit for each of the next `n` numbers of 53 bits, whether it is below the limit: the lowest
    first, as many bytes as whole 64s have. Also, how many words of the state are used then. None,
    with nothing done, where there is no machine code.

    Args:
        state: as for `blocks`; `used` words of it were drawn.
    """
    flagging, shift = _flagging(used % 2 == 1), _shift()
    if flagging is None or shift is None:
        return None
    end, size = used + 2 * n, -(-n // 64) * 8
    count, first = -(-end // N), (used + 1) // 2
    whole = bytearray(max(count * _BYTES, first // 8 + size) + 8)      # no memory that is counted
    held, out = np.frombuffer(whole, np.uint8), np.empty(size, np.uint8)
    flagging(threads.entry(), _one()[1], state, held, count, limit)
    shift(threads.entry(), _one()[1], held[first // 8:], out, first % 8, size)
    return out, end - (count - 1) * N


# ------------------------------------------------------------------ shuffling
def _emit_shuffle(frame: Frame) -> None:
    """order, jumps (both i64); integers: how many jumps."""
    f, order, jumps = frame.f, frame.array(0), frame.array(1)

    def swap(i: Value, _: list[Value]) -> list[Value]:
        here = f.at(order, "i64", i)
        there = f.at(order, "i64", i + f.load(f.at(jumps, "i64", i), "i64"))
        a, b = f.load(here, "i64"), f.load(there, "i64")
        f.store(b, here)
        f.store(a, there)
        return []
    f.loop(f.i64(0), frame.integer(0), 1, [], swap)


@functools.cache
@llvm.generating
def _shuffle() -> Any:
    return codegen.build("shuffle", (), _emit_shuffle, arrays=2, integers=1)


def shuffled(jumps: Array) -> Array:
    """0 .. n, number i exchanged with number i + jumps[i] in turn.

    >>> shuffled(np.array([2, 0, 1]))
    array([2, 1, 3, 0])
    """
    order = np.arange(jumps.size + 1)
    shuffle = _shuffle()
    if shuffle is not None:
        shuffle(threads.entry(), _one()[1], order, jumps, jumps.size)
        return order
    held = order.tolist()
    for i, jump in enumerate(jumps.tolist()):
        held[i], held[i + jump] = held[i + jump], held[i]
    return np.array(held)
