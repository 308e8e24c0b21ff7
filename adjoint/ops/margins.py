"""Records of losses that look at gaps between the classes of a row."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from adjoint.base.aval import Aval
from adjoint.core.op import op
from adjoint.core.tensor import Tensor
from adjoint.ops.api_common import dtype_of, is_recorded
from adjoint.ops.pointwise import mul
from adjoint.ops.public import FUNCTIONS
from adjoint.ops.reduce import sum_op
from adjoint.ops.shape import batch_loop, unsqueeze_op


def stopped(x: Any) -> Any:
    """`x` as a constant: no derivative passes."""
    return FUNCTIONS["detach"](x) if isinstance(x, Tensor) else x


def _slots(x: Any, target: Any) -> Iterator[tuple[Any, Any, Any]]:
    """One listed target of each row at a time: (rows that have one, its class, for these rows the
    gaps 1 - (x[target] - x[i]) to classes that are no targets; 0 elsewhere)."""
    listed = np.cumprod(target >= 0, axis=1).astype(bool)
    other = np.ones(x.shape, bool)
    every = np.arange(len(x))[:, None]
    other[np.broadcast_to(every, x.shape)[listed], target[listed]] = False
    for j in range(int(listed.sum(axis=1).max(initial=0))):
        rows = np.flatnonzero(listed[:, j])
        at = target[rows, j]
        gap = x[rows] - x[rows, at][:, None] + x.dtype.type(1)
        yield rows, at, np.where(other[rows], np.maximum(gap, 0), 0)


def _multilabel_impl(x: Any, target: Any, /) -> Any:
    total = np.zeros(len(x), x.dtype)
    for rows, _, gap in _slots(x, target):
        total[rows] += gap.sum(axis=1)
    return total


def _multilabel_slope(x: Any, target: Any, /) -> Any:
    slope = np.zeros_like(x)
    for rows, at, gap in _slots(x, target):
        slope[rows] += gap > 0
        slope[rows, at] -= np.count_nonzero(gap, axis=1)
    return slope


def _multilabel_domain() -> Any:
    rng = np.random.default_rng(0)
    targets = np.array([[2, 0, -1, 3], [-1, 1, 2, 0], [1, 2, 3, 0]])
    return [((rng.standard_normal((3, 4)), targets), {}), ((np.zeros((0, 4)), targets[:0]), {})]


multilabel_slope_op: Any = op(
    "multilabel_margin_slope", impl=_multilabel_slope, infer=lambda x, target: x,
    batch=batch_loop, domain=_multilabel_domain)
multilabel_op: Any = op(
    "multilabel_margin_loss", impl=_multilabel_impl,
    infer=lambda x, target: Aval(x.shape[:1], x.dtype),
    vjp={"x": lambda ct, x, target: mul(unsqueeze_op(ct, dim=1), multilabel_slope_op(x, target))},
    jvp={"x": lambda t, x, target: sum_op(mul(t, multilabel_slope_op(x, target)), dim=(1,),
                                          keepdim=False)},
    batch=batch_loop, node="MultilabelMarginLossBackward0", domain=_multilabel_domain,
    why={"x": "which gaps are open", "target": "between which classes they are"})


def _margin_gaps(x: Any, target: Any, margin: float) -> Any:
    """Of each row max(0, margin - x[target] + x[i]), 0 at the target."""
    at = (np.arange(len(x)), target)
    gap = x - x[at][:, None] + x.dtype.type(margin)
    gap[at] = 0
    return np.where(gap > 0, gap, 0)


def _margin_impl(x: Any, target: Any, /, *, margin: float) -> Any:
    return _margin_gaps(x, target, margin).sum(1) / x.dtype.type(x.shape[1])


def _margin_pull(ct: Any, x: Any, target: Any, /, *, margin: float) -> Any:
    hit = _margin_gaps(x, target, margin) > 0
    g = ct / x.dtype.type(x.shape[1])
    out = np.where(hit, g[:, None], 0)
    out[np.arange(len(x)), target] = -(np.count_nonzero(hit, axis=1).astype(x.dtype) * g)
    return out


def _margin_vjp(ct: Any, x: Any, target: Any, *, margin: float) -> Any:
    """Linear in ct, and constant in x but at kinks."""
    if not is_recorded(ct, x):
        return _margin_kernel(ct, x, target, margin=margin)
    one = np.ones(tuple(x.shape[:1]), dtype_of(x))
    return mul(unsqueeze_op(ct, dim=1), _margin_kernel(one, stopped(x), target, margin=margin))


def _margin_jvp(t: Any, x: Any, target: Any, *, margin: float) -> Any:
    one = np.ones(tuple(x.shape[:1]), dtype_of(x))
    slope = _margin_kernel(one, stopped(x), target, margin=margin)
    return sum_op(mul(t, slope), dim=(1,), keepdim=False)


_margin_kernel: Any = op(
    "multi_margin_backward", impl=_margin_pull, infer=lambda ct, x, target, *, margin: x,
    batch=batch_loop, domain=lambda: [((np.array([1.0, 2.0]), np.array([
        [0.1, 0.7, -0.2], [0.4, 0.3, 2.0]]), np.array([1, 0])), {"margin": 0.5})])
multi_margin_op: Any = op(
    "multi_margin", impl=_margin_impl, infer=lambda x, target, *, margin: Aval(
        x.shape[:1], x.dtype),
    vjp={"x": _margin_vjp}, jvp={"x": _margin_jvp}, batch=batch_loop,
    node="MultiMarginLossBackward0", cost=lambda x, *_, **__: 4 * x.size,
    domain=lambda: [((np.array([[0.1, 0.7, -0.2], [0.4, 0.3, 2.0]]), np.array([1, 0])),
                     {"margin": 0.5})],
    why={"x": "which gaps are open", "target": "from which class they are"})
