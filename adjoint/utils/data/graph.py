"""The graph of a pipe: what it reads from, and what that reads from."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from adjoint.core.modes import warn
from adjoint.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe

__all__ = ["traverse", "traverse_dps"]


def _held(value: Any) -> Iterator[Any]:
    """The pipes in an attribute, also in lists, tuples, sets and dictionaries."""
    if isinstance(value, (IterDataPipe, MapDataPipe)):
        yield value
    elif isinstance(value, (list, tuple, set, frozenset, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _held(part)


def _sources(pipe: Any, seen: frozenset[int]) -> dict[int, Any]:
    if id(pipe) in seen:
        return {}
    below: dict[int, Any] = {}
    for value in list(pipe.__dict__.values()):
        for source in _held(value):
            below.update(_sources(source, seen | {id(pipe)}))
    return {id(pipe): (pipe, below)}


def traverse_dps(datapipe: Any) -> dict[int, Any]:
    """{id(pipe): (pipe, the graph of what it reads from)}, from the pipe's attributes.

    >>> from adjoint.utils.data.datapipes.iter import IterableWrapper
    >>> pipe = IterableWrapper([1]).batch(2)
    >>> [held for held, _ in traverse_dps(pipe)[id(pipe)][1].values()]
    [IterableWrapperIterDataPipe]
    """
    return _sources(datapipe, frozenset())


def traverse(datapipe: Any, only_datapipe: bool | None = None) -> dict[int, Any]:
    """`traverse_dps` under its older name."""
    warn("`traverse` function and its argument `only_datapipe` are deprecated: please use "
         "`traverse_dps` instead.", FutureWarning)
    return traverse_dps(datapipe)
