"""Bytes that are alive now, and the most since last asked: of storage-less runs, of real ones.

The allocator has one peak counter. Whoever starts it again goes through `restart`, which keeps
the largest peak for `max_memory_allocated`.
"""
from __future__ import annotations

from array import array
from collections.abc import Callable

from adjoint.kernels import alloc
from adjoint.memory import limits

most_alive = array("q", [0])       # (arrays of words: machine code reads them too)


def restart() -> tuple[int, int]:
    """(live, peak) of the allocator; the peak starts again from live."""
    words, reset = alloc.counters()
    live, peak = words[0], words[1]
    if peak != live:
        if peak > most_alive[0]:
            most_alive[0] = peak
        reset()
    return live, peak


def most() -> int:
    """The most bytes that were alive since `forget`."""
    return max(most_alive[0], alloc.live_and_peak()[1])


def forget() -> None:
    """Let `most` start again from what is alive now."""
    restart()
    most_alive[0] = 0


def from_here() -> tuple[int, Callable[[], int]]:
    """The bytes alive now, and what gives the most that were alive since. Of the allocator's peaks
    it takes the one that a budget, or where there is none the account of a run, leaves alone."""
    if limits.held():
        return restart()[0], lambda: alloc.live_and_peak()[1]
    return alloc.mark(), alloc.marked


class Meter:
    """A real run, from the allocator's counters; `before` bytes were alive when it began. `cells`:
    the bytes alive when the account began that are not of it, and the most that was alive before
    storages of other allocators were freed since the last mark."""

    def __init__(self, before: int = 0) -> None:
        self.before, self.cells = before, array("q", [restart()[0] - before, 0])
        self.words, self.reset = alloc.counters()

    def begin(self) -> None:
        """Count from here."""
        self.cells[0] = restart()[0] - self.before
        self.words, self.reset = alloc.counters()

    def live(self) -> int:
        """Bytes alive now."""
        return alloc.live_and_peak()[0] - self.cells[0]

    def mark(self) -> tuple[int, int]:
        """(alive now, most since the last mark)."""
        words = self.words                   # (`restart`, written out: it is asked at every event)
        live, peak = words[0], words[1]
        if peak != live:
            if peak > most_alive[0]:
                most_alive[0] = peak
            self.reset()
        start, over = self.cells
        self.cells[1] = 0
        return live - start, max(over, peak - start)

    def freed(self, nbytes: int) -> None:
        """A storage that another allocator had made was freed: until now it was there."""
        start, over = self.cells
        self.cells[0], self.cells[1] = start + nbytes, max(over, restart()[1] - start)


class Books:
    """The account of a storage-less run. What the run really allocates beside it (numbers,
    index arrays, data that the user's code makes with NumPy) is counted with it."""

    def __init__(self) -> None:
        self.meta = self.top = 0
        self.start = restart()[0]

    def begin(self) -> None:
        """Count from here."""
        self.start = restart()[0]
        self.top = self.live()

    def add(self, nbytes: int) -> None:
        """A storage was made."""
        self.fold()
        self.meta += nbytes
        self.fold()

    def drop(self, nbytes: int) -> None:
        """A storage was freed."""
        self.fold()
        self.meta -= nbytes

    def fold(self) -> None:
        """Take note of the peak so far, at the storage-less bytes of this time."""
        top = self.meta + restart()[1] - self.start
        if top > self.top:
            self.top = top

    def spike(self, nbytes: int) -> None:
        """A call held this much on its way."""
        self.top = max(self.top, self.live() + nbytes)

    def outside(self, nbytes: int) -> None:
        """A scratch run is over, and the package's own caches grew by this much."""
        restart()
        self.start += nbytes

    def live(self) -> int:
        """Bytes alive now."""
        return self.meta + alloc.live_and_peak()[0] - self.start

    def mark(self) -> tuple[int, int]:
        """(alive now, most since the last mark)."""
        self.fold()
        live = self.live()
        top, self.top = max(self.top, live), live
        return live, top
