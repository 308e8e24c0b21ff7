"""Dtypes for which PyTorch has no kernel are refused, in its words (F15)."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adjoint as ad

# expression over t (the library), F (its functional) and x, a (2, 4) tensor -> kinds, and what the
# refusal begins with; {} is the dtype's name
ROWS = {
    "t.abs(x)": ("b", '"abs_cpu" not implemented for \'{}\''),
    "t.sign(x)": ("c", "Unlike NumPy, torch.sign is not intended to support complex numbers."),
    "t.hypot(x, x)": ("bi", '"hypot_cpu" not implemented for \'{}\''),
    "t.fmod(x, x)": ("b", '"fmod_cpu" not implemented for \'{}\''),
    "t.remainder(x, x)": ("b", '"remainder_cpu" not implemented for \'{}\''),
    "x // x": ("b", '"div_floor_cpu" not implemented for \'{}\''),
    "t.div(x, x, rounding_mode='trunc')": ("b", '"div_trunc_cpu" not implemented for \'{}\''),
    "t.pow(x, x)": ("b", '"pow" not implemented for \'{}\''),
    "t.addcmul(x, x, x)": ("b", '"addcmul_cpu_out" not implemented for \'{}\''),
    "t.addcdiv(x, x, x)": ("bi", "Integer division with addcdiv is no longer supported"),
    "t.lerp(x, x, 0.5)": ("i", '"lerp_kernel_scalar" not implemented for \'{}\''),
    "t.maximum(x, x)": ("c", "maximum not implemented for complex tensors."),
    "t.fmin(x, x)": ("c", "fmin not implemented for complex tensors."),
    "t.clamp(x, 0, 1)": ("c", "clamp is not supported for complex types"),
    "x < x": ("c", '"lt_cpu" not implemented for \'{}\''),
    "x >= x": ("c", '"ge_cpu" not implemented for \'{}\''),
    "x << x": ("b", '"lshift_cpu" not implemented for \'{}\''),
    "t.clamp(x, x, x)": ("b", '"clamp_cpu" not implemented for \'{}\''),
    "t.linalg.cross(x[:, :3], x[:, :3])": ("b", '"cross" not implemented for \'{}\''),
    "t.einsum('ij,kj->ik', x, x)": ("b", '"bmm" not implemented for \'{}\''),
    "t.tensordot(x, x.T, 1)": ("b", '"addmm_impl_cpu_" not implemented for \'{}\''),
    "t.cumsum(x, 0, dtype=x.dtype)": ("b", '"cumsum_out_cpu" not implemented for \'Bool\''),
    "t.nextafter(x, x)": ("bic", '"nextafter_cpu" not implemented for \'{}\''),
    "t.linalg.lu(x[:, :2])": ("bi", '"lu_cpu" not implemented for \'{}\''),
    "t.linalg.lu_factor_ex(x[:, :2])": ("bi", '"lu_cpu" not implemented for \'{}\''),
    "t.linalg.solve_triangular(x[:, :2], x, upper=True, unitriangular=True)": (
        "bi", '"triangular_solve_cpu" not implemented for \'{}\''),
    "t.linalg.householder_product(x.mT, x[0, :2])": (
        "bi", '"orgqr_cpu" not implemented for \'{}\''),
    "t.histogram(x, 3)": ("h", '"histogramdd" not implemented for \'{}\''),
    "t.histogram(x, x[0, :2])": ("bi", '"histogram_cpu" not implemented for \'{}\''),
    "F.gelu(x)": ("bi", '"GeluKernelImpl" not implemented for \'{}\''),
    "F.max_pool1d(x, 2)": ("bi", '"max_pool1d_impl" not implemented for \'{}\''),
    "t.native_layer_norm(x, [4], None, None, 1e-5)": (
        "bi", '"LayerNormKernelImpl" not implemented for \'{}\''),
    "F.relu(x)": ("b", "Boolean inputs not supported for relu"),
    "F.hardtanh(x)": ("b", "Bool inputs not supported for hardtanh"),
    "F.threshold(x, 0, 1)": ("c", '"threshold_cpu" not implemented for \'{}\''),
    "F.glu(x)": ("i", '"glu_cpu" not implemented for \'{}\''),
    "F.softmax(x, 1)": ("ic", '"softmax_lastdim_kernel_impl" not implemented for \'{}\''),
    "t.special.erfcx(x)": ("ch", '"erfcx_cpu" not implemented for \'{}\''),
    "t.special.bessel_j0(x)": ("ch", '"bessel_j0_cpu" not implemented for \'{}\''),
    "t.special.chebyshev_polynomial_t(x, 2)": (
        "h", '"chebyshev_polynomial_t_cpu" not implemented for \'{}\''),
    "t.i0(x)": ("c", '"i0_vml_cpu" not implemented for \'{}\''),
    "t.logaddexp(x, x)": ("i", '"logaddexp_cpu" not implemented for \'{}\''),
    "t.mm(x, x.T)": ("b", '"addmm_impl_cpu_" not implemented for \'{}\''),
    "x @ x.T": ("b", '"addmm_impl_cpu_" not implemented for \'{}\''),
    "x[0] @ x[0]": ("b", '"dot" not implemented for \'{}\''),
    "t.dot(x[0], x[0])": ("b", '"dot" not implemented for \'{}\''),
    "F.linear(x, x)": ("b", '"addmm_impl_cpu_" not implemented for \'{}\''),
    "t.trace(x)": ("b", '"trace" not implemented for \'{}\''),
    "t.cov(x)": ("b", "cov(): bool dtype is not supported for input"),
    "t.cdist(x, x)": ("bic", "cdist only supports floating-point dtypes, X1 got: {}"),
    "t.topk(x, 1)": ("b", "topk does not support bool dtypes on CPU"),
    "t.kthvalue(x, 1)": ("bc", '"kthvalue_cpu" not implemented for \'{}\''),
    "t.histc(x)": ("i", '"histogram_cpu" not implemented for \'{}\''),
    "t.isin(x, x)": ("bc", "Unsupported input type encountered for isin(): {}"),
    "t.cummax(x, 0)": ("c", '"cummax_cpu" not implemented for \'{}\''),
    "t.multinomial(x, 1)": ("ic", "multinomial only supports floating-point dtypes for input"),
    "t.arange(3, dtype=x.dtype)": ("bc", '"arange_cpu" not implemented for \'{}\''),
    "t.tril_indices(2, 2, dtype=x.dtype)": ("bhfc", '"tril_indices" not implemented for \'{}\''),
    "F.normalize(x)": ("bi", "linalg.vector_norm: Expected a floating point or complex tensor"),
    "F.cosine_similarity(x, x)": ("ic", "expected common dtype to be floating point, yet common"),
    "F.layer_norm(x, (4,))": ("ic", '"LayerNormKernelImpl" not implemented for \'{}\''),
    "F.batch_norm(x, None, None, training=True)": (
        "ic", '"batch_norm" not implemented for \'{}\''),
    "F.mse_loss(x, x)": ("ic", '"mse_cpu" not implemented for \'{}\''),
    "F.huber_loss(x, x)": ("ic", '"huber_cpu" not implemented for \'{}\''),
    "F.cross_entropy(x, t.tensor([0, 1]))": (
        "ic", '"log_softmax_lastdim_kernel_impl" not implemented for \'{}\''),
    "F.nll_loss(x, t.tensor([0, 1]))": ("ic", '"nll_loss_out_frame" not implemented for \'{}\''),
    "F.adaptive_avg_pool1d(x, 2)": ("ic", '"adaptive_avg_pool2d" not implemented for \'{}\''),
    "F.adaptive_max_pool1d(x, 2)": ("ic", '"adaptive_max_pool2d" not implemented for \'{}\''),
    "F.avg_pool1d(x, 2)": ("sc", '"avg_pool2d" not implemented for \'{}\''),
    "F.max_pool2d(x[None], 2)": ("bc", '"max_pool2d" not implemented for \'{}\''),
    "F.conv1d(x, x[None, :, :2])": ("b", '"slow_conv2d_cpu" not implemented for \'{}\''),
    "F.conv_transpose1d(x, x[:, None])": (
        "s", '"slow_conv_transpose2d_out_cpu" not implemented for \'{}\''),
    "x & x": ("fc", '"bitwise_and_cpu" not implemented for \'{}\''),
    "F.interpolate(x[None], 8)": (
        "ic", '"compute_indices_weights_nearest" not implemented for \'{}\''),
    "F.pad(x[None], (1, 1), 'reflect')": ("b", '"reflection_pad1d" not implemented for \'{}\''),
    "F.scaled_dot_product_attention(*[x[None, None]] * 3)": (
        "i", "expected scalar type Float but found {}"),
    "x.clone().normal_()": ("i", '"normal_kernel_cpu" not implemented for \'{}\''),
    "x.clone().uniform_()": ("i", '"check_uniform_bounds" not implemented for \'{}\''),
}
KINDS = {"b": ("bool", "Bool"), "i": ("int64", "Long"), "s": ("int32", "Int"),
         "f": ("float32", "Float"), "h": ("float16", "Half"), "c": ("complex64", "ComplexFloat")}


OVERFLOWS = {                     # over x of bytes, 5 and 200 -> PyTorch's answer, None: refused
    "t.add(x, x, alpha=-3)": [246, 112],
    "t.clamp(x, -1, 10)": [10, 10],
    "t.clamp(x, max=300)": None,
    "t.full_like(x, -9)": [247, 247],
    "t.full((2,), 300, dtype=t.uint8)": None,
    "t.addcmul(x, x, x, value=-2)": [211, 72],
}


@pytest.mark.parametrize("row", OVERFLOWS)
def test_a_number_that_bytes_do_not_hold(row: str) -> None:
    """F15: below 0 it counts from the end, beyond the end it is refused, as in PyTorch."""
    def answer(library: Any) -> Any:
        x = library.tensor([5, 200], dtype=library.uint8)
        return eval(row, {"t": library, "x": x})
    libraries = [ad]
    try:
        import torch
        libraries.append(torch)
    except ImportError:
        pass
    for library in libraries:
        if OVERFLOWS[row] is None:
            with pytest.raises(RuntimeError, match="cannot be converted to type .* without over"):
                answer(library)
        else:
            assert answer(library).tolist() == OVERFLOWS[row]


def test_what_halves_and_bytes_reach() -> None:
    """F15: positions of samples are integers, not numbers of 16 bits; sums of bytes, which are
    int64, meet bytes in products of several axes."""
    image = ad.arange(2200.0).reshape(1, 1, 20, 110).half()
    grid = ad.tensor([[[[1.0, 1.0], [-1.0, -1.0]]]])
    found = ad.nn.functional.grid_sample(image, grid.half(), align_corners=True)
    assert found.flatten().tolist() == image.flatten()[[-1, 0]].tolist()
    a, b = ad.arange(6, dtype=ad.uint8).reshape(1, 2, 3), ad.arange(3, dtype=ad.uint8)
    summed = ad.einsum("...ik, ...j -> ij", a, b)
    assert summed.dtype == ad.int64 and summed.tolist() == [[0, 3, 6], [0, 12, 24]]
    left, right = ad.ones(1, 1, 1, dtype=ad.uint8), ad.ones(2, 1, 2, dtype=ad.uint8)
    product = ad.tensordot(left, right, dims=([0, 1], [2, 0]))
    assert product.dtype == ad.uint8 and product.tolist() == [[4]]
    assert ad.nn.functional.batch_norm(ad.ones(0), None, None, training=True).shape == (0,)


def run(library: Any, row: str, dtype: str) -> Any:
    x = library.tensor([[0, 1, 0, 1], [1, 0, 0, 1]], dtype=getattr(library, dtype))
    return eval(row, {"t": library, "F": library.nn.functional, "x": x})


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("row", ROWS)
def test_a_dtype_without_a_kernel_is_refused(row: str) -> None:
    """F15: with the words of PyTorch, and with PyTorch's class of error."""
    kinds, words = ROWS[row]
    for kind in kinds:
        dtype, name = KINDS[kind]
        with pytest.raises(RuntimeError) as caught:
            run(ad, row, dtype)
        assert str(caught.value).strip().startswith(words.replace("{}", name)), (kind, caught.value)
        try:
            import torch
        except ImportError:
            continue
        with pytest.raises(RuntimeError) as theirs:
            run(torch, row, dtype)
        assert str(theirs.value).strip().startswith(words.replace("{}", name)), (kind, theirs.value)
        assert isinstance(caught.value, type(theirs.value))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("row", [r for r in ROWS if r[2] not in "<&"
                                 and "f" not in ROWS[r][0]])
