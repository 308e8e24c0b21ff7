"""Parameter; Buffer, a tensor that becomes a module's buffer by assignment; and parameters and
buffers whose shape is not known yet."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adjoint.base import dtypes
from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import Parameter, Tensor, wrap
from adjoint.nn import _core

__all__ = ["Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter", "is_lazy"]


class _BufferType(type(Tensor)):  # type: ignore[misc]  # the metaclass of Tensor, whatever it is
    def __instancecheck__(cls, instance: Any) -> bool:
        """A tensor that was made here: it is a plain one that remembers it."""
        return type.__instancecheck__(cls, instance) or (
            cls is Buffer and isinstance(instance, Tensor) and "_is_buffer" in instance.__dict__)


class Buffer(Tensor, metaclass=_BufferType, own=True):
    """A plain tensor that becomes a module's buffer by plain assignment.

    ``persistent=False`` keeps it out of ``state_dict()``. Shares memory with ``data``.

    >>> import adjoint as ad
    >>> m = ad.nn.Module(); m.mean = ad.nn.Buffer(ad.zeros(3)); list(m.state_dict())
    ['mean']
    """

    persistent: bool

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Any:
        if data is None:
            data = wrap(np.empty(0, np.float32))
        if not isinstance(data, Tensor):
            raise TypeError(f"Buffer(data) takes a tensor, got {type(data).__name__}")
        t: Any = data.detach()
        t.persistent, t._is_buffer = persistent, True
        return t


class UninitializedTensorMixin:
    """No shape and no storage until ``materialize``; everything else is refused with a hint."""

    cls_to_become: type[Tensor] = Tensor
    _later: Any  # the dtype that materialize will use

    def materialize(self, shape: Sequence[int], device: Any = None, dtype: Any = None) -> None:
        """Get storage of this shape, with unset values, and become an ordinary tensor."""
        made = _core.empty(tuple(shape), device=device,
                           dtype=self._later if dtype is None else dtype)
        self.__class__ = self.cls_to_become  # type: ignore[assignment]  # same layout
        self.array = made.array

    @property
    def dtype(self) -> Any:
        """The dtype that the values will have."""
        return self._later

    @property
    def data(self) -> Any:
        """An empty tensor of the dtype: there are no values yet."""
        return wrap(np.empty(0, dtypes.to_numpy(self._later)))

    def share_memory_(self) -> Any:
        """Raises: there is no memory to share yet."""
        raise ArgumentError("Can't share memory on an uninitialized parameter or buffer. Call "
                            "`forward` to initialize the parameters before calling "
                            "`module.share_memory()`.")

    def convert(self, fn: Callable[[Tensor], Tensor]) -> None:
        """Let ``fn``, a conversion of tensors, choose the dtype of the values to come."""
        self._later = fn(wrap(np.empty(0, dtypes.to_numpy(self._later)))).dtype

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        make, args = self.__reduce_ex__(4)
        memo[id(self)] = made = make(*args)
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        wanted = self._rg  # type: ignore[attr-defined]  # a slot of Tensor
        return _remake, (type(self), wanted, self._later)


def _remake(cls: Any, requires_grad: bool, dtype: Any) -> Any:
    return cls(requires_grad=requires_grad, dtype=dtype)


def _no_array(self: Any) -> Any:
    raise ArgumentError(
        "Attempted to use an uninitialized parameter: "
        "Can't access the shape of an uninitialized parameter or buffer. This error usually "
        "happens in `load_state_dict` when trying to load an uninitialized parameter into an "
        "initialized one. Call `forward` to initialize the parameters before accessing their "
        "attributes, once on a dummy batch.")


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A Parameter of a lazy module whose shape follows from the first input.

    >>> p = UninitializedParameter()
    >>> p.materialize((2, 3)); type(p).__name__, tuple(p.shape)
    ('Parameter', (2, 3))
    """

    cls_to_become = Parameter
    array = property(_no_array)  # hides the slot until there is one

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None
                ) -> UninitializedParameter:
        t: UninitializedParameter = object.__new__(cls)
        t._cell, t._edge, t._rg = None, None, requires_grad
        t._later = dtypes.of_numpy(dtypes.default_dtype()) if dtype is None else dtype
        return t

    def __init__(self, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> None:
        pass


class UninitializedBuffer(UninitializedTensorMixin, Tensor, own=True):
    """A buffer of a lazy module whose shape follows from the first input."""

    array = property(_no_array)  # hides the slot until there is one

    def __new__(cls, requires_grad: bool = False, device: Any = None, dtype: Any = None,
                persistent: bool = True) -> UninitializedBuffer:
        t: UninitializedBuffer = object.__new__(cls)
        t._cell, t._edge, t._rg = None, None, requires_grad
        t._later = dtypes.of_numpy(dtypes.default_dtype()) if dtype is None else dtype
        return t

    def __init__(self, requires_grad: bool = False, device: Any = None, dtype: Any = None,
                 persistent: bool = True) -> None:
        pass


def is_lazy(x: object) -> bool:
    """True for a parameter or buffer that has no shape yet."""
    return isinstance(x, UninitializedTensorMixin)
