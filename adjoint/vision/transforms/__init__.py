"""Transforms of one image, to be chained by `Compose`; randomness is the default generator's."""
from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from adjoint.base import dtypes
from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import Tensor
from adjoint.nn import Module
from adjoint.ops.create import tensor
from adjoint.ops.random import rand, randint, randn, randperm
from adjoint.vision.pixels import size_of
from adjoint.vision.transforms import functional as F
from adjoint.vision.transforms import functional as functional
from adjoint.vision.transforms.autoaugment import (
    AugMix,
    AutoAugment,
    AutoAugmentPolicy,
    RandAugment,
    TrivialAugmentWide,
)
from adjoint.vision.transforms.draws import Sometimes, integer, pair, uniform
from adjoint.vision.transforms.geometry import InterpolationMode, mode_name
from adjoint.vision.transforms.randoms import (
    ElasticTransform,
    FiveCrop,
    GaussianBlur,
    RandomAdjustSharpness,
    RandomAffine,
    RandomAutocontrast,
    RandomEqualize,
    RandomInvert,
    RandomPerspective,
    RandomPosterize,
    RandomRotation,
    RandomSolarize,
    TenCrop,
)


class Compose:
    """Transforms one after the other.

    >>> import numpy as np
    >>> chain = Compose([ToTensor(), Normalize((0.5,), (0.5,))])
    >>> chain(np.zeros((2, 2), np.uint8)).min().item()
    -1.0
    """

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, img: Any) -> Any:
        for t in self.transforms:
            img = t(img)
        return img

    def __repr__(self) -> str:
        inner = "".join(f"\n    {t}" for t in self.transforms)
        return f"{type(self).__name__}({inner}\n)"


class ToTensor:
    """See `functional.to_tensor`."""

    def __call__(self, pic: Any) -> Tensor:
        return F.to_tensor(pic)

    def __repr__(self) -> str:
        return "ToTensor()"


class PILToTensor:
    """See `functional.pil_to_tensor`."""

    def __call__(self, pic: Any) -> Tensor:
        return F.pil_to_tensor(pic)

    def __repr__(self) -> str:
        return "PILToTensor()"



class ToPILImage:
    """See `functional.to_pil_image`."""

    def __init__(self, mode: str | None = None) -> None:
        self.mode = mode

    def __call__(self, pic: Any) -> Any:
        return F.to_pil_image(pic, self.mode)

    def __repr__(self) -> str:
        return "ToPILImage()" if self.mode is None else f"ToPILImage(mode={self.mode})"



class ConvertImageDtype(Module):
    """See `functional.convert_image_dtype`."""

    def __init__(self, dtype: Any = dtypes.float32) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, image: Tensor) -> Tensor:
        return F.convert_image_dtype(image, self.dtype)


class Lambda:
    """Any function."""

    def __init__(self, lambd: Callable[[Any], Any]) -> None:
        if not callable(lambd):
            raise TypeError(f"Argument lambd should be callable, got {type(lambd).__name__!r}")
        self.lambd = lambd

    def __call__(self, img: Any) -> Any:
        return self.lambd(img)

    def __repr__(self) -> str:
        return "Lambda()"



