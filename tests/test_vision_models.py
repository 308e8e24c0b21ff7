"""Networks beyond the first ones: torchvision's parameters, beginnings and results."""
from __future__ import annotations

import hashlib

import pytest

import adjoint as ad
from adjoint.vision import models

# For each network how many entries torchvision 0.29's `state_dict` has, and the beginning of the
# MD5 digest of its names and shapes, in order, as a list of pairs in Python's notation.
PARAMETERS = """
resnext50_32x4d=320:26ee1c17 resnext101_64x4d=626:f88e9588 wide_resnet50_2=320:5d794775
wide_resnet101_2=626:03e365b6 mobilenet_v3_large=312:4c842b7f mobilenet_v3_small=244:edb67255
efficientnet_b0=360:4b8d14f4 efficientnet_b1=508:521272a6 efficientnet_b2=508:f64b3433
efficientnet_b3=574:90cd9d4b efficientnet_b4=706:7de3d5ea efficientnet_b5=854:fe90eb2d
efficientnet_b6=986:3df4e744 efficientnet_b7=1200:1f91e061 efficientnet_v2_s=782:f73f5b72
efficientnet_v2_m=1120:fa575594 efficientnet_v2_l=1548:6dabc506 convnext_tiny=182:6e55f289
convnext_small=344:c3b0a20d convnext_base=344:127d60dd convnext_large=344:c3177fb5
shufflenet_v2_x0_5=338:6a38b8bb shufflenet_v2_x1_0=338:60435777 shufflenet_v2_x1_5=338:e8efb5e7
shufflenet_v2_x2_0=338:2d84469a"""

# After manual_seed(0), as torchvision 0.29 made and printed them: parameters, the sum of their
# magnitudes, the next random number, and in training, from seed 1, the loss of two images and the
# norm of the gradient of the first parameter.
STARTS = {
    "resnext50_32x4d": ({}, 22994247, 802126, 0.6463351249694824, 2.3877, 3.22e+03),
    "mobilenet_v3_small": ({}, 1525031, 84350.8, 0.9348664879798889, 1.9596, 0.445),
    "efficientnet_b0": ({}, 4016515, 280717, 0.1195453405380249, 3.5905, 568),
    "convnext_tiny": ({}, 27825511, 451159, 0.21433061361312866, 2.0718, 16.7),
    "shufflenet_v2_x1_0": ({}, 1260779, 51345.6, 0.3415599465370178, 2.0185, 210),
    "resnet50": (
        {"replace_stride_with_dilation": [False, True, True], "zero_init_residual": True},
        23522375, 726870, 0.24249917268753052, 1.9303, 3.08),
    "mobilenet_v3_large": (
        {"width_mult": 0.75},
        2423303, 137600, 0.11963444948196411, 1.9364, 1.11),
}
EXACTER = {                    # compared more closely
    "squeezenet1_0": ({"num_classes": 10}, 740554, 51019.7, 0.6797508001327515, 2.2929, 0.285),
    "densenet121": ({"drop_rate": 0.1}, 6961031, 329179, 0.8996617197990417, 2.3078, 25.2),
    "mobilenet_v2": ({"num_classes": 5}, 2230277, 152795, 0.9439688920974731, 1.7991, 203),
}


@pytest.mark.parametrize("line", PARAMETERS.split())
def test_parameters_have_the_peers_names_shapes_and_order(line: str) -> None:
    name, wanted = line.split("=")
    with ad.device("meta"):
        net = models.get_model(name)
    entries = [(k, tuple(v.shape)) for k, v in net.state_dict().items()]
    assert f"{len(entries)}:{hashlib.md5(str(entries).encode()).hexdigest()[:8]}" == wanted


@pytest.mark.parametrize("name", [*STARTS, *EXACTER])
def test_networks_begin_and_compute_as_the_peers(name: str) -> None:
    options, count, total, after, loss, slope = (STARTS | EXACTER)[name]
    near = {"abs": 2e-4} if name in EXACTER else {"rel": 2e-4}
    ad.manual_seed(0)
    net = models.get_model(name, **{"num_classes": 7} | options)
    assert sum(p.numel() for p in net.parameters()) == count
    assert sum(p.double().abs().sum() for p in net.parameters()).item() == pytest.approx(
        total, rel=1e-5)
    assert ad.rand(1).item() == after
    x = ad.rand(2, 3, 64, 64)
    ad.manual_seed(1)
    got = ad.nn.functional.cross_entropy(net(x), ad.tensor([1, 2]))
    got.backward()
    assert got.item() == pytest.approx(loss, **near)
    assert next(net.parameters()).grad.norm().item() == pytest.approx(
        slope, rel=5e-3 if name in EXACTER else 6e-3)


def test_dilated_stages_keep_the_size() -> None:
    ad.manual_seed(0)
    net = models.ResNet(models.Bottleneck, (1, 1, 1, 2), num_classes=3,
                        replace_stride_with_dilation=(False, True, True))
    assert net.layer4[1].conv2.dilation == (4, 4) and net.layer3[0].conv2.stride == (1, 1)
    x = net.layer2(net.layer1(ad.rand(1, 64, 16, 16)))
    assert net.layer4(net.layer3(x)).shape[-2:] == x.shape[-2:]
    with pytest.raises(ValueError, match="3-element tuple"):
        models.ResNet(models.Bottleneck, (1, 1, 1, 1), replace_stride_with_dilation=(True,))
    with pytest.raises(ValueError, match="groups=1 and base_width=64"):
        models.ResNet(models.BasicBlock, (1, 1, 1, 1), groups=2)


def test_what_the_networks_refuse() -> None:
    from adjoint.vision.models import convnext, efficientnet, mobilenetv3, shufflenetv2

    for empty in (lambda: convnext.ConvNeXt([]), lambda: efficientnet.EfficientNet([], 0.1),
                  lambda: mobilenetv3.MobileNetV3([], 8)):
        with pytest.raises(ValueError, match="should not be empty"):
            empty()
    with pytest.raises(ValueError, match="Invalid combination of stride 1"):
        shufflenetv2.InvertedResidual(4, 8, 1)
    with pytest.raises(NotImplementedError, match="not fetched"):
        models.efficientnet_b0(weights=models.EfficientNet_B0_Weights.DEFAULT)
