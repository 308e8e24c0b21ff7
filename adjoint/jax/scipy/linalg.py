"""`jax.scipy.linalg`."""
from __future__ import annotations

from typing import Any

import numpy as _np

from adjoint.base.errors import missing as _missing
from adjoint.jax import numpy as _jnp
from adjoint.jax._array import as_array as _as_array
from adjoint.jax._array import joined as _joined
from adjoint.jax._array import make as _make
from adjoint.jax._singular import LINALG as _LINALG
from adjoint.jax._table import T as _T
from adjoint.jax._table import floating as _floating
from adjoint.jax.lax.linalg import lu as _lu
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
from adjoint.jax.scipy._schur import (
    eigh_tridiagonal,
    funm,
    hessenberg,
    polar,
    qr,
    qr_multiply,
    rsf2csf,
    schur,
    sqrtm,
)

_n: Any = _jnp


def cholesky(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
             ) -> Any:
    """The factor, upper unless told."""
    return _l.cholesky(a, upper=not lower)


def cho_factor(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
               ) -> Any:
    """(factor, lower)."""
    return cholesky(a, lower), lower


def cho_solve(c_and_lower: Any, b: Any, overwrite_b: bool = False, check_finite: bool = True
              ) -> Any:
    """x with A x = b, from the factor of A."""
    c, lower = c_and_lower
    y = solve_triangular(c, b, trans=0 if lower else 2, lower=lower)
    return solve_triangular(c, y, trans=2 if lower else 0, lower=lower)


def det(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """`jax.scipy.linalg.det`."""
    return _l.det(a)


def inv(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """`jax.scipy.linalg.inv`."""
    return _l.inv(a)


def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, overwrite_a: bool = False,
        check_finite: bool = True, lapack_driver: str = "gesdd") -> Any:
    """`jax.scipy.linalg.svd`."""
    found = _l.svd(a, full_matrices, compute_uv)
    return tuple(found) if compute_uv else found


def eigh(a: Any, b: Any = None, lower: bool = True, eigvals_only: bool = False,
         overwrite_a: bool = False, overwrite_b: bool = False, turbo: bool = True,
         eigvals: Any = None, type: int = 1, check_finite: bool = True) -> Any:
    """`jax.scipy.linalg.eigh`."""
    for name, given, only in (("b", b, None), ("type", type, 1), ("eigvals", eigvals, None)):
        if given != only if name == "type" else given is not only:
            dot = "" if name == "b" else "."
            raise NotImplementedError(f"Only the {name}={only} case of eigh is implemented{dot}")
    w, v = _l.eigh(a)
    return w if eigvals_only else (w, v)


def solve(a: Any, b: Any, lower: bool = False, overwrite_a: bool = False, overwrite_b: bool = False,
          debug: bool = False, check_finite: bool = True, assume_a: str = "gen") -> Any:
    """x with a x = b; `assume_a="pos"` goes by the Cholesky factor.

    The derivative is that of a general matrix either way: what the factor reads of `a` is not
    taken for all of it.
    """
    if assume_a not in ("gen", "sym", "her", "pos"):
        raise ValueError("Expected assume_a to be one of ['gen', 'sym', 'her', 'pos']; got "
                         f"{assume_a!r}")
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
                     unit_diagonal: bool = False, overwrite_b: bool = False, debug: Any = None,
                     check_finite: bool = True) -> Any:
    """x with op(a) x = b for a triangular matrix; trans 1, "T" transposes, 2, "C" conjugates."""
    if trans not in (0, "N", 1, "T", 2, "C"):
        raise ValueError(f"Invalid 'trans' value {trans}")
    (m, y), _w = _joined("solve_triangular", (a, b), floating=True)
    core = y.shape[-1] if y.ndim == 1 else y.shape[-2]
    if m.shape[-1] != core:
        raise ValueError(f"inconsistent size for core dimension 'n': {core} vs {m.shape[-1]} on "
                         "the operands of solve_triangular")
    if trans in (1, "T", 2, "C"):
        m, lower = m.transpose(-1, -2), not lower
        m = m.conj() if trans in (2, "C") and m.is_complex() else m
    vector = y.ndim == 1
    y = y.unsqueeze(-1) if vector else y
    x = _LINALG["solve_triangular"](m, y, upper=not lower, unitriangular=unit_diagonal)
    return _make(x.squeeze(-1) if vector else x)


