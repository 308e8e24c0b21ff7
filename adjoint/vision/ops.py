"""Boxes, regions and a few layers of detectors, under torchvision's names.

Boxes are rows (x1, y1, x2, y2) unless a format says otherwise; everything but `nms` is
differentiable.
"""
from __future__ import annotations

from typing import Any

import numpy as np

import adjoint as ad
from adjoint.base.errors import ArgumentError, ShapeError
from adjoint.core.tensor import Tensor, wrap
from adjoint.nn import Module
from adjoint.nn import functional as F
from adjoint.vision.deform import DeformConv2d, deform_conv2d
from adjoint.vision.layers import (
    MLP,
    Conv2dNormActivation,
    Conv3dNormActivation,
    Permute,
    SqueezeExcitation,
)

__path__: list[str] = []               # a package, as there: `ops.boxes` is imported from it
__all__ = ["MLP", "Conv2dNormActivation", "Conv3dNormActivation", "DeformConv2d",
           "FrozenBatchNorm2d", "Permute", "RoIAlign", "SqueezeExcitation", "StochasticDepth",
           "batched_nms", "box_area", "box_convert", "box_iou", "clip_boxes_to_image",
           "complete_box_iou", "deform_conv2d", "distance_box_iou", "generalized_box_iou",
           "generalized_box_iou_loss", "masks_to_boxes", "nms", "remove_small_boxes", "roi_align",
           "sigmoid_focal_loss", "stochastic_depth"]


def _boxes(name: str, *all_boxes: Tensor) -> None:
    for boxes in all_boxes:
        if boxes.ndim != 2 or boxes.shape[1] != 4:
            raise ShapeError(f"{name}: boxes have shape (N, 4), got {list(boxes.shape)}")


def box_area(boxes: Tensor) -> Any:
    """The areas (N,) of boxes (N, 4).

    >>> box_area(ad.tensor([[0.0, 0.0, 2.0, 3.0]]))
    tensor([6.])
    """
    _boxes("box_area", boxes)
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def box_convert(boxes: Tensor, in_fmt: str, out_fmt: str) -> Any:
    """Boxes (..., 4) in another format: corners "xyxy", corner and size "xywh", centre and size
    "cxcywh".

    >>> box_convert(ad.tensor([[1.0, 1.0, 3.0, 5.0]]), "xyxy", "cxcywh")
    tensor([[2., 3., 2., 4.]])
    """
    known = ("xyxy", "xywh", "cxcywh")
    if in_fmt not in known or out_fmt not in known:
        raise ArgumentError(f"box_convert: formats are {', '.join(known)}, got {in_fmt!r} to "
                            f"{out_fmt!r}")
    if in_fmt == out_fmt:
        return boxes.clone()
    first, second = boxes[..., :2], boxes[..., 2:]
    if in_fmt == "xyxy":
        low, size = first, second - first
    else:
        low, size = (first - 0.5 * second if in_fmt == "cxcywh" else first), second
    start = low + 0.5 * size if out_fmt == "cxcywh" else low
    return ad.cat([start, low + size if out_fmt == "xyxy" else size], -1)


def _overlap(a: Any, b: Any) -> tuple[Any, Any]:
    """Intersections and unions of boxes (..., 4) that broadcast."""
    sides = (ad.minimum(a[..., 2:], b[..., 2:]) - ad.maximum(a[..., :2], b[..., :2])).clamp(min=0)
    inter = sides.prod(-1)
    areas = [(x[..., 2:] - x[..., :2]).prod(-1) for x in (a, b)]
    return inter, areas[0] + areas[1] - inter


def _hull(a: Any, b: Any) -> Any:
    """Width and height of the smallest boxes around both."""
    return ad.maximum(a[..., 2:], b[..., 2:]) - ad.minimum(a[..., :2], b[..., :2])


def _pairs(name: str, boxes1: Tensor, boxes2: Tensor) -> tuple[Any, Any]:
    _boxes(name, boxes1, boxes2)
    return boxes1[:, None], boxes2[None]


