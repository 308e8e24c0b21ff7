"""`jax.scipy.cluster.vq`."""
from __future__ import annotations

from typing import Any

from adjoint.base.errors import missing as _missing
from adjoint.jax import numpy as _jnp

_n: Any = _jnp


def vq(obs: Any, code_book: Any, check_finite: bool = True) -> tuple[Any, Any]:
    """(the row of `code_book` that is nearest to each observation, the distance to it)."""
    from adjoint.jax._util import promote_dtypes_inexact
    x, book = promote_dtypes_inexact(obs, code_book)
    if x.ndim != book.ndim:
        raise ValueError("Observation and code_book should have the same rank")
    if x.ndim == 1:
        x, book = x[:, None], book[:, None]
    if x.ndim != 2:
        raise ValueError("ndim different than 1 or 2 are not supported")
    far = _n.linalg.norm(x[:, None] - book[None], axis=-1)
    at = _n.argmin(far, 1)
    return at, far[_n.arange(x.shape[0]), at]


__all__ = ["vq"]
__getattr__ = _missing("adjoint.jax.scipy.cluster.vq")
