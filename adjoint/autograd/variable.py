"""`Variable`, the old name of a tensor: `Variable(data, requires_grad=True)`."""
from __future__ import annotations

from typing import Any

from adjoint.autograd.engine import queue_callback
from adjoint.base.errors import DTypeError
from adjoint.core.modes import warn
from adjoint.core.tensor import Tensor, alias

__all__ = ["Variable"]


class _VariableType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor)

    def __call__(cls, data: Any = None, requires_grad: bool = False, volatile: bool = False) -> Any:
        if not isinstance(data, Tensor):
            raise DTypeError("Variable data has to be a tensor, but got "
                             f"{type(data).__name__}; make one with tensor(data)")
        if volatile:
            warn("volatile was removed and now has no effect. Use `with torch.no_grad():` instead.")
        made = alias(data)
        made.requires_grad = requires_grad
        return made


class _Engine:
    """What programs ask of PyTorch's engine by name."""

    queue_callback = staticmethod(queue_callback)


class Variable(metaclass=_VariableType):
    """A tensor on the memory of `data`, a leaf of its own; every tensor is an instance.

    >>> import adjoint as ad
    >>> x = Variable(ad.ones(2), requires_grad=True)
    >>> x.requires_grad, isinstance(ad.ones(1), Variable)
    (True, True)
    """

    _execution_engine = _Engine()
