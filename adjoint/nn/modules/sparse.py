"""Embedding and EmbeddingBag: rows of a table, looked up by integer index."""
from __future__ import annotations

from typing import Any, Self

import numpy as np

import adjoint.nn.functional as F
from adjoint.base.aval import MetaArray
from adjoint.base.errors import (
    ArgumentError,
    AssertedError,
    DTypeError,
    IndexOutOfRange,
)
from adjoint.core.rehearsal import call
from adjoint.core.tensor import Parameter, Tensor
from adjoint.nn import init
from adjoint.nn._core import no_grad
from adjoint.nn.modules._check import empty_parameter, positive, tensor_input
from adjoint.nn.modules.module import Module

__all__ = ["Embedding", "EmbeddingBag"]


def _row(layer: str, padding_idx: int | None, rows: int) -> int | None:
    """``padding_idx`` counted from the front, or AssertedError."""
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        raise AssertedError(f"{layer}: Padding_idx must be within num_embeddings: got "
                            f"{padding_idx}, the table has {rows} rows")
    return padding_idx % rows


def _check_indices(layer: Any, indices: Any, rows: int) -> None:
    tensor_input(layer, indices)
    array = indices.array
    if array.dtype.kind not in "iu" or array.dtype.itemsize < 4:
        raise DTypeError(f"{layer._get_name()}: Expected tensor for argument #1 'indices' to have "
                         f"one of the following scalar types: Long, Int; but got {indices.dtype}; "
                         "convert with indices.long()")
    if isinstance(array, np.ndarray) and array.size:
        low, high = _span(array)
        if low < 0 or high >= rows:
            raise IndexOutOfRange(f"{layer._get_name()}: index out of range in self: the table has "
                                  f"{rows} rows, so indices must be in [0, {rows - 1}], but got "
                                  f"{int(low if low < 0 else high)}")
    elif type(array) is MetaArray:
        call(_span, array, otherwise=tuple)


def _span(array: Any) -> tuple[Any, Any]:
    return array.min(), array.max()


