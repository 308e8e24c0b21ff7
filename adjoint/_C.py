"""The names of `torch._C` that programs with `__torch_function__` use."""
from __future__ import annotations

import importlib as _importlib

from adjoint.base.errors import missing as _missing
from adjoint.core.intercept import disabled as _disabled_torch_function_impl
from adjoint.core.tensor import Tensor as _Tensor
from adjoint.core.trace import current_level as _current_level
from adjoint.ops.decompose import LinAlgError as _LinAlgError
from adjoint.ops.generator import Generator as Generator
from adjoint.overrides import DisableTorchFunction as DisableTorchFunction
from adjoint.overrides import DisableTorchFunctionSubclass as DisableTorchFunctionSubclass

_TensorMeta = type(_Tensor)


def _log_api_usage_once(event: str) -> None:
    """Nothing is logged: libraries call it when one of their classes is made."""


def _get_tracing_state() -> None:
    """None: no program is being traced by `jit`."""


def _are_functorch_transforms_active() -> bool:
    """Whether a function of `func` is running around this call."""
    return _current_level() > 0


__all__ = ["DisableTorchFunction", "DisableTorchFunctionSubclass", "Generator", "_LinAlgError",
           "_disabled_torch_function_impl"]
_NAMES = _missing("adjoint._C")


def __getattr__(name: str) -> object:
    if name == "_nn":                   # what `Module.to` of libraries asks it for
        return _importlib.import_module("adjoint.nn.modules.module")
    return _NAMES(name)
