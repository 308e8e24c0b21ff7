"""Lineage: which op made which storage from what, so that a storage can be dropped and made again.

A `Storage` is one block of memory that tensors show; a `Slot` says how one of them shows it; a
`Record` is one op that ran: its operands as slots, its outputs. Storages refer to the record that
made them, records to the storages they read: a graph that only points backwards, as the tape does,
and that lives as long as what could still be asked for.

Residuals are `Handle`s. While a storage has handles it is held here and nowhere else in the tape,
so dropping it frees memory, unless the program holds it too.
"""
from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any

import numpy as np

from adjoint.base.aval import SCALAR, MetaArray, address
from adjoint.base.errors import AutogradError
from adjoint.base.provenance import locate
from adjoint.core.bind import compute, value_of
from adjoint.core.rehearsal import assume, current
from adjoint.core.tensor import (
    INFERENCE_CELL,
    Kept,
    OutRef,
    Packed,
    Tensor,
    fingerprint,
    out_ref,
    owner_of,
    share_cell,
    wrap,
)
from adjoint.core.versions import verify
from adjoint.memory.spill import as_bytes

ndarray = np.ndarray
_serial = count()


class Storage:
    """A block of memory, by the array that owns it.

    owner     that array while it is held here; None: only others hold it, or it is gone
    record    the op that made it; None: a source, which cannot be made again
    handles   residuals that show it; `uses` has the sequence number of the node of each
    readers   records that read it
    ticket    where it lies in a spill file
    """

    __slots__ = ("ref", "owner", "nbytes", "record", "handles", "readers", "uses", "ticket",
                 "number", "turn", "index", "until", "__weakref__")

    def __init__(self, owner: Any) -> None:
        self.owner: Any = None
        self.nbytes: int = owner.nbytes
        self.record: Record | None = None
        self.handles = self.readers = 0
        self.uses: list[int] = []
        self.ticket: Any = None
        self.number = next(_serial)
        self.turn = self.index = -1           # the recorded step that has seen it, its number there
        self.until = -1                       # a plan wants it held up to that event
        self.ref: Any = None

    def live(self) -> Any:
        """The owning array, or None where it is gone."""
        return self.owner if self.owner is not None or self.ref is None else self.ref()

    def wanted(self) -> bool:
        """Whether somebody here may still ask for it."""
        return self.handles > 0 or (self.record is None and self.readers > 0)


class Layout:
    """How a tensor shows the memory of its owner: shape, strides and offset in bytes, dtype."""

    __slots__ = ("shape", "strides", "offset", "dtype")

    def __init__(self, array: Any, owner: Any) -> None:
        self.shape, self.strides, self.dtype = array.shape, array.strides, array.dtype
        self.offset = offset_in(array, owner)

    def array(self, owner: Any) -> Any:
        """The tensor's array on `owner`."""
        if (self.offset == 0 and owner.shape == self.shape and owner.strides == self.strides
                and owner.dtype == self.dtype):
            return owner
        if type(owner) is MetaArray:
            return MetaArray(self.shape, self.dtype, owner, self.strides, self.offset)
        return np.ndarray(self.shape, self.dtype, as_bytes(owner), self.offset, self.strides)


class Out(Layout):
    """An output of a record: which one, and a weak reference to the storage that it shows."""

    __slots__ = ("index", "ref")

    def __init__(self, array: Any, owner: Any, index: int, storage: Storage) -> None:
        Layout.__init__(self, array, owner)
        self.index, self.ref = index, weakref.ref(storage)


class Slot(Layout):
    """An operand: the storage, how it is shown, and its version then."""

    __slots__ = ("storage", "cell", "version", "mark")

    def __init__(self, storage: Storage, array: Any, owner: Any, cell: Any, version: int) -> None:
        self.shape, self.strides, self.dtype = array.shape, array.strides, array.dtype
        self.offset = offset_in(array, owner)
        self.storage, self.cell, self.version = storage, cell, version
        watched = cell is not None and cell.exposed and storage.record is None
        self.mark = fingerprint(array) if watched else None

    def check(self, array: Any) -> bool:
        """Whether the memory is as it was, as far as versions and fingerprints tell."""
        return (self.cell is None or self.cell.version == self.version) and (
            self.mark is None or fingerprint(array) == self.mark)

    def verify(self, node: Any) -> None:
        """Raise where the storage was written to since the node saved it."""
        cell = self.cell
        if cell is None or cell.version == self.version and not cell.exposed:
            return
        owner = self.storage.live()            # (nobody else has what is gone)
        if owner is not None or cell.version != self.version:
            shown = MetaArray(self.shape, self.dtype) if owner is None else self.array(owner)
            verify(out_ref(shown, cell, 0, self.version), node)


