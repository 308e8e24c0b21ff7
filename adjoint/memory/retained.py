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
from collections.abc import Iterator
from functools import partial
from inspect import CO_OPTIMIZED
from types import (
    AsyncGeneratorType,
    BuiltinMethodType,
    CellType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
)
from typing import Any, NamedTuple

from adjoint.base import provenance
from adjoint.base.text import format_bytes
from adjoint.core.tensor import AccumulateGrad, Freed, Node, Port, Tensor
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
    objects = [o for o in gc.get_objects() if issubclass(type(o), (Node, Tensor))]
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
    out = []
    for t, storages, count in held:
        own = sum(b for k, b in storages.items() if sharing[k] == 1)
        path = _path(t, names, ignore)
        node: Any = t.grad_fn
        out.append(Retained(sum(storages.values()), own, path, node.where(), count,
                            _advice(t, path)))
    del held, results, by_node
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
        if node.saved is not None and type(node.saved) is not Freed:
            arrays = [storage_of(a) for a in arrays_of(node.saved)]
            count += bool(arrays)
            found.update((id(s), bytes_of(s)) for s in arrays if s is not None)
        for edge in node.edges:
            below = None if edge is None else _node(edge)
            if below is not None and id(below) not in seen:
                seen.add(id(below))
                stack.append(below)
    return {k: b for k, b in found.items() if k not in leaves}, count


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
    if not wanted <= found.keys():
        for obj in gc.get_objects():
            where = _SUSPENDED.get(type(obj))
            suspended = getattr(obj, where) if where else None
            if suspended is not None:
                _search(suspended, found, wanted)
    if not wanted <= found.keys():
        for obj in gc.get_objects():
            if issubclass(type(obj), BaseException) and obj.__traceback__ is not None:
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
    """A name for `target`, found by going up the referrers, breadth first."""
    if id(target) in names:
        return names[id(target)]
    queue: list[tuple[Any, str, int]] = [(target, "", 0)]
    seen = {id(target), *ignore, id(queue)}
    held: list[Any] = []                      # so that no id is given away meanwhile
    while queue:
        obj, suffix, depth = queue.pop(0)
        above = gc.get_referrers(obj)
        held.append(above)
        seen.add(id(above))
        for holder in above:
            if id(holder) in seen or isinstance(holder, FrameType):
                continue
            seen.add(id(holder))
            name = _named(holder, obj)
            if name:
                return name + suffix
            step = _link(holder, obj)
            if step is not None and id(holder) in names:
                return names[id(holder)] + step + suffix
            if step is not None and depth < _DEPTH:
                queue.append((holder, step + suffix, depth + 1))
    return ""


def _named(holder: Any, obj: Any) -> str:
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
        return _cell_name(holder)
    return ""


def _cell_name(cell: CellType) -> str:
    """``function: variable`` of a closure that shares `cell`."""
    for group in gc.get_referrers(cell):
        if isinstance(group, tuple):
            for f in gc.get_referrers(group):
                if isinstance(f, FunctionType) and f.__closure__ is group:
                    index = [c is cell for c in group].index(True)
                    return f"{f.__qualname__}: {f.__code__.co_freevars[index]}"
    return ""


def _link(holder: Any, obj: Any) -> str | None:
    """How `holder` leads to `obj` (``[3]``, ``['loss']``, ``.attribute``); None: not a way."""
    if isinstance(holder, (ModuleType, Freed, Port)):
        return None
    if isinstance(holder, (list, tuple, deque)):
        return next((f"[{i}]" for i, value in enumerate(holder) if value is obj), None)
    if isinstance(holder, dict):
        key = next((k for k, v in holder.items() if v is obj), "?")
        if _owner(holder, key) is not None:
            return f".{key}"
        return f"[{key!r}]" if isinstance(key, (str, int, float)) else f"[<{type(key).__name__}>]"
    own = getattr(holder, "__dict__", None)
    if own is obj or isinstance(holder, type):
        return ""                              # an instance and its attributes: one link
    names = [*(own if isinstance(own, dict) else ()), *_PARTS.get(type(holder), ()),
             *(n for kind in type(holder).__mro__ for n in getattr(kind, "__slots__", ()))]
    for name in names:
        if getattr(holder, name, None) is obj:
            return f".{name}"
    return f".<{type(holder).__name__}>" if isinstance(holder, (set, frozenset)) else (
        "" if hasattr(type(holder), "__slots__") or own is not None else None)


# what holds others and says it in no dict
_PARTS = {FunctionType: ("__defaults__", "__kwdefaults__"), MethodType: ("__self__",),
          BuiltinMethodType: ("__self__",), partial: ("args", "keywords")}


def _owner(attributes: dict[Any, Any], key: Any) -> Any:
    """The instance or the class whose attributes these are."""
    for holder in gc.get_referrers(attributes):
        if getattr(holder, "__dict__", None) is attributes or isinstance(holder, type) and (
                key in vars(holder) and vars(holder)[key] is attributes[key]):
            return holder
    return None


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
