"""Random transforms: torchvision's draws and values from the same seed, and what they refuse.

The numbers are those that torchvision 0.29 printed for the same image and seed.
"""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.vision import transforms as T
from adjoint.vision.transforms import functional as F
from adjoint.vision.transforms import v2

IMAGE = ((ad.arange(3 * 20 * 24) * 37) % 256).reshape(3, 20, 24).to(ad.uint8)
FLOATS = IMAGE / 255.0
NAMES = {**vars(T), "BILINEAR": T.InterpolationMode.BILINEAR}

# Of floats, from seed 2: mean, spread, and the next random number.
DRAWN = {
    "RandomRotation(40)": (0.467015, 0.306952, 0.38101285696029663),
    "RandomRotation((5, 60), BILINEAR, True, fill=3)": (
        1.82073, 1.21797, 0.38101285696029663),
    "RandomAffine(20, (.1, .2), (.8, 1.2), 10, BILINEAR, 1)": (
        0.542064, 0.202897, 0.6190363764762878),
    "RandomAffine(5, shear=(1, 2, 3, 4), center=(2, 3))": (
        0.482704, 0.29886, 0.47446107864379883),
    "RandomPerspective(0.6, 1.0)": (0.208406, 0.266867, 0.05732768774032593),
    "ElasticTransform(30.0, 2.0)": (0.451301, 0.214646, 0.2958359718322754),
    "GaussianBlur((3, 5))": (0.500524, 0.0431442, 0.38101285696029663),
    "RandomErasing(1.0, value='random')": (0.434086, 0.477628, 0.6025568246841431),
    "RandomErasing(1.0, value=(1, 2, 3))": (0.718317, 0.670682, 0.6190363764762878),
    "RandomInvert(1.0)": (0.500174, 0.290048, 0.38101285696029663),
    "RandomSolarize(0.4, 1.0)": (0.259099, 0.161413, 0.38101285696029663),
    "RandomAutocontrast(1.0)": (0.499826, 0.290048, 0.38101285696029663),
    "RandomAdjustSharpness(2, 1.0)": (0.499588, 0.392947, 0.38101285696029663),
}

# Of bytes: the means from the seeds 0 to 4, and the next random number.
BYTES = {
    "RandomPosterize(3, 1.0)": (
        [111.956, 111.956, 111.956, 111.956, 111.956], 0.5590924024581909),
    "RandomSolarize(90, 1.0)": (
        [69.087, 69.087, 69.087, 69.087, 69.087], 0.5590924024581909),
    "RandomEqualize(1.0)": (
        [186.751, 186.751, 186.751, 186.751, 186.751], 0.5590924024581909),
    "RandomAutocontrast(1.0)": (
        [127.456, 127.456, 127.456, 127.456, 127.456], 0.5590924024581909),
    "RandomAdjustSharpness(2, 1.0)": (
        [127.395, 127.395, 127.395, 127.395, 127.395], 0.5590924024581909),
    "AutoAugment()": (
        [186.751, 186.751, 125.976, 180.615, 107.93], 0.03896188735961914),
    "AutoAugment(AutoAugmentPolicy.CIFAR10)": (
        [127.456, 115.674, 186.751, 186.751, 123.956], 0.03896188735961914),
    "AutoAugment(AutoAugmentPolicy.SVHN, fill=9)": (
        [127.544, 57.277, 115.799, 145.767, 121.128], 0.03896188735961914),
    "RandAugment(3)": (
        [111.06, 100.132, 69.832, 111.161, 80.719], 0.03896188735961914),
    "TrivialAugmentWide()": (
        [0.0, 126.636, 79.783, 127.456, 111.956], 0.0914568305015564),
}


@pytest.mark.parametrize("made", DRAWN)
def test_draws_and_values_are_the_peers(made: str) -> None:
    mean, spread, after = DRAWN[made]
    change = eval(made, NAMES)
    ad.manual_seed(2)
    got = change(FLOATS)
    assert ad.rand(1).item() == after
    assert (got.mean().item(), got.std().item()) == pytest.approx((mean, spread), rel=2e-5)