def box_iou(boxes1: Tensor, boxes2: Tensor) -> Any:
    """Intersection over union of all pairs: (N, 4) and (M, 4) give (N, M).

    >>> box_iou(ad.tensor([[0.0, 0, 2, 2]]), ad.tensor([[0.0, 0, 2, 1], [5, 5, 6, 6]]))
    tensor([[0.5000, 0.0000]])
    """
    inter, union = _overlap(*_pairs("box_iou", boxes1, boxes2))
    return inter / union


def _giou(a: Any, b: Any, eps: float = 0.0) -> Any:
    inter, union = _overlap(a, b)
    area = _hull(a, b).prod(-1)
    return inter / (union + eps) - (area - union) / (area + eps)


def generalized_box_iou(boxes1: Tensor, boxes2: Tensor) -> Any:
    """IoU less the share of the smallest box around both that neither covers: (N, M).
    Source: Rezatofighi et al., 2019, algorithm 1.

    >>> generalized_box_iou(ad.tensor([[0.0, 0, 1, 1]]), ad.tensor([[1.0, 0, 3, 1]]))
    tensor([[0.]])
    """
    return _giou(*_pairs("generalized_box_iou", boxes1, boxes2))


def generalized_box_iou_loss(boxes1: Tensor, boxes2: Tensor, reduction: str = "none",
                             eps: float = 1e-7) -> Any:
    """1 - GIoU of boxes row by row: (N,), or its "mean" or "sum"."""
    _boxes("generalized_box_iou_loss", boxes1, boxes2)
    return _reduced("generalized_box_iou_loss", 1 - _giou(boxes1, boxes2, eps), reduction)


def _reduced(name: str, loss: Any, reduction: str) -> Any:
    if reduction not in ("none", "mean", "sum"):
        raise ArgumentError(f"{name}: reduction is none, mean or sum, got {reduction!r}")
    return loss if reduction == "none" else getattr(loss, reduction)()


def _diou(a: Any, b: Any, eps: float) -> tuple[Any, Any]:
    inter, union = _overlap(a, b)
    iou = inter / union
    apart = (a[..., :2] + a[..., 2:] - b[..., :2] - b[..., 2:]) / 2
    return iou - apart.square().sum(-1) / (_hull(a, b).square().sum(-1) + eps), iou


def distance_box_iou(boxes1: Tensor, boxes2: Tensor, eps: float = 1e-7) -> Any:
    """IoU less the squared distance of the centres over the squared diagonal of the smallest box
    around both: (N, M). Source: Zheng et al., 2020, equation 6."""
    return _diou(*_pairs("distance_box_iou", boxes1, boxes2), eps)[0]


def complete_box_iou(boxes1: Tensor, boxes2: Tensor, eps: float = 1e-7) -> Any:
    """`distance_box_iou` less a term for the ratios of the sides: (N, M).
    Source: Zheng et al., 2020, equations 8 to 11."""
    a, b = _pairs("complete_box_iou", boxes1, boxes2)
    diou, iou = _diou(a, b, eps)
    angles = [ad.atan((x[..., 2] - x[..., 0]) / (x[..., 3] - x[..., 1])) for x in (b, a)]
    v = (4 / np.pi ** 2) * (angles[0] - angles[1]).square()
    return diou - (v / (1 - iou + v + eps)).detach() * v


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Any:
    """The rows of boxes (N, 4) that stay when, from the highest score (N,) on, each box removes
    those that overlap it by more than the threshold: int64, by falling score.

    >>> b = ad.tensor([[0.0, 0, 2, 2], [0, 0, 2, 1.9], [5, 5, 6, 6]])
    >>> nms(b, ad.tensor([0.5, 0.9, 0.1]), 0.5)
    tensor([1, 2])
    """
    _boxes("nms", boxes)
    if scores.shape != boxes.shape[:1]:
        raise ShapeError(f"nms: scores have shape ({boxes.shape[0]},), one per box, got "
                         f"{list(scores.shape)}")
    b = boxes.detach().numpy().astype(np.float64)
    order = np.argsort(-scores.detach().numpy().astype(np.float64), kind="stable")
    area = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    keep = []
    while order.size:
        i, order = order[0], order[1:]
        keep.append(i)
        sides = np.minimum(b[i, 2:], b[order, 2:]) - np.maximum(b[i, :2], b[order, :2])
        inter = np.maximum(sides, 0).prod(-1)
        with np.errstate(invalid="ignore", divide="ignore"):     # boxes of no area stay
            order = order[~(inter / (area[i] + area[order] - inter) > iou_threshold)]
    return wrap(np.array(keep, np.int64))


