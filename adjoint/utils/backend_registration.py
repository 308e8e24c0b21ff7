"""`torch.utils.backend_registration`: PyTorch's place for a device of one's own. There is none to
take here: tensors lie in memory or, through `adjoint.cuda`, on a GPU."""
from __future__ import annotations

from typing import Any, NoReturn

from adjoint.base.errors import NotSupported, missing

__all__ = ["generate_methods_for_privateuse1_backend", "rename_privateuse1_backend"]


def rename_privateuse1_backend(backend_name: str) -> NoReturn:
    """Raises: there is no PrivateUse1 device that could be given a name.

    >>> rename_privateuse1_backend("npu")
    Traceback (most recent call last):
    adjoint.base.errors.NotSupported: rename_privateuse1_backend('npu'): ...
    """
    raise NotSupported(f"rename_privateuse1_backend({backend_name!r}): devices cannot be added "
                       "here; a class with __torch_dispatch__ answers for tensors that lie "
                       "elsewhere (Tensor._make_wrapper_subclass)")


def generate_methods_for_privateuse1_backend(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises, as `rename_privateuse1_backend`."""
    raise NotSupported("generate_methods_for_privateuse1_backend: devices cannot be added here, so "
                       "there are no methods of one to make")


__getattr__ = missing("adjoint.utils.backend_registration")
