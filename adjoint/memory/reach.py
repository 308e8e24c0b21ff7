"""What a step can reach, made storage-less for the length of a rehearsal and put back after it.

From the step and its arguments the search follows containers, instance dictionaries, closures,
defaults, bound objects and the globals that a function's code names; for objects of the user's
classes also their methods. Every tensor found shows a storage-less array while the rehearsal runs.
Afterwards tensors, containers, instance dictionaries, closure cells, named globals and random
generators are as before, however the run ended.

Integer and bool tensors of up to 16 MB (indices, labels, masks), and tensors of no axes that need
no gradient (step counts, schedules), keep their values, as copies: code and kernels branch on them.
"""
from __future__ import annotations

import functools
import random
import sys
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from adjoint.base import provenance
from adjoint.base.aval import MetaArray
from adjoint.core.held import ALONE, refs
from adjoint.core.op import Op
from adjoint.core.rehearsal import keeps_value
from adjoint.core.tensor import AccumulateGrad, Cell, Node, Port, Tensor
from adjoint.memory.graphs import Doubles, below
from adjoint.memory.ledger import arrays_of, bytes_of, storage_of
from adjoint.ops.generator import Generator, default_generator
from adjoint.ops.sparse_tensor import SparseTensor

_PLAIN = (str, bytes, bytearray, int, float, complex, bool, type(None), np.ndarray, np.generic,
          np.dtype, BuiltinFunctionType, CodeType, range, slice, MetaArray, Op)
_CELL = ("version", "touched", "what", "code", "lasti", "exposed", "print")


