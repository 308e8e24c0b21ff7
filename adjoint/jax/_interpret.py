"""`jax.interpreters.ad`, `batching`, `mlir` and `xla`: how rules are given to primitives."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from adjoint.jax._array import ShapedArray, as_array
from adjoint.jax._primitive import (
    BATCHERS,
    FANCY_BATCHERS,
    JVPS,
    LOWERINGS,
    TRANSPOSES,
    Lowered,
    Primitive,
    UndefinedPrimal,
    Zero,
    instantiate_zeros,
    run_impl,
)

F = Callable[..., Any]
primitive_jvps, primitive_transposes, primitive_batchers = JVPS, TRANSPOSES, BATCHERS
fancy_primitive_batchers = axis_primitive_batchers = FANCY_BATCHERS
not_mapped = None


# ------------------------------------------------------------------ ad
def is_undefined_primal(x: Any) -> bool:
    """Is an argument of a transpose rule one that the operation is linear in?"""
    return type(x) is UndefinedPrimal


def add_tangents(x: Any, y: Any) -> Any:
    """The sum of two tangents."""
    return y if type(x) is Zero else x if type(y) is Zero else add_jaxvals(x, y)


def add_jaxvals(x: Any, y: Any) -> Any:
    """The sum of two arrays."""
    return as_array(x) + y


def zeros_like_aval(aval: Any) -> Any:
    """Zeros of a shape and dtype."""
    return instantiate_zeros(Zero(aval))


def get_primitive_transpose(p: Primitive) -> F:
    """The transpose rule; NotImplementedError where there is none."""
    if p not in TRANSPOSES:
        raise NotImplementedError("Transpose rule (for reverse-mode differentiation) for "
                                  f"'{p}' not implemented")
    return TRANSPOSES[p]


def _linear_jvp(p: Primitive, primals: Any, tangents: Any, **params: Any) -> Any:
    out = p.bind(*primals, **params)
    if all(type(t) is Zero for t in tangents):
        zeros = [Zero.from_primal_value(o) for o in (out if p.multiple_results else [out])]
        return out, zeros if p.multiple_results else zeros[0]
    return out, p.bind(*map(instantiate_zeros, tangents), **params)


def deflinear(primitive: Primitive, transpose_rule: F) -> None:
    """A linear primitive: `transpose_rule(ct, **params)` gives the arguments' cotangents."""
    deflinear2(primitive, lambda ct, *_, **params: transpose_rule(ct, **params))


def deflinear2(primitive: Primitive, transpose_rule: F) -> None:
    """The same, of a rule that is given the arguments, undefined, too."""
    JVPS[primitive] = partial(_linear_jvp, primitive)
    TRANSPOSES[primitive] = transpose_rule


def defbilinear(prim: Primitive, lhs_rule: F, rhs_rule: F) -> None:
    """A primitive that is linear in each of two arguments, with the transpose in each."""
    defjvp(prim, lambda g, x, y, **params: prim.bind(g, y, **params),
           lambda g, x, y, **params: prim.bind(x, g, **params))

    def rule(ct: Any, x: Any, y: Any, **params: Any) -> Any:
        if is_undefined_primal(x):
            return lhs_rule(ct, x, y, **params), None
        return None, rhs_rule(ct, x, y, **params)
    TRANSPOSES[prim] = rule


def _summed(p: Primitive, out: Any, shares: Sequence[Any]) -> Any:
    total: Any = Zero.from_primal_value(out)
    for s in shares:
        total = add_tangents(total, s)
    return out, total


def defjvp(primitive: Primitive, *jvprules: F | None) -> None:
    """One rule per argument: `rule(tangent, *primals, **params)`; None where it is zero."""
    def whole(primals: Any, tangents: Any, **params: Any) -> Any:
        out = primitive.bind(*primals, **params)
        return _summed(primitive, out, [r(t, *primals, **params) for r, t in zip(
            jvprules, tangents, strict=True) if r is not None and type(t) is not Zero])
    JVPS[primitive] = whole


