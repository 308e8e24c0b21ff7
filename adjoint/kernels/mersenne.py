"""The Mersenne twister (mt19937) a block of 624 words at a time, in machine code.

Source: Matsumoto and Nishimura, "Mersenne twister: a 623-dimensionally equidistributed uniform
pseudo-random number generator" (1998). A new word depends on those 624, 623 and 227 places before
it, so 16 of them are made at once, and 39 vectors are a block. What is made of the words (floats,
flags) is made while they are in registers.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjoint.kernels import codegen, llvm, threads
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
def _compiled(kind: str, odd: bool) -> Any:
    return codegen.build("mersenne", (kind, repr(odd)), functools.partial(_emit, kind, odd),
                         arrays=2, integers=2, reals=3)


@functools.cache
def _one() -> tuple[Any, int]:
    return geometry([1])


def available() -> bool:
    """Whether `blocks` can be called here."""
    return llvm.available()


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
    entry(threads.entry(), _one()[1], state, out, count, carry or 0, *reals)
    return int(state[-1])


# ------------------------------------------------------------------ a few numbers
def _emit_few(kind: str, frame: Frame) -> None:
    """words and place, out; integers: how many; reals: start, width, end."""
    f, x, out = frame.f, frame.array(0), frame.array(1)
    place = f.at(x, "i32", N)
    used = f.cast("zext", f.load(place, "i32"), "i64")
    per, ty = (2 if kind == "double" else 1), "float" if kind == "float" else "double"

    def word(k: Value) -> Value:
        return _temper(f.load(f.at(x, "i32", used + k), "i32"))

    def one(k: Value, _: list[Value]) -> list[Value]:
        if kind == "words":
            f.store(word(k), f.at(out, "i32", k))
            return []
        start, width, stop = (frame.real(i, ty) for i in (0, 1, 2))
        if kind == "float":
            u = f.cast("sitofp", word(k) & 0xFFFFFF, ty) * f.const(ty, 2.0**-24)
        else:
            upper, lower = (f.cast("zext", word(k * 2 + i), "i64") for i in (0, 1))
            u = f.cast("sitofp", ((upper << 32) | lower) & _PAIR, ty) * f.const(ty, 2.0**-53)
        v = f.fma(u, width, start)
        f.store(f.select(v.compare("oeq", stop), start, v), f.at(out, ty, k))
        return []
    n = frame.integer(0)
    f.loop(f.i64(0), n, 1, [], one)
    f.store(f.cast("trunc", used + n * per, "i32"), place)


@functools.lru_cache(maxsize=4)
def _few(kind: str) -> Any:
    return codegen.build("few", (kind,), functools.partial(_emit_few, kind), arrays=2, integers=1,
                         reals=3)


def few(kind: str, memory: Array, out: Array, reals: tuple[float, float, float]) -> None:
    """As `blocks`, for numbers whose words are there already. `memory`: 624 words, and how many of
    them were used, which moves on."""
    _few(kind)(threads.entry(), _one()[1], memory, out, out.size, *reals)


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
def _flagging(odd: bool) -> Any:
    return codegen.build("flags", (repr(odd),), functools.partial(_emit_flags, odd), arrays=2,
                         integers=2)


def _emit_shift(frame: Frame) -> None:
    """bits; integers: the first bit, below 8, and the bytes. Move it to the front, in place."""
    f, bits = frame.f, frame.array(0)

    def eight(k: Value, _: list[Value]) -> list[Value]:
        low, high = (f.load(f.at(bits, "i64", k + d), "i64", align=1) for d in (0, 1))
        f.store(f.intrinsic("fshr", high, low, frame.integer(0)), f.at(bits, "i64", k), align=1)
        return []
    f.loop(f.i64(0), frame.integer(1) >> 3, 1, [], eight)


@functools.cache
def _shift() -> Any:
    return codegen.build("shift", (), _emit_shift, arrays=1, integers=2)


def bits(state: Array, used: int, n: int, limit: int) -> tuple[Array, int]:
    """A bit for each of the next `n` numbers of 53 bits, whether it is below the limit: the lowest
    first, as many bytes as whole 64s have, in memory that is not NumPy's, where it would count as
    the user's. Also, how many words of the state are used then.

    Args:
        state: as for `blocks`; `used` words of it were drawn.
    """
    end, size = used + 2 * n, -(-n // 64) * 8
    count, first = -(-end // N), (used + 1) // 2
    held = np.frombuffer(bytearray(max(count * _BYTES, first // 8 + size) + 8), np.uint8)
    _flagging(used % 2 == 1)(threads.entry(), _one()[1], state, held, count, limit)
    found = held[first // 8:]
    if first % 8:
        _shift()(threads.entry(), _one()[1], found, first % 8, size)
    return found[:size], end - (count - 1) * N


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
def _shuffle() -> Any:
    return codegen.build("shuffle", (), _emit_shuffle, arrays=2, integers=1)


def shuffled(jumps: Array) -> Array:
    """0 .. n, number i exchanged with number i + jumps[i] in turn.

    >>> shuffled(np.array([2, 0, 1]))
    array([2, 1, 3, 0])
    """
    order = np.arange(jumps.size + 1)
    if available():
        _shuffle()(threads.entry(), _one()[1], order, jumps, jumps.size)
        return order
    held = order.tolist()
    for i, jump in enumerate(jumps.tolist()):
        held[i], held[i + jump] = held[i + jump], held[i]
    return np.array(held)
