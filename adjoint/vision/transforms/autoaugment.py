"""Augmentation by randomly chosen operations: AutoAugment, RandAugment, TrivialAugment, AugMix."""
from __future__ import annotations

import math
from enum import Enum
from functools import partial
from typing import Any

from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import Tensor
from adjoint.distributions import Dirichlet
from adjoint.nn import Module
from adjoint.ops.create import full, tensor
from adjoint.ops.random import rand, randint
from adjoint.ops.ranges import arange, linspace
from adjoint.vision.pixels import is_pillow, size_of
from adjoint.vision.transforms import functional as F
from adjoint.vision.transforms.draws import integer
from adjoint.vision.transforms.geometry import InterpolationMode, through_tensor

# The magnitudes that an operation is drawn with (none: it has none), and if their signs are drawn.
Space = dict[str, tuple[Tensor, bool]]
_NONE = partial(tensor, 0.0)


def apply_op(img: Any, name: str, magnitude: float, interpolation: Any, fill: Any) -> Any:
    """One operation on an image, by its name in the papers."""
    turn = partial(F.affine, img, 0.0, scale=1.0, interpolation=interpolation, fill=fill)
    slant = math.degrees(math.atan(magnitude))
    operations = {
        "ShearX": lambda: turn(translate=[0, 0], shear=[slant, 0.0], center=[0, 0]),
        "ShearY": lambda: turn(translate=[0, 0], shear=[0.0, slant], center=[0, 0]),
        "TranslateX": lambda: turn(translate=[int(magnitude), 0], shear=[0.0, 0.0]),
        "TranslateY": lambda: turn(translate=[0, int(magnitude)], shear=[0.0, 0.0]),
        "Rotate": lambda: F.rotate(img, magnitude, interpolation, fill=fill),
        "Brightness": lambda: F.adjust_brightness(img, 1.0 + magnitude),
        "Color": lambda: F.adjust_saturation(img, 1.0 + magnitude),
        "Contrast": lambda: F.adjust_contrast(img, 1.0 + magnitude),
        "Sharpness": lambda: F.adjust_sharpness(img, 1.0 + magnitude),
        "Posterize": lambda: F.posterize(img, int(magnitude)),
        "Solarize": lambda: F.solarize(img, magnitude),
        "AutoContrast": lambda: F.autocontrast(img),
        "Equalize": lambda: F.equalize(img),
        "Invert": lambda: F.invert(img),
        "Identity": lambda: img,
    }
    if name not in operations:
        raise ArgumentError(f"The provided operator {name} is not recognized.")
    return operations[name]()


def _moves(bins: int, shear: float, x: float, y: float, turn: float) -> Space:
    tops = {"ShearX": shear, "ShearY": shear, "TranslateX": x, "TranslateY": y, "Rotate": turn}
    return {name: (linspace(0.0, top, bins), True) for name, top in tops.items()}


def _colours(bins: int, top: float) -> Space:
    return {name: (linspace(0.0, top, bins), True)
            for name in ("Brightness", "Color", "Contrast", "Sharpness")}


def _levels(bins: int, bits: int, lost: int) -> Space:
    """Posterize keeps `bits` bits down to `lost` fewer."""
    kept = bits - (arange(bins) / ((bins - 1) / lost)).round().int()
    return {"Posterize": (kept, False), "Solarize": (linspace(255.0, 0.0, bins), False),
            "AutoContrast": (_NONE(), False), "Equalize": (_NONE(), False)}


class AutoAugmentPolicy(Enum):
    """The data sets whose policies there are."""

    IMAGENET = "imagenet"
    CIFAR10 = "cifar10"
    SVHN = "svhn"


