"""`torch.multiprocessing`: Python's `multiprocessing`, and `spawn`.

A tensor that is sent to another process is copied, unless `share_memory_()` (of a module:
`share_memory()`) moved it to shared memory before the process began: then both write to the same
numbers, as training without locks does (Recht et al. 2011, Hogwild).
"""
from __future__ import annotations

import multiprocessing as _mp
import sys
import traceback
from collections.abc import Callable, Sequence
from multiprocessing import *  # noqa: F403 - PyTorch's module has every name of Python's
from multiprocessing import connection as _connection
from typing import Any

from adjoint.base.errors import AdjointError, ArgumentError


class ProcessException(AdjointError, RuntimeError):
    """A process started by `spawn` failed."""

    def __init__(self, msg: str, error_index: int, pid: int) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, pid


class ProcessRaisedException(ProcessException):
    """It raised: the message holds its traceback."""


class ProcessExitedException(ProcessException):
    """It ended without a traceback: by a signal, or by an exit code."""

    def __init__(self, msg: str, error_index: int, pid: int, exit_code: int) -> None:
        super().__init__(msg, error_index, pid)
        self.exit_code = exit_code


def _work(fn: Callable[..., Any], i: int, args: Sequence[Any], errors: Any) -> None:
    try:
        fn(i, *args)
    except KeyboardInterrupt:
        pass
    except BaseException:
        errors.put(traceback.format_exc())
        sys.exit(1)


class ProcessContext:
    """The processes of one `spawn`; `join` waits for them."""

    def __init__(self, processes: list[Any], errors: list[Any]) -> None:
        self.processes, self.errors = processes, errors

    def pids(self) -> list[int]:
        """Numbers of the processes."""
        return [int(p.pid) for p in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """True when all have ended; raises with the first failure, after ending the others."""
        sentinels = {p.sentinel: i for i, p in enumerate(self.processes) if p.exitcode is None}
        if sentinels:
            _connection.wait(list(sentinels), timeout)
        codes = [p.exitcode for p in self.processes]     # read once: one may end in between
        failed = next((i for i, code in enumerate(codes) if code not in (None, 0)), None)
        if failed is None:
            return None not in codes
        for p in self.processes:
            if p.is_alive():
                p.terminate()
            p.join()
        p = self.processes[failed]
        if self.errors[failed].empty():
            how = f"signal {-p.exitcode}" if p.exitcode < 0 else f"exit code {p.exitcode}"
            raise ProcessExitedException(f"process {failed} terminated with {how}", failed,
                                         int(p.pid), p.exitcode)
        raise ProcessRaisedException(f"\n\n-- Process {failed} terminated with the following "
                                     f"error:\n{self.errors[failed].get()}", failed, int(p.pid))


def start_processes(fn: Callable[..., Any], args: Sequence[Any] = (), nprocs: int = 1,
                    join: bool = True, daemon: bool = False,
                    start_method: str = "spawn") -> ProcessContext | None:
    """Run fn(i, *args) in `nprocs` processes, i = 0, 1, ...; with `join`, wait for all of them.

    A process that fails ends the others, and its traceback is raised here as a
    ProcessRaisedException.
    """
    if nprocs < 1:
        raise ArgumentError(f"spawn: nprocs must be at least 1, got {nprocs}")
    context: Any = _mp.get_context(start_method)
    processes, errors = [], []
    for i in range(nprocs):
        queue = context.SimpleQueue()
        p = context.Process(target=_work, args=(fn, i, tuple(args), queue), daemon=daemon)
        p.start()
        processes.append(p)
        errors.append(queue)
    found = ProcessContext(processes, errors)
    if not join:
        return found
    while not found.join():
        pass
    return None


def spawn(fn: Callable[..., Any], args: Sequence[Any] = (), nprocs: int = 1, join: bool = True,
          daemon: bool = False, start_method: str = "spawn") -> ProcessContext | None:
    """`start_processes` with fresh interpreters."""
    return start_processes(fn, args, nprocs, join, daemon, start_method)


def get_all_sharing_strategies() -> set[str]:
    """{"copy"}: tensors are copied between processes."""
    return {"copy"}


def get_sharing_strategy() -> str:
    """ "copy"."""
    return "copy"


def set_sharing_strategy(new_strategy: str) -> None:
    """Accepts PyTorch's names and changes nothing: tensors are copied between processes."""
    if new_strategy not in ("copy", "file_descriptor", "file_system"):
        raise ArgumentError(f"unknown sharing strategy {new_strategy!r}")


_names: Any = _mp
__all__ = [*_names.__all__, "ProcessContext", "ProcessException", "ProcessExitedException",
           "ProcessRaisedException", "get_all_sharing_strategies", "get_sharing_strategy",
           "set_sharing_strategy", "spawn", "start_processes"]
