"""`jax.numpy.linalg`."""
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as _np

from adjoint.base.errors import missing as _missing
from adjoint.jax._array import as_array as _as_array
from adjoint.jax._array import joined as _joined
from adjoint.jax._array import make as _make
from adjoint.jax._host import computed as _computed
from adjoint.jax._singular import LINALG as _LINALG
from adjoint.jax._table import T as _T
from adjoint.jax._table import floating as _floating
from adjoint.jax._table import named as _named
from adjoint.jax._words import taking as _taking
from adjoint.jax.numpy._products import NAMES as _P
from adjoint.jax.numpy._reduce import NAMES as _R
from adjoint.jax.numpy._reduce import axes_of as _axes_of
from adjoint.jax.numpy._shape import NAMES as _S


class EighResult(NamedTuple):
    """Eigenvalues and eigenvectors of a Hermitian matrix."""

    eigenvalues: Any
    eigenvectors: Any


class EigResult(NamedTuple):
    """Eigenvalues and eigenvectors."""

    eigenvalues: Any
    eigenvectors: Any


class QRResult(NamedTuple):
    """An orthogonal and a triangular factor."""

    Q: Any
    R: Any


class SlogdetResult(NamedTuple):
    """Sign and logarithm of a determinant."""

    sign: Any
    logabsdet: Any


class SVDResult(NamedTuple):
    """Singular vectors and values."""

    U: Any
    S: Any
    Vh: Any


def _square(x: Any, name: str) -> Any:
    t = _floating(x, name)
    if t.ndim < 2 or t.shape[-1] != t.shape[-2]:
        raise ValueError(f"Argument to {name}() must have shape [..., n, n], got "
                         f"{tuple(t.shape)}")
    return t


def _ranked(x: Any, name: str) -> Any:
    t = _floating(x, name)
    if t.ndim < 2:
        raise TypeError(f"Input 0 to {name} must have rank at least 2, but got "
                        f"shape={tuple(t.shape)}")
    return t


def _sym(t: Any) -> Any:
    """The Hermitian part: derivatives are taken of a symmetric function."""
    h = t.transpose(-1, -2)
    return (t + (h.conj() if t.is_complex() else h)) / 2


def det(a: Any) -> Any:
    """`jax.numpy.linalg.det`."""
    return _make(_LINALG["det"](_square(a, "det")))


def slogdet(a: Any, *, method: Any = None) -> Any:
    """`jax.numpy.linalg.slogdet`."""
    return SlogdetResult(*map(_make, _LINALG["slogdet"](_square(a, "slogdet"))))


def inv(a: Any) -> Any:
    """`jax.numpy.linalg.inv`."""
    return _make(_LINALG["inv"](_square(a, "inv")))


def cholesky(a: Any, *, upper: bool = False, symmetrize_input: bool = True) -> Any:
    """The Cholesky factor; NaN where the matrix is not positive definite."""
    t = _square(a, "cholesky")
    t = _sym(t) if symmetrize_input else t
    low = _LINALG["cholesky"](t).tril()
    high = low.transpose(-1, -2)
    return _make((high.conj() if low.is_complex() else high) if upper else low)


def _whole_qr(t: Any) -> tuple[Any, Any]:
    """(Q, R) of more rows than columns, Q square, with the derivative of LAPACK's reflectors.

    With W = Q1 - [I; 0] and B = (W's last rows)·(its first rows)⁻¹ the columns beyond those of Q1
    are [0; I] + W·Bᴴ (Ballard et al., "Reconstructing Householder vectors from tall-skinny QR",
    2015); where a reflector is none, which has no derivative, they are those of LAPACK.
    """
    q, r = _LINALG["qr"](t, "reduced")
    (m, n), cat = t.shape[-2:], _T["cat"]
    eye = _T["eye"](m, dtype=t.dtype)
    w = q - eye[:, :n]
    b = _LINALG["solve"](w[..., :n, :], w[..., n:, :], left=False)
    rest = eye[:, n:] + w @ b.mH
    plain, = _computed(lambda x: [_np.linalg.qr(x, "complete")[0][..., n:]], t)
    rest = _T["where"](_T["isfinite"](rest).all(-1).all(-1)[..., None, None], rest, plain)
    return cat([q, rest], -1), cat([r, r.new_zeros((*r.shape[:-2], m - n, n))], -2)


