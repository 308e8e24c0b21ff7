"""The numbers of PyTorch's CPU generator: mt19937, and how each function makes its numbers of it.

A float32 takes the lower 24 bits of a word; a float64 the lower 53 bits of two words, the first of
which is the upper half. Normal numbers come in pairs by Box and Muller's transform (1958): where
sixteen or more are filled at once, numbers i and i + 8 of every sixteen are a pair, else one after
the other, and half a pair waits in the generator. Facts from PyTorch's sources (ATen,
core/DistributionsHelper.h, native/cpu/DistributionTemplates.h) and from running it.
"""
from __future__ import annotations

import ctypes
import functools
import importlib
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
_LOW53 = np.uint64(2**53 - 1)
_N = 624                 # words of a block
_BULK = 1500             # words from which a call of machine code pays
FEW = 256                # numbers that take less words than a block has
_WIDE = 2**28            # ranges of integers from here on take two words a number
_NORMAL = {F32: "normal float", F64: "normal double"}
_TAPE = FEW - 1          # doubles drawn ahead for what takes them one by one


def _blank() -> Any:
    """A seed for what is seeded anew at once: its words are in no memory that is counted, so that
    the first draw of a step takes what the others take."""
    from numpy.random.bit_generator import ISeedSequence

    class Blank(ISeedSequence):
        def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Array:
            return np.frombuffer(bytes(n_words * np.dtype(dtype).itemsize), dtype)
    return Blank()


