"""Networks for images, with the parameter names of torchvision's, so that its weight files load.

`weights` names nothing that could be fetched: pass None (random weights) and load a local file with
``model.load_state_dict(adjoint.load(path))``.
"""
from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from typing import Any

from adjoint import nn
from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import Tensor
from adjoint.nn import init
from adjoint.vision.models.densenet import (
    DenseNet,
    densenet121,
    densenet161,
    densenet169,
    densenet201,
)
from adjoint.vision.models.mobilenetv2 import MobileNetV2, mobilenet_v2
from adjoint.vision.models.squeezenet import SqueezeNet, squeezenet1_0, squeezenet1_1
from adjoint.vision.models.vision_transformer import (
    VisionTransformer,
    vit_b_16,
    vit_b_32,
    vit_h_14,
    vit_l_16,
    vit_l_32,
)
from adjoint.vision.models.weights import Weights
from adjoint.vision.models.weights import no_weights as _no_weights


def _initialise(model: nn.Module) -> None:
    """He initialisation of convolutions (He et al. 2015), ones and zeros for norms."""
    for m in model.modules():
        if isinstance(m, nn.Conv2d):
            init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            if m.bias is not None:
                init.zeros_(m.bias)
        elif isinstance(m, nn.BatchNorm2d):
            init.ones_(m.weight)
            init.zeros_(m.bias)
        elif isinstance(m, nn.Linear) and isinstance(model, VGG):
            init.normal_(m.weight, 0, 0.01)
            init.zeros_(m.bias)


class AlexNet(nn.Module):
    """Krizhevsky (2014), "One weird trick for parallelizing convolutional neural networks"."""

    def __init__(self, num_classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
            nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
            nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2))
        self.avgpool = nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = nn.Sequential(
            nn.Dropout(dropout), nn.Linear(256 * 36, 4096), nn.ReLU(inplace=True),
            nn.Dropout(dropout), nn.Linear(4096, 4096), nn.ReLU(inplace=True),
            nn.Linear(4096, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.classifier(self.avgpool(self.features(x)).flatten(1))
        return out


_VGG = {
    "11": (64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M"),
    "13": (64, 64, "M", 128, 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M"),
    "16": (64, 64, "M", 128, 128, "M", 256, 256, 256, "M", 512, 512, 512, "M", 512, 512, 512, "M"),
    "19": (64, 64, "M", 128, 128, "M", 256, 256, 256, 256, "M", 512, 512, 512, 512, "M",
           512, 512, 512, 512, "M"),
}


class VGG(nn.Module):
    """Simonyan and Zisserman (2014), arXiv:1409.1556."""

    def __init__(self, features: nn.Module, num_classes: int = 1000, init_weights: bool = True,
                 dropout: float = 0.5) -> None:
        super().__init__()
        self.features = features
        self.avgpool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(512 * 49, 4096), nn.ReLU(True), nn.Dropout(dropout), nn.Linear(4096, 4096),
            nn.ReLU(True), nn.Dropout(dropout), nn.Linear(4096, num_classes))
        if init_weights:
            _initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.classifier(self.avgpool(self.features(x)).flatten(1))
        return out


def make_layers(cfg: Sequence[Any], batch_norm: bool = False) -> nn.Sequential:
    """The convolutions of a VGG: numbers of channels, and "M" where the maximum of 2 x 2 is taken.

    >>> len(make_layers([8, "M"], batch_norm=True))
    4
    """
    layers: list[nn.Module] = []
    channels = 3
    for step in cfg:
        if step == "M":
            layers.append(nn.MaxPool2d(2, 2))
            continue
        layers.append(nn.Conv2d(channels, step, 3, padding=1))
        if batch_norm:
            layers.append(nn.BatchNorm2d(step))
        layers.append(nn.ReLU(inplace=True))
        channels = step
    return nn.Sequential(*layers)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut."""

    expansion = 1

    def __init__(self, inplanes: int, planes: int, stride: int = 1,
                 downsample: nn.Module | None = None) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        shortcut = x if self.downsample is None else self.downsample(x)
        result: Tensor = self.relu(out + shortcut)
        return result


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions around a shortcut; the stride is in the middle."""

    expansion = 4

    def __init__(self, inplanes: int, planes: int, stride: int = 1,
                 downsample: nn.Module | None = None) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = nn.Conv2d(planes, planes * 4, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(planes * 4)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))))
        shortcut = x if self.downsample is None else self.downsample(x)
        result: Tensor = self.relu(self.bn3(self.conv3(out)) + shortcut)
        return result


class ResNet(nn.Module):
    """He, Zhang, Ren, Sun (2015), arXiv:1512.03385."""

    def __init__(self, block: type[BasicBlock] | type[Bottleneck], layers: Sequence[int],
                 num_classes: int = 1000) -> None:
        super().__init__()
        self.inplanes = 64
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = self._layer(block, 64, layers[0], 1)
        self.layer2 = self._layer(block, 128, layers[1], 2)
        self.layer3 = self._layer(block, 256, layers[2], 2)
        self.layer4 = self._layer(block, 512, layers[3], 2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512 * block.expansion, num_classes)
        _initialise(self)

    def _layer(self, block: Any, planes: int, count: int, stride: int) -> nn.Sequential:
        shortcut = None
        if stride != 1 or self.inplanes != planes * block.expansion:
            shortcut = nn.Sequential(
                nn.Conv2d(self.inplanes, planes * block.expansion, 1, stride, bias=False),
                nn.BatchNorm2d(planes * block.expansion))
        made = [block(self.inplanes, planes, stride, shortcut)]
        self.inplanes = planes * block.expansion
        made += [block(self.inplanes, planes) for _ in range(count - 1)]
        return nn.Sequential(*made)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        out: Tensor = self.fc(self.avgpool(x).flatten(1))
        return out


