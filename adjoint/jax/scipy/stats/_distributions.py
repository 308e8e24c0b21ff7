"""Distributions by their log-densities and distribution functions: the rest follows."""
from __future__ import annotations

import inspect
import math
from types import ModuleType
from typing import Any

import numpy as np

from adjoint.jax import numpy as _jnp
from adjoint.jax._array import joined, make
from adjoint.jax.scipy import special as _special

n: Any = _jnp
s: Any = _special
MODULES: dict[str, ModuleType] = {}


def _floats(*xs: Any) -> Any:
    ts, weak = joined("stats", xs, floating=True)
    return tuple(make(t, weak) for t in ts)


def _after(g: Any, f: Any) -> Any:
    """g(f(...)), with the parameters of f."""
    def run(*args: Any, **kwargs: Any) -> Any:
        return g(f(*args, **kwargs))
    run.__signature__ = inspect.signature(f)     # type: ignore[attr-defined]  # of the function
    return run


def _enter(name: str, **functions: Any) -> ModuleType:
    """A module of a distribution: pdf of logpdf, cdf of logcdf, sf of cdf, where they are not
    given."""
    made = ModuleType(f"jax.scipy.stats.{name}", f"`jax.scipy.stats.{name}`.")
    f = dict(functions)
    for log, plain in (("logpdf", "pdf"), ("logpmf", "pmf"), ("logcdf", "cdf"), ("logsf", "sf")):
        if log in f and plain not in f:
            f[plain] = _after(n.exp, f[log])
        elif plain in f and log not in f:
            f[log] = _after(n.log, f[plain])
    if "cdf" in f and "sf" not in f:
        f["sf"] = _after(lambda y: 1 - y, f["cdf"])
    if "sf" in f and "logsf" not in f:
        f["logsf"] = _after(n.log, f["sf"])
    for key, function in f.items():
        setattr(made, key, function)
    MODULES[name] = made
    return made


def _within(x: Any, inside: Any, value: Any, outside: Any = -math.inf) -> Any:
    return n.where(inside, value, outside)


# ------------------------------------------------------------------ normal and its kin
def _norm_logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    x, loc, scale = _floats(x, loc, scale)
    return -0.5 * (n.square((x - loc) / scale) + n.log(2 * math.pi * n.square(scale)))


def _norm_logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    x, loc, scale = _floats(x, loc, scale)
    return s.log_ndtr((x - loc) / scale)


def _norm_cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    x, loc, scale = _floats(x, loc, scale)
    return s.ndtr((x - loc) / scale)


def _norm_ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Any:
    q, loc, scale = _floats(q, loc, scale)
    return s.ndtri(q) * scale + loc


_enter("norm", logpdf=_norm_logpdf, logcdf=_norm_logcdf, cdf=_norm_cdf, ppf=_norm_ppf,
       sf=lambda x, loc=0, scale=1: _norm_cdf(-n.asarray(x), -n.asarray(loc), scale),
       logsf=lambda x, loc=0, scale=1: _norm_logcdf(-n.asarray(x), -n.asarray(loc), scale),
       isf=lambda q, loc=0, scale=1: _norm_ppf(1 - n.asarray(q), loc, scale))


def _log_mass(a: Any, b: Any) -> Any:
    """The logarithm of a normal variate's probability between a and b, exact in both tails."""
    flip = a > 0
    low, high = n.where(flip, -b, a), n.where(flip, -a, b)
    tail = high <= 0
    left, right = s.log_ndtr(n.where(tail, low, -2.0)), s.log_ndtr(n.where(tail, high, -1.0))
    middle = n.log1p(-s.ndtr(n.where(tail, -1.0, low)) - s.ndtr(-n.where(tail, 1.0, high)))
    return n.where(tail, right + n.log1p(-n.exp(left - right)), middle)


def _truncnorm_logpdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    x, a, b, loc, scale = _floats(x, a, b, loc, scale)
    z = (x - loc) / scale
    return _within(x, (z >= a) & (z <= b), _norm_logpdf(z) - n.log(scale) - _log_mass(a, b))


def _truncnorm_sides(x: Any, a: Any, b: Any, loc: Any, scale: Any) -> Any:
    """The logarithms of what is below x and of what is above; each of two that are near 0 of the
    other one."""
    x, a, b, loc, scale = _floats(x, a, b, loc, scale)
    z, whole = n.clip((x - loc) / scale, a, b), _log_mass(a, b)
    under, over = _log_mass(a, z) - whole, _log_mass(z, b) - whole
    return (n.where(under > -0.1, n.log1p(-n.exp(n.minimum(over, 0.0))), under),
            n.where(over > -0.1, n.log1p(-n.exp(n.minimum(under, 0.0))), over))


