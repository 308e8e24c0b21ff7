"""The categorical distribution."""
from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from adjoint.autograd.modes import no_grad
from adjoint.base.dtypes import finfo, int64
from adjoint.base.errors import ArgumentError
from adjoint.distributions import constraints
from adjoint.distributions._ops import F
from adjoint.distributions.distribution import Distribution
from adjoint.distributions.utils import lazy_property, logits_to_probs, one_of, probs_to_logits
from adjoint.kernels import samplers
from adjoint.ops.random_gamma import drawn


class Categorical(Distribution):
    """0, ..., K-1 with the probabilities `probs` (..., K) (made to sum to 1) or `logits`.

    >>> import adjoint as ad
    >>> ad.distributions.Categorical(ad.tensor([0.25, 0.75])).entropy()
    tensor(0.5623)
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True

    def __init__(self, probs: Any = None, logits: Any = None,
                 validate_args: bool | None = None) -> None:
        one_of("Categorical", probs, logits)
        given = probs if probs is not None else logits
        if given.dim() < 1:
            raise ArgumentError(f"`{'probs' if logits is None else 'logits'}` parameter must be at "
                                "least one-dimensional.")
        if probs is not None:
            self.probs = probs / probs.sum(-1, keepdim=True)
        else:
            self.logits = logits - logits.logsumexp(-1, keepdim=True)
        super().__init__(given.shape[:-1], validate_args=validate_args)

    @lazy_property
    def logits(self) -> Any:
        """log probabilities."""
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self) -> Any:
        """Probabilities."""
        return logits_to_probs(self.logits)

    @property
    def _param(self) -> Any:
        return self.__dict__["probs"] if "probs" in self.__dict__ else self.logits

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self._num_events - 1)

    _num_events = property(lambda self: self._param.shape[-1])
    param_shape = property(lambda self: self._param.shape)
    mode = property(lambda self: self.probs.argmax(-1))

    @property
    def mean(self) -> Any:
        return F.full(tuple(self._batch_shape), math.nan, dtype=self.probs.dtype)

    variance = mean

    def sample(self, sample_shape: Any = ()) -> Any:
        shape = (*self._extended_shape(sample_shape), 1)
        with no_grad():
            return drawn(partial(_picks, self.probs.dim()), shape, self.probs,
                         dtype=int64).squeeze(-1)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        index = value.long().unsqueeze(-1)
        table = self.logits
        lead = table.shape[:-1]
        if index.shape[:-1] != lead:        # (else every row is read as it is)
            if index.numel() == 1 and index.dim() <= table.dim():
                index = index.expand((*lead, 1))
            else:
                index, table = F.broadcast_tensors(index, table)
        return table.gather(-1, index[..., :1]).squeeze(-1)

    def entropy(self) -> Any:
        lowest = finfo(self.logits.dtype).min
        return -(self.logits.clamp(min=lowest) * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Any:
        values = F.arange(self._num_events).reshape((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values


def rows_of(p: Any, own: int) -> tuple[Any, list[int], list[int]]:
    """The different rows (R, K) of probabilities that are repeated along axes in front of their own
    `own` axes; the axes of the rows, and those along which they are repeated."""
    again = [d for d in range(p.ndim - own) if not p.strides[d] or p.shape[d] == 1]
    rows = [d for d in range(p.ndim - 1) if d not in again]
    table = p[tuple(slice(0, 1) if d in again else slice(None) for d in range(p.ndim - 1))]
    return table.reshape(-1, p.shape[-1]), rows, again


def _picks(own: int, s: Any, p: Any) -> Any:
    """Indices (..., 1) of rows (..., K): all of the first row, then all of the second."""
    table, rows, again = rows_of(p, own)
    axes = [*rows, *again]
    found = samplers.picks(s, table, math.prod(p.shape[d] for d in again))
    return found.reshape([p.shape[d] for d in axes]).transpose(np.argsort(axes))[..., None]


__all__ = ["Categorical"]
