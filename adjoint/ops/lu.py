"""LU with partial pivoting, its derivative, and the solvers built on it.

Source of the derivative: M. Giles (2008), section 2.2.5 in spirit: with F = L⁻¹·Pᵀ·dA·U⁻¹,
dL = L·tril(F, -1) and dU = triu(F)·U; rectangular operands split off a triangular solve.
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from adjoint.base.aval import Aval
from adjoint.base.errors import ArgumentError, DTypeError, ShapeError
from adjoint.core.modes import warn_as_pytorch
from adjoint.core.op import op
from adjoint.core.tensor import Tensor
from adjoint.ops.api_common import (
    box,
    cast_to,
    dtype_of,
    finish,
    finish_same,
    in_rows,
    need_kernel,
    raw,
    result,
    safely,
    same_dtype,
)
from adjoint.ops.api_decompose import (
    cholesky,
    equation_fits,
    linalg,
    matrix_norm,
    need_matrix,
    qr,
)
from adjoint.ops.api_shape import c_clone
from adjoint.ops.decompose import (
    batch_leading,
    cholesky_op,
    inv_op,
    mm,
    needs_width,
    svd_op,
    triangular_op,
)
from adjoint.ops.index import tril_op, triu_op
from adjoint.ops.linalg import columns, matmul_op, mH
from adjoint.ops.pointwise import abs_op, add, div, eq, mul, sub, where_op
from adjoint.ops.public import FUNCTIONS, known_as, public, typed
from adjoint.ops.reduce import amax_op, amin_op, sum_op
from adjoint.ops.shape import cat_op, clone_op, mT, narrow_op, squeeze_op, unsqueeze_op
from adjoint.ops.singular import LinAlgError, factor, first_failure, refusal

LUResult = result("linalg_lu", "P L U")
FactorResult = result("linalg_lu_factor", "LU pivots")
InfoResult = result("linalg_solve_ex", "result info")
UnpackResult = result("lu_unpack", "P L U")
TriangularResult = result("triangular_solve", "solution cloned_coefficient")
_cholesky_out = safely("cholesky", rows="all")
_cond_out = safely("linalg.cond")
TopQRResult = result("qr", "Q R")


def permutation(pivots: Any, m: int, dtype: Any) -> Any:
    """The matrix P with A = P·L·U."""
    lead = pivots.shape[:-1]
    flat = pivots.reshape(math.prod(lead), pivots.shape[-1])
    out = np.zeros((len(flat), m, m), dtype)
    for b, row in enumerate(flat):
        order = np.arange(m)
        for j, p in enumerate(row):
            order[[j, p - 1]] = order[[p - 1, j]]
        out[b, order, np.arange(m)] = 1
    return out.reshape(*lead, m, m)


def split(packed: Any) -> tuple[Any, Any]:
    """(L with a unit diagonal, U) of a packed factorization, raw."""
    m, n = packed.shape[-2:]
    k = min(m, n)
    low = np.tril(packed[..., :, :k], -1)
    low[..., range(k), range(k)] = 1
    return low, np.triu(packed[..., :k, :])


def _lu_impl(a: Any, /) -> Any:
    packed, pivots = factor(a)
    low, up = split(packed)
    return permutation(pivots, a.shape[-2], a.dtype), low, up, pivots


def _lu_infer(a: Aval) -> Any:
    if a.ndim < 2:
        raise ShapeError(f"linalg.lu: A must have at least 2 dimensions, got {list(a.shape)}")
    m, n = a.shape[-2:]
    k, lead = min(m, n), a.shape[:-2]
    return (Aval((*lead, m, m), a.dtype), Aval((*lead, m, k), a.dtype),
            Aval((*lead, k, n), a.dtype), Aval((*lead, k), np.dtype(np.int32)))


def _rows(x: Any, start: int, length: int) -> Any:
    return narrow_op(x, dim=len(x.shape) - 2, start=start, length=length)


def _cols(x: Any, start: int, length: int) -> Any:
    return narrow_op(x, dim=len(x.shape) - 1, start=start, length=length)


def _over_low(low: Any, x: Any) -> Any:
    """L⁻ᴴ·x."""
    return triangular_op(mH(low), x, upper=True, unit=True)


def _over_up(x: Any, up: Any) -> Any:
    """x·U⁻ᴴ."""
    return mH(triangular_op(up, mH(x), upper=True, unit=False))


def _square_vjp(gl: Any, gu: Any, low: Any, up: Any) -> Any:
    inner = add(tril_op(mm(mH(low), gl), diagonal=-1), triu_op(mm(gu, mH(up)), diagonal=0))
    return _over_up(_over_low(low, inner), up)


def _lu_vjp(cts: Any, p: Any, l: Any, u: Any) -> Any:  # noqa: E741 - the factors' names
    k, m, n = l.shape[-1], l.shape[-2], u.shape[-1]
    gl, gu = (np.zeros(tuple(x.shape), dtype_of(x)) if c is None else c
              for c, x in zip(cts[1:3], (l, u), strict=True))
    gl, gu = tril_op(gl, diagonal=-1), triu_op(gu, diagonal=0)
    if n > m:
        right = _over_low(l, _cols(gu, m, n - m))
        low_ct = sub(gl, mm(right, mH(_cols(u, m, n - m))))
        left = _square_vjp(low_ct, _cols(gu, 0, m), l, _cols(u, 0, m))
        return mm(p, cat_op(left, right, dim=len(u.shape) - 1))
    if m > n:
        below = _over_up(_rows(gl, k, m - k), u)
        up_ct = sub(gu, mm(mH(_rows(l, k, m - k)), below))
        above = _square_vjp(_rows(gl, 0, k), up_ct, _rows(l, 0, k), u)
        return mm(p, cat_op(above, below, dim=len(u.shape) - 2))
    return mm(p, _square_vjp(gl, gu, l, u))


def _square_jvp(t: Any, low: Any, up: Any) -> tuple[Any, Any]:
    left = triangular_op(low, t, upper=False, unit=True)
    inner = mT(triangular_op(mT(up), mT(left), upper=False, unit=False))
    return mm(low, tril_op(inner, diagonal=-1)), mm(triu_op(inner, diagonal=0), up)


def _lu_jvp(t: Any, p: Any, l: Any, u: Any) -> Any:  # noqa: E741 - the factors' names
    k, m, n = l.shape[-1], l.shape[-2], u.shape[-1]
    t = mm(mT(p), t)
    if n > m:
        dl, du = _square_jvp(_cols(t, 0, m), l, _cols(u, 0, m))
        rest = sub(_cols(t, m, n - m), mm(dl, _cols(u, m, n - m)))
        more = triangular_op(l, rest, upper=False, unit=True)
        return None, dl, cat_op(du, more, dim=len(u.shape) - 1), None
    if m > n:
        dl, du = _square_jvp(_rows(t, 0, k), _rows(l, 0, k), u)
        rest = sub(_rows(t, k, m - k), mm(_rows(l, k, m - k), du))
        more = mT(triangular_op(mT(u), mT(rest), upper=False, unit=False))
        return None, cat_op(dl, more, dim=len(u.shape) - 2), du, None
    dl, du = _square_jvp(t, l, u)
    return None, dl, du, None


lu_op: Any = op(
    "linalg_lu", **needs_width("lu"),
    impl=_lu_impl, infer=_lu_infer, outs=("p", "l", "u", "pivots"),
    differentiable=("l", "u"),
    vjp={"a": _lu_vjp}, jvp={"a": _lu_jvp}, batch=batch_leading,
    cost=lambda a: a.size * min(a.shape[-2:]), node="LinalgLuBackward0",
    why={"p": "which rows were exchanged", "l": "dA = P·L⁻ᴴ·(...)·U⁻ᴴ",
         "u": "dA = P·L⁻ᴴ·(...)·U⁻ᴴ"})


permutation_op: Any = op(
    "lu_permutation", impl=lambda pivots, /, *, m, dtype: permutation(pivots, m, dtype),
    infer=lambda pivots, *, m, dtype: Aval((*pivots.shape[:-1], m, m), np.dtype(dtype)),
    batch=batch_leading, cost=lambda pivots, *, m, **_: pivots.size * m)


# ------------------------------------------------------------------ public
@linalg(method=False)
def lu(A: Any, *, pivot: bool = True, out: Any = None) -> Any:
    """(P, L, U) with P·L·U = A: a permutation, a unit lower and an upper triangle.

    >>> import adjoint as ad
    >>> ad.linalg.lu(ad.tensor([[0.0, 1.0], [2.0, 0.0]])).U
    tensor([[2., 0.],
            [0., 1.]])
    """
    _need_pivot(pivot)
    need_kernel("lu_cpu", "biu", A)
    return finish_same(out, LUResult(*lu_op(A)[:3]))


@linalg()
@known_as("LinalgLuFactorExBackward0")
def lu_factor(A: Any, *, pivot: bool = True, out: Any = None) -> Any:
    """(LU packed in one matrix, int32 pivots from 1), as `lu_solve` takes them. Raises LinAlgError
    where U has a zero on its diagonal: `lu_factor_ex` gives its place instead."""
    found = _factored(A, pivot)
    _refuse_zero("lu_factor", found[0])
    return finish_same(out, found)


def _refuse_zero(name: str, packed: Any) -> None:
    """LinAlgError for a first zero on a diagonal whose numbers are there."""
    array = raw(packed)
    if type(array) is not np.ndarray or packed.level:
        return
    places = np.diagonal(array, axis1=-2, axis2=-1) == 0
    zero = np.argwhere(places.reshape(-1, places.shape[-1]))
    if len(zero):
        which = f"(Batch element {zero[0, 0]}): " if array.ndim > 2 else ""
        k = zero[0, -1] + 1
        raise LinAlgError(f"torch.linalg.{name}: {which}U[{k},{k}] is zero and using it on "
                          "lu_solve would result in a division by zero. If you still want to "
                          "perform the factorization, consider calling linalg.lu(A, pivot) or "
                          "linalg.lu_factor_ex(A, pivot)")


def _need_pivot(pivot: bool) -> None:
    if not pivot:
        raise NotImplementedError("linalg.lu_factor: LU without pivoting is not implemented on the "
                                  "CPU")


def _factored(A: Any, pivot: bool) -> Any:
    _need_pivot(pivot)
    need_kernel("lu_cpu", "biu", A)
    _, low, up, pivots = lu_op(A)
    m, n = A.shape[-2:]
    k = min(m, n)
    low, up = tril_op(low, diagonal=-1), up
    if n > k:
        gap = np.zeros((*A.shape[:-2], m, n - k), dtype_of(A))
        low = cat_op(low, gap, dim=len(A.shape) - 1)
    if m > k:
        gap = np.zeros((*A.shape[:-2], m - k, n), dtype_of(A))
        up = cat_op(up, gap, dim=len(A.shape) - 2)
    return FactorResult(mT(c_clone(mT(add(low, up)))), pivots)


def _older(name: str, now: str) -> None:
    warn_as_pytorch(f"torch.{name} is deprecated in favor of torch.{now} and will be removed in a "
                    "future PyTorch release.")


@public(method=True)
@known_as("TriangularSolveBackward0")
def triangular_solve(b: Any, A: Any, upper: bool = True, transpose: bool = False,
                     unitriangular: bool = False, *, out: Any = None) -> Any:
    """(X with A·X = b for a triangle of A, a copy of A)."""
    _older("triangular_solve", "linalg.solve_triangular")
    a = mT(A) if transpose else A
    x = triangular_op(a, b, upper=upper != transpose, unit=unitriangular)
    return finish_same(out, TriangularResult(x, columns(clone_op(A))))


@public("cholesky")
def top_cholesky(input: Any, upper: bool = False, *, out: Any = None) -> Any:
    """`linalg.cholesky` under its older name."""
    _older("cholesky", "linalg.cholesky")
    return _cholesky_out(out, cholesky(input, upper=upper))


@public("qr")
def top_qr(input: Any, some: bool = True, *, out: Any = None) -> Any:
    """`linalg.qr` under its older name."""
    _older("qr", "linalg.qr")
    return finish_same(out, TopQRResult(*qr(input, "reduced" if some else "complete")))


@public("lu", function=False)
def method_lu(self: Any, pivot: bool = True, get_infos: bool = False) -> Any:
    """`linalg.lu_factor_ex` as a method, with its info where asked."""
    found = tuple(lu_factor_ex(self, pivot=pivot))
    return found if get_infos else found[:2]


@public("lu", method=False)
def top_lu(A: Any, pivot: bool = True, get_infos: bool = False, out: Any = None) -> Any:
    """`A.lu(pivot, get_infos)`; `out` is a tuple of as many tensors."""
    _older("lu", "linalg.lu_factor / torch.linalg.lu_factor_ex")
    found = method_lu(A, pivot, get_infos)
    if out is not None and len(out) != len(found):
        raise TypeError(f"expected tuple of {len(found)} elements but got {len(out)}")
    return found if out is None else finish(out, tuple(
        in_rows(cast_to(f, o.dtype)) for f, o in zip(found, out, strict=True)))


@public(method=False)
@typed
def lu_unpack(LU_data: Any, LU_pivots: Any, unpack_data: bool = True, unpack_pivots: bool = True,
              *, out: Any = None) -> Any:
    """(P, L, U) from a packed factorization."""
    m, n = LU_data.shape[-2:]
    k = min(m, n)
    if dtype_of(LU_pivots) != np.int32:
        raise DTypeError("torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of "
                         "torch.int32 dtype. Note: this function is intended to be used with the "
                         "output produced by torch.linalg.lu_factor")
    p = permutation_op(LU_pivots, m=m, dtype=dtype_of(LU_data))
    low = tril_op(_cols(LU_data, 0, k), diagonal=-1)
    eye = np.eye(m, k, dtype=dtype_of(LU_data))
    high = triu_op(_rows(LU_data, 0, k), diagonal=0)
    return finish_same(out, UnpackResult(p, add(low, eye), high))


@linalg()
def lu_solve(LU: Any, pivots: Any, B: Any, *, left: bool = True, adjoint: bool = False,
             out: Any = None) -> Any:
    """X with A·X = B (Aᴴ·X = B, or X·A = B with left=False) from a packed factorization of A."""
    if dtype_of(pivots) != np.int32:
        raise DTypeError("linalg.lu_solve: pivots should be a Tensor of scalar type torch.int32")
    if pivots.shape[-1] != LU.shape[-1]:
        raise ShapeError("linalg.lu_solve: Number of pivots per batch should be same as the "
                         "dimension of the matrix")
    equation_fits("lu_solve", LU, B, left)
    if not left:
        found = mH(lu_solve(LU, pivots, mH(B), adjoint=not adjoint))
        return finish_same(out, found)
    same_dtype("linalg.lu_solve", LU, B)
    p = permutation_op(pivots, m=LU.shape[-1], dtype=dtype_of(LU))
    if adjoint:
        half = triangular_op(mH(LU), B, upper=False, unit=False)
        x = mm(p, triangular_op(mH(LU), half, upper=True, unit=True))
        return finish_same(out, columns(x))
    half = triangular_op(LU, mm(mT(p), B), upper=False, unit=True)
    return finish_same(out, triangular_op(LU, half, upper=True, unit=False))


@public("lu_solve")
def top_lu_solve(b: Any, LU_data: Any, LU_pivots: Any, *, out: Any = None) -> Any:
    """`linalg.lu_solve` with the right-hand side first."""
    return lu_solve(LU_data, LU_pivots, b, out=out)


# ------------------------------------------------------------------ with info instead of errors
def _with_info(name: str, kind: str, A: Any, run: Any, check_errors: bool) -> tuple[Any, Any]:
    """(run(A), info per matrix); nan where info is not 0, unless that is to raise."""
    try:
        return run(A), box(A, np.zeros(tuple(A.shape[:-2]), np.int32))
    except LinAlgError:
        if isinstance(A, Tensor) and A.level:
            raise
    if check_errors:
        raise refusal(name, raw(A))
    info = first_failure(kind, raw(A))
    bad = (info != 0)[..., None, None]
    found = run(where_op(bad, np.eye(A.shape[-1], dtype=dtype_of(A)), A))
    if len(found.shape) < len(A.shape):                     # a vector per matrix was solved for
        bad = bad[..., 0]
    return where_op(bad, np.array(np.nan, dtype_of(A)), found), box(A, info)


@linalg(method=False)
def inv_ex(A: Any, *, check_errors: bool = False, out: Any = None) -> Any:
    """(inverse, info): info is 0, or the place of the first zero pivot, from 1; the inverse of such
    a matrix is nan, or raises with check_errors=True.

    >>> import adjoint as ad
    >>> ad.linalg.inv_ex(ad.zeros(2, 2)).info.item()
    1
    """
    found = _with_info("inv_ex", "singular", A, inv_op, check_errors)
    return finish_same(out, InverseResult(*found))


@linalg(method=False)
def multi_dot(tensors: Any, *, out: Any = None) -> Any:
    """Product of several matrices in the order with the fewest multiplications (T. Cormen et al.,
    "Introduction to algorithms", 15.2); the first and last may be vectors."""
    xs = list(tensors)
    need_kernel("addmm_impl_cpu_", "b", *xs)
    if len(xs) < 2:
        raise ArgumentError(f"multi_dot(): expected at least 2 tensors but got {len(xs)}")
    for i, x in enumerate(xs):
        ends = i in (0, len(xs) - 1)
        if len(x.shape) != 2 and not (ends and len(x.shape) == 1):
            raise ShapeError(f"multi_dot(): tensor {i} must be {'1D or ' * ends}2D but got "
                             f"{len(x.shape)}D")
    first, last = len(xs[0].shape) == 1, len(xs[-1].shape) == 1
    xs[0] = unsqueeze_op(xs[0], dim=0) if first else xs[0]
    xs[-1] = unsqueeze_op(xs[-1], dim=1) if last else xs[-1]
    sizes = [x.shape[0] for x in xs] + [xs[-1].shape[1]]
    best: dict[tuple[int, int], tuple[int, int]] = {(i, i): (0, i) for i in range(len(xs))}
    for width in range(1, len(xs)):
        for i in range(len(xs) - width):
            j = i + width
            best[i, j] = min((best[i, k][0] + best[k + 1, j][0]
                              + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j))

    def product(i: int, j: int) -> Any:
        if i == j:
            return xs[i]
        k = best[i, j][1]
        return matmul_op(product(i, k), product(k + 1, j))
    found = product(0, len(xs) - 1)
    drop = ((0,) if first else ()) + ((1,) if last else ())
    return finish_same(out, squeeze_op(found, dims=drop) if drop else found)


@linalg()
def cond(A: Any, p: Any = None, *, out: Any = None) -> Any:
    """‖A‖·‖A⁻¹‖, inf for a singular matrix; the ratio of extreme singular values for p None, 2 or
    -2."""
    need_matrix("cond", A)
    if p not in (None, 2, -2, "fro", "nuc", math.inf, -math.inf, 1, -1):
        raise ArgumentError(f"linalg.cond got an invalid norm type: {p}")
    if not A.shape[-1] or not A.shape[-2]:
        return _cond_out(out, sum_op(abs_op(A), dim=(len(A.shape) - 2, len(A.shape) - 1),
                                     keepdim=False))
    if p not in (None, 2, -2) and A.shape[-1] != A.shape[-2]:
        raise ShapeError(f"linalg.cond(ord={p}): A must be batches of square matrices, but they "
                         f"are {A.shape[-2]} by {A.shape[-1]} matrices")
    if p in (None, 2, -2):
        s, last = svd_op(A)[1], (len(A.shape) - 2,)
        high, low = amax_op(s, dim=last, keepdim=False), amin_op(s, dim=last, keepdim=False)
        return _cond_out(out, div(low, high) if p == -2 else div(high, low))
    inverse, info = _with_info("cond", "singular", A, inv_op, False)
    regular = eq(info, 0)
    inverse = where_op(regular[..., None, None], inverse, 0.0)
    return _cond_out(out, where_op(regular, mul(matrix_norm(A, p), matrix_norm(inverse, p)),
                                   math.inf))


@linalg(method=False)
def cholesky_ex(A: Any, *, upper: bool = False, check_errors: bool = False,
                out: Any = None) -> Any:
    """(L, info): info is 0, or the order of the first leading minor that is not positive definite;
    the factor of such a matrix is nan, or raises with check_errors=True.

    >>> import adjoint as ad
    >>> ad.linalg.cholesky_ex(ad.tensor([[1.0, 2.0], [2.0, 1.0]])).info.item()
    2
    """
    low, info = _with_info("cholesky_ex", "minor", A, cholesky_op, check_errors)
    return finish_same(out, CholeskyResult(columns(mH(low)) if upper else low, info))


@linalg(method=False)
def solve_ex(A: Any, B: Any, *, left: bool = True, check_errors: bool = False,
             out: Any = None) -> Any:
    """(X, info): info is 0, or the place of the first zero pivot of A, from 1; X is nan there, or
    raises with check_errors=True."""
    from adjoint.ops.api_decompose import solve
    return finish_same(out, InfoResult(*_with_info(
        "solve_ex", "singular", A, lambda a: solve(a, B, left=left), check_errors)))


@linalg(method=False)
@known_as("LinalgLuFactorExBackward0")
def lu_factor_ex(A: Any, *, pivot: bool = True, check_errors: bool = False,
                 out: Any = None) -> Any:
    """(LU, pivots, info): info is the first zero on U's diagonal, from 1, or 0; LinAlgError for
    one with check_errors=True."""
    packed, pivots = _factored(A, pivot)
    if check_errors:
        _refuse_zero("lu_factor_ex", packed)
    k = min(A.shape[-2:])
    zero = eq(FUNCTIONS["diagonal"](packed, dim1=-2, dim2=-1), 0.0)
    places = where_op(zero, np.arange(1, k + 1, dtype=np.int32), np.int32(k + 1))
    first = FUNCTIONS["amin"](places, -1) if k else FUNCTIONS["zeros_like"](
        places[..., :0].sum(-1), dtype=np.dtype(np.int32))
    info = where_op(eq(first, k + 1), np.int32(0), first) if k else first
    return finish_same(out, FactorExResult(packed, pivots, info))


InverseResult = result("linalg_inv_ex", "inverse info")
CholeskyResult = result("linalg_cholesky_ex", "L info")
FactorExResult = result("linalg_lu_factor_ex", "LU pivots info")
__all__ = ["lu", "lu_factor", "lu_solve", "lu_unpack"]
