"""Data sets: things with items by number, or streams."""
from __future__ import annotations

import bisect
import itertools
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from adjoint.base.errors import ArgumentError, AssertedError, IndexOutOfRange, ShapeError
from adjoint.core.modes import GRAD, state, warn
from adjoint.core.tensor import Tensor, wrap
from adjoint.utils.data.seeds import permutation

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Dataset(Generic[T_co]):
    """Items by number: subclasses define `__getitem__`, and usually `__len__`.

    `__getitems__(indices)`, where defined, is asked for whole batches.

    >>> class Squares(Dataset[int]):
    ...     def __getitem__(self, i): return i * i
    ...     def __len__(self): return 4
    >>> [Squares()[i] for i in range(4)], len(Squares() + Squares())
    ([0, 1, 4, 9], 8)
    """

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__: "
                                  f"{type(self).__name__} does not")

    def __add__(self, other: Dataset[Any]) -> ConcatDataset[Any]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co]):
    """A stream: subclasses define `__iter__`.

    With workers every worker iterates its own copy; divide the work by `get_worker_info()`.

    >>> class Count(IterableDataset[int]):
    ...     def __iter__(self): return iter(range(3))
    >>> list(Count() + Count())
    [0, 1, 2, 0, 1, 2]
    """

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__")

    def __add__(self, other: Dataset[Any]) -> ChainDataset:  # type: ignore[override]  # chains
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Rows of tensors that share their first dimension.

    >>> import adjoint as ad
    >>> data = TensorDataset(ad.arange(3), ad.ones(3, 2))
    >>> len(data), data[1][1].tolist()
    (3, [1.0, 1.0])
    """

    def __init__(self, *tensors: Tensor) -> None:
        if not tensors or any(not t.shape for t in tensors):
            raise ShapeError("TensorDataset: at least one tensor, of at least one dimension, "
                             "is needed")
        if len({t.shape[0] for t in tensors}) > 1:
            raise AssertedError("TensorDataset: Size mismatch between tensors: shapes "
                                f"{[tuple(t.shape) for t in tensors]} differ in the first "
                                "dimension")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].shape[0])


class StackDataset(Dataset[Any]):
    """Items of several data sets side by side: as tuples, or dicts for keyword arguments.

    >>> StackDataset([1, 2], [3, 4])[1], StackDataset(a=[1, 2], b=[3, 4])[0]
    ((2, 4), {'a': 1, 'b': 3})
    """

    datasets: tuple[Any, ...] | dict[str, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and kwargs:
            raise ArgumentError("Supported either ``tuple``- (via ``args``) or ``dict``- (via "
                                "``kwargs``) like input/output, but both types are given: name "
                                "all of StackDataset's data sets, or none")
        if not (args or kwargs):
            raise ArgumentError("StackDataset: At least one dataset should be passed")
        self.datasets = args or kwargs
        lengths = [len(d) for d in self._members()]
        if len(set(lengths)) > 1:
            raise ArgumentError(f"StackDataset: Size mismatch between datasets: lengths {lengths}")
        self._length = lengths[0]

    def _members(self) -> list[Any]:
        members = self.datasets
        return list(members.values() if isinstance(members, dict) else members)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {key: data[index] for key, data in self.datasets.items()}
        return tuple(data[index] for data in self.datasets)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """The items of a whole batch; members with `__getitems__` are asked once."""
        columns = [fetch(data, indices) for data in self._members()]
        rows = list(zip(*columns, strict=True))
        if isinstance(self.datasets, dict):
            return [dict(zip(self.datasets, row, strict=True)) for row in rows]
        return list(rows)

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset[T_co]):
    """Several data sets end to end.

    >>> joined = ConcatDataset([[1, 2], [3]])
    >>> len(joined), joined[2], joined[-3], joined.cumulative_sizes
    (3, 3, 1, [2, 3])
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertedError("ConcatDataset: datasets should not be an empty iterable")
        if any(isinstance(d, IterableDataset) for d in self.datasets):
            raise AssertedError("ConcatDataset does not support IterableDataset: a stream has no "
                                "length; use ChainDataset")
        self.cumulative_sizes = list(itertools.accumulate(len(d) for d in self.datasets))

    @property
    def cummulative_sizes(self) -> list[int]:
        """`cumulative_sizes` by its old name."""
        warnings.warn("`cummulative_sizes` attribute is renamed to `cumulative_sizes`",
                      FutureWarning, stacklevel=2)
        return self.cumulative_sizes

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> T_co:
        if index < -len(self):
            raise ArgumentError("absolute value of index should not exceed dataset length: "
                                f"ConcatDataset[{index}] of {len(self)} items")
        if index >= len(self):
            raise IndexOutOfRange(f"ConcatDataset: index {index} is outside of {len(self)} items")
        index %= len(self)
        which = bisect.bisect_right(self.cumulative_sizes, index)
        before = self.cumulative_sizes[which - 1] if which else 0
        item: T_co = self.datasets[which][index - before]
        return item


