"""How losses are reduced, by number, as the operators below PyTorch's layers are told it."""
from __future__ import annotations

import warnings

from adjoint.base.errors import ArgumentError
from adjoint.ops.cross_entropy import legacy_reduction

_NUMBERS = {"none": 0, "mean": 1, "sum": 2}


def get_enum(reduction: str) -> int:
    """The number of a name.

    >>> [get_enum(name) for name in ("none", "mean", "sum")]
    [0, 1, 2]
    """
    if reduction == "elementwise_mean":
        warnings.warn("reduction='elementwise_mean' is deprecated. Please use reduction='mean' "
                      "instead.", stacklevel=2)
        return 1
    if reduction not in _NUMBERS:
        raise ArgumentError(f"{reduction} is not a valid value for reduction")
    return _NUMBERS[reduction]


def legacy_get_string(size_average: bool | None, reduce: bool | None,
                      emit_warning: bool = True) -> str:
    """The name that the older two arguments mean."""
    with warnings.catch_warnings():
        if not emit_warning:
            warnings.simplefilter("ignore")
        return legacy_reduction(True if size_average is None else size_average, reduce, "mean")


def legacy_get_enum(size_average: bool | None, reduce: bool | None,
                    emit_warning: bool = True) -> int:
    """Its number."""
    return get_enum(legacy_get_string(size_average, reduce, emit_warning))
