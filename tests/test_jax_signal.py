"""jax.scipy's spectra, densities of samples, interpolation and rotations, against SciPy's."""
import numpy as np
import pytest

import adjoint.jax as jax
import adjoint.jax.numpy as jnp
from adjoint.jax.scipy import signal, stats
from adjoint.jax.scipy.interpolate import RegularGridInterpolator
from adjoint.jax.scipy.spatial.transform import Rotation, Slerp

sp = pytest.importorskip("scipy")
_R = np.random.RandomState(0)
X = _R.randn(2, 40)


@pytest.fixture(autouse=True)
def wide():
    with jax.enable_x64(True):
        yield


def agree(found, want, tol=1e-10):
    for a, b in zip(found, want, strict=True):
        assert a.shape == np.shape(b)
        np.testing.assert_allclose(a, b, atol=tol, rtol=tol)


@pytest.mark.parametrize("options", [
    {}, {"boundary": None, "padded": False}, {"boundary": "odd"}, {"boundary": "even", "nfft": 20},
    {"boundary": "constant", "detrend": "linear"}, {"return_onesided": False, "noverlap": 3},
    {"window": ("tukey", 0.3), "fs": 10.0}, {"axis": 0, "nperseg": 2}], ids=str)
def test_stft_is_scipys_and_istft_its_inverse(options):
    import scipy.signal
    given = {"nperseg": 16, **options}
    agree(signal.stft(X, **given), scipy.signal.stft(X, **given))
    if set(options) <= {"fs"}:
        back = signal.istft(signal.stft(X, **given)[2], nperseg=16)[1]
        np.testing.assert_allclose(back[:, :40], X, atol=1e-12)


@pytest.mark.parametrize("options", [
    {}, {"scaling": "spectrum", "average": "median"}, {"detrend": "linear", "fs": 3.0},
    {"detrend": False, "noverlap": 0}, {"return_onesided": False, "nperseg": 15}], ids=str)
def test_spectral_densities_are_scipys(options):
    import scipy.signal
    given = {"nperseg": 16, **options}
    agree(signal.welch(X, **given), scipy.signal.welch(X, **given))
    agree(signal.csd(X, X[:, ::-1], **given), scipy.signal.csd(X, X[:, ::-1], **given))


def test_detrend_in_pieces_and_its_derivative():
    import scipy.signal
    for options in ({}, {"type": "constant"}, {"bp": [3, 20]}, {"axis": 0}):
        np.testing.assert_allclose(signal.detrend(X, **options),
                                   scipy.signal.detrend(X, **options), atol=1e-12)
    x = jnp.arange(4.0) ** 2
    g = jax.grad(lambda v: (signal.detrend(v) ** 2).sum())(x)
    np.testing.assert_allclose(g, [2, -2, -2, 2], atol=1e-12)


def test_refusals_of_spectra():
    for options, words in (({"noverlap": 16}, "noverlap must be less than nperseg"),
                           ({"nfft": 8}, "nfft must be greater than or equal to nperseg"),
                           ({"boundary": "x"}, "Unknown boundary option"),
                           ({"window": np.ones(9)}, "value specified for nperseg is different")):
        with pytest.raises(ValueError, match=words):
            signal.stft(X, **{"nperseg": 16, **options})
    with pytest.raises(ValueError, match="Input stft must be at least 2d"):
        signal.istft(X[0])


def test_the_density_of_a_sample():
    import scipy.stats
    at = _R.randn(2, 3)
    for method, weights in ((None, None), ("silverman", np.arange(1.0, 41)), (0.5, None)):
        ours = stats.gaussian_kde(X, method, weights)
        theirs = scipy.stats.gaussian_kde(X, method, weights)
        np.testing.assert_allclose(ours(at), theirs(at), rtol=1e-10)
        np.testing.assert_allclose(ours.logpdf(at), theirs.logpdf(at), rtol=1e-10)
        np.testing.assert_allclose(ours.integrate_kde(ours), theirs.integrate_kde(theirs))
        np.testing.assert_allclose(ours.integrate_gaussian(at[:, 0], np.eye(2)),
                                   theirs.integrate_gaussian(at[:, 0], np.eye(2)))
        np.testing.assert_allclose(jax.jit(lambda k: k(at))(ours), ours(at))
    one, same = stats.gaussian_kde(X[0]), scipy.stats.gaussian_kde(X[0])
    np.testing.assert_allclose(one.integrate_box_1d(-1, 1), same.integrate_box_1d(-1, 1))
    assert one.resample(jax.random.key(0), (5,)).shape == (1, 5)
    with pytest.raises(ValueError, match="points have dimension 3, dataset has dimension 2"):
        stats.gaussian_kde(X)(np.zeros((3, 2)))


