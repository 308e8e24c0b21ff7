"""Batches cut for several devices and put together again. There is one device: one piece."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adjoint.base.errors import ArgumentError
from adjoint.base.tree import flatten, unflatten
from adjoint.core.tensor import Tensor
from adjoint.ops.api_join import cat
from adjoint.ops.device import device

__all__ = ["gather", "scatter", "scatter_kwargs"]


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> list[Any]:
    """The inputs for each device: the whole, for the one that there is.

    >>> scatter((1, 2), ["cpu"])
    [(1, 2)]
    """
    one_device("scatter", target_gpus)
    return [inputs]


def one_device(what: str, devices: Sequence[Any]) -> None:
    """Refuse other devices than the cpu, and several of them."""
    for target in devices:
        device(target)
    if len(devices) != 1:
        raise ArgumentError(f"{what}: {len(devices)} devices, but there is one: the cpu")


def scatter_kwargs(inputs: Any, kwargs: dict[str, Any] | None, target_gpus: Sequence[Any],
                   dim: int = 0) -> tuple[tuple[Any, ...], tuple[dict[str, Any], ...]]:
    """`scatter` of positional and of keyword arguments."""
    return (tuple(scatter(inputs, target_gpus, dim)),
            tuple(scatter(kwargs or {}, target_gpus, dim)))


def gather(outputs: Sequence[Any], target_device: Any, dim: int = 0) -> Any:
    """The outputs as one: tensors joined along `dim`, in tuples, lists and dicts leaf by leaf.

    >>> import adjoint as ad
    >>> gather([{"y": ad.ones(1)}, {"y": ad.zeros(2)}], "cpu")
    {'y': tensor([1., 0., 0.])}
    """
    device(target_device)
    leaves, spec = flatten(outputs[0])
    every = [leaves, *(flatten(o)[0] for o in outputs[1:])]
    joined = [cat([t.reshape(1) if not t.ndim else t for t in ts], dim)
              if isinstance(ts[0], Tensor) else ts[0] for ts in zip(*every, strict=True)]
    return unflatten(joined, spec)
