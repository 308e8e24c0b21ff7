"""Which Python objects keep recorded graphs alive, and how many bytes those hold.

A graph lives as long as one of its results does, and holds its residuals until a backward frees
them. So a leak is a path from something long-lived (a list of losses, a running sum, an attribute,
a closure, a cycle) to a tensor whose graph still has residuals. After a backward without
``retain_graph`` the nodes that remain hold nothing to speak of.
"""
from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import copy_context
from functools import partial
from inspect import CO_OPTIMIZED
from itertools import compress
from types import (
    AsyncGeneratorType,
    BuiltinMethodType,
    CellType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
    MappingProxyType,
    MethodType,
    ModuleType,
)
from typing import Any, NamedTuple

from numpy import ndarray

from adjoint.autograd.function import FunctionNode
from adjoint.base import provenance
from adjoint.base.text import format_bytes
from adjoint.base.tree import tree_leaves
from adjoint.core.tensor import AccumulateGrad, Freed, Node, Packed, Port, Tensor
from adjoint.kernels import alloc
from adjoint.memory.ledger import arrays_of, bytes_of, storage_of

_DEPTH = 6          # links followed between a result and a name
_STEPS = 5000       # objects looked at below one frame's names; then up, through the referrers


class Retained(NamedTuple):
    """One result whose graph still has residuals.

    bytes   residuals that its graph holds (storages of leaves are not counted: those stay anyway)
    own     those of them that no other entry holds too
    path    how Python reaches it: ``losses[3]``, ``self.history[0]``; "" where no name was found
    place   where it was made
    nodes   recorded nodes below it that still have residuals
    advice  what usually mends it
    """

    bytes: int
    own: int
    path: str
    place: str
    nodes: int
    advice: str

    def __str__(self) -> str:
        own = "" if self.own == self.bytes else f" ({format_bytes(self.own)} of it alone)"
        return (f"{format_bytes(self.bytes)}{own} in {self.nodes} nodes, kept by "
                f"{self.path or 'an object without a name'}, made at {self.place}\n"
                f"    {self.advice}")


def retained() -> list[Retained]:
    """The results in this process that keep unfreed graphs alive, the heaviest first.

    >>> import adjoint as ad
    >>> w = ad.ones(1000, requires_grad=True)
    >>> history = [(w * i).exp().sum() for i in range(3)]      # losses, never backed
    >>> found = retained()
    >>> sorted((r.path, r.own) for r in found)[0]
    ('history[0]', 4000)
    >>> del history, found
    """
    gc.collect()
    objects = living(lambda kind: issubclass(kind, (Node, Tensor)))
    used = {id(_node(e)) for n in objects if isinstance(n, Node) for e in n.edges if e is not None}
    results = [t for t in objects if isinstance(t, Tensor) and t.grad_fn is not None
               and not t.level and id(t.grad_fn) not in used]
    del objects
    held: list[tuple[Any, dict[int, int], int]] = []
    by_node: dict[int, Any] = {}
    for t in results:
        by_node.setdefault(id(t.grad_fn), t)
    for t in by_node.values():
        storages, count = _residuals(t.grad_fn)
        if count:
            held.append((t, storages, count))
    sharing: dict[int, int] = {}
    for _, storages, _ in held:
        for key in storages:
            sharing[key] = sharing.get(key, 0) + 1
    ignore = {id(held), id(results), id(by_node)}
    names = _named_objects({id(t) for t, _, _ in held}) if held else {}
    targets = [t for t, _, _ in held]
    paths, out = _paths(targets, names, ignore), []
    for t, storages, count in held:
        own = sum(b for k, b in storages.items() if sharing[k] == 1)
        path = paths[id(t)]
        node: Any = t.grad_fn
        out.append(Retained(sum(storages.values()), own, path, node.where(), count,
                            _advice(t, path)))
    del held, results, by_node, targets
    return sorted(out, key=lambda r: -r.bytes)


def leaks() -> str:
    """`retained()` as text, with the total; the storages that several results share count once.
    Also how many bytes only reference cycles held, which are gone after this call.

    >>> import adjoint as ad
    >>> w = ad.ones(1000, requires_grad=True)
    >>> total = (w * w).sum(); total.backward()
    >>> print(leaks().splitlines()[0])
    no unfreed graph is alive
    """
    held = alloc.live()
    found = retained()                 # (collects first)
    held -= alloc.live()
    lines = [f"{len(found)} unfreed graph{'s' * (len(found) > 1)} alive" if found else
             "no unfreed graph is alive", *(f"  {r}" for r in found)]
    if held > 0:
        lines.append(f"  {format_bytes(held)} were held by reference cycles, until the collection "
                     "that this report begins with\n    an object that leads to itself and to "
                     "these arrays: break the cycle, or keep .detach() in it")
    return "\n".join(lines)