class ChainDataset(IterableDataset[Any]):
    """Several streams one after the other.

    >>> class Count(IterableDataset[int]):
    ...     def __iter__(self): return iter(range(2))
    >>> list(ChainDataset([Count(), Count()]))
    [0, 1, 0, 1]
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = datasets

    def _checked(self) -> Iterator[Any]:
        for data in self.datasets:
            if not isinstance(data, IterableDataset):
                raise AssertedError("ChainDataset only supports IterableDataset, got a "
                                    f"{type(data).__name__}")
            yield data

    def __iter__(self) -> Iterator[Any]:
        for data in self._checked():
            yield from data

    def __len__(self) -> int:
        return sum(len(data) for data in self._checked())


class Subset(Dataset[T_co]):
    """The items of a data set at given indices.

    >>> list(Subset("abcd", [3, 1]))
    ['d', 'b']
    """

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: Any) -> T_co:
        if isinstance(index, list):
            rows: T_co = self.dataset[[self.indices[i] for i in index]]
            return rows
        item: T_co = self.dataset[self.indices[index]]
        return item

    def __getitems__(self, indices: Sequence[int]) -> list[T_co]:
        """The items of a whole batch."""
        return fetch(self.dataset, [self.indices[i] for i in indices])

    def __len__(self) -> int:
        return len(self.indices)


def fetch(dataset: Any, indices: Sequence[Any]) -> list[Any]:
    """The items at `indices`, by `__getitems__` where the data set has it.

    >>> fetch("abc", [2, 0])
    ['c', 'a']
    """
    batched = getattr(dataset, "__getitems__", None)
    if batched is None:
        return [dataset[i] for i in indices]
    items: list[Any] = batched(indices)
    if len(items) != len(indices):
        raise ArgumentError(f"{type(dataset).__name__}.__getitems__ returned {len(items)} items "
                            f"for {len(indices)} indices")
    return items


def rows(dataset: Any, indices: Any) -> list[Tensor] | None:
    """What `default_collate` makes of these items of a TensorDataset (or of a Subset of one), read
    at once: one copy in place of a view per item and their stack. None where that would not do.

    >>> import adjoint as ad
    >>> rows(TensorDataset(ad.arange(3) * 10), [2, 0])
    [tensor([20,  0])]
    """
    try:
        while type(dataset) is Subset:
            dataset, indices = dataset.dataset, [dataset.indices[i] for i in indices]
    except (LookupError, TypeError):
        return None                                     # who asks item by item says what is wrong
    if type(dataset) is not TensorDataset or type(indices) is not list or not indices:
        return None
    n = len(dataset)
    if state() > GRAD or not all([type(i) is int and -n <= i < n for i in indices]) or not all(
            [type(t) is Tensor and not t._rg and type(t.array) is np.ndarray
             for t in dataset.tensors]):
        return None
    return [wrap(t.array.take(indices, axis=0)) for t in dataset.tensors]


def random_split(dataset: Any, lengths: Sequence[int | float], generator: Any = None
                 ) -> list[Subset[Any]]:
    """Disjoint random subsets with the given lengths, or fractions that sum to 1.

    Items left over by rounding fractions go to the subsets in turn.

    >>> [len(s) for s in random_split(range(10), [0.75, 0.25])]
    [8, 2]
    """
    size = len(dataset)
    counts = [int(n) for n in lengths]
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1 + 1e-9:
        odd = next((i for i, f in enumerate(lengths) if not 0 <= f <= 1), None)
        if odd is not None:
            raise ArgumentError(f"Fraction at index {odd} is not between 0 and 1: "
                                f"random_split by {list(lengths)}")
        counts = [math.floor(size * f) for f in lengths]
        for i in range(size - sum(counts)):
            counts[i % len(counts)] += 1
        if 0 in counts:
            warn(f"Length of split at index {counts.index(0)} is 0. This might result in an empty "
                 "dataset.")
    if sum(counts) != size:
        raise ArgumentError(f"random_split: Sum of input lengths does not equal the length of the "
                            f"input dataset: {list(lengths)} against {size} items")
    order = permutation(size, generator)
    ends = list(itertools.accumulate(counts))
    return [Subset(dataset, order[end - n:end]) for end, n in zip(ends, counts, strict=True)]


