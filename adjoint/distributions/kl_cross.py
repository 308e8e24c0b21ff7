"""`kl_divergence` between families: -H(p) - E_p[log q], from moments of p.

What E_p[log q] needs of p is a mean, a variance, E[log x], E[log(1 - x)] or E[exp(-t x)]; a pair
whose p has them is entered here. Where p may fall outside of q's support the divergence is inf.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from adjoint.distributions._ops import F
from adjoint.distributions.bernoulli import Bernoulli
from adjoint.distributions.beta import Beta
from adjoint.distributions.binomial import Binomial
from adjoint.distributions.continuous_bernoulli import ContinuousBernoulli
from adjoint.distributions.exponential import Exponential
from adjoint.distributions.gamma import Gamma
from adjoint.distributions.gumbel import Gumbel
from adjoint.distributions.half_cauchy import HalfCauchy
from adjoint.distributions.inverse_gamma import InverseGamma
from adjoint.distributions.kl import kl_divergence, register_kl
from adjoint.distributions.laplace import Laplace
from adjoint.distributions.normal import Normal
from adjoint.distributions.pareto import Pareto
from adjoint.distributions.poisson import Poisson
from adjoint.distributions.uniform import Uniform
from adjoint.distributions.utils import EULER

Moment = Callable[..., Any]


def _area_of_log(x: Any) -> Any:
    """The integral of log from 0 to x, plus x."""
    return F.xlogy(x, x)


# E[log x] of p on the positive numbers
MEAN_LOG: dict[type, Moment] = {
    Beta: lambda p: p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma(),
    Exponential: lambda p: -EULER - p.rate.log(),
    Gamma: lambda p: p.concentration.digamma() - p.rate.log(),
    Pareto: lambda p: p.scale.log() + 1 / p.alpha,
    Uniform: lambda p: (_area_of_log(p.high) - _area_of_log(p.low)) / (p.high - p.low) - 1,
}
# E[log(1 - x)] of p on [0, 1]
MEAN_LOG_REST: dict[type, Moment] = {
    Beta: lambda p: p.concentration0.digamma() - (p.concentration1 + p.concentration0).digamma(),
    Uniform: lambda p: ((_area_of_log(1 - p.low) - _area_of_log(1 - p.high)) / (p.high - p.low)
                        - 1),
}
# E[exp(-t x)] of p
DECAY: dict[type, Moment] = {
    Exponential: lambda p, t: p.rate / (p.rate + t),
    Gamma: lambda p, t: (p.rate / (p.rate + t)) ** p.concentration,
    Normal: lambda p, t: (p.scale.square() * t.square() / 2 - p.loc * t).exp(),
    Uniform: lambda p, t: ((-p.low * t).exp() - (-p.high * t).exp()) / (t * (p.high - p.low)),
}
# E_p[log q]: q and the kind of p it is taken for
EXPECTED: dict[type, Moment] = {
    Beta: lambda p, q, kind: (
        (q.concentration1 - 1) * MEAN_LOG[kind](p) + (q.concentration0 - 1)
        * MEAN_LOG_REST[kind](p) + (q.concentration1 + q.concentration0).lgamma()
        - q.concentration1.lgamma() - q.concentration0.lgamma()),
    ContinuousBernoulli: lambda p, q, kind: q.log_prob(F.zeros_like(q.probs)) + p.mean * q.logits,
    Exponential: lambda p, q, kind: q.rate.log() - q.rate * p.mean,
    Gamma: lambda p, q, kind: (q.concentration * q.rate.log() - q.concentration.lgamma()
                               + (q.concentration - 1) * MEAN_LOG[kind](p) - q.rate * p.mean),
    Gumbel: lambda p, q, kind: (-q.scale.log() - (p.mean - q.loc) / q.scale
                                - (q.loc / q.scale).exp() * DECAY[kind](p, 1 / q.scale)),
    Normal: lambda p, q, kind: (-(math.sqrt(2 * math.pi) * q.scale).log()
                                - (p.variance + (p.mean - q.loc).square())
                                / (2 * q.scale.square())),
    Pareto: lambda p, q, kind: (q.alpha.log() + q.alpha * q.scale.log()
                                - (q.alpha + 1) * MEAN_LOG[kind](p)),
    Uniform: lambda p, q, kind: -(q.high - q.low).log(),
}
_SUPPORT: dict[type, Callable[[Any], tuple[Any, Any]]] = {
    Beta: lambda d: (0.0, 1.0), ContinuousBernoulli: lambda d: (0.0, 1.0),
    Exponential: lambda d: (0.0, math.inf), Gamma: lambda d: (0.0, math.inf),
    Pareto: lambda d: (d.scale, math.inf), Uniform: lambda d: (d.low, d.high),
    Gumbel: lambda d: (-math.inf, math.inf), Laplace: lambda d: (-math.inf, math.inf),
    Normal: lambda d: (-math.inf, math.inf),
}
# p -> the q that it has the moments for; all others of p's row are never reached
_PAIRS: dict[type, tuple[type, ...]] = {
    Beta: (ContinuousBernoulli, Exponential, Gamma, Normal, Uniform),
    ContinuousBernoulli: (ContinuousBernoulli, Exponential, Normal, Uniform),
    Exponential: (Gamma, Gumbel, Normal),
    Gamma: (Exponential, Gumbel, Normal),
    Gumbel: (Normal,),
    Laplace: (Normal,),
    Normal: (Gumbel,),
    Pareto: (Exponential, Gamma, Normal),
    Uniform: (Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Normal, Pareto),
}
# p reaches values that q never takes, whatever their parameters
_NEVER: dict[type, tuple[type, ...]] = {
    Beta: (Pareto,),
    ContinuousBernoulli: (Pareto,),
    Exponential: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gamma: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gumbel: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Laplace: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Normal: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Pareto: (Beta, ContinuousBernoulli, Uniform),
    Poisson: (Bernoulli, Binomial),
}


def _outside(inner: Any, outer: Any) -> Any:
    """Where the interval ``inner`` is not within ``outer``: a truth value or a tensor of them."""
    (a, b), (low, high) = inner, outer
    return (low > a) | (high < b)


def _finite(kind_p: type, kind_q: type) -> Callable[[Any, Any], Any]:
    def divergence(p: Any, q: Any) -> Any:
        found = -p.entropy() - EXPECTED[kind_q](p, q, kind_p)
        out = _outside(_SUPPORT[kind_p](p), _SUPPORT[kind_q](q))
        if isinstance(out, bool):       # both supports are fixed, and fit
            return found
        return F.where(out, math.inf, found)
    return divergence


def _infinite(p: Any, q: Any) -> Any:
    return F.full_like(getattr(p, next(iter(p.arg_constraints))), math.inf)


for _p, _reached in _PAIRS.items():
    for _q in _reached:
        register_kl(_p, _q)(_finite(_p, _q))
for _p, _missed in _NEVER.items():
    for _q in _missed:
        register_kl(_p, _q)(_infinite)


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Any, q: Any) -> Any:
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)


@register_kl(HalfCauchy, HalfCauchy)
def _half_cauchy(p: Any, q: Any) -> Any:
    """That of the Cauchy distributions they are halves of, both around 0."""
    return 2 * (p.scale + q.scale).log() - (4 * p.scale * q.scale).log()


@register_kl(InverseGamma, InverseGamma)
def _inverse_gamma(p: Any, q: Any) -> Any:
    """That of the reciprocals."""
    return kl_divergence(Gamma(p.concentration, p.rate), Gamma(q.concentration, q.rate))


__all__: list[str] = []
