"""Cross entropy, negative log likelihood and gaps between classes: fused records.

Cross entropy keeps the logits and one log-sum-exp per row, never the probabilities: its gradient
exp(x - lse) - target is made from them in the backward pass.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from adjoint.base.aval import Aval
from adjoint.base.dtypes import F32, F64, I64, scalar_type
from adjoint.base.errors import ArgumentError, DTypeError, IndexOutOfRange, Quiet, ShapeError
from adjoint.core.autocast import in_float32
from adjoint.core.bind import bind
from adjoint.core.modes import WATCH, state, warn, watchers
from adjoint.core.op import op
from adjoint.core.tensor import Tensor
from adjoint.ops.api_common import (
    FEW,
    dtype_of,
    is_recorded,
    kernel,
    narrowed,
    need_kernel,
    row_blocks,
    wide,
)
from adjoint.ops.family import by_rows
from adjoint.ops.gather import pick
from adjoint.ops.index import index_op
from adjoint.ops.moments import logsumexp_op
from adjoint.ops.pointwise import add, cast, div, eq, exp, mul, ne, neg, sub
from adjoint.ops.public import FUNCTIONS, planned
from adjoint.ops.reduce import ADD, sum_op
from adjoint.ops.reduced import per_total
from adjoint.ops.shape import batch_loop, expand_op, reshape, unsqueeze_op
from adjoint.ops.softmax import MAXIMUM, log_softmax_op

Shape = tuple[int, ...]


def rows_of(x: Any) -> Any:
    """(N, C, d...) as (N·d..., C); (C,) as (1, C)."""
    if x.ndim < 3:
        return x if x.ndim == 2 else x.reshape(1, -1)
    return np.moveaxis(x, 1, -1).reshape(-1, x.shape[1])


def back(rows: Any, shape: Shape) -> Any:
    """What `rows_of` made of an array of this shape, in that shape."""
    if rows.shape == shape:         # (a view as gradient would be copied)
        return rows
    if len(shape) == 1:
        return rows.reshape(shape)
    return np.moveaxis(rows.reshape(shape[0], *shape[2:], shape[1]), -1, 1)


def _acc(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return F32 if dtype.itemsize == 2 else dtype


def row_weights(target: Any, weight: Any, ignore: int, classes: int, dtype: Any) -> Any:
    """(weight of every row, class of every row with ignored ones as 0)."""
    flat = target.reshape(-1)
    used = flat != ignore
    safe = flat if used.all() else np.where(used, flat, 0)
    if safe.size and (safe.min() < 0 or safe.max() >= classes):
        bad = safe[(safe < 0) | (safe >= classes)][0]
        raise IndexOutOfRange(f"Target {bad} is out of bounds: there are {classes} classes "
                              f"(0..{classes - 1}); ignore_index is {ignore}")
    w = used.astype(dtype)
    if weight is not None:
        w *= weight[safe]
    return w, safe


def _places(shape: Shape, safe: Any) -> Any:
    """Where, in a flat array of that shape, the class of every row lies."""
    classes, inner = shape[1] if len(shape) > 1 else shape[0], math.prod(shape[2:])
    at = np.multiply(safe, inner, dtype=np.int64).reshape(-1, max(inner, 1))
    at += np.arange(0, len(at) * inner * classes, max(inner * classes, 1))[:, None]
    if inner > 1:
        at += np.arange(inner)
    return at.reshape(-1)


def _denominator(w: Any, reduction: str) -> Any:
    return w.sum() if reduction == "mean" else w.dtype.type(1)


def _lse(x: Any, width: Any) -> Any:
    """The log-sum-exp of the rows of a matrix that is one block."""
    top = MAXIMUM.reduce(x, -1, None, None, True)
    return np.log(ADD.reduce(np.exp(x - top), -1, None, None, True)) + top


@functools.cache
def _few_lse(single: bool) -> Any:
    """The same of few elements, as a vector."""
    return by_rows(_lse, "matrix", "flat", F32 if single else F64,
                   lambda x: _lse(x, None).reshape(-1))


def _own_logits(x: Any, target: Any) -> Any:
    """Each row's logit of its class; None where a class is out of range."""
    n, c = x.shape
    picked = pick(x, target[:, None], 1, along=True)
    if picked is not None:
        return picked.reshape(-1)
    inside = target.view(np.uint64).max() < c
    return x.reshape(-1).take(target + np.arange(0, n * c, c)) if inside else None


