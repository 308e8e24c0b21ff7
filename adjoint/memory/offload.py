"""Residuals elsewhere between forward and backward: on disk, as copies, or smaller.

Context managers, as PyTorch's `save_on_cpu`. Parameters and other leaves that require a gradient
stay where they are: they are alive anyway. Memory that several residuals show goes once, versions
are checked as ever, and second derivatives work.
"""
from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from adjoint.autograd.graph import saved_tensors_hooks
from adjoint.base.aval import MetaArray
from adjoint.base.errors import ArgumentError
from adjoint.base.provenance import locate
from adjoint.core.bind import value_of
from adjoint.core.rehearsal import assume, call, copied, current
from adjoint.core.tensor import Kept, OutRef, Tensor, wrap
from adjoint.kernels import alloc
from adjoint.memory.lineage import Slot, Storage, movable
from adjoint.memory.sizes import parse_bytes
from adjoint.memory.spill import SpillError, SpillFile, Ticket


class _Elsewhere(saved_tensors_hooks):
    """Residuals that are worth it go through `put` and `get`; all others stay as they are."""

    once = True

    def __init__(self, min_bytes: int) -> None:
        super().__init__(lambda t: t, lambda t: t)
        self.min_bytes = min_bytes

    def pack(self, saved: Any, node: Any) -> Any:
        found = movable(saved, self.min_bytes, foretold=True)
        if found is None:
            return saved
        array, owner, cell, version = found
        return self.put(array, owner, cell, version, node)

    def unpack(self, packed: Any, node: Any) -> Tensor:
        value = packed.value
        if isinstance(value, OutRef | Kept | Tensor):
            value_of(value, node)
            return wrap(value.array)
        slot = value[0]
        slot.verify(node)
        t = wrap(self.get(value))
        t._cell = slot.cell
        return t

    def put(self, array: Any, owner: Any, cell: Any, version: int, node: Any) -> Any:
        """Take a residual away; gives (slot, ...) to be handed to `get`."""
        raise NotImplementedError

    def get(self, value: Any) -> Any:
        """The array again."""
        raise NotImplementedError


