"""Folding batch normalization into the layer before it, for inference."""
from __future__ import annotations

import copy
from typing import Any, TypeVar

import adjoint.nn._core as core
from adjoint.base.errors import ArgumentError, AssertedError
from adjoint.core.tensor import Parameter, Tensor
from adjoint.nn._core import no_grad
from adjoint.nn.modules.module import Module

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval",
           "fuse_linear_bn_weights"]

M = TypeVar("M", bound=Module)


def fuse_conv_bn_weights(conv_w: Tensor, conv_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor,
                         bn_eps: float, bn_w: Tensor | None, bn_b: Tensor | None,
                         transpose: bool = False) -> tuple[Parameter, Parameter]:
    """Weight and bias of the convolution that does both; ``transpose`` for transposed ones."""
    with no_grad():
        bias = core.zeros(bn_rm.shape, dtype=bn_rm.dtype) if conv_b is None else conv_b
        scale = (bn_rv + bn_eps).rsqrt()
        if bn_w is not None:
            scale = scale * bn_w
        shape = [1] * conv_w.ndim
        shape[1 if transpose else 0] = -1
        weight = conv_w * scale.reshape(shape)
        shift = (bias - bn_rm) * scale
        if bn_b is not None:
            shift = shift + bn_b
    return (Parameter(weight, requires_grad=conv_w.requires_grad),
            Parameter(shift, requires_grad=conv_b is not None and conv_b.requires_grad))


def fuse_linear_bn_weights(linear_w: Tensor, linear_b: Tensor | None, bn_rm: Tensor,
                           bn_rv: Tensor, bn_eps: float, bn_w: Tensor, bn_b: Tensor
                           ) -> tuple[Parameter, Parameter]:
    """Weight and bias of the linear layer that does both."""
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)


def _fuse(layer: M, bn: Any, transpose: bool) -> M:
    if layer.training or bn.training:
        raise AssertedError("Fusion only for eval!")
    if bn.running_mean is None or bn.running_var is None:
        raise ArgumentError("fusion needs a BatchNorm with running statistics")
    fused = copy.deepcopy(layer)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias,
        transpose)
    return fused


def fuse_conv_bn_eval(conv: M, bn: Any, transpose: bool = False) -> M:
    """A copy of ``conv`` that also does what the BatchNorm after it does in evaluation mode.

    >>> import adjoint as ad
    >>> conv, bn = ad.nn.Conv1d(2, 3, 2).eval(), ad.nn.BatchNorm1d(3).eval()
    >>> x = ad.randn(1, 2, 5)
    >>> bool(ad.allclose(fuse_conv_bn_eval(conv, bn)(x), bn(conv(x)), atol=1e-5))
    True
    """
    return _fuse(conv, bn, transpose)


def fuse_linear_bn_eval(linear: M, bn: Any) -> M:
    """A copy of ``linear`` that also does what the BatchNorm after it does in evaluation mode."""
    if bn.num_features not in (1, linear.out_features):
        raise AssertedError("To fuse, linear.out_features == bn.num_features or bn.num_features == "
                            f"1, got linear.out_features={linear.out_features} and "
                            f"bn.num_features={bn.num_features}")
    return _fuse(linear, bn, False)
