"""The negative binomial distribution."""
from __future__ import annotations

from typing import Any

from adjoint.autograd.modes import no_grad
from adjoint.distributions import constraints
from adjoint.distributions._log_odds import LogOdds
from adjoint.distributions._ops import F
from adjoint.distributions.distribution import Distribution
from adjoint.kernels import samplers
from adjoint.ops.random_gamma import drawn, log_gamma_draw


class NegativeBinomial(LogOdds, Distribution):
    """Successes of probability `probs` before `total_count` failures."""

    arg_constraints = {"total_count": constraints.nonnegative,
                       "probs": constraints.half_open_interval(0.0, 1.0),
                       "logits": constraints.real}
    support = constraints.nonnegative_integer

    def __init__(self, total_count: Any, probs: Any = None, logits: Any = None,
                 validate_args: bool | None = None) -> None:
        self.total_count, = self._set_odds(probs, logits, total_count)
        super().__init__(self.total_count.shape, validate_args=validate_args)

    mean = property(lambda self: self.total_count * self.logits.exp())
    variance = property(lambda self: self.mean / (-self.logits).sigmoid())
    param_shape = property(lambda self: self.total_count.shape)

    @property
    def mode(self) -> Any:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    def sample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            rate = log_gamma_draw(self.total_count.expand(shape)).exp() * self.logits.exp()
            return drawn(samplers.poisson, shape, rate)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        n = self.total_count
        body = n * F.logsigmoid(-self.logits) + value * F.logsigmoid(self.logits)
        norm = (n + value).lgamma() - (1.0 + value).lgamma() - n.lgamma()
        return body + F.where(n + value == 0, 0.0, norm)


__all__ = ["NegativeBinomial"]