def _few_rows(x: Any, own: Any, reduction: str) -> Any:
    """The loss of a matrix that is one block, where every row counts once."""
    with Quiet():
        lse = _few_lse(x.dtype is F32)(x)
        loss = lse - own
        if reduction == "none":
            return loss, lse
        total = ADD.reduce(loss)
        return np.asarray(total / x.dtype.type(len(x)) if reduction == "mean" else total), lse


def _class_impl(x: Any, target: Any, weight: Any, /, *, reduction: str, ignore_index: int,
                label_smoothing: float) -> Any:
    if (weight is None and not label_smoothing and x.ndim == 2 and 0 < x.nbytes <= FEW
            and (x.dtype is F32 or x.dtype is F64) and target.dtype == I64
            and not 0 <= ignore_index < x.shape[1] and x.flags.c_contiguous):
        own = _own_logits(x, target)
        if own is not None:
            return _few_rows(x, own, reduction)
    rows = rows_of(wide(x))
    n, c = rows.shape
    lse = np.empty(n, rows.dtype)
    w, safe = row_weights(target, None if weight is None else wide(weight), ignore_index, c,
                           rows.dtype)
    for b in row_blocks(n, c * rows.itemsize):
        top = rows[b].max(1)
        lse[b] = np.log(np.exp(rows[b] - top[:, None]).sum(1)) + top
    picked = lse - rows[np.arange(n), safe] if n else lse
    loss = np.where(w != 0, picked * w, 0)
    total = _denominator(w, reduction)
    if label_smoothing:
        s = label_smoothing
        used = (target.reshape(-1) != ignore_index).astype(rows.dtype)
        if weight is None:
            smooth = c * lse - rows.sum(1)
        else:
            wide_w = wide(weight)
            smooth = lse * wide_w.sum() - rows @ wide_w
        loss = (1 - s) * loss + (s / c) * np.where(used != 0, smooth, 0)
    shape = target.shape
    if reduction == "none":
        out = loss.reshape(shape)
    else:
        with np.errstate(invalid="ignore", divide="ignore"):
            out = np.asarray(loss.sum() / total if reduction == "mean" else loss.sum())
    return narrowed(np.asarray(out, rows.dtype), x.dtype), lse


def _class_infer(x: Aval, target: Aval, weight: Aval | None, *, reduction: str, ignore_index: int,
                 label_smoothing: float) -> Any:
    rest = x.shape[:1] + x.shape[2:] if x.ndim > 1 else ()
    return (Aval(target.shape if reduction == "none" else (), x.dtype),
            Aval((math.prod(rest),), _acc(x.dtype)))


def _class_grad(ct: Any, x: Any, target: Any, weight: Any, lse: Any, /, *, reduction: str,
                ignore_index: int, label_smoothing: float) -> Any:
    rows = rows_of(wide(x))
    n, c = rows.shape
    wide_w = None if weight is None else wide(weight)
    w, safe = row_weights(target, wide_w, ignore_index, c, rows.dtype)
    with np.errstate(invalid="ignore", divide="ignore"):
        scale = np.broadcast_to(wide(ct).reshape(-1) / _denominator(w, reduction), (n,))
    s = label_smoothing
    hard = scale * w * (1 - s)
    hard = np.where(w != 0, hard, 0)
    soft = None
    if s:
        used = target.reshape(-1) != ignore_index
        soft = np.where(used, scale * (s / c), 0).astype(rows.dtype)
    out = np.empty((n, c), rows.dtype)
    norm = c if wide_w is None else wide_w.sum()
    for b in row_blocks(n, c * rows.itemsize):
        to = out[b]
        np.subtract(rows[b], lse[b, None], out=to)
        np.exp(to, out=to)
        to *= (hard[b] if soft is None else hard[b] + soft[b] * norm)[:, None]
        if soft is not None:
            to -= soft[b, None] * (1 if wide_w is None else wide_w)
        to[np.arange(len(to)), safe[b]] -= hard[b]
    return narrowed(back(out, x.shape), x.dtype)


