"""What values pixels have: brightness, contrast, colour, sharpness, histograms, as functions.

Pillow images are changed by Pillow; tensors, and arrays by way of them, here.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.base import dtypes
from adjoint.base.errors import ArgumentError, DTypeError
from adjoint.core.tensor import Tensor, wrap
from adjoint.vision import pixels as px
from adjoint.vision import warp
from adjoint.vision.transforms.geometry import on_tensor, through_tensor


def convert_image_dtype(image: Tensor, dtype: Any = dtypes.float32) -> Tensor:
    """Another dtype, values scaled to its range: [0, 1] for floats, all of it for integers."""
    array, to = image.array, dtypes.to_numpy(dtype)
    if array.dtype.kind == to.kind == "f":
        return wrap(array.astype(to))
    if array.dtype.kind == "f":
        top = np.iinfo(to).max
        return wrap((array.astype(np.float64) * (top + 1 - 1e-3)).astype(to))
    if to.kind == "f":
        return wrap(array.astype(to) / to.type(np.iinfo(array.dtype).max))
    shift = np.iinfo(to).bits - np.iinfo(array.dtype).bits
    return wrap(array.astype(to) << shift if shift > 0 else (array >> -shift).astype(to))


def _enhanced(kind: str, img: Any, factor: float) -> Any:
    from PIL import ImageEnhance
    return getattr(ImageEnhance, kind)(img).enhance(factor)


def _top(image: Tensor) -> float:
    return 1.0 if image.is_floating_point() else float(np.iinfo(image.array.dtype).max)


def _bytes(image: Tensor) -> None:
    if image.array.dtype != np.uint8:
        raise DTypeError("Only torch.uint8 image tensors are supported, but found "
                         f"torch.{image.array.dtype}")


def _factor(name: str, factor: float) -> None:
    if factor < 0:
        raise ArgumentError(f"{name} ({factor}) is not non-negative.")


def adjust_brightness(img: Any, brightness_factor: float) -> Any:
    """0 gives black, 1 the image."""
    _factor("brightness_factor", brightness_factor)
    if px.is_pillow(img):
        return _enhanced("Brightness", img, brightness_factor)
    array, back = px.planes(img)
    return back(px.blend(array, 0.0, brightness_factor))


def adjust_contrast(img: Any, contrast_factor: float) -> Any:
    """0 gives its mean grey, 1 the image."""
    _factor("contrast_factor", contrast_factor)
    if px.is_pillow(img):
        return _enhanced("Contrast", img, contrast_factor)
    array, back = px.planes(img)
    mean = px.grey(array, tensor=True).mean((-3, -2, -1), np.float32, keepdims=True)
    return back(px.blend(array, mean, contrast_factor))


def adjust_saturation(img: Any, saturation_factor: float) -> Any:
    """0 gives grey, 1 the image."""
    _factor("saturation_factor", saturation_factor)
    if px.is_pillow(img):
        return _enhanced("Color", img, saturation_factor)
    array, back = px.planes(img)
    return img if array.shape[-3] == 1 else back(
        px.blend(array, px.grey(array, tensor=True), saturation_factor))


def adjust_hue(img: Any, hue_factor: float) -> Any:
    """The hue turned by a part of the full turn in [-0.5, 0.5]."""
    if not -0.5 <= hue_factor <= 0.5:
        raise ArgumentError(f"hue_factor ({hue_factor}) is not in [-0.5, 0.5].")
    if px.is_pillow(img):
        return _pillow_hue(img, hue_factor)
    array, back = px.planes(img)
    return img if array.shape[-3] == 1 else back(px.hue(array, hue_factor))


def _pillow_hue(img: Any, hue_factor: float) -> Any:
    """Pillow keeps the hue in 8 bits, and a turn is a sum of bytes."""
    from PIL import Image
    if img.mode in ("L", "1", "I", "F"):
        return img
    h, s, v = img.convert("HSV").split()
    turned = ((np.asarray(h).astype(np.int64) + int(hue_factor * 255)) % 256).astype(np.uint8)
    return Image.merge("HSV", (Image.fromarray(turned), s, v)).convert(img.mode)


def adjust_gamma(img: Any, gamma: float, gain: float = 1) -> Any:
    """gain * value ** gamma, with values in [0, 1].

    >>> import adjoint as ad
    >>> adjust_gamma(ad.full((1, 1, 1), 0.5), 2.0).item()
    0.25
    """
    if gamma < 0:
        raise ArgumentError("Gamma should be a non-negative real number")
    if px.is_pillow(img):
        mode = img.mode
        table = [int((255 + 1 - 1e-3) * gain * (v / 255.0) ** gamma) for v in range(256)]
        rgb = img.convert("RGB")
        return rgb.point([min(v, 255) for v in table] * 3).convert(mode)

    def change(x: Tensor) -> Tensor:
        values = x if x.is_floating_point() else convert_image_dtype(x)
        made = (gain * values.pow(gamma)).clamp(0, 1)
        return made if x.is_floating_point() else convert_image_dtype(made, x.dtype)
    return on_tensor(img, change)


def adjust_sharpness(img: Any, sharpness_factor: float) -> Any:
    """0 gives a softened image, 1 the image, 2 twice the difference."""
    _factor("sharpness_factor", sharpness_factor)
    if px.is_pillow(img):
        return _enhanced("Sharpness", img, sharpness_factor)
    if min(px.size_of(img)) <= 2:
        return img

    def change(x: Tensor) -> Tensor:
        soft, part = warp.softened(x), float(sharpness_factor)
        mixed = (part * x + (1.0 - part) * soft).clamp(0, _top(x))
        return mixed.to(x.dtype)
    return on_tensor(img, change)


def invert(img: Any) -> Any:
    """Light and dark exchanged."""
    if px.is_pillow(img):
        from PIL import ImageOps
        return ImageOps.invert(img)
    return on_tensor(img, lambda x: (1.0 if x.is_floating_point() else int(_top(x))) - x)


def posterize(img: Any, bits: int) -> Any:
    """Only the `bits` highest bits of each byte."""
    if px.is_pillow(img):
        from PIL import ImageOps
        return ImageOps.posterize(img, bits)

    def change(x: Tensor) -> Tensor:
        _bytes(x)
        return wrap(x.array & np.uint8(-(2 ** (8 - bits)) % 256))
    return on_tensor(img, change)


def solarize(img: Any, threshold: float) -> Any:
    """Values from `threshold` on inverted."""
    if px.is_pillow(img):
        from PIL import ImageOps
        bound: Any = threshold
        return ImageOps.solarize(img, bound)

    def change(x: Tensor) -> Tensor:
        if threshold > _top(x):
            raise DTypeError("Threshold should be less than bound of img.")
        return x.where(x < threshold, invert(x))
    return on_tensor(img, change)


def autocontrast(img: Any) -> Any:
    """Each channel's values spread over the whole range."""
    if px.is_pillow(img):
        from PIL import ImageOps
        return ImageOps.autocontrast(img)

    def change(x: Tensor) -> Tensor:
        top, values = _top(x), x if x.is_floating_point() else x.float()
        low, high = (f(dim=(-2, -1), keepdim=True) for f in (values.amin, values.amax))
        scale = (high - low).reciprocal() * top
        flat = ~scale.isfinite()
        low, scale = low.masked_fill(flat, 0), scale.masked_fill(flat, 1)
        return ((values - low) * scale).clamp(0, top).to(x.dtype)
    return on_tensor(img, change)


