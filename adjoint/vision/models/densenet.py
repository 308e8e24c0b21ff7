"""DenseNet: every layer sees the outputs of all layers before it in its block."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adjoint import nn
from adjoint.core.tensor import Tensor
from adjoint.nn import functional as F
from adjoint.nn import init
from adjoint.ops.api_join import cat
from adjoint.utils.checkpoint import checkpoint
from adjoint.vision.models.weights import no_weights


class _DenseLayer(nn.Module):
    """Norm, ReLU, 1x1 convolution, norm, ReLU, 3x3 convolution: `growth_rate` new channels."""

    def __init__(self, num_input_features: int, growth_rate: int, bn_size: int, drop_rate: float,
                 memory_efficient: bool = False) -> None:
        super().__init__()
        middle = bn_size * growth_rate
        self.norm1 = nn.BatchNorm2d(num_input_features)
        self.relu1 = nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(num_input_features, middle, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(middle)
        self.relu2 = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(middle, growth_rate, 3, padding=1, bias=False)
        self.drop_rate, self.memory_efficient = float(drop_rate), memory_efficient

    def _narrow(self, *xs: Tensor) -> Tensor:
        out: Tensor = self.conv1(self.relu1(self.norm1(cat(xs, 1))))
        return out

    def forward(self, input: Tensor | list[Tensor]) -> Tensor:
        xs = [input] if isinstance(input, Tensor) else input
        if self.memory_efficient and any(x.requires_grad for x in xs):
            middle: Any = checkpoint(self._narrow, *xs, use_reentrant=False)
        else:
            middle = self._narrow(*xs)
        out: Tensor = self.conv2(self.relu2(self.norm2(middle)))
        return F.dropout(out, self.drop_rate, self.training) if self.drop_rate > 0 else out


class _DenseBlock(nn.ModuleDict):
    """Layers whose outputs are all joined."""

    def __init__(self, num_layers: int, num_input_features: int, bn_size: int, growth_rate: int,
                 drop_rate: float, memory_efficient: bool = False) -> None:
        super().__init__()
        for i in range(num_layers):
            self.add_module(f"denselayer{i + 1}", _DenseLayer(
                num_input_features + i * growth_rate, growth_rate, bn_size, drop_rate,
                memory_efficient))

    def forward(self, init_features: Tensor) -> Tensor:
        features = [init_features]
        for layer in self.values():
            features.append(layer(features))
        return cat(features, 1)


class _Transition(nn.Sequential):
    """Half of the channels, half of the height and width."""

    def __init__(self, num_input_features: int, num_output_features: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(num_input_features)
        self.relu = nn.ReLU(inplace=True)
        self.conv = nn.Conv2d(num_input_features, num_output_features, 1, bias=False)
        self.pool = nn.AvgPool2d(2, 2)


class DenseNet(nn.Module):
    """Huang, Liu, van der Maaten, Weinberger (2016), arXiv:1608.06993.

    growth_rate        channels that each layer adds
    block_config       number of layers in each of the blocks
    num_init_features  channels after the first convolution
    bn_size            channels of the 1x1 convolutions, in units of growth_rate
    memory_efficient   compute the joined inputs of the layers again in backward
    """

    def __init__(self, growth_rate: int = 32, block_config: Sequence[int] = (6, 12, 24, 16),
                 num_init_features: int = 64, bn_size: int = 4, drop_rate: float = 0,
                 num_classes: int = 1000, memory_efficient: bool = False) -> None:
        super().__init__()
        self.features = nn.Sequential()
        channels = num_init_features
        self.features.add_module("conv0", nn.Conv2d(3, channels, 7, 2, 3, bias=False))
        self.features.add_module("norm0", nn.BatchNorm2d(channels))
        self.features.add_module("relu0", nn.ReLU(inplace=True))
        self.features.add_module("pool0", nn.MaxPool2d(3, 2, 1))
        for i, count in enumerate(block_config, 1):
            self.features.add_module(f"denseblock{i}", _DenseBlock(
                count, channels, bn_size, growth_rate, drop_rate, memory_efficient))
            channels += count * growth_rate
            if i < len(block_config):
                self.features.add_module(f"transition{i}", _Transition(channels, channels // 2))
                channels //= 2
        self.features.add_module("norm5", nn.BatchNorm2d(channels))
        self.classifier = nn.Linear(channels, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                init.kaiming_normal_(m.weight)
            elif isinstance(m, nn.Linear):
                init.zeros_(m.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.features(x), inplace=True)
        out: Tensor = self.classifier(F.adaptive_avg_pool2d(x, (1, 1)).flatten(1))
        return out


def _maker(name: str, growth: int, blocks: tuple[int, ...], first: int) -> Any:
    def make(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> DenseNet:
        no_weights(name, weights, kwargs.pop("pretrained", False))
        return DenseNet(growth, blocks, first, **kwargs)
    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"DenseNet-{name[8:]} with random weights: blocks of {blocks} layers."
    return make


densenet121 = _maker("densenet121", 32, (6, 12, 24, 16), 64)
densenet161 = _maker("densenet161", 48, (6, 12, 36, 24), 96)
densenet169 = _maker("densenet169", 32, (6, 12, 32, 32), 64)
densenet201 = _maker("densenet201", 32, (6, 12, 48, 32), 64)
__all__ = ["DenseNet", "densenet121", "densenet161", "densenet169", "densenet201"]
