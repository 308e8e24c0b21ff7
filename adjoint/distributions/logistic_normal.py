"""The logistic normal distribution."""
from __future__ import annotations

from typing import Any

from adjoint.distributions import constraints
from adjoint.distributions.independent import Independent
from adjoint.distributions.normal import Normal
from adjoint.distributions.transformed_distribution import TransformedDistribution
from adjoint.distributions.transforms import StickBreakingTransform


class LogisticNormal(TransformedDistribution):
    """Points of the simplex: normal coordinates through stick breaking."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.simplex
    has_rsample = True
    base_dist: Independent

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand((1,))
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)

    loc = property(lambda self: self.base_dist.base_dist.loc)
    scale = property(lambda self: self.base_dist.base_dist.scale)


__all__ = ["LogisticNormal"]
