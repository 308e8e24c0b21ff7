"""`autograd.scipy.signal`: convolution along some axes, products along others."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as onp

from adjoint.base.errors import ShapeError
from adjoint.hips import numpy as np


def _windows(x: Any, axis: int, size: int) -> Any:
    """The axis replaced by (positions, size): every window of that size."""
    at = onp.arange(x.shape[axis] - size + 1)[:, None] + onp.arange(size)
    return x[(slice(None),) * axis + (at,)]


def convolve(A: Any, B: Any, axes: Any = None, dot_axes: Any = ((), ()), mode: str = "full"
             ) -> Any:
    """The convolution of A and B along `axes` (a pair of lists, default: all), their products
    summed along `dot_axes`. The result's axes: those of A that are in neither, those of B, the
    convolved ones.

    mode  "full", "same" (the middle, of A's size) or "valid" (where one lies within the other)

    >>> convolve([1.0, 2.0, 3.0], [1.0, 1.0], mode="valid")
    array([3., 5.])
    """
    A, B = np.asarray(A), np.asarray(B)
    if mode not in ("full", "same", "valid"):
        raise ValueError(f"convolve: mode is 'full', 'same' or 'valid', got {mode!r}")
    dots: list[list[int]] = [[d % x.ndim for d in ds]
                             for x, ds in zip((A, B), dot_axes, strict=True)]
    convs = [[d % x.ndim for d in ds] for x, ds in zip((A, B), axes, strict=True)] if (
        axes is not None) else [[d for d in range(x.ndim) if d not in ds]
                                for x, ds in zip((A, B), dots, strict=True)]
    if len(convs[0]) != len(convs[1]):
        raise ShapeError(f"convolve: {len(convs[0])} axes of A{list(A.shape)} against "
                         f"{len(convs[1])} of B{list(B.shape)}")
    rest = [[d for d in range(x.ndim) if d not in c and d not in p]
            for x, c, p in zip((A, B), convs, dots, strict=True)]
    a, b = (np.transpose(x, (*r, *p, *c)) for x, r, p, c in zip((A, B), rest, dots, convs,
                                                              strict=True))
    k = len(convs[0])
    sizes = [x.shape[x.ndim - k:] for x in (a, b)]
    if mode == "valid" and any(n < m for n, m in zip(*sizes, strict=True)):
        return _swapped(a, b, [len(rest[0]), len(rest[1]), len(dots[0]), k], sizes)
    out = _slide(a, b, [len(rest[0]), len(rest[1]), len(dots[0]), k], mode != "valid")
    if mode != "same":
        return out
    middle = [slice((m - 1) // 2, (m - 1) // 2 + n) for n, m in zip(*sizes, strict=True)]
    return out[(..., *middle)] if k else out


def _swapped(a: Any, b: Any, counts: Sequence[int], sizes: Any) -> Any:
    ra, rb, p, k = counts
    if any(n > m for n, m in zip(*sizes, strict=True)):
        raise ShapeError(f"convolve: with mode 'valid' one operand must be the larger one along "
                         f"every axis, got {list(sizes[0])} and {list(sizes[1])}")
    out = _slide(b, a, [rb, ra, p, k], False)
    return np.transpose(out, (*range(rb, rb + ra), *range(rb), *range(rb + ra, out.ndim)))


def _slide(a: Any, b: Any, counts: Sequence[int], padded: bool) -> Any:
    """`a` and `b` with the axes (rest, summed, convolved)."""
    ra, rb, p, k = counts
    sizes = b.shape[b.ndim - k:]
    if padded:
        a = np.pad(a, [(0, 0)] * (a.ndim - k) + [(m - 1, m - 1) for m in sizes])
    b = np.flip(b, tuple(range(b.ndim - k, b.ndim))) if k else b
    for i in range(k):
        a = _windows(a, ra + p + 2 * i, sizes[i])
    sums = [*range(ra, ra + p), *(ra + p + 2 * i + 1 for i in range(k))]
    out = np.tensordot(a, b, [sums, list(range(rb, b.ndim))])
    # now (rest of a, positions, rest of b)
    return np.transpose(out, (*range(ra), *range(ra + k, ra + k + rb), *range(ra, ra + k)))


__all__ = ["convolve"]
