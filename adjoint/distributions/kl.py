"""`kl_divergence(p, q)`: closed forms by pair of classes, found along both inheritance chains."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from adjoint.base.errors import ArgumentError, NotSupported
from adjoint.distributions._ops import F
from adjoint.distributions.bernoulli import Bernoulli
from adjoint.distributions.beta import Beta
from adjoint.distributions.binomial import Binomial
from adjoint.distributions.categorical import Categorical
from adjoint.distributions.cauchy import Cauchy
from adjoint.distributions.constraints import refuted
from adjoint.distributions.dirichlet import Dirichlet
from adjoint.distributions.distribution import ExponentialFamily
from adjoint.distributions.exponential import Exponential
from adjoint.distributions.gamma import Gamma
from adjoint.distributions.geometric import Geometric
from adjoint.distributions.gumbel import Gumbel
from adjoint.distributions.half_normal import HalfNormal
from adjoint.distributions.independent import Independent
from adjoint.distributions.laplace import Laplace
from adjoint.distributions.lowrank_multivariate_normal import LowRankMultivariateNormal
from adjoint.distributions.multivariate_normal import MultivariateNormal
from adjoint.distributions.normal import Normal
from adjoint.distributions.one_hot_categorical import OneHotCategorical
from adjoint.distributions.pareto import Pareto
from adjoint.distributions.poisson import Poisson
from adjoint.distributions.transformed_distribution import TransformedDistribution
from adjoint.distributions.uniform import Uniform
from adjoint.distributions.utils import EULER, sum_rightmost
from adjoint.distributions.wishart import Wishart

_FORMULAS: dict[tuple[type, type], Callable[[Any, Any], Any]] = {}
Formula = Callable[[Any, Any], Any]


def register_kl(type_p: type, type_q: type) -> Callable[[Formula], Formula]:
    """Decorate a function (p, q) -> KL(p‖q) for a pair of classes; the most specific pair wins.
    The classes may be bases that libraries mix into distributions.

    >>> import adjoint as ad
    >>> class Point(ad.distributions.Normal): pass
    >>> @register_kl(Point, ad.distributions.Normal)
    ... def kl(p, q): return -q.log_prob(p.loc)
    """
    for name, given in (("type_p", type_p), ("type_q", type_q)):
        if not isinstance(given, type):
            raise TypeError(f"Expected {name} to be a Distribution subclass but got {given}")

    def enter(f: Formula) -> Formula:
        _FORMULAS[type_p, type_q] = f
        return f
    return enter


def kl_divergence(p: Any, q: Any) -> Any:
    """E_p[log p - log q], of the batch shape.

    Raises NotSupported (a NotImplementedError) for a pair without a closed form.

    >>> import adjoint as ad
    >>> n = ad.distributions.Normal
    >>> kl_divergence(n(1.0, 1.0), n(0.0, 1.0))
    tensor(0.5000)
    """
    best: tuple[int, int, int] | None = None
    formula: Any = None
    chain_p, chain_q = type(p).__mro__, type(q).__mro__
    for i, a in enumerate(chain_p):
        for j, b in enumerate(chain_q):
            found = _FORMULAS.get((a, b))
            if found is not None and (best is None or (i + j, i, j) < best):
                best, formula = (i + j, i, j), found
    if formula is None:
        raise NotSupported(f"No KL(p || q) is implemented for p type {type(p).__name__} and q type "
                           f"{type(q).__name__}: register_kl(...) enters a formula")
    return formula(p, q)


@register_kl(ExponentialFamily, ExponentialFamily)
def _kl_expfamily_expfamily(p: Any, q: Any) -> Any:
    """F(q) - F(p) - <q - p, F'(p)> in natural parameters: the Bregman divergence of F."""
    if type(p) is not type(q):
        raise NotSupported("The cross KL-divergence between different exponential families cannot "
                           f"be computed using Bregman divergences: {type(p).__name__} and "
                           f"{type(q).__name__}; register_kl(...) enters a formula")
    params, value, slopes = p._normalizer_slopes()
    found = q._log_normalizer(*q._natural_params) - value
    for a, b, s in zip(params, q._natural_params, slopes, strict=True):
        found = found - sum_rightmost((b - a) * s, len(q.event_shape))
    return found


@register_kl(Normal, Normal)
def _normal(p: Any, q: Any) -> Any:
    ratio = (p.scale / q.scale).square()
    gap = ((p.loc - q.loc) / q.scale).square()
    return 0.5 * (ratio + gap - 1 - ratio.log())


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: Any, q: Any) -> Any:
    ratio = (p.scale / q.scale).square()
    return 0.5 * (ratio - 1 - ratio.log())


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Any, q: Any) -> Any:
    one = p.probs * (F.softplus(-q.logits) - F.softplus(-p.logits))
    zero = (1 - p.probs) * (F.softplus(q.logits) - F.softplus(p.logits))
    one = F.where(p.probs == 0, 0.0, F.where(q.probs == 0, math.inf, one))
    return one + F.where(p.probs == 1, 0.0, F.where(q.probs == 1, math.inf, zero))


@register_kl(Categorical, Categorical)
def _categorical(p: Any, q: Any) -> Any:
    each = p.probs * (p.logits - q.logits)
    each = F.where((q.probs == 0).expand(each.shape), math.inf, each)
    return F.where((p.probs == 0).expand(each.shape), 0.0, each).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: Any, q: Any) -> Any:
    return _categorical(p._categorical, q._categorical)


