"""Where results lie in memory: matrices of decompositions and solvers column by column, transforms
with the axes that they run over innermost; and what `out=` becomes (F123). The strides are
PyTorch's, and are compared with it where it is installed (tests/test_differential_opinfo.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import adjoint as ad

L = ad.linalg


def _square() -> Any:
    ad.manual_seed(0)
    return ad.randn(2, 4, 4) + 8 * ad.eye(4)


def _positive() -> Any:
    a = _square()
    return a @ a.mT


COLUMNS: dict[str, Callable[[], Any]] = {
    "cholesky": lambda: L.cholesky(_positive()),
    "upper cholesky": lambda: L.cholesky(_positive(), upper=True),
    "upper cholesky_ex": lambda: L.cholesky_ex(_positive(), upper=True).L,
    "inv": lambda: L.inv(_square()),
    "solve": lambda: L.solve(_square(), ad.randn(2, 4, 3)),
    "triangle from the right": lambda: L.solve_triangular(
        _square(), ad.randn(2, 3, 4), upper=True, left=False),
    "vectors of the whole svd": lambda: L.svd(ad.randn(2, 3, 5)).Vh,
    "complete qr": lambda: L.qr(ad.randn(2, 5, 3), "complete").Q,
    "lu_factor": lambda: L.lu_factor(_square()).LU,
    "lu_solve, adjoint": lambda: L.lu_solve(
        *L.lu_factor(_square()), ad.randn(2, 4, 3), adjoint=True),
    "householder_product": lambda: L.householder_product(*ad.geqrf(_square())),
    "ormqr": lambda: ad.ormqr(*ad.geqrf(_square()), ad.randn(2, 4, 3)),
    "lstsq": lambda: L.lstsq(ad.randn(2, 3, 4), ad.randn(2, 3, 5)).solution,
    "the copy of triangular_solve": lambda: ad.triangular_solve(
        ad.randn(2, 4, 3), _square()).cloned_coefficient,
    "ldl_factor": lambda: L.ldl_factor(_positive()).LD,
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.filterwarnings("ignore:torch.triangular_solve is deprecated")
def test_matrices_lie_column_by_column(name: str) -> None:
    """F123: LAPACK's order, batch after batch."""
    found = COLUMNS[name]()
    rows, columns = found.shape[-2:]
    assert found.stride() == (rows * columns, 1, rows)
    assert not found.is_contiguous()


def test_a_vector_per_matrix_lies_as_one_matrix() -> None:
    """F123: solve() of vectors gives them as the columns of a matrix, with PyTorch's node."""
    b = ad.randn(2, 4, requires_grad=True)
    found = L.solve(_square(), b)
    assert found.stride() == (1, 2)
    assert type(found.grad_fn).__name__ == "LinalgSolveExBackward0"
    (g,) = ad.autograd.grad(found.sum(), b)
    assert ad.allclose(g, L.solve(_square().mT, ad.ones(2, 4)))


def test_products_with_inverses_stay_in_rows() -> None:
    """F123: what PyTorch does not compute by LAPACK alone."""
    a = _square()
    assert L.solve(a, ad.randn(2, 3, 4), left=False).is_contiguous()
    assert L.lu_solve(*L.lu_factor(a), ad.randn(2, 3, 4), left=False).is_contiguous()
    assert L.pinv(ad.randn(2, 3, 5)).is_contiguous()
    assert ad.rot90(ad.ones(3, 4, 5), -1, (0, 1)).stride() == (5, 20, 1)
    assert ad.unique_consecutive(ad.ones(3, 4), dim=-1).stride() == (1, 3)


@pytest.mark.parametrize("shape, dim, strides", [
    ((5, 6, 7), (1,), (42, 1, 6)), ((5, 6, 7), (0,), (1, 35, 5)), ((5, 6, 7), (2,), (42, 7, 1)),
    ((5, 6, 7), (2, 0), (7, 35, 1)), ((5, 6, 7), (0, 1, 2), (42, 7, 1))])
def test_transforms_lie_with_their_axes_innermost(
        shape: tuple[int, ...], dim: tuple[int, ...], strides: tuple[int, ...]) -> None:
    """F123: other axes outside, those of the transform inside, each in the operand's order."""
    assert ad.fft.fftn(ad.randn(*shape), dim=dim).stride() == strides
    assert ad.fft.ifftn(ad.randn(*shape) + 0j, dim=dim).stride() == strides


