"""Losses. Elementwise ones are pointwise records, so that each is one pass, then a reduction."""
from __future__ import annotations

import functools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from adjoint.base.aval import Aval, MetaArray
from adjoint.base.dtypes import (
    I64,
    is_inexact,
    of_numpy,
    result_type,
    scalar_type,
)
from adjoint.base.errors import ArgumentError, DTypeError, ShapeError
from adjoint.core.autocast import in_float32
from adjoint.core.modes import warn
from adjoint.core.op import op
from adjoint.core.rehearsal import call
from adjoint.kernels.expr import var
from adjoint.ops.api_common import (
    cast_to,
    dtype_of,
    fill_like,
    narrowed,
    need,
    need_kernel,
    raw,
    wide,
)
from adjoint.ops.cross_entropy import (
    check_reduction,
    legacy_reduction,
    multi_margin_op,
    multilabel_op,
    stopped,
)
from adjoint.ops.family import broadcast_shapes, derived_op, generated, promote
from adjoint.ops.gather import MANY, gather_op, scatter_op
from adjoint.ops.moments import norm_op
from adjoint.ops.pointwise import (
    TWO_BOOLEANS,
    abs_op,
    add,
    cast,
    clamp_min,
    div,
    exp,
    le,
    log,
    mul,
    ne,
    neg,
    sub,
    where_op,
    xlogy_op,
)
from adjoint.ops.public import known_as, planned, typed
from adjoint.ops.reduce import kept, mean_all_op, sum_all_op, sum_op
from adjoint.ops.reduced import (
    REDUCED,
    bce_logits_op,
    bce_op,
    bce_weighted_op,
    cosine_op,
    gap_op,
    gaussian_op,
    huber_op,
    l1_op,
    mse_op,
    smooth_l1_op,
    soft_margin_op,
)
from adjoint.ops.shape import expand_op, lift_all, normalize_dim, reshape, unsqueeze_op


def losses(each: Any, reduction: str, *operands: Any, weight: Any = None, kind: Any = None,
           **attrs: Any) -> Any:
    """The pointwise record `each`, reduced; elements are multiplied by `weight` first. Of operands
    of several dtypes they are brought to `kind`."""
    if kind is not None and any(dtype_of(x) != kind for x in (*operands, weight) if x is not None):
        found = each(*operands, **attrs)
        return reduced(cast_to(found if weight is None else mul(found, weight), kind), reduction)
    if weight is not None:
        return reduced(mul(each(*operands, **attrs), weight), reduction)
    if reduction == "none":
        return each(*operands, **attrs)
    return REDUCED[each.op](*operands, reduction=reduction, **attrs)


def reduced(x: Any, reduction: str) -> Any:
    """`x`, its sum or its mean."""
    if reduction == "none":
        return x
    dims = tuple(range(len(x.shape)))
    return (sum_all_op if reduction == "sum" else mean_all_op)(x, dim=dims, keepdim=False)


def _start(name: str, xs: tuple[Any, ...], size_average: Any, reduce: Any, reduction: str) -> str:
    need(name, *xs)
    reduction = legacy_reduction(size_average, reduce, reduction)
    check_reduction(reduction)
    return reduction


def _size_warning(input: Any, target: Any) -> None:
    if tuple(input.shape) != tuple(target.shape):
        warn(f"Using a target size (torch.Size({list(target.shape)})) that is different to the "
             f"input size (torch.Size({list(input.shape)})). This will likely lead to incorrect "
             "results due to broadcasting. Please ensure they have the same size.")


def _distance(x: Any, y: Any) -> Any:
    """abs(x - y) in two steps: one difference is kept, not both operands."""
    gap = sub(x, y)
    return abs_op(gap) if dtype_of(gap).kind == "c" else l1_op(gap)


def _l1(reduction: str, x: Any, y: Any) -> Any:
    return reduced(_distance(x, y), reduction)