@pytest.mark.parametrize("made", BYTES)
def test_draws_and_values_of_bytes_are_the_peers(made: str) -> None:
    wanted, after = BYTES[made]
    change, means = eval(made, NAMES), []
    for seed in range(5):
        ad.manual_seed(seed)
        means.append(change(IMAGE).float().mean().item())
    assert ad.rand(1).item() == after
    assert means == pytest.approx(wanted, abs=6e-3)


def test_augmix_is_the_peers_within_a_level() -> None:
    """Its weights come from a Dirichlet distribution, whose draws agree to the last bit but one,
    and the mixture is cut to whole numbers."""
    ad.manual_seed(3)
    assert T.AugMix()(IMAGE).float().mean().item() == pytest.approx(128.2944, abs=0.5)
    assert ad.rand(1).item() == 0.2659062147140503


def test_warps_are_differentiable_and_exact_where_pixels_meet() -> None:
    x = ad.arange(12.0).reshape(1, 3, 4).requires_grad_()
    turned = F.rotate(x, 180)
    np.testing.assert_array_equal(turned.detach().numpy()[0], x.detach().numpy()[0, ::-1, ::-1])
    moved = F.affine(x, 0, [1, -1], 1.0, [0.0], fill=7.0)
    assert moved.tolist() == [[[7, 4, 5, 6], [7, 8, 9, 10], [7, 7, 7, 7]]]
    moved.sum().backward()
    assert x.grad.tolist() == [[[0, 0, 0, 0], [1, 1, 1, 0], [1, 1, 1, 0]]]
    corners = [[0, 0], [3, 0], [3, 2], [0, 2]]
    same = F.perspective(x.detach(), corners, corners)
    np.testing.assert_allclose(same.numpy(), x.detach().numpy(), atol=1e-4)


def test_crops() -> None:
    five = T.FiveCrop(2)(IMAGE)
    assert [tuple(c.shape) for c in five] == [(3, 2, 2)] * 5
    assert bool((five[3] == IMAGE[:, -2:, -2:]).all())
    ten = F.ten_crop(IMAGE, (2, 3), vertical_flip=True)
    assert len(ten) == 10 and bool((ten[5] == IMAGE.flip(1)[:, :2, :3]).all())
    around = F.center_crop(IMAGE, (25, 24))
    assert not around[:, :2].any() and around[:, 2].any() and not around[:, 22:].any()
    assert F.get_dimensions(IMAGE) == [3, 20, 24] and F.get_image_size(IMAGE) == [24, 20]


def test_pillow_images_are_changed_by_pillow() -> None:
    image_module = pytest.importorskip("PIL.Image")
    ops = pytest.importorskip("PIL.ImageOps")
    image = image_module.fromarray(np.moveaxis(IMAGE.numpy(), 0, -1))
    pairs: list[tuple[Any, Any]] = [
        (F.rotate(image, 30), image.rotate(30)), (F.invert(image), ops.invert(image)),
        (F.resize(image, (7, 9), T.InterpolationMode.NEAREST), image.resize((9, 7), 0)),
        (F.equalize(image), ops.equalize(image)), (F.posterize(image, 2), ops.posterize(image, 2)),
        (F.gaussian_blur(image, 3, 1.0), F.to_pil_image(F.gaussian_blur(IMAGE, 3, 1.0))),
        (F.affine(image, 0, [3, 0], 1.0, [0.0]),
         image.transform(image.size, 0, (1, 0, -3, 0, 1, 0)))]
    for got, wanted in pairs:
        assert type(got) is type(wanted)
        np.testing.assert_array_equal(np.asarray(got), np.asarray(wanted))


def test_images_in_batches_have_their_own_colours() -> None:
    batch = ad.rand(2, 3, 4, 5)
    for f in (lambda x: F.adjust_contrast(x, 0.4), lambda x: F.adjust_saturation(x, 1.9),
              lambda x: F.adjust_hue(x, 0.2), F.rgb_to_grayscale, F.autocontrast):
        one = ad.stack([f(x) for x in batch])
        np.testing.assert_allclose(f(batch).numpy(), one.numpy(), atol=1e-6)


