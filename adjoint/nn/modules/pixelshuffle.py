"""PixelShuffle and its inverse: channels to space and back."""
from __future__ import annotations

import adjoint.nn.functional as F
from adjoint.core.tensor import Tensor
from adjoint.nn.modules._check import positive
from adjoint.nn.modules.module import Module

__all__ = ["PixelShuffle", "PixelUnshuffle"]


class PixelShuffle(Module):
    """(*, C r^2, H, W) -> (*, C, H r, W r) with r = upscale_factor (Shi et al. 2016).

    >>> import adjoint as ad
    >>> tuple(ad.nn.PixelShuffle(3)(ad.zeros(1, 9, 4, 4)).shape)
    (1, 1, 12, 12)
    """

    def __init__(self, upscale_factor: int) -> None:
        positive("PixelShuffle", upscale_factor=upscale_factor)
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """(*, C, H r, W r) -> (*, C r^2, H, W) with r = downscale_factor.

    >>> import adjoint as ad
    >>> tuple(ad.nn.PixelUnshuffle(3)(ad.zeros(1, 1, 12, 12)).shape)
    (1, 9, 4, 4)
    """

    def __init__(self, downscale_factor: int) -> None:
        positive("PixelUnshuffle", downscale_factor=downscale_factor)
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"
