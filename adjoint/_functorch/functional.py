"""`functorch` and `torch._functorch`: the names of `func`, and modules as functions of their
parameters in functorch's older way.

    >>> import adjoint as ad
    >>> from adjoint._functorch.functional import make_functional
    >>> f, params = make_functional(ad.nn.Linear(2, 1))
    >>> f(params, ad.ones(3, 2)).shape
    adjoint.Size([3, 1])
"""
from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from adjoint import func
from adjoint.base.errors import ArgumentError, missing
from adjoint.core.modes import warn_as_pytorch
from adjoint.core.tensor import Tensor
from adjoint.func.modules import functional_call, skeleton, stack_module_state
from adjoint.nn import Module

functionalize, grad, grad_and_value = func.functionalize, func.grad, func.grad_and_value
hessian, jacfwd, jacrev = func.hessian, func.jacfwd, func.jacrev
jvp, linearize, vjp, vmap = func.jvp, func.linearize, func.vjp, func.vmap
replace_all_batch_norm_modules_ = func.replace_all_batch_norm_modules_
_FORMER = ("We've integrated functorch into PyTorch. As the final step of the integration, "
           "`functorch.{}` is deprecated as of PyTorch 2.0 and will be deleted in a future version "
           "of PyTorch >= 2.3. Please use `torch.func.{}` instead; see the PyTorch 2.0 release "
           "notes and/or the `torch.func` migration guide for more details "
           "https://pytorch.org/docs/main/func.migrating.html")


class FunctionalModuleWithBuffers(Module):
    """A module without values: a function (params, buffers, *args, **kwargs) of them."""

    def __init__(self, stateless_model: Any, param_names: Sequence[str],
                 buffer_names: Sequence[str] = ()) -> None:
        super().__init__()
        self.stateless_model = stateless_model
        self.param_names, self.buffer_names = tuple(param_names), tuple(buffer_names)

    def forward(self, params: Sequence[Any], buffers: Sequence[Any], *args: Any,
                **kwargs: Any) -> Any:
        """Call the module with these values of its parameters and buffers."""
        given = {**dict(zip(self.param_names, params, strict=True)),
                 **dict(zip(self.buffer_names, buffers, strict=True))}
        return functional_call(self.stateless_model, given, args, kwargs)


class FunctionalModule(FunctionalModuleWithBuffers):
    """A module without values: a function (params, *args, **kwargs) of its parameters."""

    def forward(self, params: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        """Call the module with these values of its parameters."""
        return super().forward(params, (), *args, **kwargs)


def _apart(model: Any, kind: Any, frozen: bool) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
    copied = deepcopy(model)
    params, buffers = dict(copied.named_parameters()), dict(copied.named_buffers())
    values = [p.detach() if frozen else p for p in params.values()]
    made = kind(skeleton(copied), tuple(params), tuple(buffers))
    return made, tuple(values), tuple(buffers.values())


def make_functional(model: Any, disable_autograd_tracking: bool = False
                    ) -> tuple[FunctionalModule, tuple[Tensor, ...]]:
    """(f, params): `f(params, x)` is `model(x)`; the parameters are copies. RuntimeError for a
    model with buffers."""
    warn_as_pytorch(_FORMER.format("make_functional", "functional_call"), FutureWarning)
    if any(True for _ in model.buffers()):
        raise ArgumentError("make_functional(model): `model` has buffers. Please use "
                            "make_functional_with_buffers(model) instead.")
    made, params, _ = _apart(model, FunctionalModule, disable_autograd_tracking)
    return made, params


def make_functional_with_buffers(
        model: Any, disable_autograd_tracking: bool = False
        ) -> tuple[FunctionalModuleWithBuffers, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """(f, params, buffers): `f(params, buffers, x)` is `model(x)`; the values are copies."""
    warn_as_pytorch(_FORMER.format("make_functional_with_buffers", "functional_call"),
                    FutureWarning)
    return _apart(model, FunctionalModuleWithBuffers, disable_autograd_tracking)


def combine_state_for_ensemble(models: Sequence[Any]) -> tuple[
        FunctionalModuleWithBuffers, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """(f, params, buffers) of several models of one class, each value stacked along a new first
    axis, for `vmap(f)`."""
    warn_as_pytorch(_FORMER.format("combine_state_for_ensemble", "stack_module_state"),
                    FutureWarning)
    params, buffers = stack_module_state(models)
    made, _, _ = _apart(models[0], FunctionalModuleWithBuffers, True)
    return (made, tuple(p.detach() for p in params.values()),
            tuple(b.detach() for b in buffers.values()))


__all__ = ["FunctionalModule", "FunctionalModuleWithBuffers", "combine_state_for_ensemble",
           "functional_call", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd",
           "jacrev", "jvp", "linearize", "make_functional", "make_functional_with_buffers",
           "replace_all_batch_norm_modules_", "stack_module_state", "vjp", "vmap"]
__getattr__ = missing("adjoint._functorch.functional")
