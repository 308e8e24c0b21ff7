"""Several modules, each with inputs of its own, one after the other on all threads."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adjoint.base.errors import AssertedError
from adjoint.nn.modules.module import Module

__all__ = ["parallel_apply"]


def parallel_apply(modules: Sequence[Module], inputs: Sequence[Any],
                   kwargs_tup: Sequence[dict[str, Any]] | None = None,
                   devices: Sequence[Any] | None = None) -> list[Any]:
    """What each module makes of its inputs: a tuple of arguments, or the only one.

    >>> import adjoint as ad
    >>> parallel_apply([ad.nn.ReLU(), ad.nn.Tanh()], [ad.ones(1), (ad.zeros(1),)])
    [tensor([1.]), tensor([0.])]
    """
    named = [{}] * len(modules) if kwargs_tup is None else kwargs_tup
    for what, given in ("inputs", inputs), ("kwargs", named), ("devices", devices):
        if given is not None and len(given) != len(modules):
            raise AssertedError(f"The number of modules {len(modules)} is not equal to the number "
                                f"of {what} {len(given)}")
    return [module(*(x if isinstance(x, (tuple, list)) else (x,)), **keywords)
            for module, x, keywords in zip(modules, inputs, named, strict=True)]
