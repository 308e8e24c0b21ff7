"""`autograd.misc.flatten`: trees of arrays as one vector and back."""
from __future__ import annotations

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


def flatten(value: Any) -> tuple[Any, Callable[[Any], Any]]:
    """(vector, unflatten): the arrays of nested tuples, lists and dicts (keys in sorted order) in
    one vector, and the function that puts a vector in their place. Both are differentiable.

    >>> vector, back = flatten({"b": [1.0, 2.0], "a": 3.0})
    >>> vector
    array([3., 1., 2.])
    """
    leaves, spec = _leaves(_sorted(value))
    shapes = [np.shape(v) for v in leaves]
    sizes = [np.size(v) for v in leaves]
    vector = np.concatenate([np.ravel(v) for v in leaves]) if leaves else np.array([])

    def unflatten(v: Any) -> Any:
        parts, at = [], 0
        for shape, size in zip(shapes, sizes, strict=True):
            parts.append(np.reshape(v[at:at + size], shape))
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