def equalize(img: Any) -> Any:
    """Each channel's bytes mapped so that all levels are equally frequent."""
    if px.is_pillow(img):
        from PIL import ImageOps
        return ImageOps.equalize(img)

    def change(x: Tensor) -> Tensor:
        _bytes(x)
        array = x.array
        flat = array.reshape(-1, *array.shape[-2:])
        return wrap(np.stack([_equal(plane) for plane in flat]).reshape(array.shape))
    return on_tensor(img, change)


def _equal(plane: px.Array) -> px.Array:
    counts = np.bincount(plane.ravel(), minlength=256)
    step = int(counts[counts != 0][:-1].sum()) // 255
    if step == 0:
        return plane
    below = np.cumsum(counts) - counts
    table = np.where(np.arange(256) == 0, 0, (below + step // 2) // step)
    return np.clip(table, 0, 255).astype(np.uint8)[plane]


def gaussian_blur(img: Any, kernel_size: Any, sigma: Any = None) -> Any:
    """Blurred by a normal curve of `sigma` pixels (None: 0.15 * size + 0.35), cut off at
    `kernel_size` pixels (odd; one number, or x and y)."""
    sizes = [kernel_size] * 2 if isinstance(kernel_size, int) else list(kernel_size)
    if len(sizes) != 2:
        raise ArgumentError("If kernel_size is a sequence its length should be 2. Got "
                            f"{len(sizes)}")
    if any(k % 2 == 0 or k < 0 for k in sizes):
        raise ArgumentError(f"kernel_size should have odd and positive integers. Got {sizes}")
    spreads = [k * 0.15 + 0.35 for k in sizes] if sigma is None else (
        [float(sigma)] * 2 if isinstance(sigma, (int, float)) else list(sigma))
    spreads = spreads * 2 if len(spreads) == 1 else spreads
    if len(spreads) != 2:
        raise ArgumentError(f"If sigma is a sequence, its length should be 2. Got {len(spreads)}")
    if any(s <= 0 for s in spreads):
        raise ArgumentError(f"sigma should have positive values. Got {spreads}")
    return through_tensor(img, lambda x: warp.gaussian_blur(x, sizes, spreads))


def get_dimensions(img: Any) -> list[int]:
    """[channels, height, width].

    >>> import adjoint as ad
    >>> get_dimensions(ad.zeros(3, 4, 5))
    [3, 4, 5]
    """
    return [get_image_num_channels(img), *px.size_of(img)]


def get_image_size(img: Any) -> list[int]:
    """[width, height]."""
    return list(px.size_of(img)[::-1])


def get_image_num_channels(img: Any) -> int:
    """1 for an image without an axis of channels."""
    if isinstance(img, Tensor):
        return 1 if img.dim() == 2 else int(img.shape[-3])
    return len(px.planes(img)[0])


def erase(img: Tensor, i: int, j: int, h: int, w: int, v: Any, inplace: bool = False) -> Tensor:
    """A window of a tensor set to `v`."""
    out = img if inplace else img.clone()
    out[..., i:i + h, j:j + w] = v
    return out
