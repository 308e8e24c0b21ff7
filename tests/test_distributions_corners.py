"""adjoint.distributions: refusals in words, sizes of zero, tails, and what PyTorch lacks."""
import math
import pickle

import numpy as np
import pytest
from helpers_distributions import TRIL, numbers, pos, real

import adjoint as ad
from adjoint import distributions as D
from adjoint.autograd import grad
from adjoint.distributions import constraints


@pytest.mark.parametrize("call, text", [
    (lambda: D.Normal(ad.zeros(2), ad.tensor([1.0, -1.0])), r"Expected parameter scale .*Normal"),
    (lambda: D.Normal(0.0, 1.0).log_prob(3), "must be a Tensor"),
    (lambda: D.Categorical(ad.ones(3)).log_prob(ad.tensor(5)), "within the support"),
    (lambda: D.Categorical(probs=ad.ones(3), logits=ad.ones(3)), "but not both"),
    (lambda: D.Bernoulli(), "but not both"),
    (lambda: D.Categorical(ad.tensor(1.0)), "at least one-dimensional"),
    (lambda: D.Dirichlet(ad.tensor(1.0)), "at least one-dimensional"),
    (lambda: D.Exponential(1.0).log_prob(ad.tensor([-1.0])), "within the support"),
    (lambda: D.MultivariateNormal(ad.zeros(2), ad.eye(2)).log_prob(ad.zeros(3)), "right-most size"),
    (lambda: D.Normal(ad.zeros(3), 1.0).log_prob(ad.zeros(2)), "not broadcastable"),
    (lambda: D.MultivariateNormal(ad.zeros(2)), "Exactly one of"),
    (lambda: D.MultivariateNormal(ad.zeros(2), ad.eye(3)), "must be"),
    (lambda: D.MultivariateNormal(ad.zeros(2), -ad.eye(2)), "covariance_matrix"),
    (lambda: D.Uniform(1.0, 0.0), "low>= high"),
    (lambda: D.Normal("a", 1.0), "instances of Number, torch.Tensor"),
    (lambda: D.Independent(D.Normal(0.0, 1.0), 1), "reinterpreted_batch_ndims"),
    (lambda: D.MixtureSameFamily(D.Categorical(ad.ones(3)), D.Normal(ad.zeros(2), 1.0)), "equal"),
    (lambda: D.MixtureSameFamily(3, D.Normal(ad.zeros(2), 1.0)), "instance"),
    (lambda: D.TransformedDistribution(D.Normal(0.0, 1.0), 3), "iterable|Transform"),
    (lambda: D.Distribution.set_default_validate_args(3), "bool"),
    (lambda: D.Multinomial(-1, ad.ones(2)), "total_count"),
])
def test_bad_input_is_refused_in_words(call, text):
    with pytest.raises((ValueError, TypeError), match=text):
        call()


def test_what_a_distribution_lacks_is_not_implemented():
    for call in (lambda: D.Categorical(ad.ones(3)).rsample(), lambda: D.Gamma(1.0, 1.0).icdf(
            ad.tensor(0.5)), lambda: D.kl_divergence(D.Normal(0.0, 1.0), D.Poisson(1.0)),
            lambda: D.Multinomial(ad.tensor(3), ad.ones(2))):
        with pytest.raises(NotImplementedError):
            call()
    free = D.Normal(0.0, -1.0, validate_args=False)
    assert math.isnan(free.log_prob(ad.tensor(0.0)).item())
    with pytest.warns(FutureWarning):
        assert D.Normal(0.0, 1.0).sample_n(3).shape == (3,)


def test_every_public_class_of_torch_is_here_or_named_absent():
    torch = pytest.importorskip("torch")
    absent = set(torch.distributions.__all__) - set(D.__all__)
    assert not absent


def test_binomial_draws():
    ad.manual_seed(0)
    x = ad.binomial(ad.full((4000,), 10.0), ad.tensor(0.3))
    assert x.dtype == ad.float32 and abs(x.mean().item() - 3) < 5 * math.sqrt(2.1 / 4000)
    with pytest.raises(ValueError, match="probabilities in"):
        ad.binomial(ad.ones(2), ad.tensor(1.5))


