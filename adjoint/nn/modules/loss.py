"""Losses: scalars (or tensors, with ``reduction="none"``) that say how far outputs are off.

``reduction`` is "mean" (default), "sum" or "none". ``size_average`` and ``reduce`` are its old
names: (True, True) is "mean", (False, True) "sum", reduce=False "none".
"""
from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable
from typing import Any

import adjoint.nn.functional as F
from adjoint.base.errors import ArgumentError, DTypeError, ShapeError
from adjoint.core.tensor import Tensor
from adjoint.nn.modules.distance import PairwiseDistance
from adjoint.nn.modules.linear import Linear
from adjoint.nn.modules.module import Module
from adjoint.ops.cross_entropy import legacy_reduction

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CosineEmbeddingLoss", "CrossEntropyLoss",
    "GaussianNLLLoss", "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss",
    "LinearCrossEntropyLoss", "LinearCrossEntropyOptions", "MSELoss",
    "MarginRankingLoss", "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss",
    "NLLLoss", "NLLLoss2d", "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss",
    "TripletMarginLoss", "TripletMarginWithDistanceLoss",
]


class _Loss(Module):
    reduction: str

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None,
                 reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = legacy_reduction(size_average, reduce, reduction)
        if self.reduction not in ("mean", "sum", "none"):
            raise ArgumentError(f"{type(self).__name__}: {reduction} is not a valid value for "
                                "reduction: use 'mean', 'sum' or 'none'")


class _WeightedLoss(_Loss):
    weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, size_average: bool | None = None,
                 reduce: bool | None = None, reduction: str = "mean") -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


class L1Loss(_Loss):
    """Absolute error ``|x - y|``.

    >>> import adjoint as ad
    >>> ad.nn.L1Loss()(ad.tensor([1.0, 4.0]), ad.tensor([0.0, 0.0])).item()
    2.5
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(input, target, reduction=self.reduction)


class MSELoss(_Loss):
    """Squared error ``(x - y)^2``.

    >>> import adjoint as ad
    >>> ad.nn.MSELoss()(ad.tensor([1.0, 3.0]), ad.tensor([0.0, 0.0])).item()
    5.0
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(input, target, reduction=self.reduction)


