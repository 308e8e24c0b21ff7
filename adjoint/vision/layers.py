"""Layers that networks for images share: `torchvision.ops` has them under these names."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from adjoint import nn
from adjoint.core.tensor import Tensor

Maker = Callable[..., nn.Module]


class ConvNormActivation(nn.Sequential):
    """A convolution, a norm (None: none, and the convolution has a bias), an activation (or None).

    `padding` None keeps height and width at stride 1. `inplace` None: the activation has no such
    argument.
    """

    _layers: tuple[Maker, Maker]       # the convolution, and the norm unless told otherwise
    _own_norm: Any = object()

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any = 3, stride: Any = 1,
                 padding: Any = None, groups: int = 1, norm_layer: Any = _own_norm,
                 activation_layer: Maker | None = nn.ReLU, dilation: Any = 1,
                 inplace: bool | None = True, bias: bool | None = None) -> None:
        conv, norm = self._layers
        norm = norm if norm_layer is self._own_norm else norm_layer
        if padding is None:
            padding = _same(kernel_size, dilation)
        parts = [conv(in_channels, out_channels, kernel_size, stride, padding, dilation=dilation,
                      groups=groups, bias=norm is None if bias is None else bias)]
        if norm is not None:
            parts.append(norm(out_channels))
        if activation_layer is not None:
            parts.append(activation_layer(**({} if inplace is None else {"inplace": inplace})))
        super().__init__(*parts)
        self.out_channels = out_channels


def _same(kernel: Any, dilation: Any) -> Any:
    if isinstance(kernel, int) and isinstance(dilation, int):
        return (kernel - 1) // 2 * dilation
    n = len(kernel) if isinstance(kernel, Sequence) else len(dilation)
    kernels = kernel if isinstance(kernel, Sequence) else [kernel] * n
    dilations = dilation if isinstance(dilation, Sequence) else [dilation] * n
    return tuple((k - 1) // 2 * d for k, d in zip(kernels, dilations, strict=True))


class Conv2dNormActivation(ConvNormActivation):
    """A 2-d convolution without bias, batch norm and ReLU, unless told otherwise.

    >>> len(Conv2dNormActivation(3, 8, stride=2))
    3
    """

    _layers = (nn.Conv2d, nn.BatchNorm2d)


class Conv3dNormActivation(ConvNormActivation):
    """A 3-d convolution without bias, batch norm and ReLU, unless told otherwise."""

    _layers = (nn.Conv3d, nn.BatchNorm3d)


class SqueezeExcitation(nn.Module):
    """Channels times a factor that depends on the means of all of them (Hu et al. 2017).

    >>> import adjoint as ad
    >>> SqueezeExcitation(8, 2)(ad.ones(1, 8, 4, 4)).shape
    adjoint.Size([1, 8, 4, 4])
    """

    def __init__(self, input_channels: int, squeeze_channels: int, activation: Maker = nn.ReLU,
                 scale_activation: Maker = nn.Sigmoid) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(input_channels, squeeze_channels, 1)
        self.fc2 = nn.Conv2d(squeeze_channels, input_channels, 1)
        self.activation, self.scale_activation = activation(), scale_activation()

    def forward(self, input: Tensor) -> Tensor:
        factor = self.fc2(self.activation(self.fc1(self.avgpool(input))))
        out: Tensor = self.scale_activation(factor) * input
        return out


class MLP(nn.Sequential):
    """Linear layers of `hidden_channels`, each but the last followed by norm, activation, dropout;
    the last by dropout."""

    def __init__(self, in_channels: int, hidden_channels: Sequence[int],
                 norm_layer: Maker | None = None, activation_layer: Maker | None = nn.ReLU,
                 inplace: bool | None = None, bias: bool = True, dropout: float = 0.0) -> None:
        options = {} if inplace is None else {"inplace": inplace}
        parts: list[nn.Module] = []
        for wide in hidden_channels[:-1]:
            parts.append(nn.Linear(in_channels, wide, bias=bias))
            if norm_layer is not None:
                parts.append(norm_layer(wide))
            if activation_layer is not None:
                parts.append(activation_layer(**options))
            parts.append(nn.Dropout(dropout, **options))
            in_channels = wide
        parts += [nn.Linear(in_channels, hidden_channels[-1], bias=bias),
                  nn.Dropout(dropout, **options)]
        super().__init__(*parts)


class Permute(nn.Module):
    """Its operand's axes in another order."""

    def __init__(self, dims: Sequence[int]) -> None:
        super().__init__()
        self.dims = dims

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x.permute(self.dims)
        return out


__all__ = ["MLP", "Conv2dNormActivation", "Conv3dNormActivation", "ConvNormActivation", "Permute",
           "SqueezeExcitation"]
