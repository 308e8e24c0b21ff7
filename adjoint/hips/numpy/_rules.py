"""What rules of primitives are written with: tools on cotangents and tangents."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as onp

from adjoint.hips import numpy as np
from adjoint.hips.core import make_vjp
from adjoint.hips.extend import VSpace, defvjp, primitive, vspace
from adjoint.hips.space import SparseObject

F = Callable[..., Any]


def match_complex(target: Any, x: Any) -> Any:
    """x as a complex or a real value, as `target` is one."""
    want, have = np.iscomplexobj(target), np.iscomplexobj(x)
    if have and not want:
        return np.real(x)
    return x + 0j if want and not have else x


def unbroadcast(x: Any, target_meta: Any, broadcast_idx: int = 0) -> Any:
    """The sum of x over the axes along which a value with that `metadata` was repeated.

    broadcast_idx  where the further axes of x are (default: in front)
    """
    shape, ndim, _, iscomplex = target_meta
    while np.ndim(x) > ndim:
        x = np.sum(x, axis=broadcast_idx)
    for axis, n in enumerate(shape):
        if n == 1 and np.shape(x)[axis] != 1:
            x = np.sum(x, axis=axis, keepdims=True)
    return np.real(x) if np.iscomplexobj(x) and not iscomplex else x


def unbroadcast_f(target: Any, f: F) -> F:
    """The pull f, its result summed to the shape of `target`."""
    meta = np.metadata(target)
    return lambda g: unbroadcast(f(g), meta)


def broadcast(x: Any, target: Any) -> Any:
    """x repeated to the shape of `target`."""
    return match_complex(target, np.broadcast_to(x, np.shape(target)))


def repeat_to_match_shape(g: Any, shape: Any, dtype: Any, axis: Any, keepdims: bool
                          ) -> tuple[Any, Any]:
    """(g repeated along the axes of a reduction, the number of repeats)."""
    if not shape:
        return g, 1
    axes = tuple(range(len(shape))) if axis is None else axis if isinstance(axis, tuple) else (
        axis,)
    kept = [1 if i in {a % len(shape) for a in axes} else n for i, n in enumerate(shape)]
    repeats = onp.prod([shape[a] for a in axes])
    return np.broadcast_to(np.reshape(g, kept), shape), repeats


def balanced_eq(x: Any, z: Any, y: Any) -> Any:
    """1 where x is z alone, a half where y is z too, 0 elsewhere."""
    return (x == z) / (1.0 + (x == y))


def replace_zero(x: Any, val: Any) -> Any:
    """x, where it is zero `val`."""
    return np.where(x, x, val)


@primitive
def untake(x: Any, idx: Any, vs: VSpace) -> Any:
    """The cotangent of an array for that of the part at `idx`."""
    def mut_add(A: Any) -> Any:
        onp.add.at(A, idx, x)
        return A
    return SparseObject(vs, mut_add)


defvjp(untake, lambda ans, x, idx, vs: lambda g: g[idx], None, None)


def _zero_like(meta: Any) -> Any:
    return onp.zeros(meta[0], onp.result_type(meta[2], onp.float32) if onp.dtype(
        meta[2]).kind not in "fc" else meta[2])


def dot_adjoint_0(B: Any, G: Any, A_meta: Any, B_meta: Any) -> Any:
    """The cotangent of A in dot(A, B)."""
    return make_vjp(lambda a: np.dot(a, B), _zero_like(A_meta))[0](G)


def dot_adjoint_1(A: Any, G: Any, A_meta: Any, B_meta: Any) -> Any:
    """The cotangent of B in dot(A, B)."""
    return make_vjp(lambda b: np.dot(A, b), _zero_like(B_meta))[0](G)


def rule(name: str, argnum: int) -> F:
    """The rule `(ans, *args, **kwargs) -> pull` of a function of NumPy's in one argument."""
    def maker(ans: Any, *args: Any, **kwargs: Any) -> F:
        def at(x: Any) -> Any:
            return getattr(np, name)(*args[:argnum], x, *args[argnum + 1:], **kwargs)
        return make_vjp(at, args[argnum])[0]
    maker.__name__ = maker.__qualname__ = f"grad_{name}"
    return maker


__all__ = ["balanced_eq", "broadcast", "dot_adjoint_0", "dot_adjoint_1", "match_complex",
           "repeat_to_match_shape", "replace_zero", "rule", "unbroadcast",
           "unbroadcast_f", "untake", "vspace"]
