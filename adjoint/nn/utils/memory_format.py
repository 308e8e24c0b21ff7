"""Memory formats have no meaning here: the converters return the module."""
from __future__ import annotations

from typing import Any, TypeVar

M = TypeVar("M")

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]


def convert_conv2d_weight_memory_format(module: M, memory_format: Any) -> M:
    """Returns ``module``: kernels choose their own layout."""
    return module


def convert_conv3d_weight_memory_format(module: M, memory_format: Any) -> M:
    """Returns ``module``: kernels choose their own layout."""
    return module
