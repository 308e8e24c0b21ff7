"""A pointwise loss with its sum or its mean inside: one record, one node, one backward pass.

The node is named after the loss, as in PyTorch: `<MseLossBackward0>`, not the reduction's.
"""
from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from adjoint.base.aval import Aval, MetaArray, aval_of
from adjoint.base.dtypes import F32, F64
from adjoint.core.bind import function_of
from adjoint.core.op import Op, OpFunction, Rule, attr_names, reads, register
from adjoint.core.rehearsal import call
from adjoint.kernels import expr as ex
from adjoint.kernels.expr import abs_, exp_, log1p_, log_, maximum_, sqrt_, where_
from adjoint.ops.api_common import few
from adjoint.ops.family import PointwiseOp, broadcast_shapes, by_rows, pointwise, raw_functions
from adjoint.ops.pointwise import div, mul, ne, where_op
from adjoint.ops.reduce import mean_all_op, mean_op, spread, sum_all_op, sum_op
from adjoint.ops.shape import expand_op

ADD: Any = np.add              # typed loosely: the stubs know too few forms of reduce
_EACH = inspect.Parameter.POSITIONAL_OR_KEYWORD
_ATTR = inspect.Parameter.KEYWORD_ONLY


def _share(ct: Any, avals: Sequence[Aval], reduction: str) -> Any:
    """The part of the reduced value's cotangent that each element gets (a view)."""
    shape = broadcast_shapes("loss", *avals)
    if reduction == "mean":
        n = math.prod(shape)
        ct = mul(ct, 1.0 / n if n else math.nan)
    return spread(ct, shape, ())


def per_total(ct: Any, weights: Any) -> Any:
    """`ct` / Σ weights, where a sum of 0 (no row counts) leaves `ct`: what it meets then is 0."""
    total = sum_op(weights, dim=tuple(range(len(weights.shape))), keepdim=False)
    return div(ct, where_op(ne(total, 0.0), total, 1.0))


def _total(t: Any, avals: Sequence[Aval], reduction: str) -> Any:
    """What the tangents of the elements come to."""
    shape = broadcast_shapes("loss", *avals)
    t = t if tuple(t.shape) == shape else expand_op(t, shape=shape)
    return (sum_all_op if reduction == "sum" else mean_all_op)(
        t, dim=tuple(range(len(shape))), keepdim=False)


