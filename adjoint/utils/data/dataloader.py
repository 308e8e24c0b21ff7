"""DataLoader: batches of a data set, loaded in this process or by workers."""
from __future__ import annotations

import importlib
import itertools
import math
import os
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic

from adjoint.base.errors import ArgumentError
from adjoint.core.modes import as_pytorch, warn, warn_as_pytorch
from adjoint.utils.data.collate import default_collate, default_convert
from adjoint.utils.data.dataset import IterableDataset, T_co
from adjoint.utils.data.pool import Answer, WorkerPool, start_context
from adjoint.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler
from adjoint.utils.data.seeds import draw_seed
from adjoint.utils.data.worker import Fetcher, WorkerError, WorkerPlan, raise_report

_collate_fn_t = Callable[[list[Any]], Any]      # what annotations of libraries name
_worker_init_fn_t = Callable[[int], None]


class _DatasetKind:
    """What a loader reads: places of a data set, or a stream. Loaders of libraries say it."""

    Map, Iterable = 0, 1


class _Endless:
    """The sampler of a stream: positions without meaning."""

    def __iter__(self) -> Iterator[None]:
        return itertools.repeat(None)


_FIXED = {"batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"}


def _told_of_cores(workers: int) -> None:
    """PyTorch warns of more workers than cores; here, programs that run as `torch` alone."""
    if not as_pytorch[0]:
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if cores and workers > cores:
        warn_as_pytorch(
            f"This DataLoader will create {workers} worker processes in total. Our suggested max "
            f"number of worker in current system is {cores}, which is smaller than what this "
            "DataLoader is going to create. Please be aware that excessive worker creation might "
            "get DataLoader running slow or even freeze, lower the worker number to avoid potential"
            " slowness/freeze if necessary.")


def _pipes_of(dataset: Any) -> Any:
    """The module that prepares data pipes, where the data set is one; it is loaded then."""
    known = sys.modules.get("adjoint.utils.data.datapipes.datapipe")
    if known is None or not isinstance(dataset, known.IterDataPipe):
        return None
    return importlib.import_module("adjoint.utils.data.graph_settings")


