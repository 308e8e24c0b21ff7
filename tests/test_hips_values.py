"""Values, dtypes and warnings of `adjoint.hips` as HIPS autograd gives them (measured)."""
from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from adjoint import hips
from adjoint.hips import numpy as anp
from adjoint.hips import test_util as checks
from adjoint.hips.extend import vspace

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
