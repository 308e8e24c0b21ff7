"""Rows by index: gather, and its transpose, scatter-add.

The scatter sorts the indices (stably) and gives each distinct row to one chunk, which adds up the
rows that go there in their order: no locks, and the same bits for any number of threads.
"""
from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjoint.kernels import rows
from adjoint.kernels.ir import Value
from adjoint.kernels.rows import Rows

Array = NDArray[Any]


def _gather(k: Rows) -> None:
    """weight, index, out."""
    f = k.f
    weight, index, outs = (k.frame.array(i) for i in range(3))

    def row(r: Value) -> None:
        source = k.row(weight, f.load(f.at(index, "i64", r), "i64"))
        out = k.row(outs, r)
        k.map(lambda j, m, _: k.store(k.load(source, j, m), out, j, m))
    k.each(row)


def _scatter(k: Rows) -> None:
    """ct, order, starts (one more than distinct rows), targets, out; a row is a distinct one."""
    f = k.f
    cts, order, starts, targets, outs = (k.frame.array(i) for i in range(5))

    def row(r: Value) -> None:
        first = f.load(f.at(starts, "i64", r), "i64")
        last = f.load(f.at(starts, "i64", r + 1), "i64")
        out = k.row(outs, f.load(f.at(targets, "i64", r), "i64"))

        def write(j: Value, m: Value | None, _: bool) -> None:
            def add(i: Value, carried: list[Value]) -> list[Value]:
                source = k.row(cts, f.load(f.at(order, "i64", i), "i64"))
                return [carried[0] + k.load(source, j, m)]
            total, = f.loop(first, last, 1, [f.const(k.ty, 0.0)], add)
            k.store(total, out, j, m)
        k.map(write)
    k.each(row)


def _fits(index: Array, count: int) -> bool:
    if not rows.plain(index) or index.dtype != np.int64 or index.size == 0:
        return False
    return int(index.min()) >= 0 and int(index.max()) < count




def embedding(weight: Array, index: Array) -> Any:
    """weight[index] for C-contiguous (V, D) weight and int64 indices: (*index.shape, D).

    NotImplemented where dtypes or strides do not fit or an index is out of range (negative ones
    count as out of range).

    >>> r = embedding(np.arange(6, dtype=np.float32).reshape(3, 2), np.array([2, 0]))
    >>> r is NotImplemented or r.tolist() == [[4.0, 5.0], [0.0, 1.0]]
    True
    """
    if not rows.plain(weight) or weight.ndim != 2 or not _fits(index, weight.shape[0]):
        return NotImplemented
    columns = weight.shape[1]
    entry = rows.compiled(_gather, "embedding", weight.dtype, 3) if columns else None
    if entry is None:
        return NotImplemented
    out = np.empty((*index.shape, columns), weight.dtype)
    address = rows.row_geometry(index.size, columns, weight.itemsize)[1]
    entry(rows.run_address(), address, weight, index, out)
    return out


def embedding_backward(ct: Array, index: Array, count: int, *,
                       padding_idx: int | None = None) -> Any:
    """Zeros (count, D) with the rows of `ct` (*index.shape, D) added at `index`.

    Row `padding_idx` stays 0. NotImplemented like `embedding`.

    >>> r = embedding_backward(np.ones((3, 2), np.float32), np.array([1, 1, 0]), 3)
    >>> r is NotImplemented or r.tolist() == [[1.0, 1.0], [2.0, 2.0], [0.0, 0.0]]
    True
    """
    if not rows.plain(ct) or not _fits(index, count) or ct.shape[:-1] != index.shape:
        return NotImplemented
    columns = ct.shape[-1]
    entry = rows.compiled(_scatter, "embedding_backward", ct.dtype, 5) if columns else None
    if entry is None:
        return NotImplemented
    flat = index.reshape(-1)
    order = np.argsort(flat, kind="stable")
    ordered = flat[order]
    edges = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    starts = np.concatenate(([0], edges, [flat.size]))
    targets = ordered[starts[:-1]]
    out = np.zeros((count, columns), ct.dtype)
    address = rows.row_geometry(len(targets), columns, ct.itemsize)[1]
    entry(rows.run_address(), address, ct, order, starts, targets, out)
    if padding_idx is not None:
        out[padding_idx] = 0
    return out
