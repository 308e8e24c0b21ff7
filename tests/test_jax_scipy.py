"""jax.scipy's special functions and decompositions: laws and stated values, and SciPy's."""
import numpy as np
import pytest

import adjoint.jax as jax
import adjoint.jax.numpy as jnp
from adjoint.jax import lax
from adjoint.jax.scipy import linalg, special

scipy_special = pytest.importorskip("scipy.special")
scipy_linalg = pytest.importorskip("scipy.linalg")
_R = np.random.RandomState(0)
A = _R.randn(4, 4)
B = _R.randn(2, 3, 3)
C = _R.randn(3, 3) + 1j * _R.randn(3, 3)


@pytest.fixture(autouse=True)
def wide():
    with jax.enable_x64(True):
        yield


def slope(f, x, step=1e-6):
    return (f(x + step) - f(x - step)) / (2 * step)


# ------------------------------------------------------------------ special
@pytest.mark.parametrize("name, args, place", [
    ("expn", (2.0, 1.2), 1), ("owens_t", (0.7, 1.3), 0), ("owens_t", (0.7, 1.3), 1),
    ("hyp1f1", (0.7, 1.3, 0.9), 0), ("hyp1f1", (0.7, 1.3, 0.9), 1), ("hyp1f1", (0.7, 1.3, 0.9), 2),
    *[("hyp2f1", (0.7, 1.3, 1.9, 0.4), i) for i in range(4)]])
def test_values_are_scipys_and_gradients_their_slopes(name, args, place):
    f, theirs = getattr(special, name), getattr(scipy_special, name)
    np.testing.assert_allclose(f(*args), theirs(*args), rtol=1e-14)
    g = jax.grad(f, place)(*args)
    moved = slope(lambda v: theirs(*args[:place], v, *args[place + 1:]), args[place])
    np.testing.assert_allclose(g, moved, rtol=1e-6)


def test_integrals_of_two_outputs():
    x = np.array([0.3, 1.5, -2.0, 7.0])
    for ours, theirs in ((special.sici, scipy_special.sici),
                         (special.fresnel, scipy_special.fresnel)):
        found = ours(x)
        want = theirs(np.abs(x)) if ours is special.sici else theirs(x)
        sign = np.sign(x) if ours is special.sici else 1
        np.testing.assert_allclose(found[0], want[0] * sign, rtol=1e-13)
        np.testing.assert_allclose(found[1], want[1], rtol=1e-13)
        for k in (0, 1):
            g = jax.vmap(jax.grad(lambda v, k=k, f=ours: f(v)[k]))(jnp.asarray(x))
            np.testing.assert_allclose(g, slope(lambda v, k=k, f=ours: np.asarray(f(v)[k]), x),
                                       rtol=1e-6, atol=1e-9)
    assert special.sici(3)[0].dtype == np.float64 and not special.sici(3)[0].weak_type
    with pytest.raises(ValueError, match="Argument `x` to sici must be real-valued"):
        special.sici(1j)


def test_expn_has_second_derivatives_and_none_in_its_order():
    assert float(jax.grad(special.expn)(2.0, 1.2)) == 0.0
    second = jax.grad(jax.grad(special.expn, 1), 1)(2.0, 1.2)
    np.testing.assert_allclose(second, np.exp(-1.2) / 1.2, rtol=1e-12)       # that of E_0


def test_bessel_functions_of_all_orders_at_once():
    z = jnp.array([0.5, 2.0, 10.0])
    found = special.bessel_jn(z, v=3)
    np.testing.assert_allclose(found, [scipy_special.jv(k, z) for k in range(4)], rtol=1e-13)
    g = jax.grad(lambda x: special.bessel_jn(x, v=3)[3])(2.0)
    np.testing.assert_allclose(g, scipy_special.jvp(3, 2.0), rtol=1e-12)
    with pytest.raises(TypeError):
        special.bessel_jn(z, v=2.0)


