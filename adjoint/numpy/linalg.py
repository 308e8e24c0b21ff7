"""`numpy.linalg` on tensors."""
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as _np

from adjoint.numpy._table import TABLE as _TABLE
from adjoint.numpy._table import as_tensor as _t
from adjoint.numpy._table import axes_of as _axes_of
from adjoint.numpy._table import like as _like
from adjoint.numpy._table import of_one_dtype as _of_one_dtype
from adjoint.ops.api_decompose import LINALG as _LINALG

_ours: Any = SimpleNamespace(**_LINALG)
for _name in ("inv", "det", "slogdet", "eigvals", "eig", "svdvals", "matrix_power"):
    _like(f"linalg.{_name}")(lambda a, *args, _n=_name: getattr(_ours, _n)(_t(a), *args))
_like("linalg.eigh")(lambda a, UPLO="L": _ours.eigh(_t(a), UPLO))
_like("linalg.eigvalsh")(lambda a, UPLO="L": _ours.eigvalsh(_t(a), UPLO))
_like("linalg.multi_dot")(lambda arrays, out=None: _ours.multi_dot(_of_one_dtype(*arrays)))
_like("linalg.tensorinv")(lambda a, ind=2: _ours.tensorinv(_t(a), ind))
_like("linalg.cond")(lambda x, p=None: _ours.cond(_t(x), p))


@_like("linalg.cholesky")
def cholesky(a: Any, /, *, upper: bool = False) -> Any:
    low = _ours.cholesky(_t(a))
    return low.mH if upper else low


@_like("linalg.qr")
def qr(a: Any, mode: str = "reduced") -> Any:
    q, r = _ours.qr(_t(a), mode)
    return r if mode == "r" else (q, r)


@_like("linalg.svd")
def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False
        ) -> Any:
    return _ours.svd(_t(a), full_matrices) if compute_uv else _ours.svdvals(_t(a))


@_like("linalg.pinv")
def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    x = _t(a)
    cut = rtol if rcond is None else rcond
    return _ours.pinv(x, rtol=1e-15 if cut is None else cut, hermitian=hermitian)


@_like("linalg.solve")
def solve(a: Any, b: Any) -> Any:
    x, y = _of_one_dtype(a, b)
    return _ours.solve(x, y[..., None])[..., 0] if y.ndim == 1 else _ours.solve(x, y)


@_like("linalg.lstsq")
def lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    x, y = _t(a), _t(b)
    answer = _ours.pinv(x) @ y
    off = y - x @ answer
    rank = int(_np.linalg.matrix_rank(x.detach().numpy()))
    tall = x.shape[0] > x.shape[1] and rank == x.shape[1]
    rest = (off * off).sum(0, keepdim=y.ndim == 1) if tall else _t(_np.zeros(0))
    return answer, rest, rank, _ours.svdvals(x)


@_like("linalg.tensorsolve")
def tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    return _ours.tensorsolve(_t(a), _t(b), axes)


@_like("linalg.norm")
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    x = _t(x)
    if axis is None and ord is None:
        flat = _ours.vector_norm(x.reshape(-1))
        return flat.reshape([1] * x.ndim) if keepdims else flat
    dims = _axes_of(x, axis)
    if len(dims) == 1:
        return _ours.vector_norm(x, 2 if ord is None else ord, dims[0], keepdim=keepdims)
    return _ours.matrix_norm(x, "fro" if ord is None else ord, dims, keepdim=keepdims)


@_like("linalg.vector_norm")
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    x = _t(x)
    return _ours.vector_norm(x, ord, _axes_of(x, axis), keepdim=keepdims)


@_like("linalg.matrix_norm")
def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    return _ours.matrix_norm(_t(x), ord, (-2, -1), keepdim=keepdims)


def __getattr__(name: str) -> Any:
    found = _TABLE.get(f"linalg.{name}")
    return found if found is not None else getattr(_np.linalg, name)


__all__ = ["cholesky", "lstsq", "matrix_norm", "norm", "pinv", "qr", "solve", "svd", "tensorsolve",
           "vector_norm"]
