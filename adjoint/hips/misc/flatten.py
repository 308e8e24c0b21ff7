"""`autograd.misc.flatten`: trees of arrays as one vector and back."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from adjoint.base.tree import flatten as _leaves
from adjoint.base.tree import unflatten as _rebuild
from adjoint.hips import numpy as np


def _sorted(x: Any) -> Any:
    """The tree with the keys of its dicts in order."""
    if isinstance(x, dict):
        return type(x)((k, _sorted(x[k])) for k in sorted(x))
    if type(x) in (list, tuple):
        return type(x)(map(_sorted, x))
    return x


def _in(kind: Any, part: Any) -> Any:
    """A float array in the dtype of the one of a container whose place it takes (None: any)."""
    if kind is None or not kind.kind == part.dtype.kind == "f":
        return part
    return part if kind == part.dtype else part.astype(kind)


def flatten(value: Any) -> tuple[Any, Callable[[Any], Any]]:
    """(vector, unflatten): the arrays of nested tuples, lists and dicts (keys in sorted order) in
    one vector, and the function that puts a vector in their place. Both are differentiable.

    >>> vector, back = flatten({"b": [1.0, 2.0], "a": 3.0})
    >>> vector
    array([3., 1., 2.])
    """
    leaves, spec = _leaves(value)
    order = _leaves(_sorted(_rebuild(range(len(leaves)), spec)))[0]
    shapes = [np.shape(v) for v in leaves]
    kinds = [None if v is value else np.result_type(v) for v in leaves]
    vector = np.concatenate([np.ravel(leaves[i]) for i in order]) if leaves else np.array([])

    def unflatten(v: Any) -> Any:
        parts, at = list(leaves), 0
        for i in order:
            size = math.prod(shapes[i])
            parts[i] = _in(kinds[i], np.reshape(v[at:at + size], shapes[i]))
            at += size
        return _rebuild(parts, spec)
    return vector, unflatten


def flatten_func(func: Callable[..., Any], example: Any) -> tuple[Any, Any, Any]:
    """(function of vectors, unflatten, the example as a vector) of a function of a tree."""
    vector, unflatten = flatten(example)

    def flat(v: Any, *args: Any, **kwargs: Any) -> Any:
        return flatten(func(unflatten(v), *args, **kwargs))[0]
    return flat, unflatten, vector


__all__ = ["flatten", "flatten_func"]
