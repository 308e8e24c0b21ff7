"""Calls of public functions, replayed: which ops a function runs on arguments of a kind.

Most of what a small op costs is its arguments: PyTorch's signatures have dims that count from
either end, sizes of which one may be left out, ints or tuples, keywords, `out=`. What comes of it
all depends on shapes, dtypes and the other arguments alone. A function that is `@planned` is
watched when it meets the same arguments for the second time: the ops that it runs become a plan,
and from then on machine code (`kernels/plans_ir.py`) finds the plan by the arguments and runs the
ops. A call that has no plan is the function itself, as without generated code.

A function may be planned if what it does follows from shapes, strides, dtypes, which tensors are
the same object and want a gradient, the gradient mode, and the arguments that are no tensors. It
must not write to its operands or read their elements (but to refuse what its ops refuse too); where
it draws random numbers or warns, it says so by `not_replayed()`.
"""
from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator, Mapping, Sequence
from struct import pack
from typing import Any

import numpy as np

from adjoint.base.aval import contiguous_strides
from adjoint.base.dtypes import DType, to_numpy
from adjoint.core.bind import remaking
from adjoint.core.modes import Observer
from adjoint.core.tensor import Tensor

MOST_VALUES = 64             # of a plan: operands and results
_CONSTANTS = (type(None), bool, int, float, str)
_FIXED = (*_CONSTANTS, type(Ellipsis), DType)


class Watch(Observer):
    """The ops that run while it is entered, and when their results are no longer held: a plan
    drops them at the same point, so that it needs no more memory."""

    def __init__(self, arguments: Sequence[Any]) -> None:
        self.fixed: list[Any] = []
        self.places: dict[int, int] = {}            # id of a living tensor -> place of the value
        self.dtypes: list[Any] = []
        for x in _leaves(arguments):
            if not isinstance(x, Tensor):
                self.fixed.append(x)
                self.dtypes += [to_numpy(x)] if isinstance(x, DType) else []
            elif id(x) not in self.places:
                self.places[id(x)] = len(self.places)
                self.dtypes.append(x.array.dtype)
        self.operands = self.count = len(self.places)
        self.used: set[int] = set()
        self.steps: list[tuple[Any, ...]] = []
        self.open = 0
        self.dropped: list[int] = []
        self.refs: list[Any] = []
        self.beyond = False

    def before(self, op: Any, args: Any, attrs: Any) -> None:
        found = self._sources(args)
        self.open += 1
        if found is None or self.open > 1 or not _is_fixed(tuple(attrs.values()), self.dtypes):
            self.beyond = True
            return
        sources, constants = found
        self.used.update(sources)
        self.steps.append((op, dict(attrs), _words(sources), constants,
                           op.own is None and not _thrifty(op, args), _words(self.dropped)))
        self.dropped = []

    def after(self, op: Any, args: Any, attrs: Any, made: Any, node: Any) -> None:
        self.open -= 1
        if not self.beyond:
            self.steps[-1] += (_places(op, args, made),)
        for t in made if type(made) is tuple else (made,):
            if id(t) in self.places:
                self.beyond = True                 # it wrote to an operand
            place, self.count = self.count, self.count + 1
            self.places[id(t)] = place
            self.refs.append(weakref.ref(t, functools.partial(self._gone, id(t), place)))

    def more_than_ops(self) -> None:
        self.beyond = True

    def _gone(self, key: int, place: int, ref: Any) -> None:
        """A value is no longer held."""
        if self.places.get(key) == place:
            del self.places[key]
        self.dropped.append(place)

    def _sources(self, args: Sequence[Any]) -> tuple[list[int], tuple[Any, ...]] | None:
        """Where an op's operands come from: places of values, -1, -2, ... for constants; and
        those. None where one is neither, or none is a value."""
        sources: list[int] = []
        constants: list[Any] = []
        for a in args:
            if isinstance(a, Tensor) and id(a) in self.places:
                sources.append(self.places[id(a)])
            elif type(a) in _CONSTANTS:
                constants.append(a)
                sources.append(-len(constants))
            else:
                return None
        return (sources, tuple(constants)) if any(s >= 0 for s in sources) else None

    def plan(self, result: Any) -> tuple[Any, ...] | None:
        """What to run in place of the function; None where that is more than ops on its operands
        and on what they gave."""
        answer, maker = _answer(result, self.places)
        self.used.update(answer)
        written = bool(self.steps) and any(i < self.operands for i in answer)      # out=
        if self.beyond or self.open or not answer or written or self.count > MOST_VALUES \
                or not self.used.issuperset(range(self.operands)):
            return None
        return tuple(self.steps), _words(answer), maker, (self.fixed, self.dtypes)


def _places(op: Any, args: Sequence[Any], made: Any) -> bytes | None:
    """Where in its operand the views lie that an op has made, as `kernels/views_ir.py` reads it:
    that follows from shape and strides, as the whole plan does. None where it made no views, or
    where that is not plain."""
    whole = args[0].array if op.view else None
    if type(whole) is not np.ndarray or not whole.size or (
            whole.flags.c_contiguous         # the key has no strides then: the ordinary ones
            and whole.strides != contiguous_strides(whole.shape, whole.itemsize)):
        return None
    views = made if type(made) is tuple else (made,)
    words = [len(views)]
    for t in views:
        view = t.array
        if (type(view) is not np.ndarray or view.dtype is not whole.dtype or not view.size
                or view.base is None or view.base is not whole and view.base is not whole.base
                or view.flags.writeable != whole.flags.writeable):
            return None
        start = view.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
        words += [start, view.ndim, *view.shape, *view.strides]
    return _words(words)


def _words(places: Sequence[int]) -> bytes:
    return pack(f"{len(places)}q", *places)


def _leaves(items: Sequence[Any]) -> Iterator[Any]:
    """The arguments, with those in lists, tuples and slices, in the order of the key."""
    for x in items:
        if isinstance(x, (list, tuple)):
            yield from _leaves(x)
        elif isinstance(x, slice):
            yield from _leaves((x.start, x.stop, x.step))
        else:
            yield x


def _is_fixed(value: Any, dtypes: Sequence[Any]) -> bool:
    """Whether an attribute is a constant that follows from the key: a dtype is if it is an
    operand's, where the default dtype might have been meant otherwise."""
    if isinstance(value, np.dtype):
        return value in dtypes
    if isinstance(value, (tuple, list)):
        return all(_is_fixed(v, dtypes) for v in value)
    if isinstance(value, slice):
        return _is_fixed((value.start, value.stop, value.step), dtypes)
    return type(value) in _FIXED


def _thrifty(op: Any, args: Sequence[Any]) -> bool:
    """Whether the op might keep something else than a large operand."""
    return op.thrift is not None and any(
        isinstance(a, Tensor) and a.array.nbytes >= remaking.least_bytes for a in args)


def _answer(result: Any, places: Mapping[int, int]) -> tuple[list[int], Any]:
    """The places of what the function returned, and what makes several of them one; no places
    where something else was returned."""
    kind = type(result)
    several = kind in (tuple, list) or hasattr(kind, "_fields")
    parts = list(result) if several else [result]
    if not all(isinstance(p, Tensor) and id(p) in places for p in parts):
        return [], None
    maker = None if not several else getattr(kind, "_make", kind)
    return [places[id(p)] for p in parts], maker
