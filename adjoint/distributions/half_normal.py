"""The absolute value of a centred normal variable."""
from __future__ import annotations

import math
from typing import Any

from adjoint.distributions import constraints
from adjoint.distributions._ops import F
from adjoint.distributions.normal import Normal
from adjoint.distributions.transformed_distribution import Pushed
from adjoint.distributions.transforms import AbsTransform
from adjoint.distributions.utils import HALF_LOG_2PI, broadcast_all


class HalfNormal(Pushed):
    """|X| where X is normal with mean 0 and standard deviation `scale`."""

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        self.scale, = broadcast_all(scale)
        super().__init__(self.scale.shape, validate_args=validate_args)

    mean = property(lambda self: self.scale * math.sqrt(2 / math.pi))
    mode = property(lambda self: F.zeros_like(self.scale))
    variance = property(lambda self: self.scale.square() * (1 - 2 / math.pi))

    def _pushed(self) -> Any:
        return Normal(F.zeros_like(self.scale), self.scale), [AbsTransform()]

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        return self.scale * F.randn(shape, dtype=self.scale.dtype).abs()

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        z = value / self.scale
        out = math.log(2) - HALF_LOG_2PI - 0.5 * z.square() - self.scale.log()
        return F.where(value >= 0, out, -math.inf)

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return F.erf(value / (self.scale * math.sqrt(2)))

    def icdf(self, value: Any) -> Any:
        return self.scale * F.ndtri((value + 1) / 2)

    def entropy(self) -> Any:
        return 0.5 + HALF_LOG_2PI + self.scale.log() - math.log(2)


__all__ = ["HalfNormal"]
