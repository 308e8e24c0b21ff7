"""What a computation on raw arrays does to memory, learned once and repeated without storage.

The result of a raw call is a program: which storages it makes (a view makes none), how they are
laid out, and the most bytes that it held on the way, temporaries and kernel workspaces included.
The program of a view follows from shapes and strides. Any other call is run once on scratch
arrays of the very shapes, dtypes and strides, under the counting allocator, and remembered. A call
too large for that is taken to make its outputs and nothing else, and is reported as assumed.
"""
from __future__ import annotations

import functools
import math
import mmap
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from adjoint.base.aval import SCALAR, MetaArray, account, aval_of, inverse
from adjoint.base.errors import AdjointError
from adjoint.core.bind import compute, inferred
from adjoint.core.inplace import _written
from adjoint.core.op import OPS, Op
from adjoint.core.rehearsal import on_scratch, rehearsal
from adjoint.core.tensor import owner_of
from adjoint.kernels import alloc
from adjoint.memory.reduced import SIZES, Reduced, enlarged, line

PROBE_BYTES = 32 << 20         # operands and results of a call that is run on scratch arrays
IDLE_BYTES = 32 << 20          # what may be kept for reuse after a call was tried on smaller arrays
PROBE_WORK = 1_000_000_000     # floating operations of such a call
_RESERVE = 1 << 45             # address space that views of huge arrays are laid out in
_NORESERVE = 0x4000            # MAP_NORESERVE


class Layout(NamedTuple):
    """How a result shows a storage: of operand `root` (its position) or new (~position)."""

    root: int
    shape: tuple[int, ...]
    dtype: Any
    strides: tuple[int, ...]
    offset: int
    same: bool              # the very array that owns the storage, or that was handed in


class Program(NamedTuple):
    """Storages made (shape, dtype, strides), bytes held at most on the way, and the results."""

    makes: tuple[tuple[tuple[int, ...], Any, tuple[int, ...]], ...]
    most: int
    results: Any
    known: bool             # measured or derived; False: assumed


