"""ShuffleNetV2: half of the channels pass through a block, then both halves are interleaved."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from adjoint import nn
from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import Tensor
from adjoint.ops.api_join import cat
from adjoint.vision.models.weights import no_weights

Maker = Callable[..., nn.Module]


def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    """The first channel of each group, then the second of each, and so on.

    >>> import adjoint as ad
    >>> channel_shuffle(ad.arange(4).reshape(1, 4, 1, 1), 2).flatten().tolist()
    [0, 2, 1, 3]
    """
    n, c, h, w = x.shape
    return x.reshape(n, groups, c // groups, h, w).transpose(1, 2).reshape(n, c, h, w)


def _narrow(inp: int, out: int) -> list[nn.Module]:
    return [nn.Conv2d(inp, out, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True)]


def _each(channels: int, stride: int) -> list[nn.Module]:
    return [nn.Conv2d(channels, channels, 3, stride, 1, groups=channels, bias=False),
            nn.BatchNorm2d(channels)]


class InvertedResidual(nn.Module):
    """1x1, 3x3 of each channel, 1x1, on half of the channels; with a stride on all, twice."""

    def __init__(self, inp: int, oup: int, stride: int) -> None:
        super().__init__()
        if not 1 <= stride <= 3:
            raise ArgumentError("illegal stride value")
        self.stride, half = stride, oup // 2
        if stride == 1 and inp != half << 1:
            raise ArgumentError(f"Invalid combination of stride {stride}, inp {inp} and oup {oup} "
                                "values. If stride == 1 then inp should be equal to oup // 2 << 1.")
        self.branch1 = (nn.Sequential(*_each(inp, stride), *_narrow(inp, half)) if stride > 1
                        else nn.Sequential())
        self.branch2 = nn.Sequential(*_narrow(inp if stride > 1 else half, half),
                                     *_each(half, stride), *_narrow(half, half))

    def forward(self, x: Tensor) -> Tensor:
        if self.stride == 1:
            kept, changed = x.chunk(2, dim=1)
            return channel_shuffle(cat((kept, self.branch2(changed)), 1), 2)
        return channel_shuffle(cat((self.branch1(x), self.branch2(x)), 1), 2)


class ShuffleNetV2(nn.Module):
    """Ma et al. (2018), arXiv:1807.11164."""

    def __init__(self, stages_repeats: Sequence[int], stages_out_channels: Sequence[int],
                 num_classes: int = 1000, inverted_residual: Maker = InvertedResidual) -> None:
        super().__init__()
        if len(stages_repeats) != 3:
            raise ArgumentError("expected stages_repeats as list of 3 positive ints")
        if len(stages_out_channels) != 5:
            raise ArgumentError("expected stages_out_channels as list of 5 positive ints")
        first, *middle, last = stages_out_channels
        self.conv1 = nn.Sequential(nn.Conv2d(3, first, 3, 2, 1, bias=False), nn.BatchNorm2d(first),
                                   nn.ReLU(inplace=True))
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        stages, channels = [], first
        for count, wide in zip(stages_repeats, middle, strict=True):
            blocks = [inverted_residual(channels, wide, 2)]
            blocks += [inverted_residual(wide, wide, 1) for _ in range(count - 1)]
            stages.append(nn.Sequential(*blocks))
            channels = wide
        self.stage2, self.stage3, self.stage4 = stages
        self.conv5 = nn.Sequential(*_narrow(channels, last))
        self.fc = nn.Linear(last, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stage4(self.stage3(self.stage2(self.maxpool(self.conv1(x)))))
        out: Tensor = self.fc(self.conv5(x).mean([2, 3]))
        return out


def _maker(name: str, *channels: int) -> Any:
    def make(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> ShuffleNetV2:
        no_weights(name, weights, kwargs.pop("pretrained", False))
        return ShuffleNetV2([4, 8, 4], channels, **kwargs)
    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"ShuffleNetV2 of {channels} channels, with random weights."
    return make


shufflenet_v2_x0_5 = _maker("shufflenet_v2_x0_5", 24, 48, 96, 192, 1024)
shufflenet_v2_x1_0 = _maker("shufflenet_v2_x1_0", 24, 116, 232, 464, 1024)
shufflenet_v2_x1_5 = _maker("shufflenet_v2_x1_5", 24, 176, 352, 704, 1024)
shufflenet_v2_x2_0 = _maker("shufflenet_v2_x2_0", 24, 244, 488, 976, 2048)
__all__ = ["InvertedResidual", "ShuffleNetV2", "channel_shuffle", "shufflenet_v2_x0_5",
           "shufflenet_v2_x1_0", "shufflenet_v2_x1_5", "shufflenet_v2_x2_0"]