def _paired(name: str, unweighted: Callable[..., Any]) -> Callable[..., Any]:
    @planned
    @in_float32
    def loss(input: Any, target: Any, size_average: Any = None, reduce: Any = None,
             reduction: str = "mean", weight: Any = None) -> Any:
        reduction = _start(name, (input, target), size_average, reduce, reduction)
        _size_warning(input, target)
        if name == "mse_loss":
            need_kernel("mse_cpu", "biuc", input, target)
        if weight is None:
            return unweighted(reduction, input, target)
        found = mul(unweighted("none", input, target), weight)
        if reduction == "mean":
            return div(reduced(found, "sum"), reduced(mul(weight, np.ones(
                tuple(found.shape), dtype_of(found))), "sum"))
        return reduced(found, reduction)
    loss.__name__ = loss.__qualname__ = name
    return loss


mse_loss = _paired("mse_loss", partial(losses, mse_op))
mse_loss.__doc__ = """(input - target)², reduced; `weight` multiplies each element.

    >>> import adjoint as ad
    >>> ad.nn.functional.mse_loss(ad.tensor([1.0, 3.0]), ad.tensor([1.0, 1.0]))
    tensor(2.)
    """
l1_loss = _paired("l1_loss", _l1)
l1_loss.__doc__ = "abs(input - target), reduced; slope 0 where they are equal."


@planned
@in_float32
def smooth_l1_loss(input: Any, target: Any, size_average: Any = None, reduce: Any = None,
                   reduction: str = "mean", beta: float = 1.0) -> Any:
    """Quadratic below |x - y| = beta, linear above, reduced."""
    reduction = _start("smooth_l1_loss", (input, target), size_average, reduce, reduction)
    need_kernel("smooth_l1_cpu", "biuc", input, target)
    if beta < 0:
        raise ArgumentError(f"smooth_l1_loss does not support negative values for beta, got {beta}")
    _size_warning(input, target)
    if beta == 0:
        return reduced(_distance(input, target), reduction)
    return losses(smooth_l1_op, reduction, input, target, beta=float(beta))


@known_as("HuberLossBackward0")
@planned
@in_float32
def huber_loss(input: Any, target: Any, reduction: str = "mean", delta: float = 1.0,
               weight: Any = None) -> Any:
    """Quadratic up to |x - y| = delta, linear above with slope delta, reduced."""
    reduction = _start("huber_loss", (input, target), None, None, reduction)
    need_kernel("huber_cpu", "biuc", input, target)
    if not isinstance(delta, (int, float)):
        raise TypeError(f"delta must be a float or int, got: {type(delta)}")
    if delta <= 0:
        raise ArgumentError(f"huber_loss does not support non-positive values for delta, got "
                            f"{delta}")
    _size_warning(input, target)
    return losses(huber_op, reduction, input, target, weight=weight, kind=dtype_of(input),
                  delta=float(delta))


@in_float32
def binary_cross_entropy(input: Any, target: Any, weight: Any = None, size_average: Any = None,
                         reduce: Any = None, reduction: str = "mean") -> Any:
    """-(y log p + (1-y) log(1-p)) of probabilities p in [0, 1]; logarithms are cut at -100."""
    reduction = _start("binary_cross_entropy", (input, target), size_average, reduce, reduction)
    need_kernel("binary_cross_entropy", "biuc", input)
    if tuple(input.shape) != tuple(target.shape):
        raise ShapeError(f"Using a target size (torch.Size({list(target.shape)})) that is "
                         f"different to the input size (torch.Size({list(input.shape)})) is "
                         "deprecated. Please ensure they have the same size.")
    if dtype_of(target) != dtype_of(input):
        raise DTypeError(f"Found dtype {scalar_type(dtype_of(target))} but expected "
                         f"{scalar_type(dtype_of(input))}: binary_cross_entropy takes a target of "
                         "the input's dtype")
    for name, given in (("input", input), ("target", target)):
        p = raw(given)
        if type(p) is MetaArray:
            call(_outside, p, otherwise=bool)
        elif isinstance(p, np.ndarray) and p.size and not getattr(given, "level", 0) and (
                _outside(p)):
            raise ArgumentError(f"all elements of {name} should be between 0 and 1; for logits use "
                                "binary_cross_entropy_with_logits")
    return losses(bce_op, reduction, input, target, weight=weight)


