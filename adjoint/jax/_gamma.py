"""Gamma variates and what is made of them, and counts: the distributions whose samplers take a
varying number of draws. They are NumPy's, seeded by the key, so the streams are not JAX's; the
derivative of a gamma variate in its order is implicit (Figurnov, Mohamed, Mnih 2018)."""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.base.dtypes import is_inexact
from adjoint.jax._array import as_array, inside, make
from adjoint.jax._dtypes import as_dtype, default_dtype
from adjoint.jax._table import T
from adjoint.jax.numpy._elementwise import NAMES as _E
from adjoint.ops.random_gamma import log_gamma_op
from adjoint.ops.threefry import draw_with


def _words(key: Any) -> Any:
    from adjoint.jax.random import _single
    return _single(key, "a random function")


def _lead(shape: Any, *params: Any) -> tuple[int, ...]:
    from adjoint.jax.random import _shape
    return _shape(shape, *params)


def _kind(dtype: Any, *params: Any) -> Any:
    if dtype is not None:
        return as_dtype(dtype)
    found = np.result_type(*[as_array(p).dtype for p in params])
    return found if is_inexact(found) else default_dtype("float")


def _log_gamma(rng: Any, a: Any) -> Any:
    """Logarithms of gamma variates; a power of a uniform draw brings an order below one up."""
    low = a < 1
    big = np.log(rng.standard_gamma(np.where(low, a + 1, a)))
    return np.where(low, big + np.log(rng.uniform(size=a.shape)) / a, big)


def loggamma(key: Any, a: Any, shape: Any = None, dtype: Any = None, **_: Any) -> Any:
    """Logarithms of gamma variates of order a, differentiable in a."""
    kind, to = _kind(dtype if dtype is not None else None, a), _lead(shape, a)
    order = T["broadcast_to"](as_array(a).tensor.to(kind), to)
    drawn = draw_with(_words(key), _log_gamma, to, order.detach(), dtype=kind)
    return make(log_gamma_op(order, drawn))


def gamma(key: Any, a: Any, shape: Any = None, dtype: Any = None, **_: Any) -> Any:
    """Gamma variates of order a, differentiable in a."""
    return _E["exp"](loggamma(key, a, shape, dtype))


def gamma_slope(a: Any, x: Any) -> Any:
    """dx/da of a gamma variate x of order a."""
    from adjoint.jax._transforms import jvp
    order = as_array(a)

    def variate(v: Any) -> Any:
        return make(log_gamma_op(v.tensor, T["log"](as_array(x).tensor)))
    return as_array(x) * jvp(variate, (order,), (order * 0 + 1,))[1]


def _pair(key: Any) -> Any:
    from adjoint.jax.random import split
    return split(key)


def beta(key: Any, a: Any, b: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Beta variates."""
    to, (first, second) = _lead(shape, a, b), _pair(key)
    x, y = loggamma(first, a, to, dtype), loggamma(second, b, to, dtype)
    top = _E["maximum"](x, y)
    x, y = _E["exp"](x - top), _E["exp"](y - top)
    return x / (x + y)


def dirichlet(key: Any, alpha: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Points of the simplex."""
    a = as_array(alpha)
    to = a.shape if shape is None else (*_lead(shape), a.shape[-1])
    x = loggamma(key, a, to, dtype)
    return make(T["softmax"](x.tensor, -1))


def chisquare(key: Any, df: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Sums of `df` squares of normal variates."""
    return 2 * gamma(key, 0.5 * as_array(df), shape, dtype)


def t(key: Any, df: Any, shape: Any = (), dtype: Any = None) -> Any:
    """Student's t."""
    from adjoint.jax.random import normal
    to, (first, second) = _lead(shape, df) if shape is None else shape, _pair(key)
    n = normal(first, to, dtype)
    half = as_array(df) / 2.0
    return n * _E["sqrt"](half / gamma(second, half, to, dtype))


def f(key: Any, dfnum: Any, dfden: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Ratios of two mean squares."""
    to, (first, second) = _lead(shape, dfnum, dfden), _pair(key)
    top = chisquare(first, dfnum, to, dtype) / as_array(dfnum)
    return top / (chisquare(second, dfden, to, dtype) / as_array(dfden))


def _counts(key: Any, draw: Any, shape: Any, params: Any, dtype: Any, kind: str) -> Any:
    to = default_dtype(kind) if dtype is None else as_dtype(dtype)
    given = [as_array(p).tensor.detach() for p in params]
    return make(draw_with(_words(key), draw, shape, *given, dtype=to))


def poisson(key: Any, lam: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Counts at a rate."""
    return _counts(key, lambda g, r: g.poisson(r), _lead(shape, lam), (lam,), dtype, "int")


def binomial(key: Any, n: Any, p: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Successes among n."""
    return _counts(key, lambda g, k, q: g.binomial(k.astype(np.int64), q), _lead(shape, n, p),
                   (n, p), dtype, "float")


def multinomial(key: Any, n: Any, p: Any, *, shape: Any = None, dtype: Any = None,
                unroll: int = 1) -> Any:
    """Counts of n draws among categories."""
    chances, total = as_array(p), int(inside(as_array(n)))
    to = chances.shape if shape is None else tuple(shape)
    return _counts(key, lambda g, q: g.multinomial(total, q / q.sum(-1, keepdims=True)), to,
                   (chances,), dtype, "float")