class Rehearsal:
    """Answers calls on storage-less arrays; `books` is the account that `MetaArray`s enter."""

    programs: dict[Any, Program | None] = {}      # shared: what a call does does not change

    def __init__(self, books: Any) -> None:
        self.books = books
        for op in OPS.values():            # of real operands (numbers), too, an op is what it is
            op.often = True                # to become: at its first calls it takes other memory
        self.assumed: dict[str, int] = {}  # op -> calls whose workspace is not known
        # id -> tensor and its array (both weakly), its version, and what gives its numbers
        self._told: dict[int, tuple[Any, Any, int, Callable[[], Any]]] = {}

    def compute(self, op: Op, arrays: Sequence[Any], attrs: Mapping[str, Any],
                wrapped: bool) -> tuple[Any, ...]:
        """An op's raw results."""
        found: tuple[Any, ...] = self.call(compute, (op, list(arrays), dict(attrs), wrapped), {},
                                           tuple)
        return found

    def call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
             otherwise: Callable[[], Any]) -> Any:
        """`fn(*args, **kwargs)` with storage-less arrays among them, however nested."""
        self.books.fold()
        metas = _Operands()
        key = (_signature(fn, metas), _signature(args, metas), _signature(kwargs, metas))
        if key in self.programs:
            program = self.programs[key]
        else:
            before = alloc.live_and_peak()[0]
            try:
                program = self.programs[key] = self._learn(fn, args, kwargs, metas, otherwise)
            except MemoryError:       # there is no room to try it out now (a budget): not noted
                program = _outputs(args[0] if fn is compute else None, args, otherwise)[1]
            self.books.outside(alloc.live_and_peak()[0] - before)
        if program is None:
            self.assume(fn)
            return otherwise()
        if not program.known:
            self.assume(args[0] if fn is compute else fn)
        if program.most:
            self.books.spike(program.most)
        made = [MetaArray(shape, dtype, None, strides) for shape, dtype, strides in program.makes]
        return _built(program.results, metas, made)

    def build(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Make what the package keeps; it is not counted."""
        self.books.fold()
        before = alloc.live_and_peak()[0]
        made = fn(*args)
        self.books.outside(alloc.live_and_peak()[0] - before)
        return made

    def tell(self, tensor: Any, make: Callable[[], Any]) -> None:
        """`make()` gives the numbers of `tensor`, until something is written to it."""
        self._told[id(tensor)] = (weakref.ref(tensor), weakref.ref(tensor.array),
                                  tensor._version, make)

    def answer(self, ask: Callable[[Any], bool], tensor: Any) -> bool | None:
        """`ask` of the numbers of a tensor, which are not counted; None where not known."""
        found = self._told.get(id(tensor))
        if found is None:
            return None
        ref, array, version, make = found
        same = ref() is tensor and array() is tensor.array and tensor._version == version
        return bool(self.build(lambda: ask(make()), ())) if same else None

    def assume(self, what: Any) -> None:
        """Note what is not known to be as on real arrays."""
        name = what.name if isinstance(what, Op) else getattr(what, "__name__", str(what))
        self.assumed[name] = self.assumed.get(name, 0) + 1

    # ------------------------------------------------------------------ learning
    def _learn(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
               metas: list[MetaArray], otherwise: Callable[[], Any]) -> Program | None:
        op = args[0] if fn is compute else None
        held = sum(_root(m).held for m in {id(_root(m)): m for m in metas}.values())
        large = held > PROBE_BYTES or _too_large(op, args)
        if op is not None and op.view and (large or held > 1 << 16):
            found = _viewed(op, args[1], args[2], metas)
            if found is not None:
                return found
        if not large and alloc.installed():
            try:
                return probe(fn, args, kwargs, metas)
            except AdjointError:          # a scratch run cannot do it; shapes are told below
                pass
        return _from_smaller(op, fn, args, kwargs, metas, otherwise)


def _bytes(makes: Sequence[Any]) -> int:
    return sum(max(math.prod(shape) * dtype.itemsize, 1) for shape, dtype, _ in makes)


def probe(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
          metas: list[MetaArray]) -> Program:
    """Run `fn` on scratch arrays until two runs agree on what they took: the first may fill
    caches that the package keeps (plans, tables, choices by measurement)."""
    if fn is compute or fn is _written:
        args[0].often = True     # what it is to become takes other memory than what it begins as
    token, books, scratch = rehearsal.set(None), account.set(None), on_scratch.set(True)
    try:
        last: Program | None = None
        for _ in range(6):
            try:
                found = _measured(fn, args, kwargs, metas)
            except AdjointError:          # zeros are no operand for it (a singular matrix)
                found = _measured(fn, args, kwargs, metas, unit=True)
            if found == last:
                by_value = fn is compute and args[0].by_value     # another run takes other memory
                return found._replace(known=not by_value and found.known)
            last = found
        return found._replace(known=False)
    finally:
        on_scratch.reset(scratch)
        rehearsal.reset(token)
        account.reset(books)


def _measured(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
              metas: list[MetaArray], unit: bool = False) -> Program:
    scratch = _Scratch(metas, mutates=fn is _written or "out" in kwargs)
    if unit:
        scratch.unit()
    real_args, real_kwargs = scratch.fill(args), scratch.fill(kwargs)
    before = alloc.live_and_peak()[0]
    alloc.reset_peak()
    with np.errstate(all="ignore"):
        out = fn(*real_args, **real_kwargs)
    live, peak = alloc.live_and_peak()
    makes: list[Any] = []
    seen: dict[int, int] = {}
    results = _described(out, scratch, makes, seen)
    return Program(tuple(makes), peak - before, results, live - before == _bytes(makes))


def _described(out: Any, scratch: _Scratch, makes: list[Any], seen: dict[int, int]) -> Any:
    """The result with a `Layout` in place of every array."""
    if isinstance(out, (tuple, list)):
        return type(out)(_described(o, scratch, makes, seen) for o in out)
    if isinstance(out, dict):
        return {k: _described(v, scratch, makes, seen) for k, v in out.items()}
    if isinstance(out, np.generic):
        return Layout(0, (), out.dtype, (), -1, False)
    if not isinstance(out, np.ndarray):
        return out
    root = owner_of(out)
    same = root is out
    position = scratch.roots.get(id(root))
    if position is None:
        number = seen.get(id(root))
        if number is None:
            number = seen[id(root)] = len(makes)
            makes.append((root.shape, root.dtype, root.strides))
        position = ~number
    elif id(out) in scratch.given:
        return ("given", scratch.given[id(out)])
    offset = out.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    return Layout(position, out.shape, out.dtype, out.strides, offset, same)


def _built(results: Any, metas: Sequence[MetaArray], made: Sequence[MetaArray]) -> Any:
    """The storage-less results of a program."""
    if isinstance(results, Layout):
        if results.offset < 0:
            return MetaArray((), results.dtype, SCALAR)
        if results.root < 0:
            root = made[~results.root]
            if results.same:
                return root
        else:
            root = _root(metas[results.root])
        return MetaArray(results.shape, results.dtype, root, results.strides, results.offset)
    if type(results) is tuple and len(results) == 2 and results[0] == "given":
        return metas[results[1]]
    if isinstance(results, (tuple, list)):
        return type(results)(_built(r, metas, made) for r in results)
    if isinstance(results, dict):
        return {k: _built(r, metas, made) for k, r in results.items()}
    return results


class _Scratch:
    """Arrays of zeros in the layout of storage-less ones; those that share storage still do."""

    def __init__(self, metas: Sequence[MetaArray], mutates: bool) -> None:
        self.mutates = mutates
        self.roots: dict[int, int] = {}      # id of a scratch root -> position of an operand
        self.given: dict[int, int] = {}      # id of a scratch operand -> its position
        self.arrays: dict[int, Any] = {}     # id of a storage-less array -> scratch
        self.hold: list[Any] = []
        for i, m in enumerate(metas):
            if id(m) in self.arrays:
                continue
            root = _root(m)
            if root is SCALAR:
                self.arrays[id(m)] = m.dtype.type(0)
                continue
            if id(root) not in self.arrays:
                self.arrays[id(root)] = real = _zeros(root)
                self.roots[id(real)] = i
            real = self.arrays[id(root)]
            if root is not m:
                self.arrays[id(m)] = np.ndarray(m.shape, m.dtype, _flat(real), m.offset, m.strides)
            self.given[id(self.arrays[id(m)])] = i

    def unit(self) -> None:
        """Unit matrices in place of zeros, ones where the last two axes are not equal."""
        for array in self.arrays.values():
            if isinstance(array, np.ndarray):
                square = array.ndim > 1 and array.shape[-1] == array.shape[-2]
                array[...] = np.eye(array.shape[-1], dtype=array.dtype) if square else 1

    def fill(self, value: Any) -> Any:
        """`value` with scratch arrays in place of storage-less ones."""
        if type(value) is MetaArray:
            return self.arrays[id(value)]
        if isinstance(value, np.ndarray) and self.mutates:
            return value.copy("K")
        if type(value) in (tuple, list):
            return type(value)(self.fill(v) for v in value)
        if type(value) is dict:
            return {k: self.fill(v) for k, v in value.items()}
        return value


def _zeros(m: MetaArray) -> Any:
    if m.contiguous:
        return np.zeros(m.shape, m.dtype)
    order = sorted(range(m.ndim), key=lambda i: -m.strides[i])
    packed = np.zeros([m.shape[i] for i in order], m.dtype)
    owned = np.empty_like(packed.transpose(inverse(order)), order="K")
    owned[...] = 0
    return owned


def _flat(array: Any) -> Any:
    """The memory of an owning array in any order, for views to be laid over."""
    return array if array.flags.c_contiguous else array.transpose(
        sorted(range(array.ndim), key=lambda i: -array.strides[i]))


def _root(m: MetaArray) -> MetaArray:
    return m if m.base is None else m.base


class _Operands(list[MetaArray]):
    """The storage-less operands of a call, and where each storage was first met."""

    def __init__(self) -> None:
        super().__init__()
        self.first: dict[int, int] = {}


def _signature(value: Any, metas: _Operands) -> Any:
    """What a call's effect on memory can depend on; collects the storage-less operands."""
    kind = type(value)
    if kind is MetaArray:
        metas.append(value)
        root = _root(value)
        first = metas.first.setdefault(id(root), len(metas) - 1)
        return ("m", first, value.shape, value.dtype, value.strides, value.offset, root.shape,
                root.strides, value is root, root is SCALAR)
    if kind in (tuple, list):
        return (kind, *[_signature(v, metas) for v in value])
    if kind is dict:
        return ("d", *[(k, _signature(v, metas)) for k, v in value.items()])
    if isinstance(value, np.ndarray):
        return ("a", value.shape, value.dtype, value.strides, hash(value.tobytes()))
    if kind is slice:
        return ("s", value.start, value.stop, value.step)
    if kind in (float, int, bool):
        return (kind, value)
    if kind is FunctionType and value.__closure__:
        return (value.__code__, *[_seen(c.cell_contents) for c in value.__closure__])
    try:
        hash(value)
    except TypeError:
        return (kind, repr(value))
    return value


def _seen(value: Any) -> Any:
    """What a closure holds: a tensor there is looked at for its shape only."""
    array = getattr(value, "array", None)
    if type(array) is MetaArray:
        return ("t", array.shape, array.dtype)
    return _signature(value, _Operands())


def _too_large(op: Any, args: tuple[Any, ...]) -> bool:
    if op is None:
        return False
    try:
        made = op.infer(*_avals(args), **args[2])
    except Exception:  # shapes that do not fit are told by the run itself
        return False
    made = made if type(made) in (tuple, list) else (made,)
    return sum(a.nbytes for a in made) > PROBE_BYTES or _cost(op, args) > PROBE_WORK


def _avals(args: tuple[Any, ...]) -> list[Any]:
    return [None if a is None else aval_of(a) for a in args[1]]


def _cost(op: Any, args: tuple[Any, ...]) -> float:
    try:
        return 0.0 if op is None else float(op.cost(*_avals(args), **args[2]))
    except Exception:  # a cost is advice: an op without one is judged by its bytes
        return 0.0


# ---------------------------------------------------------------------- without running
@functools.cache
def _space() -> Any:
    """Address space that costs nothing: views are laid out in it, nothing is read."""
    if sys.platform != "linux":
        return None
    try:
        return mmap.mmap(-1, _RESERVE, prot=mmap.PROT_READ,
                         flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE)
    except (OSError, ValueError):
        return None


def _viewed(op: Op, arrays: Sequence[Any], attrs: Mapping[str, Any],
            metas: list[MetaArray]) -> Program | None:
    """The program of a view op, from strides alone; None where it would have to copy."""
    x = arrays[0]
    space = _space()
    root = _root(x)
    if type(x) is not MetaArray or len(arrays) > 1 or space is None or root.nbytes >= _RESERVE:
        return None
    real = np.ndarray(x.shape, x.dtype, space, x.offset, x.strides)
    if op.name == "view" and not shows(x, op.infer(aval_of(x), **attrs).shape):
        return None
    before = alloc.live_and_peak()[0]
    alloc.reset_peak()
    out = op.impl(real, **attrs)
    most = alloc.live_and_peak()[1] - before
    start = np.ndarray((), np.uint8, space).__array_interface__["data"][0]

    def layout(o: Any) -> Layout:
        at = o.__array_interface__["data"][0] - start
        return Layout(0, o.shape, o.dtype, o.strides, at, False)
    many = out if type(out) in (tuple, list) else (out,)
    return Program((), most, tuple(layout(o) for o in many), True)


def shows(x: Any, shape: tuple[int, ...]) -> bool:
    """True if a view of `x` can have `shape`: every run of old axes that becomes a run of new ones
    must be evenly spaced.

    >>> shows(np.zeros((4, 6)), (2, 12)), shows(np.zeros((4, 6)).T, (2, 12))
    (True, False)
    """
    if not math.prod(shape):
        return True
    old = [(n, s) for n, s in zip(x.shape, x.strides, strict=True) if n != 1]
    new = [n for n in shape if n != 1]
    while old:
        size, wanted, run = old[0][0], new.pop(0), [old.pop(0)]
        while size != wanted:
            if size < wanted:
                run.append(old.pop(0))
                size *= run[-1][0]
            else:
                wanted *= new.pop(0)
        if any(a[1] != b[0] * b[1] for a, b in zip(run, run[1:], strict=False)):
            return False
    return True


def _from_smaller(op: Any, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
                  metas: list[MetaArray], otherwise: Callable[[], Any]) -> Program | None:
    """A program with the full-size results and the workspace of smaller calls; with no workspace
    where the call cannot be made smaller. None where not even the results are known."""
    outs, full = _outputs(op, args, otherwise)
    if not alloc.installed():
        return full
    points, found = [], None
    token = account.set(None)
    try:
        for limit in SIZES:
            small = Reduced(args, kwargs, metas, outs, limit, lambda a: _cost(op, a))
            operands = _Operands()
            _signature(small.args, operands)
            _signature(small.kwargs, operands)
            found = probe(fn, small.args, small.kwargs, operands)
            points.append((small.nbytes, found.most - _bytes(found.makes)))
    except MemoryError:
        raise
    except Exception:  # shapes that cannot be shortened this way: nothing is known then
        return full
    finally:
        account.reset(token)
        if alloc.stats().idle > IDLE_BYTES:
            alloc.empty_cache()
    assert found is not None
    most = line(points, sum(m.nbytes for m in {id(m): m for m in metas}.values()))
    if not found.makes and not outs:
        return Program((), most, found.results, False)
    grown = enlarged(found.makes, found.results, outs, Layout)
    if grown is None:
        return full and full._replace(most=full.most + most)
    return Program(grown[0], _bytes(grown[0]) + most, grown[1], False)


def _outputs(op: Any, args: tuple[Any, ...],
             otherwise: Callable[[], Any]) -> tuple[list[Any], Program | None]:
    """(storage-less results, the program that makes these and nothing else)."""
    token, books = rehearsal.set(None), account.set(None)
    try:
        if op is None:
            made = otherwise()
            many = list(made) if type(made) in (tuple, list) else [made]
            return [m for m in many if type(m) is MetaArray], None
        arrays = args[1] if op.prepare is None else op.prepare(args[1])
        outs = inferred(op, arrays, args[2])
    finally:
        rehearsal.reset(token)
        account.reset(books)
    if op.view:
        return list(outs), _assumed_view(outs)
    makes = tuple((o.shape, o.dtype, _order(o, arrays)) for o in outs)
    layouts = tuple(Layout(~i, o.shape, o.dtype, makes[i][2], 0, True)
                    for i, o in enumerate(outs))
    return list(outs), Program(makes, _bytes(makes), layouts, False)


def _assumed_view(outs: Sequence[MetaArray]) -> Program:
    """A reshape that the strides do not allow copies."""
    makes = tuple((o.shape, o.dtype, o.strides) for o in outs)
    return Program(makes, sum(max(o.nbytes, 1) for o in outs), tuple(
        Layout(~i, o.shape, o.dtype, o.strides, 0, True) for i, o in enumerate(outs)), True)


def _order(out: MetaArray, arrays: Sequence[Any]) -> tuple[int, ...]:
    """Strides of a new result: those of the operands where all full-sized ones share an order."""
    full = [a for a in arrays if type(a) is MetaArray and a.shape == out.shape]
    if not full or any(a.contiguous for a in full):
        return out.strides
    order = sorted(range(out.ndim), key=lambda i: -full[0].strides[i])
    strides, step = [0] * out.ndim, out.dtype.itemsize
    for i in reversed(order):
        strides[i] = step
        step *= max(out.shape[i], 1)
    return tuple(strides)
