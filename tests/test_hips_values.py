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
from adjoint.hips.extend import vspace
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
