"""Modules as functions: `functional_call`, `stack_module_state`, and what they need of a module."""
from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from adjoint.base.errors import ArgumentError, StructureError
from adjoint.core.tensor import Tensor
from adjoint.ops.shape import stack_op


def _places(module: Any) -> dict[str, tuple[Any, str, str]]:
    """Every dotted name of a parameter or buffer -> (owner, table, name in it)."""
    found = {}
    for path, owner in module.named_modules(remove_duplicate=False):
        for table in ("_parameters", "_buffers"):
            for name, value in getattr(owner, table).items():
                if value is not None:
                    found[f"{path}.{name}" if path else name] = (owner, table, name)
    return found


_ABSENT: Any = object()


@contextmanager
def _swapped(module: Any, given: Mapping[str, Tensor], tie_weights: bool, strict: bool
             ) -> Iterator[None]:
    places = _places(module)
    by_id: dict[int, list[str]] = {}            # one object under several names is tied
    for key, (owner, table, name) in places.items():
        by_id.setdefault(id(getattr(owner, table)[name]) if tie_weights else len(by_id), []
                         ).append(key)
    chosen = dict(given)
    for names in by_id.values():                # tied names get the one value that is given
        values = {id(given[n]): given[n] for n in names if n in given}
        if len(values) > 1:
            keys = sorted(n for n in names if n in given)
            raise ArgumentError(f"functional_call got multiple values for keys {keys}, which are "
                                "tied. Consider using tie_weights=False")
        for value in values.values():
            chosen.update((n, value) for n in names)
    unknown = [k for k in given if k not in places]
    missing = [k for k in places if k not in chosen]
    if strict and (unknown or missing):
        lines = [f"\n\t{what} key(s): {', '.join(map(repr, sorted(names)))}." for what, names in (
            ("Unexpected", unknown), ("Missing", missing)) if names]
        raise ArgumentError("Error(s) in reparametrizing for "
                            f"{type(module).__name__}:{''.join(lines)}")
    for key in unknown:                         # an attribute that is no parameter, for this call
        path, _, name = key.rpartition(".")
        if not name:
            raise KeyError("tensor name can't be empty string \"\"")
        owner = module.get_submodule(path)
        if name in owner._modules:
            raise StructureError(f"attribute `{name}`: {owner._modules[name]} is not an instance "
                                 "of torch.Tensor")
        places[key] = owner, "__dict__", name
    kept = []
    try:
        for key, value in chosen.items():
            if not isinstance(value, Tensor):
                raise StructureError(f"{value} is not an instance of torch.Tensor: "
                                     f"functional_call was given it for {key!r}")
            owner, table, name = places[key]
            held = getattr(owner, table)
            kept.append((held, name, held.get(name, _ABSENT)))
            held[name] = value
        yield
    finally:
        for held, name, old in reversed(kept):
            if old is _ABSENT:
                del held[name]
            else:
                held[name] = old


def functional_call(module: Any,
                    parameter_and_buffer_dicts: Mapping[str, Tensor]
                    | Sequence[Mapping[str, Tensor]],
                    args: Any = None, kwargs: dict[str, Any] | None = None, *,
                    tie_weights: bool = True, strict: bool = False) -> Any:
    """Call ``module`` with these tensors in place of its parameters and buffers.

    The module is as before afterwards, also after an error. ``args`` is a tuple, or one argument.
    Tensors under tied names get the same value if ``tie_weights``; ``strict`` wants every name
    (one of those that are tied).
    Raises ArgumentError for names that the module does not have.

    >>> import adjoint as ad
    >>> m = ad.nn.Linear(1, 1, bias=False)
    >>> ad.func.functional_call(m, {"weight": ad.tensor([[3.0]])}, (ad.tensor([2.0]),)).tolist()
    [6.0]
    """
    if isinstance(parameter_and_buffer_dicts, Mapping):
        given = dict(parameter_and_buffer_dicts)
    elif not isinstance(parameter_and_buffer_dicts, (list, tuple)):
        raise StructureError("Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of "
                             f"dicts, but got {type(parameter_and_buffer_dicts)}")
    else:
        given = {}
        for part in parameter_and_buffer_dicts:
            repeated = set(given) & set(part)
            if repeated:
                raise ArgumentError(f"{sorted(repeated)} appeared in multiple dictionaries; "
                                    "behavior of functional call is ambiguous")
            given.update(part)
    call_args = () if args is None else args if isinstance(args, tuple) else (args,)
    with _swapped(module, given, tie_weights, strict):
        return module(*call_args, **(kwargs or {}))


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(parameters, buffers) of several models of one architecture, stacked along a new first
    axis: what `vmap(functional_call)` maps over.

    Leaves of their own, which require grad where the models' tensors do. Raises ArgumentError for
    models of several classes or modes, or that disagree about what requires grad.

    >>> import adjoint as ad
    >>> params, _ = ad.func.stack_module_state([ad.nn.Linear(3, 2) for _ in range(4)])
    >>> params["weight"].shape
    adjoint.Size([4, 2, 3])
    """
    if not models:
        raise ArgumentError("stack_module_state: Expected at least one model, got 0.")
    if len({type(m) for m in models}) > 1:
        raise ArgumentError("stack_module_state: Expected all models to be of the same class.")
    if len({m.training for m in models}) > 1:
        raise ArgumentError("stack_module_state: Expected all models to have the same "
                            "training/eval mode.")
    return (_stacked([dict(m.named_parameters()) for m in models]),
            _stacked([dict(m.named_buffers()) for m in models]))


def _stacked(states: Sequence[dict[str, Tensor]]) -> dict[str, Any]:
    """Per name: the values of all models, as leaves that require grad where the models' do."""
    found = {}
    for name, first in states[0].items():
        if any(s[name].requires_grad != first.requires_grad for s in states):
            raise ArgumentError(f"stack_module_state: Expected {name} from each model to have the "
                                "same .requires_grad; got "
                                f"{[s[name].requires_grad for s in states]}")
        found[name] = stack_op(*[s[name].detach() for s in states], dim=0)
        found[name].requires_grad_(first.requires_grad)
    return found


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
