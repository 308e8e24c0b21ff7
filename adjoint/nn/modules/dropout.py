"""The dropout family: random zeros in training, the identity in evaluation."""
from __future__ import annotations

import adjoint.nn.functional as F
from adjoint.core.tensor import Tensor
from adjoint.nn.modules._check import probability
from adjoint.nn.modules.module import Module

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d",
           "FeatureAlphaDropout"]


class _DropoutNd(Module):
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        self.p = probability(type(self).__name__, p)
        self.inplace = inplace

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """Zeroes each element with probability ``p`` and scales the others by 1 / (1 - p)
    (Hinton et al. 2012).

    >>> import adjoint as ad
    >>> ad.nn.Dropout(0.5).eval()(ad.ones(2)).tolist()
    [1.0, 1.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_DropoutNd):
    """Zeroes whole channels of (N, C, L) or (C, L) (Tompson et al. 2014).

    >>> import adjoint as ad
    >>> ad.nn.Dropout1d().eval()(ad.ones(1, 2)).tolist()
    [[1.0, 1.0]]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_DropoutNd):
    """Zeroes whole channels of (N, C, H, W) or (N, C, L) (Tompson et al. 2014).

    >>> import adjoint as ad
    >>> tuple(ad.nn.Dropout2d()(ad.ones(1, 3, 2, 2)).shape)
    (1, 3, 2, 2)
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_DropoutNd):
    """Zeroes whole channels of (N, C, D, H, W) or (C, D, H, W) (Tompson et al. 2014).

    >>> import adjoint as ad
    >>> tuple(ad.nn.Dropout3d()(ad.ones(1, 3, 2, 2, 2)).shape)
    (1, 3, 2, 2, 2)
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_DropoutNd):
    """Dropout that keeps mean and variance of standardized input (Klambauer et al. 2017).

    >>> import adjoint as ad
    >>> ad.nn.AlphaDropout().eval()(ad.ones(2)).tolist()
    [1.0, 1.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(_DropoutNd):
    """AlphaDropout of whole channels (axis 1).

    >>> import adjoint as ad
    >>> ad.nn.FeatureAlphaDropout().eval()(ad.ones(1, 2)).tolist()
    [[1.0, 1.0]]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.feature_alpha_dropout(input, self.p, self.training)
