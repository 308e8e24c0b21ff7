"""The Poisson distribution."""
from __future__ import annotations

from typing import Any

from adjoint.autograd.modes import no_grad
from adjoint.distributions import constraints
from adjoint.distributions._ops import F
from adjoint.distributions.distribution import ExponentialFamily
from adjoint.distributions.utils import broadcast_all
from adjoint.kernels import samplers
from adjoint.ops.random_gamma import drawn


class Poisson(ExponentialFamily):
    """Counts with mean `rate` >= 0."""

    arg_constraints = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        self.rate, = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    mean = variance = property(lambda self: self.rate)
    mode = property(lambda self: self.rate.floor())

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            return drawn(samplers.poisson, self._extended_shape(sample_shape),
                         self.rate)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return F.xlogy(value, self.rate) - self.rate - (value + 1).lgamma()

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return F.igammac(value.floor() + 1, self.rate)

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (self.rate.log(),)

    def _log_normalizer(self, x: Any) -> Any:
        return x.exp()


__all__ = ["Poisson"]
