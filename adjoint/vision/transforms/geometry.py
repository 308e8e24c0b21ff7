"""Where pixels go: turns, shears, perspective, displacements and sets of crops, as functions.

Pillow images are changed by Pillow; tensors, and arrays by way of them, by `vision.warp`.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from adjoint.base.errors import ArgumentError, DTypeError
from adjoint.core.tensor import Tensor, wrap
from adjoint.ops.api_shape import flip
from adjoint.vision import pixels as px
from adjoint.vision import warp


class InterpolationMode(Enum):
    """How values between pixels are found."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


_PILLOW = {"nearest": 0, "nearest-exact": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4,
           "hamming": 5}
_NAMES = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}


def mode_name(interpolation: Any) -> str:
    """The name of a mode that is given as such, as Pillow's number, or as its name."""
    if isinstance(interpolation, InterpolationMode):
        return str(interpolation.value)
    return _NAMES.get(interpolation, str(interpolation))


def pillow_mode(interpolation: Any) -> int:
    """Pillow's number of a mode."""
    return _PILLOW[mode_name(interpolation)]


def on_tensor(img: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """`change` of a tensor image, (channels, height, width), or of an array by way of one."""
    if isinstance(img, Tensor):
        return change(img[None])[0] if img.dim() == 2 else change(img)
    array, back = px.planes(img)
    return back(change(wrap(array.copy())).array)


def through_tensor(img: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """`change` of a tensor, with Pillow images and arrays by way of one."""
    if not px.is_pillow(img):
        return on_tensor(img, change)
    array, back = px.planes(img)
    return back(change(wrap(array.copy())).array)


def _tensor_mode(interpolation: Any) -> str:
    mode = mode_name(interpolation)
    if mode not in ("nearest", "bilinear"):
        raise ArgumentError(f"interpolation {mode!r} of tensors: nearest or bilinear")
    return mode


def _fill(fill: Any, channels: int) -> Any:
    """One number per channel; None stays."""
    if fill is None:
        return None
    values = [float(v) for v in (fill if isinstance(fill, Sequence) else [fill])]
    if len(values) not in (1, channels):
        raise ArgumentError(f"fill has {len(values)} numbers for an image of {channels} channels")
    return values * channels if len(values) == 1 else values


def _pillow_fill(fill: Any, img: Any) -> Any:
    channels = len(img.getbands())
    if fill is None:
        return 0 if channels == 1 else (0,) * channels
    values = tuple(fill) if isinstance(fill, Sequence) else (fill,)
    if len(values) not in (1, channels):
        raise ArgumentError(f"fill has {len(values)} numbers for an image of {channels} channels")
    if not img.mode.startswith("F"):
        values = tuple(int(v) for v in values)
    return values[0] if channels == 1 else values * channels if len(values) == 1 else values


def rotate(img: Any, angle: float, interpolation: Any = InterpolationMode.NEAREST,
           expand: bool = False, center: Sequence[float] | None = None, fill: Any = None) -> Any:
    """Counter-clockwise by degrees about `center` (x, y; None: the middle). `expand` enlarges the
    result to hold all of it. Outside is `fill`, a number or one per channel.

    >>> import adjoint as ad
    >>> rotate(ad.tensor([[[1, 2], [3, 4]]]), 90).tolist()
    [[[2, 4], [1, 3]]]
    """
    if not isinstance(angle, (int, float)):
        raise DTypeError("Argument angle should be int or float")
    if center is not None and len(center) != 2:
        raise ArgumentError("Argument center should be a sequence of length 2")
    if px.is_pillow(img):
        return img.rotate(angle, pillow_mode(interpolation), expand, center,
                          fillcolor=_pillow_fill(fill, img))
    h, w = px.size_of(img)
    about = [0.0, 0.0] if center is None else [c - s * 0.5
                                               for c, s in zip(center, (w, h), strict=True)]
    matrix = warp.inverse_affine(about, -angle, (0.0, 0.0), 1.0, (0.0, 0.0))
    size, mode = warp.expanded(matrix, w, h) if expand else None, _tensor_mode(interpolation)
    return on_tensor(img, lambda x: warp.affine(x, matrix, mode, _fill(fill, x.shape[-3]), size))


def _checked_shear(angle: Any, translate: Any, scale: float, shear: Any) -> Sequence[float]:
    if not isinstance(angle, (int, float)):
        raise DTypeError("Argument angle should be int or float")
    if not isinstance(translate, Sequence):
        raise DTypeError("Argument translate should be a sequence")
    if len(translate) != 2:
        raise ArgumentError("Argument translate should be a sequence of length 2")
    if scale <= 0.0:
        raise ArgumentError("Argument scale should be positive")
    if not isinstance(shear, (int, float, Sequence)):
        raise DTypeError("Shear should be either a single value or a sequence of two values")
    shears = [shear, 0.0] if isinstance(shear, (int, float)) else list(shear)
    shears = shears * 2 if len(shears) == 1 else shears
    if len(shears) != 2:
        raise ArgumentError(f"Shear should be a sequence containing two values. Got {shear}")
    return shears


def affine(img: Any, angle: float, translate: Sequence[int], scale: float, shear: Any,
           interpolation: Any = InterpolationMode.NEAREST, fill: Any = None,
           center: Sequence[float] | None = None) -> Any:
    """Sheared (degrees along x and y), scaled, turned clockwise by degrees about `center` (x, y;
    None: the middle), then moved by `translate` pixels. Outside is `fill`.

    >>> import adjoint as ad
    >>> affine(ad.tensor([[[1, 2], [3, 4]]]), 0, [1, 0], 1.0, [0.0]).tolist()
    [[[0, 1], [0, 3]]]
    """
    shears = _checked_shear(angle, translate, scale, shear)
    if center is not None and len(center) != 2:
        raise ArgumentError("Argument center should be a sequence of length 2")
    h, w = px.size_of(img)
    if px.is_pillow(img):
        about = [w * 0.5, h * 0.5] if center is None else center
        matrix = warp.inverse_affine(about, angle, translate, scale, shears)
        return img.transform((w, h), 0, matrix, pillow_mode(interpolation),
                             fillcolor=_pillow_fill(fill, img))
    middle = (0.0, 0.0) if center is None else [c - s * 0.5
                                                for c, s in zip(center, (w, h), strict=True)]
    matrix = warp.inverse_affine(middle, angle, [float(t) for t in translate], scale, shears)
    mode = _tensor_mode(interpolation)
    return on_tensor(img, lambda x: warp.affine(x, matrix, mode, _fill(fill, x.shape[-3])))


def perspective(img: Any, startpoints: Sequence[Sequence[int]], endpoints: Sequence[Sequence[int]],
                interpolation: Any = InterpolationMode.BILINEAR, fill: Any = None) -> Any:
    """The map of the plane that takes four corners (x, y: top left, top right, bottom right, bottom
    left) to others."""
    found = warp.perspective_coefficients(startpoints, endpoints)
    if px.is_pillow(img):
        return img.transform(img.size, 2, found, pillow_mode(interpolation),
                             fillcolor=_pillow_fill(fill, img))
    mode = _tensor_mode(interpolation)
    return on_tensor(img, lambda x: warp.perspective(x, found, mode, _fill(fill, x.shape[-3])))


def elastic_transform(img: Any, displacement: Tensor,
                      interpolation: Any = InterpolationMode.BILINEAR, fill: Any = None) -> Any:
    """Pixels moved by `displacement` (1, height, width, 2), in halves of the image's size."""
    if not isinstance(displacement, Tensor):
        raise DTypeError("Argument displacement should be a Tensor")
    h, w = px.size_of(img)
    if list(displacement.shape) != [1, h, w, 2]:
        raise ArgumentError(f"Argument displacement shape should be {(1, h, w, 2)}, but given "
                            f"{tuple(displacement.shape)}")
    mode = _tensor_mode(interpolation)

    def move(x: Tensor) -> Tensor:
        return warp.displaced(x, displacement, mode, _fill(fill, x.shape[-3]))
    return through_tensor(img, move)


def crop(img: Any, top: int, left: int, height: int, width: int) -> Any:
    """The window that begins at (top, left); zeros where it leaves the image."""
    array, back = px.planes(img)
    return back(px.crop(array, top, left, height, width))


def center_crop(img: Any, output_size: Any) -> Any:
    """The middle of an image, with zeros around where the image is smaller."""
    h, w = (output_size,) * 2 if isinstance(output_size, int) else (output_size[0], output_size[-1])
    height, width = px.size_of(img)
    # A border around a smaller image is a pixel narrower before than after it, if at all.
    top, left = (round((old - new) / 2.0) if new <= old else -((new - old) // 2)
                 for old, new in ((height, h), (width, w)))
    return crop(img, top, left, h, w)


def _mirrored(img: Any, axis: int) -> Any:
    if isinstance(img, Tensor):
        return flip(img, [axis])
    array, back = px.planes(img)
    return back(array[..., ::-1].copy() if axis == -1 else array[..., ::-1, :].copy())


def hflip(img: Any) -> Any:
    """Left and right exchanged."""
    return _mirrored(img, -1)


def vflip(img: Any) -> Any:
    """Top and bottom exchanged."""
    return _mirrored(img, -2)


def five_crop(img: Any, size: Any) -> tuple[Any, ...]:
    """The four corners (top left, top right, bottom left, bottom right) and the middle."""
    h, w = (size, size) if isinstance(size, int) else (size[0], size[-1])
    if not isinstance(size, int) and len(size) > 2:
        raise ArgumentError("Please provide only two dimensions (h, w) for size.")
    height, width = px.size_of(img)
    if w > width or h > height:
        raise ArgumentError(f"Requested crop size {(h, w)} is bigger than input size "
                            f"{(height, width)}")
    corners = [crop(img, top, left, h, w) for top in (0, height - h) for left in (0, width - w)]
    return (*corners, center_crop(img, [h, w]))


def ten_crop(img: Any, size: Any, vertical_flip: bool = False) -> tuple[Any, ...]:
    """`five_crop` of the image and of its mirror image (upside down with `vertical_flip`)."""
    mirrored = vflip(img) if vertical_flip else hflip(img)
    return five_crop(img, size) + five_crop(mirrored, size)
