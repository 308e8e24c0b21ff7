"""The Weibull distribution."""
from __future__ import annotations

from typing import Any

from adjoint.base.dtypes import finfo
from adjoint.distributions import constraints
from adjoint.distributions._ops import F
from adjoint.distributions.exponential import Exponential
from adjoint.distributions.transformed_distribution import Pushed
from adjoint.distributions.transforms import AffineTransform, PowerTransform
from adjoint.distributions.utils import EULER, broadcast_all


class Weibull(Pushed):
    """Lifetimes scale·E^(1/concentration) where E is exponential."""

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        super().__init__(self.scale.shape, validate_args=validate_args)

    mean = property(lambda self: self.scale * (1 + 1 / self.concentration).lgamma().exp())

    @property
    def mode(self) -> Any:
        k = F.where(self.concentration > 1, self.concentration, 2.0)
        found = self.scale * ((k - 1) / k) ** (1 / k)
        return F.where(self.concentration > 1, found, 0.0)

    @property
    def variance(self) -> Any:
        inverse = self.concentration.reciprocal()
        return self.scale.square() * ((1 + 2 * inverse).lgamma().exp()
                                      - (2 * (1 + inverse).lgamma()).exp())

    def _pushed(self) -> Any:
        return (Exponential(F.ones_like(self.scale)),
                [PowerTransform(self.concentration.reciprocal()), AffineTransform(0, self.scale)])

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        draw = F.empty(shape, dtype=self.scale.dtype).exponential_()
        draw = draw.clamp(min=finfo(draw.dtype).tiny)
        return self.scale * draw ** self.concentration.reciprocal()

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        z = value / self.scale
        return (self.concentration.log() - self.scale.log()
                + (self.concentration - 1) * z.log() - z ** self.concentration)

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return -(-(value / self.scale) ** self.concentration).expm1()

    def icdf(self, value: Any) -> Any:
        return self.scale * (-(-value).log1p()) ** self.concentration.reciprocal()

    def entropy(self) -> Any:
        inverse = self.concentration.reciprocal()
        return EULER * (1 - inverse) + (self.scale * inverse).log() + 1


__all__ = ["Weibull"]
