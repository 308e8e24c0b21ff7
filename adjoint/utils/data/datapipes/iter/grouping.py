"""Items together: batches, their undoing, and groups of one key."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from adjoint.base.errors import ArgumentError, AssertedError, AutogradError, IndexOutOfRange
from adjoint.utils.data.datapipes._decorator import functional_datapipe
from adjoint.utils.data.datapipes.datapipe import DataChunk, IterDataPipe
from adjoint.utils.data.datapipes.iter.utils import length
from adjoint.utils.data.datapipes.utils.common import check_unpickable

__all__ = ["BatcherIterDataPipe", "GrouperIterDataPipe", "UnBatcherIterDataPipe"]


@functional_datapipe("batch")
class BatcherIterDataPipe(IterDataPipe[Any]):
    """Batches of `batch_size` items; the last may be smaller, or be left out by `drop_last`.

    >>> from adjoint.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper(range(5)).batch(2))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, datapipe: IterDataPipe[Any], batch_size: int, drop_last: bool = False,
                 wrapper_class: Any = DataChunk) -> None:
        if batch_size <= 0:
            raise AssertedError("Batch size is required to be larger than 0!")
        self.datapipe, self.batch_size, self.drop_last = datapipe, batch_size, drop_last
        self.wrapper_class = wrapper_class

    def __iter__(self) -> Iterator[Any]:
        batch: list[Any] = []
        for item in self.datapipe:
            batch.append(item)
            if len(batch) == self.batch_size:
                yield self.wrapper_class(batch)
                batch = []
        if batch and not self.drop_last:
            yield self.wrapper_class(batch)

    def __len__(self) -> int:
        whole, rest = divmod(length(self, self.datapipe), self.batch_size)
        return whole + bool(rest and not self.drop_last)


@functional_datapipe("unbatch")
class UnBatcherIterDataPipe(IterDataPipe[Any]):
    """The items of batches, `unbatch_level` levels of them; -1: of all.

    >>> from adjoint.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper([[1, [2]], [3]]).unbatch(unbatch_level=-1))
    [1, 2, 3]
    """

    def __init__(self, datapipe: IterDataPipe[Any], unbatch_level: int = 1) -> None:
        self.datapipe, self.unbatch_level = datapipe, unbatch_level

    def __iter__(self) -> Iterator[Any]:
        for item in self.datapipe:
            yield from self._dive(item, self.unbatch_level)

    def _dive(self, item: Any, level: int) -> Iterator[Any]:
        if level < -1:
            raise ArgumentError("unbatch_level must be -1 or >= 0")
        if level == 0 or level == -1 and not isinstance(item, list):
            yield item
        elif not isinstance(item, list):
            raise IndexOutOfRange(f"unbatch_level {self.unbatch_level} exceeds the depth of the "
                                  "DataPipe")
        else:
            for part in item:
                yield from self._dive(part, level if level == -1 else level - 1)


@functional_datapipe("groupby")
class GrouperIterDataPipe(IterDataPipe[Any]):
    """Items of one key together, as soon as there are `group_size` of them.

    With `buffer_size` items waiting the largest group is given, or, if it has fewer than
    `guaranteed_group_size` (`group_size`), dropped or refused. What is left comes at the end.

    >>> from adjoint.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper(["a", "bc", "d"]).groupby(len))
    [['a', 'd'], ['bc']]
    """

    def __init__(self, datapipe: IterDataPipe[Any], group_key_fn: Callable[[Any], Any], *,
                 keep_key: bool = False, buffer_size: int = 10000, group_size: int | None = None,
                 guaranteed_group_size: int | None = None, drop_remaining: bool = False) -> None:
        check_unpickable(group_key_fn)
        self.datapipe, self.group_key_fn = datapipe, group_key_fn
        self.keep_key, self.max_buffer_size, self.group_size = keep_key, buffer_size, group_size
        self.guaranteed_group_size = group_size
        if group_size is not None and not 0 < group_size <= buffer_size:
            raise AssertedError("group_size must be > 0 and <= buffer_size")
        if guaranteed_group_size is not None:
            if group_size is None or not 0 < guaranteed_group_size <= group_size:
                raise AssertedError("guaranteed_group_size must be > 0 and <= group_size and "
                                    "group_size must be set")
            self.guaranteed_group_size = guaranteed_group_size
        self.drop_remaining, self.wrapper_class = drop_remaining, DataChunk

    def _largest(self, waiting: dict[Any, list[Any]]) -> tuple[Any, list[Any], bool]:
        """The key of the largest group, which leaves; the group; is it given?"""
        key = max(waiting, key=lambda k: len(waiting[k]))
        group, least = waiting.pop(key), self.guaranteed_group_size
        small = least is not None and len(group) < least
        if small and not self.drop_remaining:
            raise AutogradError("Failed to group items", str(group))
        return key, group, not small

    def _give(self, key: Any, group: list[Any]) -> Any:
        chunk = self.wrapper_class(group)
        return (key, chunk) if self.keep_key else chunk

    def __iter__(self) -> Iterator[Any]:
        waiting: dict[Any, list[Any]] = {}
        held = 0
        for item in self.datapipe:
            key = self.group_key_fn(item)
            waiting.setdefault(key, []).append(item)
            held += 1
            if len(waiting[key]) == self.group_size:
                group = waiting.pop(key)
                held -= len(group)
                yield self._give(key, group)
            if held == self.max_buffer_size:
                key, group, given = self._largest(waiting)
                held -= len(group)
                if given:
                    yield self._give(key, group)
        for key in tuple(waiting):
            yield self._give(key, waiting.pop(key))