class DataLoader(Generic[T_co]):
    """Iterates over a data set in batches; PyTorch's arguments and defaults.

    With `num_workers` > 0 that many processes load ahead (`prefetch_factor` batches each, 2
    unless given) and hand over arrays through shared memory. Batches come in the order of the
    sampler unless `in_order=False`. Worker `i` is seeded with `base_seed + i`, drawn from
    `generator` (an `adjoint.Generator` or a NumPy one) at every iteration. `pin_memory` has no
    effect on a CPU.

    Raises: an error of the data set with the worker's traceback; `WorkerError` (a RuntimeError)
    when a worker dies or `timeout` seconds pass; `ArgumentError` for options that exclude one
    another.

    >>> loader = DataLoader(range(5), batch_size=2)
    >>> [batch.tolist() for batch in loader], len(loader)
    ([[0, 1], [2, 3], [4]], 3)
    """

    _made = False       # True once it has been set up: _FIXED attributes stay as they are

    def __init__(self, dataset: Any, batch_size: int | None = 1, shuffle: bool | None = None,
                 sampler: Iterable[Any] | None = None,
                 batch_sampler: Iterable[Any] | None = None, num_workers: int = 0,
                 collate_fn: Callable[[Any], Any] | None = None, pin_memory: bool = False,
                 drop_last: bool = False, timeout: float = 0,
                 worker_init_fn: Callable[[int], None] | None = None,
                 multiprocessing_context: Any = None, generator: Any = None, *,
                 prefetch_factor: int | None = None, persistent_workers: bool = False,
                 pin_memory_device: str = "", in_order: bool = True) -> None:
        self.num_workers, self.timeout = num_workers, timeout
        pipes = _pipes_of(dataset)
        if pipes is not None:
            dataset, shuffle = pipes.apply_shuffle_settings(dataset, shuffle), None
        self.dataset = dataset
        self.pin_memory, self.pin_memory_device = pin_memory, pin_memory_device
        self.worker_init_fn, self.generator = worker_init_fn, generator
        self.persistent_workers, self.in_order = persistent_workers, in_order
        self._check_workers(prefetch_factor)
        self.multiprocessing_context = multiprocessing_context
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self._check_sampling(batch_size, shuffle, sampler, batch_sampler, drop_last)
        self._stream = isinstance(dataset, IterableDataset)
        if sampler is None:
            chosen: Any = (_Endless() if self._stream else
                           RandomSampler(dataset, generator=generator) if shuffle else
                           SequentialSampler(dataset))
            sampler = chosen
        if batch_sampler is not None:
            batch_size, drop_last = None, False
        elif batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size, self.drop_last = batch_size, drop_last
        self.sampler, self.batch_sampler = sampler, batch_sampler
        batched = batch_sampler is not None
        self.collate_fn = collate_fn or (default_collate if batched else default_convert)
        self._iterator: _MultiProcessingDataLoaderIter | None = None
        self._reported: int | None = None    # the length that a stream has said
        self._made = True

    def __setattr__(self, name: str, value: Any) -> None:
        if self._made and name in _FIXED:
            raise ArgumentError(f"{name} attribute should not be set after DataLoader is "
                                "initialized: make another loader")
        super().__setattr__(name, value)

    @property
    def multiprocessing_context(self) -> Any:
        """The context that starts the workers; None for the system's default."""
        return self._context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: Any) -> None:
        if context is not None:
            if not self.num_workers:
                raise ArgumentError("multiprocessing_context can only be used with multi-process "
                                    "loading (num_workers > 0), but got num_workers=0")
            context = start_context(context)
        self._context = context

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        return self.batch_sampler if self._auto_collation else self.sampler

    def _check_workers(self, prefetch_factor: int | None) -> None:
        workers = self.num_workers
        if isinstance(workers, bool) or not isinstance(workers, int) or workers < 0:
            raise ArgumentError("num_workers option should be non-negative; use num_workers=0 to "
                                f"disable multiprocessing. DataLoader got {workers!r}")
        if self.timeout < 0:
            raise ArgumentError("timeout option should be non-negative, but DataLoader got "
                                f"{self.timeout}")
        if workers == 0 and prefetch_factor is not None:
            raise ArgumentError("prefetch_factor option could only be specified in "
                                "multiprocessing: with num_workers=0 nothing is loaded ahead")
        if prefetch_factor is not None and prefetch_factor < 1:
            raise ArgumentError("prefetch_factor option should be non-negative and not 0, but "
                                f"DataLoader got {prefetch_factor}")
        if workers == 0 and self.persistent_workers:
            raise ArgumentError("persistent_workers option needs num_workers > 0")
        _told_of_cores(workers)

    def _check_sampling(self, batch_size: int | None, shuffle: bool | None, sampler: Any,
                        batch_sampler: Any, drop_last: bool) -> None:
        if isinstance(self.dataset, IterableDataset):
            given = {"shuffle": shuffle or None, "sampler": sampler, "batch_sampler": batch_sampler}
            for name, value in given.items():
                if value is not None:
                    raise ArgumentError("DataLoader with IterableDataset: expected unspecified "
                                        f"{name} option, but got {name}={value}: a stream decides "
                                        "its own order")
        elif sampler is not None and shuffle:
            raise ArgumentError("DataLoader: sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None
                                          or drop_last):
            raise ArgumentError("DataLoader: batch_sampler option is mutually exclusive with "
                                "batch_size, shuffle, sampler, and drop_last")
        if batch_size is None and drop_last:
            raise ArgumentError("batch_size=None option disables auto-batching and is mutually "
                                "exclusive with drop_last")

    @property
    def _dataset_kind(self) -> int:
        return _DatasetKind.Iterable if self._stream else _DatasetKind.Map

    def __iter__(self) -> Iterator[Any]:
        return self._get_iterator()

    def _get_iterator(self) -> Any:
        """The pass that `iter` begins; libraries that wrap loaders put their own here."""
        if self.pin_memory:
            warn_as_pytorch("'pin_memory' argument is set as true but no accelerator is found, then"
                            " device pinned memory won't be used.")
        if not self.num_workers:
            return _SingleProcessDataLoaderIter(self)
        if not self.persistent_workers:
            return _MultiProcessingDataLoaderIter(self)
        if self._iterator is None or self._iterator.closed:
            self._iterator = _MultiProcessingDataLoaderIter(self)
        else:
            self._iterator.restart()
        return self._iterator

    def __len__(self) -> int:
        if not self._stream:
            return len(self._index_sampler)
        items = self._reported = len(self.dataset)
        if self.batch_size is None:
            return items
        return items // self.batch_size if self.drop_last else math.ceil(items / self.batch_size)


