"""The geometric distribution."""
from __future__ import annotations

from typing import Any

from adjoint.autograd.modes import no_grad
from adjoint.base.dtypes import finfo
from adjoint.base.errors import ArgumentError
from adjoint.distributions import constraints
from adjoint.distributions._log_odds import LogOdds
from adjoint.distributions._ops import F
from adjoint.distributions.distribution import Distribution


class Geometric(LogOdds, Distribution):
    """Failures before the first success, 0, 1, ..., with success probability `probs`."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer

    def __init__(self, probs: Any = None, logits: Any = None,
                 validate_args: bool | None = None) -> None:
        self._set_odds(probs, logits)
        super().__init__(self._odds_shape, validate_args=validate_args)
        if self._validate_args and probs is not None and constraints.refuted(self.probs > 0):
            raise ArgumentError("Expected parameter probs of distribution Geometric to be "
                                f"positive, but found invalid values:\n{self.probs}")

    mean = property(lambda self: 1.0 / self.probs - 1.0)
    mode = property(lambda self: F.zeros_like(self.probs))
    variance = property(lambda self: (1.0 / self.probs - 1.0) / self.probs)

    def sample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            u = F.empty(shape, dtype=self.probs.dtype).uniform_(finfo(self.probs.dtype).tiny, 1)
            return (u.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return F.xlog1py(value, -self.probs) + self.probs.log()

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return -((value.floor() + 1) * (-self.probs).log1p()).expm1()

    def entropy(self) -> Any:
        p = self.probs
        return (F.entr(p) + F.entr(1 - p)) / p


__all__ = ["Geometric"]