def _truncnorm_logcdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    return _truncnorm_sides(x, a, b, loc, scale)[0]


def _truncnorm_logsf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    return _truncnorm_sides(x, a, b, loc, scale)[1]


_enter("truncnorm", logpdf=_truncnorm_logpdf, logcdf=_truncnorm_logcdf, logsf=_truncnorm_logsf)


def _mvn_logpdf(x: Any, mean: Any, cov: Any, allow_singular: Any = None) -> Any:
    x, mean, cov = _floats(x, mean, cov)
    if not mean.shape:
        return -0.5 * n.square(x - mean) / cov - 0.5 * (math.log(2 * math.pi) + n.log(cov))
    d = mean.shape[-1]
    if not cov.shape:
        y = x - mean
        return -0.5 * n.einsum("...i,...i->...", y, y) / cov - d / 2 * (
            math.log(2 * math.pi) + n.log(cov))
    low = n.linalg.cholesky(cov)
    from adjoint.jax.lax.linalg import triangular_solve
    off = n.broadcast_to(x - mean, (*np.broadcast_shapes(x.shape[:-1], cov.shape[:-2]), d))
    low = n.broadcast_to(low, (*off.shape[:-1], d, d))
    y = triangular_solve(low, off[..., None], left_side=True, lower=True)[..., 0]
    logs = n.log(n.diagonal(low, axis1=-1, axis2=-2)).sum(-1)
    return -0.5 * n.einsum("...i,...i->...", y, y) - d / 2 * math.log(2 * math.pi) - logs


_enter("multivariate_normal", logpdf=_mvn_logpdf)


def _t_logpdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Any:
    x, df, loc, scale = _floats(x, df, loc, scale)
    z, half = (x - loc) / scale, (df + 1.0) / 2
    return (s.gammaln(half) - s.gammaln(df / 2) - 0.5 * n.log(df * math.pi) - n.log(scale)
            - half * n.log1p(z * z / df))


_enter("t", logpdf=_t_logpdf)


def _cauchy_logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    x, loc, scale = _floats(x, loc, scale)
    return -(n.log(math.pi * scale) + n.log1p(n.square((x - loc) / scale)))


def _cauchy_cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    x, loc, scale = _floats(x, loc, scale)
    return 0.5 + n.arctan((x - loc) / scale) / math.pi


_enter("cauchy", logpdf=_cauchy_logpdf, cdf=_cauchy_cdf,
       ppf=lambda q, loc=0, scale=1: n.tan(math.pi * (n.asarray(q) - 0.5)) * scale + loc,
       isf=lambda q, loc=0, scale=1: n.tan(math.pi * (0.5 - n.asarray(q))) * scale + loc)


# ------------------------------------------------------------------ on the line
def _laplace_logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    x, loc, scale = _floats(x, loc, scale)
    return -(n.abs(x - loc) / scale + n.log(2.0 * scale))


def _laplace_cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    x, loc, scale = _floats(x, loc, scale)
    z = (x - loc) / scale
    return n.where(z <= 0, 0.5 * n.exp(n.minimum(z, 0)), 1 - 0.5 * n.exp(-n.maximum(z, 0)))


_enter("laplace", logpdf=_laplace_logpdf, cdf=_laplace_cdf)


def _logistic_logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    x, loc, scale = _floats(x, loc, scale)
    z = (x - loc) / scale
    return -z - 2.0 * n.logaddexp(0.0, -z) - n.log(scale)


def _logistic_cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    x, loc, scale = _floats(x, loc, scale)
    return s.expit((x - loc) / scale)


_enter("logistic", logpdf=_logistic_logpdf, cdf=_logistic_cdf,
       ppf=lambda x, loc=0, scale=1: s.logit(x) * scale + loc,
       sf=lambda x, loc=0, scale=1: s.expit(-(n.asarray(x) - loc) / scale),
       isf=lambda x, loc=0, scale=1: -s.logit(x) * scale + loc)


def _gumbel_r_logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    x, loc, scale = _floats(x, loc, scale)
    z = (x - loc) / scale
    return -z - n.exp(-z) - n.log(scale)


