"""Arguments of a wrong type: TypeError that names the argument, where the call fails by it or it is
a keyword whose default says what it is; and calls that are right stay as they are."""
import inspect
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.base.errors import AdjointError
from adjoint.core.schema import blamed
from adjoint.ops.public import typed

x = ad.ones(2, 2)
F = ad.nn.functional
WRONG = {
    "combinations('x')": (lambda: ad.combinations("x"), "'input' (position 1) must be Tensor"),
    "index_fill": (lambda: ad.index_fill("x", 0, ad.tensor([0]), 1.0), "must be Tensor, not str"),
    "unique": (lambda: ad.unique(x, sorted=3), "unique(): argument 'sorted' must be bool, not int"),
    "unique_": (lambda: ad.unique(x, return_counts="y"), "'return_counts' must be bool, not str"),
    "interpolate": (lambda: F.interpolate(x[None, None], scale_factor=2, mode=3), "must be str"),
    "sum": (lambda: ad.sum(x, 0, keepdim=ad.ones(3)), "'keepdim' must be bool, not Tensor"),
    "meshgrid": (lambda: ad.meshgrid("x"), "expected Tensor as element 0 in argument 0"),
    "cartesian": (lambda: ad.cartesian_prod(None), "expected Tensor as element 0 in argument 0"),
    "svd": (lambda: ad.linalg.svd(x, full_matrices=1), "'full_matrices' must be bool, not int"),
    "scatter_reduce": (lambda: x.scatter_reduce(0, ad.tensor([[0]]), x, 3), "must be str, not int"),
    "kl_div": (lambda: F.kl_div(x, x, reduction="sum", log_target=x), "'log_target' must be bool"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_type_is_a_type_error_that_names_the_argument(name: str) -> None:
    call, words = WRONG[name]
    with pytest.raises(TypeError) as caught:
        call()
    assert words in str(caught.value)


def test_what_fails_for_another_reason_keeps_its_exception() -> None:
    with pytest.raises(IndexError, match="Dimension out of range"):
        x.sum(5)
    with pytest.raises(ValueError, match="other words"):
        _fails(x, 1)
    assert blamed(_fails, (x, 1), {}) is None


@typed
def _fails(input: ad.Tensor, times: int, *, keepdim: bool = False) -> None:
    raise ValueError("other words")


def test_checks_know_what_defaults_and_annotations_say() -> None:
    assert "'times'" in str(blamed(_fails, (x, "2"), {}))
    assert "(position 1) must be Tensor, not list" in str(blamed(_fails, ([1], 2), {}))
    assert "'keepdim' must be bool" in str(blamed(_fails, (x, 2), {"keepdim": 1}))
    assert list(inspect.signature(ad.unique).parameters)[:2] == ["input", "sorted"]


@pytest.mark.parametrize("call, words", [
    (lambda: ad.cross(ad.ones(3), None, 0), "'other' .position 2. must be Tensor, not NoneType"),
    (lambda: ad.cholesky_solve(x, [1]), "must be Tensor, not list"),
    (lambda: ad.diff(object()), "'input' .position 1. must be Tensor, not object"),
    (lambda: ad.block_diag(x, [1]), "expected Tensor as element 1 in argument 0"),
    (lambda: ad.broadcast_tensors(x, (0,)), "expected Tensor as element 1 in argument 0"),
])
def test_what_was_taken_for_a_tensor_is_named(call: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        call()


def test_a_tensor_without_axes_and_a_number_of_numpy_are_ints() -> None:
    one, y = ad.tensor(1), ad.arange(24.0).reshape(2, 3, 4)
    np.testing.assert_array_equal(ad.roll(y, one, np.int64(2)), ad.roll(y, 1, 2))
    assert [p.shape[0] for p in ad.split(y, one)] == [1, 1]
    assert len(ad.tensor_split(y, np.int64(3), 2)) == 3
    assert y.std(dim=one).shape == (2, 4)
    assert F.max_pool1d(y, one + 1, stride=one).shape == (2, 3, 3)
    assert F.conv1d(y, ad.ones(1, 3, 2), padding=one).shape == (2, 1, 5)
    with pytest.raises(TypeError, match="must be tuple of ints, not float"):
        y.sum(1.5)


def test_steps_where_none_is_taken_are_those_of_c_order() -> None:
    """`stride()` of axes of one element and of tensors without elements, as PyTorch has them."""
    y = ad.arange(12).reshape(3, 4)
    assert ad.empty(0).stride() == (1,) and ad.zeros(2, 0, 3).stride() == (3, 3, 1)
    assert y[:, None].stride() == (4, 4, 1) and y.unsqueeze(-1).stride() == (4, 1, 1)
    assert y.unsqueeze(0).stride(0) == 12 and y[:1].stride() == (4, 1)
    assert y[0].expand(3, 4).stride() == (0, 1)


def test_degrees_of_polynomials() -> None:
    he = ad.special.hermite_polynomial_he
    assert he(2, ad.tensor([0, 1, 3])).tolist() == [1.0, 2.0, 2.0]
    assert he(ad.tensor([2.0]), np.int64(3)).tolist() == [2.0]
    with pytest.raises(OverflowError, match="degree"):
        he(ad.ones(1), 2**70)
    assert ad.diff(ad.arange(4.0), 2**40).shape == (0,)


def test_complex_angles_go_on() -> None:
    """log(exp(a) + exp(b)) has the angle near that of the larger real part, not the principal."""
    a, b = ad.tensor([3 + 8j, 1 - 5j]), ad.tensor([1 - 2j, 4 + 9j])
    both, alone = ad.logaddexp(a, b), ad.logcumsumexp(ad.stack([a, b]), 0)[1]
    np.testing.assert_allclose(both, np.log(1 + np.exp([-2 - 10j, -3 - 14j])) + [3 + 8j, 4 + 9j],
                               rtol=1e-6)
    np.testing.assert_allclose(alone, both, rtol=1e-6)


def test_operands_have_the_names_of_numpy_too() -> None:
    """`a=`, `x=`, `x1=` for `input=`, `x2=` for `other=`, `axis=`, `keepdims=`."""
    y = ad.full((2, 2), 3.0)
    for name in ("input", "a", "x", "x1"):
        assert ad.sum(**{name: x}, axis=0, keepdims=True).shape == (1, 2)
        assert ad.add(**{name: x}, x2=y)[0, 0] == 4
        assert ad.linalg.norm(**{name: x}, axis=1).tolist() == pytest.approx([2**0.5] * 2)
    assert F.gelu(x=x).shape == ad.cumsum(a=x, axis=0).shape == ad.fft.fft(x=x, axis=0).shape
    assert ad.linalg.cross(x1=ad.eye(3), x2=ad.eye(3), axis=0).shape == (3, 3)
    with pytest.raises(TypeError, match="sum"):
        x.sum(a=x)
    with pytest.raises(TypeError, match="must be Tensor, not tuple"):
        ad.fft.fft((x, x), axis=0)


def test_sums_are_taken_in_the_dtype_of_out() -> None:
    """Without `dtype=`, `out` decides what sums and products are computed in."""
    y = ad.tensor([[1.5, 2.75], [0.0, 4.0]])
    whole = ad.empty(0, dtype=ad.int32)
    assert ad.sum(y, 0, out=whole).tolist() == [1, 6] and whole.dtype == ad.int32
    assert ad.prod(y, 0, out=ad.empty(0, dtype=ad.uint8)).tolist() == [0, 8]
    assert ad.cumsum(y, 1, out=ad.empty(0, dtype=ad.int64)).tolist() == [[1, 3], [0, 4]]
    assert ad.sum(ad.tensor([1e-8, 1.0]), 0, out=ad.empty((), dtype=ad.float64)) > 1
    with pytest.raises(RuntimeError, match="Expected out tensor to have dtype float, but got dou"):
        ad.sum(y, 0, dtype=ad.float32, out=ad.empty(0, dtype=ad.float64))
    with pytest.raises(RuntimeError, match="all only supports bool tensor for result, got: Float"):
        ad.all(y, out=ad.empty(0))
    assert ad.any(y, out=ad.empty(0, dtype=ad.uint8)).dtype == ad.uint8
    with pytest.raises(RuntimeError, match="nonzero: Expected out tensor to have scalar type Long"):
        ad.nonzero(y, out=ad.empty(0))
    with pytest.raises(TypeError, match="argument 'out' must be tuple of 2 Tensors, not Tensor"):
        ad.sort(y, out=ad.empty(0))


@pytest.mark.parametrize("call", [
    lambda n: ad.add(x, n), lambda n: x.long() * n, lambda n: x > n, lambda n: n - x,
    lambda n: ad.clamp(x, 0, n), lambda n: ad.ones(2).mul_(n)])
def test_numbers_have_64_bits(call: Any) -> None:
    for n in (2**64, 2**70, -2**63 - 1):
        with pytest.raises(OverflowError, match="int too big to convert|negative int to unsigned"):
            call(n)
    call(2**64 - 1)
    call(-2**63)


def test_a_median_of_nothing() -> None:
    assert ad.isnan(ad.median(ad.empty(0))) and ad.isnan(ad.nanmedian(ad.empty(0)))
    assert ad.median(ad.empty(0, dtype=ad.int32)).item() == -2**31
    assert ad.median(ad.empty(3, 0), 0).values.shape == (0,)
    for f in (ad.median, ad.mode, lambda t, d: ad.kthvalue(t, 1, d)):
        with pytest.raises(IndexError, match="Expected reduction dim 0 to have non-zero size"):
            f(ad.empty(0, 3), 0)


def test_factors_are_tensors() -> None:
    v = ad.ones(2)
    for name in ("addcmul", "addcdiv"):
        with pytest.raises(TypeError, match=r"'tensor2' \(position 3\) must be Tensor, not int"):
            getattr(ad, name)(v, v, 3)
        with pytest.raises(TypeError, match=r"_\(\): argument 'tensor1' \(position 1\) must be"):
            getattr(v, name + "_")(3.0, v)


def test_low_rank_of_small_matrices() -> None:
    u, s, v = ad.svd_lowrank(ad.ones(3, 5), q=100)
    assert (u.shape, s.shape, v.shape) == ((3, 3), (3,), (5, 3))
    with pytest.raises(ValueError, match=r"q\(=5\) must be non-negative integer and not greater"):
        ad.pca_lowrank(ad.eye(3), q=5)


def test_integers_are_divided_exactly() -> None:
    """By integers too, of any size: no float is on the way."""
    y = ad.tensor([2**24 + 1, -2**24 - 1, 2**60 + 1, -7])
    assert ad.div(y, ad.tensor([1, 1, 3, 2]), rounding_mode="trunc").tolist() == [
        2**24 + 1, -2**24 - 1, (2**60 + 1) // 3, -3]
    assert ad.div(y, 2, rounding_mode="trunc").tolist()[2:] == [2**59, -3]
    small = ad.tensor([-7, 7], dtype=ad.int8)
    assert ad.div(small, 2, rounding_mode="trunc").tolist() == [-3, 3]
    assert ad.div(small, 2, rounding_mode="trunc").dtype == ad.int8
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        ad.div(y, 0, rounding_mode="trunc")


@pytest.mark.parametrize("call, kind, words", [
    (lambda: ad.func.vmap(abs, in_dims="a")(x), ValueError, "expected `in_dims` to be int or a"),
    (lambda: ad.func.jacrev(abs, argnums="a")(x), RuntimeError, "argnums must be int or Tuple"),
    (lambda: ad.lstm_cell(1, 2, 3, 4), TypeError, "'input' .position 1. must be Tensor, not int"),
    (lambda: ad.gru_cell(x, None, x, x), TypeError, "must be Tensor, not NoneType"),
    (lambda: ad.nn.utils.skip_init(1), TypeError, "Expected a Module"),
    (lambda: ad.nn.utils.rnn.pad_sequence([1]), TypeError, "expected Tensor as element 0"),
    (lambda: ad.Tensor([1], device="cuda"), RuntimeError, "cuda"),
])
def test_late_names_refuse_in_our_tree(call: Any, kind: type, words: str) -> None:
    with pytest.raises(AdjointError, match=words) as caught:
        call()
    assert isinstance(caught.value, kind)


def test_the_names_that_layers_call() -> None:
    assert ad._VF.lstm is ad.lstm and ad._VF.unique_consecutive is ad.unique_consecutive
    with pytest.raises(AttributeError, match="nonsense"):
        ad._VF.nonsense  # noqa: B018 - the look-up itself raises


def test_what_is_made_in_out_resizes_it_without_a_word() -> None:
    """Warnings are errors here; `arange` alone says that numbers do not agree."""
    makers: list[Any] = [
        lambda o: ad.zeros(3, out=o), lambda o: ad.full((3,), 2.0, out=o), lambda o: ad.rand(
            3, out=o), lambda o: ad.linspace(0, 1, 3, out=o), lambda o: ad.bernoulli(
            ad.ones(3), out=o), lambda o: ad.normal(0.0, 1.0, (3,), out=o)]
    for make in makers:
        out = ad.ones(1)
        assert make(out) is out and out.shape == (3,)
    with pytest.warns(UserWarning, match="does not match the computed number of elements 3"):
        ad.arange(3, out=ad.ones(1))
    out = ad.empty(0)
    with pytest.warns(UserWarning, match="range is deprecated"):
        assert ad.range(2, 4, out=out) is out and out.tolist() == [2.0, 3.0, 4.0]
    with pytest.warns(UserWarning, match="An output with one or more elements was resized"):
        ad.mm(ad.ones(2, 2), ad.ones(2, 2), out=ad.ones(1))
