"""Fold and Unfold: sliding blocks of images as columns, and back."""
from __future__ import annotations

import adjoint.nn.functional as F
from adjoint.core.tensor import Tensor
from adjoint.nn.modules._check import IntOrInts
from adjoint.nn.modules.module import Module

__all__ = ["Fold", "Unfold"]


class Unfold(Module):
    """(N, C, H, W) -> (N, C kh kw, L): the L blocks that a window meets, as columns.

    >>> import adjoint as ad
    >>> tuple(ad.nn.Unfold(2)(ad.zeros(1, 3, 4, 4)).shape)
    (1, 12, 9)
    """

    def __init__(self, kernel_size: IntOrInts, dilation: IntOrInts = 1, padding: IntOrInts = 0,
                 stride: IntOrInts = 1) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return (f"kernel_size={self.kernel_size}, dilation={self.dilation}, "
                f"padding={self.padding}, stride={self.stride}")


class Fold(Module):
    """(N, C kh kw, L) -> (N, C, *output_size): adds the blocks up where they overlap.

    >>> import adjoint as ad
    >>> tuple(ad.nn.Fold((4, 4), 2)(ad.zeros(1, 12, 9)).shape)
    (1, 3, 4, 4)
    """

    def __init__(self, output_size: IntOrInts, kernel_size: IntOrInts, dilation: IntOrInts = 1,
                 padding: IntOrInts = 0, stride: IntOrInts = 1) -> None:
        super().__init__()
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding,
                      self.stride)

    def extra_repr(self) -> str:
        return (f"output_size={self.output_size}, kernel_size={self.kernel_size}, "
                f"dilation={self.dilation}, padding={self.padding}, stride={self.stride}")
