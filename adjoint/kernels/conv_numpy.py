"""Convolution in any number of spatial dimensions on raw NumPy arrays: the reference and the
fallback.

Each function lowers to a matrix product over *windows*: a strided view of the padded input that
shows, for every output position, the elements under the kernel. The view is copied ("im2col",
Chellapilla, Puri, Simard 2006) a few images at a time, so that the copy never exceeds
`WORKSPACE_BYTES`.

Shapes: input `(N, C, *S)`, weight `(O, C/groups, *K)`, output `(N, O, *P)` with
`P = floor((S + lo + hi - dilation * (K - 1) - 1) / stride) + 1` for each spatial dimension.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

Array = np.ndarray[Any, Any]
Spatial = int | Sequence[int]
Padding = int | Sequence[int | tuple[int, int]]

WORKSPACE_BYTES = 8 << 20


class ConvSpec(NamedTuple):
    """The sizes of one convolution: everything that follows from shapes and attributes.

    `lo` and `hi` are the padding before and after each spatial dimension; `out` is the spatial
    extent of the output.
    """

    batch: int
    channels: int
    filters: int
    groups: int
    space: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    lo: tuple[int, ...]
    hi: tuple[int, ...]
    out: tuple[int, ...]

    @property
    def dims(self) -> int:
        """Number of spatial dimensions."""
        return len(self.space)

    @property
    def taps(self) -> int:
        """Elements under the kernel in one channel."""
        return math.prod(self.kernel)

    @property
    def positions(self) -> int:
        """Output positions in one image."""
        return math.prod(self.out)

    @property
    def depth(self) -> int:
        """Length of the contraction of the forward product: channels per group times taps."""
        return (self.channels // self.groups) * self.taps

    @property
    def padded(self) -> tuple[int, ...]:
        """Spatial extent of the padded input."""
        return tuple(s + a + b for s, a, b in zip(self.space, self.lo, self.hi, strict=True))

    @property
    def pointwise(self) -> bool:
        """True if every window is a single element taken in place (1x1 kernel, stride 1, no
        padding).
        """
        return self.taps == 1 and set(self.stride) <= {1} and not any(self.lo) and not any(self.hi)


def per_dim(value: Spatial, dims: int) -> tuple[int, ...]:
    """`value` once per spatial dimension.

    >>> per_dim(2, 3), per_dim((1, 2), 2), per_dim([4], 2)
    ((2, 2, 2), (1, 2), (4, 4))
    """
    given: Any = value
    if type(given) is tuple and len(given) == dims and all([type(v) is int for v in given]):
        return given
    if hasattr(given, "__index__") and not getattr(given, "ndim", 0):  # a 0-d tensor is one, too
        return (given.__index__(),) * dims
    items = tuple(int(v) for v in given)
    return items * dims if len(items) == 1 else items


def per_side(padding: Padding, dims: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Padding before and after each spatial dimension; an entry is a number or a `(before, after)`
    pair.

    >>> per_side(1, 2), per_side([(0, 1), 2], 2)
    (((1, 1), (1, 1)), ((0, 2), (1, 2)))
    """
    if isinstance(padding, (int, np.integer)):
        items: list[Any] = [padding] * dims
    else:
        items = list(padding)
        if len(items) == 1:
            items *= dims
    pairs = [(p, p) if isinstance(p, (int, np.integer)) else (p[0], p[1]) for p in items]
    return tuple(int(p[0]) for p in pairs), tuple(int(p[1]) for p in pairs)


def conv_spec(
    x_shape: Sequence[int],
    w_shape: Sequence[int],
    stride: Spatial = 1,
    padding: Padding = 0,
    dilation: Spatial = 1,
    groups: int = 1,
) -> ConvSpec:
    """The sizes of a convolution of `x_shape` by `w_shape`. Shapes are trusted; ops check them.

    >>> conv_spec((2, 4, 8, 8), (6, 2, 3, 3), padding=1, groups=2).out
    (8, 8)
    """
    shapes = tuple(x_shape), tuple(w_shape)
    try:
        return _spec(*shapes, stride, padding, dilation, groups)
    except TypeError:                       # lists are no keys
        return _spec(*shapes, _fixed(stride), _fixed(padding), _fixed(dilation), groups)


