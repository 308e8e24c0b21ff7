"""skip_init: modules whose parameters are not drawn."""
from __future__ import annotations

import inspect
from typing import Any

from adjoint.base.errors import ArgumentError, StructureError
from adjoint.nn.modules.module import Module

__all__ = ["skip_init"]


def skip_init(module_cls: type[Module], *args: Any, **kwargs: Any) -> Any:
    """Make ``module_cls(*args, **kwargs)`` with uninitialized parameters.

    The class must take ``device``: the module is made on ``meta`` and then given storage.

    >>> import adjoint as ad
    >>> tuple(skip_init(ad.nn.Linear, 5, 1).weight.shape)
    (1, 5)
    """
    if not (isinstance(module_cls, type) and issubclass(module_cls, Module)):
        raise StructureError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise ArgumentError("Module must support a 'device' arg to skip initialization")
    final = kwargs.pop("device", "cpu")
    return module_cls(*args, device="meta", **kwargs).to_empty(device=final)
