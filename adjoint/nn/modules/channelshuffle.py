"""ChannelShuffle."""
from __future__ import annotations

import adjoint.nn.functional as F
from adjoint.core.tensor import Tensor
from adjoint.nn.modules._check import positive
from adjoint.nn.modules.module import Module

__all__ = ["ChannelShuffle"]


class ChannelShuffle(Module):
    """Interleaves ``groups`` groups of channels of (N, C, *) (Zhang et al. 2018).

    >>> import adjoint as ad
    >>> ad.nn.ChannelShuffle(2)(ad.arange(4.0).reshape(1, 4, 1, 1)).flatten().tolist()
    [0.0, 2.0, 1.0, 3.0]
    """

    def __init__(self, groups: int) -> None:
        positive("ChannelShuffle", groups=groups)
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"