def test_and_floats_are_taken(row: str) -> None:
    """F15: what is refused is the dtype, not the call."""
    run(ad, row, "float64")


NAN, INF = float("nan"), float("inf")
CORNERS = {  # call -> what PyTorch gives, at the ends of the numbers
    "F.threshold(t.tensor([nan, 1.0, -1.0]), 0.0, 9.0)": [NAN, 1.0, 9.0],
    "F.softshrink(t.tensor([nan, 2.0, -2.0, 0.25]), 0.5)": [NAN, 1.5, -1.5, 0.0],
    "F.hardshrink(t.tensor([nan, 2.0, -2.0, 0.25]), 0.5)": [NAN, 2.0, -2.0, 0.0],
    "t.frexp(t.tensor([2.0 ** -149, 2.0 ** 127])).mantissa": [0.5, 0.5],
    "t.frexp(t.tensor([2.0 ** -149, 2.0 ** 127])).exponent": [-148, 128],
    "t.view_as_real(t.complex(t.tensor([0.0, 1.0]), t.tensor([inf, nan])))": [[0.0, INF],
                                                                             [1.0, NAN]],
    "t.view_as_real(t.nan_to_num(t.tensor([complex(nan, 1.0), complex(2.0, -inf)]), neginf=-3.0))":
        [[0.0, 1.0], [2.0, -3.0]],
    "t.logaddexp(t.tensor([0.0, -inf, inf]), t.tensor([-20.0, -inf, 1.0]))": [
        2.06115369216775e-09, -INF, INF],
    "t.ones(2, 2, dtype=t.int32).addmm_(t.ones(2, 2, dtype=t.int32),"
    " t.ones(2, 2, dtype=t.int32), beta=0.6, alpha=1.2)": [[2, 2], [2, 2]],
    "t.masked.cumsum(t.tensor([1, 2, 3], dtype=t.int8), 0).dtype == t.int8": True,
    "t.masked.argmax(t.tensor([1.0, 3.0, 2.0]), 0)": 1.0,
    "t.masked.median(t.tensor([[1, 5, 3]]), 1, mask=t.tensor([[True, True, False]]))": [1],
}


