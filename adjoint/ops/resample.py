"""Resampling of images: one linear map per spatial axis, made from sizes alone, so that backward
keeps nothing; it is the same map the other way round.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint.base.aval import Aval
from adjoint.base.errors import ArgumentError, NotSupported, ShapeError
from adjoint.core.modes import warn
from adjoint.core.op import op
from adjoint.kernels.conv_numpy import per_dim
from adjoint.kernels.conv_pool import local_product
from adjoint.ops.api_common import (
    dtype_of,
    need,
    need_kernel,
)
from adjoint.ops.device import following
from adjoint.ops.family import generated, through_float32
from adjoint.ops.public import typed

Shape = tuple[int, ...]
Axis = tuple[int, int, float | None]      # extent of the source, of the result, the factor or None


def _sources(n: int, out: int, scale: float | None, align: bool) -> Any:
    """Positions in the source, of every output position."""
    at = np.arange(out, dtype=np.float64)
    if align:
        return at * ((n - 1) / (out - 1) if out > 1 else 0.0)
    return (at + 0.5) * (1 / scale if scale else n / out) - 0.5


def _cubic(t: Any, a: float) -> Any:
    t = np.abs(t)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return np.where(t <= 1, near, np.where(t < 2, far, 0.0))


# kind -> (reach, weight of a source element at a distance), widened where the image shrinks
SMOOTH: dict[str, tuple[float, Callable[[Any], Any]]] = {
    "linear": (1.0, lambda t: np.maximum(1 - np.abs(t), 0)),
    "cubic": (2.0, lambda t: _cubic(t, -0.5)),
    "lanczos": (3.0, lambda t: np.where(np.abs(t) < 3, np.sinc(t) * np.sinc(t / 3), 0.0))}


@functools.lru_cache(maxsize=32)
def _matrix(axis: Axis, kind: str, align: bool, smooth: bool, dtype: Any) -> Any:
    """(out, n): the weight of every source element in every output element."""
    n, out, scale = axis
    if smooth:
        return _smooth_matrix(axis, kind, align).astype(dtype)
    m = np.zeros((out, n))
    for at, weight in zip(*_read_by(axis, kind, align, False), strict=True):
        np.add.at(m, (np.arange(out), at), weight)
    return m.astype(dtype)


def _read_by(axis: Axis, kind: str, align: bool, smooth: bool) -> tuple[Any, Any]:
    """(taps, out): the source elements that every output element reads, and their weights."""
    n, out, scale = axis
    if smooth:
        m = _smooth_matrix(axis, kind, align)
        low, end = (m != 0).argmax(1), n - (m[:, ::-1] != 0).argmax(1)
        at = low + np.arange((end - low).max())[:, None]
        inside = at < end
        index = np.where(inside, at, low)
        return index, np.where(inside, m[np.arange(out), index], 0.0)
    at = _sources(n, out, scale, align)
    if kind == "linear":
        at = np.maximum(at, 0)
        low = np.minimum(np.floor(at).astype(int), n - 1)
        return np.stack([low, np.minimum(low + 1, n - 1)]), np.stack([1 - (at - low), at - low])
    low = np.floor(at).astype(int) + np.arange(-1, 3)[:, None]
    return np.clip(low, 0, n - 1), _cubic(at - low, -0.75)


@functools.lru_cache(maxsize=32)
def _taps(axis: Axis, kind: str, align: bool, smooth: bool, back: bool, dtype: Any
          ) -> tuple[Any, Any]:
    """`_read_by`, or with `back` the output elements that every source element is read by; where
    there are fewer, one of them again with weight 0."""
    index, weight = _read_by(axis, kind, align, smooth)
    if back:
        n, out, _ = axis
        source = index.reshape(-1)
        order = np.argsort(source, kind="stable")
        source, given = source[order], np.tile(np.arange(out), len(index))[order]
        count = np.bincount(source, minlength=n)
        starts = np.cumsum(count) - count
        place = np.arange(len(source)) - starts[source]
        weights, weight = weight.reshape(-1)[order], np.zeros((int(count.max()), n))
        index = np.tile(given[np.minimum(starts, len(given) - 1)], (len(weight), 1))
        index[place, source], weight[place, source] = given, weights
    return np.ascontiguousarray(index, np.int64), np.ascontiguousarray(weight, dtype)


def _smooth_matrix(axis: Axis, kind: str, align: bool) -> Any:
    n, out, scale = axis
    if align:
        step = (n - 1) / (out - 1) if out > 1 else 0.0
    else:
        step = 1 / scale if scale else n / out
    wide = max(step, 1.0)
    reach, weight = SMOOTH[kind]
    support = reach * wide
    centre = (np.arange(out) + 0.5) * step
    m = np.zeros((out, n))
    for i, c in enumerate(centre):
        low, high = max(int(c - support + 0.5), 0), min(int(c + support + 0.5), n)
        w = weight((np.arange(low, high) - c + 0.5) / wide)
        m[i, low:high] = w / w.sum()
    return m


def _nearest(axis: Axis, exact: bool) -> Any:
    """The source element of every output element; never falls."""
    n, out, scale = axis
    step = np.float32(1 / scale if scale else n / out)
    at = np.floor((np.arange(out, dtype=np.float32) + np.float32(0.5 if exact else 0.0)) * step)
    return np.minimum(at.astype(np.int64), n - 1)


def _every(x: Any, d: int, start: int, step: int) -> Any:
    return x[(slice(None),) * d + (slice(start, None, step),)]


def _repeats(at: Any, n: int) -> int:
    """k where every one of n elements is read k times in turn; 0 elsewhere."""
    k = len(at) // max(n, 1)
    return k if k * n == len(at) and bool((at == np.arange(len(at)) // k).all()) else 0


def _read(x: Any, d: int, at: Any) -> Any:
    """x at these positions of axis d."""
    k = _repeats(at, x.shape[d])
    if not k:
        return np.take(x, at, axis=d)
    out = np.empty((*x.shape[:d], len(at), *x.shape[d + 1:]), x.dtype)
    for i in range(k):
        _every(out, d, i, k)[...] = x
    return out


def _gathered(x: Any, d: int, at: Any, n: int) -> Any:
    """The sums of what was read from each of n elements of axis d."""
    k = _repeats(at, n)
    if k:
        total = _every(x, d, 0, k) + (_every(x, d, 1, k) if k > 1 else 0)
        for i in range(2, k):
            total += _every(x, d, i, k)
        return total
    out = np.zeros((*x.shape[:d], n, *x.shape[d + 1:]), x.dtype)
    starts = np.concatenate([[0], np.nonzero(np.diff(at))[0] + 1])
    out[(slice(None),) * d + (at[starts],)] = np.add.reduceat(x, starts, axis=d)
    return out


def _weighed_bytes(x: Any, d: int, axis: Axis, kind: str, align: bool, smooth: bool) -> Any:
    """`_weighed` of bytes: weights rounded to 16 bits, the sums rounded to bytes again, so that
    every axis rounds once."""
    matrix, last = _matrix(axis, kind, align, smooth, np.dtype(np.float64)), x.ndim - 1
    bits = 0
    while bits < 22 and int(0.5 + matrix.max() * 2 ** (bits + 1)) < 1 << 15:
        bits += 1
    whole = np.trunc(matrix * 2**bits + np.copysign(0.5, matrix))
    sums = local_product(np.moveaxis(x, d, last).astype(np.float64), whole)
    rounded = np.floor((sums + 2.0 ** (bits - 1)) / 2.0**bits)
    return np.moveaxis(np.clip(rounded, 0, 255).astype(np.uint8), last, d)


MANY = 1024         # elements from which a kernel reads what there is to read


def _weighed(x: Any, d: int, axis: Axis, kind: str, align: bool, smooth: bool, back: bool) -> Any:
    """Axis d of x through the linear map of an axis, or its transpose."""
    kernel = generated("taps") if x.size >= MANY else None
    if kernel is not None:
        found = kernel(x, *_taps(axis, kind, align, smooth, back, x.dtype), d)
        # going back, elements that nothing read show another's cotangent with weight 0
        unread = back and axis[0] > axis[1]
        if found is not NotImplemented and not (unread and not np.isfinite(found).all()):
            return found
    matrix = _matrix(axis, kind, align, smooth, x.dtype)
    matrix, last = matrix.T if back else matrix, x.ndim - 1
    return np.moveaxis(local_product(np.moveaxis(x, d, last), matrix), last, d)


def _record(name: str, node: str, dims: int, kind: str, smooth: bool = False) -> Any:
    """A record of one mode; `back` is its transpose."""
    @through_float32
    def run(given: Any, *, axes: tuple[Axis, ...], align: bool, back: bool) -> Any:
        x = given
        copies = kind in ("nearest", "exact")
        # whole rows are made last and added first
        order = reversed(range(len(axes))) if not back else range(len(axes))
        for i in order:
            axis = n, out, scale = axes[i]
            d = 2 + i
            if copies:
                at = _nearest(axis, kind == "exact")
                x = _gathered(x, d, at, n) if back else _read(x, d, at)
            elif x.dtype == np.uint8:
                x = _weighed_bytes(x, d, axis, kind, align, smooth)
            elif n != out or scale is not None or kind == "cubic":
                x = _weighed(x, d, axis, kind, align, smooth, back)
        return given.copy() if x is given else np.ascontiguousarray(x)

    @following(0)
    def impl(x: Any, /, *, axes: tuple[Axis, ...], align: bool, back: bool) -> Any:
        return run(x, axes=axes, align=align, back=back)

    def again(ct: Any, *, axes: tuple[Axis, ...], align: bool, back: bool) -> Any:
        return found(ct, axes=axes, align=align, back=not back)

    def shape(x: Aval, *, axes: tuple[Axis, ...], align: bool, back: bool) -> Aval:
        return Aval((*x.shape[:2], *(a[0] if back else a[1] for a in axes)), x.dtype)

    found: Any = op(
        name, impl=impl, infer=shape, vjp={"x": again}, jvp={"x": None}, node=node, batch=_batch,
        cost=lambda x, *, axes, align, back: 2 * x.size * len(axes),
        domain=lambda: [((np.random.default_rng(0).normal(size=(1, 2, *(3,) * dims)),), {
            "axes": ((3, 5, None), (3, 2, None), (3, 6, 2.0))[:dims], "align": False,
            "back": False})])
    return found


def _batch(op_: Any, args: Any, batched: Any, attrs: Any) -> Any:
    """The axis of examples joins that of the batch."""
    from adjoint.ops.shape import reshape
    x = args[0]
    out = op_.call(reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:])), **attrs)
    return reshape(out, (*x.shape[:2], *out.shape[1:]))


# mode -> (number of spatial axes, smoothed) -> record
RECORDS: dict[str, dict[tuple[int, bool], Callable[..., Any]]] = {
    "nearest": {(d, False): _record(f"upsample_nearest{d}d", f"UpsampleNearest{d}DBackward0", d,
                                    "nearest") for d in (1, 2, 3)},
    "nearest-exact": {(d, False): _record(
        f"upsample_nearest_exact{d}d", f"UpsampleNearestExact{d}DBackward0", d, "exact")
        for d in (1, 2, 3)},
    "linear": {(1, False): _record("upsample_linear1d", "UpsampleLinear1DBackward0", 1, "linear")},
    "bilinear": {
        (2, False): _record("upsample_bilinear2d", "UpsampleBilinear2DBackward0", 2, "linear"),
        (2, True): _record("upsample_bilinear2d_aa", "UpsampleBilinear2DAaBackward0", 2, "linear",
                           True)},
    "trilinear": {
        (3, False): _record("upsample_trilinear3d", "UpsampleTrilinear3DBackward0", 3, "linear")},
    "bicubic": {
        (2, False): _record("upsample_bicubic2d", "UpsampleBicubic2DBackward0", 2, "cubic"),
        (2, True): _record("upsample_bicubic2d_aa", "UpsampleBicubic2DAaBackward0", 2, "cubic",
                           True)},
    "lanczos": {
        (2, True): _record("upsample_lanczos2d_aa", "UpsampleLanczos2DAaBackward0", 2, "lanczos",
                           True)}}


def _target(x: Any, size: Any, factor: Any, recompute: Any) -> tuple[Shape, list[float | None]]:
    dims = len(x.shape) - 2
    if (size is None) == (factor is None):
        raise ArgumentError("only one of size or scale_factor should be defined" if size is not None
                            else "either size or scale_factor should be defined")
    if size is not None:
        wanted = per_dim(size, dims)
        if len(wanted) != dims:
            raise ArgumentError("Input and output must have the same number of spatial dimensions, "
                                f"but got input with spatial dimensions of {list(x.shape[2:])} and "
                                f"output size of {size}")
        return wanted, [None] * dims
    factors = [float(factor)] * dims if isinstance(factor, (int, float)) else [
        float(f) for f in factor]
    if len(factors) != dims:
        raise ArgumentError(f"Input and scale_factor must have the same number of spatial "
                            f"dimensions, but got input with spatial dimensions of "
                            f"{list(x.shape[2:])} and scale_factor of shape {factor}")
    out = tuple(int(math.floor(n * f)) for n, f in zip(x.shape[2:], factors, strict=True))
    return out, [None] * dims if recompute else list(factors)


def _check_mode(mode: str, dims: int, align_corners: Any, antialias: bool) -> None:
    """Refuse modes that do not exist, or not for this number of axes."""
    if mode in ("nearest", "nearest-exact", "area") and align_corners is not None:
        raise ArgumentError("align_corners option can only be set with the interpolating modes: "
                            "linear | bilinear | bicubic | trilinear")
    if mode not in RECORDS and mode != "area":
        raise NotImplementedError(f"Unknown interpolation mode {mode!r}")
    if mode == "lanczos" and (align_corners or not antialias):
        raise ArgumentError("Lanczos mode " + ("does not support align_corners=True"
                                               if align_corners else "requires antialias=True"))
    known = RECORDS.get(mode, {})
    if antialias and (dims, True) not in known:
        raise ArgumentError("Anti-alias option is restricted to bilinear, bicubic, and lanczos "
                            f"modes and requires a 4-D tensor as input, got mode {mode!r} and "
                            f"{dims + 2}-D")
    if known and not any(d == dims for d, _ in known):
        ranks = " or ".join(f"{d + 2}D" for d in sorted({d for d, _ in known}))
        raise NotImplementedError(f"Got {dims + 2}D input, but {mode} mode needs {ranks} input")


@typed
def interpolate(input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
                align_corners: Any = None, recompute_scale_factor: Any = None,
                antialias: bool = False) -> Any:
    """Resamples the spatial axes of (N, C, ...) to `size` or by `scale_factor`.

    mode: nearest, nearest-exact, linear, bilinear, trilinear, bicubic, lanczos, area. `antialias`
    widens what is averaged where the image shrinks (bilinear, bicubic; lanczos needs it).
    Source of lanczos: C. Duchon, "Lanczos filtering in one and two dimensions" (1979).

    >>> import adjoint as ad
    >>> ad.nn.functional.interpolate(ad.tensor([[[1.0, 2.0]]]), scale_factor=2)
    tensor([[[1., 1., 2., 2.]]])
    """
    need("interpolate", input)
    dims = len(input.shape) - 2
    if dims not in (1, 2, 3):
        raise NotSupported("Input Error: Only 3D, 4D and 5D input Tensors supported (got "
                           f"{len(input.shape)}D) for the mode {mode}")
    _check_mode(mode, dims, align_corners, antialias)
    need_kernel(f"compute_indices_weights_{mode.split('-')[0]}", "c", input)
    if mode in ("nearest", "nearest-exact"):
        need_kernel("compute_indices_weights_nearest", "bi", input)
    elif mode in ("linear", "trilinear"):
        need_kernel("compute_indices_weights_linear", "biu", input)
    elif mode == "area":
        need_kernel("adaptive_avg_pool2d", "biu", input)
    out, scales = _target(input, size, scale_factor, recompute_scale_factor)
    if recompute_scale_factor and size is not None:
        raise ArgumentError("recompute_scale_factor is not meaningful with an explicit size.")
    space: Shape = tuple(input.shape[2:])
    if min(*out, *space) < 1:
        was, now = (", ".join(f"{a}: {n}" for a, n in zip("DHW"[-dims:], shape, strict=True))
                    for shape in (space, out))
        raise ShapeError("Input and output sizes should be greater than 0, but got input "
                         f"({was}) and output ({now})")
    if mode == "area":
        from adjoint.ops.pool import adaptive_avg_op
        return adaptive_avg_op(input, size=out)
    axes = tuple(zip(space, out, scales, strict=True))
    record = RECORDS[mode][dims, bool(antialias)]
    held = dtype_of(input)
    if held.kind in "iub" and mode not in ("nearest", "nearest-exact"):
        if held != np.uint8:
            raise NotSupported(f"interpolate: mode {mode} is not implemented for "
                               f"'{input.dtype}': weighted sums need floating numbers, or bytes")
    return record(input, axes=axes, align=bool(align_corners), back=False)


def _older(name: str) -> None:
    warn(f"`nn.functional.{name}` is deprecated. Use `nn.functional.interpolate` instead.")


def upsample_nearest(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    """`interpolate` by the nearest neighbour."""
    _older("upsample_nearest")
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    """`interpolate` bilinearly, corners aligned."""
    _older("upsample_bilinear")
    return interpolate(input, size, scale_factor, "bilinear", True)


def upsample(input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
             align_corners: Any = None) -> Any:
    """`interpolate` by its old name."""
    _older("upsample")
    return interpolate(input, size, scale_factor, mode, align_corners)


__all__ = ["RECORDS", "interpolate", "upsample", "upsample_bilinear", "upsample_nearest"]
