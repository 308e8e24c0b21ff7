"""Which elements dropout keeps: PyTorch's, drawn from the generator, a bit for each.

An element is kept where its uniform number of 53 bits is below 1 - p.
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from adjoint.kernels.stream import Stream

Array = np.ndarray[Any, Any]


def mask_bytes(shape: tuple[int, ...]) -> int:
    """The bytes of a mask of that shape: whole words of 64 bits.

    >>> mask_bytes((2, 3)), mask_bytes((5, 13))
    (8, 16)
    """
    return -(-math.prod(shape) // 64) * 8


def drawn_mask(stream: Stream, shape: tuple[int, ...], p: float,
               axes: tuple[int, ...] | None = None) -> Array:
    """A bit for each element of an array of `shape`, the lowest first, up to a multiple of 64:
    whether dropout with probability `p` keeps it.

    `axes`: in which order their numbers are drawn, from the outermost on; None: as they come.

    >>> kept(drawn_mask(Stream(0), (2, 3), 0.5), (2, 3))
    array([[False, False,  True],
           [False, False, False]])
    """
    n = math.prod(shape)
    bits = stream.bits(n, 1.0 - p)
    if axes is not None:
        flat = np.unpackbits(bits, count=n, bitorder="little")
        keep = flat.reshape([shape[d] for d in axes]).transpose(np.argsort(axes)).ravel()
        bits[:-(-n // 8)] = np.packbits(keep, bitorder="little")
    return bits


def kept(bits: Array, shape: tuple[int, ...]) -> Array:
    """A mask as bools."""
    found = np.unpackbits(bits, count=math.prod(shape), bitorder="little")
    return found.view(np.bool_).reshape(shape)


def dropout_numpy(x: Array, bits: Array, shape: tuple[int, ...], scale: float) -> Array:
    """`dropout.dropout` for any strides and dtypes; 16-bit floats are scaled in float32."""
    return masked(x, kept(bits, shape), scale)


def masked(x: Array, keep: Array, scale: float) -> Array:
    """x * scale where `keep`, x * 0 elsewhere; `keep` broadcasts against x."""
    wide = x.astype(np.float32) if x.dtype.itemsize == 2 else x
    factor = keep * wide.real.dtype.type(scale)
    with np.errstate(invalid="ignore"):
        return np.asarray((wide * factor).astype(x.dtype, copy=False))


def kept_scale(p: float, dtype: np.dtype[Any] | None = None) -> float:
    """1 / (1 - p): what keeps the mean; 0 where nothing is kept. Of 16-bit floats, the number that
    they have for it, as PyTorch's mask holds it."""
    return rounded(1.0 / (1.0 - p) if p < 1 else 0.0, dtype)


def rounded(scale: float, dtype: np.dtype[Any] | None) -> float:
    """A number as 16-bit floats hold it; of other dtypes itself."""
    if dtype is None or dtype.itemsize != 2:
        return scale
    return float(np.float32(scale).astype(dtype))