class _Made:
    """What was made of arrays, while it lives: one of its kind per array and content. `what` tells
    the contents of one array apart (the version: a write may come between two residuals)."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[Any, Any, Any]] = {}

    def find(self, owner: Any, what: Any) -> Any:
        """What was made of that content; None where nothing was, or it is gone."""
        held = self._of.get(id(owner))
        return held[2]() if held is not None and held[0]() is owner and held[1] == what else None

    def keep(self, owner: Any, what: Any, made: Any) -> None:
        """Remember what was made."""
        at, of = id(owner), self._of
        of[at] = weakref.ref(owner, lambda _: of.pop(at, None)), what, weakref.ref(made)


class _Entry:
    """One block of memory on its way to the file, there, or back."""

    __slots__ = ("array", "nbytes", "ticket", "write", "read", "__weakref__")

    def __init__(self, array: Any) -> None:
        self.nbytes = array.nbytes
        self.array: Any = array                # until it is written, and after it was read
        self.ticket: Ticket | None = None
        self.write: Future[None] | None = None
        self.read: Future[Any] | None = None


class saved_on_disk(_Elsewhere):
    """Keep residuals of at least `min_bytes` in a temporary file between forward and backward.

    dir        a folder on a fast disk; None: the system's for temporary files
    min_bytes  smaller residuals stay in memory
    ahead      how many blocks backward reads before they are asked for
    in_flight  bytes that may wait to be written ("256MB"); beyond, forward waits for the disk; 0:
               for every write
    on_full    "raise": SpillError once the disk is full; "memory": warn, and keep the rest in
               memory. Either way nothing is lost: what was not written is still in memory

    Writing and reading go on beside the computation. The file has no name, so nothing is left of it
    after an exception, a kill or a crash. How far they are at a given line is not known before: a
    prediction (`memory.predict`) counts what waits and what is read ahead as the slowest disk and
    the fastest would leave it, the most that it can be, and says so; it is exact where
    ``in_flight=0, ahead=0``.

    >>> import adjoint as ad
    >>> x = ad.ones(200, 200, requires_grad=True)
    >>> with ad.memory.saved_on_disk():
    ...     y = x.exp().sin().sum()
    >>> y.backward()
    """

    def __init__(self, dir: str | None = None, min_bytes: int | str = 1 << 16, ahead: int = 4,
                 in_flight: int | str = "256MB", on_full: str = "raise") -> None:
        super().__init__(parse_bytes(min_bytes))
        if on_full not in ("raise", "memory") or ahead < 0:
            raise ArgumentError(f"saved_on_disk: on_full={on_full!r}, ahead={ahead}; on_full is "
                                "'raise' or 'memory', ahead at least 0")
        self.on_full, self.ahead, self.in_flight = on_full, ahead, parse_bytes(in_flight)
        self.file = SpillFile(dir)
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="adjoint-disk")
        weakref.finalize(self, self._pool.shutdown, wait=False)
        self._entries = _Made()
        self._order: list[weakref.ref[_Entry]] = []
        self._places: weakref.WeakKeyDictionary[_Entry, int] = weakref.WeakKeyDictionary()
        self._waiting = 0
        self._foretold: list[weakref.ref[_Entry]] = []
        self._room = threading.Condition()
        self._failure: SpillError | None = None

    def put(self, array: Any, owner: Any, cell: Any, version: int, node: Any) -> Any:
        self._complain()
        entry = self._entries.find(owner, version)
        if entry is None:
            entry = _Entry(owner)
            self._entries.keep(owner, version, entry)
            self._places[entry] = len(self._order)
            self._order.append(weakref.ref(entry))
            if type(owner) is MetaArray:
                self._foretell(entry, node)
            elif not self._failure:
                self._start(entry, entry.nbytes)
        return _slot(array, owner, cell, version), entry

    def _start(self, entry: _Entry, nbytes: int) -> None:
        with self._room:
            while self._waiting and self._waiting + nbytes > self.in_flight:
                self._room.wait()
            self._waiting += nbytes
        entry.write = self._pool.submit(_write, weakref.ref(entry), weakref.ref(self), nbytes)
        if nbytes > self.in_flight:
            entry.write.result()

    def _foretell(self, entry: _Entry, node: Any) -> None:
        """`_start` in a prediction: what may wait does."""
        waiting = self._foretold
        if not waiting and (self.in_flight or self.ahead):
            assume(f"saved_on_disk from {locate(node.code, node.lasti)} on: at most this, as "
                   "writes and reads go on beside the computation")
        total = entry.nbytes + sum(e.nbytes for ref in waiting if (e := ref()) is not None)
        waiting.append(weakref.ref(entry))
        while waiting and total > self.in_flight:
            total -= _leave(waiting.pop(0))

    def _written(self, nbytes: int, error: SpillError | None) -> None:
        with self._room:
            self._waiting -= nbytes
            self._failure = self._failure or error
            self._room.notify_all()

    def _complain(self) -> None:
        """Say once that the disk is full."""
        error = self._failure
        if error is None or getattr(error, "told", False):
            return
        error.told = True  # type: ignore[attr-defined]  # a note on the exception itself
        if self.on_full == "raise":
            raise error
        warnings.warn(f"saved_on_disk keeps the rest in memory: {error.strerror}", RuntimeWarning,
                      stacklevel=3)

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        if exc[0] is None:
            self.wait()
            self._complain()

    def wait(self) -> None:
        """Return when everything is written."""
        while self._foretold:
            _leave(self._foretold.pop())
        with self._room:
            while self._waiting:
                self._room.wait()

    def get(self, value: Any) -> Any:
        slot, entry = value
        place = self._places.get(entry, 0)
        owner = self._owner(entry)
        for ref in self._order[max(place - self.ahead, 0):place]:
            before = ref()
            if before is not None and before.array is None and before.read is None:
                before.read = self._reading(before)
        return slot.array(owner)

    def _reading(self, entry: _Entry) -> Future[Any]:
        if entry.ticket is not None or current() is None:
            return self._pool.submit(_read, self.file, entry)
        done: Future[Any] = Future()
        done.set_result(_read(self.file, entry))
        return done

    def _owner(self, entry: _Entry) -> Any:
        owner = entry.array                    # not yet written, or read for another residual
        if owner is None:
            reading = entry.read
            owner = reading.result() if reading is not None else _read(self.file, entry)
            entry.array, entry.read = owner, None
        return owner


def _write(entry: weakref.ref[_Entry], hooks: weakref.ref[saved_on_disk], nbytes: int) -> None:
    """In a thread: write a block and let go of it."""
    found, owner = entry(), hooks()
    if owner is None:
        return
    error = None
    if found is not None:
        try:
            found.ticket = owner.file.write(found.array)
            found.array = None
        except SpillError as problem:
            error = problem
    del found
    owner._written(nbytes, error)


def _read(file: SpillFile, entry: _Entry) -> Any:
    """Read a block, also in a thread; its memory is counted like any other."""
    if entry.ticket is None and current() is not None:
        return MetaArray((entry.nbytes,), np.uint8)
    alloc.ensure()
    assert entry.ticket is not None, "a block without its array was written"
    return file.read(entry.ticket)


def _leave(ref: weakref.ref[_Entry]) -> int:
    """In a prediction: a block is written; gives its bytes."""
    entry = ref()
    if entry is None:
        return 0
    entry.array = None
    return entry.nbytes


def elsewhere(fn: Callable[..., Any], array: Any, *args: Any, otherwise: Callable[[], Any]) -> Any:
    """`fn(array, *args)`; of an array without storage in a prediction, what that does to memory."""
    if type(array) is MetaArray:
        return call(fn, array, *args, otherwise=otherwise)
    return fn(array, *args)


def _slot(array: Any, owner: Any, cell: Any, version: int) -> Slot:
    return Slot(Storage(owner), array, owner, cell, version)


class saved_on_cpu(_Elsewhere):
    """Keep residuals as copies in main memory, so that the originals may go or be overwritten.

    The processor's memory is where arrays are; this is PyTorch's `save_on_cpu` without copies of
    parameters. `pin_memory` is accepted and means nothing here.

    >>> import adjoint as ad
    >>> x = ad.ones(3, requires_grad=True)
    >>> with ad.memory.saved_on_cpu():
    ...     y = x.exp().sum()
    >>> y.backward()
    """

    def __init__(self, pin_memory: bool = False) -> None:
        super().__init__(0)
        self._copies = _Made()

    def put(self, array: Any, owner: Any, cell: Any, version: int, node: Any) -> Any:
        copy = self._copies.find(owner, version)
        if copy is None:
            copy = _Entry(copied(owner))
            self._copies.keep(owner, version, copy)
        return _slot(array, owner, cell, version), copy

    def get(self, value: Any) -> Any:
        slot, copy = value
        return slot.array(copy.array)

    def unpack(self, packed: Any, node: Any) -> Tensor:
        value = packed.value
        if type(value) is tuple:               # a copy: writes to the original do not matter
            return wrap(self.get(value))
        return super().unpack(packed, node)
