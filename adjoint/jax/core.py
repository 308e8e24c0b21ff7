"""`jax.core`: what programs ask of values under a transform."""
from __future__ import annotations

from typing import Any

from adjoint.jax._absent import lacking as _lacking
from adjoint.jax._array import Array as _Array
from adjoint.jax._array import ShapedArray
from adjoint.jax._array import as_array as _as_array
from adjoint.jax._array import is_traced as _is_traced


class _TracerType(type):
    def __instancecheck__(cls, x: Any) -> bool:
        return type(x) is _Array and _is_traced(x)


class Tracer(metaclass=_TracerType):
    """An array while a transform follows it: `isinstance(x, jax.core.Tracer)`."""


def get_aval(x: Any) -> Any:
    """Shape and dtype of a value."""
    return _as_array(x).aval


def is_concrete(x: Any) -> bool:
    """True unless a transform follows the value."""
    return not (type(x) is _Array and _is_traced(x))


__all__ = ["ShapedArray", "Tracer", "get_aval", "is_concrete"]
__getattr__ = _lacking("core")
