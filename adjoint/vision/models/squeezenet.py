"""SqueezeNet: few weights by squeezing the channels before each 3x3 convolution."""
from __future__ import annotations

from typing import Any

from adjoint import nn
from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import Tensor
from adjoint.nn import init
from adjoint.ops.api_join import cat
from adjoint.vision.models.weights import no_weights


class Fire(nn.Module):
    """A 1x1 convolution to few channels, then 1x1 and 3x3 convolutions side by side."""

    def __init__(self, inplanes: int, squeeze_planes: int, expand1x1_planes: int,
                 expand3x3_planes: int) -> None:
        super().__init__()
        self.inplanes = inplanes
        self.squeeze = nn.Conv2d(inplanes, squeeze_planes, 1)
        self.squeeze_activation = nn.ReLU(inplace=True)
        self.expand1x1 = nn.Conv2d(squeeze_planes, expand1x1_planes, 1)
        self.expand1x1_activation = nn.ReLU(inplace=True)
        self.expand3x3 = nn.Conv2d(squeeze_planes, expand3x3_planes, 3, padding=1)
        self.expand3x3_activation = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.squeeze_activation(self.squeeze(x))
        return cat([self.expand1x1_activation(self.expand1x1(x)),
                    self.expand3x3_activation(self.expand3x3(x))], 1)


# Of a Fire: channels squeezed to, and of each half that follows; "M" takes the maximum of 3 x 3.
_SIZES = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
_VERSIONS: dict[str, tuple[tuple[int, int], tuple[int, ...]]] = {   # first layer, pools after Fire
    "1_0": ((96, 7), (3, 7)), "1_1": ((64, 3), (2, 4))}


class SqueezeNet(nn.Module):
    """Iandola et al. (2016), arXiv:1602.07360; version "1_1" computes 2.4 times less."""

    def __init__(self, version: str = "1_0", num_classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        if version not in _VERSIONS:
            raise ArgumentError(f"Unsupported SqueezeNet version {version}: 1_0 or 1_1 expected")
        self.num_classes = num_classes
        (channels, kernel), pools = _VERSIONS[version]
        layers: list[nn.Module] = [nn.Conv2d(3, channels, kernel, 2), nn.ReLU(inplace=True),
                                   nn.MaxPool2d(3, 2, ceil_mode=True)]
        for i, (few, many) in enumerate(_SIZES, 1):
            layers.append(Fire(channels, few, many, many))
            channels = 2 * many
            if i in pools:
                layers.append(nn.MaxPool2d(3, 2, ceil_mode=True))
        self.features = nn.Sequential(*layers)
        last = nn.Conv2d(512, num_classes, 1)
        self.classifier = nn.Sequential(nn.Dropout(dropout), last, nn.ReLU(inplace=True),
                                        nn.AdaptiveAvgPool2d((1, 1)))
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                if m is last:
                    init.normal_(m.weight, 0.0, 0.01)
                else:
                    init.kaiming_uniform_(m.weight)
                if m.bias is not None:
                    init.zeros_(m.bias)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.classifier(self.features(x)).flatten(1)
        return out


def squeezenet1_0(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> SqueezeNet:
    """SqueezeNet 1.0 with random weights."""
    no_weights("squeezenet1_0", weights, kwargs.pop("pretrained", False))
    return SqueezeNet("1_0", **kwargs)


def squeezenet1_1(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> SqueezeNet:
    """SqueezeNet 1.1 with random weights."""
    no_weights("squeezenet1_1", weights, kwargs.pop("pretrained", False))
    return SqueezeNet("1_1", **kwargs)


__all__ = ["Fire", "SqueezeNet", "squeezenet1_0", "squeezenet1_1"]
