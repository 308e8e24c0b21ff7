"""`jax.scipy.linalg`: what is made of Schur's, Hessenberg's and the pivoted QR decomposition."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint.jax import numpy as _jnp
from adjoint.jax._array import as_array, joined, make
from adjoint.jax._rules import custom_jvp
from adjoint.jax.lax import _decompose as _d
from adjoint.jax.numpy import linalg as _l
from adjoint.jax.scipy._matrices import solve_sylvester

_n: Any = _jnp


def _wider(x: Any) -> Any:
    """The complex dtype of the width of an array's."""
    return np.result_type(x.dtype, np.complex64)


def schur(a: Any, output: str = "real") -> Any:
    """[T, Z] with a = Z T Z^H, T upper triangular, for output "real" but for blocks of two."""
    if output not in ("real", "complex"):
        raise ValueError("Expected 'output' to be either 'real' or 'complex', got "
                         f"output={output!r}.")
    x = as_array(a, "schur")
    if output == "complex" and x.dtype.kind == "f":
        x = x.astype(_wider(x))
    return _d.schur(x)


def _complex_form(t: np.ndarray, z: np.ndarray) -> tuple[Any, Any]:
    import scipy.linalg
    found = scipy.linalg.rsf2csf(t, z)
    kind = np.result_type(t.dtype, np.complex64)
    return found[0].astype(kind), found[1].astype(kind)


_rsf2csf = _d.host("rsf2csf", _complex_form, (2, 2))


def rsf2csf(T: Any, Z: Any, check_finite: bool = True) -> tuple[Any, Any]:
    """The complex Schur form from the real one."""
    (t, z), _ = joined("rsf2csf", (T, Z), floating=True)
    for name, m in (("T", t), ("Z", z)):
        if m.ndim < 2 or m.shape[-1] != m.shape[-2]:
            raise ValueError(f"Input '{name}' must be square.")
    if t.shape[-1] != z.shape[-1]:
        raise ValueError(f"Input array shapes must match: Z: {tuple(z.shape)} vs. T: "
                         f"{tuple(t.shape)}")
    found = _rsf2csf(t, z)
    return make(found[0]), make(found[1])


def hessenberg(a: Any, *, calc_q: bool = False, overwrite_a: bool = False,
               check_finite: bool = True) -> Any:
    """H, or (H, Q) with a = Q H Q^H, H zero below the diagonal next to the main one."""
    packed, taus = _d.hessenberg(*_floats(a))
    h = _n.triu(packed, -1)
    if not calc_q:
        return h
    n = packed.shape[-1]
    eye = _n.broadcast_to(_n.eye(n, dtype=h.dtype), h.shape)
    if n < 2:
        return h, eye
    inner = _d.ormqr(packed[..., 1:, :-1], taus, eye[..., 1:, 1:])
    return h, eye.at[..., 1:, 1:].set(inner)


def _floats(*xs: Any) -> list[Any]:
    ts, _ = joined("linalg", xs, floating=True)
    return [make(t) for t in ts]


def funm(A: Any, func: Callable[[Any], Any], disp: bool = True) -> Any:
    """The function of a matrix, by Parlett's recurrence along the diagonals of its Schur form."""
    x = as_array(A, "funm")
    if x.ndim != 2 or x.shape[0] != x.shape[1]:
        raise ValueError("expected square array_like input")
    n = x.shape[0]
    t, z = rsf2csf(*schur(x)) if x.dtype.kind == "f" else schur(_floats(x)[0], "complex")
    f = _n.diag(func(_n.diag(t))).astype(t.dtype)
    gap = np.inf
    for p in range(1, n):
        for i in range(n - p):
            j, inside = i + p, slice(i + 1, i + p)
            s = t[i, j] * (f[j, j] - f[i, i])
            s = s + t[i, inside] @ f[inside, j] - f[i, inside] @ t[inside, j]
            den = t[j, j] - t[i, i]
            f = f.at[i, j].set(_n.where(den == 0, s, s / _n.where(den == 0, 1, den)))
            gap = _n.minimum(gap, _n.abs(den))
    out = z @ f @ _n.conj(z.T)
    if disp:
        return out
    eps = float(_n.finfo(out.dtype).eps)
    norm = _l.norm(_n.triu(t, 1), 1)
    tol = _n.where(gap == 0, eps, eps * norm / _n.where(gap == 0, 1, gap))
    err = _n.minimum(1, _n.maximum(tol, eps) * norm)
    return out, _n.where((_n.prod(_n.diag(t)) == 0) | ~_n.isfinite(err), _n.inf, 0.0 * err)