def test_dtypes_and_zero_sized_batches():
    for dtype in (ad.float64, ad.float32, ad.float16):
        d = D.Normal(ad.zeros(2, dtype=dtype), ad.ones(2, dtype=dtype))
        assert d.rsample().dtype == d.log_prob(ad.zeros(2, dtype=dtype)).dtype == dtype
    g = D.Gamma(ad.ones(2, dtype=ad.float64), 1.0)
    assert g.sample((3,)).dtype == ad.float64
    empty = D.Normal(ad.zeros(0), 1.0)
    assert empty.sample((2,)).shape == (2, 0) and empty.log_prob(ad.zeros(0)).shape == (0,)
    assert D.Categorical(ad.ones(0, 3)).sample((2,)).shape == (2, 0)
    ad.manual_seed(9)
    first = D.Gamma(2.0, 1.0).sample((3,))
    ad.manual_seed(9)
    assert first.equal(D.Gamma(2.0, 1.0).sample((3,)))


def test_draws_of_correlation_factors_have_the_known_marginals():
    """An entry of the correlation matrix is 2 Beta(a, a) - 1 with a = η - 1 + dim/2 (Lewandowski
    and others 2009)."""
    stats = pytest.importorskip("scipy.stats")
    ad.manual_seed(3)
    d = D.LKJCholesky(4, ad.tensor([0.7, 3.0], dtype=ad.float64))
    root = d.sample((3000,))
    assert root.shape == (3000, 2, 4, 4) and constraints.corr_cholesky.check(root).all()
    matrix = numbers(root @ root.mT)
    for k, eta in enumerate((0.7, 3.0)):
        a = eta - 1 + 4 / 2
        for i, j in ((1, 0), (3, 0), (3, 2)):
            x = (matrix[:, k, i, j] + 1) / 2
            assert stats.kstest(x, stats.beta(a, a).cdf).pvalue > 1e-4
    with pytest.raises(ValueError, match="dim to be an integer greater than or equal to 2"):
        D.LKJCholesky(1)


def test_wishart_refuses_and_differentiates_its_draws():
    with pytest.raises(ValueError, match="greater than ndim - 1 = 1"):
        D.Wishart(ad.tensor(1.0), ad.eye(2))
    with pytest.raises(ValueError, match="Exactly one of covariance_matrix"):
        D.Wishart(ad.tensor(3.0))
    with pytest.warns(UserWarning, match="Low df values"):
        D.Wishart(ad.tensor(1.5), ad.eye(2))
    df = ad.tensor(5.0, dtype=ad.float64, requires_grad=True)
    root = ad.tensor(TRIL, requires_grad=True)
    draw = D.Wishart(df, scale_tril=root).rsample((2,))
    assert constraints.positive_definite.check(draw).all()
    assert all(g.isfinite().all() and g.abs().sum() > 0 for g in grad(draw.sum(), [df, root]))


def test_positive_semidefinite():
    semi = ad.tensor([[[1.0, 0.0], [0.0, 0.0]], [[1.0, 0.0], [0.0, -1.0]]])
    assert constraints.positive_semidefinite.check(semi).tolist() == [True, False]
    assert constraints.positive_semidefinite.event_dim == 2


TAILS = np.array([0.3, 0.0, -0.2, 1.5])


def test_generalized_pareto_equals_scipy_and_torch():
    stats = pytest.importorskip("scipy.stats")
    loc, scale, x = real(4), pos(4) + 4, pos(3, 4) + 3
    d = D.GeneralizedPareto(*(ad.tensor(v, requires_grad=True) for v in (loc, scale, TAILS)))
    known = stats.genpareto(TAILS, loc, scale)
    for mine, expect in ((d.log_prob(ad.tensor(x)), known.logpdf(x)),
                         (d.cdf(ad.tensor(x)), known.cdf(x)),
                         (d.log_cdf(ad.tensor(x)), known.logcdf(x)),
                         (d.icdf(ad.tensor(known.cdf(x))), x),
                         (d.log_survival_function(ad.tensor(x)), known.logsf(x)),
                         (d.entropy(), known.entropy()),
                         (d.mean[:3], known.mean()[:3]), (d.variance[:3], known.var()[:3])):
        np.testing.assert_allclose(numbers(mine), expect, rtol=1e-9)
    assert d.mean[3].item() == d.variance[3].item() == math.inf
    assert d.support.upper_bound.isinf().tolist() == [True, True, False, True]
    draws = numbers(d.rsample((4000,)))
    for k in range(4):
        one = stats.genpareto(TAILS[k], loc[k], scale[k])
        assert stats.kstest(draws[:, k], one.cdf).pvalue > 1e-4
    torch = pytest.importorskip("torch")
    theirs = [torch.tensor(v.astype(np.float32), requires_grad=True) for v in (loc, scale, TAILS)]
    e = torch.distributions.GeneralizedPareto(*theirs).log_prob(torch.tensor(x.astype(np.float32)))
    held = [d.loc, d.scale, d.concentration]
    for g, w in zip(grad(d.log_prob(ad.tensor(x)).sum(), held),
                    torch.autograd.grad(e.sum(), theirs), strict=True):
        np.testing.assert_allclose(numbers(g)[[0, 2, 3]], w.numpy()[[0, 2, 3]], rtol=1e-4)
    assert D.GeneralizedPareto(0.0, 1.0, 0.5).expand((3,)).sample((2,)).shape == (2, 3)