class Embedding(Module):
    """A table of ``num_embeddings`` rows; indices (*) of integers -> (*, embedding_dim).

    ``padding_idx``: that row starts at zero and gets no gradient. ``max_norm``: rows that are
    looked up are first rescaled in place to at most this ``norm_type`` norm.
    ``scale_grad_by_freq`` divides gradients by how often the index occurs. ``weight`` starts
    from the standard normal distribution. Raises IndexOutOfRange for an index outside of the
    table, DTypeError for indices that are no integers.

    >>> import adjoint as ad
    >>> tuple(ad.nn.Embedding(10, 3)(ad.tensor([[1, 2], [4, 9]])).shape)
    (2, 2, 3)
    """

    num_embeddings: int
    embedding_dim: int
    padding_idx: int | None
    weight: Parameter

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None,
                 max_norm: float | None = None, norm_type: float = 2.0,
                 scale_grad_by_freq: bool = False, sparse: bool = False,
                 _weight: Tensor | None = None, _freeze: bool = False, device: Any = None,
                 dtype: Any = None) -> None:
        positive("Embedding", zero_ok=True, num_embeddings=num_embeddings,
                 embedding_dim=embedding_dim)
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = _row("Embedding", padding_idx, num_embeddings)
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        if _weight is None:
            self.weight = empty_parameter((num_embeddings, embedding_dim), device, dtype,
                                          requires_grad=not _freeze)
            self.reset_parameters()
        else:
            if tuple(_weight.shape) != (num_embeddings, embedding_dim):
                raise AssertedError("Shape of weight does not match num_embeddings and "
                                    f"embedding_dim: {tuple(_weight.shape)} is not "
                                    f"{(num_embeddings, embedding_dim)}")
            self.weight = Parameter(_weight, requires_grad=not _freeze)

    def reset_parameters(self) -> None:
        """Draw the table from the standard normal distribution; the padding row is zero."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].fill_(0)

    def forward(self, input: Tensor) -> Tensor:
        _check_indices(self, input, self.num_embeddings)
        return F.embedding(input, self.weight, self.padding_idx, self.max_norm, self.norm_type,
                           self.scale_grad_by_freq, self.sparse)

    def extra_repr(self) -> str:
        parts = [f"{self.num_embeddings}, {self.embedding_dim}"]
        if self.padding_idx is not None:
            parts.append(f"padding_idx={self.padding_idx}")
        if self.max_norm is not None:
            parts.append(f"max_norm={self.max_norm}")
        if self.norm_type != 2:
            parts.append(f"norm_type={self.norm_type}")
        if self.scale_grad_by_freq is not False:
            parts.append(f"scale_grad_by_freq={self.scale_grad_by_freq}")
        if self.sparse is not False:
            parts.append("sparse=True")
        return ", ".join(parts)

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True,
                        padding_idx: int | None = None, max_norm: float | None = None,
                        norm_type: float = 2.0, scale_grad_by_freq: bool = False,
                        sparse: bool = False) -> Self:
        """A table that shows the matrix ``embeddings``; not trained if ``freeze``.

        >>> import adjoint as ad
        >>> e = ad.nn.Embedding.from_pretrained(ad.tensor([[1.0, 2.0], [3.0, 4.0]]))
        >>> e(ad.tensor([1])).tolist()
        [[3.0, 4.0]]
        """
        rows, cols = _matrix("Embedding", embeddings)
        return cls(rows, cols, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse,
                   _weight=embeddings, _freeze=freeze)


def _matrix(layer: str, embeddings: Tensor) -> tuple[int, int]:
    if embeddings.ndim != 2:
        raise AssertedError(f"{layer}: Embeddings parameter is expected to be 2-dimensional, got "
                            f"shape {tuple(embeddings.shape)}")
    rows, cols = embeddings.shape
    return rows, cols


class EmbeddingBag(Module):
    """Sum, mean or maximum of the rows that a bag of indices names, without keeping the rows.

    ``forward(input, offsets=None, per_sample_weights=None)``: input (B, N) is B bags of N; input
    (N,) with offsets (B,) is bags that begin at the offsets. Returns (B, embedding_dim); an
    empty bag is zeros. ``per_sample_weights`` goes with mode="sum" only. With ``sparse=True`` the
    gradient of the table is a sparse tensor of the rows that were read; not with mode="max".

    >>> import adjoint as ad
    >>> bag = ad.nn.EmbeddingBag(10, 3, mode="sum")
    >>> tuple(bag(ad.tensor([1, 2, 4, 5]), ad.tensor([0, 2])).shape)
    (2, 3)
    """

    weight: Parameter

    def __init__(self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None,
                 norm_type: float = 2.0, scale_grad_by_freq: bool = False, mode: str = "mean",
                 sparse: bool = False, _weight: Tensor | None = None,
                 include_last_offset: bool = False, padding_idx: int | None = None,
                 device: Any = None, dtype: Any = None) -> None:
        positive("EmbeddingBag", zero_ok=True, num_embeddings=num_embeddings,
                 embedding_dim=embedding_dim)
        if mode not in ("sum", "mean", "max"):
            raise ArgumentError(f"EmbeddingBag: mode has to be one of sum, mean or max, got {mode}")
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.padding_idx = _row("EmbeddingBag", padding_idx, num_embeddings)
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset
        if _weight is None:
            self.weight = empty_parameter((num_embeddings, embedding_dim), device, dtype)
            self.reset_parameters()
        else:
            if tuple(_weight.shape) != (num_embeddings, embedding_dim):
                raise AssertedError("Shape of weight does not match num_embeddings and "
                                    f"embedding_dim: {tuple(_weight.shape)} is not "
                                    f"{(num_embeddings, embedding_dim)}")
            self.weight = Parameter(_weight)

    def reset_parameters(self) -> None:
        """Draw the table from the standard normal distribution; the padding row is zero."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].fill_(0)

    def forward(self, input: Tensor, offsets: Tensor | None = None,
                per_sample_weights: Tensor | None = None) -> Tensor:
        _check_indices(self, input, self.num_embeddings)
        return F.embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq,
            self.mode, self.sparse, per_sample_weights, self.include_last_offset,
            self.padding_idx)

    def extra_repr(self) -> str:
        parts = [f"{self.num_embeddings}, {self.embedding_dim}"]
        if self.max_norm is not None:
            parts.append(f"max_norm={self.max_norm}")
        if self.norm_type != 2:
            parts.append(f"norm_type={self.norm_type}")
        if self.scale_grad_by_freq is not False:
            parts.append(f"scale_grad_by_freq={self.scale_grad_by_freq}")
        parts.append(f"mode={self.mode!r}")
        if self.padding_idx is not None:
            parts.append(f"padding_idx={self.padding_idx}")
        return ", ".join(parts)

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True,
                        max_norm: float | None = None, norm_type: float = 2.0,
                        scale_grad_by_freq: bool = False, mode: str = "mean",
                        sparse: bool = False, include_last_offset: bool = False,
                        padding_idx: int | None = None) -> Self:
        """A bag over the matrix ``embeddings``; not trained if ``freeze``."""
        rows, cols = _matrix("EmbeddingBag", embeddings)
        bag = cls(rows, cols, max_norm, norm_type, scale_grad_by_freq, mode, sparse, embeddings,
                  include_last_offset, padding_idx)
        bag.weight.requires_grad = not freeze
        return bag