def living(wanted: Callable[[type], bool]) -> list[Any]:
    """The objects of the wanted classes that the collector knows: each class is asked about once,
    for there can be millions of objects."""
    objects = gc.get_objects()
    kinds = dict(zip(map(id, map(type, objects)), map(type, objects), strict=True))
    chosen = {key for key, kind in kinds.items() if wanted(kind)}
    return [*compress(objects, map(chosen.__contains__, map(id, map(type, objects))))]


def _node(edge: Any) -> Any:
    return edge.node if type(edge) is Port else edge


def _residuals(root: Any) -> tuple[dict[int, int], int]:
    """(storage -> bytes, nodes that still have residuals) of the graph below `root`."""
    found: dict[int, int] = {}
    leaves: set[int] = set()
    seen, stack, count = {id(root)}, [root], 0
    while stack:
        node = stack.pop()
        if type(node) is AccumulateGrad:
            leaf = node.variable
            if leaf is not None:
                leaves.add(id(storage_of(leaf.array)))
            continue
        if type(node.saved) is not Freed and (
                node.saved is not None or isinstance(node, FunctionNode)):
            arrays = [storage_of(a) for a in (*arrays_of(node.saved or ()), *_beside(node))]
            count += bool(arrays)
            found.update((id(s), bytes_of(s)) for s in arrays if s is not None)
        for edge in node.edges:
            below = None if edge is None else _node(edge)
            if below is not None and id(below) not in seen:
                seen.add(id(below))
                stack.append(below)
    return {k: b for k, b in found.items() if k not in leaves}, count


def _beside(node: Any) -> list[Any]:
    """The arrays of what hooks have packed of a node and of what a checkpointed region keeps, and
    of what a user's `backward` finds at its context."""
    found: list[Any] = [vars(node.ctx)] if isinstance(node, FunctionNode) else []
    for s in node.saved or ():
        for p in s if type(s) is tuple else (s,):
            if type(p) is Packed:
                keeps = getattr(p.hook, "keeps", None)
                found += keeps() if keeps is not None else [p.value]
    arrays: list[Any] = []
    for x in tree_leaves(found):
        x = getattr(getattr(x, "storage", None), "owner", x)          # (what a budget holds)
        if isinstance(x, Tensor) or type(x) is ndarray:
            arrays.append(x.array if isinstance(x, Tensor) else x)
    return arrays


# ---------------------------------------------------------------------- how Python reaches it
def _named_objects(wanted: set[int]) -> dict[int, str]:
    """Identity -> name of what the functions of all threads call theirs, running ones, suspended
    ones (generators) and those that an exception's traceback holds; and of the wanted objects that
    lists, dicts and instances found there lead to."""
    found: dict[int, str] = {}
    for frame in sys._current_frames().values():
        walker: FrameType | None = frame
        while walker is not None:
            _search(walker, found, wanted)
            walker = walker.f_back
    for variable, value in copy_context().items():
        for i in {id(value)} & (wanted - found.keys()):
            found[i] = f"{variable.name}.get()"
    if not wanted <= found.keys():
        for obj in living(_SUSPENDED.__contains__):
            suspended = getattr(obj, _SUSPENDED[type(obj)])
            if suspended is not None:
                _search(suspended, found, wanted)
    if not wanted <= found.keys():
        for obj in living(lambda kind: issubclass(kind, BaseException)):
            if obj.__traceback__ is not None:
                raised: dict[int, str] = {}
                for at in _traceback(obj):
                    _search(at, raised, wanted)
                if wanted & (raised.keys() - found.keys()):
                    kept = _path(obj, found, {id(found)}) or f"a {type(obj).__name__}"
                    found = {k: f"{kept}.__traceback__, {v}" for k, v in raised.items()} | found
    return found


_SUSPENDED = {GeneratorType: "gi_frame", CoroutineType: "cr_frame", AsyncGeneratorType: "ag_frame"}


def _traceback(error: BaseException) -> Iterator[FrameType]:
    """The frames that an exception holds, the innermost first."""
    frames, at = [], error.__traceback__
    while at is not None:
        frames.append(at.tb_frame)
        at = at.tb_next
    return reversed(frames)