class Handle(Slot):
    """A residual: the slot that a node reads in backward."""

    __slots__ = ("seq", "__weakref__")

    def __init__(self, storage: Storage, array: Any, owner: Any, cell: Any, version: int,
                 seq: int) -> None:
        Slot.__init__(self, storage, array, owner, cell, version)
        storage.handles += 1
        storage.uses.append(seq)
        storage.owner = owner
        self.seq = seq                         # (last: then there is something to undo)

    def __del__(self) -> None:
        seq = getattr(self, "seq", None)
        if seq is None:                        # a signal's handler has stopped `__init__`
            return
        s = self.storage
        s.handles -= 1
        s.uses.remove(seq)
        if s.handles <= 0 and s.until < 0 and not s.wanted():
            s.owner = None


class Record:
    """One op that ran: enough to run it again. `slots` are the operands that are tensors."""

    __slots__ = ("op", "args", "slots", "attrs", "outs", "seconds", "serial", "need", "code",
                 "lasti", "node", "__weakref__")

    def __init__(self, op: Any, args: Sequence[Any], attrs: Any, seconds: float, need: int,
                 place: tuple[Any, int]) -> None:
        self.op, self.args, self.attrs = op, args, attrs
        self.outs: list[Out] = []
        self.seconds, self.need, self.serial = seconds, need, next(_serial)
        self.code, self.lasti = place
        self.node: Any = None
        self.slots: list[Slot] = [a for a in args if type(a) is Slot]
        for a in self.slots:
            s = a.storage
            s.readers += 1
            if s.record is None and s.owner is None and s.ticket is None:
                s.owner = s.ref()

    def __del__(self) -> None:
        for a in self.slots:
            s = a.storage
            s.readers -= 1
            if s.owner is not None and s.until < 0 and not s.wanted():
                s.owner = None


class _Home(weakref.ref):  # type: ignore[type-arg]  # of an array, whatever its kind
    """Where a storage has its memory; `_left` is called when that goes."""

    __slots__ = ("key", "size", "lineage", "storage")


def _left(home: Any) -> None:
    lineage = home.lineage
    lineage.live -= home.size
    if lineage.table.get(home.key) is home.storage():
        lineage.table.pop(home.key, None)


class _Tie(weakref.ref):  # type: ignore[type-arg]  # of a node
    """The node of a record; `_dead` is called when it goes."""

    __slots__ = ("record", "lineage")


def _dead(tie: Any) -> None:
    record = tie.record()
    if record is not None:
        tie.lineage.cut([s for s in [out.ref() for out in record.outs] if s is not None])


