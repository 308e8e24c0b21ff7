"""Lazy modules: input sizes are taken from the first input.

Parameters have no shape until the first call, which materializes them, draws their values and
turns the module into its ordinary class. Make the optimizer before or after; the parameters stay
the same objects. Loading a state_dict also gives them their shapes.
"""
from __future__ import annotations

from typing import Any

from adjoint.base.errors import ShapeError
from adjoint.core.tensor import Tensor
from adjoint.nn import _core
from adjoint.nn.modules import batchnorm, conv, instancenorm, linear
from adjoint.nn.modules._check import IntOrInts, rank, tensor_input
from adjoint.nn.modules.batchnorm import BatchNorm1d, BatchNorm2d, BatchNorm3d, _NormBase
from adjoint.nn.modules.conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    _ConvNd,
)
from adjoint.nn.modules.instancenorm import InstanceNorm1d, InstanceNorm2d, InstanceNorm3d
from adjoint.nn.modules.linear import Linear
from adjoint.nn.modules.module import Module
from adjoint.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy

__all__ = [
    "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyConv1d", "LazyConv2d",
    "LazyConv3d", "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d",
    "LazyInstanceNorm1d", "LazyInstanceNorm2d", "LazyInstanceNorm3d", "LazyLinear",
]


class LazyModuleMixin(Module):
    """What lazy modules share: two hooks that end the lazy state.

    A subclass names the class to become and defines ``initialize_parameters(*inputs)``, which
    materializes every parameter that is still without shape.
    """

    cls_to_become: type[Module] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._make_lazy()

    def _make_lazy(self) -> None:
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = self.register_forward_pre_hook(self._infer_parameters,
                                                               with_kwargs=True)

    def has_uninitialized_params(self) -> bool:
        """True while a parameter or buffer has no shape."""
        return any(is_lazy(t) for t in (*self._parameters.values(), *self._buffers.values()))

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Materialize the parameters for these inputs."""
        raise NotImplementedError("initialize_parameters is not implemented for "
                                  + type(self).__name__)

    def _lazy_load_hook(self, state_dict: Any, prefix: str, *_: Any) -> None:
        for name, t in (*self._parameters.items(), *self._buffers.items()):
            value = state_dict.get(prefix + name)
            if is_lazy(t) and value is not None and not is_lazy(value):
                t.materialize(tuple(value.shape))  # type: ignore[union-attr]  # lazy

    def _infer_parameters(self, module: Module, args: Any, kwargs: Any) -> None:
        self.initialize_parameters(*args, **kwargs)
        if self.has_uninitialized_params():
            raise RuntimeError(f"module {self._get_name()} has not been fully initialized")
        self._initialize_hook.remove()
        self._load_hook.remove()
        del self._initialize_hook, self._load_hook
        if self.cls_to_become is not None:
            self.__class__ = self.cls_to_become  # type: ignore[assignment]  # lazy no more


class LazyLinear(LazyModuleMixin, Linear):
    """Linear whose ``in_features`` is the last axis of the first input.

    >>> import adjoint as ad
    >>> m = ad.nn.LazyLinear(3)
    >>> _ = m(ad.zeros(2, 5)); m
    Linear(in_features=5, out_features=3, bias=True)
    """

    cls_to_become = Linear

    def __init__(self, out_features: int, bias: bool = True, device: Any = None,
                 dtype: Any = None) -> None:
        super().__init__(0, 0, False)
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_features = out_features
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draw the parameters, once they have shapes."""
        if not self.has_uninitialized_params() and self.in_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Take in_features from the input."""
        tensor_input(self, input)
        fresh = self.has_uninitialized_params()
        if fresh:
            if not input.ndim:
                raise ShapeError("LazyLinear: input has shape (), but its last axis gives "
                                 "in_features; unsqueeze one axis")
            self.weight.materialize((self.out_features, input.shape[-1]))
            if self.bias is not None:
                self.bias.materialize((self.out_features,))
        if self.in_features == 0:
            self.in_features = input.shape[-1]
        if fresh:
            self.reset_parameters()


class _LazyConv(LazyModuleMixin, _ConvNd):
    def _lazy(self, out_channels: int, bias: bool, device: Any, dtype: Any) -> None:
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_channels = out_channels
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)
        self._make_lazy()

    def reset_parameters(self) -> None:
        """Draw the parameters, once they have shapes."""
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        """Take in_channels from the input."""
        n = self._axes
        rank(self, input, (n + 1, n + 2), f"(C, *) or (N, C, *) with {n} axes after C")
        found = input.shape[-n - 1]
        if found % self.groups:
            raise ShapeError(f"{self._get_name()}: in_channels must be divisible by groups: "
                             f"{found} % {self.groups} = {found % self.groups}")
        fresh = self.has_uninitialized_params()
        if self.in_channels == 0:
            self.in_channels = found
        if fresh:
            pair = ((found, self.out_channels // self.groups) if self.transposed
                    else (self.out_channels, found // self.groups))
            self.weight.materialize((*pair, *self.kernel_size))
            if self.bias is not None:
                self.bias.materialize((self.out_channels,))
            self.reset_parameters()


class _LazyConvNd(_LazyConv):
    def __init__(self, out_channels: int, kernel_size: IntOrInts, stride: IntOrInts = 1,
                 padding: IntOrInts | str = 0, dilation: IntOrInts = 1, groups: int = 1,
                 bias: bool = True, padding_mode: str = "zeros", device: Any = None,
                 dtype: Any = None) -> None:
        self._setup(0, 0, kernel_size, stride, padding, dilation, False, 0, groups, False,
                    padding_mode, None, dtype)
        self._lazy(out_channels, bias, device, dtype)


class _LazyConvTransposeNd(_LazyConv):
    def __init__(self, out_channels: int, kernel_size: IntOrInts, stride: IntOrInts = 1,
                 padding: IntOrInts = 0, output_padding: IntOrInts = 0, groups: int = 1,
                 bias: bool = True, dilation: IntOrInts = 1, padding_mode: str = "zeros",
                 device: Any = None, dtype: Any = None) -> None:
        self._setup(0, 0, kernel_size, stride, padding, dilation, True, output_padding, groups,
                    False, padding_mode, None, dtype)
        self._lazy(out_channels, bias, device, dtype)


class LazyConv1d(_LazyConvNd, Conv1d):
    """Conv1d whose ``in_channels`` is the channel axis of the first input."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyConvNd, Conv2d):
    """Conv2d whose ``in_channels`` is the channel axis of the first input.

    >>> import adjoint as ad
    >>> m = ad.nn.LazyConv2d(4, 3)
    >>> _ = m(ad.zeros(1, 2, 5, 5)); m
    Conv2d(2, 4, kernel_size=(3, 3), stride=(1, 1))
    """

    cls_to_become = Conv2d


