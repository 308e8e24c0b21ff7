"""Other libraries: the array API standard, DLPack, SciPy's optimizers, scikit-learn's manner."""
import pickle
import subprocess
import sys

import numpy as np
import pytest

import adjoint as ad
from adjoint.autograd import grad
from adjoint.interop import Estimator, array_api, scipy_minimize

xp = array_api
R = np.random.default_rng(4)
A, B = R.normal(size=(3, 4)), R.normal(size=(3, 4))
P, Q = np.abs(A) % 0.9 + 0.05, np.abs(B) + 0.5
K, J = R.integers(1, 9, (3, 4)), R.integers(1, 5, (3, 4))
T, U = A > 0, B > 0
S = A[:, :3] @ A[:, :3].T + np.eye(3)
STANDARD = {
    "elementwise": "abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift "
    "bitwise_invert bitwise_or bitwise_right_shift bitwise_xor ceil clip conj copysign cos cosh "
    "divide equal exp expm1 floor floor_divide greater greater_equal hypot imag isfinite isinf "
    "isnan less less_equal log log1p log2 log10 logaddexp logical_and logical_not logical_or "
    "logical_xor maximum minimum multiply negative nextafter not_equal positive pow real "
    "reciprocal remainder round sign signbit sin sinh square sqrt subtract tan tanh trunc",
    "creation": "arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid "
    "ones ones_like tril triu zeros zeros_like",
    "dtypes": "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 "
    "complex128 astype can_cast finfo iinfo isdtype result_type",
    "rest": "e inf nan newaxis pi take take_along_axis __array_namespace_info__ matmul "
    "matrix_transpose tensordot vecdot broadcast_arrays broadcast_to concat expand_dims flip "
    "moveaxis permute_dims repeat reshape roll squeeze stack tile unstack argmax argmin "
    "count_nonzero nonzero searchsorted where unique_all unique_counts unique_inverse "
    "unique_values argsort sort cumulative_prod cumulative_sum max mean min prod std sum var all "
    "any diff linalg fft",
    "linalg": "cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power "
    "matrix_rank matrix_transpose outer pinv qr slogdet solve svd svdvals tensordot trace vecdot "
    "vector_norm",
    "fft": "fft ifft fftn ifftn rfft irfft rfftn irfftn hfft ihfft fftfreq rfftfreq fftshift "
    "ifftshift",
}
ONE = {**dict.fromkeys("abs atan asinh ceil cos cosh exp expm1 floor isfinite isinf isnan negative "
                       "positive real round sign signbit sin sinh square tan tanh trunc conj"
                       .split(), A),
       **dict.fromkeys("acos asin atanh log log1p log2 log10 sqrt reciprocal".split(), P),
       "acosh": Q + 1, "bitwise_invert": K, "logical_not": T, "imag": A + 1j * B}
TWO = {**dict.fromkeys("add atan2 copysign divide equal greater greater_equal hypot less "
                       "less_equal logaddexp maximum minimum multiply nextafter not_equal "
                       "subtract".split(), (A, B)),
       **dict.fromkeys("floor_divide remainder pow".split(), (Q, P)),
       **dict.fromkeys("bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift"
                       .split(), (K, J)),
       **dict.fromkeys("logical_and logical_or logical_xor".split(), (T, U))}


def t(x):
    return ad.tensor(x)


def plain(x):
    if isinstance(x, (tuple, list)):
        return [plain(v) for v in x]
    return x.detach().numpy() if isinstance(x, ad.Tensor) else np.asarray(x)