def _outside(p: Any) -> bool:
    return not (p.min() >= 0 and p.max() <= 1)


@known_as("BinaryCrossEntropyWithLogitsBackward0")
@planned
@in_float32
def binary_cross_entropy_with_logits(input: Any, target: Any, weight: Any = None,
                                     size_average: Any = None, reduce: Any = None,
                                     reduction: str = "mean", pos_weight: Any = None) -> Any:
    """Binary cross entropy of σ(input), without overflow; `pos_weight` multiplies the y term."""
    name = "binary_cross_entropy_with_logits"
    reduction = _start(name, (input, target), size_average, reduce, reduction)
    need_kernel("log_sigmoid_cpu", "biuc", input)
    if tuple(input.shape) != tuple(target.shape):
        raise ShapeError(f"Target size (torch.Size({list(target.shape)})) must be the same as "
                         f"input size (torch.Size({list(input.shape)}))")
    if not is_inexact(dtype_of(target)):
        raise DTypeError(f"result type {scalar_type(dtype_of(input))} can't be cast to the desired "
                         f"output type {scalar_type(dtype_of(target))}: {name} takes a target of "
                         "floats, call .float() on it")
    if pos_weight is None:
        return losses(bce_logits_op, reduction, input, target, weight=weight,
                      kind=dtype_of(target))
    return losses(bce_weighted_op, reduction, input, target, pos_weight, weight=weight,
                  kind=dtype_of(target))


@in_float32
def kl_div(input: Any, target: Any, size_average: Any = None, reduce: Any = None,
           reduction: str = "mean", log_target: bool = False) -> Any:
    """target·(log target - input) for log probabilities `input`; "batchmean" divides the sum by N.
    """
    batch = reduction == "batchmean"
    reduction = _start("kl_div", (input, target), size_average, reduce,
                       "sum" if batch else reduction)
    if reduction == "mean":
        warn("reduction: 'mean' divides the total loss by both the batch size and the support "
             "size.'batchmean' divides only by the batch size, and aligns with the KL math "
             "definition.")
    if not (is_inexact(dtype_of(input)) and is_inexact(dtype_of(target))):
        raise DTypeError("kl_div: Integral inputs not supported.")
    if log_target:
        found = mul(exp(target), sub(target, input))
    else:
        found = sub(xlogy_op(target, target), mul(target, input))
    out = reduced(found, reduction)
    return div(out, float(input.shape[0])) if batch and len(input.shape) else out


@in_float32
def poisson_nll_loss(input: Any, target: Any, log_input: bool = True, full: bool = False,
                     size_average: Any = None, eps: float = 1e-8, reduce: Any = None,
                     reduction: str = "mean") -> Any:
    """exp(x) - y·x (or x - y·log x), with Stirling's term for y > 1 if `full`."""
    reduction = _start("poisson_nll_loss", (input, target), size_average, reduce, reduction)
    if log_input:
        found = sub(exp(input), mul(target, input))
    else:
        found = sub(input, mul(target, log(add(input, eps))))
    if full:
        small = le(target, 1)
        y = where_op(small, 2.0, target)
        stirling = add(sub(mul(y, log(y)), y), mul(log(mul(y, 2 * math.pi)), 0.5))
        found = add(found, where_op(small, 0.0, stirling))
    return reduced(found, reduction)


