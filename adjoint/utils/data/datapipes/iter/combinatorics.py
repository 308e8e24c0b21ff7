"""The order of items: samplers and a shuffling buffer."""
from __future__ import annotations

import random
from collections.abc import Iterator, Sized
from typing import Any

from adjoint.base.errors import AssertedError
from adjoint.utils.data.datapipes._decorator import functional_datapipe
from adjoint.utils.data.datapipes.datapipe import IterDataPipe
from adjoint.utils.data.datapipes.iter.utils import length
from adjoint.utils.data.sampler import Sampler, SequentialSampler
from adjoint.utils.data.seeds import draw_seed

__all__ = ["SamplerIterDataPipe", "ShufflerIterDataPipe"]


class SamplerIterDataPipe(IterDataPipe[Any]):
    """What a sampler of the pipe gives: `sampler(*sampler_args, data_source=pipe, ...)`.

    >>> from adjoint.utils.data.datapipes.iter import IterableWrapper
    >>> list(SamplerIterDataPipe(IterableWrapper("abc")))
    [0, 1, 2]
    """

    def __init__(self, datapipe: IterDataPipe[Any], sampler: Any = SequentialSampler,
                 sampler_args: tuple[Any, ...] | None = None,
                 sampler_kwargs: dict[str, Any] | None = None) -> None:
        if not isinstance(datapipe, Sized):
            raise AssertedError("Sampler class requires input datapipe implemented `__len__`")
        self.datapipe = datapipe
        self.sampler_args, self.sampler_kwargs = sampler_args or (), sampler_kwargs or {}
        self.sampler: Sampler[Any] = sampler(*self.sampler_args, data_source=datapipe,
                                             **self.sampler_kwargs)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.sampler)

    def __len__(self) -> int:
        return length(self, self.sampler)


@functional_datapipe("shuffle")
class ShufflerIterDataPipe(IterDataPipe[Any]):
    """Items in random order, drawn from a buffer of `buffer_size` of them.

    `set_seed` fixes the order of the next iteration; otherwise the default generator gives a seed.

    >>> from adjoint.utils.data.datapipes.iter import IterableWrapper
    >>> sorted(IterableWrapper(range(4)).shuffle())
    [0, 1, 2, 3]
    """

    def __init__(self, datapipe: IterDataPipe[Any], *, buffer_size: int = 10000,
                 unbatch_level: int = 0) -> None:
        if buffer_size <= 0:
            raise AssertedError("buffer_size should be larger than 0")
        self.datapipe = datapipe if unbatch_level == 0 else datapipe.unbatch(
            unbatch_level=unbatch_level)
        self.buffer_size = buffer_size
        self._buffer: list[Any] = []
        self._enabled = True
        self._seed: int | None = None
        self._rng = random.Random()

    def set_shuffle(self, shuffle: bool = True) -> ShufflerIterDataPipe:
        """Shuffle or not; the pipe itself."""
        self._enabled = shuffle
        return self

    def set_seed(self, seed: int) -> ShufflerIterDataPipe:
        """Fix the order of the next iteration; the pipe itself."""
        self._seed = seed
        return self

    def reset(self) -> None:
        """Seed the order of an iteration that begins."""
        self._buffer = []
        if self._enabled:
            self._rng.seed(draw_seed() if self._seed is None else self._seed)
            self._seed = None

    def __iter__(self) -> Iterator[Any]:
        if not self._enabled:
            yield from self.datapipe
            return
        for item in self.datapipe:
            if len(self._buffer) == self.buffer_size:
                at = self._rng.randint(0, len(self._buffer) - 1)
                self._buffer[at], item = item, self._buffer[at]
                yield item
            else:
                self._buffer.append(item)
        while self._buffer:
            yield self._buffer.pop(self._rng.randint(0, len(self._buffer) - 1))

    def __len__(self) -> int:
        return length(self, self.datapipe)
