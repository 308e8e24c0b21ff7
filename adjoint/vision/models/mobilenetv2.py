"""MobileNetV2: inverted residual blocks of depthwise convolutions."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from adjoint import nn
from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import Tensor
from adjoint.nn import functional as F
from adjoint.vision.layers import Conv2dNormActivation
from adjoint.vision.models.weights import no_weights, start


def _make_divisible(v: float, divisor: int, min_value: int | None = None) -> int:
    """The multiple of `divisor` nearest to `v`, not more than a tenth below it.

    >>> _make_divisible(33, 8), _make_divisible(11, 8)
    (32, 16)
    """
    near = max(min_value or divisor, int(v + divisor / 2) // divisor * divisor)
    return near + divisor if near < 0.9 * v else near


class InvertedResidual(nn.Module):
    """1x1 to `expand_ratio` times the channels, a 3x3 of each channel, 1x1 back to few."""

    def __init__(self, inp: int, oup: int, stride: int, expand_ratio: int,
                 norm_layer: Callable[..., nn.Module] | None = None) -> None:
        super().__init__()
        if stride not in (1, 2):
            raise ArgumentError(f"stride should be 1 or 2 instead of {stride}")
        norm = norm_layer or nn.BatchNorm2d
        hidden = round(inp * expand_ratio)
        layers: list[nn.Module] = []
        if expand_ratio != 1:
            layers.append(Conv2dNormActivation(inp, hidden, 1, norm_layer=norm,
                                               activation_layer=nn.ReLU6))
        layers += [Conv2dNormActivation(hidden, hidden, stride=stride, groups=hidden,
                                        norm_layer=norm, activation_layer=nn.ReLU6),
                   nn.Conv2d(hidden, oup, 1, bias=False), norm(oup)]
        self.conv = nn.Sequential(*layers)
        self.stride, self.out_channels, self._is_cn = stride, oup, stride > 1
        self.use_res_connect = stride == 1 and inp == oup

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.conv(x)
        return x + out if self.use_res_connect else out


# expansion, channels, number of blocks, stride of the first one
_SETTINGS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
             (6, 160, 3, 2), (6, 320, 1, 1))


class MobileNetV2(nn.Module):
    """Sandler et al. (2018), arXiv:1801.04381. `width_mult` scales all channels."""

    def __init__(self, num_classes: int = 1000, width_mult: float = 1.0,
                 inverted_residual_setting: Sequence[Sequence[int]] | None = None,
                 round_nearest: int = 8, block: Callable[..., nn.Module] | None = None,
                 norm_layer: Callable[..., nn.Module] | None = None, dropout: float = 0.2) -> None:
        super().__init__()
        settings = inverted_residual_setting or _SETTINGS
        if not settings or len(settings[0]) != 4:
            raise ArgumentError("inverted_residual_setting should be non-empty or a 4-element "
                                f"list, got {inverted_residual_setting}")
        make, norm = block or InvertedResidual, norm_layer or nn.BatchNorm2d
        channels = _make_divisible(32 * width_mult, round_nearest)
        self.last_channel = _make_divisible(1280 * max(1.0, width_mult), round_nearest)
        layers: list[nn.Module] = [Conv2dNormActivation(
            3, channels, stride=2, norm_layer=norm, activation_layer=nn.ReLU6)]
        for expansion, wide, count, stride in settings:
            wide = _make_divisible(wide * width_mult, round_nearest)
            for i in range(count):
                layers.append(make(channels, wide, 1 if i else stride, expand_ratio=expansion,
                                   norm_layer=norm))
                channels = wide
        layers.append(Conv2dNormActivation(channels, self.last_channel, 1, norm_layer=norm,
                                           activation_layer=nn.ReLU6))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(dropout),
                                        nn.Linear(self.last_channel, num_classes))
        start(self)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.classifier(F.adaptive_avg_pool2d(self.features(x), (1, 1)).flatten(1))
        return out


def mobilenet_v2(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> MobileNetV2:
    """MobileNetV2 with random weights."""
    no_weights("mobilenet_v2", weights, kwargs.pop("pretrained", False))
    return MobileNetV2(**kwargs)


__all__ = ["InvertedResidual", "MobileNetV2", "mobilenet_v2"]
