"""Divergences between families, and constraints of parts."""
from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint import distributions as D
from adjoint.distributions import constraints, kl_cross


def f64(*values: float) -> Any:
    return ad.tensor(values, dtype=ad.float64)


MADE: dict[type, tuple[Any, ...]] = {
    D.Beta: (f64(1.5, 2.0), f64(0.7, 3.0)), D.ContinuousBernoulli: (f64(0.2, 0.7),),
    D.Exponential: (f64(0.5, 2.0),), D.Gamma: (f64(1.5, 2.0), f64(1.0, 3.0)),
    D.Gumbel: (f64(0.0, 1.0), f64(1.0, 2.0)), D.Laplace: (f64(0.0, 1.0), f64(1.0, 2.0)),
    D.Normal: (f64(0.0, 1.0), f64(1.0, 2.0)), D.Pareto: (f64(1.0, 2.0), f64(5.0, 6.0)),
    D.Uniform: (f64(0.1, 0.2), f64(0.6, 0.9)), D.Poisson: (f64(1.0, 4.0),),
    D.Bernoulli: (f64(0.2, 0.7),), D.Binomial: (3, f64(0.2, 0.7))}
FINITE = [(p, q) for p, qs in kl_cross._PAIRS.items() for q in qs]
INFINITE = [(p, q) for p, qs in kl_cross._NEVER.items() for q in qs]


def near(p: Any, q: Any) -> None:
    """The divergence is the mean of log p - log q over draws of p, within its error."""
    ad.manual_seed(0)
    draws = p.sample((40000,))
    gaps = (p.log_prob(draws) - q.log_prob(draws)).numpy()
    error = gaps.std(0) / math.sqrt(len(gaps)) + 1e-12
    assert (np.abs(gaps.mean(0) - D.kl_divergence(p, q).numpy()) < 5 * error).all()


@pytest.mark.parametrize("p, q", FINITE, ids=lambda c: c.__name__)
def test_a_divergence_between_families_is_the_mean_gap(p: Any, q: Any) -> None:
    tail = f64(2.0, 3.0)
    around = {D.Uniform: (f64(-0.1, -0.2), tail), D.Pareto: (f64(0.05, 0.1), tail)}
    near(p(*MADE[p]), q(*around.get(q, MADE[q])))


def test_divergences_of_reciprocals_and_halves() -> None:
    near(D.InverseGamma(f64(3.0, 2.5), f64(1.0, 3.0)), D.InverseGamma(f64(2.0, 4.0), f64(2.0, 1.0)))
    near(D.HalfCauchy(f64(1.0, 2.0)), D.HalfCauchy(f64(2.0, 0.5)))
    near(D.Bernoulli(f64(0.2, 0.7)), D.Poisson(f64(1.0, 0.3)))


@pytest.mark.parametrize("p, q", INFINITE, ids=lambda c: c.__name__)
def test_what_q_never_takes_is_infinitely_far(p: Any, q: Any) -> None:
    assert D.kl_divergence(p(*MADE[p]), q(*MADE[q])).tolist() == [math.inf] * 2


def test_an_interval_that_reaches_out_is_infinitely_far() -> None:
    wide = D.Uniform(f64(-0.5, 0.0, 0.5), f64(0.5, 1.5, 0.9))
    assert D.kl_divergence(wide, D.Beta(f64(2.0), f64(2.0))).isinf().tolist() == [
        True, True, False]
    assert D.kl_divergence(wide, D.Exponential(f64(1.0))).isinf().tolist() == [True, False, False]


@pytest.mark.parametrize("p, q", FINITE + INFINITE, ids=lambda c: c.__name__)
def test_divergences_are_pytorchs(p: Any, q: Any) -> None:
    torch = pytest.importorskip("torch")

    def theirs(kind: Any) -> Any:
        args = [torch.tensor(a.tolist(), dtype=torch.float64) if isinstance(a, ad.Tensor) else a
                for a in MADE[kind]]
        return getattr(torch.distributions, kind.__name__)(*args)

    mine = D.kl_divergence(p(*MADE[p]), q(*MADE[q])).numpy()
    np.testing.assert_allclose(
        mine, torch.distributions.kl_divergence(theirs(p), theirs(q)).numpy(), rtol=1e-9,
        atol=1e-12)


def test_constraints_of_parts_have_transforms() -> None:
    x = f64(0.3, 0.6)
    for registry in (D.biject_to, D.transform_to):
        joined = constraints.cat([constraints.positive, constraints.real], dim=-1)
        assert registry(joined)(x).tolist() == [math.exp(0.3), 0.6]
        piled = constraints.stack([constraints.real, constraints.positive], dim=0)
        assert registry(piled)(x).tolist() == [0.3, math.exp(0.6)]
    whole = D.transform_to(constraints.positive_semidefinite)
    assert isinstance(whole, D.PositiveDefiniteTransform)
    with pytest.raises(NotImplementedError, match="^Cannot transform _Boolean constraints"):
        D.biject_to(constraints.boolean)
    with pytest.raises(AssertionError, match="^All elements of tseq must be Transform instances"):
        D.CatTransform([3])


def test_a_mixture_whose_components_have_regions_of_their_own() -> None:
    m = D.MixtureSameFamily(D.Categorical(f64(0.3, 0.7)), D.Uniform(f64(0.0, 0.0), f64(1.0, 3.0)))
    wanted = math.log(0.3 + 0.7 / 3)
    np.testing.assert_allclose(m.log_prob(f64(0.5, 0.7, 0.2)).numpy(), [wanted] * 3, rtol=1e-12)
    with pytest.raises(ValueError, match="within the support .MixtureSameFamilyConstraint"):
        m.log_prob(f64(1.5))
