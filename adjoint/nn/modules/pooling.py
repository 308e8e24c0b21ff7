"""Pooling: maximum, average, power average, adaptive and fractional, in 1 to 3 axes.

Inputs are (N, C, *) or (C, *). Output size of each axis, unless said otherwise:
``(size + 2 padding - dilation (kernel_size - 1) - 1) // stride + 1``, rounded up with
``ceil_mode``; ``stride`` is kernel_size if None.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import adjoint.nn.functional as F
from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import Tensor
from adjoint.nn.modules._check import IntOrInts, ints, rank
from adjoint.nn.modules.module import Module

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d",
    "FractionalMaxPool2d", "FractionalMaxPool3d", "LPPool1d", "LPPool2d", "LPPool3d",
    "MaxPool1d", "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d",
]

OutputSize = int | None | Sequence[int | None]


class _Pool(Module):
    """Calls the functional of the same purpose after checking the rank."""

    _axes = 0
    _function = ""

    def _apply_pool(self, input: Tensor, *args: Any, **kwargs: Any) -> Any:
        n = self._axes
        rank(self, input, (n + 1, n + 2), f"non-empty {n + 1}D or {n + 2}D (batch mode) tensor "
             f"expected for input, (C, *) or (N, C, *) with {n} axes after C")
        return getattr(F, self._function)(input, *args, **kwargs)


class _MaxPoolNd(_Pool):
    def __init__(self, kernel_size: IntOrInts, stride: IntOrInts | None = None,
                 padding: IntOrInts = 0, dilation: IntOrInts = 1, return_indices: bool = False,
                 ceil_mode: bool = False) -> None:
        n, layer = self._axes, type(self).__name__
        kernel, pad = ints(kernel_size, n, layer, "kernel_size"), ints(padding, n, layer, "padding")
        spread = ints(dilation, n, layer, "dilation")
        for k, p, d in zip(kernel, pad, spread, strict=True):
            if 2 * p > d * (k - 1) + 1:
                raise ArgumentError(
                    f"{layer}: pad should be at most half of effective kernel size, but got "
                    f"pad={p}, kernel_size={k} and dilation={d}")
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Any:
        return self._apply_pool(input, self.kernel_size, self.stride, self.padding, self.dilation,
                                ceil_mode=self.ceil_mode, return_indices=self.return_indices)

    def extra_repr(self) -> str:
        return (f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
                f"dilation={self.dilation}, ceil_mode={self.ceil_mode}")


class MaxPool1d(_MaxPoolNd):
    """The largest value in a window over the last axis.

    ``return_indices`` adds where it was, as an index into the plane of its channel.

    >>> import adjoint as ad
    >>> tuple(ad.nn.MaxPool1d(2)(ad.zeros(1, 2, 6)).shape)
    (1, 2, 3)
    """

    _axes = 1
    _function = "max_pool1d"


class MaxPool2d(_MaxPoolNd):
    """The largest value in a window over the last two axes.

    ``return_indices`` adds where it was, as an index into the plane of its channel.

    >>> import adjoint as ad
    >>> tuple(ad.nn.MaxPool2d(2)(ad.zeros(1, 2, 6, 6)).shape)
    (1, 2, 3, 3)
    """

    _axes = 2
    _function = "fractional_max_pool2d"
    _function = "max_pool2d"


class MaxPool3d(_MaxPoolNd):
    """The largest value in a window over the last three axes.

    ``return_indices`` adds where it was, as an index into the plane of its channel.

    >>> import adjoint as ad
    >>> tuple(ad.nn.MaxPool3d(2)(ad.zeros(1, 2, 6, 6, 6)).shape)
    (1, 2, 3, 3, 3)
    """

    _axes = 3
    _function = "fractional_max_pool3d"
    _function = "max_pool3d"


class _MaxUnpoolNd(_Pool):
    def __init__(self, kernel_size: IntOrInts, stride: IntOrInts | None = None,
                 padding: IntOrInts = 0) -> None:
        n, layer = self._axes, type(self).__name__
        super().__init__()
        self.kernel_size = ints(kernel_size, n, layer, "kernel_size")
        self.stride = ints(stride if stride is not None else kernel_size, n, layer, "stride")
        self.padding = ints(padding, n, layer, "padding")

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None
                ) -> Any:
        return self._apply_pool(input, indices, self.kernel_size, self.stride, self.padding,
                                output_size)

    def extra_repr(self) -> str:
        return (f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}")


class MaxUnpool1d(_MaxUnpoolNd):
    """Puts values back to the ``indices`` that MaxPool1d returned; zeros elsewhere.

    >>> import adjoint as ad
    >>> values, where = ad.nn.MaxPool1d(2, return_indices=True)(ad.zeros(1, 2, 6))
    >>> tuple(ad.nn.MaxUnpool1d(2)(values, where).shape)
    (1, 2, 6)
    """

    _axes = 1
    _function = "max_unpool1d"


class MaxUnpool2d(_MaxUnpoolNd):
    """Puts values back to the ``indices`` that MaxPool2d returned; zeros elsewhere.

    >>> import adjoint as ad
    >>> values, where = ad.nn.MaxPool2d(2, return_indices=True)(ad.zeros(1, 2, 6, 6))
    >>> tuple(ad.nn.MaxUnpool2d(2)(values, where).shape)
    (1, 2, 6, 6)
    """

    _axes = 2
    _function = "max_unpool2d"


class MaxUnpool3d(_MaxUnpoolNd):
    """Puts values back to the ``indices`` that MaxPool3d returned; zeros elsewhere.

    >>> import adjoint as ad
    >>> values, where = ad.nn.MaxPool3d(2, return_indices=True)(ad.zeros(1, 2, 6, 6, 6))
    >>> tuple(ad.nn.MaxUnpool3d(2)(values, where).shape)
    (1, 2, 6, 6, 6)
    """

    _axes = 3
    _function = "max_unpool3d"


class AvgPool1d(_Pool):
    """The mean of a window over the last axis; padded zeros count if ``count_include_pad``.

    >>> import adjoint as ad
    >>> ad.nn.AvgPool1d(2)(ad.tensor([[1.0, 3.0, 5.0, 7.0]])).tolist()
    [[2.0, 6.0]]
    """

    _axes = 1
    _function = "avg_pool1d"

    def __init__(self, kernel_size: IntOrInts, stride: IntOrInts | None = None,
                 padding: IntOrInts = 0, ceil_mode: bool = False, count_include_pad: bool = True
                 ) -> None:
        super().__init__()
        self.kernel_size = ints(kernel_size, 1, "AvgPool1d", "kernel_size")
        self.stride = ints(kernel_size if stride is None else stride, 1, "AvgPool1d", "stride")
        self.padding = ints(padding, 1, "AvgPool1d", "padding")
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Any:
        return self._apply_pool(input, self.kernel_size, self.stride, self.padding,
                                self.ceil_mode, self.count_include_pad)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _AvgPoolNd(_Pool):
    def __init__(self, kernel_size: IntOrInts, stride: IntOrInts | None = None,
                 padding: IntOrInts = 0, ceil_mode: bool = False, count_include_pad: bool = True,
                 divisor_override: int | None = None) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Any:
        return self._apply_pool(input, self.kernel_size, self.stride, self.padding,
                                self.ceil_mode, self.count_include_pad, self.divisor_override)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool2d(_AvgPoolNd):
    """The mean of a window over the last two axes; ``divisor_override`` divides by that number
    instead.

    >>> import adjoint as ad
    >>> tuple(ad.nn.AvgPool2d(2)(ad.zeros(1, 2, 6, 6)).shape)
    (1, 2, 3, 3)
    """

    _axes = 2
    _function = "fractional_max_pool2d"
    _function = "avg_pool2d"


class AvgPool3d(_AvgPoolNd):
    """The mean of a window over the last three axes; ``divisor_override`` divides by that number
    instead.

    >>> import adjoint as ad
    >>> tuple(ad.nn.AvgPool3d(2)(ad.zeros(1, 2, 6, 6, 6)).shape)
    (1, 2, 3, 3, 3)
    """

    _axes = 3
    _function = "fractional_max_pool3d"
    _function = "avg_pool3d"


class _LPPoolNd(_Pool):
    def __init__(self, norm_type: float, kernel_size: IntOrInts, stride: IntOrInts | None = None,
                 ceil_mode: bool = False) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Any:
        return self._apply_pool(input, float(self.norm_type), self.kernel_size, self.stride,
                                self.ceil_mode)

    def extra_repr(self) -> str:
        return (f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, "
                f"stride={self.stride}, ceil_mode={self.ceil_mode}")


class LPPool1d(_LPPoolNd):
    """``(sum x^p)^(1/p)`` of a window over the last axis, with p = norm_type.

    >>> import adjoint as ad
    >>> tuple(ad.nn.LPPool1d(2, 2)(ad.zeros(1, 2, 6)).shape)
    (1, 2, 3)
    """

    _axes = 1
    _function = "lp_pool1d"


class LPPool2d(_LPPoolNd):
    """``(sum x^p)^(1/p)`` of a window over the last two axes, with p = norm_type.

    >>> import adjoint as ad
    >>> tuple(ad.nn.LPPool2d(2, 2)(ad.zeros(1, 2, 6, 6)).shape)
    (1, 2, 3, 3)
    """

    _axes = 2
    _function = "fractional_max_pool2d"
    _function = "lp_pool2d"


class LPPool3d(_LPPoolNd):
    """``(sum x^p)^(1/p)`` of a window over the last three axes, with p = norm_type.

    >>> import adjoint as ad
    >>> tuple(ad.nn.LPPool3d(2, 2)(ad.zeros(1, 2, 6, 6, 6)).shape)
    (1, 2, 3, 3, 3)
    """

    _axes = 3
    _function = "fractional_max_pool3d"
    _function = "lp_pool3d"


class _AdaptiveAvgPoolNd(_Pool):
    def __init__(self, output_size: OutputSize) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Any:
        return self._apply_pool(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class _AdaptiveMaxPoolNd(_Pool):
    def __init__(self, output_size: OutputSize, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        return self._apply_pool(input, self.output_size, self.return_indices)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """Means over bins chosen so that the output has ``output_size``.

    >>> import adjoint as ad
    >>> tuple(ad.nn.AdaptiveAvgPool1d(2)(ad.zeros(1, 2, 6)).shape)
    (1, 2, 2)
    """

    _axes = 1
    _function = "adaptive_avg_pool1d"


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """Maxima over bins chosen so that the output has ``output_size``.

    >>> import adjoint as ad
    >>> tuple(ad.nn.AdaptiveMaxPool1d(2)(ad.zeros(1, 2, 6)).shape)
    (1, 2, 2)
    """

    _axes = 1
    _function = "adaptive_max_pool1d"


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """Means over bins chosen so that the output has ``output_size``. None keeps an axis as it is.

    >>> import adjoint as ad
    >>> tuple(ad.nn.AdaptiveAvgPool2d(2)(ad.zeros(1, 2, 6, 6)).shape)
    (1, 2, 2, 2)
    """

    _axes = 2
    _function = "adaptive_avg_pool2d"


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """Maxima over bins chosen so that the output has ``output_size``. None keeps an axis as it is.

    >>> import adjoint as ad
    >>> tuple(ad.nn.AdaptiveMaxPool2d(2)(ad.zeros(1, 2, 6, 6)).shape)
    (1, 2, 2, 2)
    """

    _axes = 2
    _function = "adaptive_max_pool2d"


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """Means over bins chosen so that the output has ``output_size``. None keeps an axis as it is.

    >>> import adjoint as ad
    >>> tuple(ad.nn.AdaptiveAvgPool3d(2)(ad.zeros(1, 2, 6, 6, 6)).shape)
    (1, 2, 2, 2, 2)
    """

    _axes = 3
    _function = "adaptive_avg_pool3d"


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """Maxima over bins chosen so that the output has ``output_size``. None keeps an axis as it is.

    >>> import adjoint as ad
    >>> tuple(ad.nn.AdaptiveMaxPool3d(2)(ad.zeros(1, 2, 6, 6, 6)).shape)
    (1, 2, 2, 2, 2)
    """

    _axes = 3
    _function = "adaptive_max_pool3d"


class _FractionalMaxPoolNd(_Pool):
    def __init__(self, kernel_size: IntOrInts, output_size: IntOrInts | None = None,
                 output_ratio: float | Sequence[float] | None = None,
                 return_indices: bool = False, _random_samples: Tensor | None = None) -> None:
        n, layer = self._axes, type(self).__name__
        if output_size is None and output_ratio is None:
            raise ArgumentError(f"{layer} requires specifying either an output size, or a pooling "
                                "ratio")
        if output_size is not None and output_ratio is not None:
            raise ArgumentError(f"{layer}: only one of output_size and output_ratio may be "
                                "specified")
        ratio: Any = output_ratio
        if isinstance(ratio, (int, float)):
            ratio = (ratio,) * n
        if ratio is not None and not all(0 < r < 1 for r in ratio):
            raise ArgumentError(f"{layer}: output_ratio must be between 0 and 1 (got {ratio})")
        super().__init__()
        self.kernel_size = ints(kernel_size, n, layer, "kernel_size")
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = (None if output_size is None
                            else ints(output_size, n, layer, "output_size"))
        self.output_ratio = ratio

    def forward(self, input: Tensor) -> Any:
        return self._apply_pool(input, self.kernel_size, self.output_size, self.output_ratio,
                                self.return_indices, self._random_samples)


class FractionalMaxPool2d(_FractionalMaxPoolNd):
    """Maxima over windows whose steps are drawn at random (Graham 2014).

    >>> import adjoint as ad
    >>> tuple(ad.nn.FractionalMaxPool2d(2, output_size=3)(ad.zeros(1, 2, 6, 6)).shape)
    (1, 2, 3, 3)
    """

    _axes = 2
    _function = "fractional_max_pool2d"


class FractionalMaxPool3d(_FractionalMaxPoolNd):
    """Maxima over windows whose steps are drawn at random (Graham 2014).

    >>> import adjoint as ad
    >>> tuple(ad.nn.FractionalMaxPool3d(2, output_size=3)(ad.zeros(1, 2, 6, 6, 6)).shape)
    (1, 2, 3, 3, 3)
    """

    _axes = 3
    _function = "fractional_max_pool3d"
