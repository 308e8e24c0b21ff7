"""The share of one worker."""
from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any

from adjoint.base.errors import ArgumentError, AutogradError
from adjoint.utils.data.datapipes._decorator import functional_datapipe
from adjoint.utils.data.datapipes.datapipe import IterDataPipe
from adjoint.utils.data.datapipes.iter.utils import length

__all__ = ["SHARDING_PRIORITIES", "ShardingFilterIterDataPipe"]


class SHARDING_PRIORITIES(IntEnum):
    """Who shares first: machines, then the workers of each."""

    DEFAULT = 1
    DISTRIBUTED = 2
    MULTIPROCESSING = 3


@functional_datapipe("sharding_filter")
class ShardingFilterIterDataPipe(IterDataPipe[Any]):
    """Every n-th item, once `apply_sharding` has said which of how many this one is.

    >>> from adjoint.utils.data.datapipes.iter import IterableWrapper
    >>> share = IterableWrapper(range(5)).sharding_filter()
    >>> share.apply_sharding(2, 1)
    >>> list(share)
    [1, 3]
    """

    def __init__(self, source_datapipe: IterDataPipe[Any], sharding_group_filter: Any = None
                 ) -> None:
        self.source_datapipe, self.sharding_group_filter = source_datapipe, sharding_group_filter
        self.groups: dict[int, tuple[int, int]] = {}
        self.num_of_instances, self.instance_id = 1, 0

    def apply_sharding(self, num_of_instances: int, instance_id: int,
                       sharding_group: Any = SHARDING_PRIORITIES.DEFAULT) -> None:
        """Be number `instance_id` of `num_of_instances` in this group."""
        if instance_id >= num_of_instances:
            raise ArgumentError(f"instance_id({instance_id}) should be smaller than "
                                f"num_of_instances({num_of_instances})")
        default = SHARDING_PRIORITIES.DEFAULT
        if any((group == default) != (sharding_group == default) for group in self.groups):
            raise AutogradError("ShardingFilter cannot mix DEFAULT and non DEFAULT groups")
        self.groups[sharding_group] = (num_of_instances, instance_id)
        self.num_of_instances, self.instance_id = 1, 0
        for group in sorted(self.groups):
            if self.sharding_group_filter is None or group == self.sharding_group_filter:
                count, number = self.groups[group]
                self.num_of_instances *= count
                self.instance_id = self.instance_id * count + number

    def __iter__(self) -> Iterator[Any]:
        for i, item in enumerate(self.source_datapipe):
            if i % self.num_of_instances == self.instance_id:
                yield item

    def __len__(self) -> int:
        whole = length(self, self.source_datapipe)
        return whole // self.num_of_instances + (self.instance_id < whole % self.num_of_instances)
