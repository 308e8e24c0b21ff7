"""Public linear algebra: the functions of `linalg`, and their older names at the top level."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from adjoint.base.aval import Aval
from adjoint.base.dtypes import is_inexact
from adjoint.base.errors import ArgumentError, DTypeError, ShapeError
from adjoint.core.autocast import in_float32, lowered
from adjoint.core.op import op
from adjoint.ops.api_common import (
    box,
    dtype_of,
    exactly,
    finish_kind,
    finish_same,
    in_rows,
    many_dims,
    need,
    need_float,
    need_kernel,
    one_dim,
    raw,
    result,
    safely,
    same_dtype,
)
from adjoint.ops.api_reduce import need_identity
from adjoint.ops.decompose import (
    batch_leading,
    by_columns,
    cholesky_op,
    det_op,
    eig_op,
    eigh_op,
    expm_op,
    inv_op,
    needs_width,
    qr_op,
    slogdet_op,
    solve_op,
    svd_op,
    triangular_op,
)
from adjoint.ops.linalg import columns, conj, matmul_op, mH, widened
from adjoint.ops.moments import norm_op
from adjoint.ops.pointwise import abs_op, cast, log, mul
from adjoint.ops.public import known_as, other_names, planned, public, typed
from adjoint.ops.reduce import amax_op, amin_op, sum_op
from adjoint.ops.shape import mT, permute_op, reshape, squeeze_op, unsqueeze_op
from adjoint.ops.singular import LinAlgError

QRResult = result("linalg_qr", "Q R")
SVDResult = result("linalg_svd", "U S Vh")
EighResult = result("linalg_eigh", "eigenvalues eigenvectors")
EigResult = result("linalg_eig", "eigenvalues eigenvectors")
SlogdetResult = result("linalg_slogdet", "sign logabsdet")
LINALG: dict[str, Callable[..., Any]] = {}
_solve_out = safely("cholesky_solve", rows="all")
_inverse_out = safely("cholesky_inverse", rows="filled")
_eig_out = safely("torch.linalg.eig", "eigenvalues", "eigenvectors")
_eigvals_out = safely("torch.linalg.eigvals", "eigenvalues")
_power_out = safely("matrix_power")
_tensorsolve_out, _tensorinv_out = safely("tensorsolve"), safely("tensorinv", rows="all")
F = TypeVar("F", bound=Callable[..., Any])


def linalg(name: str = "", *, top: Sequence[str] = (),
           method: bool = True) -> Callable[[F], F]:
    """Enter a function as `linalg.<name>`, and at the top level under the names of `top`."""
    def enter(f: F) -> F:
        f = f if hasattr(f, "plans") else typed(f)
        LINALG[name or f.__name__] = other_names(f)
        if top:
            public(top[0], aliases=tuple(top[1:]), method=method)(f)
        return f
    return enter


def need_matrix(name: str, *xs: Any) -> None:
    need(f"linalg.{name}", *xs)
    for x in xs:
        need_float(f"linalg.{name}", x)
        if len(x.shape) < 2:
            raise ShapeError(f"linalg.{name}: The input tensor A must have at least 2 dimensions, "
                             f"got {list(x.shape)}")


def need_square(name: str, x: Any) -> None:
    need_matrix(name, x)
    if x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"linalg.{name}: A must be batches of square matrices, but they are "
                         f"{x.shape[-2]} by {x.shape[-1]} matrices")


# ------------------------------------------------------------------ systems
@linalg()
@known_as("LinalgSolveExBackward0")
def solve(A: Any, B: Any, *, left: bool = True, out: Any = None) -> Any:
    """X with A·X = B (X·A = B with left=False); B is a matrix, or a vector per matrix.

    Raises LinAlgError (a RuntimeError) for a singular matrix.

    >>> import adjoint as ad
    >>> ad.linalg.solve(ad.tensor([[2.0, 0.0], [0.0, 4.0]]), ad.tensor([2.0, 4.0]))
    tensor([1., 1.])
    """
    need_square("solve", A)
    need("linalg.solve", B, argument="B")
    same_dtype("linalg.solve", A, B)
    vector = len(B.shape) == 1 or (len(B.shape) == len(A.shape) - 1
                                   and tuple(B.shape) == tuple(A.shape[:-1]))
    b = unsqueeze_op(B, dim=len(B.shape)) if vector else B
    if not left:
        if vector:
            raise ArgumentError("linalg.solve: Vector broadcasting of the left hand side is not "
                                "supported for left=False")
        return finish_same(out, mH(solve_op(mH(A), mH(b))))
    x = solve_op(A, b)
    return finish_same(
        out, columns(squeeze_op(x, dims=(len(x.shape) - 1,))) if vector else x)


def equation_fits(name: str, A: Any, B: Any, left: bool) -> None:
    """Refuse sides of AX = B, or of XA = B, that do not go together."""
    if A.shape[-1] != B.shape[-2 if left else -1]:
        (m, n), (k, c) = A.shape[-2:], B.shape[-2:]
        raise ShapeError(f"linalg.{name}: Incompatible shapes of A and B for the equation "
                         f"{'AX = B' if left else 'XA = B'} ({m}x{n} and {k}x{c})")


@linalg()
@known_as("LinalgSolveTriangularBackward0")
def solve_triangular(A: Any, B: Any, *, upper: bool, left: bool = True,
                     unitriangular: bool = False, out: Any = None) -> Any:
    """X with A·X = B for the upper or lower triangle of A."""
    need_kernel("triangular_solve_cpu", "biu", A)
    need_square("solve_triangular", A)
    if len(B.shape) < 2:
        raise ShapeError("linalg.solve_triangular: The input tensor B must have at least 2 "
                         "dimensions.")
    equation_fits("solve_triangular", A, B, left)
    if left:
        return finish_kind(out, triangular_op(A, B, upper=upper, unit=unitriangular))
    x = triangular_op(mT(A), mT(B), upper=not upper, unit=unitriangular)
    return finish_kind(out, columns(mT(x)))


@linalg(top=("inverse",))
def inv(A: Any, *, out: Any = None) -> Any:
    """The inverse of square matrices; prefer `solve` to a product with it.

    >>> import adjoint as ad
    >>> ad.linalg.inv(ad.tensor([[2.0]]))
    tensor([[0.5000]])
    """
    need_square("inv", A)
    return finish_same(out, inv_op(A))


@linalg(top=("det",))
def det(A: Any, *, out: Any = None) -> Any:
    """The determinant; its gradient is right for singular matrices too."""
    need_square("det", A)
    return finish_same(out, det_op(A))


@linalg(top=("slogdet",))
def slogdet(A: Any, *, out: Any = None) -> Any:
    """(sign, log of the absolute value) of the determinant; the gradient is that of the second."""
    need_square("slogdet", A)
    return finish_same(out, SlogdetResult(*slogdet_op(A)))


@public()
def logdet(input: Any) -> Any:
    """log of the determinant: nan where it is negative."""
    need_square("logdet", input)
    return log(det_op(input))


@linalg()
@known_as("LinalgCholeskyExBackward0")
def cholesky(A: Any, *, upper: bool = False, out: Any = None) -> Any:
    """L with L·Lᴴ = A for Hermitian positive definite A (Lᴴ with upper=True)."""
    need_square("cholesky", A)
    low = cholesky_op(hermitian_of(A, "L"))
    return finish_same(out, columns(mH(low)) if upper else low)


@public()
@known_as("CholeskySolveBackward0")
@typed
def cholesky_solve(B: Any, L: Any, upper: bool = False, *, out: Any = None) -> Any:
    """X with L·Lᴴ·X = B."""
    need("cholesky_solve", B, L)
    same_dtype("cholesky_solve", B, L)
    if len(B.shape) > 1 and L.shape[-2:] and L.shape[-1] != B.shape[-2]:
        raise ShapeError(f"Incompatible matrix sizes for cholesky_solve: each A matrix is "
                         f"{L.shape[-1]} by {L.shape[-1]} but each b matrix is {B.shape[-2]} by "
                         f"{B.shape[-1]}")
    low = mH(L) if upper else L
    return _solve_out(out, triangular_op(
        mH(low), triangular_op(low, B, upper=False, unit=False), upper=True, unit=False))


@public()
@known_as("CholeskyInverseBackward0")
@in_float32
def cholesky_inverse(L: Any, upper: bool = False, *, out: Any = None) -> Any:
    """(L·Lᴴ)⁻¹."""
    if L.shape[-1] != L.shape[-2]:
        raise ShapeError("cholesky_inverse: A must be batches of square matrices, but they are "
                         f"{L.shape[-2]} by {L.shape[-1]} matrices")
    eye = np.broadcast_to(np.eye(L.shape[-1], dtype=dtype_of(L)), tuple(L.shape))
    return _inverse_out(out, cholesky_solve(eye, L, upper))


# ------------------------------------------------------------------ decompositions
@linalg()
def qr(A: Any, mode: str = "reduced", *, out: Any = None) -> Any:
    """(Q, R) with Q·R = A; mode "reduced", "complete" (no gradient for tall A) or "r"."""
    need_matrix("qr", A)
    if mode not in ("reduced", "complete", "r"):
        raise ArgumentError(f"qr received unrecognized mode '{mode}' but expected one of 'reduced' "
                            "(default), 'r', or 'complete'")
    if mode == "complete" and A.shape[-2] > A.shape[-1]:
        if getattr(A, "requires_grad", False):
            raise NotImplementedError("linalg.qr: the QR decomposition is not differentiable when "
                                      "mode='complete' and nrows > ncols")
        q, r = map(by_columns, np.linalg.qr(raw(A), "complete"))
        return finish_same(out, QRResult(box(A, q), box(A, r)))
    q, r = qr_op(A)
    if mode == "r":
        q = box(A, np.empty(0, dtype_of(A)))
    return finish_same(out, QRResult(q, r))


def _rest_impl(a: Any, /) -> Any:
    u, _, vh = np.linalg.svd(a, full_matrices=True)
    m, n = a.shape[-2:]
    return u[..., n:] if m > n else vh[..., m:, :]


def _rest_infer(a: Aval) -> Aval:
    m, n = a.shape[-2:]
    shape = (m, m - n) if m > n else (n - m, n)
    return Aval((*a.shape[:-2], *shape), a.dtype)


svd_rest_op: Any = op(
    "linalg_svd_rest", impl=_rest_impl, infer=_rest_infer, batch=batch_leading,
    cost=lambda a: 20 * a.size * max(a.shape[-2:]),
    domain=lambda: [((np.array([[1.0, 2.0, 3.0]]),), {}), ((np.ones((2, 3, 1)),), {})],
    **needs_width("svd"),
    doc="The singular vectors beyond min(m, n), which complete a basis; no derivative.")


def _one_driver(driver: Any) -> None:
    if driver is not None:
        raise ArgumentError("torch.linalg.svd: keyword argument `driver=` is only supported on "
                            "CUDA inputs with cuSOLVER backend.")


@linalg()
def svd(A: Any, full_matrices: bool = True, *, driver: Any = None, out: Any = None) -> Any:
    """(U, S, Vᴴ) with U·diag(S)·Vᴴ = A, singular values descending.

    With full_matrices the vectors beyond min(m, n) carry no gradient.
    """
    _one_driver(driver)
    need_matrix("svd", A)
    u, s, vh = svd_op(A)
    if full_matrices and A.shape[-1] != A.shape[-2]:
        from adjoint.ops.shape import cat_op
        last = len(A.shape) - 1
        rest = svd_rest_op(A)
        if A.shape[-2] > A.shape[-1]:
            u = columns(cat_op(u, rest, dim=last))
        else:
            vh = columns(cat_op(vh, rest, dim=last - 1))
    return finish_same(out, SVDResult(u, s, vh))


@public("svd")
def top_svd(input: Any, some: bool = True, compute_uv: bool = True, *, out: Any = None) -> Any:
    """(U, S, V) with U·diag(S)·Vᴴ = input."""
    u, s, vh = svd(input, not some)
    return finish_same(out, TopSVD(u, s, mH(vh)))


TopSVD = result("svd", "U S V")


@linalg()
def svdvals(A: Any, *, driver: Any = None, out: Any = None) -> Any:
    """Singular values, descending."""
    _one_driver(driver)
    need_matrix("svd", A)
    return finish_same(out, svd_op(A)[1])


def hermitian_of(A: Any, UPLO: str) -> Any:
    """The matrix that one triangle stands for; its gradient is that of a Hermitian operand, as in
    PyTorch: shared by both triangles."""
    from adjoint.ops.cross_entropy import stopped
    from adjoint.ops.index import tril_op, triu_op
    from adjoint.ops.pointwise import add, sub
    if UPLO.upper() not in ("L", "U"):
        raise ArgumentError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    array = None if bool(getattr(A, "level", False)) else raw(A)
    if array is not None and not isinstance(array, np.ndarray):
        return A                                    # a meta tensor
    if array is not None and np.array_equal(array, np.conj(np.swapaxes(array, -1, -2))):
        return A
    low = UPLO.upper() == "L"
    half = tril_op(A, diagonal=-1) if low else triu_op(A, diagonal=1)
    whole = add(tril_op(A, diagonal=0) if low else triu_op(A, diagonal=0), mH(half))
    return add(A, stopped(sub(whole, A)))


@linalg()
def eigh(A: Any, UPLO: str = "L", *, out: Any = None) -> Any:
    """(eigenvalues ascending, eigenvectors) of a Hermitian matrix, read from one triangle.

    The gradient treats equal eigenvalues as uncoupled, so it is finite for degenerate spectra.
    """
    need_square("eigh", A)
    return finish_same(out, EighResult(*eigh_op(hermitian_of(A, UPLO), uplo=UPLO.upper())))


@linalg()
def eigvalsh(A: Any, UPLO: str = "L", *, out: Any = None) -> Any:
    """Eigenvalues of a Hermitian matrix, ascending."""
    need_square("eigvalsh", A)
    return finish_same(out, eigh_op(hermitian_of(A, UPLO), uplo=UPLO.upper())[0])


@linalg()
def eig(A: Any, *, out: Any = None) -> Any:
    """(eigenvalues, eigenvectors of norm 1) of a square matrix, complex."""
    need_square("eig", A)
    return _eig_out(out, EigResult(*eig_op(A)))


@linalg()
def eigvals(A: Any, *, out: Any = None) -> Any:
    """Eigenvalues of a square matrix, complex."""
    need_square("eigvals", A)
    return _eigvals_out(out, eig_op(A)[0])


@linalg(top=("matrix_exp",))
def matrix_exp(A: Any) -> Any:
    """Σ Aᵏ/k!, by scaling and squaring."""
    need_square("matrix_exp", A)
    return expm_op(A)


# ------------------------------------------------------------------ norms
@linalg()
@planned
def vector_norm(x: Any, ord: float = 2, dim: Any = None, keepdim: bool = False, *,
                dtype: Any = None, out: Any = None) -> Any:
    """The p-norm of elements over axes; its gradient at 0 is 0."""
    if isinstance(ord, str):
        raise DTypeError("linalg_vector_norm(): argument 'ord' (position 2) must be Number, "
                         "not str")
    need("linalg.vector_norm", x)
    need_float("linalg.vector_norm", x)
    x, dims = widened("vector_norm", x, dtype), many_dims(x, dim)
    need_identity(x, ord, dim, dims)
    return finish_same(out, norm_op(x, p=float(ord), dim=dims, keepdim=keepdim))


def _largest(x: Any, *, dim: tuple[int], keepdim: bool) -> Any:
    """The maximum of what is not negative: 0 of nothing."""
    f = amax_op if x.shape[dim[0]] else sum_op
    return f(x, dim=dim, keepdim=keepdim)


_norm_out = exactly("linalg.matrix_norm expected out tensor dtype {want} but got: {have}")


@linalg()
@planned
def matrix_norm(A: Any, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *,
                dtype: Any = None, out: Any = None) -> Any:
    """Norms of matrices: "fro", "nuc", 2, -2 (singular), 1, -1 (columns), inf, -inf (rows)."""
    x = widened("matrix_norm", A, dtype)
    need_matrix("matrix_norm", x)
    if not isinstance(dim, (tuple, list)):
        raise DTypeError("linalg_matrix_norm(): argument 'dim' must be a 2-tuple of ints, not "
                         f"{dim!r}")
    if len(dim) != 2:
        raise ArgumentError(f"linalg.matrix_norm: dim must be a 2-tuple. "
                            f"Got {', '.join(map(str, dim))}")
    a, b = (one_dim(x, d) for d in dim)
    if a == b:
        raise ArgumentError(f"linalg.matrix_norm: dims must be different. Got ({dim[0]}, {dim[1]})")
    if ord == "fro":
        return _norm_out(out, norm_op(x, p=2.0, dim=(a, b), keepdim=keepdim))
    if ord in ("nuc", 2, -2):
        rest = [d for d in range(len(x.shape)) if d not in (a, b)]
        s = svd_op(permute_op(x, dims=(*rest, a, b)))[1]
        last = (len(s.shape) - 1,)
        f = sum_op if ord == "nuc" else _largest if ord == 2 else amin_op
        found = f(s, dim=last, keepdim=False)
        if keepdim:
            found = reshape(found, tuple(1 if d in (a, b) else n for d, n in enumerate(x.shape)))
        return _norm_out(out, found)
    if ord not in (1, -1, math.inf, -math.inf):
        raise ArgumentError(f"linalg.matrix_norm: Order {ord} not supported.")
    inner, outer = (a, b) if abs(ord) == 1 else (b, a)
    sums = sum_op(abs_op(x), dim=(inner,), keepdim=True)
    f = _largest if ord > 0 else amin_op
    found = f(sums, dim=(outer,), keepdim=True)
    return _norm_out(out, found if keepdim else squeeze_op(found, dims=tuple(sorted((a, b)))))


@linalg()
@planned
def norm(A: Any, ord: Any = None, dim: Any = None, keepdim: bool = False, *, out: Any = None,
         dtype: Any = None) -> Any:
    """`vector_norm` or `matrix_norm`, by `ord` and `dim`."""
    if ord is None:
        return vector_norm(A, 2, dim, keepdim, dtype=dtype, out=out)
    n = 1 if isinstance(dim, int) else len(A.shape if dim is None else dim)
    if dim is None and n not in (1, 2):
        raise ShapeError("linalg.norm: If dim is not specified but ord is, the input must be 1D or"
                         f" 2D. Got {n}D.")
    if isinstance(ord, str) and isinstance(dim, int):
        dim = (dim,)
    if isinstance(ord, str) or n == 2:
        return matrix_norm(A, ord, (-2, -1) if dim is None else dim, keepdim, dtype=dtype, out=out)
    return vector_norm(A, ord, dim, keepdim, dtype=dtype, out=out)


# ------------------------------------------------------------------ products
@linalg(top=("matrix_power",))
def matrix_power(A: Any, n: int, *, out: Any = None) -> Any:
    """A multiplied n times with itself; the inverse's power for negative n."""
    if n < 0 or dtype_of(A).kind not in "iu":          # (products of integers have no rounding)
        need_square("matrix_power", A)
    plain = n in (0, 1, 4, -4)                    # the others are products, or inverses
    if n < 0:
        A, n = inv_op(A), -n
    found: Any = None
    square = A
    while n:
        if n & 1:
            found = square if found is None else matmul_op(found, square)
        n >>= 1
        square = matmul_op(square, square) if n else square
    if found is None:
        from adjoint.ops.pointwise import add
        found = add(mul(A, 0), np.eye(A.shape[-1], dtype=dtype_of(A)))
    whole = found if out is None or len(A.shape) == 2 else in_rows(found)
    return (_power_out if plain else finish_same)(out, whole)


