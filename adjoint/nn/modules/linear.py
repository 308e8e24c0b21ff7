"""Linear, Bilinear, Identity."""
from __future__ import annotations

import math
from typing import Any

import adjoint.nn.functional as F
from adjoint.core.tensor import Parameter, Tensor
from adjoint.nn import init
from adjoint.nn.modules._check import empty_parameter, features, positive
from adjoint.nn.modules.module import Module

__all__ = ["Bilinear", "Identity", "Linear", "NonDynamicallyQuantizableLinear"]


class Identity(Module):
    """Returns its input; arguments of the constructor are ignored.

    >>> import adjoint as ad
    >>> ad.nn.Identity(54, anything=True)(ad.tensor(1.5)).item()
    1.5
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


class Linear(Module):
    """``y = x W^T + b``: x (..., in_features) -> (..., out_features).

    ``weight`` is (out_features, in_features), ``bias`` (out_features,) or None; both start
    uniform in +-1/sqrt(in_features). Raises ArgumentError for negative sizes and ShapeError if
    the last axis of x is not in_features.

    >>> import adjoint as ad
    >>> tuple(ad.nn.Linear(20, 30)(ad.zeros(128, 20)).shape)
    (128, 30)
    """

    in_features: int
    out_features: int
    weight: Parameter

    def __init__(self, in_features: int, out_features: int, bias: bool = True, device: Any = None,
                 dtype: Any = None) -> None:
        positive("Linear", zero_ok=True, in_features=in_features, out_features=out_features)
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = empty_parameter((out_features, in_features), device, dtype)
        if bias:
            self.bias = empty_parameter((out_features,), device, dtype)
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias anew (He et al. 2015 with a = sqrt(5): +-1/sqrt(fan_in))."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        features(self, input, self.in_features)
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (f"in_features={self.in_features}, out_features={self.out_features}, "
                f"bias={self.bias is not None}")


class NonDynamicallyQuantizableLinear(Linear):
    """Linear under the name that MultiheadAttention gives its output projection."""


class Bilinear(Module):
    """``y_k = x1^T W_k x2 + b_k``: x1 (..., in1_features), x2 (..., in2_features) ->
    (..., out_features).

    >>> import adjoint as ad
    >>> tuple(ad.nn.Bilinear(2, 3, 4)(ad.zeros(5, 2), ad.zeros(5, 3)).shape)
    (5, 4)
    """

    def __init__(self, in1_features: int, in2_features: int, out_features: int, bias: bool = True,
                 device: Any = None, dtype: Any = None) -> None:
        positive("Bilinear", in1_features=in1_features)
        positive("Bilinear", zero_ok=True, in2_features=in2_features, out_features=out_features)
        super().__init__()
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        self.weight = empty_parameter((out_features, in1_features, in2_features), device, dtype)
        if bias:
            self.bias = empty_parameter((out_features,), device, dtype)
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias uniformly from +-1/sqrt(in1_features)."""
        bound = 1 / math.sqrt(self.weight.shape[1])
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        features(self, input1, self.in1_features, "input1")
        features(self, input2, self.in2_features, "input2")
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
                f"out_features={self.out_features}, bias={self.bias is not None}")
