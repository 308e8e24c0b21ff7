"""How Beta and Dirichlet draws move with their concentrations: each coordinate's quantile."""
import numpy as np
import pytest

import adjoint as ad
from adjoint import distributions as D
from adjoint.autograd import grad
from adjoint.kernels.dirichlet import digamma_rise, dirichlet_slope


def points(n, exponents, seed):
    """n triples (x, a, b), half of them drawn from their beta distribution, half from anywhere."""
    r = np.random.default_rng(seed)
    a, b = (10 ** r.uniform(*exponents, n) for _ in "ab")
    x = r.beta(a, b)
    x[::2] = 1 / (1 + np.exp(-r.uniform(-9, 9, len(x[::2]))))
    return np.clip(x, 1e-300, 1 - 1e-12), a, b


def test_the_slope_is_that_of_the_quantile():
    """For b = 1, F = x^a: dx/da = -x log x / a; for a = b = 1/2 and elsewhere by the difference of
    quantiles that SciPy finds, to the precision of such a difference."""
    special = pytest.importorskip("scipy.special")
    x = np.array([1e-300, 1e-12, 1e-3, 0.3, 0.7, 0.999, 1 - 1e-12])[:, None]
    a = np.array([1e-3, 0.2, 1.0, 7.0, 300.0, 1e5])
    exact = -x * np.log(x) / a / (1 - x)
    np.testing.assert_allclose(dirichlet_slope(x, a, a + 1.0), exact, rtol=2e-9, atol=0)
    assert dirichlet_slope(x, 1e-3 * a, 1e-3 * a + 1.0).min() > 0
    x, a, b = points(400, (-1, 2), 5)
    u, v = special.betainc(a, b, x), special.betaincc(a, b, x)
    step = 1e-4 * a
    at = [np.where(u < v, special.betaincinv(a + h, b, u), special.betainccinv(a + h, b, v))
          for h in (step, -step)]
    keep = (np.minimum(u, v) > 1e-12) & (x < 0.999)
    central = ((at[0] - at[1]) / (2 * step) / (1 - x))[keep]
    assert keep.sum() > 250
    np.testing.assert_allclose(dirichlet_slope(x, a, a + b)[keep], central, rtol=3e-6)


def test_digits_where_a_part_is_small():
    # digamma(a + b) - digamma(a) by its series in b
    for a in (1.0, 40.0):
        first, second, third = (ad.special.polygamma(k, ad.tensor(a, dtype=ad.float64)).item()
                                for k in (1, 2, 3))
        for b, rest in ((1e-12, 1e-13), (1e-6, 1e-13), (1e-3, 1e-9)):
            series = b * (first + b * (second / 2 + b * third / 6))
            assert digamma_rise(np.array([a]), np.array([b])).item() == pytest.approx(series, rest)
    ends = dirichlet_slope(np.array([0.0, 1.0, 0.5, 0.5, -1.0, 2.0, np.nan]),
                           np.array([2.0, 1.0, 0.0, -1.0, 1.0, 1.0, 1.0]),
                           np.array([5.0, 6.0, 2.0, 2.0, 2.0, 2.0, 2.0]))
    np.testing.assert_allclose(ends[:2], [0.0, (1 + 1 / 2 + 1 / 3 + 1 / 4 + 1 / 5) / 5])
    assert np.isnan(ends[2:]).all()
    assert dirichlet_slope(np.zeros((0, 3)), 1.0, 2.0).shape == (0, 3)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_as_pytorch_point_by_point(dtype):
    """Its formulas are approximations, to 3e-3 where draws fall."""
    torch = pytest.importorskip("torch")
    x, a, b = (v.astype(dtype) for v in points(4000, (-2, 2), 7))
    inside = np.arange(4000) % 2 == 1
    x = np.clip(x, np.finfo(dtype).tiny, 1 - np.float32(1e-3)) if dtype == "float32" else x
    mine = ad._dirichlet_grad(*map(ad.tensor, (x, a, a + b)))
    theirs = torch._dirichlet_grad(*map(torch.tensor, (x, a, a + b)))
    assert str(mine.dtype) == f"adjoint.{dtype}"
    np.testing.assert_allclose(mine.numpy()[inside], theirs.numpy()[inside], rtol=4e-3)
    g = np.maximum(np.random.default_rng(8).gamma(a), 1e-30).astype(dtype)
    np.testing.assert_allclose(ad._standard_gamma_grad(ad.tensor(a), ad.tensor(g)).numpy(),
                               torch._standard_gamma_grad(torch.tensor(a), torch.tensor(g)).numpy(),
                               rtol=4e-3)


def test_gradients_of_draws_as_pytorch_sample_by_sample():
    torch = pytest.importorskip("torch")
    a = np.array([[0.3, 2.0, 40.0], [5.0, 0.7, 1.0]])
    found = []
    for lib in (ad, torch):
        lib.manual_seed(3)
        p, q = (lib.tensor(v, requires_grad=True) for v in (a, a[::-1].copy()))
        dirichlet = lib.distributions.Dirichlet(p).rsample((5,))
        beta = lib.distributions.Beta(p, q).rsample((5,))
        weight = lib.arange(30.0, dtype=lib.float64).reshape(5, 2, 3)
        both = [lib.autograd.grad((d * weight).sum(), w, retain_graph=True)[0]
                for d, w in ((dirichlet, p), (beta, p), (beta, q))]
        found.append([v.detach().numpy() for v in (dirichlet, beta, *both)])
    for k, (mine, theirs) in enumerate(zip(*found, strict=True)):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6 if k < 2 else 5e-3, atol=2e-3)


def test_both_directions_batches_and_levels_agree():
    a = ad.tensor([[0.4, 2.0, 9.0], [1.0, 0.2, 3.0]], dtype=ad.float64)

    def draw(v):
        ad.manual_seed(1)
        return ad._sample_dirichlet(v)
    back, forth = ad.func.jacrev(draw)(a), ad.func.jacfwd(
        draw, randomness="same")(a)
    np.testing.assert_allclose(back.numpy(), forth.numpy(), rtol=1e-10, atol=1e-14)
    assert back[0, :, 1].abs().max() == 0 and back[0, :, 0].abs().min() > 0
    np.testing.assert_allclose(back[0, :, 0].sum(0).numpy(), 0, atol=1e-12)   # shares sum to 1
    each = ad.vmap(ad.func.jacrev(lambda v: ad._sample_dirichlet(v)), randomness="different")(a)
    assert each.shape == (2, 3, 3) and each.abs().min() > 0
    assert ad.vmap(ad._sample_dirichlet, randomness="different")(a).sum(-1).allclose(
        ad.ones(2, dtype=ad.float64))
    p = a.clone().requires_grad_()
    g, = grad(ad._sample_dirichlet(p)[0, 0], p, create_graph=True)
    with pytest.raises(NotImplementedError, match="Dirichlet variate"):
        grad(g.sum(), p)


def test_draws_stay_inside_and_take_a_generator():
    tiny = ad.finfo(ad.float32).tiny
    x = D.Dirichlet(ad.full((50, 4), 1e-3)).sample()
    assert (x >= tiny).all() and x.isfinite().all()
    assert (ad._standard_gamma(ad.full((50,), 1e-3)) >= tiny).all()
    one, two = (ad._sample_dirichlet(ad.ones(3), ad.Generator().manual_seed(4)) for _ in "ab")
    before = ad.get_rng_state()
    three = ad._standard_gamma(ad.ones(3), generator=ad.Generator().manual_seed(4))
    assert one.equal(two) and (three / three.sum()).allclose(one)
    assert before.equal(ad.get_rng_state())