class Reach:
    """Everything found from `roots`, by kind."""

    def __init__(self, *roots: Any) -> None:
        self.tensors: list[Any] = []
        self.nodes: list[Any] = []                # of graphs that were recorded before
        self.optimizers: list[Any] = []
        self.rehearsing: list[Any] = []           # objects with raw arrays of their own
        self._containers: list[tuple[Any, Any]] = []
        self._cells: list[tuple[CellType, Any]] = []
        self._globals: list[tuple[dict[str, Any], str, Any]] = []
        self._generators: list[Any] = [default_generator]
        self._seen: set[int] = set()
        self._pinned: set[int] = set()            # tensors that somebody holds for good
        self._hold: list[Any] = []                # ids stay taken while we look
        self._kept: Counter[int] = Counter()      # tensors that nodes and views keep: by how many
        self._met: set[int] = set()               # tensors found elsewhere
        for root in roots:
            self._pin(root)
        self._find(list(roots))
        self._hold.clear()
        for t in self.tensors:                    # kept so, and by something not found?
            if id(t) in self._kept and id(t) not in self._met and (
                    refs(t) > ALONE + 1 + self._kept[id(t)]):
                self._pin(t)

    def _pin(self, *children: Any) -> None:
        """The places where these stand cannot be changed, or are the caller's."""
        self._pinned.update(id(c) for c in children if isinstance(c, Tensor))

    # ------------------------------------------------------------------ search
    def _find(self, stack: list[Any]) -> None:
        while stack:
            x = stack.pop()
            if isinstance(x, _PLAIN) or id(x) in self._seen:
                continue
            self._seen.add(id(x))
            self._hold.append(x)
            found = list(self._below(x))
            for t in found:
                if isinstance(t, Tensor):
                    if isinstance(x, Node) or isinstance(x, Tensor) and t is x._base:
                        self._kept[id(t)] += 1
                    else:
                        self._met.add(id(t))
            stack += found

    def _below(self, x: Any) -> Iterator[Any]:
        if isinstance(x, Tensor):
            if not x.level:
                self.tensors.append(x)
            yield from vars(x).values()
            if x._edge is not None and not x.level:
                yield x._edge.node if type(x._edge) is Port else x._edge
        elif isinstance(x, (Node, AccumulateGrad)):
            if isinstance(x, Node):
                self.nodes.append(x)
            yield from below(x)
        elif isinstance(x, dict):
            self._containers.append((x, dict(x)))
            self._pin(*x)
            yield from (*x.values(), *x)
        elif isinstance(x, (list, deque, set)):
            self._containers.append((x, set(x) if isinstance(x, set) else list(x)))
            if not isinstance(x, list):
                self._pin(*x)
            yield from list(x)
        elif isinstance(x, (tuple, frozenset)):
            self._pin(*x)
            yield from x
        elif isinstance(x, MethodType):
            self._pin(x.__self__)
            yield from (x.__self__, x.__func__)
        elif isinstance(x, functools.partial):
            self._pin(*x.args, *x.keywords.values())
            yield from (x.func, x.args, x.keywords)
        elif isinstance(x, FunctionType):
            yield from self._function(x)
        elif isinstance(x, type):
            yield from self._methods(x)
        elif isinstance(x, ModuleType):
            return
        else:
            yield from self._object(x)

    def _object(self, x: Any) -> Iterator[Any]:
        if isinstance(x, Generator):
            self._generators.append(x)
        if hasattr(type(x), "__rehearse__"):
            self.rehearsing.append(x)
        own = getattr(x, "__dict__", None)
        if isinstance(own, dict):
            if isinstance(own.get("param_groups"), list) and hasattr(x, "step"):
                self.optimizers.append(x)
            yield own
        for kind in type(x).__mro__:
            for name in _slots(kind):
                if hasattr(x, name):
                    self._pin(getattr(x, name))
                    yield getattr(x, name)
        yield type(x)

    def _methods(self, kind: type) -> Iterator[Any]:
        for k in kind.__mro__:
            top = k.__module__.split(".")[0]
            if (sys.modules.get(k.__module__) is None
                    or top in ("adjoint", "torch", *sys.stdlib_module_names)):
                continue
            for value in vars(k).values():
                inner = getattr(value, "__func__", value)
                if isinstance(inner, (FunctionType, Tensor)):
                    self._pin(inner)
                    yield inner

    def _function(self, f: FunctionType) -> Iterator[Any]:
        for cell in f.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:        # not assigned yet
                continue
            self._cells.append((cell, content))
            yield content
        yield from (f.__defaults__, f.__kwdefaults__, vars(f))
        if provenance.inside[f.__code__.co_filename]:
            return
        names = {n for n in _names(f.__code__) if n[:1] != "@"}     # those are a test runner's
        for name in names & f.__globals__.keys():
            value = f.__globals__[name]
            self._globals.append((f.__globals__, name, value))
            if isinstance(value, ModuleType):
                top = value.__name__.split(".")[0]
                if top not in ("adjoint", "numpy", "torch", *sys.stdlib_module_names):
                    for inner in names & vars(value).keys():
                        self._pin(vars(value)[inner])
                        yield vars(value)[inner]
            else:
                yield value

    def storages(self) -> dict[int, Any]:
        """Storages of the tensors found, and of arrays that the objects found keep for themselves,
        by identity."""
        found = [storage_of(t.array) for t in self.tensors]
        found += [storage_of(t._at) for t in self.tensors if type(t) is SparseTensor]
        found += [storage_of(a) for n in self.nodes if type(n.saved) is tuple
                  for a in arrays_of(n.saved)]

        def note(array: Any) -> Any:
            found.append(storage_of(array))
            return array
        for x in self.rehearsing:
            x.__rehearse__(note)
        return {id(s): s for s in found if s is not None}

    # ------------------------------------------------------------------ storage-less and back
    def replaceable(self, t: Any) -> bool:
        """True if another tensor may stand in the places where `t` was found, so that dropping it
        there frees its storage during the rehearsal; of views and their base, all or none."""
        base = t if t._base is None else t._base
        kids = [kid for ref in base._kids or () if (kid := ref()) is not None]
        return (t is base or any(kid is t for kid in kids)) and all(
            type(x) in (Tensor, SparseTensor) and id(x) in self._seen and id(x) not in self._pinned
            and not (x._rg and x.is_leaf) for x in (base, *kids))

    def replace(self, stand_in: Any) -> None:
        """Put `stand_in(tensor)` (the tensor itself, or another) where tensors were found."""
        for x, _ in self._containers:
            if isinstance(x, dict):
                for key, value in x.items():
                    if isinstance(value, Tensor):
                        x[key] = stand_in(value)
            elif isinstance(x, list):
                x[:] = [stand_in(v) if isinstance(v, Tensor) else v for v in x]
        for cell, content in self._cells:
            if isinstance(content, Tensor):
                cell.cell_contents = stand_in(content)
        for scope, name, value in self._globals:
            if isinstance(value, Tensor):
                scope[name] = stand_in(value)
        for t in self.tensors:
            if t._grad is not None:
                t._grad = stand_in(t._grad)

    def saved_state(self) -> list[tuple[Any, Any]]:
        """(function, argument) pairs whose calls put the Python state back."""
        back: list[tuple[Any, Any]] = []
        for g in self._generators:
            back.append((g.set_state, g.get_state()))
        back.append((np.random.set_state, np.random.get_state()))
        back.append((random.setstate, random.getstate()))
        return back

    def restore_state(self) -> None:
        """Containers, closure cells and named globals as they were found."""
        for x, before in self._containers:
            _refill(x, before)
        for cell, content in self._cells:
            cell.cell_contents = content
        for scope, name, value in self._globals:
            scope[name] = value


