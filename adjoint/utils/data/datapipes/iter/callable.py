"""A function over every item, and collating."""
from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from adjoint.base.errors import ArgumentError
from adjoint.utils.data.collate import default_collate
from adjoint.utils.data.datapipes._decorator import functional_datapipe
from adjoint.utils.data.datapipes.datapipe import IterDataPipe
from adjoint.utils.data.datapipes.iter.utils import length
from adjoint.utils.data.datapipes.utils.common import check_unpickable, validate_input_col

__all__ = ["CollatorIterDataPipe", "MapperIterDataPipe"]


@functional_datapipe("map")
class MapperIterDataPipe(IterDataPipe[Any]):
    """`fn` of every item, or of some of its columns (`input_col`: an index or key, or several).

    The result replaces the item, the first of those columns (the others go), or the column
    `output_col`; -1 appends it to a list or tuple.

    >>> from adjoint.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper([(1, 2), (3, 4)]).map(str, input_col=1))
    [(1, '2'), (3, '4')]
    """

    def __init__(self, datapipe: IterDataPipe[Any], fn: Callable[..., Any], input_col: Any = None,
                 output_col: Any = None) -> None:
        check_unpickable(fn)
        self.datapipe, self.fn, self.input_col = datapipe, fn, input_col
        if input_col is None and output_col is not None:
            raise ArgumentError("`output_col` must be None when `input_col` is None.")
        if isinstance(output_col, (list, tuple)):
            if len(output_col) > 1:
                raise ArgumentError("`output_col` must be a single-element list or tuple")
            output_col = output_col[0]
        self.output_col = output_col
        validate_input_col(fn, input_col)

    def _apply_fn(self, data: Any) -> Any:
        cols = self.input_col
        if cols is None:
            return self.fn(data)
        several = isinstance(cols, (list, tuple))
        found = self.fn(*(data[c] for c in cols)) if several else self.fn(data[cols])
        row: Any = list(data) if isinstance(data, tuple) else copy.copy(data)
        if self.output_col is None:
            if several:
                rest = cols[1:] if isinstance(row, dict) else sorted(cols[1:], reverse=True)
                row[cols[0]] = found
                for c in rest:
                    del row[c]
            else:
                row[cols] = found
        elif self.output_col == -1 and not isinstance(row, dict):
            row.append(found)
        else:
            row[self.output_col] = found
        return tuple(row) if isinstance(data, tuple) else row

    def __iter__(self) -> Iterator[Any]:
        for data in self.datapipe:
            yield self._apply_fn(data)

    def __len__(self) -> int:
        return length(self, self.datapipe)


@functional_datapipe("collate")
class CollatorIterDataPipe(MapperIterDataPipe):
    """Every item collated: by `default_collate`, or the function given.

    >>> from adjoint.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper([1, 2]).batch(2).collate())
    [tensor([1, 2])]
    """

    def __init__(self, datapipe: IterDataPipe[Any], conversion: Any = default_collate,
                 collate_fn: Callable[[Any], Any] | None = None) -> None:
        if collate_fn is None and not callable(conversion):
            raise ArgumentError("collate: conversion is a function of a batch; dictionaries of "
                                "functions are for data frames, which are not here")
        super().__init__(datapipe, fn=collate_fn or conversion)