@pytest.mark.parametrize("row", CORNERS)
def test_the_ends_of_the_numbers(row: str) -> None:
    """F15: nan goes through, subnormal numbers have a mantissa, parts of complex numbers do not
    meet."""
    libraries = [ad]
    try:
        import torch
        libraries.append(torch)
    except ImportError:
        pass
    for library in libraries:
        found = eval(row, {"t": library, "F": library.nn.functional, "nan": NAN, "inf": INF})
        found = found if isinstance(found, bool) else found.tolist()
        np.testing.assert_allclose(found, CORNERS[row], rtol=1e-6, err_msg=library.__name__)


@pytest.mark.parametrize("call, words", [
    (lambda: ad.bernoulli(ad.tensor([0, 1])), "bernoulli_tensor_cpu_p_\" not implemented for 'Lon"),
    (lambda: ad.bernoulli(ad.tensor([True])), "bernoulli_tensor_cpu_p_\" not implemented for 'Boo"),
    (lambda: ad.zeros(2).bernoulli_(ad.tensor([0, 1])), "bernoulli_tensor_cpu_p_"),
    (lambda: ad.nn.functional.pdist(ad.ones(3, 2).bfloat16()), "pdist"),
    (lambda: ad.masked.logsumexp(ad.tensor([True]), 0, mask=ad.tensor([True])), "identity of logs"),
])
def test_dtypes_that_have_no_kernel(call: Any, words: str) -> None:
    """F123: refused as PyTorch refuses them."""
    with pytest.raises(NotImplementedError, match=words):
        call()


