"""The uniform distribution on an interval."""
from __future__ import annotations

import math
from typing import Any

from adjoint.base.errors import ArgumentError
from adjoint.distributions import constraints
from adjoint.distributions._ops import F
from adjoint.distributions.distribution import Distribution
from adjoint.distributions.utils import broadcast_all


class Uniform(Distribution):
    """Uniform on [low, high)."""

    arg_constraints = {"low": constraints.dependent(is_discrete=False, event_dim=0),
                       "high": constraints.dependent(is_discrete=False, event_dim=0)}
    has_rsample = True

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)
        if self._validate_args and constraints.refuted(self.low < self.high):
            raise ArgumentError(
                f"Expected parameter low (Tensor of shape {tuple(self.low.shape)}) of distribution "
                f"{self!r} to satisfy the constraint {constraints.less_than(self.high)!r}, but "
                f"found invalid values: Uniform is not defined when low>= high, got low "
                f"{self.low.tolist()} and high {self.high.tolist()}")

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return constraints.interval(self.low, self.high)

    mean = property(lambda self: (self.high + self.low) / 2)
    mode = property(lambda self: F.full_like(self.high, math.nan))
    stddev = property(lambda self: (self.high - self.low) / math.sqrt(12))
    variance = property(lambda self: (self.high - self.low).square() / 12)

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        return self.low + F.rand(shape, dtype=self.low.dtype) * (self.high - self.low)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        inside = (self.low <= value) & (value < self.high)
        return F.where(inside, 0.0 - (self.high - self.low).log(), -math.inf)

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return ((value - self.low) / (self.high - self.low)).clamp(min=0, max=1)

    def icdf(self, value: Any) -> Any:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Any:
        return (self.high - self.low).log()


__all__ = ["Uniform"]
