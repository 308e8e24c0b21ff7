"""Values, dtypes and warnings of `adjoint.hips` as HIPS autograd gives them (measured)."""
from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from adjoint import hips, tensor
from adjoint import numpy as anumpy
from adjoint.hips import numpy as anp
from adjoint.hips import scipy as hips_scipy
from adjoint.hips import test_util as checks
from adjoint.hips.box import getval
from adjoint.hips.extend import defjvp, defvjp, primitive, vspace
from adjoint.hips.misc.flatten import flatten
from adjoint.hips.misc.optimizers import adam, rmsprop, sgd
from adjoint.hips.misc.tracers import const_graph

M = np.arange(12.0).reshape(3, 4) / 7 + 0.3
W = np.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize("order", ["C", "F"])
def test_flatten_takes_the_order(order: Any) -> None:
    found = hips.grad(lambda x: anp.sum(x.flatten(order) * W.ravel()))(M)
    assert found.tolist() == W.ravel().reshape(3, 4, order=order).tolist()
    assert hips.make_jvp(lambda x: x.flatten(order=order))(M)(W)[1].tolist() == (
        W.flatten(order).tolist())


@pytest.mark.parametrize("ndmin", [0, 2, 4])
def test_array_takes_ndmin(ndmin: int) -> None:
    def f(x: Any) -> Any:
        return anp.array(x, ndmin=ndmin)
    assert hips.make_vjp(f)(M)[1].shape == np.array(M, ndmin=ndmin).shape
    checks.check_grads(f)(M)
    assert hips.make_vjp(lambda x: anp.array([x[0, 0], 1.0], ndmin=ndmin))(M)[1].shape == (
        np.array([M[0, 0], 1.0], ndmin=ndmin).shape)


def test_imag_of_real_values_hangs_on_them() -> None:
    """No warning that the output is independent; zeros at infinities too."""
    x = np.array([1.0, np.inf])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for f in (anp.imag, lambda v: v.imag):
            assert hips.grad(lambda v, f=f: anp.sum(f(v)))(x).tolist() == [0, 0]
            assert hips.make_jvp(f)(x)(x)[1].tolist() == [0, 0]
        assert hips.grad(anp.imag)(2.0) == 0


def test_largest_of_complex_numbers_by_method() -> None:
    z = np.array([[1 + 2j, 1 + 3j], [0 + 9j, 4 - 1j]])
    for name in ("max", "min"):
        for kw in ({}, {"axis": 1}, {"axis": 0, "keepdims": True}):
            found = hips.make_vjp(lambda v, n=name, kw=kw: getattr(v, n)(**kw))(z)[1]
            assert np.array_equal(found, getattr(z, name)(**kw))


def test_fmod_of_a_number_and_an_array() -> None:
    x = np.array([2.3, 4.1])
    assert hips.grad(lambda v: anp.sum(anp.fmod(5.0, v)))(x).tolist() == [-2, -1]


def test_inner_products_have_the_dtype_of_the_space() -> None:
    for x, kind in ((np.ones(3, np.float32), np.float32), (np.complex64(1j), np.float32),
                    (np.ones(2), np.float64), ([np.ones(2, np.float32)], np.float32)):
        s = vspace(x)
        assert s.inner_prod(s.ones(), s.ones()).dtype == kind
        assert vspace(s.scalar_mul(s.ones(), s.inner_prod(s.ones(), s.ones()))) == s


@pytest.mark.filterwarnings("ignore:Output seems independent")
def test_checks_take_functions_whose_values_are_whole_numbers() -> None:
    for f in (lambda x: x < 1, lambda x: x == x, lambda x: anp.argsort(x, 1)):
        checks.check_grads(f, modes=["rev"], order=2)(M)


def test_boxes_ask_first() -> None:
    """`__array_priority__`, by which matrix types of other packages let a box multiply."""
    assert hips.grad(lambda x: x.__array_priority__ * x)(1.0) == 100


def test_flatten_keeps_the_order_of_keys_and_the_dtypes() -> None:
    tree = {"b": [np.ones(2, np.float32), 2.0], "a": M}
    vector, back = flatten(tree)
    assert vector[:12].tolist() == M.ravel().tolist()         # keys are sorted in the vector
    again = back(vector * 2)
    assert list(again) == ["b", "a"] and again["b"][0].dtype == np.float32
    assert again["b"][0].tolist() == [2, 2] and again["b"][1] == 4 and again["a"].dtype == M.dtype
    assert back(np.arange(15.0))["b"][1] == 14
    checks.check_grads(lambda v: back(v)["a"])(vector)


