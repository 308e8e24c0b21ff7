"""Parametrizations: a tensor of a module computed from others by modules that you register."""
from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from adjoint.base.errors import ArgumentError, ShapeError
from adjoint.core.tensor import Parameter, Tensor
from adjoint.nn._core import no_grad
from adjoint.nn.modules.container import ModuleDict, ModuleList
from adjoint.nn.modules.module import Module

__all__ = ["ParametrizationList", "cached", "is_parametrized", "register_parametrization",
           "remove_parametrizations", "transfer_parametrizations_and_params",
           "type_before_parametrizations"]

_cache_depth = [0]
_cache: dict[tuple[int, str], Tensor] = {}


@contextmanager
def cached() -> Iterator[None]:
    """Within the block each parametrized tensor is computed once and then reused.

    >>> import adjoint as ad
    >>> with cached():
    ...     pass
    """
    _cache_depth[0] += 1
    try:
        yield
    finally:
        _cache_depth[0] -= 1
        if not _cache_depth[0]:
            _cache.clear()


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, applied in order, and the tensors they start from.

    Holds ``original``, or ``original0``, ``original1``, ... if the first ``right_inverse``
    returns a sequence. Calling it gives the tensor.
    """

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if len(modules) == 0:
            raise ArgumentError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        with no_grad():
            new: Any = original
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    with suppress(NotImplementedError):     # it has none for these options
                        new = module.right_inverse(new)
        self.is_tensor = isinstance(new, Tensor)
        if not self.is_tensor and not isinstance(new, Sequence):
            raise ArgumentError("'right_inverse' must return a Tensor or a Sequence of tensors "
                                f"(list, tuple...). Got {type(new).__name__}")
        wanted = original.requires_grad
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor:
            self._hold("original", new, isinstance(original, Parameter), wanted, original)
        else:
            for i, part in enumerate(new):
                if not isinstance(part, Tensor):
                    raise ArgumentError("'right_inverse' must return a Tensor or a Sequence of "
                                        f"tensors (list, tuple...). Got element {i} of the "
                                        f"sequence with type {type(part).__name__}.")
                self._hold(f"original{i}", part, isinstance(original, Parameter), wanted, original)
        if not unsafe:
            self._check_forward(original)

    def _hold(self, name: str, value: Tensor, as_parameter: bool, wanted: bool,
              original: Tensor) -> None:
        if not as_parameter:
            self.register_buffer(name, value)
        elif value is original:
            setattr(self, name, value)
        elif isinstance(original, Parameter) and self.is_tensor and (
                value.shape == original.shape and value.dtype == original.dtype):
            with no_grad():  # optimizers that know the original go on with it
                original.set_(value)    # (what shows the old memory keeps its numbers)
            setattr(self, name, original)
        else:
            floating = value.is_floating_point() or value.is_complex()
            setattr(self, name, Parameter(value.detach(), requires_grad=wanted and floating))

    def _check_forward(self, original: Tensor) -> None:
        got = self()
        if not isinstance(got, Tensor):
            raise ArgumentError("A parametrization must return a tensor. Got "
                                f"{type(got).__name__}.")
        if got.dtype != original.dtype:
            raise ArgumentError("Registering a parametrization may not change the dtype of the "
                                "tensor, unless `unsafe` flag is enabled.\nunparametrized dtype: "
                                f"{original.dtype}\nparametrized dtype: {got.dtype}")
        if got.shape != original.shape:
            raise ShapeError("Registering a parametrization may not change the shape of the "
                             "tensor, unless `unsafe` flag is enabled.\nunparametrized shape: "
                             f"{original.shape}\nparametrized shape: {got.shape}")

    def right_inverse(self, value: Tensor) -> None:
        """Assign: set the originals so that the parametrized tensor is ``value``."""
        with no_grad():
            new: Any = value
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise ArgumentError(f"parametrization {type(module).__name__} does not "
                                        "implement right_inverse, so its tensor cannot be "
                                        "assigned")
                new = module.right_inverse(new)
            if self.is_tensor:
                self.original.data = new
            else:
                for i, part in enumerate(new):
                    getattr(self, f"original{i}").data = part

    def forward(self) -> Tensor:
        if self.is_tensor:
            x = self[0](self.original)
        else:
            x = self[0](*(getattr(self, f"original{i}") for i in range(self.ntensors)))
        for module in list(self)[1:]:
            x = module(x)
        out: Tensor = x
        return out


def _inject_class(module: Module) -> None:
    """Give ``module`` a class of its own, so that properties can be put on it."""
    base = module.__class__

    def refuse_pickle(self: Module) -> Any:
        raise ArgumentError("Serialization of parametrized modules is only supported through "
                            "state_dict(). See:\nhttps://pytorch.org/tutorials/beginner/"
                            "saving_loading_models.html#saving-loading-a-general-checkpoint-for-"
                            "inference-and-or-resuming-training\nor remove the parametrizations "
                            "first")

    def deep_copy(self: Module, memo: dict[int, Any]) -> Module:
        made = self.__new__(self.__class__)
        memo[id(self)] = made
        made.__dict__ = copy.deepcopy(self.__dict__, memo)
        made.__class__ = type(self.__class__.__name__, self.__class__.__bases__,
                              dict(self.__class__.__dict__))
        return made

    members: dict[str, Any] = {"__getstate__": refuse_pickle,
                               "__module__": ParametrizationList.__module__}
    if not hasattr(base, "__deepcopy__"):
        members["__deepcopy__"] = deep_copy
    module.__class__ = type(f"Parametrized{base.__name__}", (base,), members)


def _inject_property(module: Module, name: str) -> None:
    def get(self: Module) -> Tensor:
        if not _cache_depth[0]:
            value: Tensor = self.parametrizations[name]()
            return value
        key = (id(self), name)
        if key not in _cache:
            _cache[key] = self.parametrizations[name]()
        return _cache[key]

    def put(self: Module, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    setattr(module.__class__, name, property(get, put))


def register_parametrization(module: Module, tensor_name: str, parametrization: Module, *,
                             unsafe: bool = False) -> Module:
    """Compute ``module.<tensor_name>`` as ``parametrization(original)`` from now on.

    The parametrization may have ``right_inverse(value)``, which makes the tensor assignable and
    gives the first original. More than one may be registered: they are applied in order. Unless
    ``unsafe``, shape and dtype must stay. Raises ArgumentError if there is no such tensor.

    >>> import adjoint as ad
    >>> class Symmetric(ad.nn.Module):
    ...     def forward(self, x):
    ...         return x.triu() + x.triu(1).transpose(-1, -2)
    >>> m = register_parametrization(ad.nn.Linear(3, 3), "weight", Symmetric())
    >>> bool((m.weight == m.weight.t()).all())
    True
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        chain = module.parametrizations[tensor_name]
        if not unsafe:
            with no_grad():
                before = getattr(module, tensor_name)
                after = parametrization(before)
            if after.shape != before.shape or after.dtype != before.dtype:
                changed = "shape" if after.shape != before.shape else "dtype"
                raise ShapeError(f"Registering a parametrization may not change the {changed} of "
                                 "the tensor, unless the `unsafe` flag is enabled: "
                                 f"{before.dtype} {tuple(before.shape)} became "
                                 f"{after.dtype} {tuple(after.shape)}")
        chain.append(parametrization)
        chain.unsafe = chain.unsafe or unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        original = getattr(module, tensor_name)
        made = ParametrizationList([parametrization], original, unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _inject_class(module)
            module.parametrizations = ModuleDict()
        _inject_property(module, tensor_name)
        module.parametrizations[tensor_name] = made
    else:
        raise ArgumentError(f"Module '{module}' does not have a parameter, a buffer, "
                            f"or a parametrized element with name '{tensor_name}'")
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """True if the module (or that tensor of it) is parametrized."""
    chains = module.__dict__.get("_modules", {}).get("parametrizations")
    if not isinstance(chains, ModuleDict):
        return False
    return len(chains) > 0 if tensor_name is None else tensor_name in chains


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True
                            ) -> Module:
    """Undo every parametrization of a tensor.

    With ``leave_parametrized`` it keeps its present value, else it gets the original back, which
    works for a single original only.
    """
    if not is_parametrized(module, tensor_name):
        raise ArgumentError(f"Module {module} does not have a parametrization on "
                            f"{tensor_name}")
    chain = module.parametrizations[tensor_name]
    if not chain.is_tensor and not leave_parametrized:
        raise ArgumentError("Cannot leave unparametrized (`leave_parametrized=False`) a tensor "
                            "that is parametrized in terms of a sequence of tensors.")
    original = chain.original if chain.is_tensor else chain.original0
    if leave_parametrized:
        with no_grad():
            value = getattr(module, tensor_name).detach().clone()
        if chain.is_tensor and value.shape == original.shape and value.dtype == original.dtype:
            with no_grad():
                original.set_(value)    # (what shows the old memory keeps its numbers)
        else:
            original = (Parameter(value, requires_grad=original.requires_grad)
                        if isinstance(original, Parameter) else value)
    delattr(module.__class__, tensor_name)
    del module.parametrizations[tensor_name]
    if isinstance(original, Parameter):
        module.register_parameter(tensor_name, original)
    else:
        module.register_buffer(tensor_name, original)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = module.__class__.__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class of the module as it was before parametrizations."""
    return module.__class__.__bases__[0] if is_parametrized(module) else module.__class__


def transfer_parametrizations_and_params(from_module: Module, to_module: Module,
                                         tensor_name: str | None = None) -> Module:
    """Give ``to_module`` deep copies of the parametrizations and originals of ``from_module``."""
    if not is_parametrized(from_module):
        return to_module
    names = list(from_module.parametrizations) if tensor_name is None else [tensor_name]
    for name in names:
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach().clone()))
        source = from_module.parametrizations[name]
        for parametrization in source:
            register_parametrization(to_module, name, copy.deepcopy(parametrization),
                                     unsafe=source.unsafe)
        target = to_module.parametrizations[name]
        kept = ["original"] if source.is_tensor else [f"original{i}"
                                                      for i in range(source.ntensors)]
        for key in kept:
            setattr(target, key, copy.deepcopy(getattr(source, key)))
    return to_module
