"""Matrices of a known form, and equations in matrices, for `jax.scipy.linalg`."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from adjoint.jax import numpy as _jnp
from adjoint.jax._array import as_array
from adjoint.jax.numpy import linalg as _l

jnp: Any = _jnp


def _row(x: Any, name: str) -> Any:
    a = as_array(x, name)
    if a.ndim != 1:
        raise ValueError(f"{name}: expected a 1-D array, got shape {a.shape}")
    return a


def circulant(c: Any) -> Any:
    """The matrix whose columns are `c`, each turned one further (batched)."""
    a = as_array(c, "circulant")
    i = np.arange(a.shape[-1])
    return a[..., (i[:, None] - i[None]) % max(i.size, 1)]


def hankel(c: Any, r: Any = None) -> Any:
    """Constant antidiagonals: the first column is `c`, the last row `r` (by default zeros)."""
    first = as_array(c, "hankel").ravel()
    last = jnp.zeros_like(first) if r is None else as_array(r, "hankel").ravel()
    i, j = np.arange(first.shape[0])[:, None], np.arange(last.shape[0])[None]
    return jnp.concatenate([first, last[1:]])[i + j]


def companion(a: Any) -> Any:
    """The matrix whose characteristic polynomial has these coefficients."""
    p = _row(a, "companion")
    if p.shape[0] < 2:
        raise ValueError("The length of `a` along the last axis must be at least 2.")
    p = p if p.dtype.kind in "fc" else p.astype(float)
    n = p.shape[0] - 1
    return jnp.eye(n, k=-1, dtype=p.dtype).at[0].set(-p[1:] / p[0])


def convolution_matrix(a: Any, n: int, mode: str = "full") -> Any:
    """The matrix A with A @ v = convolve(a, v, mode) for v of n entries."""
    row = _row(a, "convolution_matrix")
    if mode not in ("full", "same", "valid"):
        raise ValueError(f"mode must be 'full', 'same' or 'valid', got {mode!r}")
    m = row.shape[0]
    i = np.arange(m + n - 1)[:, None] - np.arange(n)[None]
    whole = jnp.where((i >= 0) & (i < m), row[np.clip(i, 0, m - 1)], jnp.zeros((), row.dtype))
    rows = {"full": m + n - 1, "same": max(m, n), "valid": max(m, n) - min(m, n) + 1}
    start = (m + n - 1 - rows[mode]) // 2
    return whole[start:start + rows[mode]]


def fiedler(a: Any) -> Any:
    """|a[i] - a[j]|."""
    x = as_array(a, "fiedler")
    return jnp.abs(x[..., :, None] - x[..., None, :])


def leslie(f: Any, s: Any) -> Any:
    """Fecundities in the first row, survivals below the diagonal."""
    born, left = as_array(f, "leslie"), as_array(s, "leslie")
    if left.shape[-1] != born.shape[-1] - 1:
        raise ValueError(f"The length of s must be one less than the length of f, got {born.shape} "
                         f"and {left.shape}")
    kind = jnp.result_type(born, left)
    out = jnp.zeros((*born.shape, born.shape[-1]), kind)
    i = np.arange(left.shape[-1])
    return out.at[..., 0, :].set(born.astype(kind)).at[..., i + 1, i].set(left.astype(kind))


def dft(n: int, scale: str | None = None, *, dtype: Any = None) -> Any:
    """The matrix of the discrete Fourier transform; scale "sqrtn" or "n"."""
    if scale not in (None, "sqrtn", "n"):
        raise ValueError(f"scale must be None, 'sqrtn', or 'n'; {scale!r} is not valid.")
    i = np.arange(n)
    found = np.exp(-2j * np.pi * (i[:, None] * i[None] % max(n, 1)) / max(n, 1))
    found = found / {None: 1, "sqrtn": math.sqrt(n), "n": n}[scale]
    return jnp.asarray(found) if dtype is None else jnp.asarray(found).astype(dtype)


def hadamard(n: int, dtype: Any = int) -> Any:
    """Sylvester's matrix of +-1 with orthogonal rows; n is a power of 2."""
    if n < 1 or n & (n - 1):
        raise ValueError(f"n must be a positive power of 2; got {n}.")
    h = np.ones((1, 1), int)
    while h.shape[0] < n:
        h = np.block([[h, h], [h, -h]])
    return jnp.asarray(h).astype(dtype)


def helmert(n: int, full: bool = False) -> Any:
    """Orthonormal contrasts; `full` adds the row of ones in front."""
    rows = np.tril(np.ones((n, n)), -1) - np.diag(np.arange(n))
    rows[0] = 1.0
    rows /= np.sqrt((rows ** 2).sum(1, keepdims=True))
    return jnp.asarray(rows if full else rows[1:])


