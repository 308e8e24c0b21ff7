"""Images turned, sheared, moved, seen from aside and blurred: tensors by `grid_sample` and
convolutions, with torchvision's conventions of where pixels are."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adjoint.core.tensor import Tensor
from adjoint.nn import functional as F
from adjoint.ops.api_join import stack
from adjoint.ops.create import ones, ones_like, tensor
from adjoint.ops.ranges import linspace

Matrix = list[float]                     # six numbers: the two rows of an affine map


def inverse_affine(center: Sequence[float], angle: float, translate: Sequence[float], scale: float,
                   shear: Sequence[float]) -> Matrix:
    """Where a pixel of the result comes from, after scaling, shears and a turn (degrees) about
    `center`, and a translation (pixels).

    >>> inverse_affine((0, 0), 0, (2, 3), 1, (0, 0))
    [1.0, 0.0, -2.0, 0.0, 1.0, -3.0]
    """
    turn, sx, sy = (math.radians(v) for v in (angle, *shear))
    a, c = math.cos(turn - sy) / math.cos(sy), math.sin(turn - sy) / math.cos(sy)
    b, d = -a * math.tan(sx) - math.sin(turn), -c * math.tan(sx) + math.cos(turn)
    back = [[d / scale, -b / scale], [-c / scale, a / scale]]     # a d - b c = 1
    (cx, cy), (tx, ty) = center, translate
    made = [[p, q, p * (-cx - tx) + q * (-cy - ty) + at]
            for (p, q), at in zip(back, (cx, cy), strict=True)]
    return [v + 0.0 for row in made for v in row]


def perspective_coefficients(startpoints: Sequence[Sequence[float]],
                             endpoints: Sequence[Sequence[float]]) -> list[float]:
    """The eight numbers of the map from the four end points back to the start points."""
    rows = []
    for (x, y), (u, v) in zip(endpoints, startpoints, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
    wanted = np.asarray(startpoints, np.float64).reshape(8)
    found = np.linalg.lstsq(np.array(rows, np.float64), wanted, rcond=None)[0]
    return [float(v) for v in found.astype(np.float32)]


def _points(h: int, w: int, x0: float, y0: float) -> Tensor:
    """(h * w, 3): x, y and 1 of each pixel; the first is at (x0, y0)."""
    x, y = (linspace(at, at + n - 1, n) for at, n in ((x0, w), (y0, h)))
    columns, rows = x.expand(h, w), y.unsqueeze(-1).expand(h, w)
    return stack([columns, rows, ones(h, w)], -1).reshape(1, h * w, 3)


def expanded(matrix: Matrix, w: int, h: int) -> tuple[int, int]:
    """(height, width) that hold the whole turned image."""
    half = np.array([w / 2, h / 2], np.float32)
    corners = np.array([[x * half[0], y * half[1], 1] for x in (-1, 1) for y in (-1, 1)])
    at = corners.astype(np.float32) @ np.array(matrix, np.float32).reshape(2, 3).T + half
    low, high = (np.trunc(v / 1e-4) * 1e-4 for v in (at.min(0), at.max(0)))
    wide, tall = np.ceil(high) - np.floor(low)
    return int(tall), int(wide)


def affine(img: Tensor, matrix: Matrix, mode: str, fill: Any,
           size: tuple[int, int] | None = None) -> Tensor:
    """Pixels of the image at the places that `matrix`, about the centre, gives."""
    h, w = img.shape[-2:]
    rows, columns = size or (h, w)
    base = _points(rows, columns, 0.5 - columns * 0.5, 0.5 - rows * 0.5)
    theta = tensor(matrix).reshape(1, 2, 3).transpose(1, 2) / tensor([0.5 * w, 0.5 * h])
    return _sampled(img, base.bmm(theta).reshape(1, rows, columns, 2), mode, fill)


def perspective(img: Tensor, c: Sequence[float], mode: str, fill: Any) -> Tensor:
    """Pixels of the image at the places that the eight coefficients give."""
    h, w = img.shape[-2:]
    base = _points(h, w, 0.5, 0.5)
    top = tensor([[c[0], c[1], c[2]], [c[3], c[4], c[5]]]).unsqueeze(0).transpose(1, 2)
    low = tensor([[c[6], c[7], 1.0], [c[6], c[7], 1.0]]).unsqueeze(0).transpose(1, 2)
    grid = base.bmm(top / tensor([0.5 * w, 0.5 * h])) / base.bmm(low) - 1
    return _sampled(img, grid.reshape(1, h, w, 2), mode, fill)


def displaced(img: Tensor, displacement: Tensor, mode: str, fill: Any) -> Tensor:
    """Pixels moved by `displacement` (1, height, width, 2), in halves of the image."""
    h, w = img.shape[-2:]
    x, y = (linspace((1 - n) / n, (n - 1) / n, n) for n in (w, h))
    grid = stack([x.expand(h, w), y.unsqueeze(-1).expand(h, w)], -1).unsqueeze(0)
    return _sampled(img, grid + displacement, mode, fill)


def _floats(img: Tensor, work: Callable[[Tensor], Tensor]) -> Tensor:
    """`work` on (N, C, H, W) floats; whole numbers are rounded afterwards."""
    batch = img.reshape(-1, *img.shape[-3:])
    whole = not img.is_floating_point()
    out = work(batch.float() if whole else batch)
    out = out.reshape(*img.shape[:-3], *out.shape[-3:])
    return out.round().to(img.dtype) if whole else out


def _sampled(img: Tensor, grid: Tensor, mode: str, fill: Any) -> Tensor:
    """`fill`: a number, one per channel, or None: zeros. It is mixed in where a place lies partly
    outside."""
    def work(x: Tensor) -> Tensor:
        places = grid.to(x.dtype).expand(len(x), *grid.shape[1:])
        options: Any = {"mode": mode, "padding_mode": "zeros", "align_corners": False}
        out = F.grid_sample(x, places, **options)
        if fill is None:
            return out
        inside = F.grid_sample(ones_like(x[:, :1]), places, **options).expand_as(out)
        values = tensor(fill, dtype=x.dtype).reshape(1, -1, 1, 1).expand_as(out)
        if mode == "nearest":
            return out.where(inside >= 0.5, values)
        return out * inside + (1.0 - inside) * values
    return _floats(img, work)


def _bell(size: int, sigma: float) -> Tensor:
    x = linspace(-(size - 1) * 0.5, (size - 1) * 0.5, size)
    values = (-0.5 * (x / sigma).pow(2)).exp()
    return values / values.sum()


def gaussian_blur(img: Tensor, kernel_size: Sequence[int], sigma: Sequence[float]) -> Tensor:
    """Weighted means of neighbours; beyond the border the image is mirrored."""
    kx, ky = kernel_size
    kernel = _bell(ky, sigma[1]).unsqueeze(-1) * _bell(kx, sigma[0])

    def work(x: Tensor) -> Tensor:
        around = F.pad(x, [kx // 2, kx // 2, ky // 2, ky // 2], mode="reflect")
        weight = kernel.to(x.dtype).expand(x.shape[1], 1, ky, kx)
        return F.conv2d(around, weight, groups=x.shape[1])
    return _floats(img, work)


def softened(img: Tensor) -> Tensor:
    """Means of 3 x 3 pixels, the middle one with weight 5; the border as it is."""
    kernel = ones(3, 3)
    kernel[1, 1] = 5.0

    def work(x: Tensor) -> Tensor:
        weight = (kernel / kernel.sum()).to(x.dtype).expand(x.shape[1], 1, 3, 3)
        return F.conv2d(x, weight, groups=x.shape[1])
    out = img.clone()
    out[..., 1:-1, 1:-1] = _floats(img, work)
    return out
