"""The beta distribution."""
from __future__ import annotations

from typing import Any

from adjoint.distributions import constraints
from adjoint.distributions._ops import F
from adjoint.distributions.dirichlet import Dirichlet
from adjoint.distributions.distribution import ExponentialFamily
from adjoint.distributions.utils import broadcast_all
from adjoint.ops.random_gamma import _sample_dirichlet


class Beta(ExponentialFamily):
    """Probabilities in (0, 1) with density ∝ x^(concentration1-1)·(1-x)^(concentration0-1)."""

    arg_constraints = {"concentration1": constraints.positive,
                       "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1: Any, concentration0: Any,
                 validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        super().__init__(self.concentration1.shape, validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Any:
        return Dirichlet(F.stack([self.concentration1, self.concentration0], -1),
                         validate_args=False).mode[..., 0]

    @property
    def variance(self) -> Any:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total.square() * (total + 1))

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        both = F.stack([self.concentration1, self.concentration0], -1)
        return _sample_dirichlet(both.expand((*shape, 2)))[..., 0]

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        a, b = self.concentration1, self.concentration0
        return (F.xlogy(a - 1, value) + F.xlog1py(b - 1, -value) + (a + b).lgamma() - a.lgamma()
                - b.lgamma())

    def entropy(self) -> Any:
        a, b = self.concentration1, self.concentration0
        total = a + b
        return (a.lgamma() + b.lgamma() - total.lgamma() - (a - 1) * a.digamma()
                - (b - 1) * b.digamma() + (total - 2) * total.digamma())

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return self.concentration1, self.concentration0

    def _log_normalizer(self, x: Any, y: Any) -> Any:
        return x.lgamma() + y.lgamma() - (x + y).lgamma()


__all__ = ["Beta"]