@register_kl(Binomial, Binomial)
def _binomial(p: Any, q: Any) -> Any:
    if refuted(p.total_count >= q.total_count):
        raise NotSupported("KL between Binomials where q.total_count > p.total_count is not "
                           "implemented")
    one = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return F.where(p.total_count > q.total_count, math.inf, p.total_count * one)


@register_kl(Exponential, Exponential)
def _exponential(p: Any, q: Any) -> Any:
    ratio = q.rate / p.rate
    return ratio - 1 - ratio.log()


@register_kl(Gamma, Gamma)
def _gamma(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    return (b * (p.rate / q.rate).log() + b.lgamma() - a.lgamma() + (a - b) * a.digamma()
            + (q.rate - p.rate) * (a / p.rate))


@register_kl(Beta, Beta)
def _beta(p: Any, q: Any) -> Any:
    a, b, c, d = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    own, other = a + b, c + d
    return (c.lgamma() + d.lgamma() + own.lgamma() - a.lgamma() - b.lgamma() - other.lgamma()
            + (a - c) * a.digamma() + (b - d) * b.digamma() + (other - own) * own.digamma())


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    psi = a.digamma() - total.digamma().unsqueeze(-1)
    return (total.lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
            + ((a - b) * psi).sum(-1))


@register_kl(Geometric, Geometric)
def _geometric(p: Any, q: Any) -> Any:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(Poisson, Poisson)
def _poisson(p: Any, q: Any) -> Any:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Laplace, Laplace)
def _laplace(p: Any, q: Any) -> Any:
    ratio, gap = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + gap / q.scale + ratio * (-gap / p.scale).exp() - 1


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Any, q: Any) -> Any:
    up = ((p.scale + q.scale).square() + (p.loc - q.loc).square()).log()
    return up - (4 * p.scale * q.scale).log()


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Any, q: Any) -> Any:
    ratio, gap = p.scale / q.scale, (q.loc - p.loc) / q.scale
    return -ratio.log() - gap + (gap + (1 + ratio).lgamma()).exp() + ratio * EULER - (1 + EULER)


@register_kl(Pareto, Pareto)
def _pareto(p: Any, q: Any) -> Any:
    ratio = q.alpha / p.alpha
    found = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return F.where(p.scale < q.scale, math.inf, found)


@register_kl(Uniform, Uniform)
def _uniform(p: Any, q: Any) -> Any:
    found = ((q.high - q.low) / (p.high - p.low)).log()
    return F.where((q.low > p.low) | (q.high < p.high), math.inf, found)


@register_kl(Normal, Laplace)
def _normal_laplace(p: Any, q: Any) -> Any:
    gap = p.loc - q.loc
    z = gap / p.scale
    fold = (math.sqrt(2 / math.pi) * p.scale * (-0.5 * z.square()).exp()
            + gap * F.erf(math.sqrt(0.5) * z))
    return -p.entropy() + fold / q.scale + (2 * q.scale).log()


def _matrices(d: Any) -> tuple[Any, Any]:
    """(mean, lower Cholesky factor of the covariance) of a multivariate normal."""
    return d.loc, d.scale_tril


@register_kl(Wishart, Wishart)
def _wisharts(p: Any, q: Any) -> Any:
    if p.event_shape != q.event_shape:
        raise ArgumentError("KL-divergence between two Wisharts with different event shapes cannot "
                            f"be computed: {p.event_shape} and {q.event_shape}")
    n = p.event_shape[-1]
    batch = F.broadcast_shapes(tuple(p.batch_shape), tuple(q.batch_shape))
    other, root = (d.scale_tril.expand((*batch, n, n)) for d in (q, p))
    trace = F.solve_triangular(other, root, upper=False).square().sum((-2, -1))
    return (q._log_norm() - p._log_norm() + (p.df - q.df) / 2 * p._mean_log_det()
            + p.df / 2 * (trace - n))


@register_kl(MultivariateNormal, MultivariateNormal)
@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _multivariate(p: Any, q: Any) -> Any:
    if p.event_shape != q.event_shape:
        raise ArgumentError("KL-divergence between two Multivariate Normals with different event "
                            f"shapes cannot be computed: {p.event_shape} and {q.event_shape}")
    (a, root), (b, other) = _matrices(p), _matrices(q)
    n = p.event_shape[0]
    batch = F.broadcast_shapes(tuple(root.shape[:-2]), tuple(other.shape[:-2]))
    other, root = other.expand((*batch, n, n)), root.expand((*batch, n, n))
    trace = F.solve_triangular(other, root, upper=False).square().sum((-2, -1))
    gap = (b - a).expand((*batch, n)).unsqueeze(-1)
    far = F.solve_triangular(other, gap, upper=False).square().sum((-2, -1))
    log = (other.diagonal(0, -2, -1).log() - root.diagonal(0, -2, -1).log()).sum(-1)
    return log + 0.5 * (trace + far - n)


@register_kl(Independent, Independent)
def _independent(p: Any, q: Any) -> Any:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotSupported("KL between Independent distributions of "
                           f"{p.reinterpreted_batch_ndims} and {q.reinterpreted_batch_ndims} "
                           "reinterpreted axes")
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: Any, q: Any) -> Any:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotSupported("KL between distributions under different transforms")
    return kl_divergence(p.base_dist, q.base_dist)


__all__ = ["kl_divergence", "register_kl"]