@typed
def gaussian_nll_loss(input: Any, target: Any, var: Any, full: bool = False, eps: float = 1e-6,
                      reduction: str = "mean") -> Any:
    """½(log var + (x - y)²/var); var is kept above eps, which its gradient does not see."""
    need_kernel("result type Float can't be cast to the desired output type {}", "biu", input)
    if reduction not in ("none", "mean", "sum"):
        raise ArgumentError(f"{reduction} is not valid; reduction is 'none', 'mean' or 'sum'")
    if isinstance(var, (int, float)):
        var = np.full(tuple(input.shape), var, dtype_of(input))
    need_kernel("lt_cpu", "c", var)
    if tuple(var.shape) != tuple(input.shape):
        if tuple(input.shape[:-1]) == tuple(var.shape):
            var = unsqueeze_op(var, dim=len(var.shape))
        elif len(var.shape) != len(input.shape) or any(
                v not in (1, n) for v, n in zip(var.shape, input.shape, strict=True)):
            raise ShapeError(f"var is of incorrect size: {list(var.shape)} for input "
                             f"{list(input.shape)}")
    values = raw(var)
    if isinstance(values, np.ndarray) and not getattr(var, "level", 0) and (values < 0).any():
        raise ArgumentError(f"var has negative entry/entries, the smallest is {values.min()}; pass "
                            "variances, exp(log_var) for instance")
    var = add(var, stopped(clamp_min(sub(eps, var), low=0.0)))
    found = gaussian_op(input, target, var)
    if full:
        found = add(found, 0.5 * math.log(2 * math.pi))
    return reduced(found, reduction)


@known_as("SoftMarginLossBackward0")
@in_float32
def soft_margin_loss(input: Any, target: Any, size_average: Any = None, reduce: Any = None,
                     reduction: str = "mean") -> Any:
    """log(1 + exp(-y·x)), reduced."""
    reduction = _start("soft_margin_loss", (input, target), size_average, reduce, reduction)
    need_kernel("result type Float can't be cast to the desired output type {}", "biu", input)
    return losses(soft_margin_op, reduction, input, target, kind=dtype_of(input))


@in_float32
def hinge_embedding_loss(input: Any, target: Any, margin: float = 1.0, size_average: Any = None,
                         reduce: Any = None, reduction: str = "mean") -> Any:
    """x where y = 1, max(0, margin - x) where y = -1."""
    reduction = _start("hinge_embedding_loss", (input, target), size_average, reduce, reduction)
    far = where_op(ne(target, 1), clamp_min(sub(margin, input), low=0.0), 0.0)
    return reduced(add(far, where_op(ne(target, -1), input, 0.0)), reduction)


@in_float32
def margin_ranking_loss(input1: Any, input2: Any, target: Any, margin: float = 0,
                        size_average: Any = None, reduce: Any = None,
                        reduction: str = "mean") -> Any:
    """max(0, -y·(x1 - x2) + margin)."""
    reduction = _start("margin_ranking_loss", (input1, input2, target), size_average, reduce,
                       reduction)
    if len({len(x.shape) for x in (input1, input2, target)}) > 1:
        raise ShapeError("margin_ranking_loss : All input tensors should have same dimension but "
                         f"got sizes: input1: {list(input1.shape)}, input2: {list(input2.shape)}, "
                         f"target: {list(target.shape)}")
    gap = mul(neg(target), sub(input1, input2))
    return reduced(clamp_min(add(gap, float(margin)), low=0.0), reduction)


@in_float32
def multilabel_soft_margin_loss(input: Any, target: Any, weight: Any = None,
                                size_average: Any = None, reduce: Any = None,
                                reduction: str = "mean") -> Any:
    """Mean over classes of the binary cross entropy of σ(x)."""
    reduction = _start("multilabel_soft_margin_loss", (input, target), size_average, reduce,
                       reduction)
    need_kernel("log_sigmoid_cpu", "biuc", input)
    found = bce_logits_op(input, target)
    if weight is not None:
        found = mul(found, weight)
    last = len(found.shape) - 1
    classes = found.shape[last]
    return reduced(div(sum_op(found, dim=(last,), keepdim=False), float(classes)), reduction)


def _of_classes(x: Any) -> Any:
    """`x` as (N, classes)."""
    if len(x.shape) > 2 or 0 in tuple(x.shape)[-1:]:
        raise ShapeError("Expected non-empty vector or matrix with optional 0-dim batch size, but "
                         f"got: {list(x.shape)}")
    return reshape(x, (1, -1)) if len(x.shape) < 2 else x


def _as_shape(target: Any, shape: tuple[int, ...]) -> Any:
    """The numbers of classes as an array of a shape; one without storage stays so."""
    t = raw(target)
    return MetaArray(shape, t.dtype) if type(t) is MetaArray else np.asarray(t).reshape(shape)


