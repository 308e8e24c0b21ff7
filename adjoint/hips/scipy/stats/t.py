"""`scipy.stats.t`: Student's distribution; x, df, loc and scale broadcast."""
from __future__ import annotations

from typing import Any

import numpy as onp

from adjoint.hips import numpy as np
from adjoint.hips.scipy.special import elementwise, gammaln


def logpdf(x: Any, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """Log of the density."""
    z = (x - loc) / scale
    return (gammaln((df + 1.0) / 2) - gammaln(df / 2.0) - 0.5 * np.log(df * onp.pi)
            - (df + 1.0) / 2 * np.log1p(z * z / df) - np.log(scale))


def pdf(x: Any, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """The density."""
    return np.exp(logpdf(x, df, loc, scale))


def _run(df: Any, z: Any) -> Any:
    import scipy.special
    return scipy.special.stdtr(df, z)


_stdtr = elementwise("t.cdf", _run, None, lambda y, df, z: pdf(z, df))


def cdf(x: Any, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """P(X <= x); no derivative in df."""
    return _stdtr(df, (x - loc) / scale)


def logcdf(x: Any, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> Any:
    """log P(X <= x); no derivative in df."""
    return np.log(cdf(x, df, loc, scale))


__all__ = ["cdf", "logcdf", "logpdf", "pdf"]
