"""The generalized Pareto distribution."""
from __future__ import annotations

import math
from typing import Any

from adjoint.distributions import constraints
from adjoint.distributions._ops import F
from adjoint.distributions.distribution import Distribution
from adjoint.distributions.utils import broadcast_all


class GeneralizedPareto(Distribution):
    """Excesses over a threshold `loc`: exponential for `concentration` 0, with a heavy tail above
    it, bounded by loc - scale/concentration below it.

    >>> import adjoint as ad
    >>> ad.distributions.GeneralizedPareto(0.0, 2.0, 0.5).mean
    tensor(4.)
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive,
                       "concentration": constraints.real}
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, concentration: Any,
                 validate_args: bool | None = None) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        short = self.concentration < 0
        bent = F.where(short, self.concentration, -1.0)
        return constraints.interval(self.loc, F.where(short, self.loc - self.scale / bent,
                                                      math.inf))

    def _bent(self) -> tuple[Any, Any]:
        """(where the distribution is exponential, the concentration, 1 there)."""
        straight = self.concentration == 0
        return straight, F.where(straight, 1.0, self.concentration)

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self.icdf(F.rand(self._extended_shape(sample_shape), dtype=self.loc.dtype))

    def log_survival_function(self, value: Any) -> Any:
        """log P(x > value)."""
        if self._validate_args:
            self._validate_sample(value)
        z = (value - self.loc) / self.scale
        straight, k = self._bent()
        return F.where(straight, -z, -(F.where(straight, 0.0, k * z)).log1p() / k)

    def log_prob(self, value: Any) -> Any:
        k = self.concentration
        return -self.scale.log() + (1 + k) * self.log_survival_function(value)

    def cdf(self, value: Any) -> Any:
        return -self.log_survival_function(value).expm1()

    def log_cdf(self, value: Any) -> Any:
        """log P(x <= value)."""
        return (-self.log_survival_function(value).exp()).log1p()

    def icdf(self, value: Any) -> Any:
        rest = (-value).log1p()                        # log of the survival function
        straight, k = self._bent()
        return self.loc + self.scale * F.where(straight, -rest, (-k * rest).expm1() / k)

    @property
    def mean(self) -> Any:
        k = F.where(self.concentration < 1, self.concentration, 0.0)
        return F.where(self.concentration < 1, self.loc + self.scale / (1 - k), math.inf)

    @property
    def variance(self) -> Any:
        k = F.where(self.concentration < 0.5, self.concentration, 0.0)
        found = self.scale.square() / ((1 - k).square() * (1 - 2 * k))
        return F.where(self.concentration < 0.5, found, math.inf)

    mode = property(lambda self: self.loc)

    def entropy(self) -> Any:
        return self.scale.log() + self.concentration + 1


__all__ = ["GeneralizedPareto"]
