"""The largest singular values of a matrix, from a few random vectors.

Source: Halko, Martinsson and Tropp, "Finding structure with randomness", 2011, algorithms 4.4 and
5.1: an orthonormal basis of the range of A (AᴴA)^niter R, and the SVD of A in that basis.
"""
from __future__ import annotations

from typing import Any

from adjoint.base.errors import ArgumentError, ShapeError
from adjoint.ops.api_common import dtype_of, need, need_float
from adjoint.ops.api_decompose import LINALG
from adjoint.ops.linalg import mH
from adjoint.ops.public import public
from adjoint.ops.random import randn


@public(method=False)
def svd_lowrank(A: Any, q: int | None = 6, niter: int | None = 2, M: Any = None) -> Any:
    """(U, S, V) with A - M ≈ U diag(S) Vᴴ of rank q, for A (..., m, n): (..., m, q), (..., q),
    (..., n, q); a q larger than a side of A counts as that side.

    q        how many singular values; a few more than are wanted make those better
    niter    powers that push small singular values away
    M        subtracted from A, of a shape that broadcasts with A's

    >>> import adjoint as ad
    >>> U, S, V = ad.svd_lowrank(ad.ones(4, 3), q=1)
    >>> round(S.item(), 4)
    3.4641
    """
    need_float("svd_lowrank", A)
    q, niter = 6 if q is None else q, 2 if niter is None else niter
    m, n = A.shape[-2:]
    if q < 0:
        raise ShapeError(f"svd_lowrank: q={q} must be non-negative")
    if niter < 0:
        raise ArgumentError(f"svd_lowrank: niter={niter} must be non-negative")
    a = A if M is None else A - M
    flip = m < n                                # a basis of the shorter side
    a = mH(a) if flip else a
    basis = LINALG["qr"](a @ randn(a.shape[-1], q, dtype=dtype_of(a)))[0]
    for _ in range(niter):
        basis = LINALG["qr"](mH(a) @ basis)[0]
        basis = LINALG["qr"](a @ basis)[0]
    u, s, vh = LINALG["svd"](mH(basis) @ a, full_matrices=False)
    left, right = basis @ u, mH(vh)
    return (right, s, left) if flip else (left, s, right)


@public(method=False)
def pca_lowrank(A: Any, q: int | None = None, center: bool = True, niter: int = 2) -> Any:
    """`svd_lowrank` of the rows of A (..., m, n) less their mean: the columns of V are the q (6
    unless given, or a side of A) directions in which they vary most."""
    need("pca_lowrank", A)
    side = min(A.shape[-2:])
    q = min(6, side) if q is None else q
    if not 0 <= q <= side:
        raise ShapeError(f"q(={q}) must be non-negative integer and not greater than min(m, n)="
                         f"{side}: pca_lowrank of A{list(A.shape)}")
    return svd_lowrank(A, q, niter, A.mean(-2, keepdim=True) if center else None)
