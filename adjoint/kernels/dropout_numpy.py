"""Which elements dropout keeps, as a function of (seed, offset, position): the NumPy reference.

The generator is Philox4x32 with 7 rounds (Salmon, Moraes, Dror, Shaw, "Parallel random numbers:
as easy as 1, 2, 3", SC 2011). Element e takes word (e % 64) // 16 of the block whose counter is
16 (e // 64) + e % 16, so that 64 elements are four vectors of 16 whatever the width of the CPU.
"""
from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
ROUNDS = 7
M0, M1 = 0xD2511F53, 0xCD9E8D57
W0, W1 = 0x9E3779B9, 0xBB67AE85
LOW = 0xFFFFFFFF
_BLOCK = 256             # runs of 64 elements whose words stay in the first-level cache


def threshold(p: float) -> int:
    """Words below this are dropped: `p` as a fraction of 2**32."""
    return int(p * 2.0**32)


def keep_numpy(count: int, p: float, seed: int, offset: int) -> Array:
    """Which of `count` elements survive dropout with probability `p` of zeroing.

    >>> k = keep_numpy(10000, 0.25, seed=1, offset=0)
    >>> k.dtype, bool(0.73 < k.mean() < 0.77)
    (dtype('bool'), True)
    """
    runs = -(-count // 64)
    keep = np.empty((runs, 4, 16), bool)
    limit = np.uint64(threshold(p))
    for lo in range(0, runs, _BLOCK):
        hi = min(lo + _BLOCK, runs)
        words = _philox(np.arange(16 * lo, 16 * hi, dtype=np.uint64), seed, offset)
        for w, bits in enumerate(words):
            np.greater_equal(bits.reshape(-1, 16), limit, out=keep[lo:hi, w])
    return keep.reshape(-1)[:count]


def _philox(counter: Array, seed: int, offset: int) -> list[Array]:
    """Four words of 32 bits, as uint64, for each counter."""
    low, half = np.uint64(LOW), np.uint64(32)
    x = [counter & low, counter >> half, np.full_like(counter, offset & LOW),
         np.full_like(counter, offset >> 32 & LOW)]
    k0, k1 = seed & LOW, seed >> 32 & LOW
    for _ in range(ROUNDS):
        a, b = x[0] * np.uint64(M0), x[2] * np.uint64(M1)
        high_a, high_b = a >> half, b >> half
        high_b ^= x[1]
        high_b ^= np.uint64(k0)
        high_a ^= x[3]
        high_a ^= np.uint64(k1)
        b &= low
        a &= low
        x = [high_b, b, high_a, a]
        k0, k1 = (k0 + W0) & LOW, (k1 + W1) & LOW
    return x


def dropout_numpy(x: Array, *, p: float, seed: int, offset: int = 0,
                  scale: float | None = None) -> Array:
    """`dropout.dropout` for any strides and dtypes; 16-bit floats are scaled in float32."""
    keep = keep_numpy(x.size, p, seed, offset).reshape(x.shape)
    return masked(x, keep, kept_scale(p) if scale is None else scale)


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