def _known(t: Any) -> bool:
    return type(t) is not MetaArray and bool(t.size)


@known_as("MultiMarginLossBackward0")
@in_float32
def multi_margin_loss(input: Any, target: Any, p: int = 1, margin: float = 1.0, weight: Any = None,
                      size_average: Any = None, reduce: Any = None,
                      reduction: str = "mean") -> Any:
    """Σ over classes i ≠ y of max(0, margin - x[y] + x[i])ᵖ / C."""
    reduction = _start("multi_margin_loss", (input, target), size_average, reduce, reduction)
    need_kernel("multi_margin_loss_cpu_kernel", "biuhc", input)
    if p not in (1, 2):
        raise ArgumentError("only p == 1 and p == 2 supported")
    single = len(input.shape) < 2
    x = _of_classes(input)
    t = _as_shape(target, (math.prod(target.shape), 1))
    if t.shape[0] != x.shape[0] or len(target.shape) > 1:
        raise ShapeError("multi_margin_loss: target tensor should be 1-D with size equal to the "
                         "number of input samples (batch size). Expected target size "
                         f"[{x.shape[0]}], but got {list(target.shape)}. Input has shape "
                         f"{list(input.shape)}.")
    n, classes = x.shape
    if _known(t) and not 0 <= t.min() <= t.max() < classes:
        raise ArgumentError(f"target out of range: {t.min()} to {t.max()}, there are {classes} "
                            "classes")
    if weight is not None and tuple(weight.shape) != (classes,):
        raise ShapeError("multi_margin_loss: " + ("weight must be one-dimensional" if len(
            weight.shape) != 1 else "inconsistent weight size, expected "
            f"{classes} but got {list(weight.shape)}"))
    if dtype_of(target) != I64:
        raise DTypeError("expected scalar type Long but found "
                         f"{scalar_type(dtype_of(target))} (target of multi_margin_loss)")
    if p == 1 and weight is None and n and classes:
        rows = multi_margin_op(x, _as_shape(t, (n,)), margin=float(margin))
        return reduced(reshape(rows, ()) if single else rows, reduction)
    gap = add(sub(x, gather_op(x, t, dim=1)), margin)
    own = np.full(t.shape, -np.inf, dtype_of(gap))
    gap = clamp_min(scatter_op(gap, t, own, dim=1), low=0.0)
    if p == 2:
        gap = mul(gap, gap)
    if weight is not None:
        gap = mul(gap, unsqueeze_op(gather_op(weight, _as_shape(t, (n,)), dim=0), dim=1))
    found = div(sum_op(gap, dim=(1,), keepdim=False), float(classes))
    return reduced(reshape(found, ()) if single else found, reduction)


@known_as("MultilabelMarginLossBackward0")
@in_float32
def multilabel_margin_loss(input: Any, target: Any, size_average: Any = None, reduce: Any = None,
                           reduction: str = "mean") -> Any:
    """Σ over target classes j and others i of max(0, 1 - (x[j] - x[i])) / C; targets end at -1."""
    reduction = _start("multilabel_margin_loss", (input, target), size_average, reduce, reduction)
    need_kernel("multilabel_margin_loss_forward_out_frame", "biuhc", input)
    single = len(input.shape) < 2
    x = _of_classes(input)
    if math.prod(target.shape) != math.prod(x.shape):
        raise ShapeError(f"multilabel_margin_loss: inconsistent target size: {list(target.shape)} "
                         f"for input of size: {list(input.shape)}")
    if dtype_of(target).kind not in "iu":
        raise DTypeError("multilabel_margin_loss: expected scalar type Long for argument 'target' "
                         f"but found {of_numpy(dtype_of(target)).name}; call .long() on it")
    t = _as_shape(target, tuple(x.shape))
    found = div(multilabel_op(x, t), float(t.shape[1]))
    return reduced(reshape(found, ()) if single else found, reduction)


