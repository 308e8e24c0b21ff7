"""The Kumaraswamy distribution."""
from __future__ import annotations

import math
from typing import Any

from adjoint.base.dtypes import finfo
from adjoint.distributions import constraints
from adjoint.distributions._ops import F
from adjoint.distributions.transformed_distribution import Pushed
from adjoint.distributions.transforms import AffineTransform, PowerTransform
from adjoint.distributions.uniform import Uniform
from adjoint.distributions.utils import EULER, broadcast_all


class Kumaraswamy(Pushed):
    """On (0, 1) with distribution function 1 - (1 - x^concentration1)^concentration0."""

    arg_constraints = {"concentration1": constraints.positive,
                       "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1: Any, concentration0: Any,
                 validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        super().__init__(self.concentration1.shape, validate_args=validate_args)

    def _moment(self, n: int) -> Any:
        order = 1 + n / self.concentration1
        b = self.concentration0
        return (b.log() + order.lgamma() + b.lgamma() - (order + b).lgamma()).exp()

    mean = property(lambda self: self._moment(1))
    variance = property(lambda self: self._moment(2) - self._moment(1).square())

    @property
    def mode(self) -> Any:
        a, b = self.concentration1, self.concentration0
        ok = (a >= 1) & (b >= 1) & ~((a == 1) & (b == 1))
        ratio = F.where(ok, (a - 1) / F.where(ok, a * b - 1, 1.0), 0.5)
        return F.where(ok, ratio ** (1 / a), math.nan)

    def _pushed(self) -> Any:
        base = Uniform(F.zeros_like(self.concentration0), F.ones_like(self.concentration0))
        return base, [PowerTransform(self.concentration0.reciprocal()), AffineTransform(1, -1),
                      PowerTransform(self.concentration1.reciprocal())]

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        u = F.rand(shape, dtype=self.concentration1.dtype)
        eps = finfo(u.dtype)
        u = u.clamp(min=eps.tiny, max=1 - eps.eps / 2)
        return (1 - u ** (1 / self.concentration0)) ** (1 / self.concentration1)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        a, b = self.concentration1, self.concentration0
        return (a.log() + b.log() + F.xlogy(a - 1, value)
                + F.xlog1py(b - 1, -(value ** a)))

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return -(self.concentration0 * (-(value ** self.concentration1)).log1p()).expm1()

    def icdf(self, value: Any) -> Any:
        inner = -((-value).log1p() / self.concentration0).expm1()
        return inner ** self.concentration1.reciprocal()

    def entropy(self) -> Any:
        a, b = self.concentration1, self.concentration0
        harmonic = (b + 1).digamma() + EULER
        return (1 - 1 / b) + (1 - 1 / a) * harmonic - a.log() - b.log()


__all__ = ["Kumaraswamy"]