def _fixed(value: Any) -> Any:
    """A number, or a tuple of what a list has."""
    return tuple(map(_fixed, value)) if isinstance(value, (list, tuple)) else value


@functools.lru_cache(1024)
def _spec(x_shape: tuple[int, ...], w_shape: tuple[int, ...], stride: Spatial, padding: Padding,
          dilation: Spatial, groups: int) -> ConvSpec:
    dims = len(x_shape) - 2
    steps, gaps = per_dim(stride, dims), per_dim(dilation, dims)
    lo, hi = per_side(padding, dims)
    space, kernel = tuple(x_shape[2:]), tuple(w_shape[2:])
    out = tuple(
        max(0, (s + a + b - d * (k - 1) - 1) // step + 1)
        for s, a, b, d, k, step in zip(space, lo, hi, gaps, kernel, steps, strict=True)
    )
    return ConvSpec(
        x_shape[0], x_shape[1], w_shape[0], groups, space, kernel, steps, gaps, lo, hi, out
    )


def compute_dtype(*arrays: Array) -> np.dtype[Any]:
    """Type in which products are summed: float32 for the 16-bit floats, else the promoted type."""
    kind = arrays[0].dtype if len(arrays) == 1 else None
    for array in arrays:
        if array.dtype.itemsize == 2 and array.dtype.kind not in "iu":
            return np.dtype(np.float32)
    return kind if kind is not None else np.result_type(*arrays)


def aside(table: Array) -> Array:
    """A table in memory that is not NumPy's, where it would count as the user's: it outlives the
    call that makes it."""
    return np.frombuffer(table.tobytes(), table.dtype).reshape(table.shape)


def pad_space(x: Array, spec: ConvSpec, dtype: np.dtype[Any], fill: float = 0) -> Array:
    """`x` with its spatial dimensions padded by `fill`; `x` itself if there is nothing to do."""
    if not any(spec.lo) and not any(spec.hi):
        return x if x.dtype == dtype else x.astype(dtype)
    out = np.full((*x.shape[:2], *spec.padded), fill, dtype)
    inner = tuple(slice(a, a + s) for a, s in zip(spec.lo, spec.space, strict=True))
    out[(slice(None), slice(None), *inner)] = x
    return out


def windows(padded: Array, spec: ConvSpec) -> Array:
    """View of a padded input as `(N, groups, C/groups, *K, *P)`; nothing is copied."""
    n, channels = padded.shape[:2]
    sn, sc, *ss = padded.strides
    group = channels // spec.groups
    taps = tuple(s * d for s, d in zip(ss, spec.dilation, strict=True))
    steps = tuple(s * t for s, t in zip(ss, spec.stride, strict=True))
    shape = (n, spec.groups, group, *spec.kernel, *spec.out)
    strides = (sn, sc * group, sc, *taps, *steps)
    return as_strided(padded, shape, strides, writeable=False)


def batches(spec: ConvSpec, itemsize: int) -> Iterator[slice]:
    """Slices of the batch whose windows fit the workspace (at least one image each)."""
    image = max(1, spec.groups * spec.depth * spec.positions * itemsize)
    step = max(1, WORKSPACE_BYTES // image)
    for start in range(0, spec.batch, step):
        yield slice(start, min(start + step, spec.batch))


def forward(x: Array, w: Array, spec: ConvSpec) -> Array:
    """Convolution (cross-correlation, as in every deep-learning library): `(N, O, *P)`."""
    dtype = compute_dtype(x, w)
    result = w.dtype if w.dtype == x.dtype else np.result_type(x, w)
    out = np.zeros((spec.batch, spec.filters, *spec.out), result)
    if out.size == 0 or spec.depth == 0:
        return out
    per_group = spec.filters // spec.groups
    kernel = w.reshape(spec.groups, per_group, spec.depth).astype(dtype, copy=False)
    for part in batches(spec, dtype.itemsize):
        view = windows(pad_space(x[part], spec, dtype), spec)
        cols = view.reshape(len(view), spec.groups, spec.depth, spec.positions)
        product = np.matmul(kernel, cols)
        out[part] = product.reshape(len(view), spec.filters, *spec.out)
    return out


def grad_input(ct: Array, w: Array, spec: ConvSpec) -> Array:
    """Cotangent of the input: each window's share is added back to the elements it came from."""
    dtype = compute_dtype(ct, w)
    result = ct.dtype if ct.dtype == w.dtype else np.result_type(ct, w)
    out = np.zeros((spec.batch, spec.channels, *spec.space), result)
    if out.size == 0 or ct.size == 0 or spec.depth == 0:
        return out
    per_group = spec.filters // spec.groups
    kernel = w.reshape(spec.groups, per_group, spec.depth).astype(dtype, copy=False)
    transposed = kernel.swapaxes(1, 2)
    inner = tuple(slice(a, a + s) for a, s in zip(spec.lo, spec.space, strict=True))
    for part in batches(spec, dtype.itemsize):
        count = part.stop - part.start
        rows = ct[part].reshape(count, spec.groups, per_group, spec.positions)
        cols = np.matmul(transposed, rows.astype(dtype, copy=False))
        cols = cols.reshape(count, spec.channels, *spec.kernel, *spec.out)
        padded = np.zeros((count, spec.channels, *spec.padded), dtype)
        scatter_windows(cols, padded, spec)
        out[part] = padded[(slice(None), slice(None), *inner)]
    return out


def scatter_windows(cols: Array, padded: Array, spec: ConvSpec) -> None:
    """Add `cols` `(n, C, *K, *P)` into `padded` `(n, C, *padded)`: the transpose of `windows`."""
    for where, tap in places(spec):
        padded[where] += cols[tap]


@functools.lru_cache(1024)
def places(spec: ConvSpec) -> list[tuple[Any, Any]]:
    """Where in a padded input the elements under each tap lie, and where in its windows."""
    every = slice(None), slice(None)
    return [((*every, *[slice(t * d, t * d + (p - 1) * s + 1, s) for t, d, p, s in
                        zip(tap, spec.dilation, spec.out, spec.stride, strict=True)]),
             (*every, *tap)) for tap in np.ndindex(*spec.kernel)]


def _images_inside(x: Array) -> Array:
    """`(n, groups, rows, positions)` as `(groups, rows, n * positions)`."""
    return np.moveaxis(x, 0, 2).reshape(*x.shape[1:3], -1)


def grad_weight(ct: Array, x: Array, spec: ConvSpec) -> Array:
    """Cotangent of the weight `(O, C/groups, *K)`, summed over images and positions."""
    dtype = compute_dtype(ct, x)
    result = ct.dtype if ct.dtype == x.dtype else np.result_type(ct, x)
    per_group = spec.filters // spec.groups
    total = np.zeros((spec.groups, per_group, spec.depth), dtype)
    for part in batches(spec, dtype.itemsize):
        if ct.size == 0 or total.size == 0:
            break
        view = windows(pad_space(x[part], spec, dtype), spec)
        count = len(view)
        cols = _images_inside(view.reshape(count, spec.groups, spec.depth, spec.positions))
        rows = ct[part].astype(dtype, copy=False)
        rows = _images_inside(rows.reshape(count, spec.groups, per_group, spec.positions))
        total += np.matmul(rows, cols.swapaxes(1, 2))
    shape = (spec.filters, spec.channels // spec.groups, *spec.kernel)
    return total.reshape(shape).astype(result, copy=False)