# ------------------------------------------------------------------ square roots
def _root(x: np.ndarray) -> tuple[Any]:
    import scipy.linalg
    t, z = scipy.linalg.schur(x, output="complex")
    n = len(t)
    r = np.diag(np.sqrt(np.diag(t)))
    for j in range(n):
        for i in range(j - 1, -1, -1):
            s = t[i, j] - r[i, i + 1:j] @ r[i + 1:j, j]
            den = r[i, i] + r[j, j]
            r[i, j] = s / den if den else s
    return ((z @ r @ z.conj().T).astype(np.result_type(x.dtype, np.complex64)),)


_roots = _d.host("sqrtm", _root)


@custom_jvp
def _sqrtm(a: Any) -> Any:
    found = _roots(a.tensor)
    return make(found[0] if isinstance(found, tuple) else found)


def _sqrtm_rule(primals: Any, tangents: Any) -> Any:
    out = _sqrtm(primals[0])
    t = tangents[0].astype(out.dtype)
    if out.ndim == 2:
        return out, solve_sylvester(out, out, t)
    from adjoint.jax import vmap
    solved = vmap(lambda x, c: solve_sylvester(x, x, c))(
        out.reshape(-1, *out.shape[-2:]), t.reshape(-1, *out.shape[-2:]))
    return out, solved.reshape(out.shape)


_sqrtm.defjvp(_sqrtm_rule)


def sqrtm(A: Any, blocksize: int = 1) -> Any:
    """The principal square root of a matrix, complex, by its Schur form."""
    if blocksize > 1:
        raise NotImplementedError("Blocked version is not implemented yet.")
    x, = _floats(A)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"The input to schur must be a square matrix. Got shape {x.shape}.")
    return _sqrtm(x.astype(_wider(x)))


# ------------------------------------------------------------------ tridiagonal matrices
def eigh_tridiagonal(d: Any, e: Any, *, eigvals_only: bool = False, select: str = "a",
                     select_range: Any = None, tol: Any = None, key: Any = None) -> Any:
    """The eigenvalues of a symmetric tridiagonal matrix, and its eigenvectors unless
    `eigvals_only`; with select "i" those of the numbers `select_range[0]` to `select_range[1]`."""
    mid, off = as_array(d, "eigh_tridiagonal"), as_array(e, "eigh_tridiagonal")
    if mid.dtype != off.dtype:
        raise TypeError("diagonal and off-diagonal values must have same dtype, got "
                        f"{mid.dtype.name} and {off.dtype.name}")
    if mid.dtype.name not in ("float32", "float64"):
        raise TypeError("Only float32 and float64 inputs are supported as inputs to jax.scipy."
                        f"linalg.eigh_tridiagonal, got {mid.dtype.name} and {off.dtype.name}")
    if mid.ndim != 1 or off.shape != (max(mid.shape[0] - 1, 0),):
        raise TypeError("add got incompatible shapes for broadcasting: "
                        f"{mid.shape}, {tuple(k + 1 for k in off.shape)}.")
    if select not in ("a", "i", "v"):
        raise ValueError("'select must have a value in {'a', 'i', 'v'}.")
    if select == "v":
        raise NotImplementedError("eigh_tridiagonal(..., select='v') is not implemented")
    if select == "i" and select_range is None:
        raise ValueError("for select='i', select_range must be specified.")
    w, v = _l.eigh(_n.diag(mid) + _n.diag(off, 1) + _n.diag(off, -1), "L", False)
    if select == "i":
        low, high = int(select_range[0]), int(select_range[1])
        if low > high:
            raise ValueError("for select='i', the lower end of select_range is above the upper")
        w, v = w[low:high + 1], v[:, low:high + 1]
    return w if eigvals_only else (w, v)


