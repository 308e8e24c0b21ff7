"""Several streams from one, one stream from several."""
from __future__ import annotations

import copy as _copy
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from adjoint.base.errors import ArgumentError, AutogradError, ExportError
from adjoint.core.modes import warn
from adjoint.utils.data.datapipes._decorator import functional_datapipe
from adjoint.utils.data.datapipes._hook_iterator import description
from adjoint.utils.data.datapipes.datapipe import IterDataPipe
from adjoint.utils.data.datapipes.iter.utils import length
from adjoint.utils.data.datapipes.utils.common import check_unpickable

__all__ = ["ConcaterIterDataPipe", "DemultiplexerIterDataPipe", "ForkerIterDataPipe",
           "MultiplexerIterDataPipe", "ZipperIterDataPipe"]


@functional_datapipe("concat")
class ConcaterIterDataPipe(IterDataPipe[Any]):
    """One pipe after the other.

    >>> from adjoint.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper([1]).concat(IterableWrapper([2, 3])))
    [1, 2, 3]
    """

    def __init__(self, *datapipes: IterDataPipe[Any]) -> None:
        if not datapipes:
            raise ArgumentError("Expected at least one DataPipe, but got nothing")
        if not all(isinstance(pipe, IterDataPipe) for pipe in datapipes):
            raise TypeError("Expected all inputs to be `IterDataPipe`")
        self.datapipes = datapipes

    def __iter__(self) -> Iterator[Any]:
        for pipe in self.datapipes:
            yield from pipe

    def __len__(self) -> int:
        return length(self, *self.datapipes)


@functional_datapipe("zip")
class ZipperIterDataPipe(IterDataPipe[Any]):
    """Tuples of one item of each pipe, as far as the shortest goes."""

    def __init__(self, *datapipes: IterDataPipe[Any]) -> None:
        if not all(isinstance(pipe, IterDataPipe) for pipe in datapipes):
            raise TypeError("All inputs are required to be `IterDataPipe` for `ZipIterDataPipe`.")
        self.datapipes = datapipes

    def __iter__(self) -> Iterator[Any]:
        yield from zip(*self.datapipes, strict=False)

    def __len__(self) -> int:
        return min(length(self, pipe) for pipe in self.datapipes)


@functional_datapipe("mux")
class MultiplexerIterDataPipe(IterDataPipe[Any]):
    """One item of each pipe in turn, in whole rounds, as far as the shortest goes.

    >>> from adjoint.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper("ab").mux(IterableWrapper(range(3))))
    ['a', 0, 'b', 1]
    """

    def __init__(self, *datapipes: Any) -> None:
        self.datapipes = datapipes

    def __iter__(self) -> Iterator[Any]:
        for row in zip(*self.datapipes, strict=False):
            yield from row

    def __len__(self) -> int:
        return min(length(self, pipe) for pipe in self.datapipes) * len(self.datapipes)


class _Parent(IterDataPipe[Any]):
    """What several children read from: their items wait here. `generation` counts iterations: a
    child that begins for the second time in one begins the next, for all of them."""

    _own_rules = True
    _kept: tuple[str, ...] = ()

    def __init__(self, datapipe: IterDataPipe[Any], num_instances: int, buffer_size: int) -> None:
        self.main_datapipe, self.num_instances = datapipe, num_instances
        self.buffer_size = buffer_size
        self.generation = 0
        self.reset()

    def reset(self) -> None:
        """Begin anew: nothing waits."""
        self._source: Iterator[Any] | None = None
        self._ended = False
        self._waiting: list[deque[Any]] = [deque() for _ in range(self.num_instances)]
        self._done = [False] * self.num_instances

    def __getstate__(self) -> Any:
        held = {**self.__dict__, "generation": 0, "_source": None, "_ended": False,
                "_waiting": [deque() for _ in range(self.num_instances)],
                "_done": [False] * self.num_instances}
        hook = type(self).getstate_hook
        return held if hook is None else hook(held)

    def busy(self) -> bool:
        """Has an iteration begun that not all children have finished?"""
        return self._source is not None and not all(self._done)

    def pull(self) -> bool:
        """Read one item and hand it out; False at the end."""
        if self._source is None:
            self._source = iter(self.main_datapipe)
        try:
            item = next(self._source)
        except StopIteration:
            self._ended = True
            return False
        self.hand_out(item)
        return True

    def hand_out(self, item: Any) -> None:
        raise NotImplementedError

    def items(self, child: int) -> Iterator[Any]:
        """What one child gets."""
        mine, done = self._waiting[child], self._done
        try:
            while mine or not self._ended and self.pull():
                if mine:
                    yield mine.popleft()
        finally:
            done[child] = True           # also where it is dropped before the end
            mine.clear()


