"""Batch normalization with running statistics."""
from __future__ import annotations

from typing import Any

import adjoint.nn.functional as F
from adjoint.base.aval import MetaArray
from adjoint.base.errors import ShapeError
from adjoint.core.tensor import Tensor
from adjoint.nn import _core, init
from adjoint.nn._core import no_grad
from adjoint.nn.modules._check import empty_parameter, positive, rank
from adjoint.nn.modules.module import Module
from adjoint.ops.api_common import need_kernel
from adjoint.ops.batch_norm import check_batch, check_channels, counted

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm"]


class _NormBase(Module):
    """Parameters and running statistics that batch and instance normalization share."""

    _version = 2
    _ranks: tuple[int, ...] = ()
    num_features: int
    eps: float
    momentum: float | None
    affine: bool
    track_running_stats: bool

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
                 affine: bool = True, track_running_stats: bool = True, device: Any = None,
                 dtype: Any = None, *, bias: bool = True) -> None:
        positive(type(self).__name__, zero_ok=True, num_features=num_features)
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        for name, wanted in (("weight", True), ("bias", bias)):
            self.register_parameter(name, empty_parameter((num_features,), device, dtype)
                                    if affine and wanted else None)
        stats = track_running_stats
        zeros = _core.zeros
        self.register_buffer("running_mean", zeros((num_features,), device=device, dtype=dtype)
                             if stats else None)
        self.register_buffer("running_var", _core.ones((num_features,), device=device, dtype=dtype)
                             if stats else None)
        self.register_buffer("num_batches_tracked",
                             zeros((), device=device, dtype=_core.int64) if stats else None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Set the running mean to 0, the running variance to 1 and the batch count to 0."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Reset the running statistics; set weight to 1 and bias to 0."""
        self.reset_running_stats()
        if self.affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def extra_repr(self) -> str:
        return (f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
                f"affine={self.affine}, bias={self.bias is not None}, "
                f"track_running_stats={self.track_running_stats}")

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: dict[str, Any],
                              strict: bool, missing_keys: list[str], unexpected_keys: list[str],
                              error_msgs: list[str]) -> None:
        key = prefix + "num_batches_tracked"
        if (local_metadata.get("version") or 1) < 2 and self.track_running_stats:
            # states of version 1 do not have the count: keep ours
            state_dict.setdefault(key, self.num_batches_tracked)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys,
                                      unexpected_keys, error_msgs)


class _BatchNorm(_NormBase):
    def _check_input_dim(self, input: Tensor) -> None:
        rank(self, input, self._ranks, f"(N, {self.num_features}, ...)")

    def _check(self, input: Tensor, training: bool) -> None:
        """All that can be wrong, before the running statistics are touched."""
        self._check_input_dim(input)
        check_batch(input, training, self.eps, f"{self._get_name()}: ")
        shape = tuple(input.shape)
        if shape[1] != self.num_features and (self.affine or self.track_running_stats):
            raise ShapeError(
                f"{self._get_name()}: running_mean should contain {shape[1]} elements not "
                f"{self.num_features}: axis 1 of the input {shape} must have "
                f"num_features = {self.num_features} channels")
        own = self.weight if self.running_mean is None else self.running_mean
        if own is not None and input.dtype != own.dtype:
            need_kernel("batch_norm", "biuc", input)
            check_channels("batch_norm", input, self.running_mean, self.running_var, self.weight,
                           self.bias)

    def forward(self, input: Tensor) -> Tensor:
        stats = self.running_mean is not None
        batch_stats = self.training or not stats
        self._check(input, batch_stats)
        momentum = 0.0 if self.momentum is None else self.momentum
        seen = self.num_batches_tracked if self.training and self.track_running_stats else None
        if seen is not None:
            if not counted(seen):
                with no_grad():
                    seen.add_(1)
            if self.momentum is None:  # cumulative average
                count = seen.array
                momentum = 1.0 if type(count) is MetaArray else 1.0 / float(count)
        update = not self.training or self.track_running_stats
        return F.batch_norm(input, self.running_mean if update else None,
                            self.running_var if update else None, self.weight, self.bias,
                            batch_stats, momentum, self.eps)


class BatchNorm1d(_BatchNorm):
    """Batch normalization of (N, C) or (N, C, L) (Ioffe and Szegedy 2015).

    In training, each channel is normalized by its mean and biased variance over the batch, and
    the running statistics move towards the batch's (with the unbiased variance):
    ``running += momentum (batch - running)``; ``momentum=None`` keeps the cumulative average.
    In evaluation the running statistics are used. Raises ShapeError before anything changes.

    >>> import adjoint as ad
    >>> bn = ad.nn.BatchNorm1d(2)
    >>> bn(ad.tensor([[0.0, 1.0], [2.0, 1.0]])).detach().round(decimals=2).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """

    _ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalization of (N, C, H, W); see BatchNorm1d.

    >>> import adjoint as ad
    >>> tuple(ad.nn.BatchNorm2d(3)(ad.randn(2, 3, 4, 4)).shape)
    (2, 3, 4, 4)
    """

    _ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch normalization of (N, C, D, H, W); see BatchNorm1d.

    >>> import adjoint as ad
    >>> tuple(ad.nn.BatchNorm3d(3)(ad.randn(2, 3, 2, 4, 4)).shape)
    (2, 3, 2, 4, 4)
    """

    _ranks = (5,)


class SyncBatchNorm(_BatchNorm):
    """Batch normalization of any rank >= 2; in one process the same as BatchNorm.

    ``process_group`` is kept and not used: statistics are those of this process.
    """

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
                 affine: bool = True, track_running_stats: bool = True,
                 process_group: Any = None, device: Any = None, dtype: Any = None, *,
                 bias: bool = True) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype,
                         bias=bias)
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise ShapeError(f"expected at least 2D input (got {input.ndim}D input)")

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """The same tree with every BatchNorm layer replaced by a SyncBatchNorm that shares its
        parameters and statistics."""
        made: Module = module
        if isinstance(module, _BatchNorm) and not isinstance(module, SyncBatchNorm):
            new = cls(module.num_features, module.eps, module.momentum, module.affine,
                      module.track_running_stats, process_group)
            for table in ("_parameters", "_buffers"):
                getattr(new, table).update(getattr(module, table))
            new.training = module.training
            made = new
        for name, child in module.named_children():
            made.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return made
