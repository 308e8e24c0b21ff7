"""Upsample and its two old specializations."""
from __future__ import annotations

from collections.abc import Sequence

import adjoint.nn.functional as F
from adjoint.core.tensor import Tensor
from adjoint.nn.modules._check import IntOrInts
from adjoint.nn.modules.module import Module

__all__ = ["Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d"]


class Upsample(Module):
    """Resizes (N, C, *) to ``size`` or by ``scale_factor`` (one of the two).

    Modes: nearest, linear (1 axis), bilinear and bicubic (2), trilinear (3). ``align_corners``
    maps the corner samples onto each other.

    >>> import adjoint as ad
    >>> ad.nn.Upsample(scale_factor=2)(ad.tensor([[[1.0, 2.0]]])).tolist()
    [[[1.0, 1.0, 2.0, 2.0]]]
    """

    def __init__(self, size: IntOrInts | None = None,
                 scale_factor: float | Sequence[float] | None = None, mode: str = "nearest",
                 align_corners: bool | None = None, recompute_scale_factor: bool | None = None
                 ) -> None:
        super().__init__()
        self.name = type(self).__name__
        self.size = size
        self.scale_factor: float | tuple[float, ...] | None
        if isinstance(scale_factor, Sequence):
            self.scale_factor = tuple(float(f) for f in scale_factor)
        else:
            self.scale_factor = float(scale_factor) if scale_factor else None
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.interpolate(input, self.size, self.scale_factor, self.mode, self.align_corners,
                             recompute_scale_factor=self.recompute_scale_factor)

    def extra_repr(self) -> str:
        what = (f"scale_factor={self.scale_factor!r}" if self.scale_factor is not None
                else f"size={self.size!r}")
        return f"{what}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Upsample of (N, C, H, W) with mode nearest."""

    def __init__(self, size: IntOrInts | None = None,
                 scale_factor: float | Sequence[float] | None = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """Upsample of (N, C, H, W) with mode bilinear and aligned corners."""

    def __init__(self, size: IntOrInts | None = None,
                 scale_factor: float | Sequence[float] | None = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)