def test_spherical_harmonics_and_their_angles():
    n, m = jnp.array([0, 1, 2, 3]), jnp.array([0, 1, -2, 0])
    theta, phi = jnp.array([0.3, 0.4, 2.0, 0.1]), jnp.array([0.3, 3.0, 5.0, 0.1])
    found = special.sph_harm_y(n, m, theta, phi)
    closed = [0.5 / np.sqrt(np.pi),
              -0.5 * np.sqrt(1.5 / np.pi) * np.sin(0.4) * np.exp(3j),
              0.25 * np.sqrt(7.5 / np.pi) * np.sin(2.0) ** 2 * np.exp(-10j),
              0.25 * np.sqrt(7 / np.pi) * (5 * np.cos(0.1) ** 3 - 3 * np.cos(0.1))]
    np.testing.assert_allclose(found, closed, rtol=1e-12)

    def part(t, p):
        return jnp.real(special.sph_harm_y(n, m, t, p)).sum()
    np.testing.assert_allclose(jax.grad(part)(theta, phi)[2], slope(
        lambda v: float(part(theta.at[2].set(v), phi)), 2.0), rtol=1e-6)
    np.testing.assert_allclose(jax.grad(part, 1)(theta, phi)[1], slope(
        lambda v: float(part(theta, phi.at[1].set(v))), 3.0), rtol=1e-6)
    with pytest.raises(jax.errors.ConcretizationTypeError, match="n_max"):
        jax.jit(special.sph_harm_y)(n, m, theta, phi)


def test_faddeevas_function():
    z = jnp.array([0.3, 1 + 1j, -2 - 1j])
    np.testing.assert_allclose(special.wofz(z), scipy_special.wofz(np.asarray(z)), rtol=1e-13)
    w = complex(special.wofz(1 + 0.5j))
    g = jax.grad(special.wofz, holomorphic=True)(1 + 0.5j)
    np.testing.assert_allclose(g, 2j / np.sqrt(np.pi) - 2 * (1 + 0.5j) * w, rtol=1e-13)


# ------------------------------------------------------------------ decompositions
@pytest.mark.parametrize("a", [A, B, C], ids=["square", "batch", "complex"])
def test_schurs_and_hessenbergs_forms_give_the_matrix_back(a):
    for t, z in (linalg.schur(a), linalg.schur(a, output="complex"),
                 linalg.hessenberg(a, calc_q=True), linalg.rsf2csf(*linalg.schur(a))):
        np.testing.assert_allclose(z @ t @ jnp.conj(jnp.matrix_transpose(z)), a, atol=1e-12)
        np.testing.assert_allclose(jnp.tril(t, -2), jnp.zeros_like(t), atol=1e-12)
        eye = np.broadcast_to(np.eye(a.shape[-1]), a.shape)
        np.testing.assert_allclose(z @ jnp.conj(jnp.matrix_transpose(z)), eye, atol=1e-12)
    assert np.abs(jnp.tril(linalg.schur(a, output="complex")[0], -1)).max() == 0
    packed, taus = lax.linalg.hessenberg(a)
    np.testing.assert_array_equal(jnp.triu(packed, -1), linalg.hessenberg(a))
    assert taus.shape == (*a.shape[:-2], a.shape[-1] - 1)
    with pytest.raises(NotImplementedError):
        jax.grad(lambda x: jnp.abs(linalg.schur(x)[0]).sum())(jnp.asarray(a.real))


def test_tridiagonal_form_has_the_eigenvalues():
    s = A + A.T
    for lower in (True, False):
        _, d, e, _ = lax.linalg.tridiagonal(s, lower=lower)
        w = linalg.eigh_tridiagonal(d, e, eigvals_only=True)
        np.testing.assert_allclose(w, np.linalg.eigvalsh(s), atol=1e-12)
    part, v = linalg.eigh_tridiagonal(d, e, select="i", select_range=(1, 2))
    t = jnp.diag(d) + jnp.diag(e, 1) + jnp.diag(e, -1)
    np.testing.assert_allclose(t @ v, v * part, atol=1e-12)
    with pytest.raises(NotImplementedError, match="select='v'"):
        linalg.eigh_tridiagonal(d, e, select="v")


