"""A = P·L·D·Lᴴ·Pᵀ of symmetric and Hermitian matrices that need not be positive definite.

D has blocks of one and of two rows. Each step takes the pivot that keeps L small: the element on
the diagonal, another one, or a block of two.
Source: J. Bunch, L. Kaufman, "Some stable methods for calculating inertia and solving symmetric
linear systems" (1977), algorithm A, in the packing of LAPACK's xSYTRF and xHETRF (lower).
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from adjoint.base.aval import Aval
from adjoint.base.errors import NotSupported, ShapeError
from adjoint.core.modes import GRAD, state
from adjoint.core.op import op
from adjoint.ops.api_common import finish_same, need, result, same_dtype
from adjoint.ops.api_decompose import LinAlgError, linalg
from adjoint.ops.decompose import batch_leading, by_columns, needs_width, square_aval
from adjoint.ops.linalg import conj
from adjoint.ops.shape import expand_op, reshape

FactorResult = result("linalg_ldl_factor", "LD pivots")
FactorExResult = result("linalg_ldl_factor_ex", "LD pivots info")
ALPHA = (1 + math.sqrt(17)) / 8


def _size(x: Any) -> Any:
    return np.abs(x.real) + np.abs(x.imag)


def _pivot(a: Any, k: int) -> tuple[int, int]:
    """(row that comes to the front, size of the block) at step k."""
    below = _size(a[k + 1:, k])
    own = _size(a[k, k])
    if not below.size or own >= ALPHA * below.max():
        return k, 1
    r = k + 1 + int(below.argmax())
    row = max(_size(a[r, k:r]).max(), _size(a[r + 1:, r]).max(initial=0.0))
    if own >= ALPHA * below.max() * (below.max() / row):
        return k, 1
    return r, 1 if _size(a[r, r]) >= ALPHA * row else 2


def _exchange(a: Any, k: int, p: int, bar: Any) -> None:
    """Rows and columns k < p of a symmetric matrix of which only the lower triangle counts."""
    a[p + 1:, [k, p]] = a[p + 1:, [p, k]]
    column, row = a[k + 1:p, k].copy(), a[p, k + 1:p].copy()
    a[k + 1:p, k], a[p, k + 1:p] = bar(row), bar(column)
    a[p, k] = bar(a[p, k])
    a[k, k], a[p, p] = a[p, p], a[k, k]


def _factor_one(a: Any, hermitian: bool) -> tuple[Any, int]:
    """Factor one matrix in place: LAPACK's pivots, and the first zero pivot from 1 or 0."""
    n, info, k = len(a), 0, 0
    pivots = np.zeros(n, np.int32)
    bar = np.conj if hermitian else np.positive
    if hermitian:
        a[range(n), range(n)] = a.diagonal().real
    while k < n:
        if not _size(a[k:, k]).any():
            info, pivots[k], k = info or k + 1, k + 1, k + 1
            continue
        p, step = _pivot(a, k)
        front = k + step - 1
        if p != front:
            _exchange(a, front, p, bar)
            if step == 2:
                a[[front, p], k] = a[[p, front], k]
        rest, block = slice(k + step, n), slice(k, front + 1)
        d = np.tril(a[block, block])
        d = d + bar(np.tril(d, -1).T)
        low = a[rest, block] @ np.linalg.inv(d) if step == 2 else a[rest, block] / d
        a[rest, rest] -= np.tril(low @ bar(a[rest, block].T))
        a[rest, block] = low
        pivots[block] = p + 1 if step == 1 else -(p + 1)
        k += step
    return pivots, info


def _factor(a: Any, /, *, hermitian: bool) -> Any:
    n = a.shape[-1]
    out = np.tril(a).reshape(math.prod(a.shape[:-2]), n, n)
    found = [_factor_one(m, hermitian) for m in out]
    pivots = np.array([p for p, _ in found], np.int32).reshape(a.shape[:-1])
    info = np.array([i for _, i in found], np.int32).reshape(a.shape[:-2])
    return by_columns(out.reshape(a.shape)), pivots, info


def _factor_infer(a: Aval, *, hermitian: bool) -> Any:
    square_aval("ldl_factor", a)
    int32 = np.dtype(np.int32)
    return a, Aval(a.shape[:-1], int32), Aval(a.shape[:-2], int32)


