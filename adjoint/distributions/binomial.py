"""The binomial distribution."""
from __future__ import annotations

from typing import Any

from adjoint.autograd.modes import no_grad
from adjoint.base.errors import NotSupported
from adjoint.distributions import constraints
from adjoint.distributions._log_odds import LogOdds
from adjoint.distributions._ops import F
from adjoint.distributions.distribution import Distribution
from adjoint.kernels import samplers
from adjoint.ops.random_gamma import drawn


class Binomial(LogOdds, Distribution):
    """Successes among `total_count` trials of probability `probs` (or log odds `logits`)."""

    arg_constraints = {"total_count": constraints.nonnegative_integer,
                       "probs": constraints.unit_interval, "logits": constraints.real}
    has_enumerate_support = True

    def __init__(self, total_count: Any = 1, probs: Any = None, logits: Any = None,
                 validate_args: bool | None = None) -> None:
        self.total_count, = self._set_odds(probs, logits, total_count)
        super().__init__(self.total_count.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self.total_count)

    mean = property(lambda self: self.total_count * self.probs)
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))
    param_shape = property(lambda self: self.total_count.shape)

    @property
    def mode(self) -> Any:
        return ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count)

    def sample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return drawn(samplers.binomial, shape,
                         self.total_count, self.probs)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        n = self.total_count
        choose = (n + 1).lgamma() - (value + 1).lgamma() - (n - value + 1).lgamma()
        # value·logit - n·log(1 + exp(logit)), without overflow
        norm = n * (self.logits.clamp(min=0) + (-self.logits.abs()).exp().log1p())
        return choose + value * self.logits - norm

    def entropy(self) -> Any:
        total = int(self.total_count.max().item())
        if not (self.total_count.min() == total):
            raise NotSupported("Inhomogeneous total count not supported by `entropy`.")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(log_prob.exp() * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Any:
        total = int(self.total_count.max().item())
        if not (self.total_count.min() == total):
            raise NotSupported("Inhomogeneous total count not supported by `enumerate_support`.")
        values = F.arange(1 + total, dtype=self.total_count.dtype)
        values = values.reshape((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values


__all__ = ["Binomial"]
