"""`torch._ops`: the classes of what is in `ops`, for `isinstance`.

    >>> import adjoint as ad
    >>> isinstance(ad.ops.aten.mm, OpOverloadPacket), isinstance(ad.ops.aten.mm.default, OpOverload)
    (True, True)
"""
from __future__ import annotations

from typing import Any

from adjoint import ops
from adjoint.base.errors import NotSupported, missing
from adjoint.core.dispatch import Named
from adjoint.core.op import Op
from adjoint.ops.aten import Overloads

__all__ = ["HigherOrderOperator", "OpOverload", "OpOverloadPacket", "OperatorBase", "ops"]


class _Known(type):
    """A class whose instances are those of the classes that it names."""

    kinds: tuple[type, ...] = ()

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, cls.kinds)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise NotSupported(f"{cls.__name__}: operators are made by library.custom_op or "
                           "library.define")


class OpOverload(metaclass=_Known):
    """One operator: `ops.aten.mm.default`."""

    kinds = (Op, Named)


class OpOverloadPacket(metaclass=_Known):
    """The operators of one name: `ops.aten.mm`."""

    kinds = (Overloads,)


class HigherOrderOperator(metaclass=_Known):
    """An operator on functions. Here these are functions (`cond`), so nothing is one."""


class OperatorBase(metaclass=_Known):
    """An operator of either kind."""

    kinds = (Op, Named, Overloads)


__getattr__ = missing("adjoint._ops")
