"""Softmax and its kin: records and public functions. 16-bit floats are computed in float32."""
from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from adjoint.base.aval import Aval
from adjoint.base.dtypes import F32, F64
from adjoint.base.errors import Quiet
from adjoint.core.bind import bind
from adjoint.core.modes import warn
from adjoint.core.op import Op, op
from adjoint.ops.api_common import (
    cast_to,
    few,
    finish_same,
    narrowed,
    need,
    need_kernel,
    one_dim,
    row_blocks,
    wide,
)
from adjoint.ops.family import by_rows
from adjoint.ops.pointwise import exp, mul, neg, sub
from adjoint.ops.public import planned, public
from adjoint.ops.reduce import ADD, added, sum_op
from adjoint.ops.shape import reshape

MAXIMUM: Any = np.maximum      # typed loosely: the stubs know too few forms of reduce


def _added(x: Any, dim: int) -> Any:
    return ADD.reduce(x, -1, None, None, True) if dim == -1 else added(x, (dim,), True)


def _soft_along(x: Any, out: Any, dim: int, log: bool) -> Any:
    """Softmax along an axis, into `out`, or a new array where that is None."""
    out = np.subtract(x, MAXIMUM.reduce(x, dim, None, None, True), out)
    if log:
        out -= np.log(_added(np.exp(out), dim))
    else:
        np.exp(out, out)
        out /= _added(out, dim)
    return out


def _few(x: Any, log: bool, dim: int) -> Any:
    """Softmax of an array that is one block."""
    with Quiet():
        return _soft_along(x, None, dim, log)


@functools.cache
def _few_rows(log: bool, single: bool) -> Any:
    """The same along the last axis."""
    return by_rows(lambda x, _: _soft_along(x, None, -1, log), "matrix", "matrix",
                   F32 if single else F64, functools.partial(_few, log=log, dim=-1))


def _soft_rows(x: Any, out: Any, log: bool) -> None:
    """Softmax of the rows of a matrix, block by block."""
    for b in row_blocks(len(x), x.shape[-1] * x.itemsize):
        _soft_along(x[b], out[b], -1, log)


def _softmax_impl(log: bool) -> Any:
    def impl(x: Any, /, *, dim: int) -> Any:
        if few(x):
            if dim == x.ndim - 1:
                return _few_rows(log, x.dtype is F32)(x)
            return _few(x, log, dim)
        if not x.ndim:
            with Quiet():
                return _soft_along(x[None], None, 0, log)[0]
        if not x.size:
            return np.ones_like(x)
        w = wide(x)
        out = np.empty(w.shape, w.dtype)
        with Quiet():
            if dim == w.ndim - 1:
                n = w.shape[dim]
                _soft_rows(np.ascontiguousarray(w).reshape(-1, n), out.reshape(-1, n), log)
            else:
                _soft_along(w, out, dim, log)
        return narrowed(out, x.dtype)
    return impl


