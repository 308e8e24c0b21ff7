"""`jax.flatten_util`."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint.core.tensor import wrap
from adjoint.jax._array import as_array, convert, joined, make
from adjoint.jax._dtypes import default_dtype
from adjoint.jax._table import T
from adjoint.jax.tree_util import tree_flatten, tree_unflatten


def ravel_pytree(pytree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """(all leaves in one vector, the function that gives a tree of such a vector).

    >>> vector, back = ravel_pytree({"a": 1.0, "b": np.ones(2, np.float32)})
    >>> vector
    Array([1., 1., 1.], dtype=float32)
    """
    leaves, treedef = tree_flatten(pytree)
    arrays = [as_array(x) for x in leaves]
    if not arrays:
        return make(wrap(np.zeros(0, default_dtype("float")))), lambda _: tree_unflatten(
            treedef, [])
    ts, weak = joined("ravel_pytree", arrays)
    ends = np.cumsum([0] + [a.size for a in arrays])

    def unravel(vector: Any) -> Any:
        v = as_array(vector)
        if v.shape != (int(ends[-1]),):
            raise ValueError(f"The unravel function expected an array of shape ({int(ends[-1])},), "
                             f"got shape {v.shape}")
        parts = [make(convert(v.tensor[int(i):int(i) + a.size].reshape(a.shape), a.dtype))
                 for i, a in zip(ends[:-1], arrays, strict=True)]
        return tree_unflatten(treedef, parts)
    return make(T["cat"]([t.reshape(-1) for t in ts]), weak), unravel
