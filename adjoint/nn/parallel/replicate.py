"""Copies of a module, one a device. There is one device: one copy, the module itself."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adjoint.base.errors import NotSupported
from adjoint.nn.modules.module import Module
from adjoint.nn.parallel.scatter_gather import one_device

__all__ = ["replicate"]


def replicate(network: Module, devices: Sequence[Any], detach: bool = False) -> list[Module]:
    """The module for each device: itself, for the one that there is. With `detach`, what a copy
    computes is not recorded by the module's parameters; as there is no copy, that is refused.

    >>> from adjoint import nn
    >>> replicate(nn.ReLU(), ["cpu"])
    [ReLU()]
    """
    one_device("replicate", devices)
    if detach and any(p.requires_grad for p in network.parameters()):
        raise NotSupported("replicate(detach=True): the only replica is the module itself")
    return [network]