_class_kernel: Any = kernel("cross_entropy_backward", _class_grad,
                       lambda ct, x, *_, **__: Aval(x.shape, x.dtype),
                       cost=lambda ct, x, *_, **__: 12 * x.size)


def _dim(x: Any) -> int:
    return 1 if len(x.shape) > 1 else 0


def _parts(x: Any, target: Any, weight: Any, ignore: int) -> tuple[Any, Any, Any]:
    """(one-hot of the target times row weight, row weight, rows in use), in ops, shaped like x."""
    d = _dim(x)
    dtype = dtype_of(x)
    used = ne(target, ignore)
    classes = reshape(np.arange(x.shape[d]), (x.shape[d], *(1,) * (len(x.shape) - d - 1)))
    hot = cast(eq(unsqueeze_op(target, dim=d), classes), dtype=dtype)
    keep = unsqueeze_op(cast(used, dtype=dtype), dim=d)
    if weight is None:
        return mul(hot, keep), keep, keep
    w = reshape(weight, (x.shape[d], *(1,) * (len(x.shape) - d - 1)))
    row = sum_op(mul(mul(hot, keep), w), dim=(d,), keepdim=True)
    return mul(mul(hot, keep), w), row, keep


def _class_vjp(cts: Any, x: Any, target: Any, weight: Any, lse: Any, *, reduction: str,
               ignore_index: int, label_smoothing: float) -> Any:
    ct = cts[0]
    if not is_recorded(ct, x, weight):
        return _class_kernel(ct, x, target, weight, lse, reduction=reduction,
                             ignore_index=ignore_index, label_smoothing=label_smoothing)
    spread, smoothed = _soft_target(ct, x, target, weight, reduction, ignore_index, label_smoothing)
    d = _dim(x)
    p = exp(sub(x, logsumexp_op(x, dim=(d,), keepdim=True)))
    mass = sum_op(smoothed, dim=(d,), keepdim=True)
    return mul(spread, sub(mul(p, mass), smoothed))


def _soft_target(ct: Any, x: Any, target: Any, weight: Any, reduction: str, ignore: int,
                 s: float) -> tuple[Any, Any]:
    """loss = Σ scale · Σ_c -t_c·log p_c: (scale with the cotangent in it, t)."""
    d = _dim(x)
    hot, row, keep = _parts(x, target, weight, ignore)
    t = hot
    if s:
        even: Any = s / x.shape[d]
        if weight is not None:
            even = mul(reshape(weight, (x.shape[d], *(1,) * (len(x.shape) - d - 1))), even)
        t = add(mul(hot, 1 - s), mul(keep, even))
    if reduction == "mean":
        ct = per_total(ct, row)
    elif reduction == "none" and len(x.shape) > 1:
        ct = unsqueeze_op(ct, dim=d)
    return ct, t


def _class_jvp(t: Any, x: Any, target: Any, weight: Any, *, reduction: str, ignore_index: int,
               label_smoothing: float) -> Any:
    d = _dim(x)
    one = np.ones((), dtype_of(x))
    scale, soft = _soft_target(one if reduction != "none" else np.ones(
        tuple(target.shape), dtype_of(x)), x, target, weight, reduction, ignore_index,
        label_smoothing)
    p = exp(sub(x, logsumexp_op(x, dim=(d,), keepdim=True)))
    mass = sum_op(soft, dim=(d,), keepdim=True)
    share = mul(mul(scale, sub(mul(p, mass), soft)), t)
    if reduction == "none":
        return (sum_op(share, dim=(d,), keepdim=False),)
    return (sum_op(share, dim=tuple(range(len(x.shape))), keepdim=False),)


