"""Images as arrays: between Pillow images, (height, width[, channels]) arrays and (channels,
height, width) tensors; resampling, cropping and colour on them."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint.base.errors import ArgumentError, DTypeError
from adjoint.core.tensor import Tensor, wrap

Array = np.ndarray[Any, Any]


def is_pillow(image: Any) -> bool:
    """True for an image of Pillow, which need not be installed."""
    return type(image).__module__.startswith("PIL.")


def planes(image: Any) -> tuple[Array, Callable[[Array], Any]]:
    """An image as a (channels, height, width) array, and how a result becomes what it was."""
    if isinstance(image, Tensor):
        if image.dim() < 2:
            raise ArgumentError(f"an image tensor has 2 or more axes, got {list(image.shape)}")
        array = image.detach().array
        return (array[None], lambda a: wrap(a[0])) if array.ndim == 2 else (array, wrap)
    if is_pillow(image):
        kind, array = type(image), np.asarray(image)
        return _channels_first(array), lambda a: _pillow(_channels_last(a, array.ndim), kind)
    if isinstance(image, np.ndarray) and image.ndim in (2, 3):
        return _channels_first(image), lambda a: _channels_last(a, image.ndim)
    raise DTypeError("an image is a Pillow image, an array (height, width[, channels]) or a tensor "
                     f"(channels, height, width), got {type(image).__name__}")


def _channels_first(array: Array) -> Array:
    return array[None] if array.ndim == 2 else np.moveaxis(array, -1, 0)


def _channels_last(array: Array, ndim: int) -> Array:
    if ndim == 2 and len(array) == 1:
        return np.ascontiguousarray(array[0])
    return np.ascontiguousarray(np.moveaxis(array, 0, -1))


def _pillow(array: Array, kind: Any) -> Any:
    from PIL import Image
    return Image.fromarray(array)


def size_of(image: Any) -> tuple[int, int]:
    """(height, width)."""
    array = planes(image)[0]
    return int(array.shape[-2]), int(array.shape[-1])


def like(values: Array, source: Array) -> Array:
    """Computed values in the dtype of the image: integers rounded and kept in range."""
    if source.dtype.kind in "iu":
        info = np.iinfo(source.dtype)
        return np.clip(np.rint(values), info.min, info.max).astype(source.dtype)
    return values.astype(source.dtype, copy=False)


def _weights(old: int, new: int, filter_: Callable[[Array], Array], reach: float,
             antialias: bool) -> Array:
    """(new, old) matrix that resamples one axis: the filter is widened when shrinking."""
    scale = old / new
    stretch = max(scale, 1.0) if antialias else 1.0
    centre = (np.arange(new)[:, None] + 0.5) * scale
    at = (np.arange(old)[None, :] + 0.5 - centre) / stretch
    w = filter_(at)
    if not antialias:                       # positions outside repeat the border
        for i, c in enumerate(centre[:, 0] - 0.5):
            w[i] = 0
            low = math.floor(c - reach) + 1
            for j in range(low, low + int(2 * reach)):
                w[i, min(max(j, 0), old - 1)] += filter_(np.array(j - c))
    return w / w.sum(1, keepdims=True)


def _triangle(x: Array) -> Array:
    return np.maximum(0.0, 1 - np.abs(x))


def _box(x: Array) -> Array:
    return ((x > -0.5) & (x <= 0.5)).astype(np.float64)


def _hamming(x: Array) -> Array:
    return np.where(np.abs(x) < 1, np.sinc(x) * (0.54 + 0.46 * np.cos(np.pi * x)), 0.0)


def _lanczos(x: Array) -> Array:
    return np.where((x >= -3) & (x < 3), np.sinc(x) * np.sinc(x / 3), 0.0)


def _cubic(a: float) -> Callable[[Array], Array]:
    def f(x: Array) -> Array:
        x = np.abs(x)
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((x - 5) * x + 8) * x * a - 4 * a
        return np.where(x < 1, near, np.where(x < 2, far, 0.0))
    return f


def resample(array: Array, size: tuple[int, int], mode: str, antialias: bool) -> Array:
    """A (..., height, width) array at another size; modes nearest, nearest-exact, bilinear,
    bicubic; with `antialias` also box, hamming and lanczos, which Pillow has.

    Source: separable convolution with a filter as wide as the scale, as in Pillow (antialias), or
    interpolation between the nearest pixels (not).
    """
    height, width = array.shape[-2:]
    if mode in ("nearest", "nearest-exact"):
        inside = 0.5 * (mode == "nearest-exact")          # the middle of a pixel, or its edge
        rows, columns = (
            np.minimum(((np.arange(new) + inside) * (old / new)).astype(int), old - 1)
            for new, old in zip(size, (height, width), strict=True))
        return array[..., rows[:, None], columns]
    filters = {"bilinear": (_triangle, 1.0),
               "bicubic": (_cubic(-0.5 if antialias else -0.75), 2.0)}
    if antialias:
        filters |= {"box": (_box, 0.5), "hamming": (_hamming, 1.0), "lanczos": (_lanczos, 3.0)}
    if mode not in filters:
        raise ArgumentError(f"interpolation {mode!r} is not one of nearest, nearest-exact, "
                            f"{', '.join(filters)}")
    f, reach = filters[mode]
    rows_w = _weights(height, size[0], f, reach, antialias)
    columns_w = _weights(width, size[1], f, reach, antialias)
    return like(rows_w @ array.astype(np.float64) @ columns_w.T, array)


def pad(array: Array, left: int, top: int, right: int, bottom: int, fill: Any = 0,
        mode: str = "constant") -> Array:
    """Borders around a (channels, height, width) array."""
    around = [(0, 0)] * (array.ndim - 2) + [(top, bottom), (left, right)]
    if mode != "constant":
        if mode not in ("edge", "reflect", "symmetric"):
            raise ArgumentError(f"padding_mode {mode!r} is not one of constant, edge, reflect, "
                                "symmetric")
        border: Any = mode
        return np.pad(array, around, mode=border)
    out = np.pad(array, around)
    if np.any(fill):
        inner = np.pad(np.ones(array.shape[-2:], bool), around[-2:])
        out[..., ~inner] = np.asarray(fill).reshape(-1, 1)
    return out


def crop(array: Array, top: int, left: int, height: int, width: int) -> Array:
    """A window; what lies outside of the image is zero."""
    h, w = array.shape[-2:]
    inner = array[..., max(top, 0):max(min(top + height, h), 0),
                  max(left, 0):max(min(left + width, w), 0)]
    if inner.shape[-2:] == (height, width):
        return inner
    before = max(-top, 0), max(-left, 0)
    return pad(inner, before[1], before[0], width - inner.shape[-1] - before[1],
               height - inner.shape[-2] - before[0])


GREY = np.array([0.299, 0.587, 0.114])     # luma of ITU-R BT.601
GREY_OF_TENSORS = np.array([0.2989, 0.587, 0.114])


def grey(array: Array, tensor: bool = False) -> Array:
    """One channel: the luma of three. For tensors it has torchvision's factors, whose sum is
    0.9999, and whole numbers are cut off; Pillow rounds them."""
    if array.shape[-3] == 1:
        return array
    factors = GREY_OF_TENSORS if tensor else GREY
    planes_of = np.moveaxis(array[..., :3, :, :].astype(np.float64), -3, 0)
    luma = np.expand_dims(np.tensordot(factors, planes_of, 1), -3)
    return luma.astype(array.dtype) if tensor else like(luma, array)


def blend(a: Array, b: Array | float, ratio: float) -> Array:
    """ratio * a + (1 - ratio) * b, in the range of the dtype."""
    top = 255.0 if a.dtype.kind in "iu" else 1.0
    floats = a.dtype if a.dtype.kind == "f" else np.dtype(np.float32)
    part, rest = floats.type(ratio), floats.type(1.0 - ratio)
    mixed = part * a.astype(floats) + rest * np.asarray(b, floats)
    return np.clip(mixed, 0, top).astype(a.dtype)


def hue(array: Array, shift: float) -> Array:
    """The hue turned by `shift` of a full turn (RGB to HSV and back)."""
    top = 255.0 if array.dtype.kind in "iu" else 1.0
    r, g, b = np.moveaxis(array[..., :3, :, :].astype(np.float64) / top, -3, 0)
    high, low = np.maximum(np.maximum(r, g), b), np.minimum(np.minimum(r, g), b)
    span = high - low
    with np.errstate(all="ignore"):
        h = np.where(high == r, (g - b) / span % 6, np.where(high == g, (b - r) / span + 2,
                                                             (r - g) / span + 4))
        s = np.where(high == 0, 0, span / high)
    h = (np.where(span == 0, 0, h) / 6 + shift) % 1 * 6
    out = [high - high * s * np.clip(np.minimum(k, 4 - k), 0, 1)
           for k in ((n + h) % 6 for n in (5, 3, 1))]
    turned = np.stack(out, -3)
    if array.dtype.kind in "iu":             # each level has the same share of [0, 1]
        return (turned * (top + 1 - 1e-3)).astype(array.dtype)
    return turned.astype(array.dtype, copy=False)
