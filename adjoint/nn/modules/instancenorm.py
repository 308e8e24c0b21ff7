"""Instance normalization."""
from __future__ import annotations

import math
from typing import Any

import adjoint.nn.functional as F
from adjoint.base.errors import ArgumentError, ShapeError
from adjoint.core.modes import warn
from adjoint.core.tensor import Tensor
from adjoint.nn.modules._check import rank
from adjoint.nn.modules.batchnorm import _NormBase

__all__ = ["InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"]


class _InstanceNorm(_NormBase):
    _axes = 0  # spatial axes: the input has one or two more

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1,
                 affine: bool = False, track_running_stats: bool = False, device: Any = None,
                 dtype: Any = None, *, bias: bool = True) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype,
                         bias=bias)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: dict[str, Any],
                              strict: bool, missing_keys: list[str], unexpected_keys: list[str],
                              error_msgs: list[str]) -> None:
        if local_metadata.get("version") is None and not self.track_running_stats:
            found = [prefix + name for name in ("running_mean", "running_var")
                     if prefix + name in state_dict]
            if found:  # saved by a version that always kept them
                error_msgs.append(
                    f"Unexpected running stats buffer(s) {' and '.join(map(repr, found))} for "
                    f"{self._get_name()} with track_running_stats=False: set "
                    "track_running_stats=True, or take these keys out of the state_dict.")
                for key in found:
                    state_dict.pop(key)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys,
                                      unexpected_keys, error_msgs)

    def forward(self, input: Tensor) -> Tensor:
        n = self._axes
        rank(self, input, (n + 1, n + 2), f"(C, *) or (N, C, *) with {n} axes after C")
        axis = input.ndim - n - 1
        if input.shape[axis] != self.num_features:
            if self.affine or self.track_running_stats:
                raise ArgumentError(
                    f"{self._get_name()}: expected input's size at dim={axis} to match "
                    f"num_features ({self.num_features}), but got: {input.shape[axis]}.")
            warn(f"input's size at dim={axis} does not match num_features. You can silence this "
                 "warning by not passing in num_features, which is not used because affine=False")
        batch_stats = self.training or not self.track_running_stats
        if batch_stats and math.prod(input.shape[-n:]) == 1:
            raise ShapeError(f"{self._get_name()}: Expected more than 1 spatial element when "
                             f"training, got input size {input.shape}")
        batched = input if axis else input.unsqueeze(0)
        momentum = 0.0 if self.momentum is None else self.momentum
        out = F.instance_norm(batched, self.running_mean, self.running_var, self.weight,
                              self.bias, batch_stats, momentum, self.eps)
        return out if axis else out.squeeze(0)


class InstanceNorm1d(_InstanceNorm):
    """Normalizes each channel of each sample of (N, C, L) or (C, L) (Ulyanov et al. 2016).

    By default without parameters and without running statistics. Raises ShapeError or
    ArgumentError before anything changes.

    >>> import adjoint as ad
    >>> ad.nn.InstanceNorm1d(1)(ad.tensor([[[1.0, 3.0]]])).round(decimals=2).tolist()
    [[[-1.0, 1.0]]]
    """

    _axes = 1


class InstanceNorm2d(_InstanceNorm):
    """Normalizes each channel of each sample of (N, C, H, W) or (C, H, W); see InstanceNorm1d.

    >>> import adjoint as ad
    >>> tuple(ad.nn.InstanceNorm2d(3)(ad.randn(2, 3, 4, 4)).shape)
    (2, 3, 4, 4)
    """

    _axes = 2


class InstanceNorm3d(_InstanceNorm):
    """Normalizes each channel of each sample of (N, C, D, H, W) or (C, D, H, W); see
    InstanceNorm1d.

    >>> import adjoint as ad
    >>> tuple(ad.nn.InstanceNorm3d(3)(ad.randn(2, 3, 2, 4, 4)).shape)
    (2, 3, 2, 4, 4)
    """

    _axes = 3
