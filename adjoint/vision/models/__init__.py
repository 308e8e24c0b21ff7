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
from adjoint.vision.models.convnext import (
    ConvNeXt,
    convnext_base,
    convnext_large,
    convnext_small,
    convnext_tiny,
)
from adjoint.vision.models.densenet import (
    DenseNet,
    densenet121,
    densenet161,
    densenet169,
    densenet201,
)
from adjoint.vision.models.efficientnet import (
    EfficientNet,
    efficientnet_b0,
    efficientnet_b1,
    efficientnet_b2,
    efficientnet_b3,
    efficientnet_b4,
    efficientnet_b5,
    efficientnet_b6,
    efficientnet_b7,
    efficientnet_v2_l,
    efficientnet_v2_m,
    efficientnet_v2_s,
)
from adjoint.vision.models.mobilenetv2 import MobileNetV2, mobilenet_v2
from adjoint.vision.models.mobilenetv3 import (
    MobileNetV3,
    mobilenet_v3_large,
    mobilenet_v3_small,
)
from adjoint.vision.models.resnet import (
    BasicBlock,
    Bottleneck,
    ResNet,
    resnet18,
    resnet34,
    resnet50,
    resnet101,
    resnet152,
    resnext50_32x4d,
    resnext101_32x8d,
    resnext101_64x4d,
    wide_resnet50_2,
    wide_resnet101_2,
)
from adjoint.vision.models.shufflenetv2 import (
    ShuffleNetV2,
    shufflenet_v2_x0_5,
    shufflenet_v2_x1_0,
    shufflenet_v2_x1_5,
    shufflenet_v2_x2_0,
)
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
from adjoint.vision.models.weights import start as _start


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
            _start(self)

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


vgg11, vgg13, vgg16, vgg19 = (_vgg(f"vgg{n}", n, False) for n in ("11", "13", "16", "19"))
vgg11_bn, vgg13_bn, vgg16_bn, vgg19_bn = (_vgg(f"vgg{n}_bn", n, True)
                                          for n in ("11", "13", "16", "19"))
AlexNet_Weights = VGG11_Weights = VGG13_Weights = VGG16_Weights = VGG19_Weights = Weights
VGG11_BN_Weights = VGG13_BN_Weights = VGG16_BN_Weights = VGG19_BN_Weights = Weights
ResNet18_Weights = ResNet34_Weights = ResNet50_Weights = ResNet101_Weights = Weights
ResNet152_Weights = Weights
DenseNet121_Weights = DenseNet161_Weights = DenseNet169_Weights = DenseNet201_Weights = Weights
MobileNet_V2_Weights = SqueezeNet1_0_Weights = SqueezeNet1_1_Weights = Weights
ViT_B_16_Weights = ViT_B_32_Weights = ViT_L_16_Weights = ViT_L_32_Weights = Weights
ViT_H_14_Weights = Weights

ResNeXt50_32X4D_Weights = ResNeXt101_32X8D_Weights = ResNeXt101_64X4D_Weights = Weights
Wide_ResNet50_2_Weights = Wide_ResNet101_2_Weights = Weights
MobileNet_V3_Large_Weights = MobileNet_V3_Small_Weights = Weights
EfficientNet_B0_Weights = EfficientNet_B1_Weights = EfficientNet_B2_Weights = Weights
EfficientNet_B3_Weights = EfficientNet_B4_Weights = EfficientNet_B5_Weights = Weights
EfficientNet_B6_Weights = EfficientNet_B7_Weights = Weights
EfficientNet_V2_S_Weights = EfficientNet_V2_M_Weights = EfficientNet_V2_L_Weights = Weights
ConvNeXt_Tiny_Weights = ConvNeXt_Small_Weights = ConvNeXt_Base_Weights = Weights
ConvNeXt_Large_Weights = Weights
ShuffleNet_V2_X0_5_Weights = ShuffleNet_V2_X1_0_Weights = Weights
ShuffleNet_V2_X1_5_Weights = ShuffleNet_V2_X2_0_Weights = Weights

_MAKERS = {f.__name__: f for f in (
    alexnet, convnext_base, convnext_large, convnext_small, convnext_tiny, densenet121,
    densenet161, densenet169, densenet201, efficientnet_b0, efficientnet_b1, efficientnet_b2,
    efficientnet_b3, efficientnet_b4, efficientnet_b5, efficientnet_b6, efficientnet_b7,
    efficientnet_v2_l, efficientnet_v2_m, efficientnet_v2_s, mobilenet_v2, mobilenet_v3_large,
    mobilenet_v3_small, resnet101, resnet152, resnet18, resnet34, resnet50, resnext101_32x8d,
    resnext101_64x4d, resnext50_32x4d, shufflenet_v2_x0_5, shufflenet_v2_x1_0,
    shufflenet_v2_x1_5, shufflenet_v2_x2_0, squeezenet1_0, squeezenet1_1, vgg11, vgg11_bn,
    vgg13, vgg13_bn, vgg16, vgg16_bn, vgg19, vgg19_bn, vit_b_16, vit_b_32, vit_h_14, vit_l_16,
    vit_l_32, wide_resnet101_2, wide_resnet50_2)}


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
    "AlexNet", "BasicBlock", "Bottleneck", "ConvNeXt", "DenseNet", "EfficientNet",
    "MobileNetV2", "MobileNetV3", "ResNet", "ShuffleNetV2", "SqueezeNet", "VGG",
    "VisionTransformer", "Weights", "alexnet", "convnext_base", "convnext_large",
    "convnext_small", "convnext_tiny", "densenet121", "densenet161", "densenet169",
    "densenet201", "efficientnet_b0", "efficientnet_b1", "efficientnet_b2",
    "efficientnet_b3", "efficientnet_b4", "efficientnet_b5", "efficientnet_b6",
    "efficientnet_b7", "efficientnet_v2_l", "efficientnet_v2_m",
    "efficientnet_v2_s", "get_model", "list_models", "make_layers", "mobilenet_v2",
    "mobilenet_v3_large", "mobilenet_v3_small", "resnet101", "resnet152",
    "resnet18", "resnet34", "resnet50", "resnext101_32x8d", "resnext101_64x4d",
    "resnext50_32x4d", "shufflenet_v2_x0_5", "shufflenet_v2_x1_0",
    "shufflenet_v2_x1_5", "shufflenet_v2_x2_0", "squeezenet1_0", "squeezenet1_1",
    "vgg11", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19",
    "vgg19_bn", "vit_b_16", "vit_b_32", "vit_h_14", "vit_l_16", "vit_l_32",
    "wide_resnet101_2", "wide_resnet50_2"]
