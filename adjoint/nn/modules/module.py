"""Module: the base class of all layers and models."""
from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Self

from adjoint.base import dtypes
from adjoint.base.errors import ArgumentError, DTypeError, MetaError, NotSupported
from adjoint.core.tensor import Parameter, Tensor
from adjoint.nn.modules._conversion import converted
from adjoint.nn.modules._handle import HookTable, RemovableHandle, add_hook, typename
from adjoint.nn.modules._hooks import (
    ModuleHooks,
    register_module_backward_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
)
from adjoint.nn.modules._state import EXTRA_STATE, ModuleState
from adjoint.nn.modules._state import _IncompatibleKeys as _IncompatibleKeys
from adjoint.nn.modules._tree import REGISTRATION_HOOKS
from adjoint.nn.parameter import Buffer, is_lazy
from adjoint.ops.device import check

_EXTRA_STATE_KEY_SUFFIX = EXTRA_STATE   # PyTorch's name for it
__all__ = [
    "Module", "RemovableHandle", "register_module_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook", "register_module_forward_pre_hook",
    "register_module_full_backward_hook", "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook", "register_module_parameter_registration_hook",
]

_TABLES = ("_backward_pre_hooks", "_backward_hooks", "_forward_hooks",
           "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks",
           "_forward_pre_hooks_with_kwargs", "_state_dict_hooks", "_state_dict_pre_hooks",
           "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks")


def _no_forward(self: Module, *input: Any) -> None:
    """What a call of the module computes; every subclass defines its own."""
    raise NotSupported(f'Module [{type(self).__name__}] is missing the required "forward" '
                       "function: define forward(self, ...) in the class")