# The learned policies of Cubuk et al. (2018), arXiv:1805.09501: per pair two times operation,
# probability in tenths, magnitude of 0 to 9.
_POLICIES = {
    "imagenet": """
        Posterize 4 8 Rotate 6 9; Solarize 6 5 AutoContrast 6 -; Equalize 8 - Equalize 6 -;
        Posterize 6 7 Posterize 6 6; Equalize 4 - Solarize 2 4; Equalize 4 - Rotate 8 8;
        Solarize 6 3 Equalize 6 -; Posterize 8 5 Equalize 10 -; Rotate 2 3 Solarize 6 8;
        Equalize 6 - Posterize 4 6; Rotate 8 8 Color 4 0; Rotate 4 9 Equalize 6 -;
        Equalize 0 - Equalize 8 -; Invert 6 - Equalize 10 -; Color 6 4 Contrast 10 8;
        Rotate 8 8 Color 10 2; Color 8 8 Solarize 8 7; Sharpness 4 7 Invert 6 -;
        ShearX 6 5 Equalize 10 -; Color 4 0 Equalize 6 -; Equalize 4 - Solarize 2 4;
        Solarize 6 5 AutoContrast 6 -; Invert 6 - Equalize 10 -; Color 6 4 Contrast 10 8;
        Equalize 8 - Equalize 6 -""",
    "cifar10": """
        Invert 1 - Contrast 2 6; Rotate 7 2 TranslateX 3 9; Sharpness 8 1 Sharpness 9 3;
        ShearY 5 8 TranslateY 7 9; AutoContrast 5 - Equalize 9 -; ShearY 2 7 Posterize 3 7;
        Color 4 3 Brightness 6 7; Sharpness 3 9 Brightness 7 9; Equalize 6 - Equalize 5 -;
        Contrast 6 7 Sharpness 6 5; Color 7 7 TranslateX 5 8; Equalize 3 - AutoContrast 4 -;
        TranslateY 4 3 Sharpness 2 6; Brightness 9 6 Color 2 8; Solarize 5 2 Invert 0 -;
        Equalize 2 - AutoContrast 6 -; Equalize 2 - Equalize 6 -; Color 9 9 Equalize 6 -;
        AutoContrast 8 - Solarize 2 8; Brightness 1 3 Color 7 0; Solarize 4 5 AutoContrast 9 -;
        TranslateY 9 9 TranslateY 7 9; AutoContrast 9 - Solarize 8 3; Equalize 8 - Invert 1 -;
        TranslateY 7 9 AutoContrast 9 -""",
    "svhn": """
        ShearX 9 4 Invert 2 -; ShearY 9 8 Invert 7 -; Equalize 6 - Solarize 6 6;
        Invert 9 - Equalize 6 -; Equalize 6 - Rotate 9 3; ShearX 9 4 AutoContrast 8 -;
        ShearY 9 8 Invert 4 -; ShearY 9 5 Solarize 2 6; Invert 9 - AutoContrast 8 -;
        Equalize 6 - Rotate 9 3; ShearX 9 4 Solarize 3 3; ShearY 8 8 Invert 7 -;
        Equalize 9 - TranslateY 6 6; Invert 9 - Equalize 6 -; Contrast 3 3 Rotate 8 4;
        Invert 8 - TranslateY 0 2; ShearY 7 6 Solarize 4 8; Invert 6 - Rotate 8 4;
        ShearY 3 7 TranslateX 9 3; ShearX 1 6 Invert 6 -; Solarize 7 2 TranslateY 6 7;
        ShearY 8 4 Invert 8 -; ShearX 7 9 TranslateY 8 3; ShearY 8 5 AutoContrast 7 -;
        ShearX 7 2 Invert 1 -""",
}


class _Augment(Module):
    """What is asked of each: how pixels are found, and what is outside."""

    _shown: tuple[str, ...] = ()

    def __init__(self, interpolation: Any, fill: Any) -> None:
        super().__init__()
        self.interpolation, self.fill = interpolation, fill

    def _values(self, img: Any) -> Any:
        """`fill` for a tensor: one float per channel."""
        if self.fill is None or not isinstance(img, Tensor):
            return self.fill
        if isinstance(self.fill, (int, float)):
            return [float(self.fill)] * F.get_image_num_channels(img)
        return [float(f) for f in self.fill]

    def _drawn(self, img: Any, space: Space, index: int | None, below: int | None = None) -> Any:
        """An operation drawn and applied: its magnitude is the one at `index`, or is drawn of the
        first `below` (None: of all); then its sign."""
        name = list(space)[integer(0, len(space))]
        magnitudes, signed = space[name]
        magnitude = 0.0
        if magnitudes.ndim > 0:
            at = integer(0, below or len(magnitudes)) if index is None else index
            magnitude = float(magnitudes[at].item())
        if signed and integer(0, 2):
            magnitude = -magnitude
        return apply_op(img, name, magnitude, self.interpolation, self._values(img))

    def __repr__(self) -> str:
        shown = ", ".join(f"{n}={getattr(self, n)}" for n in self._shown)
        return f"{type(self).__name__}({shown})"


class AutoAugment(_Augment):
    """One of the 25 pairs of operations that were found best for a data set.

    >>> len(AutoAugment(AutoAugmentPolicy.SVHN).policies)
    25
    """

    _shown = "policy", "fill"

    def __init__(self, policy: AutoAugmentPolicy = AutoAugmentPolicy.IMAGENET,
                 interpolation: Any = InterpolationMode.NEAREST, fill: Any = None) -> None:
        super().__init__(interpolation, fill)
        if policy not in list(AutoAugmentPolicy):
            raise ArgumentError(f"The provided policy {policy} is not recognized.")
        self.policy, self.policies = policy, [
            tuple((name, int(tenths) / 10, None if level == "-" else int(level))
                  for name, tenths, level in (line.split()[:3], line.split()[3:]))
            for line in _POLICIES[policy.value].split(";")]

    @staticmethod
    def get_params(transform_num: int) -> tuple[int, Tensor, Tensor]:
        """Which pair, and for each operation a number in [0, 1) and a sign."""
        return integer(0, transform_num), rand(2), randint(2, (2,))

    def forward(self, img: Any) -> Any:
        h, w = size_of(img)
        space = (_moves(10, 0.3, 150.0 / 331.0 * w, 150.0 / 331.0 * h, 30.0) | _colours(10, 0.9)
                 | _levels(10, 8, 4) | {"Invert": (_NONE(), False)})
        chosen, chances, signs = self.get_params(len(self.policies))
        fill = self._values(img)
        for i, (name, p, level) in enumerate(self.policies[chosen]):
            if chances[i].item() <= p:
                magnitudes, signed = space[name]
                magnitude = 0.0 if level is None else float(magnitudes[level].item())
                if signed and not signs[i].item():
                    magnitude = -magnitude
                img = apply_op(img, name, magnitude, self.interpolation, fill)
        return img


