"""`record()`: everything that a program's operations do, as they do it.

The recorder is an observer: it is told of every operation, module call and backward step, keeps a
copy of small values and statistics of large ones, and holds nothing alive: tensors, storages and
nodes are watched through weak references, which is also how it knows when memory is given back.
"""
from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from types import FrameType
from typing import Any

import numpy as np

from adjoint.base import provenance
from adjoint.base.aval import MetaArray
from adjoint.base.errors import ArgumentError
from adjoint.core.modes import Observer, watchers
from adjoint.core.tensor import (
    INFERENCE_CELL,
    AccumulateGrad,
    Freed,
    Kept,
    OutRef,
    Packed,
    Port,
    Tensor,
    owner_of,
)
from adjoint.inspect import cards
from adjoint.inspect.bindings import bound_tensors, name_of
from adjoint.inspect.snapshot import FULL, Snapshot, dtype_name
from adjoint.inspect.walk import Event, Group, NodeInfo, Saved, Storage, TensorInfo, Walk

_frame = sys._getframe
ndarray = np.ndarray


class Watched(weakref.ref[Any]):
    """A weak reference to what `info` describes; `key` is its `id`."""

    __slots__ = ("key", "info")

    key: int
    info: Any


class Recorder(Observer):
    """Fills a walk."""

    cotangents = True

    def __init__(self, walk: Walk, values: int, limit: int) -> None:
        self.walk, self.values, self.limit = walk, values, limit
        self.live = self.saved = 0
        self.group = 0
        self._stack: list[int] = []
        self._tensors: dict[int, Watched] = {}         # info: TensorInfo
        self._storages: dict[int, Watched] = {}        # info: Storage
        self._nodes: dict[int, Watched] = {}           # info: NodeInfo
        self._known: set[int] = set()                  # nodes that are recorded in full
        self._held: dict[int, int] = {}                # storage -> residuals that show it
        self._shown: dict[int, set[int]] = {}          # storage -> tensors that show it
        self._leaves: dict[int, Watched] = {}
        self._places: dict[tuple[Any, int], int] = {}
        self._cards: dict[Any, int] = {}
        self._given: dict[str, int] = {}               # name -> tensors that were given it
        self._read: set[int] = set()                   # modules whose parameters have names
        self._entered: set[int] = set()                # outermost modules that were called
        self._cts: list[Any] = []

    # ------------------------------------------------------------------ events
    def _event(self, kind: str, **fields: Any) -> None:
        events = self.walk.events
        index = len(events)
        if index >= self.limit:
            self.walk.dropped += 1
            return
        events.append(Event(kind, index, group=self.group, live=self.live, saved=self.saved,
                            **fields))

    @property
    def now(self) -> int:
        """The number of the event that is being made."""
        return len(self.walk.events)

    def after(self, op: Any, args: Any, attrs: Any, made: Any, node: Any) -> None:
        """An operation has run."""
        self._op(op.name, op, args, attrs, made, node, _frame(2))

    def forward(self, node: Any, args: Any, made: Any) -> None:
        """A node was recorded; those of operations arrive through `after`."""
        if node.plan is None:
            name = node.name().removesuffix("Backward")
            self._op(name, None, args, {}, made, node, _frame(2))

    def _op(self, name: str, op: Any, args: Any, attrs: Any, made: Any, node: Any,
            frame: FrameType | None) -> None:
        if self.now >= self.limit:
            self.walk.dropped += 1
            return
        frame = provenance.user_frame(frame)
        written = False
        for a in args:
            for m in made:
                written |= m is a
        inputs = tuple([self._input(a, frame, not written) for a in args])
        said = cards.attributes(attrs) if attrs else ""
        card = self._card(op, node, args, attrs, said)
        info = self._node(node, card) if node is not None else None
        if written:
            self._written(made[0])
        outputs = tuple([self._tensor(t).id for t in made if isinstance(t, Tensor)])
        if info is not None and info.event < 0:
            info.event = self.now
            self._own_outputs(info, outputs)
        place = info.place if info is not None else self._place_of(frame)
        self._event("op", text=name, node=-1 if info is None else info.id, inputs=inputs,
                    outputs=outputs, place=place, card=card, inplace=written,
                    attrs=said)

    def enter_module(self, path: str, module: Any) -> None:
        """A module is called: its parameters get their names."""
        groups = self.walk.groups
        parent = self.group
        name = path or type(module).__name__
        frame = provenance.user_frame(_frame(2))
        if not path and id(module) not in self._entered:    # `net.0.weight`, not `0.weight`
            self._entered.add(id(module))
            self.names(frame)
        for key, p in module._parameters.items():
            if p is not None:
                self._name(p, f"{path}.{key}" if path else key)
        for key, b in module._buffers.items():
            if b is not None:
                self._name(b, f"{path}.{key}" if path else key)
        self._stack.append(parent)
        groups.append(Group(len(groups), parent, name, type(module).__name__))
        self.group = groups[-1].id
        self._event("enter", text=name, place=self._place_of(frame))

    def leave_module(self, path: str, module: Any) -> None:
        """The call has returned."""
        self._event("leave", text=self.walk.groups[self.group].name)
        self.group = self._stack.pop() if self._stack else 0

    def begin_walk(self, walk: Any) -> None:
        """A backward pass begins."""
        frame = provenance.user_frame(_frame(1))
        self.names(frame)
        self.check_leaves()
        for node in walk.order:
            self._node(node)
        root = self._nodes[id(walk.order[0])].info.id if walk.order else -1
        self._event("begin", node=root, place=self._place_of(frame))

    def before_backward(self, node: Any, ct: Any) -> None:
        """The rules of a node are about to run."""
        self._cts.append(self._values(ct if node.ports else [ct]))
        if node._retain:
            for ref in list(node._retain.values()):
                t = ref()
                if t is not None and t._grad is not None:
                    self._grad(t)

    def backward(self, node: Any, ct: Any, results: Any) -> None:
        """They have run, and the residuals are released."""
        info = self._node(node)
        arriving = self._cts.pop() if self._cts else []
        leaving = self._values(results)
        if info.released < 0 and type(node.saved) is Freed:
            self._release(info, dropped=False)
        outputs = tuple([e[1] if e and e[0] == "leaf" else -1 for e in info.edges])
        self._event("node", text=info.name, node=info.id, cts=(arriving, leaving),
                    outputs=outputs, place=info.place, card=info.card)

    def accumulated(self, leaf: Any) -> None:
        """A leaf's `.grad` was written."""
        info = self._grad(leaf)
        self._event("grad", outputs=(info.id,), place=-1)

    def end_walk(self, walk: Any) -> None:
        """The backward pass is over."""
        self._cts.clear()
        self._event("end", place=self._place_of(provenance.user_frame(_frame(1))))

    # ------------------------------------------------------------------ tensors
    def names(self, frame: FrameType | None) -> None:
        """Name the tensors that variables of `frame` hold."""
        if frame is not None:
            for name, t in bound_tensors(frame, self._read):
                self._name(t, name)

    def _name(self, t: Any, name: str) -> None:
        entry = self._tensors.get(id(t))
        info = entry.info if entry is not None else self._tensor(t)
        if not info.name:
            info.name = self._numbered(name)

    def _numbered(self, name: str) -> str:
        """`name`, with a number where other tensors had it before."""
        count = self._given[name] = self._given.get(name, 0) + 1
        return name if count == 1 else f"{name} ({count})"

    def _input(self, a: Any, frame: FrameType | None, touch: bool) -> Any:
        if not isinstance(a, Tensor):
            return cards.constant(a)
        entry = self._tensors.get(id(a))
        if frame is not None and (entry is None or not entry.info.name):
            name = name_of(frame, a)
            if name is not None:
                self._name(a, name)
                entry = self._tensors.get(id(a))
        info = entry.info if entry is not None else self._tensor(a)
        if info.leaf and touch:       # (an op in place has changed the version itself)
            self._touch(a, info)
        return info.id

    def _tensor(self, t: Any) -> TensorInfo:
        """The record of a tensor, made at its first sight; told apart by identity."""
        key = id(t)
        entry = self._tensors.get(key)
        if entry is not None:
            return self._moved(t, entry.info)
        now = self.now
        storage = self._storage(t.array, t._rg and t.is_leaf)
        tensors = self.walk.tensors
        fn = t.grad_fn
        info = TensorInfo(len(tensors), tuple(t.array.shape), dtype_name(t.array.dtype), storage,
                          t._rg, t.is_leaf, now, self.group)
        info.data = ((now, Snapshot(t.array, self.values)),)
        info.version, info.array = _version(t), id(t.array)
        if fn is not None:
            self._own(info, self._node(fn))
            if storage >= 0 and not self.walk.storages[storage].parameter:
                self.walk.storages[storage].computed = True
        tensors.append(info)
        self._tensors[key] = _watched(t, self._gone, key, info)
        self._shows(storage, info)
        if info.leaf and t._rg:
            self._leaves[key] = self._tensors[key]
            if t._grad is not None:
                self._grad(t)
        return info

    def _shows(self, storage: int, info: TensorInfo) -> None:
        shown = self._shown.get(storage)
        if shown is None:
            self._shown[storage] = {info.id}
        else:
            shown.add(info.id)

    def _gone(self, entry: Watched) -> None:
        info: TensorInfo = entry.info
        info.died = self.now
        self._tensors.pop(entry.key, None)
        self._leaves.pop(entry.key, None)
        shown = self._shown.get(info.storage)
        if shown is not None:
            shown.discard(info.id)

    def _own(self, info: TensorInfo, node: NodeInfo) -> None:
        if info.node != node.id:
            info.node, info.leaf = node.id, False
            info.nodes += ((self.now, node.id),)

    def _moved(self, t: Any, info: TensorInfo) -> TensorInfo:
        """Note what may have changed since the tensor was last seen."""
        if t._rg != info.requires_grad:
            info.requires_grad = t._rg
            info.flags += ((self.now, t._rg),)
        fn = t.grad_fn
        if fn is not None:
            self._own(info, self._node(fn))
        if t._rg and t.is_leaf and id(t) not in self._leaves:
            self._leaves[id(t)] = self._tensors[id(t)]
        return info

    def _touch(self, t: Any, info: TensorInfo) -> None:
        """A leaf is used: was its gradient dropped, or its memory written, unseen by an op?"""
        self._moved(t, info)
        if info.grad and info.grad[-1][1] is not None and t._grad is None:
            self.check_leaves()
        elif _version(t) != info.version or id(t.array) != info.array:
            self.check_leaves()
            self._changed([(t, info)])

    def check_leaves(self) -> None:
        """Find gradients that were set to None and parameters that were written to."""
        known = [(entry(), entry.info) for entry in list(self._leaves.values())]
        gone = [i for t, i in known if t is not None and i.grad and i.grad[-1][1] is not None
                and t._grad is None]
        for info in gone:
            info.grad += ((self.now, None),)
        if gone:
            self._event("zero", outputs=tuple(i.id for i in gone))
        self._changed([(t, i) for t, i in known if t is not None])

    def _changed(self, known: Sequence[tuple[Any, TensorInfo]]) -> None:
        found: dict[tuple[str, Any, int], list[TensorInfo]] = {}
        for t, info in known:
            if _version(t) == info.version and id(t.array) == info.array:
                continue
            cell = t._cell
            key = (cell.what, cell.code, cell.lasti) if cell is not None else ("", None, 0)
            found.setdefault(key, []).append(info)
            self._written(t)
        for (what, code, lasti), infos in found.items():
            self._event("write", text=what, outputs=tuple(i.id for i in infos),
                        place=self._place(code, lasti) if code is not None else -1)

    def _written(self, t: Any) -> None:
        """The memory of `t` has new content: so have all tensors that show it."""
        info = self._tensor(t)
        storage = self._storage(t.array, info.leaf and t._rg)
        if storage != info.storage:
            self._shows(storage, info)
            info.storage = storage
        self._content(t, info)
        showing = self._shown.get(storage, ())
        for entry in list(self._tensors.values()) if len(showing) > 1 else ():
            u = entry() if entry.info is not info and entry.info.id in showing else None
            if u is not None:
                self._content(u, entry.info)

    def _content(self, t: Any, info: TensorInfo) -> None:
        """Note the present content of `t`."""
        snap = Snapshot(t.array, self.values)
        info.data += ((self.now, snap),)
        info.version, info.array = _version(t), id(t.array)
        if info.grad_of >= 0:
            self.walk.tensors[info.grad_of].grad += ((self.now, snap),)

    def _grad(self, t: Any) -> TensorInfo:
        """Note the present `.grad` of `t`."""
        info = self._tensor(t)
        g = t._grad
        if g is None or not isinstance(g, Tensor) or g.level:
            return info
        fresh = id(g) not in self._tensors
        grad = self._tensor(g)
        if fresh:
            grad.name = self._numbered(f"{self.walk.name(info.id)}.grad")
        elif grad.version != _version(g) or not info.grad or info.grad[-1][1] is None:
            grad.data += ((self.now, Snapshot(g.array, self.values)),)
        grad.grad_of = info.id
        grad.version, grad.array = _version(g), id(g.array)
        info.grad += ((self.now, grad.data[-1][1]),)
        return info

    # ------------------------------------------------------------------ memory
    def _storage(self, array: Any, parameter: bool = False) -> int:
        owner: Any = array
        if isinstance(array, ndarray):
            owner = owner_of(array) if array.base is not None else array
        elif isinstance(array, MetaArray):
            owner = array if array.base is None else array.base
        else:
            return -1
        key = id(owner)
        entry = self._storages.get(key)
        if entry is None:
            found = Storage(len(self.walk.storages), int(owner.nbytes), self.now)
            self.walk.storages.append(found)
            self._storages[key] = _watched(owner, self._lost, key, found)
            self.live += found.nbytes
        else:
            found = entry.info
        if parameter and not found.parameter and not found.computed:
            found.parameter = True
            if self._held.get(found.id):
                self.saved -= found.nbytes
        return found.id

    def _lost(self, entry: Watched) -> None:
        storage: Storage = entry.info
        storage.died = self.now
        self.live -= storage.nbytes
        if self._held.pop(storage.id, 0) and not storage.parameter:
            self.saved -= storage.nbytes       # a budget took the residual from its node
        self._storages.pop(entry.key, None)
        self._shown.pop(storage.id, None)

    def _values(self, given: Sequence[Any]) -> list[Snapshot | None]:
        """Snapshots of cotangents; their memory counts as live from here."""
        found: list[Snapshot | None] = []
        for c in given:
            array = c.array if isinstance(c, Tensor) and not c.level else c
            if isinstance(array, (ndarray, MetaArray)):
                self._storage(array)
            known = isinstance(array, (ndarray, np.generic, MetaArray))
            found.append(Snapshot(array, self.values) if known else None)
        return found

    # ------------------------------------------------------------------ nodes
    def _node(self, node: Any, card: int = -1) -> NodeInfo:
        """The full record of a graph node. Its neighbours are noted without theirs, so that graphs
        from before the recording are not walked through until a backward pass does."""
        entry = self._nodes.get(id(node))
        info: NodeInfo = entry.info if entry is not None else self._noted(node)
        if info.id in self._known:
            return info
        self._known.add(info.id)
        plan, saved = node.plan, node.saved
        op = getattr(plan, "op", None)
        if card < 0 and op is not None and saved is not None:
            card = self._card(op, node, (), node.attrs, cards.attributes(node.attrs))
        info.card = card
        if saved is not None and type(saved) is not Freed:
            self._residuals(saved, plan, info)
        info.edges = tuple([self._edge(e) for e in node.edges])
        return info

    def _noted(self, node: Any) -> NodeInfo:
        """The record of a node, perhaps with no more than its name and place."""
        key = id(node)
        entry = self._nodes.get(key)
        if entry is not None:
            found: NodeInfo = entry.info
            return found
        nodes = self.walk.nodes
        op = getattr(node.plan, "op", None)
        place = self._place(node.code, node.lasti) if node.code is not None else -1
        info = NodeInfo(len(nodes), node.name(), op.name if op is not None else node.name(), -1,
                        place, self.group)
        nodes.append(info)
        self._nodes[key] = _watched(node, self._ended, key, info)
        return info

    def _edge(self, e: Any) -> tuple[str, int, int] | None:
        if e is None:
            return None
        if type(e) is AccumulateGrad:
            leaf = e.variable
            return None if leaf is None else ("leaf", self._tensor(leaf).id, 0)
        target, index = (e.node, e.index) if type(e) is Port else (e, 0)
        return "node", self._noted(target).id, index

    def _residuals(self, saved: Any, plan: Any, info: NodeInfo) -> None:
        names = plan.names if plan is not None else [f"saved{i}" for i in range(len(saved))]
        for name, s in zip(names, saved, strict=False):
            many = s if type(s) is tuple else (s,)
            for i, one in enumerate(many):
                self._residual(f"{name}[{i}]" if type(s) is tuple else name, one, info)

    def _own_outputs(self, info: NodeInfo, outputs: Sequence[int]) -> None:
        """Say of saved outputs which tensors they are."""
        for s in info.saved:
            for o in outputs if s.tensor < 0 <= s.storage else ():
                t = self.walk.tensors[o]
                if t.storage == s.storage and t.shape == s.shape:
                    s.tensor = o

    def _residual(self, name: str, s: Any, info: NodeInfo) -> None:
        kind, tensor = type(s), -1
        if kind is Packed:
            s = s.value
        t = s.tensor if kind is Kept else s
        if isinstance(t, Tensor) and not t.level:
            array = t.array
            known = self._tensors.get(id(t))
            tensor = known.info.id if known is not None else -1
        elif kind is OutRef:
            array = s.array
        else:
            array = s
        if not isinstance(array, (ndarray, MetaArray)):
            if kind is Packed:       # by a hook, into something of its own
                info.saved += (Saved(f"{name} (packed)", (), "", 0, -1, -1, False),)
            return
        storage = self._storage(array, isinstance(t, Tensor) and t._rg and t.is_leaf)
        held = self.walk.storages[storage]
        count = self._held.get(storage, 0)
        self._held[storage] = count + 1
        if not count and not held.parameter:
            self.saved += held.nbytes
        info.saved += (Saved(name, tuple(array.shape), dtype_name(array.dtype), int(array.nbytes),
                             storage, tensor, held.parameter),)

    def _release(self, info: NodeInfo, dropped: bool) -> None:
        info.released, info.dropped = self.now, dropped
        for s in info.saved:
            count = self._held.get(s.storage, 0)
            if count == 1 and not self.walk.storages[s.storage].parameter:
                self.saved -= self.walk.storages[s.storage].nbytes
            if count:
                self._held[s.storage] = count - 1

    def _ended(self, entry: Watched) -> None:
        info: NodeInfo = entry.info
        self._nodes.pop(entry.key, None)
        if info.released < 0:
            self._release(info, dropped=True)

    def _card(self, op: Any, node: Any, args: Any, attrs: Any, said: str) -> int:
        key = cards.key_of(op, node, args, said)
        found = self._cards.get(key) if key is not None else None
        if found is None:
            made = cards.card(key, op, node, attrs)
            if made is None:
                return -1
            found = len(self.walk.cards)
            self.walk.cards.append(made)
            if key is not None:
                self._cards[key] = found
        return found

    # ------------------------------------------------------------------ places
    def _place(self, code: Any, lasti: int) -> int:
        key = (code, lasti)
        found = self._places.get(key)
        if found is None:
            found = self._places[key] = len(self.walk.places)
            self.walk.places.append(key)
        return found

    def _place_of(self, frame: FrameType | None) -> int:
        return self._place(frame.f_code, frame.f_lasti) if frame is not None else -1

    def finish(self, frame: FrameType | None, error: BaseException | None) -> None:
        """Name what is bound now, and note how it ended."""
        self.names(frame)
        self.check_leaves()
        if isinstance(error, Exception):       # (not SystemExit, KeyboardInterrupt)
            self._event("error", text=f"{type(error).__name__}: {error}",
                        place=self._place_of(_raised(error)))


