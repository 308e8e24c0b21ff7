"""The Wishart distribution."""
from __future__ import annotations

import math
import warnings
from typing import Any

from adjoint.base.dtypes import int64
from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import Tensor
from adjoint.distributions import constraints
from adjoint.distributions._covariance import CONSTRAINTS, ByCovariance, the_given
from adjoint.distributions._ops import F
from adjoint.distributions.chi2 import Chi2
from adjoint.distributions.distribution import ExponentialFamily


class Wishart(ByCovariance, ExponentialFamily):
    """Scatter matrices of `df` normal vectors of n elements: positive definite (..., n, n).

    `df` > n - 1, and one of: `covariance_matrix`, `precision_matrix`, `scale_tril` of the vectors
    (the lower Cholesky factor, the fastest), each (..., n, n). Draws by Bartlett's decomposition.
    Raises ArgumentError where not exactly one is given, or shapes and df do not fit.

    >>> import adjoint as ad
    >>> w = ad.distributions.Wishart(ad.tensor(4.0), covariance_matrix=ad.eye(2))
    >>> w.mean
    tensor([[4., 0.],
            [0., 4.]])
    """

    support = constraints.positive_definite
    has_rsample = True

    def __init__(self, df: Any, covariance_matrix: Any = None, precision_matrix: Any = None,
                 scale_tril: Any = None, validate_args: bool | None = None) -> None:
        name, matrix = the_given(covariance_matrix, precision_matrix, scale_tril)
        if matrix.shape[-1] != matrix.shape[-2]:
            raise ArgumentError(f"{name} must be square, got {tuple(matrix.shape)}")
        n = int(matrix.shape[-1])
        if not isinstance(df, Tensor):
            df = F.tensor(float(df), dtype=matrix.dtype)
        batch = F.broadcast_shapes(tuple(matrix.shape[:-2]), tuple(df.shape))
        self.df = df.expand(batch)
        if constraints.refuted((self.df <= n - 1).logical_not()):
            raise ArgumentError(f"Value of df={df} expected to be greater than ndim - 1 = {n - 1}.")
        self.arg_constraints = {**CONSTRAINTS, "df": constraints.greater_than(n - 1)}
        self._start(name, matrix, batch, (n, n), validate_args)
        if constraints.refuted((self.df < n).logical_not()):
            warnings.warn("Low df values detected. Singular samples are highly likely to occur for "
                          "ndim - 1 < df < ndim.", stacklevel=2)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._new(_instance)
        new.arg_constraints = self.arg_constraints
        new.df = self.df.expand(batch_shape)
        return super().expand(batch_shape, new)

    @property
    def mean(self) -> Any:
        return self.df[..., None, None] * self.covariance_matrix

    @property
    def mode(self) -> Any:
        factor = self.df - self.covariance_matrix.shape[-1] - 1
        return F.where(factor <= 0, math.nan, factor)[..., None, None] * self.covariance_matrix

    @property
    def variance(self) -> Any:
        v = self.covariance_matrix
        on = v.diagonal(0, -2, -1)
        return self.df[..., None, None] * (v.square() + on.unsqueeze(-1) * on.unsqueeze(-2))

    def rsample(self, sample_shape: Any = (), max_try_correction: Any = None) -> Any:
        """Draws; `max_try_correction` is accepted and unused: no draw is repeated."""
        shape = self._extended_shape(sample_shape)
        n = shape[-1]
        fewer = F.arange(n, dtype=self.df.dtype)
        scale = Chi2(self.df.unsqueeze(-1) - fewer).rsample(sample_shape).sqrt()
        below = F.randn((*shape[:-2], n * (n - 1) // 2), dtype=self.df.dtype)
        place = F.zeros(n, n, dtype=int64)
        place[*F.tril_indices(n, n, -1)] = F.arange(1, n * (n - 1) // 2 + 1)
        noise = F.cat([F.zeros_like(scale[..., :1]), below], -1)[..., place] + F.diag_embed(scale)
        half = self._unbroadcasted_scale_tril @ noise
        return half @ half.mT

    _mean_carrier_measure = 0

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, x: Any, y: Any) -> Any:
        n = self._event_shape[-1]
        half = y + (n + 1) / 2
        root = F.cholesky(-x)
        return F.mvlgamma(half, n) - 2 * half * root.diagonal(0, -2, -1).log().sum(-1)

    def _log_norm(self) -> Any:
        n = self._event_shape[-1]
        return self.df * (0.5 * n * math.log(2) + self._half_log_det()) + F.mvlgamma(
            self.df / 2, n)

    def _mean_log_det(self) -> Any:
        """The mean of log det."""
        n = self._event_shape[-1]
        halves = (self.df.unsqueeze(-1) - F.arange(n, dtype=self.df.dtype)) / 2
        return halves.digamma().sum(-1) + n * math.log(2) + 2 * self._half_log_det()

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        root = F.cholesky(value)
        log_det = 2 * root.diagonal(0, -2, -1).log().sum(-1)
        spread = self._unbroadcasted_scale_tril.expand((*value.shape[:-2], *self._event_shape))
        inner = F.solve_triangular(spread, root, upper=False).square().sum((-2, -1))
        factor = (self.df - self._event_shape[-1] - 1) / 2
        return factor * log_det - inner / 2 - self._log_norm()

    def entropy(self) -> Any:
        n = self._event_shape[-1]
        found = self._log_norm() - (self.df - n - 1) / 2 * self._mean_log_det() + self.df * n / 2
        return found.expand(self._batch_shape)


__all__ = ["Wishart"]