class LazyConv3d(_LazyConvNd, Conv3d):
    """Conv3d whose ``in_channels`` is the channel axis of the first input."""

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyConvTransposeNd, ConvTranspose1d):
    """ConvTranspose1d whose ``in_channels`` is the channel axis of the first input."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvTransposeNd, ConvTranspose2d):
    """ConvTranspose2d whose ``in_channels`` is the channel axis of the first input."""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConvTransposeNd, ConvTranspose3d):
    """ConvTranspose3d whose ``in_channels`` is the channel axis of the first input."""

    cls_to_become = ConvTranspose3d


class _LazyNorm(LazyModuleMixin, _NormBase):
    _channel_axis: int | None = 1  # None: counted from the end, by the number of spatial axes

    def __init__(self, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True,
                 track_running_stats: bool = True, device: Any = None, dtype: Any = None, *,
                 bias: bool = True) -> None:
        super().__init__(0, eps, momentum, False, False, device, dtype)
        self.affine = affine
        self.track_running_stats = track_running_stats
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            if wanted:
                self.register_parameter(name, UninitializedParameter(device=device, dtype=dtype))
        if track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = _core.zeros((), dtype=_core.int64)

    def reset_parameters(self) -> None:
        """Reset parameters and statistics, once they have shapes."""
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Take num_features from the input."""
        self._check_lazy(input)
        fresh = self.has_uninitialized_params()
        axis = 1 if self._channel_axis is not None else input.ndim - self._axes - 1
        if self.num_features == 0:
            self.num_features = input.shape[axis]
        if fresh:
            for t in (*self._parameters.values(), *self._buffers.values()):
                if is_lazy(t):
                    t.materialize((self.num_features,))  # type: ignore[union-attr]  # lazy
            self.reset_parameters()

    def _check_lazy(self, input: Tensor) -> None:
        n = getattr(self, "_axes", 0)
        rank(self, input, self._ranks or (n + 1, n + 2), "with channels before the spatial axes")


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d):
    """BatchNorm1d whose ``num_features`` is axis 1 of the first input.

    >>> import adjoint as ad
    >>> m = ad.nn.LazyBatchNorm1d()
    >>> _ = m(ad.randn(3, 2)); m.num_features
    2
    """

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d):
    """BatchNorm2d whose ``num_features`` is axis 1 of the first input."""

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d):
    """BatchNorm3d whose ``num_features`` is axis 1 of the first input."""

    cls_to_become = BatchNorm3d


class LazyInstanceNorm1d(_LazyNorm, InstanceNorm1d):
    """InstanceNorm1d whose ``num_features`` is the channel axis of the first input."""

    cls_to_become = InstanceNorm1d
    _channel_axis = None


class LazyInstanceNorm2d(_LazyNorm, InstanceNorm2d):
    """InstanceNorm2d whose ``num_features`` is the channel axis of the first input."""

    cls_to_become = InstanceNorm2d
    _channel_axis = None


class LazyInstanceNorm3d(_LazyNorm, InstanceNorm3d):
    """InstanceNorm3d whose ``num_features`` is the channel axis of the first input."""

    cls_to_become = InstanceNorm3d
    _channel_axis = None


for _file, _names in ((batchnorm, "BatchNorm"), (conv, "Conv"), (instancenorm, "InstanceNorm"),
                      (linear, "Linear")):              # where PyTorch has them
    vars(_file).update({n: c for n, c in list(globals().items()) if n.startswith("Lazy" + _names)})
