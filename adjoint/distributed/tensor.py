"""`torch.distributed.tensor`: descriptions of how a tensor would lie on many devices. There are no
tensors spread over devices here; data parallelism is `DistributedDataParallel`."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from adjoint.base.errors import NotSupported
from adjoint.base.errors import missing as _missing

__path__: list[str] = []               # a package, so that `tensor.parallel` is looked for


@dataclass(frozen=True)
class Placement:
    """How a tensor lies along one axis of a mesh of devices."""

    def is_shard(self, dim: int | None = None) -> bool:
        """True for a piece per device, of the axis `dim` if given."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """True for a copy per device."""
        return isinstance(self, Replicate)

    def is_partial(self) -> bool:
        """True for a summand per device."""
        return isinstance(self, Partial)


@dataclass(frozen=True)
class Shard(Placement):
    """A piece of the axis `dim` per device.

    >>> Shard(1).is_shard(1), Shard(0) == Shard(0)
    (True, True)
    """

    dim: int


@dataclass(frozen=True)
class _StridedShard(Shard):
    """A piece of an axis that was cut by another axis of the mesh before."""

    split_factor: int = 1


@dataclass(frozen=True)
class Replicate(Placement):
    """A copy per device."""


@dataclass(frozen=True)
class Partial(Placement):
    """A value per device that `reduce_op` makes one."""

    reduce_op: str = "sum"


class DTensor:
    """The class of tensors spread over devices. Nothing is an instance."""


def distribute_tensor(tensor: Any = None, device_mesh: Any = None, placements: Any = None,
                      **kwargs: Any) -> NoReturn:
    """Raises: no tensor is spread over devices."""
    raise NotSupported("distribute_tensor: tensors are not spread over devices here; "
                       "nn.parallel.DistributedDataParallel trains in several processes")


__all__ = ["DTensor", "Partial", "Placement", "Replicate", "Shard", "distribute_tensor"]
__getattr__ = _missing("adjoint.distributed.tensor")
