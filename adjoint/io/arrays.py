"""Between tensors and raw arrays: the one place where `io` touches the tensor class."""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.base.aval import MetaArray
from adjoint.base.errors import ArgumentError, DTypeError
from adjoint.core.tensor import Parameter, Tensor, wrap
from adjoint.ops.device import NoDevice, check, device

__all__ = ["Parameter", "Tensor", "as_array", "as_tensor", "check_device", "device",
           "destination", "is_meta"]


def is_meta(value: Any) -> bool:
    """True for a tensor without storage."""
    return isinstance(value, Tensor) and not isinstance(value.array, np.ndarray)


def as_array(value: Any, what: str) -> np.ndarray:
    """The NumPy array of a tensor or array, sharing memory; `what` names it in errors."""
    if isinstance(value, Tensor):
        if is_meta(value):
            raise ArgumentError(f"{what} is on the meta device and has no values to write")
        array: np.ndarray = value.array
        return array
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    raise DTypeError(f"{what} is a {type(value).__name__}; a tensor or an array is needed")


def check_device(where: Any) -> str:
    """'cpu' or 'meta' from any spelling of a device (None: the CPU); others do not exist here.

    >>> check_device("cpu:0"), check_device(None)
    ('cpu', 'cpu')
    """
    return check("cpu" if where is None else where)


def destination(where: Any) -> str:
    """'cpu' or 'meta' from what `map_location` names; what is wrong with another one."""
    try:
        return check_device(where)
    except NoDevice as error:
        kind = str(where).partition(":")[0]
        raise NoDevice(
            f"Attempting to deserialize object on a {kind.upper()} device but torch.{kind}."
            "is_available() is False. If you are running on a CPU-only machine, please use "
            "torch.load with map_location=torch.device('cpu') to map your storages to the CPU."
        ) from error
    except ArgumentError as error:
        if "Expected one of" not in str(error):
            raise
        raise ArgumentError("don't know how to restore data location of torch.storage."
                            f"UntypedStorage (tagged with {where}): {error}") from None


def as_tensor(array: np.ndarray, requires_grad: bool = False, where: Any = "cpu") -> Tensor:
    """A tensor on the array's own memory; on device 'meta' only its shape and dtype."""
    if check_device(where) == "meta":
        return wrap(MetaArray(array.shape, array.dtype), requires_grad)
    return wrap(array, requires_grad)
