"""The one place that fits a cotangent to the operand it belongs to: undoes broadcasting, takes
the real part for a real operand, casts to the operand's dtype."""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.base.aval import MetaArray
from adjoint.base.errors import ShapeError
from adjoint.core.modes import GRAD, state
from adjoint.core.rehearsal import call
from adjoint.core.tensor import AccumulateGrad, Tensor
from adjoint.core.trace import LevelArray
from adjoint.ops.pointwise import cast, real_part
from adjoint.ops.reduce import sum_op
from adjoint.ops.shape import reshape


def axes_to_sum(shape: tuple[int, ...], target: tuple[int, ...]) -> tuple[int, ...]:
    """The axes along which `target` is repeated in `shape`: those it lacks, those of size 1."""
    lead = len(shape) - len(target)
    if lead < 0 or any(n != m and m != 1 for n, m in zip(shape[lead:], target, strict=True)):
        raise ShapeError(f"a cotangent of shape {list(shape)} does not fit an operand of shape "
                         f"{list(target)}")
    return (*range(lead), *[i for i, m in enumerate(target, lead) if m == 1 and shape[i] != 1])


def fit(ct: Any, edge: Any) -> Any:
    """A raw cotangent, fitted to the shape and dtype that `edge` carries."""
    if isinstance(ct, Tensor):
        return fit_tensor(ct, edge)
    shape = edge.shape if type(edge.shape) is tuple else tuple(edge.shape)
    if ct.shape != shape:
        axes = axes_to_sum(ct.shape, shape)
        ct = _summed(ct, axes, shape) if type(ct) is not MetaArray else call(
            _summed, ct, axes, shape, otherwise=lambda: MetaArray(shape, ct.dtype))
    dtype = edge.dtype or edge.plan.dtype
    if ct.dtype is not dtype and ct.dtype != dtype:
        if type(ct) is MetaArray:
            return call(_converted, ct, dtype, otherwise=lambda: MetaArray(ct.shape, dtype))
        ct = _converted(ct, dtype)
    return ct


def _summed(ct: Any, axes: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    total = np.asarray(sum_op.op.impl(ct, dim=axes, keepdim=False))
    return total if total.shape == shape else total.reshape(shape)


def _converted(ct: Any, dtype: Any) -> Any:
    return (ct.real if ct.dtype.kind == "c" and dtype.kind != "c" else ct).astype(dtype)


def fit_tensor(ct: Any, edge: Any) -> Any:
    """A cotangent that is a tensor, fitted by ops so that the graph goes on."""
    array, shape, dtype = ct.array, tuple(edge.shape), edge.dtype or edge.plan.dtype
    if array.shape == shape and array.dtype is dtype and type(array) in (np.ndarray, LevelArray):
        return ct
    if ct.is_sparse and type(edge) is not AccumulateGrad:
        ct = ct.to_dense()                   # only a leaf takes a sparse gradient
        if not state() & GRAD:
            return ct.array
    if (have := tuple(ct.shape)) != shape:
        ct = sum_op(ct, dim=axes_to_sum(have, shape), keepdim=False)
        ct = ct if tuple(ct.shape) == shape else reshape(ct, shape)
    if ct.dtype.dtype != dtype:
        if ct.dtype.is_complex and dtype.kind != "c":
            ct = real_part(ct)
        if ct.dtype.dtype != dtype:
            ct = cast(ct, dtype=dtype)
    return ct