class Shadows:
    """Storage-less arrays in the place of real ones, until `undo`.

    Tensors that somebody holds for good (parameters, arguments) show another array; the others
    are represented by stand-ins, which live as long as the run's own references.
    """

    def __init__(self, reach: Reach) -> None:
        self.reach, self._back = reach, reach.saved_state()
        self.copied = 0           # bytes of the values that stay known
        self._roots: dict[int, MetaArray] = {}
        self._tensors: list[tuple[Any, tuple[Any, ...], Any]] = []
        cells: dict[int, tuple[Cell, tuple[Any, ...]]] = {}
        twins: dict[int, Any] = {}
        for t in reach.tensors:
            cell = t._cell
            if cell is not None and id(cell) not in cells:
                cells[id(cell)] = cell, tuple(getattr(cell, n) for n in _CELL)
            self._tensors.append((t, (t.array, t._rg, t._edge, cell), dict(vars(t))))
            if reach.replaceable(t):
                twins[id(t)] = self._stand_in(t)
        for twin in twins.values():
            if type(twin) is SparseTensor:
                twin._held = twins.get(id(twin._held), twin._held)
                twin._at = self.of(twin._at, known=True)
            if twin._base is not None:
                twin._base = twins[id(twin._base)]
            elif twin._kids:
                alive = [kid for ref in twin._kids if (kid := ref()) is not None]
                twin._kids = [weakref.ref(twins[id(kid)]) for kid in alive]
        reach.replace(lambda t: twins.get(id(t), t))
        for t in reach.tensors:
            if id(t) not in twins:
                t.array = self.of(t.array, known=not t._rg)
        self._nodes = self._doubles(twins) if reach.nodes else []
        self._stood = [weakref.ref(twins.get(id(t), t)) for t in reach.tensors]
        self._twins: list[Any] = [weakref.ref(t) for t in twins.values()]
        self._twins += [weakref.ref(t) for t in reach.tensors if id(t) not in twins]
        self._cells = list(cells.values())
        for x in reach.rehearsing:
            x.__rehearse__(self.of)
        self._roots.clear()       # the run's own references decide from here

    def tensors(self) -> Iterator[Any]:
        """The tensors that the run sees."""
        for ref in self._twins:
            t = ref()
            if t is not None:
                yield t

    def tell(self, tell: Callable[[Any, Callable[[], Any]], None]) -> None:
        """Tell which numbers the storage-less arrays of tensors that the run sees stand for."""
        for ref, (_, (array, *_), _) in zip(self._stood, self._tensors, strict=True):
            t = ref()
            if t is not None and type(t.array) is MetaArray and type(array) is np.ndarray:
                tell(t, functools.partial(np.asarray, array))

    def nodes(self) -> Iterator[Any]:
        """The nodes, recorded before, that the run sees."""
        yield from (node for ref in self._nodes if (node := ref()) is not None)

    def _doubles(self, twins: dict[int, Any]) -> list[Any]:
        """Let what the run sees lead to doubles of the nodes that were found."""
        doubles = Doubles(self.reach.nodes, lambda t: twins.get(id(t), t), self.of)
        for t in self.reach.tensors:
            seen = twins.get(id(t), t)
            seen._edge = doubles.edge(seen._edge)
        return [weakref.ref(double) for _, double in doubles.pairs]

    def _stand_in(self, t: Any) -> Any:
        twin: Any = object.__new__(type(t))
        twin.array, twin._rg, twin._edge, twin._cell = (
            self.of(t.array, known=not t._rg), t._rg, t._edge, t._cell)
        vars(twin).update(vars(t))
        return twin

    def of(self, array: Any, known: bool = False) -> Any:
        """The storage-less twin of an array; a copy where its values stay known."""
        root = storage_of(array)
        if root is None:
            return array
        twin = self._roots.get(id(root))
        if twin is None:
            twin = self._roots[id(root)] = self._twin(root, known)
        if root is array:
            return twin
        if type(array) is MetaArray:
            return MetaArray(array.shape, array.dtype, twin, array.strides, array.offset)
        offset = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
        if type(twin) is np.ndarray:
            return np.ndarray(array.shape, array.dtype, twin, offset, array.strides)
        return MetaArray(array.shape, array.dtype, twin, array.strides, offset)

    def _twin(self, root: Any, known: bool) -> Any:
        if type(root) is MetaArray:
            return MetaArray(root.shape, root.dtype, None, root.steps)
        if known and root.flags.c_contiguous and (
                root.ndim == 0 or keeps_value(root.shape, root.dtype)):
            self.copied += bytes_of(root)
            return root.copy()
        if root.size * root.itemsize == root.nbytes:
            return MetaArray(root.shape, root.dtype, None, root.strides)
        return MetaArray((bytes_of(root),), np.uint8)

    def undo(self) -> None:
        """Everything as before."""
        for t, (array, rg, edge, cell), attributes in self._tensors:
            t.array, t._rg, t._edge, t._cell = array, rg, edge, cell
            _refill(vars(t), attributes)
        for held, values in self._cells:
            for name, value in zip(_CELL, values, strict=True):
                setattr(held, name, value)
        self.reach.restore_state()
        for put, value in self._back:
            put(value)


def _refill(x: Any, before: Any) -> None:
    if isinstance(x, dict):
        if len(x) == len(before) and all(a is b for a, b in zip(x, before, strict=True)) and all(
                a is b for a, b in zip(x.values(), before.values(), strict=True)):
            return
        x.clear()
        x.update(before)
    elif isinstance(x, (list, deque)):
        if len(x) != len(before) or any(a is not b for a, b in zip(x, before, strict=True)):
            x.clear()
            x.extend(before)
    elif x != before:
        x.clear()
        x.update(before)


def _slots(kind: type) -> tuple[str, ...]:
    found = vars(kind).get("__slots__", ())
    names = (found,) if isinstance(found, str) else tuple(found)
    return tuple(n for n in names if not n.startswith("__"))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
