"""`torch.nn.grad`: the gradients of convolutions, as functions of their own.

``input_size`` and ``weight_size`` are the shapes of the tensor whose gradient is wanted; the rest
of the arguments is that of the convolution. Shapes: input (N, C_in, *), weight (C_out,
C_in / groups, *), grad_output (N, C_out, *). All of them differentiate again.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adjoint.base.errors import ShapeError
from adjoint.base.errors import missing as _missing
from adjoint.core.tensor import Tensor
from adjoint.kernels.conv_numpy import per_dim
from adjoint.nn.modules._check import IntOrInts
from adjoint.ops.conv import conv_input_op, conv_weight_op
from adjoint.ops.linalg import conj


def _geometry(name: str, axes: int, stride: Any, padding: Any, dilation: Any, groups: int,
              *shapes: Sequence[int]) -> dict[str, Any]:
    for shape in shapes:
        if len(shape) != axes + 2:
            raise ShapeError(f"{name}: input, weight and grad_output must have {axes + 2} axes, "
                             f"got shapes {', '.join(str(list(s)) for s in shapes)}")
    return {"stride": per_dim(stride, axes), "padding": per_dim(padding, axes),
            "dilation": per_dim(dilation, axes), "groups": groups}


def _input(axes: int) -> Any:
    def gradient(input_size: Sequence[int], weight: Tensor, grad_output: Tensor,
                 stride: IntOrInts = 1, padding: IntOrInts = 0, dilation: IntOrInts = 1,
                 groups: int = 1) -> Tensor:
        attrs = _geometry(f"conv{axes}d_input", axes, stride, padding, dilation, groups,
                          input_size, weight.shape, grad_output.shape)
        out: Tensor = conv_input_op(grad_output, conj(weight), x_shape=tuple(input_size), **attrs)
        return out
    gradient.__name__ = gradient.__qualname__ = f"conv{axes}d_input"
    gradient.__doc__ = (f"The gradient of conv{axes}d with respect to its input, of shape "
                        "``input_size``.")
    return gradient


def _weight(axes: int) -> Any:
    def gradient(input: Tensor, weight_size: Sequence[int], grad_output: Tensor,
                 stride: IntOrInts = 1, padding: IntOrInts = 0, dilation: IntOrInts = 1,
                 groups: int = 1) -> Tensor:
        attrs = _geometry(f"conv{axes}d_weight", axes, stride, padding, dilation, groups,
                          input.shape, weight_size, grad_output.shape)
        out: Tensor = conv_weight_op(grad_output, conj(input), w_shape=tuple(weight_size), **attrs)
        return out
    gradient.__name__ = gradient.__qualname__ = f"conv{axes}d_weight"
    gradient.__doc__ = (f"The gradient of conv{axes}d with respect to its weight, of shape "
                        "``weight_size``.")
    return gradient


conv1d_input, conv2d_input, conv3d_input = (_input(n) for n in (1, 2, 3))
conv1d_weight, conv2d_weight, conv3d_weight = (_weight(n) for n in (1, 2, 3))
__all__ = ["conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input",
           "conv3d_weight"]
__getattr__ = _missing("adjoint.nn.grad")
