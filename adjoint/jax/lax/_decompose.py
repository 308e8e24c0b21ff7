"""`jax.lax.linalg`: decompositions that LAPACK makes and that have no derivative, as in JAX, and
products with the factor of one."""
from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from adjoint import func as _func
from adjoint.jax import numpy as _jnp
from adjoint.jax._array import as_array, joined, make
from adjoint.jax._table import T, is_real_float

_n: Any = _jnp
_KINDS = "floating, complexfloating"


def host(name: str, code: Callable[..., Any], axes: tuple[int, ...] = (2,)) -> Any:
    """A function of tensors from one of arrays without a derivative, example by example.

    axes  how many axes of each operand an example has
    """
    def run(*xs: Any) -> Any:
        lead = np.broadcast_shapes(*[x.shape[:x.ndim - k] for x, k in zip(xs, axes, strict=True)])
        full = [np.broadcast_to(x, (*lead, *x.shape[x.ndim - k:]))
                for x, k in zip(xs, axes, strict=True)]
        rows = [code(*[x[at] for x in full]) for at in np.ndindex(*lead)]
        if not rows:                           # (one of ones has the shapes of an empty batch's)
            one = code(*[np.ones(x.shape[len(lead):], x.dtype) for x in full])
            return tuple(np.zeros((*lead, *np.shape(v)), np.asarray(v).dtype) for v in one)
        return tuple(np.stack([np.asarray(r[i]) for r in rows]).reshape(
            *lead, *np.asarray(rows[0][i]).shape) for i in range(len(rows[0])))
    run.__name__ = name
    return _func.from_callable(run, vectorized=True)


def taken(name: str, *xs: Any, ranks: tuple[int, ...] = (2,), kinds: str = _KINDS) -> list[Any]:
    """Operands as tensors; TypeError where JAX's primitive does not take their ranks, their dtypes
    or different numbers of batch axes.

    ranks  how many axes of each operand an example has
    """
    arrays = [as_array(x, name) for x in xs]
    for i, (a, k) in enumerate(zip(arrays, ranks, strict=True)):
        if a.ndim < k:
            raise TypeError(f"Input {i} to {name} must have rank at least {k}, but got "
                            f"shape={a.shape}")
    for i, a in enumerate(arrays):
        if not (is_real_float(a.dtype) or a.dtype.kind == "c" and kinds == _KINDS):
            raise TypeError(f"{name} does not accept dtype {a.dtype.name} at position {i}. "
                            f"Accepted dtypes at position {i} are subtypes of {kinds}.")
    lead = [a.ndim - k for a, k in zip(arrays, ranks, strict=True)]
    if len({*lead}) > 1:
        raise TypeError(f"All inputs to {name} must have the same number of batch dimensions, "
                        f"but got {lead} batch dimensions for the inputs.")
    return [a.tensor for a in arrays]


def _square(x: Any, name: str, words: str) -> Any:
    shape = as_array(x, name).shape
    if len(shape) > 1 and shape[-1] != shape[-2]:
        raise ValueError(words.format(tuple(shape)))
    return taken(name, x)[0]


def _many(found: Any) -> tuple[Any, ...]:
    return tuple(found) if isinstance(found, tuple) else (found,)


@lru_cache
def _lapack(name: str, kind: str) -> Any:
    from scipy.linalg.lapack import get_lapack_funcs
    return get_lapack_funcs((name,), dtype=np.dtype(kind))[0]


# ------------------------------------------------------------------ decompositions
def _schur_of(x: np.ndarray) -> tuple[Any, Any]:
    import scipy.linalg
    found: tuple[Any, Any] = scipy.linalg.schur(x)
    return found


def _hessenberg_of(x: np.ndarray) -> tuple[Any, Any]:
    if len(x) < 2:
        return x.copy(), np.zeros(0, x.dtype)
    made, taus, _ = _lapack("gehrd", x.dtype.str)(x)
    return made, np.asarray(taus)[:len(x) - 1]


def _tridiagonal_of(x: np.ndarray, lower: bool) -> tuple[Any, ...]:
    prefix = "he" if x.dtype.kind == "c" else "sy"
    made, d, e, taus, _ = _lapack(f"{prefix}trd", x.dtype.str)(x, lower=int(lower))
    return made, d, e, np.asarray(taus)[:max(len(x) - 1, 0)]


_schur, _hessenberg = host("schur", _schur_of), host("hessenberg", _hessenberg_of)
_tridiagonal = {low: host("tridiagonal", lambda x, low=low: _tridiagonal_of(x, low))
                for low in (True, False)}


def schur(x: Any, *, compute_schur_vectors: bool = True, sort_eig_vals: bool = False,
          select_callable: Any = None) -> list[Any]:
    """[T, Q] with x = Q T Q^H, T upper triangular (for real x but for blocks of two); [T] without
    the vectors."""
    t = _square(x, "schur", "The input to schur must be a square matrix. Got shape {}.")
    found = [make(v) for v in _schur(t)]
    return found if compute_schur_vectors else found[:1]