def batch_rows(op_: Any, args: Any, batched: Any, attrs: Any) -> Any:
    """Batch rule of both losses: the rows of all examples at once, then one reduction each."""
    x, target, weight = args
    if batched[2]:
        return batch_loop(op_, args, batched, attrs)
    size = next(a.shape[0] for a, b in zip(args, batched, strict=True) if b)
    x, target = (a if b else expand_op(a, shape=(size, *a.shape))
                 for a, b in zip(args[:2], batched[:2], strict=True))
    inner = tuple(target.shape)[1:]
    if inner:                                  # (B, N, C, ...) as (B·N, C, ...)
        x = reshape(x, (size * x.shape[1], *x.shape[2:]))
        target = reshape(target, (size * inner[0], *inner[1:]))
    found = bind(op_, (x, target, weight), {**attrs, "reduction": "none"})
    out, *hidden = found if isinstance(found, tuple) else (found,)
    count = math.prod(inner)
    hidden = [reshape(h, (size, count)) for h in hidden]
    if attrs["reduction"] == "none":
        out = reshape(out, (size, *inner))
    else:
        out = sum_op(reshape(out, (size, count)), dim=(1,), keepdim=False)
    if attrs["reduction"] == "mean":
        used = ne(target, attrs["ignore_index"])
        share = cast(used, dtype=dtype_of(x))
        if weight is not None:
            share = mul(share, index_op(weight, mul(target, used), dims=(0,)))
        out = div(out, sum_op(reshape(share, (size, count)), dim=(1,), keepdim=False))
    return (out, *hidden) if op_.multi else out


cross_entropy_op: Any = op(
    "cross_entropy", impl=_class_impl, infer=_class_infer, hidden=("lse",),
    vjp={"x": _class_vjp}, jvp={"x": _class_jvp}, batch=batch_rows, node="NllLossBackward0",
    cost=lambda x, *_, **__: 25 * x.size,
    why={"x": "dx = (exp(x - lse) - target)·scale", "lse": "one number per row, for exp(x - lse)",
         "target": "which class each row is", "weight": "how much each class counts"})


# ------------------------------------------------------------------ negative log likelihood
def _nll_impl(x: Any, target: Any, weight: Any, /, *, reduction: str, ignore_index: int) -> Any:
    x32 = wide(x)
    w, safe = row_weights(target, None if weight is None else wide(weight), ignore_index,
                          x.shape[1] if x.ndim > 1 else len(x), x32.dtype)
    loss = np.where(w != 0, -np.ravel(x32).take(_places(x.shape, safe)) * w, 0)
    if reduction == "none":
        out = loss.reshape(target.shape)
    else:
        with np.errstate(invalid="ignore", divide="ignore"):
            out = loss.sum() / _denominator(w, reduction)
    return narrowed(np.asarray(out, x32.dtype), x.dtype)


def _nll_slope(ct: Any, x_aval: Aval, target: Any, weight: Any, reduction: str,
               ignore: int) -> Any:
    shape = x_aval.shape
    d = 1 if len(shape) > 1 else 0
    like = np.broadcast_to(np.zeros((), x_aval.dtype), shape)
    hot, row, _ = _parts(like, target, weight, ignore)
    if reduction == "mean":
        ct = per_total(ct, row)
    elif reduction == "none" and len(shape) > 1:
        ct = unsqueeze_op(ct, dim=d)
    return neg(mul(hot, ct))


def _nll_vjp(ct: Any, target: Any, weight: Any, x_aval: Aval, *, reduction: str,
             ignore_index: int) -> Any:
    if not is_recorded(ct, target, weight):
        return _nll_kernel(ct, target, weight, shape=x_aval.shape, reduction=reduction,
                           ignore_index=ignore_index)
    return _nll_slope(ct, x_aval, target, weight, reduction, ignore_index)


