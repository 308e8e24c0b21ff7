"""Products of `jax.lax`, and rounding to fewer bits."""
from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from adjoint.base.dtypes import is_inexact
from adjoint.func.rules import Rule, call_rule
from adjoint.jax._array import as_array, convert, joined, make
from adjoint.jax._dtypes import as_dtype
from adjoint.jax._table import T
from adjoint.jax._words import placed
from adjoint.jax.lax._precision import check


class DotDimensionNumbers(NamedTuple):
    """((contracted axes of both), (batch axes of both))."""

    contract: Any
    batch: Any


def dot_general(lhs: Any, rhs: Any, dimension_numbers: Any, precision: Any = None,
                preferred_element_type: Any = None, *, out_sharding: Any = None) -> Any:
    """Products summed over contracted axes: batch axes first, then the rest of both operands."""
    check(precision)
    placed("dot_general", out_sharding)
    (cl, cr), (bl, br) = ([[int(i) for i in v] for v in pair] for pair in dimension_numbers)
    x, y = as_array(lhs), as_array(rhs)
    _axes_agree(x, y, (cl, cr), (bl, br))
    kind = x.dtype
    if kind != y.dtype:
        (s, t), weak = joined("dot_general", (x, y))
        kind = s.array.dtype
    else:
        s, t, weak = x.tensor, y.tensor, x.weak_type and y.weak_type
    asked = _asked(kind, preferred_element_type)
    if kind != asked and (kind.kind in "biu" or asked.itemsize > kind.itemsize):
        kind = asked                        # before sums overflow or are rounded
        s, t = convert(s, kind), convert(t, kind)
    fl = [d for d in range(x.ndim) if d not in (*cl, *bl)]
    fr = [d for d in range(y.ndim) if d not in (*cr, *br)]
    batch, inner = [x.shape[d] for d in bl], math.prod(x.shape[d] for d in cl)
    left = s.permute(*bl, *fl, *cl).reshape((*batch, math.prod(x.shape[d] for d in fl), inner))
    right = t.permute(*br, *cr, *fr).reshape((*batch, inner, math.prod(y.shape[d] for d in fr)))
    found = T["matmul"](left, right) if is_inexact(kind) or kind.kind in "iu" else (
        T["matmul"](left.to(np.dtype(np.uint8)), right.to(np.dtype(np.uint8))) != 0)
    found = found.reshape((*batch, *[x.shape[d] for d in fl], *[y.shape[d] for d in fr]))
    out = found if preferred_element_type is None else convert(found,
                                                              as_dtype(preferred_element_type))
    return make(out, weak)


def _axes_agree(x: Any, y: Any, contracted: Any, batch: Any) -> None:
    """TypeError for axes that the operands lack, that are named twice, or that differ in size."""
    for side, a, c, b in zip(("lhs", "rhs"), (x, y), contracted, batch, strict=True):
        for what, axes in (("contracting", c), ("batch", b)):
            if len(set(axes)) != len(axes):
                raise TypeError(f"dot_general requires {side} {what} dimensions to be distinct, "
                                f"got {side}_{what} {tuple(axes)}.")
        if not all(0 <= d < a.ndim for d in (*c, *b)):
            raise TypeError(f"dot_general requires {side} dimension numbers to be nonnegative and "
                            f"less than the number of axes of the {side} value, got {side}_batch "
                            f"of {tuple(b)} and {side}_contracting of {tuple(c)} for {side} of "
                            f"rank {a.ndim}")
        if {*c} & {*b}:
            raise TypeError(f"dot_general requires {side} batch dimensions to be disjoint from "
                            f"contracting dimensions, got {side}_batch {tuple(b)} and "
                            f"{side}_contracting {tuple(c)}.")
    for words, (c, b) in (("contracting dimensions", contracted),
                          ("lhs batch dimensions and rhs batch dimensions", batch)):
        sizes = tuple(x.shape[i] for i in c), tuple(y.shape[i] for i in b)
        if sizes[0] != sizes[1]:
            raise TypeError(f"dot_general requires {words} to have the same shape, got "
                            f"{sizes[0]} and {sizes[1]}.")