class Stream:
    """A generator's state, and draws as arrays. Threads may share it: a draw is whole.

    >>> s = Stream(0)
    >>> s.uniform((2,), F32)
    array([0.4962566, 0.7682218], dtype=float32)
    >>> s.integers((3,), 0, 10)
    array([3, 0, 3])
    """

    def __init__(self, seed: int) -> None:
        self._lock = threading.RLock()                       # for the length of one draw
        self._seen = b""
        self._scratch = np.frombuffer(bytearray(4 * (_N + 16)), np.uint32)
        self._half = np.frombuffer(bytearray(8), np.float64)     # for machine code: `next_double`
        self.seed(seed)

    @functools.cached_property
    def _bits(self) -> Any:
        """NumPy's bit generator, made at the first draw: `numpy.random` takes 10 ms to import."""
        with self._lock:
            made: Any = self.__dict__.get("_bits")           # of a thread that was faster
            if made is None:
                made = self.__dict__["_bits"] = np.random.MT19937(_blank())
                made._legacy_seeding(self._first)            # what RandomState(seed) does
            return made

    @functools.cached_property
    def _memory(self) -> Array:
        """The bit generator's own memory: the words, and the place."""
        held = (ctypes.c_uint32 * (_N + 1)).from_address(self._bits.ctypes.state_address)
        return np.frombuffer(memoryview(held), np.uint32)

    # ------------------------------------------------------------------ state
    def seed(self, seed: int) -> None:
        """Begin the sequence of the lower 32 bits of `seed`."""
        with self._lock:
            self._first = seed % 2**32
            if "_bits" in self.__dict__:
                self._bits._legacy_seeding(self._first)
            self.next_float: float | None = None
            self.next_double: float | None = None

    def words_at(self) -> tuple[bytes, int]:
        """The 624 words, and how many of them were used. While the words are those of the call
        before, it is the same object, so that many states of one block take the memory of one."""
        with self._lock:
            words, used = self._memory[:_N].tobytes(), int(self._memory[_N])
        if words != self._seen:
            self._seen = words
        return self._seen, used

    def place(self, words: Any, used: int) -> None:
        """Continue from these words (bytes, or an array)."""
        held = np.frombuffer(words, np.uint32) if isinstance(words, bytes) else words
        with self._lock:
            self._memory[:_N] = held
            self._memory[_N] = used

    def hold(self) -> tuple[Any, ...]:
        """Everything that `back_to` needs; little memory where nothing is drawn in between."""
        return (*self.words_at(), self.next_float, self.next_double)

    def back_to(self, held: tuple[Any, ...]) -> None:
        """Continue from what `hold` gave."""
        self.place(*held[:2])
        self.next_float, self.next_double = held[2:]

    # ------------------------------------------------------------------ words
    def raw(self, n: int) -> Array:
        """`n` words, as uint64."""
        return np.asarray(self._bits.random_raw(n))

    def words(self, n: int) -> Array:
        """`n` words, as uint32."""
        if 0 < n < FEW:
            out = np.empty(n, np.uint32)
            if self.few("words", out, n):
                return out
        return self._bulk("words", n, np.dtype(np.uint32), lambda w: w)

    def long(self, n: int) -> Array:
        """`n` numbers of 64 bits."""
        return _paired(self.words(2 * n))

    def below(self, n: int, p: float) -> Array:
        """Which of `n` uniform numbers of 53 bits are less than `p`.

        >>> Stream(0).below(4, 0.5)
        array([False, False,  True, False])
        """
        if n * 2 >= _BULK and _code().available():
            return np.unpackbits(self.bits(n, p), count=n, bitorder="little").view(np.bool_)
        return self._below(n, p)

    def _below(self, n: int, p: float) -> Array:
        """`below` of few numbers, or without machine code."""
        limit = math.ceil(p * 2.0**53)
        if n < FEW:
            out = np.empty(n, np.bool_)
            if self.few("below", out, 2 * n, (limit, 0)):
                return out
        return (_paired(self.words(2 * n)) & _LOW53) < np.uint64(limit)

    def bits(self, n: int, p: float) -> Array:
        """`below` as bits (uint8), the lowest first, up to a multiple of 64 of them."""
        with self._lock:
            self._scratch[:_N] = self._memory[:_N]
            made = _code().bits(self._scratch, int(self._memory[_N]), n, math.ceil(p * 2.0**53))
            if made is not None:
                self._memory[:_N] = self._scratch[:_N]
                out, self._memory[_N] = made
                return out
        out = np.zeros(-(-n // 64) * 8, np.uint8)
        out[:-(-n // 8)] = np.packbits(self._below(n, p), bitorder="little")
        return out

    def uniform(self, shape: Any, dtype: np.dtype[Any], low: float = 0.0,
                high: float = 1.0, out: Array | None = None) -> Array:
        """Uniform numbers; 16-bit floats are float32 rounded. `out`, in C order, may be where they
        then lie."""
        n = math.prod(shape)
        if n < FEW and (dtype is F32 or dtype is F64):
            out = np.empty(shape, dtype) if out is None else out
            if dtype is F32:
                done = self.few("float", out, n, reals=singles(float(low), float(high)))
            else:
                done = self.few("double", out, 2 * n, reals=(low, high - low, high))
            if done:
                return out
        if dtype == F64:
            flat = None if out is None else out.reshape(-1)
            found = self._bulk("double", n, F64, lambda w: _open(
                fused(_real(w), high - low, low), low, high), (low, high - low, high), flat)
            if found is flat and out is not None:
                return out
        else:
            start, width, stop = reals = singles(float(low), float(high))
            found = self._bulk("float", n, F32, lambda w: _open(
                _fused32((w & 0xFFFFFF) * 2.0**-24, width, start), start, stop), reals=reals)
            if dtype != F32:
                found = _open(found.astype(dtype), low, high)
        return found.reshape(shape)

    def few(self, kind: str, out: Array, words: int, integers: tuple[int, int] = (0, 0),
             reals: tuple[float, float, float] = (0.0, 1.0, 1.0)) -> bool:
        """Fill `out` by one call of machine code, which takes so many words (a block at most);
        False, with nothing done, where there is none. No other memory is asked for, wherever the
        block ends: what a step takes must not hang on how much was drawn before."""
        code = _code()
        made = code.few_entry(kind) if _machine() else None
        if made is None:
            return False
        entry, geometry = made
        with self._lock:
            memory = self._memory
            left = _N - memory.item(_N)
            held = memory if words <= left else self._both(words, left)
            entry(code.threads.entry(), geometry, held, out, self._half, out.size, *integers,
                  *reals)
            if held is not memory:
                memory[_N] = words - left
        return True

    def _both(self, words: int, left: int) -> Array:
        """The next words where a block has but `left` of them, and the next block in memory."""
        memory, held = self._memory, self._scratch
        held[:left] = memory[_N - left:_N]
        memory[_N] = _N
        self._bits.random_raw()                              # makes the next block
        held[left:words] = memory[:words - left]
        held[_N] = 0
        return held

    @staticmethod
    def quick(kind: str) -> bool:
        """Whether `few` has machine code for that kind."""
        return _machine() and _code().few_entry(kind) is not None

    def _bulk(self, kind: str, n: int, dtype: np.dtype[Any], made: Callable[[Array], Array],
              reals: tuple[float, float, float] = (0.0, 1.0, 1.0),
              out: Array | None = None) -> Array:
        """`n` numbers, with no memory but that of the result (`out`, if given), wherever the block
        ends; `made` makes them of words in NumPy where there is no machine code."""
        code, per = _code(), 2 if kind == "double" else 1
        with self._lock:
            if code.ready(kind, False, True) and (per == 1 or code.ready(kind, True, True)):
                out = np.empty(n, dtype) if out is None else out
                left = _N - int(self._memory[_N])
                if n * per > left:
                    self._across(kind, out, per, left, reals)
                else:
                    code.few(kind, self._memory, out, reals=reals)
                return out
            return made(self.raw(n * per)).astype(dtype, copy=False)

    def _across(self, kind: str, out: Array, per: int, left: int,
                reals: tuple[float, float, float]) -> None:
        """The rest of a block, whole blocks, and the beginning of another. A pair whose first word
        ends a block begins with what is carried over."""
        code, memory, scratch = _code(), self._memory, self._scratch
        done, carry = left // per, None
        if done:
            code.few(kind, memory, out[:done], reals=reals)
        if left % per:
            carry = int(self._bits.random_raw())             # the last of the block
        count = (out.size * per - left) // _N
        if count:
            scratch[:_N] = memory[:_N]
            code.blocks(kind, scratch, out[done:], count, carry=carry, reals=reals)
            memory[:_N] = scratch[:_N]
            done += count * (_N // per)
        rest = (out.size - done) * per - (carry is not None)
        if not rest:
            return
        scratch[0] = memory[_N - 1]
        self._bits.random_raw()                              # makes the next block
        memory[_N] = 0
        if carry is None:
            code.few(kind, memory, out[done:], reals=reals)
            return
        scratch[1:rest + 1], scratch[_N] = memory[:rest], 0
        code.few(kind, scratch, out[done:], reals=reals)
        memory[_N] = rest

    # ------------------------------------------------------------------ normal numbers
    def normal(self, shape: Any, dtype: np.dtype[Any], mean: float = 0.0, std: float = 1.0, *,
               single: bool = False, out: Array | None = None) -> Array:
        """Normal numbers; `single` where PyTorch draws them one by one although there are many.
        `out` as for `uniform`."""
        n = math.prod(shape)
        if n < 16 or single:
            if 0 < n < FEW and (dtype is F32 or dtype is F64):
                out = np.empty(shape, dtype) if out is None else out
                if self._few_normal(out, n, mean, std):
                    return out
            with self._lock:
                one_by_one = self.pairs(n)
            return fused(one_by_one, std, mean).astype(dtype).reshape(shape)
        if n < FEW and dtype is F32:
            out = np.empty(shape, dtype) if out is None else out
            if self.few("sixteens", out, n + (16 if n % 16 else 0), reals=(mean, std, 0.0)):
                return out
        whole, kind = n - n % 16, F64 if dtype == F64 else F32
        drawn = n if dtype.itemsize > 2 else whole         # the last are drawn again all the same
        held = self.uniform((drawn,), kind)
        if drawn < n:
            held = np.concatenate([held, np.empty(n - drawn, kind)])
        _pairs().fill(held[:whole], mean, std)
        if whole < n:                                      # (by now another thread may have drawn)
            last = self.uniform((16,), kind)
            _pairs().fill(last, mean, std)
            held[-16:] = last
        return held.reshape(shape).astype(dtype, copy=False)

    def _few_normal(self, out: Array, n: int, mean: float, std: float) -> bool:
        """`few` of normal numbers one after the other."""
        with self._lock:
            waits = int(self.next_double is not None)
            if waits:
                self._half[0] = self.next_double
            words = 4 * ((n - waits + 1) // 2)
            if not has_library() or not self.few(_NORMAL[out.dtype], out, words, (waits, 0),
                                                      (mean, std, 0.0)):
                return False
            self.next_double = self._half.item() if (n - waits) % 2 else None
        return True

    def pairs(self, n: int) -> Array:
        """`n` normal numbers of float64 one after the other; half a pair waits for the next call.
        """
        out = np.empty(n)
        begin = int(self.next_double is not None and n > 0)
        if begin:
            out[0], self.next_double = self.next_double, None
        if n > begin:
            both: list[float] = []
            for u1, u2 in self.uniform((-(-(n - begin) // 2), 2), F64).tolist():
                r, theta = math.sqrt(-2.0 * math.log1p(-u2)), 2.0 * math.pi * u1
                both += (r * math.cos(theta), r * math.sin(theta))
            out[begin:] = both[:n - begin]
            if len(both) > n - begin:
                self.next_double = both[-1]
        return out

    # ------------------------------------------------------------------ integers
    def integers(self, shape: Any, low: int, high: int) -> Array:
        """Integers of [low, high), as int64."""
        n, width = math.prod(shape), high - low
        if width >= 2**64:
            drawn = self.long(n)
        elif width >= _WIDE:
            drawn = self.long(n) % np.uint64(width)
        else:
            out = np.empty(shape, np.int64)
            if n < FEW and -2**63 <= low < 2**63 and self.few("range", out, n, (low, width)):
                return out
            drawn = (self.words(n) % np.uint32(width)).astype(np.uint64)
        return (drawn + np.uint64(low % 2**64)).view(np.int64).reshape(shape)

    def permutation(self, n: int) -> Array:
        """A permutation of 0 .. n - 1 (Fisher and Yates, from the front)."""
        if n < 2:
            return np.arange(n)
        if n < 2**32 // 20:
            jumps = self.words(n - 1) % np.arange(n, 1, -1, dtype=np.uint32)
        else:
            jumps = self.long(n - 1) % np.arange(n, 1, -1, dtype=np.uint64)
        return _code().shuffled(jumps.astype(np.int64))

    # ------------------------------------------------------------------ one by one
    @contextmanager
    def tape(self) -> Iterator[Tape]:
        """Uniform numbers one by one; afterwards the stream stands behind the last that was taken.
        """
        with self._lock:
            held, taken = self.words_at(), Tape(self)
            try:
                yield taken
            finally:
                self.place(*held)
                if taken.used:
                    self._bits.random_raw(2 * taken.used, False)


class Tape:
    """`uniform()` and `normal()`: numbers of float64, one at a time. What it holds at most does not
    hang on how many are taken."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._ahead = self._drawn()
        self.used = 0

    def _drawn(self) -> Iterator[float]:
        return iter(self._stream.uniform((_TAPE,), F64).tolist())

    def uniform(self) -> float:
        """A number of [0, 1)."""
        self.used += 1
        for u in self._ahead:
            return u
        self._ahead = self._drawn()
        return next(self._ahead)

    def normal(self) -> float:
        """A standard normal number; the other of the pair waits in the stream."""
        waiting = self._stream.next_double
        if waiting is not None:
            self._stream.next_double = None
            return waiting
        u1, u2 = self.uniform(), self.uniform()
        r, theta = math.sqrt(-2.0 * math.log1p(-u2)), 2.0 * math.pi * u1
        self._stream.next_double = r * math.sin(theta)
        return r * math.cos(theta)


def _paired(words: Array) -> Array:
    w = words.astype(np.uint64, copy=False)
    return (w[0::2] << np.uint64(32)) | w[1::2]


def _real(words: Array) -> Array:
    return (_paired(words) & _LOW53) * 2.0**-53


def _open(x: Array, low: Any, high: Any) -> Array:
    """What was rounded up to the end begins again, in place."""
    x[x == x.dtype.type(high)] = low
    return x


@functools.lru_cache(maxsize=64)
@functools.lru_cache(256)
def singles(low: float, high: float) -> tuple[float, float, float]:
    """Start, width and end as float32 has them."""
    start, stop = np.float32(low), np.float32(high)
    return float(start), float(stop - start), float(stop)


def _fused32(x: Array, a: Any, b: Any) -> Array:
    """x a + b rounded once."""
    return (np.asarray(x, F64) * F64.type(a) + F64.type(b)).astype(F32)


@functools.cache
def _code() -> Any:
    """Imported when first used: programs that draw nothing need no compiler."""
    return importlib.import_module("adjoint.kernels.mersenne")


@functools.cache
def _machine() -> bool:
    return bool(_code().available())


@functools.cache
def has_library() -> bool:
    """Whether `few` makes numbers by functions of the C library."""
    return bool(_machine() and _code().normals())


@functools.cache
def _pairs() -> Any:
    return importlib.import_module("adjoint.kernels.box_muller")


def fused(x: Array, a: float, b: float) -> Array:
    """x a + b rounded once: the product's error by halves of 26 bits (Dekker 1971), the sum's by
    Knuth."""
    if a == 1.0 and b == 0.0:
        return x
    split = 134217729.0
    xh = x * split - (x * split - x)
    ah = a * split - (a * split - a)
    p = x * a
    e = ((xh * ah - p) + xh * (a - ah) + (x - xh) * ah) + (x - xh) * (a - ah)
    s = p + b
    v = s - p
    return s + (((p - (s - v)) + (b - v)) + e)
