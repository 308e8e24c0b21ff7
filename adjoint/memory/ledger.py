"""Every storage of a run: who made it, on which line, in which module, what for, how long.

One observer for real and for storage-less runs: they differ in the meter only.
"""
from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Iterator, Sequence
from types import CodeType
from typing import Any

import numpy as np

from adjoint.base import provenance
from adjoint.base.aval import SCALAR, MetaArray
from adjoint.core.modes import Observer, watchers
from adjoint.core.tensor import Freed, Kept, OutRef, Parameter, Tensor, owner_of

ROLES = ("parameter", "gradient", "optimizer state", "input", "saved residual", "activation",
         "temporary")
FOREVER = 1 << 62
Mark = tuple[str, str, int, int, float]
"""An event: what, in which module, bytes alive after it, the most while it ran, the time."""
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

    # What each has lies in slots, and the rest has defaults: an entry is made at every op.
    __slots__ = ("key", "nbytes", "shape", "dtype", "op", "role", "born", "code", "lasti",
                 "module", "__dict__")
    key: int
    nbytes: int
    shape: tuple[int, ...]
    dtype: Any
    op: str
    role: str
    born: int
    code: CodeType | None
    lasti: int
    module: str
    died = saved = released = FOREVER
    savers = 0
    saver: Any = None              # (name, code, offset) of the first node that kept it
    name = ""

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
            node, code, lasti = self.saver
            return f"{node} at {provenance.locate(code, lasti)}"
        return self.name or {"gradient": ".grad of a leaf", "optimizer state": "an optimizer",
                             "parameter": "a parameter", "input": "the caller",
                             }.get(self.role, "the running code")


class _Saver(weakref.ref[Any]):
    """A node that keeps residuals: a weak reference to it, with the storages they show."""

    __slots__ = ("key", "kept", "place", "begun", "ended")
    key: int
    kept: list[Entry]
    place: Any                     # (name, code, offset)
    begun: bool                    # in the log, as far as it is settled
    ended: bool


class Ledger(Observer):
    """Writes down events with their bytes, and the storages behind them.

    While the run goes on it appends to a log: events, nodes that begin or cease to keep residuals,
    storages that die. `settle` works out from it what was when.
    """

    told = True

    def __init__(self, meter: Any) -> None:
        self.meter = meter
        self._measure = meter.mark
        self._marks: list[Mark] = []
        self._entries: list[Entry] = []
        self._at = 0                            # events so far
        self._log: list[Any] = []
        self._settled = 0
        self._write = self._log.append
        self._by_id: dict[int, Entry] = {}      # entries that have died stay until `settle`
        self._nodes: dict[int, _Saver] = {}
        self._paths: dict[int, str] = {}        # node, by its identity -> module that it is of
        self._named: set[int] = set()
        self._walking = 0
        self.running = False

    # ------------------------------------------------------------------ the log
    def settle(self) -> None:
        """Bring marks and entries up to the end of the log."""
        log, marks = self._log, self._marks
        for i in range(self._settled, len(log)):
            item = log[i]
            if type(item) is tuple:
                marks.append(item)
            elif type(item) is Entry:
                item.died = len(marks)
                if self._by_id.get(item.key) is item:
                    del self._by_id[item.key]
            else:
                self._follow(item, len(marks))
        self._settled = len(log)

    def _follow(self, saver: _Saver, at: int) -> None:
        """A node has begun to keep residuals, or ceased to; it may cease twice."""
        if not saver.begun:
            saver.begun = True
            for entry in saver.kept:
                if not entry.savers:
                    if entry.saved == FOREVER:
                        entry.saved = at
                    entry.saver, entry.released = saver.place, FOREVER
                entry.savers += 1
        elif not saver.ended:
            saver.ended = True
            for entry in saver.kept:
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
        self._at += 1
        self._write((name, stack[-1][0] if stack else module, live, top, perf_counter()))

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
        entry.op, entry.role, entry.born = op, role, self._at
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
        self._entries.append(entry)
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
        self._at += 1
        self._write((op, module, live, top, perf_counter()))

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
        self._made(made, op.name, "temporary" if self._walking else "", node,
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
            saver = _Saver(node, self._write)
            saver.key = key
            saver.kept, saver.begun, saver.ended = kept, False, False
            saver.place = node.name(), node.code, node.lasti
            self._nodes[key] = saver
            self._write(saver)

    def begin_walk(self, walk: Any) -> None:
        self._walking += 1

    def backward(self, node: Any, ct: Any, results: Any) -> None:
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
        self._walking -= 1
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
        kind = type(optimizer).__name__
        for group in optimizer.param_groups:
            for p in group["params"]:
                grad = p._grad
                if grad is not None and not grad.level and not self._has(grad, "gradient"):
                    self.own(grad, "gradient")
        for held in optimizer.state.values():
            if isinstance(held, dict):
                for name, t in held.items():
                    if isinstance(t, Tensor) and not self._has(t, "optimizer state"):
                        self.own(t, "optimizer state", f"{kind}.{name}")

    def _has(self, tensor: Any, role: str) -> bool:
        """Whether a tensor has its entry, with that role and a name."""
        array = tensor.array
        entry = self._by_id.get(id(array))
        return (entry is not None and entry() is array and entry.role == role
                and entry.name != "")


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
