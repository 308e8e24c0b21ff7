"""The part of Module that holds parameters, buffers and children and walks over them."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Self, cast

from adjoint.autograd.leaves import zero_gradient
from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import Parameter, Tensor
from adjoint.nn.modules._handle import HookTable, typename


class ModuleTree:
    """Registration of and iteration over parameters, buffers and submodules (see Module)."""

    training: bool
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Any]
    _non_persistent_buffers_set: set[str]

    # -- registration -------------------------------------------------------------------------
    def _check_name(self, kind: str, name: object, table: str) -> None:
        if "_parameters" not in self.__dict__:
            plural = "parameters" if kind == "parameter" else kind
            raise AttributeError(f"cannot assign {plural} before Module.__init__() call: "
                                 "begin your __init__ with super().__init__()")
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {typename(name)}")
        if "." in name:
            raise KeyError(f'{kind} name can\'t contain ".", got: {name!r}: a dot separates '
                           "modules in the names of a state_dict")
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')
        if hasattr(self, name) and name not in self.__dict__[table]:
            raise KeyError(f"attribute '{name}' already exists")

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Attach a tensor that is state but not trained, such as a running mean.

        It moves with ``to()`` and, if ``persistent``, is part of ``state_dict()``; None keeps
        the name free of both. Raises TypeError for a value that is no tensor, KeyError for a
        name that is taken, empty or contains a dot.

        >>> import adjoint as ad
        >>> m = ad.nn.Module(); m.register_buffer("mean", ad.zeros(3)); list(m.state_dict())
        ['mean']
        """
        self._check_name("buffer", name, "_buffers")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"cannot assign '{typename(tensor)}' object to buffer '{name}' "
                            "(torch Tensor or None required)")
        self._buffers[name] = cast("Tensor | None", _announce("buffer", self, name, tensor))
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Attach a parameter under ``name``; None reserves the name without a tensor.

        Raises TypeError if ``param`` is no Parameter, ArgumentError if it is no leaf, KeyError
        for a name that is taken, empty or contains a dot.

        >>> import adjoint as ad
        >>> m = ad.nn.Module(); m.register_parameter("w", ad.nn.Parameter(ad.ones(2)))
        >>> [n for n, _ in m.named_parameters()]
        ['w']
        """
        self._check_name("parameter", name, "_parameters")
        if param is None:                       # (reserves the name: not announced)
            self._parameters[name] = None
            return
        if not isinstance(param, Parameter):
            raise TypeError(f"cannot assign '{typename(param)}' object to parameter '{name}' "
                            "(torch.nn.Parameter or None required)")
        if param.grad_fn is not None:
            raise ArgumentError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be "
                "created explicitly: wrap the value in nn.Parameter(value.detach()), and compute "
                "it from other parameters in forward() if it depends on them.")
        self._parameters[name] = cast("Parameter | None", _announce("param", self, name, param))

    def add_module(self, name: str, module: Any) -> None:
        """Attach a submodule under ``name`` (None reserves the name).

        Raises TypeError if it is no Module, KeyError for a name that is taken, empty or
        contains a dot.
        """
        if module is not None and not isinstance(module, ModuleTree):
            raise TypeError(f"{type(module).__name__} is not a Module subclass")
        if not isinstance(name, str):
            raise TypeError(f"module name should be a string. Got {typename(name)}")
        if hasattr(self, name) and name not in self._modules:
            raise KeyError(f"attribute '{name}' already exists")
        if "." in name:
            raise KeyError(f'module name can\'t contain ".", got: {name}')
        if name == "":
            raise KeyError('module name can\'t be empty string ""')
        self._modules[name] = _announce("module", self, name, module)

    def register_module(self, name: str, module: Any) -> None:
        """Another name for ``add_module``."""
        self.add_module(name, module)

    # -- lookup by dotted path ----------------------------------------------------------------
    def get_submodule(self, target: str) -> Any:
        """The submodule at the dotted path ``target``; "" is the module itself.

        Raises AttributeError that names the first step which is missing or no Module.
        """
        found: Any = self
        for step in target.split(".") if target else ():
            if not hasattr(found, step):
                raise AttributeError(f"{found._get_name()} has no attribute `{step}` "
                                     f"(looking for '{target}')", name=step, obj=found)
            found = getattr(found, step)
            if not isinstance(found, ModuleTree):
                raise AttributeError(f"`{step}` is not an nn.Module (looking for '{target}')")
        return found

    def set_submodule(self, target: str, module: Any, strict: bool = False) -> None:
        """Put ``module`` at the dotted path ``target``.

        With ``strict`` the path must exist already; else the last step may be new. Raises
        ArgumentError for an empty path or a value that is no Module, AttributeError for a path
        that does not lead anywhere.
        """
        if target == "":
            raise ArgumentError("Cannot set the submodule without a target name!")
        if not isinstance(module, ModuleTree):
            raise ArgumentError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, last = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, last):
            raise AttributeError(f"{parent._get_name()} has no attribute `{last}`",
                                 name=last, obj=parent)
        if hasattr(parent, last) and not isinstance(getattr(parent, last), ModuleTree):
            raise AttributeError(f"`{last}` is not an nn.Module")
        setattr(parent, last, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at the dotted path ``target``; AttributeError if there is none."""
        path, _, last = target.rpartition(".")
        owner = self.get_submodule(path)
        if not hasattr(owner, last):
            raise AttributeError(f"{owner._get_name()} has no attribute `{last}`",
                                 name=last, obj=owner)
        found = getattr(owner, last)
        if not isinstance(found, Parameter):
            raise AttributeError(f"`{last}` is not an nn.Parameter")
        return found

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at the dotted path ``target``; AttributeError if there is none."""
        path, _, last = target.rpartition(".")
        owner = self.get_submodule(path)
        if not hasattr(owner, last):
            raise AttributeError(f"{owner._get_name()} has no attribute `{last}`",
                                 name=last, obj=owner)
        if last not in owner._buffers:
            raise AttributeError(f"`{last}` is not a buffer")
        return cast(Tensor, owner._buffers[last])

    # -- iteration ----------------------------------------------------------------------------
    def _named_members(self, get_members_fn: Callable[[Any], Any], prefix: str = "",
                       recurse: bool = True, remove_duplicate: bool = True
                       ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        modules = (self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
                   if recurse else [(prefix, self)])
        for path, module in modules:
            for name, value in get_members_fn(module):
                if value is None or id(value) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(value))
                yield path + ("." if path else "") + name, value

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Every parameter once, in order of registration; own ones only if not ``recurse``.

        >>> import adjoint as ad
        >>> [tuple(p.shape) for p in ad.nn.Linear(2, 3).parameters()]
        [(3, 2), (3,)]
        """
        for _, param in self.named_parameters(recurse=recurse):
            yield param

    def named_parameters(self, prefix: str = "", recurse: bool = True,
                         remove_duplicate: bool = True) -> Iterator[tuple[str, Parameter]]:
        """(dotted name, parameter) pairs; a shared one once, under its first name, unless
        ``remove_duplicate`` is False."""
        yield from self._named_members(lambda m: m._parameters.items(), prefix, recurse,
                                       remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Every buffer once."""
        for _, buf in self.named_buffers(recurse=recurse):
            yield buf

    def named_buffers(self, prefix: str = "", recurse: bool = True,
                      remove_duplicate: bool = True) -> Iterator[tuple[str, Tensor]]:
        """(dotted name, buffer) pairs, persistent or not."""
        yield from self._named_members(lambda m: m._buffers.items(), prefix, recurse,
                                       remove_duplicate)

    def children(self) -> Iterator[Any]:
        """The direct submodules, each once."""
        for _, module in self.named_children():
            yield module

    def named_children(self) -> Iterator[tuple[str, Any]]:
        """(name, module) of the direct submodules, each module once."""
        seen: set[int] = set()
        for name, module in self._modules.items():
            if module is not None and id(module) not in seen:
                seen.add(id(module))
                yield name, module

    def modules(self, remove_duplicate: bool = True) -> Iterator[Any]:
        """This module and all below it, each once, parents first."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_modules(self, memo: set[Any] | None = None, prefix: str = "",
                      remove_duplicate: bool = True) -> Iterator[tuple[str, Any]]:
        """(dotted path, module), parents first; modules in ``memo`` are skipped and those that
        were visited are added to it."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                path = prefix + ("." if prefix else "") + name
                yield from module.named_modules(memo, path, remove_duplicate)

    # -- whole-tree switches ------------------------------------------------------------------
    def apply(self, fn: Callable[[Any], Any]) -> Self:
        """Call ``fn(module)`` on every submodule, children first, then on this one."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def train(self, mode: bool = True) -> Self:
        """Set training mode (dropout active, batch statistics used and updated) below here."""
        if not isinstance(mode, bool):
            raise ArgumentError("training mode is expected to be boolean, "
                                f"got {type(mode).__name__}")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Self:
        """Set evaluation mode: the same as ``train(False)``."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Freeze (False) or unfreeze (True) every parameter below here."""
        for param in self.parameters():
            param.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of every parameter (None), or fill them with zeros."""
        for param in self.parameters():
            if param.grad is None:
                continue
            if set_to_none:
                param.grad = None
            else:
                zero_gradient(param.grad)


REGISTRATION_HOOKS: dict[str, HookTable] = {
    "param": HookTable(), "buffer": HookTable(), "module": HookTable()}


def _announce(kind: str, owner: ModuleTree, name: str, value: Any) -> Any:
    """Let the global registration hooks of this kind see, and replace, what is registered."""
    for hook in REGISTRATION_HOOKS[kind].values():
        replaced = hook(owner, name, value)
        if replaced is not None:
            value = replaced
    return value
