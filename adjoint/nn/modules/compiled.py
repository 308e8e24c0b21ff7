"""The module that `adjoint.compile` makes of another."""
from __future__ import annotations

from typing import Any

from adjoint.nn.modules.module import Module


class OptimizedModule(Module):
    """What `compile` makes of a module: its only child, `_orig_mod`, is the module, and whatever
    is read, written or deleted here is the module's. Calls run the module, its hooks too; the names
    in `state_dict` begin with ``_orig_mod.``, so that checkpoints of compiled models fit.

    >>> import adjoint as ad
    >>> net = ad.compile(ad.nn.Linear(2, 1))
    >>> list(net.state_dict()), net.in_features
    (['_orig_mod.weight', '_orig_mod.bias'], 2)
    """

    _orig_mod: Module

    def __init__(self, mod: Module) -> None:
        super().__init__()
        self.__dict__["_modules"]["_orig_mod"] = mod

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._modules["_orig_mod"](*args, **kwargs)

    @property
    def training(self) -> bool:
        return self._modules["_orig_mod"].training

    @training.setter
    def training(self, mode: bool) -> None:
        self._modules["_orig_mod"].training = mode

    def __getattr__(self, name: str) -> Any:
        children = self.__dict__.get("_modules") or {}
        if name == "_orig_mod" and name in children:
            return children[name]
        if "_orig_mod" not in children:        # being copied or unpickled
            raise AttributeError(f"'OptimizedModule' object has no attribute '{name}'")
        return getattr(children["_orig_mod"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__ or name in ("forward", "training", "_orig_mod"):
            super().__setattr__(name, value)
        else:
            setattr(self._modules["_orig_mod"], name, value)

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__:
            super().__delattr__(name)
        else:
            delattr(self._modules["_orig_mod"], name)

    def __len__(self) -> int:
        inner: Any = self._modules["_orig_mod"]
        if not hasattr(inner, "__len__"):
            raise TypeError(f"object of type '{type(inner).__name__}' has no len()")
        return len(inner)

    def __bool__(self) -> bool:
        return True

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._modules["_orig_mod"])})
