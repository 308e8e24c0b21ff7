"""Helpers of `torch.optim.optimizer` that optimizers of programs import beside public names."""
from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint.autograd.modes import set_grad_enabled
from adjoint.base.dtypes import default_dtype, float32, float64
from adjoint.core.tensor import Tensor
from adjoint.ops.public import FUNCTIONS

__all__ = ["DeviceDict", "StateDict", "_capturable_doc", "_default_to_fused_or_foreach",
           "_differentiable_doc", "_disable_dynamo_if_unsupported", "_dispatch_sqrt",
           "_foreach_doc", "_fused_doc", "_get_capturable_supported_devices", "_get_scalar_dtype",
           "_get_value", "_maximize_doc", "_params_doc", "_stack_if_compiling", "_to_scalar",
           "_use_grad_for_differentiable", "_view_as_real"]

DeviceDict = dict[Any, Tensor]
StateDict = dict[str, Any]
_MODES = ("maximize (bool, optional): step uphill",
          "foreach (bool, optional): changes nothing here",
          "capturable (bool, optional): refused by step: no device here captures it",
          "differentiable (bool, optional): record the step, so that one can differentiate through "
          "it", "fused (bool, optional): changes nothing here",
          "params (iterable): parameters, or dicts of parameter groups")
(_maximize_doc, _foreach_doc, _capturable_doc, _differentiable_doc, _fused_doc,
 _params_doc) = _MODES


def _use_grad_for_differentiable(func: Callable[..., Any]) -> Callable[..., Any]:
    """`step` with gradients on where the optimizer is `differentiable`, and off elsewhere."""
    @functools.wraps(func)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        with set_grad_enabled(bool(self.defaults.get("differentiable", False))):
            return func(self, *args, **kwargs)
    return step


def _default_to_fused_or_foreach(params: Any, differentiable: bool, use_fused: bool = False
                                 ) -> tuple[bool, bool]:
    """(fused, foreach): neither is the default on a CPU."""
    return False, False


def _get_capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    """Kinds of devices whose steps can be captured, as PyTorch lists them; none is here."""
    return ["cuda", "xpu", "hpu", *(["xla"] if supports_xla else [])]


def _get_value(x: Any) -> Any:
    """The number of a tensor of one element; another number as it is."""
    return x.item() if isinstance(x, Tensor) else x


def _dispatch_sqrt(x: Any) -> Any:
    """The square root of a tensor or of a number.

    >>> _dispatch_sqrt(9.0)
    3.0
    """
    return x.sqrt() if isinstance(x, Tensor) else math.sqrt(x)


def _stack_if_compiling(x: Any) -> Any:
    """`x`: nothing is being compiled."""
    return x


def _to_scalar(x: Any) -> Any:
    """The tensor with no axes; a number as it is."""
    return x.squeeze() if isinstance(x, Tensor) and x.dim() != 0 else x


def _disable_dynamo_if_unsupported(single_tensor_fn: Any = None) -> Callable[[Any], Any]:
    """A decorator that changes nothing: there is no compiler to hide from."""
    return lambda func: func


def _view_as_real(params: list[Tensor], *state_and_grads: list[Tensor]) -> None:
    """Put the real view of each complex parameter in its place, and of what belongs to it."""
    for i, p in enumerate(params):
        if p.is_complex():
            for tensors in (params, *state_and_grads):
                tensors[i] = FUNCTIONS["view_as_real"](tensors[i])


def _get_scalar_dtype(is_fused: bool | None = None) -> Any:
    """The dtype of step counters: float64 where that is the default dtype, else float32."""
    return float64 if default_dtype() == np.float64 and not is_fused else float32
