"""Ranks as a grid: an axis for each way in which a program is spread, a group along each."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import Tensor, wrap
from adjoint.distributed.group import (
    ProcessGroup,
    init_process_group,
    is_initialized,
    new_group,
    the,
)

__all__ = ["DeviceMesh", "init_device_mesh"]


class DeviceMesh:
    """The ranks of the world (some of them) in a grid `mesh`; its axes may have names, by which
    `mesh["name"]` is the part along them that this process is in.

    >>> from adjoint import distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> grid = init_device_mesh("cpu", (1, 1), mesh_dim_names=("data", "model"))
    >>> grid.shape, grid["data"].get_local_rank(), grid.get_group("model").size()
    ((1, 1), 0, 1)
    >>> dist.destroy_process_group()
    """

    def __init__(self, device_type: str, mesh: Any, *,
                 mesh_dim_names: tuple[str, ...] | None = None, backend_override: Any = None,
                 _init_backend: bool = True) -> None:
        ranks = np.asarray(mesh.array if isinstance(mesh, Tensor) else mesh, np.int32)
        if not is_initialized():
            init_process_group()
        world = the(None)
        if ranks.size > world.size():
            raise ArgumentError(f"Mesh should not be bigger than default world size "
                                f"{world.size()}, but found {ranks.size} ranks!")
        _same_length(mesh_dim_names, ranks.ndim)
        self.device_type, self._ranks, self._own = device_type, ranks, world.transport.rank
        self.mesh_dim_names = None if mesh_dim_names is None else tuple(mesh_dim_names)
        at = np.argwhere(ranks == self._own)
        self._coordinate = tuple(int(i) for i in at[0]) if len(at) else None
        self._groups = [self._along(dim) for dim in range(ranks.ndim)] if self._coordinate else []

    def _along(self, dim: int) -> ProcessGroup:
        assert self._coordinate is not None
        index = tuple(slice(None) if i == dim else at for i, at in enumerate(self._coordinate))
        return new_group([int(r) for r in self._ranks[index]])

    @staticmethod
    def from_group(group: ProcessGroup, device_type: str, mesh: Any = None, *,
                   mesh_dim_names: tuple[str, ...] | None = None) -> DeviceMesh:
        """A mesh of one axis along a group."""
        if not isinstance(group, ProcessGroup):
            raise ArgumentError("DeviceMesh.from_group takes one group here; a mesh of several "
                                "axes is made by init_device_mesh")
        made = DeviceMesh(device_type, group.ranks if mesh is None else mesh,
                          mesh_dim_names=mesh_dim_names)
        made._groups = [group]
        return made

    @property
    def mesh(self) -> Tensor:
        """The ranks."""
        return wrap(self._ranks)

    @property
    def ndim(self) -> int:
        """How many axes."""
        return self._ranks.ndim

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes."""
        return self._ranks.shape

    def size(self, mesh_dim: int | None = None) -> int:
        """How many ranks, along an axis or all."""
        return int(self._ranks.size if mesh_dim is None else self._ranks.shape[mesh_dim])

    def get_rank(self) -> int:
        """The rank of this process in the world."""
        return self._own

    def get_coordinate(self) -> tuple[int, ...] | None:
        """Where this process is in the grid; None if it is not."""
        return self._coordinate

    def _dim(self, mesh_dim: int | str | None) -> int:
        if mesh_dim is None:
            if self.ndim != 1:
                raise ArgumentError(f"Found the DeviceMesh have {self.ndim} dimensions: Optional "
                                    "kwarg `mesh_dim` needs to be specified when "
                                    "device_mesh.ndim > 1.")
            return 0
        if isinstance(mesh_dim, int):
            return mesh_dim
        names = self.mesh_dim_names or ()
        if mesh_dim not in names:
            raise KeyError(f"Mesh dimension '{mesh_dim}' does not exist. Available mesh dimensions "
                           f"are: mesh_dim_names={names}")
        return names.index(mesh_dim)

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """The place of this process along an axis."""
        dim = self._dim(mesh_dim)
        if self._coordinate is None:
            raise ArgumentError("get_local_rank: this process is not in the mesh")
        return self._coordinate[dim]

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """The group of this process along an axis."""
        return self._groups[self._dim(mesh_dim)]

    def get_all_groups(self) -> list[ProcessGroup]:
        """Those along all axes."""
        return list(self._groups)

    def __getitem__(self, mesh_dim_names: str | tuple[str, ...]) -> DeviceMesh:
        wanted = (mesh_dim_names,) if isinstance(mesh_dim_names, str) else tuple(mesh_dim_names)
        names = self.mesh_dim_names or ()
        if not set(wanted) <= set(names) or len(set(wanted)) < len(wanted):
            raise KeyError(f"Invalid mesh_dim_names {wanted} specified. Valid mesh_dim_names are "
                           f"{list(names)}.")
        dims = [names.index(n) for n in wanted]
        at = self._coordinate or (0,) * self.ndim
        part = self._ranks[tuple(slice(None) if i in dims else at[i] for i in range(self.ndim))]
        order = np.argsort(np.argsort(dims))
        made = DeviceMesh(self.device_type, part.transpose(order), mesh_dim_names=wanted)
        made._groups = [self._groups[d] for d in dims] if self._groups else []
        return made

    def __enter__(self) -> DeviceMesh:
        return self

    def __exit__(self, *exc: object) -> None:
        """A mesh says nothing to what runs inside of it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceMesh) and (
            self.device_type, self.mesh_dim_names, self.shape) == (
            other.device_type, other.mesh_dim_names, other.shape) and bool(
            (self._ranks == other._ranks).all())

    def __hash__(self) -> int:
        return hash((self.device_type, self.mesh_dim_names, self.shape, self._ranks.tobytes()))

    def __repr__(self) -> str:
        names = self.mesh_dim_names
        sizes = ", ".join(str(n) if names is None else f"{names[i]}={n}"
                          for i, n in enumerate(self.shape))
        comma = "," if names is None and self.ndim == 1 else ""
        return f"DeviceMesh(({sizes}{comma}), '{self.device_type}')"


def _same_length(names: tuple[str, ...] | None, axes: int) -> None:
    if names is not None and len(names) != axes:
        raise ArgumentError("mesh_shape and mesh_dim_names should have same length! Found "
                            f"len(mesh_dim_names): {len(names)} and len(mesh_shape):{axes}.")


def init_device_mesh(device_type: str, mesh_shape: tuple[int, ...], *,
                     mesh_dim_names: tuple[str, ...] | None = None,
                     backend_override: Any = None) -> DeviceMesh:
    """The ranks of the world, in order, as a grid of that shape; every process must call it. The
    default group is made, from the environment, if it is not there."""
    shape = tuple(mesh_shape)
    if mesh_dim_names is not None:
        if len(set(mesh_dim_names)) != len(mesh_dim_names):
            raise ArgumentError("Each mesh_dim_name must be unique. Found repeated mesh_dim_name in"
                                f" mesh_dim_names {tuple(mesh_dim_names)}")
        _same_length(mesh_dim_names, len(shape))
    if not device_type.isalpha():
        raise ArgumentError(f"Device type with index is not supported but got {device_type}. If you"
                            " maintained a 'torch.device' object, it's recommended to pass in "
                            "'device.type'.")
    return DeviceMesh(device_type, np.arange(math.prod(shape), dtype=np.int32).reshape(shape),
                      mesh_dim_names=mesh_dim_names)
