"""What a worker process of a DataLoader does, and how it is talked to.

Messages to a worker: ``("fetch", task, index, segment name)``, ``("resume", shared seed)``. From
it: ``(task, "data" | "end" | "error", pickle, segment name or None)``. A closed pipe ends it.
"""
from __future__ import annotations

import importlib
import pickle
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection
from typing import Any

from adjoint._utils import ExceptionWrapper
from adjoint.base.errors import AdjointError
from adjoint.core.tensor import Tensor
from adjoint.ops.threads import set_num_threads
from adjoint.utils.data.collate import (
    collate_tensor_fn,
    default_collate,
    default_collate_fn_map,
)
from adjoint.utils.data.dataset import fetch, rows
from adjoint.utils.data.seeds import _generate_state as _generate_state
from adjoint.utils.data.seeds import seed_worker
from adjoint.utils.data.segments import discard, pack


class WorkerError(AdjointError, RuntimeError):
    """A worker process died, or raised an exception whose class cannot be made here."""


@dataclass(frozen=True)
class WorkerInfo:
    """Which worker this process is: number, count, seed, and its copy of the data set."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """In a worker process: who it is. In the main process: None.

    >>> get_worker_info() is None
    True
    """
    return _info


class Fetcher:
    """Gets one batch of a data set: by indices, or the next items of a stream."""

    def __init__(self, dataset: Any, collate: Callable[[Any], Any], batched: bool,
                 drop_last: bool, stream: bool) -> None:
        self._dataset, self._collate = dataset, collate
        self._batched, self._drop_last = batched, drop_last
        self._plain = (collate is default_collate
                       and default_collate_fn_map[Tensor] is collate_tensor_fn)
        self._stream: Iterator[Any] | None = iter(dataset) if stream else None

    def __call__(self, index: Any) -> Any:
        """The collated batch; StopIteration where a stream has ended."""
        if self._stream is None:
            whole = rows(self._dataset, index) if self._batched and self._plain else None
            return whole if whole is not None else self._collate(
                fetch(self._dataset, index) if self._batched else self._dataset[index])
        if not self._batched:
            return self._collate(next(self._stream))
        items = list(islice(self._stream, len(index)))
        if not items or self._drop_last and len(items) < len(index):
            raise StopIteration
        return self._collate(items)


@dataclass(frozen=True)
class WorkerPlan:
    """Everything a worker is started with."""

    dataset: Any
    collate: Callable[[Any], Any]
    batched: bool
    drop_last: bool
    stream: bool
    init: Callable[[int], None] | None
    id: int
    count: int
    seed: int
    shared: int | None = None      # the seed of data pipes, the same in all workers


def run_worker(plan: WorkerPlan, pipe: Connection, begin: Callable[[], None] | None) -> None:
    """The body of a worker process: answer until the pipe is closed. `begin` runs first."""
    global _info
    if begin is not None:
        begin()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process decides what Ctrl-C means
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    set_num_threads(1)      # workers share the processor with each other
    seed_worker(plan.seed, plan.id)
    _info = WorkerInfo(plan.id, plan.count, plan.seed + plan.id, plan.dataset)
    worker = _Worker(plan)
    try:
        while True:
            message = pickle.loads(pipe.recv_bytes())
            if message[0] == "resume":
                worker.restart(message[1])
                continue
            _, task, index, name = message
            kind, data, segment = worker.answer(index, name)
            try:
                pipe.send_bytes(pickle.dumps((task, kind, data, segment), 5))
            except OSError:
                if segment is not None:
                    discard(segment)
                return
    except (EOFError, OSError):
        return


class _Worker:
    """The state of a worker: its fetcher, made late so that its errors are reported as such."""

    def __init__(self, plan: WorkerPlan) -> None:
        self._plan = plan
        self._shared = plan.shared
        self._fetcher: Fetcher | None = None
        self._started = self._ended = False

    def restart(self, shared: int | None) -> None:
        """Begin a stream again, for a new epoch."""
        self._shared = shared
        self._fetcher, self._ended = None, False

    def answer(self, index: Any, name: str) -> tuple[str, bytes, str | None]:
        """(kind, pickle, segment) for one request."""
        plan = self._plan
        if self._ended:
            return "end", b"", None
        try:
            if not self._started and plan.init is not None:
                plan.init(plan.id)
            self._started = True
            if self._fetcher is None:
                if self._shared is not None:
                    pipes = importlib.import_module("adjoint.utils.data.graph_settings")
                    pipes.begin(plan.dataset, self._shared, plan.id, plan.count)
                self._fetcher = Fetcher(plan.dataset, plan.collate, plan.batched, plan.drop_last,
                                        plan.stream)
            return "data", *pack(self._fetcher(index), name)
        except StopIteration as stop:
            if not plan.stream:
                return "error", _report(stop, plan.id), None
            self._ended = True
            return "end", b"", None
        except Exception as error:
            return "error", _report(error, plan.id), None


def _report(error: BaseException, worker: int) -> bytes:
    """The exception's class and its traceback, pickled; another class if that cannot be sent."""
    sent = ExceptionWrapper((type(error), error, error.__traceback__),
                            f"in DataLoader worker process {worker}")
    try:
        data = pickle.dumps(sent)
        pickle.loads(data)
        return data
    except Exception:
        sent.exc_type = type(error).__name__
        return pickle.dumps(sent)


def raise_report(data: bytes) -> None:
    """Raise what `_report` described: the same class where it takes one string."""
    pickle.loads(data).reraise(WorkerError)


def describe_exit(process: Any) -> str:
    """Why a worker process ended, in words."""
    code = process.exitcode
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        hint = {"SIGKILL": " (out of memory?)", "SIGBUS": " (shared memory full?)"}.get(name, "")
        return f"was killed by signal {name}{hint}"
    return f"exited with code {code}"


