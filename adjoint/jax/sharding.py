"""`jax.sharding` on one device: names of axes, and how an array would lie on a mesh of them.

There is one CPU, so a mesh has one device and every sharding leaves an array as it is.
"""
from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from adjoint.jax._absent import lacking as _lacking
from adjoint.jax._array import as_array
from adjoint.jax._devices import Device, devices


class AxisType(enum.Enum):
    """Who decides how an axis of a mesh is used."""

    Auto = 0
    Explicit = 1
    Manual = 2

    def __repr__(self) -> str:
        return self.name


class PartitionSpec:
    """For each axis of an array the axis of the mesh, a tuple of them, or None.

    >>> PartitionSpec("x", None)
    P('x', None)
    """

    UNCONSTRAINED = "UNCONSTRAINED"

    def __init__(self, *partitions: Any) -> None:
        self._partitions = partitions

    def __iter__(self) -> Iterator[Any]:
        return iter(self._partitions)

    def __len__(self) -> int:
        return len(self._partitions)

    def __getitem__(self, i: Any) -> Any:
        return self._partitions[i]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (PartitionSpec, tuple)) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(self._partitions)

    def __repr__(self) -> str:
        return f"P({', '.join(map(repr, self))})" if len(self) != 1 else f"P({self[0]!r},)"


class Mesh:
    """Devices in an array whose axes have names."""

    def __init__(self, devices: Any, axis_names: Any, axis_types: Any = None) -> None:
        self.devices = np.asarray(devices, dtype=object)
        self.axis_names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        if self.devices.ndim != len(self.axis_names):
            raise ValueError("Mesh requires the ndim of its first argument (`devices`) to equal the"
                             " length of its second argument (`axis_names`), but got devices.ndim "
                             f"== {self.devices.ndim} and len(axis_names) == "
                             f"{len(self.axis_names)}.")
        self.axis_types = tuple(axis_types or (AxisType.Auto,) * self.devices.ndim)

    @property
    def shape(self) -> OrderedDict[str, int]:
        """Axis name -> number of devices along it."""
        return OrderedDict(zip(self.axis_names, self.axis_sizes, strict=True))

    @property
    def axis_sizes(self) -> tuple[int, ...]:
        """Numbers of devices along the axes."""
        return self.devices.shape

    @property
    def size(self) -> int:
        """Number of devices."""
        return self.devices.size

    @property
    def empty(self) -> bool:
        """True for a mesh without axes."""
        return not self.devices.ndim

    def __enter__(self) -> Mesh:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def _key(self) -> Any:
        return tuple(self.devices.flat), self.axis_sizes, self.axis_names, self.axis_types

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mesh) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        sizes = ", ".join(f"{n!r}: {s}" for n, s in self.shape.items())
        return f"Mesh({sizes}, axis_types={self.axis_types})"

    def __repr__(self) -> str:
        return (f"Mesh(axis_sizes={self.axis_sizes}, axis_names={self.axis_names}, "
                f"axis_types={self.axis_types})")


class AbstractMesh:
    """The shape of a mesh and the names of its axes, without devices."""

    def __init__(self, axis_sizes: Sequence[int], axis_names: Any = (), axis_types: Any = None
                 ) -> None:
        self.axis_sizes = tuple(axis_sizes)
        self.axis_names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        self.axis_types = tuple(axis_types or (AxisType.Auto,) * len(self.axis_sizes))

    @property
    def shape(self) -> OrderedDict[str, int]:
        """Axis name -> number of devices along it."""
        return OrderedDict(zip(self.axis_names, self.axis_sizes, strict=True))

    @property
    def shape_tuple(self) -> tuple[tuple[str, int], ...]:
        """The same as pairs."""
        return tuple(self.shape.items())

    @property
    def size(self) -> int:
        """Number of devices; 0 without axes."""
        return int(np.prod(self.axis_sizes)) if self.axis_sizes else 0

    @property
    def empty(self) -> bool:
        """True for a mesh without axes."""
        return not self.axis_sizes

    def _key(self) -> Any:
        return self.axis_sizes, self.axis_names, self.axis_types

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbstractMesh) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        sizes = ", ".join(f"{n!r}: {s}" for n, s in self.shape.items())
        return f"AbstractMesh({sizes or '()'}, axis_types={self.axis_types})"