class Module(ModuleHooks, ModuleState):
    """A layer or model: holds parameters, buffers and submodules, and computes ``forward``.

    A Parameter, Buffer or Module that is assigned to an attribute is registered under that name
    and from then on found by ``parameters()``, ``state_dict()``, ``to()`` and the rest. Call the
    module itself, not ``forward``, so that hooks run.

    >>> import adjoint as ad
    >>> class Scale(ad.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.factor = ad.nn.Parameter(ad.tensor(2.0))
    ...     def forward(self, x):
    ...         return x * self.factor
    >>> m = Scale()
    >>> m(ad.tensor(3.0)).item(), [name for name, _ in m.named_parameters()]
    (6.0, ['factor'])
    """

    dump_patches: bool = False
    _version: int = 1
    call_super_init: bool = False
    _compiled_call_impl: None = None     # PyTorch's; libraries ask for it
    forward: Callable[..., Any] = _no_forward

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init and (args or kwargs):
            got = next(iter(kwargs)) if kwargs else None
            raise TypeError(
                f"{type(self).__name__}.__init__() got an unexpected keyword argument '{got}'"
                if kwargs else f"{type(self).__name__}.__init__() takes 1 positional argument "
                f"but {len(args) + 1} were given")
        state = self.__dict__  # past __setattr__, which needs these tables
        state["training"] = True
        state["_parameters"] = {}
        state["_buffers"] = {}
        state["_non_persistent_buffers_set"] = set()
        state["_modules"] = {}
        for table in _TABLES:
            state[table] = OrderedDict()
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    # -- attributes ---------------------------------------------------------------------------
    def __getattr__(self, name: str) -> Any:
        get = self.__dict__.get
        for table in ("_parameters", "_buffers", "_modules"):
            held = get(table)
            if held is not None and name in held:
                return held[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'",
                             name=name, obj=self)

    def __setattr__(self, name: str, value: Any) -> None:
        state = self.__dict__
        if isinstance(value, Tensor) and isinstance(value, Parameter):
            self._forget(name, "_buffers", "_modules")
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            if "_modules" not in state:
                raise AttributeError("cannot assign module before Module.__init__() call: "
                                     "begin your __init__ with super().__init__()")
            self._forget(name, "_parameters", "_buffers")
            for hook in REGISTRATION_HOOKS["module"].values():
                value = hook(self, name, value) or value
            state["_modules"][name] = value
        elif name in state.get("_parameters", ()):
            if value is not None:
                raise TypeError(f"cannot assign '{typename(value)}' as parameter '{name}' "
                                "(torch.nn.Parameter or None expected): to change its values "
                                f"write into it under no_grad, self.{name}.copy_(...)")
            self.register_parameter(name, value)
        elif name in state.get("_modules", ()):
            if value is not None:
                raise TypeError(f"cannot assign '{typename(value)}' as child module '{name}' "
                                "(torch.nn.Module or None expected)")
            state["_modules"][name] = value
        elif name in state.get("_buffers", ()) or isinstance(value, Buffer):
            self._set_buffer(name, value)
        else:
            object.__setattr__(self, name, value)

    def _set_buffer(self, name: str, value: Any) -> None:
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(f"cannot assign '{typename(value)}' as buffer '{name}' "
                            "(torch.nn.Buffer, torch.Tensor or None expected)")
        if isinstance(value, Buffer):
            self._forget(name, "_parameters", "_modules")
            self.register_buffer(name, value, value.persistent)
        else:
            for hook in REGISTRATION_HOOKS["buffer"].values():
                value = hook(self, name, value) or value
            self._buffers[name] = value

    def _forget(self, name: str, *tables: str) -> None:
        """Take ``name`` out of the plain attributes and out of these tables."""
        state = self.__dict__
        state.pop(name, None)
        for table in tables:
            state.get(table, {}).pop(name, None)
        if "_buffers" in tables:
            state.get("_non_persistent_buffers_set", set()).discard(name)

    def __delattr__(self, name: str) -> None:
        for table in ("_parameters", "_buffers", "_modules"):
            if name in self.__dict__.get(table, ()):
                del self.__dict__[table][name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        keys = {*dir(type(self)), *self.__dict__, *self._parameters, *self._modules,
                *self._buffers}
        return sorted(key for key in keys if not key[0].isdigit())

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for table in _TABLES:
            self.__dict__.setdefault(table, OrderedDict())
        self.__dict__.setdefault("_non_persistent_buffers_set", set())

    # -- conversion ---------------------------------------------------------------------------
    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Replace the values of every parameter, gradient and buffer by ``fn`` of them;
        parameters stay the same objects, so optimizers keep working, unless ``__future__`` says
        otherwise."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        for key, param in self._parameters.items():
            if param is None:
                continue
            if is_lazy(param):
                param.convert(fn)
            else:
                self._parameters[key] = converted(self, key, param, fn)
        for name, buf in self._buffers.items():
            if buf is not None and is_lazy(buf):
                buf.convert(fn)
            elif buf is not None:
                self._buffers[name] = fn(buf)
        return self

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Move or cast parameters and buffers: ``to(device)``, ``to(dtype)``,
        ``to(device, dtype)``, ``to(tensor)``; ``to(memory_format=)`` lays parameters and
        buffers of 4 and 5 axes out so.

        Only floating and complex tensors are cast. Raises DTypeError for a dtype that is
        neither.

        >>> import adjoint as ad
        >>> ad.nn.Linear(2, 2).to(ad.float64).weight.dtype
        adjoint.float64
        """
        device, dtype, _, form = _parse_to(*args, **kwargs)
        if dtype is not None and not dtypes.is_inexact(dtypes.to_numpy(dtype)):
            raise DTypeError("nn.Module.to only accepts floating point or complex dtypes, but "
                             f"got desired dtype={dtype}")
        if dtype is not None and dtypes.to_numpy(dtype).kind == "c":
            warnings.warn("Complex modules are a new feature under active development: not every "
                          "layer takes complex tensors", stacklevel=2)

        def convert(t: Tensor) -> Tensor:
            if device is not None and t.is_meta and check(device) != "meta":
                raise MetaError("Cannot copy out of meta tensor; no data! Please use torch.nn."
                                "Module.to_empty() instead of torch.nn.Module.to() when moving "
                                "module from meta to a different device.")
            cast = dtype if dtype is not None and _inexact(t) else None
            if form is not None and t.ndim in (4, 5):
                return t.to(device, cast, memory_format=form)
            if device is None:
                return t if cast is None else t.to(cast)
            return t.to(device) if cast is None else t.to(device, cast)

        return self._apply(convert)

    def to_empty(self, *, device: Any, recurse: bool = True) -> Self:
        """Give every parameter and buffer new, uninitialized storage on ``device``."""
        return self._apply(lambda t: t.new_empty(t.shape, device=device), recurse=recurse)

    def type(self, dst_type: Any) -> Self:
        """Cast every parameter and buffer, integer ones included, to ``dst_type``."""
        return self._apply(lambda t: t.type(dst_type))

    def float(self) -> Self:
        """Cast floating parameters and buffers to float32."""
        return self._cast_real(dtypes.float32)

    def double(self) -> Self:
        """Cast floating parameters and buffers to float64."""
        return self._cast_real(dtypes.float64)

    def half(self) -> Self:
        """Cast floating parameters and buffers to float16."""
        return self._cast_real(dtypes.float16)

    def bfloat16(self) -> Self:
        """Cast floating parameters and buffers to bfloat16 (needs the ``amp`` extra)."""
        return self._cast_real(dtypes.bfloat16)

    def _cast_real(self, dtype: dtypes.DType) -> Self:
        return self._apply(lambda t: t.to(dtype) if dtypes.is_float(t.array.dtype) else t)

    def cpu(self) -> Self:
        """Everything lives on the CPU already: returns the module."""
        return self._apply(lambda t: t.cpu())

    def cuda(self, device: Any = None) -> Self:
        """Raises as Tensor.cuda does: there is no CUDA device here."""
        return self._apply(lambda t: t.cuda(device))

    def xpu(self, device: Any = None) -> Self:
        """Raises as Tensor.xpu does: there is no XPU device here."""
        return self._apply(lambda t: t.xpu(device))

    def share_memory(self) -> Self:
        """Move parameters and buffers to memory that other processes write to as well."""
        return self._apply(lambda t: t.share_memory_())

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Accepted for programs that call it; the module runs as it is."""

    def _compiled(self) -> Module:
        """What `adjoint.compile` makes of the module; a compiled one is it already."""
        from adjoint.nn.modules.compiled import OptimizedModule
        return self if isinstance(self, OptimizedModule) else OptimizedModule(self)

    # -- printing -----------------------------------------------------------------------------
    def _get_name(self) -> str:
        return self.__class__.__name__

    def extra_repr(self) -> str:
        """What is printed between the parentheses; override to show settings."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [f"({key}): " + _addindent(repr(module), 2)
                    for key, module in self._modules.items()]
        if not children and len(lines) <= 1:
            return f"{self._get_name()}({extra})"
        return f"{self._get_name()}(\n  " + "\n  ".join(lines + children) + "\n)"


def _addindent(s_: str, numSpaces: int) -> str:
    """`s_` with every line but the first moved right: programs print their own modules so."""
    return s_.replace("\n", "\n" + " " * numSpaces)


def _inexact(t: Tensor) -> bool:
    return dtypes.is_inexact(t.array.dtype)


def _parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """(device, dtype, non_blocking, memory_format) out of the accepted argument forms of
    ``Module.to``."""
    device, dtype = kwargs.get("device"), kwargs.get("dtype")
    unknown = set(kwargs) - {"device", "dtype", "tensor", "non_blocking", "memory_format"}
    if unknown:
        raise TypeError(f"to() received an invalid combination of arguments: unexpected "
                        f"{sorted(unknown)}; accepted: (device, dtype), (dtype), (tensor)")
    for value in (*args, kwargs.get("tensor")):
        if isinstance(value, Tensor):
            device, dtype = value.device, value.dtype
        elif isinstance(value, dtypes.DType):
            dtype = value
        elif value is None or isinstance(value, bool):
            continue  # non_blocking has no meaning on the CPU
        elif isinstance(value, (str, int)) or hasattr(value, "type"):
            device = value
        else:
            raise ArgumentError(f"to() got {value!r}: expected a device, a floating dtype or a "
                                "tensor")
    return device, dtype, bool(kwargs.get("non_blocking")), kwargs.get("memory_format")


def _table(kind: str) -> HookTable:
    return REGISTRATION_HOOKS[kind]


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, name, buffer)`` when any module registers a buffer; a value that it
    returns is registered instead."""
    return add_hook(_table("buffer"), hook)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, name, submodule)`` when any module registers a submodule."""
    return add_hook(_table("module"), hook)


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, name, param)`` when any module registers a parameter."""
    return add_hook(_table("param"), hook)