# ------------------------------------------------------------------ distances
def _products_impl(a: Any, b: Any, /) -> Any:
    kernel = generated("row_products") if a.size >= MANY else None
    made = NotImplemented if kernel is None else kernel(a, b)
    if made is not NotImplemented:
        return made
    x, y = wide(a), wide(b)
    return tuple(narrowed(np.asarray((u * v).sum(-1)), a.dtype)
                 for u, v in ((x, y), (x, x), (y, y)))


@functools.cache
def _along_rows() -> Any:
    """The cotangent of one of two rows from those of a·b and a·a: ci b + 2 ca a."""
    return derived_op("row_products_backward", ("ci", "ca", "a", "b"), (),
                      var("ci") * var("b") + 2.0 * (var("ca") * var("a")))


def _products_vjp(cts: Any, a: Any, b: Any, wanted: Any) -> Any:
    shape, last = tuple(a.shape), (len(a.shape) - 1,)
    inner, left, right = (fill_like(Aval((), dtype_of(a))) if c is None else kept(c, shape, last)
                          for c in cts)
    return (_along_rows()(inner, left, a, b) if wanted[0] else None,
            _along_rows()(inner, right, b, a) if wanted[1] else None)


def _products_jvp(own: int) -> Any:
    def rule(t: Any, a: Any, b: Any) -> Any:
        mine, other = (b, a) if own else (a, b)
        sums = [sum_op(mul(t, x), dim=(len(a.shape) - 1,), keepdim=False) for x in (other, mine)]
        twice, none = mul(sums[1], 2.0), mul(sums[1], 0.0)
        return (sums[0], none, twice) if own else (sums[0], twice, none)
    return rule


def _products_infer(a: Aval, b: Aval) -> Any:
    return (Aval(a.shape[:-1], a.dtype),) * 3


products_op: Any = op(
    "row_products", impl=_products_impl, infer=_products_infer, outs=("inner", "left", "right"),
    prepare=promote, vjp={("a", "b"): _products_vjp},
    jvp={"a": _products_jvp(0), "b": _products_jvp(1)},
    batch=lambda op_, args, b, _: op_.call(*lift_all(args, b)), node="SumBackward1",
    cost=lambda a, b: 6 * a.size,
    domain=lambda: [((np.array([[0.5, -1.0, 2.0]] * 2), np.array([[1.5, 0.3, -0.7]] * 2)), {})],
    why={"a": "db = ci·a", "b": "da = ci·b + 2·ca·a"})


@typed
def cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Any:
    """x1·x2 / (max(‖x1‖, eps)·max(‖x2‖, eps)) along `dim`.

    >>> import adjoint as ad
    >>> ad.nn.functional.cosine_similarity(ad.tensor([[1.0, 0.0]]), ad.tensor([[2.0, 0.0]]))
    tensor([1.])
    """
    need("cosine_similarity", x1, x2)
    need_kernel("expected common dtype to be floating point, yet common dtype is {}", "biuc",
                x1, x2)
    kind = result_type([raw(x1), raw(x2)]) if dtype_of(x1) != dtype_of(x2) else dtype_of(x1)
    x1, x2 = (t if dtype_of(t) == kind else cast(t, dtype=kind) for t in (x1, x2))
    rank = max(len(x1.shape), len(x2.shape))
    if not rank:
        return reshape(cosine_similarity(reshape(x1, (1,)), reshape(x2, (1,)), 0, eps), ())
    d = (normalize_dim(dim, rank),)
    shape = broadcast_shapes("cosine_similarity", x1, x2)
    a, b = (t if tuple(t.shape) == shape else expand_op(t, shape=shape) for t in (x1, x2))
    na, nb = (clamp_min(norm_op(t, p=2.0, dim=d, keepdim=True), low=eps) for t in (a, b))
    return sum_op(mul(div(a, na), div(b, nb)), dim=d, keepdim=False)


@typed
def pairwise_distance(x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6,
                      keepdim: bool = False) -> Any:
    """The p-norm of x1 - x2 + eps over the last axis."""
    need_kernel(TWO_BOOLEANS, "b", x1)
    if is_inexact(dtype_of(x1)) or is_inexact(dtype_of(x2)):
        gap = gap_op(x1, x2, eps=float(eps))
    else:
        gap = add(sub(x1, x2), float(eps))              # whole numbers wrap first
    rank = len(gap.shape)
    return norm_op(gap, p=float(p), dim=(rank - 1,) if rank else (), keepdim=keepdim)


