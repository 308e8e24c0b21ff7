"""Linear algebra and Fourier transforms (F15-F48) like PyTorch: values and two derivatives."""
import numpy as np
import pytest
from helpers_ops import Cases, R, compare

import adjoint as ad
import adjoint.linalg
from adjoint.kernels import alloc

pytest.importorskip("torch")
case = Cases()

A, B = R(2, 3, 3), R(2, 3, 2)
S = A @ A.transpose(0, 2, 1) + np.eye(3)
FORMS = {
    "inv": lambda T, F, a: T.linalg.inv(a), "det": lambda T, F, a: T.linalg.det(a),
    "slogdet": lambda T, F, a: T.linalg.slogdet(a)[1],
    "qr": lambda T, F, a: T.linalg.qr(a)[0] * 2 + T.linalg.qr(a)[1],
    "matrix_exp": lambda T, F, a: T.linalg.matrix_exp(a),
    "matrix_exp large": lambda T, F, a: T.linalg.matrix_exp(a * 3),
    "cond": lambda T, F, a: T.linalg.cond(a), "power": lambda T, F, a: T.linalg.matrix_power(a, -3),
    "rank": lambda T, F, a: T.linalg.matrix_rank(a), "norm": lambda T, F, a: T.linalg.norm(a),
    "norm 3": lambda T, F, a: T.linalg.norm(a, 3, 1),
    "eigvals": lambda T, F, a: T.sort(T.linalg.eigvals(a).abs(), -1)[0],
}
for name, form in FORMS.items():
    case(name, form, A, tol=1e-8)
HERMITIAN = {
    "logdet": lambda T, F, a: T.logdet(a), "cholesky": lambda T, F, a: T.linalg.cholesky(a),
    "eigh": lambda T, F, a: T.linalg.eigh(a)[1].abs(),
    "eigvalsh": lambda T, F, a: T.linalg.eigvalsh(a),
    "eig": lambda T, F, a: T.linalg.eig(a[0])[1].abs(),
}
for name, form in HERMITIAN.items():
    case(name, form, S, tol=1e-8)
TALL = {
    "qr tall": lambda T, F, a: T.linalg.qr(a)[0], "pinv": lambda T, F, a: T.linalg.pinv(a),
    "qr wide": lambda T, F, a: T.linalg.qr(a.mT)[1],
    "pinv wide": lambda T, F, a: T.linalg.pinv(a.mT),
    "svdvals": lambda T, F, a: T.linalg.svdvals(a),
    "svd u": lambda T, F, a: T.linalg.svd(a, full_matrices=False)[0].abs(),
    "svd vh": lambda T, F, a: T.linalg.svd(a.mT, full_matrices=False)[2].abs(),
}
for name, form in TALL.items():
    case(name, form, R(4, 3), tol=1e-8)
case("solve", lambda T, F, a, b: T.linalg.solve(a, b), A, B)
case("solve vector", lambda T, F, a, b: T.linalg.solve(a, b), A[0], B[0, :, 0])
case("solve right", lambda T, F, a, b: T.linalg.solve(a, b, left=False), A, R(2, 2, 3))
for u in (True, False):
    case(f"solve_triangular {u}", lambda T, F, a, b, u=u: T.linalg.solve_triangular(
        a, b, upper=u), S, B)
case("lstsq", lambda T, F, a, b: T.linalg.lstsq(a, b)[0], R(4, 3), R(4, 2), tol=1e-8)
for o in ("fro", "nuc", 2, -2, 1, -1, float("inf"), -float("inf")):
    case(f"matrix_norm {o}", lambda T, F, a, o=o: T.linalg.matrix_norm(a, o), A, tol=1e-8)
case("multi_dot", lambda T, F, a, b, c: T.linalg.multi_dot([a, b, c]), R(2, 5), R(5, 3), R(3))
case("householder_product", lambda T, F, a, t: T.linalg.householder_product(a, t), R(2, 4, 3),
     R(2, 2), tol=1e-8)
for left in (True, False):
    for transpose in (True, False):
        case(f"ormqr {left} {transpose}", lambda T, F, a, t, c, o=(left, transpose): T.ormqr(
            a, t, c, *o), R(4, 3), R(3), R(4, 2) if left else R(2, 4), tol=1e-8)
