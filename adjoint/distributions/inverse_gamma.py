"""The inverse gamma distribution."""
from __future__ import annotations

import math
from typing import Any

from adjoint.base.dtypes import finfo
from adjoint.distributions import constraints
from adjoint.distributions._ops import F
from adjoint.distributions.gamma import Gamma
from adjoint.distributions.transformed_distribution import Pushed
from adjoint.distributions.transforms import PowerTransform
from adjoint.distributions.utils import broadcast_all
from adjoint.ops.random_gamma import log_gamma_draw


class InverseGamma(Pushed):
    """1/X where X is gamma with the given concentration and rate."""

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    @property
    def mean(self) -> Any:
        a = self.concentration
        return F.where(a > 1, self.rate / F.where(a > 1, a - 1, 1.0), math.inf)

    mode = property(lambda self: self.rate / (self.concentration + 1))

    @property
    def variance(self) -> Any:
        a = F.where(self.concentration > 2, self.concentration, 3.0)
        found = self.rate.square() / ((a - 1).square() * (a - 2))
        return F.where(self.concentration > 2, found, math.inf)

    def _pushed(self) -> Any:
        return (Gamma(self.concentration, self.rate),
                [PowerTransform(-F.ones_like(self.concentration))])

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        draw = self.rate * (-log_gamma_draw(self.concentration.expand(shape))).exp()
        return draw.clamp(max=finfo(draw.dtype).max)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        a = self.concentration
        return (F.xlogy(a, self.rate) - (a + 1) * value.log() - self.rate / value - a.lgamma())

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return F.igammac(self.concentration, self.rate / value)

    def entropy(self) -> Any:
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1 + a) * a.digamma()


__all__ = ["InverseGamma"]
