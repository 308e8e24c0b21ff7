"""ConvNeXt: a convolutional network with the proportions of a transformer."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from adjoint import nn
from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import Tensor
from adjoint.nn import functional as F
from adjoint.nn import init
from adjoint.ops.create import full
from adjoint.vision.layers import Conv2dNormActivation, Permute
from adjoint.vision.models.weights import no_weights
from adjoint.vision.ops import StochasticDepth

Maker = Callable[..., nn.Module]


class LayerNorm2d(nn.LayerNorm):
    """Layer norm over the channels of (N, C, H, W)."""

    def forward(self, x: Tensor) -> Tensor:
        last = x.permute(0, 2, 3, 1)
        out = F.layer_norm(last, self.normalized_shape, self.weight, self.bias, self.eps)
        return out.permute(0, 3, 1, 2)


class CNBlock(nn.Module):
    """A 7x7 convolution of each channel, norm, and two linear layers, around a shortcut; the
    result is scaled by `layer_scale` to begin with."""

    def __init__(self, dim: int, layer_scale: float, stochastic_depth_prob: float,
                 norm_layer: Maker | None = None) -> None:
        super().__init__()
        norm = norm_layer or partial(nn.LayerNorm, eps=1e-6)
        self.block = nn.Sequential(
            nn.Conv2d(dim, dim, 7, padding=3, groups=dim, bias=True), Permute([0, 2, 3, 1]),
            norm(dim), nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim),
            Permute([0, 3, 1, 2]))
        self.layer_scale = nn.Parameter(full((dim, 1, 1), layer_scale))
        self.stochastic_depth = StochasticDepth(stochastic_depth_prob, "row")

    def forward(self, input: Tensor) -> Tensor:
        out: Tensor = self.stochastic_depth(self.layer_scale * self.block(input)) + input
        return out


class CNBlockConfig:
    """One stage: channels in, channels out (None: the last), number of blocks."""

    def __init__(self, input_channels: int, out_channels: int | None, num_layers: int) -> None:
        self.input_channels, self.out_channels = input_channels, out_channels
        self.num_layers = num_layers

    def __repr__(self) -> str:
        return (f"CNBlockConfig(input_channels={self.input_channels}, "
                f"out_channels={self.out_channels}, num_layers={self.num_layers})")


class ConvNeXt(nn.Module):
    """Liu et al. (2022), arXiv:2201.03545."""

    def __init__(self, block_setting: Sequence[CNBlockConfig], stochastic_depth_prob: float = 0.0,
                 layer_scale: float = 1e-6, num_classes: int = 1000, block: Maker | None = None,
                 norm_layer: Maker | None = None, **kwargs: Any) -> None:
        super().__init__()
        settings = list(block_setting)
        if not settings:
            raise ArgumentError("The block_setting should not be empty")
        make, norm = block or CNBlock, norm_layer or partial(LayerNorm2d, eps=1e-6)
        layers: list[nn.Module] = [Conv2dNormActivation(
            3, settings[0].input_channels, 4, 4, 0, norm_layer=norm, activation_layer=None,
            bias=True)]
        total, done = sum(cnf.num_layers for cnf in settings), 0
        for cnf in settings:
            stage = []
            for _ in range(cnf.num_layers):
                left_out = stochastic_depth_prob * done / (total - 1.0)
                stage.append(make(cnf.input_channels, layer_scale, left_out))
                done += 1
            layers.append(nn.Sequential(*stage))
            if cnf.out_channels is not None:
                layers.append(nn.Sequential(norm(cnf.input_channels), nn.Conv2d(
                    cnf.input_channels, cnf.out_channels, 2, 2)))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        last = settings[-1].out_channels or settings[-1].input_channels
        self.classifier = nn.Sequential(norm(last), nn.Flatten(1), nn.Linear(last, num_classes))
        for m in self.modules():
            if isinstance(m, (nn.Conv2d, nn.Linear)):
                init.trunc_normal_(m.weight, std=0.02)
                if m.bias is not None:
                    init.zeros_(m.bias)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.classifier(self.avgpool(self.features(x)))
        return out


def _maker(name: str, channels: int, third: int, left_out: float) -> Any:
    def make(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> ConvNeXt:
        no_weights(name, weights, kwargs.pop("pretrained", False))
        wide = [channels * 2 ** i for i in range(4)]
        settings = [CNBlockConfig(c, after, n) for c, after, n in zip(
            wide, (*wide[1:], None), (3, 3, third, 3), strict=True)]
        return ConvNeXt(settings, **{"stochastic_depth_prob": left_out, **kwargs})
    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"ConvNeXt, {name[9:]}, with random weights."
    return make


convnext_tiny = _maker("convnext_tiny", 96, 9, 0.1)
convnext_small = _maker("convnext_small", 96, 27, 0.4)
convnext_base = _maker("convnext_base", 128, 27, 0.5)
convnext_large = _maker("convnext_large", 192, 27, 0.5)
__all__ = ["CNBlock", "CNBlockConfig", "ConvNeXt", "LayerNorm2d", "convnext_base",
           "convnext_large", "convnext_small", "convnext_tiny"]
