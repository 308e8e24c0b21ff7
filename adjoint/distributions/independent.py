"""Batch axes taken as parts of one event."""
from __future__ import annotations

from typing import Any

from adjoint.base.errors import ArgumentError, NotSupported
from adjoint.distributions import constraints
from adjoint.distributions.distribution import Distribution
from adjoint.distributions.utils import sum_rightmost


class Independent(Distribution):
    """The last `reinterpreted_batch_ndims` batch axes become event axes: their log probabilities
    are summed.

    >>> import adjoint as ad
    >>> ad.distributions.Independent(ad.distributions.Normal(ad.zeros(3), 1.0), 1).event_shape
    adjoint.Size([3])
    """

    arg_constraints: Any = {}

    def __init__(self, base_distribution: Any, reinterpreted_batch_ndims: int,
                 validate_args: bool | None = None) -> None:
        n = reinterpreted_batch_ndims
        have = len(base_distribution.batch_shape)
        if n > have:
            raise ArgumentError("Expected reinterpreted_batch_ndims <= len(base_distribution."
                                f"batch_shape), actual {n} vs {have}")
        shape = (*base_distribution.batch_shape, *base_distribution.event_shape)
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, n
        super().__init__(shape[:have - n], shape[have - n:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._new(_instance)
        event = self._event_shape[:self.reinterpreted_batch_ndims]
        new.base_dist = self.base_dist.expand((*batch_shape, *event))
        new.reinterpreted_batch_ndims = self.reinterpreted_batch_ndims
        return super().expand(batch_shape, new)

    has_rsample = property(lambda self: self.base_dist.has_rsample)
    mean = property(lambda self: self.base_dist.mean)
    mode = property(lambda self: self.base_dist.mode)
    variance = property(lambda self: self.base_dist.variance)

    @property
    def has_enumerate_support(self) -> bool:
        return not self.reinterpreted_batch_ndims and self.base_dist.has_enumerate_support

    @constraints.dependent_property
    def support(self) -> Any:
        found = self.base_dist.support
        n = self.reinterpreted_batch_ndims
        return constraints.independent(found, n) if n and found is not None else found

    def sample(self, sample_shape: Any = ()) -> Any:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Any) -> Any:
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Any:
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True) -> Any:
        if self.reinterpreted_batch_ndims:
            raise NotSupported("Enumeration over cartesian product is not implemented")
        return self.base_dist.enumerate_support(expand)

    def __repr__(self) -> str:
        return f"Independent({self.base_dist}, {self.reinterpreted_batch_ndims})"


__all__ = ["Independent"]