class _BaseDataLoaderIter:
    """One pass over the data; its length is the loader's, however many batches it has given.

    The loader may be a library's own that has the attributes of a DataLoader which are read here.
    """

    def __init__(self, loader: Any) -> None:
        self._loader, self._given = loader, 0
        self._said = getattr(loader, "_reported", None)     # what len() said before this pass
        # The sampler begins before the seed is drawn: one that draws in its `__iter__`, and not at
        # its first index, has the generator first, as in PyTorch.
        self._indices = iter(loader._index_sampler)
        self._shared_seed = self._draw_shared()
        self._base_seed = draw_seed(loader.generator)

    def _draw_shared(self) -> int | None:
        """The seed that data pipes share in all workers; None for other data sets."""
        if _pipes_of(self._loader.dataset) is None:
            return None
        return draw_seed(self._loader.generator)

    def __iter__(self) -> Any:
        return self

    def __len__(self) -> int:
        return len(self._loader)

    _dataset = property(lambda self: self._loader.dataset)
    _num_workers = property(lambda self: self._loader.num_workers)
    _sampler_iter = property(lambda self: self._indices)

    def _next_index(self) -> Any:
        """The next of the sampler's indices, by PyTorch's name."""
        return next(self._indices)

    def _counted(self, batch: Any) -> Any:
        """A batch, counted where a stream has said how long it is: warns if it was wrong."""
        loader = self._loader
        said = self._said
        self._given += 1
        if said is not None and self._given > said:
            warn(f"Length of IterableDataset {loader.dataset} was reported to be {said}(when "
                 f"accessing len(dataloader)), but {self._given} samples have been fetched."
                 + (" Each worker may have its own replica of the whole: give each its share by "
                    "get_worker_info()." if loader.num_workers else ""))
        return batch


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """One pass in this process; after an error it goes on with the next batch."""

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        if loader.timeout:
            raise ArgumentError("timeout needs num_workers > 0: in one process nothing waits, got "
                                f"timeout={loader.timeout}")
        if self._shared_seed is not None:
            _pipes_of(loader.dataset).begin(loader.dataset, self._shared_seed)
        self._fetch = Fetcher(loader.dataset, loader.collate_fn, loader._auto_collation,
                              loader.drop_last, loader._dataset_kind == _DatasetKind.Iterable)

    def __next__(self) -> Any:
        return self._counted(self._fetch(next(self._indices)))


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """One pass over the data with workers; a persistent one is restarted for the next pass."""

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        self._in_order = loader.in_order
        self._timeout, self._persistent = loader.timeout or None, loader.persistent_workers
        self._count = loader.num_workers
        self._ahead = loader.num_workers * (loader.prefetch_factor or 2)
        self._task = 0  # numbers never recur: late answers of an abandoned pass are told apart
        plan = WorkerPlan(loader.dataset, loader.collate_fn, loader._auto_collation,
                          loader.drop_last, loader._dataset_kind == _DatasetKind.Iterable,
                          loader.worker_init_fn, 0, loader.num_workers,
                          self._base_seed, self._shared_seed)
        self._draw_shared()            # PyTorch draws one more here, which nothing uses
        self._pool = WorkerPool(plan, start_context(loader.multiprocessing_context))
        self._close = weakref.finalize(self, self._pool.shutdown)
        self._begin()

    @property
    def _workers(self) -> list[Any]:
        """The processes, which programs ask for ids and exit codes; none once they are ended."""
        return self._pool.processes()

    def _shutdown_workers(self) -> None:
        """End the workers now, as programs do that leave a pass before its end."""
        self._close()

    @property
    def closed(self) -> bool:
        """True once the workers have been ended."""
        return not self._close.alive

    def _begin(self) -> None:
        self._first = self._next = self._task
        self._indices = iter(self._loader._index_sampler)
        self._exhausted, self._given = False, 0
        self._owner: dict[int, int] = {}   # task -> worker, for tasks under way
        self._arrived: dict[int, Answer] = {}
        self._active = [True] * self._count
        self._turn = itertools.cycle(range(self._count))
        self._top_up()

    def restart(self) -> None:
        """Begin another pass with the same workers."""
        for answer in self._arrived.values():
            self._pool.drop(answer)
        self._pool.resume(self._draw_shared())
        self._said = getattr(self._loader, "_reported", None)
        self._begin()

    def _top_up(self) -> None:
        """Give out tasks until enough are under way."""
        while len(self._owner) + len(self._arrived) < self._ahead and not self._exhausted:
            worker = next((w for w in itertools.islice(self._turn, self._count)
                           if self._active[w]), None)
            if worker is None:
                return
            try:
                index = next(self._indices)
            except StopIteration:
                self._exhausted = True
                return
            self._owner[self._task] = worker
            self._pool.submit(worker, self._task, index)
            self._task += 1

    def __next__(self) -> Any:
        while True:
            if not self._owner and not self._arrived:
                self._finish()
                raise StopIteration
            answer = self._take()
            if answer is None:
                self._wait()
            elif answer.kind == "data":
                self._top_up()
                return self._counted(self._pool.open(answer))
            else:
                self._pool.drop(answer)
                self._top_up()              # whoever asks again gets the next batch
                raise_report(answer.data)

    def _take(self) -> Answer | None:
        """The answer to be yielded next, if it has arrived."""
        if not self._in_order:
            return self._arrived.pop(next(iter(self._arrived))) if self._arrived else None
        while self._next < self._task and self._next not in self._owner and (
                self._next not in self._arrived):
            self._next += 1  # a stream ended there
        return self._arrived.pop(self._next, None)

    def _wait(self) -> None:
        """Receive one answer."""
        try:
            answer = self._pool.receive(self._timeout)
        except BaseException:
            self._close()
            raise
        if answer is None:
            self._close()
            raise WorkerError(f"DataLoader timed out after {self._timeout} seconds")
        worker = self._owner.pop(answer.task, None)
        if worker is None:
            self._pool.drop(answer)
        elif answer.kind == "end":
            self._pool.drop(answer)
            self._active[worker] = False
            self._top_up()
        else:
            self._arrived[answer.task] = answer

    def _finish(self) -> None:
        if not self._persistent:
            self._arrived.clear()
            self._owner.clear()
            self._close()