ldl_factor_op: Any = op(
    "linalg_ldl_factor", **needs_width("ldl_factor"), impl=_factor, infer=_factor_infer,
    by_value=True,
    outs=("ld", "pivots", "info"), batch=batch_leading, differentiable=(),
    cost=lambda a, **_: a.size * a.shape[-1] // 3 if a.ndim else 0,
    domain=lambda: [((np.array([[1.0, 2.0, 3.0], [2.0, 0.0, 4.0], [3.0, 4.0, 9.0]]),), {
        "hermitian": False})])


def _steps(pivots: Any) -> list[tuple[int, int, int]]:
    """(first row, size of the block, row that it was exchanged with), step by step."""
    steps, k = [], 0
    while k < len(pivots):
        size = 1 if pivots[k] > 0 else 2
        steps.append((k, size, abs(int(pivots[k])) - 1))
        k += size
    return steps


def _solve_one(ld: Any, pivots: Any, x: Any, hermitian: bool) -> None:
    bar = np.conj if hermitian else np.positive
    steps = _steps(pivots)
    for k, size, p in steps:
        last = k + size
        x[[last - 1, p]] = x[[p, last - 1]]
        x[last:] -= ld[last:, k:last] @ x[k:last]
        d = np.tril(ld[k:last, k:last])
        x[k:last] = np.linalg.solve(d + bar(np.tril(d, -1).T), x[k:last])
    for k, size, p in reversed(steps):
        last = k + size
        x[k:last] -= bar(ld[last:, k:last].T) @ x[last:]
        x[[last - 1, p]] = x[[p, last - 1]]


def _solve(ld: Any, pivots: Any, b: Any, /, *, hermitian: bool) -> Any:
    n, columns = b.shape[-2:]
    lead = np.broadcast_shapes(ld.shape[:-2], b.shape[:-2])
    out = np.array(np.broadcast_to(b, (*lead, n, columns)), ld.dtype)
    if not out.size:
        return out
    lds = np.broadcast_to(ld, (*lead, n, n)).reshape(-1, n, n)
    rows = np.broadcast_to(pivots, (*lead, n)).reshape(-1, n)
    flat = out.reshape(-1, n, columns)
    for one, p, x in zip(lds, rows, flat, strict=True):
        try:
            _solve_one(one, p, x, hermitian)
        except np.linalg.LinAlgError:
            raise LinAlgError("linalg.ldl_solve: D is singular; ldl_factor_ex gives the place of "
                              "its first zero pivot") from None
    return by_columns(flat.reshape(out.shape))


def _solve_infer(ld: Aval, pivots: Aval, b: Aval, *, hermitian: bool) -> Aval:
    square_aval("ldl_solve", ld)
    if b.ndim < 2 or b.shape[-2] != ld.shape[-1] or pivots.shape != ld.shape[:-1]:
        raise ShapeError(f"linalg.ldl_solve: LD{list(ld.shape)} goes with pivots "
                         f"{list(ld.shape[:-1])} and B (..., {ld.shape[-1]}, k), got pivots "
                         f"{list(pivots.shape)} and B{list(b.shape)}")
    lead = np.broadcast_shapes(ld.shape[:-2], b.shape[:-2])
    return Aval((*lead, *b.shape[-2:]), ld.dtype)


def _turned(x: Any, hermitian: bool) -> Any:
    """A⁻ᴴ is A⁻¹ where A is Hermitian, its conjugate where A is symmetric."""
    return x if hermitian else conj(x)


def _batch_solve(op_: Any, args: Any, batched: Any, attrs: Any) -> Any:
    """The axes before the matrices lined up, behind that of the batch."""
    lead = [len(x.shape) - b - k for x, b, k in zip(args, batched, (2, 1, 2), strict=True)]
    lifted = [reshape(x, (x.shape[0], *(1,) * (max(lead) - n), *x.shape[1:])) if b else x
              for x, b, n in zip(args, batched, lead, strict=True)]
    if batched[0] != batched[1]:              # LD and its pivots go together
        one = 0 if batched[1] else 1
        missing = lifted[one]
        shape = (*lifted[1 - one].shape[:len(lifted[1 - one].shape) - (2, 1)[1 - one]],
                 *missing.shape[len(missing.shape) - (2, 1)[one]:])
        lifted[one] = expand_op(missing, shape=shape)
    return op_.call(*lifted, **attrs)


