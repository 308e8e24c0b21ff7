"""Convolutions of maps of few positions: one product for all images.

The other kernels take image by image, and each reads the whole weight. Behind a network's last
strides the maps have 1 to 16 positions and the weight megabytes: then it is read once here, for
columns of all images. `cols[(c, tap), (n, p)]` is what position p of image n has under the tap.
"""
from __future__ import annotations

import numpy as np

from adjoint.kernels import gemm
from adjoint.kernels.conv_numpy import Array, ConvSpec, pad_space, scatter_windows, windows

_MOST = 16              # positions up to which the copy into columns pays
_LEAST = 1 << 20        # bytes of the weight from which it does
_FEWEST = 2             # positions up to which it pays for the gradient of the weight too
_COLUMNS = 1 << 28      # bytes of columns at most


def supported(spec: ConvSpec, itemsize: int) -> bool:
    """Whether maps are small, the weight is large, and there are images to share it."""
    return (spec.positions <= _MOST and spec.groups == 1 and spec.batch > 1 and not spec.pointwise
            and spec.filters * spec.depth * itemsize >= _LEAST
            and spec.batch * spec.depth * spec.positions * itemsize <= _COLUMNS)


def _columns(x: Array, spec: ConvSpec) -> Array:
    return _together(windows(pad_space(x, spec, x.dtype), spec), spec.depth)


def _together(x: Array, rows: int) -> Array:
    """`(n, rows, positions)` as `(rows, n * positions)`, in order."""
    return np.ascontiguousarray(x.reshape(len(x), rows, -1).swapaxes(0, 1)).reshape(rows, -1)


def forward(x: Array, w: Array, spec: ConvSpec, bias: Array | None) -> Array:
    """The convolution, `(N, O, *P)`."""
    made = np.empty((spec.filters, spec.batch * spec.positions), x.dtype)
    kernel = np.ascontiguousarray(w).reshape(spec.filters, spec.depth)
    gemm.matmul(kernel, _columns(x, spec), made)
    if bias is not None:
        made += bias[:, None]
    apart = made.reshape(spec.filters, spec.batch, spec.positions).swapaxes(0, 1)
    return np.ascontiguousarray(apart).reshape(spec.batch, spec.filters, *spec.out)


def grad_input(ct: Array, w: Array, spec: ConvSpec) -> Array:
    """The cotangent of the input, `(N, C, *S)`."""
    cols = np.empty((spec.depth, spec.batch * spec.positions), ct.dtype)
    kernel = np.ascontiguousarray(w).reshape(spec.filters, spec.depth)
    gemm.matmul(kernel.T, _together(ct, spec.filters), cols)
    shares = cols.reshape(spec.channels, *spec.kernel, spec.batch, *spec.out)
    padded = np.zeros((spec.batch, spec.channels, *spec.padded), ct.dtype)
    scatter_windows(np.moveaxis(shares, 1 + spec.dims, 0), padded, spec)
    inner = tuple(slice(a, a + s) for a, s in zip(spec.lo, spec.space, strict=True))
    return np.ascontiguousarray(padded[(slice(None), slice(None), *inner)])


def grad_weight(ct: Array, x: Array, spec: ConvSpec) -> Array | None:
    """The cotangent of the weight, `(O, C, *K)`; None where image by image is faster."""
    if spec.positions > _FEWEST:
        return None
    out = np.empty((spec.filters, spec.depth), x.dtype)
    gemm.matmul(_together(ct, spec.filters), _columns(x, spec).T, out)
    return out.reshape(spec.filters, spec.channels, *spec.kernel)