class SoftMarginLoss(_Loss):
    """``log(1 + exp(-y x))`` with targets y in {-1, 1}.

    >>> import adjoint as ad
    >>> round(ad.nn.SoftMarginLoss()(ad.tensor([0.0]), ad.tensor([1.0])).item(), 4)
    0.6931
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.soft_margin_loss(input, target, reduction=self.reduction)


class MultiLabelMarginLoss(_Loss):
    """Hinge between every listed and every other class: ``sum max(0, 1 - (x[y_j] - x[i])) / C``.

    Target (N, C) lists classes from the front and ends at the first -1.

    >>> import adjoint as ad
    >>> round(ad.nn.MultiLabelMarginLoss()(ad.tensor([0.1, 0.2, 0.4, 0.8]),
    ...       ad.tensor([3, 0, -1, 1])).item(), 4)
    0.85
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_margin_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """``(x - y)^2 / (2 beta)`` where |x - y| < beta, else ``|x - y| - beta / 2``.

    >>> import adjoint as ad
    >>> ad.nn.SmoothL1Loss()(ad.tensor([3.0]), ad.tensor([0.0])).item()
    2.5
    """

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None,
                 reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(_Loss):
    """``(x - y)^2 / 2`` where |x - y| < delta, else ``delta (|x - y| - delta / 2)`` (Huber 1964).

    >>> import adjoint as ad
    >>> ad.nn.HuberLoss(delta=2.0)(ad.tensor([3.0]), ad.tensor([0.0])).item()
    4.0
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        if isinstance(delta, bool) or not isinstance(delta, (int, float)):
            raise DTypeError(f"HuberLoss: delta must be a float or int, got: {type(delta)}")
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


class NLLLoss(_WeightedLoss):
    """``-weight[y] x[y]`` of log-probabilities x (N, C, *) and classes y (N, *).

    Positions with class ``ignore_index`` count for nothing; "mean" divides by the sum of the
    weights used.

    >>> import adjoint as ad
    >>> ad.nn.NLLLoss()(ad.tensor([[-1.0, -2.0]]), ad.tensor([1])).item()
    2.0
    """

    def __init__(self, weight: Tensor | None = None, size_average: bool | None = None,
                 ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean"
                 ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.nll_loss(input, target, weight=self.weight, ignore_index=self.ignore_index,
                          reduction=self.reduction)


class NLLLoss2d(NLLLoss):
    """Old name of NLLLoss for (N, C, H, W)."""

    def __init__(self, weight: Tensor | None = None, size_average: bool | None = None,
                 ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean"
                 ) -> None:
        warnings.warn("`NLLLoss2d` has been deprecated. Please use `NLLLoss`, which does the "
                      "same", FutureWarning, stacklevel=2)
        super().__init__(weight, size_average, ignore_index, reduce, reduction)


class CrossEntropyLoss(_WeightedLoss):
    """Cross entropy of logits x (N, C, *) and classes y (N, *) or class probabilities (N, C, *).

    ``label_smoothing`` mixes the target with the uniform distribution (Szegedy et al. 2015).
    Positions with class ``ignore_index`` count for nothing.

    >>> import adjoint as ad
    >>> round(ad.nn.CrossEntropyLoss()(ad.zeros(2, 4), ad.tensor([0, 3])).item(), 4)
    1.3863
    """

    def __init__(self, weight: Tensor | None = None, size_average: bool | None = None,
                 ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean",
                 label_smoothing: float = 0.0) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(input, target, weight=self.weight, ignore_index=self.ignore_index,
                               reduction=self.reduction, label_smoothing=self.label_smoothing)


class PoissonNLLLoss(_Loss):
    """Negative log-likelihood of Poisson counts: ``exp(x) - y x``, or ``x - y log(x + eps)`` if
    not ``log_input``; ``full`` adds Stirling's term for y > 1.

    >>> import adjoint as ad
    >>> ad.nn.PoissonNLLLoss()(ad.tensor([0.0]), ad.tensor([3.0])).item()
    1.0
    """

    def __init__(self, log_input: bool = True, full: bool = False,
                 size_average: bool | None = None, eps: float = 1e-8,
                 reduce: bool | None = None, reduction: str = "mean") -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_input = log_input
        self.full = full
        self.eps = eps

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        return F.poisson_nll_loss(log_input, target, log_input=self.log_input, full=self.full,
                                  eps=self.eps, reduction=self.reduction)


class GaussianNLLLoss(_Loss):
    """``(log var + (x - y)^2 / var) / 2`` with var >= eps (Nix and Weigend 1994); ``full`` adds
    the constant.

    >>> import adjoint as ad
    >>> ad.nn.GaussianNLLLoss()(ad.zeros(1), ad.ones(1), ad.ones(1)).item()
    0.5
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.full = full
        self.eps = eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        return F.gaussian_nll_loss(input, target, var, full=self.full, eps=self.eps,
                                   reduction=self.reduction)