def _solve_samples() -> Any:
    a = np.array([[1.0, 2.0, 3.0], [2.0, 0.0, 4.0], [3.0, 4.0, 9.0]])
    ld, pivots, _ = _factor(a, hermitian=False)
    return [((ld, pivots, np.random.default_rng(0).normal(size=(3, 2))), {"hermitian": False})]


ldl_solve_op: Any = op(
    "linalg_ldl_solve", **needs_width("ldl_solve"), impl=_solve, infer=_solve_infer,
    vjp={"b": lambda ct, ld, pivots, *, hermitian: _turned(ldl_solve_op(
        ld, pivots, _turned(ct, hermitian), hermitian=hermitian), hermitian)},
    jvp={"b": lambda t, ld, pivots, *, hermitian: ldl_solve_op(
        ld, pivots, t, hermitian=hermitian)},
    batch=_batch_solve, cost=lambda ld, pivots, b, **_: 2 * ld.size * b.shape[-1],
    why={"ld": "dB = A⁻ᴴ·ct", "pivots": "dB = A⁻ᴴ·ct"}, domain=_solve_samples)


def _no_gradient(name: str, x: Any) -> None:
    if getattr(x, "_rg", False) and state() & GRAD:
        raise NotSupported(f"linalg.{name}: the factorization has no derivative; use linalg.solve, "
                           "or detach() the operand")


@linalg(method=False)
def ldl_factor_ex(A: Any, *, hermitian: bool = False, check_errors: bool = False,
                  out: Any = None) -> Any:
    """(LD, pivots, info) of symmetric (or Hermitian) matrices (*, n, n), of which the lower
    triangle is read: D on the diagonal and, for blocks of two, beside it, L below; info is the
    first zero pivot, from 1, or 0. Raises LinAlgError for such a pivot with check_errors=True, and
    NotSupported where a gradient is wanted.

    >>> import adjoint as ad
    >>> ad.linalg.ldl_factor_ex(ad.zeros(2, 2)).info.item()
    1
    """
    need("linalg.ldl_factor_ex", A)
    _no_gradient("ldl_factor", A)
    found = ldl_factor_op(A, hermitian=bool(hermitian))
    if check_errors and not getattr(A, "level", 0) and bool((found[2] != 0).any()):
        raise LinAlgError("linalg.ldl_factor_ex: The factorization could not be completed because "
                          "the input is singular; solving with it would divide by zero")
    return finish_same(out, FactorExResult(*found))


@linalg(method=False)
def ldl_factor(A: Any, *, hermitian: bool = False, out: Any = None) -> Any:
    """(LD, pivots) as `ldl_factor_ex` gives them; raises LinAlgError where a pivot is zero.

    >>> import adjoint as ad
    >>> LD, pivots = ad.linalg.ldl_factor(ad.tensor([[4.0, 2.0], [2.0, 3.0]]))
    >>> LD.diagonal(), pivots
    (tensor([4., 2.]), tensor([1, 2], dtype=adjoint.int32))
    """
    ld, pivots, _ = ldl_factor_ex(A, hermitian=hermitian, check_errors=True)
    return finish_same(out, FactorResult(ld, pivots))


@linalg(method=False)
def ldl_solve(LD: Any, pivots: Any, B: Any, *, hermitian: bool = False, out: Any = None) -> Any:
    """X (*, n, k) with A·X = B from a factorization of A; differentiable in B.

    >>> import adjoint as ad
    >>> f = ad.linalg.ldl_factor(ad.tensor([[4.0, 2.0], [2.0, 3.0]]))
    >>> ad.linalg.ldl_solve(f.LD, f.pivots, ad.tensor([[8.0], [8.0]]))
    tensor([[1.],
            [2.]])
    """
    need("linalg.ldl_solve", LD, pivots, B)
    same_dtype("linalg.ldl_solve", LD, B)
    _no_gradient("ldl_solve", LD)
    return finish_same(out, ldl_solve_op(LD, pivots, B, hermitian=bool(hermitian)))


__all__ = ["ldl_factor", "ldl_factor_ex", "ldl_solve"]
