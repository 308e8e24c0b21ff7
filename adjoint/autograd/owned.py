"""Gradients that nobody else holds: what is written to a `.grad` is seen in no other place."""
from __future__ import annotations

import sys
from typing import Any

import numpy as np

from adjoint.base.aval import MetaArray
from adjoint.core.rehearsal import call
from adjoint.core.tensor import Tensor, wrap
from adjoint.ops.shape import clone_op


def own_tensor(ct: Tensor) -> Tensor:
    """A gradient of a walk with a graph for one place alone: what is written to it there is seen
    nowhere else. With a history it is a copy that has one."""
    if ct.is_sparse:
        return ct
    if ct._rg or ct.level:
        copy: Tensor = clone_op(ct)
        return copy
    return wrap(own(ct.array, 0))


def own(ct: Any, refs: int) -> Any:
    """`ct` itself where nobody else can see its buffer, else a copy: `.grad` never aliases a
    saved or user-held array. `refs` is how many references the callers hold."""
    if type(ct) is MetaArray:
        if ct.base is None and ct.contiguous and sys.getrefcount(ct) <= refs + 1:
            return ct
        return call(np.array, ct, order="C", otherwise=lambda: MetaArray(ct.shape, ct.dtype))
    if type(ct) is not np.ndarray:
        return np.asarray(ct)
    if (ct.base is None and ct.flags.owndata and ct.flags.writeable and ct.flags.c_contiguous
            and sys.getrefcount(ct) <= refs + 1):
        return ct
    return np.array(ct, order="C")
