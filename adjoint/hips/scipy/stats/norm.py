"""`scipy.stats.norm`: the normal distribution; x, loc and scale broadcast."""
from __future__ import annotations

from typing import Any

import numpy as onp

from adjoint.hips import numpy as np
from adjoint.hips.scipy.special import log_ndtr, ndtr


def logpdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Log of the density."""
    z = (x - loc) / scale
    return -0.5 * z * z - np.log(scale) - 0.5 * onp.log(2 * onp.pi)


def pdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """The density."""
    return np.exp(logpdf(x, loc, scale))


def cdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """P(X <= x)."""
    return ndtr((x - loc) / scale)


def logcdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """log P(X <= x)."""
    return log_ndtr((x - loc) / scale)


def sf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """P(X > x)."""
    return ndtr((loc - x) / scale)


def logsf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """log P(X > x)."""
    return log_ndtr((loc - x) / scale)


__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]