def _nll_grad(ct: Any, target: Any, weight: Any, /, *, shape: Shape, reduction: str,
              ignore_index: int) -> Any:
    c = shape[1] if len(shape) > 1 else shape[0]
    g = wide(ct)
    w, safe = row_weights(target, None if weight is None else wide(weight), ignore_index, c,
                           g.dtype)
    out = np.zeros(shape, g.dtype)
    with np.errstate(invalid="ignore", divide="ignore"):
        scale = g.reshape(-1) / _denominator(w, reduction)
        put = np.where(np.ravel(target) != ignore_index, -scale * w, 0)
    out.reshape(-1)[_places(shape, safe)] = put
    return narrowed(out, ct.dtype)


_nll_kernel: Any = kernel("nll_loss_backward", _nll_grad,
                     lambda ct, *_, shape, **__: Aval(shape, ct.dtype))


def _nll_jvp(t: Any, target: Any, weight: Any, x_aval: Aval, *, reduction: str,
             ignore_index: int) -> Any:
    shape = x_aval.shape
    ct = np.ones(tuple(target.shape) if reduction == "none" else (), x_aval.dtype)
    share = mul(_nll_slope(ct, x_aval, target, weight, reduction, ignore_index), t)
    dims = tuple(range(len(shape))) if reduction != "none" else (1 if len(shape) > 1 else 0,)
    return sum_op(share, dim=dims, keepdim=False)


nll_loss_op: Any = op(
    "nll_loss", impl=_nll_impl, node="NllLossBackward0",
    infer=lambda x, target, weight, *, reduction, ignore_index: Aval(
        target.shape if reduction == "none" else (), x.dtype),
    vjp={"x": _nll_vjp}, jvp={"x": _nll_jvp}, batch=batch_rows,
    cost=lambda x, *_, **__: 2 * x.size,
    why={"target": "the gradient goes to the target's class", "weight": "how much it counts"})


# ------------------------------------------------------------------ gaps between classes
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


# ------------------------------------------------------------------ public
def legacy_reduction(size_average: Any, reduce: Any, reduction: str) -> str:
    """The reduction that the two arguments of old programs mean."""
    if size_average is None and reduce is None:
        if reduction != "elementwise_mean":
            return reduction
        warn("reduction='elementwise_mean' is deprecated. Please use reduction='mean' instead.")
        return "mean"
    meant = "none" if reduce is False else \
        "mean" if size_average is None or size_average else "sum"
    warn("size_average and reduce args will be deprecated, please use "
         f"reduction='{meant}' instead.")
    return meant


def check_reduction(reduction: str) -> None:
    """Refuse what is not a reduction."""
    if reduction not in ("none", "mean", "sum"):
        raise ArgumentError(f"{reduction} is not a valid value for reduction; use 'none', 'mean' or"
                            " 'sum'")


def _same_weight(name: str, x: Any, weight: Any) -> None:
    if weight is not None and dtype_of(weight) != dtype_of(x):
        want, have = (scalar_type(dtype_of(a)) for a in (x, weight))
        raise DTypeError(f"expected scalar type {want} but found {have}: {name}() takes weight in "
                         "the input's dtype; cast one of them with .to(dtype)")


def _check_classes(name: str, x: Any, target: Any, weight: Any) -> None:
    shape, want = tuple(x.shape), tuple(target.shape)
    if not shape:
        raise ShapeError(f"{name}(): Expected 1 or more dimensions (got 0) in the input")
    expected = (shape[0], *shape[2:]) if len(shape) > 1 else ()
    if want != expected and (name == "nll_loss" or len(shape) > 1 or want != (1,)):
        if len(shape) > 1 and want and want[:1] != shape[:1]:
            raise ShapeError(f"Expected input batch_size ({shape[0]}) to match target batch_size "
                             f"({want[0]}). ({name}: input {list(shape)}, target {list(want)})")
        if name == "cross_entropy" and want == shape:
            raise DTypeError("Expected floating point type for target with class probabilities, "
                             f"got {scalar_type(dtype_of(target))}")
        many = ("0D or 1D target tensor expected, multi-target not supported. "
                if len(shape) < 3 < len(want) + 2 else "")
        raise ShapeError(f"{many}{name}(): Expected target size {list(expected)}, got {list(want)} "
                         f"for input {list(shape)}")
    if dtype_of(target) not in (np.int64, np.uint8):
        raise DTypeError(f"{name}(): expected target dtype to be Long or Byte, but got "
                         f"{scalar_type(dtype_of(target))}: a target of class indices in int64, or "
                         "of probabilities in the input's shape")
    classes = shape[1] if len(shape) > 1 else shape[0]
    if weight is not None and tuple(weight.shape) != (classes,):
        raise ShapeError(f"{name}(): weight tensor should be defined either for all {classes} "
                         f"classes or no classes but got weight tensor of shape: "
                         f"{list(weight.shape)}")


