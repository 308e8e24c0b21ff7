"""Distributions of successes and failures: their probability, or its log odds."""
from __future__ import annotations

from typing import Any

from adjoint.distributions.utils import (
    broadcast_all,
    lazy_property,
    logits_to_probs,
    one_of,
    probs_to_logits,
)


class LogOdds:
    """One of `probs` and `logits` is given; the other is computed when it is asked for."""

    def _set_odds(self, probs: Any, logits: Any, *others: Any) -> list[Any]:
        """Store what was given; returns the others, broadcast with it and in its dtype."""
        one_of(type(self).__name__, probs, logits)
        *rest, given = broadcast_all(*others, logits if probs is None else probs)
        if probs is None:
            self.logits = given
        else:
            self.probs = given
        return [o.to(given.dtype) for o in rest]

    @property
    def _odds_shape(self) -> Any:
        """Shape of the parameter that was given."""
        return (self.probs if "probs" in self.__dict__ else self.logits).shape

    @lazy_property
    def logits(self) -> Any:
        """Log odds of a success."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Any:
        """Probability of a success."""
        return logits_to_probs(self.logits, is_binary=True)
