"""Functions of sizes that PyTorch's compiler takes for symbols. Sizes are Python numbers here, so
that these are the functions of Python, with PyTorch's promotions and refusals."""
from __future__ import annotations

import builtins
import math
import numbers
from typing import Any

from adjoint.base.errors import AssertedError

__all__ = ["sym_constrain_range", "sym_constrain_range_for_size", "sym_float", "sym_fresh_size",
           "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not", "sym_sqrt", "sym_sum"]


def sym_int(a: Any) -> int:
    """`a` cut towards zero.

    >>> sym_int(-3.7)
    -3
    """
    return int(a)


def sym_float(a: Any) -> float:
    """`a` as a float."""
    return float(a)


def _real(a: Any) -> Any:
    if not isinstance(a, numbers.Real):
        raise AssertedError(f"expected an int or a float, got {type(a)}")
    return a


def sym_max(a: Any, b: Any) -> Any:
    """The larger; a float if one of them is.

    >>> sym_max(3, 2.0)
    3.0
    """
    found = builtins.max(_real(a), _real(b))
    return float(found) if isinstance(a, float) or isinstance(b, float) else found


def sym_min(a: Any, b: Any) -> Any:
    """The smaller; a float if one of them is."""
    found = builtins.min(_real(a), _real(b))
    return float(found) if isinstance(a, float) or isinstance(b, float) else found


def sym_not(a: Any) -> bool:
    """`not a`."""
    return not a


def sym_sqrt(a: Any) -> float:
    """The square root. Raises ValueError for negative numbers, as `math.sqrt`."""
    return math.sqrt(a)


def sym_sum(*args: Any) -> Any:
    """The sum of numbers, given one by one or as a list.

    >>> sym_sum([1, 2, 3]), sym_sum(1, 2)
    (6, 3)
    """
    many = args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args
    return builtins.sum(many)


def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """`t if b else f`, for a bool."""
    if not isinstance(b, bool):
        raise AssertedError(f"expected SymBool or bool, got {type(b)}")
    return t if b else f


def sym_constrain_range(size: Any, *, min: int | None = None, max: int | None = None) -> None:
    """Raise unless min <= size <= max, where they are given."""
    if (min is not None and size < min) or (max is not None and size > max):
        raise AssertedError(f"Invalid value range for {size} between [{min}, {max}].")


sym_constrain_range_for_size = sym_constrain_range


def sym_fresh_size(size: Any) -> int:
    """The size itself."""
    return int(size)
