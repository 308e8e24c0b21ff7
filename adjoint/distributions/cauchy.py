"""The Cauchy distribution."""
from __future__ import annotations

import math
from typing import Any

from adjoint.distributions import constraints
from adjoint.distributions._ops import F
from adjoint.distributions.distribution import Distribution
from adjoint.distributions.utils import broadcast_all


class Cauchy(Distribution):
    """Cauchy around `loc` with half width `scale`; mean and variance do not exist (nan, inf)."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    mean = property(lambda self: F.full_like(self.loc, math.nan))
    mode = property(lambda self: self.loc)
    variance = property(lambda self: F.full_like(self.loc, math.inf))

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        return self.loc + self.scale * F.empty(shape, dtype=self.loc.dtype).cauchy_()

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        z = (value - self.loc) / self.scale
        return -math.log(math.pi) - self.scale.log() - z.square().log1p()

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return ((value - self.loc) / self.scale).atan() / math.pi + 0.5

    def icdf(self, value: Any) -> Any:
        return (math.pi * (value - 0.5)).tan() * self.scale + self.loc

    def entropy(self) -> Any:
        return math.log(4 * math.pi) + self.scale.log()


__all__ = ["Cauchy"]
