"""`torchvision.transforms.v2`: the transforms under their newer address, and two of its own."""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.core.tensor import Tensor
from adjoint.nn import Module
from adjoint.ops.create import from_numpy
from adjoint.vision import transforms as _transforms
from adjoint.vision.transforms import functional as functional


class ToImage(Module):
    """An image (PIL, array (H, W, C) or (H, W)) as a tensor (C, H, W) of the same numbers.

    >>> ToImage()(np.zeros((4, 5, 3), np.uint8)).shape
    adjoint.Size([3, 4, 5])
    """

    def forward(self, pic: Any) -> Tensor:
        if isinstance(pic, Tensor):
            return pic
        if not isinstance(pic, np.ndarray):
            made: Tensor = functional.pil_to_tensor(pic)
            return made
        image = pic[:, :, None] if pic.ndim == 2 else pic
        made = from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))
        return made


class ToDtype(Module):
    """An image tensor in another dtype; `scale` maps the range of integers to 0..1 and back.

    >>> import adjoint as ad
    >>> ToDtype(ad.float32, scale=True)(ToImage()(np.full((1, 1), 255, np.uint8))).item()
    1.0
    """

    def __init__(self, dtype: Any, scale: bool = False) -> None:
        super().__init__()
        self.dtype, self.scale = dtype, scale

    def forward(self, image: Tensor) -> Tensor:
        made: Tensor = (functional.convert_image_dtype(image, self.dtype) if self.scale
                        else image.to(self.dtype))
        return made

    def extra_repr(self) -> str:
        return f"scale={self.scale}"


def __getattr__(name: str) -> Any:
    """All the others are those of `adjoint.vision.transforms`."""
    return getattr(_transforms, name)
