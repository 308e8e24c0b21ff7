"""The weights of convolutions in a memory format, the rest of a module as it is."""
from __future__ import annotations

from typing import Any, TypeVar

from adjoint.nn.modules import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d, Module

M = TypeVar("M", bound=Module)

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]


def convert_conv2d_weight_memory_format(module: M, memory_format: Any) -> M:
    """Lay the weight of every ``Conv2d`` and ``ConvTranspose2d`` in ``module`` out in
    ``memory_format``; what they compute then lies so too. Returns ``module``.

    >>> import adjoint as ad
    >>> net = ad.nn.Sequential(ad.nn.Conv2d(3, 4, 3))
    >>> _ = ad.nn.utils.convert_conv2d_weight_memory_format(net, ad.channels_last)
    >>> net(ad.zeros(1, 3, 4, 4)).is_contiguous(memory_format=ad.channels_last)
    True
    """
    return _converted(module, memory_format, (Conv2d, ConvTranspose2d))


def convert_conv3d_weight_memory_format(module: M, memory_format: Any) -> M:
    """The same for every ``Conv3d`` and ``ConvTranspose3d``, with ``channels_last_3d``."""
    return _converted(module, memory_format, (Conv3d, ConvTranspose3d))


def _converted(module: M, form: Any, kinds: tuple[type[Module], ...]) -> M:
    for part in module.modules():
        if isinstance(part, kinds):
            part.weight.data = part.weight.detach().contiguous(memory_format=form)
    return module
