"""Convolution and pooling on raw arrays: what the op records call.

`conv_forward`, `conv_grad_input` and `conv_grad_weight` are the three faces of one trilinear form
and work for any number of spatial dimensions; a transposed convolution is `conv_grad_input` of its
input. float32 and float64 run in generated kernels where LLVM is there, bfloat16 two by two where
the CPU multiplies pairs, other 16-bit floats by way of float32; else windows are copied and
multiplied. The pools are re-exported from `conv_pool`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from adjoint.base.errors import CompilerLost

from . import conv_numpy
from .conv_numpy import Array, Padding, Spatial, conv_spec
from .conv_pool import (
    adaptive_avg_pool_backward,
    adaptive_avg_pool_forward,
    adaptive_max_pool_forward,
    avg_pool_backward,
    avg_pool_forward,
    max_pool_backward,
    max_pool_forward,
    max_pool_gather,
    pool_size,
)

__all__ = [
    "adaptive_avg_pool_backward",
    "adaptive_avg_pool_forward",
    "adaptive_max_pool_forward",
    "avg_pool_backward",
    "avg_pool_forward",
    "conv_forward",
    "conv_grad_input",
    "conv_grad_weight",
    "conv_spec",
    "max_pool_backward",
    "max_pool_forward",
    "max_pool_gather",
    "pool_size",
]


_MAP = 64  # positions from which each image's product is worth a call


@functools.cache
def _kernels() -> Any:
    """The generated kernels; the compiler's modules are loaded when first needed."""
    from . import conv_run

    return conv_run


def _halves(a: Array, b: Array) -> bool:
    """Whether both are 16-bit floats of one type, and kernels for float32 are there."""
    half = a.dtype == b.dtype and a.dtype.itemsize == 2 and a.dtype.kind not in "iu"
    return bool(half and _kernels().usable())


def _one_product(spec: conv_numpy.ConvSpec, x: Array, w: Array) -> bool:
    """Whether it is a product of matrices that lie in order, which 16 bits need not be widened for.
    """
    ordered = x.flags.c_contiguous and w.flags.c_contiguous
    return spec.pointwise and ordered and bool(x.size and w.size)


def _in_float32(f: Callable[..., Array], a: Array, b: Array, *rest: Any) -> Array:
    """`f(a, b, *rest)` of 16-bit floats, rounded once."""
    from .convert import as_float32, stored_as

    return stored_as(f(as_float32(a), as_float32(b), *rest), a.dtype)


def conv_forward(
    x: Array,
    w: Array,
    stride: Spatial = 1,
    padding: Padding = 0,
    dilation: Spatial = 1,
    groups: int = 1,
    bias: Array | None = None,
) -> Array:
    """Cross-correlate `x` `(N, C, *S)` with `w` `(O, C/groups, *K)`: `(N, O, *P)`, plus `bias`
    `(O,)`.

    `padding` is a number, one per dimension, or `(before, after)` pairs. Shapes are trusted.

    >>> import numpy as np
    >>> conv_forward(np.ones((1, 1, 4)), np.ones((1, 1, 3)), padding=1).tolist()
    [[[2.0, 3.0, 3.0, 2.0]]]
    """
    if _halves(x, w):
        spec = conv_spec(x.shape, w.shape, stride, padding, dilation, groups)
        if _one_product(spec, x, w) and bias is None:
            out = np.empty((spec.batch, spec.filters, *spec.out), x.dtype)
            kernel = w.reshape(groups, -1, spec.channels // groups)
            return _kernels().product_of_maps(kernel, x, out, spec)
        wide = None if bias is None else bias.astype("float32")
        if _kernels().paired(x, w, spec):
            with suppress(CompilerLost):
                return _kernels().forward(x, w, spec, wide)
        return _in_float32(conv_forward, x, w, stride, padding, dilation, groups, wide)
    spec = conv_spec(x.shape, w.shape, stride, padding, dilation, groups)
    if _kernels().supported(x, w, spec):
        with suppress(CompilerLost):
            return _kernels().forward(x, w, spec, bias)
    out = conv_numpy.forward(x, w, spec)
    if bias is not None:
        out += bias.reshape(-1, *(1,) * spec.dims)
    return out


def conv_grad_input(
    ct: Array,
    w: Array,
    x_shape: Sequence[int],
    stride: Spatial = 1,
    padding: Padding = 0,
    dilation: Spatial = 1,
    groups: int = 1,
) -> Array:
    """Cotangent of the input, `x_shape`, from `ct` `(N, O, *P)`; also the transposed convolution.

    >>> import numpy as np
    >>> conv_grad_input(np.ones((1, 1, 2)), np.ones((1, 1, 3)), (1, 1, 4)).tolist()
    [[[1.0, 2.0, 2.0, 1.0]]]
    """
    if _halves(ct, w):
        spec = conv_spec(x_shape, w.shape, stride, padding, dilation, groups)
        if _one_product(spec, ct, w):
            kernel = w.reshape(groups, -1, spec.channels // groups).swapaxes(1, 2)
            return _kernels().product_of_maps(kernel, ct, np.empty(x_shape, ct.dtype), spec)
        if _kernels().paired(ct, w, spec):
            with suppress(CompilerLost):
                return _kernels().grad_input(ct, w, spec)
        return _in_float32(conv_grad_input, ct, w, x_shape, stride, padding, dilation, groups)
    spec = conv_spec(x_shape, w.shape, stride, padding, dilation, groups)
    if _kernels().supported(ct, w, spec):
        with suppress(CompilerLost):
            return _kernels().grad_input(ct, w, spec)
    return conv_numpy.grad_input(ct, w, spec)


def conv_grad_weight(
    ct: Array,
    x: Array,
    w_shape: Sequence[int],
    stride: Spatial = 1,
    padding: Padding = 0,
    dilation: Spatial = 1,
    groups: int = 1,
) -> Array:
    """Cotangent of the weight, `w_shape`, from `ct` `(N, O, *P)` and the input.

    >>> import numpy as np
    >>> conv_grad_weight(np.ones((1, 1, 2)), np.arange(4.0)[None, None], (1, 1, 3)).tolist()
    [[[1.0, 3.0, 5.0]]]
    """
    if _halves(ct, x):
        spec = conv_spec(x.shape, w_shape, stride, padding, dilation, groups)
        if _one_product(spec, ct, x) and spec.positions >= _MAP:
            from .convert import stored_as

            wide = _kernels().sum_of_products(ct, x, spec)
            return stored_as(wide, ct.dtype).reshape(tuple(w_shape))
        if _kernels().paired(ct, x, spec):
            with suppress(CompilerLost):
                return _kernels().grad_weight(ct, x, spec)
        return _in_float32(conv_grad_weight, ct, x, w_shape, stride, padding, dilation, groups)
    spec = conv_spec(x.shape, w_shape, stride, padding, dilation, groups)
    if _kernels().supported(x, ct, spec):
        with suppress(CompilerLost):
            return _kernels().grad_weight(ct, x, spec)
    return conv_numpy.grad_weight(ct, x, spec)