@planned
@in_float32
def cross_entropy(input: Any, target: Any, weight: Any = None, size_average: Any = None,
                  ignore_index: int = -100, reduce: Any = None, reduction: str = "mean",
                  label_smoothing: float = 0.0) -> Any:
    """-log softmax(input)[target]: input (N, C, ...) or (C,), target of class indices (N, ...) or
    probabilities of the input's shape.

    reduction "mean" divides by the summed weights of the targets that are not `ignore_index`.

    >>> import adjoint as ad
    >>> ad.nn.functional.cross_entropy(ad.zeros(1, 2), ad.tensor([0]))
    tensor(0.6931)
    """
    need_kernel("log_softmax_lastdim_kernel_impl", "biuc", input)
    reduction = legacy_reduction(size_average, reduce, reduction)
    check_reduction(reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise ArgumentError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    if tuple(input.shape) == tuple(target.shape) and dtype_of(target).kind not in "iub":
        return _with_probabilities(input, target, weight, ignore_index, reduction, label_smoothing)
    _check_classes("cross_entropy", input, target, weight)
    _same_weight("cross_entropy", input, weight)
    if state() & WATCH and watchers.modes.get() and not label_smoothing:     # PyTorch's two ops
        input = log_softmax_op(input, dim=min(1, len(input.shape) - 1))
        return nll_loss_op(input, target, weight, reduction=reduction, ignore_index=ignore_index)
    return cross_entropy_op(input, target, weight, reduction=reduction, ignore_index=ignore_index,
                            label_smoothing=float(label_smoothing))[0]


def _with_probabilities(x: Any, target: Any, weight: Any, ignore: int, reduction: str, s: float
                        ) -> Any:
    if ignore >= 0:
        raise ArgumentError("ignore_index is not supported for floating point target")
    classes = x.shape[d := _dim(x)]
    t, logp = add(mul(target, 1 - s), s / classes) if s else target, log_softmax_op(x, dim=d)
    if weight is not None:
        logp = mul(logp, reshape(weight, (classes, *(1,) * (len(x.shape) - d - 1))))
    total = neg(sum_op(mul(logp, t), dim=(d,), keepdim=False))
    if reduction != "none":
        total = sum_op(total, dim=tuple(range(len(total.shape))), keepdim=False)
    return total if reduction != "mean" else div(total, math.prod(x.shape) / max(classes, 1))


@planned
@in_float32
def nll_loss(input: Any, target: Any, weight: Any = None, size_average: Any = None,
             ignore_index: int = -100, reduce: Any = None, reduction: str = "mean") -> Any:
    """-input[target] for log probabilities input (N, C, ...) or (C,), target (N, ...) or ().

    >>> import adjoint as ad
    >>> ad.nn.functional.nll_loss(ad.tensor([[-1.0, -2.0]]), ad.tensor([1]))
    tensor(2.)
    """
    need_kernel("nll_loss_out_frame", "biuc", input)
    reduction = legacy_reduction(size_average, reduce, reduction)
    check_reduction(reduction)
    _check_classes("nll_loss", input, target, weight)
    _same_weight("nll_loss", input, weight)
    return nll_loss_op(input, target, weight, reduction=reduction, ignore_index=ignore_index)


__all__ = ["check_reduction", "cross_entropy", "legacy_reduction", "nll_loss"]