case("tensorsolve", lambda T, F, a, b: T.linalg.tensorsolve(a, b), R(2, 3, 6), R(2, 3), tol=1e-8)
case("tensorinv", lambda T, F, a: T.linalg.tensorinv(a), R(2, 3, 3, 2), tol=1e-8)
X = R(3, 4, 6)
for norm in ("backward", "ortho", "forward"):
    for n in ("fft", "ifft", "rfft", "irfft", "hfft", "fft2", "ifft2", "rfft2", "irfft2", "fftn",
              "rfftn", "irfftn", "ihfft"):
        kw = {} if n[-1] in "2n" or n == "ihfft" else {"n": 5}
        case(f"{n} {norm}", lambda T, F, x, n=n, kw={"norm": norm, **kw}: T.abs(
            getattr(T.fft, n)(x, **kw)), X, tol=1e-8)
case("fftshift", lambda T, F, x: T.fft.fftshift(x), X)
WINDOW = np.hanning(9)[:8]
case("stft", lambda T, F, x: T.abs(T.stft(x, 8, 3, window=T.tensor(WINDOW), return_complex=True)),
     R(2, 30), tol=1e-8)
case("istft", lambda T, F, x: T.istft(T.stft(x, 8, 2, window=T.tensor(WINDOW), return_complex=True),
                                      8, 2, window=T.tensor(WINDOW), length=28), R(2, 30),
     tol=1e-8)


def gradient(f, x):
    x = ad.tensor(x, requires_grad=True)
    f(x).backward()
    return x.grad.numpy()


def test_det_of_a_singular_matrix_has_its_cofactors_as_gradient():
    # PyTorch returns zeros here; the derivative of ad - bc at (1, 2, 2, 4) is (4, -2, -2, 1)
    found = gradient(ad.linalg.det, np.array([[1.0, 2.0], [2.0, 4.0]]))
    np.testing.assert_allclose(found, [[4.0, -2.0], [-2.0, 1.0]], atol=1e-12)


def test_degenerate_spectra_have_finite_gradients():
    eye = np.eye(3)
    for f in (lambda a: ad.linalg.eigh(a)[1].sum(), lambda a: ad.linalg.svd(a)[0].sum()):
        assert np.isfinite(gradient(f, eye)).all()
    # a function of the matrix does not see the choice of basis: d tr(V diag(w²) Vᵀ)/dA = 2A
    def square(a):
        w, v = ad.linalg.eigh(a)
        return ad.trace((v * w * w) @ v.mT)
    np.testing.assert_allclose(gradient(square, eye), 2 * eye, atol=1e-12)


def test_failures_are_runtime_errors_in_words():
    with pytest.raises(RuntimeError, match="ingular"):
        ad.linalg.inv(ad.zeros(2, 2))
    with pytest.raises(ad.linalg.LinAlgError):
        ad.linalg.cholesky(ad.tensor([[1.0, 2.0], [2.0, 1.0]]))
    with pytest.raises(RuntimeError, match="square"):
        ad.linalg.det(ad.zeros(2, 3))


@pytest.mark.parametrize("shape", [(4, 3), (3, 3), (2, 2, 5), (3, 0), (0, 0)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_geqrf_is_lapacks(shape, dtype):
    torch = pytest.importorskip("torch")
    a = R(*shape).astype(dtype) * (1 + (1j if dtype == "complex128" else 0))
    for mine, theirs in zip(ad.geqrf(ad.tensor(a)), torch.geqrf(torch.tensor(a)), strict=True):
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), atol=1e-5)
    with pytest.raises(NotImplementedError, match="has no derivative; use linalg.qr"):
        ad.geqrf(ad.ones(2, 2, requires_grad=True))


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_info_instead_of_errors(dtype):
    torch = pytest.importorskip("torch")
    good, bad = np.eye(3), np.array([[4.0, 2, 1], [2, 1, 5], [1, 5, 3]])
    flat = np.array([[1.0, 2, 3], [2, 4, 6], [0, 0, 1]])
    pair, singular = np.stack([good, bad]).astype(dtype), np.stack([flat, good]).astype(dtype)
    mine, theirs = (t.linalg.cholesky_ex(t.tensor(pair)) for t in (ad, torch))
    assert mine.info.tolist() == theirs.info.tolist() == [0, 2]
    np.testing.assert_array_equal(mine.L[0].numpy(), good)
    assert mine.L[1].isnan().any()
    for t in (ad, torch):
        assert t.linalg.inv_ex(t.tensor(singular)).info.tolist() == [2, 0]
        solved = t.linalg.solve_ex(t.tensor(singular), t.tensor(singular))
        assert solved.info.tolist() == [2, 0] and solved.result[1].isfinite().all()
        for name, operand in (("cholesky_ex", pair), ("inv_ex", singular)):
            with pytest.raises(RuntimeError, match=r"Batch element [01]"):
                getattr(t.linalg, name)(t.tensor(operand), check_errors=True)
    x = ad.tensor(pair, requires_grad=True)
    ad.linalg.cholesky_ex(x).L[0].real.sum().backward()
    assert x.grad[0].isfinite().all()


