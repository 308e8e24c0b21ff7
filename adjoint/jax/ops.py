"""`jax.ops`: reductions over segments."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from adjoint.base.dtypes import is_inexact
from adjoint.base.errors import missing as _missing
from adjoint.core.tensor import wrap
from adjoint.jax._array import as_array, concrete, make
from adjoint.jax._table import T
from adjoint.jax._words import placed
from adjoint.jax.numpy._index import mode_of


def _segments(method: str, start: Any) -> Any:
    def run(data: Any, segment_ids: Any, num_segments: Any = None, indices_are_sorted: bool = False,
            unique_indices: bool = False, bucket_size: Any = None, mode: Any = None,
            out_sharding: Any = None) -> Any:
        placed(run.__name__, out_sharding)
        x, ids = as_array(data), as_array(segment_ids)
        n = int(num_segments) if num_segments is not None else int(concrete(
            ids.max(), f"segment_{method}() `num_segments` argument.")) + 1
        if n < 0:
            raise ValueError("num_segments must be non-negative.")
        clip = mode_of(mode) == "clip"                   # (others leave out what is outside)
        ids = make(T["where"](ids.tensor < 0, 0 if clip else n, ids.tensor))
        base = make(wrap(np.full((n, *x.shape[1:]), start(x.dtype), x.dtype)))
        return getattr(base.at[ids], method)(x, mode="clip" if clip else "drop")
    run.__name__ = {"add": "segment_sum", "multiply": "segment_prod"}.get(method,
                                                                         f"segment_{method}")
    run.__doc__ = f"`jax.ops.{run.__name__}`."
    return run


def _lowest(dtype: Any) -> Any:
    if dtype.kind == "b":
        return False
    return -math.inf if is_inexact(dtype) else np.iinfo(dtype).min


def _highest(dtype: Any) -> Any:
    if dtype.kind == "b":
        return True
    return math.inf if is_inexact(dtype) else np.iinfo(dtype).max


segment_sum = _segments("add", lambda d: 0)
segment_prod = _segments("multiply", lambda d: 1)
segment_max = _segments("max", _lowest)
segment_min = _segments("min", _highest)
__getattr__ = _missing("adjoint.jax.ops")
