"""`scipy.stats.beta`: the beta distribution on [0, 1]; x, a and b broadcast."""
from __future__ import annotations

from typing import Any

from adjoint.hips import numpy as np
from adjoint.hips.scipy.special import betainc, betaln


def logpdf(x: Any, a: Any, b: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Log of the density."""
    z = (x - loc) / scale
    out = np.logical_or(z < 0, z > 1)
    z = np.where(out, 0.5, z)
    found = (a - 1) * np.log(z) + (b - 1) * np.log1p(-z) - betaln(a, b) - np.log(scale)
    return np.where(out, -np.inf, found)


def pdf(x: Any, a: Any, b: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """The density."""
    return np.exp(logpdf(x, a, b, loc, scale))


def cdf(x: Any, a: Any, b: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """P(X <= x); no derivative in a and b."""
    z = (x - loc) / scale
    return betainc(a, b, np.where(z < 0, 0.0, np.where(z > 1, 1.0, z)))


__all__ = ["cdf", "logpdf", "pdf"]
