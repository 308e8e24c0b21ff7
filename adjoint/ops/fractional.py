"""Maxima over windows whose steps are drawn at random.

B. Graham, "Fractional max-pooling" (arXiv:1412.6071), section 3, pseudorandom steps.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adjoint.base.aval import MetaArray
from adjoint.base.dtypes import I64
from adjoint.base.errors import ArgumentError, ShapeError
from adjoint.core.rehearsal import call
from adjoint.kernels.conv_numpy import per_dim
from adjoint.ops.api_common import (
    box,
    dtype_of,
    need,
    need_kernel,
    raw,
)
from adjoint.ops.gather import gather_op
from adjoint.ops.public import FUNCTIONS, typed
from adjoint.ops.reduce import argmax_op
from adjoint.ops.shape import reshape, squeeze_op, unsqueeze_op


def _windows(samples: Any, sizes: tuple[int, ...], kernel: tuple[int, ...],
                        out: tuple[int, ...]) -> Any:
    """Flat indices (N, C, out x window) of what each window holds; the window's steps follow from
    one random number per plane and axis."""
    n, (batch, channels) = len(sizes), samples.shape[:2]
    order = range(n) if n == 3 else reversed(range(n))  # samples come as (W, H) in two axes
    flat = np.zeros((batch, channels, *(1,) * (2 * n)), np.int64)
    for axis, sample in zip(order, np.moveaxis(samples, -1, 0), strict=True):
        size, k, o = sizes[axis], kernel[axis], out[axis]
        u = sample[..., None].astype(samples.dtype)
        alpha = samples.dtype.type((size - k) / (o - 1)) if o > 1 else samples.dtype.type(0)
        steps = np.arange(o).astype(samples.dtype)      # (all of it rounds in that precision)
        starts = (((steps + u) * alpha).astype(np.int64) - (u * alpha).astype(np.int64))
        starts[..., -1] = size - k
        cells = starts[..., :, None] + np.arange(k)  # (N, C, out, kernel) of this axis
        shape = [batch, channels, *(1,) * (2 * n)]
        shape[2 + axis], shape[2 + n + axis] = o, k
        flat = flat + cells.reshape(shape) * math.prod(sizes[axis + 1:])
    return flat.reshape(batch, channels, math.prod((*out, *kernel)))


def _extents(name: str, n: int, sizes: Sequence[int], kernel: Sequence[int], output_size: Any,
             output_ratio: Any) -> tuple[int, ...]:
    """The output's extents, checked."""
    if output_size is None and output_ratio is None:
        raise ArgumentError(f"{name} requires specifying either an output_size or an output_ratio")
    if output_size is None:
        ratio = (output_ratio,) * n if isinstance(output_ratio, (int, float)) else output_ratio
        if not all(0 < r < 1 for r in ratio):
            raise ArgumentError(f"{name}: output_ratio must be between 0 and 1 (got {ratio})")
        out = tuple(int(s * r) for s, r in zip(sizes, ratio, strict=True))
    else:
        out = per_dim(output_size, n)
    for s, k, o in zip(sizes, kernel, out, strict=True):
        if o + k - 1 > s or o < 1:
            raise ShapeError(f"{name}: kernel size {k} and output size {o} do not fit an axis of "
                             f"{s} in the last {n} axes of an input, which are {list(sizes)}")
    return out


def _declare(n: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    name = f"fractional_max_pool{n}d"

    def pool(input: Any, kernel_size: Any, output_size: Any = None, output_ratio: Any = None,
             return_indices: bool = False, _random_samples: Any = None) -> Any:
        need(name, input)
        need_kernel(f"fractional_max_pool{n}d_out_frame", "biuc", input)
        if len(input.shape) not in (n + 1, n + 2):
            raise ShapeError(f"{name}: expected (C, *) or (N, C, *) with {n} axes after C, got "
                             f"{list(input.shape)}")
        if 0 in input.shape[-n - 1:]:
            raise ShapeError(f"{name}: Expected input to have non-zero size for non-batch "
                             f"dimensions, but got {list(input.shape)}")
        sizes, kernel = tuple(input.shape[-n:]), per_dim(kernel_size, n)
        out = _extents(name, n, sizes, kernel, output_size, output_ratio)
        x = input if len(input.shape) == n + 2 else unsqueeze_op(input, dim=0)
        planes = tuple(x.shape[:2])
        if _random_samples is None:
            _random_samples = FUNCTIONS["rand"](*planes, n, dtype=dtype_of(x))
        if _random_samples.shape[0] > planes[0]:                # more than are needed
            _random_samples = _random_samples[:planes[0]]
        if tuple(_random_samples.shape) != (*planes, n):
            raise ShapeError(f"{name}: _random_samples must be {[*planes, n]}, a number per plane "
                             f"and axis, got {list(_random_samples.shape)}")
        given = raw(_random_samples), sizes, kernel, out
        window = math.prod(kernel)
        at: Any = box(x, call(_windows, *given, otherwise=lambda: MetaArray(
            (*planes, math.prod(out) * window), I64)) if isinstance(raw(x), MetaArray)
            else _windows(*given))
        flat = reshape(x, (*planes, math.prod(sizes)))
        picked = reshape(gather_op(flat, at, dim=2), (*planes, *out, window))
        at = reshape(at, (*planes, *out, window))
        best = unsqueeze_op(argmax_op(picked, dim=n + 2, keepdim=False), dim=n + 2)
        values = squeeze_op(gather_op(picked, best, dim=n + 2), dims=(n + 2,))
        places = squeeze_op(gather_op(at, best, dim=n + 2), dims=(n + 2,))
        if len(input.shape) == n + 1:
            values, places = (squeeze_op(v, dims=(0,)) for v in (values, places))
        return (values, places) if return_indices else values

    def with_indices(input: Any, kernel_size: Any, output_size: Any = None,
                     output_ratio: Any = None, return_indices: bool = False,
                     _random_samples: Any = None) -> Any:
        return pool(input, kernel_size, output_size, output_ratio, True, _random_samples)

    pool.__name__ = pool.__qualname__ = name
    pool.__doc__ = (f"Maxima of windows of kernel_size in {n} axes, (N, C, *) -> (N, C, *out). The "
                    "windows' steps are drawn at random, so that the output may have any size that "
                    "is smaller: output_size, or output_ratio of the input's. _random_samples "
                    f"(N, C, {n}) in [0, 1) replaces the draw.")
    with_indices.__name__ = with_indices.__qualname__ = name + "_with_indices"
    with_indices.__doc__ = f"`{name}` with the indices of the maxima in their planes."
    return typed(pool), typed(with_indices)


fractional_max_pool2d, fractional_max_pool2d_with_indices = _declare(2)
fractional_max_pool3d, fractional_max_pool3d_with_indices = _declare(3)
__all__ = ["fractional_max_pool2d", "fractional_max_pool2d_with_indices", "fractional_max_pool3d",
           "fractional_max_pool3d_with_indices"]
