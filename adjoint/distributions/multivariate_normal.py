"""The multivariate normal distribution."""
from __future__ import annotations

from typing import Any

from adjoint.base.errors import ArgumentError
from adjoint.distributions import constraints
from adjoint.distributions._ops import F
from adjoint.distributions.distribution import Distribution
from adjoint.distributions.utils import HALF_LOG_2PI, lazy_property


class MultivariateNormal(Distribution):
    """Normal vectors with mean `loc` (..., n) and one of: `covariance_matrix`, `precision_matrix`,
    `scale_tril` (the lower Cholesky factor, the fastest), each (..., n, n).

    >>> import adjoint as ad
    >>> ad.distributions.MultivariateNormal(ad.zeros(2), ad.eye(2)).log_prob(ad.zeros(2))
    tensor(-1.8379)
    """

    arg_constraints = {"loc": constraints.real_vector,
                       "covariance_matrix": constraints.positive_definite,
                       "precision_matrix": constraints.positive_definite,
                       "scale_tril": constraints.lower_cholesky}
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc: Any, covariance_matrix: Any = None, precision_matrix: Any = None,
                 scale_tril: Any = None, validate_args: bool | None = None) -> None:
        if loc.dim() < 1:
            raise ArgumentError("loc must be at least one-dimensional.")
        given = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix,
                 "scale_tril": scale_tril}
        given = {k: v for k, v in given.items() if v is not None}
        if len(given) != 1:
            raise ArgumentError("Exactly one of covariance_matrix or precision_matrix or "
                                "scale_tril may be specified.")
        (name, matrix), = given.items()
        if matrix.dim() < 2:
            raise ArgumentError(f"{name} must be at least two-dimensional, with optional leading "
                                "batch dimensions")
        n = loc.shape[-1]
        if tuple(matrix.shape[-2:]) != (n, n):
            raise ArgumentError(f"{name} must be (..., {n}, {n}) for a loc of {n} elements, got "
                                f"{tuple(matrix.shape)}")
        batch = F.broadcast_shapes(tuple(matrix.shape[:-2]), tuple(loc.shape[:-1]))
        setattr(self, name, matrix.expand((*batch, n, n)))
        self.loc = loc.expand((*batch, n))
        super().__init__(batch, (n,), validate_args=validate_args)
        self._unbroadcasted_scale_tril = _root(name, matrix)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._new(_instance)
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril
        return super().expand(batch_shape, new)

    @lazy_property
    def scale_tril(self) -> Any:
        """The lower Cholesky factor of the covariance."""
        return self._unbroadcasted_scale_tril.expand((*self._batch_shape, *self._square))

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The covariance."""
        root = self._unbroadcasted_scale_tril
        return (root @ root.mT).expand((*self._batch_shape, *self._square))

    @lazy_property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance."""
        return F.cholesky_inverse(self._unbroadcasted_scale_tril).expand(
            (*self._batch_shape, *self._square))

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

    def _half_log_det(self) -> Any:
        return self._unbroadcasted_scale_tril.diagonal(0, -2, -1).log().sum(-1)

    def entropy(self) -> Any:
        found = self._event_shape[0] * (0.5 + HALF_LOG_2PI) + self._half_log_det()
        return found.expand(self._batch_shape)


def _root(name: str, matrix: Any) -> Any:
    """The lower Cholesky factor of the covariance that a matrix stands for."""
    if name == "scale_tril":
        return matrix
    if name == "covariance_matrix":
        return F.cholesky(matrix)
    # of an inverse: flip, factor, flip back, and invert the triangle
    turned = F.cholesky(matrix.flip((-2, -1))).flip((-2, -1)).mT
    eye = F.eye(matrix.shape[-1], dtype=matrix.dtype).expand(matrix.shape)
    return F.solve_triangular(turned, eye, upper=False)


__all__ = ["MultivariateNormal"]
