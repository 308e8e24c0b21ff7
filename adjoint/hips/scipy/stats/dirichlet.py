"""`scipy.stats.dirichlet`: the Dirichlet distribution. x is [K] or [K, N], alpha [K]."""
from __future__ import annotations

from typing import Any

import numpy as onp

from adjoint.hips import numpy as np
from adjoint.hips.box import getval
from adjoint.hips.scipy.special import gammaln


def logpdf(x: Any, alpha: Any) -> Any:
    """Log of the density; where x has K - 1 rows, the last is one minus their sum."""
    alpha = np.asarray(alpha)
    x = np.asarray(x)
    if np.shape(x)[0] + 1 == np.shape(alpha)[0]:
        x = np.concatenate([x, np.expand_dims(1 - np.sum(x, axis=0), 0)])
    norm = np.sum(gammaln(alpha)) - gammaln(np.sum(alpha))
    return np.sum(np.transpose((alpha - 1) * np.log(np.transpose(x))), axis=0) - norm


def pdf(x: Any, alpha: Any) -> Any:
    """The density."""
    return np.exp(logpdf(x, alpha))


def rvs(alpha: Any, size: Any = 1, random_state: Any = None) -> Any:
    """Samples, without a derivative."""
    source = onp.random if random_state is None else random_state
    return source.dirichlet(getval(alpha), size)


__all__ = ["logpdf", "pdf", "rvs"]
