"""Transforms as functions of one image: a Pillow image, an array (height, width[, channels]) or a
tensor (channels, height, width); the result is of the same kind unless said."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from adjoint.base import dtypes
from adjoint.base.errors import ArgumentError, DTypeError, NotSupported, ShapeError
from adjoint.core.tensor import Tensor, wrap
from adjoint.vision import pixels as px
from adjoint.vision.transforms.geometry import (
    InterpolationMode,
    affine,
    center_crop,
    crop,
    elastic_transform,
    five_crop,
    hflip,
    mode_name,
    perspective,
    pillow_mode,
    rotate,
    ten_crop,
    vflip,
)
from adjoint.vision.transforms.levels import (
    adjust_brightness,
    adjust_contrast,
    adjust_gamma,
    adjust_hue,
    adjust_saturation,
    adjust_sharpness,
    autocontrast,
    convert_image_dtype,
    equalize,
    erase,
    gaussian_blur,
    get_dimensions,
    get_image_num_channels,
    get_image_size,
    invert,
    posterize,
    solarize,
)


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
    if wanted == (height, width):
        return img
    if px.is_pillow(img):
        return img.resize(wanted[::-1], pillow_mode(interpolation))
    smooth = bool(antialias) or not isinstance(img, Tensor)
    return back(px.resample(array, wanted, mode_name(interpolation), smooth))


def pad(img: Any, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> Any:
    """Borders: one width, (left/right, top/bottom) or (left, top, right, bottom)."""
    p = [padding] if isinstance(padding, int) else list(padding)
    if len(p) not in (1, 2, 4):
        raise ArgumentError(f"pad: padding has 1, 2 or 4 numbers, got {padding}")
    left, top, right, bottom = p * 4 if len(p) == 1 else p * 2 if len(p) == 2 else p
    array, back = px.planes(img)
    return back(px.pad(array, left, top, right, bottom, fill, padding_mode))


def resized_crop(img: Any, top: int, left: int, height: int, width: int, size: Any,
                 interpolation: Any = InterpolationMode.BILINEAR, antialias: bool = True) -> Any:
    """`crop`, then `resize`."""
    return resize(crop(img, top, left, height, width), size, interpolation, antialias=antialias)


def rgb_to_grayscale(img: Any, num_output_channels: int = 1) -> Any:
    """The luma, in one channel or three equal ones."""
    array, back = px.planes(img)
    one = px.grey(array, tensor=isinstance(img, Tensor))
    made = np.repeat(one, 3, -3) if num_output_channels == 3 else one
    if isinstance(img, Tensor):
        return wrap(made)
    last = made[0] if len(made) == 1 else np.moveaxis(made, 0, -1)
    return px._pillow(np.ascontiguousarray(last), type(img)) if px.is_pillow(img) else last


to_grayscale = rgb_to_grayscale


__all__ = [
    "InterpolationMode", "adjust_brightness", "adjust_contrast", "adjust_gamma", "adjust_hue",
    "adjust_saturation", "adjust_sharpness", "affine", "autocontrast", "center_crop",
    "convert_image_dtype", "crop", "elastic_transform", "equalize", "erase", "five_crop",
    "gaussian_blur", "get_dimensions", "get_image_num_channels", "get_image_size", "hflip",
    "invert", "normalize", "pad", "perspective", "pil_to_tensor", "posterize", "resize",
    "resized_crop", "rgb_to_grayscale", "rotate", "solarize", "ten_crop", "to_grayscale",
    "to_pil_image", "to_tensor", "vflip"]
