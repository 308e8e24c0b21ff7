"""The gamma distribution."""
from __future__ import annotations

from typing import Any

from adjoint.base.dtypes import finfo
from adjoint.distributions import constraints
from adjoint.distributions._ops import F
from adjoint.distributions.distribution import ExponentialFamily
from adjoint.distributions.utils import broadcast_all
from adjoint.ops.random_gamma import log_gamma_draw


class Gamma(ExponentialFamily):
    """Gamma with shape `concentration` and `rate`: density ∝ x^(concentration-1)·exp(-rate·x).

    Draws are differentiable in the concentration by implicit reparameterization: M. Figurnov,
    S. Mohamed, A. Mnih (2018).
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    mean = property(lambda self: self.concentration / self.rate)
    mode = property(lambda self: ((self.concentration - 1) / self.rate).clamp(min=0))
    variance = property(lambda self: self.concentration / self.rate.square())

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        draw = log_gamma_draw(self.concentration.expand(shape)).exp() / self.rate
        return draw.clamp(min=finfo(draw.dtype).tiny)

    def log_prob(self, value: Any) -> Any:
        value = F.as_tensor(value, dtype=self.rate.dtype)
        if self._validate_args:
            self._validate_sample(value)
        return (F.xlogy(self.concentration, self.rate) + F.xlogy(self.concentration - 1, value)
                - self.rate * value - self.concentration.lgamma())

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return F.igamma(self.concentration, self.rate * value)

    def entropy(self) -> Any:
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1 - a) * a.digamma()

    _mean_carrier_measure = 0

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, x: Any, y: Any) -> Any:
        return (x + 1).lgamma() - (x + 1) * (-y).log()


__all__ = ["Gamma"]
