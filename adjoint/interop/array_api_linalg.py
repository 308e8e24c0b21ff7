"""The `linalg` extension of the array API standard."""
from __future__ import annotations

from typing import Any

from adjoint.base import dtypes as _d
from adjoint.base.errors import ArgumentError
from adjoint.ops.api_decompose import LINALG
from adjoint.ops.public import FUNCTIONS

SHARED = ("matmul", "matrix_transpose", "tensordot", "vecdot")


def F(name: str) -> Any:
    """A public function of this package."""
    return FUNCTIONS[name]


def _joint(x1: Any, x2: Any) -> tuple[Any, Any]:
    """Both in the dtype that theirs promote to."""
    dtype = _d.of_numpy(_d.promote_dtypes(x1.dtype.dtype, x2.dtype.dtype))
    return x1.to(dtype), x2.to(dtype)


def matmul(x1: Any, x2: Any, /) -> Any:
    """Matrix product."""
    return F("matmul")(*_joint(x1, x2))


def matrix_transpose(x: Any, /) -> Any:
    """The last two axes exchanged."""
    return x.mT


def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Any:
    """Sum of products over axes of both."""
    return F("tensordot")(*_joint(x1, x2), axes)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Sum of conj(x1)·x2 along an axis."""
    x1, x2 = _joint(x1, x2)
    if x1.is_floating_point() or x1.is_complex():
        return LINALG["vecdot"](x1, x2, dim=axis)
    return F("sum")(F("mul")(x1, x2), axis).to(x1.dtype)


def cholesky(x: Any, /, *, upper: bool = False) -> Any:
    """The triangle L with L·Lᴴ = x, or its conjugate transpose."""
    return LINALG["cholesky"](x, upper=upper)


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Cross product of vectors of three elements."""
    return F("cross")(*_joint(x1, x2), axis)


def det(x: Any, /) -> Any:
    """Determinants."""
    return LINALG["det"](x)


def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """Diagonals of the last two axes."""
    return F("diagonal")(x, offset, -2, -1)


def eig(x: Any, /) -> Any:
    """(eigenvalues, eigenvectors), complex, of square matrices."""
    return LINALG["eig"](x)


def eigvals(x: Any, /) -> Any:
    """Eigenvalues, complex, of square matrices."""
    return LINALG["eigvals"](x)


def eigh(x: Any, /) -> Any:
    """(eigenvalues, eigenvectors) of Hermitian matrices."""
    return LINALG["eigh"](x)


def eigvalsh(x: Any, /) -> Any:
    """Eigenvalues of Hermitian matrices."""
    return LINALG["eigvalsh"](x)


def inv(x: Any, /) -> Any:
    """Inverses."""
    return LINALG["inv"](x)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """Norms of the last two axes."""
    return LINALG["matrix_norm"](x, ord, (-2, -1), keepdims)


def matrix_power(x: Any, n: int, /) -> Any:
    """Products of n equal matrices."""
    return LINALG["matrix_power"](x, n)


def matrix_rank(x: Any, /, *, rtol: Any = None) -> Any:
    """How many singular values count."""
    return LINALG["matrix_rank"](x, rtol=rtol)


def outer(x1: Any, x2: Any, /) -> Any:
    """Products of all pairs of two vectors."""
    return F("outer")(*_joint(x1, x2))


def pinv(x: Any, /, *, rtol: Any = None) -> Any:
    """Pseudo-inverses."""
    return LINALG["pinv"](x, rtol=rtol)


def qr(x: Any, /, *, mode: str = "reduced") -> Any:
    """(Q, R)."""
    return LINALG["qr"](x, mode)


def slogdet(x: Any, /) -> Any:
    """(sign, logabsdet)."""
    return LINALG["slogdet"](x)


def solve(x1: Any, x2: Any, /) -> Any:
    """X with x1·X = x2; x2 is a vector only if it has one axis."""
    x1, x2 = _joint(x1, x2)
    if x2.ndim == 1:
        return LINALG["solve"](x1, x2.unsqueeze(-1)).squeeze(-1)
    lead = F("broadcast_shapes")(tuple(x1.shape[:-2]), tuple(x2.shape[:-2]))
    return LINALG["solve"](x1.expand((*lead, *x1.shape[-2:])),
                           x2.expand((*lead, *x2.shape[-2:])))


def svd(x: Any, /, *, full_matrices: bool = True) -> Any:
    """(U, S, Vh)."""
    return LINALG["svd"](x, full_matrices)


def svdvals(x: Any, /) -> Any:
    """Singular values."""
    return LINALG["svdvals"](x)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """Sums of diagonals."""
    return F("sum")(diagonal(x, offset=offset), -1, dtype=dtype)


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """Norms of vectors along axes."""
    if isinstance(ord, str):
        raise ArgumentError(f"vector_norm: ord must be a number, got {ord!r}")
    return LINALG["vector_norm"](x, ord, axis, keepdims)


__all__ = ["cholesky", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv",
           "matmul", "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "outer",
           "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot", "trace", "vecdot",
           "vector_norm"]
