"""Max and average pooling over any number of spatial dimensions, forward and backward, on raw
arrays.

Inputs are `(N, C, *S)`. One pass is made over the input per element of the kernel, so the cost is
`prod(kernel)` streams and the temporary memory one output. Padding, `ceil_mode`, the index of the
maximum and the treatment of nan follow PyTorch: a nan wins, ties go to the first element.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .conv_numpy import Array, Spatial, aside, per_dim

Slices = tuple[slice, ...]
_KNOWN = 256            # geometries that are remembered: programs have few, and call them often
_FEW = 1024             # windows of a channel up to which what is the same for all calls is kept


@functools.cache
def _kernels() -> Any:
    """The generated kernel; the compiler's modules are loaded when first needed."""
    from . import conv_pool_run

    return conv_pool_run


def pool_size(
    length: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool
) -> int:
    """Number of windows along one dimension; with `ceil_mode` the last may hang over the end.

    >>> pool_size(7, 2, 2, 0, 1, False), pool_size(7, 2, 2, 0, 1, True)
    (3, 4)
    """
    span = length + 2 * padding - dilation * (kernel - 1) - 1
    count = (span + (stride - 1 if ceil_mode else 0)) // stride + 1
    # a window must start inside the input or the padding before it
    if ceil_mode and (count - 1) * stride >= length + padding:
        count -= 1
    return max(0, count)


