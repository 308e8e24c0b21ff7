"""A sampler that gives every process of a group its own share of the items."""
from __future__ import annotations

from collections.abc import Iterator, Sized

import numpy as np

from adjoint.base.errors import ArgumentError
from adjoint.distributed.group import get_rank, get_world_size
from adjoint.kernels.stream import Stream
from adjoint.utils.data.sampler import Sampler


class DistributedSampler(Sampler[int]):
    """Every `num_replicas`-th item of a common order, from `rank` on.

    Both default to those of the process group. All processes must use the same `seed`, and call
    `set_epoch(n)` before each epoch: the order is a function of seed and epoch. Without
    `drop_last` items are repeated so that every process gets equally many; with it the tail is
    left out.

    >>> [list(DistributedSampler(range(5), 2, rank, shuffle=False)) for rank in (0, 1)]
    [[0, 2, 4], [1, 3, 0]]
    """

    def __init__(self, dataset: Sized, num_replicas: int | None = None, rank: int | None = None,
                 shuffle: bool = True, seed: int = 0, drop_last: bool = False) -> None:
        super().__init__()
        if num_replicas is None or rank is None:
            num_replicas = get_world_size() if num_replicas is None else num_replicas
            rank = get_rank() if rank is None else rank
        if num_replicas < 1 or not 0 <= rank < num_replicas:
            raise ArgumentError(f"DistributedSampler: Invalid rank {rank}, rank should be in the "
                                f"interval [0, {num_replicas - 1}]")
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0
        n = len(dataset)
        self.num_samples = n // num_replicas if drop_last else -(-n // num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[int]:
        n = len(self.dataset)
        order = np.arange(n)
        if self.shuffle:
            order = Stream(self.seed + self.epoch).permutation(n)
        mine: list[int] = np.resize(order, self.total_size)[self.rank::self.num_replicas].tolist()
        return iter(mine)

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the coming iteration."""
        self.epoch = epoch
