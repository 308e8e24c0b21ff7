"""state_dict and load_state_dict of Module."""
from __future__ import annotations

import difflib
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from adjoint.base.errors import ArgumentError
from adjoint.core.modes import warn
from adjoint.core.tensor import Parameter, Tensor, wrap
from adjoint.nn._core import no_grad
from adjoint.nn.modules._conversion import CONVERSION, loaded
from adjoint.nn.modules._handle import HookTable, RemovableHandle, add_hook
from adjoint.nn.modules._tree import ModuleTree
from adjoint.nn.parameter import is_lazy

EXTRA_STATE = "_extra_state"


class _IncompatibleKeys(NamedTuple):
    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return (f"_IncompatibleKeys(missing_keys={self.missing_keys}, "
                f"unexpected_keys={self.unexpected_keys})")

    def __str__(self) -> str:
        return repr(self)


class _Errors(list[str]):
    """Error messages of one load, and the copies that are made once there are none."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: list[Callable[[], None]] = []


class _Hook:
    """A load pre-hook that may or may not take the module as first argument."""

    def __init__(self, hook: Callable[..., Any], module: Any) -> None:
        self.hook, self.module = hook, module

    def __call__(self, *args: Any) -> Any:
        return self.hook(*args) if self.module is None else self.hook(self.module, *args)


class ModuleState(ModuleTree):
    """Saving to and loading from flat dictionaries of tensors (see Module)."""

    _version: int
    _state_dict_hooks: HookTable
    _state_dict_pre_hooks: HookTable
    _load_state_dict_pre_hooks: HookTable
    _load_state_dict_post_hooks: HookTable

    def get_extra_state(self) -> Any:
        """Override together with ``set_extra_state`` to keep more than tensors in state_dict."""
        raise ArgumentError("Reached a code path in Module.get_extra_state() that should never "
                            "be called: override it, or do not call it.")

    def set_extra_state(self, state: Any) -> None:
        """Override to take back what ``get_extra_state`` returned."""
        raise ArgumentError("Reached a code path in Module.set_extra_state() that should never "
                            f"be called: {type(self).__name__} got extra state "
                            f"{type(state).__name__} but does not override it.")

    # -- saving -------------------------------------------------------------------------------
    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "",
                   keep_vars: bool = False) -> Any:
        """All parameters and persistent buffers by dotted name, in order of registration.

        Values share memory with the module and are detached unless ``keep_vars``. ``destination``
        is a mapping to fill, ``prefix`` is put before every name.

        >>> import adjoint as ad
        >>> list(ad.nn.Sequential(ad.nn.Linear(1, 2), ad.nn.ReLU()).state_dict())
        ['0.weight', '0.bias']
        """
        if args:  # the old positional order: destination, prefix, keep_vars
            warnings.warn("Positional args are being deprecated, use kwargs instead: "
                          "state_dict(destination=, prefix=, keep_vars=)", FutureWarning,
                          stacklevel=2)
            destination = args[0] if destination is None else destination
            prefix = args[1] if len(args) > 1 and prefix == "" else prefix
            keep_vars = args[2] if len(args) > 2 and keep_vars is False else keep_vars
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        local_metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local_metadata
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=prefix + name + ".",
                                  keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            answer = hook(self, destination, prefix, local_metadata)
            if getattr(hook, "_from_public_api", False):
                if answer is not None:
                    raise ArgumentError("state_dict post-hook must return None: change the "
                                        "dictionary it is given in place")
            elif answer is not None:
                destination = answer
        return destination

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        for name, param in self._parameters.items():
            if param is not None:
                destination[prefix + name] = _shown(param, keep_vars)
        for name, buf in self._buffers.items():
            if buf is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = _shown(buf, keep_vars)
        if type(self).get_extra_state is not ModuleState.get_extra_state:
            destination[prefix + EXTRA_STATE] = self.get_extra_state()

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, state_dict, prefix, local_metadata)`` after state_dict is filled."""
        hook._from_public_api = True  # type: ignore[attr-defined]  # marks who may not return
        return add_hook(self._state_dict_hooks, hook)

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        if getattr(hook, "_from_public_api", False):
            raise ArgumentError("Cannot register the same function as the state dict post hook "
                                "that was previously registered via register_state_dict_post_hook")
        return add_hook(self._state_dict_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, prefix, keep_vars)`` before state_dict is filled."""
        return add_hook(self._state_dict_pre_hooks, hook)

    # -- loading ------------------------------------------------------------------------------
    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, state_dict, prefix, local_metadata, strict, missing_keys,
        unexpected_keys, error_msgs)`` before this module takes its entries."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(self, hook: Callable[..., Any],
                                           with_module: bool = False) -> RemovableHandle:
        return add_hook(self._load_state_dict_pre_hooks,
                        _Hook(hook, self if with_module else None))

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, incompatible_keys)`` after loading; it may edit the two lists."""
        return add_hook(self._load_state_dict_post_hooks, hook)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True,
                        assign: bool = False) -> _IncompatibleKeys:
        """Copy the tensors of ``state_dict`` into this module; returns what did not match.

        ``strict``: a missing or unexpected name is an error. ``assign``: take the tensors
        themselves instead of copying (dtype included). Raises ArgumentError (a RuntimeError)
        listing every mismatch; nothing has been copied then, unless a load post-hook is there.

        >>> import adjoint as ad
        >>> a, b = ad.nn.Linear(2, 1), ad.nn.Linear(2, 1)
        >>> a.load_state_dict(b.state_dict())
        <All keys matched successfully>
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError("Expected state_dict to be dict-like, got "
                            f"{type(state_dict)}: pass what state_dict() returned.")
        missing: list[str] = []
        unexpected: list[str] = []
        errors = _Errors()
        metadata = getattr(state_dict, "_metadata", None)
        given: Any = OrderedDict(state_dict)
        if metadata is not None:
            given._metadata = metadata
        _load(self, given, "", metadata, assign, missing, unexpected, errors)
        post = [(m, h) for m in _children_first(self)
                for h in m._load_state_dict_post_hooks.values()]
        if post and not errors:
            _commit(errors)
        for module, hook in post:
            if hook(module, _IncompatibleKeys(missing, unexpected)) is not None:
                raise AssertionError("Hooks registered with ``register_load_state_dict_post_hook`` "
                                     "are not expected to return new values, if "
                                     "incompatible_keys need to be modified, it should be done "
                                     "inplace.")
        if strict:
            _list_keys(errors, "Unexpected", unexpected)
            _list_keys(errors, "Missing", missing)
        if errors:
            raise ArgumentError(
                "Error(s) in loading state_dict for {}:\n\t{}{}".format(
                    self.__class__.__name__, "\n\t".join(errors), _hint(missing, unexpected)))
        _commit(errors)
        return _IncompatibleKeys(missing, unexpected)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: dict[str, Any],
                              strict: bool, missing_keys: list[str], unexpected_keys: list[str],
                              error_msgs: list[str]) -> None:
        """Take this module's own entries (not its children's) out of ``state_dict``."""
        for hook in self._load_state_dict_pre_hooks.values():
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
                 error_msgs)
        own: dict[str, Any] = {k: v for k, v in self._parameters.items() if v is not None}
        own.update((k, v) for k, v in self._buffers.items()
                   if v is not None and k not in self._non_persistent_buffers_set)
        assign = local_metadata.get("assign_to_params_buffers", False)
        for name, param in own.items():
            key = prefix + name
            if key not in state_dict:
                if strict:
                    missing_keys.append(key)
                continue
            self._load_one(name, key, param, state_dict[key], assign, error_msgs)
        extra = prefix + EXTRA_STATE
        if type(self).set_extra_state is not ModuleState.set_extra_state:
            if extra in state_dict:
                self.set_extra_state(state_dict[extra])
            elif strict:
                missing_keys.append(extra)
        elif strict and extra in state_dict:
            unexpected_keys.append(extra)
        if strict:
            for key in state_dict:
                if key.startswith(prefix) and key != extra:
                    head, *rest = key[len(prefix):].split(".", 1)
                    if (head not in self._modules) if rest else (head not in own):
                        unexpected_keys.append(key)

    def _load_one(self, name: str, key: str, param: Any, value: Any, assign: bool,
                  error_msgs: list[str]) -> None:
        if isinstance(value, (np.ndarray, np.generic)):
            value = wrap(np.asarray(value))
        if not isinstance(value, Tensor):
            error_msgs.append(f'While copying the parameter named "{key}", expected a Tensor or '
                              f"NumPy array from checkpoint but received {type(value)}")
            return
        if is_lazy(param) and is_lazy(value):           # neither has a shape yet
            return
        if param.ndim == 0 and value.ndim == 1 and value.shape[0] == 1:
            value = value[0]  # scalars were saved with one axis by old versions
        if tuple(value.shape) != tuple(param.shape):
            error_msgs.append(
                f"size mismatch for {key}: copying a param with shape "
                f"torch.Size({list(value.shape)}) from checkpoint, the shape in current model is "
                f"torch.Size({list(param.shape)}).")
            return

        if param.is_meta and not value.is_meta and not assign:
            warn(f"for {key}: copying from a non-meta parameter in the checkpoint to a meta "
                 "parameter in the current model, which is a no-op. (Did you mean to pass "
                 "`assign=True` to assign items in the state dictionary to their corresponding key "
                 "in the module instead of copying them in place?)")

        if value.is_meta and not param.is_meta and not assign:
            error_msgs.append(f'While copying the parameter named "{key}", a tensor on the meta '
                              "device was found: Cannot copy out of meta tensor; no data!")
            return

        def put() -> None:
            with no_grad():
                if CONVERSION["swap"]:
                    loaded(param, value, assign, key)
                elif assign:
                    if isinstance(param, Parameter):
                        taken = value if isinstance(value, Parameter) else Parameter(value.detach())
                        setattr(self, name, taken.requires_grad_(param.requires_grad))
                    else:
                        setattr(self, name, value)
                else:
                    param.copy_(value)

        if isinstance(error_msgs, _Errors):
            error_msgs.copies.append(put)
        else:  # called by user code with a list of its own
            put()


def _shown(tensor: Any, keep_vars: bool) -> Any:
    return tensor if keep_vars or is_lazy(tensor) else tensor.detach()


def _load(module: Any, state_dict: Any, prefix: str, metadata: Any, assign: bool,
          missing: list[str], unexpected: list[str], errors: _Errors) -> None:
    """Load ``module`` and its children; every mismatch is noted, whether it is an error is
    decided by the caller."""
    local_metadata = {} if metadata is None else metadata.get(prefix[:-1], {})
    if assign:
        local_metadata = {**local_metadata, "assign_to_params_buffers": True}
    module._load_from_state_dict(state_dict, prefix, local_metadata, True, missing, unexpected,
                                 errors)
    for name, child in module._modules.items():
        if child is not None:
            below = prefix + name + "."
            part: Any = OrderedDict((k, v) for k, v in state_dict.items() if k.startswith(below))
            _load(child, part, below, metadata, assign, missing, unexpected, errors)


def _children_first(module: Any) -> list[Any]:
    return [m for c in module._modules.values() if c is not None
            for m in _children_first(c)] + [module]


def _commit(errors: _Errors) -> None:
    for put in errors.copies:
        put()
    errors.copies.clear()


def _list_keys(errors: list[str], kind: str, keys: list[str]) -> None:
    if keys:
        errors.insert(0, "{} key(s) in state_dict: {}. ".format(
            kind, ", ".join(f'"{k}"' for k in keys)))


def _hint(missing: list[str], unexpected: list[str]) -> str:
    """What probably went wrong with the names, as a last line; empty if nothing is obvious."""
    if not missing or not unexpected:
        return ""
    for some, other, act in ((unexpected, missing, "strip"), (missing, unexpected, "add")):
        wanted = set(other)
        heads = {key.split(".", 1)[0] + "." for key in some if "." in key}
        for head in sorted(heads):
            if any(k.startswith(head) and k[len(head):] in wanted for k in some):
                name = f"k.removeprefix('{head}')" if act == "strip" else f"'{head}' + k"
                fix = f"{{{name}: v for k, v in state_dict.items()}}"
                return f"\n\thint: the names differ by the prefix '{head}': load {fix}"
    pairs = [(m, difflib.get_close_matches(m, unexpected, 1)) for m in missing[:3]]
    close = [f'"{m}" is perhaps "{c[0]}"' for m, c in pairs if c]
    return f"\n\thint: {'; '.join(close)}" if close else ""
