"""What ops and backward rules will ask the allocator for, before they are known."""
from __future__ import annotations

import time
from typing import Any

import numpy as np

from adjoint.base.aval import Aval, MetaArray, aval_of
from adjoint.core.tensor import Tensor


def asked(error: Any) -> int:
    """Bytes of the request that NumPy was refused."""
    try:
        shape, dtype = error.args
        return int(np.prod(shape, dtype=np.int64)) * int(dtype.itemsize)
    except (AttributeError, TypeError, ValueError):
        return 0


def plain(values: Any) -> bool:
    """Whether these are arrays and tensors with memory, outside of transforms."""
    for v in values:
        if isinstance(v, Tensor):
            if v.level or type(v.array) is not np.ndarray:
                return False
        elif isinstance(v, MetaArray):
            return False
    return True


class Kind:
    """What an op or a node is known by from one step to the next: its name and what it reads.

    about  the op, or the plan of the node
    shape  of an op: shape and dtype of each operand, None for what has none; of a node: those of
           its cotangents, and of each residual that is looked after
    need   the most bytes that one asked for; None before the first has run
    gap    the most that the program made by itself until the next op
    """

    __slots__ = ("name", "about", "shape", "need", "gap")

    def __init__(self, name: str, about: Any, shape: Any) -> None:
        self.name, self.about, self.shape = name, about, shape
        self.need: int | None = None
        self.gap = 0

    def fits(self, op: Any, args: Any) -> bool:
        """Whether an op on these operands is of this kind."""
        if op is not self.about or len(args) != len(self.shape):
            return False
        for a, known in zip(args, self.shape, strict=True):
            array = a
            if isinstance(a, Tensor):
                if a.level:
                    return False
                array = a.array
            elif not isinstance(a, np.ndarray):
                array = None
            if array is None or known is None:
                if array is not known:
                    return False
            elif array.shape != known[0] or array.dtype is not known[1]:
                return False
        return True


class Running:
    """The op or node that runs: its kind, and what was live and when as it began."""

    __slots__ = ("kind", "start", "other", "begun", "seconds", "held", "storages")

    def __init__(self, kind: Kind, start: int, known: int) -> None:
        self.kind, self.start, self.other = kind, start, start - known
        self.begun, self.seconds = time.perf_counter(), 0.0
        self.held: Any = None
        self.storages: list[Any] | None = None


class Kinds:
    """The kinds that a program has met."""

    def __init__(self) -> None:
        self._met: dict[Any, Kind] = {}

    def of_op(self, op: Any, args: Any, likely: Kind | None) -> Kind:
        """The kind of an op on these operands; `likely` is tried first."""
        if likely is not None and likely.fits(op, args):
            return likely
        return self._find(op.name, op, tuple([_shape(a) for a in args]))

    def of_node(self, node: Any, handles: Any, likely: Kind | None) -> Kind:
        """The kind of a node with these residuals."""
        shape = (node.shape if node.ports else tuple(node.shape or ()),
                 tuple([h.shape for h in handles]))
        if likely is not None and node.plan is not None and likely.about is node.plan and (
                likely.shape == shape):
            return likely
        return self._find(node.name(), node.plan, shape)

    def _find(self, name: str, about: Any, shape: Any) -> Kind:
        found = self._met.get((name, shape))
        if found is None:
            found = self._met[name, shape] = Kind(name, about, shape)
        return found


def _shape(a: Any) -> Any:
    if isinstance(a, Tensor):
        return tuple(a.shape), a.array.dtype if not a.level else None
    return (a.shape, a.dtype) if isinstance(a, np.ndarray) else None


def guess(op: Any, args: Any, attrs: Any) -> int:
    """Bytes an op will ask for, before it was ever seen: those of its results."""
    if op.view or not plain(args):
        return 0
    try:
        arrays = [a.array if isinstance(a, Tensor) else a for a in args]
        if op.prepare is not None:
            arrays = op.prepare(arrays)
        made = op.infer(*(None if a is None else aval_of(a) for a in arrays), **attrs)
    except Exception:  # the op itself will say what is wrong with its operands
        return 0
    return sum(_size(a) for a in (made if type(made) in (tuple, list) else (made,)))


def _size(a: Aval) -> int:
    return int(np.prod(a.shape, dtype=np.int64)) * int(a.dtype.itemsize)


def guess_backward(node: Any) -> int:
    """Bytes the rules of a node will ask for: a cotangent per operand, and one more."""
    sizes = [0]
    for e in node.edges:
        if e is not None and e.shape is not None and not getattr(e, "ports", 0):
            sizes.append(8 * int(np.prod(tuple(e.shape), dtype=np.int64)) // 2)
    return sum(sizes) + max(sizes)


def recordable(args: Any, made: Any) -> bool:
    """Whether a record can hold an op: it reads and makes memory, and wrote to nothing."""
    if not (plain(args) and plain(made)):
        return False
    for t in made:
        for a in args:
            if t is a:
                return False
    return True