def test_functions_of_matrices():
    np.testing.assert_allclose(linalg.funm(A, jnp.exp), scipy_linalg.expm(A), atol=1e-10)
    np.testing.assert_allclose(linalg.funm(C, lambda x: x ** 2), C @ C, atol=1e-12)
    for a in (A, B, C, np.array([[1.0, 1.0], [0.0, 1.0]])):      # the last has one eigenvector
        r = linalg.sqrtm(a)
        assert r.dtype == np.complex128
        np.testing.assert_allclose(r @ r, a, atol=1e-12)
    s = A @ A.T + np.eye(4)
    g = jax.grad(lambda x: jnp.trace(linalg.sqrtm(x)).real)(jnp.asarray(s))
    np.testing.assert_allclose(g, 0.5 * np.linalg.inv(scipy_linalg.sqrtm(s)), atol=1e-12)
    many = jnp.stack([jnp.asarray(s), jnp.asarray(s) * 2])
    np.testing.assert_allclose(jax.vmap(linalg.sqrtm)(many), linalg.sqrtm(many), atol=1e-12)
    assert np.isnan(linalg.expm(1000 * A, max_squarings=2)).all()


def test_products_with_the_factor_of_a_qr():
    m = A[:, :3]
    q, r, p = linalg.qr(m, pivoting=True)
    np.testing.assert_allclose(q @ r, m[:, p], atol=1e-12)
    assert q.shape == (4, 4) and (np.diff(np.abs(np.diag(r))) <= 0).all()
    c = _R.randn(2, 4)
    out, r = linalg.qr_multiply(m, c)
    np.testing.assert_allclose(out @ r, c @ m, atol=1e-12)
    out, r, p = linalg.qr_multiply(m, np.eye(3), "left", pivoting=True)
    np.testing.assert_allclose(out @ r, m[:, p], atol=1e-12)
    with pytest.raises(ValueError, match="Array shapes are not compatible for c @ Q"):
        linalg.qr_multiply(m, np.ones(3))
    packed, taus = jnp.linalg.qr(m, mode="raw")
    whole = lax.linalg.ormqr(packed.mT, taus, jnp.eye(4))
    np.testing.assert_allclose(whole[:, :3] @ jnp.triu(packed.mT)[:3], m, atol=1e-12)
    with pytest.raises(ValueError, match="Unsupported QR decomposition mode"):
        linalg.qr(m, mode="raw")


def test_a_factor_is_updated_by_a_vector():
    s, w = A @ A.T + np.eye(4), A[0]
    r = lax.linalg.cholesky_update(np.linalg.cholesky(s).T, w)
    np.testing.assert_allclose(r.T @ r, s + np.outer(w, w), atol=1e-12)
    np.testing.assert_array_equal(jnp.tril(r, -1), np.zeros((4, 4)))


def test_solves_by_a_transposed_complex_factor():
    factor, b = linalg.lu_factor(C), np.arange(3.0)
    for trans, op in ((0, C), (1, C.T), (2, C.conj().T)):
        np.testing.assert_allclose(op @ linalg.lu_solve(factor, b, trans=trans), b, atol=1e-12)


def test_toeplitz_takes_batches_and_polar_refuses_shapes():
    c = jnp.asarray(A[:2])
    found = linalg.toeplitz(c)
    assert found.shape == (2, 4, 4)
    np.testing.assert_array_equal(found[1], scipy_linalg.toeplitz(A[1]))
    with pytest.raises(NotImplementedError, match="method='qdwh' only supports mxn"):
        linalg.polar(A[:3])
    u, h = linalg.polar(A[:3], method="svd")
    np.testing.assert_allclose(u @ h, A[:3], atol=1e-12)
