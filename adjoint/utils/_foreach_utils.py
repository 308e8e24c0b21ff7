"""Tensors sorted by kind, for optimizers that update all of a kind in one call."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adjoint.ops.device import device as _device

__all__ = ["_device_has_foreach_support", "_get_foreach_kernels_supported_devices",
           "_get_fused_kernels_supported_devices", "_group_tensors_by_device_and_dtype",
           "_has_foreach_support"]


def _group_tensors_by_device_and_dtype(tensorlistlist: Sequence[Sequence[Any]],
                                       with_indices: bool = False) -> dict[Any, Any]:
    """(device, dtype) of the first list's tensors -> (the lists with those tensors alone, their
    places, which are told only if asked for). The lists belong together place by place.

    >>> import adjoint as ad
    >>> found = _group_tensors_by_device_and_dtype([[ad.ones(1), ad.ones(2).double()]], True)
    >>> found[ad.device("cpu"), ad.float64]
    ([[tensor([1., 1.], dtype=adjoint.float64)]], [1])
    """
    places: dict[Any, list[int]] = {}
    for i, t in enumerate(tensorlistlist[0]):
        if t is not None:
            places.setdefault((t.device, t.dtype), []).append(i)
    return {kind: ([[each[i] for i in at] if each else [] for each in tensorlistlist],
                   at if with_indices else []) for kind, at in places.items()}


def _get_foreach_kernels_supported_devices() -> list[str]:
    """Devices besides the cpu whose lists of tensors are computed by one kernel: none."""
    return []


def _get_fused_kernels_supported_devices() -> list[str]:
    """Devices on which a whole update of an optimizer is one kernel."""
    return ["cpu"]


def _has_foreach_support(tensors: Sequence[Any], device: Any) -> bool:
    """Whether the functions of lists take these tensors."""
    return _device_has_foreach_support(device)


def _device_has_foreach_support(device: Any) -> bool:
    """Whether the functions of lists run on the device."""
    return _device(device).type == "cpu"
