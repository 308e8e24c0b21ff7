"""Groups of dtypes, as tuples: `all_types()`, `floating_types_and(half)`, `get_all_dtypes()`."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import adjoint.base.dtypes as dt

Group = Callable[..., tuple[dt.DType, ...]]
_FLOATING = (dt.float32, dt.float64)
_INTEGRAL = (dt.uint8, dt.int8, dt.int16, dt.int32, dt.int64)
_COMPLEX = (dt.complex64, dt.complex128)


def _group(*members: dt.DType) -> tuple[Group, Group]:
    """(the group, the group with the given dtypes behind it)."""
    def plain() -> tuple[dt.DType, ...]:
        return members

    def extended(*more: Any) -> tuple[dt.DType, ...]:
        return members + more
    return plain, extended


empty_types, custom_types = _group()
floating_types, floating_types_and = _group(*_FLOATING)
integral_types, integral_types_and = _group(*_INTEGRAL)
complex_types, complex_types_and = _group(*_COMPLEX)
all_types, all_types_and = _group(*_FLOATING, *_INTEGRAL)
all_types_and_complex, all_types_and_complex_and = _group(*_FLOATING, *_INTEGRAL, *_COMPLEX)
floating_and_complex_types, floating_and_complex_types_and = _group(*_FLOATING, *_COMPLEX)
double_types, _ = _group(dt.float64, dt.complex128)
floating_types_and_half, _ = _group(*_FLOATING, dt.float16)
all_types_and_half, _ = _group(*_FLOATING, *_INTEGRAL, dt.float16)


def get_all_fp_dtypes(include_half: bool = True, include_bfloat16: bool = True
                      ) -> list[dt.DType]:
    """The floating dtypes."""
    return [*_FLOATING, *[dt.float16] * include_half, *[dt.bfloat16] * include_bfloat16]


def get_all_int_dtypes() -> list[dt.DType]:
    """The integer dtypes that PyTorch computes in."""
    return list(_INTEGRAL)


def get_all_complex_dtypes(include_complex32: bool = False) -> list[dt.DType]:
    """The complex dtypes."""
    return list(_COMPLEX)


def get_all_dtypes(include_half: bool = True, include_bfloat16: bool = True,
                   include_bool: bool = True, include_complex: bool = True) -> list[dt.DType]:
    """All of them, as asked for."""
    return [*_INTEGRAL, *get_all_fp_dtypes(include_half, include_bfloat16),
            *[dt.bool_] * include_bool, *(_COMPLEX if include_complex else ())]


def get_all_math_dtypes(device: str) -> list[dt.DType]:
    """The dtypes that are computed in on a device."""
    return [*_INTEGRAL, *get_all_fp_dtypes(include_half=str(device).startswith("cuda"),
                                           include_bfloat16=False), *_COMPLEX]


def get_all_qint_dtypes() -> list[dt.DType]:
    """None: there are no quantized tensors."""
    return []


def highest_precision_float(device: Any) -> dt.DType:
    """The widest floating dtype of a device."""
    return dt.float64


float_to_corresponding_complex_type_map = {dt.float32: dt.complex64, dt.float64: dt.complex128}