class KLDivLoss(_Loss):
    """``y (log y - x)`` of log-probabilities x and probabilities y (their logarithms, if
    ``log_target``). "mean" divides by all elements, "batchmean" by the batch size.

    >>> import adjoint as ad
    >>> x = ad.tensor([[0.5, 0.5]])
    >>> ad.nn.KLDivLoss(reduction="batchmean")(x.log(), x).item()
    0.0
    """

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None,
                 reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(size_average, reduce,
                         "mean" if reduction == "batchmean" else reduction)
        if reduction == "batchmean":
            self.reduction = reduction
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class BCELoss(_WeightedLoss):
    """``-(y log x + (1 - y) log(1 - x))`` of probabilities x; logarithms are cut at -100.

    >>> import adjoint as ad
    >>> round(ad.nn.BCELoss()(ad.tensor([0.5]), ad.tensor([1.0])).item(), 4)
    0.6931
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy(input, target, weight=self.weight,
                                      reduction=self.reduction)


class BCEWithLogitsLoss(_Loss):
    """BCELoss of sigmoid(x), without overflow; ``pos_weight`` weighs the positive answers.

    >>> import adjoint as ad
    >>> round(ad.nn.BCEWithLogitsLoss()(ad.tensor([0.0]), ad.tensor([1.0])).item(), 4)
    0.6931
    """

    def __init__(self, weight: Tensor | None = None, size_average: bool | None = None,
                 reduce: bool | None = None, reduction: str = "mean",
                 pos_weight: Tensor | None = None) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(
            input, target, self.weight, pos_weight=self.pos_weight, reduction=self.reduction)


class HingeEmbeddingLoss(_Loss):
    """``x`` where y = 1, ``max(0, margin - x)`` where y = -1.

    >>> import adjoint as ad
    >>> ad.nn.HingeEmbeddingLoss()(ad.tensor([3.0, 0.5]), ad.tensor([1.0, -1.0])).item()
    1.75
    """

    def __init__(self, margin: float = 1.0, size_average: bool | None = None,
                 reduce: bool | None = None, reduction: str = "mean") -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.hinge_embedding_loss(input, target, margin=self.margin,
                                      reduction=self.reduction)


class CosineEmbeddingLoss(_Loss):
    """``1 - cos(x1, x2)`` where y = 1, ``max(0, cos(x1, x2) - margin)`` where y = -1.

    >>> import adjoint as ad
    >>> x = ad.tensor([[1.0, 0.0]])
    >>> ad.nn.CosineEmbeddingLoss()(x, x, ad.tensor([-1])).item()
    1.0
    """

    def __init__(self, margin: float = 0.0, size_average: bool | None = None,
                 reduce: bool | None = None, reduction: str = "mean") -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.cosine_embedding_loss(input1, input2, target, margin=self.margin,
                                       reduction=self.reduction)


class MarginRankingLoss(_Loss):
    """``max(0, -y (x1 - x2) + margin)`` with y in {-1, 1}.

    >>> import adjoint as ad
    >>> ad.nn.MarginRankingLoss()(ad.tensor([1.0]), ad.tensor([3.0]), ad.tensor([1.0])).item()
    2.0
    """

    def __init__(self, margin: float = 0.0, size_average: bool | None = None,
                 reduce: bool | None = None, reduction: str = "mean") -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.margin_ranking_loss(input1, input2, target, margin=self.margin,
                                     reduction=self.reduction)


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """Mean over the classes of the binary cross entropy of logits x and targets y, both (N, C).

    >>> import adjoint as ad
    >>> loss = ad.nn.MultiLabelSoftMarginLoss()
    >>> round(loss(ad.zeros(1, 2), ad.tensor([[1.0, 0.0]])).item(), 4)
    0.6931
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_soft_margin_loss(input, target, weight=self.weight,
                                             reduction=self.reduction)


class MultiMarginLoss(_WeightedLoss):
    """``sum_(i != y) max(0, margin - x[y] + x[i])^p / C`` with p = 1 or 2.

    >>> import adjoint as ad
    >>> ad.nn.MultiMarginLoss()(ad.tensor([[0.0, 1.0]]), ad.tensor([0])).item()
    1.0
    """

    def __init__(self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None,
                 size_average: bool | None = None, reduce: bool | None = None,
                 reduction: str = "mean") -> None:
        if p not in (1, 2):
            raise ArgumentError(f"MultiMarginLoss: only p == 1 and p == 2 supported, got {p}")
        if weight is not None and weight.ndim != 1:
            raise ArgumentError("MultiMarginLoss: expected weight to be None or 1D tensor, got "
                                f"{weight.ndim}D instead, of shape {tuple(weight.shape)}")
        super().__init__(weight, size_average, reduce, reduction)
        self.p = p
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multi_margin_loss(input, target, p=self.p, margin=self.margin,
                                   weight=self.weight, reduction=self.reduction)


class TripletMarginLoss(_Loss):
    """``max(0, d(a, p) - d(a, n) + margin)`` with the p-norm distance d (Balntas et al. 2016).

    ``swap`` uses the smaller of d(a, n) and d(p, n).

    >>> import adjoint as ad
    >>> x = ad.zeros(1, 2)
    >>> ad.nn.TripletMarginLoss()(x, x, x).item()
    1.0
    """

    def __init__(self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False,
                 size_average: bool | None = None, reduce: bool | None = None,
                 reduction: str = "mean") -> None:
        if margin <= 0:
            raise ArgumentError(f"TripletMarginLoss: expected margin to be greater than 0, got "
                                f"{margin} instead")
        super().__init__(size_average, reduce, reduction)
        self.margin = margin
        self.p = p
        self.eps = eps
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_loss(anchor, positive, negative, margin=self.margin, p=self.p,
                                     eps=self.eps, swap=self.swap, reduction=self.reduction)


