"""PyTorch's functions take `axis=` for `dim=` and `keepdims=` for `keepdim=`; tensors are printed
by its column rules; operands of the wrong rank and integer divisions by 0 are refused (F123)."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adjoint as ad

REDUCTIONS = ["sum", "mean", "prod", "std", "var", "amax", "amin", "argmax", "argmin", "logsumexp",
              "nansum", "nanmean", "all", "any"]
ALONG = ["softmax", "log_softmax", "cumsum", "cumprod", "argsort", "unsqueeze", "squeeze"]


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str) -> None:
    x = ad.arange(6.0).reshape(2, 3)
    x = x > 2 if name in ("all", "any") else x
    expected = getattr(x, name)(dim=1, keepdim=True)
    assert getattr(x, name)(axis=1, keepdims=True).equal(expected)
    assert getattr(ad, name)(x, axis=1).equal(expected.squeeze(1))


@pytest.mark.parametrize("name", ALONG)
def test_functions_along_an_axis(name: str) -> None:
    x = ad.arange(6.0).reshape(2, 3)
    assert getattr(x, name)(axis=0).equal(getattr(x, name)(dim=0))


def test_functions_of_several_tensors_and_of_namespaces() -> None:
    x = ad.arange(6.0).reshape(2, 3)
    assert ad.cat([x, x], axis=1).shape == (2, 6) and ad.stack([x, x], axis=2).shape == (2, 3, 2)
    values, places = x.max(axis=1)
    assert values.tolist() == [2.0, 5.0] and places.tolist() == [2, 2]
    assert ad.linalg.norm(x, axis=1, keepdims=True).shape == (2, 1)
    assert ad.fft.fft(x, axis=0).equal(ad.fft.fft(x, dim=0))
    assert ad.quantile(x, 0.5, axis=0).equal(ad.quantile(x, 0.5, dim=0))


def test_gradients_pass() -> None:
    x = ad.ones(2, 3, requires_grad=True)
    (x * x).sum(axis=0).sum().backward()
    assert x.grad.tolist() == [[2.0] * 3] * 2


def test_errors_of_the_call_stay_as_they_are() -> None:
    x = ad.ones(2, 3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'axes'"):
        x.sum(axes=1)
    with pytest.raises(TypeError, match="axis"):
        x.sum(dim=0, axis=1)
    with pytest.raises(IndexError, match="Dimension out of range"):
        x.sum(axis=5)


@pytest.mark.parametrize(("text", "build"), [
    ("tensor([1., -0., 1.])", lambda: ad.tensor([1.0, -0.0, 1.0])),
    ("tensor([0., 0., nan])", lambda: ad.tensor([0.0, 0.0, float("nan")])),
    ("tensor([1.5000,    nan,   -inf])",
     lambda: ad.tensor([1.5, float("nan"), -float("inf")])),
    ("tensor([-1.5000+2.j,  0.5000-3.j])", lambda: ad.tensor([-1.5 + 2j, 0.5 - 3j])),
    ("tensor([1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1.], dtype=adjoint.float64,\n"
     "       requires_grad=True)", lambda: ad.ones(12, dtype=ad.float64, requires_grad=True)),
])
def test_printed_form(text: str, build: Any) -> None:
    assert repr(build()) == text


def test_format_of_one_number_is_that_of_the_number() -> None:
    assert f"{ad.tensor(0.5)} {ad.tensor(3)} {ad.tensor(0.25):.1f}" == "0.5 3 0.2"
    assert f"{ad.tensor([1, 2])}" == "tensor([1, 2])"
    with pytest.raises(TypeError, match="unsupported format string"):
        format(ad.tensor([1.0, 2.0]), ".2f")


@pytest.mark.parametrize(("name", "shapes"), [
    ("bmm", ((2, 2), (2, 2))), ("mm", ((2,), (2,))), ("mv", ((2, 2), (2, 2))),
    ("dot", ((2, 2), (2, 2))), ("vdot", ((2, 2), (2, 2))), ("combinations", ((2, 2),)),
    ("cartesian_prod", ((2, 2), (2,))), ("vander", ((2, 2),)), ("meshgrid", ((2, 2), (2,))),
])
def test_operands_of_another_rank_are_refused(name: str, shapes: Any) -> None:
    with pytest.raises(RuntimeError, match="[0-3]D"):
        getattr(ad, name)(*(ad.ones(s) for s in shapes))


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod"])
def test_integers_are_not_divided_by_zero(name: str) -> None:
    a, f = ad.tensor([1, -2]), getattr(ad, name)
    for b in (0, ad.tensor([1, 0]), ad.tensor(0)):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            f(a, b)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        getattr(a, name + "_")(0)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        ad.div(a, 0, rounding_mode="trunc")
    assert f(a.float(), 2.0).shape == (2,) and f(a, 2).dtype == ad.int64


def test_a_copied_parameter_has_no_gradient() -> None:
    import copy

    p = ad.nn.Parameter(ad.ones(2))
    p.grad = ad.ones(2)
    assert copy.deepcopy(p).grad is None
    t = ad.ones(2, requires_grad=True)
    t.grad = ad.ones(2)
    assert copy.deepcopy(t).grad.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(("text", "build"), [
    ("zeros", lambda: ad.zeros(size=(2, 3))), ("ones", lambda: ad.ones(size=(2, 3))),
    ("empty", lambda: ad.empty(size=(2, 3))), ("rand", lambda: ad.rand(size=(2, 3))),
    ("randn", lambda: ad.randn(size=(2, 3))), ("new_zeros", lambda: ad.ones(1).new_zeros(
        size=(2, 3))), ("view", lambda: ad.ones(6).view(size=(2, 3))),
    ("unsqueeze_", lambda: ad.ones(2, 3).unsqueeze_(dim=0).squeeze_(dim=0)),
    ("transpose_", lambda: ad.ones(3, 2).transpose_(dim0=0, dim1=1)),
    ("swapaxes", lambda: ad.swapaxes(ad.ones(3, 2), axis0=0, axis1=1)),
    ("split", lambda: ad.ones(4, 3).split(split_size=2)[0]),
    ("pow_", lambda: ad.ones(2, 3).pow_(exponent=2).mul_(other=3)),
    ("addcmul_", lambda: ad.ones(2, 3).addcmul_(tensor1=ad.ones(2, 3), tensor2=ad.ones(3))),
    ("inverse", lambda: ad.inverse(input=ad.eye(3))[:2]),
])
def test_other_keywords(text: str, build: Any) -> None:
    assert build().shape == (2, 3), text


def test_keywords_that_do_not_exist() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'exponent'"):
        ad.ones(2).mul_(exponent=2)
    with pytest.raises(TypeError, match="unexpected keyword argument 'shape'"):
        ad.zeros(shape=(2,))


def test_python_types_as_dtypes() -> None:
    assert ad.zeros(2, dtype=float).dtype == ad.float64 == ad.ones(2).to(float).dtype
    assert ad.zeros(2, dtype=int).dtype == ad.int64
    assert ad.zeros(2, dtype=bool).dtype == ad.bool
    assert ad.zeros(2, dtype=complex).dtype == ad.complex128
    assert ad.tensor([1.0]).dtype == ad.float32


def test_results_with_names_are_printed_by_lines() -> None:
    assert repr(ad.tensor([1.0, 3.0]).max(0)) == (
        "adjoint.return_types.max(\nvalues=tensor(3.),\nindices=tensor(1))")


@pytest.mark.parametrize(("kind", "call"), [
    (TypeError, lambda x: x + None), (TypeError, lambda x: x * None), (TypeError, lambda x: ~x),
    (RuntimeError, lambda x: x & 1), (RuntimeError, lambda x: x.copy_(ad.ones(5))),
    (RuntimeError, lambda x: x.masked_fill(ad.ones(2, 2).bool(), 1)),
    (RuntimeError, lambda x: x.masked_select(ad.ones(2).bool())),
    (RuntimeError, lambda x: x.index_select(0, ad.tensor([7]))),
    (AssertionError, lambda x: ad.nn.MultiheadAttention(5, 2)),
    (AssertionError, lambda x: ad.nn.Embedding(3, 2, padding_idx=5)),
    (AssertionError, lambda x: ad.utils.data.TensorDataset(x, ad.ones(5))),
])
def test_builtin_kinds_of_errors(kind: type[Exception], call: Any) -> None:
    with pytest.raises(kind):
        call(ad.ones(2, 3))


def test_sizes_that_do_not_broadcast_are_told_in_pytorch_s_words() -> None:
    with pytest.raises(RuntimeError, match="The size of tensor a .3. must match the size of tensor "
                                           "b .5. at non-singleton dimension 1"):
        ad.ones(2, 3) + ad.ones(2, 5)


def test_integers_take_no_history() -> None:
    x, y = ad.ones(3, requires_grad=True), ad.zeros(3, dtype=ad.int64)
    y[0] = x[0]
    y.copy_(x)
    assert y.tolist() == [1, 1, 1] and not y.requires_grad and y.grad_fn is None


def test_strings_of_a_batch_stay_as_they_are() -> None:
    numbers, words = ad.utils.data.default_collate([(1, "x"), (2, "y")])
    assert numbers.tolist() == [1, 2] and words == ("x", "y")


def test_rounding_to_tens_is_exact() -> None:
    assert ad.round(ad.tensor([1234.5678]), decimals=-3).tolist() == [1000.0]
    assert ad.round(ad.tensor([1234.5678, 0.125]), decimals=2).tolist() == ad.tensor(
        [1234.57, 0.12]).tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floor_divide_agrees_with_the_remainder(dtype: Any) -> None:
    """NumPy's quotient, bit for bit and sign for sign, where a / b rounds up to a whole number and
    at zeros and infinities; no derivative flows through it."""
    rng = np.random.default_rng(0)
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 2, -6, 6, 1, 0.1, -0.1], dtype)
    a = np.concatenate([np.repeat(special, len(special)), np.round(rng.normal(size=900) * 30)])
    b = np.concatenate([np.tile(special, len(special)), np.round(rng.normal(size=900) * 9) / 10])
    x, y = (ad.tensor(v.astype(dtype), requires_grad=True) for v in (a, b))
    with np.errstate(all="ignore"):
        want = np.floor_divide(x.detach().numpy(), y.detach().numpy())
    for got in (x // y, ad.floor_divide(x, y), ad.div(x, y, rounding_mode="floor")):
        np.testing.assert_array_equal(got.detach().numpy(), want)
        known = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got.detach().numpy()[known]),
                                      np.signbit(want[known]))
    (x // y).sum().backward()
    assert x.grad is not None and y.grad is not None
    assert not x.grad.numpy().any() and not y.grad.numpy().any()
