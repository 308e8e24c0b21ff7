"""`torchvision.transforms.v2`: the transforms under their newer address, and its own."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import Tensor
from adjoint.distributions import Beta
from adjoint.nn import Module
from adjoint.nn.functional import one_hot
from adjoint.ops.create import from_numpy, tensor
from adjoint.ops.random import multinomial, randperm
from adjoint.vision import transforms as _transforms
from adjoint.vision.transforms import functional as functional
from adjoint.vision.transforms.draws import integer


class ToImage(Module):
    """An image (PIL, array (H, W, C) or (H, W)) as a tensor (C, H, W) of the same numbers.

    >>> ToImage()(np.zeros((4, 5, 3), np.uint8)).shape
    adjoint.Size([3, 4, 5])
    """

    def forward(self, pic: Any) -> Tensor:
        if isinstance(pic, Tensor):
            return pic
        if not isinstance(pic, np.ndarray):
            made: Tensor = functional.pil_to_tensor(pic)
            return made
        image = pic[:, :, None] if pic.ndim == 2 else pic
        made = from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))
        return made


class ToDtype(Module):
    """An image tensor in another dtype; `scale` maps the range of integers to 0..1 and back.

    >>> import adjoint as ad
    >>> ToDtype(ad.float32, scale=True)(ToImage()(np.full((1, 1), 255, np.uint8))).item()
    1.0
    """

    def __init__(self, dtype: Any, scale: bool = False) -> None:
        super().__init__()
        self.dtype, self.scale = dtype, scale

    def forward(self, image: Tensor) -> Tensor:
        made: Tensor = (functional.convert_image_dtype(image, self.dtype) if self.scale
                        else image.to(self.dtype))
        return made

    def extra_repr(self) -> str:
        return f"scale={self.scale}"


class Identity(Module):
    """Nothing done."""

    def forward(self, *inputs: Any) -> Any:
        return inputs if len(inputs) > 1 else inputs[0]


class RandomChoice(_transforms.RandomChoice):
    """One of `transforms`, with probabilities proportional to `p`, by the default generator."""

    def forward(self, img: Any) -> Any:
        p = [1.0] * len(self.transforms) if self.p is None else self.p
        chosen = multinomial(tensor([v / sum(p) for v in p]), 1)
        return self.transforms[int(chosen.item())](img)


class RandomOrder(_transforms.RandomOrder):
    """All of `transforms` in an order drawn by the default generator."""

    def forward(self, img: Any) -> Any:
        for i in randperm(len(self.transforms)).tolist():
            img = self.transforms[i](img)
        return img


class _Mixed(Module):
    """A batch of images and labels mixed with the same batch moved on by one.

    Takes (images, labels), or a dict with `images` under any name and labels under "labels" or
    "label"; labels are numbers of classes (N,), or probabilities (N, classes).
    """

    def __init__(self, *, alpha: float = 1.0, num_classes: int | None = None,
                 labels_getter: Any = "default") -> None:
        super().__init__()
        if labels_getter is not None and labels_getter != "default" and not callable(
                labels_getter):
            raise ArgumentError(f"labels_getter: 'default', a function or None, got "
                                f"{labels_getter!r}")
        self.alpha, self.num_classes, self.labels_getter = alpha, num_classes, labels_getter
        self._dist = Beta(tensor([float(alpha)]), tensor([float(alpha)]))

    def _labels(self, inputs: Any) -> Tensor:
        if callable(self.labels_getter):
            found: Tensor = self.labels_getter(inputs)
            return found
        if isinstance(inputs, dict):
            for name in ("labels", "label"):
                if name in inputs:
                    return self._labels((None, inputs[name]))
            raise ArgumentError(f"{type(self).__name__}: no 'labels' among {list(inputs)}")
        tensors = [v for v in inputs[1:] if isinstance(v, Tensor)]
        if not tensors:
            raise ArgumentError(f"{type(self).__name__} takes a batch of images and its labels")
        return tensors[0]

    def forward(self, *inputs: Any) -> Any:
        given = inputs if len(inputs) > 1 else inputs[0]
        labels = self._labels(given)
        if labels.ndim > 2 or not isinstance(labels, Tensor):
            raise ArgumentError("labels should be index based with shape (batch_size,) or "
                                "probability based with shape (batch_size, num_classes), but got "
                                f"a tensor of shape {labels.shape} instead.")
        if labels.ndim == 1 and self.num_classes is None:
            raise ArgumentError("num_classes must be passed if the labels are index-based (1D)")
        keys = list(given) if isinstance(given, dict) else range(len(given))
        image = next((k for k in keys if isinstance(given[k], Tensor)
                      and given[k] is not labels and given[k].ndim >= 3), None)
        if image is None:
            raise ArgumentError(f"{type(self).__name__}: no batch of images in the inputs")
        batch = given[image]
        if batch.ndim != 4:
            raise ArgumentError(f"Expected a batched input with 4 dims, but got {batch.ndim} "
                                "dimensions instead.")
        if len(batch) != len(labels):
            raise ArgumentError("The batch size of the image or video does not match the batch "
                                f"size of the labels: {len(batch)} != {len(labels)}.")
        share, mixed = self._mix(batch, float(self._dist.sample(()).item()))
        classes = labels if labels.ndim == 2 else one_hot(labels, self.num_classes or -1)
        classes = classes if classes.is_floating_point() else classes.float()
        changed = {k: given[k] for k in keys}
        changed[image] = mixed
        weighted = classes.roll(1, 0) * (1.0 - share) + classes * share
        for k in keys:
            if given[k] is labels:
                changed[k] = weighted
        return changed if isinstance(given, dict) else type(given)(changed.values())

    def _mix(self, batch: Tensor, share: float) -> tuple[float, Tensor]:
        raise NotImplementedError

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}, num_classes={self.num_classes}"


class MixUp(_Mixed):
    """Images and labels as weighted means of two; the weight is drawn from Beta(alpha, alpha).
    Source: Zhang et al., 2017, arXiv:1710.09412.

    >>> import adjoint as ad
    >>> images, labels = MixUp(num_classes=2)(ad.ones(2, 1, 4, 4), ad.tensor([0, 1]))
    >>> labels.shape
    adjoint.Size([2, 2])
    """

    def _mix(self, batch: Tensor, share: float) -> tuple[float, Tensor]:
        if not batch.is_floating_point():
            raise ArgumentError(f"MixUp mixes floats, the images are {batch.dtype}; scale them "
                                "first: v2.ToDtype(torch.float32, scale=True)")
        return share, batch.roll(1, 0) * (1.0 - share) + batch * share


class CutMix(_Mixed):
    """A rectangle of each image from the one before it, labels mixed by area; the area is drawn
    from Beta(alpha, alpha). Source: Yun et al., 2019, arXiv:1905.04899.

    >>> import adjoint as ad
    >>> images, labels = CutMix(num_classes=2)(ad.ones(2, 1, 4, 4), ad.tensor([0, 1]))
    >>> images.sum().item()
    32.0
    """

    def _mix(self, batch: Tensor, share: float) -> tuple[float, Tensor]:
        h, w = batch.shape[-2:]
        x, y, half = integer(0, w), integer(0, h), 0.5 * math.sqrt(1.0 - share)
        columns = slice(max(x - int(half * w), 0), min(x + int(half * w), w))
        rows = slice(max(y - int(half * h), 0), min(y + int(half * h), h))
        mixed = batch.clone()
        mixed[..., rows, columns] = batch.roll(1, 0)[..., rows, columns]
        area = (columns.stop - columns.start) * (rows.stop - rows.start)
        return 1.0 - area / (h * w), mixed


def __getattr__(name: str) -> Any:
    """All the others are those of `adjoint.vision.transforms`."""
    return getattr(_transforms, name)
