"""EfficientNet, versions 1 and 2: inverted residual blocks scaled in depth and width together."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from adjoint import nn
from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import Tensor
from adjoint.nn import init
from adjoint.vision.layers import Conv2dNormActivation, SqueezeExcitation
from adjoint.vision.models.mobilenetv2 import _make_divisible
from adjoint.vision.models.weights import no_weights, start
from adjoint.vision.ops import StochasticDepth

Maker = Callable[..., nn.Module]


@dataclass
class Stage:
    """Equal blocks: the factor of channels in the middle, kernel, stride of the first, channels in
    and out, how many, and `fused`: one convolution instead of 1x1 and one per channel."""

    expand_ratio: float
    kernel: int
    stride: int
    input_channels: int
    out_channels: int
    num_layers: int
    fused: bool = False

    def scaled(self, width: float, depth: float) -> Stage:
        """With channels times `width` (to multiples of 8) and blocks times `depth`."""
        return replace(self, input_channels=_make_divisible(self.input_channels * width, 8),
                       out_channels=_make_divisible(self.out_channels * width, 8),
                       num_layers=math.ceil(self.num_layers * depth))


class _Block(nn.Module):
    """Layers around a shortcut, which is left out at random (Huang et al. 2016)."""

    def __init__(self, cnf: Stage, stochastic_depth_prob: float, norm_layer: Maker) -> None:
        super().__init__()
        if cnf.stride not in (1, 2):
            raise ArgumentError("illegal stride value")
        self.use_res_connect = cnf.stride == 1 and cnf.input_channels == cnf.out_channels
        self.block = nn.Sequential(*self._layers(cnf, norm_layer))
        self.stochastic_depth = StochasticDepth(stochastic_depth_prob, "row")
        self.out_channels = cnf.out_channels

    def _layers(self, cnf: Stage, norm: Maker) -> list[nn.Module]:
        raise NotImplementedError

    def forward(self, input: Tensor) -> Tensor:
        out: Tensor = self.block(input)
        return self.stochastic_depth(out) + input if self.use_res_connect else out


class MBConv(_Block):
    """1x1 to more channels, a convolution of each, squeeze-and-excitation, 1x1 back."""

    def _layers(self, cnf: Stage, norm: Maker) -> list[nn.Module]:
        narrow, layers = cnf.input_channels, []
        wide = _make_divisible(narrow * cnf.expand_ratio, 8)
        conv = partial(Conv2dNormActivation, norm_layer=norm, activation_layer=nn.SiLU)
        if wide != narrow:
            layers.append(conv(narrow, wide, 1))
        return [*layers, conv(wide, wide, cnf.kernel, cnf.stride, groups=wide),
                SqueezeExcitation(wide, max(1, narrow // 4), partial(nn.SiLU, inplace=True)),
                conv(wide, cnf.out_channels, 1, activation_layer=None)]


class FusedMBConv(_Block):
    """A convolution to more channels, and 1x1 back."""

    def _layers(self, cnf: Stage, norm: Maker) -> list[nn.Module]:
        narrow = cnf.input_channels
        wide = _make_divisible(narrow * cnf.expand_ratio, 8)
        conv = partial(Conv2dNormActivation, norm_layer=norm, activation_layer=nn.SiLU)
        if wide == narrow:
            return [conv(narrow, cnf.out_channels, cnf.kernel, cnf.stride)]
        return [conv(narrow, wide, cnf.kernel, cnf.stride),
                conv(wide, cnf.out_channels, 1, activation_layer=None)]


class EfficientNet(nn.Module):
    """Tan and Le (2019), arXiv:1905.11946, and (2021), arXiv:2104.00298."""

    def __init__(self, inverted_residual_setting: Sequence[Stage], dropout: float,
                 stochastic_depth_prob: float = 0.2, num_classes: int = 1000,
                 norm_layer: Maker | None = None, last_channel: int | None = None) -> None:
        super().__init__()
        stages = list(inverted_residual_setting)
        if not stages:
            raise ArgumentError("The inverted_residual_setting should not be empty")
        norm = norm_layer or nn.BatchNorm2d
        conv = partial(Conv2dNormActivation, norm_layer=norm, activation_layer=nn.SiLU)
        layers: list[nn.Module] = [conv(3, stages[0].input_channels, 3, 2)]
        total, done = sum(s.num_layers for s in stages), 0
        for stage in stages:
            blocks = []
            for i in range(stage.num_layers):
                cnf = stage if i == 0 else replace(stage, input_channels=stage.out_channels,
                                                   stride=1)
                make = FusedMBConv if cnf.fused else MBConv
                blocks.append(make(cnf, stochastic_depth_prob * float(done) / total, norm))
                done += 1
            layers.append(nn.Sequential(*blocks))
        channels = stages[-1].out_channels
        last = 4 * channels if last_channel is None else last_channel
        layers.append(conv(channels, last, 1))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(dropout, inplace=True),
                                        nn.Linear(last, num_classes))
        bound = 1.0 / math.sqrt(num_classes)
        start(self, lambda weight: init.uniform_(weight, -bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.classifier(self.avgpool(self.features(x)).flatten(1))
        return out


_B0 = tuple(Stage(*row) for row in (
    (1, 3, 1, 32, 16, 1), (6, 3, 2, 16, 24, 2), (6, 5, 2, 24, 40, 2), (6, 3, 2, 40, 80, 3),
    (6, 5, 1, 80, 112, 3), (6, 5, 2, 112, 192, 4), (6, 3, 1, 192, 320, 1)))
_V2 = {
    "s": ((1, 3, 1, 24, 24, 2, True), (4, 3, 2, 24, 48, 4, True), (4, 3, 2, 48, 64, 4, True),
          (4, 3, 2, 64, 128, 6), (6, 3, 1, 128, 160, 9), (6, 3, 2, 160, 256, 15)),
    "m": ((1, 3, 1, 24, 24, 3, True), (4, 3, 2, 24, 48, 5, True), (4, 3, 2, 48, 80, 5, True),
          (4, 3, 2, 80, 160, 7), (6, 3, 1, 160, 176, 14), (6, 3, 2, 176, 304, 18),
          (6, 3, 1, 304, 512, 5)),
    "l": ((1, 3, 1, 32, 32, 4, True), (4, 3, 2, 32, 64, 7, True), (4, 3, 2, 64, 96, 7, True),
          (4, 3, 2, 96, 192, 10), (6, 3, 1, 192, 224, 19), (6, 3, 2, 224, 384, 25),
          (6, 3, 1, 384, 640, 7))}


def _maker(name: str, stages: Any, dropout: float, norm: Maker | None = None,
           last: int | None = None) -> Any:
    def make(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> EfficientNet:
        no_weights(name, weights, kwargs.pop("pretrained", False))
        options = {"dropout": dropout, "norm_layer": norm, "last_channel": last, **kwargs}
        return EfficientNet(stages, **options)
    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"EfficientNet {name[13:].upper()} with random weights."
    return make


def _scaled(name: str, width: float, depth: float, dropout: float,
            norm: Maker | None = None) -> Any:
    return _maker(name, [s.scaled(width, depth) for s in _B0], dropout, norm)


_SLOW: Maker = partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)
_FIRM: Maker = partial(nn.BatchNorm2d, eps=1e-03)
efficientnet_b0 = _scaled("efficientnet_b0", 1.0, 1.0, 0.2)
efficientnet_b1 = _scaled("efficientnet_b1", 1.0, 1.1, 0.2)
efficientnet_b2 = _scaled("efficientnet_b2", 1.1, 1.2, 0.3)
efficientnet_b3 = _scaled("efficientnet_b3", 1.2, 1.4, 0.3)
efficientnet_b4 = _scaled("efficientnet_b4", 1.4, 1.8, 0.4)
efficientnet_b5 = _scaled("efficientnet_b5", 1.6, 2.2, 0.4, _SLOW)
efficientnet_b6 = _scaled("efficientnet_b6", 1.8, 2.6, 0.5, _SLOW)
efficientnet_b7 = _scaled("efficientnet_b7", 2.0, 3.1, 0.5, _SLOW)
efficientnet_v2_s, efficientnet_v2_m, efficientnet_v2_l = (
    _maker(f"efficientnet_v2_{size}", [Stage(*row) for row in _V2[size]], dropout, _FIRM, 1280)
    for size, dropout in (("s", 0.2), ("m", 0.3), ("l", 0.4)))
__all__ = ["EfficientNet", "FusedMBConv", "MBConv", "Stage", "efficientnet_b0", "efficientnet_b1",
           "efficientnet_b2", "efficientnet_b3", "efficientnet_b4", "efficientnet_b5",
           "efficientnet_b6", "efficientnet_b7", "efficientnet_v2_l", "efficientnet_v2_m",
           "efficientnet_v2_s"]
