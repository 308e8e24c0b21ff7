"""Layer, group, RMS and local response normalization."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import adjoint.nn.functional as F
from adjoint.base.errors import ArgumentError, ShapeError
from adjoint.core.tensor import Tensor
from adjoint.nn import init
from adjoint.nn.modules._check import empty_parameter, positive, tensor_input
from adjoint.nn.modules.module import Module

__all__ = ["CrossMapLRN2d", "GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]


def _trailing(layer: Module, x: Tensor, shape: tuple[int, ...]) -> None:
    """ShapeError unless the last axes of ``x`` are ``shape``."""
    try:
        fits = x.array.shape[-len(shape):] == shape
    except AttributeError:
        tensor_input(layer, x)
        raise
    if not fits:
        raise ShapeError(
            f"{layer._get_name()}: Given normalized_shape={list(shape)}, expected input with "
            f"shape [*, {', '.join(map(str, shape))}], but got input of size{list(x.shape)}: "
            "make the normalized shape that of the input's last axes")


def _shape(layer: str, normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    shape = ((normalized_shape,) if isinstance(normalized_shape, int)
             else tuple(normalized_shape))
    if not shape:
        raise ArgumentError(f"{layer}: normalized_shape must have at least one axis, got ()")
    positive(layer, zero_ok=True, **{f"normalized_shape[{i}]": n for i, n in enumerate(shape)})
    return shape


class LayerNorm(Module):
    """``(x - mean) / sqrt(var + eps) * weight + bias`` over the last axes (Ba et al. 2016).

    ``normalized_shape`` (an int or a sequence) is the shape of the axes that are averaged over;
    the variance is the biased one. ``weight`` starts at 1, ``bias`` at 0. Raises ShapeError if
    the input does not end in that shape.

    >>> import adjoint as ad
    >>> ad.nn.LayerNorm(2)(ad.tensor([[1.0, 3.0]])).round(decimals=3).tolist()
    [[-1.0, 1.0]]
    """

    normalized_shape: tuple[int, ...]
    eps: float
    elementwise_affine: bool

    def __init__(self, normalized_shape: int | Sequence[int], eps: float = 1e-5,
                 elementwise_affine: bool = True, bias: bool = True, device: Any = None,
                 dtype: Any = None) -> None:
        shape = _shape("LayerNorm", normalized_shape)
        super().__init__()
        self.normalized_shape = shape
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        for name, wanted in (("weight", True), ("bias", bias)):
            self.register_parameter(name, empty_parameter(shape, device, dtype)
                                    if elementwise_affine and wanted else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set weight to 1 and bias to 0."""
        if self.elementwise_affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        _trailing(self, input, self.normalized_shape)
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (f"{self.normalized_shape}, eps={self.eps}, "
                f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}")


class RMSNorm(Module):
    """``x / sqrt(mean(x^2) + eps) * weight`` over the last axes (Zhang and Sennrich 2019).

    ``eps=None`` uses the machine epsilon of the input's dtype.

    >>> import adjoint as ad
    >>> ad.nn.RMSNorm(2)(ad.tensor([[3.0, 3.0]])).round(decimals=3).tolist()
    [[1.0, 1.0]]
    """

    normalized_shape: tuple[int, ...]

    def __init__(self, normalized_shape: int | Sequence[int], eps: float | None = None,
                 elementwise_affine: bool = True, device: Any = None, dtype: Any = None) -> None:
        shape = _shape("RMSNorm", normalized_shape)
        super().__init__()
        self.normalized_shape = shape
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.register_parameter("weight", empty_parameter(shape, device, dtype)
                                if elementwise_affine else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set weight to 1."""
        if self.elementwise_affine:
            init.ones_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        _trailing(self, input, self.normalized_shape)
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return (f"{self.normalized_shape}, eps={self.eps}, "
                f"elementwise_affine={self.elementwise_affine}")


class GroupNorm(Module):
    """Normalizes (N, C, *) over groups of C / num_groups channels (Wu and He 2018).

    Raises ArgumentError if num_channels is not divisible by num_groups, ShapeError if the
    input's axis 1 is not num_channels.

    >>> import adjoint as ad
    >>> tuple(ad.nn.GroupNorm(3, 6)(ad.zeros(20, 6, 10)).shape)
    (20, 6, 10)
    """

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True,
                 device: Any = None, dtype: Any = None, *, bias: bool = True) -> None:
        positive("GroupNorm", num_groups=num_groups)
        positive("GroupNorm", zero_ok=True, num_channels=num_channels)
        if num_channels % num_groups:
            raise ArgumentError(f"num_channels ({num_channels}) must be divisible by num_groups "
                                f"({num_groups})")
        super().__init__()
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        for name, wanted in (("weight", True), ("bias", bias)):
            self.register_parameter(name, empty_parameter((num_channels,), device, dtype)
                                    if affine and wanted else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set weight to 1 and bias to 0."""
        if self.affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        tensor_input(self, input)
        if input.ndim < 2 or self.affine and input.shape[1] != self.num_channels:
            raise ShapeError(f"GroupNorm: expected input (N, C, *) with C = {self.num_channels} "
                             f"channels in axis 1, got shape {tuple(input.shape)}")
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
                f"bias={self.bias is not None}")


class LocalResponseNorm(Module):
    """``x / (k + alpha mean(x^2 over size neighbouring channels))^beta`` (Krizhevsky et al. 2012).

    >>> import adjoint as ad
    >>> tuple(ad.nn.LocalResponseNorm(2)(ad.zeros(1, 4, 3)).shape)
    (1, 4, 3)
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        positive(type(self).__name__, size=size)
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(LocalResponseNorm):
    """`LocalResponseNorm` of pictures (N, C, H, W), under its older name and defaults.

    The neighbours are those of `LocalResponseNorm`, `size` of them. PyTorch's leaves channel 0 in
    every later sum, and does not go backward where `size` is even.
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__(size, alpha, beta, k)

    def forward(self, input: Tensor) -> Tensor:
        tensor_input(self, input)
        if input.ndim != 4:
            raise ShapeError("CrossMapLRN2d: Expected input to be 4D, got "
                             f"{input.ndim}D instead.")
        return super().forward(input)