def _gumbel_l_logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    x, loc, scale = _floats(x, loc, scale)
    z = (x - loc) / scale
    return z - n.exp(z) - n.log(scale)


def _gumbel_r_ppf(p: Any, loc: Any = 0, scale: Any = 1) -> Any:
    p, loc, scale = _floats(p, loc, scale)
    return _within(p, (p > 0) & (p < 1), loc - scale * n.log(-n.log(p)), math.nan)


def _gumbel_l_ppf(p: Any, loc: Any = 0, scale: Any = 1) -> Any:
    p, loc, scale = _floats(p, loc, scale)
    return _within(p, (p > 0) & (p < 1), loc + scale * n.log(-n.log1p(-p)), math.nan)


def _risen(x: Any, loc: Any, scale: Any, sign: int) -> Any:
    """exp of the standardised x, or of its negative."""
    x, loc, scale = _floats(x, loc, scale)
    return n.exp(sign * (x - loc) / scale)


_enter("gumbel_r", logpdf=_gumbel_r_logpdf, ppf=_gumbel_r_ppf,
       logcdf=lambda x, loc=0, scale=1: -_risen(x, loc, scale, -1),
       sf=lambda x, loc=0, scale=1: -n.expm1(-_risen(x, loc, scale, -1)))
_enter("gumbel_l", logpdf=_gumbel_l_logpdf, ppf=_gumbel_l_ppf,
       cdf=lambda x, loc=0, scale=1: -n.expm1(-_risen(x, loc, scale, 1)),
       logsf=lambda x, loc=0, scale=1: -_risen(x, loc, scale, 1))


def _gennorm_logpdf(x: Any, beta: Any) -> Any:
    x, beta = _floats(x, beta)
    return n.log(0.5 * beta) - s.gammaln(1 / beta) - n.abs(x) ** beta


def _gennorm_cdf(x: Any, beta: Any) -> Any:
    x, beta = _floats(x, beta)
    return 0.5 + 0.5 * n.sign(x) * s.gammainc(1 / beta, n.abs(x) ** beta)


_enter("gennorm", logpdf=_gennorm_logpdf, cdf=_gennorm_cdf)


def _wrapcauchy_logpdf(x: Any, c: Any) -> Any:
    x, c = _floats(x, c)
    value = n.log1p(-c * c) - math.log(2 * math.pi) - n.log1p(c * c - 2 * c * n.cos(x))
    found = _within(x, (x >= 0) & (x <= 2 * math.pi), value)
    return n.where((c > 0) & (c < 1), found, math.nan)


_enter("wrapcauchy", logpdf=_wrapcauchy_logpdf)


def _vonmises_logpdf(x: Any, kappa: Any) -> Any:
    x, kappa = _floats(x, kappa)
    return kappa * (n.cos(x) - 1) - n.log(2 * math.pi * s.i0e(kappa))


_enter("vonmises", logpdf=_vonmises_logpdf)


# ------------------------------------------------------------------ on a half line or an interval
def _expon_logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    x, loc, scale = _floats(x, loc, scale)
    return _within(x, x >= loc, -(x - loc) / scale - n.log(scale))


def _expon_cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    x, loc, scale = _floats(x, loc, scale)
    return n.where(x < loc, 0.0, -n.expm1(-(x - loc) / scale))


def _expon_logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    x, loc, scale = _floats(x, loc, scale)
    return n.where(x < loc, 0.0, -(x - loc) / scale)


_enter("expon", logpdf=_expon_logpdf, cdf=_expon_cdf, logsf=_expon_logsf,
       ppf=lambda q, loc=0, scale=1: loc - scale * n.log1p(-n.asarray(q)))


def _gamma_logpdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Any:
    x, a, loc, scale = _floats(x, a, loc, scale)
    z = n.where(x >= loc, (x - loc) / scale, 1.0)
    return _within(x, x >= loc, s.xlogy(a - 1, z) - z - s.gammaln(a) - n.log(scale))


def _gamma_cdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Any:
    x, a, loc, scale = _floats(x, a, loc, scale)
    return s.gammainc(a, n.clip((x - loc) / scale, 0.0))


def _gamma_sf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Any:
    x, a, loc, scale = _floats(x, a, loc, scale)
    return s.gammaincc(a, n.clip((x - loc) / scale, 0.0))


