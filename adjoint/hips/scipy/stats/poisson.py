"""`scipy.stats.poisson`: counts of mean mu; k and mu broadcast. Gradients flow into mu."""
from __future__ import annotations

from typing import Any

from adjoint.hips import numpy as np
from adjoint.hips.scipy.special import gammaincc, gammaln


def logpmf(k: Any, mu: Any, loc: Any = 0) -> Any:
    """Log of the probability of k."""
    k = k - loc
    found = k * np.log(mu) - gammaln(k + 1.0) - mu
    return np.where(np.equal(np.mod(k, 1), 0), found, -np.inf)


def pmf(k: Any, mu: Any, loc: Any = 0) -> Any:
    """The probability of k."""
    return np.exp(logpmf(k, mu, loc))


def cdf(k: Any, mu: Any, loc: Any = 0) -> Any:
    """P(K <= k)."""
    return gammaincc(np.floor(k - loc) + 1.0, mu)


__all__ = ["cdf", "logpmf", "pmf"]