class _ForkerIterDataPipe(_Parent):
    def __init__(self, datapipe: IterDataPipe[Any], num_instances: int, buffer_size: int = 1000,
                 copy: str | None = None) -> None:
        self.copy_fn = {None: None, "shallow": _copy.copy, "deep": _copy.deepcopy}[copy]
        super().__init__(datapipe, num_instances, buffer_size)

    def hand_out(self, item: Any) -> None:
        for mine, done in zip(self._waiting, self._done, strict=True):
            if not done:
                mine.append(item)
        if 0 <= self.buffer_size < max(map(len, self._waiting)) and any(
                len(mine) == 1 for mine in self._waiting):
            raise ExportError(f"ForkerIterDataPipe buffer overflow,buffer size {self.buffer_size} "
                              "is insufficient.")

    def items(self, child: int) -> Iterator[Any]:
        for item in super().items(child):
            yield item if self.copy_fn is None else self.copy_fn(item)

    def __len__(self) -> int:
        return len(self.main_datapipe)


class _DemultiplexerIterDataPipe(_Parent):
    def __init__(self, datapipe: IterDataPipe[Any], num_instances: int,
                 classifier_fn: Callable[[Any], int | None], drop_none: bool, buffer_size: int
                 ) -> None:
        self.classifier_fn, self.drop_none = classifier_fn, drop_none
        super().__init__(datapipe, num_instances, buffer_size)

    def hand_out(self, item: Any) -> None:
        at = self.classifier_fn(item)
        if at is None and self.drop_none:
            return
        if at is None or not 0 <= at < self.num_instances:
            raise ArgumentError("Output of the classification fn should be between 0 and "
                                f"{self.num_instances - 1}. {at} is returned.")
        if 0 <= self.buffer_size <= sum(map(len, self._waiting)):
            raise ExportError("DemultiplexerIterDataPipe buffer overflow, buffer size "
                              f"{self.buffer_size} is insufficient.")
        if not self._done[at]:
            self._waiting[at].append(item)


class _ChildDataPipe(IterDataPipe[Any]):
    """One of the streams that a fork or a classifier gives."""

    _own_rules = True

    def __init__(self, main_datapipe: Any, instance_id: int) -> None:
        self.main_datapipe, self.instance_id = main_datapipe, instance_id
        self.generation = -1

    def __iter__(self) -> Iterator[Any]:
        main = self.main_datapipe
        if self.generation == main.generation:
            if main.busy():
                warn("Some child DataPipes are not exhausted when __iter__ is called. We are "
                     "resetting the buffer and each child DataPipe will read from the start "
                     "again.")
            main.generation += 1
            main.reset()
        self.generation = main.generation
        return self._run(self.generation)

    def _run(self, generation: int) -> Iterator[Any]:
        main = self.main_datapipe
        items = main.items(self.instance_id)
        while True:
            if generation != main.generation:
                raise AutogradError(
                    "This iterator has been invalidated, because a new iterator has been created "
                    f"from one of the ChildDataPipes of {description(main)}.")
            try:
                item = next(items)
            except StopIteration:
                return
            yield item

    def __getstate__(self) -> Any:
        held = {**self.__dict__, "generation": -1}
        hook = type(self).getstate_hook
        return held if hook is None else hook(held)

    def __len__(self) -> int:
        return len(self.main_datapipe)


def _checked(num_instances: int, name: str, buffer_size: int) -> None:
    if num_instances < 1:
        raise ArgumentError("Expected `num_instances` larger than 0, but "
                            f"{num_instances} is found")
    if buffer_size < 0:
        warn(f"Unlimited buffer size is set for `{name}`, please be aware of OOM at random "
             "places")


@functional_datapipe("fork")
class ForkerIterDataPipe(IterDataPipe[Any]):
    """`num_instances` pipes with the same items (copies: `copy="shallow"` or "deep").

    A child may run `buffer_size` items ahead of the slowest; -1: any number.

    >>> from adjoint.utils.data.datapipes.iter import IterableWrapper
    >>> a, b = IterableWrapper(range(3)).fork(2)
    >>> list(a), list(b)
    ([0, 1, 2], [0, 1, 2])
    """

    def __new__(cls, datapipe: IterDataPipe[Any], num_instances: int, buffer_size: int = 1000,
                copy: str | None = None) -> Any:
        if num_instances == 1:
            return datapipe
        _checked(num_instances, "fork", buffer_size)
        if copy not in (None, "shallow", "deep"):
            raise ArgumentError(f"Unknown copy method `{copy}` requested, choose one of None, "
                                "`shallow` or `deep`.")
        main = _ForkerIterDataPipe(datapipe, num_instances, buffer_size, copy)
        return [_ChildDataPipe(main, i) for i in range(num_instances)]


@functional_datapipe("demux")
class DemultiplexerIterDataPipe(IterDataPipe[Any]):
    """`num_instances` pipes, each with the items of which `classifier_fn` says its number.

    >>> from adjoint.utils.data.datapipes.iter import IterableWrapper
    >>> digits, words = IterableWrapper(["1", "a", "2"]).demux(2, str.isalpha)
    >>> list(digits), list(words)
    (['1', '2'], ['a'])
    """

    def __new__(cls, datapipe: IterDataPipe[Any], num_instances: int,
                classifier_fn: Callable[[Any], int | None], drop_none: bool = False,
                buffer_size: int = 1000) -> Any:
        _checked(num_instances, "demux", buffer_size)
        check_unpickable(classifier_fn)
        main = _DemultiplexerIterDataPipe(datapipe, num_instances, classifier_fn, drop_none,
                                          buffer_size)
        return [_ChildDataPipe(main, i) for i in range(num_instances)]
