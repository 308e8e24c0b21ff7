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
from adjoint.ops.random import rand, randint, randn, randperm
from adjoint.vision.pixels import size_of
from adjoint.vision.transforms import functional as F
from adjoint.vision.transforms import functional as functional
from adjoint.vision.transforms.functional import InterpolationMode as InterpolationMode


def _pair(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[-1]))


def _uniform(low: float, high: float) -> float:
    return low + (high - low) * float(rand(()).item())


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


class ToPILImage:
    """See `functional.to_pil_image`."""

    def __init__(self, mode: str | None = None) -> None:
        self.mode = mode

    def __call__(self, pic: Any) -> Any:
        return F.to_pil_image(pic, self.mode)


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


class Normalize(Module):
    """See `functional.normalize`."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        super().__init__()
        self.mean, self.std, self.inplace = mean, std, inplace

    def forward(self, tensor: Tensor) -> Tensor:
        return F.normalize(tensor, self.mean, self.std, self.inplace)

    def __repr__(self) -> str:
        return f"Normalize(mean={self.mean}, std={self.std})"


class Resize(Module):
    """See `functional.resize`."""

    def __init__(self, size: Any, interpolation: Any = InterpolationMode.BILINEAR,
                 max_size: int | None = None, antialias: bool | None = True) -> None:
        super().__init__()
        self.size, self.interpolation = size, interpolation
        self.max_size, self.antialias = max_size, antialias

    def forward(self, img: Any) -> Any:
        return F.resize(img, self.size, self.interpolation, self.max_size, self.antialias)


Scale = Resize


class CenterCrop(Module):
    """See `functional.center_crop`."""

    def __init__(self, size: Any) -> None:
        super().__init__()
        self.size = _pair(size)

    def forward(self, img: Any) -> Any:
        return F.center_crop(img, self.size)


class Pad(Module):
    """See `functional.pad`."""

    def __init__(self, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> None:
        super().__init__()
        self.padding, self.fill, self.padding_mode = padding, fill, padding_mode

    def forward(self, img: Any) -> Any:
        return F.pad(img, self.padding, self.fill, self.padding_mode)


class RandomCrop(Module):
    """A window at a random place, after padding."""

    def __init__(self, size: Any, padding: Any = None, pad_if_needed: bool = False, fill: Any = 0,
                 padding_mode: str = "constant") -> None:
        super().__init__()
        self.size, self.padding, self.pad_if_needed = _pair(size), padding, pad_if_needed
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


class RandomResizedCrop(Module):
    """A window of random area and ratio, resized: the augmentation of Szegedy et al. (2015)."""

    def __init__(self, size: Any, scale: tuple[float, float] = (0.08, 1.0),
                 ratio: tuple[float, float] = (3 / 4, 4 / 3),
                 interpolation: Any = InterpolationMode.BILINEAR,
                 antialias: bool | None = True) -> None:
        super().__init__()
        self.size, self.scale, self.ratio = _pair(size), scale, ratio
        self.interpolation, self.antialias = interpolation, antialias

    def window(self, img: Any) -> tuple[int, int, int, int]:
        """(top, left, height, width) of a draw; the middle where ten draws do not fit."""
        height, width = size_of(img)
        for _ in range(10):
            area = height * width * _uniform(*self.scale)
            aspect = math.exp(_uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
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


class _Sometimes(Module):
    """Something done with probability p."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def change(self, img: Any) -> Any:
        """What is done."""
        raise NotImplementedError

    def forward(self, img: Any) -> Any:
        return self.change(img) if float(rand(()).item()) < self.p else img


class RandomHorizontalFlip(_Sometimes):
    """Left and right exchanged with probability p."""

    def change(self, img: Any) -> Any:
        return F.hflip(img)


class RandomVerticalFlip(_Sometimes):
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


class RandomGrayscale(_Sometimes):
    """Grey with probability p, channels kept."""

    def __init__(self, p: float = 0.1) -> None:
        super().__init__(p)

    def change(self, img: Any) -> Any:
        return F.rgb_to_grayscale(img, 3)


class RandomRotation(Module):
    """Turned by an angle drawn from [-degrees, degrees] or (low, high)."""

    def __init__(self, degrees: Any, fill: Any = 0) -> None:
        super().__init__()
        self.degrees = (-degrees, degrees) if isinstance(degrees, (int, float)) else tuple(degrees)
        self.fill = fill

    def forward(self, img: Any) -> Any:
        return F.rotate(img, _uniform(*self.degrees), self.fill)


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
        factors = [None if r is None else _uniform(*r) for r in self.ranges]
        for i in order:
            if factors[i] is not None:
                img = steps[i](img, factors[i])
        return img


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


class RandomErasing(_Sometimes):
    """A random rectangle of a tensor overwritten (Zhong et al. 2017)."""

    def __init__(self, p: float = 0.5, scale: tuple[float, float] = (0.02, 0.33),
                 ratio: tuple[float, float] = (0.3, 3.3), value: Any = 0,
                 inplace: bool = False) -> None:
        super().__init__(p)
        self._window = RandomResizedCrop(1, scale, ratio)
        self.value, self.inplace = value, inplace

    def change(self, img: Any) -> Any:
        top, left, h, w = self._window.window(img)
        v = randn(img.shape[0], h, w) if self.value == "random" else self.value
        return F.erase(img, top, left, h, w, v, self.inplace)