def qr(a: Any, mode: str = "reduced") -> Any:
    """`jax.numpy.linalg.qr`; mode "raw" gives (reflectors, taus), the first transposed."""
    mode = "reduced" if mode == "full" else mode             # (deprecated in NumPy, served by JAX)
    if mode not in ("reduced", "complete", "r", "raw"):
        raise ValueError(f"Unsupported QR decomposition mode '{mode}'")
    _ranked(a, "qr")
    if mode == "raw":
        packed, taus = _T["geqrf"](_floating(a, "qr"))
        return QRResult(_make(packed.transpose(-1, -2)), _make(taus))
    t = _floating(a, "qr")
    whole = mode == "complete" and t.shape[-2] > t.shape[-1]
    q, r = _whole_qr(t) if whole else _LINALG["qr"](t, mode)
    return _make(r) if mode == "r" else QRResult(_make(q), _make(r))


def eigh(a: Any, UPLO: Any = None, symmetrize_input: bool = True) -> Any:
    """`jax.numpy.linalg.eigh`."""
    t = _square(a, "eigh")
    if UPLO not in (None, "L", "U"):
        raise ValueError(f"UPLO must be one of None, 'L', or 'U', got {UPLO}")
    t = _sym(t) if symmetrize_input else t
    return EighResult(*map(_make, _LINALG["eigh"](t, UPLO or "L")))


def eigvalsh(a: Any, UPLO: Any = "L", *, symmetrize_input: bool = True) -> Any:
    """`jax.numpy.linalg.eigvalsh`."""
    return eigh(a, UPLO, symmetrize_input).eigenvalues


def eig(a: Any) -> Any:
    """`jax.numpy.linalg.eig`."""
    return EigResult(*map(_make, _LINALG["eig"](_square(_make(_ranked(a, "eig")), "eig"))))


def eigvals(a: Any) -> Any:
    """`jax.numpy.linalg.eigvals`."""
    return _make(_LINALG["eigvals"](_square(a, "eigvals")))


def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False,
        subset_by_index: Any = None) -> Any:
    """`jax.numpy.linalg.svd`."""
    t = _ranked(a, "svd")
    if not compute_uv:
        return _make(_LINALG["svdvals"](t))
    return SVDResult(*map(_make, _LINALG["svd"](t, full_matrices)))


def svdvals(x: Any, /) -> Any:
    """`jax.numpy.linalg.svdvals`."""
    return svd(x, compute_uv=False)


def solve(a: Any, b: Any) -> Any:
    """`jax.numpy.linalg.solve`."""
    (x, y), _ = _joined("solve", (a, b), floating=True)
    if x.ndim < 2:
        raise ValueError(f"left hand array must be at least two dimensional; got a.shape="
                         f"{tuple(x.shape)}")
    if y.ndim == 1:
        return _make(_LINALG["solve"](x, y[..., None])[..., 0])
    if x.shape[-1] != y.shape[-2]:
        raise ValueError("last dimension of a must match the second last of b, got shapes "
                         f"{tuple(x.shape)} and {tuple(y.shape)}")
    return _make(_LINALG["solve"](x, y))


def pinv(a: Any, rtol: Any = None, hermitian: bool = False, *, rcond: Any = None) -> Any:
    """`jax.numpy.linalg.pinv`."""
    t = _floating(a, "pinv")
    cut = rcond if rtol is None else rtol
    if cut is None:
        cut = 10.0 * max(t.shape[-2:]) * float(_np.finfo(t.array.dtype).eps)
    return _make(_LINALG["pinv"](t, rtol=float(cut), hermitian=hermitian))


def matrix_rank(M: Any, rtol: Any = None, *, hermitian: bool = False, tol: Any = None) -> Any:
    """`jax.numpy.linalg.matrix_rank`."""
    t = _floating(M, "matrix_rank")
    if t.ndim < 2:
        return _R["any"](_make(t) != 0).astype("int32")
    s = abs(eigvalsh(_make(t))) if hermitian else svdvals(_make(t))
    cut = rtol if rtol is not None else max(t.shape[-2:]) * float(_np.finfo(t.array.dtype).eps)
    return _R["sum"](s > (s.max(-1, keepdims=True) * cut if tol is None else tol), -1)


