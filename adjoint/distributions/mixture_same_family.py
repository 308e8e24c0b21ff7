"""A mixture of distributions of one family."""
from __future__ import annotations

from typing import Any

from adjoint.autograd.modes import no_grad
from adjoint.base.errors import ArgumentError
from adjoint.distributions import constraints
from adjoint.distributions.categorical import Categorical
from adjoint.distributions.distribution import Distribution


class MixtureSameFamily(Distribution):
    """Component k (the last batch axis of `component_distribution`) with the probability that the
    Categorical `mixture_distribution` gives; not differentiable by draws."""

    arg_constraints: Any = {}
    has_rsample = False

    def __init__(self, mixture_distribution: Any, component_distribution: Any,
                 validate_args: bool | None = None) -> None:
        if not isinstance(mixture_distribution, Categorical):
            raise ArgumentError(" The Mixture distribution needs to be an instance of "
                                "adjoint.distributions.Categorical, got "
                                f"{type(mixture_distribution).__name__}")
        if not isinstance(component_distribution, Distribution):
            raise ArgumentError("The Component distribution need to be an instance of "
                                "adjoint.distributions.Distribution, got "
                                f"{type(component_distribution).__name__}")
        outer, inner = mixture_distribution.batch_shape, component_distribution.batch_shape
        if any(a != b and 1 not in (a, b) for a, b in zip(reversed(outer), reversed(inner[:-1]),
                                                          strict=False)):
            raise ArgumentError(f"`mixture_distribution.batch_shape` ({outer}) is not compatible "
                                f"with `component_distribution.batch_shape`({inner[:-1]})")
        k, parts = mixture_distribution.logits.shape[-1], inner[-1] if inner else 0
        if k != parts:
            raise ArgumentError(f"`mixture_distribution component` ({k}) does not equal "
                                f"`component_distribution.batch_shape[-1]` ({parts})")
        self._mixture_distribution = mixture_distribution
        self._component_distribution = component_distribution
        self._num_component = k
        event = component_distribution.event_shape
        super().__init__(inner[:-1], event, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._new(_instance)
        batch_shape = tuple(batch_shape)
        new._mixture_distribution = self._mixture_distribution.expand(batch_shape)
        new._component_distribution = self._component_distribution.expand(
            (*batch_shape, self._num_component))
        new._num_component = self._num_component
        return super().expand(batch_shape, new)

    mixture_distribution = property(lambda self: self._mixture_distribution)
    component_distribution = property(lambda self: self._component_distribution)

    @constraints.dependent_property
    def support(self) -> Any:
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def _weights(self) -> Any:
        p = self._mixture_distribution.probs
        return p.reshape((*p.shape, *(1,) * len(self._event_shape)))

    @property
    def _axis(self) -> int:
        return -1 - len(self._event_shape)

    @property
    def mean(self) -> Any:
        return (self._weights * self._component_distribution.mean).sum(self._axis)

    @property
    def variance(self) -> Any:
        part = self._component_distribution
        gap = part.mean - self.mean.unsqueeze(self._axis)
        return (self._weights * (part.variance + gap.square())).sum(self._axis)

    def cdf(self, value: Any) -> Any:
        found = self._component_distribution.cdf(value.unsqueeze(self._axis))
        return (found * self._mixture_distribution.probs).sum(-1)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        parts = self._component_distribution.log_prob(value.unsqueeze(self._axis))
        return (parts + self._mixture_distribution.logits.log_softmax(-1)).logsumexp(-1)

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            shape = self._extended_shape(sample_shape)
            which = self._mixture_distribution.expand(self._batch_shape).sample(sample_shape)
            parts = self._component_distribution.sample(sample_shape)
            at = which.reshape((*which.shape, *(1,) * (1 + len(self._event_shape))))
            at = at.expand((*which.shape, 1, *self._event_shape))
            return parts.gather(self._axis, at).reshape(shape)

    def __repr__(self) -> str:
        return (f"MixtureSameFamily(\n  {self._mixture_distribution},\n  "
                f"{self._component_distribution})")


__all__ = ["MixtureSameFamily"]
