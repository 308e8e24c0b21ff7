"""A distribution pushed through transforms."""
from __future__ import annotations

from typing import Any

from adjoint.autograd.modes import no_grad
from adjoint.base.errors import ArgumentError
from adjoint.distributions import constraints
from adjoint.distributions.distribution import Distribution
from adjoint.distributions.independent import Independent
from adjoint.distributions.transforms import ComposeTransform, Transform
from adjoint.distributions.utils import sum_rightmost


class TransformedDistribution(Distribution):
    """Y = f(X) with X from `base_distribution` and f the composition of `transforms`:
    log p(y) = log p(x) - log |det df/dx|.

    >>> import adjoint as ad
    >>> d = ad.distributions
    >>> y = d.TransformedDistribution(d.Normal(0.0, 1.0), [d.ExpTransform()])
    >>> y.log_prob(ad.tensor(1.0))
    tensor(-0.9189)
    """

    arg_constraints: Any = {}

    def __init__(self, base_distribution: Any, transforms: Any,
                 validate_args: bool | None = None) -> None:
        if not isinstance(transforms, (Transform, list, tuple)):
            raise ArgumentError("transforms must be a Transform or list, but was "
                                f"{transforms!r}")
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        if not all(isinstance(t, Transform) for t in self.transforms):
            raise ArgumentError("transforms must be a Transform or list of Transforms, got "
                                f"{transforms!r}")
        base_shape = (*base_distribution.batch_shape, *base_distribution.event_shape)
        own = len(base_distribution.event_shape)
        whole = ComposeTransform(self.transforms)
        if len(base_shape) < whole.domain.event_dim:
            raise ArgumentError("base_distribution needs to have shape with size at least "
                                f"{whole.domain.event_dim}, but got {base_shape}.")
        forward = whole.forward_shape(base_shape)
        expanded = whole.inverse_shape(forward)
        if tuple(base_shape) != tuple(expanded):
            base_distribution = base_distribution.expand(expanded[:len(expanded) - own])
        lacking = whole.domain.event_dim - own
        if lacking > 0:
            base_distribution = Independent(base_distribution, lacking)
        self.base_dist = base_distribution
        event_dim = whole.codomain.event_dim + max(own - whole.domain.event_dim, 0)
        cut = len(forward) - event_dim
        super().__init__(forward[:cut], forward[cut:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._new(_instance)
        new.transforms = self.transforms
        whole = ComposeTransform(self.transforms)
        shape = whole.inverse_shape((*batch_shape, *self._event_shape))
        own = len(self.base_dist.event_shape)
        new.base_dist = self.base_dist.expand(shape[:len(shape) - own])
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    has_rsample = property(lambda self: self.base_dist.has_rsample)

    @constraints.dependent_property
    def support(self) -> Any:
        if not self.transforms:
            return self.base_dist.support
        found = self.transforms[-1].codomain
        lacking = len(self._event_shape) - found.event_dim
        return constraints.independent(found, lacking) if lacking > 0 else found

    def _check_parameters(self) -> None:
        """The base distribution has checked them."""

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            x = self.base_dist.sample(sample_shape)
            for t in self.transforms:
                x = t(x)
            return x

    def rsample(self, sample_shape: Any = ()) -> Any:
        x = self.base_dist.rsample(sample_shape)
        for t in self.transforms:
            x = t(x)
        return x

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        event_dim = len(self._event_shape)
        total: Any = 0.0
        y = value
        for t in reversed(self.transforms):
            x = t.inv(y)
            event_dim += t.domain.event_dim - t.codomain.event_dim
            total = total - sum_rightmost(t.log_abs_det_jacobian(x, y),
                                          event_dim - t.domain.event_dim)
            y = x
        return total + sum_rightmost(self.base_dist.log_prob(y),
                                     event_dim - len(self.base_dist.event_shape))

    def _sign(self) -> Any:
        sign: Any = 1
        for t in self.transforms:
            sign = sign * t.sign
        return sign

    def cdf(self, value: Any) -> Any:
        sign = self._sign()
        for t in reversed(self.transforms):
            value = t.inv(value)
        if self._validate_args:
            self.base_dist._validate_sample(value)
        return sign * (self.base_dist.cdf(value) - 0.5) + 0.5

    def icdf(self, value: Any) -> Any:
        value = self._sign() * (value - 0.5) + 0.5
        value = self.base_dist.icdf(value)
        for t in self.transforms:
            value = t(value)
        return value

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Pushed(TransformedDistribution):
    """A distribution whose density, draws and moments are formulas of its own, although it is one
    pushed through transforms: those (`base_dist`, `transforms`) are made when asked for."""

    def __init__(self, batch_shape: Any, validate_args: bool | None = None) -> None:
        Distribution.__init__(self, batch_shape, validate_args=validate_args)

    def _pushed(self) -> tuple[Any, list[Transform]]:
        """The base distribution and the transforms."""
        raise NotImplementedError

    base_dist = property(lambda self: self._pushed()[0])
    transforms = property(lambda self: self._pushed()[1])
    _check_parameters = Distribution._check_parameters
    expand = Distribution.expand
    sample = Distribution.sample
    __repr__ = Distribution.__repr__


__all__ = ["TransformedDistribution"]
