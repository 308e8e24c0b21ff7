"""Gamma variates and what is made of them, and counts: draws by rejection, from JAX's streams.
The derivative of a gamma variate in its order is implicit (Figurnov, Mohamed, Mnih 2018)."""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.base.dtypes import is_inexact
from adjoint.jax import _streams
from adjoint.jax._array import as_array, joined, make
from adjoint.jax._dtypes import as_dtype, default_dtype
from adjoint.jax._table import T, floating
from adjoint.jax._words import placing
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
        kind = as_dtype(dtype)
        if not is_inexact(kind):
            raise ValueError(f"dtype argument to `gamma` must be a float dtype, got {kind}")
        return kind
    found = np.result_type(*[as_array(p).dtype for p in params])
    return found if is_inexact(found) and found.itemsize > 2 else default_dtype("float")


@placing("out_sharding")
def loggamma(key: Any, a: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Logarithms of gamma variates of order a, differentiable in a."""
    kind, to = _kind(dtype, a), _lead(shape, a)
    order = T["broadcast_to"](as_array(a).tensor.to(kind), to)
    drawn = draw_with(_words(key), _streams.log_gamma, to, order.detach(), dtype=kind)
    return make(log_gamma_op(order, drawn))


@placing("out_sharding")
def gamma(key: Any, a: Any, shape: Any = None, dtype: Any = None) -> Any:
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


@placing("out_sharding")
def beta(key: Any, a: Any, b: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Beta variates."""
    to, (first, second) = _lead(shape, a, b), _pair(key)
    x, y = loggamma(first, a, to, dtype), loggamma(second, b, to, dtype)
    top = _E["maximum"](x, y)
    x, y = _E["exp"](x - top), _E["exp"](y - top)
    return x / (x + y)


@placing("out_sharding")
def dirichlet(key: Any, alpha: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Points of the simplex."""
    a = as_array(alpha)
    if not a.ndim:
        raise ValueError("dirichlet requires alpha.ndim >= 1, got alpha.ndim == 0")
    to = a.shape if shape is None else (*_lead(shape), a.shape[-1])
    x = loggamma(key, a, to, dtype)
    return make(T["softmax"](x.tensor, -1))


@placing("out_sharding")
def chisquare(key: Any, df: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Sums of `df` squares of normal variates."""
    return 2 * gamma(key, 0.5 * as_array(df), shape, dtype)


@placing("out_sharding")
def t(key: Any, df: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Student's t."""
    from adjoint.jax.random import normal
    to, (first, second) = _lead(shape, df) if shape is None else shape, _pair(key)
    n = normal(first, to, dtype)
    half = as_array(df) / 2.0
    return n * _E["sqrt"](half / gamma(second, half, to, dtype))


@placing("out_sharding")
def f(key: Any, dfnum: Any, dfden: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Ratios of two mean squares."""
    to, (first, second) = _lead(shape, dfnum, dfden), _pair(key)
    top = chisquare(second, dfnum, to, dtype) / as_array(dfnum)
    return top / (chisquare(first, dfden, to, dtype) / as_array(dfden))


@placing("out_sharding")
def generalized_normal(key: Any, p: float, shape: Any = (), dtype: Any = None) -> Any:
    """Variates of density proportional to exp(-|x|^p)."""
    from adjoint.jax.random import rademacher
    first, second = _pair(key)
    kind = default_dtype("float") if dtype is None else as_dtype(dtype)
    drawn = gamma(first, 1 / p, shape, kind) ** (1 / p)
    return rademacher(second, shape, kind) * drawn


@placing("out_sharding")
def ball(key: Any, d: int, p: float = 2, shape: Any = (), dtype: Any = None) -> Any:
    """Uniform in the unit ball of the p-norm, in d dimensions."""
    from adjoint.jax.random import exponential
    to, (first, second) = _lead(shape), _pair(key)
    g = generalized_normal(first, p, (*to, d), dtype)
    e = exponential(second, to, dtype)
    return g / (((_E["abs"](g) ** p).sum(-1) + e) ** (1 / p))[..., None]


# ------------------------------------------------------------------ counts
def _counts(key: Any, draw: Any, to: Any, params: Any, dtype: Any) -> Any:
    wide = [T["broadcast_to"](p.detach(), to) for p in params]
    return make(draw_with(_words(key), draw, to, *wide, dtype=dtype))


@placing("out_sharding")
def poisson(key: Any, lam: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Counts at a rate."""
    kind = default_dtype("int") if dtype is None else as_dtype(dtype)
    if kind.kind not in "iu":
        raise ValueError(f"dtype argument to `poisson` must be an int dtype, got {kind}")
    return _counts(key, _streams.poisson, _lead(shape, lam), [as_array(lam).tensor], kind)


def binomial(key: Any, n: Any, p: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Successes among n, each of probability p."""
    kind = default_dtype("float") if dtype is None else as_dtype(dtype)
    if not is_inexact(kind):
        raise ValueError(f"dtype argument to `binomial` must be a float dtype, got {kind}")
    chance = floating(p, "binomial")
    count = as_array(n, "binomial").tensor.to(chance.array.dtype)
    return _counts(key, _streams.binomial, _lead(shape, n, p), [count, chance], kind)


def multinomial(key: Any, n: Any, p: Any, *, shape: Any = None, dtype: Any = None,
                unroll: int = 1) -> Any:
    """Counts of n draws among the categories of the last axis."""
    total, chances = joined("multinomial", (n, p), floating=True)[0]
    to = tuple(chances.shape) if shape is None else _lead(shape)
    kind = default_dtype("float") if dtype is None else as_dtype(dtype)
    return _counts(key, _streams.multinomial, to, [total.unsqueeze(-1), chances], kind)