def same(got, expect):
    got, expect = plain(got), plain(expect)
    if isinstance(got, list):
        assert len(got) == len(expect)
        for g, e in zip(got, expect, strict=True):
            same(g, e)
        return
    assert got.shape == expect.shape and got.dtype == expect.dtype
    np.testing.assert_allclose(got, expect, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("part", STANDARD)
def test_every_name_of_the_standard_is_here(part):
    names = STANDARD[part].split()
    module = getattr(xp, part) if part in ("linalg", "fft") else xp
    assert not [n for n in names if not hasattr(module, n)]
    assert set(names) <= set(module.__all__)
    assert t(A).__array_namespace__(api_version="2025.12") is xp
    assert xp.__array_api_version__ == "2025.12"
    with pytest.raises(ValueError, match="not supported"):
        t(A).__array_namespace__(api_version="1999.01")


@pytest.mark.parametrize("name", [*ONE, *TWO])
def test_elementwise_functions_equal_numpy(name):
    args = [ONE[name]] if name in ONE else TWO[name]
    same(getattr(xp, name)(*map(t, args)), getattr(np, name)(*args))


FUNCTIONS = {
    **{n: (lambda m, f, n=n: [getattr(m, n)(f(A)), getattr(m, n)(f(A), axis=1, keepdims=True),
                              getattr(m, n)(f(A), axis=(0, 1))])
       for n in ("sum", "mean", "prod", "max", "min", "std", "var")},
    **{n: (lambda m, f, n=n: [getattr(m, n)(f(T)), getattr(m, n)(f(T), axis=0)])
       for n in ("all", "any")},
    "std correction": lambda m, f: m.std(f(A), axis=1, correction=1.0),
    "argmax": lambda m, f: [m.argmax(f(A)), m.argmax(f(A), axis=1, keepdims=True)],
    "argmin": lambda m, f: m.argmin(f(A), axis=0),
    "count_nonzero": lambda m, f: m.count_nonzero(f(K % 2), axis=1),
    "nonzero": lambda m, f: m.nonzero(f(K % 2)),
    "searchsorted": lambda m, f: m.searchsorted(f(np.sort(A[0])), f(B[0]), side="right"),
    "where": lambda m, f: m.where(f(T), f(A), f(B)),
    "sort": lambda m, f: [m.sort(f(A)), m.sort(f(A), axis=0)],
    "argsort": lambda m, f: m.argsort(f(A), axis=0),
    "unique": lambda m, f: [m.sort(m.unique_values(f(K))), m.unique_all(f(K)),
                            m.unique_counts(f(K)), m.unique_inverse(f(K))],
    "take": lambda m, f: m.take(f(A), f(np.array([2, 0])), axis=1),
    "take_along_axis": lambda m, f: m.take_along_axis(f(A), f(np.argsort(A, 1)), axis=1),
    "concat": lambda m, f: [m.concat([f(A), f(B)], axis=1), m.concat([f(A), f(K)], axis=None)],
    "stack": lambda m, f: m.stack([f(A), f(B)], axis=1),
    "unstack": lambda m, f: m.unstack(f(A), axis=1),
    "expand_dims": lambda m, f: m.expand_dims(f(A), axis=1),
    "squeeze": lambda m, f: m.squeeze(f(A[:, None]), axis=1),
    "flip": lambda m, f: [m.flip(f(A)), m.flip(f(A), axis=1)],
    "moveaxis": lambda m, f: m.moveaxis(f(A[None]), 0, -1),
    "permute_dims": lambda m, f: m.permute_dims(f(A[None]), (2, 0, 1)),
    "repeat": lambda m, f: m.repeat(f(A), 2, axis=1),
    "reshape": lambda m, f: m.reshape(f(A), (4, 3)),
    "roll": lambda m, f: [m.roll(f(A), 1), m.roll(f(A), (1, 2), axis=(0, 1))],
    "tile": lambda m, f: m.tile(f(A), (2, 1)),
    "broadcast": lambda m, f: [m.broadcast_to(f(A), (2, 3, 4)),
                               *m.broadcast_arrays(f(A), f(B[0]))],
    "clip": lambda m, f: m.clip(f(A), -0.5, 0.5),
    "diff": lambda m, f: m.diff(f(A), axis=0, n=2),
    "cumulative_sum": lambda m, f: [m.cumulative_sum(f(A), axis=1),
                                    m.cumulative_sum(f(A), axis=1, include_initial=True)],
    "cumulative_prod": lambda m, f: m.cumulative_prod(f(A), axis=0, include_initial=True),
    "tril": lambda m, f: [m.tril(f(A), k=1), m.triu(f(A), k=-1)],
    "meshgrid": lambda m, f: [m.meshgrid(f(A[0]), f(B[0])),
                              m.meshgrid(f(A[0]), f(B[0]), indexing="ij")],
    "linspace": lambda m, f: [m.linspace(0.0, 1.0, 5, dtype=m.float64),
                              m.linspace(0.0, 1.0, 5, endpoint=False, dtype=m.float64)],
    "arange": lambda m, f: [m.arange(5), m.arange(2, 9, 3), m.arange(3, 0)],
    "eye": lambda m, f: m.eye(3, 4, k=1, dtype=m.float64),
    "full": lambda m, f: [m.full((2, 3), 1.5, dtype=m.float64), m.full_like(f(A), 2.0),
                          m.zeros(3, dtype=m.int32), m.ones_like(f(K))],
    "matmul": lambda m, f: [m.matmul(f(A), f(B.T)), m.vecdot(f(A), f(B)), m.matrix_transpose(f(A)),
                            m.tensordot(f(A), f(B.T), axes=1)],
    "linalg": lambda m, f: [
        m.linalg.cholesky(f(S)), m.linalg.det(f(S)), m.linalg.inv(f(S)),
        m.linalg.matrix_norm(f(A)), m.linalg.matrix_power(f(S), 3),
        m.linalg.outer(f(A[0]), f(B[0])),
        m.linalg.pinv(f(A)), m.linalg.slogdet(f(S)), m.linalg.solve(f(S), f(A)),
        m.linalg.svdvals(f(A)), m.linalg.trace(f(S)), m.linalg.vector_norm(f(A), axis=1),
        m.linalg.diagonal(f(A), offset=1), m.linalg.cross(f(A[:, :3]), f(B[:, :3])),
        m.linalg.eigvalsh(f(S)), m.linalg.matrix_rank(f(A))],
    "fft": lambda m, f: [
        m.fft.fft(f(A)), m.fft.rfft(f(A), n=6, axis=0, norm="ortho"), m.fft.fftn(f(A), axes=(0, 1)),
        m.fft.irfft(m.fft.rfft(f(A))), m.fft.fftshift(f(A)), m.fft.hfft(f(A + 0j)),
        m.fft.ifft(f(A)), m.fft.rfftn(f(A))],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_other_functions_equal_numpy(name):
    if np.lib.NumpyVersion(np.__version__) < "2.1.0" and name in ("unstack", "cumulative_sum",
                                                                   "cumulative_prod"):
        pytest.skip("newer than this NumPy")
    same(FUNCTIONS[name](xp, t), FUNCTIONS[name](np, np.asarray))


def test_decompositions_put_back_together():
    q, r = xp.linalg.qr(t(A))
    np.testing.assert_allclose(plain(q @ r), A, atol=1e-12)
    u, s, vh = xp.linalg.svd(t(A), full_matrices=False)
    np.testing.assert_allclose(plain(u * s @ vh), A, atol=1e-12)
    w, v = xp.linalg.eigh(t(S))
    np.testing.assert_allclose(plain(v * w @ v.mT), S, atol=1e-12)
    np.testing.assert_allclose(plain(xp.fft.fftfreq(5)), np.fft.fftfreq(5), rtol=1e-6)
    np.testing.assert_allclose(plain(xp.linalg.cholesky(t(S), upper=True)), np.linalg.cholesky(S).T)


def test_dtypes_and_information():
    assert xp.isdtype(xp.float32, "real floating") and not xp.isdtype(xp.int8, "unsigned integer")
    assert xp.isdtype(xp.bool, ("integral", "bool")) and xp.isdtype(xp.int8, xp.int8)
    with pytest.raises(ValueError, match="unknown kind"):
        xp.isdtype(xp.bool, "strange")
    assert xp.result_type(xp.int32, xp.float32) == xp.float32
    assert xp.result_type(t(K), 1.5) == ad.float32 and xp.result_type(t(A), 1) == xp.float64
    assert xp.can_cast(xp.int8, xp.int16) and not xp.can_cast(xp.float64, xp.float32)
    assert xp.astype(t(A), xp.float32).dtype == xp.float32
    info = xp.__array_namespace_info__()
    assert info.default_dtypes()["integral"] == xp.int64 and info.devices() == [ad.device("cpu")]
    assert set(info.dtypes(kind="unsigned integer")) == {"uint8", "uint16", "uint32", "uint64"}
    assert info.capabilities()["boolean indexing"] and info.default_device().type == "cpu"
    assert xp.asarray([1, 2]).dtype == xp.int64 and xp.asarray(A).dtype == xp.float64
    with pytest.raises(ValueError, match="copy=False"):
        xp.asarray([1.0], copy=False)
    with pytest.raises(ValueError, match="squeeze"):
        xp.squeeze(t(A), 0)
    x = t(A)
    assert x.to_device("cpu") is x and x.device.type == "cpu"


def test_a_library_written_to_the_standard_gets_gradients():
    def softmax(x):
        n = x.__array_namespace__()
        e = n.exp(x - n.max(x, axis=-1, keepdims=True))
        return e / n.sum(e, axis=-1, keepdims=True)
    x = ad.tensor(A, requires_grad=True)
    w = t(B)
    got, = grad((softmax(x) * w).sum(), x)
    expect, = grad((x.softmax(-1) * w).sum(), x)
    np.testing.assert_allclose(plain(got), plain(expect), atol=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8", "bool", "complex64"])
def test_dlpack_shares_memory_with_numpy_and_torch(dtype):
    x = ad.ones(2, 3, dtype=getattr(ad, dtype))
    view = np.from_dlpack(x)
    assert np.shares_memory(view, x.numpy()) and view.dtype == x.numpy().dtype
    source = np.zeros((2, 3), dtype)
    back = ad.from_dlpack(source)
    source[0, 0] = 1
    assert back[0, 0].item() == 1 and back.dtype == x.dtype
    torch = pytest.importorskip("torch")
    theirs = torch.from_dlpack(x)
    theirs[0, 1] = 0
    assert x[0, 1].item() == 0
    ours = ad.from_dlpack(torch.full((2, 2), 1).to(getattr(torch, dtype)).t())
    assert ours.shape == (2, 2) and ours.dtype == x.dtype


def test_dlpack_with_jax():
    jnp = pytest.importorskip("jax.numpy")
    x = ad.from_dlpack(jnp.arange(4.0))
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert jnp.from_dlpack(ad.arange(3.0)).tolist() == [0.0, 1.0, 2.0]


# ------------------------------------------------------------------ SciPy
def rosenbrock(p):
    x, y = p["x"], p["y"]
    return (100 * (y - x ** 2) ** 2 + (1 - x) ** 2).sum()


START = {"x": ad.tensor([-1.2, 0.5], dtype=ad.float64), "y": ad.tensor([1.0, 1.5],
                                                                      dtype=ad.float64)}


@pytest.mark.parametrize("method", [None, "BFGS", "CG", "L-BFGS-B", "TNC", "SLSQP", "Newton-CG",
                                    "trust-ncg", "trust-krylov", "trust-constr", "trust-exact",
                                    "dogleg", "Nelder-Mead", "Powell"])
def test_minimize_a_tree_with_every_kind_of_method(method):
    pytest.importorskip("scipy")
    seen = []
    near = {"x": ad.full((2,), 0.95, dtype=ad.float64), "y": ad.full((2,), 0.9025,
                                                                     dtype=ad.float64)}
    start = near if method == "dogleg" else START       # it needs a convex neighbourhood
    found = scipy_minimize(rosenbrock, start, method=method, callback=seen.append,
                           options={"maxfun" if method == "TNC" else "maxiter": 4000})
    for v in found.x.values():
        np.testing.assert_allclose(plain(v), 1.0, atol=2e-2 if method == "TNC" else 2e-3)
    assert seen and set(seen[0]) == {"x", "y"} and START["x"].tolist() == [-1.2, 0.5]
    derivative = found.get("grad" if method == "trust-constr" else "jac")
    assert derivative is None or set(derivative) == {"x", "y"}
    assert (derivative is None) == (method in ("Nelder-Mead", "Powell"))


def test_minimize_bounds_constraints_args_and_dtypes():
    pytest.importorskip("scipy")
    found = scipy_minimize(lambda x, c: ((x - c) ** 2).sum(), ad.zeros(3), (ad.tensor(2.0),),
                           bounds=(None, 1.0))
    assert found.x.dtype == ad.float32 and found.x.tolist() == [1.0, 1.0, 1.0]
    found = scipy_minimize(lambda p: (p[0] ** 2).sum() + p[1] ** 2, (ad.ones(2), ad.tensor(3.0)),
                           method="SLSQP", constraints={
                               "type": "eq", "fun": lambda p: p[0].sum() + p[1] - 3})
    np.testing.assert_allclose([*found.x[0].tolist(), found.x[1].item()], 1.0, atol=1e-5)
    low = {"x": ad.tensor([1.5, -2.0]), "y": ad.tensor([-2.0, -2.0])}
    high = {"x": ad.tensor([2.0, 2.0]), "y": ad.tensor([2.0, 2.0])}
    held = scipy_minimize(rosenbrock, START, bounds=(low, high))
    assert held.x["x"][0].item() == pytest.approx(1.5)
    for call, error, text in (
            (lambda: scipy_minimize(lambda x: x, ad.ones(2)), ValueError, "one element"),
            (lambda: scipy_minimize(lambda x: 3.0, ad.ones(2)), ValueError, "one element"),
            (lambda: scipy_minimize(lambda x: x.sum(), ad.arange(2)), TypeError, "floating"),
            (lambda: scipy_minimize(lambda x: x, ()), ValueError, "no tensors")):
        with pytest.raises(error, match=text):
            call()


def test_without_scipy_it_says_what_to_install():
    code = ("import sys; sys.modules['scipy'] = None\n"
            "import adjoint as ad\n"
            "try: ad.interop.scipy_minimize(lambda x: x.sum(), ad.ones(2))\n"
            "except NotImplementedError as e: print(e)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "pip install scipy" in done.stdout, done.stderr


# ------------------------------------------------------------------ estimators
def network(n, m):
    return ad.nn.Sequential(ad.nn.Linear(n, 16), ad.nn.Tanh(), ad.nn.Linear(16, m))


def moons(n=120):
    rng = np.random.default_rng(0)
    a = rng.uniform(0, np.pi, n)
    k = np.arange(n) % 2
    x = np.where(k == 0, np.cos(a), 1 - np.cos(a))
    y = np.where(k == 0, np.sin(a), 0.5 - np.sin(a))
    return np.stack([x, y], 1) + rng.normal(0, 0.05, (n, 2)), np.array(["up", "down"])[k]


def test_estimator_classifies_regresses_and_repeats_itself():
    x, y = moons()
    e = Estimator(network, epochs=40, lr=0.03)
    assert e.fit(x, y) is e and e.score(x, y) > 0.97
    assert list(e.classes_) == ["down", "up"] and e.predict(x[:3]).dtype.kind == "U"
    p = e.predict_proba(x)
    assert p.shape == (120, 2) and np.allclose(p.sum(1), 1, atol=1e-5)
    assert e.losses_[-1] < 0.3 * e.losses_[0] and e.n_features_in_ == 2
    state = ad.get_rng_state()
    again = Estimator(**e.get_params()).fit(x, y)
    assert again.losses_ == e.losses_ and ad.get_rng_state().equal(state)
    assert pickle.loads(pickle.dumps(e)).score(x, y) == e.score(x, y)
    target = np.stack([x[:, 0] * 2 - 1, x.sum(1)], 1)
    r = Estimator(network, epochs=80, lr=0.02, optimizer=ad.optim.AdamW).fit(ad.tensor(x), target)
    assert r.predict(x).shape == (120, 2) and r.score(x, target) > 0.97
    assert Estimator(network, task="regression").fit(x, x[:, 0]).predict(x[:0]).shape == (0,)


def test_estimator_parameters_and_bad_input():
    x, y = moons(20)
    e = Estimator(network, lr=0.1)
    assert e.get_params()["lr"] == 0.1 and e.set_params(epochs=1) is e and "epochs=1" in repr(e)
    for call, error, text in (
            (lambda: e.set_params(rate=1), ValueError, "Invalid parameter 'rate'"),
            (lambda: e.predict(x), ValueError, "not fitted yet"),
            (lambda: e.fit(x, y[:3]), ValueError, "20 rows and y has 3"),
            (lambda: e.fit(x[:0], y[:0]), ValueError, "no rows"),
            (lambda: Estimator(network, task="guess").fit(x, y), ValueError, "task must be"),
            (lambda: e.fit(x, y).predict(x[:, :1]), ValueError, "expecting 2 features"),
            (lambda: Estimator(network, epochs=1).fit(x, x).predict_proba(x), ValueError,
             "not a fitted classifier")):
        with pytest.raises(error, match=text):
            call()


def test_estimator_in_scikit_learn():
    pytest.importorskip("sklearn")
    from sklearn.base import clone
    from sklearn.model_selection import GridSearchCV, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    x, y = moons()
    e = Estimator(network, task="classification", epochs=40, lr=0.05)
    assert clone(e).get_params() == e.get_params()
    assert cross_val_score(make_pipeline(StandardScaler(), e), x, y, cv=3).mean() > 0.9
    search = GridSearchCV(e, {"lr": [1e-4, 0.05]}, cv=2).fit(x, y)
    assert search.best_params_ == {"lr": 0.05}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool", "complex64", "float16"])
def test_what_was_pickled_has_numpys_own_dtype(dtype: str) -> None:
    """Pickle makes dtype objects of its own, which results would inherit and kernels not know."""
    array = pickle.loads(pickle.dumps(np.ones(3, dtype)))
    own = np.dtype(dtype)
    assert array.dtype == own and array.dtype is not own
    shared = ad.from_numpy(array)
    for t in (shared, ad.tensor(array), ad.as_tensor(array), pickle.loads(pickle.dumps(shared))):
        assert t.array.dtype is own and t.tolist() == np.ones(3, dtype).tolist()
    shared.zero_()
    assert not array.any()