def _search(frame: FrameType, found: dict[int, str], wanted: set[int]) -> None:
    """Name a frame's variables in `found`, and what they lead to while something is wanted."""
    if provenance.inside[frame.f_code.co_filename]:
        return
    place = frame.f_code.co_qualname
    queue: deque[tuple[Any, str, int]] = deque()
    for name, value in _locals(frame).items():
        if id(value) not in found:
            label = found[id(value)] = name if place == "<module>" else f"{place}: {name}"
            queue.append((value, label, 0))
    steps = 0
    while queue and steps < _STEPS and not wanted <= found.keys():
        obj, label, depth = queue.popleft()
        for link, value in _inside(obj) if depth < _DEPTH else ():
            steps += 1
            if id(value) not in found:
                found[id(value)] = label + link
                queue.append((value, label + link, depth + 1))


def _inside(obj: Any) -> Iterator[tuple[str, Any]]:
    """(how, object) for what a container or an instance of a user's class holds."""
    if isinstance(obj, (list, tuple, deque)):
        yield from ((f"[{i}]", v) for i, v in enumerate(obj))
    elif isinstance(obj, dict):
        yield from ((f"[{k!r}]", v) for k, v in list(obj.items()) if isinstance(k, (str, int)))
    elif not isinstance(obj, (ModuleType, type, FunctionType)):
        own = getattr(obj, "__dict__", None)
        if type(own) is dict:
            yield from ((f".{k}", v) for k, v in list(own.items()))


def _locals(frame: FrameType) -> dict[str, Any]:
    """A frame's variables. Up to Python 3.12 the frame of a function keeps the dict that is made
    for it, and everything in it alive with it, so that is emptied."""
    held = frame.f_locals
    found = dict(held)
    if type(held) is dict and frame.f_code.co_flags & CO_OPTIMIZED:
        held.clear()
    return found


def _path(target: Any, names: dict[int, str], ignore: set[int]) -> str:
    """A name for `target`; "" if none was found."""
    return _paths([target], names, ignore)[id(target)]


def _paths(targets: list[Any], names: dict[int, str], ignore: set[int]) -> dict[int, str]:
    """Identity -> name of each target, "" where none was found: by going up the referrers, breadth
    first, of all targets at a time, since each look for referrers goes through all objects."""
    found = {id(t): names.get(id(t), "") for t in targets}
    level = [t for t in targets if id(t) not in names]
    ways = {id(t): {id(t): ""} for t in level}           # object -> target -> links from it
    seen = {(id(t), id(t)) for t in level}               # (object, target)
    held = [targets]                                     # so that no id is given away meanwhile
    for _ in range(_DEPTH + 1):
        if not 0 < len(level) <= _STEPS:
            break
        holders = gc.get_referrers(*level)
        held += level, holders
        above = _Above(level, holders, {*ignore, *map(id, held)})
        further: dict[int, dict[int, str]] = {}
        level = []
        for holder, objects in above.pairs:
            for obj in objects:
                at = {k: v for k, v in ways[id(obj)].items()
                      if not found[k] and (id(holder), k) not in seen}
                if not at:
                    continue
                seen.update((id(holder), k) for k in at)
                name = above.named(holder, obj)
                step = None if name else above.link(holder, obj)
                if step is not None and id(holder) in names:
                    name = names[id(holder)] + step
                for k, links in at.items():
                    if name:
                        found[k] = name + links
                    elif step is not None:
                        further.setdefault(id(holder), {})[k] = step + links
                        level.append(holder)
        level = [x for x in dict(zip(map(id, level), level, strict=True)).values()
                 if not all([found[k] for k in further[id(x)]])]
        ways = further
    return found


