"""Residual networks, with groups of channels (ResNeXt) and with wide middles."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from adjoint import nn
from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import Tensor
from adjoint.nn import init
from adjoint.vision.models.weights import no_weights

Maker = Callable[..., nn.Module]


def conv3x3(in_planes: int, out_planes: int, stride: int = 1, groups: int = 1,
            dilation: int = 1) -> nn.Conv2d:
    """A 3x3 convolution that keeps height and width at stride 1."""
    return nn.Conv2d(in_planes, out_planes, 3, stride, dilation, groups=groups, bias=False,
                     dilation=dilation)


def conv1x1(in_planes: int, out_planes: int, stride: int = 1) -> nn.Conv2d:
    """A 1x1 convolution."""
    return nn.Conv2d(in_planes, out_planes, 1, stride, bias=False)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut."""

    expansion = 1

    def __init__(self, inplanes: int, planes: int, stride: int = 1,
                 downsample: nn.Module | None = None, groups: int = 1, base_width: int = 64,
                 dilation: int = 1, norm_layer: Maker | None = None) -> None:
        super().__init__()
        if groups != 1 or base_width != 64:
            raise ArgumentError("BasicBlock only supports groups=1 and base_width=64")
        if dilation > 1:
            raise NotImplementedError("Dilation > 1 not supported in BasicBlock")
        norm = norm_layer or nn.BatchNorm2d
        self.conv1 = conv3x3(inplanes, planes, stride)
        self.bn1 = norm(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = conv3x3(planes, planes)
        self.bn2 = norm(planes)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        shortcut = x if self.downsample is None else self.downsample(x)
        result: Tensor = self.relu(out + shortcut)
        return result


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions around a shortcut; the stride is in the middle."""

    expansion = 4

    def __init__(self, inplanes: int, planes: int, stride: int = 1,
                 downsample: nn.Module | None = None, groups: int = 1, base_width: int = 64,
                 dilation: int = 1, norm_layer: Maker | None = None) -> None:
        super().__init__()
        norm = norm_layer or nn.BatchNorm2d
        width = int(planes * (base_width / 64.0)) * groups
        self.conv1 = conv1x1(inplanes, width)
        self.bn1 = norm(width)
        self.conv2 = conv3x3(width, width, stride, groups, dilation)
        self.bn2 = norm(width)
        self.conv3 = conv1x1(width, planes * self.expansion)
        self.bn3 = norm(planes * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))))
        shortcut = x if self.downsample is None else self.downsample(x)
        result: Tensor = self.relu(self.bn3(self.conv3(out)) + shortcut)
        return result


class ResNet(nn.Module):
    """He, Zhang, Ren, Sun (2015), arXiv:1512.03385; Xie et al. (2016), arXiv:1611.05431.

    zero_init_residual             the last norm of each block begins with 0
    groups, width_per_group        of the 3x3 convolutions of `Bottleneck`
    replace_stride_with_dilation   for the last three stages: keep height and width
    """

    def __init__(self, block: type[BasicBlock] | type[Bottleneck], layers: Sequence[int],
                 num_classes: int = 1000, zero_init_residual: bool = False, groups: int = 1,
                 width_per_group: int = 64,
                 replace_stride_with_dilation: Sequence[bool] | None = None,
                 norm_layer: Maker | None = None) -> None:
        super().__init__()
        dilate = replace_stride_with_dilation or (False, False, False)
        if len(dilate) != 3:
            raise ArgumentError("replace_stride_with_dilation should be None or a 3-element tuple, "
                                f"got {replace_stride_with_dilation}")
        self._norm_layer = norm_layer or nn.BatchNorm2d
        self.inplanes, self.dilation = 64, 1
        self.groups, self.base_width = groups, width_per_group
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = self._norm_layer(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = self._make_layer(block, 64, layers[0])
        self.layer2 = self._make_layer(block, 128, layers[1], 2, dilate[0])
        self.layer3 = self._make_layer(block, 256, layers[2], 2, dilate[1])
        self.layer4 = self._make_layer(block, 512, layers[3], 2, dilate[2])
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512 * block.expansion, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(m, (nn.BatchNorm2d, nn.GroupNorm)):
                init.ones_(m.weight)
                init.zeros_(m.bias)
        if zero_init_residual:
            for m in self.modules():
                if isinstance(m, (BasicBlock, Bottleneck)):
                    last: Any = m.bn3 if isinstance(m, Bottleneck) else m.bn2
                    init.zeros_(last.weight)

    def _make_layer(self, block: Any, planes: int, blocks: int, stride: int = 1,
                    dilate: bool = False) -> nn.Sequential:
        before, norm, shortcut = self.dilation, self._norm_layer, None
        if dilate:
            self.dilation, stride = self.dilation * stride, 1
        if stride != 1 or self.inplanes != planes * block.expansion:
            shortcut = nn.Sequential(conv1x1(self.inplanes, planes * block.expansion, stride),
                                     norm(planes * block.expansion))
        made = [block(self.inplanes, planes, stride, shortcut, self.groups, self.base_width,
                      before, norm)]
        self.inplanes = planes * block.expansion
        made += [block(self.inplanes, planes, groups=self.groups, base_width=self.base_width,
                       dilation=self.dilation, norm_layer=norm) for _ in range(blocks - 1)]
        return nn.Sequential(*made)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        out: Tensor = self.fc(self.avgpool(x).flatten(1))
        return out


def _maker(name: str, block: Any, layers: tuple[int, ...], **fixed: int) -> Any:
    def build(pretrained: bool = False, *, weights: Any = None, progress: bool = True,
              **options: Any) -> ResNet:
        no_weights(name, weights, pretrained)
        return ResNet(block, layers, **{**fixed, **options})
    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"{name}: a residual network of stages of {layers} blocks, random weights."
    return build


resnet18 = _maker("resnet18", BasicBlock, (2, 2, 2, 2))
resnet34 = _maker("resnet34", BasicBlock, (3, 4, 6, 3))
resnet50 = _maker("resnet50", Bottleneck, (3, 4, 6, 3))
resnet101 = _maker("resnet101", Bottleneck, (3, 4, 23, 3))
resnet152 = _maker("resnet152", Bottleneck, (3, 8, 36, 3))
resnext50_32x4d = _maker("resnext50_32x4d", Bottleneck, (3, 4, 6, 3), groups=32, width_per_group=4)
resnext101_32x8d = _maker("resnext101_32x8d", Bottleneck, (3, 4, 23, 3), groups=32,
                          width_per_group=8)
resnext101_64x4d = _maker("resnext101_64x4d", Bottleneck, (3, 4, 23, 3), groups=64,
                          width_per_group=4)
wide_resnet50_2 = _maker("wide_resnet50_2", Bottleneck, (3, 4, 6, 3), width_per_group=128)
wide_resnet101_2 = _maker("wide_resnet101_2", Bottleneck, (3, 4, 23, 3), width_per_group=128)
__all__ = ["BasicBlock", "Bottleneck", "ResNet", "resnet18", "resnet34", "resnet50", "resnet101",
           "resnet152", "resnext50_32x4d", "resnext101_32x8d", "resnext101_64x4d",
           "wide_resnet50_2", "wide_resnet101_2"]