def test_optimizers_are_differentiated_in_the_start() -> None:
    """Of 0.5 x^2, gradient descent scales the start; momentum 0 makes the factor plain."""
    for optimize, kwargs in ((sgd, {"mass": 0.0, "step_size": 0.1}), (adam, {}), (rmsprop, {})):
        def end(s: Any, optimize: Any = optimize, kwargs: Any = kwargs) -> Any:
            return anp.sum(optimize(lambda x, i: x, np.ones(2) * s, num_iters=3, **kwargs))
        slope = (end(1.5 + 1e-6) - end(1.5 - 1e-6)) / 2e-6
        assert hips.grad(end)(1.5) == pytest.approx(slope, rel=1e-6)
    assert hips.grad(lambda s: anp.sum(sgd(lambda x, i: x, np.ones(2) * s, num_iters=3, mass=0.0,
                                           step_size=0.1)))(1.5) == pytest.approx(2 * 0.9 ** 3)


@pytest.mark.parametrize("family, args", [("gamma", (1.3, 0.5, 2.0)), ("chi2", (3.0, 0.5, 2.0)),
                                          ("beta", (1.3, 2.1, 0.5, 2.0))])
def test_outside_of_the_support(family: str, args: Any) -> None:
    """The density is zero there, as SciPy has it, and so is its gradient."""
    theirs = getattr(pytest.importorskip("scipy.stats"), family)
    ours: Any = getattr(hips_scipy.stats, family)
    x = np.array([-1.0, 0.2, 0.7, 1.9, 4.0, np.nan])
    for name in ("pdf", "logpdf", "cdf"):
        f, want = getattr(ours, name), getattr(theirs, name)(x, *args)
        np.testing.assert_allclose(f(x, *args), want, rtol=1e-12)
        slope = hips.elementwise_grad(lambda v, f=f: f(v, *args))(x)
        inside = np.isfinite(theirs.logpdf(x, *args))
        assert (slope[~inside & (x == x)] == 0).all() and (slope[inside] != 0).all()


def test_modules_of_scipy_load_when_asked_for() -> None:
    assert {"integrate", "linalg", "signal", "special", "stats"} <= set(dir(hips_scipy))
    with pytest.raises(AttributeError, match="no attribute 'misc'"):
        _ = hips_scipy.misc
    pytest.importorskip("scipy")
    assert hips_scipy.special.logsumexp(np.zeros(1)) == 0


@pytest.mark.parametrize("name", ["floor", "ceil", "sign", "rint", "round", "trunc", "isfinite"])
def test_steps_are_plain_values(name: str) -> None:
    """Programs count and index with them."""
    f = getattr(anp, name)
    assert hips.grad(lambda x: x * [1, 2, 3][int(f(x))])(1.6) == 1 + int(f(1.6))
    kinds = []
    hips.grad(lambda x: (kinds.append(type(f(x))), anp.sum(x))[1])(M)
    assert kinds == [np.ndarray]
    found = const_graph(lambda x: f(x) * x)               # in graphs of nodes they are nodes
    assert [float(found(v)) for v in (1.6, 2.7)] == [getattr(np, name)(v) * v for v in (1.6, 2.7)]


@pytest.mark.parametrize("v", [[1, 2, 3], (1, 2, 3), np.arange(3, dtype=np.int32),
                               [True, False, True], np.ones(3, np.float32)])
def test_products_with_other_kinds_of_numbers(v: Any) -> None:
    x, a = np.array([0.3, 0.7, 1.1]), np.asarray(v)
    for f in (lambda y: y @ v, lambda y: v @ y if a is v else anp.dot(v, y), lambda y: anp.matmul(
            y, v), lambda y: anp.linalg.multi_dot([y, np.eye(3), a]), lambda y: anp.subtract(y, v),
            lambda y: anp.linspace(y, v, 3)):
        value, slope = hips.make_jvp(f)(x)(np.ones(3))
        np.testing.assert_allclose(value, getval(f(x)))
        np.testing.assert_allclose(slope, (f(x + 1e-6) - f(x - 1e-6)) / 2e-6, rtol=1e-6)
        checks.check_grads(f, modes=["rev"])(x)


