"""Helpers of `torch.nn.functional`, `nn.init` and `nn.modules.transformer` that layers in programs
import, beside the public names."""
from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Optional

import adjoint.nn.functional as F
from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import Tensor
from adjoint.nn import _core, grad
from adjoint.nn import init as _init
from adjoint.nn.modules import transformer
from adjoint.nn.modules.utils import _pair, _single, _triple

__all__ = [
    "Optional", "Tensor", "_Reduction", "_canonical_mask", "_detect_is_causal_mask",
    "_generate_square_subsequent_mask", "_get_activation_fn", "_get_seq_len", "_get_softmax_dim",
    "_in_projection", "_in_projection_packed", "_mha_shape_check", "_no_grad_fill_",
    "_no_grad_normal_", "_no_grad_trunc_normal_", "_no_grad_uniform_", "_no_grad_zero_",
    "_none_or_dtype", "_pair", "_scaled_dot_product_attention", "_single", "_triple",
    "_verify_batch_size", "grad", "handle_torch_function", "has_torch_function",
    "has_torch_function_unary", "has_torch_function_variadic", "math", "warnings"]


def _of_overrides(name: str) -> Callable[..., Any]:
    """A function of `adjoint.overrides`, which is loaded when it is called."""
    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(importlib.import_module("adjoint.overrides"), name)(*args, **kwargs)
    return call


has_torch_function = _of_overrides("has_torch_function")
has_torch_function_unary = _of_overrides("has_torch_function_unary")
has_torch_function_variadic = _of_overrides("has_torch_function_variadic")
handle_torch_function = _of_overrides("handle_torch_function")
_Reduction = SimpleNamespace(get_enum=["none", "mean", "sum"].index, __name__="torch.nn._reduction")
_scaled_dot_product_attention = F.scaled_dot_product_attention
_generate_square_subsequent_mask = transformer.causal_mask


# ------------------------------------------------------------------------- attention's parts
def _in_projection(q: Tensor, k: Tensor, v: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor,
                   b_q: Tensor | None = None, b_k: Tensor | None = None, b_v: Tensor | None = None
                   ) -> tuple[Tensor, Tensor, Tensor]:
    """The three operands of attention, each through a linear map of its own."""
    return F.linear(q, w_q, b_q), F.linear(k, w_k, b_k), F.linear(v, w_v, b_v)


def _in_projection_packed(q: Tensor, k: Tensor, v: Tensor, w: Tensor, b: Tensor | None = None
                          ) -> list[Tensor]:
    """The same with the three weights one below the other in `w`, (3 E, E), biases in `b`."""
    biases = (None,) * 3 if b is None else b.chunk(3)
    return list(_in_projection(q, k, v, *w.chunk(3), *biases))


def _none_or_dtype(input: Tensor | None) -> Any:
    """The dtype of a mask, None where there is none."""
    if input is not None and not isinstance(input, Tensor):
        raise ArgumentError("input to _none_or_dtype() must be None or torch.Tensor, not "
                           f"{type(input).__name__}")
    return None if input is None else input.dtype


def _canonical_mask(mask: Tensor | None, mask_name: str, other_type: Any, other_name: str,
                    target_type: Any, check_other: bool = True) -> Tensor | None:
    """A mask as numbers to add to scores: where a boolean one is True, minus infinity."""
    if mask is None:
        return None
    boolean = str(mask.dtype).endswith("bool")
    if not boolean and not mask.is_floating_point():
        raise AssertionError(f"only bool and floating types of {mask_name} are supported, got "
                             f"{mask.dtype}")
    if check_other and other_type is not None and mask.dtype != other_type:
        warnings.warn(f"Support for mismatched {mask_name} and {other_name} is deprecated. Use "
                      "same type for both instead.", stacklevel=2)
    if not boolean:
        return mask
    return _core.zeros(mask.shape, dtype=target_type).masked_fill_(mask, -math.inf)


