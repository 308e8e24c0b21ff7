"""The pipe that an iterable becomes."""
from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any

from adjoint.core.modes import warn
from adjoint.utils.data.datapipes.datapipe import IterDataPipe

__all__ = ["IterableWrapperIterDataPipe"]


class IterableWrapperIterDataPipe(IterDataPipe[Any]):
    """The items of `iterable`; a copy of it, unless `deepcopy` is False, for every iteration.

    >>> list(IterableWrapperIterDataPipe([1, 2]))
    [1, 2]
    """

    def __init__(self, iterable: Iterable[Any], deepcopy: bool = True) -> None:
        self.iterable, self.deepcopy = iterable, deepcopy

    def __iter__(self) -> Iterator[Any]:
        source = self.iterable
        if self.deepcopy:
            try:
                source = copy.deepcopy(self.iterable)
            except TypeError:
                warn("The input iterable can not be deepcopied, please be aware of in-place "
                     "modification would affect source data.")
        yield from source

    def __len__(self) -> int:
        return length(self, self.iterable)


def length(pipe: Any, *sources: Any) -> int:
    """The items of all sources together; TypeError where one has no length."""
    try:
        return sum(len(source) for source in sources)
    except (TypeError, AttributeError):
        raise TypeError(f"{type(pipe).__name__} instance doesn't have valid length") from None
