"""Calls that are too large to be tried: their workspace, read off the same call on smaller arrays.

Long axes are shortened, equal ones equally, and orders and gaps of strides are kept, so that the
same code runs. Two sizes give the workspace as a line over the bytes of the operands: flat for most
kernels, where a call needs tables or nothing at all besides its results.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adjoint.base.aval import MetaArray

SIZES = (2 << 20, 8 << 20)     # bytes that the operands are brought under
SHORT, SHORTEST = 256, 16      # axes are not made shorter than this; where there are very many
# operands (an optimizer's), than that


class Reduced:
    """A call's arguments with every long axis shortened until `limit` bytes hold the operands, and
    the results (of the full shapes `outs`), and `work(args)` is no more than a few hundred million
    operations."""

    def __init__(self, args: Any, kwargs: Any, metas: Sequence[MetaArray],
                 outs: Sequence[MetaArray], limit: int, work: Callable[[Any], float]) -> None:
        self.lengths = {n: n for m in (*metas, *outs) for n in m.shape if n > SHORT}
        self._made: dict[int, MetaArray] = {}
        floor = SHORT
        while True:
            self._made.clear()
            self.args, self.kwargs = self._of(args), self._of(kwargs)
            self.nbytes = sum(m.nbytes for m in self._made.values())
            made = sum(math.prod(self._shape(o.shape)) * o.dtype.itemsize for o in outs)
            if max(self.nbytes, made) <= limit and work(self.args) <= 4e8:
                break
            longest = max(self.lengths.values(), default=0)
            if longest <= SHORT and self.nbytes > 4 * limit:
                floor = SHORTEST
            if longest <= floor:
                break
            shorter = max(floor, (longest // 2 + 15) // 16 * 16)
            self.lengths = {n: shorter if to == longest else to
                            for n, to in self.lengths.items()}

    def _of(self, value: Any) -> Any:
        kind = type(value)
        if kind is MetaArray:
            found = self._made.get(id(value))
            if found is None:
                found = self._made[id(value)] = self._array(value)
            return found
        if isinstance(value, np.ndarray):
            shape = self._shape(value.shape)
            return value if shape == value.shape else np.zeros(shape, value.dtype)
        if kind is int:
            return self.lengths.get(value, value)
        if kind in (tuple, list):
            return kind(self._of(v) for v in value)
        if kind is dict:
            return {k: self._of(v) for k, v in value.items()}
        return value

    def _shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return tuple(self.lengths.get(n, n) for n in shape)

    def _array(self, m: MetaArray) -> MetaArray:
        shape = self._shape(m.shape)
        if m.base is None and m.contiguous:
            return MetaArray(shape, m.dtype)
        strides, before, now = [0] * m.ndim, m.dtype.itemsize, m.dtype.itemsize
        for i in sorted(range(m.ndim), key=lambda i: (m.strides[i], -i)):
            if m.strides[i]:
                now *= max(1, m.strides[i] // before)
                strides[i] = now
                before, now = m.strides[i] * m.shape[i], now * shape[i]
        root = MetaArray((max(now // m.dtype.itemsize, 1),), m.dtype)
        return MetaArray(shape, m.dtype, root, tuple(strides))


def line(points: Sequence[tuple[int, int]], at: int) -> int:
    """The value at `at` of the line through two (bytes of operands, workspace) points.

    >>> line([(10, 5), (20, 5)], 1000), line([(10, 5), (20, 15)], 30)
    (5, 25)
    """
    (x, y), (u, v) = points
    return v if u == x else max(0, v + (v - y) * (at - u) // (u - x))


def enlarged(makes: Sequence[Any], results: Any, outs: Sequence[Any], layout: Any) -> Any:
    """(makes, results) of the full-size call, from those of a reduced one: the same storages in
    the same orders, of the full shapes `outs`. None where a result is not a storage of its own,
    or a storage is not what its results show."""
    flat = results if isinstance(results, (tuple, list)) else [results]
    if len(flat) != len(outs):
        return None
    members: dict[int, list[int]] = {}
    for i, r in enumerate(flat):
        if isinstance(r, layout) and r.offset >= 0:
            if r.root >= 0:
                return None
            members.setdefault(~r.root, []).append(i)
    described: list[Any] = list(flat)
    full: list[Any] = []
    for number, shown in members.items():
        shown.sort(key=lambda i: flat[i].offset)
        whole = math.prod(makes[number][0])
        times, rest = divmod(whole, max(1, sum(math.prod(flat[i].shape) for i in shown)))
        if rest or not times or (times > 1 and (len(shown) > 1 or flat[shown[0]].offset)):
            return None
        offset = 0
        for i in shown:
            out, strides = outs[i], _ordered(outs[i], flat[i].strides)
            described[i] = layout(~len(full), out.shape, out.dtype, strides, offset, flat[i].same)
            offset += out.nbytes
        one, dtype = len(shown) == 1 and times == 1, makes[number][1]
        full.append((outs[shown[0]].shape if one else (times * offset // dtype.itemsize,), dtype,
                     described[shown[0]].strides if one else (dtype.itemsize,)))
    kind = type(results)
    return tuple(full), kind(described) if kind in (tuple, list) else described[0]


def _ordered(out: Any, like: Sequence[int]) -> tuple[int, ...]:
    """Strides of a dense array of `out`'s shape whose axes follow each other as in `like`."""
    strides, step = [0] * len(out.shape), out.dtype.itemsize
    for i in sorted(range(len(out.shape)), key=lambda i: (like[i], -i)):
        strides[i] = step
        step *= max(out.shape[i], 1)
    return tuple(strides)
