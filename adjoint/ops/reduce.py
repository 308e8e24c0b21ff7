"""Records of reductions. Every record takes `dim` as a tuple of axes in [0, ndim) and `keepdim`."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from adjoint.base.aval import Aval
from adjoint.base.dtypes import I64
from adjoint.base.errors import IndexOutOfRange
from adjoint.core.bind import bind
from adjoint.core.op import Op, op
from adjoint.ops.shape import expand_op, reshape

Shape = tuple[int, ...]


def reduced_shape(shape: Shape, dim: Shape, keepdim: bool) -> Shape:
    """`shape` with the axes of `dim` gone, or 1 where they are kept."""
    return tuple(1 if i in dim else n for i, n in enumerate(shape) if keepdim or i not in dim)


def batch_reduce(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
    """Batch rule of reductions: the axes move up by one."""
    return bind(op_, args, {**attrs, "dim": tuple(d + 1 for d in attrs["dim"])})


def spread(ct: Any, shape: Shape, dim: Shape, keepdim: bool = False) -> Any:
    """A reduced value, expanded to the shape that was reduced (a view)."""
    kept = tuple(1 if i in dim else n for i, n in enumerate(shape))
    return expand_op(ct if tuple(ct.shape) == kept else reshape(ct, kept), shape=shape)


def _sum_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return I64 if dtype.kind in "iub" else dtype


def _sum_impl(x: Any, /, *, dim: Shape, keepdim: bool) -> Any:
    if x.dtype.itemsize == 2 and x.dtype.kind in "fV":
        return np.add.reduce(x.astype(np.float32), axis=dim, keepdims=keepdim).astype(x.dtype)
    return np.add.reduce(x, axis=dim, keepdims=keepdim, dtype=_sum_dtype(x.dtype))


sum_op = op(
    "sum", impl=_sum_impl,
    infer=lambda x, *, dim, keepdim: Aval(reduced_shape(x.shape, dim, keepdim),
                                          _sum_dtype(x.dtype)),
    vjp={"x": lambda ct, x_aval, *, dim: spread(ct, x_aval.shape, dim)}, jvp={"x": None},
    batch=batch_reduce, cost=lambda x, **_: x.size)


def _mean_impl(x: Any, /, *, dim: Shape, keepdim: bool) -> Any:
    n = int(np.prod([x.shape[d] for d in dim], dtype=np.int64))
    total = _sum_impl(x, dim=dim, keepdim=keepdim)
    with np.errstate(all="ignore"):
        return np.true_divide(total, n, dtype=total.dtype) if total.dtype.kind != "V" else (
            total.astype(np.float32) / n).astype(total.dtype)


def _count(x: Aval, dim: Shape) -> int:
    return int(np.prod([x.shape[d] for d in dim], dtype=np.int64))


def _mean_vjp(ct: Any, x_aval: Aval, *, dim: Shape) -> Any:
    from adjoint.ops.pointwise import mul
    n = _count(x_aval, dim)
    return spread(mul(ct, 1.0 / n if n else float("nan")), x_aval.shape, dim)


mean_op = op(
    "mean", impl=_mean_impl,
    infer=lambda x, *, dim, keepdim: Aval(reduced_shape(x.shape, dim, keepdim), x.dtype),
    vjp={"x": _mean_vjp}, jvp={"x": None}, batch=batch_reduce, cost=lambda x, **_: x.size)


def no_zero_axis(name: str, x: Aval, dim: Shape) -> None:
    """A maximum of nothing has no value."""
    for d in dim:
        if x.shape[d] == 0:
            raise IndexOutOfRange(f"{name}(): Expected reduction dim {d} to have non-zero size, "
                                  f"the operand is {list(x.shape)}")


__all__ = ["batch_reduce", "mean_op", "no_zero_axis", "reduced_shape", "spread", "sum_op"]