def _batch_dim(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
    x = args[0]
    if len(x.shape) == 1:
        return reshape(bind(op_, (reshape(x, (x.shape[0], 1)),), {"dim": 1}), (x.shape[0],))
    return bind(op_, args, {"dim": attrs["dim"] + 1})


def _along(dim: int, x: Any) -> tuple[int, ...]:
    return (dim,) if len(x.shape) else ()


def _backward_impl(log: bool) -> Any:
    def impl(ct: Any, out: Any, /, *, dim: int) -> Any:
        if not ct.ndim:
            return np.zeros_like(ct)
        c, o = wide(ct), wide(out)
        if log:
            grad = np.exp(o)
            grad *= added(c, (dim,), True)
            np.subtract(c, grad, grad)
        else:
            grad = c * o
            grad -= o * added(grad, (dim,), True)
        return narrowed(grad, ct.dtype)
    return impl


def _soft_rule(ct: Any, out: Any, dim: int) -> Any:
    product = mul(ct, out)
    return sub(product, mul(out, sum_op(product, dim=_along(dim, out), keepdim=True)))


def _log_rule(ct: Any, out: Any, dim: int) -> Any:
    return sub(ct, mul(exp(out), sum_op(ct, dim=_along(dim, out), keepdim=True)))


def _dsoft_out(ct: Any, g: Any, out: Any, dim: int) -> Any:
    """Cotangent of `out` in out·(g - Σ g·out)."""
    dims = _along(dim, out)
    inner = sum_op(mul(g, out), dim=dims, keepdim=True)
    carried = sum_op(mul(ct, out), dim=dims, keepdim=True)
    return sub(mul(ct, sub(g, inner)), mul(g, carried))


def _declare_backward(name: str, log: bool) -> Any:
    rule = _log_rule if log else _soft_rule
    raw = _backward_impl(log)

    def wrt_y(c: Any, g: Any, y: Any, dim: int) -> Any:
        if not log:
            return _dsoft_out(c, g, y, dim)
        total = sum_op(g, dim=_along(dim, y), keepdim=True)
        return neg(mul(mul(c, exp(y)), total))

    def wrt_g(c: Any, y: Any, dim: int) -> Any:
        if not log:
            return rule(c, y, dim)
        inner = sum_op(mul(c, exp(y)), dim=_along(dim, y), keepdim=True)
        return sub(c, inner)

    def y_tangent(t: Any, g: Any, y: Any, dim: int) -> Any:
        dims = _along(dim, y)
        if log:
            return neg(mul(mul(t, exp(y)), sum_op(g, dim=dims, keepdim=True)))
        moved = mul(t, sub(g, sum_op(mul(g, y), dim=dims, keepdim=True)))
        return sub(moved, mul(y, sum_op(mul(g, t), dim=dims, keepdim=True)))
    made = op(
        name, impl=lambda g, y, /, *, dim: raw(g, y, dim=dim),
        infer=lambda g, y, *, dim: Aval(g.shape, g.dtype),
        vjp={"g": lambda ct, y, *, dim: wrt_g(ct, y, dim),
             "y": lambda ct, g, y, *, dim: wrt_y(ct, g, y, dim)},
        jvp={"g": lambda t, y, *, dim: made(t, y, dim=dim),
             "y": lambda t, g, y, *, dim: y_tangent(t, g, y, dim)},
        batch=lambda op_, args, b, attrs: _lifted(rule, args, b, attrs["dim"]),
        cost=lambda g, y, *, dim: 4 * g.size)
    return made


def _lifted(rule: Any, args: Any, batched: Any, dim: int) -> Any:
    ct, out = (a if b else reshape(a, (1, *a.shape)) for a, b in zip(args, batched, strict=True))
    if max(len(ct.shape), len(out.shape)) == 1:
        return mul(mul(ct, out), 0.0)
    return rule(ct, out, dim + 1)


def _declare_softmax(name: str, log: bool, node: str, backward: Any) -> Any:
    return op(
        name, impl=_softmax_impl(log), infer=lambda x, *, dim: Aval(x.shape, x.dtype),
        vjp={"x": lambda ct, out, *, dim: backward(ct, out, dim=dim)},
        jvp={"x": lambda t, out, *, dim: sub(t, sum_op(mul(t, exp(out)), dim=_along(dim, out),
                                                       keepdim=True))
             if log else _soft_rule(t, out, dim)},
        batch=_batch_dim, cost=lambda x, **_: 25 * x.size, node=node,
        why={"out": "dx = ct - exp(out)·Σct" if log else "dx = out·(ct - Σ ct·out)"})


softmax_backward_op: Any = _declare_backward("softmax_backward", False)
log_softmax_backward_op: Any = _declare_backward("log_softmax_backward", True)
softmax_op: Any = _declare_softmax("softmax", False, "SoftmaxBackward0", softmax_backward_op)
log_softmax_op: Any = _declare_softmax("log_softmax", True, "LogSoftmaxBackward0",
                                  log_softmax_backward_op)


def _legacy_dim(ndim: int) -> int:
    return 0 if ndim in (0, 1, 3) else 1


def _prepared(name: str, input: Any, dim: Any, dtype: Any) -> tuple[Any, int]:
    need(name, input)
    if dtype is None:
        need_kernel(f"{name}_lastdim_kernel_impl", "biuc", input)
    x = cast_to(input, dtype) if dtype is not None else input
    return x, one_dim(x, dim)


def _chosen(name: str, x: Any, dim: Any) -> Any:
    """`dim`, or the axis that old programs mean where they give none."""
    if dim is not None or not hasattr(x, "shape"):
        return dim
    warn(f"Implicit dimension choice for {name} has been deprecated. Change the call to include "
         f"dim=X as an argument; it was taken as {_legacy_dim(len(x.shape))}.")
    return _legacy_dim(len(x.shape))


@public()
@planned
def softmax(input: Any, dim: Any, dtype: Any = None, *, out: Any = None) -> Any:
    """exp(x) / Σ exp(x) along `dim`, without overflow.

    >>> import adjoint as ad
    >>> ad.softmax(ad.zeros(2), 0)
    tensor([0.5000, 0.5000])
    """
    x, d = _prepared("softmax", input, dim, dtype)
    return finish_same(out, softmax_op(x, dim=d))


@public()
@planned
def log_softmax(input: Any, dim: Any, dtype: Any = None, *, out: Any = None) -> Any:
    """x - log Σ exp(x) along `dim`.

    >>> import adjoint as ad
    >>> ad.log_softmax(ad.zeros(2), 0)
    tensor([-0.6931, -0.6931])
    """
    x, d = _prepared("log_softmax", input, dim, dtype)
    return finish_same(out, log_softmax_op(x, dim=d))


def softmin(input: Any, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    """softmax(-x) along `dim`."""
    return softmax(neg(input), _chosen("softmin", input, dim), dtype)


def f_softmax(input: Any, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    """`softmax` with the arguments of `torch.nn.functional`."""
    return softmax(input, _chosen("softmax", input, dim), dtype)


def f_log_softmax(input: Any, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    """`log_softmax` with the arguments of `torch.nn.functional`."""
    return log_softmax(input, _chosen("log_softmax", input, dim), dtype)


__all__ = ["f_log_softmax", "f_softmax", "log_softmax", "softmax", "softmin"]