def pascal(n: int, kind: str | None = None) -> Any:
    """Binomial coefficients; kind "symmetric", "lower" or "upper"."""
    if kind not in (None, "symmetric", "lower", "upper"):
        raise ValueError(f"Expected kind to be on of: {None, 'symmetric', 'lower', 'upper'}, got "
                         f"{kind!r}")
    low = jnp.asarray([[float(math.comb(i, j)) for j in range(n)] for i in range(n)])
    low = low.reshape(n, n)
    return low if kind == "lower" else low.T if kind == "upper" else low @ low.T


def invhilbert(n: int) -> Any:
    """The inverse of Hilbert's matrix: whole numbers, by binomial coefficients."""
    c = math.comb
    return jnp.asarray(np.array([[
        (-1) ** (i + j) * (i + j + 1) * c(n + i, n - j - 1) * c(n + j, n - i - 1)
        * c(i + j, i) ** 2 for j in range(n)] for i in range(n)], float))


def invpascal(n: int, kind: str | None = None) -> Any:
    """The inverse of Pascal's matrix; kind "symmetric", "lower" or "upper"."""
    if kind not in (None, "symmetric", "lower", "upper"):
        raise ValueError(f"Expected kind to be on of: {None, 'symmetric', 'lower', 'upper'}, got "
                         f"{kind!r}")
    low = np.array([[(-1.0) ** (i + j) * math.comb(i, j) for j in range(n)]
                    for i in range(n)]).reshape(n, n)
    return jnp.asarray(low if kind == "lower" else low.T if kind == "upper" else low.T @ low)


def fiedler_companion(a: Any) -> Any:
    """The five-diagonal matrix whose eigenvalues are the roots of a polynomial (Fiedler 2003)."""
    p = as_array(a, "fiedler_companion")
    if p.ndim != 1:
        raise ValueError(f"Input 'a' must be 1-D array, got shape {p.shape}")
    if p.size <= 2:
        return -(p[1:] / p[0]).reshape(-1, 1) if p.size == 2 else jnp.zeros((0, 0), p.dtype)
    q, n = p / p[0], p.size - 1
    out = jnp.zeros((n, n), q.dtype)
    out = out.at[0, 0].set(-q[1]).at[1, 0].set(1)
    for r in range(n):                        # pairs of coefficients in the even rows
        if r % 2:
            out = out.at[r, r - 2].set(1) if r > 1 else out
            continue
        for column, value in ((r - 1, -q[r + 1]), (r + 1, -q[r + 2] if r + 1 < n else 0),
                              (r + 2, 1)):
            if 0 <= column < n:
                out = out.at[r, column].set(value)
    return out


def expm_frechet(A: Any, E: Any, *, method: str | None = None, compute_expm: bool = True) -> Any:
    """(expm(A), its derivative along E)."""
    from adjoint.jax._transforms import jvp
    from adjoint.jax._util import promote_dtypes_inexact
    from adjoint.jax.scipy.linalg import expm
    a, e = promote_dtypes_inexact(A, E)
    if a.ndim != 2 or a.shape[0] != a.shape[1]:
        raise ValueError(f"expected A to be a square matrix, got shape {a.shape}")
    if e.shape != a.shape:
        raise ValueError(f"expected A and E to be the same shape, got {a.shape} and {e.shape}")
    value, slope = jvp(expm, (a,), (e,))
    return (value, slope) if compute_expm else slope


def solve_sylvester(A: Any, B: Any, C: Any, *, method: str = "schur", tol: float = 1e-8) -> Any:
    """X with A X + X B = C, by the linear system of all its entries."""
    from adjoint.jax._util import promote_dtypes_inexact
    a, b, c = promote_dtypes_inexact(A, B, C)
    if a.ndim != 2 or b.ndim != 2 or c.shape != (a.shape[0], b.shape[0]):
        raise ValueError("Incompatible shapes for Sylvester equation:\n"
                         f"A: {a.shape}\nB: {b.shape}\nC: {c.shape}")
    system = jnp.kron(a, jnp.eye(b.shape[0], dtype=b.dtype)) + jnp.kron(
        jnp.eye(a.shape[0], dtype=a.dtype), b.T)
    return _l.solve(system, c.ravel()).reshape(c.shape)


__all__ = ["circulant", "companion", "convolution_matrix", "dft", "expm_frechet", "fiedler",
           "fiedler_companion", "hadamard", "hankel", "helmert", "invhilbert", "invpascal",
           "leslie", "pascal", "solve_sylvester"]
