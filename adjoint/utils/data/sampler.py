"""In which order items are visited."""
from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

import numpy as np

from adjoint.base.errors import ArgumentError, StructureError
from adjoint.core.tensor import Tensor, wrap
from adjoint.ops.generator import Generator
from adjoint.ops.random import multinomial
from adjoint.utils.data.seeds import draw_seed, generator_of, permutation

T_co = TypeVar("T_co", covariant=True)
_AT_ONCE = 32            # indices that a sampler with replacement draws ahead


class Sampler(Generic[T_co]):
    """Base of all samplers: an iterable of indices (or of lists of them).

    >>> class Even(Sampler[int]):
    ...     def __iter__(self): return iter(range(0, 6, 2))
    >>> list(Even())
    [0, 2, 4]
    """

    def __init__(self, data_source: Any = None) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__")


class SequentialSampler(Sampler[int]):
    """0, 1, 2, ...

    >>> list(SequentialSampler("abc"))
    [0, 1, 2]
    """

    def __init__(self, data_source: Sized) -> None:
        super().__init__(data_source)

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


def _count(name: str, value: Any, label: str = "") -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ArgumentError(f"{name} should be a positive integer value, but got {label}{value!r}")
    return value


class RandomSampler(Sampler[int]):
    """A new random order at every iteration; with replacement independent draws.

    `num_samples` (default: one pass) may exceed the number of items.

    >>> sorted(RandomSampler(range(4)))
    [0, 1, 2, 3]
    """

    def __init__(self, data_source: Sized, replacement: bool = False,
                 num_samples: int | None = None, generator: Any = None) -> None:
        super().__init__(data_source)
        if not isinstance(replacement, bool):
            raise StructureError("RandomSampler: replacement should be a boolean value, but got "
                                 f"replacement={replacement!r}")
        self.replacement, self.generator = replacement, generator
        self._num_samples = num_samples
        _count("RandomSampler: num_samples", self.num_samples, "num_samples=")

    @property
    def num_samples(self) -> int:
        """Indices per iteration; asked anew, for data sets that grow."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        n, wanted = len(self.data_source), self.num_samples
        if not n:
            return      # emptied since
        g = generator_of(self.generator) if self.generator is not None else (
            Generator().manual_seed(draw_seed()))
        if self.replacement:
            for k in range(0, wanted, _AT_ONCE):
                yield from g.stream.integers((min(_AT_ONCE, wanted - k),), 0, n).tolist()
            return
        for k in range(0, wanted + 1, n):       # the last order is drawn even where none is wanted
            yield from permutation(n, g)[:wanted - k]

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given indices in random order.

    >>> sorted(SubsetRandomSampler([5, 2]))
    [2, 5]
    """

    def __init__(self, indices: Sequence[int], generator: Any = None) -> None:
        super().__init__()
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        return (self.indices[i] for i in permutation(len(self.indices), self.generator))

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Indices drawn with probability proportional to `weights`.

    >>> set(WeightedRandomSampler([0.0, 1.0], 5))
    {1}
    """

    def __init__(self, weights: Sequence[float] | Tensor, num_samples: int,
                 replacement: bool = True, generator: Any = None) -> None:
        super().__init__()
        self.num_samples = _count("WeightedRandomSampler: num_samples", num_samples, "num_samples=")
        if not isinstance(replacement, bool):
            raise ArgumentError("WeightedRandomSampler: replacement should be a boolean value, but "
                                f"got replacement={replacement!r}")
        array = weights.array if isinstance(weights, Tensor) else weights
        self.weights = np.asarray(array, np.float64)
        if self.weights.ndim != 1 or not self.weights.size:
            raise ArgumentError("weights should be a 1d sequence but given weights have shape "
                                f"{self.weights.shape}: WeightedRandomSampler")
        if not np.isfinite(self.weights).all() or self.weights.min() < 0 or not self.weights.sum():
            raise ArgumentError("WeightedRandomSampler: weights must be finite, not negative, and "
                                "not all 0")
        positive = int(np.count_nonzero(self.weights))
        if not replacement and num_samples > positive:
            raise ArgumentError("cannot sample n_sample > prob_dist.size(-1) samples without "
                                f"replacement: WeightedRandomSampler of {num_samples} from "
                                f"{positive} items of positive weight")
        self.replacement, self.generator = replacement, generator

    def __iter__(self) -> Iterator[int]:
        own = None if self.generator is None else generator_of(self.generator)
        chosen: list[int] = multinomial(wrap(self.weights), self.num_samples, self.replacement,
                                        generator=own).tolist()
        return iter(chosen)

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of `batch_size` indices; the last may be shorter unless `drop_last`.

    >>> list(BatchSampler(range(5), 2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool) -> None:
        super().__init__()
        if not isinstance(drop_last, bool):
            raise ArgumentError("BatchSampler: drop_last should be a boolean value, but got "
                                f"drop_last={drop_last!r}")
        self.batch_size = _count("BatchSampler: batch_size", batch_size, "batch_size=")
        self.sampler, self.drop_last = sampler, drop_last

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        n = len(self.sampler)  # type: ignore[arg-type]  # must be sized
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)
