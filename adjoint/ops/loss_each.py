"""Losses of each element: pointwise records, and the same with the reduction inside."""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.kernels.expr import abs_, exp_, log1p_, log_, maximum_, sqrt_, where_
from adjoint.ops.family import pointwise
from adjoint.ops.reduced import reduced_op

mse_op = pointwise("mse_loss_each", lambda x, y: (x - y) * (x - y), node="MseLossBackward0")
l1_op = pointwise("l1_loss", lambda gap: abs_(gap), node="AbsBackward0")


def _within(gap: Any, limit: Any, most: Any, inner: Any) -> Any:
    return where_(gap >= limit, most, where_(gap <= -limit, -most, inner))


smooth_l1_op = pointwise("smooth_l1_loss_each", lambda x, y, *, beta: where_(
    abs_(x - y) < beta, 0.5 * (x - y) * (x - y) / beta, abs_(x - y) - 0.5 * beta),
    node="SmoothL1LossBackward0", slope={
        "x": lambda x, y, *, beta: _within(x - y, beta, 1.0, (x - y) / beta),
        "y": lambda x, y, *, beta: _within(y - x, beta, 1.0, (y - x) / beta)})
huber_op = pointwise("huber_loss_each", lambda x, y, *, delta: where_(
    abs_(x - y) <= delta, 0.5 * (x - y) * (x - y), delta * (abs_(x - y) - 0.5 * delta)),
    node="HuberLossBackward0", slope={
        "x": lambda x, y, *, delta: _within(x - y, delta, delta, x - y),
        "y": lambda x, y, *, delta: _within(y - x, delta, delta, y - x)})
bce_op = pointwise("binary_cross_entropy_each", lambda x, y: -(
    y * maximum_(log_(x), -100.0) + (1 - y) * maximum_(log1p_(-x), -100.0)), kind="float",
    slope={"x": lambda x, y: (x - y) / maximum_(x * (1 - x), 1e-12)},
    node="BinaryCrossEntropyBackward0")
bce_logits_op = pointwise("binary_cross_entropy_with_logits_each", lambda x, y: (
    (1 - y) * x + (maximum_(-x, 0.0) + log1p_(exp_(-abs_(x))))), kind="float",
    node="BinaryCrossEntropyWithLogitsBackward0",
    slope={"x": lambda x, y: 1 / (1 + exp_(-x)) - y, "y": lambda x: -x})
bce_weighted_op = pointwise("binary_cross_entropy_with_pos_weight_each", lambda x, y, w: (
    (1 - y) * x + (1 + (w - 1) * y) * (log1p_(exp_(-abs_(x))) + maximum_(-x, 0.0))), kind="float",
    node="BinaryCrossEntropyWithLogitsBackward0",
    slope={"x": lambda x, y, w: 1 - y - (1 + (w - 1) * y) / (1 + exp_(x))})
gaussian_op = pointwise("gaussian_nll_loss", lambda x, y, v: 0.5 * (
    log_(v) + (x - y) * (x - y) / v), kind="float")
gap_op = pointwise("pairwise_gap", lambda x, y, *, eps: x - y + eps, kind="float",
                   node="AddBackward0", domain=lambda: [
                       ((np.eye(2, 3), np.arange(3.0)), {"eps": 1e-3})])
cosine_op = pointwise("cosine_embedding", lambda inner, a, b, y, *, margin, eps: where_(
    y.eq(1.0), 1 - inner / sqrt_((a + eps) * (b + eps)), where_(
        y.eq(-1.0), maximum_(inner / sqrt_((a + eps) * (b + eps)) - margin, 0.0), 0.0)),
    kind="float", node="AddBackward0", slope={"y": None}, domain=lambda: [((
        np.array([0.5, -0.3, 0.2]), np.array([1.0, 2.0, 0.5]), np.array([0.7, 0.4, 1.5]),
        np.array([1.0, -1.0, -1.0])), {"margin": 0.1, "eps": 1e-12})])
soft_margin_op = pointwise("soft_margin_loss_each", lambda x, y: log1p_(exp_(-x * y)),
                           kind="float", node="SoftMarginLossBackward0")
# the same with the reduction inside, under the names that people read
REDUCED = {each.op: reduced_op(each.op, each.op.name.removesuffix("_each")) for each in (
    mse_op, smooth_l1_op, huber_op, bce_op, bce_logits_op, bce_weighted_op, soft_margin_op)}