def test_select_has_the_dtype_of_all_its_choices() -> None:
    """A default of floats was cut to whole numbers where the choices are such."""
    x = np.array([0.3, 0.7, 1.1])
    pull, value = hips.make_vjp(lambda y: anp.select([y > 0.5], [[1, 2, 3]], y))(x)
    assert value.tolist() == [0.3, 2, 3] and pull(np.ones(3)).tolist() == [1, 0, 0]
    for choice, default in ((x, 0), (x.astype(np.float32), 0.5), (np.arange(3), 1.5)):
        want = np.select([x > 0.5], [choice], default)
        found = anumpy.select([x > 0.5], [tensor(choice)], default)
        assert found.numpy().dtype == want.dtype and found.tolist() == want.tolist()


def test_tangents_of_complex_primitives() -> None:
    """By rules of either kind, the tangent is that of the function, not its conjugate."""
    cube, cubed = primitive(lambda z: z ** 3), primitive(lambda z: z ** 3)
    defvjp(cube, lambda ans, z: lambda g: g * 3 * z ** 2)
    defjvp(cubed, lambda g, ans, z: g * 3 * z ** 2)
    z, d = np.array([0.7 + 0.4j, -1j]), np.array([0.3 - 0.2j, 1.0 + 0j])
    for f in (cube, cubed):
        np.testing.assert_allclose(hips.make_jvp(f)(z)(d)[1], 3 * z ** 2 * d)
    pytest.importorskip("scipy")
    gamma = hips_scipy.special.gamma
    np.testing.assert_allclose(hips.make_jvp(gamma)(z)(d)[1], (
        gamma(z + 1e-6 * d) - gamma(z - 1e-6 * d)) / 2e-6, rtol=1e-8)


@pytest.mark.parametrize("f", [
    lambda x, out: anp.add(x, x * x, out=out), lambda x, out: anp.sum(x, axis=0, out=out),
    lambda x, out: anp.exp(x, out), lambda x, out: anp.multiply(x, 2.0, out=(out,))])
def test_out_holds_the_values_and_the_result_the_derivative(f: Any) -> None:
    x = np.array([[0.3, 0.7]]) if f.__code__.co_consts[-1] == ("axis", "out") else (
        np.array([0.3, 0.7]))
    for kind in (np.float64, np.float32):
        out, want = np.zeros(2, kind), np.zeros(2, kind)
        pull, y = hips.make_vjp(lambda v, out=out: f(v, out))(x)
        f(x, want)
        assert y.dtype == kind and y.tolist() == out.tolist() == want.tolist()
        slope = (f(x + 1e-6, np.zeros(2)) - f(x - 1e-6, np.zeros(2))) / 2e-6
        np.testing.assert_allclose(np.ravel(pull(np.ones(2, kind))), slope, rtol=1e-6)
    with pytest.raises(TypeError, match="return arrays must be of ArrayType"):
        hips.grad(lambda v: anp.sum(anp.exp(v, out=[0.0, 0.0])))(np.ones(2))


def test_python_numbers_take_the_dtype_of_what_they_meet() -> None:
    a, kinds = np.ones(3, np.float32), []
    for f in (lambda s: a * s, lambda s: s / a, lambda s: anp.hypot(a, s), lambda s: anp.add(s, a)):
        for x, kind in ((0.5, np.float32), (np.float64(0.5), np.float64),
                        (np.array(0.5), np.float64)):
            pull, y = hips.make_vjp(f)(x)
            assert y.dtype == np.asarray(f(x)).dtype == kind
            assert pull(y).dtype == np.float64
    hips.grad(lambda s: (kinds.append(type(s._value)), s * s)[1])(0.5)
    hips.grad(hips.grad(lambda s: (kinds.append((s * a).dtype), s * s)[1]))(0.5)
    assert kinds == [float, np.float32]
    assert hips.make_vjp(lambda s: a * (s * 2))(0.5)[1].dtype == np.float64


def test_scipy_without_rules_is_refused_by_name() -> None:
    """A box is never taken for an object: the derivative would be lost."""
    pytest.importorskip("scipy")
    la, sp = hips_scipy.linalg, hips_scipy.special
    for f in (lambda x: anp.sum(la.block_diag(x, x)), la.det, lambda x: sp.zeta(x[0, 0] + 1, 2.0),
              lambda x: sp.diric(x[0, 0], 3)):
        for run in (hips.grad(f), lambda x, f=f: hips.make_jvp(f)(x)(x)):
            with pytest.raises(NotImplementedError, match="not defined"):
                run(np.eye(2) * 2)
    assert la.block_diag(M, M).shape == (6, 8) and la.toeplitz is not None
    assert hips.grad(lambda q: sp.zeta(2.0, q))(1.5) == pytest.approx(-2 * sp.zeta(3.0, 1.5))
    z = np.array([[1 + 2j, -0.5j]])
    assert hips.make_vjp(la.norm)(z)[0](1.0) == pytest.approx(z.conj() / la.norm(z))
    for f in (sp.softmax, sp.log_softmax):
        for axis in (None, 0, -1):
            checks.check_grads(lambda x, f=f, axis=axis: f(x, axis=axis))(M)
    checks.check_grads(sp.erf, order=1)(z)
    checks.check_grads(sp.erfc, order=1)(z)