class _Above:
    """Who refers to some objects, and how. Each question of one kind is asked for all at a time."""

    def __init__(self, objects: list[Any], holders: list[Any], ignore: set[int]) -> None:
        known = {id(o): o for o in objects}
        self.pairs = [(h, _among(h, known)) for h in holders
                      if id(h) not in ignore and not isinstance(h, FrameType)]
        self._owners: dict[int, list[Any]] | None = None
        self._cells: dict[int, str] | None = None

    def named(self, holder: Any, obj: Any) -> str:
        """The name under which `holder`, a namespace, has `obj`; "" if it is none."""
        if isinstance(holder, dict):
            module = holder.get("__name__")
            space: Any = sys.modules.get(module) if isinstance(module, str) else None
            if space is not None and vars(space) is holder:
                for name, value in holder.items():
                    if value is obj:
                        return name if module == "__main__" else f"{module}.{name}"
                return ""
        if isinstance(holder, CellType):
            if self._cells is None:
                self._cells = _cell_names([h for h, _ in self.pairs if isinstance(h, CellType)])
            return self._cells.get(id(holder), "")
        return ""

    def link(self, holder: Any, obj: Any) -> str | None:
        """How `holder` leads to `obj` (``[3]``, ``['loss']``, ``.attribute``); None: not a way."""
        if isinstance(holder, (ModuleType, Freed, Port)):
            return None
        if isinstance(holder, (list, tuple, deque)):
            return next((f"[{i}]" for i, value in enumerate(holder) if value is obj), None)
        if isinstance(holder, dict):
            key = next((k for k, v in holder.items() if v is obj), "?")
            if self._is_attribute(holder, key):
                return f".{key}"
            return f"[{key!r}]" if isinstance(key, (str, int, float)) else \
                f"[<{type(key).__name__}>]"
        own = getattr(holder, "__dict__", None)
        if own is obj or isinstance(holder, type):
            return ""                          # an instance and its attributes: one link
        names = [*(own if isinstance(own, dict) else ()), *_PARTS.get(type(holder), ()),
                 *(n for kind in type(holder).__mro__ for n in getattr(kind, "__slots__", ()))]
        for name in names:
            if getattr(holder, name, None) is obj:
                return f".{name}"
        return f".<{type(holder).__name__}>" if _unnamed(holder) else (
            "" if hasattr(type(holder), "__slots__") or own is not None else None)

    def _is_attribute(self, attributes: dict[Any, Any], key: Any) -> bool:
        """Whether these are the attributes of an instance or a class."""
        if self._owners is None:
            dicts = {id(h): h for h, _ in self.pairs if isinstance(h, dict)}
            self._owners = {}
            for owner in gc.get_referrers(*dicts.values()):
                for d in _among(owner, dicts) if owner is not dicts else ():
                    self._owners.setdefault(id(d), []).append(owner)
        return any([getattr(owner, "__dict__", None) is attributes or isinstance(owner, type) and (
            key in vars(owner) and vars(owner)[key] is attributes[key])
            for owner in self._owners.get(id(attributes), ())])


def _unnamed(holder: Any) -> bool:
    """Whether this has parts without a name: sets, iterators, views of dicts."""
    return isinstance(holder, (set, frozenset, Iterator, MappingProxyType)) and not isinstance(
        holder, tuple(_SUSPENDED)) or type(holder).__module__ == "itertools"


def _among(holder: Any, known: dict[int, Any]) -> list[Any]:
    """Those of the known objects that `holder` refers to."""
    below = dict.fromkeys(map(id, gc.get_referents(holder)))
    return [known[k] for k in below if k in known]


def _cell_names(cells: list[Any]) -> dict[int, str]:
    """Identity of a cell -> ``function: variable`` of a closure that shares it."""
    groups = [g for g in gc.get_referrers(*cells) if isinstance(g, tuple)]
    found: dict[int, str] = {}
    for f in gc.get_referrers(*groups) if groups else ():
        if isinstance(f, FunctionType) and f.__closure__:
            for cell, name in zip(f.__closure__, f.__code__.co_freevars, strict=True):
                found.setdefault(id(cell), f"{f.__qualname__}: {name}")
    return found


# what holds others and says it in no dict
_PARTS = {FunctionType: ("__defaults__", "__kwdefaults__"), MethodType: ("__self__",),
          BuiltinMethodType: ("__self__",), partial: ("args", "keywords")}


def _advice(t: Any, path: str) -> str:
    name = t.grad_fn.name()
    if t.numel() == 1 and path.endswith("]"):
        return ("a list of losses whose graphs nothing has freed (no backward(), or one with "
                "retain_graph=True): append loss.item() or loss.detach(), or call backward() on "
                "each")
    if t.numel() == 1 and name.startswith("Add"):
        return ("a running sum keeps the graph of every term: add loss.item() (or loss.detach()), "
                "or call backward() per step")
    if not path:
        return "only reference cycles or foreign code reach it: gc.collect() frees cycles"
    return ("call backward() without retain_graph=True, compute under no_grad() what needs no "
            "gradient, or keep .detach() of it")
