"""The one device of `jax`, and what runs on it: `device_put`, `pmap`."""
from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from adjoint.jax._array import Array, is_traced
from adjoint.jax._flat import Leaves, leaf
from adjoint.jax.tree_util import flat, tree_map

F = Callable[..., Any]


class Device:
    """The CPU."""

    id, process_index, platform, device_kind = 0, 0, "cpu", "cpu"

    def __repr__(self) -> str:
        return "CpuDevice(id=0)"

    def __str__(self) -> str:
        return "cpu:0"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device)

    def __hash__(self) -> int:
        return 0


_CPU = Device()


def devices(backend: Any = None) -> list[Device]:
    """The one CPU."""
    if backend not in (None, "cpu"):
        raise RuntimeError(f"Unknown backend: '{backend}' requested, but no platforms that are "
                           "instances of it are present. Platforms present are: cpu")
    return [_CPU]


def device_put(x: Any, device: Any = None, *, src: Any = None, donate: Any = False,
               may_alias: Any = None) -> Any:
    """A tree of values as arrays; ValueError for a place that is none. The arrays stay where they
    are, on the one device, whatever is donated."""
    from adjoint.jax.sharding import PartitionSpec, Sharding
    for place in flat((device, src))[0]:
        if isinstance(place, PartitionSpec):
            raise ValueError("Please set a mesh via `jax.set_mesh` if a PartitionSpec is passed to "
                             "device_put")
        if not isinstance(place, (Device, Sharding)):
            raise ValueError("`jax.device_put` only accepts `None`, `jax.sharding.Sharding`, "
                             "`jax.Device`, `Format`, `jax.memory.Space` or a pytree of these "
                             f"values. Received invalid value: {place}")
    return tree_map(leaf, x)


def device_get(x: Any) -> Any:
    """A tree of arrays as NumPy's."""
    return tree_map(lambda v: np.asarray(v) if type(v) is Array and not is_traced(v) else v, x)


def block_until_ready(x: Any) -> Any:
    """The tree: its values are there."""
    return x


def default_backend() -> str:
    """ "cpu". """
    return "cpu"


def device_count(backend: Any = None) -> int:
    """1."""
    return 1


local_device_count = process_count = host_count = device_count


def local_devices(process_index: Any = None, backend: Any = None, host_id: Any = None
                  ) -> list[Device]:
    """The one CPU, of process 0."""
    asked = host_id if process_index is None else process_index
    if asked not in (None, 0):
        raise ValueError(f"Unknown process_index {asked}")
    return devices(backend)


def process_index(backend: Any = None) -> int:
    """0."""
    return 0


def process_indices(backend: Any = None) -> list[int]:
    """The one process."""
    return [0]


host_id = process_index


def pmap(fun: F, axis_name: Any = None, *, in_axes: Any = 0, out_axes: Any = 0,
         static_broadcasted_argnums: Any = (), devices: Any = None, backend: Any = None,
         axis_size: Any = None, donate_argnums: Any = ()) -> F:
    """`vmap`, on the one device; more examples than that raise, as in JAX."""
    from adjoint.jax._vmap import vmap
    local_devices(backend=backend)
    static = {static_broadcasted_argnums} if isinstance(static_broadcasted_argnums, int) else set(
        static_broadcasted_argnums)
    if axis_size not in (None, 1) or (devices is not None and len(devices) != 1):
        raise ValueError("pmap: there is one device, axis_size= and devices= can ask for no more")

    @wraps(fun)
    def run(*args: Any, **kwargs: Any) -> Any:
        if static:
            given = list(args)
            held = {i % len(args): args[i] for i in static}
            rest = [a for i, a in enumerate(given) if i not in held]

            def moving(*some: Any, **named: Any) -> Any:
                left = iter(some)
                return fun(*[held[i] if i in held else next(left) for i in range(len(given))],
                           **named)
            axes = in_axes if not isinstance(in_axes, (tuple, list)) else tuple(
                a for i, a in enumerate(in_axes) if i not in held)
            return pmap(moving, axis_name, in_axes=axes, out_axes=out_axes)(*rest, **kwargs)
        n = next((a.shape[0] for a in Leaves(args).arrays if a.ndim), 1)
        if n > 1:
            raise ValueError(f"compiling computation requires {n} logical devices, but only 1 XLA "
                             "devices are available (num_replicas=1)")
        return vmap(fun, in_axes, out_axes, axis_name)(*args, **kwargs)
    return run


__all__ = ["Device", "block_until_ready", "default_backend", "device_count", "device_get",
           "device_put", "devices", "host_count", "host_id", "local_device_count", "local_devices",
           "pmap", "process_count", "process_index", "process_indices"]
