"""Cross entropy of a linear map, without the logits: they are made in blocks of rows, forward and
again backward, so that what is kept is the input, the weight and one number per row."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from adjoint.base.aval import Aval
from adjoint.base.dtypes import (
    F32,
    is_inexact,
)
from adjoint.base.errors import (
    ArgumentError,
    ShapeError,
)
from adjoint.core.autocast import in_float32
from adjoint.core.op import op
from adjoint.ops.api_common import dtype_of, is_recorded, kernel, narrowed, need, same_dtype, wide
from adjoint.ops.api_linalg import linear
from adjoint.ops.cross_entropy import (
    batch_rows,
    check_reduction,
    cross_entropy,
    cross_entropy_op,
    row_weights,
)
from adjoint.ops.linalg import linear_op, mm_op
from adjoint.ops.reduce import sum_op
from adjoint.ops.shape import expand_op, reshape, t_op

BLOCK_BYTES = 4 << 20


def _wide(a: Any) -> Any:
    return None if a is None else wide(a)


def _blocks(rows: int, classes: int, itemsize: int) -> list[slice]:
    step = max(1, BLOCK_BYTES // max(1, classes * itemsize))
    return [slice(i, min(i + step, rows)) for i in range(0, rows, step)]


def _logits(x: Any, w: Any, bias: Any) -> Any:
    out = x @ w.T
    if bias is not None:
        out += bias
    return out


def _impl(x: Any, w: Any, bias: Any, target: Any, weight: Any, /, *, reduction: str,
          ignore_index: int, label_smoothing: float) -> Any:
    xs, ws, bs, cw = (_wide(a) for a in (x, w, bias, weight))
    n, classes = len(x), len(w)
    scale, picked = row_weights(target, cw, ignore_index, classes, xs.dtype)
    lse = np.empty(n, xs.dtype)
    loss = np.empty(n, xs.dtype)
    used = (target != ignore_index).astype(xs.dtype)
    for b in _blocks(n, classes, xs.itemsize):
        z = _logits(xs[b], ws, bs)
        top = z.max(1, keepdims=True)
        lse[b] = np.log(np.exp(z - top).sum(1)) + top[:, 0]
        hard = np.where(scale[b] != 0, (lse[b] - z[np.arange(len(z)), picked[b]]) * scale[b], 0)
        if label_smoothing:
            soft = classes * lse[b] - z.sum(1) if cw is None else lse[b] * cw.sum() - z @ cw
            hard = (1 - label_smoothing) * hard + label_smoothing / classes * soft * used[b]
        loss[b] = hard
    if reduction == "none":
        return narrowed(loss, x.dtype), lse
    total = scale.sum() if reduction == "mean" else 1
    with np.errstate(invalid="ignore", divide="ignore"):
        return narrowed(np.asarray(loss.sum() / total, xs.dtype), x.dtype), lse


def _infer(x: Aval, w: Aval, bias: Any, target: Aval, weight: Any, *, reduction: str,
           **_: Any) -> Any:
    kind = F32 if x.dtype.itemsize == 2 else x.dtype
    return Aval(target.shape if reduction == "none" else (), x.dtype), Aval((x.shape[0],), kind)


def _grad(ct: Any, x: Any, w: Any, bias: Any, target: Any, weight: Any, lse: Any, /, *,
          reduction: str, ignore_index: int, label_smoothing: float,
          wanted: tuple[bool, ...]) -> Any:
    xs, ws, bs, cw = (_wide(a) for a in (x, w, bias, weight))
    n, classes = len(x), len(w)
    scale, picked = row_weights(target, cw, ignore_index, classes, xs.dtype)
    with np.errstate(invalid="ignore", divide="ignore"):
        rows = np.broadcast_to(wide(ct).reshape(-1) / (scale.sum() if reduction == "mean" else 1),
                               (n,))
    hard = np.where(scale != 0, rows * scale * (1 - label_smoothing), 0)
    even = np.where(target != ignore_index, rows * (label_smoothing / classes), 0)
    mass = hard + even * (classes if cw is None else cw.sum())
    dx, dw, db = np.empty_like(xs), np.zeros_like(ws), np.zeros(classes, xs.dtype)
    for b in _blocks(n, classes, xs.itemsize):
        p = _logits(xs[b], ws, bs)
        p -= lse[b, None]
        np.exp(p, out=p)
        p *= mass[b, None].astype(p.dtype)
        if label_smoothing:
            p -= (even[b, None] * (1 if cw is None else cw)).astype(p.dtype)
        p[np.arange(len(p)), picked[b]] -= hard[b]
        if wanted[0]:
            np.matmul(p, ws, out=dx[b])
        if wanted[1]:
            dw += p.T @ xs[b]
        if wanted[2]:
            db += p.sum(0)
    return tuple(narrowed(g, x.dtype) for g in (dx, dw, db))


_kernel = kernel("linear_cross_entropy_backward", _grad,
                 lambda ct, x, w, *_, **__: (x, w, Aval((w.shape[0],), x.dtype)),
                 outs=("dx", "dw", "dbias"),
                 cost=lambda ct, x, w, *_, **__: 6 * x.size * w.shape[0])


def _vjp(cts: Any, x: Any, w: Any, bias: Any, target: Any, weight: Any, lse: Any, wanted: Any,
         **attrs: Any) -> Any:
    ct = cts[0]
    if not is_recorded(ct, x, w, bias, weight):
        found = _kernel(ct, x, w, bias, target, weight, lse, wanted=tuple(wanted[:3]), **attrs)
    else:
        rule = cross_entropy_op.op.vjp["x"]
        g = rule(cts, linear_op(x, w, bias), target, weight, lse, **attrs)
        found = (mm_op(g, w), mm_op(t_op(g), x), sum_op(g, dim=(0,), keepdim=False))
    return tuple(f if k else None for f, k in zip(found, wanted[:3], strict=True))


def _jvp(position: int) -> Any:
    def rule(t: Any, x: Any, w: Any, bias: Any, target: Any, weight: Any, **attrs: Any) -> Any:
        push = cross_entropy_op.op.jvp["x"]
        if position == 2:
            moved = expand_op(t, shape=(x.shape[0], w.shape[0]))
        else:
            moved = linear_op(t, w, None) if position == 0 else linear_op(x, t, None)
        return push(moved, linear_op(x, w, bias), target, weight, **attrs)
    return rule


def _batch(op_: Any, args: Any, batched: Any, attrs: Any) -> Any:
    """Under vmap the logits are made: a product, then the loss of its rows."""
    linear = linear_op.op
    some = any(batched[:3])
    logits = linear.batch(linear, list(args[:3]), list(batched[:3]), {}) if some else linear_op(
        *args[:3])
    loss = cross_entropy_op.op
    found = batch_rows(loss.exposed, [logits, *args[3:]], [some, *batched[3:]], attrs)
    return tuple(found[:len(op_.outs)])


linear_cross_entropy_op: Any = op(
    "linear_cross_entropy", impl=_impl, infer=_infer, hidden=("lse",),
    vjp={("x", "w", "bias"): _vjp}, jvp={"x": _jvp(0), "w": _jvp(1), "bias": _jvp(2)},
    batch=_batch, cost=lambda x, w, *_, **__: 2 * x.size * w.shape[0],
    why={"x": "logits are made again from it", "w": "logits are made again from it",
         "lse": "one number per row, for exp(logits - lse)", "target": "which class each row is"})


def _check_linear(x: Any, w: Any, bias: Any) -> None:
    shape, outs = tuple(x.shape), tuple(w.shape[:-1])
    if len(shape) not in (1, 2):
        raise ShapeError("linear_cross_entropy: expected input with dimensionality 1 or 2, got "
                         f"{len(shape)}")
    if not outs:
        raise ShapeError("linear_cross_entropy: expected linear_weight with dimensionality at least"
                         f" 2, got {len(w.shape)}")
    if shape[-1] != w.shape[-1]:
        raise ShapeError("linear_cross_entropy: expected equal input and linear_weight last "
                         f"dimensions (in_features), got {shape[-1]} and {w.shape[-1]}, "
                         "respectively")
    if len(outs) > 1 and len(shape) < 2:
        raise ShapeError(f"K-dimensional loss defined by linear_weight shape {tuple(w.shape)} "
                         f"requires batched input, (N, {w.shape[-1]}), got unbatched input with "
                         f"shape {shape}")
    if bias is not None and tuple(bias.shape) != outs:
        raise ShapeError(f"linear_cross_entropy: expected linear_bias shape {outs}, got "
                         f"{tuple(bias.shape)}")


@in_float32
def linear_cross_entropy(input: Any, linear_weight: Any, target: Any, *, linear_bias: Any = None,
                         weight: Any = None, reduction: str = "mean", ignore_index: Any = None,
                         label_smoothing: float = 0.0, options: Any = None) -> Any:
    """`cross_entropy(linear(input, linear_weight, linear_bias), target)` without keeping logits.

    input (N, in), linear_weight (C, in), target (N,) of class indices; other forms are composed.
    Logits are made in blocks of rows, twice: memory does not grow with N·C.

    >>> import adjoint as ad
    >>> x, w = ad.zeros(2, 3), ad.zeros(4, 3)
    >>> ad.nn.functional.linear_cross_entropy(x, w, ad.tensor([0, 1]))
    tensor(1.3863)
    """
    need("linear_cross_entropy", input, linear_weight, target)
    check_reduction(reduction)
    _check_linear(input, linear_weight, linear_bias)
    if weight is not None and tuple(weight.shape) != tuple(linear_weight.shape[:1]):
        raise ShapeError("weight tensor should be defined either for all "
                         f"{linear_weight.shape[0]} classes or no classes but got weight tensor of "
                         f"shape: {list(weight.shape)}")
    if ignore_index is not None and is_inexact(dtype_of(target)):
        raise ArgumentError("ignore_index cannot be specified when target contains probabilities")
    ignore = -100 if ignore_index is None else ignore_index
    simple = (len(input.shape) == 2 and len(linear_weight.shape) == 2 and len(target.shape) == 1
              and dtype_of(target).kind in "iu" and input.shape[0] == target.shape[0]
              and input.shape[1] == linear_weight.shape[1] and math.prod(linear_weight.shape))
    if not simple:
        outs = tuple(linear_weight.shape[:-1])
        flat = reshape(linear_weight, (math.prod(outs), linear_weight.shape[-1]))
        bias = None if linear_bias is None else reshape(linear_bias, (math.prod(outs),))
        logits = linear(input, flat, bias)
        if len(outs) != 1:
            logits = reshape(logits, (*input.shape[:-1], *outs))
        return cross_entropy(logits, target, weight, ignore_index=ignore, reduction=reduction,
                             label_smoothing=label_smoothing)
    same_dtype("linear_cross_entropy", input, linear_weight, linear_bias, weight)
    return linear_cross_entropy_op(input, linear_weight, linear_bias, target, weight,
                                   reduction=reduction, ignore_index=ignore,
                                   label_smoothing=float(label_smoothing))[0]
