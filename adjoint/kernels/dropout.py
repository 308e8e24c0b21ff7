"""Dropout in one pass over the elements, given a bit for each.

The backward pass calls `dropout` on the cotangent with the same bits.
"""
from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjoint.kernels import codegen, llvm, threads
from adjoint.kernels.codegen import Frame
from adjoint.kernels.ir import Value, vec
from adjoint.kernels.loops import geometry

Array = NDArray[Any]
_GROUPS = 128            # blocks of 64 elements in a chunk
_AHEAD = 512             # elements fetched ahead: CPUs do not foresee the loads under a mask here


def _emit(stored: str, register: str, stream: bool, shifted: bool, frame: Frame) -> None:
    """x, bits, out; reals: scale and, where shifted, what is added where kept and where not."""
    f = frame.f
    group, blocks, count = (frame.geometry(i) for i in (1, 2, 3))
    x, bits, out = frame.array(0), frame.array(1), frame.array(2)
    ty = vec(16, register)
    scale = f.splat(frame.real(0, register), 16)
    zero = f.const(ty, 0.0)
    shifts = [f.splat(frame.real(i, register), 16) for i in (1, 2)] if shifted else []

    def block(g: Value, _: list[Value]) -> list[Value]:
        base = g * 64

        def piece(w: int, mask: Value | None, around: bool = False) -> None:
            at = base + 16 * w
            keep = f.bits(f.load(f.at(bits, "i16", g * 4 + w), "i16"), vec(16, "i1"))
            v = codegen.load(f, f.at(x, stored, at), stored, 16, mask=mask)
            v = v * f.select(keep, scale, zero)
            if shifted:
                v = v + f.select(keep, *shifts)
            codegen.store(f, v, f.at(out, stored, at), stored, mask=mask, stream=around)

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
@llvm.generating
def _compiled(dtype: np.dtype[Any], stream: bool, shifted: bool) -> Any:
    kinds = codegen.storage(dtype)
    if kinds is None or kinds[1] == "i1" or shifted and dtype.itemsize == 2:
        return None
    return codegen.build("dropout", (*kinds, repr(stream), repr(shifted)),
                         functools.partial(_emit, *kinds, stream, shifted), arrays=3,
                         reals=3 if shifted else 1)


@functools.lru_cache(maxsize=1024)
def _shape(count: int) -> tuple[Any, int]:
    blocks = -(-count // 64)
    group = _GROUPS if blocks > 2 * _GROUPS else blocks
    return geometry([-(-blocks // group), group, blocks, count])


def dropout(x: Array, bits: Array, shape: tuple[int, ...], scale: float, *shifts: float) -> Any:
    """x * scale where the mask keeps an element, x * 0 elsewhere.

    Args:
        x: C-contiguous, float, of the mask's shape.
        bits: what `dropout_numpy.drawn_mask` gives for `shape`.
        shifts: two numbers: what is added where the mask keeps an element, and elsewhere.

    Returns:
        A new array, or NotImplemented where strides or dtype do not fit (then
        `dropout_numpy` gives the same numbers).

    >>> from adjoint.kernels.dropout_numpy import drawn_mask, dropout_numpy
    >>> from adjoint.kernels.stream import Stream
    >>> x, bits = np.ones(1000, np.float32), drawn_mask(Stream(3), (1000,), 0.5)
    >>> y = dropout(x, bits, (1000,), 2.0)
    >>> y is NotImplemented or bool((y == dropout_numpy(x, bits, (1000,), 2.0)).all())
    True
    """
    if type(x) is not np.ndarray or not x.flags.carray or x.size == 0 or x.shape != shape:
        return NotImplemented
    entry = _compiled(x.dtype, False, bool(shifts))
    if entry is None or not bits.flags.carray:
        return NotImplemented
    out = np.empty(x.shape, x.dtype)
    if codegen.streams(x.nbytes) and out.ctypes.data % 64 == 0:
        entry = _compiled(x.dtype, True, bool(shifts)) or entry
    entry(threads.entry(), _shape(x.size)[1], x, bits, out, scale, *shifts)
    return out