def test_values_between_the_points_of_a_grid():
    import scipy.interpolate
    grid, values = ([0.0, 1, 2], [0.0, 2, 3, 5]), _R.randn(3, 4, 2)
    at = np.array([[0.5, 0.5], [1.5, 4.0], [2.0, 5.0], [3.0, 1.0]])
    for options in ({}, {"method": "nearest"}, {"fill_value": 0.0}):
        ours = RegularGridInterpolator(grid, values, **options)
        theirs = scipy.interpolate.RegularGridInterpolator(grid, values, bounds_error=False,
                                                           **options)
        np.testing.assert_allclose(ours(at), theirs(at), rtol=1e-12)
    f = RegularGridInterpolator(grid, values[..., 0])
    g = jax.grad(lambda p: f(p)[0])(jnp.array([[0.5, 0.5]]))
    v = values[..., 0]
    np.testing.assert_allclose(g[0, 0], 0.75 * (v[1, 0] - v[0, 0]) + 0.25 * (v[1, 1] - v[0, 1]))
    with pytest.raises(ValueError, match="method 'cubic' is not defined"):
        RegularGridInterpolator(grid, values, "cubic")


def test_rotations_are_scipys():
    from scipy.spatial.transform import Rotation as Theirs
    from scipy.spatial.transform import Slerp as TheirSlerp
    vectors = _R.randn(3, 3)
    ours, theirs = Rotation.from_rotvec(vectors), Theirs.from_rotvec(vectors)
    for name in ("as_matrix", "as_mrp", "as_rotvec", "magnitude"):
        np.testing.assert_allclose(getattr(ours, name)(), getattr(theirs, name)(), atol=1e-12)
    for seq in ("xyz", "ZYX", "zxz", "YXY"):
        np.testing.assert_allclose(ours.as_euler(seq), theirs.as_euler(seq), atol=1e-12)
        np.testing.assert_allclose(Rotation.from_euler(seq, vectors).as_matrix(),
                                   Theirs.from_euler(seq, vectors).as_matrix(), atol=1e-12)
    np.testing.assert_allclose(Rotation.from_matrix(ours.as_matrix()).as_matrix(),
                               theirs.as_matrix(), atol=1e-12)
    np.testing.assert_allclose(Rotation.from_mrp(ours.as_mrp()).as_rotvec(), ours.as_rotvec(),
                               atol=1e-12)
    np.testing.assert_allclose((ours * ours.inv()).magnitude(), np.zeros(3), atol=1e-7)
    np.testing.assert_allclose(ours.apply(vectors[0], inverse=True),
                               theirs.apply(vectors[0], inverse=True), atol=1e-12)
    np.testing.assert_allclose(ours.mean().as_matrix(), theirs.mean().as_matrix(), atol=1e-12)
    times, at = np.array([0.0, 1, 2]), np.array([0.2, 1.3])
    np.testing.assert_allclose(Slerp.init(times, ours)(at).as_matrix(),
                               TheirSlerp(times, theirs)(at).as_matrix(), atol=1e-12)
    g = jax.grad(lambda v: Rotation.from_rotvec(v).apply(jnp.ones(3)).sum())(jnp.zeros(3))
    np.testing.assert_allclose(g, np.zeros(3), atol=1e-12)          # (1, 1, 1) x (1, 1, 1)
    with pytest.raises(ValueError, match="Expected axes from `seq`"):
        Rotation.from_euler("xY", jnp.ones(2))
