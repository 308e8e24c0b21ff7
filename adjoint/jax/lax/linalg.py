"""`jax.lax.linalg`: decompositions with JAX's signatures."""
from __future__ import annotations

from typing import Any

from adjoint.jax._absent import lacking as _lacking
from adjoint.jax._array import joined as _joined
from adjoint.jax._array import make as _make
from adjoint.jax._table import floating as _floating
from adjoint.jax.numpy import linalg as _linalg
from adjoint.ops.api_decompose import LINALG as _LINALG


def cholesky(a: Any, *, symmetrize_input: bool = True) -> Any:
    """`jax.lax.linalg.cholesky`."""
    return _linalg.cholesky(a, symmetrize_input=symmetrize_input)


def eig(x: Any, **_: Any) -> Any:
    """`jax.lax.linalg.eig`."""
    return tuple(_linalg.eig(x))


def eigh(x: Any, *, lower: bool = True, symmetrize_input: bool = True, **_: Any) -> Any:
    """(eigenvectors, eigenvalues)."""
    w, v = _linalg.eigh(x, None if symmetrize_input else "L" if lower else "U", symmetrize_input)
    return v, w


def qr(x: Any, *, full_matrices: bool = True, **_: Any) -> Any:
    """`jax.lax.linalg.qr`."""
    return tuple(_linalg.qr(x, "complete" if full_matrices else "reduced"))


def svd(x: Any, *, full_matrices: bool = True, compute_uv: bool = True, **_: Any) -> Any:
    """(U, S, Vh)."""
    found = _linalg.svd(x, full_matrices, compute_uv)
    return tuple(found) if compute_uv else (found,)


def triangular_solve(a: Any, b: Any, *, left_side: bool = False, lower: bool = False,
                     transpose_a: bool = False, conjugate_a: bool = False,
                     unit_diagonal: bool = False) -> Any:
    """x with op(a) x = b, or x op(a) = b."""
    (m, y), _ = _joined("triangular_solve", (a, b), floating=True)
    m = m.conj() if conjugate_a and m.is_complex() else m
    if transpose_a:
        m, lower = m.transpose(-1, -2), not lower
    vector = y.ndim == m.ndim - 1
    y = y.unsqueeze(-1) if vector else y
    found = _LINALG["solve_triangular"](m, y, upper=not lower, left=left_side,
                                        unitriangular=unit_diagonal)
    return _make(found.squeeze(-1) if vector else found)


def lu(x: Any) -> Any:
    """(factors in one matrix, pivots, permutation)."""
    from adjoint.jax.scipy.linalg import lu_with_pivots
    return lu_with_pivots(x)


def householder_product(a: Any, taus: Any) -> Any:
    """`jax.lax.linalg.householder_product`."""
    return _make(_LINALG["householder_product"](_floating(a, "a"), _floating(taus, "taus")))


__getattr__ = _lacking("lax.linalg")
