"""Matrices of a known form, and equations in matrices, for `jax.scipy.linalg`."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from adjoint.jax import numpy as _jnp
from adjoint.jax._array import as_array
from adjoint.jax.numpy import linalg as _l

n: Any = _jnp


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
    last = n.zeros_like(first) if r is None else as_array(r, "hankel").ravel()
    i, j = np.arange(first.shape[0])[:, None], np.arange(last.shape[0])[None]
    return n.concatenate([first, last[1:]])[i + j]


def companion(a: Any) -> Any:
    """The matrix whose characteristic polynomial has these coefficients."""
    p = _row(a, "companion")
    if p.shape[0] < 2:
        raise ValueError("The length of `a` along the last axis must be at least 2.")
    p = p if p.dtype.kind in "fc" else p.astype(float)
    size = p.shape[0] - 1
    return n.eye(size, k=-1, dtype=p.dtype).at[0].set(-p[1:] / p[0])


def convolution_matrix(a: Any, size: int, mode: str = "full") -> Any:
    """The matrix A with A @ v = convolve(a, v, mode) for v of this size."""
    row = _row(a, "convolution_matrix")
    if mode not in ("full", "same", "valid"):
        raise ValueError(f"mode must be 'full', 'same' or 'valid', got {mode!r}")
    m = row.shape[0]
    i = np.arange(m + size - 1)[:, None] - np.arange(size)[None]
    whole = n.where((i >= 0) & (i < m), row[np.clip(i, 0, m - 1)], n.zeros((), row.dtype))
    rows = {"full": m + size - 1, "same": max(m, size), "valid": max(m, size) - min(m, size) + 1}
    start = (m + size - 1 - rows[mode]) // 2
    return whole[start:start + rows[mode]]


def fiedler(a: Any) -> Any:
    """|a[i] - a[j]|."""
    x = as_array(a, "fiedler")
    return n.abs(x[..., :, None] - x[..., None, :])


def leslie(f: Any, s: Any) -> Any:
    """Fecundities in the first row, survivals below the diagonal."""
    born, left = as_array(f, "leslie"), as_array(s, "leslie")
    if left.shape[-1] != born.shape[-1] - 1:
        raise ValueError(f"The length of s must be one less than the length of f, got {born.shape} "
                         f"and {left.shape}")
    kind = n.result_type(born, left)
    out = n.zeros((*born.shape, born.shape[-1]), kind)
    i = np.arange(left.shape[-1])
    return out.at[..., 0, :].set(born.astype(kind)).at[..., i + 1, i].set(left.astype(kind))


def dft(size: int, scale: str | None = None, *, dtype: Any = None) -> Any:
    """The matrix of the discrete Fourier transform; scale "sqrtn" or "n"."""
    if scale not in (None, "sqrtn", "n"):
        raise ValueError(f"scale must be None, 'sqrtn', or 'n'; {scale!r} is not valid.")
    i = np.arange(size)
    found = np.exp(-2j * np.pi * (i[:, None] * i[None] % max(size, 1)) / max(size, 1))
    found = found / {None: 1, "sqrtn": math.sqrt(size), "n": size}[scale]
    return n.asarray(found) if dtype is None else n.asarray(found).astype(dtype)


def hadamard(size: int, dtype: Any = int) -> Any:
    """Sylvester's matrix of +-1 with orthogonal rows; the size is a power of 2."""
    if size < 1 or size & (size - 1):
        raise ValueError(f"n must be a positive power of 2; got {size}.")
    h = np.ones((1, 1), int)
    while h.shape[0] < size:
        h = np.block([[h, h], [h, -h]])
    return n.asarray(h).astype(dtype)


def helmert(size: int, full: bool = False) -> Any:
    """Orthonormal contrasts; `full` adds the row of ones in front."""
    rows = np.tril(np.ones((size, size)), -1) - np.diag(np.arange(size))
    rows[0] = 1.0
    rows /= np.sqrt((rows ** 2).sum(1, keepdims=True))
    return n.asarray(rows if full else rows[1:])


def pascal(size: int, kind: str | None = None) -> Any:
    """Binomial coefficients; kind "symmetric", "lower" or "upper"."""
    if kind not in (None, "symmetric", "lower", "upper"):
        raise ValueError(f"Expected kind to be on of: {None, 'symmetric', 'lower', 'upper'}, got "
                         f"{kind!r}")
    low = n.asarray([[float(math.comb(i, j)) for j in range(size)] for i in range(size)])
    low = low.reshape(size, size)
    return low if kind == "lower" else low.T if kind == "upper" else low @ low.T


def invhilbert(n_: int, exact: bool = False) -> Any:
    """The inverse of Hilbert's matrix: whole numbers, by binomial coefficients."""
    if exact:
        raise NotImplementedError("invhilbert with exact=True: its numbers outgrow every dtype")
    size, c = n_, math.comb
    return n.asarray(np.array([[
        (-1) ** (i + j) * (i + j + 1) * c(size + i, size - j - 1) * c(size + j, size - i - 1)
        * c(i + j, i) ** 2 for j in range(size)] for i in range(size)], float))


def invpascal(size: int, kind: str | None = None, exact: bool = False) -> Any:
    """The inverse of Pascal's matrix; kind "symmetric", "lower" or "upper"."""
    if kind not in (None, "symmetric", "lower", "upper"):
        raise ValueError(f"Expected kind to be on of: {None, 'symmetric', 'lower', 'upper'}, got "
                         f"{kind!r}")
    if exact:
        raise NotImplementedError("invpascal with exact=True: its numbers outgrow every dtype")
    low = np.array([[(-1.0) ** (i + j) * math.comb(i, j) for j in range(size)]
                    for i in range(size)]).reshape(size, size)
    return n.asarray(low if kind == "lower" else low.T if kind == "upper" else low.T @ low)


def fiedler_companion(a: Any) -> Any:
    """The five-diagonal matrix whose eigenvalues are the roots of a polynomial (Fiedler 2003)."""
    p = as_array(a, "fiedler_companion")
    if p.ndim != 1:
        raise ValueError(f"Input 'a' must be 1-D array, got shape {p.shape}")
    if p.size <= 2:
        return -(p[1:] / p[0]).reshape(-1, 1) if p.size == 2 else n.zeros((0, 0), p.dtype)
    q, size = p / p[0], p.size - 1
    out = n.zeros((size, size), q.dtype)
    out = out.at[0, 0].set(-q[1]).at[1, 0].set(1)
    for r in range(size):                        # pairs of coefficients in the even rows
        if r % 2:
            out = out.at[r, r - 2].set(1) if r > 1 else out
            continue
        for column, value in ((r - 1, -q[r + 1]), (r + 1, -q[r + 2] if r + 1 < size else 0),
                              (r + 2, 1)):
            if 0 <= column < size:
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
    system = n.kron(a, n.eye(b.shape[0], dtype=b.dtype)) + n.kron(
        n.eye(a.shape[0], dtype=a.dtype), b.T)
    return _l.solve(system, c.ravel()).reshape(c.shape)


__all__ = ["circulant", "companion", "convolution_matrix", "dft", "expm_frechet", "fiedler",
           "fiedler_companion", "hadamard", "hankel", "helmert", "invhilbert", "invpascal",
           "leslie", "pascal", "solve_sylvester"]
