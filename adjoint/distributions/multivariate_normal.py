"""The multivariate normal distribution."""
from __future__ import annotations

from typing import Any

from adjoint.base.errors import ArgumentError
from adjoint.distributions import constraints
from adjoint.distributions._covariance import CONSTRAINTS, ByCovariance, the_given
from adjoint.distributions._ops import F
from adjoint.distributions.distribution import Distribution as Distribution
from adjoint.distributions.utils import HALF_LOG_2PI


class MultivariateNormal(ByCovariance):
    """Normal vectors with mean `loc` (..., n) and one of: `covariance_matrix`, `precision_matrix`,
    `scale_tril` (the lower Cholesky factor, the fastest), each (..., n, n).

    >>> import adjoint as ad
    >>> ad.distributions.MultivariateNormal(ad.zeros(2), ad.eye(2)).log_prob(ad.zeros(2))
    tensor(-1.8379)
    """

    arg_constraints = {"loc": constraints.real_vector, **CONSTRAINTS}
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc: Any, covariance_matrix: Any = None, precision_matrix: Any = None,
                 scale_tril: Any = None, validate_args: bool | None = None) -> None:
        if loc.dim() < 1:
            raise ArgumentError("loc must be at least one-dimensional.")
        name, matrix = the_given(covariance_matrix, precision_matrix, scale_tril)
        n = loc.shape[-1]
        if tuple(matrix.shape[-2:]) != (n, n):
            raise ArgumentError(f"{name} must be (..., {n}, {n}) for a loc of {n} elements, got "
                                f"{tuple(matrix.shape)}")
        batch = F.broadcast_shapes(tuple(matrix.shape[:-2]), tuple(loc.shape[:-1]))
        self.loc = loc.expand((*batch, n))
        self._start(name, matrix, batch, (n,), validate_args)

    _square = property(lambda self: (*self._event_shape, *self._event_shape))
    mean = mode = property(lambda self: self.loc)

    @property
    def variance(self) -> Any:
        square = self._unbroadcasted_scale_tril.square().sum(-1)
        return square.expand((*self._batch_shape, *self._event_shape))

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        noise = F.randn(shape, dtype=self.loc.dtype)
        return self.loc + (self._unbroadcasted_scale_tril @ noise.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        gap = value - self.loc
        root = self._unbroadcasted_scale_tril
        z = F.solve_triangular(root.expand((*gap.shape[:-1], *self._square)),
                                      gap.unsqueeze(-1), upper=False).squeeze(-1)
        return -z.square().sum(-1) / 2 - self._half_log_det() - (
            self._event_shape[0] * HALF_LOG_2PI)

    def entropy(self) -> Any:
        found = self._event_shape[0] * (0.5 + HALF_LOG_2PI) + self._half_log_det()
        return found.expand(self._batch_shape)


__all__ = ["MultivariateNormal"]
