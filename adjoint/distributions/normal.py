"""The normal distribution."""
from __future__ import annotations

import math
from typing import Any

from adjoint.distributions import constraints
from adjoint.distributions._ops import F
from adjoint.distributions.distribution import ExponentialFamily
from adjoint.distributions.utils import HALF_LOG_2PI, broadcast_all


class Normal(ExponentialFamily):
    """Normal with mean `loc` and standard deviation `scale`.

    >>> import adjoint as ad
    >>> ad.distributions.Normal(0.0, 1.0).log_prob(ad.tensor(0.0))
    tensor(-0.9189)
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    mean = mode = property(lambda self: self.loc)
    stddev = property(lambda self: self.scale)
    variance = property(lambda self: self.scale.square())

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        return self.loc + self.scale * F.randn(shape, dtype=self.loc.dtype)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        z = (value - self.loc) / self.scale
        return -0.5 * z.square() - self.scale.log() - HALF_LOG_2PI

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return F.ndtr((value - self.loc) / self.scale)

    def icdf(self, value: Any) -> Any:
        return self.loc + self.scale * F.ndtri(value)

    def entropy(self) -> Any:
        return 0.5 + HALF_LOG_2PI + self.scale.log()

    _mean_carrier_measure = 0

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return self.loc / self.scale.square(), -0.5 / self.scale.square()

    def _log_normalizer(self, x: Any, y: Any) -> Any:
        return 0.5 * (-math.pi / y).log() - 0.25 * x.square() / y


__all__ = ["Normal"]
