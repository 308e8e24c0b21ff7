"""A continuous relaxation of the Bernoulli distribution."""
from __future__ import annotations

from typing import Any

from adjoint.distributions import constraints
from adjoint.distributions._log_odds import LogOdds
from adjoint.distributions._ops import F
from adjoint.distributions.distribution import Distribution
from adjoint.distributions.transformed_distribution import TransformedDistribution
from adjoint.distributions.transforms import SigmoidTransform
from adjoint.distributions.utils import clamp_probs


class LogitRelaxedBernoulli(LogOdds, Distribution):
    """The log odds of a RelaxedBernoulli draw: logistic noise around `logits`, over temperature."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.real
    has_rsample = True

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None,
                 validate_args: bool | None = None) -> None:
        self.temperature = temperature
        self._set_odds(probs, logits)
        super().__init__(self._odds_shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._new(_instance)
        new.temperature = self.temperature
        return super().expand(batch_shape, new)

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        u = clamp_probs(F.rand(shape, dtype=self.logits.dtype))
        return (u.log() - (-u).log1p() + self.logits) / self.temperature

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        gap = self.logits - value * self.temperature
        return F.as_tensor(self.temperature).log() + gap - 2 * F.softplus(gap)


class RelaxedBernoulli(TransformedDistribution):
    """Values in (0, 1) that tend to Bernoulli draws as `temperature` goes to 0.

    C. Maddison, A. Mnih, Y. W. Teh (2017); E. Jang, S. Gu, B. Poole (2017).
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True
    base_dist: LogitRelaxedBernoulli

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None,
                 validate_args: bool | None = None) -> None:
        super().__init__(LogitRelaxedBernoulli(temperature, probs, logits, validate_args),
                         SigmoidTransform(), validate_args=validate_args)

    temperature = property(lambda self: self.base_dist.temperature)
    logits = property(lambda self: self.base_dist.logits)
    probs = property(lambda self: self.base_dist.probs)


__all__ = ["LogitRelaxedBernoulli", "RelaxedBernoulli"]