@linalg(method=False)
@planned
def vecdot(x: Any, y: Any, *, dim: int = -1, out: Any = None) -> Any:
    """Σ conj(x)·y along an axis."""
    need_kernel("linalg.vecdot: Expected a floating point or complex tensor as input. Got {}",
                "biu", x)
    x, y = lowered(x, y)
    same_dtype("linalg.vecdot", x, y)
    x = mul(conj(x), y)
    return finish_same(out, sum_op(x, dim=(one_dim(x, dim),), keepdim=False))


@linalg(method=False)
def vander(x: Any, *, N: Any = None) -> Any:
    """Powers 0..N-1 of the elements of the last axis, as rows."""
    need_kernel("linalg.vander supports floating point, complex, and integer tensors, but got {}",
                "bh", x)
    from adjoint.ops.pointwise import pow_op
    if not len(x.shape):
        x = reshape(x, (1,))
    if not is_inexact(dtype_of(x)):
        x = cast(x, dtype=np.dtype(np.int64))
    n = x.shape[-1] if N is None else int(N)
    if n <= 1:
        raise ArgumentError("N must be greater than 1.")
    return pow_op(unsqueeze_op(x, dim=len(x.shape)), np.arange(n).astype(dtype_of(x)))


@linalg()
def tensorsolve(A: Any, B: Any, dims: Any = None, *, out: Any = None) -> Any:
    """X with tensordot(A, X, X.ndim) = B."""
    if dims is not None:
        moved = [one_dim(A, d) for d in dims]
        A = permute_op(A, dims=(*(d for d in range(len(A.shape)) if d not in moved), *moved))
    shape, rank = tuple(A.shape), len(B.shape)
    rest, n = shape[rank:], math.prod(shape[rank:])
    if n != math.prod(shape[:rank]):
        raise ShapeError("Expected self to satisfy the requirement prod(self.shape[other.ndim:]) "
                         "== prod(self.shape[:other.ndim]), but got "
                         f"{n} != {math.prod(shape[:rank])}")
    return _tensorsolve_out(out, reshape(
        solve(reshape(A, (n, n)), reshape(B, (n, 1))), rest))


@linalg()
def tensorinv(A: Any, ind: int = 2, *, out: Any = None) -> Any:
    """The inverse of A as a map between its last and first axes."""
    shape = tuple(A.shape)
    if ind <= 0:
        raise ArgumentError("Expected a strictly positive integer for 'ind', "
                            f"but got {ind}")
    sizes = math.prod(shape[ind:]), math.prod(shape[:ind])
    if sizes[0] != sizes[1]:
        raise ShapeError("Expected self to satisfy the requirement prod(self.shape[ind:]) == "
                         f"prod(self.shape[:ind]) but got {sizes[0]} != {sizes[1]}")
    found = inv_op(reshape(A, (math.prod(shape[:ind]), math.prod(shape[ind:]))))
    return _tensorinv_out(out, reshape(found, (*shape[ind:], *shape[:ind])))


__all__ = ["LINALG", "LinAlgError", "matrix_norm"]
