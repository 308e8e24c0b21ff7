"""`autograd.scipy.linalg`: solvers and functions of matrices; other names are SciPy's own."""
from __future__ import annotations

from importlib import import_module as _import_module
from typing import Any

import numpy as _onp

from adjoint.core.tensor import Tensor as _Tensor
from adjoint.core.tensor import wrap as _wrap
from adjoint.hips import numpy as _np
from adjoint.hips.box import lower as _lower
from adjoint.hips.box import raised as _raised
from adjoint.hips.box import recorded as _recorded
from adjoint.hips.extend import defjvp as _defjvp
from adjoint.hips.extend import defvjp as _defvjp
from adjoint.hips.extend import primitive as _primitive
from adjoint.hips.extend import unruled as _unruled
from adjoint.ops.api_decompose import LINALG as _LINALG


def _tensor(x: Any) -> Any:
    x = _lower(x)
    return x if isinstance(x, _Tensor) else _wrap(_onp.asarray(x))


@_recorded
def solve_triangular(a: Any, b: Any, trans: Any = 0, lower: bool = False,
                     unit_diagonal: bool = False, **_: Any) -> Any:
    """x with op(a) x = b for a triangular matrix: op is the identity (trans 0 or "N"), the
    transpose (1, "T") or the conjugate transpose (2, "C"). b: [n] or [n, k]."""
    x, y = _tensor(a), _tensor(b)
    if trans not in (0, "N"):
        x, lower = (x.mT if trans in (1, "T") else x.mH), not lower
    rows = y[..., None] if y.ndim == 1 else y
    out = _LINALG["solve_triangular"](x, rows, upper=not lower, unitriangular=unit_diagonal)
    return _raised(out[..., 0] if y.ndim == 1 else out)


@_recorded
def expm(A: Any) -> Any:
    """The exponential of a matrix."""
    return _raised(_LINALG["matrix_exp"](_tensor(A)))


def norm(a: Any, ord: Any = None, axis: Any = None, keepdims: bool = False,
         check_finite: bool = True) -> Any:
    """A norm of a vector or matrix, as `numpy.linalg.norm`."""
    return _np.linalg.norm(a, ord, axis, keepdims)


def solve_banded(l_and_u: tuple[int, int], ab: Any, b: Any, **_: Any) -> Any:
    """x of a banded system, `ab[u + i - j, j]` being its entry i, j."""
    low, up = l_and_u
    n = _np.shape(ab)[1]
    i, j = _onp.indices((n, n))
    inside = (j - i <= up) & (i - j <= low)
    full = _np.where(inside, ab[_onp.clip(up + i - j, 0, low + up), j], 0.0)
    return _np.linalg.solve(full, b)


@_primitive
def sqrtm(A: Any) -> Any:
    """The principal square root of a matrix (`scipy.linalg.sqrtm`)."""
    import scipy.linalg
    return scipy.linalg.sqrtm(A)


@_primitive
def solve_sylvester(a: Any, b: Any, q: Any) -> Any:
    """x with a x + x b = q (`scipy.linalg.solve_sylvester`)."""
    import scipy.linalg
    return scipy.linalg.solve_sylvester(a, b, q)


_T = _np.transpose
_defvjp(sqrtm, lambda y, A: lambda g: solve_sylvester(_T(y), _T(y), g))
_defjvp(sqrtm, lambda g, y, A: solve_sylvester(y, y, g))
_defvjp(solve_sylvester,
        lambda x, a, b, q: lambda g: -_np.dot(solve_sylvester(_T(a), _T(b), g), _T(x)),
        lambda x, a, b, q: lambda g: -_np.dot(_T(x), solve_sylvester(_T(a), _T(b), g)),
        lambda x, a, b, q: lambda g: solve_sylvester(_T(a), _T(b), g))
_defjvp(solve_sylvester, lambda g, x, a, b, q: solve_sylvester(a, b, -_np.dot(g, x)),
        lambda g, x, a, b, q: solve_sylvester(a, b, -_np.dot(x, g)),
        lambda g, x, a, b, q: solve_sylvester(a, b, g))


__getattr__ = _unruled(lambda: _import_module("scipy.linalg"))


def __dir__() -> list[str]:
    import scipy.linalg
    return sorted({*dir(scipy.linalg), *globals()})


__all__ = ["expm", "norm", "solve_banded", "solve_sylvester", "solve_triangular", "sqrtm"]