def get_abstract_mesh() -> AbstractMesh:
    """The mesh that programs run under: one without axes."""
    return AbstractMesh(())


class Sharding:
    """Where the parts of an array are: here all on the CPU."""

    memory_kind, is_fully_replicated, is_fully_addressable = "device", True, True
    num_devices = 1

    @property
    def device_set(self) -> set[Device]:
        """The one CPU."""
        return set(devices())

    addressable_devices = device_set

    def shard_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of a part: the whole."""
        return tuple(global_shape)

    def is_equivalent_to(self, other: Any, ndim: int) -> bool:
        """True: there is one place."""
        return isinstance(other, Sharding)

    def devices_indices_map(self, global_shape: Sequence[int]) -> dict[Device, tuple[slice, ...]]:
        """Which part is where: all of it on the CPU."""
        return {d: (slice(None),) * len(global_shape) for d in devices()}


class SingleDeviceSharding(Sharding):
    """An array on one device."""

    def __init__(self, device: Any = None, *, memory_kind: Any = None) -> None:
        self._device = device or devices()[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SingleDeviceSharding) and self._device == other._device

    def __hash__(self) -> int:
        return hash(self._device)

    def __repr__(self) -> str:
        return f"SingleDeviceSharding(device={self._device!r}, memory_kind={self.memory_kind})"


class NamedSharding(Sharding):
    """An array whose axes lie along those of a mesh; ValueError for an axis the mesh has not."""

    def __init__(self, mesh: Mesh, spec: Any, *, memory_kind: Any = None) -> None:
        self.mesh, self.spec = mesh, spec
        for part in spec:
            for name in part if isinstance(part, tuple) else (part,):
                if name is not None and name not in mesh.axis_names:
                    raise ValueError(f"Resource axis: {name} of {spec!r} is not found in mesh: "
                                     f"{mesh.axis_names}.")

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, NamedSharding) and self.mesh == other.mesh
                and self.spec == other.spec)

    def __hash__(self) -> int:
        return hash((self.mesh, self.spec))

    def __repr__(self) -> str:
        return (f"NamedSharding(mesh={self.mesh}, spec={self.spec!r}, "
                f"memory_kind={self.memory_kind})")


def make_mesh(axis_shapes: Sequence[int], axis_names: Sequence[str], axis_types: Any = None, *,
              devices: Any = None) -> Mesh:
    """`jax.make_mesh`: ValueError where the mesh asks for more than the one device."""
    count, there = int(np.prod(axis_shapes)), devices or _all()
    if count > len(there):
        raise ValueError(f"Number of devices {len(there)} must be >= the product of mesh_shape "
                         f"{tuple(axis_shapes)}")
    return Mesh(np.array(there, dtype=object)[:count].reshape(axis_shapes), axis_names, axis_types)


def make_array_from_callback(shape: Sequence[int], sharding: Sharding, data_callback: Any,
                             dtype: Any = None) -> Any:
    """`jax.make_array_from_callback`: an array of what the function gives of the one part."""
    whole = next(iter(sharding.devices_indices_map(shape).values()))
    return as_array(np.asarray(data_callback(whole), dtype))


_all, make_single_device_sharding = devices, SingleDeviceSharding
__all__ = ["AbstractMesh", "AxisType", "Mesh", "NamedSharding", "PartitionSpec", "Sharding",
           "SingleDeviceSharding", "get_abstract_mesh", "make_array_from_callback", "make_mesh",
           "make_single_device_sharding"]
__getattr__ = _lacking("sharding")
