"""Modules as functions: `functional_call`, `stack_module_state`, and what they need of a module."""
from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import Tensor
from adjoint.ops.shape import stack_op


@contextmanager
def _swapped(module: Any, state: dict[str, Any], strict: bool) -> Iterator[None]:
    """The module's parameters and buffers replaced by `state` while the block runs."""
    held: list[tuple[dict[str, Any], str, Any]] = []
    unknown = []
    try:
        for name, value in state.items():
            path, _, last = name.rpartition(".")
            owner = module.get_submodule(path) if path else module
            table = next((t for t in (owner._parameters, owner._buffers) if last in t), None)
            if table is None:
                unknown.append(name)
                continue
            held.append((table, last, table[last]))
            table[last] = value
        if unknown:
            raise ArgumentError(f"functional_call: the module has no parameter or buffer named "
                                f"{', '.join(unknown)}")
        if strict:
            names = {n for n, _ in module.named_parameters()} | {n for n, _ in
                                                                 module.named_buffers()}
            missing = names - set(state)
            if missing:
                raise ArgumentError(f"functional_call(strict=True): missing {sorted(missing)}")
        yield
    finally:
        for table, last, value in reversed(held):
            table[last] = value


def functional_call(module: Any, parameter_and_buffer_dicts: Any, args: Any = None,
                    kwargs: dict[str, Any] | None = None, *, tie_weights: bool = True,
                    strict: bool = False) -> Any:
    """module(*args, **kwargs) with its parameters and buffers taken from a dict (or several).

    >>> import adjoint as ad
    >>> layer = ad.nn.Linear(2, 1)
    >>> zeros = {n: ad.zeros_like(p) for n, p in layer.named_parameters()}
    >>> ad.func.functional_call(layer, zeros, ad.ones(1, 2))
    tensor([[0.]])
    """
    dicts = parameter_and_buffer_dicts
    state: dict[str, Any] = {}
    for d in dicts if isinstance(dicts, (tuple, list)) else (dicts,):
        repeated = set(d) & set(state)
        if repeated:
            raise ArgumentError(f"functional_call: {sorted(repeated)} appear in several dicts")
        state.update(d)
    given = () if args is None else args if isinstance(args, tuple) else (args,)
    with _swapped(module, state, strict):
        return module(*given, **(kwargs or {}))


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(parameters, buffers) of several models of one architecture, stacked along a new first
    axis: what `vmap(functional_call)` maps over."""
    if not models:
        raise ArgumentError("stack_module_state: Expected at least one model, got 0.")
    if len({type(m) for m in models}) > 1:
        raise ArgumentError("stack_module_state: Expected all models to be of the same class.")
    params = {n: stack_op(*[dict(m.named_parameters())[n].detach() for m in models], dim=0)
              for n, _ in models[0].named_parameters()}
    for t in params.values():
        t.requires_grad_()
    buffers = {n: stack_op(*[dict(m.named_buffers())[n] for m in models], dim=0)
               for n, _ in models[0].named_buffers()}
    return params, buffers


def skeleton(module: Any) -> Any:
    """A copy of a module whose parameters hold no memory (device meta)."""
    made = copy.deepcopy(module)
    return made.to("meta")


__all__ = ["Tensor", "functional_call", "skeleton", "stack_module_state"]


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """Let every batch norm below `root` normalize by the batch alone, in place; returns `root`.

    Under `vmap` one set of running statistics cannot take the statistics of every example; without
    any (``track_running_stats=False``) the module is a function of its input and parameters.

    >>> import adjoint as ad
    >>> net = ad.func.replace_all_batch_norm_modules_(ad.nn.Sequential(ad.nn.BatchNorm1d(2)))
    >>> net[0].running_mean is None
    True
    """
    for module in root.modules():
        if any(c.__name__ == "_BatchNorm" for c in type(module).__mro__):
            module.track_running_stats = False
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                setattr(module, name, None)
    return root
