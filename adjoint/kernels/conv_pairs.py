"""Convolution of bfloat16 two by two, where the CPU multiplies pairs (AVX512-BF16).

The kernels of float32 run on words: a word holds two bfloat16 numbers that are neighbours along the
sum, and the micro-kernel adds both products to a float32. Forward, and for the gradient of the
input, a word is an element of two channels; for the gradient of the weight, which sums over images,
an element of two images. An odd one has zeros beside it. Words are only moved until they are
multiplied, so that no kernel but the last knows what they hold; half of the bytes and of the
multiplications of float32. Results are rounded once. That instruction takes subnormal numbers for
zero.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint.base.errors import CompilerLost

from . import codegen, conv_depth, conv_few, convert, llvm, threads
from .codegen import Frame
from .conv_numpy import Array, ConvSpec
from .gemm_emit import FLOATS
from .gemm_plan import machine
from .ir import Value, vec
from .loops import geometry

_BLOCK = 1 << 14  # words of a chunk
_CHANNELS = 8  # of a group, from which padding, packing and rounding are paid for

Run = Callable[[Array, Array, Array, ConvSpec, Array | None], None]


def supported(spec: ConvSpec, dtype: np.dtype[Any]) -> bool:
    """Whether operands of this type are bfloat16, the CPU multiplies pairs of it, and there are
    channels enough."""
    if FLOATS.get(dtype.name) != "i16" or spec.channels // spec.groups < _CHANNELS or spec.dims > 3:
        return False
    if conv_depth.supported(spec, 4) or conv_few.supported(spec, 4):
        return False
    return machine().bits == 512 and "avx512bf16" in llvm.host_features()


@functools.lru_cache(maxsize=1024)
def _cuts(outer: int, count: int, inner: int) -> tuple[Any, int]:
    """[chunks, rows, rows a chunk, chunks a row, words a chunk, count, words, inner] (see `_emit`).

    """
    words = -(-count // 2)
    rows = outer * words
    together = max(1, _BLOCK // inner)
    apart = -(-inner // _BLOCK)
    return geometry([-(-rows // together) * apart, rows, together, apart,
                     -(-inner // (apart * 64)) * 64, count, words, inner])


def _emit(frame: Frame) -> None:
    """Row r of the words: of rows 2 (r % words) and the next of matrix r / words, side by side."""
    f, n = frame.f, codegen.width("float")
    x, y = frame.array(0), frame.array(1)
    rows, together, apart, most, count, words, inner = (frame.geometry(i) for i in range(1, 8))

    def row(r: Value, first: Value) -> None:
        matrix, place = r / words, (r % words) * 2
        low = f.at(x, "i16", (matrix * count + place) * inner)
        high, to = f.at(low, "i16", inner), f.at(y, "i32", r * inner)
        stop = f.intrinsic("smin", first + most, inner)

        def wide(p: Value, i: Value, mask: Value | None) -> Value:
            return f.cast("zext", f.load(f.at(p, "i16", i), vec(n, "i16"), align=2, mask=mask),
                          vec(n, "i32"))

        def both(i: Value, mask: Value | None, _: list[Value]) -> list[Value]:
            word = wide(low, i, mask) | (wide(high, i, mask) << 16)
            f.store(word, f.at(to, "i32", i), align=4, mask=mask)
            return []

        def one(i: Value, mask: Value | None, _: list[Value]) -> list[Value]:
            f.store(wide(low, i, mask), f.at(to, "i32", i), align=4, mask=mask)
            return []

        paired = f.select((place + 1).compare("slt", count), stop, first)
        f.vector_loop(first, paired, n, [], both)
        f.vector_loop(f.select((place + 1).compare("slt", count), stop, first), stop, n, [], one)

    def chunk(c: Value, _: list[Value]) -> list[Value]:
        r0, first = (c / apart) * together, (c % apart) * most

        def turn(r: Value, _: list[Value]) -> list[Value]:
            row(r, first)
            return []
        f.loop(r0, f.intrinsic("smin", r0 + together, rows), 1, [], turn)
        return []
    f.loop(frame.first, frame.end, 1, [], chunk)


@functools.cache
@llvm.generating
def _entry() -> Any:
    return codegen.build("woven", (), _emit, arrays=2)


def woven(x: Array, outer: int, count: int) -> Array:
    """`x` as `outer` matrices of `count` rows, with rows 2 i and 2 i + 1 joined word by word, as
    float32: `(outer, ceil(count / 2), ...)`."""
    x = np.ascontiguousarray(x)
    inner = x.size // (outer * count)
    entry = _entry()
    if entry is None:
        raise CompilerLost("no kernel joins rows of bfloat16")
    words = np.empty((outer, -(-count // 2), inner), np.float32)
    entry(threads.light_entry(), _cuts(outer, count, inner)[1], x, words)
    return words


def forward(x: Array, w: Array, spec: ConvSpec, bias: Array | None, run: Run) -> Array:
    """The convolution, `(N, O, *P)`, in the type of x; `bias` is float32. `run(left, x, out, spec,
    bias)` computes with words."""
    group = spec.channels // spec.groups
    half = -(-group // 2)
    inner = spec._replace(channels=half * spec.groups)
    words = woven(x, spec.batch * spec.groups, group)
    left = woven(w, spec.filters, group)
    out = np.empty((spec.batch, spec.filters, *spec.out), np.float32)
    row = None if bias is None or spec.groups > 1 else np.ascontiguousarray(bias)
    run(left.reshape(spec.filters, half, *spec.kernel),
        words.reshape(spec.batch, inner.channels, *spec.space), out, inner, row)
    if bias is not None and row is None:
        out += bias.reshape(-1, *(1,) * spec.dims)
    return convert.stored_as(out, x.dtype)


def grad_weight(ct: Array, x: Array, spec: ConvSpec, total: Callable[..., Array]) -> Array:
    """The cotangent of the weight; `total(ct, x, spec)` sums it from words."""
    inner = spec._replace(batch=-(-spec.batch // 2))
    left = woven(ct, 1, spec.batch).reshape(inner.batch, spec.filters, *spec.out)
    words = woven(x, 1, spec.batch).reshape(inner.batch, spec.channels, *spec.space)
    return convert.stored_as(total(left, words, inner), x.dtype)