def _watched(thing: Any, end: Any, key: int, info: Any) -> Watched:
    """A reference that calls `end` with itself when `thing` goes."""
    entry = Watched(thing, end)
    entry.key, entry.info = key, info
    return entry


def _version(t: Any) -> int:
    cell = t._cell
    return 0 if cell is None or cell is INFERENCE_CELL else int(cell.version)


def _raised(error: BaseException) -> FrameType | None:
    """The innermost user frame of a traceback."""
    found, at = None, error.__traceback__
    while at is not None:
        if not provenance.inside[at.tb_frame.f_code.co_filename]:
            found = at.tb_frame
        at = at.tb_next
    return found


class record:
    """Record what happens in the block: ``with ad.record() as walk: ...; walk.save("walk.html")``.

    The walk holds every operation, module call, backward step and gradient, with values (whole up
    to `values` elements, statistics beyond), saved tensors, bytes and source lines. `budget` is a
    number of bytes that the page draws as a line; events after the first `limit` are counted and
    left out. Names come from the variables of the program and from modules. Nothing is kept alive.
    An exception leaves the block as it came and is the last event of the walk.

    >>> import adjoint as ad
    >>> w = ad.tensor(3.0, requires_grad=True)
    >>> with record() as walk:
    ...     loss = (w * 2) ** 2
    ...     loss.backward()
    >>> walk
    <walk of 7 events: 2 forward, 2 backward, 1 gradients; peak ... bytes>
    """

    def __init__(self, title: str = "", *, budget: int | None = None, values: int = FULL,
                 limit: int = 20_000) -> None:
        if values < 0 or limit < 1:
            raise ArgumentError(f"record: values = {values} and limit = {limit}: values must be "
                                ">= 0, limit >= 1")
        if budget is not None and budget <= 0:
            raise ArgumentError(f"record: budget = {budget} bytes; give a positive number or None")
        self.walk = Walk(title, budget)
        self._recorder = Recorder(self.walk, values, limit)
        self._pushed: list[Any] = []

    def __enter__(self) -> Walk:
        if self._pushed:
            raise ArgumentError("record: this recording is running already; make another one")
        self._recorder.names(provenance.user_frame(_frame(1)))
        self._pushed.append(watchers.push(watchers.observers, self._recorder))
        return self.walk

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        watchers.pop(self._pushed.pop())
        self._recorder.finish(provenance.user_frame(_frame(1)), error)


__all__ = ["record"]
