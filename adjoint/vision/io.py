"""Image files as tensors (channels, height, width) of bytes, under torchvision's names. Videos are
not read."""
from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np

from adjoint.base.errors import missing as _missing_in
from adjoint.core.tensor import Tensor, wrap
from adjoint.utils.data.readers import open_image

__all__ = ["ImageReadMode", "read_file", "read_image"]
__getattr__ = _missing_in("adjoint.vision.io")


class ImageReadMode(Enum):
    """What channels an image is to have."""

    UNCHANGED = 0
    GRAY = 1
    GRAY_ALPHA = 2
    RGB = 3
    RGB_ALPHA = 4


_PILLOW = {"GRAY": "L", "GRAY_ALPHA": "LA", "RGB": "RGB", "RGB_ALPHA": "RGBA"}


def read_file(path: Any) -> Tensor:
    """The bytes of a file, (n,) uint8."""
    return wrap(np.fromfile(path, np.uint8))


def read_image(path: Any, mode: ImageReadMode = ImageReadMode.UNCHANGED) -> Tensor:
    """An image file as uint8 (channels, height, width). Needs Pillow.

    mode    the channels to convert to; UNCHANGED keeps those of the file
    """
    array = np.asarray(open_image(path, _PILLOW.get(mode.name)))
    planes = array[None] if array.ndim == 2 else array.transpose(2, 0, 1)
    return wrap(np.ascontiguousarray(planes))
