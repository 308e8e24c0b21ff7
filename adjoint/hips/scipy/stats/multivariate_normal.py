"""`scipy.stats.multivariate_normal`: x is [..., d], mean [d] or a number, cov [d, d], [d] (its
diagonal) or a number."""
from __future__ import annotations

from typing import Any

import numpy as onp

from adjoint.hips import numpy as np


def _parameters(x: Any, mean: Any, cov: Any) -> tuple[Any, Any, Any]:
    """(points [..., d], mean [d], covariance [d, d])."""
    mean = 0.0 if mean is None else mean
    if np.ndim(mean):
        d = np.shape(mean)[-1]
    elif np.ndim(cov):
        d = np.shape(cov)[-1]
    else:
        d = 1
    x = np.asarray(x)
    if np.ndim(x) == 0:
        x = np.reshape(x, (1,))
    elif np.ndim(x) == 1 and d == 1:
        x = np.reshape(x, (-1, 1))
    mean = np.ones(d) * mean
    cov = np.eye(d) * cov if np.ndim(cov) < 2 else cov
    return x, mean, cov


def _parts(cov: Any, allow_singular: bool) -> tuple[Any, Any, Any]:
    """(inverse, log determinant, rank)."""
    if not allow_singular:
        sign, logdet = np.linalg.slogdet(cov)
        if sign <= 0:
            raise onp.linalg.LinAlgError("the covariance matrix must be positive definite; "
                                         "allow_singular=True takes semidefinite ones")
        return np.linalg.inv(cov), logdet, np.shape(cov)[0]
    values = np.linalg.eigvalsh(cov)
    keep = onp.asarray(values > 1e6 * onp.finfo(float).eps * np.max(np.abs(values)))
    logs = np.log(np.where(keep, values, 1.0))
    return np.linalg.pinv(cov), np.sum(logs), int(keep.sum())


def logpdf(x: Any, mean: Any = None, cov: Any = 1.0, allow_singular: bool = False) -> Any:
    """Log of the density, one number per point."""
    x, mean, cov = _parameters(x, mean, cov)
    inverse, logdet, rank = _parts(cov, allow_singular)
    off = x - mean
    square = np.sum(off * np.matmul(off, np.transpose(inverse)), axis=-1)
    return np.squeeze(-0.5 * (rank * onp.log(2 * onp.pi) + logdet + square))[()]


def pdf(x: Any, mean: Any = None, cov: Any = 1.0, allow_singular: bool = False) -> Any:
    """The density."""
    return np.exp(logpdf(x, mean, cov, allow_singular))


def entropy(mean: Any = None, cov: Any = 1.0) -> Any:
    """The entropy in nats."""
    _, _, cov = _parameters(0.0, mean, cov)
    return 0.5 * (np.shape(cov)[0] * (1 + onp.log(2 * onp.pi)) + np.linalg.slogdet(cov)[1])


__all__ = ["entropy", "logpdf", "pdf"]