_enter("gamma", logpdf=_gamma_logpdf, cdf=_gamma_cdf, sf=_gamma_sf)
_enter("chi2", logpdf=lambda x, df, loc=0, scale=1: _gamma_logpdf(
    x, n.asarray(df) / 2, loc, 2 * n.asarray(scale)),
    cdf=lambda x, df, loc=0, scale=1: _gamma_cdf(x, n.asarray(df) / 2, loc, 2 * n.asarray(scale)),
    sf=lambda x, df, loc=0, scale=1: _gamma_sf(x, n.asarray(df) / 2, loc, 2 * n.asarray(scale)))


def _beta_logpdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    x, a, b, loc, scale = _floats(x, a, b, loc, scale)
    inside = (x >= loc) & (x <= loc + scale)
    z = n.where(inside, (x - loc) / scale, 0.5)
    return _within(x, inside, s.xlogy(a - 1, z) + s.xlog1py(b - 1, -z) - s.betaln(a, b)
                   - n.log(scale))


def _beta_cdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    x, a, b, loc, scale = _floats(x, a, b, loc, scale)
    return s.betainc(a, b, n.clip((x - loc) / scale, 0.0, 1.0))


def _beta_sf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    x, a, b, loc, scale = _floats(x, a, b, loc, scale)
    return s.betainc(b, a, 1 - n.clip((x - loc) / scale, 0.0, 1.0))


_enter("beta", logpdf=_beta_logpdf, cdf=_beta_cdf, sf=_beta_sf)


def _uniform_logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    x, loc, scale = _floats(x, loc, scale)
    return _within(x, (x >= loc) & (x <= loc + scale), -n.log(scale))


def _uniform_cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    x, loc, scale = _floats(x, loc, scale)
    return n.clip((x - loc) / scale, 0.0, 1.0)


def _uniform_ppf(q: Any, loc: Any, scale: Any) -> Any:
    return n.where((q >= 0) & (q <= 1), q * scale + loc, n.nan)


_enter("uniform", logpdf=_uniform_logpdf, cdf=_uniform_cdf,
       ppf=lambda q, loc=0, scale=1: _uniform_ppf(*_floats(q, loc, scale)))


def _pareto_logpdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    x, b, loc, scale = _floats(x, b, loc, scale)
    z = n.where(x < loc + scale, 1.0, (x - loc) / scale)
    return _within(x, x >= loc + scale, n.log(b / scale) - (b + 1.0) * n.log(z))


def _pareto_logsf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    x, b, loc, scale = _floats(x, b, loc, scale)
    return -b * n.log(n.where(x < loc + scale, 1.0, (x - loc) / scale))


def _pareto_logcdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    x, b, loc, scale = _floats(x, b, loc, scale)
    log_sf = _pareto_logsf(n.where(x < loc + scale, loc + 2 * scale, x), b, loc, scale)
    return _within(x, x >= loc + scale, n.log(-n.expm1(log_sf)))


