"""Distances between vectors: PairwiseDistance, CosineSimilarity."""
from __future__ import annotations

import adjoint.nn.functional as F
from adjoint.core.tensor import Tensor
from adjoint.nn.modules.module import Module

__all__ = ["CosineSimilarity", "PairwiseDistance"]


class PairwiseDistance(Module):
    """``||x1 - x2 + eps||_p`` along the last axis; (N, D) or (D,) each.

    >>> import adjoint as ad
    >>> round(ad.nn.PairwiseDistance()(ad.zeros(1, 2), ad.tensor([[3.0, 4.0]])).item(), 4)
    5.0
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class CosineSimilarity(Module):
    """``x1 . x2 / (max(||x1||, eps) max(||x2||, eps))`` along ``dim``.

    >>> import adjoint as ad
    >>> ad.nn.CosineSimilarity()(ad.tensor([[1.0, 0.0]]), ad.tensor([[2.0, 0.0]])).tolist()
    [1.0]
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)
