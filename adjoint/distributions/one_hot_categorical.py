"""One-hot vectors of a categorical variable."""
from __future__ import annotations

from typing import Any

from adjoint.distributions import constraints
from adjoint.distributions._ops import F
from adjoint.distributions.categorical import Categorical
from adjoint.distributions.distribution import Distribution


class OneHotCategorical(Distribution):
    """A categorical draw as a vector with a single 1."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.one_hot
    has_enumerate_support = True

    def __init__(self, probs: Any = None, logits: Any = None,
                 validate_args: bool | None = None) -> None:
        self._categorical = Categorical(probs, logits, validate_args)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:],
                         validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._new(_instance)
        new._categorical = self._categorical.expand(batch_shape)
        return super().expand(batch_shape, new)

    probs = property(lambda self: self._categorical.probs)
    logits = property(lambda self: self._categorical.logits)
    param_shape = property(lambda self: self._categorical.param_shape)
    mean = property(lambda self: self.probs)
    variance = property(lambda self: self.probs * (1 - self.probs))

    def _hot(self, index: Any) -> Any:
        return F.one_hot(index, self._event_shape[0]).to(self.probs.dtype)

    @property
    def mode(self) -> Any:
        return self._hot(self.probs.argmax(-1))

    def sample(self, sample_shape: Any = ()) -> Any:
        return self._hot(self._categorical.sample(sample_shape))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self) -> Any:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Any:
        n = self._event_shape[0]
        values = F.eye(n, dtype=self.probs.dtype).reshape(
            (n,) + (1,) * len(self.batch_shape) + (n,))
        return values.expand((n, *self.batch_shape, n)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """OneHotCategorical whose draws carry the gradient of the probabilities.

    Y. Bengio, N. Leonard, A. Courville, "Estimating or propagating gradients through stochastic
    neurons" (2013).
    """

    has_rsample = True

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


__all__ = ["OneHotCategorical", "OneHotCategoricalStraightThrough"]