def test_dtypes_of_draws_and_masked_variances() -> None:
    """F123: a chance that is given makes draws of whole numbers; truth values have no variance."""
    assert ad.bernoulli(ad.zeros(3, dtype=ad.int64), 1.0).tolist() == [1, 1, 1]
    assert ad.zeros(2, dtype=ad.int64).bernoulli_(ad.ones(2)).tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="Subtraction"):
        ad.masked.var(ad.tensor([True, False]), 0)
    mask = ad.tensor([[True], [False]])
    with pytest.raises(ValueError, match="fully masked out rows"):
        ad.masked.median(ad.ones(3, 2, 1, dtype=ad.int64), 2, mask=mask)


def test_integers_integrate_in_their_own_range() -> None:
    """F15: areas of integers over integers wrap as PyTorch's do, and are halved once summed."""
    y = ad.tensor([[2, 5, 5], [9, 3, 1]], dtype=ad.uint8)
    assert ad.trapezoid(y, y).tolist() == [10.5, 216.0]
    assert ad.cumulative_trapezoid(y, y).tolist() == [[10.5, 10.5], [92.0, 216.0]]
    assert ad.trapezoid(y, y.double()).tolist() == [10.5, -40.0]


def test_hardtanh_of_unsigned_takes_limits_that_round_to_zero() -> None:
    """F15: only a limit that is still negative as an integer is refused."""
    y = ad.tensor([0, 5], dtype=ad.uint8)
    assert ad.nn.functional.hardtanh(y, -0.5, 2.5).tolist() == [0, 2]
    with pytest.raises(RuntimeError, match="negative limits"):
        ad.nn.functional.hardtanh(y, -1.0, 2.0)