class TripletMarginWithDistanceLoss(_Loss):
    """TripletMarginLoss with a distance function of your own (None: PairwiseDistance()).

    >>> import adjoint as ad
    >>> loss = ad.nn.TripletMarginWithDistanceLoss(
    ...     distance_function=lambda x, y: (x - y).abs().sum(-1))
    >>> loss(ad.zeros(1, 2), ad.zeros(1, 2), ad.ones(1, 2)).item()
    0.0
    """

    def __init__(self, *, distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
                 margin: float = 1.0, swap: bool = False, reduction: str = "mean") -> None:
        if margin <= 0:
            raise ArgumentError("TripletMarginWithDistanceLoss: expected margin to be greater "
                                f"than 0, got {margin} instead")
        super().__init__(reduction=reduction)
        self.distance_function: Any = (distance_function if distance_function is not None
                                       else PairwiseDistance())
        self.margin = margin
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_with_distance_loss(
            anchor, positive, negative, distance_function=self.distance_function,
            margin=self.margin, swap=self.swap, reduction=self.reduction)


@dataclasses.dataclass(frozen=True)
class LinearCrossEntropyOptions:
    """How PyTorch is to cut `linear_cross_entropy` into parts. Here it always runs in blocks of
    rows, keeps no logits and may be differentiated again, so nothing depends on these."""

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: Any = None


class LinearCrossEntropyLoss(_WeightedLoss):
    """Cross entropy of a linear map of the input, without keeping the logits: input (N,
    in_features) or (in_features,), target as `CrossEntropyLoss` takes it for logits
    (N, num_classes, *out_features).

    ``linear`` is the map, with num_classes times prod(out_features) outputs.

    >>> import adjoint as ad
    >>> loss = ad.nn.LinearCrossEntropyLoss(5, 10)
    >>> loss(ad.zeros(2, 5), ad.tensor([3, 9]))
    tensor(2.3026, grad_fn=<LinearCrossEntropyBackward0>)
    """

    def __init__(self, in_features: int, num_classes: int, *, out_features: tuple[int, ...] = (),
                 bias: bool = False, device: Any = None, dtype: Any = None,
                 reduction: str = "mean", weight: Tensor | None = None,
                 ignore_index: int | None = None, label_smoothing: float = 0.0,
                 options: LinearCrossEntropyOptions | None = None) -> None:
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise ShapeError(f"expected weight shape to be ({num_classes},), got "
                             f"{tuple(weight.shape)}: one number per class")
        super().__init__(weight, reduction=reduction)
        self.num_classes, self.out_features = num_classes, tuple(out_features)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing
        self.options = options
        self.linear = Linear(in_features, num_classes * math.prod(self.out_features), bias, device,
                             dtype)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        shape = (self.num_classes, *self.out_features)
        bias = None if self.linear.bias is None else self.linear.bias.reshape(shape)
        return F.linear_cross_entropy(
            input, self.linear.weight.reshape(*shape, self.linear.in_features), target,
            linear_bias=bias, weight=self.weight, reduction=self.reduction,
            ignore_index=self.ignore_index, label_smoothing=self.label_smoothing,
            options=self.options)

    def extra_repr(self) -> str:
        return (f"in_features={self.linear.in_features}, num_classes={self.num_classes}, "
                f"out_features={self.out_features}, bias={self.linear.bias is not None}, "
                f"reduction={self.reduction}, ignore_index={self.ignore_index}, "
                f"label_smoothing={self.label_smoothing}, options={self.options}")


class CTCLoss(_Loss):
    """Connectionist temporal classification (Graves et al. 2006): log-probabilities (T, N, C),
    targets (N, S) or concatenated, and the lengths of both.

    ``zero_infinity`` turns infinite losses (targets longer than their input) into zeros.
    """

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False
                 ) -> None:
        super().__init__(reduction=reduction)
        self.blank = blank
        self.zero_infinity = zero_infinity

    def forward(self, log_probs: Tensor, targets: Tensor, input_lengths: Any,
                target_lengths: Any) -> Tensor:
        return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, self.blank,
                          self.reduction, self.zero_infinity)
