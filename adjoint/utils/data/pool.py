"""The worker processes of a DataLoader, as seen from the main process."""
from __future__ import annotations

import multiprocessing
import os
import pickle
import queue
import secrets
import threading
import time
import warnings
import weakref
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from adjoint.base.errors import ArgumentError, StructureError
from adjoint.utils.data.segments import discard, unpack
from adjoint.utils.data.worker import WorkerError, WorkerPlan, describe_exit, run_worker

_GRACE = 2.0  # seconds a worker gets to finish its item before it is terminated


class Answer(NamedTuple):
    """What a worker sent back for one task."""

    task: int
    kind: str
    data: bytes
    segment: str | None


class _Feeder(threading.Thread):
    """Sends requests, so that a full pipe can never block the thread that reads answers."""

    def __init__(self) -> None:
        super().__init__(name="adjoint-dataloader", daemon=True)
        self.requests: queue.SimpleQueue[tuple[Connection, bytes] | None] = queue.SimpleQueue()

    def run(self) -> None:
        while (item := self.requests.get()) is not None:
            try:
                item[0].send_bytes(item[1])
            except OSError:
                continue  # the reader of answers sees the worker's end and reports it


_live: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


def _close_inherited() -> None:
    """In a forked worker: close its copies of the main process's ends of all pipes.

    A worker ends when its pipe does, which is when nobody holds the other end any more.
    """
    for pool in _live:
        for pipe in pool._pipes:
            pipe.close()


class WorkerPool:
    """Starts workers, sends tasks, receives answers; `shutdown` leaves nothing behind.

    Note [No shared locks]: every worker has a pipe of its own. A queue shared by workers
    stays locked for ever when one of them is killed while it holds the lock.
    """

    def __init__(self, plan: WorkerPlan, context: Any) -> None:
        resource_tracker.ensure_running()  # one tracker for all: fork copies it
        self._pid = os.getpid()
        self._prefix = f"adj_{self._pid}_{secrets.token_hex(3)}"
        self._feeder = _Feeder()
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []
        self._outstanding: set[int] = set()
        _live.add(self)
        try:
            for number in range(plan.count):
                self._start(replace(plan, id=number), context)
        except BaseException:
            self.shutdown()
            raise
        self._feeder.start()

    def _start(self, plan: WorkerPlan, context: Any) -> None:
        ours, theirs = context.Pipe(duplex=True)
        self._pipes.append(ours)
        forked = context.get_start_method() == "fork"
        arguments = (plan, theirs, _close_inherited if forked else None)
        process = context.Process(target=run_worker, args=arguments, daemon=True)
        try:
            with warnings.catch_warnings():  # NumPy's threads hold no lock of ours at a fork
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ArgumentError(
                f"DataLoader: the data set, collate_fn and worker_init_fn must be picklable for "
                f"the start method {context.get_start_method()!r}: {error}") from error
        finally:
            theirs.close()
        self._processes.append(process)

    def processes(self) -> list[Any]:
        """The workers that are there."""
        return list(self._processes)

    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [process.pid for process in self._processes]

    def submit(self, worker: int, task: int, index: Any) -> None:
        """Ask `worker` for the batch at `index`, to be answered under the number `task`."""
        self._outstanding.add(task)
        message = pickle.dumps(("fetch", task, index, f"{self._prefix}_{task}"), 5)
        self._feeder.requests.put((self._pipes[worker], message))

    def resume(self, shared: int | None = None) -> None:
        """Tell all workers that a new epoch begins, and the seed that data pipes share in it."""
        for pipe in self._pipes:
            self._feeder.requests.put((pipe, pickle.dumps(("resume", shared))))

    def receive(self, timeout: float | None) -> Answer | None:
        """The next answer of any worker; None after `timeout` seconds.

        Raises `WorkerError` when a worker has died.
        """
        by_pipe = dict(zip(self._pipes, self._processes, strict=True))
        sentinels = [process.sentinel for process in self._processes]
        ready = wait([*self._pipes, *sentinels], timeout)
        if not ready:
            return None
        for pipe in self._pipes:
            if pipe in ready or pipe.poll():
                try:
                    answer = Answer(*pickle.loads(pipe.recv_bytes()))
                except (EOFError, OSError):
                    self._died(by_pipe[pipe])
                return answer
        self._died(next(p for p in self._processes if p.sentinel in ready))
        return None

    def open(self, answer: Answer) -> Any:
        """The batch of an answer."""
        batch = unpack(answer.data, answer.segment)
        self._outstanding.discard(answer.task)
        return batch

    def drop(self, answer: Answer) -> None:
        """Throw an answer away."""
        if answer.segment is not None:
            discard(answer.segment)
        self._outstanding.discard(answer.task)

    def _died(self, process: Any) -> None:
        process.join(_GRACE)
        why, pid = describe_exit(process), process.pid
        self.shutdown()
        raise WorkerError(f"DataLoader worker (pid(s) {pid}) exited unexpectedly: it {why} while "
                          "it was loading; run with num_workers=0 to see an error of the data set")

    def shutdown(self) -> None:
        """End all workers, waiting briefly, then by force; remove their shared memory."""
        if os.getpid() != self._pid:
            return  # a forked copy of the loader: the workers are not its own
        if self._feeder.is_alive():
            self._feeder.requests.put(None)
            self._feeder.join(0.2)
        for pipe in self._pipes:
            pipe.close()
        deadline = time.monotonic() + _GRACE
        for process in self._processes:
            process.join(max(0.0, deadline - time.monotonic()))
        for force in ("terminate", "kill"):
            for process in self._processes:
                if process.is_alive():
                    getattr(process, force)()
                    process.join(1.0)
        for process in self._processes:
            if not process.is_alive():
                process.close()
        for task in self._outstanding:
            discard(f"{self._prefix}_{task}")
        self._pipes, self._processes, self._outstanding = [], [], set()


def start_context(context: Any) -> Any:
    """A multiprocessing context from a name, a context, or None for the system's default."""
    if context is None or isinstance(context, str):
        known: Sequence[str] = multiprocessing.get_all_start_methods()
        if context is not None and context not in known:
            raise ArgumentError("multiprocessing_context option should specify a valid start "
                                f"method in {known!r}, but got multiprocessing_context={context!r}")
        return multiprocessing.get_context(context)
    if not hasattr(context, "Process"):
        raise StructureError("multiprocessing_context option should be a valid context object or a "
                             "string specifying the start method, but got "
                             f"multiprocessing_context={context!r}")
    return context