@functools.lru_cache(_KNOWN)
def _taps(
    space: tuple[int, ...],
    out: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
) -> list[tuple[Slices, Slices]]:
    """For each kernel element the outputs it reaches and the inputs it reads there."""
    found: list[tuple[Slices, Slices]] = []
    for tap in np.ndindex(*kernel):
        offsets = tuple(t * d - p for t, d, p in zip(tap, dilation, padding, strict=True))
        outs: list[slice] = []
        ins: list[slice] = []
        for offset, size, count, step in zip(offsets, space, out, stride, strict=True):
            first = max(0, -(offset // step))
            last = min(count, (size - 1 - offset) // step + 1)
            if last <= first:
                break
            outs.append(slice(first, last))
            start = first * step + offset
            ins.append(slice(start, start + (last - first - 1) * step + 1, step))
        if len(outs) == len(offsets):
            found.append((tuple(outs), tuple(ins)))
    return found


def _sizes(
    space: Sequence[int],
    kernel: Spatial,
    stride: Spatial | None,
    padding: Spatial,
    dilation: Spatial,
    ceil_mode: bool,
) -> tuple[tuple[int, ...], ...]:
    dims = len(space)
    k = per_dim(kernel, dims)
    s = k if stride is None or stride == () or stride == [] else per_dim(stride, dims)
    return _known_sizes(
        tuple(space), k, s, per_dim(padding, dims), per_dim(dilation, dims), ceil_mode
    )


@functools.lru_cache(_KNOWN)
def _known_sizes(
    space: tuple[int, ...],
    k: tuple[int, ...],
    s: tuple[int, ...],
    p: tuple[int, ...],
    d: tuple[int, ...],
    ceil_mode: bool,
) -> tuple[tuple[int, ...], ...]:
    out = tuple(
        pool_size(*sizes, ceil_mode=ceil_mode) for sizes in zip(space, k, s, p, d, strict=True)
    )
    return k, s, p, d, out


def _kept(make: Any) -> Any:
    """`make(*geometry)`, an array with an element per window, `geometry[1]` in number; what there
    are few of is remembered."""

    @functools.lru_cache(_KNOWN)
    def known(*geometry: Any) -> Array:
        return aside(make(*geometry))

    @functools.wraps(make)
    def asked(*geometry: Any) -> Array:
        few = 0 < math.prod(geometry[1]) <= _FEW
        found: Array = known(*geometry) if few else make(*geometry)
        return found

    return asked


def _lead(space: int, tail: int, axis: int, dims: int) -> tuple[int, ...]:
    return tuple(space if i == axis else 1 for i in range(dims + tail))


@_kept
def _first_index(
    space: Sequence[int],
    out: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Array:
    """Flat index of the first input element of each window (what wins when all are -inf)."""
    dims = len(space)
    total = np.zeros(tuple(out), np.int64)
    for axis in range(dims):
        start = np.arange(out[axis], dtype=np.int64) * stride[axis] - padding[axis]
        gap = dilation[axis]
        start = np.where(start < 0, start + -(start // gap) * gap, start)
        shape = tuple(-1 if i == axis else 1 for i in range(dims))
        total += (start * math.prod(space[axis + 1 :])).reshape(shape)
    return total


def max_pool_forward(
    x: Array,
    kernel: Spatial,
    stride: Spatial | None = None,
    padding: Spatial = 0,
    dilation: Spatial = 1,
    ceil_mode: bool = False,
) -> tuple[Array, Array]:
    """Maximum of each window and its flat index in the unpadded plane of its channel (int64).

    >>> out, index = max_pool_forward(np.arange(16.0).reshape(1, 1, 4, 4), 2)
    >>> out.ravel().tolist(), index.ravel().tolist()
    ([5.0, 7.0, 13.0, 15.0], [5, 7, 13, 15])
    """
    space = x.shape[2:]
    k, s, p, d, out = _sizes(space, kernel, stride, padding, dilation, ceil_mode)
    floating = x.dtype.kind not in "iub"
    low = -np.inf if floating else np.iinfo(x.dtype).min
    shape = (*x.shape[:2], *out)
    first = _first_index(space, out, s, p, d)
    if floating and x.dtype.itemsize == 2 and x.size:
        from .convert import as_float32, stored_as

        high, index = max_pool_forward(as_float32(x), k, s, p, d, ceil_mode)
        return stored_as(high, x.dtype), index
    if floating and math.prod(shape) and _kernels().supported(x, len(space)):
        made = np.empty(shape, x.dtype), np.empty(shape, np.int64)
        _kernels().max_pool(x, (k, s, p, d, out), *made, first)
        return made
    best = np.full(shape, low, x.dtype)
    index = np.broadcast_to(first, best.shape).copy()
    if best.size == 0:
        return best, index
    strides = [math.prod(space[i + 1 :]) for i in range(len(space))]
    for outs, ins in _taps(space, out, k, s, p, d):
        value = x[(slice(None), slice(None), *ins)]
        target = (slice(None), slice(None), *outs)
        current = best[target]
        wins = value > current
        if floating:
            wins |= value != value
        np.copyto(current, value, where=wins)
        flat = np.zeros((1,) * len(space), np.int64)
        for axis, (where, step) in enumerate(zip(ins, strides, strict=True)):
            along = np.arange(where.start, where.stop, where.step, dtype=np.int64) * step
            flat = flat + along.reshape(_lead(-1, 0, axis, len(space)))
        np.copyto(index[target], flat, where=wins)
    return best, index


def max_pool_backward(
    ct: Array, indices: Array, x_shape: Sequence[int], *, overlapping: bool = True
) -> Array:
    """Cotangent of the input of a max pool: each output's share goes to the element that won.

    `indices` is what the forward returned. With `overlapping=False` (stride >= window) no element
    wins twice and a plain scatter is enough.

    >>> out, index = max_pool_forward(np.arange(4.0).reshape(1, 1, 2, 2), 2)
    >>> max_pool_backward(np.ones_like(out), index, (1, 1, 2, 2)).ravel().tolist()
    [0.0, 0.0, 0.0, 1.0]
    """
    planes, plane = math.prod(x_shape[:2]), math.prod(x_shape[2:])
    wide = np.dtype(np.float32) if ct.dtype.itemsize == 2 and ct.dtype.kind != "i" else ct.dtype
    out = np.zeros(planes * plane, wide)
    flat = indices.reshape(planes, -1) + np.arange(planes, dtype=np.int64)[:, None] * plane
    values = ct.reshape(-1).astype(wide, copy=False)
    if overlapping:
        np.add.at(out, flat.reshape(-1), values)
    else:
        out[flat.reshape(-1)] = values
    return out.reshape(tuple(x_shape)).astype(ct.dtype, copy=False)


def max_pool_gather(t: Array, indices: Array) -> Array:
    """Elements of `t` `(N, C, *S)` at `indices` `(N, C, *P)`: the tangent of a max pool."""
    planes = indices.shape[0] * indices.shape[1]
    flat = np.take_along_axis(t.reshape(planes, -1), indices.reshape(planes, -1), axis=1)
    return flat.reshape(indices.shape)


@_kept
def _divisors(
    space: Sequence[int],
    out: Sequence[int],
    k: Sequence[int],
    s: Sequence[int],
    p: Sequence[int],
    count_include_pad: bool,
    divisor_override: int | None,
    dtype: np.dtype[Any],
) -> Array:
    """What each window's sum is divided by, `(*P)`."""
    if divisor_override is not None:
        return np.full(out, divisor_override, dtype)
    total = np.ones(out, dtype)
    for axis, length in enumerate(space):
        start = np.arange(out[axis], dtype=np.int64) * s[axis] - p[axis]
        stop = np.minimum(start + k[axis], length + p[axis])
        if not count_include_pad:
            start, stop = np.maximum(start, 0), np.minimum(stop, length)
        total *= (stop - start).astype(dtype).reshape(_lead(-1, 0, axis, len(space)))
    return total


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float32) if dtype.itemsize == 2 and dtype.kind not in "iu" else dtype


def avg_pool_forward(
    x: Array,
    kernel: Spatial,
    stride: Spatial | None = None,
    padding: Spatial = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Array:
    """Mean of each window (or its sum over `divisor_override`).

    >>> avg_pool_forward(np.arange(16.0).reshape(1, 1, 4, 4), 2).ravel().tolist()
    [2.5, 4.5, 10.5, 12.5]
    """
    space = x.shape[2:]
    sizes = _sizes(space, kernel, stride, padding, 1, ceil_mode)
    k, s, p, d, out = sizes
    wide = _wide(x.dtype)
    total = np.zeros((*x.shape[:2], *out), wide)
    if total.size == 0:
        return total.astype(x.dtype, copy=False)
    for outs, ins in _taps(space, out, k, s, p, d):
        total[(slice(None), slice(None), *outs)] += x[(slice(None), slice(None), *ins)]
    total /= _divisors(space, out, k, s, p, count_include_pad, divisor_override, wide)
    return total.astype(x.dtype, copy=False)


def avg_pool_backward(
    ct: Array,
    x_shape: Sequence[int],
    kernel: Spatial,
    stride: Spatial | None = None,
    padding: Spatial = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Array:
    """Cotangent of the input of `avg_pool_forward`.

    >>> avg_pool_backward(np.ones((1, 1, 1, 1)), (1, 1, 2, 2), 2).ravel().tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    space = tuple(x_shape[2:])
    sizes = _sizes(space, kernel, stride, padding, 1, ceil_mode)
    k, s, p, d, out = sizes
    wide = _wide(ct.dtype)
    total = np.zeros(tuple(x_shape), wide)
    if ct.size == 0:
        return total.astype(ct.dtype, copy=False)
    share = ct / _divisors(space, out, k, s, p, count_include_pad, divisor_override, wide)
    for outs, ins in _taps(space, out, k, s, p, d):
        total[(slice(None), slice(None), *ins)] += share[(slice(None), slice(None), *outs)]
    return total.astype(ct.dtype, copy=False)


def adaptive_bins(length: int, out: int) -> Array:
    """Start and stop of each of `out` nearly equal windows over `length` elements, a row each.

    >>> adaptive_bins(5, 2).tolist()
    [[0, 3], [2, 5]]
    """
    first = np.arange(out) * length
    return np.stack([first // out, -(-(first + length) // out)], axis=1)


def _averaging(length: int, out: int, dtype: np.dtype[Any]) -> Array:
    matrix = np.zeros((out, length), dtype)
    for row, (start, stop) in enumerate(adaptive_bins(length, out).tolist()):
        matrix[row, start:stop] = 1 / (stop - start)
    return matrix


@functools.lru_cache(64)
def _few_averages(length: int, out: int, dtype: np.dtype[Any]) -> Array:
    """The same, kept in bytes: what the package keeps is not counted as the user's memory."""
    matrix = _averaging(length, out, dtype)
    return np.frombuffer(matrix.tobytes(), dtype).reshape(matrix.shape)


def local_product(x: Array, matrix: Array) -> Array:
    """x @ matrix.T, where an element of x that is not finite reaches no result whose weight for it
    is 0.

    >>> local_product(np.array([1.0, np.inf]), np.eye(2)).tolist()
    [1.0, inf]
    """
    with np.errstate(invalid="ignore"):
        made = np.matmul(x, matrix.T)
        if np.isfinite(made).all():
            return made
        for i, row in enumerate(matrix):
            at = np.flatnonzero(row)
            made[..., i] = (x[..., at] * row[at]).sum(-1)
    return made


def _along(y: Array, axis: int, backward: bool, length: int, out: int) -> Array:
    """The product of an axis with the averages of its windows, or with their transpose."""
    make = _few_averages if length * out <= 4096 else _averaging
    matrix = make(length, out, y.dtype)
    n = y.ndim
    last = y.transpose(*range(axis), *range(axis + 1, n), axis)
    made = local_product(last, matrix.T if backward else matrix)
    return made.transpose(*range(axis), n - 1, *range(axis, n - 1))


def adaptive_avg_pool_forward(x: Array, out: Spatial) -> Array:
    """Mean over `out` nearly equal windows per dimension; a product with a sparse row per window.

    >>> adaptive_avg_pool_forward(np.arange(4.0).reshape(1, 1, 4), 2).tolist()
    [[[0.5, 2.5]]]
    """
    sizes = per_dim(out, x.ndim - 2)
    wide = _wide(x.dtype)
    if set(sizes) == {1}:
        mean = x.mean(axis=tuple(range(2, x.ndim)), keepdims=True, dtype=wide)
        return mean.astype(x.dtype, copy=False)
    y = x.astype(wide, copy=False)
    for axis, size in enumerate(sizes, 2):
        y = _along(y, axis, False, x.shape[axis], size)
    return np.ascontiguousarray(y).astype(x.dtype, copy=False)


def adaptive_avg_pool_backward(ct: Array, x_shape: Sequence[int]) -> Array:
    """Cotangent of the input of `adaptive_avg_pool_forward`.

    >>> adaptive_avg_pool_backward(np.ones((1, 1, 2)), (1, 1, 4)).tolist()
    [[[0.5, 0.5, 0.5, 0.5]]]
    """
    wide = _wide(ct.dtype)
    y = ct.astype(wide, copy=False)
    if set(ct.shape[2:]) == {1}:
        share = y / math.prod(x_shape[2:])
        return np.ascontiguousarray(np.broadcast_to(share, tuple(x_shape))).astype(ct.dtype)
    for axis in range(2, ct.ndim):
        y = _along(y, axis, True, x_shape[axis], ct.shape[axis])
    return np.ascontiguousarray(y).astype(ct.dtype, copy=False)


def adaptive_max_pool_forward(x: Array, out: Spatial) -> tuple[Array, Array]:
    """Maximum over `out` nearly equal windows per dimension, and its flat index.

    >>> adaptive_max_pool_forward(np.array([[[1.0, 3.0, 2.0, 0.0]]]), 2)[1].tolist()
    [[[1, 2]]]
    """
    space = x.shape[2:]
    sizes = per_dim(out, len(space))
    if all(size and length % size == 0 for length, size in zip(space, sizes, strict=True)):
        return max_pool_forward(x, tuple(n // m for n, m in zip(space, sizes, strict=True)))
    lead = x.shape[:2]
    if not math.prod(lead) * math.prod(sizes):
        return np.zeros((*lead, *sizes), x.dtype), np.zeros((*lead, *sizes), np.int64)
    parts, places = x, np.arange(math.prod(space)).reshape(space)
    split: list[int] = []
    for axis, (length, size) in enumerate(zip(space, sizes, strict=True)):
        bins = adaptive_bins(length, size)
        width = int((bins[:, 1] - bins[:, 0]).max())
        # shorter windows read their last element again, which wins nothing
        at = np.minimum(bins[:, :1] + np.arange(width), bins[:, 1:] - 1).reshape(-1)
        parts, places = np.take(parts, at, axis + 2), np.take(places, at, axis)
        split += [size, width]
    order = [*range(0, len(split), 2), *range(1, len(split), 2)]
    parts = parts.reshape(*lead, *split).transpose(0, 1, *[i + 2 for i in order])
    parts = parts.reshape(*lead, *sizes, math.prod(split[1::2]))
    winner = parts.argmax(axis=-1)[..., None]
    lost = parts != parts
    if lost.any():                  # the last nan wins, as in `max_pool_forward`
        last = parts.shape[-1] - 1 - lost[..., ::-1].argmax(-1)[..., None]
        winner = np.where(lost.any(-1, keepdims=True), last, winner)
    places = places.reshape(split).transpose(order).reshape(1, 1, *sizes, -1)
    best = np.take_along_axis(parts, winner, -1)[..., 0]
    return best, np.take_along_axis(places, winner, -1)[..., 0]
