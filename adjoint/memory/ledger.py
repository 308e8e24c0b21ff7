"""Every storage of a run: who made it, on which line, in which module, what for, how long.

One observer for real and for storage-less runs: they differ in the meter only.
"""
from __future__ import annotations

import struct
import sys
import time
import weakref
from array import array as words
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from types import CodeType
from typing import Any

import numpy as np

from adjoint.base import provenance
from adjoint.base.aval import SCALAR, MetaArray
from adjoint.base.tier import pays
from adjoint.core.modes import Observer, watchers
from adjoint.core.tensor import Freed, Kept, OutRef, Parameter, Tensor, owner_of

ROLES = ("parameter", "gradient", "optimizer state", "input", "saved residual", "activation",
         "temporary")
FOREVER = 1 << 62
Mark = tuple[str, str, int, int, float]
"""An event: what, in which module, bytes alive after it, the most while it ran, the time."""
_NUMBERS = struct.Struct("qqd")         # of an event in the log: bytes after it, the most, time
_UNKNOWN = (FOREVER,) * 3
ndarray = np.ndarray
perf_counter = time.perf_counter
_modules = watchers.modules.get


def storage_of(array: Any) -> Any:
    """The object that owns the memory which `array` shows; None where there is none."""
    if type(array) is np.ndarray:
        return array if array.base is None else owner_of(array)
    if type(array) is MetaArray:
        root = array if array.base is None else array.base
        return None if root is SCALAR else root
    return None


def bytes_of(storage: Any) -> int:
    """Bytes that NumPy asked its allocator for, or would."""
    return max(storage.nbytes, 1)


class Entry(weakref.ref[Any]):
    """One storage: a weak reference to it, with what is known of it. Times are positions in the
    list of events; `role` is final where given, else it follows from whether a node keeps the
    storage at the time that is asked about."""

    # Slots, and what follows from the log is filled in later: an entry is made at every op.
    __slots__ = ("key", "nbytes", "shape", "dtype", "op", "role", "code", "lasti", "module",
                 "name", "born", "died", "saved", "released", "savers", "saver")
    key: int
    nbytes: int
    shape: Any                     # (bytes until the log is settled, in machine code)
    dtype: Any
    op: str
    role: str
    code: CodeType | None
    lasti: int
    module: str
    name: str
    born: int                      # from here: as far as the log is settled
    died: int
    saved: int
    released: int
    savers: int
    saver: Any                     # the first node that kept it, a `Saver`

    __eq__, __hash__ = object.__eq__, object.__hash__      # (a reference's are its referent's)

    def alive(self, at: int) -> bool:
        """True if it was there at event `at`."""
        return self.born <= at < self.died

    def role_at(self, at: int) -> str:
        """What it was for at event `at`."""
        if self.role in ("activation", "temporary", "") and self.saved <= at < self.released:
            return "saved residual"
        return self.role or "activation"

    def where(self) -> str:
        """``file:line in function`` of the call that made it."""
        return provenance.locate(self.code, self.lasti) if self.code else "before the run"

    def holder(self, at: int) -> str:
        """Who keeps it, in words."""
        if self.role_at(at) == "saved residual" and self.saver:
            return f"{self.saver.name} at {provenance.locate(self.saver.code, self.saver.lasti)}"
        return self.name or {"gradient": ".grad of a leaf", "optimizer state": "an optimizer",
                             "parameter": "a parameter", "input": "the caller",
                             }.get(self.role, "the running code")


class Saver(weakref.ref[Any]):
    """A node that keeps residuals: a weak reference to it, with the storages they show."""

    __slots__ = ("key", "name", "code", "lasti", "count", "kept")
    key: int
    name: str
    code: CodeType | None
    lasti: int
    count: int                     # so many entries follow it in the log: those of the storages
    kept: list[Entry] | None       # as far as the log is settled; None: not begun


