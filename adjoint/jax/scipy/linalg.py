"""`jax.scipy.linalg`."""
from __future__ import annotations

from typing import Any

import numpy as _np

from adjoint.base.errors import missing as _missing
from adjoint.core.tensor import wrap as _wrap
from adjoint.jax import numpy as _jnp
from adjoint.jax._array import as_array as _as_array
from adjoint.jax._array import joined as _joined
from adjoint.jax._array import make as _make
from adjoint.jax._table import T as _T
from adjoint.jax._table import floating as _floating
from adjoint.jax.numpy import linalg as _l
from adjoint.jax.scipy._matrices import (
    circulant,
    companion,
    convolution_matrix,
    dft,
    expm_frechet,
    fiedler,
    fiedler_companion,
    hadamard,
    hankel,
    helmert,
    invhilbert,
    invpascal,
    leslie,
    pascal,
    solve_sylvester,
)
from adjoint.ops.api_decompose import LINALG as _LINALG

_n: Any = _jnp


def cholesky(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
             ) -> Any:
    """The factor, upper unless told."""
    return _l.cholesky(a, upper=not lower)


def cho_factor(a: Any, lower: bool = False, **_: Any) -> Any:
    """(factor, lower)."""
    return cholesky(a, lower), lower


def cho_solve(c_and_lower: Any, b: Any, **_: Any) -> Any:
    """x with A x = b, from the factor of A."""
    c, lower = c_and_lower
    y = solve_triangular(c, b, trans=0 if lower else 2, lower=lower)
    return solve_triangular(c, y, trans=2 if lower else 0, lower=lower)


def det(a: Any, **_: Any) -> Any:
    """`jax.scipy.linalg.det`."""
    return _l.det(a)


def inv(a: Any, **_: Any) -> Any:
    """`jax.scipy.linalg.inv`."""
    return _l.inv(a)


def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, **_: Any) -> Any:
    """`jax.scipy.linalg.svd`."""
    found = _l.svd(a, full_matrices, compute_uv)
    return tuple(found) if compute_uv else found


def qr(a: Any, overwrite_a: bool = False, lwork: Any = None, mode: str = "full",
       pivoting: bool = False, check_finite: bool = True) -> Any:
    """`jax.scipy.linalg.qr`."""
    if pivoting:
        raise NotImplementedError("qr with pivoting")
    if mode == "r":
        return (_l.qr(a, "r"),)
    return tuple(_l.qr(a, "complete" if mode == "full" else "reduced"))


def eigh(a: Any, b: Any = None, lower: bool = True, eigvals_only: bool = False, **_: Any) -> Any:
    """`jax.scipy.linalg.eigh`."""
    if b is not None:
        raise NotImplementedError("Only the b=None case of eigh is implemented")
    w, v = _l.eigh(a)
    return w if eigvals_only else (w, v)


def solve(a: Any, b: Any, lower: bool = False, overwrite_a: bool = False, overwrite_b: bool = False,
          debug: bool = False, check_finite: bool = True, assume_a: str = "gen") -> Any:
    """x with a x = b; `assume_a="pos"` goes by the Cholesky factor.

    The derivative is that of a general matrix either way: what the factor reads of `a` is not
    taken for all of it.
    """
    if assume_a != "pos":
        return _l.solve(a, b)
    from adjoint.jax._rules import custom_vjp
    (m, y), _w = _joined("solve", (a, b), floating=True)
    whole, right = _make(m), _make(y.unsqueeze(-1) if y.ndim == 1 else y)
    batch = _np.broadcast_shapes(whole.shape[:-2], right.shape[:-2])
    whole = _n.broadcast_to(whole, (*batch, *whole.shape[-2:]))

    @custom_vjp
    def by_factor(c: Any, v: Any) -> Any:
        return cho_solve(cho_factor(c, True), v)

    def pulled(kept: Any, ct: Any) -> Any:
        w = by_factor(kept[0], ct)              # (the matrix is its own transpose)
        return -w @ _n.matrix_transpose(kept[1]), w
    by_factor.defvjp(lambda c, v: (lambda x: (x, (c, x)))(by_factor(c, v)), pulled)
    x = by_factor(whole, _n.broadcast_to(right, (*batch, *right.shape[-2:])))
    return x[..., 0] if y.ndim == 1 else x


