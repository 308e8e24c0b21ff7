"""Every storage of a run: who made it, on which line, in which module, what for, how long.

One observer for real and for storage-less runs: they differ in the meter only.
"""
from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Iterator
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

    key: int
    nbytes: int
    shape: tuple[int, ...]
    dtype: Any
    op: str
    role: str
    born: int
    # Class-level defaults and no constructor of its own: an entry is made at every op.
    died = saved = released = FOREVER
    code: CodeType | None = None
    lasti = savers = 0
    saver: Any = None              # (name, code, offset) of the first node that kept it
    module = name = ""

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

    __slots__ = ("key", "kept")
    key: int
    kept: list[Entry]


class Ledger(Observer):
    """Writes down events with their bytes, and the storages behind them."""

    def __init__(self, meter: Any) -> None:
        self.meter = meter
        self.marks: list[Mark] = []
        self.entries: list[Entry] = []
        self._by_id: dict[int, Entry] = {}
        self._nodes: dict[int, _Saver] = {}
        self._paths: dict[int, str] = {}        # node, by its identity -> module that it is of
        self._named: set[int] = set()
        self._walking = 0
        self.running = False

    # ------------------------------------------------------------------ events
    def mark(self, name: str, module: str = "") -> None:
        """End an event: the bytes now, and the most since the last."""
        stack = _modules()
        live, top = self.meter.mark()
        self.marks.append((name, stack[-1][0] if stack else module, live, top, perf_counter()))

    def note(self, array: Any, op: str, role: str = "", node: Any = None, module: str = ""
             ) -> Entry | None:
        """Enter the storage behind `array` if it is new."""
        known = self._by_id
        entry = known.get(id(array))
        if entry is None and array.base is not None:
            entry = known.get(id(array.base))
        if entry is not None:                # (most calls end here: nothing else is asked)
            return entry
        storage = array if type(array) is ndarray and array.base is None else storage_of(array)
        if storage is None:
            return None
        entry = known.get(id(storage))
        if entry is not None:
            return entry
        entry = Entry(storage, self._gone)
        entry.key, entry.nbytes, entry.shape = id(storage), storage.nbytes or 1, storage.shape
        entry.dtype, entry.op, entry.role = storage.dtype, op, role
        entry.born = len(self.marks)
        if self.running:
            stack = _modules()
            if stack:
                module = stack[-1][0]
            if module:
                entry.module = module
            code = getattr(node, "code", None)
            if code is not None:
                entry.code, entry.lasti = code, node.lasti
            else:
                frame = provenance.user_frame(sys._getframe(2))
                if frame is not None:
                    entry.code, entry.lasti = frame.f_code, frame.f_lasti
        known[entry.key] = entry
        self.entries.append(entry)
        return entry

    def _gone(self, entry: Entry) -> None:
        entry.died = len(self.marks)
        self._by_id.pop(entry.key, None)

    def alive(self) -> Iterator[Entry]:
        """The storages that are there now."""
        return iter(self._by_id.values())

    def own(self, tensor: Any, role: str, name: str = "") -> None:
        """Enter a tensor whose role is known."""
        known = self._by_id.get(id(tensor.array))
        if known is not None and known.role == role and (known.name or not name):
            return
        entry = self.note(tensor.array, "", role)
        if entry is not None:
            if role != "input":
                entry.role = role
            entry.name = entry.name or name

    # ------------------------------------------------------------------ observer
    def before(self, op: Any, args: Any, attrs: Any) -> None:
        known = self._by_id
        for a in args:
            if isinstance(a, Tensor) and not a.level:
                array = a.array
                if id(array) not in known and id(array.base) not in known:
                    self.own(a, _role_of(a))

    def after(self, op: Any, args: Any, attrs: Any, made: Any, node: Any) -> None:
        for t in made:
            self.note(t.array, op.name, "temporary" if self._walking else "", node)
        self.mark(op.name)

    def forward(self, node: Any, args: Any, made: Any) -> None:
        stack, saved = _modules(), node.saved
        self._paths[id(node)] = stack[-1][0] if stack else ""
        if saved is None or type(saved) is Freed:
            return
        name = node.plan.op.name if node.plan is not None else node.name()
        kept: list[Entry] = []
        known, place = self._by_id, None
        for array in arrays_of(saved):
            entry = known.get(id(array)) or self.note(array, name, "", node)
            if entry is not None:
                if not entry.savers:
                    if entry.saved == FOREVER:
                        entry.saved = len(self.marks)
                    entry.saver = place = place or (node.name(), node.code, node.lasti)
                    entry.released = FOREVER
                entry.savers += 1
                kept.append(entry)
        if kept:
            saver = self._nodes[id(node)] = _Saver(node, self._release)
            saver.key, saver.kept = id(node), kept

    def _release(self, saver: _Saver) -> None:
        if self._nodes.pop(saver.key, None) is None:
            return
        for entry in saver.kept:
            entry.savers -= 1
            if not entry.savers:
                entry.released = len(self.marks)

    def begin_walk(self, walk: Any) -> None:
        self._walking += 1

    def backward(self, node: Any, ct: Any, results: Any) -> None:
        saved = node.saved
        if saved is None or type(saved) is Freed:
            saver = self._nodes.get(id(node))
            if saver is not None:
                self._release(saver)
        name, module = node.name(), self._paths.get(id(node), "")
        for c in results:
            if c is not None:
                self.note(c.array if isinstance(c, Tensor) else c, name, "temporary", node, module)
        self.mark(name, module)

    def accumulated(self, leaf: Any) -> None:
        grad = leaf._grad
        if grad is not None and not grad.level:
            entry = self.note(grad.array, "", "gradient")
            if entry is not None:
                entry.role = "gradient"
                if not entry.name:
                    entry.name = ".grad of " + (self._name(leaf) or f"{tuple(leaf.shape)}")
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
                if p._grad is not None and not p._grad.level:
                    self.own(p._grad, "gradient")
        for held in optimizer.state.values():
            if isinstance(held, dict):
                for name, t in held.items():
                    if isinstance(t, Tensor):
                        self.own(t, "optimizer state", f"{kind}.{name}")

    def _name(self, leaf: Any) -> str:
        found = self._by_id.get(id(storage_of(leaf.array)))
        return found.name if found else ""


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
