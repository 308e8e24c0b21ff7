"""`scipy.stats.gamma`: the gamma distribution of shape a; x, a, loc and scale broadcast."""
from __future__ import annotations

from typing import Any

from adjoint.hips import numpy as np
from adjoint.hips.scipy.special import gammainc, gammaln


def logpdf(x: Any, a: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Log of the density."""
    z = (x - loc) / scale
    out = z < 0
    z = np.where(out, 1.0, z)
    return np.where(out, -np.inf, (a - 1) * np.log(z) - z - gammaln(a) - np.log(scale))


def pdf(x: Any, a: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """The density."""
    return np.exp(logpdf(x, a, loc, scale))


def cdf(x: Any, a: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """P(X <= x); no derivative in a."""
    z = (x - loc) / scale
    return gammainc(a, np.where(z < 0, 0.0, z))


__all__ = ["cdf", "logpdf", "pdf"]
