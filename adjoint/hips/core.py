"""`autograd.core`: the two products, on functions of one argument.

Cotangents of complex values follow df/dx - i df/dy, the conjugate of `adjoint.func`'s.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint.base.tree import flatten, tree_map, unflatten
from adjoint.core.tensor import Tensor, wrap
from adjoint.func import jvp as _jvp
from adjoint.func import vjp as _vjp
from adjoint.hips.box import Box, getval, isbox, leaves_of, lower, raised, tracing
from adjoint.hips.extend import (
    JVPNode,
    VJPNode,
    VSpace,
    def_linear,
    defjvp,
    defjvp_argnum,
    defjvp_argnums,
    defvjp,
    defvjp_argnum,
    defvjp_argnums,
    primitive,
    vspace,
)

F = Callable[..., Any]


def _on_tensors(fun: F) -> F:
    def run(x: Any) -> Any:
        with tracing():
            y = fun(_array(x))
        leaves, spec = flatten(lower(y))
        for v in leaves:
            if not isinstance(v, (Tensor, float, complex, np.ndarray, np.generic)):
                raise TypeError(f"Can't find vector space for value {v} of type {type(v)}. The "
                                "function must return floats, arrays, or trees of them")
        return unflatten([v if isinstance(v, Tensor) else wrap(np.asarray(v)) for v in leaves],
                         spec)
    return run


def _array(x: Any) -> Any:
    """A derivative: tensors as boxes or arrays."""
    return tree_map(raised, x)


def _conjugate(x: Any) -> Any:
    return tree_map(lambda t: t.conj() if t.is_complex() else t, x)


def _like(values: Any, points: Any) -> Any:
    """Cotangents or tangents as tensors in the dtype of their values."""
    leaves, spec = flatten(values)
    made = []
    for v, p in zip(leaves, flatten(points)[0], strict=True):
        t = v.tensor if isinstance(v, Box) else wrap(np.asarray(v))
        kind = p.array.dtype
        if t.is_complex() and kind.kind == "f":
            t = t.real
        t = t if t.array.dtype == kind else t.to(kind)
        made.append(t if tuple(t.shape) == tuple(p.shape) else t.expand(p.shape))
    return unflatten(made, spec)


def make_vjp(fun: F, x: Any) -> tuple[F, Any]:
    """(pull, value) at x: `pull(g)` is the cotangent of x."""
    value, pull = _vjp(_on_tensors(fun), leaves_of(x))

    def run(g: Any) -> Any:
        return _array(_conjugate(pull(_conjugate(_like(g, value)))[0]))
    return run, _array(value)


def make_jvp(fun: F, x: Any) -> F:
    """push at x: `push(v)` gives (value, tangent of the value)."""
    point = leaves_of(x)

    def run(v: Any) -> Any:
        value, tangent = _jvp(_on_tensors(fun), (point,), (_like(v, point),))
        return _array(value), _array(tangent)
    return run


__all__ = ["Box", "JVPNode", "VJPNode", "VSpace", "def_linear", "defjvp", "defjvp_argnum",
           "defjvp_argnums", "defvjp", "defvjp_argnum", "defvjp_argnums", "getval", "isbox",
           "make_jvp", "make_vjp", "primitive", "vspace"]