@pytest.mark.parametrize("a, kwargs", [
    (np.array([1000.0, 0.0]), {"b": np.array([0.0, 1.0])}),
    (np.array([0.3, 2.0]), {"b": -1.0, "return_sign": True}),
    (np.array([0.3, 2.0]), {"b": 0.0, "return_sign": True}),
    (np.array([[1 + 2j, -0.5 + 1j]]), {"return_sign": True, "axis": 1})])
def test_logsumexp_as_scipy(a: Any, kwargs: Any) -> None:
    special = pytest.importorskip("scipy.special")
    with np.errstate(divide="ignore"):
        ours, want = (m.logsumexp(a, **kwargs) for m in (hips_scipy.special, special))
    for mine, theirs in zip(np.atleast_1d(ours), np.atleast_1d(want), strict=True):
        np.testing.assert_allclose(mine, theirs)


def test_variances_and_scans_of_other_kinds() -> None:
    z = np.array([[1 + 2j, -0.5j, np.nan], [2.0, 1j, 3 - 1j]])
    for name in ("nanvar", "nanstd", "nanmean"):
        for kwargs in ({}, {"axis": 1, "keepdims": True}):
            f = getattr(anp, name)
            value = hips.make_vjp(lambda v, f=f, kwargs=kwargs: f(v, **kwargs))(z)[1]
            want = np.asarray(getattr(np, name)(z, **kwargs))
            np.testing.assert_allclose(value, want, rtol=1e-6)
            assert np.asarray(value).dtype == want.dtype
    checks.check_grads(lambda v: anp.nanstd(v, axis=0), order=1)(z[:, :2])
    assert hips.make_vjp(lambda v: anp.nanmean(v, dtype=np.float32))(M)[1].dtype == np.float32
    for f in (anp.cumsum, anp.cumprod):
        assert hips.make_vjp(lambda v, f=f: f(v, axis=0))(np.array(0.5))[1].shape == (1,)
    for kwargs in ({"axis": -1}, {"dtype": np.float32}, {"retstep": True}, {"endpoint": False}):
        def grid(v: Any, kwargs: Any = kwargs) -> Any:
            return anp.linspace(v, v * v, 4, **kwargs)
        value, want = hips.make_vjp(grid)(M[0])[1], grid(M[0])
        for mine, theirs in zip(*[v if isinstance(v, tuple) else (v,) for v in (value, want)],
                                strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-6)
            assert mine.dtype == theirs.dtype


def test_parts_of_numpy_are_attributes() -> None:
    for name in ("numpy_boxes", "numpy_jvps", "numpy_vjps", "numpy_vspaces", "numpy_wrapper"):
        assert getattr(anp, name).__name__ == f"adjoint.hips.numpy.{name}"
    assert hips.isinstance(M, np.ndarray) and anp.numpy_boxes.ArrayBox.__name__ == "ArrayBox"
    with pytest.raises(AttributeError, match="no attribute 'numpy_arrows'"):
        _ = anp.numpy_arrows


@pytest.mark.parametrize("bounds", [(1, 2), (1 + 1j, 2), (None, 1.5 + 1j), (1.5 + 1.5j, None)])
def test_clip_of_complex_numbers(bounds: Any) -> None:
    """In NumPy's order; a value at a bound has no derivative, as in HIPS autograd."""
    z = np.array([0.5 + 2.5j, 1.5 + 1.5j, 1.5 + 0.5j, 2.5 + 0.5j, complex("nan")])
    back, found = hips.make_vjp(lambda v: anp.clip(v, *bounds))(z)
    want = np.clip(z, *bounds)
    np.testing.assert_array_equal(found, want)
    free = np.isnan(z) | ~np.isin(want, [b for b in bounds if b is not None])
    assert back(np.ones_like(z)).tolist() == free.tolist()
    push = hips.make_jvp(lambda v: anp.clip(v, *bounds))(z)
    assert push(np.full(5, 1j))[1].tolist() == (free * 1j).tolist()