def lstsq(a: Any, b: Any, rcond: Any = None, *, numpy_resid: bool = False) -> Any:
    """`jax.numpy.linalg.lstsq`."""
    (x, y), _ = _joined("lstsq", (a, b), floating=True)
    if x.ndim != 2:
        raise TypeError(f"{x.ndim}-dimensional array given. Array must be two-dimensional")
    if y.ndim not in (1, 2):
        raise TypeError(f"{y.ndim}-dimensional array given. Array must be one or two-dimensional")
    (m, n), eps = x.shape, float(_np.finfo(x.array.dtype).eps)
    if m != y.shape[0]:
        raise ValueError("Leading dimensions of input arrays must match")
    cut = max(m, n) * eps if rcond is None else eps if rcond < 0 else float(rcond)
    sizes = _LINALG["svdvals"](x)
    if not x.array.size:
        return (_make(x.new_zeros((n, *y.shape[1:]))), _make(sizes.new_zeros((0,))),
                _as_array(_np.int32(0)), _make(sizes))
    rank = (sizes > cut * sizes.max()).sum()
    found = _LINALG["pinv"](x, rtol=cut) @ y
    left = _squares(y - x @ found).sum(0).reshape(-1)
    if numpy_resid and (m <= n or int(rank) < n):
        left = left[:0]
    return _make(found), _make(left), _make(rank.to(_np.dtype(_np.int32))), _make(sizes)


def matrix_power(a: Any, n: int) -> Any:
    """`jax.numpy.linalg.matrix_power`."""
    if not isinstance(n, (int, _np.integer)):
        raise TypeError(f"exponent must be an integer, got {n}")
    if _as_array(a).ndim < 2:
        raise TypeError(f"{_as_array(a).ndim}-dimensional array given. Array must be at least "
                        "two-dimensional")
    return _make(_LINALG["matrix_power"](_square(a, "matrix_power"), int(n)))


def cond(x: Any, p: Any = None) -> Any:
    """`jax.numpy.linalg.cond`."""
    return _make(_LINALG["cond"](_floating(x, "cond"), p))


def multi_dot(arrays: Any, *, precision: Any = None) -> Any:
    """`jax.numpy.linalg.multi_dot`."""
    ts, _ = _joined("multi_dot", list(arrays))
    if len(ts) == 1:
        return _make(ts[0])
    return _make(_LINALG["multi_dot"](ts))


def tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    """`jax.numpy.linalg.tensorsolve`."""
    (x, y), _ = _joined("tensorsolve", (a, b), floating=True)
    return _make(_LINALG["tensorsolve"](x, y, axes))


def tensorinv(a: Any, ind: int = 2) -> Any:
    """`jax.numpy.linalg.tensorinv`."""
    if ind <= 0:
        raise ValueError(f"ind must be a positive integer; got ind={ind}")
    return _make(_LINALG["tensorinv"](_floating(a, "tensorinv"), ind))


def _squares(t: Any) -> Any:
    return (t * t.conj()).real if t.is_complex() else t * t


def _vector(t: Any, ord: Any, dims: Any, keep: bool) -> Any:
    if ord in (None, 2):               # as it is written: at 0 the gradient is not a number
        return _T["sqrt"](_squares(t).sum(dims, keepdim=keep))
    size = abs(t)
    if isinstance(ord, str):
        raise ValueError(f"Invalid order '{ord}' for vector norm.")
    if ord == _np.inf:
        return _T["amax"](size, dims, keepdim=keep)
    if ord == -_np.inf:
        return _T["amin"](size, dims, keepdim=keep)
    if ord == 0:
        return (t != 0).to(size.array.dtype).sum(dims, keepdim=keep)
    if ord == 1:
        return size.sum(dims, keepdim=keep)
    return (size ** ord).sum(dims, keepdim=keep) ** (1.0 / ord)


