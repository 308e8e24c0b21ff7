"""Contiguous arrays in another dtype: float32 to the 16-bit floats and back, bytes to float32.

NumPy converts 16-bit floats one by one. Rounding is to nearest, ties to even; nan stays nan.
"""
from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjoint.kernels import codegen, llvm, threads
from adjoint.kernels.codegen import F32, Frame
from adjoint.kernels.ir import Value, vec
from adjoint.kernels.loops import geometry

Array = NDArray[Any]
_BLOCK = 1 << 15        # elements of a chunk
_U8, _F32 = np.dtype(np.uint8), np.dtype(np.float32)


@functools.lru_cache(maxsize=4096)
def _geometry(size: int) -> tuple[Any, int]:
    return geometry([-(-size // _BLOCK), size])


def _emit(source: str, target: str, stream: bool, frame: Frame) -> None:
    f, size = frame.f, frame.geometry(1)
    n = codegen.width("float")
    x, y = frame.array(0), frame.array(1)

    def chunk(c: Value, _: list[Value]) -> list[Value]:
        def turn(j: Value, mask: Value | None, around: bool, _: int) -> None:
            p = f.at(x, source, j)
            v = (f.cast("uitofp", f.load(p, vec(n, "i8"), mask=mask), vec(n, "float"))
                 if source == "i8" else codegen.load(f, p, source, n, mask=mask))
            codegen.store(f, v, f.at(y, target, j), target, mask=mask, stream=around)
        lo = c * _BLOCK
        codegen.streaming_loop(f, lo, f.intrinsic("smin", lo + _BLOCK, size), n,
                               [y] if stream else [], turn)
        return []
    f.loop(frame.first, frame.end, 1, [], chunk)
    if stream:
        codegen.fence(f)


@functools.lru_cache(maxsize=64)
@llvm.generating
def _entry(source: np.dtype[Any], target: np.dtype[Any], stream: bool) -> Any:
    kinds = [codegen.storage(d) or ("", "") for d in (source, target)]
    (given, _), (wanted, _) = kinds
    if F32 not in (source, target) or source == target:
        return None
    if source == _U8:
        given = "i8"
    elif given not in ("float", "half", "bfloat"):
        return None
    if wanted not in ("float", "half", "bfloat"):
        return None
    return codegen.build("convert", (given, wanted, str(stream)),
                         functools.partial(_emit, given, wanted, stream), arrays=2)


def convert(x: Array, dtype: np.dtype[Any]) -> Any:
    """`x.astype(dtype)` of a C-contiguous array; NotImplemented for others and other dtypes.

    >>> y = convert(np.ones(3, np.float32), np.dtype(np.float16))
    >>> y is NotImplemented or y.tolist() == [1.0, 1.0, 1.0]
    True
    """
    if not x.flags.carray or not x.size:
        return NotImplemented
    entry = _entry(x.dtype, dtype, codegen.streams(x.size * dtype.itemsize))
    if entry is None:
        return NotImplemented
    out = np.empty(x.shape, dtype)
    entry(threads.light_entry(), _geometry(x.size)[1], x, out)
    return out


def as_float32(x: Array) -> Array:
    """An array of 16-bit floats in float32, in C order where a kernel converts it.

    >>> as_float32(np.ones(2, np.float16)).tolist()
    [1.0, 1.0]
    """
    made: Array = convert(x, _F32)
    return x.astype(_F32) if made is NotImplemented else made


def stored_as(x: Array, dtype: np.dtype[Any]) -> Array:
    """Float32 results in a 16-bit dtype, rounded to nearest.

    >>> stored_as(np.ones(2, np.float32), np.dtype(np.float16)).dtype.name
    'float16'
    """
    made: Array = convert(x, dtype)
    return x.astype(dtype) if made is NotImplemented else made