class Lineage:
    """The storages of a program that runs under a budget, by the arrays that own them."""

    def __init__(self) -> None:
        self.table: dict[int, Storage] = {}
        self.live = 0                          # bytes of the storages that are there
        self._refs: list[Any] = []
        self._many = 1024                      # references after which dead ones are left out

    # ------------------------------------------------------------------ bookkeeping
    def storage(self, owner: Any) -> Storage:
        """The storage of an owning array; a new one is a source."""
        found = self.table.get(id(owner))
        if found is None or found.live() is not owner:
            found = Storage(owner)
            self._refs.append(weakref.ref(found))
            if len(self._refs) > self._many:
                self._refs = [ref for ref in self._refs if ref() is not None]
                self._many = 1024 + 2 * len(self._refs)
            self.place(found, owner)
        return found

    def every(self) -> list[Storage]:
        """The storages that somebody may still ask for, or show."""
        return [s for s in [ref() for ref in self._refs] if s is not None]

    def place(self, s: Storage, owner: Any) -> None:
        """`owner` is the memory of `s` from now on."""
        home: Any = _Home(owner, _left)
        home.key, home.size, home.lineage, home.storage = id(owner), s.nbytes, self, weakref.ref(s)
        self.live += s.nbytes
        s.ref = home
        self.table[home.key] = s

    def slot(self, t: Any) -> Any:
        """An operand as a record keeps it: a slot for memory, anything else as it is."""
        array = t.array if isinstance(t, Tensor) else t
        if not isinstance(t, Tensor) or type(array) is not ndarray:
            return t
        owner = owner_of(array)
        cell = share_cell(t)
        return Slot(self.storage(owner), array, owner, cell, cell.version)

    def recorded(self, op: Any, args: Any, attrs: Any, made: Any, node: Any, seconds: float,
                 need: int, fresh: Sequence[tuple[Storage, Out]], tied: bool = True) -> Record:
        """The record of an op that made `made` and, hidden, what is `fresh`; `tied` to its node."""
        record = Record(op, [self.slot(a) for a in args], attrs, seconds, need,
                        (node.code, node.lasti))
        for i, t in enumerate(made):
            self.made(record, i, t.array)
        for s, out in fresh:
            if out.index >= len(made) and s.live() is not None:
                self.shown(record, s, out)
        if tied:
            self.tie(record, node)
        return record

    def made(self, record: Record, index: int, array: Any) -> Storage | None:
        """Note that output `index` of `record` is `array`; None where it shows older memory."""
        owner = owner_of(array)
        s = self.storage(owner)
        return s if s.record is None and self.shown(record, s, Out(array, owner, index, s)) \
            else None

    def shown(self, record: Record, s: Storage, out: Out) -> bool:
        """Note that an output of `record` shows `s`; False where that is older."""
        if s.record is not None:
            return False
        for a in record.slots:
            if a.storage is s:
                return False
        s.record = record
        record.outs.append(out)
        return True

    def tie(self, record: Record, node: Any) -> None:
        """When the node dies without a backward, so does the way back to what is live."""
        tie: Any = _Tie(node, _dead)
        tie.record, tie.lineage = weakref.ref(record), self
        record.node = tie

    # ------------------------------------------------------------------ making again
    def possible(self, s: Storage) -> bool:
        """Whether `s` could be made again if it were dropped now."""
        return s.record is not None and self.closure(s, dropped=True) is not None

    def closure(self, s: Storage, dropped: bool = False, most: int = 1 << 30
                ) -> list[Record] | None:
        """The records to run, in order, so that `s` exists; None where that is impossible, or
        takes more than `most` of them. `dropped`: as if `s` were not there."""
        found: dict[int, Record] = {}
        todo = [s]
        while todo:
            x = todo.pop()
            if (x is not s or not dropped) and (x.live() is not None or x.ticket is not None):
                continue
            r = x.record
            if r is None:
                return None
            if r.serial in found:
                continue
            found[r.serial] = r
            if len(found) > most:
                return None
            todo += [a.storage for a in r.slots]
        return [found[k] for k in sorted(found)]

    def materialize(self, s: Storage, run: Callable[[Record, list[Any]], Sequence[Any]],
                    load: Callable[[Storage], Any]) -> Any:
        """The owning array of `s`, made again where it is gone. `run(record, arrays)` computes,
        `load(storage)` reads from where it was spilled."""
        owner = s.live()
        if owner is not None:
            return owner
        if s.ticket is not None:
            return load(s)
        records = self.closure(s)
        if records is None:
            raise AutogradError("budget: a dropped residual cannot be computed again: one of the "
                                "values it was computed from is gone")
        left: dict[int, int] = {}
        for r in records:
            for a in r.slots:
                left[a.storage.number] = left.get(a.storage.number, 0) + 1
        held: dict[int, Any] = {}
        for r in records:
            self._again(r, s, held, left, run, load)
            for a in r.slots:
                left[a.storage.number] -= 1
                if not left[a.storage.number]:
                    held.pop(a.storage.number, None)
        return held[s.number]

    def _again(self, r: Record, goal: Storage, held: dict[int, Any], left: dict[int, int],
               run: Callable[[Record, list[Any]], Sequence[Any]],
               load: Callable[[Storage], Any]) -> None:
        """Run one record; its operands, and of what it makes the goal and what is `left` to be
        read, are kept in `held`."""
        arrays = []
        for a in r.args:
            if type(a) is Slot:
                owner = held.get(a.storage.number)
                if owner is None:
                    owner = self.materialize(a.storage, run, load)
                    held[a.storage.number] = owner
                arrays.append(a.array(owner))
                if not a.check(arrays[-1]):
                    raise AutogradError(_changed(a, r))
            else:
                arrays.append(a.array if isinstance(a, Tensor) else a)
        outs = run(r, arrays)
        arrays.clear()
        for out in r.outs:
            x = out.ref()
            if x is not None and x.live() is None:
                owner = _shaped(outs[out.index], out, x)
                self.place(x, owner)
                if x.wanted() or x.until >= 0:
                    x.owner = owner
                if x is goal or left.get(x.number):
                    held[x.number] = owner

    def readers_of(self, s: Storage) -> list[Storage]:
        """The storages that were computed from `s`, at any distance, oldest first."""
        if not s.readers:
            return []
        found, reached = [], {s.number}
        for x in sorted(self.every(), key=lambda x: x.record.serial if x.record else -1):
            if x.record is not None and any(a.storage.number in reached
                                            for a in x.record.slots):
                reached.add(x.number)
                found.append(x)
        return found

    def cut(self, storages: Iterable[Storage]) -> None:
        """Forget how live storages were made: what they were made from may go."""
        for s in storages:
            if s.record is not None and s.live() is not None:
                s.record = None
                if s.wanted():
                    s.owner = s.live()