def defjvp2(primitive: Primitive, *jvprules: F | None) -> None:
    """The same, of rules that are given the result after the tangent."""
    def whole(primals: Any, tangents: Any, **params: Any) -> Any:
        out = primitive.bind(*primals, **params)
        return _summed(primitive, out, [r(t, out, *primals, **params) for r, t in zip(
            jvprules, tangents, strict=True) if r is not None and type(t) is not Zero])
    JVPS[primitive] = whole


# ------------------------------------------------------------------ batching
def moveaxis(x: Any, src: Any, dst: Any) -> Any:
    """The axis at another place; nothing for None."""
    from adjoint.jax import numpy
    run: Any = numpy.moveaxis
    return x if src is None or src == dst else run(x, src, dst)


def broadcast(x: Any, sz: int, axis: int, *_: Any) -> Any:
    """The array with a new axis along which it repeats."""
    from adjoint.jax import numpy
    n: Any = numpy
    x = as_array(x)
    shape = list(x.shape)
    shape.insert(axis, sz)
    return n.broadcast_to(n.expand_dims(x, axis), shape)


def bdim_at_front(x: Any, bdim: Any, size: int, *_: Any) -> Any:
    """The array with the mapped axis in front, repeated where there is none."""
    return broadcast(x, size, 0) if bdim is None else moveaxis(x, bdim, 0)


def defvectorized(prim: Primitive) -> None:
    """A primitive that takes more axes as they are."""
    def rule(args: Any, dims: Any, **params: Any) -> Any:
        out = prim.bind(*args, **params)
        return out, [dims[0]] * len(out) if prim.multiple_results else dims[0]
    BATCHERS[prim] = rule


def defbroadcasting(prim: Primitive) -> None:
    """A primitive of arguments of one shape: those without the mapped axis get it."""
    def rule(args: Any, dims: Any, **params: Any) -> Any:
        size = next(x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)
        out = prim.bind(*[bdim_at_front(x, d, size) for x, d in zip(args, dims, strict=True)],
                        **params)
        return out, [0] * len(out) if prim.multiple_results else 0
    BATCHERS[prim] = rule


def defreducer(prim: Primitive, *_: Any) -> None:
    """A primitive with `axes=`, which it takes away."""
    def rule(args: Any, dims: Any, *, axes: Any, **params: Any) -> Any:
        x = moveaxis(args[0], dims[0], 0)
        return prim.bind(x, axes=tuple(int(a) + 1 for a in axes), **params), 0
    BATCHERS[prim] = rule


# ------------------------------------------------------------------ lowering
def lower_fun(fun: F, multiple_results: bool = True) -> Lowered:
    """The function as a lowering: under `jit` it runs."""
    return Lowered(fun)


def register_lowering(prim: Primitive, rule: Any = None, platform: Any = None, **_: Any) -> Any:
    """Keep a lowering; one made by `lower_fun` is what runs under `jit`."""
    if rule is None:
        return lambda r: register_lowering(prim, r, platform)
    if platform in (None, "cpu") and (platform or not isinstance(LOWERINGS.get(prim), Lowered)):
        LOWERINGS[prim] = rule
    return rule


def apply_primitive(prim: Primitive, *args: Any, **params: Any) -> Any:
    """The values of a primitive by its lowering."""
    if not isinstance(LOWERINGS.get(prim), Lowered):
        raise NotImplementedError(f"MLIR translation rule for primitive '{prim}' not found for "
                                  "platform cpu: register mlir.lower_fun(function) for it, for "
                                  "no program is compiled here")
    return LOWERINGS[prim].fun(*args, **params)


def unmapped_aval(size: int, axis: Any, aval: Any, *_: Any) -> Any:
    """The shape with an axis more."""
    if axis is None:
        return aval
    shape = list(aval.shape)
    shape.insert(axis, size)
    return ShapedArray(tuple(shape), aval.dtype, weak_type=aval.weak_type)


def mapped_aval(size: int, axis: Any, aval: Any) -> Any:
    """The shape without an axis."""
    if axis is None:
        return aval
    return ShapedArray(tuple(np.delete(aval.shape, axis).tolist()), aval.dtype,
                       weak_type=aval.weak_type)


__all__ = ["run_impl"]
