"""MobileNetV3: inverted residual blocks with squeeze-and-excitation and hard swish."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from adjoint import nn
from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import Tensor
from adjoint.vision.layers import Conv2dNormActivation, SqueezeExcitation
from adjoint.vision.models.mobilenetv2 import _make_divisible
from adjoint.vision.models.weights import no_weights, start

Maker = Callable[..., nn.Module]


class InvertedResidualConfig:
    """One block: channels in, in the middle and out (times `width_mult`), the kernel's size, with
    squeeze-and-excitation or not, "RE" or "HS", stride, dilation."""

    def __init__(self, input_channels: int, kernel: int, expanded_channels: int, out_channels: int,
                 use_se: bool, activation: str, stride: int, dilation: int,
                 width_mult: float) -> None:
        self.input_channels, self.expanded_channels, self.out_channels = (
            self.adjust_channels(c, width_mult)
            for c in (input_channels, expanded_channels, out_channels))
        self.kernel, self.use_se, self.use_hs = kernel, use_se, activation == "HS"
        self.stride, self.dilation = stride, dilation

    @staticmethod
    def adjust_channels(channels: int, width_mult: float) -> int:
        """Scaled, to a multiple of 8."""
        return _make_divisible(channels * width_mult, 8)


class InvertedResidual(nn.Module):
    """1x1 to more channels, a convolution of each channel, squeeze-and-excitation, 1x1 back."""

    def __init__(self, cnf: InvertedResidualConfig, norm_layer: Maker,
                 se_layer: Maker | None = None) -> None:
        super().__init__()
        if cnf.stride not in (1, 2):
            raise ArgumentError("illegal stride value")
        self.use_res_connect = cnf.stride == 1 and cnf.input_channels == cnf.out_channels
        wide, act = cnf.expanded_channels, nn.Hardswish if cnf.use_hs else nn.ReLU
        layers: list[nn.Module] = []
        if wide != cnf.input_channels:
            layers.append(Conv2dNormActivation(cnf.input_channels, wide, 1, norm_layer=norm_layer,
                                               activation_layer=act))
        layers.append(Conv2dNormActivation(
            wide, wide, cnf.kernel, 1 if cnf.dilation > 1 else cnf.stride, dilation=cnf.dilation,
            groups=wide, norm_layer=norm_layer, activation_layer=act))
        if cnf.use_se:
            gate = se_layer or partial(SqueezeExcitation, scale_activation=nn.Hardsigmoid)
            layers.append(gate(wide, _make_divisible(wide // 4, 8)))
        layers.append(Conv2dNormActivation(wide, cnf.out_channels, 1, norm_layer=norm_layer,
                                           activation_layer=None))
        self.block = nn.Sequential(*layers)
        self.out_channels, self._is_cn = cnf.out_channels, cnf.stride > 1

    def forward(self, input: Tensor) -> Tensor:
        out: Tensor = self.block(input)
        return out + input if self.use_res_connect else out


class MobileNetV3(nn.Module):
    """Howard et al. (2019), arXiv:1905.02244."""

    def __init__(self, inverted_residual_setting: Sequence[InvertedResidualConfig],
                 last_channel: int, num_classes: int = 1000, block: Maker | None = None,
                 norm_layer: Maker | None = None, dropout: float = 0.2, **kwargs: Any) -> None:
        super().__init__()
        settings = list(inverted_residual_setting)
        if not settings:
            raise ArgumentError("The inverted_residual_setting should not be empty")
        norm = norm_layer or partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)
        make = block or InvertedResidual
        layers: list[nn.Module] = [Conv2dNormActivation(
            3, settings[0].input_channels, stride=2, norm_layer=norm,
            activation_layer=nn.Hardswish)]
        layers += [make(cnf, norm) for cnf in settings]
        channels = settings[-1].out_channels
        layers.append(Conv2dNormActivation(channels, 6 * channels, 1, norm_layer=norm,
                                           activation_layer=nn.Hardswish))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Linear(6 * channels, last_channel), nn.Hardswish(inplace=True),
            nn.Dropout(dropout, inplace=True), nn.Linear(last_channel, num_classes))
        start(self)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.classifier(self.avgpool(self.features(x)).flatten(1))
        return out


# channels in, kernel, in the middle, out, squeeze-and-excitation, activation, stride
_LARGE = ((16, 3, 16, 16, 0, "RE", 1), (16, 3, 64, 24, 0, "RE", 2), (24, 3, 72, 24, 0, "RE", 1),
          (24, 5, 72, 40, 1, "RE", 2), (40, 5, 120, 40, 1, "RE", 1), (40, 5, 120, 40, 1, "RE", 1),
          (40, 3, 240, 80, 0, "HS", 2), (80, 3, 200, 80, 0, "HS", 1), (80, 3, 184, 80, 0, "HS", 1),
          (80, 3, 184, 80, 0, "HS", 1), (80, 3, 480, 112, 1, "HS", 1),
          (112, 3, 672, 112, 1, "HS", 1), (112, 5, 672, 160, 1, "HS", 2),
          (160, 5, 960, 160, 1, "HS", 1), (160, 5, 960, 160, 1, "HS", 1))
_SMALL = ((16, 3, 16, 16, 1, "RE", 2), (16, 3, 72, 24, 0, "RE", 2), (24, 3, 88, 24, 0, "RE", 1),
          (24, 5, 96, 40, 1, "HS", 2), (40, 5, 240, 40, 1, "HS", 1), (40, 5, 240, 40, 1, "HS", 1),
          (40, 5, 120, 48, 1, "HS", 1), (48, 5, 144, 48, 1, "HS", 1), (48, 5, 288, 96, 1, "HS", 2),
          (96, 5, 576, 96, 1, "HS", 1), (96, 5, 576, 96, 1, "HS", 1))


def _maker(name: str, plan: Any, last: int) -> Any:
    def make(*, weights: Any = None, progress: bool = True, width_mult: float = 1.0,
             **kwargs: Any) -> MobileNetV3:
        no_weights(name, weights, kwargs.pop("pretrained", False))
        settings = [InvertedResidualConfig(i, k, e, o, bool(se), act, s, 1, width_mult)
                    for i, k, e, o, se, act, s in plan]
        width = InvertedResidualConfig.adjust_channels(last, width_mult)
        return MobileNetV3(settings, width, **kwargs)
    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"MobileNetV3, {name[13:]}, with random weights."
    return make


mobilenet_v3_large = _maker("mobilenet_v3_large", _LARGE, 1280)
mobilenet_v3_small = _maker("mobilenet_v3_small", _SMALL, 1024)
__all__ = ["InvertedResidual", "InvertedResidualConfig", "MobileNetV3", "mobilenet_v3_large",
           "mobilenet_v3_small"]