def _asked(kind: Any, wanted: Any) -> Any:
    """The dtype that a product is wanted in. TypeError for one of fewer bits."""
    if wanted is None:
        return kind
    found = as_dtype(wanted)
    if kind.kind in "iu" and found.itemsize < kind.itemsize:
        raise TypeError("`preferred_element_type` must not be narrower than the original type, got "
                        f"preferred_element_type of {found.name} for result type of {kind.name}.")
    return found


def dot(lhs: Any, rhs: Any, *, dimension_numbers: Any = None, precision: Any = None,
        preferred_element_type: Any = None, out_sharding: Any = None) -> Any:
    """`jax.lax.dot`."""
    how = {"precision": precision, "preferred_element_type": preferred_element_type,
           "out_sharding": out_sharding}
    if dimension_numbers is not None:
        return dot_general(lhs, rhs, dimension_numbers, **how)
    x, y = as_array(lhs), as_array(rhs)
    if not (1 <= x.ndim <= 2 and 1 <= y.ndim <= 2 and x.shape[-1] == y.shape[0]):
        raise ValueError("jax.lax.dot: dimension_numbers must be specified when not performing "
                         "simple un-batched matrix-matrix, matrix-vector, or vector-vector "
                         f"products; got lhs_shape={x.shape} rhs_shape={y.shape}")
    return dot_general(x, y, (((x.ndim - 1,), (0,)), ((), ())), **how)


def batch_matmul(lhs: Any, rhs: Any, precision: Any = None) -> Any:
    """`jax.lax.batch_matmul`."""
    x, y = as_array(lhs), as_array(rhs)
    if x.ndim != y.ndim:
        raise ValueError("Arguments to batch_matmul must have same ndim, got "
                         f"{x.ndim}, {y.ndim}")
    n = tuple(range(max(x.ndim - 2, 0)))
    return dot_general(x, y, (((x.ndim - 1,), (y.ndim - 2,)), (n, n)), precision)


def reduce_precision(operand: Any, exponent_bits: int, mantissa_bits: int) -> Any:
    """Values rounded to so many bits of the mantissa, halves to even; what is below the smallest
    normal number of so many bits of the exponent is 0, what is above the largest is infinite. So
    are tangents and cotangents."""
    x = as_array(operand)
    if exponent_bits < 1 or mantissa_bits < 0:
        raise ValueError("reduce_precision: exponent_bits must be positive and mantissa_bits not "
                         f"negative, got {exponent_bits} and {mantissa_bits}")
    if not is_inexact(x.dtype):
        raise TypeError(f"reduce_precision does not accept dtype {x.dtype.name}. Accepted dtypes "
                        "are subtypes of floating.")

    def rounded(t: Any) -> Any:
        return None if t is None else call_rule(rule, (t,))[0]
    rule = Rule(lambda t: (_rounded(t, exponent_bits, mantissa_bits),),
                lambda primals, tangents: (rounded(tangents[0]),),
                lambda primals, cts: (rounded(cts[0]),))
    return make(rounded(x.tensor), x.weak_type)


def _rounded(given: Any, exponent_bits: int, mantissa_bits: int) -> Any:
    bias = 2 ** (exponent_bits - 1) - 1
    t = given.to(np.dtype(np.float64))
    part, exponent = T["frexp"](t)
    step = T["ldexp"](T["ones_like"](part), T["clamp"](exponent - 1 - mantissa_bits, -1000, 1000))
    y = T["round"](t / step) * step
    y = T["where"](T["isfinite"](t) & (t != 0), y, t)
    sign = T["copysign"](T["ones_like"](part), t)
    y = T["where"](abs(y) >= 2.0 ** min(bias + 1, 1023), sign * math.inf, y)
    y = T["where"](abs(y) < 2.0 ** max(1 - bias, -1074), sign * 0.0, y)
    return T["where"](T["isnan"](t), t, y).to(given.dtype)


NAMES = {f.__name__: f for f in (DotDimensionNumbers, dot_general, dot, batch_matmul,
                                 reduce_precision)}
__all__ = ["NAMES", "dot_general"]
