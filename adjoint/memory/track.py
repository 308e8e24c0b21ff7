"""What a run holds, measured: the same report as `predict`, on real data."""
from __future__ import annotations

from typing import Any

from adjoint.base.errors import ArgumentError
from adjoint.base.text import format_bytes
from adjoint.core.modes import watchers
from adjoint.core.rehearsal import rehearsal
from adjoint.core.tensor import Node, Tensor
from adjoint.kernels import alloc
from adjoint.memory import meters
from adjoint.memory.allocator import max_memory_allocated, memory_allocated
from adjoint.memory.ledger import Ledger, bytes_of, storage_of
from adjoint.memory.predict import enter
from adjoint.memory.reach import Reach
from adjoint.memory.report import Report
from adjoint.memory.retained import Retained, living, retained


class track:
    """Account for every byte of array memory while the block runs.

    ``roots`` (models, optimizers, batches, step functions) say what was there before: their
    storages are the bytes that the account begins with. Without roots those are all tensors of
    the process. The report has the shape of `predict`'s: ``peak``, ``live``, ``timeline``,
    ``roles``, ``table()``, ``trace("file.json")``; it can be read while the block runs. Counted is
    what NumPy asks its allocator for, by every thread of the process; where the counting
    allocator is not available (no llvmlite) storages of tensors only, without temporaries.

    >>> import adjoint as ad
    >>> w = ad.ones(1000, requires_grad=True)
    >>> with ad.memory.track(w) as t:
    ...     (w * w).sum().backward()
    >>> t.live - t.before, t.roles["parameter"]
    (4000, 4000)
    """

    def __init__(self, *roots: Any) -> None:
        self._roots = roots
        self._held: Any = None
        self._ledger: Ledger | None = None
        self._before = 0

    def __enter__(self) -> track:
        if rehearsal.get() is not None:
            raise ArgumentError("track() inside of predict(): there is nothing to measure")
        if self._held is not None:
            raise ArgumentError("this track() is entered already")
        alloc.install()
        reach = Reach(*self._roots) if self._roots else _everything()
        storages = reach.storages()
        self._before = sum(bytes_of(s) for s in storages.values())
        self._ledger = ledger = Ledger(_Meter(self._before) if alloc.installed() else _Sum())
        enter(ledger, reach, reach.tensors, reach.nodes)
        if not alloc.installed():
            ledger.meter.ledger = ledger
        for storage in storages.values():
            ledger.meter.watch(storage)
        del reach, storages
        self._roots = ()           # a report that is kept must not keep what it was about
        ledger.meter.begin()
        ledger.quicken()
        self._held = watchers.push(watchers.observers, ledger)
        return self

    def __exit__(self, *exc: object) -> None:
        ledger = self._open()
        watchers.pop(self._held)
        self._held = None
        ledger.mark("end")

    def _open(self) -> Ledger:
        if self._ledger is None:
            raise ArgumentError("track() has not been entered: use `with memory.track() as t:`")
        return self._ledger

    @property
    def report(self) -> Report:
        """The account so far."""
        ledger = self._open()
        assumed = {} if alloc.installed() else {"temporaries (no counting allocator)": 1}
        return Report(ledger, self._before, assumed, "measured")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.report, name)

    def retained(self) -> list[Retained]:
        """Which objects keep graphs alive now, and how many bytes: see `memory.retained`."""
        return retained()


class _Meter(meters.Meter):
    """The allocator's counters, mended where storages of other allocators are freed."""

    def watch(self, storage: Any) -> None:
        """Notice the end of a storage that our allocator did not make."""
        import weakref

        if _foreign(storage):
            weakref.finalize(storage, self.freed, bytes_of(storage)).atexit = False


def _foreign(storage: Any) -> bool:
    import numpy as np

    core = getattr(np, "_core", None) or np.core
    return bool(core.multiarray.get_handler_name(storage) != "adjoint")


class _Sum:
    """Bytes of the storages that the ledger knows: all there is without the allocator."""

    ledger: Any = None

    def begin(self) -> None:
        """Nothing to start."""

    def watch(self, storage: Any) -> None:
        """The ledger watches."""

    def mark(self) -> tuple[int, int]:
        """(alive now, the same)."""
        live = sum(e.nbytes for e in self.ledger.alive())
        return live, live


def _everything() -> Reach:
    """All tensors and optimizers of the process."""
    found = Reach()
    for x in living(_has_memory):
        if isinstance(x, Tensor):
            if not x.level:
                found.tensors.append(x)
        elif isinstance(x, Node):
            found.nodes.append(x)
        elif isinstance(vars(x).get("param_groups"), list) and "state" in vars(x):
            found.optimizers.append(x)
    return found


def _has_memory(kind: type) -> bool:
    """Whether objects of that class may be tensors, nodes or optimizers (isinstance would ask lazy
    objects)."""
    return issubclass(kind, (Tensor, Node)) or (
        hasattr(kind, "add_param_group") and hasattr(kind, "zero_grad"))


# ---------------------------------------------------------------------- process-wide numbers
def memory_snapshot() -> list[dict[str, Any]]:
    """The storages that tensors hold now, the largest first: bytes, shape, dtype, who made it.

    >>> import adjoint as ad
    >>> x = ad.zeros(3, 5)
    >>> any(s["shape"] == (3, 5) for s in memory_snapshot())
    True
    """
    found: dict[int, dict[str, Any]] = {}
    for t in _everything().tensors:
        storage = storage_of(t.array)
        if storage is None or id(storage) in found:
            continue
        node = t.grad_fn
        found[id(storage)] = {
            "bytes": bytes_of(storage), "shape": tuple(storage.shape),
            "dtype": str(storage.dtype), "node": node.name() if node is not None else "",
            "where": node.where() if node is not None else "", "requires_grad": t._rg}
    return sorted(found.values(), key=lambda s: -s["bytes"])


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The process's array memory as a table; ``abbreviated`` leaves out the largest storages.

    >>> print(memory_summary(abbreviated=True).splitlines()[0])
    array memory
    """
    alloc.install()
    stats = alloc.stats()
    lines = ["array memory",
             f"  alive now            {format_bytes(memory_allocated()):>10}",
             f"  most alive           {format_bytes(max_memory_allocated()):>10}",
             f"  kept for reuse       {format_bytes(stats.idle):>10}",
             f"  allocations          {stats.calls:>10}",
             f"  of these, reused     {stats.reused:>10}"]
    if not alloc.installed():
        lines.append("  (the counting allocator is not available: install llvmlite)")
    if not abbreviated:
        lines.append("largest storages of tensors")
        for s in memory_snapshot()[:10]:
            origin = f"  {s['node']} at {s['where']}" if s["node"] else ""
            what = f"{s['dtype']}{list(s['shape'])}{origin}"
            lines.append(f"  {format_bytes(s['bytes']):>10}  {what}")
    return "\n".join(lines)
