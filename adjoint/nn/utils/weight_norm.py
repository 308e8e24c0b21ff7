"""Weight normalization by hooks (Salimans and Kingma 2016)."""
from __future__ import annotations

from typing import Any, TypeVar

from adjoint.base.errors import ArgumentError
from adjoint.core.modes import warn
from adjoint.core.tensor import Parameter, Tensor
from adjoint.nn.modules.module import Module

__all__ = ["WeightNorm", "norm_except", "remove_weight_norm", "weight_norm"]

M = TypeVar("M", bound=Module)


def norm_except(v: Tensor, dim: int) -> Tensor:
    """The 2-norm over all axes but ``dim``, which are kept with size 1; of everything, as a 0-d
    tensor, for dim -1."""
    if dim == -1:
        out: Tensor = (v * v).sum().sqrt()
        return out
    axes = [i for i in range(v.ndim) if i != dim % v.ndim]
    out = ((v * v).sum(axes, keepdim=True) if axes else v * v).sqrt()
    return out


class WeightNorm:
    """The forward pre-hook that sets ``weight = g v / |v|``."""

    def __init__(self, name: str, dim: int) -> None:
        self.name, self.dim = name, dim

    def compute_weight(self, module: Module) -> Tensor:
        """The weight from the module's two parameters."""
        g, v = getattr(module, self.name + "_g"), getattr(module, self.name + "_v")
        out: Tensor = v * (g / norm_except(v, self.dim))
        return out

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Split parameter ``name`` into its length ``name_g`` (along ``dim``; None: one for all) and
    direction ``name_v``; the weight is computed from them before every forward.

    Raises ArgumentError if it is there already.

    >>> import adjoint as ad
    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore", category=FutureWarning):
    ...     m = weight_norm(ad.nn.Linear(2, 3))
    >>> sorted(n for n, _ in m.named_parameters())
    ['bias', 'weight_g', 'weight_v']
    """
    warn("`torch.nn.utils.weight_norm` is deprecated in favor of "
         "`torch.nn.utils.parametrizations.weight_norm`.", FutureWarning)
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, WeightNorm) and hook.name == name:
            raise ArgumentError("Cannot register two weight_norm hooks on the same parameter "
                                + name)
    fn = WeightNorm(name, -1 if dim is None else dim)
    weight = getattr(module, name)
    del module._parameters[name]
    module.register_parameter(name + "_g", Parameter(norm_except(weight, fn.dim).detach()))
    module.register_parameter(name + "_v", Parameter(weight.detach()))
    setattr(module, name, fn.compute_weight(module))
    module.register_forward_pre_hook(fn)
    return module


def remove_weight_norm(module: M, name: str = "weight") -> M:
    """Undo ``weight_norm``: the weight is a parameter again, with its present value."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, WeightNorm) and hook.name == name:
            weight = hook.compute_weight(module)
            delattr(module, name)
            del module._parameters[name + "_g"], module._parameters[name + "_v"]
            setattr(module, name, Parameter(weight.detach()))
            del module._forward_pre_hooks[key]
            return module
    raise ArgumentError(f"weight_norm of '{name}' not found in {module}")
