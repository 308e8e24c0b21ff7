"""Convolutions and transposed convolutions in 1 to 3 axes."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import adjoint.nn.functional as F
from adjoint.base.errors import ArgumentError, ShapeError
from adjoint.core.tensor import Parameter, Tensor
from adjoint.nn import init
from adjoint.nn.modules._check import IntOrInts, empty_parameter, ints, positive, rank
from adjoint.nn.modules.module import Module

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d",
           "ConvTranspose3d"]

_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


def _check_sizes(layer: str, in_channels: int, out_channels: int, groups: int) -> None:
    positive(layer, zero_ok=True, in_channels=in_channels, out_channels=out_channels)
    if groups <= 0:
        raise ArgumentError(f"{layer}: groups must be a positive integer, got {groups}")
    if in_channels % groups:
        raise ArgumentError(f"{layer}: in_channels must be divisible by groups: {in_channels} % "
                            f"{groups} = {in_channels % groups}")
    if out_channels % groups:
        raise ArgumentError(f"{layer}: out_channels must be divisible by groups: {out_channels} % "
                            f"{groups} = {out_channels % groups}")


def _each_positive(layer: str, name: str, values: Sequence[int], zero_ok: bool = False) -> None:
    sizes: dict[str, Any] = {f"{name}[{i}]": v for i, v in enumerate(values)}
    positive(layer, zero_ok=zero_ok, **sizes)


class _ConvNd(Module):
    """Sizes, parameters and checks that all convolutions share."""

    _axes = 0
    weight: Parameter
    bias: Parameter | None

    def _setup(self, in_channels: int, out_channels: int, kernel_size: IntOrInts,
               stride: IntOrInts, padding: IntOrInts | str, dilation: IntOrInts,
               transposed: bool, output_padding: IntOrInts, groups: int, bias: bool,
               padding_mode: str, device: Any, dtype: Any) -> None:
        layer, n = type(self).__name__, self._axes
        _check_sizes(layer, in_channels, out_channels, groups)
        kernel, steps = (ints(v, n, layer, name) for v, name in (
            (kernel_size, "kernel_size"), (stride, "stride")))
        spread = ints(dilation, n, layer, "dilation")
        for name, values in (("kernel_size", kernel), ("stride", steps), ("dilation", spread)):
            _each_positive(layer, name, values)
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ArgumentError(f"{layer}: Invalid padding string {padding!r}, should be one "
                                    "of 'valid', 'same'")
            if padding == "same" and any(s != 1 for s in steps):
                raise ArgumentError("padding='same' is not supported for strided convolutions: "
                                    f"stride is {steps}")
            self_padding: tuple[int, ...] | str = padding
        else:
            self_padding = ints(padding, n, layer, "padding")
            _each_positive(layer, "padding", self_padding, zero_ok=True)
        if padding_mode not in _PADDING_MODES:
            raise ArgumentError(f"padding_mode must be one of {set(_PADDING_MODES)}, but got "
                                f"padding_mode='{padding_mode}'")
        if transposed and padding_mode != "zeros":
            raise ArgumentError(f'Only "zeros" padding mode is supported for {layer}')
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel
        self.stride = steps
        self.padding = self_padding
        self.dilation = spread
        self.transposed = transposed
        self.output_padding = ints(output_padding, n, layer, "output_padding")
        self.groups = groups
        self.padding_mode = padding_mode
        self._reversed_padding_repeated_twice = _sides(self_padding, kernel, spread)
        shape = ((in_channels, out_channels // groups) if transposed
                 else (out_channels, in_channels // groups))
        self.weight = empty_parameter((*shape, *kernel), device, dtype)
        if bias:
            self.bias = empty_parameter((out_channels,), device, dtype)
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias uniformly from +-1/sqrt(fan_in)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if fan_in != 0:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def _check(self, input: Tensor) -> None:
        n = self._axes
        rank(self, input, (n + 1, n + 2), f"(C, *) or (N, C, *) with {n} axes after C")
        got = input.shape[-n - 1]
        if got != self.in_channels:
            raise ShapeError(
                f"{self._get_name()}: Given groups={self.groups}, weight of size "
                f"{list(self.weight.shape)}, expected input{list(input.shape)} to have "
                f"{self.in_channels} channels, but got {got} channels instead: axis {-n - 1} of "
                "the input is the channel axis")

    def extra_repr(self) -> str:
        n = self._axes
        text = (f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
                f"stride={self.stride}")
        if self.padding != (0,) * n:
            text += f", padding={self.padding}"
        if self.dilation != (1,) * n:
            text += f", dilation={self.dilation}"
        if self.output_padding != (0,) * n:
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text


def _sides(padding: tuple[int, ...] | str, kernel: tuple[int, ...], dilation: tuple[int, ...]
           ) -> list[int]:
    """Padding as F.pad takes it: last axis first, both sides."""
    out: list[int] = []
    for i in reversed(range(len(kernel))):
        if padding == "valid":
            out += [0, 0]
        elif isinstance(padding, str):
            total = dilation[i] * (kernel[i] - 1)
            out += [total // 2, total - total // 2]
        else:
            out += [padding[i]] * 2
    return out


class _Conv(_ConvNd):
    _function = ""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: IntOrInts,
                 stride: IntOrInts = 1, padding: IntOrInts | str = 0, dilation: IntOrInts = 1,
                 groups: int = 1, bias: bool = True, padding_mode: str = "zeros",
                 device: Any = None, dtype: Any = None) -> None:
        self._setup(in_channels, out_channels, kernel_size, stride, padding, dilation, False, 0,
                    groups, bias, padding_mode, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        self._check(input)
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = (0,) * self._axes
        conv: Any = getattr(F, self._function)
        out: Tensor = conv(input, weight, bias, self.stride, padding, self.dilation, self.groups)
        return out


class Conv1d(_Conv):
    """Cross-correlation of (N, in_channels, L) or (in_channels, L) with a learned kernel.

    ``weight`` is (out_channels, in_channels / groups, kernel_size). ``padding`` is a number,
    "valid" (none) or "same" (output as long as the input; stride 1 only); ``padding_mode`` is
    zeros, reflect, replicate or circular. Output length:
    ``(L + 2 padding - dilation (kernel_size - 1) - 1) // stride + 1``.

    Raises ArgumentError for sizes that do not fit together, ShapeError for an input of another
    rank or channel count.

    >>> import adjoint as ad
    >>> tuple(ad.nn.Conv1d(16, 33, 3, stride=2)(ad.zeros(20, 16, 50)).shape)
    (20, 33, 24)
    """

    _axes = 1
    _function = "conv1d"


class Conv2d(_Conv):
    """Cross-correlation of (N, in_channels, H, W) or (in_channels, H, W); see Conv1d.

    Sizes are one number for both axes or (rows, columns).

    >>> import adjoint as ad
    >>> tuple(ad.nn.Conv2d(3, 8, 3, padding=1)(ad.zeros(2, 3, 5, 6)).shape)
    (2, 8, 5, 6)
    """

    _axes = 2
    _function = "conv2d"


class Conv3d(_Conv):
    """Cross-correlation of (N, in_channels, D, H, W) or (in_channels, D, H, W); see Conv1d.

    >>> import adjoint as ad
    >>> tuple(ad.nn.Conv3d(2, 3, 3)(ad.zeros(1, 2, 5, 5, 5)).shape)
    (1, 3, 3, 3, 3)
    """

    _axes = 3
    _function = "conv3d"


class _ConvTransposeNd(_ConvNd):
    _function = ""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: IntOrInts,
                 stride: IntOrInts = 1, padding: IntOrInts = 0, output_padding: IntOrInts = 0,
                 groups: int = 1, bias: bool = True, dilation: IntOrInts = 1,
                 padding_mode: str = "zeros", device: Any = None, dtype: Any = None) -> None:
        self._setup(in_channels, out_channels, kernel_size, stride, padding, dilation, True,
                    output_padding, groups, bias, padding_mode, device, dtype)

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        self._check(input)
        extra = self._output_padding(input, output_size)
        conv: Any = getattr(F, self._function)
        out: Tensor = conv(input, self.weight, self.bias, self.stride, self.padding, extra,
                           self.groups, self.dilation)
        return out

    def _output_padding(self, input: Tensor, output_size: Sequence[int] | None
                        ) -> tuple[int, ...]:
        """What must be added at one side so that the output has ``output_size``."""
        if output_size is None:
            return self.output_padding
        n = self._axes
        size = list(output_size)
        lead = input.ndim - n
        if len(size) == lead + n:
            size = size[lead:]
        if len(size) != n:
            raise ArgumentError(
                f"{self._get_name()}: for {input.ndim}D input, output_size must have {n} or "
                f"{lead + n} elements (got {len(output_size)})")
        least = [(input.shape[d + lead] - 1) * self.stride[d] - 2 * int(self.padding[d])
                 + self.dilation[d] * (self.kernel_size[d] - 1) + 1 for d in range(n)]
        most = [least[d] + self.stride[d] - 1 for d in range(n)]
        if any(not lo <= s <= hi for lo, s, hi in zip(least, size, most, strict=True)):
            raise ArgumentError(
                f"requested an output size of {tuple(output_size)}, but valid sizes range from "
                f"{least} to {most} (for an input of {tuple(input.shape[lead:])})")
        return tuple(s - lo for s, lo in zip(size, least, strict=True))


class ConvTranspose1d(_ConvTransposeNd):
    """The transpose (gradient) of Conv1d with respect to its input: (N, C, L) grows by ``stride``.

    ``weight`` is (in_channels, out_channels / groups, kernel_size). Output length:
    ``(L - 1) stride - 2 padding + dilation (kernel_size - 1) + output_padding + 1``; the call
    takes ``output_size`` to pick one of the lengths that Conv1d would map to L.

    >>> import adjoint as ad
    >>> tuple(ad.nn.ConvTranspose1d(4, 2, 3, stride=2)(ad.zeros(1, 4, 5)).shape)
    (1, 2, 11)
    """

    _axes = 1
    _function = "conv_transpose1d"


class ConvTranspose2d(_ConvTransposeNd):
    """The transpose of Conv2d, (N, C, H, W) or (C, H, W); see ConvTranspose1d.

    >>> import adjoint as ad
    >>> tuple(ad.nn.ConvTranspose2d(4, 2, 4, 2, 1)(ad.zeros(1, 4, 5, 5)).shape)
    (1, 2, 10, 10)
    """

    _axes = 2
    _function = "conv_transpose2d"


class ConvTranspose3d(_ConvTransposeNd):
    """The transpose of Conv3d, (N, C, D, H, W) or (C, D, H, W); see ConvTranspose1d.

    >>> import adjoint as ad
    >>> tuple(ad.nn.ConvTranspose3d(2, 1, 2, 2)(ad.zeros(1, 2, 3, 3, 3)).shape)
    (1, 1, 6, 6, 6)
    """

    _axes = 3
    _function = "conv_transpose3d"
