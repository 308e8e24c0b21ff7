"""Which elements dropout keeps: PyTorch's, drawn from the generator, and made again for backward.

An element is kept where its uniform number of 53 bits is below 1 - p. A mask holds its bits, or
where they are more, the state that the generator had: never above 2.5 KB.
"""
from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjoint.kernels.stream import Stream

Array = NDArray[Any]
_HELD = 20000            # elements whose bits are as many bytes as the generator's state
_again, _lock = Stream(0), threading.Lock()


class Mask:
    """The elements of an array of `shape` that dropout with probability `p` keeps.

    `axes`: in which order their numbers are drawn, from the outermost on; None: as they come.

    >>> m = Mask(Stream(0), (2, 3), 0.5)
    >>> m.keep()
    array([[False, False,  True],
           [False, False, False]])
    """

    def __init__(self, stream: Stream, shape: tuple[int, ...], p: float,
                 axes: tuple[int, ...] | None = None) -> None:
        self.shape, self._p, self._axes = shape, p, axes
        self._state = stream.words_at() if math.prod(shape) > _HELD else None
        self._bits: Array | None = self._drawn(stream)

    def _drawn(self, stream: Stream) -> Array:
        n = math.prod(self.shape)
        bits = stream.bits(n, 1.0 - self._p)
        if self._axes is not None:
            flat = np.unpackbits(bits, count=n, bitorder="little")
            flat = flat.reshape([self.shape[d] for d in self._axes])
            keep = flat.transpose(np.argsort(self._axes)).ravel()
            bits[:-(-n // 8)] = np.packbits(keep, bitorder="little")
        return bits

    def bits(self) -> Array:
        """A bit for each element, the lowest first, up to a multiple of 64."""
        bits, state = self._bits, self._state
        if state is None:
            assert bits is not None
            return bits
        self._bits = None                                   # those of the forward pass
        if bits is not None:
            return bits
        with _lock:
            _again.place(*state)
            return self._drawn(_again)

    def keep(self) -> Array:
        """The mask as bools."""
        bits = np.unpackbits(self.bits(), count=math.prod(self.shape), bitorder="little")
        return bits.view(np.bool_).reshape(self.shape)


def dropout_numpy(x: Array, mask: Mask, scale: float) -> Array:
    """`dropout.dropout` for any strides and dtypes; 16-bit floats are scaled in float32."""
    return masked(x, mask.keep(), scale)


def masked(x: Array, keep: Array, scale: float) -> Array:
    """x * scale where `keep`, 0 elsewhere; `keep` broadcasts against x."""
    if x.dtype.itemsize == 2:
        scaled = (x.astype(np.float32) * np.float32(scale)).astype(x.dtype)
    else:
        scaled = x * x.real.dtype.type(scale)
    lead = keep.ndim
    while lead and keep.shape[lead - 1] == 1:
        lead -= 1
    if lead < keep.ndim == x.ndim and keep.shape[:lead] == x.shape[:lead]:
        scaled[~keep.reshape(keep.shape[:lead])] = 0         # whole channels
        return scaled
    return np.asarray(np.where(keep, scaled, np.zeros((), x.dtype)))


def kept_scale(p: float) -> float:
    """1 / (1 - p): what keeps the mean; 0 where nothing is kept."""
    return 1.0 / (1.0 - p) if p < 1 else 0.0
