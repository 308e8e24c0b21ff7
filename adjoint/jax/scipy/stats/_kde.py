"""`jax.scipy.stats.gaussian_kde`."""
from __future__ import annotations

import math
from typing import Any

from adjoint.jax import numpy as _jnp
from adjoint.jax import random
from adjoint.jax._util import promote_dtypes_inexact
from adjoint.jax.scipy import linalg, special
from adjoint.jax.tree_util import register_pytree_node_class

n: Any = _jnp


def _log_normal(points: Any, centers: Any, cov: Any) -> Any:
    """log of the normal density of points (d, m) about centers (d, k), of shape (k, m)."""
    low = n.linalg.cholesky(cov)
    far = linalg.solve_triangular(low, points, lower=True)
    near = linalg.solve_triangular(low, centers, lower=True)
    gap = ((far[:, None, :] - near[:, :, None]) ** 2).sum(0)
    norm = len(cov) * math.log(2 * math.pi) / 2 + n.log(n.diag(low)).sum()
    return -gap / 2 - norm


@register_pytree_node_class
class gaussian_kde:
    """The density of a sample, a sum of normal densities about its points.

    >>> from adjoint.jax import numpy as jnp
    >>> gaussian_kde(jnp.arange(3.0))(1.0).shape
    (1,)
    """

    neff: Any
    dataset: Any
    weights: Any
    covariance: Any
    inv_cov: Any

    def __init__(self, dataset: Any, bw_method: Any = None, weights: Any = None) -> None:
        data = n.atleast_2d(dataset)
        if data.dtype.kind == "c":
            raise NotImplementedError("gaussian_kde does not support complex data")
        if not data.size > 1:
            raise ValueError("`dataset` input should have multiple elements.")
        data, = promote_dtypes_inexact(data)
        d, count = data.shape
        if weights is None:
            w = n.full(count, 1.0 / count, data.dtype)
        else:
            data, w = promote_dtypes_inexact(data, n.asarray(weights))
            w = n.atleast_1d(w)
            if w.ndim != 1:
                raise ValueError("`weights` input should be one-dimensional.")
            if len(w) != count:
                raise ValueError("`weights` input should be of length n")
            w = w / w.sum()
        self.dataset, self.weights = data, w
        self.neff = 1 / (w * w).sum()
        factor = self._factor(bw_method, d)
        cov = n.atleast_2d(n.cov(data, rowvar=1, bias=False, aweights=w))
        self.covariance = cov * factor ** 2
        self.inv_cov = n.linalg.inv(cov) / factor ** 2

    def _factor(self, method: Any, d: int) -> Any:
        if method is None or (isinstance(method, str) and method == "scott"):
            return n.power(self.neff, -1.0 / (d + 4))
        if isinstance(method, str) and method == "silverman":
            return n.power(self.neff * (d + 2) / 4.0, -1.0 / (d + 4))
        if callable(method):
            return method(self)
        if not isinstance(method, str) and n.isscalar(method):
            return method
        raise ValueError("`bw_method` should be 'scott', 'silverman', a scalar, or a callable.")

    def tree_flatten(self) -> Any:
        """The arrays."""
        return (self.neff, self.dataset, self.weights, self.covariance, self.inv_cov), None

    @classmethod
    def tree_unflatten(cls, _: Any, children: Any) -> Any:
        """The estimator of these arrays."""
        out = cls.__new__(cls)
        out.neff, out.dataset, out.weights, out.covariance, out.inv_cov = children
        return out

    @property
    def d(self) -> int:
        """Number of dimensions."""
        return int(self.dataset.shape[0])

    @property
    def n(self) -> int:
        """Number of points."""
        return int(self.dataset.shape[1])

    def _points(self, points: Any) -> Any:
        p = n.atleast_2d(points)
        if p.dtype.kind == "c":
            raise NotImplementedError("gaussian_kde does not support complex coordinates")
        d, m = p.shape
        if d != self.d:
            if d == 1 and m == self.d:
                return promote_dtypes_inexact(p.reshape(self.d, 1), self.dataset)[0]
            raise ValueError(f"points have dimension {d}, dataset has dimension {self.d}")
        return promote_dtypes_inexact(p, self.dataset)[0]

    def logpdf(self, x: Any) -> Any:
        """The log of the density at points, (dimensions, points)."""
        found = _log_normal(self._points(x), self.dataset, self.covariance)
        return special.logsumexp(found, axis=0, b=self.weights[:, None])

    def evaluate(self, points: Any) -> Any:
        """The density at points, (dimensions, points)."""
        found = _log_normal(self._points(points), self.dataset, self.covariance)
        return self.weights @ n.exp(found)

    __call__ = evaluate

    def pdf(self, x: Any) -> Any:
        """`evaluate`."""
        return self.evaluate(x)

    def integrate_gaussian(self, mean: Any, cov: Any) -> Any:
        """The integral of the density times a normal one."""
        mean, cov = n.atleast_1d(n.squeeze(n.asarray(mean))), n.atleast_2d(cov)
        if mean.shape != (self.d,):
            raise ValueError(f"mean does not have dimension {self.d}")
        if cov.shape != (self.d, self.d):
            raise ValueError(f"covariance does not have dimension {self.d}")
        found = _log_normal(mean[:, None], self.dataset, self.covariance + cov)
        return (self.weights @ n.exp(found))[0]

    def integrate_box_1d(self, low: Any, high: Any) -> Any:
        """The integral between two numbers."""
        if self.d != 1:
            raise ValueError("integrate_box_1d() only handles 1D pdfs")
        if n.ndim(low) or n.ndim(high):
            raise ValueError("the limits of integration in integrate_box_1d must be scalars")
        width = n.sqrt(self.covariance[0, 0])
        ends = [special.ndtr((v - self.dataset[0]) / width) for v in (low, high)]
        return (self.weights * (ends[1] - ends[0])).sum()

    def integrate_kde(self, other: Any) -> Any:
        """The integral of the product with another estimate."""
        if other.d != self.d:
            raise ValueError("KDEs are not the same dimensionality")
        found = _log_normal(other.dataset, self.dataset, self.covariance + other.covariance)
        return self.weights @ n.exp(found) @ other.weights

    def resample(self, key: Any, shape: Any = ()) -> Any:
        """Draws from the estimate, (dimensions, *shape)."""
        which, noise = random.split(key)
        index = random.choice(which, self.n, shape=shape, p=self.weights)
        eps = random.multivariate_normal(noise, n.zeros(self.d, self.covariance.dtype),
                                         self.covariance, shape=shape, dtype=self.dataset.dtype)
        return self.dataset[:, index] + n.moveaxis(eps, -1, 0)

    def integrate_box(self, low_bounds: Any, high_bounds: Any, maxpts: Any = None) -> Any:
        """NotImplementedError."""
        raise NotImplementedError("only 1D box integrations are supported; use `integrate_box_1d`")

    def set_bandwidth(self, bw_method: Any = None) -> None:
        """NotImplementedError."""
        raise NotImplementedError("dynamically changing the bandwidth method is not supported")


__all__ = ["gaussian_kde"]
