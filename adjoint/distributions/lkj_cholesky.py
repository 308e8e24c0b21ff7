"""The LKJ distribution of Cholesky factors of correlation matrices."""
from __future__ import annotations

import math
from typing import Any

from adjoint.base.dtypes import finfo
from adjoint.base.errors import ArgumentError
from adjoint.distributions import constraints
from adjoint.distributions._ops import F
from adjoint.distributions.beta import Beta
from adjoint.distributions.distribution import Distribution
from adjoint.distributions.utils import broadcast_all


class LKJCholesky(Distribution):
    """Lower Cholesky factors L (dim, dim) of correlation matrices, density ∝ det(L·Lᵀ)^(η - 1) on
    the matrices: uniform for concentration η = 1, near the identity for large η.

    Lewandowski, Kurowicka and Joe, "Generating random correlation matrices based on vines and
    extended onion method" (2009); draws by the onion method. Raises ArgumentError for dim < 2.

    >>> import adjoint as ad
    >>> L = ad.distributions.LKJCholesky(3, 1.0).sample()
    >>> ad.allclose((L @ L.mT).diagonal(), ad.ones(3))
    True
    """

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(self, dim: int, concentration: Any = 1.0,
                 validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ArgumentError("Expected dim to be an integer greater than or equal to 2. Found "
                                f"dim={dim}.")
        self.dim = dim
        self.concentration, = broadcast_all(concentration)
        super().__init__(tuple(self.concentration.shape), (dim, dim), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._new(_instance)
        new.dim, new.concentration = self.dim, self.concentration.expand(batch_shape)
        return super().expand(batch_shape, new)

    def sample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        dtype = self.concentration.dtype
        before = F.cat([F.zeros(1, dtype=dtype), F.arange(self.dim - 1, dtype=dtype)])
        rest = self.concentration.detach().unsqueeze(-1) + 0.5 * (self.dim - 2) - 0.5 * before
        radius = Beta((0.5 * (before + 1)).expand(rest.shape), rest).sample(sample_shape)
        direction = F.randn(shape, dtype=dtype).tril(-1)
        length = direction.square().sum(-1, keepdim=True).sqrt()
        unit = F.where(length > 0, direction / F.where(length > 0, length, 1.0), 0.0)
        below = radius.unsqueeze(-1).sqrt() * unit
        on = (1 - below.square().sum(-1)).clamp(min=finfo(dtype).tiny).sqrt()
        return below + F.diag_embed(on)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        n, eta = self.dim, self.concentration
        diagonal = value.diagonal(0, -2, -1)[..., 1:]
        power = 2 * (eta - 1).unsqueeze(-1) + n - F.arange(2, n + 1, dtype=eta.dtype)
        alpha = eta + 0.5 * (n - 1)
        norm = (0.5 * (n - 1) * math.log(math.pi) + F.mvlgamma(alpha - 0.5, n - 1)
                - alpha.lgamma() * (n - 1))
        return (power * diagonal.log()).sum(-1) - norm


__all__ = ["LKJCholesky"]
