"""`jax.scipy.ndimage`: arrays read between their entries."""
from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from adjoint.base.errors import missing as _missing
from adjoint.jax import numpy as _jnp

_n: Any = _jnp


def _mirrored(at: Any, size: int) -> Any:
    turn = 2 * (size - 1)
    return _n.abs((at + size - 1) % turn - (size - 1)) if turn else at * 0


_FOLDS: dict[str, Any] = {
    "constant": lambda at, size: at, "nearest": lambda at, size: _n.clip(at, 0, size - 1),
    "wrap": lambda at, size: at % size, "mirror": _mirrored,
    "reflect": lambda at, size: _mirrored(2 * at + 1, 2 * size + 1) // 2}


def map_coordinates(input: Any, coordinates: Sequence[Any], order: int, mode: str = "constant",
                    cval: Any = 0.0) -> Any:
    """Values at coordinates, one array per axis: of the nearest entry (order 0) or linear between
    entries (1); outside as `mode` says: "constant", "nearest", "wrap", "mirror", "reflect".

    >>> from adjoint.jax import numpy as jnp
    >>> map_coordinates(jnp.arange(4.0), [jnp.array([0.5, 2.25])], 1)
    Array([0.5 , 2.25], dtype=float32)
    """
    x, places = _n.asarray(input), [_n.asarray(c) for c in coordinates]
    if len(places) != x.ndim:
        raise ValueError("coordinates must be a sequence of length input.ndim, but "
                         f"{len(places)} != {x.ndim}")
    if mode not in _FOLDS:
        raise NotImplementedError("jax.scipy.ndimage.map_coordinates does not yet support mode "
                                  f"{mode}. Currently supported modes are {set(_FOLDS)}.")
    if order not in (0, 1):
        raise NotImplementedError("jax.scipy.ndimage.map_coordinates currently requires order<=1")
    whole = x.dtype.kind in "iub"
    sides: list[list[Any]] = []
    for c, size in zip(places, x.shape, strict=True):
        c = c if c.dtype.kind == "f" else c.astype(float)
        if order == 0:
            ends = [(_n.round(c).astype(int), None)]
        else:
            low = _n.floor(c)
            part = c - low
            ends = [(low.astype(int), 1 - part), (low.astype(int) + 1, part)]
        sides.append([(_FOLDS[mode](at, size), (at >= 0) & (at < size), w) for at, w in ends])
    total: Any = 0.0
    for corner in itertools.product(*sides):
        value = x[tuple(_n.clip(at, 0, size - 1) for (at, _, _), size in zip(
            corner, x.shape, strict=True))]
        if mode == "constant":
            for _, inside, _ in corner:
                value = _n.where(inside, value, _n.asarray(cval).astype(x.dtype))
        for _, _, w in corner:
            value = value if w is None else value * w
        total = value if isinstance(total, float) else total + value
    return (_n.round(total) if whole and order else total).astype(x.dtype)


__all__ = ["map_coordinates"]
__getattr__ = _missing("adjoint.jax.scipy.ndimage")
