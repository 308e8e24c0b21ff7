"""The Fisher-Snedecor (F) distribution."""
from __future__ import annotations

import math
from typing import Any

from adjoint.base.dtypes import finfo
from adjoint.distributions import constraints
from adjoint.distributions._ops import F
from adjoint.distributions.distribution import Distribution
from adjoint.distributions.utils import broadcast_all
from adjoint.ops.random_gamma import log_gamma_draw


class FisherSnedecor(Distribution):
    """Ratio of two chi-squared variables over their degrees of freedom `df1` and `df2`."""

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        super().__init__(self.df1.shape, validate_args=validate_args)

    @property
    def mean(self) -> Any:
        safe = F.where(self.df2 > 2, self.df2, 3.0)
        return F.where(self.df2 > 2, safe / (safe - 2), math.nan)

    @property
    def mode(self) -> Any:
        found = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return F.where(self.df1 > 2, found, math.nan)

    @property
    def variance(self) -> Any:
        b = F.where(self.df2 > 4, self.df2, 5.0)
        found = (2 * b.square() * (self.df1 + b - 2)
                 / (self.df1 * (b - 2).square() * (b - 4)))
        return F.where(self.df2 > 4, found, math.nan)

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        a, b = (log_gamma_draw((0.5 * d).expand(shape)) for d in (self.df1, self.df2))
        found = (a - b).exp() * (self.df2 / self.df1)
        return found.clamp(min=finfo(found.dtype).tiny)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        a, b = self.df1 / 2, self.df2 / 2
        ratio = self.df1 / self.df2
        return ((a + b).lgamma() - a.lgamma() - b.lgamma() + a * ratio.log()
                + (a - 1) * value.log() - (a + b) * (ratio * value).log1p())


__all__ = ["FisherSnedecor"]