@in_float32
def cosine_embedding_loss(input1: Any, input2: Any, target: Any, margin: float = 0,
                          size_average: Any = None, reduce: Any = None,
                          reduction: str = "mean") -> Any:
    """1 - cos where y = 1, max(0, cos - margin) where y = -1."""
    reduction = _start("cosine_embedding_loss", (input1, input2, target), size_average, reduce,
                       reduction)
    need_kernel("clamp is not supported for complex types", "c", input1)
    d = len(input1.shape) - 1
    if len(target.shape) != d:
        raise ShapeError(f"{d}D target tensor expected, multi-target not supported: "
                         f"cosine_embedding_loss of {d + 1}-d inputs takes a {d}-d target, got "
                         f"target {list(target.shape)}")
    if len(input2.shape) != d + 1:
        raise ShapeError(f"{d}D target tensor expects {d + 1}D input tensors, but found inputs "
                         f"with sizes {list(input1.shape)} and {list(input2.shape)}.")
    shape = broadcast_shapes("cosine_embedding_loss", input1, input2)
    a, b = (t if tuple(t.shape) == shape else expand_op(t, shape=shape) for t in (input1, input2))
    a, b = (cast(t, dtype=I64) if dtype_of(t).kind == "b" else t for t in (a, b))   # they count
    if dtype_of(a).kind in "iu" and dtype_of(b).kind in "iu":   # sums of integers are int64
        products = [sum_op(cast(mul(u, v), dtype=I64), dim=(d,), keepdim=False)
                    for u, v in ((a, b), (a, a), (b, b))]
    else:
        products = products_op(a, b)
    found = cosine_op(*products, target, margin=float(margin), eps=1e-12)
    return reduced(cast_to(found, dtype_of(products[0])) if is_inexact(dtype_of(products[0]))
                   else found, reduction)


@in_float32
def triplet_margin_loss(anchor: Any, positive: Any, negative: Any, margin: float = 1.0,
                        p: float = 2, eps: float = 1e-6, swap: bool = False,
                        size_average: Any = None, reduce: Any = None,
                        reduction: str = "mean") -> Any:
    """max(0, d(a, p) - d(a, n) + margin) with p-norm distances."""
    reduction = _start("triplet_margin_loss", (anchor, positive, negative), size_average, reduce,
                       reduction)
    if margin <= 0:
        raise ArgumentError(f"triplet_margin_loss: margin must be greater than 0, got {margin}")

    def distance(a: Any, b: Any) -> Any:
        return pairwise_distance(a, b, p, eps)
    return _triplet(anchor, positive, negative, distance, margin, swap, reduction)


def _triplet(a: Any, pos: Any, other: Any, distance: Callable[..., Any], margin: float, swap: bool,
             reduction: str) -> Any:
    from adjoint.ops.pointwise import minimum
    ranks = [len(x.shape) for x in (a, pos, other)]
    if len(set(ranks)) > 1:
        raise ShapeError("The anchor, positive, and negative tensors are expected to have the same "
                         "number of dimensions, but got: anchor {}D, positive {}D, and negative {}D"
                         " inputs".format(*ranks))
    near, far = distance(a, pos), distance(a, other)
    if swap:
        far = minimum(far, distance(pos, other))
    return reduced(clamp_min(add(sub(near, far), margin), low=0.0), reduction)


@typed
def triplet_margin_with_distance_loss(anchor: Any, positive: Any, negative: Any, *,
                                      distance_function: Any = None, margin: float = 1.0,
                                      swap: bool = False, reduction: str = "mean") -> Any:
    """`triplet_margin_loss` with a distance of one's own."""
    check_reduction(reduction)
    if margin <= 0:
        raise ArgumentError(f"margin must be greater than 0, got {margin}")
    return _triplet(anchor, positive, negative, distance_function or pairwise_distance, margin,
                    swap, reduction)
