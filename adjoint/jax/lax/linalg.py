"""`jax.lax.linalg`: decompositions with JAX's signatures."""
from __future__ import annotations

import enum
from typing import Any

import numpy as _np

from adjoint.jax._absent import lacking as _lacking
from adjoint.jax._array import as_array as _as_array
from adjoint.jax._array import joined as _joined
from adjoint.jax._array import make as _make
from adjoint.jax._host import computed as _computed
from adjoint.jax._singular import LINALG as _LINALG
from adjoint.jax._table import T as _T
from adjoint.jax.lax._decompose import (
    cholesky_update,
    hessenberg,
    ormqr,
    qdwh,
    schur,
    tridiagonal,
)
from adjoint.jax.lax._decompose import expanded as _expanded
from adjoint.jax.lax._decompose import geqp3 as _geqp3
from adjoint.jax.lax._decompose import taken as _taken
from adjoint.jax.numpy import linalg as _linalg


def _symmetric(x: Any, name: str, symmetrize: bool) -> None:
    """TypeError for what JAX cannot add to its transpose, or does not take as it is."""
    shape = tuple(_as_array(x, name).shape)
    if not symmetrize:
        _taken(name, x)
    elif len(shape) < 2:
        raise TypeError(f"Input 0 to {name} must have rank at least 2, but got shape={shape}")
    elif shape[-1] != shape[-2]:
        turned = (*shape[:-2], shape[-1], shape[-2])
        raise TypeError(f"{name}: add got incompatible shapes for broadcasting: {shape}, {turned}; "
                        "a matrix and its transpose are added, which takes a square one.")


def cholesky(x: Any, *, symmetrize_input: bool = True) -> Any:
    """`jax.lax.linalg.cholesky`."""
    _symmetric(x, "cholesky", symmetrize_input)
    return _linalg.cholesky(x, symmetrize_input=symmetrize_input)


def eig(x: Any, *, compute_left_eigenvectors: bool = True,
        compute_right_eigenvectors: bool = True, enable_eigvec_derivs: bool = False,
        implementation: Any = None, use_magma: bool | None = None) -> Any:
    """[eigenvalues, left eigenvectors, right eigenvectors], those that are asked for.

    enable_eigvec_derivs  eigenvectors have derivatives either way
    """
    if use_magma or implementation not in (None, EigImplementation.LAPACK):
        raise ValueError("Only the lapack implementation is supported on CPU.")
    _taken("eig", x)
    w, v = _linalg.eig(x)
    out = [w]
    if compute_left_eigenvectors:
        left = _linalg.inv(v).conj().mT
        out.append(left / _linalg.norm(left, axis=-2, keepdims=True))
    return [*out, v] if compute_right_eigenvectors else out


def eigh(x: Any, *, lower: bool = True, symmetrize_input: bool = True,
         sort_eigenvalues: bool = True, subset_by_index: Any = None, implementation: Any = None
         ) -> Any:
    """(eigenvectors, eigenvalues)."""
    for only, words in ((EighImplementation.JACOBI, "Jacobi implementation is not supported on "
                         "CPU"), (EighImplementation.QDWH, "QDWH implementation is only supported "
                                  "on TPU")):
        if implementation is only:
            raise NotImplementedError(words)
    if subset_by_index not in (None, (0, _as_array(x).shape[-1])):
        raise NotImplementedError("subset_by_index not supported on CPU and GPU")
    _symmetric(x, "eigh", symmetrize_input)
    w, v = _linalg.eigh(x, None if symmetrize_input else "L" if lower else "U", symmetrize_input)
    return v, w


def qr(x: Any, *, pivoting: bool = False, full_matrices: bool = True,
       use_magma: bool | None = None) -> Any:
    """(Q, R); with pivoting the order of the columns too. `use_magma` is for GPUs alone."""
    _taken("qr", x)
    if pivoting:
        packed, order, taus = _geqp3(x)
        return (*_expanded(packed, taus, full_matrices), order)
    return tuple(_linalg.qr(x, "complete" if full_matrices else "reduced"))


def svd(x: Any, *, full_matrices: bool = True, compute_uv: bool = True,
        subset_by_index: Any = None, algorithm: Any = None) -> Any:
    """(U, S, Vh), or the singular values alone."""
    _taken("svd", x)
    if subset_by_index not in (None, (0, min(_as_array(x).shape[-2:]))):
        raise (ValueError("full_matrices and subset_by_index cannot both be set") if full_matrices
               else NotImplementedError("subset_by_index not implemented for CPU and GPU"))
    found = _linalg.svd(x, full_matrices, compute_uv)
    return tuple(found) if compute_uv else found


def triangular_solve(a: Any, b: Any, *, left_side: bool = False, lower: bool = False,
                     transpose_a: bool = False, conjugate_a: bool = False,
                     unit_diagonal: bool = False) -> Any:
    """x with op(a) x = b, or x op(a) = b."""
    vector = _np.ndim(b) == _np.ndim(a) - 1
    _taken("triangular_solve", a, b, ranks=(2, 1 if vector else 2))
    (m, y), _ = _joined("triangular_solve", (a, b), floating=True)
    m = m.conj() if conjugate_a and m.is_complex() else m
    if transpose_a:
        m, lower = m.transpose(-1, -2), not lower
    y = y.unsqueeze(-1) if vector else y
    found = _LINALG["solve_triangular"](m, y, upper=not lower, left=left_side,
                                        unitriangular=unit_diagonal)
    return _make(found.squeeze(-1) if vector else found)


