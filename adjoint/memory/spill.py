"""A file for arrays that had to leave memory.

The file has no name: it is unlinked as soon as it is open, so an exception,
a kill or a crash leaves nothing behind. Regions of arrays that are gone are used again.
"""
from __future__ import annotations

import errno
import os
import tempfile
import threading
import time
import weakref
from typing import Any

import numpy as np

from adjoint.base.errors import AdjointError


class SpillError(AdjointError, OSError):
    """An array could not be written out or read back; what was to be written is still in memory."""


class Ticket:
    """Where an array lies in a file; the region is free again when the ticket goes."""

    __slots__ = ("file", "offset", "nbytes", "__weakref__")

    def __init__(self, file: SpillFile, offset: int, nbytes: int) -> None:
        self.file, self.offset, self.nbytes = file, offset, nbytes

    def __del__(self) -> None:
        self.file.free(self.offset, self.nbytes)


class SpillFile:
    """One unnamed temporary file in `folder` (None: the system's folder for such files).

    >>> import numpy as np
    >>> file = SpillFile()
    >>> ticket = file.write(np.arange(4.0))
    >>> file.read(ticket).view(np.float64)
    array([0., 1., 2., 3.])
    """

    bandwidth = 5e8      # bytes per second, both ways; measured as arrays come and go
    latency = 2e-4       # seconds per array
    probe = 1 << 24      # bytes that `try_out` writes

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder or tempfile.gettempdir()
        try:
            self._fd, path = tempfile.mkstemp(prefix="adjoint-", dir=folder)
        except OSError as error:
            raise SpillError(error.errno, f"cannot make a temporary file in {self.folder}: "
                             f"{error.strerror}; name another folder") from error
        weakref.finalize(self, os.close, self._fd)     # the system frees the space with it
        os.unlink(path)
        self._lock = threading.Lock()
        self._end = 0
        self._free: dict[int, list[int]] = {}

    def write(self, array: Any) -> Ticket:
        """Write the bytes of an array that owns its memory; SpillError loses nothing."""
        data = memoryview(as_bytes(array))
        n = len(data)
        with self._lock:
            offset, known = self._place(n)
        begun, done = time.perf_counter(), 0
        ticket = Ticket(self, offset, n)
        try:
            while done < n:
                done += self._pwrite(data[done:done + (1 << 26)], offset + done)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            why = "no space is left" if full else error.strerror
            raise SpillError(error.errno, f"{n:,} bytes could not be written to a temporary file in"
                             f" {self.folder}: {why}; the values are still in memory. Free space "
                             "there, or name another folder") from error
        if known:            # the first time, the system looks for space: it does not come again
            _note(n, begun)
        return ticket

    def read(self, ticket: Ticket) -> Any:
        """The bytes of a ticket, as a new array of uint8."""
        out = np.empty(ticket.nbytes, np.uint8)
        begun, view, done = time.perf_counter(), memoryview(out.data), 0
        while done < ticket.nbytes:
            got = os.preadv(self._fd, [view[done:]], ticket.offset + done)
            if not got:
                raise SpillError(errno.EIO, "a temporary file is shorter than what was written")
            done += got
        _note(done, begun)
        return out

    def try_out(self) -> None:
        """Write and read until `bandwidth` is that of this file: before it is planned with."""
        piece = np.zeros(1 << 20, np.uint8)
        for _ in range(2):                       # the first turn makes the file longer
            for done in [self.write(piece) for _ in range(0, self.probe, piece.nbytes)]:
                self.read(done)

    @classmethod
    def seconds(cls, nbytes: int) -> float:
        """Time to write an array out and read it back."""
        return 2 * (nbytes / cls.bandwidth + cls.latency)

    def free(self, offset: int, nbytes: int) -> None:
        """Let a region be used again."""
        with self._lock:
            self._free.setdefault(nbytes, []).append(offset)

    def _place(self, nbytes: int) -> tuple[int, bool]:
        """Where to write, and whether that was written to before."""
        free = self._free.get(nbytes)
        if free:
            return free.pop(), True
        offset = self._end
        self._end += nbytes
        return offset, False

    def _pwrite(self, data: Any, offset: int) -> int:
        return os.pwrite(self._fd, data, offset)


def _note(nbytes: int, begun: float) -> None:
    """A transfer of `nbytes` began at `begun` and has ended now."""
    if nbytes >= 1 << 20:
        seen = nbytes / max(time.perf_counter() - begun, 1e-9)
        SpillFile.bandwidth = 1 / (0.9 / SpillFile.bandwidth + 0.1 / seen)


def as_bytes(owner: Any) -> Any:
    """The memory of an owning array as bytes, in the order of addresses."""
    if not owner.flags.c_contiguous:
        owner = owner.transpose(sorted(range(owner.ndim), key=lambda i: -owner.strides[i]))
    return owner.reshape(-1).view(np.uint8)
