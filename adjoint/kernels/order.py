"""In which order of axes the result of a pointwise op lies in memory.

The operands decide, the first one first: an axis along which it takes larger steps is walked more
slowly. Where an operand says nothing about two axes (it is repeated along one of them) the next is
asked, and where none says anything the axes stay as they are. NumPy asks all operands at once and
prefers C order where they disagree.
"""
from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from adjoint.base.aval import order_by

ndarray = np.ndarray


def broadcast_strides(a: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of `a` broadcast to `shape` (0 along the axes it is repeated over)."""
    return _spread(a.shape, a.strides, len(shape))


def _spread(own: tuple[int, ...], strides: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return (0,) * (rank - len(own)) + tuple(0 if size == 1 else s
                                            for size, s in zip(own, strides, strict=True))


def walking_order(arrays: Sequence[Any], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Axes from slowest to fastest; None for C order.

    >>> a = np.zeros((5, 10, 4))
    >>> walking_order([a.transpose(2, 1, 0), np.zeros((4, 10, 5))], (4, 10, 5))
    (2, 1, 0)
    >>> walking_order([np.zeros((10, 1)), np.zeros((5, 10)).T], (10, 5))
    (1, 0)
    """
    if all([a.flags.c_contiguous for a in arrays]):
        return None
    return _order(shape, tuple([(a.shape, a.strides) for a in arrays]))


@functools.lru_cache(4096)
def _order(shape: tuple[int, ...], operands: tuple[tuple[Any, Any], ...]
           ) -> tuple[int, ...] | None:
    """`walking_order` of operands of these shapes and strides."""
    return order_by(shape, tuple([_spread(own, strides, len(shape)) for own, strides in operands]))


def empty(shape: tuple[int, ...], order: tuple[int, ...] | None, dtype: Any) -> Any:
    """An array whose axes lie in memory in this order, from slowest to fastest."""
    if order is None:
        return np.empty(shape, dtype)
    inverse = sorted(range(len(order)), key=order.__getitem__)
    return np.empty([shape[i] for i in order], dtype).transpose(inverse)


def ordered(out: Any, arrays: Sequence[Any]) -> Any:
    """`out`, computed of `arrays` element by element, or a copy of it that lies as they say."""
    if type(out) is tuple:
        return tuple([ordered(o, arrays) for o in out])
    if type(out) is not ndarray or out.ndim < 2 or not out.size:
        return out
    steps = out.strides
    for a in arrays:
        if type(a) is not ndarray or a.strides != steps:
            break
    else:
        if 0 not in steps:                    # as most operands in another order are
            return out
    present = [a for a in arrays if type(a) is ndarray and a.ndim]
    order = _order(out.shape, tuple([(a.shape, a.strides) for a in present]))
    if _lies(out.shape, steps, out.itemsize, order):
        return out
    made = empty(out.shape, order, out.dtype)
    made[...] = out
    return made


@functools.lru_cache(4096)
def _lies(shape: tuple[int, ...], strides: tuple[int, ...], step: int,
          order: tuple[int, ...] | None) -> bool:
    """Whether the axes lie in memory in this order, without gaps."""
    for axis in reversed(order or range(len(shape))):
        if shape[axis] > 1 and strides[axis] != step:
            return False
        step *= shape[axis]
    return True
