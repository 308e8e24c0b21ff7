"""The continuous Bernoulli distribution."""
from __future__ import annotations

import math
from typing import Any

from adjoint.distributions import constraints
from adjoint.distributions._log_odds import LogOdds
from adjoint.distributions._ops import F
from adjoint.distributions.distribution import ExponentialFamily
from adjoint.distributions.utils import broadcast_all, clamp_probs, lazy_property, logits_to_probs
from adjoint.ops.loss import binary_cross_entropy_with_logits


class ContinuousBernoulli(LogOdds, ExponentialFamily):
    """On [0, 1] with density ∝ probs^x·(1-probs)^(1-x).

    G. Loaiza-Ganem, J. Cunningham, "The continuous Bernoulli" (2019). `lims`: between these
    probabilities a Taylor series stands for the normalizing constant.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, probs: Any = None, logits: Any = None, lims: Any = (0.499, 0.501),
                 validate_args: bool | None = None) -> None:
        self._lims = lims
        self._set_odds(probs, logits)
        if probs is not None:
            self.probs = clamp_probs(self.probs)
        super().__init__(self._odds_shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._new(_instance)
        new._lims = self._lims
        return super().expand(batch_shape, new)

    @lazy_property
    def probs(self) -> Any:
        """The parameter in (0, 1); the mean is another number."""
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    param_shape = property(lambda self: self.batch_shape)

    def _parts(self) -> tuple[Any, Any, Any]:
        """(is the parameter away from 1/2, a parameter that surely is, its distance from 1/2)."""
        away = (self.probs <= self._lims[0]) | (self.probs > self._lims[1])
        return away, F.where(away, self.probs, self._lims[0]), self.probs - 0.5

    def _log_norm(self) -> Any:
        away, cut, x = self._parts()
        exact = ((-cut).log1p() - cut.log()).abs().log() - (2 * cut - 1).abs().log()
        near = math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x.square()) * x.square()
        return F.where(away, exact, near)

    @property
    def mean(self) -> Any:
        away, cut, x = self._parts()
        exact = cut / (2 * cut - 1) + 1 / ((-cut).log1p() - cut.log())
        return F.where(away, exact, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x.square()) * x)

    @property
    def variance(self) -> Any:
        away, cut, x = self._parts()
        exact = (cut * (cut - 1) / (1 - 2 * cut).square()
                 + 1 / ((-cut).log1p() - cut.log()).square())
        near = 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x.square()) * x.square()
        return F.where(away, exact, near)

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        return self.icdf(F.rand(shape, dtype=self.probs.dtype))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        return self._log_norm() - binary_cross_entropy_with_logits(logits, value,
                                                                   reduction="none")

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        away, cut, _ = self._parts()
        part = (cut ** value * (1 - cut) ** (1 - value) + cut - 1) / (2 * cut - 1)
        inside = F.where(away, part, value)
        return F.where(value <= 0, 0.0, F.where(value >= 1, 1.0, inside))

    def icdf(self, value: Any) -> Any:
        away, cut, _ = self._parts()
        found = ((-cut + value * (2 * cut - 1)).log1p() - (-cut).log1p()) / (
            cut.log() - (-cut).log1p())
        return F.where(away, found, value)

    def entropy(self) -> Any:
        low, high = (-self.probs).log1p(), self.probs.log()
        return self.mean * (low - high) - self._log_norm() - low

    _mean_carrier_measure = 0

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (self.logits,)

    def _log_normalizer(self, x: Any) -> Any:
        """log((exp(x) - 1)/x), by its series where x is small."""
        large = x.abs() > 0.1
        safe = F.where(large, x, 1.0)
        series = x / 2 + x.square() / 24 - x.square().square() / 2880
        return F.where(large, (safe.expm1() / safe).log(), series)


__all__ = ["ContinuousBernoulli"]
