"""The log-normal distribution."""
from __future__ import annotations

from typing import Any

from adjoint.distributions import constraints
from adjoint.distributions.normal import Normal
from adjoint.distributions.transformed_distribution import TransformedDistribution
from adjoint.distributions.transforms import ExpTransform


class LogNormal(TransformedDistribution):
    """exp(X) where X is normal with mean `loc` and standard deviation `scale`."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.positive
    has_rsample = True
    base_dist: Normal

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(loc, scale, validate_args=validate_args), ExpTransform(),
                         validate_args=validate_args)

    loc = property(lambda self: self.base_dist.loc)
    scale = property(lambda self: self.base_dist.scale)
    mean = property(lambda self: (self.loc + self.scale.square() / 2).exp())
    mode = property(lambda self: (self.loc - self.scale.square()).exp())

    @property
    def variance(self) -> Any:
        square = self.scale.square()
        return square.expm1() * (2 * self.loc + square).exp()

    def entropy(self) -> Any:
        return self.base_dist.entropy() + self.loc


__all__ = ["LogNormal"]
