"""A multivariate normal distribution whose covariance is diagonal plus low rank."""
from __future__ import annotations

from typing import Any

from adjoint.base.errors import ArgumentError
from adjoint.distributions import constraints
from adjoint.distributions._ops import F
from adjoint.distributions.distribution import Distribution
from adjoint.distributions.utils import HALF_LOG_2PI, lazy_property


class LowRankMultivariateNormal(Distribution):
    """Covariance cov_factor·cov_factorᵀ + diag(cov_diag), cov_factor (..., n, rank).

    Solved by Woodbury's identity and the matrix determinant lemma: rank³ work in place of n³.
    """

    arg_constraints = {"loc": constraints.real_vector,
                       "cov_factor": constraints.independent(constraints.real, 2),
                       "cov_diag": constraints.independent(constraints.positive, 1)}
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc: Any, cov_factor: Any, cov_diag: Any,
                 validate_args: bool | None = None) -> None:
        if loc.dim() < 1:
            raise ArgumentError("loc must be at least one-dimensional.")
        n = loc.shape[-1]
        if cov_factor.dim() < 2 or cov_factor.shape[-2] != n:
            raise ArgumentError(f"cov_factor must be a batch of matrices with shape {n} x m, got "
                                f"{tuple(cov_factor.shape)}")
        if cov_diag.dim() < 1 or cov_diag.shape[-1] != n:
            raise ArgumentError(f"cov_diag must be a batch of vectors with shape ({n},), got "
                                f"{tuple(cov_diag.shape)}")
        batch = F.broadcast_shapes(tuple(loc.shape[:-1]), tuple(cov_factor.shape[:-2]),
                                   tuple(cov_diag.shape[:-1]))
        self.loc, self.cov_diag = loc.expand((*batch, n)), cov_diag.expand((*batch, n))
        self.cov_factor = cov_factor.expand((*batch, *cov_factor.shape[-2:]))
        super().__init__(batch, (n,), validate_args=validate_args)

    mean = mode = property(lambda self: self.loc)
    variance = property(lambda self: self.cov_factor.square().sum(-1) + self.cov_diag)

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The covariance, written out."""
        return self.cov_factor @ self.cov_factor.mT + F.diag_embed(self.cov_diag)

    @lazy_property
    def scale_tril(self) -> Any:
        """The lower Cholesky factor of the covariance."""
        return F.cholesky(self.covariance_matrix)

    @lazy_property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance."""
        return F.cholesky_inverse(self.scale_tril)

    @lazy_property
    def _capacitance(self) -> Any:
        scaled = self.cov_factor.mT / self.cov_diag.unsqueeze(-2)
        rank = self.cov_factor.shape[-1]
        return F.cholesky(scaled @ self.cov_factor + F.eye(rank, dtype=self.loc.dtype))

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        low = F.randn((*shape[:-1], self.cov_factor.shape[-1]), dtype=self.loc.dtype)
        own = F.randn(shape, dtype=self.loc.dtype)
        wide = (self.cov_factor @ low.unsqueeze(-1)).squeeze(-1)
        return self.loc + wide + self.cov_diag.sqrt() * own

    def _log_det(self) -> Any:
        return (2 * self._capacitance.diagonal(0, -2, -1).log().sum(-1)
                + self.cov_diag.log().sum(-1))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        gap = value - self.loc
        inner = self.cov_factor.mT @ (gap / self.cov_diag).unsqueeze(-1)
        root = self._capacitance
        z = F.solve_triangular(root.expand((*inner.shape[:-2], *root.shape[-2:])), inner,
                                      upper=False).squeeze(-1)
        distance = (gap.square() / self.cov_diag).sum(-1) - z.square().sum(-1)
        return -0.5 * (distance + self._log_det()) - self._event_shape[0] * HALF_LOG_2PI

    def entropy(self) -> Any:
        return (self._event_shape[0] * (0.5 + HALF_LOG_2PI) + 0.5 * self._log_det()).expand(
            self._batch_shape)


__all__ = ["LowRankMultivariateNormal"]
