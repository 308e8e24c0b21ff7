"""Statistics of samples."""
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from adjoint.jax import numpy as _jnp

jnp: Any = _jnp


class ModeResult(NamedTuple):
    """The most frequent values and how often they are there."""

    mode: Any
    count: Any


def mode(a: Any, axis: Any = 0, nan_policy: str = "propagate", keepdims: bool = False) -> Any:
    """The most frequent value along an axis, the smallest of several."""
    x = jnp.asarray(a)
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis % x.ndim)
    rows = jnp.moveaxis(x, axis, 0)
    many = (rows[:, None] == rows[None, :]).sum(0)
    most = many.max(0)
    best = jnp.where(many == most, rows, rows.max(0)).min(0)
    if keepdims:
        best, most = jnp.expand_dims(best, axis), jnp.expand_dims(most, axis)
    return ModeResult(best, most)


def sem(a: Any, axis: Any = 0, ddof: int = 1, nan_policy: str = "propagate", *,
        keepdims: bool = False) -> Any:
    """The standard error of the mean."""
    x = jnp.asarray(a)
    n = x.size if axis is None else x.shape[axis]
    return jnp.std(x, axis, ddof=ddof, keepdims=keepdims) / np.sqrt(n).astype(np.float32)


def rankdata(a: Any, method: str = "average", *, axis: Any = None, nan_policy: str = "propagate"
             ) -> Any:
    """Ranks from 1, ties by method ("average", "min", "max", "dense", "ordinal")."""
    x = jnp.asarray(a)
    if axis is not None:
        return jnp.apply_along_axis(lambda v: rankdata(v, method), axis, x)
    x = x.reshape(-1)
    if method == "ordinal":
        return jnp.argsort(jnp.argsort(x)) + 1
    below = (x[None, :] < x[:, None]).sum(1)
    same = (x[None, :] == x[:, None]).sum(1)
    if method == "dense":
        first = jnp.concatenate([jnp.ones(1, bool), jnp.sort(x)[1:] != jnp.sort(x)[:-1]])
        return jnp.cumsum(first)[below]
    found = {"min": below + 1, "max": below + same, "average": (2 * below + same + 1) / 2}
    return found[method]
