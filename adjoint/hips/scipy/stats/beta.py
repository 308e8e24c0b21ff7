"""`scipy.stats.beta`: the beta distribution on [0, 1]; x, a and b broadcast."""
from __future__ import annotations

from typing import Any

from adjoint.hips import numpy as np
from adjoint.hips.scipy.special import betainc, betaln


def logpdf(x: Any, a: Any, b: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Log of the density."""
    z = (x - loc) / scale
    return (a - 1) * np.log(z) + (b - 1) * np.log1p(-z) - betaln(a, b) - np.log(scale)


def pdf(x: Any, a: Any, b: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """The density."""
    return np.exp(logpdf(x, a, b, loc, scale))


def cdf(x: Any, a: Any, b: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """P(X <= x); no derivative in a and b."""
    return betainc(a, b, (x - loc) / scale)


__all__ = ["cdf", "logpdf", "pdf"]
