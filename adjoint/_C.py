"""The names of `torch._C` that programs with `__torch_function__` use."""
from __future__ import annotations

from adjoint.base.errors import missing as _missing
from adjoint.core.intercept import disabled as _disabled_torch_function_impl
from adjoint.overrides import DisableTorchFunction as DisableTorchFunction
from adjoint.overrides import DisableTorchFunctionSubclass as DisableTorchFunctionSubclass


def _log_api_usage_once(event: str) -> None:
    """Nothing is logged: libraries call it when one of their classes is made."""


def _get_tracing_state() -> None:
    """None: no program is being traced by `jit`."""


__all__ = ["DisableTorchFunction", "DisableTorchFunctionSubclass", "_disabled_torch_function_impl"]
__getattr__ = _missing("adjoint._C")