class Normalize(Module):
    """See `functional.normalize`."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        super().__init__()
        self.mean, self.std, self.inplace = mean, std, inplace

    def forward(self, tensor: Tensor) -> Tensor:
        return F.normalize(tensor, self.mean, self.std, self.inplace)

    def __repr__(self) -> str:
        return f"Normalize(mean={self.mean}, std={self.std})"


class LinearTransformation(Module):
    """A flattened image less a mean vector, times a matrix: whitening.

    >>> import adjoint as ad
    >>> LinearTransformation(2 * ad.eye(4), ad.ones(4))(ad.ones(1, 2, 2) * 3).tolist()
    [[[4.0, 4.0], [4.0, 4.0]]]
    """

    def __init__(self, transformation_matrix: Tensor, mean_vector: Tensor) -> None:
        super().__init__()
        rows, columns = transformation_matrix.shape
        if rows != columns:
            raise ArgumentError("transformation_matrix should be square. Got "
                                f"{list(transformation_matrix.shape)} rectangular matrix.")
        if len(mean_vector) != rows:
            raise ArgumentError(f"mean_vector should have the same length {len(mean_vector)} as "
                                f"any one of the dimensions of the transformation_matrix "
                                f"[{(rows, columns)}]")
        self.transformation_matrix, self.mean_vector = transformation_matrix, mean_vector

    def forward(self, tensor: Tensor) -> Tensor:
        n = len(self.mean_vector)
        if math.prod(tensor.shape[-3:]) != n:
            raise ArgumentError("Input tensor and transformation matrix have incompatible shape."
                                f"{list(tensor.shape[-3:])} != {n}, {n}")
        centred = tensor.reshape(-1, n) - self.mean_vector
        return (centred @ self.transformation_matrix).reshape(tensor.shape)

    def __repr__(self) -> str:
        matrix, mean = self.transformation_matrix.tolist(), self.mean_vector.tolist()
        return f"LinearTransformation(transformation_matrix={matrix}, mean_vector={mean})"


class Resize(Module):
    """See `functional.resize`."""

    def __init__(self, size: Any, interpolation: Any = InterpolationMode.BILINEAR,
                 max_size: int | None = None, antialias: bool | None = True) -> None:
        super().__init__()
        self.size, self.interpolation = size, interpolation
        self.max_size, self.antialias = max_size, antialias

    def forward(self, img: Any) -> Any:
        return F.resize(img, self.size, self.interpolation, self.max_size, self.antialias)

    def __repr__(self) -> str:
        return (f"Resize(size={self.size}, interpolation={mode_name(self.interpolation)}, "
                f"max_size={self.max_size}, antialias={self.antialias})")



Scale = Resize


class CenterCrop(Module):
    """See `functional.center_crop`."""

    def __init__(self, size: Any) -> None:
        super().__init__()
        self.size = pair(size)

    def forward(self, img: Any) -> Any:
        return F.center_crop(img, self.size)

    def __repr__(self) -> str:
        return f"CenterCrop(size={self.size})"



class Pad(Module):
    """See `functional.pad`."""

    def __init__(self, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> None:
        super().__init__()
        self.padding, self.fill, self.padding_mode = padding, fill, padding_mode

    def forward(self, img: Any) -> Any:
        return F.pad(img, self.padding, self.fill, self.padding_mode)

    def __repr__(self) -> str:
        return (f"Pad(padding={self.padding}, fill={self.fill}, "
                f"padding_mode={self.padding_mode})")



class RandomCrop(Module):
    """A window at a random place, after padding."""

    def __init__(self, size: Any, padding: Any = None, pad_if_needed: bool = False, fill: Any = 0,
                 padding_mode: str = "constant") -> None:
        super().__init__()
        self.size, self.padding, self.pad_if_needed = pair(size), padding, pad_if_needed
        self.fill, self.padding_mode = fill, padding_mode

    def forward(self, img: Any) -> Any:
        if self.padding is not None:
            img = F.pad(img, self.padding, self.fill, self.padding_mode)
        (h, w), (th, tw) = size_of(img), self.size
        if self.pad_if_needed and (h < th or w < tw):
            img = F.pad(img, (max(tw - w, 0), max(th - h, 0)), self.fill, self.padding_mode)
            h, w = size_of(img)
        if h < th or w < tw:
            raise ArgumentError(f"Required crop size {(th, tw)} is larger than input image size "
                                f"{(h, w)}")
        top, left = (int(randint(0, n + 1, ()).item()) for n in (h - th, w - tw))
        return F.crop(img, top, left, th, tw)

    def __repr__(self) -> str:
        return f"RandomCrop(size={self.size}, padding={self.padding})"



class RandomResizedCrop(Module):
    """A window of random area and ratio, resized: the augmentation of Szegedy et al. (2015)."""

    def __init__(self, size: Any, scale: tuple[float, float] = (0.08, 1.0),
                 ratio: tuple[float, float] = (3 / 4, 4 / 3),
                 interpolation: Any = InterpolationMode.BILINEAR,
                 antialias: bool | None = True) -> None:
        super().__init__()
        self.size, self.scale, self.ratio = pair(size), scale, ratio
        self.interpolation, self.antialias = interpolation, antialias

    def window(self, img: Any) -> tuple[int, int, int, int]:
        """(top, left, height, width) of a draw; the middle where ten draws do not fit."""
        height, width = size_of(img)
        for _ in range(10):
            area = height * width * uniform(*self.scale)
            aspect = math.exp(uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < w <= width and 0 < h <= height:
                return (int(randint(0, height - h + 1, ()).item()),
                        int(randint(0, width - w + 1, ()).item()), h, w)
        aspect = min(max(width / height, self.ratio[0]), self.ratio[1])
        w, h = min(width, round(height * aspect)), min(height, round(width / aspect))
        return (height - h) // 2, (width - w) // 2, h, w

    def forward(self, img: Any) -> Any:
        return F.resized_crop(img, *self.window(img), self.size, self.interpolation,
                              bool(self.antialias))

    def __repr__(self) -> str:
        scale, ratio = (tuple(round(v, 4) for v in r) for r in (self.scale, self.ratio))
        return (f"RandomResizedCrop(size={self.size}, scale={scale}, ratio={ratio}, "
                f"interpolation={mode_name(self.interpolation)}, antialias={self.antialias})")



class RandomHorizontalFlip(Sometimes):
    """Left and right exchanged with probability p."""

    def change(self, img: Any) -> Any:
        return F.hflip(img)


class RandomVerticalFlip(Sometimes):
    """Top and bottom exchanged with probability p."""

    def change(self, img: Any) -> Any:
        return F.vflip(img)


class Grayscale(Module):
    """See `functional.rgb_to_grayscale`."""

    def __init__(self, num_output_channels: int = 1) -> None:
        super().__init__()
        self.num_output_channels = num_output_channels

    def forward(self, img: Any) -> Any:
        return F.rgb_to_grayscale(img, self.num_output_channels)

    def __repr__(self) -> str:
        return f"Grayscale(num_output_channels={self.num_output_channels})"



class RandomGrayscale(Sometimes):
    """Grey with probability p, channels kept."""

    def __init__(self, p: float = 0.1) -> None:
        super().__init__(p)

    def change(self, img: Any) -> Any:
        return F.rgb_to_grayscale(img, 3)


class ColorJitter(Module):
    """Brightness, contrast, saturation and hue changed by random factors, in random order."""

    def __init__(self, brightness: Any = 0, contrast: Any = 0, saturation: Any = 0,
                 hue: Any = 0) -> None:
        super().__init__()
        self.ranges = [self._range(v, 1.0) for v in (brightness, contrast, saturation)]
        self.ranges.append(self._range(hue, 0.0))

    @staticmethod
    def _range(value: Any, centre: float) -> tuple[float, float] | None:
        if isinstance(value, (int, float)):
            if value < 0:
                raise ArgumentError(f"ColorJitter: a single number must be >= 0, got {value}")
            low, high = centre - value, centre + value
            value = (max(low, 0.0) if centre else low, high)
        return None if value[0] == value[1] == centre else (float(value[0]), float(value[1]))

    def forward(self, img: Any) -> Any:
        steps = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)
        order = randperm(4).tolist()
        factors = [None if r is None else uniform(*r) for r in self.ranges]
        for i in order:
            if factors[i] is not None:
                img = steps[i](img, factors[i])
        return img

    def __repr__(self) -> str:
        names = ("brightness", "contrast", "saturation", "hue")
        shown = (f"{name}={r}" for name, r in zip(names, self.ranges, strict=True))
        return f"ColorJitter({', '.join(shown)})"



class RandomApply(Module):
    """All of `transforms` with probability p, else nothing."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]], p: float = 0.5) -> None:
        super().__init__()
        self.transforms, self.p = list(transforms), p

    def forward(self, img: Any) -> Any:
        if float(rand(()).item()) < self.p:
            for t in self.transforms:
                img = t(img)
        return img

    def __repr__(self) -> str:
        inner = "".join(f"\n    {t}" for t in self.transforms)
        return f"RandomApply(\n    p={self.p}{inner}\n)"