def test_mixed_batches() -> None:
    images, labels = ad.rand(4, 3, 8, 8), ad.arange(4)
    ad.manual_seed(3)
    ad.rand(4, 3, 8, 8)
    mixed, soft = v2.MixUp(alpha=0.5, num_classes=4)(images, labels)
    assert soft[0].tolist() == pytest.approx([0.5523, 0, 0, 0.4477], abs=1e-4)
    assert ad.rand(1).item() == pytest.approx(0.8652, abs=1e-4)
    share = soft[0, 0].item()
    np.testing.assert_allclose(
        mixed.numpy(), (share * images + (1 - share) * images.roll(1, 0)).numpy(), atol=1e-6)
    ad.manual_seed(3)
    ad.rand(4, 3, 8, 8)
    made = v2.CutMix(num_classes=4)({"image": images, "labels": labels, "name": "x"})
    assert made["labels"][0].tolist() == [0.53125, 0, 0, 0.46875] and made["name"] == "x"
    kept = (made["image"] == images).float().mean().item()
    assert kept == 0.53125
    assert str(v2.CutMix(num_classes=4)) == "CutMix(alpha=1.0, num_classes=4)"
    with pytest.raises(ValueError, match="num_classes must be passed"):
        v2.MixUp()(images, labels)
    with pytest.raises(ValueError, match="does not match the batch size of the labels: 4 != 3"):
        v2.MixUp(num_classes=4)(images, labels[:3])
    with pytest.raises(ValueError, match="with 4 dims, but got 3"):
        v2.MixUp(num_classes=4)(images[0], labels[:3])


@pytest.mark.parametrize("made, shown", [
    ("RandomAffine(20, (.1, .1), shear=10)",
     "RandomAffine(degrees=[-20.0, 20.0], translate=(0.1, 0.1), shear=[-10.0, 10.0])"),
    ("RandomRotation(30)",
     "RandomRotation(degrees=[-30.0, 30.0], interpolation=nearest, expand=False, fill=0)"),
    ("AutoAugment()", "AutoAugment(policy=AutoAugmentPolicy.IMAGENET, fill=None)"),
    ("RandomResizedCrop(3)", "RandomResizedCrop(size=(3, 3), scale=(0.08, 1.0), "
     "ratio=(0.75, 1.3333), interpolation=bilinear, antialias=True)"),
    ("RandomPosterize(3)", "RandomPosterize(bits=3,p=0.5)"),
    ("ColorJitter(.1)", "ColorJitter(brightness=(0.9, 1.1), contrast=None, saturation=None, "
     "hue=None)")])
def test_transforms_are_shown_as_the_peers(made: str, shown: str) -> None:
    assert repr(eval(made, NAMES)) == shown


@pytest.mark.parametrize("made, kind, message", [
    ("RandomAffine(-1)", ValueError, "degrees is a single number"),
    ("RandomAffine(1, translate=(2, .1))", ValueError, "between 0 and 1"),
    ("RandomAffine(1, translate=.1)", TypeError, "sequence of length 2"),
    ("GaussianBlur(2)", ValueError, "odd and positive"),
    ("FiveCrop(50)(FLOATS)", ValueError, r"\(50, 50\) is bigger than input size \(20, 24\)"),
    ("functional.equalize(FLOATS)", TypeError, "Only torch.uint8"),
    ("functional.solarize(FLOATS, 2.0)", TypeError, "less than bound"),
    ("functional.adjust_sharpness(FLOATS, -1)", ValueError, "not non-negative"),
    ("functional.affine(FLOATS, 1, [0, 0], -1.0, [0.0])", ValueError, "scale should be positive"),
    ("AugMix(11)", ValueError, "severity must be between"),
    ("AutoAugment('x')", ValueError, "policy x is not recognized")])
def test_what_is_refused(made: str, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        eval(made, {**NAMES, "FLOATS": FLOATS})