class ReducedOp(Op):
    """The record; its rules are those of the pointwise one, read when they are first needed."""

    each: PointwiseOp

    def _share_of(self, operand: str) -> Rule:
        """(ct, *residuals, mean=, **attrs) -> the operand's cotangent, of raw arrays of one float
        dtype and one shape."""
        rule = self.each.vjp[operand]
        quick = {} if self.each.attrs else {
            dtype: raw_functions(f"{self.name}_backward_{operand}", ("ct", *reads(rule)),
                                 [ex.var("ct") * self.each.rules[2][operand]], dtype)[:3]
            for dtype in (F32, F64)}

        def share(ct: Any, *kept: Any, mean: bool, **attrs: Any) -> Any:
            size = kept[0].size
            if mean:                         # (stays 0-d: the residuals have the shape)
                ct = np.asarray(ct / size)
            if attrs:
                return rule(ct, *kept, **attrs)
            small, large, limit = quick[ct.dtype]
            return (small if size < limit else large)(ct, *kept)
        return share

    def _pulled(self, operand: str) -> Rule:
        """The pointwise record's rule of an operand, with every element's share of `ct`."""
        rule, n = self.each.vjp[operand], len(self.each.operands)
        share: Any = None

        def pulled(ct: Any, *values: Any, reduction: str, **attrs: Any) -> Any:
            nonlocal share
            kept, avals = values[:-n], values[-n:]
            first, kind, mean = avals[0], type(ct), reduction == "mean"
            if (kind is np.ndarray or kind is MetaArray) and (
                    first.dtype is F32 or first.dtype is F64) and ct.dtype is first.dtype \
                    and first.size and avals.count(first) == n:
                share = share or self._share_of(operand)
                if kind is np.ndarray:
                    return share(ct, *kept, mean=mean, **attrs)
                return call(share, ct, *kept, mean=mean, **attrs, otherwise=lambda: MetaArray(
                    first.shape, first.dtype))
            return rule(_share(ct, avals, reduction), *kept, **attrs)
        return self._signed(pulled, rule)

    def _pushed(self, operand: str) -> Rule:
        rule, n = self.each.jvp[operand], len(self.each.operands)
        assert rule is not None               # (a pointwise record has rules for all or none)

        def pushed(t: Any, *values: Any, reduction: str, **attrs: Any) -> Any:
            return _total(rule(t, *values[:-n], **attrs), values[-n:], reduction)
        return self._signed(pushed, rule)

    def _signed(self, lifted: Any, rule: Rule) -> Rule:
        """`lifted`, whose residuals are the rule's and the operands' shapes."""
        if "out" in reads(rule):
            raise TypeError(f"{self.name}: the elements of {self.each.name} are not kept, its "
                            "slope is to be written in the operands")
        names = ["moved", *reads(rule), *(f"{o}_aval" for o in self.each.operands)]
        attrs = ["reduction", *attr_names(rule, self.each)]
        lifted.__signature__ = inspect.Signature([
            *(inspect.Parameter(p, _EACH) for p in names),
            *(inspect.Parameter(p, _ATTR) for p in attrs)])
        made: Rule = lifted
        return made

    @cached_property
    def tables(self) -> tuple[Mapping[Any, Rule], Mapping[Any, Any]]:
        """(vjp, jvp)."""
        return ({o: self._pulled(o) for o in self.each.vjp},
                {o: self._pushed(o) for o in self.each.jvp})

    vjp = property(lambda self: self.tables[0], lambda self, _: None)
    # (fields of the record, computed here)
    jvp = property(lambda self: self.tables[1], lambda self, _: None)
    # (likewise)

    def few(self, reduction: str, dtype: np.dtype[Any]) -> Callable[..., Any]:
        """The reduced value of few elements in order, all operands flat, as one program."""
        each = ex.compile_numpy(self.name, self.operands, [self.each.expression], dtype=dtype)

        def body(*operands: Any) -> Any:
            total = ADD.reduce(each(*operands[:-1]), -1, None, None, True)
            return total if reduction == "sum" else total / operands[-1]

        def otherwise(*operands: Any) -> Any:
            return np.asarray(body(*operands, dtype.type(operands[0].size))[0])
        return by_rows(body, " ".join("matrix" for _ in self.operands), "lead", dtype, otherwise)


def _batch(op: Op, args: Sequence[Any], batched: Sequence[bool], attrs: Mapping[str, Any]) -> Any:
    """The elements of every example, then the reduction over all axes but the first."""
    each = op.each  # type: ignore[attr-defined]  # this rule is that of such records alone
    inner = {k: v for k, v in attrs.items() if k != "reduction"}
    found = each.batch(each, args, batched, inner)
    return (sum_op if attrs["reduction"] == "sum" else mean_op)(
        found, dim=tuple(range(1, len(found.shape))), keepdim=False)


def reduced_op(each: Any, name: str) -> OpFunction:
    """Declare the record of `each` followed by reduction="sum" or "mean"."""
    totals = {"sum": sum_all_op.op, "mean": mean_all_op.op}
    programs: dict[Any, Any] = {}

    def impl(*arrays: Any, reduction: str, **attrs: Any) -> Any:
        a = arrays[0]
        alike = not attrs and (a.dtype is F32 or a.dtype is F64) and all(
            [b.dtype is a.dtype and b.shape == a.shape for b in arrays])
        if alike and few(a) and all([b.flags.c_contiguous for b in arrays]):
            program = programs.get((reduction, a.dtype))
            if program is None:
                program = programs[reduction, a.dtype] = record.few(reduction, a.dtype)
            return program(*arrays) if a.ndim == 1 else program(*[b.reshape(-1) for b in arrays])
        found = each.own.run(a.dtype, *arrays) if alike and each.own else each.impl(
            *arrays, **attrs)
        return totals[reduction].impl(found, dim=tuple(range(found.ndim)), keepdim=False)

    def infer(*avals: Any, **_: Any) -> Aval:
        return Aval((), each.infer(*(aval_of(a) for a in avals)).dtype)
    impl.parameters = (  # type: ignore[attr-defined]  # read by Op
        each.operands, ("reduction", *each.attrs), False)
    record = ReducedOp(name, impl, infer, batch=_batch, prepare=each.prepare, node=each.node,
                       cost=lambda *avals, **_: each.cost(*avals) + each.infer(*avals).size)
    record.each = each
    return register(record, function_of(record))


# ------------------------------------------------------------------ of each element
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
