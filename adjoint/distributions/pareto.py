"""The Pareto distribution."""
from __future__ import annotations

import math
from typing import Any

from adjoint.distributions import constraints
from adjoint.distributions._ops import F
from adjoint.distributions.exponential import Exponential
from adjoint.distributions.transformed_distribution import Pushed
from adjoint.distributions.transforms import AffineTransform, ExpTransform
from adjoint.distributions.utils import broadcast_all


class Pareto(Pushed):
    """Values above `scale` whose excess falls like x^-alpha."""

    arg_constraints = {"scale": constraints.positive, "alpha": constraints.positive}
    has_rsample = True

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        super().__init__(self.scale.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self) -> Any:
        a = F.where(self.alpha > 1, self.alpha, 2.0)
        return F.where(self.alpha > 1, a * self.scale / (a - 1), math.inf)

    mode = property(lambda self: self.scale)

    @property
    def variance(self) -> Any:
        a = F.where(self.alpha > 2, self.alpha, 3.0)
        found = self.scale.square() * a / ((a - 1).square() * (a - 2))
        return F.where(self.alpha > 2, found, math.inf)

    def _pushed(self) -> Any:
        return Exponential(self.alpha), [ExpTransform(), AffineTransform(0, self.scale)]

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        draw = F.empty(shape, dtype=self.scale.dtype).exponential_()
        return self.scale * (draw / self.alpha).exp()

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return self.alpha.log() + self.alpha * self.scale.log() - (self.alpha + 1) * value.log()

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return -(self.alpha * (self.scale / value).log()).expm1()

    def icdf(self, value: Any) -> Any:
        return self.scale * (-(-value).log1p() / self.alpha).exp()

    def entropy(self) -> Any:
        return (self.scale / self.alpha).log() + (1 + self.alpha.reciprocal())


__all__ = ["Pareto"]
