"""`jax.dtypes`."""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.base.errors import missing as _missing
from adjoint.func.reverse import FLOAT0 as float0
from adjoint.jax._dtypes import SCALARS as _SCALARS
from adjoint.jax._dtypes import TypePromotionError
from adjoint.jax._dtypes import as_dtype as _as_dtype
from adjoint.jax._dtypes import default_dtype as _default
from adjoint.jax._dtypes import inexact as _inexact
from adjoint.jax._dtypes import issubdtype as _issubdtype
from adjoint.jax.numpy._types import finfo, iinfo, promote_types
from adjoint.jax.numpy._types import result_type as _result_type

bfloat16 = _SCALARS["bfloat16"]


class extended(np.generic):
    """The category of dtypes that NumPy does not have."""


class ExtendedDType:
    """What libraries derive dtypes of their own from (`jax._src.dtypes`); there are no arrays of
    them here."""


class prng_key(extended):
    """The category of keys."""


def canonicalize_dtype(dtype: Any, allow_extended_dtype: bool = False) -> Any:
    """The dtype in 32 bits where 64 are switched off."""
    return _as_dtype(dtype)


def issubdtype(a: Any, b: Any) -> bool:
    """`numpy.issubdtype`, which knows bfloat16, PRNG keys and the names of scalar types."""
    return _issubdtype(a, b)


def result_type(*args: Any, return_weak_type_flag: bool = False) -> Any:
    """The dtype that arrays, numbers and dtypes join to, and whether it is weak where asked."""
    to = _result_type(*args)
    return (to, all(map(is_weakly_typed, args))) if return_weak_type_flag else to


def scalar_type_of(x: Any) -> Any:
    """Python's type of a dtype's category."""
    from adjoint.jax._array import pair_of
    kind = (pair_of(x) or (np.dtype(x), False))[0].kind
    return {"b": bool, "i": int, "u": int, "c": complex}.get(kind, float)


def itemsize_bits(dtype: Any) -> int:
    """Bits of an element."""
    return 8 * np.dtype(dtype).itemsize


def dtype(x: Any) -> Any:
    """The dtype of an array or a number."""
    from adjoint.jax._array import as_array
    return as_array(x).dtype


def is_weakly_typed(x: Any) -> bool:
    """True for Python's numbers and weak arrays."""
    from adjoint.jax._array import pair_of
    return bool((pair_of(x) or (None, False))[1])


is_python_scalar = is_weakly_typed


def to_inexact_dtype(dtype: Any) -> Any:
    """The dtype, or the default float for integers and truth values."""
    return _inexact((_as_dtype(dtype), False))[0]


def default_float_dtype() -> Any:
    """The dtype of Python's float."""
    return _default("float")


def default_int_dtype() -> Any:
    """The dtype of Python's int."""
    return _default("int")


def default_complex_dtype() -> Any:
    """The dtype of Python's complex."""
    return _default("complex")


def short_dtype_name(dtype: Any) -> str:
    """`f32`, `i8`, `bf16`, `c64`."""
    name = np.dtype(dtype).name
    return name if name == "bool" else name.replace("bfloat", "bf").replace("complex", "c").replace(
        "float", "f").replace("uint", "u").replace("int", "i")


def supports_inf(dtype: Any) -> bool:
    """Has the dtype an infinity?"""
    return bool(issubdtype(dtype, np.inexact))


__all__ = ["TypePromotionError", "bfloat16", "canonicalize_dtype", "default_complex_dtype",
           "default_float_dtype", "default_int_dtype", "dtype", "finfo", "float0", "iinfo",
           "is_python_scalar", "is_weakly_typed", "issubdtype", "itemsize_bits", "promote_types",
           "result_type", "short_dtype_name", "supports_inf", "to_inexact_dtype"]
__getattr__ = _missing("adjoint.jax.dtypes")
