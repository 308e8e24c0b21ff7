"""`jax.dtypes`."""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.base.errors import missing as _missing
from adjoint.func.reverse import FLOAT0 as float0
from adjoint.jax._dtypes import SCALARS as _SCALARS
from adjoint.jax._dtypes import as_dtype as _as_dtype
from adjoint.jax._dtypes import issubdtype
from adjoint.jax.numpy._types import finfo, iinfo, promote_types, result_type

bfloat16 = _SCALARS["bfloat16"]


class extended(np.generic):
    """The category of dtypes that NumPy does not have."""


class prng_key(extended):
    """The category of keys."""


def canonicalize_dtype(dtype: Any, allow_extended_dtype: bool = False) -> Any:
    """The dtype in 32 bits where 64 are switched off."""
    return _as_dtype(dtype)


def scalar_type_of(x: Any) -> Any:
    """Python's type of a dtype's category."""
    from adjoint.jax._array import pair_of
    kind = (pair_of(x) or (np.dtype(x), False))[0].kind
    return {"b": bool, "i": int, "u": int, "c": complex}.get(kind, float)


__all__ = ["bfloat16", "canonicalize_dtype", "finfo", "float0", "iinfo", "issubdtype",
           "promote_types", "result_type"]
__getattr__ = _missing("adjoint.jax.dtypes")