class RandomChoice(Module):
    """One of `transforms`, with probabilities proportional to `p`; drawn by Python's `random`."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]],
                 p: Sequence[float] | None = None) -> None:
        super().__init__()
        self.transforms, self.p = list(transforms), p
        if p is not None and len(p) != len(self.transforms):
            raise ArgumentError(f"RandomChoice: {len(p)} probabilities for "
                                f"{len(self.transforms)} transforms")

    def forward(self, img: Any) -> Any:
        return random.choices(self.transforms, self.p)[0](img)

    def __repr__(self) -> str:
        inner = "".join(f"\n    {t}" for t in self.transforms)
        return f"RandomChoice({inner}\n)(p={self.p})"



class RandomOrder(Module):
    """All of `transforms` in an order drawn by Python's `random`."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        super().__init__()
        self.transforms = list(transforms)

    def forward(self, img: Any) -> Any:
        order = list(range(len(self.transforms)))
        random.shuffle(order)
        for i in order:
            img = self.transforms[i](img)
        return img

    def __repr__(self) -> str:
        inner = "".join(f"\n    {t}" for t in self.transforms)
        return f"RandomOrder({inner}\n)"



class RandomErasing(Sometimes):
    """A random rectangle of a tensor overwritten (Zhong et al. 2017).

    scale  its area, in parts of the image's
    ratio  its height over its width
    value  a number, one per channel, or "random": normal draws
    """

    def __init__(self, p: float = 0.5, scale: tuple[float, float] = (0.02, 0.33),
                 ratio: tuple[float, float] = (0.3, 3.3), value: Any = 0,
                 inplace: bool = False) -> None:
        super().__init__(p)
        self.scale, self.ratio, self.value, self.inplace = scale, ratio, value, inplace

    def window(self, img: Tensor) -> tuple[int, int, int, int, Tensor] | None:
        """(top, left, height, width, values) of a draw; None where ten draws do not fit."""
        height, width = size_of(img)
        for _ in range(10):
            area = height * width * uniform(*self.scale)
            aspect = math.exp(uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            h, w = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if h < height and w < width:
                v = (randn(img.shape[0], h, w) if self.value == "random" else
                     tensor(self.value, dtype=img.dtype).reshape(-1, 1, 1))
                return integer(0, height - h + 1), integer(0, width - w + 1), h, w, v
        return None

    def change(self, img: Any) -> Any:
        found = self.window(img)
        return img if found is None else F.erase(img, *found, self.inplace)

    def __repr__(self) -> str:
        return (f"RandomErasing(p={self.p}, scale={self.scale}, ratio={self.ratio}, "
                f"value={self.value}, inplace={self.inplace})")


__all__ = [
    "AugMix", "AutoAugment", "AutoAugmentPolicy", "CenterCrop", "ColorJitter", "Compose",
    "ConvertImageDtype", "ElasticTransform", "FiveCrop", "GaussianBlur", "Grayscale",
    "InterpolationMode", "Lambda", "LinearTransformation", "Normalize", "PILToTensor", "Pad",
    "RandAugment",
    "RandomAdjustSharpness", "RandomAffine", "RandomApply", "RandomAutocontrast",
    "RandomChoice", "RandomCrop", "RandomEqualize", "RandomErasing", "RandomGrayscale",
    "RandomHorizontalFlip", "RandomInvert", "RandomOrder", "RandomPerspective",
    "RandomPosterize", "RandomResizedCrop", "RandomRotation", "RandomSolarize",
    "RandomVerticalFlip", "Resize", "Scale", "TenCrop", "ToPILImage", "ToTensor",
    "TrivialAugmentWide", "functional"]
