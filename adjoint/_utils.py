"""`torch._utils`: lists of tensors as one vector and back, as code that sends gradients does it;
what plain pickles of PyTorch's tensors call."""
from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from adjoint.base.errors import ArgumentError
from adjoint.base.errors import missing as _missing
from adjoint.core.modes import warn_as_pytorch
from adjoint.core.tensor import Parameter, Tensor
from adjoint.ops.api_join import cat
from adjoint.ops.create import empty
from adjoint.ops.device import device as Device


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """All elements of tensors of one dtype in one vector.

    >>> import adjoint as ad
    >>> _flatten_dense_tensors([ad.ones(2, 1), ad.zeros(1)])
    tensor([1., 1., 0.])
    """
    return cat([t.reshape(-1) for t in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Any, ...]:
    """Views of the vector with the shapes of `tensors`."""
    parts = flat.split([t.numel() for t in tensors])
    return tuple(part.view(t.shape) for part, t in zip(parts, tensors, strict=True))


def _take_tensors(tensors: Sequence[Tensor], size_limit: int) -> Iterator[list[Tensor]]:
    """Lists of tensors of one dtype, closed before they would exceed `size_limit` bytes."""
    waiting: dict[Any, tuple[list[Tensor], int]] = {}
    for t in tensors:
        have, size = waiting.get(t.dtype, ([], 0))
        more = t.numel() * t.element_size()
        if have and size + more > size_limit:
            yield have
            have, size = [], 0
        waiting[t.dtype] = ([*have, t], size + more)
    for have, _ in waiting.values():
        yield have


class KeyErrorMessage(str):
    """A text whose repr is itself: KeyError prints the repr of what it was given."""

    __slots__ = ()
    __repr__ = str.__str__


class ExceptionWrapper:
    """An exception of another thread or process, with its traceback as text: it can be sent.

    >>> try:
    ...     1 / 0
    ... except ZeroDivisionError:
    ...     sent = ExceptionWrapper(where="in a worker")
    >>> sent.reraise()
    Traceback (most recent call last):
    ZeroDivisionError: Caught ZeroDivisionError in a worker.
    ...
    """

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        info = sys.exc_info() if exc_info is None else exc_info
        self.exc_type: Any = info[0]
        self.exc_msg = "".join(traceback.format_exception(*info))
        self.where = where

    def reraise(self, otherwise: type[Exception] = RuntimeError) -> None:
        """Raise one of its class, or `otherwise` where that does not take one string."""
        name = getattr(self.exc_type, "__name__", self.exc_type)
        text = f"Caught {name} {self.where}.\nOriginal {self.exc_msg}"
        try:
            error = self.exc_type(KeyErrorMessage(text) if self.exc_type is KeyError else text)
        except Exception:
            error = otherwise(text)
        raise error


class classproperty:
    """A property of the class itself.

    >>> class Named:
    ...     @classproperty
    ...     def short(cls):
    ...         return cls.__name__[0]
    >>> Named.short
    'N'
    """

    def __init__(self, func: Callable[[Any], Any]) -> None:
        self.func = func

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self.func(owner)


def try_import(module_name: str) -> Any:
    """The module, or None where it is not installed.

    >>> try_import("nowhere") is None
    True
    """
    try:
        return importlib.import_module(module_name)
    except ImportError:
        return None


def is_compiling() -> bool:
    """False: programs run operation by operation. The name in use is `compiler.is_compiling`."""
    warn_as_pytorch("`torch._utils.is_compiling` is deprecated. "
                    "Use `torch.compiler.is_compiling` instead.")
    return False


def _element_size(dtype: Any) -> int:
    """Bytes of one element of a dtype; 1 for truth values.

    >>> import adjoint as ad
    >>> _element_size(ad.float64), _element_size(ad.bfloat16)
    (8, 2)
    """
    return int(dtype.itemsize)


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The number of a device: -1 for the CPU where it is allowed; there are no others here."""
    if isinstance(device, str):
        device = Device(device)
    if isinstance(device, Device):
        if device.type == "cpu" and not allow_cpu:
            raise ArgumentError(f"Expected a non cpu device, but got: {device}")
        return -1 if device.index is None else int(device.index)
    if device is None and not optional:
        raise ArgumentError("Expected a torch.device with a specified index or an integer, but "
                            f"got:{device}")
    return -1 if device is None else int(device)


def _get_all_device_indices() -> list[int]:
    """The numbers of the accelerators: none."""
    return []


def _get_available_device_type() -> None:
    """The kind of accelerator: None."""


def _rebuild_tensor(storage: Any, storage_offset: int, size: Any, stride: Any) -> Tensor:
    """The tensor of these sizes and strides on a storage of numbers."""
    made: Tensor = empty(0, dtype=storage.dtype).set_(storage, storage_offset, size, stride)
    return made


def _rebuild_tensor_v2(storage: Any, storage_offset: int, size: Any, stride: Any,
                       requires_grad: bool, backward_hooks: Any, metadata: Any = None) -> Tensor:
    """The same, as PyTorch's pickles ask for it since 0.4."""
    return _rebuild_tensor(storage, storage_offset, size, stride).requires_grad_(requires_grad)


def _rebuild_parameter(data: Tensor, requires_grad: bool, backward_hooks: Any) -> Parameter:
    """A parameter of these values."""
    return Parameter(data, requires_grad)


def _rebuild_parameter_with_state(data: Tensor, requires_grad: bool, backward_hooks: Any,
                                  state: dict[str, Any]) -> Parameter:
    """A parameter with the attributes that a program gave it."""
    made = Parameter(data, requires_grad)
    made.__dict__.update(state)
    return made


__all__ = ["_flatten_dense_tensors", "_take_tensors", "_unflatten_dense_tensors"]
__getattr__ = _missing("adjoint._utils")