def alexnet(*, weights: Any = None, pretrained: bool = False, progress: bool = True,
            **options: Any) -> AlexNet:
    """AlexNet with random weights."""
    _no_weights("alexnet", weights, pretrained)
    return AlexNet(**options)


def _vgg(name: str, plan: str, norm: bool) -> Any:
    def build(pretrained: bool = False, *, weights: Any = None, progress: bool = True,
              **options: Any) -> VGG:
        _no_weights(name, weights, pretrained)
        return VGG(make_layers(_VGG[plan], norm), **options)
    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"VGG with {plan} layers{' and batch norm' if norm else ''}, random weights."
    return build


def _resnet(name: str, block: Any, layers: tuple[int, ...]) -> Any:
    def build(pretrained: bool = False, *, weights: Any = None, progress: bool = True,
              **options: Any) -> ResNet:
        _no_weights(name, weights, pretrained)
        return ResNet(block, layers, **options)
    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"ResNet with {name[6:]} layers, random weights."
    return build


vgg11, vgg13, vgg16, vgg19 = (_vgg(f"vgg{n}", n, False) for n in ("11", "13", "16", "19"))
vgg11_bn, vgg13_bn, vgg16_bn, vgg19_bn = (_vgg(f"vgg{n}_bn", n, True)
                                          for n in ("11", "13", "16", "19"))
resnet18 = _resnet("resnet18", BasicBlock, (2, 2, 2, 2))
resnet34 = _resnet("resnet34", BasicBlock, (3, 4, 6, 3))
resnet50 = _resnet("resnet50", Bottleneck, (3, 4, 6, 3))
resnet101 = _resnet("resnet101", Bottleneck, (3, 4, 23, 3))
resnet152 = _resnet("resnet152", Bottleneck, (3, 8, 36, 3))

AlexNet_Weights = VGG11_Weights = VGG13_Weights = VGG16_Weights = VGG19_Weights = Weights
VGG11_BN_Weights = VGG13_BN_Weights = VGG16_BN_Weights = VGG19_BN_Weights = Weights
ResNet18_Weights = ResNet34_Weights = ResNet50_Weights = ResNet101_Weights = Weights
ResNet152_Weights = Weights
DenseNet121_Weights = DenseNet161_Weights = DenseNet169_Weights = DenseNet201_Weights = Weights
MobileNet_V2_Weights = SqueezeNet1_0_Weights = SqueezeNet1_1_Weights = Weights
ViT_B_16_Weights = ViT_B_32_Weights = ViT_L_16_Weights = ViT_L_32_Weights = Weights
ViT_H_14_Weights = Weights

_MAKERS = {f.__name__: f for f in (
    alexnet, densenet121, densenet161, densenet169, densenet201, mobilenet_v2, resnet18, resnet34,
    resnet50, resnet101, resnet152, squeezenet1_0, squeezenet1_1, vgg11, vgg11_bn, vgg13, vgg13_bn,
    vgg16, vgg16_bn, vgg19, vgg19_bn, vit_b_16, vit_b_32, vit_h_14, vit_l_16, vit_l_32)}


def list_models(module: Any = None, include: Any = None, exclude: Any = None) -> list[str]:
    """The names of the networks, sorted; `include` and `exclude` are patterns as of a shell.

    >>> list_models(include="resnet1*")
    ['resnet101', 'resnet152', 'resnet18']
    """
    def fits(name: str, patterns: Any) -> bool:
        given = [patterns] if isinstance(patterns, str) else patterns
        return any(fnmatch.fnmatch(name, p) for p in given)
    return sorted(n for n in _MAKERS if (include is None or fits(n, include))
                  and (exclude is None or not fits(n, exclude)))


def get_model(name: str, **config: Any) -> nn.Module:
    """The network of that name, made with `config`. ArgumentError for an unknown name."""
    if name.lower() not in _MAKERS:
        raise ArgumentError(f"Unknown model {name}; there are {', '.join(list_models())}")
    made: nn.Module = _MAKERS[name.lower()](**config)
    return made


__all__ = [
    "AlexNet", "BasicBlock", "Bottleneck", "DenseNet", "MobileNetV2", "ResNet",
    "SqueezeNet", "VGG", "VisionTransformer", "Weights", "alexnet", "densenet121",
    "densenet161", "densenet169", "densenet201", "get_model", "list_models",
    "make_layers", "mobilenet_v2", "resnet101", "resnet152", "resnet18", "resnet34",
    "resnet50", "squeezenet1_0", "squeezenet1_1", "vgg11", "vgg11_bn", "vgg13",
    "vgg13_bn", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn", "vit_b_16", "vit_b_32",
    "vit_h_14", "vit_l_16", "vit_l_32"]
