"""Convolutions of maps of few positions: one product for all images.

The other kernels take image by image, and each reads the whole weight. Behind a network's last
strides the maps have 1 to 16 positions and the weight is large: then it is read once here, for
columns of all images. `cols[(c, tap), (p, n)]` is what position p of image n has under the tap:
with the images last, what is gathered and scattered are runs of as many elements as images.
"""
from __future__ import annotations

import functools

import numpy as np
from numpy.lib.stride_tricks import as_strided

from adjoint.kernels import gemm
from adjoint.kernels.conv_numpy import Array, ConvSpec, places

_MOST = 16              # positions up to which the copy into columns pays
_LEAST = 1 << 18        # bytes of the weight from which it does
_SUMMED = 1 << 20       # bytes of the weight from which it pays for its gradient too
_FEWER = 4              # times fewer taps from which only those that see the image are taken
_COLUMNS = 1 << 28      # bytes of columns at most


def supported(spec: ConvSpec, itemsize: int) -> bool:
    """Whether maps are small, the weight is large, and there are images to share it."""
    return (spec.positions <= _MOST and spec.groups == 1 and spec.batch > 1 and not spec.pointwise
            and spec.filters * spec.depth * itemsize >= _LEAST
            and spec.batch * spec.depth * spec.positions * itemsize <= _COLUMNS)


@functools.lru_cache(1024)
def _seen(spec: ConvSpec) -> tuple[ConvSpec, tuple[slice, ...]]:
    """The convolution without the taps at either end that see padding alone, and those that stay:
    of 3 x 3 on one element, one of nine. All where more than a quarter would stay: to copy those
    of the weight costs more than it saves."""
    ends = []
    for k, d, s, n, lo, hi, out in zip(spec.kernel, spec.dilation, spec.stride, spec.space, spec.lo,
                                       spec.hi, spec.out, strict=True):
        before = min(max(0, -(((out - 1) * s - lo) // d)), lo // d)
        after = min(max(0, k + -(n + lo) // d), hi // d)
        ends.append((before, after) if before + after < k else (0, 0))
    rows = list(zip(ends, spec.dilation, spec.kernel, spec.lo, spec.hi, strict=True))
    less = spec._replace(kernel=tuple([k - a - b for (a, b), _, k, _, _ in rows]),
                         lo=tuple([lo - a * d for (a, _), d, _, lo, _ in rows]),
                         hi=tuple([hi - b * d for (_, b), d, _, _, hi in rows]))
    every = slice(None), slice(None)
    if less.taps * _FEWER > spec.taps:
        return spec, every
    return less, (*every, *[slice(a, k - b) for (a, b), _, k, _, _ in rows])


def _last(x: Array, rows: int) -> Array:
    """`(n, rows, positions)` as `(rows, positions * n)`, in order: what follows moves runs of n."""
    return np.ascontiguousarray(np.moveaxis(x.reshape(len(x), rows, -1), 0, 2)).reshape(rows, -1)


def _first(rows: Array, shape: tuple[int, ...]) -> Array:
    """`(..., n)` as `(n, ...)` of that shape."""
    return np.ascontiguousarray(np.moveaxis(rows, -1, 0)).reshape(shape)


def _inner(spec: ConvSpec) -> tuple[slice, ...]:
    """The image within a padded one, `(C, *padded, N)`."""
    return (slice(None), *[slice(a, a + s) for a, s in zip(spec.lo, spec.space, strict=True)])


def _columns(x: Array, spec: ConvSpec) -> Array:
    padded = np.zeros((spec.channels, *spec.padded, spec.batch), x.dtype)
    padded[_inner(spec)] = np.moveaxis(x, 0, -1)
    channel, *steps, one = padded.strides
    taps = [s * d for s, d in zip(steps, spec.dilation, strict=True)]
    moves = [s * m for s, m in zip(steps, spec.stride, strict=True)]
    seen = as_strided(padded, (spec.channels, *spec.kernel, *spec.out, spec.batch),
                      (channel, *taps, *moves, one), writeable=False)
    return np.ascontiguousarray(seen).reshape(spec.depth, -1)


def forward(x: Array, w: Array, spec: ConvSpec, bias: Array | None) -> Array:
    """The convolution, `(N, O, *P)`."""
    spec, seen = _seen(spec)
    made = np.empty((spec.filters, spec.positions * spec.batch), x.dtype)
    kernel = np.ascontiguousarray(w[seen]).reshape(spec.filters, spec.depth)
    gemm.matmul(kernel, _columns(x, spec), made)
    if bias is not None:
        made += bias[:, None]
    return _first(made.reshape(-1, spec.batch), (spec.batch, spec.filters, *spec.out))


def grad_input(ct: Array, w: Array, spec: ConvSpec) -> Array:
    """The cotangent of the input, `(N, C, *S)`."""
    spec, seen = _seen(spec)
    cols = np.empty((spec.depth, spec.positions * spec.batch), ct.dtype)
    kernel = np.ascontiguousarray(w[seen]).reshape(spec.filters, spec.depth)
    gemm.matmul(kernel.T, _last(ct, spec.filters), cols)
    shares = cols.reshape(spec.channels, *spec.kernel, *spec.out, spec.batch)
    padded = np.zeros((spec.channels, *spec.padded, spec.batch), ct.dtype)
    for where, tap in places(spec):                 # (both begin with all images)
        padded[where[1:]] += shares[tap[1:]]
    return _first(padded[_inner(spec)], (spec.batch, spec.channels, *spec.space))


def grad_weight(ct: Array, x: Array, spec: ConvSpec) -> Array | None:
    """The cotangent of the weight, `(O, C, *K)`; None where image by image is faster."""
    if spec.filters * spec.depth * x.itemsize < _SUMMED:
        return None
    less, seen = _seen(spec)
    out = np.empty((spec.filters, less.depth), x.dtype)
    gemm.matmul(_last(ct, spec.filters), _columns(x, less).T, out)
    made = out.reshape(spec.filters, spec.channels, *less.kernel)
    if less.kernel != spec.kernel:
        whole = np.zeros((spec.filters, spec.channels, *spec.kernel), x.dtype)
        whole[seen] = made
        return whole
    return made