class RandAugment(_Augment):
    """`num_ops` operations one after the other, all of one magnitude (Cubuk et al. 2019)."""

    _shown = "num_ops", "magnitude", "num_magnitude_bins", "interpolation", "fill"

    def __init__(self, num_ops: int = 2, magnitude: int = 9, num_magnitude_bins: int = 31,
                 interpolation: Any = InterpolationMode.NEAREST, fill: Any = None) -> None:
        super().__init__(interpolation, fill)
        self.num_ops, self.magnitude = num_ops, magnitude
        self.num_magnitude_bins = num_magnitude_bins

    def forward(self, img: Any) -> Any:
        (h, w), bins = size_of(img), self.num_magnitude_bins
        space = ({"Identity": (_NONE(), False)}
                 | _moves(bins, 0.3, 150.0 / 331.0 * w, 150.0 / 331.0 * h, 30.0)
                 | _colours(bins, 0.9) | _levels(bins, 8, 4))
        for _ in range(self.num_ops):
            img = self._drawn(img, space, self.magnitude)
        return img


class TrivialAugmentWide(_Augment):
    """One operation of a random magnitude (Müller and Hutter 2021)."""

    _shown = "num_magnitude_bins", "interpolation", "fill"

    def __init__(self, num_magnitude_bins: int = 31,
                 interpolation: Any = InterpolationMode.NEAREST, fill: Any = None) -> None:
        super().__init__(interpolation, fill)
        self.num_magnitude_bins = num_magnitude_bins

    def forward(self, img: Any) -> Any:
        bins = self.num_magnitude_bins
        space = ({"Identity": (_NONE(), False)} | _moves(bins, 0.99, 32.0, 32.0, 135.0)
                 | _colours(bins, 0.99) | _levels(bins, 8, 6))
        return self._drawn(img, space, None)


class AugMix(_Augment):
    """The image mixed with `mixture_width` chains of operations on it (Hendrycks et al. 2019).

    severity     magnitudes are drawn of the smallest so many of ten
    chain_depth  operations in a chain; not above 0: 1 to 3 at random
    alpha        of the Dirichlet and Beta distributions that the weights are drawn from
    all_ops      brightness, colour, contrast and sharpness too
    """

    _shown = ("severity", "mixture_width", "chain_depth", "alpha", "all_ops", "interpolation",
              "fill")

    def __init__(self, severity: int = 3, mixture_width: int = 3, chain_depth: int = -1,
                 alpha: float = 1.0, all_ops: bool = True,
                 interpolation: Any = InterpolationMode.BILINEAR, fill: Any = None) -> None:
        super().__init__(interpolation, fill)
        if not 1 <= severity <= 10:
            raise ArgumentError(f"The severity must be between [1, 10]. Got {severity} instead.")
        self.severity, self.mixture_width, self.chain_depth = severity, mixture_width, chain_depth
        self.alpha, self.all_ops = alpha, all_ops

    def forward(self, orig_img: Any) -> Any:
        if is_pillow(orig_img):
            return F.to_pil_image(self._mixed(F.pil_to_tensor(orig_img)))
        return through_tensor(orig_img, self._mixed)

    def _mixed(self, img: Tensor) -> Tensor:
        h, w = size_of(img)
        space = _moves(10, 0.3, w / 3.0, h / 3.0, 30.0) | _levels(10, 4, 4)
        if self.all_ops:
            space |= _colours(10, 0.9)
        batch = img.reshape(*[1] * max(4 - img.ndim, 0), *img.shape)
        each = [len(batch)] + [1] * (batch.ndim - 1)
        share = Dirichlet(full((len(batch), 2), self.alpha)).sample()
        weights = Dirichlet(full((len(batch), self.mixture_width), self.alpha)).sample()
        weights = weights * share[:, 1].reshape(len(batch), -1)
        mix = share[:, 0].reshape(each) * batch
        for i in range(self.mixture_width):
            changed = batch
            depth = self.chain_depth if self.chain_depth > 0 else integer(1, 4)
            for _ in range(depth):
                changed = self._drawn(changed, space, None, self.severity)
            mix = mix + weights[:, i].reshape(each) * changed
        return mix.reshape(img.shape).to(img.dtype)


__all__ = ["AugMix", "AutoAugment", "AutoAugmentPolicy", "RandAugment", "TrivialAugmentWide"]
