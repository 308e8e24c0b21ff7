"""The Dirichlet distribution."""
from __future__ import annotations

from typing import Any

from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import Tensor
from adjoint.distributions import constraints
from adjoint.distributions._ops import F
from adjoint.distributions.distribution import ExponentialFamily
from adjoint.ops.random_gamma import _sample_dirichlet


class Dirichlet(ExponentialFamily):
    """Probabilities that sum to 1, with `concentration` (..., K), K >= 2.

    Draws are differentiable in the concentration by implicit reparameterization of each
    coordinate's beta distribution: M. Jankowiak, F. Obermeyer (2018).
    """

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Any, validate_args: bool | None = None) -> None:
        if not isinstance(concentration, Tensor) or concentration.dim() < 1:
            raise ArgumentError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args)

    @property
    def mean(self) -> Any:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Any:
        less = (self.concentration - 1).clamp(min=0.0)
        total = less.sum(-1, True)
        corner = F.one_hot(self.concentration.argmax(-1), self.concentration.shape[-1])
        flat = (self.concentration < 1).all(-1, True)
        inside = less / F.where(total == 0, 1.0, total)
        return F.where(flat, corner.to(inside.dtype), inside)

    @property
    def variance(self) -> Any:
        total = self.concentration.sum(-1, True)
        return (self.concentration * (total - self.concentration)
                / (total.square() * (total + 1)))

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        return _sample_dirichlet(self.concentration.expand(shape))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        a = self.concentration
        return F.xlogy(a - 1.0, value).sum(-1) + a.sum(-1).lgamma() - a.lgamma().sum(-1)

    def entropy(self) -> Any:
        a = self.concentration
        k, total = a.shape[-1], a.sum(-1)
        return (a.lgamma().sum(-1) - total.lgamma() - (k - total) * total.digamma()
                - ((a - 1.0) * a.digamma()).sum(-1))

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (self.concentration,)

    def _log_normalizer(self, x: Any) -> Any:
        return x.lgamma().sum(-1) - x.sum(-1).lgamma()


__all__ = ["Dirichlet"]
