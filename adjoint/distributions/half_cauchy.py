"""The absolute value of a centred Cauchy variable."""
from __future__ import annotations

import math
from typing import Any

from adjoint.distributions import constraints
from adjoint.distributions._ops import F
from adjoint.distributions.cauchy import Cauchy
from adjoint.distributions.transformed_distribution import Pushed
from adjoint.distributions.transforms import AbsTransform
from adjoint.distributions.utils import broadcast_all


class HalfCauchy(Pushed):
    """|X| where X is Cauchy around 0 with the given scale; it has no mean."""

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        self.scale, = broadcast_all(scale)
        super().__init__(self.scale.shape, validate_args=validate_args)

    mean = variance = property(lambda self: F.full_like(self.scale, math.inf))
    mode = property(lambda self: F.zeros_like(self.scale))

    def _pushed(self) -> Any:
        return Cauchy(F.zeros_like(self.scale), self.scale), [AbsTransform()]

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        return self.scale * F.empty(shape, dtype=self.scale.dtype).cauchy_().abs()

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        z = value / self.scale
        out = math.log(2 / math.pi) - self.scale.log() - z.square().log1p()
        return F.where(value >= 0, out, -math.inf)

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return (value / self.scale).atan() * (2 / math.pi)

    def icdf(self, value: Any) -> Any:
        return self.scale * (value * (math.pi / 2)).tan()

    def entropy(self) -> Any:
        return math.log(2 * math.pi) + self.scale.log()


__all__ = ["HalfCauchy"]