@pytest.mark.parametrize("one", case, ids=repr)
def test_like_torch(one):
    compare(one)


@pytest.mark.skipif(not alloc.available(), reason="needs the counting allocator")
@pytest.mark.parametrize("shape", [(), (3,)])
def test_a_weighted_sum_makes_no_array_of_its_size(shape: tuple[int, ...]) -> None:
    c, a, b = ad.randn(*shape, 600, 700), ad.randn(*shape, 600, 5), ad.randn(*shape, 5, 700)
    function = ad.baddbmm if shape else ad.addmm
    alloc.ensure()
    function(c, a, b, beta=0.3)                 # (the product is measured by its first call)
    alloc.reset_peak()
    before = alloc.live()
    made = function(c, a, b, beta=0.3)
    assert alloc.live_and_peak()[1] - before < 1.7 * made.nbytes
    plain = function(c, a, b, beta=0)
    assert np.array_equal(made.numpy(), plain.numpy() + c.numpy() * np.float32(0.3))


def test_a_factor_of_nan_is_refused() -> None:
    with pytest.raises(ad.linalg.LinAlgError, match="not positive-definite"):
        ad.linalg.cholesky(ad.eye(2) * float("nan"))


BAD = {"zeros": np.zeros((2, 2)), "one of two": np.stack([np.eye(2), np.zeros((2, 2))]),
       "negative": np.array([[4.0, 2], [2, -1]]), "nan": np.array([[1.0, 2], [np.nan, 1]]),
       "the fourth": np.stack([np.eye(2)] * 3 + [[[1.0, 2], [2, 4]]]).reshape(2, 2, 2, 2)}


@pytest.mark.row("F48")
@pytest.mark.parametrize(("bad", "call"), [
    *((bad, call) for bad in ("zeros", "one of two", "the fourth") for call in (
        lambda t, a: t.linalg.inv(a), lambda t, a: t.linalg.solve(a, a),
        lambda t, a: t.linalg.cholesky(a),
        lambda t, a: t.linalg.inv_ex(a, check_errors=True),
        lambda t, a: t.linalg.solve_ex(a, a, check_errors=True),
        lambda t, a: t.linalg.cholesky_ex(a, check_errors=True))),
    ("negative", lambda t, a: t.linalg.cholesky(a)), ("nan", lambda t, a: t.linalg.svdvals(a)),
    ("nan", lambda t, a: t.linalg.cholesky(a.mT)), ("nan", lambda t, a: t.linalg.pinv(a[None]))])
def test_a_matrix_without_an_answer_is_told_as_in_pytorch(bad, call) -> None:
    torch = pytest.importorskip("torch")
    said = []
    for t in (torch, ad):
        with pytest.raises(t.linalg.LinAlgError) as caught:
            call(t, t.tensor(BAD[bad]))
        said.append(str(caught.value).split(", consider")[0].split(" (error code")[0])
    assert said[0].rstrip(".") in said[1]


def test_tolerances_and_triangles_like_pytorch() -> None:
    """The rank that `lstsq` reports is that at `rcond`; triangles with a zero are divided by it."""
    torch = pytest.importorskip("torch")
    near = np.array([[1.0, 0], [0, 1e-3]])
    for f in (lambda t, a: t.linalg.lstsq(a, t.ones_like(a), rcond=1e-2)[2],
              lambda t, a: t.linalg.pinv(a, rcond=1e-2), lambda t, a: t.linalg.pinv(a, 1e-4, True),
              lambda t, a: t.linalg.cond(a[:0, :0]), lambda t, a: t.linalg.cond(a[:0, :0], "fro"),
              lambda t, a: t.linalg.solve_triangular(1 - a, 1 + a, upper=True),
              lambda t, a: t.linalg.solve_triangular(1 - a, 1 + a, upper=False),
              lambda t, a: t.cholesky_solve(a, a - t.eye(2, dtype=a.dtype))):
        mine, theirs = f(ad, ad.tensor(near)), f(torch, torch.tensor(near))
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-12)