def test_divergence_of_batches_of_wisharts():
    """Against the mean of log p - log q over draws: PyTorch's is another number for batches."""
    ad.manual_seed(1)
    p = D.Wishart(ad.tensor([5.0, 6.0], dtype=ad.float64), scale_tril=ad.tensor(TRIL))
    q = D.Wishart(ad.tensor(7.0, dtype=ad.float64), ad.tensor(TRIL @ TRIL.T * 1.5))
    draws = p.sample((20000,))
    gaps = numbers(p.log_prob(draws) - q.log_prob(draws))
    error = gaps.std(0) / np.sqrt(len(gaps))
    assert (np.abs(gaps.mean(0) - numbers(D.kl_divergence(p, q))) < 4 * error).all()


@pytest.mark.parametrize("d", [
    D.HalfNormal(ad.tensor([0.5, 2.0])), D.HalfCauchy(ad.tensor([0.5, 2.0])),
    D.Gumbel(ad.tensor([0.0, 1.0]), ad.tensor([1.0, 2.0])),
    D.Pareto(ad.tensor([1.0, 2.0]), ad.tensor([2.0, 3.0])),
    D.Weibull(ad.tensor([1.0, 2.0]), ad.tensor([1.5, 2.0])),
    D.Kumaraswamy(ad.tensor([0.5, 2.0]), ad.tensor([3.0, 2.0])),
    D.InverseGamma(ad.tensor([1.5, 3.0]), ad.tensor([1.0, 2.0])),
], ids=lambda d: type(d).__name__)
def test_pushed_distributions_are_their_base_through_their_transforms(d):
    """Their densities are formulas of their own: the change of variables gives the same."""
    assert isinstance(d, D.TransformedDistribution)
    pushed = D.TransformedDistribution(d.base_dist, d.transforms)
    x = d.sample((5,))
    if "Half" in type(d).__name__:          # abs has no one inverse: the density of both halves
        expected = d.base_dist.log_prob(x) + ad.tensor(2.0).log()
    else:
        expected = pushed.log_prob(x)
    assert ad.allclose(d.log_prob(x), expected, rtol=1e-4, atol=1e-4)
    wide = d.expand((3, 2))
    assert wide.base_dist.batch_shape == (3, 2) and wide.sample().shape == (3, 2)


def test_parameters_computed_from_others_are_checked():
    for df in (float("nan"), -2.0):
        with pytest.raises(ValueError, match="Expected parameter df .* of distribution Chi2"):
            D.Chi2(ad.tensor([1.0, df]))


def test_inverses_are_kept_and_edges_of_the_sigmoid_are_finite():
    for t in (D.ComposeTransform([D.ExpTransform(), D.AffineTransform(0, 2.0)]),
              D.ExpTransform(), D.ExpTransform().inv):
        back = t.inv
        assert t.inv is back and back.inv is t
        assert pickle.loads(pickle.dumps(t)).inv.inv is not t
    edge = D.SigmoidTransform().inv(ad.tensor([0.0, 1.0]))
    assert edge.isfinite().all() and edge[0] < -80 and edge[1] > 15


def test_what_is_absent_is_named_with_its_class():
    with pytest.raises(NotImplementedError, match="LKJCholesky'> does not implement mode"):
        _ = D.LKJCholesky(3).mode


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(RuntimeError, match=r"tensor a \(5\) must match .* tensor b \(3\)"):
        D.Normal(ad.zeros(7, 5), ad.ones(3))
    with pytest.raises(RuntimeError, match=r"length 3 at -1! Mismatching argument at index 1"):
        ad.broadcast_shapes((7, 5), (3,))
    with pytest.raises(RuntimeError, match="negative length"):
        ad.broadcast_shapes((-1,))
