"""AdaptiveLogSoftmaxWithLoss: a softmax over many classes of which few are frequent."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import adjoint.nn.functional as F
from adjoint.base.errors import ArgumentError, IndexOutOfRange, ShapeError
from adjoint.core.tensor import Tensor
from adjoint.nn import _core
from adjoint.nn.modules.container import ModuleList, Sequential
from adjoint.nn.modules.linear import Linear
from adjoint.nn.modules.module import Module

__all__ = ["AdaptiveLogSoftmaxWithLoss"]


class _ASMoutput(NamedTuple):
    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log-softmax in a head of frequent classes and clusters of rare ones (Grave et al. 2017).

    Classes are numbered by falling frequency; ``cutoffs`` are where the clusters begin. Cluster
    i projects to in_features / div_value^(i+1) first. ``forward(input (N, in_features), target
    (N,))`` returns (log-probability of each target, mean negative log-likelihood).

    >>> import adjoint as ad
    >>> m = ad.nn.AdaptiveLogSoftmaxWithLoss(16, 20, [5, 10])
    >>> tuple(m.log_prob(ad.zeros(3, 16)).shape)
    (3, 20)
    """

    def __init__(self, in_features: int, n_classes: int, cutoffs: Sequence[int],
                 div_value: float = 4.0, head_bias: bool = False, device: Any = None,
                 dtype: Any = None) -> None:
        cuts = list(cutoffs)
        if not cuts:
            raise ArgumentError("cutoffs should be a sequence of length larger than 0")
        if (cuts != sorted(cuts) or min(cuts) <= 0 or max(cuts) > n_classes - 1
                or len(set(cuts)) != len(cuts) or any(int(c) != c for c in cuts)):
            raise ArgumentError("cutoffs should be a sequence of unique, positive integers sorted "
                                "in an increasing order, where each value is between 1 and "
                                f"n_classes-1 = {n_classes - 1}, got {cuts}")
        super().__init__()
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*cuts, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, device=device, dtype=dtype)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            hidden = int(in_features // (div_value ** (i + 1)))
            size = self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(Sequential(
                Linear(in_features, hidden, bias=False, device=device, dtype=dtype),
                Linear(hidden, size, bias=False, device=device, dtype=dtype)))

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        self.head.reset_parameters()
        for project, out in self.tail:
            project.reset_parameters()
            out.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        x, target = self._check(input_, target_)
        head = F.log_softmax(self.head(x), dim=1)
        labels = target.array
        # one gather per group: rows of a cluster get head[cluster] + tail log-probability
        order, parts = [], []
        for i in range(self.n_clusters + 1):
            low = 0 if i == 0 else self.cutoffs[i - 1]
            rows = ((labels >= low) & (labels < self.cutoffs[i])).nonzero()[0]
            if not rows.size:
                continue
            at = _core.tensor(rows)
            local = target[at] - low
            part = head[at]
            if i == 0:
                parts.append(part.gather(1, local.unsqueeze(1)).squeeze(1))
            else:
                tail = F.log_softmax(self.tail[i - 1](x[at]), dim=1)
                parts.append(part[:, self.shortlist_size + i - 1]
                             + tail.gather(1, local.unsqueeze(1)).squeeze(1))
            order.append(at)
        joined = _core.cat(parts)
        back = _core.cat(order).array.argsort()
        output = joined[_core.tensor(back)]
        loss = (-output).mean()
        return _ASMoutput(output if input_.ndim == 2 else output.squeeze(0), loss)

    def _check(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        if x.ndim not in (1, 2) or target.ndim != x.ndim - 1:
            raise ShapeError("AdaptiveLogSoftmaxWithLoss: input must be (N, in_features) with "
                             "target (N,), or (in_features,) with a 0D target, got "
                             f"{tuple(x.shape)} and {tuple(target.shape)}")
        if x.ndim == 1:
            x, target = x.unsqueeze(0), target.unsqueeze(0)
        if x.shape[0] != target.shape[0]:
            raise ShapeError("Input and target should have the same size in the batch dimension: "
                             f"{tuple(x.shape)} and {tuple(target.shape)}")
        labels = target.array
        if labels.size and (labels.min() < 0 or labels.max() >= self.n_classes):
            raise IndexOutOfRange(f"Target values should be in [0, {self.n_classes - 1}], but "
                                  f"values in range [{labels.min()}, {labels.max()}] were found.")
        return x, target

    def log_prob(self, input: Tensor) -> Tensor:
        """Log-probabilities of all classes: (N, in_features) -> (N, n_classes)."""
        head = F.log_softmax(self.head(input), dim=1)
        parts = [head[:, :self.shortlist_size]]
        for i in range(self.n_clusters):
            tail = F.log_softmax(self.tail[i](input), dim=1)
            parts.append(tail + head[:, self.shortlist_size + i].unsqueeze(1))
        return _core.cat(parts, dim=1)

    def predict(self, input: Tensor) -> Tensor:
        """The most probable class of each row."""
        return self.log_prob(input).argmax(dim=1)
