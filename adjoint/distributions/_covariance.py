"""Distributions that are given by one of a covariance, its inverse, and its Cholesky factor."""
from __future__ import annotations

from typing import Any

from adjoint.base.errors import ArgumentError, AssertedError
from adjoint.distributions import constraints
from adjoint.distributions._ops import F
from adjoint.distributions.distribution import Distribution
from adjoint.distributions.utils import lazy_property

CONSTRAINTS = {"covariance_matrix": constraints.positive_definite,
               "precision_matrix": constraints.positive_definite,
               "scale_tril": constraints.lower_cholesky}


def the_given(covariance_matrix: Any, precision_matrix: Any, scale_tril: Any) -> tuple[str, Any]:
    """The name and the value of the one matrix that is not None."""
    given = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix,
             "scale_tril": scale_tril}
    found = [(name, matrix) for name, matrix in given.items() if matrix is not None]
    if len(found) != 1:
        raise AssertedError("Exactly one of covariance_matrix or precision_matrix or "
                            "scale_tril may be specified.")
    name, matrix = found[0]
    if matrix.dim() < 2:
        raise ArgumentError(f"{name} must be at least two-dimensional, with optional leading "
                            f"batch dimensions, got {tuple(matrix.shape)}")
    return name, matrix


class ByCovariance(Distribution):
    """Keeps the given matrix and its lower Cholesky factor; the other two matrices are computed
    when they are asked for."""

    def _start(self, name: str, matrix: Any, batch: Any, event: Any, validate: bool | None) -> None:
        """`Distribution.__init__`, with the matrix, which it checks, under its name."""
        setattr(self, name, matrix.expand((*batch, *matrix.shape[-2:])))
        super().__init__(batch, event, validate_args=validate)
        self._unbroadcasted_scale_tril = _root(name, matrix)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._new(_instance)
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril
        return super().expand(batch_shape, new)

    def _in_batch(self, matrix: Any) -> Any:
        return matrix.expand((*self._batch_shape, *matrix.shape[-2:]))

    @lazy_property
    def scale_tril(self) -> Any:
        """The lower Cholesky factor of the covariance."""
        return self._in_batch(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The covariance."""
        root = self._unbroadcasted_scale_tril
        return self._in_batch(root @ root.mT)

    @lazy_property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance."""
        return self._in_batch(F.cholesky_inverse(self._unbroadcasted_scale_tril))

    def _half_log_det(self) -> Any:
        return self._unbroadcasted_scale_tril.diagonal(0, -2, -1).log().sum(-1)


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
