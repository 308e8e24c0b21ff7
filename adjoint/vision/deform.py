"""Convolution whose kernel looks at places that the program gives (Dai et al. 2017; with a mask,
Zhu et al. 2018), under torchvision's names."""
from __future__ import annotations

import math
from typing import Any

import adjoint as ad
from adjoint.base.errors import ShapeError
from adjoint.core.tensor import Tensor
from adjoint.nn import Module, Parameter, init


def _two(x: Any) -> tuple[int, int]:
    return (x, x) if isinstance(x, int) else (x[0], x[1])


def _between(image: Tensor, y: Tensor, x: Tensor) -> Any:
    """Values (B, C, P) of images (B, C, H, W) at positions (B, P), linear between the pixels that
    are there; the others are 0."""
    high, wide = image.shape[2:]
    flat, top, left = image.flatten(2), y.detach().floor(), x.detach().floor()
    out: Any = 0
    for row, part in ((top, top + 1 - y), (top + 1, y - top)):
        for column, share in ((left, left + 1 - x), (left + 1, x - left)):
            inside = (row >= 0) & (row < high) & (column >= 0) & (column < wide)
            at = (row.clamp(0, high - 1) * wide + column.clamp(0, wide - 1)).long()
            found = flat.gather(2, at[:, None].expand(-1, flat.shape[1], -1))
            out = out + found * (part * share * inside)[:, None]
    return out


def _places(offset: Tensor, groups: int, kernel: tuple[int, int], stride: tuple[int, int],
            padding: tuple[int, int], dilation: tuple[int, int]) -> list[Any]:
    """Rows and columns (N * groups, taps * outputs) that the taps of a kernel look at."""
    n, high, wide = offset.shape[0], offset.shape[2], offset.shape[3]
    moved = offset.reshape(n * groups, kernel[0] * kernel[1], 2, high, wide)
    out = []
    for axis, shape in enumerate(((-1, 1, high, 1), (1, -1, 1, wide))):
        taps = ad.arange(kernel[axis], dtype=offset.dtype) * dilation[axis] - padding[axis]
        taps = taps.reshape(shape[0], shape[1], 1, 1).expand(*kernel, 1, 1)
        starts = ad.arange(offset.shape[2 + axis], dtype=offset.dtype) * stride[axis]
        starts = starts.reshape((1, high, 1) if axis == 0 else (1, 1, wide))
        out.append((moved[:, :, axis] + (taps.reshape(-1, 1, 1) + starts)).flatten(1))
    return out


def deform_conv2d(input: Tensor, offset: Tensor, weight: Tensor, bias: Tensor | None = None,
                  stride: Any = 1, padding: Any = 0, dilation: Any = 1, mask: Tensor | None = None
                  ) -> Any:
    """The convolution of input (N, C, H, W) with weight (O, C / groups, kh, kw), each tap of which
    is moved by `offset` (N, 2 * g * kh * kw, H', W'): a row and a column per tap, for g groups of
    channels. `mask` (N, g * kh * kw, H', W') scales the taps. Outside of the image is 0.

    Differentiable in all tensors. Raises ShapeError where offset or mask do not fit.

    >>> x, w = ad.ones(1, 2, 4, 4), ad.ones(3, 2, 3, 3)
    >>> deform_conv2d(x, ad.zeros(1, 18, 2, 2), w)[0, 0]
    tensor([[18., 18.],
            [18., 18.]])
    """
    kernel, stride, padding, dilation = weight.shape[2:], *map(_two, (stride, padding, dilation))
    taps, n, channels = kernel[0] * kernel[1], input.shape[0], input.shape[1]
    high, wide = ((input.shape[2 + i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1)
                  // stride[i] + 1 for i in range(2))
    parts, places = offset.shape[1] // (2 * taps), high * wide
    groups = channels // weight.shape[1] if weight.shape[1] else 0
    if not parts or offset.shape != (n, 2 * parts * taps, high, wide) or channels % parts:
        raise ShapeError(f"deform_conv2d: offset has shape {list(offset.shape)}; for input "
                         f"{list(input.shape)} and weight {list(weight.shape)} it is [{n}, "
                         f"{2 * taps} per group of channels, {high}, {wide}]")
    if mask is not None and mask.shape != (n, parts * taps, high, wide):
        raise ShapeError(f"deform_conv2d: mask has shape {list(mask.shape)}, needs "
                         f"{[n, parts * taps, high, wide]}: one factor for each two offsets")
    if not groups or groups * weight.shape[1] != channels or weight.shape[0] % groups:
        raise ShapeError(f"deform_conv2d: weight {list(weight.shape)} does not fit the {channels} "
                         "channels of input: they are a multiple of weight.shape[1], and "
                         "weight.shape[0] one of the groups")
    rows, columns = _places(offset, parts, (kernel[0], kernel[1]), stride, padding, dilation)
    seen = _between(input.reshape(n * parts, channels // parts, *input.shape[2:]), rows, columns)
    if mask is not None:
        seen = seen * mask.reshape(n * parts, 1, taps * places)
    seen = seen.reshape(n, groups, weight.shape[1] * taps, places)
    out = weight.reshape(groups, -1, weight.shape[1] * taps) @ seen
    out = out.reshape(n, weight.shape[0], high, wide)
    return out if bias is None else out + bias[:, None, None]


class DeformConv2d(Module):
    """`deform_conv2d` with a weight and a bias of its own, begun as `nn.Conv2d` begins them."""

    bias: Any

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1,
                 padding: Any = 0, dilation: Any = 1, groups: int = 1, bias: bool = True) -> None:
        super().__init__()
        if in_channels % groups or out_channels % groups:
            raise ShapeError(f"DeformConv2d: {in_channels} and {out_channels} channels must be "
                             f"multiples of groups={groups}")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride = _two(kernel_size), _two(stride)
        self.padding, self.dilation = _two(padding), _two(dilation)
        self.weight = Parameter(ad.empty(out_channels, in_channels // groups, *self.kernel_size))
        self.bias = Parameter(ad.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias anew."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.weight[0].numel())
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor, offset: Tensor, mask: Tensor | None = None) -> Any:
        return deform_conv2d(input, offset, self.weight, self.bias, self.stride, self.padding,
                             self.dilation, mask)

    def extra_repr(self) -> str:
        told = (("padding", (0, 0)), ("dilation", (1, 1)), ("groups", 1))
        more = [f"{k}={getattr(self, k)}" for k, usual in told if getattr(self, k) != usual]
        return ", ".join([f"{self.in_channels}", f"{self.out_channels}",
                          f"kernel_size={self.kernel_size}", f"stride={self.stride}", *more,
                          *(["bias=False"] if self.bias is None else [])])
