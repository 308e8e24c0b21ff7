"""Transforms with random angles, corners, displacements and levels, and the sets of crops."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adjoint.base.errors import ArgumentError, DTypeError
from adjoint.core.tensor import Tensor
from adjoint.nn import Module
from adjoint.ops.api_join import cat
from adjoint.ops.random import rand
from adjoint.vision.pixels import size_of
from adjoint.vision.transforms import functional as F
from adjoint.vision.transforms.draws import Sometimes, angles, integer, pair, uniform
from adjoint.vision.transforms.geometry import InterpolationMode, mode_name

_NEAREST, _BILINEAR = InterpolationMode.NEAREST, InterpolationMode.BILINEAR
Pair = tuple[float, float]


def _two(value: Any, name: str) -> None:
    if value is not None and not isinstance(value, Sequence):
        raise DTypeError(f"{name} should be a sequence of length 2.")
    if value is not None and len(value) != 2:
        raise ArgumentError(f"{name} should be a sequence of length 2.")


class RandomRotation(Module):
    """Turned by an angle drawn from [-degrees, degrees] or (low, high); see `functional.rotate`."""

    def __init__(self, degrees: Any, interpolation: Any = _NEAREST, expand: bool = False,
                 center: Sequence[float] | None = None, fill: Any = 0) -> None:
        super().__init__()
        self.degrees = angles(degrees, "degrees")
        _two(center, "center")
        self.interpolation, self.expand, self.center = interpolation, expand, center
        self.fill = 0 if fill is None else fill

    @staticmethod
    def get_params(degrees: Sequence[float]) -> float:
        """An angle."""
        return uniform(float(degrees[0]), float(degrees[1]))

    def forward(self, img: Any) -> Any:
        angle = self.get_params(self.degrees)
        return F.rotate(img, angle, self.interpolation, self.expand, self.center, self.fill)

    def __repr__(self) -> str:
        center = "" if self.center is None else f", center={self.center}"
        fill = "" if self.fill is None else f", fill={self.fill}"
        return (f"RandomRotation(degrees={self.degrees}, interpolation="
                f"{mode_name(self.interpolation)}, expand={self.expand}{center}{fill})")


class RandomAffine(Module):
    """Turned, moved, scaled and sheared at random; see `functional.affine`.

    degrees    angles of [-degrees, degrees] or (low, high)
    translate  the largest moves, in parts of width and height
    scale      the smallest and the largest factor
    shear      angles along x: a number or (low, high); along y too: four numbers
    """

    def __init__(self, degrees: Any, translate: Pair | None = None, scale: Pair | None = None,
                 shear: Any = None, interpolation: Any = _NEAREST, fill: Any = 0,
                 center: Sequence[int] | None = None) -> None:
        super().__init__()
        self.degrees = angles(degrees, "degrees")
        _two(translate, "translate")
        _two(scale, "scale")
        _two(center, "center")
        if translate is not None and not all(0.0 <= t <= 1.0 for t in translate):
            raise ArgumentError("translation values should be between 0 and 1")
        if scale is not None and min(scale) <= 0:
            raise ArgumentError("scale values should be positive")
        self.shear = None if shear is None else angles(shear, "shear", (2, 4))
        self.translate, self.scale, self.center = translate, scale, center
        self.interpolation, self.fill = interpolation, 0 if fill is None else fill

    @staticmethod
    def get_params(degrees: Sequence[float], translate: Pair | None, scale_ranges: Pair | None,
                   shears: Sequence[float] | None, img_size: Sequence[int]) -> Any:
        """(angle, (x, y), scale, (shear x, shear y)) of a draw, for an image (width, height)."""
        angle, moved, scale = uniform(degrees[0], degrees[1]), (0, 0), 1.0
        if translate is not None:
            far = [float(t * n) for t, n in zip(translate, img_size, strict=True)]
            moved = (round(uniform(-far[0], far[0])), round(uniform(-far[1], far[1])))
        if scale_ranges is not None:
            scale = uniform(scale_ranges[0], scale_ranges[1])
        along = [0.0, 0.0]
        for i in range(len(shears or ()) // 2):
            along[i] = uniform(*(shears or ())[2 * i:2 * i + 2])
        return angle, moved, scale, (along[0], along[1])

    def forward(self, img: Any) -> Any:
        angle, moved, scale, shear = self.get_params(
            self.degrees, self.translate, self.scale, self.shear, size_of(img)[::-1])
        return F.affine(img, angle, moved, scale, shear, self.interpolation, self.fill, self.center)

    def __repr__(self) -> str:
        parts = [f"degrees={self.degrees}"]
        parts += [f"{name}={getattr(self, name)}" for name in ("translate", "scale", "shear")
                  if getattr(self, name) is not None]
        if self.interpolation != _NEAREST:
            parts.append(f"interpolation={mode_name(self.interpolation)}")
        parts += [f"fill={self.fill}"] if self.fill != 0 else []
        parts += [f"center={self.center}"] if self.center is not None else []
        return f"RandomAffine({', '.join(parts)})"


class RandomPerspective(Sometimes):
    """Each corner moved inwards by up to `distortion_scale` of half the size, with probability
    p."""

    def __init__(self, distortion_scale: float = 0.5, p: float = 0.5,
                 interpolation: Any = _BILINEAR, fill: Any = 0) -> None:
        super().__init__(p)
        self.distortion_scale, self.interpolation = distortion_scale, interpolation
        self.fill = 0 if fill is None else fill

    @staticmethod
    def get_params(width: int, height: int, distortion_scale: float) -> Any:
        """The four corners, and where they go."""
        x, y = (int(distortion_scale * (n // 2)) for n in (width, height))
        left, right = (0, x + 1), (width - x - 1, width)
        top, bottom = (0, y + 1), (height - y - 1, height)
        ends = [[integer(*h), integer(*v)]
                for h, v in ((left, top), (right, top), (right, bottom), (left, bottom))]
        w, h = width - 1, height - 1
        return [[0, 0], [w, 0], [w, h], [0, h]], ends

    def change(self, img: Any) -> Any:
        h, w = size_of(img)
        begin, end = self.get_params(w, h, self.distortion_scale)
        return F.perspective(img, begin, end, self.interpolation, self.fill)


class ElasticTransform(Module):
    """Pixels moved by smooth random displacements: `alpha` is how far, `sigma` how smooth, for x
    and y (Simard et al. 2003)."""

    def __init__(self, alpha: Any = 50.0, sigma: Any = 5.0, interpolation: Any = _BILINEAR,
                 fill: Any = 0) -> None:
        super().__init__()
        self.alpha, self.sigma = ([float(v)] * 2 if isinstance(v, (int, float)) else
                                  [float(n) for n in v] * (2 // len(v)) for v in (alpha, sigma))
        self.interpolation = interpolation
        self.fill = [float(v) for v in (fill if isinstance(fill, Sequence) else [fill])]

    @staticmethod
    def get_params(alpha: Sequence[float], sigma: Sequence[float], size: Sequence[int]) -> Tensor:
        """Displacements (1, height, width, 2) of x and y."""
        parts = []
        for far, smooth, n in zip(alpha, sigma, size[::-1], strict=True):
            moved = rand(1, 1, *size) * 2 - 1
            if smooth > 0.0:
                reach = int(8 * smooth + 1)
                moved = F.gaussian_blur(moved, [reach + 1 - reach % 2] * 2, [smooth] * 2)
            parts.append(moved * far / n)
        return cat(parts, 1).permute(0, 2, 3, 1)

    def forward(self, tensor: Any) -> Any:
        moved = self.get_params(self.alpha, self.sigma, size_of(tensor))
        return F.elastic_transform(tensor, moved, self.interpolation, self.fill)

    def __repr__(self) -> str:
        return (f"ElasticTransform(alpha={self.alpha}, sigma={self.sigma}, "
                f"interpolation={self.interpolation}, fill={self.fill})")


class FiveCrop(Module):
    """See `functional.five_crop`."""

    def __init__(self, size: Any) -> None:
        super().__init__()
        self.size = pair(size)

    def forward(self, img: Any) -> tuple[Any, ...]:
        return F.five_crop(img, self.size)

    def __repr__(self) -> str:
        return f"FiveCrop(size={self.size})"


class TenCrop(Module):
    """See `functional.ten_crop`."""

    def __init__(self, size: Any, vertical_flip: bool = False) -> None:
        super().__init__()
        self.size, self.vertical_flip = pair(size), vertical_flip

    def forward(self, img: Any) -> tuple[Any, ...]:
        return F.ten_crop(img, self.size, self.vertical_flip)

    def __repr__(self) -> str:
        return f"TenCrop(size={self.size}, vertical_flip={self.vertical_flip})"


class GaussianBlur(Module):
    """Blurred by a normal curve of a width drawn from `sigma`; see `functional.gaussian_blur`."""

    def __init__(self, kernel_size: Any, sigma: Any = (0.1, 2.0)) -> None:
        super().__init__()
        self.kernel_size = pair(kernel_size)
        if any(k <= 0 or k % 2 == 0 for k in self.kernel_size):
            raise ArgumentError("Kernel size value should be an odd and positive number.")
        if isinstance(sigma, (int, float)):
            if sigma <= 0:
                raise ArgumentError("If sigma is a single number, it must be positive.")
            sigma = (sigma, sigma)
        elif not 0.0 < sigma[0] <= sigma[1]:
            raise ArgumentError("sigma values should be positive and of the form (min, max).")
        self.sigma = sigma

    @staticmethod
    def get_params(sigma_min: float, sigma_max: float) -> float:
        """A width."""
        return uniform(sigma_min, sigma_max)

    def forward(self, img: Any) -> Any:
        sigma = self.get_params(self.sigma[0], self.sigma[1])
        return F.gaussian_blur(img, self.kernel_size, [sigma, sigma])

    def __repr__(self) -> str:
        return f"GaussianBlur(kernel_size={self.kernel_size}, sigma={self.sigma})"


class RandomInvert(Sometimes):
    """`functional.invert` with probability p."""

    def change(self, img: Any) -> Any:
        return F.invert(img)


class RandomAutocontrast(Sometimes):
    """`functional.autocontrast` with probability p."""

    def change(self, img: Any) -> Any:
        return F.autocontrast(img)


class RandomEqualize(Sometimes):
    """`functional.equalize` with probability p."""

    def change(self, img: Any) -> Any:
        return F.equalize(img)


class RandomPosterize(Sometimes):
    """`functional.posterize` with probability p."""

    def __init__(self, bits: int, p: float = 0.5) -> None:
        super().__init__(p)
        self.bits = bits

    def change(self, img: Any) -> Any:
        return F.posterize(img, self.bits)

    def __repr__(self) -> str:
        return f"RandomPosterize(bits={self.bits},p={self.p})"


class RandomSolarize(Sometimes):
    """`functional.solarize` with probability p."""

    def __init__(self, threshold: float, p: float = 0.5) -> None:
        super().__init__(p)
        self.threshold = threshold

    def change(self, img: Any) -> Any:
        return F.solarize(img, self.threshold)

    def __repr__(self) -> str:
        return f"RandomSolarize(threshold={self.threshold},p={self.p})"


class RandomAdjustSharpness(Sometimes):
    """`functional.adjust_sharpness` with probability p."""

    def __init__(self, sharpness_factor: float, p: float = 0.5) -> None:
        super().__init__(p)
        self.sharpness_factor = sharpness_factor

    def change(self, img: Any) -> Any:
        return F.adjust_sharpness(img, self.sharpness_factor)

    def __repr__(self) -> str:
        return f"RandomAdjustSharpness(sharpness_factor={self.sharpness_factor},p={self.p})"