class Ledger(Observer):
    """Writes down events with their bytes, and the storages behind them.

    While the run goes on it appends to a log: an event's bytes and time, name and module; the entry
    of a storage that is made, and again when that dies; a node that begins to keep residuals, with
    the entries of these, and again when it ceases to. `settle` works out from it what was when.
    None of these is a container that Python's collector would have to look through.
    """

    told = True

    def __init__(self, meter: Any) -> None:
        self.meter = meter
        self._measure = meter.mark
        self._marks: list[Mark] = []
        self._entries: list[Entry] = []
        self._log: list[Any] = []
        self._settled = 0
        self._write = self._log.append
        self._by_id: dict[int, Entry] = {}      # entries that have died stay until `settle`
        self._nodes: dict[int, Saver] = {}
        self._paths: dict[int, str] = {}        # node, by its identity -> module that it is of
        self._named: set[int] = set()
        self._walking = words("q", [0])
        self.running = False
        # in machine code where possible: what writes down an op, a node, a gradient, and what says
        # that the tensors of a list have their roles
        self._pulled: Callable[..., bool] = _no
        self._landed: Callable[..., bool] = _no
        self._owned: Callable[..., bool] = _no

    def __del__(self) -> None:
        self._log.clear()            # each record of a storage leads to the log, and to it back

    def quicken(self) -> None:
        """Have machine code write down what comes, if it pays and the meter is the allocator's."""
        if pays():
            from adjoint.memory import written  # loads the compiler's code

            found = written.writers(self.meter, (self._by_id, self._log, self._write, self._nodes,
                                                 self._paths), self._walking)
            if found is not None:
                self.ran, self._pulled, self._landed, self._owned = found

    # ------------------------------------------------------------------ the log
    def settle(self) -> None:
        """Bring marks and entries up to the end of the log."""
        log, marks, i = self._log, self._marks, self._settled
        while i < len(log):
            item: Any = log[i]
            i += 1
            if type(item) is bytes:
                live, top, when = _NUMBERS.unpack(item)
                marks.append((log[i], log[i + 1], live, top, when))
                i += 2
            elif type(item) is Saver:
                if item.kept is None:
                    item.kept = log[i:i + item.count]
                    i += item.count
                    self._begin(item, len(marks))
                else:
                    self._end(item, len(marks))
            elif item.born == FOREVER:
                if type(item.shape) is bytes:
                    item.shape = struct.unpack(f"{len(item.shape) // 8}q", item.shape)
                item.born, item.died, item.saved, item.released = len(marks), *_UNKNOWN
                item.savers, item.saver = 0, None
                self._entries.append(item)
            else:
                item.died = len(marks)
                key = item.key
                if self._by_id.get(key) is item:
                    del self._by_id[key]
        self._settled = i

    def _begin(self, saver: Saver, at: int) -> None:
        """A node has begun to keep residuals."""
        for entry in saver.kept or ():
            if not entry.savers:
                if entry.saved == FOREVER:
                    entry.saved = at
                entry.saver, entry.released = saver, FOREVER
            entry.savers += 1

    def _end(self, saver: Saver, at: int) -> None:
        """It has ceased to; it may do so twice."""
        for entry in saver.kept or ():
            entry.savers -= 1
            if not entry.savers:
                entry.released = at
        saver.kept = []
        if self._nodes.get(saver.key) is saver:
            del self._nodes[saver.key]

    @property
    def marks(self) -> list[Mark]:
        """The events so far."""
        self.settle()
        return self._marks

    @property
    def entries(self) -> list[Entry]:
        """The storages so far."""
        self.settle()
        return self._entries

    # ------------------------------------------------------------------ events
    def mark(self, name: str, module: str = "") -> None:
        """End an event: the bytes now, and the most since the last."""
        stack = _modules()
        live, top = self._measure()
        self._log += (_NUMBERS.pack(live, top, perf_counter()), name,
                      stack[-1][0] if stack else module)

    def _known(self, array: Any) -> Entry | None:
        """The entry of the storage behind `array`, if it has one."""
        entry = self._by_id.get(id(array))
        if entry is not None and entry() is array:
            return entry
        storage = array.base
        if storage is not None:
            entry = self._by_id.get(id(storage))
            if entry is None or entry() is not storage:
                storage = storage_of(array)
                entry = self._by_id.get(id(storage))
            if entry is not None and entry() is storage is not None:
                return entry
        return None

    def note(self, array: Any, op: str, role: str = "", node: Any = None, module: str = ""
             ) -> Entry | None:
        """Enter the storage behind `array` if it is new."""
        entry = self._known(array)
        if entry is not None:
            return entry
        storage = storage_of(array)
        return None if storage is None else self._enter(storage, op, role, node, module)

    def _enter(self, storage: Any, op: str, role: str, node: Any, module: str) -> Entry:
        entry = Entry(storage, self._write)
        key = entry.key = id(storage)
        entry.nbytes, entry.shape, entry.dtype = storage.nbytes or 1, storage.shape, storage.dtype
        entry.op, entry.role, entry.name, entry.born = op, role, "", FOREVER
        code, entry.module = (None, "") if node is None else (node.code, module)
        if code is not None:
            entry.code, entry.lasti = code, node.lasti
        elif self.running:
            frame, stack = provenance.user_frame(sys._getframe(2)), _modules()
            entry.code, entry.lasti = (frame.f_code, frame.f_lasti) if frame else (None, 0)
            entry.module = stack[-1][0] if stack else module
        else:
            entry.code, entry.lasti = None, 0
        self._by_id[key] = entry
        self._write(entry)
        return entry

    def _made(self, given: Sequence[Any], op: str, role: str, node: Any, module: str) -> None:
        """`note` for what an op or a rule gave, and the end of the event."""
        known = self._by_id.get
        for x in given:
            array = x if type(x) is ndarray else x.array if isinstance(x, Tensor) else x
            if array is None:
                continue
            base = array.base
            storage = array if base is None else base
            entry = known(id(storage))
            if entry is None or entry() is not storage:
                if base is None and type(array) is ndarray:
                    self._enter(array, op, role, node, module)
                else:
                    self.note(array, op, role, node, module)
        live, top = self._measure()
        self._log += _NUMBERS.pack(live, top, perf_counter()), op, module

    def alive(self) -> Iterator[Entry]:
        """The storages that are there now."""
        self.settle()
        return iter(self._by_id.values())

    def own(self, tensor: Any, role: str, name: str = "") -> None:
        """Enter a tensor whose role is known."""
        entry = self.note(tensor.array, "", role)
        if entry is not None:
            if role != "input":
                entry.role = role
            entry.name = entry.name or name

    # ------------------------------------------------------------------ observer
    def before(self, op: Any, args: Any, attrs: Any) -> None:
        known = self._by_id.get
        for a in args:
            if isinstance(a, Tensor) and not a.level:
                array = a.array
                entry = known(id(array))
                if (entry is None or entry() is not array) and self._known(array) is None:
                    self.own(a, _role_of(a))

    def after(self, op: Any, args: Any, attrs: Any, made: Any, node: Any) -> None:
        stack = _modules()
        self._made(made, op.name, "temporary" if self._walking[0] else "", node,
                   stack[-1][0] if stack else "")

    def forward(self, node: Any, args: Any, made: Any) -> None:
        stack, saved, key = _modules(), node.saved, id(node)
        module = self._paths[key] = stack[-1][0] if stack else ""
        if saved is None or type(saved) is Freed:
            return
        kept: list[Entry] = []
        known = self._by_id.get
        for array in arrays_of(saved):
            entry = known(id(array))
            if entry is None or entry() is not array:
                op = node.plan.op.name if node.plan is not None else node.name()
                entry = self.note(array, op, "", node, module)
                if entry is None:
                    continue
            kept.append(entry)
        if kept:
            saver = Saver(node, self._write)
            saver.key, saver.count, saver.kept = key, len(kept), None
            saver.name, saver.code, saver.lasti = node.name(), node.code, node.lasti
            self._nodes[key] = saver
            self._log += saver, *kept

    def begin_walk(self, walk: Any) -> None:
        self._walking[0] += 1

    def backward(self, node: Any, ct: Any, results: Any) -> None:
        if self._pulled(node, results):
            return
        key = id(node)
        saver = self._nodes.get(key)
        its_own = saver is not None and saver() is node
        if its_own:
            saved = node.saved
            if saved is None or type(saved) is Freed:
                self._write(saver)
        stack = _modules()
        self._made(results, node.name(), "temporary", node,
                   stack[-1][0] if stack else self._paths.get(key, ""))

    def accumulated(self, leaf: Any) -> None:
        if self._landed(leaf):
            return
        grad = leaf._grad
        if grad is not None and not grad.level:
            entry = self.note(grad.array, "", "gradient")
            if entry is not None:
                entry.role = "gradient"
                if not entry.name:
                    found = self._known(leaf.array)
                    entry.name = ".grad of " + (found.name if found is not None and found.name
                                                else f"{tuple(leaf.shape)}")
        self.mark("AccumulateGrad")

    def end_walk(self, walk: Any) -> None:
        self._walking[0] -= 1
        self.mark("end of backward")

    def stepped(self, optimizer: Any) -> None:
        self.adopt(optimizer)
        self.mark(type(optimizer).__name__ + ".step")

    def enter_module(self, path: str, module: Any) -> None:
        if id(module) in self._named:
            return
        self._named.add(id(module))
        for role, tensors in (("parameter", module._parameters), ("input", module._buffers)):
            for name, t in tensors.items():
                if t is not None:
                    self.own(t, role, f"{path}.{name}" if path else name)

    # ------------------------------------------------------------------ roles
    def adopt(self, optimizer: Any) -> None:
        """Enter the state of an optimizer, and gradients that were put there by hand."""
        grads = [p._grad for group in optimizer.param_groups for p in group["params"]]
        if not self._owned(grads, "gradient"):
            for grad in grads:
                if grad is not None and not grad.level and not self._has(grad, "gradient"):
                    self.own(grad, "gradient")
        states = [held for held in optimizer.state.values() if isinstance(held, dict)]
        if not self._owned([*chain.from_iterable([held.values() for held in states])],
                           "optimizer state"):
            for held in states:
                for name, t in held.items():
                    if isinstance(t, Tensor) and not self._has(t, "optimizer state"):
                        self.own(t, "optimizer state", f"{type(optimizer).__name__}.{name}")

    def _has(self, tensor: Any, role: str) -> bool:
        """Whether a tensor has its entry, with that role and a name."""
        array = tensor.array
        entry = self._by_id.get(id(array))
        return (entry is not None and entry() is array and entry.role == role
                and entry.name != "")


def _no(*_: Any) -> bool:
    """In the place of machine code."""
    return False


def _role_of(t: Any) -> str:
    return "parameter" if isinstance(t, Parameter) or (t._rg and t.is_leaf) else "input"


def arrays_of(saved: Any) -> list[Any]:
    """The raw arrays that a node's residuals hold."""
    out: list[Any] = []
    for s in saved:
        kind = type(s)
        if kind is OutRef or kind is Kept:
            out.append(s.array)
        elif kind is ndarray or kind is MetaArray:      # the bits of a mask
            if s.base is None:
                out.append(s)
        elif kind is tuple:
            out += arrays_of(s)
        elif isinstance(s, Tensor):
            out.append(s.array)
    return out
