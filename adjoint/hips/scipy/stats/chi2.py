"""`scipy.stats.chi2`: the gamma distribution of shape df / 2 and scale 2."""
from __future__ import annotations

from typing import Any

from adjoint.hips.scipy.stats import gamma


def logpdf(x: Any, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Log of the density."""
    return gamma.logpdf(x, df / 2.0, loc, 2.0 * scale)


def pdf(x: Any, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """The density."""
    return gamma.pdf(x, df / 2.0, loc, 2.0 * scale)


def cdf(x: Any, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """P(X <= x); no derivative in df."""
    return gamma.cdf(x, df / 2.0, loc, 2.0 * scale)


__all__ = ["cdf", "logpdf", "pdf"]