def _pareto_ppf(q: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    q, b, loc, scale = _floats(q, b, loc, scale)
    return _within(q, (q >= 0) & (q <= 1), loc + scale * n.exp(-n.log1p(-q) / b), math.nan)


_enter("pareto", logpdf=_pareto_logpdf, logsf=_pareto_logsf, ppf=_pareto_ppf,
       sf=_after(n.exp, _pareto_logsf), cdf=_after(lambda y: -n.expm1(y), _pareto_logsf),
       logcdf=_pareto_logcdf)


def _dirichlet_logpdf(x: Any, alpha: Any) -> Any:
    x, a = _floats(x, alpha)
    if x.ndim and x.shape[0] == a.shape[0] - 1:
        x = n.concatenate([x, 1 - x.sum(0, keepdims=True)])
    side = a.reshape((-1, *[1] * (x.ndim - 1)))
    norm = s.gammaln(a).sum() - s.gammaln(a.sum())
    inside = n.all(x > 0, 0)
    return _within(x, inside, s.xlogy(side - 1, n.where(x > 0, x, 1.0)).sum(0) - norm)


_enter("dirichlet", logpdf=_dirichlet_logpdf)


# ------------------------------------------------------------------ counts
def _bernoulli_logpmf(k: Any, p: Any, loc: Any = 0) -> Any:
    k, p, loc = _floats(k, p, loc)
    x = k - loc
    found = s.xlogy(x, p) + s.xlog1py(1 - x, -p)
    return _within(x, (x == 0) | (x == 1), found).astype(found.dtype)


def _bernoulli_cdf(k: Any, p: Any) -> Any:
    k, p = _floats(k, p)
    return n.where(k < 0, 0.0, n.where(k < 1, 1 - p, 1.0))


_enter("bernoulli", logpmf=_bernoulli_logpmf, cdf=_bernoulli_cdf,
       ppf=lambda q, p: n.where(n.asarray(q) <= 1 - n.asarray(p), 0.0, 1.0))


def _poisson_logpmf(k: Any, mu: Any, loc: Any = 0) -> Any:
    k, mu, loc = _floats(k, mu, loc)
    x = k - loc
    inside = (x >= 0) & (x == n.round(x))
    z = n.where(inside, x, 0.0)
    return _within(x, inside, s.xlogy(z, mu) - s.gammaln(z + 1) - mu)


def _poisson_cdf(k: Any, mu: Any, loc: Any = 0) -> Any:
    k, mu, loc = _floats(k, mu, loc)
    x = k - loc
    return n.where(x < 0, 0.0, s.gammaincc(n.floor(n.maximum(x, 0)) + 1, mu))


def _poisson_entropy(mu: Any, loc: Any = 0) -> Any:
    """The sum up to 200 counts for means below 100, and the asymptotic series beyond: its next
    term is below 1e-8 there."""
    mu, loc = _floats(mu, loc)
    low = n.where((mu > 0) & (mu < 100), mu, 1.0)
    log_p = _poisson_logpmf(np.arange(200), low[..., None])
    high = n.where(mu < 100, 100.0, mu)
    series = 0.5 * n.log(2 * math.pi * math.e * high) - 1 / (12 * high) - 1 / (
        24 * n.square(high)) - 19 / (360 * high ** 3)
    value = n.where(mu < 100, -n.sum(n.exp(log_p) * log_p, -1), series)
    return n.where(mu > 0, value, n.where(mu == 0, 0.0, math.nan)) + 0 * loc


_enter("poisson", logpmf=_poisson_logpmf, cdf=_poisson_cdf, entropy=_poisson_entropy)


def _binom_logpmf(k: Any, count: Any, p: Any, loc: Any = 0) -> Any:
    k, m, p, loc = _floats(k, count, p, loc)
    x = k - loc
    inside = (x >= 0) & (x <= m)
    z = n.where(inside, x, 0.0)
    ways = s.gammaln(m + 1) - s.gammaln(z + 1) - s.gammaln(m - z + 1)
    return _within(x, inside, ways + s.xlogy(z, p) + s.xlog1py(m - z, -p))


_enter("binom", logpmf=lambda k, n, p, loc=0: _binom_logpmf(k, n, p, loc))


def _betabinom_logpmf(k: Any, count: Any, a: Any, b: Any, loc: Any = 0) -> Any:
    k, m, a, b, loc = _floats(k, count, a, b, loc)
    x = k - loc
    ways = -n.log1p(m) - s.betaln(m - x + 1, x + 1)
    return _within(x, (x >= 0) & (x <= m), ways + s.betaln(x + a, m - x + b) - s.betaln(a, b))


_enter("betabinom", logpmf=lambda k, n, a, b, loc=0: _betabinom_logpmf(k, n, a, b, loc))


def _nbinom_logpmf(k: Any, count: Any, p: Any, loc: Any = 0) -> Any:
    k, m, p, loc = _floats(k, count, p, loc)
    x = (k - loc).astype(k.dtype)
    found = (s.gammaln(x + m) - s.gammaln(m) - s.gammaln(x + 1) + m * n.log(p)
             + s.xlog1py(x, -p))
    return _within(x, x >= 0, found)


_enter("nbinom", logpmf=lambda k, n, p, loc=0: _nbinom_logpmf(k, n, p, loc))


def _geom_logpmf(k: Any, p: Any, loc: Any = 0) -> Any:
    k, p, loc = _floats(k, p, loc)
    x = (k - loc).astype(k.dtype)
    return _within(x, x >= 1, s.xlog1py(x - 1, -p) + n.log(p))


_enter("geom", logpmf=_geom_logpmf)


def _multinomial_logpmf(x: Any, count: Any, p: Any) -> Any:
    x, m, p = n.asarray(x), n.asarray(count), n.asarray(p)
    (y, q), total = _floats(x, p), _floats(m)[0]
    found = s.gammaln(total + 1) + (s.xlogy(y, q) - s.gammaln(y + 1)).sum(-1)
    return _within(x, x.sum(-1) == m, found)


_enter("multinomial", logpmf=lambda x, n, p: _multinomial_logpmf(x, n, p))
