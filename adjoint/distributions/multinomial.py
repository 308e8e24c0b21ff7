"""The multinomial distribution."""
from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from adjoint.autograd.modes import no_grad
from adjoint.base.errors import ArgumentError, NotSupported
from adjoint.distributions import constraints
from adjoint.distributions._ops import F
from adjoint.distributions.binomial import Binomial
from adjoint.distributions.categorical import Categorical, rows_of
from adjoint.distributions.distribution import Distribution
from adjoint.distributions.utils import broadcast_all
from adjoint.kernels import samplers
from adjoint.ops.random_gamma import drawn


class Multinomial(Distribution):
    """Counts of `total_count` categorical draws; `log_prob` does not need it to be the sum."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}

    def __init__(self, total_count: int = 1, probs: Any = None, logits: Any = None,
                 validate_args: bool | None = None) -> None:
        if not isinstance(total_count, int):
            raise NotSupported("inhomogeneous total_count is not supported: give one int")
        if total_count < 0 and (self._validate_args if validate_args is None else validate_args):
            raise ArgumentError(f"Expected parameter total_count of distribution Multinomial to "
                                f"satisfy the constraint {constraints.nonnegative_integer!r}, but "
                                f"found invalid values: {total_count}")
        self.total_count = total_count
        self._categorical = Categorical(probs, logits, validate_args)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:],
                         validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._new(_instance)
        new.total_count = self.total_count
        new._categorical = self._categorical.expand(batch_shape)
        return super().expand(batch_shape, new)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        return constraints.multinomial(self.total_count)

    probs = property(lambda self: self._categorical.probs)
    logits = property(lambda self: self._categorical.logits)
    param_shape = property(lambda self: self._categorical.param_shape)
    mean = property(lambda self: self.probs * self.total_count)
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

    def sample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return drawn(partial(_counts, self.probs.dim(), self.total_count), shape, self.probs,
                         dtype=self.probs.dtype)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        logits = F.where((value == 0) & (logits == -math.inf), 0.0, logits)
        choose = (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1)
        return choose + (logits * value).sum(-1)

    def entropy(self) -> Any:
        n = self.total_count
        counts = F.arange(1, n + 1, dtype=self.probs.dtype).reshape(
            (-1,) + (1,) * self.probs.dim())
        binomial = Binomial(n, probs=self.probs, validate_args=False).log_prob(counts).exp()
        weight = (binomial * (counts + 1).lgamma()).sum((0, -1))
        return n * self._categorical.entropy() - math.lgamma(n + 1) + weight


def _counts(own: int, total: int, s: Any, p: Any) -> Any:
    """How often each category is among `total` draws, for rows (..., K)."""
    table, rows, again = rows_of(p, own)
    axes, many = [*rows, *again], math.prod(p.shape[d] for d in again)
    found = samplers.picks(s, table, total * many).reshape(-1, total, many)
    counts = (found[..., None] == np.arange(p.shape[-1])).sum(1)
    shaped = counts.reshape([*[p.shape[d] for d in axes], p.shape[-1]])
    return shaped.transpose([*np.argsort(axes), p.ndim - 1])


__all__ = ["Multinomial"]
