"""What is asked about dtypes."""
from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from adjoint.base.dtypes import finfo as _finfo
from adjoint.base.dtypes import is_bfloat16
from adjoint.jax._array import as_array, pair_of
from adjoint.jax._dtypes import SMALL, ScalarType, as_dtype, default_dtype, lattice


def finfo(dtype: Any) -> Any:
    """Limits of a floating dtype."""
    kind = as_array(dtype).dtype if pair_of(dtype) is not None else (
        dtype.dtype if isinstance(dtype, ScalarType) else np.dtype(dtype))
    if kind.name in SMALL:
        limits: Any = importlib.import_module("ml_dtypes")
        return limits.finfo(kind)
    return _finfo(kind) if is_bfloat16(kind) else np.finfo(kind)


class iinfo:
    """Limits of an integer dtype: `min`, `max`, `bits`, `kind`, `dtype`."""

    def __init__(self, int_type: Any) -> None:
        kind = int_type.dtype if isinstance(int_type, ScalarType) else np.dtype(int_type)
        found: Any
        if kind.name in SMALL:
            limits: Any = importlib.import_module("ml_dtypes")
            found = limits.iinfo(kind)
        else:
            found = np.iinfo(kind)
        self.kind, self.bits, self.dtype = found.kind, found.bits, found.dtype
        self.min, self.max = int(found.min), int(found.max)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"


def _pair(x: Any) -> Any:
    for kind in (int, float, complex):
        if x is kind:
            return default_dtype(kind.__name__), True
    found = pair_of(x)
    return found if found is not None else (as_dtype(x), False)


def promote_types(a: Any, b: Any) -> Any:
    """The dtype that two dtypes join to."""
    return lattice(frozenset([_pair(a), _pair(b)]))[0]


def result_type(*args: Any) -> Any:
    """The dtype that arrays, numbers and dtypes join to."""
    if not args:
        raise ValueError("at least one array or dtype is required")
    return lattice(frozenset(map(_pair, args)))[0]
