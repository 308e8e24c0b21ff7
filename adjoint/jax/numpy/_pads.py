"""Pads that are made of an array's values: by a function, turned round the edges, by statistics."""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.core.tensor import wrap
from adjoint.jax._array import Array, as_array, make, moves
from adjoint.jax._host import computed
from adjoint.jax._table import T


def pad_by(func: Any, x: Any, widths: Any, kwargs: dict[str, Any]) -> Any:
    """An array whose pads a function fills, axis after axis."""
    from adjoint.jax.numpy._select import NAMES as selections
    for d in range(x.ndim):
        pair = tuple(int(w) for w in widths[d])
        x = selections["apply_along_axis"](func, d, x, pair, d, kwargs)
    return x


def pad_odd(x: Any, widths: Any) -> Any:
    """Reflections at the edges with their values too, turned round the edges' values: each is a sum
    of entries, the same of every vector."""
    t = x.tensor
    for d, (low, high) in enumerate(widths):
        run: Any = np.pad
        by = run(np.eye(t.shape[d]), ((low, high), (0, 0)), "symmetric", reflect_type="odd")
        t = T["movedim"](T["tensordot"](wrap(by.astype(x.dtype)), t, ([1], [d])), 0, d)
    return make(t, x.weak_type)


def pad_with_numbers(x: Array, width: Any, mode: str, ends: Any, length: Any = None) -> Any:
    """Pads with what NumPy makes of the values; axis by axis where a derivative is taken."""
    if not moves(x.tensor) or mode == "empty":
        extra = {"end_values": ends} if mode == "linear_ramp" else {} if mode == "empty" else {
            "stat_length": length}
        run: Any = np.pad
        return make(*computed(lambda v: [run(v, width, mode, **extra).astype(x.dtype)], x.tensor))
    t, n = x.tensor, x.ndim
    widths, bounds, lengths = (np.broadcast_to(np.asarray(v, object), (n, 2))
                               for v in (width, ends, length))
    for d in range(n):
        parts = [t]
        for side in (0, 1):
            count, size = int(widths[d, side]), t.shape[d]
            if mode == "linear_ramp":
                edge = T["narrow"](t, d, 0 if side == 0 else size - 1, 1)
                steps = (np.arange(count) / max(count, 1))[::-1 if side else 1]
                way = wrap(steps.reshape([-1 if k == d else 1 for k in range(n)]).astype(x.dtype))
                more = bounds[d, side] + (edge - bounds[d, side]) * way
            else:
                some = size if lengths[d, side] is None else min(int(lengths[d, side]), size)
                rows = T["narrow"](t, d, 0 if side == 0 else size - some, some)
                one = as_array(_STATISTICS[mode](make(rows), d)).tensor
                more = T["broadcast_to"](one, tuple(count if k == d else m
                                                    for k, m in enumerate(t.shape)))
            parts.insert(0 if side == 0 else len(parts), more)
        t = T["cat"](parts, d)
    return make(t)


def _statistic(name: str) -> Any:
    def run(rows: Any, axis: int) -> Any:
        from adjoint.jax.numpy._reduce import NAMES as reductions
        return reductions[name](rows, axis, keepdims=True)
    return run


_STATISTICS = {mode: _statistic(name) for mode, name in (
    ("maximum", "max"), ("minimum", "min"), ("mean", "mean"), ("median", "median"))}


__all__ = ["pad_by", "pad_odd", "pad_with_numbers"]
