"""The names of `torch._C` that programs with `__torch_function__` use."""
from __future__ import annotations

import importlib as _importlib

from adjoint.autograd.engine import running_walk as _running_walk
from adjoint.autograd.modes import is_multithreading_enabled as _is_multithreading
from adjoint.base.errors import AutogradError as _AutogradError
from adjoint.base.errors import DTypeError as _DTypeError
from adjoint.base.errors import NotSupported as _NotSupported
from adjoint.base.errors import missing as _missing
from adjoint.core.intercept import disabled as _disabled_torch_function_impl
from adjoint.core.intercept import silence as _silence
from adjoint.core.tensor import AccumulateGrad as _AccumulateGrad
from adjoint.core.tensor import GraphNode as _GraphNode
from adjoint.core.tensor import Tensor as _Tensor
from adjoint.core.tensor import next_sequence as _next_sequence
from adjoint.core.trace import current_level as _current_level
from adjoint.ops.device import get_default_device as _default_device
from adjoint.ops.generator import Generator as Generator
from adjoint.ops.singular import LinAlgError as _LinAlgError
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


def _current_graph_task_id() -> int:
    """The number of the backward pass that is running in this thread; -1: none is."""
    walk = _running_walk()
    if walk is None:
        return -1
    own = vars(walk)                    # (it has a number once somebody has asked for one)
    if "number" not in own:
        own["number"] = _next_sequence()
    number: int = own["number"]
    return number


def _will_engine_execute_node(node: object) -> bool:
    """Whether the backward pass that is running brings a gradient to that node.

    Errors: RuntimeError outside of a pass, and for a leaf's node in `autograd.grad`."""
    walk = _running_walk()
    if not isinstance(node, _GraphNode):
        raise _DTypeError("_will_engine_execute_node expects an grad_fn, but got "
                          f"{type(node).__name__}")
    if walk is None:
        raise _AutogradError("_get_should_execute_nodes should only be called during the backward "
                             "pass")
    if not walk.capture:
        return walk.reaches(node)
    if isinstance(node, _AccumulateGrad):
        if not walk.into and node in walk.capture:
            raise _AutogradError(
                "A leaf node was passed to _will_engine_execute_node but we are currently running "
                "autograd.grad(). This is currently not supported.")
        return node in walk.capture
    return walk.reaches(node) and node not in walk.ends


def _is_multithreading_enabled() -> bool:
    """What `autograd.set_multithreading_enabled` has set."""
    return _is_multithreading()


def _get_default_device() -> str:
    """The kind of device that tensors are made on."""
    return str(_default_device())


def _is_torch_function_enabled() -> bool:
    """False within `DisableTorchFunctionSubclass` and `DisableTorchFunction`."""
    return _silence() == 0


def _is_torch_function_all_disabled() -> bool:
    """True within `DisableTorchFunction`."""
    return _silence() == 2


def _set_conj(x: _Tensor, conjugate: bool) -> None:
    """Check that a tensor has that bit: here its values are conjugate from its birth."""
    if bool(x.is_conj()) != conjugate:
        raise _NotSupported(f"_set_conj({conjugate}): a tensor is made with that bit or without: "
                            "use x.conj()")


def _set_neg(x: _Tensor, negative: bool) -> None:
    """Check that a tensor has that bit: here its values are negative from its birth."""
    if bool(x.is_neg()) != negative:
        raise _NotSupported(f"_set_neg({negative}): a tensor is made with that bit or without: "
                            "use x.conj().imag")


__all__ = ["DisableTorchFunction", "DisableTorchFunctionSubclass", "Generator", "_LinAlgError",
           "_disabled_torch_function_impl"]
_NAMES = _missing("adjoint._C")


def __getattr__(name: str) -> object:
    if name == "_nn":                   # what `Module.to` of libraries asks it for
        return _importlib.import_module("adjoint.nn.modules.module")
    return _NAMES(name)