def batched_nms(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Any:
    """`nms` within each group of equal `idxs` (N,): boxes of different classes do not compete."""
    _boxes("batched_nms", boxes)
    if boxes.numel() == 0:
        return ad.empty(0, dtype=ad.int64)
    shift = idxs.to(boxes.dtype) * (boxes.max() - boxes.min() + 1)
    return nms(boxes + shift[:, None], scores, iou_threshold)


def clip_boxes_to_image(boxes: Tensor, size: tuple[int, int]) -> Any:
    """Boxes (..., 4) cut at the edges of an image of (height, width)."""
    height, width = size
    return ad.stack([boxes[..., 0::2].clamp(0, width), boxes[..., 1::2].clamp(0, height)],
                    -1).flatten(-2)


def remove_small_boxes(boxes: Tensor, min_size: float) -> Any:
    """The rows of boxes (N, 4) that are at least `min_size` wide and high."""
    _boxes("remove_small_boxes", boxes)
    return ad.nonzero(((boxes[:, 2:] - boxes[:, :2]) >= min_size).all(1), as_tuple=True)[0]


def masks_to_boxes(masks: Tensor) -> Any:
    """The boxes (N, 4) around what is not 0 in masks (N, H, W); zeros for an empty mask."""
    found = ad.zeros(masks.shape[0], 4)
    for i, mask in enumerate(masks):
        y, x = ad.where(mask != 0)
        if y.numel():
            found[i] = ad.stack([x.min(), y.min(), x.max(), y.max()]).to(found.dtype)
    return found


def roi_align(input: Tensor, boxes: Any, output_size: Any, spatial_scale: float = 1.0,
              sampling_ratio: int = -1, aligned: bool = False) -> Any:
    """What lies under boxes of feature maps (B, C, H, W): (K, C, *output_size).

    `boxes` is (K, 5) with the number of the image first, or a list of (K_i, 4), one per image.
    Each cell of the result is the mean of `sampling_ratio` by `sampling_ratio` bilinear samples;
    not positive: as many as the box has pixels per cell, rounded up. `aligned` shifts the grid by
    half a pixel, as the pixels' middles lie. Source: He et al., 2017 (Mask R-CNN), section 3.

    >>> x = ad.arange(16.0).reshape(1, 1, 4, 4)
    >>> roi_align(x, [ad.tensor([[0.0, 0, 2, 2]])], 1, sampling_ratio=1).item()
    5.0
    """
    if input.ndim != 4:
        raise ShapeError(f"roi_align: input is (B, C, H, W), got {list(input.shape)}")
    if not isinstance(boxes, Tensor):
        boxes = ad.cat([ad.cat([ad.full((len(b), 1), i, dtype=b.dtype), b], 1)
                        for i, b in enumerate(boxes)])
    if boxes.ndim != 2 or boxes.shape[1] != 5:
        raise ShapeError("roi_align: boxes are (K, 5) with the image's number first, or a list of "
                         f"(K, 4), got {list(boxes.shape)}")
    high, wide = (output_size,) * 2 if isinstance(output_size, int) else output_size
    found = [_region(input[int(row[0])], row[1:] * spatial_scale - 0.5 * aligned, high, wide,
                     sampling_ratio, aligned) for row in boxes.detach().to(input.dtype)]
    return ad.stack(found) if found else input.new_zeros((0, input.shape[1], high, wide))


def _region(image: Any, box: Any, high: int, wide: int, ratio: int, aligned: bool) -> Any:
    """One box (4,) of an image (C, H, W), in its pixels."""
    x1, y1, x2, y2 = box.tolist()
    height, width = y2 - y1, x2 - x1
    if not aligned:
        height, width = max(height, 1.0), max(width, 1.0)
    ys = _samples(y1, height, high, ratio)
    xs = _samples(x1, width, wide, ratio)
    weights_y, weights_x = (_interpolation(at, n, image) for at, n in
                            zip((ys, xs), image.shape[1:], strict=True))
    return weights_y @ image @ weights_x.mT


def _samples(start: float, length: float, cells: int, ratio: int) -> np.ndarray[Any, Any]:
    """Where samples are taken along an axis: (cells, samples per cell)."""
    each = ratio if ratio > 0 else max(int(np.ceil(length / cells)), 1)
    steps = np.arange(cells)[:, None] + (np.arange(each) + 0.5) / each
    return np.asarray(start + steps * (length / cells))


def _interpolation(at: np.ndarray[Any, Any], n: int, like: Tensor) -> Any:
    """The matrix (cells, n) that takes the mean over samples (cells, each) of linear interpolation
    on an axis of n pixels; a sample more than a pixel outside counts as zero."""
    inside = (at >= -1) & (at <= n)
    at = np.clip(at, 0, n - 1)
    low = at.astype(int)
    rest = at - low
    w = np.zeros((at.shape[0], n))
    row = np.broadcast_to(np.arange(at.shape[0])[:, None], at.shape)
    np.add.at(w, (row, low), (1 - rest) * inside)
    np.add.at(w, (row, np.minimum(low + 1, n - 1)), rest * inside)
    return wrap(w / at.shape[1]).to(like.dtype)


class RoIAlign(Module):
    """`roi_align` as a layer."""

    def __init__(self, output_size: Any, spatial_scale: float, sampling_ratio: int,
                 aligned: bool = False) -> None:
        super().__init__()
        self.output_size, self.spatial_scale = output_size, spatial_scale
        self.sampling_ratio, self.aligned = sampling_ratio, aligned

    def forward(self, input: Tensor, rois: Any) -> Any:
        return roi_align(input, rois, self.output_size, self.spatial_scale, self.sampling_ratio,
                         self.aligned)

    def extra_repr(self) -> str:
        return (f"output_size={self.output_size}, spatial_scale={self.spatial_scale}, "
                f"sampling_ratio={self.sampling_ratio}, aligned={self.aligned}")


def sigmoid_focal_loss(inputs: Tensor, targets: Tensor, alpha: float = 0.25, gamma: float = 2,
                       reduction: str = "none") -> Any:
    """Binary cross entropy of logits, weighed down where the answer is right already; a negative
    `alpha` does not weigh the classes. Source: Lin et al., 2017, equation 5.

    >>> round(sigmoid_focal_loss(ad.zeros(1), ad.ones(1)).item(), 4)
    0.0433
    """
    p = inputs.sigmoid()
    right = p * targets + (1 - p) * (1 - targets)
    loss = F.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
    loss = loss * (1 - right) ** gamma
    if alpha >= 0:
        loss = (alpha * targets + (1 - alpha) * (1 - targets)) * loss
    return _reduced("sigmoid_focal_loss", loss, reduction)


def stochastic_depth(input: Tensor, p: float, mode: str, training: bool = True) -> Any:
    """`input` times 0 with probability p, and otherwise by 1/(1-p): the whole "batch", or each
    "row" by itself. Source: Huang et al., 2016."""
    if not 0 <= p <= 1:
        raise ArgumentError(f"drop probability has to be between 0 and 1, but got {p}")
    if mode not in ("batch", "row"):
        raise ArgumentError(f"mode has to be either 'batch' or 'row', but got {mode}")
    if not training or p == 0.0:
        return input
    size = [input.shape[0] if mode == "row" else 1, *[1] * (input.ndim - 1)]
    kept = ad.empty(size, dtype=input.dtype).bernoulli_(1 - p)
    return input * (kept / (1 - p) if p < 1 else kept)


class StochasticDepth(Module):
    """`stochastic_depth` as a layer."""

    def __init__(self, p: float, mode: str) -> None:
        super().__init__()
        self.p, self.mode = p, mode

    def forward(self, input: Tensor) -> Any:
        return stochastic_depth(input, self.p, self.mode, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}, mode={self.mode}"


class FrozenBatchNorm2d(Module):
    """Batch normalisation of (N, C, H, W) whose statistics, weight and bias never change."""

    weight: Any
    bias: Any
    running_mean: Any
    running_var: Any

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        for name, value in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0),
                            ("running_var", 1.0)):
            self.register_buffer(name, ad.full((num_features,), value))

    def forward(self, x: Tensor) -> Any:
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        shift = self.bias - self.running_mean * scale
        return x * scale[:, None, None] + shift[:, None, None]

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, eps={self.eps}"
