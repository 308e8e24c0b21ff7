"""Pipes that are maps from keys to items.

>>> from adjoint.utils.data.datapipes.map import SequenceWrapper
>>> list(SequenceWrapper("ab").zip(SequenceWrapper(range(2))))
[('a', 0), ('b', 1)]
"""
from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

from adjoint.base.errors import ArgumentError, AssertedError, IndexOutOfRange
from adjoint.core.modes import warn
from adjoint.utils.data.datapipes._decorator import functional_datapipe
from adjoint.utils.data.datapipes.datapipe import DataChunk, IterDataPipe, MapDataPipe
from adjoint.utils.data.datapipes.iter.utils import length
from adjoint.utils.data.datapipes.utils.common import check_unpickable
from adjoint.utils.data.seeds import draw_seed

__all__ = ["Batcher", "Concater", "MapDataPipe", "Mapper", "SequenceWrapper", "Shuffler",
           "Zipper"]
__path__: list[str] = []        # a package, as there: programs import `map.callable`


class SequenceWrapperMapDataPipe(MapDataPipe[Any]):
    """The items of a sequence or mapping; of a copy, unless `deepcopy` is False.

    >>> SequenceWrapperMapDataPipe({"a": 100})["a"]
    100
    """

    def __init__(self, sequence: Any, deepcopy: bool = True) -> None:
        if deepcopy:
            try:
                sequence = copy.deepcopy(sequence)
            except TypeError:
                warn("The input sequence can not be deepcopied, please be aware of in-place "
                     "modification would affect source data")
        self.sequence = sequence

    def __getitem__(self, index: Any) -> Any:
        return self.sequence[index]

    def __len__(self) -> int:
        return len(self.sequence)


def default_fn(data: Any) -> Any:
    """The item itself."""
    return data


@functional_datapipe("map")
class MapperMapDataPipe(MapDataPipe[Any]):
    """`fn` of every item.

    >>> list(SequenceWrapper(range(3)).map(str))
    ['0', '1', '2']
    """

    def __init__(self, datapipe: Any, fn: Callable[[Any], Any] = default_fn) -> None:
        check_unpickable(fn)
        self.datapipe, self.fn = datapipe, fn

    def __getitem__(self, index: Any) -> Any:
        return self.fn(self.datapipe[index])

    def __len__(self) -> int:
        return len(self.datapipe)


@functional_datapipe("batch")
class BatcherMapDataPipe(MapDataPipe[Any]):
    """Batches of `batch_size` items in order; `drop_last` leaves a smaller last one out.

    >>> SequenceWrapper(range(5)).batch(2)[2]
    [4]
    """

    def __init__(self, datapipe: Any, batch_size: int, drop_last: bool = False,
                 wrapper_class: Any = DataChunk) -> None:
        if batch_size <= 0:
            raise AssertedError("Batch size is required to be larger than 0!")
        self.datapipe, self.batch_size, self.drop_last = datapipe, batch_size, drop_last
        self.wrapper_class = wrapper_class

    def __getitem__(self, index: int) -> Any:
        places = range(index * self.batch_size, (index + 1) * self.batch_size)
        batch: list[Any] = []
        try:
            for i in places:
                batch.append(self.datapipe[i])
        except IndexError as error:
            if not batch or self.drop_last:
                raise IndexOutOfRange(f"Index {index} is out of bound.") from error
        return self.wrapper_class(batch)

    def __len__(self) -> int:
        whole, rest = divmod(length(self, self.datapipe), self.batch_size)
        return whole + bool(rest and not self.drop_last)


def _checked(datapipes: tuple[Any, ...]) -> tuple[Any, ...]:
    if not datapipes:
        raise ArgumentError("Expected at least one DataPipe, but got nothing")
    if not all(isinstance(pipe, MapDataPipe) for pipe in datapipes):
        raise TypeError("Expected all inputs to be `MapDataPipe`")
    return datapipes


@functional_datapipe("concat")
class ConcaterMapDataPipe(MapDataPipe[Any]):
    """One pipe after the other, by number.

    >>> list(SequenceWrapper(range(2)).concat(SequenceWrapper("a")))
    [0, 1, 'a']
    """

    def __init__(self, *datapipes: Any) -> None:
        self.datapipes = _checked(datapipes)
        if not all(hasattr(pipe, "__len__") for pipe in datapipes):
            raise TypeError("Expected all inputs to be `Sized`")

    def __getitem__(self, index: int) -> Any:
        left = index
        for pipe in self.datapipes:
            if left < len(pipe):
                return pipe[left]
            left -= len(pipe)
        raise IndexOutOfRange(f"Index {index} is out of range.")

    def __len__(self) -> int:
        return sum(len(pipe) for pipe in self.datapipes)


@functional_datapipe("zip")
class ZipperMapDataPipe(MapDataPipe[Any]):
    """A tuple with the item of every pipe, as far as the shortest goes."""

    def __init__(self, *datapipes: Any) -> None:
        self.datapipes = _checked(datapipes)

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        row = []
        for pipe in self.datapipes:
            try:
                row.append(pipe[index])
            except IndexError as error:
                raise IndexOutOfRange(f"Index {index} is out of range for one of the input "
                                      f"MapDataPipes {pipe}.") from error
        return tuple(row)

    def __len__(self) -> int:
        return min(len(pipe) for pipe in self.datapipes)


class ShufflerIterDataPipe(IterDataPipe[Any]):
    """The items in random order, a stream; `indices` are the keys, 0, 1, ... unless given.

    >>> sorted(SequenceWrapper("abc").shuffle())
    ['a', 'b', 'c']
    """

    def __init__(self, datapipe: Any, *, indices: list[Any] | None = None) -> None:
        self.datapipe = datapipe
        self.indices = list(range(len(datapipe))) if indices is None else indices
        self._enabled = True
        self._seed: int | None = None
        self._rng = random.Random()
        self._shuffled_indices: list[Any] = self.indices

    def set_shuffle(self, shuffle: bool = True) -> ShufflerIterDataPipe:
        """Shuffle or not; the pipe itself."""
        self._enabled = shuffle
        return self

    def set_seed(self, seed: int) -> ShufflerIterDataPipe:
        """Fix the order of the next iteration; the pipe itself."""
        self._seed = seed
        return self

    def reset(self) -> None:
        """Draw the order of an iteration that begins."""
        self._shuffled_indices = list(self.indices)
        if self._enabled:
            self._rng.seed(draw_seed() if self._seed is None else self._seed)
            self._seed = None
            self._rng.shuffle(self._shuffled_indices)

    def __iter__(self) -> Iterator[Any]:
        for index in self._shuffled_indices:
            yield self.datapipe[index]

    def __len__(self) -> int:
        return len(self.datapipe)


MapDataPipe.register_datapipe_as_function("shuffle", ShufflerIterDataPipe)

Batcher = BatcherMapDataPipe
Concater = ConcaterMapDataPipe
Mapper = MapperMapDataPipe
SequenceWrapper = SequenceWrapperMapDataPipe
Shuffler = ShufflerIterDataPipe
Zipper = ZipperMapDataPipe
