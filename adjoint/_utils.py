"""`torch._utils`: lists of tensors as one vector and back, as code that sends gradients does it."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from adjoint.base.errors import missing as _missing
from adjoint.core.tensor import Tensor
from adjoint.ops.api_join import cat


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """All elements of tensors of one dtype in one vector.

    >>> import adjoint as ad
    >>> _flatten_dense_tensors([ad.ones(2, 1), ad.zeros(1)])
    tensor([1., 1., 0.])
    """
    return cat([t.reshape(-1) for t in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Any, ...]:
    """Views of the vector with the shapes of `tensors`."""
    parts = flat.split([t.numel() for t in tensors])
    return tuple(part.view(t.shape) for part, t in zip(parts, tensors, strict=True))


def _take_tensors(tensors: Sequence[Tensor], size_limit: int) -> Iterator[list[Tensor]]:
    """Lists of tensors of one dtype, closed before they would exceed `size_limit` bytes."""
    waiting: dict[Any, tuple[list[Tensor], int]] = {}
    for t in tensors:
        have, size = waiting.get(t.dtype, ([], 0))
        more = t.numel() * t.element_size()
        if have and size + more > size_limit:
            yield have
            have, size = [], 0
        waiting[t.dtype] = ([*have, t], size + more)
    for have, _ in waiting.values():
        yield have


__all__ = ["_flatten_dense_tensors", "_take_tensors", "_unflatten_dense_tensors"]
__getattr__ = _missing("adjoint._utils")
