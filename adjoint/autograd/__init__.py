"""Reverse mode: graph, engine, modes, custom functions, checks."""
import importlib as _importlib
from typing import Any as _Any

from adjoint.autograd import function as function
from adjoint.autograd import graph as graph
from adjoint.autograd import nodes as nodes
from adjoint.autograd.anomaly import (
    detect_anomaly,
    is_anomaly_check_nan_enabled,
    is_anomaly_enabled,
    set_detect_anomaly,
)
from adjoint.autograd.api import backward, grad
from adjoint.autograd.function import Function
from adjoint.autograd.gradcheck import gradcheck, gradgradcheck
from adjoint.autograd.modes import _force_original_view_tracking as _force_original_view_tracking
from adjoint.autograd.modes import (
    _unsafe_preserve_version_counter as _unsafe_preserve_version_counter,
)
from adjoint.autograd.modes import (
    enable_grad,
    enforce_grad_layout_policy,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    is_multithreading_enabled,
    is_view_replay_enabled,
    no_grad,
    set_grad_enabled,
    set_multithreading_enabled,
)
from adjoint.autograd.variable import Variable as Variable
from adjoint.base.errors import missing as _missing_in

_missing = _missing_in("adjoint.autograd")


def _calculate_shape(output: _Any, grad: _Any, is_grads_batched: bool) -> tuple[_Any, _Any]:
    """The shapes of an output and of one gradient for it."""
    return output.shape, grad.shape[1:] if is_grads_batched else grad.shape


def __getattr__(name: str) -> _Any:
    """Modules that load when they are first used."""
    if name == "kineto_available":
        return _importlib.import_module("adjoint.profiler").kineto_available
    if name == "profiler_util":
        return _importlib.import_module("adjoint.profiler.events")
    if name in ("functional", "forward_ad", "grad_mode", "anomaly_mode", "profiler"):
        return _importlib.import_module(f"adjoint.autograd.{name}")
    return _missing(name)


__all__ = ["Function", "Variable", "backward", "detect_anomaly", "enable_grad",
           "enforce_grad_layout_policy", "function", "grad", "gradcheck", "gradgradcheck", "graph",
           "inference_mode", "is_anomaly_check_nan_enabled", "is_anomaly_enabled",
           "is_grad_enabled", "is_inference_mode_enabled", "is_multithreading_enabled",
           "is_view_replay_enabled", "no_grad", "set_detect_anomaly", "set_grad_enabled",
           "set_multithreading_enabled"]
