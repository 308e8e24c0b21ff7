"""Records of reductions. Every record takes `dim` as a tuple of axes in [0, ndim) and `keepdim`."""
from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from adjoint.base.aval import Aval
from adjoint.base.dtypes import F32, F64, I64
from adjoint.base.errors import ArgumentError, IndexOutOfRange
from adjoint.core.bind import bind
from adjoint.core.op import Op, op
from adjoint.ops.api_common import few
from adjoint.ops.family import by_rows
from adjoint.ops.shape import expand_op, expanded, reshape, reshape_op

Shape = tuple[int, ...]
ndarray = np.ndarray
ADD: Any = np.add              # typed loosely: the stubs know too few forms of reduce


def reduced_shape(shape: Shape, dim: Shape, keepdim: bool) -> Shape:
    """`shape` with the axes of `dim` gone, or 1 where they are kept."""
    return tuple(1 if i in dim else n for i, n in enumerate(shape) if keepdim or i not in dim)


def batch_reduce(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
    """Batch rule of reductions: the axes move up by one."""
    return bind(op_, args, {**attrs, "dim": tuple(d + 1 for d in attrs["dim"])})


def kept(ct: Any, shape: Shape, dim: Shape) -> Any:
    """A reduced value with the axes that are gone back, of size 1 (a view)."""
    wanted = tuple([1 if i in dim else n for i, n in enumerate(shape)])
    if type(ct) is ndarray:
        return ct.reshape(wanted)
    return ct if tuple(ct.shape) == wanted else reshape_op(ct, shape=wanted)


def spread(ct: Any, shape: Shape, dim: Shape, keepdim: bool = False) -> Any:
    """A reduced value, expanded to the shape that was reduced (a view)."""
    if len(ct.shape):                        # (a scalar has all of its axes in front)
        ct = kept(ct, shape, dim)
    return expanded(ct, shape=shape) if type(ct) is ndarray else expand_op(ct, shape=shape)


def beside(ct: Any, shape: Shape, dim: Shape) -> Any:
    """A reduced value, as it broadcasts against the shape that was reduced."""
    return kept(ct, shape, dim) if len(ct.shape) else ct


_LONG = 1024     # terms from which on a running total in float32 loses more than its last place


def _pairwise(x: Any, dim: Shape) -> bool:
    """Whether NumPy adds up in pairs: along the axis that it walks innermost."""
    if len(dim) == x.ndim:
        return bool(x.flags.forc) or x.ndim == 1
    steps = [abs(s) for s, n in zip(x.strides, x.shape, strict=True) if n > 1]
    return len(dim) == 1 and bool(steps) and abs(x.strides[dim[0]]) == min(steps) \
        and steps.count(min(steps)) == 1


def added(x: Any, dim: Shape, keepdim: bool = False) -> Any:
    """NumPy's sum of floats. Elsewhere than along the innermost axis it adds row to row, and a
    float32 total of many terms stands still in the end: those run in float64."""
    single = x.dtype is F32 or x.dtype == np.complex64
    if single and math.prod([x.shape[d] for d in dim]) >= _LONG and not _pairwise(x, dim):
        double = np.complex128 if x.dtype.kind == "c" else np.float64
        return ADD.reduce(x, dim, double, None, keepdim).astype(x.dtype)
    return ADD.reduce(x, dim, None, None, keepdim)


def paired(pattern: str, a: Any, b: Any) -> Any:
    """`np.einsum` of a sum of products of floats: of many float32 in float64."""
    if a.dtype is F32 and a.size >= _LONG:
        return np.einsum(pattern, a, b, dtype=np.float64).astype(F32)
    return np.einsum(pattern, a, b)


def total(x: Any, dim: Shape, keepdim: bool = False) -> Any:
    """The sum of an array as the record computes it: by its kernel where that pays."""
    return np.asarray(sum_op.op.impl(x, dim=dim, keepdim=keepdim))


def _sum_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return I64 if dtype.kind in "iub" else dtype


@cache
def _few_rows(f: Any, single: bool, keepdim: bool, mean: bool) -> Any:
    """The reduction of few elements along the last axis, or its quotient by their number."""
    def rows(x: Any, width: Any) -> Any:
        total = f.reduce(x, -1, None, None, True)
        return total / width if mean else total

    def otherwise(x: Any) -> Any:
        total = f.reduce(x, -1, None, None, keepdim)
        return np.asarray(total / x.dtype.type(x.shape[-1]) if mean else total)
    return by_rows(rows, "matrix", "kept" if keepdim else "lead", F32 if single else F64, otherwise)


def few_reduced(f: Any, x: Any, dim: Shape, keepdim: bool, mean: bool = False) -> Any:
    """`f.reduce` of few floats along the last axis, or of all of them; None of others."""
    if dim and dim[-1] == x.ndim - 1 and few(x):
        if len(dim) == 1:
            return _few_rows(f, x.dtype is F32, keepdim, mean)(x)
        if len(dim) == x.ndim and not keepdim:
            return _few_rows(f, x.dtype is F32, False, mean)(x.reshape(-1))
    return None


def c_order(out: Any) -> Any:
    """What a reduction gives, in C order: NumPy leaves the axes in the order of the operand's."""
    return out if out.ndim < 2 or out.flags.c_contiguous else np.ascontiguousarray(out)


def _sum_impl(x: Any, /, *, dim: Shape, keepdim: bool) -> Any:
    if x.dtype is F32 or x.dtype is F64:
        found = few_reduced(ADD, x, dim, keepdim)
        if found is None:
            found = added(x, dim, keepdim)
        return found if found.ndim < 2 else c_order(found)
    if x.dtype.itemsize == 2 and x.dtype.kind in "fV":
        return c_order(added(x.astype(F32), dim, keepdim).astype(x.dtype))
    if x.dtype.kind == "c":
        return c_order(added(x, dim, keepdim))
    return c_order(ADD.reduce(x, axis=dim, keepdims=keepdim, dtype=_sum_dtype(x.dtype)))


def _declare_sum(name: str, node: str) -> Any:
    return op(
        name, show="Σ {x}", impl=_sum_impl, node=node,
        infer=lambda x, *, dim, keepdim: Aval(reduced_shape(x.shape, dim, keepdim),
                                              _sum_dtype(x.dtype)),
        vjp={"x": lambda ct, x_aval, *, dim: spread(ct, x_aval.shape, dim)}, jvp={"x": None},
        batch=batch_reduce, cost=lambda x, **_: x.size)


sum_op: Any = _declare_sum("sum", "SumBackward1")
sum_all_op: Any = _declare_sum("sum_all", "SumBackward0")


def _mean_impl(x: Any, /, *, dim: Shape, keepdim: bool) -> Any:
    found = few_reduced(ADD, x, dim, keepdim, mean=True)
    if found is not None:
        return found
    n = math.prod([x.shape[d] for d in dim])
    if x.dtype.itemsize == 2 and x.dtype.kind in "fV":      # (a sum may leave the range of float16)
        wide = added(x.astype(F32), dim, keepdim)
        return c_order((wide / np.float32(n or np.nan)).astype(x.dtype))
    total = _sum_impl(x, dim=dim, keepdim=keepdim)
    if n and (x.dtype is F32 or x.dtype is F64):
        return total / total.dtype.type(n)
    return np.true_divide(total, n or np.nan, dtype=total.dtype)


def _count(x: Aval, dim: Shape) -> int:
    return math.prod([x.shape[d] for d in dim])


def _mean_vjp(ct: Any, x_aval: Aval, *, dim: Shape) -> Any:
    from adjoint.ops.pointwise import mul
    n = _count(x_aval, dim)
    return spread(mul(ct, 1.0 / n if n else float("nan")), x_aval.shape, dim)


def _declare_mean(name: str, node: str) -> Any:
    return op(
        name, show="mean {x}", impl=_mean_impl, node=node,
        infer=lambda x, *, dim, keepdim: Aval(reduced_shape(x.shape, dim, keepdim), x.dtype),
        vjp={"x": _mean_vjp}, jvp={"x": None}, batch=batch_reduce, cost=lambda x, **_: x.size)


mean_op: Any = _declare_mean("mean", "MeanBackward1")
mean_all_op: Any = _declare_mean("mean_all", "MeanBackward0")


class EmptyAxis(IndexOutOfRange, ArgumentError):
    """An axis of no elements, or of none at all, where one with elements is needed; PyTorch
    raises now IndexError, now RuntimeError, so this is both."""


def no_zero_axis(name: str, x: Aval, dim: Shape) -> None:
    """A maximum of nothing has no value."""
    for d in dim:
        if x.shape[d] == 0:
            raise EmptyAxis(f"{name.removesuffix('_dim')}(): Expected reduction dim {d} to have "
                            f"non-zero size. The operand is {list(x.shape)}")


# ------------------------------------------------------------------ extreme values
def axis_of(dim: Shape) -> Any:
    """`dim` as NumPy takes it: one int where there is one axis."""
    return dim[0] if len(dim) == 1 else dim


def _extreme_infer(name: str) -> Any:
    def infer(x: Aval, *, dim: Shape, keepdim: bool) -> Aval:
        no_zero_axis(name, x, dim)
        return Aval(reduced_shape(x.shape, dim, keepdim), x.dtype)
    return infer


def _ties(x: Any, out: Any, dim: Shape) -> Any:
    """1/k at the k places of `x` that hold the extreme value, 0 elsewhere; nan equals nan."""
    from adjoint.ops.pointwise import div
    mask, count = _tied(x, out, dim)
    return div(mask, count)


def _tied(x: Any, out: Any, dim: Shape) -> tuple[Any, Any]:
    """1 at the places of `x` that hold the extreme value, 0 elsewhere; and how many there are."""
    from adjoint.ops.pointwise import cast, tied
    full = beside(out, tuple(x.shape), dim)
    mask = cast(tied(x, full), dtype=dtype_of(x))
    return mask, sum_op(mask, dim=dim, keepdim=len(full.shape) > 0)


def dtype_of(x: Any) -> np.dtype[Any]:
    """The NumPy dtype of a tensor or an array."""
    return getattr(x.dtype, "dtype", x.dtype)


def _extreme_vjp(ct: Any, x: Any, out: Any, *, dim: Shape) -> Any:
    from adjoint.ops.pointwise import div, mul
    mask, count = _tied(x, out, dim)
    return mul(div(beside(ct, tuple(x.shape), dim), count), mask)


def _extreme_jvp(t: Any, x: Any, out: Any, *, dim: Shape, keepdim: bool) -> Any:
    from adjoint.ops.pointwise import mul
    return sum_op(mul(t, _ties(x, out, dim)), dim=dim, keepdim=keepdim)


def _declare_extreme(name: str, f: Any, node: str) -> Any:
    def impl(x: Any, /, *, dim: Shape, keepdim: bool) -> Any:
        found = few_reduced(f, x, dim, keepdim)
        return c_order(f.reduce(x, axis=dim, keepdims=keepdim)) if found is None else found
    return op(
        name, impl=impl,
        infer=_extreme_infer(name), vjp={"x": _extreme_vjp}, jvp={"x": _extreme_jvp},
        batch=batch_reduce, cost=lambda x, **_: x.size, node=node,
        why={"x": "which places hold the extreme value", "out": "the extreme value"})


amax_op: Any = _declare_extreme("amax", np.maximum, "AmaxBackward0")
amin_op: Any = _declare_extreme("amin", np.minimum, "AminBackward0")
max_all_op: Any = _declare_extreme("max_all", np.maximum, "MaxBackward1")
min_all_op: Any = _declare_extreme("min_all", np.minimum, "MinBackward1")


def _pick_impl(f: Any, extreme: Any) -> Any:
    def impl(x: Any, /, *, dim: int, keepdim: bool) -> Any:
        if not x.ndim:
            return np.array(x), np.zeros((), np.int64)
        at = f(x, dim, None, keepdims=keepdim)
        if x.dtype.kind in "fiub" and x.dtype.itemsize > 2:      # nan comes first in both
            values = extreme.reduce(x, dim, None, None, keepdim)
            if type(at) is np.ndarray:
                return c_order(values), c_order(at)
            return np.asarray(values), np.asarray(at)
        where = at if keepdim else np.expand_dims(at, dim)
        values = np.take_along_axis(x, where, dim)
        return c_order(values if keepdim else values.squeeze(dim)), c_order(at)
    return impl


def _pick_infer(name: str) -> Any:
    def infer(x: Aval, *, dim: int, keepdim: bool) -> tuple[Aval, Aval]:
        if x.ndim:
            no_zero_axis(name, x, (dim,))
        shape = reduced_shape(x.shape, (dim,), keepdim)
        return Aval(shape, x.dtype), Aval(shape, I64)
    return infer


def picked_vjp(cts: Any, indices: Any, x_aval: Aval, *, dim: int, keepdim: bool) -> Any:
    """The cotangent of `values`, put to the places that were picked."""
    from adjoint.ops.gather import put_along_op
    from adjoint.ops.shape import unsqueeze_op
    if not x_aval.ndim:
        return cts[0]
    ct = cts[0] if keepdim else unsqueeze_op(cts[0], dim=dim)
    at = indices if keepdim else unsqueeze_op(indices, dim=dim)
    return put_along_op(ct, at, dim=dim, shape=x_aval.shape)


def picked_jvp(t: Any, indices: Any, x_aval: Aval, *, dim: int, keepdim: bool) -> Any:
    """The tangent at the places that were picked."""
    from adjoint.ops.gather import gather_op
    from adjoint.ops.shape import squeeze_op, unsqueeze_op
    if not x_aval.ndim:
        return t, None
    at = indices if keepdim else unsqueeze_op(indices, dim=dim)
    out = gather_op(t, at, dim=dim)
    return (out if keepdim else squeeze_op(out, dims=(dim,))), None


def _batch_dim(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
    if len(args[0].shape) == 1:                       # examples are numbers
        x = reshape(args[0], (args[0].shape[0], 1))
        return bind(op_, (x,), {**attrs, "dim": 1, "keepdim": False})
    return bind(op_, args, {**attrs, "dim": attrs["dim"] + 1})


def _declare_pick(name: str, f: Any, extreme: Any, node: str) -> Any:
    return op(
        name, impl=_pick_impl(f, extreme), infer=_pick_infer(name), outs=("values", "indices"),
        differentiable=("values",), vjp={"x": picked_vjp}, jvp={"x": picked_jvp},
        batch=_batch_dim, cost=lambda x, **_: x.size, node=node,
        why={"indices": "the gradient goes to the places that were picked"})


max_dim_op: Any = _declare_pick("max_dim", np.argmax, np.maximum, "MaxBackward0")
min_dim_op: Any = _declare_pick("min_dim", np.argmin, np.minimum, "MinBackward0")


def _declare_arg(name: str, f: Any) -> Any:
    def impl(x: Any, /, *, dim: int | None, keepdim: bool) -> Any:
        if not x.ndim:
            return np.zeros((), np.int64)
        if dim is None:
            flat = np.asarray(f(x))
            return flat.reshape((1,) * x.ndim) if keepdim else flat
        return np.asarray(f(x, dim, None, keepdims=keepdim))

    def infer(x: Aval, *, dim: int | None, keepdim: bool) -> Aval:
        dims = tuple(range(x.ndim)) if dim is None else (dim,)
        if x.ndim:
            no_zero_axis(name, x, dims)
        return Aval(reduced_shape(x.shape, dims, keepdim), I64)

    def batch(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
        x, dim, rank = args[0], attrs["dim"], len(args[0].shape) - 1
        if dim is not None and rank:
            return bind(op_, (x,), {**attrs, "dim": dim + 1})
        out = bind(op_, (reshape(x, (x.shape[0], -1)),), {"dim": 1, "keepdim": False})
        return reshape(out, (x.shape[0], *(1,) * rank)) if attrs["keepdim"] else out
    return op(name, impl=impl, infer=infer, batch=batch, cost=lambda x, **_: x.size)


argmax_op: Any = _declare_arg("argmax", np.argmax)
argmin_op: Any = _declare_arg("argmin", np.argmin)


def _truth(name: str, f: Any) -> Any:
    return op(
        name, impl=lambda x, /, *, dim, keepdim: c_order(np.asarray(
            f(x, axis=dim, keepdims=keepdim))).astype(_truth_dtype(x.dtype), copy=False),
        infer=lambda x, *, dim, keepdim: Aval(reduced_shape(x.shape, dim, keepdim),
                                              _truth_dtype(x.dtype)),
        batch=batch_reduce, cost=lambda x, **_: x.size)


def _truth_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype if dtype == np.uint8 else np.dtype(bool)


all_op, any_op = _truth("all", np.all), _truth("any", np.any)
count_nonzero_op: Any = op(
    "count_nonzero", impl=lambda x, /, *, dim, keepdim: c_order(np.asarray(
        np.count_nonzero(x, axis=dim, keepdims=keepdim))).astype(np.int64),
    infer=lambda x, *, dim, keepdim: Aval(reduced_shape(x.shape, dim, keepdim), I64),
    batch=batch_reduce, cost=lambda x, **_: x.size)
__all__ = ["EmptyAxis", "all_op", "amax_op", "amin_op", "any_op", "argmax_op", "argmin_op",
           "axis_of", "batch_reduce", "c_order", "count_nonzero_op", "dtype_of", "max_all_op",
           "max_dim_op", "mean_all_op", "mean_op", "min_all_op", "min_dim_op", "no_zero_axis",
           "reduced_shape", "spread", "sum_all_op", "sum_op"]