def lu(x: Any) -> Any:
    """[factors in one matrix, pivots, permutation]."""
    packed, pivots = _LINALG["lu_factor"](*_taken("lu", x))
    swaps = _make((pivots.detach() - 1).to(_np.dtype(_np.int32)))
    return [_make(packed), swaps, lu_pivots_to_permutation(swaps, packed.shape[-2])]


def householder_product(a: Any, taus: Any) -> Any:
    """`jax.lax.linalg.householder_product`."""
    return _make(_LINALG["householder_product"](*_taken("householder_product", a, taus,
                                                        ranks=(2, 1))))


def lu_pivots_to_permutation(pivots: Any, permutation_size: int) -> Any:
    """The order of the rows that a sequence of exchanges gives."""
    swaps = _as_array(pivots, "lu_pivots_to_permutation")
    if swaps.ndim < 1:
        raise TypeError("Input 0 to lu_pivots_to_permutation must have rank at least 1, but got "
                        "shape=()")
    if swaps.dtype != _np.dtype(_np.int32):
        raise TypeError(f"lu_pivots_to_permutation does not accept dtype {swaps.dtype.name} at "
                        "position 0. Accepted dtypes at position 0 are subtypes of int32.")
    if permutation_size < swaps.shape[-1]:
        raise ValueError(f"Output permutation size {permutation_size} has to exceed the trailing "
                         f"dimension of the pivots. Got pivots size {swaps.shape[-1]}")

    def run(found: Any) -> Any:
        order = _np.broadcast_to(_np.arange(permutation_size, dtype=_np.int32),
                                 (*found.shape[:-1], permutation_size)).copy()
        for where in _np.ndindex(*found.shape[:-1]):
            for i, p in enumerate(found[where]):
                order[(*where, i)], order[(*where, p)] = order[(*where, p)], order[(*where, i)]
        return [order]
    return _make(*_computed(run, swaps.tensor))


def symmetric_product(a_matrix: Any, c_matrix: Any, *, alpha: Any = 1.0, beta: Any = 0.0,
                      symmetrize_output: bool = False) -> Any:
    """alpha A Aᵀ + beta C for a symmetric C; only the lower half counts unless symmetrised."""
    _taken("symmetric_product", a_matrix, c_matrix, ranks=(2, 2), kinds="floating")
    (a, c), _ = _joined("symmetric_product", (a_matrix, c_matrix), floating=True)
    out = alpha * (a @ a.transpose(-1, -2)) + beta * c
    if symmetrize_output:
        low = _T["tril"](out)
        out = low + _T["tril"](out, -1).transpose(-1, -2)
    return _make(out)


def tridiagonal_solve(dl: Any, d: Any, du: Any, b: Any, *, perturb_singular: bool = False) -> Any:
    """x with T x = b for a tridiagonal T: `dl` below its diagonal `d` (the first entry does not
    count), `du` above it (the last does not). Shapes (..., n), and (..., n, k) of b.

    >>> from adjoint.jax import lax, numpy as jnp
    >>> two = jnp.full(3, 2.0)
    >>> lax.linalg.tridiagonal_solve(jnp.zeros(3), two, jnp.zeros(3), jnp.ones((3, 1)))[:, 0]
    Array([0.5, 0.5, 0.5], dtype=float32)
    """
    if perturb_singular:
        raise NotImplementedError("tridiagonal_solve with perturb_singular=True: a singular system "
                                  "is not solved by moving its pivots here")
    _taken("tridiagonal_solve", dl, d, du, b, ranks=(1, 1, 1, 2))
    (low, mid, up, y), _ = _joined("tridiagonal_solve", (dl, d, du, b), floating=True)
    n = mid.shape[-1]
    if low.shape != mid.shape or up.shape != mid.shape:
        raise ValueError("tridiagonal_solve requires that all diagonal arguments have the same "
                         f"shape; got {tuple(low.shape)}, {tuple(mid.shape)}, {tuple(up.shape)}")
    if y.ndim != mid.ndim + 1 or y.shape[-2] != n:
        raise ValueError(f"tridiagonal_solve requires b of shape (..., {n}, k), got "
                         f"{tuple(y.shape)} for diagonals of shape {tuple(mid.shape)}")
    matrix = _T["diag_embed"](mid) + _T["diag_embed"](low[..., 1:], -1) + _T["diag_embed"](
        up[..., :-1], 1)
    return _make(_LINALG["solve"](matrix, y))


class EigImplementation(enum.Enum):
    """Which code computes eigenvalues; here LAPACK's does."""

    CUSOLVER = "cusolver"
    MAGMA = "magma"
    LAPACK = "lapack"


class EighImplementation(enum.Enum):
    """Which method computes those of symmetric matrices; here LAPACK's does."""

    QR = "qr"
    JACOBI = "jacobi"
    QDWH = "qdwh"


class SvdAlgorithm(enum.Enum):
    """Which method computes singular values; here LAPACK's does."""

    DEFAULT = "default"
    QR = "QR"
    JACOBI = "Jacobi"
    POLAR = "polar"


__all__ = ["cholesky_update", "hessenberg", "ormqr", "qdwh", "schur", "tridiagonal"]
__getattr__ = _lacking("lax.linalg")