def _matrix(t: Any, ord: Any, dims: Any, keep: bool) -> Any:
    if ord in (None, "f", "fro"):
        return _T["sqrt"](_squares(t).sum(dims, keepdim=keep))
    row, col = dims
    if ord in (1, -1, _np.inf, -_np.inf):
        inner, outer = (row, col) if abs(ord) == 1 else (col, row)
        total = abs(t).sum(inner, keepdim=True)
        y = _T["amax" if ord > 0 else "amin"](total, outer, keepdim=True)
        return y if keep else y.squeeze(dims)
    if ord not in (2, -2, "nuc"):
        raise ValueError(f"Invalid order '{ord}' for matrix norm.")
    s = _LINALG["svdvals"](_T["movedim"](t, dims, (-2, -1)))
    y = s.sum(-1) if ord == "nuc" else _T["amax" if ord > 0 else "amin"](s, -1)
    for d in sorted(dims) if keep else ():
        y = y.unsqueeze(d)
    return y


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """`jax.numpy.linalg.norm`."""
    t = _floating(x, "norm")
    if axis is None and ord is None:
        y = _vector(t.reshape(-1), None, 0, False)
        return _make(y.reshape([1] * t.ndim) if keepdims else y)
    dims = _axes_of(t, axis)
    if len(dims) not in (1, 2):
        raise ValueError(f"Improper number of axes for norm: axis={dims}. Pass one axis to compute "
                         "a vector-norm, or two axes to compute a matrix-norm.")
    return _make((_vector if len(dims) == 1 else _matrix)(t, ord, dims if len(
        dims) == 2 else dims[0], keepdims))


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """`jax.numpy.linalg.vector_norm`."""
    if ord == 1:
        a = _as_array(x)
        return _R["sum"](a if a.dtype.kind == "b" else abs(a), axis, keepdims=keepdims)
    t = _floating(x, "vector_norm")
    return _make(_vector(t, ord, _axes_of(t, axis), keepdims))


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """`jax.numpy.linalg.matrix_norm`."""
    t = _floating(x, "matrix_norm")
    if t.ndim < 2:
        raise ValueError(f"axis -2 is out of bounds for array of dimension {t.ndim}")
    return _make(_matrix(t, ord, (t.ndim - 2, t.ndim - 1), keepdims))


def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """`jax.numpy.linalg.diagonal`."""
    return _S["diagonal"](x, offset, -2, -1)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """`jax.numpy.linalg.trace`."""
    return _S["trace"](x, offset, -2, -1, dtype)


def outer(x1: Any, x2: Any, /) -> Any:
    """`jax.numpy.linalg.outer`: of vectors alone."""
    a, b = _as_array(x1, "outer"), _as_array(x2, "outer")
    if (a.ndim, b.ndim) != (1, 1):
        raise ValueError("Input arrays must be one-dimensional, but they are "
                         f"x1.ndim={a.ndim} x2.ndim={b.ndim}")
    return _P["outer"](a, b)


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """`jax.numpy.linalg.cross`: of vectors with three entries."""
    a, b = _as_array(x1, "cross"), _as_array(x2, "cross")
    if a.shape[axis] != 3 or b.shape[axis] != 3:
        raise ValueError("Both input arrays must be (arrays of) 3-dimensional vectors, but they "
                         f"have x1.shape[axis]={a.shape[axis]} and "
                         f"x2.shape[axis]={b.shape[axis]}")
    return _P["cross"](a, b, axis=axis)


vecdot = _P["vecdot"]
matmul = _named(_taking("x1, x2, /, *, precision=None, preferred_element_type=None", _P["matmul"]),
                "matmul", "adjoint.jax.numpy.linalg")
tensordot = _named(_taking("x1, x2, /, *, axes=2, precision=None, preferred_element_type=None, "
                           "out_sharding=None", _P["tensordot"]), "tensordot",
                   "adjoint.jax.numpy.linalg")
matrix_transpose = _S["matrix_transpose"]
__all__ = [n for n in dir() if not n.startswith("_") and n not in (
    "Any", "NamedTuple", "annotations")]
__getattr__ = _missing("adjoint.jax.numpy.linalg")
