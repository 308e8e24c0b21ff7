"""Flatten and Unflatten."""
from __future__ import annotations

import math
from collections.abc import Sequence

from adjoint.base.errors import ArgumentError, IndexOutOfRange, ShapeError
from adjoint.core.tensor import Tensor
from adjoint.nn.modules._check import tensor_input
from adjoint.nn.modules.module import Module

__all__ = ["Flatten", "Unflatten"]


class Flatten(Module):
    """Joins the axes from ``start_dim`` to ``end_dim`` into one.

    >>> import adjoint as ad
    >>> tuple(ad.nn.Flatten()(ad.zeros(2, 3, 4)).shape)
    (2, 12)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        tensor_input(self, input)
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Splits axis ``dim`` into axes of sizes ``unflattened_size``, one of which may be -1.

    >>> import adjoint as ad
    >>> tuple(ad.nn.Unflatten(1, (2, 3))(ad.zeros(4, 6)).shape)
    (4, 2, 3)
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        if not isinstance(dim, int):
            raise TypeError("Unflatten: dim must be an integer (named axes are not offered), got "
                            f"{dim!r}")
        if not isinstance(unflattened_size, (tuple, list)):
            raise TypeError("unflattened_size must be tuple of ints, but found type "
                            + type(unflattened_size).__name__)
        for i, n in enumerate(unflattened_size):
            if not isinstance(n, int):
                raise TypeError("unflattened_size must be tuple of ints, but found element of "
                                f"type {type(n).__name__} at pos {i}")
        if sum(n == -1 for n in unflattened_size) > 1:
            raise ArgumentError(f"Unflatten: only one size can be -1, got {unflattened_size}")
        self.dim = dim
        self.unflattened_size = unflattened_size

    def forward(self, input: Tensor) -> Tensor:
        tensor_input(self, input)
        if not -input.ndim <= self.dim < input.ndim:
            raise IndexOutOfRange(f"Dimension out of range (expected to be in range of "
                                  f"[{-input.ndim}, {input.ndim - 1}], but got {self.dim}): "
                                  f"Unflatten of an input of shape {tuple(input.shape)}")
        size, parts = input.shape[self.dim], tuple(self.unflattened_size)
        known = math.prod(n for n in parts if n != -1)
        if (known != size) if -1 not in parts else (known == 0 or size % known):
            raise ShapeError(f"unflatten: Provided sizes {list(parts)} don't multiply up to the "
                             f"size of dim {self.dim} ({size}) in the input tensor of shape "
                             f"{tuple(input.shape)}")
        return input.unflatten(self.dim, parts)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