# ------------------------------------------------------------------ QR
def qr(a: Any, overwrite_a: bool = False, lwork: Any = None, mode: str = "full",
       pivoting: bool = False, check_finite: bool = True) -> Any:
    """`jax.scipy.linalg.qr`."""
    if mode not in ("full", "r", "economic"):
        raise ValueError(f"Unsupported QR decomposition mode '{mode}'")
    if not pivoting:
        if mode == "r":
            return (_l.qr(a, "r"),)
        return tuple(_l.qr(a, "complete" if mode == "full" else "reduced"))
    packed, order, taus = _d.geqp3(*_floats(a))
    q, r = _d.expanded(packed, taus, mode != "economic")
    return (r, order) if mode == "r" else (q, r, order)


def qr_multiply(a: Any, c: Any, mode: str = "right", pivoting: bool = False,
                conjugate: bool = False, overwrite_a: bool = False, overwrite_c: bool = False
                ) -> tuple[Any, ...]:
    """(Q c, R), or for mode "right" (c Q, R); with pivots the order of the columns too."""
    if mode not in ("right", "left"):
        raise ValueError(f"mode must be 'right' or 'left', got {mode!r}")
    x, y = _floats(a, c)
    (m, n), vector = x.shape[-2:], y.ndim == 1
    k = min(m, n)
    if vector:
        y = y[:, None] if mode == "left" else y[None, :]
    if mode == "left" and y.shape[-2] != k:
        raise ValueError("Array shapes are not compatible for Q @ c operation: a has shape "
                         f"{x.shape} so Q has {k} columns, but c has {y.shape[-2]} rows (expected "
                         f"{k}).")
    if mode == "right" and y.shape[-1] != m:
        raise ValueError("Array shapes are not compatible for c @ Q operation: a has shape "
                         f"{x.shape} so Q has {m} rows, but c has {y.shape[-1]} columns (expected "
                         f"{m}).")
    if pivoting:
        packed, order, taus = _d.geqp3(x)
        q, r = _d.expanded(packed, taus, False)
    else:
        q, r = _l.qr(x)
    q = _n.conj(q) if conjugate else q
    out = q @ y if mode == "left" else y @ q
    out = out.ravel() if vector else out
    return (out, r, order) if pivoting else (out, r)


# ------------------------------------------------------------------ polar form
def polar(a: Any, side: str = "right", *, method: str = "qdwh", eps: Any = None,
          max_iterations: Any = None) -> Any:
    """(unitary, positive) factors, by singular values."""
    x, = _floats(a)
    if x.ndim != 2:
        raise ValueError("The input `a` must be a 2-D array.")
    if side not in ("right", "left"):
        raise ValueError("The argument `side` must be either 'right' or 'left'.")
    if method not in ("qdwh", "svd"):
        raise ValueError(f"Unknown polar decomposition method {method}.")
    m, n = x.shape
    if method == "qdwh" and not (m >= n if side == "right" else m < n or m == n):
        raise NotImplementedError(
            "method='qdwh' only supports mxn matrices where m < n where side='right' and m >= n "
            f"side='left', got {x.shape} with {side=}")
    u, s, vh = _l.svd(x, False)
    unitary = u @ vh
    if side == "right":
        v = _n.conj(_n.matrix_transpose(vh))
        return unitary, (v * s[..., None, :]) @ vh
    return unitary, (u * s[..., None, :]) @ _n.conj(_n.matrix_transpose(u))


__all__ = ["eigh_tridiagonal", "funm", "hessenberg", "polar", "qr", "qr_multiply", "rsf2csf",
           "schur", "sqrtm"]
