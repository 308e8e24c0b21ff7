"""Matrices that a routine has no answer for: which of a batch, and where, in PyTorch's words."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint.base.errors import AdjointError


class LinAlgError(AdjointError, RuntimeError, np.linalg.LinAlgError):
    """A matrix is singular, not positive definite, or an iteration did not converge."""


# Per routine: what is looked for in the matrices, and how a first one is told.
_INVERTED = ("singular", "linalg.{name}: {which}The diagonal element {place} is zero, the "
             "inversion could not be completed because the input matrix is singular.")
_SOLVED = ("singular",
           "torch.linalg.{name}: {which}The solver failed because the input matrix is singular.")
_FACTORED = ("minor", "linalg.{name}: {which}The factorization could not be completed because the "
             "input is not positive-definite (the leading minor of order {place} is not "
             "positive-definite).")
_REDUCED = ("finite", "linalg.svd: {which}The algorithm failed to converge because the input "
            "matrix contained non-finite values.")
_TOLD = {"inv": _INVERTED, "inv_ex": _INVERTED, "cond": _INVERTED, "solve": _SOLVED,
         "solve_ex": _SOLVED, "cholesky": _FACTORED, "cholesky_ex": _FACTORED, "svd": _REDUCED,
         "pinv": _REDUCED,
         "eig": ("finite", "torch.linalg.eig: input tensor should not contain infs or NaNs.")}


def guarded(name: str, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call NumPy's routine; its failures in our words."""
    try:
        return f(*args, **kwargs)
    except np.linalg.LinAlgError as error:
        raise refusal(name, args[0], str(error)) from None


def refusal(name: str, a: Any, otherwise: str = "") -> LinAlgError:
    """The error about the first of the raw matrices `a` that `linalg.<name>` has no answer for."""
    if name in _TOLD and a.ndim > 1 and a.size:
        kind, text = _TOLD[name]
        failed = np.flatnonzero(first_failure(kind, a))
        if not len(failed) and kind == "singular":        # LAPACK rounds to zero where we do not
            failed = np.flatnonzero(np.linalg.det(a) == 0)
        if len(failed):
            at = failed[0]
            place = first_failure(kind, a).reshape(-1)[at] or a.shape[-1]
            return LinAlgError(text.format(name=name, place=place, which=(
                f"(Batch element {at}): " if a.ndim > 2 else "")))
    return LinAlgError(f"linalg.{name}: {otherwise}; the operand is {list(a.shape)}")


def first_failure(kind: str, a: Any) -> Any:
    """Per matrix of a raw batch: the order (from 1) of the first leading minor that is not positive
    definite, the first zero pivot of LU, or 1 for numbers that are not finite; 0 for none."""
    m, n = a.shape[-2:]
    flat = a.reshape(math.prod(a.shape[:-2]), m, n)
    if kind == "finite":
        bad = ~np.isfinite(flat).all(1)
    elif kind == "singular":
        bad = np.diagonal(factor(flat)[0], axis1=1, axis2=2) == 0
    else:
        work, found = np.tril(flat), []
        with np.errstate(all="ignore"):
            for j in range(n):
                pivot = work[:, j, j].real - (np.abs(work[:, j, :j]) ** 2).sum(1)
                found.append(~(pivot > 0))
                work[:, j, j] = np.sqrt(pivot)
                inner = np.einsum("bik,bk->bi", work[:, j + 1:, :j], work[:, j, :j].conj())
                work[:, j + 1:, j] = (work[:, j + 1:, j] - inner) / work[:, j, j, None]
        bad = np.stack(found, 1) if n else np.zeros((len(flat), 0), bool)
    first = np.where(bad.any(1), bad.argmax(1) + 1, 0) if n else np.zeros(len(flat))
    return first.astype(np.int32).reshape(a.shape[:-2])


def factor(a: Any) -> tuple[Any, Any]:
    """(L below and U on and above the diagonal, LAPACK's 1-based pivots), batch by batch."""
    m, n = a.shape[-2:]
    k = min(m, n)
    lead = a.shape[:-2]
    work = np.array(a).reshape(math.prod(lead), m, n)
    pivots = np.zeros((len(work), k), np.int32)
    rows = np.arange(len(work))
    for j in range(k):
        column = work[:, j:, j]          # LAPACK weighs complex numbers by |re| + |im|
        best = (np.abs(column.real) + np.abs(column.imag)).argmax(1) + j
        pivots[:, j] = best + 1
        top, other = work[rows, j].copy(), work[rows, best].copy()
        work[rows, j], work[rows, best] = other, top
        pivot = work[:, j, j]
        safe = np.where(pivot == 0, 1, pivot)
        work[:, j + 1:, j] /= safe[:, None]
        work[:, j + 1:, j + 1:] -= work[:, j + 1:, j, None] * work[:, j, None, j + 1:]
    return work.reshape(*lead, m, n), pivots.reshape(*lead, k)


def substituted(a: Any, b: Any, upper: bool) -> Any:
    """X with A·X = b for triangles with zeros on their diagonals: inf and nan, as BLAS gives."""
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    x = np.array(np.broadcast_to(b, (*lead, *b.shape[-2:])))
    n = a.shape[-1]
    with np.errstate(all="ignore"):
        for i in reversed(range(n)) if upper else range(n):
            x[..., i, :] /= a[..., i, i, None]
            rest = slice(0, i) if upper else slice(i + 1, n)
            x[..., rest, :] -= a[..., rest, i, None] * x[..., i, None, :]
    return x
