"""Transforms as functions of one image: a Pillow image, an array (height, width[, channels]) or a
tensor (channels, height, width); the result is of the same kind unless said."""
from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np

from adjoint.base import dtypes
from adjoint.base.errors import ArgumentError, DTypeError, NotSupported, ShapeError
from adjoint.core.tensor import Tensor, wrap
from adjoint.vision import pixels as px


class InterpolationMode(Enum):
    """How values between pixels are found."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


def to_tensor(pic: Any) -> Tensor:
    """(channels, height, width); uint8 images become float32 in [0, 1].

    >>> to_tensor(np.full((2, 2), 255, np.uint8)).tolist()
    [[[1.0, 1.0], [1.0, 1.0]]]
    """
    if isinstance(pic, Tensor) or not (px.is_pillow(pic) or isinstance(pic, np.ndarray)):
        raise DTypeError(f"pic should be PIL Image or ndarray. Got {type(pic)}")
    array = np.ascontiguousarray(px.planes(pic)[0])
    if array.dtype == np.uint8:
        return wrap(array.astype(dtypes.default_dtype()) / dtypes.default_dtype().type(255))
    return wrap(array.astype(np.uint8) if array.dtype == bool else array.copy())


def pil_to_tensor(pic: Any) -> Tensor:
    """The same without a change of values."""
    return wrap(np.ascontiguousarray(px.planes(pic)[0]))


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


def to_pil_image(pic: Any, mode: str | None = None) -> Any:
    """A Pillow image; floats are taken as [0, 1]. Needs Pillow."""
    try:
        from PIL import Image
    except ImportError:
        raise NotSupported("to_pil_image needs Pillow: pip install pillow") from None
    array = px.planes(pic)[0]
    if array.dtype.kind == "f" and isinstance(pic, Tensor):
        array = (array * 255).astype(np.uint8)
    array = np.ascontiguousarray(array[0] if len(array) == 1 else np.moveaxis(array, 0, -1))
    image = Image.fromarray(array)
    return image if mode is None else image.convert(mode)


def normalize(tensor: Tensor, mean: Sequence[float], std: Sequence[float],
              inplace: bool = False) -> Tensor:
    """(tensor - mean) / std, per channel."""
    if not isinstance(tensor, Tensor) or tensor.dtype.dtype.kind != "f":
        raise DTypeError("Input tensor should be a float tensor. Got "
                         f"{getattr(tensor, 'dtype', type(tensor))}.")
    if tensor.dim() < 3:
        raise ShapeError("Expected tensor to be a tensor image of size (..., C, H, W). Got "
                         f"tensor.size() = {tensor.shape}")
    dtype = tensor.array.dtype
    m, s = (np.asarray(v, dtype).reshape(-1, 1, 1) for v in (mean, std))
    if (s == 0).any():
        raise ArgumentError(f"std evaluated to zero after conversion to {dtype}, leading to "
                            "division by zero.")
    return tensor.sub_(wrap(m)).div_(wrap(s)) if inplace else (tensor - wrap(m)) / wrap(s)


def resize(img: Any, size: Any, interpolation: Any = InterpolationMode.BILINEAR,
           max_size: int | None = None, antialias: bool | None = True) -> Any:
    """To (height, width), or the smaller edge to one number with the ratio kept."""
    array, back = px.planes(img)
    height, width = array.shape[-2:]
    if isinstance(size, int) or len(size) == 1:
        short = size if isinstance(size, int) else size[0]
        if height <= width:
            wanted = (short, int(short * width / height))
        else:
            wanted = (int(short * height / width), short)
        if max_size is not None and max(wanted) > max_size:
            ratio = max_size / max(wanted)
            wanted = (int(wanted[0] * ratio), int(wanted[1] * ratio))
    else:
        wanted = (int(size[0]), int(size[1]))
    if min(wanted) < 1:
        raise ArgumentError(f"resize: size {list(wanted)} must be positive")
    mode = interpolation.value if isinstance(interpolation, InterpolationMode) else \
        {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic",
         4: "box", 5: "hamming"}.get(interpolation, str(interpolation))
    if wanted == (height, width):
        return img
    smooth = bool(antialias) or not isinstance(img, Tensor)
    return back(px.resample(array, wanted, mode, smooth))


def pad(img: Any, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> Any:
    """Borders: one width, (left/right, top/bottom) or (left, top, right, bottom)."""
    p = [padding] if isinstance(padding, int) else list(padding)
    if len(p) not in (1, 2, 4):
        raise ArgumentError(f"pad: padding has 1, 2 or 4 numbers, got {padding}")
    left, top, right, bottom = p * 4 if len(p) == 1 else p * 2 if len(p) == 2 else p
    array, back = px.planes(img)
    return back(px.pad(array, left, top, right, bottom, fill, padding_mode))


def crop(img: Any, top: int, left: int, height: int, width: int) -> Any:
    """The window that begins at (top, left); zeros where it leaves the image."""
    array, back = px.planes(img)
    return back(px.crop(array, top, left, height, width))


def center_crop(img: Any, output_size: Any) -> Any:
    """The middle of an image, with zeros around where the image is smaller."""
    h, w = (output_size,) * 2 if isinstance(output_size, int) else (output_size[0], output_size[-1])
    height, width = px.size_of(img)
    top, left = int(round((height - h) / 2.0)), int(round((width - w) / 2.0))
    return crop(img, top, left, h, w)


def resized_crop(img: Any, top: int, left: int, height: int, width: int, size: Any,
                 interpolation: Any = InterpolationMode.BILINEAR, antialias: bool = True) -> Any:
    """`crop`, then `resize`."""
    return resize(crop(img, top, left, height, width), size, interpolation, antialias=antialias)


def hflip(img: Any) -> Any:
    """Left and right exchanged."""
    array, back = px.planes(img)
    return back(np.ascontiguousarray(array[..., ::-1]))


def vflip(img: Any) -> Any:
    """Top and bottom exchanged."""
    array, back = px.planes(img)
    return back(np.ascontiguousarray(array[..., ::-1, :]))


def rotate(img: Any, angle: float, fill: Any = 0) -> Any:
    """Counter-clockwise by degrees about the centre, nearest pixels."""
    array, back = px.planes(img)
    return back(px.rotate(array, angle, fill))


def rgb_to_grayscale(img: Any, num_output_channels: int = 1) -> Any:
    """The luma, in one channel or three equal ones."""
    array, back = px.planes(img)
    one = px.grey(array, tensor=isinstance(img, Tensor))
    made = np.repeat(one, 3, 0) if num_output_channels == 3 else one
    if isinstance(img, Tensor):
        return wrap(made)
    last = made[0] if len(made) == 1 else np.moveaxis(made, 0, -1)
    return px._pillow(np.ascontiguousarray(last), type(img)) if px.is_pillow(img) else last


to_grayscale = rgb_to_grayscale


def adjust_brightness(img: Any, brightness_factor: float) -> Any:
    """0 gives black, 1 the image."""
    array, back = px.planes(img)
    return back(px.blend(array, 0.0, brightness_factor))


def adjust_contrast(img: Any, contrast_factor: float) -> Any:
    """0 gives its mean grey, 1 the image."""
    array, back = px.planes(img)
    mean = px.grey(array).mean()
    return back(px.blend(array, np.floor(mean) if array.dtype.kind in "iu" else mean,
                         contrast_factor))


def adjust_saturation(img: Any, saturation_factor: float) -> Any:
    """0 gives grey, 1 the image."""
    array, back = px.planes(img)
    return back(px.blend(array, px.grey(array), saturation_factor))


def adjust_hue(img: Any, hue_factor: float) -> Any:
    """The hue turned by a part of the full turn in [-0.5, 0.5]."""
    if not -0.5 <= hue_factor <= 0.5:
        raise ArgumentError(f"hue_factor ({hue_factor}) is not in [-0.5, 0.5].")
    array, back = px.planes(img)
    return img if len(array) == 1 else back(px.hue(array, hue_factor))


def erase(img: Tensor, i: int, j: int, h: int, w: int, v: Any, inplace: bool = False) -> Tensor:
    """A window of a tensor set to `v`."""
    out = img if inplace else img.clone()
    out[..., i:i + h, j:j + w] = v
    return out