def test_a_halved_axis_is_innermost() -> None:
    """F123: the last axis of a transform of real signals, and back."""
    assert ad.fft.rfftn(ad.randn(5, 6, 7), dim=(2, 0)).stride() == (1, 21, 3)
    assert ad.fft.irfftn(ad.randn(5, 6, 7) + 0j, dim=(2, 0)).stride() == (1, 56, 8)
    assert ad.fft.ihfft2(ad.randn(5, 6, 7), dim=(1, 2)).stride() == (24, 1, 6)
    turned = ad.randn(7, 6, 5).permute(2, 1, 0)
    assert ad.fft.fft(turned, dim=1).stride() == (6, 1, 30)


def test_an_empty_out_lies_as_the_result() -> None:
    """F123: of `linalg` it is the result's order; of transforms, quantiles and older names rows."""
    a = _square()
    for call in (lambda o: L.inv(a, out=o), lambda o: L.solve(a, ad.ones(2, 4, 3), out=o)):
        out = ad.empty(0)
        call(out)
        assert out.stride()[-2:] == (1, 4)
    for call in (lambda o: ad.cholesky_solve(ad.ones(2, 4, 3), a, out=o),
                 lambda o: ad.quantile(ad.randn(3, 5), ad.tensor([0.2, 0.7]), 0, out=o)):
        out = ad.empty(0)
        call(out)
        assert out.is_contiguous()
    out = ad.empty(0, dtype=ad.complex64)
    ad.fft.fft(ad.randn(5, 6), dim=0, out=out)
    assert out.is_contiguous()
    out = ad.empty(0)
    ad.add(ad.ones(3, 4).t(), 1, out=out)
    assert out.stride() == (1, 4)


CONVERTED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "pinv": (lambda o: L.pinv(ad.ones(2, 2), out=o), "linalg.pinv: Expected result to be safely "
             "castable from Float dtype, but got result with dtype Long"),
    "matrix_power": (lambda o: L.matrix_power(ad.ones(2, 2), 0, out=o), "matrix_power: Expected"),
    "cond": (lambda o: L.cond(ad.eye(2), out=o), "linalg.cond: Expected result"),
    "eigvals": (lambda o: L.eigvals(ad.eye(2), out=o), "Expected eigenvalues to be safely"),
    "cholesky_inverse": (lambda o: ad.cholesky_inverse(ad.eye(2), out=o), "cholesky_inverse: "),
    "tensorsolve": (lambda o: L.tensorsolve(ad.eye(2), ad.ones(2), out=o), "tensorsolve: "),
}


@pytest.mark.parametrize("name", CONVERTED)
def test_what_converts_into_out_says_what_it_cannot(name: str) -> None:
    """F123: float64 and complex numbers are taken, integers are not."""
    call, text = CONVERTED[name]
    out = ad.empty(0, dtype=ad.complex128)
    call(out)
    assert out.numel()
    with pytest.raises(RuntimeError, match=text):
        call(ad.empty(0, dtype=ad.int64))


@pytest.mark.parametrize("name, given, text", [
    ("fft", ad.float32, "fft expects a complex output tensor, but got Float"),
    ("irfft", ad.complex64, "irfft expects a floating point output tensor, but got ComplexFloat"),
    ("hfft2", ad.complex64, "hfftn expects a floating point output tensor"),
    ("rfft2", ad.int64, "rfftn expects a complex output tensor, but got Long"),
    ("ifft", ad.complex128, "Found dtype ComplexDouble but expected ComplexFloat")])
def test_transforms_into_an_out_of_another_kind(name: str, given: Any, text: str) -> None:
    """F123: numbers of the other kind are refused, those of more precision are not."""
    with pytest.raises(RuntimeError, match=text):
        getattr(ad.fft, name)(ad.ones(4, 4), out=ad.empty(0, dtype=given))
    wide = ad.empty(0, dtype=ad.complex128)
    ad.fft.fft(ad.ones(4), out=wide)
    assert wide.tolist() == [4, 0, 0, 0]


def test_out_of_exactly_the_results_dtype() -> None:
    """F123: factors of the older names, differences of order 0, a nuclear norm."""
    wide = ad.empty(0, dtype=ad.float64)
    for call in (lambda: L.cholesky(ad.eye(2), out=wide), lambda: ad.diff(ad.ones(3), 0, out=wide),
                 lambda: ad.norm(ad.eye(2), "nuc", out=wide),
                 lambda: ad.narrow_copy(ad.ones(3), 0, 0, 2, out=wide),
                 lambda: L.solve(ad.eye(2), ad.eye(2), left=False, out=wide)):
        with pytest.raises(RuntimeError):
            call()
    assert not wide.numel()
    ad.std(ad.ones(3), out=(full := ad.empty(0, dtype=ad.complex64)))
    assert full.tolist() == 0
