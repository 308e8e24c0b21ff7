"""Dropout in one pass: the mask is recomputed from (seed, offset, position), nothing is stored.

The backward pass calls `dropout` on the cotangent with the same seed and offset. The generator is
that of `dropout_numpy`, bit for bit.
"""
from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjoint.kernels import codegen, llvm, threads
from adjoint.kernels.codegen import Frame
from adjoint.kernels.dropout_numpy import (
    LOW,
    M0,
    M1,
    ROUNDS,
    W0,
    W1,
    kept_scale,
    threshold,
)
from adjoint.kernels.ir import Function, Value, vec
from adjoint.kernels.loops import geometry

Array = NDArray[Any]
_GROUPS = 128            # blocks of 64 elements in a chunk
_AHEAD = 512             # elements fetched ahead: CPUs do not foresee the loads under a mask here


def philox(f: Function, counter: Value, offset: Value, seed: Value) -> list[Value]:
    """Four vectors of 32 random bits for a vector of 64-bit counters.

    High halves of lanes are left as they come: the CPU's product of low halves ignores them.
    """
    ty = counter.ty

    def both(scalar: Value) -> tuple[Value, Value]:
        low, high = scalar & LOW, scalar >> 32
        return low, high
    x = [counter, counter >> 32, *(f.splat(v, 16) for v in both(offset))]
    k0, k1 = both(seed)
    for _ in range(ROUNDS):
        a, b = (x[0] & LOW) * f.const(ty, M0), (x[2] & LOW) * f.const(ty, M1)
        x = [(b >> 32) ^ x[1] ^ f.splat(k0, 16), b, (a >> 32) ^ x[3] ^ f.splat(k1, 16), a]
        k0, k1 = (k0 + W0) & LOW, (k1 + W1) & LOW
    return [f.cast("trunc", v, vec(16, "i32")) for v in x]


def _emit(stored: str, register: str, stream: bool, frame: Frame) -> None:
    """x, out; integers: threshold, seed, offset; reals: scale."""
    f = frame.f
    group, blocks, count = (frame.geometry(i) for i in (1, 2, 3))
    x, out = frame.array(0), frame.array(1)
    limit = f.splat(f.cast("trunc", frame.integer(0), "i32"), 16)
    possible = f.splat(frame.integer(0).compare("sle", LOW), 16)     # above, nothing is kept
    seed, offset = frame.integer(1), frame.integer(2)
    ty = vec(16, register)
    scale = f.splat(frame.real(0, register), 16)
    zero = f.const(ty, 0.0)

    def block(g: Value, _: list[Value]) -> list[Value]:
        words = philox(f, f.splat(g * 16, 16) + f.iota(16), offset, seed)
        base = g * 64

        def piece(w: int, mask: Value | None, around: bool = False) -> None:
            at = base + 16 * w
            v = codegen.load(f, f.at(x, stored, at), stored, 16, mask=mask) * scale
            keep = words[w].compare("uge", limit) & possible
            codegen.store(f, f.select(keep, v, zero), f.at(out, stored, at), stored, mask=mask,
                          stream=around)

        def whole() -> list[Value]:
            for w in range(4):
                f.fetch(f.at(x, stored, base + (16 * w + _AHEAD)))
                piece(w, None, stream)
            return []

        def rest() -> list[Value]:
            for w in range(4):
                place = f.splat(base + 16 * w, 16) + f.iota(16)
                piece(w, place.compare("slt", f.splat(count, 16)))
            return []
        fits = (base + 64).compare("sle", count)
        f.when(fits, whole)
        f.when(fits ^ True, rest)
        return []

    first = frame.first * group
    f.loop(first, f.intrinsic("smin", frame.end * group, blocks), 1, [], block)
    if stream:
        codegen.fence(f)


@functools.lru_cache(maxsize=16)
def _compiled(dtype: np.dtype[Any], stream: bool) -> Any:
    kinds = codegen.storage(dtype) if llvm.available() else None
    if kinds is None or kinds[1] == "i1":
        return None
    return codegen.build("dropout", (*kinds, repr(stream)),
                         functools.partial(_emit, *kinds, stream), arrays=2, integers=3, reals=1)


@functools.lru_cache(maxsize=1024)
def _shape(count: int) -> tuple[Any, int]:
    blocks = -(-count // 64)
    group = _GROUPS if blocks > 2 * _GROUPS else blocks
    return geometry([-(-blocks // group), group, blocks, count])


def _signed(word: int) -> int:
    word &= 2**64 - 1
    return word - 2**64 if word >= 2**63 else word


def dropout(x: Array, *, p: float, seed: int, offset: int = 0, scale: float | None = None) -> Any:
    """x * scale where the generator keeps an element, 0 elsewhere.

    Args:
        x: C-contiguous, float.
        p: probability of zeroing, in [0, 1].
        seed, offset: 64-bit integers; equal ones give equal masks for equal numbers of elements.
        scale: 1 / (1 - p) unless given.

    Returns:
        A new array, or NotImplemented where strides or dtype do not fit (then
        `dropout_numpy` gives the same numbers).

    >>> from adjoint.kernels.dropout_numpy import dropout_numpy
    >>> x = np.ones(1000, np.float32)
    >>> y = dropout(x, p=0.5, seed=3)
    >>> y is NotImplemented or bool((y == dropout_numpy(x, p=0.5, seed=3)).all())
    True
    """
    if type(x) is not np.ndarray or not x.flags.carray or x.size == 0:
        return NotImplemented
    out = np.empty(x.shape, x.dtype)
    entry = _compiled(x.dtype, codegen.streams(x.nbytes) and out.ctypes.data % 64 == 0)
    if entry is None:
        return NotImplemented
    entry(threads.entry(), _shape(x.size)[1], x, out, threshold(p), _signed(seed),
          _signed(offset), kept_scale(p) if scale is None else scale)
    return out
