"""`jax.experimental.hijax`: what libraries derive types of values and primitives of their own from.

Such classes can be made; binding a primitive of one raises `NotSupported`.
"""
from __future__ import annotations

from typing import Any

from adjoint.base.errors import NotSupported
from adjoint.base.errors import missing as _missing
from adjoint.jax._array import ShapeDtypeStruct as AbstractValue
from adjoint.jax._interpret import is_undefined_primal
from adjoint.jax._primitive import Zero, instantiate_zeros


class HiType:
    """The type of a program's own values."""


class MutableHiType(HiType):
    """The type of values that change."""


class HiPrimitive:
    """A program's own operation on such values."""

    def __init__(self, name: str = "") -> None:
        self.name = name

    def bind(self, *args: Any, **params: Any) -> Any:
        """NotSupported: operations here are those of arrays."""
        raise NotSupported(f"{self.name or type(self).__name__}: primitives on types of a "
                           "program's own are not here; jax.extend.core.Primitive is for arrays")


class VJPHiPrimitive(HiPrimitive):
    """One with a rule for reverse mode."""


class AvalQDD:
    """A type, and what is known of a value that changes."""

    def __init__(self, aval: Any, qdd: Any = None) -> None:
        self.aval, self.qdd = aval, qdd


class AvalMutableQDD(AvalQDD):
    """The same, which may change."""


class aval_method:
    """A method that tracers of a type have."""

    def __init__(self, fun: Any) -> None:
        self.fun = fun


class aval_property:
    """A property that tracers of a type have."""

    def __init__(self, fget: Any) -> None:
        self.fget = fget


class _Effects:
    """The kinds of effects that control flow allows: all of them."""

    def add_type(self, kind: type) -> None:
        """Nothing to note."""


control_flow_allowed_effects = _Effects()


def register_hitype(kind: type, typeof: Any) -> None:
    """Nothing to note: values are arrays here."""


__all__ = ["AbstractValue", "AvalMutableQDD", "AvalQDD", "HiPrimitive", "HiType", "MutableHiType",
           "VJPHiPrimitive", "Zero", "aval_method", "aval_property",
           "control_flow_allowed_effects", "instantiate_zeros", "is_undefined_primal",
           "register_hitype"]
__getattr__ = _missing("adjoint.jax.experimental.hijax")