def hessenberg(a: Any) -> list[Any]:
    """[packed, taus]: the Hessenberg form, and below it the reflectors that lead to it."""
    t = _square(a, "hessenberg",
                "Argument to Hessenberg reduction must have shape [..., n, n], got shape {}")
    return [make(v) for v in _hessenberg(t)]


def tridiagonal(a: Any, *, lower: bool = True) -> list[Any]:
    """[packed, diagonal, beside it, taus] of a symmetric matrix, of which one triangle is read."""
    t = _square(a, "tridiagonal",
                "Argument to tridiagonal must have shape [..., n, n], got shape {}")
    return [make(v) for v in _tridiagonal[bool(lower)](t)]


def _updated(r: np.ndarray, w: np.ndarray) -> tuple[Any]:
    """The factor of R^T R + w w^T, by one rotation per row."""
    r, w = r.copy(), w.copy()
    for k in range(len(w)):
        length = math.hypot(r[k, k], w[k]) * (-1.0 if r[k, k] < 0 else 1.0)
        c, s = (r[k, k] / length, w[k] / length) if length else (1.0, 0.0)
        r[k, k:], w[k:] = c * r[k, k:] + s * w[k:], c * w[k:] - s * r[k, k:]
    return (np.triu(r),)


_update = host("cholesky_update", _updated, (2, 1))


def cholesky_update(r_matrix: Any, w_vector: Any) -> Any:
    """The upper factor of R^T R + w w^T from R."""
    taken("cholesky_update", r_matrix, w_vector, ranks=(2, 1), kinds="floating")
    (r, w), _ = joined("cholesky_update", (r_matrix, w_vector), floating=True)
    if r.ndim < 2 or r.shape[-1] != r.shape[-2] or w.shape[-1:] != r.shape[-1:]:
        raise ValueError("Rank-1 update to Cholesky decomposition takes a square matrix and a "
                         f"vector of the same size as input. Got shapes {tuple(r.shape)} and "
                         f"{tuple(w.shape)} instead")
    return make(_many(_update(r, w))[0])


def qdwh(x: Any, *, is_hermitian: bool = False, max_iterations: int | None = None,
         eps: float | None = None, dynamic_shape: Any = None) -> tuple[Any, ...]:
    """(unitary, positive, steps, converged): the polar factors, here by singular values."""
    from adjoint.jax.scipy.linalg import polar
    x = as_array(x, "qdwh")
    if x.dtype.kind != "c" and not is_real_float(x.dtype):
        raise ValueError(f"data type {x.dtype.name} not inexact")
    if x.ndim == 2 and x.shape[0] < x.shape[1]:
        raise ValueError("The input matrix of shape M x N must have M >= N.")
    u, h = polar(x)
    return u, h, _n.asarray(1, "int32"), _n.asarray(True)


# ------------------------------------------------------------------ the factor of a QR
def ormqr(a: Any, taus: Any, c: Any, *, left: bool = True, transpose: bool = False) -> Any:
    """Q c, or c Q, with the square factor of the reflectors in `a`; `transpose` takes Q^H."""
    taken("ormqr", a, taus, c, ranks=(2, 1, 2))
    (m, tau, y), _ = joined("ormqr", (a, taus, c), floating=True)
    if y.shape[-2 if left else -1] != m.shape[-2]:
        side, what = ("left=True", "rows") if left else ("left=False", "columns")
        raise ValueError(f"ormqr with {side} expects c to have the same number of {what} as the "
                         f"{'' if left else 'rows of the '}Householder matrix a. Got a shape "
                         f"{tuple(m.shape)} and c shape {tuple(y.shape)}.")
    return make(T["ormqr"](m, tau, y, left, transpose))


def geqrf(a: Any) -> tuple[Any, Any]:
    """(packed, taus) of a QR decomposition."""
    found = T["geqrf"](*taken("geqrf", a))
    return make(found[0]), make(found[1])


def _pivoted(x: np.ndarray) -> tuple[Any, ...]:
    made, order, taus, _, _ = _lapack("geqp3", x.dtype.str)(x)
    return made, (order - 1).astype(np.int32), taus


_geqp3 = host("geqp3", _pivoted)


def geqp3(a: Any) -> tuple[Any, ...]:
    """(packed, order of the columns, taus) of a QR decomposition with pivots."""
    return tuple(make(v) for v in _geqp3(*taken("geqp3", a)))


def expanded(packed: Any, taus: Any, full: bool) -> tuple[Any, Any]:
    """(Q, R) of a packed decomposition."""
    m, n = packed.shape[-2:]
    rows = m if full else min(m, n)
    eye = np.broadcast_to(np.eye(m, rows), (*packed.shape[:-2], m, rows))
    q = ormqr(packed, taus, _n.asarray(eye, packed.dtype))
    return q, _n.triu(packed[..., :rows, :])


__all__ = ["cholesky_update", "expanded", "geqp3", "geqrf", "hessenberg", "host", "ormqr",
           "qdwh", "schur", "taken", "tridiagonal"]