def expm(A: Any, *, upper_triangular: bool = False, max_squarings: int = 16) -> Any:
    """The exponential of a matrix; NaN where it is too large to be squared so few times."""
    t = _floating(A, "expm")
    if t.ndim < 2 or t.shape[-1] != t.shape[-2]:
        raise ValueError("Expected A to be a (batched) square matrix, got A.shape="
                         f"{tuple(t.shape)}.")
    limit = 5.4 if t.array.dtype.name in ("float64", "complex128") else 3.9
    norm = _T["amax"](_T["abs"](t.detach()).sum(-2), -1) if t.shape[-1] else t.new_zeros(())
    far = (norm > limit * 2.0 ** max_squarings)[..., None, None]
    return _make(_T["where"](far, t.new_full((), float("nan")), _LINALG["matrix_exp"](t)))


def lu_factor(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """(factors in one matrix, pivots)."""
    return tuple(_lu(_make(_floating(a, "lu")))[:2])


def lu_solve(lu_and_piv: Any, b: Any, trans: int = 0, overwrite_b: bool = False,
             check_finite: bool = True) -> Any:
    """x with A x = b, from the factors of A; trans 1 transposes A, 2 conjugates it too."""
    if trans not in (0, 1, 2):
        raise ValueError(f"'trans' value must be 0, 1, or 2, got {trans}")
    packed, pivots = lu_and_piv
    (m, y), _w = _joined("lu_solve", (packed, b), floating=True)
    vector = y.ndim == 1
    y = y.unsqueeze(-1) if vector else y
    if y.shape[-2] != m.shape[-1]:
        raise ValueError(f"inconsistent size for core dimension 'n': {y.shape[-2]} vs "
                         f"{m.shape[-1]} on the operands of lu_solve")
    if trans == 1 and m.is_complex():            # (the transpose is the conjugate's adjoint)
        m = m.conj()
    x = _LINALG["lu_solve"](m, (_as_array(pivots).tensor + 1).to(_np.dtype(_np.int32)), y,
                            adjoint=trans != 0)
    return _make(x.squeeze(-1) if vector else x)


def lu(a: Any, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True
       ) -> Any:
    """(P, L, U), or (P L, U)."""
    p, low, up = _LINALG["lu"](_floating(a, "lu"))
    return (_make(_T["matmul"](p, low)), _make(up)) if permute_l else tuple(map(_make, (p, low,
                                                                                      up)))


def block_diag(*arrs: Any) -> Any:
    """Matrices along a diagonal."""
    for i, a in enumerate(_as_array(v, "block_diag") for v in arrs):
        if a.ndim > 2:
            raise ValueError("Arguments to jax.scipy.linalg.block_diag must have at most 2 "
                             f"dimensions, got {a} at argument {i}.")
    ts, _ = _joined("block_diag", arrs if arrs else ([],))
    return _make(_T["block_diag"](*[_T["atleast_2d"](t) for t in ts]))


def toeplitz(c: Any, r: Any = None) -> Any:
    """A matrix with constant diagonals: first column c, first row r."""
    col = _n.atleast_1d(c)
    row = _n.conj(col) if r is None else _n.atleast_1d(r)
    lead = _np.broadcast_shapes(col.shape[:-1], row.shape[:-1])
    n, m = col.shape[-1], row.shape[-1]
    whole = _n.concatenate([_n.broadcast_to(col[..., ::-1], (*lead, n)),
                            _n.broadcast_to(row[..., 1:], (*lead, m - 1))], -1)
    return whole[..., _np.arange(n)[::-1, None] + _np.arange(m)[None, :]]


def hilbert(n: int) -> Any:
    """1 / (i + j + 1)."""
    i = _np.arange(n)
    return _n.asarray(1 / (i[:, None] + i[None, :] + 1.0))


__all__ = ["circulant", "companion", "convolution_matrix", "dft", "eigh_tridiagonal",
           "expm_frechet", "fiedler", "fiedler_companion", "funm", "hadamard", "hankel", "helmert",
           "hessenberg", "invhilbert", "invpascal", "leslie", "pascal", "polar", "qr",
           "qr_multiply", "rsf2csf", "schur", "solve_sylvester", "sqrtm"]
__getattr__ = _missing("adjoint.jax.scipy.linalg")