def _mha_shape_check(query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None,
                     attn_mask: Tensor | None, num_heads: int) -> bool:
    """Whether the operands of attention have a batch; AssertionError where they do not fit."""
    axes = query.dim()
    if axes not in (2, 3):
        raise AssertionError("query should be unbatched 2D or batched 3D tensor but received "
                             f"{axes}-D query tensor")
    how = f"For {'' if axes == 3 else 'un'}batched ({axes}-D) `query`, expected "
    if key.dim() != axes or value.dim() != axes:
        raise AssertionError(f"{how}`key` and `value` to be {axes}-D but found {key.dim()}-D and "
                             f"{value.dim()}-D tensors respectively")
    if key_padding_mask is not None and key_padding_mask.dim() != axes - 1:
        raise AssertionError(f"{how}`key_padding_mask` to be `None` or {axes - 1}-D but found "
                             f"{key_padding_mask.dim()}-D tensor instead")
    if attn_mask is not None and attn_mask.dim() not in (2, 3):
        raise AssertionError(f"{how}`attn_mask` to be `None`, 2-D or 3-D but found "
                             f"{attn_mask.dim()}-D tensor instead")
    if axes == 2 and attn_mask is not None and attn_mask.dim() == 3:
        wanted = (num_heads, query.shape[0], key.shape[0])
        if tuple(attn_mask.shape) != wanted:
            raise AssertionError(f"Expected `attn_mask` shape to be {wanted} but got "
                                 f"{tuple(attn_mask.shape)}")
    return axes == 3


# ------------------------------------------------------------------------- other functions
def _get_softmax_dim(name: str, ndim: int, stacklevel: int) -> int:
    """The axis that softmax without `dim` takes, with a warning: 0 of 0, 1 or 3 axes, else 1."""
    warnings.warn(f"Implicit dimension choice for {name} has been deprecated. Change the call to "
                  "include dim=X as an argument.", stacklevel=stacklevel)
    return 0 if ndim in (0, 1, 3) else 1


def _verify_batch_size(size: list[int]) -> None:
    """ValueError where a channel has one value only, which has no variance."""
    if size[0] * math.prod(size[2:]) == 1:
        raise ArgumentError("Expected more than 1 value per channel when training, got input size "
                            f"{size}")


def _get_activation_fn(activation: str) -> Callable[[Tensor], Tensor]:
    """relu or gelu, by name."""
    if activation not in ("relu", "gelu"):
        raise ArgumentError(f"activation should be relu/gelu, not {activation}")
    return F.relu if activation == "relu" else F.gelu


def _get_seq_len(src: Tensor, batch_first: bool) -> int | None:
    """The length of the sequence in `src` of an encoder; None of a nested tensor."""
    if src.is_nested:
        return None
    return src.shape[0 if src.dim() == 2 or not batch_first else 1]


def _detect_is_causal_mask(mask: Tensor | None, is_causal: bool | None = None,
                           size: int | None = None) -> bool:
    """`is_causal` where it is given, else whether `mask` is the causal one (of `size`)."""
    if is_causal is None and mask is not None and size not in (None, mask.shape[-1]):
        return False
    return transformer._is_causal(mask, is_causal)


# ------------------------------------------------------------------------- filling parameters
def _no_grad_uniform_(tensor: Tensor, a: float, b: float, generator: Any = None) -> Tensor:
    """Fill with draws from U(a, b); nothing is recorded, here and below."""
    return _init.uniform_(tensor, a, b, generator)


def _no_grad_normal_(tensor: Tensor, mean: float, std: float, generator: Any = None) -> Tensor:
    """Fill with draws from N(mean, std^2)."""
    return _init.normal_(tensor, mean, std, generator)


def _no_grad_trunc_normal_(tensor: Tensor, mean: float, std: float, a: float, b: float,
                           generator: Any = None) -> Tensor:
    """Fill with draws from N(mean, std^2) within [a, b]."""
    return _init.trunc_normal_(tensor, mean, std, a, b, generator)


def _no_grad_fill_(tensor: Tensor, val: float) -> Tensor:
    """Fill with one value."""
    return _init.constant_(tensor, val)


def _no_grad_zero_(tensor: Tensor) -> Tensor:
    """Fill with zeros."""
    return _init.zeros_(tensor)
