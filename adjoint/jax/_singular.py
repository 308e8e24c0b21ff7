"""Decompositions and solutions with NaN for the matrices that have none: JAX raises for none."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint.core.tensor import Tensor
from adjoint.jax._host import computed
from adjoint.jax._table import T
from adjoint.ops.api_decompose import LINALG as _PLAIN
from adjoint.ops.singular import LinAlgError, first_failure

F = Callable[..., Any]


_INVERTS = ("solve", "inv", "matrix_power")


def _none(name: str, matrices: Any) -> Any:
    """Which of the matrices, on the last two axes, have no result."""
    found = np.array(~np.isfinite(matrices).all((-2, -1)))
    if name == "cholesky":
        whole = (matrices + np.conj(np.swapaxes(matrices, -1, -2))) / 2
        eye = np.eye(matrices.shape[-1], dtype=matrices.dtype)
        return found | (first_failure("minor", np.where(found[..., None, None], eye, whole)) != 0)
    if name == "solve_triangular":
        return found | (np.diagonal(matrices, axis1=-2, axis2=-1) == 0).any(-1)
    if name in _INVERTS:
        for at in np.ndindex(*found.shape):
            if not found[at]:
                try:
                    np.linalg.inv(matrices[at])
                except np.linalg.LinAlgError:
                    found[at] = True
    return found


def _guarded(name: str, run: F) -> F:
    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return run(x, *args, **kwargs)
        except LinAlgError:
            if x.ndim < 2 or name in _INVERTS and x.shape[-1] != x.shape[-2]:
                raise
        bad, = computed(lambda a: [_none(name, a)], x)
        eye = T["eye"](*x.shape[-2:], dtype=x.array.dtype)
        out = run(T["where"](bad[..., None, None], eye, x), *args, **kwargs)

        def filled(y: Any) -> Any:
            none = complex(np.nan, np.nan) if y.is_complex() else np.nan
            n = 2 if "solve" in name else y.ndim - bad.ndim
            mask = bad.reshape(tuple(bad.shape) + (1,) * n)
            return T["where"](mask, y.new_full((), none), y)
        return filled(out) if isinstance(out, Tensor) else tuple(map(filled, out))
    return call


LINALG: dict[str, Any] = {**_PLAIN, **{name: _guarded(name, _PLAIN[name]) for name in (
    "cholesky eig eigvals eigh eigvalsh svd svdvals pinv inv solve solve_triangular matrix_power "
    "cond").split()}}
__all__ = ["LINALG"]