def _changed(a: Slot, r: Record) -> str:
    """The text for an operand that was written to since the op ran."""
    how = "" if a.cell is None else f": it was {a.cell.where()}"
    return (f"budget: {r.op.name} at {locate(r.code, r.lasti)} has to run again, but its operand "
            f"of shape {list(a.shape)} has been written to since{how}\n  fix: call backward before "
            "the write, or clone() what is written to")


def _shaped(out: Any, slot: Layout, s: Storage) -> Any:
    """The owner of a recomputed output, laid out as the first time."""
    owner = owner_of(out)
    offset = offset_in(out, owner)
    if owner.nbytes == s.nbytes and out.strides == slot.strides and offset == slot.offset:
        return owner
    block = np.zeros(s.nbytes, np.uint8)
    np.ndarray(slot.shape, slot.dtype, block, slot.offset, slot.strides)[...] = out
    return block


def offset_in(array: Any, owner: Any) -> int:
    """Bytes from the beginning of its memory to the first element of `array`."""
    if array is owner:
        return 0
    if type(array) is MetaArray:
        return array.offset
    return address(array) - address(owner)


def movable(saved: Any, least: int, foretold: bool = False
            ) -> tuple[Any, Any, Any, int] | None:
    """(array, its owner, cell, version) of a residual that may leave memory; None for what is held
    anyway (parameters and views of them), small, shared with other libraries, or no NumPy array.
    `foretold`: in a prediction, arrays without storage may leave too."""
    if type(saved) is OutRef:
        array, cell, version = saved.array, saved.cell, saved.version
    else:
        t = saved.tensor if type(saved) is Kept else saved
        root = t if t._base is None else t._base
        if t.level or t._cell is INFERENCE_CELL or (root.is_leaf and root._rg):
            return None
        array, cell = t.array, share_cell(t)
        version = saved.version if type(saved) is Kept else cell.version
    meta = type(array) is MetaArray and current() is not None
    if meta and not foretold:
        assume("residuals that do not stay where they are")
    if not (meta and foretold or type(array) is np.ndarray):
        return None
    if array.nbytes < least or cell.exposed:
        return None
    if meta:
        owner = array if array.base is None else array.base
        return None if owner is SCALAR else (array, owner, cell, version)
    owner = owner_of(array)
    return (array, owner, cell, version) if owner.flags.owndata else None


def handles_of(node: Any, owner: Any) -> list[Handle]:
    """The residuals of a node that `owner` looks after; those of regions are made again."""
    found = []
    for s in node.saved if type(node.saved) is tuple else ():
        for p in s if type(s) is tuple else (s,):
            while type(p) is Packed and p.hook is not owner and hasattr(p.hook, "ready"):
                p = p.hook.ready(p)
            if type(p) is Packed and p.hook is owner and type(p.value) is Handle:
                found.append(p.value)
    return found


def as_it_was(saved: Any, node: Any) -> Tensor:
    """A residual that was not movable."""
    value_of(saved, node)
    t: Any = saved.tensor if type(saved) is Kept else saved
    return wrap(t.array)


def recompute(r: Record, arrays: list[Any]) -> Sequence[Any]:
    """All outputs of a record, hidden ones last."""
    return compute(r.op, arrays, r.attrs)



def _references() -> int:
    """What `getrefcount` says of an array that one storage holds and nobody else."""
    s = Storage(np.empty(0))
    s.owner = np.empty(0)
    return sys.getrefcount(s.owner)


_OURS = _references()


def ours(s: Storage) -> bool:
    """Whether dropping the storage here frees its memory."""
    return s.owner is not None and sys.getrefcount(s.owner) <= _OURS