def solve_triangular(a: Any, b: Any, trans: Any = 0, lower: bool = False,
                     unit_diagonal: bool = False, **_: Any) -> Any:
    """x with op(a) x = b for a triangular matrix; trans 1, "T" transposes, 2, "C" conjugates."""
    (m, y), _w = _joined("solve_triangular", (a, b), floating=True)
    if trans in (1, "T", 2, "C"):
        m, lower = m.transpose(-1, -2), not lower
        m = m.conj() if trans in (2, "C") and m.is_complex() else m
    vector = y.ndim == 1
    y = y.unsqueeze(-1) if vector else y
    x = _LINALG["solve_triangular"](m, y, upper=not lower, unitriangular=unit_diagonal)
    return _make(x.squeeze(-1) if vector else x)


def expm(A: Any, *, upper_triangular: bool = False, max_squarings: int = 16) -> Any:
    """The exponential of a matrix."""
    return _make(_LINALG["matrix_exp"](_floating(A, "expm")))


def lu_with_pivots(a: Any) -> Any:
    """(factors in one matrix, pivots from 0, permutation)."""
    packed, pivots = _LINALG["lu_factor"](_floating(a, "lu"))
    swaps = _np.asarray(pivots.detach().numpy()) - 1
    n = packed.shape[-2]
    order = _np.broadcast_to(_np.arange(n), (*swaps.shape[:-1], n)).copy()
    for where in _np.ndindex(*swaps.shape[:-1]):
        for i, p in enumerate(swaps[where]):
            order[(*where, i)], order[(*where, p)] = order[(*where, p)], order[(*where, i)]
    return _make(packed), _make(_wrap(swaps.astype(_np.int32))), _make(_wrap(order.astype(
        _np.int32)))


def lu_factor(a: Any, **_: Any) -> Any:
    """(factors in one matrix, pivots)."""
    return lu_with_pivots(a)[:2]


def lu_solve(lu_and_piv: Any, b: Any, trans: int = 0, **_: Any) -> Any:
    """x with A x = b, from the factors of A."""
    packed, pivots = lu_and_piv
    (m, y), _w = _joined("lu_solve", (packed, b), floating=True)
    vector = y.ndim == 1
    y = y.unsqueeze(-1) if vector else y
    x = _LINALG["lu_solve"](m, (_as_array(pivots).tensor + 1).to(_np.dtype(_np.int32)), y,
                            adjoint=trans != 0)
    return _make(x.squeeze(-1) if vector else x)


def lu(a: Any, permute_l: bool = False, **_: Any) -> Any:
    """(P, L, U), or (P L, U)."""
    p, low, up = _LINALG["lu"](_floating(a, "lu"))
    return (_make(_T["matmul"](p, low)), _make(up)) if permute_l else tuple(map(_make, (p, low,
                                                                                      up)))


def block_diag(*arrs: Any) -> Any:
    """Matrices along a diagonal."""
    ts, _ = _joined("block_diag", arrs if arrs else ([],))
    return _make(_T["block_diag"](*[_T["atleast_2d"](t) for t in ts]))


def toeplitz(c: Any, r: Any = None) -> Any:
    """A matrix with constant diagonals: first column c, first row r."""
    col = _n.ravel(c)
    row = _n.conj(col) if r is None else _n.ravel(r)
    whole = _n.concatenate([col[::-1], row[1:]])
    n, m = col.shape[0], row.shape[0]
    return whole[_np.arange(n)[::-1, None] + _np.arange(m)[None, :]]


def hilbert(n: int) -> Any:
    """1 / (i + j + 1)."""
    i = _np.arange(n)
    return _n.asarray(1 / (i[:, None] + i[None, :] + 1.0))


def sqrtm(A: Any, blocksize: int = 1) -> Any:
    """The principal square root, by eigenvectors."""
    w, v = _l.eig(A)
    return (v * _n.sqrt(w)[..., None, :]) @ _l.inv(v)


def polar(a: Any, side: str = "right", **_: Any) -> Any:
    """(unitary, positive) factors."""
    u, s, vh = _l.svd(a, False)
    unitary = u @ vh
    if side == "right":
        v = _n.conj(_n.matrix_transpose(vh))
        return unitary, (v * s[..., None, :]) @ vh
    return unitary, (u * s[..., None, :]) @ _n.conj(_n.matrix_transpose(u))


__all__ = ["circulant", "companion", "convolution_matrix", "dft", "expm_frechet", "fiedler",
           "fiedler_companion", "hadamard", "hankel", "helmert", "invhilbert", "invpascal",
           "leslie", "pascal", "solve_sylvester"]
__getattr__ = _missing("adjoint.jax.scipy.linalg")
