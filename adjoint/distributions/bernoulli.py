"""The Bernoulli distribution."""
from __future__ import annotations

import math
from typing import Any

from adjoint.autograd.modes import no_grad
from adjoint.distributions import constraints
from adjoint.distributions._log_odds import LogOdds
from adjoint.distributions._ops import F
from adjoint.distributions.distribution import ExponentialFamily
from adjoint.distributions.utils import broadcast_all
from adjoint.kernels import samplers
from adjoint.ops.loss import binary_cross_entropy_with_logits
from adjoint.ops.random_gamma import drawn


class Bernoulli(LogOdds, ExponentialFamily):
    """1 with probability `probs` (or log odds `logits`), else 0.

    >>> import adjoint as ad
    >>> ad.distributions.Bernoulli(logits=ad.tensor([0.0])).probs
    tensor([0.5000])
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    has_enumerate_support = True

    def __init__(self, probs: Any = None, logits: Any = None,
                 validate_args: bool | None = None) -> None:
        self._set_odds(probs, logits)
        super().__init__(self._odds_shape, validate_args=validate_args)

    mean = property(lambda self: self.probs)
    variance = property(lambda self: self.probs * (1 - self.probs))
    param_shape = property(lambda self: self.batch_shape)

    @property
    def mode(self) -> Any:
        return F.where(self.probs == 0.5, math.nan, (self.probs >= 0.5).to(self.probs.dtype))

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            return drawn(samplers.flips,
                         self._extended_shape(sample_shape), self.probs)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Any:
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Any:
        values = F.arange(2, dtype=self.logits.dtype).reshape((-1,) + (1,) * len(self.batch_shape))
        return values.expand((-1, *self.batch_shape)) if expand else values

    _mean_carrier_measure = 0

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (self.logits,)

    def _log_normalizer(self, x: Any) -> Any:
        return F.softplus(x)


__all__ = ["Bernoulli"]
