"""Least squares, the pseudo-inverse and the rank: singular values below a tolerance count as 0."""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.base.dtypes import finfo, scalar_type
from adjoint.base.errors import ArgumentError, DTypeError, ShapeError
from adjoint.core.autocast import in_float32
from adjoint.core.tensor import Tensor
from adjoint.ops.api_common import box, dtype_of, need, numel, raw, result, safely, value
from adjoint.ops.api_decompose import eigvalsh, hermitian_of, linalg, need_matrix, need_square
from adjoint.ops.decompose import pinv_op, svd_op
from adjoint.ops.linalg import columns, matmul_op
from adjoint.ops.moments import real_of
from adjoint.ops.pointwise import abs_op, cast, gt, maximum, mul, sub
from adjoint.ops.public import known_as
from adjoint.ops.reduce import amax_op, sum_op
from adjoint.ops.shape import narrow_op, reshape, squeeze_op, unsqueeze_op

LstsqResult = result("linalg_lstsq", "solution residuals rank singular_values")
_lstsq_out = safely("torch.linalg.lstsq", "solution", "residuals", "rank", "singular_values",
                    rows="filled")
_pinv_out, _rank_out = safely("linalg.pinv"), safely("linalg.matrix_rank")


def _fit_lstsq(A: Any, B: Any, driver: Any) -> bool:
    """Whether B holds a vector per matrix of A; refused where it does not go with it."""
    need("linalg.lstsq", A, B)
    if len(A.shape) < 2 or not len(B.shape):
        which, least = ("input", 2) if len(A.shape) < 2 else ("other", 1)
        raise ShapeError(f"torch.linalg.lstsq: {which} must have at least {least} dimensions.")
    need_matrix("lstsq", A)
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise ArgumentError("torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, "
                            "gelsd, gelss)")
    vector = len(B.shape) == len(A.shape) - 1
    axis = -1 if vector else -2
    if len(B.shape) < -axis or A.shape[-2] != B.shape[axis]:
        raise ShapeError(f"torch.linalg.lstsq: input.size(-2) should match other.size({axis}), got "
                         f"{list(A.shape)} and {list(B.shape)}")
    if dtype_of(A) != dtype_of(B):
        raise DTypeError("torch.linalg.lstsq: Expected input and other to have the same dtype, but "
                         f"got input's dtype {scalar_type(dtype_of(A))} and other's dtype "
                         f"{scalar_type(dtype_of(B))}")
    return vector


@linalg()
@known_as("LinalgLstsqBackward0")
@in_float32
def lstsq(A: Any, B: Any, rcond: Any = None, *, driver: Any = None, out: Any = None) -> Any:
    """X that minimises ‖A·X - B‖: (solution, residuals, rank, singular_values).

    Through the pseudo-inverse: the solution of least norm where A is rank deficient.
    """
    vector = _fit_lstsq(A, B, driver)
    b = unsqueeze_op(B, dim=len(B.shape)) if vector else B
    m, n = A.shape[-2:]
    rtol = float(finfo(dtype_of(A)).eps) * max(m, n) if rcond is None else float(rcond)
    x = matmul_op(pinv_op(A, rtol=rtol), b)
    rank = matrix_rank(A, rtol=rtol)
    empty = box(A, np.empty(0, real_of(dtype_of(A))))
    size = reshape(abs_op(x), (numel(x),))
    residuals = narrow_op(size, dim=0, start=0, length=0)
    full = driver == "gels" or getattr(A, "level", 0)       # taken for granted, or unknown here
    if m > n and driver in ("gels", "gelsd", "gelss") and (
            full or np.all(np.asarray(raw(rank)) == n)):
        gap = sub(matmul_op(A, x), b)
        size = abs_op(gap)
        residuals = sum_op(mul(size, size), dim=(len(gap.shape) - 2,), keepdim=False)
    x = squeeze_op(x, dims=(len(x.shape) - 1,)) if vector else columns(x)
    if driver == "gels":
        rank = box(A, np.empty(0, np.int64))
    if driver in ("gelsd", "gelss"):
        empty = svd_op(A.detach() if isinstance(A, Tensor) else A)[1]
    return _lstsq_out(out, LstsqResult(x, residuals, rank, empty))


@linalg(top=("pinverse",))
@in_float32
def pinv(A: Any, rtol: Any = None, hermitian: bool = False, *, atol: Any = None,
         rcond: Any = None, out: Any = None) -> Any:
    """The Moore-Penrose inverse; singular values that are not above max(atol, rtol times the
    matrix's largest) count as 0. Tolerances are numbers, or tensors with one per matrix; `rcond`
    is the older name of `rtol`."""
    need_matrix("pinv", A)
    if hermitian:
        need_square("eigh", A)
    rtol = rcond if rtol is None else rtol
    m, n = A.shape[-2:]
    limit: Any = np.asarray(0.0 if rtol is None else raw(rtol), np.float64)
    if rtol is None and atol is None:
        limit = float(finfo(dtype_of(A)).eps) * max(m, n)
    if atol is not None and A.shape[-1] and A.shape[-2]:
        top = np.linalg.norm(value(A, "linalg.pinv with atol"), 2, axis=(-2, -1))
        limit = np.maximum(limit, raw(atol) / np.where(top > 0, top, 1.0))
    return _pinv_out(out, pinv_op(hermitian_of(A, "L") if hermitian else A, rtol=limit))


@linalg()
def matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, atol: Any = None,
                rtol: Any = None, out: Any = None) -> Any:
    """How many singular values exceed the tolerance (eps·max(m, n) of the largest)."""
    need_matrix("matrix_rank", A)
    A = A.detach() if isinstance(A, Tensor) else A
    if hermitian:
        need_square("eigh", A)
    s = abs_op(eigvalsh(A)) if hermitian else svd_op(A)[1]
    last = len(s.shape) - 1
    if not s.shape[last]:
        return _rank_out(out, sum_op(cast(s, dtype=np.dtype(np.int64)), dim=(last,),
                                     keepdim=False))
    top = amax_op(s, dim=(last,), keepdim=True)
    given = atol if tol is None else tol
    relative = rtol
    if rtol is None:
        relative = np.finfo(dtype_of(s)).eps * max(A.shape[-2:]) if given is None else 0.0
    limit = maximum(mul(top, _column(relative)), _column(0.0 if given is None else given))
    return _rank_out(out, sum_op(cast(gt(s, limit), dtype=np.dtype(np.int64)), dim=(last,),
                                 keepdim=False))


def _column(x: Any) -> Any:
    """A tolerance per matrix, beside its singular values."""
    return unsqueeze_op(x, dim=len(x.shape)) if getattr(x, "shape", ()) else x
