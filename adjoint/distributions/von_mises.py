"""The von Mises distribution on the circle."""
from __future__ import annotations

import math
from typing import Any

from adjoint.autograd.modes import no_grad
from adjoint.distributions import constraints
from adjoint.distributions._ops import F
from adjoint.distributions.distribution import Distribution
from adjoint.distributions.utils import broadcast_all
from adjoint.kernels import samplers
from adjoint.ops.random_gamma import drawn


class VonMises(Distribution):
    """Angles around `loc`, density ∝ exp(concentration·cos(x - loc)).

    Sampling: D. J. Best, N. I. Fisher, Applied Statistics 28 (1979), by NumPy; not differentiable.
    """

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    mean = mode = property(lambda self: self.loc)

    @property
    def variance(self) -> Any:
        """The circular variance 1 - I1(κ)/I0(κ)."""
        return 1 - F.i1e(self.concentration) / F.i0e(self.concentration)

    def sample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return drawn(samplers.von_mises, shape, self.loc,
                         self.concentration)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        k = self.concentration
        return k * ((value - self.loc).cos() - 1) - math.log(2 * math.pi) - F.i0e(k).log()

    def entropy(self) -> Any:
        k = self.concentration
        return math.log(2 * math.pi) + F.i0e(k).log() + k * (1 - F.i1e(k) / F.i0e(k))


__all__ = ["VonMises"]
